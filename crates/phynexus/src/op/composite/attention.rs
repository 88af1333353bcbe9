//! Scaled dot-product attention and its gradient. The bodies hold the whole score matrix; devices that claim the
//! composites never do.

use std::fmt;

use super::{
    Composite, Operands, gradients_for,
    pack::{Unpack, pack},
};
use crate::{
    DType, Error, Result, Scalar,
    op::{
        Axes, Combine,
        formula::Formula,
        gradient::rule::{Call, InputGradients},
        term::{TensorType, Term},
    },
    shape::{Dims, element_count},
};

/// What attention is to do. A query's index is compared with a key's from 0, whatever their counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionAttributes {
    /// A query attends to keys up to its own index only.
    pub causal: bool,
    /// The factor of `q k^T`.
    pub scale: Scalar,
    /// There is a mask.
    pub mask: bool,
}

impl fmt::Display for AttentionAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scale={}", self.scale)?;
        for (name, _) in [("causal", self.causal), ("mask", self.mask)].iter().filter(|(_, there)| *there) {
            write!(f, ", {name}")?;
        }
        Ok(())
    }
}

const KEYS: Axes = Axes(1 << 3);

/// The shapes of the output and of the rows' logarithms.
fn shapes(q: &[usize], v: &[usize]) -> (Dims, Dims) {
    let rows: Dims = q[..3].into();
    let mut output = rows.clone();
    output.push(v[3]);
    (output, rows)
}

fn check_operands(
    composite: &Composite,
    attributes: &AttentionAttributes,
    inputs: &[TensorType],
) -> Result<()> {
    let (q, k, v) = (&inputs[0], &inputs[1], &inputs[2]);
    let (&[b, h, l, e], &[kb, kh, s, ke], &[vb, vh, vs, _]) = (q.shape(), k.shape(), v.shape()) else {
        let hint = "queries, keys and values are (batch, heads, positions, features)";
        return Err(Error::shape(composite.name(), &[q.shape(), k.shape(), v.shape()], hint));
    };
    if (b, h, e) != (kb, kh, ke) || (b, h, s) != (vb, vh, vs) {
        let hint = "queries, keys and values share batch and heads, queries and keys their features, keys and values \
                    their positions";
        return Err(Error::shape(composite.name(), &[q.shape(), k.shape(), v.shape()], hint));
    }
    composite.check_float(q)?;
    composite.check_dtype(k, q.dtype())?;
    composite.check_dtype(v, q.dtype())?;
    if attributes.mask {
        composite.check_shape(&inputs[3], &[b, h, l, s], "the mask")?;
        if inputs[3].dtype() != DType::Bool {
            composite.check_dtype(&inputs[3], q.dtype())?;
        }
    }
    Ok(())
}

pub(super) fn check(
    composite: &Composite,
    attributes: &AttentionAttributes,
    inputs: &[TensorType],
) -> Result<(DType, Dims)> {
    composite.check_count(inputs, 3 + usize::from(attributes.mask))?;
    check_operands(composite, attributes, inputs)?;
    let (output, rows) = shapes(inputs[0].shape(), inputs[2].shape());
    let size = element_count(&output) + element_count(&rows);
    Ok((inputs[0].dtype().compute(), Dims::from_slice(&[size])))
}

pub(super) fn check_gradient(
    composite: &Composite,
    attributes: &AttentionAttributes,
    inputs: &[TensorType],
) -> Result<(DType, Dims)> {
    let first = 3 + usize::from(attributes.mask);
    composite.check_count(inputs, first + 3)?;
    check_operands(composite, attributes, inputs)?;
    let dtype = inputs[0].dtype().compute();
    let (output, rows) = shapes(inputs[0].shape(), inputs[2].shape());
    for (tensor, shape) in inputs[first..].iter().zip([&rows, &output, &rows]) {
        composite.check_shape(tensor, shape, "logarithms, output gradient and delta")?;
        composite.check_dtype(tensor, dtype)?;
    }
    let size = inputs[..3].iter().map(|t| t.len()).sum();
    Ok((dtype, Dims::from_slice(&[size])))
}

/// `scale q k^T`, masked: `[B, H, L, S]`.
fn scores(attributes: &AttentionAttributes, q: &Formula, k: &Formula, mask: Option<&Term>) -> Formula {
    let mut scores = q.dot(&k.transpose()) * attributes.scale.as_f64();
    let nothing = f64::NEG_INFINITY;
    if let Some(mask) = mask {
        scores = scores.then(|s| {
            let s = Formula::of(s);
            let mask = Formula::of(mask);
            let masked = mask.then(|m| {
                let m = Formula::of(m);
                if mask_is_bool(&m)? { m.choose(&s, &s.like(nothing)).term() } else { added(&s, &m).term() }
            });
            masked.term()
        });
    }
    if attributes.causal {
        let (query, key) = (scores.iota_like(DType::I64, 2), scores.iota_like(DType::I64, 3));
        scores = key.le(&query).choose(&scores, &scores.like(nothing));
    }
    scores
}

