//! A plan: compiled steps, where every buffer lies, and how to run them.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    sync::Arc,
    time::Instant,
};

use smallvec::SmallVec;

use super::{
    build::{self, Built},
    group::{self, Grouping, Home},
    profile,
    step::{Library, Operand, Step},
};
use crate::{
    DType, Error, Result,
    device::{Binding, Buffer, Device, Executable, Storage, Support},
    graph::{
        ir::{Id, Ir},
        rewrite::rewrite,
    },
    kernel::fused::Operation,
    shape::Layout,
};

/// Where a step finds a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The data of leaf `i`.
    Leaf(usize),
    /// The plan's own memory, at this byte.
    Arena(usize),
    /// Result buffer `i`.
    Owned(usize),
}

/// A step with its buffers.
pub struct PlannedStep {
    /// What it does.
    pub step: Step,
    /// Its buffers, in the order of its bindings.
    pub parameters: Vec<PlannedParameter>,
    executable: Arc<dyn Executable>,
}

/// A buffer of a step.
#[derive(Clone, Copy, Debug)]
pub struct PlannedParameter {
    /// Where the buffer is.
    pub place: Place,
    /// Where in it the step's data starts, in bytes.
    pub offset: usize,
    /// Bytes of the tensor behind it.
    pub bytes: usize,
    /// True if the step writes it.
    pub written: bool,
}

/// A result buffer.
#[derive(Clone, Debug)]
pub struct Owned {
    /// Bytes.
    pub bytes: usize,
    /// The leaf whose memory it takes over if nobody else holds that.
    pub donor: Option<usize>,
}

/// Everything needed to compute a graph's outputs from its leaves.
pub struct Plan {
    /// Where it runs.
    pub device: Device,
    /// The steps in order.
    pub steps: Vec<PlannedStep>,
    /// Bytes of intermediate results.
    pub arena_bytes: usize,
    /// The result buffers.
    pub owned: Vec<Owned>,
    outputs: Vec<(Place, Layout)>,
    leaf_element_sizes: Vec<usize>,
}

/// What the caller knows of a leaf.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    /// Extents and strides.
    pub(super) layout: Layout,
    /// True if its data may be overwritten once the plan has read it.
    pub(super) donatable: bool,
}

const ALIGNMENT: usize = 64;

/// Makes the plan of a graph.
pub(super) fn plan(ir: &Ir, leaves: &[Leaf], device: Device) -> Result<Plan> {
    let ir = rewrite(ir, device)?;
    let layouts: Vec<Layout> = leaves.iter().map(|l| Layout { offset: 0, ..l.layout.clone() }).collect();
    let grouping = group::group(&ir, &layouts, device.backend().binding_limit())?;
    let by_id: HashMap<Id, Layout> = ir.leaves.iter().copied().zip(layouts).collect();
    let mut pieces = Vec::with_capacity(grouping.groups.len());
    for (id, group) in grouping.groups.iter().enumerate() {
        pieces.push(match group.library {
            Some(node) => library(&ir, &grouping, node, &by_id, device)?,
            None => {
                let Built { kernel, parameters } = build::build(&ir, &grouping, id as u32, &by_id)?;
                let written = kernel.parameters.iter().map(|p| p.written).collect();
                let offsets = vec![0; parameters.len()];
                Piece { step: Step::Fused(kernel), parameters, offsets, written }
            }
        });
    }
    let order = order(&grouping, &pieces);
    let outputs: Vec<(Id, Layout)> = ir.outputs.iter().map(|&o| resolve(&ir, &grouping, &by_id, o)).collect();
    let places = Places::assign(&ir, &pieces, &order, &outputs, leaves);
    let mut steps = Vec::with_capacity(order.len());
    let mut pieces: Vec<Option<Piece>> = pieces.into_iter().map(Some).collect();
    for index in order {
        let Some(piece) = pieces[index].take() else { continue };
        let stored = piece.parameters.iter().zip(&piece.written).filter(|(_, w)| **w);
        if stored.clone().all(|(&n, _)| ir.node(n).is_empty()) {
            continue;
        }
        let parameter = |i: usize| {
            let node = piece.parameters[i];
            let (offset, written) = (piece.offsets[i], piece.written[i]);
            PlannedParameter { place: places.of[&node], offset, bytes: ir.node(node).bytes(), written }
        };
        let parameters = (0..piece.parameters.len()).map(parameter).collect();
        let executable = device.backend().compile(&piece.step)?;
        steps.push(PlannedStep { step: piece.step, parameters, executable });
    }
    let outputs = outputs.into_iter().map(|(base, layout)| (places.of[&base], layout)).collect();
    let leaf_element_sizes = ir.leaves.iter().map(|&l| ir.node(l).dtype.size()).collect();
    let Places { owned, arena_bytes, .. } = places;
    Ok(Plan { device, steps, arena_bytes, owned, outputs, leaf_element_sizes })
}

