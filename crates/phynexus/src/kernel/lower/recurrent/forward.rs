//! The steps of a layer.

use super::*;

/// What an invocation keeps from step to step, and its buffers.
struct Steps<'a> {
    group: &'a Group,
    from_input: Buffer,
    result: Buffer,
    weights: ArrayId,
    /// States that a step multiplies, as panels.
    states: ArrayId,
    sums: Vec<u16>,
    /// The cell state of the LSTM, the state of the GRU.
    kept: ArrayId,
    /// What the input adds to the gates in the next step.
    ahead: ArrayId,
    /// What is saved of the gates.
    gates: ArrayId,
    bias: Option<ArrayId>,
}

/// Lowers a launch. The memory is that of the result and of counters.
pub(super) fn lower(
    library: &Library,
    sources: &[Source],
    problem: Problem,
    [result, counters]: [Source; 2],
    lowered: &mut Lowered,
) {
    let cell = problem.layer.cell;
    let mut work = Work::new(library.node.op.name());
    let mut operands = library.operands.iter().zip(sources);
    let mut next = |work: &mut Work| operands.next().map(|(operand, &source)| work.operand(operand, source));
    let h0 = next(&mut work);
    let c0 = if cell.has_cell_state() { next(&mut work) } else { None };
    let (from_input, weights) = (next(&mut work), next(&mut work));
    let bias = if problem.layer.bias { next(&mut work) } else { None };
    let (Some(h0), Some(from_input), Some(weights)) = (h0, from_input, weights) else { return };
    let result = work.buffer(problem.dtype, library.node.len(), result, true);
    let counters = work.buffer(DType::U32, problem.shape.teams, counters, true);
    Group::launch(&mut work.b, problem, counters, |b, group| {
        let padded = problem.hidden.next_multiple_of(Panel::WIDTH);
        let rows = problem.shape.tiles(cell) * Panel::ROWS;
        let steps = Steps {
            group,
            from_input,
            result,
            weights: b.panels(problem.dtype, rows * padded),
            states: b.panels(problem.dtype, problem.shape.columns * padded),
            sums: (0..problem.shape.tiles(cell)).map(|_| group.sums(b)).collect(),
            kept: group.registers(b, 1),
            ahead: group.registers(b, cell.gates()),
            gates: group.registers(b, SAVED),
            bias: bias.map(|_| b.registers(DType::F32, cell.gates())),
        };
        steps.begin(b, weights, [c0.or((cell == Cell::Gru).then_some(h0)), bias]);
        steps.look_ahead(b, &Index::default());
        b.over(problem.steps, AxisKind::Serial, |b, taken| steps.step(b, h0, taken));
        if cell.has_cell_state() {
            group.each(b, |b, element, sequence, exists| {
                let value = b.load(steps.kept, element);
                let at = group.place(None, sequence, problem.hidden, &group.unit(b));
                group.store(b, result, &at.shift(steps.after_states() as i64), exists, value);
            });
        }
    });
    work.finish(lowered);
}

