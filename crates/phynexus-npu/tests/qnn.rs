//! Networks on the emulator of Qualcomm's HTP, compared with the engine's CPU.

#![allow(clippy::result_large_err, reason = "the size of an error does not matter in a test")]

#[allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]
mod common;

use std::{collections::HashMap, fs, path::Path};

use common::*;
use neurenix::quantize::Format;
use neurenix_onnx::{Element, Value, edit::Network};
use phynexus::device::DeviceNature;
use phynexus_npu::*;

/// The emulator.
fn emulator() -> Device {
    phynexus_cpu::register();
    let search = Search::default();
    Device::find("npu-emulator:0", &search).unwrap()
}

/// The output `y` on the CPU.
fn on_cpu(network: &Network, inputs: &HashMap<String, Value>) -> Vec<f32> {
    let cpu = phynexus_cpu::register();
    network.observe(inputs.clone(), cpu, |name| name == "y").unwrap().1["y"].to_vec().unwrap()
}

fn run(compiled: &mut Compiled, inputs: &HashMap<String, Value>) -> Vec<f32> {
    let outputs = compiled.run(inputs).unwrap();
    assert_eq!(outputs.len(), 1);
    assert_eq!(outputs[0].0, "y");
    outputs[0].1.tensor().unwrap().to_vec().unwrap()
}

fn largest_difference(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    one.iter().zip(other).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max)
}

/// The scale of the output `y`.
fn step(network: &Network) -> f32 {
    network.floats("y_scale").unwrap().unwrap().1[0]
}

#[test]
#[ignore = "needs ONNX Runtime with onnxruntime-qnn in RNN_NPU_PATH"]
fn the_emulator_is_no_npu_unless_asked_for() {
    let emulator = emulator();
    assert_eq!(emulator.properties().nature, DeviceNature::Emulator);
    assert_eq!(emulator.properties().vendor, "Qualcomm");
    let hardware = Search::default().with_emulators(false);
    for device in devices(&hardware) {
        let is_hardware = device.properties().nature == DeviceNature::Hardware;
        assert_eq!(device.name().starts_with("npu:"), is_hardware, "{device:?}");
    }
    let all = Search::default().with_emulators(true);
    assert!(devices(&all).iter().all(|device| device.name().starts_with("npu:")));
    assert_eq!(default_device(&all).unwrap().name(), "npu:0");
}

#[test]
#[ignore = "needs ONNX Runtime with onnxruntime-qnn in RNN_NPU_PATH"]
fn quantized_networks_run_as_a_whole_with_nothing_left_to_the_cpu() {
    let device = emulator();
    let strict = Options { strict: true, ..Options::default() };
    let cases = [
        ("mlp", mlp(1), vec![1, 64], Element::Uint8),
        ("mlp", mlp(1), vec![1, 64], Element::Uint16),
        ("mlp", mlp(1), vec![1, 64], Element::Int16),
        ("cnn", cnn(), vec![1, 3, 16, 16], Element::Uint8),
        ("cnn", cnn(), vec![1, 3, 16, 16], Element::Uint16),
    ];
    for (name, float, shape, activation) in cases {
        let samples = [sample(1, &shape), sample(2, &shape)];
        let network = quantized(&float, &samples[0], activation);
        let mut compiled = Compiled::compile(&network, &device, &samples, &strict).unwrap();
        let report = compiled.placement_report();
        assert_eq!(report.on_device(), network.graph.node.len(), "{report}");
        assert_eq!(report.parts.len(), 1);
        for inputs in &samples {
            let (ours, theirs) = (on_cpu(&network, inputs), run(&mut compiled, inputs));
            let steps = largest_difference(&ours, &theirs) / step(&network);
            // Rounding errors of 8-bit weights reach many steps of 16 bits.
            let most = if activation == Element::Uint8 { 2.5 } else { 40.0 };
            assert!(steps <= most, "{name} {activation:?}: {steps} steps");
        }
        // The ranges are those of the first sample.
        let (exact, found) = (on_cpu(&float, &samples[0]), run(&mut compiled, &samples[0]));
        let range = exact.iter().fold(0.0f32, |most, y| most.max(y.abs()));
        let difference = largest_difference(&exact, &found);
        assert!(difference < 0.05 * range, "{name} {activation:?}: {difference} of {range}");
        let report = compiled.placement_report();
        assert!(report.failures.is_empty() && report.parts[0].seconds.is_some(), "{report}");
    }
}

