//! Preparation of features, and linear models.

use phynexus::{DType, Tensor};

use crate::{
    Error, Result, Text, Value,
    graph::{Call, one},
};

pub(super) fn binarizer(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    one(x.gt_scalar(call.float_or("threshold", 0.0)?)?.to_dtype(x.dtype())?)
}

pub(super) fn array_feature_extractor(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = call.value(0)?;
    let Some((&last, rest)) = x.shape()?.split_last() else {
        return Err(Error::invalid("expected features, got a scalar"));
    };
    let chosen = call.tensor(1)?.reshape_infer(&[-1])?;
    let mut shape = if rest.is_empty() { vec![1] } else { rest.to_vec() };
    shape.push(chosen.len());
    if let Value::Text(text) = x {
        let places = call.integers(1)?;
        let mut values = Vec::new();
        for row in text.values.chunks(last.max(1)) {
            for &place in &places {
                let value = usize::try_from(place).ok().and_then(|place| row.get(place));
                let missing = || Error::invalid(format!("there is no feature {place}, there are {last}"));
                values.push(value.ok_or_else(missing)?.clone());
            }
        }
        return Ok(vec![Value::Text(Text { shape, values })]);
    }
    one(call.tensor(0)?.take(&chosen, Some(-1))?.reshape(&shape)?)
}

/// An attribute of floats as a vector of this tensor's dtype: one value, or one for each of its features.
fn per_feature(call: &Call<'_>, name: &str, usual: f32, x: &Tensor) -> Result<Tensor> {
    let values = call.float_list(name)?.unwrap_or_else(|| vec![usual]);
    if values.len() != 1 && Some(&values.len()) != x.shape().last() {
        let message =
            format!("attribute {name:?} must have one value or one per feature, it has {}", values.len());
        return Err(Error::invalid(message));
    }
    let values = Tensor::from_slice(&values, &[values.len()], call.device)?;
    Ok(values.to_dtype(x.dtype())?)
}

/// An input as floats: `float64` stays, all else is `float32`.
fn floats(call: &Call<'_>) -> Result<Tensor> {
    let x = call.tensor(0)?;
    Ok(if x.dtype() == DType::F64 { x } else { x.to_dtype(DType::F32)? })
}

pub(super) fn scaler(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = floats(call)?;
    let (offset, scale) = (per_feature(call, "offset", 0.0, &x)?, per_feature(call, "scale", 1.0, &x)?);
    one(x.sub(&offset)?.mul(&scale)?.to_dtype(DType::F32)?)
}

pub(super) fn normalizer(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = floats(call)?;
    let order = match call.string_or("norm", "MAX")? {
        "MAX" => f64::INFINITY,
        "L1" => 1.0,
        "L2" => 2.0,
        other => {
            return Err(Error::invalid(format!("attribute \"norm\" must be MAX, L1 or L2, it is {other:?}")));
        }
    };
    let norm = x.norm(order, &[-1], true)?;
    let divisor = norm.eq_scalar(0)?.where_(&norm.ones_like()?, &norm)?;
    one(x.div(&divisor)?.to_dtype(DType::F32)?)
}

pub(super) fn imputer(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let missing = |value: f64| if value.is_nan() { x.isnan() } else { x.eq_scalar(value) };
    let (missing, values) = match call.ints("imputed_value_int64s")?.filter(|values| !values.is_empty()) {
        Some(values) => {
            let values = Tensor::from_slice(&values, &[values.len()], call.device)?.to_dtype(x.dtype())?;
            (x.eq_scalar(call.int_or("replaced_value_int64", 0)?)?, values)
        }
        None if call.has_attribute("imputed_value_floats") => {
            let values = per_feature(call, "imputed_value_floats", 0.0, &x)?;
            (missing(call.float_or("replaced_value_float", 0.0)?)?, values)
        }
        None => {
            return Err(Error::invalid(
                "attribute \"imputed_value_floats\" or \"imputed_value_int64s\" is missing",
            ));
        }
    };
    let result = missing.where_(&values, &x)?;
    match result.shape() == x.shape() {
        true => one(result),
        false => Err(Error::invalid(format!("expected one value or one per feature, got {}", values.len()))),
    }
}

pub(super) fn linear_regressor(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = floats(call)?;
    let coefficients = call.float_list("coefficients")?.unwrap_or_default();
    let targets = usize::try_from(call.int_or("targets", 1)?).unwrap_or(0);
    if targets == 0 || !coefficients.len().is_multiple_of(targets) {
        let count = coefficients.len();
        return Err(Error::invalid(format!(
            "the {count} coefficients must be as many for each of {targets} targets"
        )));
    }
    let weights = Tensor::from_slice(&coefficients, &[targets, coefficients.len() / targets], call.device)?;
    let mut scores = x.matmul(&weights.to_dtype(x.dtype())?.t()?)?;
    if call.has_attribute("intercepts") {
        scores = scores.add(&per_feature(call, "intercepts", 0.0, &scores)?)?;
    }
    let scores = transformed(&scores, call.string_or("post_transform", "NONE")?)?;
    one(scores.to_dtype(DType::F32)?)
}

/// What a model makes of its scores `[samples, targets]`.
pub(super) fn transformed(scores: &Tensor, transform: &str) -> Result<Tensor> {
    Ok(match transform {
        "NONE" => scores.clone(),
        "SOFTMAX" => scores.softmax(-1)?,
        "LOGISTIC" => scores.sigmoid()?,
        // The softmax of the scores that are not 0, which stay 0.
        "SOFTMAX_ZERO" => {
            let is_zero = scores.abs()?.le_scalar(1e-7)?;
            let weights = scores.masked_fill(&is_zero, f64::NEG_INFINITY)?.softmax(-1)?;
            weights.masked_fill(&is_zero, 0)?
        }
        "PROBIT" => scores.mul_scalar(2)?.sub_scalar(1)?.erfinv()?.mul_scalar(std::f64::consts::SQRT_2)?,
        other => return Err(Error::invalid(format!("there is no post_transform {other:?}"))),
    })
}
