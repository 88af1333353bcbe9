//! `cargo xtask test`: every check, ordered by how fast it fails.

use std::{
    io::{self, BufRead, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    time::Instant,
};

use crate::{cargo, devices, find, install, network, npu, python, root, sanitizer, succeed, windows};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Also run what takes hours: every case on every software device, every compiler, the sanitizer, soak tests
    #[arg(long)]
    full: bool,
    /// Run only these stages, by the names that a run prints
    stages: Vec<String>,
}

struct Stage {
    name: &'static str,
    /// Whether the stage runs only with `--full`.
    full: bool,
    /// The argument is whether this is a full run.
    run: fn(bool) -> Result<(), String>,
}

const STAGES: [Stage; 14] = [
    Stage { name: "format", full: false, run: |_| succeed(cargo().args(["fmt", "--all", "--check"])) },
    Stage { name: "lints", full: false, run: |_| lints() },
    Stage { name: "documentation", full: false, run: |_| documentation() },
    Stage { name: "packages", full: false, run: |_| install_browser().and_then(|()| devices::install()) },
    Stage { name: "tests", full: false, run: |_| tests() },
    Stage { name: "examples", full: false, run: |_| run_examples() },
    Stage { name: "python", full: false, run: python::check },
    Stage { name: "npu", full: false, run: npu::check },
    Stage { name: "devices", full: false, run: devices::devices },
    Stage { name: "compilers", full: true, run: |_| devices::compilers() },
    Stage { name: "sanitizer", full: true, run: |_| sanitizer::check() },
    Stage { name: "network", full: true, run: |_| network::check() },
    Stage { name: "windows", full: true, run: |_| windows::check() },
    Stage { name: "soak", full: true, run: |_| devices::soak() },
];

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let named = |stage: &Stage| arguments.stages.iter().any(|wanted| wanted == stage.name);
    if let Some(unknown) =
        arguments.stages.iter().find(|wanted| STAGES.iter().all(|stage| stage.name != wanted.as_str()))
    {
        let names: Vec<&str> = STAGES.iter().map(|stage| stage.name).collect();
        return Err(format!("unknown stage {unknown:?}; expected one of {}", names.join(", ")));
    }
    let started = Instant::now();
    let (mut times, mut failure) = (Vec::new(), None);
    for stage in &STAGES {
        let wanted = match arguments.stages.is_empty() {
            true => arguments.full || !stage.full,
            false => named(stage),
        };
        if !wanted {
            continue;
        }
        println!("\n=== {} ===", stage.name);
        let begun = Instant::now();
        let result = (stage.run)(arguments.full);
        times.push((stage.name, begun.elapsed()));
        if let Err(error) = result {
            failure = Some(format!("stage {:?} failed: {error}", stage.name));
            break;
        }
    }
    let ended = if failure.is_some() { "Failed after" } else { "All stages passed in" };
    println!("\n{ended} {:.0} s:", started.elapsed().as_secs_f64());
    for (name, time) in times {
        println!("  {name:<14} {:>6.1} s", time.as_secs_f64());
    }
    failure.map_or(Ok(()), Err)
}

fn lints() -> Result<(), String> {
    succeed(cargo().args(["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))
}

fn documentation() -> Result<(), String> {
    let mut doc = cargo();
    doc.args(["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings");
    succeed(&mut doc)
}

/// Runs every Rust test, then lists the ten slowest test programs.
fn tests() -> Result<(), String> {
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-fail-fast"]);
    let shown = format!("{command:?}");
    // One pipe for both streams, so that the line that names a program precedes its result.
    let (reader, writer) = io::pipe().map_err(|e| e.to_string())?;
    command.stdout(writer.try_clone().map_err(|e| e.to_string())?).stderr(writer);
    let mut child = command.spawn().map_err(|e| format!("{shown} did not start: {e}"))?;
    // The command holds the pipe's write end: without this, the reader would never see the end.
    drop(command);
    let mut program = String::new();
    let mut times: Vec<(f64, String)> = Vec::new();
    for line in BufReader::new(reader).lines() {
        let line = line.map_err(|e| e.to_string())?;
        println!("{line}");
        let trimmed = line.trim_start();
        if let Some(name) = trimmed.strip_prefix("Running ").or(trimmed.strip_prefix("Doc-tests ")) {
            program = name.to_owned();
        }
        let seconds = line.strip_prefix("test result: ").and_then(|rest| rest.split_once("finished in "));
        if let Some(seconds) = seconds.and_then(|(_, time)| time.strip_suffix('s')?.parse().ok()) {
            times.push((seconds, program.clone()));
        }
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    times.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("\n{} test programs; the slowest:", times.len());
    for (seconds, program) in times.iter().take(10) {
        println!("  {seconds:>6.1} s  {program}");
    }
    if status.success() { Ok(()) } else { Err(format!("{shown} ended with {status}")) }
}

/// The report's test renders it in headless Chromium. If Chromium is missing, this installs Debian's package.
fn install_browser() -> Result<(), String> {
    if std::env::var_os(find::SKIP).is_some() {
        println!("SKIPPED: the report is not rendered because {} is set", find::SKIP);
        return Ok(());
    }
    if let Some(browser) = find::find_browser() {
        println!("{}", browser.display());
        return Ok(());
    }
    let missing = format!(
        "Chromium was not found, and the report's test needs it: install it, or set {} to skip the test",
        find::SKIP
    );
    install::packages(&["chromium"]).map_err(|error| format!("{missing} ({error})"))
}

/// Runs every example of the framework and of `rnn`; each checks its own results. They are built with the whole
/// workspace, like the tests, so that nothing is compiled twice.
fn run_examples() -> Result<(), String> {
    let mut build = cargo();
    build.args(["build", "--workspace", "--examples", "--message-format=json-render-diagnostics"]);
    let shown = format!("{build:?}");
    let output =
        build.stderr(Stdio::inherit()).output().map_err(|e| format!("{shown} did not start: {e}"))?;
    if !output.status.success() {
        return Err(format!("{shown} ended with {}", output.status));
    }
    let folders = ["neurenix", "rnn"];
    let mut programs: Vec<PathBuf> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| {
            field(line, "src_path").is_some_and(|path| {
                folders.iter().any(|folder| path.contains(&format!("/{folder}/examples/")))
            })
        })
        .filter_map(|line| field(line, "executable").map(PathBuf::from))
        .collect();
    programs.sort();
    let mut expected = 0;
    for folder in folders {
        let sources = root().join("crates").join(folder).join("examples");
        expected += std::fs::read_dir(&sources).map_err(|e| format!("{}: {e}", sources.display()))?.count();
    }
    if programs.len() != expected {
        return Err(format!("{expected} examples, but {} programs were built", programs.len()));
    }
    // Two examples with the same name would yield one program, run twice.
    if let Some(twice) = programs.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("two examples are called {}", twice[0].display()));
    }
    for program in programs {
        println!("--- {}", program.display());
        succeed(Command::new(&program).current_dir(root()))?;
    }
    Ok(())
}

/// Extracts a string field from a line of cargo's messages.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let mark = format!("\"{name}\":\"");
    let start = line.find(&mark)? + mark.len();
    line[start..].split('"').next()
}
