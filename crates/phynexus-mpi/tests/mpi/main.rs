//! The transport under the launchers of Open MPI and MPICH.
//!
//! The tests start this program again, several times at once, with a launcher. Those processes run the ignored test
//! `rank`, which runs the case that an environment variable names.

#![cfg(unix)]

mod collectives;
mod engine;
mod failures;

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio, id},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use phynexus::{Result, distributed::Transport};

/// The case that a rank runs, and a folder that the ranks share.
const CASE: &str = "PHYNEXUS_MPI_CASE";
const FOLDER: &str = "PHYNEXUS_MPI_FOLDER";

/// How long a launched case may take.
const PATIENCE: Duration = Duration::from_secs(240);

/// How a launcher ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Well,
    /// A rank failed.
    Badly,
    /// The ranks do not finalise MPI, which launchers blame them for or not.
    Either,
}

/// What ranks do, by name.
type Case = (&'static str, fn() -> Result<()>, End);

const CASES: [Case; 11] = [
    ("collectives", collectives::collectives, End::Well),
    ("messages", collectives::messages, End::Well),
    ("subgroups", collectives::subgroups, End::Well),
    ("engine", engine::engine, End::Well),
    ("slow", failures::slow, End::Well),
    ("lengths", failures::lengths, End::Either),
    ("calls", failures::calls, End::Either),
    ("late", failures::late, End::Either),
    ("silent", failures::silent, End::Either),
    ("interrupted", failures::interrupted, End::Either),
    ("panicking", failures::panicking, End::Badly),
];

/// A launcher, and what its version says.
struct Launcher {
    programs: &'static [&'static str],
    version: &'static str,
    package: &'static str,
}

const OPEN_MPI: Launcher =
    Launcher { programs: &["mpirun.openmpi", "mpirun"], version: "Open MPI", package: "openmpi-bin" };
const MPICH: Launcher =
    Launcher { programs: &["mpiexec.hydra", "mpiexec"], version: "HYDRA", package: "mpich" };

/// Without Open MPI it passes, and prints that it was skipped.
#[test]
fn open_mpi() {
    OPEN_MPI.run_cases();
}

/// Without MPICH it passes, and prints that it was skipped.
#[test]
#[ignore = "as long as open_mpi: the stage network runs it"]
fn mpich() {
    MPICH.run_cases();
}

#[test]
#[ignore = "the other tests start it with a launcher"]
fn rank() {
    let case = env::var(CASE).expect("the other tests start it with a launcher");
    let (.., run, _) = CASES.iter().find(|(name, ..)| *name == case).expect("a case");
    run().unwrap();
}

#[test]
fn without_a_launcher_it_says_how_to_start() {
    let of_launchers = ["OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMI_FD", "PMIX_RANK"];
    if of_launchers.iter().any(|name| env::var_os(name).is_some()) {
        println!("SKIPPED: a launcher started this test");
        return;
    }
    let error = phynexus_mpi::connect(Duration::from_secs(1)).err().expect("an error").to_string();
    let found = error.contains("mpirun -n 2 PROGRAM");
    assert!(found || error.contains("Debian: openmpi-bin or mpich"), "{error}");
}

impl Launcher {
    /// The first of its programs that is installed.
    fn find(&self) -> Option<&'static str> {
        let is_it = |program: &&&str| {
            let output = Command::new(program).arg("--version").output();
            output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(self.version))
        };
        self.programs.iter().find(is_it).copied()
    }

    fn run_cases(&self) {
        // Ranks of two launchers at once would be slow.
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(program) = self.find() else {
            println!("SKIPPED: {} is not installed (Debian: {})", self.version, self.package);
            return;
        };
        for (case, _, end) in CASES {
            let counts: &[usize] = if end == End::Well { &[2, 3, 4] } else { &[3] };
            for &ranks in counts {
                let folder = Folder::new(&format!("{}-{case}-{ranks}", self.package));
                let (status, said) = self.run(program, case, ranks, &folder.0);
                let passed = fs::read_dir(&folder.0).unwrap().count();
                let ends_so = end == End::Either || status.success() == (end == End::Well);
                let found = format!("passed on {passed} ranks, {status}");
                assert!(passed == ranks && ends_so, "{program} -n {ranks} of {case}: {found}\n{said}");
            }
        }
    }

    /// Runs a case. Returns what the launcher ends with and what it and the ranks printed.
    fn run(&self, program: &str, case: &str, ranks: usize, folder: &Path) -> (ExitStatus, String) {
        let log = folder.with_extension("log");
        let mut command = Command::new(program);
        command.args(["-n", &ranks.to_string()]);
        if self.version == OPEN_MPI.version {
            command.arg("--oversubscribe");
            // Needed by root, which containers run as.
            command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
        }
        command.arg(env::current_exe().unwrap()).args(["rank", "--exact", "--ignored", "--nocapture"]);
        command.env(CASE, case).env(FOLDER, folder).stdin(Stdio::null());
        let file = File::create(&log).unwrap();
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        let status = wait(child);
        let said = fs::read_to_string(&log).unwrap();
        fs::remove_file(&log).unwrap();
        (status, said)
    }
}

/// Waits for a launcher, and ends one that takes too long.
fn wait(mut child: Child) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("the launcher has not ended after {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = env::temp_dir().join(format!("phynexus-mpi-{}-{name}", id()));
        fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Records that this rank passed, then waits for the others to do so: a launcher ends all ranks once one has ended
/// without finalising MPI.
fn passed(transport: &dyn Transport) {
    let folder = PathBuf::from(env::var_os(FOLDER).unwrap());
    fs::write(folder.join(transport.rank().to_string()), "").unwrap();
    let begun = Instant::now();
    while fs::read_dir(&folder).unwrap().count() < transport.size() {
        assert!(begun.elapsed() < PATIENCE, "another rank has not passed");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Uses the transport's exchange only, so that collectives are the trait's.
struct Exchanges<'a>(&'a dyn Transport);

impl Transport for Exchanges<'_> {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn exchange(
        &self,
        send: Option<phynexus::distributed::Outgoing<'_>>,
        receive: Option<phynexus::distributed::Incoming<'_>>,
    ) -> Result<()> {
        self.0.exchange(send, receive)
    }
}
