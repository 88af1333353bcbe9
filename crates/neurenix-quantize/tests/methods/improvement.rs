//! Networks on which a method must lower the noise.

use neurenix_onnx::{Element, edit::floats};
use neurenix_quantize::{Error, Format, Options, Rounding, quantize};

use crate::support::{
    badly_scaled, input, list, network, normal, plain, run, samples, sqnr, weight, whole, with,
};
use crate::{Sample, gain, mixtures, perceptron, stored};

#[test]
fn equalization_mends_channels_of_unequal_scale() {
    let float = badly_scaled(1);
    let samples = samples(4, &[2, 3, 8, 8]);
    let plain = Options { per_channel: false, ..Options::default() };
    let before = gain(&float, &samples, &plain);
    let after = gain(&float, &samples, &Options { equalize: true, ..plain });
    println!("equalization: {before:.1} dB before, {after:.1} dB after");
    assert!(after > before + 10.0, "{before} dB before, {after} dB after");
}

#[test]
fn smoothing_mends_outliers_of_activations() {
    let nodes = vec![
        with(plain("LayerNormalization", &["x", "s", "b"], "n"), whole("axis", -1)),
        plain("MatMul", &["n", "w1"], "h"),
        plain("Relu", &["h"], "r"),
        plain("MatMul", &["r", "w2"], "y"),
    ];
    let mut scale = vec![1f32; 32];
    scale[5] = 80.0;
    let mut first = normal(&[32, 32], 1);
    // What the outlier contributes is no greater than the other channels.
    first[5 * 32..6 * 32].iter_mut().for_each(|w| *w /= 80.0);
    let tensors = vec![
        floats("s", &[32], &scale),
        weight("b", &[32], 2),
        floats("w1", &[32, 32], &first),
        weight("w2", &[32, 8], 3),
    ];
    let float = network(nodes, tensors, &[4, 6, 32], &[4, 6, 8]);
    let samples = samples(4, &[4, 6, 32]);
    let before = gain(&float, &samples, &Options::default());
    let after = gain(&float, &samples, &Options { smooth: Some(0.5), ..Options::default() });
    println!("smoothing: {before:.1} dB before, {after:.1} dB after");
    assert!(after > before + 6.0, "{before} dB before, {after} dB after");
}

#[test]
fn adaptive_rounding_beats_the_nearest_integers_in_4_bits() {
    let float = perceptron(10);
    let samples = mixtures(16);
    let (calibration, test) = samples.split_at(12);
    let plain = Options { weights: Format::Int4, ..Options::default() };
    let rounding = Rounding { steps: 600, ..Rounding::default() };
    let quantized = |options: &Options| quantize(&float, calibration, options).unwrap();
    let (nearest, learned) =
        (quantized(&plain), quantized(&Options { adaptive_rounding: Some(rounding), ..plain.clone() }));
    let (before, after) = (sqnr(&float, &nearest.network, test), sqnr(&float, &learned.network, test));
    println!("adaptive rounding: {before:.1} dB before, {after:.1} dB after, on other samples");
    assert!(after > before + 3.0, "{before} dB before, {after} dB after");
    // Each integer is one of the two next to the quotient, and some are not the nearest.
    let (near, own) = (stored(&nearest.network, "w1_quantized"), stored(&learned.network, "w1_quantized"));
    let changed = near.iter().zip(&own).filter(|(near, own)| near != own).count();
    assert!(changed > 0 && near.iter().zip(&own).all(|(near, own)| (near - own).abs() <= 1), "{changed}");
    let again = quantized(&Options { adaptive_rounding: Some(rounding), ..plain });
    assert_eq!(own, stored(&again.network, "w1_quantized"), "the seed decides");
}

#[test]
fn adaptive_rounding_learns_convolutions() {
    let nodes = vec![
        plain("Conv", &["x", "w1", "b1"], "c1"),
        plain("Relu", &["c1"], "r1"),
        with(with(plain("Conv", &["r1", "w2"], "y"), whole("group", 2)), list("strides", &[2, 2])),
    ];
    let tensors = vec![weight("w1", &[6, 3, 3, 3], 1), weight("b1", &[6], 2), weight("w2", &[4, 3, 3, 3], 3)];
    let float = network(nodes, tensors, &[2, 3, 10, 10], &[2, 4, 3, 3]);
    // Smooth images: neighbours are alike.
    let image = |seed| {
        let (corner, at) = (normal(&[2 * 3 * 3], seed), |plane: usize, i: usize| {
            let (row, column) = ((i / 10) as f32 / 9.0, (i % 10) as f32 / 9.0);
            (plane, row, column)
        });
        let numbers: Vec<f32> = (0..2 * 3 * 100)
            .map(|place| {
                let (plane, row, column) = at(place / 100, place % 100);
                corner[plane * 3] + corner[plane * 3 + 1] * row + corner[plane * 3 + 2] * column
            })
            .collect();
        input(&[2, 3, 10, 10], &numbers)
    };
    let samples: Vec<Sample> = (0..16).map(|seed| image(2000 + seed)).collect();
    let plain = Options { weights: Format::Int4, ..Options::default() };
    let before = gain(&float, &samples, &plain);
    let rounding = Some(Rounding { steps: 400, batch: 16, ..Rounding::default() });
    let after = gain(&float, &samples, &Options { adaptive_rounding: rounding, ..plain });
    println!("adaptive rounding of convolutions: {before:.1} dB before, {after:.1} dB after");
    assert!(after > before + 3.0, "{before} dB before, {after} dB after");
}

