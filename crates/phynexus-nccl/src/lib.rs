//! Collectives between GPUs by NCCL, NVIDIA's library, and RCCL, AMD's, which has the same functions.
//!
//! A device crate provides an [`Endpoint`], its GPU. [`Routine::of`] turns a collective step into a routine of the
//! library: it makes the group's communicator, or refuses with the reason. [`Collectives`] puts it into a stream of its
//! own. It knows which launches must wait for which collectives, and whether one fails.
//!
//! | file | subject |
//! |---|---|
//! | `library` | finding and opening the library |
//! | `call` | how a collective is expressed by the library's functions, and what it lacks |
//! | `setup` | the members of a group agree whether they use the library |
//! | `communicator` | a communicator: starting, enqueueing, errors, ending |
//! | `routine` | a collective step on a device |
//! | `collectives` | a device's collectives, and its two streams |
//! | `flights` | submitted collectives: order, time limits |

mod call;
mod collectives;
mod communicator;
#[cfg(test)]
mod double;
mod flights;
mod library;
mod routine;
mod setup;
#[cfg(test)]
mod tests;

use std::ffi::c_void;

use phynexus::Result;

pub use collectives::{Collectives, Streams};
pub use flights::{Flight, Touched};
pub use library::{Library, Vendor};
pub use routine::Routine;

/// A GPU that takes part in collectives.
pub trait Endpoint: Send + Sync {
    /// The device's name: `cuda:0`.
    fn name(&self) -> &str;
    /// Whose library it needs.
    fn vendor(&self) -> Vendor;
    /// The library.
    ///
    /// # Errors
    /// Why there is none.
    fn library(&self) -> Result<&'static Library, String>;
    /// A number that no other GPU has, on any machine.
    ///
    /// # Errors
    /// If the driver does not report it.
    fn unique_number(&self) -> Result<[u8; 16]>;
    /// The GPU's number in this process.
    fn ordinal(&self) -> u32;
    /// Makes the GPU current on this thread.
    ///
    /// # Errors
    /// Those of the driver.
    fn bind(&self) -> Result<()>;
    /// Lets other GPUs of this process, by their numbers, access this one's memory: between ranks of one process the
    /// library copies from one GPU's tensors to another's directly.
    ///
    /// # Errors
    /// Those of the driver.
    fn share(&self, ordinals: &[u32]) -> Result<()>;
    /// Submits a fill with zeros to a stream.
    ///
    /// # Safety
    /// The address must be memory of this GPU with at least `bytes` bytes, and the stream one of this GPU.
    ///
    /// # Errors
    /// Those of the driver.
    unsafe fn zero(&self, address: u64, bytes: usize, stream: *mut c_void) -> Result<()>;
}
