//! No public call panics: every tensor method meets random shapes, axes, dtypes, indices and numbers, most of which make
//! no sense, and must answer with a result or an error.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use neurenix::phynexus::{
    DType, Device, Error, Result, Scalar, Tensor,
    graph::composite::Cell,
    oracle::generate::{CaseLeaf, Choice, Values, random_array},
    tensor::{
        AttentionOptions, CrossEntropyOptions, GeluApproximation, Generator, IndexSpec, Interpolation,
        RecurrentWeights, Reduction,
    },
};

/// Arguments that nobody checked.
struct Fuzz {
    choice: Choice,
    device: Device,
}

impl Fuzz {
    fn shape(&mut self) -> Vec<usize> {
        let rank = self.choice.below(6);
        (0..rank).map(|_| self.choice.of(&[0, 1, 1, 2, 3, 4])).collect()
    }

    fn dtype(&mut self) -> DType {
        if self.choice.one_in(2) { DType::F32 } else { self.choice.of(&DType::ALL) }
    }

    fn tensor(&mut self) -> Tensor {
        let (dtype, shape) = (self.dtype(), self.shape());
        self.tensor_of(dtype, &shape)
    }

    fn tensor_of(&mut self, dtype: DType, shape: &[usize]) -> Tensor {
        let values = self.choice.of(&[Values::Tame, Values::Special]);
        let array = random_array(&mut self.choice, values, dtype, shape);
        let leaf = if self.choice.one_in(3) {
            CaseLeaf::scattered(array, &mut self.choice)
        } else {
            CaseLeaf::contiguous(array)
        };
        let tensor = leaf.upload(self.device).expect("small tensors fit in memory");
        if dtype.is_float() && self.choice.one_in(3) {
            tensor.with_grad().expect("a float tensor with data has gradients")
        } else {
            tensor
        }
    }

    /// A tensor that often fits the other one.
    fn partner(&mut self, of: &Tensor) -> Tensor {
        let dtype = if self.choice.one_in(2) { of.dtype() } else { self.dtype() };
        let mut shape = of.shape().to_vec();
        match self.choice.below(4) {
            0 => shape = self.shape(),
            1 => shape.iter_mut().for_each(|d| *d = if self.choice.one_in(2) { 1 } else { *d }),
            _ => {}
        }
        self.tensor_of(dtype, &shape)
    }

    fn option(&mut self) -> Option<Tensor> {
        self.choice.one_in(2).then(|| self.tensor())
    }

    fn axis(&mut self) -> i64 {
        self.choice.of(&[0, 1, 2, 3, -1, -2, -3, 7, -9, i64::MAX, i64::MIN])
    }

    fn axes(&mut self) -> Vec<i64> {
        (0..self.choice.below(4)).map(|_| self.axis()).collect()
    }

    fn size(&mut self) -> usize {
        self.choice.of(&[0, 1, 1, 2, 2, 3, 5, 1 << 40, usize::MAX])
    }

    fn sizes(&mut self) -> Vec<usize> {
        (0..self.choice.below(6)).map(|_| self.size()).collect()
    }

    /// Extents of a window: huge ones are rare.
    fn window<const N: usize>(&mut self) -> [usize; N] {
        std::array::from_fn(|_| if self.choice.one_in(12) { self.size() } else { self.choice.below(4) })
    }

    fn number(&mut self) -> f64 {
        self.choice.of(&[
            0.0,
            1.0,
            -1.0,
            0.5,
            2.0,
            -0.0,
            1e-3,
            1e30,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
        ])
    }

    fn scalar(&mut self) -> Scalar {
        match self.choice.below(4) {
            0 => Scalar::Int(self.choice.of(&[0, 1, -1, 300, i64::MIN, i64::MAX])),
            1 => Scalar::UInt(u64::MAX),
            2 => Scalar::Bool(true),
            _ => Scalar::Float(self.number()),
        }
    }

