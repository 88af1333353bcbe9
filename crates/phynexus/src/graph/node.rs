//! Nodes as users' handles hold them: an operation and its operands until the data is there, then the data.

use std::{
    collections::HashSet,
    hash::{BuildHasherDefault, Hash, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use smallvec::SmallVec;

use super::op::Op;
use crate::{
    DType,
    device::{Device, Storage},
    shape::Dims,
};

/// A fast hash for keys that no adversary chooses (the multiply-rotate scheme of rustc's FxHash).
#[derive(Default, Clone, Copy)]
pub(crate) struct FastHasher(u64);

impl Hasher for FastHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|w| self.write_u64(u64::from_le_bytes(*w)));
        rest.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    fn write_u8(&mut self, v: u8) {
        self.write_u64(v.into());
    }
    fn write_u32(&mut self, v: u32) {
        self.write_u64(v.into());
    }
    fn write_usize(&mut self, v: usize) {
        self.write_u64(v as u64);
    }
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

/// Builds [`FastHasher`]s.
pub(crate) type FastBuild = BuildHasherDefault<FastHasher>;

/// What a node computes, without its operands. Equal signatures are one object, so that plan keys compare ids.
#[derive(Debug)]
pub(crate) struct Signature {
    /// The operation.
    pub op: Op,
    /// The result's element type.
    pub dtype: DType,
    /// The result's shape.
    pub shape: Dims,
    /// Unique among all signatures ever made in this process.
    pub id: u64,
}

impl PartialEq for Signature {
    fn eq(&self, other: &Signature) -> bool {
        self.dtype == other.dtype && self.shape == other.shape && self.op == other.op
    }
}
impl Eq for Signature {}
impl Hash for Signature {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.op.hash(state);
        state.write_u8(self.dtype as u8);
        state.write_usize(self.shape.len());
        self.shape.iter().for_each(|&d| state.write_usize(d));
    }
}

struct Interner {
    known: HashSet<Arc<Signature>, FastBuild>,
    next_id: u64,
    sweep_at: usize,
}

static INTERNER: Mutex<Option<Interner>> = Mutex::new(None);

/// The one signature object for these.
pub(crate) fn intern(op: Op, dtype: DType, shape: Dims) -> Arc<Signature> {
    let mut guard = INTERNER.lock().unwrap_or_else(PoisonError::into_inner);
    let interner =
        guard.get_or_insert_with(|| Interner { known: HashSet::default(), next_id: 0, sweep_at: 1 << 14 });
    let mut signature = Signature { op, dtype, shape, id: interner.next_id };
    if let Some(known) = interner.known.get(&signature) {
        return known.clone();
    }
    if interner.known.len() >= interner.sweep_at {
        interner.known.retain(|s| Arc::strong_count(s) > 1);
        interner.sweep_at = (interner.known.len() * 2).max(1 << 14);
    }
    signature.id = interner.next_id;
    interner.next_id += 1;
    let signature = Arc::new(signature);
    interner.known.insert(signature.clone());
    signature
}

/// Operands of a node.
pub(crate) type Sources = SmallVec<[Arc<Node>; 3]>;

/// A node of the lazy graph.
pub(crate) struct Node {
    /// What it computes.
    pub signature: Arc<Signature>,
    /// Where it lives and is computed.
    pub device: Device,
    /// Rises with creation: operands have smaller numbers.
    pub number: u64,
    /// The longest way to a node that has its data.
    pub depth: u32,
    /// True if a gradient can flow through it to a leaf that asked for one.
    pub requires_grad: bool,
    /// Where the last walk of the scheduler met the node; meaningful only under its lock.
    pub(crate) mark: AtomicU64,
    released: AtomicBool,
    /// Set once the body has the data: told without a lock.
    ready: AtomicBool,
    body: Mutex<Body>,
}

#[derive(Default)]
pub(crate) struct Body {
    pub(crate) sources: Sources,
    pub(crate) data: Option<Storage>,
    pub(crate) in_flight: bool,
    pub(crate) grad: Option<crate::Tensor>,
    /// The least and the greatest element of integers that the host gave: what is checked here need not be checked on the
    /// device, and waited for.
    pub(crate) extremes: Option<Box<(i64, i64)>>,
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

impl Node {
    pub(crate) fn pending(
        signature: Arc<Signature>,
        device: Device,
        sources: Sources,
        depth: u32,
        requires_grad: bool,
    ) -> Arc<Node> {
        let body = Body { sources, ..Body::default() };
        Node::with_body(signature, device, depth, requires_grad, body)
    }

    pub(crate) fn ready(
        signature: Arc<Signature>,
        device: Device,
        data: Storage,
        requires_grad: bool,
    ) -> Arc<Node> {
        let body = Body { data: Some(data), ..Body::default() };
        Node::with_body(signature, device, 0, requires_grad, body)
    }

    fn with_body(
        signature: Arc<Signature>,
        device: Device,
        depth: u32,
        requires_grad: bool,
        body: Body,
    ) -> Arc<Node> {
        Arc::new(Node {
            signature,
            device,
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            depth,
            requires_grad,
            mark: AtomicU64::new(0),
            released: AtomicBool::new(false),
            ready: AtomicBool::new(body.data.is_some()),
            body: Mutex::new(body),
        })
    }

    pub(crate) fn body(&self) -> MutexGuard<'_, Body> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The operation.
    pub(crate) fn op(&self) -> &Op {
        &self.signature.op
    }

    /// The operands; empty for leaves and for computed nodes that let them go.
    pub(crate) fn sources(&self) -> Sources {
        self.body().sources.clone()
    }

    /// True if the data is there.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// The data, if it is there.
    pub(crate) fn data(&self) -> Option<Storage> {
        self.body().data.clone()
    }

    /// True if the operands must stay after the data is there, because a gradient may still be asked for.
    pub(crate) fn keeps_sources(&self) -> bool {
        self.requires_grad && !self.released.load(Ordering::Acquire)
    }

    /// Says that no gradient will be asked for through this node again.
    pub(crate) fn release(&self) {
        self.released.store(true, Ordering::Release);
        let mut body = self.body();
        let sources = if body.data.is_some() { std::mem::take(&mut body.sources) } else { Sources::new() };
        drop(body);
        drop(sources);
    }

    pub(crate) fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    /// Stores the data and lets the operands go unless a gradient needs them.
    pub(crate) fn fulfil(&self, data: Storage) {
        let keep = self.keeps_sources();
        let mut body = self.body();
        body.data = Some(data);
        self.ready.store(true, Ordering::Release);
        let sources = if keep { Sources::new() } else { std::mem::take(&mut body.sources) };
        drop(body);
        drop(sources);
    }
}

impl Drop for Node {
    /// Long chains are taken apart in a loop: recursion would overflow the stack.
    fn drop(&mut self) {
        let mut pending: Vec<Arc<Node>> = Vec::new();
        let take = |body: &mut Mutex<Body>, pending: &mut Vec<Arc<Node>>| {
            let body = body.get_mut().unwrap_or_else(PoisonError::into_inner);
            pending.extend(body.sources.drain(..));
            if let Some(grad) = body.grad.take() {
                pending.push(grad.into_node());
            }
        };
        take(&mut self.body, &mut pending);
        while let Some(node) = pending.pop() {
            if let Some(mut node) = Arc::into_inner(node) {
                take(&mut node.body, &mut pending);
            }
        }
    }
}
