//! The kernel language: index expressions, what views do to them, loop trees, their checker and printers; steps of plans.

pub mod build;
pub mod check;
pub mod fused;
pub mod index;
pub mod loops;
pub mod lower;
pub mod print;
pub mod step;
pub mod view;

pub use index::{Index, Ranges};
pub use view::{Mask, Split};
