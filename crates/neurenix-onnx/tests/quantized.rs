//! Quantized networks: products with integers, operators that move integers, and gradients through rounding.

#[path = "quantized/edges.rs"]
mod edges;
#[path = "quantized/gradients.rs"]
mod gradients;
#[path = "quantized/network.rs"]
mod network;

use neurenix_onnx::{
    Element,
    edit::{floats, integer_attribute, integers},
    proto::{AttributeProto, TensorProto},
};
use phynexus::{DType, Tensor};

use network::{Outcome, Parts, compare, cpu, ints, number, numbers, products, random, random_floats, run};

const BYTES: [(Element, i64); 5] = [
    (Element::Uint8, 0),
    (Element::Uint8, 131),
    (Element::Int8, 0),
    (Element::Int8, -7),
    (Element::Int8, 127),
];

#[test]
fn matrix_products_of_dequantized_inputs_sum_integers() -> Outcome {
    for (element, zero) in BYTES {
        for (weight, zeros, axis) in [
            (Element::Int8, &[0][..], None),
            (Element::Int8, &[0], Some(1)),
            (Element::Int8, &[3, -5, 9, 0], Some(1)),
            (Element::Uint8, &[128], None),
            (Element::Uint8, &[120, 128, 131], Some(1)),
            (Element::Int4, &[0], Some(1)),
        ] {
            let name = format!("{element:?} {zero} {weight:?} {zeros:?} {axis:?}");
            let build = |parts: &mut Parts| {
                parts.quantized_input(element, zero);
                parts.weight("w", weight, &[40, 6], axis, zeros);
                parts.add("MatMul", &["q_f", "w_f"], "y", vec![]);
            };
            let x = random_floats(&[2, 3, 40], 1);
            compare(&name, (Element::Float, &x), Element::Float, &build)?;
            // With a function and a quantization after it.
            let whole = |parts: &mut Parts| {
                build(parts);
                parts.nodes.last_mut().expect("the product").output = vec!["m".to_owned()];
                parts.add("Relu", &["m"], "r", vec![]);
                parts.quantized_output("r", element, zero);
            };
            compare(&name, (Element::Float, &x), element, &whole)?;
        }
    }
    Ok(())
}

#[test]
fn vectors_and_batches_are_multiplied() -> Outcome {
    for (shapes, axis) in [
        ([&[12][..], &[12, 5]], Some(1)),
        ([&[3, 12], &[12]], None),
        ([&[12], &[12]], None),
        ([&[12], &[2, 12, 5]], None),
        ([&[2, 1, 3, 12], &[4, 12, 5]], Some(2)),
    ] {
        for (element, zero, other) in [(Element::Uint8, 100, 7), (Element::Int8, -3, 0)] {
            let build = |parts: &mut Parts| {
                parts.quantized_input(element, zero);
                parts.weight("w", Element::Int8, shapes[1], axis, &[other]);
                parts.add("MatMul", &["q_f", "w_f"], "y", vec![]);
            };
            let x = random_floats(shapes[0], 2);
            compare(&format!("{shapes:?}"), (Element::Float, &x), Element::Float, &build)?;
        }
    }
    Ok(())
}

#[test]
fn general_products_sum_integers() -> Outcome {
    for (element, zero) in BYTES {
        for (transposes, axis) in [([0, 0], 1), ([0, 1], 0), ([1, 1], 0), ([1, 0], 1)] {
            let build = |parts: &mut Parts| {
                parts.quantized_input(element, zero);
                let shape = if transposes[1] == 1 { [5, 40] } else { [40, 5] };
                parts.weight("w", Element::Int8, &shape, Some(axis), &[0, 2]);
                parts.stored.push(floats("c", &[5], &[0.5, -1.0, 0.0, 2.0, 0.25]));
                let attributes = vec![
                    integer_attribute("transA", transposes[0]),
                    integer_attribute("transB", transposes[1]),
                    number("alpha", 0.7),
                    number("beta", -1.5),
                ];
                parts.add("Gemm", &["q_f", "w_f", "c"], "y", attributes);
            };
            let x = random_floats(if transposes[0] == 1 { &[40, 3] } else { &[3, 40] }, 3);
            let name = format!("{element:?} {zero} {transposes:?}");
            compare(&name, (Element::Float, &x), Element::Float, &build)?;
        }
    }
    Ok(())
}

