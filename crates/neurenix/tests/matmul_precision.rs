//! The accuracy of matrix products at each precision, on every device of the machine. A separate program, because the
//! precision is a process-wide setting.

use neurenix::{
    Result,
    phynexus::{
        DType, Device, MatmulPrecision, Tensor, device, set_float32_matmul_precision, tensor::Generator,
    },
};

/// The largest error relative to the sum of the magnitudes of the summands.
fn greatest_error(a: &Tensor, b: &Tensor, product: &Tensor) -> Result<f64> {
    let cpu = Device::find("cpu")?;
    let wide = |t: &Tensor| t.to_device(cpu)?.to_dtype(DType::F64);
    let (a, b, product) = (wide(a)?, wide(b)?, wide(product)?);
    let error = product.sub(&a.matmul(&b)?)?.abs()?.div(&a.abs()?.matmul(&b.abs()?)?)?;
    Ok(error.to_vec::<f64>()?.into_iter().fold(0.0, f64::max))
}

#[test]
fn factors_are_rounded_only_where_that_is_allowed() -> Result<()> {
    /// Two factors, each rounded to 11 bits.
    const BOUND: f64 = 2.0 / (1 << 11) as f64;
    neurenix::register_all();
    for device in device::devices() {
        let random = |seed, shape: &[usize]| Generator::new(seed).randn(shape, DType::F32, device);
        let (a, b) = (random(1, &[130, 72])?, random(2, &[72, 260])?);
        let unit = Tensor::eye(72, 72, DType::F32, device)?;
        let numbers = a.to_vec::<f32>()?;
        let rounded: Vec<f32> =
            numbers.iter().map(|x| f32::from_bits((x.to_bits() + 0x1000) & !0x1fff)).collect();

        let exact = a.matmul(&b)?;
        assert!(greatest_error(&a, &b, &exact)? < 1e-6, "{device}");
        assert_eq!(a.matmul(&unit)?.to_vec::<f32>()?, numbers, "{device}");

        set_float32_matmul_precision(MatmulPrecision::High);
        let (product, copy) = (a.matmul(&b)?, a.matmul(&unit)?);
        set_float32_matmul_precision(MatmulPrecision::Highest);
        let rounds = copy.explain()?.is_some_and(|plan| plan.to_string().contains("dot_tf32"));
        let error = greatest_error(&a, &b, &product)?;
        println!("{device}: rounds {rounds}, greatest error {error:e}");
        let range = if rounds { 1e-5..BOUND } else { 0.0..1e-6 };
        assert!(range.contains(&error), "{device}: {error}");
        assert_eq!(copy.to_vec::<f32>()?, if rounds { rounded } else { numbers }, "{device}");
        assert!(!rounds || device.name().starts_with("cuda"), "{device} has no such units");
    }
    Ok(())
}
