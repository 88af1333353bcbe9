//! Runs a lowered step on the host by interpreting its loop trees.

use super::{
    device::{address, read, write},
    interpret::interpret,
};
use crate::dtype::read_scalars;
use crate::{
    DType, Error, Result, Scalar,
    device::{Binding, Executable},
    dtype::scalar_bytes,
    kernel::step::Step,
    kernel::{
        loops::BufferParameter,
        lower::{Argument, Launch, Lowered, Source, Target, Unsupported, lower},
        print::{Language, Products, print},
    },
};

/// A language that has everything. Its sources are not compiled.
static COMPLETE: Language = Language {
    matrices: Some(""),
    products: Some(Products {
        common: "",
        functions: |_| String::new(),
        bulk: "",
        bulk_copy: |_, _| String::new(),
        tensor: "{name}",
    }),
    async_copies: true,
    grid_barrier: Some(""),
    ..Language::CPP
};

pub(super) struct LoweredStep {
    lowered: Lowered,
    subgroup: usize,
}

impl LoweredStep {
    pub(super) fn new(device: &str, step: &Step, target: &Target) -> Result<LoweredStep> {
        let subgroup = target.limits.subgroup.unwrap_or(1);
        let refused =
            |reason: Unsupported| Error::Unsupported { device: device.to_owned(), message: reason.0 };
        let lowered = lower(step, target).map_err(refused)?;
        // Check that everything interpreted can be printed too.
        lowered.launches.iter().try_for_each(|launch| print(&launch.kernel, &COMPLETE).map(drop))?;
        Ok(LoweredStep { lowered, subgroup })
    }

    fn launch(&self, launch: &Launch, bindings: &[Binding], temporaries: &mut [Vec<u8>]) -> Result<()> {
        let pairs = || launch.arguments.iter().zip(&launch.kernel.buffers);
        let mut buffers = pairs()
            .map(|(argument, parameter)| load(argument, parameter, bindings, temporaries))
            .collect::<Result<Vec<_>>>()?;
        let before = buffers.clone();
        interpret(&launch.kernel, self.subgroup, &mut buffers, &[])?;
        for ((argument, parameter), (old, new)) in pairs().zip(before.iter().zip(&buffers)) {
            if parameter.written {
                store(argument, parameter.dtype, bindings, temporaries, old, new)?;
            }
        }
        Ok(())
    }
}

impl Executable for LoweredStep {
    fn run(&self, bindings: &[Binding]) -> Result<()> {
        let mut temporaries: Vec<Vec<u8>> = self.lowered.temporaries.iter().map(|&n| vec![0xA5; n]).collect();
        // The last one is the status.
        temporaries.push(vec![0; DType::U32.size()]);
        let mut launches = self.lowered.launches.iter();
        launches.try_for_each(|launch| self.launch(launch, bindings, &mut temporaries))?;
        match temporaries.last().is_some_and(|status| status.iter().all(|&byte| byte == 0)) {
            true => Ok(()),
            false => Err(Error::argument("index", "an index is out of range")),
        }
    }
}

/// The elements of a parameter. It may extend beyond its memory where nothing is accessed.
fn load(
    argument: &Argument,
    parameter: &BufferParameter,
    bindings: &[Binding],
    temporaries: &[Vec<u8>],
) -> Result<Vec<Scalar>> {
    let size = parameter.dtype.size();
    let element = |at: i64| {
        let start = (argument.start + at) * size as i64;
        let mut bytes = vec![0xA5; size];
        match argument.source {
            Source::Binding(binding) => {
                let binding = bindings.get(binding).ok_or_else(unbound)?;
                if let Ok(start) = address(binding, start)
                    && start + size <= binding.buffer.size()
                {
                    read(&binding.buffer, start, &mut bytes)?;
                }
            }
            Source::Temporary(_) | Source::Status => {
                let memory =
                    temporaries.get(at_host(argument.source, temporaries.len())).ok_or_else(unbound)?;
                let start = usize::try_from(start).map_err(|_| unbound())?;
                bytes.copy_from_slice(memory.get(start..start + size).ok_or_else(unbound)?);
            }
        }
        read_scalars(&bytes, parameter.dtype).first().copied().ok_or_else(unbound)
    };
    (0..parameter.length as i64).map(element).collect()
}

/// Writes back the elements that changed.
fn store(
    argument: &Argument,
    dtype: DType,
    bindings: &[Binding],
    temporaries: &mut [Vec<u8>],
    old: &[Scalar],
    new: &[Scalar],
) -> Result<()> {
    for (at, (old, new)) in old.iter().zip(new).enumerate() {
        // Unwritten memory may hold an invalid bool that reads as a valid one, so always write bools back.
        if old == new && dtype != DType::Bool {
            continue;
        }
        let bytes = scalar_bytes(*new, dtype);
        let start = (argument.start + at as i64) * dtype.size() as i64;
        match argument.source {
            Source::Binding(binding) => {
                let binding = bindings.get(binding).ok_or_else(unbound)?;
                write(&binding.buffer, address(binding, start)?, &bytes)?;
            }
            Source::Temporary(_) | Source::Status => {
                let at = at_host(argument.source, temporaries.len());
                let memory = temporaries.get_mut(at).ok_or_else(unbound)?;
                let start = usize::try_from(start).map_err(|_| unbound())?;
                memory.get_mut(start..start + bytes.len()).ok_or_else(unbound)?.copy_from_slice(&bytes);
            }
        }
    }
    Ok(())
}

/// The position in the host's list of buffers; the status is the last one.
fn at_host(source: Source, count: usize) -> usize {
    if let Source::Temporary(temporary) = source { temporary } else { count - 1 }
}

fn unbound() -> Error {
    Error::internal("oracle::lowered", "the parameter has no memory")
}
