//! `neurenix launch`: starts a program in several processes, which find each other through the environment.

use std::{
    ffi::OsString,
    io::Write,
    net::TcpListener,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use neurenix::{Error, Result};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Processes on this machine
    #[arg(long, short = 'n', default_value_t = 1, value_parser = super::positive::<usize>, alias = "nproc-per-node")]
    processes: usize,
    /// Machines; run this command on each of them
    #[arg(long, default_value_t = 1, value_parser = super::positive::<usize>, alias = "nnodes")]
    nodes: usize,
    /// This machine's number, from 0
    #[arg(long, default_value_t = 0, value_parser = super::whole::<usize>)]
    node_rank: usize,
    /// The address of machine 0; with one machine, 127.0.0.1
    #[arg(long)]
    master_addr: Option<String>,
    /// A free port of machine 0; with one machine it is chosen
    #[arg(long)]
    master_port: Option<u16>,
    /// Start all processes again if one fails, up to this many times. Programs continue from their last checkpoint
    #[arg(long, default_value_t = 0, value_parser = super::whole::<usize>)]
    restarts: usize,
    /// The program and its arguments; a file that ends with .py is run by Python
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    program: Vec<OsString>,
}

/// How long processes may take to end once another one has failed.
const GRACE: Duration = Duration::from_secs(10);

/// How often Ctrl-C was pressed: first processes are asked to end, then they are killed, and they are not started again.
static STOPS: AtomicUsize = AtomicUsize::new(0);
static RUNNING: AtomicBool = AtomicBool::new(false);

/// Asks a launch to end its processes, and kills them if it was asked before. Returns false if none is running.
pub(super) fn stop() -> bool {
    let is_running = RUNNING.load(Ordering::Acquire);
    if is_running {
        STOPS.fetch_add(1, Ordering::AcqRel);
    }
    is_running
}

pub(super) fn run(arguments: &Arguments, own: &[OsString]) -> Result<u8> {
    if arguments.node_rank >= arguments.nodes {
        let message = format!("{} is not below --nodes, {}", arguments.node_rank, arguments.nodes);
        return Err(Error::data("--node-rank", message));
    }
    if arguments.nodes > 1 && arguments.master_addr.is_none() {
        return Err(Error::data("--master-addr", "several machines need the address of machine 0"));
    }
    if arguments.nodes > 1 && arguments.master_port.is_none() {
        return Err(Error::data("--master-port", "several machines need a port of machine 0 that all know"));
    }
    STOPS.store(0, Ordering::Release);
    RUNNING.store(true, Ordering::Release);
    let result = attempts(arguments, &program(&arguments.program, own));
    RUNNING.store(false, Ordering::Release);
    result
}

/// Starts a command in several processes of this machine.
pub(super) fn copies(command: &[OsString], processes: usize) -> Result<u8> {
    let program = command.to_vec();
    let (master_addr, master_port) = (None, None);
    run(&Arguments { processes, nodes: 1, node_rank: 0, master_addr, master_port, restarts: 0, program }, &[])
}

fn attempts(arguments: &Arguments, words: &[OsString]) -> Result<u8> {
    for attempt in 0..=arguments.restarts {
        let failed = match attempt_once(arguments, words, attempt)? {
            Outcome::Success => return Ok(super::SUCCESS),
            Outcome::Stopped => return Ok(super::INTERRUPTED),
            // Ctrl-C twice may kill processes before it is noticed.
            Outcome::Failed(_) if STOPS.load(Ordering::Acquire) > 0 => return Ok(super::INTERRUPTED),
            Outcome::Failed(failed) => failed,
        };
        let next = match attempt < arguments.restarts {
            true => format!("; starting again, restart {} of {}", attempt + 1, arguments.restarts),
            false => String::new(),
        };
        // If standard error is closed, the exit code still tells.
        let _ = writeln!(std::io::stderr(), "rank {} ended with {}{next}", failed.rank, failed.status);
    }
    Ok(super::FAILURE)
}

