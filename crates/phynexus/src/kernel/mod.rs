//! The kernel language: index expressions, what views do to them, loop trees, their checker, interpreter and printers.

pub mod fused;
pub mod index;
pub mod view;

pub use index::{Index, Ranges};
pub use view::{Mask, Split};
