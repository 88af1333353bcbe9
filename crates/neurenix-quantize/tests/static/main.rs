//! Static quantization: what is stored, where the pairs are, ranges, errors and reports.

mod extremes;
mod small;

use std::collections::HashMap;

use neurenix_onnx::{
    Element,
    edit::{Network, floats},
};
use neurenix_quantize::{Calibrator, Error, Format, Options, Quantized, Sample, quantize};
use small::{
    batch, count, gemm, inputs, integers_of, network, normal, options, plain, quantized, run, scalar,
    with_int,
};

/// `y = x w^T + b` with `x` from -1 to 3.
fn small() -> (Network, Vec<Sample>) {
    let stored = vec![floats("w", &[2, 2], &[1.0, -2.0, 0.5, 0.25]), floats("b", &[2], &[0.1, -0.3])];
    let network = network(&[2], vec![gemm("g", &["x", "w", "b"], "y")], stored, &["y"], 21);
    (network, vec![batch(&[2, 2], &[-1.0, 0.5, 3.0, 1.0])])
}

#[test]
fn scales_and_integers_are_as_by_hand() {
    let (network, samples) = small();
    let result = quantized(&network, &samples, &options()).network;
    // The range is 4, in 255 steps; -1 is 63.75 steps below zero.
    let scale = scalar(&result, "x_scale");
    assert!((scale - 4.0 / 255.0).abs() < 1e-8);
    assert_eq!(integers_of(&result, "x_zero_point"), [64]);
    let (shape, scales) = result.floats("w_scale").unwrap().unwrap();
    assert_eq!((shape, scales.clone()), (vec![2], vec![2.0 / 127.0, 0.5 / 127.0]));
    // 1 and 0.25 are 63.5 steps, and halves go to the even integer.
    assert_eq!(integers_of(&result, "w_quantized"), [64, -127, 127, 64]);
    assert_eq!(integers_of(&result, "w_zero_point"), [0, 0]);
    let bias = [0.1 / (scale * scales[0]), -0.3 / (scale * scales[1])].map(|x: f32| x.round() as i64);
    assert_eq!(integers_of(&result, "b_quantized"), bias);
    assert_eq!(result.stored("b_quantized").unwrap().data_type, Element::Int32 as i32);
    let (_, products) = result.floats("b_scale").unwrap().unwrap();
    assert_eq!(products, scales.iter().map(|own| own * scale).collect::<Vec<_>>());
    // y is (-1.9, -0.675), (1.1, 1.45).
    assert!((scalar(&result, "y_scale") - 3.35 / 255.0).abs() < 1e-7);
    assert_eq!(integers_of(&result, "y_zero_point"), [(1.9 * 255.0 / 3.35f64).round() as i64]);
    assert_eq!(result.graph.node.last().unwrap().op_type, "DequantizeLinear");
    assert_eq!(result.graph.output[0].name, "y");
}

#[test]
fn weights_of_one_scale() {
    let (network, samples) = small();
    let one = Options { per_channel: false, ..options() };
    let result = quantized(&network, &samples, &one).network;
    assert_eq!(scalar(&result, "w_scale"), 2.0 / 127.0);
    assert_eq!(integers_of(&result, "w_quantized"), [64, -127, 32, 16]);
    // Unsigned: -2 to 1 in 255 steps, 170 of them below zero.
    let unsigned = Options { weights: Format::Uint8, ..one };
    let result = quantized(&network, &samples, &unsigned).network;
    assert!((scalar(&result, "w_scale") - 3.0 / 255.0).abs() < 1e-8);
    assert_eq!(integers_of(&result, "w_zero_point"), [170]);
    assert_eq!(integers_of(&result, "w_quantized"), [255, 0, 212, 191]);
    // A scale per channel has its zero point in the middle.
    let unsigned = Options { weights: Format::Uint8, ..options() };
    let result = quantized(&network, &samples, &unsigned).network;
    assert_eq!(integers_of(&result, "w_zero_point"), [128, 128]);
    assert_eq!(integers_of(&result, "w_quantized"), [192, 1, 255, 192]);
}

#[test]
fn symmetric_activations_have_zero_in_the_middle() {
    let (network, samples) = small();
    for (format, zero_point, scale) in [(Format::Int8, 0, 3.0 / 127.0), (Format::Uint8, 128, 3.0 / 127.0)] {
        let symmetric = Options { activations: format, symmetric_activations: true, ..options() };
        let result = quantized(&network, &samples, &symmetric).network;
        assert_eq!(integers_of(&result, "x_zero_point"), [zero_point], "{format}");
        assert_eq!(scalar(&result, "x_scale"), scale as f32, "{format}");
    }
}

