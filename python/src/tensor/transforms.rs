//! Gradients of several tensors, and functions of one example for a batch.

use phynexus::{
    Tensor,
    gradient::{Anomalies, detect_anomalies, detects_anomalies},
    tensor::batch::{Randomness, is_tracing as is_tracing_batch},
};
use pyo3::prelude::*;

use super::PyTensor;
use crate::{
    argument::tensors,
    error::{Failure, Result, runtime_error, value_error},
    interrupt::compute,
    placement,
};

/// Roots of a backward pass: tensors, and their gradients, which scalars need not have.
type Roots = (Vec<Tensor>, Vec<Tensor>);

fn roots(outputs: &Bound<'_, PyAny>, gradients: &[Option<Bound<'_, PyTensor>>]) -> Result<Roots> {
    let outputs = tensors(outputs)?;
    if outputs.len() != gradients.len() {
        return Err(value_error(format!("got {} tensors and {} gradients", outputs.len(), gradients.len())));
    }
    let gradient = |(output, given): (&Tensor, &Option<Bound<'_, PyTensor>>)| match given {
        Some(given) => given.get().tensor(),
        None => Ok(output.implicit_gradient()?),
    };
    let gradients = outputs.iter().zip(gradients).map(gradient).collect::<Result<_>>()?;
    Ok((outputs, gradients))
}

/// The tensors that a backward pass gives gradients to.
fn targets(inputs: &Bound<'_, PyAny>) -> Result<Vec<Tensor>> {
    let inputs = match inputs.cast::<PyTensor>() {
        Ok(only) => vec![only.get().tensor()?],
        Err(_) => tensors(inputs)?,
    };
    if inputs.is_empty() {
        return Err(runtime_error("backward: inputs is empty: pass tensors, or leave it out"));
    }
    if inputs.iter().any(|input| !input.requires_grad()) {
        return Err(runtime_error(
            "one of the inputs does not require gradients: call requires_grad_() first",
        ));
    }
    Ok(inputs)
}

/// ``backward`` that gives gradients to some tensors only.
pub(super) fn backward_towards(
    py: Python<'_>,
    output: &Tensor,
    gradient: Option<Tensor>,
    inputs: &Bound<'_, PyAny>,
    retain_graph: bool,
    create_graph: bool,
) -> Result<()> {
    let inputs = targets(inputs)?;
    compute(py, || {
        let gradient = gradient.map_or_else(|| output.implicit_gradient(), Ok)?;
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        Tensor::backward_all(&[(output, &gradient)], Some(&inputs), retain_graph, create_graph)
    })
}

/// Adds the gradients of several tensors to ``grad`` of ``inputs``, or of all leaves.
#[pyfunction]
#[pyo3(signature = (outputs, gradients, inputs=None, retain_graph=false, create_graph=false))]
pub(crate) fn backward_all(
    py: Python<'_>,
    outputs: &Bound<'_, PyAny>,
    gradients: Vec<Option<Bound<'_, PyTensor>>>,
    inputs: Option<&Bound<'_, PyAny>>,
    retain_graph: bool,
    create_graph: bool,
) -> Result<()> {
    let (outputs, gradients) = roots(outputs, &gradients)?;
    let inputs = inputs.map(targets).transpose()?;
    compute(py, || {
        let roots: Vec<(&Tensor, &Tensor)> = outputs.iter().zip(&gradients).collect();
        let inputs: Option<Vec<&Tensor>> = inputs.as_ref().map(|inputs| inputs.iter().collect());
        Tensor::backward_all(&roots, inputs.as_deref(), retain_graph, create_graph)
    })
}

/// Returns the gradients of several tensors with respect to ``inputs``: ``None`` for those that no tensor depends on.
#[pyfunction]
#[pyo3(signature = (outputs, gradients, inputs, retain_graph=false, create_graph=false))]
pub(crate) fn gradients_of_all(
    py: Python<'_>,
    outputs: &Bound<'_, PyAny>,
    gradients: Vec<Option<Bound<'_, PyTensor>>>,
    inputs: &Bound<'_, PyAny>,
    retain_graph: bool,
    create_graph: bool,
) -> Result<Vec<Option<PyTensor>>> {
    let (outputs, gradients) = roots(outputs, &gradients)?;
    let inputs = tensors(inputs)?;
    let found = compute(py, || {
        let roots: Vec<(&Tensor, &Tensor)> = outputs.iter().zip(&gradients).collect();
        Tensor::gradients_of_all(&roots, &inputs.iter().collect::<Vec<_>>(), retain_graph, create_graph)
    })?;
    Ok(found.into_iter().map(|gradient| gradient.map(PyTensor::wrap)).collect())
}

/// Computes ``function``, from a list of tensors to a list of tensors, for a batch: ``arguments`` have it as their first
/// axis. Returns each result, and whether it has the batch, then as its first axis. ``randomness`` is ``"error"``,
/// ``"same"`` or ``"different"``.
#[pyfunction]
pub(crate) fn batched(
    py: Python<'_>,
    function: &Bound<'_, PyAny>,
    arguments: &Bound<'_, PyAny>,
    size: usize,
    randomness: &str,
) -> Result<Vec<(PyTensor, bool)>> {
    let randomness = match randomness {
        "error" => Randomness::Error,
        "same" => Randomness::Same,
        "different" => Randomness::Different,
        other => {
            return Err(value_error(format!(
                "vmap: randomness must be \"error\", \"same\" or \"different\", got {other:?}"
            )));
        }
    };
    let arguments = tensors(arguments)?;
    let arguments: Vec<&Tensor> = arguments.iter().collect();
    let results = Tensor::vmap(&arguments, size, randomness, |examples| -> Result<Vec<Tensor>, Failure> {
        let examples: Vec<PyTensor> = examples.iter().cloned().map(PyTensor::wrap).collect();
        tensors(&function.call1((examples,))?)
    });
    let results = placement::behind(py, results)?;
    Ok(results.into_iter().map(|result| (PyTensor::wrap(result.tensor), result.is_batched)).collect())
}

/// Returns whether this thread traces a function that is computed for a batch.
#[pyfunction]
pub(crate) fn is_batching() -> bool {
    is_tracing_batch()
}

/// Sets whether backward passes refuse NaNs. Returns the former setting.
#[pyfunction]
pub(crate) fn refuse_anomalies(refuse: bool) -> bool {
    let former = detects_anomalies();
    detect_anomalies(if refuse { Anomalies::Refused } else { Anomalies::Ignored });
    former
}
