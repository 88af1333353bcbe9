//! Named calls replaced by the bodies of their composites, for devices whose kernels do not know the names.

use std::borrow::Cow;

use super::{
    fused::{FusedOp, Fusion, Instruction, InstructionId},
    step::Step,
};
use crate::{
    DType, Error, Result,
    op::{Composite, Constant, Op, TensorType},
};

impl Step {
    /// The step without named calls.
    ///
    /// # Errors
    /// [`Error::Internal`] if the body of a called composite is not elementwise.
    pub fn expanded(&self) -> Result<Cow<'_, Step>> {
        let calls = |fused: &Fusion| fused.calls().next().is_some();
        Ok(match self {
            Step::Fused(fused) if calls(fused) => Cow::Owned(Step::Fused(fused.expanded()?)),
            Step::Batch(kernels) if kernels.iter().any(calls) => {
                Cow::Owned(Step::Batch(kernels.iter().map(Fusion::expanded).collect::<Result<_>>()?))
            }
            Step::Library(library) if library.epilogue.as_ref().is_some_and(calls) => {
                let mut library = library.clone();
                library.epilogue = library.epilogue.as_ref().map(Fusion::expanded).transpose()?;
                Cow::Owned(Step::Library(library))
            }
            step => Cow::Borrowed(step),
        })
    }
}

impl Fusion {
    /// The composites that it calls by name.
    pub fn calls(&self) -> impl Iterator<Item = &Composite> {
        self.instructions.iter().filter_map(|instruction| match &instruction.operation {
            FusedOp::Call(composite, _) => Some(composite),
            _ => None,
        })
    }

    /// The kernel with the body of each composite instead of its name.
    ///
    /// # Errors
    /// [`Error::Internal`] if a body is not elementwise.
    pub fn expanded(&self) -> Result<Fusion> {
        let mut expanded = Fusion { instructions: Vec::new(), ..self.clone() };
        let mut values: Vec<InstructionId> = Vec::with_capacity(self.instructions.len());
        for Instruction { operation, dtype, per_column } in &self.instructions {
            let value = match operation {
                FusedOp::Call(composite, a) => expanded.inline(composite, values[*a as usize])?,
                other => {
                    let operation = other.mapped(|value| values[value as usize]);
                    expanded.instructions.push(Instruction {
                        operation,
                        dtype: *dtype,
                        per_column: *per_column,
                    });
                    expanded.instructions.len() as InstructionId - 1
                }
            };
            values.push(value);
        }
        expanded.stores.iter_mut().for_each(|store| store.value = values[store.value as usize]);
        Ok(expanded)
    }

    /// Adds the instructions of a body; the value of its result.
    fn inline(&mut self, composite: &Composite, operand: InstructionId) -> Result<InstructionId> {
        let dtype = self.instructions[operand as usize].dtype;
        let body = composite.draft(&[TensorType::new(dtype, &[])])?;
        let mut values: Vec<InstructionId> = Vec::with_capacity(body.nodes.len());
        for node in &body.nodes {
            let of = |input: usize| values[node.inputs[input] as usize];
            let operation = match &node.op {
                Op::Buffer => {
                    values.push(operand);
                    continue;
                }
                Op::Constant(Constant(scalar)) => FusedOp::Constant(*scalar),
                Op::Unary(function) => FusedOp::Unary(*function, of(0)),
                Op::Binary(function) => FusedOp::Binary(*function, of(0), of(1)),
                Op::Where => FusedOp::Select(of(0), of(1), of(2)),
                Op::Cast => FusedOp::Cast(of(0)),
                other => {
                    let message = format!("{} in the body of {}", other.name(), composite.name());
                    return Err(Error::internal("expand", message));
                }
            };
            values.push(self.push(operation, node.dtype));
        }
        Ok(values[body.outputs[0] as usize])
    }

    fn push(&mut self, operation: FusedOp, dtype: DType) -> InstructionId {
        let per_column =
            operation.operands().iter().any(|&operand| self.instructions[operand as usize].per_column);
        self.instructions.push(Instruction { operation, dtype, per_column });
        self.instructions.len() as InstructionId - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        device::Binding,
        kernel::{fused::Parameter, index::Index},
        op::composite::{Gelu, Silu},
    };

    #[test]
    fn a_call_is_its_body() {
        for composite in [Composite::from(Gelu { tanh: true }), Gelu { tanh: false }.into(), Silu.into()] {
            let mut fused = Fusion { rows: [4].as_slice().into(), ..Fusion::default() };
            fused.parameters = vec![
                Parameter { dtype: DType::F32, written: false },
                Parameter { dtype: DType::F32, written: true },
            ];
            let index = Index::range(0, &crate::kernel::Ranges::of(&[4]));
            let load = FusedOp::Load { parameter: 0, index: index.clone(), mask: None, fill: 0.0.into() };
            let x = fused.push(load, DType::F32);
            let called = fused.push(FusedOp::Call(composite.clone(), x), DType::F32);
            let value = fused.push(FusedOp::Binary(crate::op::Binary::Add, called, x), DType::F32);
            fused.stores.push(crate::kernel::fused::Store { parameter: 1, value, index, replaces: None });
            let step = Step::Fused(fused);
            let expanded = step.expanded().unwrap().into_owned();
            let body = expanded.fused().unwrap();
            assert!(body.calls().next().is_none() && body.instructions.len() > 5, "{}", composite.name());
            // Both are the same numbers: the oracle computes a call by the composite's definition.
            let backend = crate::oracle::reference_device().backend();
            let run = |step: &Step| -> Vec<f32> {
                let (x, y) = (backend.allocate(16).unwrap(), backend.allocate(16).unwrap());
                backend.write(&x, 0, &[0.0f32, -1.5, 0.25, 30.0].map(f32::to_le_bytes).concat()).unwrap();
                let bindings = [x, y.clone()].map(|buffer| Binding { buffer, offset: 0 });
                backend.compile(step).unwrap().run(&bindings).unwrap();
                let mut bytes = [0; 16];
                backend.read(&y, 0, &mut bytes).unwrap();
                bytes.as_chunks().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect()
            };
            let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-6 * b.abs());
            let (called, inlined) = (run(&step), run(&expanded));
            assert!(close(&called, &inlined), "{}: {called:?}, {inlined:?}", composite.name());
        }
    }
}
