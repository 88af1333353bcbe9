//! A network of fixed input shapes on a device.

use std::{
    collections::{BTreeSet, HashMap},
    time::Instant,
};

use neurenix_onnx::{
    Element, Value,
    edit::{self, Network, ValueType},
};
use phynexus::{Device as EngineDevice, Tensor, tensor::Generator};

use super::{
    check::{Mismatch, Reference},
    memory, range,
    report::{PartReport, Report},
    shadow,
};
use crate::{
    Device, Error, Options, Place, Placed, Program, Result,
    place::{Part, Placement, Subject},
};

/// How often the parts are compiled again without a node that differs from the CPU. After that, the whole part in which
/// one differs runs on the CPU.
const ATTEMPTS: usize = 8;

/// The types and shapes of a network's inputs, in order.
pub(super) type Shapes = Vec<(Option<Element>, Vec<usize>)>;

/// A network of fixed input shapes on a device.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) shapes: Shapes,
    network: Network,
    placement: Placement,
    /// Whether each part computes with floats.
    floats: Vec<bool>,
    /// Whether the CPU may not take over what fails on the device.
    strict: bool,
    /// The last part that reads each value.
    last: HashMap<String, usize>,
    /// How long each part took in the last run.
    seconds: Vec<Option<f64>>,
    /// Each part's runs that failed on the device, and the last error.
    failures: Vec<(u64, String)>,
    /// The most bytes that values between nodes need.
    pub(super) activations: u64,
}

impl Bucket {
    /// Compiles a network for the shapes of these samples, and compares each part with the CPU.
    pub(super) fn new(
        network: &Network,
        shapes: Shapes,
        samples: &[&HashMap<String, Value>],
        device: &Device,
        options: &Options,
        cpu: EngineDevice,
    ) -> Result<Bucket> {
        let Some(&first) = samples.first() else {
            return Err(Error::Invalid("there is no sample".to_owned()));
        };
        let (types, _) = network.observe(first.clone(), cpu, |_| false)?;
        let network = fixed(network, &types);
        let activations = memory::peak(&network, &types);
        if let Some(limit) = options.memory_limit.filter(|&limit| limit < activations) {
            return Err(Error::Memory { needed: activations, limit });
        }
        let mut subject = Subject {
            network: &network,
            types: &types,
            device: device.name(),
            runtime: device.runtime(),
            answers: device.answers(),
            options,
            excluded: HashMap::new(),
        };
        let mut placement = subject.place()?;
        while let Some(found) = check_all(&subject, &mut placement, samples, cpu)? {
            if options.strict {
                return Err(found.error);
            }
            let reason = found.error.to_string();
            let is_known = subject.excluded.insert(found.node, reason.clone()).is_some();
            if is_known || subject.excluded.len() > ATTEMPTS {
                subject.give_up(&mut placement, found.part, &reason)?;
            } else {
                placement = subject.place()?;
            }
        }
        // The CPU's own form of a device's part is only needed if the device fails.
        placement.parts.iter_mut().filter(|part| part.program.is_some()).for_each(Part::forget_model);
        let mut last = HashMap::new();
        for (at, part) in placement.parts.iter().enumerate() {
            last.extend(part.network.graph.input.iter().map(|input| (input.name.clone(), at)));
        }
        let floats =
            placement.parts.iter().map(|part| shadow::computes_floats(&part.network, &types)).collect();
        let seconds = vec![None; placement.parts.len()];
        let failures = vec![(0, String::new()); placement.parts.len()];
        let strict = options.strict;
        Ok(Bucket { shapes, network, placement, floats, strict, last, seconds, failures, activations })
    }

    /// Computes the outputs.
    pub(super) fn run(
        &mut self,
        inputs: &HashMap<String, Value>,
        cpu: EngineDevice,
    ) -> Result<Vec<(String, Value)>> {
        let mut values: HashMap<String, Value> = HashMap::new();
        for (name, value) in inputs {
            values.insert(name.clone(), value.to_device(cpu)?);
        }
        let outputs: Vec<String> =
            self.network.graph.output.iter().map(|output| output.name.clone()).collect();
        for (at, part) in self.placement.parts.iter_mut().enumerate() {
            let start = Instant::now();
            let given = given(part, &values)?;
            let made = match on_device(part, &given, self.floats[at]) {
                Some(Ok(made)) => made,
                Some(Err(error @ Error::Engine(phynexus::Error::Interrupted))) => return Err(error),
                Some(Err(error)) if self.strict => return Err(error),
                Some(Err(error)) => {
                    self.failures[at] = (self.failures[at].0 + 1, error.to_string());
                    part.model(cpu)?.run(given, &Generator::new(0))?
                }
                None => part.model(cpu)?.run(given, &Generator::new(0))?,
            };
            self.seconds[at] = Some(start.elapsed().as_secs_f64());
            let names = part.network.graph.output.iter().map(|output| output.name.clone());
            values.extend(names.zip(made));
            values.retain(|name, _| {
                outputs.contains(name) || self.last.get(name).is_some_and(|&last| last > at)
            });
        }
        let output = |name: String| {
            let value = match values.get(&name) {
                Some(value) => Some(value.clone()),
                None => self.network.value(&name)?,
            };
            let value = value.ok_or_else(|| Error::Invalid(format!("nothing makes the output {name:?}")))?;
            Ok((name, value))
        };
        outputs.into_iter().map(output).collect()
    }

