//! Loop trees: how a kernel runs, in the form from which GPU source code is printed.
//!
//! A [`Kernel`] is executed by a grid of *groups*, each a block of *invocations*. Its body is a single nest of loops
//! over grid and block axes. Inside it, every invocation executes the statements for its own values of those axes.
//! Values are bound by [`Statement::Let`]. One load and one store operation access three kinds of memory: buffers,
//! arrays shared by a group, and registers of an invocation (accumulators). Extents are constants, so control flow is
//! static, and [`check`](super::check::check) proves every access in bounds.

mod bulk;
mod matrix;

use smallvec::SmallVec;

pub use self::{
    bulk::{BulkCopy, BulkPart, BulkTensor, Walk, divided},
    matrix::{Factor, Fragment, Matrix, MatrixShape, MatrixUnit, Panel, Role, Tile},
};
use super::{
    index::{Index, Ranges},
    view::Mask,
};
use crate::{
    DType, Scalar,
    op::{Binary, Combine, Unary},
};

/// The number of a bound value. Each value is bound once per kernel.
pub type ValueId = u32;

/// A kernel: its parameters, its arrays, and the code of an invocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Kernel {
    /// The name of the function; an identifier.
    pub name: String,
    /// The buffer parameters.
    pub buffers: Vec<BufferParameter>,
    /// The types of the scalar parameters, which follow the buffers.
    pub scalars: Vec<DType>,
    /// Arrays shared by a group.
    pub shared: Vec<Array>,
    /// Arrays private to each invocation; length 1 is a variable.
    pub registers: Vec<Array>,
    /// Arrays of matrix fragments of each subgroup.
    pub fragments: Vec<Fragment>,
    /// The tensors of bulk copies, which are parameters after all others.
    pub tensors: Vec<BulkTensor>,
    /// The groups that a processor is to run at once; 0 if that is left to the compiler.
    pub residents: usize,
    /// Whether the invocations that make bulk copies give registers to the others.
    pub gives_registers: bool,
    /// The axes; range `i` of every index is axis `i`.
    pub axes: Vec<Axis>,
    /// The statements.
    pub body: Vec<Statement>,
}

/// A buffer parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BufferParameter {
    /// Element type.
    pub dtype: DType,
    /// Number of elements.
    pub length: usize,
    /// True if the kernel writes it. The invocation that wrote an element may read it, too.
    pub written: bool,
    /// True if it overlaps no other parameter.
    pub exclusive: bool,
}

/// An array of fixed length.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Array {
    /// Element type.
    pub dtype: DType,
    /// Number of elements.
    pub length: usize,
    /// True if it is a shared array of panels. The device permutes groups of 16 bytes within every 1,024, as its matrix
    /// units want them, so only copies, stores of single elements and products access it.
    pub panels: bool,
}

/// How the iterations of a loop are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AxisKind {
    /// By different groups along this dimension (0 to 2) of the grid.
    Grid(u8),
    /// By different invocations of a group along this dimension (0 to 2) of the block.
    Block(u8),
    /// By consecutive groups along dimension 0 of the grid, starting at this one; other groups skip the body.
    Part(u32),
    /// Sequentially.
    Serial,
    /// Sequentially and unrolled: the axis value is a compile-time constant.
    Unroll,
    /// Sequentially, each iteration combining its part into registers; the order does not matter.
    Reduce,
}

/// An axis of the iteration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Axis {
    /// Number of iterations.
    pub extent: usize,
    /// How they are executed.
    pub kind: AxisKind,
}

/// The type of a value: `lanes` numbers of one dtype, the width of one memory access. Numbers of `f16` and `bf16` are
/// held as `f32` and rounded when they are stored or cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    /// The type of the numbers.
    pub dtype: DType,
    /// 1, 2 or 4.
    pub lanes: u8,
}

impl Type {
    /// A single number.
    pub const fn scalar(dtype: DType) -> Type {
        Type { dtype, lanes: 1 }
    }
}

/// The number of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ArrayId {
    /// A parameter, visible to all groups.
    Buffer(u16),
    /// Visible to the invocations of a group.
    Shared(u16),
    /// Private to an invocation.
    Register(u16),
    /// What an invocation holds of an array of fragments; see [`Fragment::position`].
    Fragment(u16),
}

/// An access to consecutive elements of an array, one per lane of the value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemoryAccess {
    /// The array.
    pub array: ArrayId,
    /// The first element; a multiple of the number of lanes.
    pub index: Index,
    /// An address offset that depends on data.
    pub row: Option<Row>,
    /// The condition of the access.
    pub mask: Mask,
}

impl MemoryAccess {
    /// The elements starting at an index.
    pub fn at(array: ArrayId, index: &Index) -> MemoryAccess {
        MemoryAccess { array, index: index.clone(), row: None, mask: Mask::default() }
    }
}

/// The part of an address that comes from data: `clamp(value, 0, count - 1) * stride`. The clamp keeps it in bounds for
/// any data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// The row number: a single integer.
    pub value: ValueId,
    /// The number of rows; not 0.
    pub count: usize,
    /// Elements between rows; a multiple of the number of lanes.
    pub stride: usize,
}

