//! What makes no sense is an error that says what would; never a panic.

use rnn::{
    ActivationFunction, Array2, DistributedTraining, GpuManager, GpuTensor, LayerBuilder,
    LearningRateSchedule, LearningRateScheduler, LossConfig, LossFunction, Network, NetworkBuilder,
    Optimizer, OptimizerConfig, OptimizerType, Precision, Result, TrainingConfig, WeightInitialization,
    gpu::{GpuMemoryHandle, GpuOps, GpuStreamHandle, KernelManager},
};

/// The error's words.
pub(crate) fn words<T>(result: Result<T>) -> String {
    let message = result.map(drop).expect_err("it must be refused").to_string();
    assert!(message.len() > 15, "{message}");
    message
}

fn one(layer: LayerBuilder, shape: &[usize]) -> Result<Network> {
    Network::with_input_shape(shape)?.add_layer(layer).device("cpu").build()
}

fn small() -> Result<Network> {
    let linear = LayerBuilder::dense(2).activation(ActivationFunction::Linear);
    Network::with_input_size(3)?.add_layer(linear).device("cpu").seed(1).build()
}

#[test]
fn networks_that_cannot_be() -> Result<()> {
    assert!(words(Network::with_input_size(0)).contains("at least 1"));
    assert!(words(Network::with_input_size(usize::MAX)).contains("room for a row"));
    assert!(words(Network::builder().add_layer(LayerBuilder::dense(3)).build()).contains("with_input_size"));
    assert!(words(Network::with_input_size(3)?.build()).contains("add_layer"));
    let huge = usize::MAX / 2;
    let cases: Vec<(LayerBuilder, Vec<usize>)> = vec![
        (LayerBuilder::dense(0), vec![3]),
        (LayerBuilder::dense(huge), vec![3]),
        (LayerBuilder::conv2d(2, (3, 3)), vec![3]),
        (LayerBuilder::conv2d(2, (3, 3)), vec![1, 2, 2]),
        (LayerBuilder::conv2d(2, (0, 1)), vec![1, 2, 2]),
        (LayerBuilder::conv2d(0, (1, 1)), vec![1, 2, 2]),
        (LayerBuilder::conv2d(2, (1, 1)).stride(0), vec![1, 2, 2]),
        (LayerBuilder::conv2d(2, (1, 1)).groups(3), vec![1, 2, 2]),
        (LayerBuilder::conv2d(2, (1, 1)).groups(0), vec![1, 2, 2]),
        (LayerBuilder::conv2d(2, (2, 2)).dilation(huge), vec![1, 2, 2]),
        (LayerBuilder::conv2d(2, (1, 1)).padding(huge), vec![1, 2, 2]),
        (LayerBuilder::conv3d(2, (1, 1, 1)), vec![1, 2, 2]),
        (LayerBuilder::max_pool2d((0, 2)), vec![1, 2, 2]),
        (LayerBuilder::max_pool2d((2, 2)).padding(2), vec![1, 2, 2]),
        (LayerBuilder::avg_pool3d((2, 2, 2)), vec![4]),
        (LayerBuilder::rnn(0), vec![2, 3]),
        (LayerBuilder::lstm(huge).bidirectional(), vec![2, 3]),
        (LayerBuilder::lstm(3), vec![6]),
        (LayerBuilder::gru(3).layers(0), vec![2, 3]),
        (LayerBuilder::attention(0), vec![2, 3]),
        (LayerBuilder::attention(2), vec![2, 3]),
        (LayerBuilder::attention(1), vec![3]),
        (LayerBuilder::embedding(0, 3), vec![2]),
        (LayerBuilder::embedding(1 << 30, 3), vec![2]),
        (LayerBuilder::embedding(5, 3), vec![2, 2]),
        (LayerBuilder::reshape(&[2, 2]), vec![3]),
        (LayerBuilder::reshape(&[huge, 4]), vec![3]),
        (LayerBuilder::reshape(&[]), vec![3]),
        (LayerBuilder::reshape(&[]), vec![1]),
        // Sizes that overflow inside another layer.
        (
            LayerBuilder::residual(vec![LayerBuilder::conv2d(huge, (1, 1)), LayerBuilder::flatten()]),
            vec![1, 4, 4],
        ),
        (
            LayerBuilder::residual(vec![LayerBuilder::conv2d(huge, (1, 1)), LayerBuilder::reshape(&[16])]),
            vec![1, 4, 4],
        ),
        (LayerBuilder::residual(vec![LayerBuilder::dense(4)]), vec![3]),
        (LayerBuilder::dense(2).stride(2), vec![3]),
        (LayerBuilder::dense(2).causal(), vec![3]),
        (LayerBuilder::flatten().return_sequences(), vec![3]),
        (LayerBuilder::flatten().use_bias(false), vec![3]),
        (LayerBuilder::layer_norm().weight_init(WeightInitialization::Zeros), vec![3]),
        (
            LayerBuilder::residual(vec![LayerBuilder::dense(3)]).weight_init(WeightInitialization::Zeros),
            vec![3],
        ),
        (LayerBuilder::dense(2).weight_init(WeightInitialization::Normal { mean: 0.0, std: -1.0 }), vec![3]),
        (LayerBuilder::dense(2).weight_init(WeightInitialization::Uniform { min: 1.0, max: 0.0 }), vec![3]),
        (
            LayerBuilder::dense(2).weight_init(WeightInitialization::Uniform { min: f64::NAN, max: 0.0 }),
            vec![3],
        ),
        (LayerBuilder::lstm(3).layers(usize::MAX), vec![2, 3]),
        (LayerBuilder::conv2d(2, (1, 1)).dilation(0), vec![1, 2, 2]),
    ];
    for (layer, shape) in cases {
        let shown = format!("{layer:?} of {shape:?}");
        assert!(one(layer, &shape).is_err(), "{shown}");
    }
    assert!(LayerBuilder::dropout(1.5).is_err() && LayerBuilder::dropout(f64::NAN).is_err());
    let late = Network::with_input_size(3)?
        .add_layer(LayerBuilder::dense(3))
        .add_layer(LayerBuilder::embedding(2, 2));
    assert!(words(late.build()).contains("first"));
    assert!(
        words(Network::with_input_size(3)?.add_layer(LayerBuilder::dense(2)).device("cuda:99").build())
            .contains("cpu")
    );
    Ok(())
}

