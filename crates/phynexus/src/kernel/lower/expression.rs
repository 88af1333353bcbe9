//! Evaluates the expression of a fused kernel at given coordinates, as values of a loop tree. Numbers are held in the
//! kernels' compute type, and values are computed on first use.

use smallvec::{SmallVec, smallvec};

use super::access::{Buffer, Pattern, pattern};
use crate::{
    DType, DTypeKind, Scalar,
    hash::FastMap,
    kernel::{
        Index,
        build::Builder,
        fused::{FusedOp, Fusion, Instruction, InstructionId, Store},
        loops::{ArrayId, KernelOp, Type, ValueId},
        view::{Coordinates, Mask},
    },
    op::Binary,
};

/// Conjunctions of conditions that are looked at for what ranges decide. Masks have fewer.
const DEEPEST: usize = 8;

/// The value of an instruction: one per lane, or one for all lanes.
pub(super) type Lanes = SmallVec<[ValueId; 4]>;

/// Values that an invocation keeps in registers between loops over the columns.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    /// The kept instructions and their registers.
    pub(super) registers: FastMap<InstructionId, ArrayId>,
    /// The number of lanes that have their own register; empty until the registers are written.
    lanes: FastMap<InstructionId, usize>,
}

/// The context in which an expression is evaluated.
pub(super) struct Scope<'a> {
    pub(super) fused: &'a Fusion,
    pub(super) buffers: &'a [Buffer],
    /// The value of every range, for each lane.
    pub(super) points: Vec<Coordinates>,
    /// What the enclosing conditions guarantee.
    pub(super) holds: Mask,
    /// The condition of all loads.
    pub(super) guard: Mask,
    /// The values of instructions computed so far.
    pub(super) known: FastMap<InstructionId, Lanes>,
    /// The kept values, and the first register of this scope.
    pub(super) kept: Option<(&'a mut Kept, Index)>,
}

