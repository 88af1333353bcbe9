//! Maps each instruction of a kernel to its work: one call of a vector kernel, several instructions fused into one
//! call, or nothing.

use phynexus::{
    DType, Scalar,
    kernel::fused::{Fused, Instruction, Operation, Value},
    op::{Binary, Combine, Unary},
};
use smallvec::SmallVec;

use crate::vector;

/// The computation of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Work {
    /// The value's own instruction.
    Plain,
    /// The same as another value.
    Same(Value),
    /// A fused chain of several instructions on one value.
    Chain(vector::Fused, Value),
    /// `exp(a - b)`.
    SubExp(Value, Value),
    /// `a * b + c`.
    MulAdd(Value, Value, Value),
    /// The sum of `a * b` over the columns.
    SumProducts(Value, Value),
}

/// The values of a kernel.
pub(super) struct Values<'a> {
    pub(super) kernel: &'a Fused,
    pub(super) work: Vec<Work>,
    /// Whether a stored value depends on it.
    pub(super) needed: Vec<bool>,
    /// The number of consecutive reductions between the kernel's loads and the value.
    pub(super) phase: Vec<usize>,
}

impl<'a> Values<'a> {
    /// Analyses a kernel in normal form.
    pub(super) fn new(kernel: &'a Fused) -> Values<'a> {
        let count = kernel.instructions.len();
        let mut values = Values {
            kernel,
            work: vec![Work::Plain; count],
            needed: vec![false; count],
            phase: vec![0; count],
        };
        let users = values.users();
        for at in 0..count {
            values.work[at] = values.choose(at as Value, &users);
        }
        for store in &kernel.stores {
            values.needed[store.value as usize] = true;
        }
        for at in (0..count).rev() {
            if values.needed[at] {
                for operand in values.operands(at as Value) {
                    values.needed[operand as usize] = true;
                }
            }
        }
        for at in 0..count {
            let operands = values.operands(at as Value);
            let before = operands.iter().map(|&v| values.phase[v as usize]).max().unwrap_or(0);
            let reduces = matches!(values.instruction(at as Value).operation, Operation::Reduce(..));
            values.phase[at] = before + usize::from(reduces);
        }
        values
    }

    pub(super) fn instruction(&self, value: Value) -> &'a Instruction {
        &self.kernel.instructions[value as usize]
    }

    /// The dtype in which a value is computed.
    pub(super) fn dtype(&self, value: Value) -> DType {
        self.instruction(value).dtype.compute()
    }

