//! Labels of other labels.

use std::collections::HashMap;

use phynexus::Tensor;

use crate::{
    Error, Result, Text, Value,
    graph::Call,
    value::{floats, integers},
};

/// A label, by which others are looked up.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Text(String),
    Integer(i64),
    /// Bits of a float, the same for all NaN and for both zeros.
    Float(u64),
}

impl Key {
    fn all_of(value: &Value) -> Result<Vec<Key>> {
        if let Value::Text(text) = value {
            return Ok(text.values.iter().cloned().map(Key::Text).collect());
        }
        let tensor = value.tensor()?;
        if !tensor.dtype().is_float() {
            return Ok(integers(tensor)?.into_iter().map(Key::Integer).collect());
        }
        let bits = |float: f64| match float {
            float if float.is_nan() => f64::NAN.to_bits(),
            0.0 => 0,
            float => float.to_bits(),
        };
        Ok(floats(tensor)?.into_iter().map(|float| Key::Float(bits(float))).collect())
    }
}

/// The labels of the attribute `prefix_tensor`, `prefix_strings`, `prefix_int64s` or `prefix_floats`.
fn labels(call: &Call<'_>, prefix: &str) -> Result<Value> {
    if let Some(value) = call.tensor_attribute(&format!("{prefix}_tensor"))? {
        return Ok(value);
    }
    if let Some(values) = call.strings(&format!("{prefix}_strings"))?.filter(|values| !values.is_empty()) {
        return Ok(Value::Text(Text { shape: vec![values.len()], values }));
    }
    if let Some(values) = call.ints(&format!("{prefix}_int64s"))?.filter(|values| !values.is_empty()) {
        return Ok(Tensor::from_slice(&values, &[values.len()], call.device)?.into());
    }
    match call.float_list(&format!("{prefix}_floats"))? {
        Some(values) => Ok(Tensor::from_slice(&values, &[values.len()], call.device)?.into()),
        None => Err(Error::invalid(format!("an attribute {prefix}_tensor, {prefix}_strings, .. is missing"))),
    }
}

pub(super) fn label_encoder(call: &Call<'_>) -> Result<Vec<Value>> {
    let given = call.value(0)?;
    let (keys, values) = match call.strings("classes_strings")? {
        Some(classes) => {
            let numbers: Vec<i64> = (0..classes.len() as i64).collect();
            let numbers = Value::from(Tensor::from_slice(&numbers, &[numbers.len()], call.device)?);
            let classes = Value::Text(Text { shape: vec![classes.len()], values: classes });
            if matches!(given, Value::Text(_)) { (classes, numbers) } else { (numbers, classes) }
        }
        None => (labels(call, "keys")?, labels(call, "values")?),
    };
    let places: HashMap<Key, usize> = Key::all_of(&keys)?.into_iter().zip(0..).collect();
    let count = values.shape()?.iter().product::<usize>();
    if keys.shape()?.iter().product::<usize>() != count {
        return Err(Error::invalid(format!("there must be as many keys as the {count} values")));
    }
    let found = Key::all_of(given)?.into_iter().map(|key| places.get(&key).copied());
    let default = call.tensor_attribute("default_tensor")?;
    if let Value::Text(values) = values {
        let usual = call.string_or("default_string", "_Unused")?;
        let usual = match &default {
            Some(default) => default.text()?.values.first().map_or(usual, String::as_str),
            None => usual,
        };
        let value =
            |place: Option<usize>| place.and_then(|place| values.values.get(place)).map_or(usual, |v| v);
        let values = found.map(|place| value(place).to_owned()).collect();
        return Ok(vec![Value::Text(Text { shape: given.shape()?.to_vec(), values })]);
    }
    let values = values.tensor()?.to_device(call.device)?;
    let default = match default {
        Some(default) => default.tensor()?.to_device(call.device)?,
        None if values.dtype().is_float() => {
            Tensor::full(&[1], call.float_or("default_float", -0.0)?, values.dtype(), call.device)?
        }
        None => Tensor::full(&[1], call.int_or("default_int64", -1)?, values.dtype(), call.device)?,
    };
    // The default comes after all values.
    let default = default.to_dtype(values.dtype())?.reshape(&[1])?;
    let all = Tensor::cat(&[&values.reshape(&[count])?, &default], 0)?;
    let places: Vec<i64> = found.map(|place| place.unwrap_or(count) as i64).collect();
    let places = Tensor::from_slice(&places, given.shape()?, call.device)?;
    Ok(vec![all.take(&places, Some(0))?.into()])
}