#[test]
fn scales_per_channel_are_better_for_uneven_channels() {
    let mut weight = normal(8 * 16, 1);
    weight.iter_mut().enumerate().for_each(|(at, x)| *x *= 0.5f32.powi((at / 16) as i32));
    let stored = vec![floats("w", &[8, 16], &weight)];
    let network = network(&[16], vec![gemm("g", &["x", "w"], "y")], stored, &["y"], 21);
    let samples = vec![batch(&[32, 16], &normal(32 * 16, 2))];
    // With 16 bits, what remains is the error of the weights.
    let error = |per_channel: bool| {
        let own = Options { per_channel, activations: Format::Uint16, ..options() };
        let report = quantized(&network, &samples, &own).report;
        report.layers[0].output.as_ref().unwrap().clone()
    };
    let (channel, tensor) = (error(true), error(false));
    assert!(channel.sqnr_db > tensor.sqnr_db + 2.0, "{channel:?} {tensor:?}");
}

/// The least and the greatest number that the scheme of `x` has, with a calibrator.
fn range_of(numbers: &[f32], calibrator: Calibrator) -> (f32, f32) {
    let network = network(&[1], vec![plain("Neg", "n", &["x"], "y")], vec![], &["y"], 21);
    let samples: Vec<Sample> = numbers.chunks(1000).map(|part| batch(&[part.len(), 1], part)).collect();
    let own = Options { calibrator, ..options() };
    let result = quantized(&network, &samples, &own).network;
    let (scale, zero_point) = (scalar(&result, "x_scale"), integers_of(&result, "x_zero_point")[0] as f32);
    (-zero_point * scale, (255.0 - zero_point) * scale)
}

fn is_near(found: (f32, f32), wanted: (f32, f32), tolerance: f32) -> bool {
    (found.0 - wanted.0).abs() < tolerance && (found.1 - wanted.1).abs() < tolerance
}

#[test]
fn calibrators_on_known_distributions() {
    // Even numbers from -1 to 1.
    let even: Vec<f32> = (0..=20_000).map(|at| at as f32 / 10_000.0 - 1.0).collect();
    let step = 2.0 / 255.0;
    assert!(is_near(range_of(&even, Calibrator::MinMax), (-1.0, 1.0), step));
    // 5 percent on each side are outside.
    let found = range_of(&even, Calibrator::Percentile(90.0));
    assert!(is_near(found, (-0.9, 0.9), step), "{found:?}");
    for calibrator in [Calibrator::Entropy, Calibrator::MeanSquaredError, Calibrator::Percentile(100.0)] {
        let found = range_of(&even, calibrator);
        assert!(is_near(found, (-1.0, 1.0), 2.0 * step), "{calibrator:?} {found:?}");
    }
    // An outlier. MSE: N ((1 + t) / 255)^2 / 12 + (4 - t)^2 is least where N (1 + t) / 780300 = 4 - t.
    let mut outlier: Vec<f32> = (0..100_000).map(|at| at as f32 / 50_000.0 - 1.0).collect();
    outlier.push(4.0);
    assert!(is_near(range_of(&outlier, Calibrator::MinMax), (-1.0, 4.0), 0.02));
    let share = 100_000.0 / 780_300.0;
    let found = range_of(&outlier, Calibrator::MeanSquaredError);
    assert!(is_near(found, (-1.0, (4.0 - share) / (1.0 + share)), 0.06), "{found:?}");
    let found = range_of(&outlier, Calibrator::Percentile(99.99));
    assert!(is_near(found, (-1.0, 1.0), 0.02), "{found:?}");
    // Levels over the range of an outlier of a bell would be wider than the bell's standard deviation.
    let mut bell = normal(20_000, 28);
    bell.push(100.0);
    let (least, greatest) = range_of(&bell, Calibrator::Entropy);
    assert!(least < -3.0 && greatest > 3.0 && greatest < 20.0, "{least} {greatest}");
}

