//! The members of a group agree whether they use the library.
//!
//! Each tells the others, over the group's transport, which GPU and library it has. All decide the same from that.

use std::{
    hash::{BuildHasher, RandomState},
    process,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use phynexus::{
    Error, Result,
    distributed::Group,
    op::{Collective, CollectiveKind},
};

use crate::{
    Endpoint,
    communicator::{Communicator, Member},
    library::{Library, UniqueId, Vendor},
};

/// The size of what a member tells the others, in bytes.
const RECORD: usize = 512;
/// Where its text begins.
const TEXT: usize = 48;

/// What a member has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Introduction {
    vendor: Vendor,
    /// The library's version; 0 if there is none.
    version: u32,
    /// The GPU's unique number.
    gpu: [u8; 16],
    /// A number that no other process has.
    process: [u8; 16],
    /// The GPU's number in that process.
    ordinal: u32,
    /// Why it cannot take part, if it cannot.
    refusal: String,
}

impl Introduction {
    fn of(endpoint: &dyn Endpoint, vendor: Vendor) -> Introduction {
        let library = endpoint.library();
        let number = endpoint.bind().and_then(|()| endpoint.unique_number());
        let refusal = library.as_ref().err().cloned();
        let refusal = refusal.or_else(|| number.as_ref().err().map(Error::to_string));
        Introduction {
            vendor,
            version: library.map_or(0, Library::version_code),
            gpu: number.unwrap_or_default(),
            process: process_number(),
            ordinal: endpoint.ordinal(),
            refusal: refusal.unwrap_or_default(),
        }
    }

    fn encode(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[0] = match self.vendor {
            Vendor::Nvidia => 1,
            Vendor::Amd => 2,
        };
        bytes[4..8].copy_from_slice(&self.version.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.gpu);
        bytes[24..40].copy_from_slice(&self.process);
        bytes[40..44].copy_from_slice(&self.ordinal.to_le_bytes());
        write_text(&self.refusal, &mut bytes[TEXT..]);
        bytes
    }

    /// `None` for other bytes: that member has another kind of device.
    fn decode(bytes: &[u8]) -> Option<Introduction> {
        let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        let vendor = match bytes.first()? {
            1 => Vendor::Nvidia,
            2 => Vendor::Amd,
            _ => return None,
        };
        Some(Introduction {
            vendor,
            version: word(4)?,
            gpu: bytes.get(8..24)?.try_into().ok()?,
            process: bytes.get(24..40)?.try_into().ok()?,
            ordinal: word(40)?,
            refusal: read_text(bytes.get(TEXT..)?),
        })
    }
}

/// Writes as much of a text as fits, followed by a zero.
fn write_text(text: &str, bytes: &mut [u8]) {
    let end = text.floor_char_boundary(bytes.len() - 1);
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
    bytes[end] = 0;
}

fn read_text(bytes: &[u8]) -> String {
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// A number that no other process has, on any machine: from the system's random numbers.
fn process_number() -> [u8; 16] {
    static NUMBER: OnceLock<[u8; 16]> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        let random = || RandomState::new().hash_one(process::id()).to_le_bytes();
        let mut number = [0; 16];
        number[..8].copy_from_slice(&random());
        number[8..].copy_from_slice(&random());
        number
    })
}

/// The text of a rank's reason, for a group of so many.
fn of_rank(rank: usize, size: usize, reason: &str) -> String {
    if size == 1 { reason.to_owned() } else { format!("rank {rank}: {reason}") }
}

/// Why these members do not use the library, if they do not.
fn refusal(members: &[Introduction]) -> Option<String> {
    let shown = |code: u32| format!("{}.{}.{}", code / 10_000, code / 100 % 100, code % 100);
    let refused = members.iter().enumerate().find(|(_, member)| !member.refusal.is_empty());
    if let Some((rank, member)) = refused {
        return Some(of_rank(rank, members.len(), &member.refusal));
    }
    let first = members.first()?;
    for (rank, member) in members.iter().enumerate() {
        if member.vendor != first.vendor {
            return Some(format!("ranks 0 and {rank} have GPUs of different vendors"));
        }
        if member.version != first.version {
            let (name, own, other) = (first.vendor.name(), shown(first.version), shown(member.version));
            return Some(format!("rank 0 has {name} {own}, rank {rank} has {other}: use the same version"));
        }
        if let Some(other) = members[..rank].iter().position(|other| other.gpu == member.gpu) {
            return Some(format!("ranks {other} and {rank} are on the same GPU"));
        }
    }
    None
}