    fn flag(&mut self) -> bool {
        self.choice.one_in(2)
    }

    fn reduction(&mut self) -> Reduction {
        self.choice.of(&[Reduction::None, Reduction::Mean, Reduction::Sum])
    }

    fn spec(&mut self) -> IndexSpec {
        match self.choice.below(5) {
            0 => IndexSpec::At(self.axis()),
            1 => {
                let mut bound = || self.choice.one_in(2).then(|| self.axis());
                let (start, stop) = (bound(), bound());
                IndexSpec::Slice { start, stop, step: self.choice.of(&[1, 2, -1, -3, 0, i64::MIN, i64::MAX]) }
            }
            2 => IndexSpec::NewAxis,
            3 => IndexSpec::Ellipsis,
            _ => IndexSpec::Tensor(self.tensor()),
        }
    }

    fn specs(&mut self) -> Vec<IndexSpec> {
        (0..self.choice.below(5)).map(|_| self.spec()).collect()
    }
}

/// What a call gave: tensors that are then read, differentiated and printed.
type Call = fn(&mut Fuzz, &Tensor) -> Result<Vec<Tensor>>;

macro_rules! unary_calls {
    ($($name:ident)+) => { &[$((stringify!($name), |_, x| Ok(vec![x.$name()?])),)+] };
}

macro_rules! binary_calls {
    ($($name:ident)+) => {
        &[$((stringify!($name), |f, x| { let y = f.partner(x); Ok(vec![x.$name(&y)?]) }),)+]
    };
}

macro_rules! scalar_calls {
    ($($name:ident)+) => { &[$((stringify!($name), |f, x| Ok(vec![x.$name(f.scalar())?])),)+] };
}

macro_rules! axis_calls {
    ($($name:ident)+) => { &[$((stringify!($name), |f, x| Ok(vec![x.$name(f.axis())?])),)+] };
}

macro_rules! reduction_calls {
    ($($name:ident)+) => { &[$((stringify!($name), |f, x| Ok(vec![x.$name(&f.axes(), f.flag())?])),)+] };
}

macro_rules! window_calls {
    ($($dims:literal $conv:ident $transposed:ident $max:ident $indices:ident $average:ident $amax:ident $aavg:ident;)+) => {
        &[$(
            (stringify!($conv), |f, x| {
                let (w, b) = (f.partner(x), f.option());
                let groups = f.size();
                Ok(vec![x.$conv(&w, b.as_ref(), f.window::<$dims>(), f.window(), f.window(), groups)?])
            }),
            (stringify!($transposed), |f, x| {
                let (w, b) = (f.partner(x), f.option());
                let (stride, padding, extra, groups) = (f.window::<$dims>(), f.window(), f.window(), f.size());
                Ok(vec![x.$transposed(&w, b.as_ref(), stride, padding, extra, groups, f.window())?])
            }),
            (stringify!($max), |f, x| {
                let stride = f.flag().then(|| f.window());
                Ok(vec![x.$max(f.window::<$dims>(), stride, f.window(), f.window(), f.flag())?])
            }),
            (stringify!($indices), |f, x| {
                let stride = f.flag().then(|| f.window());
                let (values, places) = x.$indices(f.window::<$dims>(), stride, f.window(), f.window(), f.flag())?;
                Ok(vec![values, places])
            }),
            (stringify!($average), |f, x| {
                let stride = f.flag().then(|| f.window());
                Ok(vec![x.$average(f.window::<$dims>(), stride, f.window(), f.flag(), f.flag())?])
            }),
            (stringify!($amax), |f, x| Ok(vec![x.$amax(f.window::<$dims>())?])),
            (stringify!($aavg), |f, x| Ok(vec![x.$aavg(f.window::<$dims>())?])),
        )+]
    };
}