fn mask_is_bool(mask: &Formula) -> Result<bool> {
    Ok(mask.clone().term()?.dtype() == DType::Bool)
}

fn added(scores: &Formula, mask: &Formula) -> Formula {
    scores.then(|s| (Formula::of(s) + mask.cast(s.dtype())).term())
}

pub(super) fn body(attributes: &AttentionAttributes, inputs: &[Term]) -> Result<Term> {
    let mut operands = Operands(inputs);
    let dtype = inputs[0].dtype().compute();
    let [q, k, v] =
        [operands.next()?, operands.next()?, operands.next()?].map(|t| Formula::of(t).cast(dtype));
    let scores = scores(attributes, &q, &k, operands.next_if(attributes.mask)?);
    // The shift cancels in the derivative.
    let greatest = scores.reduce(Combine::Max, KEYS).detach();
    let empty = greatest.eq(&greatest.like(f64::NEG_INFINITY));
    let shift = empty.choose(&greatest.like(0.0), &greatest);
    let e = (&scores - &shift).exp();
    let sum = e.sum(KEYS);
    let sum = empty.choose(&sum.like(1.0), &sum);
    let logarithm = sum.log() + shift;
    let logarithm = empty.choose(&logarithm.like(f64::NEG_INFINITY), &logarithm);
    pack(&[(e / sum).dot(&v), logarithm]).term()
}

pub(super) fn gradient_body(attributes: &AttentionAttributes, inputs: &[Term]) -> Result<Term> {
    let mut operands = Operands(inputs);
    let dtype = inputs[0].dtype().compute();
    let [q, k, v] =
        [operands.next()?, operands.next()?, operands.next()?].map(|t| Formula::of(t).cast(dtype));
    let scores = scores(attributes, &q, &k, operands.next_if(attributes.mask)?);
    let (_, rows) = shapes(inputs[0].shape(), inputs[2].shape());
    let mut column = rows.clone();
    column.push(1);
    let logarithm = Formula::of(operands.next()?).reshape(&column);
    let g = Formula::of(operands.next()?);
    let delta = Formula::of(operands.next()?).reshape(&column);
    let empty = logarithm.eq(&logarithm.like(f64::NEG_INFINITY));
    let p = (&scores - empty.choose(&logarithm.like(0.0), &logarithm)).exp();
    let dv = p.transpose().dot(&g);
    let ds = (g.dot(&v.transpose()) - delta) * p * attributes.scale.as_f64();
    pack(&[ds.dot(&k), ds.transpose().dot(&q), dv]).term()
}

/// By [`Composite::AttentionGradient`], except that a mask's gradient needs the whole score matrix.
pub(super) fn gradient(attributes: &AttentionAttributes, call: &Call) -> Result<Option<InputGradients>> {
    let operands = 3 + usize::from(attributes.mask);
    if attributes.mask && call.needs[3] {
        return Ok(None);
    }
    let (output_shape, row_shape) = shapes(call.inputs[0].shape(), call.inputs[2].shape());
    let mut results = Unpack::new(call.output);
    let (output, logarithm) = (results.next(&output_shape), results.next(&row_shape));
    let mut gradients = Unpack::new(call.gradient);
    let g = match gradients.next_gradient(&output_shape)? {
        Some(g) => g,
        None => output.like(0.0),
    };
    let mut delta = (output * &g).sum(KEYS).reshape(&row_shape);
    if let Some(of_logarithm) = gradients.next_gradient(&row_shape)? {
        delta = delta - of_logarithm;
    }
    let extra = [logarithm.term()?, g.term()?, delta.term()?];
    let inputs: Vec<&Term> = call.inputs[..operands].iter().chain(&extra).collect();
    let packed = Composite::AttentionGradient(*attributes).term(&inputs)?;
    let mut parts = Unpack::new(&packed);
    let mut found = Vec::with_capacity(3);
    for (place, input) in call.inputs[..3].iter().enumerate() {
        let part = parts.next(input.shape());
        if call.needs[place] {
            found.push((place, part.cast(input.dtype()).term()?));
        }
    }
    Ok(Some(gradients_for(call.inputs.len(), found)))
}

/// The output in a packed result.
pub(crate) fn output(packed: Formula, q: &[usize], v: &[usize]) -> Formula {
    packed.then(|packed| Unpack::new(packed).next(&shapes(q, v).0).term())
}
