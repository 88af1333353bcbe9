//! The language of kernels: CUDA C.

use phynexus::{
    custom::SourceLanguage,
    kernel::print::{Language, Products},
};

use crate::{
    bulk::{BULK_COPIES, bulk_copy},
    instructions::{EXTREMES, GRID_BARRIER, MATRICES, ROUND_TO_BF16},
    products::{PRODUCTS, product},
};

/// CUDA C as the language of custom kernels.
pub const CUDA_C: SourceLanguage =
    SourceLanguage { name: "CUDA C", short_name: "cuda", is_binary: false, has_scalar_structure: false };

/// CUDA C as kernels are printed, for NVRTC without headers. Compile with `--fmad=false`: the language has no pragma
/// against contraction.
pub static CUDA: Language = Language {
    name: CUDA_C.name,
    shuffle: "__shfl_xor_sync(0xffffffffu, {value}, {bits})",
    half: [
        "float value; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(value) : \"h\"(bits)); return value;",
        "unsigned short bits; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(bits) : \"f\"(value)); return bits;",
        Language::CPP.half[2],
        ROUND_TO_BF16,
    ],
    extremes: Some(EXTREMES),
    matrices: Some(MATRICES),
    products: Some(Products {
        common: PRODUCTS,
        bulk: BULK_COPIES,
        bulk_copy,
        tensor: "const __grid_constant__ bulk_tensor {name}",
        functions: product,
    }),
    async_copies: true,
    grid_barrier: Some(GRID_BARRIER),
    ..Language::CPP
};
