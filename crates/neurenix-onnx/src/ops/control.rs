//! Control flow.

use phynexus::{Device, Tensor, host_memory, interrupt};

use super::{
    Rows,
    sequence::{blank, joined, part, reshaped},
};
use crate::{
    Element, Error, Result, Text, Value,
    graph::{Call, Graph},
    shapes,
    types::{Size, Type},
    value::integers,
};

pub(super) const ROWS: Rows = &[("If", if_), ("Loop", loop_), ("Scan", scan)];

fn if_(call: &Call<'_>) -> Result<Vec<Value>> {
    let branch = call.graph(if is_true(call.value(0)?)? { "then_branch" } else { "else_branch" })?;
    call.run(&branch, Vec::new())
}

/// Reads a condition.
fn is_true(value: &Value) -> Result<bool> {
    match integers(value.tensor()?)?[..] {
        [number] => Ok(number != 0),
        ref all => Err(Error::invalid(format!("a condition must be one boolean, it has {}", all.len()))),
    }
}

fn loop_(call: &Call<'_>) -> Result<Vec<Value>> {
    let graph = call.graph("body")?;
    let trips = match call.optional_integers(0)?.as_deref() {
        None => None,
        Some(&[trips]) => Some(trips),
        Some(all) => {
            return Err(Error::invalid(format!("the trip count must be one number, it has {}", all.len())));
        }
    };
    // Without a condition, that of the body is ignored.
    let conditional = call.has(1);
    if trips.is_none() && !conditional {
        return Err(Error::invalid("the loop never ends: it has neither a trip count nor a condition"));
    }
    let mut condition = match conditional {
        true => call.value(1)?.clone(),
        false => Value::Tensor(Tensor::scalar(true, Device::find("cpu")?)?),
    };
    let mut states = (2..call.count()).map(|input| call.value(input).cloned()).collect::<Result<Vec<_>>>()?;
    let body = Body::new(call, &graph, states.len() + 2, states.len(), 1)?;
    let mut scanned = body.nothing();
    let mut goes_on = !conditional || is_true(&condition)?;
    let mut trip = 0;
    while goes_on && trips.is_none_or(|trips| trip < trips) {
        interrupt::check()?;
        let inputs = [call.shape_number(trip)?, condition].into_iter().chain(states).collect();
        let mut results = body.step(inputs, &mut scanned)?;
        states = results.split_off(1);
        condition = results.swap_remove(0);
        goes_on = !conditional || is_true(&condition)?;
        trip += 1;
    }
    let scans = match trip {
        0 => {
            let inputs: Vec<Value> =
                [call.shape_number(0)?, condition].into_iter().chain(states.iter().cloned()).collect();
            body.scans_of_no_steps(&inputs, &[])?
        }
        _ => body.scans(scanned, &[], &[])?,
    };
    states.extend(scans);
    Ok(states)
}

fn scan(call: &Call<'_>) -> Result<Vec<Value>> {
    let graph = call.graph("body")?;
    let count = usize::try_from(call.int_or("num_scan_inputs", 0)?).unwrap_or(0);
    let batched = call.opset() < 9;
    let values = (usize::from(batched)..call.count()).map(|input| call.value(input).cloned());
    let mut states = values.collect::<Result<Vec<_>>>()?;
    if count == 0 || count > states.len() {
        return Err(Error::invalid(format!(
            "num_scan_inputs is {count}, but there are {} inputs",
            states.len()
        )));
    }
    let inputs = states.split_off(states.len() - count);
    let body = Body::new(call, &graph, states.len() + count, states.len(), 0)?;
    let numbers = |name: &str, expected: usize| match call.ints(name)? {
        None => Ok(vec![0; expected]),
        Some(all) if all.len() == expected => Ok(all),
        Some(all) => {
            Err(Error::invalid(format!("attribute {name:?} has {} numbers, it needs {expected}", all.len())))
        }
    };
    if batched {
        return batches(call, &body, &states, &inputs, &numbers("directions", count)?);
    }
    let directions = numbers("scan_input_directions", count)?;
    let input_axes = numbers("scan_input_axes", count)?;
    let mut scans = Vec::new();
    for ((value, axis), direction) in inputs.into_iter().zip(input_axes).zip(directions) {
        let axis = call.axis(axis, value.shape()?.len())?;
        scans.push(Scanned { value, axis, reversed: direction != 0 });
    }
    let outputs = body.nothing().len();
    let axes = numbers("scan_output_axes", outputs)?;
    let (mut states, outputs) =
        body.scan(states, &scans, None, &axes, &numbers("scan_output_directions", outputs)?)?;
    states.extend(outputs);
    Ok(states)
}