#[test]
fn convolutions_of_dequantized_images_sum_integers() -> Outcome {
    // Images, weight, groups, pads, strides.
    type Case = (&'static [usize], &'static [usize], i64, &'static [i64], &'static [i64]);
    let cases: [Case; 5] = [
        (&[2, 4, 9, 8], &[6, 4, 3, 3], 1, &[1, 1, 1, 1], &[1, 1]),
        (&[1, 4, 9, 8], &[6, 2, 3, 2], 2, &[2, 0, 0, 1], &[2, 1]),
        (&[1, 4, 7, 7], &[8, 1, 3, 3], 4, &[1, 1, 1, 1], &[1, 1]),
        (&[2, 3, 11], &[5, 3, 4], 1, &[3, 2], &[2]),
        (&[1, 2, 4, 5, 4], &[3, 2, 2, 3, 2], 1, &[1, 1, 0, 0, 1, 1], &[1, 2, 1]),
    ];
    for (images, filter, groups, pads, strides) in cases {
        for (element, zero) in BYTES {
            for (weight, zeros, axis) in [
                (Element::Int8, &[0][..], Some(0)),
                (Element::Int8, &[4, -2, 0], Some(0)),
                (Element::Uint8, &[125], None),
            ] {
                let name = format!("{images:?} {element:?} {zero} {weight:?} {zeros:?}");
                let build = |parts: &mut Parts| {
                    parts.quantized_input(element, zero);
                    parts.weight("w", weight, filter, axis, zeros);
                    let bias: Vec<i64> = random(filter[0], [-20000, 20000], 9);
                    parts.stored.push(integers("b", Element::Int32, &[filter[0]], &bias));
                    parts.scale("b_s", &[0.0001]);
                    parts.add("DequantizeLinear", &["b", "b_s"], "b_f", vec![]);
                    let attributes = vec![
                        integer_attribute("group", groups),
                        ints("pads", pads),
                        ints("strides", strides),
                    ];
                    parts.add("Conv", &["q_f", "w_f", "b_f"], "y", attributes);
                };
                let x = random_floats(images, 4);
                compare(&name, (Element::Float, &x), Element::Float, &build)?;
            }
        }
    }
    Ok(())
}

/// Sums that could exceed 32 bits, and integers of 16 bits, are computed with floats.
#[test]
fn sums_that_may_overflow_are_floats() -> Outcome {
    for (element, inner, is_exact) in
        [(Element::Int8, 66_000, true), (Element::Int8, 140_000, false), (Element::Uint16, 4, false)]
    {
        let mut parts = Parts::default();
        parts.quantized_input(element, 0);
        parts.stored.push(integers("w", Element::Int8, &[inner, 1], &vec![127; inner]));
        parts.scale("w_s", &[0.01]);
        parts.zero("w_z", Element::Int8, &[0]);
        parts.dequantize("w", "w_s", "w_z", 0);
        parts.add("MatMul", &["q_f", "w_f"], "y", vec![]);
        let model = parts.network((Element::Float, &[1, inner]), Element::Float).model(cpu())?;
        let result = run(&model, &Tensor::full(&[1, inner], 1.3, DType::F32, cpu())?.evaluated()?)?;
        let expected = if is_exact { DType::I32 } else { DType::F32 };
        assert_eq!(products(result.tensor()?), [expected], "{element:?} {inner}");
        let exact = 1.3 * 1.27 * inner as f64;
        assert!((numbers(&result)[0] / exact - 1.0).abs() < 1e-4, "{element:?} {inner}");
    }
    Ok(())
}