    /// The operands of its computation.
    pub(super) fn operands(&self, value: Value) -> SmallVec<[Value; 3]> {
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

    fn choose(&self, value: Value, users: &[u32]) -> Work {
        let Instruction { operation, dtype, .. } = self.instruction(value);
        // A value inside a chain has no other reader.
        let inner =
            |v: Value| (users[v as usize] == 1 && self.dtype(v) == *dtype).then(|| self.instruction(v));
        match *operation {
            // The store rounds the value to 16 bits.
            Operation::Cast(a) if self.dtype(a) == dtype.compute() && self.is_only_stored(value) => {
                Work::Same(a)
            }
            // A cast to a 16-bit type rounds, even if the operand is computed in the same format.
            Operation::Cast(a) if self.dtype(a) == *dtype || self.instruction(a).dtype == *dtype => {
                Work::Same(a)
            }
            Operation::Bitcast(a) if self.instruction(a).dtype == *dtype => Work::Same(a),
            Operation::Unary(Unary::Exp, a) if matches!(dtype, DType::F32 | DType::F64) => {
                match inner(a).map(|i| &i.operation) {
                    Some(&Operation::Binary(Binary::Sub, a, b)) => Work::SubExp(a, b),
                    _ => Work::Plain,
                }
            }
            Operation::Binary(Binary::Add, a, b) if matches!(dtype, DType::F32 | DType::F64) => {
                let product = |v: Value| match inner(v).map(|i| &i.operation) {
                    Some(&Operation::Binary(Binary::Mul, x, y)) => Some((x, y)),
                    _ => None,
                };
                match (product(a), product(b)) {
                    (Some((x, y)), _) => Work::MulAdd(x, y, b),
                    (None, Some((x, y))) => Work::MulAdd(x, y, a),
                    _ => Work::Plain,
                }
            }
            Operation::Binary(Binary::Mul, a, b) if matches!(dtype, DType::F32 | DType::F64) => {
                self.gelu(a, b, users).or_else(|| self.gelu(b, a, users)).unwrap_or(Work::Plain)
            }
            Operation::Reduce(Combine::Sum, a) if matches!(dtype, DType::F32 | DType::F64) => {
                match inner(a).map(|i| &i.operation) {
                    Some(&Operation::Binary(Binary::Mul, x, y)) if self.work[a as usize] == Work::Plain => {
                        Work::SumProducts(x, y)
                    }
                    _ => Work::Plain,
                }
            }
            _ => Work::Plain,
        }
    }

    /// True if a value is only read by stores in its own dtype.
    fn is_only_stored(&self, value: Value) -> bool {
        let dtype = self.instruction(value).dtype;
        let parameter = |at: u16| self.kernel.parameters.get(usize::from(at)).map(|p| p.dtype);
        self.kernel.stores.iter().all(|s| s.value != value || parameter(s.parameter) == Some(dtype))
            && !self.kernel.instructions.iter().any(|i| i.operation.operands().contains(&value))
    }

    /// The constant of a value, if it is one.
    fn constant(&self, value: Value) -> Option<f64> {
        match self.instruction(value).operation {
            Operation::Constant(scalar) => Some(scalar.cast(self.dtype(value)).as_f64()),
            _ => None,
        }
    }

    fn is_constant(&self, value: Value, number: f64) -> bool {
        self.constant(value) == Some(Scalar::Float(number).cast(self.dtype(value)).as_f64())
    }

    /// `(x * 0.5) * (1 + erf(x * sqrt(1/2)))` or its `tanh` approximation, given the two factors. The chain's kernel
    /// uses the same operations one by one, so the result is bit-identical.
    fn gelu(&self, half: Value, rest: Value, users: &[u32]) -> Option<Work> {
        let once = |v: Value| (users[v as usize] == 1).then(|| &self.instruction(v).operation);
        let times = |v: Value, number: f64| match *once(v)? {
            Operation::Binary(Binary::Mul, a, b) if self.is_constant(b, number) => Some(a),
            Operation::Binary(Binary::Mul, a, b) if self.is_constant(a, number) => Some(b),
            _ => None,
        };
        let plus_one = |v: Value| match *once(v)? {
            Operation::Binary(Binary::Add, a, b) if self.is_constant(b, 1.0) => Some(a),
            Operation::Binary(Binary::Add, a, b) if self.is_constant(a, 1.0) => Some(b),
            _ => None,
        };
        let x = times(half, 0.5)?;
        match *once(plus_one(rest)?)? {
            Operation::Unary(Unary::Erf, inner) => {
                let same = times(inner, std::f64::consts::FRAC_1_SQRT_2)? == x;
                same.then_some(Work::Chain(vector::Fused::Gelu, x))
            }
            Operation::Unary(Unary::Tanh, inner) => {
                let root = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
                let Operation::Binary(Binary::Add, a, b) = *once(times(inner, root)?)? else { return None };
                let cubic = if a == x { b } else { a };
                let cube = times(cubic, 0.044715)?;
                let Operation::Binary(Binary::Mul, p, q) = *once(cube)? else { return None };
                let square = if p == x { q } else { p };
                let is_square = *once(square)? == Operation::Binary(Binary::Mul, x, x);
                ((a == x || b == x) && (p == x || q == x) && is_square)
                    .then_some(Work::Chain(vector::Fused::GeluTanh, x))
            }
            _ => None,
        }
    }
}