#[test]
fn numbers_out_of_their_ranges() -> Result<()> {
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(words(Optimizer::adam(rate)).contains("above 0"));
    }
    assert!(Optimizer::momentum(0.1, 1.0).is_err());
    assert!(Optimizer::adam_with_params(0.1, 1.0, 0.9, 1e-8).is_err());
    assert!(Optimizer::adam_with_params(0.1, 0.9, 0.9, -1.0).is_err());
    let config = OptimizerConfig { momentum: Some(0.0), ..OptimizerConfig::default() };
    assert!(Optimizer::new(OptimizerType::Nesterov, config).is_err());
    let config = OptimizerConfig { gamma: Some(0.0), ..OptimizerConfig::default() };
    assert!(Optimizer::new(OptimizerType::AdaBound, config).is_err());
    // Numbers that a type has no use for.
    let none = OptimizerConfig::default();
    for (kind, config, name) in [
        (OptimizerType::SGD, OptimizerConfig { momentum: Some(0.9), ..none.clone() }, "Nesterov"),
        (OptimizerType::Adam, OptimizerConfig { decay: Some(0.1), ..none.clone() }, "RMSprop"),
        (OptimizerType::Momentum, OptimizerConfig { decay: Some(0.1), ..none.clone() }, "Adagrad"),
        (OptimizerType::Adam, OptimizerConfig { final_lr: Some(0.1), ..none.clone() }, "AdaBound"),
        (OptimizerType::RMSprop, OptimizerConfig { gamma: Some(0.1), ..none.clone() }, "AdaBound"),
    ] {
        assert!(words(Optimizer::new(kind, config)).contains(name), "{kind:?}");
    }
    let zeros = OptimizerConfig { momentum: Some(0.0), decay: Some(0.0), ..none };
    assert!(Optimizer::new(OptimizerType::SGD, zeros).is_ok());
    for rate in [f64::NAN, f64::INFINITY, -0.1] {
        let schedule = LearningRateSchedule::ExponentialDecay { gamma: 0.5 };
        assert!(words(LearningRateScheduler::new(schedule, rate, 3)).contains("initial_lr"));
    }
    assert!(LossConfig::new(LossFunction::HuberLoss).with_huber_delta(0.0).is_err());
    assert!(LossConfig::new(LossFunction::QuantileLoss).with_quantile(1.1).is_err());
    assert!(LossConfig::new(LossFunction::MeanSquaredError).with_label_smoothing(0.1).is_err());
    let (x, y) = (Array2::zeros((4, 3)), Array2::zeros((4, 2)));
    let base = TrainingConfig { verbose: false, ..TrainingConfig::default() };
    for config in [
        TrainingConfig { max_epochs: 0, ..base.clone() },
        TrainingConfig { batch_size: 0, ..base.clone() },
        TrainingConfig { gradient_accumulation_steps: 0, ..base.clone() },
        TrainingConfig { checkpoint_frequency: Some(0), ..base.clone() },
        TrainingConfig { validation_split: 1.0, ..base.clone() },
        TrainingConfig { validation_split: f64::NAN, ..base.clone() },
        TrainingConfig { validation_split: 0.99, ..base.clone() },
        TrainingConfig { metrics: vec!["speed".into()], ..base.clone() },
        TrainingConfig {
            lr_schedule: Some(LearningRateSchedule::CyclicLR {
                base_lr: 0.1,
                max_lr: 0.01,
                step_size_up: usize::MAX,
                mode: "triangular".into(),
            }),
            ..base.clone()
        },
    ] {
        assert!(small()?.train(&x, &y, &config).is_err(), "{config:?}");
    }
    Ok(())
}

