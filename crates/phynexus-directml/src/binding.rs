//! Bindings of DirectML's graphs.

use std::{ffi::c_void, mem::ManuallyDrop, ptr};

use phynexus::Result;
use windows::Win32::{
    AI::MachineLearning::DirectML::{
        DML_BINDING_DESC, DML_BINDING_TABLE_DESC, DML_BINDING_TYPE_BUFFER, DML_BUFFER_BINDING,
        IDMLBindingTable, IDMLDispatchable,
    },
    Graphics::Direct3D12::{ID3D12DescriptorHeap, ID3D12Resource},
};

use crate::{connection::Connection, descriptors::Slots, memory::Block};

/// A binding table with descriptors of its own. Bindings do not change once a list uses it.
pub(crate) struct Table {
    table: IDMLBindingTable,
    slots: Slots,
}

// SAFETY: a table is changed by the thread that makes it alone, and then only used by lists: by those in the order of
// the queue under the lock of the queue's state, and by those that run repeatedly while they are recorded.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

/// Part of a buffer.
pub(crate) struct Place {
    resource: ID3D12Resource,
    offset: u64,
    bytes: u64,
}

impl Place {
    pub(crate) fn of(block: &Block, offset: u64, bytes: u64) -> Result<Place> {
        let (resource, start) = block.place()?;
        Ok(Place { resource, offset: start + offset, bytes })
    }

    pub(crate) fn whole(block: &Block) -> Result<Place> {
        Place::of(block, 0, block.bytes)
    }
}

/// Calls `work` with the descriptors of buffers.
fn bind(places: &[Place], work: impl FnOnce(&[DML_BINDING_DESC])) {
    // With the references that the descriptors take.
    let binding = |place: &Place| DML_BUFFER_BINDING {
        Buffer: ManuallyDrop::new(Some(place.resource.clone())),
        Offset: place.offset,
        SizeInBytes: place.bytes,
    };
    let buffers: Vec<DML_BUFFER_BINDING> = places.iter().map(binding).collect();
    let describe = |buffer: &DML_BUFFER_BINDING| DML_BINDING_DESC {
        Type: DML_BINDING_TYPE_BUFFER,
        Desc: ptr::from_ref(buffer).cast::<c_void>().cast_mut(),
    };
    work(&buffers.iter().map(describe).collect::<Vec<_>>());
    buffers.into_iter().for_each(|buffer| drop(ManuallyDrop::into_inner(buffer.Buffer)));
}

impl Table {
    /// An empty table.
    pub(crate) fn new(connection: &Connection, of: &IDMLDispatchable, descriptors: u32) -> Result<Table> {
        let failed = |error| connection.error("binding a DirectML graph", &error);
        let parts = connection.parts()?;
        let slots = parts.descriptors.take(&parts.device, descriptors.max(1)).map_err(failed)?;
        let description = DML_BINDING_TABLE_DESC {
            Dispatchable: ManuallyDrop::new(Some(of.clone())),
            CPUDescriptorHandle: slots.cpu,
            GPUDescriptorHandle: slots.gpu,
            SizeInDescriptors: slots.count,
        };
        // SAFETY: the description is valid during the call, and the heap has room for these descriptors.
        let table = unsafe { connection.directml(&parts)?.device.CreateBindingTable(Some(&description)) };
        drop(ManuallyDrop::into_inner(description.Dispatchable));
        Ok(Table { table: table.map_err(failed)?, slots })
    }

    pub(crate) fn heap(&self) -> &ID3D12DescriptorHeap {
        &self.slots.heap
    }

    pub(crate) fn table(&self) -> &IDMLBindingTable {
        &self.table
    }

    /// Binds inputs. What is bound must be kept until the device has finished what uses the table.
    pub(crate) fn inputs(&mut self, places: &[Place]) {
        // SAFETY: the descriptors are valid during the call.
        bind(places, |bound| unsafe { self.table.BindInputs(Some(bound)) });
    }

    /// Binds outputs, likewise.
    pub(crate) fn outputs(&mut self, places: &[Place]) {
        // SAFETY: as above.
        bind(places, |bound| unsafe { self.table.BindOutputs(Some(bound)) });
    }

    /// Binds memory for a run, likewise.
    pub(crate) fn temporary(&mut self, place: Place) {
        // SAFETY: as above.
        bind(&[place], |bound| unsafe { self.table.BindTemporaryResource(Some(&bound[0])) });
    }

    /// Binds memory that is kept between runs, likewise.
    pub(crate) fn persistent(&mut self, place: Place) {
        // SAFETY: as above.
        bind(&[place], |bound| unsafe { self.table.BindPersistentResource(Some(&bound[0])) });
    }
}
