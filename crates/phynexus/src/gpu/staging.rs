//! Copies through pinned memory: host memory that a device reads and writes directly while the host continues.
//!
//! A write copies its bytes into a piece of pinned memory and submits the transfer, while the host fills the next part.
//! A piece is reused once the device has passed the event after its last part. A read owns its pinned memory until the
//! host has taken the data. The total is limited; when it is used up, writes wait for a piece.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{Result, device::HostRead, pool::Pool};

/// The size of a piece in bytes, and of the parts of large reads.
pub(super) const PIECE: usize = 4 << 20;
/// The maximum number of pieces that the device has yet to fetch.
const FLYING: usize = 8;
/// The maximum size of the pinned memory in bytes.
const MOST: usize = 64 << 20;

/// A driver's operations for copies through pinned memory.
pub trait Medium: Send + Sync + 'static {
    /// Pinned memory, freed on drop.
    type Pinned: AsRef<[u8]> + AsMut<[u8]> + Send;
    /// A point in the device's queue.
    type Event: Send;

    /// Pins this many bytes, if the system allows it.
    fn pin(&self, bytes: usize) -> Option<Self::Pinned>;
    /// Records an event after everything submitted so far.
    fn event(&self) -> Result<Self::Event>;
    /// Returns whether the device has passed the event or has failed.
    fn has_happened(&self, event: &Self::Event) -> bool;
    /// Waits until the device has passed the event.
    fn wait(&self, event: &Self::Event) -> Result<()>;
    /// Returns whether the device was removed, so that it accesses no memory anymore.
    fn is_gone(&self) -> bool {
        false
    }
}

/// A device's pinned memory.
pub struct Staging<M: Medium> {
    medium: Arc<M>,
    pool: Pool<M::Pinned>,
    writing: Mutex<Writing<M>>,
}

struct Writing<M: Medium> {
    /// The piece being filled, and the bytes already used.
    current: Option<(M::Pinned, usize)>,
    /// The pieces that the device has yet to fetch, each with the event after it.
    flying: VecDeque<(M::Event, M::Pinned)>,
}

impl<M: Medium> Staging<M> {
    /// Makes an empty staging area. `device` is the name used in errors.
    pub fn new(medium: Arc<M>, device: &str) -> Arc<Staging<M>> {
        let pool = Pool::new(format!("pinned memory of {device}"));
        pool.set_limit(Some(MOST));
        let writing = Mutex::new(Writing { current: None, flying: VecDeque::new() });
        Arc::new(Staging { medium, pool, writing })
    }

    fn lock(&self) -> MutexGuard<'_, Writing<M>> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of pinned memory.
    pub fn bytes(&self) -> usize {
        self.pool.statistics().reserved
    }

    /// Frees unused pinned memory.
    pub fn trim(&self) {
        self.collect(&mut self.lock());
        self.pool.empty_cache();
    }

    /// Copies to the device. `submit` makes the device fetch a part, given its offset from the first byte; the part
    /// stays valid until the device has done so. Returns the number of bytes submitted, which is less than the total if
    /// no memory can be pinned.
    pub fn write(&self, bytes: &[u8], submit: impl Fn(&[u8], usize) -> Result<()>) -> Result<usize> {
        let mut writing = self.lock();
        let mut done = 0;
        for part in bytes.chunks(PIECE) {
            let Some((piece, used)) = self.room(&mut writing, part.len())? else { return Ok(done) };
            let place = &mut piece.as_mut()[*used..*used + part.len()];
            place.copy_from_slice(part);
            // A failed submission may still be fetched, so its space is not reused.
            *used += part.len().next_multiple_of(ALIGNMENT);
            submit(place, done)?;
            done += part.len();
        }
        Ok(done)
    }

