//! Compiled graphs of DirectML.

use std::{
    ffi::c_void,
    mem::ManuallyDrop,
    ptr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use phynexus::Result;
use windows::{
    Win32::{
        AI::MachineLearning::DirectML::{
            DML_BINDING_DESC, DML_BINDING_TABLE_DESC, DML_BINDING_TYPE_BUFFER, DML_BUFFER_BINDING,
            DML_BUFFER_TENSOR_DESC, DML_EXECUTION_FLAG_NONE, DML_GRAPH_DESC, DML_GRAPH_EDGE_DESC,
            DML_GRAPH_EDGE_TYPE, DML_GRAPH_EDGE_TYPE_INPUT, DML_GRAPH_EDGE_TYPE_INTERMEDIATE,
            DML_GRAPH_EDGE_TYPE_OUTPUT, DML_GRAPH_NODE_DESC, DML_GRAPH_NODE_TYPE_OPERATOR,
            DML_INPUT_GRAPH_EDGE_DESC, DML_INTERMEDIATE_GRAPH_EDGE_DESC, DML_OPERATOR_DESC,
            DML_OPERATOR_GRAPH_NODE_DESC, DML_OPERATOR_TYPE, DML_OUTPUT_GRAPH_EDGE_DESC,
            DML_TENSOR_DATA_TYPE, DML_TENSOR_DESC, DML_TENSOR_TYPE_BUFFER, IDMLBindingTable,
            IDMLCompiledOperator, IDMLDevice1, IDMLDispatchable, IDMLOperator, IDMLOperatorInitializer,
        },
        Graphics::Direct3D12::{
            D3D12_DESCRIPTOR_HEAP_DESC, D3D12_DESCRIPTOR_HEAP_FLAG_SHADER_VISIBLE,
            D3D12_DESCRIPTOR_HEAP_TYPE_CBV_SRV_UAV, ID3D12DescriptorHeap, ID3D12Resource,
        },
    },
    core::{Interface, PCSTR},
};

use crate::{
    connection::Connection,
    encode::encode,
    graph::{Edge, Graph, Seen, Tensor, data_type},
    memory::Block,
};

/// Routines that DirectML has computed in this process.
static DISPATCHED: AtomicU64 = AtomicU64::new(0);

/// Returns the number of times that DirectML has computed a step since the start of the process.
pub fn dispatched_routines() -> u64 {
    DISPATCHED.load(Ordering::Relaxed)
}

/// The alignment of bindings in bytes: `DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT`.
const ALIGNMENT: u64 = 16;
/// So many sets of bindings keep their descriptors.
const SETS: usize = 4;

/// A compiled graph, initialised on its device.
pub(crate) struct Routine {
    graph: Graph,
    compiled: IDMLCompiledOperator,
    /// Memory that DirectML keeps between runs, and memory for one run. Runs are in the order of one queue.
    persistent: Option<Block>,
    temporary: Option<Block>,
    heap: ID3D12DescriptorHeap,
    /// Descriptors of a set.
    descriptors: u32,
    sets: Mutex<Vec<Set>>,
}

/// A binding table with descriptors of its own.
struct Set {
    table: IDMLBindingTable,
    /// What is bound: the block of each part, and where it begins there.
    places: Vec<(u64, u64)>,
    /// The submission that used it last.
    used: u64,
}

// SAFETY: DirectML's compiled operators and Direct3D's heaps do not change and may be used from any thread; binding
// tables are only used by the thread that has the lock.
unsafe impl Send for Routine {}
// SAFETY: as above.
unsafe impl Sync for Routine {}

/// The descriptor of a tensor, which points into it.
fn described(tensor: &Tensor) -> Option<DML_BUFFER_TENSOR_DESC> {
    Some(DML_BUFFER_TENSOR_DESC {
        DataType: DML_TENSOR_DATA_TYPE(data_type(tensor.dtype)? as i32),
        DimensionCount: tensor.sizes.len() as u32,
        Sizes: tensor.sizes.as_ptr(),
        Strides: tensor.strides.as_ref().map_or(ptr::null(), |strides| strides.as_ptr()),
        TotalTensorSizeInBytes: tensor.bytes(),
        ..Default::default()
    })
}

fn pointer<T>(to: &T) -> *const c_void {
    ptr::from_ref(to).cast()
}

/// The operators of a graph. `None` if DirectML refuses one.
fn operators(device: &IDMLDevice1, graph: &Graph) -> Option<Vec<IDMLOperator>> {
    let mut operators = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let inputs = node.inputs.iter().map(|input| input.as_ref().map(|seen| &seen.tensor));
        let seen = inputs.chain(node.outputs.iter().map(Option::as_ref));
        let buffers: Vec<Option<DML_BUFFER_TENSOR_DESC>> = seen
            .map(|tensor| match tensor {
                Some(tensor) => described(tensor).map(Some),
                None => Some(None),
            })
            .collect::<Option<_>>()?;
        let tensors: Vec<DML_TENSOR_DESC> = buffers
            .iter()
            .map(|buffer| DML_TENSOR_DESC {
                Type: DML_TENSOR_TYPE_BUFFER,
                Desc: buffer.as_ref().map_or(ptr::null(), pointer).cast_mut(),
            })
            .collect();
        let address = |(tensor, buffer): (&DML_TENSOR_DESC, &Option<_>)| match buffer {
            Some(_) => ptr::from_ref(tensor).expose_provenance() as u64,
            None => 0,
        };
        let addresses: Vec<u64> = tensors.iter().zip(&buffers).map(address).collect();
        let (inputs, outputs) = addresses.split_at(node.inputs.len());
        let descriptor = encode(node, inputs, outputs);
        let descriptor = DML_OPERATOR_DESC {
            Type: DML_OPERATOR_TYPE(node.row.number),
            Desc: descriptor.as_ptr().cast_mut().cast(),
        };
        let mut made: Option<IDMLOperator> = None;
        // SAFETY: the descriptor has the layout of the operator's structure. It and what it points to are valid during
        // the call.
        unsafe { device.CreateOperator(&descriptor, &mut made) }.ok()?;
        operators.push(made?);
    }
    Some(operators)
}

