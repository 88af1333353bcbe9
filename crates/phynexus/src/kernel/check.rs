//! Validates a loop tree before it is printed or interpreted, also against the limits of a device.

mod barriers;
mod bulk;
mod fragments;

use super::{
    index::{Index, Ranges},
    loops::{
        ArrayId, AsyncCopy, AxisKind, BulkCopy, Factor, Fragment, Kernel, KernelOp, Matrix, MatrixShape,
        MatrixUnit, MemoryAccess, Panel, Role, Statement, Tile, Type, ValueId,
    },
    view::Mask,
};
use crate::{DType, Error, Result, dtype::DTypeKind, hash::FastSet, op::Combine};

/// The limits of a device.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The device's name, for messages.
    pub device: String,
    /// Buffers per kernel.
    pub bindings: usize,
    /// Bytes of shared memory per group.
    pub shared_bytes: usize,
    /// Invocations per group along each dimension.
    pub block: [usize; 3],
    /// Invocations per group.
    pub block_size: usize,
    /// Groups per grid along each dimension.
    pub grid: [usize; 3],
    /// Invocations per subgroup, if the invocations of a subgroup can exchange values.
    pub subgroup: Option<usize>,
    /// Supported element types.
    pub dtypes: Vec<DType>,
    /// Matrix instructions.
    pub matrices: Vec<MatrixUnit>,
    /// Whether invocations hold the elements of 16-bit factors and of sums of a subgroup as those of a team's: see
    /// [`Fragment::position`].
    pub quads: bool,
    /// Whether asynchronous copies to shared memory are supported.
    pub async_copies: bool,
    /// The number of groups of any kernel that can run at once and wait for each other; 0 if none can.
    pub meeting_groups: usize,
}

impl Limits {
    /// Whether the device multiplies panels, for which it also has bulk copies.
    pub fn has_panels(&self) -> bool {
        self.matrices.iter().any(|unit| unit.shape.rows == Panel::ROWS)
    }
}

/// Checks that the kernel is well formed and within the limits:
///
/// - Every axis is looped over where it is used, with grid and block axes outermost.
/// - Every value is bound before it is used, and types agree.
/// - Barriers, subgroup operations and matrix instructions are reached by all of their participants.
/// - Every access is in bounds wherever its mask and the enclosing conditions hold.
///
/// # Errors
/// [`Error::Internal`] for a malformed kernel; [`Error::Device`] for one that exceeds the limits.
pub fn check(kernel: &Kernel, limits: &Limits) -> Result<()> {
    check_limits(kernel, limits)?;
    let mut checker = Checker {
        kernel,
        limits,
        ranges: kernel.ranges(),
        open: Vec::new(),
        conditions: Mask::default(),
        group_uniform: true,
        subgroup_uniform: true,
        grid_uniform: true,
        counter: kernel.counter(),
        breakable: false,
        bound: Vec::new(),
        seen: FastSet::default(),
        launched: 0,
    };
    checker.body(&kernel.body)?;
    let parallel = kernel.axes.iter().filter(|a| is_parallel(a.kind)).count();
    if checker.launched != parallel {
        return checker.fail("a grid or block axis is not looped over");
    }
    Ok(())
}

fn is_parallel(kind: AxisKind) -> bool {
    matches!(kind, AxisKind::Grid(_) | AxisKind::Block(_))
}

/// True if a loop with this body may end early.
fn may_break(body: &[Statement]) -> bool {
    body.iter().any(|statement| match statement {
        Statement::Break { .. } => true,
        Statement::If { then, otherwise, .. } => may_break(then) || may_break(otherwise),
        _ => false,
    })
}

