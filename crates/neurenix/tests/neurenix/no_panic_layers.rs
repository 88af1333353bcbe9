//! No public call of layers, optimisers, data and training panics, whatever sizes and numbers it gets.

use std::panic::{AssertUnwindSafe, catch_unwind};

use neurenix::{
    Result,
    data::{BatchOptions, Batches, Dataset, HostArray, Normalization},
    loss::Loss,
    nn::{init::Fan, *},
    optim::{Optimizer, Rule, Schedule, clip_gradient_norm, clip_gradient_value},
    train::{Objective, Silent, TrainOptions, Trainer},
};
use phynexus::{DType, Device, Tensor, oracle::generate::Choice, tensor::Generator};

/// A generator of unchecked arguments.
struct Fuzz {
    choice: Choice,
    device: Device,
    generator: Generator,
}

impl Fuzz {
    /// Mostly small; else 0, or so large that products overflow.
    fn size(&mut self) -> usize {
        if self.choice.one_in(8) {
            self.choice.of(&[0, usize::MAX, usize::MAX / 2, usize::MAX / 3 + 1, 1 << 62])
        } else {
            self.choice.of(&[1, 2, 2, 4])
        }
    }
    fn small(&mut self) -> usize {
        if self.choice.one_in(6) { self.choice.below(5) } else { 1 + self.choice.below(2) }
    }
    /// Window sizes.
    fn window<const N: usize>(&mut self) -> [usize; N] {
        std::array::from_fn(|_| if self.choice.one_in(20) { self.size() } else { 1 + self.choice.below(2) })
    }
    fn padding<const N: usize>(&mut self) -> [usize; N] {
        std::array::from_fn(|_| if self.choice.one_in(20) { self.size() } else { self.choice.below(2) })
    }
    fn flag(&mut self) -> bool {
        self.choice.one_in(2)
    }
    fn number(&mut self) -> f64 {
        if self.choice.one_in(8) {
            self.choice.of(&[0.0, 1.0, -1.0, 1e300, f64::NAN, f64::INFINITY])
        } else {
            self.choice.of(&[0.5, 0.9, 1e-2])
        }
    }
    fn index(&mut self) -> i64 {
        self.choice.of(&[0, 1, 2, -1, -2, 7, i64::MAX, i64::MIN])
    }
    fn shape(&mut self) -> Vec<usize> {
        (0..self.choice.below(5)).map(|_| self.choice.of(&[0, 1, 2, 3, 4])).collect()
    }
    fn tensor(&mut self) -> Result<Tensor> {
        let shape = self.shape();
        let dtype =
            self.choice.of(&[DType::F32, DType::F32, DType::F64, DType::BF16, DType::I64, DType::Bool]);
        Ok(Tensor::full(&shape, 1.0, dtype, self.device)?)
    }
    /// Mostly a matching shape.
    fn fitting(&mut self, shape: &[usize]) -> Result<Tensor> {
        let count = shape.iter().fold(1usize, |count, &d| count.saturating_mul(d));
        if self.choice.one_in(4) || count > 10_000 {
            return self.tensor();
        }
        Ok(Tensor::full(shape, 1.0, DType::F32, self.device)?)
    }
    fn optional(&mut self, shape: &[usize]) -> Result<Option<Tensor>> {
        if self.flag() { self.fitting(shape).map(Some) } else { Ok(None) }
    }
    fn conv<const D: usize>(&mut self) -> ConvOptions<D> {
        ConvOptions {
            stride: self.window(),
            padding: self.padding(),
            dilation: self.window(),
            output_padding: self.padding(),
            groups: if self.flag() { 1 } else { self.small() },
            bias: self.flag(),
        }
    }
    fn data(&mut self) -> Result<Dataset> {
        let rows = self.choice.below(9);
        let width = if self.flag() { 2 } else { self.choice.below(4) };
        let values: Vec<f32> = (0..rows * width).map(|i| (i as f32).sin()).collect();
        let inputs = HostArray::from_values(&[rows, width], &values)?;
        if self.flag() {
            let targets = HostArray::from_values(&[rows, 1], &vec![0.5f32; rows])?;
            return Dataset::regression("numbers", inputs, targets);
        }
        let labels: Vec<i64> = (0..rows as i64).map(|i| i % 2).collect();
        let names = vec!["a".to_owned(); if self.flag() { 2 } else { self.small() }];
        Dataset::classes("classes", inputs, HostArray::from_values(&[rows], &labels)?, names)
    }
    fn rule(&mut self) -> Rule {
        let (beta1, beta2, epsilon) = (self.number(), self.number(), self.number());
        let amsgrad = self.flag();
        match self.choice.below(9) {
            0 => Rule::Sgd { momentum: beta1, dampening: beta2, nesterov: amsgrad },
            1 => Rule::Adam { beta1, beta2, epsilon, amsgrad },
            2 => Rule::AdamW { beta1, beta2, epsilon, amsgrad },
            3 => Rule::NAdam { beta1, beta2, epsilon, momentum_decay: self.number() },
            4 => Rule::RAdam { beta1, beta2, epsilon },
            5 => Rule::RmsProp { alpha: beta1, epsilon, momentum: beta2, centered: amsgrad },
            6 => Rule::Adagrad { learning_rate_decay: beta1, epsilon },
            7 => Rule::Adadelta { rho: beta1, epsilon },
            _ => Rule::Lion { beta1, beta2 },
        }
    }
    fn schedule(&mut self) -> Schedule {
        let (a, b) = (self.number(), self.number());
        let count = self.choice.of(&[0, 1, 3, u64::MAX]);
        match self.choice.below(6) {
            0 => Schedule::Constant,
            1 => Schedule::Step { initial: a, epochs: count, factor: b },
            2 => Schedule::Cosine { initial: a, final_rate: b, warmup: count },
            3 => Schedule::OneCycle { peak: a, rise: b },
            4 => Schedule::Warmup { rate: a, steps: count, then: Box::new(self.schedule()) },
            _ => Schedule::Plateau { factor: a, patience: count as usize, minimum: b },
        }
    }
}

