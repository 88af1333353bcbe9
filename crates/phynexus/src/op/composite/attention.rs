//! Scaled dot-product attention. Its body, and that of its gradient, hold the whole score matrix; devices that claim
//! the composites never do.

use super::{
    AttentionGradient, Build, Composite, Definition,
    attention_gradient::SWAPPED,
    check, gradients_for,
    pack::{Unpack, pack},
    sample::{Sample, SampleDType, SampleOperand},
};
use crate::{
    DType, Error, Result, Scalar,
    op::{
        Axes, Binary, Combine, Op,
        formula::Formula,
        gradient::rule::{Call, InputGradients, Reads},
        term::{TensorType, Term},
    },
    shape::Dims,
};

/// Inputs q `[B, H, L, E]`, k `[B, H, S, E]`, v `[B, H, S, V]`, then a mask `[B, H, L, S]` (`bool`: true takes part;
/// float: added) if there is one, then with dropout the random state `uint32 [4]` of [`Op::RandomBits`]. Packed:
/// `softmax(scale * q k^T) v` `[B, H, L, V]`, and the logarithms of the softmax's denominators `[B, H, L]`. The dtype
/// is q's, `float32` for 16-bit floats. A row that may attend to nothing gives 0, and minus infinity. A query's index
/// is compared with a key's from 0, whatever their counts. The logarithms are those of the weights before dropout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    /// A query attends to keys up to its own index only.
    pub causal: bool,
    /// The factor of `q k^T`.
    pub scale: Scalar,
    /// There is a mask.
    pub mask: bool,
    /// Of 65,536 weights, how many are dropped on average; the others are scaled by 65,536 divided by how many are
    /// kept.
    pub dropout: u16,
}

/// Positions that share draws of [`Attention`]'s dropout: those 8 apart among so many.
pub(crate) const DROPOUT_BLOCK: usize = 16;

/// The least `float16` that is not subnormal. Smaller numbers have the same absolute rounding error.
pub(super) const LEAST: f64 = 1.0 / 16384.0;

/// The magnitudes of numbers.
pub(super) fn magnitude(numbers: &Formula) -> Formula {
    numbers.max(&(-1.0 * numbers))
}

const KEYS: Axes = Axes(1 << 3);

/// Whether there is one query, such as for each token that a language model generates. Its products are sums of rows or
/// columns, which a kernel computes together with what makes the keys and values, such as their place in a cache.
fn is_single(q: &Term) -> bool {
    q.shape()[2] == 1
}

/// The shapes of the output and of the rows' logarithms.
pub(super) fn shapes(q: &[usize], v: &[usize]) -> (Dims, Dims) {
    let rows: Dims = q[..3].into();
    let mut output = rows.clone();
    output.push(v[3]);
    (output, rows)
}

impl Attention {
    /// The number of operands that attention and its gradient share.
    pub(crate) fn shared(&self) -> usize {
        self.state() + usize::from(self.dropout > 0)
    }

    /// The place of the random state among the operands.
    pub(crate) fn state(&self) -> usize {
        3 + usize::from(self.mask)
    }

    /// How many blocks of random words `[B, H, L, S]` weights need.
    pub(crate) fn draws(shape: [usize; 4]) -> u64 {
        let [batch, heads, queries, keys] = shape;
        let extents = [batch, heads, Attention::draw_extent(queries), Attention::draw_extent(keys)];
        extents.into_iter().fold(1, |product, extent| product.saturating_mul(extent as u64))
    }

    /// How many rows or columns of blocks of random words so many positions need.
    pub(crate) fn draw_extent(positions: usize) -> usize {
        positions.div_ceil(DROPOUT_BLOCK) * (DROPOUT_BLOCK / 2)
    }

    /// The factor of the weights that are not dropped.
    pub(crate) fn kept_factor(&self) -> f64 {
        65_536.0 / (65_536.0 - f64::from(self.dropout))
    }