    /// What the runtimes have allocated, as far as they say.
    pub(super) fn allocated(&self) -> Option<u64> {
        let programs = self.placement.parts.iter().filter_map(|part| part.program.as_ref());
        programs.filter_map(|program| program.memory()).reduce(u64::saturating_add)
    }

    /// Where the nodes are.
    pub(super) fn report(&self, report: &mut Report) {
        let nodes = &self.network.graph.node;
        let place = |at: usize| {
            let holds = |part: &&Part| part.nodes.contains(&at);
            let copies = |part: &&Part| part.copies.contains(&at);
            let parts = &self.placement.parts;
            match parts.iter().find(holds) {
                Some(part) if part.program.is_some() => Place::Device,
                Some(_) => {
                    let reason = self.placement.refused.get(&at).cloned();
                    Place::Cpu(reason.unwrap_or_else(|| "the device does not take it".to_owned()))
                }
                None => match parts.iter().filter(copies).all(|part| part.program.is_some()) {
                    true => Place::Device,
                    false => Place::Cpu("what reads it runs on the CPU".to_owned()),
                },
            }
        };
        report.nodes = (nodes.iter().enumerate())
            .map(|(at, node)| Placed {
                node: node.name.clone(),
                operator: node.op_type.clone(),
                place: place(at),
            })
            .collect();
        let part = |(at, part): (usize, &Part)| {
            let refused: BTreeSet<&String> =
                part.nodes.iter().filter_map(|node| self.placement.refused.get(node)).collect();
            PartReport {
                on_device: part.program.is_some(),
                nodes: part.nodes.iter().map(|&node| nodes[node].name.clone()).collect(),
                reasons: refused.into_iter().cloned().collect(),
                named: part.program.as_ref().map_or(0, |program| program.placement().len()),
                seconds: self.seconds.get(at).copied().flatten(),
            }
        };
        report.parts = self.placement.parts.iter().enumerate().map(part).collect();
        report.splits.clone_from(&self.placement.splits);
        let failed = self.failures.iter().enumerate().filter(|(_, (count, _))| *count > 0);
        let line = |(at, (count, error)): (usize, &(u64, String))| match count {
            1 => format!("part {at}: {error}; the CPU computed it"),
            _ => format!("part {at}: {error}; the CPU computed it, {count} times"),
        };
        report.failures = failed.map(line).collect();
    }
}

/// The network with inputs and outputs of the types that were observed.
fn fixed(network: &Network, types: &HashMap<String, ValueType>) -> Network {
    let mut fixed = network.clone();
    for port in fixed.graph.input.iter_mut().chain(&mut fixed.graph.output) {
        if let Some(value) = types.get(&port.name) {
            *port = edit::info(&port.name, value.element, &value.shape);
        }
    }
    fixed.graph.value_info.clear();
    fixed
}

/// What a part reads.
fn given(part: &Part, values: &HashMap<String, Value>) -> Result<HashMap<String, Value>> {
    let value = |name: &String| {
        let value = values.get(name).cloned();
        Ok((name.clone(), value.ok_or_else(|| Error::Invalid(format!("the input {name:?} is missing")))?))
    };
    part.network.graph.input.iter().map(|input| value(&input.name)).collect()
}

/// Runs a part on the device; `None` if it is not there. For one that computes with floats, numbers beyond the range of
/// 16 bits are an error.
fn on_device(part: &mut Part, given: &HashMap<String, Value>, is_float: bool) -> Option<Result<Vec<Value>>> {
    let program = part.program.as_deref_mut()?;
    let graph = &part.network.graph;
    let mut compute = || {
        if is_float {
            given.iter().try_for_each(|(name, value)| range::check_given(name, value.tensor()?))?;
        }
        let made = run(program, &part.network, given)?;
        if is_float {
            let mut outputs = graph.output.iter().zip(&made);
            outputs.try_for_each(|(output, tensor)| range::check_made(&output.name, tensor))?;
        }
        Ok(made.into_iter().map(Value::Tensor).collect())
    };
    Some(compute())
}

