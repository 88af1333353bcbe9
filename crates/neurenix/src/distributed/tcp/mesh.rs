//! The connections to all other ranks, and exchanges over them.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, IoSliceMut, Read, Write},
    thread,
    time::{Duration, Instant},
};

use phynexus::{
    Error,
    distributed::{Incoming, Outgoing, other_length},
    interrupt,
};

use super::{
    super::wait::Sockets,
    peer::{HEADER, Kind, Peer, State, header, length},
};

/// How often a rank that waits looks whether another one ended.
const LOOK: Duration = Duration::from_millis(100);
/// How long a rank that waits tries its sockets before it sleeps until they are ready.
const ACTIVE: Duration = Duration::from_micros(100);
/// How long a rank goes on after another one ended without notice that it does not wait for. A program that ends
/// without leaving its group ends its ranks at about the same time, and the last messages still arrive.
const GRACE: Duration = Duration::from_millis(500);

/// Bytes of a message that are written together with its header.
const FIRST: usize = 1 << 14;

/// Why an exchange stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// By [`interrupt::check`].
    Interrupted(Error),
    /// The rank at fault, and a text that names it.
    Failed(usize, String),
}

/// The connections to all other ranks.
pub(super) struct Mesh {
    rank: usize,
    /// This process, as its peers know it.
    name: String,
    /// By rank; `None` for this one.
    peers: Vec<Option<Peer>>,
    /// Messages to itself.
    own: VecDeque<Vec<u8>>,
    looked: Instant,
    /// The rank for which this one waits, as its peers know.
    told: Option<usize>,
}

/// A message that is being sent.
struct Sending<'a> {
    to: usize,
    header: [u8; HEADER],
    bytes: &'a [u8],
    done: usize,
}

impl Sending<'_> {
    fn is_done(&self) -> bool {
        self.done == HEADER + self.bytes.len()
    }
}

/// A message that is being received.
struct Receiving<'a> {
    from: usize,
    header: [u8; HEADER],
    bytes: &'a mut [u8],
    done: usize,
}

impl Receiving<'_> {
    fn is_done(&self) -> bool {
        self.done == HEADER + self.bytes.len()
    }
}

impl Mesh {
    /// The mesh of `rank`, called `name`; `peers` has `None` for itself.
    pub(super) fn new(rank: usize, name: String, peers: Vec<Option<Peer>>) -> Mesh {
        Mesh { rank, name, peers, own: VecDeque::new(), looked: Instant::now(), told: None }
    }

    fn others(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().flatten()
    }

