//! A captured function computes the same as the function itself, and its errors are clear.

use neurenix::{nn::*, optim::Rule};
use phynexus::{
    DType, Device, Error, Result, Tensor,
    profile::{Detail, Profiler},
    schedule::capture::Captured,
    tensor::{Generator, GeneratorState},
};

fn device() -> Device {
    neurenix::register_all();
    Device::find("cpu").unwrap()
}

fn vector(values: &[f32]) -> Tensor {
    Tensor::from_slice(values, &[values.len()], device()).unwrap()
}

/// Gradient descent on a small regression.
fn descend(weights: &[Tensor], inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let w = weights[0].with_grad()?;
    let loss = inputs[0].matmul(&w)?.sub(&inputs[1])?.square()?.mean(&[], false)?;
    let mut gradients = loss.leaf_gradients()?;
    let Some(gradient) = gradients.take(&w) else { return Err(Error::argument("test", "no gradient")) };
    Ok(vec![weights[0].sub(&gradient.mul(&inputs[2])?)?, loss])
}

fn batch(i: u64) -> Result<[Tensor; 3]> {
    let g = Generator::new(i);
    let (x, y) = (g.randn(&[8, 3], DType::F32, device())?, g.randn(&[8], DType::F32, device())?);
    Ok([x, y, Tensor::scalar(0.1f32 / (i + 1) as f32, device())?])
}

#[test]
fn steps_are_those_of_the_function() -> Result<()> {
    let step = Captured::new(descend);
    let mut captured = vec![vector(&[1.0, -2.0, 0.5])];
    let mut plain = captured[0].clone();
    for i in 0..6 {
        let batch = batch(i)?;
        let expected = descend(&[plain], &batch)?;
        let results = step.call(&mut captured, &batch)?;
        assert!(captured.is_empty());
        for (result, expected) in results.iter().zip(&expected) {
            assert_eq!(result.to_vec::<f32>()?, expected.to_vec::<f32>()?);
        }
        plain = expected[0].clone();
        captured = results[..1].to_vec();
    }
    Ok(())
}

#[test]
fn what_others_hold_is_not_overwritten() -> Result<()> {
    let step = Captured::new(descend);
    let first = vector(&[1.0, -2.0, 0.5]);
    let batch = batch(1)?;
    for _ in 0..3 {
        step.call(&mut vec![first.clone()], &batch)?;
        // A view shares the memory.
        step.call(&mut vec![first.reshape(&[3, 1])?.reshape(&[3])?], &batch)?;
    }
    assert_eq!(first.to_vec::<f32>()?, [1.0, -2.0, 0.5]);
    Ok(())
}

#[test]
fn constants_of_the_function_stay_what_they_are() -> Result<()> {
    let d = device();
    let step = Captured::new(|_: &[Tensor], x: &[Tensor]| -> Result<Vec<Tensor>> {
        // Only the recording holds this leaf, and the result has its size.
        Ok(vec![Tensor::from_slice(&[1f32, 2.0], &[2], d)?.add(&x[0])?])
    });
    for i in 0..4 {
        let results = step.call(&mut Vec::new(), &[vector(&[i as f32, 10.0])])?;
        assert_eq!(results[0].to_vec::<f32>()?, [1.0 + i as f32, 12.0]);
    }
    Ok(())
}

#[test]
fn random_numbers_go_on() -> Result<()> {
    let (g, other) = (Generator::new(7), Generator::new(7));
    let draw = |g: &Generator| -> Result<Vec<Tensor>> {
        let a = g.rand(&[5], DType::F32, device())?;
        Ok(vec![
            a.add(&g.randn(&[5], DType::F64, device())?.to_dtype(DType::F32)?)?,
            g.rand(&[2], DType::F32, device())?,
        ])
    };
    let captured = Captured::new(|_: &[Tensor], _: &[Tensor]| draw(&g));
    for _ in 0..4 {
        let results = captured.call(&mut Vec::new(), &[])?;
        for (result, expected) in results.iter().zip(draw(&other)?) {
            assert_eq!(result.to_vec::<f32>()?, expected.to_vec::<f32>()?);
        }
    }
    assert_eq!(g.state(), other.state());
    Ok(())
}

