//! Random bits.

use super::draft::Draft;
use crate::{
    DType, Scalar,
    kernel::{
        Index, Mask,
        fused::{FusedOp, Fusion},
        step::Library,
    },
    op::Binary,
};

const ROTATIONS: [u32; 8] = [13, 15, 26, 6, 17, 29, 16, 24];
const PARITY: u32 = 0x1BD1_1BDA;

/// Threefry-2x32 with 20 rounds. If the number of words is even, an instance computes both words of a counter.
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
    let (key, low, high) =
        ([word(&mut draft, 0), word(&mut draft, 1)], word(&mut draft, 2), word(&mut draft, 3));
    let d = &mut draft;
    let pair = if pairs { i.clone() } else { i.quotient(2, &ranges) };
    let pair = d.emit(FusedOp::Coordinate(pair), DType::U32);
    let counter = d.binary(Binary::Add, low, pair);
    let overflow = d.binary(Binary::Lt, counter, low);
    let carry = d.cast(overflow, DType::U32);
    let carried = d.binary(Binary::Add, high, carry);
    let parity = d.constant(DType::U32, Scalar::UInt(PARITY.into()));
    let third = d.binary(Binary::Xor, key[0], key[1]);
    let keys = [key[0], key[1], d.binary(Binary::Xor, third, parity)];
    let mut x = [d.binary(Binary::Add, counter, keys[0]), d.binary(Binary::Add, carried, keys[1])];
    for round in 0..20 {
        x[0] = d.binary(Binary::Add, x[0], x[1]);
        let left = d.constant(DType::U32, Scalar::UInt(ROTATIONS[round % 8].into()));
        let right = d.constant(DType::U32, Scalar::UInt((32 - ROTATIONS[round % 8]).into()));
        let (upper, lower) = (d.binary(Binary::Shl, x[1], left), d.binary(Binary::Shr, x[1], right));
        let rotated = d.binary(Binary::Or, upper, lower);
        x[1] = d.binary(Binary::Xor, rotated, x[0]);
        if round % 4 == 3 {
            let injection = round / 4 + 1;
            let number = d.constant(DType::U32, Scalar::UInt(injection as u64));
            x[0] = d.binary(Binary::Add, x[0], keys[injection % 3]);
            let second = d.binary(Binary::Add, x[1], keys[(injection + 1) % 3]);
            x[1] = d.binary(Binary::Add, second, number);
        }
    }
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
