//! Process groups, collectives and data parallelism.

use std::{sync::Arc, time::Duration};

use neurenix::{
    distributed::{self, DataParallel, DataParallelOptions, InitOptions},
    nn::Parameter,
};
use phynexus::{
    DType,
    distributed::Group,
    op::{CollectiveKind, Combine, Loss},
    schedule::capture,
};
use pyo3::{prelude::*, types::PyBytes};

use crate::{
    dtype::PyDType,
    error::{Result, value_error},
    interrupt::compute,
    tensor::PyTensor,
};

/// Processes that compute together, as one of them sees it.
#[pyclass(name = "ProcessGroup", module = "neurenix.distributed", frozen)]
pub(crate) struct PyProcessGroup(Arc<Group>);

#[pymethods]
impl PyProcessGroup {
    /// Returns this process's rank in the group.
    fn rank(&self) -> usize {
        self.0.rank()
    }
    /// Returns the number of members.
    fn size(&self) -> usize {
        self.0.size()
    }
    /// Returns the name of what carries bytes between the members on the host: ``"tcp"`` or ``"mpi"``.
    fn name(&self) -> &'static str {
        self.0.transport().name()
    }
    /// The members' ranks in the whole job, in the group's order.
    #[getter]
    fn ranks(&self) -> Vec<usize> {
        self.0.ranks().to_vec()
    }
    /// A group of some members, given by their ranks in this group, or ``None`` if this process is not in it.
    fn _subgroup(&self, ranks: Vec<usize>) -> Result<Option<PyProcessGroup>> {
        Ok(self.0.subgroup(&ranks)?.map(PyProcessGroup))
    }
    /// Waits until every member has called it.
    fn _barrier(&self, py: Python<'_>) -> Result<()> {
        capture::refuse_reading()?;
        compute(py, || self.0.transport().barrier())
    }
    /// The bytes of every member, in order. They may be of different lengths.
    fn _all_gather_bytes<'py>(&self, py: Python<'py>, own: &[u8]) -> Result<Vec<Bound<'py, PyBytes>>> {
        let all = compute(py, || gather_bytes(&self.0, own))?;
        Ok(all.iter().map(|bytes| PyBytes::new(py, bytes)).collect())
    }
    /// Closes the group. Later uses are errors.
    fn _close(&self) {
        self.0.close();
    }
    fn __repr__(&self) -> String {
        format!("<ProcessGroup: rank {} of {}, by {}>", self.0.rank(), self.0.size(), self.name())
    }
}

fn gather_bytes(group: &Group, own: &[u8]) -> phynexus::Result<Vec<Vec<u8>>> {
    let transport = group.transport();
    let mut lengths = vec![0; 8 * group.size()];
    transport.all_gather(&(own.len() as u64).to_le_bytes(), &mut lengths)?;
    let lengths = lengths.as_chunks().0.iter().map(|length| u64::from_le_bytes(*length) as usize);
    let lengths: Vec<usize> = lengths.collect();
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let mut padded = phynexus::host_memory::filled(0, longest)?;
    padded[..own.len()].copy_from_slice(own);
    let mut all = phynexus::host_memory::filled(0, longest * group.size())?;
    transport.all_gather(&padded, &mut all)?;
    let part = |(rank, length): (usize, usize)| all[rank * longest..][..length].to_vec();
    Ok(lengths.into_iter().enumerate().map(part).collect())
}

/// Connects the processes of the job, which a launcher has started, and returns the group of all. Without a launcher it
/// is a group of one.
#[pyfunction]
#[pyo3(signature = (backend=None, timeout=None, rank=None, world_size=None, master_addr=None, master_port=None))]
pub(crate) fn init_world(
    py: Python<'_>,
    backend: Option<&str>,
    timeout: Option<f64>,
    rank: Option<usize>,
    world_size: Option<usize>,
    master_addr: Option<String>,
    master_port: Option<u16>,
) -> Result<PyProcessGroup> {
    let mut options =
        InitOptions { rank, world_size, address: master_addr, port: master_port, ..InitOptions::default() };
    if let Some(backend) = backend {
        options.backend = backend.parse()?;
    }
    if let Some(seconds) = timeout {
        let timeout = Duration::try_from_secs_f64(seconds);
        options.timeout =
            timeout.map_err(|_| value_error(format!("timeout: {seconds} is not a number of seconds")))?;
    }
    Ok(PyProcessGroup(compute(py, || distributed::init(&options))?))
}

/// Ends the job's group.
#[pyfunction]
pub(crate) fn end_world() {
    distributed::destroy();
}

