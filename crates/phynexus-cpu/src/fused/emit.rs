//! Translates a kernel's instructions to codes on slots.

use phynexus::{
    DType, Error, Result,
    dtype::scalar_bytes,
    kernel::fused::{FusedOp, Fusion, InstructionId},
    op::{Binary, Combine},
};

use super::{
    access::{Access, Varies},
    axis::{LANES, OUTER},
    plan::Plan,
    program::{Code, Home, Load, Pass, Reduction, Schedule, Slot, SlotId, Store},
    values::{Values, Work},
};
use crate::vector;

/// Emits codes and records what they need.
pub(super) struct Emitter<'a> {
    values: &'a Values<'a>,
    plan: &'a Plan,
    varies: Vec<Varies>,
    pub(super) slots: Vec<Slot>,
    slot_of: Vec<Option<SlotId>>,
    pub(super) loads: Vec<Load>,
    pub(super) stores: Vec<Store>,
    pub(super) coordinates: Vec<Access>,
    pub(super) constants: Vec<u64>,
    codes: Vec<Code>,
    /// Reductions of the current pass of a chunked kernel.
    reductions: Vec<Reduction>,
    /// True while row values of a chunked kernel are emitted: they are kept between passes.
    keep: bool,
}

impl<'a> Emitter<'a> {
    /// For a kernel whose values vary along the tile axes given by `varies`.
    pub(super) fn new(values: &'a Values<'a>, plan: &'a Plan, varies: Vec<Varies>) -> Emitter<'a> {
        Emitter {
            values,
            plan,
            varies,
            slots: Vec::new(),
            slot_of: vec![None; values.kernel.instructions.len()],
            loads: Vec::new(),
            stores: Vec::new(),
            coordinates: Vec::new(),
            constants: Vec::new(),
            codes: Vec::new(),
            reductions: Vec::new(),
            keep: false,
        }
    }

    /// Emits everything in instruction order: loads at their first use, stores last.
    pub(super) fn whole(&mut self) -> Result<Schedule> {
        for at in 0..self.values.kernel.instructions.len() {
            if self.values.needed[at] && !self.is_lazy(at as InstructionId) {
                self.value(at as InstructionId)?;
            }
        }
        self.store(|_| true)?;
        Ok(Schedule::Whole(std::mem::take(&mut self.codes)))
    }

    /// Emits each pass: first the row values that it needs, then its columns.
    pub(super) fn chunked(&mut self) -> Result<Schedule> {
        let (values, Some(rows)) = (self.values, self.plan.rows) else {
            return Err(Error::internal("phynexus_cpu::fused", "chunks without columns"));
        };
        let count = values.kernel.instructions.len();
        let all = 0..count as InstructionId;
        let varies = self.varies.clone();
        let in_columns = move |value: InstructionId| varies[value as usize].on(1 - rows);
        let reduces =
            |value: InstructionId| matches!(values.instruction(value).operation, FusedOp::Reduce(..));
        // A row value may be stored in every column.
        let stores = &values.kernel.stores;
        let by_column: Vec<bool> = (stores.iter())
            .map(|s| in_columns(s.value) || Access::new(&s.index, None, &self.plan.axes).varies.on(1 - rows))
            .collect();
        let stored = || {
            stores.iter().zip(&by_column).filter(|(_, by_column)| **by_column).map(|(s, _)| s.value as usize)
        };
        let last_store = stored().map(|v| values.phase[v] + 1).max().unwrap_or(0);
        let pass_count = last_store.max(values.phases());
        let mut passes = Vec::new();
        for phase in 0..=pass_count {
            self.keep = true;
            for value in all.clone() {
                let at = value as usize;
                let here = values.needed[at] && values.phase[at] == phase && !in_columns(value);
                if here && !reduces(value) {
                    self.value(value)?;
                }
            }
            self.keep = false;
            if phase == pass_count {
                break;
            }
            let mut pass = Pass { rows: std::mem::take(&mut self.codes), ..Pass::default() };
            // Columns are recomputed in each pass.
            for value in all.clone().filter(|&v| in_columns(v)) {
                self.slot_of[value as usize] = None;
            }
            let mut wanted = vec![false; count];
            for value in all.clone().filter(|&v| values.needed[v as usize]) {
                if reduces(value) && values.phase[value as usize] == phase + 1 {
                    values.operands(value).iter().for_each(|&v| wanted[v as usize] = true);
                }
            }
            if phase + 1 == pass_count {
                stored().for_each(|v| wanted[v] = true);
            }
            for at in (0..count).rev().filter(|&at| in_columns(at as InstructionId)) {
                if wanted[at] {
                    values.operands(at as InstructionId).iter().for_each(|&v| wanted[v as usize] = true);
                }
            }
            for value in all.clone() {
                let at = value as usize;
                let ends_here = reduces(value) && values.phase[at] == phase + 1 && values.needed[at];
                if ends_here || (in_columns(value) && wanted[at] && !self.is_lazy(value)) {
                    self.value(value)?;
                }
            }
            if phase + 1 == pass_count {
                self.store(|at| by_column[at])?;
            }
            pass.columns = std::mem::take(&mut self.codes);
            pass.reductions = std::mem::take(&mut self.reductions);
            passes.push(pass);
        }
        self.store(|at| !by_column[at])?;
        Ok(Schedule::Chunked { rows, passes, end: std::mem::take(&mut self.codes) })
    }

    /// True for values that are created at their first use.
    fn is_lazy(&self, value: InstructionId) -> bool {
        use FusedOp::{Constant, Coordinate, Load};
        let operation = &self.values.instruction(value).operation;
        matches!(operation, Load { .. } | Constant(_) | Coordinate(_))
    }

    /// Emits the stores with these indices.
    fn store(&mut self, which: impl Fn(usize) -> bool) -> Result<()> {
        let values = self.values;
        for (_, store) in values.kernel.stores.iter().enumerate().filter(|(at, _)| which(*at)) {
            let dtype = parameter_dtype(values.kernel, store.parameter)?;
            let held = values.dtype(store.value);
            if dtype.compute() != held {
                return Err(Error::internal("phynexus_cpu::fused", format!("{held} stored as {dtype}")));
            }
            let access = Access::new(&store.index, None, &self.plan.axes);
            let source = self.expanded(store.value, access.varies)?;
            if values.kernel.stores.len() > 1 {
                self.copy_loaded(source);
            }
            let cast = (dtype != held).then(|| vector::cast(held, dtype));
            let parameter = usize::from(store.parameter);
            self.stores.push(Store { parameter, access, size: dtype.size(), cast });
            self.codes.push(Code::Store { store: self.stores.len() - 1, source });
        }
        Ok(())
    }

    /// Makes a value that is loaded and stored a copy: another store may come first, and overwrite the operand.
    fn copy_loaded(&mut self, source: SlotId) {
        for code in &self.codes {
            match *code {
                Code::Load { load, target } if target == source => self.loads[load].in_place = false,
                _ => {}
            }
        }
    }

    fn slot(&mut self, size: usize, varies: Varies) -> SlotId {
        let home = if self.keep { Home::State(0) } else { Home::Register(0) };
        self.slots.push(Slot { size, varies, home });
        self.slots.len() - 1
    }

    fn constant_slot(&mut self, word: u64, size: usize) -> SlotId {
        self.constants.push(word);
        let home = Home::Constant(self.constants.len() - 1);
        self.slots.push(Slot { size, varies: Varies::NOWHERE, home });
        self.slots.len() - 1
    }

    /// The slot of a value, expanded to vary at least along `varies`.
    fn expanded(&mut self, value: InstructionId, varies: Varies) -> Result<SlotId> {
        let source = self.value(value)?;
        Ok(self.expanded_slot(source, varies))
    }

    fn expanded_slot(&mut self, source: SlotId, varies: Varies) -> SlotId {
        let (Slot { size, varies: has, .. }, all) =
            (self.slots[source], self.slots[source].varies.or(varies));
        if all == has {
            return source;
        }
        let target = self.slot(size, all);
        self.codes.push(Code::Expand { source, target });
        target
    }

    /// Emits the computation of a value unless already done, and returns its slot.
    fn value(&mut self, value: InstructionId) -> Result<SlotId> {
        if let Some(slot) = self.slot_of[value as usize] {
            return Ok(slot);
        }
        let slot = self.compute(value)?;
        self.slot_of[value as usize] = Some(slot);
        Ok(slot)
    }

    fn compute(&mut self, value: InstructionId) -> Result<SlotId> {
        let values = self.values;
        let (instruction, varies) = (values.instruction(value), self.varies[value as usize]);
        let dtype = values.dtype(value);
        let missing = |what: &str| {
            Error::internal("phynexus_cpu::fused", format!("{what} of {} has no kernel", instruction.dtype))
        };
        match values.work[value as usize] {
            Work::Plain => {}
            Work::Same(a) => return self.value(a),
            Work::Chain(chain, a) => {
                let kernel = vector::chain(chain, dtype).ok_or_else(|| missing("a chain"))?;
                return self.unary(kernel, a, value);
            }
            Work::SubExp(a, b) => {
                let kernels = vector::sub_exp(dtype).ok_or_else(|| missing("exp"))?;
                return self.binary(kernels, a, b, value);
            }
            Work::AtLeast(a, b) => return self.binary(vector::at_least(), a, b, value),
            Work::AtMost(a, b) => return self.binary(vector::at_most(), a, b, value),
            Work::RoundSum(a, b) => {
                let kernels = vector::round_sum(instruction.dtype).ok_or_else(|| missing("rounding"))?;
                return self.binary(kernels, a, b, value);
            }
            Work::MulAdd(a, b, c) => return self.mul_add(a, b, c, value),
            Work::SumProducts(a, b) => return self.sum_products(a, b, value),
        }
        match &instruction.operation {
            FusedOp::Load { parameter, index, mask, fill } => {
                let stored = parameter_dtype(values.kernel, *parameter)?;
                let access = Access::new(index, mask.as_ref(), &self.plan.axes);
                let target = self.slot(dtype.size(), varies);
                self.loads.push(Load {
                    parameter: usize::from(*parameter),
                    access,
                    size: stored.size(),
                    cast: (stored != dtype).then(|| vector::cast(stored, dtype)),
                    fill: word(*fill, stored),
                    in_place: !self.keep,
                });
                self.codes.push(Code::Load { load: self.loads.len() - 1, target });
                Ok(target)
            }
            FusedOp::Constant(scalar) => {
                Ok(self.constant_slot(word(scalar.cast(instruction.dtype), dtype), dtype.size()))
            }
            FusedOp::Coordinate(index) => {
                self.coordinates.push(Access::new(index, None, &self.plan.axes));
                let target = self.slot(dtype.size(), varies);
                let cast = (dtype != DType::I64).then(|| vector::cast(DType::I64, dtype));
                self.codes.push(Code::Coordinate { access: self.coordinates.len() - 1, cast, target });
                Ok(target)
            }
            FusedOp::Unary(op, a) => {
                let kernel = vector::unary(*op, values.dtype(*a)).ok_or_else(|| missing(op.name()))?;
                self.unary(kernel, *a, value)
            }
            FusedOp::Binary(op, a, b) => {
                let kernels = vector::binary(*op, values.dtype(*a)).ok_or_else(|| missing(op.name()))?;
                self.binary(kernels, *a, *b, value)
            }
            FusedOp::Select(condition, a, b) => {
                let condition = self.expanded(*condition, varies)?;
                let (a, b) = (self.value(*a)?, self.value(*b)?);
                let (single_a, single_b) = (self.is_single(a, varies), self.is_single(b, varies));
                let target = self.slot(dtype.size(), varies);
                let kernel = vector::select(dtype, single_a, single_b);
                self.codes.push(Code::Ternary { kernel, sources: [condition, a, b], target });
                Ok(target)
            }
            FusedOp::Cast(a) => {
                let from = values.dtype(*a);
                self.convert(*a, from, instruction.dtype, value)
            }
            FusedOp::Bitcast(a) => {
                // 16-bit floats have their bits only in memory.
                let from = values.instruction(*a).dtype;
                let mut source = self.value(*a)?;
                if from != from.compute() {
                    source = self.cast_slot(source, from.compute(), from);
                }
                let to = instruction.dtype;
                if to == to.compute() && from == from.compute() {
                    let kernel = vector::cast(to, to);
                    let target = self.slot(to.size(), varies);
                    self.codes.push(Code::Unary { kernel, source, target });
                    return Ok(target);
                }
                Ok(if to == to.compute() { source } else { self.cast_slot(source, to, to.compute()) })
            }
            FusedOp::Reduce(combine, a) => self.reduce(*combine, *a, value),
            FusedOp::Call(composite, _) => Err(missing(composite.name())),
        }
    }

    /// True if an operand is a single element where a row of the result has many.
    fn is_single(&self, operand: SlotId, result: Varies) -> bool {
        let has = self.slots[operand].varies;
        if result.on(LANES) { !has.on(LANES) } else { result.on(OUTER) && !has.on(OUTER) }
    }

    fn unary(
        &mut self,
        kernel: vector::UnaryKernel,
        a: InstructionId,
        value: InstructionId,
    ) -> Result<SlotId> {
        let source = self.value(a)?;
        let target = self.slot(self.values.dtype(value).size(), self.slots[source].varies);
        self.codes.push(Code::Unary { kernel, source, target });
        Ok(target)
    }

    fn cast_slot(&mut self, source: SlotId, from: DType, to: DType) -> SlotId {
        let target = self.slot(to.size(), self.slots[source].varies);
        self.codes.push(Code::Unary { kernel: vector::cast(from, to), source, target });
        target
    }

    /// A cast; to a 16-bit float, it rounds and converts back to `f32`.
    fn convert(&mut self, a: InstructionId, from: DType, to: DType, value: InstructionId) -> Result<SlotId> {
        let source = self.value(a)?;
        let dtype = self.values.dtype(value);
        if from == dtype && to != dtype {
            let target = self.slot(dtype.size(), self.slots[source].varies);
            self.codes.push(Code::Unary { kernel: vector::round_to(to), source, target });
            return Ok(target);
        }
        let converted = self.cast_slot(source, from, to);
        Ok(if to == dtype { converted } else { self.cast_slot(converted, to, dtype) })
    }

    fn binary(
        &mut self,
        kernels: vector::BinaryKernels,
        a: InstructionId,
        b: InstructionId,
        value: InstructionId,
    ) -> Result<SlotId> {
        let (a, b) = (self.value(a)?, self.value(b)?);
        let varies = self.slots[a].varies.or(self.slots[b].varies);
        let kernel = match (self.is_single(a, varies), self.is_single(b, varies)) {
            (true, _) => kernels.scalar_vector,
            (_, true) => kernels.vector_scalar,
            _ => kernels.vector_vector,
        };
        let target = self.slot(self.values.dtype(value).size(), varies);
        self.codes.push(Code::Binary { kernel, sources: [a, b], target });
        Ok(target)
    }

    fn mul_add(
        &mut self,
        a: InstructionId,
        b: InstructionId,
        c: InstructionId,
        value: InstructionId,
    ) -> Result<SlotId> {
        let varies = self.varies[value as usize];
        let (mut a, mut b, c) = (self.value(a)?, self.value(b)?, self.value(c)?);
        if self.is_single(a, varies) {
            (a, b) = (b, a);
        }
        let dtype = self.values.dtype(value);
        let missing = || Error::internal("phynexus_cpu::fused", format!("no multiply-add of {dtype}"));
        if self.is_single(a, varies) {
            // If the product varies along fewer axes than the sum, it has separate kernels.
            let product = vector::binary(Binary::Mul, dtype).ok_or_else(missing)?;
            let sum = vector::binary(Binary::Add, dtype).ok_or_else(missing)?;
            let less = self.slots[a].varies.or(self.slots[b].varies);
            let kernel = match (self.is_single(a, less), self.is_single(b, less)) {
                (true, _) => product.scalar_vector,
                (_, true) => product.vector_scalar,
                _ => product.vector_vector,
            };
            let target = self.slot(dtype.size(), less);
            self.codes.push(Code::Binary { kernel, sources: [a, b], target });
            let kernel = if self.is_single(target, varies) { sum.scalar_vector } else { sum.vector_vector };
            let result = self.slot(dtype.size(), varies);
            self.codes.push(Code::Binary { kernel, sources: [target, c], target: result });
            return Ok(result);
        }
        let (single_b, single_c) = (self.is_single(b, varies), self.is_single(c, varies));
        let kernel = vector::mul_add(dtype, single_b, single_c).ok_or_else(missing)?;
        let target = self.slot(dtype.size(), varies);
        self.codes.push(Code::Ternary { kernel, sources: [a, b, c], target });
        Ok(target)
    }

    fn reduce(&mut self, combine: Combine, a: InstructionId, value: InstructionId) -> Result<SlotId> {
        let dtype = self.values.dtype(value);
        if self.values.dtype(a) != dtype {
            return Err(no_reduction(combine, dtype));
        }
        let along_columns = self.along_columns()?;
        let source = self.expanded(a, along_columns)?;
        self.reduce_slot(combine, source, value)
    }

    /// The sum of products: fused if the columns are the lanes and both operands vary along them.
    fn sum_products(&mut self, a: InstructionId, b: InstructionId, value: InstructionId) -> Result<SlotId> {
        let dtype = self.values.dtype(value);
        let missing = || no_reduction(Combine::Sum, dtype);
        let sources = [self.value(a)?, self.value(b)?];
        if self.along_columns()?.on(LANES) && sources.iter().all(|&slot| self.slots[slot].varies.on(LANES)) {
            let kernel = vector::sum_products(dtype).ok_or_else(missing)?;
            let combine = vector::reduce(Combine::Sum, dtype).ok_or_else(missing)?;
            let Reduced { target, start, result } = self.reduced(Combine::Sum, value)?;
            self.codes.push(Code::ReducePair { kernel, combine, sources, target, start });
            return Ok(result);
        }
        let product = vector::binary(Binary::Mul, dtype).ok_or_else(missing)?;
        let source = self.binary(product, a, b, value)?;
        let along_columns = self.along_columns()?;
        let source = self.expanded_slot(source, along_columns);
        self.reduce_slot(Combine::Sum, source, value)
    }

    /// The axis of the columns.
    fn along_columns(&self) -> Result<Varies> {
        let Some(rows) = self.plan.rows else {
            return Err(Error::internal("phynexus_cpu::fused", "a reduction without columns"));
        };
        let mut varies = Varies::NOWHERE;
        varies.0[1 - rows] = true;
        Ok(varies)
    }

    /// Emits the reduction of a slot that varies along the columns.
    fn reduce_slot(&mut self, combine: Combine, source: SlotId, value: InstructionId) -> Result<SlotId> {
        let dtype = self.values.dtype(value);
        let missing = || no_reduction(combine, dtype);
        let upright = self.plan.rows == Some(LANES);
        // A chunk that is a single vector still has sums for its columns.
        let all = if upright && self.plan.chunked { Varies::EVERYWHERE } else { Varies::NOWHERE };
        let source = self.expanded_slot(source, all);
        let Reduced { target, start, result } = self.reduced(combine, value)?;
        if self.plan.rows == Some(LANES) && self.slots[source].varies == Varies::EVERYWHERE {
            let kernel = vector::binary(combine.binary(), dtype).ok_or_else(missing)?.vector_vector;
            self.codes.push(Code::ReduceOuter { kernel, source, target, start });
        } else {
            let kernel = vector::reduce(combine, dtype).ok_or_else(missing)?;
            self.codes.push(Code::ReduceVector { kernel, source, target, start });
        }
        Ok(result)
    }

    /// The slots of a reduction: chunks give partial results.
    fn reduced(&mut self, combine: Combine, value: InstructionId) -> Result<Reduced> {
        let (dtype, varies) = (self.values.dtype(value), self.varies[value as usize]);
        let identity = word(combine.identity(dtype), dtype);
        let target = self.slot(dtype.size(), varies);
        if !self.plan.chunked {
            return Ok(Reduced { target, start: Some(identity), result: target });
        }
        let pairs = vector::binary(combine.binary(), dtype)
            .ok_or_else(|| no_reduction(combine, dtype))?
            .vector_vector;
        let result = self.slot(dtype.size(), varies);
        self.slots[target].home = Home::Partial(0);
        self.slots[result].home = Home::State(0);
        self.reductions.push(Reduction { partial: target, result, identity, combine: pairs });
        Ok(Reduced { target, start: None, result })
    }
}

/// Where a reduction accumulates, its initial value unless already set, and where its result is placed.
struct Reduced {
    target: SlotId,
    start: Option<u64>,
    result: SlotId,
}

fn no_reduction(combine: Combine, dtype: DType) -> Error {
    Error::internal("phynexus_cpu::fused", format!("no {} of {dtype}", combine.name()))
}

/// The bytes of a scalar as an element at the start of a word.
fn word(scalar: phynexus::Scalar, dtype: DType) -> u64 {
    let mut bytes = [0; 8];
    let element = scalar_bytes(scalar, dtype);
    bytes[..element.len()].copy_from_slice(&element);
    u64::from_ne_bytes(bytes)
}

fn parameter_dtype(kernel: &Fusion, parameter: u16) -> Result<DType> {
    let found = kernel.parameters.get(usize::from(parameter));
    found.map(|p| p.dtype).ok_or_else(|| Error::internal("phynexus_cpu::fused", "a parameter is missing"))
}
