//! Builds loop trees: numbers values and axes, and tracks the body that receives statements.

use super::{
    index::{Index, Ranges},
    loops::{
        Array, ArrayId, AsyncCopy, Axis, AxisKind, BufferParameter, BulkTensor, Fragment, Kernel, KernelOp,
        Matrix, MemoryAccess, Row, Statement, Tile, Type, ValueId,
    },
    view::Mask,
};
use crate::{
    DType, Scalar,
    hash::FastMap,
    op::{Binary, Combine, Unary},
};

/// A kernel under construction. Statements are appended to the innermost open body; methods that take a closure open a
/// new one.
pub struct Builder {
    kernel: Kernel,
    ranges: Ranges,
    types: Vec<Type>,
    /// The 16-bit floats that values were widened from.
    narrow: FastMap<ValueId, ValueId>,
    open: Vec<Statement>,
}

impl Builder {
    /// An empty kernel.
    pub fn new(name: &str) -> Builder {
        let kernel = Kernel { name: name.to_owned(), ..Kernel::default() };
        Builder {
            kernel,
            ranges: Ranges::default(),
            types: Vec::new(),
            narrow: FastMap::default(),
            open: Vec::new(),
        }
    }

    /// Adds a tensor of bulk copies, unless there is one like it.
    pub fn tensor(&mut self, tensor: &BulkTensor) -> u16 {
        let known = self.kernel.tensors.iter().position(|known| known == tensor);
        let number = known.unwrap_or_else(|| {
            self.kernel.tensors.push(tensor.clone());
            self.kernel.tensors.len() - 1
        });
        number as u16
    }

    /// Sets the number of groups that a processor is to run at once.
    pub fn residents(&mut self, residents: usize) {
        self.kernel.residents = residents;
    }

    /// Lets the invocations that make bulk copies give registers to the others.
    pub fn give_registers(&mut self) {
        self.kernel.gives_registers = true;
    }

    /// The finished kernel.
    pub fn finish(self) -> Kernel {
        Kernel { body: self.open, ..self.kernel }
    }

    /// Adds a buffer that is only read.
    pub fn input(&mut self, dtype: DType, length: usize) -> ArrayId {
        self.buffer(BufferParameter { dtype, length, written: false, exclusive: true })
    }

    /// Adds a buffer that is written.
    pub fn output(&mut self, dtype: DType, length: usize) -> ArrayId {
        self.buffer(BufferParameter { dtype, length, written: true, exclusive: true })
    }

    /// Adds a buffer parameter.
    pub fn buffer(&mut self, parameter: BufferParameter) -> ArrayId {
        self.kernel.buffers.push(parameter);
        ArrayId::Buffer(self.kernel.buffers.len() as u16 - 1)
    }

    /// Adds a scalar parameter.
    pub fn parameter(&mut self, dtype: DType) -> KernelOp {
        self.kernel.scalars.push(dtype);
        KernelOp::Parameter(self.kernel.scalars.len() as u16 - 1)
    }

    /// Adds a shared array.
    pub fn shared(&mut self, dtype: DType, length: usize) -> ArrayId {
        self.kernel.shared.push(Array { dtype, length, panels: false });
        ArrayId::Shared(self.kernel.shared.len() as u16 - 1)
    }

    /// Adds a shared array of panels. These come before other shared arrays.
    pub fn panels(&mut self, dtype: DType, length: usize) -> ArrayId {
        self.kernel.shared.push(Array { dtype, length, panels: true });
        ArrayId::Shared(self.kernel.shared.len() as u16 - 1)
    }

    /// Adds registers for each invocation.
    pub fn registers(&mut self, dtype: DType, length: usize) -> ArrayId {
        self.kernel.registers.push(Array { dtype, length, panels: false });
        ArrayId::Register(self.kernel.registers.len() as u16 - 1)
    }

    /// Adds fragments for each subgroup. The returned function selects one of them.
    pub fn fragments(&mut self, fragment: Fragment) -> impl Fn(Index) -> Tile + Copy + use<> {
        self.kernel.fragments.push(fragment);
        let fragment = self.kernel.fragments.len() as u16 - 1;
        move |index| Tile { fragment, index }
    }

