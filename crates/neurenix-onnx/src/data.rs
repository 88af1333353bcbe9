//! Tensors as ONNX's files store them.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Component, Path},
};

use phynexus::{DType, Device, Tensor};

use crate::{
    Element, Error, Result, Text, Value,
    proto::{SparseTensorProto, TensorProto},
    value::integers,
};

/// Where a tensor's bytes are outside its file: the value of `data_location`.
const EXTERNAL: i32 = 1;

/// The most elements of a sparse tensor, those that it does not store included: a small file could ask for any number.
const GREATEST_DENSE: usize = 1 << 26;

/// Reads tensors: from messages, and from the files that they name in `folder`.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    /// The folder of the ONNX file, if it was read from one.
    pub(crate) folder: Option<&'a Path>,
    /// Where the tensors go.
    pub(crate) device: Device,
}

impl Reader<'_> {
    /// A tensor of numbers or strings.
    pub(crate) fn value(&self, proto: &TensorProto) -> Result<Value> {
        let bad = |what: &str| Error::invalid(format!("the tensor {:?} {what}", proto.name));
        let element = Element::of_number(i64::from(proto.data_type))
            .ok_or_else(|| bad(&format!("has the unknown element type {}", proto.data_type)))?;
        let shape = shape(&proto.dims).ok_or_else(|| bad("has a size that is negative or too large"))?;
        let count: usize = shape.iter().product();
        if element == Element::String {
            if proto.string_data.len() != count {
                return Err(bad(&format!(
                    "has {} strings, but its shape needs {count}",
                    proto.string_data.len()
                )));
            }
            let text = |bytes: &Vec<u8>| {
                String::from_utf8(bytes.clone()).map_err(|_| bad("has a string that is not UTF-8"))
            };
            let values = proto.string_data.iter().map(text).collect::<Result<_>>()?;
            return Ok(Value::Text(Text { shape, values }));
        }
        let Some(dtype) = element.dtype() else {
            return Err(Error::unsupported(format!("elements of type {element:?}")));
        };
        let size = (count.checked_mul(element.bits())).ok_or_else(|| bad("is too large"))?.div_ceil(8);
        let bytes = match () {
            () if proto.data_location == EXTERNAL => self.external(proto, size)?,
            () if !proto.raw_data.is_empty() || count == 0 => proto.raw_data.clone(),
            () => typed(proto, element, count).ok_or_else(|| bad("has no data of its type"))?,
        };
        if bytes.len() != size {
            return Err(bad(&format!(
                "has {} bytes of data, but its shape and type need {size}",
                bytes.len()
            )));
        }
        let tensor = match element.is_narrow() {
            false => Tensor::from_bytes(&bytes, dtype, &shape, self.device)?,
            true => {
                let values = unpacked(&bytes, element, count);
                let floats = Tensor::from_slice(&values, &shape, self.device)?;
                floats.to_dtype(dtype)?
            }
        };
        Ok(Value::of_element(tensor, element))
    }

    /// A sparse tensor as a dense one.
    pub(crate) fn sparse(&self, proto: &SparseTensorProto) -> Result<Value> {
        let bad = |what: &str| Error::invalid(format!("the sparse tensor {what}"));
        let (Some(values), Some(indices)) = (&proto.values, &proto.indices) else {
            return Err(bad("lacks values or indices"));
        };
        let shape = shape(&proto.dims).ok_or_else(|| bad("has a size that is negative or too large"))?;
        let count: usize = shape.iter().product();
        if count > GREATEST_DENSE {
            return Err(Error::unsupported(format!(
                "the sparse tensor {:?} of {count} elements: at most 2^26 are supported, as it becomes dense",
                values.name
            )));
        }
        let values = self.value(values)?;
        let indices = self.value(indices)?;
        let element = values.element().unwrap_or(Element::Float);
        let (values, indices) = (values.tensor()?, indices.tensor()?);
        let places = integers(indices)?;
        let places = match *indices.shape() {
            [_] => places,
            [stored, rank] if rank == shape.len() => {
                let flat = |place: &[i64]| {
                    place.iter().zip(&shape).try_fold(0i64, |flat, (&at, &size)| {
                        (0..size as i64).contains(&at).then_some(flat * size as i64 + at)
                    })
                };
                let flat = places.chunks(rank.max(1)).take(stored).map(flat).collect::<Option<Vec<i64>>>();
                flat.ok_or_else(|| bad("has an index outside its shape"))?
            }
            _ => return Err(bad("has indices of a shape that does not fit")),
        };
        if places.len() != values.len() || places.iter().any(|&at| at < 0 || at >= count as i64) {
            return Err(bad("has indices that do not fit its values or shape"));
        }
        let places = Tensor::from_slice(&places, &[places.len()], self.device)?;
        let dense = Tensor::zeros(&[count], values.dtype(), self.device)?;
        let dense = dense.scatter(0, &places, &values.reshape(&[values.len()])?)?.reshape(&shape)?;
        Ok(Value::of_element(dense, element))
    }

    /// The bytes of a tensor in another file, of which there must be `size`.
    fn external(&self, proto: &TensorProto, size: usize) -> Result<Vec<u8>> {
        let bad =
            |what: String| Error::invalid(format!("the tensor {:?} is in another file: {what}", proto.name));
        let entry = |key: &str| proto.external_data.iter().find(|e| e.key == key).map(|e| e.value.as_str());
        let number = |key: &str| match entry(key) {
            None => Ok(None),
            Some(text) => text.parse::<u64>().map(Some).map_err(|_| bad(format!("{key} is {text:?}"))),
        };
        let location = entry("location").ok_or_else(|| bad("it is not named".to_owned()))?;
        let folder = self.folder.ok_or_else(|| bad("the network was not read from a file".to_owned()))?;
        let inside = Path::new(location)
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !inside {
            return Err(bad(format!("{location:?} is not below the folder of the ONNX file")));
        }
        let path = folder.join(location);
        let failed = |source| Error::File { path: path.clone(), source };
        // A link could lead elsewhere.
        let (real, root) = (path.canonicalize().map_err(failed)?, folder.canonicalize().map_err(failed)?);
        if !real.starts_with(&root) {
            return Err(bad(format!("{location:?} is not below the folder of the ONNX file")));
        }
        let offset = number("offset")?.unwrap_or(0);
        // To open a pipe would wait for its other end.
        if !real.metadata().map_err(failed)?.is_file() {
            return Err(bad(format!("{location:?} is not a regular file")));
        }
        let mut file = File::open(&real).map_err(failed)?;
        let available = file.metadata().map_err(failed)?.len().saturating_sub(offset);
        let length = number("length")?.unwrap_or(available);
        if length != size as u64 || length > available {
            return Err(bad(format!(
                "{length} bytes at {offset} of {location:?}, which has {available} from there; it needs {size}"
            )));
        }
        file.seek(SeekFrom::Start(offset)).map_err(failed)?;
        let mut bytes = phynexus::host_memory::filled(0u8, size)?;
        file.read_exact(&mut bytes).map_err(failed)?;
        Ok(bytes)
    }
}