#[test]
#[ignore = "needs ONNX Runtime with onnxruntime-qnn in RNN_NPU_PATH"]
fn networks_of_floats_run_in_16_bits() {
    let device = emulator();
    for (float, shape) in [(mlp(2), vec![2, 64]), (cnn(), vec![1, 3, 16, 16])] {
        let inputs = sample(3, &shape);
        let options = Options { strict: true, low_power: true, ..Options::default() };
        let mut compiled =
            Compiled::compile(&float, &device, std::slice::from_ref(&inputs), &options).unwrap();
        let (ours, theirs) = (on_cpu(&float, &inputs), run(&mut compiled, &inputs));
        let difference = largest_difference(&ours, &theirs);
        assert!(difference < 5e-3, "{difference}");
        assert!(difference > 1e-7, "the emulator computes in 16 bits: {difference}");
    }
}

#[test]
#[ignore = "needs ONNX Runtime with onnxruntime-qnn in RNN_NPU_PATH"]
fn a_transformer_runs_but_for_its_quantized_normalization() {
    let device = emulator();
    let samples = [sample(7, &[1, 8, 32]), sample(8, &[1, 8, 32])];
    for activation in [None, Some(Element::Uint8), Some(Element::Uint16)] {
        let network = activation.map_or_else(transformer, |a| quantized(&transformer(), &samples[0], a));
        let mut compiled = Compiled::compile(&network, &device, &samples, &Options::default()).unwrap();
        let report = compiled.placement_report();
        let left: Vec<&String> =
            report.parts.iter().filter(|part| !part.on_device).flat_map(|part| &part.nodes).collect();
        match activation {
            None => assert!(left.is_empty(), "{report}"),
            Some(_) => assert_eq!(left, ["normal", "normal_quantize"], "{report}"),
        }
        let (ours, theirs) = (on_cpu(&network, &samples[0]), run(&mut compiled, &samples[0]));
        let range = ours.iter().fold(0.0f32, |most, y| most.max(y.abs()));
        let difference = largest_difference(&ours, &theirs);
        assert!(difference < 0.05 * range, "{activation:?}: {difference} of {range}");
    }
}

#[test]
#[ignore = "needs ONNX Runtime with onnxruntime-qnn in RNN_NPU_PATH"]
fn operators_that_the_device_computes_less_exactly_are_found() {
    // The HTP takes one operand of a product of two results in 8 bits, and computes a softmax of signed bytes wrongly.
    let device = emulator();
    let inputs = sample(9, &[1, 8, 8]);
    for (operator, read, activation) in
        [("MatMul", &["x", "x"][..], Element::Uint16), ("Softmax", &["x"][..], Element::Int8)]
    {
        let mut float = network(&[1, 8, 8], ("y", &[1, 8, 8]));
        add(&mut float, operator, read, "y", vec![]);
        let network = quantized(&float, &inputs, activation);
        let samples = std::slice::from_ref(&inputs);
        let strict = Options { strict: true, ..Options::default() };
        let error = Compiled::compile(&network, &device, samples, &strict).unwrap_err();
        assert!(matches!(&error, Error::Difference { node, .. } if node == "y"), "{error}");
        let kept = Options { cpu_nodes: vec!["y".to_owned()], ..Options::default() };
        for (options, reason) in [(Options::default(), "differs from the CPU"), (kept, "cpu_nodes")] {
            let mut compiled = Compiled::compile(&network, &device, samples, &options).unwrap();
            assert_eq!(run(&mut compiled, &inputs), on_cpu(&network, &inputs));
            let report = compiled.placement_report();
            let place = &report.nodes.iter().find(|node| node.node == "y").unwrap().place;
            assert!(matches!(place, Place::Cpu(own) if own.contains(reason)), "{report}");
        }
    }
}