/// A step before it has buffers.
struct Piece {
    step: Step,
    parameters: Vec<Id>,
    /// Where in the parameter's buffer its data starts, in bytes.
    offsets: Vec<usize>,
    written: Vec<bool>,
}

fn library(
    ir: &Ir,
    grouping: &Grouping,
    id: Id,
    layouts: &HashMap<Id, Layout>,
    device: Device,
) -> Result<Piece> {
    let node = ir.node(id);
    let dtypes: SmallVec<[DType; 4]> = node.inputs.iter().map(|&i| ir.node(i).dtype).collect();
    if let Support::Unsupported(reason) = device.backend().support(node, &dtypes) {
        let message = format!("{} is not supported: {reason}", node.op.name());
        return Err(Error::Device { device: device.name().to_owned(), message });
    }
    let mut parameters = Vec::with_capacity(node.inputs.len() + 1);
    let mut offsets = Vec::with_capacity(node.inputs.len() + 1);
    let mut operands = Vec::with_capacity(node.inputs.len());
    for &input in &node.inputs {
        let (base, mut layout) = resolve(ir, grouping, layouts, input);
        let dtype = ir.node(input).dtype;
        parameters.push(base);
        offsets.push(std::mem::take(&mut layout.offset) * dtype.size());
        operands.push(Operand { dtype, layout });
    }
    parameters.push(id);
    offsets.push(0);
    let written = (0..parameters.len()).map(|i| i + 1 == parameters.len()).collect();
    let mut node = node.clone();
    node.inputs.clear();
    Ok(Piece {
        step: Step::Library(Library { node, operands, epilogue: None }),
        parameters,
        offsets,
        written,
    })
}

/// The node whose buffer holds this node's data, and the layout in it.
fn resolve(ir: &Ir, grouping: &Grouping, layouts: &HashMap<Id, Layout>, id: Id) -> (Id, Layout) {
    match &grouping.homes[id as usize] {
        Home::View(base, layout) => (*base, layout.clone()),
        _ => match layouts.get(&id) {
            Some(layout) => (id, layout.clone()),
            None => (id, Layout::contiguous(&ir.node(id).shape)),
        },
    }
}

