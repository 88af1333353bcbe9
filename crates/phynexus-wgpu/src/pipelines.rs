//! Pipelines, with their machine code cached on disk if the API provides it, as Vulkan does.

use phynexus::gpu::{DiskCache, NotCompiled};
use wgpu::{BindGroupLayout, ComputePipeline, Device, Features, PipelineCache, PipelineCacheDescriptor};

use crate::{adapter::Found, connection::Connection};

/// A compiled kernel.
pub(crate) struct Pipeline {
    pub(crate) pipeline: ComputePipeline,
    pub(crate) layout: BindGroupLayout,
    /// The bindings that a user-written source declares; a printed kernel has one per buffer.
    pub(crate) bindings: Vec<u32>,
}

/// A device's cached machine code.
struct Kept {
    disk: DiskCache,
    /// The device and driver: what machine code depends on besides the source.
    version: String,
}

impl Kept {
    /// `None` if the API does not expose its machine code.
    fn new(found: &Found) -> Option<Kept> {
        found.features.contains(Features::PIPELINE_CACHE).then(|| {
            let about = found.adapter.get_info();
            let (name, driver, more) = (about.name, about.driver, about.driver_info);
            let version = format!("{name} | {:x}:{:x} | {driver} | {more}", about.vendor, about.device);
            Kept { disk: DiskCache::new("vulkan", "RNN_VULKAN_CACHE_PATH"), version }
        })
    }
}

/// Creates a device's pipelines.
pub(crate) struct Pipelines {
    kept: Option<Kept>,
}

impl Pipelines {
    pub(crate) fn new(found: &Found) -> Pipelines {
        Pipelines { kept: Kept::new(found) }
    }

    /// Creates the pipeline of `source` with `make`, using machine code from the cache if available.
    ///
    /// # Errors
    /// As for [`Connection::checked`], and those of `make`.
    pub(crate) fn make(
        &self,
        connection: &Connection,
        source: &str,
        make: impl Fn(&Device, Option<&PipelineCache>) -> Result<Pipeline, String>,
    ) -> Result<Pipeline, NotCompiled> {
        let plain = || Ok::<_, NotCompiled>(connection.checked(|device| make(device, None))??);
        let Some(kept) = &self.kept else { return plain() };
        let mut made = None;
        let code = kept.disk.get(&format!("{}\n{source}", kept.version), || {
            let (pipeline, code) = connection.checked(|device| {
                let cache = cache(device, None);
                (make(device, Some(&cache)), cache.get_data())
            })?;
            made = Some(pipeline?);
            Ok::<_, NotCompiled>(code.unwrap_or_default())
        })?;
        match made {
            Some(pipeline) => Ok(pipeline),
            None => {
                let kept = connection.checked(|device| make(device, Some(&cache(device, Some(&code)))));
                // A driver may refuse its own machine code.
                kept.and_then(|pipeline| Ok(pipeline?)).or_else(|_| plain())
            }
        }
    }
}

fn cache(device: &Device, data: Option<&[u8]>) -> PipelineCache {
    // SAFETY: the data come from another cache: they are stored with a hash, in a folder that only this user can
    // write to. wgpu and the driver ignore data of other devices or drivers.
    unsafe { device.create_pipeline_cache(&PipelineCacheDescriptor { label: None, data, fallback: true }) }
}