/// Why members do not use the library.
#[derive(Clone)]
enum Refusal {
    /// What they agreed on.
    Agreed(String),
    /// They could not agree.
    Failed(Error),
}

/// A group's communicator on a device, once it is made.
#[derive(Default)]
struct Membership {
    state: Mutex<Option<Result<Arc<Communicator>, Refusal>>>,
    /// Whether a thread is making it.
    is_making: AtomicBool,
}

/// The communicator of a collective: of its group, or of the two ranks of a send or a receive. The first call makes it,
/// with the other members.
///
/// # Errors
/// [`Error::Unsupported`] with the reason if the members do not use the library, and [`Error::Collective`] if one cannot
/// be reached.
pub(crate) fn communicator(endpoint: &dyn Endpoint, collective: &Collective) -> Result<Arc<Communicator>> {
    let group = Group::find(collective.member.group)?;
    if let Some(reason) = group.host_reason() {
        return Err(Error::Unsupported { device: endpoint.name().to_owned(), message: reason.to_owned() });
    }
    let op = collective.kind.name();
    let pair = match collective.kind {
        CollectiveKind::Send { to: peer } | CollectiveKind::Receive { from: peer } => {
            Some([group.rank().min(peer as usize), group.rank().max(peer as usize)])
        }
        _ => None,
    };
    let name = match pair {
        Some([low, high]) => format!("{} {low}-{high}", endpoint.name()),
        None => endpoint.name().to_owned(),
    };
    let membership = group.on_device(&name, |_| Ok(Membership::default()))?;
    let lock = || membership.state.lock().unwrap_or_else(PoisonError::into_inner);
    let known = lock().clone();
    let made = match known {
        Some(made) => made,
        None => {
            if membership.is_making.swap(true, Ordering::AcqRel) {
                return Err(Error::Collective {
                    op,
                    rank: group.rank(),
                    size: group.size(),
                    message: "another thread of this process runs collectives of the group: use one thread"
                        .to_owned(),
                });
            }
            let made = match pair {
                None => make(endpoint, op, &group, Member::of(&group)),
                Some(pair) => in_pair(endpoint, op, &group, pair),
            };
            let kept = made.clone().map_err(|refusal| match refusal {
                Refusal::Failed(Error::Interrupted) => Refusal::Failed(
                    Member::of(&group).error(
                        op,
                        "the start of its communicator was interrupted: close the group, and open another"
                            .to_owned(),
                    ),
                ),
                other => other,
            });
            *lock() = Some(kept);
            made
        }
    };
    made.map_err(|refusal| match refusal {
        Refusal::Agreed(message) => Error::Unsupported { device: endpoint.name().to_owned(), message },
        Refusal::Failed(error) => error,
    })
}

/// The communicator of two ranks. The other members take no part.
fn in_pair(
    endpoint: &dyn Endpoint,
    op: &'static str,
    group: &Group,
    pair: [usize; 2],
) -> Result<Arc<Communicator>, Refusal> {
    let missing = || Error::internal("phynexus_nccl", "a rank is not in its own pair");
    let two = group.subgroup(&pair).and_then(|two| two.ok_or_else(missing)).map_err(Refusal::Failed)?;
    // It is only used here.
    two.close();
    make(endpoint, op, &two, Member { ranks: pair.to_vec(), ..Member::of(group) })
}

