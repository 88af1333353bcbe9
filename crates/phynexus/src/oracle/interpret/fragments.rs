//! Operations on fragments, and the copies that feed them.

use super::*;

impl WorkGroup<'_> {
    /// The number of invocations that execute the operation jointly.
    pub(super) fn team(&self, matrix: &Matrix) -> usize {
        let number = match matrix {
            Matrix::Fill(tile, _) | Matrix::Load { tile, .. } | Matrix::Store { tile, .. } => tile.fragment,
            Matrix::MultiplyAdd { accumulator, .. } => accumulator.fragment,
            Matrix::Product { sums, .. } => *sums,
            Matrix::Settle(_) => return self.subgroup * Panel::SUBGROUPS,
        };
        self.subgroup * self.kernel.fragments[usize::from(number)].subgroups()
    }

    fn tile(&mut self, tile: &Tile, first: usize) -> Result<&mut Option<Vec<Scalar>>> {
        let kernel = self.kernel;
        let team = self.subgroup * kernel.fragments[usize::from(tile.fragment)].subgroups();
        let at = self.same_in_team(&tile.index, first, team)?;
        let array = self.fragments.get_mut(usize::from(tile.fragment));
        let found = array.and_then(|f| f[first / team].get_mut(at));
        found.ok_or_else(|| broken(kernel, format!("no fragment {at}")))
    }

    fn tile_elements(&mut self, tile: &Tile, first: usize) -> Result<Vec<Scalar>> {
        let kernel = self.kernel;
        self.tile(tile, first)?
            .clone()
            .ok_or_else(|| broken(kernel, "a fragment is read before it is written"))
    }

    /// Copied data becomes visible when the copy is awaited, which is the latest a device may do it.
    pub(super) fn async_copy(&mut self, copy: &AsyncCopy, invocation: usize) -> Result<()> {
        match copy {
            AsyncCopy::Begin { from, to } => {
                let dtype = self.kernel.array(from.array).map_or(DType::F32, |(dtype, _)| dtype);
                let holds = from.mask.evaluate(&self.points[invocation]);
                let zero = Scalar::Int(0).cast(dtype);
                let first = to.index.evaluate(&self.points[invocation]);
                let count = (AsyncCopy::BYTES / dtype.size()) as i64;
                self.require_unused(to.array, first..first + count, invocation)?;
                for i in 0..AsyncCopy::BYTES / dtype.size() {
                    let scalar = if holds { self.read(from, invocation, i)? } else { zero };
                    let index = Index::constant(first + i as i64);
                    self.copies[invocation].0.push((MemoryAccess::at(to.array, &index), scalar));
                }
            }
            AsyncCopy::Mark => {
                let (begun, batches) = &mut self.copies[invocation];
                batches.push(std::mem::take(begun));
                self.mark(invocation)?;
            }
            AsyncCopy::Bulk(_) | AsyncCopy::Turn(_) => {}
            AsyncCopy::Wait(most) => {
                let batches = &mut self.copies[invocation].1;
                let done = batches.len().saturating_sub(usize::from(*most));
                for (access, scalar) in batches.drain(..done).flatten().collect::<Vec<_>>() {
                    self.write(&access, invocation, 0, scalar)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn matrix(&mut self, matrix: &Matrix, first: usize) -> Result<()> {
        let fragment = |tile: &Tile| &self.kernel.fragments[usize::from(tile.fragment)];
        match matrix {
            Matrix::Fill(tile, scalar) => {
                self.require_settled(tile, first)?;
                let (rows, columns) = fragment(tile).extents();
                *self.tile(tile, first)? = Some(vec![*scalar; rows * columns]);
            }
            Matrix::Load { tile, access, stride, transposed } => {
                let (rows, columns) = fragment(tile).extents();
                self.same_in_team(&access.index, first, self.subgroup)?;
                let offset = |r, c| if *transposed { c * stride + r } else { r * stride + c };
                let offsets = (0..rows).flat_map(|r| (0..columns).map(move |c| offset(r, c)));
                let rounds = fragment(tile).dtype == DType::F32;
                let element = |offset| -> Result<Scalar> {
                    let read = self.read(access, first, offset)?;
                    Ok(if rounds { rounded_to_tf32(read) } else { read })
                };
                let elements = offsets.map(element).collect::<Result<_>>()?;
                *self.tile(tile, first)? = Some(elements);
            }
            Matrix::Store { tile, access, stride } => {
                self.require_settled(tile, first)?;
                let (_, columns) = fragment(tile).extents();
                self.same_in_team(&access.index, first, self.team(matrix))?;
                let subgroups = fragment(tile).subgroups();
                self.turn += usize::from(subgroups > 1);
                let elements = self.tile_elements(tile, first)?;
                let share = elements.len() / subgroups;
                for (i, scalar) in elements.into_iter().enumerate() {
                    let by = first + i / share * self.subgroup;
                    self.write(access, by, i / columns * stride + i % columns, scalar)?;
                }
                self.turn += usize::from(subgroups > 1);
            }
            Matrix::MultiplyAdd { accumulator, left, right } => {
                let (shape, dtype) = (fragment(accumulator).shape, fragment(accumulator).dtype);
                let (a, b) = (self.tile_elements(left, first)?, self.tile_elements(right, first)?);
                let mut sums = self.tile_elements(accumulator, first)?;
                for (i, sum) in sums.iter_mut().enumerate() {
                    let (row, column) = (i / shape.columns, i % shape.columns);
                    let product =
                        |k: usize| a[row * shape.depth + k].as_f64() * b[k * shape.columns + column].as_f64();
                    let total = (0..shape.depth).map(product).sum::<f64>() + sum.as_f64();
                    *sum = Scalar::Float(total).cast(dtype);
                }
                *self.tile(accumulator, first)? = Some(sums);
            }
            Matrix::Product { sums, left, right, begins } => {
                self.product(*sums, left, right, *begins, first)?;
            }
            Matrix::Settle(most) => {
                let pending = &mut self.products[first / (self.subgroup * Panel::SUBGROUPS)];
                pending.drain(..pending.len().saturating_sub(usize::from(*most)));
            }
        }
        Ok(())
    }

    /// Multiplies at once, which is the earliest a device may do it.
    fn product(&mut self, sums: u16, left: &Factor, right: &Panel, begins: bool, first: usize) -> Result<()> {
        let &Fragment { shape, dtype, length, .. } = &self.kernel.fragments[usize::from(sums)];
        let team = self.subgroup * Panel::SUBGROUPS;
        let of =
            |panel: &Panel| self.kernel.array(panel.access.array).map_or(DType::BF16, |(dtype, _)| dtype);
        let width = Panel::width(of(right));
        let mut read = |panel: &Panel, extent: usize| -> Result<Vec<f64>> {
            self.same_in_team(&panel.access.index, first, team)?;
            let places = (0..extent).flat_map(|outer| (0..width).map(move |term| (outer, term)));
            let of = of(panel);
            let mut element = |(outer, term)| {
                let read = self.read(&panel.access, first, panel.offset(of, outer, term))?;
                Ok(if of == DType::F32 { rounded_to_tf32(read) } else { read }.as_f64())
            };
            places.map(&mut element).collect()
        };
        let columns = shape.columns * length;
        let of_right = read(right, columns)?;
        let of_left = match left {
            Factor::Panel(panel) => read(panel, Panel::ROWS)?,
            Factor::Fragments(tile) => self.left_fragments(tile, first)?,
        };
        for at in 0..length {
            let tile = Tile { fragment: sums, index: Index::constant(at as i64) };
            let mut elements = match begins {
                true => vec![Scalar::Int(0).cast(dtype); Panel::ROWS * shape.columns],
                false => self.tile_elements(&tile, first)?,
            };
            for (i, sum) in elements.iter_mut().enumerate() {
                let (row, column) = (i / shape.columns, at * shape.columns + i % shape.columns);
                let terms = |factor: &[f64], outer: usize| factor[outer * width..][..width].to_vec();
                let (left, right) = (terms(&of_left, row), terms(&of_right, column));
                let total = left.iter().zip(right).map(|(a, b)| a * b).sum::<f64>() + sum.as_f64();
                // Sums of integers are exact, and wrap.
                let total = if dtype.is_float() { Scalar::Float(total) } else { Scalar::Int(total as i64) };
                *sum = total.cast(dtype);
            }
            *self.tile(&tile, first)? = Some(elements);
        }
        let (left_panel, left) = match left {
            Factor::Panel(panel) => (Some((panel, Panel::ROWS)), None),
            Factor::Fragments(tile) => (None, Some(tile.fragment)),
        };
        let elements = |(Panel { access, .. }, extent): (&Panel, usize)| {
            let begin = access.index.evaluate(&self.points[first]);
            (access.array, begin..begin + (extent * width) as i64)
        };
        let panels = left_panel.into_iter().chain([(right, columns)]).map(elements).collect();
        self.products[first / team].push(Pending { sums, left, panels });
        Ok(())
    }

    /// The terms of consecutive fragments, row by row.
    fn left_fragments(&mut self, tile: &Tile, first: usize) -> Result<Vec<f64>> {
        let depth = self.kernel.fragments[usize::from(tile.fragment)].shape.depth;
        let mut terms = vec![0.0; Panel::ROWS * Panel::WIDTH];
        for at in 0..Panel::WIDTH / depth {
            let next = Tile { index: tile.index.shift(at as i64), ..tile.clone() };
            for (i, scalar) in self.tile_elements(&next, first)?.into_iter().enumerate() {
                terms[i / depth * Panel::WIDTH + at * depth + i % depth] = scalar.as_f64();
            }
        }
        Ok(terms)
    }

    /// Fails if a product of the team adds to these sums, or has these fragments as a factor.
    fn require_settled(&self, tile: &Tile, first: usize) -> Result<()> {
        let team = self.subgroup * Panel::SUBGROUPS;
        let uses = |product: &Pending| product.sums == tile.fragment || product.left == Some(tile.fragment);
        match self.products[first / team].iter().any(uses) {
            true => self.fail("fragments are accessed before their products are settled"),
            false => Ok(()),
        }
    }

    /// An element of an invocation's share of fragments.
    pub(super) fn element_of_share(
        &mut self,
        number: u16,
        access: &MemoryAccess,
        invocation: usize,
        offset: usize,
    ) -> Result<&mut Scalar> {
        let kernel = self.kernel;
        let fragment = &kernel.fragments[usize::from(number)];
        let team = self.subgroup * fragment.subgroups();
        let index = access.index.evaluate(&self.points[invocation]) + offset as i64;
        let none = || broken(kernel, format!("no element {index} of {fragment:?}"));
        let (index, share) = (usize::try_from(index).map_err(|_| none())?, fragment.share());
        let tile = Tile { fragment: number, index: Index::constant((index / share) as i64) };
        self.require_settled(&tile, invocation / team * team)?;
        let (row, column) = Fragment::position(index % share, invocation % team);
        let (rows, columns) = fragment.extents();
        let matrix = self.fragments[usize::from(number)][invocation / team].get_mut(index / share);
        // In a fragment of which some elements have been written, the others are no numbers.
        let unwritten = || vec![Scalar::Float(f64::NAN); rows * columns];
        let matrix = matrix.ok_or_else(none)?.get_or_insert_with(unwritten);
        matrix.get_mut(row * columns + column).ok_or_else(none)
    }
}

/// Rounds a `float32` factor to the nearest TF32 number, ties away from zero.
fn rounded_to_tf32(number: Scalar) -> Scalar {
    const DROPPED: u32 = 13;
    let float = number.as_f64() as f32;
    let bits = float.to_bits();
    let rounded =
        if float.is_finite() { ((bits + (1 << (DROPPED - 1))) >> DROPPED) << DROPPED } else { bits };
    Scalar::Float(f32::from_bits(rounded).into())
}

#[test]
fn numbers_are_rounded_to_eleven_bits() {
    let step = 1.0 / 1024.0;
    for (number, expected) in [
        (1.0 + step, 1.0 + step),
        (1.0 + 0.49 * step, 1.0),
        (1.0 + 0.5 * step, 1.0 + step),
        (-1.0 - 0.5 * step, -1.0 - step),
        (2.0 - 0.25 * step, 2.0),
        (-0.0, -0.0),
        (f64::INFINITY, f64::INFINITY),
    ] {
        assert_eq!(rounded_to_tf32(Scalar::Float(number)).as_f64().to_bits(), f64::to_bits(expected));
    }
    assert!(rounded_to_tf32(Scalar::Float(f64::NAN)).as_f64().is_nan());
}
