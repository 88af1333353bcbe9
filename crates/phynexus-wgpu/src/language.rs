//! The languages of custom kernels.

use phynexus::custom::SourceLanguage;

/// WGSL.
pub const WGSL: SourceLanguage =
    SourceLanguage { name: "WGSL", short_name: "wgsl", is_binary: false, has_scalar_structure: true };

/// SPIR-V, as a binary module.
pub const SPIR_V: SourceLanguage =
    SourceLanguage { name: "SPIR-V", short_name: "spirv", is_binary: true, has_scalar_structure: true };

/// The Metal Shading Language of Apple.
pub const MSL: SourceLanguage =
    SourceLanguage { name: "MSL", short_name: "msl", is_binary: false, has_scalar_structure: true };
