//! Graphs and errors of the core methods. Values are tested on devices that compute.

use super::null::null_device;
use crate::{
    DType, Error, Result, Scalar, Tensor,
    op::{Constant, Op},
};

fn tensor(shape: &[usize], dtype: DType) -> Tensor {
    let bytes = vec![0; shape.iter().product::<usize>() * dtype.size()];
    Tensor::from_bytes(&bytes, dtype, shape, null_device()).unwrap()
}

fn f32s(shape: &[usize]) -> Tensor {
    tensor(shape, DType::F32)
}

fn message(result: Result<Tensor>) -> String {
    result.unwrap_err().to_string()
}

fn nodes(tensor: &Tensor) -> usize {
    1 + tensor.node().sources().iter().map(|n| nodes(&Tensor::from_node(n.clone()))).sum::<usize>()
}

#[test]
fn operands_are_broadcast_and_promoted() {
    let sum = f32s(&[3, 1]).add(&tensor(&[4], DType::F64)).unwrap();
    assert_eq!((sum.shape(), sum.dtype()), (&[3, 4][..], DType::F64));
    let less = tensor(&[2], DType::U8).lt(&tensor(&[], DType::I8)).unwrap();
    assert_eq!((less.shape(), less.dtype()), (&[2][..], DType::Bool));
    assert_eq!(tensor(&[2], DType::I64).div(&tensor(&[2], DType::I64)).unwrap().dtype(), DType::F32);
    assert_eq!(tensor(&[2], DType::Bool).add(&tensor(&[2], DType::Bool)).unwrap().dtype(), DType::Bool);
    assert_eq!(f32s(&[0, 3]).mul(&f32s(&[1, 3])).unwrap().shape(), &[0, 3]);
}

#[test]
fn numbers_do_not_change_the_dtype_unless_of_a_higher_kind() {
    assert_eq!(tensor(&[2], DType::F16).mul_scalar(2.5).unwrap().dtype(), DType::F16);
    assert_eq!(tensor(&[2], DType::I8).mul_scalar(2).unwrap().dtype(), DType::I8);
    assert_eq!(tensor(&[2], DType::I8).mul_scalar(2.5).unwrap().dtype(), DType::F32);
    assert_eq!(tensor(&[2], DType::Bool).add_scalar(2).unwrap().dtype(), DType::I64);
    assert_eq!((1.0 - &tensor(&[2], DType::I32)).unwrap().dtype(), DType::F32);
    assert_eq!(
        message(tensor(&[2], DType::U8).add_scalar(-1)),
        "add: -1 does not fit into uint8: convert the tensor to a wider dtype first"
    );
    let always = tensor(&[2], DType::U8).gt_scalar(-1).unwrap();
    assert_eq!(*always.node().op(), Op::Constant(Constant(Scalar::Bool(true))));
    let never = tensor(&[2], DType::U8).ge_scalar(256).unwrap();
    assert_eq!(*never.node().op(), Op::Constant(Constant(Scalar::Bool(false))));
}

#[test]
fn operators_are_the_methods() {
    let (a, b) = (f32s(&[2, 3]), f32s(&[3]));
    let sum = ((&a + &b).unwrap() * 2.0).unwrap();
    assert_eq!(sum.shape(), &[2, 3]);
    assert_eq!((-sum).unwrap().dtype(), DType::F32);
    assert_eq!((!(a.lt(&b)).unwrap()).unwrap().dtype(), DType::Bool);
    assert!((&a & &b).is_err());
}

