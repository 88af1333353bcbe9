//! Optimisers and schedules against PyTorch (`golden/make_optimizers.py`), and their other guarantees.

use neurenix::{
    Result,
    nn::Parameter,
    optim::{Optimizer, Rule, Schedule, clip_gradient_norm, clip_gradient_value},
};
use phynexus::{DType, Device, Tensor, gradient::Gradients, oracle::reference_device};
use serde_json::Value;

fn golden() -> Value {
    serde_json::from_str(include_str!("../golden/optimizers.json")).unwrap()
}

fn numbers(of: &Value) -> Vec<f64> {
    of.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn device() -> Device {
    neurenix::register_all();
    Device::default_device().unwrap()
}

fn parameter(start: f64, stop: f64, shape: &[usize]) -> Result<Parameter> {
    let count = shape.iter().product();
    Parameter::new(&Tensor::linspace(start, stop, count, DType::F64, device())?.reshape(shape)?)
}

fn parameters() -> Result<Vec<Parameter>> {
    Ok(vec![parameter(-1.0, 1.5, &[2, 3])?, parameter(2.0, -0.5, &[4])?])
}

/// The loss of the script.
fn loss(parameters: &[Parameter]) -> Result<Tensor> {
    let mut total = Tensor::full(&[], 0.0, DType::F64, device())?;
    for parameter in parameters {
        let p = parameter.leaf()?;
        let i = Tensor::arange(0, p.len() as i64, 1, DType::I64, device())?
            .to_dtype(DType::F64)?
            .reshape(p.shape())?;
        let weight = i.cos()?.add_scalar(1.0)?.mul_scalar(0.5)?;
        let distance = p.sub(&i.mul_scalar(2.0)?.sin()?)?;
        total = total.add(&weight.mul(&distance.square()?)?.sum(&[], false)?)?;
    }
    Ok(total)
}

fn gradients(parameters: &[Parameter]) -> Result<Gradients> {
    Ok(loss(parameters)?.leaf_gradients()?)
}

fn values(parameter: &Parameter) -> Vec<f64> {
    parameter.tensor().to_vec().unwrap()
}

/// The rule, the learning rate and the weight decay of each case.
fn rules() -> Vec<(&'static str, Rule, f64, f64)> {
    let dampened = Rule::Sgd { momentum: 0.9, dampening: 0.3, nesterov: false };
    let (beta1, beta2, epsilon, amsgrad) = (0.8, 0.6, 1e-8, true);
    let rmsprop = |alpha, momentum, centered| Rule::RmsProp { alpha, epsilon: 1e-8, momentum, centered };
    vec![
        ("sgd", Rule::sgd(), 0.1, 0.0),
        ("sgd_decay", Rule::sgd(), 0.1, 0.05),
        ("sgd_momentum", Rule::momentum(0.9), 0.1, 0.01),
        ("sgd_nesterov", Rule::nesterov(0.8), 0.1, 0.0),
        ("sgd_clipped", Rule::momentum(0.9), 0.1, 0.0),
        ("adam", Rule::adam(), 0.05, 0.0),
        ("adam_decay", Rule::Adam { beta1: 0.8, beta2: 0.95, epsilon: 1e-6, amsgrad: false }, 0.05, 0.1),
        ("adamw", Rule::adamw(), 0.05, 0.1),
        ("nadam", Rule::nadam(), 0.05, 0.02),
        ("radam", Rule::radam(), 0.05, 0.0),
        ("rmsprop", Rule::rmsprop(), 0.05, 0.0),
        ("rmsprop_momentum", rmsprop(0.9, 0.5, false), 0.02, 0.1),
        ("rmsprop_centered", rmsprop(0.99, 0.0, true), 0.02, 0.0),
        ("rmsprop_all", rmsprop(0.99, 0.5, true), 0.02, 0.0),
        ("adagrad", Rule::Adagrad { learning_rate_decay: 0.1, epsilon: 1e-10 }, 0.2, 0.01),
        ("adadelta", Rule::Adadelta { rho: 0.8, epsilon: 1e-5 }, 1.0, 0.0),
        ("sgd_dampened", dampened.clone(), 0.1, 0.0),
        ("adam_amsgrad", Rule::Adam { beta1, beta2, epsilon, amsgrad }, 0.2, 0.0),
        ("adamw_amsgrad", Rule::AdamW { beta1, beta2, epsilon, amsgrad }, 0.2, 0.1),
        ("sgd_dampened_late", dampened, 0.1, 0.0),
        ("adam_late", Rule::adam(), 0.05, 0.0),
        ("nadam_late", Rule::nadam(), 0.05, 0.0),
        ("radam_late", Rule::radam(), 0.05, 0.0),
        ("adagrad_late", Rule::Adagrad { learning_rate_decay: 0.1, epsilon: 1e-10 }, 0.2, 0.0),
        ("lion", Rule::lion(), 0.05, 0.0),
        ("lion_decay", Rule::lion(), 0.05, 0.2),
    ]
}

#[test]
fn every_rule_steps_as_pytorch_does() -> Result<()> {
    let golden = golden();
    let mut known: Vec<&str> = golden["rules"].as_object().unwrap().keys().map(String::as_str).collect();
    let mut tested: Vec<&str> = rules().iter().map(|case| case.0).collect();
    known.sort_unstable();
    tested.sort_unstable();
    assert_eq!(known, tested);
    for (name, rule, rate, decay) in rules() {
        let parameters = parameters()?;
        let mut optimizer =
            Optimizer::new(rule.clone(), parameters.clone(), rate)?.with_weight_decay(decay)?;
        for step in 1..=12 {
            // Each parameter counts its own steps.
            let late = name.ends_with("_late") && step < 4;
            let mut gradients = gradients(if late { &parameters[..1] } else { &parameters })?;
            if name == "sgd_clipped" {
                gradients = clip_gradient_norm(gradients, 0.5)?;
            }
            if step == 3 || step == 6 {
                // A saved and loaded optimiser continues as before.
                let state = optimizer.state()?;
                optimizer =
                    Optimizer::new(rule.clone(), parameters.clone(), rate)?.with_weight_decay(decay)?;
                optimizer.load_state(&state)?;
            }
            optimizer.step(gradients, &[])?;
            let Some(expected) = golden["rules"][name].get(step.to_string()) else { continue };
            for (i, parameter) in parameters.iter().enumerate() {
                for (found, expected) in values(parameter).iter().zip(numbers(&expected[i])) {
                    // PyTorch keeps NAdam's product of momenta in float32. NaN never passes the comparison.
                    let tolerance = if name.starts_with("nadam") { 1e-7 } else { 1e-12 };
                    let close = (found - expected).abs() <= tolerance * (1.0 + expected.abs());
                    assert!(close, "{name}, step {step}, parameter {i}: {found} is not {expected}");
                }
            }
        }
        assert_eq!(optimizer.steps(), 12);
    }
    Ok(())
}

/// AdaMax of Kingma and Ba (2014, algorithm 2) with PyTorch's epsilon; AdaBound of the reference implementation by Luo
/// et al. (2019).
#[test]
fn adamax_and_adabound_take_the_steps_of_their_formulas() -> Result<()> {
    let cases = [
        (Rule::adamax(), 0.05, 0.0),
        (Rule::AdaMax { beta1: 0.8, beta2: 0.95, epsilon: 1e-3 }, 0.1, 0.1),
        (Rule::adabound(), 0.05, 0.0),
        (Rule::AdaBound { beta1: 0.8, beta2: 0.95, epsilon: 1e-3, final_rate: 0.02, gamma: 0.3 }, 0.1, 0.1),
    ];
    for (rule, rate, decay) in cases {
        let parameters = parameters()?;
        let mut optimizer =
            Optimizer::new(rule.clone(), parameters.clone(), rate)?.with_weight_decay(decay)?;
        let mut expected: Vec<Vec<f64>> = parameters.iter().map(values).collect();
        let mut states: Vec<Vec<[f64; 2]>> = expected.iter().map(|p| vec![[0.0; 2]; p.len()]).collect();
        for t in 1..=12 {
            // A schedule lowers the rate, and AdaBound's bounds with it.
            let share = if t > 6 { 0.25 } else { 1.0 };
            let rate = rate * share;
            optimizer.set_learning_rate(rate)?;
            optimizer.step(gradients(&parameters)?, &[])?;
            for (numbers, states) in expected.iter_mut().zip(&mut states) {
                for (i, (p, [m, v])) in numbers.iter_mut().zip(states).enumerate() {
                    let i = i as f64;
                    let g = (1.0 + i.cos()) * (*p - (2.0 * i).sin()) + decay * *p;
                    *p -= match rule {
                        Rule::AdaMax { beta1, beta2, epsilon } => {
                            *m = beta1 * *m + (1.0 - beta1) * g;
                            *v = (beta2 * *v).max(g.abs() + epsilon);
                            rate / (1.0 - beta1.powi(t)) * *m / *v
                        }
                        Rule::AdaBound { beta1, beta2, epsilon, final_rate, gamma } => {
                            *m = beta1 * *m + (1.0 - beta1) * g;
                            *v = beta2 * *v + (1.0 - beta2) * g * g;
                            let final_rate = final_rate * share;
                            let (low, high) = (
                                final_rate * (1.0 - 1.0 / (gamma * f64::from(t) + 1.0)),
                                final_rate * (1.0 + 1.0 / (gamma * f64::from(t))),
                            );
                            let corrected = rate * (1.0 - beta2.powi(t)).sqrt() / (1.0 - beta1.powi(t));
                            (corrected / (v.sqrt() + epsilon)).clamp(low, high) * *m
                        }
                        _ => unreachable!(),
                    };
                }
            }
            for (parameter, expected) in parameters.iter().zip(&expected) {
                for (found, expected) in values(parameter).iter().zip(expected) {
                    let close = (found - expected).abs() <= 1e-12 * (1.0 + expected.abs());
                    assert!(close, "{rule:?} after {t} steps: {found} is not {expected}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn schedules_are_those_of_pytorch() {
    let golden = golden();
    let compare = |name: &str, found: &[f64]| {
        let expected = numbers(&golden["schedules"][name]);
        assert_eq!(found.len(), expected.len(), "{name}");
        for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert!((found - expected).abs() <= 1e-12, "{name}, step {step}: {found} is not {expected}");
        }
    };
    let rates = |schedule: &Schedule, count: u64, per_epoch: u64| -> Vec<f64> {
        (0..count).map(|s| schedule.at_step(s, per_epoch, count / per_epoch).unwrap()).collect()
    };
    compare("step", &rates(&Schedule::Step { initial: 0.4, epochs: 2, factor: 0.3 }, 9, 1));
    let cosine = |warmup| Schedule::Cosine { initial: 0.4, final_rate: 0.01, warmup };
    compare("cosine", &rates(&cosine(0), 20, 5));
    compare("warm_cosine", &rates(&cosine(5), 20, 4));
    compare("one_cycle", &rates(&Schedule::OneCycle { peak: 0.4, rise: 0.3 }, 20, 4));
    compare("one_cycle_quarter", &rates(&Schedule::OneCycle { peak: 0.4, rise: 0.25 }, 18, 3));
    let warmup = |then| Schedule::Warmup { rate: 0.4, steps: 5, then: Box::new(then) };
    // Afterwards the rate does not change.
    let rise: Vec<f64> =
        (0..10).map(|s| warmup(Schedule::Constant).at_step(s, 5, 2).unwrap_or(0.4)).collect();
    assert!(warmup(Schedule::Constant).at_step(5, 5, 2).is_none());
    compare("warmup", &rise);
    let warm_step = warmup(Schedule::Step { initial: 0.4, epochs: 2, factor: 0.5 });
    let expected = [0.08, 0.4, 0.4, 0.2].map(Some);
    assert_eq!([0, 4, 11, 12].map(|s| warm_step.at_step(s, 6, 10)), expected);
    let plateau = Schedule::Plateau { factor: 0.5, patience: 2, minimum: 0.06 };
    let (mut rate, mut best, mut since) = (0.4, f64::INFINITY, 0);
    let mut found = Vec::new();
    for score in numbers(&golden["scores"]) {
        found.push(rate);
        since = if score < best { 0 } else { since + 1 };
        best = best.min(score);
        rate = plateau.after_epoch(rate, since);
    }
    compare("plateau", &found);
    // A rate below the minimum is not raised, not even after a warm-up.
    assert_eq!(plateau.after_epoch(0.05, 3), 0.05);
    let warm = warmup(plateau);
    assert_eq!(
        (warm.after_epoch(0.4, 3), warm.after_epoch(0.05, 3), warm.at_step(5, 5, 2)),
        (0.2, 0.05, None)
    );
    // The rate of an epoch holds for each of its steps.
    let step = Schedule::Step { initial: 1.0, epochs: 2, factor: 0.5 };
    assert_eq!([0, 19, 20, 40].map(|s| step.at_step(s, 10, 10)), [1.0, 1.0, 0.5, 0.25].map(Some));
}

#[test]
fn a_step_whose_condition_is_false_changes_nothing() -> Result<()> {
    for (name, rule, rate, decay) in rules() {
        let parameters = parameters()?;
        let mut optimizer = Optimizer::new(rule, parameters.clone(), rate)?.with_weight_decay(decay)?;
        // A skipped first step leaves no state.
        let never = Tensor::scalar(false, device())?;
        assert!(!optimizer.step_if(&never, gradients(&parameters)?, &[])?, "{name}");
        let none = optimizer.state()?;
        assert_eq!(none.keys().collect::<Vec<_>>(), ["steps"], "{name}");
        optimizer.load_state(&none)?;
        optimizer.step(gradients(&parameters)?, &[])?;
        let before: Vec<Vec<f64>> = parameters.iter().map(values).collect();
        let state = |optimizer: &Optimizer| -> Vec<(String, Vec<f64>)> {
            let state = optimizer.state().unwrap().into_iter();
            state.map(|(name, x)| (name, x.to_dtype(DType::F64).unwrap().to_vec().unwrap())).collect()
        };
        let state_before = state(&optimizer);
        let bad = loss(&parameters)?.mul_scalar(f64::NAN)?;
        let finite = bad.detach()?.isfinite()?;
        assert!(!optimizer.step_if(&finite, bad.leaf_gradients()?, &[&bad])?, "{name}");
        assert_eq!(parameters.iter().map(values).collect::<Vec<_>>(), before, "{name}");
        assert_eq!(state(&optimizer), state_before, "{name}");
        assert_eq!(optimizer.steps(), 1, "{name}");
        // A true condition does take the step.
        let good = loss(&parameters)?;
        let finite = good.detach()?.isfinite()?;
        assert!(optimizer.step_if(&finite, good.leaf_gradients()?, &[&good])?, "{name}");
        assert_ne!(parameters.iter().map(values).collect::<Vec<_>>(), before, "{name}");
        assert!(optimizer.step_if(&good, gradients(&parameters)?, &[]).is_err(), "a loss is no condition");
    }
    Ok(())
}

#[test]
fn frozen_parameters_stay_and_have_no_state() -> Result<()> {
    let parameters = parameters()?;
    parameters[0].set_trainable(false);
    let before = values(&parameters[0]);
    let mut optimizer = Optimizer::new(Rule::adam(), parameters.clone(), 0.1)?;
    optimizer.step(gradients(&parameters)?, &[])?;
    assert_eq!(values(&parameters[0]), before);
    assert_eq!(
        optimizer.state()?.keys().collect::<Vec<_>>(),
        ["1.exp_avg", "1.exp_avg_sq", "1.step", "steps"]
    );
    parameters[0].set_trainable(true);
    optimizer.step(gradients(&parameters)?, &[])?;
    assert_ne!(values(&parameters[0]), before);
    Ok(())
}

#[test]
fn groups_have_rates_in_proportion() -> Result<()> {
    let parameters = parameters()?;
    let mut optimizer = Optimizer::new(Rule::sgd(), parameters[..1].to_vec(), 0.1)?;
    optimizer.add_group(parameters[1..].to_vec(), 0.5, 0.0)?;
    optimizer.set_learning_rate(0.2)?;
    let before: Vec<Vec<f64>> = parameters.iter().map(values).collect();
    let gradients = gradients(&parameters)?;
    let derivatives: Vec<Vec<f64>> =
        parameters.iter().map(|p| gradients.get(&p.tensor()).unwrap().to_vec().unwrap()).collect();
    optimizer.step(gradients, &[])?;
    for (i, rate) in [0.2, 0.1].into_iter().enumerate() {
        for ((after, before), derivative) in
            values(&parameters[i]).iter().zip(&before[i]).zip(&derivatives[i])
        {
            assert!((after - (before - rate * derivative)).abs() < 1e-14);
        }
    }
    assert!(optimizer.add_group(parameters[..1].to_vec(), 1.0, 0.0).is_err(), "a parameter twice");
    Ok(())
}

#[test]
fn clipping_limits_norm_and_values() -> Result<()> {
    let parameters = parameters()?;
    let norm = |g: &Gradients| -> f64 {
        g.iter().flat_map(|g| g.to_vec::<f64>().unwrap()).map(|x| x * x).sum::<f64>().sqrt()
    };
    let free = norm(&gradients(&parameters)?);
    assert!(free > 1.0);
    assert!((norm(&clip_gradient_norm(gradients(&parameters)?, 0.25)?) - 0.25).abs() < 1e-6);
    assert_eq!(norm(&clip_gradient_norm(gradients(&parameters)?, 1e3)?), free);
    for gradient in clip_gradient_value(gradients(&parameters)?, 0.3)?.iter() {
        assert!(gradient.to_vec::<f64>()?.iter().all(|x| x.abs() <= 0.3));
    }
    for limit in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(clip_gradient_norm(gradients(&parameters)?, limit).is_err());
        assert!(clip_gradient_value(gradients(&parameters)?, limit).is_err());
    }
    Ok(())
}

#[test]
fn a_rule_is_found_by_its_name_and_checks_each_setting() -> Result<()> {
    assert_eq!(Rule::NAMES.len(), Rule::ALL.len());
    for (rule, name) in Rule::ALL.iter().zip(Rule::NAMES) {
        assert_eq!(Rule::named(name).as_ref(), Some(rule));
        assert_eq!(Rule::named(rule.name()).as_ref(), Some(rule));
        for setting in rule.settings() {
            let changed = rule.clone().with(|name| (name == setting.name).then_some(-1.0));
            match Optimizer::new(changed, parameters()?, 0.1) {
                Ok(_) => assert!(["amsgrad", "centered"].contains(&setting.name), "{name}: {setting:?}"),
                // A switch that needs another setting.
                Err(_) if setting.name == "nesterov" => {}
                Err(error) => {
                    let start = format!("{}: {} is -1, it must be", rule.name(), setting.name);
                    assert!(error.to_string().starts_with(&start), "{error}");
                }
            }
        }
    }
    assert_eq!(Rule::named("none"), None);
    Ok(())
}

#[test]
fn settings_and_states_that_do_not_fit_are_errors() -> Result<()> {
    let make = |rule| Optimizer::new(rule, parameters()?, 0.1);
    assert!(make(Rule::nesterov(0.0)).is_err());
    assert!(make(Rule::momentum(f64::NAN)).is_err());
    assert!(make(Rule::Sgd { momentum: 0.9, dampening: 0.1, nesterov: true }).is_err());
    assert!(make(Rule::Adam { beta1: 1.0, beta2: 0.9, epsilon: 1e-8, amsgrad: false }).is_err());
    assert!(make(Rule::NAdam { beta1: 0.9, beta2: 0.9, epsilon: 1e-8, momentum_decay: -1.0 }).is_err());
    assert!(Optimizer::new(Rule::adam(), vec![], 0.1).is_err());
    assert!(Optimizer::new(Rule::adam(), parameters()?, f64::NAN).is_err());
    let parameters = parameters()?;
    let mut adam = Optimizer::new(Rule::adam(), parameters.clone(), 0.1)?;
    adam.step(gradients(&parameters)?, &[])?;
    let state = adam.state()?;
    let with = |name: &str, value: Option<Tensor>| {
        let mut wrong = state.clone();
        match value {
            Some(value) => wrong.insert(name.to_owned(), value),
            None => wrong.remove(name),
        };
        wrong
    };
    let number = |x: f64| Tensor::scalar(x, device());
    for wrong in [
        with("0.exp_avg", None),
        with("0.exp_avg", Some(state["1.exp_avg"].clone())),
        with("0.step", None),
        with("0.step", Some(number(1.5)?)),
        with("0.step", Some(number(-1.0)?)),
        with("0.step", Some(number(f64::NAN)?)),
        with("0.step", Some(state["0.exp_avg"].clone())),
        with("steps", None),
        with("2.step", Some(number(1.0)?)),
    ] {
        assert!(adam.load_state(&wrong).is_err(), "{:?}", wrong.keys());
        assert_eq!(adam.steps(), 1);
        assert_eq!(adam.state()?["0.exp_avg"].to_vec::<f64>()?, state["0.exp_avg"].to_vec::<f64>()?);
    }
    // PyTorch keeps the count as a float.
    adam.load_state(&with("0.step", Some(number(7.0)?)))?;
    assert_eq!(adam.state()?["0.step"].item::<i64>()?, 7);
    // Adam's state means nothing to SGD.
    assert!(make(Rule::sgd())?.load_state(&state).is_err());
    Ok(())
}

#[test]
fn steps_left_out_on_the_device_count_for_no_rule() -> Result<()> {
    let condition = |value: bool| Tensor::scalar(value, device());
    for (name, rule, rate, decay) in rules() {
        let (mine, theirs) = (parameters()?, parameters()?);
        let mut conditional = Optimizer::new(rule.clone(), mine.clone(), rate)?.with_weight_decay(decay)?;
        let mut plain = Optimizer::new(rule, theirs.clone(), rate)?.with_weight_decay(decay)?;
        for (step, taken) in [false, true, false, true, true, true, true, true, true].into_iter().enumerate()
        {
            // Parameters have separate histories, and counts are read midway.
            let first = if step < 4 { 1 } else { 2 };
            conditional.step_where(&condition(taken)?, gradients(&mine[..first])?, &[])?;
            if taken {
                plain.step(gradients(&theirs[..first])?, &[])?;
            }
            if step == 6 {
                conditional.settle()?;
            }
        }
        for (mine, theirs) in mine.iter().zip(&theirs) {
            for (found, expected) in values(mine).iter().zip(values(theirs)) {
                assert!((found - expected).abs() < 1e-12, "{name}: {found} is not {expected}");
            }
        }
        let count = |optimizer: &Optimizer, name: &str| -> Result<Option<i64>> {
            Ok(optimizer.state()?.get(name).map(Tensor::item::<i64>).transpose()?)
        };
        for key in ["steps", "0.step", "1.step"] {
            assert_eq!(count(&conditional, key)?, count(&plain, key)?, "{name}: {key}");
        }
        conditional.settle()?;
        assert_eq!(conditional.steps(), 7);
    }
    Ok(())
}

#[test]
fn parameters_on_two_devices_step_and_are_clipped_together() -> Result<()> {
    for (name, rule, rate, decay) in rules() {
        let (mine, theirs) = (parameters()?, parameters()?);
        mine[1].convert_to(mine[1].tensor().to_device(reference_device())?)?;
        let here = |parameters: &[Parameter]| -> Result<Gradients> {
            let copies: Vec<Tensor> =
                parameters.iter().map(|p| Ok(p.leaf()?.to_device(device())?)).collect::<Result<_>>()?;
            let sum = copies.iter().try_fold(Tensor::scalar(0.0, device())?, |sum, copy| {
                sum.add(&copy.square()?.sum(&[], false)?)
            })?;
            clip_gradient_norm(sum.leaf_gradients()?, 2.0)
        };
        for parameters in [&mine, &theirs] {
            let mut optimizer =
                Optimizer::new(rule.clone(), parameters.clone(), rate)?.with_weight_decay(decay)?;
            optimizer.step(here(parameters)?, &[])?;
            optimizer.step_where(&Tensor::scalar(false, device())?, here(parameters)?, &[])?;
            assert!(optimizer.step_if(&Tensor::scalar(true, device())?, here(parameters)?, &[])?);
        }
        assert_eq!(mine[1].tensor().device(), reference_device());
        for (mine, theirs) in mine.iter().zip(&theirs) {
            for (found, expected) in values(mine).iter().zip(values(theirs)) {
                assert!((found - expected).abs() < 1e-12, "{name}: {found} is not {expected}");
            }
        }
    }
    Ok(())
}

#[test]
fn numbers_of_a_step_keep_their_precision_beside_16_bit_parameters() -> Result<()> {
    let reference = reference_device();
    let full = |value: f64| Tensor::full(&[3], value, DType::F16, reference);
    let p = Parameter::new(&full(0.0)?)?;
    // 1e-8 is 0 as float16.
    let mut optimizer = Optimizer::new(Rule::sgd(), vec![p.clone()], 1e-8)?;
    let loss = p.leaf()?.mul(&full(30_000.0)?)?.sum(&[], false)?;
    optimizer.step(loss.leaf_gradients()?, &[])?;
    for found in p.tensor().to_vec::<half::f16>()? {
        assert!((f64::from(found) + 3e-4).abs() < 3e-7, "{found}");
    }
    // A changed decay is data; 0.999 must not round to 1.
    let p = Parameter::new(&Tensor::full(&[3], 1.0, DType::BF16, reference)?)?;
    let rule = |beta2| Rule::Adam { beta1: 0.0, beta2, epsilon: 0.0, amsgrad: false };
    let mut optimizer = Optimizer::new(rule(0.9), vec![p.clone()], 0.5)?;
    optimizer.set_rule(0, rule(0.999))?;
    let loss = p.leaf()?.sum(&[], false)?;
    optimizer.step(loss.leaf_gradients()?, &[])?;
    // The mean of squares is 0.001, corrected by 1 - 0.999: the step is the rate.
    assert_eq!(p.tensor().to_vec::<half::bf16>()?, [half::bf16::from_f64(0.5); 3]);
    Ok(())
}
