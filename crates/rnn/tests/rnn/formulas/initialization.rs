//! How weights begin: each rule's mean, variance and kind of distribution; biases; what is drawn without a rule.

use rnn::{Array2, LayerBuilder, Network, Result, WeightInitialization};

/// The weights of a network that is this layer alone.
fn drawn(layer: LayerBuilder, shape: &[usize]) -> Result<Vec<Array2<f64>>> {
    Network::with_input_shape(shape)?.add_layer(layer).device("cpu").seed(11).build()?.get_weights()
}

/// Which distribution, by its fourth moment over the square of its variance.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Law {
    Uniform,
    Normal,
}

/// Checks thousands of numbers.
fn check(numbers: &Array2<f64>, law: Law, mean: f64, variance: f64, what: &str) {
    let moment =
        |power: i32| numbers.iter().map(|x| (x - mean).powi(power)).sum::<f64>() / numbers.len() as f64;
    let deviation = variance.sqrt();
    assert!(moment(1).abs() < 0.05 * deviation, "{what}: the mean is {} beside {mean}", moment(1));
    assert!(
        (moment(2) / variance - 1.0).abs() < 0.06,
        "{what}: the variance is {}, not {variance}",
        moment(2)
    );
    let peaked = moment(4) / (moment(2) * moment(2));
    let most = numbers.iter().fold(0.0, |most: f64, x| most.max((x - mean).abs()));
    match law {
        Law::Uniform => {
            let bound = (3.0 * variance).sqrt();
            assert!((0.99 * bound..bound * 1.000001).contains(&most), "{what}: up to {most}, not {bound}");
            assert!((peaked - 1.8).abs() < 0.2, "{what}: {peaked}");
        }
        Law::Normal => {
            assert!((3.0 * deviation..6.0 * deviation).contains(&most), "{what}: up to {most}");
            assert!((peaked - 3.0).abs() < 0.4, "{what}: {peaked}");
        }
    }
}

#[test]
fn rules_have_the_variance_of_their_papers() -> Result<()> {
    use WeightInitialization::*;
    // A dense layer; a convolution, where each window's element is an input.
    let layers: [(LayerBuilder, Vec<usize>, f64, f64); 2] = [
        (LayerBuilder::dense(100), vec![200], 200.0, 100.0),
        (LayerBuilder::conv2d(64, (3, 3)), vec![16, 4, 4], 16.0 * 9.0, 64.0 * 9.0),
    ];
    for (layer, shape, inputs, outputs) in layers {
        for (rule, law, variance) in [
            (XavierUniform, Law::Uniform, 2.0 / (inputs + outputs)),
            (XavierNormal, Law::Normal, 2.0 / (inputs + outputs)),
            (HeUniform, Law::Uniform, 2.0 / inputs),
            (HeNormal, Law::Normal, 2.0 / inputs),
            (LeCunUniform, Law::Uniform, 1.0 / inputs),
            (LeCunNormal, Law::Normal, 1.0 / inputs),
        ] {
            let weights = drawn(layer.clone().weight_init(rule), &shape)?;
            check(&weights[0], law, 0.0, variance, &format!("{rule:?} of {shape:?}"));
            assert!(weights[1].iter().all(|bias| *bias == 0.0), "{rule:?}");
        }
        // Without a rule it is the first of these.
        let weights = drawn(layer.clone(), &shape)?;
        check(&weights[0], Law::Uniform, 0.0, 2.0 / (inputs + outputs), "without a rule");
        assert!(weights[1].iter().all(|bias| *bias == 0.0));
    }
    Ok(())
}

#[test]
fn rules_with_numbers_keep_to_them() -> Result<()> {
    use WeightInitialization::*;
    let dense = |rule| -> Result<Array2<f64>> {
        let weights = drawn(LayerBuilder::dense(100).weight_init(rule), &[200])?;
        assert!(weights[1].iter().all(|bias| *bias == 0.0), "{rule:?}");
        Ok(weights[0].clone())
    };
    check(&dense(Uniform { min: -0.2, max: 0.6 })?, Law::Uniform, 0.2, 0.8 * 0.8 / 12.0, "uniform");
    check(&dense(Normal { mean: 0.5, std: 0.1 })?, Law::Normal, 0.5, 0.01, "normal");
    assert!(dense(Zeros)?.iter().all(|weight| *weight == 0.0));
    assert!(dense(Uniform { min: 0.25, max: 0.25 })?.iter().all(|weight| *weight == 0.25));
    assert!(dense(Normal { mean: 1.5, std: 0.0 })?.iter().all(|weight| *weight == 1.5));
    Ok(())
}

#[test]
fn recurrent_layers_and_embeddings_begin_as_pytorchs() -> Result<()> {
    let bounded = |numbers: &Array2<f64>, bound: f64, what: &str| {
        let most = numbers.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        assert!((0.9 * bound..bound * 1.000001).contains(&most), "{what}: up to {most}, not {bound}");
    };
    for layer in [LayerBuilder::rnn(64), LayerBuilder::lstm(64), LayerBuilder::gru(64)] {
        // Biases too.
        for weight in drawn(layer.clone(), &[3, 24])? {
            bounded(&weight, 1.0 / 8.0, &format!("{layer:?}"));
        }
        let weights = drawn(layer.clone().weight_init(WeightInitialization::HeUniform), &[3, 24])?;
        bounded(&weights[0], (6.0f64 / 24.0).sqrt(), &format!("{layer:?} of its input"));
        bounded(&weights[1], (6.0f64 / 64.0).sqrt(), &format!("{layer:?} of its state"));
        assert!(weights[2..].iter().flatten().all(|bias| *bias == 0.0));
    }
    let vectors = drawn(LayerBuilder::embedding(200, 100), &[3])?;
    check(&vectors[0], Law::Normal, 0.0, 1.0, "embedding");
    Ok(())
}
