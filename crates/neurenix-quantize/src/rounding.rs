//! Adaptive rounding: whether each weight is rounded up or down is learned, layer by layer.
//!
//! Nagel, Amjad, van Baalen, Louizos, Blankevoort, "Up or down? Adaptive rounding for post-training quantization",
//! 2020.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    f64::consts::PI,
};

use neurenix_onnx::{
    Model, Value,
    edit::{Network, integers},
};
use phynexus::{
    DType, Device, Tensor,
    gradient::{Gradients, no_grad},
    tensor::Generator,
};

use crate::{
    Error, Result, Rounding, Sample,
    bias_correction::{Pair, pairs},
    dequantized::{Dequantized, whole},
    linear::Linear,
    scheme::bounds,
    walk::Walk,
};

/// The ends of the stretched sigmoid, `zeta` and `gamma` in formula 23 of the paper.
const STRETCH: (f64, f64) = (1.1, -0.1);

/// The exponent `beta` of formula 24, at the start and the end: high ones push only weights that are all but decided.
const EXPONENTS: (f64, f64) = (20.0, 2.0);

/// The share of steps without the term that pushes each weight up or down.
const WARM_UP: f64 = 0.2;

/// Rounds the stored integer weights of `Conv`, `ConvTranspose`, `Gemm` and `MatMul` nodes up or down so that the
/// layer's result comes close to the float network's, instead of each weight to its nearest integer.
///
/// The layers come in the order in which they run. A layer's input is what the quantized network computes, with the
/// layers before it rounded; its target is what the float network computes (formula 25, without the activation
/// function). The squared error is divided by the mean square of the target, so that the weight of the other term fits
/// layers of any scale. Where the learned choice is worse than the nearest integers over all samples, these stay.
///
/// `float` is the network that was quantized: its nodes have the same names.
///
/// # Errors
/// If a network cannot compute a sample, or a stored tensor is not valid; [`Error::Option`] if the batch is empty.
pub(crate) fn round_adaptively(
    float: &Network,
    quantized: &mut Network,
    samples: &[Sample],
    rounding: &Rounding,
) -> Result<()> {
    if rounding.batch == 0 {
        let (expected, given) = ("at least 1".to_owned(), "0".to_owned());
        return Err(Error::Option { option: "adaptive_rounding.batch", expected, given });
    }
    let mut float = float.clone();
    float.sort()?;
    quantized.sort()?;
    let pairs = pairs(&float, quantized);
    let kept: HashSet<String> = pairs.iter().map(|pair| pair.target.clone()).collect();
    let (mut before, mut after) = (Walk::new(samples, kept), Walk::new(samples, HashSet::new()));
    for pair in pairs {
        let Some(at) = quantized.graph.node.iter().position(|node| node.name == pair.node) else { continue };
        before.advance(&float, pair.layer.node + 1)?;
        after.advance(quantized, at)?;
        if let Some(mut task) = Task::new(&float, quantized, &pair, at)? {
            let (x, bias) = operands(&after, quantized, at)?;
            task.bias = bias;
            let batches = batches(&pair.layer, x, before.tensors(&float, &pair.target)?)?;
            if let Some(whole) = task.learn(&batches, rounding)? {
                quantized.store(integers(&task.name, task.element, &pair.layer.shape, &whole));
            }
        }
        before.release(&pair.target);
    }
    Ok(())
}

/// What a layer reads in the quantized network: its input for each sample, and its bias.
fn operands(walk: &Walk, network: &Network, at: usize) -> Result<(Vec<Tensor>, Option<Tensor>)> {
    let inputs = network.graph.node.get(at).map(|node| node.input.clone()).unwrap_or_default();
    let x = inputs.first().map(|name| walk.tensors(network, name)).transpose()?.unwrap_or_default();
    let bias = inputs.get(2).filter(|name| !name.is_empty());
    let bias = bias.map(|name| walk.tensors(network, name)).transpose()?;
    Ok((x, bias.and_then(|all| all.into_iter().next())))
}

