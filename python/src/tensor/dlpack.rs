//! DLPack: export of tensors without a copy, import with a copy.
//!
//! The structures follow <https://dmlc.github.io/dlpack/latest/>, version 1.0 and the unversioned form before it.

#![allow(unsafe_code)]

pub(crate) mod import;

use std::{
    any::Any,
    ffi::{CStr, c_void},
};

use phynexus::{
    DType, Tensor,
    device::{Exchange, Storage},
    schedule::capture::refuse_reading,
    shape::Layout,
};
use pyo3::{exceptions::PyBufferError, ffi, prelude::*};

use super::PyTensor;
use crate::{
    error::{Failure, Result, type_error, value_error},
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
/// DLPack's type codes of real and of complex floating-point numbers.
const FLOAT: u8 = 2;
const COMPLEX: u8 = 5;
/// DLPack's device type codes by our device kinds.
const GPUS: &[(&str, i32)] = &[("cuda", 2)];
/// DLPack's number for CUDA's default stream.
const DEFAULT_STREAM: u64 = 1;
const READ_ONLY: u64 = 1;
const IS_COPIED: u64 = 2;

const NAME: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

/// What an exported tensor keeps alive until the consumer calls the deleter.
struct Exported {
    kept: Option<Box<dyn Any + Send>>,
    shape: Vec<i64>,
    strides: Vec<i64>,
    /// The GPU and the stream on which the consumer uses the memory; `None` for the CPU. The stream is `None` if the
    /// consumer asked for no synchronisation.
    used: Option<(phynexus::Device, Option<u64>)>,
}

impl Drop for Exported {
    fn drop(&mut self) {
        // The engine reuses the memory in the order of its own stream, which must therefore wait for the consumer's
        // stream.
        if let Some((device, stream)) = self.used
            && let Some(exchange) = device.backend().exchange()
        {
            let behind = match stream {
                // SAFETY: the default stream exists as long as its device.
                Some(DEFAULT_STREAM) => unsafe { exchange.follow(DEFAULT_STREAM) },
                // Another stream may have been destroyed, and number 2 means a different stream on each thread.
                _ => exchange.settle(),
            };
            if behind.is_err() {
                // The memory may still be in use, so leak it.
                std::mem::forget(self.kept.take());
            }
        }
    }
}

/// The DLPack device of one of our devices.
fn place_of(device: phynexus::Device) -> Option<(i32, i32)> {
    match device.name().split_once(':') {
        None if device.name() == "cpu" => Some((CPU, 0)),
        None => None,
        Some((kind, number)) => {
            let known = GPUS.iter().find(|(name, _)| *name == kind)?;
            device.backend().exchange()?;
            Some((known.1, number.parse().ok()?))
        }
    }
}

/// Our device for a DLPack device.
fn device_at(kind: i32, number: i32) -> Option<phynexus::Device> {
    let (name, _) = GPUS.iter().find(|(_, known)| *known == kind)?;
    let device = crate::device::find(&format!("{name}:{number}")).ok()?;
    device.backend().exchange().map(|_| device)
}

fn buffer_error(message: impl Into<String>) -> Failure {
    Failure::from(PyBufferError::new_err(message.into()))
}

fn code(dtype: DType) -> DataType {
    let code = match dtype {
        DType::Bool => 6,
        DType::BF16 => 4,
        DType::F8E4M3 => 10,
        DType::F8E5M2 => 12,
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
        (10, 8, 1) => DType::F8E4M3,
        (12, 8, 1) => DType::F8E5M2,
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
                "from_dlpack: unsupported dtype: type code {code}, {bits} bits, {lanes} lanes"
            )));
        }
    };
    Ok(known)
}

