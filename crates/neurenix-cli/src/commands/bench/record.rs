//! Recorded steps and printed kernels of every workload, of the suite's `float32` cases and of random graphs. A change
//! that only moves code leaves them unchanged; for any other change, the difference shows its effect.
//!
//! `record/hashes.txt` holds a hash of each computation's text, `record/*.txt.gz` the texts. Rewrite both with
//! `UPDATE_GOLDEN=1 cargo test -p neurenix-cli --lib record`.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use neurenix::{
    phynexus::{
        DType, Device, Result,
        device::{
            Backend, Binding, Buffer, DeviceInfo, DeviceNature, Executable, MemoryStatistics, Support,
            register,
        },
        gpu::{Recorded, recorder},
        kernel::step::Step,
        kernel::{
            check::Limits,
            loops::Kernel,
            lower::Target,
            print::{WgslArithmetic, print, print_wgsl},
        },
        op::{TensorType, ir::IrNode},
        shape::Layout,
    },
    verify::{Options, unchecked},
};
use phynexus_cuda::CUDA;
use phynexus_hip::HIP;
use phynexus_opencl::OPENCL;

use super::{
    large, replayed,
    workloads::{self, Workload},
};

/// A device that plans like another one, notes every step and runs none.
struct Noting {
    name: String,
    planner: &'static dyn Backend,
    /// A device with a target is not checked for unwritten memory.
    target: Target,
    notes: Arc<Mutex<String>>,
}

struct Nothing;

impl Executable for Nothing {
    fn run(&self, _: &[Binding]) -> Result<()> {
        Ok(())
    }
}

impl Backend for Noting {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: self.name.clone(), nature: DeviceNature::Emulator, ..self.planner.info() }
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn target(&self) -> Option<&Target> {
        Some(&self.target)
    }
    fn support(&self, node: &IrNode, operands: &[TensorType]) -> Support {
        self.planner.support(node, operands)
    }
    fn reads_layout(&self, node: &IrNode, operand: usize, layout: &Layout) -> bool {
        self.planner.reads_layout(node, operand, layout)
    }
    fn compile(&self, step: &Step) -> Result<Arc<dyn Executable>> {
        let compiled = self.planner.compile(step);
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push_str(&describe(step));
        match compiled {
            Ok(_) => Ok(Arc::new(Nothing)),
            Err(error) => {
                notes.push_str(&format!("refused: {error}\n"));
                Err(error)
            }
        }
    }
    fn allocate(&self, bytes: usize) -> Result<Buffer> {
        let buffer = self.planner.allocate(bytes)?;
        if self.planner.target().is_none() {
            // A GPU's recorder zeroes memory itself. Values that a computation reads back must not depend on the
            // memory's previous contents.
            self.planner.write(&buffer, 0, &vec![0; bytes])?;
        }
        Ok(buffer)
    }
    fn write(&self, target: &Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        self.planner.write(target, offset, bytes)
    }
    fn read(&self, source: &Buffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.planner.read(source, offset, bytes)
    }
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
    fn memory(&self) -> MemoryStatistics {
        self.planner.memory()
    }
    fn reset_peak_memory(&self) {}
    fn set_memory_limit(&self, _: Option<usize>) {}
    fn empty_cache(&self) {}
    fn epilogue(&self, node: &IrNode) -> bool {
        self.planner.epilogue(node)
    }
    fn binding_limit(&self) -> usize {
        self.planner.binding_limit()
    }
    fn batch_limit(&self) -> usize {
        self.planner.batch_limit()
    }
}

/// Describes a step by everything that the device receives.
fn describe(step: &Step) -> String {
    let mut text = format!("step {}\n", step.name());
    match step {
        Step::Fused(kernel) => text.push_str(&kernel.to_string()),
        Step::Batch(kernels) => kernels.iter().for_each(|kernel| text.push_str(&kernel.to_string())),
        Step::Library(library) => {
            let (node, operands) = (&library.node, &library.operands);
            writeln!(text, "{:?} -> {} {:?}", node.op, node.dtype, node.shape).unwrap();
            for operand in operands {
                writeln!(text, "  {} {:?} {:?}", operand.dtype, operand.layout.shape, operand.layout.strides)
                    .unwrap();
            }
            library.epilogue.iter().for_each(|epilogue| text.push_str(&epilogue.to_string()));
        }
    }
    text
}

