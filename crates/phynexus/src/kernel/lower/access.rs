//! The buffers of a fused kernel, and the width of accesses to them.

use super::{Argument, Source, Target};
use crate::hash::FastMap;
use crate::kernel::{
    Index, Ranges,
    build::Builder,
    check::Limits,
    fused::{FusedOp, Fusion},
    index::{Atom, Term},
    loops::{
        ArrayId, AsyncCopy, AxisKind, BufferParameter, Kernel, KernelOp, Matrix, MemoryAccess, Row,
        Statement, ValueId,
    },
    view::{Coordinates, Mask},
};

/// A buffer of the kernel, and its start relative to its array, in elements.
#[derive(Clone, Copy)]
pub(super) struct Buffer {
    pub(super) array: ArrayId,
    pub(super) length: usize,
    pub(super) start: i64,
}

impl Buffer {
    /// The access to `lanes` elements starting at `index`, which counts from the start of the memory. If the enclosing
    /// conditions (`holds`) do not prove that the access is in bounds, as for some views of views, the index is clamped
    /// at run time.
    pub(super) fn access(
        &self,
        b: &mut Builder,
        index: &Index,
        mask: Mask,
        holds: &Mask,
        lanes: usize,
    ) -> MemoryAccess {
        let index = index.shift(-self.start);
        let access = MemoryAccess { mask, ..MemoryAccess::at(self.array, &index) };
        if self.contains(b, &index, &holds.and(&access.mask), lanes) {
            return access;
        }
        let number = index.quotient(lanes as i64, b.ranges());
        let value = b.number(&number);
        let row = Row { value, count: self.length / lanes, stride: lanes };
        MemoryAccess { index: Index::default(), row: Some(row), ..access }
    }

    /// The same access, but masked by its own place if the mask does not prove that it is in bounds.
    pub(super) fn masked_access(&self, b: &Builder, index: &Index, mask: Mask, lanes: usize) -> MemoryAccess {
        let index = index.shift(-self.start);
        let mask = match self.contains(b, &index, &mask, lanes) {
            true => mask,
            false => mask.and(&Mask::within(&index, 0, self.length as i64 + 1 - lanes as i64, b.ranges())),
        };
        MemoryAccess { mask, ..MemoryAccess::at(self.array, &index) }
    }

    /// Whether a mask proves that an access is in bounds.
    fn contains(&self, b: &Builder, index: &Index, mask: &Mask, lanes: usize) -> bool {
        let (low, high) = mask.bounds_of(index, b.ranges());
        mask.is_never() || low >= 0 && high + lanes as i64 <= self.length as i64
    }
}

/// The accesses of a fused kernel to its parameters.
fn accesses(fused: &Fusion) -> impl Iterator<Item = (u16, &Index, Option<&Mask>, bool)> {
    let loads = fused.instructions.iter().filter_map(|i| match &i.operation {
        FusedOp::Load { parameter, index, mask, .. } => {
            Some((*parameter, index, mask.as_ref(), i.per_column))
        }
        _ => None,
    });
    let stores = fused.stores.iter().map(|s| {
        let per_column = fused.instructions.get(s.value as usize).is_some_and(|i| i.per_column);
        (s.parameter, &s.index, None, per_column)
    });
    loads.chain(stores)
}

/// The row ranges, then the column ranges.
pub(super) fn ranges(fused: &Fusion) -> Ranges {
    Ranges(fused.rows.iter().chain(&fused.columns).copied().collect())
}

/// Declares the parameters as buffers that span all accesses.
pub(super) fn declare(b: &mut Builder, fused: &Fusion, sources: &[Source]) -> (Vec<Buffer>, Vec<Argument>) {
    let ranges = ranges(fused);
    let declared = fused.parameters.iter().enumerate().map(|(at, parameter)| {
        let (mut low, mut high) = (0, 0);
        for (_, index, mask, _) in accesses(fused).filter(|(p, ..)| usize::from(*p) == at) {
            let always = Mask::default();
            let mask = mask.unwrap_or(&always);
            if !mask.is_never() {
                let bounds = mask.bounds_of(index, &ranges);
                (low, high) = (bounds.0.min(low), bounds.1.max(high));
            }
        }
        let length = (high - low + 1) as usize;
        let array = b.buffer(BufferParameter {
            dtype: parameter.dtype,
            length,
            written: parameter.written,
            exclusive: !is_shared(fused, at),
        });
        let source = sources.get(at).copied().unwrap_or(Source::Binding(at));
        (Buffer { array, length, start: low }, Argument { source, start: low })
    });
    declared.unzip()
}

/// True if a plan may bind this parameter and another one to the same address.
fn is_shared(fused: &Fusion, at: usize) -> bool {
    fused
        .stores
        .iter()
        .filter_map(|store| Some([store.parameter, store.replaces?]))
        .flatten()
        .any(|p| usize::from(p) == at)
}

/// The distance in memory between most neighbours in a range.
pub(super) fn stride(index: &Index, range: usize) -> i64 {
    let distance = |term: &Term| match &term.atom {
        Atom::Range(r) => i64::from(usize::from(*r) == range) * term.factor,
        Atom::Remainder(of, _) => stride(of, range) * term.factor,
        Atom::Quotient(of, by) => stride(of, range) / by * term.factor,
    };
    index.terms().iter().map(distance).sum()
}

