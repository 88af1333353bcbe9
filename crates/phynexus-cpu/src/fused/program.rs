//! The compiled form of a kernel: what a thread does for a tile.

use phynexus::DType;

use super::{
    access::{Access, Varies},
    axis::{Cut, LANES, OUTER},
};
use crate::vector::{BinaryKernel, ReduceKernel, ReducePairKernel, SUM_LANES, TernaryKernel, UnaryKernel};

/// A number of a [`Slot`].
pub(super) type SlotId = usize;

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// In the thread's scratch memory, at this byte; tiles come and go.
    Register(usize),
    /// In the rows' state, at this byte: it lives from pass to pass.
    State(usize),
    /// In a group's partial results, at this byte.
    Partial(usize),
    /// In [`Program::constants`].
    Constant(usize),
}

/// A value while a tile is worked on. It is as large as what it varies along: a full tile, a vector or one element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Bytes of an element.
    pub(super) size: usize,
    pub(super) varies: Varies,
    pub(super) home: Home,
}

/// A load: from where, and how elements become values.
pub(super) struct Load {
    pub(super) parameter: usize,
    pub(super) access: Access,
    /// Bytes of an element in memory.
    pub(super) size: usize,
    /// From the parameter's dtype to the one of the registers, where these differ.
    pub(super) cast: Option<UnaryKernel>,
    /// An element of the parameter's dtype, at the start of the word.
    pub(super) fill: u64,
    /// False if the value must outlive the tile and so may not be used in place.
    pub(super) in_place: bool,
}

/// A store: to where, and how values become elements.
pub(super) struct Store {
    pub(super) parameter: usize,
    pub(super) access: Access,
    /// Bytes of an element in memory.
    pub(super) size: usize,
    /// To the parameter's dtype, where the registers' differs.
    pub(super) cast: Option<UnaryKernel>,
}

/// One thing to do for a tile.
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
    /// Repeats a value along the axes on which it does not vary and the target does.
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
    /// As [`Code::ReduceVector`], for a function of two values.
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
    /// What it reads.
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

    /// What it computes.
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

/// A reduction of a chunked kernel: chunks give partial results, which are combined into the rows' state.
#[derive(Clone, Copy)]
pub(super) struct Reduction {
    /// Where chunks accumulate.
    pub(super) partial: SlotId,
    /// Where the result is kept.
    pub(super) result: SlotId,
    /// What a partial result starts from.
    pub(super) identity: u64,
    /// Combines two partial results.
    pub(super) combine: BinaryKernel,
}

/// A pass over the columns of a chunked kernel.
#[derive(Default)]
pub(super) struct Pass {
    /// What is done once for the rows before it.
    pub(super) rows: Vec<Code>,
    /// What is done for each chunk.
    pub(super) columns: Vec<Code>,
    pub(super) reductions: Vec<Reduction>,
}

/// What is done with tiles.
pub(super) enum Schedule {
    /// A tile is done in one go.
    Whole(Vec<Code>),
    /// Tiles are chunks of columns.
    Chunked {
        /// The axis of the rows.
        rows: usize,
        passes: Vec<Pass>,
        /// What is done for the rows at the end.
        end: Vec<Code>,
    },
}

/// What the indices without a mask reach of a parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) dtype: DType,
    /// Elements before the first one, of a tensor that is read backwards.
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
    /// Elements of the constants, each at the start of its word.
    pub(super) constants: Vec<u64>,
    /// Values computed straight into memory where the tile allows it: the slot and its store.
    pub(super) direct: Vec<(SlotId, usize)>,
    /// Bytes of scratch memory of a thread, without the staging area that follows.
    pub(super) register_bytes: usize,
    /// Bytes of the staging area: a tile of the largest elements.
    pub(super) staging_bytes: usize,
    /// Bytes of a row tile's state.
    pub(super) state_bytes: usize,
    /// Bytes of a group's partial results.
    pub(super) partial_bytes: usize,
    pub(super) parameters: Vec<Extent>,
    /// Estimated nanoseconds of one thread.
    pub(super) nanoseconds: f64,
}

impl Program {
    /// Bytes from one of the [`SUM_LANES`] sums of a partial result to the next.
    pub(super) fn partial_pitch(&self, slot: SlotId) -> usize {
        let Slot { size, varies, .. } = self.slots[slot];
        let longest = [self.cuts[OUTER].longest, self.cuts[LANES].longest];
        elements(varies, longest) * size
    }

    /// How many sums a partial result has: one for each column of a chunk where the rows are the lanes.
    pub(super) fn partial_sums(&self) -> usize {
        match self.schedule {
            Schedule::Chunked { rows: LANES, .. } => SUM_LANES,
            _ => 1,
        }
    }
}

/// The element count of what varies like this in a window of these counts.
pub(super) fn elements(varies: Varies, counts: [usize; 2]) -> usize {
    (0..2).map(|axis| if varies.on(axis) { counts[axis] } else { 1 }).product()
}
