//! Attention with all scores of queries and keys.

use phynexus::{DType, Tensor, tensor::AttentionOptions};

use crate::{
    Error, Result, Value,
    graph::{Call, one},
    ops::counted,
};

/// Features `[batch, positions, heads * size]` as `[batch, heads, positions, size]`.
pub(super) fn split_heads(x: &Tensor, heads: i64) -> Result<Tensor> {
    match (x.shape(), usize::try_from(heads)) {
        (&[batch, positions, features], Ok(heads)) if heads > 0 && features.is_multiple_of(heads) => {
            Ok(x.reshape(&[batch, positions, heads, features / heads])?.permute(&[0, 2, 1, 3])?)
        }
        (shape, _) => {
            Err(Error::invalid(format!("expected (batch, positions, {heads} heads * size), got {shape:?}")))
        }
    }
}

/// `[batch, heads, positions, size]` as `[batch, positions, heads * size]`.
pub(super) fn join_heads(x: &Tensor) -> Result<Tensor> {
    Ok(x.permute(&[0, 2, 1, 3])?.flatten(2, -1)?)
}

/// An input as `[batch, heads, positions, size]`.
fn with_heads(call: &Call<'_>, input: usize, heads: &str) -> Result<Tensor> {
    let x = call.tensor(input)?;
    match x.rank() {
        4 => Ok(x),
        _ => split_heads(&x, call.int_or(heads, 0)?),
    }
}

fn scale(call: &Call<'_>, query: &Tensor) -> Result<f64> {
    let size = query.shape().last().copied().unwrap_or(1).max(1);
    call.float_or("scale", 1.0 / (size as f64).sqrt())
}

/// The products of queries and keys. Each factor is scaled, so that those of 16-bit floats stay finite.
fn scores(query: &Tensor, key: &Tensor, scale: f64) -> Result<Tensor> {
    let root = scale.abs().sqrt();
    let key = key.mul_scalar(root)?.transpose(-1, -2)?;
    Ok(query.mul_scalar(root.copysign(scale))?.matmul(&key)?)
}

/// Keys or values, repeated for the neighbouring query heads that share them.
fn for_each_head(shared: &Tensor, query: &Tensor) -> Result<Tensor> {
    match (shared.shape(), query.shape()) {
        (&[_, heads, ..], &[_, wanted, ..]) if heads == wanted => Ok(shared.clone()),
        (&[_, heads, ..], &[_, wanted, ..]) if heads > 0 && wanted.is_multiple_of(heads) => {
            Ok(shared.repeat_interleave(wanted / heads, 1)?)
        }
        _ => Err(Error::invalid("the query heads must be a multiple of the key and value heads")),
    }
}

/// The dtype of the softmax, if the file asks for one.
fn precision(call: &Call<'_>) -> Result<Option<DType>> {
    let Some(element) = call.element("softmax_precision")? else { return Ok(None) };
    let dtype = element.dtype().filter(|dtype| dtype.is_float());
    dtype.map(Some).ok_or_else(|| Error::invalid("attribute \"softmax_precision\" must be a type of floats"))
}