/// Compiles a graph. `None` if DirectML refuses it.
fn compiled(device: &IDMLDevice1, graph: &Graph) -> Option<IDMLCompiledOperator> {
    let operators: Vec<DML_OPERATOR_GRAPH_NODE_DESC> = operators(device, graph)?
        .into_iter()
        .map(|made| DML_OPERATOR_GRAPH_NODE_DESC {
            Operator: ManuallyDrop::new(Some(made)),
            Name: PCSTR::null(),
        })
        .collect();
    let nodes: Vec<DML_GRAPH_NODE_DESC> = operators
        .iter()
        .map(|node| DML_GRAPH_NODE_DESC {
            Type: DML_GRAPH_NODE_TYPE_OPERATOR,
            Desc: pointer(node).cast_mut(),
        })
        .collect();
    let (mut inputs, mut between) = (Vec::new(), Vec::new());
    for (to, node) in graph.nodes.iter().enumerate() {
        for (at, input) in node.inputs.iter().enumerate() {
            let (to, at) = (to as u32, at as u32);
            match input {
                Some(Seen { edge: Edge::Input(from), .. }) => inputs.push(DML_INPUT_GRAPH_EDGE_DESC {
                    GraphInputIndex: *from as u32,
                    ToNodeIndex: to,
                    ToNodeInputIndex: at,
                    Name: PCSTR::null(),
                }),
                Some(Seen { edge: Edge::Node(from, output), .. }) => {
                    between.push(DML_INTERMEDIATE_GRAPH_EDGE_DESC {
                        FromNodeIndex: *from as u32,
                        FromNodeOutputIndex: *output as u32,
                        ToNodeIndex: to,
                        ToNodeInputIndex: at,
                        Name: PCSTR::null(),
                    })
                }
                None => {}
            }
        }
    }
    let output = |(at, ((node, output), _)): (usize, &((usize, usize), _))| DML_OUTPUT_GRAPH_EDGE_DESC {
        FromNodeIndex: *node as u32,
        FromNodeOutputIndex: *output as u32,
        GraphOutputIndex: at as u32,
        Name: PCSTR::null(),
    };
    let outputs: Vec<DML_OUTPUT_GRAPH_EDGE_DESC> = graph.outputs.iter().enumerate().map(output).collect();
    let edges = [
        edges(DML_GRAPH_EDGE_TYPE_INPUT, &inputs),
        edges(DML_GRAPH_EDGE_TYPE_OUTPUT, &outputs),
        edges(DML_GRAPH_EDGE_TYPE_INTERMEDIATE, &between),
    ];
    let description = DML_GRAPH_DESC {
        InputCount: graph.inputs.len() as u32,
        OutputCount: outputs.len() as u32,
        NodeCount: nodes.len() as u32,
        Nodes: nodes.as_ptr(),
        InputEdgeCount: edges[0].len() as u32,
        InputEdges: edges[0].as_ptr(),
        OutputEdgeCount: edges[1].len() as u32,
        OutputEdges: edges[1].as_ptr(),
        IntermediateEdgeCount: edges[2].len() as u32,
        IntermediateEdges: edges[2].as_ptr(),
    };
    let mut made: Option<IDMLCompiledOperator> = None;
    // SAFETY: the description and everything that it points to are valid during the call.
    let result = unsafe { device.CompileGraph(&description, DML_EXECUTION_FLAG_NONE, &mut made) };
    // The references of the descriptions.
    operators.into_iter().for_each(|node| drop(ManuallyDrop::into_inner(node.Operator)));
    result.ok().and(made)
}

