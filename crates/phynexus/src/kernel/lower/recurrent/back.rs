//! The gradient of a layer's steps. A group multiplies the gradients of its own units' gates with their weights. The
//! results are parts of the gradients of all units, which the groups of these units add up.

use super::*;

/// Columns of sums for 64 units that a team computes at once.
const SUMS: usize = 64;

/// Elements of the memory for parts of sums: of one step, and of the one before, which some groups may still read.
pub(super) fn parts(shape: Shape, hidden: usize) -> usize {
    2 * shape.teams * shape.slices * hidden.next_multiple_of(Panel::WIDTH) * shape.columns
}

/// Operands.
struct Operands {
    weights: Buffer,
    h0: Buffer,
    c0: Option<Buffer>,
    states: Buffer,
    gates: Option<Buffer>,
    cells: Option<Buffer>,
    of_states: Buffer,
    of_cell: Option<Buffer>,
}

/// What an invocation keeps from step to step, and its buffers.
struct Back<'a> {
    group: &'a Group,
    operands: &'a Operands,
    result: Buffer,
    parts: Buffer,
    /// Panels of the units' weights, and of the gradients that they multiply.
    weights: ArrayId,
    factors: ArrayId,
    sums: Vec<u16>,
    /// The gradient of the state.
    total: ArrayId,
    /// That of the cell state of the LSTM; of the GRU's state, what comes without a product.
    kept: ArrayId,
    /// The gates, then the gradients of what the input adds to them; of what the state adds.
    gates: ArrayId,
    of_state: ArrayId,
    /// The state or cell state that a step gave, and that it started from.
    after: ArrayId,
    before: ArrayId,
}

fn operands(library: &Library, sources: &[Source], cell: Cell, work: &mut Work) -> Option<Operands> {
    let mut operands = library.operands.iter().zip(sources);
    let mut next = || operands.next().map(|(operand, &source)| work.operand(operand, source));
    let has_cell = cell.has_cell_state();
    Some(Operands {
        weights: next()?,
        h0: next()?,
        c0: if has_cell { next() } else { None },
        states: next()?,
        gates: if cell.saves_gates() { next() } else { None },
        cells: if has_cell { next() } else { None },
        of_states: next()?,
        of_cell: if has_cell { next() } else { None },
    })
}

/// Lowers a launch. The memory is that of the result, of counters and of parts of sums.
pub(super) fn lower(
    library: &Library,
    sources: &[Source],
    problem: Problem,
    [result, counters, parts_of]: [Source; 3],
    lowered: &mut Lowered,
) {
    let (cell, shape) = (problem.layer.cell, problem.shape);
    let mut work = Work::new(library.node.op.name());
    let Some(operands) = operands(library, sources, cell, &mut work) else { return };
    let result = work.buffer(problem.dtype, library.node.len(), result, true);
    let counters = work.buffer(DType::U32, shape.teams, counters, true);
    let parts = work.buffer(DType::F32, parts(shape, problem.hidden), parts_of, true);
    Group::launch(&mut work.b, problem, counters, |b, group| {
        let padded = problem.hidden.next_multiple_of(Panel::WIDTH);
        let rows = shape.tiles(cell) * Panel::ROWS;
        let matrices = padded / Panel::WIDTH;
        let at_once = (SUMS / shape.columns).clamp(1, matrices);
        let gates = group.registers(b, SAVED);
        let back = Back {
            group,
            operands: &operands,
            result,
            parts,
            weights: b.panels(problem.dtype, rows * padded),
            factors: b.panels(problem.dtype, rows * shape.columns),
            sums: (0..at_once).map(|_| group.sums(b)).collect(),
            total: group.registers(b, 1),
            kept: group.registers(b, 1),
            gates,
            of_state: if cell == Cell::Gru { group.registers(b, SAVED) } else { gates },
            after: group.registers(b, 1),
            before: group.registers(b, 1),
        };
        back.begin(b);
        back.look_ahead(b, &Index::constant(problem.steps as i64 - 1));
        b.over(problem.steps, AxisKind::Serial, |b, turn| back.step(b, turn));
        back.finish(b);
    });
    work.finish(lowered);
}

