//! GELU.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

use super::{
    Definition,
    sample::{Sample, elementwise},
};
use crate::{
    Result,
    op::{formula::Formula, term::Term},
};

/// `x * P(X <= x)` for a standard normal X (Hendrycks and Gimpel, 2016).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gelu {
    /// With the paper's tanh approximation of the distribution function rather than erf.
    pub tanh: bool,
}

impl Definition for Gelu {
    fn name(&self) -> &'static str {
        "gelu"
    }

    fn attributes(&self) -> String {
        format!("approximate={}", if self.tanh { "tanh" } else { "none" })
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        let x = Formula::wide(&operands[0]);
        let distribution = if self.tanh {
            let inner = (&x * &x * &x * 0.044715 + &x) * (FRAC_2_SQRT_PI / SQRT_2);
            inner.tanh() + 1.0
        } else {
            (&x * FRAC_1_SQRT_2).erf() + 1.0
        };
        (x * 0.5 * distribution).cast(operands[0].dtype()).term()
    }

    fn is_elementwise(&self) -> bool {
        true
    }

    fn samples() -> Vec<Sample> {
        [false, true].into_iter().flat_map(|tanh| elementwise(Gelu { tanh })).collect()
    }
}
