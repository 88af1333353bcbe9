//! The counter-based random generator that orders batches. It is the same on every machine and has no state to save.

use phynexus::tensor::threefry2x32;

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
