//! Linear attention: a state per head, to which each position adds the product of its key and value.
//!
//! Positions are computed in chunks. Within a chunk that starts with the state `S`, and with the decays `G` from its
//! start to each position, the state at position t is `exp(G_t) S + sum over s <= t of exp(G_t - G_s) k_s u_s`. `u` are
//! the values, or for the delta rule the solution of a triangular system of equations.

use phynexus::{DType, Device, Tensor};

use super::attention::split_heads;
use crate::{Error, Result, Value, graph::Call};

/// Positions of a chunk: fewer if each feature of a key decays by itself, for the decays between all pairs of them.
const CHUNK: usize = 64;
const CHUNK_OF_FEATURES: usize = 16;

/// `exp` of this is 0 in `float32`. Differences of lesser numbers, such as of minus infinity, would not be numbers.
const LEAST_DECAY: f64 = -104.0;

pub(super) fn linear_attention(call: &Call<'_>) -> Result<Vec<Value>> {
    let rule = call.string_or("update_rule", "gated_delta")?;
    let (gated, delta) = match rule {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => return Err(Error::invalid(format!("there is no update rule {other:?}"))),
    };
    if call.has(4) != gated || call.has(5) != delta {
        return Err(Error::invalid(format!(
            "decay or beta is missing or unused with the update rule {rule:?}"
        )));
    }
    let (query_heads, heads) = (call.int_or("q_num_heads", 0)?, call.int_or("kv_num_heads", 0)?);
    // [batch, heads, query heads that share one, positions, size] in float32.
    let unpacked = |input: usize, heads: i64| -> Result<Tensor> {
        Ok(split_heads(&call.tensor(input)?, heads)?.to_dtype(DType::F32)?.unsqueeze(2)?)
    };
    let (query, key, value) = (unpacked(0, query_heads)?, unpacked(1, heads)?, unpacked(2, heads)?);
    let (&[batch, query_heads, _, steps, size], &[_, heads, _, _, key_size], &[.., value_size]) =
        (query.shape(), key.shape(), value.shape())
    else {
        return Err(Error::invalid("query, key and value must be (batch, positions, heads * size)"));
    };
    if !query_heads.is_multiple_of(heads) || size != key_size {
        return Err(Error::invalid("queries must have a multiple of the keys' heads, of the same size"));
    }
    let query = query.reshape(&[batch, heads, query_heads / heads, steps, size])?;
    let decay =
        if gated { Some(unpacked(4, heads as i64)?.clamp(Some(LEAST_DECAY.into()), None)?) } else { None };
    let beta = match delta {
        true => Some(unpacked(5, call.value(5)?.shape()?.last().copied().unwrap_or(0) as i64)?),
        false => None,
    };
    let past = call.optional(3)?;
    let state_dtype = past.as_ref().map_or(call.tensor(0)?.dtype(), Tensor::dtype);
    let state_shape = [batch, heads, size, value_size];
    let mut state = match past {
        Some(past) if past.shape() != state_shape => {
            return Err(Error::invalid(format!(
                "past_state must be {state_shape:?}, got {:?}",
                past.shape()
            )));
        }
        Some(past) => past.to_dtype(DType::F32)?.unsqueeze(2)?,
        None => Tensor::zeros(&[batch, heads, 1, size, value_size], DType::F32, call.device)?,
    };
    let scale = match call.float_or("scale", 0.0)? {
        0.0 => 1.0 / (size.max(1) as f64).sqrt(),
        scale => scale,
    };
    let by_feature = decay.as_ref().is_some_and(|decay| decay.shape().last() != Some(&1));
    let longest = if by_feature { CHUNK_OF_FEATURES } else { CHUNK }.min(steps);
    let levels = if delta { halves(longest, call.device)? } else { Vec::new() };
    let mut outputs =
        vec![Tensor::zeros(&[batch, heads, query_heads / heads, 0, value_size], DType::F32, call.device)?];
    for start in (0..steps).step_by(longest.max(1)) {
        let part = |x: &Tensor| x.narrow(3, start, longest.min(steps - start));
        let chunk = Chunk {
            query: part(&query)?,
            key: part(&key)?,
            value: part(&value)?,
            decay: decay.as_ref().map(|decay| part(decay)?.cumsum(3)).transpose()?,
            beta: beta.as_ref().map(part).transpose()?,
        };
        let (output, next) = chunk.run(&state, &levels)?;
        state = next;
        outputs.push(output);
    }
    let output = Tensor::cat(&outputs.iter().collect::<Vec<_>>(), 3)?.mul_scalar(scale)?;
    let output = output.permute(&[0, 3, 1, 2, 4])?.flatten(2, -1)?.to_dtype(call.tensor(0)?.dtype())?;
    Ok(vec![output.into(), state.squeeze(2)?.to_dtype(state_dtype)?.into()])
}

