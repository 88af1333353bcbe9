//! The libraries of Windows. They are opened at run time: a program that imports one does not start where it is
//! missing. They stay open until the process ends.

use std::{ffi::c_void, mem, ptr, slice, sync::OnceLock};

use libloading::os::windows::{LOAD_LIBRARY_SEARCH_DEFAULT_DIRS, Library};
use windows::{
    Win32::{
        Foundation::E_POINTER,
        Graphics::{
            Direct3D::{D3D_FEATURE_LEVEL, D3D_FEATURE_LEVEL_11_0, Dxc::CLSID_DxcCompiler, ID3DBlob},
            Direct3D12::{
                D3D_ROOT_SIGNATURE_VERSION, D3D_ROOT_SIGNATURE_VERSION_1, D3D12_ROOT_SIGNATURE_DESC,
                ID3D12Debug,
            },
            Dxgi::{IDXGIAdapter1, IDXGIFactory1},
        },
    },
    core::{Error, GUID, HRESULT, Interface, Result},
};

use crate::debug::{is_enabled, say};

type CreateFactory = unsafe extern "system" fn(*const GUID, *mut *mut c_void) -> HRESULT;
type CreateDevice =
    unsafe extern "system" fn(*mut c_void, D3D_FEATURE_LEVEL, *const GUID, *mut *mut c_void) -> HRESULT;
type SerializeRootSignature = unsafe extern "system" fn(
    *const D3D12_ROOT_SIGNATURE_DESC,
    D3D_ROOT_SIGNATURE_VERSION,
    *mut *mut c_void,
    *mut *mut c_void,
) -> HRESULT;
type CreateDirectMl =
    unsafe extern "system" fn(*mut c_void, i32, i32, *const GUID, *mut *mut c_void) -> HRESULT;
type GetDebugInterface = unsafe extern "system" fn(*const GUID, *mut *mut c_void) -> HRESULT;
type CreateDxc = unsafe extern "system" fn(*const GUID, *const GUID, *mut *mut c_void) -> HRESULT;
type Text = *const u8;
/// `D3DCompile`: source, its length and name, macros, includes, entry point, target, two flags, code, messages.
pub(crate) type Compile = unsafe extern "system" fn(
    Text,
    usize,
    Text,
    *const c_void,
    *const c_void,
    Text,
    Text,
    u32,
    u32,
    *mut *mut c_void,
    *mut *mut c_void,
) -> HRESULT;

/// What this crate uses of the libraries.
pub(crate) struct Libraries {
    create_factory: CreateFactory,
    create_device: CreateDevice,
    serialize_root_signature: SerializeRootSignature,
    create_directml: CreateDirectMl,
    /// The flags of DirectML's devices: whether they have its debug layer.
    directml_flags: i32,
    create_dxc: Option<CreateDxc>,
    /// The older compiler of HLSL.
    pub(crate) compile: Option<Compile>,
}

/// Opens a library of the system or in the program's own folder.
fn open(name: &str) -> std::result::Result<Library, String> {
    // SAFETY: these are Microsoft's libraries, whose initialisation has no preconditions. The current folder is not
    // searched.
    unsafe { Library::load_with_flags(name, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS) }
        .map_err(|error| format!("{name} cannot be opened: {error}"))
}

/// A function of a library, as a pointer of type `F`. The library stays open.
///
/// # Safety
/// The function has the type `F`.
unsafe fn function<F: Copy>(library: Library, name: &str) -> std::result::Result<F, String> {
    // SAFETY: the caller's responsibility.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    let found = found.map(|symbol| *symbol).map_err(|error| format!("{name} is missing: {error}"))?;
    mem::forget(library);
    Ok(found)
}

/// Enables the debug layers if `RNN_GPU_DEBUG` asks for them, and returns the flags of DirectML's devices.
fn debug_layers() -> i32 {
    /// `DML_CREATE_DEVICE_FLAG_DEBUG`
    const DEBUG: i32 = 1;
    if !is_enabled() {
        return 0;
    }
    let layer = open("d3d12.dll").and_then(|library| {
        // SAFETY: the function has this type in Microsoft's headers.
        let get: GetDebugInterface = unsafe { function(library, "D3D12GetDebugInterface") }?;
        // SAFETY: both pointers are valid during the call.
        let layer: Result<ID3D12Debug> = interface(|id, made| unsafe { get(id, made) });
        layer.map_err(|error| error.to_string())
    });
    match layer {
        // SAFETY: no device is open yet: this would remove it.
        Ok(layer) => unsafe { layer.EnableDebugLayer() },
        Err(reason) => {
            say(format_args!(
                "Direct3D's debug layer is missing, which Windows's Graphics Tools have: {reason}"
            ));
            return 0;
        }
    }
    // DirectML's layer needs that of Direct3D.
    match open("DirectML.Debug.dll") {
        Ok(library) => {
            mem::forget(library);
            DEBUG
        }
        Err(reason) => {
            say(format_args!("DirectML's debug layer is missing: {reason}"));
            0
        }
    }
}

