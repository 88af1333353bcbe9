//! Guarantees of the training loop: it can be interrupted anywhere and continues bit for bit, stops early, and loses
//! nothing.

mod replay;

use std::{cell::RefCell, fs, path::Path};

use neurenix::{
    Error, Result,
    data::{Dataset, HostArray},
    io::safetensors,
    loss::Loss,
    nn::*,
    optim::{Optimizer, Rule, Schedule},
    train::*,
};
use phynexus::{DType, Device, Tensor, tensor::Generator};

fn device() -> Device {
    neurenix::register_all();
    Device::default_device().unwrap()
}

/// Points of three classes: the class is decided by the angle, with `count` rows of 4 features.
fn points(count: usize) -> Result<Dataset> {
    let (mut inputs, mut labels) = (Vec::new(), Vec::new());
    for i in 0..count {
        let label = i % 3;
        let angle = label as f32 * 2.1 + (i as f32 * 0.37).sin() * 0.6;
        let radius = 1.0 + (i as f32 * 0.73).cos() * 0.3;
        inputs.extend([angle.cos() * radius, angle.sin() * radius, (i as f32 * 1.7).sin(), 0.5]);
        labels.push(label as i64);
    }
    let inputs = HostArray::from_values(&[count, 4], &inputs)?;
    let labels = HostArray::from_values(&[count], &labels)?;
    Dataset::classes("points", inputs, labels, ["a", "b", "c"].map(str::to_owned).to_vec())
}

/// A network with every kind of state: batch normalisation's buffers and dropout's random numbers.
fn network(generator: &Generator) -> Result<Sequential> {
    let d = device();
    Ok(Sequential::new()
        .with(Linear::new(4, 16, true, d, generator)?)
        .with(BatchNorm1d::new(16, BatchNormOptions::default(), d)?)
        .with(activation::relu())
        .with(Dropout::new(0.3)?)
        .with(Linear::new(16, 3, true, d, generator)?))
}

fn trainer<'a>(
    model: &'a dyn Module,
    generator: &'a Generator,
    options: TrainOptions,
) -> Result<Trainer<'a>> {
    let optimizer = Optimizer::new(Rule::adam(), model.parameters(), 1e-2)?;
    let objective = Objective::Classification(Loss::cross_entropy(0.1));
    Ok(Trainer::new(model, optimizer, objective, generator, device(), options))
}

/// All bits of a model and its optimiser.
fn bits(model: &dyn Module, optimizer: &Optimizer) -> Vec<(String, Vec<u8>)> {
    let all = model.state().into_iter().chain(optimizer.state().unwrap());
    all.map(|(name, tensor)| (name, tensor.to_bytes().unwrap())).collect()
}

fn figures(history: &History) -> Vec<EpochRecord> {
    history.epochs.iter().map(|e| EpochRecord { seconds: 0.0, ..e.clone() }).collect()
}

/// Dropout draws from the default generator if it has none; tests that draw from that generator take turns.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Stops the run after this many steps.
struct StopAfter(usize);
impl Observer for StopAfter {
    fn step(&mut self, _: &StepReport) -> bool {
        self.0 -= 1;
        self.0 > 0
    }
}

