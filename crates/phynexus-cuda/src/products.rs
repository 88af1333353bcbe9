//! Products of panels in CUDA C: `wgmma` (PTX ISA 8.0, `sm_90a`), whose factors are in shared memory, in rows of 128
//! bytes whose groups of 16 bytes are permuted.

use phynexus::kernel::loops::Fragment;

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
template <int length, int share> __device__ static __forceinline__ void settled(float (&sums)[length][share]) {
  #pragma unroll
  for (int i = 0; i < length; ++i)
    #pragma unroll
    for (int j = 0; j < share; ++j) asm volatile("" : "+f"(sums[i][j]) :: "memory");
}
template <int share> __device__ static __forceinline__ void fragment_fill(float (&sum)[share], float value) {
  #pragma unroll
  for (int i = 0; i < share; ++i) sum[i] = value;
}
template <int share>
__device__ static __forceinline__ void team_fragment_store_float32(
    float *to, const float (&sum)[share], int stride) {
  float *first = to + (threadIdx.x / 32 % 4 * 16 + lane() / 4) * stride + lane() % 4 * 2;
  __syncwarp();
  #pragma unroll
  for (int i = 0; i < share / 4; ++i, first += 8) {
    *(float2 *)first = make_float2(sum[4 * i], sum[4 * i + 1]);
    *(float2 *)(first + 8 * stride) = make_float2(sum[4 * i + 2], sum[4 * i + 3]);
  }
  __syncwarp();
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

/// The functions that multiply panels, or fragments and a panel, into these sums, for each type of the factors.
pub(crate) fn product(sums: &Fragment) -> String {
    let columns = sums.shape.columns * sums.length;
    let share = sums.shape.columns / 2;
    let count = sums.length * share;
    let list = |text: &dyn Fn(usize) -> String| (0..count).map(text).collect::<Vec<_>>().join(", ");
    let registers = list(&|i| format!("%{i}"));
    let outputs = list(&|i| format!("\"+f\"(sums[{}][{}])", i / share, i % share));
    let [a, b, turned_a, turned_b] = [0, 1, 2, 3].map(|i| count + i);
    // Each instruction multiplies 32 bytes of a row.
    let steps = 4;
    let length = sums.length;
    let mut text = String::new();
    let registers_of_left = [0, 1, 2, 3].map(|i| format!("%{}", count + i)).join(", ");
    let [right, right_is_turned] = [4, 5].map(|i| count + i);
    for (name, kind) in [("float16", "f16"), ("bfloat16", "bf16")] {
        text += &format!(
            r#"
template <bool left_turned, bool right_turned>
__device__ static __forceinline__ void product_{name}(
    float (&sums)[{length}][{share}], const void *left, const void *right) {{
  const unsigned long long a = panel<left_turned>(left), b = panel<right_turned>(right);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  #pragma unroll
  for (int step = 0; step < {steps}; ++step)
    asm volatile("{{ .reg .pred add; setp.eq.u32 add, 0, 0; "
      "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} "
      "{{{registers}}}, %{a}, %{b}, add, 1, 1, %{turned_a}, %{turned_b}; }}"
      : {outputs}
      : "l"(a + step * (left_turned ? 128 : 2)), "l"(b + step * (right_turned ? 128 : 2)), "n"(left_turned ? 1 : 0),
        "n"(right_turned ? 1 : 0));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}}
template <bool, bool right_turned>
__device__ static __forceinline__ void product_{name}(
    float (&sums)[{length}][{share}], const factor_fragment *left, const void *right) {{
  const unsigned long long b = panel<right_turned>(right);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  #pragma unroll
  for (int step = 0; step < {steps}; ++step)
    asm volatile("{{ .reg .pred add; setp.eq.u32 add, 0, 0; "
      "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} "
      "{{{registers}}}, {{{registers_of_left}}}, %{right}, add, 1, 1, %{right_is_turned}; }}"
      : {outputs}
      : "r"(left[step][0]), "r"(left[step][1]), "r"(left[step][2]), "r"(left[step][3]),
        "l"(b + step * (right_turned ? 128 : 2)), "n"(right_turned ? 1 : 0));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}}
"#
        );
    }
    text + &format!(
        r#"
template <bool, bool>
__device__ static __forceinline__ void product_float32(
    float (&sums)[{length}][{share}], const void *left, const void *right) {{
  const unsigned long long a = panel<false>(left), b = panel<false>(right);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  #pragma unroll
  for (int step = 0; step < {steps}; ++step)
    asm volatile("{{ .reg .pred add; setp.eq.u32 add, 0, 0; "
      "wgmma.mma_async.sync.aligned.m64n{columns}k8.f32.tf32.tf32 {{{registers}}}, %{a}, %{b}, add, 1, 1; }}"
      : {outputs} : "l"(a + step * 2), "l"(b + step * 2));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}}
"#
    )
}
