//! Ranks that are processes connected by TCP.

mod connect;
mod mesh;
mod peer;

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use phynexus::{
    Error,
    distributed::{Incoming, Outgoing, Transport, check_rank},
    interrupt,
};

use self::mesh::{Mesh, Stop};
use super::{store::Store, wait::SLICE};
use crate::Result;

/// A [`Transport`] over TCP: a connection between every two ranks.
///
/// **Sending** returns once the system has taken the bytes. A rank that cannot send takes what others send meanwhile,
/// so ranks that all send before they receive do not wait for each other.
///
/// **Failures.** A rank that waits stops if the rank it waits for ends, and within a second if any other one ends
/// without leaving, or reports a failure. The error names the rank that ended or failed first. A rank that makes no
/// progress for the time limit names the rank that is late. After an error the transport is broken: all its later
/// calls fail, and so do those of the other ranks. A host that is switched off, or cut off, is noticed after 90 s on
/// Linux.
///
/// A rank [leaves](Tcp::leave) when its transport is dropped. A process that exits with its transport in a static,
/// such as [`world`](super::world), must call [`destroy`](super::destroy), or the others take it for one that was
/// killed.
pub struct Tcp {
    rank: usize,
    size: usize,
    timeout: Duration,
    shared: Mutex<Shared>,
    /// Notified when the mesh is free.
    freed: Condvar,
}

struct Shared {
    /// `None` while a thread uses it, and once it is closed.
    mesh: Option<Mesh>,
    user: Option<ThreadId>,
    /// Why the transport cannot be used.
    closed: Option<String>,
    /// The ranks that were known to have ended when it was closed, or were at fault.
    ended: Vec<usize>,
}

impl Tcp {
    /// Connects all ranks of a job, which call this with the same store, scope and size. `scope` is a prefix of keys
    /// in the store: another one for each transport. Nothing is needed of the store once this returns. `timeout` is
    /// the time limit of exchanges.
    ///
    /// # Errors
    /// [`Error::Collective`] if a rank ends, cannot be reached, or does not come within `patience`.
    /// [`Environment`](crate::Error::Environment) if ranks have the same number, or different sizes.
    /// [`Store`](crate::Error::Store) if the store fails.
    pub fn connect(
        store: &Store,
        scope: &str,
        rank: usize,
        size: usize,
        patience: Duration,
        timeout: Duration,
    ) -> Result<Arc<Tcp>> {
        let mesh = connect::connect(store, scope, rank, size, patience)?;
        let mut tcp = Tcp::new(mesh, rank, size, patience);
        tcp.barrier()?;
        tcp.timeout = timeout;
        Ok(Arc::new(tcp))
    }

    /// A job of one rank, which needs no connection.
    pub fn single(timeout: Duration) -> Arc<Tcp> {
        Arc::new(Tcp::new(Mesh::new(0, "rank 0".to_owned(), vec![None]), 0, 1, timeout))
    }

    fn new(mesh: Mesh, rank: usize, size: usize, timeout: Duration) -> Tcp {
        let shared = Mutex::new(Shared { mesh: Some(mesh), user: None, closed: None, ended: Vec::new() });
        Tcp { rank, size, timeout, shared, freed: Condvar::new() }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, message: String) -> Error {
        Error::Collective { op: "exchange", rank: self.rank, size: self.size, message }
    }

    /// The mesh, once no other thread uses it.
    fn take(&self) -> phynexus::Result<Taken<'_>> {
        let own = thread::current().id();
        let begun = Instant::now();
        loop {
            let mut shared = self.shared();
            if let Some(reason) = &shared.closed {
                return Err(self.failed(reason.clone()));
            }
            if let Some(mesh) = shared.mesh.take() {
                shared.user = Some(own);
                return Ok(Taken { tcp: self, mesh: Some(mesh) });
            }
            if shared.user == Some(own) {
                return Err(
                    self.failed("a check for interruptions ran a collective within another".to_owned())
                );
            }
            let waited = self.freed.wait_timeout(shared, SLICE);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            interrupt::check()?;
            if begun.elapsed() > self.timeout {
                let seconds = self.timeout.as_secs_f64();
                let message =
                    format!("another thread of this process has waited in a collective for {seconds} s");
                return Err(self.failed(message));
            }
        }
    }
}

/// The mesh while a thread uses it. No lock is held meanwhile.
struct Taken<'a> {
    tcp: &'a Tcp,
    mesh: Option<Mesh>,
}

impl Taken<'_> {
    fn exchange(mut self, send: Option<Outgoing<'_>>, receive: Option<Incoming<'_>>) -> phynexus::Result<()> {
        let tcp = self.tcp;
        let Some(mesh) = &mut self.mesh else {
            return Err(Error::internal("distributed", "a thread uses connections that it has not taken"));
        };
        let Err(stop) = mesh.exchange(send, receive, tcp.timeout) else { return Ok(()) };
        let text = mesh.fail(&stop);
        let mut shared = tcp.shared();
        let again = "destroy the process group and initialise it again";
        shared
            .closed
            .get_or_insert_with(|| format!("an earlier collective failed: {text}. To go on, {again}"));
        if let Stop::Failed(culprit, _) = stop {
            shared.ended.push(culprit);
        }
        drop(shared);
        Err(match stop {
            Stop::Interrupted(error) => error,
            Stop::Failed(..) => tcp.failed(text),
        })
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut mesh = self.mesh.take();
        let mut shared = self.tcp.shared();
        shared.user = None;
        if thread::panicking() {
            // A frame may be half sent.
            shared.closed.get_or_insert_with(|| "an earlier collective panicked".to_owned());
        }
        match shared.closed {
            None => shared.mesh = mesh.take(),
            Some(_) => shared.ended.extend(mesh.iter_mut().flat_map(Mesh::left)),
        }
        drop(shared);
        self.tcp.freed.notify_all();
        // It was closed meanwhile. After a failure the peers know better, and ignore this.
        if let Some(mesh) = mesh {
            mesh.leave();
        }
    }
}

impl Transport for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
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
        let mut shared = self.shared();
        match &mut shared.mesh {
            Some(mesh) => mesh.has_left(rank),
            // While another thread uses the connections, it looks itself.
            None => rank != self.rank && shared.ended.contains(&rank),
        }
    }
    /// The ranks that wait for this one get an error; the others go on. Later calls are errors.
    fn leave(&self) {
        let mut shared = self.shared();
        if shared.closed.is_none() {
            shared.closed = Some("the process group is closed: initialise it again".to_owned());
            let mut mesh = shared.mesh.take();
            shared.ended = mesh.iter_mut().flat_map(Mesh::left).collect();
            drop(shared);
            // A thread that uses the mesh says goodbye in its place.
            if let Some(mesh) = mesh {
                mesh.leave();
            }
        }
    }
    fn exchange(&self, send: Option<Outgoing<'_>>, receive: Option<Incoming<'_>>) -> phynexus::Result<()> {
        let ranks = [send.as_ref().map(|send| send.to), receive.as_ref().map(|receive| receive.from)];
        ranks.into_iter().flatten().try_for_each(|rank| check_rank("exchange", rank, self.size))?;
        self.take()?.exchange(send, receive)
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests;