impl Back<'_> {
    /// Copies the weights, whose panels have units as neighbours, and loads the gradient of the last cell state.
    fn begin(&self, b: &mut Builder) {
        let (group, hidden) = (self.group, self.group.problem.hidden);
        group.copy_weights(b, self.weights, self.operands.weights);
        group.each(b, |b, element, sequence, exists| {
            let at = group.place(None, sequence, hidden, &group.unit(b));
            let value = match self.operands.of_cell {
                Some(of_cell) => group.load(b, of_cell, &at, exists),
                None => b.constant(DType::F32, 0.0),
            };
            b.store(self.kept, element, value);
        });
        group.await_copies(b);
    }

    /// The steps are taken back, the last one first.
    fn step(&self, b: &mut Builder, turn: &Index) {
        let group = self.group;
        let Problem { layer, dtype, hidden, steps, shape, .. } = group.problem;
        let (cell, gates, tiles) = (layer.cell, layer.cell.gates(), shape.tiles(layer.cell));
        let taken = Index::constant(steps as i64 - 1).sub(turn);
        let time = group.time(&taken);
        if cell == Cell::Gru {
            group.each(b, |b, element, _, _| {
                let direct = b.load(self.kept, element);
                b.accumulate(self.total, element, Binary::Add, direct);
            });
        }
        let has_parts = Mask::within(turn, 1, steps as i64, b.ranges());
        b.when(has_parts, |b| self.add_parts(b, &turn.shift(-1)));
        group.each(b, |b, element, _, _| {
            self.pass(b, element);
            let column = group.column(b, element).scale(Panel::WIDTH as i64);
            // Also in rows of gates that do not exist.
            for gate in 0..tiles * Panel::ROWS / shape.units {
                let value = match gate < gates {
                    true => b.load(self.of_state, &group.at(gate, element)),
                    false => b.constant(DType::F32, 0.0),
                };
                let rounded = b.cast(dtype, value);
                let (tile, row) = group.row(b, gate);
                let panel = (tile * shape.columns * Panel::WIDTH) as i64;
                b.store(self.factors, &column.add(&row).shift(panel), rounded);
            }
        });
        b.barrier();
        let matrices = hidden.div_ceil(Panel::WIDTH);
        for first in (0..matrices).step_by(self.sums.len()) {
            let some = || (first..matrices).zip(&self.sums);
            let panel = Panel::ROWS * Panel::WIDTH;
            let left = |matrix: usize| Index::constant((matrix * tiles * panel) as i64);
            let products: Vec<_> =
                some().map(|(matrix, &sums)| (sums, MemoryAccess::at(self.weights, &left(matrix)))).collect();
            group.multiply(b, &products, (panel, false), (self.factors, tiles));
            if first == 0 {
                self.store_gradients(b, &time);
            }
            b.matrix(Matrix::Settle(0));
            for (matrix, &sums) in some() {
                self.store_part(b, matrix, sums, turn);
            }
        }
        let goes_on = Mask::within(turn, 0, steps as i64 - 1, b.ranges());
        b.when(goes_on, |b| self.look_ahead(b, &taken.shift(-1)));
        group.meet(b);
    }

    /// Loads what a step gave and started from, and the gradient of its state, which takes as long as waiting for the
    /// other groups.
    fn look_ahead(&self, b: &mut Builder, taken: &Index) {
        let group = self.group;
        let Problem { hidden, steps, .. } = group.problem;
        let Operands { h0, c0, states, gates, cells, of_states, .. } = *self.operands;
        let time = group.time(taken);
        group.each(b, |b, element, sequence, exists| {
            let unit = group.unit(b);
            let at = group.place(Some(&time), sequence, hidden, &unit);
            let total = group.load(b, of_states, &at, exists);
            b.store(self.total, element, total);
            for value in 0..gates.map_or(0, |_| SAVED) {
                let Some(gates) = gates else { continue };
                let unit = unit.shift((value * hidden) as i64);
                let at = group.place(Some(&time), sequence, SAVED * hidden, &unit);
                let gate = group.load(b, gates, &at, exists);
                b.store(self.gates, &group.at(value, element), gate);
            }
            let after = group.load(b, cells.unwrap_or(states), &at, exists);
            b.store(self.after, element, after);
            if gates.is_none() {
                return;
            }
            let before = |b: &mut Builder, buffer: Buffer, time: Option<Index>| {
                let at = group.place(time.as_ref(), sequence, hidden, &unit);
                let value = group.load(b, buffer, &at, exists);
                b.store(self.before, element, value);
            };
            b.choose(
                Mask::within(taken, -(steps as i64), 1, b.ranges()),
                |b| before(b, c0.unwrap_or(h0), None),
                |b| before(b, cells.unwrap_or(states), Some(group.time(&taken.shift(-1)))),
            );
        });
    }

    /// Where a group's part of the sums for some unit begins.
    fn part(&self, b: &Builder, turn: &Index, slice: &Index, unit: &Index) -> Index {
        let Problem { hidden, shape, .. } = self.group.problem;
        let padded = hidden.next_multiple_of(Panel::WIDTH);
        let turn = turn.remainder(2, b.ranges());
        let team = turn.scale(shape.teams as i64).add(&self.group.team);
        let slice = team.scale(shape.slices as i64).add(slice);
        slice.scale(padded as i64).add(unit).scale(shape.columns as i64)
    }

    /// Adds the parts that all groups have computed in a turn to the gradient of the state.
    fn add_parts(&self, b: &mut Builder, turn: &Index) {
        let group = self.group;
        // Neighbouring elements may have neighbouring columns.
        let lanes: u8 = if group.problem.shape.is_narrow() { 1 } else { 2 };
        b.over(group.elements() / usize::from(lanes), AxisKind::Unroll, |b, some| {
            let first = some.scale(lanes.into());
            let column = group.column(b, &first);
            // Parts of units that do not exist are products of zeros, which may be NaN. Fetched one after another,
            // parts would take long.
            let exists = Mask::within(&group.unit(b), 0, group.problem.hidden as i64, b.ranges());
            b.over(group.problem.shape.slices, AxisKind::Unroll, |b, slice| {
                let at = self.part(b, turn, slice, &group.unit(b)).add(&column);
                let access = MemoryAccess { mask: exists.clone(), ..MemoryAccess::at(self.parts.array, &at) };
                let parts = b.load_access(access, Scalar::Int(0), lanes);
                for lane in 0..lanes {
                    let value = match lanes {
                        1 => parts,
                        _ => b.bind(Type::scalar(DType::F32), KernelOp::Lane(parts, lane)),
                    };
                    b.accumulate(self.total, &first.shift(lane.into()), Binary::Add, value);
                }
            });
        });
    }

    /// Computes the gradients of an element's gates, and what the step before gets without a product.
    fn pass(&self, b: &mut Builder, element: &Index) {
        let group = self.group;
        let total = b.load(self.total, element);
        let product = |b: &mut Builder, [x, y, z]: [ValueId; 3]| {
            let first = b.binary(Binary::Mul, x, y);
            b.binary(Binary::Mul, first, z)
        };
        let gate = |b: &mut Builder, value: usize| b.load(self.gates, &group.at(value, element));
        let store = |b: &mut Builder, array: ArrayId, values: &[ValueId]| {
            for (value, &of) in values.iter().enumerate() {
                b.store(array, &group.at(value, element), of);
            }
        };
        let after = b.load(self.after, element);
        match group.problem.layer.cell {
            Cell::Lstm => {
                let [i, f, g, o] = [0, 1, 2, 3].map(|value| gate(b, value));
                let [of_i, of_f, of_o] = [i, f, o].map(|s| group.derivative(b, s, true));
                let of_g = group.derivative(b, g, false);
                let t = b.unary(Unary::Tanh, after);
                let of_t = group.derivative(b, t, false);
                let before = b.load(self.before, element);
                let through = product(b, [total, o, of_t]);
                let so_far = b.load(self.kept, element);
                let dc = b.binary(Binary::Add, so_far, through);
                let factors = [[dc, g, of_i], [dc, before, of_f], [dc, i, of_g], [total, t, of_o]];
                let sums = factors.map(|factors| product(b, factors));
                store(b, self.gates, &sums);
                let kept = b.binary(Binary::Mul, dc, f);
                b.store(self.kept, element, kept);
            }
            Cell::Gru => {
                let [r, z, n, candidate] = [0, 1, 2, 3].map(|value| gate(b, value));
                let [of_r, of_z] = [r, z].map(|s| group.derivative(b, s, true));
                let of_n = group.derivative(b, n, false);
                let one = b.constant(DType::F32, 1.0);
                let rest = b.binary(Binary::Sub, one, z);
                let before = b.load(self.before, element);
                let change = b.binary(Binary::Sub, before, n);
                let [dn, dz] =
                    [[total, rest, of_n], [total, change, of_z]].map(|factors| product(b, factors));
                let dr = product(b, [dn, candidate, of_r]);
                let through_candidate = b.binary(Binary::Mul, dn, r);
                store(b, self.gates, &[dr, dz, dn]);
                store(b, self.of_state, &[dr, dz, through_candidate]);
                let direct = b.binary(Binary::Mul, total, z);
                b.store(self.kept, element, direct);
            }
            Cell::Tanh => {
                let derivative = group.derivative(b, after, false);
                let sum = b.binary(Binary::Mul, total, derivative);
                store(b, self.gates, &[sum]);
            }
            Cell::Relu => {
                let zero = b.constant(DType::F32, 0.0);
                let is_off = b.binary(Binary::Eq, after, zero);
                let sum = b.select(is_off, zero, total);
                store(b, self.gates, &[sum]);
            }
        }
    }

    /// Stores the gradients of a step's gates.
    fn store_gradients(&self, b: &mut Builder, time: &Index) {
        let group = self.group;
        let Problem { layer, hidden, .. } = group.problem;
        let gates = layer.cell.gates();
        let arrays: &[ArrayId] =
            if layer.cell == Cell::Gru { &[self.gates, self.of_state] } else { &[self.gates] };
        group.each(b, |b, element, sequence, exists| {
            for (part, &array) in arrays.iter().enumerate() {
                for gate in 0..gates {
                    let unit = group.unit(b).shift((gate * hidden) as i64);
                    let at = group.place(Some(time), sequence, gates * hidden, &unit);
                    let value = b.load(array, &group.at(gate, element));
                    let start = (part * self.of_gates()) as i64;
                    group.store(b, self.result, &at.shift(start), exists, value);
                }
            }
        });
    }

    /// The number of the gates' gradients.
    fn of_gates(&self) -> usize {
        let Problem { layer, steps, batch, hidden, .. } = self.group.problem;
        steps * batch * layer.cell.gates() * hidden
    }

    /// Stores sums for 64 units for the groups of these units.
    fn store_part(&self, b: &mut Builder, matrix: usize, sums: u16, turn: &Index) {
        let group = self.group;
        let [subgroup, quad] = group.quad(b);
        let in_quad = group.x.remainder(4, b.ranges()).scale(2);
        b.over(group.problem.shape.columns / 4, AxisKind::Unroll, |b, number| {
            // Pairs of neighbours, of one row and of the one 8 later.
            let pair = number.scale(2);
            let column = number.quotient(2, b.ranges()).scale(8).add(&in_quad);
            let row = subgroup.scale(16).add(&quad).add(&number.remainder(2, b.ranges()).scale(8));
            let unit = row.shift((matrix * Panel::WIDTH) as i64);
            let both = b.load_lanes(ArrayId::Fragment(sums), &pair, 2);
            let at = self.part(b, turn, &group.slice, &unit).add(&column);
            b.store(self.parts.array, &at, both);
        });
    }

    /// The gradients of the first states.
    fn finish(&self, b: &mut Builder) {
        let group = self.group;
        let Problem { layer, steps, batch, hidden, .. } = group.problem;
        group.each(b, |b, element, _, _| {
            let direct = match layer.cell {
                Cell::Gru => b.load(self.kept, element),
                _ => b.constant(DType::F32, 0.0),
            };
            b.store(self.total, element, direct);
        });
        self.add_parts(b, &Index::constant(steps as i64 - 1));
        let start = self.of_gates() * if layer.cell == Cell::Gru { 2 } else { 1 };
        let arrays: &[ArrayId] =
            if layer.cell.has_cell_state() { &[self.total, self.kept] } else { &[self.total] };
        group.each(b, |b, element, sequence, exists| {
            for (part, &array) in arrays.iter().enumerate() {
                let at = group.place(None, sequence, hidden, &group.unit(b));
                let value = b.load(array, element);
                let start = (start + part * batch * hidden) as i64;
                group.store(b, self.result, &at.shift(start), exists, value);
            }
        });
    }
}
