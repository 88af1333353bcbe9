//! A leaf.

use super::{Check, IrNode, Number, Operation, OracleArray, Sample};
use crate::{Error, Result};

/// A leaf: a tensor that already has its data.
#[derive(Debug)]
pub struct Buffer;

impl Operation for Buffer {
    fn name(&self) -> &'static str {
        "buffer"
    }

    fn operands(&self) -> Option<usize> {
        Some(0)
    }

    fn check(&self, _: &IrNode, _: &[&IrNode]) -> Check {
        Ok(())
    }

    fn reference(&self, _: &IrNode, _: &[&OracleArray]) -> Result<Vec<Number>> {
        Err(Error::internal("oracle", "a leaf without a value"))
    }

    /// Every operand of a sample is a leaf.
    fn samples() -> Vec<Sample> {
        Vec::new()
    }
}