const CALLS: &[&[(&str, Call)]] = &[
    unary_calls! {
        reciprocal sqrt rsqrt exp exp2 expm1 log log2 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh
        atanh erf floor ceil trunc round neg abs sign square log10 bitwise_not logical_not isnan isinf isfinite relu
        sigmoid silu mish logsigmoid relu6 selu hardsigmoid hardswish softsign tanhshrink contiguous detach with_grad
        zeros_like ones_like squeeze_all t nonzero trace
    },
    binary_calls! {
        add sub mul div floor_divide remainder pow atan2 maximum minimum lt le gt ge eq ne and or
        xor shift_left shift_right logical_and logical_or logical_xor matmul dot_i32 dot outer kron masked_select prelu
    },
    scalar_calls! { add_scalar sub_scalar mul_scalar div_scalar floor_divide_scalar remainder_scalar pow_scalar
    rsub_scalar rdiv_scalar rpow_scalar lt_scalar eq_scalar full_like },
    axis_calls! { softmax log_softmax softmin cumsum cumprod squeeze unsqueeze glu tril triu diag },
    reduction_calls! { sum prod mean max min all any logsumexp },
    window_calls! {
        1 conv1d conv_transpose1d max_pool1d max_pool1d_with_indices avg_pool1d adaptive_max_pool1d adaptive_avg_pool1d;
        2 conv2d conv_transpose2d max_pool2d max_pool2d_with_indices avg_pool2d adaptive_max_pool2d adaptive_avg_pool2d;
        3 conv3d conv_transpose3d max_pool3d max_pool3d_with_indices avg_pool3d adaptive_max_pool3d adaptive_avg_pool3d;
    },
    MOVEMENT,
    INDEXING,
    NEURAL,
    LOSSES,
    CREATION,
];

const MOVEMENT: &[(&str, Call)] = &[
    ("reshape", |f, x| Ok(vec![x.reshape(&f.sizes())?])),
    ("reshape_infer", |f, x| Ok(vec![x.reshape_infer(&f.axes())?])),
    ("permute", |f, x| Ok(vec![x.permute(&f.sizes())?])),
    ("transpose", |f, x| Ok(vec![x.transpose(f.axis(), f.axis())?])),
    ("move_axis", |f, x| Ok(vec![x.move_axis(f.axis(), f.axis())?])),
    ("expand", |f, x| Ok(vec![x.expand(&f.sizes())?])),
    ("broadcast_to", |f, x| Ok(vec![x.broadcast_to(&f.sizes())?])),
    ("pad", |f, x| {
        let padding: Vec<(usize, usize)> = f.sizes().into_iter().map(|before| (before, f.size())).collect();
        Ok(vec![x.pad(&padding, f.scalar())?])
    }),
    ("narrow", |f, x| Ok(vec![x.narrow(f.axis(), f.size(), f.size())?])),
    ("slice", |f, x| {
        let (start, stop) = (f.flag().then(|| f.axis()), f.flag().then(|| f.axis()));
        Ok(vec![x.slice(f.axis(), start, stop, f.axis())?])
    }),
    ("flip", |f, x| Ok(vec![x.flip(&f.axes())?])),
    ("flatten", |f, x| Ok(vec![x.flatten(f.axis(), f.axis())?])),
    ("unflatten", |f, x| Ok(vec![x.unflatten(f.axis(), &f.sizes())?])),
    ("tile", |f, x| Ok(vec![x.tile(&f.sizes())?])),
    ("repeat", |f, x| Ok(vec![x.repeat(&f.sizes())?])),
    ("repeat_interleave", |f, x| Ok(vec![x.repeat_interleave(f.size(), f.axis())?])),
    ("roll", |f, x| Ok(vec![x.roll(&f.axes(), &f.axes())?])),
    ("cat", |f, x| {
        let (y, z) = (f.partner(x), f.partner(x));
        let parts: Vec<&Tensor> = [x, &y, &z].into_iter().take(f.choice.below(4)).collect();
        Ok(vec![Tensor::cat(&parts, f.axis())?])
    }),
    ("stack", |f, x| {
        let y = f.partner(x);
        Ok(vec![Tensor::stack(&[x, &y], f.axis())?])
    }),
    ("split", |f, x| x.split(f.size(), f.axis())),
    ("split_sizes", |f, x| x.split_sizes(&f.sizes(), f.axis())),
    ("chunk", |f, x| x.chunk(f.choice.below(9), f.axis())),
    ("to_dtype", |f, x| Ok(vec![x.to_dtype(f.dtype())?])),
    ("bitcast", |f, x| Ok(vec![x.bitcast(f.dtype())?])),
    ("meshgrid", |f, x| {
        let y = f.partner(x);
        Tensor::meshgrid(&[x, &y])
    }),
    ("einsum", |f, x| {
        let y = f.partner(x);
        let equations = [
            "ij,jk->ik",
            "ii->i",
            "...i,i",
            "a,b->ba",
            "i->",
            "",
            "->",
            "ij,jk->il",
            "i..j,j",
            "é,b->",
            "ab",
        ];
        let equation = f.choice.of(&equations);
        let operands = [x, &y];
        Ok(vec![Tensor::einsum(equation, &operands[..1 + f.choice.below(2)])?])
    }),
    ("cross", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.cross(&y, f.axis())?])
    }),
];