#[test]
#[ignore = "needs ONNX Runtime with onnxruntime-qnn in RNN_NPU_PATH"]
fn an_operator_that_the_runtime_refuses_runs_on_the_cpu() {
    let device = emulator();
    let inputs = sample(4, &[1, 16]);
    let network = quantized(&with_erf(), &inputs, Element::Uint8);
    let samples = std::slice::from_ref(&inputs);
    let mut compiled = Compiled::compile(&network, &device, samples, &Options::default()).unwrap();
    let report = compiled.placement_report();
    let places: Vec<bool> = report.parts.iter().map(|part| part.on_device).collect();
    assert_eq!(places, [true, false, true], "{report}");
    assert!(report.parts[0].named >= 3, "{report}");
    assert_eq!(report.parts[1].nodes, ["erf", "erf_quantize"]);
    assert!(!report.parts[1].reasons.is_empty());
    let on_cpu_nodes: Vec<&str> = (report.nodes.iter())
        .filter(|node| node.place != Place::Device)
        .map(|node| node.node.as_str())
        .collect();
    assert_eq!(on_cpu_nodes, ["a_dequantize", "erf", "erf_quantize"]);
    let difference = largest_difference(&on_cpu(&network, &inputs), &run(&mut compiled, &inputs));
    assert!(difference <= 2.5 * step(&network), "{difference}");

    let strict = Options { strict: true, ..Options::default() };
    let error = Compiled::compile(&network, &device, samples, &strict).unwrap_err();
    let Error::Refused { nodes, .. } = &error else { panic!("{error}") };
    assert_eq!(nodes.len(), 2, "{error}");
    assert!(nodes.iter().any(|node| node.starts_with("erf (Erf): ")), "{error}");
}

#[test]
#[ignore = "needs ONNX Runtime with onnxruntime-qnn in RNN_NPU_PATH"]
fn operators_on_which_the_runtime_fails_go_to_the_cpu_and_the_rest_still_runs() {
    let device = emulator();
    let inputs = sample(5, &[1, 3, 16, 16]);
    let network = quantized(&cnn(), &inputs, Element::Int16);
    let samples = std::slice::from_ref(&inputs);
    let mut compiled = Compiled::compile(&network, &device, samples, &Options::default()).unwrap();
    let report = compiled.placement_report();
    let left: Vec<&String> =
        report.parts.iter().filter(|part| !part.on_device).flat_map(|part| &part.nodes).collect();
    assert_eq!(left, ["b", "b_quantize", "pooled", "pooled_quantize"], "{report}");
    assert_eq!(report.parts.len(), 5, "{report}");
    let difference = largest_difference(&on_cpu(&network, &inputs), &run(&mut compiled, &inputs));
    assert!(difference <= 40.0 * step(&network), "{difference}");
}

#[test]
#[ignore = "needs ONNX Runtime with onnxruntime-qnn in RNN_NPU_PATH"]
fn compiled_networks_come_from_the_cache_and_damaged_entries_are_written_again() {
    let device = emulator();
    let folder = tempfile::tempdir().unwrap();
    let files = |folder: &Path| -> Vec<_> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let inputs = sample(6, &[1, 64]);
    let network = quantized(&mlp(1), &inputs, Element::Uint8);
    let options = Options { strict: true, cache: Some(folder.path().to_owned()), ..Options::default() };
    let compile = || Compiled::compile(&network, &device, std::slice::from_ref(&inputs), &options).unwrap();
    let first = run(&mut compile(), &inputs);
    let entries = files(folder.path());
    assert_eq!(entries.len(), 1);
    let entry = fs::read(&entries[0]).unwrap();
    let mut again = compile();
    assert_eq!(run(&mut again, &inputs), first);
    assert_eq!(again.placement_report().on_device(), network.graph.node.len());
    assert_eq!(fs::read(&entries[0]).unwrap(), entry, "it was not written again");

    let mut damaged = entry.clone();
    let last = damaged.len() - 9;
    damaged[last] ^= 0x55;
    for bad in [&damaged[..], &entry[..entry.len() / 2], b"", &[0; 4096]] {
        fs::write(&entries[0], bad).unwrap();
        assert_eq!(run(&mut compile(), &inputs), first);
        assert_ne!(fs::read(&entries[0]).unwrap(), bad);
        assert!(fs::read(&entries[0]).unwrap().len() > entry.len() / 2);
    }
    let low_power = Options { low_power: true, ..options.clone() };
    Compiled::compile(&network, &device, std::slice::from_ref(&inputs), &low_power).unwrap();
    assert_eq!(files(folder.path()).len(), 2, "other options are another entry");
}

