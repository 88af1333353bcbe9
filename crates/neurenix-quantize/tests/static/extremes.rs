//! Numbers, names and files at the limits: masks, large inputs, numbers that are not finite, broken shapes.

use neurenix_onnx::{
    Element,
    edit::{Network, floats},
    proto::{NodeProto, TensorProto},
};
use neurenix_quantize::{
    Error, Options, Quantized, Report, WeightOnly, quantize, quantize_dynamically, quantize_weights,
};

use crate::small::{
    batch, count, gemm, inputs, integers_of, network, normal, options, plain, quantized, with_int,
};

/// One head of attention over 6 rows of 8 numbers, with these nodes from the scores `s` to the masked scores `z`.
fn attention(mask: Vec<NodeProto>, mut stored: Vec<TensorProto>) -> Network {
    for (name, seed) in [("q", 1), ("k", 2), ("v", 3)] {
        let scaled: Vec<f32> = normal(64, seed).iter().map(|x| 0.5 * x).collect();
        stored.push(floats(name, &[8, 8], &scaled));
    }
    let mut nodes = vec![
        plain("MatMul", "mq", &["x", "q"], "xq"),
        plain("MatMul", "mk", &["x", "k"], "xk"),
        plain("MatMul", "mv", &["x", "v"], "xv"),
        NodeProto {
            attribute: vec![neurenix_onnx::proto::AttributeProto {
                name: "perm".to_owned(),
                ints: vec![0, 2, 1],
                r#type: neurenix_onnx::proto::attribute_type::INTS,
                ..Default::default()
            }],
            ..plain("Transpose", "t", &["xk"], "tk")
        },
        plain("MatMul", "scores", &["xq", "tk"], "s"),
    ];
    nodes.extend(mask);
    nodes.push(plain("Softmax", "softmax", &["z"], "p"));
    nodes.push(plain("MatMul", "mixed", &["p", "xv"], "y"));
    network(&[6, 8], nodes, stored, &["y"], 21)
}

/// A causal mask, with this number above the diagonal.
fn causal(masked: f32) -> TensorProto {
    let numbers: Vec<f32> = (0..36).map(|at| if at % 6 > at / 6 { masked } else { 0.0 }).collect();
    floats("mask", &[6, 6], &numbers)
}

#[test]
fn masks_and_what_reads_them_stay_float() {
    let samples = [batch(&[4, 6, 8], &normal(192, 4))];
    let added = || vec![plain("Add", "masking", &["s", "mask"], "z")];
    let whole = quantized(&attention(vec![plain("Neg", "n", &["s"], "z")], vec![]), &samples, &options());
    assert!(whole.report.kept_in_float.is_empty());
    let unmasked = whole.report.outputs[0].sqnr_db;
    for masked in [-1e4, -1e9, f32::MIN, f32::NEG_INFINITY] {
        let Quantized { network: result, report } =
            quantized(&attention(added(), vec![causal(masked)]), &samples, &options());
        let kept: Vec<&str> = report.kept_in_float.iter().map(|(node, _)| node.as_str()).collect();
        assert_eq!(kept, ["masking", "softmax"], "{masked}");
        assert_eq!(inputs(&result, "softmax"), ["z"]);
        assert!(report.outputs[0].sqnr_db > unmasked - 6.0, "{masked}: {:?}", report.outputs);
        assert_eq!(report.layers.len(), 6);
    }
    // Numbers like those of the scores are no mask.
    let near = quantized(&attention(added(), vec![causal(-4.0)]), &samples, &options());
    assert!(near.report.kept_in_float.is_empty(), "{:?}", near.report.kept_in_float);
}

