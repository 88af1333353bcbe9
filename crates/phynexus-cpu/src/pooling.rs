//! Pooling over one to three spatial dimensions of contiguous tensors `[batch, channels, spatial..]`.
//!
//! Each plane is one task. Windows are processed tap by tap, each tap along a whole row of the output, so that the
//! innermost loop runs over adjacent elements.

use std::ops::{Add, Range};

use half::{bf16, f16};
use phynexus::op::{Geometry, PoolKind};
use phynexus::{DType, Error, Result};

use crate::by_dtype::by_dtype;
use crate::conv::check_windows;
use crate::gemm::blocked::Shared;
use crate::gemm::scratch::Scratch;
use crate::pool;

/// The sizes of a pooling operation.
#[derive(Clone, Copy, Debug)]
pub struct PoolShape<'a> {
    /// Images times channels.
    pub planes: usize,
    /// The spatial extents of the windowed tensor: one to three.
    pub input: &'a [usize],
    /// The number of windows along each axis.
    pub output: &'a [usize],
    /// The windows.
    pub geometry: &'a Geometry,
}

/// One axis: for each tap, the windows in which it is inside the input, and its place.
struct Axis {
    input: usize,
    output: usize,
    stride: usize,
    /// For every tap, its place in window 0, relative to the start of the input.
    taps: Vec<isize>,
    /// For every tap that is inside the input for any window: the place for the first of these windows, that window, and
    /// how many they are.
    spans: Vec<(usize, usize, usize)>,
}

impl Axis {
    fn new(input: usize, output: usize, stride: usize, taps: Vec<isize>) -> Axis {
        let mut axis = Axis { input, output, stride, taps, spans: Vec::new() };
        let span = |&tap: &isize| {
            let inside = axis.inside(tap);
            // Without a window, the product could overflow.
            let place = |first: usize| (first * stride).wrapping_add_signed(tap);
            (!inside.is_empty()).then(|| (place(inside.start), inside.start, inside.len()))
        };
        axis.spans = axis.taps.iter().filter_map(span).collect();
        axis
    }

    /// The windows whose tap is inside the input.
    fn inside(&self, tap: isize) -> Range<usize> {
        // Sizes may be as large as an address.
        let (stride, tap, output) = (self.stride as i128, tap as i128, self.output as i128);
        let first = ((-tap).max(0) + stride - 1) / stride;
        let last = (self.input as i128 - tap + stride - 1).max(0) / stride;
        first.min(output) as usize..last.clamp(first.min(output), output) as usize
    }

    /// The input index of a window's tap, if it is inside.
    fn place(&self, window: usize, tap: isize) -> Option<usize> {
        let place = (window * self.stride) as isize + tap;
        (0..self.input as isize).contains(&place).then_some(place as usize)
    }
}

/// Computes a pooling: of a tensor with `input` extents (`Max`, `ArgMax`, `Sum`; the result has `output` extents), or
/// of one with `output` extents (`SumBackward`; the result has `input` extents). Source and result have `dtype`, except that
/// the result of `ArgMax` is `int64`. 16-bit floats are summed in `f32` and rounded once; integer sums wrap. NaN is
/// greater than every number. A window entirely in the padding has the smallest possible maximum (minus infinity for
/// floats), at position 0.
///
/// # Errors
/// [`Error::Shape`] if the sizes do not match, [`Error::DType`] for sums of `bool`.
///
/// # Safety
/// Source and result must exist, be aligned, and not overlap.
pub unsafe fn pooling(
    kind: PoolKind,
    dtype: DType,
    shape: &PoolShape<'_>,
    source: *const u8,
    result: *mut u8,
) -> Result<()> {
    let axes = shape.axes()?;
    if dtype == DType::Bool && matches!(kind, PoolKind::Sum | PoolKind::SumBackward) {
        return Err(Error::dtype("pooling", &[dtype], "bool is not numeric; cast it first"));
    }
    // SAFETY: guaranteed by the caller.
    unsafe { by_dtype!(dtype, bool is u8, T => run::<T>(kind, shape.planes, &axes, source, result)) };
    Ok(())
}

impl PoolShape<'_> {
    /// The three axes; missing leading axes have extent 1. Checks every size.
    fn axes(&self) -> Result<[Axis; 3]> {
        let g = self.geometry;
        let rank = self.input.len();
        check_windows("pooling", self.input, g, self.output)?;
        Ok([0, 1, 2].map(|d: usize| match (d + rank).checked_sub(3) {
            None => Axis::new(1, 1, 1, vec![0]),
            Some(d) => {
                let tap = |r: usize| (r * g.dilation[d]) as isize - g.padding[d].0 as isize;
                let taps = (0..g.kernel[d]).map(tap).collect();
                Axis::new(self.input[d], self.output[d], g.stride[d], taps)
            }
        }))
    }
}

/// An element and the type of its computation: `f32` for 16-bit floats, otherwise its own type.
trait Element: Copy + Send + Sync {
    type Wide: Copy + PartialOrd + Default + Send + Sync;
    const LEAST: Self::Wide;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    fn add(a: Self::Wide, b: Self::Wide) -> Self::Wide;
}

