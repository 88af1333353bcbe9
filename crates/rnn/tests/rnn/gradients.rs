//! Gradients of every layer, activation and loss against finite differences, in `float64`.

use rnn::{
    ActivationFunction, Array2, LayerBuilder, LossConfig, LossFunction, Network, NetworkBuilder,
    ParametricActivation, Precision, Result,
};

use super::formulas::numbers;

fn exact(builder: NetworkBuilder) -> Network {
    builder.precision(Precision::Float64).device("cpu").seed(7).build().unwrap()
}

/// Compares the derivative of every weight (every few of many) with central differences.
fn check(what: &str, mut network: Network, data: &Array2<f64>, targets: &Array2<f64>) {
    let (_, gradients) = network.loss_and_gradients(data, targets).unwrap();
    let weights = network.get_weights().unwrap();
    assert_eq!(gradients.len(), weights.len(), "{what}");
    let step = 1e-5;
    let mut largest = 0f64;
    for (place, gradient) in gradients.iter().enumerate() {
        let every = gradient.len().div_ceil(12);
        for (index, found) in gradient.indexed_iter().step_by(every) {
            let mut at = |by: f64| {
                let mut moved = weights.clone();
                moved[place][index] += by;
                network.set_weights(&moved).unwrap();
                network.loss_and_gradients(data, targets).unwrap().0
            };
            let expected = (at(step) - at(-step)) / (2.0 * step);
            let close = (found - expected).abs() <= 1e-7 + 1e-5 * expected.abs();
            assert!(close, "{what}: weight {place} at {index:?}: {found} is not {expected}");
            largest = largest.max(found.abs());
        }
    }
    assert!(largest > 1e-6, "{what}: all gradients are 0");
}

#[test]
fn every_activation() {
    let (data, targets) = (numbers(5, 4, 1), numbers(5, 3, 2));
    for activation in ActivationFunction::ALL {
        let network = exact(
            Network::with_input_size(4)
                .unwrap()
                .add_layer(LayerBuilder::dense(6).activation(activation))
                .add_layer(LayerBuilder::dense(3).activation(ActivationFunction::Linear)),
        );
        check(activation.name(), network, &data, &targets);
    }
}

#[test]
fn every_activation_by_itself() -> Result<()> {
    let x = numbers(4, 5, 9).mapv(|x| 4.0 * x + 0.013);
    for activation in ActivationFunction::ALL {
        let derivative = activation.derivative_matrix(&x)?;
        for (index, found) in derivative.indexed_iter() {
            let at = |by: f64| -> Result<f64> {
                let mut moved = x.clone();
                moved[index] += by;
                Ok(activation.apply_matrix(&moved)?[index])
            };
            let expected = (at(1e-6)? - at(-1e-6)?) / 2e-6;
            assert!((found - expected).abs() < 1e-6, "{}: {found} is not {expected}", activation.name());
        }
        let row = x.row(0).to_owned();
        assert_eq!(activation.apply_vector(&row)?, activation.apply_matrix(&x)?.row(0));
        assert_eq!(activation.derivative_vector(&row)?, derivative.row(0));
    }
    Ok(())
}

#[test]
fn activations_of_numbers_are_those_of_vectors() -> Result<()> {
    let x = ndarray::arr1(&[-2.3, -0.4, 0.7, 3.1]);
    for activation in ActivationFunction::ALL.into_iter().filter(|a| *a != ActivationFunction::Softmax) {
        let (values, derivatives) = (activation.apply_vector(&x)?, activation.derivative_vector(&x)?);
        for (i, x) in x.iter().enumerate() {
            assert_eq!(
                (activation.apply_scalar(*x), activation.derivative_scalar(*x)),
                (values[i], derivatives[i])
            );
        }
    }
    assert_eq!(ActivationFunction::Softmax.apply_scalar(3.0), 1.0);
    assert_eq!(ActivationFunction::Tanh.apply_matrix(&Array2::zeros((0, 3)))?.dim(), (0, 3));
    for (activation, parameter) in [
        (ParametricActivation::prelu(0.3), true),
        (ParametricActivation::elu(1.7), true),
        (ParametricActivation::new(ActivationFunction::LeakyReLU, vec![0.2]), true),
        (ParametricActivation::new(ActivationFunction::Tanh, Vec::new()), false),
    ] {
        for x in [-2.3, -0.4, 0.7] {
            let derivative = (activation.apply(x + 1e-6) - activation.apply(x - 1e-6)) / 2e-6;
            assert!((activation.derivative(x) - derivative).abs() < 1e-8, "{activation:?} at {x}");
            let found = activation.parameter_derivative(x);
            assert_eq!(found.len(), usize::from(parameter));
            for found in found {
                let at = |by: f64| {
                    let parameters = vec![activation.parameters[0] + by];
                    ParametricActivation::new(activation.function_type, parameters).apply(x)
                };
                assert!((found - (at(1e-6) - at(-1e-6)) / 2e-6).abs() < 1e-8, "{activation:?} at {x}");
            }
        }
    }
    let usual = ParametricActivation::new(ActivationFunction::ELU, Vec::new());
    assert_eq!(usual.apply(-0.4), ActivationFunction::ELU.apply_scalar(-0.4));
    Ok(())
}

