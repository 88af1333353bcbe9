//! Operations with an operator of their own as graphs.

use phynexus::{
    DType, Scalar,
    kernel::step::{Library, Operand, Step},
    op::{ArgReduce, Binary, Combine, Conv, Gather, IndexRange, Op, Pool, Scan, Unary},
};

use crate::{
    convolution,
    elementwise::{binary, cast, constant, reduce, select, unary},
    fused,
    graph::{Graph, Part, Seen, Tensor, Value, strides},
    operator, pooling, product,
};

/// The graph of a step, if DirectML has all of its operations.
pub(crate) fn graph(step: &Step) -> Option<Graph> {
    let graph = match step {
        Step::Fused(fusion) => fused::graph(fusion),
        // Updates of parameters are in place, and DirectML may write before it has read everything.
        Step::Batch(_) => None,
        Step::Library(library) => routine(library),
    };
    // DirectML crashes on some graphs without inputs.
    graph.filter(|graph| !graph.inputs.is_empty())
}

fn routine(library: &Library) -> Option<Graph> {
    let mut graph = Graph::default();
    let (node, operands) = (&library.node, library.operands.as_slice());
    let result = match (node.op.exact(), operands) {
        (Op::Dot, [a, b]) => product::product(&mut graph, a, b, node)?,
        (Op::Conv(Conv(kind, geometry)), [a, b]) => {
            convolution::convolution(&mut graph, *kind, geometry, a, b, node)?
        }
        (Op::Pool(Pool(kind, geometry)), [x]) => pooling::pool(&mut graph, *kind, geometry, x, node)?,
        (Op::ArgReduce(of), [x]) => arg_reduce(&mut graph, of, x)?,
        (Op::Scan(of), [x]) => scan(&mut graph, of, x)?,
        // Others check the indices.
        (Op::Gather(Gather(IndexRange::Known)), [x, index]) => gather(&mut graph, x, index)?,
        _ => return None,
    };
    let first = operands.len();
    match &library.epilogue {
        Some(fusion) => fused::append(&mut graph, fusion, Some(result), first)?,
        None => {
            let tensor = Tensor::new(result.tensor.dtype, &node.shape, None)?;
            let seen = Seen { edge: result.edge, tensor: tensor.clone() };
            graph.store(seen, Part { binding: first, offset: 0, tensor });
        }
    }
    Some(graph)
}

/// The first operand as it is.
fn only(graph: &mut Graph, x: &Operand) -> Option<Seen> {
    graph.operand(0, x.dtype, &x.layout.shape, &strides(x))
}

/// The dimension of a tensor that is this axis of an operand.
fn dimension(seen: &Seen, x: &Operand, axis: usize) -> u32 {
    (seen.tensor.sizes.len() - x.layout.shape.len() + axis) as u32
}

fn arg_reduce(graph: &mut Graph, of: &ArgReduce, x: &Operand) -> Option<Seen> {
    /// `DML_AXIS_DIRECTION_INCREASING`: of equal elements, the first.
    const INCREASING: u32 = 0;
    // DirectML orders signed 64-bit numbers by their lower halves.
    if x.dtype.size() == 8 {
        return None;
    }
    let seen = only(graph, x)?;
    let axis = dimension(&seen, x, of.axis);
    let place = |graph: &mut Graph, row, seen: Seen| {
        let mut output = seen.tensor.like(DType::I64);
        output.sizes[axis as usize] = 1;
        let values = vec![Value::Number(1), Value::List(vec![axis]), Value::Number(INCREASING)];
        graph.apply(row, [seen], output, values)
    };
    let row = if of.combine == Combine::Min { &operator::ARGMIN } else { &operator::ARGMAX };
    let found = place(graph, row, seen.clone());
    if !x.dtype.is_float() {
        return Some(found);
    }
    // DirectML leaves NaN out.
    let nan = unary(graph, Unary::IsNan, seen)?;
    let nan = cast(graph, nan, DType::I32)?;
    let first = place(graph, &operator::ARGMAX, nan.clone());
    let any = reduce(graph, Combine::Max, nan, &[axis])?;
    let none = constant(graph, Scalar::Int(0), DType::I32)?;
    let clean = binary(graph, Binary::Eq, any, none)?;
    select(graph, clean, found, first)
}

