//! Tensors, operations, kernels on every device of this machine; training on several workers.

use rnn::{
    ActivationFunction, Array2, DistributedTraining, GpuManager, GpuTensor, LayerBuilder, LossFunction,
    Network, NetworkError, Optimizer, Result, TrainingConfig,
    gpu::{
        ByteCount, CudaKernels, GpuContext, GpuDataType, GpuDeviceType, GpuKernel, GpuKernelArg, GpuOps,
        KernelManager, MemoryLayout, MetalKernels, OpenCLKernels, RecurrentKind, RecurrentParameters,
    },
};

/// Does so with the context of every device.
pub(crate) fn everywhere(test: impl Fn(&mut GpuContext) -> Result<()>) -> Result<()> {
    let mut manager = GpuManager::new();
    let ids: Vec<usize> = manager.devices().iter().map(|device| device.id).collect();
    for id in ids {
        test(manager.create_context(id)?)?;
    }
    Ok(())
}

fn close(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let near = found.iter().zip(expected).all(|(f, e)| (f - e).abs() <= 1e-5 * (1.0 + e.abs()));
    assert!(near, "{what}: {found:?} is not {expected:?}");
}

#[test]
fn devices_tell_what_they_are() {
    let manager = GpuManager::new();
    let cpu: Vec<_> = manager.devices().iter().filter(|d| d.device_type == GpuDeviceType::Generic).collect();
    assert_eq!(cpu.len(), 1);
    assert!(cpu[0].total_memory > 0 && cpu[0].multiprocessor_count.is_some_and(|cores| cores > 0));
    assert!(manager.devices().iter().enumerate().all(|(place, device)| device.id == place));
    assert!(
        !manager.default_device().expect("a device").is_emulated || std::env::var("RNN_GPU_DEVICE").is_ok()
    );
}

