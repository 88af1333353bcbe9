//! Writing a file so that it is there completely or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// Writes a file through `write`, so that `path` holds the whole new contents or stays as it was.
///
/// The bytes go to a temporary file in the same folder, are forced to the disk, and take the place of the old file by
/// renaming, which the operating system does in one step. A missing folder is created. On any error, a full disk
/// included, the temporary file is removed.
///
/// # Errors
/// What `write` returns, or an [`Error::Io`] naming `path`.
pub fn write_atomically(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let fail = |e| Error::io("write", path, e);
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let Some(name) = path.file_name() else {
        return Err(Error::data(path.display().to_string(), "this names a folder, not a file to write"));
    };
    fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
    if path.is_dir() {
        return Err(fail(std::io::Error::from(std::io::ErrorKind::IsADirectory)));
    }

    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let (file, temporary) = loop {
        let unique = COUNTER.fetch_add(1, Ordering::Relaxed);
        let mut temporary_name = std::ffi::OsString::from(".");
        temporary_name.push(name);
        temporary_name.push(format!(".{}-{unique}.tmp", std::process::id()));
        let path = folder.join(temporary_name);
        // A new file, never one that lies there: it could be a link that leads elsewhere.
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => break (file, Temporary { path, kept: false }),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(fail(e)),
        }
    };
    let mut writer = BufWriter::with_capacity(1 << 16, file);
    write(&mut writer)?;
    let file = writer.into_inner().map_err(|e| fail(e.into_error()))?;
    file.sync_all().map_err(fail)?;
    drop(file);
    temporary.rename(path).map_err(fail)?;
    sync_folder(folder);
    Ok(())
}

/// [`write_atomically`] for contents that are in memory.
///
/// # Errors
/// An [`Error::Io`] naming `path`.
pub fn write_bytes_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    write_atomically(path, |file| file.write_all(bytes).map_err(|e| Error::io("write", path, e)))
}

/// A file that is removed when it goes out of scope, unless it was renamed.
struct Temporary {
    path: PathBuf,
    kept: bool,
}

impl Temporary {
    fn rename(mut self, target: &Path) -> std::io::Result<()> {
        fs::rename(&self.path, target)?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            // The error that led here is the one to report; a file that cannot be removed does no harm.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Forces the renaming itself to the disk where the system has a way to; elsewhere a crash may bring the old file back,
/// which is still a whole file.
fn sync_folder(folder: &Path) {
    if cfg!(unix) {
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> std::io::Result<Vec<String>> {
        fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    #[test]
    fn a_new_file_replaces_the_old_one() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("new folder").join("file");
        write_bytes_atomically(&path, b"one")?;
        write_bytes_atomically(&path, b"two")?;
        assert_eq!(fs::read(&path)?, b"two");
        assert_eq!(names(&folder.path().join("new folder"))?, ["file"]);
        Ok(())
    }

    #[test]
    fn a_failure_leaves_the_old_file_and_nothing_else() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("file");
        write_bytes_atomically(&path, b"old")?;
        let result = write_atomically(&path, |file| {
            file.write_all(&[0; 1 << 20]).map_err(|e| Error::io("write", &path, e))?;
            Err(Error::data("test", "failed half-way"))
        });
        assert_eq!(result.err().map(|e| e.to_string()).as_deref(), Some("test: failed half-way"));
        assert_eq!(fs::read(&path)?, b"old");
        assert_eq!(names(folder.path())?, ["file"]);
        Ok(())
    }

    #[test]
    fn folders_are_not_overwritten() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        assert!(write_bytes_atomically(folder.path(), b"x").is_err());
        assert!(write_bytes_atomically(Path::new("/"), b"x").is_err());
        assert!(names(folder.path())?.is_empty());
        Ok(())
    }

    /// `/dev/full` fails every write as a full disk does.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_said_clearly() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("file");
        let result = write_atomically(&path, |_| {
            let mut full =
                OpenOptions::new().write(true).open("/dev/full").map_err(|e| Error::io("write", &path, e))?;
            full.write_all(b"x").map_err(|e| Error::io("write", &path, e))
        });
        let message = result.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(message.contains("the disk is full"), "{message}");
        assert!(names(folder.path())?.is_empty());
        Ok(())
    }
}
