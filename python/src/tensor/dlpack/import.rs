//! DLPack import: arrays of other libraries as tensors.

use phynexus::{
    DType, Tensor, host_memory,
    shape::{Layout, checked_element_count},
};
use pyo3::{
    exceptions::PyTypeError,
    ffi,
    prelude::*,
    types::{PyCapsule, PyDict},
};

use super::{
    Array, COMPLEX, CPU, DataType, Device, FLOAT, Managed, NAME, VERSIONED, Versioned, buffer_error,
    device_at, dtype_of, taken,
};
use crate::{
    complex,
    error::{Result, runtime_error, type_error},
    tensor::PyTensor,
};

/// The shape and strides of an array.
///
/// # Safety
/// The array must be valid by DLPack's rules.
unsafe fn extents(array: &Array) -> Result<(Vec<usize>, Vec<isize>)> {
    let rank = usize::try_from(array.ndim).map_err(|_| runtime_error("from_dlpack: a negative rank"))?;
    // SAFETY: DLPack guarantees `ndim` entries; strides may be null.
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
    let strides = match strides {
        Some(strides) => strides.iter().map(|&stride| stride as isize).collect(),
        None => Layout::contiguous(&shape).strides.to_vec(),
    };
    Ok((shape, strides))
}

/// The elements of an array on the CPU in row-major order.
///
/// # Safety
/// Elements of `size` bytes with this shape and these strides must be readable from `address`.
unsafe fn gathered(address: usize, shape: &[usize], strides: &[isize], size: usize) -> Result<Vec<u8>> {
    let Some(length) = checked_element_count(shape).and_then(|count| count.checked_mul(size)) else {
        return Err(phynexus::Error::HostMemory { requested: usize::MAX }.into());
    };
    if length == 0 {
        return Ok(Vec::new());
    }
    let mut bytes = host_memory::room(length)?;
    let start: *const u8 = std::ptr::with_exposed_provenance(address);
    if strides == &Layout::contiguous(shape).strides[..] {
        // SAFETY: guaranteed by the caller; the elements are contiguous.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start, length) });
        return Ok(bytes);
    }
    let mut index = vec![0usize; shape.len()];
    for _ in 0..length / size {
        let moved: isize = index.iter().zip(strides).map(|(&i, &stride)| i as isize * stride).sum();
        // SAFETY: the element belongs to the array.
        bytes.extend_from_slice(unsafe {
            std::slice::from_raw_parts(start.wrapping_offset(moved * size as isize), size)
        });
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    Ok(bytes)
}

/// The array in a capsule.
///
/// # Safety
/// The reference must not outlive the capsule.
unsafe fn array_in<'a>(capsule: &'a Bound<'_, PyCapsule>) -> Result<&'a Array> {
    let pointer = capsule.as_ptr();
    // SAFETY: the capsule's name tells which structure it holds. The structure lives until the capsule's destructor
    // frees it, because the name is not changed here.
    unsafe {
        if ffi::PyCapsule_IsValid(pointer, VERSIONED.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(pointer, VERSIONED.as_ptr()).cast::<Versioned>();
            if (*managed).major != 1 {
                let major = (*managed).major;
                return Err(runtime_error(format!("from_dlpack: DLPack version {major} is not supported")));
            }
            Ok(&(*managed).array)
        } else if ffi::PyCapsule_IsValid(pointer, NAME.as_ptr()) == 1 {
            Ok(&(*ffi::PyCapsule_GetPointer(pointer, NAME.as_ptr()).cast::<Managed>()).array)
        } else {
            Err(type_error("from_dlpack: the capsule holds no array, or was consumed before"))
        }
    }
}

/// Calls ``__dlpack__``. An array on a device that we do not support is requested on the CPU (`through_cpu`).
fn handed_over<'py>(
    x: &Bound<'py, PyAny>,
    gpu: Option<phynexus::Device>,
    through_cpu: bool,
    copy: Option<bool>,
) -> Result<Bound<'py, PyAny>> {
    let py = x.py();
    let options = PyDict::new(py);
    if let Some(exchange) = gpu.and_then(|gpu| gpu.backend().exchange()) {
        options.set_item("stream", exchange.queue())?;
    }
    let newest = options.copy()?;
    newest.set_item("max_version", (1, 0))?;
    if through_cpu {
        newest.set_item("dl_device", (CPU, 0))?;
    }
    // Import always copies, so `copy=True` needs no request.
    if copy == Some(false) {
        newest.set_item("copy", false)?;
    }
    match x.call_method("__dlpack__", (), Some(&newest)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            if through_cpu {
                return Err(buffer_error(format!(
                    "from_dlpack: the array's library does not export it to the CPU ({error}): move it to the CPU first"
                )));
            }
            // Producers before version 1.0 accept only the stream.
            Ok(x.call_method("__dlpack__", (), Some(&options))?)
        }
        answer => Ok(answer?),
    }
}

