//! The GPUs that DXGI reports.

use std::{cmp::Reverse, ffi::c_void, thread::available_parallelism};

use libloading::os::windows::Library;
use phynexus::{
    DType,
    device::{DeviceInfo, DeviceNature},
    kernel::{check::Limits, lower::Target, print::WgslArithmetic},
};
use windows::{
    Win32::{
        AI::MachineLearning::DirectML::{
            DML_FEATURE, DML_FEATURE_DATA_FEATURE_LEVELS, DML_FEATURE_DATA_TENSOR_DATA_TYPE_SUPPORT,
            DML_FEATURE_FEATURE_LEVELS, DML_FEATURE_LEVEL, DML_FEATURE_QUERY_FEATURE_LEVELS,
            DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT, DML_FEATURE_TENSOR_DATA_TYPE_SUPPORT,
            DML_TENSOR_DATA_TYPE_FLOAT16, IDMLDevice,
        },
        Foundation::LUID,
        Graphics::{
            Direct3D::{
                D3D_FEATURE_LEVEL, D3D_FEATURE_LEVEL_11_0, D3D_FEATURE_LEVEL_11_1, D3D_FEATURE_LEVEL_12_0,
                D3D_FEATURE_LEVEL_12_1, D3D_FEATURE_LEVEL_12_2,
            },
            Direct3D12::{
                D3D_SHADER_MODEL, D3D_SHADER_MODEL_5_1, D3D_SHADER_MODEL_6_0, D3D12_FEATURE,
                D3D12_FEATURE_D3D12_OPTIONS1, D3D12_FEATURE_D3D12_OPTIONS4,
                D3D12_FEATURE_DATA_D3D12_OPTIONS1, D3D12_FEATURE_DATA_D3D12_OPTIONS4,
                D3D12_FEATURE_DATA_FEATURE_LEVELS, D3D12_FEATURE_DATA_SHADER_MODEL,
                D3D12_FEATURE_FEATURE_LEVELS, D3D12_FEATURE_SHADER_MODEL, ID3D12Device,
            },
            Dxgi::{
                DXGI_ADAPTER_DESC1, DXGI_ADAPTER_FLAG_SOFTWARE, DXGI_GPU_PREFERENCE_HIGH_PERFORMANCE,
                DXGI_MEMORY_SEGMENT_GROUP_LOCAL, DXGI_QUERY_VIDEO_MEMORY_INFO, IDXGIAdapter1, IDXGIAdapter3,
                IDXGIDevice, IDXGIFactory1, IDXGIFactory4, IDXGIFactory6,
            },
        },
    },
    core::{Interface, Result},
};

use crate::{libraries::Libraries, object::BUFFERS};

/// The vendor and device numbers of WARP, which older versions of Windows do not mark as software.
const WARP: (u32, u32) = (0x1414, 0x8c);
/// DirectML's feature levels, up to the newest.
const LEVELS: [i32; 15] = [
    0x1000, 0x2000, 0x2100, 0x3000, 0x3100, 0x4000, 0x4100, 0x5000, 0x5100, 0x5200, 0x6000, 0x6100, 0x6200,
    0x6300, 0x6400,
];

/// An adapter, and what is known about it.
pub(crate) struct Found {
    pub(crate) adapter: IDXGIAdapter1,
    /// Its number while Windows runs.
    luid: LUID,
    pub(crate) info: DeviceInfo,
    pub(crate) target: Target,
    /// Whether kernels are compiled by DXC. Otherwise the older compiler is used.
    pub(crate) dxc: bool,
    /// The parts of its arithmetic that are exact.
    pub(crate) arithmetic: WgslArithmetic,
    /// Whether it computes with 16-bit numbers.
    pub(crate) half: bool,
}

