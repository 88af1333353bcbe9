//! Networks on LiteRT: its CPU kernels, the path of vendors' plug-ins, and the files that are written for it.

#[allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]
mod common;

use std::{collections::HashMap, sync::Arc, time::Instant};

use common::*;
use neurenix_onnx::{
    Element, Value,
    edit::{self, Network},
    proto::{AttributeProto, attribute_type},
};
use phynexus::device::DeviceNature;
use phynexus_npu::{Accepts, Options, Place, Runtime, Search, litert, tflite};

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
    let outputs = program.run(&[given.clone()]).unwrap();
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

fn text(name: &str, value: &str) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        s: value.as_bytes().to_vec(),
        r#type: attribute_type::STRING,
        ..Default::default()
    }
}

fn ints(network: &mut Network, name: &str, numbers: &[i64]) {
    network.store(edit::integers(name, Element::Int64, &[numbers.len()], numbers));
}

/// A network from an image `[1, 4, 6, 8]` in which `build` appends nodes from `a` to `y`.
fn around(output: &[usize], build: impl Fn(&mut Network)) -> Network {
    let mut net = network(&[1, 4, 6, 8], ("y", output));
    add(&mut net, "Relu", &["x"], "r", vec![]);
    layer(&mut net, "Conv", "r", "a", &[4, 4, 1, 1], vec![]);
    build(&mut net);
    net
}

