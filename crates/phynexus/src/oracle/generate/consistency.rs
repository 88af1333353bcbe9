//! Consistency: a graph evaluated with any of its nodes held, read early or dropped, and after plans for other numbers
//! or sizes, has the same values and gradients as the same graph evaluated one operation at a time.

use super::{
    Case, Choice,
    variation::{with_other_numbers, with_other_sizes},
};
use crate::{DType, Error, Result, Tensor, device::Device, op::Op, schedule};

/// The bytes of the outputs, then of the leaf gradients.
type Results = Vec<(String, DType, Vec<u8>)>;

const GRADIENT: &str = "gradient";

/// Runs the case one operation at a time, then as one graph with random nodes held and read early, and compares all
/// outputs and gradients bit by bit (all NaNs are equal). Returns `None` if they are equal.
///
/// # Errors
/// Errors of the device, unless both runs give the same one.
pub fn inconsistency(case: &Case, device: Device, seed: u64) -> Result<Option<String>> {
    let mut choice = Choice::new(seed);
    // Pairs of programs in turns: one with 16-bit floats, one without.
    let other = match (seed / 2).is_multiple_of(2) {
        true => with_other_numbers(case),
        false => with_other_sizes(case, &mut choice.clone()),
    };
    let expected = {
        let _eager = schedule::eager();
        run(case, device, &mut Way { read: 0, hold: 1, choice: choice.clone() })
    };
    // Hold all, some or none; read some early.
    let hold = choice.of(&[1, 2, 3, usize::MAX, usize::MAX]);
    let read = choice.of(&[0, 0, 4, 8]);
    if let Some(other) = other {
        // Its values do not matter, nor whether it fails.
        drop(run(&other, device, &mut Way { read, hold, choice: choice.clone() }));
    }
    let actual = run(case, device, &mut Way { read, hold, choice });
    match (expected, actual) {
        (Ok(expected), Ok(actual)) => Ok(difference(&expected, &actual)),
        (Err(Error::NoGradient { .. }), Err(Error::NoGradient { .. })) => Ok(None),
        (Err(expected), Err(actual)) if expected.to_string() == actual.to_string() => Ok(None),
        (Ok(_), Err(actual)) => Ok(Some(format!("as one graph: {actual}"))),
        (Err(expected), _) => Err(expected),
    }
}

/// How to run a graph.
struct Way {
    /// One in `read` nodes is evaluated when it is recorded; 0 for none.
    read: usize,
    /// One in `hold` nodes is kept until the end.
    hold: usize,
    choice: Choice,
}

fn run(case: &Case, device: Device, way: &mut Way) -> Result<Results> {
    let mut leaves = Vec::with_capacity(case.leaves.len());
    for leaf in &case.leaves {
        let leaf = leaf.upload(device)?;
        leaves.push(if leaf.dtype().is_float() { leaf.with_grad()? } else { leaf });
    }
    let mut given = leaves.iter();
    // The remaining uses of each node: an operand is dropped after its last use, as in a program.
    let mut unread = vec![0usize; case.ir.nodes.len()];
    case.ir.nodes.iter().flat_map(|n| &n.inputs).for_each(|&i| unread[i as usize] += 1);
    case.ir.outputs.iter().for_each(|&o| unread[o as usize] += 1);
    let mut nodes: Vec<Option<Tensor>> = Vec::with_capacity(unread.len());
    let mut held = Vec::new();
    for node in &case.ir.nodes {
        let recorded = match &node.op {
            Op::Buffer => {
                given.next().cloned().ok_or_else(|| Error::internal("consistency", "a leaf is missing"))?
            }
            op => {
                let operands: Vec<&Tensor> =
                    node.inputs.iter().filter_map(|&i| nodes[i as usize].as_ref()).collect();
                // The sign and payload of a NaN result are unspecified.
                let one_nan = match (op, operands.as_slice()) {
                    (Op::Bitcast, [x]) if x.dtype().is_float() => Some(x.masked_fill(&x.isnan()?, f64::NAN)?),
                    _ => None,
                };
                let operands = one_nan.as_ref().map_or(operands, |x| vec![x]);
                Tensor::record_on(device, op.clone(), node.dtype, node.shape.clone(), &operands)?
            }
        };
        for &input in &node.inputs {
            unread[input as usize] -= 1;
            if unread[input as usize] == 0 {
                nodes[input as usize] = None;
            }
        }
        if way.choice.one_in(way.hold) {
            held.push(recorded.clone());
        }
        if way.read != 0 && way.choice.one_in(way.read) {
            recorded.evaluate()?;
        }
        nodes.push(Some(recorded));
    }
    let outputs: Vec<(u32, Tensor)> =
        case.ir.outputs.iter().filter_map(|&o| Some((o, nodes[o as usize].clone()?))).collect();
    drop(nodes);
    let mut loss: Option<Tensor> = None;
    for (_, output) in outputs.iter().filter(|(_, output)| output.requires_grad()) {
        let sum = output.to_dtype(DType::F32)?.sum(&[], false)?;
        loss = Some(match loss {
            Some(loss) => loss.add(&sum)?,
            None => sum,
        });
    }
    let mut values = Results::new();
    let early = way.choice.one_in(2);
    let read = |values: &mut Results| -> Result<()> {
        for (id, output) in &outputs {
            values.push((format!("%{id}"), output.dtype(), output.to_bytes()?));
        }
        Ok(())
    };
    if early {
        read(&mut values)?;
    }
    if let Some(loss) = loss {
        let mut gradients = loss.leaf_gradients()?;
        drop(loss);
        for (at, leaf) in leaves.iter().enumerate() {
            if let Some(gradient) = gradients.take(leaf) {
                values.push((format!("{GRADIENT} of leaf {at}"), gradient.dtype(), gradient.to_bytes()?));
            }
        }
    }
    if !early {
        read(&mut values)?;
    }
    values.sort();
    drop(held);
    Ok(values)
}

fn difference(expected: &Results, actual: &Results) -> Option<String> {
    if expected.len() != actual.len() {
        return Some(format!("{} results and gradients, expected {}", actual.len(), expected.len()));
    }
    for ((name, dtype, expected), (other, _, actual)) in expected.iter().zip(actual) {
        if name != other {
            return Some(format!("{other} where {name} was expected"));
        }
        let size = dtype.size();
        let number = |bytes: &[u8]| crate::dtype::read_scalars(bytes, *dtype)[0].as_f64();
        let is_nan = |bytes: &[u8]| dtype.is_float() && number(bytes).is_nan();
        // Gradients of slices may be concatenated rather than added, which preserves negative zeros.
        let is_zero = |bytes: &[u8]| name.starts_with(GRADIENT) && dtype.is_float() && number(bytes) == 0.0;
        let same = |a: &[u8], b: &[u8]| a == b || is_nan(a) && is_nan(b) || is_zero(a) && is_zero(b);
        let mut pairs = expected.chunks(size).zip(actual.chunks(size));
        if expected.len() != actual.len() {
            return Some(format!("{name}: {} bytes, expected {}", actual.len(), expected.len()));
        }
        if let Some(at) = pairs.position(|(a, b)| !same(a, b)) {
            let show = |bytes: &[u8]| crate::dtype::read_scalars(&bytes[at * size..][..size], *dtype)[0];
            let (expected, actual) = (show(expected), show(actual));
            return Some(format!("{name} ({dtype}) element {at}: {actual}, one at a time {expected}"));
        }
    }
    None
}