#[test]
fn rectifiers_follow_layers_without_a_rounding() {
    let stored = vec![floats("w", &[4, 4], &normal(16, 3)), floats("zero", &[], &[0.0])];
    let layer = gemm("g", &["x", "w"], "h");
    for rectifier in [plain("Relu", "r", &["h"], "y"), plain("Clip", "r", &["h", "zero"], "y")] {
        let network = network(&[4], vec![layer.clone(), rectifier], stored.clone(), &["y"], 21);
        let samples = vec![batch(&[8, 4], &normal(32, 4))];
        let result = quantized(&network, &samples, &options()).network;
        assert_eq!((count(&result, "QuantizeLinear"), inputs(&result, "r")[0].as_str()), (2, "h"));
        assert_eq!(integers_of(&result, "y_zero_point"), [0]);
        // About a zero point in the middle, saturation does not rectify: the rectifier gets integers.
        let symmetric = Options { activations: Format::Int8, symmetric_activations: true, ..options() };
        let result = quantized(&network, &samples, &symmetric).network;
        assert_eq!(
            (count(&result, "QuantizeLinear"), inputs(&result, "r")[0].as_str()),
            (3, "h_dequantized")
        );
    }
}

#[test]
fn a_value_has_one_pair_for_all_readers() {
    let stored = vec![floats("a", &[4, 4], &normal(16, 5)), floats("c", &[4, 4], &normal(16, 6))];
    let nodes =
        vec![gemm("g", &["x", "a"], "p"), gemm("k", &["x", "c"], "q"), plain("Add", "s", &["p", "q"], "y")];
    let network = network(&[4], nodes, stored, &["p", "y"], 21);
    let samples = vec![batch(&[8, 4], &normal(32, 7))];
    let result = quantized(&network, &samples, &options()).network;
    assert_eq!(count(&result, "QuantizeLinear"), 4);
    assert_eq!(
        (inputs(&result, "g")[0].as_str(), inputs(&result, "k")[0].as_str()),
        ("x_dequantized", "x_dequantized")
    );
    // An output of the network that nodes read, too.
    assert_eq!(inputs(&result, "s"), ["p", "q_dequantized"]);
    let maker = result.graph.node.iter().find(|node| node.output[0] == "p").unwrap();
    assert_eq!(maker.op_type, "DequantizeLinear");
    assert!(
        quantized(&network, &samples, &options()).report.outputs.iter().all(|found| found.sqnr_db > 30.0)
    );
}

#[test]
fn operators_that_move_numbers_share_a_scheme() {
    let stored = vec![
        floats("a", &[4, 4], &normal(16, 8)),
        floats("c", &[4, 4], &normal(16, 9).iter().map(|x| 5.0 * x).collect::<Vec<_>>()),
    ];
    let nodes = vec![
        gemm("g", &["x", "a"], "p"),
        gemm("k", &["x", "c"], "q"),
        with_int(plain("Concat", "s", &["p", "q"], "j"), "axis", 1),
        plain("Transpose", "t", &["j"], "y"),
    ];
    let network = network(&[4], nodes, stored, &["y"], 21);
    let result = quantized(&network, &[batch(&[8, 4], &normal(32, 10))], &options()).network;
    let scale_of = |value: &str| {
        let reads = |node: &&neurenix_onnx::proto::NodeProto| {
            node.op_type == "QuantizeLinear" && node.input[0] == value
        };
        let found = result.graph.node.iter().find(reads).map(|node| node.input[1..].to_vec());
        found.unwrap_or_default()
    };
    assert_eq!(scale_of("p").len(), 2);
    for value in ["q", "j", "y_float"] {
        assert_eq!(scale_of("p"), scale_of(value), "{value}");
    }
}

#[test]
fn a_limited_rectifier_keeps_its_own_scheme_in_a_concat() {
    let stored =
        vec![floats("a", &[4, 4], &normal(16, 30)), floats("zero", &[], &[0.0]), floats("one", &[], &[1.0])];
    let nodes = vec![
        gemm("g", &["x", "a"], "p"),
        plain("Clip", "r", &["p", "zero", "one"], "q"),
        with_int(plain("Concat", "s", &["x", "q"], "y"), "axis", 1),
    ];
    let network = network(&[4], nodes, stored, &["y"], 21);
    let result = quantized(&network, &[batch(&[16, 4], &normal(64, 31))], &options()).network;
    // From 0 to the limit, and not beyond: the Clip and the rounding after it saturate alike.
    assert_eq!((integers_of(&result, "q_zero_point"), inputs(&result, "r")[0].as_str()), (vec![0], "p"));
    assert!(scalar(&result, "q_scale") * 255.0 <= 1.0 && scalar(&result, "q_scale") > 0.99 / 255.0);
}

