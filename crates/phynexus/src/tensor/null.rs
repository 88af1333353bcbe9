//! A device that stores data but computes nothing, for tests of recorded graphs and errors.

use std::{
    any::Any,
    sync::{Arc, Mutex},
};

use crate::{
    Error, Result,
    device::{
        Backend, Buffer, Device, DeviceInfo, DeviceNature, Executable, Memory, MemoryStatistics, Support,
        register,
    },
    kernel::step::Step,
    op::{TensorType, ir::IrNode},
};

struct Null;
struct Bytes(Mutex<Vec<u8>>);

impl Memory for Bytes {
    fn size(&self) -> usize {
        self.0.lock().unwrap().len()
    }
    fn host_pointer(&self) -> Option<*mut u8> {
        None
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn memory(buffer: &Buffer) -> &Bytes {
    buffer.0.as_any().downcast_ref().unwrap()
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
    fn support(&self, _: &IrNode, _: &[TensorType]) -> Support {
        Support::Unsupported("it computes nothing".to_owned())
    }
    fn compile(&self, _: &Step) -> Result<Arc<dyn Executable>> {
        Err(Error::internal("null", "it computes nothing"))
    }
    fn allocate(&self, bytes: usize) -> Result<Buffer> {
        Ok(Buffer(Arc::new(Bytes(Mutex::new(vec![0; bytes])))))
    }
    fn write(&self, target: &Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        memory(target).0.lock().unwrap()[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn read(&self, source: &Buffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        bytes.copy_from_slice(&memory(source).0.lock().unwrap()[offset..offset + bytes.len()]);
        Ok(())
    }
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
    fn memory(&self) -> MemoryStatistics {
        MemoryStatistics::default()
    }
    fn reset_peak_memory(&self) {}
    fn set_memory_limit(&self, _: Option<usize>) {}
    fn empty_cache(&self) {}
}

pub(crate) fn null_device() -> Device {
    register(Box::new(Null))
}
