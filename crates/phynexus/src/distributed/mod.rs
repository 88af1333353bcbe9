//! Processes that compute together.
//!
//! Each process, or thread, of a job has a *rank*, from 0 to one less than their number. A [`Transport`] carries bytes
//! between the ranks: MPI, sockets, or memory that threads share. A [`Group`] is some of the ranks, in order; a
//! [`Collective`] is what its members do together. All members record the same collectives of a group in the same
//! order.
//!
//! A collective is an operation of the graph. The CPU computes it by [`Group::run`]. A device with a library for it, such
//! as NCCL, keeps its communicators in [`Group::on_device`] and uses the transport only to set them up.

mod combine;
mod threads;
mod transport;

use std::{
    any::Any,
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

pub use combine::combine;
pub use threads::threads;
pub use transport::{Incoming, Outgoing, Transport, check_rank, other_length};

use crate::{
    DType, Error, Result,
    op::{Collective, CollectiveKind, Combine, GroupMember},
};

/// Groups that are not closed, by their numbers; `None` for those that were abandoned.
static GROUPS: Mutex<BTreeMap<u32, Option<Arc<Group>>>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU32 = AtomicU32::new(0);

fn groups() -> MutexGuard<'static, BTreeMap<u32, Option<Arc<Group>>>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ranks that compute together, as one of them sees it.
pub struct Group {
    member: GroupMember,
    /// The members' ranks in the job.
    ranks: Vec<usize>,
    transport: Arc<dyn Transport>,
    /// Why devices leave collectives to the host, if all do.
    host_reason: Option<String>,
    /// What devices keep, by the device's name.
    devices: Mutex<Vec<(String, Arc<dyn Any + Send + Sync>)>>,
}

impl Group {
    /// Opens the group of all ranks that a transport connects.
    pub fn open(transport: Arc<dyn Transport>) -> Arc<Group> {
        let ranks = (0..transport.size()).collect();
        Group::add(transport, ranks, None)
    }

    /// As [`Group::open`], for ranks whose devices have no library in common: the host computes the group's collectives,
    /// and devices give this reason. Every rank must call this.
    pub fn open_on_host(transport: Arc<dyn Transport>, reason: String) -> Arc<Group> {
        let ranks = (0..transport.size()).collect();
        Group::add(transport, ranks, Some(reason))
    }

    fn add(transport: Arc<dyn Transport>, ranks: Vec<usize>, host_reason: Option<String>) -> Arc<Group> {
        let (rank, size) = (transport.rank() as u32, transport.size() as u32);
        let member = GroupMember { group: NEXT.fetch_add(1, Ordering::Relaxed), rank, size };
        let group = Arc::new(Group { member, ranks, transport, host_reason, devices: Mutex::default() });
        groups().insert(member.group, Some(group.clone()));
        group
    }

    /// The open group with this number.
    ///
    /// # Errors
    /// [`Error::Argument`] if it was closed or abandoned.
    pub fn find(number: u32) -> Result<Arc<Group>> {
        let message = match groups().get(&number) {
            Some(Some(group)) => return Ok(group.clone()),
            Some(None) => {
                "an earlier computation was interrupted or failed after a collective had begun, so the ranks are out of \
                 step: destroy the process group and initialise it again, and record anew"
            }
            None => "the process group is closed: initialise it again, and record anew",
        };
        Err(Error::argument("distributed", message))
    }

    /// Opens a group of some members, given by their ranks in this group, in the new group's order. `None` for ranks
    /// that are not in it. Every rank of the new group must call this.
    ///
    /// # Errors
    /// [`Error::Argument`] for a rank that appears twice or does not exist, or if there is none.
    pub fn subgroup(&self, ranks: &[usize]) -> Result<Option<Arc<Group>>> {
        let refuse = |message: String| Err(Error::argument("new_group", message));
        if ranks.is_empty() {
            return refuse("it needs at least one rank".to_owned());
        }
        for (at, rank) in ranks.iter().enumerate() {
            if *rank >= self.size() {
                return refuse(format!("there is no rank {rank}: use 0 to {}", self.size() - 1));
            }
            if ranks[..at].contains(rank) {
                return refuse(format!("rank {rank} appears twice"));
            }
        }
        let Some(rank) = ranks.iter().position(|&rank| rank == self.rank()) else { return Ok(None) };
        let transport = transport::Part { whole: self.transport.clone(), ranks: ranks.to_vec(), rank };
        let global = ranks.iter().map(|&rank| self.ranks[rank]).collect();
        Ok(Some(Group::add(Arc::new(transport), global, self.host_reason.clone())))
    }

    /// This process's number in the group.
    pub fn rank(&self) -> usize {
        self.member.rank as usize
    }

    /// The number of members.
    pub fn size(&self) -> usize {
        self.member.size as usize
    }

    /// The members' ranks in the whole job.
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// The group and the rank, as collectives have them.
    pub fn member(&self) -> GroupMember {
        self.member
    }

    /// What carries bytes between the members.
    pub fn transport(&self) -> &Arc<dyn Transport> {
        &self.transport
    }

    /// Why devices leave collectives to the host, if the group was opened [so](Group::open_on_host).
    pub fn host_reason(&self) -> Option<&str> {
        self.host_reason.as_deref()
    }

    /// Closes the group: later uses are errors. What devices keep for it is dropped.
    pub fn close(&self) {
        let closed = groups().remove(&self.member.group);
        self.end_on_devices();
        drop(closed);
    }

    /// Gives the group up, because this rank has run a part of its collectives and will not go on: later uses are errors
    /// that say so, and the ranks that wait for this one get an error, instead of data of another collective.
    pub(crate) fn abandon(&self) {
        let abandoned = groups().get_mut(&self.member.group).and_then(Option::take);
        self.end_on_devices();
        self.transport.leave();
        drop(abandoned);
    }

    fn end_on_devices(&self) {
        let kept = std::mem::take(&mut *self.devices.lock().unwrap_or_else(PoisonError::into_inner));
        // Without the lock: this may end a communicator.
        drop(kept);
    }

    /// What a device keeps for this group, such as a communicator of its library. The first call makes it; no lock is
    /// held meanwhile.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn on_device<T: Any + Send + Sync>(
        &self,
        device: &str,
        make: impl FnOnce(&Group) -> Result<T>,
    ) -> Result<Arc<T>> {
        let lock = || self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let find = || lock().iter().find(|(name, _)| name == device).map(|(_, kept)| kept.clone());
        let kept = match find() {
            Some(kept) => kept,
            None => {
                let made: Arc<dyn Any + Send + Sync> = Arc::new(make(self)?);
                let mut devices = lock();
                // Another thread may have made one meanwhile.
                match devices.iter().find(|(name, _)| name == device) {
                    Some((_, kept)) => kept.clone(),
                    None => {
                        devices.push((device.to_owned(), made.clone()));
                        made
                    }
                }
            }
        };
        kept.downcast()
            .map_err(|_| Error::internal("distributed", "a device keeps two kinds of communicators"))
    }

    /// Runs a collective on the host: on the bytes of a row-major operand, with those of the result.
    ///
    /// # Errors
    /// [`Error::Collective`] if a rank cannot be reached, ended or runs something else.
    pub fn run(&self, kind: CollectiveKind, dtype: DType, operand: &[u8], result: &mut [u8]) -> Result<()> {
        let transport = &self.transport;
        match kind {
            CollectiveKind::AllReduce(combine, _) => {
                result.copy_from_slice(operand);
                transport.all_reduce(result, dtype, combine)
            }
            CollectiveKind::ReduceScatter(combine) => {
                transport.reduce_scatter(operand, result, dtype, combine)
            }
            CollectiveKind::AllGather { .. } => transport.all_gather(operand, result),
            CollectiveKind::Broadcast { root } => {
                result.copy_from_slice(operand);
                transport.broadcast(result, root as usize)
            }
            CollectiveKind::Reduce { root } => {
                result.copy_from_slice(operand);
                transport.all_reduce(result, dtype, Combine::Sum)?;
                if self.member.rank != root {
                    result.fill(0);
                }
                Ok(())
            }
            CollectiveKind::AllToAll => transport.all_to_all(operand, result),
            CollectiveKind::Send { to } => {
                transport.exchange(Some(Outgoing { bytes: operand, to: to as usize }), None)?;
                result.fill(0);
                Ok(())
            }
            CollectiveKind::Receive { from } => {
                transport.exchange(None, Some(Incoming { bytes: result, from: from as usize }))
            }
        }
    }
}

/// Runs a step's collective on the host. See [`Group::run`].
///
/// # Errors
/// As [`Group::run`], and if the group is closed.
pub fn run(collective: &Collective, dtype: DType, operand: &[u8], result: &mut [u8]) -> Result<()> {
    let group = Group::find(collective.member.group)?;
    group.run(collective.kind, dtype, operand, result).map_err(|error| match error {
        Error::Collective { rank, size, message, .. } => {
            Error::Collective { op: collective.kind.name(), rank, size, message }
        }
        other => other,
    })
}
