//! Errors as data: the operation, the shapes and dtypes involved, and what to do about it.

use std::{fmt, sync::Arc};

use crate::{DType, text::show_shape};

/// The result of every fallible call of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the engine. Every message names the operation and the remedy.
///
/// `Debug` prints the message too, so `fn main() -> phynexus::Result<()>` shows it.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operands' shapes do not fit the operation.
    #[error("{op}: shapes {} do not fit: {hint}", shapes.iter().map(|s| show_shape(s)).collect::<Vec<_>>().join(" and "))]
    Shape {
        /// The operation.
        op: &'static str,
        /// The operands' shapes.
        shapes: Vec<Vec<usize>>,
        /// What would fit.
        hint: String,
    },
    /// The operands' dtypes do not fit the operation.
    #[error("{op}: dtype {} is not supported here: {hint}", dtypes.iter().map(|d| d.name()).collect::<Vec<_>>().join(" with "))]
    DType {
        /// The operation.
        op: &'static str,
        /// The operands' dtypes.
        dtypes: Vec<DType>,
        /// What would fit, or how to convert.
        hint: String,
    },
    /// An axis outside the tensor's rank.
    #[error("{op}: axis {axis} is out of range for shape {}: use {} to {}", show_shape(shape), -(shape.len() as i64), shape.len() as i64 - 1)]
    Axis {
        /// The operation.
        op: &'static str,
        /// The axis as given by the caller.
        axis: i64,
        /// The tensor's shape.
        shape: Vec<usize>,
    },
    /// An index is out of range for its dimension.
    #[error("{op}: index {index} is out of range for {} of size {size}", show_axis(*axis))]
    Index {
        /// The operation.
        op: &'static str,
        /// The index as given by the caller. For an index over several axes, the flat position if only that is known.
        index: i64,
        /// The dimension's size.
        size: usize,
        /// The axis, if known.
        axis: Option<usize>,
    },
    /// An index is out of range, but the device does not report which.
    #[error("{op}: an index is out of range (found on {device})")]
    SomeIndex {
        /// The step.
        op: String,
        /// The device.
        device: String,
    },
    /// An argument other than a tensor is invalid.
    #[error("{op}: {message}")]
    Argument {
        /// The operation.
        op: &'static str,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// The tensors of one operation are on different devices.
    #[error("{op}: tensors are on different devices ({left} and {right}): move one with .to_device()")]
    DeviceMismatch {
        /// The operation.
        op: &'static str,
        /// The first tensor's device.
        left: String,
        /// The other tensor's device.
        right: String,
    },
    /// No device has this name.
    #[error("{}{hint}", show_unknown(name, *variable))]
    UnknownDevice {
        /// The requested name.
        name: String,
        /// The environment variable that holds the name, if it did not come from an argument.
        variable: Option<&'static str>,
        /// The available devices.
        hint: String,
    },
    /// A gradient was requested through an operation that has none.
    #[error("{op} has no gradient: {hint}")]
    NoGradient {
        /// The operation.
        op: &'static str,
        /// How to avoid the problem.
        hint: String,
    },
    /// Memory ran out, or a limit was reached.
    #[error("{device}: out of memory: {requested} bytes requested, {in_use} in use, {}: {hint}", show_limit(*limit))]
    OutOfMemory {
        /// The device.
        device: String,
        /// Bytes requested.
        requested: usize,
        /// Bytes in use by tensors.
        in_use: usize,
        /// The current limit (`usize::MAX` if none is set).
        limit: usize,
        /// What to do.
        hint: String,
    },
    /// The system refused host memory.
    #[error(
        "out of memory: the system refused to allocate {requested} bytes: process less data at once, or drop data that is no longer needed"
    )]
    HostMemory {
        /// Bytes requested.
        requested: usize,
    },
    /// The arguments of a custom kernel do not match its signature.
    #[error("custom kernel {kernel}: {argument}: expected {expected}, given {given}")]
    KernelArgument {
        /// The kernel.
        kernel: String,
        /// The parameter, or another property of the launch.
        argument: String,
        /// What the signature requires.
        expected: String,
        /// What was given.
        given: String,
    },
    /// An input of a custom kernel has a dtype other than the one in its signature.
    #[error(
        "custom kernel {kernel}: {argument}: expected {expected}, given {given}: convert with .to_dtype({expected})"
    )]
    KernelDType {
        /// The kernel.
        kernel: String,
        /// The parameter.
        argument: String,
        /// What the signature requires.
        expected: DType,
        /// What was given.
        given: DType,
    },
    /// The source of a custom kernel does not compile.
    #[error("custom kernel {kernel} does not compile as {language} on {device}:\n{message}")]
    KernelSource {
        /// The kernel.
        kernel: String,
        /// The language of the source.
        language: &'static str,
        /// The device.
        device: String,
        /// The compiler's messages, with the source lines.
        message: String,
    },
    /// A custom kernel has no source that the device accepts.
    #[error(
        "custom kernel {kernel} does not run on {device}, which accepts {expected}: the kernel has {available}"
    )]
    KernelLanguage {
        /// The kernel.
        kernel: String,
        /// The device.
        device: String,
        /// What the device accepts.
        expected: String,
        /// What the kernel has.
        available: String,
    },
    /// A device can run a custom kernel but not the kernel of its gradient.
    #[error(
        "custom kernel {kernel} runs on {device}, its gradient {gradient} does not: {device} accepts {expected}, {gradient} has {available}: give {gradient} such a source or a function for the CPU, or launch {kernel} without gradients (no_grad)"
    )]
    KernelGradient {
        /// The kernel.
        kernel: String,
        /// The kernel of its gradient.
        gradient: String,
        /// The device.
        device: String,
        /// What the device accepts.
        expected: String,
        /// What the gradient's kernel has.
        available: String,
    },
    /// A device has no kernel for a step, or its compiler refuses one. This is permanent, so the step runs on the CPU.
    #[error("{device}: {message}")]
    Unsupported {
        /// The device.
        device: String,
        /// What is missing, or the compiler's message.
        message: String,
    },
    /// A device failed. The next attempt may succeed.
    #[error("{device}: {message}")]
    Device {
        /// The device.
        device: String,
        /// The device's message.
        message: String,
    },
    /// A collective failed: a rank ended, is too late, or runs something else.
    #[error("{op} on rank {rank} of {size}: {message}")]
    Collective {
        /// The collective.
        op: &'static str,
        /// The rank in its group that reports this.
        rank: usize,
        /// The number of ranks.
        size: usize,
        /// What happened, and to which rank.
        message: String,
    },
    /// The computation was interrupted, see [`interrupt`](crate::interrupt). Tensors are unchanged.
    #[error("the computation was interrupted")]
    Interrupted,
    /// A forked child of a process that has computed tries to compute. The threads it needs were not copied.
    #[error(
        "process {child} was forked from process {parent} after {parent} had computed: fork before computing, or start a new program"
    )]
    Forked {
        /// The process that computed first.
        parent: u32,
        /// The child process.
        child: u32,
    },
    /// A user-supplied function failed, such as a gradient or a hook.
    #[error("{0}")]
    Callback(Arc<dyn std::error::Error + Send + Sync>),
    /// A matrix does not meet the requirements of a decomposition or an inverse.
    #[error("{op}: {message}")]
    LinearAlgebra {
        /// The operation.
        op: &'static str,
        /// Which requirement is not met.
        message: String,
    },
    /// A gradient has a NaN, which backward passes were to detect.
    #[error("{op}: {message}")]
    Anomaly {
        /// What found it.
        op: &'static str,
        /// The operation whose gradient it is.
        message: String,
    },
    /// An invariant of the engine was broken. This is a bug to report, never the caller's fault.
    #[error("internal error in {place}: {message}; please report it")]
    Internal {
        /// Where.
        place: &'static str,
        /// What was found.
        message: String,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Makes an [`Error::Shape`].
    pub fn shape(op: &'static str, shapes: &[&[usize]], hint: impl Into<String>) -> Error {
        Error::Shape { op, shapes: shapes.iter().map(|s| s.to_vec()).collect(), hint: hint.into() }
    }
    /// Makes an [`Error::DType`].
    pub fn dtype(op: &'static str, dtypes: &[DType], hint: impl Into<String>) -> Error {
        Error::DType { op, dtypes: dtypes.to_vec(), hint: hint.into() }
    }
    /// Makes an [`Error::Argument`].
    pub fn argument(op: &'static str, message: impl Into<String>) -> Error {
        Error::Argument { op, message: message.into() }
    }
    /// Makes an [`Error::Internal`].
    pub fn internal(place: &'static str, message: impl Into<String>) -> Error {
        Error::Internal { place, message: message.into() }
    }
}

