//! A library for tests, whose GPUs are memory of the host, and whose ranks are threads.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::{c_char, c_int, c_void},
    slice,
    sync::{
        Arc, Condvar, LazyLock, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use phynexus::{Error, Result};

use crate::{
    Endpoint, Library, Vendor,
    library::{Config, Functions, Handle, IN_PROGRESS, SUCCESS, UniqueId},
};

const UNHANDLED: c_int = 1;
const INVALID_USAGE: c_int = 5;

/// Messages in order, by sender and receiver.
type Messages = BTreeMap<(usize, usize), VecDeque<Vec<u8>>>;

/// Messages between the ranks of a communicator.
#[derive(Default)]
struct World {
    messages: Mutex<Messages>,
    arrived: Condvar,
}

static WORLDS: LazyLock<Mutex<BTreeMap<u32, Arc<World>>>> = LazyLock::new(Mutex::default);
static NEXT: AtomicU32 = AtomicU32::new(1);
/// The numbers of the communicators that were aborted, and of those that were destroyed.
pub(crate) static ENDS: Mutex<[Vec<u32>; 2]> = Mutex::new([Vec::new(), Vec::new()]);

/// A rank of a communicator.
struct Rank {
    world: Arc<World>,
    number: u32,
    rank: usize,
    size: usize,
    /// Asked so often before it is ready.
    asked: u32,
    /// Whether it is never ready.
    is_stuck: bool,
}

/// # Safety
/// The handle must be a communicator of this library.
unsafe fn rank<'a>(handle: Handle) -> &'a mut Rank {
    // SAFETY: guaranteed by the caller.
    unsafe { &mut *handle.cast::<Rank>() }
}

impl Rank {
    fn send(&self, to: usize, bytes: &[u8]) {
        self.world.messages.lock().unwrap().entry((self.rank, to)).or_default().push_back(bytes.to_vec());
        self.world.arrived.notify_all();
    }

    fn receive(&self, from: usize) -> Vec<u8> {
        let messages = self.world.messages.lock().unwrap();
        let empty = |messages: &mut Messages| messages.get(&(from, self.rank)).is_none_or(VecDeque::is_empty);
        let wait = self.world.arrived.wait_timeout_while(messages, Duration::from_secs(20), empty);
        let mut messages = wait.unwrap().0;
        messages.get_mut(&(from, self.rank)).and_then(VecDeque::pop_front).expect("no message")
    }

    /// The bytes of all ranks.
    fn gather(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        (0..self.size).for_each(|to| self.send(to, bytes));
        (0..self.size).map(|from| self.receive(from)).collect()
    }
}

/// The size of a type of elements, as the header numbers them.
fn width(dtype: c_int) -> usize {
    [1, 1, 4, 4, 8, 8, 2, 4, 8, 2][dtype as usize]
}

/// Adds, multiplies or compares numbers of the types that the tests use.
fn combined(all: &[Vec<u8>], dtype: c_int, by: c_int) -> Vec<u8> {
    fn fold<T: Copy, const N: usize>(
        all: &[Vec<u8>],
        read: fn([u8; N]) -> T,
        write: fn(T) -> [u8; N],
        by: impl Fn(T, T) -> T,
    ) -> Vec<u8> {
        let read = |bytes: &Vec<u8>| bytes.as_chunks().0.iter().map(|&chunk| read(chunk)).collect();
        let ranks: Vec<Vec<T>> = all.iter().map(read).collect();
        let sum = |at: usize| ranks.iter().map(|rank| rank[at]).reduce(&by).map(write);
        (0..ranks[0].len()).filter_map(sum).flatten().collect()
    }
    match (dtype, by) {
        (7, 0) => fold(all, f32::from_le_bytes, f32::to_le_bytes, |a, b| a + b),
        (7, 1) => fold(all, f32::from_le_bytes, f32::to_le_bytes, |a, b| a * b),
        (2, 0) => fold(all, i32::from_le_bytes, i32::to_le_bytes, i32::wrapping_add),
        (2, 2) => fold(all, i32::from_le_bytes, i32::to_le_bytes, i32::max),
        (2, 3) => fold(all, i32::from_le_bytes, i32::to_le_bytes, i32::min),
        (1, 0) => fold(all, u8::from_le_bytes, u8::to_le_bytes, u8::wrapping_add),
        other => panic!("{other:?}"),
    }
}

unsafe extern "C" fn version(to: *mut c_int) -> c_int {
    // SAFETY: the caller's pointer is valid.
    unsafe { *to = 22803 };
    SUCCESS
}

unsafe extern "C" fn unique_id(to: *mut UniqueId) -> c_int {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller's pointer is valid.
    unsafe { (&mut (*to).0)[..4].copy_from_slice(&number.to_le_bytes()) };
    SUCCESS
}

unsafe extern "C" fn init(
    to: *mut Handle,
    size: c_int,
    UniqueId(id): UniqueId,
    rank: c_int,
    config: *mut Config,
) -> c_int {
    assert!(!config.is_null());
    let number = u32::from_le_bytes([id[0], id[1], id[2], id[3]]);
    let world = WORLDS.lock().unwrap().entry(number).or_default().clone();
    let made = Rank { world, number, rank: rank as usize, size: size as usize, asked: 0, is_stuck: false };
    // SAFETY: the caller's pointer is valid.
    unsafe { *to = Box::into_raw(Box::new(made)).cast() };
    IN_PROGRESS
}

unsafe extern "C" fn state(of: Handle, to: *mut c_int) -> c_int {
    // SAFETY: the caller's handle and pointer are valid.
    unsafe {
        rank(of).asked += 1;
        *to = if rank(of).is_stuck || rank(of).asked < 3 { IN_PROGRESS } else { SUCCESS };
    }
    SUCCESS
}

unsafe extern "C" fn finalize(_: Handle) -> c_int {
    SUCCESS
}

/// # Safety
/// The handle must be the only one of a communicator of this library.
unsafe fn end(of: Handle, kind: usize) -> c_int {
    // SAFETY: guaranteed by the caller.
    let ended = unsafe { Box::from_raw(of.cast::<Rank>()) };
    ENDS.lock().unwrap()[kind].push(ended.number);
    SUCCESS
}

unsafe extern "C" fn abort(of: Handle) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { end(of, 0) }
}

