//! Guarantees of modules besides their numbers: modes, freezing, states, initial values, errors for mismatches.

use std::sync::Arc;

use neurenix::{
    Error, Result,
    nn::{init::Fan, *},
};
use phynexus::{DType, Device, Error as EngineError, Tensor, tensor::Generator};

fn device() -> Device {
    neurenix::register_all();
    Device::default_device().unwrap()
}

fn ones(shape: &[usize]) -> Result<Tensor> {
    Ok(Tensor::full(shape, 1.0, DType::F32, device())?)
}

#[test]
fn dropout_drops_its_share_and_scales_the_rest() -> Result<()> {
    let dropout = Dropout::new(0.25)?.with_generator(Arc::new(Generator::new(3)));
    let x = ones(&[20_000])?;
    let y = dropout.forward(&x)?.to_vec::<f32>()?;
    let dropped = y.iter().filter(|y| **y == 0.0).count() as f64 / y.len() as f64;
    assert!((dropped - 0.25).abs() < 0.015, "{dropped}");
    assert!(y.iter().all(|y| *y == 0.0 || (y - 4.0 / 3.0).abs() < 1e-6));
    assert_ne!(dropout.forward(&x)?.to_vec::<f32>()?, y, "another draw");
    dropout.eval();
    assert!(dropout.forward(&x)?.to_vec::<f32>()?.iter().all(|y| *y == 1.0));
    for probability in [-0.1, 1.5, f64::NAN] {
        assert!(Dropout::new(probability).is_err());
    }
    Ok(())
}

#[test]
fn recurrent_layers_drop_what_one_gives_the_next() -> Result<()> {
    let (d, x) = (device(), Generator::new(5).randn(&[6, 3, 4], DType::F32, device())?.evaluated()?);
    let options = |num_layers, dropout| RecurrentOptions { num_layers, dropout, ..Default::default() };
    let layers = |num_layers, dropout| LSTM::new(4, 5, options(num_layers, dropout), d, &Generator::new(7));
    let values = |net: &LSTM| -> Result<Vec<f32>> { Ok(net.forward(&x)?.to_vec::<f32>()?) };
    // The last layer's output is complete: a single layer drops nothing.
    assert_eq!(values(&layers(1, 0.9)?)?, values(&layers(1, 0.0)?)?);
    let whole = values(&layers(2, 0.0)?)?;
    let net = layers(2, 0.5)?.with_generator(Arc::new(Generator::new(1)));
    let first = values(&net)?;
    assert!(first != whole && first != values(&net)?, "another draw");
    let again = layers(2, 0.5)?.with_generator(Arc::new(Generator::new(1)));
    assert_eq!(values(&again)?, first);
    net.eval();
    assert_eq!(values(&net)?, whole);
    // If everything is dropped, the second layer runs on zeros, whatever the input.
    let nothing = layers(2, 1.0)?;
    let other = nothing.forward(&x.mul_scalar(3)?)?.to_vec::<f32>()?;
    assert_eq!(values(&nothing)?, other);
    assert!(LSTM::new(4, 5, options(2, 1.5), d, &Generator::new(7)).is_err());
    Ok(())
}

#[test]
fn attention_drops_weights() -> Result<()> {
    let (d, g, copies) = (device(), Generator::new(5), 4000);
    let net = MultiheadAttention::new(4, 2, 0.3, true, d, &g)?.with_generator(Arc::new(Generator::new(2)));
    let x = g.randn(&[1, 3, 4], DType::F32, d)?.evaluated()?;
    let many = x.expand(&[copies, 3, 4])?;
    // The output is linear in the weights: its mean over many draws is the output without dropout.
    let drawn = net.forward(&many)?;
    let (mean, deviation) = (drawn.mean(&[0], false)?.to_vec::<f32>()?, drawn.var(&[0], 1.0, false)?);
    let deviation = deviation.to_vec::<f32>()?;
    net.eval();
    let whole = net.forward(&x)?.to_vec::<f32>()?;
    for ((mean, variance), whole) in mean.iter().zip(&deviation).zip(&whole) {
        assert!(*variance > 1e-5, "nothing was dropped");
        let error = 5.0 * (variance / copies as f32).sqrt();
        assert!((mean - whole).abs() < error, "{mean} instead of {whole}, error {error}");
    }
    for probability in [-0.1, 1.5, f64::NAN] {
        assert!(MultiheadAttention::new(4, 2, probability, true, d, &g).is_err());
    }
    Ok(())
}

