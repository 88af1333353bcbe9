//! The routines against the composite's body in `float64`, through the device.

use phynexus::{
    DType, Tensor,
    device::{Binding, Support},
    graph::{
        Composite,
        composite::{Cell, Recurrence},
        ir::IrNode,
        op::Op,
    },
    schedule::step::{Library, Operand, Step},
    shape::{Layout, contiguous_strides},
};
use smallvec::SmallVec;

/// A contiguous operand.
struct Given {
    shape: Vec<usize>,
    values: Vec<f32>,
}

/// Numbers between -1 and 1.
fn given(shape: &[usize], seed: u64) -> Given {
    let mut state = seed;
    let values = (0..shape.iter().product())
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect();
    Given { shape: shape.to_vec(), values }
}

/// The packed results by the device's routine, and by the body in `float64`.
fn both(composite: Composite, operands: &[Given]) -> (Vec<f32>, Vec<f64>) {
    let device = crate::device::register();
    let backend = device.backend();
    let wide: Vec<Tensor> = operands
        .iter()
        .map(|o| Tensor::from_slice(&o.values, &o.shape, device).unwrap().to_dtype(DType::F64).unwrap())
        .collect();
    let expected = composite.body(&wide).unwrap();
    let shape = expected.shape().to_vec();
    let expected = expected.to_vec::<f64>().unwrap();

    let node = IrNode {
        op: Op::Composite(composite),
        dtype: DType::F32,
        shape: shape.as_slice().into(),
        inputs: SmallVec::new(),
    };
    assert_eq!(backend.support(&node, &vec![DType::F32; operands.len()]), Support::Native);
    let layout = |o: &Given| Layout {
        shape: o.shape.as_slice().into(),
        strides: contiguous_strides(&o.shape),
        offset: 0,
    };
    let step = Library {
        node,
        operands: operands.iter().map(|o| Operand { dtype: DType::F32, layout: layout(o) }).collect(),
        epilogue: None,
    };
    let mut bindings: Vec<Binding> = operands
        .iter()
        .map(|o| {
            let bytes: Vec<u8> = o.values.iter().flat_map(|v| v.to_ne_bytes()).collect();
            let buffer = backend.allocate(bytes.len()).unwrap();
            backend.write(&buffer, 0, &bytes).unwrap();
            Binding { buffer, offset: 0 }
        })
        .collect();
    let result = backend.allocate(4 * expected.len()).unwrap();
    // What is not written shows.
    backend.write(&result, 0, &vec![0xff; 4 * expected.len()]).unwrap();
    bindings.push(Binding { buffer: result.clone(), offset: 0 });
    backend.compile(&Step::Library(step)).unwrap().run(&bindings).unwrap();
    let mut bytes = vec![0; 4 * expected.len()];
    backend.read(&result, 0, &mut bytes).unwrap();
    (bytes.as_chunks().0.iter().map(|c| f32::from_ne_bytes(*c)).collect(), expected)
}

fn agree(composite: &Composite, operands: &[Given]) -> Vec<f32> {
    let (found, expected) = both(composite.clone(), operands);
    for (at, (x, y)) in found.iter().zip(&expected).enumerate() {
        let tolerance = 2e-5 * (1.0 + y.abs());
        assert!((f64::from(*x) - y).abs() <= tolerance, "{composite:?} element {at}: {x}, not {y}");
    }
    found
}

/// The layer and its gradient for one cell and shape.
fn check(recurrence: Recurrence, steps: usize, batch: usize, units: usize) {
    let Recurrence { cell, bias, save, .. } = recurrence;
    let (width, rows) = (5, cell.gates() * units);
    let state = [batch, units];
    let mut operands = vec![given(&[steps, batch, width], 1), given(&state, 2)];
    if cell.has_cell_state() {
        operands.push(given(&state, 3));
    }
    operands.extend([given(&[rows, width], 4), given(&[rows, units], 5)]);
    if bias {
        operands.extend([given(&[rows], 6), given(&[rows], 7)]);
    }
    // Sums of many units stay moderate: saturated gates would hide errors.
    let scale = 1.0 / (units as f32).sqrt();
    let weights = 3 + usize::from(cell.has_cell_state());
    operands[weights].values.iter_mut().for_each(|w| *w *= scale);
    let packed = agree(&Composite::Recurrent(recurrence), &operands);
    if !save {
        return;
    }
    let sequence = steps * batch * units;
    let mut rest = packed.as_slice();
    let mut take = |shape: &[usize]| {
        let (part, after) = rest.split_at(shape.iter().product());
        rest = after;
        Given { shape: shape.to_vec(), values: part.to_vec() }
    };
    let states = take(&[steps, batch, units]);
    if cell.has_cell_state() {
        take(&state);
    }
    let mut backward = vec![operands.remove(weights), operands.remove(1)];
    if cell.has_cell_state() {
        backward.push(operands.remove(1));
    }
    backward.push(states);
    if matches!(cell, Cell::Lstm | Cell::Gru) {
        backward.push(take(&[steps, batch, 4 * units]));
    }
    if cell.has_cell_state() {
        backward.push(take(&[steps, batch, units]));
    }
    assert!(rest.is_empty(), "{sequence} elements of states and no more than is saved");
    backward.push(given(&[steps, batch, units], 8));
    if cell.has_cell_state() {
        backward.push(given(&state, 9));
    }
    agree(&Composite::RecurrentGradient(recurrence), &backward);
}

fn check_cell(cell: Cell) {
    for (steps, batch, units) in [(1, 1, 1), (7, 3, 5), (2, 1, 33), (7, 3, 33), (3, 31, 70), (2, 2, 130)] {
        for (reverse, bias, save) in [(false, true, true), (true, false, true), (true, true, false)] {
            check(Recurrence { cell, reverse, bias, save }, steps, batch, units);
        }
    }
}

#[test]
fn lstm() {
    check_cell(Cell::Lstm);
}

#[test]
fn gru() {
    check_cell(Cell::Gru);
}

#[test]
fn plain_cells() {
    check_cell(Cell::Tanh);
    check_cell(Cell::Relu);
}

#[test]
fn an_empty_batch_and_no_units() {
    let recurrence = Recurrence { cell: Cell::Lstm, reverse: false, bias: true, save: true };
    check(recurrence, 2, 0, 3);
    check(recurrence, 2, 3, 0);
}

#[test]
fn other_dtypes_keep_the_body() {
    let recurrence = Recurrence { cell: Cell::Tanh, reverse: false, bias: false, save: false };
    let node = IrNode {
        op: Op::Composite(Composite::Recurrent(recurrence)),
        dtype: DType::F64,
        shape: [1].as_slice().into(),
        inputs: SmallVec::new(),
    };
    let support = crate::device::register().backend().support(&node, &[DType::F64; 4]);
    assert_eq!(support, Support::Body);
}
