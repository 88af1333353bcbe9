//! `LayerNormalization`, which TFLite has only as its parts.

use super::{
    graph::Stored,
    layout::Layout,
    schema::{Activation, Code, Kind, arithmetic, plain, reducer},
    writer::Writer,
};
use crate::Result;

impl Writer<'_> {
    /// `LayerNormalization` over the last axis, in real numbers: a mean of squares has too few steps in 8 bits.
    pub(crate) fn layer_normalization(&mut self) -> Result<()> {
        if self.node().output.iter().skip(1).any(|name| !name.is_empty()) {
            return Err(self.refuse("its mean and deviation have no form in TFLite"));
        }
        let x = self.input(0)?;
        let rank = self.shape(x)?.len();
        if self.axis(self.integer("axis", -1), rank)? + 1 != rank {
            return Err(self.refuse("a normalization over several axes has no form in TFLite"));
        }
        let gain = self.vector(self.input(1)?)?;
        let shift = self.name(2).map(|name| self.vector(name)).transpose()?;
        let epsilon = self.float("epsilon", 1e-5);
        let goal = self.goal(false)?;
        let held = self.real_in(x, &Layout::Network)?;
        let whole = self.stored(&held).shape.clone();
        let single: Vec<i32> =
            whole.iter().enumerate().map(|(at, &n)| if at + 1 == rank { 1 } else { n }).collect();
        let mean = self.mean_of_last(held.tensor, &single);
        let centred = self.combined(Code::SUB, [held.tensor, mean], &whole);
        let squares = self.combined(Code::MUL, [centred, centred], &whole);
        let variance = self.mean_of_last(squares, &single);
        let epsilon = self.reals(&[epsilon], rank);
        let variance = self.combined(Code::ADD, [variance, epsilon], &single);
        let deviation = self.between(&single);
        self.step(Code::SQRT, vec![variance], deviation, plain(Code::SQRT));
        let normal = self.combined(Code::DIV, [centred, deviation], &whole);
        let gain = self.reals(&gain, rank);
        let result = self.result(&goal, &Layout::Network, false)?;
        let (code, last) = match shift {
            None => (Code::MUL, [normal, gain]),
            Some(shift) => {
                let scaled = self.combined(Code::MUL, [normal, gain], &whole);
                (Code::ADD, [scaled, self.reals(&shift, rank)])
            }
        };
        self.step(code, last.to_vec(), result, arithmetic(code, Activation::None));
        Ok(())
    }

    /// The numbers of a constant.
    fn vector(&self, name: &str) -> Result<Vec<f32>> {
        let constant = self.constant(name)?;
        let constant = constant.ok_or_else(|| self.refuse("its factors are not constant"))?;
        Ok(constant.real().into_iter().map(|x| x as f32).collect())
    }

    /// A constant of real numbers along the last of so many axes.
    fn reals(&mut self, numbers: &[f32], rank: usize) -> i32 {
        let mut shape = vec![1; rank];
        if let Some(last) = shape.last_mut() {
            *last = numbers.len() as i32;
        }
        let name = format!("{}/constant{}", self.node().name, self.graph.tensors.len());
        let data = Some(numbers.iter().flat_map(|x| x.to_le_bytes()).collect());
        self.push(Stored { name, shape, kind: Kind::F32, quantization: None, data })
    }

    /// A tensor of real numbers between two steps.
    fn between(&mut self, shape: &[i32]) -> i32 {
        let name = format!("{}/step{}", self.node().name, self.graph.tensors.len());
        self.push(Stored { name, shape: shape.to_vec(), kind: Kind::F32, quantization: None, data: None })
    }

    fn combined(&mut self, code: Code, operands: [i32; 2], shape: &[i32]) -> i32 {
        let made = self.between(shape);
        self.step(code, operands.to_vec(), made, arithmetic(code, Activation::None));
        made
    }

    fn mean_of_last(&mut self, tensor: i32, shape: &[i32]) -> i32 {
        let axes = self.integers(&[shape.len() as i32 - 1]);
        let made = self.between(shape);
        self.step(Code::MEAN, vec![tensor, axes], made, reducer(true));
        made
    }
}
