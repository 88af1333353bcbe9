//! Matrix products whose factors are rounded to 8-bit floats.

use super::{
    Composite, Definition, check,
    sample::{Sample, SampleOperand},
};
use crate::{
    DType, Error, Result, Scalar,
    op::{
        Axes, Combine, Unary,
        formula::Formula,
        gradient::rule::{Call, InputGradients, Reads},
        term::{TensorType, Term},
    },
    shape::Dims,
};

/// Two inputs, `[.., M, K]` and `[.., K, N]`. Their product, of factors that are divided by a scale each, so that the
/// greatest magnitude becomes the greatest number of the format, and rounded to `float8_e4m3fn`. Gradients are products
/// of the gradient, rounded to `float8_e5m2` in the same way, and the rounded factors (Micikevicius et al. 2022, FP8
/// formats for deep learning, arXiv 2209.05433; scales are of the current numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Float8Product;

/// A rounded matrix and its scale, with as many dimensions, all of size 1.
struct Scaled {
    matrix: Formula,
    scale: Formula,
}

impl Scaled {
    /// Rounds the quotients of a matrix and its scale to this 8-bit dtype.
    fn of(matrix: Formula, dtype: DType) -> Result<Scaled> {
        let matrix = matrix.cast(DType::F32);
        let term = matrix.clone().term()?;
        let greatest = dtype.float8().map_or(1.0, |format| format.to_f32(format.greatest).into());
        let magnitude = matrix.unary(Unary::Abs).reduce(Combine::Max, Axes::of(0..term.rank()));
        let scale = magnitude.max(&magnitude.like(LEAST)) / greatest;
        let quotients = matrix / scale.expand(term.shape());
        Ok(Scaled { matrix: quotients.cast(dtype), scale })
    }

    /// The product of two rounded matrices, in `dtype`.
    fn dot(&self, other: &Scaled, dtype: DType) -> Result<Formula> {
        let product = self.matrix.dot_as(&other.matrix, DType::F32);
        let shape: Dims = product.clone().term()?.shape().into();
        // The smaller scale first: the product of both may be too small, and the larger one alone too large.
        let (small, large) = (self.scale.min(&other.scale), self.scale.max(&other.scale));
        Ok((product * small.expand(&shape) * large.expand(&shape)).cast(dtype))
    }

    fn transpose(&self) -> Scaled {
        Scaled { matrix: self.matrix.transpose(), scale: self.scale.clone() }
    }
}

/// The least magnitude that a scale is made for: smaller scales would be subnormal numbers.
const LEAST: Scalar = Scalar::Float(1e-32);

impl Definition for Float8Product {
    fn name(&self) -> &'static str {
        "dot_float8"
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        check::count(self.name(), operands, 2)?;
        let [a, b] = [&operands[0], &operands[1]];
        if !matches!(a.dtype(), DType::F16 | DType::BF16 | DType::F32) || b.dtype() != a.dtype() {
            let hint = "both factors must be float32, float16 or bfloat16, and of the same dtype";
            return Err(Error::dtype(self.name(), &[a.dtype(), b.dtype()], hint));
        }
        let rank = a.shape().len();
        let fits = rank >= 2
            && b.shape().len() == rank
            && a.shape()[..rank - 2] == b.shape()[..rank - 2]
            && a.shape()[rank - 1] == b.shape()[rank - 2];
        if !fits {
            let hint = "the factors must be [.., M, K] and [.., K, N] with the same leading dimensions";
            return Err(Error::shape(self.name(), &[a.shape(), b.shape()], hint));
        }
        let mut shape: Dims = a.shape().into();
        shape[rank - 1] = b.shape()[rank - 1];
        Ok((a.dtype(), shape))
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        let [a, b] = [0, 1].map(|i| Scaled::of(Formula::of(&operands[i]), DType::F8E4M3));
        a?.dot(&b?, operands[0].dtype())?.term()
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        let gradient = Scaled::of(call.gradient(), DType::F8E5M2)?;
        let factor = |position: usize| {
            let other = Scaled::of(call.input(1 - position), DType::F8E4M3)?.transpose();
            let dtype = call.inputs[position].dtype();
            if position == 0 { gradient.dot(&other, dtype) } else { other.dot(&gradient, dtype) }
        };
        call.each(|position| Formula::from(factor(position).and_then(Formula::term)))
    }

    fn gradient_reads(&self) -> Reads {
        Reads::CROSSWISE
    }

    fn samples() -> Vec<Sample> {
        let call = |a: &[usize], b: &[usize]| {
            Sample::new(Composite::from(Float8Product), [SampleOperand::new(a), SampleOperand::new(b)])
                .only(&[DType::F16, DType::BF16, DType::F32])
        };
        // Too large for finite differences, which see the steps of rounding.
        vec![
            call(&[10, 16], &[16, 12]),
            call(&[2, 9, 40], &[2, 40, 8]),
            call(&[64, 128], &[128, 64]),
            call(&[0, 80], &[80, 2]),
        ]
    }
}
