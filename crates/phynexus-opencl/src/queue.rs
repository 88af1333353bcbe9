//! A device's queue: commands in one order, put there by one thread at a time.

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

/// A queue. OpenCL lets threads put commands into it as they like, but NVIDIA's driver (580) then ends the process now and
/// then. So they take turns, and wait for what is in it outside of their turn.
pub(crate) struct Queue {
    queue: Object,
    turn: Mutex<()>,
}

impl Queue {
    /// A queue of the context's device.
    pub(crate) fn new(context: &Object, device: cl_device_id) -> Result<Queue, Code> {
        // Profiles ask when markers were reached.
        // SAFETY: the device is the context's.
        let handle = unsafe { create_command_queue(context.handle(), device, CL_QUEUE_PROFILING_ENABLE) }?;
        // SAFETY: the queue was just made.
        Ok(Queue { queue: unsafe { Object::queue(handle) }, turn: Mutex::new(()) })
    }

    /// Puts a command into the queue; its event.
    ///
    /// # Safety
    /// What the command is given is as OpenCL asks, and the event that it gives is its own.
    pub(crate) unsafe fn put(
        &self,
        command: impl FnOnce(*mut c_void) -> Result<cl_event, cl_int>,
    ) -> Result<Object, Code> {
        let turn = self.turn();
        let event = command(self.queue.handle())?;
        drop(turn);
        // SAFETY: the caller's promise.
        Ok(unsafe { Object::event(event) })
    }

    /// Puts a marker into the queue, which is reached when all before it is done.
    pub(crate) fn mark(&self) -> Result<Object, Code> {
        // SAFETY: nothing is waited for but the commands before.
        unsafe { self.put(|queue| enqueue_marker_with_wait_list(queue, 0, ptr::null())) }
    }

    /// Sends what is in the queue to the device.
    pub(crate) fn flush(&self) -> Result<(), Code> {
        let _turn = self.turn();
        Ok(flush(self.queue.handle())?)
    }

    /// Waits until a command of this queue is done, or failed: it uses the host's memory no longer.
    pub(crate) fn wait_for(&self, event: &Object) -> Result<(), Code> {
        let sent = self.flush();
        // Waiting sends it too, so that it is waited for whatever became of that.
        wait(event).and(sent)
    }

    /// Waits until all that is in the queue is done.
    pub(crate) fn wait(&self) -> Result<(), Code> {
        self.wait_for(&self.mark()?)
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // What the last commands read and write goes after them.
        let _ = finish(self.queue.handle());
    }
}

/// Waits until a command that was sent to the device is done.
pub(crate) fn wait(event: &Object) -> Result<(), Code> {
    Ok(wait_for_events(&[event.handle()])?)
}
