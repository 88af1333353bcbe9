//! The placement pass: which nodes run on a device, and which on the CPU.

mod groups;
mod units;

use std::{collections::HashMap, fmt::Write, mem};

use neurenix_onnx::{
    Model,
    edit::{Network, ValueType},
    proto::TypeKind,
};
use phynexus::Device as EngineDevice;
use prost::Message;

use self::units::Units;
pub(crate) use self::units::{is_dequantize, is_quantize};
use crate::{Accepts, Error, Options, Place, Program, Result, Runtime, cache, devices::Answers};

/// Nodes that run together.
#[derive(Debug)]
pub(crate) struct Part {
    /// Its nodes as positions in the network.
    pub(crate) nodes: Vec<usize>,
    /// Nodes that other parts have copies of, too, or other parts own.
    pub(crate) copies: Vec<usize>,
    /// The nodes as a network.
    pub(crate) network: Network,
    /// What the device runs; `None` on the CPU.
    pub(crate) program: Option<Box<dyn Program>>,
    /// What the CPU runs, if it has run the part.
    cpu: Option<Model>,
}

impl Part {
    fn new(
        nodes: Vec<usize>,
        copies: Vec<usize>,
        network: Network,
        program: Option<Box<dyn Program>>,
    ) -> Part {
        Part { nodes, copies, network, program, cpu: None }
    }

    /// The part as the CPU computes it.
    pub(crate) fn model(&mut self, cpu: EngineDevice) -> Result<&Model> {
        match &mut self.cpu {
            Some(model) => Ok(model),
            none => Ok(none.insert(self.network.model(cpu)?)),
        }
    }

    /// Forgets what [`Part::model`] made.
    pub(crate) fn forget_model(&mut self) {
        self.cpu = None;
    }
}

/// The parts of a network, in the order in which they run.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    pub(crate) parts: Vec<Part>,
    /// The nodes that run on the CPU, each with the reason.
    pub(crate) refused: HashMap<usize, String>,
    /// Where the device's work is in several parts although it takes all of their nodes: the reasons.
    pub(crate) splits: Vec<String>,
}

/// A network, the types of its values, and what compiles it.
pub(crate) struct Subject<'n> {
    /// The network, with nodes in order.
    pub(crate) network: &'n Network,
    /// The types of its values.
    pub(crate) types: &'n HashMap<String, ValueType>,
    /// The device's name.
    pub(crate) device: &'n str,
    /// What compiles.
    pub(crate) runtime: &'n dyn Runtime,
    /// What is known of the runtime.
    pub(crate) answers: &'n Answers,
    /// How to compile.
    pub(crate) options: &'n Options,
}

