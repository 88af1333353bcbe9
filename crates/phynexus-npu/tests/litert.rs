//! Networks on LiteRT: its CPU kernels, the path of vendors' plug-ins, and the files that are written for it.

#[allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]
mod common;
#[allow(unreachable_pub, reason = "a part of this test program")]
#[path = "litert/operators.rs"]
mod operators;

use std::{collections::HashMap, sync::Arc, time::Instant};

use common::*;
use neurenix::quantize::Format;
use neurenix_onnx::{Element, Value, edit::Network};
use operators::operators;
use phynexus::{Tensor, device::DeviceNature};
use phynexus_npu::{Accepts, Compiled, Device, Options, Place, Runtime, Search, litert, tflite};

/// LiteRT's device of this runtime.
fn device(runtime: &str) -> Arc<dyn Runtime> {
    phynexus_cpu::register();
    let found = litert::find(&Search::default());
    let device = found.runtimes.iter().find(|device| device.properties().runtime == runtime);
    Arc::clone(device.unwrap_or_else(|| panic!("no {runtime}: {:?}", found.missing)))
}

/// The scale of the network's last quantization.
fn step(network: &Network) -> f32 {
    let scale = network.floats("y_scale").unwrap().unwrap();
    scale.1[0]
}

/// Compiles and runs on a device; returns the largest difference to the engine's CPU, and what ran on the CPU.
fn difference(
    device: &dyn Runtime,
    network: &Network,
    inputs: &HashMap<String, Value>,
) -> (f32, Vec<String>) {
    let cpu = phynexus_cpu::register();
    let (types, values) = network.observe(inputs.clone(), cpu, |name| name == "y").unwrap();
    for node in 0..network.graph.node.len() {
        assert_eq!(device.accepts(network, node, &types), Accepts::Yes);
    }
    let start = Instant::now();
    let mut program = device.compile(network, &Options::default()).unwrap();
    let compiled = start.elapsed();
    let given = inputs["x"].tensor().unwrap().clone();
    let start = Instant::now();
    let outputs = program.run(std::slice::from_ref(&given)).unwrap();
    let ran = start.elapsed();
    let expected: Vec<f32> = values["y"].to_vec().unwrap();
    let output: Vec<f32> = outputs[0].to_vec().unwrap();
    assert_eq!(outputs[0].shape(), values["y"].shape());
    assert!(expected.iter().any(|x| *x != expected[0]), "all outputs are alike: the test says nothing");
    // A second run gives the same.
    assert_eq!(program.run(&[given]).unwrap()[0].to_vec::<f32>().unwrap(), output);
    let distance = expected.iter().zip(&output).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let on_cpu = program.placement().iter().filter(|placed| placed.place != Place::Device);
    let on_cpu = on_cpu.map(|placed| placed.operator.clone()).collect();
    println!("largest difference {distance:e}, compiled in {compiled:?}, ran in {ran:?}");
    (distance, on_cpu)
}

#[test]
#[ignore = "needs ai-edge-litert 2.3.0 in RNN_NPU_PATH"]
fn the_cpu_kernels_agree_with_the_engine() {
    let device = device("LiteRT");
    assert_eq!(device.properties().nature, DeviceNature::HostCpu);
    let networks = [("mlp", mlp(2), vec![2, 64]), ("cnn", cnn(), vec![1, 3, 16, 16])];
    for (name, float, shape) in networks {
        let x = sample(1, &shape);
        println!("{name}");
        assert!(difference(&*device, &float, &x).0 < 1e-5);
        for activation in [Element::Uint8, Element::Int8, Element::Int16] {
            println!("{name}, {activation:?}");
            let network = quantized(&float, &x, activation);
            let (distance, on_cpu) = difference(&*device, &network, &x);
            // Kernels of 16 bits round the product of scales to 16 bits.
            let steps = if activation == Element::Int16 { 4.0 } else { 1.0 };
            assert!(distance <= steps * step(&network) * 1.001, "{name} {activation:?}: {distance}");
            assert!(on_cpu.is_empty());
        }
    }
}

#[test]
#[ignore = "needs ai-edge-litert 2.3.0 with openvino 2026.3.1 in RNN_NPU_PATH"]
fn the_plug_in_path_runs_all_of_a_network() {
    let device = device("LiteRT, intel_openvino");
    assert_eq!(device.properties().nature, DeviceNature::HostCpu);
    for (name, float, shape) in [("mlp", mlp(1), vec![1, 64]), ("cnn", cnn(), vec![1, 3, 16, 16])] {
        let x = sample(1, &shape);
        for activation in [Element::Uint8, Element::Int8] {
            println!("{name}, {activation:?}");
            let network = quantized(&float, &x, activation);
            let (distance, on_cpu) = difference(&*device, &network, &x);
            assert!(distance <= step(&network) * 1.001, "{name} {activation:?}: {distance}");
            assert!(on_cpu.is_empty(), "{on_cpu:?}");
        }
    }
}

