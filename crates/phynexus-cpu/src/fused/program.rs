//! The compiled form of a kernel: the work of a thread for one tile.

use phynexus::DType;

use super::{
    access::{Access, Varies},
    axis::{Cut, LANES, OUTER},
};
use crate::vector::{BinaryKernel, ReduceKernel, ReducePairKernel, SUM_LANES, TernaryKernel, UnaryKernel};

/// The index of a [`Slot`].
pub(super) type SlotId = usize;

/// The location of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// In the thread's scratch memory, at this byte. Lives for one tile.
    Register(usize),
    /// In the rows' state, at this byte. Kept between passes.
    State(usize),
    /// In a group's partial results, at this byte.
    Partial(usize),
    /// In [`Program::constants`].
    Constant(usize),
}

/// A value during the processing of a tile. Its size depends on the axes along which it varies: a full tile, a vector
/// or one element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Bytes per element.
    pub(super) size: usize,
    pub(super) varies: Varies,
    pub(super) home: Home,
}

/// A load: its source, and the conversion of elements to values.
pub(super) struct Load {
    pub(super) parameter: usize,
    pub(super) access: Access,
    /// Bytes per element in memory.
    pub(super) size: usize,
    /// Converts from the parameter's dtype to the registers' dtype, if they differ.
    pub(super) cast: Option<UnaryKernel>,
    /// An element of the parameter's dtype at the start of the word.
    pub(super) fill: u64,
    /// False if the value must outlive the tile and so cannot be used in place.
    pub(super) in_place: bool,
}

/// A store: its destination, and the conversion of values to elements.
pub(super) struct Store {
    pub(super) parameter: usize,
    pub(super) access: Access,
    /// Bytes per element in memory.
    pub(super) size: usize,
    /// Converts to the parameter's dtype, if the registers' dtype differs.
    pub(super) cast: Option<UnaryKernel>,
}

/// One operation on a tile.
#[derive(Clone, Copy)]
pub(super) enum Code {
    Load {
        load: usize,
        target: SlotId,
    },
    Coordinate {
        access: usize,
        cast: Option<UnaryKernel>,
        target: SlotId,
    },
    Unary {
        kernel: UnaryKernel,
        source: SlotId,
        target: SlotId,
    },
    Binary {
        kernel: BinaryKernel,
        sources: [SlotId; 2],
        target: SlotId,
    },
    Ternary {
        kernel: TernaryKernel,
        sources: [SlotId; 3],
        target: SlotId,
    },
    /// Repeats a value along the axes along which only the target varies.
    Expand {
        source: SlotId,
        target: SlotId,
    },
    /// Combines the lanes (of each outer position), or the elements of a vector, into the target.
    ReduceVector {
        kernel: ReduceKernel,
        source: SlotId,
        target: SlotId,
        start: Option<u64>,
    },
    /// Like [`Code::ReduceVector`], for a function of two values.
    ReducePair {
        kernel: ReducePairKernel,
        /// Combines the results of segments.
        combine: ReduceKernel,
        sources: [SlotId; 2],
        target: SlotId,
        start: Option<u64>,
    },
    /// Combines the outer positions of each lane into the target.
    ReduceOuter {
        kernel: BinaryKernel,
        source: SlotId,
        target: SlotId,
        start: Option<u64>,
    },
    Store {
        store: usize,
        source: SlotId,
    },
}

impl Code {
    /// The slots that it reads.
    pub(super) fn sources(&self) -> &[SlotId] {
        match self {
            Code::Load { .. } | Code::Coordinate { .. } => &[],
            Code::Unary { source, .. }
            | Code::Expand { source, .. }
            | Code::ReduceVector { source, .. }
            | Code::ReduceOuter { source, .. }
            | Code::Store { source, .. } => std::slice::from_ref(source),
            Code::Binary { sources, .. } | Code::ReducePair { sources, .. } => sources,
            Code::Ternary { sources, .. } => sources,
        }
    }