    fn others_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.peers.iter_mut().flatten()
    }

    /// Says goodbye.
    pub(super) fn leave(mut self) {
        for peer in self.others_mut() {
            peer.tell_left();
            // Closing a connection with unread bytes can make the system drop what was sent.
            peer.hear();
        }
    }

    /// Tells the peers of a failure. Returns what this rank says of it.
    pub(super) fn fail(&mut self, stop: &Stop) -> String {
        let (culprit, text) = match stop {
            Stop::Interrupted(_) => (self.rank, format!("{} was interrupted", self.name)),
            Stop::Failed(rank, text) if *rank == self.rank => {
                (self.rank, format!("{} failed: {text}", self.name))
            }
            Stop::Failed(rank, text) => (*rank, text.clone()),
        };
        self.others_mut().for_each(|peer| peer.tell_failed(culprit, &text));
        match stop {
            Stop::Failed(_, text) => text.clone(),
            Stop::Interrupted(_) => text,
        }
    }

    /// Sends and receives. `timeout` limits the time without progress.
    pub(super) fn exchange(
        &mut self,
        send: Option<Outgoing<'_>>,
        receive: Option<Incoming<'_>>,
        timeout: Duration,
    ) -> Result<(), Stop> {
        let send = match send {
            Some(send) if send.to == self.rank => {
                self.own.push_back(send.bytes.to_vec());
                None
            }
            other => other,
        };
        let mut sending = send.map(|Outgoing { bytes, to }| Sending {
            to,
            header: header(Kind::Data, bytes.len()),
            bytes,
            done: 0,
        });
        let mut receiving =
            receive.map(|Incoming { bytes, from }| Receiving { from, header: [0; HEADER], bytes, done: 0 });
        let mut moved = Instant::now();
        loop {
            let mut has_moved = false;
            if let Some(sending) = sending.as_mut().filter(|sending| !sending.is_done()) {
                has_moved |= self.send(sending)?;
            }
            if let Some(receiving) = receiving.as_mut().filter(|receiving| !receiving.is_done()) {
                has_moved |= self.receive(receiving)?;
            }
            let sends = sending.as_ref().filter(|sending| !sending.is_done());
            let receives = receiving.as_ref().filter(|receiving| !receiving.is_done());
            let Some(late) = receives.map(|r| r.from).or(sends.map(|s| s.to)) else { break };
            interrupt::check().map_err(Stop::Interrupted)?;
            let now = Instant::now();
            if now - self.looked >= LOOK {
                self.look(now)?;
            }
            if has_moved {
                moved = now;
                continue;
            }
            let waited = now - moved;
            if waited >= timeout {
                return Err(self.late(late, timeout));
            }
            // Once a rank has waited for long, all say whom they wait for: so the last of a chain is known.
            let is_long = waited >= LOOK && self.others().any(|peer| peer.waits_for.is_some());
            if is_long || waited >= timeout / 2 {
                self.tell_waits(Some(late));
            }
            if waited < ACTIVE {
                thread::yield_now();
            } else {
                self.wait(sends, receives, timeout - waited);
            }
        }
        self.tell_waits(None);
        Ok(())
    }

    fn tell_waits(&mut self, rank: Option<usize>) {
        if self.told != rank {
            self.told = rank;
            self.others_mut().for_each(|peer| peer.tell_waits(rank));
        }
    }

    fn send(&mut self, sending: &mut Sending<'_>) -> Result<bool, Stop> {
        let Some(peer) = self.peers.get_mut(sending.to).and_then(Option::as_mut) else {
            return Err(self.unknown(sending.to));
        };
        let bytes = &sending.bytes[sending.done.saturating_sub(HEADER)..];
        let written = match sending.header.get(sending.done..).filter(|header| !header.is_empty()) {
            // One packet for a short message. A vectored write would raise SIGPIPE if the rank has ended.
            Some(header) => peer.data.write(&[header, &bytes[..bytes.len().min(FIRST)]].concat()),
            None => peer.data.write(bytes),
        };
        match written {
            Ok(0) => Err(self.ended(sending.to)),
            Ok(n) => {
                sending.done += n;
                Ok(true)
            }
            Err(error) if is_not_ready(&error) => Ok(false),
            Err(_) => Err(self.ended(sending.to)),
        }
    }

    fn receive(&mut self, receiving: &mut Receiving<'_>) -> Result<bool, Stop> {
        let from = receiving.from;
        if from == self.rank {
            let Some(message) = self.own.pop_front() else {
                let text = "it receives from itself what it has not sent".to_owned();
                return Err(Stop::Failed(self.rank, text));
            };
            return self.accept(receiving, &message);
        }
        let Some(peer) = self.peers.get_mut(from).and_then(Option::as_mut) else {
            return Err(self.unknown(from));
        };
        if receiving.done == 0 && peer.inbox.is_begun() {
            // It began to arrive while this rank could only send.
            if let Some(message) = peer.inbox.pop() {
                return self.accept(receiving, &message);
            }
            return match peer.inbox.fill(&peer.data) {
                Ok(n) => Ok(n > 0),
                Err(error) => Err(self.unreadable(from, &error)),
            };
        }
        let header = &mut receiving.header[receiving.done.min(HEADER)..];
        let bytes = &mut receiving.bytes[receiving.done.saturating_sub(HEADER)..];
        let read = (&peer.data).read_vectored(&mut [IoSliceMut::new(header), IoSliceMut::new(bytes)]);
        let before = receiving.done;
        match read {
            Ok(0) => return Err(self.ended(from)),
            Ok(n) => receiving.done += n,
            Err(error) if is_not_ready(&error) => return Ok(false),
            Err(error) => return Err(self.unreadable(from, &error)),
        }
        if before < HEADER && receiving.done >= HEADER {
            let Some(sent) = length(Kind::Data, &receiving.header) else {
                return Err(self.unreadable(from, &ErrorKind::InvalidData.into()));
            };
            self.compare(from, sent, receiving.bytes.len())?;
        }
        Ok(true)
    }

    /// Takes a whole message.
    fn accept(&self, receiving: &mut Receiving<'_>, message: &[u8]) -> Result<bool, Stop> {
        self.compare(receiving.from, message.len(), receiving.bytes.len())?;
        receiving.bytes.copy_from_slice(message);
        receiving.done = HEADER + message.len();
        Ok(true)
    }

    fn compare(&self, from: usize, sent: usize, wanted: usize) -> Result<(), Stop> {
        if sent == wanted {
            return Ok(());
        }
        Err(Stop::Failed(self.rank, other_length(from, sent, wanted)))
    }

    fn unknown(&self, rank: usize) -> Stop {
        Stop::Failed(self.rank, format!("there is no rank {rank}: use 0 to {}", self.peers.len() - 1))
    }

    fn unreadable(&mut self, from: usize, error: &io::Error) -> Stop {
        match error.kind() {
            ErrorKind::InvalidData => {
                Stop::Failed(from, format!("{} sent what is no message", self.name_of(from)))
            }
            ErrorKind::OutOfMemory => {
                Stop::Failed(self.rank, format!("no memory for a message of rank {from} that came early"))
            }
            _ => self.ended(from),
        }
    }

    /// Waits until something can be sent or received. While this rank cannot send, it takes what others send, who may
    /// be waiting to send, too.
    fn wait(&mut self, sends: Option<&Sending<'_>>, receives: Option<&Receiving<'_>>, limit: Duration) {
        let mut sockets = Sockets::default();
        let receives = receives.map(|receiving| receiving.from);
        if sends.is_some() {
            for peer in self.peers.iter_mut().flatten().filter(|peer| peer.is_present()) {
                // Errors are those of whoever asks for the message.
                while Some(peer.rank) != receives && peer.inbox.fill(&peer.data).is_ok_and(|n| n > 0) {}
            }
        }
        for peer in self.others() {
            if Some(peer.rank) == receives || sends.is_some() && peer.is_present() {
                sockets.read(&peer.data);
            }
            if sends.is_some_and(|sending| sending.to == peer.rank) {
                sockets.write(&peer.data);
            }
        }
        sockets.wait(limit);
    }

    /// Looks whether a rank left, ended or failed.
    pub(super) fn has_left(&mut self, rank: usize) -> bool {
        let peer = self.peers.get_mut(rank).and_then(Option::as_mut);
        peer.is_some_and(|peer| {
            peer.hear();
            !peer.is_present()
        })
    }

    /// The ranks that left, ended or failed.
    pub(super) fn left(&mut self) -> Vec<usize> {
        (0..self.peers.len()).filter(|&rank| self.has_left(rank)).collect()
    }

    /// Looks whether a rank failed, or ended some time ago.
    fn look(&mut self, now: Instant) -> Result<(), Stop> {
        self.looked = now;
        self.others_mut().for_each(Peer::hear);
        let failed = self.others().find_map(|peer| match &peer.state {
            State::Failed(culprit, text) => Some(Stop::Failed(*culprit, text.clone())),
            _ => None,
        });
        let first = self.first_ended().filter(|(since, _)| *since + GRACE <= now);
        match failed.or_else(|| first.map(|(_, peer)| has_ended(peer))) {
            Some(stop) => Err(stop),
            None => Ok(()),
        }
    }

    /// The rank that ended first without notice, as far as this one has seen.
    fn first_ended(&self) -> Option<(Instant, &Peer)> {
        let ended = self.others().filter_map(|peer| match peer.state {
            State::Ended(since) => Some((since, peer)),
            _ => None,
        });
        ended.min_by_key(|(since, _)| *since)
    }

    /// The connection to a rank ended. Finds out which rank is at fault: it may have reported another one.
    fn ended(&mut self, rank: usize) -> Stop {
        let until = Instant::now() + GRACE;
        loop {
            let now = Instant::now();
            if let Err(stop) = self.look(now) {
                return stop;
            }
            let Some(peer) = self.peers.get(rank).and_then(Option::as_ref) else { return self.unknown(rank) };
            match (&peer.state, self.first_ended()) {
                // Its notice takes another way than its data.
                (State::Present, _) if now < until => thread::sleep(Duration::from_millis(1)),
                (State::Ended(_), Some((_, first))) => return has_ended(first),
                _ => return has_ended(peer),
            }
        }
    }

    /// A rank did not send or take anything for too long. If it waits for another one, that one is late.
    fn late(&mut self, direct: usize, timeout: Duration) -> Stop {
        if let Err(stop) = self.look(Instant::now()) {
            return stop;
        }
        let seconds = timeout.as_secs_f64();
        let mut seen = vec![self.rank];
        let mut last = direct;
        while let Some(next) = self.peers.get(last).and_then(|peer| peer.as_ref()?.waits_for) {
            seen.push(last);
            if seen.contains(&next) {
                let text = format!(
                    "{} did nothing for {seconds} s, and waits for another rank itself: all ranks must run the same \
                     collectives in the same order",
                    self.name_of(direct)
                );
                return Stop::Failed(direct, text);
            }
            last = next;
        }
        let text = format!(
            "{} is late: other ranks waited for it for {seconds} s, the time limit. If it is only slow, set a longer \
             `timeout`",
            self.name_of(last)
        );
        Stop::Failed(last, text)
    }

    fn name_of(&self, rank: usize) -> String {
        match self.peers.get(rank).and_then(Option::as_ref) {
            Some(peer) => peer.name.clone(),
            None => format!("rank {rank}"),
        }
    }
}

fn has_ended(peer: &Peer) -> Stop {
    let why = if peer.state == State::Left { ": it closed its process group" } else { "" };
    Stop::Failed(peer.rank, format!("{} has ended{why}", peer.name))
}

fn is_not_ready(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
