//! Neural networks in Rust: a builder, training, files, GPUs. The engine of Neurenix computes on a GPU if there is one,
//! else on the CPU.
//!
//! # In ten minutes
//!
//! Describe a network layer by layer, and build it:
//!
//! ```
//! use rnn::{ActivationFunction, Array2, LayerBuilder, LossFunction, Network, TrainingConfig};
//!
//! let mut network = Network::with_input_size(2)?
//!     .add_layer(LayerBuilder::dense(16).activation(ActivationFunction::Tanh))
//!     .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Softmax))
//!     .loss(LossFunction::CategoricalCrossEntropy)
//!     .seed(1)
//!     .build()?;
//! println!("{}", network.summary());
//!
//! // Data and targets are matrices of `f64`, with one row per example. Here the target is which of two numbers is
//! // greater.
//! let data = Array2::from_shape_fn((200, 2), |(row, column)| ((row * 7 + column * 5) as f64).sin());
//! let targets = Array2::from_shape_fn((200, 2), |(row, class)| {
//!     let greatest = usize::from(data[[row, 1]] > data[[row, 0]]);
//!     f64::from(u8::from(class == greatest))
//! });
//!
//! // By default, the last fifth of the rows is used for validation.
//! let config = TrainingConfig { max_epochs: 30, seed: Some(1), verbose: false, ..TrainingConfig::default() };
//! let history = network.train(&data, &targets, &config)?;
//! println!("trained on {}", history.device);
//! assert!(history.val_metrics["accuracy"].last().is_some_and(|accuracy| *accuracy > 0.8));
//!
//! let predictions = network.predict(&data)?;
//! assert_eq!(predictions.dim(), (200, 2));
//! let figures = network.evaluate(&data, &targets)?;
//! assert!(figures["accuracy"] > 0.8);
//! # Ok::<(), rnn::NetworkError>(())
//! ```
//!
//! | what | where |
//! |---|---|
//! | layers of all kinds, for rows with a shape | [`LayerBuilder`], [`Network::with_input_shape`] |
//! | losses and their parameters | [`LossFunction`], [`LossConfig`] |
//! | optimisers | [`Optimizer`] |
//! | how to train | [`TrainingConfig`], [`TrainingCallback`] |
//! | measurements | [`TrainingHistory`] |
//! | files: JSON, binary, safetensors | [`Network::save`], [`Network::save_binary`], [`Network::save_safetensors`] |
//! | devices, tensors, custom kernels, profiles | [`gpu`] |
//! | several devices | [`DistributedTraining`] |
//! | data preparation, random numbers, timing, settings | [`utils`] |
//!
//! # Devices
//!
//! By default, a network computes on a GPU if there is one, else on the CPU. Emulators of GPUs are never chosen by
//! default. [`Network::device`] and the history name the device. [`NetworkBuilder::device`] sets it by name (`"cpu"`,
//! `"cuda:0"`, `"vulkan:0"`), and the variable `RNN_GPU_DEVICE` sets the default. Features select interfaces: `gpu`
//! (Vulkan, DirectX 12), `cuda`, `opencl`, `metal`, `rocm`. All are enabled by default, and need no libraries to build.
//!
//! | variable | meaning |
//! |---|---|
//! | `RNN_GPU_DEVICE` | the default device, by name or by its number among GPUs |
//! | `RNN_GPU_DEBUG` | `1`: prints plans and kernels to standard error |
//! | `RNN_GPU_MEMORY_POOL` | how much freed GPU memory is kept, such as `4G`; `0`: none |
//! | `RNN_CUDA_CACHE_PATH` | the folder for compiled CUDA kernels; the default is `neurenix/cuda` in the user's cache folder |
//!
//! # Numbers
//!
//! Inputs and outputs are `f64`. Computations use `float32`, or `float64` with [`NetworkBuilder::precision`].
//!
//! # Errors
//!
//! Every call that can fail returns a [`Result`], whose message names the remedy. Nothing panics on invalid input,
//! except [`utils::RandomUtils::permutation`] if there is not enough memory.
//!
//! # Speed
//!
//! Debug builds compile dependencies without optimisation, which makes networks a hundred times as slow or more. Run
//! with `--release`, or add this to the program's `Cargo.toml` (the workspace's, if it is in one):
//!
//! ```toml
//! [profile.dev.package."*"]
//! opt-level = 3
//! ```

#![deny(unsafe_code)]

pub mod activation;
mod choices;
mod convert;
mod device;
pub mod error;
mod finite;
pub mod gpu;
pub mod layer;
pub mod loss;
pub mod network;
pub mod optimizer;
pub mod training;
pub mod utils;

pub use ndarray::{Array1, Array2, ArrayView1, ArrayView2};

pub use activation::{ActivationFunction, ParametricActivation};
pub use error::{NetworkError, Result};
pub use gpu::{
    DistributedTraining, GpuDataType, GpuDevice, GpuDeviceType, GpuManager, GpuTensor, MemoryLayout,
};
pub use layer::{Layer, LayerBuilder, LayerSummary, LayerType, WeightInitialization};
pub use loss::{LossConfig, LossFunction, LossParameters};
pub use network::{Network, NetworkBuilder, NetworkMetadata, NetworkSummary, Precision, TrainingHistory};
pub use optimizer::{Optimizer, OptimizerConfig, OptimizerSummary, OptimizerType};
pub use training::{
    DataAugmentationConfig, DataLoader, EarlyStopping, LearningRateSchedule, LearningRateScheduler, Metrics,
    RegularizationConfig, TrainingCallback, TrainingConfig, TrainingMethod, TrainingState,
};

/// A matrix of inputs or outputs.
pub type Matrix = Array2<f64>;
/// A vector of inputs or outputs.
pub type Vector = Array1<f64>;
/// A view of a matrix.
pub type MatrixView<'a> = ArrayView2<'a, f64>;
/// A view of a vector.
pub type VectorView<'a> = ArrayView1<'a, f64>;

/// The examples in `docs/`, so that they are compiled and run.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/rnn.md")]
    struct Rnn;
    #[doc = include_str!("../../../docs/rnn-migration.md")]
    struct Migration;
}