/// True if `lanes` consecutive elements from this index start at a multiple of `lanes`.
pub(super) fn is_aligned(index: &Index, lanes: usize) -> bool {
    let lanes = lanes as i64;
    index.common_factor() % lanes == 0 && index.offset() % lanes == 0
}

/// The access pattern of an invocation's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// All lanes access the same element.
    Broadcast,
    /// Consecutive, aligned elements.
    Vector,
    Scattered,
}

/// The pattern of these accesses, one per lane.
pub(super) fn pattern(lanes: &[(Index, Mask)]) -> Pattern {
    let [(index, mask), rest @ ..] = lanes else { return Pattern::Broadcast };
    if rest.iter().all(|(i, m)| i == index && m == mask) {
        return Pattern::Broadcast;
    }
    let consecutive = rest.iter().zip(1..).all(|((i, m), lane)| *i == index.shift(lane) && m == mask);
    if consecutive && is_aligned(index, lanes.len()) { Pattern::Vector } else { Pattern::Scattered }
}

/// The number of lanes of an invocation: more than one if every access is then a vector or a broadcast. For a given
/// number of lanes, `points` returns the coordinates of each lane and the ranges they are over. If there are columns,
/// only per-column accesses count.
pub(super) fn lanes(
    fused: &Fusion,
    target: &Target,
    points: impl Fn(usize) -> Option<(Vec<Coordinates>, Ranges)>,
) -> usize {
    let counts = |per_column: bool| per_column || fused.columns.is_empty();
    let relevant = || accesses(fused).filter(|(.., per_column)| counts(*per_column));
    let size = |p: u16| fused.parameters.get(usize::from(p)).map_or(8, |p| p.dtype.size());
    let fits = |lanes: usize| {
        let Some((points, ranges)) = points(lanes) else { return false };
        let mut vectors = false;
        let all = relevant().all(|(parameter, index, mask, _)| {
            let access = |at: &Coordinates| {
                let mask = mask.map(|m| m.substitute(at, &ranges)).unwrap_or_default();
                (index.substitute(at, &ranges), mask)
            };
            let pattern = pattern(&points.iter().map(access).collect::<Vec<_>>());
            vectors |= pattern == Pattern::Vector;
            let narrow = size(parameter) * lanes <= target.vector_bytes;
            pattern == Pattern::Broadcast || pattern == Pattern::Vector && narrow
        });
        all && vectors
    };
    [4, 2].into_iter().find(|&lanes| fits(lanes)).unwrap_or(1)
}

/// Emits the loops over `groups` groups, in as many grid dimensions as the device needs, and over the invocations of a
/// block. The closure receives the group's number and the block's axes, of which the second varies fastest.
pub(super) fn launch(
    b: &mut Builder,
    limits: &Limits,
    groups: usize,
    block: [usize; 2],
    body: impl FnOnce(&mut Builder, &Index, &Index, &Index),
) {
    let width = groups.min(limits.grid[0].max(1));
    b.over(groups.div_ceil(width), AxisKind::Grid(1), |b, high| {
        b.over(width, AxisKind::Grid(0), |b, low| {
            b.over(block[0], AxisKind::Block(1), |b, y| {
                b.over(block[1], AxisKind::Block(0), |b, x| {
                    let group = high.scale(width as i64).add(low);
                    let exists = Mask::within(&group, 0, groups as i64, b.ranges());
                    b.when(exists, |b| body(b, &group, y, x));
                });
            });
        });
    });
}

/// The size in bytes of the widest access to a buffer parameter.
pub(super) fn alignment(kernel: &Kernel, argument: usize) -> usize {
    let array = ArrayId::Buffer(argument as u16);
    let size = kernel.array(array).map_or(1, |(dtype, _)| dtype.size());
    let mut lanes: FastMap<ValueId, u8> = FastMap::default();
    let mut widest = size;
    kernel.visit(&mut |statement| match statement {
        Statement::Let { value, of, operation } => {
            lanes.insert(*value, of.lanes);
            if let KernelOp::Load(access, _) = operation
                && access.array == array
            {
                widest = widest.max(size * usize::from(of.lanes));
            }
        }
        Statement::Store { access, value, .. } if access.array == array => {
            widest = widest.max(size * lanes.get(value).map_or(1, |&lanes| usize::from(lanes)));
        }
        Statement::Matrix(matrix) => {
            if let Matrix::Store { access, .. } = &**matrix
                && access.array == array
            {
                widest = widest.max(Kernel::MATRIX_ALIGNMENT);
            }
        }
        Statement::AsyncCopy(copy) => {
            let from = match copy {
                AsyncCopy::Begin { from, .. } => Some(from.array),
                AsyncCopy::Bulk(copy) => kernel.tensor(copy).map(|tensor| ArrayId::Buffer(tensor.buffer)),
                _ => None,
            };
            if from == Some(array) {
                widest = widest.max(AsyncCopy::BYTES);
            }
        }
        _ => {}
    });
    widest
}
