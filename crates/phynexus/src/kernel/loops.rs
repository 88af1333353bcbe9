//! Loop trees: how a kernel runs, in the form that GPUs' languages are printed from.
//!
//! A [`Kernel`] is executed by a grid of *groups*, each a block of *invocations*. Its body is one nest of loops over
//! grid and block axes, inside which every invocation executes the statements for its own values of those axes.
//! There is one way to bind a value ([`Statement::Let`]), and three kinds of memory behind one load and one store:
//! buffers, arrays shared by a group, and registers of an invocation (accumulators). Extents are constants, so control
//! flow is known before anything runs, and [`check`](super::check::check) proves every access in bounds.

use smallvec::SmallVec;

use super::{
    index::{Index, Ranges},
    view::Mask,
};
use crate::{
    DType, Scalar,
    op::{Binary, Combine, Unary},
};

/// The number of a bound value; each is bound once in the kernel.
pub type Value = u32;

/// One kernel: its parameters, its arrays, and what an invocation does.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Kernel {
    /// The function's name: an identifier.
    pub name: String,
    /// The buffers it is given.
    pub buffers: Vec<BufferParameter>,
    /// The numbers it is given, after the buffers.
    pub scalars: Vec<DType>,
    /// Arrays that a group shares.
    pub shared: Vec<Array>,
    /// Arrays that each invocation has for itself; length 1 is a variable.
    pub registers: Vec<Array>,
    /// Arrays of matrix fragments that each subgroup has.
    pub fragments: Vec<Fragment>,
    /// The axes; range `i` of every index is axis `i`.
    pub axes: Vec<Axis>,
    /// What is done.
    pub body: Vec<Statement>,
}

/// A buffer parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BufferParameter {
    /// Element type.
    pub dtype: DType,
    /// Number of elements.
    pub length: usize,
    /// True if the kernel writes it; one that is written may be read too, by the invocation that wrote.
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
}

/// How the iterations of a loop are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AxisKind {
    /// By different groups, along this dimension (0 to 2) of the grid.
    Grid(u8),
    /// By different invocations of a group, along this dimension (0 to 2) of the block.
    Block(u8),
    /// By the groups from this one on along dimension 0 of the grid, one each; the others skip the body.
    Part(u32),
    /// One after another.
    Serial,
    /// One after another, with the loop written out: its value is a constant to the compiler.
    Unroll,
    /// One after another, each combining its part into registers; the order does not matter.
    Reduce,
}

/// An axis of the iteration space: what a loop runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Axis {
    /// Number of iterations.
    pub extent: usize,
    /// How they are executed.
    pub kind: AxisKind,
}

/// What a value is: `lanes` numbers of one type, as wide as one memory access. Numbers of `f16` and `bf16` are held as
/// `f32` and rounded where they are stored or cast to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    /// The numbers' type.
    pub dtype: DType,
    /// 1, 2 or 4.
    pub lanes: u8,
}

impl Type {
    /// One number.
    pub const fn scalar(dtype: DType) -> Type {
        Type { dtype, lanes: 1 }
    }
}

/// Which array an access is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Memory {
    /// A parameter: seen by all groups.
    Buffer(u16),
    /// Seen by the invocations of a group.
    Shared(u16),
    /// Seen by one invocation.
    Register(u16),
}

/// Consecutive elements of an array, as many as the value has lanes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Which array.
    pub memory: Memory,
    /// The first element; a multiple of the number of lanes.
    pub index: Index,
    /// What is added to the index where the data say which row it is.
    pub row: Option<Row>,
    /// Where it is accessed at all.
    pub mask: Mask,
}

impl Place {
    /// The elements from an index on.
    pub fn at(memory: Memory, index: &Index) -> Place {
        Place { memory, index: index.clone(), row: None, mask: Mask::default() }
    }
}

/// The part of an address that comes from data: `clamp(value, 0, count - 1) * stride`, so that it is in bounds whatever
/// the data are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// The row's number: one integer.
    pub value: Value,
    /// How many rows there are; not 0.
    pub count: usize,
    /// Elements from row to row; a multiple of the number of lanes.
    pub stride: usize,
}

impl Row {
    /// The greatest value it has.
    pub fn last(&self) -> i64 {
        (self.count.saturating_sub(1) * self.stride) as i64
    }
}