fn edges<T>(kind: DML_GRAPH_EDGE_TYPE, of: &[T]) -> Vec<DML_GRAPH_EDGE_DESC> {
    of.iter().map(|edge| DML_GRAPH_EDGE_DESC { Type: kind, Desc: pointer(edge).cast_mut() }).collect()
}

/// A buffer for [`bind`], with the reference that its descriptor takes.
fn bound(resource: &ID3D12Resource, offset: u64, bytes: u64) -> DML_BUFFER_BINDING {
    DML_BUFFER_BINDING {
        Buffer: ManuallyDrop::new(Some(resource.clone())),
        Offset: offset,
        SizeInBytes: bytes,
    }
}

/// Calls `work` with the descriptors of buffers.
fn bind(buffers: Vec<DML_BUFFER_BINDING>, work: impl FnOnce(&[DML_BINDING_DESC])) {
    let describe = |buffer: &DML_BUFFER_BINDING| DML_BINDING_DESC {
        Type: DML_BINDING_TYPE_BUFFER,
        Desc: pointer(buffer).cast_mut(),
    };
    work(&buffers.iter().map(describe).collect::<Vec<_>>());
    buffers.into_iter().for_each(|buffer| drop(ManuallyDrop::into_inner(buffer.Buffer)));
}

fn whole(block: &Block) -> Vec<DML_BUFFER_BINDING> {
    vec![bound(block.resource(), 0, block.bytes)]
}

