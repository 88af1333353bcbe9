//! Checks each op against results worked out by hand or by PyTorch 2.15, and the bounds against direct `f32`
//! computations.

use smallvec::smallvec;

use super::*;
use crate::{
    DType, Element, Error, Scalar,
    op::{
        ArgReduce, ArgSort, Axes, Binary, Cat, Combine, Conv, ConvKind, Gather, Geometry, IndexRange, Iota,
        Op, Pad, Permute, Pool, PoolKind, Reduce, Scan, Scatter, ScatterMode, SearchSorted, Slice, Unary,
        ir::Ir,
    },
};

fn array<T: Element>(values: &[T], shape: &[usize]) -> OracleArray {
    let mut bytes = Vec::new();
    T::write_bytes(values, &mut bytes);
    OracleArray::from_bytes(&bytes, T::DTYPE, shape).unwrap()
}

/// Evaluates one op on leaves.
fn apply(op: Op, dtype: DType, shape: &[usize], leaves: &[OracleArray]) -> OracleArray {
    let mut ir = Ir::default();
    let inputs: Vec<u32> = leaves.iter().map(|l| ir.push(Op::Buffer, l.dtype, l.shape.clone(), [])).collect();
    let id = ir.push(op, dtype, shape.into(), inputs);
    ir.outputs.push(id);
    evaluate(&ir, leaves).unwrap().remove(0)
}

fn values(array: &OracleArray) -> Vec<f64> {
    let value = |n: &Number| match n {
        Number::Integer(x) => *x as f64,
        Number::Float(x) => x.value,
        Number::Undetermined => panic!("undetermined"),
    };
    array.elements.iter().map(value).collect()
}

fn ints(array: &OracleArray) -> Vec<Option<i128>> {
    let value = |n: &Number| match n {
        Number::Integer(x) => Some(*x),
        _ => None,
    };
    array.elements.iter().map(value).collect()
}

fn some(values: &[i128]) -> Vec<Option<i128>> {
    values.iter().copied().map(Some).collect()
}

#[test]
fn views_and_joins() {
    let x = array(&[0i32, 1, 2, 3, 4, 5], &[2, 3]);
    let one = |op, shape: &[usize]| values(&apply(op, DType::I32, shape, std::slice::from_ref(&x)));
    assert_eq!(one(Op::Permute(Permute(smallvec![1, 0])), &[3, 2]), [0., 3., 1., 4., 2., 5.]);
    assert_eq!(one(Op::Slice(Slice { start: smallvec![1, 2], step: smallvec![1, -2] }), &[1, 2]), [5., 3.]);
    let pad = Op::Pad(Pad { padding: smallvec![(1, 0), (0, 1)], value: Scalar::Int(7) });
    assert_eq!(one(pad, &[3, 4]), [7., 7., 7., 7., 0., 1., 2., 7., 3., 4., 5., 7.]);
    let y = array(&[8i32, 9], &[2, 1]);
    let cat = apply(Op::Cat(Cat { axis: 1 }), DType::I32, &[2, 4], &[x.clone(), y.clone()]);
    assert_eq!(values(&cat), [0., 1., 2., 8., 3., 4., 5., 9.]);
    assert_eq!(values(&apply(Op::Expand, DType::I32, &[2, 2], &[y])), [8., 8., 9., 9.]);
    assert_eq!(values(&apply(Op::Iota(Iota { axis: 1 }), DType::F32, &[2, 2], &[])), [0., 1., 0., 1.]);
    assert_eq!(values(&apply(Op::Iota(Iota { axis: 0 }), DType::I8, &[130], &[]))[129], -127.0);
}

