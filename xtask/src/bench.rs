//! `cargo xtask bench`: this project and PyTorch on the same work in one run, because absolute times drift.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::{cargo, root, succeed};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A Python interpreter with PyTorch, to compare with
    #[arg(long)]
    python: Option<PathBuf>,
    /// Threads for both sides
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Only workloads whose name contains this
    #[arg(long, default_value = "")]
    filter: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    succeed(cargo().args(["build", "--release", "--package", "neurenix-cli"]))?;
    let threads = arguments.threads.to_string();
    let ours = || {
        // Cargo knows the location of its target folder.
        let mut command = cargo();
        command.args(["run", "--release", "--quiet", "--package", "neurenix-cli", "--", "bench"]);
        command.args(["--json", "--device", "cpu", "--threads", &threads, "--filter", &arguments.filter]);
        lines(&mut command)
    };
    let Some(python) = &arguments.python else {
        for (name, row) in ours()? {
            println!("{name:<36} {:>10.3} ms {:>8.1} MiB", row.ms, row.mebibytes().unwrap_or(0.0));
        }
        println!("(no ratios: pass --python PATH, a Python interpreter with PyTorch)");
        return Ok(());
    };
    // A path is relative to the caller's folder; a bare program name is looked up on the search path.
    let python = match python.components().count() {
        1 => python.clone(),
        _ => std::path::absolute(python).map_err(|e| format!("--python: {e}"))?,
    };
    let theirs = || {
        let mut command = Command::new(&python);
        command.current_dir(root()).args(["benchmarks/torch_cpu.py", &threads, &arguments.filter]);
        lines(&mut command)
    };
    // Ours, theirs, then both again. For each workload, keep the better of two runs, so that one disturbance affects
    // neither side.
    let better = |first: Rows, second: Rows| -> Rows {
        let best = |(name, row): (String, Row)| {
            let row = second.get(&name).filter(|other| other.ms < row.ms).cloned().unwrap_or(row);
            (name, row)
        };
        first.into_iter().map(best).collect()
    };
    let (our_first, their_first) = (ours()?, theirs()?);
    let (our_best, their_best) = (better(our_first, ours()?), better(their_first, theirs()?));
    println!(
        "| workload | ours, ms | PyTorch, ms | speedup | ours, peak MiB | PyTorch, peak MiB | memory ratio |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for (name, row) in &our_best {
        let peer = their_best.get(name);
        let cell =
            |value: Option<f64>, digits: usize| value.map_or(String::new(), |v| format!("{v:.digits$}"));
        let (ours, theirs) = (row.mebibytes(), peer.and_then(Row::mebibytes));
        println!(
            "| {name} | {:.3} | {} | {} | {} | {} | {} |",
            row.ms,
            cell(peer.map(|p| p.ms), 3),
            cell(peer.map(|p| p.ms / row.ms), 2),
            cell(ours, 1),
            cell(theirs, 1),
            cell(ours.zip(theirs).map(|(ours, theirs)| ours / theirs), 2),
        );
    }
    println!("\n| host overhead | ns per operation | ns per kernel |\n|---|---:|---:|");
    for (name, row) in &our_best {
        if let Some(operation) = row.ns_an_operation {
            let kernel = row.ns_a_kernel.map_or(String::new(), |ns| format!("{ns:.0}"));
            println!("| {name} | {operation:.0} | {kernel} |");
        }
    }
    Ok(())
}

/// Measurements by workload.
type Rows = BTreeMap<String, Row>;

#[derive(Clone)]
struct Row {
    ms: f64,
    peak_bytes: Option<f64>,
    ns_an_operation: Option<f64>,
    ns_a_kernel: Option<f64>,
}

impl Row {
    fn mebibytes(&self) -> Option<f64> {
        self.peak_bytes.map(|bytes| bytes / f64::from(1 << 20))
    }
}

/// Runs a program that prints lines such as `{"name": "..", "ms": 1.5}`, possibly with more fields, and parses them.
fn lines(command: &mut Command) -> Result<Rows, String> {
    let shown = format!("{command:?}");
    let output =
        command.stderr(Stdio::inherit()).output().map_err(|e| format!("{shown} did not start: {e}"))?;
    if !output.status.success() {
        return Err(format!("{shown} ended with {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let field = |line: &str, key: &str| {
        let rest = &line[line.find(&format!("\"{key}\":"))? + key.len() + 3..];
        let rest = rest.trim_start();
        match rest.strip_prefix('"') {
            Some(text) => Some(text.split('"').next()?.to_owned()),
            None => Some(rest.split([',', '}']).next()?.trim().to_owned()),
        }
    };
    let number = |line: &str, key: &str| -> Option<f64> { field(line, key)?.parse().ok() };
    let parse = |line: &str| {
        let row = Row {
            ms: number(line, "ms")?,
            peak_bytes: number(line, "peak_bytes"),
            ns_an_operation: number(line, "ns_an_operation"),
            ns_a_kernel: number(line, "ns_a_kernel"),
        };
        Some((field(line, "name")?, row))
    };
    Ok(text.lines().filter_map(parse).collect())
}
