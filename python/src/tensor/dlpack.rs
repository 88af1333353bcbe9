//! DLPack: tensors handed to other libraries without a copy, and taken from them as a copy.
//!
//! Structures and rules are those of <https://dmlc.github.io/dlpack/latest/>, version 1.0 and the unversioned form before.

use std::ffi::{CStr, c_void};

use phynexus::{DType, Tensor, device::Storage, shape::Layout};
use pyo3::{
    exceptions::PyBufferError,
    ffi,
    prelude::*,
    types::{PyCapsule, PyTuple},
};

use super::PyTensor;
use crate::{
    error::{Failure, Result, runtime_error, type_error},
    interrupt::compute,
};

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: i32,
    index: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Array {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`, before version 1.0.
#[repr(C)]
struct Managed {
    array: Array,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    array: Array,
}

const CPU: i32 = 1;
const READ_ONLY: u64 = 1;
const IS_COPIED: u64 = 2;

const NAME: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

/// What an exported tensor keeps alive until its taker lets go.
struct Exported {
    _storage: Storage,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

fn code(dtype: DType) -> DataType {
    let code = match dtype {
        DType::Bool => 6,
        DType::BF16 => 4,
        _ if dtype.is_float() => 2,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => 1,
        _ => 0,
    };
    DataType { code, bits: (dtype.size() * 8) as u8, lanes: 1 }
}

fn dtype_of(given: DataType) -> Result<DType> {
    let known = match (given.code, given.bits, given.lanes) {
        (6, 8, 1) => DType::Bool,
        (4, 16, 1) => DType::BF16,
        (2, 16, 1) => DType::F16,
        (2, 32, 1) => DType::F32,
        (2, 64, 1) => DType::F64,
        (1, 8, 1) => DType::U8,
        (1, 16, 1) => DType::U16,
        (1, 32, 1) => DType::U32,
        (1, 64, 1) => DType::U64,
        (0, 8, 1) => DType::I8,
        (0, 16, 1) => DType::I16,
        (0, 32, 1) => DType::I32,
        (0, 64, 1) => DType::I64,
        (code, bits, lanes) => {
            return Err(type_error(format!(
                "from_dlpack: type code {code} of {bits} bits in {lanes} lanes has no dtype here"
            )));
        }
    };
    Ok(known)
}

/// The array for a tensor on the CPU, and what keeps it alive.
fn exported(tensor: &Tensor) -> Result<(Array, Box<Exported>)> {
    let storage = tensor.storage()?;
    let Some(start) = storage.buffer.0.host_pointer() else {
        return Err(Failure::from(PyBufferError::new_err(format!(
            "a tensor on {} is handed over through the CPU: use .cpu() first",
            tensor.device()
        ))));
    };
    let layout = &storage.layout;
    let start = start.wrapping_add(layout.offset * tensor.dtype().size());
    let shape = layout.shape.iter().map(|&size| size as i64).collect();
    let strides = layout.strides.iter().map(|&stride| stride as i64).collect();
    let mut kept = Box::new(Exported { _storage: storage, shape, strides });
    let array = Array {
        data: start.cast(),
        device: Device { kind: CPU, index: 0 },
        ndim: kept.shape.len() as i32,
        dtype: code(tensor.dtype()),
        shape: kept.shape.as_mut_ptr(),
        strides: kept.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    Ok((array, kept))
}

/// Frees an exported tensor.
unsafe extern "C" fn free(managed: *mut Managed) {
    // SAFETY: both were boxed in `__dlpack__`, and a taker calls this once.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Exported>()));
    }
}

unsafe extern "C" fn free_versioned(managed: *mut Versioned) {
    // SAFETY: as `free`.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Exported>()));
    }
}

/// Frees what nobody has taken out of its capsule.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: Python hands over the capsule that it destroys; the name says what is in it, and that it was not taken.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            free(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            free_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}

fn capsule<'py>(py: Python<'py>, content: *mut c_void, name: &'static CStr) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the content is not null, the name lives for ever, and the destructor knows what it is.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(content, name.as_ptr(), Some(destroy))) }
}

#[pymethods]
impl PyTensor {
    /// The kind and number of the device, as DLPack counts them.
    fn __dlpack_device__(&self) -> Result<(i32, i32)> {
        match self.place().tensor().device().name() {
            "cpu" => Ok((CPU, 0)),
            other => Err(Failure::from(PyBufferError::new_err(format!(
                "a tensor on {other} is handed over through the CPU: use .cpu() first"
            )))),
        }
    }

    /// The tensor for another library: its memory is shared, and must not be written to.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        let _ = stream;
        if dl_device.is_some_and(|device| device != (CPU, 0)) {
            return Err(Failure::from(PyBufferError::new_err("only the CPU is handed over to")));
        }
        let mut tensor = self.tensor()?;
        if tensor.requires_grad() {
            return Err(Failure::from(PyBufferError::new_err(
                "the tensor requires gradients, which other libraries lose: use detach()",
            )));
        }
        // Before version 1.0 nobody could be told that the memory must not be written to: so it is a copy.
        let versioned = max_version.is_some_and(|(major, _)| major >= 1);
        if !versioned && copy == Some(false) {
            return Err(Failure::from(PyBufferError::new_err(
                "without max_version the tensor is copied, which copy=False forbids: it must not be written to",
            )));
        }
        let copied = copy == Some(true) || !versioned;
        if copied {
            let bytes = compute(py, || tensor.to_bytes())?;
            tensor = Tensor::from_bytes(&bytes, tensor.dtype(), tensor.shape(), tensor.device())?;
        }
        compute(py, || tensor.evaluate())?;
        let (array, kept) = exported(&tensor)?;
        let context = Box::into_raw(kept).cast::<c_void>();
        if versioned {
            let flags = if copied { IS_COPIED } else { READ_ONLY };
            let managed =
                Versioned { major: 1, minor: 0, context, deleter: Some(free_versioned), flags, array };
            return Ok(capsule(py, Box::into_raw(Box::new(managed)).cast(), VERSIONED)?);
        }
        let managed = Managed { array, context, deleter: Some(free) };
        Ok(capsule(py, Box::into_raw(Box::new(managed)).cast(), NAME)?)
    }
}

/// The elements of an array on the CPU in row-major order.
///
/// # Safety
/// The array describes memory that may be read.
unsafe fn gathered(array: &Array, size: usize) -> Result<(Vec<usize>, Vec<u8>)> {
    let rank = usize::try_from(array.ndim).map_err(|_| runtime_error("from_dlpack: a negative rank"))?;
    // SAFETY: by DLPack's rules there are so many extents; strides may be absent.
    let (shape, strides) = unsafe {
        let shape = if rank == 0 { &[][..] } else { std::slice::from_raw_parts(array.shape, rank) };
        let strides =
            (!array.strides.is_null() && rank > 0).then(|| std::slice::from_raw_parts(array.strides, rank));
        (shape, strides)
    };
    let shape = shape
        .iter()
        .map(|&extent| usize::try_from(extent).map_err(|_| runtime_error("from_dlpack: a negative size")))
        .collect::<Result<Vec<_>>>()?;
    let count: usize = shape.iter().product();
    let mut strides: Vec<isize> = strides.map_or_else(Vec::new, |s| s.iter().map(|&s| s as isize).collect());
    if strides.is_empty() {
        strides = Layout::contiguous(&shape).strides.to_vec();
    }
    let mut bytes = Vec::with_capacity(count * size);
    let start = array.data.cast::<u8>().cast_const().wrapping_add(array.byte_offset as usize);
    let mut index = vec![0usize; rank];
    for _ in 0..count {
        let moved: isize = index.iter().zip(&strides).map(|(&i, &stride)| i as isize * stride).sum();
        // SAFETY: the element is one of the array's.
        bytes.extend_from_slice(unsafe {
            std::slice::from_raw_parts(start.wrapping_offset(moved * size as isize), size)
        });
        for axis in (0..rank).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    Ok((shape, bytes))
}

/// A tensor of the values of another library's array. They are copied: tensors are values, which nobody else may change.
#[pyfunction]
#[pyo3(signature = (x, device=None))]
pub(crate) fn from_dlpack(x: &Bound<'_, PyAny>, device: Option<crate::device::Named>) -> Result<PyTensor> {
    let py = x.py();
    let (kind, number): (i32, i32) = x.call_method0("__dlpack_device__")?.extract()?;
    if kind != CPU {
        return Err(Failure::from(PyBufferError::new_err(format!(
            "an array on DLPack's device ({kind}, {number}) comes in through the CPU: bring it there first"
        ))));
    }
    let options = pyo3::types::PyDict::new(py);
    options.set_item("max_version", PyTuple::new(py, [1, 0])?)?;
    let capsule = match x.call_method("__dlpack__", (), Some(&options)) {
        Ok(capsule) => capsule,
        Err(error) if error.is_instance_of::<pyo3::exceptions::PyTypeError>(py) => {
            x.call_method0("__dlpack__")?
        }
        Err(error) => return Err(error.into()),
    };
    let capsule =
        capsule.cast::<PyCapsule>().map_err(|_| type_error("from_dlpack: __dlpack__ gave no capsule"))?;
    let pointer = capsule.as_ptr();
    // SAFETY: the name of a capsule says which structure is in it; it stays there, and alive, until the capsule goes, whose
    // destructor frees it, since its name is not changed here.
    let (dtype, (shape, bytes)) = unsafe {
        let array = if ffi::PyCapsule_IsValid(pointer, VERSIONED.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(pointer, VERSIONED.as_ptr()).cast::<Versioned>();
            if (*managed).major != 1 {
                return Err(runtime_error(format!(
                    "from_dlpack: version {} is not known here",
                    (*managed).major
                )));
            }
            &(*managed).array
        } else if ffi::PyCapsule_IsValid(pointer, NAME.as_ptr()) == 1 {
            &(*ffi::PyCapsule_GetPointer(pointer, NAME.as_ptr()).cast::<Managed>()).array
        } else {
            return Err(type_error("from_dlpack: the capsule holds no array, or was taken before"));
        };
        let dtype = dtype_of(array.dtype)?;
        (dtype, gathered(array, dtype.size())?)
    };
    let mut bytes = bytes;
    if dtype == DType::Bool {
        bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    }
    let device = device.map_or_else(|| crate::device::find("cpu"), |device| Ok(device.0))?;
    Ok(PyTensor::wrap(Tensor::from_bytes(&bytes, dtype, &shape, device)?))
}
