//! The calls of the document on GPUs, each as a program of a user's.

#![allow(clippy::field_reassign_with_default)]

use rnn::Array2;

/// Digits that are none: three classes by where a row is bright.
fn load_data() -> rnn::Result<(Array2<f64>, Array2<f64>)> {
    let data = Array2::from_shape_fn((150, 784), |(row, column)| {
        let bright = column / 262 == row % 3;
        f64::from(u8::from(bright)) * 0.9 + ((row * 31 + column * 17) % 11) as f64 / 110.0
    });
    let labels = Array2::from_shape_fn((150, 10), |(row, class)| f64::from(u8::from(class == row % 3)));
    Ok((data, labels))
}

mod basic_use {
    use rnn::{Array2, GpuManager, GpuTensor};

    #[test]
    fn runs() -> rnn::Result<()> {
        let mut gpu_manager = GpuManager::new();
        println!("Available GPUs: {}", gpu_manager.devices().len());
        assert!(!gpu_manager.devices().is_empty());
        if let Some(device) = gpu_manager.default_device() {
            println!("Using GPU: {}", device.name);
            let context = gpu_manager.create_context(device.id)?;
            let cpu_data = Array2::from_shape_fn((1000, 784), |(i, j)| ((i + j) % 7) as f64);
            let gpu_tensor = GpuTensor::from_cpu(&cpu_data, device.id, context)?;
            let result = gpu_tensor.to_cpu(context)?;
            assert_eq!(result, cpu_data);
        } else {
            panic!("there is always a device");
        }
        Ok(())
    }
}

mod networks {
    use rnn::{ActivationFunction, LayerBuilder, LossFunction, Network, TrainingConfig};

    #[test]
    fn train_by_themselves() -> rnn::Result<()> {
        let (train_data, train_labels) = super::load_data()?;
        let mut network = Network::with_input_size(784)?
            .add_layer(LayerBuilder::dense(512).activation(ActivationFunction::ReLU))
            .add_layer(LayerBuilder::dense(256).activation(ActivationFunction::ReLU))
            .add_layer(LayerBuilder::dense(10).activation(ActivationFunction::Softmax))
            .loss(LossFunction::CategoricalCrossEntropy)
            .build()?;
        let mut config = TrainingConfig::default();
        config.batch_size = 64;
        config.max_epochs = 3;
        let history = network.train(&train_data, &train_labels, &config)?;
        assert_eq!(history.train_loss.len(), 3);
        assert_eq!(history.device, network.device());
        assert!(history.train_loss[2] < history.train_loss[0]);
        Ok(())
    }
}

mod memory {
    use rnn::GpuManager;

    #[test]
    fn is_told() -> rnn::Result<()> {
        let mut gpu_manager = GpuManager::new();
        let context = gpu_manager.create_context(0)?;
        let stats = context.memory_stats();
        println!("GPU Memory: {}/{} MB used", stats.allocated / 1024 / 1024, stats.total / 1024 / 1024);
        if stats.allocated > stats.total * 0.9 {
            println!("Warning: GPU memory usage > 90%");
        }
        let memory = context.allocate(4 << 20)?;
        // Other tests use the same device meanwhile.
        assert!(context.memory_stats().allocated >= rnn::gpu::ByteCount(4 << 20));
        context.deallocate(memory)
    }
}

mod batch_sizes {
    use rnn::{GpuDeviceType, GpuManager};

    #[test]
    fn depend_on_the_device() {
        for device in GpuManager::new().devices() {
            let batch_size = match device.device_type {
                GpuDeviceType::Cuda => {
                    if device.total_memory > 8 * 1024 * 1024 * 1024 {
                        256
                    } else {
                        128
                    }
                }
                GpuDeviceType::OpenCL => 64,
                GpuDeviceType::Metal => 32,
                _ => 32,
            };
            assert!(batch_size >= 32);
        }
    }
}

mod layouts {
    use rnn::{Array2, GpuManager, GpuTensor, gpu::MemoryLayout};

