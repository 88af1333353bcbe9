//! A device that computes nothing and records the kernels generated for some GPU. Their sources can then be compiled on
//! a machine without that GPU.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Driver, Gpu, NotCompiled, Submission};
use crate::{
    Error, Result,
    device::{Device, DeviceInfo, DeviceNature},
    hash::FastSet,
    kernel::{loops::Kernel, lower::Target},
};

/// The kernels given to a recorder.
#[derive(Clone, Default)]
pub struct Recorded(Arc<Mutex<FastSet<Kernel>>>);

impl Recorded {
    /// Takes all kernels recorded so far, without duplicates, sorted by name.
    pub fn take(&self) -> Vec<Kernel> {
        let mut kernels: Vec<Kernel> = std::mem::take(&mut *lock(&self.0)).into_iter().collect();
        kernels.sort_by(|a, b| a.name.cmp(&b.name));
        kernels
    }
}

/// Makes a device whose kernels do nothing. Reads return what was written, or zeros. The device lives as long as the
/// process and is not registered.
pub fn recorder(target: Target) -> (Device, Recorded) {
    let recorded = Recorded::default();
    let name = target.limits.device.clone();
    let driver = Recorder { name, target, recorded: recorded.clone() };
    (Device(Box::leak(Box::new(Gpu::new(driver)))), recorded)
}

struct Recorder {
    name: String,
    target: Target,
    recorded: Recorded,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn outside() -> Error {
    Error::internal("gpu::recorder", "a copy extends past the end of its block")
}

impl Driver for Recorder {
    type Block = Mutex<Vec<u8>>;
    type Module = ();
    type Recording = ();
    type Mark = ();

    fn name(&self) -> &str {
        &self.name
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: self.name.clone(),
            model: "a recorder of kernels".to_owned(),
            nature: DeviceNature::Emulator,
            compute_units: None,
            total_memory: None,
            features: Vec::new(),
        }
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn available_memory(&self) -> Option<u64> {
        None
    }

    fn allocate(&self, bytes: usize) -> Option<Mutex<Vec<u8>>> {
        let mut block = Vec::new();
        block.try_reserve_exact(bytes).ok()?;
        block.resize(bytes, 0);
        Some(Mutex::new(block))
    }

    fn write(&self, block: &Mutex<Vec<u8>>, offset: usize, bytes: &[u8]) -> Result<()> {
        let mut block = lock(block);
        let part = block.get_mut(offset..offset.saturating_add(bytes.len()));
        part.ok_or_else(outside)?.copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, block: &Mutex<Vec<u8>>, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let block = lock(block);
        bytes.copy_from_slice(block.get(offset..offset.saturating_add(bytes.len())).ok_or_else(outside)?);
        Ok(())
    }

    fn compile(&self, kernel: &Kernel, _: &str) -> Result<(), NotCompiled> {
        lock(&self.recorded.0).insert(kernel.clone());
        Ok(())
    }

    fn launch(&self, _: &Submission<'_, Recorder>) -> Result<()> {
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}
