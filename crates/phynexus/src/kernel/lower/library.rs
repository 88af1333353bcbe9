//! Library operations as fused kernels: products and windows are reductions, the others are elementwise.

use super::{contraction::Product, draft::Draft, narrow};
use crate::{
    DType, Scalar,
    kernel::{
        Index, Mask, Ranges,
        fused::{FusedOp, Fusion, Instruction, InstructionId, Store},
        step::{Library, Operand},
        view::{Coordinates, flat},
    },
    op::{ArgReduce, Binary, Combine, Conv, ConvKind, Geometry, Op, Pool, PoolKind, Unary},
    shape::{Dims, contiguous_strides},
};

/// The operation as a single fused kernel, with the epilogue applied to its result; the kernel's parameters are the
/// step's bindings. For a matrix product or a convolution, also the product that it sums. `None` if it is not a single
/// kernel.
pub(super) fn fused(library: &Library) -> Option<(Fusion, Option<Product>)> {
    let node = &library.node;
    let summed = |(draft, product): (Draft, Product)| (finish(draft, product.sum, library), Some(product));
    let other = |(draft, result): (Draft, InstructionId)| (finish(draft, result, library), None);
    Some(match node.op.exact() {
        Op::Dot => summed(dot(library)),
        Op::Conv(Conv(kind, geometry)) => summed(conv(library, *kind, geometry)),
        Op::Pool(Pool(kind, geometry)) => other(pool(library, *kind, geometry)),
        Op::ArgReduce(ArgReduce { combine, axis }) => other(arg_reduce(library, *combine, *axis)),
        _ => return None,
    })
}

/// A specification over the elements of the result, with the operands as its first parameters.
fn over(library: &Library, columns: &[usize]) -> Draft {
    let mut draft = Draft::new(&library.node.shape, columns);
    for operand in &library.operands {
        draft.parameter(operand.dtype, false);
    }
    draft
}

/// Stores the result, or applies the epilogue to it.
fn finish(mut draft: Draft, result: InstructionId, library: &Library) -> Fusion {
    let Some(epilogue) = &library.epilogue else {
        let output = draft.parameter(library.node.dtype, true);
        let rows = draft.fused.rows.len();
        let coordinates = &draft.ranges().coordinates()[..rows];
        let index = flat(coordinates, &contiguous_strides(&library.node.shape), 0);
        draft.store(output, result, index);
        return draft.fused;
    };
    // Parameter 0 is the result; the others follow the operands.
    let parameters = &epilogue.parameters;
    draft.fused.parameters.extend(parameters.iter().skip(1).cloned());
    let parameter = |p: u16| p + library.operands.len() as u16 - 1;
    let mut values: Vec<InstructionId> = Vec::with_capacity(epilogue.instructions.len());
    for Instruction { operation, dtype, .. } in &epilogue.instructions {
        let operation = match operation {
            FusedOp::Load { parameter: 0, .. } => {
                values.push(result);
                continue;
            }
            FusedOp::Load { parameter: p, index, mask, fill } => FusedOp::Load {
                parameter: parameter(*p),
                index: index.clone(),
                mask: mask.clone(),
                fill: *fill,
            },
            other => other.mapped(|v| values[v as usize]),
        };
        values.push(draft.emit(operation, *dtype));
    }
    let stores = epilogue.stores.iter().map(|store| Store {
        parameter: parameter(store.parameter),
        value: values[store.value as usize],
        index: store.index.clone(),
        replaces: store.replaces.map(parameter),
    });
    draft.fused.stores.extend(stores);
    draft.fused
}

/// Loads an element of an operand.
fn element(
    draft: &mut Draft,
    library: &Library,
    operand: usize,
    at: &[Index],
    mask: Mask,
    fill: Scalar,
) -> InstructionId {
    let Operand { layout, .. } = &library.operands[operand];
    draft.load(operand as u16, flat(at, &layout.strides, 0), mask, fill)
}

/// The sum of products of two elements over the columns, in the node's type.
fn product(draft: &mut Draft, library: &Library, left: (&[Index], Mask), right: (&[Index], Mask)) -> Product {
    let zero = Scalar::Int(0);
    let a = element(draft, library, 0, left.0, left.1, zero);
    let b = element(draft, library, 1, right.0, right.1, zero);
    let factors = [a, b];
    let (a, b) = (draft.cast(a, library.node.dtype), draft.cast(b, library.node.dtype));
    let product = draft.binary(Binary::Mul, a, b);
    let summed_steps = match library.operands[0].dtype.float8() {
        // Of 8-bit floats, Hopper's units keep 14 bits of each product.
        Some(_) => Some(1),
        // They cut off the last bits of a sum.
        None => narrow::is_split(&library.node.op).then_some(4),
    };
    Product { sum: draft.reduce(Combine::Sum, product), factors, summed_steps, part: None }
}

