//! Derivatives of elementwise functions. Where a derivative does not exist the value is PyTorch's: 0 for steps and for
//! `abs` at 0, half to each operand where `max` or `min` meets equals.

use super::rule::Call;
use crate::op::{Binary, Unary, formula::Formula};

/// The gradient of the operand of a function of one element.
pub(super) fn unary(function: Unary, call: &Call) -> Formula {
    (function.row().gradient)(&call.gradient(), &call.input(0), &call.output())
}

/// The gradient of operand `position` of a function of two elements.
pub(super) fn binary(function: Binary, call: &Call, position: usize) -> Formula {
    let (g, a, b, y) = (call.gradient(), call.input(0), call.input(1), call.output());
    let first = position == 0;
    match function {
        Binary::Add => g,
        Binary::Sub => {
            if first {
                g
            } else {
                -g
            }
        }
        Binary::Mul => g * if first { b } else { a },
        Binary::Div => {
            if first {
                g / b
            } else {
                -(g * y / b)
            }
        }
        Binary::FloorDiv => g.like(0.0),
        Binary::Remainder => {
            if first {
                g
            } else {
                -(g * a.floor_div(&b))
            }
        }
        Binary::Pow if first => {
            let slope = &b * a.pow(&(&b - 1.0));
            b.eq(&b.like(0.0)).choose(&g.like(0.0), &(g * slope))
        }
        Binary::Pow => {
            // 0 to a power that is not negative is constant in the power.
            let flat = a.eq(&a.like(0.0)).and(&b.like(0.0).le(&b));
            flat.choose(&g.like(0.0), &(g * y * a.log()))
        }
        Binary::Max => extreme(&g, &a, &b, first),
        Binary::Min => extreme(&g, &a, &b, !first),
        Binary::Atan2 => {
            let slope = if first { b.clone() } else { -&a };
            let square = &a * &a + &b * &b;
            // At the origin no slope is right: 0, as PyTorch has it.
            square.eq(&square.like(0.0)).choose(&g.like(0.0), &(g * slope / &square))
        }
        // Integers and bool: no gradient arrives.
        Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr => g.like(0.0),
        Binary::Lt | Binary::Le | Binary::Eq | Binary::Ne => g.like(0.0),
    }
}

/// The part of `g` that goes to the operand that wins when it is the greater (`first`: a) of two: all, half of it for
/// equals, or nothing. NaN passes it to both.
fn extreme(g: &Formula, a: &Formula, b: &Formula, first: bool) -> Formula {
    let loses = if first { a.lt(b) } else { b.lt(a) };
    let shared = a.eq(b).choose(&(g * 0.5), g);
    loses.choose(&g.like(0.0), &shared)
}
