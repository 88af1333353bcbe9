//! The lock on a run's folder: only one run at a time writes into it.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{ErrorKind, Read, Write},
    path::Path,
};

use neurenix::{Error, Result};

/// The lock file. It is locked while the run is active and holds its process ID. A killed run leaves it unlocked.
pub(super) const LOCK: &str = "run.lock";

/// Locks a folder until the returned file is closed. `option` is the command-line option that the error names.
pub(super) fn take(folder: &Path, option: &str) -> Result<File> {
    let path = folder.join(LOCK);
    let fail = |e| Error::io("lock", &path, e);
    // Truncated only after locking: until then it holds the ID of the owning process.
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).create(true).truncate(false).open(&path).map_err(fail)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Some systems cannot read a locked file; the message then lacks the process ID.
            let _ = file.read_to_string(&mut holder);
            let message = format!(
                "the run in {} is still active (process {}): wait for it, or stop it",
                folder.display(),
                holder.trim()
            );
            return Err(Error::data(option, message));
        }
        // Some network file systems have no locks; runs there are not protected.
        Err(TryLockError::Error(e)) if e.kind() == ErrorKind::Unsupported => {}
        Err(TryLockError::Error(e)) => return Err(fail(e)),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(fail)?;
    Ok(file)
}