impl Found {
    /// Opens the device. An adapter that was removed must be looked up again.
    pub(crate) fn open(&self, libraries: &Libraries) -> Result<ID3D12Device> {
        libraries.device(&self.adapter).or_else(|error| {
            let factory = libraries.factory()?.cast::<IDXGIFactory4>()?;
            // SAFETY: a number without an adapter is an error.
            let again: Result<IDXGIAdapter1> = unsafe { factory.EnumAdapterByLuid(self.luid) };
            again.and_then(|adapter| libraries.device(&adapter)).map_err(|_| error)
        })
    }
}

/// All adapters: hardware first, and of that the one with the most memory of its own first.
pub(crate) fn adapters(libraries: &Libraries) -> Result<Vec<(IDXGIAdapter1, DXGI_ADAPTER_DESC1)>> {
    let factory = libraries.factory()?;
    let preferring = factory.cast::<IDXGIFactory6>().ok();
    let mut found = Vec::new();
    for number in 0.. {
        let Ok(adapter) = adapter(&factory, preferring.as_ref(), number) else { break };
        // SAFETY: the call has no preconditions.
        let about = unsafe { adapter.GetDesc1() }?;
        found.push((adapter, about));
    }
    found.sort_by_key(|(_, about)| (is_software(about), Reverse(about.DedicatedVideoMemory)));
    Ok(found)
}

fn adapter(
    factory: &IDXGIFactory1,
    preferring: Option<&IDXGIFactory6>,
    number: u32,
) -> Result<IDXGIAdapter1> {
    // SAFETY: a number without an adapter is an error.
    unsafe {
        match preferring {
            Some(factory) => factory.EnumAdapterByGpuPreference(number, DXGI_GPU_PREFERENCE_HIGH_PERFORMANCE),
            None => factory.EnumAdapters1(number),
        }
    }
}

fn is_software(about: &DXGI_ADAPTER_DESC1) -> bool {
    let flagged = about.Flags & DXGI_ADAPTER_FLAG_SOFTWARE.0 as u32 != 0;
    flagged || (about.VendorId, about.DeviceId) == WARP
}

/// Wine's version, if Wine runs this process.
fn wine() -> Option<String> {
    use std::ffi::{CStr, c_char};
    let library = Library::open_already_loaded("ntdll.dll").ok()?;
    // SAFETY: Wine's function has this type and returns a constant; Windows has none of this name.
    unsafe {
        let version = library.get::<unsafe extern "C" fn() -> *const c_char>(b"wine_get_version").ok()?;
        Some(CStr::from_ptr(version()).to_string_lossy().into_owned())
    }
}

