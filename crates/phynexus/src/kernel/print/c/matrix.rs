//! Matrix fragments and the copies that feed them, as calls of functions that a language's table defines.

use super::{CFamily, Printer};
use crate::{
    DType, Error, Result,
    kernel::loops::{AsyncCopy, Fragment, Matrix, Role, Tile},
};

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
        let kind = if fragment.role == Role::Accumulator { "sum" } else { "factor" };
        self.line(format!("{kind}_fragment fragment{number}[{}];", fragment.length));
        Ok(())
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
                let pointer = self.pointer(access, "float")?;
                format!("fragment_store({pointer}, {}, {stride})", self.tile(tile))
            }
        };
        self.line(format!("{call};"));
        Ok(())
    }

    pub(super) fn async_copy(&mut self, copy: &AsyncCopy) -> Result<()> {
        self.needs(self.language().async_copies, "copies to shared memory that go on by themselves")?;
        let call = match copy {
            AsyncCopy::Begin { from, to } => {
                let (source, target) = (self.pointer(from, "const void")?, self.pointer(to, "void")?);
                let holds = match from.mask.is_always() {
                    true => "true".to_owned(),
                    false => self.mask(&from.mask),
                };
                format!("copy_begin({target}, {source}, {holds})")
            }
            AsyncCopy::Mark => "copy_mark()".to_owned(),
            AsyncCopy::Wait(most) => format!("copy_wait<{most}>()"),
        };
        self.line(format!("{call};"));
        Ok(())
    }
}