#[test]
fn masks_that_are_chosen_or_computed_stay_float() {
    let samples = [batch(&[4, 6, 8], &normal(192, 5))];
    let is_masked: Vec<i64> = (0..36).map(|at| i64::from(at % 6 > at / 6)).collect();
    let stored = |number: f32| {
        vec![
            neurenix_onnx::edit::integers("above", Element::Bool, &[6, 6], &is_masked),
            floats("low", &[], &[number]),
            floats("zero", &[], &[0.0]),
        ]
    };
    for number in [-1e4, f32::NEG_INFINITY] {
        let chosen = vec![plain("Where", "w", &["above", "low", "s"], "z")];
        let report = quantized(&attention(chosen, stored(number)), &samples, &options()).report;
        let kept: Vec<&str> = report.kept_in_float.iter().map(|(node, _)| node.as_str()).collect();
        assert_eq!(kept, ["w", "softmax"], "{number}");
        assert!(report.outputs[0].sqnr_db > 25.0, "{number}: {:?}", report.outputs);
    }
    // Which numbers are masked depends on the input.
    let computed = vec![
        plain("Less", "less", &["s", "zero"], "below"),
        plain("Where", "w", &["below", "low", "zero"], "mask"),
        plain("Add", "a", &["s", "mask"], "z"),
    ];
    let report = quantized(&attention(computed, stored(-1e4)), &samples, &options()).report;
    let kept: Vec<&str> = report.kept_in_float.iter().map(|(node, _)| node.as_str()).collect();
    assert!(kept.contains(&"a") && kept.contains(&"softmax") && !kept.contains(&"mixed"), "{kept:?}");
}

#[test]
fn biases_of_normalizations_do_not_follow_the_input() {
    let stored = vec![floats("s", &[16], &normal(16, 6)), floats("b", &[16], &normal(16, 7))];
    let node = plain("LayerNormalization", "n", &["x", "s", "b"], "y");
    let network = network(&[16], vec![node], stored, &["y"], 21);
    for factor in [1.0, 1e3, 1e5] {
        let numbers: Vec<f32> = normal(512, 8).iter().map(|x| factor * x).collect();
        let result = quantized(&network, &[batch(&[32, 16], &numbers)], &options());
        assert!(result.report.outputs[0].sqnr_db > 38.0, "{factor}: {:?}", result.report.outputs);
        assert_eq!(result.network.stored("b_quantized").unwrap().data_type, Element::Int32 as i32);
        assert!(integers_of(&result.network, "b_quantized").iter().any(|x| x.abs() == 1 << 23));
    }
}

#[test]
fn outputs_are_compared_with_the_network_that_was_given() {
    // Folded, the weights are below what floats hold: all outputs become zero.
    let stored = vec![
        floats("w", &[2, 2, 1, 1], &[1e-30, 2e-30, 3e-30, 4e-30]),
        floats("s", &[2], &[1e-18; 2]),
        floats("o", &[2], &[0.0; 2]),
        floats("v", &[2], &[1.0; 2]),
    ];
    let nodes = vec![
        plain("Conv", "c", &["x", "w"], "h"),
        plain("BatchNormalization", "n", &["h", "s", "o", "o", "v"], "y"),
    ];
    let network = network(&[2, 1, 1], nodes, stored, &["y"], 21);
    let sample = batch(&[1, 2, 1, 1], &[1e20, 2e20]);
    let report = quantized(&network, &[sample], &options()).report;
    assert!(report.outputs[0].sqnr_db.abs() < 1e-3, "{:?}", report.outputs);
    assert_eq!(report.layers[0].output.as_ref().unwrap().sqnr_db, f64::INFINITY);
}

#[test]
fn noise_without_a_signal_is_not_exact() {
    let float = network(&[2], vec![plain("Sub", "s", &["x", "x"], "y")], vec![], &["y"], 21);
    let other = network(&[2], vec![plain("Add", "s", &["x", "x"], "y")], vec![], &["y"], 21);
    let samples = [batch(&[1, 2], &[1.0, 2.0])];
    let mut report = Report::default();
    report.compare(&float, &other, &samples).unwrap();
    assert_eq!(report.outputs[0].sqnr_db, f64::NEG_INFINITY);
    assert!(report.table().contains("-inf") && !report.table().contains("exact"), "{}", report.table());
    report.compare(&float, &float, &samples).unwrap();
    assert!(report.table().contains("exact"), "{}", report.table());
}

