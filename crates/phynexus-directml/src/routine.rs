//! Compiled graphs of DirectML.

use std::{
    ffi::c_void,
    mem::ManuallyDrop,
    ptr,
    sync::{Arc, Mutex, PoisonError, Weak, atomic::Ordering},
};

use phynexus::{Error, Result};
use smallvec::SmallVec;
use windows::{
    Win32::AI::MachineLearning::DirectML::{
        DML_BUFFER_TENSOR_DESC, DML_EXECUTION_FLAG_NONE, DML_GRAPH_DESC, DML_GRAPH_EDGE_DESC,
        DML_GRAPH_EDGE_TYPE, DML_GRAPH_EDGE_TYPE_INPUT, DML_GRAPH_EDGE_TYPE_INTERMEDIATE,
        DML_GRAPH_EDGE_TYPE_OUTPUT, DML_GRAPH_NODE_DESC, DML_GRAPH_NODE_TYPE_OPERATOR,
        DML_INPUT_GRAPH_EDGE_DESC, DML_INTERMEDIATE_GRAPH_EDGE_DESC, DML_OPERATOR_DESC,
        DML_OPERATOR_GRAPH_NODE_DESC, DML_OPERATOR_TYPE, DML_OUTPUT_GRAPH_EDGE_DESC, DML_TENSOR_DATA_TYPE,
        DML_TENSOR_DESC, DML_TENSOR_TYPE_BUFFER, IDMLCompiledOperator, IDMLDevice1, IDMLDispatchable,
        IDMLOperator, IDMLOperatorInitializer,
    },
    Win32::Foundation::{E_INVALIDARG, E_OUTOFMEMORY},
    core::{Interface, PCSTR},
};

use crate::{
    binding::{Place, Table},
    connection::Connection,
    encode::encode,
    graph::{Edge, Graph, Part, Seen, Tensor, data_type},
    memory::Block,
    object::{Held, Holder},
    queue::{What, Work},
};

/// The alignment of bindings in bytes: `DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT`.
const ALIGNMENT: u64 = 16;
/// So many tables of bindings are kept for each graph.
const TABLES: usize = 8;

/// A graph that DirectML takes. It is compiled again for a device that was opened again.
pub(crate) struct Routine {
    graph: Graph,
    compiled: Held<Arc<Compiled>>,
    /// Bytes of memory for a run.
    memory: u64,
}

/// A compiled graph, initialised on its device.
struct Compiled {
    connection: Weak<Connection>,
    number: u64,
    dispatchable: IDMLDispatchable,
    /// Memory that DirectML keeps between runs, and its bytes.
    persistent: Option<Block>,
    bytes: usize,
    /// Bytes of memory for a run.
    temporary: u64,
    /// Descriptors of a table.
    descriptors: u32,
    /// Least recently used first.
    tables: Mutex<Vec<(Bound, Arc<Table>)>>,
}

/// What is bound: the number of each part's buffer, and where it begins there.
type Bound = SmallVec<[(u64, u64); 8]>;

// SAFETY: DirectML's compiled operators do not change and may be used from any thread.
unsafe impl Send for Compiled {}
// SAFETY: as above.
unsafe impl Sync for Compiled {}

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

/// The operators of a graph.
fn operators(device: &IDMLDevice1, graph: &Graph) -> windows::core::Result<Vec<IDMLOperator>> {
    let mut operators = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let inputs = node.inputs.iter().map(|input| input.as_ref().map(|seen| &seen.tensor));
        let seen = inputs.chain(node.outputs.iter().map(Option::as_ref));
        let buffers: Vec<Option<DML_BUFFER_TENSOR_DESC>> = seen
            .map(|tensor| match tensor {
                Some(tensor) => described(tensor).map(Some),
                None => Some(None),
            })
            .collect::<Option<_>>()
            .ok_or(E_INVALIDARG)?;
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
        unsafe { device.CreateOperator(&descriptor, &mut made) }?;
        operators.push(made.ok_or(E_INVALIDARG)?);
    }
    Ok(operators)
}

/// Compiles a graph.
fn compiled(device: &IDMLDevice1, graph: &Graph) -> windows::core::Result<IDMLCompiledOperator> {
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
    result.and_then(|()| made.ok_or(E_INVALIDARG.into()))
}

