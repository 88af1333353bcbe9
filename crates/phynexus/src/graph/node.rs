//! Graph nodes. A node holds an operation and its operands until it is computed, and then its data.

use std::{
    cell::RefCell,
    hash::{Hash, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use smallvec::SmallVec;

use super::{Extremes, Hooks, Tensor};
use crate::{
    DType, Scalar,
    device::{Device, Storage},
    hash::{FastHasher, FastSet},
    op::Op,
    shape::{Dims, same_extents},
};

/// What a node computes, without its operands. Equal signatures are one object, so plan keys can compare ids.
#[derive(Debug)]
pub(crate) struct Signature {
    /// The operation.
    pub op: Op,
    /// The result's dtype.
    pub dtype: DType,
    /// The result's shape.
    pub shape: Dims,
    /// Unique among all signatures of this process, except that a number that may vary has the id of a leaf of its
    /// dtype and shape: a plan's key leaves such numbers out.
    pub id: u64,
}

impl Signature {
    /// The number that the id leaves out.
    pub(crate) fn number(&self) -> Option<Scalar> {
        match &self.op {
            Op::Constant(constant) if constant.may_vary() => Some(constant.0),
            _ => None,
        }
    }

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
    known: FastSet<Arc<Signature>>,
    next_id: u64,
    sweep_at: usize,
}

static INTERNER: Mutex<Option<Interner>> = Mutex::new(None);

/// The size of each thread's table of recently used signatures, indexed by hash. Most nodes repeat one of a few
/// signatures, and finding it here takes no lock.
const RECENT: usize = 256;

thread_local! {
    static RECENTLY_USED: RefCell<[Option<Arc<Signature>>; RECENT]> = const { RefCell::new([const { None }; RECENT]) };
}

/// Returns the unique signature object; that of a number that may vary need not be unique.
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
    let signature = match &op {
        Op::Constant(constant) if constant.may_vary() => {
            let id = intern(Op::Buffer, dtype, shape.clone()).id;
            Arc::new(Signature { op, dtype, shape, id })
        }
        _ => intern_globally(op, dtype, shape),
    };
    // The table is unavailable while the thread exits. The replaced entry is dropped after the table's borrow ends.
    let replaced = RECENTLY_USED.try_with(|recent| recent.borrow_mut()[place].replace(signature.clone()));
    drop(replaced);
    signature
}

#[cold]
fn intern_globally(op: Op, dtype: DType, shape: Dims) -> Arc<Signature> {
    let mut guard = INTERNER.lock().unwrap_or_else(PoisonError::into_inner);
    let interner =
        guard.get_or_insert_with(|| Interner { known: FastSet::default(), next_id: 0, sweep_at: 1 << 14 });
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

/// The operands of a node.
pub(crate) type Sources = SmallVec<[Arc<Node>; 3]>;

/// Clones the handles one by one. For so few this is faster than the list's own `clone`.
pub(crate) fn shared(sources: &Sources) -> Sources {
    let mut handles = Sources::new();
    sources.iter().for_each(|source| handles.push(source.clone()));
    handles
}

/// A node of the lazy graph.
pub(crate) struct Node {
    /// What the node computes.
    pub signature: Arc<Signature>,
    /// The device that computes it and holds its data.
    pub device: Device,
    /// Increases with creation, so operands have smaller numbers.
    pub number: u64,
    /// True if a gradient can flow through it to a leaf that requires one.
    pub requires_grad: bool,
    /// The node's position in the scheduler's last walk. Valid only under the claims lock.
    pub(crate) mark: AtomicU64,
    released: AtomicBool,
    /// True while a thread computes it. Valid only under the claims lock.
    pub(crate) in_flight: AtomicBool,
    /// Set once the body has data. Readable without a lock.
    ready: AtomicBool,
    body: Mutex<Body>,
}

/// The mutable part of a node. Data is boxed to keep nodes small, because most never have data.
#[derive(Default)]
pub(crate) struct Body {
    pub(crate) sources: Sources,
    pub(crate) data: Option<Box<Storage>>,
    pub(crate) grad: Option<Tensor>,
    /// For a gradient, the value that was differentiated. If still held, it is computed together with the gradient,
    /// while their common inputs are at hand.
    pub(crate) beside: Option<Weak<Node>>,
    /// True for a leaf that another leaf has replaced. A gradient collected here would be lost.
    pub(crate) replaced: bool,
    /// The hooks on its gradient.
    pub(crate) hooks: Option<Box<Hooks>>,
    /// The known bounds of its integers.
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

    /// Returns the body, or `None` if it is locked.
    pub(crate) fn try_body(&self) -> Option<MutexGuard<'_, Body>> {
        self.body.try_lock().ok()
    }

    /// The operation.
    pub(crate) fn op(&self) -> &Op {
        &self.signature.op
    }

    /// Returns the operands. Empty for leaves and for computed nodes that released theirs.
    pub(crate) fn sources(&self) -> Sources {
        shared(&self.body().sources)
    }

    /// Returns whether the node has data.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Returns whether the node is computed and its data is in row-major order.
    pub(crate) fn is_in_rows(&self) -> bool {
        self.body().data.as_ref().is_some_and(|data| data.layout.is_contiguous())
    }

    /// Returns the data, if the node is computed.
    pub(crate) fn data(&self) -> Option<Storage> {
        self.body().data.as_deref().cloned()
    }

    /// Returns whether the node keeps its operands after it is computed, because a gradient may still be requested.
    pub(crate) fn keeps_sources(&self) -> bool {
        self.requires_grad && !self.released.load(Ordering::Acquire)
    }

    /// Marks that no gradient will be requested through this node again.
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

    /// Stores the data, and releases the operands unless a gradient needs them.
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
    /// Drops long chains iteratively. Recursion would overflow the stack.
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

/// Moves the nodes that a body holds to the list of nodes to drop.
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
        // More signatures than the thread's table holds: each is still unique.
        let many: Vec<Arc<Signature>> = (0..3 * RECENT).map(sum).collect();
        assert!(many.iter().enumerate().all(|(extent, known)| Arc::ptr_eq(known, &sum(extent))));
        assert!(Arc::ptr_eq(&first, &many[31]));
    }
}
