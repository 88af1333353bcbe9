//! Networks that are trained on the bundled digits: what each runtime makes of their quantized forms.

use std::{collections::HashMap, time::Instant};

use neurenix::{
    data::digits_split,
    loss::Loss,
    nn::{Module, Onnx},
    optim::{Optimizer, Rule},
    phynexus::tensor::Reduction,
    quantize::{self, Format},
};
use neurenix_onnx::{
    Element, Value,
    edit::{self, Network},
};
use phynexus::{Device as EngineDevice, Tensor, tensor::Generator};
use phynexus_npu::{Compiled, Device, Options, Place, Placed};

use super::*;

/// The images that a device gets at once.
pub const BATCH: usize = 16;
/// How many batches of the test set the runtimes classify.
const TESTS: usize = 6;
/// How many batches calibrate.
const SAMPLES: usize = 8;
/// The size of the LSTM's state.
const HIDDEN: usize = 24;
/// The width of the transformer.
const WIDTH: usize = 32;

/// A network of floats that is trained.
pub struct Trained {
    pub name: &'static str,
    pub network: Network,
    /// The extents of one image.
    pub image: Vec<usize>,
}

/// All networks. The LSTM is there as one operator and as the operators of its steps, with the same weights.
pub fn trained() -> Vec<Trained> {
    let lstm = train(lstm(), &[8, 8], 8, 0.01);
    let steps = unrolled(&lstm);
    let trained = |name, network, image: &[usize]| Trained { name, network, image: image.to_vec() };
    vec![
        trained("mlp", train(mlp(BATCH), &[64], 6, 0.005), &[64]),
        trained("cnn", train(digits_cnn(), &[1, 8, 8], 6, 0.01), &[1, 8, 8]),
        trained("lstm", lstm, &[8, 8]),
        trained("lstm in steps", steps, &[8, 8]),
        trained("transformer", train(block(), &[8, 8], 8, 0.005), &[8, 8]),
    ]
}

fn matrix(net: &mut Network, from: &str, to: &str, shape: [usize; 2]) {
    let weight = format!("{to}_w");
    let seed = to.bytes().map(u32::from).sum();
    net.store(edit::floats(
        &weight,
        &shape,
        &numbers(seed, shape[0] * shape[1], (shape[0] as f32).sqrt().recip()),
    ));
    add(net, "MatMul", &[from, &weight], to, vec![]);
}

fn ints(net: &mut Network, name: &str, numbers: &[i64]) {
    net.store(edit::integers(name, Element::Int64, &[numbers.len()], numbers));
}

/// Two convolutions with pooling.
fn digits_cnn() -> Network {
    let mut net = network(&[BATCH, 1, 8, 8], ("y", &[BATCH, 10]));
    let same = || integers_attribute("pads", &[1, 1, 1, 1]);
    let pool = || vec![integers_attribute("kernel_shape", &[2, 2]), integers_attribute("strides", &[2, 2])];
    layer(&mut net, "Conv", "x", "a", &[8, 1, 3, 3], vec![same()]);
    add(&mut net, "Relu", &["a"], "a_relu", vec![]);
    add(&mut net, "MaxPool", &["a_relu"], "a_pool", pool());
    layer(&mut net, "Conv", "a_pool", "b", &[16, 8, 3, 3], vec![same()]);
    add(&mut net, "Relu", &["b"], "b_relu", vec![]);
    add(&mut net, "MaxPool", &["b_relu"], "b_pool", pool());
    add(&mut net, "Flatten", &["b_pool"], "flat", vec![]);
    layer(&mut net, "Gemm", "flat", "y", &[64, 10], vec![]);
    net
}

/// The rows of an image, each through a layer, in an LSTM; its last state in a layer.
fn lstm() -> Network {
    let mut net = network(&[BATCH, 8, 8], ("y", &[BATCH, 10]));
    rows(&mut net);
    add(&mut net, "Transpose", &["e_relu"], "turned", vec![integers_attribute("perm", &[1, 0, 2])]);
    let spread = (HIDDEN as f32).sqrt().recip();
    net.store(edit::floats("w", &[1, 4 * HIDDEN, 16], &numbers(1, 4 * HIDDEN * 16, spread)));
    net.store(edit::floats("r", &[1, 4 * HIDDEN, HIDDEN], &numbers(2, 4 * HIDDEN * HIDDEN, spread)));
    net.store(edit::floats("b", &[1, 8 * HIDDEN], &numbers(3, 8 * HIDDEN, 0.1)));
    let size = edit::integer_attribute("hidden_size", HIDDEN as i64);
    net.graph.node.push(edit::node("LSTM", "lstm", &["turned", "w", "r", "b"], &["", "state"], vec![size]));
    ints(&mut net, "first", &[0]);
    add(&mut net, "Squeeze", &["state", "first"], "last", vec![]);
    layer(&mut net, "Gemm", "last", "y", &[HIDDEN, 10], vec![]);
    net
}

