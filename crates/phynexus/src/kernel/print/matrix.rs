//! Matrix fragments, through a library with the interface of CUDA's `wmma`.

use super::*;

impl Printer<'_> {
    fn library(&self) -> Result<&'static MatrixLibrary> {
        let language = self.language;
        let message =
            || format!("{} has no matrix fragments, which kernel {} uses", language.name, self.kernel.name);
        language
            .matrix
            .as_ref()
            .ok_or_else(|| Error::Device { device: language.name.to_owned(), message: message() })
    }

    fn element_type(&self, dtype: DType) -> Result<&'static str> {
        let half = self.library()?.half;
        Ok(match dtype {
            DType::F16 => half.0,
            DType::BF16 => half.1,
            other => self.language.memory_type(other),
        })
    }

    pub(super) fn fragment_type(&self, fragment: &Fragment) -> Result<String> {
        let (namespace, shape) = (self.library()?.namespace, fragment.shape);
        let (role, layout) = match fragment.role {
            Role::Left => ("matrix_a", format!(", {namespace}::row_major")),
            Role::Right => ("matrix_b", format!(", {namespace}::row_major")),
            Role::Accumulator => ("accumulator", String::new()),
        };
        let mut text = format!("{namespace}::fragment<{namespace}::{role}");
        for extent in [shape.rows, shape.columns, shape.depth] {
            // Writing to a string cannot fail.
            let _ = write!(text, ", {extent}");
        }
        Ok(format!("{text}, {}{layout}>", self.element_type(fragment.dtype)?))
    }

    fn tile(&mut self, tile: &Tile) -> String {
        format!("fragment{}[{}]", tile.fragment, self.index(&tile.index))
    }

    pub(super) fn matrix(&mut self, matrix: &Matrix) -> Result<()> {
        let namespace = self.library()?.namespace;
        let call = match matrix {
            Matrix::Fill(tile, scalar) => {
                let dtype = self.kernel.fragments[usize::from(tile.fragment)].dtype;
                let scalar = self.functions.constant(dtype, *scalar);
                format!("fill_fragment({}, {scalar})", self.tile(tile))
            }
            Matrix::Load { tile, place, stride } => {
                let fragment = &self.kernel.fragments[usize::from(tile.fragment)];
                let element = self.element_type(fragment.dtype)?;
                let pointer = self.pointer(place, &format!("const {element}"))?;
                let layout = match fragment.role {
                    Role::Accumulator => format!(", {namespace}::mem_row_major"),
                    _ => String::new(),
                };
                format!("load_matrix_sync({}, {pointer}, {stride}{layout})", self.tile(tile))
            }
            Matrix::MultiplyAdd { accumulator, left, right } => {
                let (sum, left, right) = (self.tile(accumulator), self.tile(left), self.tile(right));
                format!("mma_sync({sum}, {left}, {right}, {sum})")
            }
            Matrix::Store { tile, place, stride } => {
                let element = self.element_type(self.kernel.fragments[usize::from(tile.fragment)].dtype)?;
                let pointer = self.pointer(place, element)?;
                format!(
                    "store_matrix_sync({pointer}, {}, {stride}, {namespace}::mem_row_major)",
                    self.tile(tile)
                )
            }
        };
        self.line(format!("{namespace}::{call};"));
        Ok(())
    }
}