#[test]
fn an_interrupted_run_goes_on_bit_for_bit() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    let (training, validation) = (points(90)?, points(30)?);
    let mut ordinary = None;
    for (accumulate, replay) in [(1, false), (1, true), (2, true)] {
        let options = TrainOptions {
            epochs: 4,
            batch_size: 16,
            accumulate,
            seed: 5,
            schedule: Schedule::OneCycle { peak: 2e-2, rise: 0.3 },
            clip_norm: Some(1.0),
            replay,
            checkpoint: Some(path.clone()),
            settings: serde_json::json!({"run": 1}),
            ..TrainOptions::default()
        };
        phynexus::tensor::manual_seed(7);
        let generator = Generator::new(1);
        let model = network(&generator)?;
        let mut straight = trainer(&model, &generator, options.clone())?;
        assert_eq!(straight.run(&training, Some(&validation), &mut Silent)?, Ending::Finished);
        let expected = (bits(&model, &straight.optimizer), figures(straight.history()));
        let random = Generator::default_generator().state();
        if accumulate == 1 {
            assert!(*ordinary.get_or_insert_with(|| expected.clone()) == expected, "a replay differs");
        }

        phynexus::tensor::manual_seed(7);
        let generator = Generator::new(1);
        let model = network(&generator)?;
        let mut first = trainer(&model, &generator, options.clone())?;
        // In the middle of the second epoch, of 6 batches.
        let stop = 6usize.div_ceil(accumulate) + 2;
        assert_eq!(first.run(&training, Some(&validation), &mut StopAfter(stop))?, Ending::Interrupted);
        drop(first);

        phynexus::tensor::manual_seed(99);
        let generator = Generator::new(1234);
        let model = network(&generator)?;
        let mut second = trainer(&model, &generator, options.clone())?;
        second.resume(&path)?;
        // Interrupted once more, after the last batch of an epoch.
        let rest = 12usize.div_ceil(accumulate) - stop;
        assert_eq!(second.run(&training, Some(&validation), &mut StopAfter(rest))?, Ending::Interrupted);
        let model = network(&generator)?;
        let mut third = trainer(&model, &generator, options)?;
        third.resume(&path)?;
        assert_eq!(third.run(&training, Some(&validation), &mut Silent)?, Ending::Finished);
        assert_eq!(figures(third.history()), expected.1);
        assert!(bits(&model, &third.optimizer) == expected.0, "parameters differ, accumulate {accumulate}");
        assert_eq!(Generator::default_generator().state(), random);
        assert!(expected.1[3].validation_accuracy.unwrap() > 0.9, "{:?}", expected.1[3]);
    }
    Ok(())
}

/// The step counts belong to the optimiser: it may have stepped before the run, and resuming must not reset them.
#[test]
fn a_run_with_a_used_optimizer_goes_on_bit_for_bit() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let data = points(40)?;
    let options =
        TrainOptions { epochs: 2, batch_size: 8, checkpoint: Some(path.clone()), ..TrainOptions::default() };
    let run = |stop: Option<usize>| -> Result<Vec<(String, Vec<u8>)>> {
        let generator = Generator::new(1);
        let model = Linear::new(4, 3, true, device(), &generator)?;
        let x = Tensor::full(&[1, 4], 1.0, DType::F32, device())?;
        let mut used = Optimizer::new(Rule::adam(), model.parameters(), 1e-2)?;
        for _ in 0..3 {
            used.step(model.forward(&x)?.square()?.sum(&[], false)?.leaf_gradients()?, &[])?;
        }
        let start = |optimizer| {
            Trainer::new(&model, optimizer, Objective::of(&data), &generator, device(), options.clone())
        };
        let mut trainer = start(used);
        if let Some(stop) = stop {
            assert_eq!(trainer.run(&data, None, &mut StopAfter(stop))?, Ending::Interrupted);
            trainer = start(Optimizer::new(Rule::adam(), model.parameters(), 1e-2)?);
            trainer.resume(&path)?;
        }
        assert_eq!(trainer.run(&data, None, &mut Silent)?, Ending::Finished);
        assert_eq!(trainer.optimizer.steps(), 3 + 2 * 5);
        Ok(bits(&model, &trainer.optimizer))
    };
    let straight = run(None)?;
    assert!(run(Some(3))? == straight && run(Some(7))? == straight);
    Ok(())
}

