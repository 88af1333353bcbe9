//! Neural functions through the scheduler, on the reference device.

use phynexus::{DType, oracle::reference_device};

#[path = "../golden/run.rs"]
mod run;

#[test]
fn neural_functions_on_the_reference_device() {
    run::check_all(reference_device(), DType::F64, 1e-7);
}
