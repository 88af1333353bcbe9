//! Lowering: from a plan's steps to loop trees.
//!
//! A step becomes one launch or several, each a [`Kernel`] with what is bound to it. A fused kernel without columns is
//! done element by element ([`elementwise`]), one with columns by groups of invocations that share rows ([`rows`]).
//! Which invocation does what, how wide accesses are and where values are kept is decided here, from constants alone;
//! the order in which numbers are combined follows from it, so results do not vary between runs.

mod access;
mod elementwise;
mod expression;
mod reduce;
mod rows;

use super::{
    check::{Limits, check},
    fused::Fused,
    loops::Kernel,
};
use crate::{Error, schedule::step::Step};

/// What lowering needs to know of a device.
#[derive(Clone, Debug)]
pub struct Target {
    /// What a kernel can have.
    pub limits: Limits,
    /// Bytes of the widest load or store of one invocation; vectors are not used if it is less than two elements.
    pub vector_bytes: usize,
    /// Multiprocessors, or compute units.
    pub processors: usize,
}

impl Target {
    /// The same device where no address is aligned to more than its element: what a step is lowered for when a binding
    /// does not fulfil [`Launch::alignment`].
    pub fn unaligned(&self) -> Target {
        Target { vector_bytes: 0, ..self.clone() }
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
    match step {
        Step::Fused(fused) => {
            let sources: Vec<Source> = (0..fused.parameters.len()).map(Source::Binding).collect();
            lower_fused(fused, &sources, target, &mut lowered)?;
        }
        Step::Batch(kernels) => {
            let mut first = 0;
            for fused in kernels {
                let sources: Vec<Source> =
                    (first..).take(fused.parameters.len()).map(Source::Binding).collect();
                first += sources.len();
                lower_fused(fused, &sources, target, &mut lowered)?;
            }
        }
        Step::Library(library) => {
            return Err(Unsupported(format!("{} has no kernel for GPUs", library.node.op.name())));
        }
    }
    for launch in &lowered.launches {
        check(&launch.kernel, &target.limits).map_err(|error| Unsupported(reason(error)))?;
    }
    Ok(lowered)
}

/// A device's refusal in its own words; anything else as it is.
fn reason(error: Error) -> String {
    match error {
        Error::Device { message, .. } => message,
        other => other.to_string(),
    }
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
    lowered.launches.push(if fused.columns.is_empty() {
        elementwise::lower(fused, sources, target)
    } else {
        rows::lower(fused, sources, target)
    });
    Ok(())
}