/// The products of integers that files have, with zero points for rows and columns.
#[test]
fn integer_operators_equal_their_definition() -> Outcome {
    let x: Vec<i64> = random(2 * 3 * 17, [0, 255], 11);
    let w: Vec<i64> = random(17 * 4, [-128, 127], 12);
    let (rows, columns) = ([100, 0, 255], [-3i64, 0, 127, -128]);
    for by_row in [true, false] {
        let mut parts = Parts::default();
        parts.stored.push(integers("w", Element::Int8, &[17, 4], &w));
        parts.stored.push(match by_row {
            true => integers("xz", Element::Uint8, &[3], &rows),
            false => integers("xz", Element::Uint8, &[2, 3, 1], &random(6, [0, 255], 13)),
        });
        parts.stored.push(integers("wz", Element::Int8, &[4], &columns));
        parts.add("MatMulInteger", &["x", "w", "xz", "wz"], "y", vec![]);
        let given = x.iter().map(|&x| x as u8).collect::<Vec<_>>();
        let given = Tensor::from_slice(&given, &[2, 3, 17], cpu())?;
        let result =
            run(&parts.network((Element::Uint8, &[2, 3, 17]), Element::Int32).model(cpu())?, &given)?;
        assert_eq!(products(result.tensor()?)[0], DType::I32);
        let zeros = if by_row { [rows, rows].concat() } else { random(6, [0, 255], 13) };
        let result = numbers(&result);
        for row in 0..6 {
            for column in 0..4 {
                let term = |k: usize| (x[row * 17 + k] - zeros[row]) * (w[k * 4 + column] - columns[column]);
                let sum: i64 = (0..17).map(term).sum();
                assert_eq!(result[row * 4 + column], sum as f64, "{row} {column}");
            }
        }
    }
    // The quantized operators have the numbers of the operators that they stand for.
    for (zero, other) in [(131, &[0][..]), (0, &[4, -9, 0, 7, 1])] {
        let mut parts = Parts::default();
        parts.quantized_input(Element::Uint8, zero);
        parts.in_floats = true;
        parts.weight("w", Element::Int8, &[5, 3, 3, 3], Some(0), other);
        let bias: Vec<i64> = random(5, [-2000, 2000], 9);
        parts.stored.push(integers("b", Element::Int32, &[5], &bias));
        let attributes = vec![ints("pads", &[1, 2, 0, 1])];
        parts.scale("y_s", &[0.05]);
        parts.zero("y_z", Element::Uint8, &[100]);
        let inputs = ["q", "q_s", "q_z", "w", "w_s", "w_z", "y_s", "y_z", "b"];
        parts.add("QLinearConv", &inputs, "own", attributes.clone());
        parts.add("Mul", &["q_s", "w_s"], "b_s", vec![]);
        parts.add("DequantizeLinear", &["b", "b_s"], "b_f", vec![integer_attribute("axis", 0)]);
        parts.add("Conv", &["q_f", "w_f", "b_f"], "c", attributes);
        parts.add("QuantizeLinear", &["c", "y_s", "y_z"], "float", vec![]);
        for name in ["own", "float"] {
            parts.add(
                "Cast",
                &[name],
                &format!("{name}_w"),
                vec![integer_attribute("to", Element::Int32 as i64)],
            );
        }
        parts.add("Sub", &["own_w", "float_w"], "y", vec![]);
        let model = parts.network((Element::Float, &[2, 3, 6, 5]), Element::Int32).model(cpu())?;
        let differences = numbers(&run(&model, &random_floats(&[2, 3, 6, 5], 8))?);
        assert!(differences.iter().all(|difference| difference.abs() <= 1.0), "{differences:?}");
        let equal = differences.iter().filter(|difference| **difference == 0.0).count();
        assert!(equal * 100 >= differences.len() * 98, "{equal} of {}", differences.len());
    }
    Ok(())
}

