//! Kernels over contiguous vectors: one operation, one call, one tight loop.
//!
//! Lookup functions ([`unary`], [`binary`], [`select`], [`cast`], [`reduce`], ...) return plain function pointers,
//! compiled for the best instruction set of the processor. `None` means that the operation does not support the dtype,
//! or that the dtype is not used for computation: `f16` and `bf16` are first cast to `f32`.
//!
//! # Contract of all kernels
//! Pointers address elements of the kernel's dtypes (`bool` as bytes 0 or 1) in memory valid for `n` elements; a scalar
//! operand is one element. Element alignment suffices. A destination may start exactly where a vector operand of the
//! same element size starts (in place), or contain the scalar operand; otherwise it must not overlap anything.
//!
//! # Accuracy
//! Errors are in units in the last place. `vector/tests/accuracy.rs` checks every kernel against these bounds over all
//! exponents, subnormal numbers, zeros of both signs, infinities, NaN and huge arguments. `vector/tests/definitions.rs`
//! compares all kernels with mpmath; the standard library's functions are within 2 there. Zeros keep their sign.
//!
//! | function | `f32` | `f64` |
//! |---|---|---|
//! | add, sub, mul, div, sqrt, reciprocal, rounding | 0.5 | 0.5 |
//! | rsqrt | 0.501 | 1.5 (two roundings) |
//! | exp | 1.5 | 2 |
//! | exp2 | 1.5 | the standard library's |
//! | log | 1.5 | 2 |
//! | log2 | 2 | 3 |
//! | expm1, log1p | 0.51 | 3 |
//! | sin, cos (any argument) | 1.5 | 2 |
//! | tan | 1 | the standard library's |
//! | asin, acos, atan, atan2 | 0.6 | the standard library's |
//! | sinh, cosh, asinh, acosh, atanh | 0.51 | the standard library's |
//! | tanh | 2 | 4 |
//! | erf | 2 | 10 |
//! | sinc | 2 | 2 |
//! | lgamma, digamma (below 0 relative to the terms that cancel) | 1 | 6 |
//! | pow | 0.6 | the standard library's |
//!
//! `f32` functions within 0.6 are computed in `f64`. A function gives bit-identical results for the same argument at
//! any position of a vector (sin, cos and tan use the scalar functions for arguments beyond 10^6), and on all sets with
//! fused multiply-add; the plain set may differ within the bounds.

mod binary;
mod cast;
mod chain;
mod compiled;
mod convert;
mod folds;
mod half;
mod instruction_set;
mod integer;
mod loops;
mod math;
mod movement;
mod random;
mod reduce;
mod select;
mod unary;

#[cfg(test)]
mod tests;

pub use binary::{binary, binary_for};
pub use cast::{cast, cast_for};
pub(crate) use cast::{round_sum, round_to};
pub use chain::{Chain, chain, chain_for, mul_add, mul_add_for, sub_exp, sub_exp_for};
pub(crate) use chain::{at_least, at_most};
pub(crate) use compiled::{BLOCK, combine, compiled, lanes, load, store};
pub use instruction_set::InstructionSet;
pub(crate) use math::{Arithmetic, Contracted, Separate, single};
pub use movement::{
    FillKernel, IndexedKernel, IotaKernel, StridedKernel, fill, gather_indexed, gather_strided, iota,
    scatter_strided,
};
pub use random::{RandomKernel, random_bits, random_bits_for};
pub(crate) use reduce::SUM_LANES;
pub use reduce::{reduce, reduce_for, sum_products, sum_products_for};
pub use select::{select, select_for};
pub use unary::{unary, unary_for};

/// `(src, dst, n)`: `dst[i] = f(src[i])`.
pub type UnaryKernel = unsafe fn(src: *const u8, dst: *mut u8, n: usize);
/// `(a, b, dst, n)`: `dst[i] = f(a[i], b[i])`; a scalar operand is a single element.
pub type BinaryKernel = unsafe fn(a: *const u8, b: *const u8, dst: *mut u8, n: usize);
/// `(a, b, c, dst, n)`: `dst[i] = f(a[i], b[i], c[i])`; a scalar operand is a single element.
pub type TernaryKernel = unsafe fn(a: *const u8, b: *const u8, c: *const u8, dst: *mut u8, n: usize);
/// `(src, accumulator, n)`: combines `src[0..n]` into the element at `accumulator`.
pub type ReduceKernel = unsafe fn(src: *const u8, accumulator: *mut u8, n: usize);

/// `(a, b, accumulator, n)`: combines `f(a[i], b[i])` for all `n` into the element at `accumulator`.
pub type ReducePairKernel = unsafe fn(a: *const u8, b: *const u8, accumulator: *mut u8, n: usize);

/// The kernels of a binary operation for the three kinds of operands.
#[derive(Clone, Copy, Debug)]
pub struct BinaryKernels {
    /// Both operands have `n` elements.
    pub vector_vector: BinaryKernel,
    /// The right operand is a single element.
    pub vector_scalar: BinaryKernel,
    /// The left operand is a single element.
    pub scalar_vector: BinaryKernel,
}