#[test]
#[ignore = "needs ai-edge-litert 2.3.0 in RNN_NPU_PATH"]
fn vendors_that_cannot_be_used_say_what_is_missing() {
    phynexus_cpu::register();
    let start = Instant::now();
    let found = litert::find(&Search::default());
    println!("found in {:?}", start.elapsed());
    for (kind, reason) in &found.missing {
        println!("{kind}: {reason}");
    }
    let is_there = |vendor: &str| {
        let is_hardware = |device: &Arc<dyn Runtime>| {
            let properties = device.properties();
            properties.vendor == vendor && properties.nature == DeviceNature::Hardware
        };
        found.runtimes.iter().any(is_hardware)
    };
    for (vendor, remedy) in [("MediaTek", "NeuroPilot"), ("Samsung", "LiteCore"), ("Qualcomm", "QAIRT")] {
        let reason = found.missing.iter().find(|(kind, _)| kind.contains(vendor)).map(|(_, reason)| reason);
        assert!(is_there(vendor) != reason.is_some_and(|reason| reason.contains(remedy)), "{vendor}");
    }
}

#[test]
#[ignore = "needs ai-edge-litert 2.3.0 in RNN_NPU_PATH"]
fn every_operator_of_floats_agrees_with_the_engine() {
    let device = device("LiteRT");
    let mut failures = Vec::new();
    for (name, network) in operators() {
        let shape: &[usize] = if name == "one dimension" { &[1, 4, 20] } else { &[1, 4, 6, 8] };
        println!("{name}");
        let (distance, _) = difference(&*device, &network, &sample(3, shape));
        if distance > 2e-5 {
            failures.push(format!("{name}: {distance}"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
#[ignore = "needs ai-edge-litert 2.3.0 in RNN_NPU_PATH"]
fn every_operator_of_integers_agrees_with_the_engine() {
    let device = device("LiteRT");
    let mut failures = Vec::new();
    for (name, float) in operators() {
        // The quantizer of the tests quantizes all inputs of a node, so it cannot do those that are no real numbers.
        let is_real = |input: &String| {
            !input.is_empty() && (float.stored(input).is_none() || float.floats(input).unwrap().is_some())
        };
        let mut inputs = float.graph.node.iter().flat_map(|node| &node.input);
        if !inputs.all(is_real) || name == "Clip" {
            continue;
        }
        let shape: &[usize] = if name == "one dimension" { &[1, 4, 20] } else { &[1, 4, 6, 8] };
        let x = sample(3, shape);
        for activation in [Element::Uint8, Element::Int8, Element::Int16] {
            println!("{name}, {activation:?}");
            let network = quantized(&float, &x, activation);
            let (distance, _) = difference(&*device, &network, &x);
            // An operator with a scale of its own rounds twice; kernels of 16 bits round factors to 16 bits.
            let steps = if activation == Element::Int16 { 6.0 } else { 2.0 };
            if distance > steps * step(&network) * 1.001 {
                failures.push(format!("{name}, {activation:?}: {} steps", distance / step(&network)));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
#[ignore = "needs ai-edge-litert 2.3.0 in RNN_NPU_PATH"]
fn parts_with_integers_at_their_borders_agree_with_the_engine() {
    let device = device("LiteRT");
    let cpu = phynexus_cpu::register();
    for activation in [Element::Uint8, Element::Int8, Element::Int16] {
        let x = sample(1, &[1, 3, 16, 16]);
        let network = quantized(&cnn(), &x, activation);
        let (types, values) = network.observe(x.clone(), cpu, |_| true).unwrap();
        // From the quantized input to the quantized output, and the two nodes at the ends alone.
        let last = network.graph.node.len() - 1;
        for nodes in [(1..last).collect::<Vec<_>>(), vec![0], vec![last]] {
            let part = network.part(&nodes, &types).unwrap();
            let inputs: Vec<_> = part.graph.input.iter().map(|input| values[&input.name].clone()).collect();
            let mut program = device.compile(&part, &Options::default()).unwrap();
            let outputs = program.run(&inputs).unwrap();
            for (output, made) in part.graph.output.iter().zip(&outputs) {
                let expected = &values[&output.name];
                assert_eq!((made.dtype(), made.shape()), (expected.dtype(), expected.shape()));
                let real =
                    |tensor: &Tensor| tensor.to_dtype(phynexus::DType::F32).unwrap().to_vec::<f32>().unwrap();
                let pairs = real(made).into_iter().zip(real(expected));
                let distance = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                println!("{activation:?} {}: {distance}", output.name);
                let is_whole = output.name == "y_q";
                assert!(distance <= if is_whole { 4.0 } else { 1e-6 }, "{}: {distance}", output.name);
                assert!(activation == Element::Int16 || distance <= 1.0);
            }
        }
    }
}

#[test]
#[ignore = "needs ai-edge-litert 2.3.0 with openvino 2026.3.1 in RNN_NPU_PATH"]
fn what_litert_lacks_runs_on_the_cpu_and_the_rest_on_the_plug_in() {
    let device = Device::new("npu:0", device("LiteRT, intel_openvino"));
    let x = sample(1, &[1, 16]);
    let network = quantized(&with_erf(), &x, Element::Int8);
    let mut compiled =
        Compiled::compile(&network, &device, std::slice::from_ref(&x), &Options::default()).unwrap();
    let report = compiled.placement_report();
    println!("{:#?}", report.nodes);
    let place = |node: &str| &report.nodes.iter().find(|placed| placed.node == node).unwrap().place;
    assert!(matches!(place("erf"), Place::Cpu(reason) if reason.contains("Erf")));
    assert_eq!((place("a"), place("y")), (&Place::Device, &Place::Device));
    assert_eq!(report.failures, Vec::<String>::new());
    let cpu = phynexus_cpu::register();
    let expected = network.observe(x.clone(), cpu, |name| name == "y").unwrap().1["y"].clone();
    let output = compiled.run(&x).unwrap()[0].1.tensor().unwrap().to_vec::<f32>().unwrap();
    let pairs = expected.to_vec::<f32>().unwrap().into_iter().zip(output);
    let distance = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(distance <= step(&network) * 1.001, "{distance}");
}

#[test]
fn nodes_without_a_form_in_tflite_are_named() {
    phynexus_cpu::register();
    let error = tflite::write(&with_erf()).unwrap_err().to_string();
    assert!(error.contains("erf (Erf)"), "{error}");
    let network = quantized(&mlp(1), &sample(1, &[1, 64]), Element::Uint16);
    let error = tflite::write(&network).unwrap_err().to_string();
    assert!(error.contains("symmetric"), "{error}");
}

#[test]
fn files_of_8_bits_have_no_floats_inside() {
    phynexus_cpu::register();
    let network = quantized(&cnn(), &sample(1, &[1, 3, 16, 16]), Element::Uint8);
    let file = tflite::write(&network).unwrap();
    assert_eq!(&file.bytes[4..8], b"TFL3");
    let names: Vec<&str> = file.operators.iter().map(|operator| operator.operator).collect();
    let expected = [
        "CONV_2D",
        "RELU",
        "DEPTHWISE_CONV_2D",
        "RELU",
        "CONV_2D",
        "MEAN",
        "RESHAPE",
        "RESHAPE",
        "FULLY_CONNECTED",
    ];
    assert_eq!(names, expected);
    assert_eq!(file.inputs[0].shape(), [1, 16, 16, 3]);
    // Channel 0 of the first pixel is the first byte; 0 is the zero point.
    let zeros = Tensor::from_slice(&[0f32; 768], &[1, 3, 16, 16], phynexus_cpu::register()).unwrap();
    let bytes = file.inputs[0].encode(&zeros).unwrap();
    assert_eq!((bytes.len(), file.inputs[0].bytes()), (768, 768));
    assert_eq!(file.inputs[0].decode(&bytes).unwrap().to_vec::<f32>().unwrap(), [0f32; 768]);
}

#[test]
#[ignore = "needs ai-edge-litert 2.3.0 with openvino 2026.3.1 in RNN_NPU_PATH"]
fn the_plug_in_saturates_values_of_16_bits() {
    let device = device("LiteRT, intel_openvino");
    for (float, shape) in [(mlp(1), vec![1, 64]), (cnn(), vec![1, 3, 16, 16])] {
        let network = quantized(&float, &sample(1, &shape), Element::Int16);
        // Ten times as large as what the ranges were taken from.
        let cpu = phynexus_cpu::register();
        let large = numbers(1, shape.iter().product(), 10.0);
        let large = Value::Tensor(Tensor::from_slice(&large, &shape, cpu).unwrap());
        let (distance, on_cpu) = difference(&*device, &network, &HashMap::from([("x".to_owned(), large)]));
        assert!(on_cpu.is_empty(), "{on_cpu:?}");
        // What wraps around is off by 65536 steps. OpenVINO computes real numbers in bfloat16 on CPUs that have it: its
        // 8 bits are steps of 256, and the layers before round as well.
        assert!(distance <= 512.0 * step(&network), "{} steps", distance / step(&network));
    }
}

#[test]
#[ignore = "needs ai-edge-litert 2.3.0 with openvino 2026.3.1 in RNN_NPU_PATH"]
fn trained_networks_run_on_the_cpu_kernels_and_the_plug_in() {
    let cases: [digits::Expected<'_>; 10] = [
        ("mlp", Format::Int8, &[]),
        ("mlp", Format::Int16, &[]),
        ("cnn", Format::Int8, &[]),
        ("cnn", Format::Int16, &[]),
        ("lstm", Format::Int8, &[("LSTM", "no form in TFLite")]),
        ("lstm", Format::Int16, &[("LSTM", "no form in TFLite")]),
        ("lstm in steps", Format::Int8, &[]),
        ("lstm in steps", Format::Int16, &[]),
        ("transformer", Format::Int8, &[]),
        ("transformer", Format::Int16, &[]),
    ];
    for runtime in ["LiteRT", "LiteRT, intel_openvino"] {
        digits::check(&Device::new("npu:0", device(runtime)), &cases);
    }
}
