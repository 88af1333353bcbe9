//! How a collective is expressed by the library's functions, and what it lacks.

use std::ffi::c_int;

use phynexus::{
    DType,
    op::{CollectiveKind, Combine},
};

/// A collective on operands of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) kind: CollectiveKind,
    /// The library's number of the type of elements.
    pub(crate) dtype: c_int,
    /// The size of an element in bytes.
    pub(crate) width: usize,
    /// Elements of the operand and of the result.
    pub(crate) operand: usize,
    pub(crate) result: usize,
}

/// The library's number of a dtype: `ncclDataType_t`.
fn number(dtype: DType) -> Option<c_int> {
    Some(match dtype {
        DType::I8 => 0,
        DType::U8 => 1,
        DType::I32 => 2,
        DType::U32 => 3,
        DType::I64 => 4,
        DType::U64 => 5,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::BF16 => 9,
        DType::I16 | DType::U16 | DType::Bool | DType::F8E4M3 | DType::F8E5M2 => return None,
    })
}

/// Bytes that are only moved: `ncclUint8`.
const BYTES: c_int = 1;

/// The library's number of a combination: `ncclRedOp_t`.
pub(crate) fn combination(combine: Combine) -> c_int {
    match combine {
        Combine::Sum => 0,
        Combine::Prod => 1,
        Combine::Max => 2,
        Combine::Min => 3,
    }
}

impl Call {
    /// The call for operands and results of so many elements.
    ///
    /// # Errors
    /// Why the library has none. All ranks refuse the same.
    pub(crate) fn new(
        kind: CollectiveKind,
        dtype: DType,
        operand: usize,
        result: usize,
        library: &str,
    ) -> Result<Call, String> {
        let Some(combine) = kind.combine() else {
            let width = dtype.size();
            return Ok(Call {
                kind,
                dtype: BYTES,
                width: 1,
                operand: operand * width,
                result: result * width,
            });
        };
        let Some(number) = number(dtype) else {
            return Err(format!("{library} does not combine {dtype}"));
        };
        if matches!(combine, Combine::Max | Combine::Min) && dtype.is_float() {
            return Err(format!(
                "{library} ignores NaN in the extremes of floats: to stay on the GPUs, all_gather and reduce"
            ));
        }
        Ok(Call { kind, dtype: number, width: dtype.size(), operand, result })
    }

    pub(crate) fn operand_bytes(&self) -> usize {
        self.operand * self.width
    }

    pub(crate) fn result_bytes(&self) -> usize {
        self.result * self.width
    }
}

#[cfg(test)]
mod tests {
    use phynexus::op::Loss;

    use super::*;

    #[test]
    fn dtypes_have_the_numbers_of_the_header() {
        let sum = CollectiveKind::AllReduce(Combine::Sum, Loss::Summed);
        for dtype in DType::ALL {
            let moved = Call::new(CollectiveKind::AllGather { again: false }, dtype, 3, 6, "NCCL").unwrap();
            assert_eq!((moved.dtype, moved.width), (BYTES, 1));
            assert_eq!((moved.operand_bytes(), moved.result_bytes()), (3 * dtype.size(), 6 * dtype.size()));
            match Call::new(sum, dtype, 3, 3, "NCCL") {
                Ok(call) => assert_eq!((call.operand, call.width), (3, dtype.size())),
                Err(reason) => assert_eq!(reason, format!("NCCL does not combine {dtype}")),
            }
        }
        let refused: Vec<DType> =
            DType::ALL.into_iter().filter(|dtype| Call::new(sum, *dtype, 1, 1, "NCCL").is_err()).collect();
        assert!(refused.iter().all(|dtype| dtype.size() <= 2 && *dtype != DType::F16), "{refused:?}");
        assert_eq!(refused.len(), 5);
    }

    #[test]
    fn extremes_of_floats_are_refused_and_those_of_integers_are_not() {
        for combine in [Combine::Max, Combine::Min] {
            let kind = CollectiveKind::ReduceScatter(combine);
            let reason = Call::new(kind, DType::F32, 2, 1, "RCCL").unwrap_err();
            assert!(reason.contains("RCCL") && reason.contains("NaN"), "{reason}");
            assert!(Call::new(kind, DType::I32, 2, 1, "RCCL").is_ok());
        }
    }
}
