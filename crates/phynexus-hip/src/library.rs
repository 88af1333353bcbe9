//! Finds and opens HIP, and declares the functions in use.
//!
//! The compiler's functions are in a separate library or, in older releases and Debian's packages, in the runtime.

use std::{
    env,
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    path::PathBuf,
    sync::OnceLock,
};

use libloading::Library;
use phynexus_nccl::Vendor;

/// A HIP handle.
pub(crate) type Handle = *mut c_void;

/// A table of functions, looked up by name in several libraries.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident { $($name:ident($($argument:ty),*);)* }) => {
        $(#[$doc])*
        #[allow(non_snake_case)]
        pub(crate) struct $table { $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> c_int,)* }

        impl $table {
            fn open(libraries: &[&'static Library]) -> Result<$table, String> {
                Ok($table { $($name: find(libraries, stringify!($name))?,)* })
            }
        }
    };
}

functions! {
    /// The runtime.
    Runtime {
        hipDriverGetVersion(*mut c_int);
        hipGetDeviceCount(*mut c_int);
        hipSetDevice(c_int);
        hipDeviceGetAttribute(*mut c_int, c_int, c_int);
        hipDeviceGetName(*mut c_char, c_int, c_int);
        hipDeviceTotalMem(*mut usize, c_int);
        hipMemGetInfo(*mut usize, *mut usize);
        hipMalloc(*mut Handle, usize);
        hipFree(Handle);
        hipHostMalloc(*mut Handle, usize, c_uint);
        hipHostFree(Handle);
        hipDeviceCanAccessPeer(*mut c_int, c_int, c_int);
        hipDeviceEnablePeerAccess(c_int, c_uint);
        hipMemcpyPeerAsync(Handle, c_int, Handle, c_int, usize, Handle);
        hipMemcpyHtoDAsync(Handle, *const c_void, usize, Handle);
        hipMemcpyDtoHAsync(*mut c_void, Handle, usize, Handle);
        hipMemsetAsync(Handle, c_int, usize, Handle);
        hipStreamCreateWithFlags(*mut Handle, c_uint);
        hipStreamSynchronize(Handle);
        hipStreamWaitEvent(Handle, Handle, c_uint);
        hipEventCreateWithFlags(*mut Handle, c_uint);
        hipEventRecord(Handle, Handle);
        hipEventQuery(Handle);
        hipEventSynchronize(Handle);
        hipEventElapsedTime(*mut f32, Handle, Handle);
        hipEventDestroy(Handle);
        hipModuleLoadData(*mut Handle, *const c_void);
        hipModuleUnload(Handle);
        hipModuleGetFunction(*mut Handle, Handle, *const c_char);
        hipModuleLaunchKernel(
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void,
            *mut *mut c_void
        );
    }
}

functions! {
    /// Graphs of launches, from `hip/hip_runtime_api.h` of HIP 6.2.2.
    Graphs {
        hipGraphCreate(*mut Handle, c_uint);
        hipGraphDestroy(Handle);
        hipGraphAddKernelNode(*mut Handle, Handle, *const Handle, usize, *const KernelNode);
        hipGraphInstantiate(*mut Handle, Handle, *mut Handle, *mut c_char, usize);
        hipGraphExecKernelNodeSetParams(Handle, Handle, *const KernelNode);
        hipGraphLaunch(Handle, Handle);
        hipGraphExecDestroy(Handle);
    }
}

functions! {
    /// The compiler.
    Rtc {
        hiprtcVersion(*mut c_int, *mut c_int);
        hiprtcCreateProgram(
            *mut Handle, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
        );
        hiprtcCompileProgram(Handle, c_int, *const *const c_char);
        hiprtcGetProgramLogSize(Handle, *mut usize);
        hiprtcGetProgramLog(Handle, *mut c_char);
        hiprtcGetCodeSize(Handle, *mut usize);
        hiprtcGetCode(Handle, *mut c_char);
        hiprtcDestroyProgram(*mut Handle);
    }
}

/// A launch in a graph: `hipKernelNodeParams`, identical in the headers of HIP 5.2 to 6.3.
#[repr(C)]
pub(crate) struct KernelNode {
    pub(crate) block: [c_uint; 3],
    pub(crate) extra: *mut *mut c_void,
    pub(crate) function: Handle,
    pub(crate) grid: [c_uint; 3],
    pub(crate) parameters: *mut *mut c_void,
    pub(crate) shared_bytes: c_uint,
}

/// A function that returns the text of an error.
type Text = unsafe extern "C" fn(c_int) -> *const c_char;

/// The parts of HIP in use.
pub(crate) struct Hip {
    pub(crate) runtime: Runtime,
    pub(crate) rtc: Rtc,
    /// `None` if the release's graphs are missing or not supported.
    pub(crate) graphs: Option<Graphs>,
    /// Fills a structure of device properties, whose layout depends on the release.
    pub(crate) properties: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    /// Writes the 16 bytes of a GPU's unique number; `None` in releases without it.
    pub(crate) unique_number: Option<unsafe extern "C" fn(*mut c_void, c_int) -> c_int>,
    error_text: Text,
    rtc_error_text: Text,
}