/// Inputs and results of a layer, joined along the first axis; those of different sizes apart.
fn batches(layer: &Linear, x: Vec<Tensor>, y: Vec<Tensor>) -> Result<Vec<(Tensor, Tensor)>> {
    let mut groups: BTreeMap<Vec<usize>, (Vec<Tensor>, Vec<Tensor>)> = BTreeMap::new();
    for (x, y) in x.into_iter().zip(y).filter(|(x, y)| !x.is_empty() && !y.is_empty()) {
        // A matrix multiplies each vector by itself.
        let (x, y) = match layer.has_images() {
            true => (x, y),
            false => {
                let rows = x.len() / layer.inputs;
                (x.reshape(&[rows, layer.inputs])?, y.reshape(&[rows, layer.outputs])?)
            }
        };
        let group = groups.entry(x.shape().get(1..).unwrap_or_default().to_vec()).or_default();
        group.0.push(x);
        group.1.push(y);
    }
    let join = |(x, y): (Vec<Tensor>, Vec<Tensor>)| {
        let join = |parts: &[Tensor]| Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0)?.evaluated();
        Ok((join(&x)?, join(&y)?))
    };
    groups.into_values().map(join).collect()
}

/// The choice of rounding for one weight.
struct Task {
    /// The name of the stored integers, and their type.
    name: String,
    element: neurenix_onnx::Element,
    /// The layer alone, with its input, weight and bias as inputs; and their names.
    model: Model,
    inputs: [String; 3],
    bias: Option<Tensor>,
    outputs: usize,
    /// For each weight: its scale, zero point, and the quotient of weight and scale.
    scales: Tensor,
    zeros: Tensor,
    quotient: Tensor,
    /// The integers that are stored.
    nearest: Tensor,
    /// The least and the greatest integer.
    range: (f64, f64),
}

impl Task {
    /// `None` if the layer's weight in the quantized network is not stored as integers.
    fn new(float: &Network, quantized: &Network, pair: &Pair, at: usize) -> Result<Option<Task>> {
        let links = quantized.links();
        let Some(layer) = quantized.graph.node.get(at) else { return Ok(None) };
        let [x, weight, rest @ ..] = &layer.input[..] else { return Ok(None) };
        let Some(known) = Dequantized::find(quantized, &links, weight) else { return Ok(None) };
        let Some(format) = known.format(quantized).filter(|format| !format.is_float()) else {
            return Ok(None);
        };
        let fits = quantized.stored(&known.values).is_some_and(|tensor| {
            tensor.dims.iter().eq(pair.layer.shape.iter().map(|&size| size as i64).collect::<Vec<_>>().iter())
        });
        let is_own = links.is_only_for(weight, at) && links.is_only_for(&known.values, known.node);
        if !fits || !is_own {
            return Ok(None);
        }
        let Some((scales, zeros)) = known.parameters(quantized, &pair.layer.shape)? else { return Ok(None) };
        let Some(numbers) = pair.layer.numbers(float)? else { return Ok(None) };
        let quotient = numbers.iter().zip(&scales).map(|(number, scale)| number / scale);
        let quotient: Vec<f32> = quotient.map(|x| if x.is_finite() { x } else { 0.0 }).collect();
        let bias = rest.first().cloned().unwrap_or_default();
        let given: HashSet<String> = [x, weight, &bias].into_iter().cloned().collect();
        let outputs: Vec<String> = layer.output.first().cloned().into_iter().collect();
        let device = Device::find("cpu")?;
        let tensor = |numbers: &[f32]| Tensor::from_slice(numbers, &pair.layer.shape, device);
        let zeros: Vec<f32> = zeros.into_iter().map(|zero| zero as f32).collect();
        let Some(nearest) = whole(quantized, &known.values)? else { return Ok(None) };
        let nearest: Vec<f32> = nearest.into_iter().map(|whole| whole as f32).collect();
        Ok(Some(Task {
            name: known.values.clone(),
            element: format.element(),
            model: quantized.between(&given, &outputs)?.model(device)?,
            inputs: [x.clone(), weight.clone(), bias],
            bias: None,
            outputs: pair.layer.outputs,
            scales: tensor(&scales)?,
            zeros: tensor(&zeros)?,
            quotient: tensor(&quotient)?,
            nearest: tensor(&nearest)?,
            // Signed weights are symmetric.
            range: bounds(format, true),
        }))
    }

