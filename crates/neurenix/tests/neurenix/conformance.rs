//! The conformance suite on the devices that every machine has.

use neurenix::verify::{Options, Report, run};
use phynexus::{Device, oracle::reference_device};

fn verify(device: Device, options: &Options) {
    let report: Report = run(device, options, &mut |_| {});
    println!("{report}");
    assert!(report.passed(), "{} failures", report.failures.len());
    let total = report.total();
    assert!(total.skipped * 4 < total.compared, "{} of {} elements skipped", total.skipped, total.compared);
}

/// The oracle as a device: what fails here is the scheduler's fault, or the suite's.
#[test]
fn the_reference_device_conforms() {
    verify(reference_device(), &Options { random_graphs: 100, seed: 50_000, ..Options::default() });
}

#[test]
fn the_cpu_conforms() {
    neurenix::register_all();
    let device = Device::find("cpu").expect("the CPU is always registered");
    verify(device, &Options { random_graphs: 600, ..Options::default() });
}