/// `Scan` of opset 8: a scan for each entry of the first axis, along the second. Outputs of shorter sequences are
/// padded.
fn batches(
    call: &Call<'_>,
    body: &Body<'_>,
    states: &[Value],
    inputs: &[Value],
    directions: &[i64],
) -> Result<Vec<Value>> {
    let [batch, longest, ..] = *inputs[0].shape()? else {
        return Err(Error::invalid("a scan input must have a batch axis and a sequence axis"));
    };
    let entry = |value: &Value, at: usize| match value.shape()? {
        [size, inner @ ..] if *size == batch => reshaped(&part(value, 0, at, 1)?, inner),
        other => Err(Error::invalid(format!(
            "the first axis must be the batch of {batch}, the shape is {other:?}"
        ))),
    };
    let lengths = call.optional_integers(0)?;
    let mut results: Vec<Vec<Value>> = Vec::new();
    for at in 0..batch {
        let given = lengths.as_ref().map(|all| all.get(at).and_then(|&length| usize::try_from(length).ok()));
        let length = match given {
            None => longest,
            Some(Some(length)) if length <= longest => length,
            Some(_) => {
                return Err(Error::invalid(format!(
                    "sequence_lens must have {batch} lengths up to {longest}"
                )));
            }
        };
        let own = states.iter().map(|state| entry(state, at)).collect::<Result<_>>()?;
        let scans = inputs.iter().zip(directions).map(|(value, &direction)| {
            Ok(Scanned { value: entry(value, at)?, axis: 0, reversed: direction != 0 })
        });
        let scans = scans.collect::<Result<Vec<_>>>()?;
        let (mut all, outputs) = body.scan(own, &scans, Some(length), &[], &[])?;
        for output in outputs {
            let mut rest = output.shape().unwrap_or_default().to_vec();
            all.push(match rest.first_mut() {
                Some(extent) if length < longest => {
                    *extent = longest - length;
                    let padding = blank(&output, &rest)?;
                    joined(call, &[output, padding], 0, false)?
                }
                _ => output,
            });
        }
        results.resize(all.len(), Vec::new());
        results.iter_mut().zip(all).for_each(|(batches, result)| batches.push(result));
    }
    let stacked = |(at, all): (usize, Vec<Value>)| match call.wants(at) {
        true => joined(call, &all, 0, true),
        false => Ok(Value::Optional(None)),
    };
    results.into_iter().enumerate().map(stacked).collect()
}

/// A tensor without elements.
fn empty(element: Element, shape: Vec<usize>, device: Device) -> Result<Value> {
    if element == Element::String {
        return Ok(Value::Text(Text { shape, values: Vec::new() }));
    }
    let dtype = element.dtype().ok_or_else(|| Error::unsupported(format!("tensors of {element:?}")))?;
    Ok(Value::of_element(Tensor::zeros(&shape, dtype, device)?, element))
}

/// A tensor whose slices are inputs of the steps of a loop.
struct Scanned {
    value: Value,
    axis: usize,
    reversed: bool,
}

/// The graph of the steps of a loop. Its inputs end with the states and the slices of a step; it has the new states and
/// the scan outputs as its last outputs.
struct Body<'a> {
    call: &'a Call<'a>,
    graph: &'a Graph,
    states: usize,
    /// The number of outputs in front of the states.
    before: usize,
}

