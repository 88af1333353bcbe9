//! The suite's kernels compiled for an architecture, without a device of it.

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

use super::{Options, kernels, kinds::kind, large};
use crate::{Error, Result};

/// What came of compiling.
#[derive(Clone, Debug, Serialize)]
pub struct Compiled {
    /// The architecture.
    pub architecture: String,
    /// How many different kernels there are.
    pub kernels: usize,
    /// The size of their machine code.
    pub bytes: usize,
    /// Those that the compiler refused: the kernel's name, and the compiler's words.
    pub failures: Vec<(String, String)>,
}

impl Compiled {
    /// True if everything was compiled.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

impl fmt::Display for Compiled {
    /// The counts, then the failures.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compiled { architecture, kernels, bytes, failures } = self;
        let failed = failures.len();
        let kernels = counted(*kernels, "kernel");
        writeln!(f, "{architecture}: {kernels}, {bytes} bytes of machine code, {failed} failed")?;
        failures.iter().try_for_each(|(name, message)| writeln!(f, "\n{name}: {message}"))
    }
}

type Compile = Box<dyn Fn(&Kernel) -> Result<usize, String> + Sync>;

/// What kernels for an architecture can have, what compiles one, and how many threads may do so at a time.
fn compiler(architecture: &str) -> Result<(Target, Compile, usize)> {
    let refused = |reason: String| Error::data("architecture", reason);
    match architecture {
        #[cfg(feature = "cuda")]
        name if name.starts_with("sm_") => {
            let cuda = phynexus_cuda::Architecture::new(name).map_err(refused)?;
            let threads = thread::available_parallelism().map_or(1, usize::from);
            Ok((cuda.target().clone(), Box::new(move |kernel| cuda.compile(kernel)), threads))
        }
        #[cfg(feature = "hip")]
        name if name.starts_with("gfx") => {
            let hip = phynexus_hip::Architecture::new(name).map_err(refused)?;
            // Nobody promises that hipRTC compiles in several threads.
            Ok((hip.target().clone(), Box::new(move |kernel| hip.compile(kernel)), 1))
        }
        other => Err(refused(format!(
            "{other:?} is neither NVIDIA's, such as sm_80, nor AMD's, such as gfx90a, that this program was built for"
        ))),
    }
}

/// Compiles every kernel that the suite's cases become on a GPU of this architecture, by NVIDIA's name (`sm_80`; NVRTC is
/// needed, no GPU) or by AMD's (`gfx90a`; hipRTC is needed). An architecture that hipRTC does not know may end the process.
/// With `kinds`, of kernels that one template makes for the same element types only one is compiled.
///
/// # Errors
/// If the architecture is unknown, or its compiler not installed.
pub fn compile(architecture: &str, kinds: bool, options: &Options) -> Result<Compiled> {
    let (target, compile, threads) = compiler(architecture)?;
    let (device, recorded) = recorder(target.clone());
    let mut kernels = kernels(target, options);
    if options.filter.is_none() && options.part.0 == 0 {
        large::run_unchecked(device);
    }
    let mut large = recorded.take();
    if kinds {
        // Large work has kernels of the same kinds, with the largest tiles.
        for kernels in [&mut kernels, &mut large] {
            let mut seen = HashSet::new();
            kernels.retain(|kernel| seen.insert(kind(kernel)));
        }
    }
    kernels.extend(large);
    let (next, bytes, failures) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(kernel) = kernels.get(next.fetch_add(1, Ordering::Relaxed)) {
            match compile(kernel) {
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
        // Where no thread can be had, this one does it.
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