#[test]
#[ignore = "needs ONNX Runtime with onnxruntime-qnn in RNN_NPU_PATH"]
fn memory_is_limited_and_reported() {
    let device = emulator();
    let inputs = sample(7, &[1, 3, 16, 16]);
    let network = quantized(&cnn(), &inputs, Element::Uint8);
    let samples = std::slice::from_ref(&inputs);
    let compile = |options: &Options| Compiled::compile(&network, &device, samples, options);
    let mut plain = compile(&Options::default()).unwrap();
    let expected = run(&mut plain, &inputs);
    // The largest values are the input, as floats, and what the first layers make of it, as bytes.
    let needed = plain.memory().activations;
    assert!((4 * 3 * 16 * 16..=2 * 4 * 8 * 16 * 16).contains(&needed), "{needed}");
    let limited = |limit| Options { memory_limit: Some(limit), ..Options::default() };
    let error = compile(&limited(needed - 1)).unwrap_err();
    assert!(matches!(error, Error::Memory { needed: n, limit } if n == needed && limit == needed - 1));

    let mut fits = compile(&limited(1 << 20)).unwrap();
    assert_eq!(run(&mut fits, &inputs), expected);
    assert!(fits.memory().allocated.unwrap() <= 1 << 20);
    // Without the planner, the runtime's own allocator refuses at run time.
    let mut relu = common::network(&[1, 3, 16, 16], ("y", &[1, 3, 16, 16]));
    add(&mut relu, "Relu", &["x"], "y", vec![]);
    let mut program = device.runtime().compile(&relu, &limited(4 * 3 * 16 * 16)).unwrap();
    assert!(program.run(&[inputs["x"].tensor().unwrap().clone()]).is_ok());
    let mut program = device.runtime().compile(&relu, &limited(4 * 3 * 16 * 16 - 1)).unwrap();
    let error = program.run(&[inputs["x"].tensor().unwrap().clone()]).unwrap_err();
    assert!(error.to_string().contains("memory"), "{error}");
    let save = Options { save_memory: true, ..Options::default() };
    let mut small = compile(&save).unwrap();
    assert_eq!(run(&mut small, &inputs), expected);
    let (less, more) = (small.memory().allocated.unwrap(), plain.memory().allocated.unwrap());
    assert!(less < more / 4, "{less} of {more}");
}

#[test]
#[ignore = "needs ONNX Runtime with onnxruntime-qnn in RNN_NPU_PATH"]
fn symbolic_shapes_are_compiled_when_they_are_needed() {
    let device = emulator();
    let inputs = |batch: usize| sample(8, &[batch, 64]);
    let mut network = quantized(&mlp(1), &inputs(1), Element::Uint8);
    symbolic(&mut network, "batch");
    let mut compiled =
        Compiled::compile(&network, &device, &[inputs(1)], &Options { strict: true, ..Options::default() })
            .unwrap();
    for batch in [1, 3, 1, 5] {
        let (ours, theirs) = (on_cpu(&network, &inputs(batch)), run(&mut compiled, &inputs(batch)));
        assert_eq!(theirs.len(), 10 * batch);
        assert!(largest_difference(&ours, &theirs) <= 2.5 * step(&network));
    }
    assert_eq!(compiled.bucket_count(), 3);

    let mut float = mlp(1);
    symbolic(&mut float, "batch");
    for network in [network, float] {
        // The emulator ends the process on a batch without rows.
        let mut compiled = Compiled::compile(&network, &device, &[inputs(1)], &Options::default()).unwrap();
        assert!(run(&mut compiled, &inputs(0)).is_empty());
        assert_eq!(compiled.placement_report().on_device(), 0);
    }
}

#[test]
#[ignore = "needs ONNX Runtime with onnxruntime-qnn in RNN_NPU_PATH"]
fn trained_networks_run_without_the_cpu_but_for_products_of_16_bits() {
    // In the emulator, some products of a sigmoid and a hyperbolic tangent of 16 bits overflow, and the tangent of one
    // is wrong. Because of one product more than are tried again, the rest of its part is on the CPU.
    const OVERFLOWS: &[(&str, &str)] = &[("*", "(Mul): its output"), ("Tanh", "(Tanh): its output")];
    let cases: [digits::Expected<'_>; 10] = [
        ("mlp", Format::Uint8, &[]),
        ("mlp", Format::Uint16, &[]),
        ("cnn", Format::Uint8, &[]),
        ("cnn", Format::Uint16, &[]),
        ("lstm", Format::Uint8, &[]),
        ("lstm", Format::Uint16, &[]),
        ("lstm in steps", Format::Uint8, &[]),
        ("lstm in steps", Format::Uint16, OVERFLOWS),
        ("transformer", Format::Uint8, &[]),
        ("transformer", Format::Uint16, &[]),
    ];
    digits::check(&emulator(), &cases);
}
