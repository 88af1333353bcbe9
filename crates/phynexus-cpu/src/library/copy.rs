//! Contiguous copies of operands, for routines that want them.

use phynexus::{
    Result, Scalar,
    kernel::{
        Ranges,
        fused::{Fused, Instruction, Operation, Parameter, Store},
        view,
    },
    schedule::step::Operand,
    shape::contiguous_strides,
};

use crate::fused::FusedKernel;

/// A copy into row-major order.
pub(super) struct Contiguous {
    kernel: FusedKernel,
    /// Bytes of the copy.
    pub(super) bytes: usize,
}

impl Contiguous {
    pub(super) fn new(operand: &Operand) -> Result<Contiguous> {
        let shape = &operand.layout.shape;
        let coordinates = Ranges::of(shape).coordinates();
        let dtype = operand.dtype;
        let index = view::flat(&coordinates, &operand.layout.strides, 0);
        let load = Operation::Load { parameter: 0, index, mask: None, fill: Scalar::Int(0) };
        let kernel = Fused {
            rows: shape.clone(),
            instructions: vec![Instruction { operation: load, dtype, per_column: false }],
            stores: vec![Store {
                parameter: 1,
                value: 0,
                index: view::flat(&coordinates, &contiguous_strides(shape), 0),
            }],
            parameters: vec![Parameter { dtype, written: false }, Parameter { dtype, written: true }],
            ..Fused::default()
        };
        Ok(Contiguous { kernel: FusedKernel::new(&kernel)?, bytes: operand.layout.len() * dtype.size() })
    }

    /// # Safety
    /// The operand's elements can be read from `source` on, and `target` has room for as many.
    pub(super) unsafe fn run(&self, source: *mut u8, target: *mut u8) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.kernel.run(&[source, target]) }
    }
}