/// Prints a kernel; may refuse it.
type Printer = fn(&Kernel) -> Result<String>;

fn wgsl(kernel: &Kernel) -> Result<String> {
    print_wgsl(kernel, WgslArithmetic { divisions: true, subnormals: true })
}

/// A device that plans computations, and the languages in which its kernels are printed.
struct TargetDevice {
    name: &'static str,
    /// The features that kernels may use. No effect on the CPU, whose steps are not lowered.
    target: Target,
    printers: Vec<(&'static str, Printer)>,
}

fn target_devices() -> [TargetDevice; 4] {
    let cuda = Limits {
        device: "cuda".to_owned(),
        bindings: 500,
        shared_bytes: 227 << 10,
        block: [1024, 1024, 64],
        block_size: 1024,
        grid: [0x7fff_ffff, 0xffff, 0xffff],
        subgroup: Some(32),
        dtypes: DType::ALL.to_vec(),
        matrices: phynexus_cuda::matrix_units(9, true),
        quads: true,
        async_copies: true,
        meeting_groups: 132,
    };
    let hip = Limits {
        device: "hip".to_owned(),
        shared_bytes: 64 << 10,
        grid: [(1 << 22) - 1, 0xffff, 0xffff],
        subgroup: Some(64),
        matrices: phynexus_hip::matrix_units("gfx90a"),
        quads: false,
        async_copies: false,
        meeting_groups: 0,
        ..cuda.clone()
    };
    let plain = Limits {
        device: "plain".to_owned(),
        bindings: 32,
        shared_bytes: 32 << 10,
        block: [256, 256, 64],
        block_size: 256,
        grid: [0xffff; 3],
        subgroup: None,
        dtypes: DType::ALL.into_iter().filter(|dtype| *dtype != DType::F64).collect(),
        matrices: Vec::new(),
        quads: false,
        async_copies: false,
        meeting_groups: 0,
    };
    let target = |limits, processors| Target { limits, vector_bytes: 16, processors, sums: 64 };
    [
        TargetDevice { name: "cpu", target: target(plain.clone(), 16), printers: Vec::new() },
        TargetDevice {
            name: "cuda",
            target: target(cuda, 132),
            printers: vec![("CUDA", |k| print(k, &CUDA))],
        },
        TargetDevice { name: "hip", target: target(hip, 104), printers: vec![("HIP", |k| print(k, &HIP))] },
        TargetDevice {
            name: "plain",
            target: target(plain, 16),
            printers: vec![("OpenCL", |k| print(k, &OPENCL)), ("WGSL", wgsl)],
        },
    ]
}

/// The record of one device while it is made.
struct Recording {
    name: &'static str,
    device: Device,
    printers: Vec<(&'static str, Printer)>,
    notes: Arc<Mutex<String>>,
    kernels: Recorded,
    /// The text of every computation, by name.
    texts: BTreeMap<String, String>,
}

impl Recording {
    fn new(target_device: TargetDevice) -> Recording {
        let TargetDevice { name, target, printers } = target_device;
        let notes = Arc::<Mutex<String>>::default();
        let (gpu, kernels) = recorder(target.clone());
        let planner = if name == "cpu" { Device::find("cpu").unwrap() } else { gpu };
        let device = register(Box::new(Noting {
            name: format!("noting {name}"),
            planner: planner.backend(),
            target,
            notes: notes.clone(),
        }));
        Recording { name, device, printers, notes, kernels, texts: BTreeMap::new() }
    }

    /// Adds what was noted since the last call.
    fn done(&mut self, name: &str) {
        let mut text = std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner));
        let kernels = self.kernels.take();
        for (language, printer) in &self.printers {
            let source = |kernel: &Kernel| match printer(kernel) {
                Ok(source) => format!("{language}:\n{source}"),
                Err(error) => format!("{language} refused: {error}\n"),
            };
            // Kernels with the same name have no fixed order.
            let mut sources: Vec<String> = kernels.iter().map(source).collect();
            sources.sort();
            text.extend(sources);
        }
        self.texts.entry(name.to_owned()).or_default().push_str(&text);
    }

    fn run(&mut self, workloads: impl IntoIterator<Item = Workload>) {
        for workload in workloads {
            let mut step = (workload.prepare)(self.device).unwrap();
            // The first call compiles the plans that the second one finds.
            step().unwrap();
            step().unwrap();
            self.done(&workload.name);
        }
    }

