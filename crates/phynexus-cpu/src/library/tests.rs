//! Library steps through the device: bindings, strides, copies, epilogues.

use phynexus::{
    DType, Scalar,
    device::{Backend, Binding, Buffer, Support},
    kernel::{
        Ranges,
        fused::{FusedOp, Fusion, Instruction, Parameter, Store},
        step::{Library, Operand, Step},
        view,
    },
    op::{Conv, ConvKind, Geometry, Op, TensorType, Unary, ir::IrNode},
    shape::{Layout, contiguous_strides},
};
use smallvec::SmallVec;

fn cpu() -> &'static dyn Backend {
    crate::register().backend()
}

fn upload(values: &[f32]) -> Buffer {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let buffer = cpu().allocate(bytes.len()).unwrap();
    cpu().write(&buffer, 0, &bytes).unwrap();
    buffer
}

fn download(buffer: &Buffer, count: usize) -> Vec<f32> {
    let mut bytes = vec![0; count * 4];
    cpu().read(buffer, 0, &mut bytes).unwrap();
    bytes.as_chunks().0.iter().map(|c| f32::from_le_bytes(*c)).collect()
}

fn node(op: Op, shape: &[usize]) -> IrNode {
    IrNode { op, dtype: DType::F32, shape: shape.into(), inputs: SmallVec::new() }
}

fn operand(shape: &[usize], strides: &[isize]) -> Operand {
    let layout = Layout { shape: shape.into(), strides: strides.into(), offset: 0 };
    Operand { dtype: DType::F32, layout }
}

/// Runs a step whose operands start at these elements of their buffers.
fn run(step: Library, inputs: &[(&Buffer, usize)], outputs: &[&Buffer]) -> phynexus::Result<()> {
    let inputs = inputs.iter().map(|&(buffer, at)| Binding { buffer: buffer.clone(), offset: 4 * at });
    let outputs = outputs.iter().map(|&buffer| Binding { buffer: buffer.clone(), offset: 0 });
    let bindings: Vec<Binding> = inputs.chain(outputs).collect();
    cpu().compile(&Step::Library(step))?.run(&bindings)
}

/// A batch of products whose second operand is transposed and whose first is shared by the whole batch.
fn dot_step() -> Library {
    Library {
        node: node(Op::Dot, &[2, 3, 2]),
        operands: vec![operand(&[2, 3, 4], &[0, 4, 1]), operand(&[2, 4, 2], &[8, 1, 4])],
        epilogue: None,
    }
}

fn dot_expected(a: &[f32], b: &[f32]) -> Vec<f32> {
    let mut expected = Vec::new();
    for batch in 0..2 {
        for row in 0..3 {
            for column in 0..2 {
                expected.push((0..4).map(|k| a[row * 4 + k] * b[batch * 8 + k + column * 4]).sum());
            }
        }
    }
    expected
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7) % 11) as f32 - 4.0).collect()
}

#[test]
fn products_take_strides_and_offsets() {
    let (a, b) = (numbers(12), numbers(17));
    let (abuf, bbuf, c) = (upload(&a), upload(&b), upload(&[0.0; 12]));
    run(dot_step(), &[(&abuf, 0), (&bbuf, 1)], &[&c]).unwrap();
    assert_eq!(download(&c, 12), dot_expected(&a, &b[1..]));
}

#[test]
fn bindings_that_are_too_small_are_errors() {
    let (a, b, c) = (upload(&numbers(12)), upload(&numbers(16)), upload(&[0.0; 12]));
    assert!(run(dot_step(), &[(&a, 0), (&b, 1)], &[&c]).is_err());
    assert!(run(dot_step(), &[(&a, 0), (&b, 0)], &[&upload(&[0.0; 11])]).is_err());
    assert!(run(dot_step(), &[(&a, 0)], &[]).is_err());
}

