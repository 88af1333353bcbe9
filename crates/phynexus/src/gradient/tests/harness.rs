//! Compares central differences of a recorded function with its recorded gradient.

use std::{
    collections::{HashMap, HashSet},
    sync::OnceLock,
};

use crate::{
    DType, Device, Element, Result, Tensor,
    graph::node::{Node, Sources, intern},
    op::{
        Axes, Op,
        formula::Formula,
        ir::{Id, Ir},
    },
    oracle::{self, Number, OracleArray},
    shape::element_count,
};

/// A device that holds no data.
pub(crate) fn device() -> Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    *DEVICE.get_or_init(crate::tensor::null_device)
}

/// Makes a leaf without data that requires gradients.
pub(crate) fn variable(shape: &[usize]) -> Tensor {
    Tensor::from_node(Node::pending(
        intern(Op::Buffer, DType::F64, shape.into()),
        device(),
        Sources::new(),
        true,
    ))
}

/// Makes a leaf without data.
pub(crate) fn placeholder(dtype: DType, shape: &[usize]) -> Tensor {
    Tensor::from_node(Node::pending(intern(Op::Buffer, dtype, shape.into()), device(), Sources::new(), false))
}

/// Returns the graph from the leaves to a result computed from them.
fn import(leaves: &[Tensor], result: &Tensor) -> Ir {
    let mut ir = Ir::default();
    let mut ids: HashMap<u64, Id> = HashMap::new();
    for leaf in leaves {
        ids.insert(leaf.node().number, ir.push(Op::Buffer, leaf.dtype(), leaf.shape().into(), []));
    }
    let mut nodes = vec![result.node().clone()];
    let mut seen = HashSet::from([result.node().number]);
    let mut next = 0;
    while let Some(node) = nodes.get(next).cloned() {
        nodes.extend(node.sources().into_iter().filter(|source| seen.insert(source.number)));
        next += 1;
    }
    // Numbers increase with creation, so sorting by number gives a topological order.
    nodes.sort_unstable_by_key(|node| node.number);
    for node in nodes.iter().filter(|node| *node.op() != Op::Buffer) {
        let inputs: Vec<Id> = node.sources().iter().map(|source| ids[&source.number]).collect();
        let id = ir.push(node.op().clone(), node.signature.dtype, node.signature.shape.clone(), inputs);
        ids.insert(node.number, id);
    }
    ir.outputs.push(ids[&result.node().number]);
    ir
}

/// An operand that is not differentiated.
pub(crate) struct Fixed {
    bytes: Vec<u8>,
    dtype: DType,
    pub(crate) shape: Vec<usize>,
}

impl Fixed {
    pub(crate) fn new(array: &OracleArray) -> Fixed {
        Fixed { bytes: array.to_bytes(), dtype: array.dtype, shape: array.shape.to_vec() }
    }
    pub(crate) fn array(&self) -> OracleArray {
        OracleArray::from_bytes(&self.bytes, self.dtype, &self.shape).unwrap()
    }
    pub(crate) fn placeholder(&self) -> Tensor {
        placeholder(self.dtype, &self.shape)
    }
}

pub(crate) fn fixed<T: Element>(values: &[T], shape: &[usize]) -> Fixed {
    let mut bytes = Vec::new();
    T::write_bytes(values, &mut bytes);
    Fixed { bytes, dtype: T::DTYPE, shape: shape.to_vec() }
}

/// Returns scattered values from `low` to `high` without ties.
pub(crate) fn values(shape: &[usize], low: f64, high: f64) -> (Vec<f64>, Vec<usize>) {
    let scattered =
        |i: usize| ((i as f64 + 0.5) * 0.618_033_988_749_894_9 + 0.137 * shape.len() as f64).fract();
    ((0..element_count(shape)).map(|i| low + (high - low) * scattered(i)).collect(), shape.to_vec())
}

/// A function of leaves as a graph.
pub(crate) struct Program(Ir);

impl Program {
    pub(crate) fn new(leaves: &[Tensor], result: &Tensor) -> Program {
        Program(import(leaves, result))
    }