/// The DLPack array of an evaluated tensor, and what keeps its memory alive.
fn exported(tensor: &Tensor, stream: Option<u64>) -> Result<(Array, Box<Exported>)> {
    let storage = tensor.storage()?;
    let Some((kind, index)) = place_of(tensor.device()) else { return Err(not_handed_over(tensor.device())) };
    let layout = storage.layout.clone();
    let on_gpu = kind != CPU;
    let (start, kept) = match storage.buffer.0.host_pointer() {
        Some(start) => (start as usize, Box::new(storage) as Box<dyn Any + Send>),
        None => {
            let exchange = tensor.device().backend().exchange();
            let exchange = exchange.ok_or_else(|| not_handed_over(tensor.device()))?;
            let (address, kept) = exchange.address(&storage.buffer)?;
            if let Some(stream) = stream {
                // SAFETY: DLPack requires that it is a stream of this device.
                unsafe { exchange.precede(stream) }?;
            }
            (address as usize, kept)
        }
    };
    let start = start + layout.offset * tensor.dtype().size();
    let shape = layout.shape.iter().map(|&size| size as i64).collect();
    let strides = layout.strides.iter().map(|&stride| stride as i64).collect();
    let used = on_gpu.then_some((tensor.device(), stream));
    let mut kept = Box::new(Exported { kept: Some(kept), shape, strides, used });
    let array = Array {
        data: std::ptr::with_exposed_provenance_mut(start),
        device: Device { kind, index },
        ndim: kept.shape.len() as i32,
        dtype: code(tensor.dtype()),
        shape: kept.shape.as_mut_ptr(),
        strides: kept.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    Ok((array, kept))
}

fn not_handed_over(device: phynexus::Device) -> Failure {
    buffer_error(format!("DLPack export from {device} is not supported: use .cpu() first"))
}

/// An array of pairs as one of complex numbers. Nothing is left to do for strides of pairs that are kept together.
fn of_complex((mut array, mut kept): (Array, Box<Exported>)) -> (Array, Box<Exported>) {
    kept.shape.pop();
    kept.strides.pop();
    kept.strides.iter_mut().for_each(|stride| *stride /= 2);
    array.ndim -= 1;
    array.dtype = DataType { code: COMPLEX, bits: array.dtype.bits * 2, ..array.dtype };
    (array, kept)
}

/// Whether the parts of each complex number are side by side in memory.
fn are_together(pairs: &Tensor) -> Result<bool> {
    let layout = &pairs.storage()?.layout;
    let Some((last, strides)) = layout.strides.split_last() else { return Ok(false) };
    Ok(*last == 1 && layout.offset.is_multiple_of(2) && strides.iter().all(|stride| stride % 2 == 0))
}

/// A tensor with the same values in newly allocated memory.
fn copied(tensor: &Tensor) -> Result<Tensor> {
    let device = tensor.device();
    let Some(exchange) = device.backend().exchange() else {
        return Ok(Tensor::from_bytes(&tensor.to_bytes()?, tensor.dtype(), tensor.shape(), device)?);
    };
    let storage = tensor.storage()?;
    let (address, kept) = exchange.address(&storage.buffer)?;
    let address = address + (storage.layout.offset * tensor.dtype().size()) as u64;
    let layout = storage.layout.clone();
    // SAFETY: the buffer holds the elements. It is kept until the copy is submitted, and later use of its memory is
    // ordered after the copy.
    let copy = unsafe { taken(exchange, device, tensor.dtype(), &layout.shape, &layout.strides, address) };
    drop(kept);
    copy
}

/// Copies strided elements from a device's memory into a new tensor on it.
///
/// # Safety
/// The elements must stay valid until the copy is done.
unsafe fn taken(
    exchange: &dyn Exchange,
    device: phynexus::Device,
    dtype: DType,
    shape: &[usize],
    strides: &[isize],
    address: u64,
) -> Result<Tensor> {
    if shape.contains(&0) {
        return Ok(Tensor::from_bytes(&[], dtype, shape, device)?);
    }
    // The copy spans the lowest to the highest element.
    let reach = |wanted: fn(&isize) -> bool| -> isize {
        let ends = shape.iter().zip(strides).map(|(&size, &stride)| (size as isize - 1) * stride);
        ends.filter(wanted).sum()
    };
    let (below, above) = (reach(|end| *end < 0).unsigned_abs(), reach(|end| *end > 0).unsigned_abs());
    let bytes = (below + above + 1) * dtype.size();
    let buffer = device.backend().allocate(bytes)?;
    // SAFETY: guaranteed by the caller.
    unsafe { exchange.take(&buffer, address - (below * dtype.size()) as u64, bytes) }?;
    let layout = Layout { shape: shape.into(), strides: strides.into(), offset: below };
    Ok(Tensor::from_storage(device, dtype, Storage { buffer, layout }))
}

/// Frees an exported tensor.
unsafe extern "C" fn free(managed: *mut Managed) {
    // SAFETY: `__dlpack__` boxed both, and the consumer calls the deleter once.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Exported>()));
    }
}

