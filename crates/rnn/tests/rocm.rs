//! Kernels compiled for AMD's GPUs, in a process without other devices: Debian's PoCL and hipRTC have LLVM libraries that
//! cannot be loaded together.

use rnn::{
    NetworkError, Result,
    gpu::{CudaKernels, KernelManager},
};

#[test]
fn kernels_compile_or_it_is_said_what_is_missing() -> Result<()> {
    let mut manager = KernelManager::new();
    for (name, source) in CudaKernels::all_kernels() {
        match manager.compile_kernel(&name, &source, "rocm") {
            Ok(code) => assert!(!code.is_empty(), "{name}"),
            Err(NetworkError::CompilerMissing { backend, install }) => {
                assert_eq!(backend, "rocm");
                let remedy = if cfg!(feature = "rocm") { "ROCm" } else { "feature rocm" };
                assert!(install.contains(remedy), "{install}");
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    let error = manager.compile_kernel("test", "garbage", "rocm").unwrap_err();
    let NetworkError::KernelCompilation { message, .. } = error else { panic!("{error}") };
    assert!(message.contains("garbage"), "{message}");
    Ok(())
}
