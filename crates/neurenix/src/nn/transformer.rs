//! Attention and the transformer encoder layer.

use std::sync::Arc;

use phynexus::{
    DType, Device, Tensor,
    tensor::{AttentionOptions, GeluApproximation, Generator},
};

use super::{Dropout, LayerNorm, Linear, Mode, Module, Parameter, Visitor, init};
use crate::{Error, Result};

/// Attention masks, as in PyTorch's layers: in a `bool` mask, true means that a position is NOT attended to.
/// ([`Tensor::scaled_dot_product_attention`] has the opposite convention, like PyTorch's function of that name.) If a
/// position may attend to nothing, its output is zero.
#[derive(Clone, Copy, Default)]
pub struct AttentionMasks<'a> {
    /// `[L, S]` or `[batch * heads, L, S]`, for L queries and S keys: `bool`, or floats that are added to the scores.
    pub attn_mask: Option<&'a Tensor>,
    /// `[batch, S]`, the padding mask of the keys: `bool`, or floats that are added to the scores.
    pub key_padding_mask: Option<&'a Tensor>,
    /// Whether a position attends only to itself and earlier positions.
    pub is_causal: bool,
}

impl AttentionMasks<'_> {
    /// Combines both masks into one for [`Tensor::scaled_dot_product_attention`], with queries `[batch, heads, L, E]`
    /// and keys `[batch, heads, S, E]`.
    fn combined(&self, query: &Tensor, key: &Tensor) -> Result<Option<Tensor>> {
        let (&[batch, heads, l, _], &[_, _, s, _]) = (query.shape(), key.shape()) else {
            let hint = "queries and keys must be (batch, heads, positions, features)";
            return Err(
                phynexus::Error::shape("MultiheadAttention", &[query.shape(), key.shape()], hint).into()
            );
        };
        let attention = match self.attn_mask {
            None => None,
            Some(mask) if mask.shape() == [l, s] => Some(mask.reshape(&[1, 1, l, s])?),
            Some(mask) if mask.shape() == [batch * heads, l, s] => Some(mask.reshape(&[batch, heads, l, s])?),
            Some(mask) => {
                let hint = format!("the mask must be ({l}, {s}) or ({}, {l}, {s})", batch * heads);
                return Err(phynexus::Error::shape("attn_mask", &[mask.shape()], hint).into());
            }
        };
        let padding = match self.key_padding_mask {
            None => None,
            Some(mask) if mask.shape() == [batch, s] => Some(mask.reshape(&[batch, 1, 1, s])?),
            Some(mask) => {
                let hint = format!("the mask must be ({batch}, {s})");
                return Err(phynexus::Error::shape("key_padding_mask", &[mask.shape()], hint).into());
            }
        };
        for mask in attention.iter().chain(&padding) {
            if mask.dtype() != DType::Bool && !mask.dtype().is_float() {
                let hint =
                    "expected a bool mask (true: not attended to) or a float mask (added to the scores)";
                return Err(phynexus::Error::dtype("MultiheadAttention", &[mask.dtype()], hint).into());
            }
        }
        let boolean = |mask: &Tensor| mask.dtype() == DType::Bool;
        let added = |mask: &Tensor| -> phynexus::Result<Tensor> {
            if !boolean(mask) {
                return mask.to_dtype(query.dtype());
            }
            let zeros = Tensor::full(mask.shape(), 0.0, query.dtype(), mask.device())?;
            mask.where_(&zeros.full_like(f64::NEG_INFINITY)?, &zeros)
        };
        Ok(match (attention, padding) {
            (None, None) => None,
            (Some(a), Some(b)) if boolean(&a) && boolean(&b) => Some(a.or(&b)?.logical_not()?),
            (Some(a), Some(b)) => Some(added(&a)?.add(&added(&b)?)?),
            (Some(one), None) | (None, Some(one)) if boolean(&one) => Some(one.logical_not()?),
            (one, other) => one.or(other),
        })
    }
}

/// Multi-head attention (Vaswani et al., 2017). Inputs are `[batch, positions, features]`.
pub struct MultiheadAttention {
    in_proj_weight: Parameter,
    in_proj_bias: Option<Parameter>,
    out_proj: Linear,
    heads: usize,
    features: usize,
    dropout: f64,
    generator: Option<Arc<Generator>>,
    mode: Mode,
}