/// The pieces in an order that respects what they read. Those that only make results come last, fused ones at the very
/// end: once the first of these has stored in place, nothing that can fail on its data is left.
fn order(grouping: &Grouping, pieces: &[Piece]) -> Vec<usize> {
    let mut waits = vec![0usize; pieces.len()];
    let mut readers: Vec<SmallVec<[usize; 4]>> = vec![SmallVec::new(); pieces.len()];
    for (index, piece) in pieces.iter().enumerate() {
        let mut producers: SmallVec<[usize; 8]> = piece
            .parameters
            .iter()
            .zip(&piece.written)
            .filter(|(_, written)| !**written)
            .filter_map(|(&n, _)| match grouping.homes[n as usize] {
                Home::Stored(group) => Some(group as usize),
                _ => None,
            })
            .collect();
        producers.sort_unstable();
        producers.dedup();
        waits[index] = producers.len();
        producers.into_iter().for_each(|p| readers[p].push(index));
    }
    let rank = |index: usize| {
        let piece = &pieces[index];
        let last = match (readers[index].is_empty(), &piece.step) {
            (false, _) => 0,
            (true, Step::Library(_)) => 1,
            (true, Step::Fused(_)) => 2,
        };
        Reverse((last, piece.parameters.last().copied().unwrap_or(0), index))
    };
    let mut ready: BinaryHeap<_> = (0..pieces.len()).filter(|&i| waits[i] == 0).map(rank).collect();
    let mut order = Vec::with_capacity(pieces.len());
    while let Some(Reverse((_, _, index))) = ready.pop() {
        order.push(index);
        for &reader in &readers[index] {
            waits[reader] -= 1;
            if waits[reader] == 0 {
                ready.push(rank(reader));
            }
        }
    }
    order
}

/// Where every buffer of a plan lies.
struct Places {
    of: HashMap<Id, Place>,
    owned: Vec<Owned>,
    arena_bytes: usize,
}

impl Places {
    fn assign(
        ir: &Ir,
        pieces: &[Piece],
        order: &[usize],
        outputs: &[(Id, Layout)],
        leaves: &[Leaf],
    ) -> Places {
        let slots = ir.leaves.iter().enumerate();
        let mut of: HashMap<Id, Place> = slots.map(|(slot, &id)| (id, Place::Leaf(slot))).collect();
        let mut last_read: HashMap<Id, usize> = HashMap::new();
        for (time, &index) in order.iter().enumerate() {
            last_read.extend(pieces[index].parameters.iter().map(|&n| (n, time)));
        }
        let mut owned = Vec::new();
        for (base, _) in outputs {
            of.entry(*base).or_insert_with(|| {
                owned.push(Owned { bytes: ir.node(*base).bytes(), donor: None });
                Place::Owned(owned.len() - 1)
            });
        }
        let mut arena = Arena::default();
        for (time, &index) in order.iter().enumerate() {
            let piece = &pieces[index];
            for (&node, _) in piece.parameters.iter().zip(&piece.written).filter(|(_, written)| **written) {
                match of.get(&node) {
                    None => {
                        let until = last_read.get(&node).copied().unwrap_or(time);
                        of.insert(node, Place::Arena(arena.take(ir.node(node).bytes(), time, until)));
                    }
                    Some(&Place::Owned(buffer)) => {
                        let donor =
                            donor(ir, piece, node, leaves, &of, |leaf| last_read.get(&leaf) == Some(&time));
                        let taken = |slot| owned.iter().any(|o: &Owned| o.donor == Some(slot));
                        owned[buffer].donor = donor.filter(|&slot| !taken(slot));
                    }
                    Some(_) => {}
                }
            }
        }
        Places { of, owned, arena_bytes: arena.bytes }
    }
}

/// A leaf that dies in this step, read by it only at the very elements where `node` is stored.
fn donor(
    ir: &Ir,
    piece: &Piece,
    node: Id,
    leaves: &[Leaf],
    of: &HashMap<Id, Place>,
    dies: impl Fn(Id) -> bool,
) -> Option<usize> {
    let Step::Fused(kernel) = &piece.step else { return None };
    let position = piece.parameters.iter().zip(&piece.written).position(|(&n, &w)| w && n == node)?;
    let store = kernel.stores.iter().find(|s| usize::from(s.parameter) == position)?;
    let candidates = piece.parameters.iter().enumerate().filter(|(i, _)| !piece.written[*i]);
    candidates
        .filter_map(|(i, leaf)| match of.get(leaf) {
            Some(&Place::Leaf(slot)) if leaves[slot].donatable && dies(*leaf) => Some((i, *leaf, slot)),
            _ => None,
        })
        .find(|&(i, leaf, slot)| {
            let same_place = kernel.instructions.iter().all(|instruction| match &instruction.operation {
                Operation::Load { parameter, index, mask, .. } if usize::from(*parameter) == i => {
                    *index == store.index && mask.is_none()
                }
                _ => true,
            });
            let (from, to) = (ir.node(leaf), ir.node(node));
            let per_column =
                kernel.instructions[store.value as usize].per_column || kernel.columns.is_empty();
            same_place
                && per_column
                && from.dtype == to.dtype
                && from.len() == to.len()
                && leaves[slot].layout.is_contiguous()
        })
        .map(|(_, _, slot)| slot)
}

