//! Lowering: converts the steps of a plan to loop trees.
//!
//! A step becomes one or several launches, each a [`Kernel`] with its arguments. Fused kernels without columns are
//! computed element by element (`elementwise`), or by tiles that pass through shared memory if they load along one
//! dimension and store along another (`transposed`). Those with columns are computed by groups of invocations that
//! share rows (`rows`), in parts if there are few rows (`split`). Library operations that are equivalent to fused
//! kernels are converted to them (`library`). Among these, sums of products that reuse their factors are computed
//! by tiles (`contraction`, `tile`, `fragments`, `panels`), of copies of the factors if those can be read faster
//! (`turned`), those of `float32` as sums of narrower numbers if that is asked for (`narrow`). The remaining
//! library operations have their own kernels (`attention`, `recurrent`, `indexed`, `scatter`, `scan`, `sort`).
//!
//! Lowering decides which invocation does what, how wide accesses are and where values are kept, from constants alone.
//! The order in which a reduction combines its numbers depends only on their count (`rows`), so results vary neither
//! between runs nor with fusion.

mod access;
mod attention;
mod bulk;
mod contraction;
mod draft;
mod elementwise;
mod expression;
mod fragments;
mod indexed;
mod library;
mod load;
mod narrow;
mod operand;
mod panels;
mod random;
mod rebuild;
mod recurrent;
mod reduce;
mod rows;
mod scan;
mod scatter;
mod sort;
mod split;
mod strided;
mod tile;
mod transposed;
mod turned;

pub(crate) use attention::reads as attention_reads;
use contraction::{Contraction, Product, Unit};
use elementwise::Task;
use turned::{Turned, with_turned_operands};

use super::{
    check::{Limits, check},
    fused::Fusion,
    loops::{Kernel, MatrixUnit, Panel},
};
use crate::{
    DType, Error,
    kernel::step::{Library, Step},
    op::{
        ArgSort, Cat, Composite, Gather, Op, Scan, Scatter, SearchSorted, TensorType,
        composite::{AttentionGradient, MaxPoolGradient, RecurrentGradient, RecurrentSteps},
    },
};

/// The properties of a device that lowering depends on. Equal targets give the same kernels.
#[derive(Clone, Debug)]
pub struct Target {
    /// The limits of kernels.
    pub limits: Limits,
    /// Bytes of the widest load or store of an invocation. If that is less than two elements, vectors are not used.
    pub vector_bytes: usize,
    /// The number of multiprocessors or compute units.
    pub processors: usize,
    /// The maximum number of a product's sums that an invocation should hold in registers.
    pub sums: usize,
}

impl Target {
    /// The same device with addresses aligned only to single elements. Used to lower a step if a binding does not
    /// satisfy [`Launch::alignment`].
    pub fn unaligned(&self) -> Target {
        Target { vector_bytes: 0, ..self.clone() }
    }

    /// Whether there is a matrix instruction that rounds `float32` factors.
    fn multiplies_tf32(&self) -> bool {
        self.limits.matrices.iter().any(|unit| unit.factors == [DType::F32; 2])
    }

    /// Whether its matrix units multiply panels of 16-bit floats.
    pub(crate) fn multiplies_panels(&self) -> bool {
        let is_product = |unit: &MatrixUnit| unit.shape.rows == Panel::ROWS && unit.factors[0].size() == 2;
        self.limits.async_copies && self.limits.matrices.iter().any(is_product)
    }

    /// Whether steps may have this composite as their operation. Other composites consist of operations that have
    /// kernels.
    pub(crate) fn lowers_composite(&self, op: &Op, operands: &[TensorType]) -> bool {
        match op {
            Op::Composite(Composite::InPrecision(_)) if narrow::is_split(op) => narrow::pays(operands, self),
            Op::Composite(Composite::InPrecision(_)) => self.multiplies_tf32(),
            Op::Composite(Composite::MaxPoolGradient(_)) => true,
            Op::Composite(Composite::Attention(of) | Composite::AttentionGradient(AttentionGradient(of))) => {
                attention::pays(of, operands, self)
            }
            Op::Composite(Composite::RecurrentSteps(RecurrentSteps(layer))) => {
                recurrent::pays(layer.cell, operands[0], false, self)
            }
            Op::Composite(Composite::RecurrentGradient(RecurrentGradient(layer))) => {
                recurrent::pays(layer.cell, operands[1], true, self)
            }
            _ => false,
        }
    }

    /// The same device without that instruction, for products that must not round.
    fn exact(&self) -> Target {
        let mut exact = self.clone();
        exact.limits.matrices.retain(|unit| unit.factors != [DType::F32; 2]);
        exact
    }
}

