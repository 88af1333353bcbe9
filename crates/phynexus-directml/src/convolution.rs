//! Convolutions and their gradients as graphs.

use phynexus::{
    DType,
    kernel::step::Operand,
    op::{ConvKind, Geometry, ir::IrNode},
};

use crate::{
    graph::{Graph, Seen, Tensor, Value, strides},
    operator,
};

/// `DML_CONVOLUTION_MODE_CROSS_CORRELATION`.
const CROSS_CORRELATION: u32 = 1;
/// `DML_CONVOLUTION_DIRECTION_FORWARD` and `_BACKWARD`.
const FORWARD: u32 = 0;
const BACKWARD: u32 = 1;

/// A window over two or three dimensions; one over a single dimension is one over images of height 1.
#[derive(Clone)]
pub(crate) struct Window {
    pub(crate) kernel: Vec<usize>,
    pub(crate) stride: Vec<usize>,
    pub(crate) dilation: Vec<usize>,
    pub(crate) padding: Vec<(usize, usize)>,
    flat: bool,
}

impl Window {
    pub(crate) fn new(geometry: &Geometry) -> Option<Window> {
        if !(1..=3).contains(&geometry.kernel.len()) {
            return None;
        }
        let flat = geometry.kernel.len() == 1;
        let numbers = |given: &[usize]| flat.then_some(1).into_iter().chain(given.iter().copied()).collect();
        let padding = flat.then_some((0, 0)).into_iter().chain(geometry.padding.iter().copied()).collect();
        Some(Window {
            kernel: numbers(&geometry.kernel),
            stride: numbers(&geometry.stride),
            dilation: numbers(&geometry.dilation),
            padding,
            flat,
        })
    }

    /// The shape of images.
    pub(crate) fn images(&self, shape: &[usize]) -> Vec<usize> {
        self.with(shape, 1)
    }

    fn with<T: Copy>(&self, of: &[T], height: T) -> Vec<T> {
        let mut all = of.to_vec();
        if self.flat {
            all.insert(2, height);
        }
        all
    }

    /// An operand as images.
    pub(crate) fn operand(&self, graph: &mut Graph, binding: usize, of: &Operand) -> Option<Seen> {
        let (shape, steps) = (self.images(&of.layout.shape), self.with(&strides(of), 0));
        graph.operand(binding, of.dtype, &shape, &steps)
    }

    pub(crate) fn count(&self) -> Value {
        Value::Number(self.kernel.len() as u32)
    }

    /// The padding before, and after.
    pub(crate) fn sides(&self) -> Option<[Value; 2]> {
        Some([
            list(self.padding.iter().map(|(before, _)| *before))?,
            list(self.padding.iter().map(|(_, after)| *after))?,
        ])
    }
}

/// A list of numbers, if they have 32 bits.
pub(crate) fn list(numbers: impl IntoIterator<Item = usize>) -> Option<Value> {
    let numbers = numbers.into_iter().map(|number| u32::try_from(number).ok());
    numbers.collect::<Option<Vec<u32>>>().map(Value::List)
}

pub(crate) fn convolution(
    graph: &mut Graph,
    kind: ConvKind,
    geometry: &Geometry,
    a: &Operand,
    b: &Operand,
    of: &IrNode,
) -> Option<Seen> {
    let window = Window::new(geometry)?;
    let groups = geometry.groups;
    let is = |operand: &Operand, dtypes: &[DType]| dtypes.contains(&operand.dtype);
    match of.dtype {
        DType::F32 | DType::F16 if is(a, &[of.dtype]) && is(b, &[of.dtype]) => match kind {
            ConvKind::Forward => {
                let (x, w) = (window.operand(graph, 0, a)?, window.operand(graph, 1, b)?);
                let output = Tensor::new(of.dtype, &window.images(&of.shape), None)?;
                convolve(graph, FORWARD, &window, groups, [x, w], output, &vec![0; window.kernel.len()])
            }
            ConvKind::InputGradient => input_gradient(graph, &window, groups, a, b, of),
            ConvKind::FilterGradient => filter_gradient(graph, &window, groups, a, b, of),
        },
        DType::I32 if is(a, &[DType::I8, DType::U8]) && is(b, &[DType::I8, DType::U8]) => match kind {
            ConvKind::Forward => integer(graph, &window, groups, a, b, of),
            ConvKind::InputGradient | ConvKind::FilterGradient => None,
        },
        _ => None,
    }
}

/// An image with a filter. `extra` elements are added after each dimension of the output of a backward one.
fn convolve(
    graph: &mut Graph,
    direction: u32,
    window: &Window,
    groups: usize,
    [image, filter]: [Seen; 2],
    output: Tensor,
    extra: &[usize],
) -> Option<Seen> {
    let [before, after] = window.sides()?;
    let values = vec![
        Value::Number(CROSS_CORRELATION),
        Value::Number(direction),
        window.count(),
        list(window.stride.iter().copied())?,
        list(window.dilation.iter().copied())?,
        before,
        after,
        list(extra.iter().copied())?,
        Value::Number(u32::try_from(groups).ok()?),
    ];
    let inputs = vec![Some(image), Some(filter), None];
    Some(graph.result(&operator::CONVOLUTION, inputs, output, values))
}

