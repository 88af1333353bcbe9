//! Machine code of pipelines on disk, where the API gives it: on Vulkan.

use phynexus::gpu::{DiskCache, NotCompiled};
use wgpu::{Device, Features, PipelineCache, PipelineCacheDescriptor};

use crate::{adapter::Found, compile::Pipeline, connection::Connection};

/// A device's machine code.
pub(crate) struct Kept {
    disk: DiskCache,
    /// Device and driver: what machine code depends on besides the source.
    version: String,
}

impl Kept {
    /// Nothing if the API keeps its machine code to itself.
    pub(crate) fn new(found: &Found) -> Option<Kept> {
        found.features.contains(Features::PIPELINE_CACHE).then(|| {
            let about = found.adapter.get_info();
            let (name, driver, more) = (about.name, about.driver, about.driver_info);
            let version = format!("{name} | {:x}:{:x} | {driver} | {more}", about.vendor, about.device);
            Kept { disk: DiskCache::new("vulkan", "RNN_VULKAN_CACHE_PATH"), version }
        })
    }
}

impl Connection {
    /// The pipeline that `make` makes from a source, with machine code from the disk if it is there.
    ///
    /// # Errors
    /// As [`Connection::checked`], and those of `make`.
    pub(crate) fn pipeline(
        &self,
        source: &str,
        make: impl Fn(&Device, Option<&PipelineCache>) -> Result<Pipeline, String>,
    ) -> Result<Pipeline, NotCompiled> {
        let plain = || Ok::<_, NotCompiled>(self.checked(|device| make(device, None))??);
        let Some(kept) = self.kept() else { return plain() };
        let mut made = None;
        let code = kept.disk.get(&format!("{}\n{source}", kept.version), || {
            let (pipeline, code) = self.checked(|device| {
                let cache = cache(device, None);
                (make(device, Some(&cache)), cache.get_data())
            })?;
            made = Some(pipeline?);
            Ok::<_, NotCompiled>(code.unwrap_or_default())
        })?;
        match made {
            Some(pipeline) => Ok(pipeline),
            None => {
                let kept = self.checked(|device| make(device, Some(&cache(device, Some(&code)))));
                // A driver may refuse what it made itself.
                kept.and_then(|pipeline| Ok(pipeline?)).or_else(|_| plain())
            }
        }
    }
}

fn cache(device: &Device, data: Option<&[u8]>) -> PipelineCache {
    // SAFETY: the data are what another cache gave: they come with a hash of them, from a folder of this user's alone. What is
    // of another device or driver, wgpu and the driver leave aside.
    unsafe { device.create_pipeline_cache(&PipelineCacheDescriptor { label: None, data, fallback: true }) }
}