#[test]
fn reductions_and_scans() {
    let x = array(&[1f32, f32::NAN, 3., -4., 5., 6.], &[2, 3]);
    let reduce = |combine, axes, shape: &[usize]| {
        values(&apply(Op::Reduce(Reduce { combine, axes }), DType::F32, shape, std::slice::from_ref(&x)))
    };
    let max = reduce(Combine::Max, Axes(2), &[2, 1]);
    assert!(max[0].is_nan() && max[1] == 6.0);
    assert!(reduce(Combine::Sum, Axes(3), &[1, 1])[0].is_nan());
    let empty = array::<f32>(&[], &[0, 2]);
    for (combine, expected) in [
        (Combine::Sum, 0.0),
        (Combine::Prod, 1.0),
        (Combine::Max, f64::NEG_INFINITY),
        (Combine::Min, f64::INFINITY),
    ] {
        let result = apply(
            Op::Reduce(Reduce { combine, axes: Axes(1) }),
            DType::F32,
            &[1, 2],
            std::slice::from_ref(&empty),
        );
        assert_eq!(values(&result), [expected; 2]);
    }
    let bytes = array(&[200u8, 100, 3], &[3]);
    let sum = apply(
        Op::Reduce(Reduce { combine: Combine::Sum, axes: Axes(1) }),
        DType::U8,
        &[1],
        std::slice::from_ref(&bytes),
    );
    assert_eq!(values(&sum), [47.0]);
    let scan = Op::Scan(Scan { combine: Combine::Sum, axis: 0, reverse: true });
    assert_eq!(values(&apply(scan, DType::U8, &[3], &[bytes])), [47., 103., 3.]);
    let arg = |combine, x: &OracleArray| {
        ints(&apply(Op::ArgReduce(ArgReduce { combine, axis: 0 }), DType::I64, &[1], std::slice::from_ref(x)))
    };
    assert_eq!(arg(Combine::Max, &array(&[1f32, 5., 5., 2.], &[4])), some(&[1]));
    assert_eq!(arg(Combine::Min, &array(&[1f32, f32::NAN, 0., f32::NAN], &[4])), some(&[1]));
    assert_eq!(arg(Combine::Min, &array(&[3i8, -128, 127], &[3])), some(&[1]));
}

#[test]
fn sums_that_could_overflow_on_the_way_are_undetermined() {
    let sum = |x: &[f32]| {
        let op = Op::Reduce(Reduce { combine: Combine::Sum, axes: Axes(1) });
        apply(op, DType::F32, &[1], &[array(x, &[x.len()])]).elements[0]
    };
    let big = f32::MAX;
    assert!(matches!(sum(&[big, big, -big]), Number::Undetermined));
    assert!(matches!(sum(&[big, big]), Number::Float(x) if x.low > 1e38 && x.high == f64::INFINITY));
    assert!(matches!(sum(&[f32::INFINITY, 1.0]), Number::Float(x) if x.low == f64::INFINITY));
    assert!(matches!(sum(&[f32::INFINITY, f32::NEG_INFINITY]), Number::Float(x) if x.is_nan()));
    // Both products overflow `f32`, although in `f64` the second one vanishes beside the first.
    let products = [array(&[-big, 1e30], &[1, 2]), array(&[big, 1e30], &[2, 1])];
    let product = apply(Op::Dot, DType::F32, &[1, 1], &products).elements[0];
    assert!(matches!(product, Number::Undetermined), "{product}");
}

#[test]
fn errors_are_shares_of_what_is_allowed() {
    let expected = apply(Op::Unary(Unary::Exp), DType::F32, &[1], &[array(&[1f32], &[1])]);
    let share = |off: i32| {
        let bits = std::f32::consts::E.to_bits().wrapping_add_signed(off);
        let comparison = compare(&expected, &f32::from_bits(bits).to_le_bytes(), DType::F32);
        comparison.passed().then_some(comparison.worst_share)
    };
    assert_eq!(share(0), Some(0.0));
    // 3 units in the last place are allowed.
    assert!(share(1).is_some_and(|share| share > 0.2 && share < 0.5), "{:?}", share(1));
    assert!(share(-3).is_some_and(|share| share > 0.7 && share <= 1.0), "{:?}", share(-3));
    assert_eq!(share(5), None);
}

#[test]
fn bounds_hold_for_every_order_of_a_sum_and_are_not_loose() {
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 40) as f32 / (1u32 << 23) as f32 - 1.0) * 3.0
    };
    let x: Vec<f32> = (0..500).map(|_| next()).collect();
    let op = Op::Reduce(Reduce { combine: Combine::Sum, axes: Axes(1) });
    let expected = apply(op, DType::F32, &[1], &[array(&x, &[500])]);
    let forward: f32 = x.iter().sum();
    let backward: f32 = x.iter().rev().sum();
    let pairs: f32 = x.chunks(16).map(|c| c.iter().sum::<f32>()).sum();
    for sum in [forward, backward, pairs] {
        let result = compare(&expected, &sum.to_le_bytes(), DType::F32);
        assert!(result.passed(), "{result}");
    }
    let off = forward + 500.0 * 3.0 * f32::EPSILON * 500.0;
    assert!(!compare(&expected, &off.to_le_bytes(), DType::F32).passed());
}

