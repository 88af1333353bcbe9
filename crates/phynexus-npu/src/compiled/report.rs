//! What ran where.

use std::fmt;

use crate::{Place, Placed, Properties};

/// Where a network's nodes run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The device's name.
    pub device: String,
    /// What it is.
    pub properties: Properties,
    /// Every node. One that the runtime merged into others has their place.
    pub nodes: Vec<Placed>,
    /// The parts in the order in which they run.
    pub parts: Vec<PartReport>,
    /// Why the device's work is in several parts, where that is not because of nodes on the CPU.
    pub splits: Vec<String>,
    /// What failed while it ran, so that the CPU computed it: a line for each part, with its last error and the count.
    pub failures: Vec<String>,
}

/// Nodes that run together.
#[derive(Clone, Debug)]
pub struct PartReport {
    /// Whether they run on the device.
    pub on_device: bool,
    /// Their names.
    pub nodes: Vec<String>,
    /// Why they run on the CPU: each reason once.
    pub reasons: Vec<String>,
    /// How many nodes the runtime's own account of the part names, copies of what dequantizes among them; others it has
    /// merged or computed in advance. 0 on the CPU.
    pub named: usize,
    /// How long the last run took, in seconds, with copies; `None` before the first.
    pub seconds: Option<f64>,
}

impl Report {
    /// How many nodes run on the device.
    pub fn on_device(&self) -> usize {
        self.nodes.iter().filter(|node| node.place == Place::Device).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Properties { vendor, model, runtime, version, nature, .. } = &self.properties;
        writeln!(f, "{}: {vendor} {model} ({nature:?}), {runtime} {version}", self.device)?;
        writeln!(
            f,
            "{} of {} nodes on the device, {} parts",
            self.on_device(),
            self.nodes.len(),
            self.parts.len()
        )?;
        for (at, part) in self.parts.iter().enumerate() {
            let place = if part.on_device { &self.device } else { "cpu" };
            let time = part.seconds.map(|seconds| format!(", {:.3} ms", seconds * 1e3)).unwrap_or_default();
            writeln!(f, "part {at} on {place}{time}: {}", part.nodes.join(", "))?;
            for reason in &part.reasons {
                writeln!(f, "  because: {reason}")?;
            }
        }
        self.splits.iter().try_for_each(|split| writeln!(f, "split {split}"))?;
        self.failures.iter().try_for_each(|failure| writeln!(f, "failed: {failure}"))
    }
}
