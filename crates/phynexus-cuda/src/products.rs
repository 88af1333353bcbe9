//! Products of panels in CUDA C: `wgmma` (PTX ISA 8.0, `sm_90a`), whose factors are in shared memory, in rows of 128
//! bytes whose groups of 16 bytes are permuted.

use phynexus::{
    DType,
    kernel::loops::{Fragment, MatrixShape, MatrixUnit, Panel},
};

/// What every product needs.
pub(crate) const PRODUCTS: &str = r#"
__device__ static inline int permuted(int element) { return element ^ (element >> 6 & 7) << 3; }
__device__ static inline void panels_are_ready() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// A value that is not computed again to save its register.
template <typename T> __device__ static __forceinline__ T kept(T value) { asm volatile("" : "+r"(value)); return value; }
template <> __device__ __forceinline__ long long kept(long long value) { asm volatile("" : "+l"(value)); return value; }
template <int most> __device__ static inline void settle() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(most) : "memory");
}
// Sums are not read before they are settled.
__device__ static __forceinline__ void settled(float &sum) { asm volatile("" : "+f"(sum) :: "memory"); }
__device__ static __forceinline__ void settled(int &sum) { asm volatile("" : "+r"(sum) :: "memory"); }
template <typename T, int length, int share>
__device__ static __forceinline__ void settled(T (&sums)[length][share]) {
  #pragma unroll
  for (int i = 0; i < length; ++i)
    #pragma unroll
    for (int j = 0; j < share; ++j) settled(sums[i][j]);
}
template <typename T, int share> __device__ static __forceinline__ void fragment_fill(T (&sum)[share], T value) {
  #pragma unroll
  for (int i = 0; i < share; ++i) sum[i] = value;
}
template <typename T, typename Pair, int share>
__device__ static __forceinline__ void store_sums(T *to, const T (&sum)[share], int stride) {
  T *first = to + (threadIdx.x / 32 % 4 * 16 + lane() / 4) * stride + lane() % 4 * 2;
  __syncwarp();
  #pragma unroll
  for (int i = 0; i < share / 4; ++i, first += 8) {
    *(Pair *)first = Pair{sum[4 * i], sum[4 * i + 1]};
    *(Pair *)(first + 8 * stride) = Pair{sum[4 * i + 2], sum[4 * i + 3]};
  }
  __syncwarp();
}
template <int share>
__device__ static __forceinline__ void team_fragment_store_float32(
    float *to, const float (&sum)[share], int stride) {
  store_sums<float, float2>(to, sum, stride);
}
template <int share>
__device__ static __forceinline__ void team_fragment_store_int32(int *to, const int (&sum)[share], int stride) {
  store_sums<int, int2>(to, sum, stride);
}
// The same, rounded to 16 bits.
template <bool brain> __device__ static __forceinline__ unsigned int pair(float a, float b) {
  unsigned int pair;
  if (brain) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
  return pair;
}
template <bool brain, int share>
__device__ static __forceinline__ void store_pairs(unsigned short *to, const float (&sum)[share], int stride) {
  unsigned short *first = to + (threadIdx.x / 32 % 4 * 16 + lane() / 4) * stride + lane() % 4 * 2;
  __syncwarp();
  #pragma unroll
  for (int i = 0; i < share / 4; ++i, first += 8) {
    *(unsigned int *)first = pair<brain>(sum[4 * i], sum[4 * i + 1]);
    *(unsigned int *)(first + 8 * stride) = pair<brain>(sum[4 * i + 2], sum[4 * i + 3]);
  }
  __syncwarp();
}
template <int share>
__device__ static __forceinline__ void team_fragment_store_float16(
    unsigned short *to, const float (&sum)[share], int stride) {
  store_pairs<false>(to, sum, stride);
}
template <int share>
__device__ static __forceinline__ void team_fragment_store_bfloat16(
    unsigned short *to, const float (&sum)[share], int stride) {
  store_pairs<true>(to, sum, stride);
}
// The descriptor of a panel: its address, the bytes between groups of 64 rows or columns, and between groups of 8.
template <bool turned> __device__ static inline unsigned long long panel(const void *first) {
  const unsigned long long address = shared_address(first) >> 4 & 0x3fff, apart = turned ? 8192 : 16;
  return address | apart >> 4 << 16 | 1024ull >> 4 << 32 | 1ull << 62;
}
"#;

/// The types of the factors that are multiplied, of the sums, and the name of all three in an instruction.
const FACTORS: [([DType; 2], DType, &str); 9] = [
    ([DType::F16; 2], DType::F32, "f32.f16.f16"),
    ([DType::BF16; 2], DType::F32, "f32.bf16.bf16"),
    ([DType::F32; 2], DType::F32, "f32.tf32.tf32"),
    ([DType::I8; 2], DType::I32, "s32.s8.s8"),
    ([DType::U8; 2], DType::I32, "s32.u8.u8"),
    ([DType::F8E4M3; 2], DType::F32, "f32.e4m3.e4m3"),
    ([DType::F8E5M2; 2], DType::F32, "f32.e5m2.e5m2"),
    ([DType::F8E4M3, DType::F8E5M2], DType::F32, "f32.e4m3.e5m2"),
    ([DType::F8E5M2, DType::F8E4M3], DType::F32, "f32.e5m2.e4m3"),
];

