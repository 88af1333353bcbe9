//! The precision of matrix products, a process-wide setting, on devices with and without hardware that rounds factors.

use phynexus::{
    DType, Device, Error, MatmulPrecision, Result, Tensor, float32_matmul_precision,
    kernel::{
        check::Limits,
        loops::{MatrixShape, MatrixUnit, Panel},
        lower::Target,
    },
    no_grad,
    oracle::{lowered_device, reference_device},
    schedule::capture::Captured,
    set_float32_matmul_precision,
    tensor::Generator,
};

/// A device that multiplies fragments in TF32.
fn rounding() -> Device {
    device("rounding", MatrixShape { rows: 16, columns: 16, depth: 8 })
}

/// A device that multiplies panels in TF32.
fn rounding_panels() -> Device {
    device("rounding panels", MatrixShape { rows: Panel::ROWS, columns: 256, depth: 8 })
}

/// A device that multiplies panels of `bfloat16`.
fn splitting() -> Device {
    device_of("splitting", DType::BF16, MatrixShape { rows: Panel::ROWS, columns: 256, depth: 16 })
}

fn device(name: &str, shape: MatrixShape) -> Device {
    device_of(name, DType::F32, shape)
}

fn device_of(name: &str, factor: DType, shape: MatrixShape) -> Device {
    let matrices = vec![MatrixUnit::new(shape, factor, DType::F32)];
    let limits = Limits {
        device: name.to_owned(),
        bindings: 31,
        shared_bytes: 200 << 10,
        block: [1024, 1024, 64],
        block_size: 1024,
        grid: [65535; 3],
        subgroup: Some(32),
        dtypes: DType::ALL.to_vec(),
        matrices,
        quads: true,
        async_copies: true,
        meeting_groups: 0,
    };
    lowered_device(name, Target { limits, vector_bytes: 16, processors: 4, sums: 64 })
}

/// Calls `compute` with a precision and then restores the default.
fn with<T>(precision: MatmulPrecision, compute: impl FnOnce() -> T) -> T {
    set_float32_matmul_precision(precision);
    assert_eq!(float32_matmul_precision(), precision);
    let result = compute();
    set_float32_matmul_precision(MatmulPrecision::Highest);
    result
}

fn plan(of: &Tensor) -> Result<String> {
    Ok(of.explain()?.map(|plan| plan.to_string()).unwrap_or_default())
}

/// One test, because the setting is process-wide.
#[test]
fn products_have_the_precision_that_was_set() -> Result<()> {
    assert_eq!(float32_matmul_precision(), MatmulPrecision::Highest);
    for precision in MatmulPrecision::ALL {
        assert_eq!(MatmulPrecision::from_name(precision.name())?, precision);
    }
    assert!(matches!(MatmulPrecision::from_name("medium"), Err(Error::Argument { .. })));
    factors_are_rounded_where_that_is_allowed()?;
    gradients_are_as_their_product()?;
    split_products_have_split_gradients()?;
    transposes_and_single_terms_are_rewritten()?;
    plans_note_what_matrix_units_miss()?;
    captured_functions_are_recorded_anew()
}

/// A product with the identity matrix is exactly the other factor, or exactly that factor rounded.
fn factors_are_rounded_where_that_is_allowed() -> Result<()> {
    for (device, has_units) in [(reference_device(), false), (rounding(), true), (rounding_panels(), true)] {
        let x = Generator::new(1).randn(&[64, 64], DType::F32, device)?;
        let unit = Tensor::eye(64, 64, DType::F32, device)?;
        let numbers = x.to_vec::<f32>()?;
        let rounded = |x: &f32| f32::from_bits((x.to_bits() + 0x1000) & !0x1fff);
        for precision in MatmulPrecision::ALL {
            let rounds = has_units && precision == MatmulPrecision::High;
            let products = with(precision, || -> Result<_> { Ok([x.matmul(&unit)?, unit.matmul(&x)?]) })?;
            for product in products {
                assert_eq!(plan(&product)?.contains("dot_tf32"), rounds);
                let expected = if rounds { numbers.iter().map(rounded).collect() } else { numbers.clone() };
                assert_eq!(product.to_vec::<f32>()?, expected, "{device}, {}", precision.name());
            }
        }
    }
    // Other dtypes are not affected.
    let x = Tensor::ones(&[16, 16], DType::F64, rounding())?;
    let product = with(MatmulPrecision::High, || x.matmul(&x))?;
    assert!(!plan(&product)?.contains("tf32"));
    Ok(())
}

/// A product has the precision that is set when it is recorded. Its gradients have the same precision.
fn gradients_are_as_their_product() -> Result<()> {
    let device = rounding();
    let leaf = |shape: &[usize]| Tensor::ones(shape, DType::F32, device)?.with_grad();
    for precision in MatmulPrecision::ALL {
        let rounds = precision == MatmulPrecision::High;
        let (a, b) = (leaf(&[16, 16])?, leaf(&[16, 16])?);
        let loss = with(precision, || a.matmul(&b)?.sum(&[], false))?;
        for gradient in loss.gradients(&[&a, &b])? {
            let text = plan(&gradient)?;
            assert_eq!(text.contains("dot_tf32"), rounds, "{text}");
        }
        let (x, w) = (leaf(&[1, 8, 9, 9])?, leaf(&[8, 8, 3, 3])?);
        let y = with(precision, || x.conv2d(&w, None, [1, 1], [0, 0], [1, 1], 1))?;
        let gradients = y.sum(&[], false)?.gradients(&[&x, &w])?;
        for (found, name) in std::iter::once(&y).chain(&gradients).zip([
            "conv_tf32",
            "input_gradient_tf32",
            "filter_gradient_tf32",
        ]) {
            assert_eq!(plan(found)?.contains(name), rounds, "{name}");
        }
    }
    Ok(())
}

