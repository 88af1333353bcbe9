//! The native module of the Python packages `neurenix` and `micrograd_rs`: classes and functions over the engine. The
//! classes of `micrograd_rs` are in their own crate. Code that need not be fast is written in Python.
//!
//! The doc comments of exported items become Python docstrings.

// Only the DLPack modules and one function that reads NumPy arrays allow unsafe code.
#![deny(unsafe_code)]
// PyO3's macros generate unsafe functions.
#![allow(unsafe_op_in_unsafe_fn)]

mod argument;
mod capture;
mod complex;
mod create;
mod custom;
mod device;
mod distributed;
mod dtype;
mod error;
mod functional;
mod interrupt;
mod io;
mod linalg;
mod mathematics;
mod npu;
mod onnx;
mod optim;
mod picture;
mod placement;
mod precision;
mod profile;
mod promotion;
mod quantize;
mod refusal;
mod size;
mod tensor;
mod variable;

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the ``neurenix`` command with these arguments, program name included, and returns its exit code. ``program`` is
/// the command line that starts another process of the same command.
#[pyfunction]
fn run_command(py: Python<'_>, program: Vec<OsString>, arguments: Vec<OsString>) -> error::Result<u8> {
    interrupt::compute(py, || Ok::<_, phynexus::Error>(neurenix_cli::commands::run(&program, arguments)))
}

/// Asks the command's training runs to finish their step and write a checkpoint, and launched processes to end, as a
/// signal of this number does. Returns False if none is running or they were asked before.
#[pyfunction]
fn stop_training(signal: i32) -> bool {
    neurenix_cli::commands::stop_training(signal)
}

/// Returns the number of plans built so far; plans found in the cache do not count.
#[pyfunction]
fn plan_count() -> u64 {
    phynexus::schedule::plan_statistics().1
}

/// The functions of this crate that `micrograd_rs` needs.
fn values_host() -> micrograd_rs::Host {
    micrograd_rs::Host {
        register_devices: device::registered,
        find_device: |name| Ok(device::find(name)?),
        compute: |py, work| Ok(interrupt::compute_undisturbed(py, work)?),
        exception: |error| error::Failure::from(error).into(),
        count: |object| object.extract::<argument::Count>().map(|count| count.0),
    }
}

/// The Phynexus engine for Python.
#[pymodule]
mod _engine {
    #[pymodule_export]
    use crate::{
        capture::{PyRecorded, is_recording, recorded_draws},
        complex::{
            PyPair,
            functions::{complex_factors, complex_function, complex_reduction, fourier},
        },
        create::{
            PyGenerator, arange, bernoulli, eye, full, full_like, get_rng_state, linspace, manual_seed, ones,
            rand, randint, randn, randperm, set_rng_state, tensor, zeros,
        },
        custom::PyCustomKernel,
        device::{
            PyDevice, devices, get_default_device, get_float32_matmul_precision, missing_devices,
            reference_device, set_default_device, set_float32_matmul_precision, set_num_threads,
            set_thread_matmul_precision,
        },
        distributed::{
            PyDataParallel, PyProcessGroup, broadcast_variables, collective, end_world, has_mpi, has_nccl,
            init_world, store_result,
        },
        dtype::{PyDType, all_dtypes, dtype_or_device, get_default_dtype, promote_types, set_default_dtype},
        error::_translated,
        functional::{
            dropout, embedding, interpolate, linear,
            loss::{
                binary_cross_entropy, binary_cross_entropy_with_logits, cosine_embedding_loss,
                cosine_similarity, cross_entropy, hinge_embedding_loss, huber_loss, kl_div, l1_loss,
                mse_loss, nll_loss, smooth_l1_loss,
            },
            normalization::{batch_norm, instance_norm, layer_norm, rms_norm},
            recurrent_layer, scaled_dot_product_attention,
            sparse::{compress_two_of_four, decompress_two_of_four, keep_two_of_four, matmul_sparse},
            window::{
                adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d, adaptive_max_pool1d,
                adaptive_max_pool2d, adaptive_max_pool3d, avg_pool1d, avg_pool2d, avg_pool3d,
                conv_transpose1d, conv_transpose2d, conv_transpose3d, conv1d, conv2d, conv3d, max_pool1d,
                max_pool1d_with_indices, max_pool2d, max_pool2d_with_indices, max_pool3d,
                max_pool3d_with_indices,
            },
            with_features,
        },
        io::{digits, load_safetensors, save_safetensors},
        linalg::{cholesky, det, eigh, inv, matrix_rank, pinv, qr, slogdet, solve, svd},
        mathematics::{
            bincount, cdist, copysign, diff, erfc, erfinv, fmod, frac, histc, hypot, index_copy, isin,
            kthvalue, lerp, logaddexp, masked_scatter, median, mode, nan_to_num, nanmedian, nextafter,
            quantile, signbit, trapezoid, xlogy,
        },
        npu::{PyNpuDevice, PyNpuProgram, missing_npus, npu_cache_folder, npu_devices},
        onnx::{PyOnnx, PyOnnxFile, export_onnx},
        optim::{PyOptimizer, follow_step, half_cosine, optimizer_settings},
        picture::curves_png,
        placement::{
            PyPlacement, is_recovery, is_strict_placement, on_fallback, recovering, set_recovery,
            set_strict_placement,
        },
        plan_count,
        precision::{autocast_dtype, set_autocast_dtype},
        profile::PyProfiler,
        promotion::{get_promotion, set_promotion},
        quantize::{
            PyReport, finish_onnx_training, prepare_onnx_training, quantize_onnx, quantize_onnx_dynamically,
            quantize_onnx_weights, quantize_onnx_within,
        },
        run_command, stop_training,
        tensor::{
            autograd::{
                GradientHook, GradientMode, as_variable, depends_on_others, evaluate, gradients,
                gradients_before_hooks, is_grad_enabled, recorded_number, release_graphs, running_sweep,
                switch_gradients,
            },
            dlpack::import::from_dlpack,
            movement::{broadcast_shapes, cat, einsum, meshgrid, stack, where_},
            numpy::from_bytes,
            reading::PyReading,
            transforms::{backward_all, batched, gradients_of_all, is_batching, refuse_anomalies},
        },
        variable::PyTensor,
    };
    #[allow(non_upper_case_globals)]
    #[pymodule_export]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        use pyo3::types::PyModuleMethods as _;
        crate::interrupt::begin();
        let refusal = module.py().get_type::<crate::refusal::NoComplexNumbers>();
        module.add("NoComplexNumbers", refusal)?;
        crate::device::finish_at_exit(module)?;
        micrograd_rs::register(module, crate::values_host())
    }
}
