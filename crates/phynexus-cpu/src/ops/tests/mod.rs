//! Tests all operations against simple references.

mod moving;
mod ordering;
mod updating;