impl MultiheadAttention {
    /// Splits `features` among `heads`. Weights are initialised as in PyTorch, biases to zero. In training, attention
    /// weights are dropped with probability `dropout`; this materialises the whole score matrix.
    pub fn new(
        features: usize,
        heads: usize,
        dropout: f64,
        bias: bool,
        device: Device,
        generator: &Generator,
    ) -> Result<MultiheadAttention> {
        if heads == 0 || features == 0 || !features.is_multiple_of(heads) {
            let message = format!("{features} features cannot be split evenly among {heads} heads");
            return Err(Error::data("MultiheadAttention", message));
        }
        if !(0.0..=1.0).contains(&dropout) {
            let message = format!("the dropout probability must be between 0 and 1, got {dropout}");
            return Err(Error::data("MultiheadAttention", message));
        }
        let Some(rows) = features.checked_mul(3) else {
            return Err(Error::data(
                "MultiheadAttention",
                format!("{features} features are more than supported"),
            ));
        };
        let weight = init::xavier_uniform(&[rows, features], 1.0, DType::F32, device, generator)?;
        let zeros = |count: usize| Tensor::full(&[count], 0.0, DType::F32, device);
        let out_proj = Linear::new(features, features, bias, device, generator)?;
        if let Some(bias) = out_proj.bias() {
            bias.set(zeros(features)?)?;
        }
        Ok(MultiheadAttention {
            in_proj_weight: Parameter::new(&weight)?,
            in_proj_bias: if bias { Some(Parameter::new(&zeros(rows)?)?) } else { None },
            out_proj,
            heads,
            features,
            dropout,
            generator: None,
            mode: Mode::default(),
        })
    }

    /// Replaces the random generator of dropout.
    #[must_use]
    pub fn with_generator(mut self, generator: Arc<Generator>) -> MultiheadAttention {
        self.generator = Some(generator);
        self
    }

    /// Attends from `query` to `key` and `value`, all `[batch, positions, features]`.
    ///
    /// # Errors
    /// If the shape of an input or mask does not match.
    pub fn attend(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        masks: AttentionMasks,
    ) -> Result<Tensor> {
        let weight = self.in_proj_weight.leaf()?;
        let bias = self.in_proj_bias.as_ref().map(Parameter::leaf).transpose()?;
        let project = |x: &Tensor, first: usize, parts: usize| -> Result<Tensor> {
            let rows = parts * self.features;
            let y = x.matmul(&weight.narrow(0, first * self.features, rows)?.t()?)?;
            match &bias {
                Some(bias) => Ok(y.add(&bias.narrow(0, first * self.features, rows)?)?),
                None => Ok(y),
            }
        };
        let heads = |x: &Tensor| -> Result<Tensor> {
            let &[batch, positions, features] = x.shape() else {
                let hint = "inputs must be (batch, positions, features)";
                return Err(phynexus::Error::shape("MultiheadAttention", &[x.shape()], hint).into());
            };
            Ok(x.reshape(&[batch, positions, self.heads, features / self.heads])?.permute(&[0, 2, 1, 3])?)
        };
        let same = std::ptr::eq(query, key) && std::ptr::eq(key, value);
        let (q, k, v) = if same {
            // Self-attention computes all three projections in one product.
            let all = project(query, 0, 3)?;
            let part = |i: usize| all.narrow(-1, i * self.features, self.features);
            (part(0)?, part(1)?, part(2)?)
        } else {
            (project(query, 0, 1)?, project(key, 1, 1)?, project(value, 2, 1)?)
        };
        let dropout_p = if self.mode.is_training() { self.dropout } else { 0.0 };
        let options =
            AttentionOptions { dropout_p, is_causal: masks.is_causal, ..AttentionOptions::default() };
        let (q, k, v) = (heads(&q)?, heads(&k)?, heads(&v)?);
        let mask = masks.combined(&q, &k)?;
        let generator = self.generator.as_deref().unwrap_or_else(|| Generator::default_generator());
        let y = q.scaled_dot_product_attention_with(&k, &v, mask.as_ref(), options, generator)?;
        let shape = [query.shape()[0], query.shape()[1], self.features];
        self.out_proj.forward(&y.permute(&[0, 2, 1, 3])?.reshape(&shape)?)
    }
}

impl Module for MultiheadAttention {
    /// Self-attention.
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.attend(input, input, input, AttentionMasks::default())
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.weight("in_proj_weight", &self.in_proj_weight);
        visitor.optional("in_proj_bias", &self.in_proj_bias);
        visitor.child("out_proj", &self.out_proj);
        visitor.mode(&self.mode);
    }
    fn describe(&self) -> String {
        format!("MultiheadAttention({}, num_heads={})", self.features, self.heads)
    }
}