#[test]
fn nodes_stay_float_on_request() {
    let (network, samples) = three_layers();
    for excluded in ["b", "Tanh"] {
        let own = Options { excluded: vec![excluded.to_owned()], ..options() };
        let Quantized { network: result, report } = quantized(&network, &samples, &own);
        let name = if excluded == "b" { "b" } else { "t" };
        assert_eq!(report.kept_in_float, [(name.to_owned(), "the options exclude it".to_owned())]);
        assert!(report.layers.iter().all(|layer| layer.node != name));
        // It reads what integers made, but makes floats.
        assert!(inputs(&result, name)[0].ends_with("_dequantized"));
        assert_eq!(result.stored("bw").is_some(), excluded == "b");
    }
    let own = Options { operators: Some(vec!["Tanh".to_owned()]), ..options() };
    let Quantized { network: result, report } = quantized(&network, &samples, &own);
    assert_eq!(
        (count(&result, "QuantizeLinear"), report.layers.len(), report.kept_in_float.len()),
        (2, 1, 2)
    );
    let own = Options { excluded: vec!["Sigmoidal".to_owned()], ..options() };
    let message = quantize(&network, &samples, &own).unwrap_err().to_string();
    assert_eq!(
        message,
        "there is no node and no operator \"Sigmoidal\"; nodes: a, t, b; operators: Gemm, Tanh"
    );
}

fn three_layers() -> (Network, Vec<Sample>) {
    let stored = vec![floats("aw", &[6, 4], &normal(24, 11)), floats("bw", &[3, 6], &normal(18, 12))];
    let nodes =
        vec![gemm("a", &["x", "aw"], "h"), plain("Tanh", "t", &["h"], "i"), gemm("b", &["i", "bw"], "y")];
    (network(&[4], nodes, stored, &["y"], 21), vec![batch(&[16, 4], &normal(64, 13))])
}

#[test]
fn batch_normalizations_are_folded_exactly() {
    let channel = |seed: u64| normal(6, seed);
    let stored = vec![
        floats("w", &[6, 2, 3, 3], &normal(108, 14)),
        floats("s", &[6], &channel(15)),
        floats("o", &[6], &channel(16)),
        floats("m", &[6], &channel(17)),
        floats("v", &[6], &channel(18).iter().map(|x| x * x + 0.1).collect::<Vec<_>>()),
    ];
    let statistics = ["s", "o", "m", "v"];
    let all = |value: &'static str| [&[value][..], &statistics].concat();
    let nodes = vec![
        with_int(plain("Conv", "c", &["x", "w"], "h"), "group", 2),
        plain("BatchNormalization", "n", &all("h"), "k"),
        plain("Relu", "r", &["k"], "l"),
        plain("BatchNormalization", "last", &all("l"), "y"),
    ];
    let network = network(&[4, 5, 5], nodes, stored, &["y"], 21);
    let samples = vec![batch(&[3, 4, 5, 5], &normal(300, 19))];
    // All in float: folding alone.
    let own =
        Options { operators: Some(vec!["Relu".to_owned()]), excluded: vec!["Relu".to_owned()], ..options() };
    let Quantized { network: float, .. } = quantized(&network, &samples, &own);
    assert_eq!((count(&float, "BatchNormalization"), count(&float, "QuantizeLinear")), (1, 0));
    let (wanted, found) = (run(&network, &samples[0]), run(&float, &samples[0]));
    assert!(wanted.iter().zip(&found).all(|(a, b)| (a - b).abs() <= 1e-5 * (1.0 + a.abs())));
    // The last one follows no layer: a convolution of each channel takes its place.
    let result = quantized(&network, &samples, &Options { activations: Format::Uint16, ..options() });
    assert_eq!((count(&result.network, "BatchNormalization"), count(&result.network, "Conv")), (0, 2));
    assert!(result.report.outputs[0].sqnr_db > 40.0, "{:?}", result.report.outputs);
}

#[test]
fn products_and_biases_become_one_layer() {
    let stored = vec![floats("w", &[4, 3], &normal(12, 20)), floats("c", &[1, 3], &normal(3, 21))];
    let nodes = vec![plain("MatMul", "m", &["x", "w"], "h"), plain("Add", "a", &["c", "h"], "y")];
    let network = network(&[4], nodes, stored, &["y"], 21);
    let samples = vec![batch(&[8, 4], &normal(32, 22))];
    let result = quantized(&network, &samples, &options());
    assert_eq!((count(&result.network, "Gemm"), count(&result.network, "Add")), (1, 0));
    assert_eq!(result.report.layers[0].node, "m");
    assert!(result.report.outputs[0].sqnr_db > 35.0);
    let own = Options { excluded: vec!["a".to_owned()], ..options() };
    let result = quantized(&network, &samples, &own).network;
    assert_eq!((count(&result, "MatMul"), count(&result, "Add")), (1, 1));
}

