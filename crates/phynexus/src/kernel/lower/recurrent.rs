//! Recurrent layers, and their gradients: one launch for all steps, whose groups wait for each other after each.
//!
//! A group computes some units of some sequences and keeps the weights of these units in shared memory. Groups with the
//! same sequences exchange what a step gives: states, or for gradients the parts of a sum. One team of subgroups
//! multiplies panels. Rows are the units' gates, arranged so that an invocation has all gates of a unit; columns are
//! sequences.

mod back;
mod forward;
mod shape;

use shape::Shape;

use super::{
    Lowered, Source, Target, Unsupported, access, access::Buffer, library::copy, lower_fused, operand::Work,
};
use crate::{
    DType, Scalar,
    kernel::{
        Index, Mask,
        build::Builder,
        loops::{
            ArrayId, AsyncCopy, AxisKind, Factor, Fragment, KernelOp, Matrix, MatrixShape, MemoryAccess,
            Panel, Role, Type, ValueId,
        },
        step::Library,
    },
    op::{
        Binary, TensorType, Unary,
        composite::{Cell, Recurrent},
    },
    shape::{Layout, contiguous_strides},
};

/// Gates of a unit in the fragments that an invocation has of a panel: in a row, and in the one 8 later.
const GATES: usize = 2;
/// The values of a unit that are saved, and the most gates.
const SAVED: usize = 4;

/// Sizes and attributes of a launch.
#[derive(Clone, Copy)]
struct Problem {
    layer: Recurrent,
    dtype: DType,
    steps: usize,
    batch: usize,
    hidden: usize,
    shape: Shape,
    /// The first sequence of the launch.
    first: usize,
}

/// Whether a kernel pays off for the steps of a layer, or for its gradient.
pub(super) fn pays(cell: Cell, state: TensorType, is_gradient: bool, target: &Target) -> bool {
    target.vector_bytes >= AsyncCopy::BYTES && Shape::of(cell, state, is_gradient, target).is_some()
}

/// Lowers the steps of a layer, or the gradient, over as many sequences at once as the device has room for.
pub(super) fn lower(
    library: &Library,
    layer: Recurrent,
    is_gradient: bool,
    result: Source,
    target: &Target,
    lowered: &mut Lowered,
) -> Result<(), Unsupported> {
    // The state comes first, or after the weights; the sequence tells the steps.
    let (state, sequence) = if is_gradient { (1, 2) } else { (0, 1) };
    let sequence = sequence + usize::from(layer.cell.has_cell_state());
    let state = library.operands[state].tensor_type();
    let (dtype, steps) = (library.node.dtype, library.operands[sequence].layout.shape[0]);
    let (Some(shape), &[batch, hidden]) = (Shape::of(layer.cell, state, is_gradient, target), state.shape())
    else {
        return Err(Unsupported("the steps of a recurrent layer need groups that run at once".to_owned()));
    };
    // Rows are copied in pieces.
    let mut sources = Vec::with_capacity(library.operands.len());
    for (at, operand) in library.operands.iter().enumerate() {
        let is_aligned = target.vector_bytes >= AsyncCopy::BYTES && operand.layout.is_contiguous();
        sources.push(if is_aligned {
            Source::Binding(at)
        } else {
            lowered.temporary(operand.layout.len(), operand.dtype)
        });
        if !is_aligned {
            let copied = copy(operand, &contiguous_strides(&operand.layout.shape), 0);
            lower_fused(&copied, &[Source::Binding(at), sources[at]], target, lowered)?;
        }
    }
    let mut row_major = library.clone();
    for operand in &mut row_major.operands {
        operand.layout = Layout::contiguous(&operand.layout.shape);
    }
    let counters = lowered.temporary(shape.teams, DType::U32);
    let parts = is_gradient.then(|| lowered.temporary(back::parts(shape, hidden), DType::F32));
    for first in (0..batch).step_by(shape.columns * shape.teams) {
        let problem = Problem { layer, dtype, steps, batch, hidden, shape, first };
        clear(counters, shape.teams, target, lowered);
        match parts {
            None => forward::lower(&row_major, &sources, problem, [result, counters], lowered),
            Some(parts) => back::lower(&row_major, &sources, problem, [result, counters, parts], lowered),
        }
    }
    Ok(())
}

