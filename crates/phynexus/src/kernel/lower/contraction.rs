//! Sums of products over columns in which some row ranges belong only to the left factor and some only to the right:
//! matrix products and convolutions. A group computes a tile of the result from tiles of the factors in shared memory,
//! and loads the next tiles while it multiplies.

use std::cmp::Reverse;

use smallvec::SmallVec;

use super::{
    Launch, Source, Target,
    access::{self, Buffer, stride},
    expression::Scope,
    fragments,
    load::STAGES,
    panels, tile,
};
use crate::{
    DType,
    kernel::{
        Index, Mask, Ranges,
        build::Builder,
        fused::{FusedOp, Fusion, InstructionId},
        loops::{Panel, ValueId},
        view::{Coordinates, unflatten},
    },
};

/// Minimum number of rows, columns and terms for which tiling pays off.
const LEAST: usize = 8;

/// A specification that is a contraction.
pub(super) struct Contraction<'a> {
    pub(super) fused: &'a Fusion,
    /// The reduction.
    pub(super) sum: InstructionId,
    /// The loads of the factors. The rows of the left one are rows of the result.
    pub(super) factors: [InstructionId; 2],
    /// The type of the accumulators.
    pub(super) held: DType,
    /// The row ranges of both factors, of the left one only, of the right one only; then the columns.
    groups: [Vec<usize>; 4],
    /// See [`Product::summed_steps`].
    pub(super) summed_steps: Option<usize>,
    /// The terms of each part; see [`Product::part`].
    part: Option<usize>,
}

/// The tile shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Extents of the tile of a group.
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Columns of the specification that are summed between two barriers.
    pub(super) depth: usize,
    /// Extents of the part of the tile that a unit computes.
    pub(super) part: [usize; 2],
    pub(super) unit: Unit,
}

/// What computes a part of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// An invocation, by multiplications and additions.
    Invocation,
    /// A subgroup, by matrix instructions on fragments.
    Subgroup,
    /// Four subgroups, by products of panels.
    Team,
}

/// A sum of products over the columns of a specification.
#[derive(Clone, Copy)]
pub(super) struct Product {
    /// The reduction.
    pub(super) sum: InstructionId,
    /// The loads of the factors.
    pub(super) factors: [InstructionId; 2],
    /// The steps of products of panels whose sums invocations add to the others, if the matrix units' own sums of all
    /// steps would not be accurate.
    pub(super) summed_steps: Option<usize>,
    /// If sums of parts are wanted, the terms of each; the first row range is then the number of the part.
    pub(super) part: Option<usize>,
}

impl<'a> Contraction<'a> {
    /// The contraction of this product, if there is something to reuse.
    pub(super) fn of(fused: &'a Fusion, product: Product) -> Option<Contraction<'a>> {
        let Product { sum, mut factors, summed_steps, part } = product;
        let depends = |value: InstructionId, range: usize| match &fused.instructions[value as usize].operation
        {
            FusedOp::Load { index, mask, .. } => {
                index.depends_on(range)
                    || mask.iter().flat_map(Mask::conditions).any(|c| c.index.depends_on(range))
            }
            _ => false,
        };
        let mut groups: [Vec<usize>; 4] = Default::default();
        for range in 0..fused.rows.len() {
            let group = match factors.map(|f| depends(f, range)) {
                _ if range == 0 && part.is_some() => 0,
                [true, true] => 0,
                [true, false] => 1,
                [false, true] => 2,
                [false, false] if fused.rows[range] == 1 => 0,
                [false, false] => return None,
            };
            groups[group].push(range);
        }
        groups[3] = (fused.rows.len()..fused.rows.len() + fused.columns.len()).collect();
        // The columns of the result should be contiguous in memory.
        let is_wide = |&r: &usize| fused.rows[r] > 1;
        let stored = fused.stores.first().map(|store| &store.index);
        let is_contiguous = |&r: &usize| stored.is_some_and(|index| stride(index, r) == 1);
        let mut last = (0..fused.rows.len()).rev().filter(is_wide);
        let last = last.clone().find(is_contiguous).or(last.next())?;
        if groups[1].contains(&last) {
            groups.swap(1, 2);
            factors.swap(0, 1);
        }
        // Neighbouring rows should be neighbours in the left factor, and columns in the right one.
        for (group, factor) in [(1, factors[0]), (2, factors[1])] {
            if let FusedOp::Load { index, .. } = &fused.instructions[factor as usize].operation {
                groups[group].sort_by_key(|&range| Reverse(stride(index, range).abs()));
            }
        }
        let held = super::reduce::accumulator(fused.instructions[sum as usize].dtype);
        let found = Contraction { fused, sum, factors, held, groups, summed_steps, part };
        (1..4).all(|group| found.extent(group) >= LEAST).then_some(found)
    }
}

impl Contraction<'_> {
    fn extents(&self, group: usize) -> Vec<usize> {
        let ranges = access::ranges(self.fused);
        self.groups[group].iter().map(|&r| ranges.0[r]).collect()
    }

