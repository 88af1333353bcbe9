//! Computes a network node by node for all samples, while a program changes the nodes ahead.

use std::collections::{HashMap, HashSet};

use neurenix_onnx::{Value, edit::Network};
use phynexus::{Device, Tensor, tensor::Generator};

use crate::{Result, Sample};

/// How far a network was computed: the values that nodes ahead read. Results that depend on stored tensors alone are
/// computed each time, so that a change of a stored tensor takes effect.
#[derive(Debug)]
pub(crate) struct Walk {
    /// The number of nodes that were computed.
    position: usize,
    /// The values of each sample.
    values: Vec<HashMap<String, Value>>,
    /// Values that stay until [`Walk::release`], whoever reads them.
    kept: HashSet<String>,
}

impl Walk {
    /// Before the first node.
    pub(crate) fn new(samples: &[Sample], kept: HashSet<String>) -> Walk {
        Walk { position: 0, values: samples.to_vec(), kept }
    }

    /// Computes the nodes before `until`. The network's nodes must be in order.
    pub(crate) fn advance(&mut self, network: &Network, until: usize) -> Result<()> {
        if until <= self.position {
            return Ok(());
        }
        let links = network.links();
        let is_ahead = |name: &String| {
            let readers = links.readers.get(name).into_iter().flatten();
            links.kept.contains(name)
                || self.kept.contains(name)
                || readers.into_iter().any(|&(at, _)| at >= until)
        };
        let mut varying: HashSet<&String> = self.values.iter().flat_map(HashMap::keys).collect();
        for node in &network.graph.node {
            let has_body = node.attribute.iter().any(|attribute| attribute.g.is_some());
            if node.input.iter().any(|name| varying.contains(name)) || has_body || node.input.is_empty() {
                varying.extend(&node.output);
            }
        }
        let passed = network.graph.node.get(self.position..until).unwrap_or_default();
        let wanted: Vec<String> = passed
            .iter()
            .flat_map(|node| &node.output)
            .filter(|name| !name.is_empty() && varying.contains(name) && is_ahead(name))
            .cloned()
            .collect();
        let found = self.compute(network, &wanted)?;
        for (values, found) in self.values.iter_mut().zip(found) {
            values.retain(|name, _| is_ahead(name));
            values.extend(wanted.iter().cloned().zip(found));
        }
        self.position = until;
        Ok(())
    }

    /// The values of these names for each sample, without advancing.
    pub(crate) fn compute(&self, network: &Network, wanted: &[String]) -> Result<Vec<Vec<Value>>> {
        let known: HashSet<String> = self.values.iter().flat_map(HashMap::keys).cloned().collect();
        let part = network.between(&known, wanted)?;
        let model = part.model(Device::find("cpu")?)?;
        let run = |values: &HashMap<String, Value>| {
            let input = |input: &neurenix_onnx::Port| {
                values.get(&input.name).map(|value| (input.name.clone(), value.clone()))
            };
            let given = model.inputs().iter().filter_map(input).collect();
            let found = model.run(given, &Generator::new(0))?;
            let tensors: Vec<&Tensor> = found.iter().filter_map(|value| value.tensor().ok()).collect();
            Tensor::evaluate_all(&tensors)?;
            Ok(found)
        };
        self.values.iter().map(run).collect()
    }

    /// The values of one name for each sample, as tensors.
    pub(crate) fn tensors(&self, network: &Network, name: &str) -> Result<Vec<Tensor>> {
        let found = self.compute(network, &[name.to_owned()])?;
        let first = found.into_iter().filter_map(|values| values.into_iter().next());
        first.map(|value| Ok(value.tensor()?.clone())).collect()
    }

    /// Lets a value go that no node ahead reads.
    pub(crate) fn release(&mut self, name: &str) {
        self.kept.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{network, plain, run, samples, weight};

    #[test]
    fn values_are_those_of_the_network_and_changes_take_effect() -> Result<()> {
        let nodes = vec![
            plain("Relu", &["x"], "r"),
            plain("Neg", &["w"], "n"),
            plain("Add", &["r", "n"], "s"),
            plain("Mul", &["s", "x"], "p"),
            plain("Sub", &["p", "n"], "y"),
        ];
        let mut network = network(nodes, vec![weight("w", &[3], 1)], &[2, 3], &[2, 3]);
        let samples = samples(2, &[2, 3]);
        let mut walk = Walk::new(&samples, HashSet::from(["r".to_owned()]));
        let held = |walk: &Walk| {
            let mut names: Vec<&str> = walk.values[0].keys().map(String::as_str).collect();
            names.sort_unstable();
            names.join(" ")
        };
        walk.advance(&network, 3)?;
        assert_eq!(held(&walk), "r s x");
        walk.release("r");
        walk.advance(&network, 4)?;
        assert_eq!(held(&walk), "p");
        // What was computed stays; the stored tensor is read again.
        let before: Vec<Vec<f32>> = samples.iter().map(|sample| run(&network, sample)).collect();
        network.store(weight("w", &[3], 2));
        let after = walk.tensors(&network, "y")?;
        let change = |at: usize| network.floats("w").unwrap().unwrap().1[at % 3];
        let old = crate::support::normal(&[3], 1);
        for (before, after) in before.iter().zip(after) {
            for (at, (before, after)) in before.iter().zip(after.to_vec::<f32>()?).enumerate() {
                assert!((before - old[at % 3] + change(at) - after).abs() < 1e-5);
            }
        }
        Ok(())
    }
}
