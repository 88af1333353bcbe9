//! Capture and replay: a function of tensors is recorded once for each combination of shapes, and then only its plan is
//! run.
//!
//! A repeated computation finds its plan in the cache, but its graph is recorded and walked every time. A [`Captured`]
//! function skips both: it knows which buffer goes into which slot of the plan. What the function makes from host data
//! inside is a constant of the recording; random numbers are drawn anew at each call, as if the function had run.

use std::{
    cell::RefCell,
    sync::{Arc, Mutex, PoisonError},
};

use smallvec::SmallVec;

use super::{
    Claim, claims,
    placement::is_strict,
    plan::{self, Leaf, Plan},
    walk::{Pending, Privacy, Walk, Walker},
};
use crate::{
    DType, Device, Error, Result, Tensor,
    device::{Buffer, Storage},
    graph::{
        composite::{MatmulPrecision, float32_matmul_precision},
        gradient,
        ir::{Id, Ir},
        op::Op,
    },
    shape::{Dims, Layout},
    tensor::{Generator, GeneratorState},
};

/// More recordings than this are not kept: each has a plan.
const CAPACITY: usize = 64;

thread_local! {
    static MODE: RefCell<Mode> = const { RefCell::new(Mode::Evaluating) };
}

/// What becomes of the operations that this thread records.
enum Mode {
    /// They are computed when somebody reads.
    Evaluating,
    /// They are a composite's body.
    Body,
    /// They are a captured function; these random numbers were drawn so far.
    Capturing(Vec<Draw>),
}

/// Random numbers drawn while a function was captured.
struct Draw {
    generator: Generator,
    /// The generator's state at that time.
    state: GeneratorState,
    /// Blocks drawn.
    blocks: u64,
    /// The leaf that holds key and counter.
    leaf: Buffer,
}

/// Puts the mode back that was there before.
struct ModeGuard(Option<Mode>);

impl ModeGuard {
    fn enter(mode: Mode) -> ModeGuard {
        ModeGuard(Some(MODE.replace(mode)))
    }
    /// Ends the mode and returns what it collected.
    fn leave(mut self) -> Mode {
        MODE.replace(self.0.take().unwrap_or(Mode::Evaluating))
    }
}

impl Drop for ModeGuard {
    fn drop(&mut self) {
        if let Some(mode) = self.0.take() {
            MODE.replace(mode);
        }
    }
}

/// Until the result is dropped, nothing that this thread records is evaluated because of its depth.
pub(crate) fn record_body() -> impl Drop {
    ModeGuard::enter(Mode::Body)
}

/// True while operations are recorded that must not be evaluated yet.
pub(crate) fn is_recording() -> bool {
    MODE.with_borrow(|mode| !matches!(mode, Mode::Evaluating))
}

/// An error if this thread is capturing a function.
pub(crate) fn refuse_reading() -> Result<()> {
    match MODE.with_borrow(|mode| matches!(mode, Mode::Capturing(_))) {
        true => Err(Error::argument(
            "capture",
            "the captured function reads the value of a tensor: return the tensor, and read it outside",
        )),
        false => Ok(()),
    }
}

/// Notes random numbers drawn on this thread, for a function that is being captured.
pub(crate) fn note_draw(generator: &Generator, state: GeneratorState, blocks: u64, leaf: &Tensor) {
    MODE.with_borrow_mut(|mode| {
        if let Mode::Capturing(draws) = mode
            && let Some(storage) = leaf.node().data()
        {
            draws.push(Draw { generator: generator.share(), state, blocks, leaf: storage.buffer });
        }
    });
}

