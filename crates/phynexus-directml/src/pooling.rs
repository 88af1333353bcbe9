//! Pooling and its gradients as graphs.

use phynexus::{
    DType, Scalar,
    kernel::step::Operand,
    op::{Binary, Geometry, PoolKind, ir::IrNode},
};

use crate::{
    convolution::{Window, list},
    elementwise::{binary, cast, constant, sequence},
    graph::{Edge, Graph, Node, Seen, Tensor, Value},
    operator::{self, Row},
};

pub(crate) fn pool(
    graph: &mut Graph,
    kind: PoolKind,
    geometry: &Geometry,
    x: &Operand,
    of: &IrNode,
) -> Option<Seen> {
    let window = Window::new(geometry)?;
    match kind {
        // DirectML leaves NaN out, and clamps numbers to 32 bits.
        PoolKind::Max | PoolKind::ArgMax if x.dtype.is_float() || x.dtype.size() == 8 => None,
        PoolKind::Max => maximum(graph, &window, x, of, false),
        PoolKind::ArgMax => maximum(graph, &window, x, of, true),
        PoolKind::Sum => sum(graph, &operator::AVERAGE_POOLING, &window, x, of),
        PoolKind::SumBackward => sum(graph, &operator::AVERAGE_POOLING_GRADIENT, &window, x, of),
    }
}

/// The greatest elements, or their places in the plane.
fn maximum(graph: &mut Graph, window: &Window, x: &Operand, of: &IrNode, places: bool) -> Option<Seen> {
    let shape = window.images(&of.shape);
    let values = Tensor::new(x.dtype, &shape, None)?;
    let found = if places { Some(Tensor::new(DType::U64, &shape, None)?) } else { None };
    let [before, after] = window.sides()?;
    let fields = vec![
        window.count(),
        list(window.stride.iter().copied())?,
        list(window.kernel.iter().copied())?,
        before,
        after,
        list(window.dilation.iter().copied())?,
    ];
    let inputs = vec![Some(window.operand(graph, 0, x)?)];
    let outputs = vec![Some(values.clone()), found.clone()];
    let node = graph.node(Node { row: &operator::MAX_POOLING, inputs, outputs, values: fields });
    match found {
        Some(tensor) => {
            // DirectML counts from the first element of the whole image.
            let (planes, plane) = (shape[..2].to_vec(), x.layout.shape[2..].iter().product::<usize>());
            let planes: Vec<usize> = planes.into_iter().chain(window.kernel.iter().map(|_| 1)).collect();
            let first = sequence(graph, DType::U64, &planes, 0, i64::try_from(plane).ok()?)?;
            let counted = Seen { edge: Edge::Node(node, 1), tensor };
            let place = binary(graph, Binary::Sub, counted, first)?;
            cast(graph, place, DType::I64)
        }
        None => Some(Seen { edge: Edge::Node(node, 0), tensor: values }),
    }
}

/// Sums of windows, or their adjoint: averages times the elements of a window.
fn sum(graph: &mut Graph, row: &'static Row, window: &Window, x: &Operand, of: &IrNode) -> Option<Seen> {
    // Only then nothing is rounded that a sum does not round.
    let is_exact = window.kernel.iter().product::<usize>().is_power_of_two();
    if window.dilation.iter().any(|step| *step != 1) || x.dtype != DType::F32 || !is_exact {
        return None;
    }
    let [before, after] = window.sides()?;
    let padding_counts = Value::Number(1);
    let values = vec![
        window.count(),
        list(window.stride.iter().copied())?,
        list(window.kernel.iter().copied())?,
        before,
        after,
        padding_counts,
    ];
    let x = window.operand(graph, 0, x)?;
    let output = Tensor::new(of.dtype, &window.images(&of.shape), None)?;
    let average = graph.apply(row, [x], output, values);
    let elements = constant(graph, Scalar::Float(window.kernel.iter().product::<usize>() as f64), of.dtype)?;
    binary(graph, Binary::Mul, average, elements)
}
