//! LiteRT's C API (`litert/c/*.h` of LiteRT 2.3.0), as far as it is used.

use std::{
    ffi::{CString, c_char, c_int, c_void},
    path::Path,
    ptr,
};

use crate::{
    Error, Result,
    library::{functions, text},
    tflite::{Kind, Port},
};

/// A handle of LiteRT.
type Handle = *mut c_void;

/// `LiteRtEnvOption`.
#[repr(C)]
pub(crate) struct EnvironmentOption {
    tag: c_int,
    value: Any,
}

/// `LiteRtAny`.
#[repr(C)]
struct Any {
    kind: c_int,
    value: OptionValue,
}

// As `litert_environment_options.h` asserts.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<EnvironmentOption>() == 24);

/// The value of a `LiteRtAny`.
#[repr(C)]
union OptionValue {
    integer: i64,
    text: *const c_char,
}

/// `kLiteRtAnyTypeInt`.
const INTEGER: c_int = 2;
/// `kLiteRtAnyTypeString`.
const STRING: c_int = 8;
/// The tags of options of an environment.
mod tag {
    pub(super) const DISPATCH_FOLDER: i32 = 1;
    pub(super) const ACCELERATORS: i32 = 24;
    pub(super) const LEAST_SEVERITY: i32 = 25;
}
/// The severity of messages that LiteRT prints: errors, not each step.
const ERRORS: i64 = 3;

/// `LiteRtLayout`: the rank in seven bits, whether there are strides, the extents and strides.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    rank: u8,
    extents: [i32; 8],
    strides: [u32; 8],
}

/// `LiteRtRankedTensorType`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct TensorType {
    element: c_int,
    layout: Layout,
}

functions! {
    /// LiteRT's functions.
    Functions {
        LiteRtCreateEnvironment: fn(c_int, *const EnvironmentOption, *mut Handle) -> c_int;
        LiteRtDestroyEnvironment: fn(Handle);
        LiteRtCreateModelFromBuffer: fn(Handle, *const c_void, usize, *mut Handle) -> c_int;
        LiteRtDestroyModel: fn(Handle);
        LiteRtGetMainModelSubgraphIndex: fn(Handle, *mut usize) -> c_int;
        LiteRtGetModelSubgraph: fn(Handle, usize, *mut Handle) -> c_int;
        LiteRtGetNumSubgraphOps: fn(Handle, *mut usize) -> c_int;
        LiteRtGetSubgraphOp: fn(Handle, usize, *mut Handle) -> c_int;
        LiteRtGetNumOpOutputs: fn(Handle, *mut usize) -> c_int;
        LiteRtGetOpOutput: fn(Handle, usize, *mut Handle) -> c_int;
        LiteRtGetOpCode: fn(Handle, *mut c_int) -> c_int;
        LiteRtGetTensorName: fn(Handle, *mut *const c_char) -> c_int;
        LiteRtCreateOptions: fn(*mut Handle) -> c_int;
        LiteRtDestroyOptions: fn(Handle);
        LiteRtSetOptionsHardwareAccelerators: fn(Handle, c_int) -> c_int;
        LiteRtCreateCompiledModel: fn(Handle, Handle, Handle, *mut Handle) -> c_int;
        LiteRtDestroyCompiledModel: fn(Handle);
        LiteRtGetCompiledModelInputBufferRequirements: fn(Handle, usize, usize, *mut Handle) -> c_int;
        LiteRtGetCompiledModelOutputBufferRequirements: fn(Handle, usize, usize, *mut Handle) -> c_int;
        LiteRtCreateManagedTensorBufferFromRequirements: fn(Handle, *const TensorType, Handle, *mut Handle) -> c_int;
        LiteRtDestroyTensorBuffer: fn(Handle);
        LiteRtGetTensorBufferSize: fn(Handle, *mut usize) -> c_int;
        LiteRtLockTensorBuffer: fn(Handle, *mut Handle, c_int) -> c_int;
        LiteRtUnlockTensorBuffer: fn(Handle) -> c_int;
        LiteRtRunCompiledModel: fn(Handle, usize, usize, *mut Handle, usize, *mut Handle) -> c_int;
    }
}

