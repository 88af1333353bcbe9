//! Executes loop trees on the host. The result defines the meaning of printed kernels.
//!
//! The invocations of a group execute the body together, one statement at a time. That is only one of the orders a
//! device may choose, so anything that depends on it is an error: accesses of different invocations to the same element
//! without a barrier between them, if one is a write. Accesses out of bounds and reads of unwritten memory are errors
//! too.

mod bulk;
mod fragments;
mod memory;

use std::{collections::HashSet, ops::Range};

use smallvec::SmallVec;

use self::{
    bulk::Turns,
    memory::{Accessor, Cell, Value},
};
use super::scalar;
use crate::{
    DType, Error, Result, Scalar,
    kernel::{
        index::Index,
        loops::{
            ArrayId, AsyncCopy, AxisKind, Factor, Fragment, Kernel, KernelOp, Matrix, MemoryAccess, Panel,
            Statement, Tile, Type, ValueId,
        },
    },
};

/// Runs a kernel over the whole grid, in subgroups of `subgroup` invocations. `buffers` are its buffer arguments,
/// `scalars` its scalar ones.
///
/// # Errors
/// [`Error::Internal`] if the arguments do not fit, or for an invalid operation: an access out of bounds, a race, a
/// read of a shared array, register or fragment before it is written, a barrier or subgroup operation that only some of
/// the participants reach.
pub fn interpret(
    kernel: &Kernel,
    subgroup: usize,
    buffers: &mut [Vec<Scalar>],
    scalars: &[Scalar],
) -> Result<()> {
    let fits = buffers.len() == kernel.buffers.len() && scalars.len() == kernel.scalars.len();
    if !fits || buffers.iter().zip(&kernel.buffers).any(|(b, p)| b.len() < p.length) {
        return Err(broken(kernel, "the arguments do not fit the parameters"));
    }
    let mut memory = buffers.iter().map(|b| b.iter().map(|&s| Cell::of(Some(s))).collect()).collect();
    let (grid, block) = (kernel.grid(), kernel.block());
    let size: usize = block.iter().product();
    let groups: usize = grid.iter().product();
    // Groups that wait for each other run together.
    let together = if kernel.has_grid_barriers() { groups } else { 1 };
    for first in (0..groups).step_by(together) {
        let point = |number: usize| {
            let (group, invocation) = (first + number / size, number % size);
            let coordinate = |flat: usize, extents: [usize; 3], d: u8| {
                let inner: usize = extents[..usize::from(d)].iter().product();
                flat / inner % extents[usize::from(d)]
            };
            let along = |kind| match kind {
                AxisKind::Grid(d) => coordinate(group, grid, d),
                AxisKind::Block(d) => coordinate(invocation, block, d),
                AxisKind::Part(first) => coordinate(group, grid, 0).wrapping_sub(first as usize),
                _ => 0,
            };
            kernel.axes.iter().map(|axis| along(axis.kind)).collect()
        };
        let cells = |length| vec![Cell::of(None); length];
        let count = together * size;
        let fragments = |f: &Fragment| vec![vec![None; f.length]; count.div_ceil(subgroup * f.subgroups())];
        let mut run = WorkGroup {
            kernel,
            subgroup,
            scalars,
            size,
            first,
            row: grid[0],
            intervals: vec![0; together],
            meetings: vec![0; together],
            turns: Turns::default(),
            turn: 0,
            left: HashSet::new(),
            points: (0..count).map(point).collect(),
            values: Vec::new(),
            buffers: memory,
            shared: kernel.shared.iter().map(|a| vec![cells(a.length); together]).collect(),
            registers: kernel.registers.iter().map(|a| vec![cells(a.length); count]).collect(),
            fragments: kernel.fragments.iter().map(fragments).collect(),
            copies: vec![Default::default(); count],
            products: vec![Vec::new(); count],
        };
        let everybody: Vec<usize> = (0..count).collect();
        run.body(&kernel.body, &everybody)?;
        memory = run.buffers;
    }
    for (buffer, cells) in buffers.iter_mut().zip(memory) {
        for (scalar, cell) in buffer.iter_mut().zip(cells) {
            *scalar = cell.value.unwrap_or(*scalar);
        }
    }
    Ok(())
}

fn broken(kernel: &Kernel, message: impl std::fmt::Display) -> Error {
    Error::internal("kernel::interpret", format!("kernel {}: {message}", kernel.name))
}