#[test]
fn elementwise_chains_contain_what_f32_computes() {
    let x: Vec<f32> = (-40..40).map(|i| i as f32 * 0.37).collect();
    let mut ir = Ir::default();
    let shape: crate::shape::Dims = smallvec![x.len()];
    let a = ir.push(Op::Buffer, DType::F32, shape.clone(), []);
    let b = ir.push(Op::Unary(Unary::Tanh), DType::F32, shape.clone(), [a]);
    let c = ir.push(Op::Binary(Binary::Mul), DType::F32, shape.clone(), [a, b]);
    let d = ir.push(Op::Binary(Binary::Sub), DType::F32, shape.clone(), [c, a]);
    let e = ir.push(Op::Unary(Unary::Exp), DType::F32, shape, [d]);
    ir.outputs = vec![c, e];
    let expected = evaluate(&ir, &[array(&x, &[x.len()])]).unwrap();
    let product: Vec<u8> = x.iter().flat_map(|x| (x * x.tanh()).to_le_bytes()).collect();
    let result: Vec<u8> = x.iter().flat_map(|x| (x * x.tanh() - x).exp().to_le_bytes()).collect();
    assert!(compare(&expected[0], &product, DType::F32).passed());
    let comparison = compare(&expected[1], &result, DType::F32);
    assert!(comparison.passed() && comparison.skipped == 0, "{comparison}");
    let wrong: Vec<u8> = x.iter().flat_map(|x| ((x * x.tanh() - x).exp() * 1.0001).to_le_bytes()).collect();
    assert!(!compare(&expected[1], &wrong, DType::F32).passed());
}

#[test]
fn special_values_of_functions() {
    let one = |op, x: f32| apply(Op::Unary(op), DType::F32, &[1], &[array(&[x], &[1])]).elements[0];
    let exactly = |n: Number, x: f64| matches!(n, Number::Float(i) if i.low.to_bits() == x.to_bits() && i.high.to_bits() == x.to_bits());
    assert!(exactly(one(Unary::Sqrt, -0.0), -0.0));
    assert!(exactly(one(Unary::Rsqrt, 0.0), f64::INFINITY));
    assert!(exactly(one(Unary::Recip, -0.0), f64::NEG_INFINITY));
    assert!(exactly(one(Unary::Sin, -0.0), -0.0));
    assert!(exactly(one(Unary::Exp, f32::INFINITY), f64::INFINITY));
    assert!(exactly(one(Unary::Round, 2.5), 2.0));
    assert!(exactly(one(Unary::Round, -0.4), -0.0));
    assert!(exactly(one(Unary::Abs, -0.0), 0.0));
    for (op, x) in
        [(Unary::Log, -1.0), (Unary::Sin, f32::INFINITY), (Unary::Acosh, 0.5), (Unary::Sign, f32::NAN)]
    {
        assert!(matches!(one(op, x), Number::Float(i) if i.is_nan()), "{op:?} {x}");
    }
    let two = |op, x: f32, y: f32| {
        let leaves = [array(&[x], &[1]), array(&[y], &[1])];
        apply(Op::Binary(op), op.result(DType::F32), &[1], &leaves).elements[0]
    };
    assert!(exactly(two(Binary::FloorDiv, -7.0, 2.0), -4.0));
    assert!(exactly(two(Binary::Remainder, -7.0, 3.0), 2.0));
    assert!(exactly(two(Binary::Remainder, 7.0, -3.0), -2.0));
    assert!(exactly(two(Binary::Remainder, 5.0, f32::INFINITY), 5.0));
    assert!(exactly(two(Binary::Pow, f32::NAN, 0.0), 1.0));
    assert!(exactly(two(Binary::Div, 1.0, -0.0), f64::NEG_INFINITY));
    assert!(matches!(two(Binary::Max, f32::NAN, 1.0), Number::Float(i) if i.is_nan()));
    assert!(matches!(two(Binary::Ne, f32::NAN, f32::NAN), Number::Integer(1)));
    assert!(matches!(two(Binary::Le, f32::NAN, 1.0), Number::Integer(0)));
    for dividend in [f32::INFINITY, f32::NEG_INFINITY] {
        for divisor in [2.0, -0.5, f32::INFINITY] {
            let remainder = two(Binary::Remainder, dividend, divisor);
            assert!(matches!(remainder, Number::Float(i) if i.is_nan()), "{dividend} {divisor}");
        }
        for divisor in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            let quotient = two(Binary::FloorDiv, dividend, divisor);
            assert!(matches!(quotient, Number::Float(i) if i.is_nan()), "{dividend} {divisor}");
        }
        for divisor in [2.0, -0.5, 0.0, -0.0] {
            let limit = f64::from(dividend / divisor);
            assert!(exactly(two(Binary::FloorDiv, dividend, divisor), limit), "{dividend} {divisor}");
        }
        // A finite number divided by infinity, and zero divided by a number, are zeros with the sign of the quotient.
        for finite in [5.0, -5.0, 1e-40, -1e-40, 0.0, -0.0] {
            let limit = f64::from(finite / dividend);
            assert!(exactly(two(Binary::FloorDiv, finite, dividend), limit), "{finite} {dividend}");
        }
    }
    for (dividend, divisor) in [(0.0, 3.0), (0.0, -3.0), (-0.0, 3.0), (-0.0, -3.0)] {
        assert!(exactly(two(Binary::FloorDiv, dividend, divisor), f64::from(dividend / divisor)));
        assert!(exactly(two(Binary::Remainder, dividend, divisor), 0f64.copysign(divisor.into())));
    }
    assert!(exactly(two(Binary::FloorDiv, 1.0, 0.0), f64::INFINITY));
    assert!(exactly(two(Binary::Remainder, -5.0, f32::INFINITY), f64::INFINITY));
    assert!(exactly(two(Binary::Remainder, 1.0, f32::NEG_INFINITY), f64::NEG_INFINITY));
    // 1 / 0.1f: the exact quotient is just below 10 and rounds to it.
    let tenth = two(Binary::FloorDiv, 1.0, 0.1);
    assert!(matches!(tenth, Number::Float(i) if i.low == 9.0 && i.high == 10.0), "{tenth}");
}