impl Routine {
    /// Compiles and initialises a graph. `None` if DirectML refuses it.
    pub(crate) fn new(connection: &Arc<Connection>, graph: Graph) -> Result<Option<Routine>> {
        let device = connection.directml()?;
        let Some(compiled) = compiled(device, &graph) else {
            // A refusal of an intact device.
            return connection.sound().map(|()| None);
        };
        let failed = |error| connection.error("initialising a DirectML graph", &error);
        // SAFETY: the operator is compiled for this device.
        let initializer: IDMLOperatorInitializer =
            unsafe { device.CreateOperatorInitializer(Some(&[Some(compiled.clone())])) }.map_err(failed)?;
        // SAFETY: the calls have no preconditions.
        let (before, after) =
            unsafe { (initializer.GetBindingProperties(), compiled.GetBindingProperties()) };
        let block = |bytes: u64| match bytes {
            0 => Ok(None),
            _ => match Block::new(connection, bytes as usize) {
                Some(block) => Ok(Some(block)),
                None => Err(connection.no_room("memory of a DirectML graph", bytes as usize)),
            },
        };
        let persistent = block(after.PersistentResourceSize)?;
        let temporary = block(before.TemporaryResourceSize.max(after.TemporaryResourceSize))?;
        let descriptors = before.RequiredDescriptorCount.max(after.RequiredDescriptorCount).max(1);
        let heap = D3D12_DESCRIPTOR_HEAP_DESC {
            Type: D3D12_DESCRIPTOR_HEAP_TYPE_CBV_SRV_UAV,
            NumDescriptors: descriptors * SETS as u32,
            Flags: D3D12_DESCRIPTOR_HEAP_FLAG_SHADER_VISIBLE,
            ..Default::default()
        };
        // SAFETY: the description is valid during the call.
        let heap = unsafe { connection.device().CreateDescriptorHeap(&heap) }.map_err(failed)?;
        let sets = Mutex::default();
        let routine = Routine { graph, compiled, persistent, temporary, heap, descriptors, sets };
        let initializer: IDMLDispatchable = initializer.cast().map_err(failed)?;
        let table = routine.table(connection, &initializer, 0)?;
        if let Some(block) = routine.temporary.as_ref().filter(|_| before.TemporaryResourceSize > 0) {
            // SAFETY: the buffer outlives the use of the table.
            bind(whole(block), |bound| unsafe { table.BindTemporaryResource(Some(&bound[0])) });
        }
        if let Some(block) = &routine.persistent {
            // SAFETY: as above.
            bind(whole(block), |bound| unsafe { table.BindOutputs(Some(bound)) });
        }
        let done = connection.dispatch(&initializer, &table, &routine.heap, None)?;
        connection.flush()?;
        connection.wait_for(done)?;
        Ok(Some(routine))
    }

    /// A binding table with the descriptors of a set.
    fn table(&self, connection: &Connection, of: &IDMLDispatchable, set: usize) -> Result<IDMLBindingTable> {
        // SAFETY: the calls have no preconditions.
        let (mut cpu, mut gpu, step) = unsafe {
            let kind = D3D12_DESCRIPTOR_HEAP_TYPE_CBV_SRV_UAV;
            let step = connection.device().GetDescriptorHandleIncrementSize(kind);
            let (cpu, gpu) = (
                self.heap.GetCPUDescriptorHandleForHeapStart(),
                self.heap.GetGPUDescriptorHandleForHeapStart(),
            );
            (cpu, gpu, step as usize)
        };
        let before = set * self.descriptors as usize * step;
        cpu.ptr += before;
        gpu.ptr += before as u64;
        let description = DML_BINDING_TABLE_DESC {
            Dispatchable: ManuallyDrop::new(Some(of.clone())),
            CPUDescriptorHandle: cpu,
            GPUDescriptorHandle: gpu,
            SizeInDescriptors: self.descriptors,
        };
        // SAFETY: the description is valid during the call, and the heap has room for these descriptors.
        let table = unsafe { connection.directml()?.CreateBindingTable(Some(&description)) };
        drop(ManuallyDrop::into_inner(description.Dispatchable));
        table.map_err(|error| connection.error("binding a DirectML graph", &error))
    }

