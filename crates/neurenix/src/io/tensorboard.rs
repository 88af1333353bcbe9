//! TensorBoard event files with scalars, for `tensorboard --logdir`.
//!
//! An event file is a sequence of little-endian records: length (u64), masked CRC-32C of the length, payload, masked
//! CRC-32C of the payload. A payload is an `Event` message of tensorflow/core/util/event.proto in protocol buffers.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::checksum::crc32c;
use crate::{Error, Result};

/// Writes scalars to a new event file in a log folder.
#[derive(Debug)]
pub struct EventWriter {
    file: BufWriter<File>,
    path: PathBuf,
}

impl EventWriter {
    /// Creates the folder if it does not exist, and a new event file in it.
    ///
    /// # Errors
    /// If either cannot be created.
    pub fn create(folder: &Path) -> Result<EventWriter> {
        fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
        let now = seconds_since_1970();
        // TensorBoard identifies event files by "tfevents" in the name and reads several in order of their names.
        let mut attempt = 0;
        let (file, path) = loop {
            let name =
                format!("events.out.tfevents.{:010}.neurenix.{}.{attempt}", now as u64, std::process::id());
            let path = folder.join(name);
            match File::create_new(&path) {
                Ok(file) => break (file, path),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => attempt += 1,
                Err(e) => return Err(Error::io("create", &path, e)),
            }
        };
        let mut writer = EventWriter { file: BufWriter::new(file), path };
        writer.write_record(&version_event(now))?;
        writer.flush()?;
        Ok(writer)
    }

    /// The event file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a point: the value of `tag` (for example "loss/train") at a step.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn scalar(&mut self, tag: &str, step: u64, value: f32) -> Result<()> {
        self.write_record(&scalar_event(seconds_since_1970(), tag, step, value))
    }

    /// Flushes all points to the operating system, so that a running TensorBoard sees them.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(|e| Error::io("write", &self.path, e))
    }

    fn write_record(&mut self, payload: &[u8]) -> Result<()> {
        self.file.write_all(&record(payload)).map_err(|e| Error::io("write", &self.path, e))
    }
}

fn seconds_since_1970() -> f64 {
    // If the clock is before 1970, use 0; TensorBoard can plot by step.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// The first event of a file: `Event { wall_time = 1, file_version = 3 }`.
fn version_event(wall_time: f64) -> Vec<u8> {
    let mut event = Vec::new();
    put_double(&mut event, 1, wall_time);
    put_bytes(&mut event, 3, b"brain.Event:2");
    event
}

/// `Event { wall_time = 1, step = 2, summary = 5: Summary { value = 1: Value { tag = 1, simple_value = 2 } } }`
fn scalar_event(wall_time: f64, tag: &str, step: u64, value: f32) -> Vec<u8> {
    let mut point = Vec::new();
    put_bytes(&mut point, 1, tag.as_bytes());
    put_key(&mut point, 2, 5);
    point.extend_from_slice(&value.to_le_bytes());
    let mut summary = Vec::new();
    put_bytes(&mut summary, 1, &point);
    let mut event = Vec::new();
    put_double(&mut event, 1, wall_time);
    put_key(&mut event, 2, 0);
    put_varint(&mut event, step);
    put_bytes(&mut event, 5, &summary);
    event
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a field key: the field number and the wire type (0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes).
fn put_key(out: &mut Vec<u8>, field: u64, wire_type: u64) {
    put_varint(out, field << 3 | wire_type);
}

fn put_double(out: &mut Vec<u8>, field: u64, value: f64) {
    put_key(out, field, 1);
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_key(out, field, 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn record(payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u64).to_le_bytes();
    let mut out = Vec::with_capacity(payload.len() + 16);
    out.extend_from_slice(&length);
    out.extend_from_slice(&masked_crc(&length).to_le_bytes());
    out.extend_from_slice(payload);
    out.extend_from_slice(&masked_crc(payload).to_le_bytes());
    out
}

/// The format rotates and offsets checksums, because the CRC of data that contains its own CRC is not meaningful.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_equal_those_of_tensorboard_itself() {
        let theirs = include_bytes!("../../tests/golden/scalars.tfevents");
        let mut ours = record(&version_event(1_700_000_000.5));
        let long = format!("long/{}", "x".repeat(200));
        for (wall_time, tag, step, value) in [
            (1_700_000_000.5, "loss/train", 300, 0.25),
            (1_700_000_001.0, "loss/train", (1 << 63) - 1, f32::NAN),
            (1_700_000_001.25, "a", 1, f32::NEG_INFINITY),
            (-0.25, "precisión", (1 << 40) + 3, -1.5e-42),
            (1_700_000_002.75, &long, 127, 3.4e38),
            (1_700_000_003.0, " ", 128, -0.0),
        ] {
            ours.extend(record(&scalar_event(wall_time, tag, step, value)));
        }
        assert_eq!(ours, theirs);
    }

    #[test]
    fn two_writers_of_one_folder_have_a_file_each() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let logs = folder.path().join("logs");
        let mut first = EventWriter::create(&logs)?;
        let second = EventWriter::create(&logs)?;
        assert_ne!(first.path(), second.path());
        let before = fs::metadata(first.path())?.len();
        first.scalar("loss", 1, 2.0)?;
        first.flush()?;
        // Length (8), two checksums (4 each), and an event of 24 bytes.
        assert_eq!(fs::metadata(first.path())?.len(), before + 16 + 9 + 2 + 2 + 2 + 11);
        Ok(())
    }
}
