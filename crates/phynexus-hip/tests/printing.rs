//! Kernels printed as HIP C, against expected sources.

#[path = "../../phynexus/tests/golden/printed.rs"]
mod printed;

#[test]
fn kernels_are_printed_as_expected() {
    printed::compare(&phynexus_hip::HIP, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"), "hip");
}
