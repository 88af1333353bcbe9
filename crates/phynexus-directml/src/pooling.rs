//! Pooling and its gradients as graphs.

use phynexus::{
    DType, Scalar,
    kernel::step::Operand,
    op::{Binary, Geometry, PoolKind, Unary, ir::IrNode},
};

use crate::{
    convolution::{Window, list},
    elementwise::{binary, cast, constant, select, sequence, unary},
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
        // DirectML clamps numbers to 32 bits.
        PoolKind::Max | PoolKind::ArgMax if x.dtype.size() == 8 => None,
        PoolKind::Max => {
            let image = window.operand(graph, 0, x)?;
            let [greatest, _] = maximum(graph, &window, image.clone(), of, false)?;
            if !x.dtype.is_float() {
                return Some(greatest);
            }
            let [clean, _] = nan_free(graph, &window, image, of, false)?;
            let nan = constant(graph, Scalar::Float(f64::NAN), x.dtype)?;
            select(graph, clean, greatest, nan)
        }
        PoolKind::ArgMax => {
            let image = window.operand(graph, 0, x)?;
            let [_, mut counted] = maximum(graph, &window, image.clone(), of, true)?;
            if x.dtype.is_float() {
                let [clean, nan] = nan_free(graph, &window, image, of, true)?;
                counted = select(graph, clean, counted, nan)?;
            }
            // DirectML counts from the first element of the whole image.
            let planes: Vec<usize> =
                of.shape[..2].iter().copied().chain(window.kernel.iter().map(|_| 1)).collect();
            let plane = x.layout.shape[2..].iter().product::<usize>();
            let first = sequence(graph, DType::U64, &planes, 0, i64::try_from(plane).ok()?)?;
            let place = binary(graph, Binary::Sub, counted, first)?;
            // The same bits.
            Some(Seen { edge: place.edge, tensor: place.tensor.like(DType::I64) })
        }
        PoolKind::Sum => sum(graph, &operator::AVERAGE_POOLING, &window, x, of),
        PoolKind::SumBackward => sum(graph, &operator::AVERAGE_POOLING_GRADIENT, &window, x, of),
    }
}

/// Whether a window has no NaN, which DirectML leaves out, and the place of the first.
fn nan_free(
    graph: &mut Graph,
    window: &Window,
    image: Seen,
    of: &IrNode,
    with_places: bool,
) -> Option<[Seen; 2]> {
    let nan = unary(graph, Unary::IsNan, image)?;
    let nan = cast(graph, nan, DType::F32)?;
    let [any, place] = maximum(graph, window, nan, of, with_places)?;
    let zero = constant(graph, Scalar::Float(0.0), DType::F32)?;
    Some([binary(graph, Binary::Eq, any, zero)?, place])
}

/// The greatest elements and their places, which are only computed on request.
fn maximum(
    graph: &mut Graph,
    window: &Window,
    image: Seen,
    of: &IrNode,
    with_places: bool,
) -> Option<[Seen; 2]> {
    let shape = window.images(&of.shape);
    let tensors = [Tensor::new(image.tensor.dtype, &shape, None)?, Tensor::new(DType::U64, &shape, None)?];
    let [before, after] = window.sides()?;
    let values = vec![
        window.count(),
        list(window.stride.iter().copied())?,
        list(window.kernel.iter().copied())?,
        before,
        after,
        list(window.dilation.iter().copied())?,
    ];
    let outputs = vec![Some(tensors[0].clone()), with_places.then(|| tensors[1].clone())];
    let node = graph.node(Node { row: &operator::MAX_POOLING, inputs: vec![Some(image)], outputs, values });
    let mut output = 0..;
    Some(tensors.map(|tensor| Seen { edge: Edge::Node(node, output.next().unwrap_or(0)), tensor }))
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
