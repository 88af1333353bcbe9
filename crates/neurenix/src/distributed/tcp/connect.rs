//! Connecting every rank with every other one.
//!
//! Each rank listens, publishes its address in the store, and connects to the ranks below it, twice: for data and for
//! control frames. Both sides begin a connection with a [`Hello`].

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    process, thread,
    time::{Duration, Instant},
};

use phynexus::interrupt;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    super::{
        environment::process_variable,
        store::{Store, deadline, is_lost, rest},
        wait::Sockets,
    },
    mesh::Mesh,
    peer::Peer,
};
use crate::{Error, Result};

/// A magic number, whose last byte is the version of the protocol.
const MAGIC: [u8; 8] = *b"NXMESH\0\x01";
/// The connections of a pair of ranks.
const CHANNELS: usize = 2;
/// The largest number of connections that have not said hello.
const MOST_STRANGERS: usize = 512;
/// How often a rank that waits looks in the store whether another one failed.
const CHECK: Duration = Duration::from_millis(500);
/// How long one attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(2);

/// What rank 0 publishes.
#[derive(Serialize, Deserialize)]
struct Job {
    id: u128,
    size: usize,
}

/// What each rank publishes.
#[derive(Serialize, Deserialize)]
struct Published {
    address: SocketAddr,
    process: u32,
    host: String,
}

impl Published {
    fn name(&self, rank: usize) -> String {
        format!("rank {rank} (process {} on host {})", self.process, self.host)
    }
}

/// The first bytes of a connection, in both directions.
#[derive(Clone, Copy)]
struct Hello {
    job: u128,
    from: u32,
    to: u32,
    channel: u8,
}

const HELLO: usize = 33;

impl Hello {
    fn encode(self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.job.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.from.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.to.to_le_bytes());
        bytes[32] = self.channel;
        bytes
    }

    fn reply(self) -> Hello {
        Hello { from: self.to, to: self.from, ..self }
    }
}

/// A connection whose hello has not arrived as a whole.
struct Stranger {
    stream: TcpStream,
    hello: [u8; HELLO],
    count: usize,
}

impl Stranger {
    fn new(stream: TcpStream) -> Stranger {
        Stranger { stream, hello: [0; HELLO], count: 0 }
    }

