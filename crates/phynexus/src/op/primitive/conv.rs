//! Convolutions. A convolution and its gradients are one bilinear form, solved for each of its three operands, so they
//! are closed under differentiation.

use super::{
    Call, Check, Formula, Geometry, InputGradients, IrNode, Number, Op, Operation, OracleArray, Reads,
    Sample, SampleOperand, dot, geometry, need,
};
use crate::{
    DType, Result,
    op::{
        Combine,
        composite::precision::{self, MatmulPrecision},
        reference::{Accumulator, every_coordinate, flat_index},
        term::Term,
    },
    shape::{Dims, element_count},
};

/// A convolution and its two gradients: the bilinear form `sum(y * conv(x, w))`, solved for each of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvKind {
    /// Inputs x `[N, C, spatial..]` and w `[O, C / groups, kernel..]`; the result is `[N, O, out..]`.
    Forward,
    /// Inputs y `[N, O, out..]` and w; the result has x's shape. Also the transposed convolution.
    InputGradient,
    /// Inputs x and y; the result has w's shape.
    FilterGradient,
}

/// A convolution over trailing spatial dimensions, or one of its gradients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv(pub ConvKind, pub Geometry);

impl Operation for Conv {
    fn name(&self) -> &'static str {
        match self.0 {
            ConvKind::Forward => "conv",
            ConvKind::InputGradient => "conv_input_gradient",
            ConvKind::FilterGradient => "conv_filter_gradient",
        }
    }

    fn operands(&self) -> Option<usize> {
        Some(2)
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        let (a, b, geometry) = (inputs[0], inputs[1], &self.1);
        let (x, w, y) = self.roles(a, b, node);
        dot::factors(node, a, b)?;
        let spatial = geometry.check(&x.shape, &y.shape)?;
        need(w.shape.len() == spatial + 2, "a filter of another rank")?;
        need(w.shape[2..] == geometry.kernel[..], "a filter of another extent")?;
        let taken = w.shape[1].checked_mul(geometry.groups);
        need(taken == Some(x.shape[1]), "the filter takes another number of channels")?;
        let channels = y.shape[1] == w.shape[0] && w.shape[0] % geometry.groups == 0;
        need(channels, "the filter gives other channels")
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        call.each(|position| self.operand_gradient(call, position, MatmulPrecision::Highest))
    }

    fn gradient_reads(&self) -> Reads {
        Reads::CROSSWISE
    }

    /// Every product of the bilinear form is added to the element that the kind assigns it to. A device may also fill
    /// the padding, and for the input's gradient the gaps between strides, with zeros and multiply those.
    fn reference(&self, node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let (a, b, Conv(kind, geometry)) = (inputs[0], inputs[1], self);
        let (x, w, y) = self.roles(&a.shape, &b.shape, &node.shape);
        let mut sums = vec![Accumulator::new(Combine::Sum, node.dtype); node.len()];
        let (inputs_a_group, outputs_a_group) = (w[1], w[0] / geometry.groups);
        let taps: Vec<Dims> = every_coordinate(&w[2..]).collect();
        // Elements of x, and of w, between channels.
        let (x_step, w_step) = (element_count(&x[2..]), element_count(&w[2..]));
        for (y_place, at) in every_coordinate(y).enumerate() {
            let first = at[1] / outputs_a_group * inputs_a_group;
            for (tap_place, tap) in taps.iter().enumerate() {
                let place = geometry.tap_place(&x[2..], &at[2..], tap);
                let x_first =
                    place.map(|place| (at[0] * x[1] + first) * x_step + flat_index(&x[2..], &place));
                for channel in 0..inputs_a_group {
                    let w_place = (at[1] * inputs_a_group + channel) * w_step + tap_place;
                    let Some(x_place) = x_first.map(|first| first + channel * x_step) else {
                        match kind {
                            ConvKind::Forward => sums[y_place].push_zero_times(b.elements[w_place]),
                            ConvKind::FilterGradient => sums[w_place].push_zero_times(b.elements[y_place]),
                            ConvKind::InputGradient => {}
                        }
                        continue;
                    };
                    let (target, p, q) = match kind {
                        ConvKind::Forward => (y_place, x_place, w_place),
                        ConvKind::InputGradient => (x_place, y_place, w_place),
                        ConvKind::FilterGradient => (w_place, x_place, y_place),
                    };
                    sums[target].push_product(a.elements[p], b.elements[q]);
                }
            }
        }
        if *kind == ConvKind::InputGradient {
            // Which elements of the output a tap misses depends only on the position. A non-finite filter element
            // therefore leaves open every sum that one of its taps may have missed.
            for (sum, at) in sums.iter_mut().zip(every_coordinate(x)) {
                let (group, channel) = (at[1] / inputs_a_group, at[1] % inputs_a_group);
                for tap in taps.iter().filter(|tap| !is_met(geometry, &y[2..], &at[2..], tap)) {
                    for output in group * outputs_a_group..(group + 1) * outputs_a_group {
                        sum.push_zero_times(b.at(&[&[output, channel], tap.as_slice()].concat()));
                    }
                }
            }
        }
        Ok(sums.iter().map(Accumulator::result).collect())
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for (geometry, x, out) in geometry::samples() {
            let y = [&[x[0], 3 * geometry.groups], &out[..]].concat();
            let w = [&[3 * geometry.groups, x[1] / geometry.groups], &geometry.kernel[..]].concat();
            let calls = [
                (ConvKind::Forward, &y, [&x, &w]),
                (ConvKind::InputGradient, &x, [&y, &w]),
                (ConvKind::FilterGradient, &w, [&x, &y]),
            ];
            for (kind, result, operands) in calls {
                let op = Op::Conv(Conv(kind, geometry.clone()));
                let sample = Sample::primitive(op, result, operands.map(|shape| SampleOperand::new(shape)));
                // A sum may be wider than its terms.
                samples.push(sample.clone().giving(DType::I32).only(&[DType::I8, DType::U8]));
                samples.push(sample.clone().giving(DType::F32).only(&[DType::F16, DType::BF16]));
                // `uint8` and `int8` may be multiplied.
                let bytes = [DType::U8, DType::I8];
                for dtypes in [bytes, [bytes[1], bytes[0]]] {
                    let [a, b] = [0, 1].map(|i| SampleOperand::new(operands[i]).fixed(dtypes[i]));
                    samples.push(Sample::primitive(sample.op.clone(), result, [a, b]).giving(DType::I32));
                }
                samples.push(sample);
            }
        }
        samples
    }
}

