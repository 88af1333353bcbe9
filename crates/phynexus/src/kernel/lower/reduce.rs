//! Combining one value of each invocation over the invocations that share a row. Every one of them gets the result, in
//! an order that only their number decides.

use std::collections::HashMap;

use crate::{
    DType, Kind,
    graph::op::Combine,
    kernel::{
        Index, Mask,
        build::Builder,
        check::Limits,
        loops::{Memory, Operation, Type, Value},
    },
};

/// The type in which values of `dtype` are combined: at least 32 bits, which subgroups can exchange. Integers wrap
/// there to the same result.
pub(super) fn accumulator(dtype: DType) -> DType {
    match (dtype.compute(), dtype.kind()) {
        (wide, _) if wide.size() >= 4 => wide,
        (_, Kind::Signed) => DType::I32,
        _ => DType::U32,
    }
}

/// The invocations of a group as teams that share a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Team {
    /// Members; a power of two.
    pub(super) size: usize,
    /// From one member's number in the group to the next's.
    pub(super) stride: usize,
    /// Invocations of the group.
    pub(super) block: usize,
}

/// Combines for one team after another, with shared arrays of its own.
pub(super) struct Combiner {
    team: Team,
    subgroup: Option<usize>,
    /// By turn, position in the turn and type: neighbouring turns use different arrays, so that one barrier is enough.
    arrays: HashMap<(bool, usize, DType), Memory>,
    turn: bool,
}

impl Combiner {
    pub(super) fn new(team: Team, limits: &Limits) -> Combiner {
        // A team exchanges within subgroups, then its subgroups' results within each of them.
        let fits = |width: &usize| {
            team.stride == 1 && team.block.is_multiple_of(*width) && team.size <= width * width
        };
        Combiner { team, subgroup: limits.subgroup.filter(fits), arrays: HashMap::new(), turn: false }
    }

    /// The results of these values. `invocation` is the number in the group, `member` that in the team.
    pub(super) fn combine(
        &mut self,
        b: &mut Builder,
        invocation: &Index,
        member: &Index,
        parts: &[(Combine, Value)],
    ) -> Vec<Value> {
        if self.team.size == 1 || parts.is_empty() {
            return parts.iter().map(|&(_, value)| value).collect();
        }
        match self.subgroup {
            Some(width) => self.exchange(b, invocation, width, parts),
            None => parts.iter().map(|&(c, v)| self.halve(b, invocation, member, c, v)).collect(),
        }
    }

    /// Within a subgroup by shuffles, then one value a subgroup through shared memory.
    fn exchange(
        &mut self,
        b: &mut Builder,
        invocation: &Index,
        width: usize,
        parts: &[(Combine, Value)],
    ) -> Vec<Value> {
        let each = parts.iter().map(|&(c, v)| (c, butterfly(b, c, v, self.team.size.min(width))));
        let partial: Vec<(Combine, Value)> = each.collect();
        let subgroups = self.team.size / width;
        if subgroups <= 1 {
            return partial.into_iter().map(|(_, value)| value).collect();
        }
        self.turn = !self.turn;
        let lane = invocation.remainder(width as i64, b.ranges());
        let first = Mask::within(&lane, 0, 1, b.ranges());
        let subgroup = invocation.quotient(width as i64, b.ranges());
        let arrays: Vec<Memory> = partial
            .iter()
            .enumerate()
            .map(|(at, &(_, value))| self.array(b, at, b.type_of(value).dtype, subgroups))
            .collect();
        b.when(first, |b| {
            for (&array, &(_, value)) in arrays.iter().zip(&partial) {
                b.store(array, &subgroup, value);
            }
        });
        b.barrier();
        let theirs = lane.remainder(subgroups as i64, b.ranges());
        let results = arrays.into_iter().zip(partial).map(|(array, (combine, _))| {
            let value = b.load(array, &theirs);
            butterfly(b, combine, value, subgroups)
        });
        results.collect()
    }

    /// In shared memory, half as many members after each barrier.
    fn halve(
        &mut self,
        b: &mut Builder,
        invocation: &Index,
        member: &Index,
        combine: Combine,
        value: Value,
    ) -> Value {
        let Team { size, stride, block } = self.team;
        let array = self.array(b, 0, b.type_of(value).dtype, block);
        b.store(array, invocation, value);
        b.barrier();
        let mut half = size / 2;
        while half > 0 {
            let lower = Mask::within(member, 0, half as i64, b.ranges());
            b.when(lower, |b| {
                let low = b.load(array, invocation);
                let high = b.load(array, &invocation.shift((half * stride) as i64));
                let both = b.binary(combine.binary(), low, high);
                b.store(array, invocation, both);
            });
            b.barrier();
            half /= 2;
        }
        let result = b.load(array, &invocation.sub(&member.scale(stride as i64)));
        b.barrier();
        result
    }

    fn array(&mut self, b: &mut Builder, at: usize, dtype: DType, length: usize) -> Memory {
        *self.arrays.entry((self.turn, at, dtype)).or_insert_with(|| b.shared(dtype, length))
    }
}

/// Combines over the `width` neighbours of a subgroup whose numbers differ in the lowest bits.
fn butterfly(b: &mut Builder, combine: Combine, mut value: Value, width: usize) -> Value {
    let mut bits = width / 2;
    while bits > 0 {
        let of: Type = b.type_of(value);
        let other = b.bind(of, Operation::ShuffleXor(value, bits as u32));
        value = b.binary(combine.binary(), value, other);
        bits /= 2;
    }
    value
}
