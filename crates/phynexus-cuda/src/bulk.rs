//! Bulk copies in CUDA C: `cp.async.bulk.tensor` and `mbarrier` (PTX ISA 8.0, `sm_90`).

/// What kernels with bulk copies need.
pub(crate) const BULK_COPIES: &str = r#"
// Of the 168 registers that each of 384 invocations has.
__device__ static __forceinline__ void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); }
__device__ static __forceinline__ void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); }
struct alignas(64) bulk_tensor { unsigned long long words[16]; };
__device__ static __forceinline__ unsigned long long *barriers(void *memory) { return (unsigned long long *)memory; }
__device__ static __forceinline__ void arrive(unsigned long long *barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(shared_address(barrier)) : "memory");
}
// Waits until phase number `phase`, from 0 on, has ended.
__device__ static __forceinline__ void await(unsigned long long *barrier, unsigned int phase) {
  asm volatile("{ .reg .pred done; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra AGAIN; }"
    :: "r"(shared_address(barrier)), "r"(phase & 1) : "memory");
}
template <unsigned int batches, int subgroups>
__device__ static __forceinline__ void begin_barriers(unsigned long long *copied) {
  if (threadIdx.x == 0) {
    #pragma unroll
    for (unsigned int i = 0; i < 2 * batches; ++i)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
        :: "r"(shared_address(copied + i)), "r"(i < batches ? 1 : subgroups) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
}
template <unsigned int batches>
__device__ static __forceinline__ void mark(unsigned long long *copied, unsigned int &marked) {
  arrive(copied + marked % batches);
  ++marked;
}
template <unsigned int batches>
__device__ static __forceinline__ void await_turn(unsigned long long *turned, unsigned int &turn) {
  await(turned + turn % batches, turn / batches);
  ++turn;
}
template <unsigned int batches, unsigned int most>
__device__ static __forceinline__ void take_turn(unsigned long long *copied, unsigned long long *turned,
    unsigned int marked, unsigned int &awaited, unsigned int &turn) {
  __syncwarp();
  if (lane() == 0) arrive(turned + turn % batches);
  ++turn;
  for (; awaited + most < marked; ++awaited) await(copied + awaited % batches, awaited / batches);
  __syncwarp();
}
template <int bytes> __device__ static __forceinline__ void expect(unsigned long long *copied) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
    :: "r"(shared_address(copied)), "n"(bytes) : "memory");
}
"#;

/// The function that copies boxes of tensors with so many dimensions, or windows, whose elements are at some distance
/// from their beginnings along all dimensions but the first and the last.
pub(crate) fn bulk_copy(dimensions: usize, windows: bool) -> String {
    let distances = if windows { dimensions - 2 } else { 0 };
    let list =
        |count: usize, text: &dyn Fn(usize) -> String| (0..count).map(text).collect::<Vec<_>>().join(", ");
    let parameters = list(dimensions + distances, &|i| format!("int at{i}"));
    let coordinates = list(dimensions, &|i| format!("%{}", 3 + i));
    let operands = list(dimensions + distances, &|i| match i < dimensions {
        true => format!("\"r\"(at{i})"),
        false => format!("\"h\"((unsigned short)at{i})"),
    });
    let (name, mode) = if windows { ("windows", ".im2col") } else { ("box", "") };
    let distances = match windows {
        true => format!(", {{{}}}", list(distances, &|i| format!("%{}", 3 + dimensions + i))),
        false => String::new(),
    };
    format!(
        r#"template <int bytes> __device__ static __forceinline__ void copy_{name}_{dimensions}(
    void *to, const bulk_tensor *tensor, unsigned long long *copied, {parameters}) {{
  expect<bytes>(copied);
  asm volatile("cp.async.bulk.tensor.{dimensions}d.shared::cluster.global{mode}.mbarrier::complete_tx::bytes "
    "[%0], [%1, {{{coordinates}}}], [%2]{distances};"
    :: "r"(shared_address(to)), "l"(tensor), "r"(shared_address(copied)), {operands} : "memory");
}}
"#
    )
}
