//! Kernels printed as CUDA C, against expected sources.

#[path = "../../phynexus/tests/golden/printed.rs"]
mod printed;

#[test]
fn kernels_are_printed_as_expected() {
    printed::compare(&phynexus_cuda::CUDA, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"), "cu");
}