    /// The slot that it writes.
    pub(super) fn target(&self) -> Option<SlotId> {
        match *self {
            Code::Load { target, .. }
            | Code::Coordinate { target, .. }
            | Code::Unary { target, .. }
            | Code::Binary { target, .. }
            | Code::Ternary { target, .. }
            | Code::Expand { target, .. }
            | Code::ReduceVector { target, .. }
            | Code::ReducePair { target, .. }
            | Code::ReduceOuter { target, .. } => Some(target),
            Code::Store { .. } => None,
        }
    }
}

/// A reduction of a chunked kernel: chunks produce partial results, which are combined into the rows' state.
#[derive(Clone, Copy)]
pub(super) struct Reduction {
    /// Where chunks accumulate.
    pub(super) partial: SlotId,
    /// Where the result is stored.
    pub(super) result: SlotId,
    /// The initial value of a partial result.
    pub(super) identity: u64,
    /// Combines two partial results.
    pub(super) combine: BinaryKernel,
}

/// A pass over the columns of a chunked kernel.
#[derive(Default)]
pub(super) struct Pass {
    /// The codes that run once for the rows before the pass.
    pub(super) rows: Vec<Code>,
    /// The codes that run for each chunk.
    pub(super) columns: Vec<Code>,
    pub(super) reductions: Vec<Reduction>,
}

/// The order of work on tiles.
pub(super) enum Schedule {
    /// A tile is processed in one go.
    Whole(Vec<Code>),
    /// Tiles are chunks of columns.
    Chunked {
        /// The axis of the rows.
        rows: usize,
        passes: Vec<Pass>,
        /// The codes that run for the rows at the end.
        end: Vec<Code>,
    },
}

/// The elements of a parameter that unmasked indices reach.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) dtype: DType,
    /// Elements before the first one, for a tensor that is read backwards.
    pub(super) before: usize,
    /// Elements from the first one on.
    pub(super) from_first: usize,
}

/// A compiled kernel.
pub(super) struct Program {
    pub(super) cuts: [Cut; 2],
    /// See [`super::plan::Plan::segments`].
    pub(super) segments: Cut,
    pub(super) schedule: Schedule,
    pub(super) slots: Vec<Slot>,
    pub(super) loads: Vec<Load>,
    pub(super) stores: Vec<Store>,
    pub(super) coordinates: Vec<Access>,
    /// The constants, each an element at the start of its word.
    pub(super) constants: Vec<u64>,
    /// Values computed directly into memory if the tile permits: the slot and its store.
    pub(super) direct: Vec<(SlotId, usize)>,
    /// Bytes of a thread's scratch memory, excluding the staging area that follows.
    pub(super) register_bytes: usize,
    /// Bytes of the staging area: a tile of the largest elements.
    pub(super) staging_bytes: usize,
    /// Bytes of a row tile's state.
    pub(super) state_bytes: usize,
    /// Bytes of a group's partial results.
    pub(super) partial_bytes: usize,
    pub(super) parameters: Vec<Extent>,
    /// Estimated single-threaded time in nanoseconds.
    pub(super) nanoseconds: f64,
}

impl Program {
    /// Bytes between the [`SUM_LANES`] sums of a partial result.
    pub(super) fn partial_pitch(&self, slot: SlotId) -> usize {
        let Slot { size, varies, .. } = self.slots[slot];
        let longest = [self.cuts[OUTER].longest, self.cuts[LANES].longest];
        elements(varies, longest) * size
    }

    /// The number of sums of a partial result: one for each column of a chunk if the rows are the lanes.
    pub(super) fn partial_sums(&self) -> usize {
        match self.schedule {
            Schedule::Chunked { rows: LANES, .. } => SUM_LANES,
            _ => 1,
        }
    }
}

/// The number of elements, in a window of this size, of a value that varies along these axes.
pub(super) fn elements(varies: Varies, counts: [usize; 2]) -> usize {
    (0..2).map(|axis| if varies.on(axis) { counts[axis] } else { 1 }).product()
}