    pub(crate) fn run(&self, leaves: &[OracleArray]) -> Vec<f64> {
        let result = oracle::evaluate(&self.0, leaves).unwrap().remove(0);
        let value = |n: &Number| match n {
            Number::Float(interval) => interval.value,
            Number::Integer(i) => *i as f64,
            Number::Undetermined => panic!("the oracle cannot tell: the test's values lie on a step"),
        };
        result.elements.iter().map(value).collect()
    }
}

fn array(values: &[f64], shape: &[usize]) -> OracleArray {
    let mut bytes = Vec::new();
    f64::write_bytes(values, &mut bytes);
    OracleArray::from_bytes(&bytes, DType::F64, shape).unwrap()
}

/// Sums the elements with distinct weights.
pub(crate) fn weighted(t: &Tensor) -> Formula {
    let t = Formula::of(t).then(|t| Formula::of(t).reshape(&[t.len()]).term());
    let weights = (t.iota_like(DType::F64, 0) * 1.3 + 0.4).sin() + 0.3;
    (t * weights).sum(Axes::of([0])).reshape(&[])
}

type Function<'a> = &'a dyn Fn(&[Tensor]) -> Result<Tensor>;

/// Checks the gradients of `function` at these inputs; if `order` is 2, also the second-order gradients.
#[track_caller]
pub(crate) fn check_with(
    inputs: &[(Vec<f64>, Vec<usize>)],
    fixed: &[Fixed],
    order: usize,
    function: Function,
) {
    let variables: Vec<Tensor> = inputs.iter().map(|(_, shape)| variable(shape)).collect();
    let others: Vec<Tensor> = fixed.iter().map(Fixed::placeholder).collect();
    let leaves: Vec<Tensor> = variables.iter().chain(&others).cloned().collect();
    let mut data: Vec<OracleArray> = inputs.iter().map(|(values, shape)| array(values, shape)).collect();
    data.extend(fixed.iter().map(Fixed::array));

    let mut loss = weighted(&function(&leaves).unwrap()).tensor().unwrap();
    for order in 1..=order {
        let wanted: Vec<&Tensor> = variables.iter().collect();
        let first = loss.gradients(&wanted).unwrap();
        compare(order, &leaves, inputs, &data, &loss, &first);
        if !loss.requires_grad() {
            break;
        }
        let again = loss.gradients_create_graph(&wanted).unwrap();
        let summed: Vec<Formula> = again.iter().map(weighted).collect();
        loss = summed.into_iter().reduce(|a, b| a + b).unwrap().tensor().unwrap();
        if !loss.requires_grad() {
            break;
        }
    }
}

#[track_caller]
pub(crate) fn check(inputs: &[(Vec<f64>, Vec<usize>)], order: usize, function: Function) {
    check_with(inputs, &[], order, function);
}

/// The step of central differences, and their relative error for functions of moderate curvature.
const STEP: f64 = 1e-5;
const TOLERANCE: f64 = 2e-7;

#[track_caller]
fn compare(
    order: usize,
    leaves: &[Tensor],
    inputs: &[(Vec<f64>, Vec<usize>)],
    data: &[OracleArray],
    loss: &Tensor,
    gradients: &[Tensor],
) {
    let loss = Program::new(leaves, loss);
    for (place, ((values, shape), gradient)) in inputs.iter().zip(gradients).enumerate() {
        let found = Program::new(leaves, gradient).run(data);
        assert_eq!(found.len(), values.len());
        for element in 0..values.len() {
            let at = |offset: f64| {
                let mut moved = values.clone();
                moved[element] += offset;
                let mut data = data.to_vec();
                data[place] = array(&moved, shape);
                loss.run(&data)[0]
            };
            let expected = (at(STEP) - at(-STEP)) / (2.0 * STEP);
            let error = (found[element] - expected).abs();
            assert!(
                error <= TOLERANCE * (1.0 + expected.abs()),
                "order {order}, operand {place}, element {element}: {} is not {expected}",
                found[element]
            );
        }
    }
}