#[test]
fn every_operation() -> Result<()> {
    everywhere(|context| {
        let name = context.device_name().to_owned();
        let a = GpuTensor::from_values(&[1., 2., 3., 4., 5., 6.], &[2, 3], context)?;
        let b = GpuTensor::from_values(&[2., -1., 0.5], &[3], context)?;
        let check =
            |context: &mut GpuContext, tensor: GpuTensor, shape: &[usize], expected: &[f64]| -> Result<()> {
                assert_eq!(tensor.shape(), shape);
                close(&tensor.to_values(context)?, expected, &name);
                Ok(())
            };
        let y = context.add(&a, &b)?;
        check(context, y, &[2, 3], &[3., 1., 3.5, 6., 4., 6.5])?;
        let y = context.subtract(&a, &b)?;
        check(context, y, &[2, 3], &[-1., 3., 2.5, 2., 6., 5.5])?;
        let y = context.multiply(&a, &b)?;
        check(context, y, &[2, 3], &[2., -2., 1.5, 8., -5., 3.])?;
        let y = context.divide(&a, &b)?;
        check(context, y, &[2, 3], &[0.5, -2., 6., 2., -5., 12.])?;
        let t = context.transpose(&a)?;
        let y = context.matmul(&a, &t)?;
        check(context, y, &[2, 2], &[14., 32., 32., 77.])?;
        let stack = context.reshape(&a, &[1, 2, 3])?;
        let y = context.transpose(&stack)?;
        check(context, y, &[1, 3, 2], &[1., 4., 2., 5., 3., 6.])?;
        let y = context.transpose(&b)?;
        check(context, y, &[3], &[2., -1., 0.5])?;
        let y = context.broadcast(&b, &[2, 3])?;
        check(context, y, &[2, 3], &[2., -1., 0.5, 2., -1., 0.5])?;
        let y = context.reshape(&a, &[3, 2])?;
        check(context, y, &[3, 2], &[1., 2., 3., 4., 5., 6.])?;
        let y = context.sum(&a, None)?;
        check(context, y, &[], &[21.])?;
        let y = context.mean(&a, Some(0))?;
        check(context, y, &[3], &[2.5, 3.5, 4.5])?;
        let y = context.max(&a, Some(1))?;
        check(context, y, &[2], &[3., 6.])?;
        let y = context.min(&a, None)?;
        check(context, y, &[], &[1.])?;
        for activation in ActivationFunction::ALL {
            let x = Array2::from_shape_vec((1, 3), vec![-2., 0.5, 3.]).unwrap();
            let on_device = GpuTensor::from_cpu(&x, context.device_id(), context)?;
            let y = context.activate(&on_device, activation)?;
            let expected = activation.apply_matrix(&x)?;
            check(context, y, &[1, 3], &expected.iter().copied().collect::<Vec<_>>())?;
        }
        let y = context.relu(&b)?;
        check(context, y, &[3], &[2., 0., 0.5])?;
        let w = GpuTensor::from_values(&[1., 0., 0., 0., 1., 1.], &[2, 3], context)?;
        let bias = GpuTensor::from_values(&[10., 20.], &[2], context)?;
        let y = context.dense_forward(&a, &w, Some(&bias))?;
        check(context, y, &[2, 2], &[11., 25., 14., 31.])?;
        let zeros = GpuTensor::from_values(&[0.; 6], &[2, 3], context)?;
        let y = context.loss(LossFunction::MeanSquaredError, &a, &zeros)?;
        check(context, y, &[], &[91. / 6.])?;
        let y = context.batch_norm(&a, None, None, 0.0)?;
        check(context, y, &[2, 3], &[-1., -1., -1., 1., 1., 1.])?;
        let means = GpuTensor::from_values(&[1., 0., -1.], &[3], context)?;
        let variances = GpuTensor::from_values(&[4., 1., 0.25], &[3], context)?;
        let y = context.batch_norm_by(&a, &means, &variances, Some(&b), Some(&means), 0.0)?;
        check(context, y, &[2, 3], &[1., -2., 3., 4., -5., 6.])?;
        let (mean, variance) = context.running_statistics(&a, &means, &variances, 0.5)?;
        check(context, mean, &[3], &[1.75, 1.75, 1.75])?;
        check(context, variance, &[3], &[4.25, 2.75, 2.375])?;
        let ones = GpuTensor::from_values(&[1.; 1000], &[1000], context)?;
        let dropped = context.dropout(&ones, 0.5, 3)?.to_values(context)?;
        assert!(dropped.iter().all(|x| *x == 0.0 || *x == 2.0));
        let kept = dropped.iter().filter(|x| **x > 0.0).count();
        assert!((400..600).contains(&kept), "{kept}");
        let image =
            GpuTensor::from_values(&(0..16).map(f64::from).collect::<Vec<_>>(), &[1, 1, 4, 4], context)?;
        let kernel = GpuTensor::from_values(&[1., 0., 0., 1.], &[1, 1, 2, 2], context)?;
        let y = context.conv2d(&image, &kernel, (2, 2), (0, 0))?;
        check(context, y, &[1, 1, 2, 2], &[5., 9., 21., 25.])?;
        let volume = context.reshape(&image, &[1, 1, 4, 2, 2])?;
        let cube = GpuTensor::from_values(&[1.; 8], &[1, 1, 2, 2, 2], context)?;
        let y = context.conv3d(&volume, &cube, (2, 1, 1), (0, 0, 0))?;
        check(context, y, &[1, 1, 2, 1, 1], &[28., 92.])?;
        let y = context.max_pool3d(&volume, (2, 1, 2), (2, 1, 1))?;
        check(context, y, &[1, 1, 2, 2, 1], &[5., 7., 13., 15.])?;
        let y = context.avg_pool3d(&volume, (2, 2, 2), (2, 1, 1))?;
        check(context, y, &[1, 1, 2, 1, 1], &[3.5, 11.5])?;
        let y = context.max_pool2d(&image, (2, 2), (2, 2))?;
        check(context, y, &[1, 1, 2, 2], &[5., 7., 13., 15.])?;
        let y = context.avg_pool2d(&image, (2, 2), (2, 2))?;
        check(context, y, &[1, 1, 2, 2], &[2.5, 4.5, 10.5, 12.5])?;
        let steps = GpuTensor::from_values(&[1., 0.5], &[2, 1, 1], context)?;
        let (ih, hh) = (
            GpuTensor::from_values(&[0.5], &[1, 1], context)?,
            GpuTensor::from_values(&[0.25], &[1, 1], context)?,
        );
        let parameters = RecurrentParameters { weight_ih: &ih, weight_hh: &hh, bias_ih: None, bias_hh: None };
        let y = context.recurrent(RecurrentKind::Rnn, &steps, parameters)?;
        let first = 0.5f64.tanh();
        check(context, y, &[2, 1, 1], &[first, (0.25 + 0.25 * first).tanh()])?;
        let q = GpuTensor::from_values(&[0.; 4], &[1, 2, 2], context)?;
        let v = GpuTensor::from_values(&[1., 2., 3., 4.], &[1, 2, 2], context)?;
        let y = context.attention(&q, &q, &v, false)?;
        check(context, y, &[1, 2, 2], &[2., 3., 2., 3.])?;
        let y = context.attention(&q, &q, &v, true)?;
        check(context, y, &[1, 2, 2], &[1., 2., 2., 3.])?;
        let gradients = context.gradients(&[&a], &mut |context, at| {
            let squares = context.multiply(&at[0], &at[0])?;
            context.sum(&squares, None)
        })?;
        close(&gradients[0].to_values(context)?, &[2., 4., 6., 8., 10., 12.], &name);
        assert!(context.matmul(&a, &a).is_err());
        Ok(())
    })
}