/// Formats an axis for a message.
fn show_axis(axis: Option<usize>) -> String {
    axis.map_or_else(|| "a dimension".to_owned(), |axis| format!("axis {axis}"))
}

/// Formats the unknown name and its source for a message.
fn show_unknown(name: &str, variable: Option<&str>) -> String {
    match variable {
        Some(variable) => format!("the environment variable {variable} names no device: {name:?}; "),
        None => format!("no device {name:?}: "),
    }
}

/// Formats a memory limit for a message. `usize::MAX` means no limit.
fn show_limit(limit: usize) -> String {
    if limit == usize::MAX { "no limit".to_owned() } else { format!("limit {limit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_is_no_number() {
        let error = |limit| Error::OutOfMemory {
            device: "cpu".into(),
            requested: 8,
            in_use: 4,
            limit,
            hint: "use less".into(),
        };
        let start = "cpu: out of memory: 8 bytes requested, 4 in use, ";
        assert_eq!(error(16).to_string(), format!("{start}limit 16: use less"));
        assert_eq!(error(usize::MAX).to_string(), format!("{start}no limit: use less"));
    }

    #[test]
    fn what_main_returns_is_readable() {
        let error = Error::shape("add", &[&[2, 3], &[4]], "make them equal");
        assert_eq!(format!("{error:?}"), "add: shapes (2, 3) and (4,) do not fit: make them equal");
        assert_eq!(
            format!("{:#?}", Err::<(), _>(Error::argument("narrow", "no"))),
            "Err(\n    narrow: no,\n)"
        );
    }
}
