//! Lowering: from a plan's steps to loop trees.
//!
//! A step becomes one launch or several, each a [`Kernel`] with what is bound to it. A fused kernel without columns is
//! done element by element (`elementwise`), one with columns by groups of invocations that share rows (`rows`), in
//! parts where rows are few (`split`). Library operations are fused kernels in disguise (`library`), which are done by
//! tiles where they are sums of products whose factors are used again (`contraction`), or have kernels of their own
//! (`indexed`, `scatter`, `scan`, `sort`). Which invocation does what, how wide accesses are and where values are kept is decided
//! here, from constants alone. The order in which the numbers of a reduction are combined follows from their count
//! (`rows`), so results vary neither between runs nor with what is fused.

mod access;
mod contraction;
mod draft;
mod elementwise;
mod expression;
mod fragments;
mod indexed;
mod library;
mod load;
mod operand;
mod reduce;
mod rows;
mod scan;
mod scatter;
mod sort;
mod split;
mod tile;

use contraction::{Contraction, Product};
use elementwise::Task;

use super::{
    check::{Limits, check},
    fused::Fused,
    loops::Kernel,
};
use crate::{
    DType, Error,
    kernel::step::{Library, Step},
    op::{Composite, Op},
};

/// What lowering needs to know of a device. Two targets that are equal give the same kernels.
#[derive(Clone, Debug)]
pub struct Target {
    /// What a kernel can have.
    pub limits: Limits,
    /// Bytes of the widest load or store of one invocation; vectors are not used if it is less than two elements.
    pub vector_bytes: usize,
    /// Multiprocessors, or compute units.
    pub processors: usize,
    /// Sums of a product that an invocation should hold in its registers, at most.
    pub sums: usize,
}

impl Target {
    /// The same device where no address is aligned to more than its element: what a step is lowered for when a binding
    /// does not fulfil [`Launch::alignment`].
    pub fn unaligned(&self) -> Target {
        Target { vector_bytes: 0, ..self.clone() }
    }

    /// Whether there is a matrix instruction that rounds factors of `float32`.
    pub fn multiplies_tf32(&self) -> bool {
        self.limits.matrices.iter().any(|(_, factor, _)| *factor == DType::F32)
    }

    /// The same device without that instruction, for what may not round.
    fn exact(&self) -> Target {
        let mut exact = self.clone();
        exact.limits.matrices.retain(|(_, factor, _)| *factor != DType::F32);
        exact
    }
}

/// Why a step cannot be lowered for a device, in words for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported(pub String);

/// What a step becomes: launches in order, each of which sees what those before it wrote.
#[derive(Clone, Debug, Default)]
pub struct Lowered {
    /// The kernels.
    pub launches: Vec<Launch>,
    /// Bytes of the buffers that live from the first launch to the last; their contents are undefined before.
    pub temporaries: Vec<usize>,
}

/// A kernel and what is bound to its parameters.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel.
    pub kernel: Kernel,
    /// One a buffer parameter, in order.
    pub arguments: Vec<Argument>,
}

/// What is bound to a buffer parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The memory.
    pub source: Source,
    /// Where the parameter begins, in elements from where the memory does: below 0 where strides are.
    pub start: i64,
}

/// The memory behind a buffer parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// This one of the step's bindings.
    Binding(usize),
    /// This one of [`Lowered::temporaries`].
    Temporary(usize),
    /// One number of `uint32` that the device keeps: 0, until a kernel finds an index out of range and makes it 1.
    Status,
}

impl Lowered {
    /// A buffer for the time of the step.
    fn temporary(&mut self, elements: usize, dtype: DType) -> Source {
        self.temporaries.push(elements * dtype.size());
        Source::Temporary(self.temporaries.len() - 1)
    }
}

impl Launch {
    /// What the address of this argument must be a multiple of, in bytes: its widest access.
    pub fn alignment(&self, argument: usize) -> usize {
        access::alignment(&self.kernel, argument)
    }
}

/// The launches of a step.
///
/// # Errors
/// If the device cannot do it: types, shared memory or instructions that it has not.
pub fn lower(step: &Step, target: &Target) -> Result<Lowered, Unsupported> {
    let mut lowered = Lowered::default();
    let may_round = |library: &Library| matches!(library.node.op, Op::Composite(Composite::Tf32(_)));
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

/// A device's refusal in its own words; anything else as it is.
fn reason(error: Error) -> String {
    match error {
        Error::Unsupported { message, .. } => message,
        other => other.to_string(),
    }
}

fn lower_library(library: &Library, target: &Target, lowered: &mut Lowered) -> Result<(), Unsupported> {
    if let Some((fused, product)) = library::fused(library) {
        let sources: Vec<Source> = (0..fused.parameters.len()).map(Source::Binding).collect();
        return match product {
            Some(product) => lower_product(&fused, product, &sources, target, lowered),
            None => lower_fused(&fused, &sources, target, lowered),
        };
    }
    let operands = library.operands.len();
    let result = match &library.epilogue {
        None => Source::Binding(operands),
        Some(_) => lowered.temporary(library.node.len(), library.node.dtype),
    };
    match &library.node.op {
        _ if library.node.is_empty() => {}
        Op::Cat { axis } => {
            for (input, copy) in library::cat(library, *axis).iter().enumerate() {
                lower_fused(copy, &[Source::Binding(input), result], target, lowered)?;
            }
        }
        Op::RandomBits => {
            let words = library::random_bits(library);
            lower_fused(&words, &[Source::Binding(0), result], target, lowered)?;
        }
        Op::Gather(range) => indexed::gather(library, *range, result, target, lowered)?,
        Op::Scatter(mode, range) => {
            scatter::lower(library, (*mode, *range), result, target, lowered)?;
        }
        Op::SearchSorted { right } => indexed::search_sorted(library, *right, result, target, lowered),
        Op::Scan { combine, axis, reverse } => {
            scan::lower(library, (*combine, *axis, *reverse), result, target, lowered);
        }
        Op::ArgSort { descending } => sort::lower(library, *descending, result, target, lowered)?,
        op => return Err(Unsupported(format!("{} has no kernel for GPUs", op.name()))),
    }
    let Some(epilogue) = &library.epilogue else { return Ok(()) };
    let others = (operands..).take(epilogue.parameters.len() - 1).map(Source::Binding);
    let sources: Vec<Source> = std::iter::once(result).chain(others).collect();
    lower_fused(epilogue, &sources, target, lowered)
}

/// Sums of products by tiles, where that reuses what is loaded. They are added one after another and their products not
/// rounded, so a fused kernel, whose sums are those of stored products, is never lowered so.
fn lower_product(
    fused: &Fused,
    product: Product,
    sources: &[Source],
    target: &Target,
    lowered: &mut Lowered,
) -> Result<(), Unsupported> {
    let Some(contraction) = Contraction::of(fused, product).filter(|_| fused.row_count() > 0) else {
        return lower_fused(fused, sources, target, lowered);
    };
    let Some(shape) = contraction.shape(target) else {
        return lower_fused(fused, sources, target, lowered);
    };
    if let Some(parts) = split::parts_of_contraction(&contraction, product, shape, target) {
        return split::lower(fused, sources, parts, target, lowered);
    }
    lowered.launches.push(contraction.lower(shape, sources, target));
    Ok(())
}

fn lower_fused(
    fused: &Fused,
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
