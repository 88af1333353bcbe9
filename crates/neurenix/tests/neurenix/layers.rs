//! Every layer against PyTorch: names of parameters, outputs, gradients and buffers (`golden/make_layers.py`).

use std::{collections::BTreeMap, path::PathBuf, sync::OnceLock};

use neurenix::{
    Result,
    data::{HostArray, read_npz},
    nn::*,
};
use phynexus::{DType, Device, Tensor, tensor::Generator};

type Outputs = Result<Vec<Tensor>>;

/// Cases of the file by name, and within them arrays by name.
type Cases = BTreeMap<String, BTreeMap<String, HostArray>>;

fn golden() -> &'static Cases {
    static CASES: OnceLock<Cases> = OnceLock::new();
    CASES.get_or_init(|| {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/layers.npz");
        let mut cases = Cases::new();
        for (name, array) in read_npz(&path).unwrap() {
            let (case, part) = name.split_once('/').unwrap();
            cases.entry(case.to_owned()).or_default().insert(part.to_owned(), array);
        }
        cases
    })
}

fn device() -> Device {
    neurenix::register_all();
    Device::default_device().unwrap()
}

/// The arrays whose names start with `prefix`, in order, with the prefix removed.
fn parts<'a>(
    case: &'a BTreeMap<String, HostArray>,
    prefix: &'a str,
) -> impl Iterator<Item = (&'a str, &'a HostArray)> {
    case.iter().filter_map(move |(name, array)| Some((name.strip_prefix(prefix)?, array)))
}

fn tensor(array: &HostArray, dtype: DType) -> Tensor {
    let tensor = Tensor::from_bytes(array.bytes(), array.dtype(), array.shape(), device()).unwrap();
    if array.dtype().is_float() { tensor.to_dtype(dtype).unwrap() } else { tensor }
}

/// The differences from PyTorch that exceed the tolerance: float32 rounding of the stored numbers for a `float64`
/// network, and the error of float32 sums for a `float32` network.
fn compare(what: &str, found: &Tensor, expected: &HostArray, wrong: &mut Vec<String>) {
    if found.shape() != expected.shape() {
        wrong.push(format!("{what}: shape {:?}, not {:?}", found.shape(), expected.shape()));
        return;
    }
    let tolerance = if found.dtype() == DType::F64 { 3e-7 } else { 3e-5 };
    let found = found.to_dtype(DType::F64).unwrap().to_vec::<f64>().unwrap();
    let expected = expected.cast(DType::F64).to_vec::<f64>().unwrap();
    let largest = expected.iter().fold(0f64, |most, x| most.max(x.abs()));
    for (i, (&a, &b)) in found.iter().zip(&expected).enumerate() {
        // NaN never passes the comparison.
        let close = (a - b).abs() <= tolerance * (b.abs() + 0.1 * largest.min(1.0) + 1e-2);
        if !close {
            wrong.push(format!("{what}, element {i}: {a} is not {b}"));
            return;
        }
    }
}