/// Sets counters to 0.
fn clear(counters: Source, count: usize, target: &Target, lowered: &mut Lowered) {
    let mut work = Work::new("clear_counters");
    let buffer = work.buffer(DType::U32, count, counters, true);
    const BLOCK: usize = 32;
    access::launch(&mut work.b, &target.limits, count.div_ceil(BLOCK), [1, BLOCK], |b, group, _, x| {
        let at = group.scale(BLOCK as i64).add(x);
        let mask = Mask::within(&at, 0, count as i64, b.ranges());
        let zero = b.constant(DType::U32, Scalar::UInt(0));
        b.store_where(buffer.array, &at, mask, zero);
    });
    work.finish(lowered);
}

/// A group of a launch, and an invocation in it.
struct Group {
    problem: Problem,
    /// The group's place along the sequences and along the units, and the invocation.
    team: Index,
    slice: Index,
    x: Index,
    counters: Buffer,
}

impl Group {
    /// Emits the loops over groups and invocations.
    fn launch(b: &mut Builder, problem: Problem, counters: Buffer, body: impl FnOnce(&mut Builder, &Group)) {
        let Shape { slices, teams, .. } = problem.shape;
        b.over(teams, AxisKind::Grid(1), |b, team| {
            b.over(slices, AxisKind::Grid(0), |b, slice| {
                b.over(Panel::INVOCATIONS, AxisKind::Block(0), |b, x| {
                    let [team, slice, x] = [team, slice, x].map(Index::clone);
                    body(b, &Group { problem, team, slice, x, counters });
                });
            });
        });
    }

    /// The place of the invocation's subgroup, and of its quad of invocations in it.
    fn quad(&self, b: &Builder) -> [Index; 2] {
        let quad = self.x.remainder(32, b.ranges()).quotient(4, b.ranges());
        [self.x.quotient(32, b.ranges()), quad]
    }

    /// The panel and the row in it of a gate of the invocation's unit.
    fn row(&self, b: &Builder, gate: usize) -> (usize, Index) {
        let [subgroup, quad] = self.quad(b);
        let first = subgroup.scale(16).shift((gate % GATES * 8) as i64);
        match self.problem.shape.is_narrow() {
            false => (gate / GATES, first.add(&quad)),
            true => (0, first.add(&quad.remainder(4, b.ranges())).shift((gate / GATES * 4) as i64)),
        }
    }

    /// The invocation's unit.
    fn unit(&self, b: &Builder) -> Index {
        let units = self.problem.shape.units as i64;
        let [subgroup, quad] = self.quad(b);
        let in_subgroup = quad.remainder(units / 4, b.ranges());
        self.slice.scale(units).add(&subgroup.scale(units / 4)).add(&in_subgroup)
    }

    /// The gate and the unit of a row of a panel.
    fn of_row(&self, b: &Builder, tile: &Index, row: &Index) -> [Index; 2] {
        let units = self.problem.shape.units as i64;
        let first = row.remainder(16, b.ranges()).quotient(8, b.ranges());
        // With few units, two more gates of each come after the first ones.
        let further = tile.add(&row.remainder(8, b.ranges()).quotient(units / 4, b.ranges()));
        let in_subgroup = row.remainder(units / 4, b.ranges());
        let in_group = row.quotient(16, b.ranges()).scale(units / 4).add(&in_subgroup);
        [further.scale(GATES as i64).add(&first), self.slice.scale(units).add(&in_group)]
    }

    /// The column of one of the invocation's elements. With few units, two invocations have two gates each of the same
    /// two columns, and the first one takes the first column.
    fn column(&self, b: &Builder, element: &Index) -> Index {
        let in_quad = self.x.remainder(4, b.ranges()).scale(2);
        match self.problem.shape.is_narrow() {
            false => {
                let pair = element.quotient(2, b.ranges());
                pair.scale(8).add(&in_quad).add(&element.remainder(2, b.ranges()))
            }
            true => element.scale(8).add(&in_quad).add(&self.quad(b)[1].quotient(4, b.ranges())),
        }
    }

    /// The sums of all gates of an element.
    fn gate_sums(&self, b: &mut Builder, sums: &[u16], element: &Index) -> Vec<ValueId> {
        if !self.problem.shape.is_narrow() {
            let pair = element.quotient(2, b.ranges()).scale(4).add(&element.remainder(2, b.ranges()));
            let gates = 0..GATES * sums.len();
            let place = |gate: usize| pair.shift((gate % GATES * 2) as i64);
            return gates.map(|gate| b.load(ArrayId::Fragment(sums[gate / GATES]), &place(gate))).collect();
        }
        let half = self.quad(b)[1].quotient(4, b.ranges());
        let (half, zero) = (b.number(&half), b.constant(DType::I32, Scalar::Int(0)));
        let is_first = b.binary(Binary::Eq, half, zero);
        let gates: [[ValueId; 2]; GATES] = std::array::from_fn(|gate| {
            let [first, second] = [0, 1].map(|column| {
                let at = element.scale(4).shift((gate * 2 + column) as i64);
                b.load(ArrayId::Fragment(sums[0]), &at)
            });
            let (own, other) = (b.select(is_first, first, second), b.select(is_first, second, first));
            let received = b.bind(Type::scalar(DType::F32), KernelOp::ShuffleXor(other, 16));
            [b.select(is_first, own, received), b.select(is_first, received, own)]
        });
        (0..2).flat_map(|half| gates.map(|both| both[half])).collect()
    }

