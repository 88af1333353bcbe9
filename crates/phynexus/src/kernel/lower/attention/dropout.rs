//! Which weights are dropped: as the body of attention draws it, without storing the draws.

use super::{super::random::threefry, problem::Problem};
use crate::{
    DType, Scalar,
    kernel::{Index, build::Builder, loops::ValueId},
    op::{
        Binary,
        composite::{Attention, DROPOUT_BLOCK},
    },
};

/// Positions with draws of the same block of random words: so far apart.
const APART: i64 = DROPOUT_BLOCK as i64 / 2;

/// The random state, for a kernel.
pub(super) struct Dropout([ValueId; 4]);

impl Dropout {
    /// Loads the state, if weights are dropped.
    pub(super) fn new(b: &mut Builder, problem: &Problem) -> Option<Dropout> {
        let (state, stride) = problem.state?;
        let word = |at: i64| b.load(state.array, &Index::constant(at * stride - state.start));
        Some(Dropout([0, 1, 2, 3].map(word)))
    }

    /// Whether the weight of a query and a key is kept.
    pub(super) fn keeps(
        &self,
        b: &mut Builder,
        problem: &Problem,
        head: &Index,
        [query, key]: [&Index; 2],
    ) -> ValueId {
        let extent = |positions: usize| Attention::draw_extent(positions) as i64;
        let place = |b: &Builder, position: &Index| {
            let block = position.quotient(2 * APART, b.ranges()).scale(APART);
            block.add(&position.remainder(APART, b.ranges()))
        };
        let row = head.scale(extent(problem.queries)).add(&place(b, query));
        let block = row.scale(extent(problem.keys)).add(&place(b, key));
        let number = b.number(&block);
        let number = b.cast(DType::U32, number);
        let words = threefry(b, self.0, number);
        // The word of the query, and the half of the key.
        let second = |b: &mut Builder, position: &Index, factor: i64| {
            let half = position.quotient(APART, b.ranges()).remainder(2, b.ranges());
            let number = b.number(&half.scale(factor));
            b.cast(DType::U32, number)
        };
        let (word, zero) = (second(b, query, 1), b.constant(DType::U32, Scalar::UInt(0)));
        let is_first = b.binary(Binary::Eq, word, zero);
        let word = b.select(is_first, words[0], words[1]);
        let bits = second(b, key, 16);
        let word = b.binary(Binary::Shr, word, bits);
        let mask = b.constant(DType::U32, Scalar::UInt(0xffff));
        let draw = b.binary(Binary::And, word, mask);
        let kept = 65_536 - u64::from(problem.attention.dropout);
        let kept = b.constant(DType::U32, Scalar::UInt(kept));
        b.binary(Binary::Lt, draw, kept)
    }
}
