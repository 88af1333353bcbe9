//! Memory on a GPU, cached by the engine's pool. All work is in the order of one stream, so that a block given back may
//! be handed out again before the kernels that used it have run.

use std::{any::Any, sync::Arc};

use cudarc::driver::{result, sys::CUdeviceptr};
use phynexus::{
    Error, Result,
    device::{Buffer, Memory, Pool},
};

use crate::context::Context;

/// A block of the driver's.
pub(crate) struct Block {
    address: CUdeviceptr,
    context: Arc<Context>,
}

impl Block {
    /// A block of so many bytes, or nothing if the device has none.
    pub(crate) fn new(context: &Arc<Context>, bytes: usize) -> Option<Block> {
        context.bind().ok()?;
        // SAFETY: the context is current; the address is used through this block only.
        let address = unsafe { result::malloc_sync(bytes) }.ok()?;
        Some(Block { address, context: context.clone() })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // Freeing waits for kernels that still use the block. A failure leaves it allocated.
        if self.context.bind().is_ok() {
            // SAFETY: the address came from the same context and nobody else has it.
            let _ = unsafe { result::free_sync(self.address) };
        }
    }
}

/// A block in use; it goes back to the pool when dropped.
pub(crate) struct CudaMemory {
    block: Option<Block>,
    bytes: usize,
    pool: Arc<Pool<Block>>,
}

impl CudaMemory {
    /// So many bytes from the pool.
    pub(crate) fn new(context: &Arc<Context>, pool: &Arc<Pool<Block>>, bytes: usize) -> Result<CudaMemory> {
        let block = pool.allocate(bytes, |class| Block::new(context, class))?;
        Ok(CudaMemory { block: Some(block), bytes, pool: pool.clone() })
    }

    /// The address on the device.
    pub(crate) fn address(&self) -> CUdeviceptr {
        self.block.as_ref().map_or(0, |block| block.address)
    }
}

impl Memory for CudaMemory {
    fn size(&self) -> usize {
        self.bytes
    }
    fn host_pointer(&self) -> Option<*mut u8> {
        None
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.pool.release(self.bytes, block);
        }
    }
}

/// The address of a part of a buffer of this device.
pub(crate) fn address(
    context: &Context,
    buffer: &Buffer,
    offset: usize,
    bytes: usize,
) -> Result<CUdeviceptr> {
    let wrong = |message: String| Err(Error::internal("phynexus_cuda", message));
    let Some(memory) = buffer.0.as_any().downcast_ref::<CudaMemory>() else {
        return wrong(format!("a buffer of another device than {}", context.name));
    };
    if memory.block.as_ref().is_some_and(|block| block.context.name != context.name) {
        return wrong(format!("a buffer of another GPU than {}", context.name));
    }
    match offset.checked_add(bytes).is_some_and(|end| end <= memory.bytes) {
        true => Ok(memory.address() + offset as u64),
        false => wrong(format!("{bytes} bytes at {offset} of a buffer of {} bytes", memory.bytes)),
    }
}
