//! Networks on Arm NN's reference backend.

#[allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]
mod common;

use std::{sync::Arc, time::Instant};

use common::*;
use neurenix::quantize::Format;
use neurenix_onnx::Element;
use phynexus::device::DeviceNature;
use phynexus_npu::{Accepts, Device, Options, Place, Runtime, Search, armnn};

/// The reference backend.
fn device() -> Arc<dyn Runtime> {
    phynexus_cpu::register();
    let found = armnn::find(&Search::default());
    println!("{:?}", found.missing);
    let device = found.runtimes.iter().find(|device| device.properties().nature == DeviceNature::HostCpu);
    let device = device.unwrap_or_else(|| panic!("no CpuRef: {:?}", found.missing));
    println!("{:?}", device.properties());
    Arc::clone(device)
}

#[test]
#[ignore = "needs Debian's python3-pyarmnn, libarmnntfliteparser22 and libarmnn-cpuref-backend22"]
fn the_reference_backend_agrees_with_the_engine() {
    let cpu = phynexus_cpu::register();
    let device = device();
    for (name, float, shape) in [("mlp", mlp(1), vec![1, 64]), ("cnn", cnn(), vec![1, 3, 16, 16])] {
        let x = sample(1, &shape);
        for activation in [Element::Uint8, Element::Int8] {
            let network = quantized(&float, &x, activation);
            let (types, values) = network.observe(x.clone(), cpu, |value| value == "y").unwrap();
            for node in 0..network.graph.node.len() {
                assert_eq!(device.accepts(&network, node, &types), Accepts::Yes);
            }
            let start = Instant::now();
            let mut program = device.compile(&network, &Options::default()).unwrap();
            let compiled = start.elapsed();
            let start = Instant::now();
            let output = program.run(&[x["x"].tensor().unwrap().clone()]).unwrap();
            println!("{name} {activation:?}: compiled in {compiled:?}, ran in {:?}", start.elapsed());
            let expected: Vec<f32> = values["y"].to_vec().unwrap();
            let output: Vec<f32> = output[0].to_vec().unwrap();
            let step = network.floats("y_scale").unwrap().unwrap().1[0];
            let distance = expected.iter().zip(&output).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            println!("  largest difference {distance:e}, a step is {step:e}");
            assert!(distance <= step * 1.001, "{name} {activation:?}: {distance}");
            assert!(program.placement().iter().all(|placed| placed.place == Place::Device));
        }
    }
    let network = quantized(&with_erf(), &sample(1, &[1, 16]), Element::Int8);
    let (types, _) = network.observe(sample(1, &[1, 16]), cpu, |_| false).unwrap();
    let at = network.graph.node.iter().position(|node| node.op_type == "Erf").unwrap();
    assert!(matches!(device.accepts(&network, at, &types), Accepts::No(reason) if reason.contains("Erf")));
}

#[test]
#[ignore = "needs Debian's python3-pyarmnn, libarmnntfliteparser22 and libarmnn-cpuref-backend22"]
fn trained_networks_run_on_the_reference_backend() {
    let cases: [digits::Expected<'_>; 10] = [
        ("mlp", Format::Int8, &[]),
        ("mlp", Format::Int16, &[]),
        ("cnn", Format::Int8, &[]),
        ("cnn", Format::Int16, &[]),
        ("lstm", Format::Int8, &[("LSTM", "no form in TFLite")]),
        ("lstm", Format::Int16, &[("LSTM", "no form in TFLite")]),
        ("lstm in steps", Format::Int8, &[]),
        ("lstm in steps", Format::Int16, &[]),
        (
            "transformer",
            Format::Int8,
            &[
                ("MatMul", "does not read BATCH_MATMUL"),
                ("LayerNormalization", "does not read SQRT"),
                ("Gelu", "does not read GELU"),
            ],
        ),
        (
            "transformer",
            Format::Int16,
            &[
                ("MatMul", "does not read BATCH_MATMUL"),
                ("LayerNormalization", "does not read SQRT"),
                ("Gelu", "does not read GELU"),
            ],
        ),
    ];
    digits::check(&Device::new("npu:0", device()), &cases);
}
