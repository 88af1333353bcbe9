//! What a caller decides about a quantization.

use crate::Format;

/// How static quantization works. [`Options::default`] is `uint8` activations and `int8` weights with a scale per
/// channel, which every runtime accepts.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The format of activations: the values that flow between nodes.
    pub activations: Format,
    /// The format of stored weights. Signed formats and scales per channel are symmetric; unsigned weights with one
    /// scale have a zero point from their range.
    pub weights: Format,
    /// A scale for each output channel of a weight instead of one.
    pub per_channel: bool,
    /// Ranges of activations that are symmetric about zero.
    pub symmetric_activations: bool,
    /// How ranges of activations follow from what the samples give.
    pub calibrator: Calibrator,
    /// Names of nodes, or types of operators, that stay float. What is the name of a node means this node alone.
    pub excluded: Vec<String>,
    /// Only operators of these types are quantized; `None` for all that can be.
    pub operators: Option<Vec<String>>,
    /// Equalizes the ranges of the channels of adjacent layers before calibration.
    pub equalize: bool,
    /// Moves the outliers of activations into weights before calibration, with this share `alpha` from 0 to 1
    /// (SmoothQuant; 0.5 is usual).
    pub smooth: Option<f32>,
    /// Corrects the mean error of each layer in its bias.
    pub bias_correction: bool,
    /// Learns for each weight whether it is rounded up or down.
    pub adaptive_rounding: Option<Rounding>,
    /// The number of samples on which the report compares the networks; the first ones.
    pub report_samples: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            activations: Format::Uint8,
            weights: Format::Int8,
            per_channel: true,
            symmetric_activations: false,
            calibrator: Calibrator::MinMax,
            excluded: Vec::new(),
            operators: None,
            equalize: false,
            smooth: None,
            bias_correction: false,
            adaptive_rounding: None,
            report_samples: 32,
        }
    }
}

/// How the range of an activation follows from the numbers that the samples give. Zero always belongs to the range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Calibrator {
    /// From the least to the greatest number.
    MinMax,
    /// Without the outermost numbers: this percentage is within the range, such as 99.99.
    Percentile(f64),
    /// The range whose histogram loses least information by quantization (Kullback-Leibler divergence, as in Migacz,
    /// "8-bit inference with TensorRT", 2017).
    Entropy,
    /// The range with the least mean squared error of the quantized numbers. Ranges of float formats are those of
    /// [`Calibrator::MinMax`] here and for `Entropy`: their steps shrink with the numbers, so clipping gains nothing.
    MeanSquaredError,
}

/// Settings of adaptive rounding (AdaRound; Nagel et al., "Up or down? Adaptive rounding for post-training
/// quantization", 2020).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounding {
    /// Steps of gradient descent for each layer.
    pub steps: usize,
    /// The rate of Adam.
    pub learning_rate: f32,
    /// The weight of the term that drives each choice to up or down.
    pub regularization: f32,
    /// The number of rows of a layer's input in each step: of images, or of vectors that a matrix multiplies.
    pub batch: usize,
    /// Seeds the choice of rows.
    pub seed: u64,
}

impl Default for Rounding {
    fn default() -> Rounding {
        Rounding { steps: 1000, learning_rate: 0.01, regularization: 0.01, batch: 32, seed: 0 }
    }
}
