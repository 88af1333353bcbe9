//! The kernel language: index expressions, what views do to them, loop trees, their checker, interpreter and printers.

pub mod build;
pub mod check;
pub mod fused;
pub mod index;
pub mod interpret;
pub mod loops;
pub mod lower;
pub mod print;
mod scalar;
pub mod view;

pub use index::{Index, Ranges};
pub use view::{Mask, Split};
