//! Descriptors, through which DirectML's shaders find their buffers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windows::{
    Win32::Graphics::Direct3D12::{
        D3D12_CPU_DESCRIPTOR_HANDLE, D3D12_DESCRIPTOR_HEAP_DESC, D3D12_DESCRIPTOR_HEAP_FLAG_SHADER_VISIBLE,
        D3D12_DESCRIPTOR_HEAP_TYPE_CBV_SRV_UAV, D3D12_GPU_DESCRIPTOR_HANDLE, ID3D12DescriptorHeap,
        ID3D12Device,
    },
    core::Result,
};

use crate::ranges::Ranges;

/// Descriptors of a heap. Heaps are shared, because a command list changes them at some cost.
const HEAP: u32 = 4096;

/// The heaps of a device.
#[derive(Default)]
pub(crate) struct Descriptors(Mutex<Vec<(ID3D12DescriptorHeap, Ranges)>>);

/// Descriptors in use. They must be kept until the device has finished what reads them.
pub(crate) struct Slots {
    pub(crate) heap: ID3D12DescriptorHeap,
    pub(crate) cpu: D3D12_CPU_DESCRIPTOR_HANDLE,
    pub(crate) gpu: D3D12_GPU_DESCRIPTOR_HANDLE,
    pub(crate) count: u32,
    first: u64,
    owner: Arc<Descriptors>,
}

impl Descriptors {
    fn lock(&self) -> MutexGuard<'_, Vec<(ID3D12DescriptorHeap, Ranges)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, count: u32) -> Option<(ID3D12DescriptorHeap, u64)> {
        let mut heaps = self.lock();
        heaps.iter_mut().find_map(|(heap, ranges)| Some((heap.clone(), ranges.take(count.into())?)))
    }

    /// So many neighbouring descriptors.
    pub(crate) fn take(self: &Arc<Descriptors>, device: &ID3D12Device, count: u32) -> Result<Slots> {
        let (heap, first) = loop {
            match self.find(count) {
                Some(found) => break found,
                None => {
                    let size = count.max(HEAP);
                    let heap = D3D12_DESCRIPTOR_HEAP_DESC {
                        Type: D3D12_DESCRIPTOR_HEAP_TYPE_CBV_SRV_UAV,
                        NumDescriptors: size,
                        Flags: D3D12_DESCRIPTOR_HEAP_FLAG_SHADER_VISIBLE,
                        ..Default::default()
                    };
                    // SAFETY: the description is valid during the call.
                    let heap = unsafe { device.CreateDescriptorHeap(&heap) }?;
                    self.lock().push((heap, Ranges::new(size.into())));
                }
            }
        };
        // SAFETY: the calls have no preconditions.
        let (mut cpu, mut gpu, step) = unsafe {
            let step = device.GetDescriptorHandleIncrementSize(D3D12_DESCRIPTOR_HEAP_TYPE_CBV_SRV_UAV);
            (heap.GetCPUDescriptorHandleForHeapStart(), heap.GetGPUDescriptorHandleForHeapStart(), step)
        };
        let before = first * u64::from(step);
        cpu.ptr += before as usize;
        gpu.ptr += before;
        Ok(Slots { heap, cpu, gpu, count, first, owner: self.clone() })
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let mut heaps = self.owner.lock();
        if let Some((_, ranges)) = heaps.iter_mut().find(|(heap, _)| *heap == self.heap) {
            ranges.give_back(self.first, self.count.into());
        }
    }
}

// SAFETY: Direct3D's heaps may be used from any thread.
unsafe impl Send for Descriptors {}
// SAFETY: as above.
unsafe impl Sync for Descriptors {}
// SAFETY: as above.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}
