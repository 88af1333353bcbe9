//! NumPy's .npz format: a zip archive of .npy files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::npy;
use crate::array::HostArray;
use crate::error::{Error, Location, Result};
use crate::io::{Source, deflate_bound, write_atomically};

const FORMAT: &str = "NumPy .npz";
const MEMBER_FORMAT: &str = "NumPy .npz (a .npy member)";

/// How archive members are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Uncompressed, like `numpy.savez`.
    Stored,
    /// Compressed with deflate, like `numpy.savez_compressed`.
    Deflated,
}

/// Reads every array of a .npz file, by name.
///
/// # Errors
/// If the file cannot be read, is truncated or corrupt, or one of its arrays is not supported (see
/// [`super::read_npy`]).
pub fn read_npz(path: &Path) -> Result<BTreeMap<String, HostArray>> {
    let fail = |e| Error::io("read", path, e);
    let metadata = std::fs::metadata(path).map_err(fail)?;
    if metadata.is_dir() {
        return Err(fail(std::io::Error::from(std::io::ErrorKind::IsADirectory)));
    }
    if !metadata.is_file() {
        // An archive's directory is at its end, so reading needs a seekable file.
        let reason = "this is a device, a pipe or a socket, a regular file is needed";
        return Err(fail(std::io::Error::new(std::io::ErrorKind::InvalidInput, reason)));
    }
    read(BufReader::new(File::open(path).map_err(fail)?), path, metadata.len())
}

/// Writes named arrays to a .npz file atomically.
///
/// # Errors
/// If the file cannot be written.
pub fn write_npz(path: &Path, arrays: &BTreeMap<String, HostArray>, compression: Compression) -> Result<()> {
    let method = match compression {
        Compression::Stored => CompressionMethod::Stored,
        Compression::Deflated => CompressionMethod::Deflated,
    };
    let options = SimpleFileOptions::default().compression_method(method);
    write_atomically(path, |file| {
        let mut archive = ZipWriter::new_stream(file);
        for (name, array) in arrays {
            // A member larger than 4 GiB needs the Zip64 header from the start.
            let options = options.large_file(array.bytes().len() > u32::MAX as usize / 2);
            archive
                .start_file(format!("{name}.npy"), options)
                .map_err(|e| archive_error(path, Location::Whole, e))?;
            npy::write(&mut archive, array).map_err(|e| Error::io("write", path, e))?;
        }
        let file = archive.finish().map_err(|e| archive_error(path, Location::Whole, e))?.into_inner();
        file.flush().map_err(|e| Error::io("write", path, e))
    })
}

fn read(reader: impl Read + Seek, path: &Path, length: u64) -> Result<BTreeMap<String, HostArray>> {
    let mut archive = ZipArchive::new(reader).map_err(|e| archive_error(path, Location::Whole, e))?;
    let mut arrays = BTreeMap::new();
    for index in 0..archive.len() {
        let member = archive.by_index(index).map_err(|e| archive_error(path, Location::Whole, e))?;
        let name = member.name().to_owned();
        let location = Location::Part(name.clone());
        let Some(array_name) = name.strip_suffix(".npy") else {
            return Err(Error::format(
                path,
                FORMAT,
                location,
                "a member is not a .npy file: this is another kind of zip archive",
            ));
        };
        // Sizes in the archive may be corrupt; the length of the whole file bounds the decompressed size.
        let limit = match member.compression() {
            CompressionMethod::Stored => length,
            _ => deflate_bound(length),
        };
        let member_path = path.join(&name);
        let mut source =
            Source::new(member, &member_path, MEMBER_FORMAT, Some(limit)).with_file_length(Some(length));
        let array = npy::read(&mut source)?;
        // Reading to the end makes the archive check the member's CRC-32.
        source.expect_end()?;
        drop(source);
        if arrays.insert(array_name.to_owned(), array).is_some() {
            return Err(Error::format(path, FORMAT, location, "two members have this name: it is corrupt"));
        }
    }
    Ok(arrays)
}

fn archive_error(path: &Path, location: Location, error: ZipError) -> Error {
    match error {
        ZipError::Io(e) if e.kind() == std::io::ErrorKind::StorageFull => Error::io("write", path, e),
        ZipError::Io(e) => {
            Error::format(path, FORMAT, location, format!("it is truncated or corrupt ({e}); fetch it again"))
        }
        e => Error::format(
            path,
            FORMAT,
            location,
            format!("{e}; write it with numpy.savez or numpy.savez_compressed"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::test_support::{arrays_of_every_dtype, survives_mutations};
    use std::io::{Cursor, Write};

    fn sample() -> Result<BTreeMap<String, HostArray>> {
        Ok(arrays_of_every_dtype()?.into_iter().enumerate().map(|(i, a)| (format!("array_{i}"), a)).collect())
    }

    #[test]
    fn archives_round_trip() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.npz");
        for compression in [Compression::Stored, Compression::Deflated] {
            let arrays = sample()?;
            write_npz(&path, &arrays, compression)?;
            assert_eq!(read_npz(&path)?, arrays);
            write_npz(&path, &BTreeMap::new(), compression)?;
            assert!(read_npz(&path)?.is_empty());
        }
        let zeros =
            BTreeMap::from([("zeros".to_owned(), HostArray::from_values(&[100, 1000], &[0f64; 100_000])?)]);
        write_npz(&path, &zeros, Compression::Deflated)?;
        assert!(std::fs::metadata(&path)?.len() < 2000);
        assert_eq!(read_npz(&path)?, zeros);
        Ok(())
    }

    #[test]
    fn corrupt_files_are_errors_never_panics() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.npz");
        let mut arrays = sample()?;
        arrays.retain(|name, _| name.ends_with('1') || name.ends_with('2'));
        for compression in [Compression::Stored, Compression::Deflated] {
            write_npz(&path, &arrays, compression)?;
            survives_mutations(&std::fs::read(&path)?, 4000, |bytes| {
                read(Cursor::new(bytes), &path, bytes.len() as u64).map(drop)
            });
        }
        Ok(())
    }

    #[test]
    fn other_archives_are_explained() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.npz");
        let mut archive = ZipWriter::new(File::create(&path)?);
        archive.start_file("readme.txt", SimpleFileOptions::default())?;
        archive.write_all(b"hello")?;
        archive.finish()?;
        let message = read_npz(&path).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(message.contains("readme.txt"), "{message}");
        assert!(read_npz(folder.path()).is_err());
        Ok(())
    }
}
