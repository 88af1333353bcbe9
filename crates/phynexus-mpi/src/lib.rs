//! MPI as a [`Transport`]: Open MPI and MPICH, loaded at run time.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use phynexus::distributed::Group;
//!
//! // In a program that was started with `mpirun -n 4 PROGRAM`.
//! let group = Group::open(phynexus_mpi::connect(Duration::from_secs(300))?);
//! println!("rank {} of {}", group.rank(), group.size());
//! # Ok::<(), phynexus::Error>(())
//! ```
//!
//! # Libraries
//!
//! Nothing of MPI is needed to build this crate. [`connect`] opens the library that belongs to the launcher, which the
//! environment tells: Open MPI 4 or 5 (`libmpi.so.40`), MPICH 3.1 or later and what shares its ABI, such as Intel MPI
//! (`libmpich.so.12`, `libmpi.so.12`), or any implementation through the standard ABI of MPI 5 (`libmpi_abi.so`). It
//! looks in `lib` of an active virtual or Conda environment, and where the system's loader does (`LD_LIBRARY_PATH`).
//! Microsoft's MPI has another ABI and is not supported: on Windows, [`connect`] is an error.
//!
//! # Waiting
//!
//! All calls of MPI return at once, and one thread makes one at a time, so `MPI_THREAD_SERIALIZED` is enough. Waits
//! poll, so Ctrl-C ends them ([`phynexus::interrupt`]), and so does the time limit, with an error that names the rank
//! that is late.
//!
//! Data is copied, in pieces, through memory of the transport. After a failed or interrupted call, MPI may still access
//! the memory of unfinished operations, on behalf of another process too, and neither collectives nor matched messages
//! can be cancelled. That memory is therefore never freed: it is at most a few pieces, because a failure is final. The
//! ranks no longer agree on what comes next, so every later call is an error, and the job has to be started again.
//!
//! # Collectives
//!
//! Before a collective of all ranks, they compare what they call (`MPI_Iallgather` of 24 bytes). A difference is an
//! error that names a rank; MPI would leave the behaviour undefined. A
//! [subgroup](phynexus::distributed::Group::subgroup) uses the transport's default methods, which exchange messages
//! between pairs.
//!
//! MPI moves bytes (`MPI_Ibcast`, `MPI_Iallgather`, `MPI_Ialltoall`), and this crate combines them. In an all-reduce,
//! ranks send each other their shares, combine their own in the order of the ranks, and gather the results. The result
//! depends only on the operands and the number of ranks: it has the same bits on all ranks, and with every other
//! transport. `MPI_Allreduce` is not used, for these reasons:
//!
//! - The MPI standard requires that all ranks get the same bits, but only recommends that a repeated reduction gives
//!   them again. The order of additions depends on the implementation, its version, the length, and where the ranks
//!   run: implementations combine within a host first. A run that resumes on other hosts would get other bits.
//! - Its results differ from the engine's. The maximum and minimum do not keep NaN. Sums of 8-bit and 16-bit integers
//!   saturate in the vector code of Open MPI 4.1 and 5.0 and wrap in its other code. MPICH 4.0 compares `uint8` as
//!   signed numbers. `float16` and `bfloat16` are not part of the standard.
//! - It is not faster where it matters. On two ranks of one host, an all-reduce of 64 MiB takes half the time of
//!   `MPI_Allreduce` of Open MPI 4.1 and MPICH 4.0, and one of 1 MiB twice that time (0.25 ms).
//!
//! With several ranks on each of several hosts, more bytes cross the network than with a reduction by hosts.
//!
//! # The end of the process
//!
//! If [`connect`] initialised MPI, the end of the process finalises it. A rank that failed, or that exits with a status
//! other than zero (as known on Linux with glibc), does not. Its launcher then ends the other ranks, instead of letting
//! them wait.

#[cfg(unix)]
mod unix;

use std::{sync::Arc, time::Duration};

use phynexus::{Result, distributed::Transport};

/// Returns whether a library of MPI is found.
pub fn is_found() -> bool {
    #[cfg(unix)]
    return unix::is_found();
    #[cfg(not(unix))]
    false
}

/// Connects the ranks that an MPI launcher started. All of them must call it. A rank that waits longer than `limit` for
/// another one gets an error, here and in later calls.
///
/// MPI is initialised unless that was done before, by mpi4py for example.
///
/// # Errors
/// [`Error::Argument`](phynexus::Error::Argument) if no launcher started this process, if the launcher's library is
/// missing, or if MPI does not allow calls from several threads;
/// [`Error::Collective`](phynexus::Error::Collective) if a rank does not call it.
pub fn connect(limit: Duration) -> Result<Arc<dyn Transport>> {
    #[cfg(unix)]
    return unix::connect(limit);
    #[cfg(not(unix))]
    {
        let _ = limit;
        let message = "MPI is supported on Linux and macOS only: connect the ranks by another transport";
        Err(phynexus::Error::argument("mpi", message))
    }
}
