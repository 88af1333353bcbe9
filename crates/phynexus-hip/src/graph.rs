//! Repeated launches as one HIP graph.
//!
//! Untested on hardware. Where the code relies on more than HIP's documentation, it relies on the sources of ROCm 5.3
//! to 6.2 (ROCm/hipamd, then ROCm/clr): a node accepts a function of a module, and copies its parameters when it is
//! created and when they are set.

use std::{ffi::c_int, ptr, sync::Arc};

use phynexus::{
    Result,
    gpu::{Addresses, LaunchGraph, Repeated, Submission},
};
use smallvec::SmallVec;

use crate::{
    context::Context,
    gpu::{HipGpu, addresses},
    library::{Graphs, Handle},
    parameters::parameters,
};

/// After this many parameter updates, a graph is replaced by a new one: the runtime keeps the memory of a graph's
/// earlier parameters until the graph is destroyed.
const PATCHES: usize = 4096;

/// The recorded launches that repeat together.
pub(crate) type Recording = Repeated<Graph>;

/// A graph of launches.
pub(crate) struct Graph {
    context: Arc<Context>,
    functions: &'static Graphs,
    graph: Handle,
    executable: Handle,
    nodes: Vec<Handle>,
    patches: usize,
}

// SAFETY: the runtime's handles may be used from any thread, and only one thread at a time has a graph.
unsafe impl Send for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        // Some releases free the parameters of launches that are still running. After a failure the handles leak, which
        // is harmless.
        if !self.executable.is_null() && self.context.synchronize().is_err() {
            return;
        }
        // SAFETY: these are the only handles, and none of their work is running.
        unsafe {
            if !self.executable.is_null() {
                (self.functions.hipGraphExecDestroy)(self.executable);
            }
            if !self.graph.is_null() {
                (self.functions.hipGraphDestroy)(self.graph);
            }
        }
    }
}

fn succeeded(code: c_int) -> Option<()> {
    (code == 0).then_some(())
}

impl LaunchGraph for Graph {
    type Driver = HipGpu;

    /// For a graph with branches, the runtime creates a stream per branch, without limit up to ROCm 6.2. Only a graph
    /// without branches is dispatched from prebuilt packets.
    const SIDE_BY_SIDE: bool = false;

    fn addresses(submission: &Submission<'_, HipGpu>) -> Addresses {
        addresses(submission)
    }

    /// The device must be current.
    fn new(gpu: &HipGpu, submissions: &[Submission<'_, HipGpu>], waits: &[Vec<usize>]) -> Option<Graph> {
        let functions = gpu.context.hip.graphs.as_ref()?;
        let (context, graph, executable) = (gpu.context.clone(), ptr::null_mut(), ptr::null_mut());
        let mut made = Graph { context, functions, graph, executable, nodes: Vec::new(), patches: 0 };
        // SAFETY: the pointer is valid for the call.
        succeeded(unsafe { (functions.hipGraphCreate)(&mut made.graph, 0) })?;
        for (submission, before) in submissions.iter().zip(waits) {
            let mut addresses = addresses(submission);
            let mut parameters = parameters(&mut addresses);
            let node = submission.module.kernel()?.node(submission.kernel, &mut parameters);
            let before: SmallVec<[Handle; 8]> = before.iter().map(|&earlier| made.nodes[earlier]).collect();
            let mut handle = ptr::null_mut();
            // SAFETY: all pointers are valid for the call, which copies their targets; the nodes are this graph's.
            let code = unsafe {
                (functions.hipGraphAddKernelNode)(
                    &mut handle,
                    made.graph,
                    before.as_ptr(),
                    before.len(),
                    &node,
                )
            };
            succeeded(code)?;
            made.nodes.push(handle);
        }
        // After a failed call, this is not always a valid executable graph.
        let mut executable = ptr::null_mut();
        let (node, log) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the graph is complete and valid; neither the failing node nor messages are requested.
        let code = unsafe { (functions.hipGraphInstantiate)(&mut executable, made.graph, node, log, 0) };
        succeeded(code)?;
        made.executable = executable;
        Some(made)
    }

    /// The device must be current.
    fn patch(&mut self, at: usize, submission: &Submission<'_, HipGpu>) -> bool {
        self.patches += 1;
        if self.patches > PATCHES {
            return false;
        }
        let mut addresses = addresses(submission);
        let mut parameters = parameters(&mut addresses);
        let Some(module) = submission.module.kernel() else { return false };
        let node = module.node(submission.kernel, &mut parameters);
        // SAFETY: the node belongs to the instantiated graph; the runtime copies the parameters.
        let code = unsafe {
            (self.functions.hipGraphExecKernelNodeSetParams)(self.executable, self.nodes[at], &node)
        };
        succeeded(code).is_some()
    }

    fn launch(&self, gpu: &HipGpu) -> Result<()> {
        // SAFETY: the graph and the stream are valid. The checker proved every access of the kernels in bounds of their
        // parameters' lengths, and the plan binds memory of these lengths with the requested alignment.
        let code = unsafe { (self.functions.hipGraphLaunch)(self.executable, gpu.context.stream()) };
        gpu.context.check("launching a graph of kernels", code)
    }
}
