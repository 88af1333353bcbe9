//! The counter-based random generator that orders batches. It is the same on every machine and has no state to save.

/// Threefry-2x32 with 20 rounds: 64 random bits from a key and a counter, both as (low, high) words.
///
/// Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
pub fn threefry2x32(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    const ROTATIONS: [u32; 8] = [13, 15, 26, 6, 17, 29, 16, 24];
    let keys = [key[0], key[1], key[0] ^ key[1] ^ 0x1BD1_1BDA];
    let mut x = [counter[0].wrapping_add(keys[0]), counter[1].wrapping_add(keys[1])];
    for round in 0..20usize {
        x[0] = x[0].wrapping_add(x[1]);
        x[1] = x[1].rotate_left(ROTATIONS[round % 8]) ^ x[0];
        if round % 4 == 3 {
            let injection = round / 4 + 1;
            x[0] = x[0].wrapping_add(keys[injection % 3]);
            x[1] = x[1].wrapping_add(keys[(injection + 1) % 3]).wrapping_add(injection as u32);
        }
    }
    x
}

/// A stream of random numbers for one key.
#[derive(Clone, Debug)]
pub struct RandomStream {
    key: [u32; 2],
    counter: u64,
}

impl RandomStream {
    /// The stream of `(seed, stream)`: different pairs give independent streams.
    pub fn new(seed: u64, stream: u64) -> RandomStream {
        let words = |v: u64| [v as u32, (v >> 32) as u32];
        RandomStream { key: threefry2x32(words(seed), words(stream)), counter: 0 }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let [low, high] = threefry2x32(self.key, [self.counter as u32, (self.counter >> 32) as u32]);
        self.counter += 1;
        u64::from(high) << 32 | u64::from(low)
    }

    /// A uniformly distributed integer from 0 to `bound - 1`; 0 if `bound` is 0.
    ///
    /// Source: Lemire, "Fast random integer generation in an interval", 2019.
    pub fn below(&mut self, bound: u64) -> u64 {
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            // Reject draws whose low half is below 2^64 mod bound: they would make some results more likely.
            if product as u64 >= bound.wrapping_neg().checked_rem(bound).unwrap_or(0) {
                return (product >> 64) as u64;
            }
        }
    }

    /// A number in [0, 1) with 53 random bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Shuffles a slice (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// The order in which an epoch visits `count` examples: a permutation that is a pure function of its arguments, so that
/// a resumed run continues exactly like an uninterrupted one.
pub fn epoch_order(seed: u64, epoch: u64, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    RandomStream::new(seed, epoch).shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threefry_gives_the_authors_known_answers() {
        // kat_vectors of the Random123 library, version 1.14.
        assert_eq!(threefry2x32([0, 0], [0, 0]), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(threefry2x32([u32::MAX; 2], [u32::MAX; 2]), [0x1cb9_96fc, 0xbb00_2be7]);
        let (key, counter) = ([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]);
        assert_eq!(threefry2x32(key, counter), [0xc492_3a9c, 0x483d_f7a0]);
    }

    #[test]
    fn orders_are_permutations_that_depend_on_seed_and_epoch_only() {
        for count in [0, 1, 2, 97, 1000] {
            let order = epoch_order(7, 3, count);
            assert_eq!(order, epoch_order(7, 3, count));
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..count).collect::<Vec<_>>());
        }
        assert_ne!(epoch_order(7, 3, 97), epoch_order(7, 4, 97));
        assert_ne!(epoch_order(7, 3, 97), epoch_order(8, 3, 97));
        // Computed by an independent implementation in Python. It must never change: runs started before the change
        // could no longer be resumed.
        assert_eq!(epoch_order(0, 0, 8), [6, 3, 4, 2, 5, 7, 0, 1]);
    }

    #[test]
    fn every_permutation_of_three_is_equally_likely() {
        let mut counts = std::collections::BTreeMap::new();
        for epoch in 0..6000 {
            *counts.entry(epoch_order(1, epoch, 3)).or_insert(0u32) += 1;
        }
        assert_eq!(counts.len(), 6);
        // A count has mean 1000 and standard deviation 29.
        assert!(counts.values().all(|&count| (850..1150).contains(&count)), "{counts:?}");
    }

    #[test]
    fn bounds_are_kept() {
        let mut stream = RandomStream::new(1, 2);
        assert_eq!(stream.below(0), 0);
        assert_eq!(stream.below(1), 0);
        let mean = (0..10_000).map(|_| stream.uniform()).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.015, "{mean}");
        assert!((0..1000).all(|_| stream.below(10) < 10));
    }
}
