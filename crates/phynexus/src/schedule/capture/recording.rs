//! A captured function recorded for one combination of arguments: a plan, the bindings of its leaves, and the sources
//! of the results.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Draw;
use crate::{
    DType, Device, Error, Result, Tensor,
    device::{Buffer, Storage},
    graph::Reliance,
    op::{
        Op,
        composite::{MatmulPrecision, float32_matmul_precision},
        ir::{Id, Ir},
    },
    random::{Generator, GeneratorState},
    schedule::{
        Claim, claims, fork,
        placement::is_strict,
        plan::{Leaf, Plan},
        planned, random_state,
        slots::Slots,
        walk::{Pending, Privacy, Walk, Walker},
    },
    shape::{Dims, Layout},
};

/// What a leaf of the plan is bound to.
#[derive(Clone)]
enum Source {
    /// Data of the argument with this number. The layout's offset is relative to the argument's first element.
    Argument(usize, Layout),
    /// Data baked into the recording.
    Constant(Storage),
    /// Key and counter of random numbers: the generator's number, and the blocks after its first draw.
    Random(usize, u64),
}

impl Source {
    /// Returns whether both denote the same data in the same layout.
    fn is_same(&self, other: &Source) -> bool {
        match (self, other) {
            (Source::Argument(a, seen_a), Source::Argument(b, seen_b)) => a == b && seen_a == seen_b,
            (Source::Constant(a), Source::Constant(b)) => a.buffer.is_same(&b.buffer) && a.layout == b.layout,
            (Source::Random(a, after_a), Source::Random(b, after_b)) => a == b && after_a == after_b,
            _ => false,
        }
    }
}

/// Where a result comes from.
enum Outcome {
    /// The plan's result with this number.
    Computed(usize),
    /// A leaf's data.
    Leaf(Source),
}

/// An argument as recorded.
pub(super) struct Argument {
    dtype: DType,
    shape: Dims,
    device: Device,
    /// The range that its integers must lie in, if the recording relies on one.
    needed: Option<(i64, i64)>,
}

impl Argument {
    fn of((tensor, reliance): (&Tensor, &Arc<Reliance>)) -> Argument {
        Argument {
            dtype: tensor.dtype(),
            shape: tensor.shape().into(),
            device: tensor.device(),
            needed: reliance.needed(),
        }
    }

    /// Returns whether the recording is valid for this tensor as the argument.
    fn fits(&self, tensor: &Tensor) -> bool {
        tensor.dtype() == self.dtype
            && tensor.shape() == &self.shape[..]
            && tensor.device() == self.device
            && self.needed.is_none_or(|(least, greatest)| tensor.is_known_within(least, greatest))
    }
}

/// The modes that a recording depends on besides its arguments: strict mode and the matmul precision.
pub(super) fn modes() -> (bool, MatmulPrecision) {
    (is_strict(), float32_matmul_precision())
}

/// A captured function for one combination of arguments.
pub(super) struct Recording {
    arguments: Vec<Argument>,
    /// The modes during recording.
    pub(super) modes: (bool, MatmulPrecision),
    given: usize,
    /// `None` if nothing is computed.
    plan: Option<Plan>,
    leaves: Vec<Source>,
    results: Vec<(Outcome, DType, Device)>,
    /// Each generator and the blocks that a call draws from it.
    generators: Vec<(Generator, u64)>,
}

