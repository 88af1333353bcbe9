//! Tiles of a contraction's factor as boxes or windows of a tensor, which bulk copies take to panels.

use smallvec::SmallVec;

use super::{
    access::{self, Buffer},
    contraction::Contraction,
};
use crate::kernel::{
    Index, Ranges,
    fused::FusedOp,
    loops::{ArrayId, BulkPart, BulkTensor, Panel, Walk},
    view::{Condition, Coordinates},
};

/// How the tiles of a factor are copied.
pub(super) struct Bulk {
    pub(super) tensor: BulkTensor,
    /// Where a copy begins, over the ranges of the specification; see
    /// [`BulkCopy::at`](crate::kernel::loops::BulkCopy::at).
    places: SmallVec<[Index; 5]>,
    /// Whether the terms are windows; otherwise rows or columns may be.
    terms_are_windows: bool,
}

/// A factor's memory.
struct Memory {
    ranges: Ranges,
    /// The elements between neighbours in each range.
    strides: SmallVec<[i64; 6]>,
    images: Vec<Image>,
}

/// A padded dimension of an image: an interval in which a sum of ranges must be.
struct Image {
    factors: SmallVec<[i64; 6]>,
    low: i64,
    high: i64,
    /// Elements between neighbours.
    stride: i64,
}

/// Ranges whose elements follow each other in memory, or a range along which windows of an image lie.
struct Dimension {
    extent: usize,
    stride: usize,
    /// The coordinate, or the distance of the windows' elements from where they begin.
    place: Index,
    walk: Walk,
    is_image: bool,
}

impl Image {
    /// The image's dimension of a condition of a load with these strides.
    fn of(condition: &Condition, strides: &[i64]) -> Option<Image> {
        let Condition { ref index, low, high } = *condition;
        let (_, factors) = index.strides(strides.len())?;
        let stride = strides.iter().zip(&factors).find_map(|(stride, factor)| stride.checked_div(*factor))?;
        let fits = |(whole, factor): (&i64, &i64)| *factor == 0 || factor * stride == *whole;
        if stride == 0 || !strides.iter().zip(&factors).all(fits) {
            return None;
        }
        Some(match stride > 0 {
            true => Image { factors, low, high, stride },
            false => Image {
                factors: factors.iter().map(|factor| -factor).collect(),
                low: 1 - high,
                high: 1 - low,
                stride: -stride,
            },
        })
    }

    /// The dimension whose windows lie along a range.
    fn dimension(&self, range: usize, ranges: &Ranges) -> Option<Dimension> {
        let (mut low, mut place) = (-self.low, Index::default());
        for (other, &factor) in self.factors.iter().enumerate().filter(|(other, _)| *other != range) {
            low += (factor * (ranges.0[other] as i64 - 1)).min(0);
            place = place.add(&Index::range(other, ranges).scale(factor));
        }
        let (least, _) = place.bounds(ranges);
        let step = usize::try_from(self.factors[range]).ok()?;
        Some(Dimension {
            extent: usize::try_from(self.high - self.low).ok()?,
            stride: usize::try_from(self.stride).ok()?,
            place: place.shift(-least),
            walk: Walk { low, step, count: ranges.0[range] },
            is_image: true,
        })
    }
}

impl Memory {
    fn is_of_image(&self, range: usize) -> bool {
        self.images.iter().any(|image| image.factors[range] != 0)
    }

    /// The dimensions of these ranges, the fastest first.
    fn dimensions(&self, group: impl DoubleEndedIterator<Item = usize>) -> Option<Vec<Dimension>> {
        let mut found: Vec<Dimension> = Vec::new();
        for range in group.rev().filter(|&range| self.ranges.0[range] > 1) {
            if let Some(image) = self.images.iter().find(|image| image.factors[range] != 0) {
                found.push(image.dimension(range, &self.ranges)?);
                continue;
            }
            let stride = usize::try_from(self.strides[range]).ok().filter(|&stride| stride > 0)?;
            let (extent, place) = (self.ranges.0[range], Index::range(range, &self.ranges));
            match found.last_mut() {
                Some(last) if !last.is_image && stride == last.stride * last.extent => {
                    last.place = last.place.add(&place.scale(last.extent as i64));
                    last.extent *= extent;
                    last.walk.count = last.extent;
                }
                _ => {
                    let walk = Walk { low: 0, step: 1, count: extent };
                    found.push(Dimension { extent, stride, place, walk, is_image: false });
                }
            }
        }
        Some(found)
    }
}

