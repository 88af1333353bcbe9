//! A byte source with a position, used by all file format readers.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use phynexus::interrupt;

use super::pipe;
use crate::error::{Error, Location, Result};

/// How much memory a header's claim alone can reserve. Beyond that and the file's length, memory grows with the bytes
/// that arrive.
const TRUSTED_BYTES: u64 = 1 << 20;
/// Larger allocations are first compared with the free memory, because a system that overcommits would kill the process
/// when it uses the memory.
const CHECKED_BYTES: u64 = 64 << 20;
/// The number of bytes read between two checks for an interruption.
const PIECE: usize = 4 << 20;

/// The maximum size of `compressed` bytes of deflate after decompression: its best code turns 2 bits into 258 bytes.
pub fn deflate_bound(compressed: u64) -> u64 {
    compressed.saturating_mul(1032)
}

/// Reads the bytes of a named file and tracks the position for error messages.
///
/// It allocates memory only for bytes that arrive, whatever length a header claims.
pub struct Source<'a> {
    reader: Box<dyn Read + 'a>,
    path: PathBuf,
    format: &'static str,
    position: u64,
    limit: Option<u64>,
    /// The most memory to reserve at once.
    trusted: u64,
}

impl<'a> Source<'a> {
    /// Wraps a reader. `limit` is an upper bound on its size, if known; it may be far too large.
    pub fn new(reader: impl Read + 'a, path: &Path, format: &'static str, limit: Option<u64>) -> Source<'a> {
        Source {
            reader: Box::new(reader),
            path: path.to_owned(),
            format,
            position: 0,
            limit,
            trusted: TRUSTED_BYTES,
        }
    }

    /// Allows reserving as much memory at once as the file is long.
    #[must_use]
    pub fn with_file_length(mut self, length: Option<u64>) -> Source<'a> {
        self.trusted = self.trusted.max(length.unwrap_or(0));
        self
    }

    /// Opens a file.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path, format: &'static str) -> Result<Source<'static>> {
        let (file, length) = open(path)?;
        Ok(Source::new(BufReader::new(file), path, format, length).with_file_length(length))
    }

    /// Opens a file. If it starts with a gzip header, it is decompressed.
    ///
    /// # Errors
    /// If it cannot be opened or its first bytes cannot be read.
    pub fn open_maybe_gzip(path: &Path, format: &'static str) -> Result<Source<'static>> {
        let (mut file, length) = open(path)?;
        let mut start = Vec::with_capacity(2);
        (&mut file).take(2).read_to_end(&mut start).map_err(|e| Error::io("read", path, e))?;
        let whole = io::Cursor::new(start.clone()).chain(file);
        if start == [0x1f, 0x8b] {
            let reader = flate2::read::MultiGzDecoder::new(BufReader::new(whole));
            return Ok(Source::new(reader, path, format, length.map(deflate_bound)).with_file_length(length));
        }
        Ok(Source::new(BufReader::new(whole), path, format, length).with_file_length(length))
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates an error at the current position.
    pub fn error(&self, message: impl Into<String>) -> Error {
        self.error_at(self.position, message)
    }

    /// Creates an error at a position.
    pub fn error_at(&self, position: u64, message: impl Into<String>) -> Error {
        Error::format(&self.path, self.format, Location::Byte(position), message)
    }

    /// Reads the next `count` bytes. `what` describes them in error messages.
    ///
    /// # Errors
    /// If the file ends first, or reading fails.
    pub fn take(&mut self, count: usize, what: &str) -> Result<Vec<u8>> {
        let left = self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.position));
        if count as u64 > left {
            return Err(self.error(format!(
                "{what} should have {count} bytes here, but at most {left} remain: the file is truncated or its \
                 header is corrupt; fetch or write it again"
            )));
        }
        if self.limit.is_some() {
            self.must_fit(count as u64)?;
        }
        let start = self.position;
        let bytes = self.read_up_to(count)?;
        if bytes.len() == count {
            return Ok(bytes);
        }
        let got = bytes.len();
        Err(self.error(format!(
            "the file ends here, {got} bytes into {what} of {count} bytes starting at {start}: it is truncated; \
             fetch or write it again"
        )))
    }

    /// Reads up to `count` bytes; fewer at the end of the file.
    fn read_up_to(&mut self, count: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let result = self.read_into(&mut bytes, count);
        self.position += bytes.len() as u64;
        result.map(|()| bytes)
    }

    fn read_into(&mut self, bytes: &mut Vec<u8>, count: usize) -> Result<()> {
        while bytes.len() < count {
            interrupt::check()?;
            if bytes.len() == bytes.capacity() {
                // Allocate only once a byte arrived.
                let mut first = Vec::with_capacity(1);
                let found = (&mut self.reader).take(1).read_to_end(&mut first);
                if found.map_err(|e| self.read_error(e))? == 0 {
                    return Ok(());
                }
                self.make_room(bytes, count)?;
                bytes.append(&mut first);
            }
            let piece = (bytes.capacity().min(count) - bytes.len()).min(PIECE);
            let got = (&mut self.reader).take(piece as u64).read_to_end(bytes);
            if got.map_err(|e| self.read_error(e))? < piece {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns an empty vector with capacity for `bytes` bytes.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn room_for(&self, bytes: usize) -> Result<Vec<u8>> {
        let mut room = Vec::new();
        self.must_fit(bytes as u64)?;
        room.try_reserve_exact(bytes).map_err(|_| self.too_large(bytes as u64, None))?;
        Ok(room)
    }

    /// Reserves memory for more bytes, up to `count` in all.
    fn make_room(&self, bytes: &mut Vec<u8>, count: usize) -> Result<()> {
        let trusted = usize::try_from(self.trusted).unwrap_or(usize::MAX);
        let more = bytes.capacity().saturating_mul(2).max(trusted).min(count) - bytes.len();
        self.must_fit(more as u64)?;
        bytes.try_reserve_exact(more).map_err(|_| self.too_large(more as u64, None))
    }

    /// Returns an error if `bytes` exceeds the free memory.
    fn must_fit(&self, bytes: u64) -> Result<()> {
        if bytes <= CHECKED_BYTES {
            return Ok(());
        }
        match phynexus_cpu::register().memory().available {
            Some(available) if bytes > available => Err(self.too_large(bytes, Some(available))),
            _ => Ok(()),
        }
    }

    fn too_large(&self, needed: u64, available: Option<u64>) -> Error {
        Error::Memory { path: self.path.clone(), needed, available }
    }

    /// Reads the next `N` bytes.
    ///
    /// # Errors
    /// As [`Source::take`].
    pub fn take_array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let bytes = self.take(N, what)?;
        <[u8; N]>::try_from(bytes.as_slice())
            .map_err(|_| phynexus::Error::internal("Source::take_array", "unexpected length").into())
    }

    /// Reads all remaining bytes, at most `most`.
    ///
    /// # Errors
    /// If there are more, or reading fails.
    pub fn take_rest(&mut self, most: usize, what: &str) -> Result<Vec<u8>> {
        let bytes = self.read_up_to(most.saturating_add(1))?;
        if bytes.len() > most {
            return Err(self.error(format!("{what} is longer than the limit of {most} bytes")));
        }
        Ok(bytes)
    }

    /// Checks that the source is at its end.
    ///
    /// # Errors
    /// If a byte follows, or reading fails.
    pub fn expect_end(&mut self) -> Result<()> {
        let mut byte = Vec::with_capacity(1);
        match (&mut self.reader).take(1).read_to_end(&mut byte) {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.error(
                "the contents should end here, but more bytes follow: the header does not match the contents",
            )),
            Err(e) => Err(self.read_error(e)),
        }
    }

    /// Converts a read error: decompression errors become format errors, others I/O errors.
    fn read_error(&self, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => self
                .error(format!(
                    "the compressed contents are corrupt or truncated ({source}); fetch it again"
                )),
            _ => Error::io("read", &self.path, source),
        }
    }
}

