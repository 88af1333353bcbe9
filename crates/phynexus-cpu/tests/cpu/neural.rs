//! Neural functions and their gradients on the CPU against PyTorch's results.

use phynexus::DType;

#[path = "../../../phynexus/tests/golden/run.rs"]
mod run;

#[test]
fn in_double_precision() {
    run::check_all(phynexus_cpu::register(), DType::F64, 1e-7);
}

#[test]
fn in_single_precision() {
    run::check_all(phynexus_cpu::register(), DType::F32, 1e-4);
}
