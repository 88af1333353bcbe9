//! A value must be the same regardless of what is fused with it, what else holds it, and when it is read.

use phynexus::{
    DType, Device, Tensor,
    oracle::generate::{inconsistency, random_case_of, shrink},
    schedule,
};

fn cpu() -> Device {
    phynexus_cpu::register()
}

fn random_programs(seeds: std::ops::Range<u64>, dtypes: &'static [DType]) {
    let device = cpu();
    let differs = |case: &_, seed| inconsistency(case, device, seed).unwrap_or_else(|e| Some(e.to_string()));
    for seed in seeds {
        let case = random_case_of(seed, 12, dtypes);
        if let Some(difference) = differs(&case, seed) {
            let small = shrink(&case, &mut |case| differs(case, seed).is_some());
            panic!("seed {seed}: {difference}\n{small}\n{:?}", differs(&small, seed));
        }
    }
}

#[test]
fn random_programs_have_one_value_however_they_are_evaluated() {
    random_programs(0..800, &DType::FLOATS);
}

#[test]
fn random_programs_of_16_bits_have_one_value_however_they_are_evaluated() {
    random_programs(0..800, &[DType::F16, DType::BF16]);
}

/// Regression: a product, a reshape whose sizes do not nest, and another step, with the reshaped value held. The kernel
/// read data that it had not stored, so the values came from freed memory.
#[test]
fn a_held_reshape_between_a_product_and_its_epilogue_is_computed() {
    let ones = |shape: &[usize]| Tensor::ones(shape, DType::F32, cpu()).unwrap();
    let product = ones(&[4, 3]).matmul(&ones(&[3, 6])).unwrap().mul_scalar(2).unwrap();
    let held = product.reshape(&[3, 8]).unwrap();
    let y = held.add_scalar(1).unwrap();
    assert!(!schedule::explain(&y).unwrap().unwrap().steps.is_empty());
    assert_eq!(y.to_vec::<f32>().unwrap(), [7.0; 24]);
    assert_eq!(held.to_vec::<f32>().unwrap(), [6.0; 24]);
}

#[test]
fn gradients_pass_through_reshapes_that_do_not_nest() {
    let x = Tensor::arange(0, 12, 1, DType::F32, cpu()).unwrap().reshape(&[4, 3]).unwrap();
    let w = Tensor::full(&[3, 6], 0.25, DType::F32, cpu()).unwrap().with_grad().unwrap();
    let bias = Tensor::full(&[6], 0.5, DType::F32, cpu()).unwrap().with_grad().unwrap();
    let held = x.matmul(&w).unwrap().add(&bias).unwrap().reshape(&[3, 8]).unwrap();
    let loss = held.sin().unwrap().sum(&[], false).unwrap();
    loss.backward().unwrap();
    let row = |row: usize| (0..3).map(|k| (3 * row + k) as f64 * 0.25).sum::<f64>() + 0.5;
    let expected: f64 = (0..4).map(|r| 6.0 * row(r).sin()).sum();
    assert!((f64::from(loss.item::<f32>().unwrap()) - expected).abs() < 1e-4);
    let derivative: f64 = (0..4).map(|r| row(r).cos()).sum();
    for found in bias.grad().unwrap().to_vec::<f32>().unwrap() {
        assert!((f64::from(found) - derivative).abs() < 1e-4, "{found} {derivative}");
    }
}

/// Rows side by side and rows in sequence, both short ones and ones that are divided into groups of segments.
#[test]
fn the_order_of_a_sum_does_not_depend_on_where_rows_lie() {
    for columns in [5, 64, 1000, 4097, 9000, 20_000, 300_000] {
        let x = Tensor::randn(&[columns, 16], DType::F32, cpu()).unwrap().evaluated().unwrap();
        let turned = x.t().unwrap().contiguous().unwrap().evaluated().unwrap();
        let bits = |t: Tensor| t.to_vec::<f32>().unwrap().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let down = bits(x.sum(&[0], false).unwrap());
        assert_eq!(down, bits(turned.sum(&[1], false).unwrap()), "{columns}");
        // With something else computed in the same kernel.
        let squares = x.mul(&x).unwrap().sum(&[0], false).unwrap();
        let beside = x.exp().unwrap().sum(&[0], false).unwrap();
        Tensor::evaluate_all(&[&squares, &beside]).unwrap();
        assert_eq!(bits(squares), bits(turned.mul(&turned).unwrap().sum(&[1], false).unwrap()), "{columns}");
    }
}

/// A constant that was computed for another reader is ordinary data: a gradient that reads it must keep it alive.
#[test]
fn a_constant_that_a_gradient_reads_is_not_overwritten() {
    let x = Tensor::from_slice(&[-0.08f64], &[1], cpu()).unwrap().with_grad().unwrap();
    let number = Tensor::full(&[1], 1.5, DType::F64, cpu()).unwrap();
    number.evaluate().unwrap();
    let rest = number.remainder(&x).unwrap();
    drop(number);
    rest.evaluate().unwrap();
    rest.sum(&[], false).unwrap().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f64>().unwrap(), [19.0]);
}

