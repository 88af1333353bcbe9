//! Steps with epilogues must give bit-identical results to the operation followed by a separate kernel.

use std::sync::Arc;

use phynexus::kernel::step::{Library, Operand, Step};
use phynexus::{
    DType, Scalar, Tensor,
    device::{Binding, Executable},
    op::{
        Binary, Constant, Conv, ConvKind, Geometry, Op, Permute,
        ir::{Id, Ir},
    },
    oracle::{
        Comparison, OracleArray, compare, evaluate,
        generate::{Case, CaseLeaf, Choice, Distribution, random_array},
    },
    schedule::execute_ir,
    shape::{Dims, Layout},
};

const DTYPES: [DType; 5] = [DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32];

struct Graph {
    case: Case,
    dtype: DType,
    choice: Choice,
}

impl Graph {
    fn new(dtype: DType) -> Graph {
        Graph { case: Case::new("epilogue"), dtype, choice: Choice::new(7) }
    }
    fn leaf(&mut self, shape: &[usize]) -> Id {
        let values = random_array(&mut self.choice, Distribution::Tame, self.dtype, shape);
        self.case.leaf(CaseLeaf::contiguous(values))
    }
    fn push(&mut self, op: Op, shape: &[usize], inputs: &[Id]) -> Id {
        self.case.ir.push(op, self.dtype, shape.into(), inputs.iter().copied())
    }
    fn shape(&self, x: Id) -> Dims {
        self.case.ir.node(x).shape.clone()
    }
    /// `max(x + bias, 0) - residual`, with the bias along one axis.
    fn follow(&mut self, x: Id, axis: usize) -> Id {
        let shape = self.shape(x);
        let mut one: Dims = shape.iter().map(|_| 1).collect();
        one[axis] = shape[axis];
        let (bias, residual) = (self.leaf(&one), self.leaf(&shape));
        let bias = self.push(Op::Expand, &shape, &[bias]);
        let sum = self.push(Op::Binary(Binary::Add), &shape, &[x, bias]);
        let zero = self.push(Op::Constant(Constant(Scalar::Int(0).cast(self.dtype))), &shape, &[]);
        let positive = self.push(Op::Binary(Binary::Max), &shape, &[sum, zero]);
        self.push(Op::Binary(Binary::Sub), &shape, &[positive, residual])
    }
    fn run(&self, outputs: &[Id]) -> Vec<Vec<u8>> {
        let device = crate::register();
        let mut ir: Ir = self.case.ir.clone();
        ir.outputs = outputs.to_vec();
        let leaves: Vec<_> = self.case.leaves.iter().map(|l| l.upload(device).unwrap()).collect();
        execute_ir(&ir, &leaves, device).unwrap().iter().map(|t| t.to_bytes().unwrap()).collect()
    }
    /// Runs the graph as one step, with and without storing the operation's own result. Checks both against the
    /// operation followed by a kernel on its stored result, and against the oracle.
    fn check(&mut self, library: Id, output: Id) {
        let both = self.run(&[output, library]);
        let alone = self.run(&[output]);
        let what = format!("{:?} {} {:?}", self.case.ir.node(library).op, self.dtype, self.shape(library));
        assert!(both[0] == alone[0], "{what}: storing the result changes what follows");
        assert!(both[1] == self.run(&[library])[0], "{what}: the result");
        // The same graph with the operation's result as a leaf: no epilogue.
        let mut apart = Case::new("apart");
        let mut renamed: Vec<Id> = Vec::new();
        let mut leaves = self.case.leaves.iter();
        for (id, node) in self.case.ir.nodes.iter().enumerate() {
            renamed.push(match node.op {
                Op::Buffer => apart.leaf(leaves.next().unwrap().clone()),
                _ if id as Id == library => {
                    let result = OracleArray::from_bytes(&both[1], node.dtype, &node.shape).unwrap();
                    apart.leaf(CaseLeaf::contiguous(result))
                }
                _ => {
                    let inputs = node.inputs.iter().map(|&i| renamed[i as usize]);
                    apart.ir.push(node.op.clone(), node.dtype, node.shape.clone(), inputs)
                }
            });
        }
        let apart = Graph { case: apart, dtype: self.dtype, choice: Choice::new(0) };
        assert!(apart.run(&[renamed[output as usize]])[0] == alone[0], "{what}: apart");
        let mut ir = self.case.ir.clone();
        ir.outputs = vec![output];
        let expected = evaluate(&ir, &self.case.values()).unwrap();
        let compared: Comparison = compare(&expected[0], &alone[0], self.dtype);
        assert!(compared.passed(), "{what}: {compared}");
    }
}

