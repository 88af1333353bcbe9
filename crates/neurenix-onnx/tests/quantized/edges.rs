//! Scales that are negative, tiny or huge, shapes that differ, and gradients at the limits of a type.

use std::collections::HashMap;

use neurenix_onnx::{
    Element, Value,
    edit::{floats, integer_attribute, integers},
};
use phynexus::{Tensor, tensor::Generator};

use super::network::{Outcome, Parts, cpu, ints, number, numbers, run};

/// A scale and the zero point 0 for each row of a matrix: its product with a vector has no axis for columns.
#[test]
fn scales_of_rows_multiply_products_with_vectors() -> Outcome {
    for (shape, axis) in [(&[3usize, 4][..], 0), (&[2, 3, 4], 1)] {
        let mut parts = Parts::default();
        parts.scale("x_s", &[0.5, 1.0, 2.0]);
        parts.zero("x_z", Element::Int8, &[0, 0, 0]);
        parts.dequantize("x", "x_s", "x_z", axis);
        parts.stored.push(integers("w", Element::Int8, &[4], &[1, 2, 3, 4]));
        parts.scale("w_s", &[0.1]);
        parts.zero("w_z", Element::Int8, &[0]);
        parts.dequantize("w", "w_s", "w_z", 0);
        parts.add("MatMul", &["x_f", "w_f"], "y", vec![]);
        let count = shape.iter().product();
        let x = Tensor::from_slice(&vec![1i8; count], shape, cpu())?;
        let result = run(&parts.network((Element::Int8, shape), Element::Float).model(cpu())?, &x)?;
        assert_eq!(result.shape()?, &shape[..shape.len() - 1]);
        for (at, y) in numbers(&result).iter().enumerate() {
            assert!((y - [0.5, 1.0, 2.0][at % 3]).abs() < 1e-6, "{at} {y}");
        }
    }
    Ok(())
}

/// The greatest float is the least integer if the scale is negative.
#[test]
fn pooling_chooses_the_greatest_float() -> Outcome {
    let x = Tensor::from_slice(&[21u8, 50, 100, 237], &[1, 1, 2, 2], cpu())?;
    for (scale, expected) in [(-0.5, -10.5), (0.5, 118.5)] {
        let mut parts = Parts::default();
        parts.scale("s", &[scale]);
        parts.zero("z", Element::Uint8, &[0]);
        parts.dequantize("x", "s", "z", 0);
        parts.add("MaxPool", &["x_f"], "y", vec![ints("kernel_shape", &[2, 2])]);
        let model = parts.network((Element::Uint8, &[1, 1, 2, 2]), Element::Float).model(cpu())?;
        assert_eq!(numbers(&run(&model, &x)?), [expected]);
    }
    Ok(())
}

/// The gradients by `x` of the sum of what the node `build` adds gives, from `q` to `r`, between two conversions.
fn gradient(scale: f32, zero: i64, x: &[f32], build: impl FnOnce(&mut Parts)) -> (Vec<f32>, Vec<f64>) {
    let mut parts = Parts::default();
    parts.scale("s", &[scale]);
    parts.zero("z", Element::Int8, &[zero]);
    parts.add("QuantizeLinear", &["x", "s", "z"], "q", vec![]);
    build(&mut parts);
    parts.add("DequantizeLinear", &["r", "s", "z"], "y", vec![]);
    let model = parts.network((Element::Float, &[x.len()]), Element::Float).model(cpu()).expect("a network");
    let x = Tensor::from_slice(x, &[x.len()], cpu()).and_then(|x| x.with_grad()).expect("a leaf");
    let result = run(&model, &x).expect("a result");
    let sum = result.tensor().expect("a tensor").sum(&[], false).expect("a sum");
    sum.backward().expect("gradients");
    (x.grad().expect("a gradient").to_vec().expect("numbers"), numbers(&result))
}

/// The gradient passes at the limits, and where rounding leads to them.
#[test]
fn gradients_pass_at_the_limits() {
    let same = |parts: &mut Parts| parts.add("Identity", &["q"], "r", vec![]);
    let x = [-128.6, -128.4, -128.0, 0.2, 127.0, 127.4, 127.6];
    let (by_x, y) = gradient(1.0, 0, &x, same);
    assert_eq!(by_x, [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]);
    assert_eq!(y, [-128.0, -128.0, -128.0, 0.0, 127.0, 127.0, 127.0]);
    // The limits are those of the integer with its zero point.
    let (by_x, _) = gradient(1.0, 7, &[-135.6, -135.4, 120.4, 120.6], same);
    assert_eq!(by_x, [0.0, 1.0, 1.0, 0.0]);
}

