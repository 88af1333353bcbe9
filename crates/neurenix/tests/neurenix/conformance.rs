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

/// The oracle as a device. A single operation would be compared with itself, so this only tests what the scheduler
/// fuses, rewrites and allocates. A failure is a bug of the scheduler or of the suite.
#[test]
fn the_scheduler_keeps_the_meaning_of_graphs_on_the_reference_device() {
    let parts = [
        "fused",
        "random graphs",
        "in-place updates",
        "shared operands",
        "views of updated data",
        "intermediate reads",
        "repeated steps",
    ];
    for part in parts {
        let filter = Some(part.to_owned());
        let options = Options { random_graphs: 100, seed: 50_000, filter, ..Options::default() };
        verify(reference_device(), &options);
    }
}

#[test]
fn the_cpu_conforms() {
    neurenix::register_all();
    let device = Device::find("cpu").expect("the CPU is always registered");
    verify(device, &Options { random_graphs: 600, ..Options::default() });
}
