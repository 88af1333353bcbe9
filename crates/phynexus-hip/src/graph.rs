//! Launches that are repeated, as one HIP graph.
//!
//! Untested on hardware. What is relied on beyond HIP's documents was read in its sources, ROCm 5.3 to 6.2 (ROCm/hipamd,
//! then ROCm/clr): a node takes a function of a module, and copies its parameters when it is made and when they are set.

use std::{ffi::c_int, ptr, sync::Arc};

use phynexus::{
    Result,
    gpu::{Addresses, LaunchGraph, Repeated, Submission},
};
use smallvec::SmallVec;

use crate::{
    context::{Context, parameters},
    driver::{HipGpu, addresses},
    library::{Graphs, Handle},
};

/// So often a graph's nodes are given other parameters; then a new one is made. The runtime keeps the memory of a graph's
/// earlier parameters until the graph goes.
const PATCHES: usize = 4096;

/// What is kept of launches that are made together again and again.
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

// SAFETY: handles of the runtime may be used from any thread, and one thread at a time has a graph.
unsafe impl Send for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        // Some releases free the parameters of launches that still run. After a failure the handles are left, which harms
        // nobody.
        if !self.executable.is_null() && self.context.synchronize().is_err() {
            return;
        }
        // SAFETY: nobody else has the handles, and nothing of them runs.
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

    /// Of a graph that branches the runtime makes a stream for each branch, up to ROCm 6.2 however many there are; and only one
    /// that does not is dispatched from packets that were made before.
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
            let node = submission.module.node(&mut parameters);
            let before: SmallVec<[Handle; 8]> = before.iter().map(|&earlier| made.nodes[earlier]).collect();
            let mut handle = ptr::null_mut();
            // SAFETY: all pointers are valid for the call, which copies what they point to; the nodes are this graph's.
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
        // What a call that fails leaves there is not always an executable graph.
        let mut executable = ptr::null_mut();
        let (node, log) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the graph is complete and valid; no node and no messages of a failure are asked for.
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
        let node = submission.module.node(&mut parameters);
        // SAFETY: the node is of the graph that was instantiated; the runtime copies the parameters.
        let code = unsafe {
            (self.functions.hipGraphExecKernelNodeSetParams)(self.executable, self.nodes[at], &node)
        };
        succeeded(code).is_some()
    }

    fn launch(&self, gpu: &HipGpu) -> Result<()> {
        // SAFETY: graph and stream are valid. The checker proved every access of the kernels in bounds of their parameters'
        // lengths, and the plan binds memory of these lengths, aligned as was asked for.
        let code = unsafe { (self.functions.hipGraphLaunch)(self.executable, gpu.context.stream()) };
        gpu.context.check("launching a graph of kernels", code)
    }
}
