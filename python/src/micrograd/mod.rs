//! The native part of the package `micrograd_rs`: scalars that are differentiated, and networks of them.
//!
//! | file | subject |
//! |---|---|
//! | `device` | the class `Device` |
//! | `graph` | how a value was made: its rules forward and backward, dropping long chains |
//! | `value` | the class `Value` |
//! | `backward` | the order of values, and gradients |
//! | `launch` | expressions on a GPU: one launch each |
//! | `network` | `Neuron`, `Layer`, `MLP` |

mod backward;
mod device;
mod graph;
mod launch;
mod network;
mod value;

use pyo3::prelude::*;

/// What the package `micrograd_rs` is made of.
#[pymodule]
pub(crate) mod micrograd {
    #[pymodule_export]
    use super::{
        device::PlaceDevice,
        network::{Layer, Mlp, Neuron},
        value::Value,
    };
}
