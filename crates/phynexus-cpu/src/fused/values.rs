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
    /// `a <= b ? b : a`.
    AtLeast(InstructionId, InstructionId),
    /// `b <= a ? b : a`.
    AtMost(InstructionId, InstructionId),
    /// `round(a) + b`, clamped to the limits of the value's type and converted to it.
    RoundSum(InstructionId, InstructionId),
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
            Work::SubExp(a, b)
            | Work::AtLeast(a, b)
            | Work::AtMost(a, b)
            | Work::RoundSum(a, b)
            | Work::SumProducts(a, b) => SmallVec::from_slice(&[a, b]),
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
            FusedOp::Cast(a) => self.round_sum(a, *dtype, users).unwrap_or(Work::Plain),
            FusedOp::Select(..) if *dtype == DType::F32 => match self.selected(value, users) {
                Some((true, x, limit)) => Work::AtLeast(x, limit),
                Some((false, x, limit)) => Work::AtMost(x, limit),
                None => Work::Plain,
            },
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

    /// Quantisation: the work of converting a value to an 8-bit integer if it is a rounded number plus another, clamped
    /// to the limits of the type. Kernels that convert saturate.
    fn round_sum(&self, value: InstructionId, to: DType, users: &[u32]) -> Option<Work> {
        let limits = match to {
            DType::I8 => [-128.0, 127.0],
            DType::U8 => [0.0, 255.0],
            _ => return None,
        };
        let has_users =
            |v: InstructionId, count: u32| users[v as usize] == count && self.dtype(v) == DType::F32;
        // A clamped value, which has no other reader.
        let clamped = |v: InstructionId| {
            let instruction = self.instruction(v);
            let (is_lower, x, limit, readers) = match instruction.operation {
                FusedOp::Binary(Binary::Max, a, b) => (true, a, b, 1),
                FusedOp::Binary(Binary::Min, a, b) => (false, a, b, 1),
                _ => self.selected(v, users).map(|(is_lower, x, limit)| (is_lower, x, limit, 2))?,
            };
            let is_limit = |v: InstructionId| match self.instruction(v).operation {
                FusedOp::Constant(scalar) => scalar.as_f64() == limits[usize::from(!is_lower)],
                _ => false,
            };
            let x = match (is_limit(x), is_limit(limit)) {
                (_, true) => x,
                (true, _) => limit,
                _ => return None,
            };
            has_users(x, readers).then_some((is_lower, x))
        };
        let (outer, value) = if has_users(value, 1) { clamped(value)? } else { return None };
        let (inner, value) = clamped(value)?;
        let FusedOp::Binary(Binary::Add, a, b) = self.instruction(value).operation else { return None };
        let rounded = |v: InstructionId| match self.instruction(v).operation {
            FusedOp::Unary(Unary::Round, x) if has_users(v, 1) && self.dtype(x) == DType::F32 => Some(x),
            _ => None,
        };
        let (x, offset) = match (rounded(a), rounded(b)) {
            (Some(x), _) => (x, b),
            (None, Some(x)) => (x, a),
            _ => return None,
        };
        let exact = |v: InstructionId| self.instruction(v).dtype == DType::F32;
        (outer != inner && exact(value) && exact(offset)).then_some(Work::RoundSum(x, offset))
    }

    /// For `x <= limit ? limit : x` (true) and `limit <= x ? limit : x` (false): which, x and the limit.
    fn selected(&self, value: InstructionId, users: &[u32]) -> Option<(bool, InstructionId, InstructionId)> {
        let FusedOp::Select(condition, limit, x) = self.instruction(value).operation else { return None };
        let FusedOp::Binary(Binary::Le, a, b) = self.instruction(condition).operation else { return None };
        let is_own = users[condition as usize] == 1 && self.dtype(x) == self.dtype(value);
        match is_own && x != limit {
            true if (a, b) == (x, limit) => Some((true, x, limit)),
            true if (a, b) == (limit, x) => Some((false, x, limit)),
            _ => None,
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