/// What a value is bound to. Operations work on each lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A constant.
    Constant(Scalar),
    /// A scalar parameter.
    Parameter(u16),
    /// The value of an index expression, as `i32` or `i64`.
    Index(Index),
    /// What memory holds; where the place's mask does not hold, the scalar.
    Load(Place, Scalar),
    /// A function of one value.
    Unary(Unary, Value),
    /// A function of two values of one type.
    Binary(Binary, Value, Value),
    /// The product of two floats plus a third, rounded once.
    MultiplyAdd(Value, Value, Value),
    /// The second where the first (`bool`) holds, else the third.
    Select(Value, Value, Value),
    /// Conversion to the bound type.
    Cast(Value),
    /// The same bits as the bound type.
    Bitcast(Value),
    /// One number in every lane.
    Splat(Value),
    /// One lane of a vector.
    Lane(Value, u8),
    /// A vector of numbers, one a lane.
    Pack(SmallVec<[Value; 4]>),
    /// The value of the invocation whose position in the subgroup differs in these bits.
    ShuffleXor(Value, u32),
}

impl Operation {
    /// The values it reads.
    pub fn operands(&self) -> SmallVec<[Value; 4]> {
        use Operation::*;
        match *self {
            Pack(ref lanes) => lanes.clone(),
            Constant(_) | Parameter(_) | Index(_) => SmallVec::new(),
            Load(ref place, _) => place.row.iter().map(|row| row.value).collect(),
            Unary(_, a) | Cast(a) | Bitcast(a) | Splat(a) | Lane(a, _) | ShuffleXor(a, _) => {
                SmallVec::from_elem(a, 1)
            }
            Binary(_, a, b) => [a, b].into_iter().collect(),
            MultiplyAdd(a, b, c) | Select(a, b, c) => [a, b, c].into_iter().collect(),
        }
    }
}

/// Which operand of `accumulator += left * right` a fragment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// `rows x depth`.
    Left,
    /// `depth x columns`.
    Right,
    /// `rows x columns`.
    Accumulator,
}

/// An array of matrix fragments, each spread over the invocations of a subgroup as the device likes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fragment {
    /// Which operand.
    pub role: Role,
    /// The matrix instruction's shape.
    pub shape: MatrixShape,
    /// Element type.
    pub dtype: DType,
    /// Number of fragments.
    pub length: usize,
}

/// `rows x depth` times `depth x columns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct MatrixShape {
    pub rows: usize,
    pub columns: usize,
    pub depth: usize,
}

impl Fragment {
    /// Rows and columns of the matrix.
    pub fn extents(&self) -> (usize, usize) {
        match self.role {
            Role::Left => (self.shape.rows, self.shape.depth),
            Role::Right => (self.shape.depth, self.shape.columns),
            Role::Accumulator => (self.shape.rows, self.shape.columns),
        }
    }
}

/// One of an array of fragments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Which array of [`Kernel::fragments`].
    pub fragment: u16,
    /// Which of the array.
    pub index: Index,
}

/// What all invocations of a subgroup do together with fragments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Matrix {
    /// Every element is this scalar.
    Fill(Tile, Scalar),
    /// Loads a matrix from its first element. In memory its rows, or its columns if it is transposed there, are `stride`
    /// elements apart.
    Load {
        /// What is loaded.
        tile: Tile,
        /// From where: a shared array, without a mask.
        place: Place,
        /// Elements from row to row, or from column to column.
        stride: usize,
        /// Whether the matrix is transposed in memory.
        transposed: bool,
    },
    /// `accumulator += left * right`.
    MultiplyAdd {
        /// The sum.
        accumulator: Tile,
        /// The left factor.
        left: Tile,
        /// The right factor.
        right: Tile,
    },
    /// Stores an accumulator as a row-major matrix.
    Store {
        /// What is stored.
        tile: Tile,
        /// To where; without a mask.
        place: Place,
        /// Elements from row to row.
        stride: usize,
    },
}

