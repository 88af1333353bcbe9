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
use phynexus::gpu::DiskCache;

use crate::{
    figures::{Figures, text},
    object::{Code, Object},
};

/// Compiles programs for one device.
pub(crate) struct Compiler {
    figures: Figures,
    options: CString,
    /// Device, driver and options: what machine code depends on besides the source.
    version: String,
    cache: DiskCache,
}

/// The language's version, and divisions as the operations say where the device can; nothing that trades accuracy.
const OPTIONS: [&CStr; 2] = [c"-cl-std=CL1.2", c"-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt"];

impl Compiler {
    pub(crate) fn new(figures: Figures) -> Compiler {
        let options = OPTIONS[usize::from(figures.divides_exactly())].to_owned();
        let [device, driver] = [CL_DEVICE_VERSION, CL_DRIVER_VERSION].map(|what| figures.text(what));
        let version = format!("{} | {device} | {driver} | {}", figures.model(), options.to_string_lossy());
        Compiler { figures, options, version, cache: DiskCache::new("opencl", "RNN_OPENCL_CACHE_PATH") }
    }

    /// The program of a source, from the disk or compiled.
    ///
    /// # Errors
    /// The compiler's messages.
    pub(crate) fn compile(&self, context: &Object, source: &str) -> Result<Object, String> {
        let mut built = None;
        let code = self.cache.get(&format!("{}\n{source}", self.version), || {
            let program = self.source(context, source)?;
            let code = code(&program);
            built = Some(program);
            Ok::<_, String>(code)
        })?;
        match built {
            Some(program) => Ok(program),
            // A driver may refuse what it made itself.
            None => self.binary(context, &code).or_else(|_| self.source(context, source)),
        }
    }

    fn source(&self, context: &Object, source: &str) -> Result<Object, String> {
        let words = |code| Code(code).to_string();
        let handle = create_program_with_source(context.handle(), &[source]).map_err(words)?;
        // SAFETY: the program was just made.
        let program = unsafe { Object::program(handle) };
        self.build(&program).map_err(|code| {
            let log = get_program_build_data(handle, self.figures.device, CL_PROGRAM_BUILD_LOG);
            format!("{code}: {}", text(&log.unwrap_or_default()))
        })?;
        Ok(program)
    }

    fn binary(&self, context: &Object, code: &[u8]) -> Result<Object, Code> {
        // SAFETY: the device is the context's.
        let handle =
            unsafe { create_program_with_binary(context.handle(), &[self.figures.device], &[code]) }?;
        // SAFETY: the program was just made.
        let program = unsafe { Object::program(handle) };
        self.build(&program)?;
        Ok(program)
    }

    fn build(&self, program: &Object) -> Result<(), Code> {
        let devices = [self.figures.device];
        Ok(build_program(program.handle(), &devices, &self.options, None, ptr::null_mut())?)
    }
}

/// A program's machine code; nothing where the driver gives none, which is then refused and compiled again.
fn code(program: &Object) -> Vec<u8> {
    let all = get_program_info(program.handle(), CL_PROGRAM_BINARIES).map(|all| all.to_vec_vec_uchar());
    all.ok().and_then(|all| all.into_iter().next()).unwrap_or_default()
}