/// What is known about an adapter, whose device gets this name.
///
/// # Errors
/// The reason why the adapter cannot be used.
pub(crate) fn describe(
    libraries: &Libraries,
    adapter: IDXGIAdapter1,
    about: &DXGI_ADAPTER_DESC1,
    name: String,
) -> std::result::Result<Found, String> {
    let device: ID3D12Device =
        libraries.device(&adapter).map_err(|error| format!("there is no Direct3D 12 device: {error}"))?;
    let directml: IDMLDevice =
        libraries.directml(&device).map_err(|error| format!("there is no DirectML device: {error}"))?;
    let wine = wine();
    // Under Wine, neither the adapter's name nor its flags tell whether there is hardware.
    let emulated = is_software(about) || wine.is_some();
    let model = shader_model(&device);
    let dxc = model.0 >= D3D_SHADER_MODEL_6_0.0 && libraries.dxc::<windows::core::IUnknown>().is_some();
    let waves = options(&device);
    let text = String::from_utf16_lossy(&about.Description);
    let mib = |bytes: usize| bytes >> 20;
    let mut features = vec![
        format!("vendor {:#06x}", about.VendorId),
        format!("device {:#06x}", about.DeviceId),
        format!("{} MiB dedicated", mib(about.DedicatedVideoMemory)),
        format!("{} MiB shared", mib(about.SharedSystemMemory)),
    ];
    features.extend(driver_version(&adapter).map(|version| format!("driver {version}")));
    features.extend(feature_level(&device).map(|level| format!("feature level {}", dotted(level.0, 12))));
    features.push(format!("shader model {}", dotted(model.0, 4)));
    features.extend(directml_level(&directml).map(|level| format!("DirectML {}", dotted(level, 12))));
    if has_half(&directml) {
        features.push("float16".to_owned());
    }
    features.push(if dxc { "DXC" } else { "D3DCompile" }.to_owned());
    if is_software(about) {
        features.push("software".to_owned());
    }
    features.extend(wine.map(|version| format!("Wine {version}, whose adapters have made-up names")));
    let memory =
        if about.DedicatedVideoMemory > 0 { about.DedicatedVideoMemory } else { about.SharedSystemMemory };
    let info = DeviceInfo {
        name: name.clone(),
        model: text.split('\0').next().unwrap_or_default().to_owned(),
        nature: if emulated { DeviceNature::Emulator } else { DeviceNature::Hardware },
        compute_units: None,
        total_memory: Some(memory as u64),
        features,
    };
    // Kernels must know how many invocations exchange values.
    let width = waves.WaveLaneCountMin as usize;
    let fixed = waves.WaveOps.as_bool() && waves.WaveLaneCountMin == waves.WaveLaneCountMax;
    let wide = dxc && waves.Int64ShaderOps.as_bool();
    let has = |dtype: &DType| match dtype {
        DType::I64 | DType::U64 => wide,
        // Functions of 64-bit floats are computed with 32 bits in HLSL.
        DType::F64 => false,
        _ => true,
    };
    let limits = Limits {
        device: name,
        bindings: BUFFERS,
        shared_bytes: 32 << 10,
        block: [1024, 1024, 64],
        block_size: 1024,
        grid: [65535; 3],
        subgroup: (dxc && fixed && width.is_power_of_two() && width > 1).then_some(width),
        dtypes: DType::ALL.into_iter().filter(has).collect(),
        matrices: Vec::new(),
        quads: false,
        async_copies: false,
        meeting_groups: 0,
    };
    // Direct3D does not report a GPU's number of processors.
    let processors = if emulated { available_parallelism().map_or(1, usize::from) } else { 16 };
    let target = Target { limits, vector_bytes: 16, processors, sums: 64 };
    // Direct3D guarantees neither exact division nor subnormal numbers; a CPU has both.
    let mut narrow = D3D12_FEATURE_DATA_D3D12_OPTIONS4::default();
    let half = ask(&device, D3D12_FEATURE_D3D12_OPTIONS4, &mut narrow).is_ok()
        && narrow.Native16BitShaderOpsSupported.as_bool();
    let arithmetic = WgslArithmetic { divisions: emulated, subnormals: emulated };
    Ok(Found { adapter, luid: about.AdapterLuid, info, target, dxc, arithmetic, half })
}

/// Free memory in bytes, if DXGI reports it: the part of the process's budget that it does not use.
pub(crate) fn available_memory(adapter: &IDXGIAdapter1) -> Option<u64> {
    let mut info = DXGI_QUERY_VIDEO_MEMORY_INFO::default();
    let adapter = adapter.cast::<IDXGIAdapter3>().ok()?;
    // SAFETY: the pointer is valid during the call.
    unsafe { adapter.QueryVideoMemoryInfo(0, DXGI_MEMORY_SEGMENT_GROUP_LOCAL, &mut info) }.ok()?;
    (info.Budget > 0).then(|| info.Budget.saturating_sub(info.CurrentUsage))
}

/// A number whose major and minor parts begin at this bit and four bits below it.
fn dotted(number: i32, shift: u32) -> String {
    format!("{}.{}", number >> shift, number >> (shift - 4) & 15)
}

fn driver_version(adapter: &IDXGIAdapter1) -> Option<String> {
    // SAFETY: the pointer is valid during the call.
    let version = unsafe { adapter.CheckInterfaceSupport(&IDXGIDevice::IID) }.ok()?;
    let part = |at: u32| version >> (16 * at) & 0xffff;
    Some(format!("{}.{}.{}.{}", part(3), part(2), part(1), part(0)))
}

