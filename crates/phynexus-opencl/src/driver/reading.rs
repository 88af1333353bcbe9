//! Asynchronous copies to the host.

use std::ptr;

use opencl3::{command_queue::enqueue_read_buffer, event::CL_COMPLETE, memory::CL_FALSE};
use phynexus::{Error, Result, device::HostRead};

use super::OpenCl;
use crate::{object::Object, queue};

/// A copy with its event and destination.
struct Reading {
    device: String,
    event: Object,
    /// Taken when the copy is done.
    bytes: Box<[u8]>,
}

/// Starts to copy a part of a block.
pub(super) fn begin(
    driver: &OpenCl,
    block: &Object,
    offset: usize,
    count: usize,
) -> Result<Box<dyn HostRead>> {
    let mut bytes = vec![0; count].into_boxed_slice();
    let (handle, target) = (block.handle(), bytes.as_mut_ptr().cast());
    // SAFETY: the part lies within the block, and the bytes stay valid until the copy is done.
    let event = unsafe {
        driver
            .queue
            .put(|queue| enqueue_read_buffer(queue, handle, CL_FALSE, offset, count, target, 0, ptr::null()))
    };
    let event = event.map_err(|code| driver.error("copying from the device", code))?;
    let reading = Reading { device: driver.name.clone(), event, bytes };
    // From here on, the bytes are not freed before the copy is done.
    driver.flush()?;
    Ok(Box::new(reading))
}

impl Reading {
    fn wait(&self) -> Result<()> {
        queue::wait(&self.event).map_err(|code| Error::Device {
            device: self.device.clone(),
            message: format!("copying from the device: {code}"),
        })
    }
}

impl HostRead for Reading {
    fn is_done(&self) -> bool {
        self.event.status().is_none_or(|status| status <= CL_COMPLETE)
    }

    fn finish(self: Box<Self>, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.wait()?;
        take(&self.bytes)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        // After an error nothing writes either.
        let _ = self.wait();
    }
}
