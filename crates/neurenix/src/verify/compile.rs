//! Compiles the suite's kernels for an architecture without needing a device.

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use phynexus::{
    gpu::recorder,
    kernel::{loops::Kernel, lower::Target},
    text::counted,
};
use serde::Serialize;

use super::{Options, kernel_kinds::kernel_kind, kernels, large};
use crate::{Error, Result};

/// The result of compiling the suite's kernels.
#[derive(Clone, Debug, Serialize)]
pub struct Compiled {
    /// The architecture.
    pub architecture: String,
    /// The number of distinct kernels.
    pub kernels: usize,
    /// The size of their machine code in bytes.
    pub bytes: usize,
    /// The kernels that the compiler rejected: name and compiler messages.
    pub failures: Vec<(String, String)>,
}

impl Compiled {
    /// True if every kernel compiled.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

impl fmt::Display for Compiled {
    /// Prints the counts, then the failures.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compiled { architecture, kernels, bytes, failures } = self;
        let failed = failures.len();
        let kernels = counted(*kernels, "kernel");
        writeln!(f, "{architecture}: {kernels}, {bytes} bytes of machine code, {failed} failed")?;
        failures.iter().try_for_each(|(name, message)| writeln!(f, "\n{name}: {message}"))
    }
}

/// Compiles a kernel with its numbers built in, or all of them as arguments.
type Compile = Box<dyn Fn(&Kernel, bool) -> Result<usize, String> + Sync>;

/// The features of an architecture, its compiler, and the number of threads that may use the compiler at once.
fn compiler(architecture: &str) -> Result<(Target, Compile, usize)> {
    let refused = |reason: String| Error::data("architecture", reason);
    match architecture {
        #[cfg(feature = "cuda")]
        name if name.starts_with("sm_") => {
            let cuda = phynexus_cuda::Architecture::new(name).map_err(refused)?;
            let threads = thread::available_parallelism().map_or(1, usize::from);
            Ok((
                cuda.target().clone(),
                Box::new(move |kernel, general| cuda.compile(kernel, general)),
                threads,
            ))
        }
        #[cfg(feature = "hip")]
        name if name.starts_with("gfx") => {
            let hip = phynexus_hip::Architecture::new(name).map_err(refused)?;
            // hipRTC is not documented to be thread-safe.
            Ok((hip.target().clone(), Box::new(move |kernel, general| hip.compile(kernel, general)), 1))
        }
        other => Err(refused(format!(
            "{other:?} is not an architecture that this program was built for: use one of NVIDIA's, such as sm_80, or AMD's, such as gfx90a"
        ))),
    }
}

/// Compiles every kernel that the suite's cases use on a GPU of this architecture. No GPU is needed, only the compiler:
/// NVRTC for NVIDIA architectures (`sm_80`) or hipRTC for AMD architectures (`gfx90a`). hipRTC may abort the process if
/// it does not know the architecture. With `kinds`, only one kernel per template and combination of element types is
/// compiled, those of small cases in two forms: with their numbers built in, and with all of them as
/// arguments.
///
/// # Errors
/// If the architecture is unknown or its compiler is not installed.
pub fn compile(architecture: &str, kinds: bool, options: &Options) -> Result<Compiled> {
    let (target, compile, threads) = compiler(architecture)?;
    let (device, recorded) = recorder(target.clone());
    let mut kernels = kernels(target, options);
    if options.filter.is_none() && options.part.0 == 0 {
        large::run_unchecked(device);
    }
    let mut large = recorded.take();
    if kinds {
        // Large work uses the same kinds of kernels with the largest tiles.
        for kernels in [&mut kernels, &mut large] {
            let mut seen = HashSet::new();
            kernels.retain(|kernel| seen.insert(kernel_kind(kernel)));
        }
    }
    // Kernels of large work with all of their numbers as arguments take gigabytes to compile, and occur nowhere else.
    let in_two_forms = if kinds { kernels.len() } else { 0 };
    kernels.extend(large);
    let (next, bytes, failures) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        let take = || {
            let at = next.fetch_add(1, Ordering::Relaxed);
            kernels.get(at).map(|kernel| (at, kernel))
        };
        while let Some((at, kernel)) = take() {
            let general = || if at < in_two_forms { compile(kernel, true) } else { Ok(0) };
            match compile(kernel, false).and_then(|size| Ok(size + general()?)) {
                Ok(size) => drop(bytes.fetch_add(size, Ordering::Relaxed)),
                Err(message) => {
                    failures
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((kernel.name.clone(), message));
                }
            }
        }
    };
    thread::scope(|scope| {
        // If no thread can be started, this thread does the work.
        let begun = (0..threads).filter(|_| thread::Builder::new().spawn_scoped(scope, work).is_ok());
        if begun.count() == 0 {
            work();
        }
    });
    Ok(Compiled {
        architecture: architecture.to_owned(),
        kernels: kernels.len(),
        bytes: bytes.into_inner(),
        failures: failures.into_inner().unwrap_or_else(PoisonError::into_inner),
    })
}
