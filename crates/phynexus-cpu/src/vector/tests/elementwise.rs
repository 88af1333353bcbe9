//! The semantics of every operation for every dtype: all lengths around a block, in place, scalar operands.

use phynexus::op::{Binary, Unary, special};
use phynexus::{DType, Scalar};

use crate::test_values::{from_bytes, same, to_bytes, values};
use crate::vector::{
    InstructionSet, binary_for, fill, gather_indexed, gather_strided, iota, mul_add_for, scatter_strided,
    select_for, sub_exp_for, unary_for,
};

/// Lengths below, at and above one block and several.
fn lengths() -> impl Iterator<Item = usize> {
    (0..=70).chain([127, 128, 129, 200])
}

/// The semantics of `op`, in exact integers (wrapped to the dtype afterwards) or in `f64`.
fn unary_reference(op: Unary, x: Scalar) -> Option<Scalar> {
    Some(match x {
        Scalar::Bool(x) => Scalar::Bool(!x),
        Scalar::Int(x) => Scalar::Int(match op {
            Unary::Neg => x.wrapping_neg(),
            Unary::Abs => x.wrapping_abs(),
            Unary::Sign => x.signum(),
            Unary::Not => !x,
            _ => return None,
        }),
        Scalar::UInt(x) => Scalar::UInt(match op {
            Unary::Neg => x.wrapping_neg(),
            Unary::Abs => x,
            Unary::Sign => x.min(1),
            Unary::Not => !x,
            _ => return None,
        }),
        Scalar::Float(x) => Scalar::Float(match op {
            Unary::Neg => -x,
            Unary::Abs => x.abs(),
            Unary::Sign if x > 0.0 => 1.0,
            Unary::Sign if x < 0.0 => -1.0,
            Unary::Sign => x,
            Unary::Floor => x.floor(),
            Unary::Ceil => x.ceil(),
            Unary::Trunc => x.trunc(),
            Unary::Round => x.round_ties_even(),
            Unary::IsNan => return Some(Scalar::Bool(x.is_nan())),
            Unary::IsInf => return Some(Scalar::Bool(x.is_infinite())),
            // The elementary functions have separate tests.
            _ => return None,
        }),
    })
}

/// The same for two operands; `None` for the functions that only `definitions.rs` tests.
fn binary_reference(op: Binary, a: Scalar, b: Scalar, dtype: DType) -> Option<Scalar> {
    if let (Scalar::Float(a), Scalar::Float(b)) = (a, b) {
        return float_reference(op, a, b, dtype);
    }
    let wide = |s: Scalar| match s {
        Scalar::UInt(u) => i128::from(u),
        other => i128::from(other.as_i64()),
    };
    let (x, y) = (wide(a), wide(b));
    let bits = dtype.size() as u32 * 8;
    // A count is read as unsigned; negative counts are too large.
    let count = if y < 0 || y >= i128::from(bits) { None } else { Some(y as u32) };
    let floor_div = |x: i128, y: i128| x.div_euclid(y) - i128::from(y < 0 && x.rem_euclid(y) != 0);
    let result = match op {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x.wrapping_mul(y),
        Binary::FloorDiv if y == 0 => 0,
        Binary::FloorDiv => floor_div(x, y),
        Binary::Remainder if y == 0 => 0,
        Binary::Remainder => x - y * floor_div(x, y),
        Binary::Pow if y < 0 && x == -1 => 1 - 2 * (y & 1),
        Binary::Pow if y < 0 => i128::from(x == 1),
        Binary::Pow => {
            // Modulo 2^64, with the exponent in two halves.
            let (x, low, high) = (x as u64, y as u32, (y >> 32) as u32);
            let high = x.wrapping_pow(1 << 16).wrapping_pow(1 << 16).wrapping_pow(high);
            i128::from(x.wrapping_pow(low).wrapping_mul(high))
        }
        Binary::Max => x.max(y),
        Binary::Min => x.min(y),
        Binary::And => x & y,
        Binary::Or => x | y,
        Binary::Xor => x ^ y,
        Binary::Shl => count.map_or(0, |count| x << count),
        Binary::Shr => x >> count.unwrap_or(bits),
        Binary::Lt => return Some(Scalar::Bool(x < y)),
        Binary::Le => return Some(Scalar::Bool(x <= y)),
        Binary::Eq => return Some(Scalar::Bool(x == y)),
        Binary::Ne => return Some(Scalar::Bool(x != y)),
        _ => return None,
    };
    Some(Scalar::UInt(result as u64).cast(dtype))
}

