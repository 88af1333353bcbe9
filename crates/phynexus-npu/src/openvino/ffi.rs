//! OpenVINO's C API (`openvino/c/*.h`), as far as it is used. The signatures are those of 2022.3 to 2026.4.

use std::{
    ffi::{CString, c_char, c_int, c_void},
    fmt,
    path::Path,
    ptr,
    sync::Arc,
};

use super::request::Compiled;
use crate::{
    Error, Result,
    library::{functions, text},
};

/// A handle of OpenVINO.
pub(super) type Handle = *mut c_void;
/// `ov_status_e`.
type Status = c_int;

/// `ov_shape_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(super) rank: i64,
    pub(super) extents: *mut i64,
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
    pub(super) status: u32,
    pub(super) real_time: i64,
    cpu_time: i64,
    pub(super) node: *const c_char,
    pub(super) execution: *const c_char,
    pub(super) kind: *const c_char,
}

/// `ov_profiling_info_list_t`.
#[repr(C)]
pub(crate) struct Profile {
    pub(super) entries: *mut ProfileEntry,
    pub(super) count: usize,
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
    pub(super) fn check(&self, what: &str, status: Status) -> Result<()> {
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
    pub(super) fn owned(&self, pointer: *mut c_char) -> String {
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

pub(super) fn c_text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::Invalid(format!("{text:?} has a zero byte")))
}

/// The most properties of a compilation.
const PROPERTIES: usize = 4;

/// OpenVINO's `Core`.
pub(crate) struct Core {
    pub(super) functions: Functions,
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
        if properties.len() > PROPERTIES {
            let message =
                format!("{} properties were given, at most {PROPERTIES} are passed", properties.len());
            return Err(Error::Invalid(message));
        }
        let mut texts = Vec::new();
        for (key, value) in properties {
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
