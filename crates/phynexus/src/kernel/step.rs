//! A step of a plan: the unit that a device compiles and runs.

use crate::{
    DType,
    kernel::fused::Fused,
    op::{Op, ir::IrNode},
    shape::Layout,
};

/// An operand of a library step: its type and how it lies in memory (from the binding's address: offset 0).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// Element type.
    pub dtype: DType,
    /// Extents and strides. The offset is 0: the binding's address has it.
    pub layout: Layout,
}

/// One operation done by a routine of the device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Library {
    /// The operation, its result's dtype and shape. `inputs` is not used here: operands are numbered by position.
    pub node: IrNode,
    /// The operands. The result is row-major.
    pub operands: Vec<Operand>,
    /// Elementwise work on the result before it is stored.
    ///
    /// It runs over the result's elements (one row range a dimension of the result). Its parameter 0 is the
    /// operation's result, read at each element's own place; the kernel may leave it unstored, for then nobody else
    /// reads it. Then come its other read parameters, which follow the step's operands in the bindings, then its written
    /// ones, the step's outputs. An output may lie in the memory of a read parameter (never of an operand) whose every load is at the
    /// index of the store.
    pub epilogue: Option<Fused>,
}

/// A step of a plan.
///
/// Bindings of a fused step are its parameters in order; of a batch, those of its kernels in turn. Bindings of a library
/// step are its operands, then the epilogue's read parameters (from 1), then the outputs: the result, or what the
/// epilogue stores.
#[expect(clippy::large_enum_variant, reason = "a plan has few steps, made once")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A kernel made for this graph.
    Fused(Fused),
    /// Kernels that do not depend on one another, as the updates of all parameters of a network: run together, in one
    /// launch where the device can.
    Batch(Vec<Fused>),
    /// A routine of the device.
    Library(Library),
}

impl Step {
    /// What it is, in a word or two.
    pub fn name(&self) -> String {
        match self {
            Step::Fused(kernel) if kernel.columns.is_empty() => "elementwise".to_owned(),
            Step::Fused(_) => "rows".to_owned(),
            Step::Batch(kernels) if kernels.iter().all(|kernel| kernel.columns.is_empty()) => {
                format!("elementwise x{}", kernels.len())
            }
            Step::Batch(kernels) => format!("rows x{}", kernels.len()),
            Step::Library(library) => match &library.node.op {
                Op::Custom(call) if call.kernel().is_linear_algebra() => {
                    format!("linear algebra {}", call.kernel().name())
                }
                Op::Custom(call) => format!("custom {}", call.kernel().name()),
                op => op.name().to_owned(),
            },
        }
    }

    /// The kernel of a fused step.
    pub fn fused(&self) -> Option<&Fused> {
        match self {
            Step::Fused(kernel) => Some(kernel),
            Step::Batch(_) | Step::Library(_) => None,
        }
    }
}

/// A step of a plan, for people and reports.
#[derive(Clone, Debug)]
pub struct StepSummary {
    /// What it is: `elementwise`, `rows`, `dot`.
    pub name: String,
    /// What it computes: the functions of a kernel in order, or an operation's operands.
    pub detail: String,
    /// The device.
    pub device: String,
    /// Tensors read.
    pub inputs: usize,
    /// Tensors written.
    pub outputs: usize,
    /// Bytes of the tensors read.
    pub bytes_read: usize,
    /// Bytes of the tensors written.
    pub bytes_written: usize,
    /// Arithmetic operations, each function counted as one and each multiply-add as two.
    pub operations: u64,
    /// A matrix product or a convolution of factors other than whole `float32`s, whose peak is another.
    pub own_peak: bool,
    /// The kernel as text, for fused steps.
    pub listing: Option<String>,
    /// Why it does not run on the plan's device, if so.
    pub reason: Option<String>,
}