/// Runs what was compiled of a network.
fn run(program: &mut dyn Program, network: &Network, given: &HashMap<String, Value>) -> Result<Vec<Tensor>> {
    let inputs = network.graph.input.iter().filter_map(|input| given.get(&input.name));
    let tensors: Vec<Tensor> = inputs.map(|value| Ok(value.tensor()?.clone())).collect::<Result<_>>()?;
    program.run(&tensors)
}

/// A node that differs from the CPU.
struct Difference {
    /// The part and the node, as positions.
    part: usize,
    node: usize,
    error: Error,
}

/// Compares the parts with the CPU for each sample, up to the first node that differs.
fn check_all(
    subject: &Subject<'_>,
    placement: &mut Placement,
    samples: &[&HashMap<String, Value>],
    cpu: EngineDevice,
) -> Result<Option<Difference>> {
    for sample in samples {
        if let Some(found) = check(subject, placement, sample, cpu)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Runs the parts on the CPU one after the other, and compares those on the device with it. A part that does not run on
/// the device moves to the CPU.
fn check(
    subject: &Subject<'_>,
    placement: &mut Placement,
    sample: &HashMap<String, Value>,
    cpu: EngineDevice,
) -> Result<Option<Difference>> {
    let reference = Reference::new(subject.network, subject.types, sample, cpu);
    let mut values = sample.clone();
    for at in 0..placement.parts.len() {
        let part = &mut placement.parts[at];
        let inputs = given(part, &values)?;
        let found = part.program.as_deref_mut().map(|program| run(program, &part.network, &inputs));
        let expected = part.model(cpu)?.run(inputs.clone(), &Generator::new(0))?;
        let names = part.network.graph.output.iter().map(|output| output.name.clone());
        values.extend(names.zip(expected.iter().cloned()));
        match found {
            Some(Ok(found)) => {
                if let Some(mismatch) = reference.compare(&part.network, &expected, &found)? {
                    let (node, error) = locate(subject, &reference, part, &inputs, mismatch, cpu)?;
                    return Ok(Some(Difference { part: at, node, error }));
                }
            }
            Some(Err(error @ Error::Engine(phynexus::Error::Interrupted))) => return Err(error),
            Some(Err(error)) => {
                subject.give_up(placement, at, &format!("it does not run on the device: {error}"))?;
            }
            None => {}
        }
    }
    Ok(None)
}

/// The position of the first node of a part that differs, and an error that names it: beginnings of the part are
/// compiled by themselves.
fn locate(
    subject: &Subject<'_>,
    reference: &Reference<'_>,
    part: &Part,
    inputs: &HashMap<String, Value>,
    whole: Mismatch,
    cpu: EngineDevice,
) -> Result<(usize, Error)> {
    let links = subject.network.links();
    let maker = links.maker.get(&whole.value).copied();
    let mut found = (maker.unwrap_or(part.nodes[0]), whole);
    let options = Options { strict: true, cache: None, ..subject.options.clone() };
    // The first `right` units differ, the first `wrong` do not, or cannot be compiled by themselves.
    let (mut wrong, mut right) = (0, part.nodes.len() + 1);
    while right - wrong > 1 {
        let middle = wrong + (right - wrong) / 2;
        let Some((node, network)) = subject.beginning(part, middle)? else {
            right = middle;
            continue;
        };
        let given: HashMap<String, Value> = (network.graph.input.iter())
            .filter_map(|input| Some((input.name.clone(), inputs.get(&input.name)?.clone())))
            .collect();
        let made = subject.runtime.compile(&network, &options);
        let Ok(made) = made.and_then(|mut program| run(&mut *program, &network, &given)) else {
            wrong = middle;
            continue;
        };
        let expected = network.model(cpu)?.run(given, &Generator::new(0))?;
        match reference.compare(&network, &expected, &made)? {
            Some(mismatch) => (right, found) = (middle, (node, mismatch)),
            None => wrong = middle,
        }
    }
    let (at, mismatch) = found;
    let node = &subject.network.graph.node[at];
    let error = Error::Difference {
        device: subject.device.to_owned(),
        node: node.name.clone(),
        operator: node.op_type.clone(),
        value: mismatch.value,
        difference: mismatch.difference,
        bound: mismatch.bound,
    };
    Ok((at, error))
}
