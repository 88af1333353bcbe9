//! Operators that compute element by element, softmax, and quantizing.

use neurenix_onnx::Element;

use super::{
    graph::{Quantization, Stored},
    layout::Layout,
    schema::{Activation, Code, Kind, Options, arithmetic, gelu, leaky_relu, plain, softmax},
    writer::{Held, Scheme, Writer},
};
use crate::Result;

impl Writer<'_> {
    /// `Add`, `Sub`, `Mul`, `Div`, `Max`, `Min` and `Pow` of two values.
    pub(crate) fn binary(&mut self, code: Code) -> Result<()> {
        if self.node().input.len() != 2 {
            return Err(self.refuse("TFLite takes two inputs"));
        }
        let names = [self.input(0)?, self.input(1)?];
        let fuses = matches!(code, Code::ADD | Code::SUB | Code::MUL | Code::DIV);
        let goal = self.goal(fuses)?;
        // Division and the others of 8 bits are for other types, or want one scale.
        let quantizes = matches!(code, Code::ADD | Code::SUB | Code::MUL);
        let kind = if quantizes { self.quantized_kind(&names, &goal)? } else { None };
        let shape = self.shape(&goal.name)?;
        let held = [self.held(names[0])?, self.held(names[1])?];
        let shapes = [self.shape_of(names[0], &held[0])?, self.shape_of(names[1], &held[1])?];
        let layout = if held[0].layout == held[1].layout && shapes[0] == shapes[1] {
            held[0].layout.clone()
        } else {
            let is_last = |side: usize| held[side].layout == Layout::ChannelsLast;
            let has_rank = |side: usize| shapes[side].len() == shape.len();
            let is_any = [0, 1].into_iter().any(|side| is_last(side) && has_rank(side));
            if is_any && shape.len() > 2 { Layout::ChannelsLast } else { Layout::Network }
        };
        let mut operands = Vec::new();
        for (held, shape_of) in held.into_iter().zip(shapes) {
            let is_flat = matches!(layout, Layout::FlatChannelsLast(_));
            let mut held = match is_flat {
                true => held,
                false => {
                    let own = if shape_of.len() == shape.len() { &layout } else { &Layout::Network };
                    let held = self.in_layout(held, &shape_of, own)?;
                    self.of_rank(held, &shape_of, shape.len(), &layout)?
                }
            };
            if kind.is_none() {
                held = self.real(held)?;
            }
            operands.push(held.tensor);
        }
        let result = self.result(&goal, &layout, kind.is_some())?;
        self.step(code, operands, result, arithmetic(code, goal.activation));
        Ok(())
    }

    /// A value with extents of one before its own, so that it has this rank, in this layout.
    fn of_rank(&mut self, held: Held, shape: &[usize], rank: usize, layout: &Layout) -> Result<Held> {
        if shape.len() >= rank {
            return Ok(held);
        }
        let padded: Vec<usize> = [vec![1; rank - shape.len()], shape.to_vec()].concat();
        let tensor = self.reshaped(held.tensor, Layout::Network.shape(&padded));
        self.in_layout(Held { tensor, layout: Layout::Network }, &padded, layout)
    }

    /// An operator of one input whose elements do not depend on each other, with other numbers of 8 and 16 bits.
    /// `fixed` gives the result's scale and zero point of a type, if the operator prescribes them.
    fn unary_of(
        &mut self,
        code: Code,
        options: Options,
        integers: &[Kind],
        fixed: Option<fn(Kind) -> (f32, i64)>,
    ) -> Result<()> {
        let x = self.input(0)?;
        let mut goal = self.goal(false)?;
        let kind = self.quantized_kind(&[x], &goal)?.filter(|kind| integers.contains(kind));
        if let (Some(kind), Some(fixed)) = (kind, fixed) {
            let (scale, zero) = fixed(kind);
            // What reads it quantizes it once more.
            goal.scheme = Some(Scheme { kind, quantization: Quantization::whole(scale, zero) });
        }
        let mut held = self.held(x)?;
        if kind.is_none() {
            held = self.real(held)?;
        }
        let result = self.result(&goal, &held.layout, kind.is_some())?;
        self.step(code, vec![held.tensor], result, options);
        Ok(())
    }

    /// `Relu`, `Sigmoid` and others.
    pub(crate) fn unary(&mut self) -> Result<()> {
        const NONE: &[Kind] = &[];
        const BYTES: &[Kind] = &[Kind::I8];
        const BOTH: &[Kind] = &[Kind::I8, Kind::I16];
        let simple = |code: Code| (code, plain(code));
        let ((code, options), integers) = match self.node().op_type.as_str() {
            "Relu" => (simple(Code::RELU), BOTH),
            "Sigmoid" => return self.unary_of(Code::LOGISTIC, Options::default(), BOTH, Some(logistic)),
            "Tanh" => return self.unary_of(Code::TANH, Options::default(), BOTH, Some(hyperbolic)),
            "HardSwish" => (simple(Code::HARD_SWISH), BYTES),
            "LeakyRelu" => ((Code::LEAKY_RELU, leaky_relu(self.float("alpha", 0.01))), BOTH),
            "Gelu" => ((Code::GELU, gelu(self.text("approximate", "none") == "tanh")), BYTES),
            "Sqrt" => (simple(Code::SQRT), NONE),
            "Exp" => (simple(Code::EXP), NONE),
            "Log" => (simple(Code::LOG), NONE),
            "Neg" => (simple(Code::NEG), NONE),
            "Abs" => (simple(Code::ABS), NONE),
            "Floor" => (simple(Code::FLOOR), NONE),
            "Ceil" => (simple(Code::CEIL), NONE),
            "Sin" => (simple(Code::SIN), NONE),
            "Cos" => (simple(Code::COS), NONE),
            "Elu" if self.float("alpha", 1.0) == 1.0 => (simple(Code::ELU), NONE),
            _ => return Err(self.refuse("it has no form in TFLite")),
        };
        self.unary_of(code, options, integers, None)
    }

    /// `Clip` with constant limits.
    pub(crate) fn clip(&mut self) -> Result<()> {
        let activation = self.activation(self.node())?;
        let code = match activation {
            Some(Activation::Relu) => Code::RELU,
            Some(Activation::Relu6) => Code::RELU6,
            Some(Activation::ReluN1To1) => Code::RELU_N1_TO_1,
            _ => return self.limit(),
        };
        let both: &[Kind] = if code == Code::RELU_N1_TO_1 { &[Kind::I8] } else { &[Kind::I8, Kind::I16] };
        self.unary_of(code, Options::default(), both, None)
    }

    /// `Clip` with other limits: the larger of two, then the smaller.
    fn limit(&mut self) -> Result<()> {
        let Some((least, most)) = self.limits(self.node())? else {
            return Err(self.refuse("the limits are not constant"));
        };
        let x = self.input(0)?;
        let goal = self.goal(false)?;
        let held = self.held(x)?;
        let held = self.real(held)?;
        let result = self.result(&goal, &held.layout, false)?;
        self.limited(held.tensor, [least, most], result);
        Ok(())
    }

    /// Real numbers within limits: the larger of two, then the smaller.
    fn limited(&mut self, tensor: i32, [least, most]: [f32; 2], result: i32) {
        let shape = self.graph.tensors[tensor as usize].shape.clone();
        let goal = self.graph.tensors[result as usize].name.clone();
        let mut last = tensor;
        let steps = [(Code::MAXIMUM, least, false), (Code::MINIMUM, most, true)];
        for (code, limit, is_last) in steps {
            let name = format!("{goal}/limit{}", self.graph.tensors.len());
            let stored =
                |shape, data| Stored { name: name.clone(), shape, kind: Kind::F32, quantization: None, data };
            let bytes = limit.clamp(f32::MIN, f32::MAX).to_le_bytes().to_vec();
            let limit = self.push(stored(vec![1; shape.len()], Some(bytes)));
            let made = if is_last { result } else { self.push(stored(shape.clone(), None)) };
            self.step(code, vec![last, limit], made, arithmetic(code, Activation::None));
            last = made;
        }
    }

    /// `Softmax`.
    pub(crate) fn softmax(&mut self) -> Result<()> {
        let x = self.input(0)?;
        let shape = self.shape(x)?;
        let is_old = self.network.opset() < 13;
        let axis = self.axis(self.integer("axis", if is_old { 1 } else { -1 }), shape.len())?;
        if is_old && axis + 1 != shape.len() {
            return Err(self.refuse("a softmax over several axes has no form in TFLite"));
        }
        let layout = match (axis + 1 == shape.len(), axis) {
            (true, _) => Layout::Network,
            (false, 1) => Layout::ChannelsLast,
            _ => return Err(self.refuse("TFLite computes over the last axis")),
        };
        let mut goal = self.goal(false)?;
        let kind = self.quantized_kind(&[x], &goal)?;
        if let Some(kind) = kind {
            let (scale, zero) = logistic(kind);
            goal.scheme = Some(Scheme { kind, quantization: Quantization::whole(scale, zero) });
        }
        let held = self.operand(x, &layout, kind.is_some())?;
        let result = self.result(&goal, &layout, kind.is_some())?;
        self.step(Code::SOFTMAX, vec![held.tensor], result, softmax());
        Ok(())
    }

    /// `QuantizeLinear`.
    pub(crate) fn quantize(&mut self) -> Result<()> {
        let (x, output) = (self.input(0)?, self.output());
        let element = self.types.get(output).map(|known| known.element).unwrap_or(Element::String);
        let scheme = self.scheme(self.node(), element)?;
        if scheme.quantization.single().is_none() {
            return Err(self.refuse("TFLite quantizes values with one scale"));
        }
        let held = self.held(x)?;
        let tensor = self.stored(&held);
        if tensor.kind == scheme.kind && tensor.quantization.as_ref() == Some(&scheme.quantization) {
            self.bind(output, held);
            return Ok(());
        }
        if scheme.kind == Kind::I32 {
            return Err(self.refuse("TFLite quantizes values to 8 or 16 bits"));
        }
        let shape = self.shape(output)?;
        let mut held = held;
        if let (true, Kind::I16, Some((scale, zero))) =
            (self.dialect.real_words, scheme.kind, scheme.quantization.single())
        {
            held = self.real(held)?;
            let (least, most) = scheme.kind.range();
            let limits = [least, most].map(|limit| (limit - zero as f64) as f32 * scale);
            let like = self.stored(&held).clone();
            let within = self.push(Stored { name: format!("{output}/within"), data: None, ..like });
            self.limited(held.tensor, limits, within);
            held.tensor = within;
        }
        let made = self.tensor(output, shape, &held.layout, scheme.kind, Some(scheme.quantization));
        self.step(Code::QUANTIZE, vec![held.tensor], made, plain(Code::QUANTIZE));
        self.bind(output, Held { tensor: made, layout: held.layout });
        Ok(())
    }

    /// `DequantizeLinear`: its input's tensor stands for real numbers already.
    pub(crate) fn dequantize(&mut self) -> Result<()> {
        let (x, output) = (self.input(0)?, self.output());
        if self.network.stored(x).is_some() {
            // A constant is read where it is needed.
            return Ok(());
        }
        let element = self.types.get(x).map(|known| known.element).unwrap_or(Element::String);
        let scheme = self.scheme(self.node(), element)?;
        let held = self.held(x)?;
        let tensor = self.stored(&held);
        if tensor.kind != scheme.kind || tensor.quantization.as_ref() != Some(&scheme.quantization) {
            return Err(self.refuse("it has another scale than the node that quantized"));
        }
        self.bind(output, held);
        Ok(())
    }
}

/// The scale and zero point of `LOGISTIC` and `SOFTMAX` (TFLite's quantization specification).
fn logistic(kind: Kind) -> (f32, i64) {
    if kind == Kind::I16 { (1.0 / 32768.0, 0) } else { (1.0 / 256.0, -128) }
}

/// The scale and zero point of `TANH`.
fn hyperbolic(kind: Kind) -> (f32, i64) {
    if kind == Kind::I16 { (1.0 / 32768.0, 0) } else { (1.0 / 128.0, 0) }
}
