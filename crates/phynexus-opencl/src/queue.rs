//! A device's in-order queue. One thread at a time enqueues commands.

use std::{
    ffi::c_void,
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use opencl3::{
    command_queue::{
        CL_QUEUE_PROFILING_ENABLE, create_command_queue, enqueue_marker_with_wait_list, finish, flush,
    },
    event::wait_for_events,
    types::{cl_device_id, cl_event, cl_int},
};

use crate::object::{Code, Object};

/// A queue. OpenCL allows concurrent enqueuing, but NVIDIA's driver (580) then occasionally crashes the process. So
/// threads take turns, and wait for commands outside of their turn.
pub(crate) struct Queue {
    queue: Object,
    turn: Mutex<()>,
}

impl Queue {
    /// Creates a queue for the context's device.
    pub(crate) fn new(context: &Object, device: cl_device_id) -> Result<Queue, Code> {
        // Profiles query the times of markers.
        // SAFETY: the device belongs to the context.
        let handle = unsafe { create_command_queue(context.handle(), device, CL_QUEUE_PROFILING_ENABLE) }?;
        // SAFETY: the queue was just created.
        Ok(Queue { queue: unsafe { Object::queue(handle) }, turn: Mutex::new(()) })
    }

    /// Enqueues a command and returns its event.
    ///
    /// # Safety
    /// The arguments of the command must satisfy OpenCL's requirements, and the returned event must be owned.
    pub(crate) unsafe fn put(
        &self,
        command: impl FnOnce(*mut c_void) -> Result<cl_event, cl_int>,
    ) -> Result<Object, Code> {
        let turn = self.turn();
        let event = command(self.queue.handle())?;
        drop(turn);
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { Object::event(event) })
    }

    /// Enqueues a marker that completes when all previous commands have.
    pub(crate) fn mark(&self) -> Result<Object, Code> {
        // SAFETY: the wait list is empty.
        unsafe { self.put(|queue| enqueue_marker_with_wait_list(queue, 0, ptr::null())) }
    }

    /// Submits the queued commands to the device.
    pub(crate) fn flush(&self) -> Result<(), Code> {
        let _turn = self.turn();
        Ok(flush(self.queue.handle())?)
    }

    /// Waits until a command of this queue has completed or failed. It no longer uses host memory then.
    pub(crate) fn wait_for(&self, event: &Object) -> Result<(), Code> {
        let sent = self.flush();
        // Waiting also submits the commands, so wait even if the flush failed.
        wait(event).and(sent)
    }

    /// Waits until all queued commands are done.
    pub(crate) fn wait(&self) -> Result<(), Code> {
        self.wait_for(&self.mark()?)
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // The memory that the last commands use is freed afterwards.
        let _ = finish(self.queue.handle());
    }
}

/// Waits until a submitted command is done.
pub(crate) fn wait(event: &Object) -> Result<(), Code> {
    Ok(wait_for_events(&[event.handle()])?)
}
