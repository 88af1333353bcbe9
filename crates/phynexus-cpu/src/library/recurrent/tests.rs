//! Tests every cell against the composite's body.

use phynexus::{
    DType,
    device::Support,
    op::{
        Composite, Op, TensorType,
        composite::{Cell, Recurrent, RecurrentGradient},
        ir::IrNode,
    },
};
use smallvec::SmallVec;

use crate::library::against_body::{Given, agree, given};

/// Checks the layer and its gradient for one cell and shape.
fn check(recurrence: Recurrent, steps: usize, batch: usize, units: usize) {
    check_input(recurrence, given(&[steps, batch, 5], 1), units);
}

/// The same for a given input.
fn check_input(recurrence: Recurrent, input: Given, units: usize) {
    let Recurrent { cell, bias, save, .. } = recurrence;
    let [steps, batch, width] = input.shape[..] else { panic!("an input has three axes") };
    let rows = cell.gates() * units;
    let state = [batch, units];
    let mut operands = vec![input, given(&state, 2)];
    if cell.has_cell_state() {
        operands.push(given(&state, 3));
    }
    operands.extend([given(&[rows, width], 4), given(&[rows, units], 5)]);
    if bias {
        operands.extend([given(&[rows], 6), given(&[rows], 7)]);
    }
    // Scaled so that sums over many units stay moderate: saturated gates would hide errors.
    let scale = 1.0 / (units as f32).sqrt();
    let weights = 3 + usize::from(cell.has_cell_state());
    operands[weights].values.iter_mut().for_each(|w| *w *= scale);
    let packed = agree(&recurrence.into(), &operands);
    if !save {
        return;
    }
    let sequence = steps * batch * units;
    let mut rest = packed.as_slice();
    let mut take = |shape: &[usize]| {
        let (part, after) = rest.split_at(shape.iter().product());
        rest = after;
        Given::new(shape, part.to_vec())
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
    assert!(rest.is_empty(), "expected {sequence} elements of states and only what is saved");
    backward.push(given(&[steps, batch, units], 8));
    if cell.has_cell_state() {
        backward.push(given(&state, 9));
    }
    agree(&RecurrentGradient(recurrence).into(), &backward);
}

fn check_cell(cell: Cell) {
    for (steps, batch, units) in [(1, 1, 1), (7, 3, 5), (2, 1, 33), (7, 3, 33), (3, 31, 70), (2, 2, 130)] {
        for (reverse, bias, save) in [(false, true, true), (true, false, true), (true, true, false)] {
            check(Recurrent { cell, reverse, bias, save }, steps, batch, units);
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
    let recurrence = Recurrent { cell: Cell::Lstm, reverse: false, bias: true, save: true };
    check(recurrence, 2, 0, 3);
    check(recurrence, 2, 3, 0);
}

#[test]
fn inputs_of_any_width_and_strides() {
    for reverse in [false, true] {
        for cell in [Cell::Lstm, Cell::Gru, Cell::Tanh] {
            let recurrence = Recurrent { cell, reverse, bias: true, save: true };
            // One sequence, few sequences, and as many as the steps that are processed together.
            for (steps, batch, width) in
                [(61, 1, 70), (29, 3, 1), (9, 13, 33), (5, 40, 5), (3, 2, 0), (1, 1, 1)]
            {
                check_input(recurrence, given(&[steps, batch, width], 9), 5);
            }
            let mut input = given(&[31, 4, 6], 9);
            input.transposed = true;
            check_input(recurrence, input, 3);
            let mut input = given(&[3, 4, 6], 9);
            input.gap = 5;
            check_input(recurrence, input, 3);
        }
    }
}

#[test]
fn other_dtypes_keep_the_body() {
    let recurrence = Recurrent { cell: Cell::Tanh, reverse: false, bias: false, save: false };
    let node = IrNode {
        op: Op::Composite(Composite::Recurrent(recurrence)),
        dtype: DType::F64,
        shape: [1].as_slice().into(),
        inputs: SmallVec::new(),
    };
    let support = crate::register().backend().support(&node, &[TensorType::new(DType::F64, &[1]); 4]);
    assert_eq!(support, Support::Body);
}
