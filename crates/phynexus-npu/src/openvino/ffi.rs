//! OpenVINO's C API (`openvino/c/*.h`), as far as it is used. The signatures are those of 2022.3 to 2026.4.

use std::{
    ffi::{CString, c_char, c_int, c_void},
    fmt,
    path::Path,
    ptr,
    sync::Arc,
};

use phynexus::Tensor;

use crate::{
    Error, Result,
    library::{functions, text},
};

/// A handle of OpenVINO.
type Handle = *mut c_void;
/// `ov_status_e`.
type Status = c_int;

/// `ov_shape_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    rank: i64,
    extents: *mut i64,
}

/// `ov_version_t`.
#[repr(C)]
pub(crate) struct Version {
    build: *const c_char,
    description: *const c_char,
}

/// `ov_available_devices_t`.
#[repr(C)]
pub(crate) struct Devices {
    names: *mut *mut c_char,
    count: usize,
}

/// `ov_profiling_info_t`.
#[repr(C)]
pub(crate) struct ProfileEntry {
    status: u32,
    real_time: i64,
    cpu_time: i64,
    node: *const c_char,
    execution: *const c_char,
    kind: *const c_char,
}

/// `ov_profiling_info_list_t`.
#[repr(C)]
pub(crate) struct Profile {
    entries: *mut ProfileEntry,
    count: usize,
}

/// `ov_core_compile_model`: core, model, device, count of texts, result, texts.
type CompileModel = unsafe extern "C" fn(Handle, Handle, *const c_char, usize, *mut Handle, ...) -> Status;

functions! {
    /// OpenVINO's functions.
    Functions {
        ov_get_last_err_msg: fn() -> *const c_char;
        ov_free: fn(*const c_char);
        ov_get_openvino_version: fn(*mut Version) -> Status;
        ov_version_free: fn(*mut Version);
        ov_core_create: fn(*mut Handle) -> Status;
        ov_core_free: fn(Handle);
        ov_core_get_available_devices: fn(Handle, *mut Devices) -> Status;
        ov_available_devices_free: fn(*mut Devices);
        ov_core_get_property: fn(Handle, *const c_char, *const c_char, *mut *mut c_char) -> Status;
        ov_core_read_model_from_memory_buffer: fn(Handle, *const c_char, usize, Handle, *mut Handle) -> Status;
        ov_model_free: fn(Handle);
        ov_compiled_model_free: fn(Handle);
        ov_compiled_model_get_property: fn(Handle, *const c_char, *mut *mut c_char) -> Status;
        ov_compiled_model_input_by_name: fn(Handle, *const c_char, *mut Handle) -> Status;
        ov_compiled_model_create_infer_request: fn(Handle, *mut Handle) -> Status;
        ov_port_get_element_type: fn(Handle, *mut u32) -> Status;
        ov_output_const_port_free: fn(Handle);
        ov_shape_create: fn(i64, *const i64, *mut Shape) -> Status;
        ov_shape_free: fn(*mut Shape) -> Status;
        ov_tensor_create: fn(u32, Shape, *mut Handle) -> Status;
        ov_tensor_data: fn(Handle, *mut *mut c_void) -> Status;
        ov_tensor_get_byte_size: fn(Handle, *mut usize) -> Status;
        ov_tensor_free: fn(Handle);
        ov_infer_request_set_tensor: fn(Handle, *const c_char, Handle) -> Status;
        ov_infer_request_get_tensor: fn(Handle, *const c_char, *mut Handle) -> Status;
        ov_infer_request_infer: fn(Handle) -> Status;
        ov_infer_request_get_profiling_info: fn(Handle, *mut Profile) -> Status;
        ov_profiling_info_list_free: fn(*mut Profile);
        ov_infer_request_free: fn(Handle);
    }
    variadic {
        ov_core_compile_model: CompileModel;
    }
}

impl Functions {
    fn check(&self, what: &str, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the function returns null or a string that lives until the thread's next error.
        let reason = unsafe { text((self.ov_get_last_err_msg)()) };
        let reason = reason.trim().replace('\n', " ");
        Err(Error::Runtime {
            runtime: "OpenVINO".to_owned(),
            message: format!("{what}: {reason} (status {status})"),
        })
    }

    /// A string that OpenVINO made, which is freed.
    fn owned(&self, pointer: *mut c_char) -> String {
        // SAFETY: OpenVINO returned a string, or null, that is the caller's.
        unsafe {
            let result = text(pointer);
            if !pointer.is_null() {
                (self.ov_free)(pointer);
            }
            result
        }
    }
}

fn c_text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::Invalid(format!("{text:?} has a zero byte")))
}

/// The most properties of a compilation.
const PROPERTIES: usize = 4;

