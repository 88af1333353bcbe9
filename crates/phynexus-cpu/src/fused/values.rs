//! Maps each instruction of a kernel to its work: one call of a vector kernel, several instructions fused into one
//! call, or nothing.

use phynexus::{
    DType,
    kernel::fused::{FusedOp, Fusion, Instruction, InstructionId},
    op::{Binary, Combine, Composite, Unary, composite::Gelu},
};
use smallvec::SmallVec;

use crate::vector;

/// The computation of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Work {
    /// The value's own instruction.
    Plain,
    /// The same as another value.
    Same(InstructionId),
    /// A named function of one value.
    Chain(vector::Chain, InstructionId),
    /// `exp(a - b)`.
    SubExp(InstructionId, InstructionId),
    /// `a * b + c`.
    MulAdd(InstructionId, InstructionId, InstructionId),
    /// The sum of `a * b` over the columns.
    SumProducts(InstructionId, InstructionId),
}

/// The values of a kernel.
pub(super) struct Values<'a> {
    pub(super) kernel: &'a Fusion,
    pub(super) work: Vec<Work>,
    /// Whether a stored value depends on it.
    pub(super) needed: Vec<bool>,
    /// The number of consecutive reductions between the kernel's loads and the value.
    pub(super) phase: Vec<usize>,
}

impl<'a> Values<'a> {
    /// Analyses a kernel in normal form.
    pub(super) fn new(kernel: &'a Fusion) -> Values<'a> {
        let count = kernel.instructions.len();
        let mut values = Values {
            kernel,
            work: vec![Work::Plain; count],
            needed: vec![false; count],
            phase: vec![0; count],
        };
        let users = values.users();
        for at in 0..count {
            values.work[at] = values.choose(at as InstructionId, &users);
        }
        for store in &kernel.stores {
            values.needed[store.value as usize] = true;
        }
        for at in (0..count).rev() {
            if values.needed[at] {
                for operand in values.operands(at as InstructionId) {
                    values.needed[operand as usize] = true;
                }
            }
        }
        for at in 0..count {
            let operands = values.operands(at as InstructionId);
            let before = operands.iter().map(|&v| values.phase[v as usize]).max().unwrap_or(0);
            let reduces = matches!(values.instruction(at as InstructionId).operation, FusedOp::Reduce(..));
            values.phase[at] = before + usize::from(reduces);
        }
        values
    }

    pub(super) fn instruction(&self, value: InstructionId) -> &'a Instruction {
        &self.kernel.instructions[value as usize]
    }

    /// The dtype in which a value is computed.
    pub(super) fn dtype(&self, value: InstructionId) -> DType {
        self.instruction(value).dtype.compute()
    }

    /// The operands of its computation.
    pub(super) fn operands(&self, value: InstructionId) -> SmallVec<[InstructionId; 3]> {
        match self.work[value as usize] {
            Work::Plain => self.instruction(value).operation.operands(),
            Work::Same(a) | Work::Chain(_, a) => SmallVec::from_slice(&[a]),
            Work::SubExp(a, b) | Work::SumProducts(a, b) => SmallVec::from_slice(&[a, b]),
            Work::MulAdd(a, b, c) => SmallVec::from_slice(&[a, b, c]),
        }
    }

    /// The greatest phase of a needed value.
    pub(super) fn phases(&self) -> usize {
        self.phase.iter().zip(&self.needed).filter(|(_, needed)| **needed).map(|(&p, _)| p).max().unwrap_or(0)
    }

    /// The number of readers of each value.
    fn users(&self) -> Vec<u32> {
        let mut users = vec![0; self.kernel.instructions.len()];
        let read = self.kernel.instructions.iter().flat_map(|i| i.operation.operands());
        for value in read.chain(self.kernel.stores.iter().map(|s| s.value)) {
            users[value as usize] += 1;
        }
        users
    }

    fn choose(&self, value: InstructionId, users: &[u32]) -> Work {
        let Instruction { operation, dtype, .. } = self.instruction(value);
        // A value inside a chain has no other reader.
        let inner = |v: InstructionId| {
            (users[v as usize] == 1 && self.dtype(v) == *dtype).then(|| self.instruction(v))
        };
        match *operation {
            FusedOp::Call(ref composite, a) => {
                chain(composite).map_or(Work::Plain, |chain| Work::Chain(chain, a))
            }
            // The store rounds the value to 16 bits.
            FusedOp::Cast(a) if self.dtype(a) == dtype.compute() && self.is_only_stored(value) => {
                Work::Same(a)
            }
            // A cast to a 16-bit type rounds, even if the operand is computed in the same format.
            FusedOp::Cast(a) if self.dtype(a) == *dtype || self.instruction(a).dtype == *dtype => {
                Work::Same(a)
            }
            FusedOp::Bitcast(a) if self.instruction(a).dtype == *dtype => Work::Same(a),
            FusedOp::Unary(Unary::Exp, a) if matches!(dtype, DType::F32 | DType::F64) => {
                match inner(a).map(|i| &i.operation) {
                    Some(&FusedOp::Binary(Binary::Sub, a, b)) => Work::SubExp(a, b),
                    _ => Work::Plain,
                }
            }
            FusedOp::Binary(Binary::Add, a, b) if matches!(dtype, DType::F32 | DType::F64) => {
                let product = |v: InstructionId| match inner(v).map(|i| &i.operation) {
                    Some(&FusedOp::Binary(Binary::Mul, x, y)) => Some((x, y)),
                    _ => None,
                };
                match (product(a), product(b)) {
                    (Some((x, y)), _) => Work::MulAdd(x, y, b),
                    (None, Some((x, y))) => Work::MulAdd(x, y, a),
                    _ => Work::Plain,
                }
            }
            FusedOp::Reduce(Combine::Sum, a) if matches!(dtype, DType::F32 | DType::F64) => {
                match inner(a).map(|i| &i.operation) {
                    Some(&FusedOp::Binary(Binary::Mul, x, y)) if self.work[a as usize] == Work::Plain => {
                        Work::SumProducts(x, y)
                    }
                    _ => Work::Plain,
                }
            }
            _ => Work::Plain,
        }
    }

    /// True if a value is only read by stores in its own dtype.
    fn is_only_stored(&self, value: InstructionId) -> bool {
        let dtype = self.instruction(value).dtype;
        let parameter = |at: u16| self.kernel.parameters.get(usize::from(at)).map(|p| p.dtype);
        self.kernel.stores.iter().all(|s| s.value != value || parameter(s.parameter) == Some(dtype))
            && !self.kernel.instructions.iter().any(|i| i.operation.operands().contains(&value))
    }
}

/// The vector kernel of a composite that this device claims by name.
pub(crate) fn chain(composite: &Composite) -> Option<vector::Chain> {
    Some(match composite {
        Composite::Gelu(Gelu { tanh: false }) => vector::Chain::Gelu,
        Composite::Gelu(Gelu { tanh: true }) => vector::Chain::GeluTanh,
        Composite::Silu(_) => vector::Chain::Silu,
        _ => return None,
    })
}