fn check_limits(kernel: &Kernel, limits: &Limits) -> Result<()> {
    let refuse = |what: &str, has: usize, most: usize| {
        if has <= most {
            return Ok(());
        }
        let message = format!("kernel {} needs {has} {what}, the device has {most}", kernel.name);
        Err(Error::Unsupported { device: limits.device.clone(), message })
    };
    refuse("bindings", kernel.buffers.len(), limits.bindings)?;
    refuse("bytes of shared memory", kernel.shared_bytes(), limits.shared_bytes)?;
    refuse("invocations in a group", kernel.launched_block().iter().product(), limits.block_size)?;
    for d in 0..3 {
        refuse("invocations along a dimension of a group", kernel.block()[d], limits.block[d])?;
        refuse("groups along a dimension of the grid", kernel.grid()[d], limits.grid[d])?;
    }
    for (i, axis) in kernel.axes.iter().enumerate() {
        let dimension = match axis.kind {
            AxisKind::Grid(d) | AxisKind::Block(d) => d,
            _ => 0,
        };
        let repeated = is_parallel(axis.kind) && kernel.axes[..i].iter().any(|a| a.kind == axis.kind);
        let beyond =
            matches!(axis.kind, AxisKind::Part(first) if first as usize + axis.extent > kernel.grid()[0]);
        if axis.extent == 0 || dimension > 2 || repeated || beyond {
            return Err(malformed(kernel, format!("axis {i} is {axis:?}")));
        }
    }
    let panels = kernel.shared.iter().take_while(|array| array.panels).count();
    let misplaced = kernel.shared[panels..].iter().chain(&kernel.registers).any(|array| array.panels);
    if misplaced
        || kernel.shared[..panels].iter().any(|a| !a.aligned_bytes().is_multiple_of(Panel::ALIGNMENT))
    {
        return Err(malformed(kernel, "arrays of panels are not first, or not aligned"));
    }
    if kernel.gives_registers
        && (kernel.tensors.is_empty() || kernel.block() != BulkCopy::INVOCATIONS_THAT_TAKE)
    {
        return Err(malformed(kernel, "registers are given in another group than products of panels have"));
    }
    let arrays = kernel.shared.iter().chain(&kernel.registers).map(|a| a.dtype);
    let all = kernel.buffers.iter().map(|b| b.dtype).chain(kernel.scalars.iter().copied()).chain(arrays);
    for dtype in all {
        supported(kernel, limits, dtype)?;
    }
    if kernel.registers.iter().any(|a| a.dtype != a.dtype.compute()) {
        return Err(malformed(kernel, "registers of a 16-bit float: accumulate in float32"));
    }
    for f in &kernel.fragments {
        let fits = |unit: &MatrixUnit| {
            let same = unit.shape == MatrixShape { columns: unit.shape.columns, ..f.shape };
            let columns = f.subgroups() > 1 || f.shape.columns == unit.shape.columns;
            let dtype = match f.role {
                Role::Left => unit.factors[0],
                Role::Right => unit.factors[1],
                Role::Accumulator => unit.sum,
            };
            same && columns && f.dtype == dtype
        };
        if !limits.matrices.iter().any(fits) {
            let message = format!("kernel {} needs the matrix instruction of {f:?}", kernel.name);
            return Err(Error::Unsupported { device: limits.device.clone(), message });
        }
    }
    Ok(())
}

fn supported(kernel: &Kernel, limits: &Limits, dtype: DType) -> Result<()> {
    if limits.dtypes.contains(&dtype) {
        return Ok(());
    }
    let message = format!("kernel {} needs {dtype}, which the device does not support", kernel.name);
    Err(Error::Unsupported { device: limits.device.clone(), message })
}

fn malformed(kernel: &Kernel, message: impl std::fmt::Display) -> Error {
    Error::internal("kernel::check", format!("kernel {}: {message}", kernel.name))
}

/// Whether all invocations of a subgroup get the same value of `index`. The block's dimension 0, which varies fastest,
/// is written as `width * whole + lane`; the index must not depend on the lane.
pub(super) fn constant_in_subgroup(kernel: &Kernel, width: usize, index: &Index) -> bool {
    let Some(fastest) = kernel.axes.iter().position(|a| a.kind == AxisKind::Block(0)) else {
        return kernel.block() == [1; 3];
    };
    if !kernel.axes[fastest].extent.is_multiple_of(width) {
        return !kernel
            .axes
            .iter()
            .enumerate()
            .any(|(i, a)| matches!(a.kind, AxisKind::Block(_)) && index.depends_on(i));
    }
    let mut ranges = kernel.ranges();
    let lane = ranges.len();
    ranges.0[fastest] /= width;
    ranges.0.push(width);
    let mut replacements = ranges.coordinates();
    replacements[fastest] = replacements[fastest].scale(width as i64).add(&replacements[lane]);
    !index.substitute(&replacements, &ranges).depends_on(lane)
}

