//! Matrix products, convolutions and pooling: sums over windows.

use super::{
    accumulate::Accumulator,
    array::{OracleArray, every_coordinate, flat_index},
    number::Number,
    order::first_extreme,
};
use crate::{
    DType,
    op::{Combine, ConvKind, Geometry, PoolKind, ir::IrNode},
    shape::{Dims, element_count},
};

/// `[.., M, K]` times `[.., K, N]`.
pub(super) fn dot(node: &IrNode, a: &OracleArray, b: &OracleArray) -> Vec<Number> {
    let rank = node.shape.len();
    let (m, n, k) = (node.shape[rank - 2], node.shape[rank - 1], a.shape[rank - 1]);
    let mut out = Vec::with_capacity(node.len());
    for batch in 0..element_count(&node.shape[..rank - 2]) {
        for row in 0..m {
            for column in 0..n {
                let mut sum = Accumulator::new(Combine::Sum, node.dtype);
                for i in 0..k {
                    sum.push_product(
                        a.elements[(batch * m + row) * k + i],
                        b.elements[(batch * k + i) * n + column],
                    );
                }
                out.push(sum.result());
            }
        }
    }
    out
}

/// The position in one spatial plane of extents `input` of element `tap` of the window at `output`; `None` in the
/// padding.
fn tap_place(geometry: &Geometry, input: &[usize], output: &[usize], tap: &[usize]) -> Option<Dims> {
    (0..input.len())
        .map(|d| {
            let padded = output[d] * geometry.stride[d] + tap[d] * geometry.dilation[d];
            padded.checked_sub(geometry.padding[d].0).filter(|p| *p < input[d])
        })
        .collect()
}

/// A convolution or one of its gradients: every product of the bilinear form is added to the element that `kind`
/// assigns it to. A device may also fill the padding, and for the input's gradient the gaps between strides, with zeros
/// and multiply those.
pub(super) fn conv(
    kind: ConvKind,
    geometry: &Geometry,
    node: &IrNode,
    a: &OracleArray,
    b: &OracleArray,
) -> Vec<Number> {
    let (x, w, y) = match kind {
        ConvKind::Forward => (&a.shape, &b.shape, &node.shape),
        ConvKind::InputGradient => (&node.shape, &b.shape, &a.shape),
        ConvKind::FilterGradient => (&a.shape, &node.shape, &b.shape),
    };
    let mut sums = vec![Accumulator::new(Combine::Sum, node.dtype); node.len()];
    let (inputs_a_group, outputs_a_group) = (w[1], w[0] / geometry.groups);
    let taps: Vec<Dims> = every_coordinate(&w[2..]).collect();
    for at in every_coordinate(y) {
        let group = at[1] / outputs_a_group;
        for tap in &taps {
            let place = tap_place(geometry, &x[2..], &at[2..], tap);
            for channel in 0..inputs_a_group {
                let w_place = flat_index(w, &[&[at[1], channel], tap.as_slice()].concat());
                let Some(place) = &place else {
                    match kind {
                        ConvKind::Forward => sums[flat_index(y, &at)].push_zero_times(b.elements[w_place]),
                        ConvKind::FilterGradient => sums[w_place].push_zero_times(b.at(&at)),
                        ConvKind::InputGradient => {}
                    }
                    continue;
                };
                let x_at = [&[at[0], group * inputs_a_group + channel], place.as_slice()].concat();
                let w_at = [&[at[1], channel], tap.as_slice()].concat();
                let (x_place, w_place, y_place) =
                    (flat_index(x, &x_at), flat_index(w, &w_at), flat_index(y, &at));
                let (target, p, q) = match kind {
                    ConvKind::Forward => (y_place, x_place, w_place),
                    ConvKind::InputGradient => (x_place, y_place, w_place),
                    ConvKind::FilterGradient => (w_place, x_place, y_place),
                };
                sums[target].push_product(a.elements[p], b.elements[q]);
            }
        }
    }
    if kind == ConvKind::InputGradient {
        // Which elements of the output a tap misses depends only on the position. A non-finite filter element therefore
        // leaves open every sum that one of its taps may have missed.
        for (sum, at) in sums.iter_mut().zip(every_coordinate(x)) {
            let (group, channel) = (at[1] / inputs_a_group, at[1] % inputs_a_group);
            for tap in taps.iter().filter(|tap| !is_met(geometry, &y[2..], &at[2..], tap)) {
                for output in group * outputs_a_group..(group + 1) * outputs_a_group {
                    sum.push_zero_times(b.at(&[&[output, channel], tap.as_slice()].concat()));
                }
            }
        }
    }
    sums.iter().map(Accumulator::result).collect()
}

/// True if element `tap` of some window lies at `input`.
fn is_met(geometry: &Geometry, output: &[usize], input: &[usize], tap: &[usize]) -> bool {
    (0..input.len()).all(|d| {
        let start = (input[d] + geometry.padding[d].0).checked_sub(tap[d] * geometry.dilation[d]);
        start.is_some_and(|s| s.is_multiple_of(geometry.stride[d]) && s / geometry.stride[d] < output[d])
    })
}

/// Pooling.
pub(super) fn pool(kind: PoolKind, geometry: &Geometry, node: &IrNode, a: &OracleArray) -> Vec<Number> {
    let taps: Vec<Dims> = every_coordinate(&geometry.kernel).collect();
    if kind == PoolKind::Spread {
        let mut sums = vec![Accumulator::new(Combine::Sum, node.dtype); node.len()];
        for at in every_coordinate(&a.shape) {
            for place in taps.iter().filter_map(|tap| tap_place(geometry, &node.shape[2..], &at[2..], tap)) {
                let target = [&at[..2], place.as_slice()].concat();
                sums[flat_index(&node.shape, &target)].push(a.at(&at));
            }
        }
        return sums.iter().map(Accumulator::result).collect();
    }
    let window = |at: Dims| {
        let places = taps.iter().filter_map(|tap| tap_place(geometry, &a.shape[2..], &at[2..], tap));
        let elements: Vec<(usize, Number)> = places
            .map(|place| {
                let source = [&at[..2], place.as_slice()].concat();
                (flat_index(&a.shape[2..], &place), a.at(&source))
            })
            .collect();
        let combine = if kind == PoolKind::Sum { Combine::Sum } else { Combine::Max };
        if kind == PoolKind::ArgMax {
            return arg_max(&elements);
        }
        let mut accumulator = Accumulator::new(combine, a.dtype);
        elements.iter().for_each(|(_, element)| accumulator.push(*element));
        accumulator.result()
    };
    every_coordinate(&node.shape).map(window).collect()
}

/// The flat position of the first maximum of a window; none for a window that is all padding.
fn arg_max(window: &[(usize, Number)]) -> Number {
    let values: Vec<Number> = window.iter().map(|(_, element)| *element).collect();
    match first_extreme(Combine::Max, &values) {
        Number::Integer(i) => Number::Integer(window[i as usize].0 as i128),
        _ => Number::Undetermined,
    }
}

/// A reduction over several axes.
pub(super) fn reduce(combine: Combine, node: &IrNode, x: &OracleArray, dtype: DType) -> Vec<Number> {
    let mut accumulators = vec![Accumulator::new(combine, dtype); node.len()];
    for (mut at, element) in every_coordinate(&x.shape).zip(&x.elements) {
        at.iter_mut().zip(&node.shape).zip(&x.shape).for_each(|((c, &to), &from)| {
            if to == 1 && from != 1 {
                *c = 0;
            }
        });
        accumulators[flat_index(&node.shape, &at)].push(*element);
    }
    accumulators.iter().map(Accumulator::result).collect()
}
