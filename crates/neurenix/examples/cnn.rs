//! Trains a small convolutional network on handwritten digits, saves it, loads it, and checks that the loaded network
//! is as accurate.

use std::collections::BTreeMap;

use neurenix::{
    Result,
    data::digits_split,
    nn::{
        BatchNorm2d, BatchNormOptions, Conv2d, ConvOptions, Linear, MaxPool2d, Module, Sequential, activation,
    },
    optim::{Optimizer, Rule, Schedule},
    phynexus::{Device, tensor::Generator},
    train::{Objective, Silent, TrainOptions, Trainer, load_model, save_model},
};

fn network(device: Device, generator: &Generator) -> Result<Sequential> {
    let padded = ConvOptions { padding: [1, 1], ..ConvOptions::default() };
    Ok(Sequential::new()
        .with(Conv2d::new(1, 16, [3, 3], padded, device, generator)?)
        .with(BatchNorm2d::new(16, BatchNormOptions::default(), device)?)
        .with(activation::relu())
        .with(MaxPool2d::new([2, 2]))
        .with(Conv2d::new(16, 32, [3, 3], padded, device, generator)?)
        .with(activation::relu())
        .with(MaxPool2d::new([2, 2]))
        .with(activation::flatten())
        .with(Linear::new(32 * 2 * 2, 10, true, device, generator)?))
}

fn main() -> Result<()> {
    neurenix::register_all();
    let device = Device::default_device()?;
    let (training, test) = digits_split()?;
    let generator = Generator::new(0);
    let model = network(device, &generator)?;
    println!("{}\n{} parameters", model.describe(), model.parameter_count());

    let optimizer = Optimizer::new(Rule::adamw(), model.parameters(), 5e-3)?.with_weight_decay(1e-2)?;
    let schedule = Schedule::OneCycle { peak: 5e-3, rise: 0.3 };
    let options = TrainOptions { epochs: 4, schedule, ..TrainOptions::default() };
    let mut trainer = Trainer::new(&model, optimizer, Objective::of(&training), &generator, device, options);
    trainer.run(&training, None, &mut Silent)?;
    for epoch in &trainer.history().epochs {
        println!("epoch {}  loss {:.4}  {:.2} s", epoch.epoch, epoch.train_loss, epoch.seconds);
    }
    let reached = trainer.evaluate(&test)?;
    let accuracy = reached.accuracy.unwrap_or(0.0);
    println!("test accuracy {accuracy:.4}");
    assert!(accuracy > 0.93, "the network should have learned");

    // The file has PyTorch's parameter names. In Python, read it with `safetensors.torch.load_file`.
    let path = std::env::temp_dir().join(format!("neurenix-cnn-{}.safetensors", std::process::id()));
    save_model(&path, &model, BTreeMap::new())?;
    let copy = network(device, &Generator::new(1))?;
    let loaded = load_model(&path, &copy, device);
    std::fs::remove_file(&path).map_err(|error| neurenix::Error::io("remove", &path, error))?;
    loaded?;
    let optimizer = Optimizer::new(Rule::adamw(), copy.parameters(), 5e-3)?;
    let options = TrainOptions::default();
    let trainer = Trainer::new(&copy, optimizer, Objective::of(&test), &generator, device, options);
    assert_eq!(trainer.evaluate(&test)?, reached, "the loaded network reads as the saved one");
    Ok(())
}
