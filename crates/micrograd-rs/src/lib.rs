//! The native part of the package `micrograd_rs`: differentiable scalars and networks of them.
//!
//! | file | subject |
//! |---|---|
//! | `device` | the class `Device` |
//! | `graph` | the operations of values: forward and backward rules |
//! | `value` | values, their operators and methods |
//! | `object` | the Python objects of values: allocation, deallocation, dropping long chains |
//! | `slots` | the class's operators, methods and attributes as Python calls them |
//! | `backward` | topological order and gradients |
//! | `launch` | expressions on a GPU, one launch each |
//! | `network` | `Neuron`, `Layer`, `MLP` |
//! | `host` | services of the extension module |

mod backward;
mod device;
mod graph;
mod host;
mod launch;
mod network;
mod object;
mod slots;
mod value;

pub use host::{Host, Work};
pub use object::is_held_elsewhere;
use pyo3::{PyTypeInfo, prelude::*};

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
    module.add("Value", object::class(engine.py())?)?;
    module.add_class::<network::Neuron>()?;
    module.add_class::<network::Layer>()?;
    module.add_class::<network::Mlp>()?;
    module.add_class::<device::PlaceDevice>()?;
    engine.add_submodule(&module)
}
