//! Collectives of all ranks, by MPI's own.
//!
//! They work in pieces, so that lengths are not limited, and copy them through memory of the transport, which can outlive
//! the caller's.

use std::{collections::VecDeque, ffi::c_int, ops::Range};

use phynexus::{
    DType, DTypeKind, Error, Result,
    distributed::combine,
    op::Combine,
};

use crate::{
    api::Transfer,
    dialect::Handle,
    header::Header,
    memory::Memory,
    world::{Call, Channel, World},
};

/// Bytes that a rank contributes to a piece. Two pieces fit into a core's second-level cache, so that the copies cost
/// little.
const PIECE: usize = 1 << 19;
/// The least bytes from one rank to another in a piece.
const SHARE: usize = 1 << 12;
/// Pieces that are under way at a time.
const DEPTH: usize = 2;
/// Up to this many bytes of all ranks, every rank gets everything and combines it, which takes one collective instead of
/// two.
const SMALL: usize = 1 << 15;

/// Runs a collective after it has made sure that all ranks call the same.
fn run<H: Handle>(
    world: &World<H>,
    op: &'static str,
    header: Header,
    work: impl FnOnce(&mut Call<'_, H>) -> Result<()>,
) -> Result<()> {
    world.call(op, &[Channel::All], |call| {
        let gathered = Header::BYTES..Header::BYTES * (1 + world.size);
        let mut memory = world.memory(gathered.end);
        memory.bytes_mut()[..Header::BYTES].copy_from_slice(header.bytes());
        let (api, count) = (world.api, Header::BYTES as c_int);
        let transfer = Transfer::begin(api, "MPI_Iallgather", memory, |address, request| {
            // SAFETY: the memory has room for the own header and those of all ranks after it.
            unsafe {
                let (own, all) = (address.cast(), address.add(gathered.start).cast());
                let byte = api.dialect.byte;
                (api.functions.MPI_Iallgather)(own, count, byte, all, count, byte, world.communicator, request)
            }
        });
        let mut transfer = call.check(transfer)?;
        let memory = wait(call, &mut transfer)?;
        let difference = header.difference(&memory.bytes()[gathered]);
        world.recycle(memory);
        match difference {
            Some(difference) => Err(call.failed(difference)),
            None => work(call),
        }
    })
}

fn wait<H: Handle>(call: &mut Call<'_, H>, transfer: &mut Transfer<H>) -> Result<Memory> {
    loop {
        if let Some((memory, _)) = call.check(transfer.test())? {
            call.progressed();
            return Ok(memory);
        }
        call.pass(None)?;
    }
}

/// The pieces of `bytes` bytes: ranges of at most `most`.
struct Pieces {
    bytes: usize,
    most: usize,
}

impl Pieces {
    /// Pieces of which each rank sends `parts`.
    fn new(bytes: usize, parts: usize) -> Pieces {
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

/// How a collective treats a piece of `values`.
struct Steps<'a, V: ?Sized, H> {
    name: &'static str,
    /// The bytes of memory for a piece of this length.
    room: &'a dyn Fn(usize) -> usize,
    /// Fills the memory.
    fill: &'a dyn Fn(&V, Range<usize>, &mut [u8]),
    /// Starts the collective on a piece of this length.
    start: &'a dyn Fn(usize, *mut u8, *mut H) -> c_int,
    /// Takes the result from the memory.
    take: &'a dyn Fn(&mut V, Range<usize>, &[u8]) -> Result<()>,
}

/// Carries out a collective piece by piece: while MPI moves one, the next one is copied.
fn pipeline<V: ?Sized, H: Handle>(
    call: &mut Call<'_, H>,
    pieces: &Pieces,
    values: &mut V,
    steps: &Steps<'_, V, H>,
) -> Result<()> {
    let world = call.world;
    let mut under_way: VecDeque<(Range<usize>, Transfer<H>)> = VecDeque::new();
    let mut begun = 0;
    loop {
        while begun < pieces.count() && under_way.len() < DEPTH {
            let range = pieces.range(begun);
            let mut memory = world.memory((steps.room)(range.len()));
            (steps.fill)(values, range.clone(), memory.bytes_mut());
            let start = |address, request| (steps.start)(range.len(), address, request);
            let transfer = call.check(Transfer::begin(world.api, steps.name, memory, start))?;
            under_way.push_back((range, transfer));
            begun += 1;
        }
        let Some((range, mut transfer)) = under_way.pop_front() else { return Ok(()) };
        let memory = wait(call, &mut transfer)?;
        (steps.take)(values, range, memory.bytes())?;
        world.recycle(memory);
    }
}

/// Bytes divided among the ranks: equal blocks, of which the last ones may be shorter or empty.
struct Blocks {
    width: usize,
    total: usize,
}

impl Blocks {
    /// The part of a rank's block within a range of it.
    fn part(&self, rank: usize, range: &Range<usize>) -> Range<usize> {
        let within = |at: usize| (rank * self.width + at).min((rank + 1) * self.width).min(self.total);
        within(range.start)..within(range.end)
    }

    fn block(&self, rank: usize) -> Range<usize> {
        self.part(rank, &(0..self.width))
    }
}

/// Where what arrives begins, after what is sent.
fn after(sent: usize) -> usize {
    sent.next_multiple_of(64)
}

/// Returns once every rank has called it: the comparison of the calls is enough.
pub(crate) fn barrier<H: Handle>(world: &World<H>) -> Result<()> {
    run(world, "barrier", Header::new("barrier", 0), |_| Ok(()))
}

pub(crate) fn broadcast<H: Handle>(world: &World<H>, bytes: &mut [u8], root: usize) -> Result<()> {
    if root >= world.size {
        return Err(Error::argument("broadcast", format!("there is no rank {root}: use 0 to {}", world.size - 1)));
    }
    let (api, is_root) = (world.api, world.rank == root);
    let steps = Steps {
        name: "MPI_Ibcast",
        room: &|length| length,
        fill: &|values: &[u8], range, memory| {
            if is_root {
                memory[..range.len()].copy_from_slice(&values[range]);
            }
        },
        start: &|length, address, request| {
            let (count, byte, root) = (length as c_int, api.dialect.byte, root as c_int);
            // SAFETY: the memory has this length, and the transfer keeps it until the request is complete.
            unsafe { (api.functions.MPI_Ibcast)(address.cast(), count, byte, root, world.communicator, request) }
        },
        take: &|values: &mut [u8], range, memory| {
            if !is_root {
                let length = range.len();
                values[range].copy_from_slice(&memory[..length]);
            }
            Ok(())
        },
    };
    run(world, "broadcast", Header::new("broadcast", bytes.len()).root(root), |call| {
        pipeline(call, &Pieces::new(bytes.len(), 1), bytes, &steps)
    })
}

pub(crate) fn all_gather<H: Handle>(world: &World<H>, own: &[u8], all: &mut [u8]) -> Result<()> {
    let blocks = Blocks { width: own.len(), total: own.len() * world.size };
    if all.len() != blocks.total {
        return Err(Error::internal("phynexus_mpi", "the results of all ranks need as much room as their operands"));
    }
    run(world, "all_gather", Header::new("all_gather", own.len()), |call| {
        gather(call, &blocks, &mut (own, all), &|values| values.0, &|values, range, arrived| {
            scatter(&blocks, values.1, range, arrived);
            Ok(())
        })
    })
}

/// Gives every rank the blocks of all. `take` gets the pieces of all ranks, one after the other.
fn gather<V: ?Sized, H: Handle>(
    call: &mut Call<'_, H>,
    blocks: &Blocks,
    values: &mut V,
    own: &dyn Fn(&V) -> &[u8],
    take: &dyn Fn(&mut V, Range<usize>, &[u8]) -> Result<()>,
) -> Result<()> {
    let (api, communicator, size) = (call.world.api, call.world.communicator, call.world.size);
    let steps = Steps {
        name: "MPI_Iallgather",
        room: &|length| after(length) + length * size,
        fill: &|values: &V, range, memory| {
            let own = own(values);
            let part = range.start.min(own.len())..range.end.min(own.len());
            memory[..part.len()].copy_from_slice(&own[part]);
        },
        start: &|length, address, request| {
            let (count, byte) = (length as c_int, api.dialect.byte);
            // SAFETY: the memory has room for the own piece and those of all ranks after it, and the transfer keeps it
            // until the request is complete.
            unsafe {
                let (own, all) = (address.cast(), address.add(after(length)).cast());
                (api.functions.MPI_Iallgather)(own, count, byte, all, count, byte, communicator, request)
            }
        },
        take: &|values: &mut V, range, memory| {
            let arrived = &memory[after(range.len())..][..range.len() * size];
            take(values, range, arrived)
        },
    };
    pipeline(call, &Pieces::new(blocks.width, size), values, &steps)
}

/// Copies pieces of all ranks to their blocks.
fn scatter(blocks: &Blocks, all: &mut [u8], range: Range<usize>, arrived: &[u8]) {
    for (rank, piece) in arrived.chunks_exact(range.len()).enumerate() {
        let part = blocks.part(rank, &range);
        let length = part.len();
        all[part].copy_from_slice(&piece[..length]);
    }
}

pub(crate) fn all_to_all<H: Handle>(world: &World<H>, values: &[u8], result: &mut [u8]) -> Result<()> {
    let blocks = Blocks { width: values.len() / world.size, total: values.len() };
    if !values.len().is_multiple_of(world.size) || result.len() != values.len() {
        return Err(Error::internal("phynexus_mpi", "the values cannot be divided among the ranks"));
    }
    run(world, "all_to_all", Header::new("all_to_all", values.len()), |call| {
        transpose(call, &blocks, &mut (values, result), &|values| values.0, &|values, range, arrived| {
            scatter(&blocks, values.1, range, arrived);
            Ok(())
        })
    })
}

/// Sends each rank its block. `take` gets the pieces for this rank, one after the other.
fn transpose<V: ?Sized, H: Handle>(
    call: &mut Call<'_, H>,
    blocks: &Blocks,
    values: &mut V,
    source: &dyn Fn(&V) -> &[u8],
    take: &dyn Fn(&mut V, Range<usize>, &[u8]) -> Result<()>,
) -> Result<()> {
    let (api, communicator, size) = (call.world.api, call.world.communicator, call.world.size);
    let steps = Steps {
        name: "MPI_Ialltoall",
        room: &|length| after(length * size) + length * size,
        fill: &|values: &V, range, memory| {
            for (rank, piece) in memory.chunks_exact_mut(range.len()).take(size).enumerate() {
                let part = blocks.part(rank, &range);
                piece[..part.len()].copy_from_slice(&source(values)[part]);
            }
        },
        start: &|length, address, request| {
            let (count, byte) = (length as c_int, api.dialect.byte);
            // SAFETY: the memory has room for pieces to and from all ranks, and the transfer keeps it until the request
            // is complete.
            unsafe {
                let (to, from) = (address.cast(), address.add(after(length * size)).cast());
                (api.functions.MPI_Ialltoall)(to, count, byte, from, count, byte, communicator, request)
            }
        },
        take: &|values: &mut V, range, memory| {
            let sent = range.len() * size;
            take(values, range, &memory[after(sent)..][..sent])
        },
    };
    pipeline(call, &Pieces::new(blocks.width, size), values, &steps)
}

/// Combines pieces of all ranks, in their order.
fn combine_pieces(length: usize, arrived: &[u8], own: &mut [u8], dtype: DType, by: Combine) -> Result<()> {
    let pieces: Vec<&[u8]> = arrived.chunks_exact(length).map(|piece| &piece[..own.len()]).collect();
    combine(&pieces, own, dtype, by)
}

pub(crate) fn reduce_scatter<H: Handle>(
    world: &World<H>,
    values: &[u8],
    own: &mut [u8],
    dtype: DType,
    by: Combine,
) -> Result<()> {
    let blocks = Blocks { width: own.len(), total: values.len() };
    if values.len() != own.len() * world.size || !own.len().is_multiple_of(dtype.size()) {
        return Err(Error::internal("phynexus_mpi", "the values cannot be divided among the ranks"));
    }
    let header = Header::new("reduce_scatter", values.len()).combining(dtype, by);
    run(world, "reduce_scatter", header, |call| {
        transpose(call, &blocks, &mut (values, own), &|values| values.0, &|values, range, arrived| {
            let length = range.len();
            combine_pieces(length, arrived, &mut values.1[range], dtype, by)
        })
    })
}

pub(crate) fn all_reduce<H: Handle>(
    world: &World<H>,
    values: &mut [u8],
    dtype: DType,
    by: Combine,
) -> Result<()> {
    let (rank, size, element) = (world.rank, world.size, dtype.size());
    if !values.len().is_multiple_of(element) {
        return Err(Error::internal("phynexus_mpi", "the values end in the middle of an element"));
    }
    let header = Header::new("all_reduce", values.len()).combining(dtype, by);
    run(world, "all_reduce", header, |call| {
        if let Some((native, op)) = native(world, dtype, by) {
            return reduce_natively(call, values, element, native, op);
        }
        if values.len() * size <= SMALL {
            let whole = Blocks { width: values.len(), total: values.len() * size };
            return gather(call, &whole, values, &|values| values, &|values, range, arrived| {
                let length = range.len();
                combine_pieces(length, arrived, &mut values[range], dtype, by)
            });
        }
        let width = (values.len() / element).div_ceil(size) * element;
        let blocks = Blocks { width, total: values.len() };
        transpose(call, &blocks, values, &|values| values, &|values, range, arrived| {
            let own = blocks.part(rank, &range);
            combine_pieces(range.len(), arrived, &mut values[own], dtype, by)
        })?;
        gather(call, &blocks, values, &|values| &values[blocks.block(rank)], &|values, range, arrived| {
            scatter(&blocks, values, range, arrived);
            Ok(())
        })
    })
}

/// MPI's dtype and operation, if it has them and its result does not depend on the order.
fn native<H: Handle>(world: &World<H>, dtype: DType, by: Combine) -> Option<(H, H)> {
    let dialect = &world.api.dialect;
    let place = dtype.size().ilog2() as usize;
    let op = match by {
        Combine::Sum => dialect.sum,
        Combine::Prod => dialect.prod,
        Combine::Max => dialect.max,
        Combine::Min => dialect.min,
    };
    let native = match (dtype.kind(), by) {
        (DTypeKind::Unsigned, _) => dialect.unsigned[place],
        // Sums and products have the bits of unsigned ones, for which C defines overflow.
        (DTypeKind::Signed, Combine::Sum | Combine::Prod) => dialect.unsigned[place],
        (DTypeKind::Signed, Combine::Max | Combine::Min) => dialect.signed[place],
        (DTypeKind::Bool | DTypeKind::Float, _) => return None,
    };
    Some((native, op))
}

fn reduce_natively<H: Handle>(
    call: &mut Call<'_, H>,
    values: &mut [u8],
    element: usize,
    dtype: H,
    op: H,
) -> Result<()> {
    let (api, communicator) = (call.world.api, call.world.communicator);
    let steps = Steps {
        name: "MPI_Iallreduce",
        room: &|length| after(length) + length,
        fill: &|values: &[u8], range, memory| memory[..range.len()].copy_from_slice(&values[range]),
        start: &|length, address, request| {
            let count = (length / element) as c_int;
            // SAFETY: the memory has room for the operand and the result after it, both aligned for every dtype, and the
            // transfer keeps it until the request is complete.
            unsafe {
                let (own, result) = (address.cast(), address.add(after(length)).cast());
                (api.functions.MPI_Iallreduce)(own, result, count, dtype, op, communicator, request)
            }
        },
        take: &|values: &mut [u8], range, memory| {
            let length = range.len();
            values[range].copy_from_slice(&memory[after(length)..][..length]);
            Ok(())
        },
    };
    pipeline(call, &Pieces::new(values.len(), 1), values, &steps)
}