#[test]
fn tensors_have_types_and_sizes() -> Result<()> {
    everywhere(|context| {
        let data = Array2::from_shape_fn((3, 4), |(i, j)| i as f64 - 0.5 * j as f64);
        let id = context.device_id();
        let x = GpuTensor::from_cpu_as(&data, id, context, MemoryLayout::RowMajor, GpuDataType::Float16)?;
        assert_eq!((x.numel(), x.memory_size(), x.dtype().size()), (12, 24, 2));
        assert_eq!(x.to_cpu(context)?, data);
        assert!(
            GpuTensor::from_cpu_as(&data, id, context, MemoryLayout::RowMajor, GpuDataType::Bool).is_err()
        );
        Ok(())
    })
}

#[test]
fn bytes_are_numbers() {
    let bytes = ByteCount(10 << 20);
    assert_eq!((bytes / 1024 / 1024).bytes(), 10);
    assert_eq!(format!("{}|{:>4}", bytes / (1 << 20), ByteCount(7)), "10|   7");
    assert!(bytes * 0.9 < bytes && bytes > 1024 && bytes + bytes > bytes - bytes);
    assert_eq!(bytes / 0, ByteCount(0));
    // Plain numbers are bytes too.
    assert_eq!((ByteCount::from(1024i32), ByteCount::from(-1i32)), (ByteCount(1024), ByteCount(0)));
}

/// What a compiler's outcome may be where it may be missing: `None` if it is.
fn outcome(result: Result<Vec<u8>>) -> Option<Result<Vec<u8>>> {
    match result {
        Err(NetworkError::CompilerMissing { install, .. }) => {
            assert!(install.len() > 20, "{install}");
            None
        }
        other => Some(other),
    }
}

const WGSL: &str = "
struct Scalars { n: i32 }
@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;
@group(0) @binding(2) var<uniform> scalars: Scalars;
@compute @workgroup_size(64)
fn custom_activation(@builtin(global_invocation_id) id: vec3<u32>) {
    if (i32(id.x) < scalars.n) { output[id.x] = input[id.x] * input[id.x] + 1.0; }
}";