/// Options of a [`TransformerEncoderLayer`].
#[derive(Clone, Debug)]
pub struct TransformerOptions {
    /// The hidden size of the feed-forward network.
    pub feedforward: usize,
    /// The dropout probability of attention weights, of the attention output and in the feed-forward network. In
    /// training, dropout materialises the whole score matrix.
    pub dropout: f64,
    /// Whether the feed-forward network uses GELU instead of ReLU.
    pub gelu: bool,
    /// Whether to normalise before attention and the feed-forward network instead of after.
    pub norm_first: bool,
    /// Whether a position attends only to itself and earlier positions.
    pub is_causal: bool,
    /// The random generator of dropout; `None` means the default generator.
    pub generator: Option<Arc<Generator>>,
}

impl Default for TransformerOptions {
    /// PyTorch's defaults.
    fn default() -> TransformerOptions {
        TransformerOptions {
            feedforward: 2048,
            dropout: 0.1,
            gelu: false,
            norm_first: false,
            is_causal: false,
            generator: None,
        }
    }
}

/// Self-attention and a two-layer feed-forward network, each with a residual connection and layer normalisation.
pub struct TransformerEncoderLayer {
    self_attn: MultiheadAttention,
    linear1: Linear,
    linear2: Linear,
    norm1: LayerNorm,
    norm2: LayerNorm,
    dropouts: [Dropout; 3],
    options: TransformerOptions,
}

impl TransformerEncoderLayer {
    /// Creates a layer for inputs `[batch, positions, features]`.
    pub fn new(
        features: usize,
        heads: usize,
        options: TransformerOptions,
        device: Device,
        generator: &Generator,
    ) -> Result<TransformerEncoderLayer> {
        let dropout = || -> Result<Dropout> {
            let dropout = Dropout::new(options.dropout)?;
            Ok(match &options.generator {
                Some(generator) => dropout.with_generator(generator.clone()),
                None => dropout,
            })
        };
        let self_attn = MultiheadAttention::new(features, heads, options.dropout, true, device, generator)?;
        let self_attn = match &options.generator {
            Some(generator) => self_attn.with_generator(generator.clone()),
            None => self_attn,
        };
        Ok(TransformerEncoderLayer {
            self_attn,
            linear1: Linear::new(features, options.feedforward, true, device, generator)?,
            linear2: Linear::new(options.feedforward, features, true, device, generator)?,
            norm1: LayerNorm::new(&[features], 1e-5, true, device)?,
            norm2: LayerNorm::new(&[features], 1e-5, true, device)?,
            dropouts: [dropout()?, dropout()?, dropout()?],
            options,
        })
    }

    /// Applies the layer with masks, in addition to the option `is_causal`. [`Module::forward`] applies it without
    /// other masks.
    ///
    /// # Errors
    /// If the shape of the input or of a mask does not match.
    pub fn run(&self, input: &Tensor, masks: AttentionMasks) -> Result<Tensor> {
        let masks = AttentionMasks { is_causal: masks.is_causal || self.options.is_causal, ..masks };
        if self.options.norm_first {
            let x = input.add(&self.attention(&self.norm1.forward(input)?, masks)?)?;
            Ok(x.add(&self.network(&self.norm2.forward(&x)?)?)?)
        } else {
            let x = self.norm1.forward(&input.add(&self.attention(input, masks)?)?)?;
            self.norm2.forward(&x.add(&self.network(&x)?)?)
        }
    }

    fn attention(&self, x: &Tensor, masks: AttentionMasks) -> Result<Tensor> {
        self.dropouts[0].forward(&self.self_attn.attend(x, x, x, masks)?)
    }

    fn network(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.linear1.forward(x)?;
        let hidden = if self.options.gelu { hidden.gelu(GeluApproximation::None)? } else { hidden.relu()? };
        self.dropouts[2].forward(&self.linear2.forward(&self.dropouts[1].forward(&hidden)?)?)
    }
}

impl Module for TransformerEncoderLayer {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.run(input, AttentionMasks::default())
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.child("self_attn", &self.self_attn);
        visitor.child("linear1", &self.linear1);
        visitor.child("linear2", &self.linear2);
        visitor.child("norm1", &self.norm1);
        visitor.child("norm2", &self.norm2);
        self.dropouts.iter().for_each(|d| d.visit(visitor));
    }
    fn describe(&self) -> String {
        format!(
            "TransformerEncoderLayer({}, feedforward={})",
            self.self_attn.describe(),
            self.options.feedforward
        )
    }
}