const INDEXING: &[(&str, Call)] = &[
    ("index", |f, x| Ok(vec![x.index(&f.specs())?])),
    ("index_put", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.index_put(&f.specs(), &y)?])
    }),
    ("index_put_add", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.index_put_add(&f.specs(), &y)?])
    }),
    ("take", |f, x| {
        let index = f.tensor();
        let axis = f.flag().then(|| f.axis());
        Ok(vec![x.take(&index, axis)?])
    }),
    ("index_select", |f, x| {
        let index = f.tensor();
        Ok(vec![x.index_select(f.axis(), &index)?])
    }),
    ("gather", |f, x| {
        let index = f.partner(x);
        Ok(vec![x.gather(f.axis(), &index)?])
    }),
    ("take_along_dim", |f, x| {
        let index = f.partner(x);
        Ok(vec![x.take_along_dim(&index, f.axis())?])
    }),
    ("scatter", |f, x| {
        let (index, source) = (f.partner(x), f.partner(x));
        Ok(vec![x.scatter(f.axis(), &index, &source)?])
    }),
    ("scatter_add", |f, x| {
        let (index, source) = (f.partner(x), f.partner(x));
        Ok(vec![x.scatter_add(f.axis(), &index, &source)?])
    }),
    ("index_add", |f, x| {
        let (index, source) = (f.tensor(), f.partner(x));
        Ok(vec![x.index_add(f.axis(), &index, &source)?])
    }),
    ("masked_fill", |f, x| {
        let mask = f.partner(x);
        Ok(vec![x.masked_fill(&mask, f.scalar())?])
    }),
    ("where_", |f, x| {
        let (then, otherwise) = (f.partner(x), f.partner(x));
        Ok(vec![x.where_(&then, &otherwise)?])
    }),
    ("clip", |f, x| {
        let (min, max) = (f.option(), f.option());
        Ok(vec![x.clip(min.as_ref(), max.as_ref())?])
    }),
    ("clamp", |f, x| {
        let (min, max) = (f.flag().then(|| f.scalar()), f.flag().then(|| f.scalar()));
        Ok(vec![x.clamp(min, max)?])
    }),
    ("argsort", |f, x| Ok(vec![x.argsort(f.axis(), f.flag())?])),
    ("sort", |f, x| x.sort(f.axis(), f.flag()).map(|(a, b)| vec![a, b])),
    ("topk", |f, x| x.topk(f.size(), f.axis(), f.flag()).map(|(a, b)| vec![a, b])),
    ("searchsorted", |f, x| {
        let values = f.partner(x);
        Ok(vec![x.searchsorted(&values, f.flag())?])
    }),
    ("unique", |_, x| x.unique().map(|_| Vec::new())),
    ("one_hot", |f, x| Ok(vec![x.one_hot(f.size(), f.dtype())?])),
    ("argmax", |f, x| {
        let axis = f.flag().then(|| f.axis());
        Ok(vec![x.argmax(axis, f.flag())?])
    }),
    ("argmin", |f, x| {
        let axis = f.flag().then(|| f.axis());
        Ok(vec![x.argmin(axis, f.flag())?])
    }),
    ("var", |f, x| Ok(vec![x.var(&f.axes(), f.number(), f.flag())?])),
    ("std", |f, x| Ok(vec![x.std(&f.axes(), f.number(), f.flag())?])),
    ("norm", |f, x| Ok(vec![x.norm(f.number(), &f.axes(), f.flag())?])),
    ("item", |_, x| x.item::<f32>().map(|_| Vec::new())),
    ("to_vec", |_, x| x.to_vec::<i64>().map(|_| Vec::new())),
];

