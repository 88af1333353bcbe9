//! What the ranks of a group compute together.

use super::{
    Call, Check, Formula, InputGradients, IrNode, Number, Operation, OracleArray, Sample, need, same_dtype,
};
use crate::{DType, DTypeKind, Error, Result, op::Combine};

/// A collective of a group. Its members evaluate the same ones in the same order, with operands of the same dtype and
/// shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Collective {
    /// What is done.
    pub kind: CollectiveKind,
    /// The group, and this process's place in it.
    pub member: GroupMember,
    /// Its place in the order of a plan's collectives; 0 in a graph.
    pub(crate) turn: u32,
}

/// A process in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupMember {
    /// The group's number in this process.
    pub group: u32,
    /// The rank in the group.
    pub rank: u32,
    /// The number of members.
    pub size: u32,
}

/// What a collective does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CollectiveKind {
    /// Every rank gets the combination of all operands.
    AllReduce(Combine, Loss),
    /// One rank gets the sum of all operands, the others zeros.
    Reduce {
        /// That rank.
        root: u32,
    },
    /// As an all-reduce, of which each rank gets the part of its number: the first dimension is divided.
    ReduceScatter(Combine),
    /// Every rank gets all operands, joined along the first dimension.
    AllGather {
        /// Whether to gather again for the gradients that read the result, which is not kept. A plan gathers such
        /// operands one reader ahead.
        again: bool,
    },
    /// Every rank gets the operand of one.
    Broadcast {
        /// That rank.
        root: u32,
    },
    /// The first dimension is divided: part `i` goes to rank `i`, and part `j` of the result comes from rank `j`.
    AllToAll,
    /// Sends the operand to a rank that receives it. The result is zeros, whose gradient is what that rank sends back.
    ///
    /// Order sends and receives so that each meets its partner. On GPUs a send waits for its receive, so two ranks that
    /// both send first wait for each other; over host transports they do not.
    Send {
        /// That rank.
        to: u32,
    },
    /// The tensor that a rank sends. The operand only has its dtype and shape. [`CollectiveKind::Send`] says how to order
    /// sends and receives.
    Receive {
        /// That rank.
        from: u32,
    },
}

/// What is differentiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// The sum of the ranks' losses.
    Summed,
    /// One loss, which every rank computes from the same result.
    Shared,
}

impl CollectiveKind {
    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            CollectiveKind::AllReduce(..) => "all_reduce",
            CollectiveKind::Reduce { .. } => "reduce",
            CollectiveKind::ReduceScatter(_) => "reduce_scatter",
            CollectiveKind::AllGather { .. } => "all_gather",
            CollectiveKind::Broadcast { .. } => "broadcast",
            CollectiveKind::AllToAll => "all_to_all",
            CollectiveKind::Send { .. } => "send",
            CollectiveKind::Receive { .. } => "receive",
        }
    }

    /// How it combines elements, if it does.
    pub fn combine(self) -> Option<Combine> {
        match self {
            CollectiveKind::AllReduce(combine, _) | CollectiveKind::ReduceScatter(combine) => Some(combine),
            CollectiveKind::Reduce { .. } => Some(Combine::Sum),
            _ => None,
        }
    }
}

/// Whether elements of this dtype can be combined.
pub(crate) fn combines(dtype: DType) -> bool {
    dtype.kind() != DTypeKind::Bool && dtype.float8().is_none()
}

impl Operation for Collective {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// A rank may have ended.
    fn can_fail(&self) -> bool {
        true
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        same_dtype(node, inputs)?;
        let size = self.member.size as usize;
        let (own, result) = (&inputs[0].shape[..], &node.shape[..]);
        let scaled = |small: &[usize], large: &[usize]| {
            !small.is_empty() && large[..] == [&[small[0] * size], &small[1..]].concat()[..]
        };
        let fits = match self.kind {
            CollectiveKind::AllGather { .. } => scaled(own, result),
            CollectiveKind::ReduceScatter(_) => scaled(result, own),
            CollectiveKind::AllToAll => own == result && own.first().is_some_and(|first| first % size == 0),
            _ => own == result,
        };
        need(fits, "another shape than this collective gives")?;
        let peer = match self.kind {
            CollectiveKind::Broadcast { root: peer }
            | CollectiveKind::Reduce { root: peer }
            | CollectiveKind::Send { to: peer }
            | CollectiveKind::Receive { from: peer } => peer,
            _ => self.member.rank,
        };
        need(peer < self.member.size, "no such rank")?;
        need(self.kind.combine().is_none() || combines(node.dtype), "not a dtype that is combined")
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        let g = call.gradient();
        let shape = call.inputs[0].shape();
        let then = |kind, of: &Formula| of.collective(Collective::new(kind, self.member), shape);
        let sum = CollectiveKind::AllReduce(Combine::Sum, Loss::Summed);
        let gradient = match self.kind {
            CollectiveKind::AllReduce(Combine::Sum, Loss::Shared) => g,
            CollectiveKind::AllReduce(Combine::Sum, Loss::Summed) => then(sum, &g),
            CollectiveKind::ReduceScatter(Combine::Sum) => {
                then(CollectiveKind::AllGather { again: false }, &g)
            }
            CollectiveKind::AllGather { .. } => then(CollectiveKind::ReduceScatter(Combine::Sum), &g),
            CollectiveKind::Broadcast { root } => then(CollectiveKind::Reduce { root }, &g),
            CollectiveKind::Reduce { root } => then(CollectiveKind::Broadcast { root }, &g),
            CollectiveKind::AllToAll => then(CollectiveKind::AllToAll, &g),
            CollectiveKind::Send { to } => then(CollectiveKind::Receive { from: to }, &g),
            CollectiveKind::Receive { from } => then(CollectiveKind::Send { to: from }, &g),
            CollectiveKind::AllReduce(..) | CollectiveKind::ReduceScatter(_) => {
                let hint = "only sums and averages have one: compute the maximum under no_grad".to_owned();
                return Err(Error::NoGradient { op: self.kind.name(), hint });
            }
        };
        call.each(|_| gradient.clone())
    }

    /// The other ranks' operands are not known here.
    fn reference(&self, _: &IrNode, _: &[&OracleArray]) -> Result<Vec<Number>> {
        Err(Error::argument(
            self.kind.name(),
            "one process cannot compute it: run it on the ranks of the group",
        ))
    }

    /// Several processes test it.
    fn samples() -> Vec<Sample> {
        Vec::new()
    }
}

impl Collective {
    /// A collective of this process's group.
    pub fn new(kind: CollectiveKind, member: GroupMember) -> Collective {
        Collective { kind, member, turn: 0 }
    }

    /// Whether gradients compute the result again.
    pub(crate) fn is_repeated(&self) -> bool {
        self.kind == CollectiveKind::AllGather { again: true }
    }

    /// The shape of its result.
    pub(crate) fn result_shape(&self, operand: &[usize]) -> crate::shape::Dims {
        let mut shape: crate::shape::Dims = operand.into();
        let size = self.member.size as usize;
        if let Some(first) = shape.first_mut() {
            match self.kind {
                CollectiveKind::AllGather { .. } => *first *= size,
                CollectiveKind::ReduceScatter(_) => *first /= size,
                _ => {}
            }
        }
        shape
    }
}
