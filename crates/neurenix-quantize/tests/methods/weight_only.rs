//! Weight-only quantization against direct formulas.

use neurenix_onnx::{
    Element,
    edit::{Network, floats, info},
};
use neurenix_quantize::{
    Error, Format, Options, Quantized, WeightOnly, quantize_dynamically, quantize_weights,
};

use crate::support::{
    input, list, network, normal, plain, relative_error, run, samples, weight, whole, with,
};
use crate::{count, mixtures, perceptron};

/// The signed 4-bit integer at a place: two in a byte, the lower half first.
fn nibble(raw: &[u8], at: usize) -> i64 {
    let code = i64::from(raw[at / 2] >> (4 * (at % 2)) & 15);
    if code > 7 { code - 16 } else { code }
}

#[test]
fn weights_of_4_bits_are_what_the_formula_gives() {
    // 70 is no multiple of 32: the last group has 6 rows.
    let (rows, columns, group) = (70, 5, 32);
    let numbers = normal(&[rows, columns], 1);
    let tensors = vec![floats("w", &[rows, columns], &numbers)];
    let float = network(vec![plain("MatMul", &["x", "w"], "y")], tensors, &[3, rows], &[3, columns]);
    let options = WeightOnly { search: false, ..WeightOnly::default() };
    let Quantized { network: quantized, report } = quantize_weights(&float, &options).unwrap();
    let packed = quantized.stored("w_quantized").unwrap();
    assert_eq!((packed.data_type, packed.dims.clone()), (Element::Int4 as i32, vec![70, 5]));
    assert_eq!(packed.raw_data.len(), 175);
    let (shape, scales) = quantized.floats("w_scale").unwrap().unwrap();
    assert_eq!(shape, [3, 5]);
    let mut restored = vec![0f32; rows * columns];
    for (at, &x) in numbers.iter().enumerate() {
        let (row, column) = (at / columns, at % columns);
        let first = row / group * group;
        let own = (first..(first + group).min(rows)).map(|row| numbers[row * columns + column].abs());
        let scale = own.fold(0f32, f32::max) / 7.0;
        assert!((scales[row / group * columns + column] / scale - 1.0).abs() < 1e-6);
        let scale = scales[row / group * columns + column];
        let whole = nibble(&packed.raw_data, at);
        assert_eq!(whole as f32, (x / scale).round_ties_even(), "element {at}");
        restored[at] = whole as f32 * scale;
    }
    let sample = samples(1, &[3, rows]).remove(0);
    let x: Vec<f32> = sample["x"].tensor().unwrap().to_vec().unwrap();
    let product = |row: usize, column: usize| -> f64 {
        (0..rows).map(|k| f64::from(x[row * rows + k]) * f64::from(restored[k * columns + column])).sum()
    };
    let expected: Vec<f32> = (0..3 * columns).map(|at| product(at / columns, at % columns) as f32).collect();
    assert!(relative_error(&expected, &run(&quantized, &sample)) < 1e-5);
    assert_eq!(report.float_bytes, 4 * 350);
    assert_eq!(report.quantized_bytes, 175 + 4 * 15);
    assert_eq!(report.layers[0].weights, Some(Format::Int4));
}

/// The root of the sum of squared differences.
fn distance(x: &[f32], y: &[f32]) -> f32 {
    x.iter().zip(y).map(|(x, y)| (x - y).powi(2)).sum::<f32>().sqrt()
}

/// The distance of a group from the nearest numbers that a scale which covers its range has. A search only lowers it.
fn distance_of_nearest(group: &[f32], bits: usize, symmetric: bool) -> f32 {
    let fold = |least: f32, f: fn(f32, f32) -> f32| group.iter().fold(least, |known, &x| f(known, x));
    let (least, greatest) = (fold(0.0, f32::min), fold(0.0, f32::max));
    let levels = (1 << bits) as f32;
    let (scale, zero, bounds) = match symmetric {
        true => (greatest.max(-least) / (levels / 2.0 - 1.0), 0.0, (-levels / 2.0 + 1.0, levels / 2.0 - 1.0)),
        false => {
            let scale = (greatest - least) / (levels - 1.0);
            (scale, (-least / scale).round_ties_even(), (0.0, levels - 1.0))
        }
    };
    let near = |x: &f32| (((x / scale).round_ties_even() + zero).clamp(bounds.0, bounds.1) - zero) * scale;
    distance(group, &group.iter().map(near).collect::<Vec<_>>())
}