/// Operators that move elements move integers: what follows them multiplies integers.
#[test]
fn operators_that_move_elements_keep_integers() -> Outcome {
    let vector = |name: &str, numbers: &[i64]| integers(name, Element::Int64, &[numbers.len()], numbers);
    // An operator, its further inputs, its attributes, and the size of the last axis of its result.
    type Case = (&'static str, Vec<TensorProto>, Vec<AttributeProto>, usize);
    let cases: Vec<Case> = vec![
        ("Reshape", vec![vector("a", &[2, -1, 16])], vec![], 16),
        ("Flatten", vec![], vec![integer_attribute("axis", 2)], 32),
        ("Transpose", vec![], vec![ints("perm", &[0, 2, 3, 1])], 4),
        ("Unsqueeze", vec![vector("a", &[0])], vec![], 8),
        ("Slice", vec![vector("a", &[1]), vector("b", &[7]), vector("c", &[3])], vec![], 6),
        ("Gather", vec![vector("a", &[3, 0, 3])], vec![integer_attribute("axis", 3)], 3),
        ("MaxPool", vec![], vec![ints("kernel_shape", &[2, 3]), ints("pads", &[0, 1, 1, 1])], 8),
        ("DepthToSpace", vec![], vec![integer_attribute("blocksize", 2)], 16),
        ("Pad", vec![vector("a", &[0, 0, 1, 2, 0, 0, 0, 1])], vec![], 11),
        ("Identity", vec![], vec![], 8),
    ];
    for (element, zero) in BYTES {
        for (operator, stored, attributes, last) in &cases {
            let build = |parts: &mut Parts| {
                parts.quantized_input(element, zero);
                let names: Vec<&str> =
                    std::iter::once("q_f").chain(stored.iter().map(|tensor| tensor.name.as_str())).collect();
                parts.add(operator, &names, "moved", attributes.clone());
                parts.stored.extend(stored.iter().cloned());
                parts.weight("w", Element::Int8, &[*last, 3], Some(1), &[0]);
                parts.add("MatMul", &["moved", "w_f"], "y", vec![]);
            };
            let x = random_floats(&[2, 4, 4, 8], 6);
            compare(&format!("{operator} {element:?} {zero}"), (Element::Float, &x), Element::Float, &build)?;
        }
    }
    Ok(())
}

/// Concatenations keep the integers of inputs with the same scale and zero point, and compute with floats otherwise.
#[test]
fn concatenations_keep_integers_of_one_scale() -> Outcome {
    for (scale, expected) in [(0.013, DType::I32), (0.02, DType::F32)] {
        let mut parts = Parts::default();
        parts.quantized_input(Element::Uint8, 9);
        parts.scale("p_s", &[scale]);
        parts.zero("p_z", Element::Uint8, &[9]);
        parts.add("QuantizeLinear", &["x", "p_s", "p_z"], "p", vec![]);
        parts.dequantize("p", "p_s", "p_z", 0);
        parts.add("Concat", &["q_f", "p_f"], "both", vec![integer_attribute("axis", 1)]);
        parts.weight("w", Element::Int8, &[12, 3], Some(1), &[0]);
        parts.add("MatMul", &["both", "w_f"], "y", vec![]);
        let model = parts.network((Element::Float, &[2, 6]), Element::Float).model(cpu())?;
        let result = run(&model, &random_floats(&[2, 6], 6))?;
        assert!(products(result.tensor()?).contains(&expected), "{scale}");
        assert!(numbers(&result).iter().all(|x| x.is_finite()));
    }
    Ok(())
}

/// What is quantized again with the same scale and zero point are the same integers.
#[test]
fn quantizing_again_gives_the_same_integers() -> Outcome {
    let given = Tensor::from_slice(&[0u8, 3, 255, 128], &[2, 2], cpu())?;
    for (scale, zero, is_same) in [(0.013, 9, true), (0.013, 8, false), (0.014, 9, false)] {
        let mut parts = Parts::default();
        parts.scale("s", &[0.013]);
        parts.zero("z", Element::Uint8, &[9]);
        parts.dequantize("x", "s", "z", 0);
        parts.scale("t", &[scale]);
        parts.zero("u", Element::Uint8, &[zero]);
        parts.add("QuantizeLinear", &["x_f", "t", "u"], "y", vec![]);
        let result = run(&parts.network((Element::Uint8, &[2, 2]), Element::Uint8).model(cpu())?, &given)?;
        assert_eq!(result.tensor()?.is_same(&given), is_same, "{scale} {zero}");
        if is_same {
            assert_eq!(result.tensor()?.to_vec::<u8>()?, [0, 3, 255, 128]);
        }
    }
    Ok(())
}