/// A function of tensors that is recorded once and replayed.
///
/// The function gets two lists of tensors: those *given*, whose memory the results may take over (parameters and
/// optimiser state that a step replaces), and those *kept*. It must compute its results from these alone: other tensors
/// that it uses, numbers of the host and branches are taken as they were when it was recorded. It is recorded anew for
/// other shapes, dtypes or devices of its arguments, and another precision of products.
///
/// ```
/// use phynexus::{Result, Tensor, oracle::reference_device, schedule::capture::Captured};
///
/// let device = reference_device();
/// let step = Captured::new(|weights: &[Tensor], inputs: &[Tensor]| -> Result<Vec<Tensor>> {
///     Ok(vec![weights[0].sub(&inputs[0].mul_scalar(0.5)?)?])
/// });
/// let mut weights = vec![Tensor::from_slice(&[1.0f32, 2.0], &[2], device)?];
/// for _ in 0..3 {
///     weights = step.call(&mut weights, &[Tensor::from_slice(&[2.0f32, 2.0], &[2], device)?])?;
/// }
/// assert_eq!(weights[0].to_vec::<f32>()?, [-2.0, -1.0]);
/// # Ok::<(), phynexus::Error>(())
/// ```
pub struct Captured<F> {
    function: F,
    recordings: Mutex<Vec<Arc<Recording>>>,
}

impl<F, E> Captured<F>
where
    F: Fn(&[Tensor], &[Tensor]) -> Result<Vec<Tensor>, E>,
    E: From<Error>,
{
    /// Captures a function. Nothing is recorded before the first call.
    pub fn new(function: F) -> Captured<F> {
        Captured { function, recordings: Mutex::default() }
    }

    /// The function's results, computed. On success `given` is empty: its tensors are used up. On an error they are as
    /// they were.
    ///
    /// Results are data: no gradient flows through them.
    ///
    /// # Errors
    /// Those of the function and of the computation; [`Error::Argument`] if the function reads a value, copies between
    /// devices, or leaves pending tensors elsewhere than in its results.
    pub fn call(&self, given: &mut Vec<Tensor>, kept: &[Tensor]) -> Result<Vec<Tensor>, E> {
        refuse_reading()?;
        for tensor in given.iter_mut() {
            if let Some(copy) = row_major(tensor)? {
                *tensor = copy;
            }
        }
        let kept: Vec<Tensor> = kept
            .iter()
            .map(|tensor| Ok(row_major(tensor)?.unwrap_or_else(|| tensor.clone())))
            .collect::<Result<_>>()?;
        let lock = || self.recordings.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().iter().find(|recording| recording.fits(given, &kept)).cloned();
        let recording = match known {
            Some(recording) => recording,
            None => {
                let recording = Arc::new(self.record(given, &kept)?);
                let mut recordings = lock();
                let oldest = (recordings.len() >= CAPACITY).then(|| recordings.remove(0));
                recordings.push(recording.clone());
                drop(recordings);
                drop(oldest);
                recording
            }
        };
        let results = recording.replay(given, &kept)?;
        given.clear();
        Ok(results)
    }

    /// What may be taken for known of the integers of an argument: not only what these are, but also what they were in
    /// recordings before, or there would be a new one whenever a greater number comes.
    fn known_extremes(&self, number: usize, tensor: &Tensor) -> Option<(i64, i64)> {
        let mut known = tensor.extremes()?;
        for recording in self.recordings.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let before = recording.arguments.get(number).and_then(|argument| argument.extremes);
            if let Some((least, greatest)) = before {
                known = (known.0.min(least), known.1.max(greatest));
            }
        }
        Some(known)
    }

    fn record(&self, given: &[Tensor], kept: &[Tensor]) -> Result<Recording, E> {
        // Copies, so that memory tells which argument it is.
        let copy = |(number, tensor)| copied(tensor, self.known_extremes(number, tensor));
        let copies: Vec<Tensor> = given.iter().chain(kept).enumerate().map(copy).collect::<Result<_>>()?;
        let before = modes();
        let mode = ModeGuard::enter(Mode::Capturing(Vec::new()));
        let results = (self.function)(&copies[..given.len()], &copies[given.len()..]);
        let Mode::Capturing(draws) = mode.leave() else {
            return Err(Error::internal("capture", "the mode was lost").into());
        };
        // The numbers are drawn once more by the replay.
        draws.iter().rev().for_each(|draw| draw.generator.set_state(draw.state));
        let recording = Recording::new(copies, given.len(), results?, &draws)?;
        if recording.modes != before {
            let message = "another mode was chosen while the function was recorded: choose it outside";
            return Err(Error::argument("capture", message).into());
        }
        Ok(recording)
    }
}