#[test]
fn products() {
    // Rows and columns around the sizes of tiles, panels and blocks; no rows, no columns, no terms; divided sums.
    let shapes = [
        [1, 33, 5],
        [3, 32, 0],
        [0, 40, 3],
        [7, 0, 3],
        [70, 31, 4],
        [15, 700, 9],
        [130, 100, 70],
        [200, 65, 300],
        [40, 48, 2100],
        [2, 600, 130],
        [600, 33, 130],
    ];
    for dtype in DTYPES {
        for [m, n, k] in shapes {
            let mut g = Graph::new(dtype);
            let (a, b) = (g.leaf(&[m, k]), g.leaf(&[k, n]));
            let product = g.push(Op::Dot, &[m, n], &[a, b]);
            let y = g.follow(product, 1);
            g.check(product, y);
        }
    }
}

#[test]
fn batches_of_products() {
    // One batch that shares its right operand and forms one tall product, one of small items, and one of large items.
    for (items, m, n, k, shared) in [(3, 20, 50, 8, true), (5, 4, 40, 6, false), (3, 70, 130, 40, false)] {
        let mut g = Graph::new(DType::F32);
        let a = g.leaf(&[items, m, k]);
        let b = match shared {
            true => {
                let one = g.leaf(&[1, k, n]);
                g.push(Op::Expand, &[items, k, n], &[one])
            }
            false => g.leaf(&[items, k, n]),
        };
        let product = g.push(Op::Dot, &[items, m, n], &[a, b]);
        // A bias per item of the batch does not vary within a block.
        let y = g.follow(product, 0);
        g.check(product, y);
    }
}

#[test]
fn results_are_stored_transposed_and_in_other_dtypes() {
    let mut g = Graph::new(DType::F32);
    let (a, b) = (g.leaf(&[70, 9]), g.leaf(&[9, 130]));
    let product = g.push(Op::Dot, &[70, 130], &[a, b]);
    let y = g.follow(product, 1);
    let turned = g.push(Op::Permute(Permute([1u8, 0].as_slice().into())), &[130, 70], &[y]);
    let y = g.push(Op::Contiguous, &[130, 70], &[turned]);
    g.check(product, y);
    let mut g = Graph::new(DType::BF16);
    let (a, b) = (g.leaf(&[70, 9]), g.leaf(&[9, 130]));
    let product = g.push(Op::Dot, &[70, 130], &[a, b]);
    g.dtype = DType::F32;
    let wide = g.push(Op::Cast, &[70, 130], &[product]);
    let y = g.follow(wide, 1);
    g.check(product, y);
}

#[test]
fn convolutions_and_their_input_gradients() {
    let cases: [(&[usize], usize, usize, usize, usize); 7] = [
        // Spatial extents, images, groups, stride, kernel.
        (&[40], 2, 1, 1, 3),
        (&[9, 11], 3, 1, 1, 3),
        (&[9, 11], 3, 1, 2, 3),
        (&[12, 12], 1, 2, 2, 2),
        (&[1, 40], 2, 1, 2, 1),
        (&[33, 40], 1, 4, 1, 3),
        (&[5, 6, 7], 2, 1, 2, 3),
    ];
    for dtype in &DTYPES[..4] {
        for (extents, images, groups, stride, kernel) in cases {
            let rank = extents.len();
            let list = |x: usize| -> Dims { extents.iter().map(|_| x).collect() };
            let geometry = Geometry {
                kernel: list(kernel),
                stride: list(stride),
                dilation: list(1),
                padding: extents.iter().map(|_| (kernel / 2, kernel / 2)).collect(),
                groups,
            };
            let shape = |channels: usize, spatial: &[usize]| -> Dims {
                [images, channels].iter().chain(spatial).copied().collect()
            };
            let output: Dims = (0..rank).map(|d| geometry.output_size(d, extents[d]).unwrap()).collect();
            let filter: Dims = [8, 4 / groups].iter().copied().chain(list(kernel)).collect();
            let (x, y) = (shape(4, extents), shape(8, &output));
            for (kind, left, result) in [(ConvKind::Forward, &x, &y), (ConvKind::InputGradient, &y, &x)] {
                let mut g = Graph::new(*dtype);
                let (left, w) = (g.leaf(left), g.leaf(&filter));
                let conv = g.push(Op::Conv(Conv(kind, geometry.clone())), result, &[left, w]);
                let y = g.follow(conv, 1);
                g.check(conv, y);
            }
        }
    }
}

