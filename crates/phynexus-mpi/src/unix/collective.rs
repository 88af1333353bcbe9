//! Collectives of all ranks. MPI moves the bytes, which this crate combines in the order of the ranks.

use std::{ffi::c_int, ops::Range};

use phynexus::{
    DType, Error, Result,
    distributed::{check_rank, combine},
    op::Combine,
};

use super::{
    api::Transfer,
    dialect::Handle,
    header::Header,
    pipeline::{Pieces, Steps, Then, pipeline, wait},
    world::{Call, Channel, World},
};

/// Up to this many bytes of all ranks, every rank gets everything and combines it, which takes one collective instead
/// of two.
const SMALL: usize = 1 << 15;

/// Runs a collective after all ranks have compared what they call.
fn run<H: Handle>(
    world: &World<H>,
    op: &'static str,
    header: Header,
    work: impl FnOnce(&mut Call<'_, H>) -> Result<()>,
) -> Result<()> {
    world.call(op, &[Channel::All], |call| {
        let end = Header::BYTES * (1 + world.size);
        let mut memory = world.memory(end);
        memory[..Header::BYTES].copy_from_slice(header.bytes());
        let transfer = Transfer::begin(world.api, "MPI_Iallgather", memory, |address, request| {
            gather(world, Header::BYTES, [0, Header::BYTES], address, request)
        });
        let memory = wait(call, &mut call.check(transfer)?)?;
        let difference = header.difference(&memory[Header::BYTES..end]);
        world.recycle(memory);
        match difference {
            Some(difference) => Err(call.failed(difference)),
            None => work(call),
        }
    })
}

/// Starts to give every rank the `length` bytes that all have at the first offset, in order at the second.
fn gather<H: Handle>(
    world: &World<H>,
    length: usize,
    [own, all]: [usize; 2],
    address: *mut u8,
    request: *mut H,
) -> c_int {
    let (count, byte) = (length as c_int, world.api.dialect.byte);
    // SAFETY: callers have memory for one part at `own` and for one of each rank at `all`, which do not overlap. It
    // lives until the request is complete.
    unsafe {
        let (own, all) = (address.add(own).cast(), address.add(all).cast());
        (world.api.functions.MPI_Iallgather)(own, count, byte, all, count, byte, world.communicator, request)
    }
}

/// Starts to send each rank `length` bytes of those at the start of the memory, and to receive as many from each after
/// them.
fn transpose<H: Handle>(world: &World<H>, length: usize, address: *mut u8, request: *mut H) -> c_int {
    let (count, byte) = (length as c_int, world.api.dialect.byte);
    // SAFETY: callers have memory for a part of each rank, twice, which do not overlap. It lives until the request is
    // complete.
    unsafe {
        let (to, from) = (address.cast(), address.add(length * world.size).cast());
        (world.api.functions.MPI_Ialltoall)(to, count, byte, from, count, byte, world.communicator, request)
    }
}

/// Copies the same range of each rank's part, out of parts of `width` bytes, to the start of the memory.
fn collect(values: &[u8], width: usize, range: &Range<usize>, memory: &mut [u8]) {
    for (part, piece) in values.chunks_exact(width).zip(memory.chunks_exact_mut(range.len())) {
        piece.copy_from_slice(&part[range.clone()]);
    }
}

/// The reverse of [`collect`], from the start of the memory.
fn distribute(memory: &[u8], width: usize, range: &Range<usize>, values: &mut [u8]) {
    for (part, piece) in values.chunks_exact_mut(width).zip(memory.chunks_exact(range.len())) {
        part[range.clone()].copy_from_slice(piece);
    }
}

/// Combines the parts of all ranks at the start of the memory, in their order.
fn combine_parts(memory: &[u8], size: usize, own: &mut [u8], dtype: DType, by: Combine) -> Result<()> {
    let parts: Vec<&[u8]> = memory.chunks_exact(own.len()).take(size).collect();
    combine(&parts, own, dtype, by)
}

/// Refuses dtypes that are not combined, before another rank waits for this one.
fn check_dtype(dtype: DType, by: Combine) -> Result<()> {
    combine(&[], &mut [], dtype, by)
}

/// Returns once every rank has called it: the comparison of the calls is enough.
pub(crate) fn barrier<H: Handle>(world: &World<H>) -> Result<()> {
    run(world, "barrier", Header::new("barrier", 0), |_| Ok(()))
}

pub(crate) fn broadcast<H: Handle>(world: &World<H>, bytes: &mut [u8], root: usize) -> Result<()> {
    check_rank("broadcast", root, world.size)?;
    let (api, is_root) = (world.api, world.rank == root);
    let steps = Steps {
        room: &|length| length,
        fill: &|bytes: &[u8], range, memory| {
            if is_root {
                memory[..range.len()].copy_from_slice(&bytes[range]);
            }
        },
        start: ("MPI_Ibcast", &|length, address, request| {
            let (count, byte, root) = (length as c_int, api.dialect.byte, root as c_int);
            // SAFETY: the memory has this length, and lives until the request is complete.
            unsafe {
                (api.functions.MPI_Ibcast)(address.cast(), count, byte, root, world.communicator, request)
            }
        }),
        then: None,
        take: &|bytes: &mut [u8], range, memory| {
            if !is_root {
                let length = range.len();
                bytes[range].copy_from_slice(&memory[..length]);
            }
            Ok(())
        },
    };
    run(world, "broadcast", Header::new("broadcast", bytes.len()).root(root), |call| {
        pipeline(call, &Pieces::new(bytes.len(), 1), bytes, &steps)
    })
}

pub(crate) fn all_gather<H: Handle>(world: &World<H>, own: &[u8], all: &mut [u8]) -> Result<()> {
    let (width, size) = (own.len(), world.size);
    if all.len() != width * size {
        return Err(Error::internal(
            "phynexus_mpi",
            "the results of an all_gather need as much room as the operands",
        ));
    }
    let steps = Steps {
        room: &|length| length * (1 + size),
        fill: &|_: &[u8], range, memory| memory[..range.len()].copy_from_slice(&own[range]),
        start: ("MPI_Iallgather", &|length, address, request| {
            gather(world, length, [0, length], address, request)
        }),
        then: None,
        take: &|all: &mut [u8], range, memory| {
            distribute(&memory[range.len()..], width, &range, all);
            Ok(())
        },
    };
    run(world, "all_gather", Header::new("all_gather", width), |call| {
        pipeline(call, &Pieces::new(width, size), all, &steps)
    })
}

pub(crate) fn all_to_all<H: Handle>(world: &World<H>, values: &[u8], result: &mut [u8]) -> Result<()> {
    let (width, size) = (values.len() / world.size, world.size);
    if values.len() != width * size || result.len() != values.len() {
        return Err(Error::internal(
            "phynexus_mpi",
            "the values of an all_to_all cannot be divided among the ranks",
        ));
    }
    let steps = Steps {
        room: &|length| 2 * length * size,
        fill: &|_: &[u8], range, memory| collect(values, width, &range, memory),
        start: ("MPI_Ialltoall", &|length, address, request| transpose(world, length, address, request)),
        then: None,
        take: &|result: &mut [u8], range, memory| {
            distribute(&memory[range.len() * size..], width, &range, result);
            Ok(())
        },
    };
    run(world, "all_to_all", Header::new("all_to_all", values.len()), |call| {
        pipeline(call, &Pieces::new(width, size), result, &steps)
    })
}

pub(crate) fn reduce_scatter<H: Handle>(
    world: &World<H>,
    values: &[u8],
    own: &mut [u8],
    dtype: DType,
    by: Combine,
) -> Result<()> {
    let (width, size) = (own.len(), world.size);
    if values.len() != width * size || !width.is_multiple_of(dtype.size()) {
        return Err(Error::internal(
            "phynexus_mpi",
            "the values of a reduce_scatter cannot be divided among the ranks",
        ));
    }
    check_dtype(dtype, by)?;
    let steps = Steps {
        room: &|length| 2 * length * size,
        fill: &|_: &[u8], range, memory| collect(values, width, &range, memory),
        start: ("MPI_Ialltoall", &|length, address, request| transpose(world, length, address, request)),
        then: None,
        take: &|own: &mut [u8], range, memory| {
            combine_parts(&memory[range.len() * size..], size, &mut own[range], dtype, by)
        },
    };
    let header = Header::new("reduce_scatter", values.len()).combining(dtype, by);
    run(world, "reduce_scatter", header, |call| pipeline(call, &Pieces::new(width, size), own, &steps))
}

pub(crate) fn all_reduce<H: Handle>(
    world: &World<H>,
    values: &mut [u8],
    dtype: DType,
    by: Combine,
) -> Result<()> {
    if !values.len().is_multiple_of(dtype.size()) {
        return Err(Error::internal(
            "phynexus_mpi",
            "the values of an all_reduce end in the middle of an element",
        ));
    }
    check_dtype(dtype, by)?;
    let header = Header::new("all_reduce", values.len()).combining(dtype, by);
    run(world, "all_reduce", header, |call| match values.len() * world.size <= SMALL {
        true => reduce_all(call, values, dtype, by),
        false => reduce_shares(call, values, dtype, by),
    })
}

/// An all-reduce in which every rank gets and combines everything.
fn reduce_all<H: Handle>(call: &mut Call<'_, H>, values: &mut [u8], dtype: DType, by: Combine) -> Result<()> {
    let (world, size) = (call.world, call.world.size);
    let steps = Steps {
        room: &|length| length * (1 + size),
        fill: &|values: &[u8], range, memory| memory[..range.len()].copy_from_slice(&values[range]),
        start: ("MPI_Iallgather", &|length, address, request| {
            gather(world, length, [0, length], address, request)
        }),
        then: None,
        take: &|values: &mut [u8], range, memory| {
            let length = range.len();
            combine_parts(&memory[length..], size, &mut values[range], dtype, by)
        },
    };
    pipeline(call, &Pieces::new(values.len(), size), values, &steps)
}

/// An all-reduce in which each rank combines its share of a piece, and then gets the shares of all.
fn reduce_shares<H: Handle>(
    call: &mut Call<'_, H>,
    values: &mut [u8],
    dtype: DType,
    by: Combine,
) -> Result<()> {
    let (world, size, element) = (call.world, call.world.size, dtype.size());
    // The last shares may end after the piece: what is there is not taken.
    let share = |length: usize| (length / element).div_ceil(size) * element;
    // The memory has the shares for all ranks, and later those of all; then those from all ranks; then the own.
    let steps = Steps {
        room: &|length| share(length) * (2 * size + 1),
        fill: &|values: &[u8], range, memory| memory[..range.len()].copy_from_slice(&values[range]),
        start: ("MPI_Ialltoall", &|length, address, request| {
            transpose(world, share(length), address, request)
        }),
        then: Some(Then {
            work: &|length, memory| {
                let share = share(length);
                let (arrived, own) = memory[share * size..].split_at_mut(share * size);
                combine_parts(arrived, size, &mut own[..share], dtype, by)
            },
            start: ("MPI_Iallgather", &|length, address, request| {
                let share = share(length);
                gather(world, share, [share * size * 2, 0], address, request)
            }),
        }),
        take: &|values: &mut [u8], range, memory| {
            let length = range.len();
            values[range].copy_from_slice(&memory[..length]);
            Ok(())
        },
    };
    pipeline(call, &Pieces::new(values.len(), 1), values, &steps)
}
