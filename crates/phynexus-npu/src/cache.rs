//! Compiled networks on the disk.
//!
//! An entry is a file that is named by its key and begins with the key and a checksum. An entry that does not match is
//! as good as none; whoever looked for it writes a new one. If the folder cannot be written, only time is lost.

use std::{
    env, fs,
    hash::{DefaultHasher, Hasher},
    io::{self, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

const MAGIC: &[u8] = b"neurenix-npu 1\n";
/// Hexadecimal digits of a hash.
const DIGITS: usize = 32;
/// The most bytes that the entries of a folder have together.
const MOST: u64 = 512 << 20;

/// The usual folder for [`crate::Options::cache`]: `neurenix/npu` in the user's cache folder. That is `XDG_CACHE_HOME`,
/// else on Windows `LOCALAPPDATA`, else `.cache` in the home folder. `None` if the user has none.
pub fn cache_folder() -> Option<PathBuf> {
    folder_of(|name| env::var_os(name).map(PathBuf::from), env::home_dir())
}

/// The cache folder, given the environment's variables and the user's home folder.
fn folder_of(variable: impl Fn(&str) -> Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let is_set = |path: &PathBuf| !path.as_os_str().is_empty();
    let set = |name: &str| variable(name).filter(is_set);
    let local = || if cfg!(windows) { set("LOCALAPPDATA") } else { None };
    let home = || home.filter(is_set).map(|home| home.join(".cache"));
    Some(set("XDG_CACHE_HOME").or_else(local).or_else(home)?.join("neurenix").join("npu"))
}

/// A hash of these parts, of 128 bits in hexadecimal: two of 64 bits with different beginnings.
pub(crate) fn key(parts: &[&[u8]]) -> String {
    let half = |seed: u64| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(seed);
        for part in parts {
            hasher.write_usize(part.len());
            hasher.write(part);
        }
        hasher.finish()
    };
    format!("{:016x}{:016x}", half(0), half(1))
}

/// Names, sizes and times of the files in a folder: for keys of what a folder's libraries compile.
pub(crate) fn stamp(folder: &Path) -> String {
    let describe = |entry: fs::DirEntry| {
        let data = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some(format!("{:?} {} {:?}", entry.file_name(), data.len(), data.modified().ok()))
    };
    let mut files: Vec<String> =
        fs::read_dir(folder).into_iter().flatten().flatten().filter_map(describe).collect();
    files.sort();
    files.join("\n")
}

/// What is stored under a key, if it is there and whole.
pub(crate) fn read(folder: &Path, key: &str) -> Option<Vec<u8>> {
    let bytes = fs::read(file(folder, key)).ok()?;
    let (own_key, rest) = bytes.strip_prefix(MAGIC)?.split_at_checked(DIGITS)?;
    let (checksum, content) = rest.split_at_checked(DIGITS)?;
    let is_whole = own_key == key.as_bytes() && checksum == self::key(&[content]).as_bytes();
    is_whole.then(|| content.to_vec())
}

/// Stores `content` under a key, in place of what is there. Processes that write the same entry do not disturb each
/// other: the file appears whole.
pub(crate) fn write(folder: &Path, key: &str, content: &[u8]) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!("{key}.{}.{number}", process::id()));
    let written = || -> io::Result<()> {
        make_folder(folder)?;
        let mut out = fs::File::create(&temporary)?;
        for part in [MAGIC, key.as_bytes(), self::key(&[content]).as_bytes(), content] {
            out.write_all(part)?;
        }
        fs::rename(&temporary, file(folder, key))
    };
    if written().is_err() {
        let _ = fs::remove_file(&temporary);
    }
    trim(folder, MOST);
}

/// Removes what OpenVINO, which writes its own files, and [`write`](fn@write) have stored beyond the limit.
pub(crate) fn trim_to_limit(folder: &Path) {
    trim(folder, MOST);
}