    /// Reads what arrived. Returns whether the hello is complete.
    fn read(&mut self) -> io::Result<bool> {
        while self.count < HELLO {
            match self.stream.read(&mut self.hello[self.count..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.count += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Connects rank `rank` of `size` with all others. `scope` begins the keys in the store.
pub(super) fn connect(
    store: &Store,
    scope: &str,
    rank: usize,
    size: usize,
    timeout: Duration,
) -> Result<Mesh> {
    let meeting = Meeting { store, scope, rank, size, timeout, until: deadline(timeout) };
    let links = (0..size).map(|_| Default::default()).collect();
    let mut setup = Setup { meeting: &meeting, job: 0, links, checked: Instant::now() };
    // The connections are still open when a failure is told: a rank that sees them close finds it in the store.
    let names = setup.connect().map_err(|error| meeting.fail(error))?;
    let name = names[rank].clone();
    let peers = names.into_iter().zip(setup.links).enumerate().map(|(other, (name, links))| {
        let [Some(data), Some(control)] = links else { return None };
        Some(Peer::new(other, name, data, control))
    });
    Ok(Mesh::new(rank, name, peers.collect()))
}

/// The ranks' meeting in the store.
struct Meeting<'a> {
    store: &'a Store,
    scope: &'a str,
    rank: usize,
    size: usize,
    timeout: Duration,
    until: Option<Instant>,
}

impl Meeting<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.scope)
    }

    fn fault(&self, message: String) -> Error {
        phynexus::Error::Collective { op: "init", rank: self.rank, size: self.size, message }.into()
    }

    /// Tells the others of an error, so that they do not wait. Returns the error, or that of the rank that failed first
    /// if this one is its consequence.
    fn fail(&self, error: Error) -> Error {
        if is_lost(&error) {
            return error;
        }
        let (text, is_about_others) = match &error {
            Error::Engine(phynexus::Error::Collective { message, .. }) => (message.clone(), true),
            own => (format!("rank {} failed: {own}", self.rank), false),
        };
        let end = text.floor_char_boundary(2000);
        let first = self.store.compare_set(&self.key("failed"), None, &text.as_bytes()[..end]);
        if self.store.is_server() {
            // The others still have to ask.
            thread::sleep(2 * CHECK);
        }
        match first {
            Ok(Some(first)) if is_about_others => self.fault(String::from_utf8_lossy(&first).into_owned()),
            _ => error,
        }
    }

    /// Fails if another rank did.
    fn check(&self) -> Result<()> {
        match self.store.get_within(&self.key("failed"), Duration::ZERO) {
            Ok(text) => Err(self.fault(String::from_utf8_lossy(&text).into_owned())),
            Err(Error::Store { source, .. }) if source.kind() == ErrorKind::TimedOut => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// What rank `of` publishes.
    fn read<T: DeserializeOwned>(&self, name: &str, of: usize) -> Result<T> {
        let key = self.key(name);
        loop {
            match self.store.get_within(&key, rest(self.until).min(CHECK)) {
                Err(Error::Store { source, .. }) if source.kind() == ErrorKind::TimedOut => {}
                other => {
                    let damaged = |error: serde_json::Error| Error::data(&*key, error.to_string());
                    return serde_json::from_slice(&other?).map_err(damaged);
                }
            }
            self.check()?;
            if rest(self.until).is_zero() {
                return Err(self.fault(format!(
                    "rank {of} did not come within {} s: check that its process runs, or set a longer `timeout`",
                    self.timeout.as_secs_f64()
                )));
            }
        }
    }

    fn find(&self, other: usize) -> Result<Published> {
        self.read(&format!("rank/{other}"), other)
    }

    /// Publishes this rank's address.
    fn publish(&self, own: &Published) -> Result<()> {
        let key = self.key(&format!("rank/{}", self.rank));
        let text = serde_json::to_vec(own).map_err(|error| Error::data(&*key, error.to_string()))?;
        if self.store.compare_set(&key, None, &text)?.as_ref() == Some(&text) {
            return Ok(());
        }
        let message = format!(
            "another process of the job has rank {}, too: give each process its own, and each job its own MASTER_PORT",
            self.rank
        );
        Err(Error::environment("RANK", message))
    }

    /// The job's number, which rank 0 chooses.
    fn job(&self) -> Result<u128> {
        if self.rank == 0 {
            // The keys of these hashes are random.
            let random = || u128::from(RandomState::new().build_hasher().finish());
            let job = Job { id: random() << 64 | random(), size: self.size };
            let text = serde_json::to_vec(&job).map_err(|error| Error::data("job", error.to_string()))?;
            self.store.set(&self.key("job"), &text)?;
            return Ok(job.id);
        }
        let job: Job = self.read("job", 0)?;
        if job.size != self.size {
            let (rank, size) = (self.rank, self.size);
            let message =
                format!("it is {size} on rank {rank}, but {} on rank 0: it must be the same", job.size);
            return Err(Error::environment("WORLD_SIZE", message));
        }
        Ok(job.id)
    }
}

/// Listens at a free port of the interface that reaches the store.
fn listen(store: &Store) -> io::Result<TcpListener> {
    let ip = store.local_ip();
    let listener = match ip.is_loopback() && !store.is_local() {
        // On the host of rank 0 its name may mean the loopback interface, which others do not reach.
        true => TcpListener::bind((any_like(ip), 0)),
        false => TcpListener::bind((ip, 0)),
    }?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn any_like(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => IpAddr::from([0; 4]),
        IpAddr::V6(_) => IpAddr::from([0; 16]),
    }
}

/// This host's name.
fn host() -> Option<String> {
    // Linux, Windows, other shells.
    let file = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = file.or_else(|| ["COMPUTERNAME", "HOSTNAME"].into_iter().find_map(process_variable))?;
    Some(name.trim().chars().take(64).collect()).filter(|name: &String| !name.is_empty())
}

/// Makes packets leave at once, and the system notice that a host or a cable is gone.
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    {
        use rustix::net::sockopt;
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, Duration::from_secs(30))?;
        sockopt::set_tcp_keepintvl(stream, Duration::from_secs(10))?;
        sockopt::set_tcp_keepcnt(stream, 6)?;
    }
    Ok(())
}

/// Connections that are being made.
struct Setup<'a> {
    meeting: &'a Meeting<'a>,
    job: u128,
    /// By rank and channel.
    links: Vec<[Option<TcpStream>; CHANNELS]>,
    /// When this rank looked whether another one failed.
    checked: Instant,
}

