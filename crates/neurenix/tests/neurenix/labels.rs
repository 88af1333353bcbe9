//! Targets: labels that are not classes are errors and change nothing; floats of any dtype are converted to the
//! network's.

use neurenix::{
    Error, Result,
    data::{Dataset, HostArray},
    loss::Loss,
    nn::*,
    optim::{Optimizer, Rule},
    train::{Objective, Silent, TrainOptions, Trainer},
};
use phynexus::{
    DType, Device, Error as EngineError, Tensor,
    tensor::{CrossEntropyOptions, Generator, Reduction},
};

fn device() -> Device {
    neurenix::register_all();
    Device::default_device().unwrap()
}

#[test]
fn labels_that_the_host_knows_are_not_checked_again() -> Result<()> {
    let d = device();
    let logits = Generator::new(0).randn(&[4, 3], DType::F32, d)?.evaluated()?;
    let labels = Tensor::from_slice(&[0i64, 2, 1, 1], &[4], d)?;
    let checks = |target: &Tensor| -> Result<usize> {
        let plan = logits.cross_entropy(target, None, 0.0)?.explain()?;
        // A GPU does the check with a gather.
        let check = |name: &str| name == "class_index" || name == "gather";
        Ok(plan.iter().flat_map(|plan| &plan.steps).filter(|step| check(&step.step.name())).count())
    };
    assert_eq!(checks(&labels)?, 0);
    assert_eq!(checks(&labels.add_scalar(0)?.narrow(0, 1, 3)?.repeat(&[2])?.narrow(0, 0, 4)?)?, 0);
    let computed = labels.to_dtype(DType::F32)?.to_dtype(DType::I64)?.evaluated()?;
    assert_eq!(checks(&computed)?, 1, "of what a device made of floats nothing is known");
    let loss = |target: &Tensor| logits.cross_entropy(target, None, 0.0)?.item::<f32>();
    assert_eq!(loss(&labels)?, loss(&computed)?);
    Ok(())
}

#[test]
fn the_error_names_the_loss_the_label_and_the_classes() -> Result<()> {
    let d = device();
    let logits = Generator::new(0).randn(&[4, 3, 2], DType::F32, d)?;
    let labels = |bad: i64| Tensor::from_slice(&[0, 2, 1, 1, bad, 0, 2, 2], &[4, 2], d);
    for bad in [3, -1, -3, 7, -99, i64::MAX, i64::MIN] {
        let target = labels(bad)?;
        for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
            let options = CrossEntropyOptions { reduction, ..Default::default() };
            for (loss, name) in [
                (logits.cross_entropy_with(&target, &options)?, "cross_entropy"),
                (logits.nll_loss(&target, &options)?, "nll_loss"),
            ] {
                let error = loss.to_bytes().expect_err("the label is no class");
                assert!(
                    matches!(error, EngineError::Index { op, index, size: 3, .. } if op == name && index == bad),
                    "{error}"
                );
            }
        }
    }
    // Other dtypes of labels, ignored labels, and computed, non-contiguous targets.
    for dtype in [DType::U8, DType::I16, DType::I32, DType::U64, DType::I64] {
        let loss = |bad: i64| logits.cross_entropy(&labels(bad)?.to_dtype(dtype)?, None, 0.1)?.item::<f32>();
        assert!(loss(1)?.is_finite());
        assert!(matches!(loss(5), Err(EngineError::Index { op: "cross_entropy", index: 5, size: 3, .. })));
    }
    let options = CrossEntropyOptions { ignore_index: 3, ..Default::default() };
    assert!(logits.cross_entropy_with(&labels(3)?, &options)?.item::<f32>()?.is_finite());
    assert!(logits.cross_entropy_with(&labels(-100)?, &options)?.item::<f32>().is_err());
    let turned = labels(1)?.t()?.contiguous()?.t()?.add_scalar(0)?;
    assert_eq!(
        logits.cross_entropy(&turned, None, 0.0)?.item::<f32>()?,
        logits.cross_entropy(&labels(1)?, None, 0.0)?.item::<f32>()?
    );
    let none = Tensor::full(&[0], 0i64, DType::I64, d)?;
    let sum = CrossEntropyOptions { reduction: Reduction::Sum, ..Default::default() };
    let empty = Tensor::full(&[0, 3], 0.0, DType::F32, d)?.cross_entropy_with(&none, &sum)?;
    assert_eq!(empty.item::<f32>()?, 0.0);
    Ok(())
}

