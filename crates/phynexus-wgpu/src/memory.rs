//! The memory of a GPU. wgpu does not report it, so Vulkan is queried directly.

use wgpu::Adapter;

/// Memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryInfo {
    pub(crate) total: Option<u64>,
    /// Free memory, within the system's budget for this process.
    pub(crate) available: Option<u64>,
}

/// The memory of the device's own heaps. Empty if it is not a Vulkan device; `available` requires
/// `VK_EXT_memory_budget`.
#[cfg(any(windows, all(unix, not(target_vendor = "apple"))))]
pub(crate) fn memory(adapter: &Adapter) -> MemoryInfo {
    use ash::{ext::memory_budget, vk};

    // SAFETY: nothing of the adapter is destroyed or changed.
    let Some(raw) = (unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }) else {
        return MemoryInfo::default();
    };
    let (instance, device) = (raw.shared_instance(), raw.raw_physical_device());
    let about = raw.physical_device_capabilities();
    // SAFETY: the physical device belongs to this instance.
    let all = unsafe { instance.raw_instance().get_physical_device_memory_properties(device) };
    let heaps = || {
        let heaps = all.memory_heaps.iter().take(all.memory_heap_count as usize).enumerate();
        heaps.filter(|(_, heap)| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL))
    };
    let total = Some(heaps().map(|(_, heap)| heap.size).sum()).filter(|&total| total > 0);
    let version = instance.instance_api_version().min(about.properties().api_version);
    if version < vk::API_VERSION_1_1 || !about.supports_extension(memory_budget::NAME) {
        return MemoryInfo { total, available: None };
    }
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let mut asked = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
    // SAFETY: the physical device belongs to this instance, and both support the function and the structure.
    unsafe { instance.raw_instance().get_physical_device_memory_properties2(device, &mut asked) };
    let free = heaps().map(|(at, _)| budget.heap_budget[at].saturating_sub(budget.heap_usage[at]));
    MemoryInfo { total, available: Some(free.sum()) }
}

/// Without Vulkan.
#[cfg(not(any(windows, all(unix, not(target_vendor = "apple")))))]
pub(crate) fn memory(_: &Adapter) -> MemoryInfo {
    MemoryInfo::default()
}
