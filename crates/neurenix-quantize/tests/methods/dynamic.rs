//! Dynamic quantization against direct formulas.

use neurenix_onnx::{
    Element,
    edit::{Network, floats},
};
use neurenix_quantize::{Error, Format, Options, Quantized, quantize_dynamically};

use crate::support::{
    input, list, network, normal, plain, relative_error, run, samples, sqnr, weight, whole, with,
};
use crate::{count, stored};

/// What `DynamicQuantizeLinear` does to numbers: integers, scale and zero point.
fn dynamic(x: &[f32]) -> (Vec<i64>, f32, i64) {
    let (least, greatest) =
        x.iter().fold((0f32, 0f32), |(least, greatest), &x| (least.min(x), greatest.max(x)));
    let scale = (greatest - least) / 255.0;
    let zero = (-least / scale).round_ties_even().clamp(0.0, 255.0) as i64;
    let own = |x: &f32| ((x / scale).round_ties_even() as i64 + zero).clamp(0, 255);
    (x.iter().map(own).collect(), scale, zero)
}

#[test]
fn dynamic_products_are_what_the_formula_gives() {
    let numbers = normal(&[6, 9], 1);
    let bias = normal(&[6], 2);
    let mut gemm = with(plain("Gemm", &["x", "w", "b"], "y"), whole("transB", 1));
    for (name, factor) in [("alpha", 0.5), ("beta", 2.0)] {
        let mut attribute = whole(name, 0);
        (attribute.f, attribute.r#type) = (Some(factor), neurenix_onnx::proto::attribute_type::FLOAT);
        gemm.attribute.push(attribute);
    }
    let tensors = vec![floats("w", &[6, 9], &numbers), floats("b", &[6], &bias)];
    let float = network(vec![gemm], tensors, &[4, 9], &[4, 6]);
    let sample = samples(1, &[4, 9]).remove(0);
    let x: Vec<f32> = sample["x"].tensor().unwrap().to_vec().unwrap();
    let (whole_x, x_scale, zero) = dynamic(&x);
    for per_channel in [true, false] {
        let options = Options { per_channel, ..Options::default() };
        let Quantized { network: quantized, report } = quantize_dynamically(&float, &options).unwrap();
        let greatest = |row: Option<usize>| {
            let own = numbers.iter().enumerate().filter(|(at, _)| row.is_none_or(|row| at / 9 == row));
            own.fold(0f32, |greatest, (_, x)| greatest.max((0.5 * x).abs()))
        };
        let mut expected = Vec::new();
        for row in 0..4 {
            for column in 0..6 {
                let scale = greatest(per_channel.then_some(column)) / 127.0;
                let product = |k: usize| {
                    let w = (0.5 * numbers[column * 9 + k] / scale).round_ties_even() as i64;
                    (whole_x[row * 9 + k] - zero) * w
                };
                let sum: i64 = (0..9).map(product).sum();
                expected
                    .push((sum as f64 * f64::from(x_scale) * f64::from(scale)) as f32 + 2.0 * bias[column]);
            }
        }
        assert!(relative_error(&expected, &run(&quantized, &sample)) < 1e-6);
        assert!(sqnr(&float, &quantized, std::slice::from_ref(&sample)) > 30.0);
        assert_eq!(report.layers[0].activations, Some(Format::Uint8));
    }
}

#[test]
fn a_computed_bias_of_a_convolution_is_told_as_such() {
    let nodes = [
        plain("ReduceMean", &["x", "axes"], "b"),
        with(plain("Conv", &["x", "w", "b"], "y"), list("pads", &[1, 1])),
    ];
    let axes = neurenix_onnx::edit::integers("axes", Element::Int64, &[2], &[0, 2]);
    let reduced = with(nodes[0].clone(), whole("keepdims", 0));
    let nodes = vec![reduced, nodes[1].clone()];
    let float = network(nodes, vec![weight("w", &[3, 3, 3], 1), axes], &[2, 3, 6], &[2, 3, 6]);
    let report = quantize_dynamically(&float, &Options::default()).unwrap().report;
    assert_eq!(report.kept_in_float, [("y".to_owned(), "its bias is computed at run time".to_owned())]);
}

#[test]
fn dynamic_convolutions_share_inputs_and_recurrent_layers_stay() {
    let mut nodes = vec![
        with(plain("Conv", &["x", "w1", "b1"], "c1"), list("pads", &[1, 1])),
        with(plain("Conv", &["x", "w2"], "c2"), list("pads", &[1, 1])),
        plain("Add", &["c1", "c2"], "s"),
        plain("LSTM", &["s", "wl", "rl"], "l"),
        plain("Squeeze", &["l", "one"], "y"),
    ];
    nodes[3].attribute.push(whole("hidden_size", 3));
    let tensors = vec![
        weight("w1", &[4, 3, 3], 1),
        weight("b1", &[4], 2),
        weight("w2", &[4, 3, 3], 3),
        weight("wl", &[1, 12, 6], 4),
        weight("rl", &[1, 12, 3], 5),
        neurenix_onnx::edit::integers("one", Element::Int64, &[1], &[1]),
    ];
    let float = network(nodes, tensors, &[2, 3, 6], &[2, 4, 3]);
    for weights in [Format::Int8, Format::Uint8] {
        for per_channel in [true, false] {
            let options = Options { weights, per_channel, ..Options::default() };
            let Quantized { network: quantized, mut report } =
                quantize_dynamically(&float, &options).unwrap();
            assert_eq!(count(&quantized, "DynamicQuantizeLinear"), 1);
            assert_eq!((count(&quantized, "ConvInteger"), count(&quantized, "Conv")), (2, 0));
            assert_eq!(report.kept_in_float.len(), 1);
            let (node, reason) = &report.kept_in_float[0];
            assert!(node == "l" && reason.contains("recurrent"), "{node}: {reason}");
            let samples = samples(2, &[2, 3, 6]);
            // The convolutions are those of the floats that the integers stand for.
            let mut restored = float.clone();
            for name in ["w1", "w2"] {
                let scales = quantized.floats(&format!("{name}_scale")).unwrap().unwrap().1;
                let zeros = quantized
                    .stored(&format!("{name}_zero_point"))
                    .map(|zero| stored(&quantized, &zero.name));
                let zeros = zeros.unwrap_or(vec![0]);
                let own = stored(&quantized, &format!("{name}_quantized")).into_iter().enumerate();
                let own = own.map(|(at, q)| {
                    let channel = at / 9;
                    let zero = zeros[channel % zeros.len()];
                    (q - zero) as f32 * scales[channel % scales.len()]
                });
                restored.store(floats(name, &[4, 3, 3], &own.collect::<Vec<_>>()));
            }
            for sample in &samples {
                let x: Vec<f32> = sample["x"].tensor().unwrap().to_vec().unwrap();
                let (x, scale, zero) = dynamic(&x);
                let x: Vec<f32> = x.into_iter().map(|q| (q - zero) as f32 * scale).collect();
                let sum = |network: &Network| network.with_outputs(&["s".to_owned()]);
                let expected = run(&sum(&restored), &input(&[2, 3, 6], &x));
                assert!(relative_error(&expected, &run(&sum(&quantized), sample)) < 1e-5, "{options:?}");
            }
            report.compare(&float, &quantized, &samples).unwrap();
            assert!(report.layers.iter().all(|layer| layer.output.as_ref().unwrap().sqnr_db > 30.0));
        }
    }
    let wrong = Options { activations: Format::Int8, ..Options::default() };
    assert!(matches!(quantize_dynamically(&float, &wrong), Err(Error::Option { option: "activations", .. })));
}