fn edges<T>(kind: DML_GRAPH_EDGE_TYPE, of: &[T]) -> Vec<DML_GRAPH_EDGE_DESC> {
    of.iter().map(|edge| DML_GRAPH_EDGE_DESC { Type: kind, Desc: pointer(edge).cast_mut() }).collect()
}

impl Compiled {
    /// Compiles and initialises a graph. `None` if DirectML refuses it.
    fn new(connection: &Arc<Connection>, graph: &Graph) -> Result<Option<Arc<Compiled>>> {
        let parts = connection.parts()?;
        let device = &connection.directml(&parts)?.device;
        let operator = match compiled(device, graph) {
            Ok(operator) => operator,
            Err(error) if error.code() == E_OUTOFMEMORY => {
                return Err(connection.error("compiling a DirectML graph", &error));
            }
            // A refusal of an intact device.
            Err(_) => return connection.sound().map(|()| None),
        };
        let failed = |error| connection.error("initialising a DirectML graph", &error);
        // SAFETY: the operator is compiled for this device.
        let initializer: IDMLOperatorInitializer =
            unsafe { device.CreateOperatorInitializer(Some(&[Some(operator.clone())])) }.map_err(failed)?;
        // SAFETY: the calls have no preconditions.
        let (before, after) =
            unsafe { (initializer.GetBindingProperties(), operator.GetBindingProperties()) };
        let block = |bytes: u64| (bytes > 0).then(|| Block::new(connection, bytes as usize)).transpose();
        let persistent = block(after.PersistentResourceSize)?;
        let temporary = block(before.TemporaryResourceSize)?;
        let initializer: IDMLDispatchable = initializer.cast().map_err(failed)?;
        let mut table = Table::new(connection, &initializer, before.RequiredDescriptorCount)?;
        if let Some(block) = &temporary {
            table.temporary(Place::whole(block)?);
        }
        if let Some(block) = &persistent {
            table.outputs(&[Place::whole(block)?]);
        }
        let what = What::Dispatch { dispatchable: initializer, table: Arc::new(table), kept: None };
        let done = connection.add(&Work { name: "initialisation", what })?;
        connection.flush()?;
        connection.wait_for(done)?;
        let bytes = persistent.as_ref().map_or(0, |block| block.bytes);
        connection.routine_bytes.fetch_add(bytes as usize, Ordering::Relaxed);
        Ok(Some(Arc::new(Compiled {
            connection: Arc::downgrade(connection),
            number: connection.number,
            dispatchable: operator.cast().map_err(failed)?,
            persistent,
            bytes: bytes as usize,
            temporary: after.TemporaryResourceSize,
            descriptors: after.RequiredDescriptorCount,
            tables: Mutex::default(),
        })))
    }

    /// A table with these bindings: one that has them, or a new one.
    fn table(&self, connection: &Connection, run: &Run<'_>) -> Result<Arc<Table>> {
        let places: Bound = run
            .parts()
            .map(|(block, offset, _)| {
                let (number, start) = block.identity();
                (number, start + offset)
            })
            .collect();
        let lock = || self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tables = lock();
        if let Some(at) = tables.iter().position(|(known, _)| *known == places) {
            let known = tables.remove(at);
            let table = known.1.clone();
            tables.push(known);
            return Ok(table);
        }
        drop(tables);
        let table = Arc::new(self.bound(connection, run)?);
        let mut tables = lock();
        tables.push((places, table.clone()));
        // Lists keep the tables that they use.
        let oldest = (tables.len() > TABLES).then(|| tables.remove(0));
        drop(tables);
        drop(oldest);
        Ok(table)
    }