fn dot(library: &Library) -> (Draft, Product) {
    let rank = library.node.shape.len();
    let depth = library.operands[0].layout.shape[rank - 1];
    let mut draft = over(library, &[depth]);
    let at = draft.ranges().coordinates();
    let (mut left, mut right): (Coordinates, Coordinates) = (at[..rank].into(), at[..rank].into());
    left[rank - 1] = at[rank].clone();
    right[rank - 2] = at[rank].clone();
    let sum = product(&mut draft, library, (&left, Mask::default()), (&right, Mask::default()));
    (draft, sum)
}

/// The spatial position of element `tap` of the window `output`, and where that is inside the input.
fn tap(
    geometry: &Geometry,
    input: &[usize],
    output: &[Index],
    taps: &[Index],
    ranges: &Ranges,
) -> (Coordinates, Mask) {
    let mut mask = Mask::default();
    let position = |d: usize| {
        let step = |i: &Index, by: usize| i.scale(by as i64);
        let start = step(&output[d], geometry.stride[d]).add(&step(&taps[d], geometry.dilation[d]));
        let position = start.shift(-(geometry.padding[d].0 as i64));
        mask = mask.and(&Mask::within(&position, 0, input[d] as i64, ranges));
        position
    };
    let positions = (0..input.len()).map(position).collect();
    (positions, mask)
}

/// The windows whose element `tap` is at `input`, and where there is one.
fn window(
    geometry: &Geometry,
    outputs: &[usize],
    input: &[Index],
    taps: &[Index],
    ranges: &Ranges,
) -> (Coordinates, Mask) {
    let mut mask = Mask::default();
    let position = |d: usize| {
        let stride = geometry.stride[d] as i64;
        let start = input[d].shift(geometry.padding[d].0 as i64);
        let start = start.sub(&taps[d].scale(geometry.dilation[d] as i64));
        let window = start.quotient(stride, ranges);
        let whole = Mask::within(&start.remainder(stride, ranges), 0, 1, ranges);
        mask = mask.and(&whole).and(&Mask::within(&window, 0, outputs[d] as i64, ranges));
        window
    };
    let windows = (0..outputs.len()).map(position).collect();
    (windows, mask)
}

/// How many windows may have an element, along each dimension.
fn windows_of_element(geometry: &Geometry) -> Dims {
    let count = |d: usize| ((geometry.kernel[d] - 1) * geometry.dilation[d]) / geometry.stride[d] + 1;
    (0..geometry.kernel.len()).map(count).collect()
}

/// The windows that have the element at `input`, from the last one to earlier ones, which element of them it is, and
/// where there is such a window.
fn windows_over(
    geometry: &Geometry,
    outputs: &[usize],
    input: &[Index],
    before: &[Index],
    ranges: &Ranges,
) -> (Coordinates, Coordinates, Mask) {
    let (mut windows, mut taps, mut mask) = (Coordinates::new(), Coordinates::new(), Mask::default());
    for (d, input) in input.iter().enumerate() {
        let [stride, dilation] = [geometry.stride[d], geometry.dilation[d]].map(|step| step as i64);
        let start = input.shift(geometry.padding[d].0 as i64);
        let window = start.quotient(stride, ranges).sub(&before[d]);
        let distance = start.remainder(stride, ranges).add(&before[d].scale(stride));
        let tap = distance.quotient(dilation, ranges);
        mask = mask
            .and(&Mask::within(&distance.remainder(dilation, ranges), 0, 1, ranges))
            .and(&Mask::within(&tap, 0, geometry.kernel[d] as i64, ranges))
            .and(&Mask::within(&window, 0, outputs[d] as i64, ranges));
        windows.push(window);
        taps.push(tap);
    }
    (windows, taps, mask)
}

fn join(first: [Index; 2], rest: &[Index]) -> Coordinates {
    first.into_iter().chain(rest.iter().cloned()).collect()
}

/// Whether the channels of a convolution's first operand are neighbours in memory. Sums over channels and a window add
/// terms in the order in which they are in memory: the channels come last or first.
pub(super) fn has_channels_last(library: &Library) -> bool {
    let strides = &library.operands[0].layout.strides;
    strides[2..].iter().all(|stride| strides[1] < *stride)
}