#[test]
fn other_threads_draw_from_a_generator_while_a_function_is_recorded() -> Result<()> {
    let (g, other, d) = (Generator::new(6), Generator::new(6), device());
    let draw = |g: &Generator| g.rand(&[2], DType::F32, d)?.to_vec::<f32>();
    let elsewhere = std::sync::Mutex::new(Vec::new());
    let captured = Captured::new(|_: &[Tensor], _: &[Tensor]| -> Result<Vec<Tensor>> {
        let first = g.rand(&[2], DType::F32, d)?;
        let drawn = std::thread::scope(|scope| scope.spawn(|| draw(&g)).join().unwrap())?;
        elsewhere.lock().unwrap().extend(drawn);
        Ok(vec![first, g.rand(&[2], DType::F32, d)?])
    });
    for _ in 0..2 {
        for result in captured.call(&mut Vec::new(), &[])? {
            elsewhere.lock().unwrap().extend(result.to_vec::<f32>()?);
        }
    }
    // One draw of the other thread and two draws per call: every number was handed out exactly once.
    let expected: Vec<Vec<f32>> = (0..5).map(|_| draw(&other)).collect::<Result<_>>()?;
    assert_eq!(*elsewhere.lock().unwrap(), expected.concat());
    assert_eq!(g.state(), other.state());
    Ok(())
}

#[test]
fn other_shapes_are_recorded_anew() -> Result<()> {
    let double = Captured::new(|_: &[Tensor], x: &[Tensor]| x[0].mul_scalar(2.0).map(|y| vec![y]));
    for n in [3usize, 5, 3, 0, 1, 5] {
        let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let results = double.call(&mut Vec::new(), &[vector(&x)])?;
        assert_eq!(results[0].to_vec::<f32>()?, x.iter().map(|v| v * 2.0).collect::<Vec<_>>());
    }
    // Views and other strides are kept apart.
    let matrix = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3], device())?;
    for tensor in [matrix.narrow(1, 1, 2)?, matrix.t()?.narrow(0, 0, 2)?, matrix.narrow(0, 1, 1)?] {
        let results = double.call(&mut Vec::new(), std::slice::from_ref(&tensor))?;
        assert_eq!(results[0].to_vec::<f32>()?, tensor.mul_scalar(2.0)?.to_vec::<f32>()?);
    }
    Ok(())
}

#[test]
fn results_may_be_arguments_constants_or_views() -> Result<()> {
    let d = device();
    let captured = Captured::new(|given: &[Tensor], kept: &[Tensor]| -> Result<Vec<Tensor>> {
        let constant = Tensor::from_slice(&[9f32], &[1], d)?;
        Ok(vec![given[0].clone(), kept[0].narrow(0, 1, 2)?, constant, given[0].add(&kept[0])?])
    });
    for i in 0..3 {
        let mut given = vec![vector(&[1.0, 2.0, i as f32])];
        let results = captured.call(&mut given, &[vector(&[5.0, 6.0, 7.0])])?;
        let values: Vec<Vec<f32>> = results.iter().map(Tensor::to_vec).collect::<Result<_>>()?;
        assert_eq!(
            values,
            [vec![1.0, 2.0, i as f32], vec![6.0, 7.0], vec![9.0], vec![6.0, 8.0, 7.0 + i as f32]]
        );
    }
    Ok(())
}

