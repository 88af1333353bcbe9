//! Convolutions and products.

use super::{
    constant::{Constant, Numbers},
    graph::{Quantization, Stored},
    layout::{Layout, permuted},
    schema::{
        Activation, Code, Kind, Padding, convolution, depthwise, fully_connected, plain, reshape,
        transposed_convolution,
    },
    writer::{Goal, Writer},
};
use crate::Result;

/// How the integers of an operator's weights and bias are scaled: its type, its input's scale, and the weights' scales.
struct Scales {
    kind: Kind,
    input: f32,
    weights: Vec<f32>,
}

impl Writer<'_> {
    /// `Conv`.
    pub(crate) fn convolution(&mut self) -> Result<()> {
        let (x, weights) = (self.input(0)?, self.weights(1)?);
        let goal = self.goal(true)?;
        let scales = self.scales(x, &weights, 0, &goal)?;
        let image = self.image(x, scales.is_some())?;
        let output = self.image_shape(&goal.name)?;
        let size = [output[1], output[2]];
        let window = self.window(&weights.shape[2..], image.size(), size)?;
        let (image, padding) = self.padded(image, &window, size, false)?;
        let [outputs, per_group] = [weights.shape[0], weights.shape[1]];
        let group = self.integer("group", 1);
        let inputs = image.shape[3];
        let [height, width] = window.size;
        let bias = self.bias(self.name(2), outputs, scales.as_ref(), 1.0)?;
        let is_depthwise = group > 1 && group == i64::from(inputs) && per_group == 1;
        let order = |spatial: usize| match (is_depthwise, spatial) {
            (true, 1) => vec![1, 2, 0],
            (true, _) => vec![1, 2, 3, 0],
            (false, 1) => vec![0, 2, 1],
            (false, _) => vec![0, 2, 3, 1],
        };
        let order = order(weights.shape.len() - 2);
        let shape = match is_depthwise {
            true => vec![1, height, width, outputs as i32],
            false => vec![outputs as i32, height, width, per_group as i32],
        };
        let filter = self.filter(&weights, &order, shape, scales.as_ref(), if is_depthwise { 3 } else { 0 });
        let made = self.image_result(&goal, scales.is_some())?;
        let (stride, dilation) = (window.stride, window.dilation);
        let (code, options) = if is_depthwise {
            let multiplier = outputs as i32 / inputs.max(1);
            let options = depthwise(padding, stride, dilation, multiplier, goal.activation);
            (Code::DEPTHWISE_CONV_2D, options)
        } else {
            (Code::CONV_2D, convolution(padding, stride, dilation, goal.activation))
        };
        self.step(code, vec![image.tensor, filter, bias], made.image, options);
        self.finish_image(made);
        Ok(())
    }

    /// `ConvTranspose`.
    pub(crate) fn transposed_convolution(&mut self) -> Result<()> {
        let (x, weights) = (self.input(0)?, self.weights(1)?);
        let goal = self.goal(false)?;
        let scales = self.scales(x, &weights, 1, &goal)?;
        let image = self.image(x, scales.is_some())?;
        let output = self.image_shape(&goal.name)?;
        let size = [output[1], output[2]];
        // Pads mean the opposite of a convolution's: its input is this one's output.
        let window = self.window(&weights.shape[2..], size, image.size())?;
        if window.dilation != [1, 1] || self.integer("group", 1) != 1 {
            return Err(self.refuse("dilations and groups of transposed convolutions have no form in TFLite"));
        }
        let full = [window.covered(0, image.size()[0]), window.covered(1, image.size()[1])];
        let full = [self.short(full[0])?, self.short(full[1])?];
        let outputs = weights.shape[1];
        let shape = vec![outputs as i32, window.size[0], window.size[1], weights.shape[0] as i32];
        let order = if weights.shape.len() == 3 { vec![1, 2, 0] } else { vec![1, 2, 3, 0] };
        let filter = self.filter(&weights, &order, shape, scales.as_ref(), 0);
        let bias = self.bias(self.name(2), outputs, scales.as_ref(), 1.0)?;
        let made = self.image_result(&goal, scales.is_some())?;
        let options = |padding: Padding| transposed_convolution(padding, window.stride, goal.activation);
        match window.padding(size, image.size()) {
            Some(padding) => {
                let extents = self.integers(&output);
                let inputs = vec![extents, filter, image.tensor, bias];
                self.step(Code::TRANSPOSE_CONV, inputs, made.image, options(padding));
            }
            None if (0..2).all(|axis| (0..=full[axis] - size[axis]).contains(&window.begin[axis])) => {
                let whole = [output[0], full[0], full[1], output[3]];
                self.check_size("the whole result", &whole.map(|extent| extent as usize))?;
                let like = self.graph.tensors[made.image as usize].clone();
                let name = format!("{}/whole", like.name);
                let uncut = self.push(Stored { name, shape: whole.to_vec(), ..like });
                let extents = self.integers(&whole);
                let inputs = vec![extents, filter, image.tensor, bias];
                self.step(Code::TRANSPOSE_CONV, inputs, uncut, options(Padding::Valid));
                let begin = self.integers(&[0, window.begin[0], window.begin[1], 0]);
                let extents = self.integers(&output);
                self.step(Code::SLICE, vec![uncut, begin, extents], made.image, plain(Code::SLICE));
            }
            None => return Err(self.refuse("this output padding has no form in TFLite")),
        }
        self.finish_image(made);
        Ok(())
    }

    /// `Gemm`, or `MatMul` with a constant matrix.
    pub(crate) fn product(&mut self) -> Result<()> {
        let is_gemm = self.node().op_type == "Gemm";
        let x = self.input(0)?;
        let constant = self.constant(self.input(1)?)?;
        let Some(weights) = constant.filter(|weights| weights.shape.len() == 2) else {
            return if is_gemm {
                Err(self.refuse("the matrix is not constant"))
            } else {
                self.batch_product()
            };
        };
        if is_gemm && self.integer("transA", 0) != 0 {
            return Err(self.refuse("a transposed first matrix has no form in TFLite"));
        }
        let is_transposed = is_gemm && self.integer("transB", 0) != 0;
        let [alpha, beta] = ["alpha", "beta"].map(|name| if is_gemm { self.float(name, 1.0) } else { 1.0 });
        let (output_axis, order) = if is_transposed { (0, [0, 1]) } else { (1, [1, 0]) };
        let [outputs, inputs] = [weights.shape[output_axis], weights.shape[1 - output_axis]];
        let (goal, bias) = self.product_goal(is_gemm, outputs)?;
        let mut scales = self.scales(x, &weights, output_axis, &goal)?;
        if alpha != 1.0 {
            scales = None;
        }
        let mut held = self.held(x)?;
        if !matches!(held.layout, Layout::FlatChannelsLast(_)) {
            held = self.value_in(x, &Layout::Network)?;
        }
        if scales.is_none() {
            held = self.real(held)?;
        }
        let bias = self.bias(bias.as_deref(), outputs, scales.as_ref(), beta)?;
        let mut matrix = Constant { shape: weights.shape.clone(), numbers: weights.numbers };
        if alpha != 1.0 {
            let scaled = matrix.real().into_iter().map(|x| (x * f64::from(alpha)) as f32).collect();
            matrix.numbers = Numbers::Floats(scaled);
        }
        let shape = vec![outputs as i32, inputs as i32];
        let filter = self.filter(&matrix, &order, shape, scales.as_ref(), 0);
        if let Layout::FlatChannelsLast([channels, height, width]) = held.layout {
            let stored = &mut self.graph.tensors[filter as usize];
            let size = stored.kind.size();
            if let Some(data) = &mut stored.data {
                let elements: Vec<&[u8]> = data.chunks_exact(size).collect();
                *data = permuted(&elements, &[outputs, channels, height, width], &[0, 2, 3, 1]).concat();
            }
        }
        let keeps_rank = self.shape(x)?.len() != 2;
        let is_by_channel = scales.as_ref().is_some_and(|scales| scales.weights.len() > 1);
        let result = self.result(&goal, &Layout::Network, scales.is_some())?;
        if self.dialect.plain_products && (is_by_channel || keeps_rank) {
            self.product_of_pixels([held.tensor, filter, bias], result, goal.activation);
            return Ok(());
        }
        let options = fully_connected(keeps_rank, goal.activation);
        self.step(Code::FULLY_CONNECTED, vec![held.tensor, filter, bias], result, options);
        if let Some(step) = self.graph.steps.last_mut().filter(|_| is_by_channel) {
            // The version that has a scale for each row.
            step.version = 12;
        }
        Ok(())
    }

    /// A product as a convolution: each vector is an image of one pixel.
    fn product_of_pixels(&mut self, [x, filter, bias]: [i32; 3], result: i32, activation: Activation) {
        let matrix = self.graph.tensors[filter as usize].shape.clone();
        let [outputs, inputs] = [matrix[0], matrix[1]];
        self.graph.tensors[filter as usize].shape = vec![outputs, 1, 1, inputs];
        let like = self.graph.tensors[result as usize].clone();
        let vectors = like.shape.iter().product::<i32>() / outputs.max(1);
        let pixels = self.reshaped(x, vec![vectors, 1, 1, inputs]);
        let (name, shape) = (format!("{}/pixels", like.name), vec![vectors, 1, 1, outputs]);
        let made = self.push(Stored { name, shape, ..like.clone() });
        let options = convolution(Padding::Valid, [1, 1], [1, 1], activation);
        self.step(Code::CONV_2D, vec![pixels, filter, bias], made, options);
        let extents = self.integers(&like.shape);
        self.step(Code::RESHAPE, vec![made, extents], result, reshape(like.shape));
    }

    /// The result of a product, with the bias of a `Gemm` or of an `Add` that alone reads a `MatMul`.
    fn product_goal(&mut self, is_gemm: bool, outputs: usize) -> Result<(Goal, Option<String>)> {
        if is_gemm {
            let bias = self.name(2).map(str::to_owned);
            return Ok((self.goal(true)?, bias));
        }
        let product = self.output();
        if let Some(reader) = self.links.only_reader(product) {
            let node = &self.network.graph.node[reader];
            let other = node.input.iter().find(|name| *name != product).filter(|_| node.op_type == "Add");
            let constant = other.map(|name| self.constant(name)).transpose()?.flatten();
            let is_bias = constant.is_some_and(|constant| constant.shape == [outputs]);
            if let (Some(sum), Some(bias), true) = (node.output.first(), other, is_bias) {
                self.absorbed.insert(reader);
                return Ok((self.goal_of(sum.clone(), true)?, Some(bias.clone())));
            }
        }
        Ok((self.goal(true)?, None))
    }

    /// `MatMul` of two values.
    fn batch_product(&mut self) -> Result<()> {
        let names = [self.input(0)?, self.input(1)?];
        let goal = self.goal(false)?;
        let kind = self.quantized_kind(&names, &goal)?;
        let rank = self.shape(&goal.name)?.len();
        let mut operands = Vec::new();
        for name in names {
            let held = self.operand(name, &Layout::Network, kind.is_some())?;
            let shape = self.stored(&held).shape.clone();
            if shape.len() < 2 || rank > 5 {
                return Err(self.refuse("TFLite multiplies values of 2 to 5 dimensions"));
            }
            let padded = [vec![1; rank.saturating_sub(shape.len())], shape].concat();
            operands.push(self.reshaped(held.tensor, padded));
        }
        let result = self.result(&goal, &Layout::Network, kind.is_some())?;
        self.step(Code::BATCH_MATMUL, operands, result, plain(Code::BATCH_MATMUL));
        Ok(())
    }

    /// The constant weights at this input.
    fn weights(&self, position: usize) -> Result<Constant> {
        let weights = self.constant(self.input(position)?)?;
        let weights = weights.ok_or_else(|| self.refuse("the weights are not constant"))?;
        match weights.shape.len() {
            3 | 4 => Ok(weights),
            _ => Err(self.refuse("only one and two dimensions have a form in TFLite")),
        }
    }

    /// The scales with which an operator computes on integers; `None` if it computes on real numbers. `axis` is the
    /// outputs' in the weights.
    fn scales(&mut self, x: &str, weights: &Constant, axis: usize, goal: &Goal) -> Result<Option<Scales>> {
        let (Some(kind), Numbers::Quantized(_, scheme)) =
            (self.quantized_kind(&[x], goal)?, &weights.numbers)
        else {
            return Ok(None);
        };
        let quantization = &scheme.quantization;
        if scheme.kind != Kind::I8 {
            return Err(self.refuse("TFLite has weights of 8 bits"));
        }
        if quantization.zeros.iter().any(|&zero| zero != 0) {
            return Err(self.refuse("weights are symmetric in TFLite; quantize them with zero point 0"));
        }
        if quantization.scales.len() > 1 && quantization.axis != axis {
            return Err(self.refuse("the weights' scales must be along the outputs"));
        }
        let held = self.held(x)?;
        let input = self.stored(&held).quantization.as_ref().and_then(Quantization::single);
        let input = input.map(|(scale, _)| scale);
        Ok(input.map(|input| Scales { kind, input, weights: quantization.scales.clone() }))
    }

    /// Weights in another order as a tensor of this shape, whose outputs are along `axis`.
    fn filter(
        &mut self,
        weights: &Constant,
        order: &[usize],
        shape: Vec<i32>,
        scales: Option<&Scales>,
        axis: usize,
    ) -> i32 {
        let (kind, quantization, data) = match (&weights.numbers, scales) {
            (Numbers::Quantized(integers, scheme), Some(scales)) => {
                let integers = permuted(integers, &weights.shape, order);
                let axis = if scales.weights.len() > 1 { axis } else { 0 };
                let quantization = Quantization { axis, ..scheme.quantization.clone() };
                (scheme.kind, Some(quantization), scheme.kind.bytes(integers))
            }
            _ => {
                let numbers = permuted(&weights.real(), &weights.shape, order);
                (Kind::F32, None, numbers.into_iter().flat_map(|x| (x as f32).to_le_bytes()).collect())
            }
        };
        let name = format!("{}/weights", self.node().name);
        self.push(Stored { name, shape, kind, quantization, data: Some(data) })
    }

    /// A bias times `factor`, of zeros if there is none. Integers have the product of the input's and weights' scales,
    /// 32 bits for values of 8 and 64 for values of 16.
    fn bias(
        &mut self,
        value: Option<&str>,
        outputs: usize,
        scales: Option<&Scales>,
        factor: f32,
    ) -> Result<i32> {
        let real = match value {
            None => vec![0.0; outputs],
            Some(value) => {
                let constant = self.constant(value)?;
                let constant = constant.ok_or_else(|| self.refuse("the bias is not constant"))?;
                let real = constant.real();
                match real.len() {
                    1 => vec![real[0]; outputs],
                    count if count == outputs => real,
                    _ => return Err(self.refuse("the bias has another number of elements than the outputs")),
                }
            }
        };
        let real = real.into_iter().map(|x| x * f64::from(factor));
        let name = format!("{}/bias", self.node().name);
        let shape = vec![outputs as i32];
        let Some(Scales { kind, input, weights }) = scales else {
            let data = real.flat_map(|x| (x as f32).to_le_bytes()).collect();
            return Ok(self.push(Stored {
                name,
                shape,
                kind: Kind::F32,
                quantization: None,
                data: Some(data),
            }));
        };
        let scale = |output: usize| f64::from(*input) * f64::from(weights[output % weights.len()]);
        let integers = real.enumerate().map(|(output, x)| (x / scale(output)).round_ties_even() as i64);
        let (kind, limit) = match kind {
            Kind::I16 => (Kind::I64, i64::MAX),
            _ => (Kind::I32, i64::from(i32::MAX)),
        };
        let data = kind.bytes(integers.map(|q| q.clamp(-limit, limit)));
        let quantization = Quantization {
            scales: (0..weights.len()).map(|output| scale(output) as f32).collect(),
            zeros: vec![0; weights.len()],
            axis: 0,
        };
        Ok(self.push(Stored { name, shape, kind, quantization: Some(quantization), data: Some(data) }))
    }
}