impl Bulk {
    /// The copies of `outer` rows of the left factor, or columns of the right one, and as many terms as a panel has, if
    /// a tensor's boxes or windows are such.
    pub(super) fn of(
        contraction: &Contraction,
        factor: usize,
        buffer: &Buffer,
        along_terms: bool,
        outer: usize,
    ) -> Option<Bulk> {
        let fused = contraction.fused;
        let ranges = access::ranges(fused);
        let instruction = &fused.instructions[contraction.factors[factor] as usize];
        let FusedOp::Load { index, mask, .. } = &instruction.operation else { return None };
        let ArrayId::Buffer(number) = buffer.array else { return None };
        let (first, strides) = index.strides(ranges.len())?;
        let conditions = mask.iter().flat_map(|mask| mask.conditions());
        let images: Vec<Image> = conditions.map(|c| Image::of(c, &strides)).collect::<Option<_>>()?;
        let of_images = |range: usize| images.iter().filter(|image| image.factors[range] != 0).count();
        if (0..ranges.len()).any(|range| of_images(range) > 1) {
            return None;
        }
        let corner: i64 = images.iter().map(|image| image.stride * image.low).sum();
        let start = usize::try_from(first - buffer.start + corner).ok()?;
        let memory = Memory { ranges, strides, images };

        let [rows, lines] = if along_terms { [3, 1 + factor] } else { [1 + factor, 3] };
        // Ranges of images beside neighbouring elements tell which element of a window it is.
        let is_tap = |&range: &usize| memory.ranges.0[range] > 1 && memory.is_of_image(range);
        let rows = contraction.group(rows);
        let taps = rows.iter().take_while(|range| memory.ranges.0[**range] == 1 || is_tap(range)).count();
        if rows[taps..].iter().any(is_tap) {
            return None;
        }
        let has_taps = rows[..taps].iter().any(is_tap);
        // Copies of a part may go beyond the last term, where a window's elements do exist.
        let width = Panel::width(contraction.dtypes()[factor]);
        if !contraction.parts_fit(width, along_terms && has_taps) {
            return None;
        }
        let rows = memory.dimensions(rows[taps..].iter().copied())?;
        let lines = contraction.group(lines);
        let is_walked_once = |image: &Image| {
            let walks = |range: &&usize| memory.ranges.0[**range] > 1 && image.factors[**range] != 0;
            lines.iter().filter(walks).count() == 1
        };
        let walked = memory.images.iter().all(is_walked_once);
        let lines = memory.dimensions(lines.iter().copied())?;
        let is_used = |range: &usize| memory.strides[*range] != 0 || memory.is_of_image(*range);
        let batches = memory.dimensions(contraction.group(0).iter().copied().filter(is_used))?;
        // A copy never crosses the end of a row, except past the tensor, where it is zero.
        let whole = |row: &Dimension| rows.len() == 1 && !has_taps || row.extent.is_multiple_of(width);
        let row = rows.first().filter(|row| row.stride == 1 && whole(row))?;
        let count = if along_terms { outer } else { width };

        let extents = boxes(&lines, count).filter(|_| memory.images.is_empty());
        let (all, part): (SmallVec<[&Dimension; 5]>, _) = match extents {
            Some(extents) => {
                let all: SmallVec<[&Dimension; 5]> = rows.iter().chain(&lines).chain(&batches).collect();
                let of_rows = (0..rows.len()).map(|at| if at == 0 { width } else { 1 });
                let mut part: SmallVec<[usize; 5]> = of_rows.chain(extents).collect();
                part.resize(all.len(), 1);
                (all, BulkPart::Box(part))
            }
            None => {
                if !walked || rows.len() > 1 || !batches.is_empty() {
                    return None;
                }
                let last = lines.last().filter(|line| !line.is_image);
                let walks = lines[..lines.len() - usize::from(last.is_some())].iter();
                let part =
                    BulkPart::Windows { length: width, count, walks: walks.map(|line| line.walk).collect() };
                ([row].into_iter().chain(&lines).collect(), part)
            }
        };
        let mut dimensions: SmallVec<[_; 5]> =
            all.iter().map(|dimension| (dimension.extent, dimension.stride)).collect();
        let mut places: SmallVec<[Index; 5]> = all.iter().map(|dimension| dimension.place.clone()).collect();
        // Where something is copied of a matrix of one row, or of one image.
        let places_needed = match &part {
            BulkPart::Box(extents) => extents.len(),
            BulkPart::Windows { walks, .. } => {
                // The number of the first window is the second place, and only images' windows have further ones.
                let distance =
                    |line: &Dimension| if line.is_image { line.place.clone() } else { Index::default() };
                places.truncate(1);
                places.push(Index::default());
                places.extend(lines.iter().take(walks.len()).map(distance));
                walks.len() + 2
            }
        };
        if dimensions.len() < places_needed {
            dimensions.push((1, width));
            places.resize(places_needed, Index::default());
        }
        let tensor = BulkTensor { buffer: number, start, dimensions, part };
        let element = contraction.dtypes()[factor].size();
        let bounded = |(number, place): (usize, &Index)| match tensor.part {
            BulkPart::Windows { .. } if number > 1 => {
                place.bounds(&memory.ranges).1 <= tensor.greatest_distance()
            }
            _ => true,
        };
        let fits = tensor.is_supported(element)
            && tensor.last() < buffer.length
            && places.iter().enumerate().all(bounded);
        fits.then_some(Bulk { tensor, places, terms_are_windows: !along_terms })
    }

    /// Where a copy begins whose first row or column is `outer` and whose first term is `term`: this point of the
    /// specification.
    pub(super) fn at(
        &self,
        point: &Coordinates,
        outer: &Index,
        term: &Index,
        ranges: &Ranges,
    ) -> SmallVec<[Index; 5]> {
        let mut at: SmallVec<[Index; 5]> =
            self.places.iter().map(|place| place.substitute(point, ranges)).collect();
        if let BulkPart::Windows { .. } = self.tensor.part {
            at[1] = if self.terms_are_windows { term } else { outer }.clone();
        }
        at
    }
}

/// The extents of a box of `count` consecutive elements along some dimensions, if those of a tile always are one.
fn boxes(lines: &[Dimension], count: usize) -> Option<SmallVec<[usize; 5]>> {
    let mut rest = count;
    let mut extents = SmallVec::new();
    for (at, Dimension { extent, .. }) in lines.iter().enumerate() {
        let own = match rest {
            rest if at + 1 == lines.len() || extent.is_multiple_of(rest) => rest,
            rest if rest.is_multiple_of(*extent) => *extent,
            _ => return None,
        };
        extents.push(own);
        rest /= own;
    }
    (!extents.is_empty()).then_some(extents)
}
