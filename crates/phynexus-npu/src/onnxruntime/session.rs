//! Networks as sessions in which nothing is left to ONNX Runtime's own CPU provider.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    ffi::CStr,
    fmt, ptr,
    sync::{Arc, Mutex, PoisonError},
};

use neurenix_onnx::edit::{Network, ValueType};
use ort::{
    AsPointer,
    compiler::ModelCompiler,
    logging::LogLevel,
    session::{Session, SessionInputValue, builder::SessionBuilder},
};
use phynexus::{Device, Tensor};
use prost::Message;

use super::{
    arena::{self, Limit},
    environment::Environment,
    provider::Provider,
    tensors::{failed, from_runtime, refused, to_runtime},
};
use crate::{Accepts, Error, Options, Place, Placed, Program, Properties, Result, Runtime, cache};

/// What compiles for a provider's device.
pub(super) struct Compiler {
    environment: &'static Environment,
    provider: Provider,
}

impl fmt::Debug for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Compiler").field(&self.provider).finish()
    }
}

/// What the library logs while it compiles: a refusal's error does not say which node is refused, and why.
type Log = Arc<Mutex<Vec<String>>>;

impl Compiler {
    pub(super) fn new(environment: &'static Environment, provider: Provider) -> Compiler {
        Compiler { environment, provider }
    }

    /// A builder of sessions on the device.
    fn builder(&self, network: &Network, options: &Options, log: &Log) -> ort::Result<SessionBuilder> {
        let lines = log.clone();
        let keep = move |_: LogLevel, _: &str, _: &str, _: &str, message: &str| {
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(message.to_owned());
        };
        let mut builder = Session::builder(&self.environment.ort)?
            .with_config_entry("session.disable_cpu_ep_fallback", "1")?
            .with_config_entry("session.record_ep_graph_assignment_info", "1")?
            // The provider has threads of its own.
            .with_intra_threads(1)?
            .with_logger(Arc::new(keep))?
            .with_log_level(LogLevel::Warning)?;
        if options.memory_limit.is_some() || options.save_memory {
            builder = builder.with_env_allocators()?.with_memory_pattern(false)?;
        }
        self.provider.select(builder, self.environment, &self.provider.options(options, is_float(network)))
    }

    /// A session of a network, or of what [`ModelCompiler`] made of it.
    fn session(&self, network: &Network, model: &[u8], options: &Options) -> Result<Session> {
        let log = Log::default();
        let is_limited = options.memory_limit.is_some() || options.save_memory;
        // Some providers keep weights in the same arena, and what they hold there beyond the limit would lift it.
        let weights: usize = network.graph.initializer.iter().map(Message::encoded_len).sum();
        let limit = options.memory_limit.map(|limit| limit.saturating_add(weights as u64));
        let made = || {
            let _limit = is_limited.then(|| Limit::new(self.environment, limit)).transpose()?;
            self.builder(network, options, &log)?.commit_from_memory(model)
        };
        made().map_err(|error| self.refusal(&error, &log))
    }

    /// The compiled form of a network, which a session loads without compiling again.
    fn context(&self, network: &Network, model: &[u8], options: &Options) -> ort::Result<Vec<u8>> {
        let builder = self.builder(
            network,
            &Options { memory_limit: None, save_memory: false, ..options.clone() },
            &Log::default(),
        )?;
        let compiler = ModelCompiler::new(builder)?.with_model_from_memory(model)?.with_embed_ep_context()?;
        Ok(compiler.compile_to_buffer()?.to_vec())
    }

    /// An error with what the library logged before it.
    fn refusal(&self, error: &ort::Error, log: &Log) -> Error {
        let lines = log.lock().unwrap_or_else(PoisonError::into_inner);
        let mut message = error.message().trim().to_owned();
        if message.contains("fallback to CPU EP has been explicitly disabled") {
            message = "the provider does not take all nodes".to_owned();
        }
        for line in lines.iter().map(|line| line.trim()) {
            let lower = line.to_ascii_lowercase();
            let is_reason =
                ["unsupported", "not supported", "fail", "error"].iter().any(|word| lower.contains(word));
            if is_reason && !message.contains(line) {
                message.push_str("; ");
                message.push_str(line);
            }
        }
        Error::Runtime { runtime: self.provider.properties.runtime.clone(), message }
    }

