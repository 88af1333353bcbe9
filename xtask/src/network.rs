//! Training on several hosts, which are network namespaces joined by a bridge.
//!
//! The stage runs in namespaces of processes, mounts and networks that end with it, even if it is killed. The network of
//! this machine does not change.

mod failures;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{cargo, devices, install, root, succeed};

/// What must be installed: where each is, and the Debian package that provides it.
const TOOLS: [(&[&str], &[&str]); 2] =
    [(&["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip"], &["iproute2"]), (&[MPIRUN], &["openmpi-bin"])];
const MPIRUN: &str = "/usr/bin/mpirun.openmpi";

/// Starts a process in namespaces of its own. All its processes end with it.
const UNSHARE: [&str; 7] = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"];

const HOSTS: usize = 4;
/// The addresses of the hosts.
const NETWORK: &str = "10.97.0.0/24";
/// Dropout would drop other inputs if a batch is divided.
const TRAINING: [&str; 6] = ["train", "digits", "--device", "cpu", "--dropout", "0"];
const EPOCHS: [&str; 2] = ["--epochs", "2"];
/// How long two epochs may take.
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) fn check() -> Result<(), String> {
    // Other stages run the same tests over Open MPI.
    succeed(cargo().args(["test", "--workspace", "--test", "mpi", "--", "--ignored", "--exact", "mpich"]))?;
    if !cfg!(target_os = "linux") {
        return skip("only Linux has network namespaces");
    }
    // Root of a container may lack the right to name a host, or to mount.
    let names_and_mounts = "echo probe >/proc/sys/kernel/hostname && mount -t tmpfs tmpfs /run";
    if let Err(reason) = probe(&format!("unshare --uts sh -c '{names_and_mounts}'")) {
        return skip(&reason);
    }
    install::unless_found(TOOLS)?;
    if let Err(reason) = probe("ip link add switch type bridge && ip link add port type veth peer name host")
    {
        return skip(&reason);
    }
    let program = devices::command()?;
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    succeed(isolated().arg(own).arg("network-namespaces").arg(program))
}

fn skip(reason: &str) -> Result<(), String> {
    println!(
        "SKIPPED: nothing was trained on several hosts, because this system makes no namespaces: {reason}"
    );
    Ok(())
}

fn isolated() -> Command {
    let mut command = Command::new(UNSHARE[0]);
    command.args(&UNSHARE[1..]);
    command
}

