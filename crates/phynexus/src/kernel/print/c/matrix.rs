//! Matrix fragments and the copies that feed them, as calls of functions that a language's table defines.

use super::{CFamily, Printer};
use crate::{
    DType, Error, Result,
    kernel::{
        Index,
        index::Atom,
        loops::{AsyncCopy, Factor, Fragment, Matrix, MemoryAccess, Panel, Role, Statement, Tile},
    },
};

/// Iterations of a loop from which on it pays to compute what its addresses have in common before it.
const LONG_LOOP: usize = 24;

impl Printer<'_, CFamily> {
    /// Notes that the language's functions for fragments and copies are called, if it has them.
    fn needs(&mut self, has: bool, what: &str) -> Result<()> {
        self.dialect.matrices = true;
        let device = self.language().name;
        let message = format!("{device} has no {what}, which kernel {} uses", self.kernel.name);
        if has { Ok(()) } else { Err(Error::Unsupported { device: device.to_owned(), message }) }
    }

    /// Declares an array of fragments: an invocation's share of each.
    pub(super) fn fragment(&mut self, number: usize, fragment: &Fragment) -> Result<()> {
        self.needs(self.language().matrices.is_some(), "matrix fragments")?;
        if fragment.subgroups() > 1 && fragment.role == Role::Accumulator {
            let products = self.language().products;
            self.needs(products.is_some(), "products of panels")?;
            if let Some(products) = products {
                for definition in [products.common.to_owned(), (products.functions)(fragment)] {
                    if !self.dialect.products.contains(&definition) {
                        self.dialect.products += &definition;
                    }
                }
            }
        }
        let kind = match fragment.role {
            Role::Accumulator if fragment.subgroups() > 1 => {
                let sum = self.language().memory_type(fragment.dtype);
                format!("{sum} fragment{number}[{}][{}]", fragment.length, fragment.share())
            }
            Role::Accumulator => format!("sum_fragment fragment{number}[{}]", fragment.length),
            Role::Left | Role::Right => format!("factor_fragment fragment{number}[{}]", fragment.length),
        };
        self.line(format!("{kind};"));
        Ok(())
    }

    /// Computes what the addresses of copies to panels have in common in all iterations of a loop before it. Left to
    /// itself, the compiler computes that again in each one to save registers, while the matrix units wait.
    pub(super) fn keep_addresses(&mut self, axis: u8, body: &[Statement]) {
        if !self.kernel.has_panels() || self.kernel.axes[usize::from(axis)].extent < LONG_LOOP {
            return;
        }
        let mut found: Vec<Index> = Vec::new();
        for statement in body {
            let Statement::AsyncCopy(AsyncCopy::Begin { from, .. }) = statement else { continue };
            for index in from.mask.conditions().iter().map(|c| &c.index).chain([&from.index]) {
                let (fixed, _) = index.split(usize::from(axis));
                let is_short = fixed.terms().len() < 2
                    && fixed.terms().iter().all(|term| matches!(term.atom, Atom::Range(_)));
                if !is_short && !found.contains(&fixed) {
                    found.push(fixed);
                }
            }
        }
        for (number, fixed) in found.iter().enumerate() {
            let (t, value) = (self.index_type(), self.index(fixed));
            self.line(format!("const {t} kept{axis}_{number} = kept({value});"));
        }
        self.kept = Some((axis, found));
    }

    fn tile(&mut self, tile: &Tile) -> String {
        format!("fragment{}[{}]", tile.fragment, self.structural_index(&tile.index))
    }

    pub(super) fn matrix(&mut self, matrix: &Matrix) -> Result<()> {
        let fragment = |tile: &Tile| &self.kernel.fragments[usize::from(tile.fragment)];
        let call = match matrix {
            Matrix::Fill(tile, scalar) => {
                let scalar = self.literal(fragment(tile).dtype, *scalar);
                format!("fragment_fill({}, {scalar})", self.tile(tile))
            }
            Matrix::Load { tile, access, stride, transposed } => {
                // The instruction wants the left factor by rows and the right one by columns.
                let turned = (fragment(tile).role == Role::Right) != *transposed;
                let element = if fragment(tile).dtype == DType::F32 { "float" } else { "unsigned short" };
                let pointer = self.pointer(access, &format!("const {element}"))?;
                format!("fragment_load<{transposed}, {turned}>({}, {pointer}, {stride})", self.tile(tile))
            }
            Matrix::MultiplyAdd { accumulator, left, right } => {
                let dtype = fragment(left).dtype;
                let (sum, left, right) = (self.tile(accumulator), self.tile(left), self.tile(right));
                format!("fragment_multiply_add_{dtype}({sum}, {left}, {right})")
            }
            Matrix::Store { tile, access, stride } => {
                let dtype = self.kernel.array(access.array).map_or(DType::F32, |(dtype, _)| dtype);
                let pointer = self.pointer(access, self.language().memory_type(dtype))?;
                let name = match fragment(tile).subgroups() > 1 {
                    true => format!("team_fragment_store_{dtype}"),
                    false => "fragment_store".to_owned(),
                };
                format!("{name}({pointer}, {}, {stride})", self.tile(tile))
            }
            Matrix::Product { sums, left, right, begins } => {
                let dtype = |panel: &Panel| {
                    self.kernel.array(panel.access.array).map_or(DType::F32, |(dtype, _)| dtype)
                };
                let of_right = dtype(right);
                let name = match left {
                    Factor::Panel(left) if dtype(left) != of_right => format!("{}_{of_right}", dtype(left)),
                    _ => of_right.name().to_owned(),
                };
                let (turned, left) = match left {
                    Factor::Panel(left) => (!left.along_terms, self.pointer(&left.access, "const void")?),
                    Factor::Fragments(tile) => (false, format!("&{}", self.tile(tile))),
                };
                let right_turned = !right.along_terms;
                let right = self.pointer(&right.access, "const void")?;
                let begins = if *begins { ", true" } else { "" };
                format!("product_{name}<{turned}, {right_turned}{begins}>(fragment{sums}, {left}, {right})")
            }
            Matrix::Settle(most) => {
                self.line(format!("settle<{most}>();"));
                let fragments = self.kernel.fragments.iter().enumerate();
                let is_sum = |f: &Fragment| f.subgroups() > 1 && f.role == Role::Accumulator;
                let teams = fragments.filter(|(_, f)| *most == 0 && is_sum(f)).map(|(number, _)| number);
                for number in teams {
                    self.line(format!("settled(fragment{number});"));
                }
                return Ok(());
            }
        };
        self.line(format!("{call};"));
        Ok(())
    }

    /// A barrier of the groups that share a counter: it counts the times that one of them has come to a barrier.
    pub(super) fn grid_barrier(&mut self, counter: &MemoryAccess) -> Result<()> {
        let language = self.language();
        self.needs(language.grid_barrier.is_some(), "barriers of several groups")?;
        let definition = language.grid_barrier.unwrap_or_default();
        if !self.dialect.products.contains(definition) {
            self.dialect.products += definition;
        }
        let pointer = self.pointer(counter, language.memory_type(DType::U32))?;
        let groups = self.size(self.kernel.grid()[0] as i64);
        let ready = if self.dialect.stores_to_panels { "panels_are_ready(); " } else { "" };
        self.line(format!("{ready}grid_barrier({pointer}, came += {groups});"));
        Ok(())
    }

    /// The address that a copy goes to. In arrays of panels, groups of 16 bytes are permuted.
    fn copy_target(&mut self, access: &MemoryAccess) -> Result<String> {
        if !self.kernel.holds_panels(access.array) {
            return self.pointer(access, "void");
        }
        let (array, address) = (self.array(access.array), self.address(access)?);
        Ok(format!("{array} + permuted({address})"))
    }

    pub(super) fn async_copy(&mut self, copy: &AsyncCopy) -> Result<()> {
        self.needs(self.language().async_copies, "copies to shared memory that go on by themselves")?;
        if !self.kernel.tensors.is_empty() {
            return self.bulk_copy(copy);
        }
        let call = match copy {
            AsyncCopy::Bulk(_) | AsyncCopy::Turn(_) => {
                return Err(Error::internal("kernel::print", "a turn without bulk copies"));
            }
            AsyncCopy::Begin { from, to } => {
                let (source, target) = (self.pointer(from, "const void")?, self.copy_target(to)?);
                let holds = match from.mask.is_always() {
                    true => "true".to_owned(),
                    // All of them are computed, because branches would take longer.
                    false => self.conditions(&from.mask).join(" & "),
                };
                format!("copy_begin({target}, {source}, {holds})")
            }
            AsyncCopy::Mark => "copy_mark()".to_owned(),
            AsyncCopy::Wait(most) => {
                let call = format!("copy_wait<{most}>()");
                // Products do not see what invocations have copied otherwise.
                if self.kernel.has_panels() { format!("{call}; panels_are_ready()") } else { call }
            }
        };
        self.line(format!("{call};"));
        Ok(())
    }
}