/// The execution state of a group, or of all groups if they wait for each other.
struct WorkGroup<'a> {
    kernel: &'a Kernel,
    subgroup: usize,
    scalars: &'a [Scalar],
    /// The invocations of a group.
    size: usize,
    /// The first group.
    first: usize,
    /// The groups along dimension 0 of the grid.
    row: usize,
    /// By group: the number of barriers passed, and of those that were of several groups.
    intervals: Vec<usize>,
    meetings: Vec<usize>,
    /// The turns of bulk copies passed.
    turns: Turns,
    /// The number of operations passed that order the invocations of a subgroup.
    turn: usize,
    /// Invocations that left the innermost loop, or an enclosing loop that continues without them.
    left: HashSet<usize>,
    /// The axes' values of each invocation.
    points: Vec<SmallVec<[usize; 8]>>,
    /// Indexed by [`ValueId`].
    values: Vec<Value>,
    buffers: Vec<Vec<Cell>>,
    /// By array and group.
    shared: Vec<Vec<Vec<Cell>>>,
    /// By array and invocation.
    registers: Vec<Vec<Vec<Cell>>>,
    /// By array, subgroup and position: the matrix, row-major.
    fragments: Vec<Vec<Vec<Option<Vec<Scalar>>>>>,
    /// By invocation: copies that are not in a batch yet, and the pending batches.
    copies: Vec<(Vec<Copied>, Vec<Vec<Copied>>)>,
    /// By team: products that are not settled.
    products: Vec<Vec<Pending>>,
}

/// What a product that is not settled accesses: an array of fragments, and elements of shared arrays.
#[derive(Clone)]
struct Pending {
    sums: u16,
    /// The array of the left factor's fragments, if it is not in a panel.
    left: Option<u16>,
    panels: SmallVec<[(ArrayId, Range<i64>); 2]>,
}

/// An element of a pending copy.
type Copied = (MemoryAccess, Scalar);

