//! A repeated training step reuses its plan: nothing is scheduled or compiled twice. Nor is a step that only differs in
//! its numbers, after the second.

use std::sync::{Mutex, PoisonError};

use neurenix::{
    Result,
    nn::*,
    optim::{Optimizer, Rule},
};
use phynexus::{
    DType, Device, Scalar, Tensor,
    gradient::Gradients,
    schedule::{capture::Captured, explain, plan_statistics},
    tensor::Generator,
};

/// The statistics are those of the process.
static ALONE: Mutex<()> = Mutex::new(());

/// The number of plans built while `work` ran.
fn plans_made(work: impl FnOnce() -> Result<()>) -> Result<u64> {
    let before = plan_statistics().1;
    work()?;
    Ok(plan_statistics().1 - before)
}

#[test]
fn a_repeated_step_makes_no_plan() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Every value of `number` gives what a plan with it built in gives. At most two plans are made.
fn one_plan(dtype: DType, function: impl Fn(&Tensor, f64) -> Result<Tensor>) -> Result<()> {
    let d = Device::default_device()?;
    let x = Generator::new(5).randint(1, 100, &[3, 70], DType::I32, d)?.to_dtype(dtype)?;
    let x = if dtype.is_float() { x.div_scalar(7.0)? } else { x }.evaluated()?;
    let mut values = Vec::new();
    let made = plans_made(|| {
        for number in 3..203 {
            let number = if dtype.is_float() { f64::from(number) * 0.37 } else { f64::from(number % 90 + 3) };
            values.push((number, function(&x, number)?.to_bytes()?));
        }
        Ok(())
    })?;
    assert!(made <= 2, "{dtype}: {made} plans");
    for (number, expected) in values {
        let captured =
            Captured::new(|given: &[Tensor], _: &[Tensor]| function(&given[0], number).map(|y| vec![y]));
        let built_in = captured.call(&mut vec![x.clone()], &[])?;
        assert_eq!(built_in[0].to_bytes()?, expected, "{dtype}, {number}");
    }
    Ok(())
}

#[test]
fn a_number_that_changes_makes_no_plan() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    neurenix::register_all();
    for dtype in DType::FLOATS {
        one_plan(dtype, |x, k| Ok(x.mul_scalar(k)?.add(x)?.exp()?))?;
        one_plan(dtype, |x, k| Ok(x.rdiv_scalar(k)?.pow_scalar(k)?.sum(&[1], true)?))?;
        one_plan(dtype, |x, k| Ok(x.full_like(k)?.softmax(1)?.add(&x.lt_scalar(k)?)?))?;
        one_plan(dtype, |x, k| Ok(x.clamp(Some(Scalar::Float(k / 2.0)), Some(Scalar::Float(k)))?))?;
    }
    for dtype in [DType::I8, DType::U16, DType::I32, DType::U64, DType::I64] {
        let whole = |k: f64| Scalar::Int(k as i64);
        one_plan(dtype, |x, k| Ok(x.mul_scalar(whole(k))?.add_scalar(whole(k))?))?;
        one_plan(dtype, |x, k| Ok(x.remainder_scalar(whole(k))?.floor_divide_scalar(whole(k))?))?;
        one_plan(dtype, |x, k| Ok(x.maximum_scalar(whole(k))?.sort(1, false)?.0))?;
    }
    Ok(())
}

#[test]
fn numbers_that_vary_are_results_of_their_own() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    neurenix::register_all();
    let d = Device::default_device()?;
    let mut kept = Vec::new();
    for k in [3.5f32, 4.5, 5.5, 6.5] {
        let x = Tensor::full(&[4, 2], k, DType::F32, d)?;
        let y = x.mul_scalar(3.0 * k)?;
        let turned = x.permute(&[1, 0])?;
        let plan = explain(&y)?.map(|plan| plan.to_string()).unwrap_or_default();
        assert_eq!(plan.contains("may change from run to run"), k > 3.5, "{plan}");
        y.evaluate()?;
        // A result is memory of its own: an update of it changes nothing else.
        assert!(
            x.storage()?.layout.is_contiguous() && turned.contiguous()?.storage()?.layout.is_contiguous()
        );
        kept.push((k, x, y, turned));
    }
    for (k, x, y, turned) in kept {
        assert_eq!(x.to_vec::<f32>()?, [k; 8]);
        assert_eq!(turned.to_vec::<f32>()?, [k; 8]);
        assert_eq!(y.to_vec::<f32>()?, [k * (3.0 * k); 8]);
    }
    Ok(())
}