/// Tries a line of the shell in namespaces. The error is what it says.
fn probe(line: &str) -> Result<(), String> {
    let output = isolated().args(["sh", "-c", line]).output();
    let output = output.map_err(|e| format!("unshare did not start: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// The part that runs in the namespaces.
pub(crate) fn isolated_check(program: &Path) -> Result<(), String> {
    let network = Network::open(program)?;
    network.compare_losses()?;
    failures::check(&network)
}

fn host(number: usize) -> String {
    format!("host{number}")
}

fn address(number: usize) -> String {
    format!("10.97.0.{}", number + 1)
}

/// Hosts that a bridge joins, and the program that they run.
struct Network<'a> {
    program: &'a Path,
    /// What the ranks write.
    folder: PathBuf,
}

impl Network<'_> {
    fn open(program: &Path) -> Result<Network<'_>, String> {
        let folder = root().join("target/network");
        let failed = |e| format!("{}: {e}", folder.display());
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(failed)?;
        }
        fs::create_dir_all(&folder).map_err(failed)?;
        // Where `ip` keeps names: those of this machine stay apart.
        let names = Path::new("/run/netns");
        fs::create_dir_all(names).map_err(|e| format!("{}: {e}", names.display()))?;
        succeed(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(names))?;
        ip("link set lo up")?;
        ip("link add switch type bridge")?;
        ip("link set switch up")?;
        for number in 0..HOSTS {
            let (host, port, address) = (host(number), port(number), address(number));
            ip(&format!("netns add {host}"))?;
            ip(&format!("link add {port} type veth peer name eth0 netns {host}"))?;
            ip(&format!("link set {port} master switch up"))?;
            ip(&format!("-n {host} address add {address}/24 dev eth0"))?;
            ip(&format!("-n {host} link set lo up"))?;
            ip(&format!("-n {host} link set eth0 up"))?;
        }
        Ok(Network { program, folder })
    }

    /// A command that trains, without the variables of whatever launched this process.
    fn training(&self, mut command: Command, name: &str, epochs: &[&str]) -> Command {
        command.arg(self.program).args(TRAINING).args(epochs).arg("--out").arg(self.folder.join(name));
        for variable in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]
        {
            command.env_remove(variable);
        }
        command
    }

    /// Starts a job whose ranks have a host each and find each other by torchrun's variables.
    fn by_tcp(&self, size: usize, name: &str, epochs: &[&str]) -> Result<Job, String> {
        let ranks = (0..size).map(|rank| {
            let mut command = self.training(on(rank), name, epochs);
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", size.to_string());
            command.env("LOCAL_RANK", "0").env("LOCAL_WORLD_SIZE", "1");
            command.env("MASTER_ADDR", address(0)).env("MASTER_PORT", "29500");
            self.start(command, &format!("{name}-{rank}"))
        });
        Ok(Job(ranks.collect::<Result<_, _>>()?))
    }

    /// Starts a job by Open MPI's `mpirun` on host 0. Without `MASTER_ADDR`, ranks on several hosts cannot fall back
    /// to TCP.
    fn by_mpi(&self, size: usize, name: &str, epochs: &[&str]) -> Result<Job, String> {
        let hosts: Vec<String> = (0..size).map(|number| format!("{}:1", host(number))).collect();
        let mut command = on(0);
        command.arg(MPIRUN).args(["-n", &size.to_string(), "--host", &hosts.join(",")]);
        command.args(["--mca", "plm_rsh_agent"]).arg(scripts().join("agent.sh"));
        for (name, value) in MPI_SETTINGS {
            command.args(["--mca", name, value]);
        }
        // Open MPI refuses to run as root unless it is told to.
        command.envs(["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"].map(|name| (name, "1")));
        Ok(Job(vec![self.start(self.training(command, name, epochs), name)?]))
    }

    fn start(&self, mut command: Command, name: &str) -> Result<Member, String> {
        let log = self.folder.join(format!("{name}.log"));
        let failed = |e| format!("{}: {e}", log.display());
        let file = fs::File::create(&log).map_err(failed)?;
        command.stdin(Stdio::null()).stdout(file.try_clone().map_err(failed)?).stderr(file);
        let child = command.spawn().map_err(|e| format!("{command:?} did not start: {e}"))?;
        Ok(Member { child, log, ended: None })
    }

    /// Trains in one process, and then on two and four hosts: the losses must be equal.
    fn compare_losses(&self) -> Result<(), String> {
        succeed(self.training(on(0), "one", &EPOCHS).stdout(Stdio::null()))?;
        let expected = self.losses("one")?;
        for size in [2, HOSTS] {
            for way in ["TCP", "MPI"] {
                let name = format!("{}-{size}", way.to_lowercase());
                let before = carried()?;
                let mut job = match way {
                    "TCP" => self.by_tcp(size, &name, &EPOCHS)?,
                    _ => self.by_mpi(size, &name, &EPOCHS)?,
                };
                job.wait(LIMIT)?;
                job.expect_success()?;
                let bytes = carried()? - before;
                let losses = self.losses(&name)?;
                let differences = losses.iter().zip(&expected).map(|(a, b)| (a - b).abs());
                println!(
                    "{size} hosts, {way}: host 1 sent {bytes} bytes; losses differ by at most {:.1e}",
                    differences.clone().fold(0.0, f64::max)
                );
                if losses.len() != expected.len() || !differences.into_iter().all(|d| d < 1e-4) {
                    return Err(format!("{name}: {losses:?} is not {expected:?}"));
                }
                // An all-reduce of the gradients of 50,826 parameters in 42 steps takes more.
                if bytes < 1_000_000 {
                    return Err(format!("{name}: {bytes} bytes are not those of the gradients"));
                }
            }
        }
        Ok(())
    }

    /// The training losses of a run's epochs, and the validation losses.
    fn losses(&self, name: &str) -> Result<Vec<f64>, String> {
        let path = self.folder.join(name).join("metrics.json");
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let metrics: Value = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        let epochs = metrics["epochs"].as_array().map_or(&[][..], Vec::as_slice);
        let of = |epoch: &Value| ["train_loss", "validation_loss"].map(|name| epoch[name].as_f64());
        let losses: Option<Vec<f64>> = epochs.iter().flat_map(of).collect();
        losses.filter(|losses| !losses.is_empty()).ok_or_else(|| format!("{} has no losses", path.display()))
    }
}

