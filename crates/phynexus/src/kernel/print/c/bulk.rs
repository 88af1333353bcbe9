//! Kernels with bulk copies. One more subgroup makes the copies; barriers in shared memory tell the others what has
//! come, and that subgroup what may be overwritten.

use super::{CFamily, Printer, fill};
use crate::{
    Error, Result,
    kernel::{
        Index,
        loops::{AsyncCopy, BulkCopy, BulkPart, BulkTensor, divided},
        print::Dialect,
    },
};

impl Printer<'_, CFamily> {
    /// The parameters that describe the tensors.
    pub(super) fn tensor_parameters(&self) -> Vec<String> {
        let template = self.language().products.map_or("", |products| products.tensor);
        let number = 0..self.kernel.tensors.len();
        number.map(|number| fill(template, &[("name", &format!("tensor{number}"))])).collect()
    }

    /// The body of a kernel with bulk copies.
    pub(super) fn bulk_body(&mut self) -> Result<()> {
        let Some(products) = self.language().products else {
            let device = self.language().name.to_owned();
            let message = format!("{device} has no bulk copies, which kernel {} uses", self.kernel.name);
            return Err(Error::Unsupported { device, message });
        };
        self.dialect.matrices = true;
        let (batches, invocations) = (self.kernel.bulk_batches(), self.kernel.block()[0]);
        let first = self.language().invocation[0];
        self.line(format!(
            "unsigned long long *const copied = barriers(shared_memory + {});",
            self.kernel.array_bytes()
        ));
        self.line(format!("unsigned long long *const turned = copied + {batches};"));
        self.line(format!("begin_barriers<{batches}, {}>(copied);", invocations / BulkCopy::INVOCATIONS));
        self.line("unsigned int marked = 0, turn = 0;");
        let gives = self.kernel.gives_registers;
        self.block(format!("if ({first} >= {invocations}) {{"), |p| {
            if gives {
                p.line("give_registers();");
            }
            p.block(format!("if ({first} == {invocations}) {{"), |p| {
                p.dialect.makes_copies = true;
                p.body(&divided(&p.kernel.body, true))
            })?;
            p.line("return;");
            Ok(())
        })?;
        self.dialect.makes_copies = false;
        if gives {
            self.line("take_registers();");
        }
        self.line("unsigned int awaited = 0;");
        self.body(&divided(&self.kernel.body, false))?;
        let mut kinds: Vec<(usize, bool)> = self.kernel.tensors.iter().map(kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let functions: String =
            kinds.iter().map(|&(dimensions, windows)| (products.bulk_copy)(dimensions, windows)).collect();
        self.dialect.products = [products.bulk, &functions, &self.dialect.products].concat();
        Ok(())
    }

    /// A mark or turn of a kernel with bulk copies, or such a copy.
    pub(super) fn bulk_copy(&mut self, copy: &AsyncCopy) -> Result<()> {
        let batches = self.kernel.bulk_batches();
        let line = match (copy, self.dialect.makes_copies) {
            (AsyncCopy::Bulk(copy), _) => return self.copy(copy, batches),
            (AsyncCopy::Mark, true) => format!("mark<{batches}>(copied, marked);"),
            (AsyncCopy::Mark, false) => "++marked;".to_owned(),
            (AsyncCopy::Turn(_), true) => format!("await_turn<{batches}>(turned, turn);"),
            (AsyncCopy::Turn(most), false) => {
                format!("take_turn<{batches}, {most}>(copied, turned, marked, awaited, turn);")
            }
            _ => return Err(Error::internal("kernel::print", format!("{copy:?} among bulk copies"))),
        };
        self.line(line);
        Ok(())
    }

    fn copy(&mut self, copy: &BulkCopy, batches: usize) -> Result<()> {
        let BulkCopy { tensor: number, at, mask, to } = copy;
        let missing = || Error::internal("kernel::print", format!("no tensor {number}"));
        let tensor = self.kernel.tensor(copy).ok_or_else(missing)?;
        let size = self.kernel.array(to.array).map_or(0, |(dtype, _)| dtype.size());
        let (mut coordinates, mut distances): (Vec<Index>, &[Index]) = (at.to_vec(), &[]);
        if let BulkPart::Windows { walks, .. } = &tensor.part {
            let mut window = at[1].clone();
            coordinates.truncate(1);
            for walk in walks {
                let count = walk.count as i64;
                let along = window.remainder(count, &self.ranges);
                coordinates.push(along.scale(walk.step as i64).shift(walk.low));
                window = window.quotient(count, &self.ranges);
            }
            coordinates.push(window);
            distances = &at[2..];
        }
        coordinates.extend_from_slice(distances);
        let coordinates: Vec<String> = coordinates.iter().map(|at| self.index(at)).collect();
        let (dimensions, windows) = kind(tensor);
        let (name, bytes) = (if windows { "windows" } else { "box" }, tensor.part.elements() * size);
        let (target, coordinates) = (self.pointer(to, "void")?, coordinates.join(", "));
        let call = format!(
            "copy_{name}_{dimensions}<{bytes}>({target}, &tensor{number}, copied + marked % {batches}, {coordinates});"
        );
        let condition = self.mask(mask);
        self.line(if mask.is_always() { call } else { Self::only_if(&condition, &call) });
        Ok(())
    }
}

/// The number of dimensions, and whether windows are copied.
fn kind(tensor: &BulkTensor) -> (usize, bool) {
    (tensor.dimensions.len(), matches!(tensor.part, BulkPart::Windows { .. }))
}