/// The operands are the result's gradient and the filter.
fn input_gradient(
    graph: &mut Graph,
    window: &Window,
    groups: usize,
    y: &Operand,
    w: &Operand,
    of: &IrNode,
) -> Option<Seen> {
    let (x_shape, y_shape) = (window.images(&of.shape), window.images(&y.layout.shape));
    let (mut extra, mut padding) = (Vec::new(), Vec::new());
    for (d, &(before, after)) in window.padding.iter().enumerate() {
        // What no window reaches. DirectML adds zeros there, after it has cut off the padding.
        let reached =
            (y_shape[d + 2] - 1) * window.stride[d] + window.dilation[d] * (window.kernel[d] - 1) + 1;
        let unreached = (x_shape[d + 2] + before + after).checked_sub(reached)?;
        let both = unreached.min(after);
        extra.push(unreached - both);
        padding.push((before, after - both));
    }
    let window = &Window { padding, ..window.clone() };
    let (y, w) = (window.operand(graph, 0, y)?, window.operand(graph, 1, w)?);
    let output = Tensor::new(of.dtype, &x_shape, None)?;
    convolve(graph, BACKWARD, window, groups, [y, w], output, &extra)
}

/// The operands are the image and the result's gradient. It is a convolution of the image with the gradient as its
/// filter, in which channels and batch are exchanged, and strides and dilations too.
fn filter_gradient(
    graph: &mut Graph,
    window: &Window,
    groups: usize,
    x: &Operand,
    y: &Operand,
    of: &IrNode,
) -> Option<Seen> {
    let (x_shape, y_shape) = (window.images(&x.layout.shape), window.images(&y.layout.shape));
    let (x_steps, y_steps) = (window.with(&strides(x), 0), window.with(&strides(y), 0));
    let (batch, channels) = (x_shape[0], x_shape[1] / groups);
    let mut padding = Vec::new();
    let mut extents = Vec::new();
    for (d, &(before, _)) in window.padding.iter().enumerate() {
        // What the windows read, of the image and its padding.
        let read = (y_shape[d + 2] - 1) * window.stride[d] + (window.kernel[d] - 1) * window.dilation[d] + 1;
        let size = x_shape[d + 2].min(read.checked_sub(before).filter(|size| *size > 0)?);
        extents.push(size);
        padding.push((before, read - before - size));
    }
    let with_extents =
        |leading: &[usize]| -> Vec<usize> { leading.iter().chain(&extents).copied().collect() };
    let with_steps = |leading: &[i64]| -> Vec<i64> { leading.iter().chain(&x_steps[2..]).copied().collect() };
    let together = with_extents(&[channels, groups * batch]);
    let image = if groups == 1 {
        graph.operand(0, x.dtype, &together, &with_steps(&[x_steps[1], x_steps[0]]))?
    } else {
        // Only in a copy are groups and batch one dimension.
        let steps = with_steps(&[x_steps[1], x_steps[1] * channels as i64, x_steps[0]]);
        let apart = graph.operand(0, x.dtype, &with_extents(&[channels, groups, batch]), &steps)?;
        let packed = apart.tensor.like(x.dtype);
        let copied = graph.apply(&operator::IDENTITY, [apart], packed, Vec::new());
        Seen { edge: copied.edge, tensor: Tensor::new(x.dtype, &together, None)? }
    };
    let mut filter_shape = y_shape.clone();
    let mut filter_steps = y_steps;
    filter_shape.swap(0, 1);
    filter_steps.swap(0, 1);
    let filter = graph.operand(1, y.dtype, &filter_shape, &filter_steps)?;
    let exchanged = Window {
        kernel: y_shape[2..].to_vec(),
        stride: window.dilation.clone(),
        dilation: window.stride.clone(),
        padding,
        flat: window.flat,
    };
    let mut shape: Vec<usize> =
        [channels, y_shape[1]].into_iter().chain(window.kernel.iter().copied()).collect();
    let output = Tensor::new(of.dtype, &shape, None)?;
    let none = vec![0; window.kernel.len()];
    let result = convolve(graph, FORWARD, &exchanged, groups, [image, filter], output, &none)?;
    // The filter has the channels of its result first.
    let area: usize = window.kernel.iter().product();
    shape.swap(0, 1);
    let mut steps = vec![area as i64, (y_shape[1] * area) as i64];
    steps.extend((0..window.kernel.len()).map(|d| window.kernel[d + 1..].iter().product::<usize>() as i64));
    let turned = Seen { edge: result.edge, tensor: Tensor::new(of.dtype, &shape, Some(&steps))? };
    let packed = turned.tensor.like(of.dtype);
    Some(graph.apply(&operator::IDENTITY, [turned], packed, Vec::new()))
}

fn integer(
    graph: &mut Graph,
    window: &Window,
    groups: usize,
    x: &Operand,
    w: &Operand,
    of: &IrNode,
) -> Option<Seen> {
    let (x, w) = (window.operand(graph, 0, x)?, window.operand(graph, 1, w)?);
    let [before, after] = window.sides()?;
    let values = vec![
        window.count(),
        list(window.stride.iter().copied())?,
        list(window.dilation.iter().copied())?,
        before,
        after,
        Value::Number(u32::try_from(groups).ok()?),
    ];
    let output = Tensor::new(of.dtype, &window.images(&of.shape), None)?;
    Some(graph.result(&operator::CONVOLUTION_INTEGER, vec![Some(x), None, Some(w), None], output, values))
}
