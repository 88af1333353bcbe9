//! Nodes as users' handles hold them: an operation and its operands until the data is there, then the data.

use std::{
    cell::RefCell,
    collections::HashSet,
    hash::{Hash, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use smallvec::SmallVec;

use super::{Extremes, Hooks, Tensor};
use crate::{
    DType,
    device::{Device, Storage},
    hash::{FastBuild, FastHasher},
    op::Op,
    shape::{Dims, same_extents},
};

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

impl Signature {
    fn is(&self, op: &Op, dtype: DType, shape: &[usize]) -> bool {
        self.dtype == dtype && same_extents(&self.shape, shape) && self.op == *op
    }
}

impl PartialEq for Signature {
    fn eq(&self, other: &Signature) -> bool {
        self.is(&other.op, other.dtype, &other.shape)
    }
}
impl Eq for Signature {}
impl Hash for Signature {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_parts(&self.op, self.dtype, &self.shape, state);
    }
}

fn hash_parts<H: Hasher>(op: &Op, dtype: DType, shape: &[usize], state: &mut H) {
    op.hash(state);
    state.write_u8(dtype as u8);
    state.write_usize(shape.len());
    shape.iter().for_each(|&d| state.write_usize(d));
}

struct Interner {
    known: HashSet<Arc<Signature>, FastBuild>,
    next_id: u64,
    sweep_at: usize,
}

static INTERNER: Mutex<Option<Interner>> = Mutex::new(None);

/// Signatures that a thread used last, each at a place that its hash tells: most nodes repeat one of few, and finding it
/// here takes no lock.
const RECENT: usize = 256;

thread_local! {
    static RECENTLY_USED: RefCell<[Option<Arc<Signature>>; RECENT]> = const { RefCell::new([const { None }; RECENT]) };
}

/// The one signature object for these.
pub(crate) fn intern(op: Op, dtype: DType, shape: Dims) -> Arc<Signature> {
    let mut hasher = FastHasher::default();
    hash_parts(&op, dtype, &shape, &mut hasher);
    let place = hasher.finish() as usize % RECENT;
    let recent = RECENTLY_USED.try_with(|recent| {
        let recent = recent.borrow();
        let known = recent[place].as_ref()?;
        known.is(&op, dtype, &shape).then(|| known.clone())
    });
    if let Ok(Some(known)) = recent {
        return known;
    }
    let signature = intern_globally(op, dtype, shape);
    // While a thread ends there is no such table. What was there before is dropped after the table was let go.
    let replaced = RECENTLY_USED.try_with(|recent| recent.borrow_mut()[place].replace(signature.clone()));
    drop(replaced);
    signature
}

#[cold]
fn intern_globally(op: Op, dtype: DType, shape: Dims) -> Arc<Signature> {
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

/// Handles to the same nodes. One by one, for they are few: the list's own clone is made for many.
pub(crate) fn shared(sources: &Sources) -> Sources {
    let mut handles = Sources::new();
    sources.iter().for_each(|source| handles.push(source.clone()));
    handles
}

/// A node of the lazy graph.
pub(crate) struct Node {
    /// What it computes.
    pub signature: Arc<Signature>,
    /// Where it lives and is computed.
    pub device: Device,
    /// Rises with creation: operands have smaller numbers.
    pub number: u64,
    /// True if a gradient can flow through it to a leaf that asked for one.
    pub requires_grad: bool,
    /// Where the last walk of the scheduler met the node; meaningful only under its lock.
    pub(crate) mark: AtomicU64,
    released: AtomicBool,
    /// True while a thread computes it; meaningful only under the scheduler's lock.
    pub(crate) in_flight: AtomicBool,
    /// Set once the body has the data: told without a lock.
    ready: AtomicBool,
    body: Mutex<Body>,
}

/// Most nodes never have data of their own, so that it is apart and the others are small.
#[derive(Default)]
pub(crate) struct Body {
    pub(crate) sources: Sources,
    pub(crate) data: Option<Box<Storage>>,
    pub(crate) grad: Option<Tensor>,
    /// Of a gradient, the value that was differentiated: computed with it if somebody still holds it, while what both follow
    /// from is at hand.
    pub(crate) beside: Option<Weak<Node>>,
    /// True for a leaf in whose place another stands now: nobody would see a gradient collected here.
    pub(crate) replaced: bool,
    /// What is done with its gradient.
    pub(crate) hooks: Option<Box<Hooks>>,
    /// Between what its integers are known to lie.
    pub(crate) extremes: Option<Box<Extremes>>,
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

impl Node {
    pub(crate) fn pending(
        signature: Arc<Signature>,
        device: Device,
        sources: Sources,
        requires_grad: bool,
    ) -> Arc<Node> {
        let body = Body { sources, ..Body::default() };
        Node::with_body(signature, device, requires_grad, body)
    }

    pub(crate) fn ready(
        signature: Arc<Signature>,
        device: Device,
        data: Storage,
        requires_grad: bool,
    ) -> Arc<Node> {
        let body = Body { data: Some(Box::new(data)), ..Body::default() };
        Node::with_body(signature, device, requires_grad, body)
    }

    fn with_body(signature: Arc<Signature>, device: Device, requires_grad: bool, body: Body) -> Arc<Node> {
        Arc::new(Node {
            signature,
            device,
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            requires_grad,
            mark: AtomicU64::new(0),
            released: AtomicBool::new(false),
            in_flight: AtomicBool::new(false),
            ready: AtomicBool::new(body.data.is_some()),
            body: Mutex::new(body),
        })
    }

    pub(crate) fn body(&self) -> MutexGuard<'_, Body> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body, unless somebody has it now.
    pub(crate) fn try_body(&self) -> Option<MutexGuard<'_, Body>> {
        self.body.try_lock().ok()
    }

    /// The operation.
    pub(crate) fn op(&self) -> &Op {
        &self.signature.op
    }

    /// The operands; empty for leaves and for computed nodes that let them go.
    pub(crate) fn sources(&self) -> Sources {
        shared(&self.body().sources)
    }

    /// True if the data is there.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// The data, if it is there.
    pub(crate) fn data(&self) -> Option<Storage> {
        self.body().data.as_deref().cloned()
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
        let data = Box::new(data);
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
        let body = self.body.get_mut().unwrap_or_else(PoisonError::into_inner);
        if body.sources.is_empty() && body.grad.is_none() {
            return;
        }
        let mut pending: SmallVec<[Arc<Node>; 8]> = SmallVec::new();
        take_apart(body, &mut pending);
        while let Some(node) = pending.pop() {
            if let Some(mut node) = Arc::into_inner(node) {
                take_apart(node.body.get_mut().unwrap_or_else(PoisonError::into_inner), &mut pending);
            }
        }
    }
}

/// Moves the nodes that a body holds to those that are still to be dropped.
fn take_apart(body: &mut Body, pending: &mut SmallVec<[Arc<Node>; 8]>) {
    while let Some(source) = body.sources.pop() {
        pending.push(source);
    }
    if let Some(grad) = body.grad.take() {
        pending.push(grad.into_node());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Binary, Unary};

    #[test]
    fn equal_signatures_are_one_object_in_all_threads() {
        let sum = |extent: usize| intern(Op::Binary(Binary::Add), DType::F32, Dims::from_slice(&[extent, 7]));
        let first = sum(31);
        assert!(Arc::ptr_eq(&first, &sum(31)));
        let elsewhere = std::thread::spawn(move || sum(31)).join().unwrap();
        assert!(Arc::ptr_eq(&first, &elsewhere));
        for other in [
            sum(32),
            intern(Op::Binary(Binary::Add), DType::F64, first.shape.clone()),
            intern(Op::Unary(Unary::Neg), DType::F32, first.shape.clone()),
        ] {
            assert_ne!((other.id, &*other), (first.id, &*first));
        }
        // More than a thread remembers: what is found anew is the same.
        let many: Vec<Arc<Signature>> = (0..3 * RECENT).map(sum).collect();
        assert!(many.iter().enumerate().all(|(extent, known)| Arc::ptr_eq(known, &sum(extent))));
        assert!(Arc::ptr_eq(&first, &many[31]));
    }
}
