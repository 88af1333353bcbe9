//! A device that holds no data, for tests of what is recorded and refused.

use std::{any::Any, sync::Arc};

use crate::{
    DType, Error, Result,
    device::{
        Backend, Buffer, Device, DeviceInfo, DeviceNature, Executable, Memory, MemoryStatistics, Support,
        register,
    },
    graph::ir::IrNode,
    schedule::step::Step,
};

struct Null;
struct Nothing(usize);

impl Memory for Nothing {
    fn size(&self) -> usize {
        self.0
    }
    fn host_pointer(&self) -> Option<*mut u8> {
        None
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Backend for Null {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: "null".to_owned(),
            model: "null".to_owned(),
            nature: DeviceNature::Emulator,
            compute_units: None,
            total_memory: None,
            features: Vec::new(),
        }
    }
    fn name(&self) -> &str {
        "null"
    }
    fn support(&self, _: &IrNode, _: &[DType]) -> Support {
        Support::Unsupported("it computes nothing".to_owned())
    }
    fn compile(&self, _: &Step) -> Result<Arc<dyn Executable>> {
        Err(Error::internal("null", "it computes nothing"))
    }
    fn allocate(&self, bytes: usize) -> Result<Buffer> {
        Ok(Buffer(Arc::new(Nothing(bytes))))
    }
    fn write(&self, _: &Buffer, _: usize, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn read(&self, _: &Buffer, _: usize, _: &mut [u8]) -> Result<()> {
        Err(Error::internal("null", "it holds no data"))
    }
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
    fn memory(&self) -> MemoryStatistics {
        MemoryStatistics::default()
    }
    fn set_memory_limit(&self, _: Option<usize>) {}
    fn empty_cache(&self) {}
}

/// The device.
pub(crate) fn null_device() -> Device {
    register(Box::new(Null))
}