unsafe extern "C" fn destroy(of: Handle) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { end(of, 1) }
}

/// # Safety
/// The pointer must be valid for so many bytes.
unsafe fn bytes<'a>(at: *const c_void, count: usize, dtype: c_int) -> &'a [u8] {
    // SAFETY: guaranteed by the caller.
    unsafe { slice::from_raw_parts(at.cast(), count * width(dtype)) }
}

/// # Safety
/// The pointer must be valid for so many bytes.
unsafe fn write(at: *mut c_void, bytes: &[u8]) {
    // SAFETY: guaranteed by the caller.
    unsafe { slice::from_raw_parts_mut(at.cast::<u8>(), bytes.len()) }.copy_from_slice(bytes);
}

unsafe extern "C" fn all_reduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    dtype: c_int,
    by: c_int,
    of: Handle,
    _: Handle,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let all = rank(of).gather(bytes(from, count, dtype));
        write(to, &combined(&all, dtype, by));
    }
    SUCCESS
}

unsafe extern "C" fn reduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    dtype: c_int,
    by: c_int,
    root: c_int,
    of: Handle,
    _: Handle,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let all = rank(of).gather(bytes(from, count, dtype));
        if rank(of).rank == root as usize {
            write(to, &combined(&all, dtype, by));
        }
    }
    SUCCESS
}

unsafe extern "C" fn reduce_scatter(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    dtype: c_int,
    by: c_int,
    of: Handle,
    _: Handle,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let own = rank(of);
        let all = own.gather(bytes(from, count * own.size, dtype));
        let part = count * width(dtype);
        write(to, &combined(&all, dtype, by)[own.rank * part..][..part]);
    }
    SUCCESS
}

unsafe extern "C" fn all_gather(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    dtype: c_int,
    of: Handle,
    _: Handle,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { write(to, &rank(of).gather(bytes(from, count, dtype)).concat()) };
    SUCCESS
}

unsafe extern "C" fn broadcast(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    dtype: c_int,
    root: c_int,
    of: Handle,
    _: Handle,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { write(to, &rank(of).gather(bytes(from, count, dtype))[root as usize]) };
    SUCCESS
}

unsafe extern "C" fn send(
    from: *const c_void,
    count: usize,
    dtype: c_int,
    to: c_int,
    of: Handle,
    _: Handle,
) -> c_int {
    if to < 0 {
        return INVALID_USAGE;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { rank(of).send(to as usize, bytes(from, count, dtype)) };
    SUCCESS
}

unsafe extern "C" fn receive(
    to: *mut c_void,
    count: usize,
    dtype: c_int,
    from: c_int,
    of: Handle,
    _: Handle,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let message = rank(of).receive(from as usize);
        assert_eq!(message.len(), count * width(dtype));
        write(to, &message);
    }
    SUCCESS
}

unsafe extern "C" fn group() -> c_int {
    SUCCESS
}

