//! What quantization did to a network.

mod measure;

use serde::{Serialize, Serializer};

use crate::Format;
pub(crate) use measure::stored_bytes;

/// What quantization did to a network. The errors compare both networks on samples. In JSON, the ratio of equal values
/// is `null`; other figures that JSON has no numbers for are the texts `"-inf"`, `"inf"` and `"NaN"`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Each quantized node, in the order in which they run.
    pub layers: Vec<Layer>,
    /// The outputs of the network.
    pub outputs: Vec<Difference>,
    /// Bytes of the stored tensors before.
    pub float_bytes: usize,
    /// Bytes of the stored tensors after.
    pub quantized_bytes: usize,
    /// The accuracy before and after, if the caller measured it.
    pub accuracy: Option<(f64, f64)>,
    /// Nodes that stay float, with the reason.
    pub kept_in_float: Vec<(String, String)>,
}

/// A quantized node.
#[derive(Clone, Debug, Serialize)]
pub struct Layer {
    /// The node's name.
    pub node: String,
    /// The type of its operator.
    pub operator: String,
    /// The format of its inputs and outputs; `None` if they stay float.
    pub activations: Option<Format>,
    /// The format of its weight, if it has one.
    pub weights: Option<Format>,
    /// How its first output differs; `None` if no samples were compared.
    pub output: Option<Difference>,
}

/// How a value of the quantized network differs from that of the float network.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// The value's name in the float network.
    pub value: String,
    /// The ratio of signal to quantization noise in decibels, `10 log10(sum x^2 / sum (x - q)^2)`; infinite if equal,
    /// and minus infinity if there is noise where the signal is zero.
    #[serde(serialize_with = "ratio")]
    pub sqnr_db: f64,
    /// The largest absolute error.
    #[serde(serialize_with = "number")]
    pub max_error: f64,
}

/// A ratio in JSON.
fn ratio<S: Serializer>(ratio: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    match *ratio == f64::INFINITY {
        true => serializer.serialize_none(),
        false => number(ratio, serializer),
    }
}

/// A number in JSON, or its name if JSON has none.
fn number<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    match number.is_finite() {
        true => serializer.serialize_f64(*number),
        false => serializer.collect_str(number),
    }
}