/// The extents, if none is negative and their product fits.
fn shape(dims: &[i64]) -> Option<Vec<usize>> {
    let shape = dims.iter().map(|&size| usize::try_from(size).ok()).collect::<Option<Vec<usize>>>()?;
    shape
        .iter()
        .try_fold(1usize, |count, &size| count.checked_mul(size))
        .filter(|&count| count <= isize::MAX as usize)?;
    Some(shape)
}

/// The bytes of data in the message's fields by type.
fn typed(proto: &TensorProto, element: Element, count: usize) -> Option<Vec<u8>> {
    let bytes: Vec<u8> = match element {
        Element::Float => proto.float_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Element::Double => proto.double_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Element::Int64 => proto.int64_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Element::Uint64 => proto.uint64_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Element::Uint32 => proto.uint64_data.iter().flat_map(|&x| (x as u32).to_le_bytes()).collect(),
        // The low bytes of each number; of narrow types, a number holds a byte of several elements.
        _ => {
            let size = element.bits().div_ceil(8);
            proto.int32_data.iter().flat_map(|x| x.to_le_bytes()[..size].to_vec()).collect()
        }
    };
    (bytes.len() == (count * element.bits()).div_ceil(8)).then_some(bytes)
}

/// The values of a narrow type; the first element has the lowest bits.
fn unpacked(bytes: &[u8], element: Element, count: usize) -> Vec<f32> {
    let (bits, each) = (element.bits(), 8 / element.bits());
    (0..count).map(|at| element.decode(bytes[at / each] >> (at % each * bits))).collect()
}

/// Whether computations of shapes may read the tensor: it is small and of integers.
pub(crate) fn is_for_shapes(value: &Value) -> bool {
    let Value::Tensor(tensor) = value else { return false };
    let is_whole = matches!(tensor.dtype(), DType::I64 | DType::I32 | DType::Bool);
    is_whole && tensor.len() <= 1024 && tensor.shape().len() <= 1
}

/// Whether a constant stays on the CPU on every device: computations of shapes may read it, or it is a zero point.
pub(crate) fn stays_on_cpu(value: &Value) -> bool {
    let is_short = |tensor: &Tensor| tensor.dtype().is_integer() && tensor.dtype().size() <= 2;
    is_for_shapes(value)
        || matches!(value, Value::Tensor(tensor) if is_short(tensor) && tensor.shape().len() <= 1)
}
