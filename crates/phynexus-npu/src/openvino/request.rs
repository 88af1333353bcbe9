//! Compiled networks of OpenVINO, and requests that run them.

use std::{fmt, ptr, sync::Arc};

use phynexus::Tensor;

use super::ffi::{Core, Functions, Handle, Profile, Shape, c_text};
use crate::{Error, Result, library::text};

/// A node that ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profiled {
    /// The node's name, or the name of one that OpenVINO made.
    pub node: String,
    /// The operator, in OpenVINO's set.
    pub kind: String,
    /// The kernel, such as `brgemm_avx512_I8`, in the device's words.
    pub execution: String,
    /// The time in microseconds.
    pub microseconds: i64,
}

/// A compiled network, and a request that runs it.
pub(crate) struct Compiled {
    pub(super) core: Arc<Core>,
    pub(super) handle: Handle,
    pub(super) request: Handle,
}

// SAFETY: OpenVINO's objects belong to no thread, and a request is used only through `&mut`.
unsafe impl Send for Compiled {}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled").finish_non_exhaustive()
    }
}

impl Compiled {
    /// A property of the compiled network.
    pub(crate) fn property(&self, key: &str) -> Result<String> {
        let f = self.core.functions;
        let name = c_text(key)?;
        let mut value = ptr::null_mut();
        // SAFETY: as for a device's property.
        let status = unsafe { (f.ov_compiled_model_get_property)(self.handle, name.as_ptr(), &mut value) };
        f.check(key, status)?;
        Ok(f.owned(value))
    }

    /// Gives an input of this name; the tensor has the input's type.
    pub(crate) fn set(&mut self, name: &str, value: &Tensor) -> Result<()> {
        let f = self.core.functions;
        let c_name = c_text(name)?;
        let (mut port, mut element) = (ptr::null_mut(), 0);
        // SAFETY: the compiled model is valid; the port is freed once.
        unsafe {
            let status = (f.ov_compiled_model_input_by_name)(self.handle, c_name.as_ptr(), &mut port);
            f.check(name, status)?;
            let status = (f.ov_port_get_element_type)(port, &mut element);
            (f.ov_output_const_port_free)(port);
            f.check(name, status)?;
        }
        let bytes = value.to_bytes()?;
        let extents: Vec<i64> = value.shape().iter().map(|&extent| extent as i64).collect();
        let mut shape = Shape { rank: 0, extents: ptr::null_mut() };
        let mut tensor = Owned { functions: f, handle: ptr::null_mut() };
        // SAFETY: the extents are as many as said; OpenVINO copies them, and the shape is freed once.
        unsafe {
            let status = (f.ov_shape_create)(extents.len() as i64, extents.as_ptr(), &mut shape);
            f.check(name, status)?;
            let status = (f.ov_tensor_create)(element, shape, &mut tensor.handle);
            (f.ov_shape_free)(&mut shape);
            f.check(name, status)?;
        }
        tensor.bytes(name)?.map_or_else(
            || Ok(()),
            |host| match host.len() == bytes.len() {
                true => {
                    host.copy_from_slice(&bytes);
                    Ok(())
                }
                false => Err(Error::Invalid(format!(
                    "{name}: {} bytes are expected, {:?} has {}",
                    host.len(),
                    value.dtype(),
                    bytes.len()
                ))),
            },
        )?;
        // SAFETY: the request holds the tensor from now on.
        let status = unsafe { (f.ov_infer_request_set_tensor)(self.request, c_name.as_ptr(), tensor.handle) };
        f.check(name, status)
    }

    /// Runs with the inputs that were given.
    pub(crate) fn infer(&mut self) -> Result<()> {
        // SAFETY: the request is valid.
        let status = unsafe { (self.core.functions.ov_infer_request_infer)(self.request) };
        self.core.functions.check("running", status)
    }

    /// The bytes of an output.
    pub(crate) fn output(&mut self, name: &str) -> Result<Vec<u8>> {
        let f = self.core.functions;
        let c_name = c_text(name)?;
        let mut tensor = Owned { functions: f, handle: ptr::null_mut() };
        // SAFETY: the request is valid; the handle is written on success.
        let status =
            unsafe { (f.ov_infer_request_get_tensor)(self.request, c_name.as_ptr(), &mut tensor.handle) };
        f.check(name, status)?;
        Ok(tensor.bytes(name)?.map(|host| host.to_vec()).unwrap_or_default())
    }

    /// What ran, if the network was compiled with `PERF_COUNT`.
    pub(crate) fn profile(&mut self) -> Result<Vec<Profiled>> {
        let f = self.core.functions;
        let mut profile = Profile { entries: ptr::null_mut(), count: 0 };
        // SAFETY: the list is written on success, has `count` entries of strings, and is freed once.
        unsafe {
            let status = (f.ov_infer_request_get_profiling_info)(self.request, &mut profile);
            f.check("profile", status)?;
            let entries = (0..profile.count).map(|at| &*profile.entries.add(at));
            // 2: it was executed; others were merged or not needed.
            let executed = entries.filter(|entry| entry.status == 2).map(|entry| Profiled {
                node: text(entry.node),
                kind: text(entry.kind),
                execution: text(entry.execution),
                microseconds: entry.real_time,
            });
            let executed = executed.collect();
            (f.ov_profiling_info_list_free)(&mut profile);
            Ok(executed)
        }
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        let f = self.core.functions;
        // SAFETY: the handles were made by OpenVINO or are null, and each is freed once, the request first.
        unsafe {
            if !self.request.is_null() {
                (f.ov_infer_request_free)(self.request);
            }
            if !self.handle.is_null() {
                (f.ov_compiled_model_free)(self.handle);
            }
        }
    }
}

/// A tensor of OpenVINO.
struct Owned {
    functions: Functions,
    handle: Handle,
}

impl Owned {
    /// The tensor's memory; `None` if it is empty.
    fn bytes(&mut self, name: &str) -> Result<Option<&mut [u8]>> {
        let f = self.functions;
        let (mut size, mut data) = (0, ptr::null_mut());
        // SAFETY: the tensor is valid.
        f.check(name, unsafe { (f.ov_tensor_get_byte_size)(self.handle, &mut size) })?;
        if size == 0 {
            return Ok(None);
        }
        // SAFETY: as above.
        f.check(name, unsafe { (f.ov_tensor_data)(self.handle, &mut data) })?;
        // SAFETY: the tensor has this many bytes, and lives as long as the slice.
        Ok(Some(unsafe { std::slice::from_raw_parts_mut(data.cast(), size) }))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle was made by OpenVINO and is freed once.
            unsafe { (self.functions.ov_tensor_free)(self.handle) };
        }
    }
}
