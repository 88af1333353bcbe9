//! Tensors on a device.

use ndarray::Array2;
use neurenix::phynexus::{DType, Tensor};
use serde::{Deserialize, Serialize};

use super::GpuContext;
use crate::{NetworkError, Result, convert};

/// Makes the enum of data types, with the engine's type of each.
macro_rules! data_types {
    ($($(#[$about:meta])+ $Type:ident = $dtype:ident,)+) => {
        /// The type of a tensor's elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum GpuDataType { $($(#[$about])+ $Type,)+ }

        impl GpuDataType {
            pub(crate) fn engine(self) -> DType {
                match self {
                    $(GpuDataType::$Type => DType::$dtype,)+
                }
            }

            fn of(dtype: DType) -> GpuDataType {
                match dtype {
                    $(DType::$dtype => GpuDataType::$Type,)+
                    _ => GpuDataType::Float32,
                }
            }
        }
    };
}

data_types! {
    /// IEEE, 16 bits.
    Float16 = F16,
    /// IEEE, 32 bits.
    Float32 = F32,
    /// IEEE, 64 bits.
    Float64 = F64,
    /// Signed, 8 bits.
    Int8 = I8,
    /// Signed, 16 bits.
    Int16 = I16,
    /// Signed, 32 bits.
    Int32 = I32,
    /// Signed, 64 bits.
    Int64 = I64,
    /// Unsigned, 8 bits.
    UInt8 = U8,
    /// Unsigned, 16 bits.
    UInt16 = U16,
    /// Unsigned, 32 bits.
    UInt32 = U32,
    /// Unsigned, 64 bits.
    UInt64 = U64,
    /// True or false.
    Bool = Bool,
}

impl GpuDataType {
    /// The number of bytes of an element.
    pub fn size(&self) -> usize {
        self.engine().size()
    }
}

/// The order of a tensor's elements in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryLayout {
    /// Elements of a row are adjacent.
    #[default]
    RowMajor,
    /// Elements of a column are adjacent.
    ColumnMajor,
    /// The order that the engine's kernels read fastest, which is row-major.
    GpuOptimized,
}

/// A tensor on a device. Operations do not change it, but return new tensors. They are recorded, and computed when a
/// value is read.
#[derive(Clone)]
pub struct GpuTensor {
    tensor: Tensor,
    device_id: usize,
    layout: MemoryLayout,
}

impl GpuTensor {
    /// Copies a matrix to a context's device, row-major, as `float32`.
    ///
    /// # Errors
    /// If the context belongs to another device, or there is not enough memory.
    pub fn from_cpu(data: &Array2<f64>, device_id: usize, context: &mut GpuContext) -> Result<GpuTensor> {
        GpuTensor::from_cpu_with_layout(data, device_id, context, MemoryLayout::RowMajor)
    }

    /// As [`GpuTensor::from_cpu`], in this order.
    pub fn from_cpu_with_layout(
        data: &Array2<f64>,
        device_id: usize,
        context: &mut GpuContext,
        layout: MemoryLayout,
    ) -> Result<GpuTensor> {
        GpuTensor::from_cpu_as(data, device_id, context, layout, GpuDataType::Float32)
    }

    /// As [`GpuTensor::from_cpu`], in this order and type, which must be a floating-point type.
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
            let reason = "use Float16, Float32 or Float64";
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

    /// A tensor of any shape from row-major elements, as `float32`.
    ///
    /// # Errors
    /// If the number of elements does not fit the shape, or there is not enough memory.
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

    /// The elements as a matrix. Dimensions after the first are merged, and a vector is one row.
    ///
    /// # Errors
    /// If the context belongs to another device, or the computation fails.
    pub fn to_cpu(&self, context: &mut GpuContext) -> Result<Array2<f64>> {
        self.check_context(context)?;
        convert::array(&self.tensor)
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// If the context belongs to another device, or the computation fails.
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

    /// The type of the elements.
    pub fn dtype(&self) -> GpuDataType {
        GpuDataType::of(self.tensor.dtype())
    }

    /// The device's number.
    pub fn device_id(&self) -> usize {
        self.device_id
    }

    /// The order in which the tensor was created; results of operations are row-major.
    pub fn memory_layout(&self) -> MemoryLayout {
        self.layout
    }

    /// The strides in memory, in elements. The tensor is computed if it was not.
    ///
    /// # Errors
    /// If the computation fails.
    pub fn strides(&self) -> Result<Vec<isize>> {
        Ok(self.tensor.storage()?.layout.strides.to_vec())
    }

    /// The strides of a contiguous tensor of this shape and order.
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

    /// The same elements in another shape.
    ///
    /// # Errors
    /// If the number of elements differs.
    pub fn reshape(&self, new_shape: Vec<usize>) -> Result<GpuTensor> {
        Ok(GpuTensor::of(self.tensor.reshape(&new_shape)?, self.device_id))
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.tensor.len()
    }

    /// The size in bytes.
    pub fn memory_size(&self) -> usize {
        self.numel() * self.tensor.dtype().size()
    }
}

impl std::fmt::Debug for GpuTensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GpuTensor({:?} {:?} on {})", self.shape(), self.dtype(), self.tensor.device())
    }
}
