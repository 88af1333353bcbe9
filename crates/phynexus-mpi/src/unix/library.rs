//! Finds MPI's library and recognises the implementation.

use std::{
    env,
    error::Error,
    ffi::{CStr, OsString, c_char, c_int},
    path::PathBuf,
};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use super::launcher::Launcher;

/// Implementations whose handles differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    OpenMpi,
    /// Also Intel MPI, MVAPICH and others that share MPICH's ABI.
    Mpich,
    /// The standard ABI of MPI 5.
    Standard,
}

impl Family {
    /// Those that a launcher can start, the best first.
    fn of(launcher: Launcher) -> &'static [Family] {
        match launcher {
            Launcher::OpenMpi => &[Family::OpenMpi, Family::Standard],
            Launcher::Pmi => &[Family::Mpich, Family::Standard],
            Launcher::Pmix | Launcher::None => &[Family::OpenMpi, Family::Mpich, Family::Standard],
        }
    }

    /// File names of the library.
    fn files(self) -> &'static [&'static str] {
        match (self, cfg!(target_os = "macos")) {
            (Family::OpenMpi, false) => &["libmpi.so.40", "libmpi.so"],
            (Family::Mpich, false) => &["libmpich.so.12", "libmpi.so.12", "libmpich.so", "libmpi.so"],
            (Family::Standard, false) => &["libmpi_abi.so.1", "libmpi_abi.so.0"],
            (Family::OpenMpi, true) => &["libmpi.40.dylib", "libmpi.dylib"],
            (Family::Mpich, true) => &["libmpi.12.dylib", "libmpi.dylib"],
            (Family::Standard, true) => &["libmpi_abi.1.dylib", "libmpi_abi.0.dylib"],
        }
    }

    /// Whether a library is of this family. A file name without a version may belong to any.
    fn includes(self, library: &Library) -> bool {
        // SAFETY: only the address is looked up.
        let is_open_mpi = unsafe { library.get::<*const c_char>("ompi_mpi_comm_world") }.is_ok();
        match self {
            Family::OpenMpi => is_open_mpi,
            Family::Mpich => {
                let of_mpich = ["MPICH", "Intel(R) MPI", "MVAPICH"];
                !is_open_mpi
                    && version(library).is_some_and(|text| of_mpich.iter().any(|name| text.contains(name)))
            }
            Family::Standard => true,
        }
    }
}

/// What the library says it is.
fn version(library: &Library) -> Option<String> {
    type GetLibraryVersion = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    // SAFETY: the MPI standard declares the function so, and allows it before the initialisation.
    let get = unsafe { library.get::<GetLibraryVersion>("MPI_Get_library_version") }.ok()?;
    // The longest MPI_MAX_LIBRARY_VERSION_STRING is 8192.
    let (mut text, mut length) = (vec![0u8; 16384], 0);
    // SAFETY: there is room for the text, which ends with a zero.
    unsafe { get(text.as_mut_ptr().cast(), &mut length) };
    Some(CStr::from_bytes_until_nul(&text).ok()?.to_string_lossy().into_owned())
}

/// The loader's own words.
pub(crate) fn reason(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Opens the library that fits the launcher.
///
/// # Errors
/// What is missing, and what to do.
pub(crate) fn open(launcher: Launcher) -> Result<(Family, Library), String> {
    let roots = ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(env::var_os);
    let folders: Vec<PathBuf> = roots.map(|root| PathBuf::from(root).join("lib")).collect();
    let mut messages = Vec::new();
    for &family in Family::of(launcher) {
        for file in family.files() {
            let in_folders = folders.iter().map(|folder| folder.join(file)).filter(|path| path.exists());
            for path in in_folders.map(OsString::from).chain([OsString::from(file)]) {
                // Open MPI's plug-ins find its symbols only if they are global.
                // SAFETY: MPI's libraries have no requirements on how they are loaded.
                match unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) } {
                    Ok(library) if family.includes(&library) => return Ok((family, library)),
                    Ok(_) => {}
                    Err(error) => messages.push(reason(&error)),
                }
            }
        }
    }
    let (started, remedy) = match launcher {
        Launcher::OpenMpi => (
            "this process was started by Open MPI's mpirun, but Open MPI's library",
            "install it (Debian: openmpi-bin), or start with the mpiexec of an installed MPI",
        ),
        Launcher::Pmi => (
            "this process was started by MPICH's mpiexec, but MPICH's library",
            "install it (Debian: mpich), or start with the mpirun of an installed MPI",
        ),
        Launcher::Pmix | Launcher::None => {
            ("a library of MPI", "install one (Debian: openmpi-bin or mpich), and start with its mpirun")
        }
    };
    let messages = messages.join("; ");
    Err(format!("{started} was not found: {remedy}; LD_LIBRARY_PATH may name its folder ({messages})"))
}