impl<'a> Body<'a> {
    fn new(
        call: &'a Call<'a>,
        graph: &'a Graph,
        inputs: usize,
        states: usize,
        before: usize,
    ) -> Result<Body<'a>> {
        // Inputs beyond these have initializers in old files.
        if graph.inputs.len() < inputs || graph.outputs.len() < before + states {
            return Err(Error::invalid(format!(
                "the body has {} inputs and {} outputs, it needs {inputs} inputs and at least {} outputs",
                graph.inputs.len(),
                graph.outputs.len(),
                before + states
            )));
        }
        Ok(Body { call, graph, states, before })
    }

    /// No results of steps yet, for each scan output.
    fn nothing(&self) -> Vec<Vec<Value>> {
        vec![Vec::new(); self.graph.outputs.len() - self.before - self.states]
    }

    fn wants(&self, scan: usize) -> bool {
        self.call.wants(self.states + scan)
    }

    /// Runs a step: collects those of its scan outputs that something reads, and returns its other results.
    fn step(&self, inputs: Vec<Value>, scanned: &mut [Vec<Value>]) -> Result<Vec<Value>> {
        let mut results = self.call.run(self.graph, inputs.into_iter().map(Some).collect())?;
        let scans = results.split_off(self.before + self.states);
        for (_, (all, result)) in scanned.iter_mut().zip(scans).enumerate().filter(|(at, _)| self.wants(*at))
        {
            host_memory::push(all, result)?;
        }
        Ok(results)
    }

    /// The scan outputs of all steps. An axis or direction that is left out is 0.
    fn scans(&self, scanned: Vec<Vec<Value>>, axes: &[i64], directions: &[i64]) -> Result<Vec<Value>> {
        let output = |(at, mut all): (usize, Vec<Value>)| {
            if !self.wants(at) {
                return Ok(Value::Optional(None));
            }
            if directions.get(at).is_some_and(|&direction| direction != 0) {
                all.reverse();
            }
            joined(self.call, &all, axes.get(at).copied().unwrap_or(0), true)
        };
        scanned.into_iter().enumerate().map(output).collect()
    }

    /// Scan outputs without elements. Their types are inferred and declared ones; an extent that neither tells is 0.
    fn scans_of_no_steps(&self, inputs: &[Value], axes: &[i64]) -> Result<Vec<Value>> {
        let count = self.graph.outputs.len() - self.before - self.states;
        if (0..count).all(|at| !self.wants(at)) {
            return Ok(vec![Value::Optional(None); count]);
        }
        let types = shapes::of_body(self.graph, inputs, |name| self.call.scope.get(name));
        let scans = types.iter().zip(&self.graph.outputs).skip(self.before + self.states).enumerate();
        let scan = |(at, (found, name)): (usize, (&Type, &String))| {
            if !self.wants(at) {
                return Ok(Value::Optional(None));
            }
            let Type::Tensor { element: Some(element), shape: Some(sizes) } = found else {
                return Err(Error::invalid(format!(
                    "no step is taken, and the type of the body's output {name:?} is not known: the file must declare it"
                )));
            };
            let mut shape: Vec<usize> =
                sizes.iter().map(|size| size.as_ref().and_then(Size::as_extent).unwrap_or(0)).collect();
            let axis = self.call.axis(axes.get(at).copied().unwrap_or(0), shape.len() + 1)?;
            shape.insert(axis, 0);
            empty(*element, shape, self.call.environment.device)
        };
        scans.map(scan).collect()
    }

    /// Runs a step for each slice, or for the first `length` of them. Returns the final states and the scan outputs.
    fn scan(
        &self,
        mut states: Vec<Value>,
        scans: &[Scanned],
        length: Option<usize>,
        axes: &[i64],
        directions: &[i64],
    ) -> Result<(Vec<Value>, Vec<Value>)> {
        let extents = scans.iter().map(|scan| Ok(scan.value.shape()?.get(scan.axis).copied()));
        let extents = extents.collect::<Result<Vec<Option<usize>>>>()?;
        let extent = match extents.first() {
            Some(&Some(extent)) if extents.iter().all(|other| *other == Some(extent)) => extent,
            _ => return Err(Error::invalid("the scan inputs must have one length along their scan axes")),
        };
        let steps = length.unwrap_or(extent);
        let element = |scan: &Scanned, at: usize| {
            let mut shape = scan.value.shape()?.to_vec();
            shape.remove(scan.axis);
            match extent {
                0 => blank(&scan.value, &shape),
                _ => reshaped(&part(&scan.value, scan.axis, at, 1)?, &shape),
            }
        };
        let mut scanned = self.nothing();
        for step in 0..steps {
            interrupt::check()?;
            let slices =
                scans.iter().map(|scan| element(scan, if scan.reversed { steps - 1 - step } else { step }));
            let slices = slices.collect::<Result<Vec<_>>>()?;
            states = self.step(states.into_iter().chain(slices).collect(), &mut scanned)?;
        }
        let outputs = match steps {
            0 => {
                let slices = scans.iter().map(|scan| element(scan, 0)).collect::<Result<Vec<_>>>()?;
                let inputs: Vec<Value> = states.iter().cloned().chain(slices).collect();
                self.scans_of_no_steps(&inputs, axes)?
            }
            _ => self.scans(scanned, axes, directions)?,
        };
        Ok((states, outputs))
    }
}
