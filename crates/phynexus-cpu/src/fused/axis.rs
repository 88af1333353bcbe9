//! The two axes of a tile, and how they are cut into tiles.
//!
//! A tile is a piece of the iteration space with an outer axis and a lane axis; kernels of the vector library run along
//! the lanes. Each axis is a list of ranges in row-major order, indexed by a single position.

use smallvec::SmallVec;

/// The index of the outer axis in arrays of two.
pub(super) const OUTER: usize = 0;
/// The index of the lane axis in arrays of two.
pub(super) const LANES: usize = 1;

/// Extents of the ranges of an axis, outermost first.
pub(super) type Extents = SmallVec<[usize; 4]>;
/// One coordinate per range.
pub(super) type Point = SmallVec<[usize; 4]>;

/// The coordinates of a position.
pub(super) fn decompose(extents: &[usize], mut position: usize) -> Point {
    if let [_] = extents {
        return Point::from_slice(&[position]);
    }
    let mut point = Point::from_elem(0, extents.len());
    for (coordinate, &extent) in point.iter_mut().zip(extents).rev() {
        *coordinate = position % extent;
        position /= extent;
    }
    point
}

/// A run of adjacent positions: `rows` times `count` positions. The innermost coordinate counts through each row, the
/// coordinate before it through the rows (which are whole ranges if there are several).
pub(super) struct Block<'a> {
    /// The first position, relative to the start of the walk.
    pub(super) position: usize,
    /// The coordinates of the first position.
    pub(super) point: &'a [usize],
    /// The number of rows.
    pub(super) rows: usize,
    /// Positions per row.
    pub(super) count: usize,
}

/// Calls `body` for the positions `start..start + count` in as few blocks as possible; blocks have one row unless
/// `several_rows`.
pub(super) fn walk(
    extents: &[usize],
    start: usize,
    count: usize,
    several_rows: bool,
    mut body: impl FnMut(Block<'_>),
) {
    let rank = extents.len();
    let Some(&inner) = extents.last() else {
        // An axis without ranges has a single position.
        if count > 0 {
            body(Block { position: 0, point: &[], rows: 1, count: 1 });
        }
        return;
    };
    let mut point = decompose(extents, start);
    let mut position = 0;
    while position < count {
        let left = count - position;
        let here = (inner - point[rank - 1]).min(left);
        let whole = several_rows && rank > 1 && here == inner;
        let rows = if whole { (left / inner).min(extents[rank - 2] - point[rank - 2]) } else { 1 };
        body(Block { position, point: &point, rows, count: here });
        position += rows * here;
        // The block ends at the end of a row or of the walk.
        point[rank - 1] = 0;
        if rank > 1 {
            point[rank - 2] += rows;
        }
        for axis in (1..rank.saturating_sub(1)).rev() {
            if point[axis] == extents[axis] {
                point[axis] = 0;
                point[axis - 1] += 1;
            }
        }
    }
}

/// An axis cut into pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Positions between two restarts of the cutting.
    inner: usize,
    piece: usize,
    pieces_per_inner: usize,
    /// The number of pieces.
    pub(super) count: usize,
    /// Positions of the longest piece.
    pub(super) longest: usize,
}

impl Cut {
    /// Cuts into pieces of at most `piece` positions, and at least one: within the innermost range if it is long
    /// enough, otherwise into whole innermost ranges.
    pub(super) fn new(extents: &[usize], piece: usize) -> Cut {
        let total: usize = extents.iter().product();
        let innermost = extents.last().copied().unwrap_or(1);
        let piece = piece.max(1);
        let (inner, piece) = if innermost >= piece {
            // Pieces of similar size, in multiples of a cache line of elements.
            let pieces = innermost.div_ceil(piece);
            let even = innermost.div_ceil(pieces);
            (innermost, if even > 64 { even.next_multiple_of(64).min(piece) } else { even })
        } else {
            (total, (piece / innermost.max(1)).max(1) * innermost.max(1))
        };
        let piece = piece.min(inner).max(1);
        let pieces_per_inner = inner.div_ceil(piece);
        // Every extent is positive: kernels without rows or columns are handled earlier.
        let count = total / inner.max(1) * pieces_per_inner;
        Cut { inner, piece, pieces_per_inner, count, longest: piece }
    }

    /// Cuts an axis with these nonzero extents into pieces of at most `longest` positions: parts of the innermost
    /// range, or whole ranges. The result depends only on the arguments.
    pub(super) fn segments(extents: &[usize], longest: usize) -> Cut {
        let total: usize = extents.iter().product();
        let whole = extents.iter().rev().scan(1usize, |product, &extent| {
            *product = product.saturating_mul(extent);
            Some(*product)
        });
        let whole = whole.take_while(|&product| product <= longest).last();
        let innermost = extents.last().copied().unwrap_or(1);
        let (inner, piece) = match whole {
            Some(product) => (total, longest / product * product),
            None => (innermost, longest),
        };
        let piece = piece.min(inner);
        let pieces_per_inner = inner.div_ceil(piece);
        Cut { inner, piece, pieces_per_inner, count: total / inner * pieces_per_inner, longest: piece }
    }

    /// A single piece.
    pub(super) fn whole(total: usize) -> Cut {
        let inner = total.max(1);
        Cut { inner, piece: inner, pieces_per_inner: 1, count: 1, longest: total }
    }

    /// The first position of a piece and its number of positions.
    pub(super) fn piece(&self, at: usize) -> (usize, usize) {
        let within = at % self.pieces_per_inner * self.piece;
        let start = at / self.pieces_per_inner * self.inner + within;
        (start, self.piece.min(self.inner - within).min(self.longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_axis_once_in_order() {
        let lists: [&[usize]; 8] = [&[], &[1], &[7], &[3, 5], &[2, 3, 4], &[100, 3], &[3, 1000], &[4097]];
        for extents in lists {
            for piece in [1, 2, 5, 12, 64, 100, 5000] {
                let cut = Cut::new(extents, piece);
                let mut next = 0;
                for at in 0..cut.count {
                    let (start, count) = cut.piece(at);
                    assert_eq!(start, next, "{extents:?} in {piece}");
                    assert!(count > 0 && count <= cut.longest);
                    next += count;
                }
                assert_eq!(next, extents.iter().product::<usize>());
            }
        }
    }

    #[test]
    fn walks_visit_every_position_in_order() {
        let lists: [&[usize]; 5] = [&[], &[7], &[3, 5], &[2, 3, 4], &[2, 1, 3, 2]];
        for extents in lists {
            let total: usize = extents.iter().product();
            for start in 0..=total {
                for count in 0..=total - start {
                    for several in [false, true] {
                        let mut next = 0;
                        walk(extents, start, count, several, |block| {
                            assert_eq!(block.position, next);
                            assert_eq!(block.point, decompose(extents, start + next).as_slice());
                            next += block.rows * block.count;
                        });
                        assert_eq!(next, count);
                    }
                }
            }
        }
    }
}
