//! Tensors of the engine as tensors of ONNX Runtime, and back.

use std::slice;

use ort::{
    memory::Allocator,
    value::{DynTensor, DynValue, TensorElementType, ValueType},
};
use phynexus::{DType, Device, Tensor};

use crate::{Error, Result};

/// The library's name of a dtype.
fn element(dtype: DType) -> TensorElementType {
    match dtype {
        DType::Bool => TensorElementType::Bool,
        DType::U8 => TensorElementType::Uint8,
        DType::U16 => TensorElementType::Uint16,
        DType::U32 => TensorElementType::Uint32,
        DType::U64 => TensorElementType::Uint64,
        DType::I8 => TensorElementType::Int8,
        DType::I16 => TensorElementType::Int16,
        DType::I32 => TensorElementType::Int32,
        DType::I64 => TensorElementType::Int64,
        DType::F8E4M3 => TensorElementType::Float8E4M3FN,
        DType::F8E5M2 => TensorElementType::Float8E5M2,
        DType::F16 => TensorElementType::Float16,
        DType::BF16 => TensorElementType::Bfloat16,
        DType::F32 => TensorElementType::Float32,
        DType::F64 => TensorElementType::Float64,
    }
}

/// A copy for the library.
pub(super) fn to_runtime(tensor: &Tensor) -> Result<DynTensor> {
    let bytes = tensor.to_bytes()?;
    let shape: Vec<i64> = tensor.shape().iter().map(|&size| size as i64).collect();
    let made = DynTensor::new(&Allocator::default(), element(tensor.dtype()), shape);
    let mut copy = made.map_err(|e| refused(&e))?;
    if !bytes.is_empty() {
        let target = copy.data_ptr_mut().cast::<u8>();
        if target.is_null() || copy.size() != Some(bytes.len()) {
            return Err(failed("a tensor was not allocated"));
        }
        // SAFETY: the library allocated as many bytes on the CPU, which nothing else uses.
        unsafe { slice::from_raw_parts_mut(target, bytes.len()) }.copy_from_slice(&bytes);
    }
    Ok(copy)
}

/// A copy for the engine, on the CPU.
pub(super) fn from_runtime(value: &DynValue, cpu: Device) -> Result<Tensor> {
    let ValueType::Tensor { ty, shape, .. } = value.dtype() else {
        return Err(failed("an output is not a tensor"));
    };
    let dtype = DType::ALL.into_iter().find(|&dtype| element(dtype) == *ty);
    let dtype = dtype.ok_or_else(|| failed(&format!("an output of the type {ty:?} is not supported")))?;
    let shape: Option<Vec<usize>> = shape.iter().map(|&size| usize::try_from(size).ok()).collect();
    let shape = shape.ok_or_else(|| failed("an output has an unknown shape"))?;
    let size = shape.iter().try_fold(dtype.size(), |size, &extent| size.checked_mul(extent));
    let size = size.ok_or_else(|| failed("an output is too large"))?;
    let tensor = value.view().downcast::<ort::value::DynTensorValueType>().map_err(|e| refused(&e))?;
    if !tensor.memory_info().is_cpu_accessible() {
        return Err(failed("an output is not in the CPU's memory"));
    }
    let source = tensor.data_ptr().cast::<u8>();
    if size == 0 || source.is_null() {
        return Ok(Tensor::from_bytes(&[], dtype, &shape, cpu)?);
    }
    // SAFETY: the tensor has this type and shape, is in the CPU's memory and lives until this function returns.
    let bytes = unsafe { slice::from_raw_parts(source, size) };
    Ok(Tensor::from_bytes(bytes, dtype, &shape, cpu)?)
}

/// An error of the library.
pub(super) fn refused<R>(error: &ort::Error<R>) -> Error {
    failed(error.message())
}

/// An error with this message.
pub(super) fn failed(message: &str) -> Error {
    Error::Runtime { runtime: super::KIND.to_owned(), message: message.trim().to_owned() }
}
