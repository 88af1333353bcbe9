//! Compiles OpenCL C to a program on a device.

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
use phynexus::gpu::{DiskCache, NotCompiled, may_include};

use crate::{
    figures::{Figures, text},
    object::{Code, Object},
    platforms::platforms,
};

/// Compiles programs for one device.
pub(crate) struct Compiler {
    /// The device's name, for error messages.
    name: String,
    figures: Figures,
    /// Options for kernels that the engine prints, and for user-written sources.
    printed: Options,
    written: Options,
    cache: DiskCache,
}

struct Options {
    list: CString,
    /// The device, driver and options: what machine code depends on besides the source.
    version: String,
}

/// The language version, and correctly rounded division if the device supports it; no option that trades accuracy for
/// speed. Without `-w`, NVIDIA's compiler prints the number of warnings to standard error.
const PRINTED: [&CStr; 2] = [c"-cl-std=CL1.2 -w", c"-cl-std=CL1.2 -w -cl-fp32-correctly-rounded-divide-sqrt"];
/// The driver's default options. The parameter information that they keep is compared with the signature.
const WRITTEN: &CStr = c"-cl-kernel-arg-info";

impl Options {
    /// The cache key of a source.
    fn key(&self, source: &str) -> String {
        format!("{}\n{source}", self.version)
    }
}

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

    /// Gets a printed kernel's program from the cache or compiles it, and applies `finish`. A program that `finish`
    /// refuses is not cached, and neither is any program of a driver that has its own cache.
    ///
    /// # Errors
    /// The compiler's messages, or a failure of the compiler itself; and those of `finish`.
    pub(crate) fn compile<T>(
        &self,
        context: &Object,
        source: &str,
        finish: impl Fn(&Object) -> Result<T, NotCompiled>,
    ) -> Result<T, NotCompiled> {
        if self.figures.keeps_kernels() {
            return finish(&self.compile_anew(context, source)?);
        }
        self.cached(context, &self.printed, &self.printed.key(source), source, finish)
    }

    /// Like [`compile`](Compiler::compile), for a user-written source. A different `signature` forces a new
    /// compilation, because a driver may report less about the parameters of a cached program.
    ///
    /// # Errors
    /// As for `compile`.
    pub(crate) fn compile_source<T>(
        &self,
        context: &Object,
        signature: &str,
        source: &str,
        finish: impl Fn(&Object) -> Result<T, NotCompiled>,
    ) -> Result<T, NotCompiled> {
        if may_include(source) {
            return finish(&self.source(context, source, &self.written)?);
        }
        let key = self.written.key(&format!("{signature}\n{source}"));
        self.cached(context, &self.written, &key, source, finish)
    }

    /// Compiles a program without the cache.
    ///
    /// # Errors
    /// The compiler's messages, or a failure of the compiler itself.
    pub(crate) fn compile_anew(&self, context: &Object, source: &str) -> Result<Object, NotCompiled> {
        self.source(context, source, &self.printed)
    }

    fn cached<T>(
        &self,
        context: &Object,
        options: &Options,
        key: &str,
        source: &str,
        finish: impl Fn(&Object) -> Result<T, NotCompiled>,
    ) -> Result<T, NotCompiled> {
        let make = || {
            let program = self.source(context, source, options)?;
            finish(&program).map(|made| (made, program))
        };
        let mut built = None;
        let code = self.cache.get(key, || {
            let (made, program) = make()?;
            built = Some(made);
            Ok::<_, NotCompiled>(code(&program))
        })?;
        if let Some(made) = built {
            return Ok(made);
        }
        let known = self.binary(context, &code, options).map_err(|code| NotCompiled::from(code.to_string()));
        // A driver may refuse its own binary.
        known.and_then(|program| finish(&program)).or_else(|_| make().map(|(made, _)| made))
    }

    fn source(&self, context: &Object, source: &str, options: &Options) -> Result<Object, NotCompiled> {
        let reason = |code: Code, words: String| code.reason(&self.name, source.len(), words);
        let created = create_program_with_source(context.handle(), &[source]).map_err(Code);
        let handle = created.map_err(|code| reason(code, code.to_string()))?;
        // SAFETY: the program was just created.
        let program = unsafe { Object::program(handle) };
        self.build(&program, options).map_err(|code| {
            let log = get_program_build_data(handle, self.figures.device, CL_PROGRAM_BUILD_LOG);
            reason(code, format!("{code}:\n{}", text(&log.unwrap_or_default())))
        })?;
        Ok(program)
    }

    fn binary(&self, context: &Object, code: &[u8], options: &Options) -> Result<Object, Code> {
        // SAFETY: the device belongs to the context.
        let handle =
            unsafe { create_program_with_binary(context.handle(), &[self.figures.device], &[code]) }?;
        // SAFETY: the program was just created.
        let program = unsafe { Object::program(handle) };
        self.build(&program, options)?;
        Ok(program)
    }

    fn build(&self, program: &Object, options: &Options) -> Result<(), Code> {
        let devices = [self.figures.device];
        Ok(build_program(program.handle(), &devices, &options.list, None, ptr::null_mut())?)
    }
}

/// Compiles user-written OpenCL C for the first device of any platform. Returns the program's binary.
///
/// # Errors
/// The outer error means that there is no device to compile for. The inner error holds the compiler's messages.
pub fn compile_source(source: &str) -> Result<Result<Vec<u8>, String>, String> {
    let mut found = platforms()?;
    found.sort_by_key(Figures::is_processor);
    let figures = found.into_iter().next().ok_or("no installed OpenCL platform has a device")?;
    let context = Object::context(figures.device).map_err(|code| format!("opening the device: {code}"))?;
    let compiler = Compiler::new("OpenCL", figures);
    let program = compiler.source(&context, source, &compiler.written);
    Ok(program.map(|program| code(&program)).map_err(|reason| reason.to_string()))
}

/// A program's machine code; empty if the driver provides none. An empty entry is refused later and compiled again.
fn code(program: &Object) -> Vec<u8> {
    let all = get_program_info(program.handle(), CL_PROGRAM_BINARIES).map(|all| all.to_vec_vec_uchar());
    all.ok().and_then(|all| all.into_iter().next()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    /// `cargo xtask test devices` runs it on PoCL.
    #[test]
    #[ignore = "needs an OpenCL device"]
    fn what_is_refused_after_it_was_compiled_is_not_kept() {
        let figures = platforms().expect("an OpenCL device").remove(0);
        let context = Object::context(figures.device).unwrap();
        let compiler = Compiler::new("OpenCL", figures);
        // A source that has never been compiled before.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
        let source = format!("__kernel void f(__global ulong* y) {{ y[0] = {now}; }}");
        let signature = "f(tensor)";
        let key = compiler.written.key(&format!("{signature}\n{source}"));
        let is_kept = || compiler.cache.get(&key, || Err(())).is_ok();
        let refuse = |_: &Object| Err::<(), _>(NotCompiled::Refused("another signature".to_owned()));
        let refused = compiler.compile_source(&context, signature, &source, refuse);
        assert!(matches!(refused, Err(NotCompiled::Refused(words)) if words == "another signature"));
        assert!(!is_kept());
        compiler.compile_source(&context, signature, &source, |_| Ok(())).unwrap();
        assert!(is_kept(), "expected a cache folder");
        // A cached program is checked again.
        assert!(compiler.compile_source(&context, signature, &source, refuse).is_err());
    }
}
