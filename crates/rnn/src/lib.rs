//! Neural networks in Rust: a builder, training, files, GPUs. Everything is computed by the engine of Neurenix, on a GPU if
//! there is one, else on the CPU.
//!
//! # In ten minutes
//!
//! A network is described layer by layer and built:
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
//! // Data are matrices of `f64`: a row of numbers, and for each row a target; here, which of two numbers is greater.
//! let data = Array2::from_shape_fn((200, 2), |(row, column)| ((row * 7 + column * 5) as f64).sin());
//! let targets = Array2::from_shape_fn((200, 2), |(row, class)| {
//!     let greatest = usize::from(data[[row, 1]] > data[[row, 0]]);
//!     f64::from(u8::from(class == greatest))
//! });
//!
//! // The last fifth of the rows is for validation; every field of the configuration has its effect.
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
//! | losses and their numbers | [`LossFunction`], [`LossConfig`] |
//! | optimisers | [`Optimizer`] |
//! | how to train | [`TrainingConfig`], [`TrainingCallback`] |
//! | what was measured | [`TrainingHistory`] |
//! | files: JSON, binary, safetensors | [`Network::save`], [`Network::save_binary`], [`Network::save_safetensors`] |
//! | devices, tensors on them, custom kernels, profiles | [`gpu`] |
//! | several devices at once | [`DistributedTraining`] |
//! | data made ready, random numbers, times, settings | [`utils`] |
//!
//! # Devices
//!
//! A network computes on the best real device: a GPU if there is one, else the CPU; software that behaves like a GPU is never
//! chosen by itself. [`Network::device`] and the history say which it was; [`NetworkBuilder::device`] forces one by name
//! (`"cpu"`, `"cuda:0"`, `"vulkan:0"`), and the variable `RNN_GPU_DEVICE` for all networks that name none. Features select
//! families: `gpu` (Vulkan, DirectX 12), `cuda`, `opencl`, `metal`, `rocm`; all are on by default and need nothing
//! to build.
//!
//! | variable | meaning |
//! |---|---|
//! | `RNN_GPU_DEVICE` | the device, by name or by its number among GPUs |
//! | `RNN_GPU_DEBUG` | `1`: tells about plans and kernels on standard error |
//! | `RNN_GPU_MEMORY_POOL` | `0`: a GPU's memory goes back to the system at once; a size such as `4G`: so much is kept at most |
//! | `RNN_CUDA_CACHE_PATH` | the folder of compiled CUDA kernels; else `neurenix/cuda` in the user's cache folder |
//!
//! # Numbers
//!
//! `f64` goes in and comes out; inside it is IEEE `float32`, or with [`NetworkBuilder::precision`] `float64`.
//!
//! # Errors
//!
//! Every call that can fail returns a [`Result`]; messages say what would be right. Nothing panics on bad input, except
//! [`utils::RandomUtils::permutation`] of more numbers than there is room for, whose signature has no error.
//!
//! # Speed
//!
//! Cargo compiles a program's dependencies without optimisation in debug builds, which makes networks a hundred times as slow or
//! more. Run with `--release`, or write this into the `Cargo.toml` of the program (of the workspace, if it is in one):
//!
//! ```toml
//! [profile.dev.package."*"]
//! opt-level = 3
//! ```

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

/// A matrix of the interface.
pub type Matrix = Array2<f64>;
/// A vector of the interface.
pub type Vector = Array1<f64>;
/// A view of a matrix.
pub type MatrixView<'a> = ArrayView2<'a, f64>;
/// A view of a vector.
pub type VectorView<'a> = ArrayView1<'a, f64>;

/// The snippets of the pages in `docs/`, so that they compile and run.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/rnn.md")]
    struct Rnn;
    #[doc = include_str!("../../../docs/rnn-migration.md")]
    struct Migration;
}