/// Applies the module, mostly to this shape, describes it and switches its mode.
fn work(f: &mut Fuzz, module: impl Module, shape: &[usize]) -> Result<()> {
    let _ = module.describe();
    let x = f.fitting(shape)?;
    let y = module.forward(&x)?;
    let y = if y.requires_grad() { y } else { y.evaluated()? };
    if y.requires_grad() {
        y.sum(&[], false)?.leaf_gradients()?;
    }
    module.eval();
    module.forward(&x)?.to_bytes()?;
    Ok(())
}

type Call = fn(&mut Fuzz) -> Result<()>;

macro_rules! convolutions {
    ($($dims:literal $layer:ident $transposed:ident $max:ident $average:ident $adaptive:ident;)+) => { &[$(
        (stringify!($layer), |f| {
            let (i, o, kernel, options) = (f.size(), f.size(), f.window(), f.conv());
            let layer = $layer::new(i, o, kernel, options, f.device, &f.generator)?;
            work(f, layer, &[&[2, i], &[5; $dims][..]].concat())
        }),
        (stringify!($transposed), |f| {
            let (i, o, kernel, options) = (f.size(), f.size(), f.window(), f.conv());
            let layer = $transposed::new(i, o, kernel, options, f.device, &f.generator)?;
            work(f, layer, &[&[2, i], &[3; $dims][..]].concat())
        }),
        (stringify!($max), |f| {
            let pool = $max { stride: Some(f.window()), padding: f.padding(), ..$max::new(f.window()) };
            work(f, pool, &[&[2, 2], &[5; $dims][..]].concat())
        }),
        (stringify!($average), |f| {
            let pool = $average { stride: Some(f.window()), padding: f.padding(), ..$average::new(f.window()) };
            work(f, pool, &[&[2, 2], &[5; $dims][..]].concat())
        }),
        (stringify!($adaptive), |f| {
            let pool = $adaptive { output_size: f.window() };
            work(f, pool, &[&[2, 2], &[5; $dims][..]].concat())
        }),
    )+] };
}

