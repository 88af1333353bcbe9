//! A method for each row in the table of the composites' functions.

// The rows name composites.
use crate::{Result, Scalar, Tensor, op::composite::*};

/// What the kinds of arguments are in Rust.
type Operand<'a> = Option<&'a Tensor>;
type Count = usize;
type Number = f64;

/// An argument of a row.
trait Argument<'a>: Sized {
    /// What it adds to the operands.
    fn operand(self) -> Option<&'a Tensor> {
        None
    }
}

impl Argument<'_> for Count {}

impl Argument<'_> for Number {}

impl<'a> Argument<'a> for Operand<'a> {
    fn operand(self) -> Option<&'a Tensor> {
        self
    }
}

/// Records a composite of `x` and of other operands. Those that have the dtype in which `x` is computed keep it; the
/// rest is converted to the dtype of `x`.
pub(super) fn apply<'a>(
    composite: impl Into<Composite>,
    x: &Tensor,
    others: impl IntoIterator<Item = Option<&'a Tensor>>,
) -> Result<Tensor> {
    let wide = x.dtype().compute();
    let convert = |operand: &Tensor| match operand.dtype() == wide {
        true => Ok(operand.clone()),
        false => operand.to_dtype(x.dtype()),
    };
    let others = others.into_iter().flatten().map(convert).collect::<Result<Vec<Tensor>>>()?;
    let operands: Vec<&Tensor> = std::iter::once(x).chain(&others).collect();
    Composite::apply(composite, &operands)
}

macro_rules! methods {
    ($(
        $(#[doc = $doc:literal])+
        $precision:ident $name:ident($($argument:ident: $kind:ident $(= $default:tt)?),*) => $composite:expr;
    )+) => {
        impl Tensor { $(
            $(#[doc = $doc])+
            ///
            /// # Errors
            /// If the dtype is not a float, or a shape or a number does not fit.
            pub fn $name(&self $(, $argument: $kind)*) -> Result<Tensor> {
                apply($composite, self, [$($argument.operand()),*])
            }
        )+ }
    };
}

crate::composite_functions!(methods);
