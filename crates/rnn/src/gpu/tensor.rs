//! Tensors on a device.

use ndarray::Array2;
use neurenix::phynexus::{DType, Tensor};
use serde::{Deserialize, Serialize};

use super::GpuContext;
use crate::{NetworkError, Result, convert};

/// The type of a tensor's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum GpuDataType {
    /// IEEE, 16 bits.
    Float16,
    /// IEEE, 32 bits.
    Float32,
    /// IEEE, 64 bits.
    Float64,
    /// 8 bits, signed.
    Int8,
    /// 16 bits, signed.
    Int16,
    /// 32 bits, signed.
    Int32,
    /// 64 bits, signed.
    Int64,
    /// 8 bits, not signed.
    UInt8,
    /// 16 bits, not signed.
    UInt16,
    /// 32 bits, not signed.
    UInt32,
    /// 64 bits, not signed.
    UInt64,
    /// True or false.
    Bool,
}

impl GpuDataType {
    /// Bytes of one number.
    pub fn size(&self) -> usize {
        self.engine().size()
    }

    pub(crate) fn engine(self) -> DType {
        match self {
            GpuDataType::Float16 => DType::F16,
            GpuDataType::Float32 => DType::F32,
            GpuDataType::Float64 => DType::F64,
            GpuDataType::Int8 => DType::I8,
            GpuDataType::Int16 => DType::I16,
            GpuDataType::Int32 => DType::I32,
            GpuDataType::Int64 => DType::I64,
            GpuDataType::UInt8 => DType::U8,
            GpuDataType::UInt16 => DType::U16,
            GpuDataType::UInt32 => DType::U32,
            GpuDataType::UInt64 => DType::U64,
            GpuDataType::Bool => DType::Bool,
        }
    }

    fn of(dtype: DType) -> GpuDataType {
        match dtype {
            DType::F16 => GpuDataType::Float16,
            DType::F64 => GpuDataType::Float64,
            DType::I8 => GpuDataType::Int8,
            DType::I16 => GpuDataType::Int16,
            DType::I32 => GpuDataType::Int32,
            DType::I64 => GpuDataType::Int64,
            DType::U8 => GpuDataType::UInt8,
            DType::U16 => GpuDataType::UInt16,
            DType::U32 => GpuDataType::UInt32,
            DType::U64 => GpuDataType::UInt64,
            DType::Bool => GpuDataType::Bool,
            _ => GpuDataType::Float32,
        }
    }
}

/// In which order a tensor's elements lie in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryLayout {
    /// A row's elements side by side.
    #[default]
    RowMajor,
    /// A column's elements side by side.
    ColumnMajor,
    /// What the engine's kernels read fastest, which is row by row.
    GpuOptimized,
}

/// A tensor on a device: a value, which no operation changes. What operations are recorded runs when somebody reads.
#[derive(Clone)]
pub struct GpuTensor {
    tensor: Tensor,
    device_id: usize,
    layout: MemoryLayout,
}

impl GpuTensor {
    /// A matrix on a context's device, row by row, as `float32`.
    ///
    /// # Errors
    /// If the context is another device's, or there is no memory.
    pub fn from_cpu(data: &Array2<f64>, device_id: usize, context: &mut GpuContext) -> Result<GpuTensor> {
        GpuTensor::from_cpu_with_layout(data, device_id, context, MemoryLayout::RowMajor)
    }

    /// A matrix on a context's device, in this order, as `float32`.
    ///
    /// # Errors
    /// If the context is another device's, or there is no memory.
    pub fn from_cpu_with_layout(
        data: &Array2<f64>,
        device_id: usize,
        context: &mut GpuContext,
        layout: MemoryLayout,
    ) -> Result<GpuTensor> {
        GpuTensor::from_cpu_as(data, device_id, context, layout, GpuDataType::Float32)
    }