#[test]
fn weight_only_forms_are_what_the_formulas_give() {
    let nodes = vec![
        plain("Cast", &["x"], "i"),
        plain("Gather", &["table", "i"], "e"),
        plain("Transpose", &["e"], "t"),
        plain("Conv", &["t", "kernel", "kb"], "c"),
        plain("GlobalAveragePool", &["c"], "g"),
        plain("Flatten", &["g"], "f"),
        with(plain("Gemm", &["f", "w"], "y"), whole("transB", 1)),
    ];
    let mut nodes = nodes;
    nodes[0].attribute.push(whole("to", Element::Int64 as i64));
    nodes[2].attribute.push(list("perm", &[0, 2, 1]));
    let tensors = vec![
        weight("table", &[11, 40], 1),
        weight("kernel", &[12, 40, 3], 2),
        weight("kb", &[12], 3),
        weight("w", &[6, 12], 4),
    ];
    let float = network(nodes, tensors, &[2, 7], &[2, 6]);
    let tokens: Vec<f32> = (0..14).map(|at| (at * 5 % 11) as f32).collect();
    let sample = input(&[2, 7], &tokens);
    for bits in [4, 8] {
        for group in [None, Some(32), Some(16), Some(7)] {
            for symmetric in [true, false] {
                for search in [true, false] {
                    let options = WeightOnly { bits, group, symmetric, search, ..WeightOnly::default() };
                    let quantized = quantize_weights(&float, &options).unwrap();
                    assert_eq!(quantized.report.layers.len(), 3);
                    assert_eq!(count(&quantized.network, "DequantizeLinear"), 3);
                    let mut restored = float.clone();
                    // Each weight, what replaces it, and the number of elements of an output or row.
                    for (name, value, extent) in [
                        ("table", "table_dequantized", 40),
                        ("kernel", "kernel_kernels", 120),
                        ("w", "w_dequantized", 12),
                    ] {
                        let (shape, before) = float.floats(name).unwrap().unwrap();
                        let after = run(&quantized.network.with_outputs(&[value.to_owned()]), &sample);
                        for (row, own) in before.chunks(extent).zip(after.chunks(extent)) {
                            let group = group.unwrap_or(extent);
                            for (row, own) in row.chunks(group).zip(own.chunks(group)) {
                                let nearest = distance_of_nearest(row, bits, symmetric);
                                let error = distance(row, own) - nearest;
                                let fits = if search { error < 1e-5 } else { error.abs() < 1e-5 };
                                assert!(fits, "{name}, {options:?}: {error} more than {nearest}");
                            }
                        }
                        restored.store(floats(name, &shape, &after));
                    }
                    let (expected, own) = (run(&restored, &sample), run(&quantized.network, &sample));
                    assert!(relative_error(&expected, &own) < 1e-5, "{options:?}");
                }
            }
        }
    }
    // The search lowers the error of the weights themselves, which all products read.
    let error = |search| {
        let options = WeightOnly { search, group: Some(16), ..WeightOnly::default() };
        let quantized = quantize_weights(&float, &options).unwrap().network;
        let table = quantized.with_outputs(&["table_dequantized".to_owned()]);
        let (table, own) = (run(&table, &sample), float.floats("table").unwrap().unwrap().1);
        distance(&table, &own)
    };
    assert!(error(true) < 0.98 * error(false), "{} and {}", error(true), error(false));
}

#[test]
fn wrong_settings_of_weights_are_errors() {
    let float = perceptron(1);
    let three = quantize_weights(&float, &WeightOnly { bits: 3, ..WeightOnly::default() });
    assert!(matches!(three, Err(Error::Option { option: "bits", .. })));
    let none = quantize_weights(&float, &WeightOnly { group: Some(0), ..WeightOnly::default() });
    assert!(matches!(none, Err(Error::Option { option: "group", .. })));
    let unknown =
        quantize_weights(&float, &WeightOnly { excluded: vec!["z".to_owned()], ..WeightOnly::default() });
    assert!(matches!(unknown, Err(Error::UnknownName { .. })));
    let excluded =
        quantize_weights(&float, &WeightOnly { excluded: vec!["y".to_owned()], ..WeightOnly::default() });
    let excluded = excluded.unwrap();
    assert_eq!(excluded.report.kept_in_float[0].0, "y");
    assert!(excluded.network.stored("w2").is_some() && excluded.network.stored("w1").is_none());
}

#[test]
fn weights_that_a_caller_could_replace_become_constants() {
    let float = perceptron(1);
    let mut open = float.clone();
    open.graph.input.push(info("w1", Element::Float, &[24, 32]));
    let sample = mixtures(1).remove(0);
    let forms: [fn(&Network) -> Quantized; 2] = [
        |network| quantize_weights(network, &WeightOnly::default()).unwrap(),
        |network| quantize_dynamically(network, &Options::default()).unwrap(),
    ];
    for quantized in forms {
        let (fixed, expected) = (quantized(&open).network, quantized(&float).network);
        assert_eq!(fixed.graph.input, expected.graph.input);
        assert!(fixed.stored("w1").is_none());
        assert_eq!(run(&fixed, &sample), run(&expected, &sample));
    }
}