    /// The key of a network in the cache: all that the compiled form depends on.
    fn key(&self, network: &Network, model: &[u8], options: &Options) -> String {
        let properties = &self.provider.properties;
        let told = format!("{:?}", self.provider.options(options, is_float(network)));
        let parts = [&self.provider.name, &properties.version, &self.provider.stamp, &told];
        let mut all: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
        all.push(model);
        cache::key(&all)
    }

    /// A session, by way of the cache.
    fn cached(&self, network: &Network, model: &[u8], options: &Options) -> Result<Compiled> {
        let Some(folder) = &options.cache else {
            return Compiled::new(self, network, self.session(network, model, options)?);
        };
        let key = self.key(network, model, options);
        let load = |context: &[u8]| Compiled::new(self, network, self.session(network, context, options)?);
        // An entry that another version of the driver wrote, or that is damaged, is written again.
        if let Some(compiled) = cache::read(folder, &key).and_then(|context| load(&context).ok()) {
            return Ok(compiled);
        }
        // Not every provider has a compiled form.
        let context = self.context(network, model, options);
        if let Some((context, compiled)) =
            context.ok().and_then(|context| load(&context).ok().map(|c| (context, c)))
        {
            cache::write(folder, &key, &context);
            return Ok(compiled);
        }
        Compiled::new(self, network, self.session(network, model, options)?)
    }
}

impl Runtime for Compiler {
    fn properties(&self) -> &Properties {
        &self.provider.properties
    }

    fn accepts(&self, network: &Network, node: usize, _: &HashMap<String, ValueType>) -> Accepts {
        let Some(node) = network.graph.node.get(node) else { return Accepts::Yes };
        if !matches!(&*node.domain, "" | "ai.onnx" | "com.microsoft") {
            return Accepts::No(format!(
                "operators of the domain {:?} are not known to the runtime",
                node.domain
            ));
        }
        match node.attribute.iter().any(|attribute| attribute.g.is_some()) {
            true => Accepts::No("control flow is not compiled".to_owned()),
            false => Accepts::Yes,
        }
    }

    fn compile(&self, network: &Network, options: &Options) -> Result<Box<dyn Program>> {
        let model = network.to_proto().encode_to_vec();
        Ok(Box::new(self.cached(network, &model, options)?))
    }
}

/// A session and what it said about itself.
struct Compiled {
    session: Session,
    inputs: Vec<String>,
    outputs: Vec<String>,
    placement: Vec<Placed>,
    cpu: Device,
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled").field("inputs", &self.inputs).field("outputs", &self.outputs).finish()
    }
}

impl Compiled {
    /// Checks where the session's nodes are.
    fn new(compiler: &Compiler, network: &Network, session: Session) -> Result<Compiled> {
        let assigned = assignment(&session).map_err(|e| refused(&e))?;
        let own = &compiler.provider.name;
        let mut all =
            assigned.iter().flat_map(|(provider, nodes)| nodes.iter().map(move |node| (provider, node)));
        if let Some((provider, (node, operator))) = all.find(|(provider, _)| *provider != own) {
            return Err(failed(&format!("{node} ({operator}) was given to {provider}, not to {own}")));
        }
        let names = assigned.iter().flat_map(|(_, nodes)| nodes);
        // A network that was loaded in its compiled form has one node for all of the network's.
        let is_context = names.clone().all(|(_, operator)| operator == "EPContext");
        let known: HashSet<&str> = network.graph.node.iter().map(|node| &*node.name).collect();
        let told: HashSet<&str> = names.map(|(name, _)| original(name, &known)).collect();
        if told.is_empty() {
            return Err(failed("the runtime does not say where the nodes are"));
        }
        let is_told = |name: &str| is_context || told.contains(name);
        let placement = (network.graph.node.iter())
            .filter(|node| is_told(&node.name))
            .map(|node| Placed {
                node: node.name.clone(),
                operator: node.op_type.clone(),
                place: Place::Device,
            })
            .collect();
        Ok(Compiled {
            session,
            inputs: network.graph.input.iter().map(|input| input.name.clone()).collect(),
            outputs: network.graph.output.iter().map(|output| output.name.clone()).collect(),
            placement,
            cpu: Device::find("cpu")?,
        })
    }
}

