//! From a loop tree to a pipeline.

use std::{
    ffi::CString,
    mem::ManuallyDrop,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr, slice,
    sync::Arc,
};

use naga::back::hlsl::ShaderModel;
use phynexus::{
    Error,
    gpu::{DiskCache, NotCompiled},
    kernel::{loops::Kernel, print::wgsl_workgroup_bytes},
};
use windows::{
    Win32::Graphics::{
        Direct3D::Dxc::{
            DXC_CP_UTF8, DXC_OUT_ERRORS, DXC_OUT_OBJECT, DxcBuffer, IDxcBlob, IDxcBlobUtf8, IDxcCompiler3,
            IDxcIncludeHandler, IDxcResult, IDxcVersionInfo,
        },
        Direct3D12::{
            D3D12_COMPUTE_PIPELINE_STATE_DESC, D3D12_ROOT_CONSTANTS, D3D12_ROOT_DESCRIPTOR,
            D3D12_ROOT_PARAMETER, D3D12_ROOT_PARAMETER_0, D3D12_ROOT_PARAMETER_TYPE_32BIT_CONSTANTS,
            D3D12_ROOT_PARAMETER_TYPE_UAV, D3D12_ROOT_SIGNATURE_DESC, D3D12_SHADER_BYTECODE,
            ID3D12RootSignature,
        },
    },
    core::{Interface, w},
};

use crate::{
    adapters::Found,
    connection::{Connection, Parts},
    hlsl::{Translated, translate},
    libraries::{Compile, Libraries, blob, blob_bytes},
    object::{BUFFERS, Held, Made, Pipeline},
};

/// The size of the largest buffer: kernels compute addresses as signed integers.
const LARGEST: usize = i32::MAX as usize;
/// The older compiler takes seconds for longer sources, and minutes for the longest.
const LONGEST: usize = 24 << 10;
/// Its flags: strict arithmetic, and the highest level of optimisation.
const STRICT: u32 = 1 << 13 | 1 << 15;

/// Refuses a kernel whose memory the device cannot bind.
pub(crate) fn accept(found: &Found, kernel: &Kernel) -> Result<(), NotCompiled> {
    let (needs, has) = (wgsl_workgroup_bytes(kernel), found.target.limits.shared_bytes);
    if needs > has {
        let name = &kernel.name;
        return Err(
            format!("kernel {name} needs {needs} bytes of shared memory, but a group has {has}").into()
        );
    }
    for buffer in &kernel.buffers {
        let bytes = buffer.length.saturating_mul(buffer.dtype.size());
        if bytes > LARGEST {
            return Err(format!("a buffer has {bytes} bytes, but a kernel can use at most {LARGEST}").into());
        }
    }
    Ok(())
}

/// The pipeline of a kernel.
pub(crate) fn compile(
    found: &Found,
    connection: &Connection,
    cache: &DiskCache,
    kernel: &Kernel,
    source: &str,
) -> Result<Arc<Pipeline>, NotCompiled> {
    let buffers = kernel.buffers.len();
    let made = code(found, cache, source).and_then(|code| {
        let made = pipeline(connection, buffers, &code)?;
        let pipeline = Arc::new(Pipeline { code, buffers, made: Held::new(made) });
        connection.holds(&pipeline)?;
        Ok(pipeline)
    });
    made.map_err(|reason| reason.doing(&format!("compiling kernel {}", kernel.name)))
}

/// The pipeline on this device, which may have been opened again since it was compiled.
pub(crate) fn made(connection: &Connection, pipeline: &Arc<Pipeline>) -> phynexus::Result<Made> {
    if let Some(made) = pipeline.made.get().filter(|made| made.connection == connection.number) {
        return Ok(made);
    }
    let made =
        self::pipeline(connection, pipeline.buffers, &pipeline.code).map_err(|reason| match reason {
            NotCompiled::Failed(error) => error,
            NotCompiled::Refused(message) => Error::Device { device: connection.name.clone(), message },
        })?;
    drop(pipeline.made.replace(made.clone()));
    connection.holds(pipeline)?;
    Ok(made)
}

