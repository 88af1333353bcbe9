//! A process of several that train one network.

use std::{path::PathBuf, sync::Arc, thread};

use neurenix::{
    Result,
    distributed::{self, Environment, InitOptions},
    phynexus::{Device, distributed::Group},
    train::{Ending, Observer, StepReport, Trainer},
};

use super::{
    Arguments, Parts, RunFolder,
    progress::{Run, is_stopped},
};
use crate::commands::{INTERRUPTED, SUCCESS};

/// This process among those that a launcher has started. It leaves when it is dropped.
pub(super) struct Member {
    pub(super) group: Arc<Group>,
    environment: Environment,
}

impl Member {
    /// Joins the others; `None` if there are none.
    pub(super) fn join(arguments: &Arguments) -> Result<Option<Member>> {
        let environment = Environment::from_process()?;
        if environment.world_size == 1 {
            return Ok(None);
        }
        if arguments.threads.is_none() {
            let cores = thread::available_parallelism().map_or(1, usize::from);
            neurenix::set_threads((cores / environment.local_world_size.max(1)).max(1))?;
        }
        let group = distributed::init(&InitOptions::default())?;
        Ok(Some(Member { group, environment }))
    }

    /// Whether this process writes the run's folder and prints.
    pub(super) fn leads(&self) -> bool {
        self.group.rank() == 0
    }

    /// The device of this process, of those of one kind: by its number on this machine.
    pub(super) fn device(&self, first: Device) -> Result<Device> {
        match first.name().split_once(':') {
            Some((kind, _)) if self.environment.local_world_size > 1 => {
                Ok(Device::find(&format!("{kind}:{}", self.environment.local_rank))?)
            }
            _ => Ok(first),
        }
    }

    /// The folder of the run that a failure ended, if the launcher has started its processes again.
    pub(super) fn begun(&self, arguments: &Arguments) -> Option<PathBuf> {
        let out = arguments.out.as_ref().filter(|_| self.environment.restart_count > 0)?;
        RunFolder::at(out).checkpoint_path().exists().then(|| out.clone())
    }

    /// Trains without a folder, while another process leads.
    pub(super) fn follow(&self, trainer: &mut Trainer<'_>, parts: &Parts) -> Result<u8> {
        let mut observer = Follower(Run::begin());
        let ending = trainer.run(&parts.training, Some(&parts.validation), &mut observer)?;
        Ok(if ending == Ending::Interrupted { INTERRUPTED } else { SUCCESS })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        distributed::destroy();
    }
}

/// Only watches for Ctrl-C.
struct Follower(#[expect(dead_code, reason = "held while the run goes on")] Run);

impl Observer for Follower {
    fn step(&mut self, _: &StepReport) -> bool {
        !is_stopped()
    }
}