    #[test]
    fn change_places_not_numbers() -> rnn::Result<()> {
        let mut manager = GpuManager::new();
        let device_id = 0;
        let context = manager.create_context(device_id)?;
        let data = Array2::from_shape_fn((3, 5), |(i, j)| (i * 5 + j) as f64);
        for (layout, strides) in [
            (MemoryLayout::RowMajor, [5, 1]),
            (MemoryLayout::ColumnMajor, [1, 3]),
            (MemoryLayout::GpuOptimized, [5, 1]),
        ] {
            let tensor = GpuTensor::from_cpu_with_layout(&data, device_id, context, layout)?;
            assert_eq!(tensor.strides()?, strides);
            assert_eq!(tensor.to_cpu(context)?, data);
            assert_eq!(GpuTensor::compute_strides(&[3, 5], layout), strides.map(|s| s as usize));
        }
        Ok(())
    }
}

mod several_devices {
    use rnn::{
        ActivationFunction, DistributedTraining, GpuDeviceType, GpuManager, LayerBuilder, LossFunction,
        Network, TrainingConfig,
    };

    #[test]
    fn train_together() -> rnn::Result<()> {
        let (data, labels) = super::load_data()?;
        let network = Network::with_input_size(784)?
            .add_layer(LayerBuilder::dense(16).activation(ActivationFunction::ReLU))
            .add_layer(LayerBuilder::dense(10).activation(ActivationFunction::Softmax))
            .loss(LossFunction::CategoricalCrossEntropy)
            .build()?;
        let gpu_manager = GpuManager::new();
        let gpu_devices: Vec<_> = gpu_manager
            .devices()
            .iter()
            .filter(|d| d.device_type != GpuDeviceType::Generic && !d.is_emulated)
            .collect();
        let config = TrainingConfig { max_epochs: 2, verbose: false, ..TrainingConfig::default() };
        let before = network.get_weights()?;
        if gpu_devices.len() > 1 {
            let distributed_trainer = DistributedTraining::new(gpu_devices)?.with_config(config.clone());
            let history = distributed_trainer.train(&network, &data, &labels)?;
            assert_eq!(history.epochs(), 2);
        } else {
            let trainer = DistributedTraining::with_cpu_workers(2)?.with_config(config);
            assert_eq!(trainer.train(&network, &data, &labels)?.epochs(), 2);
        }
        assert_ne!(network.get_weights()?, before);
        Ok(())
    }
}

mod custom_kernels {
    #![allow(unused_imports)]
    use rnn::{
        NetworkError,
        gpu::{CudaKernels, GpuKernel, KernelManager},
    };

