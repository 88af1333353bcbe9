//! Loss functions.

use crate::{
    DType, Error, Result, Scalar, Tensor,
    op::{
        Iota, Op,
        composite::{BinaryCrossEntropy, ClassIndex, Composite, CrossEntropy},
    },
};

/// The constant that [`Tensor::cosine_embedding_loss`] adds to squared lengths, a `float32` as in PyTorch.
const LEAST_SQUARE: f64 = 1e-12f32 as f64;

/// How to reduce the losses of elements or samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Reduction {
    /// No reduction.
    None,
    /// The mean. Ignored samples do not count; with class weights, it is the weighted mean.
    #[default]
    Mean,
    /// The sum.
    Sum,
}

/// Optional arguments of [`Tensor::cross_entropy_with`] and [`Tensor::nll_loss`]. The defaults are PyTorch's.
#[derive(Clone, Copy)]
pub struct CrossEntropyOptions<'a> {
    /// The weight of each class, `[C]`.
    pub weight: Option<&'a Tensor>,
    /// The class whose samples are ignored.
    pub ignore_index: i64,
    /// The part of the target that is distributed over all classes, between 0 and 1.
    pub label_smoothing: f64,
    /// The reduction of the samples' losses.
    pub reduction: Reduction,
}

impl Default for CrossEntropyOptions<'_> {
    fn default() -> Self {
        CrossEntropyOptions {
            weight: None,
            ignore_index: -100,
            label_smoothing: 0.0,
            reduction: Reduction::Mean,
        }
    }
}

fn reduced(losses: Tensor, reduction: Reduction) -> Result<Tensor> {
    match reduction {
        Reduction::None => Ok(losses),
        Reduction::Mean => losses.mean(&[], false),
        Reduction::Sum => losses.sum(&[], false),
    }
}

/// Requires equal shapes, since broadcasting in a loss is nearly always a mistake, and floats.
fn check_pair(op: &'static str, input: &Tensor, target: &Tensor) -> Result<()> {
    if input.shape() != target.shape() {
        return Err(Error::shape(
            op,
            &[input.shape(), target.shape()],
            "input and target must have the same shape",
        ));
    }
    if !input.dtype().promote(target.dtype()).is_float() {
        return Err(Error::dtype(
            op,
            &[input.dtype(), target.dtype()],
            "expected floats: convert with .to_dtype()",
        ));
    }
    Ok(())
}

/// Reshapes the input `[N, C, d..]` (or `[C]`) to `[N d.., C]` and the target to a vector. Unless its range is known,
/// the target is checked when it is computed.
fn rows_of_classes(
    op: &'static str,
    input: &Tensor,
    target: &Tensor,
    ignore_index: i64,
) -> Result<(Tensor, Tensor)> {
    let shape = input.shape();
    let expected: Vec<usize> = match shape {
        [] => return Err(Error::shape(op, &[shape], "the input must be (N, classes, ..) or (classes,)")),
        [_] => Vec::new(),
        [samples, _, rest @ ..] => std::iter::once(samples).chain(rest).copied().collect(),
    };
    if target.shape() != expected {
        let hint = format!("class indices must have shape {}", crate::text::show_shape(&expected));
        return Err(Error::shape(op, &[shape, target.shape()], hint));
    }
    if !target.dtype().is_integer() {
        return Err(Error::dtype(
            op,
            &[target.dtype()],
            "class indices must be integers: convert with .to_dtype(int64)",
        ));
    }
    let classes = if shape.len() == 1 { shape[0] } else { shape[1] };
    let last = if shape.len() > 2 { input.move_axis(1, -1)? } else { input.clone() };
    let index = target.reshape(&[target.len()])?.to_dtype(DType::I64)?;
    let index = match target.is_known_within(0, classes as i64 - 1) {
        true => index,
        false => {
            let ignore_index = ignored(target, ignore_index);
            Composite::apply(ClassIndex { loss: op, classes, ignore_index }, &[&index])?
        }
    };
    Ok((last.reshape(&[target.len(), classes])?, index))
}

/// The ignored class index, or `None` if the target's dtype cannot represent it.
fn ignored(target: &Tensor, index: i64) -> Option<i64> {
    let signed = target.dtype().kind() == crate::DTypeKind::Signed;
    (signed || index >= 0).then_some(index)
}