fn scan(graph: &mut Graph, of: &Scan, x: &Operand) -> Option<Seen> {
    let row = match of.combine {
        Combine::Sum => &operator::CUMULATIVE_SUMMATION,
        Combine::Prod => &operator::CUMULATIVE_PRODUCT,
        Combine::Max | Combine::Min => return None,
    };
    // DirectML has no sums of 64-bit numbers.
    if x.dtype.size() == 8 {
        return None;
    }
    let seen = only(graph, x)?;
    let axis = dimension(&seen, x, of.axis);
    let output = seen.tensor.like(x.dtype);
    let values = [axis, u32::from(of.reverse), 0].map(Value::Number).to_vec();
    Some(graph.apply(row, [seen], output, values))
}

fn gather(graph: &mut Graph, x: &Operand, index: &Operand) -> Option<Seen> {
    let [_, width] = x.layout.shape[..] else { return None };
    let (rows, count) = (only(graph, x)?, index.layout.shape[0]);
    let index = graph.operand(1, index.dtype, &index.layout.shape, &strides(index))?;
    let axis = dimension(&rows, x, 0);
    let output = Tensor::new(x.dtype, &[count, width], None)?;
    let values = vec![Value::Number(axis), Value::Number(1)];
    Some(graph.apply(&operator::GATHER, [rows, index], output, values))
}

#[cfg(test)]
mod tests {
    use phynexus::{
        kernel::{
            Index, Mask, Ranges,
            fused::{FusedOp, Fusion, Instruction, Parameter, Store},
        },
        op::{ConvKind, Geometry, PoolKind, ir::IrNode},
        shape::Layout,
    };

