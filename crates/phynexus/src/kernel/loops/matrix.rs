//! Matrix operations.

use super::MemoryAccess;
use crate::{DType, Scalar, kernel::index::Index};

/// The role of a fragment in `accumulator += left * right`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// `rows x depth`.
    Left,
    /// `depth x columns`.
    Right,
    /// `rows x columns`.
    Accumulator,
}

/// An array of matrix fragments. Their distribution over the invocations of a subgroup or team is up to the device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fragment {
    /// The role.
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

/// A matrix instruction of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixUnit {
    /// The matrices that it multiplies.
    pub shape: MatrixShape,
    /// The types of the left and the right factor.
    pub factors: [DType; 2],
    /// The type of the sums.
    pub sum: DType,
}

impl MatrixUnit {
    /// For factors of one type.
    pub const fn new(shape: MatrixShape, factor: DType, sum: DType) -> MatrixUnit {
        MatrixUnit { shape, factors: [factor; 2], sum }
    }

    /// Whether it multiplies panels of these types into such sums.
    pub fn multiplies_panels(&self, factors: [DType; 2], sum: DType) -> bool {
        self.shape.rows == Panel::ROWS && self.factors == factors && self.sum == sum
    }
}

impl Fragment {
    /// The number of subgroups that share each fragment: a team of four for matrices of 64 rows, otherwise one.
    pub fn subgroups(&self) -> usize {
        if self.shape.rows == Panel::ROWS { Panel::SUBGROUPS } else { 1 }
    }

    /// The number of elements of each fragment that an invocation holds, of subgroups of 32 invocations.
    pub fn share(&self) -> usize {
        let (rows, columns) = self.extents();
        rows * columns / (32 * self.subgroups())
    }

    /// The row and the column of an element of an invocation's share of a team's fragment, or of a subgroup's where the
    /// device [has quads](crate::kernel::check::Limits::quads). Pairs of neighbours in a row go round four invocations,
    /// rows round eight such quads, and each subgroup has 16 rows.
    pub fn position(element: usize, invocation: usize) -> (usize, usize) {
        let (subgroup, lane) = (invocation / 32, invocation % 32);
        let row = subgroup * 16 + lane / 4 + element / 2 % 2 * 8;
        (row, element / 4 * 8 + lane % 4 * 2 + element % 2)
    }

    /// Rows and columns of the matrix.
    pub fn extents(&self) -> (usize, usize) {
        match self.role {
            Role::Left => (self.shape.rows, self.shape.depth),
            Role::Right => (self.shape.depth, self.shape.columns),
            Role::Accumulator => (self.shape.rows, self.shape.columns),
        }
    }
}

/// A fragment of an array.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// The array in [`Kernel::fragments`](super::Kernel::fragments).
    pub fragment: u16,
    /// The position in the array.
    pub index: Index,
}

/// A matrix operation, executed jointly by all invocations of a subgroup or team.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Matrix {
    /// Sets every element to this scalar.
    Fill(Tile, Scalar),
    /// Loads a matrix, starting from its first element. Its rows in memory (its columns if transposed) are `stride`
    /// elements apart.
    Load {
        /// The destination.
        tile: Tile,
        /// The source: a shared array, without a mask.
        access: MemoryAccess,
        /// Elements between rows, or between columns if transposed.
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
    /// Stores an accumulator as a row-major matrix; that of a team is rounded if the array's elements have 16 bits.
    /// Each subgroup of a team stores its share of the rows, in their order; this orders the accesses of its
    /// invocations to memory before and after, as a barrier does.
    Store {
        /// The fragment.
        tile: Tile,
        /// The destination, without a mask.
        access: MemoryAccess,
        /// Elements between rows.
        stride: usize,
    },
    /// Starts `sums += left * right`, or `sums = left * right`, executed jointly by a team of subgroups. Until it is
    /// settled, its factors are not overwritten and its sums are not accessed, except by further products.
    Product {
        /// An array of accumulators of [`Panel::ROWS`] rows; together they have the columns of the right factor.
        sums: u16,
        /// The left factor: [`Panel::ROWS`] rows of [`Panel::width`] terms.
        left: Factor,
        /// The right factor: as many columns as the sums have.
        right: Panel,
        /// Whether the sums begin with this product, whatever they were.
        begins: bool,
    },
    /// Waits until at most this many of the latest products of the team are pending.
    Settle(u8),
}

/// The left factor of a product.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Factor {
    /// In a shared array.
    Panel(Panel),
    /// The first of consecutive fragments, which together have [`Panel::WIDTH`] columns.
    Fragments(Tile),
}

/// A factor of a product in a shared array: some rows of a left factor, or columns of a right one, and
/// [`Panel::width`] terms. `float32` factors are rounded to TF32.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Panel {
    /// The first element, in an array of panels, at a multiple of [`Panel::ALIGNMENT`] bytes.
    pub access: MemoryAccess,
    /// Whether the terms of a row or column are neighbours in memory. If not, which is for numbers of 16 bits only,
    /// groups of [`Panel::WIDTH`] rows or columns are, and the terms of such a group follow each other.
    pub along_terms: bool,
}

impl Panel {
    /// Rows of the left factor.
    pub const ROWS: usize = 64;
    /// The columns of a right factor come in multiples of it, of [`Panel::WIDTH`] if terms are no neighbours.
    pub const LEAST_COLUMNS: usize = 8;
    /// The number of neighbouring elements of 16 bits in memory: 128 bytes.
    pub const WIDTH: usize = 64;
    /// The alignment of panels in bytes.
    pub const ALIGNMENT: usize = 1024;
    /// The number of subgroups that multiply jointly.
    pub const SUBGROUPS: usize = 4;
    /// The number of their invocations.
    pub const INVOCATIONS: usize = 32 * Panel::SUBGROUPS;

    /// The number of terms, and of neighbouring elements in memory, of this type: 128 bytes.
    pub const fn width(dtype: DType) -> usize {
        2 * Panel::WIDTH / dtype.size()
    }

    /// The distance of an element of this type from the first one: row or column `outer`, term `term`.
    pub fn offset(&self, dtype: DType, outer: usize, term: usize) -> usize {
        match self.along_terms {
            true => outer * Panel::width(dtype) + term,
            false => (outer / Panel::WIDTH * Panel::WIDTH + term) * Panel::WIDTH + outer % Panel::WIDTH,
        }
    }
}
