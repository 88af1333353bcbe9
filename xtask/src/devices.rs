//! Runs the conformance suite on software devices and cross-compiles its kernels for GPUs that this machine lacks.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use crate::{cargo, install, root, succeed};

/// A software device and the Debian packages that provide it.
struct Software {
    name: &'static str,
    /// If one of these files exists, the device is installed.
    files: &'static [&'static str],
    packages: &'static [&'static str],
    /// A run without `--full` takes one case in this many: drivers take a fifth of a second (PoCL) or a fiftieth
    /// (lavapipe) to compile each kernel.
    parts: usize,
    /// Maximum number of cases that fall back to the CPU because the device refuses a step.
    elsewhere: usize,
}

const DEVICES: [Software; 2] = [
    Software {
        name: "vulkan:0",
        files: &["/usr/share/vulkan/icd.d/lvp_icd.x86_64.json", "/usr/share/vulkan/icd.d/lvp_icd.json"],
        packages: &["mesa-vulkan-drivers", "libvulkan1"],
        parts: 8,
        // Elementary functions of `float64`: 686 cases.
        elsewhere: 686,
    },
    Software {
        name: "opencl:0",
        files: &["/etc/OpenCL/vendors/pocl.icd"],
        packages: &["pocl-opencl-icd", "ocl-icd-libopencl1"],
        parts: 96,
        elsewhere: 0,
    },
];

/// Environments with NVIDIA's compiler, and its package: the newest version, and the last one that supports Volta.
const NVRTC: [(&str, &str); 2] = [("nvrtc-13", "nvidia-cuda-nvrtc"), ("nvrtc-12", "nvidia-cuda-nvrtc-cu12")];

/// Runs the conformance suite on every software device, and trains the digits, whose losses must match the CPU's.
pub(crate) fn devices(full: bool) -> Result<(), String> {
    let program = command()?;
    for device in &DEVICES {
        println!("--- {}", device.name);
        suite(&program, device, full)?;
        training(&program, device.name)?;
        // Software devices take an eighth of a second per step.
        steps(&program, device.name, if full { 100 } else { 20 })?;
    }
    // The device crates' own tests that need PoCL, NVRTC or hipRTC. They are already built. All are unit tests, in modules
    // called `tests`; ignored tests of other kinds have stages of their own.
    let compilers = if full { &NVRTC[..] } else { &NVRTC[..1] };
    for (name, package) in compilers {
        let packages = install::environment(name, &[package])?;
        println!("--- tests that need a device or a compiler, with {name}");
        let mut own = cargo();
        own.args(["test", "--workspace", "--tests", "--quiet", "--", "--ignored", "tests::"]);
        succeed(own.env("VIRTUAL_ENV", packages))?;
    }
    Ok(())
}

/// AMD's compiler: possible locations, and the Debian packages that provide it.
const HIPRTC: [&str; 2] = ["/usr/lib/x86_64-linux-gnu/libamdhip64.so.5", "/opt/rocm/lib/libamdhip64.so.5"];
const HIPRTC_PACKAGES: [&str; 3] = ["libamdhip64-5", "libhiprtc-builtins5", "rocm-device-libs"];

/// MPI: each implementation's launcher, and the Debian package that provides it.
const MPI: [([&str; 1], [&str; 1]); 2] =
    [(["/usr/bin/mpirun.openmpi"], ["openmpi-bin"]), (["/usr/bin/mpiexec.hydra"], ["mpich"])];

/// Installs missing software devices, AMD's compiler and MPI. Tests that use every device then find them.
pub(crate) fn install() -> Result<(), String> {
    let wanted = DEVICES.iter().map(|device| (device.files, device.packages));
    let others = MPI.iter().map(|(files, packages)| (&files[..], &packages[..]));
    install::unless_found(wanted.chain([(&HIPRTC[..], &HIPRTC_PACKAGES[..])]).chain(others))
}

/// Trains for `count` steps and checks that memory stays constant.
fn steps(program: &Path, device: &str, count: usize) -> Result<(), String> {
    succeed(Command::new(program).args(["verify", "--steps", &count.to_string(), "--device", device]))
}

