//! The loops of kernels, written once and compiled for every instruction set.
//!
//! A loop processes blocks of [`BLOCK`] elements: it reads a block of each operand, applies the function to its lanes,
//! and writes the block. All reads of a block precede its writes, so a destination may be a source. The compiler sees
//! local arrays that nothing else can access, and keeps them in vector registers. The remainder uses the same code
//! through a padded block, so an element's result does not depend on its position.

#![allow(
    clippy::needless_range_loop,
    reason = "lanes are numbered: the loops are read as vector instructions"
)]

use std::mem::MaybeUninit;

use super::instruction_set::InstructionSet;
use super::{BinaryKernel, BinaryKernels, TernaryKernel, UnaryKernel};

/// Elements per block. 64 elements fill four AVX-512 registers of `f32`: enough independent work to hide latencies, and
/// too many iterations for the compiler to unroll into scalars.
pub(super) const BLOCK: usize = 64;

/// The function of a kernel. Kernels are plain function pointers, so their functions must be stateless.
///
/// # Safety
/// A value of type `F` must have existed (the `pick` functions below take one): a zero-sized `Copy` type has a single
/// value.
#[inline(always)]
pub(super) unsafe fn stateless<F: Copy>() -> F {
    const { assert!(size_of::<F>() == 0, "kernel functions have no state") };
    // SAFETY: F has no bytes to read, and the caller guarantees that its value exists.
    unsafe { std::ptr::NonNull::<F>::dangling().read() }
}

/// Memory for a padded block with a remainder.
pub(super) struct Padded<T>(MaybeUninit<[T; BLOCK]>);

impl<T: Copy> Padded<T> {
    #[inline(always)]
    pub(super) fn new() -> Padded<T> {
        Padded(MaybeUninit::uninit())
    }

    /// Copies in `n < BLOCK` elements and repeats the last one: no lane computes anything new.
    #[inline(always)]
    unsafe fn fill(&mut self, src: *const T, n: usize) -> *const T {
        // SAFETY: the caller provides n readable elements, 0 < n < BLOCK.
        unsafe { self.fill_with(src, n, *src.add(n - 1)) }
    }

    /// Copies in `n < BLOCK` elements and sets the rest to `value`.
    #[inline(always)]
    pub(super) unsafe fn fill_with(&mut self, src: *const T, n: usize, value: T) -> *const T {
        let start = self.start();
        // SAFETY: the caller provides n readable elements, n < BLOCK.
        unsafe {
            std::ptr::copy_nonoverlapping(src, start, n);
            for i in n..BLOCK {
                *start.add(i) = value;
            }
        }
        start
    }

    #[inline(always)]
    fn start(&mut self) -> *mut T {
        self.0.as_mut_ptr().cast::<T>()
    }
}

/// `dst[i] = f(src[i])`. Elements for which `slow` holds are computed by `fallback`, so that a result does not depend
/// on its neighbours.
#[inline(always)]
unsafe fn map1<T: Copy, U: Copy, F: Fn(T) -> U, G: Fn(T) -> bool, S: Fn(T) -> U>(
    src: *const u8,
    dst: *mut u8,
    n: usize,
    f: F,
    slow: G,
    fallback: S,
) {
    let (mut a, mut d, mut blocks) = (src.cast::<T>(), dst.cast::<U>(), n / BLOCK);
    let rest = n % BLOCK;
    let mut a_rest = Padded::<T>::new();
    let mut d_rest = Padded::<U>::new();
    let d_rest = d_rest.start();
    let end = d_rest.wrapping_add(BLOCK);
    // SAFETY: the caller provides n elements at src and dst; blocks lie within them or within the padded blocks.
    unsafe {
        loop {
            while blocks > 0 {
                let x = a.cast::<[T; BLOCK]>().read_unaligned();
                let mut y = MaybeUninit::<[U; BLOCK]>::uninit();
                let out = y.as_mut_ptr().cast::<U>();
                let mut any = false;
                for i in 0..BLOCK {
                    any |= slow(x[i]);
                }
                for i in 0..BLOCK {
                    *out.add(i) = f(x[i]);
                }
                if any {
                    for i in 0..BLOCK {
                        *out.add(i) = if slow(x[i]) { fallback(x[i]) } else { *out.add(i) };
                    }
                }
                d.cast::<[U; BLOCK]>().write_unaligned(y.assume_init());
                (a, d, blocks) = (a.add(BLOCK), d.add(BLOCK), blocks - 1);
            }
            if rest == 0 {
                return;
            }
            if d == end {
                break;
            }
            a = a_rest.fill(a, rest);
            (d, blocks) = (d_rest, 1);
        }
        std::ptr::copy_nonoverlapping(d_rest, dst.cast::<U>().add(n - rest), rest);
    }
}

