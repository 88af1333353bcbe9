//! Random bits.

use super::draft::Draft;
use crate::{
    DType, Scalar,
    kernel::{
        Index, Mask,
        build::Builder,
        fused::{FusedOp, Fusion, InstructionId},
        loops::ValueId,
        step::Library,
    },
    op::Binary,
};

const ROTATIONS: [u32; 8] = [13, 15, 26, 6, 17, 29, 16, 24];
const PARITY: u32 = 0x1BD1_1BDA;

/// What computes with words.
pub(super) trait Words {
    type Word: Copy;
    fn word(&mut self, number: u32) -> Self::Word;
    fn of_words(&mut self, op: Binary, a: Self::Word, b: Self::Word) -> Self::Word;
    fn widened(&mut self, bit: Self::Word) -> Self::Word;
}

impl Words for Draft {
    type Word = InstructionId;

    fn word(&mut self, number: u32) -> InstructionId {
        self.constant(DType::U32, Scalar::UInt(number.into()))
    }

    fn of_words(&mut self, op: Binary, a: InstructionId, b: InstructionId) -> InstructionId {
        self.binary(op, a, b)
    }

    fn widened(&mut self, bit: InstructionId) -> InstructionId {
        self.cast(bit, DType::U32)
    }
}

impl Words for Builder {
    type Word = ValueId;

    fn word(&mut self, number: u32) -> ValueId {
        self.constant(DType::U32, Scalar::UInt(number.into()))
    }

    fn of_words(&mut self, op: Binary, a: ValueId, b: ValueId) -> ValueId {
        self.binary(op, a, b)
    }

    fn widened(&mut self, bit: ValueId) -> ValueId {
        self.cast(DType::U32, bit)
    }
}

/// Two words by Threefry-2x32 with 20 rounds, with the key and at the counter of a random state, plus a number.
pub(super) fn threefry<W: Words>(
    w: &mut W,
    [first, second, low, high]: [W::Word; 4],
    number: W::Word,
) -> [W::Word; 2] {
    let counter = w.of_words(Binary::Add, low, number);
    let overflow = w.of_words(Binary::Lt, counter, low);
    let carry = w.widened(overflow);
    let carried = w.of_words(Binary::Add, high, carry);
    let parity = w.word(PARITY);
    let third = w.of_words(Binary::Xor, first, second);
    let keys = [first, second, w.of_words(Binary::Xor, third, parity)];
    let mut x = [w.of_words(Binary::Add, counter, keys[0]), w.of_words(Binary::Add, carried, keys[1])];
    for round in 0..20 {
        x[0] = w.of_words(Binary::Add, x[0], x[1]);
        let (left, right) = (w.word(ROTATIONS[round % 8]), w.word(32 - ROTATIONS[round % 8]));
        let (upper, lower) = (w.of_words(Binary::Shl, x[1], left), w.of_words(Binary::Shr, x[1], right));
        let rotated = w.of_words(Binary::Or, upper, lower);
        x[1] = w.of_words(Binary::Xor, rotated, x[0]);
        if round % 4 == 3 {
            let injection = round / 4 + 1;
            let number = w.word(injection as u32);
            x[0] = w.of_words(Binary::Add, x[0], keys[injection % 3]);
            let second = w.of_words(Binary::Add, x[1], keys[(injection + 1) % 3]);
            x[1] = w.of_words(Binary::Add, second, number);
        }
    }
    x
}

/// Random words. If their number is even, an instance computes both words of a counter.
pub(super) fn random_bits(library: &Library) -> Fusion {
    let count = library.node.len();
    let pairs = count.is_multiple_of(2);
    let mut draft = Draft::new(&[if pairs { count / 2 } else { count }], &[]);
    let ranges = draft.ranges();
    let i = Index::range(0, &ranges);
    let (state, output) = (draft.parameter(DType::U32, false), draft.parameter(DType::U32, true));
    let stride = library.operands[0].layout.strides[0] as i64;
    let word =
        |d: &mut Draft, at: i64| d.load(state, Index::constant(at * stride), Mask::default(), Scalar::Int(0));
    let state = [0, 1, 2, 3].map(|at| word(&mut draft, at));
    let pair = if pairs { i.clone() } else { i.quotient(2, &ranges) };
    let pair = draft.emit(FusedOp::Coordinate(pair), DType::U32);
    let x = threefry(&mut draft, state, pair);
    let d = &mut draft;
    if pairs {
        d.store(output, x[0], i.scale(2));
        d.store(output, x[1], i.scale(2).shift(1));
    } else {
        let odd = d.emit(FusedOp::Coordinate(i.remainder(2, &ranges)), DType::I64);
        let zero = d.constant(DType::I64, Scalar::Int(0));
        let first = d.binary(Binary::Eq, odd, zero);
        let word = d.select(first, x[0], x[1]);
        d.store(output, word, i);
    }
    draft.fused
}
