//! Layers and networks.

mod container;
pub mod init;
mod linear;
mod module;
mod parameter;

pub use container::{Function, Sequential};
pub use linear::Linear;
pub use module::{Mode, Module, Role, Visitor};
pub use parameter::Parameter;
