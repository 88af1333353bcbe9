//! The placement pass: which nodes run on a device, and which on the CPU.

mod groups;
mod signature;
mod units;

use std::collections::HashMap;

use neurenix_onnx::{
    Model,
    edit::{Network, ValueType},
};
use phynexus::Device as EngineDevice;

pub(crate) use self::units::{is_dequantize, is_quantize};
use self::{signature::signature, units::Units};
use crate::{Accepts, Error, Options, Place, Program, Result, Runtime, devices::Answers};

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
    /// Nodes that run on the CPU although the runtime takes them, each with the reason.
    pub(crate) excluded: HashMap<usize, String>,
}

/// Why a runtime does not compile something.
struct Refusal {
    reason: String,
    /// Whether it would say the same again. Want of memory, for example, may pass.
    is_lasting: bool,
}

impl Refusal {
    fn of(error: &Error) -> Refusal {
        let is_lasting = match error {
            Error::Runtime { message, .. } => {
                let message = message.to_ascii_lowercase();
                !["memory", "alloc", "timeout", "timed out", "process ended"]
                    .iter()
                    .any(|word| message.contains(word))
            }
            Error::Invalid(_) => true,
            _ => false,
        };
        Refusal { reason: error.to_string(), is_lasting }
    }
}

impl Subject<'_> {
    /// Places the network's nodes.
    ///
    /// # Errors
    /// In strict mode, if the device does not take all nodes; the error names those that it does not take.
    pub(crate) fn place(&self) -> Result<Placement> {
        let all = || (0..self.network.graph.node.len()).collect();
        if !self.is_typed() {
            return self.on_cpu("the network has values that are not tensors of numbers");
        }
        if self.types.values().any(|value| value.shape.contains(&0)) {
            // Qualcomm's runtime ends the process on them.
            return self.on_cpu("the network has empty values");
        }
        let whole = match self.kept() {
            Some(name) => format!("{name} is to run on the CPU"),
            None => match self.compile(self.network, self.options)? {
                Ok(program) => {
                    let part = Part::new(all(), Vec::new(), self.network.clone(), Some(program));
                    return Ok(Placement { parts: vec![part], ..Placement::default() });
                }
                Err(refusal) => refusal.reason,
            },
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
        let is_kept = |at: usize, name: &String| {
            self.options.cpu_nodes.contains(name) || self.excluded.contains_key(&at)
        };
        let mut names = self.network.graph.node.iter().map(|node| &node.name).enumerate();
        names.find(|&(at, name)| is_kept(at, name)).map(|(_, name)| name)
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
        let refusal = |&at: &usize| {
            if let Some(reason) = self.excluded.get(&at) {
                return Some(reason.clone());
            }
            if self.options.cpu_nodes.contains(&self.network.graph.node[at].name) {
                return Some("it was to run on the CPU (`cpu_nodes`)".to_owned());
            }
            match self.runtime.accepts(self.network, at, self.types) {
                Accepts::Yes => None,
                Accepts::No(reason) => Some(reason),
            }
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
        let refusal = self.compile(&part, &options)?.err();
        let is_lasting = refusal.as_ref().is_none_or(|refusal| refusal.is_lasting);
        let answer = refusal.map(|refusal| refusal.reason);
        if is_lasting {
            self.answers.set(key, answer.clone());
        }
        Ok(answer)
    }

    /// Compiles for the device alone; the inner error says why that is not possible.
    ///
    /// # Errors
    /// If the thread is interrupted.
    fn compile(
        &self,
        network: &Network,
        options: &Options,
    ) -> Result<std::result::Result<Box<dyn Program>, Refusal>> {
        phynexus::interrupt::check()?;
        let strict = Options { strict: true, ..options.clone() };
        let program = match self.runtime.compile(network, &strict) {
            Ok(program) => program,
            Err(error @ Error::Engine(phynexus::Error::Interrupted)) => return Err(error),
            Err(error) => return Ok(Err(Refusal::of(&error))),
        };
        let left = program.placement().iter().find_map(|placed| match &placed.place {
            Place::Device => None,
            Place::Cpu(reason) => Some(format!("{} ({}): {reason}", placed.node, placed.operator)),
        });
        Ok(match left {
            None => Ok(program),
            Some(reason) => Err(Refusal { reason, is_lasting: true }),
        })
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
        let compiled = match is_whole {
            true => Err(whole.to_owned()),
            false => self.compile(&part, self.options)?.map_err(|refusal| refusal.reason),
        };
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
