//! Compiles CUDA C to machine code for one architecture.

use std::ffi::{CStr, CString};

use cudarc::nvrtc::{result, sys};
use phynexus::{
    Error,
    gpu::{DiskCache, NotCompiled, may_include},
};

use crate::{
    library,
    versions::{MINIMAL, Version},
};

/// Compiles kernels for one architecture.
pub(crate) struct Compiler {
    /// Options for kernels that the engine prints.
    printed: Options,
    /// Options for user-written sources.
    written: Options,
    cache: DiskCache,
}

struct Options {
    list: Vec<String>,
    /// The compiler and its options: what machine code depends on besides the source.
    version: String,
}

impl Compiler {
    /// Creates the compiler for an architecture in NVIDIA's naming, such as `sm_90`, and this version of NVRTC.
    pub(crate) fn new(architecture: &str, nvrtc: Version) -> Compiler {
        // Contraction would change the results that the operations define. Minimal: without textures and surfaces,
        // which saves 4 ms of a small kernel's 20; known since 12.4.
        let minimal: &[&str] =
            if nvrtc >= MINIMAL { &["--fmad=false", "--minimal"] } else { &["--fmad=false"] };
        let printed = Options::new(architecture, nvrtc, minimal);
        let written = Options::new(architecture, nvrtc, &[]);
        Compiler { printed, written, cache: DiskCache::new("cuda", "RNN_CUDA_CACHE_PATH") }
    }

    /// Compiles a printed kernel to machine code, or reads it from the cache.
    ///
    /// # Errors
    /// The compiler's messages, or a failure of the compiler itself.
    pub(crate) fn compile(&self, source: &str) -> Result<Vec<u8>, NotCompiled> {
        self.cached(source, &self.printed)
    }

    /// Compiles a user-written source to machine code with the compiler's default options.
    ///
    /// # Errors
    /// The compiler's messages, or a failure of the compiler itself.
    pub(crate) fn compile_source(&self, source: &str) -> Result<Vec<u8>, NotCompiled> {
        match may_include(source) {
            true => self.written.machine_code(source),
            false => self.cached(source, &self.written),
        }
    }

    /// Compiles a printed kernel to machine code without the cache.
    ///
    /// # Errors
    /// The compiler's messages.
    pub(crate) fn compile_now(&self, source: &str) -> Result<Vec<u8>, String> {
        self.printed.machine_code(source).map_err(|reason| reason.to_string())
    }

    fn cached(&self, source: &str, options: &Options) -> Result<Vec<u8>, NotCompiled> {
        self.cache.get(&format!("{}\n{source}", options.version), || options.machine_code(source))
    }
}

impl Options {
    fn new(architecture: &str, nvrtc: Version, others: &[&str]) -> Options {
        let mut list = vec![format!("--gpu-architecture={architecture}"), "--std=c++17".to_owned()];
        list.extend(others.iter().map(|&option| option.to_owned()));
        list.extend(library::headers().map(|folder| format!("--include-path={}", folder.display())));
        let version = format!("NVRTC {nvrtc} {}", list.join(" "));
        Options { list, version }
    }

    fn machine_code(&self, source: &str) -> Result<Vec<u8>, NotCompiled> {
        let source = CString::new(source).map_err(|_| "the source contains a zero byte".to_owned())?;
        let program =
            Program(result::create_program(&source, None).map_err(|e| failed("creating a program", e))?);
        // SAFETY: the program was just created.
        let compiled = unsafe { result::compile_program(program.0, &self.list) };
        if let Err(error) = compiled {
            // SAFETY: the program is valid.
            let log = unsafe { result::get_program_log(program.0) }.unwrap_or_default();
            let log: Vec<u8> = log.into_iter().map(|c| c as u8).collect();
            let log = CStr::from_bytes_until_nul(&log)
                .map(|l| l.to_string_lossy().into_owned())
                .unwrap_or_default();
            return Err(match error.0 {
                // An error in the source, or a feature that the architecture lacks.
                sys::nvrtcResult::NVRTC_ERROR_COMPILATION | sys::nvrtcResult::NVRTC_ERROR_INVALID_OPTION => {
                    if log.trim().is_empty() { format!("{error:?}") } else { log }.into()
                }
                _ => failed("compiling", error),
            });
        }
        let mut bytes = 0;
        // SAFETY: the program is compiled, the pointer valid for the call.
        unsafe { sys::nvrtcGetCUBINSize(program.0, &mut bytes) }
            .result()
            .map_err(|e| failed("compiling", e))?;
        let mut code = vec![0u8; bytes];
        // SAFETY: the buffer has the size reported by NVRTC.
        unsafe { sys::nvrtcGetCUBIN(program.0, code.as_mut_ptr().cast()) }
            .result()
            .map_err(|e| failed("compiling", e))?;
        Ok(code)
    }
}

