//! What carries bytes between ranks, and collectives made of it.

use std::{ops::Range, sync::Arc, time::Duration};

use super::combine::combine;
use crate::{DType, Error, Result, op::Combine};

/// Bytes for another rank.
pub struct Outgoing<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// The rank.
    pub to: usize,
}

/// Room for bytes of another rank.
pub struct Incoming<'a> {
    /// The room: as large as what that rank sends.
    pub bytes: &'a mut [u8],
    /// The rank.
    pub from: usize,
}

/// Connects the ranks of a job. The default collectives consist of exchanges between pairs of ranks. They combine
/// contributions in the order of the ranks, so results depend only on the number of ranks.
pub trait Transport: Send + Sync {
    /// Its name: `mpi`, `tcp`.
    fn name(&self) -> &'static str;
    /// This process's rank.
    fn rank(&self) -> usize;
    /// The number of ranks.
    fn size(&self) -> usize;
    /// How long a rank waits for another one.
    fn time_limit(&self) -> Duration {
        Duration::from_secs(600)
    }
    /// Returns whether a rank is known to have ended, or to have failed, after which it takes no part. Does not wait.
    fn has_ended(&self, rank: usize) -> bool {
        let _ = rank;
        false
    }
    /// Ends this rank: the ranks that wait for it get an error. Dropping the transport does so, too, but something, such
    /// as work of a device, may keep it.
    fn leave(&self) {}

    /// Sends to one rank while it receives from another, or does one of the two. Messages between two ranks arrive in
    /// order.
    ///
    /// # Errors
    /// [`Error::Collective`] if a rank ended, is too late, or sends another number of bytes. [`Error::Argument`] for a
    /// rank that does not exist.
    fn exchange(&self, send: Option<Outgoing<'_>>, receive: Option<Incoming<'_>>) -> Result<()>;

    /// Replaces the elements by their combination over all ranks.
    ///
    /// # Errors
    /// As [`Transport::exchange`].
    fn all_reduce(&self, values: &mut [u8], dtype: DType, by: Combine) -> Result<()> {
        let (size, rank) = (self.size(), self.rank());
        let parts = parts(values.len(), dtype.size(), size);
        let mut own = vec![0; parts[rank].len()];
        self.reduce_parts(values, &parts, &mut own, dtype, by)?;
        values[parts[rank].clone()].copy_from_slice(&own);
        for step in 1..size {
            let (to, from) = ((rank + step) % size, (rank + size - step) % size);
            let receive = Incoming { bytes: &mut values[parts[from].clone()], from };
            self.exchange(Some(Outgoing { bytes: &own, to }), Some(receive))?;
        }
        Ok(())
    }

    /// Combines the elements over all ranks; this rank gets the part of its number.
    ///
    /// # Errors
    /// As [`Transport::exchange`].
    fn reduce_scatter(&self, values: &[u8], own: &mut [u8], dtype: DType, by: Combine) -> Result<()> {
        let parts = parts(values.len(), dtype.size(), self.size());
        self.reduce_parts(values, &parts, own, dtype, by)
    }

    /// Sends each rank its part, and combines what arrives for this one.
    #[doc(hidden)]
    fn reduce_parts(
        &self,
        values: &[u8],
        parts: &[Range<usize>],
        own: &mut [u8],
        dtype: DType,
        by: Combine,
    ) -> Result<()> {
        let (size, rank) = (self.size(), self.rank());
        let mut arrived: Vec<Vec<u8>> = vec![Vec::new(); size];
        arrived[rank] = values[parts[rank].clone()].to_vec();
        for step in 1..size {
            let (to, from) = ((rank + step) % size, (rank + size - step) % size);
            arrived[from] = vec![0; parts[rank].len()];
            let receive = Incoming { bytes: &mut arrived[from], from };
            self.exchange(Some(Outgoing { bytes: &values[parts[to].clone()], to }), Some(receive))?;
        }
        let arrived: Vec<&[u8]> = arrived.iter().map(Vec::as_slice).collect();
        combine(&arrived, own, dtype, by)
    }

    /// Gives every rank the bytes of all, in the order of the ranks.
    ///
    /// # Errors
    /// As [`Transport::exchange`].
    fn all_gather(&self, own: &[u8], all: &mut [u8]) -> Result<()> {
        let (size, rank, width) = (self.size(), self.rank(), own.len());
        all[rank * width..][..width].copy_from_slice(own);
        for step in 1..size {
            let (to, from) = ((rank + step) % size, (rank + size - step) % size);
            let receive = Incoming { bytes: &mut all[from * width..][..width], from };
            self.exchange(Some(Outgoing { bytes: own, to }), Some(receive))?;
        }
        Ok(())
    }

