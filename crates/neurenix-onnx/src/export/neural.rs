//! Products, convolutions, pooling, and composites that ONNX has operators for.

use phynexus::{
    DType, Scalar,
    op::{
        Composite, Conv, ConvKind, Geometry, Op, Pool, PoolKind,
        composite::{
            Attention, BatchNorm, Cell, DequantizeLinear, GroupNorm, LayerNorm, QuantizeLinear, Recurrent,
        },
    },
};

use super::{
    emit::{Emitter, carrier, wide},
    graph::{Extent, Node, count},
    lower::dequantized,
    symbols::varies,
    writer::{Value, broadcast, float, integer, integers, text, texts},
};
use crate::{Error, Result, proto::AttributeProto};

/// The attributes of a window.
fn window(geometry: &Geometry) -> Vec<AttributeProto> {
    let list = |sizes: &[usize]| sizes.iter().map(|&size| size as i64).collect::<Vec<i64>>();
    let (before, after): (Vec<i64>, Vec<i64>) =
        geometry.padding.iter().map(|&(before, after)| (before as i64, after as i64)).unzip();
    let mut attributes = vec![
        integers("kernel_shape", list(&geometry.kernel)),
        integers("strides", list(&geometry.stride)),
        integers("pads", [before, after].concat()),
    ];
    if geometry.dilation.iter().any(|&step| step != 1) {
        attributes.push(integers("dilations", list(&geometry.dilation)));
    }
    attributes
}

