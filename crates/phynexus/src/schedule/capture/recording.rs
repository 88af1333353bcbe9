//! A captured function recorded for one combination of arguments: a plan, the bindings of its leaves, and the sources
//! of the results.

use std::cell::Cell;

use smallvec::SmallVec;

use super::{Adopted, Mode, ModeGuard, Notes, Promises, refuse_reading};
use crate::{
    DType, Device, Error, Result, Tensor,
    device::{Buffer, Storage},
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

/// A result as recorded.
pub(super) struct Made {
    outcome: Outcome,
    pub(super) dtype: DType,
    pub(super) shape: Dims,
    pub(super) device: Device,
}

/// An argument as recorded.
struct Argument {
    dtype: DType,
    shape: Dims,
    device: Device,
    /// The range that its integers must lie in, if the recording relies on one.
    needed: Option<(i64, i64)>,
    /// Whether results may take over its memory.
    given: bool,
}

impl Argument {
    /// Returns whether the recording is valid for this tensor as the argument.
    fn fits(&self, tensor: &Tensor) -> bool {
        tensor.dtype() == self.dtype
            && tensor.shape() == &self.shape[..]
            && tensor.device() == self.device
            && self.needed.is_none_or(|(least, greatest)| tensor.is_known_within(least, greatest))
    }
}

/// The modes that a recording depends on besides its arguments: strict mode and the matmul precision.
fn modes() -> (bool, MatmulPrecision) {
    (is_strict(), float32_matmul_precision())
}

/// A captured function for one combination of arguments: what [`Captured`](super::Captured) keeps several of.
pub struct Recording {
    arguments: Vec<Argument>,
    /// The modes during recording.
    modes: (bool, MatmulPrecision),
    /// `None` if nothing is computed.
    plan: Option<Plan>,
    leaves: Vec<Source>,
    pub(super) results: Vec<Made>,
    /// Each generator and the blocks that a call draws from it.
    generators: Vec<(Generator, u64)>,
}

impl Recording {
    /// Records a function without computing anything. Every tensor that it reads and that may differ at a replay must
    /// go through [`adopt`](super::adopt). The function returns its results and, for each adopted tensor, whether a
    /// result may take over its memory.
    ///
    /// # Errors
    /// Errors of the function. [`Error::Argument`] as for [`Captured::call`](super::Captured::call).
    pub fn of<E: From<Error>>(
        function: impl FnOnce() -> Result<(Vec<Tensor>, Vec<bool>), E>,
    ) -> Result<Recording, E> {
        refuse_reading()?;
        let before = modes();
        let mode = ModeGuard::enter(Mode::Capturing(Notes::default()));
        let results = function();
        let Mode::Capturing(notes) = mode.leave() else {
            return Err(Error::internal("capture", "the mode was lost").into());
        };
        let (results, given) = results?;
        if notes.seeds {
            let message =
                "the captured function sets the state of a random generator: set it outside the function";
            return Err(Error::argument("capture", message).into());
        }
        let recording = Recording::new(&notes, &given, results)?;
        if recording.modes != before {
            let message =
                "the strict mode or matmul precision changed during recording: set it outside the function";
            return Err(Error::argument("capture", message).into());
        }
        Ok(recording)
    }

    fn new(notes: &Notes, given: &[bool], results: Vec<Tensor>) -> Result<Recording> {
        if notes.arguments.len() != given.len() {
            let (adopted, known) = (notes.arguments.len(), given.len());
            let message = format!("{adopted} tensors were adopted, the function knows of {known}");
            return Err(Error::internal("capture", message));
        }
        let argument = |(adopted, &given): (&Adopted, &bool)| Argument {
            dtype: adopted.leaf.dtype(),
            shape: adopted.leaf.shape().into(),
            device: adopted.leaf.device(),
            needed: adopted.reliance.needed(),
            given,
        };
        let arguments: Vec<Argument> = notes.arguments.iter().zip(given).map(argument).collect();
        let is_given = |source: &Source| match source {
            Source::Argument(number, _) => given[*number],
            Source::Random(..) => true,
            Source::Constant(_) => false,
        };
        let mut generators: Vec<(Generator, u64)> = Vec::new();
        let mut random: Vec<(Buffer, Source)> = Vec::new();
        for draw in &notes.draws {
            let known = generators.iter().position(|(g, _)| g.is_same(&draw.generator));
            let number = known.unwrap_or_else(|| {
                generators.push((draw.generator.share(), 0));
                generators.len() - 1
            });
            let (_, blocks) = &mut generators[number];
            random.push((draw.leaf.clone(), Source::Random(number, *blocks)));
            *blocks += draw.blocks;
        }
        let memory: Vec<Storage> =
            notes.arguments.iter().map(|adopted| adopted.leaf.storage()).collect::<Result<_>>()?;
        let source = |data: &Storage| -> Source {
            if let Some(argument) = memory.iter().position(|m| m.buffer.is_same(&data.buffer)) {
                return Source::Argument(argument, data.layout.clone());
            }
            match random.iter().find(|(leaf, _)| leaf.is_same(&data.buffer)) {
                Some((_, drawn)) => drawn.clone(),
                None => Source::Constant(data.clone()),
            }
        };
        let roots: Vec<&Tensor> = results.iter().chain(&notes.effects).collect();
        let pending = claim(&roots)?;
        let mut outcomes: Vec<Made> = Vec::with_capacity(results.len());
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
            let (dtype, shape, device) = (result.dtype(), result.shape().into(), result.device());
            outcomes.push(Made { outcome, dtype, shape, device });
        }
        let mut leaves = Vec::new();
        let mut plan = None;
        if let Some(pending) = pending {
            if pending.outputs.iter().any(|&o| !roots.iter().any(|r| pending.is(o, r.node()))) {
                let message = "the captured function keeps a pending tensor: return it as one of the results";
                return Err(Error::argument("capture", message));
            }
            // An argument that is also a result must not be overwritten.
            let handed_on = |source: &Source| {
                outcomes.iter().any(|made| match (&made.outcome, source) {
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
                Leaf { layout, donatable: is_given(source) && !handed_on(source) }
            };
            plan = Some(planned(&ir, &distinct.iter().map(leaf).collect::<Vec<_>>(), pending.device())?);
            leaves = distinct;
        }
        Ok(Recording { arguments, modes: modes(), plan, leaves, results: outcomes, generators })
    }

    /// Returns how many arguments results may take over.
    pub(super) fn given(&self) -> usize {
        self.arguments.iter().filter(|argument| argument.given).count()
    }

    /// Returns whether the recording is valid for these arguments.
    pub fn fits(&self, arguments: &[Tensor]) -> bool {
        self.modes == modes()
            && arguments.len() == self.arguments.len()
            && arguments.iter().zip(&self.arguments).all(|(tensor, argument)| argument.fits(tensor))
    }

    /// Returns the function's results for these arguments, which are row-major. Results take over the memory of a given
    /// argument if `arguments` has the only handle to it.
    ///
    /// # Errors
    /// Those of the computation.
    pub fn replay(&self, arguments: &[Tensor]) -> Result<Vec<Tensor>> {
        let data = self.run(arguments)?.into_iter().zip(&self.results);
        Ok(data.map(|(data, made)| Tensor::from_storage(made.device, made.dtype, data)).collect())
    }

    /// Like [`Recording::replay`], but sets the results of [`Recording::promise`].
    ///
    /// # Errors
    /// As for `replay`. The results are then not set.
    pub fn keep(&self, arguments: &[Tensor], promises: &Promises) -> Result<()> {
        promises.keep(self.run(arguments)?);
        Ok(())
    }

    fn run(&self, arguments: &[Tensor]) -> Result<Vec<Storage>> {
        fork::check()?;
        let states: SmallVec<[GeneratorState; 2]> =
            self.generators.iter().map(|(generator, blocks)| generator.advance(*blocks)).collect();
        // A failed call gives its random numbers back, unless another thread has drawn since.
        self.run_with(arguments, &states).inspect_err(|_| {
            let drawn = self.generators.iter().zip(&states);
            drawn.for_each(|((generator, blocks), state)| generator.give_back(*state, *blocks));
        })
    }

    /// Computes the results. `states` are the generators' states at the start of the call.
    fn run_with(&self, arguments: &[Tensor], states: &[GeneratorState]) -> Result<Vec<Storage>> {
        let data = |source: &Source, device: Device| -> Result<Storage> {
            match source {
                Source::Argument(number, layout) => {
                    let argument = &arguments[*number];
                    let mut data = argument.node().data().map_or_else(|| argument.storage(), Ok)?;
                    let offset = data.layout.offset + layout.offset;
                    data.layout.clone_from(layout);
                    data.layout.offset = offset;
                    Ok(data)
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
                let mut leaves: Vec<Storage> = Vec::with_capacity(self.leaves.len());
                for source in &self.leaves {
                    leaves.push(data(source, plan.device)?);
                }
                // A given tensor with another handle keeps its memory.
                let may_take = |slot: usize| match &self.leaves[slot] {
                    Source::Argument(number, _) => {
                        self.arguments[*number].given && arguments[*number].is_only_handle()
                    }
                    Source::Random(..) => true,
                    Source::Constant(_) => false,
                };
                plan.run(&leaves.iter().collect::<Vec<_>>(), &may_take, &Cell::new(false))?
            }
        };
        let result = |made: &Made| match &made.outcome {
            Outcome::Computed(position) => Ok(results[*position].clone()),
            Outcome::Leaf(source) => data(source, made.device),
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

/// Finds the pending graph of a captured function's results. Its nodes stay pending.
fn claim(roots: &[&Tensor]) -> Result<Option<Pending>> {
    let mut walker = Walker::default();
    let mut epoch = claims();
    let walk = walker.walk(roots, &[], Privacy::Private, &mut epoch);
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
