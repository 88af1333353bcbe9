//! What started this process, as the environment tells.

use std::env;

/// A program that starts the processes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Launcher {
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpiexec` of MPICH (Hydra) and of its derivatives, and SLURM's `srun --mpi=pmi2`.
    Pmi,
    /// `prterun`, and SLURM's `srun --mpi=pmix`: for every implementation.
    Pmix,
    /// None that provides MPI.
    None,
}

impl Launcher {
    /// Reads the environment. Also returns the number of processes, if the launcher tells.
    pub(crate) fn find() -> (Launcher, Option<usize>) {
        Launcher::from(&|name| env::var(name).ok())
    }

    fn from(variable: &dyn Fn(&str) -> Option<String>) -> (Launcher, Option<usize>) {
        let number = |name| variable(name).and_then(|value| value.parse().ok());
        let is_set = |names: &[&str]| names.iter().any(|name| variable(name).is_some());
        // Open MPI 5 sets PMIx's variables too.
        if is_set(&["OMPI_COMM_WORLD_SIZE"]) {
            (Launcher::OpenMpi, number("OMPI_COMM_WORLD_SIZE"))
        } else if is_set(&["PMI_SIZE", "PMI_RANK", "PMI_FD"]) {
            (Launcher::Pmi, number("PMI_SIZE"))
        } else if is_set(&["PMIX_RANK"]) {
            (Launcher::Pmix, None)
        } else {
            (Launcher::None, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_recognised() {
        let from = |set: &[(&str, &str)]| {
            let find = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, v)| (*v).to_owned());
            Launcher::from(&find)
        };
        let open_mpi_5 = [("OMPI_COMM_WORLD_SIZE", "4"), ("PMIX_RANK", "1")];
        assert_eq!(from(&open_mpi_5), (Launcher::OpenMpi, Some(4)));
        assert_eq!(from(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]), (Launcher::Pmi, Some(2)));
        assert_eq!(from(&[("PMIX_RANK", "0")]), (Launcher::Pmix, None));
        // torchrun's.
        assert_eq!(from(&[("RANK", "0"), ("WORLD_SIZE", "2")]), (Launcher::None, None));
    }
}
