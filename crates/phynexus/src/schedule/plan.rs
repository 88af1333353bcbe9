//! A plan: compiled steps, the allocations of all buffers, and the code that runs them.

use std::{
    cell::Cell,
    sync::{Arc, OnceLock},
};

use smallvec::SmallVec;

use super::{
    allocations::Allocations,
    answers::Answers,
    build::{self, Built},
    channels_last::keep_channels_last,
    compile,
    explain::StepSummary,
    group::{self, FusionGroupId, Grouping, Home, Limits},
    in_place::{self, Partial},
    layout::lay_out,
    memory_check, order,
    placement::{self, Placement},
    ruined,
    slots::Slots,
    submission::{self, Submission},
};
use crate::kernel::step::{Library, Operand, Step};
use crate::{
    Error, Result,
    device::{Binding, Buffer, Device, Executable, Storage},
    hash::FastMap,
    interrupt,
    kernel::fused::Fusion,
    op::{
        Op,
        ir::{Id, Ir, IrNode},
    },
    profile::{self, Phase},
    schedule::rewrite::rewrite,
    shape::Layout,
};

/// Where a step finds a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// The data of leaf `i`.
    Leaf(usize),
    /// The plan's own memory, at this byte offset.
    Arena(usize),
    /// Result buffer `i`.
    Owned(usize),
}

/// A step with its buffers.
pub struct PlannedStep {
    /// The operation.
    pub step: Step,
    /// Its buffers, in the order of its bindings.
    pub parameters: Vec<PlannedParameter>,
    /// The device that runs it and the reason, if that is not the plan's device.
    pub placement: Option<Placement>,
    pub(super) executable: Arc<dyn Executable>,
    pub(super) summary: OnceLock<Arc<StepSummary>>,
}

/// A buffer of a step.
#[derive(Clone, Copy, Debug)]
pub struct PlannedParameter {
    /// Where the buffer is.
    pub allocation: Allocation,
    /// The byte offset of the step's data in the buffer.
    pub offset: usize,
    /// Bytes of the whole tensor.
    pub bytes: usize,
    /// True if the step writes it.
    pub written: bool,
}

/// A result buffer.
#[derive(Clone)]
pub struct Owned {
    /// Size in bytes.
    pub bytes: usize,
    /// The leaf whose memory it takes over, if nothing else holds that memory.
    pub donor: Option<usize>,
    /// Given if the plan may store only some of its elements.
    pub(super) partial: Option<Partial>,
}

/// Everything needed to compute a graph's outputs from its leaves.
pub struct Plan {
    /// The device of the plan.
    pub device: Device,
    /// The steps, in order.
    pub steps: Vec<PlannedStep>,
    /// Bytes of intermediate results.
    pub arena_bytes: usize,
    /// The result buffers.
    pub owned: Vec<Owned>,
    /// For each result buffer, whether the step that stores it takes long.
    long: Vec<bool>,
    pub(super) submissions: Vec<Submission>,
    outputs: Vec<(Allocation, Layout)>,
    pub(super) leaf_element_sizes: Vec<usize>,
    /// Which numbers of the graph are leaves.
    pub(super) slots: Slots,
}

/// What the caller knows about a leaf.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    /// Extents and strides.
    pub(super) layout: Layout,
    /// True if its data may be overwritten once the plan has read it.
    pub(super) donatable: bool,
}

