//! Operator overloads for tensors. They return `Result<Tensor>`, as the methods do: `(&a + &b)? * 2.0`.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Sub};

use crate::{Result, Scalar, Tensor};

macro_rules! operator {
    ($trait:ident, $function:ident, $method:ident, $scalar:ident) => {
        impl $trait<&Tensor> for &Tensor {
            type Output = Result<Tensor>;
            fn $function(self, other: &Tensor) -> Result<Tensor> {
                Tensor::$method(self, other)
            }
        }
        impl $trait<Tensor> for &Tensor {
            type Output = Result<Tensor>;
            fn $function(self, other: Tensor) -> Result<Tensor> {
                Tensor::$method(self, &other)
            }
        }
        impl $trait<&Tensor> for Tensor {
            type Output = Result<Tensor>;
            fn $function(self, other: &Tensor) -> Result<Tensor> {
                Tensor::$method(&self, other)
            }
        }
        impl $trait<Tensor> for Tensor {
            type Output = Result<Tensor>;
            fn $function(self, other: Tensor) -> Result<Tensor> {
                Tensor::$method(&self, &other)
            }
        }
        impl<T: Into<Scalar>> $trait<T> for &Tensor {
            type Output = Result<Tensor>;
            fn $function(self, value: T) -> Result<Tensor> {
                Tensor::$scalar(self, value)
            }
        }
        impl<T: Into<Scalar>> $trait<T> for Tensor {
            type Output = Result<Tensor>;
            fn $function(self, value: T) -> Result<Tensor> {
                Tensor::$scalar(&self, value)
            }
        }
    };
}

operator!(Add, add, add, add_scalar);
operator!(Sub, sub, sub, sub_scalar);
operator!(Mul, mul, mul, mul_scalar);
operator!(Div, div, div, div_scalar);
operator!(Rem, rem, remainder, remainder_scalar);
operator!(BitAnd, bitand, and, and_scalar);
operator!(BitOr, bitor, or, or_scalar);
operator!(BitXor, bitxor, xor, xor_scalar);

// Only one float and one integer type: with more, the type of the literal in `2.0 - &tensor` would be ambiguous.
macro_rules! number_first {
    ($trait:ident, $function:ident, $scalar:ident: $($number:ty),+) => {
        $(
            impl $trait<&Tensor> for $number {
                type Output = Result<Tensor>;
                fn $function(self, tensor: &Tensor) -> Result<Tensor> {
                    tensor.$scalar(self)
                }
            }
            impl $trait<Tensor> for $number {
                type Output = Result<Tensor>;
                fn $function(self, tensor: Tensor) -> Result<Tensor> {
                    tensor.$scalar(self)
                }
            }
        )+
    };
}

number_first!(Add, add, add_scalar: f64, i64);
number_first!(Sub, sub, rsub_scalar: f64, i64);
number_first!(Mul, mul, mul_scalar: f64, i64);
number_first!(Div, div, rdiv_scalar: f64, i64);

impl Neg for &Tensor {
    type Output = Result<Tensor>;
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(self)
    }
}
impl Neg for Tensor {
    type Output = Result<Tensor>;
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(&self)
    }
}
impl Not for &Tensor {
    type Output = Result<Tensor>;
    fn not(self) -> Result<Tensor> {
        self.bitwise_not()
    }
}
impl Not for Tensor {
    type Output = Result<Tensor>;
    fn not(self) -> Result<Tensor> {
        Tensor::bitwise_not(&self)
    }
}
