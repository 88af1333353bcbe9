//! An on-disk cache of machine code.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

/// The maximum size of a cache folder, in bytes.
const CACHE_BYTES: u64 = 512 << 20;

/// The folder is trimmed at a process's first new file and after every `LOOK_EVERY` further files.
const LOOK_EVERY: u64 = 64;

/// A folder of machine code, keyed by what it was compiled from. Damaged entries are recompiled.
pub struct DiskCache {
    /// `None` if no usable folder exists. Nothing is cached then.
    folder: Option<PathBuf>,
    written: AtomicU64,
}

impl DiskCache {
    /// Opens the folder named by the environment variable `variable`, otherwise one for this `family` of devices in the
    /// user's cache directory. Its contents are executed, so only this user may own and write it. If that fails,
    /// nothing is cached; for a folder named by the variable, a warning goes to standard error.
    pub fn new(family: &str, variable: &str) -> DiskCache {
        let set = |name: &str| env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let usual = || {
            let local = || if cfg!(windows) { set("LOCALAPPDATA") } else { None };
            let home = || set("HOME").map(|home| home.join(".cache"));
            Some(set("XDG_CACHE_HOME").or_else(local).or_else(home)?.join("neurenix").join(family))
        };
        let named = set(variable);
        let is_named = named.is_some();
        let folder = named.or_else(usual).filter(|folder| match private(folder) {
            Ok(()) => true,
            Err(error) => {
                if is_named && let Some(news) = refusal(variable, folder, &error) {
                    let _ = writeln!(io::stderr(), "{news}");
                }
                false
            }
        });
        DiskCache { folder, written: AtomicU64::new(0) }
    }

    /// Returns the code for `key` (source, compiler and options), from the disk or from `make`. If the cache cannot be
    /// written, only time is lost.
    ///
    /// # Errors
    /// Errors of `make`.
    pub fn get<E>(&self, key: &str, make: impl FnOnce() -> Result<Vec<u8>, E>) -> Result<Vec<u8>, E> {
        let file = self.folder.as_ref().map(|folder| folder.join(file_name(key)));
        if let Some(code) = file.as_deref().and_then(|file| read(file, key)) {
            return Ok(code);
        }
        let code = make()?;
        if let Some(file) = file {
            let _ = write(&file, key, &code);
            let number = self.written.fetch_add(1, Ordering::Relaxed);
            if let Some(folder) = self.folder.as_deref().filter(|_| number.is_multiple_of(LOOK_EVERY)) {
                shrink(folder, CACHE_BYTES, fs::remove_file);
            }
        }
        Ok(code)
    }
}

/// Returns whether a source may include other files. Those can change while the source stays the same, so its code must
/// not be cached on disk. Any occurrence of the word counts, because the directive has many spellings. A false positive
/// only costs time.
pub fn may_include(source: &str) -> bool {
    source.contains("include")
}

/// Returns a warning about an unusable folder named by a variable. Each variable is reported once per process, although
/// every device has a cache.
fn refusal(variable: &str, folder: &Path, error: &io::Error) -> Option<String> {
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.iter().any(|known| known == variable) {
        return None;
    }
    told.push(variable.to_owned());
    Some(format!("{variable}: compiled kernels cannot be cached in {}: {error}", folder.display()))
}

/// Creates the folder for this user alone. Fails if another user owns it or may write to it.
fn private(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let data = fs::metadata(folder)?;
        is_alone(data.uid(), data.permissions().mode(), rustix::process::geteuid().as_raw())
    }
    #[cfg(not(unix))]
    fs::create_dir_all(folder)
}

/// Fails unless the user owns the folder and no other user may write to it.
#[cfg(unix)]
fn is_alone(owner: u32, mode: u32, user: u32) -> io::Result<()> {
    if owner == user && mode & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "it belongs to another user, or other users may write to it",
    ))
}

fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn file_name(key: &str) -> String {
    format!("{:016x}.bin", hash(key))
}

/// Reads the machine code from a file, if it is intact and belongs to this key. File format: length of the key, hash of
/// the code, key, code.
fn read(file: &Path, key: &str) -> Option<Vec<u8>> {
    let bytes = fs::read(file).ok()?;
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (hashed, rest) = rest.split_first_chunk::<8>()?;
    let (found, code) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    (found == key.as_bytes() && u64::from_le_bytes(*hashed) == hash(code)).then(|| code.to_vec())
}

/// Writes a file atomically.
fn write(file: &Path, key: &str, code: &[u8]) -> io::Result<()> {
    // Several devices may share a folder, and several threads may write to it.
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let number = WRITES.fetch_add(1, Ordering::Relaxed);
    let temporary = file.with_extension(format!("{}.{number}.tmp", std::process::id()));
    let mut out = fs::File::create(&temporary)?;
    let header = [key.len() as u64, hash(code)].map(u64::to_le_bytes);
    [header.as_flattened(), key.as_bytes(), code].iter().try_for_each(|part| out.write_all(part))?;
    drop(out);
    fs::rename(&temporary, file).inspect_err(|_| drop(fs::remove_file(&temporary)))
}

