//! Custom kernels on the CPU, on a test driver that acts as a GPU, and with CPU placement.

use std::sync::{Arc, Mutex, PoisonError};

use neurenix::languages::{CUDA_C, HIP_C, OPENCL_C, WGSL};
use phynexus::{
    DType, Device, Element, Error, Result, Scalar, Tensor,
    custom::{CustomKernel, CustomKernelBuilder, Source, SourceLanguage},
    device::{DeviceInfo, DeviceNature, register},
    dtype::scalar_bytes,
    gpu::{Driver, Gpu, NotCompiled, SourceArgument, SourceLaunch, Submission},
    kernel::{check::Limits, loops::Kernel, lower::Target},
    oracle::interpret::interpret,
    schedule::placement::set_strict,
};

/// A test driver that interprets kernels. The first line of a source is the name of its entry point. Each following
/// line is a function of `x`, applied in order: `square`, or `add` of the scalar. The result is added to the output.
struct Plain {
    target: Target,
}

type Block = Mutex<Vec<u8>>;

enum Module {
    Printed,
    Source(Vec<String>),
}

fn bytes(block: &Block) -> std::sync::MutexGuard<'_, Vec<u8>> {
    block.lock().unwrap_or_else(PoisonError::into_inner)
}

fn scalars_of(bytes: &[u8], dtype: DType) -> Vec<Scalar> {
    fn read<T: Element>(bytes: &[u8]) -> Vec<Scalar> {
        T::read_bytes(bytes).into_iter().map(T::to_scalar).collect()
    }
    match dtype {
        DType::F32 => read::<f32>(bytes),
        DType::I64 => read::<i64>(bytes),
        other => panic!("{other} is not tested"),
    }
}

impl Driver for Plain {
    type Block = Block;
    type Module = Module;
    type Recording = ();
    type Mark = ();

    fn name(&self) -> &str {
        "plain:0"
    }
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: "plain:0".to_owned(),
            model: "for tests".to_owned(),
            nature: DeviceNature::Emulator,
            compute_units: None,
            total_memory: None,
            features: Vec::new(),
        }
    }
    fn target(&self) -> &Target {
        &self.target
    }
    fn available_memory(&self) -> Option<u64> {
        None
    }
    fn allocate(&self, bytes: usize) -> Option<Block> {
        Some(Mutex::new(vec![0xA5; bytes]))
    }
    fn write(&self, block: &Block, offset: usize, source: &[u8]) -> Result<()> {
        bytes(block)[offset..offset + source.len()].copy_from_slice(source);
        Ok(())
    }
    fn read(&self, block: &Block, offset: usize, out: &mut [u8]) -> Result<()> {
        out.copy_from_slice(&bytes(block)[offset..offset + out.len()]);
        Ok(())
    }
    fn compile(&self, _: &Kernel, _: &str) -> Result<Module, NotCompiled> {
        Ok(Module::Printed)
    }
    fn launch(&self, submission: &Submission<'_, Plain>) -> Result<()> {
        let kernel = submission.kernel;
        let places = || kernel.buffers.iter().zip(&submission.arguments);
        let mut buffers: Vec<Vec<Scalar>> = places()
            .map(|(buffer, (block, start))| {
                let (start, size) = (*start as usize, buffer.length * buffer.dtype.size());
                scalars_of(&bytes(block)[start..start + size], buffer.dtype)
            })
            .collect();
        interpret(kernel, 1, &mut buffers, &[])?;
        for ((buffer, (block, start)), values) in places().zip(&buffers).filter(|((b, _), _)| b.written) {
            let new: Vec<u8> = values.iter().flat_map(|v| scalar_bytes(*v, buffer.dtype)).collect();
            bytes(block)[*start as usize..][..new.len()].copy_from_slice(&new);
        }
        Ok(())
    }
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn source_languages(&self) -> &'static [SourceLanguage] {
        &[OPENCL_C]
    }
    fn compile_source(&self, kernel: &CustomKernel, source: &Source) -> Result<Module, NotCompiled> {
        let mut lines = source.text().lines();
        if lines.next() != Some(kernel.entry_point()) {
            return Err(format!("there is no kernel {}", kernel.entry_point()).into());
        }
        let lines: Vec<String> = lines.map(|line| line.trim().to_owned()).collect();
        match lines.iter().position(|line| line != "square" && line != "add") {
            None => Ok(Module::Source(lines)),
            Some(at) => Err(format!("source:{}:5: error: what is {:?}?", at + 2, lines[at]).into()),
        }
    }
    fn launch_source(&self, module: &Module, launch: &SourceLaunch<'_, Block>) -> Result<()> {
        let Module::Source(lines) = module else { return Err(Error::argument("test", "not a source")) };
        let (mut x, mut added, mut places) = (Vec::new(), 0.0, Vec::new());
        for argument in launch.arguments {
            match argument {
                SourceArgument::Buffer { block, start, bytes: length, written } => {
                    assert_eq!(start % self.binding_alignment(), 0);
                    match written {
                        true => places.push((*block, *start)),
                        false => x = f32::read_bytes(&bytes(block)[*start..start + length]),
                    }
                }
                SourceArgument::Scalar { dtype, value } => {
                    assert_eq!(*dtype, DType::F32);
                    added = value.as_f64() as f32;
                }
            }
        }
        assert!(launch.groups[0] * launch.kernel.work_group_size()[0] >= x.len());
        for (block, start) in places {
            let mut block = bytes(block);
            for (i, &x) in x.iter().enumerate() {
                let y = lines.iter().fold(x, |y, line| if line == "square" { y * y } else { y + added });
                let place = &mut block[start + 4 * i..][..4];
                let before = f32::read_bytes(place)[0];
                place.copy_from_slice(&(before + y).to_le_bytes());
            }
        }
        Ok(())
    }
    fn binding_alignment(&self) -> usize {
        64
    }
}