/// `dst[i] = f(a[i], b[i])`. A scalar operand is one element, read before the first write. `slow` and `fallback` are as
/// in [`map1`].
#[inline(always)]
unsafe fn map2<T: Copy, U: Copy, F, G, S, const A_SCALAR: bool, const B_SCALAR: bool>(
    a: *const u8,
    b: *const u8,
    dst: *mut u8,
    n: usize,
    f: F,
    slow: G,
    fallback: S,
) where
    F: Fn(T, T) -> U,
    G: Fn(T, T) -> bool,
    S: Fn(T, T) -> U,
{
    if n == 0 {
        return;
    }
    let (mut a, mut b, mut d, mut blocks) = (a.cast::<T>(), b.cast::<T>(), dst.cast::<U>(), n / BLOCK);
    let rest = n % BLOCK;
    let (mut a_rest, mut b_rest) = (Padded::<T>::new(), Padded::<T>::new());
    let mut d_rest = Padded::<U>::new();
    let d_rest = d_rest.start();
    let end = d_rest.wrapping_add(BLOCK);
    // SAFETY: the caller provides n elements for vector operands and dst, and one for a scalar operand; n > 0.
    unsafe {
        let (a_value, b_value) = (*a, *b);
        loop {
            while blocks > 0 {
                let x = if A_SCALAR { [a_value; BLOCK] } else { a.cast::<[T; BLOCK]>().read_unaligned() };
                let z = if B_SCALAR { [b_value; BLOCK] } else { b.cast::<[T; BLOCK]>().read_unaligned() };
                let operands =
                    |i: usize| (if A_SCALAR { a_value } else { x[i] }, if B_SCALAR { b_value } else { z[i] });
                let mut y = MaybeUninit::<[U; BLOCK]>::uninit();
                let out = y.as_mut_ptr().cast::<U>();
                let mut any = false;
                for i in 0..BLOCK {
                    let (a, b) = operands(i);
                    any |= slow(a, b);
                }
                for i in 0..BLOCK {
                    let (a, b) = operands(i);
                    *out.add(i) = f(a, b);
                }
                if any {
                    for i in 0..BLOCK {
                        let (a, b) = operands(i);
                        *out.add(i) = if slow(a, b) { fallback(a, b) } else { *out.add(i) };
                    }
                }
                d.cast::<[U; BLOCK]>().write_unaligned(y.assume_init());
                if !A_SCALAR {
                    a = a.add(BLOCK);
                }
                if !B_SCALAR {
                    b = b.add(BLOCK);
                }
                (d, blocks) = (d.add(BLOCK), blocks - 1);
            }
            if rest == 0 {
                return;
            }
            if d == end {
                break;
            }
            if !A_SCALAR {
                a = a_rest.fill(a, rest);
            }
            if !B_SCALAR {
                b = b_rest.fill(b, rest);
            }
            (d, blocks) = (d_rest, 1);
        }
        std::ptr::copy_nonoverlapping(d_rest, dst.cast::<U>().add(n - rest), rest);
    }
}

