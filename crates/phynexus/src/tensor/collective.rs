//! Collectives of a group of processes.

use crate::{
    Error, Result, Tensor,
    distributed::Group,
    op::{Collective, CollectiveKind, Op, combines},
};

impl Tensor {
    /// Records a collective of a group. [`CollectiveKind`] says what it computes, and of which shape. All members must
    /// record the same collectives in the same order, and evaluate them.
    ///
    /// # Errors
    /// [`Error::Shape`] if the first dimension cannot be divided among the ranks; [`Error::DType`] for a sum of `bool` or
    /// of 8-bit floats; [`Error::Argument`] for a rank that does not exist. Computing it can fail with
    /// [`Error::Collective`].
    pub fn collective(&self, kind: CollectiveKind, group: &Group) -> Result<Tensor> {
        let (op, size) = (kind.name(), group.size());
        let collective = Collective::new(kind, group.member());
        let first = self.shape().first().copied();
        match kind {
            CollectiveKind::AllGather { .. } if first.is_none() => {
                return Err(Error::shape(
                    op,
                    &[self.shape()],
                    "it joins along the first dimension: reshape to [1]",
                ));
            }
            CollectiveKind::ReduceScatter(_) | CollectiveKind::AllToAll
                if first.is_none_or(|first| first % size != 0) =>
            {
                let hint = format!("the first dimension must be a multiple of {size}, the number of ranks");
                return Err(Error::shape(op, &[self.shape()], hint));
            }
            CollectiveKind::Broadcast { root: peer }
            | CollectiveKind::Reduce { root: peer }
            | CollectiveKind::Send { to: peer }
            | CollectiveKind::Receive { from: peer }
                if peer as usize >= size =>
            {
                return Err(Error::argument(op, format!("there is no rank {peer}: use 0 to {}", size - 1)));
            }
            CollectiveKind::Send { to: peer } | CollectiveKind::Receive { from: peer }
                if peer as usize == group.rank() =>
            {
                return Err(Error::argument(op, format!("rank {peer} is this process: name another one")));
            }
            _ => {}
        }
        if kind.combine().is_some() && !combines(self.dtype()) {
            return Err(Error::dtype(op, &[self.dtype()], "convert with .to_dtype(), to uint8 or float32"));
        }
        let shape = collective.result_shape(self.shape());
        Tensor::record(Op::Collective(collective), self.dtype(), shape, &[self])
    }
}