    /// Gives every rank the bytes of one.
    ///
    /// # Errors
    /// As [`Transport::exchange`].
    fn broadcast(&self, bytes: &mut [u8], root: usize) -> Result<()> {
        check_rank("broadcast", root, self.size())?;
        // A binomial tree: a rank receives from the one without its lowest bit, counted from the root, and sends to those
        // with lower bits.
        let size = self.size();
        let place = (self.rank() + size - root) % size;
        let global = |place: usize| (place + root) % size;
        let lowest = if place == 0 { size.next_power_of_two() } else { 1 << place.trailing_zeros() };
        if place != 0 {
            self.exchange(None, Some(Incoming { bytes, from: global(place - lowest) }))?;
        }
        let mut bit = lowest / 2;
        while bit > 0 {
            if place + bit < size {
                self.exchange(Some(Outgoing { bytes, to: global(place + bit) }), None)?;
            }
            bit /= 2;
        }
        Ok(())
    }

    /// Part `i` of the bytes goes to rank `i`; part `j` of the result comes from rank `j`.
    ///
    /// # Errors
    /// As [`Transport::exchange`].
    fn all_to_all(&self, values: &[u8], result: &mut [u8]) -> Result<()> {
        let (size, rank) = (self.size(), self.rank());
        let width = values.len() / size;
        let part = |of: usize| of * width..(of + 1) * width;
        result[part(rank)].copy_from_slice(&values[part(rank)]);
        for step in 1..size {
            let (to, from) = ((rank + step) % size, (rank + size - step) % size);
            let receive = Incoming { bytes: &mut result[part(from)], from };
            self.exchange(Some(Outgoing { bytes: &values[part(to)], to }), Some(receive))?;
        }
        Ok(())
    }

    /// Returns once every rank has called it.
    ///
    /// # Errors
    /// As [`Transport::exchange`].
    fn barrier(&self) -> Result<()> {
        self.all_gather(&[0], &mut vec![0; self.size()])
    }
}

/// Divides bytes of whole elements among the ranks as evenly as possible.
fn parts(bytes: usize, element: usize, size: usize) -> Vec<Range<usize>> {
    let elements = bytes / element;
    let start = |rank: usize| rank * elements / size * element;
    (0..size).map(|rank| start(rank)..start(rank + 1)).collect()
}

/// Some ranks of a transport.
pub(super) struct Part {
    pub(super) whole: Arc<dyn Transport>,
    /// Their ranks there, in order.
    pub(super) ranks: Vec<usize>,
    pub(super) rank: usize,
}

impl Transport for Part {
    fn name(&self) -> &'static str {
        self.whole.name()
    }
    fn rank(&self) -> usize {
        self.rank
    }
    fn size(&self) -> usize {
        self.ranks.len()
    }
    fn time_limit(&self) -> Duration {
        self.whole.time_limit()
    }
    fn has_ended(&self, rank: usize) -> bool {
        self.ranks.get(rank).is_some_and(|&rank| self.whole.has_ended(rank))
    }
    fn leave(&self) {
        self.whole.leave();
    }
    fn exchange(&self, send: Option<Outgoing<'_>>, receive: Option<Incoming<'_>>) -> Result<()> {
        let find = |rank: usize| check_rank("exchange", rank, self.size()).map(|()| self.ranks[rank]);
        let send = send.map(|send| Ok(Outgoing { to: find(send.to)?, ..send })).transpose()?;
        let receive =
            receive.map(|receive| Ok(Incoming { from: find(receive.from)?, ..receive })).transpose()?;
        self.whole.exchange(send, receive)
    }
}

/// Checks that there is a rank among so many.
///
/// # Errors
/// [`Error::Argument`] if there is not.
pub fn check_rank(op: &'static str, rank: usize, size: usize) -> Result<()> {
    match rank < size {
        true => Ok(()),
        false => Err(Error::argument(op, format!("there is no rank {rank}: use 0 to {}", size - 1))),
    }
}

/// What is wrong if a rank sends another number of bytes.
pub fn other_length(from: usize, sent: usize, wanted: usize) -> String {
    format!(
        "rank {from} sent {sent} bytes, where {wanted} were expected: all ranks must run the same collectives in the \
         same order, with the same shapes and dtypes, on devices of the same kind"
    )
}