#[test]
fn accumulated_batches_are_one_large_batch() -> Result<()> {
    let data = points(45)?;
    let mut results = Vec::new();
    for (batch_size, accumulate) in [(30, 1), (10, 3), (20, 2)] {
        let generator = Generator::new(1);
        // Nothing in it depends on the division into batches.
        let model = Sequential::new()
            .with(Linear::new(4, 8, true, device(), &generator)?)
            .with(activation::tanh())
            .with(Linear::new(8, 3, true, device(), &generator)?);
        let optimizer = Optimizer::new(Rule::momentum(0.9), model.parameters(), 0.1)?;
        let options = TrainOptions { epochs: 1, batch_size, accumulate, ..TrainOptions::default() };
        let objective = Objective::of(&data);
        let mut trainer = Trainer::new(&model, optimizer, objective, &generator, device(), options);
        trainer.run(&data, None, &mut Silent)?;
        let first = trainer.history().epochs[0].clone();
        results.push((first.steps, model.state()["0.weight"].to_vec::<f32>()?, first.train_loss));
    }
    // 45 rows: two steps of 30 and 15 rows, or of 40 (2 x 20) and 5.
    assert_eq!(results.iter().map(|r| r.0).collect::<Vec<_>>(), [2, 2, 2]);
    for (a, b) in results[0].1.iter().zip(&results[1].1) {
        assert!((a - b).abs() < 1e-5, "{a} is not {b}");
    }
    assert!((results[0].2 - results[1].2).abs() < 1e-6);
    assert!(results[2].1.iter().all(|x| x.is_finite()) && results[2].1 != results[0].1);
    Ok(())
}

#[test]
fn training_ends_when_validation_no_longer_improves() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let data = points(30)?;
    let generator = Generator::new(1);
    let model = network(&generator)?;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let options = TrainOptions {
        epochs: 50,
        patience: Some(2),
        checkpoint: Some(path.clone()),
        ..TrainOptions::default()
    };
    let make = || -> Result<Trainer<'_>> {
        // A rate of 0 learns nothing. With constant batch normalisation statistics, the validation loss is constant
        // too.
        let optimizer = Optimizer::new(Rule::sgd(), model.parameters(), 0.0)?;
        Ok(Trainer::new(&model, optimizer, Objective::of(&data), &generator, device(), options.clone()))
    };
    struct Scores(RefCell<Vec<f64>>);
    impl Observer for Scores {
        fn epoch(&mut self, record: &EpochRecord) {
            self.0.borrow_mut().push(record.validation_loss.unwrap());
        }
    }
    let mut scores = Scores(RefCell::default());
    let mut trainer = make()?;
    assert_eq!(trainer.run(&data, Some(&data), &mut scores)?, Ending::EarlyStop);
    let scores = scores.0.into_inner();
    let best = scores.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).unwrap().0;
    assert_eq!(scores.len(), best + 1 + 2, "{scores:?}");
    // The best epoch is kept, although later ones are worse.
    assert!(scores[best] < *scores.last().unwrap(), "{scores:?}");
    assert_eq!(trainer.evaluate(&data)?.loss, *scores.last().unwrap());
    assert_eq!(trainer.restore_best()?, Some(best + 1));
    assert_eq!(trainer.evaluate(&data)?.loss, scores[best]);
    drop(trainer);
    // A run that has stopped early stays stopped.
    let mut again = make()?;
    again.resume(&path)?;
    assert_eq!(again.run(&data, Some(&data), &mut Silent)?, Ending::EarlyStop);
    assert_eq!(again.history().epochs.len(), scores.len());
    assert_eq!(again.evaluate(&data)?.loss, *scores.last().unwrap());
    assert_eq!(again.restore_best()?, Some(best + 1));
    assert_eq!(again.evaluate(&data)?.loss, scores[best]);
    // Without patience, nothing is kept.
    let optimizer = Optimizer::new(Rule::sgd(), model.parameters(), 0.0)?;
    let options = TrainOptions { epochs: 1, ..TrainOptions::default() };
    let mut plain = Trainer::new(&model, optimizer, Objective::of(&data), &generator, device(), options);
    plain.run(&data, Some(&data), &mut Silent)?;
    assert_eq!(plain.restore_best()?, None);
    Ok(())
}

