//! Packs operands in the order in which the tile kernels read them, converted to the type of the computation.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use phynexus::DType;

use crate::kernels::lanes::Number;
use crate::kernels::{HasKernels, Kernels};

/// Elements converted at a time.
const CHUNK: usize = 128;
/// Lanes of the widest panel.
pub(crate) const MAX_LANES: usize = 32;

/// An element type that kernels compute in, with conversions from and to the operands' types.
pub(crate) trait Accumulator: HasKernels {
    /// Steps of k per kernel call: a panel of B then fits in the first-level cache.
    const K_BLOCK: usize;
    /// One half; integers have none.
    const HALF: Option<Self>;
    /// Converts contiguous elements.
    ///
    /// # Safety
    /// `source` must have `count` elements of `dtype`, and `out` must have room for as many.
    unsafe fn widen(dtype: DType, source: *const u8, count: usize, out: *mut Self);
    /// Converts and stores `count` elements, `stride` elements apart.
    ///
    /// # Safety
    /// `source` must have `count` elements, and `out` must have room for as many of `dtype`.
    unsafe fn store(source: *const Self, count: usize, dtype: DType, out: *mut u8, stride: isize);
}

impl Accumulator for f32 {
    const K_BLOCK: usize = 320;
    const HALF: Option<f32> = Some(0.5);

    unsafe fn widen(dtype: DType, source: *const u8, count: usize, out: *mut f32) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let out = std::slice::from_raw_parts_mut(out, count);
            match dtype {
                DType::F16 => {
                    std::slice::from_raw_parts(source.cast::<f16>(), count).convert_to_f32_slice(out)
                }
                DType::BF16 => {
                    for (o, x) in out.iter_mut().zip(std::slice::from_raw_parts(source.cast::<u16>(), count))
                    {
                        *o = f32::from_bits(u32::from(*x) << 16);
                    }
                }
                _ if let Some(format) = dtype.float8() => {
                    for (o, x) in out.iter_mut().zip(std::slice::from_raw_parts(source, count)) {
                        *o = format.to_f32(*x);
                    }
                }
                _ => out.copy_from_slice(std::slice::from_raw_parts(source.cast(), count)),
            }
        }
    }

    unsafe fn store(source: *const f32, count: usize, dtype: DType, out: *mut u8, stride: isize) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let source = std::slice::from_raw_parts(source, count);
            match dtype {
                DType::F16 => {
                    let mut converted = [f16::ZERO; CHUNK];
                    for (i, part) in source.chunks(CHUNK).enumerate() {
                        let converted = &mut converted[..part.len()];
                        converted.convert_from_f32_slice(part);
                        scatter(converted, out.cast::<f16>().offset((i * CHUNK) as isize * stride), stride);
                    }
                }
                DType::BF16 => {
                    let mut converted = [bf16::ZERO; CHUNK];
                    for (i, part) in source.chunks(CHUNK).enumerate() {
                        let converted = &mut converted[..part.len()];
                        converted.convert_from_f32_slice(part);
                        scatter(converted, out.cast::<bf16>().offset((i * CHUNK) as isize * stride), stride);
                    }
                }
                _ => scatter(source, out.cast(), stride),
            }
        }
    }
}

impl Accumulator for f64 {
    const K_BLOCK: usize = 256;
    const HALF: Option<f64> = Some(0.5);

    unsafe fn widen(dtype: DType, source: *const u8, count: usize, out: *mut f64) {
        if dtype == DType::F64 {
            // SAFETY: guaranteed by the caller.
            unsafe { std::ptr::copy_nonoverlapping(source.cast(), out, count) };
            return;
        }
        let mut single = [0.0f32; CHUNK];
        for start in (0..count).step_by(CHUNK) {
            let n = CHUNK.min(count - start);
            // SAFETY: guaranteed by the caller, for one chunk at a time.
            unsafe {
                f32::widen(dtype, source.add(start * dtype.size()), n, single.as_mut_ptr());
                for (i, x) in single[..n].iter().enumerate() {
                    *out.add(start + i) = f64::from(*x);
                }
            }
        }
    }

    unsafe fn store(source: *const f64, count: usize, _: DType, out: *mut u8, stride: isize) {
        // SAFETY: guaranteed by the caller; the output type is `f64`, the only one computed this way.
        unsafe { scatter(std::slice::from_raw_parts(source, count), out.cast(), stride) }
    }
}

