//! Compares the methods with NumPy, SciPy and PyTorch by evaluating the recorded graphs with the oracle. The devices'
//! own tests run the same cases.

mod cases;
mod random;

use std::collections::{BTreeSet, HashMap};

use super::null::null_device;
use crate::{
    DType, Device, Result, Tensor,
    graph::node::Node,
    op::{Combine, ir::Ir},
    oracle::{self, Number, OracleArray},
    tensor::IndexSpec,
};

const GOLDEN: &str = include_str!("golden.txt");

/// These compute pending work immediately, which the null device cannot do.
const NEED_A_DEVICE: [&str; 3] = ["unique_values", "unique_inverse", "unique_counts"];

/// The graph that a tensor depends on, with computed nodes as leaves.
fn graph(tensor: &Tensor) -> Result<(Ir, Vec<OracleArray>)> {
    let (mut ir, mut leaves, mut known) = (Ir::default(), Vec::new(), HashMap::new());
    let mut nodes = BTreeSet::new();
    let mut found: HashMap<u64, std::sync::Arc<Node>> = HashMap::new();
    let mut pending = vec![tensor.node().clone()];
    while let Some(node) = pending.pop() {
        if nodes.insert(node.number) {
            pending.extend(node.sources());
            found.insert(node.number, node);
        }
    }
    // Operands have smaller numbers, so this order is topological.
    for number in nodes {
        let node = &found[&number];
        let signature = &node.signature;
        let inputs: Vec<u32> = node.sources().iter().map(|s| known[&s.number]).collect();
        if let Some(storage) = node.data() {
            let bytes = row_major(&storage, node)?;
            leaves.push(OracleArray::from_bytes(&bytes, signature.dtype, &signature.shape)?);
        }
        known.insert(number, ir.push(signature.op.clone(), signature.dtype, signature.shape.clone(), inputs));
    }
    ir.outputs.push(known[&tensor.node().number]);
    Ok((ir, leaves))
}

/// The elements as row-major bytes, from any layout.
fn row_major(storage: &crate::device::Storage, node: &Node) -> Result<Vec<u8>> {
    let size = node.signature.dtype.size();
    let mut whole = vec![0; storage.buffer.size()];
    node.device.backend().read(&storage.buffer, 0, &mut whole)?;
    let layout = &storage.layout;
    let dense = crate::shape::contiguous_strides(&layout.shape);
    let mut bytes = Vec::new();
    for flat in 0..layout.len() {
        let steps = layout.shape.iter().zip(&layout.strides).zip(&dense);
        let moved: isize = steps.map(|((&d, &s), &step)| (flat / step as usize % d) as isize * s).sum();
        let at = layout.offset.checked_add_signed(moved).unwrap() * size;
        bytes.extend_from_slice(&whole[at..at + size]);
    }
    Ok(bytes)
}

/// The values that the oracle computes; `None` if an element has several valid values.
fn values_of(tensor: &Tensor) -> Result<Option<Vec<f64>>> {
    let (ir, leaves) = graph(tensor)?;
    let value = |number: &Number| match number {
        Number::Integer(x) => Some(*x as f64),
        Number::Float(x) => Some(x.value),
        Number::Undetermined => None,
    };
    Ok(oracle::evaluate(&ir, &leaves)?[0].elements.iter().map(value).collect())
}

#[test]
fn methods_mean_what_numpy_and_pytorch_mean() {
    let device = null_device();
    let lines = GOLDEN.lines().filter(|line| !NEED_A_DEVICE.iter().any(|name| line.starts_with(name)));
    cases::check(lines, device, values_of);
}
