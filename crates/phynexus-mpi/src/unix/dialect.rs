//! What differs between implementations of MPI: their handles and a few constants.

use std::ffi::{c_char, c_int};

use libloading::os::unix::Library;

/// How an implementation represents communicators, dtypes and requests: MPICH as `int`, Open MPI as addresses, the
/// standard ABI as integers of an address's size.
pub(crate) trait Handle: Copy + Default + Send + Sync + 'static {}

impl Handle for c_int {}
impl Handle for usize {}

/// The predefined handles and constants in use.
pub(crate) struct Dialect<H> {
    pub(crate) world: H,
    pub(crate) errors_return: H,
    pub(crate) byte: H,
    pub(crate) any_source: c_int,
    pub(crate) thread_serialized: c_int,
    pub(crate) thread_multiple: c_int,
}

/// MPICH's `mpi.h`, which its ABI initiative keeps fixed since version 3.1, for derivatives such as Intel MPI too.
pub(crate) const MPICH: Dialect<c_int> = Dialect {
    world: 0x4400_0000,
    errors_return: 0x5400_0001,
    byte: 0x4c00_010d,
    any_source: -2,
    thread_serialized: 2,
    thread_multiple: 3,
};

/// The standard ABI of MPI 5.0.
pub(crate) const STANDARD: Dialect<usize> = Dialect {
    world: 0x101,
    errors_return: 0x143,
    byte: 0x247,
    any_source: -1,
    thread_serialized: 2048,
    thread_multiple: 4096,
};

/// Open MPI's handles are the addresses of variables of its library.
///
/// # Errors
/// The loader's message if one is missing.
pub(crate) fn open_mpi(library: &Library) -> Result<Dialect<usize>, libloading::Error> {
    let address = |name: String| {
        // SAFETY: the symbol is a variable, of which only the address is used.
        let symbol = unsafe { library.get::<*const c_char>(&name) };
        symbol.map(|symbol| symbol.into_raw().addr())
    };
    let [world, errors_return, byte] =
        ["comm_world", "errors_return", "byte"].map(|name| address(format!("ompi_mpi_{name}")));
    Ok(Dialect {
        world: world?,
        errors_return: errors_return?,
        byte: byte?,
        any_source: -1,
        thread_serialized: 2,
        thread_multiple: 3,
    })
}
