//! The binary version of CIFAR-10.
//!
//! A file is a sequence of 3073-byte records: a label from 0 to 9, then 32 x 32 red, green and blue values, row by row.
//! Source: Alex Krizhevsky's page on CIFAR-10.

use std::path::{Path, PathBuf};

use phynexus::DType;

use super::dataset::{Dataset, Normalization};
use crate::array::HostArray;
use crate::error::Result;
use crate::io::Source;

const FORMAT: &str = "CIFAR-10";
const PIXELS: usize = 3 * 32 * 32;
/// An upper bound on the records of one file.
const MOST_RECORDS: usize = 100_000;
const NAMES: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// Reads CIFAR-10 from the folder `cifar-10-batches-bin` or its parent. Returns `(training, test)`.
///
/// Inputs are `uint8 [n, 3, 32, 32]`; batches scale them to 0..1.
///
/// # Errors
/// If one of the six files is missing, truncated or corrupt.
pub fn cifar10(folder: &Path) -> Result<(Dataset, Dataset)> {
    let inner = folder.join("cifar-10-batches-bin");
    let folder = if inner.is_dir() { inner } else { folder.to_owned() };
    let training: Vec<PathBuf> = (1..=5).map(|i| folder.join(format!("data_batch_{i}.bin"))).collect();
    Ok((read_files("training set", &training)?, read_files("test set", &[folder.join("test_batch.bin")])?))
}

fn read_files(purpose: &str, paths: &[PathBuf]) -> Result<Dataset> {
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for path in paths {
        read_records(&mut Source::open_maybe_gzip(path, FORMAT)?, &mut pixels, &mut labels)?;
    }
    let inputs = HostArray::from_bytes(DType::U8, &[labels.len(), 3, 32, 32], pixels)?;
    let labels = HostArray::from_values(&[labels.len()], &labels)?;
    let names = NAMES.map(str::to_owned).to_vec();
    Ok(Dataset::classes(format!("CIFAR-10, {purpose}"), inputs, labels, names)?
        .with_normalization(Normalization::scale(1.0 / 255.0)))
}

fn read_records(source: &mut Source<'_>, pixels: &mut Vec<u8>, labels: &mut Vec<i64>) -> Result<()> {
    let bytes = source.take_rest(MOST_RECORDS * (1 + PIXELS), "the records")?;
    let (records, left) = bytes.as_chunks::<{ 1 + PIXELS }>();
    if records.is_empty() || !left.is_empty() {
        let message = format!(
            "the size of {} bytes is not a multiple of the record size {}: it is truncated or another kind of file; \
             fetch the binary version of CIFAR-10 again",
            bytes.len(),
            1 + PIXELS
        );
        return Err(source.error_at((records.len() * (1 + PIXELS)) as u64, message));
    }
    pixels.reserve(records.len() * PIXELS);
    for (index, record) in records.iter().enumerate() {
        let [label, image @ ..] = record;
        if usize::from(*label) >= NAMES.len() {
            let position = (index * (1 + PIXELS)) as u64;
            let message = format!(
                "record {index} has label {label}, which is greater than 9: the file is corrupt; fetch it again"
            );
            return Err(source.error_at(position, message));
        }
        labels.push(i64::from(*label));
        pixels.extend_from_slice(image);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::test_support::survives_mutations;

    fn records(labels: &[u8]) -> Vec<u8> {
        labels
            .iter()
            .flat_map(|&label| {
                std::iter::once(label).chain((0..PIXELS).map(move |i| (i / 1024) as u8 * 100 + label))
            })
            .collect()
    }

    #[test]
    fn six_files_make_two_sets() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let inner = folder.path().join("cifar-10-batches-bin");
        std::fs::create_dir(&inner)?;
        assert!(cifar10(folder.path()).is_err());
        for i in 1..=5u8 {
            std::fs::write(inner.join(format!("data_batch_{i}.bin")), records(&[i, i + 1]))?;
        }
        std::fs::write(inner.join("test_batch.bin"), records(&[9]))?;
        let (train, test) = cifar10(folder.path())?;
        assert_eq!(train.stored_targets().to_vec::<i64>()?, [1, 2, 2, 3, 3, 4, 4, 5, 5, 6]);
        assert_eq!(test.stored_inputs().shape(), [1, 3, 32, 32]);
        assert_eq!(test.class_names()[9], "truck");
        let pixels = test.stored_inputs().bytes();
        assert_eq!((pixels[0], pixels[1024], pixels[2048]), (9, 109, 209));
        Ok(())
    }

    #[test]
    fn corrupt_files_are_errors_never_panics() {
        let read = |bytes: &[u8]| {
            read_records(
                &mut Source::new(bytes, Path::new("x"), FORMAT, None),
                &mut Vec::new(),
                &mut Vec::new(),
            )
        };
        survives_mutations(&records(&[3]), 500, read);
        let message = read(&records(&[3, 10])).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(message.contains("byte 3073") && message.contains("label 10"), "{message}");
    }
}
