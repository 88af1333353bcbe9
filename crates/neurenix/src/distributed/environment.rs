//! What launchers tell their processes in environment variables.

use std::{env, net::IpAddr, str::FromStr};

use crate::{Error, Result};

/// The program that started the processes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// None: the process is alone.
    Single,
    /// `torchrun`, or any other that sets `RANK` and `WORLD_SIZE`.
    Torchrun,
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpiexec` of MPICH and its relatives, which start processes through Hydra.
    Mpich,
    /// `srun` of SLURM.
    Slurm,
}

/// The place of this process in its job.
///
/// | | rank, world size | local rank, local world size | address of rank 0 |
/// |---|---|---|---|
/// | torchrun | `RANK`, `WORLD_SIZE` | `LOCAL_RANK`, `LOCAL_WORLD_SIZE` | `MASTER_ADDR`, `MASTER_PORT` |
/// | Open MPI | `OMPI_COMM_WORLD_RANK`, `_SIZE` | `OMPI_COMM_WORLD_LOCAL_RANK`, `_LOCAL_SIZE` | the same |
/// | MPICH | `PMI_RANK`, `PMI_SIZE` | `MPI_LOCALRANKID`, `MPI_LOCALNRANKS` | the same |
/// | SLURM | `SLURM_PROCID`, `SLURM_NTASKS` | `SLURM_LOCALID`, `SLURM_NTASKS_PER_NODE` | the same |
///
/// The first row that is set counts. SLURM's variables count only in a step that `srun` started: in the script of
/// `sbatch` they describe the allocation. Empty variables count as unset.
///
/// Without `MASTER_ADDR`, the address is 127.0.0.1 if all ranks are on one host; under SLURM it is otherwise the first
/// host of `SLURM_STEP_NODELIST`, or else `SLURM_LAUNCH_NODE_IPADDR`. Without `MASTER_PORT`, the port is derived from
/// the job's identity, if Open MPI or SLURM gives one.
///
/// If `TORCHELASTIC_USE_AGENT_STORE` is `True`, torchrun's own store listens at `MASTER_PORT`. It has another protocol,
/// so the port is the next one, `MASTER_PORT` + 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// This process's number, from 0.
    pub rank: usize,
    /// The number of processes.
    pub world_size: usize,
    /// This process's number among those on its host. Without variables that say it, the rank if `MASTER_ADDR` is
    /// this host, else 0.
    pub local_rank: usize,
    /// The number of processes on this host: at least this many, if the launcher does not say.
    pub local_world_size: usize,
    /// Who started the processes.
    pub launcher: Launcher,
    /// A name or an address of the host of rank 0.
    pub master_addr: Option<String>,
    /// The port at which rank 0 opens the job's [store](super::Store).
    pub master_port: Option<u16>,
    /// How often torchrun has restarted the processes.
    pub restart_count: u32,
}

/// The variables of a launcher.
struct Row {
    launcher: Launcher,
    rank: &'static str,
    size: &'static str,
    local_rank: &'static str,
    local_size: &'static str,
}

const ROWS: [Row; 4] = [
    Row {
        launcher: Launcher::Torchrun,
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_size: "LOCAL_WORLD_SIZE",
    },
    Row {
        launcher: Launcher::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
    },
    Row {
        launcher: Launcher::Mpich,
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        local_size: "MPI_LOCALNRANKS",
    },
    Row {
        launcher: Launcher::Slurm,
        rank: "SLURM_PROCID",
        size: "SLURM_NTASKS",
        local_rank: "SLURM_LOCALID",
        local_size: "SLURM_NTASKS_PER_NODE",
    },
];

/// Step numbers from here on are not those of `srun`: batch scripts, interactive shells, external processes.
const SPECIAL_STEPS: u32 = 0xffff_fff0;

impl Environment {
    /// Reads this process's environment.
    ///
    /// # Errors
    /// As [`Environment::read`].
    pub fn from_process() -> Result<Environment> {
        Environment::read(process_variable)
    }

    /// Reads an environment through a function that returns the value of a variable.
    ///
    /// # Errors
    /// [`Error::Environment`] if variables are half set, not numbers, or contradict each other.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Environment> {
        let variables = Variables(&lookup);
        for row in &ROWS {
            if let Some((rank, size)) = variables.place(row)? {
                return variables.environment(row, rank, size);
            }
        }
        Ok(Environment {
            rank: 0,
            world_size: 1,
            local_rank: 0,
            local_world_size: 1,
            launcher: Launcher::Single,
            master_addr: None,
            master_port: None,
            restart_count: 0,
        })
    }
}

/// The value of a variable of this process.
pub(super) fn process_variable(name: &str) -> Option<String> {
    env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Whether an address names this host by its loopback interface.
pub(super) fn is_loopback(address: &str) -> bool {
    address == "localhost" || address.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

struct Variables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn number<T: FromStr>(&self, name: &'static str) -> Result<Option<T>> {
        let parse = |text: String| {
            let wrong = |_| Error::environment(name, format!("expected a whole number, got {text:?}"));
            text.parse().map_err(wrong)
        };
        self.text(name).map(parse).transpose()
    }

    /// The number of the step that `srun` started.
    fn step(&self) -> Option<u32> {
        let step = self.text("SLURM_STEP_ID").or_else(|| self.text("SLURM_STEPID"))?;
        step.parse().ok().filter(|step| *step < SPECIAL_STEPS)
    }

    /// The rank and the world size, if this launcher started the process.
    fn place(&self, row: &Row) -> Result<Option<(usize, usize)>> {
        let is_step = self.step().is_some();
        match row.launcher {
            Launcher::Slurm if !is_step => return Ok(None),
            // `srun --mpi=pmi2` sets PMI_RANK and PMI_SIZE, but not Hydra's other variables.
            Launcher::Mpich if is_step && self.text(row.local_rank).is_none() => return Ok(None),
            _ => {}
        }
        let (rank, size) = match (self.number(row.rank)?, self.number(row.size)?) {
            (None, None) => return Ok(None),
            (Some(rank), Some(size)) => (rank, size),
            (Some(_), None) => return Err(half(row.size, row.rank)),
            (None, Some(_)) => return Err(half(row.rank, row.size)),
        };
        below(row.rank, rank, row.size, size)?;
        Ok(Some((rank, size)))
    }

    fn environment(&self, row: &Row, rank: usize, world_size: usize) -> Result<Environment> {
        let addr = self.text("MASTER_ADDR");
        let is_here = addr.as_deref().is_some_and(is_loopback);
        let is_slurm = row.launcher == Launcher::Slurm;
        let (local_rank, local_world_size) =
            match (self.number(row.local_rank)?, self.number(row.local_size)?) {
                // The number per node may be that of the allocation, of which the step is a part.
                (Some(rank), size) if is_slurm => (rank, self.on_node(size, rank, world_size)),
                (Some(rank), Some(size)) => (rank, size),
                (Some(rank), None) => (rank, if is_here { world_size } else { rank + 1 }),
                (None, Some(_)) if !is_slurm => return Err(half(row.local_rank, row.local_size)),
                (None, _) => {
                    if is_here {
                        (rank, world_size)
                    } else {
                        (0, 1)
                    }
                }
            };
        below(row.local_rank, local_rank, row.local_size, local_world_size)?;
        if local_world_size > world_size {
            let message = format!(
                "it is {local_world_size}, but {} is {world_size}: a host has no more processes than the job",
                row.size
            );
            return Err(Error::environment(row.local_size, message));
        }
        let is_one_host = local_world_size == world_size;
        let addr = addr.or_else(|| is_one_host.then(|| "127.0.0.1".to_owned()));
        let addr = addr.or_else(|| is_slurm.then(|| self.first_node()).flatten());
        Ok(Environment {
            rank,
            world_size,
            local_rank,
            local_world_size,
            launcher: row.launcher,
            master_addr: addr,
            master_port: self.port(row.launcher)?,
            restart_count: self.number("TORCHELASTIC_RESTART_COUNT")?.unwrap_or(0),
        })
    }

    /// The number of processes of SLURM's step on this host.
    fn on_node(&self, per_node: Option<usize>, local_rank: usize, world_size: usize) -> usize {
        match self.text("SLURM_STEP_NUM_NODES").as_deref() {
            Some("1") => world_size,
            _ => per_node.unwrap_or(0).min(world_size).max(local_rank.saturating_add(1)),
        }
    }

    /// The host of rank 0 under SLURM.
    fn first_node(&self) -> Option<String> {
        let first = self.text("SLURM_STEP_NODELIST").and_then(|list| first_host(&list));
        first.or_else(|| self.text("SLURM_LAUNCH_NODE_IPADDR"))
    }

    fn port(&self, launcher: Launcher) -> Result<Option<u16>> {
        const PORT: &str = "MASTER_PORT";
        if let Some(port) = self.number::<u16>(PORT)? {
            let is_taken = self.text("TORCHELASTIC_USE_AGENT_STORE");
            let next = u16::from(is_taken.is_some_and(|value| value.eq_ignore_ascii_case("true")));
            return match port.checked_add(next) {
                Some(0) => Err(Error::environment(PORT, "expected a port from 1 to 65535, got 0")),
                Some(port) => Ok(Some(port)),
                None => {
                    let message =
                        "torchrun's store has port 65535, and the next one is needed: use a lower port";
                    Err(Error::environment(PORT, message))
                }
            };
        }
        let mut job = Vec::new();
        if launcher != Launcher::Torchrun {
            job.extend(["OMPI_MCA_orte_hnp_uri", "PMIX_NAMESPACE"].iter().filter_map(|name| self.text(name)));
            if let (Some(id), Some(step)) = (self.text("SLURM_JOB_ID"), self.step()) {
                job.push(format!("{id}.{step}"));
            }
        }
        Ok((!job.is_empty()).then(|| port_of(&job.join(" "))))
    }
}

/// A port for a job, which all its processes find.
fn port_of(job: &str) -> u16 {
    // FNV-1a.
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = job.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    20_000 + (hash % 40_000) as u16
}

/// The first host of a list such as `node[03-05,07],other`.
fn first_host(list: &str) -> Option<String> {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (prefix, rest) = list.split_at(end);
    let first = match rest.strip_prefix('[') {
        Some(ranges) => {
            let (ranges, suffix) = ranges.split_once(']')?;
            let number = ranges.split([',', '-']).next()?;
            format!("{prefix}{number}{}", suffix.split(',').next()?)
        }
        None => prefix.to_owned(),
    };
    (!first.is_empty() && !first.contains('[')).then_some(first)
}

fn half(missing: &'static str, set: &'static str) -> Error {
    Error::environment(missing, format!("it is not set, but {set} is: set both, or neither"))
}

fn below(name: &'static str, rank: usize, of: &'static str, size: usize) -> Result<()> {
    match size {
        0 => Err(Error::environment(of, "it is 0: a job has at least one process")),
        _ if rank >= size => {
            let message = format!("it is {rank}, but {of} is {size}: expected 0 to {}", size - 1);
            Err(Error::environment(name, message))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
