//! Checks without a GPU that every kernel of the lowering suite, printed as WGSL, is valid and translates to SPIR-V,
//! MSL and HLSL.

#[path = "../../../phynexus/tests/lowering/cases.rs"]
mod cases;

use naga::{
    back::{hlsl, msl, spv},
    front::wgsl,
    valid::{Capabilities, ValidationFlags, Validator},
};
use phynexus::{
    DType, Device, Error, Result,
    device::{DeviceInfo, DeviceNature},
    gpu::{Driver, Gpu, NotCompiled, Submission},
    kernel::{
        check::Limits,
        loops::Kernel,
        lower::Target,
        print::{WgslArithmetic, print_wgsl, print_wgsl_variable},
    },
    oracle::generate::{Case, random_case},
    schedule::execute_ir,
};

/// Translates kernels without running them.
struct Translator {
    target: Target,
}

/// Features that a device lacks; such steps run elsewhere.
const LACKING: [&str; 2] = ["of float64", "which the device does not support"];

impl Driver for Translator {
    type Block = usize;
    type Module = ();
    type Recording = ();
    type Mark = ();

    fn name(&self) -> &str {
        &self.target.limits.device
    }
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: self.name().to_owned(),
            model: "translator".to_owned(),
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
    fn allocate(&self, bytes: usize) -> Option<usize> {
        Some(bytes)
    }
    fn write(&self, _: &usize, _: usize, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn read(&self, _: &usize, _: usize, bytes: &mut [u8]) -> Result<()> {
        bytes.fill(0);
        Ok(())
    }
    /// Translates the kernel with its numbers built in, and with all of them as arguments.
    fn compile(&self, kernel: &Kernel, _: &str) -> Result<(), NotCompiled> {
        for exact in [true, false] {
            let arithmetic = WgslArithmetic { divisions: exact, subnormals: exact };
            let variable = print_wgsl_variable(&kernel.with_sizes(1), arithmetic)?;
            for source in [print_wgsl(kernel, arithmetic)?, variable.general_source()] {
                translate(&source, &self.target.limits.dtypes)
                    .map_err(|message| Error::internal("translation", format!("{message}\n{source}")))?;
            }
        }
        Ok(())
    }
    fn launch(&self, _: &Submission<'_, Translator>) -> Result<()> {
        Ok(())
    }
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

/// MSL has no `f64`; naga's HLSL cannot reinterpret 64-bit floats.
fn translate(source: &str, dtypes: &[DType]) -> Result<(), String> {
    let module = wgsl::parse_str(source).map_err(|e| e.emit_to_string(source))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map_err(|e| e.emit_to_string(source))?;
    spv::write_vec(&module, &info, &spv::Options::default(), None).map_err(|e| format!("SPIR-V: {e}"))?;
    if dtypes.contains(&DType::F64) {
        return Ok(());
    }
    let options = msl::Options { lang_version: (3, 0), fake_missing_bindings: true, ..Default::default() };
    msl::write_string(&module, &info, &options, &msl::PipelineOptions::default())
        .map_err(|e| format!("MSL: {e}"))?;
    let mut text = String::new();
    let immediates = hlsl::BindTarget { space: 0, register: 99, ..Default::default() };
    let options = hlsl::Options {
        immediates_target: Some(immediates),
        shader_model: hlsl::ShaderModel::V6_6,
        ..Default::default()
    };
    hlsl::Writer::new(&mut text, &options, &hlsl::PipelineOptions::default())
        .write(&module, &info, None)
        .map(drop)
        .map_err(|e| format!("HLSL: {e}"))
}

fn device(name: &str, target: Target, dtypes: &[DType]) -> Device {
    let limits = Limits { device: name.to_owned(), dtypes: dtypes.to_vec(), bindings: 16, ..target.limits };
    phynexus::device::register(Box::new(Gpu::new(Translator { target: Target { limits, ..target } })))
}

fn devices() -> Vec<Device> {
    let without = |lacking: &[DType]| -> Vec<DType> {
        DType::ALL.into_iter().filter(|dtype| !lacking.contains(dtype)).collect()
    };
    vec![
        device("all types", cases::narrow(), &DType::ALL),
        device("no f64", cases::big(), &without(&[DType::F64])),
        device("no 64 bits", cases::tiny(), &without(&[DType::F64, DType::I64, DType::U64])),
        device("many processors", cases::many(), &without(&[DType::F64])),
    ]
}

fn check(cases: impl IntoIterator<Item = Case>) {
    let devices = devices();
    let (mut done, mut lacking) = (0, 0);
    for case in cases {
        for &device in &devices {
            let run = || -> Result<()> {
                let leaves =
                    case.leaves.iter().map(|leaf| leaf.upload(device)).collect::<Result<Vec<_>>>()?;
                execute_ir(&case.ir, &leaves, device).map(drop)
            };
            match run() {
                Ok(()) => done += 1,
                Err(error) if LACKING.iter().any(|words| error.to_string().contains(words)) => lacking += 1,
                Err(error) => panic!("{device}: {case}\n{error}"),
            }
        }
    }
    assert!(done > lacking, "{done} cases translated, {lacking} refused");
}

#[test]
fn products() {
    check(cases::products());
    // All of them, because no device here rounds factors.
    check(cases::rounded());
}

#[test]
fn convolutions() {
    check(cases::convolutions());
}

#[test]
fn reductions_sorts_and_scans() {
    check(cases::reductions_sorts_and_scans());
}

#[test]
fn empty_operands() {
    check(cases::empty());
}

#[test]
fn random_graphs() {
    check((0..120).map(|seed| random_case(seed, 12)));
}
