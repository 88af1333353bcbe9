//! Atomic file writes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// Writes a file through `write` so that `path` has either the complete new contents or the old ones.
///
/// The bytes go to a temporary file in the same folder and are flushed to disk. Then the file is renamed over the old
/// one, which is atomic. A missing folder is created. On any error, including a full disk, the temporary file is
/// removed. If `path` is a symbolic link, its target is written. On Unix the new file keeps the permissions of the one
/// it replaces.
///
/// # Errors
/// The error that `write` returns, or an [`Error::Io`] for `path`, for example if it is a device, a pipe or a socket.
pub fn write_atomically(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let fail = |e| Error::io("write", path, e);
    let refused = |reason: &str| fail(io::Error::new(io::ErrorKind::InvalidInput, reason));
    let replaced = match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Err(fail(io::Error::from(io::ErrorKind::IsADirectory))),
        // Renaming would replace the device or pipe instead of writing to it.
        Ok(found) if !found.is_file() => {
            return Err(refused("this is a device, a pipe or a socket, a regular file is needed"));
        }
        // The system may refuse to follow another user's link, so it must not be followed manually either.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(fail(e)),
        Ok(found) => Some(found.permissions()),
        Err(_) => None,
    };
    let target = &behind_links(path).map_err(fail)?;
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let Some(name) = target.file_name() else {
        return Err(refused("the path has no file name: give a path that ends in a file name"));
    };
    fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;

    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let (file, temporary) = loop {
        let unique = COUNTER.fetch_add(1, Ordering::Relaxed);
        let mut temporary_name = std::ffi::OsString::from(".");
        temporary_name.push(name);
        temporary_name.push(format!(".{}-{unique}.tmp", std::process::id()));
        let path = folder.join(temporary_name);
        // Create a new file and never open an existing one, which could be a link to elsewhere.
        match new_file(replaced.as_ref()).open(&path) {
            Ok(file) => break (file, Temporary { path, kept: false }),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(fail(e)),
        }
    };
    if cfg!(unix)
        && let Some(permissions) = replaced
    {
        file.set_permissions(permissions).map_err(fail)?;
    }
    let mut writer = BufWriter::with_capacity(1 << 16, file);
    write(&mut writer)?;
    let file = writer.into_inner().map_err(|e| fail(e.into_error()))?;
    file.sync_all().map_err(fail)?;
    drop(file);
    temporary.rename(target).map_err(fail)?;
    sync_folder(folder);
    Ok(())
}

/// [`write_atomically`] for contents in memory.
///
/// # Errors
/// An [`Error::Io`] naming `path`.
pub fn write_bytes_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    write_atomically(path, |file| file.write_all(bytes).map_err(|e| Error::io("write", path, e)))
}

/// Options of the temporary file. A replacement is private to its owner until it gets the old file's permissions.
fn new_file(replaced: Option<&fs::Permissions>) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if replaced.is_some() {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    #[cfg(not(unix))]
    let _ = replaced;
    options
}

/// Resolves symbolic links; the target need not exist.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_owned();
    // Linux follows at most 40 links.
    for _ in 0..=40 {
        match fs::read_link(&target) {
            // A relative link is relative to the link's folder.
            Ok(named) => target = target.parent().unwrap_or(Path::new("")).join(named),
            // Not a link. Any other problem is reported when the file is written.
            Err(_) => return Ok(target),
        }
    }
    Err(io::Error::other("the symbolic links form a cycle: give the path of a file"))
}

/// A file that is removed on drop unless it was renamed.
struct Temporary {
    path: PathBuf,
    kept: bool,
}

impl Temporary {
    fn rename(mut self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            // The original error is the one to report; a leftover temporary file does no harm.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Flushes the renaming to disk, where the system supports it. Elsewhere, a crash may restore the old file, which is
/// complete.
fn sync_folder(folder: &Path) {
    if cfg!(unix) {
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> io::Result<Vec<String>> {
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

    #[cfg(unix)]
    #[test]
    fn links_stay_links_and_their_files_are_written() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let (inner, link) = (folder.path().join("inner"), folder.path().join("link"));
        fs::create_dir(&inner)?;
        let real = inner.join("real");
        fs::write(&real, b"")?;
        std::os::unix::fs::symlink("inner/second", &link)?;
        std::os::unix::fs::symlink("real", inner.join("second"))?;
        write_bytes_atomically(&link, b"one")?;
        assert_eq!(fs::read(&real)?, b"one");
        assert!(fs::symlink_metadata(&link)?.is_symlink());
        // The target does not exist yet.
        fs::remove_file(&real)?;
        write_bytes_atomically(&link, b"two")?;
        assert_eq!(fs::read(&real)?, b"two");
        assert!(fs::symlink_metadata(inner.join("second"))?.is_symlink());
        let circle = folder.path().join("circle");
        std::os::unix::fs::symlink("circle", &circle)?;
        let message = write_bytes_atomically(&circle, b"x").unwrap_err().to_string();
        assert!(message.contains("form a cycle"), "{message}");
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn a_replaced_file_passes_its_permissions_on() -> Result<(), Box<dyn std::error::Error>> {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("file");
        let mode = || fs::metadata(&path).map(|found| found.permissions().mode() & 0o777);
        for wanted in [0o600, 0o666, 0o444] {
            fs::write(&path, b"old")?;
            fs::set_permissions(&path, fs::Permissions::from_mode(wanted))?;
            write_bytes_atomically(&path, b"new")?;
            assert_eq!((fs::read(&path)?, mode()?), (b"new".to_vec(), wanted));
            fs::remove_file(&path)?;
        }
        // A new file gets the process's default permissions.
        write_bytes_atomically(&path, b"new")?;
        fs::write(folder.path().join("ordinary"), b"")?;
        assert_eq!(mode()?, fs::metadata(folder.path().join("ordinary"))?.permissions().mode() & 0o777);
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_regular_file_is_refused() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&path)?;
        let message = write_bytes_atomically(&path, b"x").unwrap_err().to_string();
        assert!(message.contains("a regular file is needed"), "{message}");
        assert!(path.exists());
        assert_eq!(names(folder.path())?, ["socket"]);
        let message = write_bytes_atomically(Path::new(""), b"x").unwrap_err().to_string();
        assert!(message.contains("has no file name"), "{message}");
        Ok(())
    }

    /// Every write to `/dev/full` fails as on a full disk.
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
