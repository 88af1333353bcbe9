//! The inner loops of matrix products and convolutions, compiled for each instruction set, and the choice for this
//! machine.

pub(crate) mod axpy;
pub(crate) mod bytes;
pub(crate) mod depthwise;
pub(crate) mod dot;
pub(crate) mod lanes;
pub(crate) mod patches;
pub(crate) mod tile;
mod transpose;
pub(crate) mod winograd;
pub(crate) mod words;

use std::sync::OnceLock;

use self::axpy::{STREAM_ROWS, stream};
use self::depthwise::{Depthwise, multiply, weigh};
use self::dot::{DOT_COLUMNS, DOT_ROWS, DotKernel, Dots, dot};
use self::lanes::{Lanes, Number, Plain};
use self::patches::{Gather, Taps, gather, row_products, weighted_rows};
use self::tile::{Tile, TileKernel, tile};
use self::winograd::Transform;

/// The instruction sets with kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionSet {
    /// Portable code for every machine.
    Plain,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// ARM's 128-bit vectors.
    Neon,
}

impl InstructionSet {
    /// All instruction sets, supported or not.
    pub const ALL: [InstructionSet; 4] =
        [InstructionSet::Plain, InstructionSet::Avx2, InstructionSet::Avx512, InstructionSet::Neon];

    /// True if this machine supports it.
    pub fn is_available(self) -> bool {
        match self {
            InstructionSet::Plain => true,
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("fma")
            }
            #[cfg(target_arch = "aarch64")]
            InstructionSet::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            _ => false,
        }
    }

    /// The best instruction set of this machine.
    pub fn best() -> InstructionSet {
        static BEST: OnceLock<InstructionSet> = OnceLock::new();
        *BEST.get_or_init(|| {
            let preference = [InstructionSet::Avx512, InstructionSet::Avx2, InstructionSet::Neon];
            preference.into_iter().find(|set| set.is_available()).unwrap_or(InstructionSet::Plain)
        })
    }
}

/// Copies a transposed block: `out[p * width + lane] = source[lane * lane_stride + p]` for every lane and p.
pub(crate) type Transpose<T> =
    unsafe fn(source: *const T, lane_stride: isize, lanes: usize, k: usize, out: *mut T, width: usize);

