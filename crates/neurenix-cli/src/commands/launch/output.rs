//! The output of ranks, in lines that begin with the rank.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

/// Longer lines are divided.
const LONGEST: u64 = 1 << 16;
/// How long to wait for output after the ranks have ended: a program that they left behind may hold their pipes open.
const PATIENCE: Duration = Duration::from_secs(1);

/// Threads that copy the output of ranks.
pub(super) struct Output {
    done: Receiver<()>,
    when_done: Sender<()>,
    readers: usize,
}

impl Default for Output {
    fn default() -> Output {
        let (when_done, done) = channel();
        Output { done, when_done, readers: 0 }
    }
}

impl Output {
    /// Makes a process write to pipes.
    pub(super) fn prepare(command: &mut Command) {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // Python would keep lines until it has many.
        command.env("PYTHONUNBUFFERED", "1");
    }

    /// Copies what a process writes.
    pub(super) fn follow(&mut self, rank: usize, child: &mut Child) {
        if let Some(from) = child.stdout.take() {
            self.copy(rank, from, || io::stdout().lock());
        }
        if let Some(from) = child.stderr.take() {
            self.copy(rank, from, || io::stderr().lock());
        }
    }

    fn copy<W: Write + 'static>(&mut self, rank: usize, from: impl Read + Send + 'static, to: fn() -> W) {
        let when_done = self.when_done.clone();
        self.readers += 1;
        thread::spawn(move || {
            // If the output is closed, the process gets an error when it writes, as without a pipe.
            let _ = copy_lines(rank, from, to);
            // Nobody listens once the patience is over.
            let _ = when_done.send(());
        });
    }

    /// Waits until everything is copied.
    pub(super) fn finish(self) {
        let deadline = Instant::now() + PATIENCE;
        for _ in 0..self.readers {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.done.recv_timeout(left).is_err() {
                return;
            }
        }
    }
}

fn copy_lines<W: Write>(rank: usize, from: impl Read, to: impl Fn() -> W) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let prefix = format!("[{rank}] ");
    let mut line = Vec::new();
    loop {
        // One write for a line, so that others cannot come between.
        line.clear();
        line.extend_from_slice(prefix.as_bytes());
        if from.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        let mut to = to();
        to.write_all(&line)?;
        to.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(text: &[u8]) -> Vec<u8> {
        let written = std::cell::RefCell::new(Vec::new());
        struct To<'a>(std::cell::RefMut<'a, Vec<u8>>);
        impl Write for To<'_> {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        copy_lines(3, text, || To(written.borrow_mut())).unwrap();
        written.into_inner()
    }

    #[test]
    fn every_line_begins_with_the_rank() {
        assert_eq!(copied(b""), b"");
        assert_eq!(copied(b"a b\n\nc"), b"[3] a b\n[3] \n[3] c\n");
        assert_eq!(copied(b"\xff\n"), b"[3] \xff\n");
        let long = copied(&[b'x'; LONGEST as usize + 1]);
        assert_eq!(long.iter().filter(|&&byte| byte == b'\n').count(), 2);
    }
}
