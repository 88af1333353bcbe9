//! The placement pass, with a runtime that is made of the engine's CPU and refuses, fails or computes wrongly as a test
//! wants it.

#![allow(clippy::result_large_err, reason = "the size of an error does not matter in a test")]

#[allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]
mod common;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use common::*;
use neurenix_onnx::{
    Element, Model, Value,
    edit::{self, Network, ValueType},
};
use phynexus::{Tensor, device::DeviceNature, tensor::Generator};
use phynexus_npu::*;

/// A runtime of a test.
#[derive(Debug)]
struct Fake {
    properties: Properties,
    /// Operators that it says it does not take.
    unknown: Vec<&'static str>,
    /// Operators that it refuses when it compiles.
    refused: Vec<&'static str>,
    /// Operators that it places on a CPU of its own, unless it is strict.
    left: Vec<&'static str>,
    /// The most operators that it takes in one network.
    most: usize,
    /// The node whose results it gets wrong, and by how much.
    wrong: Option<(&'static str, f32)>,
    /// Whether what it compiled fails to run after so many runs.
    runs: usize,
    /// What it says while it fails to compile, and how many times it still fails.
    message: Option<&'static str>,
    fails: Arc<AtomicUsize>,
    /// The nodes of each network that it was asked to compile.
    asked: Arc<Mutex<Vec<Vec<String>>>>,
}

impl Fake {
    fn new() -> Fake {
        let properties = Properties {
            vendor: "nobody".to_owned(),
            model: "test".to_owned(),
            runtime: "fake".to_owned(),
            version: "1".to_owned(),
            architecture: None,
            memory: None,
            nature: DeviceNature::Emulator,
        };
        Fake {
            properties,
            unknown: Vec::new(),
            refused: Vec::new(),
            left: Vec::new(),
            most: usize::MAX,
            wrong: None,
            runs: usize::MAX,
            message: None,
            fails: Arc::default(),
            asked: Arc::default(),
        }
    }

    fn device(self) -> Device {
        Device::new("fake:0", Arc::new(self))
    }
}

#[derive(Debug)]
struct FakeProgram {
    model: Model,
    inputs: Vec<String>,
    runs: usize,
    placement: Vec<Placed>,
}

impl Program for FakeProgram {
    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        if self.runs == 0 {
            return Err(Error::Runtime { runtime: "fake".to_owned(), message: "it broke".to_owned() });
        }
        self.runs -= 1;
        let given = self.inputs.iter().cloned().zip(inputs.iter().cloned().map(Value::Tensor)).collect();
        let values = self.model.run(given, &Generator::new(0))?;
        values.iter().map(|value| Ok(value.tensor()?.clone())).collect()
    }

    fn placement(&self) -> &[Placed] {
        &self.placement
    }

    fn memory(&self) -> Option<u64> {
        None
    }
}

impl Runtime for Fake {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn accepts(&self, network: &Network, node: usize, _: &HashMap<String, ValueType>) -> Accepts {
        match self.unknown.contains(&&*network.graph.node[node].op_type) {
            true => Accepts::No("it is unknown".to_owned()),
            false => Accepts::Yes,
        }
    }

    fn compile(&self, network: &Network, options: &Options) -> Result<Box<dyn Program>> {
        let nodes = &network.graph.node;
        self.asked.lock().unwrap().push(nodes.iter().map(|node| node.name.clone()).collect());
        let error = |message: String| Err(Error::Runtime { runtime: "fake".to_owned(), message });
        let is_left =
            self.fails.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if let (Some(message), Ok(_)) = (self.message, is_left) {
            return error(message.to_owned());
        }
        if let Some(node) = nodes.iter().find(|node| self.refused.contains(&&*node.op_type)) {
            return error(format!("{} is refused", node.op_type));
        }
        let operators = nodes.iter().filter(|node| !node.op_type.ends_with("Linear")).count();
        if operators > self.most || operators == 0 {
            return error(format!("{operators} operators are too many or too few"));
        }
        let mut wrong = network.clone();
        if let Some((name, by)) = self.wrong
            && let Some(at) = nodes.iter().position(|node| node.name == name)
        {
            let output = nodes[at].output[0].clone();
            wrong.graph.node[at].output[0] = format!("{output}:right");
            wrong.store(edit::floats("by", &[], &[by]));
            let add = edit::node("Add", "wrong", &[&format!("{output}:right"), "by"], &[&output], vec![]);
            wrong.graph.node.insert(at + 1, add);
        }
        let place = |operator: &str| match self.left.contains(&operator) && !options.strict {
            true => Place::Cpu("it was left".to_owned()),
            false => Place::Device,
        };
        Ok(Box::new(FakeProgram {
            model: wrong.model(phynexus_cpu::register())?,
            inputs: network.graph.input.iter().map(|input| input.name.clone()).collect(),
            runs: self.runs,
            placement: (nodes.iter())
                .map(|node| Placed {
                    node: node.name.clone(),
                    operator: node.op_type.clone(),
                    place: place(&node.op_type),
                })
                .collect(),
        }))
    }
}

