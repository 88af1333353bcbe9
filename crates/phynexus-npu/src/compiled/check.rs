//! Comparing a part on a device with the CPU.
//!
//! A difference is accepted if it is within the error of quantization itself. That error, E, is measured on the
//! samples: it is the largest difference between the quantized network and the same network whose values are not
//! rounded when they are quantized, and whose weights are moved by up to half a step, as rounding moved them (see
//! `shadow.rs`). The error of rounding is spread evenly over half a step to both sides, with a standard deviation of
//! 1/√12 of a step. Fixed-point arithmetic may be off by a whole step wherever a number is quantized, because it rounds
//! intermediate results, or cuts digits off where the CPU rounds (Qualcomm's HTP does in 16 bits). That is √12 times as
//! much, so that √12 E are accepted. `STEPS` steps of the result itself are added: for its own rounding, and because E
//! is small by chance for some samples.
//!
//! Floating-point arithmetic may be that of 16 bits: there E is the difference between the network and the same with
//! each number rounded to 16 bits, or of a network of 16 bits and the same in `float32`. 4 E plus two units in the last
//! place of the largest result leave room for rounding within operators.
//!
//! Integers that are not quantized numbers, such as the position of a maximum, must be equal, unless rounding changes
//! them on the CPU, too.

use std::collections::HashMap;

use neurenix_onnx::{
    Value,
    edit::{Links, Network, ValueType},
};
use phynexus::{DType, Device, Tensor, tensor::Generator};

use super::shadow::{self, Quantity};
use crate::{
    Error, Result,
    place::{is_dequantize, is_quantize},
};

/// Steps of a quantized result that are within its own rounding.
const STEPS: f64 = 2.0;
/// The errors of quantization that a result may be off by: √12.
const QUANTIZATION_ERRORS: f64 = 3.4641;
/// The errors of rounding to 16 bits that a result may be off by.
const ROUNDING_ERRORS: f64 = 4.0;
/// Two units in the last place of a float of 16 bits, relative to a number.
const HALF_UNITS: f64 = 2.0 / 1024.0;

/// A result that differs by more than its bound.
#[derive(Debug)]
pub(super) struct Mismatch {
    /// The value.
    pub(super) value: String,
    /// The largest difference of an element.
    pub(super) difference: f64,
    /// The bound.
    pub(super) bound: f64,
}

/// A network's values for a sample as errors of number formats change them.
pub(super) struct Reference<'n> {
    network: &'n Network,
    links: Links,
    sample: &'n HashMap<String, Value>,
    cpu: Device,
    /// The network with other errors of quantization.
    smooth: Option<Network>,
    /// The network with floats of 16 bits, or one of 16 bits with longer ones.
    half: Option<Network>,
}