/// OpenVINO's `Core`.
pub(crate) struct Core {
    functions: Functions,
    handle: Handle,
}

// SAFETY: `ov::Core` may be used from several threads.
unsafe impl Send for Core {}
// SAFETY: as above.
unsafe impl Sync for Core {}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

impl Core {
    pub(crate) fn load(path: &Path) -> std::result::Result<Core, String> {
        let functions = Functions::load(path)?;
        let mut core = Core { functions, handle: ptr::null_mut() };
        // SAFETY: the handle is written on success.
        let status = unsafe { (functions.ov_core_create)(&mut core.handle) };
        functions.check("a core", status).map_err(|error| error.to_string())?;
        Ok(core)
    }

    /// The version, such as `2026.4.1-22044-...`.
    pub(crate) fn version(&self) -> Result<String> {
        let f = self.functions;
        let mut version = Version { build: ptr::null(), description: ptr::null() };
        // SAFETY: the structure is written on success and freed once.
        unsafe {
            f.check("the version", (f.ov_get_openvino_version)(&mut version))?;
            let build = text(version.build);
            (f.ov_version_free)(&mut version);
            Ok(build)
        }
    }

    /// The names of the devices, such as `CPU` and `NPU`.
    pub(crate) fn devices(&self) -> Result<Vec<String>> {
        let f = self.functions;
        let mut devices = Devices { names: ptr::null_mut(), count: 0 };
        // SAFETY: the structure is written on success, has `count` strings, and is freed once.
        unsafe {
            f.check("devices", (f.ov_core_get_available_devices)(self.handle, &mut devices))?;
            let names = (0..devices.count).map(|at| text(*devices.names.add(at))).collect();
            (f.ov_available_devices_free)(&mut devices);
            Ok(names)
        }
    }

    /// A property of a device.
    pub(crate) fn property(&self, device: &str, key: &str) -> Result<String> {
        let (device, name) = (c_text(device)?, c_text(key)?);
        let mut value = ptr::null_mut();
        // SAFETY: the strings end with zero; the value is written on success.
        let status = unsafe {
            (self.functions.ov_core_get_property)(self.handle, device.as_ptr(), name.as_ptr(), &mut value)
        };
        self.functions.check(key, status)?;
        Ok(self.functions.owned(value))
    }

    /// Reads an ONNX file's bytes.
    pub(crate) fn read(self: &Arc<Core>, bytes: &[u8]) -> Result<Model> {
        let mut model = Model { core: Arc::clone(self), handle: ptr::null_mut() };
        // SAFETY: the bytes are as many as said, and OpenVINO copies what it keeps; weights may be null for ONNX.
        let status = unsafe {
            (self.functions.ov_core_read_model_from_memory_buffer)(
                self.handle,
                bytes.as_ptr().cast(),
                bytes.len(),
                ptr::null_mut(),
                &mut model.handle,
            )
        };
        self.functions.check("reading", status)?;
        Ok(model)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: models hold the core, so nothing uses it any more.
            unsafe { (self.functions.ov_core_free)(self.handle) };
        }
    }
}

/// A network that was read.
pub(crate) struct Model {
    core: Arc<Core>,
    handle: Handle,
}

impl Model {
    /// Compiles for a device, with (key, value) properties.
    pub(crate) fn compile(&self, device: &str, properties: &[(&str, String)]) -> Result<Compiled> {
        let f = self.core.functions;
        let mut compiled =
            Compiled { core: Arc::clone(&self.core), handle: ptr::null_mut(), request: ptr::null_mut() };
        let name = c_text(device)?;
        let mut texts = Vec::new();
        for (key, value) in properties.iter().take(PROPERTIES) {
            texts.extend([c_text(key)?, c_text(value)?]);
        }
        let at = |at: usize| texts.get(at).map_or(ptr::null(), |text| text.as_ptr());
        // SAFETY: OpenVINO reads as many of the trailing strings as `texts` has; those that follow are not read.
        let status = unsafe {
            (f.ov_core_compile_model)(
                self.core.handle,
                self.handle,
                name.as_ptr(),
                texts.len(),
                &mut compiled.handle,
                at(0),
                at(1),
                at(2),
                at(3),
                at(4),
                at(5),
                at(6),
                at(7),
            )
        };
        f.check(&format!("compiling for {device}"), status)?;
        // SAFETY: the compiled model is valid; the handle is written on success.
        let status =
            unsafe { (f.ov_compiled_model_create_infer_request)(compiled.handle, &mut compiled.request) };
        f.check("a request", status)?;
        Ok(compiled)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle was made by OpenVINO and is freed once.
            unsafe { (self.core.functions.ov_model_free)(self.handle) };
        }
    }
}

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
    core: Arc<Core>,
    handle: Handle,
    request: Handle,
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