/// The bits of `LiteRtHwAccelerators`.
pub(crate) mod accelerator {
    pub(crate) const CPU: i32 = 1;
    pub(crate) const NPU: i32 = 4;
}

/// Folders and options that a compilation needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    /// Bits of [`accelerator`].
    pub(crate) accelerators: i32,
    /// The folder of the library that runs what a vendor's compiler made.
    pub(crate) dispatch: Option<std::path::PathBuf>,
}

/// A network that LiteRT compiled, with what it lives on.
pub(crate) struct Compiled {
    functions: Functions,
    environment: Handle,
    model: Handle,
    options: Handle,
    compiled: Handle,
    inputs: Vec<Handle>,
    outputs: Vec<Handle>,
    /// The file, which the model reads, and the texts of the options.
    _file: Box<[u8]>,
    _texts: Vec<CString>,
}

// SAFETY: LiteRT's objects belong to no thread, and these are used only through `&mut`.
unsafe impl Send for Compiled {}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiled").finish_non_exhaustive()
    }
}

/// What is left of the graph after compiling: an operator's number in TFLite's schema and the name of its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) code: i32,
    pub(crate) output: String,
}

fn string(path: &Path) -> Result<CString> {
    let text = path.to_string_lossy().into_owned();
    CString::new(text).map_err(|_| Error::Invalid(format!("{} has a zero byte", path.display())))
}

impl Compiled {
    /// Compiles a file of TFLite.
    pub(crate) fn new(
        functions: Functions,
        file: Vec<u8>,
        ports: (&[Port], &[Port]),
        setup: &Setup,
    ) -> Result<Compiled> {
        let mut made = Compiled {
            functions,
            environment: ptr::null_mut(),
            model: ptr::null_mut(),
            options: ptr::null_mut(),
            compiled: ptr::null_mut(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            _file: file.into_boxed_slice(),
            _texts: Vec::new(),
        };
        // What was made when a later call fails is destroyed when `made` is dropped.
        made.create(setup)?;
        made.allocate(ports.0, true)?;
        made.allocate(ports.1, false)?;
        Ok(made)
    }

    fn check(&self, what: &str, status: c_int) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let message = format!("{what}: {} (status {status})", meaning(status));
        Err(Error::Runtime { runtime: "LiteRT".to_owned(), message })
    }

    fn create(&mut self, setup: &Setup) -> Result<()> {
        let integers = [(tag::ACCELERATORS, setup.accelerators.into()), (tag::LEAST_SEVERITY, ERRORS)];
        let integer = |(tag, integer)| {
            let value = OptionValue { integer };
            EnvironmentOption { tag, value: Any { kind: INTEGER, value } }
        };
        let mut options: Vec<EnvironmentOption> = integers.into_iter().map(integer).collect();
        if let Some(folder) = &setup.dispatch {
            let folder = string(folder)?;
            let value = Any { kind: STRING, value: OptionValue { text: folder.as_ptr() } };
            options.push(EnvironmentOption { tag: tag::DISPATCH_FOLDER, value });
            self._texts.push(folder);
        }
        let f = self.functions;
        // SAFETY: the options and their strings outlive the environment; the handle is written on success.
        let status = unsafe {
            (f.LiteRtCreateEnvironment)(options.len() as c_int, options.as_ptr(), &mut self.environment)
        };
        self.check("an environment", status)?;
        // SAFETY: the file outlives the model.
        let status = unsafe {
            (f.LiteRtCreateModelFromBuffer)(
                self.environment,
                self._file.as_ptr().cast(),
                self._file.len(),
                &mut self.model,
            )
        };
        self.check("the file", status)?;
        // SAFETY: the handle is written on success.
        let status = unsafe { (f.LiteRtCreateOptions)(&mut self.options) };
        self.check("options", status)?;
        // SAFETY: the options are valid.
        let status = unsafe { (f.LiteRtSetOptionsHardwareAccelerators)(self.options, setup.accelerators) };
        self.check("options", status)?;
        // SAFETY: the environment, model and options are valid.
        let status = unsafe {
            (f.LiteRtCreateCompiledModel)(self.environment, self.model, self.options, &mut self.compiled)
        };
        self.check("compiling", status)
    }