/// Why a step cannot be lowered for a device, in terms for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported(pub String);

/// The result of lowering a step: launches in order. Each sees the writes of those before it.
#[derive(Clone, Debug, Default)]
pub struct Lowered {
    /// The kernels.
    pub launches: Vec<Launch>,
    /// Sizes in bytes of the buffers that exist during the step. Their contents are initially undefined.
    pub temporaries: Vec<usize>,
}

/// A kernel and its arguments.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel.
    pub kernel: Kernel,
    /// One argument per buffer parameter, in order.
    pub arguments: Vec<Argument>,
}

/// The argument of a buffer parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The memory.
    pub source: Source,
    /// The start of the parameter relative to the memory, in elements; negative for negative strides.
    pub start: i64,
}

/// The memory of a buffer parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A binding of the step.
    Binding(usize),
    /// An entry of [`Lowered::temporaries`].
    Temporary(usize),
    /// A `uint32` owned by the device. It is 0 until a kernel finds an index out of range and sets it to 1.
    Status,
}

impl Lowered {
    /// Adds a buffer that exists during the step.
    fn temporary(&mut self, elements: usize, dtype: DType) -> Source {
        self.temporaries.push(elements * dtype.size());
        Source::Temporary(self.temporaries.len() - 1)
    }
}

impl Launch {
    /// The required alignment of this argument's address in bytes: its widest access.
    pub fn alignment(&self, argument: usize) -> usize {
        access::alignment(&self.kernel, argument)
    }
}

/// Lowers a step.
///
/// # Errors
/// If the device lacks a required dtype, instruction, or amount of shared memory.
pub fn lower(step: &Step, target: &Target) -> Result<Lowered, Unsupported> {
    let step = &*step.expanded().map_err(|error| Unsupported(error.to_string()))?;
    let mut lowered = Lowered::default();
    let may_round = |library: &Library| {
        let op = &library.node.op;
        matches!(op, Op::Composite(Composite::InPrecision(_))) && !narrow::is_split(op)
    };
    let exact = match step {
        Step::Library(library) if may_round(library) => target.clone(),
        _ => target.exact(),
    };
    let target = &exact;
    match step {
        Step::Fused(fused) => {
            let sources: Vec<Source> = (0..fused.parameters.len()).map(Source::Binding).collect();
            lower_fused(fused, &sources, target, &mut lowered)?;
        }
        Step::Batch(kernels) => {
            let (mut first, mut tasks) = (0, Vec::new());
            for fused in kernels {
                let sources: Vec<Source> =
                    (first..).take(fused.parameters.len()).map(Source::Binding).collect();
                first += sources.len();
                match fused.columns.is_empty() && fused.row_count() > 0 {
                    true => tasks.push(Task { fused, sources }),
                    false => lower_fused(fused, &sources, target, &mut lowered)?,
                }
            }
            lowered.launches.extend(elementwise::lower_all(&tasks, target));
        }
        Step::Library(library) => lower_library(library, target, &mut lowered)?,
    }
    for launch in &lowered.launches {
        check(&launch.kernel, &target.limits).map_err(|error| Unsupported(reason(error)))?;
    }
    Ok(lowered)
}

/// A device's refusal without the error prefix; other errors unchanged.
fn reason(error: Error) -> String {
    match error {
        Error::Unsupported { message, .. } => message,
        other => other.to_string(),
    }
}