/// Each row through a layer.
fn rows(net: &mut Network) {
    matrix(net, "x", "e", [8, 16]);
    net.store(edit::floats("e_b", &[16], &numbers(4, 16, 0.1)));
    add(net, "Add", &["e", "e_b"], "e_sum", vec![]);
    add(net, "Relu", &["e_sum"], "e_relu", vec![]);
}

/// The LSTM's steps as products, sigmoids and sums.
fn unrolled(lstm: &Network) -> Network {
    let floats = |name: &str| lstm.floats(name).unwrap().unwrap().1;
    let transposed = |numbers: &[f32], columns: usize| -> Vec<f32> {
        (0..numbers.len()).map(|at| numbers[at % (4 * HIDDEN) * columns + at / (4 * HIDDEN)]).collect()
    };
    let mut net = network(&[BATCH, 8, 8], ("y", &[BATCH, 10]));
    rows(&mut net);
    for name in ["e_w", "e_b", "y_w", "y_b"] {
        net.store(edit::floats(name, &lstm.floats(name).unwrap().unwrap().0, &floats(name)));
    }
    let biases = floats("b");
    let bias: Vec<f32> = (0..4 * HIDDEN).map(|at| biases[at] + biases[4 * HIDDEN + at]).collect();
    net.store(edit::floats("w", &[16, 4 * HIDDEN], &transposed(&floats("w"), 16)));
    net.store(edit::floats("r", &[HIDDEN, 4 * HIDDEN], &transposed(&floats("r"), HIDDEN)));
    net.store(edit::floats("b", &[4 * HIDDEN], &bias));
    ints(&mut net, "one", &[1]);
    let cut = |net: &mut Network, from: &str, to: &str, start: usize, size: usize| {
        let names = [format!("{to}_start"), format!("{to}_end")];
        ints(net, &names[0], &[start as i64]);
        ints(net, &names[1], &[(start + size) as i64]);
        add(net, "Slice", &[from, &names[0], &names[1], "one"], to, vec![]);
    };
    for step in 0..8 {
        let name = |what: &str| format!("{what}{step}");
        let before = |what: &str| format!("{what}{}", step - 1);
        cut(&mut net, "e_relu", &name("row"), step, 1);
        add(&mut net, "Squeeze", &[&name("row"), "one"], &name("vector"), vec![]);
        add(&mut net, "Gemm", &[&name("vector"), "w", "b"], &name("own"), vec![]);
        let mut gates = name("own");
        if step > 0 {
            add(&mut net, "MatMul", &[&before("h"), "r"], &name("past"), vec![]);
            add(&mut net, "Add", &[&gates, &name("past")], &name("gates"), vec![]);
            gates = name("gates");
        }
        for (place, (gate, operator)) in
            [("i", "Sigmoid"), ("o", "Sigmoid"), ("f", "Sigmoid"), ("g", "Tanh")].into_iter().enumerate()
        {
            cut(&mut net, &gates, &name(&format!("{gate}_in")), place * HIDDEN, HIDDEN);
            add(&mut net, operator, &[&name(&format!("{gate}_in"))], &name(gate), vec![]);
        }
        let new = if step > 0 { name("new") } else { name("c") };
        add(&mut net, "Mul", &[&name("i"), &name("g")], &new, vec![]);
        if step > 0 {
            add(&mut net, "Mul", &[&name("f"), &before("c")], &name("kept"), vec![]);
            add(&mut net, "Add", &[&name("kept"), &new], &name("c"), vec![]);
        }
        add(&mut net, "Tanh", &[&name("c")], &name("c_tanh"), vec![]);
        add(&mut net, "Mul", &[&name("o"), &name("c_tanh")], &name("h"), vec![]);
    }
    add(&mut net, "Gemm", &["h7", "y_w", "y_b"], "y", vec![]);
    net.prune();
    net
}

