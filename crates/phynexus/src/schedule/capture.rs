//! Capture and replay: a function of tensors is recorded once per combination of shapes. Later calls only run its plan.
//!
//! A repeated computation finds its plan in the cache, but its graph is recorded and walked every time. A [`Captured`]
//! function skips both, because it knows which buffer goes into which slot of the plan. Host data used inside the
//! function is baked into the recording. Random numbers are drawn again at each call, as if the function had run. A
//! generator created inside the function continues its sequence from call to call.

mod promise;
mod recording;

use std::{
    cell::RefCell,
    sync::{Arc, Mutex, PoisonError},
};

pub use self::{promise::Promises, recording::Recording};
use crate::{
    Error, Result, Tensor,
    device::{Buffer, Storage},
    graph::Reliance,
    op::{Op, gradient},
    random::Generator,
    schedule::batching,
    shape::Layout,
};

/// The maximum number of recordings kept. Each one has a plan.
const CAPACITY: usize = 64;

thread_local! {
    static MODE: RefCell<Mode> = const { RefCell::new(Mode::Evaluating) };
}

/// What happens to the operations that this thread records.
enum Mode {
    /// They are computed when they are read.
    Evaluating,
    /// They belong to a captured function; `Notes` has what is known of it so far.
    Capturing(Notes),
}

/// Side effects noted while a function is captured.
#[derive(Default)]
struct Notes {
    arguments: Vec<Adopted>,
    draws: Vec<Draw>,
    /// Whether the function set the state of a random generator.
    seeds: bool,
    /// Tensors to compute although nothing may read them.
    effects: Vec<Tensor>,
}

/// A tensor that became an argument of the captured function.
struct Adopted {
    /// The leaf that the function computes with. It has memory of its own, which identifies the argument.
    leaf: Tensor,
    /// What the recording relies on.
    reliance: Arc<Reliance>,
}

/// Random numbers drawn while a function was captured.
struct Draw {
    generator: Generator,
    /// The number of blocks drawn.
    blocks: u64,
    /// The leaf that holds the key and the counter.
    leaf: Buffer,
}

/// Restores the previous mode when dropped.
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

/// Returns whether this thread is capturing a function, whose random numbers are drawn at replay.
pub fn is_capturing() -> bool {
    MODE.with_borrow(|mode| !matches!(mode, Mode::Evaluating))
}

/// Returns whether this thread is capturing a function, or tracing one for a batch: its operations must not be evaluated
/// yet.
pub fn is_recording() -> bool {
    is_capturing() || batching::is_tracing()
}

/// Fails if this thread is capturing a function, or tracing one for a batch. Call this before exposing a tensor's memory,
/// as reading does.
///
/// # Errors
/// [`Error::Argument`] while a function is captured or traced.
pub fn refuse_reading() -> Result<()> {
    if batching::is_tracing() {
        return Err(Error::argument(
            "vmap",
            "the function reads the value of a tensor, as if, while, item() and print do: it is called once for all \
             examples. Select with where(), or read the value outside",
        ));
    }
    match is_capturing() {
        true => Err(Error::argument(
            "capture",
            "the captured function reads the value of a tensor: return the tensor, and read it outside",
        )),
        false => Ok(()),
    }
}

/// Does work that is no part of the function that this thread captures: it may compute.
pub fn outside<T>(work: impl FnOnce() -> T) -> T {
    let mode = ModeGuard::enter(Mode::Evaluating);
    let result = work();
    drop(mode);
    result
}

/// Makes a tensor an argument of the function that this thread captures, and returns the leaf that the function must
/// use instead. A replay takes its arguments in the order of these calls. Outside a captured function, this returns the
/// tensor itself.
///
/// # Errors
/// If the device has no memory for the leaf.
pub fn adopt(tensor: &Tensor) -> Result<Tensor> {
    if !is_capturing() {
        return Ok(tensor.clone());
    }
    let (leaf, reliance) = outside(|| stand_in(tensor))?;
    let adopted = Adopted { leaf: leaf.clone(), reliance };
    MODE.with_borrow_mut(|mode| {
        if let Mode::Capturing(notes) = mode {
            notes.arguments.push(adopted);
        }
    });
    Ok(leaf)
}

/// Notes a tensor that the function which this thread captures must compute even if nothing reads it, such as a
/// collective, in which other processes take part.
pub fn note_effect(tensor: &Tensor) {
    MODE.with_borrow_mut(|mode| {
        if let Mode::Capturing(notes) = mode {
            notes.effects.push(tensor.clone());
        }
    });
}

/// Notes random numbers drawn on this thread, if it is capturing a function.
pub(crate) fn note_draw(generator: &Generator, blocks: u64, leaf: &Tensor) {
    MODE.with_borrow_mut(|mode| {
        if let Mode::Capturing(notes) = mode
            && let Some(storage) = leaf.node().data()
        {
            notes.draws.push(Draw { generator: generator.share(), blocks, leaf: storage.buffer });
        }
    });
}

