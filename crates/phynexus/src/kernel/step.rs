//! A step of a plan: the unit that a device compiles and runs.

use crate::{
    DType,
    kernel::fused::Fusion,
    op::{Op, TensorType, ir::IrNode},
    shape::Layout,
};

/// An operand of a library step: its type and memory layout.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// Element type.
    pub dtype: DType,
    /// Extents and strides. The offset is 0, because the binding's address includes it.
    pub layout: Layout,
}

impl Operand {
    /// The dtype and shape.
    pub fn tensor_type(&self) -> TensorType<'_> {
        TensorType::new(self.dtype, &self.layout.shape)
    }
}

/// An operation that a routine of the device computes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Library {
    /// The operation and the dtype and shape of its result. `inputs` is unused: operands are numbered by position.
    pub node: IrNode,
    /// The operands. The result is row-major.
    pub operands: Vec<Operand>,
    /// Elementwise operations on the result before it is stored.
    ///
    /// The epilogue runs over the elements of the result, with one row range per dimension. Its parameter 0 is the
    /// operation's result, read at each element's own position. The epilogue need not store it if nothing else reads
    /// it. The other read parameters follow the step's operands in the bindings, then come the written ones, which are
    /// the step's outputs. An output may share memory with a read parameter (never an operand) if every load of that
    /// parameter is at the index of the store.
    pub epilogue: Option<Fusion>,
}

/// A step of a plan.
///
/// The bindings of a fused step are its parameters in order; those of a batch are the parameters of its kernels in
/// turn. The bindings of a library step are its operands, then the epilogue's read parameters (from 1), then the
/// outputs: the result, or the stores of the epilogue.
#[expect(clippy::large_enum_variant, reason = "a plan has few steps, made once")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A kernel generated for this graph.
    Fused(Fusion),
    /// Independent kernels, such as the updates of all parameters of a network. They run in a single launch if the
    /// device can.
    Batch(Vec<Fusion>),
    /// A routine of the device.
    Library(Library),
}

impl Step {
    /// A short name.
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

    /// The operation that a routine computes.
    pub fn routine(&self) -> Option<&Op> {
        match self {
            Step::Library(library) => Some(&library.node.op),
            Step::Fused(_) | Step::Batch(_) => None,
        }
    }

    /// The kernel of a fused step.
    pub fn fused(&self) -> Option<&Fusion> {
        match self {
            Step::Fused(kernel) => Some(kernel),
            Step::Batch(_) | Step::Library(_) => None,
        }
    }
}

/// A summary of a plan's step for display and reports.
#[derive(Clone, Debug)]
pub struct StepSummary {
    /// The kind: `elementwise`, `rows`, `dot`.
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
    /// Arithmetic operations. Each function counts as one, each multiply-add as two.
    pub operations: u64,
    /// A matrix product or convolution whose factors are not plain `float32`, so a different peak performance applies.
    pub own_peak: bool,
    /// Numbers of its kernels, such as sizes, that are arguments because they vary.
    pub arguments: usize,
    /// The kernel as text, for fused steps.
    pub listing: Option<String>,
    /// Why it does not run on the plan's device, if it does not.
    pub reason: Option<String>,
    /// What to change so that a matrix product uses the device's matrix units, or uses them better.
    pub notes: Vec<String>,
}
