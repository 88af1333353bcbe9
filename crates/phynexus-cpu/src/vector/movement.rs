//! Moving and generating elements.

use phynexus::DType;

/// `(value, dst, n)`: every `dst[i]` becomes the element at `value`.
pub type FillKernel = unsafe fn(value: *const u8, dst: *mut u8, n: usize);
/// `(src, stride, dst, n)`: element i of one side is `stride * i` elements from its start; the other side is
/// contiguous.
pub type StridedKernel = unsafe fn(src: *const u8, stride: isize, dst: *mut u8, n: usize);
/// `(src, offsets, dst, n)`: `dst[i] = src[offsets[i]]`, with offsets in elements.
pub type IndexedKernel = unsafe fn(src: *const u8, offsets: *const isize, dst: *mut u8, n: usize);
/// `(start, step, dst, n)`: `dst[i] = start + step * i`, converted to the dtype like a cast.
pub type IotaKernel = unsafe fn(start: i64, step: i64, dst: *mut u8, n: usize);

macro_rules! by_size {
    ($size:expr, $kernel:ident) => {
        match $size {
            1 => $kernel::<u8>,
            2 => $kernel::<u16>,
            4 => $kernel::<u32>,
            _ => $kernel::<u64>,
        }
    };
}

/// Fills a vector with one element of `dtype`.
pub fn fill(dtype: DType) -> FillKernel {
    by_size!(dtype.size(), fill_elements)
}

/// Copies strided elements of `dtype`'s size to contiguous ones; any stride.
pub fn gather_strided(dtype: DType) -> StridedKernel {
    by_size!(dtype.size(), gather_strided_elements)
}

/// Copies contiguous elements to strided ones; any stride but 0.
pub fn scatter_strided(dtype: DType) -> StridedKernel {
    by_size!(dtype.size(), scatter_strided_elements)
}

/// Copies elements at given offsets to contiguous ones.
pub fn gather_indexed(dtype: DType) -> IndexedKernel {
    by_size!(dtype.size(), gather_indexed_elements)
}

/// Counts from a start by a step. `None` for `bool` and floats of 8 and 16 bits.
pub fn iota(dtype: DType) -> Option<IotaKernel> {
    Some(match dtype {
        DType::U8 | DType::I8 => iota_elements::<u8>,
        DType::U16 | DType::I16 => iota_elements::<u16>,
        DType::U32 | DType::I32 => iota_elements::<u32>,
        DType::U64 | DType::I64 => iota_elements::<u64>,
        DType::F32 => iota_elements::<f32>,
        DType::F64 => iota_elements::<f64>,
        DType::Bool | DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16 => return None,
    })
}

unsafe fn fill_elements<T: Copy>(value: *const u8, dst: *mut u8, n: usize) {
    if n > 0 {
        // SAFETY: the caller provides one element at value and n at dst.
        unsafe { std::slice::from_raw_parts_mut(dst.cast::<T>(), n).fill(value.cast::<T>().read_unaligned()) }
    }
}

unsafe fn gather_strided_elements<T: Copy>(src: *const u8, stride: isize, dst: *mut u8, n: usize) {
    let (src, dst) = (src.cast::<T>(), dst.cast::<T>());
    // SAFETY: the caller provides n elements at the strided places from src and n at dst.
    unsafe {
        match stride {
            1 => std::ptr::copy_nonoverlapping(src, dst, n),
            0 => fill_elements::<T>(src.cast(), dst.cast(), n),
            _ => {
                for i in 0..n {
                    *dst.add(i) = *src.offset(stride * i as isize);
                }
            }
        }
    }
}

unsafe fn scatter_strided_elements<T: Copy>(src: *const u8, stride: isize, dst: *mut u8, n: usize) {
    let (src, dst) = (src.cast::<T>(), dst.cast::<T>());
    // SAFETY: the caller provides n elements at src and n at the strided places from dst.
    unsafe {
        if stride == 1 {
            std::ptr::copy_nonoverlapping(src, dst, n);
        } else {
            for i in 0..n {
                *dst.offset(stride * i as isize) = *src.add(i);
            }
        }
    }
}

unsafe fn gather_indexed_elements<T: Copy>(src: *const u8, offsets: *const isize, dst: *mut u8, n: usize) {
    let (src, dst) = (src.cast::<T>(), dst.cast::<T>());
    for i in 0..n {
        // SAFETY: the caller provides n offsets, elements of src at each, and n elements at dst.
        unsafe { *dst.add(i) = *src.offset(*offsets.add(i)) }
    }
}

/// Number types that a 64-bit count converts to.
trait Count: Copy {
    fn of(count: i64) -> Self;
}

macro_rules! count {
    ($($t:ty),*) => {
        $(impl Count for $t {
            #[inline(always)]
            fn of(count: i64) -> $t {
                count as $t
            }
        })*
    };
}
count!(u8, u16, u32, u64, f32, f64);

unsafe fn iota_elements<T: Count>(start: i64, step: i64, dst: *mut u8, n: usize) {
    let dst = dst.cast::<T>();
    for i in 0..n {
        // SAFETY: the caller provides n elements at dst.
        unsafe { *dst.add(i) = T::of(start.wrapping_add(step.wrapping_mul(i as i64))) }
    }
}