/// The tensor's data in row-major order, if it is not already so.
fn row_major(tensor: &Tensor) -> Result<Option<Tensor>> {
    if tensor.storage()?.layout.is_contiguous() {
        return Ok(None);
    }
    let _guard = gradient::no_grad();
    Tensor::record(Op::Contiguous, tensor.dtype(), tensor.shape().into(), &[tensor])?.evaluated().map(Some)
}

/// A leaf with the same values in memory of its own, of which no more is known than of those that follow it.
fn copied(tensor: &Tensor, extremes: Option<(i64, i64)>) -> Result<Tensor> {
    let copy = Tensor::uploaded(&tensor.to_bytes()?, tensor.dtype(), tensor.shape(), tensor.device())?;
    copy.note_extremes(extremes);
    if tensor.requires_grad() { copy.with_grad() } else { Ok(copy) }
}

/// What a plan's leaf is bound to.
#[derive(Clone)]
enum Source {
    /// Data of the argument with this number, from so many elements after its first.
    Argument(usize, Layout),
    /// Data that does not change.
    Constant(Storage),
    /// Key and counter of random numbers: of which generator, and how many blocks after its first draw.
    Random(usize, u64),
}

impl Source {
    /// True if both are the same data, seen in the same way.
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
    /// A leaf.
    Leaf(Source),
}

/// An argument as it was recorded.
struct Argument {
    dtype: DType,
    shape: Dims,
    device: Device,
    /// Between what its integers were known to be, if the recording relies on that.
    extremes: Option<(i64, i64)>,
}

impl Argument {
    fn of(tensor: &Tensor) -> Argument {
        Argument {
            dtype: tensor.dtype(),
            shape: tensor.shape().into(),
            device: tensor.device(),
            extremes: tensor.extremes_relied_on(),
        }
    }

    /// True if what was recorded for this argument is right for the tensor.
    fn fits(&self, tensor: &Tensor) -> bool {
        let inside = |(least, greatest): (i64, i64)| {
            tensor.extremes().is_some_and(|(low, high)| least <= low && high <= greatest)
        };
        tensor.dtype() == self.dtype
            && tensor.shape() == &self.shape[..]
            && tensor.device() == self.device
            && self.extremes.is_none_or(inside)
    }
}

/// What a recording depends on beside its arguments: strict mode and the precision of products.
fn modes() -> (bool, MatmulPrecision) {
    (is_strict(), float32_matmul_precision())
}

/// A captured function for one combination of arguments.
struct Recording {
    arguments: Vec<Argument>,
    /// The modes in which it was recorded.
    modes: (bool, MatmulPrecision),
    given: usize,
    /// Absent if nothing is computed.
    plan: Option<Plan>,
    leaves: Vec<Source>,
    results: Vec<(Outcome, DType, Device)>,
    /// Each generator and the blocks it gives out in a call.
    generators: Vec<(Generator, u64)>,
}