    #[test]
    fn compile_or_say_what_is_missing() -> rnn::Result<()> {
        let kernel_source = r#"
            extern "C" __global__ void custom_activation(const float* input, float* output, int n) {
                int idx = blockIdx.x * blockDim.x + threadIdx.x;
                if (idx < n) {
                    output[idx] = input[idx] * input[idx] + 1.0f;  // x² + 1
                }
            }
        "#;
        let mut kernel_manager = KernelManager::new();
        let compiled = match kernel_manager.compile_kernel("custom_activation", kernel_source, "cuda") {
            Ok(compiled) => compiled,
            Err(NetworkError::CompilerMissing { backend, install }) => {
                assert_eq!(backend, "cuda");
                let remedy = if cfg!(feature = "cuda") { "nvidia-cuda-nvrtc" } else { "feature cuda" };
                assert!(install.contains(remedy), "{install}");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        assert_eq!(&compiled[..4], b"\x7fELF");
        let kernel = GpuKernel {
            name: "custom_activation".to_string(),
            source: kernel_source.to_string(),
            entry_point: "custom_activation".to_string(),
            compiled_binary: Some(compiled),
            work_group_size: (256, 1, 1),
            backend_handle: None,
        };
        assert!(kernel.compiled_binary.is_some());
        Ok(())
    }

    #[test]
    fn tell_what_is_wrong() {
        let mut kernel_manager = KernelManager::new();
        let source = "garbage";
        match kernel_manager.compile_kernel("test", source, "cuda") {
            Ok(_) => panic!("garbage compiled"),
            Err(e) => println!("Compilation error: {}", e),
        }
    }
}

/// Where the published crate has its names; those that are not here are on the page for its users.
#[allow(unused_imports)]
mod paths {
    use rnn::{
        ActivationFunction, Array1, Array2, ArrayView1, ArrayView2, GpuDataType, GpuDevice, GpuDeviceType,
        GpuManager, GpuTensor, Layer, LayerBuilder, LayerType, LossFunction, Matrix, MatrixView, Network,
        NetworkBuilder, NetworkError, Optimizer, OptimizerType, Result, TrainingConfig, TrainingMethod,
        Vector, VectorView,
        activation::ParametricActivation,
        gpu::{
            GpuContext, GpuEvent, GpuKernel, GpuKernelArg, GpuMemoryHandle, GpuMemoryStats, GpuOps,
            GpuProfiler, GpuStreamHandle, MemoryLayout,
            kernels::{CudaKernels, KernelManager, MetalKernels, OpenCLKernels},
        },
        layer::{LayerSummary, WeightInitialization},
        loss::{LossConfig, LossParameters},
        network::{NetworkMetadata, NetworkSummary},
        optimizer::{OptimizerConfig, OptimizerSummary},
        training::{
            DataAugmentationConfig, DataLoader, EarlyStopping, LearningRateSchedule, LearningRateScheduler,
            Metrics, RegularizationConfig, TrainingCallback, TrainingHistory, TrainingState,
        },
        utils::{ConfigManager, DataPreprocessing, MathUtils, PerformanceMonitor, RandomUtils},
    };
}

mod profiles {
    use rnn::gpu::GpuProfiler;

    #[test]
    fn are_printed() {
        let (memory_used, device_id) = (4096usize, 0);
        let mut profiler = GpuProfiler::default();
        profiler.start("matrix_multiply");
        profiler.end("matrix_multiply", memory_used, device_id);
        profiler.start("activation");
        profiler.end("activation", memory_used, device_id);
        profiler.print_summary();
        assert_eq!(profiler.results().len(), 2);
        assert!(profiler.summary().contains("matrix_multiply"));
    }
}

mod no_gpu {
    use rnn::GpuManager;

    #[test]
    fn is_explained() {
        if !GpuManager::is_gpu_available() {
            println!("No GPU detected. Possible issues:");
            assert!(!GpuManager::is_cuda_available());
            assert!(!GpuManager::missing().is_empty());
        }
    }
}

mod complete {
    use rnn::{gpu::*, *};

    fn load_mnist_data() -> Result<(Array2<f64>, Array2<f64>)> {
        super::load_data()
    }

    #[test]
    fn program() -> Result<()> {
        let gpu_manager = GpuManager::new();
        println!("Available devices: {}", gpu_manager.devices().len());
        let (train_data, train_labels) = load_mnist_data()?;
        let mut network = Network::with_input_size(784)?
            .add_layer(LayerBuilder::dense(512).activation(ActivationFunction::ReLU))
            .add_layer(LayerBuilder::dense(256).activation(ActivationFunction::ReLU))
            .add_layer(LayerBuilder::dense(10).activation(ActivationFunction::Softmax))
            .loss(LossFunction::CategoricalCrossEntropy)
            .build()?;
        let mut config = TrainingConfig::default();
        config.max_epochs = 4;
        config.batch_size = 128;
        config.validation_split = 0.2;
        config.verbose = true;
        let start = std::time::Instant::now();
        let history = network.train(&train_data, &train_labels, &config)?;
        println!("Training completed in {:?}", start.elapsed());
        let accuracy = history.val_metrics.get("accuracy").and_then(|acc| acc.last()).unwrap_or(&0.0) * 100.0;
        println!("Final accuracy: {accuracy:.2}%");
        assert!(accuracy > 50.0, "{accuracy}");
        Ok(())
    }
}