    /// Adds an axis, which one or several loops may run over. Returns its number and its value as an index.
    pub fn axis(&mut self, extent: usize, kind: AxisKind) -> (u8, Index) {
        self.kernel.axes.push(Axis { extent, kind });
        self.ranges.0.push(extent);
        let axis = self.ranges.len() - 1;
        (axis as u8, Index::range(axis, &self.ranges))
    }

    /// The extents of the axes so far, for simplifying indices.
    pub fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    fn body(&mut self, build: impl FnOnce(&mut Builder)) -> Vec<Statement> {
        let outside = std::mem::take(&mut self.open);
        build(self);
        std::mem::replace(&mut self.open, outside)
    }

    /// A loop over an existing axis.
    pub fn repeat(&mut self, axis: u8, build: impl FnOnce(&mut Builder)) {
        let body = self.body(build);
        self.open.push(Statement::Loop { axis, body });
    }

    /// A loop over a new axis, whose value is passed to the closure.
    pub fn over(&mut self, extent: usize, kind: AxisKind, build: impl FnOnce(&mut Builder, &Index)) {
        let (axis, index) = self.axis(extent, kind);
        self.repeat(axis, |b| build(b, &index));
    }

    /// Statements that run where a mask holds.
    pub fn when(&mut self, mask: Mask, then: impl FnOnce(&mut Builder)) {
        self.choose(mask, then, |_| {});
    }

    /// Statements that run where a mask holds, and others where it does not.
    pub fn choose(
        &mut self,
        mask: Mask,
        then: impl FnOnce(&mut Builder),
        otherwise: impl FnOnce(&mut Builder),
    ) {
        if mask.is_always() {
            return then(self);
        }
        if mask.is_never() {
            return otherwise(self);
        }
        let then = self.body(then);
        let otherwise = self.body(otherwise);
        self.open.push(Statement::If { mask, then, otherwise });
    }

    /// A barrier of the group.
    pub fn barrier(&mut self) {
        self.open.push(Statement::Barrier);
    }

    /// A barrier of the groups that share this counter.
    pub fn grid_barrier(&mut self, counter: MemoryAccess) {
        self.open.push(Statement::GridBarrier(Box::new(counter)));
    }

    /// A matrix operation.
    pub fn matrix(&mut self, matrix: Matrix) {
        self.open.push(Statement::Matrix(Box::new(matrix)));
    }

    /// An asynchronous copy.
    pub fn async_copy(&mut self, copy: AsyncCopy) {
        self.open.push(Statement::AsyncCopy(copy));
    }

    /// Binds a value.
    pub fn bind(&mut self, of: Type, operation: KernelOp) -> ValueId {
        let value = self.types.len() as ValueId;
        self.types.push(of);
        self.open.push(Statement::Let { value, of, operation });
        value
    }

    /// The type of a bound value.
    pub fn type_of(&self, value: ValueId) -> Type {
        self.types[value as usize]
    }

    /// A constant.
    pub fn constant(&mut self, dtype: DType, scalar: impl Into<Scalar>) -> ValueId {
        let scalar: Scalar = scalar.into();
        self.bind(Type::scalar(dtype), KernelOp::Constant(scalar.cast(dtype)))
    }

    /// Loads an element.
    pub fn load(&mut self, array: ArrayId, index: &Index) -> ValueId {
        self.load_lanes(array, index, 1)
    }

    /// Loads consecutive elements.
    pub fn load_lanes(&mut self, array: ArrayId, index: &Index, lanes: u8) -> ValueId {
        self.load_access(MemoryAccess::at(array, index), Scalar::Int(0), lanes)
    }

    /// Loads an element where the mask holds; elsewhere the value is `fill`.
    pub fn load_where(&mut self, array: ArrayId, index: &Index, mask: Mask, fill: Scalar) -> ValueId {
        self.load_access(MemoryAccess { mask, ..MemoryAccess::at(array, index) }, fill, 1)
    }

    /// Loads consecutive elements of a row that is selected by data.
    pub fn load_row(&mut self, array: ArrayId, index: &Index, row: Row, lanes: u8) -> ValueId {
        self.load_access(
            MemoryAccess { row: Some(row), ..MemoryAccess::at(array, index) },
            Scalar::Int(0),
            lanes,
        )
    }

