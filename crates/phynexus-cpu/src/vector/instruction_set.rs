//! The vector instructions that the kernels use, selected at run time.

use std::sync::OnceLock;

/// A set of vector instructions for which every kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InstructionSet {
    /// The baseline of the target: SSE2 on x86-64.
    Plain,
    /// 128-bit vectors of 64-bit Arm, part of its baseline.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// 256-bit vectors with fused multiply-add (x86-64-v3).
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 512-bit vectors (x86-64-v4: AVX-512 F, BW, DQ, VL).
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl InstructionSet {
    /// The sets that this processor supports, slowest first.
    pub fn available() -> Vec<InstructionSet> {
        let mut sets = Vec::new();
        #[cfg(not(target_arch = "aarch64"))]
        sets.push(InstructionSet::Plain);
        #[cfg(target_arch = "aarch64")]
        sets.push(InstructionSet::Neon);
        #[cfg(target_arch = "x86_64")]
        {
            let v3 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt");
            if v3 {
                sets.push(InstructionSet::Avx2);
            }
            if v3
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
            {
                sets.push(InstructionSet::Avx512);
            }
        }
        sets
    }

    /// The fastest set that this processor supports.
    pub fn best() -> InstructionSet {
        static BEST: OnceLock<InstructionSet> = OnceLock::new();
        *BEST.get_or_init(|| InstructionSet::available().pop().unwrap_or(InstructionSet::Plain))
    }

    /// The name in listings, such as `"avx512"`.
    pub fn name(self) -> &'static str {
        match self {
            InstructionSet::Plain => "plain",
            #[cfg(target_arch = "aarch64")]
            InstructionSet::Neon => "neon",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => "avx512",
        }
    }
}
