//! Parts of CUDA C that need inline PTX (PTX ISA 8.0).

/// From a float to the bits of a bfloat16: one instruction since compute capability 8.0.
pub(crate) const ROUND_TO_BF16: &str = "
#if __CUDA_ARCH__ >= 800
  unsigned short bits; asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(bits) : \"f\"(value)); return bits;
#else
  unsigned int bits = __float_as_uint(value);
  return value != value ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
#endif
";

/// The greater and the smaller of two floats, NaN if either is, -0 less than 0: one instruction since compute capability 8.0.
pub(crate) const EXTREMES: [&str; 2] = [
    "
#if __CUDA_ARCH__ >= 800
  float c; asm(\"max.NaN.f32 %0, %1, %2;\" : \"=f\"(c) : \"f\"(a), \"f\"(b)); return c;
#else
  if (a != b) return a > b || a != a ? a : b;
  return __int_as_float(__float_as_int(a) & __float_as_int(b));
#endif
",
    "
#if __CUDA_ARCH__ >= 800
  float c; asm(\"min.NaN.f32 %0, %1, %2;\" : \"=f\"(c) : \"f\"(a), \"f\"(b)); return c;
#else
  if (a != b) return a < b || a != a ? a : b;
  return __int_as_float(__float_as_int(a) | __float_as_int(b));
#endif
",
];

/// The invocations of a group come together, one of them counts the group, and all wait for all groups. What a group
/// has written before is visible to the others (PTX ISA, memory consistency model: release, acquire and the barriers
/// of groups and subgroups form a causality order).
pub(crate) const GRID_BARRIER: &str = r#"
__device__ static inline void grid_barrier(unsigned int *counter, unsigned int count) {
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0)
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" :: "l"(counter) : "memory");
  unsigned int came;
  do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(came) : "l"(counter) : "memory"); while (came < count);
}
"#;

/// Matrix fragments of 16 by 16 elements, made of the fragments of `mma.m16n8k16` (compute capability 8.0), and of 16
/// by 8 floats as TF32, made of those of `mma.m16n8k8`: an invocation has four words of a factor and eight floats of a
/// sum. Copies are `cp.async`.
pub(crate) const MATRICES: &str = r#"
typedef unsigned int factor_fragment[4];
typedef float sum_fragment[8];
__device__ static inline unsigned int shared_address(const void *pointer) {
  return (unsigned int)__cvta_generic_to_shared(pointer);
}
__device__ static inline unsigned int lane() {
  unsigned int lane; asm("mov.u32 %0, %%laneid;" : "=r"(lane)); return lane;
}
// Four matrices of 8 by 8: by columns of blocks, or by rows if they are exchanged; each is transposed if it is turned.
template <bool exchanged, bool turned>
__device__ static inline void fragment_load(factor_fragment &to, const unsigned short *from, int stride) {
  const int l = lane();
  const int outer = exchanged ? l % 8 + l / 16 * 8 : l % 16, inner = exchanged ? l / 8 % 2 * 8 : l / 16 * 8;
  const unsigned int address = shared_address(from + outer * stride + inner);
  if (turned)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
}
// The same of floats, which are rounded: four matrices of 8 rows by 4 columns, or of 4 by 8 whose elements are taken
// one by one if they are turned.
template <bool exchanged, bool turned>
__device__ static inline void fragment_load(factor_fragment &to, const float *from, int stride) {
  const int l = lane();
  if (turned) {
    for (int i = 0; i < 4; ++i) {
      const int outer = exchanged ? i % 2 : i / 2, inner = exchanged ? i / 2 : i % 2;
      to[i] = __float_as_uint(from[(l % 4 + inner * 4) * stride + l / 4 + outer * 8]);
    }
  } else {
    const int outer = exchanged ? l % 8 + l / 16 * 8 : l % 16, inner = exchanged ? l / 8 % 2 * 4 : l / 16 * 4;
    const unsigned int address = shared_address(from + outer * stride + inner);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
  }
  for (int i = 0; i < 4; ++i) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(to[i]) : "f"(__uint_as_float(to[i])));
}
#define MULTIPLY_ADD(name, type)                                                                                  \
  __device__ static inline void name(sum_fragment &sum, const factor_fragment &a, const factor_fragment &b) {        \
    for (int half = 0; half < 2; ++half)                                                                          \
      asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                                          \
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                       \
          : "+f"(sum[4 * half]), "+f"(sum[4 * half + 1]), "+f"(sum[4 * half + 2]), "+f"(sum[4 * half + 3])        \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * half]), "r"(b[2 * half + 1]));                  \
  }
MULTIPLY_ADD(fragment_multiply_add_float16, "f16")
MULTIPLY_ADD(fragment_multiply_add_bfloat16, "bf16")
__device__ static inline void fragment_multiply_add_float32(
    sum_fragment &sum, const factor_fragment &a, const factor_fragment &b) {
  for (int half = 0; half < 2; ++half)
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[4 * half]), "+f"(sum[4 * half + 1]), "+f"(sum[4 * half + 2]), "+f"(sum[4 * half + 3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * half]), "r"(b[2 * half + 1]));
}
__device__ static inline void fragment_fill(sum_fragment &sum, float value) {
  for (int i = 0; i < 8; ++i) sum[i] = value;
}
__device__ static inline void fragment_store(float *to, const sum_fragment &sum, int stride) {
  const int row = lane() / 4, column = lane() % 4 * 2;
  for (int i = 0; i < 8; ++i) to[(row + i / 2 % 2 * 8) * stride + column + i / 4 * 8 + i % 2] = sum[i];
}
__device__ static inline void copy_begin(void *to, const void *from, bool holds) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(holds ? 16 : 0) : "memory");
}
__device__ static inline void copy_mark() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int most> __device__ static inline void copy_wait() {
  asm volatile("cp.async.wait_group %0;" :: "n"(most) : "memory");
}
"#;