impl Setup<'_> {
    /// Connects with all others. Returns the ranks' names.
    fn connect(&mut self) -> Result<Vec<String>> {
        let meeting = self.meeting;
        let &Meeting { store, rank, size, .. } = meeting;
        let listener = listen(store).map_err(|error| meeting.fault(format!("cannot listen: {error}")))?;
        let address = listener.local_addr().map_err(|error| meeting.fault(error.to_string()))?;
        let address = SocketAddr::new(store.local_ip(), address.port());
        let host = host().unwrap_or(address.ip().to_string());
        let own = Published { address, process: process::id(), host };
        meeting.publish(&own)?;
        self.job = meeting.job()?;
        let mut names = Vec::with_capacity(size);
        for other in 0..rank {
            let published = meeting.find(other)?;
            for channel in 0..CHANNELS {
                let stream = self.open(&published, other, channel)?;
                self.links[other][channel] = Some(stream);
            }
            names.push(published.name(other));
        }
        self.accept(&listener)?;
        names.push(own.name(rank));
        for other in rank + 1..size {
            names.push(meeting.find(other)?.name(other));
        }
        self.hear_replies(&names)?;
        Ok(names)
    }

    fn hello(&self, to: usize, channel: usize) -> Hello {
        Hello { job: self.job, from: self.meeting.rank as u32, to: to as u32, channel: channel as u8 }
    }

    /// Connects to a lower rank, and says hello.
    fn open(&self, published: &Published, other: usize, channel: usize) -> Result<TcpStream> {
        let &Meeting { store, until, .. } = self.meeting;
        let mut address = published.address;
        if address.ip().is_loopback() && !store.peer_ip().is_loopback() {
            // That rank is on the host of rank 0, whose address this one knows.
            address.set_ip(store.peer_ip());
        }
        loop {
            interrupt::check()?;
            let time = rest(until).clamp(Duration::from_millis(1), ATTEMPT);
            let opened = TcpStream::connect_timeout(&address, time).and_then(|mut stream| {
                stream.write_all(&self.hello(other, channel).encode())?;
                tune(&stream)?;
                Ok(stream)
            });
            match opened {
                Ok(stream) => return Ok(stream),
                Err(error) if error.kind() == ErrorKind::TimedOut && !rest(until).is_zero() => {}
                Err(error) => {
                    let name = published.name(other);
                    return Err(self.meeting.fault(format!(
                        "{name} cannot be reached at {address}: {error}. It may have ended, or a firewall closes the \
                         port"
                    )));
                }
            }
        }
    }

    /// Accepts connections until there are those of all higher ranks.
    fn accept(&mut self, listener: &TcpListener) -> Result<()> {
        let &Meeting { rank, size, until, .. } = self.meeting;
        let mut strangers: Vec<Stranger> = Vec::new();
        loop {
            while let Ok((stream, _)) = listener.accept() {
                if strangers.len() < MOST_STRANGERS && tune(&stream).is_ok() {
                    strangers.push(Stranger::new(stream));
                }
            }
            for at in (0..strangers.len()).rev() {
                match strangers[at].read() {
                    Ok(false) => {}
                    Ok(true) => self.greet(strangers.swap_remove(at)),
                    // A port scanner, or a rank that ended: then the others see that, too.
                    Err(_) => drop(strangers.swap_remove(at)),
                }
            }
            let missing = |rank: &usize| self.links[*rank].iter().any(Option::is_none);
            let missing: Vec<usize> = (rank + 1..size).filter(missing).collect();
            if missing.is_empty() {
                return Ok(());
            }
            self.check()?;
            if rest(until).is_zero() {
                let names: Vec<String> = missing.iter().map(usize::to_string).collect();
                return Err(self.meeting.fault(format!(
                    "no connection from rank {}: check that these processes run, and that no firewall is between the \
                     hosts",
                    names.join(", ")
                )));
            }
            let mut sockets = Sockets::default();
            sockets.read(listener);
            strangers.iter().for_each(|stranger| sockets.read(&stranger.stream));
            sockets.wait(rest(until));
        }
    }

    /// Keeps a connection of a higher rank of this job, and closes any other.
    fn greet(&mut self, mut stranger: Stranger) {
        let higher = self.meeting.rank + 1..self.meeting.size;
        let found = higher.into_iter().flat_map(|rank| (0..CHANNELS).map(move |channel| (rank, channel)));
        let hello = |(rank, channel): &(usize, usize)| self.hello(*rank, *channel).reply().encode();
        let Some((rank, channel)) = found.into_iter().find(|link| hello(link) == stranger.hello) else {
            return;
        };
        let reply = self.hello(rank, channel).encode();
        if self.links[rank][channel].is_none() && stranger.stream.write_all(&reply).is_ok() {
            self.links[rank][channel] = Some(stranger.stream);
        }
    }

    /// Fails if another rank did, or closed a connection.
    fn check(&mut self) -> Result<()> {
        interrupt::check()?;
        if self.checked.elapsed() >= CHECK {
            self.checked = Instant::now();
            self.meeting.check()?;
        }
        for (rank, links) in self.links.iter().enumerate() {
            for link in links.iter().flatten() {
                let is_open = match link.peek(&mut [0]) {
                    Ok(n) => n > 0,
                    Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
                };
                if !is_open {
                    let message = format!("rank {rank} has ended while the ranks were connecting");
                    return Err(self.meeting.fault(message));
                }
            }
        }
        Ok(())
    }

    /// Reads what the lower ranks reply.
    fn hear_replies(&mut self, names: &[String]) -> Result<()> {
        let until = self.meeting.until;
        for (other, name) in names.iter().enumerate().take(self.meeting.rank) {
            for channel in 0..CHANNELS {
                let Some(stream) = self.links[other][channel].take() else { continue };
                let expected = self.hello(other, channel).reply().encode();
                let mut stranger = Stranger::new(stream);
                let said = loop {
                    match stranger.read() {
                        Ok(false) => {}
                        Ok(true) if stranger.hello == expected => break Ok(()),
                        Ok(true) => break Err("answered as another rank, or of another job"),
                        Err(_) => break Err("has ended while the ranks were connecting"),
                    }
                    self.check()?;
                    if rest(until).is_zero() {
                        break Err("accepts no connections, because it waits for other ranks");
                    }
                    let mut sockets = Sockets::default();
                    sockets.read(&stranger.stream);
                    sockets.wait(rest(until));
                };
                said.map_err(|what| self.meeting.fault(format!("{name} {what}")))?;
                self.links[other][channel] = Some(stranger.stream);
            }
        }
        Ok(())
    }
}
