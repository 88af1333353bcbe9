//! Tests of rewrites.

use super::*;
use crate::shape::Dims;

#[test]
fn transpositions_of_matrices_are_recognised() {
    assert!(swaps_last_two(&[1, 0]) && swaps_last_two(&[0, 1, 3, 2]));
    for other in [&[0, 1][..], &[0], &[], &[1, 0, 2], &[2, 1, 0], &[1, 0, 3, 2]] {
        assert!(!swaps_last_two(other), "{other:?}");
    }
}

#[test]
fn the_transpose_of_a_product_becomes_the_product_of_the_transposes() {
    let mut ir = Ir::default();
    let a = ir.push(Op::Buffer, DType::F32, [3, 4][..].into(), []);
    let b = ir.push(Op::Buffer, DType::F32, [4, 5][..].into(), []);
    let product = ir.push(Op::Dot, DType::F32, [3, 5][..].into(), [a, b]);
    let transposed =
        ir.push(Op::Permute(Permute([1, 0][..].into())), DType::F32, [5, 3][..].into(), [product]);
    ir.outputs = vec![transposed];
    let out = rewrite(ir.clone(), crate::tensor::null_device()).unwrap();
    let result = out.node(out.outputs[0]);
    assert_eq!((&result.op, result.shape.as_slice()), (&Op::Dot, &[5, 3][..]));
    let shapes: Vec<&[usize]> = result.inputs.iter().map(|&i| out.node(i).shape.as_slice()).collect();
    assert_eq!(shapes, [&[5, 4][..], &[4, 3]]);
    // Also what a product is converted to.
    let mut converted = ir.clone();
    converted.nodes.pop();
    let narrow = converted.push(Op::Cast, DType::BF16, [3, 5][..].into(), [product]);
    let turned =
        converted.push(Op::Permute(Permute([1, 0][..].into())), DType::BF16, [5, 3][..].into(), [narrow]);
    converted.outputs = vec![turned];
    let out = rewrite(converted, crate::tensor::null_device()).unwrap();
    let result = out.node(out.outputs[0]);
    assert_eq!((&result.op, result.dtype), (&Op::Cast, DType::BF16));
    assert_eq!(out.node(result.inputs[0]).op, Op::Dot);
    // A product that is itself an output is computed once and read transposed.
    ir.outputs.push(product);
    let out = rewrite(ir.clone(), crate::tensor::null_device()).unwrap();
    assert_eq!(out.nodes.iter().filter(|n| n.op == Op::Dot).count(), 1);
}

#[test]
fn floats_are_not_widened_to_be_narrowed_again() {
    let mut ir = Ir::default();
    let x = ir.push(Op::Buffer, DType::BF16, [3, 4][..].into(), []);
    let wide = ir.push(Op::Cast, DType::F32, [3, 4][..].into(), [x]);
    let swap = || Op::Permute(Permute([1, 0][..].into()));
    let turned = ir.push(swap(), DType::F32, [4, 3][..].into(), [wide]);
    let flat = ir.push(Op::Reshape, DType::F32, [12][..].into(), [turned]);
    // Another 16-bit type, and a type that does not hold all values, are conversions.
    let results = [DType::BF16, DType::F16].map(|to| ir.push(Op::Cast, to, [12][..].into(), [flat]));
    let whole = ir.push(Op::Buffer, DType::I64, [12][..].into(), []);
    let float = ir.push(Op::Cast, DType::F32, [12][..].into(), [whole]);
    let rounded = ir.push(Op::Cast, DType::I64, [12][..].into(), [float]);
    ir.outputs = [&results[..], &[rounded]].concat();
    let out = rewrite(ir, crate::tensor::null_device()).unwrap();
    let result = |at: usize| out.node(out.outputs[at]);
    let view = out.node(result(0).inputs[0]);
    assert_eq!((&result(0).op, &view.op), (&Op::Reshape, &swap()));
    assert_eq!(out.node(view.inputs[0]).op, Op::Buffer);
    assert_eq!((&result(1).op, &result(2).op), (&Op::Cast, &Op::Cast));
}

#[test]
fn the_mask_of_a_rectifier_reads_its_result() {
    let shape = || Dims::from([4, 5].as_slice());
    let mut ir = Ir::default();
    let x = ir.push(Op::Buffer, DType::F32, shape(), []);
    let g = ir.push(Op::Buffer, DType::F32, shape(), []);
    let zero = ir.push(Op::Constant(Constant(Scalar::Float(0.0))), DType::F32, shape(), []);
    let mask = ir.push(Op::Binary(Binary::Le), DType::Bool, shape(), [x, zero]);
    let rectified = ir.push(Op::Where, DType::F32, shape(), [mask, zero, x]);
    let gradient = ir.push(Op::Where, DType::F32, shape(), [mask, zero, g]);
    ir.outputs = vec![rectified, gradient];
    let out = rewrite(ir.clone(), crate::tensor::null_device()).unwrap();
    let condition = |id: Id| out.node(out.node(id).inputs[0]);
    assert_eq!(condition(out.outputs[1]).inputs[0], out.outputs[0]);
    assert_eq!(out.node(condition(out.outputs[0]).inputs[0]).op, Op::Buffer);
    // A comparison with a constant other than 0 stays.
    let one = ir.push(Op::Constant(Constant(Scalar::Float(1.0))), DType::F32, shape(), []);
    let other = ir.push(Op::Binary(Binary::Le), DType::Bool, shape(), [x, one]);
    ir.push(Op::Where, DType::F32, shape(), [other, one, x]);
    let gradient = ir.push(Op::Where, DType::F32, shape(), [other, one, g]);
    ir.outputs = vec![gradient];
    let out = rewrite(ir.clone(), crate::tensor::null_device()).unwrap();
    let condition = out.node(out.node(out.outputs[0]).inputs[0]);
    assert_eq!(out.node(condition.inputs[0]).op, Op::Buffer);
}

#[test]
fn a_slice_of_one_part_of_a_concatenation_reads_the_part() {
    let mut ir = Ir::default();
    let parts = [3, 5, 4].map(|n| ir.push(Op::Buffer, DType::F32, [2, n][..].into(), []));
    let cat = ir.push(Op::Cat(Cat { axis: 1 }), DType::F32, [2, 12][..].into(), parts);
    let mut slice = |start: usize, step: isize, count: usize| {
        let (start, step) = ([0, start][..].into(), smallvec![1, step]);
        ir.push(Op::Slice(Slice { start, step }), DType::F32, [2, count][..].into(), [cat])
    };
    let slices = [(3, 1, 5), (4, 2, 2), (11, -1, 4), (2, 1, 2), (9, -4, 2), (8, 1, 0)];
    let outputs = slices.map(|(start, step, count)| slice(start, step, count)).to_vec();
    ir.outputs = outputs;
    let out = rewrite(ir.clone(), crate::tensor::null_device()).unwrap();
    let found: Vec<&IrNode> = out.outputs.iter().map(|&o| out.node(o)).collect();
    // A whole part, some of it, and backwards.
    assert_eq!(out.outputs[0], out.leaves[1]);
    let read = |node: &IrNode| match &node.op {
        Op::Slice(slice) => Some((slice.start[1], slice.step[1], node.inputs[0])),
        _ => None,
    };
    assert_eq!(read(found[1]), Some((1, 2, out.leaves[1])));
    assert_eq!(read(found[2]), Some((3, -1, out.leaves[2])));
    // Of two parts, or of none.
    let is_of_all = |node: &IrNode| matches!(out.node(node.inputs[0]).op, Op::Cat(_));
    assert!(found[3..].iter().all(|node| is_of_all(node)));
}