impl Subject<'_> {
    /// Places the network's nodes.
    ///
    /// # Errors
    /// In strict mode, if the device does not take all nodes; the error names those that it does not take.
    pub(crate) fn place(&self) -> Result<Placement> {
        let all = || (0..self.network.graph.node.len()).collect();
        let try_whole = || match self.kept() {
            Some(name) => Err(format!("{name} is to run on the CPU")),
            None => self.compile(self.network, self.options),
        };
        let whole = match self.is_typed().then(try_whole) {
            None => {
                let reason = "the network has values that are not tensors of numbers".to_owned();
                return self.on_cpu(&reason);
            }
            Some(Ok(program)) => {
                let part = Part::new(all(), Vec::new(), self.network.clone(), Some(program));
                return Ok(Placement { parts: vec![part], ..Placement::default() });
            }
            Some(Err(reason)) => reason,
        };
        let units = Units::new(self.network);
        let reasons = self.refusals(&units)?;
        let mut placement = Placement::default();
        self.refuse(&units, &reasons, &mut placement)?;
        let on_device: Vec<bool> = reasons.iter().map(Option::is_none).collect();
        for group in groups::group(&units.all, &on_device) {
            match group.on_device {
                true => self.add(&units, &group.units, &whole, &mut placement)?,
                false => placement.parts.push(self.part(&units, &group.units, None)?),
            }
        }
        Ok(placement)
    }

    /// Why the runtime refuses each unit, if it does.
    fn refusals(&self, units: &Units<'_>) -> Result<Vec<Option<String>>> {
        let mut reasons: Vec<Option<String>> = units.all.iter().map(|unit| self.known(unit)).collect();
        for island in units.islands() {
            let is_open = island.iter().all(|&unit| reasons[unit].is_none() && !units.is_format(unit));
            let refusal = if is_open { self.probe(units, &island)? } else { None };
            match (refusal, &island[..]) {
                (None, _) if is_open => {}
                (Some(reason), &[unit]) => reasons[unit] = Some(reason),
                (_, all) => {
                    for &unit in all {
                        if reasons[unit].is_none() && !units.is_format(unit) {
                            reasons[unit] = self.probe(units, &[unit])?;
                        }
                    }
                }
            }
        }
        self.second_chance(units, &mut reasons)?;
        for unit in (0..units.all.len()).filter(|&unit| units.is_format(unit)) {
            let is_beside = |&other: &usize| {
                !units.is_format(other) && reasons[other].is_none() && units.are_neighbours(unit, other)
            };
            if reasons[unit].is_none() && !(0..units.all.len()).any(|other| is_beside(&other)) {
                reasons[unit] = Some("no operator beside it runs on the device".to_owned());
            }
        }
        Ok(reasons)
    }

    /// Takes units that the runtime refuses alone, and takes together with those beside them. An operator that only
    /// moves numbers, for example, may need one that computes.
    fn second_chance(&self, units: &Units<'_>, reasons: &mut [Option<String>]) -> Result<()> {
        for unit in 0..units.all.len() {
            if reasons[unit].is_none() || self.known(&units.all[unit]).is_some() {
                continue;
            }
            let is_beside = |&other: &usize| reasons[other].is_none() && units.are_neighbours(unit, other);
            let mut together: Vec<usize> = (0..units.all.len()).filter(is_beside).collect();
            let has_operator = together.iter().any(|&other| !units.is_format(other));
            together.push(unit);
            together.sort_unstable();
            if has_operator && self.probe(units, &together)?.is_none() {
                reasons[unit] = None;
            }
        }
        Ok(())
    }

    /// Whether all values that nodes make are tensors of numbers.
    fn is_typed(&self) -> bool {
        let made = self.network.graph.node.iter().flat_map(|node| &node.output);
        let given = self.network.graph.input.iter().map(|input| &input.name);
        made.chain(given).all(|name| name.is_empty() || self.types.contains_key(name))
    }

    /// A node that is to run on the CPU.
    fn kept(&self) -> Option<&String> {
        let kept = &self.options.cpu_nodes;
        self.network.graph.node.iter().map(|node| &node.name).find(|name| kept.contains(name))
    }

    /// All nodes on the CPU.
    fn on_cpu(&self, reason: &str) -> Result<Placement> {
        let nodes: Vec<usize> = (0..self.network.graph.node.len()).collect();
        let mut placement = Placement::default();
        placement.refused.extend(nodes.iter().map(|&at| (at, reason.to_owned())));
        self.check_strict(&placement)?;
        placement.parts.push(Part::new(nodes, Vec::new(), self.network.clone(), None));
        Ok(placement)
    }

    /// Why the runtime refuses a unit, as far as is known before compiling.
    fn known(&self, unit: &units::Unit) -> Option<String> {
        let refusal = |&at: &usize| match self.runtime.accepts(self.network, at, self.types) {
            _ if self.options.cpu_nodes.contains(&self.network.graph.node[at].name) => {
                Some("it was to run on the CPU (`cpu_nodes`)".to_owned())
            }
            Accepts::Yes => None,
            Accepts::No(reason) => Some(reason),
        };
        unit.nodes.iter().chain(&unit.copies).find_map(refusal)
    }

    /// Why the runtime refuses some units by themselves, if it does.
    fn probe(&self, units: &Units<'_>, some: &[usize]) -> Result<Option<String>> {
        let part = units.part(some, self.types)?;
        let ports = part.graph.input.iter().chain(&part.graph.output);
        let narrow =
            ports.filter_map(|port| self.types.get(&port.name)).find(|value| value.element.is_narrow());
        if let Some(value) = narrow {
            return Ok(Some(format!("values of the type {:?} do not pass to the runtime", value.element)));
        }
        let key = signature(&part);
        if let Some(answer) = self.answers.get(&key) {
            return Ok(answer);
        }
        let options = Options { cache: None, memory_limit: None, ..self.options.clone() };
        let answer = self.compile(&part, &options).err();
        self.answers.set(key, answer.clone());
        Ok(answer)
    }

    /// Compiles for the device alone. An error is the reason why that is not possible.
    fn compile(&self, network: &Network, options: &Options) -> Result<Box<dyn Program>, String> {
        let strict = Options { strict: true, ..options.clone() };
        let program = self.runtime.compile(network, &strict).map_err(|error| error.to_string())?;
        let left = program.placement().iter().find_map(|placed| match &placed.place {
            Place::Device => None,
            Place::Cpu(reason) => Some(format!("{} ({}): {reason}", placed.node, placed.operator)),
        });
        left.map_or(Ok(program), Err)
    }

    /// Records the units that the runtime refuses.
    fn refuse(&self, units: &Units<'_>, reasons: &[Option<String>], placement: &mut Placement) -> Result<()> {
        for (unit, reason) in units.all.iter().zip(reasons) {
            let Some(reason) = reason else { continue };
            placement.refused.extend(unit.nodes.iter().map(|&at| (at, reason.clone())));
        }
        self.check_strict(placement)
    }

    /// Moves a part to the CPU, because it does not run on the device.
    ///
    /// # Errors
    /// In strict mode.
    pub(crate) fn give_up(&self, placement: &mut Placement, part: usize, reason: &str) -> Result<()> {
        if let Some(part) = placement.parts.get_mut(part) {
            part.program = None;
            placement.refused.extend(part.nodes.iter().map(|&at| (at, reason.to_owned())));
        }
        self.check_strict(placement)
    }

    /// In strict mode, nothing may be refused.
    fn check_strict(&self, placement: &Placement) -> Result<()> {
        if !self.options.strict || placement.refused.is_empty() {
            return Ok(());
        }
        let mut refused: Vec<(&usize, &String)> = placement.refused.iter().collect();
        refused.sort();
        let line = |(at, reason): (&usize, &String)| {
            let node = &self.network.graph.node[*at];
            format!("{} ({}): {reason}", node.name, node.op_type)
        };
        let nodes = refused.into_iter().map(line).collect();
        Err(Error::Refused { device: self.device.to_owned(), nodes })
    }

    /// Compiles units as one part, or, if that is refused, as two. A unit that is refused runs on the CPU.
    fn add(&self, units: &Units<'_>, some: &[usize], whole: &str, placement: &mut Placement) -> Result<()> {
        let is_whole = some.len() == units.all.len();
        let part = units.part(some, self.types)?;
        // The whole network was refused before.
        let compiled = if is_whole { Err(whole.to_owned()) } else { self.compile(&part, self.options) };
        match compiled {
            Ok(program) => placement.parts.push(self.part(units, some, Some(program))?),
            Err(reason) if some.len() > 1 => {
                let names = |units_: &[usize]| {
                    let name = |&unit: &usize| self.network.graph.node[units.all[unit].nodes[0]].name.clone();
                    units_.iter().map(name).collect::<Vec<_>>()
                };
                let (first, second) = some.split_at(some.len() / 2);
                let edge = [names(first).pop(), names(second).into_iter().next()];
                let [last, next] = edge.map(Option::unwrap_or_default);
                placement.splits.push(format!("between {last} and {next}: {reason}"));
                self.add(units, first, whole, placement)?;
                self.add(units, second, whole, placement)?;
            }
            Err(reason) => {
                let nodes = some.iter().flat_map(|&unit| &units.all[unit].nodes);
                placement.refused.extend(nodes.map(|&at| (at, reason.clone())));
                self.check_strict(placement)?;
                placement.parts.push(self.part(units, some, None)?);
            }
        }
        Ok(())
    }

    fn part(&self, units: &Units<'_>, some: &[usize], program: Option<Box<dyn Program>>) -> Result<Part> {
        let (nodes, copies) = units.nodes(some);
        Ok(Part::new(nodes, copies, units.part(some, self.types)?, program))
    }

    /// The first `count` units of a part as a network, with the first node of the last of them; `None` if the part has
    /// fewer.
    pub(crate) fn beginning(&self, part: &Part, count: usize) -> Result<Option<(usize, Network)>> {
        let units = Units::new(self.network);
        let is_in = |unit: &usize| units.all[*unit].nodes.iter().all(|at| part.nodes.contains(at));
        let own: Vec<usize> = (0..units.all.len()).filter(is_in).take(count).collect();
        match own.last() {
            Some(&last) if own.len() == count => {
                Ok(Some((units.all[last].nodes[0], units.part(&own, self.types)?)))
            }
            _ => Ok(None),
        }
    }
}