/// How often the function that this thread is capturing has drawn random numbers so far.
pub fn draws() -> usize {
    MODE.with_borrow(|mode| match mode {
        Mode::Capturing(notes) => notes.draws.len(),
        Mode::Evaluating => 0,
    })
}

/// Notes that this thread sets the state of a random generator. A replay would not repeat that.
pub(crate) fn note_seeding() {
    MODE.with_borrow_mut(|mode| {
        if let Mode::Capturing(notes) = mode {
            notes.seeds = true;
        }
    });
}

/// A function of tensors that is recorded once and replayed.
///
/// The function takes two lists of tensors, *given* and *kept*. Results may take over the memory of *given* tensors,
/// such as parameters and optimiser state that a step replaces. The function must compute its results from these two
/// lists alone. Other tensors, host numbers and branches are baked into the recording. The function is recorded again
/// for new shapes, dtypes or devices of its arguments, and when strict mode or the matmul precision changes.
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

    /// Calls the function and returns its computed results. On success `given` is empty, because its tensors are
    /// consumed. On an error they are unchanged.
    ///
    /// Results are plain data: no gradient flows through them.
    ///
    /// # Errors
    /// Errors of the function and of the computation. [`Error::Argument`] if the function reads a value, copies between
    /// devices, sets the state of a random generator, changes the mode, or keeps a pending tensor that is not one of
    /// its results.
    pub fn call(&self, given: &mut Vec<Tensor>, kept: &[Tensor]) -> Result<Vec<Tensor>, E> {
        refuse_reading()?;
        let count = given.len();
        // Moved, so that a given tensor has no other handle here.
        let mut arguments = std::mem::take(given);
        arguments.extend_from_slice(kept);
        let results = self.call_with(&mut arguments, count);
        if results.is_err() {
            arguments.truncate(count);
            *given = arguments;
        }
        results
    }

    fn call_with(&self, arguments: &mut [Tensor], given: usize) -> Result<Vec<Tensor>, E> {
        for argument in arguments.iter_mut() {
            if let Some(copy) = row_major(argument)? {
                *argument = copy;
            }
        }
        let fits = |recording: &&Arc<Recording>| recording.given() == given && recording.fits(arguments);
        let lock = || self.recordings.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().iter().find(fits).cloned();
        let recording = match known {
            Some(recording) => recording,
            None => {
                let recording = Arc::new(Recording::of(|| {
                    let leaves = arguments.iter().map(adopt).collect::<Result<Vec<Tensor>>>()?;
                    let results = (self.function)(&leaves[..given], &leaves[given..])?;
                    Ok::<_, E>((results, (0..arguments.len()).map(|argument| argument < given).collect()))
                })?);
                let mut recordings = lock();
                let oldest = (recordings.len() >= CAPACITY).then(|| recordings.remove(0));
                recordings.push(recording.clone());
                drop(recordings);
                drop(oldest);
                recording
            }
        };
        Ok(recording.replay(arguments)?)
    }
}

/// Returns the tensor computed and in row-major order, as [`Recording::replay`] needs it.
///
/// # Errors
/// Those of the computation.
pub fn in_rows(tensor: &Tensor) -> Result<Tensor> {
    Ok(row_major(tensor)?.unwrap_or_else(|| tensor.clone()))
}

/// Returns whether the tensor is computed and in row-major order.
pub fn is_in_rows(tensor: &Tensor) -> bool {
    tensor.node().is_in_rows()
}

/// Returns the tensor in row-major order, or `None` if it already is.
fn row_major(tensor: &Tensor) -> Result<Option<Tensor>> {
    if is_in_rows(tensor) || tensor.storage()?.layout.is_contiguous() {
        return Ok(None);
    }
    let _guard = gradient::no_grad();
    Tensor::record(Op::Contiguous, tensor.dtype(), tensor.shape().into(), &[tensor])?.evaluated().map(Some)
}

/// Returns a leaf that stands for a tensor, and a record of the value bounds that the recording relies on. It has
/// memory of its own, whose contents nothing reads: a captured function computes nothing.
fn stand_in(tensor: &Tensor) -> Result<(Tensor, Arc<Reliance>)> {
    let (device, dtype, layout) = (tensor.device(), tensor.dtype(), Layout::contiguous(tensor.shape()));
    let buffer = device.backend().allocate(layout.len() * dtype.size())?;
    let leaf = Tensor::from_storage(device, dtype, Storage { buffer, layout });
    let leaf = if tensor.requires_grad() { leaf.with_grad()? } else { leaf };
    let reliance = Arc::default();
    leaf.note_argument(tensor, Arc::clone(&reliance));
    Ok((leaf, reliance))
}