/// Operators in networks of floats, each after and most before a convolution, so that layouts change.
fn operators() -> Vec<(&'static str, Network)> {
    let list = integers_attribute;
    let pool =
        |pads: [i64; 4]| vec![list("kernel_shape", &[3, 3]), list("strides", &[2, 2]), list("pads", &pads)];
    let simple = |operator: &'static str| {
        (operator, around(&[1, 4, 6, 8], |net| add(net, operator, &["a"], "y", vec![])))
    };
    let mut cases: Vec<(&'static str, Network)> =
        ["Sigmoid", "Tanh", "HardSwish", "LeakyRelu", "Abs", "Exp", "Elu"].into_iter().map(simple).collect();
    let arithmetic = ["Add", "Sub", "Mul", "Div", "Max", "Min"].into_iter().map(|operator| {
        let net = around(&[1, 4, 6, 8], |net| {
            let constant: Vec<f32> = (0..4).map(|c| 0.5 + c as f32).collect();
            net.store(edit::floats("c", &[4, 1, 1], &constant));
            add(net, operator, &["a", "c"], "b", vec![]);
            layer(net, "Conv", "b", "d", &[4, 4, 3, 3], vec![list("pads", &[1, 1, 1, 1])]);
            add(net, "Add", &["d", "a"], "y", vec![]);
        });
        (operator, net)
    });
    cases.extend(arithmetic);
    cases.push((
        "Sqrt",
        around(&[1, 4, 6, 8], |net| {
            add(net, "Abs", &["a"], "b", vec![]);
            add(net, "Sqrt", &["b"], "y", vec![]);
        }),
    ));
    cases.push((
        "Gelu",
        around(&[1, 4, 6, 8], |net| {
            add(net, "Gelu", &["a"], "y", vec![text("approximate", "tanh")]);
        }),
    ));
    cases.push((
        "Clip",
        around(&[1, 4, 6, 8], |net| {
            net.store(edit::floats("low", &[], &[-0.25]));
            net.store(edit::floats("high", &[], &[0.5]));
            add(net, "Clip", &["a", "low", "high"], "y", vec![]);
        }),
    ));
    cases.push((
        "MaxPool with pads",
        around(&[1, 4, 3, 4], |net| {
            add(net, "MaxPool", &["a"], "y", pool([1, 1, 1, 1]));
        }),
    ));
    cases.push((
        "AveragePool",
        around(&[1, 4, 2, 3], |net| {
            add(net, "AveragePool", &["a"], "y", pool([0, 0, 0, 0]));
        }),
    ));
    cases.push((
        "Conv with uneven pads",
        around(&[1, 4, 3, 4], |net| {
            let attributes = vec![list("pads", &[1, 1, 1, 1]), list("strides", &[2, 2])];
            layer(net, "Conv", "a", "y", &[4, 4, 3, 3], attributes);
        }),
    ));
    cases.push((
        "Conv in groups, dilated",
        around(&[1, 8, 6, 8], |net| {
            let attributes = vec![
                list("pads", &[2, 2, 2, 2]),
                list("dilations", &[2, 2]),
                edit::integer_attribute("group", 4),
            ];
            layer(net, "Conv", "a", "y", &[8, 1, 3, 3], attributes);
        }),
    ));
    cases.push((
        "ConvTranspose",
        around(&[1, 4, 12, 16], |net| {
            let attributes = vec![list("strides", &[2, 2]), list("pads", &[1, 1, 1, 1])];
            layer(net, "ConvTranspose", "a", "y", &[4, 4, 4, 4], attributes);
        }),
    ));
    cases.push((
        "Flatten and Gemm",
        around(&[1, 5], |net| {
            add(net, "Flatten", &["a"], "f", vec![]);
            layer(net, "Gemm", "f", "y", &[192, 5], vec![]);
        }),
    ));
    cases.push((
        "Reshape",
        around(&[1, 48, 4], |net| {
            ints(net, "shape", &[1, 48, 4]);
            add(net, "Reshape", &["a", "shape"], "y", vec![]);
        }),
    ));
    cases.push((
        "Transpose and MatMul",
        around(&[1, 6, 8, 3], |net| {
            add(net, "Transpose", &["a"], "t", vec![list("perm", &[0, 2, 3, 1])]);
            net.store(edit::floats("m", &[4, 3], &numbers(5, 12, 0.5)));
            net.store(edit::floats("mb", &[3], &numbers(6, 3, 0.5)));
            add(net, "MatMul", &["t", "m"], "p", vec![]);
            add(net, "Add", &["p", "mb"], "y", vec![]);
        }),
    ));
    cases.push((
        "MatMul of two values",
        around(&[1, 4, 6, 6], |net| {
            add(net, "Transpose", &["a"], "t", vec![list("perm", &[0, 1, 3, 2])]);
            add(net, "MatMul", &["a", "t"], "y", vec![]);
        }),
    ));
    cases.push((
        "Softmax over channels",
        around(&[1, 4, 6, 8], |net| {
            add(net, "Softmax", &["a"], "y", vec![edit::integer_attribute("axis", 1)]);
        }),
    ));
    cases.push((
        "Concat",
        around(&[1, 8, 6, 8], |net| {
            layer(net, "Conv", "a", "b", &[4, 4, 1, 1], vec![]);
            add(net, "Concat", &["a", "b"], "y", vec![edit::integer_attribute("axis", 1)]);
        }),
    ));
    cases.push((
        "Pad",
        around(&[1, 4, 8, 8], |net| {
            ints(net, "pads", &[0, 0, 2, 0, 0, 0, 0, 0]);
            add(net, "Pad", &["a", "pads"], "y", vec![]);
        }),
    ));
    cases.push((
        "Slice",
        around(&[1, 2, 6, 4], |net| {
            ints(net, "starts", &[1, 0]);
            ints(net, "ends", &[3, 8]);
            ints(net, "axes", &[1, 3]);
            ints(net, "steps", &[1, 2]);
            add(net, "Slice", &["a", "starts", "ends", "axes", "steps"], "y", vec![]);
        }),
    ));
    cases.push((
        "Gather",
        around(&[1, 2, 6, 8], |net| {
            ints(net, "indices", &[3, 1]);
            add(net, "Gather", &["a", "indices"], "y", vec![edit::integer_attribute("axis", 1)]);
        }),
    ));
    for (mode, name) in [("nearest", "Resize to the nearest"), ("linear", "Resize, linear")] {
        cases.push((
            name,
            around(&[1, 4, 12, 16], |net| {
                net.store(edit::floats("scales", &[4], &[1.0, 1.0, 2.0, 2.0]));
                let attributes = vec![text("mode", mode)];
                add(net, "Resize", &["a", "", "scales"], "y", attributes);
            }),
        ));
    }
    cases.push((
        "ReduceMean",
        around(&[1, 4, 1, 8], |net| {
            ints(net, "axes", &[2]);
            add(net, "ReduceMean", &["a", "axes"], "y", vec![]);
        }),
    ));
    let mut line = network(&[1, 4, 20], ("y", &[1, 6, 10]));
    layer(&mut line, "Conv", "x", "a", &[6, 4, 3], vec![list("pads", &[1, 1])]);
    add(&mut line, "MaxPool", &["a"], "y", vec![list("kernel_shape", &[2]), list("strides", &[2])]);
    cases.push(("one dimension", line));
    cases
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
    let zeros =
        phynexus::Tensor::from_slice(&[0f32; 768], &[1, 3, 16, 16], phynexus_cpu::register()).unwrap();
    let bytes = file.inputs[0].encode(&zeros).unwrap();
    assert_eq!((bytes.len(), file.inputs[0].bytes()), (768, 768));
    assert_eq!(file.inputs[0].decode(&bytes).unwrap().to_vec::<f32>().unwrap(), [0f32; 768]);
}