/// What decides whether a runtime takes a part: operators, attributes, types, and constants as far as they may be
/// parameters; not the names.
fn signature(part: &Network) -> String {
    let graph = &part.graph;
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut text = format!("opset {}\n", part.opset());
    for port in graph.input.iter().chain(&graph.output) {
        let tensor = port.r#type.as_ref().and_then(|port| match &port.value {
            Some(TypeKind::Tensor(tensor)) => Some(tensor),
            _ => None,
        });
        let next = numbers.len();
        let number = *numbers.entry(&port.name).or_insert(next);
        let _ = writeln!(text, "port {number} {tensor:?}");
    }
    for constant in &graph.initializer {
        // Weights do not matter, but axes, pads and zero points do.
        const PARAMETER: usize = 64;
        let mut value = constant.clone();
        value.name.clear();
        if value.encoded_len() > 2 * PARAMETER {
            value.raw_data = Vec::new();
            (value.float_data, value.int32_data, value.int64_data) = Default::default();
        }
        let is_scale = constant.data_type == neurenix_onnx::Element::Float as i32;
        if is_scale {
            mem::take(&mut value.raw_data);
            mem::take(&mut value.float_data);
        }
        let next = numbers.len();
        let number = *numbers.entry(&constant.name).or_insert(next);
        let _ = writeln!(text, "constant {number} {value:?}");
    }
    for node in &graph.node {
        let _ = write!(text, "{} {} {:?}", node.domain, node.op_type, node.attribute);
        for name in node.input.iter().chain(&node.output) {
            let next = numbers.len();
            let _ = write!(text, " {}", numbers.entry(name).or_insert(next));
        }
        text.push('\n');
    }
    cache::key(&[text.as_bytes()])
}
