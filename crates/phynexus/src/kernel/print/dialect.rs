//! What differs between the languages.

use super::Names;
use crate::{
    DType, Error, Result, Scalar,
    kernel::loops::{Axis, Memory, Operation, Place, Statement, Type},
};

/// What a printer adds to the walk over the statements. Names, numbers and expressions are strings; an operand is a name
/// or a literal, so it may be repeated.
pub(super) trait Dialect: Sized {
    /// A value of several lanes is one vector. Otherwise each lane has a name of its own.
    const VECTORS: bool;

    /// A statement that runs where a condition holds.
    fn only_if(condition: &str, statement: &str) -> String;

    /// The line that binds the position on an axis, if there is one, and the line that opens the loop's block, if it has
    /// one.
    fn axis(&self, name: &str, axis: Axis) -> (String, Option<String>);

    /// Writes an unrolled loop as copies of its body, if that is how the language needs it; true if so.
    fn copies(&mut self, _axis: u8, _body: &[Statement]) -> Result<bool> {
        Ok(false)
    }

    /// Waits for the group.
    fn barrier(&self) -> &'static str;

    /// Adds a value to an element (0), or takes the maximum (1) or minimum (2), as one step.
    fn atomic(&self, function: usize, array: &str, address: &str, value: &str) -> String;

    /// Writes work on matrix fragments, and copies that go on by themselves.
    fn subgroup(&mut self, _statement: &Statement) -> Result<()> {
        Err(Error::internal("kernel::print", "a statement that the language lacks"))
    }

    /// The name of a buffer.
    fn buffer(&self, number: u16) -> String;

    /// What an address in an array begins with: the array's first element, where its name does not say it.
    fn start(_memory: Memory) -> String {
        String::new()
    }

    /// An integer of the type, as an index of at least 0 and below `count`.
    fn clamped(&self, dtype: DType, number: &str, count: usize) -> String;

    /// Floor division by a constant of at least 2, or its remainder, to be a summand. The dividend is a name or in
    /// parentheses; `negative` says if it may be below 0.
    fn divide(&mut self, remainder: bool, negative: bool, dividend: &str, by: i64) -> String;

    /// Binds what a place holds, or `fill` where its mask does not hold: 16-bit floats as their bits.
    fn load(&mut self, name: &str, place: &Place, of: Type, fill: Scalar) -> Result<Names>;

    /// Writes a value, 16-bit floats as their bits, where the place's mask holds.
    fn store(&mut self, place: &Place, of: Type, value: &Names) -> Result<()>;

    /// Binds a value that is computed lane by lane: numbers, or the bits of 16-bit floats if the type is one. `numbered`:
    /// where each lane has its name, it ends in the lane's number even if there is only one.
    fn name(
        &mut self,
        name: &str,
        of: Type,
        numbered: bool,
        lane: impl FnMut(&mut Self, usize) -> Result<String>,
    ) -> Result<Names>;

    /// A vector made of its lanes; with one lane, that lane.
    fn vector(&self, of: Type, lanes: &[String]) -> String;

    /// What literals of the type end with.
    fn suffix(&self, dtype: DType) -> &'static str;

    /// A small whole number of the type.
    fn whole(&self, dtype: DType, number: i64) -> String;

    /// NaN or infinity.
    fn special(&mut self, dtype: DType, nan: bool) -> String;

    /// A constant as an operand.
    fn constant(&mut self, dtype: DType, scalar: Scalar) -> String;

    /// The bits of a number as a 16-bit float.
    fn round(&mut self, from: DType, to: DType, number: &str) -> String;

    /// The value of a 16-bit float.
    fn decode(&mut self, dtype: DType, bits: &str) -> String;

    /// A number as memory holds it: a 16-bit float as its bits.
    fn encode(&mut self, dtype: DType, number: &str) -> String;

    /// One lane of an operation on values.
    fn lane(&mut self, of: Type, operation: &Operation, lane: usize) -> Result<String>;
}