/// The command line of a process.
fn program(words: &[OsString], own: &[OsString]) -> Vec<OsString> {
    let is_script =
        words.first().is_some_and(|word| Path::new(word).extension().is_some_and(|end| end == "py"));
    if !is_script {
        return words.to_vec();
    }
    // From Python, the command is started by an interpreter.
    let interpreter = match own {
        [interpreter, _, ..] => interpreter.clone(),
        _ => "python3".into(),
    };
    std::iter::once(interpreter).chain(words.iter().cloned()).collect()
}

struct Failed {
    rank: usize,
    status: ExitStatus,
}

enum Outcome {
    Success,
    Stopped,
    Failed(Failed),
}

/// Starts all processes and waits for them. If one fails, the others are ended.
fn attempt_once(arguments: &Arguments, words: &[OsString], attempt: usize) -> Result<Outcome> {
    let port = match arguments.master_port {
        Some(port) => port,
        None => free_port()?,
    };
    let mut processes = Processes(Vec::with_capacity(arguments.processes));
    for local in 0..arguments.processes {
        let rank = arguments.node_rank * arguments.processes + local;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        let numbers = [
            ("RANK", rank),
            ("LOCAL_RANK", local),
            ("WORLD_SIZE", arguments.nodes * arguments.processes),
            ("LOCAL_WORLD_SIZE", arguments.processes),
            ("GROUP_RANK", arguments.node_rank),
            ("TORCHELASTIC_RESTART_COUNT", attempt),
            ("TORCHELASTIC_MAX_RESTARTS", arguments.restarts),
            ("MASTER_PORT", usize::from(port)),
        ];
        command.envs(numbers.map(|(name, number)| (name, number.to_string())));
        command
            .env("MASTER_ADDR", arguments.master_addr.as_deref().unwrap_or("127.0.0.1"))
            .env_remove("TORCHELASTIC_USE_AGENT_STORE");
        // Ctrl-C reaches this process alone, which tells the others once.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().map_err(|error| Error::io("start", Path::new(&words[0]), error))?;
        processes.0.push((rank, child));
    }
    processes.wait()
}

/// A port that nothing uses now.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    Ok(listener.map_err(|error| Error::io("open", Path::new("a port of 127.0.0.1"), error))?.port())
}

/// Running processes with their ranks. They are killed on drop.
struct Processes(Vec<(usize, Child)>);

impl Processes {
    fn wait(&mut self) -> Result<Outcome> {
        let mut outcome = Outcome::Success;
        let mut deadline: Option<Instant> = None;
        while !self.0.is_empty() {
            let mut at = 0;
            while at < self.0.len() {
                let (rank, child) = &mut self.0[at];
                let rank = *rank;
                let ended =
                    child.try_wait().map_err(|error| Error::io("wait for", Path::new("a process"), error))?;
                let Some(status) = ended else {
                    at += 1;
                    continue;
                };
                drop(self.0.swap_remove(at));
                if !status.success() && matches!(outcome, Outcome::Success) {
                    outcome = Outcome::Failed(Failed { rank, status });
                }
            }
            match (STOPS.load(Ordering::Acquire), deadline) {
                // They may take their time to write a checkpoint.
                (1, _) if !matches!(outcome, Outcome::Stopped) => {
                    outcome = Outcome::Stopped;
                    self.terminate();
                }
                (1, _) => {}
                // Ranks notice by themselves that another has ended, and say so.
                (0, None) if matches!(outcome, Outcome::Failed(_)) => deadline = Some(Instant::now() + GRACE),
                (0, None) => {}
                (0, Some(over)) if Instant::now() <= over => {}
                _ => self.kill(),
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(outcome)
    }

    /// Asks the processes to end.
    fn terminate(&mut self) {
        #[cfg(unix)]
        for (_, child) in &self.0 {
            let process = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
            // What fails here has ended already.
            let _ = process.map(|id| rustix::process::kill_process(id, rustix::process::Signal::TERM));
        }
        #[cfg(not(unix))]
        self.kill();
    }

    fn kill(&mut self) {
        for (_, child) in &mut self.0 {
            // What fails here has ended already.
            let _ = child.kill();
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill();
        for (_, child) in &mut self.0 {
            let _ = child.wait();
        }
    }
}