#[test]
fn networks_describe_freeze_and_convert_themselves() -> Result<()> {
    let g = Generator::new(0);
    let inner = Sequential::new().with(Linear::new(3, 2, true, device(), &g)?);
    let net = Sequential::new()
        .with_named("first", BatchNorm1d::new(3, BatchNormOptions::default(), device())?)
        .with(inner)
        .with(activation::relu());
    assert_eq!(
        net.describe(),
        "Sequential(\n  (first): BatchNorm1d(3, eps=0.00001, momentum=0.1)\n  (1): Sequential(\n    (0): \
         Linear(in_features=3, out_features=2, bias=true)\n  )\n  (2): ReLU()\n)"
    );
    let names: Vec<String> = net.named_state().into_iter().map(|(name, _, _)| name).collect();
    let norm = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"];
    let expected = norm.iter().map(|n| format!("first.{n}")).chain(["1.0.weight".into(), "1.0.bias".into()]);
    assert_eq!(names, expected.collect::<Vec<_>>());
    assert_eq!((net.parameters().len(), net.parameter_count()), (4, 3 + 3 + 6 + 2));

    net.set_trainable(false);
    assert!(net.parameters().is_empty());
    assert!(!net.forward(&ones(&[2, 3])?)?.requires_grad());
    net.set_trainable(true);
    assert_eq!(net.parameters().len(), 4);
    assert!(net.forward(&ones(&[2, 3])?)?.requires_grad());

    net.to_dtype(DType::F64)?;
    let state = net.state();
    assert_eq!(state["1.0.weight"].dtype(), DType::F64);
    assert_eq!(state["first.num_batches_tracked"].dtype(), DType::I64);
    assert!(matches!(net.to_dtype(DType::I32), Err(Error::Engine(EngineError::DType { .. }))));
    Ok(())
}

#[test]
fn states_that_do_not_fit_change_nothing() -> Result<()> {
    let g = Generator::new(0);
    let net = Linear::new(3, 2, true, device(), &g)?;
    let before = net.weight().tensor().to_vec::<f32>()?;
    let mut state = net.state();
    state.insert("weight".into(), ones(&[2, 3])?);
    state.insert("bias".into(), ones(&[3])?);
    state.insert("extra".into(), ones(&[1])?);
    let text = net.load_state(&state).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(text.contains("bias has shape [3]") && text.contains("extra is not part"), "{text}");
    assert_eq!(net.weight().tensor().to_vec::<f32>()?, before);
    assert!(net.weight().set(ones(&[3, 2])?).is_err());
    Ok(())
}

