//! Buffers of hand-written kernels.

use super::{Argument, Launch, Lowered, Source, access::Buffer};
use crate::{
    DType,
    kernel::step::Operand,
    kernel::{Index, build::Builder, loops::BufferParameter},
};

/// A kernel under construction and its arguments.
pub(super) struct Work {
    pub(super) b: Builder,
    arguments: Vec<Argument>,
}

impl Work {
    pub(super) fn new(name: &str) -> Work {
        Work { b: Builder::new(name), arguments: Vec::new() }
    }

    /// Adds a buffer of row-major elements.
    pub(super) fn buffer(&mut self, dtype: DType, length: usize, source: Source, written: bool) -> Buffer {
        self.declare(dtype, length.max(1), source, 0, written)
    }

    /// Adds an operand of a library step, with any strides.
    pub(super) fn operand(&mut self, operand: &Operand, source: Source) -> Buffer {
        let layout = &operand.layout;
        let reach = |d: usize| layout.strides[d] as i64 * (layout.shape[d].max(1) - 1) as i64;
        let (mut low, mut high) = (0, 0);
        for d in 0..layout.shape.len() {
            (low, high) = (low + reach(d).min(0), high + reach(d).max(0));
        }
        self.declare(operand.dtype, (high - low + 1) as usize, source, low, false)
    }

    fn declare(&mut self, dtype: DType, length: usize, source: Source, start: i64, written: bool) -> Buffer {
        let array = self.b.buffer(BufferParameter { dtype, length, written, exclusive: true });
        self.arguments.push(Argument { source, start });
        Buffer { array, length, start }
    }

    pub(super) fn launch(self) -> Launch {
        Launch { kernel: self.b.finish(), arguments: self.arguments }
    }

    pub(super) fn finish(self, lowered: &mut Lowered) {
        lowered.launches.push(self.launch());
    }
}

/// Element 0 of a register.
pub(super) fn only() -> Index {
    Index::default()
}
