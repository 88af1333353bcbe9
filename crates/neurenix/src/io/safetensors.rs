//! Named arrays in the safetensors format, in which PyTorch and Hugging Face exchange models.
//!
//! A file consists of the header length (u64, little-endian), a JSON header with the dtype, shape and byte range of
//! each tensor, and the tensors' bytes without gaps. Source: the format description of the `safetensors` library.
//!
//! This library writes a checksum into the metadata and verifies it when reading. Other programs ignore it and do not
//! write one.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::Path;

use phynexus::{DType, interrupt};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use super::{Source, checksum::Crc32c, write_atomically};
use crate::array::HostArray;
use crate::error::{Error, Location, Result};

/// The format's name in errors.
pub const FORMAT: &str = "safetensors";
/// The limit of the reference library.
const LONGEST_HEADER: u64 = 100_000_000;
/// The number of bytes between two checks for an interruption.
const PIECE: usize = 4 << 20;
/// The metadata key of the checksum, which is stored as eight hexadecimal digits.
const CHECKSUM: &str = "neurenix.crc32c";

/// The contents of a safetensors file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedArrays {
    /// The arrays by name.
    pub arrays: BTreeMap<String, HostArray>,
    /// Free text that describes the whole file.
    pub metadata: BTreeMap<String, String>,
}

/// Writes named arrays to a file atomically.
///
/// # Errors
/// If a name is the reserved `__metadata__`, or the file cannot be written.
pub fn save(path: &Path, contents: &NamedArrays) -> Result<()> {
    let header = header(path, contents)?;
    write_atomically(path, |file| write_parts(file, path, &header, contents))
}

/// Writes named arrays to an open file. `name` is its name in errors.
///
/// # Errors
/// As [`save`]. Part of the contents may have been written.
pub fn write(file: &mut dyn Write, name: &Path, contents: &NamedArrays) -> Result<()> {
    write_parts(file, name, &header(name, contents)?, contents)
}

fn write_parts(file: &mut dyn Write, path: &Path, header: &[u8], contents: &NamedArrays) -> Result<()> {
    let mut put = |bytes: &[u8]| file.write_all(bytes).map_err(|e| Error::io("write", path, e));
    put(&(header.len() as u64).to_le_bytes())?;
    put(header)?;
    for (_, array) in in_file_order(&contents.arrays) {
        for piece in array.bytes().chunks(PIECE) {
            interrupt::check()?;
            put(piece)?;
        }
    }
    Ok(())
}

/// Reads all arrays of a file.
///
/// # Errors
/// If the file cannot be read, is truncated or corrupt, or contains an unsupported element type.
pub fn load(path: &Path) -> Result<NamedArrays> {
    let (contents, left_out) = load_supported(path)?;
    match left_out.into_iter().next() {
        None => Ok(contents),
        Some((name, dtype)) => Err(Error::format(
            path,
            FORMAT,
            Location::Part(name),
            format!("elements of type {dtype} are not supported: convert it to a standard type"),
        )),
    }
}

/// Reads the arrays with supported element types. Also returns the names and types of the others.
///
/// # Errors
/// If the file cannot be read, is truncated or corrupt.
pub fn load_supported(path: &Path) -> Result<(NamedArrays, BTreeMap<String, String>)> {
    read(&mut Source::open(path, FORMAT)?)
}

/// Wider types first, then by name, so that every tensor is aligned to its element size.
fn in_file_order(arrays: &BTreeMap<String, HostArray>) -> Vec<(&String, &HostArray)> {
    let mut arrays: Vec<_> = arrays.iter().collect();
    arrays.sort_by_key(|(_, array)| std::cmp::Reverse(array.dtype().size()));
    arrays
}

/// The checksum of the metadata and of each array's name, dtype, shape and bytes.
fn checksum(metadata: &BTreeMap<String, String>, arrays: &BTreeMap<String, HostArray>) -> Result<String> {
    let mut crc = Crc32c::new();
    // The length prefix makes the sequence of bytes unambiguous.
    let mut part = |bytes: &[u8]| -> Result<()> {
        crc.update(&(bytes.len() as u64).to_le_bytes());
        for piece in bytes.chunks(PIECE) {
            interrupt::check()?;
            crc.update(piece);
        }
        Ok(())
    };
    for (name, text) in metadata {
        part(name.as_bytes())?;
        part(text.as_bytes())?;
    }
    for (name, array) in in_file_order(arrays) {
        part(name.as_bytes())?;
        part(array.dtype().name().as_bytes())?;
        let shape: Vec<u8> = array.shape().iter().flat_map(|&d| (d as u64).to_le_bytes()).collect();
        part(&shape)?;
        part(array.bytes())?;
    }
    Ok(format!("{:08x}", crc.finish()))
}

