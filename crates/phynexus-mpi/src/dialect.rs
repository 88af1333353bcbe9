//! What differs between implementations of MPI: their handles and a few constants.

use std::ffi::{c_char, c_int};

use libloading::os::unix::Library;
use phynexus::{DType, DTypeKind, op::Combine};

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
    /// Of 1, 2, 4 and 8 bytes.
    pub(crate) unsigned: [H; 4],
    pub(crate) signed: [H; 4],
    pub(crate) sum: H,
    pub(crate) prod: H,
    pub(crate) max: H,
    pub(crate) min: H,
    pub(crate) any_source: c_int,
    pub(crate) thread_serialized: c_int,
    pub(crate) thread_multiple: c_int,
}

impl<H: Handle> Dialect<H> {
    /// MPI's dtype and operation, for what has the same result in any order.
    ///
    /// MPI adds floats in an order that depends on the implementation and on where the ranks run, and its maximum does
    /// not keep NaN.
    pub(crate) fn reduction(&self, dtype: DType, by: Combine) -> Option<(H, H)> {
        let op = match by {
            Combine::Sum => self.sum,
            Combine::Prod => self.prod,
            Combine::Max => self.max,
            Combine::Min => self.min,
        };
        let integers = match (dtype.kind(), by) {
            // Sums and products have the bits of unsigned ones, for which C defines overflow.
            (DTypeKind::Unsigned, _) | (DTypeKind::Signed, Combine::Sum | Combine::Prod) => self.unsigned,
            (DTypeKind::Signed, Combine::Max | Combine::Min) => self.signed,
            (DTypeKind::Bool | DTypeKind::Float, _) => return None,
        };
        Some((integers[dtype.size().ilog2() as usize], op))
    }
}

/// MPICH's `mpi.h`, which its ABI initiative keeps fixed since version 3.1, for derivatives such as Intel MPI too.
pub(crate) const MPICH: Dialect<c_int> = Dialect {
    world: 0x4400_0000,
    errors_return: 0x5400_0001,
    byte: 0x4c00_010d,
    unsigned: [0x4c00_013b, 0x4c00_023c, 0x4c00_043d, 0x4c00_083e],
    signed: [0x4c00_0137, 0x4c00_0238, 0x4c00_0439, 0x4c00_083a],
    sum: 0x5800_0003,
    prod: 0x5800_0004,
    max: 0x5800_0001,
    min: 0x5800_0002,
    any_source: -2,
    thread_serialized: 2,
    thread_multiple: 3,
};

/// The standard ABI of MPI 5.0.
pub(crate) const STANDARD: Dialect<usize> = Dialect {
    world: 0x101,
    errors_return: 0x143,
    byte: 0x247,
    unsigned: [0x241, 0x249, 0x251, 0x259],
    signed: [0x240, 0x248, 0x250, 0x258],
    sum: 0x21,
    prod: 0x24,
    max: 0x23,
    min: 0x22,
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
    let [sum, prod, max, min] =
        ["sum", "prod", "max", "min"].map(|name| address(format!("ompi_mpi_op_{name}")));
    let integers = |kind: &str| -> Result<[usize; 4], libloading::Error> {
        let [b8, b16, b32, b64] = [8, 16, 32, 64].map(|bits| address(format!("ompi_mpi_{kind}{bits}_t")));
        Ok([b8?, b16?, b32?, b64?])
    };
    Ok(Dialect {
        world: world?,
        errors_return: errors_return?,
        byte: byte?,
        unsigned: integers("uint")?,
        signed: integers("int")?,
        sum: sum?,
        prod: prod?,
        max: max?,
        min: min?,
        any_source: -1,
        thread_serialized: 2,
        thread_multiple: 3,
    })
}
