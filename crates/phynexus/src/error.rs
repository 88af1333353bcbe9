//! What can go wrong, as data: the operation, the shapes and types involved, and what to do about it.

use std::{fmt, sync::Arc};

use crate::{DType, text::show_shape};

/// The result of every fallible call of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the engine. Every message names the operation and the remedy.
///
/// `Debug` gives the message too, so that `fn main() -> phynexus::Result<()>` shows it.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The shapes of the operands do not fit the operation.
    #[error("{op}: shapes {} do not fit: {hint}", shapes.iter().map(|s| show_shape(s)).collect::<Vec<_>>().join(" and "))]
    Shape {
        /// The operation.
        op: &'static str,
        /// The operands' shapes.
        shapes: Vec<Vec<usize>>,
        /// What would fit.
        hint: String,
    },
    /// The element types of the operands do not fit the operation.
    #[error("{op}: dtype {} is not supported here: {hint}", dtypes.iter().map(|d| d.name()).collect::<Vec<_>>().join(" with "))]
    DType {
        /// The operation.
        op: &'static str,
        /// The operands' types.
        dtypes: Vec<DType>,
        /// What would fit, or how to convert.
        hint: String,
    },
    /// An axis outside the tensor's rank.
    #[error("{op}: axis {axis} is out of range for shape {}: use {} to {}", show_shape(shape), -(shape.len() as i64), shape.len() as i64 - 1)]
    Axis {
        /// The operation.
        op: &'static str,
        /// The axis as the caller gave it.
        axis: i64,
        /// The tensor's shape.
        shape: Vec<usize>,
    },
    /// An index outside its dimension.
    #[error("{op}: index {index} is out of range for {} of size {size}", show_axis(*axis))]
    Index {
        /// The operation.
        op: &'static str,
        /// The index as the caller gave it; the position that an index of several axes makes, where only that is known.
        index: i64,
        /// The dimension's size.
        size: usize,
        /// The axis, where it is known.
        axis: Option<usize>,
    },
    /// An index outside its dimension that a device met, which does not say which it was.
    #[error("{op}: an index is out of range, as {device} found")]
    SomeIndex {
        /// The step.
        op: String,
        /// The device.
        device: String,
    },
    /// An argument other than a tensor that makes no sense.
    #[error("{op}: {message}")]
    Argument {
        /// The operation.
        op: &'static str,
        /// What is wrong and what would be right.
        message: String,
    },
    /// Tensors of one operation on different devices.
    #[error("{op}: tensors are on different devices ({left} and {right}): move one with .to_device()")]
    DeviceMismatch {
        /// The operation.
        op: &'static str,
        /// The first tensor's device.
        left: String,
        /// The other's.
        right: String,
    },
    /// A device name that nothing answers to.
    #[error("{}{hint}", show_unknown(name, *variable))]
    UnknownDevice {
        /// The name asked for.
        name: String,
        /// The environment variable that has this name, if it is not an argument.
        variable: Option<&'static str>,
        /// The devices there are.
        hint: String,
    },
    /// A gradient was asked for through an operation that has none.
    #[error("{op} has no gradient: {hint}")]
    NoGradient {
        /// The operation.
        op: &'static str,
        /// How to leave it out of the gradient's path.
        hint: String,
    },
    /// Memory ran out, or a limit was reached.
    #[error("{device}: out of memory: {requested} bytes asked for, {in_use} in use, {}: {hint}", show_limit(*limit))]
    OutOfMemory {
        /// The device.
        device: String,
        /// Bytes asked for.
        requested: usize,
        /// Bytes in use by tensors.
        in_use: usize,
        /// The limit in force (`usize::MAX` if none is set).
        limit: usize,
        /// What to do.
        hint: String,
    },
    /// The system refused memory that the host computes in.
    #[error(
        "out of memory: the system refused {requested} bytes: use less data at once, or drop what is no longer needed"
    )]
    HostMemory {
        /// Bytes asked for.
        requested: usize,
    },
    /// The arguments of a custom kernel are not what its signature says.
    #[error("custom kernel {kernel}: {argument}: expected {expected}, given {given}")]
    KernelArgument {
        /// The kernel.
        kernel: String,
        /// The parameter, or what else of the launch.
        argument: String,
        /// What the signature says.
        expected: String,
        /// What was given.
        given: String,
    },
    /// An input of a custom kernel has another dtype than its signature says.
    #[error(
        "custom kernel {kernel}: {argument}: expected {expected}, given {given}: convert with .to_dtype({expected})"
    )]
    KernelDType {
        /// The kernel.
        kernel: String,
        /// The parameter.
        argument: String,
        /// What the signature says.
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
        /// The compiler's messages, with the source's lines.
        message: String,
    },
    /// A custom kernel has nothing that a device runs.
    #[error(
        "custom kernel {kernel} does not run on {device}, which takes {expected}: the kernel has {available}"
    )]
    KernelLanguage {
        /// The kernel.
        kernel: String,
        /// The device.
        device: String,
        /// What the device takes.
        expected: String,
        /// What the kernel has.
        available: String,
    },
    /// A device runs a custom kernel but not the kernel of its gradient.
    #[error(
        "custom kernel {kernel} runs on {device}, its gradient {gradient} does not: {device} takes {expected}, {gradient} has {available}: give {gradient} such a source or a function for the CPU, or launch {kernel} without gradients (no_grad)"
    )]
    KernelGradient {
        /// The kernel.
        kernel: String,
        /// The kernel of its gradient.
        gradient: String,
        /// The device.
        device: String,
        /// What the device takes.
        expected: String,
        /// What the gradient has.
        available: String,
    },
    /// A device has no kernel for a step, or its compiler refuses one. It does so every time, so the step is planned on the
    /// CPU.
    #[error("{device}: {message}")]
    Unsupported {
        /// The device.
        device: String,
        /// What is missing, or the compiler's words.
        message: String,
    },
    /// A device failed. The next attempt may succeed.
    #[error("{device}: {message}")]
    Device {
        /// The device.
        device: String,
        /// Its own words.
        message: String,
    },
    /// The computation was ended from outside, see [`interrupt`](crate::interrupt). Tensors are as they were before.
    #[error("the computation was interrupted")]
    Interrupted,
    /// A process computed, was forked, and the child wants to compute too: the threads that it needs were not copied.
    #[error(
        "process {child} was forked from process {parent} after that had computed: fork first, or start a program of its own"
    )]
    Forked {
        /// The process that computed first.
        parent: u32,
        /// The one that asks.
        child: u32,
    },
    /// A function that a user gave failed: a gradient's, a hook.
    #[error("{0}")]
    Callback(Arc<dyn std::error::Error + Send + Sync>),
    /// A matrix lacks what a decomposition or an inverse needs.
    #[error("{op}: {message}")]
    LinearAlgebra {
        /// The operation.
        op: &'static str,
        /// What it lacks.
        message: String,
    },
    /// An invariant of the engine was broken: a bug to report, never the caller's fault.
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
    /// A [`Error::Shape`] from anything that looks like shapes.
    pub fn shape(op: &'static str, shapes: &[&[usize]], hint: impl Into<String>) -> Error {
        Error::Shape { op, shapes: shapes.iter().map(|s| s.to_vec()).collect(), hint: hint.into() }
    }
    /// A [`Error::DType`].
    pub fn dtype(op: &'static str, dtypes: &[DType], hint: impl Into<String>) -> Error {
        Error::DType { op, dtypes: dtypes.to_vec(), hint: hint.into() }
    }
    /// A [`Error::Argument`].
    pub fn argument(op: &'static str, message: impl Into<String>) -> Error {
        Error::Argument { op, message: message.into() }
    }
    /// A [`Error::Internal`].
    pub fn internal(place: &'static str, message: impl Into<String>) -> Error {
        Error::Internal { place, message: message.into() }
    }
}

/// An axis for a message.
fn show_axis(axis: Option<usize>) -> String {
    axis.map_or_else(|| "a dimension".to_owned(), |axis| format!("axis {axis}"))
}

/// What asked for a device that nothing answers to, for a message.
fn show_unknown(name: &str, variable: Option<&str>) -> String {
    match variable {
        Some(variable) => format!("the environment variable {variable} names no device: {name:?}; "),
        None => format!("no device {name:?}: "),
    }
}

/// A limit of memory for a message: the greatest number there is means none.
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
        let start = "cpu: out of memory: 8 bytes asked for, 4 in use, ";
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
