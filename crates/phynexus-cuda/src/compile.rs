//! From CUDA C to machine code for one architecture, and the cache of machine code on disk.

use std::{
    env,
    ffi::{CStr, CString},
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Write},
    path::{Path, PathBuf},
    time::SystemTime,
};

use cudarc::nvrtc::{result, sys};

use crate::library;

/// The cache keeps no more than this on disk.
const CACHE_BYTES: u64 = 512 << 20;

/// Compiles kernels for one architecture.
pub(crate) struct Compiler {
    options: Vec<String>,
    /// Compiler and options: what machine code depends on besides the source.
    version: String,
    /// Absent where no folder of the user's can be had: then nothing is kept.
    cache: Option<PathBuf>,
}

impl Compiler {
    /// For a compute capability.
    pub(crate) fn new((major, minor): (usize, usize)) -> Compiler {
        let mut options = vec![
            format!("--gpu-architecture=sm_{major}{minor}"),
            "--std=c++17".to_owned(),
            // Contraction would make results differ from what the operations say.
            "--fmad=false".to_owned(),
        ];
        options.extend(library::headers().map(|folder| format!("--include-path={}", folder.display())));
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the pointers are valid for the call. Of a failure nothing is left but zeros.
        unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
        let version = format!("NVRTC {major}.{minor} {}", options.join(" "));
        Compiler { options, version, cache: cache_folder() }
    }

    /// Machine code of a source.
    ///
    /// # Errors
    /// The compiler's messages.
    pub(crate) fn compile(&self, source: &str) -> Result<Vec<u8>, String> {
        let key = format!("{}\n{source}", self.version);
        let file = self.cache.as_ref().map(|folder| folder.join(file_name(&key)));
        if let Some(code) = file.as_deref().and_then(|file| read(file, &key)) {
            return Ok(code);
        }
        let code = self.machine_code(source)?;
        if let Some(file) = file {
            // A cache that cannot be written costs time, nothing else.
            let _ = write(&file, &key, &code);
        }
        Ok(code)
    }

    fn machine_code(&self, source: &str) -> Result<Vec<u8>, String> {
        let source = CString::new(source).map_err(|_| "the source contains a zero byte".to_owned())?;
        let program = Program(result::create_program(&source, None).map_err(|e| format!("{e:?}"))?);
        // SAFETY: the program was just made.
        let compiled = unsafe { result::compile_program(program.0, &self.options) };
        if let Err(error) = compiled {
            // SAFETY: the program is still there.
            let log = unsafe { result::get_program_log(program.0) }.unwrap_or_default();
            let log: Vec<u8> = log.into_iter().map(|c| c as u8).collect();
            let log = CStr::from_bytes_until_nul(&log)
                .map(|l| l.to_string_lossy().into_owned())
                .unwrap_or_default();
            return Err(format!("{error:?}: {log}"));
        }
        let mut bytes = 0;
        // SAFETY: the program is compiled, the pointer valid for the call.
        unsafe { sys::nvrtcGetCUBINSize(program.0, &mut bytes) }.result().map_err(|e| format!("{e:?}"))?;
        let mut code = vec![0u8; bytes];
        // SAFETY: the buffer has the size that was asked for.
        unsafe { sys::nvrtcGetCUBIN(program.0, code.as_mut_ptr().cast()) }
            .result()
            .map_err(|e| format!("{e:?}"))?;
        Ok(code)
    }
}

/// A program of NVRTC's.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: nobody else has the program.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

/// Where machine code is kept: `RNN_CUDA_CACHE_PATH`, else a folder in the user's cache. It belongs to this user alone.
fn cache_folder() -> Option<PathBuf> {
    let named = env::var_os("RNN_CUDA_CACHE_PATH").filter(|path| !path.is_empty()).map(PathBuf::from);
    let folder = named.or_else(|| {
        let cache = env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
        let home = || env::var_os("HOME").or_else(|| env::var_os("LOCALAPPDATA")).map(PathBuf::from);
        Some(cache.or_else(|| home().map(|home| home.join(".cache")))?.join("neurenix").join("cuda"))
    })?;
    private(&folder).ok()?;
    Some(folder)
}

/// Makes the folder, for this user alone; refuses one that others own or may write.
fn private(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let data = fs::metadata(folder)?;
        let mine = fs::metadata("/proc/self").map_or(data.uid(), |process| process.uid());
        if data.uid() != mine || data.permissions().mode() & 0o022 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the folder is not this user's alone",
            ));
        }
        Ok(())
    }
    #[cfg(not(unix))]
    fs::create_dir_all(folder)
}

fn file_name(key: &str) -> String {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    format!("{:016x}.cubin", hasher.finish())
}

/// The machine code in a file, if it is that of this key: a file begins with the length of its key and the key.
fn read(file: &Path, key: &str) -> Option<Vec<u8>> {
    let bytes = fs::read(file).ok()?;
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (found, code) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    (found == key.as_bytes() && !code.is_empty()).then(|| code.to_vec())
}

/// Writes a file that is there completely or not at all.
fn write(file: &Path, key: &str, code: &[u8]) -> io::Result<()> {
    let temporary = file.with_extension(format!("{}.tmp", std::process::id()));
    let mut out = fs::File::create(&temporary)?;
    out.write_all(&(key.len() as u64).to_le_bytes())?;
    out.write_all(key.as_bytes())?;
    out.write_all(code)?;
    drop(out);
    fs::rename(&temporary, file).inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    file.parent().map_or(Ok(()), |folder| shrink(folder, CACHE_BYTES))
}

/// Removes the oldest files beyond so many bytes.
fn shrink(folder: &Path, most: u64) -> io::Result<()> {
    let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let data = entry.metadata()?;
        if data.is_file() {
            files.push((data.modified()?, data.len(), entry.path()));
        }
    }
    let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    files.sort();
    for (_, bytes, path) in files {
        if total <= most {
            break;
        }
        fs::remove_file(path)?;
        total -= bytes;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_gives_back_what_it_was_given_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.cubin");
        write(&file, "key", &[1, 2, 3]).unwrap();
        assert_eq!(read(&file, "key"), Some(vec![1, 2, 3]));
        assert_eq!(read(&file, "kez"), None);
        for length in [0, 5, 9, 11] {
            let bytes = fs::read(&file).unwrap();
            let cut = folder.path().join("b.cubin");
            fs::write(&cut, &bytes[..length]).unwrap();
            assert_eq!(read(&cut, "key"), None, "{length} bytes");
        }
    }

    #[test]
    fn the_oldest_files_go_first() {
        let folder = tempfile::tempdir().unwrap();
        for (age, name) in ["old", "middle", "new"].iter().enumerate() {
            let path = folder.path().join(name);
            fs::write(&path, [0; 100]).unwrap();
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(age as u64 * 100);
            fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        }
        shrink(folder.path(), 250).unwrap();
        let left: Vec<bool> =
            ["old", "middle", "new"].iter().map(|n| folder.path().join(n).exists()).collect();
        assert_eq!(left, [false, true, true]);
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_others_may_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own");
        assert!(private(&own).is_ok());
        fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(private(&own).is_err());
    }
}