fn float_reference(op: Binary, a: f64, b: f64, dtype: DType) -> Option<Scalar> {
    let nan = a.is_nan() || b.is_nan();
    let result = match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::FloorDiv => python_divmod(a, b, dtype).0,
        Binary::Remainder => python_divmod(a, b, dtype).1,
        Binary::Pow => special::pow(a, b),
        Binary::Atan2 => a.atan2(b),
        Binary::Max if nan => f64::NAN,
        Binary::Min if nan => f64::NAN,
        Binary::Max => a.max(b),
        Binary::Min => a.min(b),
        Binary::Lt => return Some(Scalar::Bool(a < b)),
        Binary::Le => return Some(Scalar::Bool(a <= b)),
        Binary::Eq => return Some(Scalar::Bool(a == b)),
        Binary::Ne => return Some(Scalar::Bool(a != b)),
        _ => return None,
    };
    Some(Scalar::Float(result).cast(dtype))
}

/// CPython's `float_divmod`, with sums rounded to the dtype. For a divisor of zero, the remainder is NaN; the quotient
/// of zeros and infinities follows the Python array API standard.
fn python_divmod(a: f64, b: f64, dtype: DType) -> (f64, f64) {
    let round = |x: f64| Scalar::Float(x).cast(dtype).as_f64();
    let mut remainder = a % b;
    let mut quotient = round(round(a - remainder) / b);
    if remainder == 0.0 {
        remainder = 0f64.copysign(b);
    } else if (b < 0.0) != (remainder < 0.0) {
        remainder = round(remainder + b);
        quotient -= 1.0;
    }
    if a == 0.0 || b == 0.0 || a.is_infinite() || b.is_infinite() {
        return (a / b, remainder);
    }
    let floor = quotient.floor();
    let floor = if quotient - floor > 0.5 { floor + 1.0 } else { floor };
    (if quotient == 0.0 { 0f64.copysign(a / b) } else { floor }, remainder)
}

fn close(a: Scalar, b: Scalar, epsilon: f64) -> bool {
    let (x, y) = (a.as_f64(), b.as_f64());
    same(a, b) || (x - y).abs() <= epsilon * y.abs()
}

/// An aligned copy of bytes with a guard after it.
struct Buffer(Vec<u64>, usize);

