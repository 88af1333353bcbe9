//! Random 32-bit words by [`threefry2x32`].

use super::{Check, IrNode, Number, Op, Operation, OracleArray, Sample, SampleOperand, need};
use crate::{DType, Result, random::threefry2x32};

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

/// Word `i` of the op `RandomBits` with input `state`: a key of two words and a 64-bit counter, low word first.
fn word(state: [u32; 4], i: usize) -> u32 {
    let start = u64::from(state[2]) | u64::from(state[3]) << 32;
    let counter = start.wrapping_add(i as u64 / 2);
    threefry2x32([state[0], state[1]], [counter as u32, (counter >> 32) as u32])[i % 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_walk_through_a_64_bit_counter() {
        let state = [1, 2, u32::MAX, 0];
        assert_eq!([word(state, 2), word(state, 3)], threefry2x32([1, 2], [0, 1]));
    }
}