#[test]
fn what_cannot_be_replayed_is_an_error() -> Result<()> {
    let message = |result: Result<Vec<Tensor>>| result.map(|_| ()).unwrap_err().to_string();
    let x = || vec![vector(&[1.0, 2.0])];
    let reads = Captured::new(|x: &[Tensor], _: &[Tensor]| -> Result<Vec<Tensor>> {
        let factor = x[0].sum(&[], false)?.item::<f32>()?;
        Ok(vec![x[0].mul_scalar(factor)?])
    });
    let mut given = x();
    assert!(message(reads.call(&mut given, &[])).contains("reads the value"));
    assert_eq!(given[0].to_vec::<f32>()?, [1.0, 2.0], "arguments of a call that failed are as they were");

    let elsewhere = std::sync::Mutex::new(None);
    let keeps = Captured::new(|x: &[Tensor], _: &[Tensor]| -> Result<Vec<Tensor>> {
        let y = x[0].exp()?;
        *elsewhere.lock().unwrap() = Some(y.clone());
        Ok(vec![y.add_scalar(1.0)?])
    });
    assert!(message(keeps.call(&mut x(), &[])).contains("keeps a pending tensor"));

    let g = Generator::new(1);
    let seeds = Captured::new(|_: &[Tensor], _: &[Tensor]| -> Result<Vec<Tensor>> {
        let a = g.rand(&[2], DType::F32, device())?;
        g.set_state(GeneratorState { seed: 1, counter: 0 });
        Ok(vec![a.add(&g.rand(&[2], DType::F32, device())?)?])
    });
    assert!(message(seeds.call(&mut Vec::new(), &[])).contains("random generator"));

    let copies = Captured::new(|x: &[Tensor], _: &[Tensor]| -> Result<Vec<Tensor>> {
        Ok(vec![x[0].exp()?.to_device(phynexus::oracle::reference_device())?])
    });
    assert!(message(copies.call(&mut x(), &[])).contains("between devices"));

    // A failing computation leaves the arguments and the generator unchanged.
    let fails = Captured::new(|x: &[Tensor], i: &[Tensor]| -> Result<Vec<Tensor>> {
        Ok(vec![x[0].add_scalar(1.0)?.take(&i[0], None)?, g.rand(&[1], DType::F32, device())?])
    });
    let (state, mut given) = (g.state(), x());
    assert!(fails.call(&mut given, &[Tensor::from_slice(&[5i64], &[1], device())?]).is_err());
    assert_eq!((g.state(), given[0].to_vec::<f32>()?), (state, vec![1.0, 2.0]));
    Ok(())
}

#[test]
fn updates_of_all_parameters_are_one_step() -> neurenix::Result<()> {
    let d = device();
    let g = Generator::new(3);
    let model =
        Sequential::new().with(Linear::new(6, 16, true, d, &g)?).with(Linear::new(16, 3, true, d, &g)?);
    let inputs = g.randn(&[8, 6], DType::F32, d)?.evaluated()?;
    let mut optimizer = neurenix::optim::Optimizer::new(Rule::adam(), model.parameters(), 1e-3)?;
    let profiler = Profiler::start(Detail::Counts)?;
    for _ in 0..2 {
        let loss = model.forward(&inputs)?.square()?.sum(&[], false)?;
        optimizer.step(loss.leaf_gradients()?, &[&loss])?;
    }
    let rows = profiler.finish()?.rows;
    // Four updates, and the loss with them.
    assert!(rows.iter().any(|row| row.name.starts_with("rows x5")), "{rows:?}");
    Ok(())
}

#[test]
fn labels_of_a_replay_are_checked_whatever_was_known_when_it_was_recorded() -> Result<()> {
    let d = device();
    let step = Captured::new(|_: &[Tensor], x: &[Tensor]| -> Result<Vec<Tensor>> {
        Ok(vec![x[0].cross_entropy(&x[1], None, 0.0)?])
    });
    let logits = Generator::new(0).randn(&[3, 4], DType::F32, d)?.evaluated()?;
    let labels = |values: [i64; 3]| Tensor::from_slice(&values, &[3], d);
    for good in [[0, 1, 1], [2, 0, 1], [0, 0, 0], [3, 3, 3]] {
        let expected = logits.cross_entropy(&labels(good)?, None, 0.0)?.item::<f32>()?;
        for labels in [labels(good)?, labels(good)?.add_scalar(0)?.evaluated()?] {
            let results = step.call(&mut Vec::new(), &[logits.clone(), labels])?;
            assert_eq!(results[0].item::<f32>()?, expected);
        }
    }
    for bad in [[0, 1, 4], [0, -1, 2]] {
        for labels in [labels(bad)?, labels(bad)?.add_scalar(0)?.evaluated()?] {
            let error = step.call(&mut Vec::new(), &[logits.clone(), labels]).map(drop);
            assert!(matches!(error, Err(Error::Index { .. })), "{error:?}");
        }
    }
    Ok(())
}