impl Emitter<'_> {
    pub(super) fn product(&mut self, node: &Node, a: usize, b: usize) -> Result<Value> {
        let dtype = carrier(node.dtype);
        let mut factor = |id: usize| -> Result<Value> {
            let (value, shape) = (self.compact(id)?, &self.graph.nodes[id].shape);
            let matrix = shape.len() - 2;
            // Leading axes are broadcast.
            let fits = value.shape.len() >= 2 && value.shape[value.shape.len() - 2..] == shape[matrix..];
            let value = if fits { value } else { self.stretched(&value, shape)? };
            Ok(self.writer.cast(&value, dtype))
        };
        let (a, b) = (factor(a)?, factor(b)?);
        let (left, right) = (a.shape.len() - 2, b.shape.len() - 2);
        let mut shape = broadcast(&[&a.shape[..left], &b.shape[..right]]);
        shape.extend([a.shape[left], b.shape[right + 1]]);
        let product = self.writer.node("MatMul", &[&a, &b], Vec::new(), dtype, shape);
        Ok(self.writer.cast(&product, node.dtype))
    }

    pub(super) fn convolution(&mut self, node: &Node, conv: &Conv) -> Result<Value> {
        let Conv(kind, geometry) = conv;
        let name = || Error::unsupported(format!("{} of {}", node.op[0].name(), node.dtype));
        let dtype = match node.dtype {
            DType::I8 | DType::U8 | DType::I16 | DType::U16 => DType::F64,
            other if other.is_float() => carrier(other),
            _ => return Err(name()),
        };
        let (a, b) = (self.operand(node.inputs[0], dtype)?, self.operand(node.inputs[1], dtype)?);
        let mut attributes = window(geometry);
        attributes.push(integer("group", geometry.groups as i64));
        let operator = match kind {
            ConvKind::Forward => "Conv",
            ConvKind::InputGradient => {
                // What the strides leave open is added at the end.
                let open = |d: usize| -> Option<i64> {
                    let covered = (geometry.kernel[d] as i64 - 1) * geometry.dilation[d] as i64 + 1;
                    let padding = (geometry.padding[d].0 + geometry.padding[d].1) as i64;
                    let size =
                        |n: usize| (a.shape[d + 2][n] - 1) * geometry.stride[d] as i64 + covered - padding;
                    let open = [0, 1].map(|n| node.shape[d + 2][n] - size(n));
                    (open[0] == open[1] && open[0] >= 0).then_some(open[0])
                };
                let open =
                    (0..geometry.kernel.len()).map(open).collect::<Option<Vec<i64>>>().ok_or_else(name)?;
                if open.iter().any(|&size| size != 0) {
                    attributes.push(integers("output_padding", open));
                }
                "ConvTranspose"
            }
            ConvKind::FilterGradient => return Err(name()),
        };
        let y = self.writer.node(operator, &[&a, &b], attributes, dtype, node.shape.clone());
        Ok(self.writer.cast(&y, node.dtype))
    }

    /// The operand and the window, padded if the window would lie in the padding alone, which ONNX does not have.
    fn windowed(&mut self, x: Value, geometry: &Geometry, number: Scalar) -> Result<(Value, Geometry)> {
        let mut geometry = geometry.clone();
        let fits =
            geometry.padding.iter().zip(&geometry.kernel).all(|(sides, &size)| sides.0.max(sides.1) < size);
        if fits {
            return Ok((x, geometry));
        }
        let mut sides = [vec![[0, 0]; 2], vec![[0, 0]; 2]];
        for padding in &mut geometry.padding {
            sides[0].push([padding.0 as i64; 2]);
            sides[1].push([padding.1 as i64; 2]);
            *padding = (0, 0);
        }
        Ok((self.padded(&x, &sides[0], &sides[1], number)?, geometry))
    }

    pub(super) fn average_pool(&mut self, node: &Node, x: usize, geometry: &Geometry) -> Result<Value> {
        let x = self.operand(x, wide(node.dtype))?;
        let (x, geometry) = self.windowed(x, geometry, Scalar::Float(0.0))?;
        let mut attributes = window(&geometry);
        if geometry.padding.iter().any(|sides| *sides != (0, 0)) {
            attributes.push(integer("count_include_pad", 1));
        }
        let mean = self.writer.node("AveragePool", &[&x], attributes, x.dtype, node.shape.clone());
        Ok(self.writer.cast(&mean, node.dtype))
    }

    pub(super) fn pool(&mut self, node: &Node, pool: &Pool) -> Result<Value> {
        let Pool(kind, geometry) = pool;
        let x = self.full(node.inputs[0])?;
        let name = || Error::unsupported(format!("{} of {}", node.op[0].name(), x.dtype));
        let dtype = match x.dtype {
            DType::I8 | DType::U8 if *kind != PoolKind::Sum => x.dtype,
            DType::F16 if *kind != PoolKind::Sum => x.dtype,
            DType::Bool | DType::I8 | DType::U8 | DType::I16 | DType::U16 => DType::F32,
            DType::I32 | DType::U32 if *kind != PoolKind::Sum => DType::F64,
            other if other.is_float() => wide(other),
            _ => return Err(name()),
        };
        let moved = self.writer.cast(&x, dtype);
        let lowest = phynexus::op::Combine::Max.identity(dtype);
        let nothing = if *kind == PoolKind::Sum { Scalar::Float(0.0) } else { lowest };
        match kind {
            PoolKind::Sum => {
                let whole = geometry.kernel.iter().product::<usize>();
                let sized = Node { dtype, ..node.clone() };
                let mean = self.average_pool(&sized, node.inputs[0], geometry)?;
                let whole = self.writer.scalar(dtype, whole as u64);
                let sum = self.writer.each("Mul", &[&mean, &whole]);
                Ok(self.writer.cast(&sum, node.dtype))
            }
            PoolKind::Max => {
                let (x, geometry) = self.windowed(moved, geometry, nothing)?;
                let y = self.writer.node("MaxPool", &[&x], window(&geometry), dtype, node.shape.clone());
                Ok(self.writer.cast(&y, node.dtype))
            }
            PoolKind::ArgMax => {
                let fits = geometry
                    .padding
                    .iter()
                    .zip(&geometry.kernel)
                    .all(|(sides, &size)| sides.0.max(sides.1) < size);
                if !fits {
                    return Err(name());
                }
                let outputs = vec![(dtype, node.shape.clone()), (DType::I64, node.shape.clone())];
                let made = self.writer.nodes("MaxPool", &[Some(&moved)], window(geometry), outputs);
                let [_, places] = &made[..] else { return Err(name()) };
                // ONNX counts over batch and channels too.
                let plane = count(&x.shape[2..]);
                let plane = self.writer.size(plane, &[&x])?;
                Ok(self.writer.each("Mod", &[places, &plane]))
            }
            PoolKind::SumBackward => Err(name()),
        }
    }

    /// A tensor of equal numbers.
    fn filled(&mut self, dtype: DType, shape: &[Extent], number: f64) -> Result<Value> {
        if shape.iter().any(|&extent| varies(extent)) {
            let number = self.writer.scalar(dtype, number);
            return self.stretched(&number, shape);
        }
        let shape: Vec<i64> = shape.iter().map(|extent| extent[0]).collect();
        let numbers = vec![Scalar::Float(number); shape.iter().product::<i64>() as usize];
        Ok(self.writer.constant(dtype, &shape, &numbers))
    }

    /// Operands from `first` on, each of which may be missing: then it is made of equal numbers.
    fn parameters(
        &mut self,
        node: &Node,
        mut first: usize,
        (dtype, shape): (DType, &[Extent]),
        wanted: [(bool, f64); 2],
    ) -> Result<Vec<Value>> {
        let mut values = Vec::new();
        for (there, number) in wanted {
            if there {
                let value = self.operand(node.inputs[first], dtype)?;
                values.push(self.stretched(&value, shape)?);
                first += 1;
            } else {
                values.push(self.filled(dtype, shape, number)?);
            }
        }
        Ok(values)
    }

    pub(super) fn neural(&mut self, node: &Node, composite: &Composite) -> Result<Value> {
        // Of 16-bit floats, and parameters in float32 with them.
        let same = node.inputs.iter().all(|&input| self.graph.nodes[input].dtype == node.dtype);
        let dtype = if same { carrier(node.dtype) } else { wide(node.dtype) };
        let shape = node.shape.clone();
        let y = match composite {
            Composite::Softmax(softmax) => {
                let x = self.operand(node.inputs[0], dtype)?;
                let operator = if softmax.logarithm { "LogSoftmax" } else { "Softmax" };
                self.writer.node(operator, &[&x], vec![integer("axis", softmax.axis as i64)], dtype, shape)
            }
            Composite::Gelu(gelu) => {
                let x = self.elements(node, dtype)?;
                let approximate = if gelu.tanh { vec![text("approximate", "tanh")] } else { Vec::new() };
                self.writer.each_with("Gelu", &[&x], approximate)
            }
            Composite::Silu(_) => {
                let x = self.elements(node, dtype)?;
                let sigmoid = self.writer.each("Sigmoid", &[&x]);
                self.writer.each("Mul", &[&x, &sigmoid])
            }
            Composite::Mish(_) => {
                let x = self.elements(node, dtype)?;
                self.writer.each("Mish", &[&x])
            }
            Composite::Softplus(softplus) => {
                let (x, beta) = (self.elements(node, dtype)?, softplus.beta.as_f64());
                if beta == 1.0 {
                    self.writer.each("Softplus", &[&x])
                } else {
                    let beta = self.writer.scalar(dtype, beta);
                    let scaled = self.writer.each("Mul", &[&x, &beta]);
                    let soft = self.writer.each("Softplus", &[&scaled]);
                    self.writer.each("Div", &[&soft, &beta])
                }
            }
            Composite::LayerNorm(norm) => self.layer_norm(node, norm, dtype)?,
            Composite::GroupNorm(norm) => self.group_norm(node, norm, dtype)?,
            Composite::BatchNorm(norm) => self.batch_norm(node, norm, dtype)?,
            Composite::QuantizeLinear(quantize) => return self.quantize(node, quantize),
            Composite::DequantizeLinear(quantize) => return self.dequantize(node, quantize),
            other => return Err(Error::unsupported(other.name())),
        };
        Ok(self.writer.cast(&y, node.dtype))
    }

    /// The operand of an elementwise function.
    fn elements(&mut self, node: &Node, dtype: DType) -> Result<Value> {
        let x = self.compact(node.inputs[0])?;
        Ok(self.writer.cast(&x, dtype))
    }

    fn layer_norm(&mut self, node: &Node, norm: &LayerNorm, dtype: DType) -> Result<Value> {
        let x = self.operand(node.inputs[0], dtype)?;
        let own = node.shape[node.shape.len() - norm.axes..].to_vec();
        let operator = if norm.centred { "LayerNormalization" } else { "RMSNormalization" };
        let wanted = [(norm.weight, 1.0), (norm.bias, 0.0)];
        let mut parameters = self.parameters(node, 1, (dtype, &own), wanted)?;
        if !norm.bias {
            parameters.truncate(1);
        }
        let attributes = vec![integer("axis", -(norm.axes as i64)), float("epsilon", norm.epsilon.as_f64())];
        let inputs: Vec<&Value> = [&x].into_iter().chain(&parameters).collect();
        Ok(self.writer.node(operator, &inputs, attributes, dtype, node.shape.clone()))
    }

    fn group_norm(&mut self, node: &Node, norm: &GroupNorm, dtype: DType) -> Result<Value> {
        let x = self.operand(node.inputs[0], dtype)?;
        let wanted = [(norm.weight, 1.0), (norm.bias, 0.0)];
        let parameters = self.parameters(node, 1, (dtype, &[node.shape[1]]), wanted)?;
        let attributes =
            vec![integer("num_groups", norm.groups as i64), float("epsilon", norm.epsilon.as_f64())];
        let inputs: Vec<&Value> = [&x].into_iter().chain(&parameters).collect();
        Ok(self.writer.node("GroupNormalization", &inputs, attributes, dtype, node.shape.clone()))
    }

    fn batch_norm(&mut self, node: &Node, norm: &BatchNorm, dtype: DType) -> Result<Value> {
        let x = self.operand(node.inputs[0], dtype)?;
        let (mean, variance) = (self.operand(node.inputs[1], dtype)?, self.operand(node.inputs[2], dtype)?);
        let wanted = [(norm.weight, 1.0), (norm.bias, 0.0)];
        let parameters = self.parameters(node, 3, (dtype, &[node.shape[1]]), wanted)?;
        let attributes = vec![float("epsilon", norm.epsilon.as_f64())];
        let inputs: Vec<&Value> = [&x].into_iter().chain(&parameters).chain([&mean, &variance]).collect();
        Ok(self.writer.node("BatchNormalization", &inputs, attributes, dtype, node.shape.clone()))
    }

    fn quantize(&mut self, node: &Node, quantize: &QuantizeLinear) -> Result<Value> {
        let x = self.full(node.inputs[0])?;
        if x.dtype == DType::F64 {
            return Err(Error::unsupported("quantize_linear of float64"));
        }
        let (x, scale) = (self.writer.cast(&x, DType::F32), self.operand(node.inputs[1], DType::F32)?);
        let zero = self.full(node.inputs[2])?;
        let axis = quantize.axis.map(|axis| integer("axis", axis as i64)).into_iter().collect();
        Ok(self.writer.node("QuantizeLinear", &[&x, &scale, &zero], axis, node.dtype, node.shape.clone()))
    }

    fn dequantize(&mut self, node: &Node, quantize: &DequantizeLinear) -> Result<Value> {
        let (q, zero) = (self.full(node.inputs[0])?, self.full(node.inputs[2])?);
        let scale = self.operand(node.inputs[1], wide(node.dtype))?;
        if q.dtype.size() <= 2 && scale.dtype == DType::F32 {
            let axis = quantize.axis.map(|axis| integer("axis", axis as i64)).into_iter().collect();
            let operands = [&q, &scale, &zero];
            let x = self.writer.node("DequantizeLinear", &operands, axis, DType::F32, node.shape.clone());
            return Ok(self.writer.cast(&x, node.dtype));
        }
        let product = dequantized(&mut self.writer, &q, &scale, &zero, quantize.axis);
        Ok(self.writer.cast(&product, node.dtype))
    }

    pub(super) fn part(&mut self, node: &Node, of: usize, part: usize) -> Result<Value> {
        let packed = &self.graph.nodes[of];
        let value = match &packed.op[0] {
            Op::Composite(Composite::Attention(attention)) => self.attention(packed, attention)?,
            Op::Composite(Composite::Recurrent(layer)) => self.recurrent(packed, layer, part)?,
            other => return Err(Error::unsupported(format!("a part of {}", other.name()))),
        };
        let value = self.writer.cast(&value, node.dtype);
        self.reshaped(&value, &node.shape)
    }

    fn attention(&mut self, packed: &Node, attention: &Attention) -> Result<Value> {
        let dtype = packed.dtype;
        let operand = |this: &mut Self, at: usize| this.operand(packed.inputs[at], dtype);
        let (q, k, v) = (operand(self, 0)?, operand(self, 1)?, operand(self, 2)?);
        let (queries, keys) = (q.shape[2], k.shape[2]);
        let leading = [q.shape[0], q.shape[1], queries];
        // The operator does not say what a query gives that attends to nothing.
        let is_plain = !attention.mask && !keys.contains(&0);
        if is_plain && self.writer.has("Attention") {
            let mut attributes = vec![float("scale", attention.scale.as_f64())];
            if attention.causal {
                attributes.push(integer("is_causal", 1));
            }
            let shape = [&leading[..], &[v.shape[3]]].concat();
            return Ok(self.writer.node("Attention", &[&q, &k, &v], attributes, dtype, shape));
        }
        let k = self.transposed(&k, &[0, 1, 3, 2]);
        let shape = [&leading[..], &[keys]].concat();
        let mut scores = self.writer.node("MatMul", &[&q, &k], Vec::new(), dtype, shape.clone());
        if attention.scale.as_f64() != 1.0 {
            let scale = self.writer.scalar(dtype, attention.scale);
            scores = self.writer.each("Mul", &[&scores, &scale]);
        }
        // Whether a query attends to a key. A query that attends to nothing gives 0.
        let (mut attends, mut may_be_none) = (None, attention.mask);
        if attention.mask {
            let mask = self.compact(packed.inputs[3])?;
            if mask.dtype == DType::Bool {
                attends = Some(mask);
            } else {
                let mask = self.writer.cast(&mask, dtype);
                scores = self.writer.each("Add", &[&scores, &mask]);
                let nothing = self.writer.scalar(dtype, f64::NEG_INFINITY);
                let excluded = self.writer.each("Equal", &[&scores, &nothing]);
                attends = Some(self.writer.each("Not", &[&excluded]));
            }
        }
        if attention.causal {
            let (query, key) = (self.writer.places(queries)?, self.writer.places(keys)?);
            let query = self.reshaped(&query, &[queries, [1, 1]])?;
            let earlier = self.writer.each("LessOrEqual", &[&key, &query]);
            attends = Some(match attends {
                Some(others) => self.writer.each("And", &[&others, &earlier]),
                None => earlier,
            });
        }
        may_be_none |= keys.contains(&0);
        if let Some(attends) = &attends {
            let nothing = self.writer.scalar(dtype, f64::NEG_INFINITY);
            scores = self.writer.each("Where", &[attends, &scores, &nothing]);
        }
        let mut weights = self.writer.node("Softmax", &[&scores], vec![integer("axis", -1)], dtype, shape);
        if let Some(attends) = attends.filter(|_| may_be_none) {
            let zero = self.writer.scalar(dtype, 0.0);
            weights = self.writer.each("Where", &[&attends, &weights, &zero]);
        }
        let shape = [&leading[..], &[v.shape[3]]].concat();
        Ok(self.writer.node("MatMul", &[&weights, &v], Vec::new(), dtype, shape))
    }

    fn recurrent(&mut self, packed: &Node, layer: &Recurrent, part: usize) -> Result<Value> {
        let dtype = wide(packed.dtype);
        let operands =
            packed.inputs.iter().map(|&id| self.operand(id, dtype)).collect::<Result<Vec<Value>>>()?;
        let cells = usize::from(layer.cell.has_cell_state());
        let (states, weights) = operands.split_at(2 + cells);
        let ([x, h0, c0 @ ..], [input, hidden, biases @ ..]) = (states, weights) else {
            return Err(Error::invalid("a recurrent layer lacks operands"));
        };
        let (steps, [batch, size]) = (x.shape[0], [h0.shape[0], h0.shape[1]]);
        // ONNX has the gates in another order.
        let order: &[i64] = match layer.cell {
            Cell::Lstm => &[0, 3, 1, 2],
            Cell::Gru => &[1, 0, 2],
            Cell::Tanh | Cell::Relu => &[0],
        };
        let arranged = |this: &mut Self, weight: &Value| {
            if order.len() == 1 {
                return weight.clone();
            }
            let gates: Vec<Value> =
                order.iter().map(|gate| this.rows(weight, 0, gate * size[0], (gate + 1) * size[0])).collect();
            let gates: Vec<&Value> = gates.iter().collect();
            this.writer.node("Concat", &gates, vec![integer("axis", 0)], dtype, weight.shape.clone())
        };
        let [input, hidden] = [input, hidden].map(|weight| {
            let weight = arranged(self, weight);
            self.with_rank(&weight, 3)
        });
        let bias = match biases {
            [of_input, of_hidden] => {
                let (first, second) = (arranged(self, of_input), arranged(self, of_hidden));
                let shape = vec![[2 * first.shape[0][0]; 2]];
                let both =
                    self.writer.node("Concat", &[&first, &second], vec![integer("axis", 0)], dtype, shape);
                Some(self.with_rank(&both, 2))
            }
            _ => None,
        };
        let h0 = self.with_rank(h0, 3);
        let c0 = c0.first().map(|c0| self.with_rank(c0, 3));
        let mut attributes = vec![integer("hidden_size", size[0])];
        if layer.reverse {
            attributes.push(text("direction", "reverse"));
        }
        let operator = match layer.cell {
            Cell::Lstm => "LSTM",
            Cell::Gru => {
                attributes.push(integer("linear_before_reset", 1));
                "GRU"
            }
            Cell::Tanh => "RNN",
            Cell::Relu => {
                attributes.push(texts("activations", &["Relu"]));
                "RNN"
            }
        };
        let mut inputs = vec![Some(x), Some(&input), Some(&hidden), bias.as_ref(), None, Some(&h0)];
        inputs.extend(c0.as_ref().map(Some));
        let state = vec![[1, 1], batch, size];
        let mut outputs = vec![(dtype, vec![steps, [1, 1], batch, size]), (dtype, state.clone())];
        outputs.extend(c0.as_ref().map(|_| (dtype, state)));
        let results = self.writer.nodes(operator, &inputs, attributes, outputs);
        let result = if part == 0 { results.first() } else { results.last() };
        let Some(result) = result.cloned() else {
            return Err(Error::invalid("a recurrent layer has no result"));
        };
        let shape = if part == 0 { vec![steps, batch, size] } else { vec![batch, size] };
        self.reshaped(&result, &shape)
    }
}
