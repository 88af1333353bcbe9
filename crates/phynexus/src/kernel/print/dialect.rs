//! The differences between languages.

use super::Names;
use crate::{
    DType, Error, Result, Scalar,
    kernel::loops::{ArrayId, Axis, KernelOp, MemoryAccess, Statement, Type},
};

/// How a language writes the parts of a kernel; the walk over the statements is the same for all. Names, numbers and
/// expressions are strings. An operand is a name or a literal, so it may be repeated.
pub(super) trait Dialect: Sized {
    /// Whether a value with several lanes is one vector. If not, each lane has its own name.
    const VECTORS: bool;

    /// A statement that runs where a condition holds.
    fn only_if(condition: &str, statement: &str) -> String;

    /// The line that binds the position on an axis (empty if none is needed), and the line that opens the loop's block,
    /// if it has one.
    fn axis(&self, name: &str, axis: Axis) -> (String, Option<String>);

    /// Writes an unrolled loop as copies of its body, if the language needs this. Returns whether it did.
    fn copies(&mut self, _axis: u8, _body: &[Statement]) -> Result<bool> {
        Ok(false)
    }

    /// The barrier of a group.
    fn barrier(&self) -> String;

    /// Atomically adds a value to an element (0), or takes the maximum (1) or minimum (2).
    fn atomic(&self, function: usize, array: &str, address: &str, value: &str) -> String;

    /// Writes statements on matrix fragments, asynchronous copies, and barriers of several groups.
    fn joint(&mut self, _statement: &Statement) -> Result<()> {
        Err(Error::internal("kernel::print", "a statement that the language lacks"))
    }

    /// The name of a buffer.
    fn buffer(&self, number: u16) -> String;

    /// The prefix of addresses in an array: its first element, unless the array's name refers to it already.
    fn start(_memory: ArrayId) -> String {
        String::new()
    }

    /// The line that reads argument `#` of a source whose numbers can become arguments; it is the element `#` of the
    /// last buffer.
    fn argument(&self) -> String;

    /// Computes parts of indices before a loop over an axis, if that helps its compilers.
    fn keep(&mut self, _axis: u8, _body: &[Statement]) {}

    /// Converts an argument `#`, an `int32`, to another type: its bits or its value.
    fn converted(&mut self, to: DType, bits: bool) -> String;

    /// An integer, clamped to an index from 0 to `count - 1`.
    fn clamped(&self, dtype: DType, number: &str, count: usize) -> String;

    /// Floor division by a constant of at least 2, or its remainder, as a summand. The dividend is a name or in
    /// parentheses; `negative` says whether it may be negative.
    fn divide(&mut self, remainder: bool, negative: bool, dividend: &str, by: i64) -> String;

    /// Binds the value of a place, or `fill` where its mask does not hold. 16-bit floats are bound as their bits.
    fn load(&mut self, name: &str, access: &MemoryAccess, of: Type, fill: Scalar) -> Result<Names>;

    /// Stores a value where the access's mask holds. 16-bit floats are given as their bits.
    fn store(&mut self, access: &MemoryAccess, of: Type, value: &Names) -> Result<()>;

    /// Binds a value that is computed lane by lane: numbers, or bits if the type is a 16-bit float. With `numbered`,
    /// the name of each lane ends in its number even if there is only one lane.
    fn name(
        &mut self,
        name: &str,
        of: Type,
        numbered: bool,
        lane: impl FnMut(&mut Self, usize) -> Result<String>,
    ) -> Result<Names>;

    /// A vector of these lanes; a single lane is returned as it is.
    fn vector(&self, of: Type, lanes: &[String]) -> String;

    /// The suffix of the type's literals.
    fn suffix(&self, dtype: DType) -> &'static str;

    /// A small whole number of the type.
    fn whole(&self, dtype: DType, number: i64) -> String;

    /// NaN or infinity.
    fn special(&mut self, dtype: DType, nan: bool) -> String;

    /// A constant as an operand.
    fn constant(&mut self, dtype: DType, scalar: Scalar) -> String;

    /// Converts a number to the bits of a 16-bit float.
    fn round(&mut self, from: DType, to: DType, number: &str) -> String;

    /// Converts the bits of a 16-bit float to its value.
    fn decode(&mut self, dtype: DType, bits: &str) -> String;

    /// A number as it is stored in memory: a 16-bit float as its bits.
    fn encode(&mut self, dtype: DType, number: &str) -> String;

    /// One lane of an operation on values.
    fn lane(&mut self, of: Type, operation: &KernelOp, lane: usize) -> Result<String>;
}