    /// The layer's result with this weight.
    fn run(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        let [x_name, weight_name, bias_name] = &self.inputs;
        let mut given: HashMap<String, Value> = HashMap::new();
        given.insert(x_name.clone(), x.clone().into());
        given.insert(weight_name.clone(), weight.clone().into());
        given.extend(self.bias.iter().map(|bias| (bias_name.clone(), bias.clone().into())));
        let values = self.model.run(given, &Generator::new(0))?;
        let first = values.first().ok_or_else(|| neurenix_onnx::Error::Invalid("no result".to_owned()))?;
        Ok(first.tensor()?.clone())
    }

    /// The integers for a choice from 0, down, to 1, up.
    fn whole(&self, choice: &Tensor) -> Result<Tensor> {
        let (least, greatest) = self.range;
        let whole = self.quotient.floor()?.add(choice)?.add(&self.zeros)?;
        Ok(whole.clamp(Some(least.into()), Some(greatest.into()))?)
    }

    /// The weight for integers.
    fn weight(&self, whole: &Tensor) -> Result<Tensor> {
        Ok(whole.sub(&self.zeros)?.mul(&self.scales)?)
    }

    /// The squared error over all batches, with these integers.
    fn error(&self, batches: &[(Tensor, Tensor)], whole: &Tensor) -> Result<f64> {
        let weight = self.weight(whole)?;
        let own = |(x, y): &(Tensor, Tensor)| {
            let error = self.run(x, &weight)?.sub(y)?.to_dtype(DType::F64)?;
            Ok(error.square()?.sum(&[], false)?.item::<f64>()?)
        };
        batches.iter().map(own).sum()
    }

