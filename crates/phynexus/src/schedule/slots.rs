//! Numbers that change from run to run: `k` in `x * k`.
//!
//! The key of a plan leaves numbers out. The first plan of a graph has them built in, so that constants fold. When the
//! graph comes with other numbers, it is planned once more, and those that differ become slots: elements of a leaf,
//! uploaded at each run. If another number then changes, a later plan has a slot for it, too.
//!
//! Numbers that were equal in the earlier plan and are equal now share a slot. In a loop of equal steps, all kernels
//! then stay alike.

use smallvec::SmallVec;

use crate::{
    DType, Result, Scalar,
    device::{Device, Storage},
    dtype::scalar_bytes,
    op::{
        Op, Reduce, Slice,
        ir::{Id, Ir},
    },
    shape::{Dims, Layout},
};

/// A graph's numbers that may vary, in the order of its nodes.
pub(super) type Numbers = SmallVec<[(DType, Scalar); 4]>;

/// After this many plans, every number of the graph gets a slot, and after one more, a slot of its own.
const SELECTIVE: usize = 3;

/// A leaf's memory has a multiple of this size. Some devices write other sizes only by reading first.
const UNIT: usize = 16;

/// How a plan gets a number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum NumberLocation {
    BuiltIn(Scalar),
    /// An element of a leaf.
    Slot {
        leaf: usize,
        element: usize,
    },
}

/// Which numbers of a graph its plan has built in, and where the others are.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    places: SmallVec<[(DType, NumberLocation); 4]>,
    /// For each leaf its dtype, and for each element the first number that it holds.
    leaves: SmallVec<[(DType, SmallVec<[usize; 4]>); 1]>,
    /// The number of plans of this graph before this one.
    former: usize,
}

impl Slots {
    /// No slots: all numbers are built in.
    pub(super) fn none(numbers: &Numbers) -> Slots {
        let places =
            numbers.iter().map(|&(dtype, number)| (dtype, NumberLocation::BuiltIn(number))).collect();
        Slots { places, ..Slots::default() }
    }

    /// Returns the number of slots.
    pub(super) fn count(&self) -> usize {
        self.leaves.iter().map(|(_, elements)| elements.len()).sum()
    }

    /// Returns whether the plan computes with these numbers.
    pub(super) fn fit(&self, numbers: &Numbers) -> bool {
        self.places.iter().zip(numbers).all(|((_, place), (_, number))| match *place {
            NumberLocation::BuiltIn(own) => own == *number,
            NumberLocation::Slot { leaf, element } => numbers[self.leaves[leaf].1[element]].1 == *number,
        })
    }

    /// Returns slots for the next plan of the same graph, with which these numbers fit.
    pub(super) fn widened(&self, numbers: &Numbers) -> Slots {
        let former = self.former + 1;
        let mut widened = Slots { former, ..Slots::default() };
        let mut shared: SmallVec<[(DType, NumberLocation, Scalar, NumberLocation); 4]> = SmallVec::new();
        for (position, (&(dtype, before), &(_, now))) in self.places.iter().zip(numbers).enumerate() {
            let stays = before == NumberLocation::BuiltIn(now) && former < SELECTIVE;
            let known = shared.iter().find(|known| (known.0, known.1, known.2) == (dtype, before, now));
            let place = match known {
                _ if stays => before,
                Some((.., slot)) if former <= SELECTIVE => *slot,
                _ => {
                    let slot = widened.slot(dtype, position);
                    shared.push((dtype, before, now, slot));
                    slot
                }
            };
            widened.places.push((dtype, place));
        }
        widened
    }

    /// Adds a slot for the number at this position.
    fn slot(&mut self, dtype: DType, position: usize) -> NumberLocation {
        let known = self.leaves.iter().position(|(known, _)| *known == dtype);
        let leaf = known.unwrap_or_else(|| {
            self.leaves.push((dtype, SmallVec::new()));
            self.leaves.len() - 1
        });
        let elements = &mut self.leaves[leaf].1;
        elements.push(position);
        NumberLocation::Slot { leaf, element: elements.len() - 1 }
    }

