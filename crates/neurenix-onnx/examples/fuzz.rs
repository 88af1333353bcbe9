//! Mutates ONNX files, and reads, infers and runs what comes out. It fails at the first panic.
//!
//! Usage: `cargo run --release -p neurenix-onnx --example fuzz -- COUNT SEED FILE_OR_FOLDER...`
//!
//! Each file with the ending `.onnx` in the folders and the folders within them is a start of mutations. Such are
//! ONNX's own cases: `backend-test-tools generate-data -o FOLDER`, a command of the package `onnx`, writes them. Files
//! of more than 64 KiB are left out. Tensors may take 1 GiB.

use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

#[path = "../tests/files/mutation.rs"]
mod mutation;

use mutation::{Random, Reached, mutate, try_file};

/// The bytes of a larger file would rather be those of its tensors.
const LARGEST: u64 = 64 << 10;
/// The bytes that all tensors together may have.
const MEMORY: usize = 1 << 30;

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if let Ok(entries) = fs::read_dir(path) {
        entries.flatten().for_each(|entry| collect(&entry.path(), files));
    } else if path.extension().is_some_and(|ending| ending == "onnx")
        && path.metadata().is_ok_and(|data| data.len() <= LARGEST)
    {
        files.push(path.to_owned());
    }
}

/// The most memory that this process has had, in MiB, where the system tells.
fn peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? / 1024)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let (Some(count), Some(seed), Some(paths)) = (number(0), number(1), arguments.get(2..)) else {
        eprintln!("usage: fuzz COUNT SEED FILE_OR_FOLDER...");
        return ExitCode::FAILURE;
    };
    let mut files = Vec::new();
    paths.iter().for_each(|path| collect(Path::new(path), &mut files));
    files.sort();
    let corpus: Vec<Vec<u8>> = files.iter().filter_map(|path| fs::read(path).ok()).collect();
    if corpus.is_empty() {
        eprintln!("there is no file of at most {LARGEST} bytes with the ending .onnx");
        return ExitCode::FAILURE;
    }
    let device = phynexus_cpu::register();
    device.set_memory_limit(Some(MEMORY));
    let mut random = Random::new(seed);
    let (mut read, mut run) = (0u64, 0u64);
    let (start, mut told) = (Instant::now(), Instant::now());
    for number in 0..count {
        let bytes = mutate(&corpus[random.below(corpus.len())], &mut random);
        match catch_unwind(AssertUnwindSafe(|| try_file(&bytes, device))) {
            Ok(reached) => {
                read += u64::from(reached >= Reached::Read);
                run += u64::from(reached >= Reached::Run);
            }
            Err(_) => {
                let path = env::temp_dir().join(format!("fuzz_{seed}_{number}.onnx"));
                let written =
                    fs::write(&path, &bytes).map_or_else(|e| e.to_string(), |()| path.display().to_string());
                eprintln!("file {number} of seed {seed} panicked: {written}");
                return ExitCode::FAILURE;
            }
        }
        if told.elapsed().as_secs() >= 10 || number + 1 == count {
            told = Instant::now();
            let rate = (number + 1) as f64 / start.elapsed().as_secs_f64();
            let memory = peak().map_or(String::new(), |peak| format!(", at most {peak} MiB of memory"));
            println!(
                "{} files, {rate:.0} a second: {read} could be read, {run} were run{memory}",
                number + 1
            );
        }
    }
    ExitCode::SUCCESS
}
