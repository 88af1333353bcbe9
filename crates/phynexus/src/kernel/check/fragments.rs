//! Checks of matrix operations, and of the copies that feed them.

use super::*;

impl Checker<'_> {
    fn tile(&self, tile: &Tile, role: Option<Role>) -> Result<&Fragment> {
        let Some(fragment) = self.kernel.fragments.get(usize::from(tile.fragment)) else {
            return self.fail(format!("no fragment {}", tile.fragment));
        };
        self.index(&tile.index)?;
        let (low, high) = tile.index.bounds(&self.ranges);
        let exists = low >= 0 && high < fragment.length as i64 && role.is_none_or(|r| r == fragment.role);
        let same = constant_in_subgroup(self.kernel, self.subgroup()?, &tile.index);
        self.require(exists && same, || format!("fragment {} of {fragment:?}", tile.index))?;
        Ok(fragment)
    }

    pub(super) fn matrix(&self, matrix: &Matrix) -> Result<()> {
        match matrix {
            Matrix::Fill(tile, _) => self.tile(tile, None).map(|_| ()),
            Matrix::MultiplyAdd { accumulator, left, right } => {
                let sum = self.tile(accumulator, Some(Role::Accumulator))?;
                let (left, right) =
                    (self.tile(left, Some(Role::Left))?, self.tile(right, Some(Role::Right))?);
                let fits = left.shape == sum.shape && right.shape == sum.shape && left.dtype == right.dtype;
                self.require(fits, || format!("{left:?} times {right:?}"))
            }
            Matrix::Load { tile, place, stride, transposed } => {
                let fragment = self.tile(tile, None)?;
                let (rows, columns) = fragment.extents();
                let shared = matches!(place.memory, Memory::Shared(_)) && fragment.role != Role::Accumulator;
                self.require(shared, || format!("{fragment:?} loaded from {:?}", place.memory))?;
                let extents = if *transposed { (columns, rows) } else { (rows, columns) };
                self.matrix_access(fragment, extents, place, *stride)
            }
            Matrix::Store { tile, place, stride } => {
                let fragment = self.tile(tile, Some(Role::Accumulator))?;
                self.matrix_access(fragment, fragment.extents(), place, *stride)
            }
        }
    }

    pub(super) fn async_copy(&self, copy: &AsyncCopy) -> Result<()> {
        if !self.limits.async_copies {
            let message = format!("kernel {} needs copies to shared memory", self.kernel.name);
            return Err(Error::Unsupported { device: self.limits.device.clone(), message });
        }
        let AsyncCopy::Begin { from, to } = copy else { return Ok(()) };
        let kinds = matches!((from.memory, to.memory), (Memory::Buffer(_), Memory::Shared(_)));
        let dtypes = [from, to].map(|place| self.kernel.array(place.memory).map(|(dtype, _)| dtype));
        let Some(dtype) = dtypes[0] else { return self.fail(format!("no {:?}", from.memory)) };
        let plain = to.mask.is_always() && from.row.is_none() && to.row.is_none();
        let count = AsyncCopy::BYTES / dtype.size();
        let aligned = |place: &Place| {
            let count = count as i64;
            place.index.common_factor() % count == 0 && place.index.offset() % count == 0
        };
        let fits = kinds && plain && dtypes[0] == dtypes[1] && aligned(from) && aligned(to);
        self.require(fits, || format!("a copy from {from:?} to {to:?}"))?;
        self.in_bounds(from, count)?;
        self.in_bounds(to, count)
    }

    fn matrix_access(
        &self,
        fragment: &Fragment,
        (rows, columns): (usize, usize),
        place: &Place,
        stride: usize,
    ) -> Result<()> {
        let dtype = self.kernel.array(place.memory).map(|(dtype, _)| dtype);
        let memory = dtype == Some(fragment.dtype) && !matches!(place.memory, Memory::Register(_));
        // Rows start at multiples of 16 bytes.
        let (size, alignment) = (fragment.dtype.size() as i64, Kernel::MATRIX_ALIGNMENT as i64);
        let offsets = [place.index.common_factor(), place.index.offset()];
        let aligned = (stride as i64 * size) % 16 == 0 && offsets.iter().all(|o| (o * size) % alignment == 0);
        let same = constant_in_subgroup(self.kernel, self.subgroup()?, &place.index);
        let fits =
            memory && aligned && same && place.row.is_none() && place.mask.is_always() && stride >= columns;
        self.require(fits, || format!("{fragment:?} at {place:?}, rows {stride} apart"))?;
        self.in_bounds(place, (rows - 1) * stride + columns)
    }
}