#[test]
fn data_that_do_not_fit() -> Result<()> {
    let mut network = small()?;
    let config = TrainingConfig { verbose: false, ..TrainingConfig::default() };
    let (x, y) = (Array2::zeros((4, 3)), Array2::zeros((4, 2)));
    let with = |x: &Array2<f64>, at: (usize, usize), value: f64| {
        let mut x = x.clone();
        x[at] = value;
        x
    };
    assert!(words(network.train(&Array2::zeros((4, 2)), &y, &config)).contains("rows of 3"));
    assert!(words(network.train(&x, &Array2::zeros((4, 3)), &config)).contains("rows of 2"));
    assert!(words(network.train(&x, &Array2::zeros((5, 2)), &config)).contains("4 rows"));
    assert!(
        words(network.train(&Array2::zeros((0, 3)), &Array2::zeros((0, 2)), &config)).contains("no rows")
    );
    assert!(words(network.train(&with(&x, (2, 1), f64::NAN), &y, &config)).contains("row 2, column 1"));
    assert!(words(network.train(&x, &with(&y, (3, 0), f64::INFINITY), &config)).contains("row 3"));
    assert!(words(network.predict(&with(&x, (0, 0), f64::NAN))).contains("row 0"));
    assert!(network.predict(&Array2::zeros((1, 4))).is_err());
    assert!(network.evaluate(&x, &Array2::zeros((3, 2))).is_err());
    assert!(network.train_with_validation(&x, &y, Some(&x), None, &config).is_err());
    assert!(network.set_weights(&[Array2::zeros((2, 2))]).is_err());
    assert!(network.set_weights(&[Array2::zeros((2, 3)), Array2::zeros((1, 3))]).is_err());
    assert!(network.get_layer(1).is_err());
    assert!(words(network.freeze_layers(&[0, 7])).contains("0 to 0"));
    assert!(network.get_layer(0)?.is_trainable());
    network.freeze_layers(&[0])?;
    assert!(words(network.train(&x, &y, &config)).contains("unfreeze"));
    let mut classes = Network::with_input_size(3)?
        .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Softmax))
        .loss(LossFunction::SparseCategoricalCrossEntropy)
        .device("cpu")
        .build()?;
    for wrong in [2.0, -1.0, 0.5] {
        assert!(words(classes.train(&x, &Array2::from_elem((4, 1), wrong), &config)).contains("0 to 1"));
    }
    let words_in =
        |network: NetworkBuilder| network.add_layer(LayerBuilder::embedding(4, 2)).device("cpu").build();
    for wrong in [4.0, -1.0, 1.5] {
        let network = words_in(Network::with_input_size(2)?)?;
        assert!(words(network.predict(&Array2::from_elem((1, 2), wrong))).contains("0 to 3"));
    }
    Ok(())
}

