//! Numbers that change from run to run: `k` in `x * k`.
//!
//! The key of a plan leaves numbers out. The first plan of a graph has them built in, so that constants fold. When the
//! graph comes with other numbers, it is planned once more, and those that differ become slots: elements of a leaf,
//! uploaded at each run. A third plan, if another number then changes, has slots for all of them.

use smallvec::SmallVec;

use crate::{
    DType, Result, Scalar,
    device::{Device, Storage},
    dtype::scalar_bytes,
    op::{
        Op, Slice,
        ir::{Id, Ir},
    },
    shape::{Dims, Layout},
};

/// A graph's numbers that may vary, in the order of its nodes.
pub(super) type Numbers = SmallVec<[(DType, Scalar); 4]>;

/// Which numbers of a graph its plan has built in.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    /// For each number its dtype and value; no value for a slot.
    numbers: SmallVec<[(DType, Option<Scalar>); 4]>,
}

/// A leaf: its dtype, and the positions of its elements among the graph's numbers.
type SlotLeaf = (DType, SmallVec<[usize; 4]>);

impl Slots {
    /// No slots: all numbers are built in.
    pub(super) fn none(numbers: &Numbers) -> Slots {
        Slots { numbers: numbers.iter().map(|&(dtype, number)| (dtype, Some(number))).collect() }
    }

    /// Returns the number of slots.
    pub(super) fn count(&self) -> usize {
        self.numbers.iter().filter(|(_, number)| number.is_none()).count()
    }

    /// Returns whether these numbers are those built in, wherever there is no slot.
    pub(super) fn fit(&self, numbers: &Numbers) -> bool {
        let mut pairs = self.numbers.iter().zip(numbers);
        pairs.all(|((_, own), (_, number))| own.is_none_or(|own| own == *number))
    }

    /// Returns slots for the numbers that differ from those built in, or for all if there are slots already. A graph
    /// thus has at most three plans, one after another.
    pub(super) fn widened(&self, numbers: &Numbers) -> Slots {
        let all = self.count() > 0;
        let pairs = self.numbers.iter().zip(numbers);
        let widened =
            pairs.map(|(&(dtype, own), (_, number))| (dtype, own.filter(|own| !all && own == number)));
        Slots { numbers: widened.collect() }
    }

    /// Returns the leaves that hold the slots, one for each dtype.
    fn leaves(&self) -> SmallVec<[SlotLeaf; 1]> {
        let mut leaves: SmallVec<[SlotLeaf; 1]> = SmallVec::new();
        for (at, (dtype, _)) in self.numbers.iter().enumerate().filter(|(_, (_, own))| own.is_none()) {
            match leaves.iter_mut().find(|(known, _)| known == dtype) {
                Some((_, slots)) => slots.push(at),
                None => leaves.push((*dtype, SmallVec::from_slice(&[at]))),
            }
        }
        leaves
    }

    /// Returns the layouts of the leaves.
    pub(super) fn layouts(&self) -> impl Iterator<Item = Layout> {
        self.leaves().into_iter().map(|(_, slots)| Layout::contiguous(&[slots.len()]))
    }

    /// Adds the leaves to an empty graph. Returns, for each number, the leaf of its slot and its position there.
    pub(super) fn declare(&self, ir: &mut Ir) -> Vec<Option<(Id, usize)>> {
        let mut places = vec![None; self.numbers.len()];
        for (dtype, slots) in self.leaves() {
            let leaf = ir.push(Op::Buffer, dtype, Dims::from_slice(&[slots.len()]), []);
            slots.iter().enumerate().for_each(|(position, &slot)| places[slot] = Some((leaf, position)));
        }
        places
    }

    /// Uploads the slots' numbers.
    pub(super) fn upload(&self, numbers: &Numbers, device: Device) -> Result<SmallVec<[Storage; 1]>> {
        let upload = |(dtype, slots): SlotLeaf| {
            let elements = slots.iter().map(|&slot| scalar_bytes(numbers[slot].1, dtype));
            let bytes: SmallVec<[u8; 32]> = elements.flatten().collect();
            let buffer = device.backend().allocate(bytes.len())?;
            device.backend().write(&buffer, 0, &bytes)?;
            Ok(Storage { buffer, layout: Layout::contiguous(&[slots.len()]) })
        };
        self.leaves().into_iter().map(upload).collect()
    }
}

/// Adds a tensor filled with an element of a leaf.
pub(super) fn filled(ir: &mut Ir, (leaf, position): (Id, usize), dtype: DType, shape: &Dims) -> Id {
    let slice = Slice { start: [position][..].into(), step: [1][..].into() };
    let element = ir.push(Op::Slice(slice), dtype, Dims::from_slice(&[1]), [leaf]);
    let ones: Dims = shape.iter().map(|_| 1).collect();
    let aligned = ir.push(Op::Reshape, dtype, ones, [element]);
    ir.push(Op::Expand, dtype, shape.clone(), [aligned])
}
