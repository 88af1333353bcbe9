//! Errors of quantization.

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong when a network is quantized.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The network is not valid, or a computation failed.
    #[error(transparent)]
    Network(Box<neurenix_onnx::Error>),
    /// Reading or making a tensor failed.
    #[error(transparent)]
    Engine(Box<phynexus::Error>),
    /// There are no samples.
    #[error("calibration needs at least one sample; give batches of typical inputs")]
    NoSamples,
    /// A sample has other inputs than the network.
    #[error("sample {sample}: expected the inputs {}, got {}", expected.join(", "), given.join(", "))]
    Inputs {
        /// The sample's position.
        sample: usize,
        /// The names of the network's inputs.
        expected: Vec<String>,
        /// The names that the sample has.
        given: Vec<String>,
    },
    /// A sample has no rows.
    #[error(
        "sample {sample}: the input {input:?} has no rows; ranges follow from numbers, so give at least one row"
    )]
    EmptySample {
        /// The sample's position.
        sample: usize,
        /// The name of the input.
        input: String,
    },
    /// The network is quantized.
    #[error("the network is quantized already, see the node {node:?}; give the float network")]
    Quantized {
        /// A node that quantizes.
        node: String,
    },
    /// A value is NaN or infinite.
    #[error(
        "the value {value:?} is {found} {}; mend the network or the sample, or exclude the nodes that make or read the \
         value",
        sample.map_or("in the network".to_owned(), |sample| format!("for sample {sample}"))
    )]
    NotFinite {
        /// The value's name.
        value: String,
        /// NaN or an infinity.
        found: f32,
        /// The sample's position; `None` for a stored tensor.
        sample: Option<usize>,
    },
    /// A name that an option gives is neither a node nor an operator of the network.
    #[error(
        "there is no node and no operator {name:?}; nodes: {}; operators: {}",
        nodes.join(", "),
        operators.join(", ")
    )]
    UnknownName {
        /// The name.
        name: String,
        /// The nodes of the network.
        nodes: Vec<String>,
        /// The types of its operators.
        operators: Vec<String>,
    },
    /// The network's version of ONNX's operators lacks a feature.
    #[error(
        "{feature} needs ONNX's opset {needed}, the network has {opset}; export it with opset {needed} or later"
    )]
    Opset {
        /// What needs a later version.
        feature: String,
        /// The least version.
        needed: i64,
        /// The network's.
        opset: i64,
    },
    /// An option has a value that makes no sense.
    #[error("{option}: expected {expected}, got {given}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// What it must be.
        expected: String,
        /// What it is.
        given: String,
    },
    /// No selection of quantized nodes keeps the accuracy.
    #[error(
        "quantization lowers the accuracy from {before} to {after} at best, more than {max_drop}; use wider formats or \
         allow a greater drop"
    )]
    Accuracy {
        /// The float network's accuracy.
        before: f64,
        /// The best accuracy that was found.
        after: f64,
        /// The greatest drop that was allowed.
        max_drop: f64,
    },
}

impl From<neurenix_onnx::Error> for Error {
    fn from(error: neurenix_onnx::Error) -> Error {
        Error::Network(Box::new(error))
    }
}

impl From<phynexus::Error> for Error {
    fn from(error: phynexus::Error) -> Error {
        Error::Engine(Box::new(error))
    }
}
