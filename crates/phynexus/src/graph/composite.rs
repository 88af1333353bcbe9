//! Composites: named operations with a body of other operations. A device may claim the name; where nobody does, the
//! body is used.

/// A named operation with a body.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Composite {
    /// placeholder
    Softmax {
        /// The axis.
        axis: usize,
    },
}

impl Composite {
    /// The body.
    pub fn body(&self, _inputs: &[crate::Tensor]) -> crate::Result<crate::Tensor> {
        Err(crate::Error::internal("body", "x"))
    }
    /// The name in messages and listings.
    pub fn name(&self) -> &'static str {
        match self {
            Composite::Softmax { .. } => "softmax",
        }
    }
}