impl Steps<'_> {
    /// The number of states.
    fn after_states(&self) -> usize {
        let Problem { steps, batch, hidden, .. } = self.group.problem;
        steps * batch * hidden
    }

    /// Loads what does not change, and the first states.
    fn begin(&self, b: &mut Builder, weights: Buffer, [kept, bias]: [Option<Buffer>; 2]) {
        let (group, hidden) = (self.group, self.group.problem.hidden);
        let gates = group.problem.layer.cell.gates();
        group.copy_weights(b, self.weights, weights);
        if let Some(buffer) = kept {
            group.each(b, |b, element, sequence, exists| {
                let at = group.place(None, sequence, hidden, &group.unit(b));
                let value = group.load(b, buffer, &at, exists);
                b.store(self.kept, element, value);
            });
        }
        if let (Some(buffer), Some(registers)) = (bias, self.bias) {
            b.over(gates, AxisKind::Unroll, |b, gate| {
                let unit = group.unit(b);
                let exists = Mask::within(&unit, 0, hidden as i64, b.ranges());
                let value = group.load(b, buffer, &gate.scale(hidden as i64).add(&unit), &exists);
                b.store(registers, gate, value);
            });
        }
    }

    /// Loads what the input adds in a step, which takes as long as waiting for the other groups.
    fn look_ahead(&self, b: &mut Builder, taken: &Index) {
        let group = self.group;
        let Problem { layer, hidden, .. } = group.problem;
        let gates = layer.cell.gates();
        let time = group.time(taken);
        group.each(b, |b, element, sequence, exists| {
            for gate in 0..gates {
                let unit = group.unit(b).shift((gate * hidden) as i64);
                let at = group.place(Some(&time), sequence, gates * hidden, &unit);
                let value = group.load(b, self.from_input, &at, exists);
                b.store(self.ahead, &group.at(gate, element), value);
            }
        });
    }

    fn step(&self, b: &mut Builder, h0: Buffer, taken: &Index) {
        let group = self.group;
        let Problem { layer, hidden, steps, .. } = group.problem;
        let padded = hidden.next_multiple_of(Panel::WIDTH);
        let time = group.time(taken);
        let copy = |b: &mut Builder, buffer: Buffer, time: Option<Index>| {
            group.copy(b, self.states, [group.problem.shape.columns, padded], |b, column, unit| {
                let sequence = group.sequence(column);
                let mask = group.exists(b, &sequence, unit);
                let index = group.place(time.as_ref(), &sequence, hidden, unit);
                let access = MemoryAccess::at(buffer.array, &index);
                MemoryAccess { mask, ..access }
            });
        };
        let is_first = Mask::within(taken, 0, 1, b.ranges());
        b.choose(
            is_first,
            |b| copy(b, h0, None),
            |b| copy(b, self.result, Some(group.time(&taken.shift(-1)))),
        );
        group.await_copies(b);
        let panel = Panel::ROWS * Panel::WIDTH;
        let first = |tile: usize| MemoryAccess::at(self.weights, &Index::constant((tile * panel) as i64));
        let products: Vec<_> =
            self.sums.iter().enumerate().map(|(tile, &sums)| (sums, first(tile))).collect();
        let right = (self.states, padded / Panel::WIDTH);
        group.multiply(b, &products, (products.len() * panel, true), right);
        b.matrix(Matrix::Settle(0));
        group.each(b, |b, element, sequence, exists| {
            let state = self.state_after(b, element);
            let at = group.place(Some(&time), sequence, hidden, &group.unit(b));
            group.store(b, self.result, &at, exists, state);
        });
        let goes_on = Mask::within(taken, 0, steps as i64 - 1, b.ranges());
        b.when(goes_on, |b| {
            self.look_ahead(b, &taken.shift(1));
            group.meet(b);
        });
        // Nobody waits for these.
        if layer.save {
            group.each(b, |b, element, sequence, exists| self.save(b, element, &time, sequence, exists));
        }
    }

    /// What the input and the state add to the gates: each by itself, with the bias of the state.
    fn added(&self, b: &mut Builder, element: &Index) -> Vec<[ValueId; 2]> {
        let gates = self.group.problem.layer.cell.gates();
        let sums = self.group.gate_sums(b, &self.sums, element);
        let mut added = Vec::with_capacity(gates);
        for (gate, mut from_state) in sums.into_iter().take(gates).enumerate() {
            let from_input = b.load(self.ahead, &self.group.at(gate, element));
            if let Some(bias) = self.bias {
                let bias = b.load(bias, &Index::constant(gate as i64));
                from_state = b.binary(Binary::Add, from_state, bias);
            }
            added.push([from_input, from_state]);
        }
        added
    }

    /// Computes an element of the state.
    fn state_after(&self, b: &mut Builder, element: &Index) -> ValueId {
        let group = self.group;
        let added = self.added(b, element);
        let sum = |b: &mut Builder, gate: usize| b.binary(Binary::Add, added[gate][0], added[gate][1]);
        let keep =
            |b: &mut Builder, value: usize, of: ValueId| b.store(self.gates, &group.at(value, element), of);
        match group.problem.layer.cell {
            Cell::Lstm => {
                let sums = [0, 1, 2, 3].map(|gate| sum(b, gate));
                let [i, f, o] = [0, 1, 3].map(|gate| group.sigmoid(b, sums[gate]));
                let g = b.unary(Unary::Tanh, sums[2]);
                let before = b.load(self.kept, element);
                let (kept, new) = (b.binary(Binary::Mul, f, before), b.binary(Binary::Mul, i, g));
                let after = b.binary(Binary::Add, kept, new);
                b.store(self.kept, element, after);
                [i, f, g, o].into_iter().enumerate().for_each(|(value, of)| keep(b, value, of));
                let t = b.unary(Unary::Tanh, after);
                b.binary(Binary::Mul, o, t)
            }
            Cell::Gru => {
                let [r, z] = [0, 1].map(|gate| {
                    let sum = sum(b, gate);
                    group.sigmoid(b, sum)
                });
                let [x, candidate] = added[2];
                let reset = b.binary(Binary::Mul, r, candidate);
                let sum = b.binary(Binary::Add, x, reset);
                let n = b.unary(Unary::Tanh, sum);
                [r, z, n, candidate].into_iter().enumerate().for_each(|(value, of)| keep(b, value, of));
                let before = b.load(self.kept, element);
                let change = b.binary(Binary::Sub, before, n);
                let change = b.binary(Binary::Mul, z, change);
                let after = b.binary(Binary::Add, n, change);
                b.store(self.kept, element, after);
                after
            }
            Cell::Tanh => {
                let sum = sum(b, 0);
                b.unary(Unary::Tanh, sum)
            }
            Cell::Relu => {
                let sum = sum(b, 0);
                let zero = b.constant(DType::F32, 0.0);
                let is_off = b.binary(Binary::Le, sum, zero);
                b.select(is_off, zero, sum)
            }
        }
    }

    /// Stores what the gradient needs of a step.
    fn save(&self, b: &mut Builder, element: &Index, time: &Index, sequence: &Index, exists: &Mask) {
        let group = self.group;
        let Problem { layer, batch, hidden, .. } = group.problem;
        if !layer.cell.saves_gates() {
            return;
        }
        let has_cell = layer.cell.has_cell_state();
        let start = self.after_states() + usize::from(has_cell) * batch * hidden;
        for value in 0..SAVED {
            let unit = group.unit(b).shift((value * hidden) as i64);
            let at = group.place(Some(time), sequence, SAVED * hidden, &unit).shift(start as i64);
            let gate = b.load(self.gates, &group.at(value, element));
            group.store(b, self.result, &at, exists, gate);
        }
        if has_cell {
            let at = group.place(Some(time), sequence, hidden, &group.unit(b));
            let value = b.load(self.kept, element);
            let start = start + SAVED * self.after_states();
            group.store(b, self.result, &at.shift(start as i64), exists, value);
        }
    }
}