#[test]
fn numbers_beyond_float32() -> Result<()> {
    let mut network = small()?;
    let (x, y) = (Array2::from_elem((4, 3), 1.0), Array2::from_elem((4, 2), 1.0));
    let far = |shape: (usize, usize)| Array2::from_elem(shape, -1e39);
    let config = TrainingConfig { verbose: false, ..TrainingConfig::default() };
    for error in [
        words(network.predict(&far((4, 3)))),
        words(network.evaluate(&x, &far((4, 2)))),
        words(network.train(&far((4, 3)), &y, &config)),
        words(network.train(&x, &far((4, 2)), &config)),
        words(network.loss_and_gradients(&x, &far((4, 2)))),
        words(network.set_weights(&[far((2, 3)), Array2::zeros((1, 2))])),
    ] {
        assert!(error.contains("row 0, column 0") && error.contains("Float64"), "{error}");
    }
    assert!(
        words(network.set_weights(&[Array2::zeros((2, 3)), Array2::from_elem((1, 2), f64::NAN)]))
            .contains("NaN")
    );
    let linear = LayerBuilder::dense(2).activation(ActivationFunction::Linear);
    let wide = Network::with_input_size(3)?.add_layer(linear).device("cpu").precision(Precision::Float64);
    assert!(wide.build()?.predict(&far((4, 3)))?.iter().all(|y| y.is_finite()));
    Ok(())
}

#[test]
fn losses_behind_activations_that_they_do_not_take() -> Result<()> {
    use ActivationFunction::{HardSigmoid, Linear, ReLU, Sigmoid, Softmax, Softplus, Tanh};
    let build = |loss: LossFunction, layers: &[LayerBuilder]| {
        let builder = Network::with_input_size(3)?.loss(loss).device("cpu").seed(1);
        layers.iter().cloned().fold(builder, NetworkBuilder::add_layer).build()
    };
    let dense = |activation| LayerBuilder::dense(4).activation(activation);
    for (loss, right, wrong, remedy) in [
        (LossFunction::CategoricalCrossEntropy, Softmax, ReLU, "Softmax"),
        (LossFunction::SparseCategoricalCrossEntropy, HardSigmoid, Linear, "Softmax"),
        (LossFunction::KLDivergence, Softmax, Linear, "Softmax"),
        (LossFunction::BinaryCrossEntropy, Sigmoid, Tanh, "Sigmoid"),
        (LossFunction::PoissonLoss, Softplus, Linear, "Softplus"),
    ] {
        let error = words(build(loss, &[dense(wrong)]));
        assert!(
            error.contains(loss.name()) && error.contains(wrong.name()) && error.contains(remedy),
            "{error}"
        );
        build(loss, &[dense(right)])?;
        // What only shapes or is an activation by itself is looked through.
        build(loss, &[dense(Linear), LayerBuilder::activation_layer(right), LayerBuilder::reshape(&[2, 2])])?;
        assert!(build(loss, &[dense(right), dense(wrong), LayerBuilder::flatten()]).is_err());
        // The loss of a run is looked at too.
        let mut network = build(LossFunction::MeanSquaredError, &[dense(wrong)])?;
        let config =
            TrainingConfig { loss_function: Some(loss), verbose: false, ..TrainingConfig::default() };
        let targets = Array2::zeros((8, 4));
        let error = words(network.train(&Array2::zeros((8, 3)), &targets, &config));
        assert!(error.contains(remedy), "{error}");
    }
    assert!(words(build(LossFunction::CategoricalCrossEntropy, &[LayerBuilder::dense(4)])).contains("ReLU"));
    for shape in [vec![1], vec![4, 1]] {
        let size: usize = shape.iter().product();
        let layers = [
            LayerBuilder::dense(size),
            LayerBuilder::reshape(&shape),
            LayerBuilder::activation_layer(Softmax),
        ];
        assert!(words(build(LossFunction::CategoricalCrossEntropy, &layers)).contains("always 1"));
    }
    Ok(())
}

#[test]
fn errors_of_the_published_crate_have_a_kind() {
    use rnn::NetworkError;
    for (error, category) in [
        (NetworkError::propagation("backwards"), "computation"),
        (NetworkError::cuda("no driver"), "gpu"),
        (NetworkError::convergence("it wanders", 7), "numerical"),
    ] {
        assert_eq!(error.category(), category);
    }
    assert_eq!(NetworkError::convergence("it wanders", 7).to_string(), "it wanders (after 7 iterations)");
}

#[test]
fn errors_of_the_libraries_beneath_become_errors_of_this_crate() {
    fn file() -> Result<Vec<u8>> {
        Ok(std::fs::read("no such folder/file")?)
    }
    fn matrix() -> Result<Array2<f64>> {
        Ok(Array2::from_shape_vec((2, 3), vec![0.0; 5])?)
    }
    fn json() -> Result<f64> {
        Ok(serde_json::from_str("[")?)
    }
    let kinds = [
        file().map(drop).unwrap_err().category(),
        matrix().map(drop).unwrap_err().category(),
        json().map(drop).unwrap_err().category(),
    ];
    assert_eq!(kinds, ["io", "data", "serialization"]);
}

