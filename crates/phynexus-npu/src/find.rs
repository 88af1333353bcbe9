//! Where the libraries and tools of runtimes are.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// The variable with folders to search: a list with the platform's separator, like `PATH`.
const FOLDERS: &str = "RNN_NPU_PATH";
/// The variable that, if it is 1, numbers emulators and the host's CPU like hardware.
const EMULATORS: &str = "RNN_NPU_EMULATORS";

/// Where to search for runtimes. A folder holds libraries, or Python packages that hold them (`site-packages`), or
/// tools.
///
/// The order: the folders that were given, those of the environment variable `RNN_NPU_PATH`, the packages of the active
/// virtual environment (`VIRTUAL_ENV`), the search path of the system's loader.
#[derive(Clone, Debug)]
pub struct Search {
    folders: Vec<PathBuf>,
    emulators: bool,
}

impl Default for Search {
    fn default() -> Search {
        Search::of(Vec::new())
    }
}

impl Search {
    /// Searches these folders before the others.
    pub fn of(mut folders: Vec<PathBuf>) -> Search {
        folders.extend(list(FOLDERS));
        if let Some(root) = env::var_os("VIRTUAL_ENV").map(PathBuf::from) {
            folders.push(root.join("Lib").join("site-packages"));
            folders
                .extend(children(&root.join("lib")).into_iter().map(|python| python.join("site-packages")));
            folders.push(root.join(if cfg!(windows) { "Scripts" } else { "bin" }));
        }
        folders.extend(system_folders());
        folders.retain(|folder| !folder.as_os_str().is_empty() && folder.is_dir());
        let mut known = Vec::new();
        folders.retain(|folder| {
            !known.contains(folder) && {
                known.push(folder.clone());
                true
            }
        });
        Search { folders, emulators: env::var(EMULATORS).is_ok_and(|value| value.trim() == "1") }
    }

    /// Whether emulators and the host's CPU are numbered like hardware, as with `RNN_NPU_EMULATORS=1`.
    pub fn with_emulators(self, emulators: bool) -> Search {
        Search { emulators, ..self }
    }

    /// Whether emulators and the host's CPU are numbered like hardware.
    pub fn emulators(&self) -> bool {
        self.emulators
    }

    /// The folders that exist, in the order of the search.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// The library of this name without prefix and ending, such as `onnxruntime`, in a folder of the search or in one
    /// of the `packages` there, such as `onnxruntime/capi`. Of several versions in a folder, the one whose name comes
    /// last.
    pub fn library(&self, packages: &[&str], stem: &str) -> Option<PathBuf> {
        self.folders.iter().find_map(|folder| {
            let places = packages.iter().map(|package| folder.join(package)).chain([folder.clone()]);
            places.into_iter().find_map(|place| {
                children(&place).into_iter().rfind(|file| library_stem(file).as_deref() == Some(stem))
            })
        })
    }

    /// All libraries whose name begins so, in folders of the search and in Python packages there whose name begins with
    /// `package`, one of each name: the first that is found.
    pub fn libraries(&self, package: &str, stem: &str) -> Vec<PathBuf> {
        let mut found: Vec<(String, PathBuf)> = Vec::new();
        for folder in &self.folders {
            let is_package = |place: &PathBuf| file_name(place).starts_with(package) && place.is_dir();
            let packages = children(folder).into_iter().filter(is_package);
            for file in packages.chain([folder.clone()]).flat_map(|place| children(&place)) {
                let name = library_stem(&file).filter(|name| name.starts_with(stem));
                if let Some(name) = name.filter(|name| !found.iter().any(|(known, _)| known == name)) {
                    found.push((name, file));
                }
            }
        }
        found.into_iter().map(|(_, file)| file).collect()
    }

