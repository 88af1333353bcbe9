//! Programs of vendors that are run: without a shell, with a time limit, in a folder that is removed afterwards.

use std::{
    ffi::OsStr,
    fs, io,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{Error, Result};

/// A folder for a program's files, which is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// A new, empty folder below the system's folder for temporary files.
    pub(crate) fn new() -> Result<Folder> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let root = std::env::temp_dir();
        // Another process may have left a folder of this name; the next number is free.
        for _ in 0..1000 {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = root.join(format!("neurenix-npu-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Folder(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(Error::File { path, source }),
            }
        }
        Err(Error::File { path: root, source: io::ErrorKind::AlreadyExists.into() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file in the folder.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.0.join(name);
        fs::write(&path, bytes).map_err(|source| Error::File { path: path.clone(), source })?;
        Ok(path)
    }

    /// Reads a file in the folder.
    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.0.join(name);
        fs::read(&path).map_err(|source| Error::File { path, source })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing can be done about a folder that cannot be removed; the system cleans its temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a program printed, and whether it succeeded.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) output: String,
    pub(crate) errors: String,
    pub(crate) succeeded: bool,
}

impl Printed {
    /// The last lines of what the program printed, for a message.
    pub(crate) fn end(&self) -> String {
        let lines = self.output.lines().chain(self.errors.lines());
        let lines: Vec<&str> = lines.map(str::trim).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(4)..].join("; ")
    }
}

/// How long programs may take that only say what is there. On a busy machine, a second becomes many.
pub(crate) const SEARCH_LIMIT: Duration = Duration::from_secs(60);
/// How long the pipes of a program that has ended may stay open: a process that it left behind may hold them.
const LEFT_BEHIND: Duration = Duration::from_secs(1);
/// The most bytes that are kept of a program's output, and of its errors.
const MOST: usize = 16 << 20;

/// Runs a program in `folder`, and ends it and what it started after `limit`.
///
/// # Errors
/// [`Error::File`] if it cannot be started, [`Error::TimedOut`] after the limit, [`Error::Engine`] if the thread is
/// interrupted ([`phynexus::interrupt`]).
pub(crate) fn run(program: &Path, arguments: &[&OsStr], folder: &Path, limit: Duration) -> Result<Printed> {
    let failed = |source: io::Error| Error::File { path: program.to_owned(), source };
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own, so that what the program starts ends with it.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut running = Running(command.spawn().map_err(failed)?);
    // Both pipes are emptied at once: a program waits while a pipe is full.
    let output = Reader::new(running.0.stdout.take());
    let errors = Reader::new(running.0.stderr.take());
    let start = Instant::now();
    let status = loop {
        if let Some(status) = running.0.try_wait().map_err(failed)? {
            break status;
        }
        if start.elapsed() > limit {
            let runtime = program.display().to_string();
            return Err(Error::TimedOut { runtime, seconds: limit.as_secs() });
        }
        phynexus::interrupt::check()?;
        thread::sleep(Duration::from_millis(5));
    };
    let ended = Instant::now();
    while !(output.is_at_end() && errors.is_at_end()) && ended.elapsed() < LEFT_BEHIND {
        phynexus::interrupt::check()?;
        thread::sleep(Duration::from_millis(1));
    }
    Ok(Printed { output: output.text(), errors: errors.text(), succeeded: status.success() })
}

/// A program and what it started: all of it ends when this value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Each may have ended already.
        #[cfg(unix)]
        let _ = rustix::process::kill_process_group(
            rustix::process::Pid::from_child(&self.0),
            rustix::process::Signal::KILL,
        );
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A thread that empties a pipe, and what it has read.
struct Reader {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: thread::JoinHandle<()>,
}

impl Reader {
    fn new(pipe: Option<impl Read + Send + 'static>) -> Reader {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let kept = bytes.clone();
        let thread = thread::spawn(move || {
            let mut buffer = [0; 8192];
            // What was read before an error is still of use in a message.
            let mut pipe = pipe;
            while let Some(Ok(count @ 1..)) = pipe.as_mut().map(|pipe| pipe.read(&mut buffer)) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                let count = count.min(MOST.saturating_sub(kept.len()));
                kept.extend_from_slice(buffer.get(..count).unwrap_or_default());
            }
        });
        Reader { bytes, thread }
    }

    fn is_at_end(&self) -> bool {
        self.thread.is_finished()
    }

    /// What was read so far.
    fn text(&self) -> String {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Result<Printed> {
        let folder = Folder::new().unwrap();
        run(Path::new("/bin/sh"), &["-c".as_ref(), script.as_ref()], folder.path(), limit)
    }

    #[test]
    fn programs_print_and_end() {
        let folder = Folder::new().unwrap();
        let path = folder.path().to_owned();
        let echo = run(Path::new("/bin/echo"), &["a b".as_ref()], &path, Duration::from_secs(10)).unwrap();
        assert_eq!((echo.output.as_str(), echo.succeeded), ("a b\n", true));
        let slow = run(Path::new("/bin/sleep"), &["60".as_ref()], &path, Duration::from_millis(50));
        assert!(slow.unwrap_err().to_string().contains("did not end within"));
        drop(folder);
        assert!(!path.exists());
    }

    /// Whether a process of this id lives; one that ended and was not yet collected does not.
    fn is_alive(id: &str) -> bool {
        let pid = rustix::process::Pid::from_raw(id.trim().parse().unwrap()).unwrap();
        let state = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        rustix::process::test_kill_process(pid).is_ok() && !state.contains(") Z ")
    }

    fn ends(id: &str) -> bool {
        let start = Instant::now();
        while is_alive(id) && start.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(5));
        }
        !is_alive(id)
    }

    #[test]
    fn what_a_program_leaves_behind_ends_and_holds_nothing_up() {
        let start = Instant::now();
        let left = shell("sleep 1000 & echo $!", Duration::from_secs(60)).unwrap();
        assert!(start.elapsed() < Duration::from_secs(20) && left.succeeded);
        assert!(ends(&left.output), "{left:?}");
        let folder = Folder::new().unwrap();
        let file = folder.path().join("id");
        let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let error = shell(&script, Duration::from_millis(500)).unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        assert!(ends(&fs::read_to_string(file).unwrap()));
    }

    #[test]
    fn what_is_kept_of_the_output_is_limited() {
        let printed = shell("head -c 20000000 /dev/zero", Duration::from_secs(60)).unwrap();
        assert_eq!((printed.output.len(), printed.succeeded), (MOST, true));
    }

    #[test]
    fn a_program_ends_when_its_caller_is_interrupted() {
        let start = Instant::now();
        let _watch = phynexus::interrupt::watch(|| true);
        let error = shell("sleep 1000", Duration::from_secs(60)).unwrap_err();
        assert!(matches!(error, Error::Engine(phynexus::Error::Interrupted)), "{error}");
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}