/// The machine-independent code of a kernel, from the disk or the compiler.
fn code(found: &Found, cache: &DiskCache, source: &str) -> Result<Vec<u8>, NotCompiled> {
    let libraries = Libraries::get()?;
    match (libraries.dxc::<IDxcCompiler3>().filter(|_| found.dxc), libraries.compile) {
        (Some(dxc), _) => {
            let dxc = dxc.map_err(|error| format!("DXC: {error}"))?;
            let kernel = checked(source, ShaderModel::V6_0)?;
            let key = format!("{} {}\n{}", version(&dxc), kernel.entry, kernel.source);
            cache.get(&key, || with_dxc(&dxc, &kernel).map_err(NotCompiled::from))
        }
        (None, Some(compile)) => {
            let kernel = checked(source, ShaderModel::V5_1)?;
            let key = format!("d3dcompiler_47 {}\n{}", kernel.entry, kernel.source);
            cache.get(&key, || with_older(compile, &kernel).map_err(NotCompiled::from))
        }
        (None, None) => Err("neither dxcompiler.dll nor d3dcompiler_47.dll was found".to_owned().into()),
    }
}

/// A panic of the translator must only fail this kernel.
fn checked(source: &str, model: ShaderModel) -> Result<Translated, String> {
    let made = catch_unwind(AssertUnwindSafe(|| translate(source, model)));
    made.unwrap_or_else(|_| Err("its translation panicked".to_owned()))
}

/// DXC's version.
fn version(dxc: &IDxcCompiler3) -> String {
    let (mut major, mut minor) = (0, 0);
    if let Ok(info) = dxc.cast::<IDxcVersionInfo>() {
        // SAFETY: the pointers are valid during the call. Without an answer, the version is 0.0.
        let _ = unsafe { info.GetVersion(&mut major, &mut minor) };
    }
    format!("dxc {major}.{minor}")
}

fn with_dxc(dxc: &IDxcCompiler3, kernel: &Translated) -> Result<Vec<u8>, String> {
    let entry: Vec<u16> = kernel.entry.encode_utf16().chain([0]).collect();
    let entry = windows::core::PCWSTR(entry.as_ptr());
    let source = &kernel.source;
    let buffer = DxcBuffer { Ptr: source.as_ptr().cast(), Size: source.len(), Encoding: DXC_CP_UTF8.0 };
    // Strict arithmetic, without warnings.
    let arguments =
        [w!("-E"), entry, w!("-T"), w!("cs_6_0"), w!("-HV"), w!("2018"), w!("-Gis"), w!("-no-warnings")];
    let failed = |error: windows::core::Error| format!("DXC: {error}");
    // SAFETY: the source and the arguments are valid during the call.
    let result: IDxcResult =
        unsafe { dxc.Compile(&buffer, Some(&arguments), None::<&IDxcIncludeHandler>) }.map_err(failed)?;
    // SAFETY: the call has no preconditions.
    let status = unsafe { result.GetStatus() }.map_err(failed)?;
    if status.is_err() {
        let mut messages: Option<IDxcBlobUtf8> = None;
        // SAFETY: the pointers are valid during the call. The text belongs to the object.
        let text = unsafe {
            result.GetOutput(DXC_OUT_ERRORS, &mut None, &mut messages).map_err(failed)?;
            messages
                .map(|text| slice::from_raw_parts(text.GetStringPointer().0, text.GetStringLength()).to_vec())
        };
        return Err(first_line(&text.unwrap_or_default()));
    }
    let mut code: Option<IDxcBlob> = None;
    // SAFETY: as above.
    unsafe {
        result.GetOutput(DXC_OUT_OBJECT, &mut None, &mut code).map_err(failed)?;
        let code = code.ok_or("DXC returned no code")?;
        Ok(slice::from_raw_parts(code.GetBufferPointer().cast(), code.GetBufferSize()).to_vec())
    }
}