/// The interface that a function stores.
fn interface<T: Interface>(make: impl FnOnce(*const GUID, *mut *mut c_void) -> HRESULT) -> Result<T> {
    let mut made = ptr::null_mut();
    make(&T::IID, &mut made).ok()?;
    match made.is_null() {
        true => Err(Error::from(E_POINTER)),
        // SAFETY: the function was asked for this interface, and has stored a reference to it.
        false => Ok(unsafe { T::from_raw(made) }),
    }
}

impl Libraries {
    /// Opens the libraries on first use.
    ///
    /// # Errors
    /// The reason why a required one is missing.
    pub(crate) fn get() -> std::result::Result<&'static Libraries, String> {
        static OPENED: OnceLock<std::result::Result<Libraries, String>> = OnceLock::new();
        OPENED.get_or_init(Libraries::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> std::result::Result<Libraries, String> {
        // SAFETY: the functions have these types in Microsoft's headers.
        unsafe {
            Ok(Libraries {
                create_factory: function(open("dxgi.dll")?, "CreateDXGIFactory1")?,
                create_device: function(open("d3d12.dll")?, "D3D12CreateDevice")?,
                serialize_root_signature: function(open("d3d12.dll")?, "D3D12SerializeRootSignature")?,
                create_directml: function(open("DirectML.dll")?, "DMLCreateDevice1")?,
                directml_flags: debug_layers(),
                create_dxc: open("dxcompiler.dll").and_then(|dxc| function(dxc, "DxcCreateInstance")).ok(),
                compile: open("d3dcompiler_47.dll").and_then(|fxc| function(fxc, "D3DCompile")).ok(),
            })
        }
    }

    pub(crate) fn factory(&self) -> Result<IDXGIFactory1> {
        // SAFETY: both pointers are valid during the call.
        interface(|id, made| unsafe { (self.create_factory)(id, made) })
    }

    /// A Direct3D device of an adapter.
    pub(crate) fn device<T: Interface>(&self, adapter: &IDXGIAdapter1) -> Result<T> {
        // SAFETY: as above; the adapter is only used during the call.
        interface(|id, made| unsafe {
            (self.create_device)(adapter.as_raw(), D3D_FEATURE_LEVEL_11_0, id, made)
        })
    }

    /// A DirectML device on a Direct3D device.
    pub(crate) fn directml<T: Interface>(&self, device: &impl Interface) -> Result<T> {
        /// The first feature level.
        const LEAST: i32 = 0x1000;
        // SAFETY: as above. The object keeps a reference to the device.
        interface(|id, made| unsafe {
            (self.create_directml)(device.as_raw(), self.directml_flags, LEAST, id, made)
        })
    }

    /// DXC, unless it is missing.
    pub(crate) fn dxc<T: Interface>(&self) -> Option<Result<T>> {
        // SAFETY: as above.
        self.create_dxc.map(|create| interface(|id, made| unsafe { create(&CLSID_DxcCompiler, id, made) }))
    }

    /// The bytes of a root signature.
    pub(crate) fn root_signature(&self, description: &D3D12_ROOT_SIGNATURE_DESC) -> Result<Vec<u8>> {
        let (mut made, mut messages) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the description and both pointers are valid during the call.
        let code = unsafe {
            let version = D3D_ROOT_SIGNATURE_VERSION_1;
            (self.serialize_root_signature)(description, version, &mut made, &mut messages)
        };
        blob(messages);
        let made = blob(made);
        code.ok()?;
        made.as_ref().map(blob_bytes).ok_or_else(|| Error::from(E_POINTER))
    }
}

/// Takes over the reference to a blob that a function has stored.
pub(crate) fn blob(stored: *mut c_void) -> Option<ID3DBlob> {
    // SAFETY: the functions that store blobs store a reference or leave null.
    (!stored.is_null()).then(|| unsafe { ID3DBlob::from_raw(stored) })
}

/// A copy of a blob's bytes.
pub(crate) fn blob_bytes(blob: &ID3DBlob) -> Vec<u8> {
    // SAFETY: the bytes belong to the blob.
    unsafe { slice::from_raw_parts(blob.GetBufferPointer().cast(), blob.GetBufferSize()).to_vec() }
}