    /// The ranges of batches (0), rows (1), columns (2) or terms (3), the slowest first.
    pub(super) fn group(&self, group: usize) -> &[usize] {
        &self.groups[group]
    }

    /// The number of batches (0), rows (1), columns (2) or terms (3): those of a part.
    pub(super) fn extent(&self, group: usize) -> usize {
        match self.part {
            Some(length) if group == 3 => length,
            _ => self.extents(group).iter().product(),
        }
    }

    /// Whether parts, if there are any, are whole panels of this width, and `whole` ones if that is needed: none goes
    /// beyond the last term.
    pub(super) fn parts_fit(&self, width: usize, whole: bool) -> bool {
        let all: usize = self.extents(3).iter().product();
        self.part.is_none_or(|length| length.is_multiple_of(width) && (!whole || all.is_multiple_of(length)))
    }

    /// Whether it sums a part of the terms only.
    pub(super) fn is_part(&self) -> bool {
        self.part.is_some()
    }

    /// The number of a term among those of all parts.
    pub(super) fn term(&self, batch: &Index, term: &Index, ranges: &Ranges) -> Index {
        let Some(length) = self.part else { return term.clone() };
        let within: usize = self.extents(0)[1..].iter().product();
        term.add(&batch.quotient(within as i64, ranges).scale(length as i64))
    }

    /// Whether a term exists.
    pub(super) fn holds_term(&self, batch: &Index, term: &Index, ranges: &Ranges) -> Mask {
        let all: usize = self.extents(3).iter().product();
        let whole = Mask::within(&self.term(batch, term, ranges), 0, all as i64, ranges);
        whole.and(&Mask::within(term, 0, self.extent(3) as i64, ranges))
    }

    /// The element type of the factors.
    pub(super) fn dtypes(&self) -> [DType; 2] {
        self.factors.map(|f| self.fused.instructions[f as usize].dtype)
    }

    /// Elements between neighbours along each row range where sums are stored for themselves: those of a tile's row
    /// side by side.
    pub(super) fn strides_of_sums(&self) -> SmallVec<[isize; 4]> {
        let mut strides = SmallVec::from_elem(0, self.fused.rows.len());
        let mut stride = 1;
        for &range in self.groups[..3].iter().flatten().rev() {
            strides[range] = stride;
            stride *= self.fused.rows[range] as isize;
        }
        strides
    }

    /// The number of tiles.
    pub(super) fn tiles(&self, shape: Shape) -> usize {
        self.extent(0) * self.extent(1).div_ceil(shape.rows) * self.extent(2).div_ceil(shape.columns)
    }