unsafe extern "C" fn words(failure: c_int) -> *const c_char {
    if failure == UNHANDLED { c"unhandled error".as_ptr() } else { c"invalid usage".as_ptr() }
}

unsafe extern "C" fn last(_: Handle) -> *const c_char {
    c"".as_ptr()
}

unsafe extern "C" fn no_init(_: *mut Handle, _: c_int, _: UniqueId, _: c_int, _: *mut Config) -> c_int {
    UNHANDLED
}

/// As a collective that connects the ranks first, one of which does not come.
unsafe extern "C" fn stuck_all_reduce(
    _: *const c_void,
    _: *mut c_void,
    _: usize,
    _: c_int,
    _: c_int,
    of: Handle,
    _: Handle,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { rank(of) }.is_stuck = true;
    IN_PROGRESS
}

/// As a communicator to which a rank does not come.
unsafe extern "C" fn stuck_init(
    to: *mut Handle,
    size: c_int,
    id: UniqueId,
    number: c_int,
    config: *mut Config,
) -> c_int {
    // SAFETY: guaranteed by the caller, and `init` has written a communicator.
    unsafe {
        let code = init(to, size, id, number, config);
        rank(*to).is_stuck = true;
        code
    }
}

fn functions() -> Functions {
    Functions {
        ncclGetVersion: version,
        ncclGetUniqueId: unique_id,
        ncclCommInitRankConfig: init,
        ncclCommFinalize: finalize,
        ncclCommDestroy: destroy,
        ncclCommAbort: abort,
        ncclCommGetAsyncError: state,
        ncclAllReduce: all_reduce,
        ncclReduce: reduce,
        ncclReduceScatter: reduce_scatter,
        ncclAllGather: all_gather,
        ncclBroadcast: broadcast,
        ncclSend: send,
        ncclRecv: receive,
        ncclGroupStart: group,
        ncclGroupEnd: group,
        ncclGetErrorString: words,
        ncclGetLastError: last,
    }
}

/// What a double's library cannot do.
#[derive(Clone, Copy)]
pub(crate) enum Defect {
    None,
    /// Its communicators fail to start.
    Start,
    /// They wait for another rank for ever, while they start.
    EndlessStart,
    /// They wait for another rank for ever, in a sum.
    EndlessSum,
}

/// A GPU whose memory is the host's.
pub(crate) struct Double {
    pub(crate) number: u8,
    pub(crate) defect: Defect,
    /// Whether it does not share its memory.
    pub(crate) is_private: bool,
    pub(crate) shared: Mutex<Vec<u32>>,
}

impl Double {
    pub(crate) fn new(number: usize) -> Double {
        let (number, defect) = (number as u8, Defect::None);
        Double { number, defect, is_private: false, shared: Mutex::default() }
    }
    pub(crate) fn with(defect: Defect, number: usize) -> Double {
        Double { defect, ..Double::new(number) }
    }
}

impl Endpoint for Double {
    fn name(&self) -> &str {
        "double:0"
    }
    fn vendor(&self) -> Vendor {
        Vendor::Nvidia
    }
    fn library(&self) -> Result<&'static Library, String> {
        static LIBRARIES: [OnceLock<Library>; 4] = [const { OnceLock::new() }; 4];
        let mut own = functions();
        match self.defect {
            Defect::None => {}
            Defect::Start => own.ncclCommInitRankConfig = no_init,
            Defect::EndlessStart => own.ncclCommInitRankConfig = stuck_init,
            Defect::EndlessSum => own.ncclAllReduce = stuck_all_reduce,
        }
        let make = || Library::with(Vendor::Nvidia, own).expect("a new version");
        Ok(LIBRARIES[self.defect as usize].get_or_init(make))
    }
    fn unique_number(&self) -> Result<[u8; 16]> {
        Ok([self.number; 16])
    }
    fn ordinal(&self) -> u32 {
        u32::from(self.number)
    }
    fn bind(&self) -> Result<()> {
        Ok(())
    }
    fn share(&self, ordinals: &[u32]) -> Result<()> {
        if self.is_private {
            return Err(Error::internal("double", "its memory is private"));
        }
        self.shared.lock().unwrap().extend(ordinals);
        Ok(())
    }
    unsafe fn zero(&self, address: u64, bytes: usize, _: *mut c_void) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { write(std::ptr::with_exposed_provenance_mut(address as usize), &vec![0; bytes]) };
        Ok(())
    }
}

/// An event of the double's stream.
#[derive(Clone, Default)]
pub(crate) struct Event(Arc<AtomicBool>);

impl Event {
    pub(crate) fn happen(&self) {
        self.0.store(true, Ordering::Release);
    }
    pub(crate) fn has_happened(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