/// Stores elements `stride` apart.
///
/// # Safety
/// `out` must have room for them.
unsafe fn scatter<T: Copy>(source: &[T], out: *mut T, stride: isize) {
    for (i, x) in source.iter().enumerate() {
        // SAFETY: guaranteed by the caller.
        unsafe { *out.offset(i as isize * stride) = *x }
    }
}

/// The source of a panel: lanes (rows of A or columns of B) of `k` elements each. Strides are in elements.
#[derive(Clone, Copy)]
pub(crate) struct Lines {
    /// The first lane's first element.
    pub(crate) data: *const u8,
    pub(crate) dtype: DType,
    /// Lane stride.
    pub(crate) lane: isize,
    /// Stride between steps of k.
    pub(crate) step: isize,
}

/// Copies a panel: `out[p * width + l]` is step p of lane l, for `lanes` of at most `width` lanes; the other lanes are
/// undefined.
///
/// # Safety
/// The lines must exist, `out` must have room for `k` rows of `width` and one register, and the machine must support
/// the kernels' set. `width` must be at most 16 or a multiple of it, and at most [`MAX_LANES`].
pub(crate) unsafe fn panel<T: Accumulator>(
    lines: Lines,
    lanes: usize,
    k: usize,
    out: *mut T,
    width: usize,
    kernels: &Kernels<T>,
) {
    // SAFETY: guaranteed by the caller in all cases.
    unsafe {
        if lines.dtype == T::DTYPE {
            let source = lines.data.cast::<T>();
            if lines.lane == 1 {
                copy_rows(source, lines.step, lanes, k, out, width);
            } else if lines.step == 1 {
                (kernels.transpose)(source, lines.lane, lanes, k, out, width);
            } else {
                for p in 0..k {
                    let from = source.offset(p as isize * lines.step);
                    for l in 0..lanes {
                        *out.add(p * width + l) = *from.offset(l as isize * lines.lane);
                    }
                }
            }
            return;
        }
        let size = lines.dtype.size();
        if lines.step == 1 {
            let mut widened = [T::default(); MAX_LANES * CHUNK];
            for start in (0..k).step_by(CHUNK) {
                let n = CHUNK.min(k - start);
                for l in 0..lanes {
                    let from = lines.data.offset((l as isize * lines.lane + start as isize) * size as isize);
                    T::widen(lines.dtype, from, n, widened.as_mut_ptr().add(l * CHUNK));
                }
                (kernels.transpose)(
                    widened.as_ptr(),
                    CHUNK as isize,
                    lanes,
                    n,
                    out.add(start * width),
                    width,
                );
            }
            return;
        }
        let mut gathered = [0u64; MAX_LANES];
        for p in 0..k {
            let mut from = lines.data.offset(p as isize * lines.step * size as isize);
            if lines.lane != 1 {
                for l in 0..lanes {
                    let element = from.offset(l as isize * lines.lane * size as isize);
                    std::ptr::copy_nonoverlapping(
                        element,
                        gathered.as_mut_ptr().cast::<u8>().add(l * size),
                        size,
                    );
                }
                from = gathered.as_ptr().cast();
            }
            T::widen(lines.dtype, from, lanes, out.add(p * width));
        }
    }
}

/// Copies rows that are already contiguous.
///
/// # Safety
/// Same as [`panel`].
unsafe fn copy_rows<T: Number>(
    source: *const T,
    step: isize,
    lanes: usize,
    k: usize,
    out: *mut T,
    width: usize,
) {
    /// Lanes copied at once: a register of `f32`.
    const WIDE: usize = 16;
    // Excess reads end before the end of the next row. Excess writes are overwritten, or lie past the panel.
    let wide =
        if lanes < WIDE && size_of::<T>() == 4 && step >= WIDE as isize { k.saturating_sub(1) } else { 0 };
    for p in 0..wide {
        // SAFETY: guaranteed by the caller, and see above.
        unsafe { *out.add(p * width).cast::<[T; WIDE]>() = *source.offset(p as isize * step).cast() };
    }
    for p in wide..k {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (from, to) = (source.offset(p as isize * step), out.add(p * width));
            match lanes {
                // A fixed size compiles to a few register moves.
                MAX_LANES => *to.cast::<[T; MAX_LANES]>() = *from.cast(),
                _ => std::ptr::copy_nonoverlapping(from, to, lanes),
            }
        }
    }
}
