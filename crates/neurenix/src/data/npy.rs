//! NumPy's .npy files, format versions 1.0, 2.0 and 3.0.
//!
//! A file consists of the magic string, the version, the header length, the header (a Python dictionary literal with
//! type, order and shape, padded with spaces), and the elements. Source: `numpy.lib.format`.

use std::io::Write;
use std::path::Path;

use phynexus::DType;

use crate::array::{HostArray, byte_count};
use crate::error::{Error, Result};
use crate::io::{Source, write_atomically};

const FORMAT: &str = "NumPy .npy";
const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// NumPy's own limit (`max_header_size`).
const LONGEST_HEADER: usize = 10_000;

/// Reads a .npy file, in either byte order. Fortran order is converted to C order.
///
/// `bfloat16`, which NumPy does not support, is read from two-byte void elements (`V2`), which the `ml_dtypes` package
/// and [`write_npy`] write.
///
/// # Errors
/// If the file cannot be read, is truncated or corrupt, or its elements are neither numbers nor bools.
pub fn read_npy(path: &Path) -> Result<HostArray> {
    let mut source = Source::open(path, FORMAT)?;
    let array = read(&mut source)?;
    source.expect_end()?;
    Ok(array)
}

/// Writes a .npy file atomically.
///
/// # Errors
/// If the file cannot be written.
pub fn write_npy(path: &Path, array: &HostArray) -> Result<()> {
    write_atomically(path, |file| write(file, array).map_err(|e| Error::io("write", path, e)))
}

pub(super) fn write(out: &mut dyn Write, array: &HostArray) -> std::io::Result<()> {
    let sizes: Vec<String> = array.shape().iter().map(|size| format!("{size},")).collect();
    let Some(descr) = descr(array.dtype()) else {
        let message =
            format!("NumPy has no {}: convert to float32, or write a .safetensors file", array.dtype());
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, message));
    };
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}", sizes.join(" "));
    // The elements start at a multiple of 64 bytes. Only an array with about 6,000 axes would need a header of more
    // than 65535 bytes.
    let unpadded = MAGIC.len() + 2 + 2 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(64) - unpadded));
    header.push('\n');
    let length = u16::try_from(header.len()).map_err(|_| {
        std::io::Error::new(std::io::ErrorKind::InvalidInput, "too many axes for a .npy file")
    })?;
    out.write_all(MAGIC)?;
    out.write_all(&[1, 0])?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    out.write_all(array.bytes())
}

/// NumPy's name of a little-endian dtype; that of `bfloat16` is the package `ml_dtypes`'.
fn descr(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "|b1",
        DType::U8 => "|u1",
        DType::I8 => "|i1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::F8E4M3 | DType::F8E5M2 => return None,
        DType::F16 => "<f2",
        DType::BF16 => "<V2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
    })
}

pub(super) fn read(source: &mut Source<'_>) -> Result<HostArray> {
    let magic: [u8; 6] = source.take_array("the magic string")?;
    if magic != *MAGIC {
        return Err(source.error_at(0, "it does not start with \\x93NUMPY: this is another kind of file"));
    }
    let [major, minor] = source.take_array("the format version")?;
    let length = match (major, minor) {
        (1, 0) => usize::from(u16::from_le_bytes(source.take_array("the length of the header")?)),
        (2 | 3, 0) => u32::from_le_bytes(source.take_array("the length of the header")?) as usize,
        _ => {
            return Err(source.error_at(
                6,
                format!("format version {major}.{minor} is not supported; supported are 1.0 to 3.0"),
            ));
        }
    };
    if length > LONGEST_HEADER {
        return Err(
            source.error(format!("a header of {length} bytes exceeds NumPy's limit: the file is corrupt"))
        );
    }
    let start = if major == 1 { 10 } else { 12 };
    let text = source.take(length, "the header")?;
    let header = parse_header(&text).map_err(|message| source.error_at(start, message))?;
    let Some(size) = byte_count(header.dtype, &header.shape) else {
        return Err(source
            .error_at(start, format!("shape {:?} is larger than any memory: it is corrupt", header.shape)));
    };
    let mut bytes = source.take(size, "the elements")?;
    if header.big_endian {
        bytes.chunks_exact_mut(header.dtype.size()).for_each(<[u8]>::reverse);
    }
    if header.dtype == DType::Bool {
        // As in NumPy, every nonzero byte is true.
        bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    }
    if header.fortran_order {
        let mut ordered = source.room_for(bytes.len())?;
        to_row_major(&bytes, header.dtype.size(), &header.shape, &mut ordered);
        bytes = ordered;
    }
    HostArray::from_bytes(header.dtype, &header.shape, bytes)
}