#[test]
fn ready_made_kernels_compile() -> Result<()> {
    let mut manager = KernelManager::new();
    // HIP's compiler has a test program of its own.
    for (backend, kernels) in [("cuda", CudaKernels::all_kernels()), ("opencl", OpenCLKernels::all_kernels())]
    {
        for (name, source) in kernels {
            if let Some(outcome) = outcome(manager.compile_kernel(&name, &source, backend)) {
                assert!(!outcome?.is_empty(), "{backend} {name}");
                assert!(manager.get_kernel(&name, backend).is_some());
            }
        }
    }
    for (name, source) in MetalKernels::all_kernels() {
        assert!(source.contains(&format!("kernel void {name}_kernel(")));
        match outcome(manager.compile_kernel(&name, &source, "metal")) {
            Some(outcome) => assert!(cfg!(target_os = "macos") && !outcome?.is_empty(), "metal {name}"),
            None => assert!(manager.get_kernel(&name, "metal").is_none()),
        }
    }
    let spirv = outcome(manager.compile_kernel("custom_activation", WGSL, "wgsl"));
    // naga is a part of this program, with the feature.
    assert_eq!(spirv.is_some(), cfg!(feature = "gpu"));
    if let Some(spirv) = spirv {
        assert_eq!(&spirv?[..4], 0x0723_0203u32.to_le_bytes());
        assert!(manager.get_kernel("custom_activation", "wgsl").is_some());
    }
    manager.clear();
    assert!(manager.get_kernel("custom_activation", "wgsl").is_none());
    Ok(())
}