/// Sums of bytes, scaled, rounded and clamped to 8 bits: the same as with every step computed apart.
#[test]
fn quantised_convolutions_and_products() {
    let device = crate::register();
    let bytes = |shape: &[usize], dtype: DType, seed: u64| {
        let values = crate::test_values::values(dtype, shape.iter().product(), seed);
        Tensor::from_bytes(&crate::test_values::to_bytes(&values, dtype), dtype, shape, device).unwrap()
    };
    let quantised = |sums: &Tensor, shape: &[usize], target: DType, apart: bool| {
        let step = |x: phynexus::Result<Tensor>| {
            let x = x.unwrap();
            if apart {
                x.evaluate().unwrap();
            }
            x
        };
        // Some scales give infinities and NaN.
        let scales: Vec<f32> = (0..shape.iter().product())
            .map(|i: usize| [1e-3, -2e-3, 0.5, 1e-2, f32::INFINITY][i % 5])
            .collect();
        let scale = Tensor::from_slice(&scales, shape, device).unwrap();
        let (offset, limits) =
            if target == DType::I8 { (-3.0, [-128.0, 127.0]) } else { (7.0, [0.0, 255.0]) };
        let x = step(step(sums.to_dtype(DType::F32)).mul(&scale));
        let x = step(step(step(step(x.relu()).mul_scalar(0.37)).round()).add_scalar(offset));
        step(step(x.clamp(Some(Scalar::Float(limits[0])), Some(Scalar::Float(limits[1])))).to_dtype(target))
    };
    for (x, w) in [(DType::U8, DType::I8), (DType::I8, DType::I8), (DType::I8, DType::U8)] {
        for target in [DType::I8, DType::U8] {
            // Many images, few images with several tiles of rows, and one channel each.
            for (images, inputs, outputs, groups) in [(9, 5, 6, 1), (1, 8, 40, 1), (2, 6, 6, 6)] {
                let x = bytes(&[images, inputs, 9, 17], x, 3);
                let w = bytes(&[outputs, inputs / groups, 3, 3], w, 4);
                let sums = || x.conv2d_as(&w, None, [1; 2], [1; 2], [1; 2], groups, DType::I32).unwrap();
                let stored = sums();
                stored.evaluate().unwrap();
                let expected = quantised(&stored, &[outputs, 1, 1], target, true).to_bytes().unwrap();
                assert!(quantised(&sums(), &[outputs, 1, 1], target, false).to_bytes().unwrap() == expected);
            }
            for m in [1, 40] {
                let (a, b) = (bytes(&[m, 70], x, 5), bytes(&[100, 70], w, 6));
                let sums = || a.matmul_as(&b.t().unwrap(), DType::I32).unwrap();
                let stored = sums();
                stored.evaluate().unwrap();
                let expected = quantised(&stored, &[100], target, true).to_bytes().unwrap();
                assert!(quantised(&sums(), &[100], target, false).to_bytes().unwrap() == expected);
            }
        }
    }
}

#[test]
fn a_result_stored_over_what_it_is_added_to() {
    // `r = a * b + r`, with separate memory and in the memory of r: the product may not be computed there.
    let mut ir = Ir::default();
    let shape = [70, 130];
    let [a, b] = [[70, 300], [300, 130]].map(|s| ir.push(Op::Buffer, DType::F32, s.as_slice().into(), []));
    let r = ir.push(Op::Buffer, DType::F32, shape.as_slice().into(), []);
    let product = ir.push(Op::Dot, DType::F32, shape.as_slice().into(), [a, b]);
    let sum = ir.push(Op::Binary(Binary::Add), DType::F32, shape.as_slice().into(), [product, r]);
    ir.outputs = vec![sum];
    let device = crate::register();
    let mut choice = Choice::new(3);
    let leaves: Vec<_> = (ir.leaves.iter())
        .map(|&l| random_array(&mut choice, Distribution::Tame, DType::F32, &ir.node(l).shape))
        .map(|values| CaseLeaf::contiguous(values).upload(device).unwrap())
        .collect();
    let expected = execute_ir(&ir, &leaves, device).unwrap()[0].to_bytes().unwrap();
    let step = add_step(&ir, product);
    let executable: Arc<dyn Executable> = device.backend().compile(&Step::Library(step)).unwrap();
    let binding = |i: usize| Binding { buffer: leaves[i].storage().unwrap().buffer, offset: 0 };
    executable.run(&[binding(0), binding(1), binding(2), binding(2)]).unwrap();
    assert!(leaves[2].to_bytes().unwrap() == expected);
}

/// `dot` followed by adding another operand.
fn add_step(ir: &Ir, dot: Id) -> Library {
    use phynexus::kernel::{
        Ranges,
        fused::{FusedOp, Fusion, Instruction, Parameter, Store},
        view,
    };
    let node = ir.node(dot);
    let layouts = node.inputs.iter().map(|&i| Layout::contiguous(&ir.node(i).shape));
    let operands = layouts.map(|layout| Operand { dtype: DType::F32, layout }).collect();
    let strides = phynexus::shape::contiguous_strides(&node.shape);
    let index = || view::flat(&Ranges::of(&node.shape).coordinates(), &strides, 0);
    let instruction = |operation| Instruction { operation, dtype: DType::F32, per_column: false };
    let load = |parameter| {
        instruction(FusedOp::Load { parameter, index: index(), mask: None, fill: Scalar::Int(0) })
    };
    let kernel = Fusion {
        rows: node.shape.clone(),
        instructions: vec![load(0), load(1), instruction(FusedOp::Binary(Binary::Add, 0, 1))],
        stores: vec![Store { parameter: 2, value: 2, index: index(), replaces: None }],
        parameters: [false, false, true].map(|written| Parameter { dtype: DType::F32, written }).into(),
        ..Fusion::default()
    };
    Library { node: node.clone(), operands, epilogue: Some(kernel) }
}
