//! User-written SPIR-V kernels: valid ones run, and garbage is an error. Runs on the devices of this machine, if any;
//! lavapipe suffices.

use naga::{back::spv, front::wgsl, valid};
use phynexus::{
    DType, Device, Error, Result, Scalar, Tensor,
    custom::{CustomKernel, CustomKernelBuilder},
};
use phynexus_wgpu::{MSL, SPIR_V, WGSL};

fn found() -> Vec<Device> {
    phynexus_wgpu::register();
    phynexus::device::devices()
}

const SHADER: &str = "struct Scalars { n: i32, c: f32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> scalars: Scalars;
@compute @workgroup_size(64)
fn doubled(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = i32(id.x);
    if (i < scalars.n) { y[i] = 2.0 * x[i] + scalars.c; }
}";

/// The words of a shader, as a user's compiler would write them.
fn words(shader: &str) -> Vec<u32> {
    let module = wgsl::parse_str(shader).unwrap();
    let mut validator = valid::Validator::new(valid::ValidationFlags::all(), valid::Capabilities::all());
    let info = validator.validate(&module).unwrap();
    spv::write_vec(&module, &info, &spv::Options { lang_version: (1, 3), ..Default::default() }, None)
        .unwrap()
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn doubled() -> CustomKernelBuilder {
    CustomKernel::builder("doubled")
        .input("x", DType::F32, "shape..")
        .output("y", DType::F32, "shape..")
        .scalar("n", DType::I32)
        .scalar("c", DType::F32)
        .work_group_size([64, 1, 1])
}

fn with(binary: &[u8]) -> CustomKernel {
    doubled().binary(SPIR_V, binary).build().unwrap()
}

#[test]
fn modules_of_spirv_run() -> Result<()> {
    let kernel = with(&bytes(&words(SHADER)));
    for device in found() {
        let values: Vec<f32> = (0..35).map(|i| i as f32 * 0.5 - 3.0).collect();
        let x = Tensor::from_slice(&values, &[5, 7], device)?;
        // A slice at an unaligned offset, and a transposed tensor.
        let part = x.flatten(0, -1)?.narrow(0, 3, 20)?;
        for x in [&x, &part, &x.t()?, &x.mul_scalar(3.0)?] {
            let y = kernel.call(&[x], &[Scalar::Int(x.len() as i64), Scalar::Float(0.25)])?;
            let expected: Vec<f32> = x.to_vec::<f32>()?.iter().map(|x| 2.0 * x + 0.25).collect();
            assert_eq!(y.to_vec::<f32>()?, expected, "{device}");
        }
        // An input may be declared writable if it is not written: compilers may omit the qualifier.
        let writable = words(&SHADER.replace("storage, read>", "storage, read_write>"));
        let y = with(&bytes(&writable)).call(&[&x], &[Scalar::Int(35), Scalar::Float(0.0)])?;
        assert_eq!(y.to_vec::<f32>()?[34], 28.0);
        // SPIR-V takes precedence over WGSL.
        let both = doubled().source(WGSL, "garbage");
        both.binary(SPIR_V, &bytes(&words(SHADER))).build()?.compile(device)?;
    }
    Ok(())
}

fn refusal(kernel: &CustomKernel, device: Device) -> String {
    match kernel.compile(device) {
        Err(Error::KernelSource { message, language, .. }) => {
            assert_eq!(language, "SPIR-V");
            message
        }
        other => panic!("{device}: {other:?}"),
    }
}

#[test]
fn what_is_no_module_of_the_signature_is_refused() {
    let good = bytes(&words(SHADER));
    let swapped: Vec<u8> = words(SHADER).iter().flat_map(|word| word.to_be_bytes()).collect();
    let changed = |from: &str, to: &str| bytes(&words(&SHADER.replace(from, to)));
    let writes_x = SHADER.replace("read> x", "read_write> x").replace("if (i", "x[i] = 1.0; if (i");
    let reads_y = SHADER.replace("read_write> y", "read> y").replace("y[i] =", "let z = y[i] +");
    let whole_x = SHADER.replace("x: array<f32>", "x: array<i32>").replace("* x[i]", "* f32(x[i])");
    let whole_c = SHADER.replace("c: f32", "c: i32").replace("+ scalars.c", "+ f32(scalars.c)");
    let cases: [(Vec<u8>, &str); 14] = [
        (Vec::new(), "got 0 bytes"),
        (good[..good.len() - 1].to_vec(), "expected words of four bytes"),
        (b"#version 450".to_vec(), "a SPIR-V module begins with 0x07230203"),
        (swapped, "big-endian"),
        (good[..4].to_vec(), "naga cannot read the module"),
        (good[..good.len() / 8 * 4].to_vec(), "naga cannot read the module"),
        (changed("fn doubled", "fn other"), "there is no kernel doubled: it needs an OpEntryPoint GLCompute"),
        (changed("size(64)", "size(32)"), "the LocalSize of doubled is [32, 1, 1]"),
        (changed("binding(2)", "binding(5)"), "the signature has no parameter for"),
        (changed("n: i32, c: f32", "n: i32, c: f32, d: vec4<f32>"), "the signature's scalars have 8"),
        (bytes(&words(&writes_x)), "x is the Input x: it must not be written"),
        (bytes(&words(&reads_y)), "y is the Output y: it must not be NonWritable"),
        (bytes(&words(&whole_x)), "x has elements of i32, but the Input x of the signature is float32"),
        (bytes(&words(&whole_c)), "has i32 at byte 4, but the signature's scalar c is float32"),
    ];
    for device in found() {
        for (binary, expected) in &cases {
            let message = refusal(&with(binary), device);
            assert!(message.contains(expected), "{device}: {message} should tell of: {expected}");
        }
        let kernel = doubled().source(MSL, "kernel void doubled() {}").build().unwrap();
        if !device.name().starts_with("metal") {
            let error = kernel.compile(device).unwrap_err().to_string();
            assert!(error.contains("SPIR-V or WGSL"), "{error}");
        }
    }
}

/// Modules with damaged words are refused or compile; the device still computes correctly afterwards.
#[test]
fn damaged_modules_do_no_harm() -> Result<()> {
    let good = words(SHADER);
    for device in found() {
        let mut state = 7u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize
        };
        let mut refused = 0;
        for _ in 0..200 {
            let mut damaged = good.clone();
            for _ in 0..1 + random() % 3 {
                let at = 5 + random() % (damaged.len() - 5);
                damaged[at] = match random() % 3 {
                    0 => damaged[random() % good.len()],
                    1 => damaged[at] ^ 1 << (random() % 32),
                    _ => damaged[at].wrapping_add(random() as u32 % 5),
                };
            }
            match with(&bytes(&damaged)).compile(device) {
                Ok(()) => {}
                Err(Error::KernelSource { .. }) => refused += 1,
                Err(error) => panic!("{device}: {error}"),
            }
        }
        assert!(refused > 50, "{device}: only {refused} were refused");
        let x = Tensor::from_slice(&[1f32, 2.0], &[2], device)?;
        let y = with(&bytes(&good)).call(&[&x], &[Scalar::Int(2), Scalar::Float(1.0)])?;
        assert_eq!(y.to_vec::<f32>()?, [3.0, 5.0]);
    }
    Ok(())
}

#[test]
fn a_tensor_that_is_too_large_is_an_error_and_the_device_goes_on() -> Result<()> {
    let code = bytes(&words(SHADER));
    let kernel = doubled().groups([1, 1, 1]).binary(SPIR_V, &code).build()?;
    for device in found() {
        // More than the 128 MiB that lavapipe can bind; other devices may accept it.
        let x = Tensor::from_slice(&vec![3.0f32; 40_000_000], &[40_000_000], device)?;
        let call = |x: &Tensor, n: i64| kernel.call(&[x], &[Scalar::Int(n), Scalar::Float(1.0)])?.evaluated();
        match call(&x, 1) {
            Ok(y) => assert_eq!(y.narrow(0, 0, 1)?.to_vec::<f32>()?, [7.0], "{device}"),
            Err(Error::KernelArgument { argument, .. }) => assert_eq!(argument, "x", "{device}"),
            Err(error) => panic!("{device}: {error}"),
        }
        drop(x);
        let small = Tensor::full(&[2], 3.0, DType::F32, device)?;
        assert_eq!(call(&small, 2)?.to_vec::<f32>()?, [7.0; 2], "{device}");
    }
    Ok(())
}