/// Removes the oldest files until at most `most` bytes remain, with `remove`. A file that cannot be removed is skipped.
fn shrink(folder: &Path, most: u64, remove: impl Fn(PathBuf) -> io::Result<()>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let file = |entry: fs::DirEntry| {
        let data = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some((data.modified().ok()?, data.len(), entry.path()))
    };
    let mut files: Vec<(SystemTime, u64, PathBuf)> = entries.flatten().filter_map(file).collect();
    let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    files.sort();
    for (_, bytes, path) in files {
        if total <= most {
            break;
        }
        let is_gone = match remove(path) {
            Ok(()) => true,
            // Another process removed it first.
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if is_gone {
            total -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_gives_back_what_it_was_given_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.bin");
        write(&file, "key", &[1, 2, 3]).unwrap();
        assert_eq!(read(&file, "key"), Some(vec![1, 2, 3]));
        assert_eq!(read(&file, "kez"), None);
        let bytes = fs::read(&file).unwrap();
        let damaged = folder.path().join("b.bin");
        for length in 0..bytes.len() {
            fs::write(&damaged, &bytes[..length]).unwrap();
            assert_eq!(read(&damaged, "key"), None, "{length} bytes");
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 16;
            fs::write(&damaged, &flipped).unwrap();
            assert_eq!(read(&damaged, "key"), None, "byte {at}");
        }
    }

    #[test]
    fn what_is_damaged_is_made_anew_and_what_fails_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache { folder: Some(folder.path().to_owned()), written: AtomicU64::new(0) };
        assert_eq!(cache.get("k", || Err("no")), Err("no"));
        assert_eq!(cache.get("k", || Ok::<_, ()>(vec![7])), Ok(vec![7]));
        assert_eq!(cache.get("k", || Err("not asked")), Ok(vec![7]));
        fs::write(folder.path().join(file_name("k")), b"garbage").unwrap();
        assert_eq!(cache.get("k", || Ok::<_, ()>(vec![8])), Ok(vec![8]));
        assert_eq!(cache.get("k", || Err("not asked")), Ok(vec![8]));
    }

    #[test]
    fn sources_that_may_include_files_are_known() {
        let sources = ["#include <a.h>", "  # include \"a.h\"\n", "/* */ %: include <a.h>"];
        for source in sources {
            assert!(may_include(source), "{source}");
        }
        assert!(!may_include("__kernel void f(__global float* y) { y[0] = 1; }"));
    }

    /// Makes a file of `bytes` bytes, dated `seconds` after the Unix epoch.
    fn aged(path: &Path, bytes: u64, seconds: u64) {
        let file = fs::File::create(path).unwrap();
        file.set_len(bytes).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
    }

    #[test]
    fn the_oldest_files_go_first_and_what_cannot_be_removed_stays() {
        let names = ["old", "middle", "new"];
        let left = |remove: fn(PathBuf) -> io::Result<()>| {
            let folder = tempfile::tempdir().unwrap();
            names.iter().zip(0..).for_each(|(name, age)| aged(&folder.path().join(name), 100, age * 100));
            shrink(folder.path(), 250, remove);
            names.map(|name| folder.path().join(name).exists())
        };
        assert_eq!(left(fs::remove_file), [false, true, true]);
        let but_the_oldest = |path: PathBuf| match path.ends_with("old") {
            true => Err(io::ErrorKind::PermissionDenied.into()),
            false => fs::remove_file(path),
        };
        assert_eq!(left(but_the_oldest), [true, false, true]);
    }

    #[test]
    fn the_first_new_file_of_a_process_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let old = folder.path().join("old.bin");
        // A sparse file takes no space on disk.
        aged(&old, CACHE_BYTES, 0);
        let cache = DiskCache { folder: Some(folder.path().to_owned()), written: AtomicU64::new(0) };
        assert_eq!(cache.get("k", || Ok::<_, ()>(vec![7])), Ok(vec![7]));
        assert!(!old.exists() && folder.path().join(file_name("k")).exists());
    }

    #[test]
    fn a_folder_that_is_named_and_not_used_is_told_once() {
        let error = io::Error::from(io::ErrorKind::PermissionDenied);
        let told = |variable| refusal(variable, Path::new("/a/folder"), &error);
        let news = told("RNN_TEST_CACHE_PATH").expect("the first time");
        assert!(news.contains("RNN_TEST_CACHE_PATH") && news.contains("/a/folder"), "{news}");
        assert_eq!(told("RNN_TEST_CACHE_PATH"), None);
        assert!(told("RNN_OTHER_CACHE_PATH").is_some());
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_others_may_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own");
        assert!(private(&own).is_ok());
        fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(private(&own).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_of_another_user_is_refused() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own");
        private(&own).unwrap();
        let owner = fs::metadata(&own).unwrap().uid();
        assert!(is_alone(owner, 0o700, owner).is_ok());
        assert!(is_alone(owner, 0o700, owner + 1).is_err());
        assert!(is_alone(owner, 0o720, owner).is_err() && is_alone(owner, 0o702, owner).is_err());
        // Only a privileged user may change a file's owner.
        if std::os::unix::fs::chown(&own, Some(owner + 1), None).is_ok() {
            assert!(private(&own).is_err());
        }
    }
}