    /// The sequence of a column.
    fn sequence(&self, column: &Index) -> Index {
        self.team.scale(self.problem.shape.columns as i64).add(column).shift(self.problem.first as i64)
    }

    /// Where a unit exists, and a sequence.
    fn exists(&self, b: &Builder, sequence: &Index, unit: &Index) -> Mask {
        let inside = |index: &Index, extent: usize| Mask::within(index, 0, extent as i64, b.ranges());
        inside(sequence, self.problem.batch).and(&inside(unit, self.problem.hidden))
    }

    /// The time of the step number `taken`, counted in the order of the layer's steps.
    fn time(&self, taken: &Index) -> Index {
        let last = Index::constant(self.problem.steps as i64 - 1);
        if self.problem.layer.reverse { last.sub(taken) } else { taken.clone() }
    }

    /// The place of a unit of a sequence in a part of the packed result, or in an operand, that has `width` units.
    fn place(&self, time: Option<&Index>, sequence: &Index, width: usize, unit: &Index) -> Index {
        let row = match time {
            Some(time) => time.scale(self.problem.batch as i64).add(sequence),
            None => sequence.clone(),
        };
        row.scale(width as i64).add(unit)
    }

    /// Statements for each of the invocation's elements: its number, its sequence and where it exists.
    fn each(&self, b: &mut Builder, body: impl FnOnce(&mut Builder, &Index, &Index, &Mask)) {
        b.over(self.elements(), AxisKind::Unroll, |b, element| {
            let sequence = self.sequence(&self.column(b, element));
            let exists = self.exists(b, &sequence, &self.unit(b));
            body(b, element, &sequence, &exists);
        });
    }

    /// The number of elements of a row that an invocation has.
    fn elements(&self) -> usize {
        self.problem.shape.columns / if self.problem.shape.is_narrow() { 8 } else { 4 }
    }

    /// Registers for so many values of each element, and the place of one of them.
    fn registers(&self, b: &mut Builder, values: usize) -> ArrayId {
        b.registers(DType::F32, values * self.elements())
    }

    fn at(&self, value: usize, element: &Index) -> Index {
        element.shift((value * self.elements()) as i64)
    }

    /// A number of a buffer, 0 where it does not exist.
    fn load(&self, b: &mut Builder, buffer: Buffer, index: &Index, exists: &Mask) -> ValueId {
        let loaded =
            b.load_where(buffer.array, index, exists.clone(), Scalar::Int(0).cast(b.dtype(buffer.array)));
        b.cast(DType::F32, loaded)
    }

    /// Stores a rounded number where it exists.
    fn store(&self, b: &mut Builder, buffer: Buffer, index: &Index, exists: &Mask, value: ValueId) {
        let rounded = b.cast(b.dtype(buffer.array), value);
        b.store_where(buffer.array, index, exists.clone(), rounded);
    }

    /// Starts copying pieces to panels: `rows` rows of `width` elements each, in panels of 64 neighbours. The closure
    /// tells where a piece comes from, given its row and its place in the row.
    fn copy(
        &self,
        b: &mut Builder,
        panels: ArrayId,
        [rows, width]: [usize; 2],
        source: impl Fn(&mut Builder, &Index, &Index) -> MemoryAccess,
    ) {
        let piece = AsyncCopy::BYTES / self.problem.dtype.size();
        let pieces = rows * width / piece;
        let kind = if pieces > 16 * Panel::INVOCATIONS { AxisKind::Serial } else { AxisKind::Unroll };
        b.over(pieces.div_ceil(Panel::INVOCATIONS), kind, |b, turn| {
            let number = turn.scale(Panel::INVOCATIONS as i64).add(&self.x);
            let inside = Mask::within(&number, 0, pieces as i64, b.ranges());
            b.when(inside, |b| {
                let in_row = number.remainder((width / piece) as i64, b.ranges()).scale(piece as i64);
                let row = number.quotient((width / piece) as i64, b.ranges());
                let from = Box::new(source(b, &row, &in_row));
                let panel = in_row.quotient(Panel::WIDTH as i64, b.ranges()).scale(rows as i64).add(&row);
                let to =
                    panel.scale(Panel::WIDTH as i64).add(&in_row.remainder(Panel::WIDTH as i64, b.ranges()));
                let to = Box::new(MemoryAccess::at(panels, &to));
                b.async_copy(AsyncCopy::Begin { from, to });
            });
        });
    }