/// Bytes go by the bridge, and by one interface of each host. The daemons of `mpirun` notice within 11 s that a host is
/// cut off: by default they take 8 minutes.
const MPI_SETTINGS: [(&str, &str); 7] = [
    ("pml", "ob1"),
    ("btl", "tcp,self"),
    ("btl_tcp_if_include", NETWORK),
    ("oob_tcp_if_include", NETWORK),
    ("oob_tcp_keepalive_time", "5"),
    ("oob_tcp_keepalive_intvl", "2"),
    ("oob_tcp_keepalive_probes", "3"),
];

fn port(number: usize) -> String {
    format!("port{number}")
}

fn scripts() -> PathBuf {
    root().join("xtask/src/network")
}

/// A command on a host.
fn on(number: usize) -> Command {
    let mut command = Command::new(scripts().join("host.sh"));
    command.arg(host(number));
    command
}

fn ip(words: &str) -> Result<(), String> {
    succeed(Command::new("ip").args(words.split(' ')))
}

/// The bytes that host 1 has sent.
fn carried() -> Result<u64, String> {
    let (port, failed) = (port(1), || "ip does not tell the bytes of an interface".to_owned());
    let output = Command::new("ip").args(["-json", "-statistics", "link", "show", &port]).output();
    let output = output.map_err(|e| format!("ip did not start: {e}"))?;
    let links: Value = serde_json::from_slice(&output.stdout).map_err(|_| failed())?;
    links[0]["stats64"]["rx"]["bytes"].as_u64().ok_or_else(failed)
}

/// A process of a job, and what it writes.
struct Member {
    child: Child,
    log: PathBuf,
    ended: Option<(ExitStatus, Instant)>,
}

impl Member {
    fn said(&self) -> Result<String, String> {
        fs::read_to_string(&self.log).map_err(|e| format!("{}: {e}", self.log.display()))
    }
}

/// The processes of a job, which are killed on drop: its ranks, or their launcher.
struct Job(Vec<Member>);

impl Job {
    /// Looks which processes have ended. Returns whether all have.
    fn look(&mut self) -> Result<bool, String> {
        let mut all = true;
        for member in self.0.iter_mut().filter(|member| member.ended.is_none()) {
            let status = member.child.try_wait().map_err(|e| format!("a rank: {e}"))?;
            member.ended = status.map(|status| (status, Instant::now()));
            all &= member.ended.is_some();
        }
        Ok(all)
    }

    /// Waits until all have ended.
    fn wait(&mut self, limit: Duration) -> Result<(), String> {
        let until = Instant::now() + limit;
        while !self.look()? {
            if Instant::now() > until {
                let running = self.0.iter().filter(|member| member.ended.is_none());
                let logs: Vec<String> = running.map(|member| member.log.display().to_string()).collect();
                return Err(format!("still running after {} s: {}", limit.as_secs(), logs.join(", ")));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn expect_success(&self) -> Result<(), String> {
        for member in &self.0 {
            if !member.ended.is_some_and(|(status, _)| status.success()) {
                return Err(format!("{}: {}", member.log.display(), member.said()?));
            }
        }
        Ok(())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for member in &mut self.0 {
            // What fails here has ended already.
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}