macro_rules! element {
    ($t:ty, $wide:ty, $least:expr, $add:expr, |$x:ident| $widen:expr, |$y:ident| $narrow:expr) => {
        impl Element for $t {
            type Wide = $wide;
            const LEAST: $wide = $least;
            #[inline(always)]
            fn add(a: $wide, b: $wide) -> $wide {
                $add(a, b)
            }
            #[inline(always)]
            fn widen(self) -> $wide {
                let $x = self;
                $widen
            }
            #[inline(always)]
            fn narrow($y: $wide) -> $t {
                $narrow
            }
        }
    };
}
element!(f32, f32, f32::NEG_INFINITY, Add::add, |x| x, |y| y);
element!(f64, f64, f64::NEG_INFINITY, Add::add, |x| x, |y| y);
element!(f16, f32, f32::NEG_INFINITY, Add::add, |x| x.to_f32(), |y| f16::from_f32(y));
element!(bf16, f32, f32::NEG_INFINITY, Add::add, |x| x.to_f32(), |y| bf16::from_f32(y));

macro_rules! integers {
    ($($t:ident)*) => { $(element!($t, $t, $t::MIN, $t::wrapping_add, |x| x, |y| y);)* };
}
integers!(i8 i16 i32 i64 u8 u16 u32 u64);

/// Whether `x` replaces `best`: it is greater, or the first NaN.
#[inline(always)]
#[allow(clippy::eq_op)]
fn wins<T: Copy + PartialOrd>(x: T, best: T) -> bool {
    // Compiles to two comparisons without branches.
    (x > best) | ((x != x) & (best == best))
}

/// Computes the gradient of max pooling with respect to its input: each window's gradient is added to the first of its
/// maxima. Input and result have `input` extents, the gradient has `output` extents, and all are floats of `dtype`;
/// 16-bit floats are summed in `f32` and rounded once.
///
/// # Errors
/// [`Error::Shape`] if the sizes do not match.
///
/// # Safety
/// All three must exist and be aligned, and the result must not overlap the others.
pub unsafe fn max_pool_gradient(
    dtype: DType,
    shape: &PoolShape<'_>,
    input: *const u8,
    gradient: *const u8,
    result: *mut u8,
) -> Result<()> {
    let axes = shape.axes()?;
    // SAFETY: guaranteed by the caller.
    unsafe {
        by_dtype!(dtype, bool is u8, T => gradients::<T>(shape.planes, &axes, input, gradient, result));
    }
    Ok(())
}

/// The elements of a plane of the input and of the result, and the number of planes that are worth a task.
fn sizes(axes: &[Axis; 3]) -> [usize; 3] {
    let input: usize = axes.iter().map(|a| a.input).product();
    let output: usize = axes.iter().map(|a| a.output).product();
    let taps: usize = axes.iter().map(|a| a.taps.len()).product();
    [input, output, (1usize << 15).div_ceil((output * taps + input).max(1))]
}

/// # Safety
/// Same as [`max_pool_gradient`].
unsafe fn gradients<T: Element>(
    planes: usize,
    axes: &[Axis; 3],
    input: *const u8,
    gradient: *const u8,
    result: *mut u8,
) {
    let [of_input, of_output, group] = sizes(axes);
    if of_input == 0 {
        return;
    }
    let [input, gradient] = [input, gradient].map(|source| Shared(source.cast::<T>().cast_mut()));
    let result = Shared(result.cast::<T>());
    pool::parallel_for(planes.div_ceil(group), &|task| {
        let room = Scratch::new::<T::Wide>(of_output.max(of_input));
        let places = Scratch::new::<usize>(of_output);
        for plane in task * group..planes.min((task + 1) * group) {
            // SAFETY: the plane exists and belongs to this task; the scratch has room for it.
            unsafe {
                let wide = room.start::<T::Wide>();
                let places = filled(places.start(), of_output, NOWHERE);
                let x = std::slice::from_raw_parts(input.get().add(plane * of_input), of_input);
                first_maxima(axes, x, filled(wide, of_output, T::LEAST), places);
                let sums = filled(wide, of_input, T::Wide::default());
                let gradient = std::slice::from_raw_parts(gradient.get().add(plane * of_output), of_output);
                for (place, x) in places.iter().zip(gradient) {
                    sums[*place] = T::add(sums[*place], x.widen());
                }
                let out = result.get().add(plane * of_input);
                sums.iter().enumerate().for_each(|(i, &sum)| *out.add(i) = T::narrow(sum));
            }
        }
    });
}