#[test]
fn numbers_that_decide_algebra_stay_in_the_plan() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    neurenix::register_all();
    let x = Generator::new(6).randn(&[50], DType::F32, Device::default_device()?)?.evaluated()?;
    for k in [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, f64::INFINITY, f64::NAN] {
        let made = plans_made(|| (0..3).try_for_each(|_| Ok(x.add_scalar(k)?.atan()?.evaluate()?)))?;
        assert_eq!(made, 1, "{k}");
    }
    Ok(())
}

/// What `explain` says of the numbers of a plan.
fn slots(y: &Tensor) -> Result<String> {
    let plan = explain(y)?.map(|plan| plan.to_string()).unwrap_or_default();
    let line = plan.lines().find(|line| line.contains("may change from run to run"));
    Ok(line.map(|line| line.trim().to_owned()).unwrap_or_default())
}

#[test]
fn numbers_that_change_later_get_slots_of_their_own() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    neurenix::register_all();
    let x = Generator::new(7).randn(&[31], DType::F32, Device::default_device()?)?.evaluated()?;
    // Three numbers; the first changes in every call, the others later.
    let y = |i: usize| -> Result<(Tensor, [f64; 3])> {
        let k = [3.5 + i as f64, if i < 4 { 4.5 } else { 5.5 + i as f64 }, if i < 8 { 7.5 } else { 8.5 }];
        Ok((x.mul_scalar(k[0])?.add_scalar(k[1])?.sin()?.div_scalar(k[2])?, k))
    };
    let mut seen = Vec::new();
    let made = plans_made(|| {
        for i in 0..12 {
            let (y, k) = y(i)?;
            seen.push(slots(&y)?);
            let expected: Vec<f32> = x
                .to_vec::<f32>()?
                .iter()
                .map(|x| ((x * k[0] as f32 + k[1] as f32).sin()) / k[2] as f32)
                .collect();
            let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-5;
            assert!(y.to_vec::<f32>()?.iter().zip(&expected).all(near), "{i}");
        }
        Ok(())
    })?;
    assert_eq!(made, 4);
    let number = |count: usize| match count {
        0 => String::new(),
        1 => "1 number may change from run to run".to_owned(),
        _ => format!("{count} numbers may change from run to run"),
    };
    let expected = [0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3].map(number);
    assert_eq!(seen, expected);
    Ok(())
}

#[test]
fn equal_numbers_share_a_slot() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    neurenix::register_all();
    let (d, g) = (Device::default_device()?, Generator::new(8));
    let w = g.randn(&[5, 5], DType::F32, d)?.evaluated()?;
    let start = g.randn(&[3, 5], DType::F32, d)?.evaluated()?;
    let solve = |h: [f64; 2]| -> Result<Tensor> {
        let mut x = start.clone();
        for i in 0..8 {
            x = x.add(&x.matmul(&w)?.mul_scalar(h[i % 2])?)?;
        }
        Ok(x)
    };
    for (h, expected) in [
        ([0.01, 0.01], ""),
        ([0.03, 0.03], "1 number may change from run to run"),
        ([0.07, 0.07], "1 number may change from run to run"),
        // They are not the same number after all.
        ([0.01, 0.02], "2 numbers may change from run to run"),
        ([0.03, 0.05], "2 numbers may change from run to run"),
    ] {
        let x = solve(h)?;
        assert_eq!(slots(&x)?, expected, "{h:?}");
        let captured = Captured::new(|_: &[Tensor], _: &[Tensor]| solve(h).map(|x| vec![x]));
        assert_eq!(x.to_bytes()?, captured.call(&mut Vec::new(), &[])?[0].to_bytes()?, "{h:?}");
    }
    Ok(())
}

#[test]
fn fixed_numbers_in_two_places_keep_their_plans() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    neurenix::register_all();
    let x = Generator::new(9).randn(&[37], DType::F32, Device::default_device()?)?.evaluated()?;
    let made = plans_made(|| {
        for i in 0..6 {
            let y = x.mul_scalar(if i % 2 == 0 { 0.1 } else { 0.3 })?.cosh()?;
            assert_eq!(slots(&y)?.is_empty(), i % 2 == 0, "{i}");
            y.evaluate()?;
        }
        Ok(())
    })?;
    assert_eq!(made, 2);
    Ok(())
}

