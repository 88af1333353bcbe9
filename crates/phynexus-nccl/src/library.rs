//! Finds and opens NCCL or RCCL, and declares the functions in use.

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    path::{Path, PathBuf},
    ptr,
};

use libloading::Library as Loaded;

/// A communicator or a stream.
pub(crate) type Handle = *mut c_void;

/// What the functions return.
pub(crate) const SUCCESS: c_int = 0;
pub(crate) const IN_PROGRESS: c_int = 7;

/// What the ranks of a communicator share: `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UniqueId(pub(crate) [u8; 128]);

/// `ncclConfig_t` as in the header of NCCL 2.18. Later releases fill in what they added.
#[repr(C)]
pub(crate) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cluster_size: c_int,
    least_blocks: c_int,
    most_blocks: c_int,
    network: *const c_char,
    split_share: c_int,
}

impl Config {
    /// Functions return at once, and an initialisation or a connection that takes longer can be given up.
    pub(crate) fn non_blocking() -> Config {
        const UNDEFINED: c_int = c_int::MIN;
        Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            version: code(OLDEST) as c_uint,
            blocking: 0,
            cluster_size: UNDEFINED,
            least_blocks: UNDEFINED,
            most_blocks: UNDEFINED,
            network: ptr::null(),
            split_share: UNDEFINED,
        }
    }
}

/// A table of functions, looked up by name.
macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $text:ty)?;)*) => {
        /// The functions in use.
        #[allow(non_snake_case)]
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> functions!(@result $($text)?),)*
        }

        impl Functions {
            fn of(library: &'static Loaded) -> Result<Functions, &'static str> {
                // SAFETY: the functions have these types in the library's header, and the library is never closed.
                unsafe {
                    Ok(Functions {
                        $($name: *library.get(stringify!($name)).map_err(|_| stringify!($name))?,)*
                    })
                }
            }
        }
    };
    (@result) => { c_int };
    (@result $text:ty) => { $text };
}

functions! {
    ncclGetVersion(*mut c_int);
    ncclGetUniqueId(*mut UniqueId);
    ncclCommInitRankConfig(*mut Handle, c_int, UniqueId, c_int, *mut Config);
    ncclCommFinalize(Handle);
    ncclCommDestroy(Handle);
    ncclCommAbort(Handle);
    ncclCommGetAsyncError(Handle, *mut c_int);
    ncclAllReduce(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Handle);
    ncclReduce(*const c_void, *mut c_void, usize, c_int, c_int, c_int, Handle, Handle);
    ncclReduceScatter(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Handle);
    ncclAllGather(*const c_void, *mut c_void, usize, c_int, Handle, Handle);
    ncclBroadcast(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Handle);
    ncclSend(*const c_void, usize, c_int, c_int, Handle, Handle);
    ncclRecv(*mut c_void, usize, c_int, c_int, Handle, Handle);
    ncclGroupStart();
    ncclGroupEnd();
    ncclGetErrorString(c_int) -> *const c_char;
    ncclGetLastError(Handle) -> *const c_char;
}

/// Whose library it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// NVIDIA's NCCL.
    Nvidia,
    /// AMD's RCCL.
    Amd,
}

impl Vendor {
    /// The library's name.
    pub fn name(self) -> &'static str {
        match self {
            Vendor::Nvidia => "NCCL",
            Vendor::Amd => "RCCL",
        }
    }

    /// The names of its file.
    fn files(self) -> [&'static str; 2] {
        match self {
            Vendor::Nvidia => ["libnccl.so.2", "libnccl.so"],
            Vendor::Amd => ["librccl.so.1", "librccl.so"],
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Vendor::Nvidia => {
                "install libnccl2, or the Python package nvidia-nccl-cu12 or nvidia-nccl-cu13, whichever is for the \
                 driver's version of CUDA"
            }
            Vendor::Amd => "install ROCm's package rccl",
        }
    }
}

/// The oldest supported version: major, minor, patch.
const OLDEST: (u32, u32, u32) = (2, 18, 0);

fn code((major, minor, patch): (u32, u32, u32)) -> u32 {
    10_000 * major + 100 * minor + patch
}

/// Converts the library's version number: 21803 is 2.18.3. Before 2.9, 2804 was 2.8.4.
fn version_of(number: c_int) -> (u32, u32, u32) {
    let number = u32::try_from(number).unwrap_or(0);
    match number {
        ..10_000 => (number / 1000, number / 100 % 10, number % 100),
        _ => (number / 10_000, number / 100 % 100, number % 100),
    }
}

/// An open library.
pub struct Library {
    vendor: Vendor,
    version: (u32, u32, u32),
    pub(crate) functions: Functions,
}

