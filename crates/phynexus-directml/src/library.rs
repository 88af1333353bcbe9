//! Matrix products and convolutions as graphs.

use phynexus::{
    DType,
    kernel::step::{Library, Operand, Step},
    op::{Conv, ConvKind, Geometry, Op},
};

use crate::{
    fused,
    graph::{Edge, Graph, Node, Part, Tensor, Value},
    operator,
};

/// The graph of a step, if DirectML has all of its operations.
pub(crate) fn graph(step: &Step) -> Option<Graph> {
    match step {
        Step::Fused(fusion) => fused::graph(fusion),
        Step::Batch(_) => None,
        Step::Library(library) => routine(library),
    }
}

fn routine(library: &Library) -> Option<Graph> {
    let mut graph = Graph::default();
    let dtype = library.node.dtype;
    let suitable = match dtype {
        DType::F32 => true,
        // The results of 16-bit floats are rounded before an epilogue sees them.
        DType::F16 => library.epilogue.is_none(),
        _ => false,
    };
    if !suitable || library.operands.iter().any(|operand| operand.dtype != dtype) {
        return None;
    }
    let [a, b] = library.operands.as_slice() else { return None };
    let node = match library.node.op.exact() {
        Op::Dot => product(&mut graph, a, b, &library.node.shape)?,
        Op::Conv(Conv(ConvKind::Forward, geometry)) => {
            convolution(&mut graph, a, b, &library.node.shape, geometry)?
        }
        _ => return None,
    };
    let edge = graph.node(node);
    let first = library.operands.len();
    match &library.epilogue {
        Some(fusion) => fused::append(&mut graph, fusion, Some(edge), first)?,
        None => {
            let tensor = Tensor::new(dtype, &library.node.shape, None)?;
            graph.store(edge, tensor.clone(), Part { binding: first, offset: 0, tensor });
        }
    }
    Some(graph)
}

/// An operand as a tensor of this shape.
fn operand(
    graph: &mut Graph,
    binding: usize,
    dtype: DType,
    shape: &[usize],
    strides: &[i64],
) -> Option<(Edge, Tensor)> {
    let tensor = Tensor::new(dtype, shape, Some(strides))?;
    let edge = graph.input(Part { binding, offset: 0, tensor: tensor.clone() });
    Some((edge, tensor))
}

fn strides(operand: &Operand) -> Vec<i64> {
    operand.layout.strides.iter().map(|&step| step as i64).collect()
}

/// A factor, and whether it is given transposed, so that the elements of a row are neighbours.
fn factor(graph: &mut Graph, binding: usize, of: &Operand) -> Option<((Edge, Tensor), bool)> {
    let (mut shape, mut steps) = (of.layout.shape.to_vec(), strides(of));
    let last = shape.len().checked_sub(1)?;
    let row = last.checked_sub(1)?;
    let transposed = steps[last] != 1 && steps[row] == 1;
    if transposed {
        shape.swap(row, last);
        steps.swap(row, last);
    }
    Some((operand(graph, binding, of.dtype, &shape, &steps)?, transposed))
}

/// The most dimensions of a product's operands.
const PRODUCT_RANK: usize = 4;

fn product(graph: &mut Graph, a: &Operand, b: &Operand, shape: &[usize]) -> Option<Node> {
    if shape.len() > PRODUCT_RANK {
        return None;
    }
    let (dtype, one, zero) = (a.dtype, 1f32.to_bits(), 0f32.to_bits());
    let (a, a_transposed) = factor(graph, 0, a)?;
    let (b, b_transposed) = factor(graph, 1, b)?;
    let number = |transposed| Value::Number(u32::from(transposed));
    let values = vec![number(a_transposed), number(b_transposed), Value::Float(one), Value::Float(zero)];
    let inputs = vec![Some(a), Some(b), None];
    Some(Node { row: &operator::GEMM, inputs, output: Tensor::new(dtype, shape, None)?, values })
}