#[test]
fn values_stay_in_the_range_and_come_to_its_ends() -> Result<()> {
    // Softmax is that of two numbers, of which one is 0.
    let x = Array2::from_shape_fn((601, 2), |(i, j)| if j == 0 { 0.1 * i as f64 - 30.0 } else { 0.0 });
    for activation in ActivationFunction::ALL {
        let y = activation.apply_matrix(&x)?;
        let least = y.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = y.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = activation.recommended_range();
        let name = activation.name();
        assert!(low - 1e-12 <= least && greatest <= high + 1e-12, "{name}: {least} to {greatest}");
        assert!(low.is_infinite() || least < low + 1e-3, "{name}: {least} is not {low}");
        assert!(high.is_infinite() || greatest > high - 1e-3, "{name}: {greatest} is not {high}");
    }
    Ok(())
}

/// Predictions and targets that a loss takes.
fn suitable(loss: LossFunction) -> (Array2<f64>, Array2<f64>) {
    let (p, t) = (numbers(6, 3, 11), numbers(6, 3, 12));
    let probabilities = |x: &Array2<f64>| {
        let mut y = x.mapv(|x| (2.0 * x).exp());
        y.rows_mut().into_iter().for_each(|mut row| row /= row.sum());
        y
    };
    match loss {
        LossFunction::SparseCategoricalCrossEntropy => {
            let classes = Array2::from_shape_fn((6, 1), |(row, _)| (row % 3) as f64);
            (probabilities(&p), classes)
        }
        LossFunction::BinaryCrossEntropy
        | LossFunction::CategoricalCrossEntropy
        | LossFunction::KLDivergence => (probabilities(&p), probabilities(&t)),
        LossFunction::HingeLoss | LossFunction::SquaredHingeLoss => (p, t.mapv(f64::signum)),
        LossFunction::PoissonLoss => (p.mapv(|x| x + 1.5), t.mapv(|x| (3.0 * x.abs()).round())),
        _ => (p.mapv(|x| 2.0 * x), t),
    }
}

#[test]
fn every_loss_by_itself() -> Result<()> {
    for loss in LossFunction::ALL {
        let (predictions, targets) = suitable(loss);
        let gradient = loss.gradient(&predictions, &targets)?;
        let mut largest = 0f64;
        for (index, found) in gradient.indexed_iter() {
            let at = |by: f64| -> Result<f64> {
                let mut moved = predictions.clone();
                moved[index] += by;
                loss.compute(&moved, &targets)
            };
            let expected = (at(1e-6)? - at(-1e-6)?) / 2e-6;
            // Categorical losses take a row for probabilities: they divide by its sum.
            assert!((found - expected).abs() < 1e-6, "{}: {found} is not {expected}", loss.name());
            largest = largest.max(found.abs());
        }
        assert!(largest > 1e-3, "{}: all gradients are 0", loss.name());
    }
    Ok(())
}

