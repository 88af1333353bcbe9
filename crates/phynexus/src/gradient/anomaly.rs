//! Finds the operation whose gradient is NaN first.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::{Error, Result, Tensor, op::Op, schedule::capture::is_recording};

static MODE: AtomicU8 = AtomicU8::new(Anomalies::Ignored as u8);

/// What backward passes do about anomalies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anomalies {
    /// Nothing.
    Ignored,
    /// A gradient with a NaN is an error, which names the operation. Each gradient is computed at once, which is slow.
    Refused,
}

/// Sets what the backward passes of all threads do about anomalies.
pub fn detect_anomalies(mode: Anomalies) {
    MODE.store(mode as u8, Ordering::Release);
}

/// Returns whether backward passes refuse anomalies.
pub fn detects_anomalies() -> bool {
    MODE.load(Ordering::Acquire) == Anomalies::Refused as u8
}

/// Fails if anomalies are refused, and a gradient of an operation's operand has a NaN.
pub(super) fn check(op: &Op, gradient: &Tensor) -> Result<()> {
    if !detects_anomalies()
        || is_recording()
        || !gradient.detach()?.isnan()?.any(&[], false)?.item::<bool>()?
    {
        return Ok(());
    }
    let message = format!("the gradient of {} contains NaN (found by detect_anomaly)", op.name());
    Err(Error::Anomaly { op: "backward", message })
}
