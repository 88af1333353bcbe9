//! Packs bytes to the words that [`super::bytes`] multiplies.

use phynexus::DType;

use super::InstructionSet;
use super::bytes::Words;

/// How an operand's bytes become words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packing {
    pub(crate) set: InstructionSet,
    words: Words,
    signed: bool,
    /// Whether bytes are shifted by 128, which changes their signedness. Only for words of four bytes.
    flip: bool,
}

impl Packing {
    /// The packing of `int8` or `uint8` to words, whose bytes are signed or not.
    pub(crate) fn new(set: InstructionSet, words: Words, dtype: DType, wants_signed: bool) -> Packing {
        let signed = dtype == DType::I8;
        Packing { set, words, signed, flip: words == Words::FourBytes && signed != wants_signed }
    }

    /// What is subtracted from each byte when it is shifted, as a number modulo 2^32, so that `byte = shifted + this`.
    pub(crate) fn shift(self) -> i32 {
        match (self.flip, self.signed) {
            (false, _) => 0,
            (true, true) => -128,
            (true, false) => 128,
        }
    }

    /// Elements per word.
    pub(crate) fn elements(self) -> usize {
        self.words.elements()
    }

    /// A word of zeros, shifted.
    pub(crate) fn zero(self) -> u32 {
        if self.flip { 0x8080_8080 } else { 0 }
    }