/// The losses by their formulas, in plain Rust.
#[test]
fn every_loss_by_its_formula() -> Result<()> {
    for loss in LossFunction::ALL {
        let (p, t) = suitable(loss);
        let mean = |f: &dyn Fn(f64, f64) -> f64| {
            p.iter().zip(&t).map(|(p, t)| f(*p, *t)).sum::<f64>() / p.len() as f64
        };
        let rows = || p.rows().into_iter().zip(t.rows());
        let expected = match loss {
            LossFunction::MeanSquaredError => mean(&|p, t| (p - t).powi(2)),
            LossFunction::MeanAbsoluteError => mean(&|p, t| (p - t).abs()),
            LossFunction::BinaryCrossEntropy => mean(&|p, t| -(t * p.ln() + (1.0 - t) * (1.0 - p).ln())),
            LossFunction::CategoricalCrossEntropy => {
                rows().map(|(p, t)| -p.iter().zip(t).map(|(p, t)| t * p.ln()).sum::<f64>()).sum::<f64>() / 6.0
            }
            LossFunction::SparseCategoricalCrossEntropy => {
                rows().map(|(p, t)| -p[t[0] as usize].ln()).sum::<f64>() / 6.0
            }
            LossFunction::HuberLoss => mean(&|p, t| match (p - t).abs() {
                d if d < 1.0 => 0.5 * d * d,
                d => d - 0.5,
            }),
            LossFunction::HingeLoss => mean(&|p, t| (1.0 - p * t).max(0.0)),
            LossFunction::SquaredHingeLoss => mean(&|p, t| (1.0 - p * t).max(0.0).powi(2)),
            LossFunction::KLDivergence => mean(&|p, t| t * (t / p).ln()),
            LossFunction::PoissonLoss => mean(&|p, t| p - t * p.ln()),
            LossFunction::CosineSimilarityLoss => {
                let cosine = |(p, t): (ndarray::ArrayView1<'_, f64>, ndarray::ArrayView1<'_, f64>)| {
                    1.0 - p.dot(&t) / (p.dot(&p).sqrt() * t.dot(&t).sqrt())
                };
                rows().map(cosine).sum::<f64>() / 6.0
            }
            LossFunction::LogCoshLoss => mean(&|p, t| (p - t).cosh().ln()),
            LossFunction::QuantileLoss => mean(&|p, t| 0.5 * (t - p).abs()),
            _ => unreachable!("{loss:?}"),
        };
        let found = loss.compute(&p, &t)?;
        assert!((found - expected).abs() < 1e-6, "{}: {found} is not {expected}", loss.name());
    }
    let (p, t) = suitable(LossFunction::HuberLoss);
    let quantile = LossConfig::new(LossFunction::QuantileLoss).with_quantile(0.9)?.compute(&p, &t)?;
    let expected =
        p.iter().zip(&t).map(|(p, t)| if t > p { 0.9 * (t - p) } else { 0.1 * (p - t) }).sum::<f64>();
    assert!((quantile - expected / p.len() as f64).abs() < 1e-12);
    Ok(())
}

#[test]
fn every_loss_behind_a_network() {
    use ActivationFunction::{Linear, Sigmoid, Softmax, Softplus};
    let data = numbers(6, 4, 21);
    for loss in LossFunction::ALL {
        let last: &[ActivationFunction] = match loss {
            LossFunction::CategoricalCrossEntropy
            | LossFunction::SparseCategoricalCrossEntropy
            | LossFunction::KLDivergence => &[Softmax],
            LossFunction::BinaryCrossEntropy => &[Sigmoid, Softmax],
            LossFunction::PoissonLoss => &[Softplus],
            _ => &[Linear],
        };
        for &last in last {
            let (_, targets) = suitable(loss);
            let network = exact(
                Network::with_input_size(4)
                    .unwrap()
                    .add_layer(LayerBuilder::dense(5).activation(ActivationFunction::Tanh))
                    .add_layer(LayerBuilder::dense(3).activation(last))
                    .loss(loss),
            );
            check(&format!("{} behind {}", loss.name(), last.name()), network, &data, &targets);
        }
    }
}