/// A block of a transformer over the rows of an image, and a layer of the mean of its results.
fn block() -> Network {
    let mut net = network(&[BATCH, 8, 8], ("y", &[BATCH, 10]));
    matrix(&mut net, "x", "e", [8, WIDTH]);
    net.store(edit::floats("places", &[8, WIDTH], &numbers(4, 8 * WIDTH, 0.5)));
    add(&mut net, "Add", &["e", "places"], "embedded", vec![]);
    for name in ["query", "key", "value"] {
        matrix(&mut net, "embedded", name, [WIDTH, WIDTH]);
    }
    add(&mut net, "Transpose", &["key"], "turned", vec![integers_attribute("perm", &[0, 2, 1])]);
    add(&mut net, "MatMul", &["query", "turned"], "products", vec![]);
    net.store(edit::floats("scale", &[], &[(WIDTH as f32).sqrt().recip()]));
    add(&mut net, "Mul", &["products", "scale"], "scores", vec![]);
    add(&mut net, "Softmax", &["scores"], "shares", vec![]);
    add(&mut net, "MatMul", &["shares", "value"], "attended", vec![]);
    matrix(&mut net, "attended", "projected", [WIDTH, WIDTH]);
    add(&mut net, "Add", &["embedded", "projected"], "sum", vec![]);
    net.store(edit::floats("gain", &[WIDTH], &[1.0; WIDTH]));
    net.store(edit::floats("shift", &[WIDTH], &[0.0; WIDTH]));
    add(&mut net, "LayerNormalization", &["sum", "gain", "shift"], "normal", vec![]);
    matrix(&mut net, "normal", "up", [WIDTH, 2 * WIDTH]);
    add(&mut net, "Gelu", &["up"], "act", vec![]);
    matrix(&mut net, "act", "down", [2 * WIDTH, WIDTH]);
    add(&mut net, "Add", &["sum", "down"], "result", vec![]);
    ints(&mut net, "positions", &[1]);
    let drop = edit::integer_attribute("keepdims", 0);
    add(&mut net, "ReduceMean", &["result", "positions"], "mean", vec![drop]);
    layer(&mut net, "Gemm", "mean", "y", &[WIDTH, 10], vec![]);
    net
}

fn cpu() -> EngineDevice {
    phynexus_cpu::register();
    EngineDevice::find("cpu").unwrap()
}

/// The network after so many passes over the digits.
fn train(mut network: Network, image: &[usize], epochs: usize, rate: f64) -> Network {
    let (digits, _) = digits_split().unwrap();
    let module = Onnx::new(network.model(cpu()).unwrap()).unwrap();
    let mut optimizer = Optimizer::new(Rule::adam(), module.parameters(), rate).unwrap();
    for epoch in 0..epochs {
        let order = digits.shuffled(1 + epoch as u64);
        for first in (0..order.len() - BATCH).step_by(BATCH) {
            let batch = order.batch(&(first..first + BATCH).collect::<Vec<_>>()).unwrap();
            let shape = [&[BATCH], image].concat();
            let x = Tensor::from_slice(&batch.inputs.to_vec::<f32>().unwrap(), &shape, cpu()).unwrap();
            let labels =
                Tensor::from_slice(&batch.targets.to_vec::<i64>().unwrap(), &[BATCH], cpu()).unwrap();
            let scores = module.forward(&x).unwrap();
            let loss = Loss::cross_entropy(0.0).forward(&scores, &labels, Reduction::Mean).unwrap();
            optimizer.step(loss.leaf_gradients().unwrap(), &[&loss]).unwrap();
        }
    }
    for (name, _, parameter) in module.named_state() {
        let tensor = parameter.tensor();
        network.store(edit::floats(&name, tensor.shape(), &tensor.to_vec::<f32>().unwrap()));
    }
    network
}

/// The first batches of the training set or of the test set, and their labels.
fn batches(
    image: &[usize],
    is_test: bool,
    count: usize,
    size: usize,
) -> Vec<(HashMap<String, Value>, Vec<i64>)> {
    let (training, test) = digits_split().unwrap();
    let digits = if is_test { test } else { training };
    let batch = |at: usize| {
        let batch = digits.batch(&(at * size..(at + 1) * size).collect::<Vec<_>>()).unwrap();
        let shape = [&[size], image].concat();
        let x = Tensor::from_slice(&batch.inputs.to_vec::<f32>().unwrap(), &shape, cpu()).unwrap();
        (HashMap::from([("x".to_owned(), Value::Tensor(x))]), batch.targets.to_vec::<i64>().unwrap())
    };
    (0..count).map(batch).collect()
}

impl Trained {
    /// The network with activations of this format, symmetric ones if they are signed, and weights of 8 bits.
    pub fn quantized(&self, activations: Format) -> Network {
        let samples: Vec<_> =
            batches(&self.image, false, SAMPLES, BATCH).into_iter().map(|(inputs, _)| inputs).collect();
        let options = quantize::Options {
            activations,
            symmetric_activations: activations == Format::Int16,
            ..quantize::Options::default()
        };
        quantize::quantize(&self.network, &samples, &options).unwrap().network
    }
}

/// A network, and what the CPU must compute of it on a device: operators (`*` for any), each with a part of the reason.
pub type Expected<'a> = (&'a str, Format, &'a [(&'a str, &'a str)]);

