//! Networks with quantized values, and their plans.

use std::collections::HashMap;

use neurenix_onnx::{
    Element, Model, Value,
    edit::{Network, floats, info, integer_attribute, integers, node},
    proto::{
        AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto,
        attribute_type,
    },
};
use phynexus::{DType, Device, Tensor, kernel::step::Step, op::Op, tensor::Generator};

pub(crate) type Outcome = Result<(), Box<dyn std::error::Error>>;

pub(crate) fn cpu() -> Device {
    phynexus_cpu::register();
    Device::find("cpu").expect("the CPU is registered")
}

pub(crate) fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    let (name, ints, r#type) = (name.to_owned(), ints.to_vec(), attribute_type::INTS);
    AttributeProto { name, ints, r#type, ..AttributeProto::default() }
}

pub(crate) fn number(name: &str, f: f32) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        f: Some(f),
        r#type: attribute_type::FLOAT,
        ..AttributeProto::default()
    }
}

/// Numbers that look random: `count` integers from `least` to `greatest`.
pub(crate) fn random(count: usize, [least, greatest]: [i64; 2], seed: u64) -> Vec<i64> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        least + ((state >> 33) as i64).rem_euclid(greatest - least + 1)
    };
    (0..count).map(next).collect()
}

pub(crate) fn random_floats(shape: &[usize], seed: u64) -> Tensor {
    let numbers = random(shape.iter().product(), [-1000, 1000], seed);
    let numbers: Vec<f32> = numbers.into_iter().map(|x| x as f32 / 500.0).collect();
    Tensor::from_slice(&numbers, shape, cpu()).expect("a small tensor")
}

pub(crate) fn range(element: Element) -> [i64; 2] {
    match element {
        Element::Uint8 => [0, 255],
        Element::Int8 => [-128, 127],
        Element::Uint16 => [0, 65535],
        _ => [-8, 7],
    }
}

/// A network in the making, with the input `x` and the output `y`.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) nodes: Vec<NodeProto>,
    pub(crate) stored: Vec<TensorProto>,
    /// Whether the results of `DequantizeLinear` are hidden from the nodes that follow: these compute with floats.
    pub(crate) in_floats: bool,
    /// Whether nodes make the zero points, so that they are not known before the network runs.
    pub(crate) makes_zeros: bool,
}

impl Parts {
    pub(crate) fn add(
        &mut self,
        operator: &str,
        inputs: &[&str],
        output: &str,
        attributes: Vec<AttributeProto>,
    ) {
        self.nodes.push(node(operator, output, inputs, &[output], attributes));
    }

    pub(crate) fn scale(&mut self, name: &str, scales: &[f32]) {
        let shape = if scales.len() == 1 { vec![] } else { vec![scales.len()] };
        self.stored.push(floats(name, &shape, scales));
    }

    pub(crate) fn zero(&mut self, name: &str, element: Element, zeros: &[i64]) {
        let shape = if zeros.len() == 1 { vec![] } else { vec![zeros.len()] };
        if !self.makes_zeros {
            self.stored.push(integers(name, element, &shape, zeros));
            return;
        }
        let stored = format!("{name}_stored");
        self.stored.push(integers(&stored, element, &shape, zeros));
        self.add("Identity", &[&stored], name, vec![]);
    }

    /// `DequantizeLinear` of a value, whose result is `{name}_f`.
    pub(crate) fn dequantize(&mut self, name: &str, scale: &str, zero: &str, axis: i64) {
        let result = format!("{name}_f");
        let axis = vec![integer_attribute("axis", axis)];
        match self.in_floats {
            false => self.add("DequantizeLinear", &[name, scale, zero], &result, axis),
            true => {
                let hidden = format!("{name}_h");
                self.add("DequantizeLinear", &[name, scale, zero], &hidden, axis);
                self.scale(&format!("{name}_1"), &[1.0]);
                self.add("Mul", &[&hidden, &format!("{name}_1")], &result, vec![]);
            }
        }
    }

    /// Stored integers and their floats, `{name}_f`, with one scale or one for each index of an axis.
    pub(crate) fn weight(
        &mut self,
        name: &str,
        element: Element,
        shape: &[usize],
        axis: Option<usize>,
        zeros: &[i64],
    ) {
        let limits = if zeros == [0] && element == Element::Int8 { [-127, 127] } else { range(element) };
        let numbers = random(shape.iter().product(), limits, 5);
        self.stored.push(integers(name, element, shape, &numbers));
        let count = axis.map_or(1, |axis| shape[axis]);
        let (scale, zero) = (format!("{name}_s"), format!("{name}_z"));
        self.scale(&scale, &(0..count).map(|at| 0.004 + at as f32 * 0.0007).collect::<Vec<_>>());
        self.zero(&zero, element, &zeros.iter().copied().cycle().take(count).collect::<Vec<_>>());
        self.dequantize(name, &scale, &zero, axis.unwrap_or(0) as i64);
    }