fn conv(library: &Library, kind: ConvKind, geometry: &Geometry) -> (Draft, Product) {
    let shape = &library.node.shape;
    let [a, b] = [0, 1].map(|i| &library.operands[i].layout.shape);
    // Channels of x and of y, per group, are the filter's.
    let filter = if kind == ConvKind::FilterGradient { shape } else { b };
    let (channels, outputs) = (filter[1], filter[0] / geometry.groups);
    let summed = match kind {
        ConvKind::Forward => channels,
        ConvKind::InputGradient => outputs,
        ConvKind::FilterGradient => b[0],
    };
    let is_last = kind != ConvKind::FilterGradient && has_channels_last(library);
    let mut columns: Vec<usize> = [summed].iter().chain(&b[2..]).copied().collect();
    columns.rotate_left(usize::from(is_last));
    let mut draft = over(library, &columns);
    let ranges = draft.ranges();
    let mut at = ranges.coordinates();
    at[shape.len()..].rotate_right(usize::from(is_last));
    let (row, column) = at.split_at(shape.len());
    let (left, mask, right) = match kind {
        ConvKind::Forward => {
            let group = row[1].quotient(outputs as i64, &ranges);
            let (positions, mask) = tap(geometry, &a[2..], &row[2..], &column[1..], &ranges);
            let channel = group.scale(channels as i64).add(&column[0]);
            (join([row[0].clone(), channel], &positions), mask, [row[1].clone(), column[0].clone()])
        }
        ConvKind::InputGradient => {
            let group = row[1].quotient(channels as i64, &ranges);
            let (windows, mask) = window(geometry, &a[2..], &row[2..], &column[1..], &ranges);
            let output = group.scale(outputs as i64).add(&column[0]);
            let right = [output.clone(), row[1].remainder(channels as i64, &ranges)];
            (join([row[0].clone(), output], &windows), mask, right)
        }
        ConvKind::FilterGradient => {
            let group = row[0].quotient(outputs as i64, &ranges);
            let (positions, mask) = tap(geometry, &a[2..], &column[1..], &row[2..], &ranges);
            let channel = group.scale(channels as i64).add(&row[1]);
            (join([column[0].clone(), channel], &positions), mask, [column[0].clone(), row[0].clone()])
        }
    };
    let right = join(right, &column[1..]);
    let sum = product(&mut draft, library, (&left, mask), (&right, Mask::default()));
    (draft, sum)
}

fn pool(library: &Library, kind: PoolKind, geometry: &Geometry) -> (Draft, InstructionId) {
    let input = &library.operands[0].layout.shape;
    let dtype = library.operands[0].dtype;
    let columns = match kind {
        PoolKind::SumBackward => windows_of_element(geometry),
        _ => geometry.kernel.clone(),
    };
    let mut draft = over(library, &columns);
    let ranges = draft.ranges();
    let at = ranges.coordinates();
    let (row, taps) = at.split_at(library.node.shape.len());
    let plane = [row[0].clone(), row[1].clone()];
    if kind == PoolKind::SumBackward {
        let (windows, _, mask) = windows_over(geometry, &input[2..], &row[2..], taps, &ranges);
        let y = element(&mut draft, library, 0, &join(plane, &windows), mask, Scalar::Int(0));
        let sum = draft.reduce(Combine::Sum, y);
        return (draft, sum);
    }
    let (positions, mask) = tap(geometry, &input[2..], &row[2..], taps, &ranges);
    let combine = if kind == PoolKind::Sum { Combine::Sum } else { Combine::Max };
    let nothing = combine.identity(dtype);
    let x = element(&mut draft, library, 0, &join(plane, &positions), mask.clone(), nothing);
    if kind != PoolKind::ArgMax {
        let result = draft.reduce(combine, x);
        return (draft, result);
    }
    let position = flat(&positions, &contiguous_strides(&input[2..]), 0);
    let size = input[2..].iter().product();
    let result = first(&mut draft, combine, x, position, size, &mask);
    let result = draft.cast(result, DType::I64);
    (draft, result)
}

