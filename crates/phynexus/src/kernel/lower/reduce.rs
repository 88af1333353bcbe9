//! Combines one value per invocation over the invocations that share a row. All of them get the result, in an order
//! that depends only on their number.

use crate::{
    DType, DTypeKind,
    hash::FastMap,
    kernel::{
        Index, Mask,
        build::Builder,
        check::Limits,
        loops::{ArrayId, KernelOp, Type, ValueId},
    },
    op::Combine,
};

/// The type in which values of `dtype` are combined: at least 32 bits, which subgroups can exchange. Integers wrap to
/// the same result.
pub(super) fn accumulator(dtype: DType) -> DType {
    match (dtype.compute(), dtype.kind()) {
        (wide, _) if wide.size() >= 4 => wide,
        (_, DTypeKind::Signed) => DType::I32,
        _ => DType::U32,
    }
}

/// The division of a group into teams that share a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Team {
    /// Members per team; a power of two.
    pub(super) size: usize,
    /// The distance between the numbers of neighbouring members in the group.
    pub(super) stride: usize,
    /// Invocations per group.
    pub(super) block: usize,
}

/// Combines values over the members of each team, in its own shared arrays. Pairs of members whose numbers differ in
/// the lowest bit are combined first, with every method.
pub(super) struct Combiner {
    team: Team,
    subgroup: Option<usize>,
    /// By turn, position in the turn, and type. Consecutive turns use different arrays, so one barrier is enough.
    arrays: FastMap<(bool, usize, DType), ArrayId>,
    turn: bool,
}

impl Combiner {
    pub(super) fn new(team: Team, limits: &Limits) -> Combiner {
        // A team is combined within subgroups, then each subgroup combines the results of all subgroups.
        let fits = |width: &usize| {
            team.stride == 1 && team.block.is_multiple_of(*width) && team.size <= width * width
        };
        Combiner { team, subgroup: limits.subgroup.filter(fits), arrays: FastMap::default(), turn: false }
    }

    /// The number of neighbouring members that [`Combiner::neighbours`] combines: a subgroup, or the whole team if its
    /// members are neighbours in the group.
    pub(super) fn near(&self) -> usize {
        match (self.subgroup, self.team.stride) {
            (Some(width), _) => self.team.size.min(width),
            (None, 1) => self.team.size,
            (None, _) => 1,
        }
    }

    /// Combines these values over neighbouring members. `invocation` is the number in the group, `member` the number in
    /// the team.
    pub(super) fn neighbours(
        &mut self,
        b: &mut Builder,
        invocation: &Index,
        member: &Index,
        parts: Vec<(Combine, ValueId)>,
    ) -> Vec<(Combine, ValueId)> {
        let near = self.near();
        let each = parts.into_iter().map(|(combine, value)| {
            let all = match self.subgroup {
                _ if near == 1 => value,
                Some(_) => butterfly(b, combine, value, near),
                None => self.halve(b, invocation, member, combine, value),
            };
            (combine, all)
        });
        each.collect()
    }

    /// Completes values that were combined by [`Combiner::neighbours`].
    pub(super) fn results(
        &mut self,
        b: &mut Builder,
        invocation: &Index,
        member: &Index,
        parts: Vec<(Combine, ValueId)>,
    ) -> Vec<ValueId> {
        match self.subgroup {
            _ if self.team.size == self.near() => parts.into_iter().map(|(_, value)| value).collect(),
            Some(width) => self.exchange(b, invocation, width, parts),
            None => parts.into_iter().map(|(c, v)| self.halve(b, invocation, member, c, v)).collect(),
        }
    }

    /// Exchanges one value per subgroup through shared memory.
    fn exchange(
        &mut self,
        b: &mut Builder,
        invocation: &Index,
        width: usize,
        partial: Vec<(Combine, ValueId)>,
    ) -> Vec<ValueId> {
        let subgroups = self.team.size / width;
        self.turn = !self.turn;
        let lane = invocation.remainder(width as i64, b.ranges());
        let first = Mask::within(&lane, 0, 1, b.ranges());
        let subgroup = invocation.quotient(width as i64, b.ranges());
        let arrays: Vec<ArrayId> = partial
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

    /// Combines in shared memory, with half as many members after each barrier.
    fn halve(
        &mut self,
        b: &mut Builder,
        invocation: &Index,
        member: &Index,
        combine: Combine,
        value: ValueId,
    ) -> ValueId {
        let Team { size, stride, block } = self.team;
        let array = self.array(b, 0, b.type_of(value).dtype, block);
        b.store(array, invocation, value);
        b.barrier();
        let team = invocation.sub(&member.scale(stride as i64));
        let mut apart = 1;
        while apart < size {
            let pair = 2 * apart as i64;
            let first = Mask::within(&member.remainder(pair, b.ranges()), 0, 1, b.ranges());
            let other = member.quotient(pair, b.ranges()).scale(pair).shift(apart as i64);
            b.when(first, |b| {
                let one = b.load(array, invocation);
                let other = b.load(array, &team.add(&other.scale(stride as i64)));
                let both = b.binary(combine.binary(), one, other);
                b.store(array, invocation, both);
            });
            b.barrier();
            apart *= 2;
        }
        let result = b.load(array, &team);
        b.barrier();
        result
    }

    fn array(&mut self, b: &mut Builder, at: usize, dtype: DType, length: usize) -> ArrayId {
        *self.arrays.entry((self.turn, at, dtype)).or_insert_with(|| b.shared(dtype, length))
    }
}

/// Combines over `width` neighbours of a subgroup whose numbers differ in the lowest bits.
fn butterfly(b: &mut Builder, combine: Combine, mut value: ValueId, width: usize) -> ValueId {
    let mut bit = 1;
    while bit < width {
        let of: Type = b.type_of(value);
        let other = b.bind(of, KernelOp::ShuffleXor(value, bit as u32));
        value = b.binary(combine.binary(), value, other);
        bit *= 2;
    }
    value
}
