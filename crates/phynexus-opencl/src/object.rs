//! OpenCL's objects, which are released when dropped, and its errors as text.

use std::{ffi::c_void, fmt};

use opencl3::{
    command_queue::release_command_queue,
    context::context::{create_context, release_context},
    error_codes::{
        CL_COMPILER_NOT_AVAILABLE, CL_DEVICE_NOT_AVAILABLE, CL_INVALID_CONTEXT,
        CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_HOST_MEMORY, CL_OUT_OF_RESOURCES, error_text,
    },
    event::{CL_EVENT_COMMAND_EXECUTION_STATUS, get_event_data, release_event},
    kernel::release_kernel,
    memory::{
        CL_BUFFER_CREATE_TYPE_REGION, CL_MEM_READ_WRITE, cl_buffer_region, create_buffer, create_sub_buffer,
        release_mem_object,
    },
    program::release_program,
    types::{cl_device_id, cl_int},
};

use phynexus::{Error, gpu::NotCompiled};

/// An OpenCL error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) cl_int);

impl Code {
    /// Classifies a failed compilation: memory is exhausted, the device or a part of it is lost, or else the driver
    /// refuses the kernel.
    pub(crate) fn reason(self, device: &str, bytes: usize, words: String) -> NotCompiled {
        match self.0 {
            _ if self.is_no_room() => NotCompiled::out_of_memory(device, bytes),
            CL_DEVICE_NOT_AVAILABLE | CL_COMPILER_NOT_AVAILABLE | CL_INVALID_CONTEXT => {
                NotCompiled::Failed(Error::Device { device: device.to_owned(), message: words })
            }
            _ => NotCompiled::Refused(words),
        }
    }

    /// Whether the device or the host ran out of memory.
    pub(crate) fn is_no_room(self) -> bool {
        matches!(self.0, CL_MEM_OBJECT_ALLOCATION_FAILURE | CL_OUT_OF_RESOURCES | CL_OUT_OF_HOST_MEMORY)
    }
}

impl From<cl_int> for Code {
    fn from(code: cl_int) -> Code {
        Code(code)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", error_text(self.0), self.0)
    }
}

/// An OpenCL object: a reference-counted pointer.
pub(crate) struct Object {
    handle: *mut c_void,
    release: unsafe fn(*mut c_void) -> Result<(), cl_int>,
}

// SAFETY: OpenCL's objects may be used from any thread, except for kernel arguments, which are set under a lock.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the object is owned by this value. After a failure it leaks, which is harmless.
        let _ = unsafe { (self.release)(self.handle) };
    }
}

impl Object {
    pub(crate) fn context(device: cl_device_id) -> Result<Object, Code> {
        let handle = create_context(&[device], std::ptr::null(), None, std::ptr::null_mut())?;
        Ok(Object { handle, release: release_context })
    }

    /// A buffer of `bytes` bytes with undefined contents.
    pub(crate) fn buffer(context: &Object, bytes: usize) -> Result<Object, Code> {
        // SAFETY: the context is valid, and no host memory is passed.
        let handle =
            unsafe { create_buffer(context.handle, CL_MEM_READ_WRITE, bytes, std::ptr::null_mut()) }?;
        Ok(Object { handle, release: release_mem_object })
    }

    /// A sub-buffer, which keeps the buffer alive. Its start must be a multiple of the device's alignment.
    pub(crate) fn part(buffer: &Object, start: usize, bytes: usize) -> Result<Object, Code> {
        let region = cl_buffer_region { origin: start, size: bytes };
        let (kind, region) = (CL_BUFFER_CREATE_TYPE_REGION, std::ptr::from_ref(&region).cast());
        // SAFETY: the buffer is valid and the region is read during the call; the driver checks its bounds.
        let handle = unsafe { create_sub_buffer(buffer.handle, CL_MEM_READ_WRITE, kind, region) }?;
        Ok(Object { handle, release: release_mem_object })
    }

    /// # Safety
    /// The handle must be an owned queue handle.
    pub(crate) unsafe fn queue(handle: *mut c_void) -> Object {
        Object { handle, release: release_command_queue }
    }

    /// # Safety
    /// The handle must be an owned event handle.
    pub(crate) unsafe fn event(handle: *mut c_void) -> Object {
        Object { handle, release: release_event }
    }

    /// # Safety
    /// The handle must be an owned program handle.
    pub(crate) unsafe fn program(handle: *mut c_void) -> Object {
        Object { handle, release: release_program }
    }

    /// # Safety
    /// The handle must be an owned kernel handle.
    pub(crate) unsafe fn kernel(handle: *mut c_void) -> Object {
        Object { handle, release: release_kernel }
    }

    pub(crate) fn handle(&self) -> *mut c_void {
        self.handle
    }

    /// The status of an event's command, if the driver reports it: `CL_COMPLETE` when done, greater before, less after
    /// an error.
    pub(crate) fn status(&self) -> Option<cl_int> {
        let bytes = get_event_data(self.handle, CL_EVENT_COMMAND_EXECUTION_STATUS).ok()?;
        Some(cl_int::from_ne_bytes(bytes.try_into().ok()?))
    }
}
