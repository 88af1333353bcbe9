//! The connections to another rank, and what travels over them.
//!
//! Messages are frames: a kind and a length, then as many bytes. Data and control frames have a connection each, so a
//! failure is seen before data that nobody has read.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
    time::Instant,
};

/// The bytes before each frame's: the kind in 4, the length in 8, both in little-endian order.
pub(super) const HEADER: usize = 12;

/// The longest text of a control frame, in bytes.
const MOST_TEXT: usize = 2000;

/// The largest number of bytes of control frames that wait for the system.
const MOST_UNSENT: usize = 1 << 16;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data = 1,
    /// Control: the rank leaves normally.
    Left = 2,
    /// Control: the rank failed. The number of the rank that is at fault in 4 bytes, and a text that names it.
    Failed = 3,
    /// Control: the rank for which this one waits, in 4 bytes, or [`NONE`].
    Waits = 4,
}

/// No rank.
const NONE: u32 = u32::MAX;

pub(super) fn header(kind: Kind, length: usize) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&(kind as u32).to_le_bytes());
    header[4..].copy_from_slice(&(length as u64).to_le_bytes());
    header
}

/// The length of a frame of this kind; `None` if it is another.
pub(super) fn length(kind: Kind, header: &[u8; HEADER]) -> Option<usize> {
    let expected = self::header(kind, 0);
    let (found, length) = header.split_at(4);
    (found == &expected[..4]).then(|| usize::try_from(u64::from_le_bytes(length.try_into().ok()?)).ok())?
}

/// What is known of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Present,
    /// It left normally.
    Left,
    /// Its connection ended without notice, which was seen at this time.
    Ended(Instant),
    /// It reported a failure: the rank at fault, and a text that names it.
    Failed(usize, String),
}

/// Another rank.
pub(super) struct Peer {
    pub(super) rank: usize,
    /// Rank, process and host.
    pub(super) name: String,
    pub(super) data: TcpStream,
    pub(super) inbox: Inbox,
    control: TcpStream,
    /// Bytes of control frames that are not complete.
    news: Vec<u8>,
    /// Bytes of control frames that the system did not take yet.
    unsent: Vec<u8>,
    pub(super) state: State,
    /// The rank for which it waits.
    pub(super) waits_for: Option<usize>,
}

impl Peer {
    /// A rank and its connections, which do not block.
    pub(super) fn new(rank: usize, name: String, data: TcpStream, control: TcpStream) -> Peer {
        Peer {
            rank,
            name,
            data,
            inbox: Inbox::default(),
            control,
            news: Vec::new(),
            unsent: Vec::new(),
            state: State::Present,
            waits_for: None,
        }
    }

    pub(super) fn is_present(&self) -> bool {
        self.state == State::Present
    }

    fn tell(&mut self, kind: Kind, body: &[u8]) {
        // A rank that reads no control frames for long need not know of each wait.
        if self.is_present() && self.unsent.len() < MOST_UNSENT {
            self.unsent.extend(header(kind, body.len()));
            self.unsent.extend(body);
            self.flush();
        }
    }

    fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match self.control.write(&self.unsent) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Not now, or the rank has ended, which reading tells.
                Ok(0) | Err(_) => return,
                Ok(n) => drop(self.unsent.drain(..n)),
            }
        }
    }

    /// Says that this process leaves.
    pub(super) fn tell_left(&mut self) {
        self.tell(Kind::Left, &[]);
    }

    /// Says that this process failed, and which rank is at fault.
    pub(super) fn tell_failed(&mut self, culprit: usize, text: &str) {
        let end = text.floor_char_boundary(MOST_TEXT);
        self.tell(Kind::Failed, &[&(culprit as u32).to_le_bytes(), &text.as_bytes()[..end]].concat());
    }

    /// Says for which rank this process waits.
    pub(super) fn tell_waits(&mut self, rank: Option<usize>) {
        self.tell(Kind::Waits, &rank.map_or(NONE, |rank| rank as u32).to_le_bytes());
    }

    /// Reads the control frames that arrived.
    pub(super) fn hear(&mut self) {
        self.flush();
        let mut buffer = [0; 512];
        while self.is_present() {
            match self.control.read(&mut buffer) {
                Ok(0) => self.state = State::Ended(Instant::now()),
                Ok(n) => {
                    self.news.extend(&buffer[..n]);
                    self.understand();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.state = State::Ended(Instant::now()),
            }
        }
    }

    fn understand(&mut self) {
        // What follows a failure changes nothing.
        while self.is_present()
            && let Some(header) = self.news.first_chunk::<HEADER>().copied()
        {
            let known =
                |kind| length(kind, &header).filter(|length| *length <= 4 + MOST_TEXT).map(|n| (kind, n));
            let Some((kind, length)) = [Kind::Left, Kind::Failed, Kind::Waits].into_iter().find_map(known)
            else {
                self.state = State::Failed(self.rank, format!("{} sent what is no control frame", self.name));
                return;
            };
            let Some(body) = self.news.get(HEADER..HEADER + length) else { return };
            let rank = body.first_chunk().map(|rank| u32::from_le_bytes(*rank));
            match kind {
                Kind::Left => self.state = State::Left,
                Kind::Failed => {
                    let text = String::from_utf8_lossy(&body[body.len().min(4)..]).into_owned();
                    self.state = State::Failed(rank.map_or(self.rank, |rank| rank as usize), text);
                }
                _ => self.waits_for = rank.filter(|rank| *rank != NONE).map(|rank| rank as usize),
            }
            self.news.drain(..HEADER + length);
        }
    }
}

/// Messages that arrived before they were asked for.
#[derive(Default)]
pub(super) struct Inbox {
    whole: VecDeque<Vec<u8>>,
    /// A frame that is not complete: its header, and its bytes.
    header: Vec<u8>,
    body: Vec<u8>,
}

impl Inbox {
    /// Whether it has at least a part of a message, which comes before what is on the wire.
    pub(super) fn is_begun(&self) -> bool {
        !self.whole.is_empty() || !self.header.is_empty()
    }

    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        self.whole.pop_front()
    }

    /// Reads what arrived, up to the end of a message. Returns the number of bytes.
    ///
    /// # Errors
    /// [`ErrorKind::UnexpectedEof`] if the connection ended, [`ErrorKind::InvalidData`] if this is no message.
    pub(super) fn fill(&mut self, stream: &TcpStream) -> io::Result<usize> {
        let before = self.header.len() + self.body.len();
        take(stream, &mut self.header, HEADER)?;
        if let Some(header) = self.header.first_chunk() {
            let length = length(Kind::Data, header).ok_or(ErrorKind::InvalidData)?;
            let missing = length - self.body.len();
            self.body.try_reserve_exact(missing).map_err(|_| ErrorKind::OutOfMemory)?;
            take(stream, &mut self.body, length)?;
            let count = HEADER + self.body.len() - before;
            if self.body.len() == length {
                self.header.clear();
                self.whole.push_back(std::mem::take(&mut self.body));
            }
            return Ok(count);
        }
        Ok(self.header.len() - before)
    }
}

/// Reads what arrived until the bytes are as many as `length`.
fn take(stream: &TcpStream, bytes: &mut Vec<u8>, length: usize) -> io::Result<()> {
    let missing = length - bytes.len();
    match stream.take(missing as u64).read_to_end(bytes) {
        Ok(n) if n < missing => Err(ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        result => result.map(|_| ()),
    }
}