/// Makes the plan of a graph, some of whose leaves are the numbers of `slots`.
pub(super) fn plan(ir: Ir, leaves: &[Leaf], slots: Slots, device: Device) -> Result<Plan> {
    profile::end_recording();
    let _phase = profile::phase(Phase::Planning);
    let ir = slots.store_whole(rewrite(ir, device)?);
    let ir = keep_channels_last(ir, device.backend().target());
    let layouts: Vec<Layout> = leaves.iter().map(|l| Layout { offset: 0, ..l.layout.clone() }).collect();
    let backend = device.backend();
    let family = compile::family(&ir);
    let (ir, answers) = lay_out(ir, &layouts, device);
    let epilogue = |node: &IrNode| backend.epilogue(node);
    let donatable = |slot: usize| leaves.get(slot).is_some_and(|leaf| leaf.donatable);
    let limits = Limits {
        binding_limit: backend.binding_limit(),
        epilogue: &epilogue,
        donatable: &donatable,
        answers: &answers,
    };
    let grouping = group::group(&ir, &layouts, limits)?;
    let by_id: FastMap<Id, Layout> = ir.leaves.iter().copied().zip(layouts).collect();
    let mut pieces = Vec::with_capacity(grouping.groups.len());
    for (id, group) in grouping.groups.iter().enumerate() {
        interrupt::check()?;
        pieces.push(match group.library {
            Some(node) => library(&ir, &grouping, id as u32, node, &by_id, &answers)?,
            None => {
                let Built { kernel, parameters } = build::build(&ir, &grouping, id as u32, &by_id)?;
                let written = kernel.parameters.iter().map(|p| p.written).collect();
                let offsets = vec![0; parameters.len()];
                let refusal = group.refused.and_then(|node| answers.refusal(node));
                Piece { step: Step::Fused(kernel), parameters, offsets, written, refusal }
            }
        });
    }
    let outputs: Vec<(Id, Layout)> = ir.outputs.iter().map(|&o| resolve(&ir, &grouping, &by_id, o)).collect();
    let order = order::order(&ir, &pieces);
    let results: Vec<Id> = outputs.iter().map(|(base, _)| *base).collect();
    order::check(&ir, &pieces, &order, &results)?;
    let launches = order::batch(&pieces, order, device.backend().batch_limit());
    let mut allocations = Allocations::assign(&ir, &pieces, &launches, &outputs, leaves, backend);
    in_place::note(&ir, &mut pieces, &mut allocations);
    let mut wanted = Vec::with_capacity(launches.len());
    for launch in &launches {
        let stores_something = |piece: &Piece| piece.stored().any(|node| !ir.node(node).is_empty());
        let launch: SmallVec<[usize; 1]> =
            launch.iter().copied().filter(|&index| stores_something(&pieces[index])).collect();
        let step = match launch[..] {
            [] => continue,
            [index] => pieces[index].step.clone(),
            _ => Step::Batch(launch.iter().filter_map(|&i| pieces[i].step.fused().cloned()).collect()),
        };
        let parameters: Vec<PlannedParameter> =
            launch.iter().flat_map(|&index| pieces[index].planned(&ir, &allocations)).collect();
        let refusal = launch.iter().find_map(|&index| pieces[index].refusal.clone());
        wanted.push((step, parameters, refusal));
    }
    let supported: Vec<&Step> = wanted.iter().filter(|(.., r)| r.is_none()).map(|(step, ..)| step).collect();
    let phase = profile::phase(Phase::Compiling);
    let mut compiled = compile::compile(device, &supported, family).into_iter();
    let mut steps = Vec::with_capacity(wanted.len());
    for (step, parameters, refusal) in wanted {
        let attempt = match refusal {
            Some(reason) => Err(Error::Unsupported { device: device.name().to_owned(), message: reason }),
            None => {
                compiled.next().unwrap_or_else(|| Err(Error::internal("plan", "a step was not compiled")))
            }
        };
        let (executable, placement) = placement::place(device, &step, &parameters, attempt)?;
        steps.push(PlannedStep { step, parameters, placement, executable, summary: OnceLock::new() });
    }
    drop(phase);
    let outputs = outputs.into_iter().map(|(base, layout)| (allocations.of[&base], layout)).collect();
    let leaf_element_sizes = ir.leaves.iter().map(|&l| ir.node(l).dtype.size()).collect();
    let Allocations { mut owned, arena_bytes, .. } = allocations;
    in_place::without_whole(backend, &steps, &mut owned);
    let submissions = submission::group(&steps, device);
    let mut long = vec![false; owned.len()];
    steps
        .iter()
        .filter(|step| step.is_long())
        .flat_map(PlannedStep::stores)
        .for_each(|index| long[index] = true);
    Ok(Plan { device, steps, arena_bytes, owned, long, submissions, outputs, leaf_element_sizes, slots })
}

impl PlannedStep {
    /// Returns the result buffers that it writes.
    pub(super) fn stores(&self) -> impl Iterator<Item = usize> {
        self.parameters.iter().filter(|p| p.written).filter_map(|p| match p.allocation {
            Allocation::Owned(index) => Some(index),
            Allocation::Leaf(_) | Allocation::Arena(_) => None,
        })
    }

    /// Returns whether it launches a user-written kernel.
    fn is_custom(&self) -> bool {
        matches!(self.step.routine(), Some(Op::Custom(_)))
    }