/// Neighbouring positions, `[batch, heads, .., positions, size]`.
struct Chunk {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    /// The sums of decays from the chunk's start: of each feature of a key, or one.
    decay: Option<Tensor>,
    beta: Option<Tensor>,
}

impl Chunk {
    /// The outputs and the state after the chunk.
    fn run(&self, state: &Tensor, levels: &[Tensor]) -> Result<(Tensor, Tensor)> {
        let decayed = |x: &Tensor| match &self.decay {
            Some(decay) => x.mul(&decay.exp()?),
            None => Ok(x.clone()),
        };
        let between = self.between()?;
        let update = match &self.beta {
            Some(beta) => {
                let known = self.value.sub(&decayed(&self.key)?.matmul(state)?)?.mul(beta)?;
                let system = self.products(&self.key, between.as_ref())?.mul(beta)?.tril(-1)?;
                inverse(&system, levels)?.matmul(&known)?
            }
            None => self.value.clone(),
        };
        let weights = self.products(&self.query, between.as_ref())?.tril(0)?;
        let output = decayed(&self.query)?.matmul(state)?.add(&weights.matmul(&update)?)?;
        let (mut key, mut state) = (self.key.clone(), state.clone());
        if let Some(decay) = &self.decay {
            let last = decay.slice(3, Some(-1), None, 1)?;
            key = key.mul(&last.sub(decay)?.exp()?)?;
            state = state.mul(&last.exp()?.transpose(-1, -2)?)?;
        }
        Ok((output, state.add(&key.transpose(-1, -2)?.matmul(&update)?)?))
    }

    /// What is left of each position's key at each position from there on: `[.., positions, positions, features or 1]`.
    fn between(&self) -> Result<Option<Tensor>> {
        let Some(decay) = &self.decay else { return Ok(None) };
        let difference = decay.unsqueeze(-2)?.sub(&decay.unsqueeze(-3)?)?;
        let positions = decay.shape()[3];
        let after =
            Tensor::ones(&[positions, positions], DType::F32, decay.device())?.tril(0)?.ne_scalar(0)?;
        Ok(Some(after.unsqueeze(-1)?.where_(&difference, &difference.zeros_like()?)?.exp()?))
    }

    /// The products of rows with the keys, as decayed at the row's position.
    fn products(&self, rows: &Tensor, between: Option<&Tensor>) -> Result<Tensor> {
        Ok(match between {
            Some(between) if between.shape().last() != Some(&1) => {
                rows.unsqueeze(-2)?.mul(&self.key.unsqueeze(-3)?)?.mul(between)?.sum(&[-1], false)?
            }
            Some(between) => rows.matmul(&self.key.transpose(-1, -2)?)?.mul(&between.squeeze(-1)?)?,
            None => rows.matmul(&self.key.transpose(-1, -2)?)?,
        })
    }
}

/// For the block sizes 1, 2, 4, .. below `size`: 1 where a square matrix has the lower left block of neighbouring
/// blocks on its diagonal, 0 elsewhere.
fn halves(size: usize, device: Device) -> Result<Vec<Tensor>> {
    let sizes = std::iter::successors(Some(1), |half| Some(half * 2)).take_while(|&half| half < size);
    let level = |half: usize| -> Result<Tensor> {
        let is_lower = |row: usize, column: usize| (row / half) % 2 == 1 && row / half == column / half + 1;
        let rows = (0..size).flat_map(|row| (0..size).map(move |column| (row, column)));
        let values: Vec<f32> = rows.map(|(row, column)| f32::from(u8::from(is_lower(row, column)))).collect();
        Ok(Tensor::from_slice(&values, &[size, size], device)?)
    };
    sizes.map(level).collect()
}

/// The inverse of the identity plus a strictly lower triangular matrix. Inverts the blocks of [`halves`] on the
/// diagonal: that of `[[A, 0], [B, D]]` has `-D^-1 B A^-1` in the lower left.
fn inverse(lower: &Tensor, levels: &[Tensor]) -> Result<Tensor> {
    let size = lower.shape().last().copied().unwrap_or(0);
    let mut inverse = Tensor::eye(size, size, lower.dtype(), lower.device())?;
    for level in levels {
        let block = lower.mul(&level.narrow(0, 0, size)?.narrow(1, 0, size)?)?;
        inverse = inverse.sub(&inverse.matmul(&block)?.matmul(&inverse)?)?;
    }
    Ok(inverse)
}
