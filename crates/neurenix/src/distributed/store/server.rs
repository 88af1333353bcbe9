//! The thread of rank 0 that keeps the keys and values.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    super::wait::{SLICE, Sockets},
    protocol::{GREETING, Kind, MOST_KEY, MOST_VALUE, Message},
};

/// How long a connection may take to greet.
const GREETING_TIME: Duration = Duration::from_secs(10);
/// The largest number of connections that have not greeted.
const MOST_STRANGERS: usize = 512;
/// Bytes read from a connection before the next one has its turn.
const TURN: usize = 1 << 18;
/// Bytes of all keys and values.
const MOST_STORED: usize = 1 << 28;

/// A running store. It ends when this is dropped.
pub(super) struct Server {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(listener: TcpListener) -> io::Result<Server> {
        listener.set_nonblocking(true)?;
        let ends = Arc::new(AtomicBool::new(false));
        let watched = ends.clone();
        let serve = move || serve(&listener, &watched);
        let thread = thread::Builder::new().name("neurenix-store".to_owned()).spawn(serve)?;
        Ok(Server { ends, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, ends: &AtomicBool) {
    let mut clients: Vec<Client> = Vec::new();
    let mut stored = Stored::default();
    while !ends.load(Ordering::Relaxed) {
        let mut moved = accept(listener, &mut clients);
        for client in &mut clients {
            moved |= client.advance(&mut stored);
        }
        clients.retain(|client| !client.is_closed);
        if moved {
            continue;
        }
        let mut sockets = Sockets::default();
        sockets.read(listener);
        for client in &clients {
            if !client.output.is_empty() {
                sockets.write(&client.stream);
            } else if client.reads() {
                sockets.read(&client.stream);
            }
        }
        sockets.wait(SLICE);
    }
}

/// Accepts connections that arrived. Returns whether there were any.
fn accept(listener: &TcpListener, clients: &mut Vec<Client>) -> bool {
    let mut strangers = clients.iter().filter(|client| !client.is_greeted).count();
    let mut any = false;
    loop {
        match listener.accept() {
            Ok((stream, _)) if strangers < MOST_STRANGERS => {
                any = true;
                if stream.set_nonblocking(true).is_ok() {
                    // Answers are small, and each is waited for.
                    let _ = stream.set_nodelay(true);
                    clients.push(Client::new(stream));
                    strangers += 1;
                }
            }
            // Real clients connect again.
            Ok(_) => any = true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return any,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => {
                // Such as too many open files. The listener stays ready, so polling it does not wait.
                thread::sleep(Duration::from_millis(10));
                return any;
            }
        }
    }
}

/// A request that waits for keys.
struct Waiting {
    keys: Vec<Vec<u8>>,
    /// `None` if it never ends.
    until: Option<Instant>,
    /// Whether the first key's value is requested.
    is_get: bool,
}

struct Client {
    stream: TcpStream,
    is_greeted: bool,
    is_closed: bool,
    since: Instant,
    input: Vec<u8>,
    output: Vec<u8>,
    waiting: Option<Waiting>,
}

impl Client {
    fn new(stream: TcpStream) -> Client {
        Client {
            stream,
            is_greeted: false,
            is_closed: false,
            since: Instant::now(),
            input: Vec::new(),
            output: Vec::new(),
            waiting: None,
        }
    }

    /// Reads, answers and writes what is possible now. Returns whether anything was.
    fn advance(&mut self, stored: &mut Stored) -> bool {
        let mut moved = self.read();
        if !self.is_greeted {
            self.greet();
        }
        if self.is_greeted && self.output.is_empty() {
            moved |= self.answer(stored);
        }
        moved | self.write()
    }

    /// Whether more may arrive. A client that sends without waiting for its answer has to wait here.
    fn reads(&self) -> bool {
        self.waiting.is_none() || self.input.is_empty()
    }

    fn read(&mut self) -> bool {
        let mut buffer = [0; 1 << 14];
        let mut count = 0;
        while count < TURN && self.reads() {
            // Nothing is kept of strangers but the greeting.
            let room = if self.is_greeted { buffer.len() } else { GREETING.len() - self.input.len() };
            if room == 0 {
                break;
            }
            match self.stream.read(&mut buffer[..room]) {
                Ok(0) => {
                    self.is_closed = true;
                    break;
                }
                Ok(n) => {
                    self.input.extend(&buffer[..n]);
                    count += n;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_closed |= error.kind() != io::ErrorKind::WouldBlock;
                    break;
                }
            }
        }
        count > 0
    }

    fn greet(&mut self) {
        let magic = GREETING.len() - 1;
        let known = self.input.len().min(magic);
        if self.input[..known] != GREETING[..known] || self.since.elapsed() > GREETING_TIME {
            self.is_closed = true;
        } else if self.input.len() == GREETING.len() {
            // Another version gets the greeting, too, and so can say what is wrong.
            self.is_greeted = self.input == GREETING;
            self.input.clear();
            self.output.extend(GREETING);
            if !self.is_greeted {
                self.write();
                self.is_closed = true;
            }
        }
    }

    /// Answers the request that waits, or the next one. Returns whether it did.
    fn answer(&mut self, stored: &mut Stored) -> bool {
        let answer = match self.waiting.take() {
            Some(waiting) => {
                let answer = stored.answer(&waiting);
                if answer.is_none() {
                    self.waiting = Some(waiting);
                }
                answer
            }
            None => match Message::take(&mut self.input) {
                Ok(None) => None,
                Ok(Some(request)) => match stored.run(request) {
                    Ok(Next::Answer(answer)) => Some(answer),
                    Ok(Next::Wait(waiting)) => {
                        self.waiting = Some(waiting);
                        return true;
                    }
                    Err(reason) => Some(Message::new(Kind::Refused, &[reason.as_bytes()])),
                },
                Err(_) => {
                    self.is_closed = true;
                    None
                }
            },
        };
        answer.inspect(|answer| self.output = answer.encode()).is_some()
    }

    fn write(&mut self) -> bool {
        if self.output.is_empty() || self.is_closed {
            return false;
        }
        match self.stream.write(&self.output) {
            Ok(0) => self.is_closed = true,
            Ok(n) => {
                self.output.drain(..n);
                return true;
            }
            Err(error) => {
                let again = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
                self.is_closed = !again.contains(&error.kind());
            }
        }
        false
    }
}

/// What follows from a request.
enum Next {
    Answer(Message),
    Wait(Waiting),
}

/// The keys and their values.
#[derive(Default)]
struct Stored {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Bytes of all of them.
    size: usize,
}

impl Stored {
    fn run(&mut self, request: Message) -> Result<Next, &'static str> {
        let mut fields = request.fields.into_iter();
        let mut field = || fields.next().ok_or("a field is missing");
        let done = |fields: &[&[u8]]| Ok(Next::Answer(Message::new(Kind::Done, fields)));
        match request.kind {
            Kind::Set => {
                self.set(field()?, field()?)?;
                done(&[])
            }
            Kind::Get | Kind::Wait => {
                let limit = u64::from_le_bytes(field()?.try_into().map_err(|_| "a time limit has 8 bytes")?);
                let until = Instant::now().checked_add(Duration::from_millis(limit));
                let is_get = request.kind == Kind::Get;
                let keys: Vec<_> = fields.collect();
                if is_get && keys.len() != 1 {
                    return Err("one key is requested at a time");
                }
                Ok(Next::Wait(Waiting { keys, until, is_get }))
            }
            Kind::Add => {
                let key = field()?;
                let by = i64::from_le_bytes(field()?.try_into().map_err(|_| "a summand has 8 bytes")?);
                let before = match self.values.get(&key) {
                    None => 0,
                    Some(value) => {
                        let number = str::from_utf8(value).ok().and_then(|text| text.parse::<i64>().ok());
                        number.ok_or("the key's value is not a number, so nothing can be added to it")?
                    }
                };
                let sum = before.checked_add(by).ok_or("the sum does not fit into 64 bits")?;
                self.set(key, sum.to_string().into_bytes())?;
                done(&[&sum.to_le_bytes()])
            }
            Kind::Delete => {
                let key = field()?;
                let value = self.values.remove(&key);
                self.size -= value.as_ref().map_or(0, |value| key.len() + value.len());
                done(&[&[u8::from(value.is_some())]])
            }
            Kind::CompareSet => {
                let (key, value, expected) = (field()?, field()?, field().ok());
                let current = self.values.get(&key);
                if current != expected.as_ref() {
                    return done(&current.map(Vec::as_slice).into_iter().collect::<Vec<_>>());
                }
                self.set(key, value.clone())?;
                done(&[&value])
            }
            Kind::Done | Kind::Late | Kind::Refused => Err("an answer is not a request"),
        }
    }

    fn set(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<(), &'static str> {
        if key.len() > MOST_KEY || value.len() > MOST_VALUE {
            return Err("a key or a value is too long");
        }
        let before = self.values.get(&key).map_or(0, |before| key.len() + before.len());
        let size = self.size - before + key.len() + value.len();
        if size > MOST_STORED {
            return Err("the store is full: delete keys that are no longer needed");
        }
        self.size = size;
        self.values.insert(key, value);
        Ok(())
    }

    /// The answer to a request that waits, once there is one.
    fn answer(&self, waiting: &Waiting) -> Option<Message> {
        if waiting.keys.iter().all(|key| self.values.contains_key(key)) {
            let value = waiting.keys.first().filter(|_| waiting.is_get).and_then(|key| self.values.get(key));
            let fields: Vec<&[u8]> = value.into_iter().map(Vec::as_slice).collect();
            return Some(Message::new(Kind::Done, &fields));
        }
        let is_late = waiting.until.is_some_and(|until| until <= Instant::now());
        is_late.then(|| Message::new(Kind::Late, &[]))
    }
}
