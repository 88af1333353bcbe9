//! Learning rates by the formulas of their schedules, in runs too; stopping early.

use std::f64::consts::PI;

use rnn::{
    EarlyStopping, LearningRateSchedule, LearningRateScheduler, Optimizer, Precision, Result, TrainingConfig,
};

use super::{close, dense_gradients, epochs, flat, linear, numbers};

/// The rates before the first step and after each of so many, which are steps and epochs alike.
fn rates(scheduler: &mut LearningRateScheduler, count: usize) -> Vec<f64> {
    let mut rates = vec![scheduler.get_lr()];
    for _ in 0..count {
        scheduler.step();
        scheduler.epoch(1.0);
        rates.push(scheduler.get_lr());
    }
    rates
}

/// The rate of the cycle that is half as high each time, as in Smith (2017).
fn triangular2(base: f64, most: f64, up: f64, done: usize) -> f64 {
    let cycle = (1.0 + done as f64 / (2.0 * up)).floor();
    let place = (done as f64 / up - 2.0 * cycle + 1.0).abs();
    base + (most - base) * (1.0 - place).max(0.0) / 2f64.powf(cycle - 1.0)
}

/// The rate of one cycle of half cosines, by PyTorch's definition.
fn one_cycle(most: f64, total: usize, share_up: f64, done: usize) -> f64 {
    let (first, last) = (most / 25.0, most / 25.0 / 1e4);
    let (top, end) = (share_up * total as f64 - 1.0, (total - 1) as f64);
    let half_cosine = |from: f64, to: f64, share: f64| to + (from - to) / 2.0 * (1.0 + (PI * share).cos());
    match (done as f64).min(end) {
        at if at <= top => half_cosine(first, most, at / top),
        at => half_cosine(most, last, (at - top) / (end - top)),
    }
}

fn cyclic(step_size_up: usize) -> LearningRateSchedule {
    LearningRateSchedule::CyclicLR { base_lr: 0.1, max_lr: 0.9, step_size_up, mode: "triangular2".to_owned() }
}

fn cosine_cycle(total_steps: usize, pct_start: f64) -> LearningRateSchedule {
    LearningRateSchedule::OneCycleLR {
        max_lr: 0.5,
        total_steps,
        pct_start,
        anneal_strategy: "cos".to_owned(),
    }
}

#[test]
fn cycles_are_half_as_high_each_time() -> Result<()> {
    for up in [1, 3, 4] {
        let mut scheduler = LearningRateScheduler::new(cyclic(up), 7.0, 1)?;
        let expected: Vec<f64> = (0..=30).map(|done| triangular2(0.1, 0.9, up as f64, done)).collect();
        close(&rates(&mut scheduler, 30), &expected, 1e-12, &format!("{up} steps up"));
    }
    // The tops of three cycles.
    let mut scheduler = LearningRateScheduler::new(cyclic(2), 7.0, 1)?;
    let found = rates(&mut scheduler, 12);
    close(&[found[2], found[6], found[10], found[12]], &[0.9, 0.5, 0.3, 0.1], 1e-12, "tops");
    Ok(())
}

#[test]
fn one_cycle_goes_by_half_cosines() -> Result<()> {
    for (total, share_up) in [(10, 0.4), (20, 0.33), (7, 0.9)] {
        let mut scheduler = LearningRateScheduler::new(cosine_cycle(total, share_up), 7.0, 1)?;
        let expected: Vec<f64> = (0..=25).map(|done| one_cycle(0.5, total, share_up, done)).collect();
        close(&rates(&mut scheduler, 25), &expected, 1e-12, &format!("{share_up} of {total} steps up"));
    }
    Ok(())
}

#[test]
fn a_schedule_begins_anew() -> Result<()> {
    let plateau = LearningRateSchedule::ReduceOnPlateau { factor: 0.5, patience: 1, min_lr: 0.01 };
    for (schedule, first) in [
        (LearningRateSchedule::StepDecay { step_size: 2, gamma: 0.5 }, 0.3),
        (LearningRateSchedule::ExponentialDecay { gamma: 0.5 }, 0.3),
        (LearningRateSchedule::CosineAnnealing { t_max: 4, eta_min: 0.1 }, 0.3),
        (plateau, 0.3),
        (LearningRateSchedule::PolynomialDecay { power: 2.0, end_lr: 0.1 }, 0.3),
        (cyclic(3), 0.1),
        (cosine_cycle(10, 0.4), 0.02),
    ] {
        let what = format!("{schedule:?}");
        let mut scheduler = LearningRateScheduler::new(schedule, 0.3, 6)?;
        let before = rates(&mut scheduler, 5);
        assert!((before[0] - first).abs() < 1e-12, "{what}: {before:?}");
        assert_ne!(before[5], before[0], "{what}");
        scheduler.reset();
        assert_eq!(rates(&mut scheduler, 5), before, "{what}");
    }
    Ok(())
}

#[test]
fn steps_of_a_run_have_the_rates_of_the_schedule() -> Result<()> {
    let (x, y) = (numbers(20, 3, 1), numbers(20, 2, 2));
    let build = || linear(3, 2)?.optimizer(Optimizer::sgd(0.3)?).precision(Precision::Float64).build();
    let mut network = build()?;
    let mut weights = network.get_weights()?;
    for done in 0..6 {
        let gradients = dense_gradients(&x, &weights[0], &weights[1], &y);
        for (weight, gradient) in weights.iter_mut().zip(&gradients) {
            *weight -= &(gradient * one_cycle(0.5, 6, 0.5, done));
        }
    }
    let config = TrainingConfig { lr_schedule: Some(cosine_cycle(6, 0.5)), ..epochs(6) };
    network.train(&x, &y, &config)?;
    for (found, expected) in network.get_weights()?.iter().zip(&weights) {
        close(&flat(found), &flat(expected), 1e-9, "one cycle");
    }
    // Five steps an epoch, of which the history keeps the last one's rate.
    let config = TrainingConfig { lr_schedule: Some(cyclic(3)), batch_size: 4, ..epochs(4) };
    let history = build()?.train(&x, &y, &config)?;
    let expected = [4, 9, 14, 19].map(|done| triangular2(0.1, 0.9, 3.0, done));
    close(&history.learning_rate, &expected, 1e-12, "rates of the history");
    Ok(())
}

#[test]
fn early_stopping_knows_the_best_score() {
    let mut stopping = EarlyStopping::new(10, 0.5);
    assert!(!stopping.is_best() && stopping.best_score() == f64::INFINITY);
    // Not a number is no score; a gain of 0.5 at most is none.
    for (score, best, is_best) in [
        (f64::NAN, f64::INFINITY, false),
        (3.0, 3.0, true),
        (2.75, 3.0, false),
        (2.0, 2.0, true),
        (f64::NAN, 2.0, false),
        (2.5, 2.0, false),
        (-1.0, -1.0, true),
    ] {
        assert!(!stopping.should_stop(score));
        assert_eq!((stopping.best_score(), stopping.is_best()), (best, is_best), "after {score}");
    }
    stopping.reset();
    assert!(!stopping.is_best() && stopping.best_score() == f64::INFINITY);
    assert!(!stopping.should_stop(5.0));
    assert_eq!((stopping.best_score(), stopping.is_best()), (5.0, true));
    // It waits as long as at first.
    let mut stopping = EarlyStopping::new(3, 0.0);
    let until_end = |stopping: &mut EarlyStopping| (0..20).position(|_| stopping.should_stop(1.0));
    let first = until_end(&mut stopping);
    stopping.reset();
    assert!(first.is_some());
    assert_eq!(until_end(&mut stopping), first);
}
