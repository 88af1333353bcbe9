//! What a store and its clients say to each other.
//!
//! Both begin with [`GREETING`]. Then the client sends requests, one at a time, and the store answers each. All are
//! [`Message`]s: the length of the rest in 4 bytes, the kind, and fields, each with its length. Numbers are in
//! little-endian order.

/// The longest key, in bytes.
pub(super) const MOST_KEY: usize = 1 << 10;
/// The longest value, in bytes.
pub(super) const MOST_VALUE: usize = 1 << 20;
/// The largest number of keys in a request.
pub(super) const MOST_KEYS: usize = 1 << 12;
/// The longest message, in bytes: two values and a key, or as many short keys.
pub(super) const MOST_MESSAGE: usize = 2 * MOST_VALUE + 2 * MOST_KEY;

/// A magic number, whose last byte is the version of the protocol.
pub(super) const GREETING: [u8; 8] = *b"NXSTORE\x01";

/// What a client requests, or how the store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Key and value.
    Set,
    /// Time limit and key. The answer has the value.
    Get,
    /// Key and summand. The answer has the sum.
    Add,
    /// Time limit and keys.
    Wait,
    /// Key. The answer has a byte: whether the key existed.
    Delete,
    /// Key, new value, and unless the key must be missing the expected value. The answer has the value that the key has
    /// now, if any.
    CompareSet,
    /// An answer.
    Done,
    /// An answer: the time limit passed.
    Late,
    /// An answer: what is wrong.
    Refused,
}

const KINDS: [Kind; 9] = [
    Kind::Set,
    Kind::Get,
    Kind::Add,
    Kind::Wait,
    Kind::Delete,
    Kind::CompareSet,
    Kind::Done,
    Kind::Late,
    Kind::Refused,
];

/// A request or an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) fields: Vec<Vec<u8>>,
}

impl Message {
    pub(super) fn new(kind: Kind, fields: &[&[u8]]) -> Message {
        Message { kind, fields: fields.iter().map(|field| field.to_vec()).collect() }
    }

    /// The bytes to send.
    pub(super) fn encode(&self) -> Vec<u8> {
        let length: usize = self.fields.iter().map(|field| 4 + field.len()).sum();
        let mut bytes = Vec::with_capacity(5 + length);
        bytes.extend((1 + length as u32).to_le_bytes());
        bytes.push(self.kind as u8);
        for field in &self.fields {
            bytes.extend((field.len() as u32).to_le_bytes());
            bytes.extend(field);
        }
        bytes
    }

    /// The number of bytes that follow the first 4.
    pub(super) fn rest(bytes: &[u8]) -> Result<usize, &'static str> {
        let length = number(bytes).ok_or("a message is cut off")?;
        if length > MOST_MESSAGE { Err("a message is too long") } else { Ok(length) }
    }

    /// Takes the first message off the bytes that arrived. `Ok(None)` until it is complete; an error if it cannot be a
    /// message of this protocol.
    pub(super) fn take(bytes: &mut Vec<u8>) -> Result<Option<Message>, &'static str> {
        if bytes.len() < 4 {
            return Ok(None);
        }
        let length = Message::rest(bytes)?;
        if bytes.len() < 4 + length {
            return Ok(None);
        }
        let message = decode(&bytes[4..4 + length]).ok_or("a message is damaged");
        bytes.drain(..4 + length);
        message.map(Some)
    }
}

/// The number in the first 4 bytes.
fn number(bytes: &[u8]) -> Option<usize> {
    Some(u32::from_le_bytes(*bytes.first_chunk()?) as usize)
}

fn decode(bytes: &[u8]) -> Option<Message> {
    let (kind, mut rest) = bytes.split_first()?;
    let kind = *KINDS.get(usize::from(*kind))?;
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let length = number(rest)?;
        let (field, after) = rest[4..].split_at_checked(length)?;
        // A time limit comes with the keys.
        if fields.len() > MOST_KEYS {
            return None;
        }
        fields.push(field.to_vec());
        rest = after;
    }
    Some(Message { kind, fields })
}