#[test]
fn sorting_and_searching() {
    let x = array(&[3f32, f32::NAN, 1., 3., f32::NEG_INFINITY, -0., 0.], &[7]);
    let sort = |descending| {
        ints(&apply(Op::ArgSort(ArgSort { descending }), DType::I64, &[7], std::slice::from_ref(&x)))
    };
    assert_eq!(sort(false), some(&[4, 5, 6, 2, 0, 3, 1]));
    assert_eq!(sort(true), some(&[1, 0, 3, 2, 5, 6, 4]));
    let sorted = array(&[1i16, 2, 2, 5], &[4]);
    let wanted = array(&[0i16, 2, 5, 9], &[4]);
    let search = |right| {
        let leaves = [sorted.clone(), wanted.clone()];
        ints(&apply(Op::SearchSorted(SearchSorted { right }), DType::I64, &[4], &leaves))
    };
    assert_eq!(search(false), some(&[0, 1, 3, 4]));
    assert_eq!(search(true), some(&[0, 3, 4, 4]));
}

#[test]
fn gather_and_scatter() {
    let x = array(&[0i32, 1, 10, 11, 20, 21], &[3, 2]);
    let index = array(&[-1i8, 0, -1], &[3]);
    let rows =
        apply(Op::Gather(Gather(IndexRange::Unknown)), DType::I32, &[3, 2], &[x.clone(), index.clone()]);
    assert_eq!(values(&rows), [20., 21., 0., 1., 20., 21.]);
    let updates = array(&[1i32, 2, 3, 4, 5, 6], &[3, 2]);
    let scatter = |mode| {
        values(&apply(
            Op::Scatter(Scatter(mode, IndexRange::Unknown)),
            DType::I32,
            &[3, 2],
            &[x.clone(), index.clone(), updates.clone()],
        ))
    };
    assert_eq!(scatter(ScatterMode::Set), [3., 4., 10., 11., 5., 6.]);
    assert_eq!(scatter(ScatterMode::Combine(Combine::Sum)), [3., 5., 10., 11., 26., 29.]);
    let mut ir = Ir::default();
    let a = ir.push(Op::Buffer, DType::I32, smallvec![3, 2], []);
    let b = ir.push(Op::Buffer, DType::U8, smallvec![1], []);
    let c = ir.push(Op::Gather(Gather(IndexRange::Unknown)), DType::I32, smallvec![1, 2], [a, b]);
    ir.outputs.push(c);
    assert!(matches!(evaluate(&ir, &[x, array(&[3u8], &[1])]), Err(Error::Index { index: 3, size: 3, .. })));
}

