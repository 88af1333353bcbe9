//! Running one case on a device.

use std::panic::{AssertUnwindSafe, catch_unwind};

use phynexus::{
    Device, Error, Result,
    device::{DeviceNature, Support},
    op::TensorType,
    oracle::{Comparison, compare, evaluate, generate::Case},
    schedule::{execute_ir, placement},
    text::show_shape,
};

/// The result of a case.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) compared: usize,
    pub(super) skipped: usize,
    pub(super) worst_share: f64,
    /// Why the device does not support the case, if it reports so.
    pub(super) unsupported: Option<String>,
    /// Why the CPU did one of the steps, if it did.
    pub(super) elsewhere: Option<String>,
    /// What is wrong, if anything.
    pub(super) failure: Option<String>,
}

impl Outcome {
    /// Adds a comparison; `what` describes the compared value in failure messages.
    pub(super) fn add(&mut self, what: &dyn Fn() -> String, comparison: Comparison) {
        if !comparison.passed() && self.failure.is_none() {
            self.failure = Some(format!("{}: {comparison}", what()));
        }
        self.compared += comparison.compared;
        self.skipped += comparison.skipped;
        self.worst_share = self.worst_share.max(comparison.worst_share);
    }
}

/// Runs a graph on the device and compares its outputs with the oracle.
pub(super) fn execute(case: &Case, device: Device) -> Outcome {
    guarded(|| {
        let mut outcome = Outcome::default();
        if case.ir.outputs.is_empty() {
            return Err(Error::internal("verify", format!("a case without an output: {}", case.name)));
        }
        if let Some(reason) = unsupported(case, device) {
            outcome.unsupported = Some(reason);
            return Ok(outcome);
        }
        let expected = evaluate(&case.ir, &case.values())?;
        let leaves = case.leaves.iter().map(|leaf| leaf.upload(device)).collect::<Result<Vec<_>>>()?;
        let outputs = execute_ir(&case.ir, &leaves, device)?;
        for ((&id, expected), actual) in case.ir.outputs.iter().zip(&expected).zip(&outputs) {
            let node = case.ir.node(id);
            let name = || format!("%{id}, {} {} {}", node.op.name(), node.dtype, show_shape(&node.shape));
            outcome.add(&name, compare(expected, &actual.to_bytes()?, actual.dtype()));
        }
        Ok(outcome)
    })
}

/// Runs a graph on a device without checking results.
pub(super) fn run_unchecked(case: &Case, device: Device) -> Result<Outcome> {
    let leaves = case.leaves.iter().map(|leaf| leaf.upload(device)).collect::<Result<Vec<_>>>()?;
    execute_ir(&case.ir, &leaves, device)?;
    Ok(Outcome::default())
}

/// The CPU's reason for not supporting an operation of the graph. The CPU does what other devices do not support.
fn unsupported(case: &Case, device: Device) -> Option<String> {
    if device.info().nature != DeviceNature::HostCpu {
        return None;
    }
    case.ir.nodes.iter().find_map(|node| {
        let operands: Vec<TensorType> = node.inputs.iter().map(|&i| case.ir.node(i).tensor_type()).collect();
        match device.backend().support(node, &operands) {
            Support::Unsupported(reason) => Some(reason),
            _ => None,
        }
    })
}

/// Turns errors and panics into failures, so that the suite continues. Also notes steps that the CPU did.
pub(super) fn guarded(work: impl FnOnce() -> Result<Outcome>) -> Outcome {
    let failed = |message: String| Outcome { failure: Some(message), ..Outcome::default() };
    let (result, moved) = placement::observe(|| catch_unwind(AssertUnwindSafe(work)));
    match result {
        Ok(Ok(outcome)) => {
            let elsewhere = moved.into_iter().next().map(|placement| placement.reason);
            Outcome { elsewhere, ..outcome }
        }
        Ok(Err(error)) => failed(error.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            failed(format!("a panic: {text}"))
        }
    }
}