impl<'n> Reference<'n> {
    /// A network, the types of its values, and a sample of its inputs.
    pub(super) fn new(
        network: &'n Network,
        types: &HashMap<String, ValueType>,
        sample: &'n HashMap<String, Value>,
        cpu: Device,
    ) -> Reference<'n> {
        Reference {
            network,
            links: network.links(),
            sample,
            cpu,
            smooth: shadow::without_quantization(network),
            half: shadow::in_half_precision(network, types)
                .or_else(|| shadow::in_single_precision(network, types)),
        }
    }

    /// The output of a part that differs the most from the CPU's in proportion to its bound, if one differs by more:
    /// `found` and `expected` are the values of the part's outputs.
    pub(super) fn compare(
        &self,
        part: &Network,
        expected: &[Value],
        found: &[Tensor],
    ) -> Result<Option<Mismatch>> {
        if found.len() != expected.len() {
            return Err(Error::Invalid(format!(
                "the runtime computed {} outputs of a part that has {}",
                found.len(),
                expected.len()
            )));
        }
        let names: Vec<String> = part.graph.output.iter().map(|output| output.name.clone()).collect();
        // A network whose types do not allow it has no such forms; then its errors count as zero.
        let values = |shadow: &Option<Network>| {
            let model = shadow.as_ref()?.with_outputs(&names).model(self.cpu).ok()?;
            model.run(self.sample.clone(), &Generator::new(0)).ok()
        };
        let (smooth, half) = (values(&self.smooth), values(&self.half));
        let mut worst: Option<Mismatch> = None;
        for (at, (name, (expected, found))) in names.iter().zip(expected.iter().zip(found)).enumerate() {
            let expected = expected.tensor()?;
            let at_value = |values: &Option<Vec<Value>>| values.as_ref().and_then(|v| v.get(at)).cloned();
            let found = self.judge(name, expected, found, at_value(&smooth), at_value(&half))?;
            let excess = |m: &Mismatch| m.difference / m.bound.max(f64::MIN_POSITIVE);
            if let Some(found) = found
                && worst.as_ref().is_none_or(|known| excess(known) < excess(&found))
            {
                worst = Some(found);
            }
        }
        Ok(worst)
    }

    /// One output.
    fn judge(
        &self,
        name: &str,
        expected: &Tensor,
        found: &Tensor,
        smooth: Option<Value>,
        half: Option<Value>,
    ) -> Result<Option<Mismatch>> {
        let quantity = self.quantity(name);
        let is_integer = !expected.dtype().is_float();
        let real = |tensor: &Tensor| -> Result<Vec<f64>> {
            let mut numbers = tensor.to_dtype(DType::F64)?.to_vec::<f64>()?;
            if let Some(quantity) = quantity.filter(|_| !tensor.dtype().is_float()) {
                numbers.iter_mut().for_each(|x| *x = (*x - quantity.zero) * quantity.scale);
            }
            Ok(numbers)
        };
        let numbers = real(expected)?;
        let error = |shadow: Option<Value>| -> Result<f64> {
            let Some(shadow) = shadow else { return Ok(0.0) };
            // What overflows in 16 bits excuses nothing.
            Ok(Some(largest(&numbers, &real(shadow.tensor()?)?)).filter(|e| e.is_finite()).unwrap_or(0.0))
        };
        let scale = numbers.iter().filter(|x| x.is_finite()).fold(0.0, |most: f64, x| most.max(x.abs()));
        let units = if half.is_some() && !is_integer { HALF_UNITS * scale } else { 0.0 };
        let bound = STEPS * quantity.map_or(0.0, |quantity| quantity.scale)
            + QUANTIZATION_ERRORS * error(smooth)?
            + ROUNDING_ERRORS * error(half)?
            + units;
        let difference = match expected.shape() == found.shape() {
            true => largest(&numbers, &real(found)?),
            false => f64::INFINITY,
        };
        // Sums of float32 have errors of their own, about this much.
        let is_within = difference <= bound + 1e-5 * if is_integer { 0.0 } else { scale };
        Ok((!is_within).then(|| Mismatch { value: name.to_owned(), difference, bound }))
    }

    /// The scale of a value that is quantized, or that was quantized and then only moved.
    fn quantity(&self, name: &str) -> Option<Quantity> {
        const MOVES: [&str; 9] = [
            "Reshape",
            "Flatten",
            "Transpose",
            "Squeeze",
            "Unsqueeze",
            "Identity",
            "MaxPool",
            "Slice",
            "Gather",
        ];
        let mut name = name.to_owned();
        // A path has no cycle, so that it has at most as many nodes as the part.
        for _ in 0..self.network.graph.node.len() {
            let node = &self.network.graph.node[*self.links.maker.get(&name)?];
            if is_quantize(node) || is_dequantize(node) {
                return Quantity::of(self.network, node);
            }
            if !MOVES.contains(&&*node.op_type) {
                return None;
            }
            name = node.input.first()?.clone();
        }
        None
    }
}

/// The largest difference of two lists of numbers; equal infinities, and two that are not numbers, do not differ.
fn largest(one: &[f64], other: &[f64]) -> f64 {
    if one.len() != other.len() {
        return f64::INFINITY;
    }
    let difference = |(x, y): (&f64, &f64)| match x == y || x.is_nan() && y.is_nan() {
        true => 0.0,
        false => Some((x - y).abs()).filter(|d| !d.is_nan()).unwrap_or(f64::INFINITY),
    };
    one.iter().zip(other).map(difference).fold(0.0, f64::max)
}