/// `dst[i] = f(a[i], b[i], c[i])`; scalar operands as in [`map2`].
#[inline(always)]
unsafe fn map3<C: Copy, T: Copy, F, const A_SCALAR: bool, const B_SCALAR: bool, const C_SCALAR: bool>(
    a: *const u8,
    b: *const u8,
    c: *const u8,
    dst: *mut u8,
    n: usize,
    f: F,
) where
    F: Fn(C, T, T) -> T,
{
    if n == 0 {
        return;
    }
    let (mut a, mut b, mut c, mut d) = (a.cast::<C>(), b.cast::<T>(), c.cast::<T>(), dst.cast::<T>());
    let (mut blocks, rest) = (n / BLOCK, n % BLOCK);
    let mut a_rest = Padded::<C>::new();
    let (mut b_rest, mut c_rest, mut d_rest) = (Padded::<T>::new(), Padded::<T>::new(), Padded::<T>::new());
    let d_rest = d_rest.start();
    let end = d_rest.wrapping_add(BLOCK);
    // SAFETY: the caller provides n elements for vector operands and dst, and one for a scalar operand; n > 0.
    unsafe {
        let (a_value, b_value, c_value) = (*a, *b, *c);
        loop {
            while blocks > 0 {
                let x = if A_SCALAR { [a_value; BLOCK] } else { a.cast::<[C; BLOCK]>().read_unaligned() };
                let z = if B_SCALAR { [b_value; BLOCK] } else { b.cast::<[T; BLOCK]>().read_unaligned() };
                let w = if C_SCALAR { [c_value; BLOCK] } else { c.cast::<[T; BLOCK]>().read_unaligned() };
                let mut y = MaybeUninit::<[T; BLOCK]>::uninit();
                let out = y.as_mut_ptr().cast::<T>();
                for i in 0..BLOCK {
                    *out.add(i) = f(
                        if A_SCALAR { a_value } else { x[i] },
                        if B_SCALAR { b_value } else { z[i] },
                        if C_SCALAR { c_value } else { w[i] },
                    );
                }
                d.cast::<[T; BLOCK]>().write_unaligned(y.assume_init());
                if !A_SCALAR {
                    a = a.add(BLOCK);
                }
                if !B_SCALAR {
                    b = b.add(BLOCK);
                }
                if !C_SCALAR {
                    c = c.add(BLOCK);
                }
                (d, blocks) = (d.add(BLOCK), blocks - 1);
            }
            if rest == 0 {
                return;
            }
            if d == end {
                break;
            }
            if !A_SCALAR {
                a = a_rest.fill(a, rest);
            }
            if !B_SCALAR {
                b = b_rest.fill(b, rest);
            }
            if !C_SCALAR {
                c = c_rest.fill(c, rest);
            }
            (d, blocks) = (d_rest, 1);
        }
        std::ptr::copy_nonoverlapping(d_rest, dst.cast::<T>().add(n - rest), rest);
    }
}

/// Defines, for a loop, two functions that convert a kernel's function to the kernel: one for instruction sets with
/// fused multiply-add, one for the plain set.
macro_rules! instantiate {
    ($vector:ident, $plain:ident -> $kernel:ty, $body:ident [$($generics:tt)*] [$($names:tt)*]
     ($($arg:ident: $ty:ty),*) ($($f:ident: $function:ident),*)) => {
        /// The kernel for `set`, which must not be the plain one.
        #[cfg(target_arch = "x86_64")]
        pub(super) fn $vector<$($generics)*>(set: InstructionSet, $(_: $function),*) -> $kernel {
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt")]
            unsafe fn avx512<$($generics)*>($($arg: $ty),*) {
                // SAFETY: the values of the functions were passed below; the kernel's caller guarantees the pointers.
                unsafe { $body::<$($names)*>($($arg,)* $(stateless::<$function>()),*) }
            }
            #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt")]
            unsafe fn avx2<$($generics)*>($($arg: $ty),*) {
                // SAFETY: as above.
                unsafe { $body::<$($names)*>($($arg,)* $(stateless::<$function>()),*) }
            }
            match set {
                InstructionSet::Avx512 => avx512::<$($names)*>,
                _ => avx2::<$($names)*>,
            }
        }

        /// The kernel for `set`, which must not be the plain one. Vectors with fused multiply-add are this target's
        /// baseline.
        #[cfg(not(target_arch = "x86_64"))]
        pub(super) fn $vector<$($generics)*>(_set: InstructionSet, $($f: $function),*) -> $kernel {
            $plain::<$($names)*>($($f),*)
        }

        /// The kernel compiled for the target's baseline.
        pub(super) fn $plain<$($generics)*>($(_: $function),*) -> $kernel {
            unsafe fn plain<$($generics)*>($($arg: $ty),*) {
                // SAFETY: as above.
                unsafe { $body::<$($names)*>($($arg,)* $(stateless::<$function>()),*) }
            }
            plain::<$($names)*>
        }
    };
}