#[test]
fn every_format_is_stored_and_computed() {
    let (network, samples) = three_layers();
    // The least ratio for each format of activations and weights.
    let all = [
        (Format::Uint8, Format::Int8, 34.0),
        (Format::Int8, Format::Uint8, 34.0),
        (Format::Uint16, Format::Uint8, 38.0),
        (Format::Int16, Format::Int16, 75.0),
        (Format::Uint16, Format::Uint16, 75.0),
        (Format::Uint8, Format::Int4, 13.0),
        (Format::Uint4, Format::Uint4, 8.0),
        (Format::Int4, Format::Int8, 8.0),
        (Format::Float8E4M3, Format::Float8E4M3, 22.0),
        (Format::Float8E5M2, Format::Float8E4M3, 17.0),
    ];
    for (activations, weights, least) in all {
        let result = quantized(&network, &samples, &Options { activations, weights, ..options() });
        let stored = result.network.stored("aw_quantized").unwrap();
        assert_eq!(stored.data_type, weights.element() as i32);
        assert_eq!(stored.raw_data.len(), 24 * weights.bits() / 8);
        assert_eq!(result.network.stored("x_zero_point").unwrap().data_type, activations.element() as i32);
        let found = result.report.outputs[0].sqnr_db;
        assert!(found > least && found.is_finite(), "{activations} {weights}: {found}");
    }
}

#[test]
fn biases_fit_into_32_bits() {
    // A bias of 1000 at the scale of tiny weights would need more than 32 bits; the second row has no weights.
    let stored = vec![floats("w", &[2, 2], &[1e-8, -1e-8, 0.0, 0.0]), floats("b", &[2], &[1000.0, 0.5])];
    let network = network(&[2], vec![gemm("g", &["x", "w", "b"], "y")], stored, &["y"], 21);
    let result = quantized(&network, &[batch(&[2, 2], &[-1.0, 0.5, 1.0, 1.0])], &options());
    let scales = result.network.floats("b_scale").unwrap().unwrap().1;
    let whole = integers_of(&result.network, "b_quantized");
    let restored: Vec<f64> =
        whole.iter().zip(scales).map(|(&x, scale)| x as f64 * f64::from(scale)).collect();
    assert!((restored[0] - 1000.0).abs() < 0.01 && (restored[1] - 0.5).abs() < 1e-3, "{restored:?}");
}

#[test]
fn ranges_without_numbers_and_fixed_ranges() {
    let network = network(&[3], vec![plain("Softmax", "s", &["x"], "y")], vec![], &["y"], 21);
    let result = quantized(&network, &[batch(&[2, 3], &[0.0; 6])], &options()).network;
    assert_eq!((scalar(&result, "x_scale"), integers_of(&result, "x_zero_point")), (1.0, vec![0]));
    assert!((scalar(&result, "y_scale") - 1.0 / 255.0).abs() < 1e-8);
}

#[test]
fn what_cannot_be_quantized_is_an_error() {
    let (network, samples) = small();
    let message = |network: &Network, samples: &[Sample], options: Options| {
        quantize(network, samples, &options).map(|_| ()).unwrap_err().to_string()
    };
    assert!(matches!(quantize(&network, &[], &options()), Err(Error::NoSamples)));
    let bad = [samples[0].clone(), batch(&[1, 2], &[f32::NAN, 0.0])];
    assert!(message(&network, &bad, options()).starts_with("the value \"x\" is NaN for sample 1"));
    let endless = [batch(&[1, 2], &[f32::INFINITY, 0.0])];
    assert!(message(&network, &endless, options()).starts_with("the value \"x\" is inf for sample 0"));
    let twice = quantized(&network, &samples, &options()).network;
    assert!(matches!(quantize(&twice, &samples, &options()), Err(Error::Quantized { .. })));
    let percentile = Options { calibrator: Calibrator::Percentile(0.99), ..options() };
    assert!(message(&network, &samples, percentile).contains("0.99"));
    let empty = [samples[0].clone(), batch(&[0, 2], &[])];
    assert!(message(&network, &empty, options()).contains("sample 1: the input \"x\" has no rows"));
    let unknown = vec![HashMap::from([("z".to_owned(), samples[0]["x"].clone())])];
    assert!(message(&network, &unknown, options()).contains("expected the inputs x, got z"));
    let needed = |opset: i64, own: Options| {
        let stored = vec![floats("w", &[2, 2], &[1.0, 2.0, 3.0, 4.0])];
        let network = small::network(&[2], vec![gemm("g", &["x", "w"], "y")], stored, &["y"], opset);
        match quantize(&network, &samples, &own) {
            Err(Error::Opset { needed, .. }) => Some(needed),
            result => result.map(|_| None).expect("no other error"),
        }
    };
    assert_eq!(needed(11, options()), Some(13));
    assert_eq!(needed(13, Options { activations: Format::Uint16, ..options() }), Some(21));
    assert_eq!(needed(20, Options { weights: Format::Int4, ..options() }), Some(21));
    assert_eq!(needed(13, Options { weights: Format::Float8E4M3, ..options() }), Some(19));
    assert_eq!(needed(13, options()), None);
}