const LAYERS: &[(&str, Call)] = &[
    ("Linear", |f| {
        let inputs = f.size();
        let layer = Linear::new(inputs, f.size(), f.flag(), f.device, &f.generator)?;
        work(f, layer, &[3, inputs])
    }),
    ("Embedding", |f| {
        let padding = f.flag().then(|| f.index());
        let layer = Embedding::new(f.size(), f.size(), padding, f.device, &f.generator)?;
        let index = if f.flag() { 0 } else { f.index() };
        layer.forward(&Tensor::full(&[2, 3], index, DType::I64, f.device)?)?.to_bytes()?;
        layer.describe();
        Ok(())
    }),
    ("Dropout", |f| {
        let layer = Dropout::new(f.number())?;
        work(f, layer, &[4])
    }),
    ("PReLU", |f| {
        let count = f.size();
        let layer = activation::PReLU::new(count, f.number(), f.device)?;
        work(f, layer, &[2, count])
    }),
    ("LayerNorm", |f| {
        let shape = [f.size(), f.size()];
        let layer = LayerNorm::new(&shape, f.number(), f.flag(), f.device)?;
        work(f, layer, &shape)
    }),
    ("RMSNorm", |f| {
        let shape = [f.size()];
        let layer = RMSNorm::new(&shape, f.flag().then(|| f.number()), f.flag(), f.device)?;
        work(f, layer, &shape)
    }),
    ("GroupNorm", |f| {
        let channels = f.size();
        let layer = GroupNorm::new(f.size(), channels, f.number(), f.flag(), f.device)?;
        work(f, layer, &[2, channels, 3])
    }),
    ("BatchNorm1d", |f| {
        let options = BatchNormOptions {
            epsilon: f.number(),
            momentum: f.flag().then(|| f.number()),
            affine: f.flag(),
            track_running_stats: f.flag(),
        };
        let channels = f.size();
        let layer = BatchNorm1d::new(channels, options, f.device)?;
        work(f, layer, &[3, channels])
    }),
    ("recurrent", |f| {
        let options = RecurrentOptions {
            num_layers: f.small(),
            bias: f.flag(),
            batch_first: f.flag(),
            bidirectional: f.flag(),
            ..RecurrentOptions::default()
        };
        let (input, hidden) = (f.size(), f.size());
        let shape = [3, 3, input];
        let x = f.fitting(&shape)?;
        let states = [options.num_layers * (1 + usize::from(options.bidirectional)), 3, hidden];
        let (h, c) = (f.optional(&states)?, f.optional(&states)?);
        match f.choice.below(3) {
            0 => {
                let layer = LSTM::new(input, hidden, options, f.device, &f.generator)?;
                layer.run(&x, h.as_ref(), c.as_ref())?.output.to_bytes()?;
                work(f, layer, &shape)
            }
            1 => {
                let layer = GRU::new(input, hidden, options, f.device, &f.generator)?;
                layer.run(&x, h.as_ref(), None)?.h_n.to_bytes()?;
                work(f, layer, &shape)
            }
            _ => {
                let layer = RNN::new(input, hidden, options, f.device, &f.generator)?;
                layer.run(&x, h.as_ref(), c.as_ref())?.output.to_bytes()?;
                work(f, layer, &shape)
            }
        }
    }),
    ("MultiheadAttention", |f| {
        let features = f.size();
        let layer =
            MultiheadAttention::new(features, f.size(), f.number(), f.flag(), f.device, &f.generator)?;
        let shape = [2, 3, features];
        let (q, k, v) = (f.fitting(&shape)?, f.fitting(&shape)?, f.fitting(&shape)?);
        let (attn_mask, padding) = (f.optional(&[3, 3])?, f.optional(&[2, 3])?);
        let masks = AttentionMasks {
            attn_mask: attn_mask.as_ref(),
            key_padding_mask: padding.as_ref(),
            is_causal: f.flag(),
        };
        layer.attend(&q, &q, &q, masks).and_then(|y| Ok(y.to_bytes()?)).ok();
        layer.attend(&q, &k, &v, masks).and_then(|y| Ok(y.to_bytes()?)).ok();
        work(f, layer, &shape)
    }),
    ("TransformerEncoderLayer", |f| {
        let options = TransformerOptions {
            feedforward: f.size(),
            dropout: f.number(),
            norm_first: f.flag(),
            ..TransformerOptions::default()
        };
        let features = f.size();
        let layer = TransformerEncoderLayer::new(features, f.small(), options, f.device, &f.generator)?;
        work(f, layer, &[2, 3, features])
    }),
    ("init", |f| {
        let shape: Vec<usize> = (0..f.choice.below(5)).map(|_| f.size()).collect();
        let (a, b, c, d) = (f.number(), f.number(), f.number(), f.number());
        let fan = f.choice.of(&[Fan::In, Fan::Out]);
        let (dtype, device, g) = (f.choice.of(&[DType::F32, DType::F16, DType::I32]), f.device, &f.generator);
        let _ = init::fans(&shape);
        let drawn = match f.choice.below(7) {
            0 => init::uniform(&shape, a, b, dtype, device, g),
            1 => init::normal(&shape, a, b, dtype, device, g),
            2 => init::xavier_uniform(&shape, a, dtype, device, g),
            3 => init::xavier_normal(&shape, a, dtype, device, g),
            4 => init::kaiming_uniform(&shape, fan, dtype, device, g),
            5 => init::trunc_normal(&shape, (a, b), (c, d), dtype, device, g),
            _ => init::orthogonal(&shape, a, dtype, device, g),
        };
        drawn?.to_bytes()?;
        Ok(())
    }),
];

