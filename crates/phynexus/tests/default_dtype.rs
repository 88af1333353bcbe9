//! The default dtype. It is a setting of the process: this is a program of its own, with one test.

use phynexus::{
    DType, Error, Scalar, Tensor,
    oracle::reference_device,
    tensor::{default_dtype, set_default_dtype},
};

#[test]
fn integers_give_the_default_dtype_and_floats_keep_theirs() {
    let device = reference_device();
    let whole = Tensor::from_slice(&[1i64, 2], &[2], device).unwrap();
    let short = Tensor::from_slice(&[1.0f32, 2.0], &[2], device).unwrap();
    assert_eq!(default_dtype(), DType::F32);
    for dtype in [DType::F64, DType::F16, DType::BF16, DType::F32] {
        set_default_dtype(dtype).unwrap();
        assert_eq!(default_dtype(), dtype);
        let given = [
            whole.div(&whole),
            whole.mean(&[], false),
            whole.sin(),
            whole.sigmoid(),
            whole.erfc(),
            whole.add_scalar(0.5),
            whole.rdiv_scalar(1),
            whole.pow_scalar(0.5),
            whole.atan2(&whole),
        ];
        for result in given {
            assert_eq!(result.unwrap().dtype(), dtype);
        }
        assert_eq!(whole.mul_scalar(2).unwrap().dtype(), DType::I64);
        for result in [short.add_scalar(0.5), short.mul(&whole), short.erfc(), short.mean(&[], false)] {
            assert_eq!(result.unwrap().dtype(), DType::F32);
        }
        // Not computed in another dtype and converted.
        let exact = (1.0f64 / 3.0).to_bits();
        let third = whole.rdiv_scalar(1).unwrap().div_scalar(Scalar::Int(3)).unwrap();
        let third = third.to_dtype(DType::F64).unwrap().to_vec::<f64>().unwrap()[0];
        assert_eq!(third.to_bits() == exact, dtype == DType::F64, "{third} in {dtype}");
    }
    for dtype in [DType::I64, DType::Bool, DType::F8E4M3] {
        assert!(matches!(set_default_dtype(dtype), Err(Error::DType { .. })), "{dtype}");
    }
    assert_eq!(default_dtype(), DType::F32);
}
