//! Neurenix: train and deploy neural networks on whatever accelerator a person has.

pub mod data;
pub mod error;
pub mod io;
pub mod nn;
pub mod optim;
pub mod train;

pub use error::{Error, Result};
pub use phynexus;

/// Makes every device of this machine known, once; notes why the others are missing. The CPU comes first: it is the
/// default device.
pub fn register_all() {
    phynexus_cpu::register();
}

/// The number of threads the CPU device uses.
///
/// # Errors
/// If `threads` is 0.
pub fn set_threads(threads: usize) -> Result<()> {
    if threads == 0 {
        return Err(Error::data("threads", "at least 1 thread is needed"));
    }
    phynexus_cpu::pool::set_threads(threads);
    Ok(())
}