#[test]
fn bias_correction_removes_the_mean_of_errors() {
    // All weights but the greatest are a little above the middle between two of the integers: all are rounded up.
    let step = 1.0 / 7.0f32;
    let biased = |size: usize, rows: usize| -> Vec<f32> {
        let own = |at: usize| if at / (size / rows) == 0 { 1.0 } else { step * ((at % 3) as f32 + 0.55) };
        (0..size).map(own).collect()
    };
    let nodes = vec![
        plain("Gemm", &["x", "w1", "b1"], "h"),
        plain("Relu", &["h"], "r"),
        plain("Gemm", &["r", "w2"], "y"),
    ];
    let tensors = vec![
        floats("w1", &[24, 16], &biased(24 * 16, 24)),
        weight("b1", &[16], 5),
        floats("w2", &[16, 4], &biased(64, 16)),
    ];
    let float = network(nodes, tensors, &[8, 24], &[8, 4]);
    let samples = mixtures(12);
    let plain = Options { weights: Format::Int4, ..Options::default() };
    let corrected = quantize(&float, &samples, &Options { bias_correction: true, ..plain.clone() }).unwrap();
    let before = gain(&float, &samples, &plain);
    let after = sqnr(&float, &corrected.network, &samples);
    println!("bias correction: {before:.1} dB before, {after:.1} dB after");
    assert!(after > before + 3.0, "{before} dB before, {after} dB after");
    // The mean error of the last layer, before its result is quantized, is what an integer of its bias is at most.
    let own = corrected.network.graph.node.iter().find(|node| node.name == "y").unwrap();
    let (result, bias) = (own.output[0].clone(), own.input[2].clone());
    let scale =
        corrected.network.graph.node.iter().find(|node| node.output[0] == bias).unwrap().input[1].clone();
    let scales = corrected.network.floats(&scale).unwrap().unwrap().1;
    let inner = corrected.network.with_outputs(&[result]);
    for (channel, scale) in (0..4).zip(scales.iter().cycle()) {
        let errors = samples.iter().flat_map(|sample| {
            let (x, q) = (run(&float, sample), run(&inner, sample));
            (0..8).map(move |row| f64::from(x[row * 4 + channel]) - f64::from(q[row * 4 + channel]))
        });
        let mean = errors.sum::<f64>() / (8.0 * samples.len() as f64);
        assert!(mean.abs() <= f64::from(*scale) * 0.51 + 1e-5, "{mean} in channel {channel}, scale {scale}");
    }
}

#[test]
fn samples_of_several_sizes_calibrate_methods() {
    // A product reads sequences of any length.
    let nodes = vec![
        plain("MatMul", &["x", "w1"], "h"),
        plain("Relu", &["h"], "r"),
        plain("MatMul", &["r", "w2"], "y"),
    ];
    let tensors = vec![weight("w1", &[8, 8], 1), weight("w2", &[8, 4], 2)];
    let mut float = network(nodes, tensors, &[1, 4, 8], &[1, 4, 4]);
    for port in float.graph.input.iter_mut().chain(&mut float.graph.output) {
        *port = neurenix_onnx::edit::info(&port.name, Element::Float, &[]);
        if let Some(neurenix_onnx::proto::TypeKind::Tensor(tensor)) =
            port.r#type.as_mut().and_then(|kind| kind.value.as_mut())
        {
            tensor.shape = None;
        }
    }
    let samples: Vec<Sample> =
        [3, 5, 3, 1].map(|length| input(&[1, length, 8], &normal(&[1, length, 8], length as u64))).to_vec();
    let options = Options {
        weights: Format::Int4,
        smooth: Some(0.5),
        equalize: true,
        bias_correction: true,
        adaptive_rounding: Some(Rounding { steps: 40, batch: 4, ..Rounding::default() }),
        ..Options::default()
    };
    let own = gain(&float, &samples, &options);
    assert!(own > 15.0, "{own} dB");
}

#[test]
fn a_batch_of_nothing_is_an_error() {
    let rounding = Some(Rounding { batch: 0, ..Rounding::default() });
    let options = Options { adaptive_rounding: rounding, ..Options::default() };
    let found = quantize(&perceptron(1), &mixtures(1), &options);
    assert!(matches!(found, Err(Error::Option { option: "adaptive_rounding.batch", .. })));
}
