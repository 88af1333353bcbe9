//! Random 32-bit words by Threefry-2x32 with 20 rounds: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy
//! as 1, 2, 3" (2011).

use super::{Check, IrNode, Number, Op, Operation, OracleArray, Sample, SampleOperand, need};
use crate::{DType, Result};

/// Random 32-bit words (`uint32`). The input is `uint32 [4]`: a key of two words and a 64-bit counter c, low word
/// first. Word i is half `i % 2` of Threefry-2x32-20 with that key at counter `c + i / 2` (words: low, high).
#[derive(Debug)]
pub struct RandomBits;

impl Operation for RandomBits {
    fn name(&self) -> &'static str {
        "random_bits"
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        let state = inputs[0];
        need(state.dtype == DType::U32 && state.shape.as_slice() == [4], "the state is uint32 (4,)")?;
        need(node.dtype == DType::U32, "random bits are uint32")
    }

    fn reference(&self, node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let integer = |number: &Number| match number {
            Number::Integer(x) => Some(*x as u32),
            _ => None,
        };
        let state: Option<Vec<u32>> = inputs[0].elements.iter().map(integer).collect();
        Ok(match state.as_deref() {
            Some(&[key_low, key_high, low, high]) => (0..node.len())
                .map(|i| Number::Integer(word([key_low, key_high, low, high], i).into()))
                .collect(),
            _ => vec![Number::Undetermined; node.len()],
        })
    }

    fn samples() -> Vec<Sample> {
        let state = SampleOperand::new(&[4]).fixed(DType::U32);
        let shapes: [&[usize]; 4] = [&[0], &[1], &[7], &[3, 301]];
        shapes.map(|shape| Sample::primitive(Op::RandomBits, shape, [state.clone()])).into()
    }
}

const ROTATIONS: [u32; 8] = [13, 15, 26, 6, 17, 29, 16, 24];
const PARITY: u32 = 0x1BD1_1BDA;

/// Two random words from a key and a counter.
fn threefry2x32(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    let keys = [key[0], key[1], PARITY ^ key[0] ^ key[1]];
    let mut x = [counter[0].wrapping_add(keys[0]), counter[1].wrapping_add(keys[1])];
    for round in 0..20 {
        x[0] = x[0].wrapping_add(x[1]);
        x[1] = x[1].rotate_left(ROTATIONS[round % 8]) ^ x[0];
        if round % 4 == 3 {
            let injection = round / 4 + 1;
            x[0] = x[0].wrapping_add(keys[injection % 3]);
            x[1] = x[1].wrapping_add(keys[(injection + 1) % 3]).wrapping_add(injection as u32);
        }
    }
    x
}

/// Word `i` of the op `RandomBits` with input `state`: a key of two words and a 64-bit counter, low word first.
fn word(state: [u32; 4], i: usize) -> u32 {
    let start = u64::from(state[2]) | u64::from(state[3]) << 32;
    let counter = start.wrapping_add(i as u64 / 2);
    threefry2x32([state[0], state[1]], [counter as u32, (counter >> 32) as u32])[i % 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known-answer vectors of Random123, `tests/kat_vectors`, the rows `threefry2x32 20`.
    #[test]
    fn known_answers() {
        assert_eq!(threefry2x32([0, 0], [0, 0]), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(threefry2x32([u32::MAX; 2], [u32::MAX; 2]), [0x1cb9_96fc, 0xbb00_2be7]);
        assert_eq!(
            threefry2x32([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]),
            [0xc492_3a9c, 0x483d_f7a0]
        );
    }

    #[test]
    fn words_walk_through_a_64_bit_counter() {
        let state = [1, 2, u32::MAX, 0];
        assert_eq!([word(state, 2), word(state, 3)], threefry2x32([1, 2], [0, 1]));
    }
}
