//! Bodies and gradients give what the composites promise, in every dtype.

use super::{AttentionAttributes, Cell, Composite, Recurrence};
use crate::{
    DType, Scalar, Tensor,
    gradient::tests::harness::device,
    graph::node::{Node, Sources, intern},
    op::{Op, TensorType},
};

fn leaf(dtype: DType, shape: &[usize]) -> Tensor {
    let signature = intern(Op::Buffer, dtype, shape.into());
    Tensor::from_node(Node::pending(signature, device(), Sources::new(), dtype.is_float()))
}

/// Every composite with operands of a dtype.
fn all(dtype: DType) -> Vec<(Composite, Vec<Tensor>)> {
    let t = |shape: &[usize]| leaf(dtype, shape);
    let epsilon = Scalar::Float(1e-5);
    let (weight, bias) = (true, true);
    let mut all = vec![
        (Composite::Softmax { axis: 1 }, vec![t(&[2, 3])]),
        (Composite::LogSoftmax { axis: 0 }, vec![t(&[2, 3])]),
        (Composite::Gelu { tanh: true }, vec![t(&[2])]),
        (Composite::Gelu { tanh: false }, vec![t(&[0, 2])]),
        (Composite::Silu, vec![t(&[])]),
        (Composite::Softplus { beta: Scalar::Float(1.0), threshold: Scalar::Float(20.0) }, vec![t(&[2])]),
        (Composite::Mish, vec![t(&[2])]),
        (Composite::LayerNorm { axes: 1, epsilon, weight, bias }, vec![t(&[2, 3]), t(&[3]), t(&[3])]),
        (Composite::RmsNorm { axes: 2, epsilon, weight }, vec![t(&[2, 3]), t(&[2, 3])]),
        (Composite::GroupNorm { groups: 2, epsilon, weight, bias }, vec![t(&[2, 4, 3]), t(&[4]), t(&[4])]),
        (Composite::BatchNorm { training: true, epsilon, weight, bias }, vec![t(&[2, 4]), t(&[4]), t(&[4])]),
        (
            Composite::BatchNorm { training: false, epsilon, weight, bias },
            vec![t(&[2, 4]), t(&[4]), t(&[4]), t(&[4]), t(&[4])],
        ),
        (
            Composite::ClassIndex { loss: "cross_entropy", classes: 3, ignore_index: Some(-100) },
            vec![leaf(DType::I64, &[2])],
        ),
        (Composite::BinaryCrossEntropy, vec![t(&[2, 3]), t(&[2, 3])]),
        (
            Composite::CrossEntropy {
                label_smoothing: Scalar::Float(0.1),
                ignore_index: Some(-1),
                weighted: true,
            },
            vec![t(&[2, 3]), leaf(DType::I32, &[2]), t(&[3])],
        ),
        (Composite::QuantizeLinear { axis: Some(1) }, vec![t(&[2, 3]), t(&[3]), leaf(DType::U8, &[3])]),
        (
            Composite::DequantizeLinear { axis: None },
            vec![leaf(DType::I8, &[2, 3]), t(&[]), leaf(DType::I8, &[])],
        ),
    ];
    for mask in [None, Some(DType::Bool), Some(dtype)] {
        let attributes =
            AttentionAttributes { causal: true, scale: Scalar::Float(0.5), mask: mask.is_some() };
        let mut operands = vec![t(&[1, 2, 3, 4]), t(&[1, 2, 5, 4]), t(&[1, 2, 5, 2])];
        operands.extend(mask.map(|dtype| leaf(dtype, &[1, 2, 3, 5])));
        all.push((Composite::Attention(attributes), operands.clone()));
        let wide = |shape: &[usize]| leaf(dtype.compute(), shape);
        operands.extend([wide(&[1, 2, 3]), wide(&[1, 2, 3, 2]), wide(&[1, 2, 3])]);
        all.push((Composite::AttentionGradient(attributes), operands));
    }
    for cell in [Cell::Lstm, Cell::Gru, Cell::Tanh, Cell::Relu] {
        let recurrence = Recurrence { cell, reverse: true, bias: true, save: true };
        let rows = cell.gates() * 3;
        let state = || t(&[2, 3]);
        let states = || if cell.has_cell_state() { vec![state(), state()] } else { vec![state()] };
        let mut operands = vec![t(&[4, 2, 5])];
        operands.extend(states());
        operands.extend([t(&[rows, 5]), t(&[rows, 3]), t(&[rows]), t(&[rows])]);
        all.push((Composite::Recurrent(recurrence), operands));
        let mut operands = vec![t(&[rows, 3])];
        operands.extend(states());
        operands.push(t(&[4, 2, 3]));
        operands.extend(recurrence.saved(4, 2, 3).iter().map(|shape| t(shape)));
        operands.push(t(&[4, 2, 3]));
        operands.extend(cell.has_cell_state().then(state));
        all.push((Composite::RecurrentGradient(recurrence), operands));
    }
    all
}

#[test]
fn bodies_have_the_promised_shape_and_dtype() {
    for dtype in DType::FLOATS {
        for (composite, operands) in all(dtype) {
            let promised = composite.clone().apply(&operands.iter().collect::<Vec<_>>()).unwrap();
            let types: Vec<TensorType> = operands.iter().map(Tensor::tensor_type).collect();
            let body = composite.draft(&types).unwrap();
            let body = body.node(body.outputs[0]);
            let what = format!("{} ({}) in {dtype}", composite.name(), composite.attributes());
            assert_eq!((body.dtype, &body.shape[..]), (promised.dtype(), promised.shape()), "{what}");
        }
    }
}

#[test]
fn gradients_have_the_operands_shape_and_dtype() {
    for dtype in DType::FLOATS {
        for (composite, operands) in all(dtype) {
            let result = composite.clone().apply(&operands.iter().collect::<Vec<_>>()).unwrap();
            if !result.requires_grad() {
                continue;
            }
            let g = leaf(result.dtype(), result.shape());
            let wanted: Vec<&Tensor> = operands.iter().filter(|t| t.requires_grad()).collect();
            // The sweep itself refuses gradients of another shape or dtype than their operand's.
            let found = result.vector_jacobian_product(&g, &wanted, false);
            assert!(found.is_ok(), "{} in {dtype}: {:?}", composite.name(), found.err());
        }
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    for (composite, operands) in all(DType::F32) {
        let mut few: Vec<&Tensor> = operands.iter().collect();
        few.pop();
        assert!(composite.clone().apply(&few).is_err(), "{} of too few operands", composite.name());
        let extra = leaf(DType::F32, &[7, 7]);
        let many: Vec<&Tensor> = operands.iter().chain([&extra]).collect();
        assert!(composite.clone().apply(&many).is_err(), "{} of too many operands", composite.name());
        let wrong = leaf(DType::Bool, operands[0].shape());
        let other: Vec<&Tensor> = std::iter::once(&wrong).chain(&operands[1..]).collect();
        assert!(composite.clone().apply(&other).is_err(), "{} of bool", composite.name());
    }
}

#[test]
fn values_are_quantised_to_narrow_integers() {
    for dtype in DType::ALL {
        let operands = [leaf(DType::F32, &[2]), leaf(DType::F32, &[]), leaf(dtype, &[])];
        let [x, scale, zero] = &operands;
        let accepted = Composite::QuantizeLinear { axis: None }.apply(&[x, scale, zero]).is_ok();
        assert_eq!(accepted, dtype.is_integer() && dtype.size() <= 2, "{dtype}");
    }
}