const LEARNING: &[(&str, Call)] = &[
    ("Optimizer", |f| {
        let parameters: Vec<Parameter> =
            (0..f.small()).map(|_| Parameter::new(&f.fitting(&[2, 3])?)).collect::<Result<_>>()?;
        let rule = f.rule();
        let mut optimizer =
            Optimizer::new(rule, parameters.clone(), f.number())?.with_weight_decay(f.number())?;
        let clip = f.number();
        for _ in 0..2 {
            let mut loss = Tensor::full(&[], 0.0, DType::F64, f.device)?;
            for parameter in &parameters {
                loss = loss.add(&parameter.leaf()?.to_dtype(DType::F64)?.square()?.sum(&[], false)?)?;
            }
            let gradients = clip_gradient_value(loss.leaf_gradients()?, clip)?;
            optimizer.step(clip_gradient_norm(gradients, clip)?, &[&loss])?;
            optimizer.set_learning_rate(f.number())?;
        }
        let state = optimizer.state()?;
        optimizer.load_state(&state)
    }),
    ("Schedule", |f| {
        let schedule = f.schedule();
        let count = |f: &mut Fuzz| f.choice.of(&[0, 1, 5, 1000, u64::MAX]);
        let _ = schedule.at_step(count(f), count(f), count(f));
        let _ = schedule.after_epoch(f.number(), f.size());
        Ok(())
    }),
    ("Dataset", |f| {
        let data = f.data()?;
        let count = f.size();
        let parts = [data.split_off(f.number(), 3), data.split_at(count)];
        for (first, second) in parts.into_iter().flatten() {
            let _ = (first.class_counts(), second.statistics(f.number() as f32), second.all());
        }
        let _ = data.batch(&[f.size(), f.small()]);
        let channels = f.small();
        let normalization =
            Normalization { scale: 1.0, mean: vec![0.0; channels], std: vec![1.0; f.small()] };
        data.clone().with_normalization(normalization).all().ok();
        let options = BatchOptions {
            batch_size: f.size(),
            shuffle_seed: f.flag().then_some(1),
            epoch: f.choice.of(&[0, u64::MAX]),
            skip: f.size(),
            ..BatchOptions::default()
        };
        for batch in Batches::new(&data, &options)? {
            batch?;
        }
        Ok(())
    }),
    ("Trainer", |f| {
        let (data, validation) = (f.data()?, f.data()?);
        let outputs = data.class_names().len().max(1);
        let outputs = if f.choice.one_in(4) { f.small() } else { outputs };
        let inputs = data.input_shape().iter().product();
        let model = Linear::new(inputs, outputs, true, f.device, &f.generator)?;
        let validation = if f.flag() { data.clone() } else { validation };
        let optimizer = Optimizer::new(f.rule(), model.parameters(), f.number())?;
        let objective = match f.choice.below(6) {
            0 => Objective::Regression(Loss::MSE),
            1 => Objective::Classification(Loss::cross_entropy(f.number())),
            _ => Objective::of(&data),
        };
        let options = TrainOptions {
            epochs: f.small(),
            batch_size: f.size(),
            accumulate: f.size(),
            schedule: f.schedule(),
            clip_norm: f.flag().then(|| f.number()),
            patience: f.flag().then(|| f.small()),
            ..TrainOptions::default()
        };
        let mut trainer = Trainer::new(&model, optimizer, objective, &f.generator, f.device, options);
        trainer.run(&data, Some(&validation), &mut Silent)?;
        trainer.restore_best()?;
        trainer.evaluate(&data)?;
        Ok(())
    }),
];

const WINDOWS: &[(&str, Call)] = convolutions! {
    1 Conv1d ConvTranspose1d MaxPool1d AvgPool1d AdaptiveAvgPool1d;
    2 Conv2d ConvTranspose2d MaxPool2d AvgPool2d AdaptiveMaxPool2d;
    3 Conv3d ConvTranspose3d MaxPool3d AvgPool3d AdaptiveAvgPool3d;
};

#[test]
fn every_call_answers() -> Result<()> {
    neurenix::register_all();
    let device = Device::default_device()?;
    let mut wrong: Vec<String> = Vec::new();
    for (place, (name, call)) in [LAYERS, WINDOWS, LEARNING].into_iter().flatten().enumerate() {
        let mut answers = [0usize; 2];
        for round in 0..300u64 {
            let seed = place as u64 * 1000 + round;
            let mut fuzz = Fuzz { choice: Choice::new(seed), device, generator: Generator::new(seed) };
            match catch_unwind(AssertUnwindSafe(|| call(&mut fuzz))) {
                Ok(Ok(())) => answers[0] += 1,
                // An internal error was caught in time but is still a bug.
                Ok(Err(neurenix::Error::Engine(phynexus::Error::Internal { place, message }))) => {
                    wrong.push(format!("{name}, seed {seed}: internal error in {place}: {message}"));
                }
                Ok(Err(_)) => answers[1] += 1,
                Err(_) => wrong.push(format!("{name}, seed {seed}: it panicked")),
            }
        }
        // Some calls must fail and some must succeed. A schedule never fails.
        if answers[0] < 10 || answers[1] < 10 && *name != "Schedule" {
            wrong.push(format!("{name}: {answers:?} is no test"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