fn plain() -> Device {
    neurenix::register_all();
    let limits = Limits {
        device: "plain:0".to_owned(),
        bindings: 8,
        shared_bytes: 16 << 10,
        block: [256, 256, 64],
        block_size: 256,
        grid: [1000, 100, 100],
        subgroup: None,
        dtypes: DType::ALL.to_vec(),
        matrices: Vec::new(),
        quads: false,
        async_copies: false,
        meeting_groups: 0,
    };
    register(Box::new(Gpu::new(Plain {
        target: Target { limits, vector_bytes: 0, processors: 4, sums: 64 },
    })))
}

fn cpu() -> Device {
    neurenix::register_all();
    Device::find("cpu").unwrap()
}

/// Records `x^2 + c` without running anything.
fn parabola() -> CustomKernelBuilder {
    CustomKernel::builder("parabola").input("x", DType::F32, "shape..").scalar("c", DType::F32).zeroed_output(
        "y",
        DType::F32,
        "shape..",
    )
}

fn with_function(builder: CustomKernelBuilder) -> CustomKernelBuilder {
    builder.cpu(|mut call| {
        let c = call.scalars[0].as_f64() as f32;
        let x = call.inputs[0].values::<f32>()?;
        let y = call.outputs[0].values::<f32>()?;
        y.iter_mut().zip(x).for_each(|(y, x)| *y += x * x + c);
        Ok(())
    })
}

const SOURCE: &str = "parabola\n    square\n    add";
const C: [Scalar; 1] = [Scalar::Float(1.5)];

fn values(count: usize) -> Vec<f32> {
    (0..count).map(|i| i as f32 * 0.5 - 3.0).collect()
}

/// Operands: rows, a transposed matrix, an unaligned slice, and the result of other work.
fn compute(kernel: &CustomKernel, device: Device) -> Result<Vec<Vec<f32>>> {
    let x = Tensor::from_slice(&values(35), &[5, 7], device)?;
    let part = x.flatten(0, -1)?.narrow(0, 3, 20)?;
    let pending = x.mul_scalar(2.0)?;
    let operands = [x.clone(), x.t()?, part, pending];
    operands.iter().map(|x| kernel.call(&[x], &C)?.add_scalar(1.0)?.to_vec()).collect()
}

fn expected() -> Vec<Vec<f32>> {
    let x = values(35);
    let turned: Vec<f32> = (0..35).map(|i| x[i % 5 * 7 + i / 5]).collect();
    let doubled = x.iter().map(|x| x * 2.0).collect();
    let operands = [x.clone(), turned, x[3..23].to_vec(), doubled];
    operands.map(|x: Vec<f32>| x.iter().map(|x| x * x + 1.5 + 1.0).collect()).to_vec()
}

