//! A key/value store through which the processes of a job find each other.

mod protocol;
mod server;

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use phynexus::interrupt;

use self::{
    protocol::{GREETING, Kind, MOST_KEY, MOST_KEYS, MOST_MESSAGE, MOST_VALUE, Message},
    server::Server,
};
use super::{environment::is_loopback, wait::SLICE};
use crate::{Error, Result};

/// How long the store may take to answer what it need not wait for.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// A key/value store over TCP, like PyTorch's `TCPStore` but with another protocol.
///
/// Rank 0 keeps the keys, on a thread that ends when its `Store` is dropped. All ranks are clients. Any thread may use
/// a `Store`; requests at the same time have connections of their own.
///
/// Keys have at most 1,024 bytes, values 1 MiB. Whoever can connect can read and write: open it in trusted networks
/// only. With an address as host, rank 0 listens at this address alone; with a name, on all interfaces, because the
/// name may have another address on another host.
pub struct Store {
    host: String,
    port: u16,
    timeout: Duration,
    /// Of the first connection.
    local: IpAddr,
    peer: IpAddr,
    /// Connections without a request.
    idle: Mutex<Vec<TcpStream>>,
    server: Option<Server>,
}

impl Store {
    /// Opens the store if `is_server`, and connects to it. A client tries until it is there. With port 0, the server
    /// chooses a free one: see [`Store::port`]. The time limit is that of connecting, and of each later request.
    ///
    /// # Errors
    /// [`Error::Store`] if the address cannot be used, is not that of a store, or is not reached in time.
    pub fn connect(address: &str, port: u16, is_server: bool, timeout: Duration) -> Result<Store> {
        let failed = |error| Error::store(format!("{address}:{port}"), error);
        let (server, port) = match is_server {
            true => {
                let listener = listen(address, port).map_err(failed)?;
                let port = listener.local_addr().map_err(failed)?.port();
                (Some(Server::start(listener).map_err(failed)?), port)
            }
            false => (None, port),
        };
        let stream = open(address, port, is_server, deadline(timeout)).map_err(failed)?;
        let local = stream.local_addr().map_err(failed)?.ip();
        let peer = stream.peer_addr().map_err(failed)?.ip();
        let (host, idle) = (address.to_owned(), Mutex::new(vec![stream]));
        Ok(Store { host, port, timeout, local, peer, idle, server })
    }

    /// The port of the store.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether this process keeps the keys.
    pub fn is_server(&self) -> bool {
        self.server.is_some()
    }

    /// The time limit of a request.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// This host's address on the interface that reaches the store.
    pub fn local_ip(&self) -> IpAddr {
        self.local
    }

    /// The address at which this process reaches the store's host.
    pub fn peer_ip(&self) -> IpAddr {
        self.peer
    }

    /// Whether the store was asked for by a loopback address, so that all clients are on one host.
    pub fn is_local(&self) -> bool {
        is_loopback(&self.host)
    }