    /// The integers, with the zero point, that learning finds; `None` if those that are stored are as good.
    fn learn(&self, batches: &[(Tensor, Tensor)], rounding: &Rounding) -> Result<Option<Vec<i64>>> {
        let (mut square, mut count) = (0f64, 0usize);
        for (_, y) in batches {
            square += y.to_dtype(DType::F64)?.square()?.sum(&[], false)?.item::<f64>()?;
            count += y.len();
        }
        let mean = square / count.max(1) as f64;
        if !(mean > 0.0 && mean.is_finite()) {
            return Ok(None);
        }
        let rows: Vec<i64> =
            batches.iter().filter_map(|(x, _)| x.shape().first()).map(|&n| n as i64).collect();
        let total: i64 = rows.iter().sum();
        let (zeta, gamma) = STRETCH;
        let rest = self.quotient.sub(&self.quotient.floor()?)?;
        // The inverse of the stretched sigmoid: learning starts from the float weight.
        let share = rest.sub_scalar(gamma)?.div_scalar(zeta - gamma)?;
        let mut variables = share.div(&share.rsub_scalar(1.0)?)?.log()?.evaluated()?;
        let mut adam = Adam::new(&variables, rounding.learning_rate)?;
        let generator = Generator::new(rounding.seed);
        let device = variables.device();
        for step in 0..rounding.steps {
            let mut at = generator.randint(0, total, &[1], DType::I64, device)?.item::<i64>()?;
            let mut chosen = batches.iter().zip(&rows);
            let found = chosen.find(|(_, rows)| {
                at -= **rows;
                at < 0
            });
            let Some(((x, y), &rows)) = found else { break };
            let index = generator.randint(0, rows, &[rounding.batch], DType::I64, device)?;
            let (x, y) = (x.index_select(0, &index)?, y.index_select(0, &index)?);
            let leaf = variables.with_grad()?;
            let choice = stretched(&leaf)?;
            let error = self.run(&x, &self.weight(&self.whole(&choice)?)?)?.sub(&y)?.square()?;
            // The sum over channels and the mean over the rest, relative to the target.
            let places = (y.len() / self.outputs).max(1) as f64;
            let scale = Tensor::scalar((1.0 / (places * mean)) as f32, device)?;
            let mut loss = error.sum(&[], false)?.mul(&scale)?;
            let progress = step as f64 / rounding.steps as f64;
            if progress >= WARM_UP {
                let (first, last) = EXPONENTS;
                let share = (progress - WARM_UP) / (1.0 - WARM_UP);
                let exponent = last + 0.5 * (first - last) * (1.0 + (share * PI).cos());
                let exponent = Tensor::scalar(exponent as f32, device)?;
                let distance = choice.mul_scalar(2.0)?.sub_scalar(1.0)?.abs()?;
                let undecided = distance.pow(&exponent)?.rsub_scalar(1.0)?.sum(&[], false)?;
                loss = loss.add(&undecided.mul_scalar(f64::from(rounding.regularization))?)?;
            }
            loss.backward()?;
            let _guard = no_grad();
            let gradient = Gradients::take_from(&[&leaf]).take(&leaf);
            if let Some(gradient) = gradient {
                variables = adam.step(&variables, &gradient)?;
            }
        }
        let up = stretched(&variables)?.ge_scalar(0.5)?.to_dtype(DType::F32)?;
        let learned = self.whole(&up)?.evaluated()?;
        if self.error(batches, &learned)? >= self.error(batches, &self.nearest)? {
            return Ok(None);
        }
        Ok(Some(learned.to_dtype(DType::I64)?.to_vec::<i64>()?))
    }
}

/// The stretched sigmoid, from 0 to 1.
fn stretched(variables: &Tensor) -> Result<Tensor> {
    let (zeta, gamma) = STRETCH;
    let wide = variables.sigmoid()?.mul_scalar(zeta - gamma)?.add_scalar(gamma)?;
    Ok(wide.clamp(Some(0.0.into()), Some(1.0.into()))?)
}

/// Adam with its usual rates of decay (Kingma, Ba, "Adam: A method for stochastic optimization", 2014).
struct Adam {
    rate: f64,
    steps: i32,
    mean: Tensor,
    square: Tensor,
}

impl Adam {
    fn new(variables: &Tensor, rate: f32) -> Result<Adam> {
        let zeros = variables.zeros_like()?;
        Ok(Adam { rate: f64::from(rate), steps: 0, mean: zeros.clone(), square: zeros })
    }

    /// The variables after a step.
    fn step(&mut self, variables: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        const DECAY: (f64, f64) = (0.9, 0.999);
        self.steps += 1;
        self.mean = self.mean.mul_scalar(DECAY.0)?.add(&gradient.mul_scalar(1.0 - DECAY.0)?)?;
        self.square = self.square.mul_scalar(DECAY.1)?.add(&gradient.square()?.mul_scalar(1.0 - DECAY.1)?)?;
        // Tensors, not numbers: steps then share a plan.
        let scalar = |number: f64| Tensor::scalar(number as f32, variables.device());
        let rate = scalar(self.rate / (1.0 - DECAY.0.powi(self.steps)))?;
        let correction = scalar(1.0 / (1.0 - DECAY.1.powi(self.steps)))?;
        let spread = self.square.mul(&correction)?.sqrt()?.add_scalar(1e-8)?;
        let next = variables.sub(&self.mean.mul(&rate)?.div(&spread)?)?;
        Tensor::evaluate_all(&[&next, &self.mean, &self.square])?;
        Ok(next)
    }
}
