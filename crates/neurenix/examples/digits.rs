//! Trains a small network on handwritten digits and checks that it learned.

use neurenix::{
    Result,
    data::digits_split,
    nn::{Linear, Module, Sequential, activation},
    optim::{Optimizer, Rule},
    phynexus::{Device, tensor::Generator},
    train::{Objective, Silent, TrainOptions, Trainer},
};

fn main() -> Result<()> {
    neurenix::register_all();
    let device = Device::default_device()?;
    let (training, test) = digits_split()?;
    let generator = Generator::new(0);
    let model = Sequential::new()
        .with(activation::flatten())
        .with(Linear::new(64, 128, true, device, &generator)?)
        .with(activation::relu())
        .with(Linear::new(128, 10, true, device, &generator)?);
    let optimizer = Optimizer::new(Rule::adam(), model.parameters(), 2e-3)?;
    let options = TrainOptions { epochs: 10, ..TrainOptions::default() };
    let mut trainer = Trainer::new(&model, optimizer, Objective::of(&training), &generator, device, options);
    trainer.run(&training, Some(&test), &mut Silent)?;
    for epoch in &trainer.history().epochs {
        println!(
            "epoch {:>2}  loss {:.4}  test accuracy {:?}",
            epoch.epoch, epoch.train_loss, epoch.validation_accuracy
        );
    }
    let accuracy = trainer.evaluate(&test)?.accuracy.unwrap_or(0.0);
    assert!(accuracy > 0.93, "the network should have learned: accuracy {accuracy}");
    Ok(())
}
