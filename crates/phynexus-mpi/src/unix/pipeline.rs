//! Collectives on pieces of memory.
//!
//! A collective works in pieces, so that lengths are not limited, and copies them through memory of the transport,
//! which can outlive the caller's.

use std::{collections::VecDeque, ffi::c_int, ops::Range};

use phynexus::Result;

use super::{
    api::Transfer,
    dialect::Handle,
    world::{Call, PIECE},
};

/// The least bytes from one rank to another in a piece.
const SHARE: usize = 1 << 12;
/// Pieces that are under way at a time.
const DEPTH: usize = 2;

/// Waits until MPI has moved a piece.
pub(crate) fn wait<H: Handle>(call: &mut Call<'_, H>, transfer: &mut Transfer<H>) -> Result<Vec<u8>> {
    loop {
        if let Some((memory, _)) = call.check(transfer.test())? {
            call.progressed();
            return Ok(memory);
        }
        call.pass(None)?;
    }
}

/// The pieces of `bytes` bytes: ranges of at most `most`.
pub(crate) struct Pieces {
    bytes: usize,
    most: usize,
}

impl Pieces {
    /// Pieces of which each rank contributes `parts`.
    pub(crate) fn new(bytes: usize, parts: usize) -> Pieces {
        // A multiple of every element's size.
        let most = (PIECE / parts).max(SHARE) / 64 * 64;
        Pieces { bytes, most }
    }

    fn count(&self) -> usize {
        self.bytes.div_ceil(self.most)
    }

    fn range(&self, index: usize) -> Range<usize> {
        let start = index * self.most;
        start..self.bytes.min(start + self.most)
    }
}

/// How a collective treats a piece of `values`. The functions get the piece's length or range.
pub(crate) struct Steps<'a, V: ?Sized, H> {
    /// The bytes of memory for a piece.
    pub(crate) room: &'a dyn Fn(usize) -> usize,
    /// Fills the memory.
    pub(crate) fill: Fill<'a, V>,
    /// Starts MPI's collective on the memory.
    pub(crate) start: Start<'a, H>,
    /// Changes the memory and starts another one.
    pub(crate) then: Option<Then<'a, H>>,
    /// Takes the result from the memory.
    pub(crate) take: Take<'a, V>,
}

pub(crate) type Fill<'a, V> = &'a dyn Fn(&V, Range<usize>, &mut [u8]);
pub(crate) type Take<'a, V> = &'a dyn Fn(&mut V, Range<usize>, &[u8]) -> Result<()>;
/// Starts a collective on a piece of this length in the memory at this address.
pub(crate) type Start<'a, H> = (&'static str, &'a dyn Fn(usize, *mut u8, *mut H) -> c_int);

/// The second half of a collective.
pub(crate) struct Then<'a, H> {
    pub(crate) work: &'a dyn Fn(usize, &mut [u8]) -> Result<()>,
    pub(crate) start: Start<'a, H>,
}

/// A piece that MPI moves.
struct Moving<'a, H: Handle> {
    range: Range<usize>,
    transfer: Transfer<H>,
    then: Option<&'a Then<'a, H>>,
}

/// Carries out a collective piece by piece: while MPI moves one, the next one is copied. All ranks start the same
/// collectives in the same order, which does not depend on time.
pub(crate) fn pipeline<V: ?Sized, H: Handle>(
    call: &mut Call<'_, H>,
    pieces: &Pieces,
    values: &mut V,
    steps: &Steps<'_, V, H>,
) -> Result<()> {
    let world = call.world;
    let begin = |call: &Call<'_, H>, (name, start): Start<'_, H>, length, memory| {
        call.check(Transfer::begin(world.api, name, memory, |address, request| {
            start(length, address, request)
        }))
    };
    let mut moving: VecDeque<Moving<'_, H>> = VecDeque::new();
    let mut begun = 0;
    loop {
        while begun < pieces.count() && moving.len() < DEPTH {
            let range = pieces.range(begun);
            let mut memory = world.memory((steps.room)(range.len()));
            (steps.fill)(values, range.clone(), &mut memory);
            let transfer = begin(call, steps.start, range.len(), memory)?;
            moving.push_back(Moving { range, transfer, then: steps.then.as_ref() });
            begun += 1;
        }
        let Some(Moving { range, mut transfer, then }) = moving.pop_front() else { return Ok(()) };
        let mut memory = wait(call, &mut transfer)?;
        match then {
            Some(then) => {
                (then.work)(range.len(), &mut memory)?;
                let transfer = begin(call, then.start, range.len(), memory)?;
                moving.push_back(Moving { range, transfer, then: None });
            }
            None => {
                (steps.take)(values, range, &memory)?;
                world.recycle(memory);
            }
        }
    }
}
