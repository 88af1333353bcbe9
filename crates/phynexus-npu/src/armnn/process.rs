//! The other process: bytes go in and come out, within a time limit.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use super::failed;
use crate::{Error, Result};

/// How often a wait checks for an interruption.
const INTERVAL: Duration = Duration::from_millis(20);

/// A process that answers each request. It ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    requests: Sender<Vec<u8>>,
    answers: Receiver<Vec<u8>>,
}

impl Process {
    /// Starts a process whose first answer is a line, and whose others have `size` bytes.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be started.
    pub(super) fn start(command: &mut Command, size: usize) -> Result<Process> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn();
        let mut child = child.map_err(|source| Error::File { path: command.get_program().into(), source })?;
        let (sender, answers) = channel();
        let (requests, receiver) = channel::<Vec<u8>>();
        let (input, output) = (child.stdin.take(), child.stdout.take());
        // Threads read and write, so that waiting can end. They end with the pipes.
        thread::spawn(move || {
            let Some(mut input) = input else { return };
            let is_written = |bytes: Vec<u8>| input.write_all(&bytes).and_then(|()| input.flush()).is_ok();
            let _ = receiver.into_iter().all(is_written);
        });
        thread::spawn(move || {
            let Some(mut output) = output.map(BufReader::new) else { return };
            let mut answer = Vec::new();
            let mut goes_on = output.read_until(b'\n', &mut answer).is_ok();
            while goes_on && sender.send(answer).is_ok() {
                answer = vec![0; size];
                goes_on = output.read_exact(&mut answer).is_ok();
            }
        });
        Ok(Process { child, requests, answers })
    }

    /// What the process writes next.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if nothing comes within `limit`; if the process ended or the thread is interrupted. The
    /// process is of no use then: a late answer would be taken for that of the next request.
    pub(super) fn answer(&self, limit: Duration) -> Result<Vec<u8>> {
        let start = Instant::now();
        loop {
            match self.answers.recv_timeout(INTERVAL.min(limit)) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => return Err(failed("its process ended".to_owned())),
                Err(RecvTimeoutError::Timeout) if start.elapsed() >= limit => {
                    return Err(Error::TimedOut {
                        runtime: super::KIND.to_owned(),
                        seconds: limit.as_secs(),
                    });
                }
                Err(RecvTimeoutError::Timeout) => phynexus::interrupt::check()?,
            }
        }
    }

    /// Writes a request, and returns the answer.
    ///
    /// # Errors
    /// As for [`Process::answer`].
    pub(super) fn ask(&self, request: Vec<u8>, limit: Duration) -> Result<Vec<u8>> {
        self.requests.send(request).map_err(|_| failed("its process takes no input".to_owned()))?;
        self.answer(limit)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str, size: usize) -> Process {
        Process::start(Command::new("/bin/sh").args(["-c", script]), size).unwrap()
    }

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(100);

    #[test]
    fn requests_are_answered_one_after_the_other() {
        let process = shell("echo ready; exec cat", 3);
        assert_eq!(process.answer(LONG).unwrap(), b"ready\n");
        for text in ["abc", "def"] {
            assert_eq!(process.ask(text.into(), LONG).unwrap(), text.as_bytes());
        }
        let ended = shell("echo ready; read line; printf 12", 3);
        assert_eq!(ended.answer(LONG).unwrap(), b"ready\n");
        assert!(ended.ask(b"x\n".to_vec(), LONG).unwrap_err().to_string().contains("its process ended"));
    }

    #[test]
    fn a_process_that_neither_reads_nor_answers_holds_nothing_up() {
        // More than a pipe holds.
        for size in [1, 1 << 20] {
            let process = shell("echo ready; exec sleep 1000", 3);
            assert_eq!(process.answer(LONG).unwrap(), b"ready\n");
            let start = Instant::now();
            let error = process.ask(vec![0; size], SHORT).unwrap_err();
            assert!(matches!(error, Error::TimedOut { .. }), "{error}");
            drop(process);
            assert!(start.elapsed() < Duration::from_secs(20));
        }
    }
}