/// Opens HIP once.
///
/// # Errors
/// A description of what is missing, for the list of devices.
pub(crate) fn hip() -> Result<&'static Hip, String> {
    static HIP: OnceLock<Result<Hip, String>> = OnceLock::new();
    HIP.get_or_init(open).as_ref().map_err(Clone::clone)
}

/// HIP 5.3, the first release with supported graphs: in earlier ones, nodes keep pointers to the caller's parameters.
const GRAPHS: c_int = 50_300_000;

/// The releases, by their libraries' version numbers, newest first.
const RELEASES: [&str; 4] = ["so.7", "so.6", "so.5", "so"];

fn open() -> Result<Hip, String> {
    if cfg!(windows) {
        return Err(
            "HIP (ROCm) is only used on Linux; on Windows AMD's GPUs are Vulkan and DirectML devices"
                .to_owned(),
        );
    }
    let missing = "AMD's HIP runtime (libamdhip64) is not installed: install ROCm, or Debian's libamdhip64-5";
    let runtime = library("libamdhip64").ok_or(missing)?;
    let mut libraries = vec![runtime];
    libraries.extend(library("libhiprtc"));
    // Newer releases have two layouts of the structure; the functions of the newer layout have other names.
    let properties = ["hipGetDevicePropertiesR0600", "hipGetDeviceProperties"];
    let runtime = Runtime::open(&libraries)?;
    let mut version = 0;
    // SAFETY: the pointer is valid for the call. After a failure the value stays zero.
    unsafe { (runtime.hipDriverGetVersion)(&mut version) };
    Ok(Hip {
        runtime,
        rtc: Rtc::open(&libraries)?,
        graphs: Graphs::open(&libraries).ok().filter(|_| version >= GRAPHS),
        properties: properties
            .iter()
            .find_map(|name| find(&libraries, name).ok())
            .ok_or("AMD's HIP runtime does not report device properties")?,
        unique_number: find(&libraries, "hipDeviceGetUuid").ok(),
        error_text: find(&libraries, "hipGetErrorString")?,
        rtc_error_text: find(&libraries, "hiprtcGetErrorString")?,
    })
}

/// ROCm's folders of libraries.
fn folders() -> Vec<PathBuf> {
    let roots = ["ROCM_PATH", "HIP_PATH"].iter().filter_map(env::var_os).map(PathBuf::from);
    roots.chain([PathBuf::from("/opt/rocm")]).map(|root| root.join("lib")).collect()
}

/// Opens RCCL once.
///
/// # Errors
/// Why there is none.
pub(crate) fn rccl() -> Result<&'static phynexus_nccl::Library, String> {
    static RCCL: OnceLock<Result<&'static phynexus_nccl::Library, String>> = OnceLock::new();
    RCCL.get_or_init(|| phynexus_nccl::Library::open(Vendor::Amd, &folders())).clone()
}

/// Opens a library and keeps it open for the life of the process. Searches the system loader's path, then ROCm's
/// folders.
fn library(name: &str) -> Option<&'static Library> {
    let folders = [vec![PathBuf::new()], folders()].concat();
    let files = folders.iter().flat_map(|folder| RELEASES.map(|end| folder.join(format!("{name}.{end}"))));
    // SAFETY: opening AMD's libraries only runs their initialisers.
    let opened = files.into_iter().find_map(|file| unsafe { Library::new(file) }.ok());
    opened.map(|library| &*Box::leak(Box::new(library)))
}

/// Looks up a function by name. `F` must be its type in HIP's headers.
fn find<F: Copy>(libraries: &[&'static Library], name: &str) -> Result<F, String> {
    // SAFETY: the caller passes the type from HIP's headers, and libraries are never closed.
    let found = libraries.iter().find_map(|library| unsafe { library.get::<F>(name.as_bytes()) }.ok());
    found.map(|function| *function).ok_or_else(|| {
        format!("AMD's HIP runtime is installed, but lacks {name}: ROCm 5.2 or later is required")
    })
}

fn text(function: Text, code: c_int) -> String {
    // SAFETY: the function returns a static string for every number, or null.
    let words = unsafe {
        let pointer = function(code);
        (!pointer.is_null()).then(|| CStr::from_ptr(pointer).to_string_lossy().into_owned())
    };
    format!("{} ({code})", words.unwrap_or_else(|| "unknown error".to_owned()))
}

impl Hip {
    /// Converts a result of the runtime.
    pub(crate) fn check(&self, code: c_int) -> Result<(), String> {
        if code == 0 { Ok(()) } else { Err(text(self.error_text, code)) }
    }

    /// Converts a result of the compiler.
    pub(crate) fn check_rtc(&self, code: c_int) -> Result<(), String> {
        if code == 0 { Ok(()) } else { Err(text(self.rtc_error_text, code)) }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn a_launch_in_a_graph_lies_as_in_the_header() {
        let offsets = [
            offset_of!(KernelNode, block),
            offset_of!(KernelNode, extra),
            offset_of!(KernelNode, function),
            offset_of!(KernelNode, grid),
            offset_of!(KernelNode, parameters),
            offset_of!(KernelNode, shared_bytes),
            size_of::<KernelNode>(),
        ];
        // The layout of a 64-bit C compiler for dim3 (three 32-bit numbers), two pointers, dim3, a pointer, a 32-bit
        // number.
        assert_eq!(offsets, [0, 16, 24, 32, 48, 56, 64]);
    }
}
