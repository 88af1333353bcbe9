//! Ranks that are killed, and a host that is cut off, while others train.

use std::{
    fs,
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use super::{HOSTS, Job, LIMIT, Network, host, ip, port};
use crate::succeed;

/// The rank at fault, and the number of its host.
const CULPRIT: usize = HOSTS - 1;
/// Longer than any failure takes to be noticed.
const ENDLESS: [&str; 4] = ["--epochs", "1000000", "--patience", "1000000"];
/// What a busy machine may add to a limit.
const SLACK: Duration = Duration::from_secs(10);

/// The limits over TCP are those of `neurenix::distributed::Tcp`. Those over MPI are not promised: Open MPI's daemons
/// end the ranks.
pub(super) fn check(network: &Network<'_>) -> Result<(), String> {
    let mut job = network.by_tcp(HOSTS, "tcp-killed", &ENDLESS)?;
    network.wait_for_checkpoint("tcp-killed", &mut job)?;
    let begun = Instant::now();
    job.0[CULPRIT].child.kill().map_err(|e| format!("rank {CULPRIT} cannot be killed: {e}"))?;
    job.expect_failure(begun, 1, &format!("rank {CULPRIT}"))?;

    let mut job = network.by_mpi(HOSTS, "mpi-killed", &ENDLESS)?;
    network.wait_for_checkpoint("mpi-killed", &mut job)?;
    let ranks = network.ranks("mpi-killed")?;
    let found = ranks.iter().find(|(rank, _)| *rank == CULPRIT);
    let (_, process) = found.ok_or_else(|| format!("rank {CULPRIT} is not among {ranks:?}"))?;
    let begun = Instant::now();
    succeed(Command::new("kill").args(["-KILL", process]))?;
    job.expect_failure(begun, 10, &format!("rank {CULPRIT}"))?;
    network.expect_no_ranks("mpi-killed")?;

    let mut tcp = network.by_tcp(HOSTS, "tcp-cut", &ENDLESS)?;
    let mut mpi = network.by_mpi(HOSTS, "mpi-cut", &ENDLESS)?;
    network.wait_for_checkpoint("tcp-cut", &mut tcp)?;
    network.wait_for_checkpoint("mpi-cut", &mut mpi)?;
    let begun = Instant::now();
    ip(&format!("link set {} down", port(CULPRIT)))?;
    mpi.expect_failure(begun, 20, &host(CULPRIT))?;
    network.expect_no_ranks("mpi-cut")?;
    let apart = tcp.0.pop();
    tcp.expect_failure(begun, 91, &format!("rank {CULPRIT}"))?;
    // The rank that is cut off names whichever it misses first.
    Job(apart.into_iter().collect()).expect_failure(begun, 91, "has ended")
}

impl Network<'_> {
    /// Waits until a job has trained for an epoch.
    fn wait_for_checkpoint(&self, name: &str, job: &mut Job) -> Result<(), String> {
        let until = Instant::now() + LIMIT;
        while !self.folder.join(name).join("checkpoint.safetensors").exists() {
            job.look()?;
            if let Some(ended) = job.0.iter().find(|member| member.ended.is_some()) {
                return Err(format!("{name} ended early: {}", ended.said()?));
            }
            if Instant::now() > until {
                return Err(format!("{name} wrote no checkpoint within {} s", LIMIT.as_secs()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The running ranks of a job that Open MPI started, and their process numbers.
    fn ranks(&self, name: &str) -> Result<Vec<(usize, String)>, String> {
        let folder = self.folder.join(name).display().to_string();
        let entries = fs::read_dir("/proc").map_err(|e| format!("/proc: {e}"))?;
        let words = |path: PathBuf| -> Vec<String> {
            // What cannot be read has ended.
            let text = fs::read(path).unwrap_or_default();
            text.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
        };
        let ranks = entries.flatten().filter_map(|entry| {
            let is_member = words(entry.path().join("cmdline")).contains(&folder);
            let variables = if is_member { words(entry.path().join("environ")) } else { Vec::new() };
            let rank = variables.iter().find_map(|text| text.strip_prefix("OMPI_COMM_WORLD_RANK="))?;
            Some((rank.parse().ok()?, entry.file_name().into_string().ok()?))
        });
        Ok(ranks.collect())
    }

    fn expect_no_ranks(&self, name: &str) -> Result<(), String> {
        let until = Instant::now() + SLACK;
        loop {
            let ranks = self.ranks(name)?;
            if ranks.is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(format!("{name}: these ranks and processes go on after the job: {ranks:?}"));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Job {
    /// Waits until all have ended. Those that were not killed must have ended with an error, within a number of seconds,
    /// that names what is at fault.
    fn expect_failure(mut self, begun: Instant, seconds: u64, names: &str) -> Result<(), String> {
        let limit = Duration::from_secs(seconds) + SLACK;
        self.wait(limit.saturating_sub(begun.elapsed()))?;
        for member in &self.0 {
            let Some((status, at)) = member.ended else { continue };
            // The one that was killed.
            if status.code().is_none() {
                continue;
            }
            let (log, said) = (member.log.display(), member.said()?);
            let time = (at - begun).as_secs_f64();
            println!("{log}: {status} after {time:.1} s; the limit is {seconds} s");
            if status.success() || !said.contains(names) {
                return Err(format!("{log} does not fail because of {names}: {said}"));
            }
        }
        Ok(())
    }
}
