//! Direct access to devices: listing them, memory, tensors, operations, custom kernels, profiles, training on several
//! devices.
//!
//! ```
//! use rnn::{Array2, GpuManager, GpuTensor, gpu::GpuOps};
//!
//! let mut manager = GpuManager::new();
//! // Every machine has the CPU, as the device of type Generic.
//! let device = manager.default_device().expect("a device");
//! let context = manager.create_context(device.id)?;
//! let x = GpuTensor::from_cpu(&Array2::eye(3), device.id, context)?;
//! let y = context.add(&x, &x)?;
//! assert_eq!(y.to_cpu(context)?, Array2::<f64>::eye(3) * 2.0);
//! # Ok::<(), rnn::NetworkError>(())
//! ```

mod byte_count;
mod context;
mod distributed;
mod execute;
pub mod kernels;
mod manager;
mod ops;
mod profiler;
mod signature;
mod sources;
mod tensor;

pub use byte_count::ByteCount;
pub use context::{GpuContext, GpuMemoryHandle, GpuMemoryStats, GpuStreamHandle};
pub use distributed::DistributedTraining;
pub use execute::GpuKernelArg;
pub use kernels::{CudaKernels, GpuKernel, KernelManager, MetalKernels, OpenCLKernels};
pub use manager::{GpuDevice, GpuDeviceType, GpuManager};
pub use ops::{Activation, GpuOps, RecurrentKind, RecurrentParameters};
pub use profiler::{GpuEvent, GpuProfiler};
pub use tensor::{GpuDataType, GpuTensor, MemoryLayout};
