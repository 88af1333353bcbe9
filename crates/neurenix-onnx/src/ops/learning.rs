//! Losses, optimisers and classical machine learning.

mod classical;
mod labels;
mod trees;

use phynexus::{
    Tensor,
    tensor::{CrossEntropyOptions, Reduction},
};

use super::Rows;
use crate::{Error, Result, Value, graph::Call};

pub(super) const ROWS: Rows = &[
    ("NegativeLogLikelihoodLoss", |call| loss(call, Tensor::nll_loss)),
    ("SoftmaxCrossEntropyLoss", softmax_cross_entropy_loss),
    ("ai.onnx.ml.ArrayFeatureExtractor", classical::array_feature_extractor),
    ("ai.onnx.ml.Binarizer", classical::binarizer),
    ("ai.onnx.ml.Imputer", classical::imputer),
    ("ai.onnx.ml.LabelEncoder", labels::label_encoder),
    ("ai.onnx.ml.LinearRegressor", classical::linear_regressor),
    ("ai.onnx.ml.Normalizer", classical::normalizer),
    ("ai.onnx.ml.Scaler", classical::scaler),
    ("ai.onnx.ml.TreeEnsemble", trees::tree_ensemble),
    ("ai.onnx.preview.training.Adagrad", adagrad),
    ("ai.onnx.preview.training.Adam", adam),
    ("ai.onnx.preview.training.Momentum", momentum),
];

type Loss = fn(&Tensor, &Tensor, &CrossEntropyOptions<'_>) -> phynexus::Result<Tensor>;

fn loss(call: &Call<'_>, loss: Loss) -> Result<Vec<Value>> {
    let (scores, target, weight) = (call.tensor(0)?, call.tensor(1)?, call.optional(2)?);
    let reduction = match call.string_or("reduction", "mean")? {
        "none" => Reduction::None,
        "mean" => Reduction::Mean,
        "sum" => Reduction::Sum,
        other => return Err(Error::invalid(format!("there is no reduction {other:?}"))),
    };
    let options = CrossEntropyOptions {
        weight: weight.as_ref(),
        // No class has the default.
        ignore_index: call.int_or("ignore_index", i64::MIN)?,
        reduction,
        ..Default::default()
    };
    Ok(vec![loss(&scores, &target, &options)?.into()])
}

fn softmax_cross_entropy_loss(call: &Call<'_>) -> Result<Vec<Value>> {
    let mut results = loss(call, Tensor::cross_entropy_with)?;
    if call.wants(1) {
        results.push(call.tensor(0)?.log_softmax(1)?.into());
    }
    Ok(results)
}

/// Updates several tensors. The inputs are the learning rate, the number of updates so far, and lists of as many
/// tensors: the weights, their gradients, and `states` lists that the optimiser keeps. `update` takes the rate and the
/// number in the weight's dtype and one tensor of each list; it returns the new weight and states.
fn optimised(
    call: &Call<'_>,
    states: usize,
    update: impl Fn(&Tensor, &Tensor, &[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Vec<Value>> {
    let (lists, tensors) = (states + 2, call.count().saturating_sub(2));
    if tensors == 0 || !tensors.is_multiple_of(lists) {
        return Err(Error::invalid(format!("expected a multiple of {lists} tensors, there are {tensors}")));
    }
    let weights = tensors / lists;
    let mut updated = vec![Vec::with_capacity(weights); states + 1];
    for weight in 0..weights {
        let own =
            (0..lists).map(|list| call.tensor(2 + list * weights + weight)).collect::<Result<Vec<_>>>()?;
        let number = |input: usize| -> Result<Tensor> {
            Ok(call.tensor(input)?.to_dtype(own[0].dtype())?.reshape(&[])?)
        };
        let results = update(&number(0)?, &number(1)?, &own)?;
        updated.iter_mut().zip(results).for_each(|(list, result)| list.push(Value::from(result)));
    }
    Ok(updated.into_iter().flatten().collect())
}

/// The gradient with that of the weight's squared length.
fn regularised(call: &Call<'_>, weight: &Tensor, gradient: &Tensor) -> Result<Tensor> {
    Ok(weight.mul_scalar(call.float_or("norm_coefficient", 0.0)?)?.add(gradient)?)
}

fn adagrad(call: &Call<'_>) -> Result<Vec<Value>> {
    optimised(call, 1, |rate, count, tensors| {
        let [weight, gradient, squares] = tensors else {
            return Err(Error::invalid("expected three lists of tensors"));
        };
        let gradient = regularised(call, weight, gradient)?;
        let squares = squares.add(&gradient.square()?)?;
        let rate = rate.div(&count.mul_scalar(call.float_or("decay_factor", 0.0)?)?.add_scalar(1)?)?;
        let divisor = squares.sqrt()?.add_scalar(call.float_or("epsilon", 1e-6)?)?;
        Ok(vec![weight.sub(&gradient.mul(&rate)?.div(&divisor)?)?, squares])
    })
}

fn adam(call: &Call<'_>) -> Result<Vec<Value>> {
    let (alpha, beta) = (call.float_or("alpha", 0.9)?, call.float_or("beta", 0.999)?);
    optimised(call, 2, |rate, count, tensors| {
        let [weight, gradient, mean, squares] = tensors else {
            return Err(Error::invalid("expected four lists of tensors"));
        };
        let gradient = regularised(call, weight, gradient)?;
        let mean = mean.mul_scalar(alpha)?.add(&gradient.mul_scalar(1.0 - alpha)?)?;
        let squares = squares.mul_scalar(beta)?.add(&gradient.square()?.mul_scalar(1.0 - beta)?)?;
        let started = count.gt_scalar(0)?;
        let count = started.where_(count, &count.ones_like()?)?;
        let factor = count
            .rpow_scalar(beta)?
            .rsub_scalar(1)?
            .sqrt()?
            .div(&count.rpow_scalar(alpha)?.rsub_scalar(1)?)?;
        let rate = started.where_(&rate.mul(&factor)?, rate)?;
        let divisor = squares.sqrt()?.add_scalar(call.float_or("epsilon", 1e-6)?)?;
        let moved = weight.sub(&mean.mul(&rate)?.div(&divisor)?)?;
        Ok(vec![moved.mul_scalar(1.0 - call.float_or("norm_coefficient_post", 0.0)?)?, mean, squares])
    })
}

fn momentum(call: &Call<'_>) -> Result<Vec<Value>> {
    let required = |name: &str| {
        call.float(name)?.ok_or_else(|| Error::invalid(format!("attribute {name:?} is missing")))
    };
    let (alpha, beta) = (required("alpha")?, required("beta")?);
    let is_nesterov = match call.string_or("mode", "")? {
        "nesterov" => true,
        "standard" => false,
        other => {
            return Err(Error::invalid(format!(
                "attribute \"mode\" must be nesterov or standard, it is {other:?}"
            )));
        }
    };
    optimised(call, 1, |rate, count, tensors| {
        let [weight, gradient, velocity] = tensors else {
            return Err(Error::invalid("expected three lists of tensors"));
        };
        let gradient = regularised(call, weight, gradient)?;
        let factor = count.gt_scalar(0)?.where_(&count.full_like(beta)?, &count.ones_like()?)?;
        let velocity = velocity.mul_scalar(alpha)?.add(&gradient.mul(&factor)?)?;
        let direction = match is_nesterov {
            true => gradient.add(&velocity.mul_scalar(alpha)?)?,
            false => velocity.clone(),
        };
        Ok(vec![weight.sub(&direction.mul(rate)?)?, velocity])
    })
}