/// A failure of NVRTC itself: the next attempt may succeed.
fn failed(doing: &str, error: result::NvrtcError) -> NotCompiled {
    NotCompiled::Failed(Error::Device { device: "NVRTC".to_owned(), message: format!("{doing}: {error:?}") })
}

/// An NVRTC program.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: this is the only handle of the program.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

/// `cargo xtask test compilers` runs the tests that need NVRTC, with its own NVRTC.
#[cfg(test)]
pub(crate) mod tests {
    use std::{env, fs, process};

    use phynexus::{
        DType, Scalar,
        kernel::{
            loops::Kernel,
            lower::lower,
            print::print,
            step::{Library, Operand, Step},
        },
        op::{
            Composite, Conv, ConvKind, Geometry, Op,
            composite::{
                Attention, AttentionGradient, Cell, InPrecision, MatmulPrecision, Recurrent,
                RecurrentGradient, RecurrentSteps,
            },
            ir::IrNode,
        },
        shape::{Dims, Layout},
    };

    use super::*;
    use crate::{language::CUDA, versions::Nvrtc};

    /// The compiler for Hopper. Needs no GPU.
    pub(crate) fn compiler() -> Compiler {
        assert!(library::has_compiler(), "NVRTC is not installed");
        Compiler::new("sm_90", Nvrtc::ask().unwrap().version)
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn garbage_does_not_compile() {
        let compiler = compiler();
        let error = compiler.compile_source("garbage").unwrap_err().to_string();
        assert!(error.contains("default_program(1): error"), "{error}");
        let error = compiler
            .compile_source("\nextern \"C\" __global__ void f(float* y) {\n    y[0] = oops;\n}")
            .unwrap_err()
            .to_string();
        assert!(error.contains("(3)") && error.contains("oops"), "{error}");
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn products_of_panels_compile_without_spilling() {
        let turned = [(false, false), (false, true), (true, false), (true, true)];
        for ((left, right), columns) in turned.into_iter().flat_map(|turned| [(turned, 4096), (turned, 64)]) {
            product_of_panels(DType::BF16, [4096, 768, columns], left, right);
        }
        // Several groups for each processor, and a result with few rows.
        let kernel = product_of_panels(DType::BF16, [16384, 128, 4096], false, false);
        assert_eq!(kernel.residents, 2);
        product_of_panels(DType::F16, [64, 4096, 49152], true, false);
        // TF32.
        product_of_panels(DType::F32, [4096, 768, 4096], false, true);
        product_of_factors(MatmulPrecision::Split, DType::F32, [4096, 1024, 4096], false, false);
        for dtype in [DType::I8, DType::U8, DType::F8E4M3, DType::F8E5M2] {
            product_of_panels(dtype, [4096, 768, 4096], false, true);
        }
    }

    /// Compiles the product of matrices with these rows, terms and columns, which may be transposed in memory. Factors
    /// of `float32` are rounded.
    fn product_of_panels(dtype: DType, sizes: [usize; 3], left: bool, right: bool) -> Kernel {
        product_of_factors(MatmulPrecision::High, dtype, sizes, left, right)
    }

    /// The same, with the precision of `float32`. Returns the last launch.
    fn product_of_factors(
        precision: MatmulPrecision,
        dtype: DType,
        [m, k, n]: [usize; 3],
        left: bool,
        right: bool,
    ) -> Kernel {
        let architecture = crate::Architecture::new("sm_90a").unwrap();
        let operand = |shape: [usize; 2], turned: bool| {
            let mut layout = Layout::contiguous(&shape);
            if turned {
                layout.strides = [1, shape[0] as isize].into_iter().collect();
            }
            Operand { dtype, layout }
        };
        let shape: Dims = [m, n].as_slice().into();
        let op = match dtype {
            DType::F32 => Op::Composite(Composite::InPrecision(InPrecision {
                op: Box::new(Op::Dot),
                shape: shape.clone(),
                precision,
            })),
            _ => Op::Dot,
        };
        let result = match dtype {
            _ if dtype.size() > 1 => dtype,
            _ if dtype.is_float() => DType::BF16,
            _ => DType::I32,
        };
        let node = IrNode { op, dtype: result, shape, inputs: Default::default() };
        let operands = vec![operand([m, k], left), operand([k, n], right)];
        let step = Step::Library(Library { node, operands, epilogue: None });
        let mut lowered = lower(&step, architecture.target()).unwrap();
        let kernel = lowered.launches.pop().unwrap().kernel;
        assert!(kernel.shared[0].panels && kernel.tensors.len() == 2);
        let log = log_of(&print(&kernel, &CUDA).unwrap());
        assert!(log.contains(" 0 bytes spill stores") && !log.contains("serialized"), "{log}");
        kernel
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn convolutions_of_panels_compile_without_spilling() {
        let architecture = crate::Architecture::new("sm_90a").unwrap();
        let operand = |shape: [usize; 4]| {
            let [_, channels, height, width] = shape.map(|extent| extent as isize);
            let mut layout = Layout::contiguous(&shape);
            layout.strides = [height * width * channels, 1, width * channels, channels].into_iter().collect();
            Operand { dtype: DType::BF16, layout }
        };
        let (x, w, y) = ([64, 256, 14, 14], [256, 256, 3, 3], [64, 256, 14, 14]);
        let both = |extent: usize| [extent; 2].as_slice().into();
        let padding = [(1, 1); 2].into_iter().collect();
        let geometry = Geometry { kernel: both(3), stride: both(1), dilation: both(1), padding, groups: 1 };
        for (kind, operands, result) in [
            (ConvKind::Forward, [x, w], y),
            (ConvKind::InputGradient, [y, w], x),
            (ConvKind::FilterGradient, [x, y], w),
        ] {
            let op = Op::Conv(Conv(kind, geometry.clone()));
            let (dtype, shape) = (DType::BF16, result.as_slice().into());
            let node = IrNode { op, dtype, shape, inputs: Default::default() };
            let step =
                Step::Library(Library { node, operands: operands.map(operand).into(), epilogue: None });
            let lowered = lower(&step, architecture.target()).unwrap();
            let kernel = &lowered.launches[0].kernel;
            assert!(kernel.has_panels());
            let source = print(kernel, &CUDA).unwrap();
            let log = log_of(&source);
            assert!(log.contains(" 0 bytes spill stores") && !log.contains("serialized"), "{log}");
        }
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn attention_compiles_without_spilling() {
        for (name, features, dropout) in [
            ("sm_90a", 64, 0),
            ("sm_90a", 128, 0),
            ("sm_90a", 64, 6_554),
            ("sm_90a", 256, 0),
            ("sm_80", 64, 0),
            ("sm_80", 128, 0),
            ("sm_80", 256, 0),
            ("sm_89", 128, 6_554),
            ("sm_89", 256, 0),
        ] {
            let architecture = crate::Architecture::new(name).unwrap();
            let attention = Attention { causal: true, scale: Scalar::Float(0.125), mask: false, dropout };
            let matrix =
                |dtype: DType| Operand { dtype, layout: Layout::contiguous(&[16, 12, 1024, features]) };
            let rows = || Operand { dtype: DType::F32, layout: Layout::contiguous(&[16, 12, 1024]) };
            let mut inputs = vec![matrix(DType::BF16), matrix(DType::BF16), matrix(DType::BF16)];
            let state = Operand { dtype: DType::U32, layout: Layout::contiguous(&[4]) };
            inputs.extend((dropout > 0).then_some(state));
            let gradient = inputs.iter().cloned().chain([rows(), matrix(DType::BF16), rows()]).collect();
            let rows = 16 * 12 * 1024;
            let calls: [(Composite, Vec<Operand>, DType, usize); 2] = [
                (attention.into(), inputs, DType::F32, rows * (features + 1)),
                (AttentionGradient(attention).into(), gradient, DType::BF16, 3 * rows * features),
            ];
            for (composite, operands, dtype, size) in calls {
                let shape = [size].as_slice().into();
                let node = IrNode { op: Op::Composite(composite), dtype, shape, inputs: Default::default() };
                let step = Step::Library(Library { node, operands, epilogue: None });
                for launch in lower(&step, architecture.target()).unwrap().launches {
                    assert!(!launch.kernel.fragments.is_empty());
                    let source = print(&launch.kernel, &CUDA).unwrap();
                    let log = log_for(name, &source);
                    let used = log.lines().find(|line| line.contains("Used")).unwrap_or_default();
                    println!("{name} {features} {} {:?} {used}", launch.kernel.name, launch.kernel.block());
                    assert!(log.contains(" 0 bytes spill stores") && !log.contains("serialized"), "{log}");
                }
            }
        }
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn recurrent_layers_compile_without_spilling() {
        let architecture = crate::Architecture::new("sm_90a").unwrap();
        let (dtype, steps) = (DType::BF16, 100);
        let operand = |shape: &[usize]| Operand { dtype, layout: Layout::contiguous(shape) };
        // Few sequences for each group, and as many as it can have.
        for (cell, batch, groups) in [(Cell::Lstm, 64, 132), (Cell::Lstm, 64, 16), (Cell::Gru, 64, 132)] {
            let hidden = 512;
            let mut target = architecture.target().clone();
            target.limits.meeting_groups = groups;
            let layer = Recurrent { cell, reverse: false, bias: true, save: true };
            let rows = cell.gates() * hidden;
            let state = || operand(&[batch, hidden]);
            let sequence = |width: usize| operand(&[steps, batch, width]);
            let cells = usize::from(cell.has_cell_state());
            let from_input = Operand { dtype: DType::F32, ..sequence(rows) };
            let mut forward = vec![state(); 1 + cells];
            forward.extend([from_input, operand(&[rows, hidden]), operand(&[rows])]);
            let mut back = vec![operand(&[rows, hidden])];
            back.extend(vec![state(); 1 + cells]);
            back.extend([sequence(hidden), sequence(4 * hidden)]);
            back.extend(vec![sequence(hidden); 1 + cells]);
            back.extend(vec![state(); cells]);
            let states = steps * batch * hidden;
            let last = cells * batch * hidden;
            let sums = if cell == Cell::Gru { 2 * 3 } else { 4 } * states;
            for (composite, operands, size) in [
                (Composite::from(RecurrentSteps(layer)), forward, (5 + cells) * states + last),
                (RecurrentGradient(layer).into(), back, sums + batch * hidden + last),
            ] {
                let shape = [size].as_slice().into();
                let node = IrNode { op: Op::Composite(composite), dtype, shape, inputs: Default::default() };
                let step = Step::Library(Library { node, operands, epilogue: None });
                let launches = lower(&step, &target).unwrap().launches;
                let kernel =
                    &launches.iter().find(|launch| launch.kernel.has_grid_barriers()).unwrap().kernel;
                let log = log_of(&print(kernel, &CUDA).unwrap());
                assert!(log.contains(" 0 bytes spill stores") && !log.contains("serialized"), "{log}");
            }
        }
    }

    /// What NVRTC and its assembler say about a kernel for Hopper.
    fn log_of(source: &str) -> String {
        log_for("sm_90a", source)
    }

    /// What they say about one for an architecture.
    fn log_for(architecture: &str, source: &str) -> String {
        let mut options = Options::new(architecture, Nvrtc::ask().unwrap().version, &["--fmad=false"]);
        options.list.push("--ptxas-options=-v".to_owned());
        let program = Program(result::create_program(&CString::new(source).unwrap(), None).unwrap());
        // SAFETY: the program was just created.
        let compiled = unsafe { result::compile_program(program.0, &options.list) };
        // SAFETY: the program is valid.
        let log = unsafe { result::get_program_log(program.0) }.unwrap();
        let log = String::from_utf8(log.into_iter().map(|c| c as u8).collect()).unwrap();
        compiled.expect(&log);
        log
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn an_included_file_that_has_changed_is_read_again() {
        let compiler = compiler();
        let header = env::temp_dir().join(format!("phynexus-cuda-{}.h", process::id()));
        let source = format!(
            "#include \"{}\"\nextern \"C\" __global__ void f(float* y) {{ y[0] = VALUE; }}",
            header.display()
        );
        let compiled = [12345.678f32, 98765.43].map(|value| {
            fs::write(&header, format!("#define VALUE {value:?}f\n")).unwrap();
            (value, compiler.compile_source(&source))
        });
        fs::remove_file(&header).unwrap();
        for (value, code) in compiled {
            // The instruction that loads the constant contains its bits.
            assert!(code.unwrap().windows(4).any(|bytes| bytes == value.to_le_bytes()), "{value}");
        }
    }
}
