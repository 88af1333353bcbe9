//! Kernel kinds: the kernels that one template generates for the same element types.

use std::collections::HashSet;

use phynexus::{
    DType,
    gpu::recorder,
    kernel::{loops::Kernel, lower::Target},
    oracle::generate::random_case,
};

use super::{Cases, execute::guarded, execute::run_unchecked};

/// The properties that kernels of one kind share.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct KernelKind {
    name: String,
    /// The element type of each buffer, and whether the kernel writes it.
    buffers: Vec<(DType, bool)>,
    /// The number of distinct element types in shared arrays and in registers.
    arrays: [usize; 2],
    fragments: usize,
}

/// Returns the kind of a kernel.
pub(super) fn kernel_kind(kernel: &Kernel) -> KernelKind {
    KernelKind {
        name: kernel.name.clone(),
        buffers: kernel.buffers.iter().map(|b| (b.dtype, b.written)).collect(),
        arrays: [&kernel.shared, &kernel.registers]
            .map(|arrays| arrays.iter().map(|array| array.dtype).collect::<HashSet<_>>().len()),
        fragments: kernel.fragments.len(),
    }
}

impl Cases {
    /// Removes cases that only need kernels of kinds that an earlier case has. Whether a kernel runs one or several
    /// groups counts as a difference.
    pub(super) fn one_of_a_kind(&mut self, target: &Target, operations: usize) {
        let (device, recorded) = recorder(target.clone());
        let mut seen = HashSet::new();
        let mut has_new = || {
            let kinds =
                recorded.take().into_iter().map(|k| (kernel_kind(&k), k.grid().iter().any(|&n| n > 1)));
            let known = seen.len();
            seen.extend(kinds);
            seen.len() > known
        };
        self.entries.retain(|entry| {
            drop(guarded(|| run_unchecked(&(entry.case)(), device)));
            has_new()
        });
        self.programs.retain(|program| {
            drop(guarded(|| (program.run)(device)));
            has_new()
        });
        self.graphs.retain(|&seed| {
            drop(guarded(|| run_unchecked(&random_case(seed, operations), device)));
            has_new()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::{Options, kernels};
    use phynexus::kernel::check::Limits;

    fn target() -> Target {
        let limits = Limits {
            device: "kinds:0".to_owned(),
            bindings: 16,
            shared_bytes: 32 << 10,
            block: [256; 3],
            block_size: 256,
            grid: [65535; 3],
            subgroup: Some(32),
            dtypes: DType::ALL.to_vec(),
            matrices: Vec::new(),
            quads: false,
            async_copies: false,
            meeting_groups: 0,
        };
        Target { limits, vector_bytes: 16, processors: 16, sums: 64 }
    }

    #[test]
    fn every_kind_keeps_a_case() {
        let options =
            Options { filter: Some("layer_norm".to_owned()), random_graphs: 0, ..Options::default() };
        let all: HashSet<KernelKind> = kernels(target(), &options).iter().map(kernel_kind).collect();
        let mut cases = Cases::of(&options);
        let before = cases.entries.len();
        cases.one_of_a_kind(&target(), options.operations);
        assert!((1..before).contains(&cases.entries.len()), "{} of {before}", cases.entries.len());
        let (device, recorded) = recorder(target());
        cases.entries.iter().for_each(|entry| drop(guarded(|| run_unchecked(&(entry.case)(), device))));
        let kept: HashSet<KernelKind> = recorded.take().iter().map(kernel_kind).collect();
        assert!(kept == all && !all.is_empty());
    }
}