impl Recording {
    fn new(copies: Vec<Tensor>, given: usize, results: Vec<Tensor>, draws: &[Draw]) -> Result<Recording> {
        let arguments = copies.iter().map(Argument::of).collect();
        let mut generators: Vec<(Generator, u64, GeneratorState)> = Vec::new();
        let mut random: Vec<(Buffer, Source)> = Vec::new();
        for draw in draws {
            let known = generators.iter().position(|(g, ..)| g.is_same(&draw.generator));
            let number = known.unwrap_or_else(|| {
                generators.push((draw.generator.share(), 0, draw.state));
                generators.len() - 1
            });
            let (_, blocks, first) = &mut generators[number];
            if first.seed != draw.state.seed || first.counter.wrapping_add(*blocks) != draw.state.counter {
                let message = "the captured function sets the state of a random generator: do that outside";
                return Err(Error::argument("capture", message));
            }
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
                (None, None) => return Err(Error::internal("capture", "a result that is not computed")),
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
            // An argument that is handed on as a result stays what it is.
            let handed_on = |source: &Source| {
                outcomes.iter().any(|(o, ..)| match (o, source) {
                    (Outcome::Leaf(Source::Argument(handed, _)), Source::Argument(number, _)) => {
                        handed == number
                    }
                    _ => false,
                })
            };
            let (ir, distinct) = merged(&pending.ir(), pending.leaves.iter().map(source));
            let leaf = |source: &Source| {
                let layout = match source {
                    Source::Argument(_, layout) => layout.clone(),
                    Source::Constant(data) => data.layout.clone(),
                    Source::Random(..) => Layout::contiguous(&[4]),
                };
                Leaf { layout, donatable: may_take(source, given) && !handed_on(source) }
            };
            plan = Some(plan::plan(&ir, &distinct.iter().map(leaf).collect::<Vec<_>>(), pending.device())?);
            leaves = distinct;
        }
        let generators = generators.into_iter().map(|(generator, blocks, _)| (generator, blocks)).collect();
        Ok(Recording { arguments, modes: modes(), given, plan, leaves, results: outcomes, generators })
    }

    fn fits(&self, given: &[Tensor], kept: &[Tensor]) -> bool {
        self.modes == modes()
            && given.len() == self.given
            && given.len() + kept.len() == self.arguments.len()
            && given.iter().chain(kept).zip(&self.arguments).all(|(tensor, argument)| argument.fits(tensor))
    }

    fn replay(&self, given: &[Tensor], kept: &[Tensor]) -> Result<Vec<Tensor>> {
        super::fork::check()?;
        let states: SmallVec<[GeneratorState; 2]> =
            self.generators.iter().map(|(generator, blocks)| generator.advance(*blocks)).collect();
        // A call that fails has drawn nothing, wherever it fails.
        self.run(given, kept, &states).inspect_err(|_| {
            let drawn = self.generators.iter().zip(&states);
            drawn.for_each(|((generator, _), state)| generator.set_state(*state));
        })
    }

    /// Computes the results with random numbers from these states on.
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
                    states[*generator].after(*blocks).leaf(device)?.storage()
                }
            }
        };
        let results = match &self.plan {
            None => Vec::new(),
            Some(plan) => {
                let leaves: Vec<Storage> =
                    self.leaves.iter().map(|source| data(source, plan.device)).collect::<Result<_>>()?;
                // A given tensor of which the caller has another handle keeps its memory.
                let unshared = |source: &Source| match source {
                    Source::Argument(number, _) => Arc::strong_count(argument(*number).node()) == 1,
                    _ => true,
                };
                let may_take =
                    |slot: usize| may_take(&self.leaves[slot], given.len()) && unshared(&self.leaves[slot]);
                plan.run(&leaves, &may_take)?
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

/// The graph with leaves of the same source as one, and their sources: an argument with a gradient and the same argument
/// without are two leaves, but one memory.
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

/// True if a leaf's memory may become a result's.
fn may_take(source: &Source, given: usize) -> bool {
    match source {
        Source::Argument(number, _) => *number < given,
        Source::Random(..) => true,
        Source::Constant(_) => false,
    }
}

/// What is pending behind the results of a captured function; it stays pending.
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
            Ok(Some(pending))
        }
        Walk::Busy => {
            Err(Error::argument("capture", "another thread computes a tensor of the captured function"))
        }
        Walk::Copies(_) => {
            let message = "the captured function copies between devices: bring its arguments there before";
            Err(Error::argument("capture", message))
        }
    }
}
