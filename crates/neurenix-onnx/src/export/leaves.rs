//! Tensors that the network reads. The engine makes views of computed tensors at once, so that a leaf may be a part of
//! a weight, a transposed one, or one that is repeated along axes that vary.

use phynexus::{
    Tensor,
    shape::{Layout, contiguous_strides},
};

use super::{emit::Emitter, graph::Extent, writer::Value};
use crate::{Error, Result};

/// A part of a tensor, with axes in another order and repeated along others.
#[derive(Debug)]
struct View {
    /// For each axis of the tensor, the first position and how many there are.
    starts: Vec<i64>,
    sizes: Vec<i64>,
    /// For each axis of the view, that of the tensor; `None` for axes of size 1 and those that repeat.
    axes: Vec<Option<usize>>,
}

impl View {
    /// How the layout `view` reads a tensor of the layout `base`, if it does so axis by axis.
    fn new(base: &Layout, view: &Layout) -> Option<View> {
        if !base.is_contiguous() {
            return None;
        }
        let rank = base.shape.len();
        let strides = contiguous_strides(&base.shape);
        let mut rest = view.offset.checked_sub(base.offset)?;
        let (mut starts, mut sizes) = (vec![0; rank], vec![1; rank]);
        for axis in (0..rank).filter(|&axis| base.shape[axis] > 1) {
            let stride = strides[axis].unsigned_abs();
            starts[axis] = (rest / stride) as i64;
            rest %= stride;
        }
        let mut axes = Vec::with_capacity(view.shape.len());
        for (&size, &stride) in view.shape.iter().zip(&view.strides) {
            if size == 1 || stride == 0 {
                axes.push(None);
                continue;
            }
            let axis = (0..rank).find(|&axis| base.shape[axis] > 1 && strides[axis] == stride)?;
            if axes.contains(&Some(axis)) {
                return None;
            }
            sizes[axis] = size as i64;
            axes.push(Some(axis));
        }
        let inside = (0..rank).all(|axis| starts[axis] + sizes[axis] <= base.shape[axis] as i64);
        (rest == 0 && inside).then_some(View { starts, sizes, axes })
    }
}

/// The tensor with axes that repeat reduced to size 1.
fn unrepeated(tensor: &Tensor) -> Result<Tensor> {
    let mut tensor = tensor.clone();
    let layout = tensor.storage()?.layout;
    for (axis, &stride) in layout.strides.iter().enumerate() {
        if stride == 0 && layout.shape[axis] > 1 {
            tensor = tensor.narrow(axis as i64, 0, 1)?;
        }
    }
    Ok(tensor)
}

impl Emitter<'_> {
    /// A leaf of both networks that is no input: a part of one of these weights, or a tensor of its own.
    pub(super) fn leaf(
        &mut self,
        leaf: [&Tensor; 2],
        weights: &[(&Tensor, Value)],
        inputs: &[&Tensor],
    ) -> Result<Value> {
        let storages = [leaf[0].storage()?, leaf[1].storage()?];
        for (weight, value) in weights {
            let base = weight.storage()?;
            if !storages.iter().all(|storage| storage.buffer.is_same(&base.buffer))
                || weight.dtype() != leaf[0].dtype()
            {
                continue;
            }
            let views = [0, 1].map(|n| View::new(&base.layout, &storages[n].layout));
            if let [Some(first), Some(second)] = views
                && first.axes == second.axes
            {
                return self.view(value, &first, &second);
            }
        }
        for input in inputs.iter().filter(|input| input.is_evaluated()) {
            if storages[0].buffer.is_same(&input.storage()?.buffer) {
                return Err(Error::invalid(
                    "the network takes a view of an input that is computed already, which the graph does not show: \
                     inputs must be pending, such as `x + 0`, or require a gradient",
                ));
            }
        }
        let [first, second] = [unrepeated(leaf[0])?, unrepeated(leaf[1])?];
        if first.shape() != second.shape()
            || (!first.is_same(&second) && first.to_bytes()? != second.to_bytes()?)
        {
            return Err(Error::invalid(format!(
                "the network reads a tensor of shape {:?} with some sizes and another, of shape {:?}, with others",
                leaf[0].shape(),
                leaf[1].shape()
            )));
        }
        Ok(self.writer.tensor(None, &first))
    }

    fn view(&mut self, base: &Value, first: &View, second: &View) -> Result<Value> {
        let rank = base.shape.len();
        let place = |n: &View, axis: usize| (n.starts[axis], n.starts[axis] + n.sizes[axis]);
        let bounds = |axis: usize| {
            let ((a, b), (c, d)) = (place(first, axis), place(second, axis));
            ([a, c], [b, d])
        };
        let cut: Vec<usize> = (0..rank).filter(|&axis| bounds(axis) != ([0, 0], base.shape[axis])).collect();
        let mut value = base.clone();
        if !cut.is_empty() {
            let (starts, ends): (Vec<Extent>, Vec<Extent>) = cut.iter().map(|&axis| bounds(axis)).unzip();
            let (starts, ends) = (self.writer.shape(&starts, &[])?, self.writer.shape(&ends, &[])?);
            let axes: Vec<i64> = cut.iter().map(|&axis| axis as i64).collect();
            let axes = self.writer.vector(&axes);
            let mut shape = base.shape.clone();
            cut.iter().for_each(|&axis| shape[axis] = [first.sizes[axis], second.sizes[axis]]);
            value = self.writer.node("Slice", &[base, &starts, &ends, &axes], Vec::new(), base.dtype, shape);
        }
        let used: Vec<usize> = first.axes.iter().flatten().copied().collect();
        let order: Vec<i64> = (0..rank)
            .filter(|axis| !used.contains(axis))
            .chain(used.iter().copied())
            .map(|a| a as i64)
            .collect();
        let moved = used.windows(2).any(|pair| pair[0] > pair[1]);
        if moved {
            value = self.transposed(&value, &order);
        }
        let size = |axis: &Option<usize>| axis.map_or([1, 1], |axis| [first.sizes[axis], second.sizes[axis]]);
        let target: Vec<Extent> = first.axes.iter().map(size).collect();
        let ones = target.iter().take_while(|extent| **extent == [1, 1]).count();
        let stretches = value.shape.len() <= target.len()
            && value.shape[..] == target[target.len() - value.shape.len()..];
        if stretches && target.len() - value.shape.len() <= ones {
            return Ok(value);
        }
        self.reshaped(&value, &target)
    }
}