unsafe extern "C" fn free_versioned(managed: *mut Versioned) {
    // SAFETY: as in `free`.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Exported>()));
    }
}

/// Capsule destructor: frees the tensor if no consumer took it.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: Python passes the capsule being destroyed. Its name tells which structure it holds, and that no consumer
    // renamed it.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            free(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            free_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}

fn capsule<'py>(py: Python<'py>, content: *mut c_void, name: &'static CStr) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the content is not null, the name is static, and the destructor recognises the content by the name.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(content, name.as_ptr(), Some(destroy))) }
}

#[pymethods]
impl PyTensor {
    /// Returns the device as DLPack's pair of device type and index.
    fn __dlpack_device__(&self) -> Result<(i32, i32)> {
        let device = self.variable().tensor().device();
        place_of(device).ok_or_else(|| not_handed_over(device))
    }

    /// Exports the tensor to another library. The memory is shared and must not be written to. On a GPU, ``stream`` is
    /// the stream on which the consumer uses it: ``None`` for the default stream, -1 for no synchronisation.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        // In a recording, the current values would be baked in as constants.
        refuse_reading()?;
        let is_complex = self.special.is_complex();
        let mut tensor = self.seen(false).tensor()?;
        if tensor.requires_grad() {
            return Err(buffer_error("cannot export a tensor that requires gradients: use detach()"));
        }
        let here = self.__dlpack_device__()?;
        // An empty tensor never needs a copy.
        let no_copy = copy == Some(false) && !tensor.is_empty();
        let moved = dl_device.is_some_and(|wanted| wanted != here);
        if moved {
            if dl_device != Some((CPU, 0)) {
                return Err(buffer_error(format!(
                    "dl_device must be {here:?} (the tensor's device) or the CPU"
                )));
            }
            if no_copy {
                return Err(buffer_error(
                    "exporting a GPU tensor to the CPU needs a copy, which copy=False forbids",
                ));
            }
            tensor = tensor.to_device(crate::device::find("cpu")?)?;
        }
        let stream = match stream {
            _ if moved || here.0 == CPU => None,
            None => Some(DEFAULT_STREAM),
            Some(-1) => None,
            Some(handle @ 1..) => Some(handle as u64),
            Some(other) => {
                return Err(value_error(format!(
                    "invalid stream {other}: expected a handle, 1, 2, -1 or None"
                )));
            }
        };
        // Before version 1.0 an export could not be marked read-only, so it is a copy unless the caller refuses that.
        let versioned = max_version.is_some_and(|(major, _)| major >= 1);
        let own = !moved && (copy == Some(true) || !versioned && !no_copy);
        let tensor = compute(py, || -> Result<Tensor> {
            tensor.evaluate()?;
            if is_complex && !are_together(&tensor)? {
                if no_copy {
                    return Err(buffer_error(
                        "exporting these complex numbers needs a copy, which copy=False forbids",
                    ));
                }
                let whole = tensor.contiguous()?;
                whole.evaluate()?;
                return Ok(whole);
            }
            if own { copied(&tensor) } else { Ok(tensor) }
        })?;
        let exported = exported(&tensor, stream)?;
        let (array, kept) = if is_complex { of_complex(exported) } else { exported };
        let context = Box::into_raw(kept).cast::<c_void>();
        if versioned {
            let flags = if own || moved { IS_COPIED } else { READ_ONLY };
            let managed =
                Versioned { major: 1, minor: 0, context, deleter: Some(free_versioned), flags, array };
            return Ok(capsule(py, Box::into_raw(Box::new(managed)).cast(), VERSIONED)?);
        }
        let managed = Managed { array, context, deleter: Some(free) };
        Ok(capsule(py, Box::into_raw(Box::new(managed)).cast(), NAME)?)
    }
}