impl Row {
    /// The greatest offset.
    pub fn last(&self) -> i64 {
        (self.count.saturating_sub(1) * self.stride) as i64
    }
}

/// The operation that defines a value. Operations apply to each lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KernelOp {
    /// A constant.
    Constant(Scalar),
    /// A scalar parameter.
    Parameter(u16),
    /// The value of an index expression, as `i32` or `i64`.
    Index(Index),
    /// Loads from memory; the scalar where the access's mask does not hold.
    Load(MemoryAccess, Scalar),
    /// A function of one value.
    Unary(Unary, ValueId),
    /// A function of two values of one type.
    Binary(Binary, ValueId, ValueId),
    /// The product of two floats plus a third, rounded once.
    MultiplyAdd(ValueId, ValueId, ValueId),
    /// The second value where the first (`bool`) holds, otherwise the third.
    Select(ValueId, ValueId, ValueId),
    /// Converts to the bound type.
    Cast(ValueId),
    /// Reinterprets the bits as the bound type.
    Bitcast(ValueId),
    /// A number repeated in every lane.
    Splat(ValueId),
    /// One lane of a vector.
    Lane(ValueId, u8),
    /// A vector of numbers, one per lane.
    Pack(SmallVec<[ValueId; 4]>),
    /// The value of the invocation whose position in the subgroup differs in exactly these bits.
    ShuffleXor(ValueId, u32),
}

impl KernelOp {
    /// The values it reads.
    pub fn operands(&self) -> SmallVec<[ValueId; 4]> {
        use KernelOp::*;
        match *self {
            Pack(ref lanes) => lanes.clone(),
            Constant(_) | Parameter(_) | Index(_) => SmallVec::new(),
            Load(ref access, _) => access.row.iter().map(|row| row.value).collect(),
            Unary(_, a) | Cast(a) | Bitcast(a) | Splat(a) | Lane(a, _) | ShuffleXor(a, _) => {
                SmallVec::from_elem(a, 1)
            }
            Binary(_, a, b) => [a, b].into_iter().collect(),
            MultiplyAdd(a, b, c) | Select(a, b, c) => [a, b, c].into_iter().collect(),
        }
    }
}

/// Asynchronous copies from buffers to shared arrays.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AsyncCopy {
    /// Starts copying consecutive elements, [`AsyncCopy::BYTES`] in total; zeros where the mask of `from` does not
    /// hold.
    Begin {
        /// The source: a buffer.
        from: Box<MemoryAccess>,
        /// The destination: a shared array, without a mask.
        to: Box<MemoryAccess>,
    },
    /// Starts a copy that the group makes as a whole.
    Bulk(Box<BulkCopy>),
    /// Groups the copies since the last mark into a batch, which may be empty.
    Mark,
    /// Waits until at most this many of the latest batches are pending. Other invocations see the copied data after the
    /// next barrier.
    Wait(u8),
    /// The same for bulk copies, at the end of which the group sees the copied data. Bulk copies that follow may
    /// overwrite what the group used before. It orders no other accesses, so invocations need not wait for each other.
    Turn(u8),
}

impl AsyncCopy {
    /// The size of a copy in bytes, and the alignment of both addresses.
    pub const BYTES: usize = 16;

    /// Whether it is an operation of the whole group.
    pub fn is_joint(&self) -> bool {
        matches!(self, AsyncCopy::Bulk(_) | AsyncCopy::Turn(_))
    }
}

/// A statement of an invocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Statement {
    /// Runs the body for every value of an axis. Loops over grid and block axes enclose everything else.
    Loop {
        /// The axis.
        axis: u8,
        /// The body.
        body: Vec<Statement>,
    },
    /// Binds a value until the end of the enclosing body.
    Let {
        /// The number of the value.
        value: ValueId,
        /// Its type.
        of: Type,
        /// The operation that defines it.
        operation: KernelOp,
    },
    /// Writes a value to memory.
    Store {
        /// The destination.
        access: MemoryAccess,
        /// The value.
        value: ValueId,
        /// The condition (one `bool`), if there is one besides the mask.
        when: Option<ValueId>,
    },
    /// Runs the first body where the mask holds, otherwise the second.
    If {
        /// The condition.
        mask: Mask,
        /// The body where it holds.
        then: Vec<Statement>,
        /// The body where it does not hold.
        otherwise: Vec<Statement>,
    },
    /// Where `when` (one `bool`) holds, atomically performs `array = array op value`. The memory is a written buffer
    /// or a shared array of 32-bit integers. Products are not supported.
    Atomic {
        /// The destination.
        access: MemoryAccess,
        /// The operation.
        combine: Combine,
        /// The value.
        value: ValueId,
        /// The condition.
        when: ValueId,
    },
    /// Breaks out of the innermost loop where the value (one `bool`) holds.
    Break {
        /// The condition.
        when: ValueId,
    },
    /// Waits for every invocation of the group. Their writes to shared arrays and buffers are then visible to the whole
    /// group.
    Barrier,
    /// The same for every group with the same place along the grid's dimensions 1 and 2, which all run at once. The
    /// access is to a counter of theirs: an element of `uint32` in a written buffer that is 0 when the kernel begins,
    /// and that nothing else accesses.
    GridBarrier(Box<MemoryAccess>),
    /// A matrix operation.
    Matrix(Box<Matrix>),
    /// An asynchronous copy.
    AsyncCopy(AsyncCopy),
}