/// Converts elements from column-major to row-major order and appends them to `out`.
fn to_row_major(bytes: &[u8], size: usize, shape: &[usize], out: &mut Vec<u8>) {
    let mut index = vec![0; shape.len()];
    let strides: Vec<usize> = shape
        .iter()
        .scan(size, |stride, &length| {
            let this = *stride;
            *stride *= length;
            Some(this)
        })
        .collect();
    let mut position = 0;
    while out.len() < bytes.len() {
        out.extend_from_slice(&bytes[position..position + size]);
        // Increments the index, last axis fastest.
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            position += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            position -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
}

struct Header {
    dtype: DType,
    big_endian: bool,
    fortran_order: bool,
    shape: Vec<usize>,
}

fn parse_header(text: &[u8]) -> Result<Header, String> {
    let text = std::str::from_utf8(text).map_err(|_| "the header is not text: it is corrupt".to_owned())?;
    let mut parser = Parser { rest: text.trim_end() };
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    parser.expect('{')?;
    while !parser.accept('}') {
        let key = parser.string()?;
        parser.expect(':')?;
        match key {
            "descr" => descr = Some(parser.dtype()?),
            "fortran_order" => fortran_order = Some(parser.boolean()?),
            "shape" => shape = Some(parser.shape()?),
            _ => return Err(format!("the header has an unknown entry {key:?}")),
        }
        if !parser.accept(',') {
            parser.expect('}')?;
            break;
        }
    }
    if !parser.rest.trim_start().is_empty() {
        return Err("the header continues after its closing brace".to_owned());
    }
    match (descr, fortran_order, shape) {
        (Some((dtype, big_endian)), Some(fortran_order), Some(shape)) => {
            Ok(Header { dtype, big_endian, fortran_order, shape })
        }
        _ => Err("the header lacks one of its entries 'descr', 'fortran_order' and 'shape'".to_owned()),
    }
}

/// A parser for the few Python literals that headers contain.
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn accept(&mut self, token: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: char) -> Result<(), String> {
        if self.accept(token) {
            return Ok(());
        }
        Err(format!("expected {token:?} in the header before {:?}: it is corrupt", self.preview()))
    }

    fn preview(&self) -> String {
        self.rest.chars().take(20).collect()
    }

    fn string(&mut self) -> Result<&'a str, String> {
        for quote in ['\'', '"'] {
            if self.accept(quote) {
                let (text, rest) =
                    self.rest.split_once(quote).ok_or("the header has an unclosed quote: it is corrupt")?;
                self.rest = rest;
                return Ok(text);
            }
        }
        Err(format!("expected a string in the header before {:?}: it is corrupt", self.preview()))
    }

    fn boolean(&mut self) -> Result<bool, String> {
        self.rest = self.rest.trim_start();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(format!("expected True or False in the header before {:?}: it is corrupt", self.preview()))
    }

    fn shape(&mut self) -> Result<Vec<usize>, String> {
        self.expect('(')?;
        let mut shape = Vec::new();
        while !self.accept(')') {
            self.rest = self.rest.trim_start();
            let digits = self.rest.len() - self.rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, rest) = self.rest.split_at(digits);
            let size = number.parse().map_err(|_| {
                format!(
                    "expected a size that fits in memory before {:?} in the shape: it is corrupt",
                    self.preview()
                )
            })?;
            shape.push(size);
            // Python 2 wrote large sizes as 10L.
            self.rest = rest.strip_prefix('L').unwrap_or(rest);
            if !self.accept(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(shape)
    }

    /// The dtype, and whether it is big-endian.
    fn dtype(&mut self) -> Result<(DType, bool), String> {
        self.rest = self.rest.trim_start();
        if self.rest.starts_with('[') {
            return Err(
                "it holds records (a structured dtype): save each field as a separate array".to_owned()
            );
        }
        let name = self.string()?;
        let (big_endian, code) = match name.split_at_checked(1) {
            Some((">", code)) => (true, code),
            Some(("<" | "|" | "=", code)) => (false, code),
            _ => (false, name),
        };
        let found = DType::ALL.into_iter().find(|&dtype| descr(dtype).is_some_and(|own| own[1..] == *code));
        found.map(|dtype| (dtype, big_endian)).ok_or_else(|| {
            let advice = match code.chars().next() {
                Some('O') => "they are Python objects: convert the array with .astype() before saving",
                Some('c') => "they are complex: save the real and the imaginary part as separate arrays",
                Some('U' | 'S' | 'a') => {
                    "they are text; save numbers instead, such as the index of each class"
                }
                Some('M' | 'm') => {
                    "they are dates or durations; convert them with .astype('int64') before saving"
                }
                Some('f') => "save them as float32 or float64",
                _ => "save one of bool, int8 to int64, uint8 to uint64, float16 to float64",
            };
            format!("elements of type {name:?} are not supported: {advice}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::test_support::{arrays_of_every_dtype, survives_mutations};

    fn read_bytes(bytes: &[u8]) -> Result<HostArray> {
        let mut source = Source::new(bytes, Path::new("x.npy"), FORMAT, None);
        let array = read(&mut source)?;
        source.expect_end()?;
        Ok(array)
    }

    fn file(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = [MAGIC.as_slice(), &[version, 0]].concat();
        match version {
            1 => bytes.extend_from_slice(&(header.len() as u16).to_le_bytes()),
            _ => bytes.extend_from_slice(&(header.len() as u32).to_le_bytes()),
        }
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    fn message(bytes: &[u8]) -> String {
        read_bytes(bytes).err().map(|e| e.to_string()).unwrap_or_default()
    }

    #[test]
    fn every_dtype_round_trips() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.npy");
        for array in arrays_of_every_dtype()? {
            write_npy(&path, &array)?;
            assert_eq!(read_npy(&path)?, array);
        }
        for shape in [vec![], vec![1], vec![0, 3], vec![1; 12]] {
            let array = HostArray::from_bytes(DType::U8, &shape, vec![7; shape.iter().product()])?;
            write_npy(&path, &array)?;
            assert_eq!(read_npy(&path)?, array);
        }
        Ok(())
    }

    #[test]
    fn numpys_own_bytes_are_read() -> Result<()> {
        // numpy.save of numpy.asfortranarray(numpy.arange(6, dtype='>i2').reshape(2, 3)), NumPy 2.4.
        let header = "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }                                                          \n";
        let data = [0, 0, 0, 3, 0, 1, 0, 4, 0, 2, 0, 5];
        for version in 1..=3 {
            let array = read_bytes(&file(version, header, &data))?;
            assert_eq!((array.shape(), array.to_vec::<i16>()?), (&[2usize, 3][..], vec![0, 1, 2, 3, 4, 5]));
        }
        let array =
            read_bytes(&file(1, "{\"shape\":(3L,),'fortran_order':False,'descr':'|b1'}", &[0, 1, 2]))?;
        assert_eq!(array.to_vec::<bool>()?, [false, true, true]);
        Ok(())
    }

    #[test]
    fn fortran_order_in_three_dimensions() -> Result<()> {
        // numpy.asfortranarray(numpy.arange(24, dtype='u1').reshape(2, 3, 4)): the byte at (i, j, k) is 12i + 4j + k.
        let mut data = Vec::new();
        for k in 0..4 {
            for j in 0..3 {
                data.extend((0..2).map(|i| 12 * i + 4 * j + k));
            }
        }
        let array =
            read_bytes(&file(1, "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3, 4), }", &data))?;
        assert_eq!(array.bytes(), (0..24).collect::<Vec<u8>>());
        let empty = read_bytes(&file(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 0), }", &[]))?;
        assert_eq!(empty.shape(), [2, 0]);
        Ok(())
    }

    #[test]
    fn what_cannot_be_read_is_explained() {
        let header = |descr: &str| format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (1,), }}");
        assert!(message(&file(1, &header("'|O'"), &[0; 8])).contains("Python objects"));
        assert!(message(&file(1, &header("'<c8'"), &[0; 8])).contains("complex"));
        assert!(message(&file(1, &header("'<U4'"), &[0; 16])).contains("text"));
        assert!(message(&file(1, &header("[('a', '<f4')]"), &[0; 4])).contains("structured"));
        assert!(message(&file(1, &header("'<f4'"), &[0; 3])).contains("truncated"));
        assert!(message(&file(1, &header("'<f4'"), &[0; 5])).contains("more bytes follow"));
        assert!(message(b"PK\x03\x04 is another format").contains("another kind of file"));
        assert!(message(&file(4, &header("'<f4'"), &[0; 4])).contains("version 4.0"));
        let huge = "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }";
        assert!(message(&file(1, huge, &[])).contains("larger than any memory"));
        let long = "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 64), }";
        assert!(message(&file(1, long, &[])).contains("truncated"));
    }

    #[test]
    fn corrupt_files_are_errors_never_panics() -> Result<()> {
        for array in [&arrays_of_every_dtype()?[3], &HostArray::from_values(&[2, 1, 3], &[1f32; 6])?] {
            let mut bytes = Vec::new();
            write(&mut bytes, array).map_err(|e| Error::io("write", Path::new("memory"), e))?;
            survives_mutations(&bytes, 5000, |bytes| read_bytes(bytes).map(drop));
        }
        Ok(())
    }
}
