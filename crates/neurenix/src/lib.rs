//! Neurenix: layers, optimisers, data and a training loop on the Phynexus engine.
//!
//! ```
//! use neurenix::loss::Loss;
//! use neurenix::nn::{Linear, Module, Sequential, activation};
//! use neurenix::optim::{Optimizer, Rule};
//! use neurenix::phynexus::{DType, Device, Tensor, tensor::{Generator, Reduction}};
//!
//! neurenix::register_all();
//! let device = Device::default_device()?;
//! let generator = Generator::new(0);
//! let model = Sequential::new()
//!     .with(Linear::new(2, 16, true, device, &generator)?)
//!     .with(activation::tanh())
//!     .with(Linear::new(16, 1, true, device, &generator)?);
//! let mut optimizer = Optimizer::new(Rule::adam(), model.parameters(), 0.05)?;
//!
//! // Exclusive or.
//! let inputs = Tensor::from_slice(&[0f32, 0., 0., 1., 1., 0., 1., 1.], &[4, 2], device)?;
//! let targets = Tensor::from_slice(&[0f32, 1., 1., 0.], &[4, 1], device)?;
//! for _ in 0..200 {
//!     let loss = Loss::MSE.forward(&model.forward(&inputs)?, &targets, Reduction::Mean)?;
//!     optimizer.step(loss.leaf_gradients()?, &[&loss])?;
//! }
//! let outputs = model.forward(&inputs)?.to_vec::<f32>()?;
//! assert!(outputs[0] < 0.2 && outputs[1] > 0.8 && outputs[2] > 0.8 && outputs[3] < 0.2);
//! # Ok::<(), neurenix::Error>(())
//! ```
//!
//! Call [`register_all`] first: it registers the machine's devices. Tensors are those of [`phynexus`]: immutable values
//! whose operations are recorded and evaluated when their result is read. [`nn`] has layers and networks, [`loss`]
//! losses, [`optim`] optimisers and learning rate schedules, [`data`] datasets and file formats, [`train`] the training
//! loop with checkpoints, and [`io`] atomic file writes. Names and defaults follow PyTorch.

#![forbid(unsafe_code)]

mod array;
pub mod compile;
pub mod complex;
pub mod data;
pub mod distributed;
pub mod error;
pub mod fft;
pub mod io;
pub mod languages;
pub mod loss;
pub mod nn;
pub mod optim;
pub mod train;
pub mod verify;

pub use error::{Error, Result};
/// ONNX files as networks.
pub use neurenix_onnx as onnx;
/// Integers in place of floats.
pub use neurenix_quantize as quantize;
pub use phynexus;
/// Neural processing units.
pub use phynexus_npu as npu;

/// Registers every device of this machine once, and records why other kinds are missing. The default device is a GPU if
/// there is one, else the CPU: see [`Device::default_device`](phynexus::Device::default_device).
pub fn register_all() {
    phynexus_cpu::register();
    phynexus_cuda::register();
    phynexus_hip::register();
    phynexus_opencl::register();
    phynexus_wgpu::register();
    phynexus_directml::register();
}

/// Registers only the CPU.
pub fn register_cpu() {
    phynexus_cpu::register();
}

/// The number of threads the CPU device uses.
///
/// # Errors
/// If `threads` is 0, or more than [`phynexus_cpu::pool::MOST_THREADS`].
pub fn set_threads(threads: usize) -> Result<()> {
    if threads == 0 {
        return Err(Error::data("threads", "the number of threads must be at least 1"));
    }
    let most = phynexus_cpu::pool::MOST_THREADS;
    if threads > most {
        return Err(Error::data("threads", format!("{threads} threads: at most {most} are supported")));
    }
    phynexus_cpu::pool::set_threads(threads);
    Ok(())
}

/// The snippets of the README and of `docs/`, compiled and run as doctests.
#[cfg(doctest)]
mod pages {
    macro_rules! pages {
        ($($name:ident = $path:literal;)+) => { $(
            #[doc = include_str!($path)]
            struct $name;
        )+ };
    }
    pages! {
        Readme = "../../../README.md";
        Complex = "../../../docs/complex.md";
        CustomKernels = "../../../docs/custom-kernels.md";
        Gradients = "../../../docs/gradients.md";
        LazyEvaluation = "../../../docs/lazy-evaluation.md";
        Memory = "../../../docs/memory.md";
        Random = "../../../docs/random.md";
        Tensors = "../../../docs/tensors.md";
        Training = "../../../docs/training.md";
    }
}