/// Copies from buffers to shared arrays that go on while the invocation does other things.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AsyncCopy {
    /// Begins to copy consecutive elements, [`AsyncCopy::BYTES`] in all; zeros where the mask of `from` does not hold.
    Begin {
        /// From where: a buffer.
        from: Box<Place>,
        /// To where: a shared array; without a mask.
        to: Box<Place>,
    },
    /// What was begun since the last such mark, perhaps nothing, is a batch.
    Mark,
    /// Waits until at most so many of the latest batches are under way. Only after the next barrier do other invocations
    /// see what was copied.
    Wait(u8),
}

impl AsyncCopy {
    /// Bytes that are copied at once, and what both addresses are multiples of.
    pub const BYTES: usize = 16;
}

/// A step of an invocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Statement {
    /// The body for every value of an axis. Loops over grid and block axes enclose everything else.
    Loop {
        /// The axis.
        axis: u8,
        /// What is repeated.
        body: Vec<Statement>,
    },
    /// Binds a value until the end of the enclosing body.
    Let {
        /// Its number.
        value: Value,
        /// Its type.
        of: Type,
        /// What it is.
        operation: Operation,
    },
    /// Writes a value to memory.
    Store {
        /// Where.
        place: Place,
        /// What.
        value: Value,
    },
    /// The first body where the mask holds, else the second.
    If {
        /// The condition.
        mask: Mask,
        /// Where it holds.
        then: Vec<Statement>,
        /// Where it does not.
        otherwise: Vec<Statement>,
    },
    /// Where `when` (one `bool`) holds, `memory = memory op value` as one step that nobody comes between, of 32-bit
    /// integers in a buffer that is written or a shared array. Products are not there.
    Atomic {
        /// Where.
        place: Place,
        /// How.
        combine: Combine,
        /// With what.
        value: Value,
        /// The condition.
        when: Value,
    },
    /// Leaves the innermost loop where the value (one `bool`) holds.
    Break {
        /// The condition.
        when: Value,
    },
    /// Waits until every invocation of the group is here; what they wrote to shared arrays and buffers is then seen by
    /// all of them.
    Barrier,
    /// Work on fragments.
    Matrix(Box<Matrix>),
    /// A copy that others do not wait for.
    AsyncCopy(AsyncCopy),
}

impl Kernel {
    /// The extents of the axes: what indices are over.
    pub fn ranges(&self) -> Ranges {
        Ranges(self.axes.iter().map(|axis| axis.extent).collect())
    }

    /// Groups along each dimension.
    pub fn grid(&self) -> [usize; 3] {
        self.extents(AxisKind::Grid)
    }

    /// Invocations of a group along each dimension. Their numbers in the group count dimension 0 fastest.
    pub fn block(&self) -> [usize; 3] {
        self.extents(AxisKind::Block)
    }

    fn extents(&self, kind: fn(u8) -> AxisKind) -> [usize; 3] {
        [0, 1, 2].map(|d| self.axes.iter().find(|a| a.kind == kind(d)).map_or(1, |a| a.extent))
    }

    /// Bytes of shared memory of a group; every array begins at a multiple of [`Kernel::SHARED_ALIGNMENT`].
    pub fn shared_bytes(&self) -> usize {
        self.shared.iter().map(Array::aligned_bytes).sum()
    }

    /// The alignment of shared arrays: the widest vector.
    pub const SHARED_ALIGNMENT: usize = 32;

    /// The alignment of the rows of matrices in memory that fragments are loaded from and stored to.
    pub const MATRIX_ALIGNMENT: usize = 16;

    /// Calls `visit` with every statement, outer ones before inner ones, in the order of execution.
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

    /// Element type and length of an array, if there is such an array.
    pub fn array(&self, memory: Memory) -> Option<(DType, usize)> {
        let array = |arrays: &[Array], at: u16| arrays.get(usize::from(at)).map(|a| (a.dtype, a.length));
        match memory {
            Memory::Buffer(at) => self.buffers.get(usize::from(at)).map(|b| (b.dtype, b.length)),
            Memory::Shared(at) => array(&self.shared, at),
            Memory::Register(at) => array(&self.registers, at),
        }
    }
}

impl Array {
    /// Bytes, rounded up to the alignment of shared arrays.
    pub fn aligned_bytes(&self) -> usize {
        (self.length * self.dtype.size()).next_multiple_of(Kernel::SHARED_ALIGNMENT)
    }
}
