//! What quantization did to a network.

mod measure;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::Format;
pub(crate) use measure::stored_bytes;

/// What quantization did to a network. The errors compare both networks on samples. In JSON, the ratio of equal values
/// is `null`; other figures that JSON has no numbers for are the texts `"-inf"`, `"inf"` and `"NaN"`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Difference {
    /// The value's name in the float network.
    pub value: String,
    /// The ratio of signal to quantization noise in decibels, `10 log10(sum x^2 / sum (x - q)^2)`; infinite if equal,
    /// and minus infinity if there is noise where the signal is zero.
    #[serde(serialize_with = "ratio", deserialize_with = "ratio_of")]
    pub sqnr_db: f64,
    /// The largest absolute error.
    #[serde(serialize_with = "number", deserialize_with = "number_of")]
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

/// A figure in JSON.
#[derive(Deserialize)]
#[serde(untagged)]
enum Figure {
    Number(f64),
    Name(String),
}

impl Figure {
    fn value<E: Error>(self) -> Result<f64, E> {
        match self {
            Figure::Number(number) => Ok(number),
            Figure::Name(name) => name.parse().map_err(E::custom),
        }
    }
}

fn ratio_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Option::<Figure>::deserialize(deserializer)?.map_or(Ok(f64::INFINITY), Figure::value)
}

fn number_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Figure::deserialize(deserializer)?.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_every_figure() {
        let figures =
            [(f64::INFINITY, 0.0), (f64::NEG_INFINITY, f64::INFINITY), (31.5, 1e-3), (f64::NAN, f64::NAN)];
        let difference = |&(sqnr_db, max_error)| Difference { value: "y".to_owned(), sqnr_db, max_error };
        let outputs: Vec<Difference> = figures.iter().map(difference).collect();
        let report = Report { outputs, accuracy: Some((0.5, 0.25)), ..Report::default() };
        let text = serde_json::to_string(&report).unwrap();
        let again: Report = serde_json::from_str(&text).unwrap();
        let bits = |report: &Report| -> Vec<[u64; 2]> {
            report.outputs.iter().map(|one| [one.sqnr_db.to_bits(), one.max_error.to_bits()]).collect()
        };
        assert_eq!(bits(&again), bits(&report));
        assert_eq!((again.accuracy, again.outputs.len()), (report.accuracy, 4));
    }
}
