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

/// The usual folder for [`crate::Options::cache`]: `neurenix/npu` in the user's cache folder. `None` if the user has
/// none.
pub fn cache_folder() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let home = || set("HOME").map(|home| home.join(".cache")).or_else(|| set("LOCALAPPDATA"));
    Some(set("XDG_CACHE_HOME").or_else(home)?.join("neurenix").join("npu"))
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
}
