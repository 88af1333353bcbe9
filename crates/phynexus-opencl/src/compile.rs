//! From OpenCL C to a program on a device.

use std::{
    ffi::{CStr, CString},
    ptr,
};

use opencl3::{
    device::{CL_DEVICE_VERSION, CL_DRIVER_VERSION},
    program::{
        CL_PROGRAM_BINARIES, CL_PROGRAM_BUILD_LOG, build_program, create_program_with_binary,
        create_program_with_source, get_program_build_data, get_program_info,
    },
};
use phynexus::gpu::{DiskCache, NotCompiled};

use crate::{
    driver::platforms,
    figures::{Figures, text},
    object::{Code, Object},
};

/// Compiles programs for one device.
pub(crate) struct Compiler {
    /// The device's name, for errors.
    name: String,
    figures: Figures,
    /// For kernels that the engine prints, and for sources that users write.
    printed: Options,
    written: Options,
    cache: DiskCache,
}

struct Options {
    list: CString,
    /// Device, driver and options: what machine code depends on besides the source.
    version: String,
}

/// The language's version, and divisions as the operations say where the device can; nothing that trades accuracy.
const PRINTED: [&CStr; 2] = [c"-cl-std=CL1.2", c"-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt"];
/// The driver's own defaults; what it keeps of the parameters is compared with the signature.
const WRITTEN: &CStr = c"-cl-kernel-arg-info";

impl Compiler {
    pub(crate) fn new(name: &str, figures: Figures) -> Compiler {
        let [device, driver] = [CL_DEVICE_VERSION, CL_DRIVER_VERSION].map(|what| figures.text(what));
        let options = |list: &CStr| Options {
            list: list.to_owned(),
            version: format!("{} | {device} | {driver} | {}", figures.model(), list.to_string_lossy()),
        };
        let (printed, written) = (options(PRINTED[usize::from(figures.divides_exactly())]), options(WRITTEN));
        let cache = DiskCache::new("opencl", "RNN_OPENCL_CACHE_PATH");
        Compiler { name: name.to_owned(), figures, printed, written, cache }
    }

    /// The program of a printed kernel, from the disk or compiled.
    ///
    /// # Errors
    /// The compiler's messages, or its failure.
    pub(crate) fn compile(&self, context: &Object, source: &str) -> Result<Object, NotCompiled> {
        self.cached(context, source, &self.printed)
    }

    /// The program of a source that a user wrote.
    ///
    /// # Errors
    /// The compiler's messages, or its failure.
    pub(crate) fn compile_source(&self, context: &Object, source: &str) -> Result<Object, NotCompiled> {
        self.cached(context, source, &self.written)
    }

    fn cached(&self, context: &Object, source: &str, options: &Options) -> Result<Object, NotCompiled> {
        let mut built = None;
        let code = self.cache.get(&format!("{}\n{source}", options.version), || {
            let program = self.source(context, source, options)?;
            let code = code(&program);
            built = Some(program);
            Ok::<_, NotCompiled>(code)
        })?;
        match built {
            Some(program) => Ok(program),
            // A driver may refuse what it made itself.
            None => self.binary(context, &code, options).or_else(|_| self.source(context, source, options)),
        }
    }

    fn source(&self, context: &Object, source: &str, options: &Options) -> Result<Object, NotCompiled> {
        let reason = |code: Code, words: String| code.reason(&self.name, source.len(), words);
        let created = create_program_with_source(context.handle(), &[source]).map_err(Code);
        let handle = created.map_err(|code| reason(code, code.to_string()))?;
        // SAFETY: the program was just made.
        let program = unsafe { Object::program(handle) };
        self.build(&program, options).map_err(|code| {
            let log = get_program_build_data(handle, self.figures.device, CL_PROGRAM_BUILD_LOG);
            reason(code, format!("{code}:\n{}", text(&log.unwrap_or_default())))
        })?;
        Ok(program)
    }

    fn binary(&self, context: &Object, code: &[u8], options: &Options) -> Result<Object, Code> {
        // SAFETY: the device is the context's.
        let handle =
            unsafe { create_program_with_binary(context.handle(), &[self.figures.device], &[code]) }?;
        // SAFETY: the program was just made.
        let program = unsafe { Object::program(handle) };
        self.build(&program, options)?;
        Ok(program)
    }

    fn build(&self, program: &Object, options: &Options) -> Result<(), Code> {
        let devices = [self.figures.device];
        Ok(build_program(program.handle(), &devices, &options.list, None, ptr::null_mut())?)
    }
}

/// Compiles OpenCL C that a user wrote, for the first device of any platform; the program's binary.
///
/// # Errors
/// Outside, if there is no device to compile for: what is missing. Inside, the compiler's messages.
pub fn compile_source(source: &str) -> Result<Result<Vec<u8>, String>, String> {
    let mut found = platforms()?;
    found.sort_by_key(Figures::is_processor);
    let figures = found.into_iter().next().ok_or("no installed OpenCL platform has a device")?;
    let context = Object::context(figures.device).map_err(|code| format!("opening the device: {code}"))?;
    let compiler = Compiler::new("OpenCL", figures);
    let program = compiler.source(&context, source, &compiler.written);
    Ok(program.map(|program| code(&program)).map_err(|reason| reason.to_string()))
}

/// A program's machine code; nothing where the driver gives none, which is then refused and compiled again.
fn code(program: &Object) -> Vec<u8> {
    let all = get_program_info(program.handle(), CL_PROGRAM_BINARIES).map(|all| all.to_vec_vec_uchar());
    all.ok().and_then(|all| all.into_iter().next()).unwrap_or_default()
}