#[test]
fn the_cpu_runs_functions_and_drivers_run_sources() -> Result<()> {
    let function = with_function(parabola()).build()?;
    assert_eq!(compute(&function, cpu())?, expected());
    let source = parabola().source(OPENCL_C, SOURCE).build()?;
    source.compile(plain())?;
    assert_eq!(compute(&source, plain())?, expected());
    Ok(())
}

#[test]
fn outputs_begin_as_copies() -> Result<()> {
    let kernel = CustomKernel::builder("parabola")
        .input("x", DType::F32, "shape..")
        .scalar("c", DType::F32)
        .copied_output("y", DType::F32, "shape..")
        .output("z", DType::F32, "shape..")
        .copied_output("w", DType::F32, "shape..")
        .source(OPENCL_C, SOURCE)
        .build()?;
    // The initial contents are a transposed matrix and an unaligned slice.
    let x = Tensor::from_slice(&values(35), &[5, 7], plain())?;
    let first = x.reshape(&[7, 5])?.t()?;
    let all = Tensor::from_slice(&values(40), &[40], plain())?;
    let second = all.narrow(0, 3, 35)?.reshape(&[5, 7])?;
    let results = kernel.launch(&[&x, &first, &second], &C)?;
    let (first, second) = (first.to_vec::<f32>()?, second.to_vec::<f32>()?);
    for (result, begun) in [(&results[0], &first), (&results[2], &second)] {
        let expected: Vec<f32> = values(35).iter().zip(begun).map(|(x, b)| b + (x * x + 1.5)).collect();
        assert_eq!(result.to_vec::<f32>()?, expected);
    }
    // The operands themselves are unchanged.
    assert_eq!((all.to_vec::<f32>()?, x.to_vec::<f32>()?), (values(40), values(35)));
    Ok(())
}

#[test]
fn several_outputs_are_parts_of_one_buffer() -> Result<()> {
    let two = parabola().output("z", DType::F32, "shape..").source(OPENCL_C, SOURCE).build()?;
    let x = Tensor::from_slice(&values(35), &[5, 7], plain())?;
    let results = two.launch(&[&x], &C)?;
    let expected: Vec<f32> = values(35).iter().map(|x| x * x + 1.5).collect();
    assert_eq!(results[0].to_vec::<f32>()?, expected);
    // The other output was not zeroed: it started with a pattern.
    let pattern = f32::read_bytes(&[0xA5; 4])[0];
    let found = results[1].to_vec::<f32>()?;
    assert!(found.iter().zip(&expected).all(|(z, y)| *z == pattern + y), "{found:?}");
    let empty = Tensor::from_slice::<f32>(&[], &[0, 7], plain())?;
    assert_eq!(two.launch(&[&empty], &C)?[0].to_vec::<f32>()?, [0.0; 0]);
    Ok(())
}

#[test]
fn garbage_does_not_compile_and_says_where() -> Result<()> {
    let x = Tensor::from_slice(&values(4), &[4], plain())?;
    // A CPU function does not hide the error.
    for builder in [parabola(), with_function(parabola())] {
        let kernel = builder.source(OPENCL_C, "parabola\n    square\n    cube\n    add").build()?;
        for error in [kernel.compile(plain()), kernel.call(&[&x], &C).map(drop)].map(Result::unwrap_err) {
            let Error::KernelSource { message, language, .. } = &error else { panic!("{error}") };
            assert_eq!(*language, "OpenCL C");
            assert!(message.contains("  > 3 |     cube\n      |     ^"), "{message}");
        }
    }
    let kernel = parabola().source(OPENCL_C, SOURCE).entry_point("absent").build()?;
    let error = kernel.compile(plain()).unwrap_err().to_string();
    assert!(error.contains("no kernel absent"), "{error}");
    Ok(())
}