fn numbers_of(outputs: &[(String, Value)], name: &str) -> Vec<f32> {
    let (_, value) = outputs.iter().find(|(own, _)| own == name).unwrap();
    value.tensor().unwrap().to_vec().unwrap()
}

/// What the CPU computes.
fn expected(network: &Network, inputs: &HashMap<String, Value>, name: &str) -> Vec<f32> {
    let cpu = phynexus_cpu::register();
    network.observe(inputs.clone(), cpu, |own| own == name).unwrap().1[name].to_vec().unwrap()
}

fn places(report: &Report) -> Vec<(bool, Vec<&str>)> {
    let part = |part: &'_ PartReport| part.on_device;
    report.parts.iter().map(|own| (part(own), own.nodes.iter().map(String::as_str).collect())).collect()
}

#[test]
fn compiled_networks_can_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<Compiled>();
    is_send::<Device>();
}

/// A branching network of floats: `x` to Tanh, then a branch with Erf and one with two layers, and both added.
fn branches() -> Network {
    let mut net = network(&[1, 8], ("y", &[1, 8]));
    add(&mut net, "Tanh", &["x"], "t", vec![]);
    add(&mut net, "Erf", &["t"], "e", vec![]);
    layer(&mut net, "Gemm", "t", "a", &[8, 8], vec![]);
    layer(&mut net, "Gemm", "a", "b", &[8, 8], vec![]);
    add(&mut net, "Add", &["e", "b"], "y", vec![]);
    net
}