    /// Returns whether it is a fused kernel that takes long and is bound by arithmetic rather than by loads and stores.
    fn is_long(&self) -> bool {
        let operations = self.step.fused().map_or(0, Fusion::operations);
        let bytes = self.parameters.iter().fold(0u64, |all, p| all.saturating_add(p.bytes as u64));
        operations >= LONG && operations >= bytes.saturating_mul(4)
    }
}

/// The number of operations that take about 0.1 s on a few cores.
const LONG: u64 = 1 << 28;

/// A step without buffers.
pub(super) struct Piece {
    pub(super) step: Step,
    pub(super) parameters: Vec<Id>,
    /// The byte offset of each parameter's data in its buffer.
    offsets: Vec<usize>,
    written: Vec<bool>,
    /// Why the device refuses it.
    pub(super) refusal: Option<String>,
}

impl Piece {
    /// Returns the nodes it stores.
    pub(super) fn stored(&self) -> impl Iterator<Item = Id> {
        self.parameters.iter().zip(&self.written).filter(|(_, written)| **written).map(|(&node, _)| node)
    }

    /// Returns the positions and nodes of the parameters that it reads.
    pub(super) fn read(&self) -> impl Iterator<Item = (usize, Id)> {
        self.parameters.iter().copied().enumerate().filter(|&(i, _)| !self.written[i])
    }

    /// Returns the position of the parameter that stores the node.
    pub(super) fn position_of_stored(&self, node: Id) -> Option<usize> {
        (0..self.parameters.len()).find(|&i| self.written[i] && self.parameters[i] == node)
    }

    fn planned<'a>(&'a self, ir: &'a Ir, all: &'a Allocations) -> impl Iterator<Item = PlannedParameter> {
        self.parameters.iter().enumerate().map(|(i, node)| PlannedParameter {
            allocation: all.of[node],
            offset: self.offsets[i],
            bytes: ir.node(*node).bytes(),
            written: self.written[i],
        })
    }
}

fn library(
    ir: &Ir,
    grouping: &Grouping,
    group: FusionGroupId,
    id: Id,
    layouts: &FastMap<Id, Layout>,
    answers: &Answers,
) -> Result<Piece> {
    let node = ir.node(id);
    let refusal = answers.refusal(id);
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
    let mut written = vec![false; parameters.len()];
    let mut epilogue = None;
    if grouping.groups[group as usize].roots.is_empty() {
        parameters.push(id);
        written.push(true);
    } else {
        // First what the epilogue reads besides the result, then what it stores.
        let built = build::build(ir, grouping, group, layouts)?;
        parameters.extend(built.parameters.iter().skip(1));
        written.extend(built.kernel.parameters.iter().skip(1).map(|p| p.written));
        epilogue = Some(built.kernel);
    }
    offsets.resize(parameters.len(), 0);
    let mut node = node.clone();
    node.inputs.clear();
    Ok(Piece {
        step: Step::Library(Library { node, operands, epilogue }),
        parameters,
        offsets,
        written,
        refusal,
    })
}

/// Returns the node whose buffer holds this node's data, and the layout in that buffer.
fn resolve(ir: &Ir, grouping: &Grouping, layouts: &FastMap<Id, Layout>, id: Id) -> (Id, Layout) {
    match &grouping.homes[id as usize] {
        Home::View(base, layout) => (*base, layout.clone()),
        _ => match layouts.get(&id) {
            Some(layout) => (id, layout.clone()),
            None => (id, Layout::contiguous(&ir.node(id).shape)),
        },
    }
}

