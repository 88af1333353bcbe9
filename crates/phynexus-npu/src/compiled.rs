//! Networks on a device, with the CPU for what it does not take.

mod bucket;
mod check;
mod memory;
mod range;
mod report;
mod shadow;

use std::collections::HashMap;

use neurenix_onnx::{Value, edit::Network};
use phynexus::Device as EngineDevice;

use self::bucket::{Bucket, Shapes};
pub use self::{
    memory::Memory,
    report::{PartReport, Report},
};
use crate::{Device, Error, Options, Result};

/// The most sets of input shapes that stay compiled; the one that was used least recently goes.
const BUCKETS: usize = 8;

/// A network that is compiled for a device.
///
/// Runtimes compile networks of fixed shapes. For each set of input shapes, the network is compiled when it is first
/// needed, and up to 8 sets stay compiled.
#[derive(Debug)]
pub struct Compiled {
    network: Network,
    device: Device,
    options: Options,
    cpu: EngineDevice,
    /// The most recently used last. Never empty.
    buckets: Vec<Bucket>,
}

impl Compiled {
    /// Compiles a network for a device, and compares each part with the CPU on the samples: values for each input.
    ///
    /// The bound of a difference is that of the number formats: two steps of a quantized result, plus √12 times what
    /// quantization itself changes; for floating-point arithmetic, four times what rounding to 16 bits changes. A node
    /// that differs by more runs on the CPU, with that as its reason in the report, and the parts are compiled again.
    ///
    /// # Errors
    /// If there is no sample, or one does not fit the inputs. In strict mode ([`Options::strict`]), if the device does
    /// not take all nodes: [`Error::Refused`] names them all with reasons; if a part differs from the CPU by more than
    /// its bound: [`Error::Difference`] names the first node that does. If the network does not fit the memory limit:
    /// [`Error::Memory`].
    pub fn compile(
        network: &Network,
        device: &Device,
        samples: &[HashMap<String, Value>],
        options: &Options,
    ) -> Result<Compiled> {
        let mut network = network.clone();
        network.prune();
        network.sort()?;
        // What is stored is no input: runtimes would not take it for constant.
        let stored = network.clone();
        network.graph.input.retain(|input| stored.stored(&input.name).is_none());
        let mut compiled = Compiled {
            network,
            device: device.clone(),
            options: options.clone(),
            cpu: EngineDevice::find("cpu")?,
            buckets: Vec::new(),
        };
        let mut by_shape: Vec<(Shapes, Vec<&HashMap<String, Value>>)> = Vec::new();
        for sample in samples {
            let shapes = compiled.shapes(sample)?;
            match by_shape.iter_mut().find(|(known, _)| *known == shapes) {
                Some((_, same)) => same.push(sample),
                None => by_shape.push((shapes, vec![sample])),
            }
        }
        if by_shape.is_empty() {
            return Err(Error::Invalid(
                "compiling for a device needs at least one sample of the inputs, to compare it with the CPU"
                    .to_owned(),
            ));
        }
        for (shapes, same) in by_shape {
            compiled.add(shapes, &same)?;
        }
        Ok(compiled)
    }

    /// Computes the outputs by name, in the order of the network's.
    ///
    /// Inputs of shapes that are not compiled are compiled first, with themselves as the sample. If a part fails on the
    /// device, the CPU computes it, and [`Compiled::placement_report`] says so. That counts as a failure, too: floats
    /// that a part on the device reads or makes and that are not finite or beyond 65504, the range of 16 bits.
    ///
    /// # Errors
    /// If inputs are missing, unknown or of other types, or a part fails on the CPU; in strict mode, if one fails on
    /// the device. For new shapes, as for [`Compiled::compile`].
    pub fn run(&mut self, inputs: &HashMap<String, Value>) -> Result<Vec<(String, Value)>> {
        let shapes = self.shapes(inputs)?;
        match self.buckets.iter().position(|bucket| bucket.shapes == shapes) {
            Some(at) => self.buckets[at..].rotate_left(1),
            None => self.add(shapes, &[inputs])?,
        }
        let Some(bucket) = self.buckets.last_mut() else {
            return Err(Error::Invalid("the network is not compiled".to_owned()));
        };
        bucket.run(inputs, self.cpu)
    }

    /// Where each node runs, for the input shapes that were used last.
    pub fn placement_report(&self) -> Report {
        let mut report = Report {
            device: self.device.name().to_owned(),
            properties: self.device.properties().clone(),
            nodes: Vec::new(),
            parts: Vec::new(),
            splits: Vec::new(),
            failures: Vec::new(),
        };
        if let Some(bucket) = self.buckets.last() {
            bucket.report(&mut report);
        }
        report
    }

    /// The memory that all compiled input shapes together use, and the most that values between nodes need.
    pub fn memory(&self) -> Memory {
        let mut sum = Memory { weights: memory::weights(&self.network), ..Memory::default() };
        for bucket in &self.buckets {
            sum.activations = sum.activations.max(bucket.activations);
            if let Some(bytes) = bucket.allocated() {
                sum.allocated = Some(sum.allocated.unwrap_or(0).saturating_add(bytes));
            }
        }
        sum
    }

    /// How many sets of input shapes are compiled.
    pub fn bucket_count(&self) -> usize {
        self.buckets.len()
    }

    /// The shapes of values for all inputs.
    fn shapes(&self, inputs: &HashMap<String, Value>) -> Result<Shapes> {
        let known: Vec<&str> = self.network.graph.input.iter().map(|input| &*input.name).collect();
        if let Some(unknown) = inputs.keys().find(|name| !known.contains(&name.as_str())) {
            let known = known.join(", ");
            return Err(Error::Invalid(format!("there is no input {unknown:?}; there are {known}")));
        }
        let shape = |name: &&str| {
            let value = inputs.get(*name);
            let value = value.ok_or_else(|| Error::Invalid(format!("the input {name:?} is missing")))?;
            Ok((value.element(), value.shape().map(<[usize]>::to_vec).unwrap_or_default()))
        };
        known.iter().map(shape).collect()
    }

    /// Compiles for new shapes.
    fn add(&mut self, shapes: Shapes, samples: &[&HashMap<String, Value>]) -> Result<()> {
        let bucket = Bucket::new(&self.network, shapes, samples, &self.device, &self.options, self.cpu)?;
        if self.buckets.len() == BUCKETS {
            self.buckets.remove(0);
        }
        self.buckets.push(bucket);
        Ok(())
    }
}