fn message<T>(result: Result<T>) -> String {
    result.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn damaged_checkpoints_are_errors_and_change_nothing() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let data = points(40)?;
    let generator = Generator::new(1);
    let options = TrainOptions { epochs: 1, checkpoint: Some(path.clone()), ..TrainOptions::default() };
    let model = network(&generator)?;
    trainer(&model, &generator, options.clone())?.run(&data, None, &mut Silent)?;
    let good = fs::read(&path).unwrap();
    let mut fresh = trainer(&model, &generator, options.clone())?;
    let before = (bits(&model, &fresh.optimizer), generator.state());
    let bad = folder.path().join("bad");
    let mut refused = |bytes: &[u8], expected: &str| {
        fs::write(&bad, bytes).unwrap();
        let text = message(fresh.resume(&bad));
        assert!(text.contains(expected), "{expected:?} is not in {text:?}");
        assert_eq!((bits(&model, &fresh.optimizer), generator.state()), before);
        assert_eq!(fresh.history().epochs.len(), 0);
    };
    for end in [0, 5, 100, good.len() / 2, good.len() - 1] {
        refused(&good[..end], "bad");
    }
    // The checksum detects any changed byte, in the model as well as in the progress.
    for place in [good.len() / 4, good.len() / 2, good.len() - 1] {
        let mut bytes = good.clone();
        bytes[place] ^= 1;
        refused(&bytes, "bad");
    }
    // Complete files that are not a checkpoint of this run.
    let contents = safetensors::load(&path)?;
    let mut refused = |change: &dyn Fn(&mut safetensors::NamedArrays), expected: &str| -> Result<()> {
        let mut changed = contents.clone();
        change(&mut changed);
        safetensors::save(&bad, &changed)?;
        refused(&fs::read(&bad).unwrap(), expected);
        Ok(())
    };
    let renamed = |from: &'static str, to: &'static str| {
        move |contents: &mut safetensors::NamedArrays| {
            let array = contents.arrays.remove(from).unwrap();
            contents.arrays.insert(to.to_owned(), array);
        }
    };
    refused(
        &|contents| {
            let progress = contents.metadata.get_mut("neurenix.progress").unwrap();
            *progress = progress.replace("epochs_done", "epochs_gone");
        },
        "progress cannot be read",
    )?;
    refused(&|contents| contents.metadata.clear(), "no training progress")?;
    refused(&renamed("model.0.weight", "model.0.wXight"), "0.weight is missing")?;
    refused(&renamed("optimizer.0.exp_avg_sq", "optimizer.0.exp_avg_qq"), "is incomplete")?;
    // Another run's settings, another network, another optimiser.
    fresh.options.settings = serde_json::json!("other");
    assert!(message(fresh.resume(&path)).contains("other settings"));
    assert_eq!(bits(&model, &fresh.optimizer), before.0);
    let other = Linear::new(4, 3, true, device(), &generator)?;
    assert!(trainer(&other, &generator, options.clone())?.resume(&path).is_err());
    let optimizer = Optimizer::new(Rule::sgd(), model.parameters(), 0.1)?;
    let mut sgd = Trainer::new(&model, optimizer, Objective::of(&data), &generator, device(), options);
    assert!(message(sgd.resume(&path)).contains("SGD"));
    assert!(message(sgd.resume(Path::new("/nonexistent/checkpoint"))).contains("cannot"));
    Ok(())
}

/// Rows, of which number 20 has NaN in an input.
fn spoilt() -> Result<Dataset> {
    let data = points(30)?.all()?;
    let mut inputs = data.inputs.to_vec::<f32>()?;
    inputs[20 * 4 + 2] = f32::NAN;
    let inputs = HostArray::from_values(&[30, 4], &inputs)?;
    Dataset::classes("spoilt", inputs, data.targets, ["a", "b", "c"].map(str::to_owned).to_vec())
}