impl WorkGroup<'_> {
    fn fail<T>(&self, message: impl std::fmt::Display) -> Result<T> {
        Err(broken(self.kernel, message))
    }

    fn body(&mut self, statements: &[Statement], active: &[usize]) -> Result<()> {
        for statement in statements {
            if self.left.is_empty() {
                self.statement(statement, active)?;
            } else {
                let staying: Vec<usize> = active.iter().copied().filter(|i| !self.left.contains(i)).collect();
                self.statement(statement, &staying)?;
            }
        }
        Ok(())
    }

    fn statement(&mut self, statement: &Statement, active: &[usize]) -> Result<()> {
        match statement {
            Statement::Loop { axis, body } => {
                let at = usize::from(*axis);
                let axis = self.kernel.axes[at];
                match axis.kind {
                    AxisKind::Grid(_) | AxisKind::Block(_) => return self.body(body, active),
                    AxisKind::Part(_) => {
                        let inside = |&invocation: &usize| self.points[invocation][at] < axis.extent;
                        let inside: Vec<usize> = active.iter().copied().filter(inside).collect();
                        return if inside.is_empty() { Ok(()) } else { self.body(body, &inside) };
                    }
                    _ => {}
                }
                let outside = self.left.clone();
                for i in 0..axis.extent {
                    for &invocation in active.iter().filter(|i| !self.left.contains(i)) {
                        self.points[invocation][at] = i;
                    }
                    self.body(body, active)?;
                }
                self.left = outside;
                Ok(())
            }
            Statement::Let { value, of, operation } => {
                let at = *value as usize;
                if self.values.len() <= at {
                    self.values.resize_with(at + 1, || Value::new(*of));
                }
                let mut result = std::mem::replace(&mut self.values[at], Value::new(*of));
                result.reset(*of, self.points.len());
                for &invocation in active {
                    let lanes = result.lanes(invocation);
                    self.operation(*of, operation, invocation, active, &mut result.numbers[lanes])?;
                    result.bound[invocation] = true;
                }
                self.values[at] = result;
                Ok(())
            }
            Statement::Store { access, value, when } => {
                for &invocation in active {
                    let holds = match when {
                        Some(when) => self.lanes(*when, invocation)?[0].as_bool(),
                        None => true,
                    };
                    if holds && access.mask.evaluate(&self.points[invocation]) {
                        if self.kernel.holds_panels(access.array) {
                            let first = access.index.evaluate(&self.points[invocation]);
                            self.require_unused(access.array, first..first + 1, invocation)?;
                        }
                        for lane in 0..self.lanes(*value, invocation)?.len() {
                            let scalar = self.lanes(*value, invocation)?[lane];
                            self.write(access, invocation, lane, scalar)?;
                        }
                    }
                }
                Ok(())
            }
            Statement::If { mask, then, otherwise } => {
                let (holds, fails): (Vec<usize>, Vec<usize>) =
                    active.iter().partition(|&&invocation| mask.evaluate(&self.points[invocation]));
                self.body(then, &holds)?;
                self.body(otherwise, &fails)
            }
            Statement::Atomic { access, combine, value, when } => {
                for &invocation in active {
                    let holds = self.lanes(*when, invocation)?[0].as_bool();
                    if holds && access.mask.evaluate(&self.points[invocation]) {
                        let value = self.lanes(*value, invocation)?[0];
                        self.atomic(access, invocation, *combine, value)?;
                    }
                }
                Ok(())
            }
            Statement::Break { when } => {
                for &invocation in active {
                    if self.lanes(*when, invocation)?[0].as_bool() {
                        self.left.insert(invocation);
                    }
                }
                Ok(())
            }
            Statement::Barrier => {
                let groups =
                    self.whole(active, self.size, "a barrier that only part of the group reaches")?;
                groups.into_iter().for_each(|group| self.intervals[group] += 1);
                Ok(())
            }
            Statement::GridBarrier(_) => {
                let row = self.row;
                let rows = self.whole(active, row * self.size, "a barrier that only some groups reach")?;
                for group in rows.into_iter().flat_map(|number| number * row..(number + 1) * row) {
                    self.intervals[group] += 1;
                    self.meetings[group] += 1;
                }
                Ok(())
            }
            Statement::AsyncCopy(copy) if active.is_empty() || !copy.is_joint() => {
                active.iter().try_for_each(|&i| self.async_copy(copy, i))
            }
            Statement::AsyncCopy(_) if active.len() < self.points.len() => {
                self.fail("a bulk copy or a turn that only part of the group reaches")
            }
            Statement::AsyncCopy(copy) => self.joint_copy(copy),
            Statement::Matrix(matrix) => {
                let team = self.team(matrix);
                for first in (0..self.points.len()).step_by(team) {
                    let members = first..first + team;
                    match active.iter().filter(|i| members.contains(i)).count() {
                        0 => {}
                        all if all == team => self.matrix(matrix, first)?,
                        _ => return self.fail("a matrix instruction that only part of a subgroup reaches"),
                    }
                }
                Ok(())
            }
        }
    }

    /// The numbers of the parts of so many invocations that take part, as a whole.
    fn whole(&self, active: &[usize], size: usize, otherwise: &str) -> Result<Vec<usize>> {
        let mut counts = vec![0; self.points.len() / size];
        active.iter().for_each(|invocation| counts[invocation / size] += 1);
        match counts.iter().all(|&count| count == 0 || count == size) {
            true => Ok((0..counts.len()).filter(|&number| counts[number] > 0).collect()),
            false => self.fail(otherwise),
        }
    }

    fn lanes(&self, value: ValueId, invocation: usize) -> Result<&[Scalar]> {
        match self.values.get(value as usize) {
            Some(found) if found.bound.get(invocation) == Some(&true) => {
                Ok(&found.numbers[found.lanes(invocation)])
            }
            _ => self.fail(format!("value {value} is not bound")),
        }
    }

    fn type_of(&self, value: ValueId) -> DType {
        self.values.get(value as usize).map_or(DType::F32, |value| value.of.dtype)
    }

    /// The lanes of an operand, of which there must be as many as in the result.
    fn operand(&self, value: ValueId, invocation: usize, lanes: usize) -> Result<&[Scalar]> {
        let found = self.lanes(value, invocation)?;
        if found.len() == lanes {
            Ok(found)
        } else {
            self.fail(format!("value {value} has {} lanes, not {lanes}", found.len()))
        }
    }

    /// Computes the lanes of one invocation.
    fn operation(
        &mut self,
        of: Type,
        operation: &KernelOp,
        invocation: usize,
        active: &[usize],
        out: &mut [Scalar],
    ) -> Result<()> {
        let lanes = out.len();
        match operation {
            KernelOp::Constant(scalar) => out.fill(*scalar),
            KernelOp::Parameter(at) => out[0] = self.scalars[usize::from(*at)],
            KernelOp::Index(index) => out[0] = Scalar::Int(index.evaluate(&self.points[invocation])),
            KernelOp::Load(access, fill) => {
                let holds = access.mask.evaluate(&self.points[invocation]);
                for (lane, out) in out.iter_mut().enumerate() {
                    *out = if holds { self.read(access, invocation, lane)? } else { *fill };
                }
            }
            KernelOp::Unary(op, a) => {
                let dtype = self.type_of(*a);
                for (out, x) in out.iter_mut().zip(self.operand(*a, invocation, lanes)?) {
                    *out = self.known(operation, scalar::unary(*op, dtype, *x))?;
                }
            }
            KernelOp::Binary(op, a, b) => {
                let dtype = self.type_of(*a);
                let pairs =
                    self.operand(*a, invocation, lanes)?.iter().zip(self.operand(*b, invocation, lanes)?);
                for (out, (x, y)) in out.iter_mut().zip(pairs) {
                    *out = self.known(operation, scalar::binary(*op, dtype, *x, *y))?;
                }
            }
            KernelOp::MultiplyAdd(a, b, c) => {
                let dtype = self.type_of(*a).compute();
                let pairs =
                    self.operand(*a, invocation, lanes)?.iter().zip(self.operand(*b, invocation, lanes)?);
                let all = pairs.zip(self.operand(*c, invocation, lanes)?);
                for (out, ((x, y), z)) in out.iter_mut().zip(all) {
                    *out = Scalar::Float(x.as_f64().mul_add(y.as_f64(), z.as_f64())).cast(dtype);
                }
            }
            KernelOp::Select(condition, a, b) => {
                let pairs =
                    self.operand(*a, invocation, lanes)?.iter().zip(self.operand(*b, invocation, lanes)?);
                let all = self.operand(*condition, invocation, lanes)?.iter().zip(pairs);
                for (out, (condition, (a, b))) in out.iter_mut().zip(all) {
                    *out = if condition.as_bool() { *a } else { *b };
                }
            }
            KernelOp::Cast(a) => {
                let from = self.type_of(*a);
                for (out, x) in out.iter_mut().zip(self.operand(*a, invocation, lanes)?) {
                    *out = match from == of.dtype {
                        true => *x,
                        false => self.known(operation, scalar::cast(of.dtype, *x))?,
                    };
                }
            }
            KernelOp::Bitcast(a) => {
                let from = self.type_of(*a);
                for (out, x) in out.iter_mut().zip(self.operand(*a, invocation, lanes)?) {
                    *out = self.known(operation, scalar::bitcast(from, of.dtype, *x))?;
                }
            }
            KernelOp::Splat(a) => out.fill(self.lanes(*a, invocation)?[0]),
            KernelOp::Lane(a, lane) => out[0] = self.lanes(*a, invocation)?[usize::from(*lane)],
            KernelOp::Pack(parts) if parts.len() != lanes => {
                return self.fail(format!("{} parts of {lanes} lanes", parts.len()));
            }
            KernelOp::Pack(parts) => {
                for (out, lane) in out.iter_mut().zip(parts) {
                    *out = self.lanes(*lane, invocation)?[0];
                }
            }
            KernelOp::ShuffleXor(a, bits) => {
                let first = invocation - invocation % self.subgroup;
                let other = first + ((invocation % self.subgroup) ^ *bits as usize);
                if !active.contains(&other) {
                    return self.fail("a shuffle from an invocation that does not take part");
                }
                out.copy_from_slice(self.operand(*a, other, lanes)?);
            }
        }
        Ok(())
    }

    fn known(&self, operation: &KernelOp, result: Option<Scalar>) -> Result<Scalar> {
        result.ok_or_else(|| broken(self.kernel, format!("the result of {operation:?} is undetermined")))
    }

    /// The value of an index, which must be the same for the whole subgroup of `first`.
    fn same_in_team(&self, index: &Index, first: usize, team: usize) -> Result<usize> {
        let value = index.evaluate(&self.points[first]);
        let members = &self.points[first..first + team];
        match usize::try_from(value) {
            Ok(at) if members.iter().all(|p| index.evaluate(p) == value) => Ok(at),
            _ => self.fail(format!("{index} is not uniform in a subgroup or team")),
        }
    }
}
