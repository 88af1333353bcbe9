//! `cargo xtask bench`: ours and PyTorch on the same work in one run, since absolute times drift.

use std::{
    collections::BTreeMap,
    process::{Command, Stdio},
};

use crate::{cargo, succeed};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A Python with PyTorch to compare with
    #[arg(long)]
    python: Option<String>,
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
        let mut command = Command::new("target/release/neurenix");
        command.args(["bench", "--json", "--threads", &threads, "--filter", &arguments.filter]);
        lines(&mut command)
    };
    let Some(python) = &arguments.python else {
        for (name, ms) in ours()? {
            println!("{name:<28} {ms:>10.3} ms");
        }
        println!("(no peer: give --python PATH, a Python with PyTorch, for ratios)");
        return Ok(());
    };
    let theirs = || {
        let mut command = Command::new(python);
        command.args(["benchmarks/torch_cpu.py", &threads, &arguments.filter]);
        lines(&mut command)
    };
    // Ours, theirs, and both once more: of each workload the better of two runs, so that one disturbance hurts nobody.
    let better = |first: BTreeMap<String, f64>, second: BTreeMap<String, f64>| -> BTreeMap<String, f64> {
        first
            .into_iter()
            .map(|(name, ms)| (name.clone(), second.get(&name).map_or(ms, |m| m.min(ms))))
            .collect()
    };
    let (our_first, their_first) = (ours()?, theirs()?);
    let (our_best, their_best) = (better(our_first, ours()?), better(their_first, theirs()?));
    println!("| workload | ours, ms | PyTorch, ms | times as fast |");
    println!("|---|---:|---:|---:|");
    for (name, ms) in &our_best {
        match their_best.get(name) {
            Some(peer) => println!("| {name} | {ms:.3} | {peer:.3} | {:.2} |", peer / ms),
            None => println!("| {name} | {ms:.3} | | |"),
        }
    }
    Ok(())
}

/// Runs a program that prints lines `{"name": "..", "ms": 1.5}` and reads them.
fn lines(command: &mut Command) -> Result<BTreeMap<String, f64>, String> {
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
    let parse = |line: &str| Some((field(line, "name")?, field(line, "ms")?.parse().ok()?));
    Ok(text.lines().filter_map(parse).collect())
}
