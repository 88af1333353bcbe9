//! Checks of matrix operations, and of the copies that feed them.

use super::*;

impl Checker<'_> {
    /// The number of invocations that share a fragment.
    fn team(&self, fragment: &Fragment) -> Result<usize> {
        Ok(self.subgroup()? * fragment.subgroups())
    }

    fn tile(&self, tile: &Tile, role: Option<Role>) -> Result<&Fragment> {
        let Some(fragment) = self.kernel.fragments.get(usize::from(tile.fragment)) else {
            return self.fail(format!("no fragment {}", tile.fragment));
        };
        self.index(&tile.index)?;
        let (low, high) = tile.index.bounds(&self.ranges);
        let exists = low >= 0 && high < fragment.length as i64 && role.is_none_or(|r| r == fragment.role);
        let same = constant_in_subgroup(self.kernel, self.team(fragment)?, &tile.index);
        // A team comes together where the whole group does.
        let same = same && (fragment.subgroups() == 1 || self.group_uniform);
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
            Matrix::Load { tile, access, stride, transposed } => {
                let fragment = self.tile(tile, None)?;
                let (rows, columns) = fragment.extents();
                let shared = matches!(access.array, ArrayId::Shared(_)) && fragment.role != Role::Accumulator;
                self.require(shared, || format!("{fragment:?} loaded from {:?}", access.array))?;
                let extents = if *transposed { (columns, rows) } else { (rows, columns) };
                self.matrix_access(fragment, extents, access, *stride)
            }
            Matrix::Store { tile, access, stride } => {
                let fragment = self.tile(tile, Some(Role::Accumulator))?;
                self.matrix_access(fragment, fragment.extents(), access, *stride)
            }
            Matrix::Product { sums, left, right, .. } => self.product(*sums, left, right),
            Matrix::Settle(_) => self.require(self.group_uniform, || "part of a group settles".to_owned()),
        }
    }

    fn product(&self, sums: u16, left: &Factor, right: &Panel) -> Result<()> {
        let Some(fragment) = self.kernel.fragments.get(usize::from(sums)) else {
            return self.fail(format!("no fragment {sums}"));
        };
        let team = self.team(fragment)?;
        let columns = fragment.shape.columns * fragment.length;
        let dtype = |panel: &Panel| self.kernel.array(panel.access.array).map(|(dtype, _)| dtype);
        let of_left = match left {
            Factor::Panel(panel) => dtype(panel),
            Factor::Fragments(tile) => Some(self.left_fragments(tile)?),
        };
        let dtypes = [of_left, dtype(right)];
        let has = |unit: &MatrixUnit| {
            unit.shape.rows == Panel::ROWS
                && columns <= unit.shape.columns
                && dtypes == unit.factors.map(Some)
                && unit.sum == fragment.dtype
        };
        let is_sum = fragment.role == Role::Accumulator && fragment.subgroups() == Panel::SUBGROUPS;
        // Teams are numbered along the block's first dimension.
        let whole = self.kernel.block()[0].is_multiple_of(team);
        let fits = self.limits.matrices.iter().any(has)
            && columns.is_multiple_of(if right.along_terms { Panel::LEAST_COLUMNS } else { Panel::WIDTH })
            && is_sum
            && whole
            && self.group_uniform;
        self.require(fits, || format!("a product of {columns} columns into {fragment:?}"))?;
        let of_left = match left {
            Factor::Panel(panel) => Some((panel, Panel::ROWS)),
            Factor::Fragments(_) => None,
        };
        // Both factors have elements of one size.
        let Some(dtype) = dtypes[1] else { return Ok(()) };
        for (&Panel { ref access, along_terms }, extent) in of_left.into_iter().chain([(right, columns)]) {
            let aligned = |offset: i64| (offset * dtype.size() as i64) % Panel::ALIGNMENT as i64 == 0;
            let fits = (along_terms || dtype.size() == 2)
                && self.kernel.holds_panels(access.array)
                && aligned(access.index.common_factor())
                && aligned(access.index.offset())
                && constant_in_subgroup(self.kernel, team, &access.index)
                && access.row.is_none()
                && access.mask.is_always();
            self.require(fits, || format!("a panel at {access:?}"))?;
            self.in_bounds(access, extent * Panel::width(dtype))?;
        }
        Ok(())
    }

    /// The dtype of fragments that are a left factor of panels.
    fn left_fragments(&self, tile: &Tile) -> Result<DType> {
        let fragment = self.tile(tile, Some(Role::Left))?;
        let (_, high) = tile.index.bounds(&self.ranges);
        let count = Panel::WIDTH / fragment.shape.depth;
        let fits = fragment.subgroups() > 1 && high + count as i64 <= fragment.length as i64;
        self.require(fits, || format!("{count} fragments of {fragment:?} from {}", tile.index))?;
        Ok(fragment.dtype)
    }

    /// Checks that invocations may access their shares of an array of fragments.
    pub(super) fn share(&self, number: u16, lanes: u8) -> Result<()> {
        let is_known = |fragment: &Fragment| {
            let of_quads = fragment.role == Role::Accumulator || fragment.dtype.size() == 2;
            fragment.subgroups() > 1 || self.limits.quads && of_quads
        };
        // Elements lie in pairs of neighbours.
        let fits = self.kernel.fragments.get(usize::from(number)).is_some_and(is_known)
            && lanes <= 2
            && self.limits.subgroup == Some(Panel::INVOCATIONS / Panel::SUBGROUPS);
        self.require(fits, || format!("{lanes} lanes of shares of fragment {number}"))
    }

    pub(super) fn async_copy(&self, copy: &AsyncCopy) -> Result<()> {
        if !self.limits.async_copies {
            let message = format!("kernel {} needs copies to shared memory", self.kernel.name);
            return Err(Error::Unsupported { device: self.limits.device.clone(), message });
        }
        let (from, to) = match copy {
            AsyncCopy::Begin { from, to } => (from, to),
            AsyncCopy::Bulk(copy) => return self.bulk_copy(copy),
            AsyncCopy::Turn(_) => {
                return self.require(self.group_uniform, || "part of a group takes turns".to_owned());
            }
            // All invocations count batches, also the one that makes bulk copies.
            AsyncCopy::Mark if !self.kernel.tensors.is_empty() => {
                return self
                    .require(self.group_uniform, || "a mark that only part of a group makes".to_owned());
            }
            AsyncCopy::Mark | AsyncCopy::Wait(_) if self.kernel.tensors.is_empty() => return Ok(()),
            AsyncCopy::Mark | AsyncCopy::Wait(_) => {
                return self.fail("copies by invocations beside bulk copies");
            }
        };
        self.require(self.kernel.tensors.is_empty(), || {
            "copies by invocations beside bulk copies".to_owned()
        })?;
        let kinds = matches!((from.array, to.array), (ArrayId::Buffer(_), ArrayId::Shared(_)));
        let dtypes = [from, to].map(|access| self.kernel.array(access.array).map(|(dtype, _)| dtype));
        let Some(dtype) = dtypes[0] else { return self.fail(format!("no {:?}", from.array)) };
        let plain = to.mask.is_always() && from.row.is_none() && to.row.is_none();
        let count = AsyncCopy::BYTES / dtype.size();
        let aligned = |access: &MemoryAccess| {
            let count = count as i64;
            access.index.common_factor() % count == 0 && access.index.offset() % count == 0
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
        access: &MemoryAccess,
        stride: usize,
    ) -> Result<()> {
        let dtype = self.kernel.array(access.array).map(|(dtype, _)| dtype);
        // Sums of teams are rounded where they are stored.
        let rounds =
            fragment.subgroups() > 1 && dtype.is_some_and(|dtype| dtype.is_float() && dtype.size() == 2);
        let loadable = (dtype == Some(fragment.dtype) || rounds)
            && !self.kernel.holds_panels(access.array)
            && matches!(access.array, ArrayId::Buffer(_) | ArrayId::Shared(_));
        // Rows start at multiples of 16 bytes.
        let size = dtype.map_or(1, DType::size) as i64;
        let alignment = Kernel::MATRIX_ALIGNMENT as i64;
        let offsets = [access.index.common_factor(), access.index.offset()];
        let aligned = (stride as i64 * size) % 16 == 0 && offsets.iter().all(|o| (o * size) % alignment == 0);
        let same = constant_in_subgroup(self.kernel, self.team(fragment)?, &access.index);
        let fits = loadable
            && aligned
            && same
            && access.row.is_none()
            && access.mask.is_always()
            && stride >= columns;
        self.require(fits, || format!("{fragment:?} at {access:?}, rows {stride} apart"))?;
        self.in_bounds(access, (rows - 1) * stride + columns)
    }
}
