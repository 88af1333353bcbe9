//! What a gradient rule knows, and what it gives.

use smallvec::SmallVec;

use crate::{
    Result,
    op::{formula::Formula, term::Term},
};

/// What a rule knows: a node's operands and result, the gradient of its result, and which operands need theirs.
pub(crate) struct Call<'a> {
    pub(crate) inputs: &'a [Term],
    pub(crate) output: &'a Term,
    pub(crate) gradient: &'a Term,
    pub(crate) needs: &'a [bool],
}

/// One entry an operand: its gradient, of its shape and dtype, or `None` where it is zero or not needed.
pub(crate) type InputGradients = SmallVec<[Option<Term>; 3]>;

impl Call<'_> {
    /// An operand as a formula.
    pub(in crate::op) fn input(&self, position: usize) -> Formula {
        Formula::of(&self.inputs[position])
    }
    /// The result as a formula.
    pub(in crate::op) fn output(&self) -> Formula {
        Formula::of(self.output)
    }
    /// The gradient of the result as a formula.
    pub(in crate::op) fn gradient(&self) -> Formula {
        Formula::of(self.gradient)
    }
    /// Applies `rule` to the positions of the operands that need a gradient.
    pub(in crate::op) fn each(
        &self,
        mut rule: impl FnMut(usize) -> Formula,
    ) -> Result<Option<InputGradients>> {
        let one = |(position, &needed): (usize, &bool)| needed.then(|| rule(position).term()).transpose();
        self.needs.iter().enumerate().map(one).collect::<Result<_>>().map(Some)
    }
    /// Applies a rule for 16-bit floats to the same numbers as `float32`, and rounds what it gives.
    pub(in crate::op) fn in_compute_dtype(
        &self,
        rule: impl FnOnce(&Call) -> Result<Option<InputGradients>>,
    ) -> Result<Option<InputGradients>> {
        let dtype = self.gradient.dtype();
        if dtype.compute() == dtype {
            return rule(self);
        }
        let wide = |tensor: &Term| match tensor.dtype() == dtype {
            true => Formula::of(tensor).cast(dtype.compute()).term(),
            false => Ok(tensor.clone()),
        };
        let inputs: SmallVec<[Term; 3]> = self.inputs.iter().map(wide).collect::<Result<_>>()?;
        let (output, gradient) = (wide(self.output)?, wide(self.gradient)?);
        let gradients =
            rule(&Call { inputs: &inputs, output: &output, gradient: &gradient, needs: self.needs })?;
        let rounded = |gradient: Option<Term>| {
            gradient.map(|gradient| Formula::of(&gradient).cast(dtype).term()).transpose()
        };
        gradients.map(|all| all.into_iter().map(rounded).collect()).transpose()
    }
}

/// What the rule of an operation reads: of what it does not, no value is kept for the gradient.
#[derive(Clone, Copy)]
pub(crate) struct Reads {
    operands: Operands,
    /// True if it reads the result.
    pub(crate) result: bool,
}

/// Which operands a rule reads.
#[derive(Clone, Copy)]
enum Operands {
    Nothing,
    All,
    /// The first.
    First,
    /// Each of two if the other one needs a gradient.
    Crosswise,
}

impl Reads {
    pub(crate) const NOTHING: Reads = Reads { operands: Operands::Nothing, result: false };
    pub(crate) const RESULT: Reads = Reads { operands: Operands::Nothing, result: true };
    pub(in crate::op) const FIRST: Reads = Reads { operands: Operands::First, result: false };
    pub(in crate::op) const CROSSWISE: Reads = Reads { operands: Operands::Crosswise, result: false };
    pub(crate) const OPERANDS: Reads = Reads { operands: Operands::All, result: false };
    pub(in crate::op) const EVERYTHING: Reads = Reads { operands: Operands::All, result: true };

    /// True if it reads this operand; `needs` tells which operands need a gradient.
    pub(crate) fn operand(&self, position: usize, needs: impl Fn(usize) -> bool) -> bool {
        match self.operands {
            Operands::Nothing => false,
            Operands::All => true,
            Operands::First => position == 0,
            Operands::Crosswise => needs(1 - position),
        }
    }
}