#[test]
fn refusals_name_the_operation_and_a_remedy() {
    assert_eq!(
        message(f32s(&[3]).add(&f32s(&[4]))),
        "add: shapes (3,) and (4,) do not fit: sizes must be equal or 1, aligned at the last dimension"
    );
    assert_eq!(
        message(tensor(&[2], DType::Bool).sub(&tensor(&[2], DType::Bool))),
        "sub: dtype bool is not supported here: bool is not numeric: convert with .to_dtype(), or use \
         logical_and, logical_or or logical_xor"
    );
    assert_eq!(
        message(f32s(&[2]).where_(&f32s(&[2]), &f32s(&[2]))),
        "where: dtype float32 is not supported here: the condition must be bool: compare with .ne_scalar(0)"
    );
    assert_eq!(
        message(f32s(&[2, 3]).matmul(&f32s(&[2, 3]))),
        "matmul: shapes (2, 3) and (2, 3) do not fit: the inner sizes 3 and 2 must be equal"
    );
    assert_eq!(message(f32s(&[2, 3]).sum(&[0, -2], false)), "sum: axis -2 is repeated");
    assert_eq!(
        message(f32s(&[2, 0]).max(&[1], false)),
        "max: shapes (2, 0) do not fit: an empty axis has no maximum or minimum"
    );
    assert_eq!(
        message(tensor(&[2], DType::I32).pow_scalar(-1)),
        "pow: negative powers of integers are fractions: convert to a float first"
    );
    assert!(matches!(f32s(&[2]).sum(&[1], false), Err(Error::Axis { axis: 1, .. })));
    assert!(f32s(&[2]).bitwise_not().is_err() && tensor(&[2], DType::Bool).neg().is_err());
}

#[test]
fn nothing_is_recorded_where_nothing_changes() {
    let x = f32s(&[2, 3]);
    let same = [
        x.reshape(&[2, 3]),
        x.permute(&[0, 1]),
        x.expand(&[2, 3]),
        x.to_dtype(DType::F32),
        x.pad(&[(0, 0), (0, 0)], 0),
        x.narrow(1, 0, 3),
        x.squeeze(0),
        x.contiguous(),
        x.pow_scalar(1),
        Tensor::cat(&[&x], 0),
    ];
    for (i, tensor) in same.into_iter().enumerate() {
        assert!(std::sync::Arc::ptr_eq(tensor.unwrap().node(), x.node()), "case {i}");
    }
    assert_eq!(nodes(&x.add_scalar(1).unwrap()), 3);
    assert_eq!(nodes(&x.add(&Tensor::scalar(1f64, x.device()).unwrap()).unwrap()), 4);
}

#[test]
fn movement() {
    let x = f32s(&[2, 3, 4]);
    assert_eq!(x.reshape_infer(&[-1, 6]).unwrap().shape(), &[4, 6]);
    assert_eq!(x.transpose(0, -1).unwrap().shape(), &[4, 3, 2]);
    assert_eq!(x.move_axis(0, -1).unwrap().shape(), &[3, 4, 2]);
    assert_eq!(x.flatten(1, -1).unwrap().shape(), &[2, 12]);
    assert_eq!(x.unflatten(2, &[2, 2]).unwrap().shape(), &[2, 3, 2, 2]);
    assert_eq!(x.unsqueeze(-1).unwrap().shape(), &[2, 3, 4, 1]);
    assert_eq!(x.pad(&[(1, 0), (0, 0), (2, 2)], 0).unwrap().shape(), &[3, 3, 8]);
    assert_eq!(x.slice(2, Some(-1), None, -2).unwrap().shape(), &[2, 3, 2]);
    assert_eq!(x.expand(&[5, 2, 3, 4]).unwrap().shape(), &[5, 2, 3, 4]);
    assert_eq!(x.flip(&[]).unwrap().shape(), &[2, 3, 4]);
    let shapes = |parts: Vec<Tensor>| parts.iter().map(|t| t.shape()[2]).collect::<Vec<_>>();
    assert_eq!(shapes(x.split(3, 2).unwrap()), [3, 1]);
    assert_eq!(shapes(x.chunk(3, 2).unwrap()), [2, 2]);
    assert_eq!(Tensor::stack(&[&x, &x], -1).unwrap().shape(), &[2, 3, 4, 2]);
    assert!(x.reshape_infer(&[-1, 5]).is_err() && x.reshape_infer(&[-1, 0]).is_err());
    assert!(x.narrow(0, 1, 2).is_err() && x.expand(&[2, 3, 8]).is_err() && x.permute(&[0, 0, 1]).is_err());
    assert!(Tensor::cat(&[&x, &f32s(&[2, 3])], 0).is_err() && Tensor::cat(&[], 0).is_err());
}

