//! User-written kernels: runs their CPU functions.

use std::{borrow::Cow, slice};

use half::{bf16, f16};
use phynexus::{
    DType, Error, F8E4M3, F8E5M2, Result,
    custom::{CustomCall, Elements, ElementsMut},
    kernel::step::Operand,
    shape::{Dims, element_count},
};

use super::Routine;
use crate::device::NAME;

/// A launch of a kernel.
pub(super) struct Custom {
    call: CustomCall,
    inputs: Vec<(DType, Dims)>,
    /// The start and the number of elements of each output in the result.
    outputs: Vec<(usize, usize)>,
    dtype: DType,
}

impl Custom {
    pub(super) fn new(call: &CustomCall, operands: &[Operand]) -> Result<Custom> {
        let (starts, _) = call.packing()?;
        let outputs = starts.into_iter().zip(call.outputs().iter().map(|shape| element_count(shape)));
        let inputs = operands.iter().map(|operand| (operand.dtype, operand.layout.shape.clone()));
        Ok(Custom {
            call: call.clone(),
            inputs: inputs.collect(),
            outputs: outputs.collect(),
            dtype: call.kernel().output_dtype(),
        })
    }
}

impl Routine for Custom {
    unsafe fn run(&self, operands: &[*const u8], result: *mut u8) -> Result<()> {
        if operands.len() != self.inputs.len() {
            return Err(Error::internal("phynexus_cpu::library", "an operand is missing"));
        }
        let inputs = self.inputs.iter().zip(operands).map(|((dtype, shape), &address)| {
            // SAFETY: the caller guarantees that the operand is row-major at its address.
            let elements = unsafe { elements(*dtype, address, element_count(shape)) };
            (shape.as_slice(), elements)
        });
        let outputs = self.outputs.iter().map(|&(start, count)| {
            // SAFETY: the caller guarantees room for the whole result; the outputs are disjoint parts of it.
            unsafe { zeroed(self.dtype, result.add(start * self.dtype.size()), count) }
        });
        self.call.run_on_host(inputs.collect(), outputs.collect(), NAME)
    }
}

macro_rules! slices {
    ($($variant:ident $t:ty),+) => {
        /// The elements at an address.
        ///
        /// # Safety
        /// There must be `count` aligned elements of this type, which must not be written while the result is alive.
        unsafe fn elements<'a>(dtype: DType, address: *const u8, count: usize) -> Elements<'a> {
            match dtype {
                $(DType::$variant => {
                    // SAFETY: guaranteed by the caller.
                    let values = unsafe { slice::from_raw_parts(address.cast::<$t>(), count) };
                    Elements::$variant(Cow::Borrowed(values))
                })+
            }
        }

        /// Zeros the elements at an address and returns them.
        ///
        /// # Safety
        /// There must be room for `count` aligned elements of this type, which nothing else may access while the result
        /// is alive.
        unsafe fn zeroed<'a>(dtype: DType, address: *mut u8, count: usize) -> ElementsMut<'a> {
            match dtype {
                $(DType::$variant => {
                    let address = address.cast::<$t>();
                    // SAFETY: guaranteed by the caller. All-zero bytes are a valid value of every element type.
                    let values = unsafe {
                        address.write_bytes(0, count);
                        slice::from_raw_parts_mut(address, count)
                    };
                    ElementsMut::$variant(values)
                })+
            }
        }
    };
}

slices!(
    Bool bool, U8 u8, U16 u16, U32 u32, U64 u64, I8 i8, I16 i16, I32 i32, I64 i64, F8E4M3 F8E4M3, F8E5M2 F8E5M2, F16 f16, BF16 bf16, F32 f32, F64 f64
);
