//! Counter-based random words: Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as
//! easy as 1, 2, 3", 2011).

use super::instruction_set::InstructionSet;

/// `(state, first, dst, n)`: `dst[i]` (`uint32`) is word `first + i` of the op `RandomBits` with this state: a key of two
/// words and a 64-bit counter, low word first.
pub type RandomKernel = unsafe fn(state: &[u32; 4], first: u64, dst: *mut u32, n: usize);

/// Counters computed side by side.
const LANES: usize = 32;
const ROTATIONS: [u32; 8] = [13, 15, 26, 6, 17, 29, 16, 24];
const PARITY: u32 = 0x1bd1_1bda;

/// The generator for this processor.
pub fn random_bits() -> RandomKernel {
    random_bits_for(InstructionSet::best())
}

/// [`random_bits`] for one of the available instruction sets.
pub fn random_bits_for(set: InstructionSet) -> RandomKernel {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2")]
    unsafe fn avx512(state: &[u32; 4], first: u64, dst: *mut u32, n: usize) {
        // SAFETY: the kernel's caller guarantees the pointer.
        unsafe { words(state, first, dst, n) }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn avx2(state: &[u32; 4], first: u64, dst: *mut u32, n: usize) {
        // SAFETY: as above.
        unsafe { words(state, first, dst, n) }
    }
    unsafe fn plain(state: &[u32; 4], first: u64, dst: *mut u32, n: usize) {
        // SAFETY: as above.
        unsafe { words(state, first, dst, n) }
    }
    match set {
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512 => avx512,
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => avx2,
        _ => plain,
    }
}

/// # Safety
/// `dst` must address `n` elements.
#[inline(always)]
unsafe fn words(state: &[u32; 4], first: u64, dst: *mut u32, n: usize) {
    let start = u64::from(state[2]) | u64::from(state[3]) << 32;
    let mut done = 0;
    // A block starts at an even word; the first block possibly before `first`.
    let mut skip = (first % 2) as usize;
    while done < n {
        let counter = start.wrapping_add((first + done as u64) / 2);
        let block = threefry([state[0], state[1]], counter);
        let count = (2 * LANES - skip).min(n - done);
        // SAFETY: done + count <= n, skip + count <= 2 LANES.
        unsafe {
            std::ptr::copy_nonoverlapping(block.as_ptr().cast::<u32>().add(skip), dst.add(done), count)
        };
        done += count;
        skip = 0;
    }
}

/// The words of [`LANES`] counters, two per counter.
#[inline(always)]
fn threefry(key: [u32; 2], counter: u64) -> [[u32; 2]; LANES] {
    let keys = [key[0], key[1], PARITY ^ key[0] ^ key[1]];
    let (mut x, mut y) = ([0u32; LANES], [0u32; LANES]);
    for lane in 0..LANES {
        let counter = counter.wrapping_add(lane as u64);
        x[lane] = (counter as u32).wrapping_add(keys[0]);
        y[lane] = ((counter >> 32) as u32).wrapping_add(keys[1]);
    }
    for group in 0..5 {
        for round in 0..4 {
            let rotation = ROTATIONS[(4 * group + round) % 8];
            for lane in 0..LANES {
                x[lane] = x[lane].wrapping_add(y[lane]);
                y[lane] = y[lane].rotate_left(rotation) ^ x[lane];
            }
        }
        let (a, b) = (keys[(group + 1) % 3], keys[(group + 2) % 3].wrapping_add(group as u32 + 1));
        for lane in 0..LANES {
            x[lane] = x[lane].wrapping_add(a);
            y[lane] = y[lane].wrapping_add(b);
        }
    }
    std::array::from_fn(|lane| [x[lane], y[lane]])
}