    /// Sets a key's value.
    ///
    /// # Errors
    /// [`Error::Store`] if the key or the value is too long, or the store does not answer in time.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.request(Kind::Set, &[key.as_bytes(), value], &[key], Duration::ZERO).map(|_| ())
    }

    /// A key's value. Waits until the key exists.
    ///
    /// # Errors
    /// [`Error::Store`]; its source is [`ErrorKind::TimedOut`] if the key did not appear within the time limit.
    pub fn get(&self, key: &str) -> Result<Vec<u8>> {
        self.get_within(key, self.timeout)
    }

    /// As [`Store::get`], with another time limit.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn get_within(&self, key: &str, limit: Duration) -> Result<Vec<u8>> {
        let mut fields = self.request(Kind::Get, &[&milliseconds(limit), key.as_bytes()], &[key], limit)?;
        fields.pop().ok_or_else(|| self.damaged())
    }

    /// Adds to a key's number and returns the sum. A missing key counts as 0; the value is the number's decimal digits.
    ///
    /// # Errors
    /// [`Error::Store`] as [`Store::set`], and if the value is not a number or the sum is out of range.
    pub fn add(&self, key: &str, by: i64) -> Result<i64> {
        let mut fields =
            self.request(Kind::Add, &[key.as_bytes(), &by.to_le_bytes()], &[key], Duration::ZERO)?;
        let sum = fields.pop().and_then(|field| field.try_into().ok());
        sum.map(i64::from_le_bytes).ok_or_else(|| self.damaged())
    }

    /// Waits until all keys exist.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn wait(&self, keys: &[&str]) -> Result<()> {
        let limit = milliseconds(self.timeout);
        let fields: Vec<&[u8]> =
            [&limit[..]].into_iter().chain(keys.iter().map(|key| key.as_bytes())).collect();
        self.request(Kind::Wait, &fields, keys, self.timeout).map(|_| ())
    }

    /// Deletes a key. Returns whether it existed.
    ///
    /// # Errors
    /// As [`Store::set`].
    pub fn delete(&self, key: &str) -> Result<bool> {
        let fields = self.request(Kind::Delete, &[key.as_bytes()], &[key], Duration::ZERO)?;
        Ok(fields == [[1]])
    }

    /// Sets a key's value if it has the expected one, or with `None` if the key is missing. Returns the value that the
    /// key has afterwards, if any.
    ///
    /// # Errors
    /// As [`Store::set`].
    pub fn compare_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8]) -> Result<Option<Vec<u8>>> {
        let fields: Vec<&[u8]> = [key.as_bytes(), value].into_iter().chain(expected).collect();
        Ok(self.request(Kind::CompareSet, &fields, &[key], Duration::ZERO)?.pop())
    }

    /// The fields of the answer to a request about keys, which the store may let wait for `limit`.
    fn request(&self, kind: Kind, fields: &[&[u8]], keys: &[&str], limit: Duration) -> Result<Vec<Vec<u8>>> {
        let answer = self.ask(kind, fields, keys, limit).map_err(|error| self.failed(error))?;
        let error = match answer.kind {
            Kind::Done => return Ok(answer.fields),
            Kind::Late => {
                let message = format!("no {} within {} s", keys.join(", "), limit.as_secs_f64());
                io::Error::new(ErrorKind::TimedOut, message)
            }
            _ => {
                let reason = answer.fields.first().map(|reason| String::from_utf8_lossy(reason));
                io::Error::new(ErrorKind::InvalidInput, reason.unwrap_or_default())
            }
        };
        Err(self.failed(error))
    }

    fn ask(&self, kind: Kind, fields: &[&[u8]], keys: &[&str], limit: Duration) -> io::Result<Message> {
        let request = Message::new(kind, fields).encode();
        let refuse = |message: &str| Err(io::Error::new(ErrorKind::InvalidInput, message));
        if keys.iter().any(|key| key.len() > MOST_KEY) || fields.iter().any(|field| field.len() > MOST_VALUE)
        {
            return refuse("a key has at most 1,024 bytes, and a value 1 MiB");
        }
        if keys.len() > MOST_KEYS || request.len() > MOST_MESSAGE {
            return refuse("these are too many keys: wait for fewer at a time");
        }
        let until = deadline(limit.saturating_add(ANSWER_TIME));
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let found = idle().pop();
        let mut stream = match found {
            Some(stream) => stream,
            None => open(&self.host, self.port, self.is_server(), until)?,
        };
        // An error leaves a request or an answer half done: the connection is given up.
        send(&mut stream, &request, until)?;
        let mut bytes = vec![0; 4];
        receive(&mut stream, &mut bytes, until)?;
        let damaged = |message| io::Error::new(ErrorKind::InvalidData, message);
        let rest = Message::rest(&bytes).map_err(damaged)?;
        bytes.resize(4 + rest, 0);
        receive(&mut stream, &mut bytes[4..], until)?;
        let answer =
            Message::take(&mut bytes).map_err(damaged)?.ok_or_else(|| damaged("an answer is cut off"))?;
        idle().push(stream);
        Ok(answer)
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::store(format!("{}:{}", self.host, self.port), error)
    }

    fn damaged(&self) -> Error {
        self.failed(io::Error::new(ErrorKind::InvalidData, "an answer is damaged"))
    }
}

/// Whether an error says that an open store went away.
pub(super) fn is_lost(error: &Error) -> bool {
    let lost = [
        ErrorKind::UnexpectedEof,
        ErrorKind::ConnectionReset,
        ErrorKind::ConnectionAborted,
        ErrorKind::BrokenPipe,
    ];
    matches!(error, Error::Store { source, .. } if lost.contains(&source.kind()))
}

fn milliseconds(limit: Duration) -> [u8; 8] {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).to_le_bytes()
}

/// The end of a time limit; `None` if the clock does not reach it.
pub(super) fn deadline(limit: Duration) -> Option<Instant> {
    Instant::now().checked_add(limit)
}

/// The time that is left.
pub(super) fn rest(until: Option<Instant>) -> Duration {
    until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()))
}

