//! Networks on OpenVINO's CPU device.

#[allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]
mod common;

use std::{collections::HashMap, sync::Arc, time::Instant};

use common::*;
use neurenix::quantize::Format;
use neurenix_onnx::{Element, Value, edit::Network};
use phynexus::device::DeviceNature;
use phynexus_npu::{Accepts, Compiled, Device, Options, Place, Runtime, Search, openvino};

fn device() -> Arc<dyn Runtime> {
    phynexus_cpu::register();
    let start = Instant::now();
    let found = openvino::find(&Search::default());
    println!("found in {:?}; missing: {:?}", start.elapsed(), found.missing);
    let device = found.runtimes.iter().find(|device| device.properties().nature == DeviceNature::HostCpu);
    let device = device.unwrap_or_else(|| panic!("no CPU device: {:?}", found.missing));
    println!("{:?}", device.properties());
    assert_eq!(device.properties().runtime, "OpenVINO, CPU");
    assert!(!device.properties().version.is_empty());
    Arc::clone(device)
}

/// The largest difference to the engine's CPU.
fn difference(
    device: &dyn Runtime,
    network: &Network,
    inputs: &HashMap<String, Value>,
    options: &Options,
) -> f32 {
    let cpu = phynexus_cpu::register();
    let (types, values) = network.observe(inputs.clone(), cpu, |name| name == "y").unwrap();
    let start = Instant::now();
    for node in 0..network.graph.node.len() {
        assert_eq!(device.accepts(network, node, &types), Accepts::Yes);
    }
    let asked = start.elapsed();
    let start = Instant::now();
    let mut program = device.compile(network, options).unwrap();
    let compiled = start.elapsed();
    assert_eq!(program.placement().len(), network.graph.node.len());
    assert!(program.placement().iter().all(|placed| placed.place == Place::Device));
    assert_eq!(program.memory(), None, "OpenVINO does not say");
    let given = inputs["x"].tensor().unwrap().clone();
    let start = Instant::now();
    let output = program.run(std::slice::from_ref(&given)).unwrap();
    let ran = start.elapsed();
    let expected: Vec<f32> = values["y"].to_vec().unwrap();
    let output: Vec<f32> = output[0].to_vec().unwrap();
    assert_eq!(program.run(&[given]).unwrap()[0].to_vec::<f32>().unwrap(), output);
    let distance = expected.iter().zip(&output).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("  asked {asked:?}, compiled {compiled:?}, ran {ran:?}, largest difference {distance:e}");
    distance
}

#[test]
#[ignore = "needs openvino in RNN_NPU_PATH"]
fn networks_agree_with_the_engine() {
    let device = device();
    let options = Options { strict: true, ..Default::default() };
    for (name, float, shape) in [("mlp", mlp(1), vec![1, 64]), ("cnn", cnn(), vec![1, 3, 16, 16])] {
        let x = sample(1, &shape);
        println!("{name}");
        assert!(difference(&*device, &float, &x, &options) < 1e-5);
        for activation in [Element::Uint8, Element::Int8, Element::Uint16, Element::Int16] {
            println!("{name}, {activation:?}");
            let network = quantized(&float, &x, activation);
            let step = network.floats("y_scale").unwrap().unwrap().1[0];
            let distance = difference(&*device, &network, &x, &options);
            // 16 bits: OpenVINO drops the pairs that quantize and computes on real numbers.
            let allowed = if activation.bits() == 16 { 2e-4 } else { step * 1.001 };
            assert!(distance <= allowed, "{name} {activation:?}: {distance}");
        }
    }
}

#[test]
#[ignore = "needs openvino in RNN_NPU_PATH"]
fn values_beyond_16_bits_are_saturated() {
    let device = device();
    let network = quantized(&mlp(1), &sample(1, &[1, 64]), Element::Uint16);
    // Ten times as large as what the ranges were taken from.
    let cpu = phynexus_cpu::register();
    let large: Vec<f32> = numbers(1, 64, 10.0);
    let large = phynexus::Tensor::from_slice(&large, &[1, 64], cpu).unwrap();
    let inputs = HashMap::from([("x".to_owned(), Value::Tensor(large))]);
    let distance = difference(&*device, &network, &inputs, &Options::default());
    assert!(distance < 2e-4, "{distance}");
}

