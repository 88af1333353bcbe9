//! Parts of a whole, such as blocks of a buffer and descriptors of a heap.

use std::collections::BTreeMap;

/// The free parts of a whole, by where they begin. No two of them touch.
pub(crate) struct Ranges {
    free: BTreeMap<u64, u64>,
    size: u64,
}

impl Ranges {
    /// A free whole.
    pub(crate) fn new(size: u64) -> Ranges {
        Ranges { free: BTreeMap::from([(0, size)]), size }
    }

    /// Takes the first free part of this length, and returns where it begins.
    pub(crate) fn take(&mut self, length: u64) -> Option<u64> {
        let (&start, &room) = self.free.iter().find(|&(_, &room)| room >= length)?;
        self.free.remove(&start);
        if room > length {
            self.free.insert(start + length, room - length);
        }
        Some(start)
    }

    /// Frees a part that was taken.
    pub(crate) fn give_back(&mut self, start: u64, length: u64) {
        let (mut start, mut length) = (start, length);
        if let Some(after) = self.free.remove(&(start + length)) {
            length += after;
        }
        if let Some((&before, &room)) = self.free.range(..start).next_back()
            && before + room == start
        {
            self.free.remove(&before);
            (start, length) = (before, room + length);
        }
        self.free.insert(start, length);
    }

    /// Whether nothing is taken.
    pub(crate) fn is_free(&self) -> bool {
        self.free.get(&0) == Some(&self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_joined_and_taken_again() {
        let mut ranges = Ranges::new(10);
        assert_eq!(
            [4, 4, 4, 2, 1].map(|length| ranges.take(length)),
            [Some(0), Some(4), None, Some(8), None]
        );
        ranges.give_back(0, 4);
        ranges.give_back(8, 2);
        // Not joined: the middle is still taken.
        assert_eq!((ranges.take(5), ranges.is_free()), (None, false));
        ranges.give_back(4, 4);
        assert!(ranges.is_free());
        assert_eq!((ranges.take(10), ranges.is_free()), (Some(0), false));
    }

    #[test]
    fn parts_never_overlap() {
        let mut ranges = Ranges::new(1000);
        let (mut taken, mut seed) = (Vec::<(u64, u64)>::new(), 1u64);
        for _ in 0..2000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let length = 1 + (seed >> 40) % 90;
            let start = if seed >> 63 == 0 { ranges.take(length) } else { None };
            match start {
                Some(start) => {
                    assert!(start + length <= 1000);
                    assert!(taken.iter().all(|&(a, n)| a + n <= start || start + length <= a));
                    taken.push((start, length));
                }
                None if !taken.is_empty() => {
                    let (start, length) = taken.swap_remove((seed >> 20) as usize % taken.len());
                    ranges.give_back(start, length);
                }
                None => {}
            }
        }
        assert!(!taken.is_empty() && !ranges.is_free());
        taken.drain(..).for_each(|(start, length)| ranges.give_back(start, length));
        assert!(ranges.is_free());
    }
}
