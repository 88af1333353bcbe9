//! A repeated training step reuses its plan: nothing is scheduled or compiled twice.

use neurenix::{
    Result,
    nn::*,
    optim::{Optimizer, Rule},
};
use phynexus::{DType, Device, schedule::plan_statistics, tensor::Generator};

/// The number of plans built while `work` ran.
fn plans_made(work: impl FnOnce() -> Result<()>) -> Result<u64> {
    let before = plan_statistics().1;
    work()?;
    Ok(plan_statistics().1 - before)
}

#[test]
fn a_repeated_step_makes_no_plan() -> Result<()> {
    neurenix::register_all();
    let d = Device::default_device()?;
    let g = Generator::new(3);
    let inputs = g.randn(&[8, 6], DType::F32, d)?.evaluated()?;
    let targets = g.randint(0, 3, &[8], DType::I64, d)?.evaluated()?;
    let rules = [
        Rule::sgd(),
        Rule::nesterov(0.9),
        Rule::Sgd { momentum: 0.9, dampening: 0.2, nesterov: false },
        Rule::adam(),
        Rule::Adam { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, amsgrad: true },
        Rule::adamw(),
        Rule::nadam(),
        Rule::radam(),
        Rule::RmsProp { alpha: 0.99, epsilon: 1e-8, momentum: 0.9, centered: true },
        Rule::Adagrad { learning_rate_decay: 0.1, epsilon: 1e-10 },
        Rule::adadelta(),
        Rule::lion(),
    ];
    // Such a layer divides by the number of batches, which changes too.
    let options = BatchNormOptions { momentum: None, ..BatchNormOptions::default() };
    for rule in rules {
        let model = Sequential::new()
            .with(Linear::new(6, 16, true, d, &g)?)
            .with(BatchNorm1d::new(16, options, d)?)
            .with(activation::relu())
            .with(Dropout::new(0.5)?)
            .with(Linear::new(16, 3, true, d, &g)?);
        let name = rule.name();
        let mut optimizer = Optimizer::new(rule, model.parameters(), 1e-3)?.with_weight_decay(0.01)?;
        let mut step = |i: u32| -> Result<()> {
            optimizer.set_learning_rate(1e-3 / f64::from(i + 1))?;
            let loss = model.forward(&inputs)?.cross_entropy(&targets, None, 0.0)?;
            optimizer.step(loss.leaf_gradients()?, &[&loss])
        };
        // In the first step the optimiser state is constants; the second step is like all later ones.
        (0..2).try_for_each(&mut step)?;
        let made = plans_made(|| (2..12).try_for_each(&mut step))?;
        assert_eq!(made, 0, "{name} makes plans again");
    }
    Ok(())
}