/// Offsets for buffers with known lifetimes: each gets the lowest place free for all of its time.
#[derive(Default)]
struct Arena {
    blocks: Vec<(usize, usize, usize)>,
    bytes: usize,
}

impl Arena {
    /// A place for `bytes` from step `from` to step `until`.
    fn take(&mut self, bytes: usize, from: usize, until: usize) -> usize {
        let bytes = bytes.max(1).next_multiple_of(ALIGNMENT);
        self.blocks.retain(|&(_, _, last)| last >= from);
        self.blocks.sort_unstable();
        let mut offset = 0;
        for &(start, end, _) in &self.blocks {
            if offset + bytes <= start {
                break;
            }
            offset = offset.max(end);
        }
        self.blocks.push((offset, offset + bytes, until));
        self.bytes = self.bytes.max(offset + bytes);
        offset
    }
}

impl Plan {
    /// Computes the outputs. All memory is taken before anything is stored.
    pub(super) fn run(&self, leaves: &[Storage]) -> Result<Vec<Storage>> {
        let backend = self.device.backend();
        let arena = match self.arena_bytes {
            0 => None,
            bytes => Some(backend.allocate(bytes)?),
        };
        let mut owned: SmallVec<[Buffer; 16]> = SmallVec::new();
        for buffer in &self.owned {
            // Besides the leaf's own handle and the caller's there may be others: then the memory is not free to take.
            let donor = buffer.donor.map(|slot| &leaves[slot]).filter(|leaf| {
                leaf.layout.offset == 0
                    && Arc::strong_count(&leaf.buffer.0) == 2
                    && leaf.buffer.size() >= buffer.bytes
            });
            owned.push(match donor {
                Some(leaf) => leaf.buffer.clone(),
                None => backend.allocate(buffer.bytes)?,
            });
        }
        let mut bindings: Vec<Binding> = Vec::new();
        for step in &self.steps {
            bindings.clear();
            for parameter in &step.parameters {
                let (buffer, start) = match parameter.place {
                    Place::Leaf(slot) => {
                        let leaf = &leaves[slot];
                        (leaf.buffer.clone(), leaf.layout.offset * self.leaf_element_sizes[slot])
                    }
                    Place::Arena(start) => match &arena {
                        Some(arena) => (arena.clone(), start),
                        None => return Err(Error::internal("plan", "a buffer in an arena of no bytes")),
                    },
                    Place::Owned(index) => (owned[index].clone(), 0),
                };
                bindings.push(Binding { buffer, offset: start + parameter.offset });
            }
            let started = profile::is_enabled().then(Instant::now);
            step.executable.run(&bindings)?;
            if let Some(started) = started {
                profile::record(&step.summary(self.device), started.elapsed());
            }
        }
        let storage = |(place, layout): &(Place, Layout)| match *place {
            Place::Leaf(slot) => {
                let leaf = &leaves[slot];
                let offset = leaf.layout.offset + layout.offset;
                Ok(Storage { buffer: leaf.buffer.clone(), layout: Layout { offset, ..layout.clone() } })
            }
            Place::Owned(index) => Ok(Storage { buffer: owned[index].clone(), layout: layout.clone() }),
            Place::Arena(_) => Err(Error::internal("plan", "an output without a buffer of its own")),
        };
        self.outputs.iter().map(storage).collect()
    }
}
