//! Reverse-mode differentiation: the sweep that applies each operation's gradient rule from a loss to its leaves.

mod accumulate;
mod anomaly;
mod reduce;
mod roots;
mod segment;
mod sweep;
#[cfg(test)]
pub(crate) mod tests;

pub use crate::{
    graph::{Hook, HookFunction, HookHandle, Hooks},
    op::gradient::{GradientMode, is_enabled, no_grad, record_gradients},
};
pub use anomaly::{Anomalies, detect_anomalies, detects_anomalies};
pub use segment::running_sweep;
pub use sweep::Gradients;