impl Library {
    /// Opens the library and keeps it open for the life of the process. Searches the system loader's path, then these
    /// folders; the first that is new enough is used.
    ///
    /// # Errors
    /// A description of what is missing.
    pub fn open(vendor: Vendor, folders: &[PathBuf]) -> Result<&'static Library, String> {
        let name = vendor.name();
        if cfg!(windows) {
            return Err(format!("{name} is not available for Windows"));
        }
        let folders = [Path::new("")].into_iter().chain(folders.iter().map(PathBuf::as_path));
        let files = folders.flat_map(|folder| vendor.files().map(|file| folder.join(file)));
        let mut refusal = None;
        for file in files {
            // SAFETY: opening the library only runs its initialisers.
            let Ok(loaded) = (unsafe { Loaded::new(&file) }) else { continue };
            match Library::of(vendor, Box::leak(Box::new(loaded))) {
                Ok(library) => return Ok(Box::leak(Box::new(library))),
                Err(reason) => refusal = refusal.or(Some(reason)),
            }
        }
        Err(refusal
            .unwrap_or_else(|| format!("{name} ({}) was not found: {}", vendor.files()[0], vendor.remedy())))
    }

    fn of(vendor: Vendor, loaded: &'static Loaded) -> Result<Library, String> {
        let name = vendor.name();
        let functions = Functions::of(loaded).map_err(|missing| {
            let (major, minor, _) = OLDEST;
            format!("{name} lacks {missing}: {major}.{minor} or later is required: {}", vendor.remedy())
        })?;
        Library::with(vendor, functions)
    }

    /// Checks the version.
    pub(crate) fn with(vendor: Vendor, functions: Functions) -> Result<Library, String> {
        let mut number = 0;
        // SAFETY: the pointer is valid for the call. After a failure the number stays zero.
        unsafe { (functions.ncclGetVersion)(&mut number) };
        let version = version_of(number);
        if version < OLDEST {
            let ((major, minor, patch), (least, at_least, _)) = (version, OLDEST);
            return Err(format!(
                "{} {major}.{minor}.{patch} is too old: {least}.{at_least} or later is required: {}",
                vendor.name(),
                vendor.remedy()
            ));
        }
        Ok(Library { vendor, version, functions })
    }

    /// The version: major, minor, patch.
    pub fn version(&self) -> (u32, u32, u32) {
        self.version
    }

    /// The version as one number.
    pub(crate) fn version_code(&self) -> u32 {
        code(self.version)
    }

    /// The text of a failure: of its kind, and what the library last reported. The communicator may be null.
    pub(crate) fn text(&self, failure: c_int, communicator: Handle) -> String {
        // SAFETY: both functions return a string or null; the first takes every number, and the second a communicator
        // or null. The strings are copied before another call could replace them.
        let [kind, last] = unsafe {
            let kind = (self.functions.ncclGetErrorString)(failure);
            [kind, (self.functions.ncclGetLastError)(communicator)].map(|text| words(text))
        };
        let last = last.map(|last| format!(" ({last})")).unwrap_or_default();
        format!("{}: {}{last}", self.vendor.name(), kind.unwrap_or_else(|| format!("error {failure}")))
    }
}

/// Copies a string; `None` for an empty one or null.
///
/// # Safety
/// The pointer must be null or point to a string that ends with a zero.
unsafe fn words(text: *const c_char) -> Option<String> {
    // SAFETY: guaranteed by the caller.
    let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
    let text = text?.to_string_lossy().trim().to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn versions_are_read_from_their_numbers() {
        assert_eq!(version_of(2804), (2, 8, 4));
        assert_eq!(version_of(21803), (2, 18, 3));
        assert_eq!(version_of(22803), (2, 28, 3));
        assert_eq!(version_of(-1), (0, 0, 0));
        assert_eq!(code((2, 28, 3)), 22803);
    }

    #[test]
    fn the_configuration_lies_as_in_the_header() {
        let offsets = [
            offset_of!(Config, magic),
            offset_of!(Config, version),
            offset_of!(Config, blocking),
            offset_of!(Config, cluster_size),
            offset_of!(Config, least_blocks),
            offset_of!(Config, most_blocks),
            offset_of!(Config, network),
            offset_of!(Config, split_share),
            size_of::<Config>(),
        ];
        // The layout of a 64-bit C compiler.
        assert_eq!(offsets, [8, 12, 16, 20, 24, 28, 32, 40, 48]);
        assert_eq!(size_of::<UniqueId>(), 128);
    }

    #[test]
    fn a_missing_library_is_reported_with_the_remedy() {
        let nowhere = [PathBuf::from("/nowhere")];
        if let Err(reason) = Library::open(Vendor::Nvidia, &nowhere) {
            assert!(reason.contains("libnccl.so.2") && reason.contains("nvidia-nccl-cu12"), "{reason}");
        }
        if let Err(reason) = Library::open(Vendor::Amd, &nowhere) {
            assert!(reason.contains("librccl.so.1"), "{reason}");
        }
    }
}