    /// Returns a piece with room for this many bytes, or `None` if no memory can be pinned.
    fn room<'a>(
        &self,
        writing: &'a mut Writing<M>,
        bytes: usize,
    ) -> Result<Option<&'a mut (M::Pinned, usize)>> {
        if writing.current.as_ref().is_none_or(|(_, used)| used + bytes > PIECE) {
            if let Some((piece, used)) = writing.current.take() {
                match self.medium.event() {
                    Ok(event) => writing.flying.push_back((event, piece)),
                    Err(error) => {
                        // The device may still read the piece.
                        writing.current = Some((piece, used.max(PIECE)));
                        return Err(error);
                    }
                }
            }
            self.collect(writing);
            if writing.flying.len() >= FLYING {
                self.wait_for_oldest(writing)?;
            }
            let piece = loop {
                match self.pool.allocate(PIECE, |bytes| self.medium.pin(bytes)) {
                    Ok(piece) => break piece,
                    Err(_) if writing.flying.is_empty() => return Ok(None),
                    Err(_) => self.wait_for_oldest(writing)?,
                }
            };
            writing.current = Some((piece, 0));
        }
        Ok(writing.current.as_mut())
    }

    fn wait_for_oldest(&self, writing: &mut Writing<M>) -> Result<()> {
        if let Some((event, _)) = writing.flying.front() {
            self.medium.wait(event)?;
            self.collect(writing);
        }
        Ok(())
    }

    /// Reclaims the pieces that the device has fetched.
    fn collect(&self, writing: &mut Writing<M>) {
        while writing.flying.front().is_some_and(|(event, _)| self.medium.has_happened(event)) {
            if let Some((_, piece)) = writing.flying.pop_front() {
                self.pool.release(PIECE, piece);
            }
        }
    }

    /// Begins a copy from the device. `submit` makes the device fill the memory. Returns `None` if no memory can be
    /// pinned.
    pub fn read(
        self: &Arc<Self>,
        bytes: usize,
        submit: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Option<Box<dyn HostRead>>> {
        let Ok(mut pinned) = self.pool.allocate(bytes, |class| self.medium.pin(class)) else {
            return Ok(None);
        };
        let submitted = submit(&mut pinned.as_mut()[..bytes]).and_then(|()| self.medium.event());
        match submitted {
            Ok(event) => {
                Ok(Some(Box::new(StagedRead { staging: self.clone(), event, pinned: Some(pinned), bytes })))
            }
            Err(error) => {
                if !self.medium.is_gone() {
                    // The device may still write to it.
                    std::mem::forget(pinned);
                }
                Err(error)
            }
        }
    }
}

/// The alignment of the parts in a piece.
const ALIGNMENT: usize = 256;

impl<M: Medium> Drop for Staging<M> {
    fn drop(&mut self) {
        let mut writing = self.lock();
        let current = writing.current.take();
        let flying = std::mem::take(&mut writing.flying);
        drop(writing);
        // A new event comes after all submitted work, so one wait is enough.
        let waited = self.medium.event().and_then(|event| self.medium.wait(&event));
        if waited.is_err() && !self.medium.is_gone() {
            std::mem::forget((current, flying));
        }
    }
}

/// A pending copy to the host.
struct StagedRead<M: Medium> {
    staging: Arc<Staging<M>>,
    event: M::Event,
    pinned: Option<M::Pinned>,
    bytes: usize,
}

impl<M: Medium> HostRead for StagedRead<M> {
    fn is_done(&self) -> bool {
        self.staging.medium.has_happened(&self.event)
    }

    fn finish(self: Box<Self>, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.staging.medium.wait(&self.event)?;
        match &self.pinned {
            Some(pinned) => take(&pinned.as_ref()[..self.bytes]),
            None => Ok(()),
        }
    }
}

