//! Ranks that wait for long tell the others, so that an error can name those who never came to a collective.
//!
//! MPI does not say which rank a collective waits for. A rank that has waited for half of the time limit sends every
//! other one the number of collectives that it has begun. At the limit, the ranks that have not sent as high a number
//! are those who are missing.

use std::{
    collections::BTreeMap,
    ffi::c_int,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use super::{
    api::{Api, Status, Transfer, turn},
    dialect::Handle,
};

/// The tag of these messages.
const TAG: c_int = 1;

/// How often, and how long apart, a rank looks for messages before it names those who are missing.
const LOOKS: usize = 20;
const PAUSE: Duration = Duration::from_millis(2);

/// A rank, and the number of collectives that it has begun.
type Arrival = [u64; 2];
const BYTES: usize = size_of::<Arrival>();

#[derive(Default)]
pub(crate) struct Arrivals<H: Handle> {
    /// The highest number that each rank has sent.
    seen: Mutex<BTreeMap<usize, u64>>,
    sending: Mutex<Vec<Transfer<H>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<H: Handle> Arrivals<H> {
    /// Sends this rank's number to all others. Faults are ignored: an error would name fewer ranks.
    pub(crate) fn announce(&self, api: &'static Api<H>, communicator: H, size: usize, own: Arrival) {
        let mut sending = lock(&self.sending);
        sending.retain_mut(|transfer| matches!(transfer.test(), Ok(None)));
        for to in (0..size).filter(|&to| to as u64 != own[0]) {
            let memory = own.map(u64::to_ne_bytes).concat();
            let begun = Transfer::begin(api, "MPI_Isend", memory, |address, request| {
                let (count, byte) = (BYTES as c_int, api.dialect.byte);
                // SAFETY: the transfer keeps the memory until the request is complete.
                unsafe {
                    (api.functions.MPI_Isend)(
                        address.cast(),
                        count,
                        byte,
                        to as c_int,
                        TAG,
                        communicator,
                        request,
                    )
                }
            });
            sending.extend(begun);
        }
    }

    /// Receives what others have sent.
    fn look(&self, api: &'static Api<H>, communicator: H) {
        let (functions, any) = (&api.functions, api.dialect.any_source);
        loop {
            let (mut arrived, mut status, mut message) = (0, Status::default(), Arrival::default());
            let turn = turn();
            // SAFETY: the function writes a flag and a status.
            let code = unsafe { (functions.MPI_Iprobe)(any, TAG, communicator, &mut arrived, &mut status) };
            if code != 0 || arrived == 0 {
                return;
            }
            let (address, count) = (message.as_mut_ptr().cast(), BYTES as c_int);
            // SAFETY: there is room for the message, which has arrived: this does not wait.
            let code = unsafe {
                (functions.MPI_Recv)(address, count, api.dialect.byte, any, TAG, communicator, &mut status)
            };
            drop(turn);
            if code != 0 {
                return;
            }
            let mut seen = lock(&self.seen);
            let highest = seen.entry(message[0] as usize).or_default();
            *highest = message[1].max(*highest);
        }
    }

    /// The ranks that have not begun as many collectives as this one, as far as is known.
    pub(crate) fn late(
        &self,
        api: &'static Api<H>,
        communicator: H,
        size: usize,
        own: Arrival,
    ) -> Vec<usize> {
        let mut late = Vec::new();
        for _ in 0..LOOKS {
            self.look(api, communicator);
            let seen = lock(&self.seen);
            let has_come =
                |rank: &usize| *rank as u64 == own[0] || seen.get(rank).is_some_and(|&begun| begun >= own[1]);
            late = (0..size).filter(|rank| !has_come(rank)).collect();
            drop(seen);
            if late.is_empty() {
                break;
            }
            thread::sleep(PAUSE);
        }
        late
    }
}