/// Asks for a feature; `data` has the structure that belongs to it.
fn ask<T>(device: &ID3D12Device, feature: D3D12_FEATURE, data: &mut T) -> Result<()> {
    let (pointer, bytes) = (std::ptr::from_mut(data).cast::<c_void>(), size_of::<T>() as u32);
    // SAFETY: the structure is valid during the call, which checks its size.
    unsafe { device.CheckFeatureSupport(feature, pointer, bytes) }
}

fn feature_level(device: &ID3D12Device) -> Option<D3D_FEATURE_LEVEL> {
    let levels = [
        D3D_FEATURE_LEVEL_11_0,
        D3D_FEATURE_LEVEL_11_1,
        D3D_FEATURE_LEVEL_12_0,
        D3D_FEATURE_LEVEL_12_1,
        D3D_FEATURE_LEVEL_12_2,
    ];
    let mut data = D3D12_FEATURE_DATA_FEATURE_LEVELS {
        NumFeatureLevels: levels.len() as u32,
        pFeatureLevelsRequested: levels.as_ptr(),
        ..Default::default()
    };
    ask(device, D3D12_FEATURE_FEATURE_LEVELS, &mut data).ok()?;
    Some(data.MaxSupportedFeatureLevel)
}

/// The highest shader model of those that the crate knows.
fn shader_model(device: &ID3D12Device) -> D3D_SHADER_MODEL {
    // A runtime refuses the question for a model that it does not know.
    for minor in (0..=6).rev() {
        let mut data = D3D12_FEATURE_DATA_SHADER_MODEL { HighestShaderModel: D3D_SHADER_MODEL(0x60 + minor) };
        if ask(device, D3D12_FEATURE_SHADER_MODEL, &mut data).is_ok() {
            return data.HighestShaderModel;
        }
    }
    D3D_SHADER_MODEL_5_1
}

fn options(device: &ID3D12Device) -> D3D12_FEATURE_DATA_D3D12_OPTIONS1 {
    let mut data = D3D12_FEATURE_DATA_D3D12_OPTIONS1::default();
    // An older runtime has none of them.
    let _ = ask(device, D3D12_FEATURE_D3D12_OPTIONS1, &mut data);
    data
}

/// Asks DirectML for a feature; `query` and the answer have the structures that belong to it.
fn ask_directml<Q, T: Default>(directml: &IDMLDevice, feature: DML_FEATURE, query: &Q) -> Option<T> {
    let mut data = T::default();
    let (asked, got) = (size_of::<Q>() as u32, size_of::<T>() as u32);
    // SAFETY: both structures are valid during the call, which checks their sizes.
    unsafe {
        let (query, data) = (std::ptr::from_ref(query).cast(), std::ptr::from_mut(&mut data).cast());
        directml.CheckFeatureSupport(feature, asked, Some(query), got, data)
    }
    .ok()?;
    Some(data)
}

/// DirectML's highest feature level.
fn directml_level(directml: &IDMLDevice) -> Option<i32> {
    let levels = LEVELS.map(DML_FEATURE_LEVEL);
    let query = DML_FEATURE_QUERY_FEATURE_LEVELS {
        RequestedFeatureLevelCount: levels.len() as u32,
        RequestedFeatureLevels: levels.as_ptr(),
    };
    let data: DML_FEATURE_DATA_FEATURE_LEVELS = ask_directml(directml, DML_FEATURE_FEATURE_LEVELS, &query)?;
    Some(data.MaxSupportedFeatureLevel.0)
}

/// Whether DirectML computes in float16.
fn has_half(directml: &IDMLDevice) -> bool {
    let query = DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT { DataType: DML_TENSOR_DATA_TYPE_FLOAT16 };
    let data: Option<DML_FEATURE_DATA_TENSOR_DATA_TYPE_SUPPORT> =
        ask_directml(directml, DML_FEATURE_TENSOR_DATA_TYPE_SUPPORT, &query);
    data.is_some_and(|data| data.IsSupported.as_bool())
}
