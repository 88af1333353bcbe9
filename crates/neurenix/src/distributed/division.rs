//! The division of a batch's rows among ranks.

use std::ops::Range;

/// How the rows of a batch are divided among the ranks of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// The rank.
    pub rank: usize,
    /// The number of ranks.
    pub size: usize,
    /// The number of rows that a rank needs: 2 for batch normalisation of single values.
    pub least: usize,
}

impl Division {
    /// The rows of a batch that count for this rank; none if there are too few for all ranks.
    pub fn own(&self, rows: usize) -> Range<usize> {
        let parts = self.size.min(rows / self.least.max(1)).max(1);
        let start = |rank: usize| rows * rank.min(parts) / parts;
        start(self.rank)..start(self.rank + 1)
    }

    /// The rows of a batch that this rank computes. There are always some, so that all ranks take part in the
    /// collectives.
    pub fn computed(&self, rows: usize) -> Range<usize> {
        let own = self.own(rows);
        if own.is_empty() { 0..self.least.max(1).min(rows) } else { own }
    }

    /// Whether equally many rows count for each rank.
    pub fn is_even(&self, rows: usize) -> bool {
        rows.is_multiple_of(self.size) && rows / self.size >= self.least.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_counts_once_and_every_rank_has_enough() {
        for (size, least) in [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (5, 2)] {
            for rows in 1..40 {
                let ranks: Vec<Division> = (0..size).map(|rank| Division { rank, size, least }).collect();
                let own: Vec<usize> = ranks.iter().flat_map(|rank| rank.own(rows)).collect();
                assert_eq!(own, (0..rows).collect::<Vec<_>>(), "{size} {least}");
                let counts: Vec<usize> = ranks.iter().map(|rank| rank.own(rows).len()).collect();
                assert_eq!(ranks[0].is_even(rows), counts.iter().all(|count| *count == counts[0]));
                for rank in ranks {
                    let computed = rank.computed(rows);
                    assert!(computed.len() >= least.min(rows) && computed.end <= rows, "{rank:?} {rows}");
                }
            }
        }
    }
}