    /// The operators of the model's main graph, after compiling.
    pub(crate) fn left(&self) -> Result<Vec<Left>> {
        let f = self.functions;
        let (mut index, mut graph, mut count) = (0, ptr::null_mut(), 0);
        // SAFETY: the model is valid, and owns the graph, the operators and the tensors that it names.
        let status = unsafe { (f.LiteRtGetMainModelSubgraphIndex)(self.model, &mut index) };
        self.check("the graph", status)?;
        // SAFETY: as above.
        let status = unsafe { (f.LiteRtGetModelSubgraph)(self.model, index, &mut graph) };
        self.check("the graph", status)?;
        // SAFETY: as above.
        let status = unsafe { (f.LiteRtGetNumSubgraphOps)(graph, &mut count) };
        self.check("the graph", status)?;
        let mut left = Vec::with_capacity(count);
        for at in 0..count {
            let (mut operator, mut code, mut outputs) = (ptr::null_mut(), 0, 0);
            // SAFETY: as above.
            let status = unsafe { (f.LiteRtGetSubgraphOp)(graph, at, &mut operator) };
            self.check("an operator", status)?;
            // SAFETY: as above.
            let status = unsafe { (f.LiteRtGetOpCode)(operator, &mut code) };
            self.check("an operator", status)?;
            // SAFETY: as above.
            let status = unsafe { (f.LiteRtGetNumOpOutputs)(operator, &mut outputs) };
            self.check("an operator", status)?;
            for output in 0..outputs {
                let (mut tensor, mut name) = (ptr::null_mut(), ptr::null());
                // SAFETY: as above.
                let status = unsafe { (f.LiteRtGetOpOutput)(operator, output, &mut tensor) };
                self.check("a result", status)?;
                // SAFETY: as above; the name belongs to the model.
                let status = unsafe { (f.LiteRtGetTensorName)(tensor, &mut name) };
                self.check("a result", status)?;
                // SAFETY: LiteRT returned a string.
                left.push(Left { code, output: unsafe { text(name) } });
            }
        }
        Ok(left)
    }

    fn allocate(&mut self, ports: &[Port], is_input: bool) -> Result<()> {
        let f = self.functions;
        for (at, port) in ports.iter().enumerate() {
            let (mut requirements, mut buffer) = (ptr::null_mut(), ptr::null_mut());
            let ask = match is_input {
                true => f.LiteRtGetCompiledModelInputBufferRequirements,
                false => f.LiteRtGetCompiledModelOutputBufferRequirements,
            };
            // SAFETY: the compiled model is valid and owns the requirements.
            self.check(&port.name, unsafe { ask(self.compiled, 0, at, &mut requirements) })?;
            let mut extents = [0; 8];
            if port.shape().len() > extents.len() {
                return Err(Error::Invalid(format!("{}: more than 8 dimensions", port.name)));
            }
            extents[..port.shape().len()].copy_from_slice(port.shape());
            let layout = Layout { rank: port.shape().len() as u8, extents, strides: [0; 8] };
            let tensor = TensorType { element: element(port.kind), layout };
            // SAFETY: the environment and the requirements are valid.
            let status = unsafe {
                let create = f.LiteRtCreateManagedTensorBufferFromRequirements;
                create(self.environment, &tensor, requirements, &mut buffer)
            };
            self.check(&port.name, status)?;
            if is_input { self.inputs.push(buffer) } else { self.outputs.push(buffer) }
        }
        Ok(())
    }

    /// The bytes of all inputs and outputs.
    pub(crate) fn buffer_bytes(&self) -> Result<usize> {
        let mut whole = 0;
        for &buffer in self.inputs.iter().chain(&self.outputs) {
            whole += self.size(buffer)?;
        }
        Ok(whole)
    }