pub(super) fn attention(call: &Call<'_>) -> Result<Vec<Value>> {
    let query = with_heads(call, 0, "q_num_heads")?;
    let (mut key, mut value) = (with_heads(call, 1, "kv_num_heads")?, with_heads(call, 2, "kv_num_heads")?);
    let past = match (call.optional(4)?, call.optional(5)?) {
        (None, None) => 0,
        (Some(past_key), Some(past_value)) if past_key.rank() == 4 => {
            key = Tensor::cat(&[&past_key, &key], 2)?;
            value = Tensor::cat(&[&past_value, &value], 2)?;
            past_key.shape()[2]
        }
        _ => {
            return Err(Error::invalid(
                "past_key and past_value must be given together, with four dimensions",
            ));
        }
    };
    let (present_key, present_value) = (key.clone(), value.clone());
    value = value.to_dtype(query.dtype())?;
    let (scale, softcap) = (scale(call, &query)?, call.float_or("softcap", 0.0)?);
    let precision = precision(call)?.unwrap_or(query.dtype().compute());
    let is_plain = softcap <= 0.0 && !call.wants(3) && precision == query.dtype().compute();
    let positions = Positions::of(call, &query, &key, past)?;
    // The engine's own causal mask starts at the first key.
    let is_causal = is_plain && positions.causal && positions.past == 0 && positions.valid.is_none();
    let mask = mask(call, &positions, is_causal, query.dtype())?;
    let mut products = None;
    let output = if is_plain {
        let options =
            AttentionOptions { is_causal, scale: Some(scale), enable_gqa: true, ..Default::default() };
        query.scaled_dot_product_attention(&key, &value, mask.as_ref(), options)?
    } else {
        let (key, value) = (for_each_head(&key, &query)?, for_each_head(&value, &query)?);
        let raw = scores(&query, &key, scale)?;
        let capped = match softcap > 0.0 {
            true => raw.div_scalar(softcap)?.tanh()?.mul_scalar(softcap)?,
            false => raw.clone(),
        };
        let (biased, weights) = masked_softmax(&capped, mask.as_ref(), precision)?;
        let weights = weights.to_dtype(query.dtype())?;
        products = Some(match call.int_or("qk_matmul_output_mode", 0)? {
            0 => raw,
            1 => capped,
            2 => biased,
            3 => weights.clone(),
            other => {
                return Err(Error::invalid(format!("qk_matmul_output_mode must be 0 to 3, it is {other}")));
            }
        });
        weights.matmul(&value)?
    };
    let output = if call.value(0)?.shape()?.len() == 3 { join_heads(&output)? } else { output };
    Ok([output, present_key, present_value].into_iter().chain(products).map(Value::from).collect())
}

/// Scores plus the mask, and their softmax, which is 0 for a query that attends to no key.
fn masked_softmax(scores: &Tensor, mask: Option<&Tensor>, dtype: DType) -> Result<(Tensor, Tensor)> {
    let Some(mask) = mask else { return Ok((scores.clone(), scores.to_dtype(dtype)?.softmax(-1)?)) };
    let (hidden, added) = match mask.dtype() {
        DType::Bool => (mask.logical_not()?, scores.clone()),
        _ => (mask.eq_scalar(f64::NEG_INFINITY)?, scores.add(mask)?),
    };
    let biased = hidden.where_(&added.full_like(f64::NEG_INFINITY)?, &added)?;
    let lost = hidden.all(&[-1], true)?;
    let wide = biased.to_dtype(dtype)?;
    let weights = lost.where_(&wide.zeros_like()?, &wide)?.softmax(-1)?;
    Ok((biased, lost.where_(&weights.zeros_like()?, &weights)?))
}

/// Which keys the positions of queries and keys let a query see.
struct Positions {
    queries: usize,
    keys: usize,
    /// The keys before the first query.
    past: usize,
    /// The number of keys of each sample that are not padding, `[batch, 1, 1, 1]`.
    valid: Option<Tensor>,
    causal: bool,
    /// The keys that a query sees before and after its own place.
    window: [Option<i64>; 2],
}

impl Positions {
    fn of(call: &Call<'_>, query: &Tensor, key: &Tensor, past: usize) -> Result<Positions> {
        let (&[_, _, queries, _], &[_, _, keys, _]) = (query.shape(), key.shape()) else {
            return Err(Error::invalid("queries and keys must have three or four dimensions"));
        };
        let valid = match call.optional(6)? {
            Some(_) if call.has(4) => {
                return Err(Error::invalid("nonpad_kv_seqlen cannot be given together with past_key"));
            }
            Some(lengths) => Some(lengths.to_dtype(DType::I64)?.reshape_infer(&[-1, 1, 1, 1])?),
            None => None,
        };
        let side = |name: &str| match call.int_or(name, -1)? {
            -1 => Ok(None),
            size @ 0.. => Ok(Some(size)),
            size => Err(Error::invalid(format!("attribute {name:?} must be -1 or more, it is {size}"))),
        };
        let window = [side("left_window_size")?, side("right_window_size")?];
        Ok(Positions { queries, keys, past, valid, causal: call.int_or("is_causal", 0)? != 0, window })
    }

