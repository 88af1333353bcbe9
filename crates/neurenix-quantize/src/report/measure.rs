//! Compares a quantized network with its float network on samples.

use std::collections::HashMap;

use neurenix_onnx::{
    Element,
    edit::{Links, Network},
    proto::{TensorProto, TypeKind, ValueInfoProto},
};

use super::{Difference, Report};
use crate::{Format, Result, Sample, calibrate::Probe};

impl Report {
    /// Compares a quantized network with its float network on samples: fills in how the first output of each layer and
    /// the outputs of the network differ. Nodes have the same names in both networks.
    ///
    /// # Errors
    /// If a network cannot compute a sample.
    pub fn compare(&mut self, float: &Network, quantized: &Network, samples: &[Sample]) -> Result<()> {
        self.compare_prepared(float, None, quantized, samples)
    }

    /// As [`Report::compare`], with the layers of a prepared float network, of which the quantized network was made.
    /// The outputs are compared with those of the network that the caller gave: what preparation changes counts.
    pub(crate) fn compare_prepared(
        &mut self,
        float: &Network,
        prepared: Option<&Network>,
        quantized: &Network,
        samples: &[Sample],
    ) -> Result<()> {
        let links = quantized.links();
        let (before, after) = (outputs(prepared.unwrap_or(float)), outputs(quantized));
        let mut pairs = Vec::new();
        for layer in &self.layers {
            let known = before.get(layer.node.as_str()).zip(after.get(layer.node.as_str()));
            pairs.push(known.map(|(value, own)| ((*value).clone(), dequantized(quantized, &links, own))));
        }
        let values: Vec<(String, String)> = pairs.iter().flatten().cloned().collect();
        let own = float.graph.output.iter().filter(|output| is_float(output));
        let own: Vec<String> = own.map(|output| output.name.clone()).collect();
        let mut found = differences(float, prepared, quantized, &values, &own, samples)?.into_iter();
        for (layer, _) in self.layers.iter_mut().zip(&pairs).filter(|(_, pair)| pair.is_some()) {
            layer.output = found.next();
        }
        self.outputs = found.collect();
        Ok(())
    }
}

/// The first output of each node, by the node's name.
fn outputs(network: &Network) -> HashMap<&str, &String> {
    let nodes = network.graph.node.iter();
    nodes.filter_map(|node| Some((node.name.as_str(), node.output.first()?))).collect()
}

/// The value that has been quantized and dequantized, if a pair follows; otherwise the value.
fn dequantized(network: &Network, links: &Links, value: &str) -> String {
    let reader = |value: &str, operator: &str| {
        let readers = links.readers.get(value)?.iter().filter_map(|&(at, _)| network.graph.node.get(at));
        readers.into_iter().find(|node| node.op_type == operator)?.output.first()
    };
    let quantized = reader(value, "QuantizeLinear");
    quantized.and_then(|name| reader(name, "DequantizeLinear")).map_or(value, String::as_str).to_owned()
}

/// Whether an output holds floats, as far as the file says.
fn is_float(output: &ValueInfoProto) -> bool {
    match output.r#type.as_ref().and_then(|kind| kind.value.as_ref()) {
        Some(TypeKind::Tensor(tensor)) => Element::of_number(i64::from(tensor.elem_type))
            .and_then(Element::dtype)
            .is_none_or(|dtype| dtype.is_float()),
        Some(_) => false,
        None => true,
    }
}

