//! MPI as a transport.

use std::time::Duration;

use phynexus::{
    DType, Result,
    distributed::{Incoming, Outgoing, Transport},
    op::Combine,
};

use super::{collective, dialect::Handle, exchange, world::World};

impl<H: Handle> Transport for World<H> {
    fn name(&self) -> &'static str {
        "mpi"
    }
    fn rank(&self) -> usize {
        self.rank
    }
    fn size(&self) -> usize {
        self.size
    }
    fn time_limit(&self) -> Duration {
        self.limit
    }
    fn exchange(&self, send: Option<Outgoing<'_>>, receive: Option<Incoming<'_>>) -> Result<()> {
        exchange::exchange(self, send, receive)
    }
    fn all_reduce(&self, values: &mut [u8], dtype: DType, by: Combine) -> Result<()> {
        collective::all_reduce(self, values, dtype, by)
    }
    fn reduce_scatter(&self, values: &[u8], own: &mut [u8], dtype: DType, by: Combine) -> Result<()> {
        collective::reduce_scatter(self, values, own, dtype, by)
    }
    fn all_gather(&self, own: &[u8], all: &mut [u8]) -> Result<()> {
        collective::all_gather(self, own, all)
    }
    fn broadcast(&self, bytes: &mut [u8], root: usize) -> Result<()> {
        collective::broadcast(self, bytes, root)
    }
    fn all_to_all(&self, values: &[u8], result: &mut [u8]) -> Result<()> {
        collective::all_to_all(self, values, result)
    }
    fn barrier(&self) -> Result<()> {
        collective::barrier(self)
    }
}