#[test]
fn launches_that_a_device_cannot_do_are_refused_when_recorded() -> Result<()> {
    let x = Tensor::from_slice(&values(4), &[4], plain())?;
    let source = || parabola().source(OPENCL_C, SOURCE);
    let cases = [
        (source().work_group_size([512, 1, 1]), "work group size"),
        (source().work_group_size([64, 64, 1]), "work group size"),
        (source().groups([1, 101, 1]), "groups"),
        (source().groups_with(|extents| [extents[0] * 1000, 1, 1]), "groups"),
    ];
    for (builder, expected) in cases {
        let error = builder.build()?.call(&[&x], &C).unwrap_err();
        assert!(matches!(&error, Error::KernelArgument { argument, .. } if argument == expected), "{error}");
    }
    let many = (0..8).fold(source(), |k, at| k.input(&format!("more{at}"), DType::F32, "shape.."));
    let error = many.build()?.call(&[&x; 9], &C).unwrap_err();
    assert!(matches!(&error, Error::KernelArgument { argument, .. } if argument == "tensors"), "{error}");
    Ok(())
}

/// One test, because strict mode is process-wide.
#[test]
fn a_kernel_without_the_devices_language_runs_on_the_cpu_if_it_can() -> Result<()> {
    let x = Tensor::from_slice(&values(4), &[4], plain())?;
    let cuda = || parabola().source(CUDA_C, "garbage");
    let error = cuda().build()?.call(&[&x], &C).unwrap_err();
    let said = "accepts OpenCL C: the kernel has CUDA C";
    assert!(matches!(error, Error::KernelLanguage { .. }) && error.to_string().contains(said), "{error}");
    let error = cuda().build()?.call(&[&x.to_device(cpu())?], &C).unwrap_err();
    assert!(matches!(error, Error::KernelLanguage { .. }), "{error}");

    let kernel = with_function(cuda()).build()?;
    let y = kernel.call(&[&x], &C)?;
    let plan = y.explain()?.map(|plan| plan.to_string()).unwrap_or_default();
    assert!(plan.contains("on cpu: ") && plan.contains(said), "{plan}");
    assert_eq!(y.to_vec::<f32>()?, values(4).iter().map(|x| x * x + 1.5).collect::<Vec<f32>>());
    set_strict(true);
    let strict = kernel.call(&[&x], &C)?.evaluate();
    set_strict(false);
    assert!(strict.unwrap_err().to_string().contains("strict mode"));
    Ok(())
}

#[test]
fn a_function_sees_every_type() -> Result<()> {
    for dtype in DType::COMPUTED {
        let kernel = CustomKernel::builder("copy")
            .input("x", dtype, "n")
            .output("y", dtype, "n")
            .cpu(move |mut call| {
                macro_rules! copy {
                    ($($t:ty)+) => { $(
                        if <$t>::DTYPE == dtype {
                            let x = call.inputs[0].values::<$t>()?;
                            let y = call.outputs[0].values::<$t>()?;
                            assert!(y.iter().all(|y| *y == <$t>::default()));
                            y.copy_from_slice(x);
                        }
                    )+ };
                }
                copy!(bool u8 u16 u32 u64 i8 i16 i32 i64 half::f16 half::bf16 f32 f64);
                Ok(())
            })
            .build()?;
        let x = Tensor::from_slice(&[0f32, 1.0, 0.0, 1.0], &[4], cpu())?.to_dtype(dtype)?;
        let y = kernel.call(&[&x.narrow(0, 1, 3)?], &[])?;
        assert_eq!(y.to_dtype(DType::F32)?.to_vec::<f32>()?, [1.0, 0.0, 1.0], "{dtype}");
    }
    Ok(())
}

#[test]
fn what_a_function_reports_is_the_computations_error() -> Result<()> {
    let seen = Arc::new(Mutex::new(0));
    let counter = seen.clone();
    let kernel = parabola()
        .cpu(move |call| {
            *counter.lock().unwrap_or_else(PoisonError::into_inner) += call.inputs[0].shape.len();
            Err(Error::argument("parabola", "no square today"))
        })
        .build()?;
    let x = Tensor::from_slice(&values(4), &[2, 2], cpu())?;
    let y = kernel.call(&[&x], &C)?;
    assert!(y.to_vec::<f32>().unwrap_err().to_string().contains("no square today"));
    // The failure breaks nothing: the kernel can be launched again, and others still run.
    assert!(y.to_vec::<f32>().is_err());
    assert_eq!(*seen.lock().unwrap_or_else(PoisonError::into_inner), 4);
    assert_eq!(x.to_vec::<f32>()?, values(4));
    Ok(())
}

