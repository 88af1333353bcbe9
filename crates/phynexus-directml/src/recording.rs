//! Steps that repeat, as command lists that run again and again.

use std::{
    cell::Cell,
    sync::{Arc, Mutex, PoisonError},
};

use phynexus::{
    Result,
    gpu::{Addresses, BlockAddress, LaunchGraph, Repeated, Submission},
};

use crate::{
    connection::Connection,
    gpu::{DirectMl, work},
    lists,
    memory::Block,
    object::Holder,
};

/// The launches that repeat together.
pub(crate) type Recording = Repeated<Lists>;

/// The launches in two equal lists: while the device computes one run, the next one can be submitted.
pub(crate) struct Lists {
    shared: Arc<Shared>,
    next: Cell<usize>,
}

struct Shared {
    connection: Arc<Connection>,
    /// Empty if the device was removed.
    lists: Mutex<Vec<Arc<lists::Repeated>>>,
}

impl Shared {
    fn take(&self) -> Vec<Arc<lists::Repeated>> {
        std::mem::take(&mut *self.lists.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Holder for Shared {
    fn release(&self) {
        drop(self.take());
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.take().into_iter().for_each(|list| self.connection.drop_list(list));
    }
}

impl LaunchGraph for Lists {
    type Driver = DirectMl;

    // Commands of a list run in order.
    const SIDE_BY_SIDE: bool = false;

    /// Not addresses: another buffer may get that of a buffer that was freed, but descriptors are of one buffer.
    fn addresses(submission: &Submission<'_, DirectMl>) -> Addresses {
        let identity = |&(block, start): &BlockAddress<'_, Block>| {
            let (number, own) = block.identity();
            [number, own.wrapping_add_signed(start)]
        };
        submission.arguments.iter().flat_map(identity).collect()
    }

    fn new(driver: &DirectMl, submissions: &[Submission<'_, DirectMl>], _: &[Vec<usize>]) -> Option<Lists> {
        let open = driver.open().ok()?;
        let connection = &open.connection;
        let works: Result<Vec<_>> =
            submissions.iter().map(|submission| work(connection, submission, true)).collect();
        let works = works.ok()?;
        let lists: Result<Vec<_>> = (0..2).map(|_| connection.repeated(&works).map(Arc::new)).collect();
        let shared = Arc::new(Shared { connection: connection.clone(), lists: Mutex::new(lists.ok()?) });
        connection.holds(&shared).ok()?;
        Some(Lists { shared, next: Cell::new(0) })
    }

    /// The addresses of a closed list do not change.
    fn patch(&mut self, _: usize, _: &Submission<'_, DirectMl>) -> bool {
        false
    }

    fn launch(&self, _: &DirectMl) -> Result<()> {
        let at = self.next.replace(1 - self.next.get());
        let list = self.shared.lists.lock().unwrap_or_else(PoisonError::into_inner).get(at).cloned();
        match list {
            Some(list) => self.shared.connection.run(&list),
            None => Err(self.shared.connection.lost()),
        }
    }
}