    /// Quantizes the input `x` and dequantizes it, as `q_f`.
    pub(crate) fn quantized_input(&mut self, element: Element, zero: i64) {
        self.scale("q_s", &[0.013]);
        self.zero("q_z", element, &[zero]);
        self.add("QuantizeLinear", &["x", "q_s", "q_z"], "q", vec![]);
        self.dequantize("q", "q_s", "q_z", 0);
    }

    /// Quantizes a value as the output `y`.
    pub(crate) fn quantized_output(&mut self, value: &str, element: Element, zero: i64) {
        self.scale("y_s", &[0.05]);
        self.zero("y_z", element, &[zero]);
        self.add("QuantizeLinear", &[value, "y_s", "y_z"], "y", vec![]);
    }

    pub(crate) fn network(self, x: (Element, &[usize]), y: Element) -> Network {
        let graph = GraphProto {
            node: self.nodes,
            name: "test".to_owned(),
            initializer: self.stored,
            input: vec![info("x", x.0, x.1)],
            output: vec![ValueInfoProto { r#type: None, ..info("y", y, &[]) }],
            ..GraphProto::default()
        };
        let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 21 }];
        let proto = ModelProto { ir_version: 10, graph: Some(graph), opset_import, ..ModelProto::default() };
        Network::new(proto).expect("it has a graph")
    }
}

pub(crate) fn run(model: &Model, x: &Tensor) -> Result<Value, neurenix_onnx::Error> {
    let given = HashMap::from([("x".to_owned(), Value::Tensor(x.clone()))]);
    let mut results = model.run(given, &Generator::new(0))?;
    Ok(results.swap_remove(0))
}

/// The dtypes of the results of all products that lead to a tensor which is not computed yet.
pub(crate) fn products(tensor: &Tensor) -> Vec<DType> {
    let plan = tensor.explain().expect("a plan").expect("it is not computed");
    let product = |step: &Step| match step {
        Step::Library(library) if matches!(library.node.op, Op::Dot | Op::Conv(_)) => {
            Some(library.node.dtype)
        }
        _ => None,
    };
    plan.steps.iter().filter_map(|planned| product(&planned.step)).collect()
}

pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    let tensor = value.tensor().expect("a tensor").to_dtype(DType::F64).expect("numbers");
    tensor.to_vec().expect("numbers")
}

/// Runs a network with integers, with zero points that nodes make, and with floats. Products must have the dtypes that
/// they should. Results must be equal, and those of floats differ by rounding, or by at most a step of a quantized
/// type.
pub(crate) fn compare(name: &str, x: (Element, &Tensor), y: Element, build: &dyn Fn(&mut Parts)) -> Outcome {
    let [exact, general, reference] =
        [(false, false), (false, true), (true, false)].map(|(in_floats, makes_zeros)| {
            let mut parts = Parts { in_floats, makes_zeros, ..Parts::default() };
            build(&mut parts);
            let model = parts.network((x.0, x.1.shape()), y).model(cpu()).expect("a valid network");
            run(&model, x.1).unwrap_or_else(|error| panic!("{name}: {error}"))
        });
    for (value, dtype) in [(&exact, DType::I32), (&general, DType::I32), (&reference, DType::F32)] {
        let products = products(value.tensor()?);
        assert!(!products.is_empty() && products.iter().all(|&own| own == dtype), "{name}: {products:?}");
        assert_eq!((value.element(), value.shape()?), (Some(y), reference.shape()?), "{name}");
    }
    let [exact, general, reference] = [exact, general, reference].map(|value| numbers(&value));
    assert_eq!(exact, general, "{name}");
    let largest = reference.iter().fold(0f64, |most, x| most.max(x.abs()));
    assert!(largest > 0.0, "{name}");
    let tolerance = if y == Element::Float { 1e-5 * largest.max(1.0) } else { 1.0 };
    for (a, b) in exact.iter().zip(&reference) {
        assert!((a - b).abs() <= tolerance, "{name}: {a} {b}");
    }
    Ok(())
}