impl Conv {
    /// The input, filter and output among two operands and the result.
    fn roles<'a, T: ?Sized>(&self, a: &'a T, b: &'a T, result: &'a T) -> (&'a T, &'a T, &'a T) {
        match self.0 {
            ConvKind::Forward => (a, b, result),
            ConvKind::InputGradient => (result, b, a),
            ConvKind::FilterGradient => (a, result, b),
        }
    }

    /// The gradient of an operand, in the convolution's precision.
    pub(in crate::op) fn operand_gradient(
        &self,
        call: &Call,
        position: usize,
        precision: MatmulPrecision,
    ) -> Formula {
        let target = &call.inputs[position];
        // The result may be wider than its operands (16-bit operands, a float32 result).
        let dtype = call.output.dtype();
        let record = |kind: ConvKind, a: &Term, b: &Term| {
            let op = Op::Conv(Conv(kind, self.1.clone()));
            let wide = |operand: &Term| Formula::of(operand).cast(dtype).term();
            let gradient =
                || precision::record(precision, op, dtype, target.shape().into(), [&wide(a)?, &wide(b)?]);
            Formula::from(gradient()).cast(target.dtype())
        };
        let (first, second, g) = (&call.inputs[0], &call.inputs[1], call.gradient);
        use ConvKind::*;
        match (self.0, position) {
            (Forward, 0) => record(InputGradient, g, second),
            (Forward, _) => record(FilterGradient, first, g),
            (InputGradient, 0) => record(Forward, g, second),
            (InputGradient, _) => record(FilterGradient, g, first),
            (FilterGradient, 0) => record(InputGradient, second, g),
            (FilterGradient, _) => record(Forward, first, g),
        }
    }
}

/// True if element `tap` of some window lies at `input`.
fn is_met(geometry: &Geometry, output: &[usize], input: &[usize], tap: &[usize]) -> bool {
    (0..input.len()).all(|d| {
        let start = (input[d] + geometry.padding[d].0).checked_sub(tap[d] * geometry.dilation[d]);
        start.is_some_and(|s| s.is_multiple_of(geometry.stride[d]) && s / geometry.stride[d] < output[d])
    })
}