/// The matrix instructions that kernels use on a major compute capability, with or without products of panels.
pub fn matrix_units(major: usize, panels: bool) -> Vec<MatrixUnit> {
    // `float32` factors are rounded to TF32. An instruction multiplies 32 bytes of a row.
    let unit = |rows, columns, (factors, sum, _): ([DType; 2], DType, &str)| {
        let shape = MatrixShape { rows, columns, depth: 32 / factors[0].size() };
        MatrixUnit { shape, factors, sum }
    };
    let fragments = FACTORS.into_iter().filter(|([factor, _], ..)| major >= 8 && factor.size() > 1);
    let products = FACTORS.into_iter().filter(|_| panels);
    let fragments = fragments.map(|types| unit(16, 16, types));
    fragments.chain(products.map(|types| unit(Panel::ROWS, 256, types))).collect()
}

/// The functions that multiply panels, or fragments and a panel, into these sums, for each type of the factors.
pub(crate) fn product(sums: &Fragment) -> String {
    let columns = sums.shape.columns * sums.length;
    let share = sums.shape.columns / 2;
    let count = sums.length * share;
    let list = |text: &dyn Fn(usize) -> String| (0..count).map(text).collect::<Vec<_>>().join(", ");
    let registers = list(&|i| format!("%{i}"));
    let (held, register) = if sums.dtype.is_float() { ("float", "f") } else { ("int", "r") };
    let outputs = list(&|i| format!("\"+{register}\"(sums[{}][{}])", i / share, i % share));
    let length = sums.length;
    let fragments = [0, 1, 2, 3].map(|i| format!("%{}", count + i)).join(", ");
    let mut text = String::new();
    for ([dtype, other], _, kind) in FACTORS.into_iter().filter(|(_, sum, _)| *sum == sums.dtype) {
        let depth = 32 / dtype.size();
        let name = if dtype == other { dtype.name().to_owned() } else { format!("{dtype}_{other}") };
        let instruction = format!("m64n{columns}k{depth}.{kind}");
        let signs = if dtype.is_float() { ", 1, 1" } else { "" };
        // Numbers of 16 bits may be turned.
        let turns = |first: usize, operands: &[&str]| -> [String; 2] {
            if dtype.size() != 2 {
                return Default::default();
            }
            let numbers = (first..).take(operands.len()).map(|number| format!(", %{number}")).collect();
            [numbers, operands.iter().map(|turned| format!(", \"n\"({turned} ? 1 : 0)")).collect()]
        };
        let [a, b, add] = [0, 1, 2].map(|operand| count + operand);
        let [numbers, turned] = turns(count + 3, &["left_turned", "right_turned"]);
        text += &format!(
            r#"
template <bool left_turned, bool right_turned, bool begins = false>
__device__ static __forceinline__ void product_{name}(
    {held} (&sums)[{length}][{share}], const void *left, const void *right) {{
  const unsigned long long a = panel<left_turned>(left), b = panel<right_turned>(right);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  #pragma unroll
  for (int step = 0; step < 4; ++step)
    asm volatile("{{ .reg .pred add; setp.ne.u32 add, %{add}, 0; "
      "wgmma.mma_async.sync.aligned.{instruction} {{{registers}}}, %{a}, %{b}, add{signs}{numbers}; }}"
      : {outputs}
      : "l"(a + step * (left_turned ? 128 : 2)), "l"(b + step * (right_turned ? 128 : 2)),
        "r"(begins ? step : 1){turned});
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}}
"#
        );
        if dtype.size() != 2 {
            continue;
        }
        let [b, add] = [4, 5].map(|operand| count + operand);
        let [numbers, turned] = turns(count + 6, &["right_turned"]);
        text += &format!(
            r#"
template <bool, bool right_turned, bool begins = false>
__device__ static __forceinline__ void product_{name}(
    {held} (&sums)[{length}][{share}], const factor_fragment *left, const void *right) {{
  const unsigned long long b = panel<right_turned>(right);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  #pragma unroll
  for (int step = 0; step < 4; ++step)
    asm volatile("{{ .reg .pred add; setp.ne.u32 add, %{add}, 0; "
      "wgmma.mma_async.sync.aligned.{instruction} {{{registers}}}, {{{fragments}}}, %{b}, add{signs}{numbers}; }}"
      : {outputs}
      : "r"(left[step][0]), "r"(left[step][1]), "r"(left[step][2]), "r"(left[step][3]),
        "l"(b + step * (right_turned ? 128 : 2)), "r"(begins ? step : 1){turned});
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}}
"#
        );
    }
    text
}
