//! Runs the cases of `neural.json` on a device, through the public interface.

use phynexus::{DType, Device, Result, Tensor};
use serde_json::Value;

#[path = "cases.rs"]
mod cases;

fn shape(of: &Value) -> Vec<usize> {
    of["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap() as usize).collect()
}

fn floats(of: &Value) -> Vec<f64> {
    let number = |v: &Value| v.as_str().map_or_else(|| v.as_f64().unwrap(), |text| text.parse().unwrap());
    of["values"].as_array().unwrap().iter().map(number).collect()
}

fn input(of: &Value, dtype: DType, device: Device) -> Result<Tensor> {
    match of["dtype"].as_str().unwrap() {
        "float64" => Tensor::from_slice(&floats(of), &shape(of), device)?.to_dtype(dtype),
        "int64" => {
            let whole: Vec<i64> = floats(of).iter().map(|&x| x as i64).collect();
            Tensor::from_slice(&whole, &shape(of), device)
        }
        "bool" => {
            let bools: Vec<bool> =
                of["values"].as_array().unwrap().iter().map(|v| v.as_bool().unwrap()).collect();
            Tensor::from_slice(&bools, &shape(of), device)
        }
        other => panic!("{other}"),
    }
}

/// The weighted sum of the elements, with the weights that the script used for the gradients.
fn weighted(t: &Tensor) -> Result<Tensor> {
    let weights: Vec<f64> = (0..t.len()).map(|i| (1.3 * i as f64 + 0.4).sin() + 0.3).collect();
    let weights = Tensor::from_slice(&weights, &[t.len()], t.device())?.to_dtype(t.dtype())?;
    t.reshape(&[t.len()])?.mul(&weights)?.sum(&[], false)
}

fn read(t: &Tensor) -> Result<Vec<f64>> {
    t.to_dtype(DType::F64)?.to_vec()
}

fn differences(what: &str, found: &[f64], expected: &[f64], tolerance: f64) -> Option<String> {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().filter(|x| x.is_finite()).fold(1.0f64, |scale, x| scale.max(x.abs()));
    let differs = |(found, expected): &(&f64, &f64)| {
        let same = found == expected || (*found - *expected).abs() <= tolerance * scale;
        !same
    };
    let (found, expected) = found.iter().zip(expected).find(differs)?;
    Some(format!("{what}: {found} is not {expected}"))
}

/// Checks results and gradients of every case in a dtype. `tolerance` is relative to the greatest element.
pub(crate) fn check_all(device: Device, dtype: DType, tolerance: f64) {
    let golden: Value = serde_json::from_str(include_str!("neural.json")).unwrap();
    let mut wrong = Vec::new();
    for (name, function) in cases::CASES {
        if let Err(error) = check(&golden[*name], name, *function, device, dtype, tolerance, &mut wrong) {
            wrong.push(format!("{name}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "on {device} in {dtype}:\n{}", wrong.join("\n"));
}

fn check(
    case: &Value,
    name: &str,
    function: fn(&[Tensor]) -> Result<Tensor>,
    device: Device,
    dtype: DType,
    tolerance: f64,
    wrong: &mut Vec<String>,
) -> Result<()> {
    let gradients = case["gradients"].as_object().unwrap();
    let mut inputs = Vec::new();
    for (place, of) in case["inputs"].as_array().unwrap().iter().enumerate() {
        let input = input(of, dtype, device)?;
        inputs.push(if gradients.contains_key(&place.to_string()) { input.with_grad()? } else { input });
    }
    let output = function(&inputs)?;
    let loss = if output.requires_grad() { Some(weighted(&output)?) } else { None };
    if let Some(loss) = &loss {
        loss.backward()?;
    }
    wrong.extend(differences(name, &read(&output)?, &floats(&case["output"]), tolerance));
    for (place, expected) in gradients.iter().filter(|_| loss.is_some()) {
        let what = format!("gradient {place} of {name}");
        match inputs[place.parse::<usize>().unwrap()].grad() {
            Some(found) => wrong.extend(differences(&what, &read(&found)?, &floats(expected), tolerance)),
            None => wrong.push(format!("{what} is missing")),
        }
    }
    Ok(())
}