#[test]
fn a_loss_that_is_no_number_loses_nothing() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let settings = [(1, false), (1, true), (2, false)];
    for ((accumulate, replay), clip_norm) in settings.iter().flat_map(|&s| [(s, None), (s, Some(1.0))]) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint");
        let generator = Generator::new(1);
        let model = network(&generator)?;
        let options = TrainOptions {
            epochs: 3,
            batch_size: 5,
            accumulate,
            clip_norm,
            replay,
            checkpoint: Some(path.clone()),
            ..TrainOptions::default()
        };
        let mut run = trainer(&model, &generator, options)?;
        // One good epoch and its checkpoint, then data with a bad row.
        run.options.epochs = 1;
        run.run(&points(30)?, None, &mut Silent)?;
        let checkpoint = fs::read(&path).unwrap();
        run.options.epochs = 3;
        struct Before<'a>(&'a dyn Module, Vec<Vec<u8>>);
        impl Observer for Before<'_> {
            fn step(&mut self, _: &StepReport) -> bool {
                self.1 = self.0.state().values().map(|x| x.to_bytes().unwrap()).collect();
                true
            }
        }
        let mut before = Before(&model, Vec::new());
        before.step(&StepReport { epoch: 0, batch: 0, batches: 0, loss: 0.0, accuracy: None });
        let steps = run.optimizer.steps();
        let text = message(run.run(&spoilt()?, None, &mut before));
        assert!(text.contains("the input of row 20 of the data is not finite"), "{text}");
        let failed: u64 = text.split("at step ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(failed > steps && run.optimizer.steps() == failed - 1, "{text}");
        let after: Vec<Vec<u8>> = model.state().values().map(|x| x.to_bytes().unwrap()).collect();
        let names: Vec<String> = model.state().into_keys().collect();
        let changed: Vec<_> =
            (0..after.len()).filter(|&i| after[i] != before.1[i]).map(|i| &names[i]).collect();
        assert!(changed.is_empty(), "changed: {changed:?}, accumulate {accumulate}, clip {clip_norm:?}");
        assert!(run.optimizer.parameters().all(|p| p.tensor().grad().is_none()));
        assert_eq!(fs::read(&path).unwrap(), checkpoint);
        // With good data the run continues.
        assert_eq!(run.run(&points(30)?, None, &mut Silent)?, Ending::Finished);
    }
    Ok(())
}

#[test]
fn parameters_that_are_no_numbers_are_named_and_never_saved() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let generator = Generator::new(1);
    let model = Linear::new(4, 3, true, device(), &generator)?;
    let weight = model.weight().tensor();
    model.weight().set(weight.detach()?.mul_scalar(f64::INFINITY)?)?;
    let options = TrainOptions { checkpoint: Some(path.clone()), ..TrainOptions::default() };
    let text = message(trainer(&model, &generator, options)?.run(&points(9)?, None, &mut Silent));
    assert!(text.contains("at step 1 parameter weight is not finite"), "{text}");
    assert!(!path.exists());
    Ok(())
}