    /// A matrix on a context's device, in this order and type.
    ///
    /// # Errors
    /// If the context is another device's, there is no memory, or the type is not one of floats.
    pub fn from_cpu_as(
        data: &Array2<f64>,
        device_id: usize,
        context: &mut GpuContext,
        layout: MemoryLayout,
        dtype: GpuDataType,
    ) -> Result<GpuTensor> {
        if device_id != context.device_id() {
            let (expected, actual) = (context.device_id().to_string(), device_id.to_string());
            return Err(NetworkError::dimension_mismatch("the context's device", expected, actual));
        }
        if !dtype.engine().is_float() {
            let reason = "matrices of f64 become Float16, Float32 or Float64";
            return Err(NetworkError::invalid_parameter("dtype", format!("{dtype:?}"), reason));
        }
        let tensor = match layout {
            MemoryLayout::ColumnMajor => {
                let columns = data.t().to_owned();
                convert::matrix(&columns, dtype.engine(), context.engine())?.evaluated()?.t()?
            }
            _ => convert::matrix(data, dtype.engine(), context.engine())?,
        };
        Ok(GpuTensor { tensor: tensor.evaluated()?, device_id, layout })
    }

    /// A tensor of any shape, row by row, as `float32`.
    ///
    /// # Errors
    /// If the numbers are more or fewer than the shape's elements, or there is no memory.
    pub fn from_values(values: &[f64], shape: &[usize], context: &mut GpuContext) -> Result<GpuTensor> {
        let tensor = convert::tensor(values, shape, DType::F32, context.engine())?;
        Ok(GpuTensor::of(tensor, context.device_id()))
    }

    pub(crate) fn of(tensor: Tensor, device_id: usize) -> GpuTensor {
        GpuTensor { tensor, device_id, layout: MemoryLayout::RowMajor }
    }

    pub(crate) fn engine(&self) -> &Tensor {
        &self.tensor
    }

    /// The numbers, computed if need be; dimensions after the first are one, a vector is a row.
    ///
    /// # Errors
    /// If the context is another device's, or computing failed.
    pub fn to_cpu(&self, context: &mut GpuContext) -> Result<Array2<f64>> {
        self.check_context(context)?;
        convert::array(&self.tensor)
    }

    /// The numbers row by row, computed if need be.
    ///
    /// # Errors
    /// If the context is another device's, or computing failed.
    pub fn to_values(&self, context: &mut GpuContext) -> Result<Vec<f64>> {
        self.check_context(context)?;
        convert::values(&self.tensor)
    }

    fn check_context(&self, context: &GpuContext) -> Result<()> {
        if context.engine() == self.tensor.device() {
            return Ok(());
        }
        let (expected, actual) = (self.tensor.device().name(), context.device_name());
        Err(NetworkError::dimension_mismatch("the tensor's device", expected, actual))
    }

    /// The shape.
    pub fn shape(&self) -> &[usize] {
        self.tensor.shape()
    }

    /// The type of its numbers.
    pub fn dtype(&self) -> GpuDataType {
        GpuDataType::of(self.tensor.dtype())
    }

    /// The device's number.
    pub fn device_id(&self) -> usize {
        self.device_id
    }

    /// The order that it was made in; results of operations lie row by row.
    pub fn memory_layout(&self) -> MemoryLayout {
        self.layout
    }

    /// Elements in memory from one to the next along each dimension, as they lie; computes the tensor if need be.
    ///
    /// # Errors
    /// If computing failed.
    pub fn strides(&self) -> Result<Vec<isize>> {
        Ok(self.tensor.storage()?.layout.strides.to_vec())
    }

    /// The strides of a shape whose elements lie side by side in this order.
    pub fn compute_strides(shape: &[usize], layout: MemoryLayout) -> Vec<usize> {
        let mut strides = vec![1usize; shape.len()];
        let mut next = 1usize;
        let mut place = |axis: usize| {
            strides[axis] = next;
            next = next.saturating_mul(shape[axis]);
        };
        match layout {
            MemoryLayout::ColumnMajor => (0..shape.len()).for_each(&mut place),
            _ => (0..shape.len()).rev().for_each(&mut place),
        }
        strides
    }

    /// The same elements, row by row, in another shape.
    ///
    /// # Errors
    /// If that has more or fewer elements.
    pub fn reshape(&self, new_shape: Vec<usize>) -> Result<GpuTensor> {
        Ok(GpuTensor::of(self.tensor.reshape(&new_shape)?, self.device_id))
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.tensor.len()
    }

    /// Bytes.
    pub fn memory_size(&self) -> usize {
        self.numel() * self.tensor.dtype().size()
    }
}

impl std::fmt::Debug for GpuTensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GpuTensor({:?} {:?} on {})", self.shape(), self.dtype(), self.tensor.device())
    }
}