/// The gradient of max pooling in two specifications: which element of each window is the first maximum (parameter 0 is
/// the input, 1 the result, of this type), and the sum over an element's windows in which it is that one (parameters 0 to
/// 2 are these, the gradient and the result).
pub(super) fn max_pool_gradient(library: &Library, geometry: &Geometry) -> ([Fusion; 2], DType) {
    let [x, g] = [0, 1].map(|operand| &library.operands[operand]);
    let size = geometry.kernel.iter().product();
    let held = position_type(size);
    let stored = if u8::try_from(size).is_ok() { DType::U8 } else { held };
    let strides = contiguous_strides(&geometry.kernel);
    let (input, output) = (&x.layout.shape, &g.layout.shape);

    let mut firsts = Draft::new(output, &geometry.kernel);
    let (from, to) = (firsts.parameter(x.dtype, false), firsts.parameter(stored, true));
    let ranges = firsts.ranges();
    let at = ranges.coordinates();
    let (row, taps) = at.split_at(output.len());
    let (positions, mask) = tap(geometry, &input[2..], &row[2..], taps, &ranges);
    let place = flat(&join([row[0].clone(), row[1].clone()], &positions), &x.layout.strides, 0);
    let value = firsts.load(from, place, mask.clone(), Combine::Max.identity(x.dtype));
    let number = first(&mut firsts, Combine::Max, value, flat(taps, &strides, 0), size, &mask);
    let number = firsts.cast(number, stored);
    firsts.store(to, number, flat(row, &contiguous_strides(output), 0));

    let mut sums = Draft::new(input, &windows_of_element(geometry));
    let from = [stored, g.dtype].map(|dtype| sums.parameter(dtype, false));
    let to = sums.parameter(library.node.dtype, true);
    let ranges = sums.ranges();
    let at = ranges.coordinates();
    let (row, columns) = at.split_at(input.len());
    let (windows, taps, mask) = windows_over(geometry, &output[2..], &row[2..], columns, &ranges);
    let place = join([row[0].clone(), row[1].clone()], &windows);
    let number = flat(&place, &contiguous_strides(output), 0);
    let number = sums.load(from[0], number, mask.clone(), Scalar::Int(size as i64));
    let number = sums.cast(number, held);
    let own = sums.emit(FusedOp::Coordinate(flat(&taps, &strides, 0)), held);
    let is_own = sums.binary(Binary::Eq, number, own);
    let value = sums.load(from[1], flat(&place, &g.layout.strides, 0), mask, Scalar::Int(0));
    let zero = sums.constant(g.dtype, Scalar::Int(0));
    let value = sums.select(is_own, value, zero);
    let sum = sums.reduce(Combine::Sum, value);
    sums.store(to, sum, flat(row, &contiguous_strides(input), 0));
    ([firsts.fused, sums.fused], stored)
}

fn arg_reduce(library: &Library, combine: Combine, axis: usize) -> (Draft, InstructionId) {
    let size = library.operands[0].layout.shape[axis];
    let mut draft = over(library, &[size]);
    let at = draft.ranges().coordinates();
    let (row, column) = at.split_at(library.node.shape.len());
    let mut source: Coordinates = row.into();
    source[axis] = column[0].clone();
    let x = element(&mut draft, library, 0, &source, Mask::default(), Scalar::Int(0));
    let result = first(&mut draft, combine, x, column[0].clone(), size, &Mask::default());
    let result = draft.cast(result, DType::I64);
    (draft, result)
}

/// The first position below `size` of the values' extreme where the mask holds. NaN counts as an extreme.
fn first(
    draft: &mut Draft,
    combine: Combine,
    value: InstructionId,
    position: Index,
    size: usize,
    mask: &Mask,
) -> InstructionId {
    let extreme = draft.reduce(combine, value);
    let mut chosen = draft.binary(Binary::Eq, value, extreme);
    if draft.dtype(value).is_float() {
        let nan = draft.emit(FusedOp::Unary(Unary::IsNan, value), DType::Bool);
        chosen = draft.binary(Binary::Or, chosen, nan);
    }
    if let Some(holds) = draft.holds(mask) {
        chosen = draft.binary(Binary::And, chosen, holds);
    }
    let held = position_type(size);
    let position = draft.emit(FusedOp::Coordinate(position), held);
    let beyond = draft.constant(held, Scalar::Int(size as i64));
    let candidate = draft.select(chosen, position, beyond);
    draft.reduce(Combine::Min, candidate)
}

/// The type of positions below `size` and of `size` itself.
fn position_type(size: usize) -> DType {
    if i32::try_from(size).is_ok() { DType::I32 } else { DType::I64 }
}

/// The copies of the inputs to their places, one per launch: parameter 0 is the input, 1 the result.
pub(super) fn cat(library: &Library, axis: usize) -> Vec<Fusion> {
    let strides = contiguous_strides(&library.node.shape);
    let copied = |before: &mut usize, operand: &Operand| {
        let first = *before * strides[axis] as usize;
        *before += operand.layout.shape[axis];
        Some(copy(operand, &strides, first))
    };
    library.operands.iter().scan(0, copied).collect()
}

/// The copy of an operand to these strides, from this element on: parameter 0 is the operand, 1 the copy.
pub(super) fn copy(operand: &Operand, strides: &[isize], first: usize) -> Fusion {
    let mut draft = Draft::new(&operand.layout.shape, &[]);
    let at = draft.ranges().coordinates();
    let (input, output) = (draft.parameter(operand.dtype, false), draft.parameter(operand.dtype, true));
    let value = draft.load(input, flat(&at, &operand.layout.strides, 0), Mask::default(), Scalar::Int(0));
    draft.store(output, value, flat(&at, strides, first));
    draft.fused
}