#[test]
fn every_layer() -> Result<()> {
    let tanh = ActivationFunction::Tanh;
    let linear = |units| LayerBuilder::dense(units).activation(ActivationFunction::Linear);
    let cases: Vec<(&str, Vec<usize>, Vec<LayerBuilder>)> = vec![
        ("dense", vec![5], vec![LayerBuilder::dense(4).activation(tanh)]),
        ("dense of steps", vec![3, 4], vec![LayerBuilder::dense(4).activation(tanh)]),
        ("dense of images", vec![1, 2, 3], vec![LayerBuilder::dense(4).activation(tanh)]),
        ("without bias", vec![5], vec![LayerBuilder::dense(4).use_bias(false).activation(tanh)]),
        ("dropout", vec![5], vec![linear(4), LayerBuilder::dropout(0.5)?]),
        ("conv2d", vec![2, 6, 5], vec![LayerBuilder::conv2d(3, (3, 2)).padding(1).activation(tanh)]),
        ("conv2d with steps", vec![2, 7, 7], vec![LayerBuilder::conv2d(4, (3, 3)).stride(2).groups(2)]),
        ("conv2d dilated", vec![1, 7, 7], vec![LayerBuilder::conv2d(2, (3, 3)).dilation(2)]),
        ("conv3d", vec![1, 4, 4, 3], vec![LayerBuilder::conv3d(2, (2, 2, 2)).activation(tanh)]),
        (
            "max_pool2d",
            vec![2, 4, 4],
            vec![LayerBuilder::conv2d(2, (1, 1)), LayerBuilder::max_pool2d((2, 2))],
        ),
        (
            "avg_pool2d",
            vec![2, 4, 4],
            vec![LayerBuilder::conv2d(2, (1, 1)), LayerBuilder::avg_pool2d((2, 2))],
        ),
        (
            "max_pool3d",
            vec![1, 4, 4, 2],
            vec![LayerBuilder::conv3d(2, (1, 1, 1)), LayerBuilder::max_pool3d((2, 2, 2))],
        ),
        (
            "avg_pool3d",
            vec![1, 4, 4, 2],
            vec![LayerBuilder::conv3d(2, (1, 1, 1)), LayerBuilder::avg_pool3d((2, 2, 1))],
        ),
        ("batch_norm", vec![4], vec![linear(5), LayerBuilder::batch_norm()]),
        (
            "batch_norm of images",
            vec![2, 3, 3],
            vec![LayerBuilder::conv2d(3, (2, 2)), LayerBuilder::batch_norm()],
        ),
        ("batch_norm of steps", vec![3, 4], vec![LayerBuilder::batch_norm()]),
        ("layer_norm", vec![4], vec![linear(5), LayerBuilder::layer_norm()]),
        ("rnn", vec![4, 3], vec![LayerBuilder::rnn(5)]),
        ("lstm", vec![4, 3], vec![LayerBuilder::lstm(4)]),
        ("lstm both ways", vec![3, 2], vec![LayerBuilder::lstm(3).bidirectional().layers(2)]),
        ("gru", vec![4, 3], vec![LayerBuilder::gru(4).return_sequences()]),
        ("attention", vec![4, 6], vec![LayerBuilder::attention(2)]),
        ("attention backwards", vec![4, 6], vec![LayerBuilder::attention(3).causal()]),
        ("flatten", vec![2, 3], vec![linear(4), LayerBuilder::flatten()]),
        ("reshape", vec![6], vec![linear(6), LayerBuilder::reshape(&[2, 3]), LayerBuilder::rnn(3)]),
        (
            "residual",
            vec![5],
            vec![LayerBuilder::residual(vec![LayerBuilder::dense(5).activation(tanh), linear(5)])],
        ),
        ("activation", vec![5], vec![linear(4), LayerBuilder::activation_layer(tanh)]),
    ];
    for (what, shape, layers) in cases {
        let builder = Network::with_input_shape(&shape)?;
        let builder = layers.into_iter().fold(builder, NetworkBuilder::add_layer).add_layer(linear(2));
        let data = numbers(3, shape.iter().product(), 31);
        let network = exact(builder);
        let targets = numbers(3, network.output_dim(), 32);
        check(what, network, &data, &targets);
    }
    Ok(())
}

#[test]
fn embeddings() -> Result<()> {
    let network = exact(
        Network::with_input_shape(&[3])?
            .add_layer(LayerBuilder::embedding(5, 4))
            .add_layer(LayerBuilder::lstm(3))
            .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Linear)),
    );
    let words = Array2::from_shape_vec((2, 3), vec![0., 4., 2., 2., 2., 1.]).unwrap();
    check("embedding", network, &words, &numbers(2, 2, 5));
    Ok(())
}

#[test]
fn steps_that_are_classes() -> Result<()> {
    let build = |loss: LossFunction| -> Result<Network> {
        Ok(exact(
            Network::with_input_shape(&[3, 2])?
                .add_layer(LayerBuilder::rnn(4).return_sequences())
                .add_layer(LayerBuilder::dense(3).activation(ActivationFunction::Softmax))
                .loss(loss),
        ))
    };
    let data = numbers(4, 6, 41);
    let classes = Array2::from_shape_fn((4, 3), |(row, step)| ((2 * row + step) % 3) as f64);
    let one_hot = Array2::from_shape_fn((4, 9), |(row, column)| {
        f64::from(u8::from(classes[[row, column / 3]] == (column % 3) as f64))
    });
    check("classes of steps", build(LossFunction::SparseCategoricalCrossEntropy)?, &data, &classes);
    check("one-hot steps", build(LossFunction::CategoricalCrossEntropy)?, &data, &one_hot);
    Ok(())
}