    /// Starts copying the weights of the group's units to panels: a row for each gate, zeros for what does not exist.
    fn copy_weights(&self, b: &mut Builder, panels: ArrayId, weights: Buffer) {
        let Problem { layer, dtype, hidden, shape, .. } = self.problem;
        let (extent, side) = (hidden as i64, Panel::ROWS as i64);
        let rows = shape.tiles(layer.cell) * Panel::ROWS;
        self.copy(b, panels, [rows, hidden.next_multiple_of(Panel::WIDTH)], |b, row, column| {
            let tile = row.quotient(side, b.ranges());
            let [gate, unit] = self.of_row(b, &tile, &row.remainder(side, b.ranges()));
            let gates = Mask::within(&gate, 0, layer.cell.gates() as i64, b.ranges());
            let [units, columns] = [&unit, column].map(|index| Mask::within(index, 0, extent, b.ranges()));
            let index = gate.scale(extent).add(&unit).scale(extent).add(column);
            let mask = gates.and(&units).and(&columns);
            weights.masked_access(b, &index, mask, AsyncCopy::BYTES / dtype.size())
        });
    }

    /// Copies that began are complete for the group.
    fn await_copies(&self, b: &mut Builder) {
        b.async_copy(AsyncCopy::Mark);
        b.async_copy(AsyncCopy::Wait(0));
        b.barrier();
    }

    /// Sums of products for 64 rows.
    fn sums(&self, b: &mut Builder) -> u16 {
        let shape = MatrixShape { rows: Panel::ROWS, columns: self.problem.shape.columns, depth: 16 };
        let fragment = Fragment { role: Role::Accumulator, shape, dtype: DType::F32, length: 1 };
        b.fragments(fragment)(Index::default()).fragment
    }

    /// Starts products over consecutive panels of 64 terms: sums, each with its first left panel, of which the next
    /// ones are `apart` elements away. Products of different sums take turns, because those of one wait for each
    /// other.
    fn multiply(
        &self,
        b: &mut Builder,
        products: &[(u16, MemoryAccess)],
        (apart, along_terms): (usize, bool),
        (right, panels): (ArrayId, usize),
    ) {
        let of_right = self.problem.shape.columns * Panel::WIDTH;
        for panel in 0..panels {
            let right = MemoryAccess::at(right, &Index::constant((panel * of_right) as i64));
            let right = Panel { access: right, along_terms: true };
            for (sums, first) in products {
                let index = first.index.shift((panel * apart) as i64);
                let left = Panel { access: MemoryAccess { index, ..first.clone() }, along_terms };
                let (left, right) = (Factor::Panel(left), right.clone());
                b.matrix(Matrix::Product { sums: *sums, left, right, begins: panel == 0 });
            }
        }
    }

    /// Waits for the other groups with these sequences.
    fn meet(&self, b: &mut Builder) {
        b.grid_barrier(MemoryAccess::at(self.counters.array, &self.team));
    }

    /// `1 / (1 + exp(-x))`, of the exponential that does not overflow.
    fn sigmoid(&self, b: &mut Builder, x: ValueId) -> ValueId {
        let size = b.unary(Unary::Abs, x);
        let negative = b.unary(Unary::Neg, size);
        let exponential = b.unary(Unary::Exp, negative);
        let [zero, one] = [0.0, 1.0].map(|number| b.constant(DType::F32, number));
        let sum = b.binary(Binary::Add, one, exponential);
        let is_negative = b.binary(Binary::Lt, x, zero);
        let numerator = b.select(is_negative, exponential, one);
        b.binary(Binary::Div, numerator, sum)
    }

    /// `s (1 - s)`, or `1 - s s`.
    fn derivative(&self, b: &mut Builder, s: ValueId, is_sigmoid: bool) -> ValueId {
        let one = b.constant(DType::F32, 1.0);
        if is_sigmoid {
            let rest = b.binary(Binary::Sub, one, s);
            return b.binary(Binary::Mul, s, rest);
        }
        let square = b.binary(Binary::Mul, s, s);
        b.binary(Binary::Sub, one, square)
    }
}
