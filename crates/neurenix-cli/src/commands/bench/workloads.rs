//! The workloads. `benchmarks/torch_cpu.py` has the same workloads under the same names.

use neurenix::{
    Result,
    nn::{
        Conv2d, ConvOptions, Embedding, Function, LSTM, LayerNorm, Linear, Module, RecurrentOptions,
        Sequential, Visitor, activation,
    },
    optim::{Optimizer, Rule},
    phynexus::{
        DType, Device, Tensor,
        tensor::{AttentionOptions, GeluApproximation, Generator},
    },
};

/// Does the work once and waits for it.
pub(super) type Step = Box<dyn FnMut() -> Result<()>>;

/// A piece of work to be timed.
pub(super) struct Workload {
    pub(super) name: String,
    /// For a workload that measures host overhead: the number of operations it records.
    pub(super) operations: Option<usize>,
    pub(super) prepare: Box<dyn Fn(Device) -> Result<Step>>,
    /// The minimum work, for a workload that measures a rate.
    pub(super) work: Option<Work>,
}

/// The minimum work of a workload.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// Bytes transferred between memory and chip.
    Bytes(f64),
    /// Arithmetic operations.
    Operations(f64),
}

pub(super) fn workload(
    name: impl Into<String>,
    prepare: impl Fn(Device) -> Result<Step> + 'static,
) -> Workload {
    Workload { name: name.into(), operations: None, prepare: Box::new(prepare), work: None }
}

pub(super) fn all() -> Vec<Workload> {
    let mut all = Vec::new();
    for n in [64, 128, 256, 512, 1024, 2048] {
        all.push(workload(format!("matmul f32 {n}"), move |d| {
            let (a, b) = (random(&[n, n], d)?, random(&[n, n], d)?);
            repeat(move || Ok(a.matmul(&b)?))
        }));
    }
    all.push(workload("gelu(a*b+c)*d 16M", |d| {
        let [a, b, c, e] = [(); 4].map(|()| random(&[1 << 24], d));
        let (a, b, c, e) = (a?, b?, c?, e?);
        repeat(move || Ok(a.mul(&b)?.add(&c)?.gelu(GeluApproximation::Tanh)?.mul(&e)?))
    }));
    all.push(workload("softmax 4096x1024", |d| {
        let x = random(&[4096, 1024], d)?;
        repeat(move || Ok(x.softmax(-1)?))
    }));
    all.push(workload("layer norm 4096x1024", |d| {
        let x = random(&[4096, 1024], d)?;
        repeat(move || Ok(x.layer_norm(&[1024], None, None, 1e-5)?))
    }));
    all.push(workload("column sums 4096x1024", |d| {
        let x = random(&[4096, 1024], d)?;
        repeat(move || Ok(x.sum(&[0], false)?))
    }));
    for batch in [1, 64, 128, 1024] {
        all.push(workload(format!("MLP Adam step, batch {batch}"), move |d| {
            let g = Generator::new(0);
            let model = Sequential::new()
                .with(Linear::new(784, 512, true, d, &g)?)
                .with(activation::relu())
                .with(Linear::new(512, 256, true, d, &g)?)
                .with(activation::relu())
                .with(Linear::new(256, 10, true, d, &g)?);
            train(model, random(&[batch, 784], d)?, labels(10, batch, d)?, Rule::adam(), 0.0)
        }));
    }
    all.push(workload("CNN Adam step, batch 64", |d| {
        let model = cnn(d, &Generator::new(0))?;
        train(model, random(&[64, 3, 32, 32], d)?, labels(10, 64, d)?, Rule::adam(), 0.0)
    }));
    all.push(workload("LSTM Adam step, batch 32", |d| {
        let g = Generator::new(0);
        let options = RecurrentOptions { batch_first: true, ..RecurrentOptions::default() };
        let model = Sequential::new()
            .with(LSTM::new(64, 128, options, d, &g)?)
            .with(Function::new("LastStep()", |x| x.narrow(1, 63, 1)?.squeeze(1)))
            .with(Linear::new(128, 10, true, d, &g)?);
        train(model, random(&[32, 64, 64], d)?, labels(10, 32, d)?, Rule::adam(), 0.0)
    }));
    all.push(workload("GPT AdamW step, 8x128", |d| {
        let g = Generator::new(0);
        let ids = g.randint(0, 512, &[8, 128], DType::I64, d)?.evaluated()?;
        train(Gpt::new(d, &g)?, ids, labels(512, 8 * 128, d)?, Rule::adamw(), 0.01)
    }));
    all
}

pub(super) fn random(shape: &[usize], device: Device) -> Result<Tensor> {
    Ok(Generator::new(1).randn(shape, DType::F32, device)?.evaluated()?)
}

pub(super) fn labels(classes: i64, rows: usize, device: Device) -> Result<Tensor> {
    // Labels come from the host, like those of a dataset.
    let labels = Generator::new(2).randint(0, classes, &[rows], DType::I64, device)?.to_vec::<i64>()?;
    Ok(Tensor::from_slice(&labels, &[rows], device)?)
}

