//! Named arrays in the safetensors format, the one PyTorch and Hugging Face exchange models in.
//!
//! A file is the header's length (u64, little endian), a JSON header with each tensor's dtype, shape and byte range,
//! and the tensors' bytes without gaps. Source: the `safetensors` library's format description.
//!
//! Files written here have a checksum among their metadata, which is verified where there is one: other programs ignore
//! it and write none.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use phynexus::DType;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use super::{Source, checksum::Crc32c, write_atomically};
use crate::data::HostArray;
use crate::error::{Error, Place, Result};

const FORMAT: &str = "safetensors";
/// The reference library refuses longer headers too.
const LONGEST_HEADER: u64 = 100_000_000;
/// The name among the metadata of the checksum, which is written as eight hexadecimal digits.
const CHECKSUM: &str = "neurenix.crc32c";

/// The contents of a safetensors file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedArrays {
    /// The arrays by name.
    pub arrays: BTreeMap<String, HostArray>,
    /// Free text about the whole file.
    pub metadata: BTreeMap<String, String>,
}

/// Writes named arrays, completely or not at all.
///
/// # Errors
/// If a name is the reserved `__metadata__`, or the file cannot be written.
pub fn save(path: &Path, contents: &NamedArrays) -> Result<()> {
    let mut metadata = contents.metadata.clone();
    metadata.remove(CHECKSUM);
    metadata.insert(CHECKSUM.to_owned(), checksum(&metadata, &contents.arrays));
    let header = header(path, contents, metadata)?;
    write_atomically(path, |file| {
        let mut put = |bytes: &[u8]| file.write_all(bytes).map_err(|e| Error::io("write", path, e));
        put(&(header.len() as u64).to_le_bytes())?;
        put(&header)?;
        in_file_order(&contents.arrays).into_iter().try_for_each(|(_, array)| put(array.bytes()))
    })
}

/// Reads all arrays of a file.
///
/// # Errors
/// If the file cannot be read, is truncated or corrupt, or holds a type that tensors do not have.
pub fn load(path: &Path) -> Result<NamedArrays> {
    read(&mut Source::open(path, FORMAT)?)
}

/// Wider types first, then by name: every tensor then starts at a multiple of its element's size.
fn in_file_order(arrays: &BTreeMap<String, HostArray>) -> Vec<(&String, &HostArray)> {
    let mut arrays: Vec<_> = arrays.iter().collect();
    arrays.sort_by_key(|(_, array)| std::cmp::Reverse(array.dtype().size()));
    arrays
}

/// The checksum of everything a file says: metadata, and of each array its name, dtype, shape and bytes.
fn checksum(metadata: &BTreeMap<String, String>, arrays: &BTreeMap<String, HostArray>) -> String {
    let mut crc = Crc32c::new();
    // Each part begins with its length, so that no two contents are the same sequence of bytes.
    let mut part = |bytes: &[u8]| {
        crc.update(&(bytes.len() as u64).to_le_bytes());
        crc.update(bytes);
    };
    for (name, text) in metadata {
        part(name.as_bytes());
        part(text.as_bytes());
    }
    for (name, array) in in_file_order(arrays) {
        part(name.as_bytes());
        part(array.dtype().name().as_bytes());
        let shape: Vec<u8> = array.shape().iter().flat_map(|&d| (d as u64).to_le_bytes()).collect();
        part(&shape);
        part(array.bytes());
    }
    format!("{:08x}", crc.finish())
}

fn header(path: &Path, contents: &NamedArrays, metadata: BTreeMap<String, String>) -> Result<Vec<u8>> {
    let mut offset = 0;
    let mut tensors = Vec::with_capacity(contents.arrays.len());
    for (name, array) in in_file_order(&contents.arrays) {
        if name == "__metadata__" {
            return Err(Error::data(
                path.display().to_string(),
                "no array may be called __metadata__: rename it",
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
    let wrong = |message: String| Error::format(path, FORMAT, Place::Whole, message);
    let header = Metadata::new(Some(metadata), tensors)
        .map_err(|e| wrong(format!("the header cannot be made: {e}")))?;
    let mut header =
        serde_json::to_vec(&header).map_err(|e| wrong(format!("the header cannot be made: {e}")))?;
    // The data start at a multiple of 8 bytes, as the format recommends for memory mapping.
    header.resize(header.len().next_multiple_of(8), b' ');
    if header.len() as u64 > LONGEST_HEADER {
        return Err(wrong(format!("names and metadata take more than {LONGEST_HEADER} bytes: shorten them")));
    }
    Ok(header)
}

fn read(source: &mut Source<'_>) -> Result<NamedArrays> {
    let length = u64::from_le_bytes(source.take_array("the length of the header")?);
    if length > LONGEST_HEADER {
        return Err(source.error_at(
            0,
            format!("a header of {length} bytes is beyond the format's limit of {LONGEST_HEADER}: this is another kind of file, or corrupt"),
        ));
    }
    let header = source.take(length as usize, "the header")?;
    let header: Metadata = serde_json::from_slice(&header)
        .map_err(|e| source.error_at(8, format!("the header is corrupt ({e}); fetch or write it again")))?;
    let mut contents = NamedArrays::default();
    for name in header.offset_keys() {
        let Some(info) = header.info(&name) else { continue };
        let wrong =
            |message: String| Error::format(source.path(), FORMAT, Place::Part(name.clone()), message);
        let dtype = from_file(info.dtype).ok_or_else(|| {
            wrong(format!(
                "elements of type {:?} are not supported: convert it to a standard type",
                info.dtype
            ))
        })?;
        // The header was checked when it was parsed: ranges follow each other and have the size of their tensor.
        let bytes = source.take(info.data_offsets.1 - info.data_offsets.0, &format!("tensor {name:?}"))?;
        contents.arrays.insert(name.clone(), HostArray::from_bytes(dtype, &info.shape, bytes)?);
    }
    source.expect_end()?;
    contents.metadata = header.metadata().clone().unwrap_or_default().into_iter().collect();
    if let Some(written) = contents.metadata.remove(CHECKSUM)
        && written != checksum(&contents.metadata, &contents.arrays)
    {
        return Err(source.error(
            "its checksum is wrong, so its contents have changed since they were written: use another copy",
        ));
    }
    Ok(contents)
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
    use crate::data::test_support::{arrays_of_every_dtype, survives_mutations};

    fn sample() -> Result<NamedArrays> {
        let mut contents = NamedArrays::default();
        for (index, array) in arrays_of_every_dtype()?.into_iter().enumerate() {
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
                // A checksum by another name is none: nothing else is changed then.
                let renamed = (name..name + CHECKSUM.len()).contains(&place);
                assert!(
                    result.is_err() || renamed && result.is_ok_and(|found| found.arrays == contents.arrays),
                    "bit {bit} of byte {place}"
                );
            }
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
