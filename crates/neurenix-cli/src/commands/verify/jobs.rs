//! Runs a verification in several processes. Kernel compilers barely run in parallel within one process, and a driver
//! that crashes its process loses only a part of the suite.

use std::{
    ffi::OsString,
    io::{Error as IoError, Read},
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

use neurenix::{Result, phynexus::interrupt};
use serde::de::DeserializeOwned;

/// Polling interval.
const INTERVAL: Duration = Duration::from_millis(10);

/// What glibc needs to keep freed memory (mallopt(3)). Otherwise, it returns to the system what a compiler frees after
/// each kernel; getting it again is a seventh of the time.
const KEEP_MEMORY: [(&str, &str); 2] =
    [("MALLOC_TRIM_THRESHOLD_", "1073741824"), ("MALLOC_MMAP_THRESHOLD_", "33554432")];

/// A process and the thread that reads its output. Dropping it kills the process.
struct Job {
    number: usize,
    child: Child,
    output: Option<JoinHandle<std::io::Result<Vec<u8>>>>,
}

impl Drop for Job {
    fn drop(&mut self) {
        // Both fail if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Job {
    fn start(number: usize, program: &[OsString], arguments: &[String]) -> std::io::Result<Job> {
        let (first, rest) = program.split_first().ok_or_else(|| IoError::other("no program to run"))?;
        let mut command = Command::new(first);
        command.args(rest).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        command.envs(KEEP_MEMORY);
        let mut child = command.spawn()?;
        let mut output = child.stdout.take().ok_or_else(|| IoError::other("no output"))?;
        let read = move || {
            let mut text = Vec::new();
            output.read_to_end(&mut text).map(|_| text)
        };
        Ok(Job { number, child, output: Some(thread::Builder::new().spawn(read)?) })
    }

    /// Its output, once it has ended.
    fn ended<T: DeserializeOwned>(&mut self) -> Option<Result<T, String>> {
        let status = match self.child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => status,
            Err(error) => return Some(Err(error.to_string())),
        };
        let printed = self.output.take().and_then(|reader| reader.join().ok()).and_then(std::io::Result::ok);
        let value = serde_json::from_slice(&printed.unwrap_or_default());
        // A process that crashed after writing its report is a failure.
        let ended = status.code().is_some_and(|code| {
            code == i32::from(super::code(true)) || code == i32::from(super::code(false))
        });
        Some(match value {
            Ok(value) if ended => Ok(value),
            Ok(_) => Err(format!("the process crashed after its report: {status}")),
            Err(_) => Err(format!("the process ended without a report: {status}")),
        })
    }
}

/// Runs the program once for each list of arguments, at most `jobs` at a time. Passes each process's number and its
/// output parsed as JSON, or the reason why there is none, to `done` as the processes end. Stops when `done` returns
/// false.
///
/// # Errors
/// If this thread is interrupted; the processes are then killed.
pub(super) fn run<T: DeserializeOwned>(
    program: &[OsString],
    tasks: &[Vec<String>],
    jobs: usize,
    done: &mut dyn FnMut(usize, Result<T, String>) -> bool,
) -> Result<()> {
    let mut waiting = tasks.iter().enumerate();
    let mut running: Vec<Job> = Vec::new();
    loop {
        while running.len() < jobs.max(1)
            && let Some((number, arguments)) = waiting.next()
        {
            match Job::start(number, program, arguments) {
                Ok(job) => running.push(job),
                Err(error) if !done(number, Err(format!("no process: {error}"))) => return Ok(()),
                Err(_) => {}
            }
        }
        if running.is_empty() {
            return Ok(());
        }
        interrupt::check()?;
        thread::sleep(INTERVAL);
        let mut at = 0;
        while at < running.len() {
            let Some(result) = running[at].ended() else {
                at += 1;
                continue;
            };
            if !done(running.swap_remove(at).number, result) {
                return Ok(());
            }
        }
    }
}