#[test]
fn python_slices() {
    let len = |start, stop, step| super::movement::python_range("slice", start, stop, step, 5).unwrap();
    assert_eq!(len(None, None, 1), (0, 5));
    assert_eq!(len(None, None, -1), (4, 5));
    assert_eq!(len(Some(-2), None, 1), (3, 2));
    assert_eq!(len(Some(1), Some(100), 3), (1, 2));
    assert_eq!(len(Some(3), Some(1), 1), (0, 0));
    assert_eq!(len(Some(3), Some(-100), -2), (3, 2));
    assert_eq!(len(Some(i64::MIN), Some(i64::MAX), i64::MAX), (0, 1));
    assert!(super::movement::python_range("slice", None, None, 0, 5).is_err());
}

#[test]
fn products() {
    let shape = |a: &[usize], b: &[usize]| f32s(a).matmul(&f32s(b)).map(|t| t.shape().to_vec());
    assert_eq!(shape(&[3], &[3]).unwrap(), &[0; 0]);
    assert_eq!(shape(&[2, 3], &[3]).unwrap(), &[2]);
    assert_eq!(shape(&[3], &[3, 4]).unwrap(), &[4]);
    assert_eq!(shape(&[5, 2, 3], &[3, 4]).unwrap(), &[5, 2, 4]);
    assert_eq!(shape(&[5, 1, 2, 3], &[6, 3, 4]).unwrap(), &[5, 6, 2, 4]);
    assert_eq!(shape(&[3], &[6, 3, 4]).unwrap(), &[6, 4]);
    assert!(shape(&[], &[3]).is_err() && shape(&[2, 1, 3], &[3, 3, 1]).is_err());
    let i8s = tensor(&[2, 2], DType::I8);
    assert_eq!(i8s.matmul_as(&i8s, DType::I32).unwrap().dtype(), DType::I32);
    let mixed = i8s.matmul_as(&tensor(&[2, 2], DType::U8), DType::I32).unwrap();
    assert_eq!(mixed.dtype(), DType::I32);
    assert_eq!(i8s.matmul(&i8s).unwrap().dtype(), DType::I8);
}

#[test]
fn reductions() {
    let x = tensor(&[2, 3, 4], DType::I16);
    let sum = x.sum(&[-1, 0], true).unwrap();
    assert_eq!((sum.shape(), sum.dtype()), (&[1, 3, 1][..], DType::I64));
    assert_eq!(x.sum(&[], false).unwrap().shape(), &[0; 0]);
    assert_eq!(x.mean(&[1], false).unwrap().dtype(), DType::F32);
    assert_eq!(x.max(&[1], false).unwrap().dtype(), DType::I16);
    assert_eq!(x.any(&[1], false).unwrap().dtype(), DType::Bool);
    assert_eq!(x.argmax(None, true).unwrap().shape(), &[1, 1, 1]);
    assert_eq!(x.argmin(Some(1), false).unwrap().shape(), &[2, 4]);
    assert_eq!(f32s(&[]).sum(&[], true).unwrap().shape(), &[0; 0]);
    assert_eq!(f32s(&[0, 3]).max(&[1], false).unwrap().shape(), &[0]);
    assert_eq!(f32s(&[2, 3]).logsumexp(&[1], false).unwrap().shape(), &[2]);
}

#[test]
fn creation() {
    let device = null_device();
    let count =
        |a: Scalar, b: Scalar, c: Scalar, dtype| Tensor::arange(a, b, c, dtype, device).map(|t| t.len());
    assert_eq!(count(0.into(), 10.into(), 3.into(), DType::I32).unwrap(), 4);
    assert_eq!(count(5.into(), 0.into(), (-2).into(), DType::U8).unwrap(), 3);
    assert_eq!(count(0.into(), (-1).into(), 1.into(), DType::I32).unwrap(), 0);
    assert_eq!(count(0.0.into(), 1.0.into(), 0.25.into(), DType::F32).unwrap(), 4);
    assert!(count(0.5.into(), 1.into(), 1.into(), DType::I32).is_err());
    assert!(count(0.into(), 1.into(), 0.into(), DType::I32).is_err());
    assert_eq!(Tensor::linspace(0.0, 1.0, 5, DType::F16, device).unwrap().shape(), &[5]);
    assert_eq!(Tensor::eye(2, 3, DType::I8, device).unwrap().dtype(), DType::I8);
    assert!(Tensor::zeros(&[usize::MAX, 2], DType::U8, device).is_err());
}