    /// Packs a contiguous line: word q has elements `q * elements` on. Elements past the end are zero, not shifted.
    ///
    /// # Safety
    /// `from` must have `count` bytes, and `out` room for the words.
    pub(crate) unsafe fn line(self, from: *const u8, count: usize, out: *mut u32) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self.words {
                Words::FourBytes => {
                    let whole = count / 4;
                    for q in 0..whole {
                        *out.add(q) = from.cast::<u32>().add(q).read_unaligned() ^ self.zero();
                    }
                    if !count.is_multiple_of(4) {
                        let mut last = [0; 4];
                        for (to, i) in last.iter_mut().zip(4 * whole..count) {
                            *to = *from.add(i) ^ self.zero() as u8;
                        }
                        *out.add(whole) = u32::from_le_bytes(last);
                    }
                }
                Words::TwoShorts => {
                    let short = |i: usize| if i < count { self.short(*from.add(i)) } else { 0 };
                    for q in 0..count / 2 {
                        *out.add(q) = self.short(*from.add(2 * q)) | self.short(*from.add(2 * q + 1)) << 16;
                    }
                    if !count.is_multiple_of(2) {
                        *out.add(count / 2) = short(count - 1);
                    }
                }
            }
        }
    }

    /// Packs contiguous lines, which are `stride` bytes apart, and transposes the words: `out[q * width + l]` is word q of
    /// line l, as of [`Packing::line`]. Returns false if this instruction set has no code for it. May write up to one
    /// register past the last line of a row, before the next row is written, and past the end.
    ///
    /// # Safety
    /// The lines must have `count` bytes, `out` must have room for the words of `width` lines and one register, and the
    /// machine must support the instruction set.
    pub(crate) unsafe fn transposed(
        self,
        from: *const u8,
        stride: isize,
        lines: usize,
        count: usize,
        out: *mut u32,
        width: usize,
    ) -> bool {
        #[cfg(target_arch = "x86_64")]
        if self.set == InstructionSet::Avx512 && self.words == Words::FourBytes {
            // SAFETY: guaranteed by the caller.
            unsafe { x86::transposed(from, stride, lines, count, self.zero(), out, width) };
            return true;
        }
        let _ = (from, stride, lines, count, out, width);
        false
    }

    /// The bits of a byte as a 16-bit integer.
    #[inline(always)]
    fn short(self, byte: u8) -> u32 {
        if self.signed { u32::from(byte as i8 as i16 as u16) } else { u32::from(byte) }
    }

    /// Packs element i of each line to word i. Words of two elements use the first two lines.
    ///
    /// # Safety
    /// The lines must have `count` bytes, `out` room for as many words, and the machine must support the instruction
    /// set.
    pub(crate) unsafe fn interleave(self, lines: [*const u8; 4], count: usize, out: *mut u32) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self.set {
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx512 if self.words == Words::FourBytes => {
                    x86::interleave(lines, count, self.zero(), out)
                }
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx512 => x86::shorts_avx512(self, lines, count, out),
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx2 => x86::shorts_avx2(self, lines, count, out),
                _ => self.shorts(lines, count, out),
            }
        }
    }

    /// [`Packing::interleave`] for words of two elements.
    ///
    /// # Safety
    /// Same as [`Packing::interleave`].
    #[inline(always)]
    unsafe fn shorts(self, [first, second, ..]: [*const u8; 4], count: usize, out: *mut u32) {
        // Constant signedness lets the loops vectorise.
        // SAFETY: guaranteed by the caller.
        unsafe {
            if self.signed {
                for i in 0..count {
                    let (x, y) = (*first.add(i) as i8 as i16 as u16, *second.add(i) as i8 as i16);
                    *out.add(i) = u32::from(x) | (i32::from(y) << 16) as u32;
                }
            } else {
                for i in 0..count {
                    *out.add(i) = u32::from(*first.add(i)) | u32::from(*second.add(i)) << 16;
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::transpose::transpose_16;
    use super::Packing;
    use std::arch::x86_64::*;

    /// # Safety
    /// Same as [`Packing::interleave`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    pub(super) unsafe fn shorts_avx512(p: Packing, lines: [*const u8; 4], count: usize, out: *mut u32) {
        // SAFETY: guaranteed by the caller.
        unsafe { p.shorts(lines, count, out) }
    }

    /// # Safety
    /// Same as [`Packing::interleave`].
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn shorts_avx2(p: Packing, lines: [*const u8; 4], count: usize, out: *mut u32) {
        // SAFETY: guaranteed by the caller.
        unsafe { p.shorts(lines, count, out) }
    }

    /// Words of four bytes of 16 lines, 16 words at a time.
    ///
    /// # Safety
    /// Same as [`Packing::transposed`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    pub(super) unsafe fn transposed(
        from: *const u8,
        stride: isize,
        lines: usize,
        count: usize,
        flip: u32,
        out: *mut u32,
        width: usize,
    ) {
        let flip = _mm512_set1_epi32(flip as i32);
        for start in (0..count).step_by(64) {
            let present = (count - start).min(64);
            let mask = u64::MAX >> (64 - present);
            for line in (0..lines).step_by(16) {
                let last = (lines - line).min(16) - 1;
                // SAFETY: only existing lines and bytes are read. Rows are written in order, so excess writes of a
                // register are overwritten by the next row, and there is room past the last row.
                unsafe {
                    let first = from.offset(line as isize * stride).add(start);
                    let mut rows = [_mm512_setzero_ps(); 16];
                    for (i, row) in rows.iter_mut().enumerate() {
                        // Missing lines are replaced by the last, which avoids a branch for each.
                        let from = first.offset(i.min(last) as isize * stride);
                        let bytes = if present == 64 {
                            _mm512_xor_si512(_mm512_loadu_si512(from.cast()), flip)
                        } else {
                            let bytes = _mm512_maskz_loadu_epi8(mask, from.cast());
                            _mm512_maskz_mov_epi8(mask, _mm512_xor_si512(bytes, flip))
                        };
                        *row = _mm512_castsi512_ps(bytes);
                    }
                    let columns = transpose_16(rows);
                    let to = out.add(start / 4 * width + line).cast::<f32>();
                    for (q, column) in columns.iter().enumerate().take(present.div_ceil(4)) {
                        _mm512_storeu_ps(to.add(q * width), *column);
                    }
                }
            }
        }
    }

    /// Words of four bytes, 64 at a time.
    ///
    /// # Safety
    /// Same as [`Packing::interleave`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    pub(super) unsafe fn interleave(lines: [*const u8; 4], count: usize, flip: u32, out: *mut u32) {
        let flip = _mm512_set1_epi32(flip as i32);
        let mut done = 0;
        while done < count {
            let present = (count - done).min(64);
            let mask = u64::MAX >> (64 - present);
            // SAFETY: guaranteed by the caller; the masks exclude what lies past the end.
            unsafe {
                let mut bytes = [flip; 4];
                for (bytes, line) in bytes.iter_mut().zip(lines) {
                    *bytes = _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, line.add(done).cast()), flip);
                }
                let pairs = [
                    _mm512_unpacklo_epi8(bytes[0], bytes[1]),
                    _mm512_unpackhi_epi8(bytes[0], bytes[1]),
                    _mm512_unpacklo_epi8(bytes[2], bytes[3]),
                    _mm512_unpackhi_epi8(bytes[2], bytes[3]),
                ];
                // Quarter i of register j has words 16 i + 4 j on.
                let words = [
                    _mm512_unpacklo_epi16(pairs[0], pairs[2]),
                    _mm512_unpackhi_epi16(pairs[0], pairs[2]),
                    _mm512_unpacklo_epi16(pairs[1], pairs[3]),
                    _mm512_unpackhi_epi16(pairs[1], pairs[3]),
                ];
                let low = _mm512_shuffle_i32x4::<0b01_00_01_00>(words[0], words[1]);
                let low_too = _mm512_shuffle_i32x4::<0b01_00_01_00>(words[2], words[3]);
                let high = _mm512_shuffle_i32x4::<0b11_10_11_10>(words[0], words[1]);
                let high_too = _mm512_shuffle_i32x4::<0b11_10_11_10>(words[2], words[3]);
                let ordered = [
                    _mm512_shuffle_i32x4::<0b10_00_10_00>(low, low_too),
                    _mm512_shuffle_i32x4::<0b11_01_11_01>(low, low_too),
                    _mm512_shuffle_i32x4::<0b10_00_10_00>(high, high_too),
                    _mm512_shuffle_i32x4::<0b11_01_11_01>(high, high_too),
                ];
                let to = out.add(done).cast::<i32>();
                if present == 64 {
                    for (i, words) in ordered.into_iter().enumerate() {
                        _mm512_storeu_si512(to.add(16 * i).cast(), words);
                    }
                } else {
                    for (i, words) in ordered.into_iter().enumerate() {
                        _mm512_mask_storeu_epi32(to.add(16 * i), (mask >> (16 * i)) as u16, words);
                    }
                }
            }
            done += 64;
        }
    }
}