const NEURAL: &[(&str, Call)] = &[
    ("gelu", |f, x| Ok(vec![x.gelu(f.choice.of(&[GeluApproximation::None, GeluApproximation::Tanh]))?])),
    ("softplus", |f, x| Ok(vec![x.softplus(f.number(), f.number())?])),
    ("hardtanh", |f, x| Ok(vec![x.hardtanh(f.number(), f.number())?])),
    ("leaky_relu", |f, x| Ok(vec![x.leaky_relu(f.number())?])),
    ("elu", |f, x| Ok(vec![x.elu(f.number())?])),
    ("celu", |f, x| Ok(vec![x.celu(f.number())?])),
    ("hardshrink", |f, x| Ok(vec![x.hardshrink(f.number())?])),
    ("softshrink", |f, x| Ok(vec![x.softshrink(f.number())?])),
    ("threshold", |f, x| Ok(vec![x.threshold(f.number(), f.number())?])),
    ("attention", |f, x| {
        let (k, v, mask) = (f.partner(x), f.partner(x), f.option());
        let options = AttentionOptions {
            dropout_p: f.number(),
            is_causal: f.flag(),
            scale: f.flag().then(|| f.number()),
            enable_gqa: f.flag(),
        };
        Ok(vec![x.scaled_dot_product_attention(&k, &v, mask.as_ref(), options)?])
    }),
    ("embedding", |f, x| {
        let weight = f.tensor();
        let padding = f.flag().then(|| f.axis());
        Ok(vec![x.embedding(&weight, padding)?])
    }),
    ("dropout", |f, x| Ok(vec![x.dropout(f.number(), f.flag())?])),
    ("feature_dropout", |f, x| Ok(vec![x.feature_dropout(f.number(), f.flag())?])),
    ("interpolate", |f, x| {
        let mode =
            if f.flag() { Interpolation::Nearest } else { Interpolation::Linear { align_corners: f.flag() } };
        Ok(vec![x.interpolate(&f.sizes(), mode)?])
    }),
    ("interpolate_by", |f, x| {
        let mode =
            if f.flag() { Interpolation::Nearest } else { Interpolation::Linear { align_corners: f.flag() } };
        Ok(vec![x.interpolate_by(f.number(), mode)?])
    }),
    ("layer_norm", |f, x| {
        let (w, b) = (f.option(), f.option());
        let shape = if f.flag() { x.shape().last().copied().into_iter().collect() } else { f.sizes() };
        Ok(vec![x.layer_norm(&shape, w.as_ref(), b.as_ref(), f.number())?])
    }),
    ("rms_norm", |f, x| {
        let w = f.option();
        let shape = if f.flag() { x.shape().last().copied().into_iter().collect() } else { f.sizes() };
        let eps = f.flag().then(|| f.number());
        Ok(vec![x.rms_norm(&shape, w.as_ref(), eps)?])
    }),
    ("group_norm", |f, x| {
        let (w, b) = (f.option(), f.option());
        Ok(vec![x.group_norm(f.size(), w.as_ref(), b.as_ref(), f.number())?])
    }),
    ("instance_norm", |f, x| {
        let (w, b) = (f.option(), f.option());
        Ok(vec![x.instance_norm(w.as_ref(), b.as_ref(), f.number())?])
    }),
    ("batch_norm", |f, x| {
        let (mean, var, w, b) = (f.option(), f.option(), f.option(), f.option());
        let (training, eps) = (f.flag(), f.number());
        Ok(vec![x.batch_norm(mean.as_ref(), var.as_ref(), w.as_ref(), b.as_ref(), training, eps)?])
    }),
    ("running_statistics", |f, x| {
        let (mean, var) = (f.tensor(), f.tensor());
        x.running_statistics(&mean, &var, f.number()).map(|_| Vec::new())
    }),
    ("recurrent", |f, x| {
        let (w, u, b, c) = (f.tensor(), f.tensor(), f.option(), f.option());
        let (h0, c0) = (f.option(), f.option());
        let weights =
            RecurrentWeights { weight_ih: &w, weight_hh: &u, bias_ih: b.as_ref(), bias_hh: c.as_ref() };
        let cell = f.choice.of(&[Cell::Lstm, Cell::Gru, Cell::Tanh, Cell::Relu]);
        let result = x.recurrent(cell, weights, h0.as_ref(), c0.as_ref(), f.flag())?;
        Ok(vec![result.output, result.h_n])
    }),
];

