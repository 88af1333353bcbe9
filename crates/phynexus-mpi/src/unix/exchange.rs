//! Messages between two ranks.
//!
//! A message is sent in pieces, so that its length is not limited, and copied through memory of the transport, which
//! can outlive the caller's. The first piece begins with the length of the whole, which the receiver compares with what
//! it expects.

use std::{collections::VecDeque, ffi::c_int};

use phynexus::{
    Result,
    distributed::{Incoming, Outgoing, check_rank, other_length},
};

use super::{
    api::Transfer,
    dialect::Handle,
    world::{Call, Channel, PIECE, World},
};

/// Bytes of the length before the first piece.
const LENGTH: usize = size_of::<u64>();
/// Pieces that are under way at a time, in each direction.
const DEPTH: usize = 2;
const TAG: c_int = 0;

/// The number of pieces of a message.
fn pieces(bytes: usize) -> usize {
    bytes.div_ceil(PIECE).max(1)
}

/// A piece's length, with the length of the whole in front of the first one, and where its bytes are in the message.
fn piece(index: usize, bytes: usize) -> (usize, std::ops::Range<usize>) {
    let start = index * PIECE;
    let range = start..bytes.min(start + PIECE);
    let prefix = if index == 0 { LENGTH } else { 0 };
    (prefix + range.len(), range)
}

/// One direction of an exchange: pieces that are under way, and the number of those that were begun.
struct Direction<H: Handle> {
    peer: usize,
    under_way: VecDeque<Transfer<H>>,
    begun: usize,
    pieces: usize,
}

impl<H: Handle> Direction<H> {
    fn new(peer: usize, bytes: usize) -> Direction<H> {
        Direction { peer, under_way: VecDeque::new(), begun: 0, pieces: pieces(bytes) }
    }

    fn may_begin(&self) -> bool {
        self.begun < self.pieces && self.under_way.len() < DEPTH
    }

    fn is_done(&self) -> bool {
        self.begun == self.pieces && self.under_way.is_empty()
    }
}

/// Sends and receives, each if given.
pub(crate) fn exchange<H: Handle>(
    world: &World<H>,
    send: Option<Outgoing<'_>>,
    receive: Option<Incoming<'_>>,
) -> Result<()> {
    let ranks = [send.as_ref().map(|send| send.to), receive.as_ref().map(|receive| receive.from)];
    ranks.into_iter().flatten().try_for_each(|rank| check_rank("exchange", rank, world.size))?;
    let channels = ranks[0].map(Channel::SendTo).into_iter().chain(ranks[1].map(Channel::ReceiveFrom));
    let channels: Vec<Channel> = channels.collect();
    world.call("exchange", &channels, |call| {
        let mut sending = send.map(|send| (Direction::new(send.to, send.bytes.len()), send.bytes));
        let mut receiving =
            receive.map(|receive| (Direction::new(receive.from, receive.bytes.len()), receive.bytes));
        loop {
            let mut has_progressed = false;
            if let Some((direction, bytes)) = &mut receiving {
                has_progressed |= receive_pieces(call, direction, bytes)?;
            }
            if let Some((direction, bytes)) = &mut sending {
                has_progressed |= send_pieces(call, direction, bytes)?;
            }
            let sender = receiving.as_ref().filter(|(direction, _)| !direction.is_done());
            let receiver = sending.as_ref().filter(|(direction, _)| !direction.is_done());
            let (late, did) = match (sender, receiver) {
                (None, None) => return Ok(()),
                (Some((direction, _)), _) => (direction.peer, "sent"),
                (None, Some((direction, _))) => (direction.peer, "received"),
            };
            match has_progressed {
                true => call.progressed(),
                false => call.pass(Some(&|| format!("rank {late} has {did} nothing")))?,
            }
        }
    })
}

/// Begins what can be sent, and ends what has been. Returns whether there was any.
fn send_pieces<H: Handle>(call: &Call<'_, H>, direction: &mut Direction<H>, bytes: &[u8]) -> Result<bool> {
    let (world, api) = (call.world, call.world.api);
    let mut has_progressed = false;
    while direction.may_begin() {
        let (length, range) = piece(direction.begun, bytes.len());
        let mut memory = world.memory(length);
        let prefix = length - range.len();
        memory[..prefix].copy_from_slice(&(bytes.len() as u64).to_le_bytes()[..prefix]);
        memory[prefix..length].copy_from_slice(&bytes[range]);
        let to = direction.peer as c_int;
        let transfer = Transfer::begin(api, "MPI_Isend", memory, |address, request| {
            let (count, byte) = (length as c_int, api.dialect.byte);
            // SAFETY: the transfer keeps the memory until the request is complete.
            unsafe {
                (api.functions.MPI_Isend)(address.cast(), count, byte, to, TAG, world.communicator, request)
            }
        });
        direction.under_way.push_back(call.check(transfer)?);
        direction.begun += 1;
        has_progressed = true;
    }
    while let Some(first) = direction.under_way.front_mut() {
        let Some((memory, _)) = call.check(first.test())? else { break };
        world.recycle(memory);
        direction.under_way.pop_front();
        has_progressed = true;
    }
    Ok(has_progressed)
}

/// Prepares to receive pieces, and copies those that have arrived. Returns whether there was any.
fn receive_pieces<H: Handle>(
    call: &Call<'_, H>,
    direction: &mut Direction<H>,
    bytes: &mut [u8],
) -> Result<bool> {
    let (world, api) = (call.world, call.world.api);
    let from = direction.peer;
    let mut has_progressed = false;
    while direction.may_begin() {
        // Room for what another length would make of it.
        let room = LENGTH + PIECE;
        let transfer = Transfer::begin(api, "MPI_Irecv", world.memory(room), |address, request| {
            let (count, byte, from) = (room as c_int, api.dialect.byte, from as c_int);
            // SAFETY: the transfer keeps the memory until the request is complete.
            unsafe {
                (api.functions.MPI_Irecv)(address.cast(), count, byte, from, TAG, world.communicator, request)
            }
        });
        direction.under_way.push_back(call.check(transfer)?);
        direction.begun += 1;
    }
    while let Some(first) = direction.under_way.front_mut() {
        let Some((memory, status)) = call.check(first.test())? else { break };
        let arrived = &memory[..call.check(api.count(&status))?];
        let index = direction.begun - direction.under_way.len();
        let other = |sent: usize| Err(call.failed(other_length(from, sent, bytes.len())));
        let (length, range) = piece(index, bytes.len());
        let data = match arrived.split_first_chunk::<LENGTH>() {
            Some((sent, data)) if index == 0 => {
                let sent = u64::from_le_bytes(*sent) as usize;
                if sent != bytes.len() {
                    return other(sent);
                }
                data
            }
            _ => arrived,
        };
        if arrived.len() != length {
            return other(range.start + data.len());
        }
        bytes[range].copy_from_slice(data);
        world.recycle(memory);
        direction.under_way.pop_front();
        has_progressed = true;
    }
    Ok(has_progressed)
}
