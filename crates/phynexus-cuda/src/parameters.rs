//! The parameters of a launch: the addresses of its buffers, then descriptions of the tensors of its bulk copies.

use std::{ffi::c_void, mem::MaybeUninit, ptr};

use cudarc::driver::{DriverError, sys};
use phynexus::{
    DType,
    gpu::Submission,
    kernel::loops::{BulkPart, BulkTensor},
};
use smallvec::SmallVec;

use crate::{context::Addresses, gpu::Cuda};

/// The buffer addresses of a launch.
pub(crate) fn addresses(submission: &Submission<'_, Cuda>) -> Addresses {
    submission.arguments.iter().map(|(block, start)| block.address().wrapping_add_signed(*start)).collect()
}

/// The values of a launch's parameters.
pub(crate) struct Parameters {
    addresses: Addresses,
    tensors: Vec<sys::CUtensorMap>,
}

impl Parameters {
    pub(crate) fn of(submission: &Submission<'_, Cuda>) -> Result<Parameters, DriverError> {
        let addresses = addresses(submission);
        let describe = |tensor: &BulkTensor| {
            let buffer = usize::from(tensor.buffer);
            let dtype = submission.kernel.buffers[buffer].dtype;
            describe(tensor, dtype, addresses[buffer] + (tensor.start * dtype.size()) as u64)
        };
        let tensors = submission.kernel.tensors.iter().map(describe).collect::<Result<_, _>>()?;
        Ok(Parameters { addresses, tensors })
    }

    /// Pointers to the values, as the driver expects them.
    pub(crate) fn pointers(&mut self) -> SmallVec<[*mut c_void; 8]> {
        let addresses = self.addresses.iter_mut().map(|address| ptr::from_mut(address).cast());
        addresses.chain(self.tensors.iter_mut().map(|tensor| ptr::from_mut(tensor).cast())).collect()
    }
}

/// The driver's description of a tensor at this address, whose parts are copied as panels want them: in rows of 128
/// bytes, with permuted groups of 16.
fn describe(tensor: &BulkTensor, dtype: DType, address: u64) -> Result<sys::CUtensorMap, DriverError> {
    use sys::{
        CUtensorMapDataType as Type, CUtensorMapFloatOOBfill as Fill, CUtensorMapInterleave as Interleave,
        CUtensorMapL2promotion as Promotion, CUtensorMapSwizzle as Swizzle,
    };
    let kind = match dtype {
        // The bits are only copied.
        _ if dtype.size() == 1 => Type::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        DType::F16 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        // Numbers are rounded while they are copied.
        DType::F32 => Type::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
        _ => Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    };
    let rank = tensor.dimensions.len() as u32;
    let extents: SmallVec<[u64; 5]> = tensor.dimensions.iter().map(|&(extent, _)| extent as u64).collect();
    let strides = tensor.dimensions.iter().skip(1);
    let strides: SmallVec<[u64; 4]> = strides.map(|&(_, stride)| (stride * dtype.size()) as u64).collect();
    let address: *mut c_void = ptr::without_provenance_mut(address as usize);
    let (plain, permuted) = (Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE, Swizzle::CU_TENSOR_MAP_SWIZZLE_128B);
    let (ahead, zeros) =
        (Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B, Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    let mut map = MaybeUninit::<sys::CUtensorMap>::uninit();
    let mut steps: SmallVec<[u32; 5]> = SmallVec::from_elem(1, rank as usize);
    let described = match &tensor.part {
        BulkPart::Box(part) => {
            let part: SmallVec<[u32; 5]> = part.iter().map(|&extent| extent as u32).collect();
            // SAFETY: the lists have an element for each dimension, of strides for each but the first.
            unsafe {
                sys::cuTensorMapEncodeTiled(
                    map.as_mut_ptr(),
                    kind,
                    rank,
                    address,
                    extents.as_ptr(),
                    strides.as_ptr(),
                    part.as_ptr(),
                    steps.as_ptr(),
                    plain,
                    permuted,
                    ahead,
                    zeros,
                )
            }
        }
        BulkPart::Windows { length, count, walks } => {
            let (mut low, mut high) = (SmallVec::<[i32; 3]>::new(), SmallVec::<[i32; 3]>::new());
            for (walk, (step, &(extent, _))) in
                walks.iter().zip(steps[1..].iter_mut().zip(&tensor.dimensions[1..]))
            {
                let last = walk.low + ((walk.count - 1) * walk.step) as i64;
                low.push(walk.low as i32);
                high.push((last - (extent as i64 - 1)) as i32);
                *step = walk.step as u32;
            }
            // SAFETY: as above; the corners have an element for each dimension but the first and the last.
            unsafe {
                sys::cuTensorMapEncodeIm2col(
                    map.as_mut_ptr(),
                    kind,
                    rank,
                    address,
                    extents.as_ptr(),
                    strides.as_ptr(),
                    low.as_ptr(),
                    high.as_ptr(),
                    *length as u32,
                    *count as u32,
                    steps.as_ptr(),
                    plain,
                    permuted,
                    ahead,
                    zeros,
                )
            }
        }
    };
    described.result()?;
    // SAFETY: the driver has written the description.
    Ok(unsafe { map.assume_init() })
}
