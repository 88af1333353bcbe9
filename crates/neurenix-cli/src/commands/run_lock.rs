//! The lock on a run's folder: one run at a time writes into it.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{ErrorKind, Read, Write},
    path::Path,
};

use neurenix::{Error, Result};

/// The file in a run's folder: while the run lives it is locked and holds the number of its process. A killed run leaves it
/// unlocked.
pub(super) const LOCK: &str = "run.lock";

/// Takes a folder's lock, which is held until the file is closed. `option` is what is refused where another run holds it.
pub(super) fn take(folder: &Path, option: &str) -> Result<File> {
    let path = folder.join(LOCK);
    let fail = |e| Error::io("lock", &path, e);
    // Not emptied before it is locked: it says who holds it.
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).create(true).truncate(false).open(&path).map_err(fail)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Where a locked file cannot be read, the message does without.
            let _ = file.read_to_string(&mut holder);
            let message = format!(
                "the run in {} has not ended (process {}): wait for it, or stop it",
                folder.display(),
                holder.trim()
            );
            return Err(Error::data(option, message));
        }
        // Some file systems of networks have no locks; a run there is as it was without.
        Err(TryLockError::Error(e)) if e.kind() == ErrorKind::Unsupported => {}
        Err(TryLockError::Error(e)) => return Err(fail(e)),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(fail)?;
    Ok(file)
}