    use super::*;
    use crate::graph::Edge;

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
        assert_eq!((bindings, graph.outputs[0].0, graph.outputs[0].1.binding), (vec![0, 1], (3, 0), 2));
    }

    #[test]
    fn what_directml_cannot_compute_has_no_graph() {
        let refused = |change: &dyn Fn(&mut Fusion)| graph(&Step::Fused(kernel(4096, change))).is_none();
        assert!(!refused(&|_| ()));
        assert!(refused(&|fusion| fusion.stores[0].replaces = Some(0)), "stored over an operand");
        assert!(refused(&|fusion| fusion.instructions[5].operation = FusedOp::Unary(Unary::Sinc, 4)));
        assert!(refused(&|fusion| fusion.parameters[0].dtype = DType::F16), "a conversion");
        assert!(
            refused(&|fusion| fusion.stores[0].index = fusion.stores[0].index.scale(2)),
            "stored with gaps"
        );
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
        let tensor = &graph.nodes[0].inputs[1].as_ref().unwrap().tensor;
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
        assert_eq!(graph.nodes[2].inputs[0].as_ref().unwrap().edge, Edge::Node(0, 0));
        let bindings: Vec<usize> = graph.inputs.iter().map(|part| part.binding).collect();
        assert_eq!((bindings, graph.outputs[0].1.binding), (vec![0, 1, 2], 3));
    }

    #[test]
    fn padding_is_an_operator_around_the_part_that_has_elements() {
        let ranges = Ranges::of(&[8]);
        let inside = Index::range(0, &ranges);
        let graph = graph(&Step::Fused(kernel(8, |fusion| {
            let mask = Some(Mask::within(&inside, 2, 7, &ranges));
            let operation =
                FusedOp::Load { parameter: 0, index: inside.shift(-2), mask, fill: Scalar::Float(0.5) };
            fusion.instructions[0].operation = operation;
        })));
        let graph = graph.unwrap();
        assert_eq!((graph.inputs[0].offset, graph.inputs[0].tensor.sizes.as_slice()), (0, &[1, 1, 1, 5][..]));
        let values = [Value::List(vec![0, 0, 0, 2]), Value::List(vec![0, 0, 0, 1])];
        assert_eq!((graph.nodes[0].row.number, &graph.nodes[0].values[3..]), (64, &values[..]));
        assert_eq!(graph.nodes[0].values[1], Value::Float(0.5f32.to_bits()));
    }

    #[test]
    fn a_reduction_keeps_its_columns_as_dimensions_of_one_element() {
        let rows = |combine| {
            kernel(3, |fusion| {
                fusion.columns = [5].into_iter().collect();
                let ranges = Ranges::of(&[3, 5]);
                let each = Index::range(0, &ranges).scale(5).add(&Index::range(1, &ranges));
                let operation =
                    FusedOp::Load { parameter: 0, index: each, mask: None, fill: Scalar::Float(0.0) };
                fusion.instructions[0] = Instruction { operation, dtype: DType::F32, per_column: true };
                fusion.instructions.truncate(1);
                let operation = FusedOp::Reduce(combine, 0);
                fusion.instructions.push(Instruction { operation, dtype: DType::F32, per_column: false });
                fusion.stores[0].value = 1;
            })
        };
        // NaN is the greatest.
        let greatest = graph(&Step::Fused(rows(Combine::Max))).unwrap();
        assert_eq!(numbers(&greatest)[0], operator::REDUCE.number);
        assert_eq!(greatest.nodes[0].outputs[0].as_ref().unwrap().sizes, [1, 1, 3, 1]);
        assert!(numbers(&greatest).contains(&operator::IS_NAN.number), "{:?}", numbers(&greatest));
        assert!(graph(&Step::Fused(rows(Combine::Sum))).is_none(), "the order of additions");
    }

    fn geometry(groups: usize) -> Geometry {
        Geometry {
            kernel: [3].into_iter().collect(),
            stride: [2].into_iter().collect(),
            dilation: [1].into_iter().collect(),
            padding: [(1, 0)].into_iter().collect(),
            groups,
        }
    }

    #[test]
    fn a_convolution_over_one_dimension_is_one_of_images() {
        let operands = vec![operand(DType::F32, &[2, 4, 9]), operand(DType::F32, &[6, 4, 3])];
        let forward = Op::Conv(Conv(ConvKind::Forward, geometry(1)));
        let graph = graph(&Step::Library(library(forward, &[2, 6, 4], operands))).unwrap();
        let node = &graph.nodes[0];
        assert_eq!(node.outputs[0].as_ref().unwrap().sizes, [2, 6, 1, 4]);
        let lists = [vec![1, 2], vec![1, 1], vec![0, 1], vec![0, 0], vec![0, 0]].map(Value::List);
        assert_eq!((&node.values[2], &node.values[3..8]), (&Value::Number(2), &lists[..]));
    }

    /// Of an image with 9 elements, windows of 3 with steps of 2 and one element of padding read 8.
    #[test]
    fn gradients_of_convolutions_are_convolutions() {
        let (x, w, y): ([usize; 3], [usize; 3], [usize; 3]) = ([2, 4, 9], [6, 2, 3], [2, 6, 4]);
        let gradient = |kind, shape: &[usize], operands: [&[usize]; 2]| {
            let op = Op::Conv(Conv(kind, geometry(2)));
            let operands = operands.map(|shape| operand(DType::F32, shape)).to_vec();
            graph(&Step::Library(library(op, shape, operands))).unwrap()
        };
        let input = gradient(ConvKind::InputGradient, &x, [&y, &w]);
        assert_eq!(numbers(&input), [operator::CONVOLUTION.number]);
        let values = &input.nodes[0].values;
        assert_eq!((&values[1], &values[7]), (&Value::Number(1), &Value::List(vec![0, 1])));
        let filter = gradient(ConvKind::FilterGradient, &w, [&x, &y]);
        assert_eq!(
            numbers(&filter),
            [&operator::IDENTITY, &operator::CONVOLUTION, &operator::IDENTITY].map(|row| row.number)
        );
        let node = &filter.nodes[1];
        let sizes = |seen: &Option<Seen>| seen.as_ref().unwrap().tensor.sizes.clone();
        assert_eq!((sizes(&node.inputs[0]), sizes(&node.inputs[1])), (vec![2, 4, 1, 8], vec![6, 2, 1, 4]));
        assert_eq!(node.outputs[0].as_ref().unwrap().sizes, [2, 6, 1, 3]);
        let lists = [vec![1, 1], vec![1, 2], vec![0, 1], vec![0, 0]].map(Value::List);
        assert_eq!(&node.values[3..7], &lists[..]);
    }

    #[test]
    fn sums_of_windows_are_averages_times_their_elements() {
        let pool = |kind, size| {
            let window = Geometry {
                kernel: [size].into_iter().collect(),
                padding: [(0, 0)].into_iter().collect(),
                ..geometry(1)
            };
            let op = Op::Pool(Pool(kind, window));
            graph(&Step::Library(library(op, &[2, 4, 4], vec![operand(DType::F32, &[2, 4, 6 + size])])))
        };
        let rows = [&operator::AVERAGE_POOLING, &operator::FILL, &operator::MULTIPLY];
        assert_eq!(numbers(&pool(PoolKind::Sum, 2).unwrap()), rows.map(|row| row.number));
        assert!(pool(PoolKind::Sum, 3).is_none(), "an average is rounded");
        // NaN is the greatest.
        assert!(numbers(&pool(PoolKind::Max, 2).unwrap()).contains(&operator::IS_NAN.number));
        assert!(numbers(&pool(PoolKind::ArgMax, 2).unwrap()).contains(&operator::SEQUENCE.number));
    }
}