impl Program for Compiled {
    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        if inputs.len() != self.inputs.len() {
            return Err(failed(&format!("{} inputs for {}", inputs.len(), self.inputs.len())));
        }
        let mut given: Vec<(Cow<'_, str>, SessionInputValue<'_>)> = Vec::with_capacity(inputs.len());
        for (name, tensor) in self.inputs.iter().zip(inputs) {
            given.push((Cow::Borrowed(name), to_runtime(tensor)?.into()));
        }
        let values = self.session.run(given).map_err(|e| refused(&e))?;
        let output = |name: &String| {
            let value = values.get(name).ok_or_else(|| failed(&format!("the output {name:?} is missing")))?;
            from_runtime(value, self.cpu)
        };
        self.outputs.iter().map(output).collect()
    }

    fn placement(&self) -> &[Placed] {
        &self.placement
    }

    fn memory(&self) -> Option<u64> {
        arena::allocated(&self.session)
    }
}

/// Whether a network has operators whose results are not only quantized.
fn is_float(network: &Network) -> bool {
    const FORMATS: [&str; 2] = ["QuantizeLinear", "DequantizeLinear"];
    let links = network.links();
    let nodes = &network.graph.node;
    let is_quantized = |name: &String| {
        let mut readers = links.readers.get(name).into_iter().flatten();
        !links.kept.contains(name) && readers.all(|&(at, _)| nodes[at].op_type == FORMATS[0])
    };
    let operators = nodes.iter().filter(|node| !FORMATS.contains(&&*node.op_type));
    operators.flat_map(|node| &node.output).any(|name| !is_quantized(name))
}

/// The name of a node before the library changed its layout: then it appends `_token_` and a number.
fn original<'n>(name: &'n str, known: &HashSet<&str>) -> &'n str {
    let mut own = name;
    while !known.contains(own) {
        match own.rsplit_once("_token_") {
            Some((before, number)) if number.parse::<u64>().is_ok() => own = before,
            _ => return name,
        }
    }
    own
}

/// A provider, and names and operators of its nodes.
type Assigned = (String, Vec<(String, String)>);

/// The nodes that each provider was given, with their operators, as the library reports.
fn assignment(session: &Session) -> ort::Result<Vec<Assigned>> {
    let api = ort::api();
    let (mut groups, mut count) = (ptr::null(), 0);
    // SAFETY: the session lives, and both results are valid for writing.
    check(unsafe { (api.Session_GetEpGraphAssignmentInfo)(session.ptr(), &mut groups, &mut count) })?;
    let mut all = Vec::with_capacity(count);
    for at in 0..count {
        // SAFETY: the library wrote `count` pointers, which belong to the session.
        let group = unsafe { *groups.add(at) };
        let mut name = ptr::null();
        // SAFETY: the group belongs to the session, and the result is valid for writing.
        check(unsafe { (api.EpAssignedSubgraph_GetEpName)(group, &mut name) })?;
        let (mut nodes, mut node_count) = (ptr::null(), 0);
        // SAFETY: as above.
        check(unsafe { (api.EpAssignedSubgraph_GetNodes)(group, &mut nodes, &mut node_count) })?;
        let mut own = Vec::with_capacity(node_count);
        for at in 0..node_count {
            let (mut node_name, mut operator) = (ptr::null(), ptr::null());
            // SAFETY: the library wrote `node_count` pointers, which belong to the session.
            let node = unsafe { *nodes.add(at) };
            // SAFETY: the node belongs to the session, and the result is valid for writing.
            check(unsafe { (api.EpAssignedNode_GetName)(node, &mut node_name) })?;
            // SAFETY: as above.
            check(unsafe { (api.EpAssignedNode_GetOperatorType)(node, &mut operator) })?;
            own.push((text(node_name), text(operator)));
        }
        all.push((text(name), own));
    }
    Ok(all)
}

/// A string of the library.
fn text(from: *const std::ffi::c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: it is not null, ends in zero and belongs to a session that lives.
    unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
}

fn check(status: ort::sys::OrtStatusPtr) -> ort::Result<()> {
    // SAFETY: each status comes from the library and is checked once.
    unsafe { ort::Error::result_from_status(status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_library_appends_is_cut_off() {
        let known = HashSet::from(["conv", "x_token_embedding", "x", "step_token_1"]);
        for (name, expected) in [
            ("conv", "conv"),
            ("conv_token_12", "conv"),
            ("conv_token_12_token_3", "conv"),
            ("x_token_embedding", "x_token_embedding"),
            ("x_token_embedding_token_4", "x_token_embedding"),
            ("step_token_1", "step_token_1"),
            ("added_by_the_library", "added_by_the_library"),
            ("x_token_", "x_token_"),
        ] {
            assert_eq!(original(name, &known), expected);
        }
    }
}
