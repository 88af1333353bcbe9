//! Bodies and gradients give what the composites promise, in every dtype.

use super::{Composite, QuantizeLinear, Sample, samples};
use crate::{
    DType, Tensor,
    gradient::tests::harness::device,
    graph::node::{Node, Sources, intern},
    op::{Op, TensorType},
};

fn leaf(dtype: DType, shape: &[usize]) -> Tensor {
    let signature = intern(Op::Buffer, dtype, shape.into());
    Tensor::from_node(Node::pending(signature, device(), Sources::new(), dtype.is_float()))
}

fn operands(sample: &Sample, tested: DType) -> Vec<Tensor> {
    sample.operands.iter().map(|o| leaf(o.dtype.for_tested(tested), &o.shape)).collect()
}

fn composite(sample: &Sample) -> &Composite {
    match &sample.op {
        Op::Composite(composite) => composite,
        op => panic!("{op:?} is not a composite"),
    }
}

fn apply(sample: &Sample, operands: &[Tensor]) -> crate::Result<Tensor> {
    Composite::apply(composite(sample).clone(), &operands.iter().collect::<Vec<_>>())
}

#[test]
fn bodies_have_the_promised_shape_and_dtype() {
    for sample in samples() {
        for dtype in sample.tested_dtypes() {
            let operands = operands(&sample, dtype);
            let promised = apply(&sample, &operands).unwrap();
            let types: Vec<TensorType> = operands.iter().map(Tensor::tensor_type).collect();
            let body = composite(&sample).draft(&types).unwrap();
            let body = body.node(body.outputs[0]);
            let what = format!("{} ({sample}) in {dtype}", sample.op.name());
            assert_eq!((body.dtype, &body.shape[..]), (promised.dtype(), promised.shape()), "{what}");
        }
    }
}

#[test]
fn gradients_have_the_operands_shape_and_dtype() {
    for sample in samples() {
        for dtype in sample.tested_dtypes() {
            let operands = operands(&sample, dtype);
            let result = apply(&sample, &operands).unwrap();
            if !result.requires_grad() {
                continue;
            }
            let g = leaf(result.dtype(), result.shape());
            let wanted: Vec<&Tensor> = operands.iter().filter(|t| t.requires_grad()).collect();
            // The sweep itself refuses gradients of another shape or dtype than their operand's.
            let found = result.vector_jacobian_product(&g, &wanted, false);
            assert!(found.is_ok(), "{} ({sample}) in {dtype}: {:?}", sample.op.name(), found.err());
        }
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    for sample in samples() {
        let (operands, what) = (operands(&sample, DType::F32), sample.op.name());
        assert!(apply(&sample, &operands[..operands.len() - 1]).is_err(), "{what} of too few operands");
        let many = [&operands[..], &[leaf(DType::F32, &[7, 7])]].concat();
        assert!(apply(&sample, &many).is_err(), "{what} of too many operands");
        let wrong = [&[leaf(DType::Bool, operands[0].shape())], &operands[1..]].concat();
        assert!(apply(&sample, &wrong).is_err(), "{what} of bool");
    }
}

#[test]
fn values_are_quantised_to_narrow_integers() {
    for dtype in DType::ALL {
        let operands = [leaf(DType::F32, &[2]), leaf(DType::F32, &[]), leaf(dtype, &[])];
        let accepted = Composite::apply(QuantizeLinear { axis: None }, &operands.each_ref()).is_ok();
        assert_eq!(accepted, dtype.is_integer() && dtype.size() <= 2, "{dtype}");
    }
}