fn lower_library(library: &Library, target: &Target, lowered: &mut Lowered) -> Result<(), Unsupported> {
    let turned = narrow::factors(library, target).or_else(|| with_turned_operands(library, target));
    let library = turned.as_ref().map_or(library, |(library, _)| library);
    if let Some((fused, product)) = library::fused(library) {
        let mut sources: Vec<Source> = (0..fused.parameters.len()).map(Source::Binding).collect();
        for Turned { operand, copy, elements } in turned.iter().flat_map(|(_, copies)| copies) {
            let copied = lowered.temporary(*elements, copy.parameters[1].dtype);
            lower_fused(copy, &[Source::Binding(*operand), copied], target, lowered)?;
            sources[*operand] = copied;
        }
        return match (product, strided::geometry(library.node.op.exact())) {
            (Some(product), Some(geometry)) => {
                strided::lower(library, (&fused, product), geometry, &sources, target, lowered)
            }
            (Some(product), None) => lower_product(&fused, product, &sources, target, true, lowered),
            (None, _) => lower_fused(&fused, &sources, target, lowered),
        };
    }
    let operands = library.operands.len();
    let result = match &library.epilogue {
        None => Source::Binding(operands),
        Some(_) => lowered.temporary(library.node.len(), library.node.dtype),
    };
    match &library.node.op {
        _ if library.node.is_empty() => {}
        Op::Cat(Cat { axis }) => {
            for (input, copy) in library::cat(library, *axis).iter().enumerate() {
                lower_fused(copy, &[Source::Binding(input), result], target, lowered)?;
            }
        }
        Op::RandomBits => {
            let words = random::random_bits(library);
            lower_fused(&words, &[Source::Binding(0), result], target, lowered)?;
        }
        Op::Gather(Gather(range)) => indexed::gather(library, *range, result, target, lowered)?,
        Op::Scatter(Scatter(mode, range)) => {
            scatter::lower(library, (*mode, *range), result, target, lowered)?;
        }
        Op::SearchSorted(SearchSorted { right }) => {
            indexed::search_sorted(library, *right, result, target, lowered)
        }
        Op::Scan(Scan { combine, axis, reverse }) => {
            scan::lower(library, (*combine, *axis, *reverse), result, target, lowered);
        }
        Op::Composite(Composite::Attention(of)) => {
            attention::lower(library, of, false, result, target, lowered)?;
        }
        Op::Composite(Composite::AttentionGradient(AttentionGradient(of))) => {
            attention::lower(library, of, true, result, target, lowered)?;
        }
        Op::Composite(Composite::RecurrentSteps(RecurrentSteps(layer))) => {
            recurrent::lower(library, *layer, false, result, target, lowered)?;
        }
        Op::Composite(Composite::RecurrentGradient(RecurrentGradient(layer))) => {
            recurrent::lower(library, *layer, true, result, target, lowered)?;
        }
        Op::Composite(Composite::MaxPoolGradient(MaxPoolGradient(geometry))) => {
            let ([firsts, sums], dtype) = library::max_pool_gradient(library, geometry);
            let elements = library.operands[1].layout.shape.iter().product();
            let found = lowered.temporary(elements, dtype);
            lower_fused(&firsts, &[Source::Binding(0), found], target, lowered)?;
            lower_fused(&sums, &[found, Source::Binding(1), result], target, lowered)?;
        }
        Op::ArgSort(ArgSort { descending }) => sort::lower(library, *descending, result, target, lowered)?,
        op => return Err(Unsupported(format!("{} has no kernel for GPUs", op.name()))),
    }
    let Some(epilogue) = &library.epilogue else { return Ok(()) };
    let others = (operands..).take(epilogue.parameters.len() - 1).map(Source::Binding);
    let sources: Vec<Source> = std::iter::once(result).chain(others).collect();
    lower_fused(epilogue, &sources, target, lowered)
}

/// Lowers sums of products by tiles, if that reuses loaded factors. Terms are added in sequence without rounding the
/// products. A fused kernel's sums are of stored (rounded) products, so it must not be lowered this way.
fn lower_product(
    fused: &Fusion,
    product: Product,
    sources: &[Source],
    target: &Target,
    may_split: bool,
    lowered: &mut Lowered,
) -> Result<(), Unsupported> {
    let untiled = |lowered: &mut Lowered| match product.part {
        Some(_) => Err(Unsupported("a sum in parts has no tiles".to_owned())),
        None => lower_fused(fused, sources, target, lowered),
    };
    let Some(contraction) = Contraction::of(fused, product).filter(|_| fused.row_count() > 0) else {
        return untiled(lowered);
    };
    for shape in [panels::shape(&contraction, target), contraction.shape(target)].into_iter().flatten() {
        let parts = split::parts_of_contraction(&contraction, product, shape, target);
        let parts = parts.filter(|_| may_split);
        // Whether factors can be copied to panels is known when the kernel is made.
        let launch = match parts {
            Some(_) if shape.unit != Unit::Team => None,
            _ => contraction.lower(shape, sources, target),
        };
        match (parts, launch) {
            (_, None) if shape.unit == Unit::Team => continue,
            (Some(parts), _) => return split::lower(fused, sources, parts, target, lowered),
            (None, launch) => lowered.launches.extend(launch),
        }
        return Ok(());
    }
    untiled(lowered)
}

fn lower_fused(
    fused: &Fusion,
    sources: &[Source],
    target: &Target,
    lowered: &mut Lowered,
) -> Result<(), Unsupported> {
    if fused.row_count() == 0 {
        return Ok(());
    }
    if let Some(parts) = split::parts(fused, target) {
        return split::lower(fused, sources, parts, target, lowered);
    }
    lowered.launches.push(if fused.columns.is_empty() {
        elementwise::lower(&[Task { fused, sources: sources.to_vec() }], target)
    } else {
        rows::lower(fused, sources, rows::partial_sums(fused.column_count()), target)
    });
    Ok(())
}
