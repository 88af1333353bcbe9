//! A collective step on a device.

use std::{
    ffi::c_void,
    sync::{Arc, Weak},
};

use phynexus::{
    Error, Result,
    distributed::Group,
    kernel::step::Step,
    op::{Collective, Op},
};

use crate::{
    Endpoint,
    call::Call,
    communicator::Communicator,
    flights::{Flight, Flights},
    setup,
};

/// A collective step that the library computes.
pub struct Routine {
    collective: Collective,
    call: Call,
    /// Kept by the group: a plan does not keep the communicator of a closed one.
    communicator: Weak<Communicator>,
}

impl Routine {
    /// The routine of a step; `None` if the step is not a collective. The first call for a group makes its communicator
    /// with the other members.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the reason if the library does not compute it: on every rank, then. Otherwise, a rank
    /// cannot be reached.
    pub fn of(endpoint: &dyn Endpoint, step: &Step) -> Result<Option<Routine>> {
        let Step::Library(library) = step else { return Ok(None) };
        let Op::Collective(collective) = &library.node.op else { return Ok(None) };
        let [operand] = &library.operands[..] else {
            return Err(Error::internal("phynexus_nccl", "a collective has one operand"));
        };
        if library.epilogue.is_some() || !operand.layout.is_contiguous() {
            return Err(Error::internal("phynexus_nccl", "a collective with an epilogue, or of a view"));
        }
        let (from, to) = (operand.layout.len(), library.node.len());
        let name = endpoint.vendor().name();
        let call = Call::new(collective.kind, library.node.dtype, from, to, name);
        let refused = |message| Error::Unsupported { device: endpoint.name().to_owned(), message };
        let call = call.map_err(refused)?;
        let communicator = Arc::downgrade(&setup::communicator(endpoint, collective)?);
        Ok(Some(Routine { collective: collective.clone(), call, communicator }))
    }

    /// Submits the collective to the stream for collectives of the endpoint, which must be current, and adds it to the
    /// flights. `begun` is an event of the first stream, for which this stream waits already. `record` records `done` in
    /// this stream.
    ///
    /// # Safety
    /// The operand and the result must be memory of the endpoint with the bytes of the step, until the stream has passed
    /// the collective, and they must not overlap.
    ///
    /// # Errors
    /// [`Error::Collective`] if a rank ended or is too late, or did so before. [`Error::Argument`] if the group is
    /// closed.
    pub(crate) unsafe fn submit<E>(
        &self,
        endpoint: &dyn Endpoint,
        flights: &Flights<E>,
        [operand, result]: [u64; 2],
        stream: *mut c_void,
        [begun, done]: [E; 2],
        record: impl FnOnce(&E) -> Result<()>,
    ) -> Result<()> {
        Group::find(self.collective.member.group)?;
        let lost = || Error::internal("phynexus_nccl", "an open group has lost its communicator");
        let communicator = self.communicator.upgrade().ok_or_else(lost)?;
        // SAFETY: guaranteed by the caller.
        let submitted = unsafe { communicator.enqueue(endpoint, &self.call, [operand, result], stream) };
        // Also after a failure: a part may be in the stream.
        let recorded = record(&done);
        let range = |start: u64, bytes: usize| start..start.saturating_add(bytes as u64);
        let reads = range(operand, self.call.operand_bytes());
        let writes = range(result, self.call.result_bytes());
        flights.add(Flight::new(communicator, self.call.kind.name(), [reads, writes], [begun, done]));
        submitted?;
        recorded
    }
}