    /// Numbers `[B, H, L, S]` with zeros for dropped weights, the others scaled. A block of random words has four draws
    /// of 16 bits: for two queries and two keys, each 8 positions apart. Whoever computes products of matrices by
    /// fragments has all four in one place.
    pub(super) fn dropped(&self, numbers: Formula, operands: &[Term]) -> Formula {
        let Some(state) = operands.get(self.state()).filter(|_| self.dropout > 0) else { return numbers };
        numbers.then(|numbers| {
            let &[b, h, l, s] = numbers.shape() else {
                return Err(Error::internal("attention", "weights have four dimensions"));
            };
            let [rows, columns] = [l, s].map(|positions| positions.div_ceil(DROPOUT_BLOCK));
            let shape = [b * h, rows, 8, columns, 8, 2];
            let words = Term::record(Op::RandomBits, DType::U32, shape.as_slice().into(), &[state])?;
            let words = Formula::of(&words).reshape(&[b * h, rows, 8, columns, 8, 2, 1]);
            let low = words.binary(Binary::And, &words.like(Scalar::UInt(0xffff)));
            let high = words.binary(Binary::Shr, &words.like(Scalar::UInt(16)));
            let draws = Formula::cat(&[low, high], 6).permute(&[0, 1, 5, 2, 3, 6, 4]);
            let draws = draws.reshape(&[b, h, rows * DROPOUT_BLOCK, columns * DROPOUT_BLOCK]);
            let draws = draws.narrow(2, 0, l).narrow(3, 0, s);
            let kept = draws.binary(Binary::Lt, &draws.like(Scalar::UInt(65_536 - u64::from(self.dropout))));
            let numbers = Formula::of(numbers);
            kept.choose(&(&numbers * self.kept_factor()), &numbers.like(0.0)).term()
        })
    }

    /// Checks the operands that attention and its gradient, `op`, share.
    pub(super) fn check_shared(&self, op: &'static str, operands: &[TensorType]) -> Result<()> {
        let (q, k, v) = (&operands[0], &operands[1], &operands[2]);
        let (&[b, h, l, e], &[kb, kh, s, ke], &[vb, vh, vs, _]) = (q.shape(), k.shape(), v.shape()) else {
            let hint = "queries, keys and values are (batch, heads, positions, features)";
            return Err(Error::shape(op, &[q.shape(), k.shape(), v.shape()], hint));
        };
        if (b, h, e) != (kb, kh, ke) || (b, h, s) != (vb, vh, vs) {
            let hint = "queries, keys and values share batch and heads, queries and keys their features, keys and \
                        values their positions";
            return Err(Error::shape(op, &[q.shape(), k.shape(), v.shape()], hint));
        }
        check::float(op, q)?;
        check::dtype(op, k, q.dtype())?;
        check::dtype(op, v, q.dtype())?;
        if self.mask {
            check::shape(op, &operands[3], &[b, h, l, s], "the mask")?;
            if operands[3].dtype() != DType::Bool {
                check::dtype(op, &operands[3], q.dtype())?;
            }
        }
        if self.dropout > 0 {
            check::shape(op, &operands[self.state()], &[4], "the random state")?;
            check::dtype(op, &operands[self.state()], DType::U32)?;
        }
        Ok(())
    }

    /// `scale q k^T` as `dtype`, masked: `[B, H, L, S]`. Products of 16-bit numbers are exact in `float32`, so the
    /// factors of a matrix product need no cast.
    pub(super) fn scores(&self, q: &Formula, k: &Formula, dtype: DType, mask: Option<&Term>) -> Formula {
        let products = q.then(|term| {
            let q = Formula::of(term);
            let products = match is_single(term) {
                true => (q.cast(dtype) * k.cast(dtype)).sum(KEYS).transpose(),
                false => q.dot_as(&k.transpose(), dtype),
            };
            products.term()
        });
        let mut scores = products * self.scale.as_f64();
        let nothing = f64::NEG_INFINITY;
        if let Some(mask) = mask {
            scores = scores.then(|s| {
                let s = Formula::of(s);
                let mask = Formula::of(mask);
                let masked = mask.then(|m| {
                    let m = Formula::of(m);
                    if mask_is_bool(&m)? {
                        m.choose(&s, &s.like(nothing)).term()
                    } else {
                        added(&s, &m).term()
                    }
                });
                masked.term()
            });
        }
        if self.causal {
            let (query, key) = (scores.iota_like(DType::I64, 2), scores.iota_like(DType::I64, 3));
            scores = key.le(&query).choose(&scores, &scores.like(nothing));
        }
        scores
    }

    /// Each query's weights of the values, and the logarithms of the softmax's denominators.
    fn weights(&self, operands: &[Term]) -> Result<[Formula; 2]> {
        let dtype = operands[0].dtype().compute();
        let (q, k) = (Formula::of(&operands[0]), Formula::of(&operands[1]));
        let scores = self.scores(&q, &k, dtype, operands[3..].first().filter(|_| self.mask));
        // The shift cancels in the derivative.
        let greatest = scores.reduce(Combine::Max, KEYS).detach();
        let empty = greatest.eq(&greatest.like(f64::NEG_INFINITY));
        let shift = empty.choose(&greatest.like(0.0), &greatest);
        let e = (&scores - &shift).exp();
        let sum = e.sum(KEYS);
        let sum = empty.choose(&sum.like(1.0), &sum);
        let logarithm = sum.log() + shift;
        let logarithm = empty.choose(&logarithm.like(f64::NEG_INFINITY), &logarithm);
        Ok([e / sum, logarithm])
    }

