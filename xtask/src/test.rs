//! `cargo xtask test`: every check, in the order in which they fail fastest.

use std::{path::Path, process::Command, time::Instant};

use crate::{cargo, succeed};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Leave out AddressSanitizer, which compiles the engine once more
    #[arg(long)]
    no_sanitizer: bool,
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
    ];
    if !arguments.no_sanitizer {
        stages.push(("sanitizer", sanitizer));
    }
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
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    if names.iter().any(found) {
        return Ok(());
    }
    let missing = "no Chromium was found, and the report's test needs one: install the package `chromium`";
    if !Path::new("/usr/bin/apt-get").exists() {
        return Err(missing.to_owned());
    }
    succeed(Command::new("apt-get").args(["update", "-qq"])).map_err(|e| format!("{missing} ({e})"))?;
    let mut install = Command::new("apt-get");
    install.args(["install", "-y", "-qq", "--no-install-recommends", "chromium"]);
    succeed(install.env("DEBIAN_FRONTEND", "noninteractive")).map_err(|e| format!("{missing} ({e})"))
}

/// Runs every example of the framework; each checks its own results.
fn run_examples() -> Result<(), String> {
    let folder = Path::new("crates/neurenix/examples");
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.path().file_stem()?.to_str().map(str::to_owned)).collect();
    names.sort();
    for name in names {
        println!("--- {name}");
        succeed(cargo().args(["run", "--quiet", "--package", "neurenix", "--example", &name]))?;
    }
    Ok(())
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
    // Buffers kept for the life of the process are not leaks.
    .env("ASAN_OPTIONS", "detect_leaks=0");
    succeed(&mut test)
}
