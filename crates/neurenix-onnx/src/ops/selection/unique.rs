//! Distinct elements.

use phynexus::{DType, Device, Tensor};

use crate::{
    Result, Value,
    graph::Call,
    ops::movement::{arrangement::Front, moved_one},
    value::{floats, integers},
};

/// Integers in the order of a tensor's elements or strings. All NaN are equal and the greatest.
fn keys(value: &Value) -> Result<Tensor> {
    let numbers = match value.text() {
        Ok(text) => {
            let mut sorted: Vec<&String> = text.values.iter().collect();
            sorted.sort();
            let rank = |string: &String| sorted.partition_point(|other| *other < string) as i64;
            text.values.iter().map(rank).collect()
        }
        Err(_) => {
            let tensor = value.tensor()?;
            match tensor.dtype() {
                dtype if dtype.is_float() => floats(tensor)?.into_iter().map(float_key).collect(),
                DType::U64 => {
                    integers(&tensor.bitcast(DType::I64)?)?.into_iter().map(|bits| bits ^ i64::MIN).collect()
                }
                _ => integers(tensor)?,
            }
        }
    };
    Ok(Tensor::from_slice(&numbers, value.shape()?, Device::find("cpu")?)?)
}

fn float_key(number: f64) -> i64 {
    let bits = match number {
        _ if number.is_nan() => i64::MAX,
        _ if number == 0.0 => 0,
        _ => number.to_bits() as i64,
    };
    if bits < 0 { bits ^ i64::MAX } else { bits }
}

pub(crate) fn unique(call: &Call<'_>) -> Result<Vec<Value>> {
    let keys = keys(call.value(0)?)?;
    let axis = call.int("axis")?.map(|axis| call.axis(axis, keys.shape().len())).transpose()?;
    let rows = match axis {
        Some(axis) => Front::of(&keys, &[axis])?.tensor,
        None => keys.reshape(&[keys.len()])?,
    };
    let count = rows.shape().first().copied().unwrap_or(0);
    let width = rows.shape().iter().skip(1).product::<usize>();
    let numbers = rows.to_vec::<i64>()?;
    let row = |at: usize| numbers.get(at * width..(at + 1) * width);
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|&at| row(at));
    // The places of each distinct row; the first place comes first, as the sort is stable.
    let mut groups: Vec<&[usize]> = order.chunk_by(|&a, &b| row(a) == row(b)).collect();
    if call.int_or("sorted", 1)? == 0 {
        groups.sort_by_key(|group| group.first());
    }
    let mut inverse = vec![0i64; count];
    for (number, group) in groups.iter().enumerate() {
        for &place in *group {
            inverse.iter_mut().skip(place).take(1).for_each(|own| *own = number as i64);
        }
    }
    let vector = |numbers: &[i64]| Tensor::from_slice(numbers, &[numbers.len()], call.device);
    let firsts: Vec<i64> =
        groups.iter().filter_map(|group| group.first()).map(|&place| place as i64).collect();
    let firsts = vector(&firsts)?;
    let counts: Vec<i64> = groups.iter().map(|group| group.len() as i64).collect();
    let mut results = moved_one(call, |x| Ok(x.take(&firsts, axis.map(|axis| axis as i64))?))?;
    results.extend([firsts, vector(&inverse)?, vector(&counts)?].map(Value::Tensor));
    Ok(results)
}