#[test]
fn what_is_refused_runs_on_the_cpu_and_the_rest_in_few_parts() {
    let (network, inputs) = (branches(), sample(1, &[1, 8]));
    for is_known in [false, true] {
        let mut fake = Fake::new();
        (if is_known { &mut fake.unknown } else { &mut fake.refused }).push("Erf");
        let asked = fake.asked.clone();
        let device = fake.device();
        let samples = std::slice::from_ref(&inputs);
        let mut compiled = Compiled::compile(&network, &device, samples, &Options::default()).unwrap();
        let outputs = compiled.run(&inputs).unwrap();
        let report = compiled.placement_report();
        if is_known {
            // The fake does not refuse the whole when it compiles.
            assert_eq!(places(&report), [(true, vec!["t", "e", "a", "b", "y"])]);
        } else {
            assert_eq!(places(&report), [(true, vec!["t", "a", "b"]), (false, vec!["e"]), (true, vec!["y"])]);
            assert_eq!(report.parts[1].reasons, ["fake: Erf is refused"]);
        }
        assert_eq!(numbers_of(&outputs, "y"), expected(&network, &inputs, "y"));

        // What a device refused is known the next time: only the whole and the parts are compiled.
        let before = asked.lock().unwrap().len();
        Compiled::compile(&network, &device, samples, &Options::default()).unwrap();
        let count = asked.lock().unwrap().len() - before;
        assert_eq!(count, if is_known { 1 } else { 3 });

        let strict = Options { strict: true, ..Options::default() };
        let result = Compiled::compile(&network, &device, samples, &strict);
        match result {
            Ok(_) => assert!(is_known),
            Err(Error::Refused { nodes, device }) => {
                assert_eq!((nodes, &*device), (vec!["e (Erf): fake: Erf is refused".to_owned()], "fake:0"));
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn nodes_can_be_kept_on_the_cpu() {
    let (network, inputs) = (branches(), sample(1, &[1, 8]));
    let options = Options { cpu_nodes: vec!["a".to_owned()], ..Options::default() };
    let samples = std::slice::from_ref(&inputs);
    let compiled = Compiled::compile(&network, &Fake::new().device(), samples, &options).unwrap();
    let report = compiled.placement_report();
    assert_eq!(places(&report), [(true, vec!["t", "e"]), (false, vec!["a"]), (true, vec!["b", "y"])]);
    assert!(report.parts[1].reasons[0].contains("cpu_nodes"), "{report}");
}

#[test]
fn quantized_operators_stay_with_what_quantizes_them() {
    let inputs = sample(2, &[1, 16]);
    let network = quantized(&with_erf(), &inputs, Element::Uint8);
    let device = Fake { refused: vec!["Erf"], ..Fake::new() }.device();
    let samples = std::slice::from_ref(&inputs);
    let mut compiled = Compiled::compile(&network, &device, samples, &Options::default()).unwrap();
    let report = compiled.placement_report();
    assert_eq!(
        places(&report),
        [
            (true, vec!["x_quantize", "a", "a_quantize"]),
            (false, vec!["erf", "erf_quantize"]),
            (true, vec!["y", "y_quantize", "y_dequantize"]),
        ]
    );
    assert_eq!(numbers_of(&compiled.run(&inputs).unwrap(), "y"), expected(&network, &inputs, "y"));
}

#[test]
fn a_part_that_is_refused_as_a_whole_is_split() {
    let (network, inputs) = (mlp(1), sample(3, &[1, 64]));
    let samples = std::slice::from_ref(&inputs);
    let device = Fake { most: 2, ..Fake::new() }.device();
    let mut compiled = Compiled::compile(&network, &device, samples, &Options::default()).unwrap();
    let report = compiled.placement_report();
    assert!(report.parts.iter().all(|part| part.on_device), "{report}");
    assert_eq!(report.parts.len(), 3, "{report}");
    assert_eq!(report.splits.len(), 2, "{report}");
    assert_eq!(report.on_device(), 5);
    assert_eq!(numbers_of(&compiled.run(&inputs).unwrap(), "y"), expected(&network, &inputs, "y"));

    // Nothing at all is taken: everything runs on the CPU, and strict mode says what.
    let device = Fake { most: 0, ..Fake::new() }.device();
    let mut compiled = Compiled::compile(&network, &device, samples, &Options::default()).unwrap();
    assert_eq!(compiled.placement_report().on_device(), 0);
    assert_eq!(numbers_of(&compiled.run(&inputs).unwrap(), "y"), expected(&network, &inputs, "y"));
    let strict = Options { strict: true, ..Options::default() };
    let error = Compiled::compile(&network, &device, samples, &strict).unwrap_err();
    assert!(matches!(error, Error::Refused { nodes, .. } if nodes.len() == 5));
}

#[test]
fn a_difference_names_the_first_node_that_differs() {
    let samples = [sample(4, &[1, 64]), sample(5, &[1, 64])];
    let quantized_network = quantized(&mlp(1), &samples[0], Element::Uint8);
    for (network, node) in
        [(mlp(1), "b"), (quantized_network.clone(), "b"), (mlp(1), "a_relu"), (quantized_network, "y")]
    {
        let device = Fake { wrong: Some((node, 0.5)), ..Fake::new() }.device();
        let strict = Options { strict: true, ..Options::default() };
        let error = Compiled::compile(&network, &device, &samples, &strict).unwrap_err();
        let Error::Difference { node: found, difference, bound, .. } = &error else { panic!("{error}") };
        assert_eq!(found, node, "{error}");
        assert!(difference > bound && *bound < 0.2, "{error}");

        // Otherwise the node goes to the CPU with that reason, and the rest stays on the device.
        let mut compiled = Compiled::compile(&network, &device, &samples, &Options::default()).unwrap();
        let report = compiled.placement_report();
        let on_cpu: Vec<&PartReport> = report.parts.iter().filter(|part| !part.on_device).collect();
        assert_eq!((on_cpu.len(), on_cpu[0].nodes[0].as_str()), (1, node), "{report}");
        assert!(on_cpu[0].nodes.len() <= 3 && report.parts.len() > 1, "{report}");
        assert!(on_cpu[0].reasons[0].contains("differs from the CPU at the node"), "{report}");
        let outputs = compiled.run(&samples[1]).unwrap();
        assert_eq!(numbers_of(&outputs, "y"), expected(&network, &samples[1], "y"));
    }
    // The runtime is right within the error of its numbers: two steps of 8 bits.
    let network = quantized(&mlp(1), &samples[0], Element::Uint8);
    let (_, step) = network.floats("y_scale").unwrap().unwrap();
    let device = Fake { wrong: Some(("y", 1.9 * step[0])), ..Fake::new() }.device();
    Compiled::compile(&network, &device, &samples, &Options::default()).unwrap();
}

#[test]
fn a_failure_that_may_pass_is_tried_again_and_a_refusal_is_not() {
    let (network, inputs) = (branches(), sample(1, &[1, 8]));
    let samples = std::slice::from_ref(&inputs);
    for (message, is_lasting) in [("out of memory", false), ("it is not supported", true)] {
        let failing = Fake { message: Some(message), ..Fake::new() };
        let count = failing.fails.clone();
        count.store(1000, Ordering::Relaxed);
        let device = failing.device();
        let compile = || Compiled::compile(&network, &device, samples, &Options::default()).unwrap();
        assert_eq!(compile().placement_report().on_device(), 0);
        // From now on the whole network fails once, and its parts compile.
        count.store(1, Ordering::Relaxed);
        let on_device = compile().placement_report().on_device();
        assert_eq!(on_device, if is_lasting { 0 } else { 5 }, "{message}");
    }
}

#[test]
fn what_fails_on_the_device_runs_on_the_cpu_and_the_report_says_so() {
    let (network, inputs) = (mlp(1), sample(6, &[1, 64]));
    let samples = std::slice::from_ref(&inputs);
    // One run is the comparison with the CPU.
    let device = Fake { runs: 2, ..Fake::new() }.device();
    let mut compiled = Compiled::compile(&network, &device, samples, &Options::default()).unwrap();
    for run in 0..4 {
        let outputs = compiled.run(&inputs).unwrap();
        assert_eq!(numbers_of(&outputs, "y"), expected(&network, &inputs, "y"));
        let failures = compiled.placement_report().failures;
        assert_eq!(failures.len(), run.min(1), "failures are counted, not listed");
        assert_eq!(failures.iter().any(|line| line.ends_with(&format!(", {run} times"))), run > 1);
    }
    let report = compiled.placement_report();
    let never = Fake { runs: 0, ..Fake::new() }.device();
    let mut compiled = Compiled::compile(&network, &never, samples, &Options::default()).unwrap();
    assert_eq!(compiled.placement_report().on_device(), 0);
    assert_eq!(numbers_of(&compiled.run(&inputs).unwrap(), "y"), expected(&network, &inputs, "y"));
    let strict = Options { strict: true, ..Options::default() };
    let error = Compiled::compile(&network, &never, samples, &strict).unwrap_err();
    assert!(matches!(&error, Error::Refused { .. }) && error.to_string().contains("it broke"), "{error}");
    let report = report.to_string();
    assert!(report.contains("it broke; the CPU computed it"), "{report}");
}

#[test]
fn the_cpu_computes_with_floats_that_16_bits_do_not_hold() {
    let cpu = phynexus_cpu::register();
    let constant = |number: f32| {
        let tensor = Tensor::from_slice(&[number; 64], &[1, 64], cpu).unwrap();
        HashMap::from([("x".to_owned(), Value::Tensor(tensor))])
    };
    let bits = |numbers: Vec<f32>| numbers.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let float = |operator: &str| {
        let mut net = network(&[1, 64], ("y", &[1, 64]));
        add(&mut net, operator, &["x", "x"], "y", vec![]);
        net
    };
    let compile = |network: &Network, strict: bool| {
        let options = Options { strict, ..Options::default() };
        Compiled::compile(network, &Fake::new().device(), &[constant(1.0)], &options).unwrap()
    };
    // What a device makes of too large results may be the largest number that there is.
    let cases = [
        ("Mul", 1e5, "x"),
        ("Mul", f32::NAN, "x"),
        ("Mul", f32::NEG_INFINITY, "x"),
        ("Mul", 256.0, "y"),
        ("Max", 65504.0, "y"),
    ];
    for (operator, number, value) in cases {
        let network = float(operator);
        let mut compiled = compile(&network, false);
        let outputs = compiled.run(&constant(number)).unwrap();
        assert_eq!(bits(numbers_of(&outputs, "y")), bits(expected(&network, &constant(number), "y")));
        let failures = compiled.placement_report().failures;
        assert!(
            failures.len() == 1 && failures[0].contains(&format!("\"{value}\" has floats")),
            "{failures:?}"
        );
        let error = compile(&network, true).run(&constant(number)).unwrap_err();
        assert!(matches!(&error, Error::Range { value: found } if found == value), "{error}");
    }
    compile(&float("Mul"), true).run(&constant(255.0)).unwrap();
    // Quantization limits floats itself.
    let network = quantized(&mlp(1), &constant(1.0), Element::Uint8);
    let mut compiled = compile(&network, true);
    let outputs = compiled.run(&constant(1e5)).unwrap();
    assert_eq!(numbers_of(&outputs, "y"), expected(&network, &constant(1e5), "y"));
    assert!(compiled.placement_report().failures.is_empty());
}

#[test]
fn a_runtime_that_would_leave_nodes_to_a_cpu_is_asked_to_be_strict() {
    let (network, inputs) = (branches(), sample(7, &[1, 8]));
    let device = Fake { left: vec!["Erf"], ..Fake::new() }.device();
    let samples = std::slice::from_ref(&inputs);
    let compiled = Compiled::compile(&network, &device, samples, &Options::default()).unwrap();
    assert_eq!(compiled.placement_report().on_device(), 5);
}

#[test]
fn shapes_are_compiled_on_demand_and_the_oldest_go() {
    let mut network = mlp(1);
    symbolic(&mut network, "batch");
    let inputs = |batch: usize| sample(8, &[batch, 64]);
    let fake = Fake::new();
    let asked = fake.asked.clone();
    let mut compiled =
        Compiled::compile(&network, &fake.device(), &[inputs(1), inputs(2)], &Options::default()).unwrap();
    assert_eq!((compiled.bucket_count(), asked.lock().unwrap().len()), (2, 2));
    for batch in [2, 1, 3, 4, 5, 6, 7, 8, 1, 9, 1, 9] {
        let outputs = compiled.run(&inputs(batch)).unwrap();
        assert_eq!(numbers_of(&outputs, "y"), expected(&network, &inputs(batch), "y"));
    }
    // 2 went when 9 came; 1 stayed because it was used.
    assert_eq!((compiled.bucket_count(), asked.lock().unwrap().len()), (8, 9));
    compiled.run(&inputs(2)).unwrap();
    assert_eq!((compiled.bucket_count(), asked.lock().unwrap().len()), (8, 10));
}

#[test]
fn empty_values_do_not_reach_the_device() {
    let mut network = mlp(1);
    symbolic(&mut network, "batch");
    let fake = Fake::new();
    let asked = fake.asked.clone();
    let device = fake.device();
    let compile = |strict: bool| {
        let options = Options { strict, ..Options::default() };
        Compiled::compile(&network, &device, &[sample(1, &[0, 64])], &options)
    };
    let mut compiled = compile(false).unwrap();
    assert_eq!(compiled.run(&sample(1, &[0, 64])).unwrap()[0].1.shape().unwrap(), [0, 10]);
    let report = compiled.placement_report();
    assert_eq!(report.on_device(), 0);
    assert_eq!(report.parts[0].reasons, ["the network has empty values"]);
    assert!(asked.lock().unwrap().is_empty());
    assert!(matches!(compile(true).unwrap_err(), Error::Refused { .. }));
    compiled.run(&sample(1, &[1, 64])).unwrap();
    assert_eq!(compiled.placement_report().on_device(), 5);
}

#[test]
fn wrong_inputs_are_errors() {
    let network = mlp(1);
    let device = Fake::new().device();
    let compile = |samples: &[HashMap<String, Value>]| {
        Compiled::compile(&network, &device, samples, &Options::default())
    };
    assert!(compile(&[]).unwrap_err().to_string().contains("at least one sample"));
    assert!(compile(&[HashMap::new()]).unwrap_err().to_string().contains("\"x\" is missing"));
    assert!(compile(&[sample(1, &[1, 63])]).is_err());
    let mut compiled = compile(&[sample(1, &[1, 64])]).unwrap();
    let mut more = sample(1, &[1, 64]);
    more.insert("z".to_owned(), more["x"].clone());
    assert!(compiled.run(&more).unwrap_err().to_string().contains("no input \"z\""));
    let cpu = phynexus_cpu::register();
    let whole = Tensor::from_slice(&[1i32; 64], &[1, 64], cpu).unwrap();
    assert!(compiled.run(&HashMap::from([("x".to_owned(), Value::Tensor(whole))])).is_err());
    assert!(compiled.run(&sample(1, &[64])).is_err());
}

#[test]
fn the_planner_refuses_what_cannot_fit() {
    let (network, inputs) = (mlp(4), sample(9, &[4, 64]));
    let device = Fake::new().device();
    let compile = |limit: Option<u64>| {
        let options = Options { memory_limit: limit, ..Options::default() };
        Compiled::compile(&network, &device, std::slice::from_ref(&inputs), &options)
    };
    let memory = compile(None).unwrap().memory();
    // The first layer has its input and its result at the same time.
    assert_eq!(memory.activations, 2 * 4 * 64 * 4);
    assert_eq!(memory.weights, 4 * (64 * 64 + 64 + 64 * 32 + 32 + 32 * 10 + 10));
    assert_eq!(memory.allocated, None);
    assert!(compile(Some(memory.activations)).is_ok());
    let error = compile(Some(memory.activations - 1)).unwrap_err();
    assert!(matches!(error, Error::Memory { needed: 2048, limit: 2047 }), "{error}");
}