    /// Conditions for a query to see a key, each broadcast to `[batch, heads, queries, keys]`.
    fn conditions(&self, call: &Call<'_>, is_causal: bool) -> Result<Vec<Tensor>> {
        let places = counted(self.keys, call.device)?;
        // The distance from a key to a query after it.
        let first = counted(self.queries, call.device)?.unsqueeze(1)?.sub(&places)?;
        let distance = match &self.valid {
            Some(valid) => first.add(&valid.sub_scalar(self.queries as i64)?)?,
            None => first.add_scalar(self.past as i64)?,
        };
        let [left, right] = self.window;
        let mut conditions = Vec::new();
        // One new query sees all keys of its past.
        let sees_all = self.valid.is_none() && self.past + 1 >= self.keys;
        if self.causal && !is_causal && !sees_all {
            conditions.push(distance.ge_scalar(0)?);
        }
        if let Some(left) = left {
            conditions.push(distance.le_scalar(left)?);
        }
        if let Some(right) = right {
            conditions.push(distance.ge_scalar(-right)?);
        }
        if let Some(valid) = &self.valid {
            conditions.push(places.lt(valid)?);
        }
        Ok(conditions)
    }
}

/// The mask as booleans (true takes part) or as floats to add. A causal one is left out if `is_causal`.
fn mask(call: &Call<'_>, positions: &Positions, is_causal: bool, dtype: DType) -> Result<Option<Tensor>> {
    let mut conditions = positions.conditions(call, is_causal)?;
    let mut added = None;
    if let Some(given) = call.optional(3)? {
        let given = if given.dtype() == DType::Bool { given } else { given.to_dtype(dtype)? };
        let missing = given.shape().last().map_or(0, |&last| positions.keys.saturating_sub(last));
        let mut padding = vec![(0, 0); given.rank()];
        padding.last_mut().into_iter().for_each(|last| *last = (0, missing));
        match given.dtype() {
            DType::Bool => conditions.push(given.pad(&padding, false)?),
            _ => added = Some(given.pad(&padding, f64::NEG_INFINITY)?),
        }
    }
    let mut seen: Option<Tensor> = None;
    for condition in conditions {
        seen = Some(match seen {
            Some(before) => before.logical_and(&condition)?,
            None => condition,
        });
    }
    Ok(match (seen, added) {
        (Some(seen), Some(added)) => Some(seen.where_(&added, &added.full_like(f64::NEG_INFINITY)?)?),
        (seen, added) => seen.or(added),
    })
}

pub(super) fn flex_attention(call: &Call<'_>) -> Result<Vec<Value>> {
    let (query, key, value) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    if [&query, &key, &value].iter().any(|x| x.rank() != 4) {
        return Err(Error::invalid("queries, keys and values must be (batch, heads, positions, size)"));
    }
    let scale = scale(call, &query)?;
    let precision = precision(call)?.unwrap_or(query.dtype().compute());
    let is_plain = !call.has_attribute("score_mod") && !call.has_attribute("prob_mod");
    if is_plain && precision == query.dtype().compute() {
        let options = AttentionOptions { scale: Some(scale), enable_gqa: true, ..Default::default() };
        return one(query.scaled_dot_product_attention(&key, &value, None, options)?);
    }
    let (key, value) = (for_each_head(&key, &query)?, for_each_head(&value, &query)?);
    let scores = modified(call, "score_mod", scores(&query, &key, scale)?.to_dtype(precision)?)?;
    let weights = modified(call, "prob_mod", scores.softmax(-1)?)?;
    one(weights.matmul(&value.to_dtype(precision)?)?.to_dtype(query.dtype())?)
}

/// What the graph of an attribute makes of a tensor; the tensor itself if there is no such attribute.
fn modified(call: &Call<'_>, name: &str, given: Tensor) -> Result<Tensor> {
    if !call.has_attribute(name) {
        return Ok(given);
    }
    let (shape, dtype) = (given.shape().to_vec(), given.dtype());
    let results = call.run(&*call.graph(name)?, vec![Some(given.into())])?;
    match &results[..] {
        [result] if result.shape()? == shape => {
            Ok(result.tensor()?.to_device(call.device)?.to_dtype(dtype)?)
        }
        _ => {
            Err(Error::invalid(format!("the graph {name:?} must have one output, of the shape of its input")))
        }
    }
}