/// A convolution over two or three dimensions; one over a single dimension is one of images of height 1.
fn convolution(
    graph: &mut Graph,
    x: &Operand,
    w: &Operand,
    shape: &[usize],
    geometry: &Geometry,
) -> Option<Node> {
    /// `DML_CONVOLUTION_MODE_CROSS_CORRELATION`, `DML_CONVOLUTION_DIRECTION_FORWARD`.
    const CROSS_CORRELATION: u32 = 1;
    const FORWARD: u32 = 0;
    let spatial = geometry.kernel.len();
    if !(1..=3).contains(&spatial) {
        return None;
    }
    let flat = spatial == 1;
    let images = |shape: &[usize]| {
        let mut shape = shape.to_vec();
        if flat {
            shape.insert(2, 1);
        }
        shape
    };
    let mut image = |binding, of: &Operand| {
        let mut steps = strides(of);
        if flat {
            steps.insert(2, 0);
        }
        operand(graph, binding, of.dtype, &images(&of.layout.shape), &steps)
    };
    let (dtype, x, w) = (x.dtype, image(0, x)?, image(1, w)?);
    let list = |one: u32, numbers: &mut dyn Iterator<Item = usize>| {
        let numbers = numbers.map(|number| u32::try_from(number).ok());
        let all = flat.then_some(Some(one)).into_iter().chain(numbers).collect::<Option<Vec<u32>>>();
        all.map(Value::List)
    };
    let count = spatial + usize::from(flat);
    let values = vec![
        Value::Number(CROSS_CORRELATION),
        Value::Number(FORWARD),
        Value::Number(count as u32),
        list(1, &mut geometry.stride.iter().copied())?,
        list(1, &mut geometry.dilation.iter().copied())?,
        list(0, &mut geometry.padding.iter().map(|(before, _)| *before))?,
        list(0, &mut geometry.padding.iter().map(|(_, after)| *after))?,
        Value::List(vec![0; count]),
        Value::Number(u32::try_from(geometry.groups).ok()?),
    ];
    let inputs = vec![Some(x), Some(w), None];
    Some(Node {
        row: &operator::CONVOLUTION,
        inputs,
        output: Tensor::new(dtype, &images(shape), None)?,
        values,
    })
}

#[cfg(test)]
mod tests {
    use phynexus::{
        Scalar,
        kernel::{
            Index, Ranges,
            fused::{FusedOp, Fusion, Instruction, Parameter, Store},
        },
        op::{Binary, Unary, ir::IrNode},
        shape::Layout,
    };

    use super::*;

    fn operand(dtype: DType, shape: &[usize]) -> Operand {
        Operand { dtype, layout: Layout::contiguous(shape) }
    }

    fn library(op: Op, shape: &[usize], operands: Vec<Operand>) -> Library {
        let node =
            IrNode { op, dtype: operands[0].dtype, shape: shape.into(), inputs: [].into_iter().collect() };
        Library { node, operands, epilogue: None }
    }

    /// `floor(x * 2 + y)` over so many elements, with what `change` makes of it.
    fn kernel(elements: usize, change: impl FnOnce(&mut Fusion)) -> Fusion {
        let index = Index::range(0, &Ranges::of(&[elements]));
        let load = |parameter| FusedOp::Load {
            parameter,
            index: index.clone(),
            mask: None,
            fill: Scalar::Float(0.0),
        };
        let operations = [
            load(0),
            FusedOp::Constant(Scalar::Float(2.0)),
            FusedOp::Binary(Binary::Mul, 0, 1),
            load(1),
            FusedOp::Binary(Binary::Add, 2, 3),
            FusedOp::Unary(Unary::Floor, 4),
        ];
        let instruction = |operation| Instruction { operation, dtype: DType::F32, per_column: false };
        let mut fusion = Fusion {
            rows: [elements].into_iter().collect(),
            instructions: operations.into_iter().map(instruction).collect(),
            stores: vec![Store { parameter: 2, value: 5, index: index.clone(), replaces: None }],
            parameters: [false, false, true].map(|written| Parameter { dtype: DType::F32, written }).to_vec(),
            ..Fusion::default()
        };
        change(&mut fusion);
        fusion
    }

    fn numbers(graph: &Graph) -> Vec<i32> {
        graph.nodes.iter().map(|node| node.row.number).collect()
    }