/// Reduces the losses of samples. The mean is weighted by class and skips ignored samples.
fn class_reduced(
    losses: Tensor,
    target: &Tensor,
    options: &CrossEntropyOptions,
    shape: &[usize],
) -> Result<Tensor> {
    let ignored = ignored(target, options.ignore_index);
    match options.reduction {
        Reduction::None => losses.reshape(shape),
        Reduction::Sum => losses.sum(&[], false),
        Reduction::Mean if options.weight.is_none() && ignored.is_none() => losses.mean(&[], false),
        Reduction::Mean => {
            let weights = match options.weight {
                Some(weight) => one_of(&weight.to_dtype(losses.dtype())?.unsqueeze(0)?, target)?,
                None => losses.ones_like()?,
            };
            let counted = match ignored {
                Some(index) => target.eq_scalar(index)?.where_(&weights.zeros_like()?, &weights)?,
                None => weights,
            };
            let wide = losses.dtype().compute();
            let (sum, count) =
                (losses.wide(wide)?.sum(&[], false)?, counted.to_dtype(wide)?.sum(&[], false)?);
            sum.div(&count)?.to_dtype(losses.dtype())
        }
    }
}

/// The element of each row (or of the only row) at the target's column, 0 if there is no such column. Compares column
/// numbers rather than gathering, so that it fuses with surrounding operations.
fn one_of(rows: &Tensor, target: &Tensor) -> Result<Tensor> {
    let shape = [target.len(), rows.shape()[1]];
    let column =
        Tensor::record_on(rows.device(), Op::Iota(Iota { axis: 1 }), DType::I64, shape[..].into(), &[])?;
    let hit = column.eq(&target.to_dtype(DType::I64)?.unsqueeze(1)?)?;
    hit.where_(rows, &rows.zeros_like()?)?.sum(&[1], false)
}

impl Tensor {
    /// The mean of `-log(softmax(logits)[target])` over samples, for logits `[N, C, ..]` (or `[C]`) and class indices
    /// `[N, ..]`. Samples of class -100 are ignored. See [`Tensor::cross_entropy_with`] for options.
    pub fn cross_entropy(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        label_smoothing: f64,
    ) -> Result<Tensor> {
        self.cross_entropy_with(
            target,
            &CrossEntropyOptions { weight, label_smoothing, ..Default::default() },
        )
    }

    /// The cross-entropy between class indices `[N, ..]` and the softmax of these logits `[N, C, ..]` (or `[C]`), with
    /// class weights, label smoothing, an ignored class and a choice of reduction.
    ///
    /// A floating-point target of the logits' shape holds class probabilities instead; `ignore_index` is then unused.
    ///
    /// # Errors
    /// [`Error::Shape`] if the shapes do not fit; [`Error::DType`] for other dtypes; [`Error::Argument`] unless the
    /// smoothing is between 0 and 1. A target that is not a valid class is an [`Error::Index`] when the result is
    /// computed.
    pub fn cross_entropy_with(&self, target: &Tensor, options: &CrossEntropyOptions) -> Result<Tensor> {
        const OP: &str = "cross_entropy";
        if !(0.0..=1.0).contains(&options.label_smoothing) {
            let message = format!("label_smoothing must be between 0 and 1, got {}", options.label_smoothing);
            return Err(Error::argument(OP, message));
        }
        if target.dtype().is_float() {
            return self.cross_entropy_of_probabilities(target, options);
        }
        let (logits, index) = rows_of_classes(OP, self, target, options.ignore_index)?;
        let weight = options.weight.map(|w| w.to_dtype(self.dtype())).transpose()?;
        let composite = CrossEntropy {
            label_smoothing: Scalar::Float(options.label_smoothing),
            ignore_index: ignored(target, options.ignore_index),
            weighted: weight.is_some(),
        };
        let operands: Vec<&Tensor> = [&logits, &index].into_iter().chain(&weight).collect();
        let losses = Composite::apply(composite, &operands)?;
        class_reduced(losses, &index, options, target.shape())
    }

    fn cross_entropy_of_probabilities(
        &self,
        target: &Tensor,
        options: &CrossEntropyOptions,
    ) -> Result<Tensor> {
        if self.shape() != target.shape() {
            let hint = "a floating-point target holds probabilities and must have the input's shape; class indices must \
                        be integers: convert with .to_dtype(int64)";
            return Err(Error::shape("cross_entropy", &[self.shape(), target.shape()], hint));
        }
        check_pair("cross_entropy", self, target)?;
        let axis = if self.rank() > 1 { 1 } else { 0 };
        let Some(&classes) = self.shape().get(axis as usize) else {
            let hint = "the input must be (N, classes, ..) or (classes,)";
            return Err(Error::shape("cross_entropy", &[self.shape()], hint));
        };
        let smoothing = options.label_smoothing;
        let target = target.to_dtype(self.dtype())?;
        let target = if smoothing == 0.0 {
            target
        } else {
            target.mul_scalar(1.0 - smoothing)?.add_scalar(smoothing / classes as f64)?
        };
        let mut products = self.log_softmax(axis)?.mul(&target)?;
        if let Some(weight) = options.weight {
            let mut shape = vec![1; self.rank()];
            shape[axis as usize] = classes;
            products = products.mul(&weight.to_dtype(self.dtype())?.reshape(&shape)?)?;
        }
        reduced(products.sum(&[axis], false)?.neg()?, options.reduction)
    }