pub(super) fn repeat(compute: impl Fn() -> Result<Tensor> + 'static) -> Result<Step> {
    Ok(Box::new(move || Ok(compute()?.evaluate()?)))
}

/// A training step as a user writes it: forward, backward, update.
pub(super) fn train(
    model: impl Module + 'static,
    inputs: Tensor,
    targets: Tensor,
    rule: Rule,
    decay: f64,
) -> Result<Step> {
    let mut optimizer = Optimizer::new(rule, model.parameters(), 1e-3)?.with_weight_decay(decay)?;
    Ok(Box::new(move || {
        let loss = model.forward(&inputs)?.cross_entropy(&targets, None, 0.0)?;
        optimizer.step(loss.leaf_gradients()?, &[&loss])
    }))
}

/// A small convolutional network for 3 x 32 x 32 images.
pub(in crate::commands) fn cnn(d: Device, g: &Generator) -> Result<Sequential> {
    let padded = |stride| ConvOptions { stride: [stride; 2], padding: [1, 1], ..ConvOptions::default() };
    Ok(Sequential::new()
        .with(Conv2d::new(3, 16, [3, 3], padded(1), d, g)?)
        .with(activation::relu())
        .with(Conv2d::new(16, 32, [3, 3], padded(2), d, g)?)
        .with(activation::relu())
        .with(Conv2d::new(32, 64, [3, 3], padded(2), d, g)?)
        .with(activation::relu())
        .with(activation::flatten())
        .with(Linear::new(4096, 10, true, d, g)?))
}

/// A small GPT: 4 layers with 4 heads, width 128, 512 tokens. The output layer shares the embedding table.
pub(in crate::commands) struct Gpt {
    tokens: Embedding,
    places: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    positions: Tensor,
}

struct Block {
    norms: [LayerNorm; 2],
    qkv: Linear,
    project: Linear,
    up: Linear,
    down: Linear,
}

const WIDTH: usize = 128;
const HEADS: usize = 4;

impl Gpt {
    pub(in crate::commands) fn new(d: Device, g: &Generator) -> Result<Gpt> {
        let norm = || LayerNorm::new(&[WIDTH], 1e-5, true, d);
        let block = || -> Result<Block> {
            Ok(Block {
                norms: [norm()?, norm()?],
                qkv: Linear::new(WIDTH, 3 * WIDTH, true, d, g)?,
                project: Linear::new(WIDTH, WIDTH, true, d, g)?,
                up: Linear::new(WIDTH, 4 * WIDTH, true, d, g)?,
                down: Linear::new(4 * WIDTH, WIDTH, true, d, g)?,
            })
        };
        Ok(Gpt {
            tokens: Embedding::new(512, WIDTH, None, d, g)?,
            places: Embedding::new(128, WIDTH, None, d, g)?,
            blocks: (0..4).map(|_| block()).collect::<Result<_>>()?,
            norm: norm()?,
            positions: Tensor::arange(0, 128, 1, DType::I64, d)?.evaluated()?,
        })
    }
}

impl Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, time) = (x.shape()[0], x.shape()[1]);
        let qkv = self.qkv.forward(&self.norms[0].forward(x)?)?;
        let qkv = qkv.reshape(&[batch, time, 3, HEADS, WIDTH / HEADS])?.permute(&[2, 0, 3, 1, 4])?;
        let part = |i: usize| -> Result<Tensor> { Ok(qkv.narrow(0, i, 1)?.squeeze(0)?) };
        let options = AttentionOptions { is_causal: true, ..AttentionOptions::default() };
        let y = part(0)?.scaled_dot_product_attention(&part(1)?, &part(2)?, None, options)?;
        let y = y.permute(&[0, 2, 1, 3])?.reshape(&[batch, time, WIDTH])?;
        let x = x.add(&self.project.forward(&y)?)?;
        let hidden = self.up.forward(&self.norms[1].forward(&x)?)?.gelu(GeluApproximation::Tanh)?;
        Ok(x.add(&self.down.forward(&hidden)?)?)
    }
}

impl Module for Gpt {
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let mut x = self.tokens.forward(ids)?.add(&self.places.forward(&self.positions)?)?;
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        let scores = self.norm.forward(&x)?.matmul(&self.tokens.weight().leaf()?.t()?)?;
        Ok(scores.flatten(0, 1)?)
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        let parts: [(&str, &dyn Module); 3] =
            [("tokens", &self.tokens), ("places", &self.places), ("norm", &self.norm)];
        for (name, part) in parts {
            visitor.child(name, part);
        }
        for (i, block) in self.blocks.iter().enumerate() {
            let parts: [(&str, &dyn Module); 6] = [
                ("ln1", &block.norms[0]),
                ("ln2", &block.norms[1]),
                ("qkv", &block.qkv),
                ("proj", &block.project),
                ("up", &block.up),
                ("down", &block.down),
            ];
            for (name, part) in parts {
                visitor.child(&format!("blocks.{i}.{name}"), part);
            }
        }
    }
    fn describe(&self) -> String {
        "Gpt()".to_owned()
    }
}
