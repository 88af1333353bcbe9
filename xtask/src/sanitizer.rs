//! Tests under the sanitizers of the stable toolchain's compiler.

use std::process::Command;

use crate::{cargo, install, root, succeed};

/// Tests of threads that compute together: a crate, and what selects its tests.
const THREADED: [(&str, &[&str]); 4] = [
    ("phynexus-cpu", &["--test", "collectives"]),
    ("phynexus-nccl", &["--lib"]),
    ("neurenix", &["--test", "data_parallel"]),
    ("neurenix", &["--lib", "distributed::"]),
];

pub(crate) fn check() -> Result<(), String> {
    let target = match (std::env::consts::ARCH, std::env::consts::OS) {
        ("x86_64", "linux") => "x86_64-unknown-linux-gnu",
        ("aarch64", "linux") => "aarch64-unknown-linux-gnu",
        (_, os) => {
            println!("not run on {os}: only Linux is supported");
            return Ok(());
        }
    };
    address(target)?;
    thread(target)
}

fn test(target: &str, sanitizer: &str) -> Command {
    let mut test = cargo();
    test.args(["test", "--target", target, "--target-dir"]);
    test.arg(root().join("target/sanitizer").join(sanitizer));
    test.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"));
    test
}

/// Accesses outside of allocations, in the crate of the vector kernels.
fn address(target: &str) -> Result<(), String> {
    let mut test = test(target, "address");
    test.args(["--package", "phynexus-cpu", "--tests"])
        // Buffers kept for the life of the process are not leaks. An impossible allocation must fail, as it does
        // without the sanitizer.
        .env("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1");
    succeed(&mut test)
}

/// Accesses by two threads at once. Rust's standard library is built with the sanitizer, too: otherwise it would not see
/// the order that locks make.
fn thread(target: &str) -> Result<(), String> {
    let sources = install::rust_sources()?;
    for (package, selection) in THREADED {
        let mut test = test(target, "thread");
        test.args(["-Zbuild-std=std,panic_unwind,test,proc_macro", "--package", package]);
        // GPUs take no part, and their crates take long to build.
        if package == "neurenix" {
            test.arg("--no-default-features");
        }
        test.args(selection).env("__CARGO_TESTS_ONLY_SRC_ROOT", &sources);
        succeed(&mut test)?;
    }
    Ok(())
}
