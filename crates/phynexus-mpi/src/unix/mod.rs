//! The transport, on the systems that have one.

mod api;
mod arrivals;
mod collective;
mod dialect;
mod end;
mod exchange;
mod header;
mod launcher;
mod library;
mod pipeline;
mod start;
mod transport;
mod world;

pub(crate) use start::connect;

/// Returns whether a library of MPI is found.
pub(crate) fn is_found() -> bool {
    library::open(launcher::Launcher::find().0).is_ok()
}
