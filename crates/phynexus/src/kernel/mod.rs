//! The kernel language: index expressions, views, loop trees, their checker and printers; and the steps of plans.

pub mod build;
pub mod check;
mod expand;
pub mod fused;
pub mod index;
pub mod loops;
pub mod lower;
pub mod print;
pub mod step;
pub mod view;

pub use index::{Index, Ranges};
pub use view::{Mask, Split};
