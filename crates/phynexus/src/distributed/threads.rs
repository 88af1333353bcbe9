//! Ranks that are threads of one process.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::transport::{Incoming, Outgoing, Transport, check_rank};
use crate::{Error, Result, interrupt};

/// Messages between threads.
struct Shared {
    state: Mutex<State>,
    arrived: Condvar,
}

struct State {
    /// By sender and receiver.
    messages: Vec<VecDeque<Vec<u8>>>,
    ended: Vec<bool>,
}

struct Threads {
    shared: Arc<Shared>,
    rank: usize,
    size: usize,
    timeout: Duration,
}

/// Connects `size` threads of this process, one for each of the results, in order. A rank that waits longer than
/// `timeout` for another one gets an error.
pub fn threads(size: usize, timeout: Duration) -> Vec<Arc<dyn Transport>> {
    let messages = vec![VecDeque::new(); size * size];
    let state = Mutex::new(State { messages, ended: vec![false; size] });
    let shared = Arc::new(Shared { state, arrived: Condvar::new() });
    let one =
        |rank| -> Arc<dyn Transport> { Arc::new(Threads { shared: shared.clone(), rank, size, timeout }) };
    (0..size).map(one).collect()
}

impl Threads {
    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, message: String) -> Error {
        Error::Collective { op: "exchange", rank: self.rank, size: self.size, message }
    }

    fn receive(&self, from: usize) -> Result<Vec<u8>> {
        let begun = Instant::now();
        let mut found = None;
        loop {
            let mut ended = false;
            interrupt::wait(&mut || {
                let mut state = self.state();
                found = state.messages[from * self.size + self.rank].pop_front();
                ended = state.ended[from];
                if found.is_none() && !ended {
                    let waited = self.shared.arrived.wait_timeout(state, interrupt::PATIENCE);
                    drop(waited.unwrap_or_else(PoisonError::into_inner));
                }
            });
            match found.take() {
                Some(message) => return Ok(message),
                None if ended => return Err(self.failed(format!("rank {from} has ended"))),
                None if begun.elapsed() > self.timeout => {
                    let seconds = self.timeout.as_secs_f64();
                    return Err(self.failed(format!("rank {from} sent nothing for {seconds} s")));
                }
                None => interrupt::check()?,
            }
        }
    }
}

impl Transport for Threads {
    fn name(&self) -> &'static str {
        "threads"
    }
    fn rank(&self) -> usize {
        self.rank
    }
    fn size(&self) -> usize {
        self.size
    }
    fn time_limit(&self) -> Duration {
        self.timeout
    }
    fn has_ended(&self, rank: usize) -> bool {
        self.state().ended.get(rank).copied().unwrap_or_default()
    }
    fn leave(&self) {
        self.state().ended[self.rank] = true;
        self.shared.arrived.notify_all();
    }
    fn exchange(&self, send: Option<Outgoing<'_>>, receive: Option<Incoming<'_>>) -> Result<()> {
        let ranks = [send.as_ref().map(|send| send.to), receive.as_ref().map(|receive| receive.from)];
        ranks.into_iter().flatten().try_for_each(|rank| check_rank("exchange", rank, self.size))?;
        if let Some(send) = send {
            let message = send.bytes.to_vec();
            self.state().messages[self.rank * self.size + send.to].push_back(message);
            self.shared.arrived.notify_all();
        }
        let Some(receive) = receive else { return Ok(()) };
        let message = self.receive(receive.from)?;
        if message.len() != receive.bytes.len() {
            let (sent, wanted) = (message.len(), receive.bytes.len());
            return Err(self.failed(super::transport::other_length(receive.from, sent, wanted)));
        }
        receive.bytes.copy_from_slice(&message);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_does_not_exist_is_an_error() {
        let ranks = threads(2, Duration::from_secs(3600));
        let is_refused = |done: Result<()>| {
            let Err(Error::Argument { message, .. }) = done else { return false };
            message == "there is no rank 2: use 0 to 1"
        };
        assert!(is_refused(ranks[0].exchange(Some(Outgoing { bytes: b"", to: 2 }), None)));
        assert!(is_refused(ranks[0].exchange(None, Some(Incoming { bytes: &mut [], from: 2 }))));
        assert!(is_refused(ranks[1].broadcast(&mut [0], 2)));
    }

    #[test]
    fn a_rank_that_left_is_not_waited_for() {
        let ranks = threads(2, Duration::from_secs(3600));
        ranks[1].exchange(Some(Outgoing { bytes: b"bye", to: 0 }), None).unwrap();
        ranks[1].leave();
        assert!(ranks[0].has_ended(1) && !ranks[1].has_ended(0));
        // What it sent arrives nevertheless.
        let mut bytes = [0; 3];
        ranks[0].exchange(None, Some(Incoming { bytes: &mut bytes, from: 1 })).unwrap();
        assert_eq!(&bytes, b"bye");
        let error = ranks[0].exchange(None, Some(Incoming { bytes: &mut bytes, from: 1 })).unwrap_err();
        assert!(error.to_string().contains("rank 1 has ended"), "{error}");
    }
}
