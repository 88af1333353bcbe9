//! Rotary position embeddings.

use phynexus::Tensor;

use super::attention::{join_heads, split_heads};
use crate::{
    Error, Result, Value,
    graph::{Call, one},
    ops::widened,
};

pub(super) fn rotary_embedding(call: &Call<'_>) -> Result<Vec<Value>> {
    let given = call.tensor(0)?;
    let x = match given.rank() {
        4 => given.clone(),
        _ => split_heads(&given, call.int_or("num_heads", 0)?)?,
    };
    let &[batch, heads, positions, size] = x.shape() else {
        return Err(Error::invalid("expected (batch, heads, positions, size)"));
    };
    let rotated = match call.int_or("rotary_embedding_dim", 0)? {
        0 => Some(size),
        part => usize::try_from(part).ok(),
    };
    let Some(rotated) = rotated.filter(|&part| part <= size && part.is_multiple_of(2)) else {
        return Err(Error::invalid(format!(
            "the rotated part of the {size} features must be even and among them"
        )));
    };
    let half = rotated / 2;
    let places = call.optional(3)?;
    let cache = |input: usize| -> Result<Tensor> {
        let all = call.tensor(input)?;
        let chosen = match &places {
            Some(places) => all.take(places, Some(0))?,
            None => all,
        };
        match chosen.shape() {
            [_, _, last] if *last == half => Ok(widened(&chosen.unsqueeze(1)?)?),
            shape => {
                Err(Error::invalid(format!("a cache must have {half} values per position, got {shape:?}")))
            }
        }
    };
    let (cos, sin) = (cache(1)?, cache(2)?);
    let wide = widened(&x)?;
    let turned = wide.narrow(-1, 0, rotated)?;
    let interleaved = call.int_or("interleaved", 0)? != 0;
    let (first, second) = match interleaved {
        true => {
            let pairs = turned.reshape(&[batch, heads, positions, half, 2])?;
            (pairs.narrow(-1, 0, 1)?.squeeze(-1)?, pairs.narrow(-1, 1, 1)?.squeeze(-1)?)
        }
        false => (turned.narrow(-1, 0, half)?, turned.narrow(-1, half, half)?),
    };
    let real = cos.mul(&first)?.sub(&sin.mul(&second)?)?;
    let imaginary = sin.mul(&first)?.add(&cos.mul(&second)?)?;
    let turned = match interleaved {
        true => Tensor::stack(&[&real, &imaginary], -1)?.flatten(-2, -1)?,
        false => Tensor::cat(&[&real, &imaginary], -1)?,
    };
    let result = match rotated < size {
        true => Tensor::cat(&[&turned, &wide.narrow(-1, rotated, size - rotated)?], -1)?,
        false => turned,
    };
    let result = result.to_dtype(given.dtype())?;
    one(if given.rank() == 4 { result } else { join_heads(&result)? })
}