/// Runs a case in `float64` and `float32` and compares everything that the file has for it.
fn check<M: Module>(name: &str, module: &M, forward: impl Fn(&M, &[Tensor]) -> Outputs) {
    let mut wrong = Vec::new();
    for dtype in [DType::F64, DType::F32] {
        if let Err(error) = run(name, module, &forward, dtype, &mut wrong) {
            wrong.push(format!("{name} in {dtype}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn run<M: Module>(
    name: &str,
    module: &M,
    forward: impl Fn(&M, &[Tensor]) -> Outputs,
    dtype: DType,
    wrong: &mut Vec<String>,
) -> Result<()> {
    let case = golden().get(name).unwrap_or_else(|| panic!("the file has no case {name}"));
    module.to_dtype(dtype)?;
    module.train(true);
    let state: BTreeMap<String, Tensor> =
        parts(case, "state/").map(|(key, array)| (key.to_owned(), tensor(array, dtype))).collect();
    module.load_state(&state)?;
    let inputs = parts(case, "in/").map(|(_, array)| {
        let x = tensor(array, dtype);
        if x.dtype().is_float() { x.with_grad() } else { Ok(x) }
    });
    let inputs: Vec<Tensor> = inputs.collect::<phynexus::Result<_>>()?;
    let parameters: Vec<(String, Tensor)> =
        module.named_state().into_iter().map(|(key, _, p)| (key, p.tensor())).collect();
    let outputs = forward(module, &inputs)?;
    assert_eq!(outputs.len(), parts(case, "out/").count(), "{name}");
    let mut loss = Tensor::full(&[], 0.0, dtype, device())?;
    for output in &outputs {
        assert_eq!(output.dtype(), dtype, "{name}");
        let weights = Tensor::arange(0, output.len() as i64, 1, DType::I64, device())?
            .to_dtype(dtype)?
            .cos()?
            .reshape(output.shape())?;
        loss = loss.add(&output.mul(&weights)?.sum(&[], false)?)?;
    }
    let gradients = if loss.requires_grad() { loss.leaf_gradients()? } else { Default::default() };
    let mut compare = |what: String, found: &Tensor, expected: &HostArray| {
        compare(&format!("{name} in {dtype}, {what}"), found, expected, wrong);
    };
    for (i, expected) in parts(case, "out/") {
        compare(format!("output {i}"), &outputs[i.parse::<usize>().unwrap()], expected);
    }
    for (i, expected) in parts(case, "grad_in/") {
        let leaf = &inputs[i.parse::<usize>().unwrap()];
        compare(format!("gradient of input {i}"), gradients.get(leaf).unwrap(), expected);
    }
    for (key, leaf) in &parameters {
        if let Some(expected) = case.get(&format!("grad/{key}")) {
            let found = gradients.get(leaf).unwrap_or_else(|| panic!("{name}: no gradient of {key}"));
            compare(format!("gradient of {key}"), found, expected);
        }
    }
    for (key, expected) in parts(case, "after/") {
        compare(format!("{key} afterwards"), &module.state()[key], expected);
    }
    Ok(())
}

fn one<M: Module>(module: &M, inputs: &[Tensor]) -> Outputs {
    Ok(vec![module.forward(&inputs[0])?])
}

#[test]
fn linear_and_embedding() -> Result<()> {
    let g = Generator::new(0);
    check("linear", &Linear::new(5, 3, true, device(), &g)?, one);
    check("linear_no_bias", &Linear::new(5, 3, false, device(), &g)?, one);
    check("embedding", &Embedding::new(7, 4, None, device(), &g)?, one);
    check("embedding_padding", &Embedding::new(7, 4, Some(2), device(), &g)?, one);
    Ok(())
}

#[test]
fn convolutions() -> Result<()> {
    let (d, g) = (device(), Generator::new(0));
    let options =
        ConvOptions { stride: [2], padding: [1], dilation: [2], groups: 2, ..ConvOptions::default() };
    check("conv1d", &Conv1d::new(4, 6, [3], options, d, &g)?, one);
    let options = ConvOptions {
        stride: [2, 1],
        padding: [1, 2],
        dilation: [1, 2],
        groups: 2,
        ..ConvOptions::default()
    };
    check("conv2d", &Conv2d::new(4, 6, [3, 2], options, d, &g)?, one);
    let options = ConvOptions { padding: [1, 1], bias: false, ..ConvOptions::default() };
    check("conv2d_plain", &Conv2d::new(3, 4, [3, 3], options, d, &g)?, one);
    let options = ConvOptions { stride: [1, 2, 1], padding: [1, 0, 1], ..ConvOptions::default() };
    check("conv3d", &Conv3d::new(2, 3, [2, 3, 1], options, d, &g)?, one);
    Ok(())
}

#[test]
fn transposed_convolutions() -> Result<()> {
    let (d, g) = (device(), Generator::new(0));
    let options =
        ConvOptions { stride: [2], padding: [1], output_padding: [1], groups: 2, ..ConvOptions::default() };
    check("conv_transpose1d", &ConvTranspose1d::new(4, 6, [3], options, d, &g)?, one);
    let options = ConvOptions {
        stride: [2, 3],
        padding: [1, 0],
        output_padding: [1, 2],
        dilation: [2, 1],
        ..ConvOptions::default()
    };
    check("conv_transpose2d", &ConvTranspose2d::new(3, 2, [3, 2], options, d, &g)?, one);
    let options = ConvOptions { stride: [2; 3], bias: false, ..ConvOptions::default() };
    check("conv_transpose3d", &ConvTranspose3d::new(2, 3, [2; 3], options, d, &g)?, one);
    Ok(())
}

#[test]
fn pooling() {
    check("max_pool1d", &MaxPool1d { stride: Some([2]), padding: [1], ..MaxPool1d::new([3]) }, one);
    let pool =
        MaxPool2d { stride: Some([1, 2]), dilation: [2, 1], ceil_mode: true, ..MaxPool2d::new([3, 2]) };
    check("max_pool2d", &pool, one);
    check("max_pool3d", &MaxPool3d::new([2; 3]), one);
    check("avg_pool1d", &AvgPool1d::new([2]), one);
    let pool = AvgPool2d {
        stride: Some([2; 2]),
        padding: [1; 2],
        ceil_mode: true,
        count_include_pad: false,
        ..AvgPool2d::new([3; 2])
    };
    check("avg_pool2d", &pool, one);
    let pool = AvgPool3d { stride: Some([1, 1, 2]), padding: [1, 0, 0], ..AvgPool3d::new([2, 1, 2]) };
    check("avg_pool3d", &pool, one);
    check("adaptive_max_pool2d", &AdaptiveMaxPool2d { output_size: [3, 2] }, one);
    check("adaptive_avg_pool2d", &AdaptiveAvgPool2d { output_size: [3, 2] }, one);
}

/// Two batches while training, then one more in inference.
fn normalise<M: Module>(module: &M, inputs: &[Tensor]) -> Outputs {
    let mut outputs = vec![module.forward(&inputs[0])?, module.forward(&inputs[1])?];
    module.eval();
    outputs.push(module.forward(&inputs[0])?);
    Ok(outputs)
}

#[test]
fn batch_normalisation() -> Result<()> {
    let d = device();
    check("batch_norm1d", &BatchNorm1d::new(3, BatchNormOptions::default(), d)?, normalise);
    let options = BatchNormOptions { momentum: Some(0.3), ..BatchNormOptions::default() };
    check("batch_norm1d_sequence", &BatchNorm1d::new(3, options, d)?, normalise);
    let options = BatchNormOptions { epsilon: 1e-3, ..BatchNormOptions::default() };
    check("batch_norm2d", &BatchNorm2d::new(2, options, d)?, normalise);
    let options = BatchNormOptions { affine: false, ..BatchNormOptions::default() };
    check("batch_norm3d", &BatchNorm3d::new(2, options, d)?, normalise);
    let options = BatchNormOptions { momentum: None, ..BatchNormOptions::default() };
    check("batch_norm1d_cumulative", &BatchNorm1d::new(3, options, d)?, normalise);
    let options = BatchNormOptions { track_running_stats: false, ..BatchNormOptions::default() };
    check("batch_norm1d_untracked", &BatchNorm1d::new(3, options, d)?, normalise);
    Ok(())
}

#[test]
fn other_normalisations() -> Result<()> {
    let d = device();
    check("layer_norm", &LayerNorm::new(&[3, 4], 1e-5, true, d)?, one);
    check("layer_norm_plain", &LayerNorm::new(&[7], 1e-3, false, d)?, one);
    check("rms_norm", &RMSNorm::new(&[6], Some(1e-6), true, d)?, one);
    check("group_norm", &GroupNorm::new(2, 6, 1e-5, true, d)?, one);
    Ok(())
}

/// The output and final states for given initial states.
fn recurrence(layer: &Recurrent, inputs: &[Tensor]) -> Outputs {
    let result = layer.run(&inputs[0], inputs.get(1), inputs.get(2))?;
    Ok([result.output, result.h_n].into_iter().chain(result.c_n).collect())
}

#[test]
fn recurrent_layers() -> Result<()> {
    let (d, g) = (device(), Generator::new(0));
    let deep =
        RecurrentOptions { num_layers: 2, bidirectional: true, batch_first: true, ..Default::default() };
    check("rnn_deep", &RNN::new(3, 4, deep, d, &g)?, |m, x| recurrence(m, x));
    check("gru_deep", &GRU::new(3, 4, deep, d, &g)?, |m, x| recurrence(m, x));
    check("lstm_deep", &LSTM::new(3, 4, deep, d, &g)?, |m, x| recurrence(m, x));
    let plain = RecurrentOptions { bias: false, ..Default::default() };
    check("rnn_no_bias", &RNN::new(3, 4, plain, d, &g)?, one);
    check("rnn_relu", &RNN::new(3, 4, Default::default(), d, &g)?.with_relu(), |m, x| recurrence(m, x));
    check("gru_no_bias", &GRU::new(3, 4, plain, d, &g)?, one);
    check("lstm_no_bias", &LSTM::new(3, 4, plain, d, &g)?, one);
    Ok(())
}

#[test]
fn activations() -> Result<()> {
    check("prelu", &activation::PReLU::new(1, 0.25, device())?, one);
    check("prelu_channels", &activation::PReLU::new(4, 0.25, device())?, one);
    check("celu", &activation::celu(0.7), one);
    check("hardtanh", &activation::hardtanh(-0.5, 0.8), one);
    check("hardshrink", &activation::hardshrink(0.4), one);
    check("softshrink", &activation::softshrink(0.3), one);
    check("threshold", &activation::threshold(0.1, -2.0), one);
    Ok(())
}

/// The masks of the script: `[4, 4]` and `[2, 4]`, true where nothing attends to.
fn masks() -> Result<(Tensor, Tensor)> {
    let hidden: Vec<bool> = (0..16).map(|i| [1, 11, 12].contains(&i)).collect();
    let padding: Vec<bool> = (0..8).map(|i| [3, 6, 7].contains(&i)).collect();
    Ok((Tensor::from_slice(&hidden, &[4, 4], device())?, Tensor::from_slice(&padding, &[2, 4], device())?))
}

#[test]
fn masks_hide_what_pytorchs_hide() -> Result<()> {
    let (d, g) = (device(), Generator::new(0));
    let (hidden, padding) = masks()?;
    let added: Vec<f64> = (0..64).map(|i| f64::from(i).sin()).collect();
    let added = Tensor::from_slice(&added, &[4, 4, 4], d)?;
    let added_padding: Vec<f32> =
        padding.to_vec::<bool>()?.iter().map(|&p| if p { f32::NEG_INFINITY } else { 0.0 }).collect();
    let added_padding = Tensor::from_slice(&added_padding, &[2, 4], d)?;
    for (name, attn_mask, key_padding_mask) in [
        ("attention_hidden", &hidden, None),
        ("attention_padded", &hidden, Some(&padding)),
        ("attention_added", &added, Some(&added_padding)),
        ("attention_mixed", &added, Some(&padding)),
    ] {
        let masks = AttentionMasks { attn_mask: Some(attn_mask), key_padding_mask, is_causal: false };
        check(name, &MultiheadAttention::new(8, 2, 0.0, true, d, &g)?, |m, x| {
            Ok(vec![m.attend(&x[0], &x[0], &x[0], masks)?])
        });
    }
    let options = TransformerOptions { feedforward: 12, dropout: 0.0, ..TransformerOptions::default() };
    let masks =
        AttentionMasks { attn_mask: Some(&hidden), key_padding_mask: Some(&padding), is_causal: false };
    check("encoder_masked", &TransformerEncoderLayer::new(8, 2, options, d, &g)?, |m, x| {
        Ok(vec![m.run(&x[0], masks)?])
    });
    // Masks of other shapes and dtypes.
    let layer = MultiheadAttention::new(8, 2, 0.0, true, d, &g)?;
    let x = Tensor::full(&[2, 4, 8], 1.0, DType::F32, d)?;
    let attend = |attn_mask: Option<&Tensor>, key_padding_mask: Option<&Tensor>| {
        layer.attend(&x, &x, &x, AttentionMasks { attn_mask, key_padding_mask, is_causal: false }).is_err()
    };
    assert!(attend(Some(&padding), None) && attend(None, Some(&hidden)));
    assert!(attend(Some(&hidden.to_dtype(DType::I32)?), None));
    Ok(())
}

#[test]
fn attention_and_transformer() -> Result<()> {
    let (d, g) = (device(), Generator::new(0));
    check("attention", &MultiheadAttention::new(8, 2, 0.0, true, d, &g)?, one);
    let mut mask = [0f32; 15];
    mask[3..5].fill(-2.5);
    let mask = Tensor::from_slice(&mask, &[3, 5], d)?;
    check("attention_cross", &MultiheadAttention::new(8, 4, 0.0, false, d, &g)?, |m, x| {
        Ok(vec![m.attend(
            &x[0],
            &x[1],
            &x[2],
            AttentionMasks { attn_mask: Some(&mask), ..AttentionMasks::default() },
        )?])
    });
    let options = TransformerOptions { feedforward: 12, dropout: 0.0, ..TransformerOptions::default() };
    for (name, gelu, norm_first) in [
        ("encoder_relu_post", false, false),
        ("encoder_gelu_post", true, false),
        ("encoder_relu_pre", false, true),
        ("encoder_gelu_pre", true, true),
    ] {
        let options = TransformerOptions { gelu, norm_first, ..options.clone() };
        check(name, &TransformerEncoderLayer::new(8, 2, options, d, &g)?, one);
    }
    let options = TransformerOptions { is_causal: true, ..options };
    check("encoder_causal", &TransformerEncoderLayer::new(8, 2, options, d, &g)?, one);
    Ok(())
}

/// Normalisations of 16-bit floats do not round `float32` parameters.
#[test]
fn parameters_of_normalisations_keep_their_dtype() -> Result<()> {
    let (d, g) = (device(), Generator::new(8));
    let x = g.randn(&[4, 6, 5], DType::F32, d)?.to_dtype(DType::BF16)?.evaluated()?;
    let [scale, shift] =
        [g.randn(&[6], DType::F32, d)?, g.randn(&[6], DType::F32, d)?].map(|t| t.with_grad());
    let (scale, shift) = (scale?, shift?);
    type Norm<'a> = &'a dyn Fn(&Tensor) -> phynexus::Result<Tensor>;
    let last = |x: &Tensor| x.transpose(1, 2)?.layer_norm(&[6], Some(&scale), Some(&shift), 1e-5);
    let batch = |x: &Tensor| x.batch_norm(None, None, Some(&scale), Some(&shift), true, 1e-5);
    let group = |x: &Tensor| x.group_norm(2, Some(&scale), Some(&shift), 1e-5);
    for norm in [&last as Norm, &batch, &group] {
        let (low, wide) = (norm(&x)?, norm(&x.to_dtype(DType::F32)?)?);
        assert_eq!(low.dtype(), DType::BF16);
        let wide = wide.to_dtype(DType::BF16)?.to_dtype(DType::F32)?;
        assert_eq!(low.to_dtype(DType::F32)?.to_vec::<f32>()?, wide.to_vec::<f32>()?);
        low.to_dtype(DType::F32)?.square()?.sum(&[], false)?.backward()?;
        assert_eq!(scale.grad().map(|gradient| gradient.dtype()), Some(DType::F32));
    }
    Ok(())
}
