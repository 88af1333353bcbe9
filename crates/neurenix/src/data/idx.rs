//! The IDX format of the MNIST database, plain or gzip-compressed.
//!
//! A file consists of two zero bytes, an element type code, the number of axes, the size of each axis (u32,
//! big-endian), and the elements in row-major order, big-endian. Source: Yann LeCun's page on MNIST.

use std::path::{Path, PathBuf};

use phynexus::DType;

use super::dataset::{Dataset, Normalization};
use crate::array::{HostArray, byte_count};
use crate::error::{Error, Result};
use crate::io::{Source, write_atomically};

const FORMAT: &str = "IDX";
const CODES: [(u8, DType); 6] = [
    (0x08, DType::U8),
    (0x09, DType::I8),
    (0x0B, DType::I16),
    (0x0C, DType::I32),
    (0x0D, DType::F32),
    (0x0E, DType::F64),
];

/// Reads an IDX file. A gzip-compressed file is decompressed.
///
/// # Errors
/// If the file cannot be read, is truncated or corrupt, or has another format.
pub fn read_idx(path: &Path) -> Result<HostArray> {
    read(&mut Source::open_maybe_gzip(path, FORMAT)?)
}

/// Writes an uncompressed IDX file atomically.
///
/// # Errors
/// If the format does not support the element type (it supports u8, i8, i16, i32, f32 and f64), or the file cannot be
/// written.
pub fn write_idx(path: &Path, array: &HostArray) -> Result<()> {
    let bytes = encode(array)?;
    write_atomically(path, |file| file.write_all(&bytes).map_err(|e| Error::io("write", path, e)))
}

fn encode(array: &HostArray) -> Result<Vec<u8>> {
    let dtype = array.dtype();
    let Some((code, _)) = CODES.into_iter().find(|&(_, known)| known == dtype) else {
        return Err(Error::data(
            FORMAT,
            format!("the format does not support {dtype}: cast to int32 or float64, or use .npy"),
        ));
    };
    let axes = u8::try_from(array.shape().len())
        .map_err(|_| Error::data(FORMAT, "an array must have at most 255 axes"))?;
    let mut bytes = vec![0, 0, code, axes];
    for &size in array.shape() {
        let size =
            u32::try_from(size).map_err(|_| Error::data(FORMAT, format!("an axis of {size} is too long")))?;
        bytes.extend_from_slice(&size.to_be_bytes());
    }
    let start = bytes.len();
    bytes.extend_from_slice(array.bytes());
    bytes[start..].chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
    Ok(bytes)
}

/// Reads an IDX file from a source; nothing may follow it.
pub(super) fn read(source: &mut Source<'_>) -> Result<HostArray> {
    let [zero, zero2, code, axes] = source.take_array("the magic number")?;
    let dtype = CODES.into_iter().find_map(|(known, dtype)| (known == code).then_some(dtype));
    let (0, 0, Some(dtype)) = (zero, zero2, dtype) else {
        return Err(
            source.error_at(0, "it does not start with an IDX magic number: this is another kind of file")
        );
    };
    let mut shape = Vec::with_capacity(usize::from(axes));
    for _ in 0..axes {
        shape.push(u32::from_be_bytes(source.take_array("the size of an axis")?) as usize);
    }
    let Some(size) = byte_count(dtype, &shape) else {
        return Err(source.error_at(4, format!("shape {shape:?} is larger than any memory: it is corrupt")));
    };
    let mut bytes = source.take(size, "the elements")?;
    source.expect_end()?;
    bytes.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
    HostArray::from_bytes(dtype, &shape, bytes)
}

/// Reads MNIST, or a dataset in the same files (Fashion-MNIST, KMNIST), from a folder. Returns `(training, test)`.
///
/// The files are `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
/// `t10k-labels-idx1-ubyte`, with or without `.gz`. Inputs are `uint8 [n, 1, height, width]`; batches scale them to
/// 0..1.
///
/// # Errors
/// If a file is missing, truncated or corrupt, or images and labels do not match.
pub fn mnist(folder: &Path) -> Result<(Dataset, Dataset)> {
    let load = |part: &str, purpose: &str| -> Result<Dataset> {
        let images_path = find(folder, &format!("{part}-images"), "idx3-ubyte")?;
        let labels_path = find(folder, &format!("{part}-labels"), "idx1-ubyte")?;
        let images = read_idx(&images_path)?;
        let labels = read_idx(&labels_path)?;
        let wrong = |path: &Path, what: &str, array: &HostArray| {
            let (dtype, shape) = (array.dtype(), array.shape());
            Error::data(path.display().to_string(), format!("expected {what}, got {dtype} {shape:?}"))
        };
        let &[count, height, width] = images.shape() else {
            return Err(wrong(&images_path, "images (uint8, three axes)", &images));
        };
        if labels.shape().len() != 1 || labels.dtype() != DType::U8 {
            return Err(wrong(&labels_path, "labels (uint8, one axis)", &labels));
        }
        let images = images.reshape(&[count, 1, height, width])?;
        let names = (0..10).map(|digit| digit.to_string()).collect();
        Ok(Dataset::classes(format!("MNIST, {purpose}"), images, labels.cast(DType::I64), names)?
            .with_normalization(Normalization::scale(1.0 / 255.0)))
    };
    Ok((load("train", "training set")?, load("t10k", "test set")?))
}