impl Plan {
    /// Computes the outputs. All memory is allocated before anything is stored. A leaf's memory is taken over only if
    /// `may_take` allows it for the leaf's slot and only the leaf's tensor holds it. `begun` is set once a leaf is about
    /// to be overwritten.
    pub(super) fn run(
        &self,
        leaves: &[&Storage],
        may_take: &dyn Fn(usize) -> bool,
        begun: &Cell<bool>,
    ) -> Result<Vec<Storage>> {
        let (given, expected) = (leaves.len(), self.leaf_element_sizes.len());
        if given != expected {
            return Err(Error::internal("plan", format!("got {given} leaves, expected {expected}")));
        }
        ruined::check(leaves)?;
        let backend = self.device.backend();
        // Brings spilled buffers back before anything is stored, and keeps them resident.
        let _leaves = backend.hold(&mut leaves.iter().map(|leaf| &leaf.buffer))?;
        let arena = match self.arena_bytes {
            0 => None,
            bytes => Some(backend.allocate(bytes)?),
        };
        // A step that stores in place cannot be interrupted. On a watched thread, a long one therefore gets fresh
        // memory.
        let watched = interrupt::is_watched();
        let ended = |index: usize| watched && self.long[index] && backend.target().is_none();
        let mut overwritten = vec![false; self.owned.len()];
        let mut owned: SmallVec<[Buffer; 16]> = SmallVec::new();
        for (index, buffer) in self.owned.iter().enumerate() {
            // The memory is free only if the tensor and `leaves` hold its only two handles.
            let donor = buffer.donor.filter(|&slot| may_take(slot)).map(|slot| leaves[slot]).filter(|leaf| {
                leaf.layout.offset == 0
                    && Arc::strong_count(&leaf.buffer.0) <= 2
                    && leaf.buffer.size() >= buffer.bytes
            });
            let own = match donor {
                Some(_) if ended(index) => backend.allocate(buffer.bytes).ok(),
                Some(_) => None,
                None => Some(backend.allocate(buffer.bytes)?),
            };
            if let Some(leaf) = donor.filter(|_| own.is_none()) {
                overwritten[index] = true;
                owned.push(leaf.buffer.clone());
            }
            owned.extend(own);
        }
        let _results = backend.hold(&mut owned.iter().chain(&arena))?;
        let checked = memory_check::is_enabled(backend);
        let fresh = |index: &usize| checked && !overwritten[*index];
        if let Some(arena) = arena.as_ref().filter(|_| checked) {
            memory_check::fill(backend, arena, self.arena_bytes)?;
        }
        for index in (0..owned.len()).filter(fresh) {
            memory_check::fill(backend, &owned[index], self.owned[index].bytes)?;
        }
        for (index, own) in self.owned.iter().enumerate().filter(|(index, _)| !overwritten[*index]) {
            in_place::copy_rest(backend, own, leaves, &owned[index])?;
        }
        let binding = |parameter: &PlannedParameter| {
            let (buffer, start) = match parameter.allocation {
                Allocation::Leaf(slot) => {
                    let leaf = leaves[slot];
                    (leaf.buffer.clone(), leaf.layout.offset * self.leaf_element_sizes[slot])
                }
                Allocation::Arena(start) => match &arena {
                    Some(arena) => (arena.clone(), start),
                    None => return Err(Error::internal("plan", "a buffer is placed in an empty arena")),
                },
                Allocation::Owned(index) => (owned[index].clone(), 0),
            };
            Ok(Binding { buffer, offset: start + parameter.offset })
        };
        let parameters = || self.steps.iter().flat_map(|step| &step.parameters);
        let mut bindings: Vec<Binding> = Vec::with_capacity(parameters().count());
        parameters().try_for_each(|parameter| binding(parameter).map(|binding| bindings.push(binding)))?;
        let in_place = |step: &PlannedStep| step.stores().any(|index| overwritten[index]);
        let end = self.steps.iter().position(in_place).unwrap_or(self.steps.len());
        self.submit(&bindings, end, begun).inspect_err(|error| {
            // After a step had overwritten something, or in the middle of it. What was interrupted runs to its end.
            if begun.get() && !matches!(error, Error::Interrupted) {
                ruined::note((0..owned.len()).filter(|&index| overwritten[index]).map(|index| &owned[index]));
            }
        })?;
        // A custom kernel need not store every element.
        let known =
            |index: &usize| !self.steps.iter().any(|s| s.is_custom() && s.stores().any(|at| at == *index));
        for index in (0..owned.len()).filter(fresh).filter(known) {
            memory_check::check(backend, &owned[index], self.owned[index].bytes)?;
        }
        let storage = |(allocation, layout): &(Allocation, Layout)| match *allocation {
            Allocation::Leaf(slot) => {
                let leaf = leaves[slot];
                let offset = leaf.layout.offset + layout.offset;
                Ok(Storage { buffer: leaf.buffer.clone(), layout: Layout { offset, ..layout.clone() } })
            }
            Allocation::Owned(index) => Ok(Storage { buffer: owned[index].clone(), layout: layout.clone() }),
            Allocation::Arena(_) => Err(Error::internal("plan", "an output is placed in the arena")),
        };
        self.outputs.iter().map(storage).collect()
    }
}
