//! Scratch memory that a thread keeps, so that a repeated call allocates nothing.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::RefCell;
use std::ptr::NonNull;

use phynexus::{Error, interrupt::or_leave};

use crate::working_memory;

/// A cache line, and a full register.
const ALIGNMENT: usize = 64;

/// A block of uninitialised 64-byte-aligned memory. Returns to its thread's shelf when dropped.
pub(crate) struct Scratch(Block);

struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

thread_local! {
    static SHELF: RefCell<Vec<Block>> = const { RefCell::new(Vec::new()) };
}

impl Scratch {
    /// Room for `count` elements and one more register.
    pub(crate) fn new<T>(count: usize) -> Scratch {
        // No layout has the greatest size, so that one that does not fit is refused.
        let bytes = count.saturating_mul(size_of::<T>()).saturating_add(ALIGNMENT);
        let bytes = bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
        let found = SHELF.try_with(|shelf| {
            let mut shelf = shelf.borrow_mut();
            let fits = |b: &Block| b.layout.size() >= bytes;
            let smallest =
                (0..shelf.len()).filter(|&i| fits(&shelf[i])).min_by_key(|&i| shelf[i].layout.size());
            if smallest.is_none() {
                // The largest block is replaced by a larger one, so that a thread keeps as many blocks as it used at
                // once.
                let largest = (0..shelf.len()).max_by_key(|&i| shelf[i].layout.size());
                drop(largest.map(|i| shelf.swap_remove(i)));
            }
            smallest.map(|i| shelf.swap_remove(i))
        });
        Scratch(found.ok().flatten().unwrap_or_else(|| Block::new(bytes)))
    }

    /// The start of the memory.
    pub(crate) fn start<T>(&self) -> *mut T {
        self.0.start.as_ptr().cast()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let block =
            std::mem::replace(&mut self.0, Block { start: NonNull::dangling(), layout: Layout::new::<()>() });
        // An exiting thread has no shelf any more; the block is then freed.
        let _ = SHELF.try_with(move |shelf| shelf.borrow_mut().push(block));
    }
}

impl Block {
    fn new(bytes: usize) -> Block {
        let layout = Layout::from_size_align(bytes, ALIGNMENT).ok();
        // SAFETY: the size is at least `ALIGNMENT`.
        let found = layout.and_then(|layout| Some((NonNull::new(unsafe { alloc(layout) })?, layout)));
        let (start, layout) = or_leave(found.ok_or(Error::HostMemory { requested: bytes }));
        working_memory::taken(bytes);
        Block { start, layout }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: allocated by `alloc` with this layout.
            unsafe { dealloc(self.start.as_ptr(), self.layout) }
            working_memory::given_back(self.layout.size());
        }
    }
}
