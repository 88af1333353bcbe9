//! `neurenix launch`: starts a program in several processes, which find each other through the environment.

#[cfg(target_os = "linux")]
pub(super) mod bound;
mod output;
mod processes;

use std::{
    ffi::OsString,
    io::Write,
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use neurenix::{Error, Result};
use output::Output;
use processes::{Outcome, Processes};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Processes on this machine
    #[arg(
        long,
        short = 'n',
        default_value_t = 1,
        value_parser = super::positive::<usize>,
        visible_alias = "nproc-per-node",
        alias = "nproc_per_node"
    )]
    processes: usize,
    /// Machines; run this command on each of them
    #[arg(long, default_value_t = 1, value_parser = super::positive::<usize>, visible_alias = "nnodes")]
    nodes: usize,
    /// This machine's number, from 0
    #[arg(long, default_value_t = 0, value_parser = super::whole::<usize>, alias = "node_rank")]
    node_rank: usize,
    /// The address of machine 0; with one machine, 127.0.0.1
    #[arg(long, alias = "master_addr")]
    master_addr: Option<String>,
    /// A free port of machine 0; with one machine it is chosen
    #[arg(long, alias = "master_port")]
    master_port: Option<u16>,
    /// Start all processes again if one fails, up to this many times. Programs continue from their last checkpoint.
    /// Exit codes 2 (wrong usage), 126 and 127 (the program cannot be started) end the job
    #[arg(long, default_value_t = 0, value_parser = super::whole::<usize>, verbatim_doc_comment)]
    restarts: usize,
    /// Begin each line of output with the rank, and do not mix the lines of several ranks
    #[arg(long, visible_alias = "tag-output")]
    tag: bool,
    /// The program and its arguments; a file that ends with .py is run by Python
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    program: Vec<OsString>,
}

/// How long processes may take to end after a signal, or once another one has failed.
const GRACE: Duration = Duration::from_secs(10);

/// How many signals asked this process to end. The first is passed on, the next one kills the processes.
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

fn stops() -> usize {
    STOPS.load(Ordering::Acquire)
}

/// Processes to start.
struct Job<'a> {
    arguments: &'a Arguments,
    /// Starts this command itself.
    own: &'a [OsString],
    words: Vec<OsString>,
    /// How long processes may take to end after a signal.
    patience: Option<Duration>,
}

/// `own` starts this command itself: an executable, and any arguments before the command's own.
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
    let words = program(&arguments.program, own)?;
    Job { arguments, own, words, patience: Some(GRACE) }.run()
}

/// Starts a command in several processes of this machine. After a signal they take as long as one process would.
pub(super) fn copies(command: &[OsString], own: &[OsString], processes: usize) -> Result<u8> {
    let arguments = Arguments {
        processes,
        nodes: 1,
        node_rank: 0,
        master_addr: None,
        master_port: None,
        restarts: 0,
        tag: false,
        program: Vec::new(),
    };
    Job { arguments: &arguments, own, words: command.to_vec(), patience: None }.run()
}

/// The command line of a process.
fn program(words: &[OsString], own: &[OsString]) -> Result<Vec<OsString>> {
    let first = words.first().map(OsString::as_os_str).unwrap_or_default();
    if first == "-m" {
        return Err(Error::data("-m", "it is not an option of launch: write python -m MODULE"));
    }
    if first.to_string_lossy().starts_with('-') {
        let message = "it is not an option of launch: see neurenix launch --help";
        return Err(Error::data(first.to_string_lossy(), message));
    }
    if Path::new(first).extension().is_none_or(|end| end != "py") {
        return Ok(words.to_vec());
    }
    // From Python, the command is started by an interpreter.
    let interpreter = match own {
        [interpreter, _, ..] => interpreter.clone(),
        _ => "python3".into(),
    };
    Ok(std::iter::once(interpreter).chain(words.iter().cloned()).collect())
}

impl Job<'_> {
    fn run(&self) -> Result<u8> {
        STOPS.store(0, Ordering::Release);
        RUNNING.store(true, Ordering::Release);
        let result = self.attempts();
        RUNNING.store(false, Ordering::Release);
        result
    }

    fn attempts(&self) -> Result<u8> {
        let restarts = self.arguments.restarts;
        for attempt in 0..=restarts {
            let failed = match self.attempt(attempt)? {
                Outcome::Success => return Ok(super::SUCCESS),
                Outcome::Stopped => return Ok(super::interrupted()),
                // A signal may arrive after all processes have ended.
                Outcome::Failed(_) if stops() > 0 => return Ok(super::interrupted()),
                Outcome::Failed(failed) => failed,
            };
            let next = match attempt < restarts {
                true if failed.is_final => {
                    "; not started again, because the same error would occur".to_owned()
                }
                true => format!("; starting again, restart {} of {restarts}", attempt + 1),
                false => String::new(),
            };
            // If standard error is closed, the exit code still tells.
            let _ = writeln!(std::io::stderr(), "rank {} ended with {}{next}", failed.rank, failed.status);
            if failed.is_final {
                break;
            }
        }
        Ok(super::FAILURE)
    }

    /// Starts all processes and waits for them. If one fails, the others are ended.
    fn attempt(&self, attempt: usize) -> Result<Outcome> {
        let arguments = self.arguments;
        let port = match arguments.master_port {
            Some(port) => port,
            None => free_port()?,
        };
        let mut output = Output::default();
        let mut processes = Processes::new(self.patience);
        for local in 0..arguments.processes {
            let rank = arguments.node_rank * arguments.processes + local;
            let mut command = self.command();
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
                .env_remove("TORCHELASTIC_USE_AGENT_STORE")
                .stdin(Stdio::null());
            if arguments.tag {
                Output::prepare(&mut command);
            }
            // A terminal's Ctrl-C reaches this process alone, which passes it on once.
            #[cfg(unix)]
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
            let started = command.spawn();
            let mut child = started.map_err(|error| Error::io("start", Path::new(&self.words[0]), error))?;
            if arguments.tag {
                output.follow(rank, &mut child);
            }
            processes.push(rank, child);
        }
        let outcome = processes.wait();
        output.finish();
        outcome
    }

    /// The command of a process. On Linux, it ends with this process, however that ends.
    fn command(&self) -> Command {
        #[cfg(target_os = "linux")]
        if let [program, before @ ..] = self.own {
            let mut command = Command::new(program);
            command.args(before).args([bound::NAME, &std::process::id().to_string()]).args(&self.words);
            return command;
        }
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        command
    }
}

/// A port that nothing uses now.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    Ok(listener.map_err(|error| Error::io("open", Path::new("a port of 127.0.0.1"), error))?.port())
}
