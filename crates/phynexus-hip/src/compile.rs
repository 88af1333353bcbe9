//! Compiles HIP C to machine code for one architecture.

use std::{
    ffi::{CString, c_char, c_int},
    ptr,
};

use phynexus::{
    Error,
    gpu::{DiskCache, NotCompiled},
};

use crate::library::{Handle, Hip};

/// Compiles kernels for one architecture.
pub(crate) struct Compiler {
    hip: &'static Hip,
    options: Vec<CString>,
    /// The compiler and its options: what machine code depends on besides the source.
    version: String,
    cache: DiskCache,
}

impl Compiler {
    /// Creates the compiler of printed kernels for an architecture in AMD's naming, with its features:
    /// `gfx90a:sramecc+:xnack-`.
    pub(crate) fn new(hip: &'static Hip, architecture: &str) -> Compiler {
        // Contraction would change the results that the operations define.
        Compiler::with(hip, &[&format!("--offload-arch={architecture}"), "-O3", "-ffp-contract=off"])
    }

    /// Creates the compiler of user-written sources, with the compiler's default options.
    pub(crate) fn of_sources(hip: &'static Hip, architecture: &str) -> Compiler {
        Compiler::with(hip, &[&format!("--offload-arch={architecture}"), "-O3"])
    }

    fn with(hip: &'static Hip, options: &[&str]) -> Compiler {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the pointers are valid for the call. After a failure the values stay zero.
        unsafe { (hip.rtc.hiprtcVersion)(&mut major, &mut minor) };
        let mut driver = 0;
        // SAFETY: as above. The runtime version distinguishes releases with the same hipRTC version.
        unsafe { (hip.runtime.hipDriverGetVersion)(&mut driver) };
        let version = format!("hipRTC {major}.{minor} {driver} {}", options.join(" "));
        let options = options.iter().filter_map(|option| CString::new(*option).ok()).collect();
        Compiler { hip, options, version, cache: DiskCache::new("hip", "RNN_HIP_CACHE_PATH") }
    }

    /// Compiles a source to machine code, or reads it from the cache.
    ///
    /// # Errors
    /// The compiler's messages, or a failure of the compiler itself.
    pub(crate) fn compile(&self, source: &str) -> Result<Vec<u8>, NotCompiled> {
        self.cache.get(&format!("{}\n{source}", self.version), || self.machine_code(source))
    }

    /// Compiles a source to machine code without the cache.
    ///
    /// # Errors
    /// The compiler's messages, or a failure of the compiler itself.
    pub(crate) fn machine_code(&self, source: &str) -> Result<Vec<u8>, NotCompiled> {
        let (hip, rtc) = (self.hip, &self.hip.rtc);
        let source = CString::new(source).map_err(|_| "the source contains a zero byte".to_owned())?;
        let mut program = Program { hip, handle: ptr::null_mut() };
        let (none, name) = (ptr::null(), c"kernel.hip".as_ptr());
        // SAFETY: the pointers are valid for the call; there are no headers.
        let created =
            unsafe { (rtc.hiprtcCreateProgram)(&mut program.handle, source.as_ptr(), name, 0, none, none) };
        hip.check_rtc(created).map_err(failed)?;
        let options: Vec<*const c_char> = self.options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program was just created, and the options are valid for the call.
        let compiled =
            unsafe { (rtc.hiprtcCompileProgram)(program.handle, options.len() as c_int, options.as_ptr()) };
        if let Err(error) = hip.check_rtc(compiled) {
            if !REFUSALS.contains(&compiled) {
                return Err(failed(error));
            }
            // SAFETY: the program is valid, and the functions are those of its log.
            let log = unsafe { bytes(&program, rtc.hiprtcGetProgramLogSize, rtc.hiprtcGetProgramLog) };
            let log = log.unwrap_or_default();
            return Err(format!("{error}:\n{}", String::from_utf8_lossy(&log).trim_end_matches('\0')).into());
        }
        // SAFETY: the program is compiled; the functions are those of its code.
        unsafe { bytes(&program, rtc.hiprtcGetCodeSize, rtc.hiprtcGetCode) }.map_err(failed)
    }
}

/// hipRTC's codes for a source that does not compile, and for an unknown architecture.
const REFUSALS: [c_int; 2] = [6, 5];

/// A failure of hipRTC itself: the next attempt may succeed.
fn failed(message: String) -> NotCompiled {
    NotCompiled::Failed(Error::Device { device: "hipRTC".to_owned(), message })
}

type Size = unsafe extern "C" fn(Handle, *mut usize) -> c_int;
type Contents = unsafe extern "C" fn(Handle, *mut c_char) -> c_int;

/// Reads a program's contents with a pair of functions.
///
/// # Safety
/// Both functions must be for the same contents, which the program must have.
unsafe fn bytes(program: &Program, size: Size, contents: Contents) -> Result<Vec<u8>, String> {
    let mut count = 0;
    // SAFETY: the program and the pointer are valid.
    program.hip.check_rtc(unsafe { size(program.handle, &mut count) })?;
    let mut bytes = vec![0u8; count];
    // SAFETY: the buffer has the reported size.
    program.hip.check_rtc(unsafe { contents(program.handle, bytes.as_mut_ptr().cast()) })?;
    Ok(bytes)
}

/// A hipRTC program.
struct Program {
    hip: &'static Hip,
    handle: Handle,
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: this is the only handle of the program.
            unsafe { (self.hip.rtc.hiprtcDestroyProgram)(&mut self.handle) };
        }
    }
}