/// A transposed product becomes the product of the transposes. A product with one term becomes a multiplication.
fn transposes_and_single_terms_are_rewritten() -> Result<()> {
    let device = rounding();
    let of = |shape: &[usize]| Generator::new(2).randn(shape, DType::F32, device);
    let (a, b) = (of(&[24, 16])?, of(&[16, 40])?);
    let [turned, straight] = with(MatmulPrecision::High, || -> Result<_> {
        let _guard = no_grad();
        Ok([a.matmul(&b)?.permute(&[1, 0])?, a.matmul(&b)?])
    })?;
    let text = plan(&turned)?;
    assert!(text.contains("dot_tf32") && !text.contains("contiguous"), "{text}");
    let (turned, straight) = (turned.to_vec::<f32>()?, straight.to_vec::<f32>()?);
    for (at, x) in turned.iter().enumerate() {
        let other = straight[at % 24 * 40 + at / 24];
        assert!((x - other).abs() <= 1e-5, "{x} and {other}");
    }
    let outer = with(MatmulPrecision::High, || of(&[24, 1])?.matmul(&of(&[1, 40])?))?;
    let text = plan(&outer)?;
    assert!(!text.contains("dot"), "{text}");
    Ok(())
}

/// So do transposes; products with few terms are computed as they are.
fn split_products_have_split_gradients() -> Result<()> {
    let device = splitting();
    let of = |shape: &[usize]| Generator::new(4).randn(shape, DType::F32, device)?.with_grad();
    for (terms, splits) in [(128, true), (64, false)] {
        let (a, b) = (of(&[128, terms])?, of(&[terms, 128])?);
        let product = with(MatmulPrecision::Split, || a.matmul(&b))?;
        for result in [product.clone(), product.t()?.contiguous()?] {
            let text = plan(&result)?;
            assert_eq!(text.contains("dot_split"), splits, "{text}");
        }
        // Their terms are the columns of the product.
        for gradient in product.square()?.sum(&[], false)?.gradients(&[&a, &b])? {
            let text = plan(&gradient)?;
            assert!(text.contains("dot_split"), "{text}");
        }
    }
    Ok(())
}

/// Notes stand below the step of a product that does not suit the device's matrix units.
fn plans_note_what_matrix_units_miss() -> Result<()> {
    use MatmulPrecision::{High, Highest};
    let halves = device_of("halves", DType::BF16, MatrixShape { rows: 16, columns: 16, depth: 16 });
    let notes = |device: Device, dtype: DType, precision, extents: [usize; 3]| -> Result<Vec<String>> {
        let [rows, terms, columns] = extents;
        let zeros = |shape: [usize; 2]| {
            let bytes = vec![0u8; shape[0] * shape[1] * dtype.size()];
            Tensor::from_bytes(&bytes, dtype, &shape, device)
        };
        let (a, b) = (zeros([rows, terms])?, zeros([terms, columns])?);
        let text = plan(&with(precision, || a.matmul(&b))?)?;
        assert!(text.contains("dot"), "{text}");
        Ok(text.lines().filter_map(|line| line.strip_prefix("      note: ")).map(str::to_owned).collect())
    };
    assert_eq!(
        notes(halves, DType::BF16, Highest, [512, 1001, 64])?,
        [
            "1001 terms are not a multiple of 8: matrix units are used better if they are",
            "64 columns are fewer than 256, too few to keep matrix units busy",
        ]
    );
    let exact = "float32 is multiplied exactly, without matrix units; set_float32_matmul_precision(\"high\") or \
                 autocast would use them";
    assert_eq!(notes(rounding(), DType::F32, Highest, [256, 256, 256])?, [exact]);
    assert_eq!(
        notes(rounding(), DType::F32, High, [256, 64, 256])?,
        ["64 terms are fewer than 256, too few to keep matrix units busy"]
    );
    // What suits them has no note, nor has what they do not multiply.
    assert!(notes(halves, DType::BF16, Highest, [256, 256, 256])?.is_empty());
    assert!(notes(rounding(), DType::F32, High, [256, 256, 256])?.is_empty());
    assert!(notes(halves, DType::F32, Highest, [256, 256, 256])?.is_empty());
    assert!(notes(rounding(), DType::BF16, Highest, [512, 1001, 64])?.is_empty());
    assert!(notes(reference_device(), DType::BF16, Highest, [512, 1001, 64])?.is_empty());
    Ok(())
}

fn captured_functions_are_recorded_anew() -> Result<()> {
    let device = rounding();
    let x = Generator::new(3).randn(&[16, 16], DType::F32, device)?;
    let unit = Tensor::eye(16, 16, DType::F32, device)?;
    let product = Captured::new(|_: &[Tensor], kept: &[Tensor]| -> Result<Vec<Tensor>> {
        Ok(vec![kept[0].matmul(&kept[1])?])
    });
    let run = |precision| -> Result<Vec<f32>> {
        let results = with(precision, || product.call(&mut Vec::new(), &[x.clone(), unit.clone()]))?;
        results[0].to_vec()
    };
    let [first, rounded, again] =
        [run(MatmulPrecision::Highest)?, run(MatmulPrecision::High)?, run(MatmulPrecision::Highest)?];
    assert_eq!(first, x.to_vec::<f32>()?);
    assert_ne!(rounded, first);
    assert_eq!(again, first);
    Ok(())
}