#[test]
fn the_report_has_the_errors_of_the_networks() {
    let (network, samples) = three_layers();
    let Quantized { network: result, report } = quantized(&network, &samples, &options());
    let (x, q) = (run(&network, &samples[0]), run(&result, &samples[0]));
    let errors: Vec<f64> = x.iter().zip(&q).map(|(&x, &q)| f64::from(x) - f64::from(q)).collect();
    let signal: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
    let noise: f64 = errors.iter().map(|error| error.powi(2)).sum();
    let found = &report.outputs[0];
    assert!((found.sqnr_db - 10.0 * (signal / noise).log10()).abs() < 1e-6);
    assert_eq!(found.max_error, errors.iter().fold(0.0, |greatest, error| error.abs().max(greatest)));
    let last = report.layers.last().unwrap();
    assert_eq!((last.node.as_str(), last.output.as_ref().unwrap().max_error), ("b", found.max_error));
    assert_eq!(report.float_bytes, 4 * (24 + 18));
    // Integers; for each of 9 channels a scale and a zero point; 4 activations with a scale and a zero point.
    assert_eq!(report.quantized_bytes, 24 + 18 + 9 * 5 + 4 * 5);
    let table = report.table();
    let lines: Vec<&str> = table.lines().collect();
    assert!(
        lines[0].starts_with("node") && lines[1].starts_with("a ") && lines[4].starts_with("output y"),
        "{table}"
    );
    assert!(lines[5].contains("168 bytes before, 107 after"), "{table}");
}

#[test]
fn recurrent_layers_stay_float_with_a_reason() {
    let stored = vec![
        floats("w", &[1, 8, 3], &normal(24, 23)),
        floats("r", &[1, 8, 2], &normal(16, 24)),
        floats("k", &[2, 2], &normal(4, 25)),
    ];
    let nodes = vec![
        with_int(plain("LSTM", "l", &["x", "w", "r"], "h"), "hidden_size", 2),
        plain("MatMul", "m", &["h", "k"], "y"),
    ];
    let network = network(&[4, 3], nodes, stored, &["y"], 21);
    let report = quantized(&network, &[batch(&[5, 4, 3], &normal(60, 27))], &options()).report;
    assert_eq!(
        (report.kept_in_float.len(), report.kept_in_float[0].0.as_str(), report.layers.len()),
        (1, "l", 1)
    );
    assert!(report.kept_in_float[0].1.contains("recurrent"));
}

#[test]
fn scales_of_normalizations_have_8_bits_and_the_sign_of_activations() {
    let stored = vec![floats("s", &[4], &[1.0, 0.5, 2.0, 0.0]), floats("b", &[4], &[0.1, 0.0, -0.2, 0.3])];
    let network =
        network(&[4], vec![plain("LayerNormalization", "n", &["x", "s", "b"], "y")], stored, &["y"], 21);
    let samples = vec![batch(&[8, 4], &normal(32, 29))];
    for (activations, weights, wanted) in [
        (Format::Uint8, Format::Int4, Element::Uint8),
        (Format::Int8, Format::Uint8, Element::Int8),
        (Format::Uint16, Format::Int16, Element::Uint16),
    ] {
        let result = quantized(&network, &samples, &Options { activations, weights, ..options() });
        assert_eq!(result.network.stored("s_quantized").unwrap().data_type, wanted as i32);
        assert_eq!(result.network.stored("b_quantized").unwrap().data_type, Element::Int32 as i32);
        assert!(result.report.outputs[0].sqnr_db > 35.0, "{:?}", result.report.outputs);
    }
}