const LOSSES: &[(&str, Call)] = &[
    ("cross_entropy", |f, x| {
        let (target, weight) = (f.partner(x), f.option());
        let options = CrossEntropyOptions {
            weight: weight.as_ref(),
            ignore_index: f.axis(),
            label_smoothing: f.number(),
            reduction: f.reduction(),
        };
        Ok(vec![x.cross_entropy_with(&target, &options)?])
    }),
    ("nll_loss", |f, x| {
        let (target, weight) = (f.partner(x), f.option());
        let reduction = f.reduction();
        let options = CrossEntropyOptions { weight: weight.as_ref(), reduction, ..Default::default() };
        Ok(vec![x.nll_loss(&target, &options)?])
    }),
    ("mse_loss", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.mse_loss(&y, f.reduction())?])
    }),
    ("l1_loss", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.l1_loss(&y, f.reduction())?])
    }),
    ("smooth_l1_loss", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.smooth_l1_loss(&y, f.number(), f.reduction())?])
    }),
    ("huber_loss", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.huber_loss(&y, f.number(), f.reduction())?])
    }),
    ("binary_cross_entropy", |f, x| {
        let (y, w) = (f.partner(x), f.option());
        Ok(vec![x.binary_cross_entropy(&y, w.as_ref(), f.reduction())?])
    }),
    ("binary_cross_entropy_with_logits", |f, x| {
        let (y, w, p) = (f.partner(x), f.option(), f.option());
        Ok(vec![x.binary_cross_entropy_with_logits(&y, w.as_ref(), p.as_ref(), f.reduction())?])
    }),
    ("kl_div", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.kl_div(&y, f.flag(), f.reduction())?])
    }),
    ("hinge_embedding_loss", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.hinge_embedding_loss(&y, f.number(), f.reduction())?])
    }),
    ("cosine_similarity", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.cosine_similarity(&y, f.axis(), f.number())?])
    }),
    ("cosine_embedding_loss", |f, x| {
        let (y, target) = (f.partner(x), f.tensor());
        Ok(vec![x.cosine_embedding_loss(&y, &target, f.number(), f.reduction())?])
    }),
];