    #[test]
    fn a_kernel_becomes_an_operator_for_each_operation() {
        let graph = graph(&Step::Fused(kernel(4096, |_| ()))).unwrap();
        assert_eq!(
            numbers(&graph),
            [&operator::FILL, &operator::MULTIPLY, &operator::ADD, &operator::FLOOR].map(|row| row.number)
        );
        let bindings: Vec<usize> = graph.inputs.iter().map(|part| part.binding).collect();
        assert_eq!((bindings, graph.outputs[0].0, graph.outputs[0].1.binding), (vec![0, 1], 3, 2));
    }

    #[test]
    fn what_directml_cannot_compute_has_no_graph() {
        let refused = |change: &dyn Fn(&mut Fusion)| graph(&Step::Fused(kernel(4096, change))).is_none();
        assert!(!refused(&|_| ()));
        assert!(refused(&|fusion| fusion.stores[0].replaces = Some(0)), "stored over an operand");
        assert!(refused(&|fusion| fusion.instructions[5].operation = FusedOp::Unary(Unary::Sinc, 4)));
        assert!(refused(&|fusion| fusion.parameters[0].dtype = DType::F16), "a conversion");
        assert!(refused(&|fusion| fusion.columns = [8].into_iter().collect()), "rows with columns");
        assert!(graph(&Step::Fused(kernel(16, |_| ()))).is_none(), "a small kernel");
        for dtype in [DType::I32, DType::F64] {
            let operands = vec![operand(dtype, &[2, 3]), operand(dtype, &[3, 4])];
            assert!(graph(&Step::Library(library(Op::Dot, &[2, 4], operands))).is_none(), "{dtype}");
        }
    }

    #[test]
    fn a_transposed_factor_is_given_as_it_lies_in_memory() {
        let mut b = operand(DType::F32, &[3, 4]);
        b.layout.strides = [1, 3].into_iter().collect();
        let step = Step::Library(library(Op::Dot, &[2, 4], vec![operand(DType::F32, &[2, 3]), b]));
        let graph = graph(&step).unwrap();
        let (_, tensor) = graph.nodes[0].inputs[1].as_ref().unwrap();
        assert_eq!((tensor.sizes.as_slice(), &tensor.strides), (&[1, 1, 4, 3][..], &None));
        assert_eq!(graph.nodes[0].values[..2], [Value::Number(0), Value::Number(1)]);
        assert_eq!(graph.outputs[0].1.binding, 2);
    }

    #[test]
    fn an_epilogue_reads_the_product_and_follows_it() {
        let operands = vec![operand(DType::F32, &[1, 3]), operand(DType::F32, &[3, 4])];
        let mut library = library(Op::Dot, &[1, 4], operands);
        library.epilogue = Some(kernel(4, |_| ()));
        let graph = graph(&Step::Library(library)).unwrap();
        assert_eq!(graph.nodes[2].inputs[0].as_ref().unwrap().0, Edge::Node(0));
        let bindings: Vec<usize> = graph.inputs.iter().map(|part| part.binding).collect();
        assert_eq!((bindings, graph.outputs[0].1.binding), (vec![0, 1, 2], 3));
    }

    #[test]
    fn a_convolution_over_one_dimension_is_one_of_images() {
        let geometry = Geometry {
            kernel: [3].into_iter().collect(),
            stride: [2].into_iter().collect(),
            dilation: [1].into_iter().collect(),
            padding: [(1, 0)].into_iter().collect(),
            groups: 1,
        };
        let operands = vec![operand(DType::F32, &[2, 4, 9]), operand(DType::F32, &[6, 4, 3])];
        let forward = Op::Conv(Conv(ConvKind::Forward, geometry.clone()));
        let graph = graph(&Step::Library(library(forward, &[2, 6, 4], operands.clone()))).unwrap();
        let node = &graph.nodes[0];
        assert_eq!(node.output.sizes, [2, 6, 1, 4]);
        let lists = [vec![1, 2], vec![1, 1], vec![0, 1], vec![0, 0], vec![0, 0]].map(Value::List);
        assert_eq!((&node.values[2], &node.values[3..8]), (&Value::Number(2), &lists[..]));
        let gradient = Op::Conv(Conv(ConvKind::InputGradient, geometry));
        assert!(super::graph(&Step::Library(library(gradient, &[2, 6, 4], operands))).is_none());
    }
}