impl<M: Medium> Drop for StagedRead<M> {
    fn drop(&mut self) {
        let Some(pinned) = self.pinned.take() else { return };
        match self.staging.medium.wait(&self.event) {
            Ok(()) => self.staging.pool.release(self.bytes, pinned),
            // The device may still write to it.
            Err(_) if !self.staging.medium.is_gone() => std::mem::forget(pinned),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        ops::Range,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use super::*;
    use crate::Error;

    /// A device that fetches its parts only when an event is waited for. Events are counted.
    #[derive(Default)]
    struct Slow {
        pinned: AtomicUsize,
        most: usize,
        recorded: AtomicUsize,
        passed: AtomicUsize,
        /// The number of the event after each part, with the part's address range.
        fetching: Mutex<Vec<(usize, Range<usize>)>>,
    }

    struct Piece(Vec<u8>);

    impl AsRef<[u8]> for Piece {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl AsMut<[u8]> for Piece {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }

    impl Medium for Slow {
        type Pinned = Piece;
        type Event = usize;

        fn pin(&self, bytes: usize) -> Option<Piece> {
            let fits = self.pinned.load(Ordering::SeqCst) + bytes <= self.most;
            fits.then(|| {
                self.pinned.fetch_add(bytes, Ordering::SeqCst);
                Piece(vec![0; bytes])
            })
        }
        fn event(&self) -> Result<usize> {
            Ok(self.recorded.fetch_add(1, Ordering::SeqCst))
        }
        fn has_happened(&self, event: &usize) -> bool {
            *event < self.passed.load(Ordering::SeqCst)
        }
        fn wait(&self, event: &usize) -> Result<()> {
            self.passed.fetch_max(event + 1, Ordering::SeqCst);
            self.fetching.lock().unwrap().retain(|(behind, _)| behind > event);
            Ok(())
        }
    }

    fn slow(most: usize) -> (Arc<Slow>, Arc<Staging<Slow>>) {
        let medium = Arc::new(Slow { most, ..Slow::default() });
        (medium.clone(), Staging::new(medium, "slow:0"))
    }

    /// Writes, and checks that no part is overwritten before it is fetched.
    fn write(medium: &Slow, staging: &Staging<Slow>, bytes: &[u8]) -> (usize, Vec<u8>) {
        let fetched = Mutex::new(Vec::new());
        let done = staging
            .write(bytes, |part, at| {
                let range = part.as_ptr_range();
                let range = range.start.addr()..range.end.addr();
                let mut fetching = medium.fetching.lock().unwrap();
                let overlaps = |other: &Range<usize>| range.start < other.end && other.start < range.end;
                assert!(
                    !fetching.iter().any(|(_, other)| overlaps(other)),
                    "a part that is still to be fetched"
                );
                fetching.push((medium.recorded.load(Ordering::SeqCst), range));
                let mut fetched = fetched.lock().unwrap();
                assert_eq!(fetched.len(), at);
                fetched.extend_from_slice(part);
                Ok(())
            })
            .unwrap();
        (done, fetched.into_inner().unwrap())
    }

    #[test]
    fn what_is_still_to_be_fetched_is_not_overwritten() {
        let (medium, staging) = slow(usize::MAX);
        let bytes: Vec<u8> = (0..3 * PIECE + 1000).map(|i| (i % 251) as u8).collect();
        for round in 0..40 {
            let part = &bytes[..[1, 300, PIECE / 2, PIECE, bytes.len()][round % 5]];
            assert_eq!(write(&medium, &staging, part), (part.len(), part.to_vec()), "{round}");
        }
        assert!(staging.bytes() <= MOST && staging.bytes() >= PIECE);
        // Small writes share a piece.
        let before = medium.recorded.load(Ordering::SeqCst);
        for _ in 0..1000 {
            write(&medium, &staging, &bytes[..64]);
        }
        assert!(medium.recorded.load(Ordering::SeqCst) - before <= 1);
        medium.wait(&usize::MAX.wrapping_sub(1)).unwrap();
        staging.trim();
        assert_eq!(staging.bytes(), PIECE);
    }

    #[test]
    fn what_cannot_be_pinned_is_left_to_the_driver() {
        let (medium, staging) = slow(0);
        assert_eq!(write(&medium, &staging, &[1; 100]).0, 0);
        assert!(staging.read(100, |_| Ok(())).unwrap().is_none());
        // With a single piece, the next write waits for it.
        let (medium, staging) = slow(PIECE);
        let bytes = vec![7; 2 * PIECE + 5];
        assert_eq!(write(&medium, &staging, &bytes), (bytes.len(), bytes.clone()));
        assert_eq!(staging.bytes(), PIECE);
    }

    #[test]
    fn reads_have_memory_of_their_own_until_they_are_taken() {
        let (_, staging) = slow(usize::MAX);
        let read = |value: u8| {
            let fill = |pinned: &mut [u8]| {
                pinned.fill(value);
                Ok(())
            };
            staging.read(1000, fill).unwrap().expect("room")
        };
        let reads: Vec<_> = (0..5).map(read).collect();
        assert!(!reads[0].is_done());
        for (value, read) in reads.into_iter().enumerate() {
            let mut taken = Vec::new();
            read.finish(&mut |bytes| {
                taken = bytes.to_vec();
                Ok(())
            })
            .unwrap();
            assert_eq!(taken, [value as u8; 1000]);
        }
        let before = staging.bytes();
        drop(read(1));
        assert_eq!(staging.bytes(), before, "what was given up is used again");
        // Over the limit, no memory is available until a read is finished or dropped.
        let large = staging.read(MOST, |_| Ok(())).unwrap().expect("room");
        assert!(staging.read(PIECE, |_| Ok(())).unwrap().is_none());
        drop(large);
        assert!(staging.read(PIECE, |_| Ok(())).unwrap().is_some());
        let failed = || Err(Error::Device { device: "slow:0".into(), message: "gone".into() });
        assert!(staging.read(10, |_| failed()).is_err());
    }
}