/// Finds a file under one of the names it is distributed as.
fn find(folder: &Path, start: &str, end: &str) -> Result<PathBuf> {
    let names: Vec<String> =
        ["", ".gz"].iter().flat_map(|zip| ["-", "."].map(|dot| format!("{start}{dot}{end}{zip}"))).collect();
    names.iter().map(|name| folder.join(name)).find(|path| path.is_file()).ok_or_else(|| {
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        Error::io("read", &folder.join(&names[0]), source)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::test_support::{arrays_of_every_dtype, survives_corruption, survives_mutations};
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    #[test]
    fn every_type_of_the_format_round_trips() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.idx");
        for array in arrays_of_every_dtype()? {
            if CODES.iter().any(|&(_, dtype)| dtype == array.dtype()) {
                write_idx(&path, &array)?;
                assert_eq!(read_idx(&path)?, array);
            } else {
                assert!(write_idx(&path, &array).is_err());
            }
        }
        // The example of the format description: a 2 x 2 array of int16.
        std::fs::write(&path, [0, 0, 0x0B, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 1, 0xff, 0xff, 1, 0, 0, 0])?;
        assert_eq!(read_idx(&path)?, HostArray::from_values(&[2, 2], &[1i16, -1, 256, 0])?);
        Ok(())
    }

    fn write_mnist(folder: &Path, part: &str, labels: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
        let pixels: Vec<u8> = (0..labels.len() * 6).map(|i| i as u8).collect();
        write_idx(
            &folder.join(format!("{part}-images-idx3-ubyte")),
            &HostArray::from_values(&[labels.len(), 2, 3], &pixels)?,
        )?;
        let file = std::fs::File::create(folder.join(format!("{part}-labels-idx1-ubyte.gz")))?;
        let mut encoder = GzEncoder::new(file, Compression::default());
        encoder.write_all(&encode(&HostArray::from_values(&[labels.len()], labels)?)?)?;
        encoder.finish()?;
        Ok(())
    }

    #[test]
    fn mnist_is_read_from_its_four_files() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let missing = mnist(folder.path()).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(missing.contains("train-images-idx3-ubyte"), "{missing}");
        write_mnist(folder.path(), "train", &[3, 1, 4])?;
        write_mnist(folder.path(), "t10k", &[9, 0])?;
        let (train, test) = mnist(folder.path())?;
        assert_eq!((train.len(), test.len()), (3, 2));
        assert_eq!(train.stored_inputs().shape(), [3, 1, 2, 3]);
        assert_eq!(train.stored_targets().to_vec::<i64>()?, [3, 1, 4]);
        let batch = test.batch(&[1])?;
        assert_eq!(batch.inputs.to_vec::<f32>()?[0], 6.0 * (1.0 / 255.0));
        write_mnist(folder.path(), "t10k", &[9, 10])?;
        let message = mnist(folder.path()).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(message.contains("label 10"), "{message}");
        Ok(())
    }

    #[test]
    fn corrupt_files_are_errors_never_panics() -> Result<(), Box<dyn std::error::Error>> {
        let plain = encode(&HostArray::from_values(&[2, 3, 4], &[7i32; 24])?)?;
        survives_mutations(&plain, 4000, |bytes| {
            read(&mut Source::new(bytes, Path::new("x"), FORMAT, None)).map(drop)
        });
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("x.gz");
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&plain)?;
        let packed = encoder.finish()?;
        let read_file = |bytes: &[u8]| {
            std::fs::write(&path, bytes).map_err(|e| Error::io("write", &path, e))?;
            read_idx(&path).map(drop)
        };
        assert!(read_file(&packed).is_ok());
        for length in 0..packed.len() {
            assert!(read_file(&packed[..length]).is_err());
        }
        survives_corruption(&packed, 1000, read_file);
        Ok(())
    }
}