    /// Attention with the operands that it shares with its gradient, for samples of both.
    pub(super) fn sampled() -> Vec<(Attention, Vec<SampleOperand>)> {
        let mut all = Vec::new();
        for mask in [None, Some(SampleDType::Tested), Some(SampleDType::Fixed(DType::Bool))] {
            for (causal, (queries, keys)) in
                [false, true].into_iter().flat_map(|c| [(1, 1), (3, 5), (5, 7), (9, 70)].map(|s| (c, s)))
            {
                let shapes = [[1, 2, queries, 4], [1, 2, keys, 4], [1, 2, keys, 3]];
                let mut operands = shapes.map(|shape| SampleOperand::new(&shape)).to_vec();
                let mask_of = |dtype| SampleOperand { dtype, ..SampleOperand::new(&[1, 2, queries, keys]) };
                operands.extend(mask.map(mask_of));
                // Every third call drops weights.
                let dropout = if all.len() % 3 == 1 { 20_000 } else { 0 };
                operands.extend((dropout > 0).then(|| SampleOperand::new(&[4]).fixed(DType::U32)));
                let attention =
                    Attention { causal, scale: Scalar::Float(0.5), mask: mask.is_some(), dropout };
                all.push((attention, operands));
            }
        }
        all
    }
}

fn mask_is_bool(mask: &Formula) -> Result<bool> {
    Ok(mask.clone().term()?.dtype() == DType::Bool)
}

fn added(scores: &Formula, mask: &Formula) -> Formula {
    scores.then(|s| (Formula::of(s) + mask.cast(s.dtype())).term())
}

impl Definition for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn attributes(&self) -> String {
        let causal = if self.causal { ", causal" } else { "" };
        let mask = if self.mask { ", mask" } else { "" };
        let dropout = match self.dropout {
            0 => String::new(),
            dropped => format!(", dropout={dropped}/65536"),
        };
        format!("scale={}{causal}{mask}{dropout}", self.scale)
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        check::count(self.name(), operands, self.shared())?;
        self.check_shared(self.name(), operands)?;
        let (output, rows) = shapes(operands[0].shape(), operands[2].shape());
        let size = super::pack::packed_len(self.name(), &[output, rows])?;
        Ok((operands[0].dtype().compute(), Dims::from_slice(&[size])))
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        let [weights, logarithm] = self.weights(operands)?;
        let weights = self.dropped(weights, operands);
        let v = Formula::of(&operands[2]).cast(operands[0].dtype().compute());
        let output = match is_single(&operands[0]) {
            true => (weights.transpose() * v).sum(Axes(1 << 2)),
            false => weights.dot(&v),
        };
        pack(&[output, logarithm]).term()
    }

    /// By [`AttentionGradient`], except that a mask's gradient needs the whole score matrix.
    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        if self.mask && call.needs[3] {
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
        // The packed gradient was cast from q's dtype, so this cast is exact.
        let narrow = g.cast(call.inputs[0].dtype());
        let mut delta = (output * &g).sum(KEYS).reshape(&row_shape);
        if let Some(of_logarithm) = gradients.next_gradient(&row_shape)? {
            delta = delta - of_logarithm;
        }
        let extra = [logarithm.term()?, narrow.term()?, delta.term()?];
        let operands: Vec<&Term> = call.inputs[..self.shared()].iter().chain(&extra).collect();
        let packed = Composite::term(AttentionGradient(*self), &operands)?;
        let mut parts = Unpack::new(&packed);
        let mut found = Vec::with_capacity(3);
        for (place, input) in call.inputs[..3].iter().enumerate() {
            let part = parts.next(&SWAPPED.map(|axis| input.shape()[axis]));
            if call.needs[place] {
                found.push((place, part.permute(&SWAPPED).term()?));
            }
        }
        Ok(Some(gradients_for(call.inputs.len(), found)))
    }

    fn gradient_reads(&self) -> Reads {
        Reads::EVERYTHING
    }

    /// The weights.
    fn rounded(&self) -> Option<Build<'_>> {
        Some(Box::new(|operands| {
            let [weights, logarithm] = self.weights(operands)?;
            let weights = self.dropped(weights, operands);
            let values = magnitude(&Formula::of(&operands[2]).cast(operands[0].dtype().compute()));
            pack(&[(weights + LEAST).dot(&values), logarithm.like(0.0)]).term()
        }))
    }

    fn samples() -> Vec<Sample> {
        let call = |(attention, operands): (Attention, _)| Sample::new(attention, operands);
        Attention::sampled().into_iter().map(call).collect()
    }
}

/// The output in a packed result.
pub(crate) fn output(packed: Formula, q: &[usize], v: &[usize]) -> Formula {
    packed.then(|packed| Unpack::new(packed).next(&shapes(q, v).0).term())
}