/// How values of two networks differ on samples: first those of layers, each with its name in both, then the outputs.
/// The layers are those of the prepared network, if there is one.
fn differences(
    float: &Network,
    prepared: Option<&Network>,
    quantized: &Network,
    layers: &[(String, String)],
    outputs: &[String],
    samples: &[Sample],
) -> Result<Vec<Difference>> {
    let (mut names, mut after): (Vec<String>, Vec<String>) = layers.iter().cloned().unzip();
    let given = match prepared {
        Some(prepared) => (Probe::new(prepared, &names)?, Some(Probe::new(float, outputs)?)),
        None => (Probe::new(float, &[&names[..], outputs].concat())?, None),
    };
    names.extend_from_slice(outputs);
    after.extend_from_slice(outputs);
    let after = Probe::new(quantized, &after)?;
    let mut sums = vec![(0f64, 0f64, 0f64); names.len()];
    for sample in samples {
        let mut before = given.0.run(sample)?;
        if let Some(given) = &given.1 {
            before.extend(given.run(sample)?);
        }
        let results = before.into_iter().zip(after.run(sample)?);
        for ((x, q), (signal, noise, greatest)) in results.zip(&mut sums) {
            for (&x, &q) in x.iter().zip(&q) {
                let error = f64::from(x) - f64::from(q);
                *signal += f64::from(x).powi(2);
                *noise += error.powi(2);
                *greatest = greatest.max(error.abs());
            }
        }
    }
    let difference = |(value, (signal, noise, max_error)): (String, (f64, f64, f64))| Difference {
        value,
        sqnr_db: if noise == 0.0 { f64::INFINITY } else { 10.0 * (signal / noise).log10() },
        max_error,
    };
    Ok(names.into_iter().zip(sums).map(difference).collect())
}

/// Bytes of a network's stored tensors, as far as `usize` counts: the extents may be those of a broken file.
pub(crate) fn stored_bytes(network: &Network) -> usize {
    let bytes = |tensor: &TensorProto| {
        let bits = Element::of_number(i64::from(tensor.data_type)).map_or(0, Element::bits);
        let sizes = tensor.dims.iter().map(|&size| usize::try_from(size).unwrap_or(0));
        sizes.fold(1, usize::saturating_mul).saturating_mul(bits).div_ceil(8)
    };
    network.graph.initializer.iter().map(bytes).fold(0, usize::saturating_add)
}

impl Report {
    /// The report as text for a terminal, with aligned columns.
    pub fn table(&self) -> String {
        let decibels = |output: &Difference| match output.sqnr_db == f64::INFINITY {
            true => "exact".to_owned(),
            false => format!("{:.1}", output.sqnr_db),
        };
        let format = |format: Option<Format>| format.map_or_else(String::new, |format| format.to_string());
        let error = |output: &Difference| format!("{:.3e}", output.max_error);
        let head = ["node", "operator", "activations", "weights", "SQNR dB", "largest error"];
        let mut rows = vec![head.map(str::to_owned)];
        rows.extend(self.layers.iter().map(|layer| {
            [
                layer.node.clone(),
                layer.operator.clone(),
                format(layer.activations),
                format(layer.weights),
                layer.output.as_ref().map_or_else(String::new, decibels),
                layer.output.as_ref().map_or_else(String::new, error),
            ]
        }));
        rows.extend(self.outputs.iter().map(|output| {
            let named = format!("output {}", output.value);
            [named, String::new(), String::new(), String::new(), decibels(output), error(output)]
        }));
        let mut widths = [0; 6];
        for row in &rows {
            widths.iter_mut().zip(row).for_each(|(width, cell)| *width = cell.chars().count().max(*width));
        }
        let mut text = String::new();
        for row in &rows {
            let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
                4.. => format!("{cell:>width$}"),
                _ => format!("{cell:<width$}"),
            });
            text += cells.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
        }
        let ratio = self.float_bytes as f64 / self.quantized_bytes.max(1) as f64;
        text += &format!(
            "stored tensors: {} bytes before, {} after ({ratio:.2} times smaller)\n",
            self.float_bytes, self.quantized_bytes
        );
        if let Some((before, after)) = self.accuracy {
            text += &format!("accuracy: {before:.4} before, {after:.4} after\n");
        }
        for (node, reason) in &self.kept_in_float {
            text += &format!("float: {node}: {reason}\n");
        }
        text
    }
}