fn make(
    endpoint: &dyn Endpoint,
    op: &'static str,
    group: &Group,
    member: Member,
) -> Result<Arc<Communicator>, Refusal> {
    let failed = |error: Error| Refusal::Failed(member.named(op, error));
    let transport = group.transport();
    let vendor = endpoint.vendor();
    let own = Introduction::of(endpoint, vendor).encode();
    let mut all = vec![0; RECORD * group.size()];
    transport.all_gather(&own, &mut all).map_err(failed)?;
    let all: Option<Vec<Introduction>> = all.chunks_exact(RECORD).map(Introduction::decode).collect();
    let Some(all) = all else {
        return Err(failed(member.error(op, "the ranks have devices of different kinds".to_owned())));
    };
    if let Some(reason) = refusal(&all) {
        return Err(Refusal::Agreed(reason));
    }
    let library = endpoint.library().map_err(Refusal::Agreed)?;
    // Rank 0 sends the number of the new communicator, or why there is none.
    let mut message = [0; RECORD];
    if group.rank() == 0 {
        match Communicator::unique_id(library) {
            Ok(UniqueId(id)) => {
                message[0] = 1;
                message[1..129].copy_from_slice(&id);
            }
            Err(reason) => write_text(&reason, &mut message[1..]),
        }
    }
    transport.broadcast(&mut message, 0).map_err(failed)?;
    let id = match message {
        [1, ..] => message[1..129].try_into().map(UniqueId).ok(),
        _ => None,
    };
    let Some(id) = id else {
        let reason = format!("{} does not start: {}", vendor.name(), read_text(&message[1..]));
        return Err(Refusal::Agreed(of_rank(0, group.size(), &reason)));
    };
    let own = &all[group.rank()];
    let here = all.iter().filter(|other| other.process == own.process && other.gpu != own.gpu);
    let here: Vec<u32> = here.map(|other| other.ordinal).collect();
    // Whether every rank goes on: those that waited for the others in the library would not hear of a failure.
    let agree = |own: Result<(), String>| -> Result<(), Refusal> {
        let mut message = [0; RECORD];
        match own {
            Ok(()) => message[0] = 1,
            Err(reason) => write_text(&reason, &mut message[1..]),
        }
        let mut all = vec![0; RECORD * group.size()];
        transport.all_gather(&message, &mut all).map_err(failed)?;
        match all.chunks_exact(RECORD).enumerate().find(|(_, message)| message[0] != 1) {
            None => Ok(()),
            Some((rank, message)) => {
                let reason = format!("{} does not start: {}", vendor.name(), read_text(&message[1..]));
                Err(Refusal::Agreed(of_rank(rank, group.size(), &reason)))
            }
        }
    };
    agree(endpoint.share(&here).map_err(|error| error.to_string()))?;
    let started = Communicator::start(endpoint, library, id, transport, &member);
    agree(started.as_ref().map(drop).map_err(String::clone))?;
    started.map(Arc::new).map_err(Refusal::Agreed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(gpu: u8) -> Introduction {
        Introduction {
            vendor: Vendor::Nvidia,
            version: 22803,
            gpu: [gpu; 16],
            process: process_number(),
            ordinal: u32::from(gpu),
            refusal: String::new(),
        }
    }

    #[test]
    fn introductions_arrive_as_they_were_sent() {
        let long = "ü".repeat(RECORD);
        for refusal in ["", "NCCL was not found", &long] {
            let sent = Introduction { refusal: refusal.to_owned(), ..member(7) };
            let arrived = Introduction::decode(&sent.encode()).unwrap();
            assert!(refusal.starts_with(&arrived.refusal));
            assert_eq!(arrived.refusal.is_empty(), refusal.is_empty());
            assert_eq!(Introduction { refusal: sent.refusal.clone(), ..arrived }, sent);
        }
        assert_eq!(Introduction::decode(&[0; RECORD]), None);
    }

    #[test]
    fn every_rank_refuses_for_the_same_reason() {
        assert_eq!(refusal(&[member(1), member(2)]), None);
        assert_eq!(refusal(&[member(1)]), None);
        let same = refusal(&[member(1), member(2), member(1)]).unwrap();
        assert_eq!(same, "ranks 0 and 2 are on the same GPU");
        let missing = Introduction { version: 0, refusal: "NCCL was not found".to_owned(), ..member(2) };
        assert_eq!(refusal(&[member(1), missing.clone()]).unwrap(), "rank 1: NCCL was not found");
        assert_eq!(refusal(&[missing]).unwrap(), "NCCL was not found");
        let older = Introduction { version: 22005, ..member(2) };
        let reason = refusal(&[member(1), older]).unwrap();
        assert!(reason.contains("2.28.3") && reason.contains("rank 1 has 2.20.5"), "{reason}");
        let other = Introduction { vendor: Vendor::Amd, ..member(2) };
        assert!(refusal(&[member(1), other]).unwrap().contains("different vendors"));
    }
}