#[test]
#[ignore = "needs openvino in RNN_NPU_PATH"]
fn what_openvino_does_not_know_is_refused_with_its_reason() {
    let device = device();
    let mut network = mlp(1);
    network.graph.node[0].op_type = "NoSuchOperator".to_owned();
    let error = device.compile(&network, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("OpenVINO: "), "{error}");
    let limit = Options { memory_limit: Some(16), ..Default::default() };
    let error = device.compile(&mlp(1), &limit).unwrap_err().to_string();
    assert!(error.contains("the limit is 16"), "{error}");
}

#[test]
#[ignore = "needs openvino in RNN_NPU_PATH"]
fn compiled_networks_come_from_the_cache() {
    let device = device();
    let folder = tempfile::tempdir().unwrap();
    let options = Options { cache: Some(folder.path().to_owned()), ..Default::default() };
    let x = sample(1, &[1, 3, 16, 16]);
    let network = quantized(&cnn(), &x, Element::Uint8);
    let first = difference(&*device, &network, &x, &options);
    let count = || std::fs::read_dir(folder.path()).unwrap().count();
    let files = count();
    assert!(files > 0, "nothing was cached");
    let second = difference(&*device, &network, &x, &options);
    assert_eq!((first, files), (second, count()));
}

#[test]
#[ignore = "needs openvino in RNN_NPU_PATH"]
fn the_profile_names_kernels_of_8_bits() {
    phynexus_cpu::register();
    let device = openvino::OpenVino::find(&Search::default(), "CPU").unwrap();
    let x = sample(1, &[1, 3, 16, 16]);
    let network = quantized(&cnn(), &x, Element::Uint8);
    let profile = device.profile(&network, &[x["x"].tensor().unwrap().clone()]).unwrap();
    for node in &profile {
        println!("{} {} {} {} us", node.node, node.kind, node.execution, node.microseconds);
    }
    let integers = |kind: &str| {
        let own = profile.iter().filter(|node| node.kind == kind);
        own.filter(|node| node.execution.to_lowercase().contains("i8")).count()
    };
    assert_eq!(integers("Convolution") + integers("GroupConvolution"), 3);
    let error = openvino::OpenVino::find(&Search::default(), "NPU.99").unwrap_err().to_string();
    assert!(error.contains("no device \"NPU.99\"") && error.contains("CPU"), "{error}");
}

#[test]
#[ignore = "needs openvino in RNN_NPU_PATH"]
fn networks_are_compiled_with_their_report() {
    let device = Device::new("npu:0", device());
    let x = sample(1, &[1, 3, 16, 16]);
    let network = quantized(&cnn(), &x, Element::Uint8);
    let options = Options { strict: true, ..Default::default() };
    let mut compiled = Compiled::compile(&network, &device, std::slice::from_ref(&x), &options).unwrap();
    let report = compiled.placement_report();
    assert_eq!(report.failures, Vec::<String>::new());
    assert_eq!(report.on_device(), report.nodes.len());
    let cpu = phynexus_cpu::register();
    let expected = network.observe(x.clone(), cpu, |name| name == "y").unwrap().1["y"].to_vec::<f32>();
    let output = compiled.run(&x).unwrap()[0].1.tensor().unwrap().to_vec::<f32>();
    assert_eq!(output.unwrap(), expected.unwrap());
}

#[test]
#[ignore = "needs openvino in RNN_NPU_PATH"]
fn trained_networks_run_as_a_whole() {
    let cases: [digits::Expected<'_>; 10] = [
        ("mlp", Format::Int8, &[]),
        ("mlp", Format::Int16, &[]),
        ("cnn", Format::Int8, &[]),
        ("cnn", Format::Int16, &[]),
        ("lstm", Format::Int8, &[]),
        ("lstm", Format::Int16, &[]),
        ("lstm in steps", Format::Int8, &[]),
        ("lstm in steps", Format::Int16, &[]),
        ("transformer", Format::Int8, &[]),
        ("transformer", Format::Int16, &[]),
    ];
    digits::check(&Device::new("npu:0", device()), &cases);
}