/// The path of the `neurenix` command as built for the tests. A build without tests enables fewer features, so it would
/// recompile the dependencies.
pub(crate) fn command() -> Result<PathBuf, String> {
    succeed(cargo().args(["test", "--workspace", "--no-run", "--quiet"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(target.join("debug").join(format!("neurenix{}", std::env::consts::EXE_SUFFIX)))
}

/// Runs the suite, or a share of it.
fn suite(program: &Path, device: &Software, full: bool) -> Result<(), String> {
    let share = if full { 1 } else { device.parts };
    let turn = turn(share)?;
    if share > 1 {
        println!("one case in {share} of the suite: part {turn}");
    }
    let mut verify = Command::new(program);
    verify.args(["verify", "--device", device.name, "--part"]).arg(format!("{turn}/{share}"));
    verify.stdout(Stdio::piped());
    let said = finished(vec![(format!("{verify:?}"), verify.spawn())])?;
    print!("{said}");
    // "1614 cases of 710 pairs of operation and dtype: 1600 passed, 14 on the CPU, 0 failed, 0 not done"
    let words: Vec<&str> = said.split_whitespace().collect();
    let count = words.windows(4).find(|words| words[1..] == ["on", "the", "CPU,"]);
    let count = count.and_then(|words| words[0].parse::<usize>().ok());
    let elsewhere = count
        .ok_or_else(|| format!("the output of {} does not report the CPU's cases", program.display()))?;
    let most = device.elsewhere;
    match elsewhere <= most {
        true => Ok(()),
        false => {
            Err(format!("{elsewhere} cases fell back to the CPU on {}; expected at most {most}", device.name))
        }
    }
}

/// Chooses a part by hashing the sources, counted from 1: it stays the same until they change.
pub(crate) fn turn(parts: usize) -> Result<usize, String> {
    let mut folders = vec![root().join("crates")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files.sort();
    // FNV-1a: independent of the Rust release.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for file in files {
        let bytes = fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        hash = bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    }
    Ok((hash % parts as u64) as usize + 1)
}

/// Waits for all processes. Returns the first failure, or their output if it was captured.
fn finished(all: Vec<(String, std::io::Result<Child>)>) -> Result<String, String> {
    let ends: Vec<Result<String, String>> = all
        .into_iter()
        .map(|(shown, child)| {
            let output = child.and_then(Child::wait_with_output);
            let output = output.map_err(|error| format!("{shown} did not run: {error}"))?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let end = || format!("{said}\n{shown} ended with {}", output.status);
            if output.status.success() { Ok(said) } else { Err(end()) }
        })
        .collect();
    ends.into_iter().collect()
}

/// Trains the digits for three epochs: the losses must match the CPU's.
fn training(program: &Path, device: &str) -> Result<(), String> {
    /// Allows for `float32` sums in another order, over 63 steps that each depend on the previous one.
    const TOLERANCE: f64 = 1e-3;
    let [cpu, other] = ["cpu", device].map(|device| losses(program, device));
    let (cpu, other) = (cpu?, other?);
    println!("losses on the CPU {cpu:?}, on {device} {other:?}");
    let alike = |(a, b): (&f64, &f64)| (a - b).abs() <= TOLERANCE * a.abs();
    match cpu.len() == other.len() && !cpu.is_empty() && cpu.iter().zip(&other).all(alike) {
        true => Ok(()),
        false => Err(format!("the losses on {device} differ from those on the CPU")),
    }
}

/// The training and validation losses of every epoch.
fn losses(program: &Path, device: &str) -> Result<Vec<f64>, String> {
    let folder = root().join("target/devices").join(device.replace(':', "-"));
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let mut train = Command::new(program);
    train.args(["train", "digits", "--epochs", "3", "--device", device, "--out"]).arg(&folder);
    succeed(train.stdout(Stdio::null()).stderr(Stdio::null()))?;
    let file = folder.join("metrics.csv");
    let table = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut lines = table.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let columns = ["train_loss", "validation_loss"].map(|name| names.iter().position(|n| *n == name));
    let number = |cells: &[&str], column: Option<usize>| cells.get(column?)?.parse().ok();
    let mut found = Vec::new();
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        for column in columns {
            let loss = number(&cells, column);
            found.push(loss.ok_or_else(|| format!("{}: no losses in {line:?}", file.display()))?);
        }
    }
    Ok(found)
}

/// Checks that only long runs can make: memory over many training steps, and random programs whose values must not
/// depend on fusion.
pub(crate) fn soak() -> Result<(), String> {
    let program = command()?;
    steps(&program, "cpu", 1000)?;
    for (device, programs) in [("cpu", "100000"), ("vulkan:0", "5000"), ("opencl:0", "500")] {
        let mut verify = Command::new(&program);
        succeed(verify.args(["verify", "--consistency", programs, "--device", device]))?;
    }
    Ok(())
}

/// Compiles the suite's kernels for GPUs that this machine lacks. One architecture gets all kernels; the others get one
/// kernel per template and element types, because a kernel's shape only changes numbers in it, not the architecture
/// features it needs.
pub(crate) fn compilers() -> Result<(), String> {
    let program = command()?;
    let [newest, older] = NVRTC.map(|(name, package)| install::environment(name, &[package]));
    let (newest, older) = (newest?, older?);
    // The compiler is single-threaded: run as many processes as there are cores.
    let processes = thread::available_parallelism().map_or(1, usize::from);
    let cuda = |packages: &Path, arguments: &[&str]| {
        let mut compile = Command::new(&program);
        compile.args(["verify", "--compile"]).args(arguments).env("VIRTUAL_ENV", packages);
        (format!("{compile:?}"), compile.spawn())
    };
    let part = |process: usize| cuda(&newest, &["sm_80", "--part", &format!("{process}/{processes}")]);
    finished((1..=processes).map(part).collect())?;
    finished(vec![cuda(&newest, &["sm_75", "--kinds"]), cuda(&newest, &["sm_90a", "--kinds"])])?;
    finished(vec![cuda(&older, &["sm_70", "--kinds"])])?;

    // hipRTC is single-threaded and crashes a process that has opened PoCL, because both load LLVM.
    let without = root().join("target/devices/no-platforms");
    fs::create_dir_all(&without).map_err(|e| format!("{}: {e}", without.display()))?;
    let all = ["gfx90a", "gfx1030"].map(|architecture| {
        let mut compile = Command::new(&program);
        compile.args(["verify", "--kinds", "--compile", architecture]);
        compile.env("OCL_ICD_VENDORS", &without);
        (format!("{compile:?}"), compile.spawn())
    });
    finished(all.into()).map(drop)
}