#[test]
fn gradients_and_small_shapes_have_slots_too() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    neurenix::register_all();
    let d = Device::default_device()?;
    for shape in [&[][..], &[0], &[1], &[2, 3]] {
        for dtype in DType::FLOATS {
            let x = Generator::new(10).rand(shape, dtype, d)?.add_scalar(1)?.evaluated()?;
            let gradient = |k: f64| -> Result<Tensor> {
                let leaf = x.with_grad()?;
                let loss = leaf.pow_scalar(k)?.mul_scalar(k)?.sum(&[], false)?;
                loss.backward()?;
                Ok(leaf.grad().expect("a gradient"))
            };
            let made = plans_made(|| {
                for k in [3.0, 3.25, 5.0, 7.75] {
                    let captured = Captured::new(|_: &[Tensor], _: &[Tensor]| gradient(k).map(|g| vec![g]));
                    let built_in = captured.call(&mut Vec::new(), &[])?[0].to_bytes()?;
                    assert_eq!(gradient(k)?.to_bytes()?, built_in, "{dtype} {shape:?} {k}");
                }
                Ok(())
            })?;
            assert!(made <= 2, "{dtype} {shape:?}: {made} plans");
        }
    }
    Ok(())
}

#[test]
fn a_number_repeated_is_a_result_like_any_other() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    neurenix::register_all();
    let d = Device::default_device()?;
    for k in [3.5f32, 4.5, 5.5] {
        let full = || Tensor::full(&[4, 2], k, DType::F32, d);
        let results =
            [full()?.mul_scalar(1.0)?, full()?.neg()?.neg()?, full()?.reshape(&[4, 1, 2])?.sum(&[1], false)?];
        for (number, result) in results.iter().enumerate() {
            assert!(result.storage()?.layout.is_contiguous(), "{k}, {number}");
            assert_eq!(result.to_vec::<f32>()?, [k; 8], "{k}, {number}");
        }
        let product = full()?.matmul(&Tensor::full(&[2, 3], 2.0 * k, DType::F32, d)?)?;
        assert_eq!(product.to_vec::<f32>()?, [4.0 * k * k; 12], "{k}");
    }
    Ok(())
}

#[test]
fn running_statistics_are_computed_by_the_step() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    neurenix::register_all();
    let d = Device::default_device()?;
    let g = Generator::new(3);
    let inputs = g.randn(&[8, 6], DType::F32, d)?.evaluated()?;
    let model = Sequential::new().with(Linear::new(6, 4, true, d, &g)?).with(BatchNorm1d::new(
        4,
        BatchNormOptions::default(),
        d,
    )?);
    let mut optimizer = Optimizer::new(Rule::sgd(), model.parameters(), 1e-3)?;
    let pending = || {
        let buffers = model.named_state().into_iter().filter(|(name, ..)| name.contains("running"));
        buffers.filter(|(_, _, buffer)| !buffer.tensor().is_evaluated()).count()
    };
    let plans = || plan_statistics().0 + plan_statistics().1;
    for _ in 0..3 {
        let loss = model.forward(&inputs)?.square()?.sum(&[], false)?;
        let gradients = loss.leaf_gradients()?;
        let before = plans();
        optimizer.step(gradients, &[])?;
        assert_eq!((pending(), plans() - before), (0, 1), "in the step's own plan");
    }
    // Without steps, each pass computes what the one before has left, once.
    let before = plans();
    for _ in 0..3 {
        model.forward(&inputs)?;
    }
    assert_eq!((pending(), plans() - before), (2, 2), "the last pass's statistics are pending");
    // A step that updates nothing leaves them.
    optimizer.step(Gradients::default(), &[])?;
    assert_eq!(pending(), 2);
    let loss = model.forward(&inputs)?.square()?.sum(&[], false)?;
    optimizer.step(loss.leaf_gradients()?, &[])?;
    assert_eq!(pending(), 0);
    Ok(())
}

#[test]
fn a_step_does_not_fail_with_what_follows_another_pass() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    neurenix::register_all();
    let d = Device::default_device()?;
    let buffer = Parameter::buffer(Tensor::zeros(&[1], DType::F32, d)?.evaluated()?);
    buffer.follow_step()?;
    // The index is known to be out of range only when it is read.
    let index = Tensor::from_slice(&[2.0f32], &[1], d)?.evaluated()?.mul_scalar(3.0)?.to_dtype(DType::I64)?;
    buffer.set(Tensor::zeros(&[4], DType::F32, d)?.take(&index, Some(0))?)?;
    let weight = Parameter::new(&Tensor::zeros(&[3], DType::F32, d)?)?;
    let mut optimizer = Optimizer::new(Rule::sgd(), vec![weight.clone()], 1.0)?;
    optimizer.step(weight.leaf()?.sum(&[], false)?.leaf_gradients()?, &[])?;
    assert_eq!(weight.tensor().to_vec::<f32>()?, [-1.0; 3]);
    assert!(buffer.tensor().evaluate().is_err(), "whoever reads it learns of the failure");
    Ok(())
}