#[test]
#[cfg(not(target_os = "macos"))]
fn metals_compiler_is_on_macos_only() {
    let source = MetalKernels::relu();
    match KernelManager::new().compile_kernel("relu", source, "metal") {
        Err(NetworkError::CompilerMissing { backend, install }) => {
            assert_eq!(backend, "metal");
            assert!(
                install.contains("Xcode") && install.contains("macOS") && install.contains("WGSL"),
                "{install}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn garbage_fails_with_the_compilers_words() {
    let mut manager = KernelManager::new();
    for backend in ["cuda", "opencl", "wgsl"] {
        let Some(outcome) = outcome(manager.compile_kernel("test", "garbage", backend)) else { continue };
        match outcome {
            Err(NetworkError::KernelCompilation { message, .. }) => {
                assert!(message.contains("garbage") || message.contains("expected"), "{backend}: {message}");
            }
            other => panic!("{backend}: {other:?}"),
        }
    }
}

#[test]
fn custom_kernels_are_executed() -> Result<()> {
    const CUDA: &str = r#"extern "C" __global__ void custom_activation(const float* input, float* output, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x; // of all
        if (i < n) output[i] = input[i] * input[i] + 1.0f;
    }"#;
    const OPENCL: &str =
        "__kernel void custom_activation(__global const float* input, __global float* output, int n) {
        int i = get_global_id(0);
        if (i < n) output[i] = input[i] * input[i] + 1.0f;
    }";
    everywhere(|context| {
        let family = context.device_name().split(':').next().unwrap_or_default().to_owned();
        let source = match family.as_str() {
            "cuda" | "hip" => CUDA,
            "opencl" => OPENCL,
            _ => WGSL,
        };
        let kernel = GpuKernel {
            name: "custom_activation".to_owned(),
            source: source.to_owned(),
            entry_point: "custom_activation".to_owned(),
            compiled_binary: None,
            work_group_size: (64, 1, 1),
            backend_handle: None,
        };
        let (input, output) = (context.allocate(400)?, context.allocate(400)?);
        let values: Vec<f32> = (0..100).map(|i| i as f32).collect();
        context.copy_to_device(&values, &input)?;
        let arguments = [
            GpuKernelArg::Buffer(input.clone()),
            GpuKernelArg::Buffer(output.clone()),
            GpuKernelArg::Int(100),
        ];
        let done = context.execute_kernel(&kernel, &arguments);
        if family == "cpu" {
            assert!(done.unwrap_err().to_string().contains("GPU"));
            return Ok(());
        }
        done?;
        let mut found = vec![0.0; 100];
        context.copy_to_host(&output, &mut found)?;
        assert!(found.iter().zip(&values).all(|(y, x)| *y == x * x + 1.0), "{family}: {found:?}");
        assert!(context.execute_kernel(&kernel, &arguments[..2]).is_err());
        let misread = [arguments[0].clone(), arguments[1].clone(), GpuKernelArg::Scalar(100.0)];
        let error = context.execute_kernel(&kernel, &misread).unwrap_err().to_string();
        assert!(error.contains("expected int, got float"), "{error}");
        let swapped = [GpuKernelArg::Int(1), arguments[1].clone(), arguments[0].clone()];
        assert!(context.execute_kernel(&kernel, &swapped).is_err());
        let garbage = GpuKernel { source: source.replace("input[", "oops["), ..kernel.clone() };
        let error = context.execute_kernel(&garbage, &arguments).unwrap_err();
        assert!(matches!(error, NetworkError::KernelCompilation { .. }), "{error}");
        context.deallocate(input)?;
        assert!(context.execute_kernel(&kernel, &arguments).is_err());
        Ok(())
    })
}

fn network() -> Result<Network> {
    Network::with_input_size(4)?
        .add_layer(LayerBuilder::dense(16).activation(ActivationFunction::Tanh))
        .add_layer(LayerBuilder::dense(3).activation(ActivationFunction::Softmax))
        .loss(LossFunction::CategoricalCrossEntropy)
        .optimizer(Optimizer::adam(0.01)?)
        .device("cpu")
        .seed(2)
        .build()
}

#[test]
fn several_workers_train_as_one() -> Result<()> {
    let x = Array2::from_shape_fn((50, 4), |(i, j)| ((i * 4 + j) as f64 * 0.9).sin());
    let y = Array2::from_shape_fn((50, 3), |(i, j)| f64::from(u8::from(i % 3 == j)));
    let config = TrainingConfig {
        max_epochs: 5,
        batch_size: 16,
        seed: Some(3),
        verbose: false,
        ..TrainingConfig::default()
    };
    let mut alone = network()?;
    let expected = alone.train(&x, &y, &config)?;
    for workers in [1, 2, 3] {
        let together = network()?;
        let trainer = DistributedTraining::with_cpu_workers(workers)?.with_config(config.clone());
        let history = trainer.train(&together, &x, &y)?;
        close(&history.train_loss, &expected.train_loss, "losses");
        close(&history.val_metrics["accuracy"], &expected.val_metrics["accuracy"], "accuracy");
        for (a, b) in alone.get_weights()?.iter().zip(&together.get_weights()?) {
            assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4));
        }
    }
    Ok(())
}

/// Alone and, of whatever kinds they are, together.
#[test]
fn every_device_trains_as_the_cpu() -> Result<()> {
    let x = Array2::from_shape_fn((32, 4), |(i, j)| ((i * 4 + j) as f64 * 0.9).sin());
    let y = Array2::from_shape_fn((32, 3), |(i, j)| f64::from(u8::from(i % 3 == j)));
    let config = TrainingConfig {
        max_epochs: 3,
        batch_size: 16,
        seed: Some(3),
        verbose: false,
        ..TrainingConfig::default()
    };
    let expected = network()?.train(&x, &y, &config)?;
    let manager = GpuManager::new();
    let together = DistributedTraining::new(manager.devices())?.with_config(config.clone());
    let history = together.train(&network()?, &x, &y)?;
    close(&history.train_loss, &expected.train_loss, &history.device);
    for device in manager.devices() {
        let mut network = network()?.to_device(&device.engine_name)?;
        assert_eq!(network.device(), device.engine_name);
        let history = network.train(&x, &y, &config)?;
        let near = history.train_loss.iter().zip(&expected.train_loss).all(|(a, b)| (a - b).abs() < 1e-4);
        assert!(near, "{}: {:?} is not {:?}", device.engine_name, history.train_loss, expected.train_loss);
    }
    Ok(())
}
