//! Tools for kernels of more than one operation: they are compiled for every instruction set, and written over blocks
//! of lanes that the compiler vectorises.

/// Elements per block: as many as a kernel with several live values can hold in registers.
pub(crate) const BLOCK: usize = 32;

/// Defines a function that returns, for an instruction set, `body::<A>` compiled for it: `unsafe fn(&Arguments)`.
macro_rules! compiled {
    ($(#[$attribute:meta])* $name:ident = $body:ident(&$arguments:ty)) => {
        $(#[$attribute])*
        fn $name(set: $crate::vector::InstructionSet) -> unsafe fn(&$arguments) {
            use $crate::vector::InstructionSet;
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt")]
            unsafe fn avx512(arguments: &$arguments) {
                // SAFETY: guaranteed by the caller.
                unsafe { $body::<$crate::vector::Contracted>(arguments) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt")]
            unsafe fn avx2(arguments: &$arguments) {
                // SAFETY: guaranteed by the caller.
                unsafe { $body::<$crate::vector::Contracted>(arguments) }
            }
            match set {
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx512 => avx512,
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx2 => avx2,
                #[cfg(target_arch = "aarch64")]
                InstructionSet::Neon => $body::<$crate::vector::Contracted>,
                InstructionSet::Plain => $body::<$crate::vector::Separate>,
            }
        }
    };
}
pub(crate) use compiled;

/// Reads `n <= BLOCK` elements; the remaining lanes are set to `rest`.
///
/// # Safety
/// `source` must have `n` elements.
#[inline(always)]
pub(crate) unsafe fn load(source: *const f32, n: usize, rest: f32) -> [f32; BLOCK] {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if n >= BLOCK {
            return source.cast::<[f32; BLOCK]>().read_unaligned();
        }
        let mut block = [rest; BLOCK];
        std::ptr::copy_nonoverlapping(source, block.as_mut_ptr(), n);
        block
    }
}

/// Writes the first `n <= BLOCK` lanes.
///
/// # Safety
/// `target` must have room for `n` elements.
#[inline(always)]
pub(crate) unsafe fn store(target: *mut f32, n: usize, block: &[f32; BLOCK]) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if n >= BLOCK {
            target.cast::<[f32; BLOCK]>().write_unaligned(*block);
        } else {
            std::ptr::copy_nonoverlapping(block.as_ptr(), target, n);
        }
    }
}

/// Applies a function to the index of every lane.
#[inline(always)]
pub(crate) fn lanes(f: impl Fn(usize) -> f32) -> [f32; BLOCK] {
    let mut block = [0.0; BLOCK];
    for (i, lane) in block.iter_mut().enumerate() {
        *lane = f(i);
    }
    block
}

/// Combines all lanes, by halves.
#[inline(always)]
pub(crate) fn combine(block: [f32; BLOCK], f: impl Fn(f32, f32) -> f32) -> f32 {
    let a: [f32; 16] = std::array::from_fn(|i| f(block[i], block[i + 16]));
    let b: [f32; 8] = std::array::from_fn(|i| f(a[i], a[i + 8]));
    let c: [f32; 4] = std::array::from_fn(|i| f(b[i], b[i + 4]));
    f(f(c[0], c[2]), f(c[1], c[3]))
}
