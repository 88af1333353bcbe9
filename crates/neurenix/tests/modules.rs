//! What modules promise besides their numbers: modes, freezing, states, initial values, errors for what does not fit.

use std::sync::Arc;

use neurenix::{Error, Result, nn::*};
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
    assert!(text.contains("bias has shape [3]") && text.contains("extra is not a part"), "{text}");
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
    close(spread(init::kaiming_normal(&shape, f, d, &g)?)?, (2.0f64 / 180.0).sqrt());
    close(spread(init::kaiming_uniform(&shape, f, d, &g)?)?, (2.0f64 / 180.0).sqrt());
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
    assert!(Embedding::new(3, 2, None, d, &g)?.forward(&ones(&[2])?).is_err());
    assert!(Linear::new(0, 2, true, d, &g).is_err());
    assert!(Conv1d::new(3, 4, [1], ConvOptions { groups: 2, ..ConvOptions::default() }, d, &g).is_err());
    assert!(GroupNorm::new(2, 5, 1e-5, true, d).is_err());
    assert!(MultiheadAttention::new(5, 2, 0.0, true, d, &g).is_err());
    // A batch of no rows is a result of no rows.
    let none = Linear::new(3, 2, true, d, &g)?.forward(&ones(&[0, 3])?)?;
    assert!(none.shape() == [0, 2] && none.to_vec::<f32>()?.is_empty());
    Ok(())
}
