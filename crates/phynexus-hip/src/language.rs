//! The language of kernels: HIP C.

use phynexus::{custom::SourceLanguage, kernel::print::Language};

use crate::matrices::MATRICES;

/// HIP C as the language of custom kernels.
pub const HIP_C: SourceLanguage =
    SourceLanguage { name: "HIP C", short_name: "hip", is_binary: false, has_scalar_structure: false };

/// HIP C as kernels are printed, for hipRTC without headers. Subgroups are as wide as the device's wavefronts.
pub static HIP: Language = Language {
    name: HIP_C.name,
    header: "#pragma clang fp contract(off)\n",
    matrices: Some(MATRICES),
    ..Language::CPP
};