/// Listens for clients.
fn listen(host: &str, port: u16) -> io::Result<TcpListener> {
    let explain = |error: io::Error| match error.kind() {
        ErrorKind::AddrInUse => {
            let message = format!("another program uses port {port}: set MASTER_PORT to a free one");
            io::Error::new(ErrorKind::AddrInUse, message)
        }
        _ => error,
    };
    if is_loopback(host) || host.parse::<IpAddr>().is_ok() {
        match TcpListener::bind((host, port)) {
            // The address may be that of a gateway which forwards to this host.
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {}
            bound => return bound.map_err(explain),
        }
    }
    let has_v6 = (host, port).to_socket_addrs().is_ok_and(|mut all| all.any(|address| address.is_ipv6()));
    // On Windows, this address would exclude IPv4.
    if has_v6
        && cfg!(not(windows))
        && let Ok(listener) = TcpListener::bind(("::", port))
    {
        return Ok(listener);
    }
    TcpListener::bind(("0.0.0.0", port)).map_err(explain)
}

/// Connects to a store, as soon as there is one.
fn open(host: &str, port: u16, is_server: bool, until: Option<Instant>) -> io::Result<TcpStream> {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        let last = match attempt(host, port, is_server, until) {
            // Something else listens there, or the wait was interrupted.
            Err(error) if [ErrorKind::InvalidData, ErrorKind::Other].contains(&error.kind()) => {
                return Err(error);
            }
            Err(error) => error,
            opened => return opened,
        };
        let next = Instant::now() + pause;
        if until.is_some_and(|until| next > until) {
            let seconds = begun.elapsed().as_secs_f64();
            let message = format!(
                "no connection for {seconds:.1} s ({last}): check that rank 0 runs, and that MASTER_ADDR and \
                 MASTER_PORT are its address and a port that its firewall opens"
            );
            return Err(io::Error::new(ErrorKind::TimedOut, message));
        }
        while let Some(rest) = next.checked_duration_since(Instant::now()) {
            thread::sleep(rest.min(SLICE));
            check()?;
        }
        pause = (2 * pause).min(Duration::from_millis(500));
    }
}

/// Tries once to connect to each of the host's addresses.
fn attempt(host: &str, port: u16, is_server: bool, until: Option<Instant>) -> io::Result<TcpStream> {
    const TIME: Duration = Duration::from_secs(2);
    let mut last = io::Error::new(ErrorKind::NotFound, "the host has no address");
    // The host itself may not reach the address by which others do.
    let itself = is_server.then(|| SocketAddr::from(([127, 0, 0, 1], port)));
    for address in (host, port).to_socket_addrs()?.chain(itself) {
        check()?;
        match greet(address, rest(until).clamp(Duration::from_millis(10), TIME)) {
            Err(error) if error.kind() != ErrorKind::InvalidData => last = error,
            greeted => return greeted,
        }
    }
    Err(last)
}

fn greet(address: SocketAddr, time: Duration) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, time)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SLICE))?;
    stream.set_write_timeout(Some(SLICE))?;
    let until = deadline(ANSWER_TIME.min(time * 4));
    send(&mut stream, &GREETING, until)?;
    let mut greeting = [0; GREETING.len()];
    receive(&mut stream, &mut greeting, until)?;
    let refuse = |message: String| Err(io::Error::new(ErrorKind::InvalidData, message));
    match greeting.split_last() {
        _ if greeting == GREETING => Ok(stream),
        Some((version, magic)) if magic == &GREETING[..magic.len()] => refuse(format!(
            "its protocol has version {version}, and this program's has version {}: run the same build on all hosts",
            GREETING[GREETING.len() - 1]
        )),
        _ => refuse("another program listens there: set MASTER_PORT to a free port".to_owned()),
    }
}

/// Stops if this thread's computation should. The engine's error passes through the socket's.
fn check() -> io::Result<()> {
    interrupt::check().map_err(io::Error::other)
}

/// Whether to try again after a socket was not ready; otherwise the error.
fn again(error: io::Error, until: Option<Instant>) -> io::Result<()> {
    match error.kind() {
        ErrorKind::Interrupted => Ok(()),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            check()?;
            match until {
                Some(until) if until <= Instant::now() => {
                    Err(io::Error::new(ErrorKind::TimedOut, "it does not answer"))
                }
                _ => Ok(()),
            }
        }
        _ => Err(error),
    }
}

fn send(stream: &mut TcpStream, mut bytes: &[u8], until: Option<Instant>) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(error) => again(error, until)?,
        }
    }
    Ok(())
}

fn receive(stream: &mut TcpStream, bytes: &mut [u8], until: Option<Instant>) -> io::Result<()> {
    let mut count = 0;
    while count < bytes.len() {
        match stream.read(&mut bytes[count..]) {
            Ok(0) => {
                let message = "it closed the connection: rank 0 may have ended";
                return Err(io::Error::new(ErrorKind::UnexpectedEof, message));
            }
            Ok(n) => count += n,
            Err(error) => again(error, until)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