impl Buffer {
    fn new(bytes: &[u8]) -> Buffer {
        let mut words = vec![0x5a5a_5a5a_5a5a_5a5a; bytes.len() / 8 + 2];
        // SAFETY: the words have room for the bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), words.as_mut_ptr().cast(), bytes.len()) };
        Buffer(words, bytes.len())
    }
    fn pointer(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
    /// The bytes, after checking that the guard is intact.
    fn bytes(&self) -> Vec<u8> {
        let all: Vec<u8> = self.0.iter().flat_map(|w| w.to_ne_bytes()).collect();
        assert!(all[self.1..].iter().all(|b| *b == 0x5a), "written past the end");
        all[..self.1].to_vec()
    }
}

#[test]
fn unary_operations_mean_what_they_say() {
    for set in InstructionSet::available() {
        for dtype in DType::COMPUTED {
            for op in Unary::ALL {
                let kernel = unary_for(set, op, dtype);
                assert_eq!(kernel.is_some(), op.accepts(dtype) && dtype == dtype.compute(), "{op:?} {dtype}");
                let Some(kernel) = kernel else { continue };
                for n in lengths() {
                    let x = values(dtype, n, n as u64 + 1);
                    let Some(expected) =
                        x.iter().map(|&x| unary_reference(op, x)).collect::<Option<Vec<_>>>()
                    else {
                        continue;
                    };
                    let result = op.result(dtype);
                    let mut src = Buffer::new(&to_bytes(&x, dtype));
                    let mut dst = Buffer::new(&vec![0xcc; n * result.size()]);
                    // SAFETY: buffers of n elements.
                    unsafe { kernel(src.pointer(), dst.pointer(), n) };
                    let check = |bytes: Vec<u8>| {
                        for (i, got) in from_bytes(&bytes, result).into_iter().enumerate() {
                            let expected = expected[i].cast(result);
                            assert!(
                                same(got, expected),
                                "{} {op:?} {dtype} {} -> {got}, not {expected}",
                                set.name(),
                                x[i]
                            );
                        }
                    };
                    check(dst.bytes());
                    if result == dtype {
                        // SAFETY: a buffer of n elements, in place.
                        unsafe { kernel(src.pointer(), src.pointer(), n) };
                        check(src.bytes());
                    }
                }
            }
        }
    }
}

#[test]
fn binary_operations_mean_what_they_say() {
    for set in InstructionSet::available() {
        for dtype in DType::COMPUTED {
            for op in Binary::ALL {
                let kernels = binary_for(set, op, dtype);
                assert_eq!(
                    kernels.is_some(),
                    op.accepts(dtype) && dtype == dtype.compute(),
                    "{op:?} {dtype}"
                );
                let Some(kernels) = kernels else { continue };
                let result = op.result(dtype);
                let epsilon = match op {
                    Binary::Pow | Binary::Atan2 if dtype == DType::F32 => 1.2e-7,
                    Binary::Pow | Binary::Atan2 => 1e-15,
                    _ => 0.0,
                };
                for n in lengths() {
                    let (a, b) = (values(dtype, n, n as u64 + 1), values(dtype, n, n as u64 + 77));
                    let (one_a, one_b) = (values(dtype, 1, n as u64 + 5), values(dtype, 1, n as u64 + 9));
                    let check = |bytes: Vec<u8>, a: &[Scalar], b: &[Scalar]| {
                        for (i, got) in from_bytes(&bytes, result).into_iter().enumerate() {
                            let (x, y) = (a[i % a.len()], b[i % b.len()]);
                            let Some(expected) = binary_reference(op, x, y, dtype) else { continue };
                            assert!(
                                close(got, expected, epsilon),
                                "{} {op:?} {dtype} {x}, {y} -> {got}, not {expected}",
                                set.name()
                            );
                        }
                    };
                    let mut dst = Buffer::new(&vec![0xcc; n * result.size()]);
                    let (mut p, mut q) =
                        (Buffer::new(&to_bytes(&a, dtype)), Buffer::new(&to_bytes(&b, dtype)));
                    let mut one_p = Buffer::new(&to_bytes(&one_a, dtype));
                    let mut one_q = Buffer::new(&to_bytes(&one_b, dtype));
                    // SAFETY: buffers of n elements, or of one for scalar operands; then in place.
                    unsafe {
                        (kernels.vector_vector)(p.pointer(), q.pointer(), dst.pointer(), n);
                        check(dst.bytes(), &a, &b);
                        (kernels.vector_scalar)(p.pointer(), one_q.pointer(), dst.pointer(), n);
                        check(dst.bytes(), &a, &one_b);
                        (kernels.scalar_vector)(one_p.pointer(), q.pointer(), dst.pointer(), n);
                        check(dst.bytes(), &one_a, &b);
                        if result == dtype {
                            let d = p.pointer();
                            (kernels.vector_vector)(d, q.pointer(), d, n);
                            check(p.bytes(), &a, &b);
                            let (mut p, mut q) =
                                (Buffer::new(&to_bytes(&a, dtype)), Buffer::new(&to_bytes(&b, dtype)));
                            let d = q.pointer();
                            (kernels.vector_vector)(p.pointer(), d, d, n);
                            check(q.bytes(), &a, &b);
                            let d = p.pointer();
                            (kernels.vector_vector)(d, d, d, n);
                            check(p.bytes(), &a, &a);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn selection_moves_bits() {
    for set in InstructionSet::available() {
        for dtype in DType::COMPUTED {
            for n in lengths() {
                let (a, b) = (values(dtype, n.max(1), 3), values(dtype, n.max(1), 4));
                let condition = values(DType::Bool, n, n as u64);
                let mut c = Buffer::new(&to_bytes(&condition, DType::Bool));
                for (a_scalar, b_scalar) in [(false, false), (false, true), (true, false), (true, true)] {
                    let kernel = select_for(set, dtype, a_scalar, b_scalar);
                    let mut dst = Buffer::new(&vec![0xcc; n * dtype.size()]);
                    let (mut p, mut q) =
                        (Buffer::new(&to_bytes(&a, dtype)), Buffer::new(&to_bytes(&b, dtype)));
                    // SAFETY: buffers of n elements or more.
                    unsafe { kernel(c.pointer(), p.pointer(), q.pointer(), dst.pointer(), n) };
                    for (i, got) in from_bytes(&dst.bytes(), dtype).into_iter().enumerate() {
                        let (x, y) = (a[if a_scalar { 0 } else { i }], b[if b_scalar { 0 } else { i }]);
                        let expected = if condition[i].as_bool() { x } else { y };
                        assert!(same(got, expected), "{} {dtype}", set.name());
                    }
                }
            }
        }
    }
}

#[test]
fn chains_round_every_step() {
    for set in InstructionSet::available() {
        for n in lengths() {
            let x: Vec<f32> = (0..n).map(|i| i as f32 * 0.37 - 9.0).collect();
            let y: Vec<f32> = (0..n).map(|i| 1.1 - i as f32 * 0.21).collect();
            let z: Vec<f32> = (0..n).map(|i| i as f32 * i as f32 * 0.013 - 3.0).collect();
            for (b_scalar, c_scalar) in [(false, false), (false, true), (true, false), (true, true)] {
                let kernel = mul_add_for(set, DType::F32, b_scalar, c_scalar).unwrap();
                let mut out = vec![0f32; n];
                if n > 0 {
                    // SAFETY: slices of n elements.
                    unsafe {
                        kernel(
                            x.as_ptr().cast(),
                            y.as_ptr().cast(),
                            z.as_ptr().cast(),
                            out.as_mut_ptr().cast(),
                            n,
                        )
                    };
                }
                for i in 0..n {
                    let product = x[i] * y[if b_scalar { 0 } else { i }];
                    assert_eq!(out[i], product + z[if c_scalar { 0 } else { i }]);
                }
            }
            let kernels = sub_exp_for(set, DType::F32).unwrap();
            let exp = unary_for(set, Unary::Exp, DType::F32).unwrap();
            let difference: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x - y).collect();
            let (mut out, mut expected) = (vec![0f32; n], vec![0f32; n]);
            // SAFETY: slices of n elements.
            unsafe {
                (kernels.vector_vector)(x.as_ptr().cast(), y.as_ptr().cast(), out.as_mut_ptr().cast(), n);
                exp(difference.as_ptr().cast(), expected.as_mut_ptr().cast(), n);
            }
            assert_eq!(out, expected);
        }
    }
}

/// A block with an argument beyond the fast function's range is computed by the slow one, with bit-identical results.
#[test]
fn exponentials_do_not_depend_on_their_neighbours() {
    let x: Vec<f32> =
        (0..30_000).map(|i| i as f32 * -0.0061 + 71.0).chain([f32::NEG_INFINITY, -0.0]).collect();
    for set in InstructionSet::available() {
        let exp = unary_for(set, Unary::Exp, DType::F32).unwrap();
        let alone = |x: &[f32]| {
            let mut y = vec![0f32; x.len()];
            // SAFETY: slices of one length.
            unsafe { exp(x.as_ptr().cast(), y.as_mut_ptr().cast(), x.len()) };
            y
        };
        let quick = alone(&x);
        for (block, quick) in x.chunks(63).zip(quick.chunks(63)) {
            for guest in [71.5, f32::INFINITY, f32::NAN] {
                let together: Vec<f32> = block.iter().copied().chain([guest]).collect();
                let y = alone(&together);
                assert_eq!(&y[..block.len()], quick, "{} {guest}", set.name());
                assert!(y[block.len()] > 1e30 || (y[block.len()].is_nan() && guest.is_nan()));
            }
        }
        assert!(quick.contains(&0.0) && quick.iter().any(|y| y.is_subnormal()));
    }
}

#[test]
fn elements_are_moved_and_made() {
    for dtype in DType::COMPUTED {
        for n in lengths() {
            let x = values(dtype, 4 * n + 1, 11);
            let mut src = Buffer::new(&to_bytes(&x, dtype));
            for stride in [-3isize, -1, 0, 1, 2, 4] {
                let origin = if stride < 0 { n.saturating_sub(1) * stride.unsigned_abs() } else { 0 };
                let mut dst = Buffer::new(&vec![0xcc; n * dtype.size()]);
                let offsets: Vec<isize> = (0..n as isize).map(|i| i * stride).collect();
                let expected: Vec<Scalar> =
                    (0..n).map(|i| x[(origin as isize + i as isize * stride) as usize]).collect();
                let check = |bytes: Vec<u8>| {
                    let got = from_bytes(&bytes, dtype);
                    assert!(got.iter().zip(&expected).all(|(a, b)| same(*a, *b)), "{dtype} {stride}");
                };
                // SAFETY: all n strided places lie in src; buffers of n elements.
                unsafe {
                    let start = src.pointer().add(origin * dtype.size());
                    gather_strided(dtype)(start, stride, dst.pointer(), n);
                    check(dst.bytes());
                    gather_indexed(dtype)(start, offsets.as_ptr(), dst.pointer(), n);
                    check(dst.bytes());
                    if stride != 0 {
                        let mut spread = Buffer::new(&vec![0; (4 * n + 1) * dtype.size()]);
                        let spread_start = spread.pointer().add(origin * dtype.size());
                        scatter_strided(dtype)(dst.pointer(), stride, spread_start, n);
                        let mut again = Buffer::new(&vec![0xcc; n * dtype.size()]);
                        gather_strided(dtype)(spread_start, stride, again.pointer(), n);
                        check(again.bytes());
                    }
                }
            }
            let mut dst = Buffer::new(&vec![0xcc; n * dtype.size()]);
            // SAFETY: one element and n elements.
            unsafe { fill(dtype)(src.pointer(), dst.pointer(), n) };
            assert!(from_bytes(&dst.bytes(), dtype).into_iter().all(|y| same(y, x[0])));
            if let Some(iota) = iota(dtype) {
                // SAFETY: n elements.
                unsafe { iota(-5, 3, dst.pointer(), n) };
                for (i, got) in from_bytes(&dst.bytes(), dtype).into_iter().enumerate() {
                    assert_eq!(got, Scalar::Int(3 * i as i64 - 5).cast(dtype));
                }
            }
        }
    }
}
