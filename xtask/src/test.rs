//! `cargo xtask test`: every check, in the order in which they fail fastest.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    time::Instant,
};

use crate::{cargo, devices, find, install, python, root, succeed};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Leave out AddressSanitizer, which compiles the engine once more
    #[arg(long)]
    no_sanitizer: bool,
    /// Only these stages, by the names that a run prints
    stages: Vec<String>,
}

type Stage = (&'static str, fn() -> Result<(), String>);

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let mut stages: Vec<Stage> = vec![
        ("format", || succeed(cargo().args(["fmt", "--all", "--check"]))),
        ("lints", || {
            succeed(cargo().args([
                "clippy",
                "--workspace",
                "--all-targets",
                "--quiet",
                "--",
                "-D",
                "warnings",
            ]))
        }),
        ("documentation", || {
            let mut doc = cargo();
            doc.args(["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings");
            succeed(&mut doc)
        }),
        ("browser", install_browser),
        ("tests", || succeed(cargo().args(["test", "--workspace", "--no-fail-fast"]))),
        ("examples", run_examples),
        ("python", python::check),
        ("compilers", devices::compilers),
        ("devices", devices::devices),
    ];
    if !arguments.no_sanitizer {
        stages.push(("sanitizer", sanitizer));
    }
    if let Some(unknown) =
        arguments.stages.iter().find(|wanted| stages.iter().all(|(name, _)| name != wanted))
    {
        let names: Vec<&str> = stages.iter().map(|(name, _)| *name).collect();
        return Err(format!("there is no stage {unknown:?}: there are {}", names.join(", ")));
    }
    stages.retain(|(name, _)| {
        arguments.stages.is_empty() || arguments.stages.iter().any(|wanted| wanted == name)
    });
    let started = Instant::now();
    let mut passed = Vec::new();
    for (name, stage) in stages {
        println!("\n=== {name} ===");
        let begun = Instant::now();
        stage().map_err(|error| format!("stage {name:?} failed: {error}"))?;
        passed.push((name, begun.elapsed()));
    }
    println!("\nAll stages passed in {:.0} s:", started.elapsed().as_secs_f64());
    for (name, time) in passed {
        println!("  {name:<14} {:>6.1} s", time.as_secs_f64());
    }
    Ok(())
}

/// The report's test looks at it in headless Chromium. Where there is none, Debian's package is installed.
fn install_browser() -> Result<(), String> {
    if std::env::var_os(find::SKIP).is_some() {
        println!("LEFT OUT, and the report is not looked at: {} is set", find::SKIP);
        return Ok(());
    }
    if let Some(browser) = find::find_browser() {
        println!("{}", browser.display());
        return Ok(());
    }
    let missing = format!(
        "no Chromium was found, and the report's test needs one: install it, or set {} to leave the test out",
        find::SKIP
    );
    install::packages(&["chromium"]).map_err(|error| format!("{missing} ({error})"))
}

/// Runs every example of the framework and of `rnn`; each checks its own results. They are built with the whole workspace, as the
/// tests are, so that nothing is compiled twice.
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
    // Two of one name would be one program, run twice.
    if let Some(twice) = programs.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("two examples are called {}", twice[0].display()));
    }
    for program in programs {
        println!("--- {}", program.display());
        succeed(Command::new(&program).current_dir(root()))?;
    }
    Ok(())
}

/// A text in a line of cargo's messages.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let mark = format!("\"{name}\":\"");
    let start = line.find(&mark)? + mark.len();
    line[start..].split('"').next()
}

/// The crates with `unsafe` under AddressSanitizer, on the stable toolchain.
fn sanitizer() -> Result<(), String> {
    let target = match (std::env::consts::ARCH, std::env::consts::OS) {
        ("x86_64", "linux") => "x86_64-unknown-linux-gnu",
        ("aarch64", "linux") => "aarch64-unknown-linux-gnu",
        (_, os) => {
            println!("not run on {os}: only Linux is set up for it");
            return Ok(());
        }
    };
    let mut test = cargo();
    test.args([
        "test",
        "--package",
        "phynexus-cpu",
        "--tests",
        "--target",
        target,
        "--target-dir",
        "target/sanitizer",
    ])
    .env("RUSTC_BOOTSTRAP", "1")
    .env("RUSTFLAGS", "-Zsanitizer=address")
    // Buffers kept for the life of the process are not leaks; an allocation that cannot be is refused, as by the system.
    .env("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1");
    succeed(&mut test)
}