#[test]
fn losses_by_themselves() {
    let sparse = LossFunction::SparseCategoricalCrossEntropy;
    for (predictions, targets) in [((3, 0), (3, 1)), ((3, 0), (3, 0)), ((0, 2), (0, 1)), ((3, 2), (3, 2))] {
        let (predictions, targets) = (Array2::zeros(predictions), Array2::zeros(targets));
        words(sparse.compute(&predictions, &targets));
        words(sparse.gradient(&predictions, &targets));
    }
}

#[test]
fn a_loss_that_is_not_finite_leaves_the_network_as_it_was() -> Result<()> {
    let mut network = small()?;
    let before = network.get_weights()?;
    let x = Array2::from_elem((4, 3), 1e30);
    let config = TrainingConfig { verbose: false, validation_split: 0.0, ..TrainingConfig::default() };
    assert!(words(network.train(&x, &Array2::zeros((4, 2)), &config)).contains("learning rate"));
    assert_eq!(network.get_weights()?, before);
    Ok(())
}

#[test]
fn gradients_that_are_not_finite_are_refused_or_told() -> Result<()> {
    // Outputs of 0 have a finite loss, whose derivatives by the weights overflow.
    let (x, y) = (Array2::from_elem((4, 3), 3e38), Array2::from_elem((4, 2), 10.0));
    let zeros = || -> Result<Network> {
        let mut network = small()?;
        network.set_weights(&[Array2::zeros((2, 3)), Array2::zeros((1, 2))])?;
        Ok(network)
    };
    let base = TrainingConfig {
        max_epochs: 1,
        verbose: false,
        validation_split: 0.0,
        optimizer: Some(Optimizer::sgd(0.1)?),
        ..TrainingConfig::default()
    };
    let clip = OptimizerConfig { gradient_clip: Some(1.0), ..OptimizerConfig::default() };
    let all_zero = |network: &Network| -> Result<bool> {
        Ok(network.get_weights()?.iter().flatten().all(|weight| *weight == 0.0))
    };
    for config in [
        TrainingConfig { optimizer: Some(Optimizer::new(OptimizerType::SGD, clip)?), ..base.clone() },
        TrainingConfig { gradient_accumulation_steps: 2, batch_size: 2, ..base.clone() },
        TrainingConfig { mixed_precision: true, ..base.clone() },
        TrainingConfig {
            optimizer: Some(Optimizer::new(OptimizerType::LBFGS, OptimizerConfig::default())?),
            ..base.clone()
        },
    ] {
        let mut network = zeros()?;
        let error = words(network.train(&x, &y, &config));
        assert!(error.contains("the step was not taken"), "{error}");
        assert!(all_zero(&network)?, "{config:?}");
    }
    let network = zeros()?;
    let workers = DistributedTraining::with_cpu_workers(2)?.with_config(base.clone());
    assert!(words(workers.train(&network, &x, &y)).contains("the step was not taken"));
    assert!(all_zero(&network)?);
    // Where nothing looks at them, after the step; be it the last one or not.
    for max_epochs in [1, 3] {
        let mut network = zeros()?;
        let error = words(network.train(&x, &y, &TrainingConfig { max_epochs, ..base.clone() }));
        assert!(error.contains("no longer finite") && error.contains("checkpoint"), "{error}");
    }
    Ok(())
}