    /// Loads consecutive elements of an access; the value is `fill` where its mask does not hold.
    pub fn load_access(&mut self, access: MemoryAccess, fill: Scalar, lanes: u8) -> ValueId {
        let dtype = self.dtype(access.array);
        self.bind(Type { dtype, lanes }, KernelOp::Load(access, fill.cast(dtype)))
    }

    /// Stores a value.
    pub fn store(&mut self, array: ArrayId, index: &Index, value: ValueId) {
        self.store_where(array, index, Mask::default(), value);
    }

    /// Stores a value where the mask holds.
    pub fn store_where(&mut self, array: ArrayId, index: &Index, mask: Mask, value: ValueId) {
        self.store_access(MemoryAccess { mask, ..MemoryAccess::at(array, index) }, value);
    }

    /// Stores a value to an access.
    pub fn store_access(&mut self, access: MemoryAccess, value: ValueId) {
        self.store_when(access, value, None);
    }

    /// Stores a value to an access, if a condition is given only where it holds.
    pub fn store_when(&mut self, access: MemoryAccess, value: ValueId, when: Option<ValueId>) {
        self.open.push(Statement::Store { access, value, when });
    }

    /// Atomically combines a value into an element where the condition holds.
    pub fn atomic(&mut self, access: MemoryAccess, combine: Combine, value: ValueId, when: ValueId) {
        self.open.push(Statement::Atomic { access, combine, value, when });
    }

    /// Breaks out of the innermost loop where the condition holds.
    pub fn leave(&mut self, when: ValueId) {
        self.open.push(Statement::Break { when });
    }

    /// The value of an index, in 32 bits if its bounds fit, otherwise in 64.
    pub fn number(&mut self, index: &Index) -> ValueId {
        let (low, high) = index.bounds(&self.ranges);
        let narrow = low >= i32::MIN.into() && high <= i32::MAX.into();
        let dtype = if narrow { DType::I32 } else { DType::I64 };
        self.bind(Type::scalar(dtype), KernelOp::Index(index.clone()))
    }

    /// Selects one of two values.
    pub fn select(&mut self, condition: ValueId, a: ValueId, b: ValueId) -> ValueId {
        let of = self.type_of(a);
        self.bind(of, KernelOp::Select(condition, a, b))
    }

    /// A function of one value.
    pub fn unary(&mut self, op: Unary, a: ValueId) -> ValueId {
        let of = self.type_of(a);
        self.bind(Type { dtype: op.result(of.dtype), ..of }, KernelOp::Unary(op, a))
    }

    /// A function of two values.
    pub fn binary(&mut self, op: Binary, a: ValueId, b: ValueId) -> ValueId {
        let of = self.type_of(a);
        self.bind(Type { dtype: op.result(of.dtype), ..of }, KernelOp::Binary(op, a, b))
    }

    /// `a * b + c`, rounded once for floats.
    pub fn multiply_add(&mut self, a: ValueId, b: ValueId, c: ValueId) -> ValueId {
        let of = self.type_of(a);
        if of.dtype.is_float() {
            return self.bind(of, KernelOp::MultiplyAdd(a, b, c));
        }
        let product = self.binary(Binary::Mul, a, b);
        self.binary(Binary::Add, product, c)
    }

    /// Converts a value. Nothing is computed to undo a widening.
    pub fn cast(&mut self, dtype: DType, a: ValueId) -> ValueId {
        let of = self.type_of(a);
        if of.dtype == dtype {
            return a;
        }
        if let Some(&narrow) = self.narrow.get(&a)
            && self.type_of(narrow).dtype == dtype
        {
            return narrow;
        }
        let cast = self.bind(Type { dtype, ..of }, KernelOp::Cast(a));
        if of.dtype.compute() == dtype {
            self.narrow.insert(cast, a);
        }
        cast
    }

    /// `register[index] = register[index] op value`.
    pub fn accumulate(&mut self, register: ArrayId, index: &Index, op: Binary, value: ValueId) {
        let before = self.load(register, index);
        let after = self.binary(op, before, value);
        self.store(register, index, after);
    }

    /// The element type of an array.
    pub fn dtype(&self, array: ArrayId) -> DType {
        // Memory values come from this builder, so the array exists. `check` reports arrays of another builder.
        self.kernel.array(array).map_or(DType::F32, |(dtype, _)| dtype)
    }
}