/// Opens a regular file or a pipe (whose length is unknown), but not a folder.
fn open(path: &Path) -> Result<(Box<dyn Read>, Option<u64>)> {
    let fail = |e| Error::io("read", path, e);
    let found = fs::metadata(path).map_err(fail)?;
    if found.is_dir() {
        return Err(fail(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    if !found.is_file() {
        return Ok((Box::new(pipe::open(path).map_err(fail)?), None));
    }
    Ok((Box::new(File::open(path).map_err(fail)?), Some(found.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_checked_before_memory_is_taken() {
        let bytes = [1u8, 2, 3];
        let mut source = Source::new(&bytes[..], Path::new("x"), "test", Some(3));
        let message = source.take(usize::MAX, "the data").err().map(|e| e.to_string()).unwrap_or_default();
        assert!(message.contains("at byte 0") && message.contains("at most 3"), "{message}");
        // Without a known length, memory grows with the bytes that arrive.
        let mut source = Source::new(&bytes[..], Path::new("x"), "test", None);
        let message = source.take(usize::MAX, "the data").err().map(|e| e.to_string()).unwrap_or_default();
        assert!(message.contains("at byte 3"), "{message}");
    }

    #[test]
    fn no_more_is_read_than_fits_into_memory() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("sparse");
        // Far more bytes than any machine has memory; on the disk they take no room.
        let length = 1u64 << 43;
        if File::create(&path)?.set_len(length).is_err() {
            return Ok(()); // Not on every file system.
        }
        let refused = Source::open(&path, "test")?.take(length as usize, "the data");
        assert!(matches!(refused, Err(Error::Memory { needed, .. }) if needed == length));
        let refused = Source::open(&path, "test")?.take_rest(usize::MAX, "the data");
        assert!(matches!(refused, Err(Error::Memory { .. })));
        // What decompresses to more than the memory there is: the header alone says so.
        let bytes = [0u8; 3];
        let mut packed = Source::new(&bytes[..], &path, "test", Some(deflate_bound(300 << 20) << 4));
        assert!(matches!(packed.take(1 << 42, "the data"), Err(Error::Memory { .. })));
        Ok(())
    }

    #[test]
    fn every_length_is_read_whole() -> Result<()> {
        let bytes: Vec<u8> = (0..(3 << 20)).map(|i| (i % 251) as u8).collect();
        for length in [0, 1, 31, 33, TRUSTED_BYTES as usize, TRUSTED_BYTES as usize + 1, bytes.len()] {
            for known in [None, Some(length as u64)] {
                let source =
                    || Source::new(&bytes[..length], Path::new("x"), "test", known).with_file_length(known);
                assert!(source().take_rest(usize::MAX, "all")? == bytes[..length]);
                assert!(source().take(length, "all")? == bytes[..length]);
                assert!(source().take(length + 1, "all").is_err());
                assert_eq!(source().take_rest(length.saturating_sub(1), "some").is_err(), length > 0);
            }
        }
        Ok(())
    }

    #[test]
    fn trailing_bytes_are_found() -> Result<()> {
        let mut source = Source::new(&[1u8, 2, 3][..], Path::new("x"), "test", None);
        assert_eq!(source.take_array::<2>("a pair")?, [1, 2]);
        assert!(source.expect_end().is_err());
        assert!(source.expect_end().is_ok());
        Ok(())
    }

    #[test]
    fn folders_and_missing_files_are_errors() {
        assert!(Source::open(Path::new("."), "test").is_err());
        assert!(Source::open_maybe_gzip(Path::new("no such file"), "test").is_err());
    }
}
