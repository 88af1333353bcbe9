//! Devices that every machine can have, and compilers for those that it has not: the conformance suite on them.

use std::{
    fs,
    hash::{DefaultHasher, Hasher},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use crate::{cargo, install, root, succeed};

/// A device made of the processor, and what Debian has it in.
struct Software {
    name: &'static str,
    /// One of these files is there if it is installed.
    files: &'static [&'static str],
    packages: &'static [&'static str],
    /// A run that is not a full one takes one case in this many: drivers compile each kernel for a quarter of a second
    /// (PoCL) or a fiftieth (lavapipe).
    parts: usize,
    /// Cases of the suite that run on the CPU because the device refuses a step of them, at most.
    elsewhere: usize,
}

const DEVICES: [Software; 2] = [
    Software {
        name: "vulkan:0",
        files: &["/usr/share/vulkan/icd.d/lvp_icd.x86_64.json", "/usr/share/vulkan/icd.d/lvp_icd.json"],
        packages: &["mesa-vulkan-drivers", "libvulkan1"],
        parts: 4,
        // Elementary functions of `float64`: 551 cases of operations and graphs, and some programs.
        elsewhere: 600,
    },
    Software {
        name: "opencl:0",
        files: &["/etc/OpenCL/vendors/pocl.icd"],
        packages: &["pocl-opencl-icd", "ocl-icd-libopencl1"],
        parts: 96,
        elsewhere: 0,
    },
];

/// Environments with NVIDIA's compiler, and its package there: the newest, and the last that knows Volta.
const NVRTC: [(&str, &str); 2] = [("nvrtc-13", "nvidia-cuda-nvrtc"), ("nvrtc-12", "nvidia-cuda-nvrtc-cu12")];

/// The conformance suite on every such device, and the digits, which train as on the CPU.
pub(crate) fn devices(full: bool) -> Result<(), String> {
    let program = command()?;
    for device in &DEVICES {
        println!("--- {}", device.name);
        suite(&program, device, full)?;
        training(&program, device.name)?;
        // Software devices take an eighth of a second a step.
        steps(&program, device.name, if full { 100 } else { 20 })?;
    }
    // Of the crates' own tests those that need PoCL, NVRTC or hipRTC. They are built already.
    let compilers = if full { &NVRTC[..] } else { &NVRTC[..1] };
    for (name, package) in compilers {
        let packages = install::environment(name, &[package])?;
        println!("--- tests that need a device or a compiler, with {name}");
        let mut own = cargo();
        own.args(["test", "--workspace", "--tests", "--quiet", "--", "--ignored"]);
        succeed(own.env("VIRTUAL_ENV", packages))?;
    }
    Ok(())
}

/// AMD's compiler: where it may be, and what Debian has it in.
const HIPRTC: [&str; 2] = ["/usr/lib/x86_64-linux-gnu/libamdhip64.so.5", "/opt/rocm/lib/libamdhip64.so.5"];
const HIPRTC_PACKAGES: [&str; 3] = ["libamdhip64-5", "libhiprtc-builtins5", "rocm-device-libs"];

/// Installs the software devices and AMD's compiler where they are missing. Tests that use every device find them then.
pub(crate) fn install() -> Result<(), String> {
    let wanted = DEVICES.iter().map(|device| (device.files, device.packages));
    let missing = wanted
        .chain([(&HIPRTC[..], &HIPRTC_PACKAGES[..])])
        .filter(|(files, _)| !files.iter().any(|file| Path::new(file).exists()));
    let packages: Vec<&str> = missing.flat_map(|(_, packages)| packages).copied().collect();
    if packages.is_empty() { Ok(()) } else { install::packages(&packages) }
}

/// Training for so many steps: memory stays as it is.
fn steps(program: &Path, device: &str, count: usize) -> Result<(), String> {
    succeed(Command::new(program).args(["verify", "--steps", &count.to_string(), "--device", device]))
}

/// The command `neurenix`, as the tests have it: dependencies would be compiled anew for a build without tests, whose features
/// are fewer.
fn command() -> Result<PathBuf, String> {
    succeed(cargo().args(["test", "--workspace", "--no-run", "--quiet"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(target.join("debug").join(format!("neurenix{}", std::env::consts::EXE_SUFFIX)))
}

/// The suite, or a share of it.
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
    // "1614 cases of 710 operations and dtypes: 1600 passed, 14 on the CPU, 0 failed, 0 not done"
    let words: Vec<&str> = said.split_whitespace().collect();
    let count = words.windows(4).find(|words| words[1..] == ["on", "the", "CPU,"]);
    let count = count.and_then(|words| words[0].parse::<usize>().ok());
    let elsewhere = count.ok_or_else(|| format!("{} does not say what the CPU did", program.display()))?;
    let most = device.elsewhere;
    match elsewhere <= most {
        true => Ok(()),
        false => Err(format!("the CPU did {elsewhere} cases for {}, {most} are known", device.name)),
    }
}

/// Which part of so many the sources choose, counted from 1: the same one until they change.
fn turn(parts: usize) -> Result<usize, String> {
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
    let mut hasher = DefaultHasher::new();
    for file in files {
        hasher.write(&fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?);
    }
    Ok((hasher.finish() % parts as u64) as usize + 1)
}

/// Waits for all, then tells the first failure, or what they wrote, if it was to be kept.
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

/// Training the digits for three epochs: losses are those of the CPU.
fn training(program: &Path, device: &str) -> Result<(), String> {
    /// Sums of `float32` in other orders, over 63 steps that each start from the last.
    const TOLERANCE: f64 = 1e-3;
    let [cpu, other] = ["cpu", device].map(|device| losses(program, device));
    let (cpu, other) = (cpu?, other?);
    println!("losses on the CPU {cpu:?}, on {device} {other:?}");
    let alike = |(a, b): (&f64, &f64)| (a - b).abs() <= TOLERANCE * a.abs();
    match cpu.len() == other.len() && !cpu.is_empty() && cpu.iter().zip(&other).all(alike) {
        true => Ok(()),
        false => Err(format!("{device} trains otherwise than the CPU")),
    }
}

/// Of every epoch the losses of training and of validation.
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

/// What only long runs show: memory over many steps of training, and random programs whose values must not depend on fusion.
pub(crate) fn soak() -> Result<(), String> {
    let program = command()?;
    steps(&program, "cpu", 1000)?;
    for (device, programs) in [("cpu", "100000"), ("vulkan:0", "5000"), ("opencl:0", "5000")] {
        let mut verify = Command::new(&program);
        succeed(verify.args(["verify", "--consistency", programs, "--device", device]))?;
    }
    Ok(())
}

/// The suite's kernels for GPUs that are not there. One architecture gets all of them; the others get of every template and
/// its element types one, since a kernel's shape changes numbers in it, not what an architecture can do.
pub(crate) fn compilers() -> Result<(), String> {
    let program = command()?;
    let [newest, older] = NVRTC.map(|(name, package)| install::environment(name, &[package]));
    let (newest, older) = (newest?, older?);
    // A compiler works in one thread: as many processes as cores share the longest list.
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

    // hipRTC compiles in one thread, and ends a process that has opened PoCL, since both bring LLVM.
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