    /// The negative log-likelihood, `-input[target]`, for log-probabilities `[N, C, ..]` (or `[C]`) and class indices
    /// `[N, ..]`. Label smoothing is not used.
    ///
    /// # Errors
    /// As [`Tensor::cross_entropy_with`].
    pub fn nll_loss(&self, target: &Tensor, options: &CrossEntropyOptions) -> Result<Tensor> {
        let (rows, index) = rows_of_classes("nll_loss", self, target, options.ignore_index)?;
        let classes = rows.shape()[1] as i64;
        let mut losses = one_of(&rows, &index)?.neg()?;
        if let Some(weight) = options.weight {
            if weight.shape() != &rows.shape()[1..] {
                let hint = format!("the weight must have one element for each of {classes} classes");
                return Err(Error::shape("nll_loss", &[self.shape(), weight.shape()], hint));
            }
            losses = losses.mul(&one_of(&weight.to_dtype(rows.dtype())?.unsqueeze(0)?, &index)?)?;
        }
        if let Some(ignored) = ignored(target, options.ignore_index) {
            losses = index.eq_scalar(ignored)?.where_(&losses.zeros_like()?, &losses)?;
        }
        class_reduced(losses, &index, options, target.shape())
    }

    /// `(input - target)^2`.
    pub fn mse_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        check_pair("mse_loss", self, target)?;
        self.in_compute_dtype_with(target, |x, target| reduced(x.sub(target)?.square()?, reduction))
    }

    /// `|input - target|`.
    pub fn l1_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        check_pair("l1_loss", self, target)?;
        reduced(self.sub(target)?.abs()?, reduction)
    }

    /// `d^2 / (2 beta)` for distances d below beta, `d - beta / 2` otherwise.
    ///
    /// # Errors
    /// [`Error::Argument`] for a negative beta.
    pub fn smooth_l1_loss(&self, target: &Tensor, beta: f64, reduction: Reduction) -> Result<Tensor> {
        if beta.is_nan() || beta < 0.0 {
            return Err(Error::argument(
                "smooth_l1_loss",
                format!("beta must not be negative or NaN, got {beta}"),
            ));
        }
        if beta == 0.0 {
            return self.l1_loss(target, reduction);
        }
        self.huber("smooth_l1_loss", target, beta, 1.0 / beta, reduction)
    }

    /// `d^2 / 2` for distances d below delta, `delta (d - delta / 2)` otherwise (Huber, 1964).
    ///
    /// # Errors
    /// [`Error::Argument`] unless delta is positive.
    pub fn huber_loss(&self, target: &Tensor, delta: f64, reduction: Reduction) -> Result<Tensor> {
        if delta.is_nan() || delta <= 0.0 {
            return Err(Error::argument("huber_loss", format!("delta must be positive, not {delta}")));
        }
        self.huber("huber_loss", target, delta, 1.0, reduction)
    }

    fn huber(
        &self,
        op: &'static str,
        target: &Tensor,
        delta: f64,
        scale: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        check_pair(op, self, target)?;
        self.in_compute_dtype_with(target, |x, target| {
            let difference = x.sub(target)?;
            let distance = difference.abs()?;
            let near = difference.square()?.mul_scalar(0.5 * scale)?;
            let far = distance.sub_scalar(0.5 * delta)?.mul_scalar(delta * scale)?;
            reduced(distance.lt_scalar(delta)?.where_(&near, &far)?, reduction)
        })
    }

    /// `-(target log(input) + (1 - target) log(1 - input))` for probabilities. Logarithms are clamped to at least -100.
    /// The gradient is PyTorch's, which is finite at 0 and 1: `(input - target) / max(input (1 - input), 1e-12)`.
    pub fn binary_cross_entropy(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        check_pair("binary_cross_entropy", self, target)?;
        let dtype = self.dtype().promote(target.dtype());
        let operands = [&self.to_dtype(dtype)?, &target.to_dtype(dtype)?];
        let losses = Composite::apply(BinaryCrossEntropy, &operands)?;
        weighted(losses, weight, reduction)
    }

    /// [`Tensor::binary_cross_entropy`] of the sigmoid of these logits, without overflow. `pos_weight` scales the
    /// positive term.
    pub fn binary_cross_entropy_with_logits(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        pos_weight: Option<&Tensor>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        check_pair("binary_cross_entropy_with_logits", self, target)?;
        let weights = [weight, pos_weight].into_iter().flatten();
        let dtype = weights.fold(target.dtype(), |dtype, weight| dtype.promote(weight.dtype()));
        self.in_compute_dtype_with(&target.to_dtype(dtype)?, |x, target| {
            let log_yes = x.logsigmoid()?;
            let yes = match pos_weight {
                Some(pos_weight) => log_yes.mul(pos_weight)?,
                None => log_yes.clone(),
            };
            // log(1 - sigmoid(x)) = log(sigmoid(x)) - x.
            let no = log_yes.sub(x)?;
            let losses = target.sub_scalar(1)?.mul(&no)?.sub(&target.mul(&yes)?)?;
            weighted(losses, weight, reduction)
        })
    }

    /// `target (log(target) - input)` for log-probabilities `input`; 0 where the target is 0. With `log_target`, the
    /// target holds log-probabilities too. For the Kullback-Leibler divergence, divide the sum by the batch size: see
    /// [`Tensor::kl_div_batch_mean`].
    pub fn kl_div(&self, target: &Tensor, log_target: bool, reduction: Reduction) -> Result<Tensor> {
        check_pair("kl_div", self, target)?;
        self.in_compute_dtype_with(target, |x, target| {
            if log_target {
                return reduced(target.exp()?.mul(&target.sub(x)?)?, reduction);
            }
            let zero = target.eq_scalar(0)?;
            let safe = zero.where_(&target.ones_like()?, target)?;
            reduced(target.mul(&safe.log()?)?.sub(&target.mul(x)?)?, reduction)
        })
    }

    /// The Kullback-Leibler divergence, averaged over the batch: the sum of [`Tensor::kl_div`] divided by the size of
    /// the first dimension (PyTorch's reduction `batchmean`).
    pub fn kl_div_batch_mean(&self, target: &Tensor, log_target: bool) -> Result<Tensor> {
        let Some(&batch) = self.shape().first() else {
            let hint = "expected a batch dimension";
            return Err(Error::shape("kl_div_batch_mean", &[self.shape()], hint));
        };
        self.in_compute_dtype_with(target, |x, target| {
            x.kl_div(target, log_target, Reduction::Sum)?.div_scalar(batch as f64)
        })
    }

    /// x where the target is 1, `max(0, margin - x)` where it is -1.
    pub fn hinge_embedding_loss(&self, target: &Tensor, margin: f64, reduction: Reduction) -> Result<Tensor> {
        check_pair("hinge_embedding_loss", self, target)?;
        let apart = self.rsub_scalar(margin)?.relu()?;
        reduced(target.eq_scalar(1)?.where_(self, &apart)?, reduction)
    }

    /// The cosine of the angle between vectors along `dim`. Shapes are broadcast. Norms are clamped to at least `eps`.
    pub fn cosine_similarity(&self, other: &Tensor, dim: i64, eps: f64) -> Result<Tensor> {
        let length = |x: &Tensor| -> Result<Tensor> {
            let square = x.square()?.sum(&[dim], false)?;
            let low = square.lt_scalar(eps * eps)?;
            low.where_(&square.full_like(eps * eps)?, &square)?.sqrt()
        };
        self.in_compute_dtype_with(other, |a, b| {
            a.mul(b)?.sum(&[dim], false)?.div(&length(a)?.mul(&length(b)?)?)
        })
    }

    /// For pairs of vectors `[N, D]` (or `[D]`): `1 - cosine` where the target is 1, `max(0, cosine - margin)` where it
    /// is -1, 0 elsewhere. As in PyTorch, 1e-12 is added to the squared lengths.
    pub fn cosine_embedding_loss(
        &self,
        other: &Tensor,
        target: &Tensor,
        margin: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        const OP: &str = "cosine_embedding_loss";
        check_pair(OP, self, other)?;
        let Some((_, vectors)) = self.shape().split_last() else {
            return Err(Error::shape(OP, &[self.shape()], "expected at least one dimension"));
        };
        if target.shape() != vectors {
            let hint = "expected one target (1 or -1) for each pair of vectors";
            return Err(Error::shape(OP, &[self.shape(), target.shape()], hint));
        }
        let dot = |a: &Tensor, b: &Tensor| a.mul(b)?.sum(&[-1], false);
        let square = |x: &Tensor| dot(x, x)?.add_scalar(LEAST_SQUARE);
        self.in_compute_dtype_with(other, |a, b| {
            let cosine = dot(a, b)?.div(&square(a)?.mul(&square(b)?)?.sqrt()?)?;
            let apart = cosine.sub_scalar(margin)?.relu()?;
            let apart = target.eq_scalar(-1)?.where_(&apart, &apart.zeros_like()?)?;
            reduced(target.eq_scalar(1)?.where_(&cosine.rsub_scalar(1)?, &apart)?, reduction)
        })
    }
}

fn weighted(losses: Tensor, weight: Option<&Tensor>, reduction: Reduction) -> Result<Tensor> {
    let losses = match weight {
        Some(weight) => losses.mul(weight)?,
        None => losses,
    };
    reduced(losses, reduction)
}
