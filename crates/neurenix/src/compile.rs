//! Compiles the sources of custom kernels to machine code. Most languages need no device for it.

use std::{
    fs, io,
    path::Path,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

use phynexus::custom::SourceLanguage;
#[cfg(any(feature = "cuda", feature = "hip"))]
use phynexus::device;

use crate::languages;

/// Why a source was not compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCompiled {
    /// The compiler is not installed; the text says what to install.
    #[error("{0}")]
    Missing(String),
    /// The compiler rejected the source; the text has its messages.
    #[error("{0}")]
    Refused(String),
}

/// The default architecture if no GPU is present.
#[cfg(feature = "cuda")]
const CUDA: &str = "sm_80";
#[cfg(feature = "hip")]
const HIP: &str = "gfx90a";

/// Compiles a source to machine code: CUDA C to a cubin, HIP C to a code object, OpenCL C to the driver's binary, WGSL
/// to SPIR-V.
///
/// CUDA C and HIP C are compiled for this machine's first GPU of the family, or for sm_80 and gfx90a if there is none.
/// OpenCL C is compiled for the first device. MSL is compiled to a Metal library by Xcode's compiler, on macOS only.
///
/// # Errors
/// If the compiler is missing or rejects the source.
pub fn compile_source(language: SourceLanguage, source: &str) -> Result<Vec<u8>, NotCompiled> {
    match language {
        #[cfg(feature = "cuda")]
        languages::CUDA_C => {
            phynexus_cuda::register();
            let architecture = feature("cuda:0", "compute capability ");
            let name =
                architecture.map_or(CUDA.to_owned(), |version| format!("sm_{}", version.replace('.', "")));
            let cuda = phynexus_cuda::Architecture::new(&name).map_err(NotCompiled::Missing)?;
            cuda.compile_source(source).map_err(NotCompiled::Refused)
        }
        #[cfg(feature = "hip")]
        languages::HIP_C => {
            phynexus_hip::register();
            let name = feature("hip:0", "gfx").map_or(HIP.to_owned(), |rest| format!("gfx{rest}"));
            let hip = phynexus_hip::Architecture::new(&name).map_err(NotCompiled::Missing)?;
            hip.compile_source(source).map_err(NotCompiled::Refused)
        }
        #[cfg(feature = "opencl")]
        languages::OPENCL_C => phynexus_opencl::compile_source(source)
            .map_err(NotCompiled::Missing)?
            .map_err(NotCompiled::Refused),
        #[cfg(feature = "wgpu")]
        languages::WGSL => phynexus_wgpu::compile_source(source).map_err(NotCompiled::Refused),
        languages::MSL if cfg!(target_os = "macos") => compile_msl("xcrun", source),
        languages::MSL => Err(NotCompiled::Missing(NO_METAL.to_owned())),
        other => Err(NotCompiled::Missing(format!("this program was built without a compiler for {other}"))),
    }
}

const NO_METAL: &str = "Metal's compiler is part of Xcode and runs only on macOS: compile MSL there, or write the kernel \
                        in WGSL, which is compiled here and runs on Metal too";
const NO_XCODE: &str = "Metal's compiler is part of Xcode: install Xcode and select it with xcode-select";

/// Compiles MSL to a Metal library. `finder` is the program that locates Xcode's compiler.
fn compile_msl(finder: &str, source: &str) -> Result<Vec<u8>, NotCompiled> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("neurenix-metal-{}-{number}", std::process::id()));
    let result = compile_msl_in(&folder, finder, source);
    // If the folder cannot be removed, it stays in the system's temporary folder.
    let _ = fs::remove_dir_all(&folder);
    result
}

fn compile_msl_in(folder: &Path, finder: &str, source: &str) -> Result<Vec<u8>, NotCompiled> {
    let failed = |error: io::Error| NotCompiled::Missing(format!("{}: {error}", folder.display()));
    let (text, library) = (folder.join("kernel.metal"), folder.join("kernel.metallib"));
    // `create_dir` fails if the folder exists, so another user's folder is never used.
    fs::create_dir(folder).and_then(|()| fs::write(&text, source)).map_err(failed)?;
    let mut compiler = Command::new(finder);
    compiler.args(["-sdk", "macosx", "metal"]).arg(&text).arg("-o").arg(&library);
    let output = compiler.output().map_err(|error| NotCompiled::Missing(format!("{NO_XCODE} ({error})")))?;
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.success() {
        true => fs::read(&library).map_err(failed),
        // The message of xcrun if the compiler is not installed.
        false if words.contains("unable to find utility") => {
            Err(NotCompiled::Missing(format!("{NO_XCODE} ({words})")))
        }
        false => Err(NotCompiled::Refused(words)),
    }
}

/// The text that follows `words` in the features of the first device of a family. Looks only for that family, because
/// other drivers' libraries may conflict with its compiler in one process.
#[cfg(any(feature = "cuda", feature = "hip"))]
fn feature(device: &str, words: &str) -> Option<String> {
    let found = device::find(device).ok()?;
    found.info().features.iter().find_map(|feature| feature.strip_prefix(words).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn msl_is_compiled_on_macos_or_it_is_said_what_is_missing() {
        let source = "#include <metal_stdlib>\nkernel void nothing() {}\n";
        match compile_source(languages::MSL, source) {
            Ok(library) => assert!(cfg!(target_os = "macos") && !library.is_empty()),
            Err(NotCompiled::Missing(install)) => {
                assert!(install.contains("Xcode") && install.contains("macOS") != cfg!(target_os = "macos"));
            }
            Err(NotCompiled::Refused(words)) => panic!("{words}"),
        }
        let missing = compile_msl("/there/is/no/xcrun", source);
        assert!(
            matches!(&missing, Err(NotCompiled::Missing(install)) if install.contains("Xcode")),
            "{missing:?}"
        );
    }

    /// A stand-in for xcrun that accepts the same arguments.
    #[cfg(unix)]
    #[test]
    fn a_compilers_library_and_words_are_passed_on() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let finder = folder.path().join("xcrun");
        let script = "#!/bin/sh\n[ \"$1 $2 $3 $5\" = \"-sdk macosx metal -o\" ] || exit 9\n\
            grep -q kernel \"$4\" || { echo 'kernel.metal:1: expected a kernel' >&2; exit 1; }\ncp \"$4\" \"$6\"\n";
        fs::write(&finder, script).unwrap();
        fs::set_permissions(&finder, fs::Permissions::from_mode(0o755)).unwrap();
        let compile = |source: &str| compile_msl(finder.to_str().unwrap(), source);
        assert_eq!(compile("kernel void f() {}"), Ok(b"kernel void f() {}".to_vec()));
        let refused = NotCompiled::Refused("kernel.metal:1: expected a kernel".to_owned());
        assert_eq!(compile("garbage"), Err(refused));
    }
}