    /// The program of this name, in a folder of the search, in the `bin` folder of the environment that a
    /// `site-packages` folder belongs to, or on the `PATH`.
    pub fn tool(&self, name: &str) -> Option<PathBuf> {
        let file = format!("{name}{}", env::consts::EXE_SUFFIX);
        let places = self.folders.iter().flat_map(|folder| {
            let root = folder.ancestors().nth(if cfg!(windows) { 2 } else { 3 });
            let is_packages = file_name(folder) == "site-packages";
            let own = root
                .filter(|_| is_packages)
                .map(|root| root.join(if cfg!(windows) { "Scripts" } else { "bin" }));
            [Some(folder.clone()), own].into_iter().flatten()
        });
        places.chain(list("PATH")).map(|folder| folder.join(&file)).find(|tool| tool.is_file())
    }
}

/// The folders of a variable that is a list of them.
fn list(variable: &str) -> Vec<PathBuf> {
    env::var_os(variable).map(|list| env::split_paths(&list).collect()).unwrap_or_default()
}

/// Where the system's loader searches.
fn system_folders() -> Vec<PathBuf> {
    if cfg!(windows) {
        return list("PATH");
    }
    let own = if cfg!(target_os = "macos") { "DYLD_LIBRARY_PATH" } else { "LD_LIBRARY_PATH" };
    let usual = ["/usr/local/lib", "/opt/homebrew/lib", "/usr/lib64", "/usr/lib"].map(PathBuf::from);
    let architecture = PathBuf::from(format!("/usr/lib/{}-linux-gnu", env::consts::ARCH));
    list(own).into_iter().chain(usual).chain([architecture]).collect()
}

/// What a folder holds, in the order of the names.
fn children(folder: &Path) -> Vec<PathBuf> {
    let mut children: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    children.sort();
    children
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The name of a library's file without `lib`, version and ending; `None` for other files.
fn library_stem(file: &Path) -> Option<String> {
    let name = file_name(file);
    let stem = if cfg!(windows) {
        name.strip_suffix(".dll")?
    } else {
        let name = name.strip_prefix("lib")?;
        match cfg!(target_os = "macos") {
            true => name.strip_suffix(".dylib")?.split('.').next()?,
            false => {
                let (stem, version) = name.split_once(".so")?;
                (version.is_empty() || version.starts_with('.')).then_some(stem)?
            }
        }
    };
    Some(stem.to_owned())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn libraries_are_found_by_their_name_and_the_newest_version_wins() {
        let root = tempfile::tempdir().unwrap();
        let capi = root.path().join("onnxruntime").join("capi");
        let plugin = root.path().join("onnxruntime_other");
        fs::create_dir_all(&capi).unwrap();
        fs::create_dir_all(&plugin).unwrap();
        for name in ["libonnxruntime.so.1.30.0", "libonnxruntime.so.1.31.1", "libonnxruntime.sorry"] {
            fs::write(capi.join(name), "").unwrap();
        }
        for name in ["libonnxruntime_providers_other.so", "libonnxruntime_providers_other.so.1", "other.txt"]
        {
            fs::write(plugin.join(name), "").unwrap();
        }
        let search = Search::of(vec![root.path().to_owned()]);
        assert_eq!(search.folders()[0], root.path());
        let library = search.library(&["onnxruntime/capi"], "onnxruntime").unwrap();
        assert_eq!(library, capi.join("libonnxruntime.so.1.31.1"));
        assert_eq!(search.library(&["onnxruntime/capi"], "onnxruntime_no_such_library"), None);
        let plugins = search.libraries("onnxruntime_", "onnxruntime_providers_other");
        assert_eq!(plugins, [plugin.join("libonnxruntime_providers_other.so")]);
    }

    #[test]
    fn tools_are_found_beside_the_packages_of_their_environment() {
        let root = tempfile::tempdir().unwrap();
        let packages = root.path().join("lib").join("python3.11").join("site-packages");
        fs::create_dir_all(&packages).unwrap();
        fs::create_dir_all(root.path().join("bin")).unwrap();
        fs::write(root.path().join("bin").join("some_compiler"), "").unwrap();
        let search = Search::of(vec![packages]);
        assert_eq!(search.tool("some_compiler"), Some(root.path().join("bin").join("some_compiler")));
        assert_eq!(search.tool("no_such_compiler"), None);
    }
}