#[test]
fn epilogues_read_the_result_and_further_operands() {
    let shape = [2, 3, 2];
    let index = || view::flat(&Ranges::of(&shape).coordinates(), &contiguous_strides(&shape), 0);
    let load = |parameter: u16, index| Instruction {
        operation: FusedOp::Load { parameter, index, mask: None, fill: Scalar::Int(0) },
        dtype: DType::F32,
        per_column: false,
    };
    let compute = |operation| Instruction { operation, dtype: DType::F32, per_column: false };
    let parameter = |written| Parameter { dtype: DType::F32, written };
    let kernel = Fusion {
        rows: shape.as_slice().into(),
        instructions: vec![
            load(0, index()),
            load(1, phynexus::kernel::Index::range(2, &Ranges::of(&shape))),
            compute(FusedOp::Binary(phynexus::op::Binary::Add, 0, 1)),
            compute(FusedOp::Unary(Unary::Neg, 2)),
        ],
        stores: vec![Store { parameter: 2, value: 3, index: index(), replaces: None }],
        parameters: vec![parameter(false), parameter(false), parameter(true)],
        ..Fusion::default()
    };
    let (a, b, bias) = (numbers(12), numbers(16), [100.0, 200.0]);
    let (abuf, bbuf, biasbuf, c) = (upload(&a), upload(&b), upload(&bias), upload(&[0.0; 12]));
    let step = Library { epilogue: Some(kernel), ..dot_step() };
    run(step, &[(&abuf, 0), (&bbuf, 0), (&biasbuf, 0)], &[&c]).unwrap();
    let expected: Vec<f32> =
        dot_expected(&a, &b).iter().enumerate().map(|(i, x)| -(x + bias[i % 2])).collect();
    assert_eq!(download(&c, 12), expected);
}

#[test]
fn operands_that_must_be_row_major_are() {
    let geometry = Geometry {
        kernel: [2].as_slice().into(),
        stride: [1].as_slice().into(),
        dilation: [1].as_slice().into(),
        padding: [(0, 0)].as_slice().into(),
        groups: 1,
    };
    let (x, w) = ([1.0, 2.0, 3.0, 4.0, 5.0], [10.0, 1.0]);
    let (xbuf, wbuf, y) = (upload(&x), upload(&w), upload(&[0.0; 4]));
    let step = Library {
        node: node(Op::Conv(Conv(ConvKind::Forward, geometry)), &[1, 1, 4]),
        operands: vec![operand(&[1, 1, 5], &[5, 5, 1]), operand(&[1, 1, 2], &[2, 2, 1])],
        epilogue: None,
    };
    run(step.clone(), &[(&xbuf, 0), (&wbuf, 0)], &[&y]).unwrap();
    assert_eq!(download(&y, 4), [12.0, 23.0, 34.0, 45.0]);
    let mut backwards = step;
    backwards.operands[0] = operand(&[1, 1, 5], &[5, 5, -1]);
    assert!(run(backwards, &[(&xbuf, 4), (&wbuf, 0)], &[&y]).is_err());
}

#[test]
fn operands_that_begin_before_their_buffer_are_refused() {
    let mut step = dot_step();
    step.operands[1] = operand(&[2, 4, 2], &[8, -1, 4]);
    let (a, b, c) = (upload(&numbers(12)), upload(&numbers(16)), upload(&[0.0; 12]));
    assert!(run(step.clone(), &[(&a, 0), (&b, 3)], &[&c]).is_ok());
    assert!(run(step, &[(&a, 0), (&b, 2)], &[&c]).is_err());
}

#[test]
fn what_has_no_routine_is_refused_with_a_reason() {
    let dot = node(Op::Dot, &[2, 2]);
    let support =
        |dtypes: [DType; 2]| cpu().support(&dot, &dtypes.map(|dtype| TensorType::new(dtype, &[2, 2])));
    assert_eq!(support([DType::F16, DType::BF16]), Support::Routine);
    let refused = support([DType::F32, DType::I32]);
    assert_eq!(refused, Support::Unsupported("no matrix product of float32 and int32 to float32".to_owned()));
}
