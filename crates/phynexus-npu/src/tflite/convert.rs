//! The same value in another form.

use super::{
    constant::{Constant, Numbers},
    graph::Stored,
    layout::{Layout, permuted},
    port::integer,
    schema::{Code, Kind, plain, reshape},
    writer::{Held, Scheme, Writer},
};
use crate::Result;

impl Writer<'_> {
    /// The same value as real numbers, if it is quantized.
    pub(crate) fn real(&mut self, held: Held) -> Result<Held> {
        let tensor = self.stored(&held).clone();
        let Some(quantization) = tensor.quantization else { return Ok(held) };
        if let Some(known) = self.converted.get(&(held.clone(), None)) {
            return Ok(known.clone());
        }
        let name = format!("{}/real", tensor.name);
        let shape = tensor.shape.clone();
        let mut made = Stored { name, shape, kind: Kind::F32, quantization: None, data: None };
        let is_constant = tensor.data.is_some();
        if let Some(data) = tensor.data {
            let size = tensor.kind.size();
            let integers = data.chunks_exact(size).map(integer).collect();
            let shape = tensor.shape.iter().map(|&extent| extent as usize).collect();
            let numbers = Numbers::Quantized(integers, Scheme { kind: tensor.kind, quantization });
            let real = Constant { shape, numbers }.real();
            made.data = Some(real.into_iter().flat_map(|x| (x as f32).to_le_bytes()).collect());
        }
        let output = self.push(made);
        if !is_constant {
            self.step(Code::DEQUANTIZE, vec![held.tensor], output, plain(Code::DEQUANTIZE));
        }
        let result = Held { tensor: output, layout: held.layout.clone() };
        self.converted.insert((held, None), result.clone());
        Ok(result)
    }

    /// The same value in this layout; `shape` is its shape in the network.
    pub(crate) fn in_layout(&mut self, held: Held, shape: &[usize], layout: &Layout) -> Result<Held> {
        let is_flat = |layout: &Layout| matches!(layout, Layout::FlatChannelsLast(_));
        if held.layout == *layout || (shape.len() < 3 && !is_flat(&held.layout) && !is_flat(layout)) {
            return Ok(Held { layout: layout.clone(), ..held });
        }
        let key = (held.clone(), Some(layout.clone()));
        if let Some(known) = self.converted.get(&key) {
            return Ok(known.clone());
        }
        let tensor = if held.layout.is_network_order(shape) && layout.is_network_order(shape) {
            self.reshaped(held.tensor, layout.shape(shape))
        } else {
            match (&held.layout, layout) {
                (&Layout::FlatChannelsLast([channels, height, width]), Layout::Network) => {
                    let image = [shape[0], height, width, channels].map(|extent| extent as i32);
                    let apart = self.reshaped(held.tensor, image.to_vec());
                    let moved = self.transposed(apart, &[0, 3, 1, 2])?;
                    self.reshaped(moved, Layout::Network.shape(shape))
                }
                (Layout::Network, Layout::ChannelsLast) => {
                    self.transposed(held.tensor, &layout.axes(shape.len()))?
                }
                (Layout::ChannelsLast, Layout::Network) => {
                    let back: Vec<usize> =
                        (0..shape.len()).map(|axis| held.layout.axis(axis, shape.len())).collect();
                    self.transposed(held.tensor, &back)?
                }
                _ => return Err(self.refuse("no operator changes a value's order so")),
            }
        };
        let result = Held { tensor, layout: layout.clone() };
        self.converted.insert(key, result.clone());
        Ok(result)
    }

    /// The same elements with these extents in the file.
    pub(crate) fn reshaped(&mut self, tensor: i32, shape: Vec<i32>) -> i32 {
        let like = self.graph.tensors[tensor as usize].clone();
        if like.shape == shape {
            return tensor;
        }
        let name = format!("{}/reshaped{}", like.name, self.graph.tensors.len());
        let is_constant = like.data.is_some();
        let made = self.push(Stored { name, shape: shape.clone(), ..like });
        if !is_constant {
            let extents = self.integers(&shape);
            self.step(Code::RESHAPE, vec![tensor, extents], made, reshape(shape));
        }
        made
    }

    /// The tensor with its axes in another order.
    pub(crate) fn transposed(&mut self, tensor: i32, order: &[usize]) -> Result<i32> {
        let like = self.graph.tensors[tensor as usize].clone();
        if like.quantization.as_ref().is_some_and(|quantization| quantization.scales.len() > 1) {
            return Err(self.refuse("a transposed value has a scale for each channel"));
        }
        let extents: Vec<usize> = like.shape.iter().map(|&extent| extent as usize).collect();
        let shape = order.iter().map(|&axis| like.shape[axis]).collect();
        let name = format!("{}/transposed{}", like.name, self.graph.tensors.len());
        let data = like.data.as_ref().map(|data| {
            let elements: Vec<&[u8]> = data.chunks_exact(like.kind.size()).collect();
            permuted(&elements, &extents, order).concat()
        });
        let is_constant = data.is_some();
        let made = self.push(Stored { name, shape, data, ..like });
        if !is_constant {
            let order: Vec<i32> = order.iter().map(|&axis| axis as i32).collect();
            let order = self.integers(&order);
            self.step(Code::TRANSPOSE, vec![tensor, order], made, plain(Code::TRANSPOSE));
        }
        Ok(made)
    }
}