/// Padding and stored integers between both conversions leave the gradients of what they surround.
#[test]
fn gradients_pass_padding_and_concatenation() {
    let pad = |parts: &mut Parts| {
        parts.stored.push(integers("pads", Element::Int64, &[2], &[1, 2]));
        parts.stored.push(integers("value", Element::Int8, &[], &[9]));
        parts.add("Pad", &["q", "pads", "value"], "r", vec![]);
    };
    let (by_x, y) = gradient(0.5, 5, &[1.0, -2.0], pad);
    assert_eq!((by_x, y), (vec![1.0, 1.0], vec![2.0, 1.0, -2.0, 2.0, 2.0]));
    for order in [["q", "own"], ["own", "q"]] {
        let join = |parts: &mut Parts| {
            parts.stored.push(integers("own", Element::Int8, &[1], &[9]));
            parts.add("Concat", &order, "r", vec![integer_attribute("axis", 0)]);
        };
        let (by_x, y) = gradient(0.5, 5, &[1.0, -2.0], join);
        let expected = if order[0] == "q" { vec![1.0, -2.0, 2.0] } else { vec![2.0, 1.0, -2.0] };
        assert_eq!((by_x, y), (vec![1.0, 1.0], expected), "{order:?}");
    }
}

/// Scales whose product no float has.
#[test]
fn products_of_extreme_scales_are_finite() -> Outcome {
    // Scales, `alpha`, integers, and the expected number.
    let cases = [
        ([1e30f32, 1e30], 1.0, [0i8, 0], 0.0),
        ([1e-22, 1e-22], 1.0, [100, 100], 2e4 * 1e-44),
        ([1e-20, 1e-20], 1.0, [100, 100], 2e-36),
        ([1e20, 1e20], 1e-30, [1, 0], 1e12),
        ([0.5, 0.25], 2.0, [3, 1], 100.0),
    ];
    for ([first, second], alpha, x, expected) in cases {
        let mut parts = Parts::default();
        parts.scale("x_s", &[first]);
        parts.zero("x_z", Element::Int8, &[0]);
        parts.dequantize("x", "x_s", "x_z", 0);
        parts.stored.push(integers("w", Element::Int8, &[2, 1], &[100, 100]));
        parts.scale("w_s", &[second]);
        parts.zero("w_z", Element::Int8, &[0]);
        parts.dequantize("w", "w_s", "w_z", 0);
        parts.add("Gemm", &["x_f", "w_f"], "y", vec![number("alpha", alpha)]);
        let model = parts.network((Element::Int8, &[1, 2]), Element::Float).model(cpu())?;
        let y = numbers(&run(&model, &Tensor::from_slice(&x, &[1, 2], cpu())?)?)[0];
        let is_close = (y - expected).abs() <= 1e-5 * expected.abs() + 1e-44;
        assert!(is_close, "{first} {second}: {y} {expected}");
    }
    Ok(())
}

/// Floats that are infinite or not numbers are not quantized to the integers that they come from.
#[test]
fn quantizing_again_computes_with_extreme_scales() -> Outcome {
    let given = Tensor::from_slice(&[0u8, 200], &[2], cpu())?;
    for (scale, is_same) in [(0.0, false), (1e38, false), (f32::INFINITY, false), (1e30, true), (-0.5, true)]
    {
        let mut parts = Parts::default();
        parts.scale("s", &[scale]);
        parts.zero("z", Element::Uint8, &[0]);
        parts.dequantize("x", "s", "z", 0);
        parts.add("QuantizeLinear", &["x_f", "s", "z"], "y", vec![]);
        let result = run(&parts.network((Element::Uint8, &[2]), Element::Uint8).model(cpu())?, &given)?;
        assert_eq!(result.tensor()?.is_same(&given), is_same, "{scale}");
    }
    Ok(())
}

/// One scale with zero points for each column is no quantization.
#[test]
fn parameters_of_different_lengths_are_refused() -> Outcome {
    let mut parts = Parts::default();
    parts.stored.push(floats("s", &[], &[0.5]));
    parts.zero("z", Element::Uint8, &[1, 2]);
    parts.dequantize("x", "s", "z", 1);
    parts.stored.push(integers("w", Element::Uint8, &[2, 1], &[1, 1]));
    parts.dequantize("w", "s", "", 0);
    parts.add("MatMul", &["x_f", "w_f"], "y", vec![]);
    let model = parts.network((Element::Uint8, &[1, 2]), Element::Float).model(cpu())?;
    let x = Value::Tensor(Tensor::from_slice(&[3u8, 4], &[1, 2], cpu())?);
    let result = model.run(HashMap::from([("x".to_owned(), x)]), &Generator::new(0));
    let error = result.expect_err("an error");
    let source = std::error::Error::source(&error).map_or_else(String::new, ToString::to_string);
    let message = format!("{error} {source}");
    assert!(message.contains("the scale") && message.contains("input 2, the zero point"), "{message}");
    Ok(())
}