impl Scope<'_> {
    /// The value of an instruction. Reductions must have been computed.
    pub(super) fn value(&mut self, b: &mut Builder, value: InstructionId) -> Lanes {
        if let Some(known) = self.known.get(&value) {
            return known.clone();
        }
        let lanes = match self.recall(b, value) {
            Some(lanes) => lanes,
            None => {
                let lanes = self.compute(b, value);
                self.keep(b, value, &lanes);
                lanes
            }
        };
        self.known.insert(value, lanes.clone());
        lanes
    }

    /// Loads the value from the registers that an earlier loop filled.
    fn recall(&mut self, b: &mut Builder, value: InstructionId) -> Option<Lanes> {
        let (kept, first) = self.kept.as_ref()?;
        let (register, lanes) = (*kept.registers.get(&value)?, *kept.lanes.get(&value)?);
        Some((0..lanes).map(|lane| b.load(register, &first.shift(lane as i64))).collect())
    }

    fn keep(&mut self, b: &mut Builder, value: InstructionId, lanes: &Lanes) {
        let Some((kept, first)) = &mut self.kept else { return };
        let Some(register) = kept.registers.get(&value) else { return };
        for (lane, &value) in lanes.iter().enumerate() {
            b.store(*register, &first.shift(lane as i64), value);
        }
        kept.lanes.insert(value, lanes.len());
    }

    fn dtype_of(&self, value: InstructionId) -> DType {
        self.fused.instructions[value as usize].dtype
    }

    fn compute(&mut self, b: &mut Builder, value: InstructionId) -> Lanes {
        let fused = self.fused;
        let Instruction { operation, dtype, .. } = &fused.instructions[value as usize];
        let dtype = *dtype;
        match operation {
            FusedOp::Load { parameter, index, mask, fill } => {
                self.load(b, usize::from(*parameter), index, mask.as_ref(), *fill, dtype)
            }
            // As in the oracle, a reduction without a value is one over no elements.
            FusedOp::Reduce(combine, _) => {
                smallvec![b.constant(dtype.compute(), combine.identity(dtype))]
            }
            FusedOp::Constant(scalar) => smallvec![b.constant(dtype.compute(), scalar.cast(dtype))],
            FusedOp::Coordinate(index) => self.coordinate(b, index, dtype),
            FusedOp::Unary(op, a) => self.each(b, &[*a], |b, v| b.unary(*op, v[0])),
            FusedOp::Binary(Binary::And, x, y) if self.truth(b, *x) == Some(true) => self.value(b, *y),
            FusedOp::Binary(Binary::And, x, y) if self.truth(b, *y) == Some(true) => self.value(b, *x),
            FusedOp::Binary(op, x, y) => match self.narrow(b, *op, *x, *y) {
                Some(lanes) => lanes,
                None => self.each(b, &[*x, *y], |b, v| b.binary(*op, v[0], v[1])),
            },
            FusedOp::Select(c, x, y) => match self.truth(b, *c) {
                Some(true) => self.value(b, *x),
                Some(false) => self.value(b, *y),
                None => self.each(b, &[*c, *x, *y], |b, v| b.select(v[0], v[1], v[2])),
            },
            // `lower` has replaced named calls by their bodies. The checker would refuse a kernel with this value.
            FusedOp::Call(..) => {
                smallvec![b.bind(Type::scalar(dtype.compute()), KernelOp::Pack(Lanes::new()))]
            }
            FusedOp::Cast(a) => {
                let from = self.dtype_of(*a);
                self.each(b, &[*a], |b, v| if from == dtype { v[0] } else { convert(b, v[0], dtype) })
            }
            FusedOp::Bitcast(a) => {
                let from = self.dtype_of(*a);
                self.each(b, &[*a], |b, v| bits(b, v[0], from, dtype))
            }
        }
    }

    /// Applies an operation to each lane, or once if no operand differs between lanes.
    fn each(
        &mut self,
        b: &mut Builder,
        operands: &[InstructionId],
        operation: impl Fn(&mut Builder, &[ValueId]) -> ValueId,
    ) -> Lanes {
        let operands: SmallVec<[Lanes; 3]> = operands.iter().map(|&v| self.value(b, v)).collect();
        let lanes = operands.iter().map(|o| o.len()).max().unwrap_or(1);
        let one = |lane: usize| -> SmallVec<[ValueId; 3]> {
            operands.iter().map(|o| o[if o.len() == 1 { 0 } else { lane }]).collect()
        };
        (0..lanes).map(|lane| operation(b, &one(lane))).collect()
    }

    /// The values of an index, or a single one if all lanes agree.
    fn coordinate(&self, b: &mut Builder, index: &Index, dtype: DType) -> Lanes {
        let ranges = b.ranges().clone();
        let each: SmallVec<[Index; 4]> = self.points.iter().map(|at| index.substitute(at, &ranges)).collect();
        let same = each.iter().all(|i| *i == each[0]);
        let count = if same { 1 } else { each.len() };
        let value = |index: &Index| {
            let value = b.number(index);
            convert(b, value, dtype)
        };
        each[..count].iter().map(value).collect()
    }

    /// Whether a condition on coordinates holds at all points, if the ranges decide that.
    fn truth(&self, b: &Builder, value: InstructionId) -> Option<bool> {
        self.truth_within(b, value, DEEPEST)
    }

    /// The same, looking through conjunctions so deep. Deeper ones may share operands, which would be looked at again and
    /// again.
    fn truth_within(&self, b: &Builder, value: InstructionId, depth: usize) -> Option<bool> {
        let FusedOp::Binary(op, x, y) = self.fused.instructions[value as usize].operation else {
            return None;
        };
        if op == Binary::And {
            let below = depth.checked_sub(1)?;
            return match (self.truth_within(b, x, below), self.truth_within(b, y, below)) {
                (Some(true), other) | (other, Some(true)) => other,
                (Some(false), _) | (_, Some(false)) => Some(false),
                (None, None) => None,
            };
        }
        let bounds = |value: InstructionId| match &self.fused.instructions[value as usize] {
            Instruction { operation: FusedOp::Coordinate(index), dtype: DType::I64, .. } => {
                let each = self.points.iter().map(|at| index.substitute(at, b.ranges()).bounds(b.ranges()));
                each.reduce(|(low, high), (l, h)| (low.min(l), high.max(h)))
            }
            Instruction { operation: FusedOp::Constant(scalar), dtype: DType::I64, .. } => {
                Some((scalar.as_i64(), scalar.as_i64()))
            }
            _ => None,
        };
        let ((x_low, x_high), (y_low, y_high)) = (bounds(x)?, bounds(y)?);
        match op {
            Binary::Lt if x_high < y_low => Some(true),
            Binary::Lt if x_low >= y_high => Some(false),
            Binary::Le if x_high <= y_low => Some(true),
            Binary::Le if x_low > y_high => Some(false),
            _ => None,
        }
    }

    /// A comparison of 64-bit coordinates with constants, done in 32 bits if they fit.
    fn narrow(&mut self, b: &mut Builder, op: Binary, x: InstructionId, y: InstructionId) -> Option<Lanes> {
        let fits = |bounds: (i64, i64)| bounds.0 >= i32::MIN.into() && bounds.1 <= i32::MAX.into();
        let ranges = super::access::ranges(self.fused);
        let narrow = |value: InstructionId| match &self.fused.instructions[value as usize] {
            Instruction { operation: FusedOp::Coordinate(index), dtype: DType::I64, .. } => {
                fits(index.bounds(&ranges))
            }
            Instruction { operation: FusedOp::Constant(scalar), dtype: DType::I64, .. } => {
                fits((scalar.as_i64(), scalar.as_i64()))
            }
            _ => false,
        };
        if !op.is_comparison() || !narrow(x) || !narrow(y) {
            return None;
        }
        let fused = self.fused;
        let mut operand = |value: InstructionId| match &fused.instructions[value as usize].operation {
            FusedOp::Coordinate(index) => self.coordinate(b, index, DType::I32),
            FusedOp::Constant(scalar) => smallvec![b.constant(DType::I32, *scalar)],
            _ => Lanes::new(),
        };
        let (x, y) = (operand(x), operand(y));
        let of = |lanes: &Lanes, lane: usize| lanes[if lanes.len() == 1 { 0 } else { lane }];
        Some((0..x.len().max(y.len())).map(|lane| b.binary(op, of(&x, lane), of(&y, lane))).collect())
    }

    fn load(
        &self,
        b: &mut Builder,
        parameter: usize,
        index: &Index,
        mask: Option<&Mask>,
        fill: Scalar,
        dtype: DType,
    ) -> Lanes {
        let ranges = b.ranges().clone();
        let buffer = &self.buffers[parameter];
        let access = |at: &Coordinates| {
            let mask = mask.map(|m| m.substitute(at, &ranges)).unwrap_or_default().and(&self.guard);
            (index.substitute(at, &ranges), mask)
        };
        let accesses: Vec<(Index, Mask)> = self.points.iter().map(access).collect();
        let fill = fill.cast(dtype);
        let loaded: Lanes = match pattern(&accesses) {
            Pattern::Vector => {
                let (index, mask) = accesses[0].clone();
                let access = buffer.access(b, &index, mask, &self.holds, accesses.len());
                let lanes = accesses.len() as u8;
                let vector = b.load_access(access, fill, lanes);
                (0..lanes).map(|lane| b.bind(Type::scalar(dtype), KernelOp::Lane(vector, lane))).collect()
            }
            found => {
                let count = if found == Pattern::Broadcast { 1 } else { accesses.len() };
                let one = |(index, mask): (Index, Mask)| {
                    let access = buffer.access(b, &index, mask, &self.holds, 1);
                    b.load_access(access, fill, 1)
                };
                accesses.into_iter().take(count).map(one).collect()
            }
        };
        loaded.into_iter().map(|value| b.cast(dtype.compute(), value)).collect()
    }

    /// Stores values. All of them are computed first, because stores may overwrite what they read.
    pub(super) fn store_all(&mut self, b: &mut Builder, stores: &[&Store]) {
        for store in stores {
            self.stored(b, store);
        }
        stores.iter().for_each(|store| self.store(b, store, &Mask::default()));
    }

    /// The condition of a store, if it has one, and its value.
    fn stored(&mut self, b: &mut Builder, store: &Store) -> (Option<Lanes>, Lanes) {
        match self.fused.partial(store) {
            Some((condition, new)) => (Some(self.value(b, condition)), self.value(b, new)),
            None => (None, self.value(b, store.value)),
        }
    }

    /// Stores a value where the mask holds.
    pub(super) fn store(&mut self, b: &mut Builder, store: &Store, mask: &Mask) {
        let (when, values) = self.stored(b, store);
        let dtype = self.fused.parameters[usize::from(store.parameter)].dtype;
        let values: Lanes = values.into_iter().map(|v| b.cast(dtype, v)).collect();
        let ranges = b.ranges().clone();
        let buffer = &self.buffers[usize::from(store.parameter)];
        let access = |at: &Coordinates| (store.index.substitute(at, &ranges), mask.clone());
        let accesses: Vec<(Index, Mask)> = self.points.iter().map(access).collect();
        let lane = |lane: usize| values[if values.len() == 1 { 0 } else { lane }];
        let varies = when.as_ref().is_some_and(|when| when.len() > 1);
        let condition = |lane: usize| when.as_ref().map(|when| when[if varies { lane } else { 0 }]);
        match pattern(&accesses) {
            Pattern::Vector if !varies => {
                let of = Type { dtype, lanes: accesses.len() as u8 };
                let vector = b.bind(of, KernelOp::Pack((0..accesses.len()).map(lane).collect()));
                let access = buffer.access(b, &accesses[0].0, mask.clone(), &self.holds, accesses.len());
                b.store_when(access, vector, condition(0));
            }
            // Stores go to different elements, so only a single lane can be a broadcast.
            _ => {
                for (at, (index, mask)) in accesses.into_iter().enumerate() {
                    let access = buffer.access(b, &index, mask, &self.holds, 1);
                    b.store_when(access, lane(at), condition(at));
                }
            }
        }
    }
}

/// Converts to `dtype`, held in the kernels' compute type.
pub(super) fn convert(b: &mut Builder, value: ValueId, dtype: DType) -> ValueId {
    let rounded = b.cast(dtype, value);
    b.cast(dtype.compute(), rounded)
}

fn bits(b: &mut Builder, value: ValueId, from: DType, to: DType) -> ValueId {
    if to.kind() == DTypeKind::Bool {
        return convert(b, value, to);
    }
    // The bits of a bool are the number 0 or 1.
    let (value, from) = match from.kind() {
        DTypeKind::Bool => (convert(b, value, DType::U8), DType::U8),
        _ => (value, from),
    };
    let stored = b.cast(from, value);
    let cast = b.bind(Type::scalar(to), KernelOp::Bitcast(stored));
    b.cast(to.compute(), cast)
}
