//! Data parallelism among threads of this process, against one process with the whole batch.

use std::{sync::Arc, thread, time::Duration};

use neurenix::{
    Result,
    data::{Dataset, HostArray},
    distributed::{DataParallel, DataParallelOptions, broadcast},
    nn::{BatchNorm1d, BatchNormOptions, Linear, Module, Parameter, Role, Sequential},
    optim::{Optimizer, Rule},
    train::{Ending, Objective, Silent, TrainOptions, Trainer},
};
use phynexus::{
    DType, Device, Tensor,
    distributed::{Group, threads},
    tensor::Generator,
};

const ROWS: usize = 12;

fn on_ranks<T: Send>(size: usize, run: impl Fn(&Arc<Group>) -> Result<T> + Sync) -> Vec<Result<T>> {
    neurenix::register_all();
    let run = &run;
    thread::scope(|scope| {
        let threads: Vec<_> = threads(size, Duration::from_secs(20))
            .into_iter()
            .map(|transport| scope.spawn(move || run(&Group::open(transport))))
            .collect();
        threads.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// A network whose first weights depend on the seed.
fn network(seed: u64) -> Result<Sequential> {
    let (device, generator) = (Device::find("cpu")?, Generator::new(seed));
    Ok(Sequential::new()
        .with(Linear::new(5, 40, true, device, &generator)?)
        .with(Linear::new(40, 3, true, device, &generator)?))
}

fn named(model: &Sequential) -> Vec<(String, Parameter)> {
    let state = model.named_state().into_iter();
    state.filter(|(_, role, _)| *role == Role::Weight).map(|(name, _, parameter)| (name, parameter)).collect()
}

/// Rows `from..to` of the data of a step.
fn rows(step: u64, from: usize, to: usize) -> Result<(Tensor, Tensor)> {
    let (device, generator) = (Device::find("cpu")?, Generator::new(100 + step));
    let x = generator.randn(&[ROWS, 5], DType::F32, device)?;
    let y = generator.randn(&[ROWS, 3], DType::F32, device)?;
    Ok((x.narrow(0, from, to - from)?, y.narrow(0, from, to - from)?))
}

fn loss(model: &Sequential, (x, y): &(Tensor, Tensor)) -> Result<Tensor> {
    let error = model.forward(x)?.sub(y)?;
    Ok(error.mul(&error)?.mean(&[], false)?)
}

fn values(model: &Sequential) -> Result<Vec<f32>> {
    let values = model.parameters().into_iter().map(|parameter| parameter.tensor().to_vec::<f32>());
    Ok(values.collect::<phynexus::Result<Vec<_>>>()?.concat())
}

fn options() -> DataParallelOptions {
    // Several buckets.
    DataParallelOptions { bucket_bytes: 600, ..DataParallelOptions::default() }
}

fn train(size: usize, options: &DataParallelOptions) -> Vec<(Vec<f32>, Vec<f32>)> {
    let ranks = on_ranks(size, |group| {
        // Rank 0 decides.
        let model = network(group.rank() as u64)?;
        let _parallel = DataParallel::new(&named(&model), group, options.clone())?;
        let mut optimizer = Optimizer::new(Rule::adam(), model.parameters(), 1e-2)?;
        let mut losses = Vec::new();
        let share = ROWS / size;
        for step in 0..8 {
            let loss = loss(&model, &rows(step, group.rank() * share, (group.rank() + 1) * share)?)?;
            optimizer.step(loss.leaf_gradients()?, &[&loss])?;
            losses.push(loss.item::<f32>()?);
        }
        Ok((values(&model)?, losses))
    });
    ranks.into_iter().map(|rank| rank.unwrap()).collect()
}

fn close(a: &[f32], b: &[f32], bound: f32) {
    let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(a.len() == b.len() && worst <= bound, "{worst}");
}

#[test]
fn ranks_train_as_one_process_with_the_whole_batch() {
    let alone = train(1, &options()).remove(0);
    for size in [2, 3, 4] {
        let ranks = train(size, &options());
        assert!(ranks.iter().all(|(values, _)| *values == ranks[0].0), "ranks differ");
        assert_eq!(train(size, &options()), ranks, "not the same twice");
        close(&ranks[0].0, &alone.0, 2e-6);
        for step in 0..8 {
            let mean = ranks.iter().map(|(_, losses)| losses[step]).sum::<f32>() / size as f32;
            assert!((mean - alone.1[step]).abs() < 1e-5);
        }
    }
}

#[test]
fn compressed_gradients_are_close() {
    let alone = train(1, &options()).remove(0);
    for dtype in [DType::F16, DType::BF16] {
        let ranks = train(2, &DataParallelOptions { compression: Some(dtype), ..options() });
        assert_eq!(ranks[0].0, ranks[1].0);
        assert_ne!(ranks[0].0, alone.0);
        close(&ranks[0].0, &alone.0, 2e-2);
    }
}

/// While it is paused, gradients accumulate; the next backward pass reduces all of them at once.
#[test]
fn accumulated_gradients_are_reduced_once() {
    let found = on_ranks(2, |group| {
        let model = network(1)?;
        let parallel = DataParallel::new(&named(&model), group, options())?;
        let gradient = || -> Result<Vec<f32>> {
            let leaf = model.parameters()[0].leaf()?;
            Ok(leaf.grad().map_or_else(|| Ok(Vec::new()), |gradient| gradient.to_vec::<f32>())?)
        };
        let part = |step| rows(step, group.rank() * 6, group.rank() * 6 + 6);
        parallel.set_paused(true);
        loss(&model, &part(0)?)?.backward()?;
        let own = gradient()?;
        parallel.set_paused(false);
        loss(&model, &part(1)?)?.backward()?;
        let sum = gradient()?;
        model.parameters().iter().for_each(|p| p.tensor().set_grad(None));
        // Both again, each reduced.
        loss(&model, &part(0)?)?.backward()?;
        loss(&model, &part(1)?)?.backward()?;
        Ok((own, sum, gradient()?))
    });
    let found: Vec<_> = found.into_iter().map(|found| found.unwrap()).collect();
    assert_ne!(found[0].0, found[1].0);
    assert_eq!(found[0].1, found[1].1);
    close(&found[0].1, &found[0].2, 1e-6);
}

#[test]
fn unused_parameters_are_named_or_found() {
    let unused = |find_unused: bool, find_unused_setting: Option<&'static str>| {
        on_ranks(2, move |group| {
            let (model, other) = (network(1)?, network(2)?);
            let mut all = named(&model);
            all.extend(
                named(&other).into_iter().map(|(name, parameter)| (format!("other.{name}"), parameter)),
            );
            let options = DataParallelOptions { find_unused, find_unused_setting, ..options() };
            let _parallel = DataParallel::new(&all, group, options)?;
            let data = rows(0, 0, 6)?;
            // Rank 1 uses the first layer of the other network, too.
            let mut total = loss(&model, &data)?;
            if group.rank() == 1 && find_unused {
                total = total.add(&other.parameters()[0].leaf()?.sum(&[], false)?)?;
            }
            total.backward()?;
            let gradient = |at: usize| -> Result<Option<Vec<f32>>> {
                let leaf = other.parameters()[at].leaf()?;
                Ok(leaf.grad().map(|gradient| gradient.to_vec::<f32>()).transpose()?)
            };
            Ok((gradient(0)?, gradient(1)?))
        })
    };
    for setting in [None, Some("--unused")] {
        for error in unused(false, setting) {
            let error = error.expect_err("an error").to_string();
            assert!(error.contains("other.0.weight"), "{error}");
            assert_eq!(error.contains(": pass --unused, or freeze"), setting.is_some(), "{error}");
        }
    }
    for gradients in unused(true, None) {
        assert_eq!(gradients.unwrap(), (Some(vec![0.5; 200]), None));
    }
}

#[test]
fn a_broadcast_leaves_the_weights_of_rank_0_as_they_are() {
    // Results of a GPU are undefined if another rank ends meanwhile.
    let found = on_ranks(2, |group| {
        let model = network(group.rank() as u64)?;
        let before: Vec<Tensor> = model.parameters().iter().map(Parameter::tensor).collect();
        broadcast(model.parameters().iter(), group)?;
        let same = model.parameters().iter().zip(&before).all(|(now, before)| now.tensor().is_same(before));
        Ok((same, values(&model)?))
    });
    let found: Vec<(bool, Vec<f32>)> = found.into_iter().map(Result::unwrap).collect();
    assert!(found[0].0 && !found[1].0);
    assert_eq!(found[0].1, found[1].1);
}

#[test]
fn a_last_batch_with_single_rows_does_not_stop_batch_normalisation() {
    // The last batch has 3 rows: one and two would be refused by a rank.
    const COUNT: usize = 35;
    let numbers: Vec<f32> = (0..COUNT * 5).map(|at| (at as f32 * 0.7).sin()).collect();
    let found = on_ranks(2, |group| {
        let (device, generator) = (Device::find("cpu")?, Generator::new(1));
        let model = Sequential::new()
            .with(Linear::new(4, 6, true, device, &generator)?)
            .with(BatchNorm1d::new(6, BatchNormOptions::default(), device)?)
            .with(Linear::new(6, 1, true, device, &generator)?);
        let inputs = HostArray::from_values(&[COUNT, 4], &numbers[..4 * COUNT])?;
        let targets = HostArray::from_values(&[COUNT, 1], &numbers[4 * COUNT..])?;
        let data = Dataset::regression("numbers", inputs, targets)?;
        let before = model.state();
        let optimizer = Optimizer::new(Rule::sgd(), model.parameters(), 1e-2)?;
        let options = TrainOptions { epochs: 2, batch_size: 32, ..TrainOptions::default() };
        let objective = Objective::of(&data);
        let trainer = Trainer::new(&model, optimizer, objective, &generator, device, options);
        let mut trainer = trainer.with_group(group.clone());
        assert_eq!(trainer.run(&data, None, &mut Silent)?, Ending::Finished);
        // The recorded pass that finds the number of rows has left no trace.
        let batches = model.state()["1.num_batches_tracked"].to_vec::<i64>()?;
        assert_eq!((before["1.num_batches_tracked"].to_vec::<i64>()?, batches), (vec![0], vec![4]));
        Ok((values(&model)?, trainer.history().epochs[1].train_loss))
    });
    let found: Vec<(Vec<f32>, f64)> = found.into_iter().map(Result::unwrap).collect();
    assert_eq!(found[0], found[1]);
    assert!(found[0].1.is_finite());
}

#[test]
fn other_networks_are_refused() {
    let found = on_ranks(2, |group| {
        let (device, generator) = (Device::find("cpu")?, Generator::new(0));
        let model = Sequential::new().with(Linear::new(5, 4 + group.rank(), true, device, &generator)?);
        DataParallel::new(&named(&model), group, options()).map(|_| ())
    });
    assert!(found[0].is_ok());
    let error = found[1].as_ref().unwrap_err().to_string();
    assert!(error.contains("`0.weight float32 (4, 5)` there and `0.weight float32 (5, 5)` here"), "{error}");
}

#[test]
fn gradients_are_ones_own_again_after_it_is_dropped() {
    let found = on_ranks(2, |group| {
        let model = network(1)?;
        drop(DataParallel::new(&named(&model), group, options())?);
        let part = rows(0, group.rank() * 6, group.rank() * 6 + 6)?;
        loss(&model, &part)?.backward()?;
        Ok(model.parameters()[0].leaf()?.grad().expect("a gradient").to_vec::<f32>()?)
    });
    assert_ne!(found[0].as_ref().unwrap(), found[1].as_ref().unwrap());
}
