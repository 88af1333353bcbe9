//! Transposed copies for packing (see [`super::Transpose`]).

/// Copies element by element.
///
/// # Safety
/// `source` must have `lanes` rows of `k` elements, `lane_stride` apart, and `out` must have room for `k` rows of
/// `width`.
pub(crate) unsafe fn plain<T: Copy>(
    source: *const T,
    lane_stride: isize,
    lanes: usize,
    k: usize,
    out: *mut T,
    width: usize,
) {
    for p in 0..k {
        for lane in 0..lanes {
            // SAFETY: guaranteed by the caller.
            unsafe { *out.add(p * width + lane) = *source.offset(lane as isize * lane_stride).add(p) }
        }
    }
}

/// Transposes blocks of 16 by 16 through registers.
///
/// # Safety
/// Same as [`plain`]; the machine must have AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn avx512_f32(
    source: *const f32,
    lane_stride: isize,
    lanes: usize,
    k: usize,
    out: *mut f32,
    width: usize,
) {
    use std::arch::x86_64::*;

    let mut p = 0;
    while p < k {
        let count = (k - p).min(16);
        let mask = (0xffff_u32 >> (16 - count)) as u16;
        let mut lane = 0;
        while lane < lanes {
            let present = (lanes - lane).min(16);
            let of_lanes = (0xffff_u32 >> (16 - present)) as u16;
            // SAFETY: only existing lanes and elements are read and written.
            unsafe {
                let mut rows = [_mm512_setzero_ps(); 16];
                let from = source.offset(lane as isize * lane_stride).add(p);
                // Missing lanes are replaced by the last lane, which avoids a branch for each.
                for (i, row) in rows.iter_mut().enumerate() {
                    let from = from.offset(i.min(present - 1) as isize * lane_stride);
                    *row =
                        if count == 16 { _mm512_loadu_ps(from) } else { _mm512_maskz_loadu_ps(mask, from) };
                }
                let columns = transpose_16(rows);
                let to = out.add(p * width + lane);
                if count == 16 && present == 16 {
                    for (q, column) in columns.iter().enumerate() {
                        _mm512_storeu_ps(to.add(q * width), *column);
                    }
                } else {
                    for (q, column) in columns.iter().enumerate() {
                        if q < count {
                            _mm512_mask_storeu_ps(to.add(q * width), of_lanes, *column);
                        }
                    }
                }
            }
            lane += 16;
        }
        p += 16;
    }
}

/// Transposes 16 rows of 16.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn transpose_16(rows: [std::arch::x86_64::__m512; 16]) -> [std::arch::x86_64::__m512; 16] {
    use std::arch::x86_64::*;

    let mut pairs = rows;
    for i in (0..16).step_by(2) {
        pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    // Now 4 by 4 blocks in every quarter of a register.
    let mut fours = rows;
    let wide = |v: __m512| _mm512_castps_pd(v);
    for i in (0..16).step_by(4) {
        fours[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(wide(pairs[i]), wide(pairs[i + 2])));
        fours[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(wide(pairs[i]), wide(pairs[i + 2])));
        fours[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(wide(pairs[i + 1]), wide(pairs[i + 3])));
        fours[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(wide(pairs[i + 1]), wide(pairs[i + 3])));
    }
    let mut columns = rows;
    for i in 0..4 {
        // Quarters 0, 2 and 1, 3 of rows i, i + 4 and of rows i + 8, i + 12.
        let even_low = _mm512_shuffle_f32x4::<0b10_00_10_00>(fours[i], fours[i + 4]);
        let odd_low = _mm512_shuffle_f32x4::<0b11_01_11_01>(fours[i], fours[i + 4]);
        let even_high = _mm512_shuffle_f32x4::<0b10_00_10_00>(fours[i + 8], fours[i + 12]);
        let odd_high = _mm512_shuffle_f32x4::<0b11_01_11_01>(fours[i + 8], fours[i + 12]);
        columns[i] = _mm512_shuffle_f32x4::<0b10_00_10_00>(even_low, even_high);
        columns[i + 4] = _mm512_shuffle_f32x4::<0b10_00_10_00>(odd_low, odd_high);
        columns[i + 8] = _mm512_shuffle_f32x4::<0b11_01_11_01>(even_low, even_high);
        columns[i + 12] = _mm512_shuffle_f32x4::<0b11_01_11_01>(odd_low, odd_high);
    }
    columns
}