/// Creates a tensor from another library's array, on the array's device unless ``device`` is given. The values are
/// always copied, so ``copy=False`` is an error unless the array is empty. An array on an unsupported device is copied
/// through the CPU; it requires ``device``.
#[pyfunction]
#[pyo3(signature = (x, device=None, copy=None))]
pub(crate) fn from_dlpack<'py>(
    x: &Bound<'py, PyAny>,
    device: Option<crate::device::Named>,
    copy: Option<bool>,
) -> Result<Bound<'py, PyTensor>> {
    let (values, is_complex) = values_of(x, device, copy)?;
    let values = PyTensor::wrap(values);
    if is_complex { complex::wrapped(x.py(), &values) } else { Ok(Bound::new(x.py(), values)?) }
}

/// The real tensor that [`from_dlpack`] creates.
pub(crate) fn exchanged(
    x: &Bound<'_, PyAny>,
    device: Option<crate::device::Named>,
    copy: Option<bool>,
) -> Result<Tensor> {
    let (values, is_complex) = values_of(x, device, copy)?;
    if is_complex { Err(crate::refusal::no_complex()) } else { Ok(values) }
}

/// The values of an array, and whether they are the pairs of complex numbers.
fn values_of(
    x: &Bound<'_, PyAny>,
    device: Option<crate::device::Named>,
    copy: Option<bool>,
) -> Result<(Tensor, bool)> {
    let py = x.py();
    let (kind, number): (i32, i32) = x.call_method0("__dlpack_device__")?.extract()?;
    let gpu = device_at(kind, number);
    let through_cpu = kind != CPU && gpu.is_none();
    if through_cpu && device.is_none() {
        return Err(buffer_error(format!(
            "from_dlpack: DLPack device ({kind}, {number}) is not supported: choose a device for the \
             values, as in device=\"cpu\""
        )));
    }
    let capsule = handed_over(x, gpu, through_cpu, copy)?;
    let capsule = capsule
        .cast::<PyCapsule>()
        .map_err(|_| type_error("from_dlpack: __dlpack__ did not return a capsule"))?;
    // SAFETY: the capsule lives until the end of this function.
    let array = unsafe { array_in(capsule) }?;
    if gpu.is_none() && array.device.kind != CPU {
        let Device { kind, index } = array.device;
        return Err(buffer_error(format!(
            "from_dlpack: the array was requested on the CPU but is on DLPack device ({kind}, {index})"
        )));
    }
    let is_complex = array.dtype.code == COMPLEX;
    let dtype = match is_complex {
        true => dtype_of(DataType { code: FLOAT, bits: array.dtype.bits / 2, ..array.dtype })?,
        false => dtype_of(array.dtype)?,
    };
    // SAFETY: the capsule's producer follows DLPack's rules.
    let (mut shape, mut strides) = unsafe { extents(array) }?;
    if is_complex {
        shape.push(2);
        strides.iter_mut().for_each(|stride| *stride *= 2);
        strides.push(1);
    }
    if copy == Some(false) && !shape.contains(&0) {
        return Err(buffer_error("from_dlpack: importing needs a copy, which copy=False forbids"));
    }
    let address = array.data.expose_provenance() + array.byte_offset as usize;
    let is_bool = dtype == DType::Bool;
    // Not interruptible: the memory is valid only until the capsule is released, after the copy.
    let tensor = match gpu.and_then(|gpu| Some((gpu, gpu.backend().exchange()?))) {
        Some((gpu, exchange)) => py.detach(|| -> Result<Tensor> {
            let stored = if is_bool { DType::U8 } else { dtype };
            // SAFETY: `synchronize` waits for the copy.
            let tensor = unsafe { taken(exchange, gpu, stored, &shape, &strides, address as u64) }?;
            gpu.synchronize()?;
            Ok(if is_bool { tensor.ne_scalar(0)? } else { tensor })
        })?,
        None => {
            let cpu = crate::device::find("cpu")?;
            py.detach(|| -> Result<Tensor> {
                // SAFETY: the array is on the CPU.
                let mut bytes = unsafe { gathered(address, &shape, &strides, dtype.size()) }?;
                if is_bool {
                    bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
                }
                Ok(Tensor::from_bytes(&bytes, dtype, &shape, cpu)?)
            })?
        }
    };
    let tensor = match device {
        Some(device) => tensor.to_device(device.0)?,
        None => tensor,
    };
    Ok((tensor, is_complex))
}
