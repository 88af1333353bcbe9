//! Operators that move elements.

use neurenix_onnx::edit::integers_of;

use super::{
    graph::Stored,
    layout::Layout,
    schema::{Code, Kind, concatenation, gather, plain, reshape},
    writer::{Held, Writer},
};
use crate::Result;

impl Writer<'_> {
    /// `Reshape` and others that keep the order of elements.
    pub(crate) fn reshape(&mut self) -> Result<()> {
        let (x, output) = (self.input(0)?, self.output());
        let (from, to) = (self.shape(x)?, self.shape(output)?);
        let held = self.held(x)?;
        if from == to {
            self.bind(output, held);
            return Ok(());
        }
        let layout = match (&held.layout, from, to) {
            // Pixels before channels stay so in a row of them: a product can sort its weights instead.
            (Layout::ChannelsLast, &[n, c, h, w], &[rows, columns])
                if rows == n && columns == c * h * w && !held.layout.is_network_order(from) =>
            {
                Layout::FlatChannelsLast([c, h, w])
            }
            _ => Layout::Network,
        };
        let held = match layout {
            Layout::Network => self.value_in(x, &Layout::Network)?,
            _ => held,
        };
        let shape = layout.shape(to);
        let result = self.result_like(&held, &layout)?;
        let extents = self.integers(&shape);
        self.step(Code::RESHAPE, vec![held.tensor, extents], result, reshape(shape));
        Ok(())
    }

    /// `Identity`, and `Dropout` outside training.
    pub(crate) fn identity(&mut self) -> Result<()> {
        if self.node().output.get(1).is_some_and(|mask| !mask.is_empty()) {
            return Err(self.refuse("a mask has no form in TFLite"));
        }
        let held = self.held(self.input(0)?)?;
        self.bind(self.output(), held);
        Ok(())
    }

    /// `Transpose`.
    pub(crate) fn transpose(&mut self) -> Result<()> {
        let (x, output) = (self.input(0)?, self.output());
        let rank = self.shape(x)?.len();
        let order: Vec<usize> = match integers_of(self.node(), "perm") {
            Some(order) => order.iter().map(|&axis| self.axis(axis, rank)).collect::<Result<_>>()?,
            None => (0..rank).rev().collect(),
        };
        if order.len() != rank {
            return Err(self.refuse("the order has another number of axes than the input"));
        }
        let mut held = self.held(x)?;
        if matches!(held.layout, Layout::FlatChannelsLast(_)) {
            held = self.value_in(x, &Layout::Network)?;
        }
        let order: Vec<usize> = order.into_iter().map(|axis| held.layout.axis(axis, rank)).collect();
        let is_in_order = order.iter().enumerate().all(|(at, &axis)| at == axis);
        let tensor = if is_in_order { held.tensor } else { self.transposed(held.tensor, &order)? };
        self.bind(output, Held { tensor, layout: Layout::Network });
        Ok(())
    }

    /// `Concat`.
    pub(crate) fn concatenate(&mut self) -> Result<()> {
        let names: Vec<&str> = self.node().input.iter().map(String::as_str).collect();
        let goal = self.goal(false)?;
        let rank = self.shape(&goal.name)?.len();
        let axis = self.axis(self.integer("axis", 0), rank)?;
        let quantized = self.quantized_kind(&names, &goal)?.is_some();
        let mut is_last = rank > 2;
        for name in &names {
            let held = self.held(name)?;
            let is_constant = self.stored(&held).data.is_some();
            is_last &= is_constant || held.layout == Layout::ChannelsLast;
        }
        let layout = if is_last { Layout::ChannelsLast } else { Layout::Network };
        let mut inputs = Vec::new();
        for name in &names {
            let mut held = self.operand(name, &layout, quantized)?;
            if let Some(scheme) = goal.scheme.clone().filter(|_| quantized) {
                let like = self.stored(&held).clone();
                if like.quantization.as_ref() != Some(&scheme.quantization) {
                    // All inputs must have the scale of the result.
                    let name = format!("{}/scaled{}", like.name, self.graph.tensors.len());
                    let quantization = Some(scheme.quantization);
                    let made = self.push(Stored { name, quantization, data: None, ..like });
                    self.step(Code::QUANTIZE, vec![held.tensor], made, plain(Code::QUANTIZE));
                    held.tensor = made;
                }
            }
            inputs.push(held.tensor);
        }
        let result = self.result(&goal, &layout, quantized)?;
        self.step(Code::CONCATENATION, inputs, result, concatenation(layout.axis(axis, rank) as i32));
        Ok(())
    }

    /// `Pad` with a constant.
    pub(crate) fn pad(&mut self) -> Result<()> {
        let x = self.input(0)?;
        let rank = self.shape(x)?.len();
        if self.text("mode", "constant") != "constant" {
            return Err(self.refuse("only pads with a constant are written"));
        }
        let pads = match integers_of(self.node(), "pads") {
            Some(pads) => pads.to_vec(),
            None => self.constant_input(1)?.ok_or_else(|| self.refuse("the pads are missing"))?,
        };
        let value = match self.name(2) {
            None => self.float("value", 0.0),
            Some(name) => match self.constant(name)?.and_then(|value| value.real().first().copied()) {
                Some(value) => value as f32,
                None => return Err(self.refuse("the value is not constant")),
            },
        };
        let axes: Vec<usize> = match self.constant_input(3)? {
            Some(axes) => axes.into_iter().map(|axis| self.axis(axis, rank)).collect::<Result<_>>()?,
            None => (0..rank).collect(),
        };
        if pads.len() != 2 * axes.len() || pads.iter().any(|&pad| pad < 0 || pad > i64::from(i32::MAX)) {
            return Err(self.refuse("pads must be two for each axis, and not negative"));
        }
        let mut held = self.held(x)?;
        if matches!(held.layout, Layout::FlatChannelsLast(_)) {
            held = self.value_in(x, &Layout::Network)?;
        }
        if value != 0.0 {
            held = self.real(held)?;
        }
        let mut numbers = vec![0; 2 * rank];
        for (at, &axis) in axes.iter().enumerate() {
            let place = held.layout.axis(axis, rank);
            numbers[2 * place] = pads[at] as i32;
            numbers[2 * place + 1] = pads[axes.len() + at] as i32;
        }
        let table = self.integers(&numbers);
        self.graph.tensors[table as usize].shape = vec![rank as i32, 2];
        let result = self.result_like(&held, &held.layout)?;
        if value == 0.0 {
            self.step(Code::PAD, vec![held.tensor, table], result, plain(Code::PAD));
            return Ok(());
        }
        let name = format!("{}/value", self.node().name);
        let data = Some(value.to_le_bytes().to_vec());
        let number = Stored { name, shape: vec![1], kind: Kind::F32, quantization: None, data };
        let number = self.push(number);
        self.step(Code::PADV2, vec![held.tensor, table, number], result, plain(Code::PADV2));
        Ok(())
    }

    /// `Slice` with constant limits.
    pub(crate) fn slice(&mut self) -> Result<()> {
        let x = self.input(0)?;
        let shape = self.shape(x)?;
        let rank = shape.len();
        let old = |name: &str| integers_of(self.node(), name).map(<[i64]>::to_vec);
        let list = |name: &str, position: usize| match old(name) {
            Some(numbers) => Ok(Some(numbers)),
            None => self.constant_input(position),
        };
        let (Some(starts), Some(ends)) = (list("starts", 1)?, list("ends", 2)?) else {
            return Err(self.refuse("the limits are missing"));
        };
        let axes: Vec<usize> = match list("axes", 3)? {
            Some(axes) => axes.into_iter().map(|axis| self.axis(axis, rank)).collect::<Result<_>>()?,
            None => (0..starts.len()).collect(),
        };
        let steps = self.constant_input(4)?.unwrap_or_else(|| vec![1; axes.len()]);
        let is_short = [starts.len(), ends.len(), steps.len()].iter().any(|&count| count != axes.len());
        if is_short || axes.len() > rank || steps.iter().any(|&step| step < 1) {
            return Err(self.refuse("only steps forward are written"));
        }
        let mut held = self.held(x)?;
        if matches!(held.layout, Layout::FlatChannelsLast(_)) {
            held = self.value_in(x, &Layout::Network)?;
        }
        let extents: Vec<i32> = held.layout.shape(shape);
        let (mut begin, mut end, mut stride) = (vec![0; rank], extents, vec![1; rank]);
        for (at, &axis) in axes.iter().enumerate() {
            let extent = shape[axis] as i64;
            let limit = |given: i64| {
                (if given < 0 { given.saturating_add(extent) } else { given }).clamp(0, extent) as i32
            };
            let place = held.layout.axis(axis, rank);
            (begin[place], end[place]) = (limit(starts[at]), limit(ends[at]));
            stride[place] = steps[at].min(extent.max(1)) as i32;
        }
        let result = self.result_like(&held, &held.layout)?;
        let first = self.integers(&begin);
        if stride.iter().all(|&step| step == 1) {
            let size: Vec<i32> = end.iter().zip(&begin).map(|(end, begin)| end - begin).collect();
            let size = self.integers(&size);
            self.step(Code::SLICE, vec![held.tensor, first, size], result, plain(Code::SLICE));
        } else {
            let (last, steps) = (self.integers(&end), self.integers(&stride));
            let inputs = vec![held.tensor, first, last, steps];
            self.step(Code::STRIDED_SLICE, inputs, result, plain(Code::STRIDED_SLICE));
        }
        Ok(())
    }

    /// `Gather`.
    pub(crate) fn gather(&mut self) -> Result<()> {
        let (x, indices) = (self.input(0)?, self.input(1)?);
        let held = self.held(x)?;
        let rank = self.shape_of(x, &held)?.len();
        let axis = self.axis(self.integer("axis", 0), rank)?;
        let is_counted_back = match self.constant(indices)? {
            Some(constant) => constant.real().iter().any(|&index| index < 0.0),
            None => false,
        };
        if is_counted_back {
            return Err(self.refuse("negative indices have no form in TFLite"));
        }
        let held = self.value_in(x, &Layout::Network)?;
        let held = match self.stored(&held).quantization.as_ref().is_some_and(|q| q.single().is_none()) {
            true => self.real(held)?,
            false => held,
        };
        let indices = self.value_in(indices, &Layout::Network)?;
        let result = self.result_like(&held, &Layout::Network)?;
        self.step(Code::GATHER, vec![held.tensor, indices.tensor], result, gather(axis as i32));
        Ok(())
    }
}