    /// Submits a run. Returns false if an address is not aligned, or an output overlaps an input.
    pub(crate) fn launch(
        self: &Arc<Routine>,
        connection: &Connection,
        arguments: &[(&Block, i64)],
    ) -> Result<bool> {
        let parts = || self.graph.inputs.iter().chain(self.graph.outputs.iter().map(|(_, part)| part));
        let mut places = Vec::with_capacity(parts().count());
        for part in parts() {
            let Some((block, start)) = arguments.get(part.binding) else { return Ok(false) };
            let Ok(start) = u64::try_from(*start) else { return Ok(false) };
            let (offset, bytes) = (start + part.offset, part.tensor.bytes());
            if !offset.is_multiple_of(ALIGNMENT) || offset + bytes > block.bytes {
                return Ok(false);
            }
            places.push((*block, offset, bytes));
        }
        let (inputs, outputs) = places.split_at(self.graph.inputs.len());
        let overlap = |(a, a_start, a_bytes): &(&Block, u64, u64),
                       (b, b_start, b_bytes): &(&Block, u64, u64)| {
            let (a, b) = (a.address + a_start, b.address + b_start);
            a < b + b_bytes && b < a + a_bytes
        };
        if outputs.iter().any(|output| inputs.iter().any(|input| overlap(output, input))) {
            return Ok(false);
        }
        let bound: Vec<(u64, u64)> =
            places.iter().map(|(block, offset, _)| (block.number, *offset)).collect();
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let at = match sets.iter().position(|set| set.places == bound) {
            Some(at) => at,
            None => {
                let at = self.free(connection, &mut sets)?;
                self.bind(&sets[at].table, inputs, outputs);
                sets[at].places = bound;
                at
            }
        };
        let dispatchable: IDMLDispatchable =
            self.compiled.cast().map_err(|error| connection.error("launching a DirectML graph", &error))?;
        sets[at].used =
            connection.dispatch(&dispatchable, &sets[at].table, &self.heap, Some(self.clone()))?;
        DISPATCHED.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// A set whose descriptors the device does not read: a new one, or the one that was used first.
    fn free(&self, connection: &Connection, sets: &mut Vec<Set>) -> Result<usize> {
        let dispatchable: IDMLDispatchable =
            self.compiled.cast().map_err(|error| connection.error("binding a DirectML graph", &error))?;
        if sets.len() < SETS {
            let table = self.table(connection, &dispatchable, sets.len())?;
            sets.push(Set { table, places: Vec::new(), used: 0 });
            return Ok(sets.len() - 1);
        }
        let oldest = (0..sets.len()).min_by_key(|&at| sets[at].used).unwrap_or(0);
        if !connection.has_finished(sets[oldest].used) {
            connection.flush()?;
            connection.wait_for(sets[oldest].used)?;
        }
        // Whatever fails, the old bindings are gone.
        sets[oldest].places.clear();
        sets[oldest].table = self.table(connection, &dispatchable, oldest)?;
        Ok(oldest)
    }

    fn bind(&self, table: &IDMLBindingTable, inputs: &[(&Block, u64, u64)], outputs: &[(&Block, u64, u64)]) {
        let buffers = |places: &[(&Block, u64, u64)]| {
            let buffer =
                |(block, offset, bytes): &(&Block, u64, u64)| bound(block.resource(), *offset, *bytes);
            places.iter().map(buffer).collect::<Vec<_>>()
        };
        // SAFETY: the engine keeps the buffers of the arguments, and the recording the routine's own, until the device
        // has finished the run.
        unsafe {
            bind(buffers(inputs), |bound| table.BindInputs(Some(bound)));
            bind(buffers(outputs), |bound| table.BindOutputs(Some(bound)));
            if let Some(block) = &self.temporary {
                let needed = self.compiled.GetBindingProperties().TemporaryResourceSize;
                if needed > 0 {
                    bind(whole(block), |bound| table.BindTemporaryResource(Some(&bound[0])));
                }
            }
            if let Some(block) = &self.persistent {
                bind(whole(block), |bound| table.BindPersistentResource(Some(&bound[0])));
            }
        }
    }
}