impl Recording {
    /// Builds a recording. `copies` are the copied arguments, the first `given` of which are given; `reliances` hold
    /// what the recording relies on for each. `results` are the function's results and `draws` its random numbers.
    pub(super) fn new(
        copies: &[Tensor],
        reliances: &[Arc<Reliance>],
        given: usize,
        results: Vec<Tensor>,
        draws: &[Draw],
    ) -> Result<Recording> {
        let arguments = copies.iter().zip(reliances).map(Argument::of).collect();
        let mut generators: Vec<(Generator, u64)> = Vec::new();
        let mut random: Vec<(Buffer, Source)> = Vec::new();
        for draw in draws {
            let known = generators.iter().position(|(g, _)| g.is_same(&draw.generator));
            let number = known.unwrap_or_else(|| {
                generators.push((draw.generator.share(), 0));
                generators.len() - 1
            });
            let (_, blocks) = &mut generators[number];
            random.push((draw.leaf.clone(), Source::Random(number, *blocks)));
            *blocks += draw.blocks;
        }
        let memory: Vec<Storage> = copies.iter().map(Tensor::storage).collect::<Result<_>>()?;
        let source = |data: &Storage| -> Source {
            if let Some(argument) = memory.iter().position(|m| m.buffer.is_same(&data.buffer)) {
                return Source::Argument(argument, data.layout.clone());
            }
            match random.iter().find(|(leaf, _)| leaf.is_same(&data.buffer)) {
                Some((_, drawn)) => drawn.clone(),
                None => Source::Constant(data.clone()),
            }
        };
        let pending = claim(&results)?;
        let mut outcomes = Vec::with_capacity(results.len());
        for result in &results {
            let position = pending.as_ref().and_then(|p| p.output(result.node()));
            let outcome = match (position, result.node().data()) {
                (Some(position), _) => Outcome::Computed(position),
                (None, Some(data)) => Outcome::Leaf(source(&data)),
                (None, None) => {
                    return Err(Error::internal(
                        "capture",
                        "a result has neither data nor a pending computation",
                    ));
                }
            };
            outcomes.push((outcome, result.dtype(), result.device()));
        }
        let mut leaves = Vec::new();
        let mut plan = None;
        if let Some(pending) = pending {
            if pending.outputs.iter().any(|&o| !results.iter().any(|r| pending.is(o, r.node()))) {
                let message = "the captured function keeps a pending tensor: return it as one of the results";
                return Err(Error::argument("capture", message));
            }
            // An argument that is also a result must not be overwritten.
            let handed_on = |source: &Source| {
                outcomes.iter().any(|(o, ..)| match (o, source) {
                    (Outcome::Leaf(Source::Argument(handed, _)), Source::Argument(number, _)) => {
                        handed == number
                    }
                    _ => false,
                })
            };
            let (ir, distinct) = merged(&pending.ir(&Slots::default()), pending.leaves.iter().map(source));
            let leaf = |source: &Source| {
                let layout = match source {
                    Source::Argument(_, layout) => layout.clone(),
                    Source::Constant(data) => data.layout.clone(),
                    Source::Random(..) => Layout::contiguous(&[4]),
                };
                Leaf { layout, donatable: may_take(source, given) && !handed_on(source) }
            };
            plan = Some(planned(&ir, &distinct.iter().map(leaf).collect::<Vec<_>>(), pending.device())?);
            leaves = distinct;
        }
        Ok(Recording { arguments, modes: modes(), given, plan, leaves, results: outcomes, generators })
    }

    /// Returns whether the recording is valid for these arguments.
    pub(super) fn fits(&self, given: &[Tensor], kept: &[Tensor]) -> bool {
        self.modes == modes()
            && given.len() == self.given
            && given.len() + kept.len() == self.arguments.len()
            && given.iter().chain(kept).zip(&self.arguments).all(|(tensor, argument)| argument.fits(tensor))
    }

    /// Returns the function's results for these arguments.
    pub(super) fn replay(&self, given: &[Tensor], kept: &[Tensor]) -> Result<Vec<Tensor>> {
        fork::check()?;
        let states: SmallVec<[GeneratorState; 2]> =
            self.generators.iter().map(|(generator, blocks)| generator.advance(*blocks)).collect();
        // A failed call gives its random numbers back, unless another thread has drawn since.
        self.run(given, kept, &states).inspect_err(|_| {
            let drawn = self.generators.iter().zip(&states);
            drawn.for_each(|((generator, blocks), state)| generator.give_back(*state, *blocks));
        })
    }

