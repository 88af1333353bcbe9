//! The native part of the package `micrograd_rs`: differentiable scalars and networks of them.
//!
//! | file | subject |
//! |---|---|
//! | `device` | the class `Device` |
//! | `value` | what a value is |
//! | `value/graph` | how a value was made: its rules forward and backward |
//! | `value/object` | the objects that hold values, and their class: making, freeing, dropping long chains |
//! | `walk` | the order of values |
//! | `kernel` | the kernel that computes an expression on a GPU |
//! | `launch` | expressions on a GPU: one launch each |
//! | `backward` | gradients |
//! | `operators` | what operators and methods do |
//! | `slots` | what the class tells Python of its operators, methods and attributes |
//! | `network` | `Neuron`, `Layer`, `MLP` |
//! | `host` | services of the extension module |

mod backward;
mod device;
mod host;
mod kernel;
mod launch;
mod network;
mod operators;
mod slots;
mod value;
mod walk;

pub use host::{Host, Work};
use pyo3::{PyTypeInfo, prelude::*};
pub use value::object::is_held_elsewhere;

/// The result of `__reduce__`: the class's `_restored`, which pickles and copies call, and its arguments.
type Reduced<'py, A> = PyResult<(Bound<'py, PyAny>, A)>;

fn reduced<'py, T: PyTypeInfo, A>(py: Python<'py>, arguments: A) -> Reduced<'py, A> {
    Ok((py.get_type::<T>().getattr("_restored")?, arguments))
}

/// Adds the module `micrograd` to the extension module `_engine`, which has classes of the same names. Fails if Python
/// cannot create the module or the classes.
pub fn register(engine: &Bound<'_, PyModule>, host: Host) -> PyResult<()> {
    host::begin(host);
    let module = PyModule::new(engine.py(), "micrograd")?;
    module.add("Value", slots::class(engine.py())?)?;
    module.add_class::<network::Neuron>()?;
    module.add_class::<network::Layer>()?;
    module.add_class::<network::Mlp>()?;
    module.add_class::<device::PyDevice>()?;
    engine.add_submodule(&module)
}
