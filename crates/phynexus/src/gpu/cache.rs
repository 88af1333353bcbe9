//! Machine code on disk.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

/// A folder keeps no more than this.
const CACHE_BYTES: u64 = 512 << 20;

/// After so many new files the oldest are looked for.
const LOOK_EVERY: u64 = 64;

/// A folder of machine code, found by what it was made from. What is damaged is made anew.
pub struct DiskCache {
    /// Absent where no folder of the user's can be had: then nothing is kept.
    folder: Option<PathBuf>,
    written: AtomicU64,
}

impl DiskCache {
    /// The folder that the environment's `variable` names, else one for this `family` of devices in the user's cache. It
    /// belongs to this user alone: what lies there is run.
    pub fn new(family: &str, variable: &str) -> DiskCache {
        let set = |name: &str| env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let usual = || {
            let home = || set("HOME").map(|home| home.join(".cache")).or_else(|| set("LOCALAPPDATA"));
            Some(set("XDG_CACHE_HOME").or_else(home)?.join("neurenix").join(family))
        };
        let folder = set(variable).or_else(usual).filter(|folder| private(folder).is_ok());
        DiskCache { folder, written: AtomicU64::new(0) }
    }

    /// The code made from `key` (source, compiler and options), from the disk or from `make`. A cache that cannot be
    /// written costs time, nothing else.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get<E>(&self, key: &str, make: impl FnOnce() -> Result<Vec<u8>, E>) -> Result<Vec<u8>, E> {
        let file = self.folder.as_ref().map(|folder| folder.join(file_name(key)));
        if let Some(code) = file.as_deref().and_then(|file| read(file, key)) {
            return Ok(code);
        }
        let code = make()?;
        if let Some(file) = file {
            let number = self.written.fetch_add(1, Ordering::Relaxed);
            let _ = write(&file, key, &code, number);
            if let Some(folder) = self.folder.as_deref().filter(|_| number % LOOK_EVERY == LOOK_EVERY - 1) {
                let _ = shrink(folder, CACHE_BYTES);
            }
        }
        Ok(code)
    }
}

/// Makes the folder, for this user alone; refuses one that others own or may write.
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

/// An error unless a folder of this owner and mode is the user's, and nobody else may write it.
#[cfg(unix)]
fn is_alone(owner: u32, mode: u32, user: u32) -> io::Result<()> {
    if owner == user && mode & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "the folder is not this user's alone"))
}

fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn file_name(key: &str) -> String {
    format!("{:016x}.bin", hash(key))
}

/// The machine code in a file, if it is whole and that of this key: a file is the length of its key, a hash of the code,
/// the key and the code.
fn read(file: &Path, key: &str) -> Option<Vec<u8>> {
    let bytes = fs::read(file).ok()?;
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (hashed, rest) = rest.split_first_chunk::<8>()?;
    let (found, code) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    (found == key.as_bytes() && u64::from_le_bytes(*hashed) == hash(code)).then(|| code.to_vec())
}

/// Writes a file that is there completely or not at all.
fn write(file: &Path, key: &str, code: &[u8], number: u64) -> io::Result<()> {
    let temporary = file.with_extension(format!("{}.{number}.tmp", std::process::id()));
    let mut out = fs::File::create(&temporary)?;
    let header = [key.len() as u64, hash(code)].map(u64::to_le_bytes);
    [header.as_flattened(), key.as_bytes(), code].iter().try_for_each(|part| out.write_all(part))?;
    drop(out);
    fs::rename(&temporary, file).inspect_err(|_| drop(fs::remove_file(&temporary)))
}

/// Removes the oldest files beyond so many bytes.
fn shrink(folder: &Path, most: u64) -> io::Result<()> {
    let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let data = entry.metadata()?;
        if data.is_file() {
            files.push((data.modified()?, data.len(), entry.path()));
        }
    }
    let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    files.sort();
    for (_, bytes, path) in files {
        if total <= most {
            break;
        }
        fs::remove_file(path)?;
        total -= bytes;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_gives_back_what_it_was_given_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.bin");
        write(&file, "key", &[1, 2, 3], 0).unwrap();
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
    fn the_oldest_files_go_first() {
        let folder = tempfile::tempdir().unwrap();
        for (age, name) in ["old", "middle", "new"].iter().enumerate() {
            let path = folder.path().join(name);
            fs::write(&path, [0; 100]).unwrap();
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(age as u64 * 100);
            fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        }
        shrink(folder.path(), 250).unwrap();
        let left: Vec<bool> =
            ["old", "middle", "new"].iter().map(|n| folder.path().join(n).exists()).collect();
        assert_eq!(left, [false, true, true]);
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
        // Only the system's administrator may give folders away.
        if std::os::unix::fs::chown(&own, Some(owner + 1), None).is_ok() {
            assert!(private(&own).is_err());
        }
    }
}
