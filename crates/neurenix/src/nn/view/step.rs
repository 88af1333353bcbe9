//! The steps from a base's value to that of a view, and back.

use phynexus::{
    Error as EngineError, Tensor,
    gradient::record_gradients,
    shape::{Dims, contiguous_strides, element_count},
    tensor::IndexSpec,
};

/// How a value becomes that of a view.
#[derive(Clone)]
pub enum ViewStep {
    /// The elements in another shape.
    Reshape(Dims),
    /// The axes in another order.
    Permute(Dims),
    /// The elements at an index of numbers and slices.
    Index(Vec<IndexSpec>),
    /// The windows of `size` elements along an axis that begin every `step` elements. The axis is that of the windows;
    /// that of their elements follows it. If windows overlap, the view cannot be changed.
    Windows {
        /// The axis.
        axis: usize,
        /// The elements of a window.
        size: usize,
        /// The distance of two windows.
        step: usize,
    },
    /// Axes of size 1 repeated. If any is, the view cannot be changed.
    Expand(Dims),
    /// The value without its gradients.
    Detach,
}

impl std::fmt::Debug for ViewStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ViewStep::Reshape(_) => "Reshape",
            ViewStep::Permute(_) => "Permute",
            ViewStep::Index(_) => "Index",
            ViewStep::Windows { .. } => "Windows",
            ViewStep::Expand(_) => "Expand",
            ViewStep::Detach => "Detach",
        })
    }
}

impl ViewStep {
    /// The view's value.
    ///
    /// # Errors
    /// If the step does not fit the value.
    pub fn apply(&self, value: &Tensor) -> phynexus::Result<Tensor> {
        match self {
            ViewStep::Reshape(shape) => value.reshape(shape),
            ViewStep::Permute(order) => value.permute(order),
            ViewStep::Index(specs) => value.index(specs),
            &ViewStep::Windows { axis, size, step } => value.index(&windows(value, axis, size, step)?),
            ViewStep::Expand(shape) => value.expand(shape),
            ViewStep::Detach => value.detach(),
        }
    }

    /// The value `before` the step, changed so that the step makes `part` of it.
    pub(super) fn put(&self, before: &Tensor, part: &Tensor) -> phynexus::Result<Tensor> {
        match self {
            ViewStep::Reshape(_) => part.reshape(before.shape()),
            ViewStep::Permute(order) => {
                let mut back = Dims::from_elem(0, order.len());
                order.iter().enumerate().for_each(|(place, &axis)| back[axis] = place);
                part.permute(&back)
            }
            ViewStep::Index(specs) => before.index_put(specs, part),
            ViewStep::Detach => with_gradient_of(before, part),
            _ if part.is_empty() => Ok(before.clone()),
            _ if self.repeats(before.shape(), part.shape()) => Err(EngineError::argument(
                "in place",
                "several elements of the view are one element of its base: use clone() before changing it",
            )),
            ViewStep::Expand(_) => part.reshape(before.shape()),
            &ViewStep::Windows { axis, size, step } => {
                before.index_put(&windows(before, axis, size, step)?, part)
            }
        }
    }

    /// Whether several elements after the step are one before it.
    pub(super) fn repeats(&self, before: &[usize], after: &[usize]) -> bool {
        match self {
            ViewStep::Expand(_) => element_count(after) > element_count(before),
            &ViewStep::Windows { axis, size, step } => size > step && after[axis] > 1,
            _ => false,
        }
    }

    /// True if both move elements in the same way.
    pub(super) fn is_same(&self, other: &ViewStep) -> bool {
        match (self, other) {
            (ViewStep::Reshape(a), ViewStep::Reshape(b))
            | (ViewStep::Permute(a), ViewStep::Permute(b))
            | (ViewStep::Expand(a), ViewStep::Expand(b)) => a == b,
            (ViewStep::Index(a), ViewStep::Index(b)) => same_index(a, b),
            (ViewStep::Detach, ViewStep::Detach) => true,
            _ => false,
        }
    }