    fn size(&self, buffer: Handle) -> Result<usize> {
        let mut size = 0;
        // SAFETY: the buffer is valid.
        let status = unsafe { (self.functions.LiteRtGetTensorBufferSize)(buffer, &mut size) };
        self.check("a buffer", status)?;
        Ok(size)
    }

    /// Calls `visit` with a buffer's bytes, for reading (0) or writing (1).
    fn locked<T>(&self, buffer: Handle, mode: c_int, visit: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        let size = self.size(buffer)?;
        let mut host = ptr::null_mut();
        // SAFETY: the buffer is valid.
        let status = unsafe { (self.functions.LiteRtLockTensorBuffer)(buffer, &mut host, mode) };
        self.check("a buffer", status)?;
        if host.is_null() {
            return Err(Error::Runtime { runtime: "LiteRT".to_owned(), message: "no memory".to_owned() });
        }
        // SAFETY: the buffer has this many bytes, which nothing else touches while it is locked.
        let result = visit(unsafe { std::slice::from_raw_parts_mut(host.cast(), size) });
        // SAFETY: the buffer is locked.
        self.check("a buffer", unsafe { (self.functions.LiteRtUnlockTensorBuffer)(buffer) })?;
        Ok(result)
    }

    /// Runs with these inputs' bytes, and returns the outputs'.
    pub(crate) fn run(&mut self, inputs: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        for (&buffer, bytes) in self.inputs.iter().zip(inputs) {
            let is_written = self.locked(buffer, 1, |host| match host.get_mut(..bytes.len()) {
                Some(host) => {
                    host.copy_from_slice(bytes);
                    true
                }
                None => false,
            })?;
            if !is_written {
                return Err(Error::Invalid("a buffer is smaller than the input".to_owned()));
            }
        }
        // SAFETY: the compiled model and the buffers are valid, and as many as the network has inputs and outputs.
        let status = unsafe {
            (self.functions.LiteRtRunCompiledModel)(
                self.compiled,
                0,
                self.inputs.len(),
                self.inputs.as_mut_ptr(),
                self.outputs.len(),
                self.outputs.as_mut_ptr(),
            )
        };
        self.check("running", status)?;
        self.outputs.iter().map(|&buffer| self.locked(buffer, 0, |host| host.to_vec())).collect()
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        let f = self.functions;
        // SAFETY: each handle was made by LiteRT or is null, is destroyed once, and what it needs still exists.
        unsafe {
            for buffer in self.inputs.drain(..).chain(self.outputs.drain(..)) {
                (f.LiteRtDestroyTensorBuffer)(buffer);
            }
            let parts = [
                (self.compiled, f.LiteRtDestroyCompiledModel),
                (self.options, f.LiteRtDestroyOptions),
                (self.model, f.LiteRtDestroyModel),
                (self.environment, f.LiteRtDestroyEnvironment),
            ];
            for (handle, destroy) in parts {
                if !handle.is_null() {
                    destroy(handle);
                }
            }
        }
    }
}

/// `LiteRtElementType`.
fn element(kind: Kind) -> c_int {
    match kind {
        Kind::F32 => 1,
        Kind::I32 => 2,
        Kind::I64 => 4,
        Kind::Bool => 6,
        Kind::I16 => 7,
        Kind::I8 => 9,
    }
}

/// What a `LiteRtStatus` means; the library exports no function that says so.
fn meaning(status: c_int) -> &'static str {
    match status {
        1 => "invalid argument",
        2 => "no memory",
        3 => "failure at run time",
        4 => "missing input tensor",
        5 => "unsupported",
        6 => "not found",
        8 => "wrong version",
        500 => "a file cannot be read or written",
        501 => "invalid file",
        502 => "a library cannot be loaded",
        503 => "serialization failed",
        504 => "compilation failed",
        1000..=1003 => "the graph is not valid",
        2000 | 2001 => "an operator cannot be legalized",
        4000..=4002 => "unsupported version of the runtime, the compiler or their code",
        _ => "unknown error",
    }
}