#[test]
fn initial_values_have_their_spread() -> Result<()> {
    let g = Generator::new(1);
    let spread = |x: Tensor| -> Result<(f64, f64)> {
        let values = x.to_vec::<f32>()?;
        let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>();
        Ok((mean, (variance / values.len() as f64).sqrt()))
    };
    // A convolution's weight: 20 * 3 * 3 inputs and 30 * 3 * 3 outputs.
    let shape = [30, 20, 3, 3];
    let close = |(mean, std): (f64, f64), expected: f64| {
        assert!(
            mean.abs() < 0.05 * expected && (std / expected - 1.0).abs() < 0.05,
            "{mean} {std} {expected}"
        );
    };
    let (d, f) = (device(), DType::F32);
    close(spread(init::kaiming_normal(&shape, Fan::In, f, d, &g)?)?, (2.0f64 / 180.0).sqrt());
    close(spread(init::kaiming_uniform(&shape, Fan::In, f, d, &g)?)?, (2.0f64 / 180.0).sqrt());
    close(spread(init::kaiming_normal(&shape, Fan::Out, f, d, &g)?)?, (2.0f64 / 270.0).sqrt());
    close(spread(init::kaiming_uniform(&shape, Fan::Out, f, d, &g)?)?, (2.0f64 / 270.0).sqrt());
    close(spread(init::xavier_normal(&shape, 1.5, f, d, &g)?)?, 1.5 * (2.0f64 / 450.0).sqrt());
    close(spread(init::xavier_uniform(&shape, 1.0, f, d, &g)?)?, (2.0f64 / 450.0).sqrt());
    // PyTorch's default: uniform within 1 / sqrt(inputs), of standard deviation 1 / sqrt(3 inputs).
    let linear = Linear::new(100, 80, true, d, &g)?;
    close(spread(linear.weight().tensor())?, (1.0f64 / 300.0).sqrt());
    let again = Linear::new(100, 80, true, d, &Generator::new(7))?;
    let same = Linear::new(100, 80, true, d, &Generator::new(7))?;
    assert_eq!(again.weight().tensor().to_vec::<f32>()?, same.weight().tensor().to_vec::<f32>()?);
    Ok(())
}

#[test]
fn truncated_normals_keep_their_shape_within_the_bounds() -> Result<()> {
    let (d, g) = (device(), Generator::new(1));
    let draw = |(mean, std), bounds| init::trunc_normal(&[100, 200], (mean, std), bounds, DType::F64, d, &g);
    let values = draw((1.0, 0.5), (0.5, 2.0))?.to_vec::<f64>()?;
    assert!(values.iter().all(|x| (0.5..=2.0).contains(x)));
    // A standard normal truncated to -1..2 has the mean (phi(-1) - phi(2)) / Z with Z = Phi(2) - Phi(-1) = 0.8185946.
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let expected = 1.0 + 0.5 * (0.241_970_7 - 0.053_990_97) / 0.818_594_6;
    assert!((mean - expected).abs() < 0.01, "{mean} is not {expected}");
    assert!(init::trunc_normal(&[0], (0.0, 1.0), (-2.0, 2.0), DType::F32, d, &g)?.is_empty());
    for (normal, bounds) in [
        ((0.0, 1.0), (1.0, 2.0)),
        ((0.0, 1.0), (-0.01, 0.01)),
        ((0.0, 0.0), (-1.0, 1.0)),
        ((0.0, 1.0), (-1.0, f64::NAN)),
        ((0.0, f64::INFINITY), (-1.0, 1.0)),
    ] {
        assert!(draw(normal, bounds).is_err(), "{normal:?} {bounds:?}");
    }
    Ok(())
}

#[test]
fn orthogonal_matrices_have_orthonormal_rows_or_columns() -> Result<()> {
    let (d, g) = (device(), Generator::new(1));
    for shape in [vec![5, 5], vec![4, 9], vec![9, 4], vec![6, 2, 2], vec![3, 2, 4], vec![1, 1]] {
        let (rows, columns) = (shape[0], shape[1..].iter().product::<usize>());
        let matrix = init::orthogonal(&shape, 2.0, DType::F64, d, &g)?;
        assert_eq!(matrix.shape(), shape);
        let matrix = matrix.reshape(&[rows, columns])?;
        let transposed = matrix.t()?.contiguous()?;
        let (a, b) = if rows <= columns { (&matrix, &transposed) } else { (&transposed, &matrix) };
        let product = a.matmul(b)?;
        let size = rows.min(columns);
        assert_eq!(product.shape(), [size, size]);
        for (i, x) in product.to_vec::<f64>()?.into_iter().enumerate() {
            let expected = if i % (size + 1) == 0 { 4.0 } else { 0.0 };
            assert!((x - expected).abs() < 1e-13, "{shape:?}: {x} is not {expected}");
        }
    }
    assert!(init::orthogonal(&[3], 1.0, DType::F32, d, &g).is_err());
    assert!(init::orthogonal(&[0, 3], 1.0, DType::F32, d, &g)?.is_empty());
    Ok(())
}

