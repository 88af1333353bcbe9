//! Outputs that share memory with an operand.

use phynexus::{
    DType, Scalar,
    op::{Binary, Combine, Unary},
};

use super::{
    Data, close,
    kernels::{Builder, numbers},
    reference, run_all,
};

/// Runs a kernel whose outputs replace inputs, given as `(output, input)`, and compares it with the interpreter.
fn check(b: &Builder, pairs: &[(usize, usize)]) {
    let mut alias: Vec<usize> = (0..b.data.len()).collect();
    for &(output, input) in pairs {
        alias[output] = input;
    }
    let got = run_all(&b.kernel, &b.data, &alias);
    let want = reference::interpret(&b.kernel, &b.data);
    for (parameter, want) in want.iter().enumerate().filter(|(p, _)| b.kernel.parameters[*p].written) {
        for (at, (&got, &want)) in got[alias[parameter]].all().iter().zip(want).enumerate() {
            assert!(close(got, want, 1e-5), "parameter {parameter} element {at}: {got} instead of {want}");
        }
    }
}

/// Momentum: two buffers updated from their old values and a gradient; the second update reads the first's old value.
#[test]
fn several_updates_in_place() {
    for shape in [vec![1], vec![999], vec![100_000], vec![30, 50]] {
        let count = shape.iter().product();
        let mut b = Builder::new(&shape, &[]);
        // With two ranges, over a part of a wider buffer: rows then have gaps in memory.
        let pitch = shape.last().copied().unwrap_or(1) as i64 + 3;
        let index = if shape.len() == 2 { b.range(0).scale(pitch).add(&b.range(1)) } else { b.flat() };
        let room = count + 3 * shape[0];
        let (w, v) = (b.load(numbers(room), index.clone()), b.load(numbers(room), index.clone()));
        let g = b.load(numbers(count), b.flat());
        let decay = b.number(0.9);
        let decayed = b.binary(Binary::Mul, v, decay);
        let velocity = b.binary(Binary::Add, decayed, g);
        // Stored first, read later.
        b.store(velocity, index.clone(), DType::F32);
        let step = b.binary(Binary::Sub, w, velocity);
        let old = b.binary(Binary::Mul, v, g);
        let weight = b.binary(Binary::Add, step, old);
        b.store(weight, index, DType::F32);
        let sizes: Vec<usize> = b.data.iter().map(|d| d.len).collect();
        for (output, input) in [(3, 1), (4, 0)] {
            let padded = numbers(sizes[input]);
            b.data[output] = padded;
        }
        check(&b, &[(3, 1), (4, 0)]);
        check(&b, &[(3, 0), (4, 1)]);
    }
}

#[test]
fn softmax_in_place() {
    for (rows, columns) in [(40, 100), (3, 50_000), (500, 7)] {
        let mut b = Builder::new(&[rows], &[columns]);
        let x = b.load(numbers(rows * columns), b.flat());
        let greatest = b.reduce(Combine::Max, x);
        let shifted = b.binary(Binary::Sub, x, greatest);
        let e = b.unary(Unary::Exp, shifted);
        let sum = b.reduce(Combine::Sum, e);
        let y = b.binary(Binary::Div, e, sum);
        b.store(y, b.flat(), DType::F32);
        check(&b, &[(1, 0)]);
    }
}

/// Intermediate values are placed at the destination of the result, but not while the operand there is still needed.
#[test]
fn standardised_rows_in_place() {
    for (rows, columns) in [(40, 100), (3, 50_000), (500, 7), (9, 1024)] {
        for read_again in [false, true] {
            let mut b = Builder::new(&[rows], &[columns]);
            let x = b.load(numbers(rows * columns), b.flat());
            let (sum, count) = (b.reduce(Combine::Sum, x), b.number(columns as f64));
            let mean = b.binary(Binary::Div, sum, count);
            let centred = b.binary(Binary::Sub, x, mean);
            let square = b.binary(Binary::Mul, centred, centred);
            let squares = b.reduce(Combine::Sum, square);
            let scale = b.unary(Unary::Rsqrt, squares);
            let scaled = b.binary(Binary::Mul, centred, scale);
            let y = if read_again { b.binary(Binary::Max, scaled, x) } else { b.unary(Unary::Neg, scaled) };
            b.store(y, b.flat(), DType::F32);
            check(&b, &[(1, 0)]);
        }
    }
}

/// A 16-bit float parameter is converted on load and store, and stored where it was loaded from.
#[test]
fn half_precision_in_place() {
    let count = 10_007;
    let mut b = Builder::new(&[count], &[]);
    let x = b.load(Data::new(DType::F16, numbers(count).all()), b.flat());
    let y = b.unary(Unary::Neg, x);
    let sum = b.binary(Binary::Add, y, x);
    let z = b.binary(Binary::Add, sum, y);
    b.kernel.instructions.iter_mut().skip(1).for_each(|i| i.dtype = DType::F16);
    b.store(z, b.flat(), DType::F16);
    check(&b, &[(1, 0)]);
}

/// Each operand is also stored, over the other one or beside what replaces it.
#[test]
fn operands_that_are_stored_and_replaced() {
    for count in [1, 7, 10_007] {
        let mut b = Builder::new(&[count], &[]);
        let x = b.load(numbers(count), b.flat());
        let above: Vec<Scalar> =
            numbers(count).all().iter().map(|v| Scalar::Float(v.as_f64() + 1.0)).collect();
        let y = b.load(Data::new(DType::F32, above), b.flat());
        let sum = b.binary(Binary::Add, x, y);
        b.store(sum, b.flat(), DType::F32);
        b.store(y, b.flat(), DType::F32);
        b.store(x, b.flat(), DType::F32);
        check(&b, &[(3, 0), (4, 1)]);
        check(&b, &[(2, 0)]);
        check(&b, &[(2, 1), (3, 0)]);
    }
}

/// A copy onto itself.
#[test]
fn a_buffer_stored_where_it_is() {
    let mut b = Builder::new(&[5, 70], &[]);
    let x = b.load(numbers(350), b.flat());
    b.store(x, b.flat(), DType::F32);
    check(&b, &[(1, 0)]);
}