#[test]
fn a_step_with_a_bad_label_is_not_taken() -> Result<()> {
    let (d, g) = (device(), Generator::new(1));
    let model = Sequential::new()
        .with(Linear::new(4, 8, true, d, &g)?)
        .with(BatchNorm1d::new(8, BatchNormOptions::default(), d)?)
        .with(activation::relu())
        .with(Linear::new(8, 3, true, d, &g)?);
    let mut optimizer = Optimizer::new(Rule::adam(), model.parameters(), 0.1)?;
    let inputs = g.randn(&[5, 4], DType::F32, d)?.evaluated()?;
    let step = |optimizer: &mut Optimizer, last: i64| -> Result<()> {
        let target = Tensor::from_slice(&[0, 1, 2, 0, last], &[5], d)?;
        let loss = model.forward(&inputs)?.cross_entropy(&target, None, 0.0)?;
        optimizer.step(loss.leaf_gradients()?, &[&loss])
    };
    (0..3).try_for_each(|_| step(&mut optimizer, 1))?;
    let bits = |optimizer: &Optimizer| -> Result<Vec<Vec<u8>>> {
        let weights = model.parameters().into_iter().map(|p| p.tensor());
        weights.chain(optimizer.state()?.into_values()).map(|x| Ok(x.to_bytes()?)).collect()
    };
    let before = bits(&optimizer)?;
    for label in [3, -1] {
        let error = step(&mut optimizer, label).expect_err("the label is no class");
        assert!(matches!(error, Error::Engine(EngineError::Index { size: 3, .. })), "{error}");
        assert!(bits(&optimizer)? == before);
    }
    step(&mut optimizer, 2)?;
    assert!(bits(&optimizer)? != before);
    Ok(())
}

/// Network inputs are converted to its dtype, whatever the data's is.
#[test]
fn data_of_another_dtype_train_as_in_the_networks_own() -> Result<()> {
    let inputs: Vec<f64> = (0..60).map(|i| (f64::from(i) * 0.7).sin() / 3.0).collect();
    let targets: Vec<f64> = (0..20).map(|i| (f64::from(i) * 0.3).cos() / 7.0).collect();
    let inputs = HostArray::from_values(&[20, 3], &inputs)?;
    let targets = HostArray::from_values(&[20, 1], &targets)?;
    for (of_network, of_data) in
        [(DType::F32, DType::F64), (DType::F64, DType::F32), (DType::BF16, DType::F32)]
    {
        let run = |dtype: DType| -> Result<(Vec<Vec<u8>>, f64)> {
            // Both are rounded to the data's dtype first.
            let cast = |array: &HostArray| array.cast(of_data).cast(dtype);
            let data = Dataset::regression("numbers", cast(&inputs), cast(&targets))?;
            let generator = Generator::new(1);
            let model = Linear::new(3, 1, true, device(), &generator)?;
            model.to_dtype(of_network)?;
            let optimizer = Optimizer::new(Rule::adam(), model.parameters(), 1e-2)?;
            let options = TrainOptions { epochs: 2, batch_size: 8, ..TrainOptions::default() };
            let mut trainer = Trainer::new(
                &model,
                optimizer,
                Objective::Regression(Loss::MSE),
                &generator,
                device(),
                options,
            );
            trainer.run(&data, Some(&data), &mut Silent)?;
            assert!(model.parameters().iter().all(|p| p.tensor().dtype() == of_network));
            let state = model.state().into_values().chain(trainer.optimizer.state()?.into_values());
            let bits = state.map(|x| x.to_bytes()).collect::<phynexus::Result<_>>()?;
            Ok((bits, trainer.history().epochs[1].train_loss))
        };
        assert!(run(of_data)? == run(of_network)?, "{of_data} data, {of_network} network");
    }
    Ok(())
}