#[test]
fn weights_that_are_not_finite_are_errors() {
    for (found, text) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        let stored = vec![floats("w", &[2, 2], &[1.0, found, 2.0, 3.0])];
        let network = network(&[2], vec![gemm("g", &["x", "w"], "y")], stored, &["y"], 21);
        let message = format!("the value \"w\" is {text} in the network");
        let is_told = |result: Result<Quantized, Error>| {
            let told = result.map(|_| ()).unwrap_err().to_string();
            assert!(told.starts_with(&message), "{told}");
        };
        is_told(quantize_weights(&network, &WeightOnly::default()));
        is_told(quantize_dynamically(&network, &options()));
        assert!(quantize(&network, &[batch(&[1, 2], &[1.0, 1.0])], &options()).is_err());
        let own = WeightOnly { excluded: vec!["g".to_owned()], ..WeightOnly::default() };
        assert!(quantize_weights(&network, &own).is_ok());
    }
}

#[test]
fn excluded_normalizations_and_those_of_excluded_layers_stay() {
    let stored = vec![
        floats("w", &[3, 2, 1, 1], &normal(6, 9)),
        floats("s", &[3], &normal(3, 10)),
        floats("v", &[3], &[0.5, 1.0, 2.0]),
    ];
    let nodes = vec![
        plain("Conv", "c", &["x", "w"], "h"),
        plain("BatchNormalization", "bn", &["h", "s", "s", "s", "v"], "n"),
        plain("Relu", "r", &["n"], "y"),
    ];
    let network = network(&[2, 4, 4], nodes, stored, &["y"], 21);
    let samples = [batch(&[2, 2, 4, 4], &normal(64, 11))];
    for (excluded, kept) in [("bn", &["bn"][..]), ("c", &["c", "bn"])] {
        let own = Options { excluded: vec![excluded.to_owned()], ..options() };
        let Quantized { network: result, report } = quantized(&network, &samples, &own);
        let names: Vec<&str> = report.kept_in_float.iter().map(|(node, _)| node.as_str()).collect();
        assert_eq!(
            (names, count(&result, "BatchNormalization"), count(&result, "Conv")),
            (kept.to_vec(), 1, 1)
        );
        assert!(report.outputs[0].sqnr_db > 30.0, "{:?}", report.outputs);
    }
}

#[test]
fn broken_extents_are_errors() {
    let broken = TensorProto { dims: vec![1 << 62, 8], ..floats("w", &[1], &[1.0]) };
    let kernels = TensorProto { dims: vec![8, 1 << 31, 1 << 31, 8], ..floats("w", &[1], &[1.0]) };
    let nodes = [
        plain("MatMul", "m", &["x", "w"], "y"),
        with_int(plain("Conv", "m", &["x", "w"], "y"), "group", 1 << 62),
        plain("Conv", "m", &["x", "w"], "y"),
    ];
    for node in nodes {
        for tensor in [&broken, &kernels] {
            let network = network(&[2], vec![node.clone()], vec![tensor.clone()], &["y"], 21);
            // The tensor is an error where it is read. What cannot be a weight is not read.
            let is_read = node.op_type == "MatMul" && tensor.dims.len() == 2;
            for found in [
                quantize_weights(&network, &WeightOnly::default()),
                quantize_dynamically(&network, &options()),
            ] {
                assert!(found.map_or(true, |found| !is_read && found.report.layers.is_empty()));
            }
            assert!(quantize(&network, &[batch(&[1, 2], &[1.0, 2.0])], &options()).is_err());
        }
    }
}

#[test]
fn a_name_of_a_node_means_this_node_alone() {
    let stored = vec![floats("a", &[4, 4], &normal(16, 12)), floats("c", &[4, 4], &normal(16, 13))];
    let nodes = vec![gemm("first", &["x", "a"], "h"), gemm("Gemm", &["h", "c"], "y")];
    let network = network(&[4], nodes, stored, &["y"], 21);
    let samples = [batch(&[4, 4], &normal(16, 14))];
    let own = Options { excluded: vec!["Gemm".to_owned()], ..options() };
    let report = quantized(&network, &samples, &own).report;
    assert_eq!((report.layers.len(), report.layers[0].node.as_str()), (1, "first"));
    assert_eq!(report.kept_in_float[0].0, "Gemm");
}