struct Checker<'a> {
    kernel: &'a Kernel,
    limits: &'a Limits,
    ranges: Ranges,
    /// The axes of the enclosing loops.
    open: Vec<u8>,
    /// The conditions that hold here.
    conditions: Mask,
    /// All invocations of the group reach this point together.
    group_uniform: bool,
    /// All invocations of a subgroup reach this point together.
    subgroup_uniform: bool,
    /// All groups reach this point.
    grid_uniform: bool,
    /// Of the groups that wait for each other.
    counter: Option<&'a MemoryAccess>,
    /// The innermost loop can be broken out of.
    breakable: bool,
    /// The values in scope.
    bound: Vec<(ValueId, Type)>,
    /// All values bound so far.
    seen: FastSet<ValueId>,
    /// The number of loops over grid and block axes.
    launched: usize,
}

impl Checker<'_> {
    fn fail<T>(&self, message: impl std::fmt::Display) -> Result<T> {
        Err(malformed(self.kernel, message))
    }

    fn require(&self, holds: bool, message: impl FnOnce() -> String) -> Result<()> {
        if holds { Ok(()) } else { self.fail(message()) }
    }

    fn body(&mut self, statements: &[Statement]) -> Result<()> {
        let scope = self.bound.len();
        for statement in statements {
            self.statement(statement, statements.len() == 1)?;
        }
        self.bound.truncate(scope);
        Ok(())
    }

    fn statement(&mut self, statement: &Statement, alone: bool) -> Result<()> {
        match statement {
            Statement::Loop { axis, body } => {
                let kind = self.kernel.axes.get(usize::from(*axis)).map(|a| a.kind);
                let Some(kind) = kind else { return self.fail(format!("no axis {axis}")) };
                self.require(!self.open.contains(axis), || {
                    format!("a loop over axis {axis} within another")
                })?;
                if is_parallel(kind) {
                    let outermost = self.open.len() == self.launched && self.conditions.is_always();
                    self.require(alone && outermost, || format!("axis {axis} of {kind:?} is not outermost"))?;
                    self.launched += 1;
                }
                let before = (self.uniform(), self.breakable);
                let is_part = matches!(kind, AxisKind::Part(_));
                self.grid_uniform &= !is_part;
                self.breakable = !is_parallel(kind) && !is_part;
                if self.breakable && may_break(body) {
                    // Some invocations may have left in an earlier iteration.
                    self.set_uniform([false; 3]);
                }
                self.open.push(*axis);
                self.body(body)?;
                self.open.pop();
                self.set_uniform(before.0);
                self.breakable = before.1;
                Ok(())
            }
            Statement::Let { value, of, operation } => {
                let first = self.seen.insert(*value);
                self.require(first, || format!("value {value} is bound twice"))?;
                self.operation(*of, operation)?;
                self.bound.push((*value, *of));
                Ok(())
            }
            Statement::Store { access, value, when } => {
                let of = self.type_of(*value)?;
                when.map_or(Ok(()), |when| self.require_bool(when))?;
                if let ArrayId::Buffer(b) = access.array {
                    let written = self.kernel.buffers.get(usize::from(b)).is_some_and(|b| b.written);
                    self.require(written, || format!("store to buffer {b}, which is not written"))?;
                }
                let fits = of.lanes == 1 && of.dtype.size() == 2 && self.kernel.tensors.is_empty();
                self.require(fits || !self.kernel.holds_panels(access.array), || {
                    format!("a store of {of:?} to panels, or beside bulk copies")
                })?;
                self.access(access, of)
            }
            Statement::If { mask, then, otherwise } => {
                for c in mask.conditions() {
                    self.index(&c.index)?;
                }
                let before = (self.conditions.clone(), self.uniform());
                self.enter(mask);
                self.conditions = before.0.and(mask);
                self.body(then)?;
                self.conditions = match mask.negation(&self.ranges) {
                    Some(negation) => before.0.and(&negation),
                    None => before.0.clone(),
                };
                self.body(otherwise)?;
                self.conditions = before.0;
                self.set_uniform(before.1);
                Ok(())
            }
            Statement::Atomic { access, combine, value, when } => {
                let of = self.type_of(*value)?;
                let writable = match access.array {
                    ArrayId::Buffer(b) => self.kernel.buffers.get(usize::from(b)).is_some_and(|b| b.written),
                    ArrayId::Shared(_) => true,
                    ArrayId::Register(_) | ArrayId::Fragment(_) => false,
                };
                let whole = [DType::I32, DType::U32].map(Type::scalar).contains(&of);
                let fits = writable && whole && *combine != Combine::Prod;
                self.require(fits, || {
                    format!("an atomic {} of {of:?} in {:?}", combine.name(), access.array)
                })?;
                self.require_bool(*when)?;
                self.numbers(access, of)
            }
            Statement::Break { when } => {
                self.require(self.breakable, || "a break outside a loop".to_owned())?;
                self.require_bool(*when)
            }
            Statement::Barrier => self.barrier(),
            Statement::GridBarrier(counter) => self.grid_barrier(counter),
            Statement::Matrix(matrix) => self.matrix(matrix),
            Statement::AsyncCopy(copy) => self.async_copy(copy),
        }
    }

    fn require_bool(&self, value: ValueId) -> Result<()> {
        let of = self.type_of(value)?;
        self.require(of == Type::scalar(DType::Bool), || format!("{of:?} as a condition"))
    }

    fn type_of(&self, value: ValueId) -> Result<Type> {
        match self.bound.iter().rev().find(|(v, _)| *v == value) {
            Some((_, of)) => Ok(*of),
            None => self.fail(format!("value {value} is not bound here")),
        }
    }

    fn operation(&self, of: Type, operation: &KernelOp) -> Result<()> {
        use KernelOp::*;
        supported(self.kernel, self.limits, of.dtype)?;
        self.require(matches!(of.lanes, 1 | 2 | 4), || format!("a vector of {} lanes", of.lanes))?;
        let result = match operation {
            Constant(scalar) => {
                self.require(scalar.cast(of.dtype) == *scalar, || format!("{scalar} is no {}", of.dtype))?;
                Type::scalar(of.dtype)
            }
            Parameter(at) => match self.kernel.scalars.get(usize::from(*at)) {
                Some(dtype) => Type::scalar(*dtype),
                None => return self.fail(format!("no scalar parameter {at}")),
            },
            Index(index) => {
                self.index(index)?;
                let wide = matches!(of.dtype, DType::I32 | DType::I64);
                self.require(wide, || format!("an index as {}", of.dtype))?;
                Type::scalar(of.dtype)
            }
            Load(access, fill) => {
                self.require(fill.cast(of.dtype) == *fill, || format!("{fill} is no {}", of.dtype))?;
                return self.numbers(access, of);
            }
            Unary(op, a) => {
                let a = self.type_of(*a)?;
                self.require(op.accepts(a.dtype), || format!("{} of {}", op.name(), a.dtype))?;
                Type { dtype: op.result(a.dtype), ..a }
            }
            Binary(op, a, b) => {
                let (a, b) = (self.type_of(*a)?, self.type_of(*b)?);
                let fits = a == b && op.accepts(a.dtype);
                self.require(fits, || format!("{} of {a:?} and {b:?}", op.name()))?;
                Type { dtype: op.result(a.dtype), ..a }
            }
            MultiplyAdd(a, b, c) => {
                let (a, b, c) = (self.type_of(*a)?, self.type_of(*b)?, self.type_of(*c)?);
                let fits = a == b && b == c && a.dtype.is_float();
                self.require(fits, || format!("{a:?} times {b:?} plus {c:?}"))?;
                a
            }
            Select(condition, a, b) => {
                let (condition, a, b) = (self.type_of(*condition)?, self.type_of(*a)?, self.type_of(*b)?);
                let fits = a == b && condition == Type { dtype: DType::Bool, ..a };
                self.require(fits, || format!("a selection of {a:?} and {b:?} by {condition:?}"))?;
                a
            }
            Cast(a) => Type { dtype: of.dtype, ..self.type_of(*a)? },
            Bitcast(a) => {
                let a = self.type_of(*a)?;
                let fits = a.dtype.size() == of.dtype.size() && a.dtype.kind() != DTypeKind::Bool;
                self.require(fits, || format!("bits of {} as {}", a.dtype, of.dtype))?;
                Type { dtype: of.dtype, ..a }
            }
            Splat(a) => {
                let a = self.type_of(*a)?;
                self.require(a.lanes == 1, || "a vector in every lane".to_owned())?;
                Type { dtype: a.dtype, lanes: of.lanes }
            }
            Lane(a, lane) => {
                let a = self.type_of(*a)?;
                self.require(*lane < a.lanes, || format!("lane {lane} of {a:?}"))?;
                Type::scalar(a.dtype)
            }
            Pack(lanes) => {
                for lane in lanes {
                    let lane = self.type_of(*lane)?;
                    self.require(lane == Type::scalar(of.dtype), || format!("{lane:?} as a lane of {of:?}"))?;
                }
                Type { dtype: of.dtype, lanes: lanes.len() as u8 }
            }
            ShuffleXor(a, bits) => {
                let width = self.subgroup()?;
                self.require((*bits as usize) < width, || {
                    format!("shuffle by {bits} in subgroups of {width}")
                })?;
                let a = self.type_of(*a)?;
                self.require(a.lanes == 1 && a.dtype.size() >= 4, || format!("a shuffle of {a:?}"))?;
                a
            }
        };
        self.require(result == of, || format!("{operation:?} is {result:?}, bound as {of:?}"))
    }

    fn index(&self, index: &Index) -> Result<()> {
        let mut inside = true;
        index.visit_ranges(&mut |axis| inside &= self.open.iter().any(|&open| usize::from(open) == axis));
        self.require(inside, || format!("{index} outside a loop over its axes"))
    }

    /// An access that is no store.
    fn numbers(&self, access: &MemoryAccess, of: Type) -> Result<()> {
        let panels = self.kernel.holds_panels(access.array);
        self.require(!panels, || format!("{:?} of panels accessed as numbers", access.array))?;
        self.access(access, of)
    }

    fn access(&self, access: &MemoryAccess, of: Type) -> Result<()> {
        let Some((dtype, _)) = self.kernel.array(access.array) else {
            return self.fail(format!("no {:?}", access.array));
        };
        let is_counter = self.counter.is_some_and(|counter| counter.array == access.array);
        self.require(!is_counter, || format!("an access to the counters in {:?}", access.array))?;
        self.require(dtype == of.dtype, || {
            format!("{:?} of {dtype} accessed as {}", access.array, of.dtype)
        })?;
        let lanes = i64::from(of.lanes);
        let aligned = access.index.common_factor() % lanes == 0 && access.index.offset() % lanes == 0;
        self.require(aligned, || format!("{lanes} lanes at {}", access.index))?;
        let scalar = of.lanes == 1 || !matches!(access.array, ArrayId::Register(_));
        self.require(scalar, || "a vector access to registers".to_owned())?;
        if let Some(row) = &access.row {
            let number = self.type_of(row.value)?;
            let integer = number == Type::scalar(number.dtype) && number.dtype.is_integer();
            let fits = integer && row.stride.is_multiple_of(of.lanes.into()) && row.count > 0;
            let addressed = matches!(access.array, ArrayId::Buffer(_) | ArrayId::Shared(_));
            self.require(fits && addressed, || format!("{row:?} of {:?}", access.array))?;
        }
        if let ArrayId::Fragment(number) = access.array {
            self.share(number, of.lanes)?;
        }
        self.in_bounds(access, of.lanes.into())
    }

    /// Proves that `count` elements from the access's index are inside the array wherever the access happens.
    fn in_bounds(&self, access: &MemoryAccess, count: usize) -> Result<()> {
        self.index(&access.index)?;
        for c in access.mask.conditions() {
            self.index(&c.index)?;
        }
        let known = self.conditions.and(&access.mask);
        let (low, high) = known.bounds_of(&access.index, &self.ranges);
        let high = high + access.row.as_ref().map_or(0, |row| row.last());
        let length = self.kernel.array(access.array).map_or(0, |(_, length)| length) as i64;
        self.require(known.is_never() || (low >= 0 && high + count as i64 <= length), || {
            format!("{} is {low} to {high}, {count} elements of {length} of {:?}", access.index, access.array)
        })
    }

    /// The width of the subgroups, if all invocations of a subgroup reach this point together.
    fn subgroup(&self) -> Result<usize> {
        let Some(width) = self.limits.subgroup else {
            let message = format!("kernel {} needs subgroups", self.kernel.name);
            return Err(Error::Unsupported { device: self.limits.device.clone(), message });
        };
        let whole = self.kernel.block().iter().product::<usize>().is_multiple_of(width);
        self.require(whole && self.subgroup_uniform, || "only part of a subgroup comes together".to_owned())?;
        Ok(width)
    }
}