#[test]
fn linear_takes_its_features_from_the_last_dimension_or_the_last_ones() -> Result<()> {
    let (d, g) = (device(), Generator::new(0));
    let shape = |features: usize, input: &[usize]| -> Option<Vec<usize>> {
        let layer = Linear::new(features, 2, true, d, &g).unwrap();
        let output = layer.forward(&ones(input).unwrap()).ok()?;
        assert_eq!(output.to_vec::<f32>().unwrap().len(), output.len());
        Some(output.shape().to_vec())
    };
    // With one input feature, the last dimension must be 1.
    assert_eq!(shape(1, &[5, 1]), Some(vec![5, 2]));
    assert_eq!(shape(1, &[5, 3, 1]), Some(vec![5, 3, 2]));
    assert_eq!(shape(1, &[1]), Some(vec![2]));
    assert_eq!((shape(1, &[5]), shape(1, &[5, 3])), (None, None));
    // The last dimension is tried first, then trailing dimensions together, but never the batch.
    assert_eq!(shape(6, &[6]), Some(vec![2]));
    assert_eq!(shape(6, &[1, 1, 6]), Some(vec![1, 1, 2]));
    assert_eq!(shape(6, &[5, 2, 3]), Some(vec![5, 2]));
    assert_eq!(shape(6, &[5, 4, 2, 3]), Some(vec![5, 4, 2]));
    assert_eq!(shape(6, &[5, 6, 1, 1]), Some(vec![5, 2]));
    assert_eq!((shape(6, &[2, 3]), shape(6, &[5, 4, 3]), shape(6, &[])), (None, None, None));
    assert_eq!(shape(6, &[0, 2, 3]), Some(vec![0, 2]));
    assert_eq!(shape(6, &[5, 0, 3]), None);
    Ok(())
}

#[test]
fn attention_begins_without_biases() -> Result<()> {
    let attention = MultiheadAttention::new(8, 2, 0.0, true, device(), &Generator::new(0))?;
    for (name, tensor) in attention.state() {
        let zero = tensor.to_vec::<f32>()?.iter().all(|&x| x == 0.0);
        assert_eq!(zero, name.ends_with("bias"), "{name}");
    }
    Ok(())
}

#[test]
fn names_of_parts_must_differ() -> Result<()> {
    let g = Generator::new(0);
    let linear = || Linear::new(3, 3, true, device(), &g);
    let text = |net: Sequential| -> Result<String> {
        Ok(net.forward(&ones(&[2, 3])?).err().map(|e| e.to_string()).unwrap_or_default())
    };
    let twice = Sequential::new().with_named("a", linear()?).with(linear()?).with_named("a", linear()?);
    assert!(text(twice)?.contains("\"a\" is used as the name of two modules"));
    // Positions are names too.
    assert!(
        text(Sequential::new().with_named("1", linear()?).with(linear()?))?
            .contains("is used as the name of two modules")
    );
    assert!(text(Sequential::new().with_named("a.b", linear()?))?.contains("contain a dot"));
    assert!(text(Sequential::new().with_named("", linear()?))?.contains("must not be empty"));
    assert_eq!(text(Sequential::new().with_named("a", linear()?).with(linear()?))?, "");
    Ok(())
}

