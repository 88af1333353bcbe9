//! Bulk copies: boxes and windows of a tensor, copied to panels by a unit of the device that computes the addresses.

use smallvec::SmallVec;

use super::{AsyncCopy, Kernel, MemoryAccess, Panel, Statement};
use crate::kernel::{index::Index, view::Mask};

/// A tensor in a buffer, and what a bulk copy takes of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BulkTensor {
    /// The buffer.
    pub buffer: u16,
    /// The place of its first element in the buffer.
    pub start: usize,
    /// The extents, and the elements between neighbours, of 2 to 5 dimensions. Those of the first are neighbours.
    pub dimensions: SmallVec<[(usize, usize); 5]>,
    /// What a copy takes.
    pub part: BulkPart,
}

/// What a bulk copy takes of a tensor. It is zero where it is beyond the tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BulkPart {
    /// A box of these extents.
    Box(SmallVec<[usize; 5]>),
    /// For each of `count` consecutive windows, `length` neighbours along the first dimension at one place of the
    /// window. Windows are numbered row-major, their position along the first walk varies fastest, and that along the
    /// last dimension slowest, where neighbouring windows are neighbours.
    Windows {
        /// Elements of each window.
        length: usize,
        /// The number of windows.
        count: usize,
        /// Where windows begin along the dimensions between the first and the last.
        walks: SmallVec<[Walk; 3]>,
    },
}

/// The beginnings of windows along a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Walk {
    /// The first beginning, which may be before the tensor.
    pub low: i64,
    /// The distance between neighbouring ones.
    pub step: usize,
    /// Their number.
    pub count: usize,
}

/// A copy that a group makes once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BulkCopy {
    /// The tensor in [`Kernel::tensors`].
    pub tensor: u16,
    /// Of a box, its place along each dimension. Of windows, the place along the first dimension, the number of the
    /// first window, then for each walk the distance from its windows' beginnings, which is not negative.
    pub at: SmallVec<[Index; 5]>,
    /// Whether the group copies anything.
    pub mask: Mask,
    /// Where it goes: to consecutive elements of a shared array of panels, without a mask.
    pub to: MemoryAccess,
}

impl BulkTensor {
    /// The coordinates of element number `element` of a copy at these numbers.
    pub fn coordinates(&self, at: &[i64], mut element: usize) -> SmallVec<[i64; 5]> {
        match &self.part {
            BulkPart::Box(extents) => {
                let coordinate = |(first, extent): (&i64, &usize)| {
                    let along = element % extent;
                    element /= extent;
                    first + along as i64
                };
                at.iter().zip(extents).map(coordinate).collect()
            }
            BulkPart::Windows { length, walks, .. } => {
                let mut window = at[1] + (element / length) as i64;
                let mut coordinates: SmallVec<[i64; 5]> =
                    [at[0] + (element % length) as i64].into_iter().collect();
                for (walk, offset) in walks.iter().zip(&at[2..]) {
                    let count = walk.count as i64;
                    coordinates.push(walk.low + window.rem_euclid(count) * walk.step as i64 + offset);
                    window = window.div_euclid(count);
                }
                coordinates.push(window);
                coordinates
            }
        }
    }

    /// The element of the tensor at these coordinates, or `None` beyond the tensor.
    pub fn element(&self, coordinates: &[i64]) -> Option<usize> {
        let place = |(&at, &(extent, stride)): (&i64, &(usize, usize))| {
            usize::try_from(at).ok().filter(|&at| at < extent).map(|at| at * stride)
        };
        let places = coordinates.iter().zip(&self.dimensions).map(place);
        places.sum::<Option<usize>>().map(|place| self.start + place)
    }

    /// The greatest distance from the beginnings of windows that devices can tell: it has fewer bits the more
    /// dimensions there are.
    pub fn greatest_distance(&self) -> i64 {
        (1 << (16 / self.dimensions.len().saturating_sub(2).max(1))) - 1
    }

    /// The greatest element.
    pub fn last(&self) -> usize {
        self.start
            + self
                .dimensions
                .iter()
                .map(|(extent, stride)| (extent.saturating_sub(1)) * stride)
                .sum::<usize>()
    }
}

impl BulkPart {
    /// The number of elements of a copy.
    pub fn elements(&self) -> usize {
        match self {
            BulkPart::Box(extents) => extents.iter().product(),
            BulkPart::Windows { length, count, .. } => length * count,
        }
    }
}

impl BulkCopy {
    /// The invocations that a group has in addition, one of which makes its copies.
    pub const INVOCATIONS: usize = 32;
    /// The same if they give registers to the others, which four subgroups do together.
    pub const INVOCATIONS_THAT_GIVE: usize = 4 * BulkCopy::INVOCATIONS;
    /// The block of those that take them: two teams.
    pub const INVOCATIONS_THAT_TAKE: [usize; 3] = [2 * Panel::INVOCATIONS, 1, 1];
}

impl Kernel {
    /// The tensor of a bulk copy, if it exists.
    pub fn tensor(&self, copy: &BulkCopy) -> Option<&BulkTensor> {
        self.tensors.get(usize::from(copy.tensor))
    }

    /// The most batches of copies that are not waited for at once, rounded up to a power of two; 0 if there are no
    /// bulk copies.
    pub fn bulk_batches(&self) -> usize {
        if self.tensors.is_empty() {
            return 0;
        }
        let mut most = 0;
        self.visit(&mut |statement| {
            if let Statement::AsyncCopy(AsyncCopy::Turn(pending)) = statement {
                most = most.max(usize::from(*pending));
            }
        });
        (most + 2).next_power_of_two()
    }

    /// The number of invocations of a group as it is launched: those of its block, and those that make its bulk copies.
    pub fn launched_block(&self) -> [usize; 3] {
        let [x, y, z] = self.block();
        let more = match self.gives_registers {
            _ if self.tensors.is_empty() => 0,
            true => BulkCopy::INVOCATIONS_THAT_GIVE,
            false => BulkCopy::INVOCATIONS,
        };
        [x + more, y, z]
    }

    /// Bytes of the barriers at the end of shared memory that tell of bulk copies.
    pub(super) fn barrier_bytes(&self) -> usize {
        2 * size_of::<u64>() * self.bulk_batches()
    }
}

/// The statements of the invocation that makes the bulk copies, or those of the others: both run all loops and
/// conditions with something to do in them.
pub fn divided(body: &[Statement], copies: bool) -> Vec<Statement> {
    let mut kept = Vec::new();
    for statement in body {
        match statement {
            Statement::Loop { axis, body } => {
                let body = divided(body, copies);
                if !body.is_empty() {
                    kept.push(Statement::Loop { axis: *axis, body });
                }
            }
            Statement::If { mask, then, otherwise } => {
                let (then, otherwise) = (divided(then, copies), divided(otherwise, copies));
                if !then.is_empty() || !otherwise.is_empty() {
                    kept.push(Statement::If { mask: mask.clone(), then, otherwise });
                }
            }
            Statement::AsyncCopy(AsyncCopy::Bulk(_)) => kept.extend(copies.then(|| statement.clone())),
            Statement::AsyncCopy(AsyncCopy::Mark | AsyncCopy::Turn(_)) => kept.push(statement.clone()),
            _ => kept.extend((!copies).then(|| statement.clone())),
        }
    }
    kept
}