    /// Returns the layouts of the leaves.
    pub(super) fn layouts(&self) -> impl Iterator<Item = Layout> {
        self.leaves.iter().map(|(_, elements)| Layout::contiguous(&[elements.len()]))
    }

    /// Adds the leaves to an empty graph. Returns, for each number, the leaf of its slot and its position there.
    pub(super) fn declare(&self, ir: &mut Ir) -> Vec<Option<(Id, usize)>> {
        let declare = |(dtype, elements): &(DType, SmallVec<[usize; 4]>)| {
            ir.push(Op::Buffer, *dtype, Dims::from_slice(&[elements.len()]), [])
        };
        let leaves: SmallVec<[Id; 1]> = self.leaves.iter().map(declare).collect();
        let place = |(_, place): &(DType, NumberLocation)| match *place {
            NumberLocation::BuiltIn(_) => None,
            NumberLocation::Slot { leaf, element } => Some((leaves[leaf], element)),
        };
        self.places.iter().map(place).collect()
    }

    /// Stores slots that are read as whole tensors: as a result, which is memory of its own, or by an operation on
    /// whole buffers, which computes with a number that is built in the same way.
    pub(super) fn store_whole(&self, ir: Ir) -> Ir {
        if self.leaves.is_empty() {
            return ir;
        }
        let mut stored = Ir::default();
        // For each node its place, and whether it is a slot or a view of one.
        let mut renamed: Vec<(Id, bool)> = Vec::with_capacity(ir.nodes.len());
        let whole = |stored: &mut Ir, (place, is_slot): (Id, bool)| {
            let node = stored.node(place).clone();
            if is_slot { stored.push(Op::Contiguous, node.dtype, node.shape, [place]) } else { place }
        };
        for (id, node) in ir.nodes.iter().enumerate() {
            let is_leaf = ir.leaves[..self.leaves.len()].contains(&(id as Id));
            let is_view = node.op.is_view() && node.inputs.iter().any(|&input| renamed[input as usize].1);
            let reads_elements =
                node.op.is_view() || node.op.is_elementwise() || matches!(node.op, Op::Reduce(Reduce { .. }));
            let mut inputs: SmallVec<[Id; 3]> = SmallVec::new();
            for &input in &node.inputs {
                let place = renamed[input as usize];
                inputs.push(if reads_elements { place.0 } else { whole(&mut stored, place) });
            }
            let place = stored.push(node.op.clone(), node.dtype, node.shape.clone(), inputs);
            renamed.push((place, is_leaf || is_view));
        }
        stored.outputs =
            ir.outputs.iter().map(|&output| whole(&mut stored, renamed[output as usize])).collect();
        stored
    }

    /// Uploads the slots' numbers.
    pub(super) fn upload(&self, numbers: &Numbers, device: Device) -> Result<SmallVec<[Storage; 1]>> {
        let upload = |(dtype, elements): &(DType, SmallVec<[usize; 4]>)| {
            let mut bytes: SmallVec<[u8; 64]> = SmallVec::new();
            for &position in elements {
                bytes.extend_from_slice(&scalar_bytes(numbers[position].1, *dtype));
            }
            bytes.resize(bytes.len().next_multiple_of(UNIT), 0);
            let buffer = device.backend().allocate(bytes.len())?;
            device.backend().write(&buffer, 0, &bytes)?;
            Ok(Storage { buffer, layout: Layout::contiguous(&[elements.len()]) })
        };
        self.leaves.iter().map(upload).collect()
    }
}

/// Adds a tensor filled with an element of a leaf.
pub(super) fn filled(ir: &mut Ir, (leaf, element): (Id, usize), dtype: DType, shape: &Dims) -> Id {
    let slice = Slice { start: [element][..].into(), step: [1][..].into() };
    let element = ir.push(Op::Slice(slice), dtype, Dims::from_slice(&[1]), [leaf]);
    let ones: Dims = shape.iter().map(|_| 1).collect();
    let aligned = ir.push(Op::Reshape, dtype, ones, [element]);
    ir.push(Op::Expand, dtype, shape.clone(), [aligned])
}