#[test]
fn sixteen_bit_values_are_rounded_once_and_for_all() {
    let a = Tensor::from_slice(&[1.0078125f32], &[1], cpu()).unwrap().to_dtype(DType::BF16).unwrap();
    let square = a.mul(&a).unwrap();
    let read = || square.to_dtype(DType::F32).unwrap().item::<f32>().unwrap();
    assert_eq!([read(), read()], [1.015625; 2]);
    // At least one element equals the maximum.
    let h = Tensor::randn(&[20000], DType::BF16, cpu()).unwrap().with_grad().unwrap();
    h.mul_scalar(1.7).unwrap().max(&[], false).unwrap().backward().unwrap();
    let gradient = h.grad().unwrap().to_dtype(DType::F32).unwrap().to_vec::<f32>().unwrap();
    assert!(gradient.iter().all(|g| g.is_finite()) && gradient.iter().any(|&g| g > 0.0));
}

#[test]
fn a_number_beside_a_16_bit_tensor_keeps_its_digits() {
    let x = Tensor::from_slice(&[60000f32], &[1], cpu()).unwrap().to_dtype(DType::F16).unwrap();
    let read = |t: Tensor| t.to_dtype(DType::F32).unwrap().item::<f32>().unwrap();
    assert_eq!(read(x.div_scalar(1e5).unwrap()), 0.60009766);
    let one = Tensor::ones(&[1], DType::BF16, cpu()).unwrap();
    let decayed = (0..100).try_fold(one, |v, _| v.mul_scalar(0.99)).unwrap();
    assert!(read(decayed) < 0.6);
}

#[test]
fn extremes_share_their_gradient_as_in_pytorch() {
    let gradient = |values: [f32; 4], f: &dyn Fn(&Tensor) -> phynexus::Result<Tensor>| {
        let x = Tensor::from_slice(&values, &[4], cpu()).unwrap().with_grad().unwrap();
        // Computed in the kernel that finds the extreme, and again for the gradient.
        f(&x.mul_scalar(1.7).unwrap().exp().unwrap()).unwrap().sum(&[], false).unwrap().backward().unwrap();
        x.grad().unwrap().to_vec::<f32>().unwrap()
    };
    let max = |x: &Tensor| x.max(&[], false);
    let ties = gradient([1.0, 3.0, 3.0, 2.0], &max);
    assert!(ties[0] == 0.0 && ties[3] == 0.0 && ties[1] > 0.0 && ties[1] == ties[2], "{ties:?}");
    let nan = gradient([1.0, f32::NAN, 3.0, 2.0], &max);
    assert!(nan[0] == 0.0 && nan[2] == 0.0 && nan[1].is_nan(), "{nan:?}");
    let rows = |x: &Tensor| x.reshape(&[2, 2])?.max(&[1], false);
    let beside = gradient([1.0, f32::NAN, 3.0, 2.0], &rows);
    assert!(beside[0].is_nan() && beside[1].is_nan() && beside[2] > 0.0 && beside[3] == 0.0, "{beside:?}");
    let running = |x: &Tensor| Ok(x.cummax(0)?.0);
    let latest = gradient([1.0, 3.0, 3.0, 2.0], &running);
    assert!(
        latest[0] > 0.0 && latest[1] > 0.0 && latest[2] == 2.0 * latest[1] && latest[3] == 0.0,
        "{latest:?}"
    );
}

/// The summation order of products must not depend on what is held: the transpose of a product is computed as a product
/// of transposes if nothing holds it, and a slice is copied while it is pending.
#[test]
fn products_have_one_value_however_their_factors_lie() {
    let numbers = |shape: &[usize], seed: i64| {
        let count = shape.iter().product::<usize>() as i64;
        let x = Tensor::arange(seed, seed + count, 1, DType::F32, cpu()).unwrap().sin().unwrap();
        x.reshape(shape).unwrap().evaluated().unwrap()
    };
    let same = |a: Tensor, b: Tensor| assert_eq!(a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
    for (m, n, k) in [(4, 4, 64), (3, 3, 333), (1, 1, 40), (2, 4, 100), (4, 2, 500)] {
        let (a, b) = (numbers(&[m, k], 1), numbers(&[k, n], 5));
        let held = a.matmul(&b).unwrap();
        let product = held.clone().evaluated().unwrap();
        drop(held);
        same(a.matmul(&b).unwrap().t().unwrap(), product.t().unwrap());
        // Every second column of a reshaped transpose, whose elements cannot be described by strides.
        let x = numbers(&[k, 2 * m], 9);
        let pending = |x: &Tensor| x.t().unwrap().reshape(&[m, 2 * k]).unwrap();
        let read = pending(&x).evaluated().unwrap();
        same(half_of(&pending(&x)).matmul(&b).unwrap(), half_of(&read).matmul(&b).unwrap());
        let y = numbers(&[k, 2 * n], 3);
        let doubled = y.add(&y).unwrap().evaluated().unwrap();
        same(a.matmul(&half_of(&y.add(&y).unwrap())).unwrap(), a.matmul(&half_of(&doubled)).unwrap());
    }
}

/// Every second column.
fn half_of(x: &Tensor) -> Tensor {
    x.slice(1, None, None, 2).unwrap()
}

#[test]
fn a_power_of_two_is_a_square_whether_it_is_known_or_read() {
    for dtype in [DType::F32, DType::F64] {
        let x = Tensor::arange(1, 5000, 1, dtype, cpu()).unwrap().sqrt().unwrap().evaluated().unwrap();
        let two = || Tensor::full(&[4999], 2.0, dtype, cpu()).unwrap();
        let read = two().evaluated().unwrap();
        let bytes = |t: Tensor| t.to_bytes().unwrap();
        assert_eq!(bytes(x.pow(&two()).unwrap()), bytes(x.pow(&read).unwrap()), "{dtype}");
    }
}
