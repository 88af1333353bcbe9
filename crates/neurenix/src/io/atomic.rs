//! Writing a file so that it is there completely or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// Writes a file through `write`, so that `path` holds the whole new contents or stays as it was.
///
/// The bytes go to a temporary file in the same folder, are forced to the disk, and take the place of the old file by
/// renaming, which the operating system does in one step. A missing folder is created. On any error, a full disk
/// included, the temporary file is removed. A symbolic link stays one: the file that it names is written. On Unix a file that
/// is replaced passes its permissions on.
///
/// # Errors
/// What `write` returns, or an [`Error::Io`] naming `path`, which may also name a device, a pipe or a socket.
pub fn write_atomically(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let fail = |e| Error::io("write", path, e);
    let refused = |reason: &str| fail(io::Error::new(io::ErrorKind::InvalidInput, reason));
    let replaced = match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Err(fail(io::Error::from(io::ErrorKind::IsADirectory))),
        // Renaming would take the place of a device or pipe instead of writing to it.
        Ok(found) if !found.is_file() => {
            return Err(refused("this is a device, a pipe or a socket, a regular file is needed"));
        }
        // The system may forbid to follow a link of somebody else's, which must not be followed by hand then.
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
        return Err(refused("this names no file: give a path that ends in a file's name"));
    };
    fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;

    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let (file, temporary) = loop {
        let unique = COUNTER.fetch_add(1, Ordering::Relaxed);
        let mut temporary_name = std::ffi::OsString::from(".");
        temporary_name.push(name);
        temporary_name.push(format!(".{}-{unique}.tmp", std::process::id()));
        let path = folder.join(temporary_name);
        // A new file, never one that lies there: it could be a link that leads elsewhere.
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

/// [`write_atomically`] for contents that are in memory.
///
/// # Errors
/// An [`Error::Io`] naming `path`.
pub fn write_bytes_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    write_atomically(path, |file| file.write_all(bytes).map_err(|e| Error::io("write", path, e)))
}

/// How a temporary file is made: what replaces a file is for its owner alone until it has that file's permissions.
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

/// The path behind symbolic links, whether or not a file lies there.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_owned();
    // As many as Linux follows, and the file behind the last.
    for _ in 0..=40 {
        match fs::read_link(&target) {
            // From the link's folder, if it is not a path from the root.
            Ok(named) => target = target.parent().unwrap_or(Path::new("")).join(named),
            // No link. What else is wrong with it is told when it is written.
            Err(_) => return Ok(target),
        }
    }
    Err(io::Error::other("this is a link in a circle of symbolic links: name a file"))
}

/// A file that is removed when it goes out of scope, unless it was renamed.
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
        // A file that is not there yet.
        fs::remove_file(&real)?;
        write_bytes_atomically(&link, b"two")?;
        assert_eq!(fs::read(&real)?, b"two");
        assert!(fs::symlink_metadata(inner.join("second"))?.is_symlink());
        let circle = folder.path().join("circle");
        std::os::unix::fs::symlink("circle", &circle)?;
        let message = write_bytes_atomically(&circle, b"x").unwrap_err().to_string();
        assert!(message.contains("circle of symbolic links"), "{message}");
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
        // A new file has what the process gives its files.
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
        assert!(message.contains("this names no file"), "{message}");
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