    /// The values of all ranges of the specification for a batch, a row, a column and a term.
    pub(super) fn point(&self, at: [&Index; 4], ranges: &Ranges) -> Coordinates {
        let mut point =
            Coordinates::from_elem(Index::default(), self.fused.rows.len() + self.fused.columns.len());
        let term = self.term(at[0], at[3], ranges);
        for (group, index) in [at[0], at[1], at[2], &term].into_iter().enumerate() {
            let extents = self.extents(group);
            let mut coordinates = Coordinates::from_elem(Index::default(), extents.len());
            unflatten(&extents, index, ranges, &mut coordinates);
            for (&range, coordinate) in self.groups[group].iter().zip(coordinates) {
                point[range] = coordinate;
            }
        }
        point
    }

    /// The bytes that are loaded and stored for each sum, besides its factors.
    pub(super) fn epilogue_bytes(&self) -> usize {
        let sums = self.extent(0) * self.extent(1) * self.extent(2);
        let of_sums = |parameter: u16, index: &Index| {
            let ranges = access::ranges(self.fused);
            let count: usize = (0..self.fused.rows.len())
                .filter(|&range| index.depends_on(range))
                .map(|range| ranges.0[range])
                .product();
            if count == sums { self.fused.parameters[usize::from(parameter)].dtype.size() } else { 0 }
        };
        let loads = self.fused.instructions.iter().enumerate().filter_map(|(at, instruction)| {
            match &instruction.operation {
                FusedOp::Load { parameter, index, .. } if !self.factors.contains(&(at as u32)) => {
                    Some(of_sums(*parameter, index))
                }
                _ => None,
            }
        });
        let stores = self.fused.stores.iter().map(|store| of_sums(store.parameter, &store.index));
        loads.sum::<usize>() + stores.sum::<usize>()
    }

    /// The specification, in which accesses to matrices of rows and columns are in terms of two further ranges: the
    /// numbers of the row and the column. Their addresses are then found without finding the place in an image.
    fn epilogue(&self) -> Fusion {
        let mut fused = self.fused.clone();
        let own = access::ranges(self.fused);
        let mut ranges = own.clone();
        ranges.0.extend([self.extent(1), self.extent(2)]);
        let flat = |index: &Index| -> Option<Index> {
            let (offset, strides) = index.strides(own.len())?;
            let mut index = Index::constant(offset);
            for &range in &self.groups[0] {
                index = index.add(&Index::range(range, &own).scale(strides[range]));
            }
            for (number, group) in [(own.len(), 1), (own.len() + 1, 2)] {
                let mut apart = None;
                for &range in self.groups[group].iter().rev().filter(|&&range| own.0[range] > 1) {
                    let (stride, next) = apart.unwrap_or((strides[range], strides[range]));
                    if strides[range] != next {
                        return None;
                    }
                    apart = Some((stride, next * own.0[range] as i64));
                }
                let stride = apart.map_or(0, |(stride, _)| stride);
                index = index.add(&Index::range(number, &ranges).scale(stride));
            }
            Some(index)
        };
        let stores = fused.stores.iter_mut().map(|store| &mut store.index);
        let loads =
            fused.instructions.iter_mut().filter_map(|instruction| match &mut instruction.operation {
                FusedOp::Load { index, mask: None, .. } => Some(index),
                _ => None,
            });
        for index in stores.chain(loads) {
            if let Some(flat) = flat(index) {
                *index = flat;
            }
        }
        fused
    }

    /// The batch, the first row and the first column of a tile.
    pub(super) fn place(&self, shape: Shape, tile: &Index, ranges: &Ranges) -> [Index; 3] {
        let across = self.extent(2).div_ceil(shape.columns) as i64;
        let down = self.extent(1).div_ceil(shape.rows) as i64;
        // Bands of rows, so that concurrent groups share rows and columns of tiles.
        let band = [8, 4, 2].into_iter().find(|band| down % band == 0).unwrap_or(1);
        let of_band = tile.remainder(band * across, ranges);
        let row = tile.remainder(down * across, ranges).quotient(band * across, ranges);
        let row = row.scale(band).add(&of_band.remainder(band, ranges));
        let column = of_band.quotient(band, ranges);
        let batch = tile.quotient(down * across, ranges);
        [batch, row.scale(shape.rows as i64), column.scale(shape.columns as i64)]
    }

