//! Processes that were started, and how they end.

use std::{
    path::Path,
    process::{Child, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use neurenix::{Error, Result, phynexus::interrupt};

use super::{GRACE, stops};

/// Exit codes of errors that would occur again: wrong usage, by the convention of clap and Python's argparse, and those of
/// shells for programs that cannot be executed or are not found.
const FINAL: [i32; 3] = [super::super::USAGE as i32, 126, 127];

/// The process that failed first.
pub(super) struct Failed {
    pub(super) rank: usize,
    pub(super) status: ExitStatus,
    /// Whether a process ended with an error that would occur again.
    pub(super) is_final: bool,
}

pub(super) enum Outcome {
    Success,
    /// By a signal to this process.
    Stopped,
    Failed(Failed),
}

/// Running processes with their ranks. They are killed on drop.
pub(super) struct Processes {
    running: Vec<(usize, Child)>,
    /// How long they may take to end after a signal.
    patience: Option<Duration>,
}

impl Processes {
    pub(super) fn new(patience: Option<Duration>) -> Processes {
        Processes { running: Vec::new(), patience }
    }

    pub(super) fn push(&mut self, rank: usize, child: Child) {
        self.running.push((rank, child));
    }

    /// Waits for all. If one fails, or a signal asks for it, the others are ended.
    pub(super) fn wait(&mut self) -> Result<Outcome> {
        let mut outcome = Outcome::Success;
        let mut deadline: Option<Instant> = None;
        loop {
            for (rank, status) in self.ended()? {
                let is_final = status.code().is_some_and(|code| FINAL.contains(&code));
                match &mut outcome {
                    Outcome::Success if !status.success() => {
                        // The others notice by themselves that one has ended, and say so.
                        deadline = Some(Instant::now() + GRACE);
                        outcome = Outcome::Failed(Failed { rank, status, is_final });
                    }
                    // Others may fail earlier because this one did.
                    Outcome::Failed(failed) if is_final && !failed.is_final => {
                        *failed = Failed { rank, status, is_final };
                    }
                    _ => {}
                }
            }
            if self.running.is_empty() {
                return Ok(outcome);
            }
            let stops = stops();
            if stops > 0 && !matches!(outcome, Outcome::Stopped) {
                outcome = Outcome::Stopped;
                deadline = self.patience.map(|patience| Instant::now() + patience);
                self.pass_on();
            }
            if stops > 1 || deadline.is_some_and(|deadline| deadline < Instant::now()) {
                self.kill();
            }
            // Python runs signal handlers when it is asked to.
            interrupt::check()?;
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Removes the processes that have ended.
    fn ended(&mut self) -> Result<Vec<(usize, ExitStatus)>> {
        let mut ended = Vec::new();
        let mut running = Vec::new();
        for (rank, mut child) in self.running.drain(..) {
            match child.try_wait() {
                Ok(Some(status)) => ended.push((rank, Ok(status))),
                Ok(None) => running.push((rank, child)),
                Err(error) => ended.push((rank, Err(error))),
            }
        }
        self.running = running;
        let wrong = |error| Error::io("wait for", Path::new("a process"), error);
        ended.into_iter().map(|(rank, status)| Ok((rank, status.map_err(wrong)?))).collect()
    }

    /// Sends the processes the signal that this process received.
    fn pass_on(&mut self) {
        #[cfg(unix)]
        self.signal(match super::super::signal() {
            super::super::TERMINATE => rustix::process::Signal::TERM,
            super::super::HANG_UP => rustix::process::Signal::HUP,
            _ => rustix::process::Signal::INT,
        });
        #[cfg(not(unix))]
        self.kill();
    }

    /// Each process leads a group: programs that it started get the signal too, as from a terminal.
    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) {
        for (_, child) in &self.running {
            // What fails here has ended already.
            let _ = rustix::process::kill_process_group(rustix::process::Pid::from_child(child), signal);
        }
    }

    fn kill(&mut self) {
        #[cfg(unix)]
        self.signal(rustix::process::Signal::KILL);
        for (_, child) in &mut self.running {
            // What fails here has ended already.
            let _ = child.kill();
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill();
        for (_, child) in &mut self.running {
            let _ = child.wait();
        }
    }
}
