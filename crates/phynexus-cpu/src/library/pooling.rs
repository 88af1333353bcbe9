//! `Op::Pool`.

use phynexus::{
    DType, Result,
    device::Support,
    kernel::step::Operand,
    op::{Geometry, PoolKind, composite::MaxPoolGradient, ir::IrNode},
    shape::Dims,
};

use super::{Routine, misfit};
use crate::pooling::{PoolShape, max_pool_gradient, pooling};

/// Whether there are kernels for this dtype and this number of spatial dimensions.
pub(super) fn support(kind: PoolKind, geometry: &Geometry, operands: &[DType]) -> Support {
    let sums = matches!(kind, PoolKind::Sum | PoolKind::SumBackward);
    match operands {
        [DType::Bool] if sums => Support::Unsupported("bool is not numeric; cast it first".to_owned()),
        [_] if (1..=3).contains(&geometry.kernel.len()) => Support::Routine,
        [_] => Support::Unsupported(format!("pooling does not support {} dimensions", geometry.kernel.len())),
        _ => Support::Unsupported("pooling takes one operand".to_owned()),
    }
}

/// A pooling of fixed shapes.
pub(super) struct Pooling {
    kind: PoolKind,
    dtype: DType,
    geometry: Geometry,
    planes: usize,
    input: Dims,
    output: Dims,
}

impl Pooling {
    pub(super) fn new(
        kind: PoolKind,
        geometry: &Geometry,
        node: &IrNode,
        operands: &[Operand],
    ) -> Result<Pooling> {
        let [operand] = operands else { return Err(misfit("pool", operands)) };
        let shape = &operand.layout.shape;
        let rank = geometry.kernel.len() + 2;
        if shape.len() != rank
            || node.shape.len() != rank
            || support(kind, geometry, &[operand.dtype]) != Support::Routine
        {
            return Err(misfit("pool", operands));
        }
        let (input, output) = match kind {
            PoolKind::SumBackward => (&node.shape, shape),
            _ => (shape, &node.shape),
        };
        let (input, output) = (input[2..].into(), output[2..].into());
        let (dtype, geometry) = (operand.dtype, geometry.clone());
        Ok(Pooling { kind, dtype, geometry, planes: shape[0] * shape[1], input, output })
    }
}

impl Pooling {
    fn shape(&self) -> PoolShape<'_> {
        PoolShape { planes: self.planes, input: &self.input, output: &self.output, geometry: &self.geometry }
    }
}

impl Routine for Pooling {
    unsafe fn run(&self, operands: &[*const u8], result: *mut u8) -> Result<()> {
        let [operand] = operands else { return Err(misfit("pool", &[])) };
        // SAFETY: guaranteed by the caller; the operand is row-major.
        unsafe { pooling(self.kind, self.dtype, &self.shape(), *operand, result) }
    }
}

/// Whether there is a kernel for the gradient of this max pooling.
pub(super) fn supports_gradient(gradient: &MaxPoolGradient) -> bool {
    (1..=3).contains(&gradient.0.kernel.len())
}

/// The gradient of a max pooling of fixed shapes.
pub(super) struct Gradient(Pooling);

impl Gradient {
    pub(super) fn new(gradient: &MaxPoolGradient, node: &IrNode, operands: &[Operand]) -> Result<Gradient> {
        let [x, y] = operands else { return Err(misfit("max_pool_gradient", operands)) };
        let rank = gradient.0.kernel.len() + 2;
        let (input, output) = (&x.layout.shape, &y.layout.shape);
        if !supports_gradient(gradient) || [input, output].iter().any(|shape| shape.len() != rank) {
            return Err(misfit("max_pool_gradient", operands));
        }
        Ok(Gradient(Pooling {
            kind: PoolKind::Max,
            dtype: node.dtype,
            geometry: gradient.0.clone(),
            planes: input[0] * input[1],
            input: input[2..].into(),
            output: output[2..].into(),
        }))
    }
}

impl Routine for Gradient {
    unsafe fn run(&self, operands: &[*const u8], result: *mut u8) -> Result<()> {
        let [input, gradient] = operands else { return Err(misfit("max_pool_gradient", &[])) };
        // SAFETY: guaranteed by the caller; operands are row-major.
        unsafe { max_pool_gradient(self.0.dtype, &self.0.shape(), *input, *gradient, result) }
    }
}
