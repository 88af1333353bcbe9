//! Ranks, counts, sums of products, matrix norms, and writes by position.

use neurenix::phynexus::{
    Tensor,
    tensor::{Generator, MatrixNorm, QuantileMethod},
};

use super::{Call, fuzz::Fuzz};

fn method(f: &mut Fuzz) -> QuantileMethod {
    use QuantileMethod::*;
    f.choice.of(&[Linear, Lower, Higher, Midpoint, Nearest])
}

fn norm(f: &mut Fuzz) -> MatrixNorm {
    use MatrixNorm::*;
    f.choice.of(&[Frobenius, Nuclear, Spectral, LeastSingular, Columns, LeastColumn, Rows, LeastRow])
}

pub(super) const RANKS: &[(&str, Call)] = &[
    ("median", |f, x| x.median(f.axis(), f.flag()).map(|(a, b)| vec![a, b])),
    ("nanmedian", |f, x| x.nanmedian(f.axis(), f.flag()).map(|(a, b)| vec![a, b])),
    ("mode", |f, x| x.mode(f.axis(), f.flag()).map(|(a, b)| vec![a, b])),
    ("kthvalue", |f, x| x.kthvalue(f.size(), f.axis(), f.flag()).map(|(a, b)| vec![a, b])),
    ("quantile", |f, x| {
        let q: Vec<f64> = (0..f.choice.below(3)).map(|_| f.number()).collect();
        let axis = f.flag().then(|| f.axis());
        let (keepdim, method) = (f.flag(), method(f));
        Ok(vec![x.quantile(&q, axis, keepdim, method)?])
    }),
    ("bincount", |f, x| {
        let weights = f.option();
        Ok(vec![x.bincount(weights.as_ref(), f.size())?])
    }),
    ("histc", |f, x| Ok(vec![x.histc(f.size(), f.scalar(), f.scalar())?])),
    ("diff", |f, x| Ok(vec![x.diff(f.size(), f.axis())?])),
    ("trapezoid", |f, x| Ok(vec![x.trapezoid(f.number(), f.axis())?])),
    ("trapezoid_at", |f, x| {
        let points = f.partner(x);
        Ok(vec![x.trapezoid_at(&points, f.axis())?])
    }),
    ("nan_to_num", |f, x| {
        let (high, low) = (f.flag().then(|| f.number()), f.flag().then(|| f.number()));
        Ok(vec![x.nan_to_num(f.number(), high, low)?])
    }),
    ("multinomial", |f, x| Ok(vec![x.multinomial(f.size(), f.flag())?])),
];

pub(super) const PRODUCTS: &[(&str, Call)] = &[
    ("matmul_as", |f, x| {
        let (other, dtype) = (f.partner(x), f.dtype());
        Ok(vec![x.matmul_as(&other, dtype)?])
    }),
    ("compress_two_of_four", |_, x| x.compress_two_of_four().map(|(values, places)| vec![values, places])),
    ("matmul_sparse", |f, x| {
        let (values, places) = (f.partner(x), f.tensor());
        Ok(vec![x.matmul_sparse(&values, &places)?])
    }),
    ("lerp", |f, x| {
        let (end, weight) = (f.partner(x), f.partner(x));
        Ok(vec![x.lerp(&end, &weight)?])
    }),
    ("lerp_scalar", |f, x| {
        let end = f.partner(x);
        Ok(vec![x.lerp_scalar(&end, f.scalar())?])
    }),
    ("addcmul", |f, x| {
        let (a, b) = (f.partner(x), f.partner(x));
        Ok(vec![x.addcmul(&a, &b, f.scalar())?])
    }),
    ("addcdiv", |f, x| {
        let (a, b) = (f.partner(x), f.partner(x));
        Ok(vec![x.addcdiv(&a, &b, f.scalar())?])
    }),
    ("addmm", |f, x| {
        let (a, b) = (f.partner(x), f.partner(x));
        Ok(vec![x.addmm(&a, &b, f.scalar(), f.scalar())?])
    }),
    ("tensordot", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.tensordot(&y, &f.axes(), &f.axes())?])
    }),
    ("vecdot", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.vecdot(&y, f.axis())?])
    }),
    ("dist", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.dist(&y, f.number())?])
    }),
    ("cdist", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.cdist(&y, f.scalar())?])
    }),
    ("matrix_power", |f, x| Ok(vec![x.matrix_power(f.axis())?])),
    ("matrix_norm", |f, x| Ok(vec![x.matrix_norm(norm(f), f.flag())?])),
    ("cond", |f, x| Ok(vec![x.cond(norm(f))?])),
];

pub(super) const PLACES: &[(&str, Call)] = &[
    ("diagonal", |f, x| Ok(vec![x.diagonal(f.axis(), f.axis(), f.axis())?])),
    ("diag_embed", |f, x| Ok(vec![x.diag_embed(f.axis(), f.axis(), f.axis())?])),
    ("rot90", |f, x| Ok(vec![x.rot90(f.axis(), [f.axis(), f.axis()])?])),
    ("index_copy", |f, x| {
        let (index, source) = (f.tensor(), f.partner(x));
        Ok(vec![x.index_copy(f.axis(), &index, &source)?])
    }),
    ("index_fill", |f, x| {
        let index = f.tensor();
        Ok(vec![x.index_fill(f.axis(), &index, f.scalar())?])
    }),
    ("masked_scatter", |f, x| {
        let (mask, source) = (f.partner(x), f.partner(x));
        Ok(vec![x.masked_scatter(&mask, &source)?])
    }),
    ("tril_indices", |f, _| {
        let (rows, columns) = (f.choice.below(5), f.choice.below(5));
        Ok(vec![Tensor::tril_indices(rows, columns, f.axis(), f.dtype(), f.device)?])
    }),
    ("triu_indices", |f, _| {
        let (rows, columns) = (f.choice.below(5), f.choice.below(5));
        Ok(vec![Tensor::triu_indices(rows, columns, f.axis(), f.dtype(), f.device)?])
    }),
    ("logspace", |f, _| {
        Ok(vec![Tensor::logspace(f.number(), f.number(), f.size(), f.number(), f.dtype(), f.device)?])
    }),
    ("multinomial of a generator", |f, x| Ok(vec![Generator::new(1).multinomial(x, f.size(), f.flag())?])),
];
