//! Movement, indexing and creation.

use neurenix::phynexus::{Tensor, tensor::Generator};

use super::Call;

pub(super) const MOVEMENT: &[(&str, Call)] = &[
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

pub(super) const INDEXING: &[(&str, Call)] = &[
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

pub(super) const CREATION: &[(&str, Call)] = &[
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