fn combination(op: &str) -> Result<Combine> {
    match op {
        "sum" => Ok(Combine::Sum),
        "product" => Ok(Combine::Prod),
        "max" => Ok(Combine::Max),
        "min" => Ok(Combine::Min),
        _ => Err(value_error(format!("there is no reduction {op:?}: use sum, product, max or min"))),
    }
}

/// A collective of a group. It is computed at once, because every rank must run the same ones in the same order,
/// except in a recorded function, or ``lazily``, when its result is read. A gathered result that is gathered ``again`` for
/// gradients is not kept. ``peer`` is a rank in the group.
#[pyfunction]
#[pyo3(signature = (tensor, kind, group, op="sum", peer=0, shared=false, again=false, lazily=false))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
pub(crate) fn collective(
    py: Python<'_>,
    tensor: &PyTensor,
    kind: &str,
    group: &PyProcessGroup,
    op: &str,
    peer: u32,
    shared: bool,
    again: bool,
    lazily: bool,
) -> Result<PyTensor> {
    let loss = if shared { Loss::Shared } else { Loss::Summed };
    let kind = match kind {
        "all_reduce" => CollectiveKind::AllReduce(combination(op)?, loss),
        "reduce_scatter" => CollectiveKind::ReduceScatter(combination(op)?),
        "all_gather" => CollectiveKind::AllGather { again },
        "all_to_all" => CollectiveKind::AllToAll,
        "broadcast" => CollectiveKind::Broadcast { root: peer },
        "reduce" => CollectiveKind::Reduce { root: peer },
        "send" => CollectiveKind::Send { to: peer },
        "receive" => CollectiveKind::Receive { from: peer },
        _ => return Err(value_error(format!("there is no collective {kind:?}"))),
    };
    let operand = tensor.tensor()?;
    let moves_nothing = !matches!(kind, CollectiveKind::Send { .. } | CollectiveKind::Receive { .. });
    if group.0.size() == 1 && moves_nothing && operand.rank() > 0 {
        return Ok(PyTensor::wrap(operand.clone()));
    }
    let result = operand.collective(kind, &group.0)?;
    match capture::is_recording() {
        // The other ranks take part, whether or not this one reads the result.
        true => capture::note_effect(&result),
        false if lazily => {}
        false => compute(py, || result.evaluate())?,
    }
    Ok(PyTensor::wrap(result))
}

/// Stores the elements of a collective's result in a tensor of another shape.
#[pyfunction]
pub(crate) fn store_result(target: &PyTensor, result: &PyTensor) -> Result<()> {
    let shape = target.tensor()?.shape().to_vec();
    target.assign(result.tensor()?.detach()?.reshape(&shape)?)
}

/// Averages the gradients of named parameters over a group, as long as it lives.
#[pyclass(name = "DataParallel", module = "neurenix._engine", frozen)]
pub(crate) struct PyDataParallel(Arc<DataParallel>);

#[pymethods]
impl PyDataParallel {
    /// Begins, and gives every rank rank 0's values. ``compression`` is the dtype in which gradients travel.
    #[new]
    fn new(
        py: Python<'_>,
        names: Vec<String>,
        parameters: Vec<PyRef<'_, PyTensor>>,
        group: &PyProcessGroup,
        bucket_bytes: usize,
        compression: Option<&PyDType>,
        find_unused: bool,
    ) -> Result<PyDataParallel> {
        let variables = parameters.iter().map(|parameter| parameter.variable().clone());
        let named: Vec<(String, Parameter)> = names.into_iter().zip(variables).collect();
        let compression: Option<DType> = compression.map(|dtype| dtype.engine()).transpose()?;
        let find_unused_setting = Some("find_unused_parameters=True");
        let options = DataParallelOptions { bucket_bytes, compression, find_unused, find_unused_setting };
        let group = &group.0;
        Ok(PyDataParallel(compute(py, || DataParallel::new(&named, group, options))?))
    }
    /// Whether backward passes leave gradients as they are, to accumulate them.
    fn set_paused(&self, paused: bool) {
        self.0.set_paused(paused);
    }
}

/// Gives every rank the values that rank 0's tensors have.
#[pyfunction]
pub(crate) fn broadcast_variables(
    py: Python<'_>,
    tensors: Vec<PyRef<'_, PyTensor>>,
    group: &PyProcessGroup,
) -> Result<()> {
    let variables: Vec<Parameter> = tensors.iter().map(|tensor| tensor.variable().clone()).collect();
    let group = &group.0;
    compute(py, || distributed::broadcast(variables.iter(), group))
}

/// Whether an MPI library is found.
#[pyfunction]
pub(crate) fn has_mpi() -> bool {
    distributed::has_mpi()
}

/// Whether NCCL is found.
#[pyfunction]
pub(crate) fn has_nccl() -> bool {
    distributed::has_nccl()
}