impl Kernel {
    /// The extents of the axes, over which indices are defined.
    pub fn ranges(&self) -> Ranges {
        Ranges(self.axes.iter().map(|axis| axis.extent).collect())
    }

    /// The same kernel with a last buffer for numbers that are arguments; see
    /// [`Variable`](super::print::Variable).
    pub fn with_sizes(&self, count: usize) -> Kernel {
        let mut kernel = self.clone();
        let sizes = BufferParameter { dtype: DType::I32, length: count, written: false, exclusive: true };
        kernel.buffers.push(sizes);
        kernel
    }

    /// The number of groups along each dimension.
    pub fn grid(&self) -> [usize; 3] {
        self.extents(AxisKind::Grid)
    }

    /// The number of invocations in a group along each dimension. Dimension 0 varies fastest in their numbering.
    pub fn block(&self) -> [usize; 3] {
        self.extents(AxisKind::Block)
    }

    fn extents(&self, kind: fn(u8) -> AxisKind) -> [usize; 3] {
        [0, 1, 2].map(|d| self.axes.iter().find(|a| a.kind == kind(d)).map_or(1, |a| a.extent))
    }

    /// Bytes of shared memory per group. Every array starts at a multiple of [`Kernel::SHARED_ALIGNMENT`]. Those of
    /// panels come first, each a multiple of [`Panel::ALIGNMENT`].
    pub fn shared_bytes(&self) -> usize {
        self.array_bytes() + self.barrier_bytes()
    }

    /// The same without the barriers of bulk copies, which come last.
    pub fn array_bytes(&self) -> usize {
        self.shared.iter().map(Array::aligned_bytes).sum()
    }

    /// The alignment of shared arrays: the widest vector.
    pub const SHARED_ALIGNMENT: usize = 32;

    /// The alignment of matrix rows in memory that fragments are loaded from and stored to.
    pub const MATRIX_ALIGNMENT: usize = 16;

    /// Calls `visit` with every statement in program order, outer statements before inner ones.
    pub fn visit<'a>(&'a self, visit: &mut impl FnMut(&'a Statement)) {
        fn walk<'a>(body: &'a [Statement], visit: &mut impl FnMut(&'a Statement)) {
            for statement in body {
                visit(statement);
                match statement {
                    Statement::Loop { body, .. } => walk(body, visit),
                    Statement::If { then, otherwise, .. } => {
                        walk(then, visit);
                        walk(otherwise, visit);
                    }
                    _ => {}
                }
            }
        }
        walk(&self.body, visit);
    }

    /// Whether groups wait for each other, so that all of them must run at once.
    pub fn has_grid_barriers(&self) -> bool {
        self.counter().is_some()
    }

    /// The counter of the first barrier of several groups.
    pub fn counter(&self) -> Option<&MemoryAccess> {
        let mut found = None;
        self.visit(&mut |statement| {
            if let Statement::GridBarrier(counter) = statement {
                found = found.or(Some(&**counter));
            }
        });
        found
    }

    /// Whether invocations store numbers in panels.
    pub fn stores_to_panels(&self) -> bool {
        let mut found = false;
        self.visit(&mut |statement| {
            found |= matches!(statement, Statement::Store { access, .. } if self.holds_panels(access.array));
        });
        found
    }

    /// Whether a shared array holds panels.
    pub fn has_panels(&self) -> bool {
        self.shared.iter().any(|array| array.panels)
    }

    /// Whether it is a shared array of panels.
    pub fn holds_panels(&self, id: ArrayId) -> bool {
        matches!(id, ArrayId::Shared(at) if self.shared.get(usize::from(at)).is_some_and(|array| array.panels))
    }

    /// Element type and length of an array, if it exists.
    pub fn array(&self, id: ArrayId) -> Option<(DType, usize)> {
        let array = |arrays: &[Array], at: u16| arrays.get(usize::from(at)).map(|a| (a.dtype, a.length));
        match id {
            ArrayId::Buffer(at) => self.buffers.get(usize::from(at)).map(|b| (b.dtype, b.length)),
            ArrayId::Shared(at) => array(&self.shared, at),
            ArrayId::Register(at) => array(&self.registers, at),
            ArrayId::Fragment(at) => {
                let fragment = self.fragments.get(usize::from(at))?;
                Some((fragment.dtype, fragment.length * fragment.share()))
            }
        }
    }
}

impl Array {
    /// The size in bytes, rounded up to the alignment of shared arrays.
    pub fn aligned_bytes(&self) -> usize {
        (self.length * self.dtype.size()).next_multiple_of(Kernel::SHARED_ALIGNMENT)
    }
}
