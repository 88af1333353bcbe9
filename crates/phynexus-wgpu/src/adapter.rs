//! The GPUs that the APIs report.

use std::thread::available_parallelism;

use phynexus::{
    DType,
    device::{DeviceInfo, DeviceNature},
    kernel::{check::Limits, lower::Target, print::WgslArithmetic},
};
use wgpu::{Adapter, Backend, Backends, DeviceType, Features, Instance, InstanceDescriptor};

use crate::{
    float_controls::float_controls,
    future::wait_for,
    memory::memory,
    spirv::{DENORM_PRESERVE, FloatControl},
};

/// Required features: the first elements of buffers are passed in immediates.
pub(crate) const NEEDED: Features = Features::IMMEDIATES;

/// The features for timestamps between launches.
pub(crate) const TIMES: Features = Features::TIMESTAMP_QUERY.union(Features::TIMESTAMP_QUERY_INSIDE_ENCODERS);

/// Features that are used if available.
const USED: Features = Features::IMMEDIATES
    .union(Features::SHADER_INT64)
    .union(Features::SHADER_F64)
    .union(Features::SUBGROUP)
    .union(Features::PASSTHROUGH_SHADERS)
    .union(Features::PIPELINE_CACHE)
    .union(TIMES);

/// The adapters of these APIs.
pub(crate) fn adapters(backends: Backends) -> Vec<Adapter> {
    let instance =
        Instance::new(InstanceDescriptor { backends, ..InstanceDescriptor::new_without_display_handle() });
    wait_for(instance.enumerate_adapters(backends))
}

/// An adapter, and what is known about it before it is opened.
pub(crate) struct Found {
    pub(crate) adapter: Adapter,
    pub(crate) info: DeviceInfo,
    pub(crate) target: Target,
    /// The features to request.
    pub(crate) features: Features,
    /// The float behaviour that kernels request from a Vulkan driver.
    pub(crate) float_controls: Vec<FloatControl>,
    /// The parts of its arithmetic that are exact.
    pub(crate) arithmetic: WgslArithmetic,
}

/// What is known about an adapter, whose device gets this name.
pub(crate) fn describe(adapter: &Adapter, name: String) -> Found {
    let (about, limits) = (adapter.get_info(), adapter.limits());
    let features = adapter.features() & USED;
    let software = about.device_type == DeviceType::Cpu;
    let emulated = software || about.backend == Backend::Dx12 && is_wine();
    let words = [about.driver, about.driver_info];
    let info = DeviceInfo {
        name: name.clone(),
        model: about.name,
        nature: if emulated { DeviceNature::Emulator } else { DeviceNature::Hardware },
        compute_units: None,
        total_memory: memory(adapter).total,
        features: words.into_iter().filter(|word| !word.is_empty()).collect(),
    };
    let whole = |limit: u32| limit as usize;
    // Kernels must know how many invocations exchange values.
    let width = whole(about.subgroup_min_size);
    let fixed = about.subgroup_min_size == about.subgroup_max_size && width.is_power_of_two() && width > 1;
    let wide = features.contains(Features::SHADER_INT64);
    let has = |dtype: &DType| match dtype {
        DType::I64 | DType::U64 => wide,
        DType::F64 => wide && features.contains(Features::SHADER_F64),
        _ => true,
    };
    let bindings =
        limits.max_storage_buffers_per_shader_stage.min(limits.max_bindings_per_bind_group).min(64);
    let limits = Limits {
        device: name,
        // Immediates hold an `i32` per buffer, and one more.
        bindings: whole(bindings.min((limits.max_immediate_size / 4).saturating_sub(1))),
        shared_bytes: whole(limits.max_compute_workgroup_storage_size),
        block: [
            limits.max_compute_workgroup_size_x,
            limits.max_compute_workgroup_size_y,
            limits.max_compute_workgroup_size_z,
        ]
        .map(whole),
        block_size: whole(limits.max_compute_invocations_per_workgroup),
        grid: [whole(limits.max_compute_workgroups_per_dimension); 3],
        subgroup: (fixed && features.contains(Features::SUBGROUP)).then_some(width),
        dtypes: DType::ALL.into_iter().filter(has).collect(),
        matrices: Vec::new(),
        quads: false,
        async_copies: false,
        meeting_groups: 0,
    };
    // The APIs do not report a GPU's number of processors.
    let processors = if software { available_parallelism().map_or(1, usize::from) } else { 16 };
    let target = Target { limits, vector_bytes: 16, processors, sums: 64 };
    let float_controls = float_controls(adapter);
    // No API guarantees exact division, and subnormal numbers only on request; a CPU has both.
    let keeps = FloatControl { mode: DENORM_PRESERVE, width: 32 };
    let subnormals = software || float_controls.contains(&keeps);
    let arithmetic = WgslArithmetic { divisions: software, subnormals };
    Found { adapter: adapter.clone(), info, target, features, float_controls, arithmetic }
}

/// Whether Wine runs this process. Its Direct3D adapters do not tell whether there is hardware.
fn is_wine() -> bool {
    #[cfg(windows)]
    {
        use libloading::os::windows::Library;
        let system = Library::open_already_loaded("ntdll.dll");
        // SAFETY: the function is looked up and not called.
        system.is_ok_and(|library| {
            unsafe { library.get::<unsafe extern "C" fn()>(b"wine_get_version") }.is_ok()
        })
    }
    #[cfg(not(windows))]
    false
}

#[cfg(test)]
mod tests;
