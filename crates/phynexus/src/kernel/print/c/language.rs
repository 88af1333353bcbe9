//! What differs between the languages of the C family, as tables.

use crate::{DType, kernel::loops::Memory};

/// One language. Templates have their arguments in braces.
#[derive(Debug)]
pub struct Language {
    /// Its name in messages.
    pub name: &'static str,
    /// What every source begins with.
    pub header: &'static str,
    /// What declares a kernel; `{x}`, `{y}`, `{z}` are the block's extents and `{size}` their product.
    pub kernel: &'static str,
    /// What declares a function of the device.
    pub function: &'static str,
    /// The qualifiers of pointers to buffers and to shared arrays.
    pub qualifiers: (&'static str, &'static str),
    /// The qualifier of pointers that nothing else points into.
    pub restrict: &'static str,
    /// A launch cannot give addresses inside buffers, so after each buffer comes the element at which it begins.
    pub offsets: bool,
    /// Shared arrays are parts of one array whose size the launch gives (true), or declared one by one.
    pub dynamic_shared: bool,
    /// The group's position along dimension `{}`: `x`, `y`, `z`.
    pub group: [&'static str; 3],
    /// The invocation's position in the block.
    pub invocation: [&'static str; 3],
    /// Waits for the group.
    pub barrier: &'static str,
    /// The functions that add to, or take the maximum or minimum with, a 32-bit integer as one step.
    pub atomics: [&'static str; 3],
    /// What precedes a loop to be written out.
    pub unroll: &'static str,
    /// The value `{value}` of the invocation that differs in the bits `{bits}`.
    pub shuffle: &'static str,
    /// Names of the types, in the order of [`DType::ALL`]; 16-bit floats are stored as their bits.
    pub types: [&'static str; 13],
    /// The same names as vectors begin with.
    pub vectors: [&'static str; 13],
    /// A vector of type `{type}` made of `{lanes}`.
    pub vector: &'static str,
    /// What follows the names of mathematical functions of `float`.
    pub math_suffix: &'static str,
    /// What follows 64-bit integers, without a sign and with one.
    pub long_suffixes: [&'static str; 2],
    /// Infinity and NaN, as `float` and as `double`.
    pub special: [(&'static str, &'static str); 2],
    /// The bodies of the functions from the `bits` of a float16 to a float, and from the float `value` to such bits; the
    /// same for bfloat16.
    pub half: [&'static str; 4],
    /// The bodies of functions of the floats `a` and `b` for the greater and the smaller one, NaN if either is, where they
    /// are better than comparisons.
    pub extremes: Option<[&'static str; 2]>,
    /// The types and functions for matrix fragments, if there are such, and for copies that go on by themselves.
    pub matrices: Option<&'static str>,
    /// Whether there are such copies.
    pub async_copies: bool,
}

impl Language {
    /// C++ as compilers for GPUs accept it, without headers: what their dialects share.
    pub const CPP: Language = Language {
        name: "C++",
        header: "",
        kernel: "extern \"C\" __global__ void __launch_bounds__({size})",
        function: "__device__ static inline",
        qualifiers: ("", ""),
        restrict: "__restrict__ ",
        offsets: false,
        dynamic_shared: true,
        group: ["blockIdx.x", "blockIdx.y", "blockIdx.z"],
        invocation: ["threadIdx.x", "threadIdx.y", "threadIdx.z"],
        barrier: "__syncthreads();",
        atomics: ["atomicAdd", "atomicMax", "atomicMin"],
        unroll: "#pragma unroll",
        shuffle: "__shfl_xor({value}, {bits})",
        types: [
            "unsigned char",
            "unsigned char",
            "unsigned short",
            "unsigned int",
            "unsigned long long",
            "signed char",
            "short",
            "int",
            "long long",
            "unsigned short",
            "unsigned short",
            "float",
            "double",
        ],
        vectors: [
            "uchar",
            "uchar",
            "ushort",
            "uint",
            "ulonglong",
            "char",
            "short",
            "int",
            "longlong",
            "ushort",
            "ushort",
            "float",
            "double",
        ],
        vector: "make_{type}({lanes})",
        math_suffix: "f",
        long_suffixes: ["ull", "ll"],
        special: [
            ("__int_as_float(0x7f800000)", "__int_as_float(0x7fc00000)"),
            ("__longlong_as_double(0x7ff0000000000000ll)", "__longlong_as_double(0x7ff8000000000000ll)"),
        ],
        half: [
            "return (float)__builtin_bit_cast(_Float16, bits);",
            "return __builtin_bit_cast(unsigned short, (_Float16)value);",
            "return __uint_as_float((unsigned int)bits << 16);",
            "unsigned int bits = __float_as_uint(value); \
             return value != value ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;",
        ],
        extremes: None,
        matrices: None,
        async_copies: false,
    };

    /// The type of elements in memory.
    pub(super) fn memory_type(&self, dtype: DType) -> &'static str {
        self.types[dtype as usize]
    }

    /// The type of a number that is computed with.
    pub(super) fn value_type(&self, dtype: DType) -> &'static str {
        match dtype {
            DType::Bool => "bool",
            other => self.types[other.compute() as usize],
        }
    }

    /// The type of several numbers; lanes that are `bool` are bytes.
    pub(super) fn vector_type(&self, dtype: DType, lanes: u8) -> String {
        format!("{}{lanes}", self.vectors[dtype as usize])
    }

    pub(super) fn qualifier(&self, memory: Memory) -> &'static str {
        match memory {
            Memory::Buffer(_) => self.qualifiers.0,
            Memory::Shared(_) => self.qualifiers.1,
            Memory::Register(_) => "",
        }
    }
}
