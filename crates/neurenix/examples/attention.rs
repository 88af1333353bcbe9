//! A custom network: learns to find the greatest number of a sequence with attention, and checks the accuracy.

use neurenix::{
    Result,
    data::{Dataset, HostArray},
    nn::{
        Embedding, LayerNorm, Linear, Module, Parameter, TransformerEncoderLayer, TransformerOptions, Visitor,
    },
    optim::{Optimizer, Rule, Schedule},
    phynexus::{DType, Device, Tensor, tensor::Generator},
    train::{Objective, Silent, TrainOptions, Trainer},
};

const NUMBERS: usize = 10;
const LENGTH: usize = 6;
const FEATURES: usize = 32;

/// Embeddings of numbers and positions, one encoder layer, the mean over positions, and a score for each number.
struct Greatest {
    numbers: Embedding,
    positions: Parameter,
    layer: TransformerEncoderLayer,
    norm: LayerNorm,
    scores: Linear,
}

impl Greatest {
    fn new(device: Device, generator: &Generator) -> Result<Greatest> {
        let options = TransformerOptions {
            feedforward: 2 * FEATURES,
            dropout: 0.0,
            norm_first: true,
            ..TransformerOptions::default()
        };
        Ok(Greatest {
            numbers: Embedding::new(NUMBERS, FEATURES, None, device, generator)?,
            positions: Parameter::new(&Tensor::full(&[LENGTH, FEATURES], 0.0, DType::F32, device)?)?,
            layer: TransformerEncoderLayer::new(FEATURES, 4, options, device, generator)?,
            norm: LayerNorm::new(&[FEATURES], 1e-5, true, device)?,
            scores: Linear::new(FEATURES, NUMBERS, true, device, generator)?,
        })
    }
}

impl Module for Greatest {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let x = self.numbers.forward(input)?.add(&self.positions.leaf()?)?;
        let x = self.norm.forward(&self.layer.forward(&x)?)?;
        self.scores.forward(&x.mean(&[1], false)?)
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.child("numbers", &self.numbers);
        visitor.weight("positions", &self.positions);
        visitor.child("layer", &self.layer);
        visitor.child("norm", &self.norm);
        visitor.child("scores", &self.scores);
    }
}

/// Random sequences with their greatest numbers as labels.
fn sequences(count: usize, device: Device, generator: &Generator) -> Result<Dataset> {
    let numbers = generator.randint(0, NUMBERS as i64, &[count, LENGTH], DType::I64, device)?;
    let inputs = HostArray::from_values(&[count, LENGTH], &numbers.to_vec::<i64>()?)?;
    let labels = HostArray::from_values(&[count], &numbers.max(&[1], false)?.to_vec::<i64>()?)?;
    Dataset::classes("sequences", inputs, labels, (0..NUMBERS).map(|n| n.to_string()).collect())
}

fn main() -> Result<()> {
    neurenix::register_all();
    let device = Device::default_device()?;
    let generator = Generator::new(0);
    let (training, test) = (sequences(2000, device, &generator)?, sequences(500, device, &generator)?);
    let model = Greatest::new(device, &generator)?;
    println!("{}: {} parameters", model.describe(), model.parameter_count());
    let optimizer = Optimizer::new(Rule::adam(), model.parameters(), 5e-3)?;
    let schedule = Schedule::Cosine { initial: 5e-3, final_rate: 1e-4, warmup: 20 };
    let options = TrainOptions { epochs: 6, batch_size: 50, schedule, ..TrainOptions::default() };
    let mut trainer = Trainer::new(&model, optimizer, Objective::of(&training), &generator, device, options);
    trainer.run(&training, None, &mut Silent)?;
    for epoch in &trainer.history().epochs {
        println!("epoch {}  loss {:.4}  {:.2} s", epoch.epoch, epoch.train_loss, epoch.seconds);
    }
    let accuracy = trainer.evaluate(&test)?.accuracy.unwrap_or(0.0);
    println!("test accuracy {accuracy:.3}");
    assert!(accuracy > 0.9, "attention should have found the greatest numbers");
    Ok(())
}
