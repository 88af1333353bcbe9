//! Primitives: the operations of which everything else consists. Each is a struct with its attributes, which implements
//! `Operation` in a file of its own: the rules for operands, the gradient, the definition, and calls for tests.

mod arg_reduce;
mod arg_sort;
mod buffer;
mod cast;
mod cat;
mod collective;
mod constant;
pub(super) mod conv;
mod copy;
pub(super) mod dot;
mod elementwise;
mod expand;
mod gather;
mod geometry;
mod iota;
mod pad;
mod permute;
mod pool;
mod random_bits;
mod reduce;
mod reshape;
mod scan;
mod scatter;
mod search_sorted;
mod select;
mod slice;

pub(crate) use collective::combines;
pub use collective::{CollectiveKind, GroupMember, Loss};
pub use conv::ConvKind;
pub use gather::IndexRange;
pub use geometry::Geometry;
pub use pool::PoolKind;
pub(in crate::op) use pool::pooling_samples;
pub use reduce::Axes;
pub use scatter::ScatterMode;
pub(in crate::op) use scatter::scatter_along;

use std::fmt;

use super::{
    Binary, Composite, Unary,
    custom::CustomCall,
    formula::Formula,
    gradient::rule::{Call, InputGradients, Reads},
    ir::IrNode,
    operation::{Check, Operation, need, same_dtype, same_shape},
    reference::{Number, OracleArray},
    sample::{Sample, SampleOperand},
};

/// Makes the enum of all operations and everything that lists them.
macro_rules! primitives {
    (
        without attributes { $($unit_module:ident::$unit:ident,)* }
        with attributes { $($module:ident::$name:ident,)* }
    ) => {
        $(pub use $unit_module::$unit;)*
        $(pub use $module::$name;)*

        /// An operation. Shape and dtype of the result are those of the node.
        #[derive(Clone, PartialEq, Eq, Hash)]
        pub enum Op {
            /// An elementwise function of one argument.
            Unary(Unary),
            /// An elementwise function of two arguments; operands have the node's shape.
            Binary(Binary),
            /// A named operation whose body consists of other operations.
            Composite(Composite),
            /// A launch of a user-written kernel.
            Custom(CustomCall),
            $(#[doc = concat!("See [`struct@", stringify!($unit), "`].")] $unit,)*
            $(#[doc = concat!("See [`struct@", stringify!($name), "`].")] $name($name),)*
        }

        impl Op {
            pub(crate) fn operation(&self) -> &dyn Operation {
                match self {
                    Op::Unary(function) => function,
                    Op::Binary(function) => function,
                    Op::Composite(composite) => composite,
                    Op::Custom(call) => call,
                    $(Op::$unit => &$unit,)*
                    $(Op::$name(operation) => operation,)*
                }
            }
        }

        /// Calls of every operation, for tests. Elementwise functions and custom kernels have tests of their own.
        pub fn samples() -> Vec<Sample> {
            [
                Unary::samples(),
                Binary::samples(),
                CustomCall::samples(),
                $($unit::samples(),)*
                $($name::samples(),)*
                Composite::samples(),
            ]
            .concat()
        }

        #[cfg(test)]
        mod tests {
            use super::*;

            #[test]
            fn every_primitive_has_samples() {
                let primitives = [
                    $((stringify!($unit), $unit::samples()),)*
                    $((stringify!($name), $name::samples()),)*
                ];
                for (name, samples) in primitives {
                    // A buffer computes nothing, and a collective needs several processes.
                    assert_eq!(samples.is_empty(), ["Buffer", "Collective"].contains(&name), "{name}");
                }
            }
        }
    };
}

primitives! {
    without attributes {
        buffer::Buffer,
        random_bits::RandomBits,
        reshape::Reshape,
        expand::Expand,
        select::Where,
        cast::Cast,
        cast::Bitcast,
        dot::Dot,
        copy::Copy,
        copy::Contiguous,
    }
    with attributes {
        constant::Constant,
        iota::Iota,
        permute::Permute,
        pad::Pad,
        slice::Slice,
        cat::Cat,
        collective::Collective,
        reduce::Reduce,
        arg_reduce::ArgReduce,
        scan::Scan,
        gather::Gather,
        scatter::Scatter,
        arg_sort::ArgSort,
        search_sorted::SearchSorted,
        conv::Conv,
        pool::Pool,
    }
}

impl fmt::Debug for Op {
    /// As if derived, but a primitive's name is not repeated.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Unary(function) => f.debug_tuple("Unary").field(function).finish(),
            Op::Binary(function) => f.debug_tuple("Binary").field(function).finish(),
            Op::Composite(composite) => f.debug_tuple("Composite").field(composite).finish(),
            Op::Custom(call) => f.debug_tuple("Custom").field(call).finish(),
            primitive => primitive.operation().fmt(f),
        }
    }
}