    /// Computes the results. `states` are the generators' states at the start of the call.
    fn run(&self, given: &[Tensor], kept: &[Tensor], states: &[GeneratorState]) -> Result<Vec<Tensor>> {
        let argument = |number: usize| given.get(number).unwrap_or_else(|| &kept[number - given.len()]);
        let data = |source: &Source, device: Device| -> Result<Storage> {
            match source {
                Source::Argument(number, layout) => {
                    let data = argument(*number).storage()?;
                    let offset = data.layout.offset + layout.offset;
                    Ok(Storage { buffer: data.buffer, layout: Layout { offset, ..layout.clone() } })
                }
                Source::Constant(data) => Ok(data.clone()),
                Source::Random(generator, blocks) => {
                    random_state(states[*generator].after(*blocks), device)?.storage()
                }
            }
        };
        let results = match &self.plan {
            None => Vec::new(),
            Some(plan) => {
                let leaves: Vec<Storage> =
                    self.leaves.iter().map(|source| data(source, plan.device)).collect::<Result<_>>()?;
                // A given tensor with another handle keeps its memory.
                let unshared = |source: &Source| match source {
                    Source::Argument(number, _) => Arc::strong_count(argument(*number).node()) == 1,
                    _ => true,
                };
                let may_take =
                    |slot: usize| may_take(&self.leaves[slot], given.len()) && unshared(&self.leaves[slot]);
                plan.run(&leaves.iter().collect::<Vec<_>>(), &may_take)?
            }
        };
        let result = |(outcome, dtype, device): &(Outcome, DType, Device)| {
            let data = match outcome {
                Outcome::Computed(position) => results[*position].clone(),
                Outcome::Leaf(source) => data(source, *device)?,
            };
            Ok(Tensor::from_storage(*device, *dtype, data))
        };
        self.results.iter().map(result).collect()
    }
}

/// Merges leaves with the same source, and returns the graph and the distinct sources. An argument with and without a
/// gradient makes two leaves that share memory.
fn merged(ir: &Ir, sources: impl Iterator<Item = Source>) -> (Ir, Vec<Source>) {
    let mut merged = Ir::default();
    let mut renamed: Vec<Id> = Vec::with_capacity(ir.nodes.len());
    let mut distinct: Vec<Source> = Vec::new();
    let mut sources = sources;
    for node in &ir.nodes {
        let source = if node.op == Op::Buffer { sources.next() } else { None };
        if let Some(source) = source {
            if let Some(known) = distinct.iter().position(|d| d.is_same(&source)) {
                renamed.push(merged.leaves[known]);
                continue;
            }
            distinct.push(source);
        }
        let inputs = node.inputs.iter().map(|&i| renamed[i as usize]);
        renamed.push(merged.push(node.op.clone(), node.dtype, node.shape.clone(), inputs));
    }
    merged.outputs = ir.outputs.iter().map(|&o| renamed[o as usize]).collect();
    (merged, distinct)
}

/// Returns whether a result may take over the leaf's memory.
fn may_take(source: &Source, given: usize) -> bool {
    match source {
        Source::Argument(number, _) => *number < given,
        Source::Random(..) => true,
        Source::Constant(_) => false,
    }
}

/// Finds the pending graph of a captured function's results. Its nodes stay pending.
fn claim(results: &[Tensor]) -> Result<Option<Pending>> {
    let roots: Vec<&Tensor> = results.iter().collect();
    let mut walker = Walker::default();
    let mut epoch = claims();
    let walk = walker.walk(&roots, &[], Privacy::Private, &mut epoch);
    drop(epoch);
    match walk? {
        Walk::Done => Ok(None),
        Walk::Claimed(pending) => {
            drop(Claim(&pending));
            Ok(Some(*pending))
        }
        Walk::Busy => {
            Err(Error::argument("capture", "another thread is computing a tensor of the captured function"))
        }
        Walk::Copies(_) => {
            let message = "the captured function copies between devices: copy its arguments before the call";
            Err(Error::argument("capture", message))
        }
    }
}
