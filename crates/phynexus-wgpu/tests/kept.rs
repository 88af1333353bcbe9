//! The disk cache of machine code, on the Vulkan devices of this machine. An environment variable sets the folder, so
//! each run is a separate process.

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

use phynexus::{DType, Tensor};

const VARIABLE: &str = "RNN_VULKAN_CACHE_PATH";
const RUN: &str = "a_kernel_that_is_kept";

/// The part that runs in a separate process.
#[test]
fn a_kernel_that_is_kept() {
    if env::var_os(VARIABLE).is_none() {
        return;
    }
    phynexus_wgpu::register();
    for device in phynexus::device::devices() {
        let x = Tensor::full(&[3], 2.0, DType::F32, device).unwrap();
        assert_eq!((&x * 21.0).unwrap().to_vec::<f32>().unwrap(), [42.0; 3], "{device}");
    }
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.display().to_string(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn kernels_are_kept_and_what_is_damaged_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let run = || {
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", RUN, "--test-threads=1"]).env(VARIABLE, folder.path());
        let output = child.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        files(folder.path())
    };
    phynexus_wgpu::register();
    let vulkan = phynexus::device::devices().into_iter().filter(|d| d.name().starts_with("vulkan"));
    let kept = run();
    assert!(kept.len() >= vulkan.count(), "{} files", kept.len());
    assert_eq!(run(), kept);
    for (name, _) in &kept {
        fs::write(name, "damaged").unwrap();
    }
    let renewed = run();
    assert_eq!(renewed.len(), kept.len());
    assert!(renewed.iter().all(|(_, bytes)| bytes != b"damaged"));
}