/// Runs the trained networks on a device, quantized, and compares their results with those of the engine's CPU.
pub fn check(device: &Device, cases: &[Expected<'_>]) {
    let trained = trained();
    for (name, activations, left) in cases {
        let trained = trained.iter().find(|trained| trained.name == *name).unwrap();
        trained.check(device, *activations, left);
    }
}

impl Trained {
    fn check(&self, device: &Device, activations: Format, left: &[(&str, &str)]) {
        let title = format!("{}, {activations}", self.name);
        let network = self.quantized(activations);
        let tests = batches(&self.image, true, TESTS, BATCH);
        let start = Instant::now();
        // Strict, a device has to take all nodes.
        let options = Options { strict: left.is_empty(), ..Options::default() };
        let mut compiled = Compiled::compile(&network, device, &[tests[0].0.clone()], &options).unwrap();
        let (compiling, start) = (start.elapsed(), Instant::now());
        let models = [&self.network, &network].map(|network| network.model(cpu()).unwrap());
        let numbers = |value: &Value| value.tensor().unwrap().to_vec::<f32>().unwrap();
        let mut results: [Vec<f32>; 3] = Default::default();
        let mut labels = Vec::new();
        for (inputs, own) in &tests {
            labels.extend_from_slice(own);
            for (model, results) in models.iter().zip(&mut results) {
                results.extend(numbers(&model.run(inputs.clone(), &Generator::new(0)).unwrap()[0]));
            }
            results[2].extend(numbers(&compiled.run(inputs).unwrap()[0].1));
        }
        let report = compiled.placement_report();
        let [float, ours, theirs] = &results;
        let [_, on_cpu, on_device] = results.each_ref().map(|results| right(results, &labels));
        let (lost, lost_there, between) = (sqnr(float, ours), sqnr(float, theirs), sqnr(ours, theirs));
        println!(
            "{title}: {on_cpu} and {on_device} of {} right; SQNR {lost:.1} dB on the CPU, {lost_there:.1} dB on the \
             device, {between:.1} dB between them; compiled in {compiling:?}, ran in {:?}\n{report}",
            labels.len(),
            start.elapsed()
        );
        assert!(on_cpu * 10 >= labels.len() * 9, "{title}: {on_cpu} right on the CPU");
        assert!(on_device + 1 >= on_cpu, "{title}: {on_device} right, {on_cpu} on the CPU");
        // The device's own errors have at most twice the power of those of quantization: 3 dB. Both together then have
        // three times their power: 4.8 dB.
        assert!(between >= lost - 3.1, "{title}: {between} dB to the CPU, which has {lost} dB");
        assert!(lost_there >= lost - 4.8, "{title}: {lost_there} dB, {lost} dB on the CPU");
        assert_eq!(report.failures, Vec::<String>::new(), "{title}");
        check_left(&title, &report.nodes, left);
        assert!(report.on_device() > 0, "{title}: {report}");
    }
}

/// Checks that the operators on the CPU are those that are expected there, for the expected reasons.
pub fn check_left(title: &str, nodes: &[Placed], left: &[(&str, &str)]) {
    let mut found = vec![false; left.len()];
    for node in nodes.iter().filter(|node| !matches!(&*node.operator, "QuantizeLinear" | "DequantizeLinear"))
    {
        let Place::Cpu(reason) = &node.place else { continue };
        let is_expected = |(operator, part): &(&str, &str)| {
            [node.operator.as_str(), "*"].contains(operator) && reason.contains(part)
        };
        let at = left.iter().position(is_expected);
        let at =
            at.unwrap_or_else(|| panic!("{title}: {} ({}) on the CPU: {reason}", node.node, node.operator));
        found[at] = true;
    }
    let missing: Vec<_> = left.iter().zip(found).filter(|(_, found)| !found).collect();
    assert!(missing.is_empty(), "{title}: not on the CPU: {missing:?}");
}

/// The network for one image at a time.
pub fn of_one(mut network: Network, image: &[usize]) -> Network {
    network.graph.input = vec![edit::info("x", Element::Float, &[&[1], image].concat())];
    network.graph.output = vec![edit::info("y", Element::Float, &[1, 10])];
    network.graph.value_info.clear();
    network
}

/// How many rows have their greatest score where the label is.
fn right(scores: &[f32], labels: &[i64]) -> usize {
    let class = |row: &[f32]| (0..10).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as i64;
    scores.chunks_exact(10).zip(labels).filter(|(row, label)| class(row) == **label).count()
}

/// Signal to noise in decibels.
pub fn sqnr(signal: &[f32], other: &[f32]) -> f64 {
    assert_eq!(signal.len(), other.len());
    let power = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>();
    let noise = power(&mut signal.iter().zip(other).map(|(x, y)| f64::from(x - y)));
    10.0 * (power(&mut signal.iter().map(|&x| x.into())) / noise).log10()
}
