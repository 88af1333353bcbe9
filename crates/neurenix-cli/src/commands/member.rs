//! A process among several of one job.

use std::{sync::Arc, thread};

use neurenix::{
    Result,
    distributed::{self, Environment, InitOptions},
    phynexus::{Device, distributed::Group},
};

/// Whether the launcher starts its processes again after a failure, as `TORCHELASTIC_MAX_RESTARTS` says.
pub(super) fn may_restart() -> bool {
    let most = std::env::var("TORCHELASTIC_MAX_RESTARTS").ok();
    most.and_then(|most| most.parse::<u32>().ok()).is_some_and(|most| most > 0)
}

/// Whether it has done so.
pub(super) fn is_restarted() -> Result<bool> {
    Ok(Environment::from_process()?.restart_count > 0)
}

/// This process among those that a launcher has started. It leaves when it is dropped.
pub(super) struct Member {
    pub(super) group: Arc<Group>,
    environment: Environment,
}

impl Member {
    /// Joins the others; `None` if there are none. Without a number of threads, the cores are divided.
    pub(super) fn join(threads: Option<usize>) -> Result<Option<Member>> {
        let environment = Environment::from_process()?;
        if environment.world_size == 1 {
            return Ok(None);
        }
        if threads.is_none() {
            let cores = thread::available_parallelism().map_or(1, usize::from);
            neurenix::set_threads((cores / environment.local_world_size.max(1)).max(1))?;
        }
        let group = distributed::init(&InitOptions::default())?;
        Ok(Some(Member { group, environment }))
    }

    /// Whether this process writes files and prints.
    pub(super) fn leads(&self) -> bool {
        self.group.rank() == 0
    }

    /// What rank 0 decides.
    pub(super) fn decided(&self, own: bool) -> Result<bool> {
        let mut decision = [u8::from(own)];
        self.group.transport().broadcast(&mut decision, 0)?;
        Ok(decision == [1])
    }

    /// The device of this process, of those of one kind: by its number on this machine.
    pub(super) fn device(&self, first: Device) -> Result<Device> {
        match first.name().split_once(':') {
            Some((kind, _)) if self.environment.local_world_size > 1 => {
                let own = Device::find(&format!("{kind}:{}", self.environment.local_rank));
                // A launcher may show each process its own device only.
                let is_only = Device::find(&format!("{kind}:1")).is_err();
                if is_only { Ok(first) } else { Ok(own?) }
            }
            _ => Ok(first),
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        distributed::destroy();
    }
}