const CREATION: &[(&str, Call)] = &[
    ("from_slice", |f, _| Ok(vec![Tensor::from_slice(&[1f32, 2.0], &f.sizes(), f.device)?])),
    ("from_bytes", |f, _| Ok(vec![Tensor::from_bytes(&[1, 2, 3], f.dtype(), &f.sizes(), f.device)?])),
    ("full", |f, _| Ok(vec![Tensor::full(&f.sizes(), f.scalar(), f.dtype(), f.device)?])),
    ("arange", |f, _| Ok(vec![Tensor::arange(f.scalar(), f.scalar(), f.scalar(), f.dtype(), f.device)?])),
    ("linspace", |f, _| Ok(vec![Tensor::linspace(f.number(), f.number(), f.size(), f.dtype(), f.device)?])),
    ("eye", |f, _| Ok(vec![Tensor::eye(f.size(), f.size(), f.dtype(), f.device)?])),
    ("rand", |f, _| Ok(vec![Generator::new(1).rand(&f.sizes(), f.dtype(), f.device)?])),
    ("randn", |f, _| Ok(vec![Generator::new(1).randn(&f.sizes(), f.dtype(), f.device)?])),
    ("randint", |f, _| {
        Ok(vec![Generator::new(1).randint(f.axis(), f.axis(), &f.sizes(), f.dtype(), f.device)?])
    }),
    ("randperm", |f, _| Ok(vec![Generator::new(1).randperm(f.size(), f.device)?])),
    ("bernoulli", |f, _| {
        Ok(vec![Generator::new(1).bernoulli(f.number(), &f.sizes(), f.dtype(), f.device)?])
    }),
];

/// Results larger than this are not computed: the test is of answers, not of memory.
const READABLE: usize = 1 << 16;

thread_local! {
    /// Where this thread panicked last.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Makes the call, computes what it gave, and differentiates that.
fn work(call: Call, fuzz: &mut Fuzz) -> Result<()> {
    let x = fuzz.tensor();
    for result in call(fuzz, &x)? {
        if result.len() > READABLE {
            continue;
        }
        result.to_bytes()?;
        let _ = format!("{result} {result:?}");
        if result.requires_grad() {
            result.sum(&[], false)?.backward()?;
        }
    }
    Ok(())
}

#[test]
fn every_call_answers() {
    neurenix::register_all();
    let device = Device::find("cpu").expect("the CPU is always registered");
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|panic| {
        PLACE.replace(panic.location().map(|at| at.to_string()));
    }));
    let mut wrong: BTreeMap<String, (u64, usize)> = BTreeMap::new();
    let mut answers = [0usize; 2];
    for (place, (name, call)) in CALLS.iter().flat_map(|calls| calls.iter()).enumerate() {
        for round in 0..300u64 {
            let seed = place as u64 * 1000 + round;
            let mut fuzz = Fuzz { choice: Choice::new(seed), device };
            let complaint = match catch_unwind(AssertUnwindSafe(|| work(*call, &mut fuzz))) {
                Ok(Ok(())) => {
                    answers[0] += 1;
                    continue;
                }
                // An internal error is a bug that was caught in time, but a bug.
                Ok(Err(Error::Internal { place, message })) => {
                    format!("internal error in {place}: {message}")
                }
                Ok(Err(_)) => {
                    answers[1] += 1;
                    continue;
                }
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().map(String::as_str);
                    let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default();
                    format!("panic at {}: {text}", PLACE.take().unwrap_or_default())
                }
            };
            let count = &mut wrong.entry(format!("{name}: {complaint}")).or_insert((seed, 0)).1;
            *count += 1;
        }
    }
    std::panic::set_hook(hook);
    let list: Vec<String> =
        wrong.iter().map(|(what, (seed, n))| format!("{what} (seed {seed}, {n} times)")).collect();
    assert!(list.is_empty(), "{}", list.join("\n"));
    // Neither all nonsense nor all sense.
    assert!(answers[0] > 5000 && answers[1] > 5000, "{answers:?}");
}