fn header(path: &Path, contents: &NamedArrays) -> Result<Vec<u8>> {
    let mut metadata = contents.metadata.clone();
    metadata.remove(CHECKSUM);
    metadata.insert(CHECKSUM.to_owned(), checksum(&metadata, &contents.arrays)?);
    let mut offset = 0;
    let mut tensors = Vec::with_capacity(contents.arrays.len());
    for (name, array) in in_file_order(&contents.arrays) {
        if name == "__metadata__" {
            return Err(Error::data(
                path.display().to_string(),
                "the array name __metadata__ is reserved: rename the array",
            ));
        }
        let end = offset + array.bytes().len();
        let info = TensorInfo {
            dtype: to_file(array.dtype()),
            shape: array.shape().to_vec(),
            data_offsets: (offset, end),
        };
        tensors.push((name.clone(), info));
        offset = end;
    }
    let metadata: HashMap<String, String> = metadata.into_iter().collect();
    let wrong = |message: String| Error::format(path, FORMAT, Location::Whole, message);
    let header = Metadata::new(Some(metadata), tensors)
        .map_err(|e| wrong(format!("the header cannot be encoded: {e}")))?;
    let mut header =
        serde_json::to_vec(&header).map_err(|e| wrong(format!("the header cannot be encoded: {e}")))?;
    // The data starts at a multiple of 8 bytes, as the format recommends for memory mapping.
    header.resize(header.len().next_multiple_of(8), b' ');
    if header.len() as u64 > LONGEST_HEADER {
        return Err(wrong(format!("names and metadata take more than {LONGEST_HEADER} bytes: shorten them")));
    }
    Ok(header)
}

/// Whether a file starts like one of `torch.save`: a zip archive, or a bare pickle in older versions.
fn is_pickle(start: [u8; 8]) -> bool {
    start.starts_with(b"PK\x03\x04") || matches!(start, [0x80, 2..=5, ..])
}

/// Reads an open file to its end. Returns the arrays with supported element types, and the names and types of the
/// others.
///
/// # Errors
/// As [`load_supported`].
pub fn read(source: &mut Source<'_>) -> Result<(NamedArrays, BTreeMap<String, String>)> {
    let start = source.take_array("the length of the header")?;
    let length = u64::from_le_bytes(start);
    if length > LONGEST_HEADER {
        let message = match is_pickle(start) {
            true => "this is a PyTorch pickle: convert it to safetensors, in PyTorch with \
                     safetensors.torch.save_file(torch.load(path), new_path)"
                .to_owned(),
            false => format!(
                "a header of {length} bytes is beyond the format's limit of {LONGEST_HEADER}: this is another kind of \
                 file, or corrupt"
            ),
        };
        return Err(source.error_at(0, message));
    }
    let header = source.take(length as usize, "the header")?;
    let header: Metadata = serde_json::from_slice(&header)
        .map_err(|e| source.error_at(8, format!("the header is corrupt ({e}); fetch or write it again")))?;
    let mut left_out = BTreeMap::new();
    let mut contents = NamedArrays::default();
    for name in header.offset_keys() {
        let Some(info) = header.info(&name) else { continue };
        // The header was validated when parsed: ranges are consecutive and match the tensors' sizes.
        let bytes = source.take(info.data_offsets.1 - info.data_offsets.0, &format!("tensor {name:?}"))?;
        match from_file(info.dtype) {
            Some(dtype) => {
                contents.arrays.insert(name.clone(), HostArray::from_bytes(dtype, &info.shape, bytes)?);
            }
            None => {
                left_out.insert(name, format!("{:?}", info.dtype));
            }
        }
    }
    source.expect_end()?;
    contents.metadata = header.metadata().clone().unwrap_or_default().into_iter().collect();
    if let Some(written) = contents.metadata.remove(CHECKSUM)
        && written != checksum(&contents.metadata, &contents.arrays)?
    {
        return Err(source.error(
            "the checksum does not match: the contents changed after they were written: use another copy",
        ));
    }
    Ok((contents, left_out))
}

fn to_file(dtype: DType) -> Dtype {
    match dtype {
        DType::Bool => Dtype::BOOL,
        DType::U8 => Dtype::U8,
        DType::U16 => Dtype::U16,
        DType::U32 => Dtype::U32,
        DType::U64 => Dtype::U64,
        DType::I8 => Dtype::I8,
        DType::I16 => Dtype::I16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::F8E4M3 => Dtype::F8_E4M3,
        DType::F8E5M2 => Dtype::F8_E5M2,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
    }
}

fn from_file(dtype: Dtype) -> Option<DType> {
    DType::ALL.into_iter().find(|&ours| to_file(ours) == dtype)
}

#[cfg(test)]
mod tests {
    use super::*;
    use phynexus::{F8E4M3, F8E5M2};

    use crate::data::test_support::{arrays_of_every_dtype, survives_mutations};

    fn sample() -> Result<NamedArrays> {
        let mut contents = NamedArrays::default();
        let bits = [0u8, 1, 0x38, 0x7e, 0x7f, 0xfe];
        let float8 = [
            HostArray::from_values(&[2, 3], &bits.map(F8E4M3::from_bits))?,
            HostArray::from_values(&[2, 3], &bits.map(F8E5M2::from_bits))?,
        ];
        for (index, array) in arrays_of_every_dtype()?.into_iter().chain(float8).enumerate() {
            contents.arrays.insert(format!("layer.{index}.weight"), array);
        }
        contents.metadata.insert("format".into(), "pt".into());
        Ok(contents)
    }

