//! The float behaviour that can be requested from a Vulkan driver. wgpu does not report it, so Vulkan is queried
//! directly.

use wgpu::Adapter;

use crate::spirv::FloatControl;

/// The behaviour that the adapter's driver supports; empty unless it is a driver for Vulkan 1.2 or later.
#[cfg(any(windows, all(unix, not(target_vendor = "apple"))))]
pub(crate) fn float_controls(adapter: &Adapter) -> Vec<FloatControl> {
    use ash::vk;

    use crate::spirv::{DENORM_PRESERVE, ROUND_TO_EVEN, SIGNED_ZERO_INF_NAN_PRESERVE};

    // SAFETY: nothing of the adapter is destroyed or changed.
    let Some(raw) = (unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }) else { return Vec::new() };
    let instance = raw.shared_instance();
    let about = raw.physical_device_capabilities().properties();
    if instance.instance_api_version().min(about.api_version) < vk::API_VERSION_1_2 {
        return Vec::new();
    }
    let mut can = vk::PhysicalDeviceFloatControlsProperties::default();
    let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut can);
    // SAFETY: the physical device belongs to this instance, and both support the function and the structure.
    unsafe { instance.raw_instance().get_physical_device_properties2(raw.raw_physical_device(), &mut all) };
    let alike = |independence| independence == vk::ShaderFloatControlsIndependence::NONE;
    let each = [
        (
            DENORM_PRESERVE,
            [can.shader_denorm_preserve_float32, can.shader_denorm_preserve_float64],
            alike(can.denorm_behavior_independence),
        ),
        (
            ROUND_TO_EVEN,
            [can.shader_rounding_mode_rte_float32, can.shader_rounding_mode_rte_float64],
            alike(can.rounding_mode_independence),
        ),
        (
            SIGNED_ZERO_INF_NAN_PRESERVE,
            [
                can.shader_signed_zero_inf_nan_preserve_float32,
                can.shader_signed_zero_inf_nan_preserve_float64,
            ],
            false,
        ),
    ];
    let mut controls = Vec::new();
    for (mode, has, alike) in each {
        let has = has.map(|has| has == vk::TRUE);
        for (width, has_it) in [32, 64].into_iter().zip(has) {
            // If all widths must be set alike, request all or none.
            if has_it && (!alike || has == [true; 2]) {
                controls.push(FloatControl { mode, width });
            }
        }
    }
    controls
}

/// Without Vulkan.
#[cfg(not(any(windows, all(unix, not(target_vendor = "apple")))))]
pub(crate) fn float_controls(_: &Adapter) -> Vec<FloatControl> {
    Vec::new()
}