/// Processes the planes, several per task if they are small.
///
/// # Safety
/// Same as [`pooling`].
unsafe fn run<T: Element>(
    kind: PoolKind,
    planes: usize,
    axes: &[Axis; 3],
    source: *const u8,
    result: *mut u8,
) {
    let [input, output, group] = sizes(axes);
    let is_backward = matches!(kind, PoolKind::SumBackward);
    let (from_size, to_size) = if is_backward { (output, input) } else { (input, output) };
    let (source, result) = (Shared(source.cast::<T>().cast_mut()), Shared(result));
    pool::parallel_for(planes.div_ceil(group), &|task| {
        let room = Scratch::new::<T::Wide>(to_size);
        let places = Scratch::new::<usize>(if kind == PoolKind::ArgMax { to_size } else { 0 });
        for plane in task * group..planes.min((task + 1) * group) {
            // SAFETY: the plane exists in source and result and belongs to this task; the scratch has room for it.
            unsafe {
                let source = std::slice::from_raw_parts(source.get().add(plane * from_size), from_size);
                let is_sum = matches!(kind, PoolKind::Sum | PoolKind::SumBackward);
                let start = if is_sum { T::Wide::default() } else { T::LEAST };
                let wide = filled(room.start(), to_size, start);
                match kind {
                    PoolKind::ArgMax => {
                        let places = filled(places.start(), to_size, NOWHERE);
                        first_maxima(axes, source, wide, places);
                        let out = result.get().cast::<i64>().add(plane * to_size);
                        places.iter().enumerate().for_each(|(i, &place)| *out.add(i) = place as i64);
                        continue;
                    }
                    PoolKind::Max => rows(axes, |from, to, width, stride| {
                        combine(&source[from..], stride, &mut wide[to..to + width], |best, x| {
                            if wins(x, *best) {
                                *best = x;
                            }
                        });
                    }),
                    PoolKind::Sum => rows(axes, |from, to, width, stride| {
                        combine(&source[from..], stride, &mut wide[to..to + width], |sum, x| {
                            *sum = T::add(*sum, x)
                        });
                    }),
                    PoolKind::SumBackward => rows(axes, |from, to, width, stride| {
                        for (x, sum) in
                            source[to..to + width].iter().zip(wide[from..].iter_mut().step_by(stride))
                        {
                            *sum = T::add(*sum, x.widen());
                        }
                    }),
                }
                let out = result.get().cast::<T>().add(plane * to_size);
                for (i, &x) in wide.iter().enumerate() {
                    *out.add(i) = T::narrow(x);
                }
            }
        }
    });
}

/// The memory, filled with a value.
///
/// # Safety
/// It must have room for `count` elements, and nothing else may use it.
unsafe fn filled<'a, V: Copy>(memory: *mut V, count: usize, value: V) -> &'a mut [V] {
    // SAFETY: guaranteed by the caller; every element is written first.
    unsafe {
        (0..count).for_each(|i| memory.add(i).write(value));
        std::slice::from_raw_parts_mut(memory, count)
    }
}

/// Calls `row(input index, output index, windows, stride)` for every tap and row of windows: window i of the row reads
/// input `index + i * stride`. The taps of a window are visited in ascending order.
fn rows(axes: &[Axis; 3], mut row: impl FnMut(usize, usize, usize, usize)) {
    let [planes, lines, columns] = axes;
    for z in 0..planes.output {
        for y in 0..lines.output {
            let to = (z * lines.output + y) * columns.output;
            for iz in planes.taps.iter().filter_map(|&tap| planes.place(z, tap)) {
                for iy in lines.taps.iter().filter_map(|&tap| lines.place(y, tap)) {
                    for &(place, window, count) in &columns.spans {
                        let from = (iz * lines.input + iy) * columns.input + place;
                        row(from, to + window, count, columns.stride);
                    }
                }
            }
        }
    }
}

/// Combines every element of `out` with the corresponding element of a strided row.
#[inline(always)]
fn combine<T: Element>(
    source: &[T],
    stride: usize,
    out: &mut [T::Wide],
    mut with: impl FnMut(&mut T::Wide, T::Wide),
) {
    match stride {
        // Constant strides are vectorised.
        1 => out.iter_mut().zip(source).for_each(|(o, x)| with(o, x.widen())),
        2 => {
            let last = out.len() - 1;
            let pairs = source.as_chunks::<2>().0;
            out[..last].iter_mut().zip(pairs).for_each(|(o, x)| with(o, x[0].widen()));
            with(&mut out[last], source[2 * last].widen());
        }
        _ => out.iter_mut().zip(source.iter().step_by(stride)).for_each(|(o, x)| with(o, x.widen())),
    }
}

/// The first place of the greatest element of each window; 0 for a window in the padding. `best` must be filled with the
/// least element, and `places` with [`NOWHERE`].
fn first_maxima<T: Element>(axes: &[Axis; 3], source: &[T], best: &mut [T::Wide], places: &mut [usize]) {
    // The first element of a window is always taken, so that a window of minus infinities has a place inside the input.
    rows(axes, |from, to, width, stride| {
        let windows = best[to..to + width].iter_mut().zip(&mut places[to..to + width]);
        for (i, (best, place)) in windows.enumerate() {
            let at = from + i * stride;
            let x = source[at].widen();
            // Without branches: which element wins cannot be predicted.
            let is_taken = wins(x, *best) | (*place == NOWHERE);
            *best = if is_taken { x } else { *best };
            *place = if is_taken { at } else { *place };
        }
    });
    places.iter_mut().filter(|place| **place == NOWHERE).for_each(|place| *place = 0);
}

/// The place of a window without elements.
const NOWHERE: usize = usize::MAX;

#[cfg(test)]
mod tests;