/// The kernels of one instruction set for one element type.
pub(crate) struct Kernels<T: 'static> {
    /// Elements per register.
    pub(crate) lanes: usize,
    /// Indexed by rows minus one and registers minus one.
    pub(crate) tiles: &'static [[TileKernel<T>; 2]],
    /// Indexed by rows minus one and columns minus one.
    pub(crate) dots: [[DotKernel<T>; DOT_COLUMNS]; DOT_ROWS],
    /// Indexed by rows minus one.
    pub(crate) streams: [TileKernel<T>; STREAM_ROWS],
    /// Used for packing.
    pub(crate) transpose: Transpose<T>,
    /// See [`patches::gather`].
    pub(crate) gather: unsafe fn(&Gather<'_, T>),
    /// See [`patches::weighted_rows`].
    pub(crate) weighted_rows: unsafe fn(&Taps<'_, T>),
    /// See [`patches::row_products`].
    pub(crate) row_products: unsafe fn(&Taps<'_, T>),
    /// See [`depthwise::weigh`].
    pub(crate) weigh: unsafe fn(&Depthwise<'_, T>),
    /// See [`depthwise::multiply`].
    pub(crate) multiply: unsafe fn(&Depthwise<'_, T>),
    /// See [`winograd::transform`].
    pub(crate) winograd: unsafe fn(winograd::Matrix, &Transform<T>),
}

impl<T> Kernels<T> {
    /// Rows of the tallest tile.
    pub(crate) fn rows(&self) -> usize {
        self.tiles.len()
    }
    /// Columns of the widest tile.
    pub(crate) fn columns(&self) -> usize {
        2 * self.lanes
    }
}

/// The kernels of a register type, compiled with its instruction set.
macro_rules! kernels {
    ($table:ident, $register:ty, $scalar:ty, $transpose:expr, [$($rows:literal)*] $(, $feature:literal)?) => {
        static $table: Kernels<$scalar> = {
            /// # Safety
            /// Same as [`tile::tile`].
            $(#[target_feature(enable = $feature)])?
            unsafe fn tiles<const M: usize, const W: usize>(t: &Tile<$scalar>) {
                // SAFETY: guaranteed by the caller.
                unsafe { tile::<$register, M, W>(t) }
            }
            /// # Safety
            /// Same as [`dot::dot`].
            $(#[target_feature(enable = $feature)])?
            unsafe fn dots<const R: usize, const C: usize>(d: &Dots<$scalar>) {
                // SAFETY: guaranteed by the caller.
                unsafe { dot::<$register, R, C>(d) }
            }
            /// # Safety
            /// Same as [`axpy::stream`].
            $(#[target_feature(enable = $feature)])?
            unsafe fn streams<const M: usize>(s: &Tile<$scalar>) {
                // SAFETY: guaranteed by the caller.
                unsafe { stream::<$register, M>(s) }
            }
            /// # Safety
            /// Same as [`patches::gather`].
            $(#[target_feature(enable = $feature)])?
            unsafe fn gathers(g: &Gather<'_, $scalar>) {
                // SAFETY: guaranteed by the caller.
                unsafe { gather::<$register>(g) }
            }
            /// # Safety
            /// Same as [`patches::weighted_rows`].
            $(#[target_feature(enable = $feature)])?
            unsafe fn weighted(t: &Taps<'_, $scalar>) {
                // SAFETY: guaranteed by the caller.
                unsafe { weighted_rows::<$register>(t) }
            }
            /// # Safety
            /// Same as [`patches::row_products`].
            $(#[target_feature(enable = $feature)])?
            unsafe fn products(t: &Taps<'_, $scalar>) {
                // SAFETY: guaranteed by the caller.
                unsafe { row_products::<$register>(t) }
            }
            /// # Safety
            /// Same as [`depthwise::weigh`].
            $(#[target_feature(enable = $feature)])?
            unsafe fn weighs(d: &Depthwise<'_, $scalar>) {
                // SAFETY: guaranteed by the caller.
                unsafe { weigh::<$register>(d) }
            }
            /// # Safety
            /// Same as [`depthwise::multiply`].
            $(#[target_feature(enable = $feature)])?
            unsafe fn multiplies(d: &Depthwise<'_, $scalar>) {
                // SAFETY: guaranteed by the caller.
                unsafe { multiply::<$register>(d) }
            }
            /// # Safety
            /// Same as [`winograd::transform`].
            $(#[target_feature(enable = $feature)])?
            unsafe fn transforms(matrix: winograd::Matrix, t: &Transform<$scalar>) {
                // SAFETY: guaranteed by the caller.
                unsafe { winograd::transform::<$register>(matrix, t) }
            }
            Kernels {
                lanes: <$register as Lanes>::N,
                tiles: &[$([tiles::<$rows, 1>, tiles::<$rows, 2>]),*],
                dots: [
                    [dots::<1, 1>, dots::<1, 2>, dots::<1, 3>, dots::<1, 4>],
                    [dots::<2, 1>, dots::<2, 2>, dots::<2, 3>, dots::<2, 4>],
                    [dots::<3, 1>, dots::<3, 2>, dots::<3, 3>, dots::<3, 4>],
                    [dots::<4, 1>, dots::<4, 2>, dots::<4, 3>, dots::<4, 4>],
                    [dots::<5, 1>, dots::<5, 2>, dots::<5, 3>, dots::<5, 4>],
                    [dots::<6, 1>, dots::<6, 2>, dots::<6, 3>, dots::<6, 4>],
                ],
                streams: [streams::<1>, streams::<2>, streams::<3>, streams::<4>],
                transpose: $transpose,
                gather: gathers,
                weighted_rows: weighted,
                row_products: products,
                weigh: weighs,
                multiply: multiplies,
                winograd: transforms,
            }
        };
    };
}

kernels!(PLAIN_F32, Plain<f32>, f32, transpose::plain::<f32>, [1 2 3 4]);
kernels!(PLAIN_F64, Plain<f64>, f64, transpose::plain::<f64>, [1 2 3 4]);
kernels!(PLAIN_I32, Plain<i32>, i32, transpose::plain::<i32>, [1 2 3 4]);
kernels!(PLAIN_I64, Plain<i64>, i64, transpose::plain::<i64>, [1 2 3 4]);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use std::arch::x86_64::*;

    kernels!(AVX2_F32, __m256, f32, transpose::plain::<f32>, [1 2 3 4 5 6], "avx2,fma");
    kernels!(AVX2_F64, __m256d, f64, transpose::plain::<f64>, [1 2 3 4 5 6], "avx2,fma");
    kernels!(AVX512_F32, __m512, f32, transpose::avx512_f32, [1 2 3 4 5 6 7 8 9 10 11 12 13 14], "avx512f");
    kernels!(AVX512_F64, __m512d, f64, transpose::plain::<f64>, [1 2 3 4 5 6 7 8 9 10 11 12 13 14], "avx512f");

    pub(super) fn f32(set: InstructionSet) -> &'static Kernels<f32> {
        match set {
            InstructionSet::Avx512 => &AVX512_F32,
            InstructionSet::Avx2 => &AVX2_F32,
            _ => &PLAIN_F32,
        }
    }
    pub(super) fn f64(set: InstructionSet) -> &'static Kernels<f64> {
        match set {
            InstructionSet::Avx512 => &AVX512_F64,
            InstructionSet::Avx2 => &AVX2_F64,
            _ => &PLAIN_F64,
        }
    }
}
#[cfg(target_arch = "x86_64")]
use x86 as machine;

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::*;
    use std::arch::aarch64::*;

    kernels!(NEON_F32, float32x4_t, f32, transpose::plain::<f32>, [1 2 3 4 5 6 7 8 9 10 11 12], "neon");
    kernels!(NEON_F64, float64x2_t, f64, transpose::plain::<f64>, [1 2 3 4 5 6 7 8 9 10 11 12], "neon");

    pub(super) fn f32(set: InstructionSet) -> &'static Kernels<f32> {
        if set == InstructionSet::Neon { &NEON_F32 } else { &PLAIN_F32 }
    }
    pub(super) fn f64(set: InstructionSet) -> &'static Kernels<f64> {
        if set == InstructionSet::Neon { &NEON_F64 } else { &PLAIN_F64 }
    }
}
#[cfg(target_arch = "aarch64")]
use arm as machine;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod machine {
    use super::*;

    pub(super) fn f32(_: InstructionSet) -> &'static Kernels<f32> {
        &PLAIN_F32
    }
    pub(super) fn f64(_: InstructionSet) -> &'static Kernels<f64> {
        &PLAIN_F64
    }
}

/// An element type with kernels.
pub(crate) trait HasKernels: Number + phynexus::Element {
    /// The kernels of an instruction set, which this machine must support.
    fn kernels(set: InstructionSet) -> &'static Kernels<Self>;
}

impl HasKernels for f32 {
    fn kernels(set: InstructionSet) -> &'static Kernels<f32> {
        machine::f32(set)
    }
}
impl HasKernels for f64 {
    fn kernels(set: InstructionSet) -> &'static Kernels<f64> {
        machine::f64(set)
    }
}
// Integers only have portable loops, on every machine.
impl HasKernels for i32 {
    fn kernels(_: InstructionSet) -> &'static Kernels<i32> {
        &PLAIN_I32
    }
}
impl HasKernels for i64 {
    fn kernels(_: InstructionSet) -> &'static Kernels<i64> {
        &PLAIN_I64
    }
}
