//! Programs of vendors that are run: without a shell, with a time limit, in a folder that is removed afterwards.

use std::{
    ffi::OsStr,
    fs, io,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
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
        Err(Error::Invalid(format!("no folder can be made in {}", root.display())))
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

/// Runs a program in `folder`, and ends it after `limit`.
pub(crate) fn run(program: &Path, arguments: &[&OsStr], folder: &Path, limit: Duration) -> Result<Printed> {
    let failed = |source: io::Error| Error::File { path: program.to_owned(), source };
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    // Both pipes are emptied at once: a program waits while a pipe is full.
    let output = reader(child.stdout.take());
    let errors = reader(child.stderr.take());
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if start.elapsed() > limit {
            let ended = child.kill().and_then(|()| child.wait());
            ended.map_err(failed)?;
            let seconds = limit.as_secs();
            return Err(Error::Runtime {
                runtime: program.display().to_string(),
                message: format!("it did not end within {seconds} seconds"),
            });
        }
        thread::sleep(Duration::from_millis(5));
    };
    let text = |thread: thread::JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&thread.join().unwrap_or_default()).into_owned()
    };
    Ok(Printed { output: text(output), errors: text(errors), succeeded: status.success() })
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before an error is still of use in a message.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

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
}