    /// The strides of a tensor with these sizes and strides after the step; `None` if they do not exist.
    pub(super) fn strides(
        &self,
        (sizes, strides): (Dims, Vec<isize>),
        after: &[usize],
    ) -> Option<Vec<isize>> {
        match self {
            ViewStep::Reshape(_) => strides_of_reshape(&sizes, &strides, after),
            ViewStep::Permute(order) => Some(order.iter().map(|&axis| strides[axis]).collect()),
            ViewStep::Detach => Some(strides),
            ViewStep::Expand(_) => {
                let added = after.len() - sizes.len();
                let kept = |axis: usize| (sizes[axis] == after[axis + added]).then(|| strides[axis]);
                Some(
                    (0..after.len())
                        .map(|axis| axis.checked_sub(added).and_then(kept).unwrap_or(0))
                        .collect(),
                )
            }
            ViewStep::Index(specs) => {
                let axes = |spec: &&IndexSpec| !matches!(spec, IndexSpec::NewAxis | IndexSpec::Ellipsis);
                let rest = sizes.len() - specs.iter().filter(axes).count();
                let mut left = strides.into_iter();
                let mut found = Vec::with_capacity(after.len());
                for spec in specs {
                    match spec {
                        IndexSpec::At(_) => drop(left.next()),
                        IndexSpec::Slice { step, .. } => {
                            found.extend(left.next().map(|s| s * *step as isize))
                        }
                        IndexSpec::NewAxis => found.push(0),
                        IndexSpec::Ellipsis => found.extend(left.by_ref().take(rest)),
                        IndexSpec::Tensor(_) => return None,
                    }
                }
                found.extend(left);
                Some(found)
            }
            &ViewStep::Windows { axis, step, .. } => {
                let mut found = strides;
                found.insert(axis, found[axis] * step as isize);
                Some(found)
            }
        }
    }
}

/// The index that gives these windows.
fn windows(value: &Tensor, axis: usize, size: usize, step: usize) -> phynexus::Result<Vec<IndexSpec>> {
    let count = (value.shape()[axis] - size) / step + 1;
    let places: Vec<i64> =
        (0..count).flat_map(|window| (0..size).map(move |place| (window * step + place) as i64)).collect();
    let mut specs = vec![IndexSpec::ALL; axis];
    specs.push(IndexSpec::Tensor(Tensor::from_slice(&places, &[count, size], value.device())?));
    Ok(specs)
}

/// True if both indices are written alike, and choose by numbers alone.
pub(super) fn same_index(first: &[IndexSpec], second: &[IndexSpec]) -> bool {
    let is_same = |pair: (&IndexSpec, &IndexSpec)| match pair {
        (IndexSpec::At(a), IndexSpec::At(b)) => a == b,
        (IndexSpec::Slice { start, stop, step }, IndexSpec::Slice { start: from, stop: to, step: by }) => {
            (start, stop, step) == (from, to, by)
        }
        (IndexSpec::NewAxis, IndexSpec::NewAxis) | (IndexSpec::Ellipsis, IndexSpec::Ellipsis) => true,
        _ => false,
    };
    first.len() == second.len() && first.iter().zip(second).all(is_same)
}

/// The elements of `part`, and the gradient of `whole` as if it had not changed.
pub(crate) fn with_gradient_of(whole: &Tensor, part: &Tensor) -> phynexus::Result<Tensor> {
    let part = part.detach()?;
    if !whole.requires_grad() || whole.is_leaf() {
        return Ok(part);
    }
    let _mode = record_gradients(true);
    // Zeros through which the gradient flows. An infinity minus itself would be NaN.
    let constant = whole.detach()?;
    let zeros = whole.sub(&constant)?;
    let is_finite = constant.abs()?.lt_scalar(f64::INFINITY)?;
    part.add(&is_finite.where_(&zeros, &constant.full_like(0)?)?)
}

/// The strides that give the same elements another shape, if there are any.
pub(super) fn strides_of_reshape(sizes: &[usize], strides: &[isize], after: &[usize]) -> Option<Vec<isize>> {
    if after.contains(&0) {
        return Some(contiguous_strides(after).to_vec());
    }
    let mut found = vec![1; after.len()];
    let mut axes = (0..sizes.len()).rev().filter(|&axis| sizes[axis] != 1).peekable();
    // The sizes that are left of the run of axes that lie behind one another in memory.
    let (mut left, mut stride) = (1, 1);
    for axis in (0..after.len()).rev() {
        while after[axis] > 1 && left == 1 {
            let first = axes.next()?;
            (left, stride) = (sizes[first], strides[first]);
            while let Some(next) = axes.next_if(|&next| strides[next] == stride * left as isize) {
                left *= sizes[next];
            }
        }
        if left % after[axis] != 0 {
            return None;
        }
        found[axis] = stride;
        stride *= after[axis] as isize;
        left /= after[axis];
    }
    Some(found)
}
