//! The languages of the C family, as tables.

use crate::{
    DType,
    kernel::loops::{ArrayId, Fragment},
};

/// How a language multiplies panels.
#[derive(Clone, Copy, Debug)]
pub struct Products {
    /// What every product needs.
    pub common: &'static str,
    /// What bulk copies need.
    pub bulk: &'static str,
    /// The function that copies parts of tensors with so many dimensions: windows, or boxes.
    pub bulk_copy: fn(dimensions: usize, windows: bool) -> String,
    /// The parameter that describes a tensor of bulk copies.
    pub tensor: &'static str,
    /// The functions that multiply into an array of fragments like this one.
    pub functions: fn(&Fragment) -> String,
}

/// A language. Arguments of templates are in braces.
#[derive(Debug)]
pub struct Language {
    /// Its name in messages.
    pub name: &'static str,
    /// The beginning of every source.
    pub header: &'static str,
    /// The declaration of a kernel; `{x}`, `{y}`, `{z}` are the block's extents and `{size}` the number of its
    /// invocations, with those that make bulk copies, and of groups that a processor is to run if that is given.
    pub kernel: &'static str,
    /// The declaration of a device function.
    pub function: &'static str,
    /// The qualifiers of pointers to buffers and to shared arrays.
    pub qualifiers: (&'static str, &'static str),
    /// The qualifier of pointers without aliases.
    pub restrict: &'static str,
    /// Whether each buffer is followed by the offset of its first element, because a launch cannot pass addresses
    /// inside buffers.
    pub offsets: bool,
    /// Whether shared arrays are parts of one array whose size the launch sets. If not, they are declared one by one.
    pub dynamic_shared: bool,
    /// The group's position along dimension `{}`: `x`, `y`, `z`.
    pub group: [&'static str; 3],
    /// The invocation's position in the block.
    pub invocation: [&'static str; 3],
    /// The barrier of a group.
    pub barrier: &'static str,
    /// The atomic functions for the sum, maximum and minimum of 32-bit integers.
    pub atomics: [&'static str; 3],
    /// The directive that precedes a loop to be unrolled.
    pub unroll: &'static str,
    /// The value `{value}` of the invocation whose number differs in the bits `{bits}`.
    pub shuffle: &'static str,
    /// Names of the types, in the order of [`DType::ALL`]; floats of 8 and 16 bits are stored as their bits.
    pub types: [&'static str; 15],
    /// The prefixes of the names of vector types, in the same order.
    pub vectors: [&'static str; 15],
    /// A vector of type `{type}` with the lanes `{lanes}`.
    pub vector: &'static str,
    /// The suffix of mathematical functions of `float`.
    pub math_suffix: &'static str,
    /// The suffixes of unsigned and signed 64-bit literals.
    pub long_suffixes: [&'static str; 2],
    /// Infinity and NaN, as `float` and as `double`.
    pub special: [(&'static str, &'static str); 2],
    /// The bodies of the functions that convert the `bits` of a float16 to a float, and the float `value` to such bits;
    /// then the same for bfloat16.
    pub half: [&'static str; 4],
    /// The bodies of the functions for the maximum and minimum of the floats `a` and `b`, NaN if either is NaN, if they
    /// are faster than comparisons.
    pub extremes: Option<[&'static str; 2]>,
    /// The types and functions for matrix fragments and asynchronous copies, if the language has fragments.
    pub matrices: Option<&'static str>,
    /// The functions for products of panels by teams of 128 invocations, if the language has them.
    pub products: Option<Products>,
    /// Whether the language has asynchronous copies.
    pub async_copies: bool,
    /// The definition of `grid_barrier(counter, count)`, which adds 1 to a counter and waits until it has at least this
    /// count, if the language has barriers of several groups.
    pub grid_barrier: Option<&'static str>,
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
            "unsigned char",
            "unsigned char",
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
            "uchar",
            "uchar",
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
        products: None,
        async_copies: false,
        grid_barrier: None,
    };

    /// The type of an element in memory.
    pub(super) fn memory_type(&self, dtype: DType) -> &'static str {
        self.types[dtype as usize]
    }

    /// The type in which a number is computed.
    pub(super) fn value_type(&self, dtype: DType) -> &'static str {
        match dtype {
            DType::Bool => "bool",
            other => self.types[other.compute() as usize],
        }
    }

    /// The type of several numbers; `bool` lanes are bytes.
    pub(super) fn vector_type(&self, dtype: DType, lanes: u8) -> String {
        format!("{}{lanes}", self.vectors[dtype as usize])
    }

    pub(super) fn qualifier(&self, array: ArrayId) -> &'static str {
        match array {
            ArrayId::Buffer(_) => self.qualifiers.0,
            ArrayId::Shared(_) => self.qualifiers.1,
            ArrayId::Register(_) | ArrayId::Fragment(_) => "",
        }
    }
}