fn with_older(compile: Compile, kernel: &Translated) -> Result<Vec<u8>, String> {
    let source = &kernel.source;
    if source.len() > LONGEST {
        let length = source.len();
        return Err(format!("its source has {length} bytes, too many without dxcompiler.dll"));
    }
    let entry = CString::new(kernel.entry.as_str()).map_err(|_| "a kernel's name has a zero")?;
    let (mut made, mut messages) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the texts and pointers are valid during the call.
    let code = unsafe {
        compile(
            source.as_ptr(),
            source.len(),
            ptr::null(),
            ptr::null(),
            ptr::null(),
            entry.as_ptr().cast(),
            c"cs_5_1".as_ptr().cast(),
            STRICT,
            0,
            &mut made,
            &mut messages,
        )
    };
    let (made, messages) = (blob(made), blob(messages));
    match (code.ok(), made) {
        (Ok(()), Some(made)) => Ok(blob_bytes(&made)),
        (Ok(()), None) => Err("the compiler returned no code".to_owned()),
        (Err(error), _) => {
            Err(messages.map_or_else(|| error.to_string(), |text| first_line(&blob_bytes(&text))))
        }
    }
}

/// The first message of a compiler that is an error.
fn first_line(messages: &[u8]) -> String {
    let text = String::from_utf8_lossy(messages);
    let line = text.lines().find(|line| line.contains("error")).or(text.lines().next());
    line.unwrap_or("the compiler refuses it without a reason").trim_end_matches('\0').to_owned()
}

/// A root signature: the first elements of the buffers and a zero, then the buffers.
fn signature(
    connection: &Connection,
    parts: &Parts,
    buffers: usize,
) -> Result<ID3D12RootSignature, NotCompiled> {
    let known = parts.signatures.get(buffers);
    let known = known.ok_or_else(|| format!("it has {buffers} buffers, more than {BUFFERS}"))?;
    if let Some(known) = known.get() {
        return Ok(known.clone());
    }
    let constants = D3D12_ROOT_CONSTANTS { Num32BitValues: buffers as u32 + 1, ..Default::default() };
    let mut parameters = vec![D3D12_ROOT_PARAMETER {
        ParameterType: D3D12_ROOT_PARAMETER_TYPE_32BIT_CONSTANTS,
        Anonymous: D3D12_ROOT_PARAMETER_0 { Constants: constants },
        ..Default::default()
    }];
    parameters.extend((0..buffers).map(|at| {
        let register = D3D12_ROOT_DESCRIPTOR { ShaderRegister: at as u32, ..Default::default() };
        D3D12_ROOT_PARAMETER {
            ParameterType: D3D12_ROOT_PARAMETER_TYPE_UAV,
            Anonymous: D3D12_ROOT_PARAMETER_0 { Descriptor: register },
            ..Default::default()
        }
    }));
    let description = D3D12_ROOT_SIGNATURE_DESC {
        NumParameters: parameters.len() as u32,
        pParameters: parameters.as_ptr(),
        ..Default::default()
    };
    let failed = |error| connection.error("making a root signature", &error);
    let bytes = Libraries::get()?.root_signature(&description).map_err(failed)?;
    // SAFETY: the bytes are those of a root signature.
    let made = unsafe { parts.device.CreateRootSignature(0, &bytes) }.map_err(failed)?;
    Ok(known.get_or_init(|| made).clone())
}

fn pipeline(connection: &Connection, buffers: usize, code: &[u8]) -> Result<Made, NotCompiled> {
    let parts = connection.parts()?;
    let signature = signature(connection, &parts, buffers)?;
    let description = D3D12_COMPUTE_PIPELINE_STATE_DESC {
        pRootSignature: ManuallyDrop::new(Some(signature.clone())),
        CS: D3D12_SHADER_BYTECODE { pShaderBytecode: code.as_ptr().cast(), BytecodeLength: code.len() },
        ..Default::default()
    };
    // SAFETY: the description is valid during the call. The checker proved every access of the kernel in bounds, for
    // the numbers that a launch passes as arguments, and its loops end.
    let made = unsafe { parts.device.CreateComputePipelineState(&description) };
    // The description's reference.
    drop(ManuallyDrop::into_inner(description.pRootSignature));
    match made {
        Ok(state) => Ok(Made { state, signature, connection: connection.number }),
        // If the device is intact and memory suffices, the code was refused.
        Err(error) => Err(match connection.error("making a pipeline", &error) {
            Error::Device { message, .. } if connection.sound().is_ok() => message.into(),
            other => other.into(),
        }),
    }
}