#[test]
fn inputs_that_do_not_fit_are_typed_errors() -> Result<()> {
    let (d, g) = (device(), Generator::new(0));
    let shape = |result: Result<Tensor>| {
        let error = result.map(drop).expect_err("the input does not fit");
        assert!(matches!(error, Error::Engine(EngineError::Shape { .. })), "{error}");
    };
    shape(Linear::new(3, 2, true, d, &g)?.forward(&ones(&[4, 5])?));
    shape(Linear::new(3, 2, true, d, &g)?.forward(&ones(&[])?));
    shape(Conv2d::new(3, 2, [3, 3], ConvOptions::default(), d, &g)?.forward(&ones(&[1, 4, 5, 5])?));
    shape(BatchNorm2d::new(3, BatchNormOptions::default(), d)?.forward(&ones(&[2, 3])?));
    shape(BatchNorm1d::new(3, BatchNormOptions::default(), d)?.forward(&ones(&[1, 3])?));
    shape(LayerNorm::new(&[4], 1e-5, true, d)?.forward(&ones(&[2, 3])?));
    shape(MultiheadAttention::new(4, 2, 0.0, true, d, &g)?.forward(&ones(&[2, 4])?));
    shape(LSTM::new(3, 2, RecurrentOptions::default(), d, &g)?.forward(&ones(&[5, 3])?));
    let lstm = LSTM::new(3, 2, RecurrentOptions::default(), d, &g)?;
    let (x, fitting) = (ones(&[5, 4, 3])?, ones(&[1, 4, 2])?);
    for wrong in [ones(&[4, 4, 2])?, ones(&[1, 3, 2])?, ones(&[1, 4, 3])?, ones(&[4, 2])?] {
        shape(lstm.run(&x, Some(&wrong), Some(&fitting)).map(|r| r.output));
        shape(lstm.run(&x, Some(&fitting), Some(&wrong)).map(|r| r.output));
    }
    lstm.run(&x, Some(&fitting), Some(&fitting))?.output.evaluated()?;
    for index in [5, 9, -6, i64::MIN, i64::MAX] {
        assert!(Embedding::new(5, 3, Some(index), d, &g).is_err(), "{index}");
    }
    let zero_row = Embedding::new(5, 3, Some(-5), d, &g)?.weight().tensor().narrow(0, 0, 1)?;
    assert!(zero_row.to_vec::<f32>()?.iter().all(|&x| x == 0.0));
    assert!(activation::PReLU::new(0, 0.25, d).is_err());
    assert!(Embedding::new(3, 2, None, d, &g)?.forward(&ones(&[2])?).is_err());
    assert!(Linear::new(0, 2, true, d, &g).is_err());
    assert!(Conv1d::new(3, 4, [1], ConvOptions { groups: 2, ..ConvOptions::default() }, d, &g).is_err());
    assert!(GroupNorm::new(2, 5, 1e-5, true, d).is_err());
    assert!(MultiheadAttention::new(5, 2, 0.0, true, d, &g).is_err());
    // A batch without rows gives a result without rows.
    let none = Linear::new(3, 2, true, d, &g)?.forward(&ones(&[0, 3])?)?;
    assert!(none.shape() == [0, 2] && none.to_vec::<f32>()?.is_empty());
    Ok(())
}

#[test]
fn a_projected_lstm_is_an_lstm_whose_state_is_projected() -> Result<()> {
    let (d, g) = (device(), Generator::new(5));
    let options = RecurrentOptions { proj_size: 2, batch_first: true, ..Default::default() };
    let lstm = LSTM::new(3, 4, options, d, &g)?;
    let names: Vec<String> = lstm.state().into_keys().collect();
    assert_eq!(names, ["bias_hh_l0", "bias_ih_l0", "weight_hh_l0", "weight_hr_l0", "weight_ih_l0"]);
    // Step by step, the state of each is the projection of what the units give.
    let (x, h_0, c_0) = (g.randn(&[2, 3, 3], DType::F32, d)?, ones(&[1, 2, 2])?, ones(&[1, 2, 4])?);
    let whole = lstm.run(&x, Some(&h_0), Some(&c_0))?;
    let (mut h, mut c) = (h_0, c_0);
    for step in 0..3 {
        let one = lstm.run(&x.narrow(1, step, 1)?, Some(&h), Some(&c))?;
        let (now, expected) =
            (one.output.to_vec::<f32>()?, whole.output.narrow(1, step, 1)?.to_vec::<f32>()?);
        assert!(now.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6), "{now:?}, {expected:?}");
        (h, c) = (one.h_n, one.c_n.unwrap());
    }
    assert_eq!((h.shape(), c.shape()), (&[1, 2, 2][..], &[1, 2, 4][..]));
    assert!(GRU::new(3, 4, options, d, &g).is_err());
    assert!(LSTM::new(3, 2, options, d, &g).is_err());
    Ok(())
}