fn geometry() -> Geometry {
    Geometry {
        kernel: smallvec![2],
        stride: smallvec![2],
        dilation: smallvec![1],
        padding: smallvec![(1, 0)],
        groups: 2,
    }
}

#[test]
fn convolution_and_its_gradients_are_one_bilinear_form() {
    let (x, w, y) = ([1, 4, 5], [2, 2, 2], [1, 2, 3]);
    let fill = |n: usize, k: i64| (0..n as i64).map(|i| (i * k + 3) % 7 - 3).collect::<Vec<i64>>();
    let (xs, ws, ys) = (array(&fill(20, 5), &x), array(&fill(8, 3), &w), array(&fill(6, 2), &y));
    let conv = |kind, shape: &[usize], a: &OracleArray, b: &OracleArray| {
        values(&apply(Op::Conv(Conv(kind, geometry())), DType::I64, shape, &[a.clone(), b.clone()]))
    };
    let forward = conv(ConvKind::Forward, &y, &xs, &ws);
    // Output 0 of group 0 covers the padding and x[.., 0], so it uses the second taps of the filter's two channels.
    let (xv, wv) = (values(&xs), values(&ws));
    assert_eq!(forward[0], wv[1] * xv[0] + wv[3] * xv[5]);
    assert_eq!(forward[5], wv[4] * xv[13] + wv[5] * xv[14] + wv[6] * xv[18] + wv[7] * xv[19]);
    let inner = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let form = inner(&forward, &values(&ys));
    assert_eq!(inner(&conv(ConvKind::InputGradient, &x, &ys, &ws), &xv), form);
    assert_eq!(inner(&conv(ConvKind::FilterGradient, &w, &xs, &ys), &wv), form);
}

#[test]
fn pooling() {
    let x = array(&[1f32, 4., 2., f32::NAN, 0.], &[1, 1, 5]);
    let window = Geometry { groups: 1, ..geometry() };
    let pool = |kind, dtype| {
        values(&apply(Op::Pool(Pool(kind, window.clone())), dtype, &[1, 1, 3], std::slice::from_ref(&x)))
    };
    let max = pool(PoolKind::Max, DType::F32);
    assert!(max[0] == 1.0 && max[1] == 4.0 && max[2].is_nan());
    assert_eq!(pool(PoolKind::ArgMax, DType::I64), [0., 1., 3.]);
    assert_eq!(pool(PoolKind::Sum, DType::F32)[..2], [1., 6.]);
    let y = array(&[1f32, 10., 100.], &[1, 1, 3]);
    let backward = apply(Op::Pool(Pool(PoolKind::SumBackward, window)), DType::F32, &[1, 1, 5], &[y]);
    assert_eq!(values(&backward), [1., 10., 10., 100., 100.]);
}

#[test]
fn products_of_matrices() {
    let a = array(&[127i8, -128, 127, 127], &[1, 2, 2]);
    let b = array(&[127i8, 1, 127, 2], &[1, 2, 2]);
    let exact = apply(Op::Dot, DType::I32, &[1, 2, 2], &[a, b]);
    assert_eq!(values(&exact), [-127., -129., 32258., 381.]);
    let none = apply(Op::Dot, DType::F32, &[2, 1], &[array::<f32>(&[], &[2, 0]), array::<f32>(&[], &[0, 1])]);
    assert_eq!(values(&none), [0., 0.]);
}

#[test]
fn malformed_graphs_are_typed_errors() {
    let mut ir = Ir::default();
    let a = ir.push(Op::Buffer, DType::F32, smallvec![2], []);
    let b = ir.push(Op::Unary(Unary::Not), DType::F32, smallvec![2], [a]);
    ir.outputs.push(b);
    let message = evaluate(&ir, &[array(&[1f32, 2.], &[2])]).unwrap_err().to_string();
    assert!(
        message.contains("node 1, not giving float32 (2,): not a dtype this function takes"),
        "{message}"
    );
}
