//! Finds the driver, NVRTC and NCCL.
//!
//! The driver comes with the system. NVRTC comes with the CUDA toolkit or as a Python package. If the system's loader
//! does not find NVRTC, the usual folders are searched and the library is opened by its path, so that later requests by
//! name find it loaded. NCCL, a package of the system or of Python, is searched in the same folders.

use std::{
    env,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use phynexus_nccl::{Library, Vendor};

/// Opens the driver.
///
/// # Errors
/// If it is missing, the message for the list of devices.
pub(crate) fn open_driver() -> Result<(), String> {
    // SAFETY: opening NVIDIA's libraries only runs their initialisers.
    match unsafe { cudarc::driver::sys::is_culib_present() } {
        true => Ok(()),
        false => {
            let library = if cfg!(windows) { "nvcuda.dll" } else { "libcuda" };
            Err(format!("NVIDIA's driver ({library}) is not installed"))
        }
    }
}

/// Whether NVRTC can be opened, also from folders outside the loader's search path. The first library found is used, so
/// one in the environment takes precedence over another version elsewhere.
pub(crate) fn has_compiler() -> bool {
    // SAFETY: opening NVIDIA's libraries only runs their initialisers.
    let is_there = || unsafe { cudarc::nvrtc::sys::is_culib_present() };
    is_there() || folders().iter().any(|folder| preload(folder) && is_there())
}

/// Opens NCCL once.
///
/// # Errors
/// Why there is none.
pub(crate) fn nccl() -> Result<&'static Library, String> {
    static NCCL: OnceLock<Result<&'static Library, String>> = OnceLock::new();
    NCCL.get_or_init(|| Library::open(Vendor::Nvidia, &folders())).clone()
}

/// Folders that may contain CUDA's libraries, besides those of the system's loader.
fn folders() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> =
        ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(env::var_os).map(PathBuf::from).collect();
    roots.push(PathBuf::from("/usr/local/cuda"));
    let (of_toolkit, of_package) = match cfg!(windows) {
        true => (["bin", "bin/x64"], ["bin", "bin/x86_64"].as_slice()),
        false => (["lib64", "targets/x86_64-linux/lib"], ["lib"].as_slice()),
    };
    let mut folders: Vec<PathBuf> =
        roots.iter().flat_map(|root| of_toolkit.map(|libraries| root.join(libraries))).collect();
    for packages in python_packages() {
        for part in children(&packages.join("nvidia")) {
            folders.extend(of_package.iter().map(|libraries| part.join(libraries)));
        }
    }
    folders
}

/// The folders of installed Python packages: first the active environment's, then the system's.
fn python_packages() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(env::var_os).map(PathBuf::from).collect();
    if cfg!(windows) {
        return roots.iter().map(|root| root.join("Lib").join("site-packages")).collect();
    }
    roots.extend(env::var_os("HOME").map(|home| PathBuf::from(home).join(".local")));
    roots.extend(["/usr/local", "/usr"].map(PathBuf::from));
    let mut found = Vec::new();
    for python in roots.iter().flat_map(|root| children(&root.join("lib"))) {
        if python.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python")) {
            found.extend(["site-packages", "dist-packages"].map(|packages| python.join(packages)));
        }
    }
    found
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut children: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    children.sort();
    children
}

/// Opens NVRTC and its dependencies from this folder, if present, and keeps them open. Returns whether anything was
/// opened.
fn preload(folder: &Path) -> bool {
    let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let files = children(folder);
    let mut opened = false;
    let names = match cfg!(windows) {
        true => ["nvrtc-builtins64_", "nvrtc64_"],
        false => ["libnvrtc-builtins.so", "libnvrtc.so"],
    };
    for wanted in names {
        for file in files.iter().filter(|file| name(file).starts_with(wanted)) {
            if let Ok(library) = open(file) {
                std::mem::forget(library);
                opened = true;
            }
        }
    }
    opened
}

#[cfg(unix)]
fn open(file: &Path) -> Result<libloading::os::unix::Library, libloading::Error> {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    // SAFETY: opening NVIDIA's compiler only runs its initialisers.
    unsafe { Library::open(Some(file), RTLD_NOW | RTLD_GLOBAL) }
}

#[cfg(windows)]
fn open(file: &Path) -> Result<libloading::os::windows::Library, libloading::Error> {
    use libloading::os::windows::{LOAD_WITH_ALTERED_SEARCH_PATH, Library};
    // SAFETY: opening NVIDIA's compiler only runs its initialisers.
    unsafe { Library::load_with_flags(file, LOAD_WITH_ALTERED_SEARCH_PATH) }
}

/// The folder of CUDA's headers, which user-written kernels may include.
pub(crate) fn headers() -> Option<PathBuf> {
    let mut candidates: Vec<PathBuf> = ["CUDA_HOME", "CUDA_PATH"]
        .iter()
        .filter_map(env::var_os)
        .map(|root| PathBuf::from(root).join("include"))
        .collect();
    candidates.push(PathBuf::from("/usr/local/cuda/include"));
    for packages in python_packages() {
        candidates.extend(children(&packages.join("nvidia")).into_iter().map(|part| part.join("include")));
    }
    candidates
        .into_iter()
        .find(|folder| folder.join("mma.h").is_file() && folder.join("cuda_bf16.h").is_file())
}