#[test]
fn gradients_whose_squares_overflow_are_gone_along_unless_their_norm_is_needed() -> Result<()> {
    // Derivatives by the weights of 1e21.
    let (x, y) = (Array2::from_elem((4, 3), 1e20), Array2::from_elem((4, 2), 10.0));
    let zeros = || -> Result<Network> {
        let mut network = small()?;
        network.set_weights(&[Array2::zeros((2, 3)), Array2::zeros((1, 2))])?;
        Ok(network)
    };
    let base = TrainingConfig {
        max_epochs: 1,
        verbose: false,
        validation_split: 0.0,
        optimizer: Some(Optimizer::sgd(0.1)?),
        ..TrainingConfig::default()
    };
    let clip = OptimizerConfig { gradient_clip: Some(1.0), ..OptimizerConfig::default() };
    let moved = |network: &Network| -> Result<bool> {
        let weights = network.get_weights()?;
        Ok(weights.iter().flatten().all(|weight| weight.is_finite() && *weight != 0.0))
    };
    for config in [
        TrainingConfig { gradient_accumulation_steps: 2, batch_size: 2, ..base.clone() },
        TrainingConfig { mixed_precision: true, ..base.clone() },
        // A direction is clipped in float64.
        TrainingConfig {
            optimizer: Some(Optimizer::new(OptimizerType::LBFGS, clip.clone())?),
            ..base.clone()
        },
    ] {
        let mut network = zeros()?;
        network.train(&x, &y, &config)?;
        assert!(moved(&network)?, "{config:?}");
    }
    let network = zeros()?;
    DistributedTraining::with_cpu_workers(2)?.with_config(base.clone()).train(&network, &x, &y)?;
    assert!(moved(&network)?);
    let config = TrainingConfig { optimizer: Some(Optimizer::new(OptimizerType::SGD, clip)?), ..base };
    let mut network = zeros()?;
    let error = words(network.train(&x, &y, &config));
    assert!(error.contains("too large to be squared"), "{error}");
    let workers = DistributedTraining::with_cpu_workers(2)?.with_config(config);
    let error = words(workers.train(&network, &x, &y));
    assert!(error.contains("too large to be squared"), "{error}");
    assert!(network.get_weights()?.iter().flatten().all(|weight| *weight == 0.0));
    Ok(())
}

#[test]
fn devices_and_handles() -> Result<()> {
    let mut manager = GpuManager::new();
    let count = manager.devices().len();
    assert!(words(manager.create_context(count)).contains("devices()"));
    let cpu = manager.devices().iter().find(|d| d.engine_name == "cpu").map(|d| d.id).unwrap_or(0);
    let context = manager.create_context(cpu)?;
    assert!(context.allocate(0).is_err() && context.allocate(6).is_err());
    assert!(context.allocate(usize::MAX / 8 * 4).is_err());
    let memory = context.allocate(8)?;
    assert!(context.copy_to_device(&[1.0; 3], &memory).is_err());
    assert!(context.copy_to_host(&memory, &mut [0.0; 3]).is_err());
    context.copy_to_device(&[3.0], &memory)?;
    let mut back = [9.0; 2];
    context.copy_to_host(&memory, &mut back)?;
    assert_eq!(back, [3.0, 0.0]);
    context.deallocate(memory.clone())?;
    assert!(words(context.deallocate(memory.clone())).contains("allocate it again"));
    assert!(context.copy_to_device(&[1.0], &memory).is_err());
    assert!(context.set_stream(GpuStreamHandle(7)).is_err());
    let stream = context.create_stream()?;
    context.set_stream(stream)?;
    context.synchronize()?;
    let x = GpuTensor::from_cpu(&Array2::zeros((2, 3)), cpu, context)?;
    assert!(GpuTensor::from_cpu(&Array2::zeros((2, 3)), cpu + 1, context).is_err());
    assert!(x.reshape(vec![4]).is_err());
    assert!(context.matmul(&x, &x).is_err());
    assert!(context.sum(&x, Some(2)).is_err());
    assert!(context.sum(&x, Some(usize::MAX)).is_err());
    // Handles made by hand.
    let memory = context.allocate(8)?;
    for (ptr, size, device_id) in [(memory.ptr, 4, cpu), (memory.ptr, 8, cpu + 1), (usize::MAX, 8, cpu)] {
        let handle = GpuMemoryHandle { ptr, size, device_id };
        assert!(words(context.copy_to_device(&[1.0], &handle)).contains("allocate it again"));
    }
    let none: [&rnn::GpuDevice; 0] = [];
    assert!(words(DistributedTraining::new(none)).contains("with_cpu_workers"));
    assert!(DistributedTraining::with_cpu_workers(0).is_err());
    assert!(words(DistributedTraining::with_cpu_workers(usize::MAX)).contains("at most 1024"));
    let mut forged = manager.devices()[0].clone();
    assert!(forged.is_available());
    forged.engine_name = "cuda:99".to_owned();
    assert!(!forged.is_available());
    assert!(words(DistributedTraining::new([forged])).contains("cuda:99"));
    let unknown = words(KernelManager::new().compile_kernel("k", "", "fortran"));
    for name in ["fortran", "cuda", "opencl", "metal", "rocm", "wgsl"] {
        assert!(unknown.contains(&format!("{name:?}")), "{unknown}");
    }
    Ok(())
}
