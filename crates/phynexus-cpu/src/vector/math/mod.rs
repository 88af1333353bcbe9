//! Branch-free elementary functions, written for one element and vectorised by the loops that call them.

pub(super) mod double;
pub(super) mod gamma;
pub(crate) mod single;

/// How `a * b + c` is computed: the only difference between instruction sets.
pub(crate) trait Arithmetic: Copy {
    /// True if functions of `f64` only need an accuracy of about 1e-11, for results that are rounded to `f32`.
    const SHORT: bool = false;
    /// `a * b + c` in `f32`.
    fn fma32(a: f32, b: f32, c: f32) -> f32;
    /// `a * b + c` in `f64`.
    fn fma64(a: f64, b: f64, c: f64) -> f64;
}

/// One instruction, one rounding.
#[derive(Clone, Copy)]
pub(crate) struct Contracted;

/// Two instructions, two roundings: for sets without fused multiply-add.
#[derive(Clone, Copy)]
pub(crate) struct Separate;

/// The arithmetic of `A`, with shorter series.
#[derive(Clone, Copy)]
pub(super) struct Short<A>(std::marker::PhantomData<A>);

impl<A: Arithmetic> Arithmetic for Short<A> {
    const SHORT: bool = true;
    #[inline(always)]
    fn fma32(a: f32, b: f32, c: f32) -> f32 {
        A::fma32(a, b, c)
    }
    #[inline(always)]
    fn fma64(a: f64, b: f64, c: f64) -> f64 {
        A::fma64(a, b, c)
    }
}

impl Arithmetic for Contracted {
    #[inline(always)]
    fn fma32(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
    #[inline(always)]
    fn fma64(a: f64, b: f64, c: f64) -> f64 {
        a.mul_add(b, c)
    }
}

impl Arithmetic for Separate {
    #[inline(always)]
    fn fma32(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
    #[inline(always)]
    fn fma64(a: f64, b: f64, c: f64) -> f64 {
        a * b + c
    }
}

/// `coefficients[0] + coefficients[1] x + ...` by Horner's rule.
#[inline(always)]
fn polynomial32<A: Arithmetic, const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[N - 1];
    for i in (0..N - 1).rev() {
        sum = A::fma32(sum, x, coefficients[i]);
    }
    sum
}

/// `coefficients[0] + coefficients[1] x + ...` by Horner's rule.
#[inline(always)]
fn polynomial64<A: Arithmetic, const N: usize>(x: f64, coefficients: [f64; N]) -> f64 {
    let mut sum = coefficients[N - 1];
    for i in (0..N - 1).rev() {
        sum = A::fma64(sum, x, coefficients[i]);
    }
    sum
}
