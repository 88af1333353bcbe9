//! The gradient of attention.

use super::{
    Attention, Build, Definition, Operands,
    attention::{self, LEAST},
    check,
    pack::pack,
    sample::{Sample, SampleOperand},
};
use crate::{
    DType, Result,
    op::{
        formula::Formula,
        gradient::rule::Reads,
        term::{TensorType, Term},
    },
    shape::Dims,
};

/// Inputs q, k, v, the mask and the random state if there are any, the logarithms `[B, H, L]`, the output's gradient
/// `[B, H, L, V]` and `delta = sum(output * output's gradient) - logarithms' gradient` `[B, H, L]`. The output's
/// gradient has q's dtype, the others have the one in which it is computed. Packed: the gradients of q `[B, L, H, E]`,
/// k `[B, S, H, E]` and v `[B, S, H, V]` in q's dtype, positions before heads, as the layers that make them have them
/// in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionGradient(
    /// What it is the gradient of.
    pub Attention,
);

impl Definition for AttentionGradient {
    fn name(&self) -> &'static str {
        "attention_gradient"
    }

    fn attributes(&self) -> String {
        self.0.attributes()
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        let first = self.0.shared();
        check::count(self.name(), operands, first + 3)?;
        self.0.check_shared(self.name(), operands)?;
        let dtype = operands[0].dtype().compute();
        let (output, rows) = attention::shapes(operands[0].shape(), operands[2].shape());
        let dtypes = [dtype, operands[0].dtype(), dtype];
        for ((tensor, shape), dtype) in operands[first..].iter().zip([&rows, &output, &rows]).zip(dtypes) {
            check::shape(self.name(), tensor, shape, "logarithms, output gradient and delta")?;
            check::dtype(self.name(), tensor, dtype)?;
        }
        let parts: Vec<Dims> = operands[..3].iter().map(|t| t.shape().into()).collect();
        let size = super::pack::packed_len(self.name(), &parts)?;
        Ok((operands[0].dtype(), Dims::from_slice(&[size])))
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        let Parts { weights, derivatives, matrices: [q, k, g] } = self.parts(operands)?;
        let ds = derivatives * self.0.scale.as_f64();
        packed(&[ds.dot(&k), ds.transpose().dot(&q), weights.transpose().dot(&g)])
            .cast(operands[0].dtype())
            .term()
    }

    /// The weights and their derivatives.
    fn rounded(&self) -> Option<Build<'_>> {
        Some(Box::new(|operands| {
            let Parts { weights, derivatives, matrices } = self.parts(operands)?;
            let [q, k, g] = matrices.each_ref().map(attention::magnitude);
            let ds = (attention::magnitude(&derivatives) + LEAST) * self.0.scale.as_f64().abs();
            let weights = (weights + LEAST).transpose();
            packed(&[ds.dot(&k), ds.transpose().dot(&q), weights.dot(&g)]).term()
        }))
    }

    fn gradient_reads(&self) -> Reads {
        Reads::EVERYTHING
    }

    fn samples() -> Vec<Sample> {
        let call = |(attention, mut operands): (Attention, Vec<SampleOperand>)| {
            let (output, rows) = attention::shapes(&operands[0].shape, &operands[2].shape);
            operands.extend([
                SampleOperand::new(&rows).compute().positive(),
                SampleOperand::new(&output),
                SampleOperand::new(&rows).compute(),
            ]);
            Sample::new(AttentionGradient(attention), operands)
        };
        Attention::sampled().into_iter().map(call).collect()
    }
}

/// Swaps heads and positions.
pub(super) const SWAPPED: [usize; 4] = [0, 2, 1, 3];

fn packed(gradients: &[Formula; 3]) -> Formula {
    pack(&gradients.each_ref().map(|gradient| gradient.permute(&SWAPPED)))
}

/// What the gradients are made of.
struct Parts {
    /// After dropout.
    weights: Formula,
    /// The derivatives by scores.
    derivatives: Formula,
    /// Queries, keys, and the output's gradient.
    matrices: [Formula; 3],
}

impl AttentionGradient {
    fn parts(&self, operands: &[Term]) -> Result<Parts> {
        let dtype = operands[0].dtype().compute();
        let (_, rows) = attention::shapes(operands[0].shape(), operands[2].shape());
        let all = operands;
        let mut operands = Operands(operands);
        let [q, k, v] = [operands.next()?, operands.next()?, operands.next()?].map(Formula::of);
        let scores = self.0.scores(&q, &k, dtype, operands.next_if(self.0.mask)?);
        let [q, k, v] = [q, k, v].map(|t| t.cast(dtype));
        operands.next_if(self.0.dropout > 0)?;
        let mut column = rows;
        column.push(1);
        let logarithm = Formula::of(operands.next()?).reshape(&column);
        let g = Formula::of(operands.next()?).cast(dtype);
        let delta = Formula::of(operands.next()?).reshape(&column);
        let empty = logarithm.eq(&logarithm.like(f64::NEG_INFINITY));
        let weights = (&scores - empty.choose(&logarithm.like(0.0), &logarithm)).exp();
        let by_weights = self.0.dropped(g.dot(&v.transpose()), all);
        let derivatives = (by_weights - delta) * &weights;
        Ok(Parts { weights: self.0.dropped(weights, all), derivatives, matrices: [q, k, g] })
    }
}
