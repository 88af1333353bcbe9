//! Recurrent layers, whose steps are one launch.

use phynexus::{
    DType,
    kernel::{
        check::Limits,
        loops::Kernel,
        lower::{Target, lower},
    },
    op::{
        Composite, Op, Permute,
        composite::{Cell, Recurrent, RecurrentGradient, RecurrentSteps},
    },
    oracle::generate::{Case, CaseLeaf, Choice, Distribution, random_array},
    oracle::{Interval, Number},
};

use super::{check_all, last_step, panels::panels};

const CELLS: [Cell; 4] = [Cell::Lstm, Cell::Gru, Cell::Tanh, Cell::Relu];

/// A device with room for so many groups at once.
fn meeting(groups: usize) -> Target {
    let target = panels(groups);
    let limits = Limits { device: format!("meeting{groups}"), meeting_groups: groups, ..target.limits };
    Target { limits, ..target }
}

/// The same with so little shared memory that the weights of fewer units fit a group.
fn cramped(groups: usize, shared_bytes: usize) -> Target {
    let target = meeting(groups);
    let device = format!("cramped{shared_bytes}");
    Target { limits: Limits { device, shared_bytes, ..target.limits }, ..target }
}

struct Call {
    layer: Recurrent,
    dtype: DType,
    /// Steps, sequences, units.
    sizes: [usize; 3],
    /// The weights are transposed in memory.
    turned: bool,
}

impl Call {
    fn case(&self, is_gradient: bool) -> Case {
        let Call { layer, dtype, sizes: [steps, batch, hidden], turned } = *self;
        let (cell, rows) = (layer.cell, layer.cell.gates() * hidden);
        let name = format!("{layer:?} {:?} of {dtype}, gradient {is_gradient}", self.sizes);
        let mut case = Case::new(name);
        let mut choice = Choice::new(11);
        let mut leaf = |case: &mut Case, dtype: DType, shape: &[usize]| {
            case.leaf(CaseLeaf::contiguous(random_array(&mut choice, Distribution::Tame, dtype, shape)))
        };
        let (state, sequence) = ([batch, hidden], [steps, batch, hidden]);
        // Weights are small; otherwise what roundings of states may change is as large as states.
        let shape = if turned { [hidden, rows] } else { [rows, hidden] };
        let mut source = random_array(&mut Choice::new(12), Distribution::Tame, dtype, &shape);
        for (at, number) in source.elements.iter_mut().enumerate() {
            *number = Number::Float(Interval::point(((at * 53 + at / 7) % 129) as f64 / 2048.0 - 0.03125));
        }
        let source = case.leaf(CaseLeaf::contiguous(source));
        let turn = Op::Permute(Permute([1u8, 0].into_iter().collect()));
        let weights = match turned {
            true => case.ir.push(turn, dtype, [rows, hidden].as_slice().into(), [source]),
            false => source,
        };
        let mut inputs = Vec::new();
        let saved = if cell.has_cell_state() { 5 } else { 4 } * steps * batch * hidden;
        let saved = if layer.save && matches!(cell, Cell::Lstm | Cell::Gru) { saved } else { 0 };
        let last = usize::from(cell.has_cell_state()) * batch * hidden;
        let (op, size): (Composite, usize) = if is_gradient {
            inputs.push(weights);
            inputs.push(leaf(&mut case, dtype, &state));
            inputs.extend(cell.has_cell_state().then(|| leaf(&mut case, dtype, &state)));
            inputs.push(leaf(&mut case, dtype, &sequence));
            if matches!(cell, Cell::Lstm | Cell::Gru) {
                // Gates are from 0 to 1; otherwise gradients grow until they are infinite.
                let shape = [steps, batch, 4 * hidden];
                let mut gates = random_array(&mut Choice::new(12), Distribution::Tame, dtype, &shape);
                for (at, number) in gates.elements.iter_mut().enumerate() {
                    *number = Number::Float(Interval::point((at * 37 % 65) as f64 / 64.0));
                }
                inputs.push(case.leaf(CaseLeaf::contiguous(gates)));
            }
            inputs.extend(cell.has_cell_state().then(|| leaf(&mut case, dtype, &sequence)));
            inputs.push(leaf(&mut case, dtype, &sequence));
            inputs.extend(cell.has_cell_state().then(|| leaf(&mut case, dtype, &state)));
            let parts = if cell == Cell::Gru { 2 } else { 1 };
            (RecurrentGradient(layer).into(), parts * steps * batch * rows + batch * hidden + last)
        } else {
            inputs.push(leaf(&mut case, dtype, &state));
            inputs.extend(cell.has_cell_state().then(|| leaf(&mut case, dtype, &state)));
            inputs.push(leaf(&mut case, DType::F32, &[steps, batch, rows]));
            inputs.push(weights);
            inputs.extend(layer.bias.then(|| leaf(&mut case, dtype, &[rows])));
            (RecurrentSteps(layer).into(), steps * batch * hidden + last + saved)
        };
        let output = case.ir.push(Op::Composite(op), dtype, [size].as_slice().into(), inputs);
        case.ir.outputs.push(output);
        case
    }
}