/// Removes the entries that were written first, until those that are left have at most `most` bytes. Other files stay.
fn trim(folder: &Path, most: u64) {
    let entry = |entry: fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let (stem, ending) = name.split_once('.')?;
        let is_hash = stem.len() == DIGITS && stem.bytes().all(|digit| digit.is_ascii_hexdigit());
        // Entries, what a process that ended has left of one, and OpenVINO's files.
        let is_left = ending.split('.').all(|part| part.parse::<u64>().is_ok());
        let is_own = is_hash && (ending == "bin" || is_left) || ending == "blob";
        let data = entry.metadata().ok().filter(|data| is_own && data.is_file())?;
        Some((data.modified().ok()?, data.len(), entry.path()))
    };
    let mut entries: Vec<_> =
        fs::read_dir(folder).into_iter().flatten().flatten().filter_map(entry).collect();
    entries.sort();
    let mut total = entries.iter().fold(0, |sum: u64, (_, size, _)| sum.saturating_add(*size));
    for (_, size, path) in entries {
        if total <= most {
            break;
        }
        // One that another process uses stays.
        if fs::remove_file(path).is_ok() {
            total = total.saturating_sub(size);
        }
    }
}

fn file(folder: &Path, key: &str) -> PathBuf {
    folder.join(format!("{key}.bin"))
}

/// Creates the folder. Its contents run on the device, so that no other user should write them.
fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_change_with_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let empty = stamp(folder.path());
        fs::write(folder.path().join("plugin.so"), b"1").unwrap();
        let first = stamp(folder.path());
        assert_eq!(stamp(folder.path()), first);
        fs::write(folder.path().join("plugin.so"), b"22").unwrap();
        let second = stamp(folder.path());
        assert!(empty != first && first != second, "{empty:?} {first:?} {second:?}");
        assert_eq!(stamp(&folder.path().join("missing")), "");
    }

    #[test]
    fn entries_come_back_and_damaged_ones_do_not() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("new");
        let key = key(&[b"network", b"options"]);
        assert_ne!(key, super::key(&[b"networ", b"koptions"]));
        assert_eq!(read(&folder, &key), None);
        write(&folder, &key, b"compiled");
        assert_eq!(read(&folder, &key).as_deref(), Some(&b"compiled"[..]));
        let path = file(&folder, &key);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).unwrap();
            assert_eq!(read(&folder, &key), None, "byte {at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(read(&folder, &key), None, "{at} bytes");
        }
        write(&folder, &key, b"again");
        assert_eq!(read(&folder, &key).as_deref(), Some(&b"again"[..]));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn the_oldest_entries_go_and_other_files_stay() {
        let root = tempfile::tempdir().unwrap();
        let keys: Vec<String> = (0..4u8).map(|at| key(&[&[at]])).collect();
        for (at, key) in keys.iter().enumerate() {
            write(root.path(), key, &[0; 1000]);
            let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000 - at as u64);
            let file = fs::File::options().write(true).open(file(root.path(), key)).unwrap();
            file.set_modified(time).unwrap();
        }
        fs::write(root.path().join("notes.bin"), [0; 5000]).unwrap();
        fs::write(root.path().join("0.blob"), [0; 10]).unwrap();
        let left = || -> Vec<bool> { keys.iter().map(|key| read(root.path(), key).is_some()).collect() };
        trim(root.path(), 1 << 20);
        assert_eq!(left(), [true; 4]);
        trim(root.path(), 2500);
        assert_eq!(left(), [true, true, false, false], "the last was written first");
        trim(root.path(), 0);
        assert_eq!(left(), [false; 4]);
        assert!(!root.path().join("0.blob").exists() && root.path().join("notes.bin").exists());
    }

    #[test]
    fn the_folder_is_the_users() {
        let folder = |set: &[(&str, &str)], home: Option<&str>| {
            let variable = |name: &str| set.iter().find(|(own, _)| *own == name).map(|(_, path)| path.into());
            folder_of(variable, home.map(PathBuf::from))
        };
        let below = |root: &str| Some(Path::new(root).join("neurenix").join("npu"));
        let both = [("XDG_CACHE_HOME", "xdg"), ("LOCALAPPDATA", "local")];
        assert_eq!(folder(&both, Some("home")), below("xdg"));
        let home = Path::new("home").join(".cache");
        let expected = if cfg!(windows) { below("local") } else { below(home.to_str().unwrap()) };
        assert_eq!(folder(&both[1..], Some("home")), expected);
        assert_eq!(folder(&[("XDG_CACHE_HOME", "")], Some("home")), below(home.to_str().unwrap()));
        assert_eq!(folder(&[], None), None);
        assert_eq!(folder(&[], Some("")), None);
    }
}