/// `y = 2 x + c` in every language, with a statement `before` the assignment.
fn doubled(before: &str) -> CustomKernelBuilder {
    let cuda = format!(
        "extern \"C\" __global__ void doubled(const float* x, float* y, int n, float c) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {before} if (i < n) y[i] = 2.0f * x[i] + c;
}}"
    );
    let opencl = format!(
        "__kernel void doubled(__global const float* x, __global float* y, int n, float c) {{
    int i = get_global_id(0);
    {before} if (i < n) y[i] = 2.0f * x[i] + c;
}}"
    );
    let wgsl = format!(
        "struct Scalars {{ n: i32, c: f32 }}
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> scalars: Scalars;
@compute @workgroup_size(64)
fn doubled(@builtin(global_invocation_id) id: vec3<u32>) {{
    let i = i32(id.x);
    {before} if (i < scalars.n) {{ y[i] = 2.0 * x[i] + scalars.c; }}
}}"
    );
    CustomKernel::builder("doubled")
        .input("x", DType::F32, "shape..")
        .output("y", DType::F32, "shape..")
        .scalar("n", DType::I32)
        .work_group_size([64, 1, 1])
        .source(CUDA_C, &cuda)
        .source(HIP_C, &cuda)
        .source(OPENCL_C, &opencl)
        .source(WGSL, &wgsl)
}

/// This machine's devices that have their own compilers.
fn real_devices() -> Vec<Device> {
    neurenix::register_all();
    ["cuda:0", "hip:0", "opencl:0"].into_iter().filter_map(|name| Device::find(name).ok()).collect()
}

#[test]
fn devices_run_sources_and_refuse_what_is_none() -> Result<()> {
    for device in real_devices() {
        let kernel = doubled("").scalar("c", DType::F32).build()?;
        let x = Tensor::from_slice(&values(35), &[5, 7], device)?;
        // A slice that starts where no binding may start, and a transposed one.
        let part = x.flatten(0, -1)?.narrow(0, 3, 20)?;
        for x in [&part, &x.t()?, &x.mul_scalar(3.0)?] {
            let y = kernel.call(&[x], &[Scalar::Int(x.len() as i64), Scalar::Float(0.25)])?;
            let expected: Vec<f32> = x.to_vec::<f32>()?.iter().map(|x| 2.0 * x + 0.25).collect();
            assert_eq!(y.to_vec::<f32>()?, expected, "{device}");
        }
        let garbage = doubled("oops = oops + 1;").scalar("c", DType::F32).build()?;
        let error = garbage.compile(device).unwrap_err();
        let Error::KernelSource { message, .. } = &error else { panic!("{device}: {error}") };
        assert!(message.contains("oops = oops + 1; if (i <"), "the line is shown on {device}: {message}");
        let absent = doubled("").scalar("c", DType::F32).entry_point("absent").build()?;
        let error = absent.compile(device).unwrap_err();
        assert!(
            matches!(&error, Error::KernelSource { message, .. } if message.contains("absent")),
            "{error}"
        );
        let error = doubled("").build()?.compile(device).unwrap_err();
        assert!(matches!(&error, Error::KernelSource { .. }), "{device}: {error}");
        if device.name().starts_with("opencl") {
            let source = "__kernel void first(__global const int* x, __global float* y) { y[0] = x[0]; }";
            let first = |x: DType, y: DType| {
                let builder = CustomKernel::builder("first").input("x", x, "n").output("y", y, "n");
                builder.source(OPENCL_C, source).build()
            };
            first(DType::I32, DType::F32)?.compile(device)?;
            let error = first(DType::F32, DType::F32)?.compile(device).unwrap_err().to_string();
            let expected = "the parameter x of first is int*, but the Input x of the signature is float32";
            assert!(error.contains(expected), "{error}");
            let error = first(DType::I32, DType::I32)?.compile(device).unwrap_err().to_string();
            assert!(error.contains("y of first is float*") && error.contains("__global int*"), "{error}");
        }
    }
    Ok(())
}