pub(super) use instantiate;

instantiate!(vector_map1, plain_map1 -> UnaryKernel, map1
    [T: Copy, U: Copy, F: Fn(T) -> U + Copy, G: Fn(T) -> bool + Copy, S: Fn(T) -> U + Copy] [T, U, F, G, S]
    (src: *const u8, dst: *mut u8, n: usize) (f: F, slow: G, fallback: S));

instantiate!(vector_map2, plain_map2 -> BinaryKernel, map2
    [T: Copy, U: Copy, F: Fn(T, T) -> U + Copy, G: Fn(T, T) -> bool + Copy, S: Fn(T, T) -> U + Copy,
     const A_SCALAR: bool, const B_SCALAR: bool]
    [T, U, F, G, S, A_SCALAR, B_SCALAR]
    (a: *const u8, b: *const u8, dst: *mut u8, n: usize) (f: F, slow: G, fallback: S));

instantiate!(vector_map3, plain_map3 -> TernaryKernel, map3
    [C: Copy, T: Copy, F: Fn(C, T, T) -> T + Copy, const A_SCALAR: bool, const B_SCALAR: bool, const C_SCALAR: bool]
    [C, T, F, A_SCALAR, B_SCALAR, C_SCALAR]
    (a: *const u8, b: *const u8, c: *const u8, dst: *mut u8, n: usize) (f: F));

/// False for every element: the function needs no fallback.
pub(super) fn never<T>(_: T) -> bool {
    false
}

/// Like [`never`], for two operands.
pub(super) fn never2<T>(_: T, _: T) -> bool {
    false
}

/// The unary kernel of a function for any instruction set.
pub(super) fn unary<T: Copy, U: Copy>(set: InstructionSet, f: impl Fn(T) -> U + Copy) -> UnaryKernel {
    if set == InstructionSet::Plain { plain_map1(f, never, f) } else { vector_map1(set, f, never, f) }
}

/// The three binary kernels of a function for any instruction set.
pub(super) fn binary<T: Copy, U: Copy>(set: InstructionSet, f: impl Fn(T, T) -> U + Copy) -> BinaryKernels {
    if set == InstructionSet::Plain { plain_binary(f) } else { vector_binary(set, f) }
}

/// The three binary kernels of a function for sets with fused multiply-add.
pub(super) fn vector_binary<T: Copy, U: Copy>(
    set: InstructionSet,
    f: impl Fn(T, T) -> U + Copy,
) -> BinaryKernels {
    vector_guarded(set, f, never2, f)
}

/// The three binary kernels of a function for the plain set.
pub(super) fn plain_binary<T: Copy, U: Copy>(f: impl Fn(T, T) -> U + Copy) -> BinaryKernels {
    plain_guarded(f, never2, f)
}

/// Like [`vector_binary`], with a fallback where `slow` holds.
pub(super) fn vector_guarded<T: Copy, U: Copy>(
    set: InstructionSet,
    f: impl Fn(T, T) -> U + Copy,
    slow: impl Fn(T, T) -> bool + Copy,
    fallback: impl Fn(T, T) -> U + Copy,
) -> BinaryKernels {
    BinaryKernels {
        vector_vector: vector_map2::<T, U, _, _, _, false, false>(set, f, slow, fallback),
        vector_scalar: vector_map2::<T, U, _, _, _, false, true>(set, f, slow, fallback),
        scalar_vector: vector_map2::<T, U, _, _, _, true, false>(set, f, slow, fallback),
    }
}

/// Like [`plain_binary`], with a fallback where `slow` holds.
pub(super) fn plain_guarded<T: Copy, U: Copy>(
    f: impl Fn(T, T) -> U + Copy,
    slow: impl Fn(T, T) -> bool + Copy,
    fallback: impl Fn(T, T) -> U + Copy,
) -> BinaryKernels {
    BinaryKernels {
        vector_vector: plain_map2::<T, U, _, _, _, false, false>(f, slow, fallback),
        vector_scalar: plain_map2::<T, U, _, _, _, false, true>(f, slow, fallback),
        scalar_vector: plain_map2::<T, U, _, _, _, true, false>(f, slow, fallback),
    }
}