/// Several groups of units and of sequences, sizes that do not fill them, and more sequences than fit a launch.
fn calls() -> Vec<Call> {
    let mut calls = Vec::new();
    for cell in CELLS {
        let layer = Recurrent { cell, reverse: false, bias: true, save: true };
        let call = |layer, dtype, sizes| Call { layer, dtype, sizes, turned: false };
        calls.push(call(layer, DType::F16, [3, 11, 40]));
        calls.push(call(Recurrent { reverse: true, bias: false, ..layer }, DType::BF16, [3, 2, 72]));
        calls.push(Call { turned: true, ..call(Recurrent { save: false, ..layer }, DType::F16, [1, 3, 8]) });
    }
    calls.push(Call {
        layer: Recurrent { cell: Cell::Lstm, reverse: false, bias: true, save: true },
        dtype: DType::F16,
        sizes: [2, 70, 64],
        turned: false,
    });
    calls
}

/// The kernels that multiply panels, if the step has any.
fn kernels(call: &Call, is_gradient: bool, target: &Target) -> Option<Vec<Kernel>> {
    let lowered = lower(&last_step(&call.case(is_gradient)), target).ok()?;
    Some(lowered.launches.into_iter().map(|launch| launch.kernel).filter(Kernel::has_panels).collect())
}

fn launches(call: &Call, is_gradient: bool, target: &Target) -> Option<usize> {
    kernels(call, is_gradient, target).map(|kernels| kernels.len())
}

#[test]
fn groups_have_fewer_units_if_weights_do_not_fit() {
    let call = &calls()[0];
    for is_gradient in [false, true] {
        let groups = |shared_bytes: usize| {
            kernels(call, is_gradient, &cramped(16, shared_bytes)).map(|kernels| kernels[0].grid())
        };
        assert_eq!(groups(32 << 10), Some([2, 2, 1]));
        assert_eq!(groups(12 << 10), Some([3, 2, 1]));
        assert_eq!(groups(8 << 10), None);
    }
}

#[test]
fn one_launch_has_as_many_sequences_as_groups_have_room_for() {
    let calls = calls();
    for call in &calls {
        for is_gradient in [false, true] {
            let expected = if call.sizes[1] > 64 { 2 } else { 1 };
            let groups = call.sizes[2].div_ceil(32);
            assert_eq!(launches(call, is_gradient, &meeting(groups)), Some(expected));
            assert_eq!(launches(call, is_gradient, &meeting(groups).unaligned()), Some(expected));
            assert_eq!(launches(call, is_gradient, &meeting(8 * groups)), Some(1));
            assert_eq!(launches(call, is_gradient, &meeting(groups - 1)), None);
        }
    }
}

#[test]
fn steps_of_recurrent_layers() {
    let targets = [meeting(3), meeting(16), cramped(16, 12 << 10), cramped(16, 22 << 10)];
    check_all(calls().iter().map(|call| call.case(false)), &targets);
    check_all(calls()[..3].iter().map(|call| call.case(false)), &[meeting(3).unaligned()]);
}

#[test]
fn gradients_of_recurrent_layers() {
    let targets = [meeting(3), meeting(16), cramped(16, 12 << 10), cramped(16, 22 << 10)];
    check_all(calls().iter().map(|call| call.case(true)), &targets);
    check_all(calls()[..3].iter().map(|call| call.case(true)), &[meeting(3).unaligned()]);
}
