//! Checkpoints: everything that a run needs to continue bit for bit, in one safetensors file.

use std::{collections::BTreeMap, path::Path};

use phynexus::{Device, Tensor};
use serde::{Deserialize, Serialize};

use super::History;
use crate::{
    Error, Result,
    data::HostArray,
    error::Location,
    io::safetensors::{self, NamedArrays},
    nn::Module,
    optim::Optimizer,
};

/// The progress of a run, without tensors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Finished epochs.
    pub epochs_done: usize,
    /// Finished batches of the epoch under way.
    pub batches_done: usize,
    /// The sum over those batches of the loss times the number of rows.
    pub loss_sum: f64,
    /// The number of correctly classified rows of those batches.
    pub correct: u64,
    /// The number of rows of those batches.
    pub rows: u64,
    /// Optimiser steps.
    pub steps: u64,
    /// The current learning rate.
    pub learning_rate: f64,
    /// Seconds spent on the epoch under way.
    pub seconds: f64,
    /// The run's random generator: its seed and counter.
    pub generator: (u64, u64),
    /// The default random generator, which layers without their own generator use.
    pub default_generator: (u64, u64),
    /// The lowest validation loss so far (training loss without validation).
    pub best: Option<f64>,
    /// Epochs since then.
    pub waited: usize,
    /// The measurements so far.
    pub history: History,
    /// The caller's settings of the run, which must be the same when it is resumed.
    pub settings: serde_json::Value,
}

const PROGRESS: &str = "neurenix.progress";
const MODEL: &str = "model.";
const OPTIMIZER: &str = "optimizer.";
const BEST: &str = "best.";

/// Named tensors as host arrays, with `prefix` before each name.
pub fn to_arrays(state: &BTreeMap<String, Tensor>, prefix: &str) -> Result<BTreeMap<String, HostArray>> {
    let array = |(name, tensor): (&String, &Tensor)| {
        let array = HostArray::from_bytes(tensor.dtype(), tensor.shape(), tensor.to_bytes()?)?;
        Ok((format!("{prefix}{name}"), array))
    };
    state.iter().map(array).collect()
}

/// The host arrays whose names begin with `prefix`, as tensors named without it.
pub fn to_tensors(
    arrays: &BTreeMap<String, HostArray>,
    prefix: &str,
    device: Device,
) -> Result<BTreeMap<String, Tensor>> {
    let tensor = |(name, array): (&String, &HostArray)| {
        let name = name.strip_prefix(prefix)?;
        let tensor = Tensor::from_bytes(array.bytes(), array.dtype(), array.shape(), device);
        Some(tensor.map(|t| (name.to_owned(), t)).map_err(Error::from))
    };
    arrays.iter().filter_map(tensor).collect()
}

/// Writes a checkpoint, with `best`, the model's state after its best epoch, if it was kept. An existing file is replaced only
/// when the new one is complete.
pub fn save_checkpoint(
    path: &Path,
    model: &dyn Module,
    optimizer: &Optimizer,
    progress: &Progress,
    best: Option<&BTreeMap<String, Tensor>>,
) -> Result<()> {
    let mut arrays = to_arrays(&model.state(), MODEL)?;
    arrays.extend(to_arrays(&optimizer.state()?, OPTIMIZER)?);
    if let Some(best) = best {
        arrays.extend(to_arrays(best, BEST)?);
    }
    let text = serde_json::to_string(progress).map_err(|e| Error::data("checkpoint", e.to_string()))?;
    let metadata = BTreeMap::from([(PROGRESS.to_owned(), text)]);
    safetensors::save(path, &NamedArrays { arrays, metadata })
}

/// A checkpoint in memory; [`Checkpoint::restore`] puts it into a model and an optimiser.
pub struct Checkpoint {
    /// The progress of the run.
    pub progress: Progress,
    /// The model's state after the best epoch, if it was kept.
    pub best: Option<BTreeMap<String, Tensor>>,
    model: BTreeMap<String, Tensor>,
    optimizer: BTreeMap<String, Tensor>,
}

/// Reads a checkpoint.
///
/// # Errors
/// If the file cannot be read, is truncated or corrupt, or is not a checkpoint.
pub fn read_checkpoint(path: &Path, device: Device) -> Result<Checkpoint> {
    let contents = safetensors::load(path)?;
    let invalid = |message: String| Error::format(path, "checkpoint", Location::Whole, message);
    let text = contents.metadata.get(PROGRESS).ok_or_else(|| {
        invalid(
            "it has no training progress, so it is a model file: use it with predict, or start a new run"
                .to_owned(),
        )
    })?;
    let progress: Progress =
        serde_json::from_str(text).map_err(|e| invalid(format!("its progress cannot be read: {e}")))?;
    let best = to_tensors(&contents.arrays, BEST, device)?;
    Ok(Checkpoint {
        progress,
        best: (!best.is_empty()).then_some(best),
        model: to_tensors(&contents.arrays, MODEL, device)?,
        optimizer: to_tensors(&contents.arrays, OPTIMIZER, device)?,
    })
}

impl Checkpoint {
    /// Puts the state into a model and an optimiser of the same structure. Nothing changes unless everything fits.
    pub fn restore(self, model: &dyn Module, optimizer: &mut Optimizer) -> Result<Progress> {
        let state = optimizer.fit_state(&self.optimizer)?;
        let rate = optimizer.learning_rate();
        optimizer.set_learning_rate(self.progress.learning_rate)?;
        if let Err(error) = model.load_state(&self.model) {
            optimizer.set_learning_rate(rate)?;
            return Err(error);
        }
        optimizer.put_state(state);
        Ok(self.progress)
    }
}

/// Writes a model's parameters and buffers as safetensors, with metadata.
pub fn save_model(path: &Path, model: &dyn Module, metadata: BTreeMap<String, String>) -> Result<()> {
    safetensors::save(path, &NamedArrays { arrays: to_arrays(&model.state(), "")?, metadata })
}

/// Loads parameters and buffers that [`save_model`], or PyTorch with the same names, has written.
pub fn load_model(path: &Path, model: &dyn Module, device: Device) -> Result<()> {
    let contents = safetensors::load(path)?;
    model.load_state(&to_tensors(&contents.arrays, "", device)?)
}
