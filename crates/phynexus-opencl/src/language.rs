//! The language of kernels: OpenCL C.

use phynexus::{custom::SourceLanguage, kernel::print::Language};

/// OpenCL C as the language of custom kernels.
pub const OPENCL_C: SourceLanguage =
    SourceLanguage { name: "OpenCL C", short_name: "opencl", is_binary: false, has_scalar_structure: false };

/// OpenCL C 1.2 as kernels are printed; subgroup shuffles need `cl_khr_subgroup_shuffle`.
pub static OPENCL: Language = Language {
    name: OPENCL_C.name,
    header: "#pragma OPENCL FP_CONTRACT OFF\n",
    kernel: "__kernel __attribute__((reqd_work_group_size({x}, {y}, {z}))) void",
    function: "static inline",
    qualifiers: ("__global ", "__local "),
    restrict: "restrict ",
    offsets: true,
    dynamic_shared: false,
    group: ["get_group_id(0)", "get_group_id(1)", "get_group_id(2)"],
    invocation: ["get_local_id(0)", "get_local_id(1)", "get_local_id(2)"],
    barrier: "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    atomics: ["atomic_add", "atomic_max", "atomic_min"],
    unroll: "#pragma unroll",
    shuffle: "sub_group_shuffle_xor({value}, {bits}u)",
    types: [
        "uchar", "uchar", "ushort", "uint", "ulong", "char", "short", "int", "long", "uchar", "uchar",
        "ushort", "ushort", "float", "double",
    ],
    vectors: [
        "uchar", "uchar", "ushort", "uint", "ulong", "char", "short", "int", "long", "uchar", "uchar",
        "ushort", "ushort", "float", "double",
    ],
    vector: "({type})({lanes})",
    math_suffix: "",
    long_suffixes: ["uL", "L"],
    special: [("INFINITY", "NAN"), ("(double)INFINITY", "(double)NAN")],
    half: [
        "return vload_half(0, (const half *)&bits);",
        "ushort bits; vstore_half_rte(value, 0, (half *)&bits); return bits;",
        "return as_float((uint)bits << 16);",
        "uint bits = as_uint(value); return value != value ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;",
    ],
    extremes: None,
    matrices: None,
    products: None,
    async_copies: false,
    grid_barrier: None,
};
