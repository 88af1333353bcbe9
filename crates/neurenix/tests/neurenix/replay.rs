//! A replayed step does what the step itself does, bit for bit.

use std::sync::atomic::{AtomicUsize, Ordering};

use neurenix::{
    Result,
    nn::*,
    optim::{Optimizer, Rule},
    train::Replay,
};
use phynexus::{DType, Device, Tensor, tensor::Generator};

fn device() -> Device {
    neurenix::register_all();
    Device::find("cpu").unwrap()
}

/// A network with running statistics and random numbers, and its optimiser.
struct Setting {
    model: Sequential,
    optimizer: Optimizer,
    generator: Generator,
}

impl Setting {
    fn new(rule: Rule, decay: f64) -> Result<Setting> {
        let (d, g) = (device(), Generator::new(3));
        let generator = Generator::new(11);
        let model = Sequential::new()
            .with(Linear::new(6, 16, true, d, &g)?)
            .with(BatchNorm1d::new(16, BatchNormOptions::default(), d)?)
            .with(activation::relu())
            .with(Linear::new(16, 3, true, d, &g)?);
        let optimizer = Optimizer::new(rule, model.parameters(), 1e-2)?.with_weight_decay(decay)?;
        Ok(Setting { model, optimizer, generator })
    }

    /// The bytes of parameters, buffers and the optimiser's state.
    fn state(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let named = self.model.named_state().into_iter();
        let mut state: Vec<(String, Vec<u8>)> =
            named.map(|(name, _, p)| Ok((name, p.tensor().to_bytes()?))).collect::<Result<_>>()?;
        for (name, tensor) in self.optimizer.state()? {
            state.push((name, tensor.to_bytes()?));
        }
        Ok(state)
    }
}

/// Noise on the inputs, so that random numbers take part.
fn step(
    model: &Sequential,
    generator: &Generator,
    optimizer: &mut Optimizer,
    batch: &[Tensor],
) -> Result<Vec<Tensor>> {
    let noise = generator.randn(batch[0].shape(), DType::F32, batch[0].device())?.mul_scalar(0.1)?;
    let outputs = model.forward(&batch[0].add(&noise)?)?;
    let loss = outputs.cross_entropy(&batch[1], None, 0.0)?;
    optimizer.step(loss.leaf_gradients()?, &[&loss])?;
    Ok(vec![loss, outputs.detach()?.argmax(Some(1), false)?])
}

fn batch(seed: u64, rows: usize) -> Result<[Tensor; 2]> {
    let g = Generator::new(seed);
    let inputs = g.randn(&[rows, 6], DType::F32, device())?.evaluated()?;
    Ok([inputs, g.randint(0, 3, &[rows], DType::I64, device())?.evaluated()?])
}

#[test]
fn steps_of_every_rule_are_those_of_the_function() -> Result<()> {
    for rule in Rule::ALL {
        for decay in [0.0, 0.01] {
            let (mut plain, mut replayed) =
                (Setting::new(rule.clone(), decay)?, Setting::new(rule.clone(), decay)?);
            let calls = AtomicUsize::new(0);
            let (model, generator) = (&replayed.model, &replayed.generator);
            let replay = Replay::new(|optimizer: &mut Optimizer, batch: &[Tensor]| {
                calls.fetch_add(1, Ordering::Relaxed);
                step(model, generator, optimizer, batch)
            });
            for i in 0..6 {
                let rate = 1e-2 / f64::from(i + 1);
                // Another size comes in between.
                let batch = batch(u64::from(i as u32), if i == 4 { 5 } else { 8 })?;
                plain.optimizer.set_learning_rate(rate)?;
                replayed.optimizer.set_learning_rate(rate)?;
                let expected = step(&plain.model, &plain.generator, &mut plain.optimizer, &batch)?;
                let results = replay.call(&mut replayed.optimizer, &batch)?;
                for (result, expected) in results.iter().zip(&expected) {
                    assert_eq!(result.to_bytes()?, expected.to_bytes()?, "{} {decay}, step {i}", rule.name());
                }
            }
            assert_eq!(plain.optimizer.steps(), replayed.optimizer.steps());
            // The first step, which makes the optimiser's state, and a recording for each size.
            assert_eq!(calls.load(Ordering::Relaxed), 3, "{} {decay}", rule.name());
            assert_eq!(plain.state()?, replayed.state()?, "{} {decay}", rule.name());
        }
    }
    Ok(())
}

/// A condition that is read after a step decides whether a replay takes and counts it.
#[test]
fn a_replay_takes_a_step_only_if_its_condition_holds() -> Result<()> {
    let mut setting = Setting::new(Rule::adam(), 0.0)?;
    let model = &setting.model;
    let step = Replay::new(|optimizer: &mut Optimizer, batch: &[Tensor]| -> Result<Vec<Tensor>> {
        let loss = model.forward(&batch[0])?.square()?.mean(&[], false)?;
        optimizer.step_if(&loss.isfinite()?, loss.leaf_gradients()?, &[])?;
        Ok(vec![loss])
    });
    let batch = |last: f32| {
        let mut values: Vec<f32> = (0..24).map(|at| (at as f32).sin()).collect();
        values[23] = last;
        Tensor::from_slice(&values, &[4, 6], device())
    };
    for (count, last) in [0.5, f32::NAN, 0.25, f32::INFINITY, f32::NAN, 0.75].into_iter().enumerate() {
        let weights = |optimizer: &Optimizer| -> Result<Vec<Vec<u8>>> {
            let state = optimizer.state()?.into_values();
            let all = optimizer.parameters().map(Parameter::tensor).chain(state);
            Ok(all.map(|tensor| tensor.to_bytes()).collect::<phynexus::Result<_>>()?)
        };
        let (before, steps) = (weights(&setting.optimizer)?, setting.optimizer.steps());
        let loss = step.call(&mut setting.optimizer, &[batch(last)?])?[0].item::<f32>()?;
        let is_taken = last.is_finite();
        assert_eq!(loss.is_finite(), is_taken);
        assert_eq!(setting.optimizer.steps(), steps + u64::from(is_taken), "call {count}");
        assert_eq!(weights(&setting.optimizer)? != before, is_taken, "call {count}");
        // A bad batch spoils the running statistics, which the condition does not cover.
        setting.model.named_state().iter().filter(|(name, _, _)| name.contains("running")).try_for_each(
            |(_, _, buffer)| buffer.set(Tensor::ones(buffer.tensor().shape(), DType::F32, device())?),
        )?;
    }
    Ok(())
}