    fn bound(&self, connection: &Connection, run: &Run<'_>) -> Result<Table> {
        let mut table = Table::new(connection, &self.dispatchable, self.descriptors)?;
        let places = |parts: &[(&Block, u64, u64)]| {
            parts.iter().map(|(block, offset, bytes)| Place::of(block, *offset, *bytes)).collect()
        };
        let (inputs, outputs): (Result<Vec<Place>>, Result<Vec<Place>>) =
            (places(&run.inputs), places(&run.outputs));
        table.inputs(&inputs?);
        table.outputs(&outputs?);
        if let Some((block, _, bytes)) = run.memory {
            table.temporary(Place::of(block, 0, bytes)?);
        }
        if let Some(block) = &self.persistent {
            table.persistent(Place::whole(block)?);
        }
        Ok(table)
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.upgrade() {
            connection.routine_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// What a run uses: blocks, and the offset and the length of the part in bytes.
struct Run<'a> {
    inputs: Vec<(&'a Block, u64, u64)>,
    outputs: Vec<(&'a Block, u64, u64)>,
    memory: Option<(&'a Block, u64, u64)>,
}

impl<'a> Run<'a> {
    /// `None` if an address is not aligned, a part is not in its block, or an output overlaps an input.
    fn new(graph: &Graph, arguments: &[(&'a Block, i64)]) -> Option<Run<'a>> {
        let place = |part: &Part| {
            let (block, start) = *arguments.get(part.binding)?;
            let offset = u64::try_from(start).ok()? + part.offset;
            let bytes = part.tensor.bytes();
            let fits = offset.is_multiple_of(ALIGNMENT) && offset + bytes <= block.bytes;
            fits.then_some((block, offset, bytes))
        };
        let inputs: Vec<_> = graph.inputs.iter().map(place).collect::<Option<_>>()?;
        let outputs: Vec<_> = graph.outputs.iter().map(|(_, part)| place(part)).collect::<Option<_>>()?;
        let overlap = |(a, a_start, a_bytes): &(&Block, u64, u64),
                       (b, b_start, b_bytes): &(&Block, u64, u64)| {
            let (a, b) = (a.address() + a_start, b.address() + b_start);
            a < b + b_bytes && b < a + a_bytes
        };
        let apart = outputs.iter().all(|output| !inputs.iter().any(|input| overlap(output, input)));
        apart.then_some(Run { inputs, outputs, memory: None })
    }

    fn parts(&self) -> impl Iterator<Item = &(&'a Block, u64, u64)> {
        self.inputs.iter().chain(&self.outputs).chain(&self.memory)
    }
}

impl Routine {
    /// `None` if DirectML refuses the graph.
    pub(crate) fn new(connection: &Arc<Connection>, graph: Graph) -> Result<Option<Arc<Routine>>> {
        let Some(compiled) = Compiled::new(connection, &graph)? else { return Ok(None) };
        let memory = compiled.temporary;
        let routine = Arc::new(Routine { graph, compiled: Held::new(compiled), memory });
        connection.holds(&routine)?;
        Ok(Some(routine))
    }

    /// The graph on this device.
    fn on(self: &Arc<Routine>, connection: &Arc<Connection>) -> Result<Arc<Compiled>> {
        if let Some(known) = self.compiled.get().filter(|known| known.number == connection.number) {
            return Ok(known);
        }
        let refused = || Error::internal("phynexus_directml", "DirectML refuses a graph that it took before");
        let compiled = Compiled::new(connection, &self.graph)?.ok_or_else(refused)?;
        drop(self.compiled.replace(compiled.clone()));
        connection.holds(self)?;
        Ok(compiled)
    }

    /// Bytes of memory that a run needs.
    pub(crate) fn memory(&self) -> usize {
        self.memory as usize
    }

    /// Whether it can take these bindings.
    pub(crate) fn takes(&self, arguments: &[(&Block, i64)]) -> bool {
        Run::new(&self.graph, arguments).is_some()
    }

    /// A run with these bindings, the last of which is the memory that it needs. A run that is to be repeated gets
    /// descriptors of its own.
    pub(crate) fn run(
        self: &Arc<Routine>,
        connection: &Arc<Connection>,
        arguments: &[(&Block, i64)],
        is_repeated: bool,
    ) -> Result<What> {
        let wrong = || Error::internal("phynexus_directml", "a routine cannot take its bindings");
        let mut run = Run::new(&self.graph, arguments).ok_or_else(wrong)?;
        let compiled = self.on(connection)?;
        if compiled.temporary > 0 {
            let (block, _) = arguments.last().ok_or_else(wrong)?;
            if compiled.temporary > block.bytes {
                return Err(wrong());
            }
            run.memory = Some((block, 0, compiled.temporary));
        }
        let table = match is_repeated {
            true => Arc::new(compiled.bound(connection, &run)?),
            false => compiled.table(connection, &run)?,
        };
        let dispatchable = compiled.dispatchable.clone();
        Ok(What::Dispatch { dispatchable, table, kept: Some(compiled) })
    }
}

impl Holder for Routine {
    fn release(&self) {
        drop(self.compiled.take());
    }
}