    #[test]
    fn every_dtype_round_trips() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("model.safetensors");
        let contents = sample()?;
        save(&path, &contents)?;
        assert_eq!(load(&path)?, contents);
        // The reference library agrees.
        let bytes = std::fs::read(&path)?;
        let reference = safetensors::SafeTensors::deserialize(&bytes)?;
        assert_eq!(reference.len(), contents.arrays.len());
        for (name, view) in reference.tensors() {
            let ours = &contents.arrays[&name];
            assert_eq!((view.shape(), view.data()), (ours.shape(), ours.bytes()));
        }
        save(&path, &NamedArrays::default())?;
        assert_eq!(load(&path)?, NamedArrays::default());
        Ok(())
    }

    #[test]
    fn no_changed_byte_goes_unnoticed() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("m");
        let contents = sample()?;
        save(&path, &contents)?;
        let good = std::fs::read(&path)?;
        let name =
            good.windows(CHECKSUM.len()).position(|w| w == CHECKSUM.as_bytes()).ok_or("no checksum")?;
        for place in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[place] ^= 1 << bit;
                let result = read(&mut Source::new(&bytes[..], &path, FORMAT, Some(bytes.len() as u64)));
                // Renaming the checksum's key removes the checksum and changes nothing else.
                let renamed = (name..name + CHECKSUM.len()).contains(&place);
                assert!(
                    result.is_err()
                        || renamed && result.is_ok_and(|(found, _)| found.arrays == contents.arrays),
                    "bit {bit} of byte {place}"
                );
            }
        }
        Ok(())
    }

    #[test]
    fn bools_are_zero_or_one_as_tensors() -> Result<(), Box<dyn std::error::Error>> {
        let cpu = phynexus_cpu::register();
        let header = r#"{"b":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]}}"#;
        let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0, 1, 2, 255]].concat();
        let (contents, _) = read(&mut Source::new(&file[..], Path::new("m"), FORMAT, None))?;
        let array = contents.arrays.get("b").ok_or("no array")?;
        let tensor = phynexus::Tensor::from_bytes(array.bytes(), array.dtype(), array.shape(), cpu)?;
        assert_eq!(tensor.to_bytes()?, [0, 1, 1, 1]);
        assert_eq!(tensor.sum(&[], false)?.item::<i64>()?, 3);
        Ok(())
    }

    #[test]
    fn writing_and_reading_can_be_ended() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("m");
        let contents = sample()?;
        save(&path, &contents)?;
        {
            let _watch = phynexus::interrupt::watch(|| true);
            // The interruption is only visible after some milliseconds.
            while !phynexus::interrupt::requested() {}
            for ended in [save(&path, &contents), load(&path).map(drop)] {
                assert!(matches!(ended, Err(Error::Engine(phynexus::Error::Interrupted))));
            }
        }
        assert_eq!(load(&path)?, contents);
        assert_eq!(std::fs::read_dir(folder.path())?.count(), 1);
        Ok(())
    }

    #[test]
    fn one_unknown_type_leaves_the_others_readable() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("m");
        let header = r#"{"a":{"dtype":"F8_E8M0","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}"#;
        let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[1, 2, 3]].concat();
        std::fs::write(&path, file)?;
        let (contents, left_out) = load_supported(&path)?;
        assert_eq!(contents.arrays.len(), 1);
        assert_eq!(contents.arrays["b"].bytes(), [3]);
        assert_eq!(left_out, BTreeMap::from([("a".to_owned(), "F8_E8M0".to_owned())]));
        let refused = load(&path).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("F8_E8M0"), "{refused}");
        Ok(())
    }

    #[test]
    fn pickles_are_named() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("m.pt");
        for start in [&b"PK\x03\x04\0\0\x08\x08 archive"[..], b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."] {
            std::fs::write(&path, start)?;
            let refused = load(&path).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(refused.contains("a PyTorch pickle: convert it to safetensors"), "{refused}");
        }
        Ok(())
    }

    #[test]
    fn reserved_names_are_refused() -> Result<()> {
        let mut contents = NamedArrays::default();
        contents.arrays.insert("__metadata__".into(), HostArray::from_values(&[1], &[1f32])?);
        assert!(save(Path::new("/nonexistent/x"), &contents).is_err());
        Ok(())
    }

    #[test]
    fn corrupt_files_are_errors_never_panics() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("m");
        save(&path, &sample()?)?;
        survives_mutations(&std::fs::read(&path)?, 4000, |bytes| {
            read(&mut Source::new(bytes, &path, FORMAT, Some(bytes.len() as u64))).map(drop)
        });
        let huge = |header: &str| {
            let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
            bytes.extend_from_slice(header.as_bytes());
            read(&mut Source::new(&bytes[..], &path, FORMAT, Some(bytes.len() as u64))).is_err()
        };
        let max = usize::MAX;
        assert!(huge(&format!(r#"{{"a":{{"dtype":"U8","shape":[{max}],"data_offsets":[0,{max}]}}}}"#)));
        assert!(huge(r#"{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}"#));
        Ok(())
    }
}