#[test]
fn data_that_do_not_fit_are_errors_before_the_first_step() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let generator = Generator::new(1);
    let model = network(&generator)?;
    let before: Vec<Vec<u8>> = model.state().values().map(|x| x.to_bytes().unwrap()).collect();
    let run = |training: &Dataset, validation: Option<&Dataset>, objective: &Objective| {
        let optimizer = Optimizer::new(Rule::adam(), model.parameters(), 0.1)?;
        let mut trainer =
            Trainer::new(&model, optimizer, objective.clone(), &generator, device(), TrainOptions::default());
        trainer.run(training, validation, &mut Silent)
    };
    let classes = &Objective::Classification(Loss::cross_entropy(0.0));
    let names: Vec<String> = (0..5).map(|i| i.to_string()).collect();
    let inputs = HostArray::from_values(&[3, 4], &[0.5f32; 12])?;
    let labels = HostArray::from_values(&[3], &[0i64, 4, 1])?;
    let five = Dataset::classes("five", inputs.clone(), labels, names)?;
    let text = message(run(&five, None, classes));
    assert!(text.contains("row 1 has label 4") && text.contains("3 outputs"), "{text}");
    let text = message(run(&points(9)?, Some(&five), classes));
    assert!(text.contains("row 1 has label 4"), "{text}");
    let narrow = HostArray::from_values(&[2, 3], &[0.5f32; 6])?;
    let labels = HostArray::from_values(&[2], &[0i64, 1])?;
    let narrow = Dataset::classes("narrow", narrow, labels, vec!["a".into(), "b".into()])?;
    assert!(matches!(run(&narrow, None, classes), Err(Error::Engine(phynexus::Error::Shape { .. }))));
    let targets = HostArray::from_values(&[3, 2], &[0f32; 6])?;
    let regression = Dataset::regression("numbers", inputs, targets)?;
    let squares = Objective::Regression(Loss::MSE);
    assert!(message(run(&regression, None, &squares)).contains("targets have shape [2]"));
    assert!(message(run(&regression, None, classes)).contains("labels must be integers"));
    assert!(message(run(&points(9)?.split_at(0)?.0, None, classes)).contains("no rows"));
    let after: Vec<Vec<u8>> = model.state().values().map(|x| x.to_bytes().unwrap()).collect();
    assert!(after == before);
    Ok(())
}

/// Batch normalisation's statistics are computed in each step, so nothing accumulates.
#[test]
fn memory_stays_flat_over_a_thousand_steps() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let generator = Generator::new(1);
    let model = network(&generator)?;
    let options = TrainOptions { epochs: 100, batch_size: 8, ..TrainOptions::default() };
    struct Watch(Vec<usize>, &'static str);
    impl Observer for Watch {
        fn step(&mut self, _: &StepReport) -> bool {
            true
        }
        fn epoch(&mut self, _: &EpochRecord) {
            self.0.push(Device::find(self.1).unwrap().memory().allocated);
        }
    }
    let mut watch = Watch(Vec::new(), device().name());
    trainer(&model, &generator, options)?.run(&points(80)?, None, &mut watch)?;
    let pending: Vec<_> = model.state().into_iter().filter(|(_, x)| !x.is_evaluated()).collect();
    assert!(pending.is_empty(), "{:?}", pending.iter().map(|p| &p.0).collect::<Vec<_>>());
    // Other tests of this process hold memory too, but little and briefly: leaking one parameter per step would be 100
    // times as much.
    let least = |of: &[usize]| *of.iter().min().unwrap();
    assert!(least(&watch.0[90..]) <= least(&watch.0[..10]) + 4096, "{:?}", watch.0);
    Ok(())
}

#[test]
fn a_model_file_has_pytorchs_names_and_loads_again() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let model = network(&Generator::new(1))?;
    save_model(&path, &model, Default::default())?;
    let other = network(&Generator::new(2))?;
    load_model(&path, &other, device())?;
    let names: Vec<String> = other.state().into_keys().collect();
    assert_eq!(
        names,
        [
            "0.bias",
            "0.weight",
            "1.bias",
            "1.num_batches_tracked",
            "1.running_mean",
            "1.running_var",
            "1.weight"
        ]
        .into_iter()
        .chain(["4.bias", "4.weight"])
        .collect::<Vec<_>>()
    );
    let x = Tensor::from_slice(&[0.1f32, -0.4, 2.0, 1.0], &[1, 4], device())?;
    model.eval();
    other.eval();
    assert_eq!(model.forward(&x)?.to_vec::<f32>()?, other.forward(&x)?.to_vec::<f32>()?);
    Ok(())
}
