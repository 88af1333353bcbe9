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

/// Adds the module `micrograd` to `_engine`: its classes have names that others have there.
pub(crate) fn add_to(engine: &Bound<'_, PyModule>) -> PyResult<()> {
    let module = PyModule::new(engine.py(), "micrograd")?;
    module.add_class::<value::Value>()?;
    module.add_class::<network::Neuron>()?;
    module.add_class::<network::Layer>()?;
    module.add_class::<network::Mlp>()?;
    module.add_class::<device::PlaceDevice>()?;
    engine.add_submodule(&module)
}
