//! The graph of recorded operations: nodes, user handles, known bounds of values, and hooks.

mod extremes;
mod hooks;
pub(crate) mod node;
mod tensor;

pub(crate) use extremes::{Extremes, Reliance};
pub(crate) use hooks::of as hooks_of;
pub use hooks::{GradientReducer, Hook, HookFunction, HookHandle, Hooks};
pub use tensor::Tensor;