    /// Whether a tile exists, and, which follows from it, its batch.
    pub(super) fn holds_tile(&self, shape: Shape, tile: &Index, ranges: &Ranges) -> Mask {
        let [batch, ..] = self.place(shape, tile, ranges);
        let within = |index: &Index, count: usize| Mask::within(index, 0, count as i64, ranges);
        let exists = within(tile, self.tiles(shape));
        if self.extent(0) > 1 { exists.and(&within(&batch, self.extent(0))) } else { exists }
    }

    /// The tile shape that keeps the device busiest; `None` if none fits.
    pub(super) fn shape(&self, target: &Target) -> Option<Shape> {
        let instruction = fragments::instruction(self, target);
        let candidates = instruction.map_or(&tile::SHAPES[..], fragments::shapes);
        let limits = &target.limits;
        let fits = |shape: &&Shape| {
            let block = self.block(**shape, target);
            let held = instruction.is_some() || shape.part[0] * shape.part[1] <= target.sums;
            held && block <= limits.block_size && self.shared_bytes(**shape, target) <= limits.shared_bytes
        };
        let mut usable: Vec<Shape> = candidates.iter().filter(fits).copied().collect();
        if usable.first() == Some(&tile::SHAPES[0]) {
            usable.retain(|shape| *shape != tile::WHERE_THE_LARGEST_DOES_NOT_FIT);
        }
        // Avoid small groups; results that are small are split along the sum instead.
        let whole = |shape: &Shape| self.block(*shape, target) >= 64;
        if usable.iter().any(whole) {
            usable.retain(whole);
        }
        let filled = |shape: &&Shape| {
            let used = self.extent(1) * 2 > shape.rows && self.extent(2) * 2 > shape.columns;
            used && self.tiles(**shape) >= target.processors
        };
        usable.iter().find(filled).or(usable.last()).copied()
    }

    pub(super) fn block(&self, shape: Shape, target: &Target) -> usize {
        let parts = shape.rows / shape.part[0] * (shape.columns / shape.part[1]);
        let subgroup = target.limits.subgroup.unwrap_or(1);
        match shape.unit {
            Unit::Invocation => parts,
            Unit::Subgroup => parts * subgroup,
            Unit::Team => parts * subgroup * Panel::SUBGROUPS,
        }
    }

    fn shared_bytes(&self, shape: Shape, target: &Target) -> usize {
        let stages = if target.limits.async_copies { STAGES } else { 2 };
        match fragments::instruction(self, target) {
            Some(instruction) => fragments::shared_bytes(shape, stages, instruction),
            None => tile::shared_bytes(shape, self.held, stages),
        }
    }