    /// The cases of the conformance suite.
    fn run_suite(&mut self) {
        let device = self.device;
        let options = Options { random_graphs: 60, dtype: Some("float32".to_owned()), ..Options::default() };
        unchecked(device, &options, &mut |name| self.done(name));
        // Functions that floats lack.
        for function in ["and", "not", "shift", "xor"] {
            let (dtype, filter) = (Some("int32".to_owned()), Some(function.to_owned()));
            let options = Options { random_graphs: 0, dtype, filter, ..Options::default() };
            unchecked(device, &options, &mut |name| self.done(name));
        }
    }
}

/// Runs `work` for all devices at the same time.
fn at_once(recordings: &mut [Recording], work: impl Fn(&mut Recording) + Sync) {
    let work = &work;
    thread::scope(|scope| {
        recordings.iter_mut().for_each(|recording| drop(scope.spawn(move || work(recording))));
    });
}

/// FNV-1a: independent of the Rust release.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

const MARK: &str = "\n=== ";

fn joined(texts: &BTreeMap<String, String>) -> String {
    texts.iter().map(|(name, text)| format!("{MARK}{name}\n{text}")).collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("record")
}

/// The recorded text of one computation.
fn recorded_text(target_device: &str, computation: &str) -> String {
    let mut text = String::new();
    let file = fs::File::open(folder().join(target_device).with_extension("txt.gz")).unwrap();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let found =
        text.split(MARK).find_map(|part| part.split_once('\n').filter(|(name, _)| *name == computation));
    found.map(|(_, text)| text.to_owned()).unwrap_or_default()
}

/// The first differing line, with the lines before it.
fn first_difference(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let at = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let shown = |lines: &[&str]| lines[at.saturating_sub(3)..lines.len().min(at + 3)].join("\n");
    format!("line {}\nrecorded:\n{}\nnow:\n{}", at + 1, shown(&old), shown(&new))
}

#[test]
fn plans_and_kernels_are_those_on_record() {
    neurenix::register_all();
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut now = target_devices().map(Recording::new);
    // These change the precision of products, which is the process's.
    let changes_precision = |workload: &Workload| workload.name.contains("tf32");
    let on_gpus = |recording: &Recording| if recording.name == "cpu" { Vec::new() } else { large::all() };
    at_once(&mut now, |recording| {
        let large = on_gpus(recording).into_iter().filter(|workload| !changes_precision(workload));
        recording.run(workloads::all().into_iter().chain(replayed::all()).chain(large));
    });
    for recording in &mut now {
        recording.run(on_gpus(recording).into_iter().filter(changes_precision));
    }
    at_once(&mut now, Recording::run_suite);
    let mut hashes = String::new();
    for Recording { name, texts, .. } in &now {
        for (computation, text) in texts {
            writeln!(hashes, "{name}: {computation}: {:016x}", hash(text)).unwrap();
        }
    }
    let file = folder().join("hashes.txt");
    if update {
        fs::create_dir_all(folder()).unwrap();
        fs::write(&file, &hashes).unwrap();
        for Recording { name, texts, .. } in &now {
            let target = fs::File::create(folder().join(name).with_extension("txt.gz")).unwrap();
            let mut encoder = GzEncoder::new(target, Compression::best());
            encoder.write_all(joined(texts).as_bytes()).unwrap();
            encoder.finish().unwrap();
        }
        return;
    }
    let known = fs::read_to_string(&file).unwrap();
    if known == hashes {
        return;
    }
    let known: BTreeMap<&str, &str> = known.lines().filter_map(|line| line.rsplit_once(": ")).collect();
    let mut changed = Vec::new();
    let mut first = None;
    for Recording { name: target_device, texts, .. } in &now {
        for (computation, text) in texts {
            let key = format!("{target_device}: {computation}");
            if known.get(key.as_str()) != Some(&format!("{:016x}", hash(text)).as_str()) {
                first.get_or_insert_with(|| {
                    first_difference(&recorded_text(target_device, computation), text)
                });
                changed.push(key);
            }
        }
    }
    panic!(
        "{} computations differ from the record: {}\nthe first: {}\nif intended, run with UPDATE_GOLDEN=1",
        changed.len(),
        changed.iter().take(20).map(String::as_str).collect::<Vec<_>>().join(", "),
        first.unwrap_or_else(|| "computations are missing".to_owned())
    );
}