    /// The kernel, unless it needs panels and the factors cannot be copied to them.
    pub(super) fn lower(&self, shape: Shape, sources: &[Source], target: &Target) -> Option<Launch> {
        let mut b = Builder::new("contraction");
        let (buffers, arguments) = access::declare(&mut b, self.fused, sources);
        let matrix = fragments::instruction(self, target);
        let block = match shape.unit {
            Unit::Invocation => [shape.rows / shape.part[0], shape.columns / shape.part[1]],
            Unit::Subgroup | Unit::Team => [1, self.block(shape, target)],
        };
        let mut fits = true;
        let tiles = self.tiles(shape);
        let epilogue = self.epilogue();
        let teams = shape.unit == Unit::Team;
        let setup = teams.then(|| panels::Setup::of(self, shape, tiles, target));
        // Teams copy the first terms of a group's next tile while they store this one.
        let most = setup.map_or(tiles, |setup| setup.residents * target.processors.max(1));
        let groups = tiles.min(most);
        if let Some(setup) = setup.filter(|setup| setup.residents > 1) {
            b.residents(setup.residents);
        }
        access::launch(&mut b, &target.limits, groups, block, |b, group, y, x| {
            let [batch, row, column] = self.place(shape, group, b.ranges());
            let tile = Tile {
                contraction: self,
                epilogue: &epilogue,
                shape,
                buffers: &buffers,
                target,
                block: block[0] * block[1],
                invocation: y.scale(block[1] as i64).add(x),
                group: group.clone(),
                groups,
                setup,
                batch,
                row,
                column,
            };
            match (shape.unit, matrix) {
                (Unit::Team, _) => fits = panels::lower(b, &tile),
                (Unit::Subgroup, Some(matrix)) => fragments::lower(b, &tile, matrix),
                _ => tile::lower(b, &tile, y, x),
            }
        });
        fits.then(|| Launch { kernel: b.finish(), arguments })
    }
}

/// The tile of a group, or the first of several.
#[derive(Clone)]
pub(super) struct Tile<'a> {
    pub(super) contraction: &'a Contraction<'a>,
    /// What follows a sum; see [`Contraction::epilogue`].
    pub(super) epilogue: &'a Fusion,
    pub(super) shape: Shape,
    pub(super) buffers: &'a [Buffer],
    pub(super) target: &'a Target,
    /// The number of invocations of the group.
    pub(super) block: usize,
    pub(super) invocation: Index,
    /// The group, and their number: the distance between its tiles.
    pub(super) group: Index,
    pub(super) groups: usize,
    /// How groups run, if teams compute tiles.
    pub(super) setup: Option<panels::Setup>,
    pub(super) batch: Index,
    /// The first row and column.
    pub(super) row: Index,
    pub(super) column: Index,
}

impl Tile<'_> {
    /// Computes the specification's stores for four neighbouring sums, together if either all or none of them exist.
    pub(super) fn finish_quad(&self, b: &mut Builder, row: &Index, column: &Index, sums: &[ValueId]) {
        if self.contraction.extent(2).is_multiple_of(sums.len()) {
            return self.finish(b, row, column, sums);
        }
        for (lane, &sum) in sums.iter().enumerate() {
            self.finish(b, row, &column.shift(lane as i64), &[sum]);
        }
    }

    /// Computes the specification's stores for `lanes` neighbouring sums from this row and column on.
    pub(super) fn finish(&self, b: &mut Builder, row: &Index, column: &Index, sums: &[ValueId]) {
        let contraction = self.contraction;
        let ranges = b.ranges().clone();
        let lanes = sums.len() as i64;
        let inside = |index: &Index, extent: usize| Mask::within(index, 0, extent as i64, &ranges);
        let whole =
            inside(row, contraction.extent(1)).and(&inside(&column.shift(lanes - 1), contraction.extent(2)));
        b.when(whole.clone(), |b| {
            let point = |lane: i64| {
                let column = column.shift(lane);
                let mut point = contraction.point([&self.batch, row, &column, &Index::default()], &ranges);
                point.extend([row.clone(), column]);
                point
            };
            let dtype = contraction.fused.instructions[contraction.sum as usize].dtype;
            let sums = sums.iter().map(|&sum| match dtype.is_float() {
                true => sum,
                false => super::expression::convert(b, sum, dtype),
            });
            let known = [(contraction.sum, sums.collect())].into_iter().collect();
            let (fused, buffers) = (self.epilogue, self.buffers);
            let points = (0..lanes).map(point).collect();
            let mut scope = Scope {
                fused,
                buffers,
                points,
                holds: whole.clone(),
                guard: Mask::default(),
                known,
                kept: None,
            };
            for store in &fused.stores {
                scope.value(b, store.value);
            }
            for store in &fused.stores {
                scope.store(b, store, &Mask::default());
            }
        });
    }
}
