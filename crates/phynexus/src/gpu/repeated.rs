//! Runs repeated launches as one driver graph. The driver launches the whole graph at the cost of a few launches, and
//! independent kernels may run concurrently.

use std::{
    mem,
    ops::Range,
    ptr,
    sync::{Mutex, PoisonError},
};

use smallvec::SmallVec;

use super::{Driver, Submission};
use crate::Result;

/// The minimum number of launches for a graph.
const LEAST: usize = 3;
/// The maximum number of graphs kept per sequence. Several are useful for steps that alternate between sets of buffers.
const GRAPHS: usize = 4;

/// The addresses of a launch's buffers.
pub type Addresses = SmallVec<[u64; 8]>;

/// A graph of launches in a GPU family. Dropping it frees it; work already launched still runs.
pub trait LaunchGraph: Sized + Send {
    /// The driver of the family.
    type Driver: Driver;

    /// Whether each launch waits only for the launches it depends on. Otherwise each waits for the previous one.
    const SIDE_BY_SIDE: bool = true;

    /// Returns the addresses of a launch's buffers.
    fn addresses(submission: &Submission<'_, Self::Driver>) -> Addresses;
    /// Makes a graph of these launches. `waits` lists, for each launch, the earlier ones it waits for. Returns `None`
    /// if the driver cannot; the launches are then submitted one by one.
    fn new(
        driver: &Self::Driver,
        submissions: &[Submission<'_, Self::Driver>],
        waits: &[Vec<usize>],
    ) -> Option<Self>;
    /// Changes the buffer addresses of launch number `at` for later launches of the graph. The module stays the same.
    /// Returns false if the driver cannot; the graph is then discarded.
    fn patch(&mut self, at: usize, submission: &Submission<'_, Self::Driver>) -> bool;
    /// Launches the graph, in the order of the driver's queue.
    fn launch(&self, driver: &Self::Driver) -> Result<()>;
}

/// The graphs of one sequence of launches. Families with graphs use it as [`Driver::Recording`].
pub struct Repeated<G> {
    state: Mutex<State<G>>,
}

struct State<G> {
    /// True once the launches have run. A sequence that runs only once is not worth a graph.
    repeated: bool,
    /// Least recently used first. A graph in use is not in the list.
    graphs: Vec<Kept<G>>,
}

/// A graph with its modules and addresses.
struct Kept<G> {
    /// For each launch, its module's address and its buffers' addresses.
    key: Vec<u64>,
    /// For each launch, the launches it waits for.
    waits: Vec<Vec<usize>>,
    graph: G,
}

/// How to submit some launches.
enum Found<G> {
    /// One by one.
    Nothing,
    /// With a new graph.
    Room,
    /// With an existing graph, possibly after patching its addresses.
    Graph(Kept<G>),
}

impl<G> Default for Repeated<G> {
    fn default() -> Repeated<G> {
        Repeated { state: Mutex::new(State { repeated: false, graphs: Vec::new() }) }
    }
}

impl<G: LaunchGraph> Repeated<G> {
    /// Submits the launches. Uses no graph the first time, or if the driver cannot make one.
    ///
    /// # Errors
    /// Errors of the driver's launches.
    pub fn launch(&self, driver: &G::Driver, submissions: &[Submission<'_, G::Driver>]) -> Result<()> {
        let all: Vec<Addresses> = submissions.iter().map(G::addresses).collect();
        let lock = || self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key(submissions, &all);
        let found = {
            let mut state = lock();
            let repeated = mem::replace(&mut state.repeated, true);
            let same = state.graphs.iter().position(|kept| kept.key == key);
            match same {
                _ if !repeated || submissions.len() < LEAST => Found::Nothing,
                Some(at) => Found::Graph(state.graphs.remove(at)),
                None if state.graphs.len() < GRAPHS => Found::Room,
                None => {
                    let nearest = nearest(&state.graphs, &key);
                    Found::Graph(state.graphs.remove(nearest))
                }
            }
        };
        let make = |key| Kept::<G>::new(driver, submissions, &all, key);
        let kept = match found {
            // The modules or dependencies may differ, and then a new graph is made.
            Found::Graph(kept) => kept.fitted(submissions, &all, &key).or_else(|| make(key)),
            Found::Room => make(key),
            Found::Nothing => None,
        };
        let Some(kept) = kept else {
            return submissions.iter().try_for_each(|submission| driver.launch(submission));
        };
        kept.graph.launch(driver)?;
        lock().graphs.push(kept);
        Ok(())
    }
}

/// The position of the graph with the fewest addresses to patch; of equally near ones, the least recently used.
fn nearest<G>(graphs: &[Kept<G>], key: &[u64]) -> usize {
    let differing = |kept: &Kept<G>| {
        let pairs = kept.key.iter().zip(key).filter(|(old, new)| old != new).count();
        pairs + kept.key.len().abs_diff(key.len())
    };
    // `min_by_key` returns the first of equal ones.
    (0..graphs.len()).min_by_key(|&at| differing(&graphs[at])).unwrap_or_default()
}

fn key<D: Driver>(submissions: &[Submission<'_, D>], all: &[Addresses]) -> Vec<u64> {
    let mut key = Vec::with_capacity(8 * submissions.len());
    for (submission, addresses) in submissions.iter().zip(all) {
        key.push(ptr::from_ref(submission.module).addr() as u64);
        key.extend_from_slice(addresses);
    }
    key
}

impl<G: LaunchGraph> Kept<G> {
    fn new(
        driver: &G::Driver,
        submissions: &[Submission<'_, G::Driver>],
        all: &[Addresses],
        key: Vec<u64>,
    ) -> Option<Kept<G>> {
        let waits = waits::<G>(submissions, all);
        let graph = G::new(driver, submissions, &waits)?;
        Some(Kept { key, waits, graph })
    }

    /// Patches the graph to these addresses. Returns `None` if the modules or the dependencies differ, or the driver
    /// cannot patch.
    fn fitted(
        mut self,
        submissions: &[Submission<'_, G::Driver>],
        all: &[Addresses],
        key: &[u64],
    ) -> Option<Kept<G>> {
        if self.key == key {
            return Some(self);
        }
        if self.waits.len() != submissions.len() || self.waits != waits::<G>(submissions, all) {
            return None;
        }
        let mut place = 0;
        for (at, (submission, addresses)) in submissions.iter().zip(all).enumerate() {
            let part = place..place + 1 + addresses.len();
            place = part.end;
            let (old, new) = (self.key.get(part.clone()), key.get(part));
            if old == new {
                continue;
            }
            let same_module = old.and_then(<[u64]>::first) == new.and_then(<[u64]>::first);
            if !same_module || !self.graph.patch(at, submission) {
                return None;
            }
        }
        self.key = key.to_vec();
        Some(self)
    }
}

/// Returns, for each launch, the launches it waits for.
fn waits<G: LaunchGraph>(submissions: &[Submission<'_, G::Driver>], all: &[Addresses]) -> Vec<Vec<usize>> {
    match G::SIDE_BY_SIDE {
        true => dependencies(submissions, all),
        false => in_order(submissions.len()),
    }
}

fn in_order(launches: usize) -> Vec<Vec<usize>> {
    (0..launches).map(|at| at.checked_sub(1).into_iter().collect()).collect()
}

/// A range of addresses that a launch accesses, and whether it writes there.
struct Touched {
    range: Range<u64>,
    written: bool,
}

/// Returns, for each launch, the earlier launches that access the same memory where at least one of the two writes.
/// Launches already reached through another dependency are omitted.
fn dependencies<D: Driver>(submissions: &[Submission<'_, D>], all: &[Addresses]) -> Vec<Vec<usize>> {
    let touched: Vec<Vec<Touched>> = submissions
        .iter()
        .zip(all)
        .map(|(submission, addresses)| {
            let buffers = submission.kernel.buffers.iter().zip(addresses);
            let each = buffers.map(|(buffer, &start)| {
                let bytes = (buffer.length * buffer.dtype.size()) as u64;
                Touched { range: start..start.saturating_add(bytes), written: buffer.written }
            });
            each.collect()
        })
        .collect();
    let collide = |a: &[Touched], b: &[Touched]| {
        a.iter().any(|a| {
            b.iter().any(|b| {
                (a.written || b.written) && a.range.start < b.range.end && b.range.start < a.range.end
            })
        })
    };
    // For each launch, all of its predecessors in the graph.
    let mut before: Vec<Vec<bool>> = Vec::with_capacity(touched.len());
    let mut waits = Vec::with_capacity(touched.len());
    for (at, this) in touched.iter().enumerate() {
        let (mut reached, mut direct) = (vec![false; at], Vec::new());
        for earlier in (0..at).rev() {
            if !reached[earlier] && collide(&touched[earlier], this) {
                direct.push(earlier);
                reached[earlier] = true;
                for (place, &reachable) in before[earlier].iter().enumerate() {
                    reached[place] |= reachable;
                }
            }
        }
        before.push(reached);
        waits.push(direct);
    }
    waits
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        DType,
        device::DeviceInfo,
        gpu::NotCompiled,
        kernel::{
            loops::{BufferParameter, Kernel},
            lower::Target,
        },
    };

    /// A call that the driver received.
    #[derive(Clone, Debug, PartialEq, Eq)]
    enum Done {
        /// A single launch, by its first address.
        One(u64),
        /// A new graph, with the dependencies of its launches.
        Made(Vec<Vec<usize>>),
        /// New addresses for a launch of a graph.
        Patched(usize, Vec<u64>),
        /// A launch of a graph.
        Graph,
    }

    use Done::*;

    type Log = Arc<Mutex<Vec<Done>>>;

    /// A driver whose blocks are addresses, and which only logs its calls.
    #[derive(Default)]
    struct Noting {
        log: Log,
        makes_no_graphs: bool,
        patches_none: bool,
    }

    struct NotingGraph {
        log: Log,
        patches_none: bool,
    }

    fn note(log: &Log, done: Done) {
        log.lock().unwrap().push(done);
    }

    impl LaunchGraph for NotingGraph {
        type Driver = Noting;

        fn addresses(submission: &Submission<'_, Noting>) -> Addresses {
            submission.arguments.iter().map(|(block, start)| block.wrapping_add_signed(*start)).collect()
        }

        fn new(
            driver: &Noting,
            submissions: &[Submission<'_, Noting>],
            waits: &[Vec<usize>],
        ) -> Option<NotingGraph> {
            assert_eq!(submissions.len(), waits.len());
            if driver.makes_no_graphs {
                return None;
            }
            note(&driver.log, Made(waits.to_vec()));
            Some(NotingGraph { log: driver.log.clone(), patches_none: driver.patches_none })
        }

        fn patch(&mut self, at: usize, submission: &Submission<'_, Noting>) -> bool {
            if !self.patches_none {
                note(&self.log, Patched(at, NotingGraph::addresses(submission).to_vec()));
            }
            !self.patches_none
        }

        fn launch(&self, driver: &Noting) -> Result<()> {
            note(&driver.log, Graph);
            Ok(())
        }
    }

    impl Driver for Noting {
        type Block = u64;
        type Module = u8;
        type Recording = Repeated<NotingGraph>;
        type Mark = ();

        fn name(&self) -> &str {
            "noting:0"
        }

        fn info(&self) -> DeviceInfo {
            unreachable!("not called")
        }

        fn target(&self) -> &Target {
            unreachable!("not called")
        }

        fn available_memory(&self) -> Option<u64> {
            None
        }

        fn allocate(&self, _: usize) -> Option<u64> {
            None
        }

        fn write(&self, _: &u64, _: usize, _: &[u8]) -> Result<()> {
            Ok(())
        }

        fn read(&self, _: &u64, _: usize, _: &mut [u8]) -> Result<()> {
            Ok(())
        }

        fn compile(&self, _: &Kernel, _: &str) -> Result<u8, NotCompiled> {
            Ok(0)
        }

        fn launch(&self, submission: &Submission<'_, Noting>) -> Result<()> {
            note(&self.log, One(NotingGraph::addresses(submission)[0]));
            Ok(())
        }

        fn synchronize(&self) -> Result<()> {
            Ok(())
        }
    }

    /// Modules of kernels, distinguished by their addresses.
    static MODULES: [u8; 5] = [0; 5];

    /// The modules of four launches, the last of which is chosen.
    fn modules(last: usize) -> [&'static u8; 4] {
        [0, 1, 2, last].map(|module| &MODULES[module])
    }

    /// Returns the calls made for launches of kernels that each read 16 bytes at one address and write 16 at another.
    fn done(
        driver: &Noting,
        recording: &Repeated<NotingGraph>,
        modules: &[&'static u8],
        launches: &[[u64; 2]],
    ) -> Vec<Done> {
        let buffer = |written| BufferParameter { dtype: DType::F32, length: 4, written, exclusive: false };
        let kernel = Kernel { buffers: vec![buffer(false), buffer(true)], ..Kernel::default() };
        let mut submissions: Vec<Submission<'_, Noting>> = Vec::new();
        for (&module, places) in modules.iter().zip(launches) {
            let arguments = places.iter().map(|place| (place, 0)).collect();
            submissions.push(Submission { module, kernel: &kernel, arguments });
        }
        recording.launch(driver, &submissions).unwrap();
        mem::take(&mut *driver.log.lock().unwrap())
    }

    /// The last waits for the second only, which waits for the first. The third waits for none.
    const LAUNCHES: [[u64; 2]; 4] = [[1000, 1100], [1100, 1200], [1000, 1300], [1200, 1100]];

    fn expected() -> Vec<Vec<usize>> {
        vec![vec![], vec![0], vec![], vec![1]]
    }

    fn moved(by: u64) -> [[u64; 2]; 4] {
        LAUNCHES.map(|places| places.map(|place| place + by))
    }

    fn one_by_one(launches: &[[u64; 2]]) -> Vec<Done> {
        launches.iter().map(|places| One(places[0])).collect()
    }

    #[test]
    fn what_is_repeated_becomes_a_graph_that_is_launched_again() {
        let (driver, recording) = (Noting::default(), Repeated::default());
        let run = || done(&driver, &recording, &modules(3), &LAUNCHES);
        assert_eq!(run(), one_by_one(&LAUNCHES));
        assert_eq!(run(), [Made(expected()), Graph]);
        assert_eq!(run(), [Graph]);
    }

    #[test]
    fn addresses_that_take_turns_have_graphs_and_others_are_patched_into_the_nearest() {
        let (driver, recording) = (Noting::default(), Repeated::default());
        let run = |launches: &[[u64; 2]]| done(&driver, &recording, &modules(3), launches);
        run(&LAUNCHES);
        for turn in 0..GRAPHS as u64 {
            assert_eq!(run(&moved(4096 * turn)), [Made(expected()), Graph]);
        }
        for turn in 0..GRAPHS as u64 {
            assert_eq!(run(&moved(4096 * turn)), [Graph]);
        }
        // The nearest graph is that of the first turn. Only the difference is patched.
        let mut launches = LAUNCHES;
        launches[2][1] = 1400;
        assert_eq!(run(&launches), [Patched(2, vec![1000, 1400]), Graph]);
        assert_eq!(run(&launches), [Graph]);
        // That graph has these addresses now, and is still the nearest.
        assert_eq!(run(&LAUNCHES), [Patched(2, LAUNCHES[2].to_vec()), Graph]);
        // Where everything differs, the oldest graph is patched: that of the second turn.
        let launches = moved(1 << 20);
        let patched = launches.iter().enumerate().map(|(at, places)| Patched(at, places.to_vec()));
        assert_eq!(run(&launches), patched.chain([Graph]).collect::<Vec<Done>>());
        assert_eq!(run(&moved(4096 * 2)), [Graph]);
    }

    #[test]
    fn a_graph_that_does_not_fit_is_made_anew() {
        let (driver, recording) = (Noting::default(), Repeated::default());
        let run = |last, launches: &[[u64; 2]]| done(&driver, &recording, &modules(last), launches);
        run(3, &LAUNCHES);
        for turn in 0..GRAPHS as u64 {
            run(3, &moved(4096 * turn));
        }
        // The third reads what the first writes, so the last waits for it too.
        let mut launches = moved(1 << 20);
        launches[2][0] = launches[0][1];
        let others = vec![vec![], vec![0], vec![0], vec![2, 1]];
        assert_eq!(run(3, &launches), [Made(others), Graph]);
        // The last launch has another module. The patches before that is detected are wasted.
        let log = run(4, &moved(1 << 21));
        assert_eq!(log[log.len() - 2..], [Made(expected()), Graph]);
    }

    #[test]
    fn what_a_driver_cannot_do_is_done_without() {
        let driver = Noting { makes_no_graphs: true, ..Noting::default() };
        let recording = Repeated::default();
        for _ in 0..3 {
            assert_eq!(done(&driver, &recording, &modules(3), &LAUNCHES), one_by_one(&LAUNCHES));
        }
        let driver = Noting { patches_none: true, ..Noting::default() };
        let recording = Repeated::default();
        assert_eq!(done(&driver, &recording, &modules(3), &LAUNCHES), one_by_one(&LAUNCHES));
        for turn in 0..3 * GRAPHS as u64 {
            let log = done(&driver, &recording, &modules(3), &moved(4096 * turn));
            assert_eq!(log, [Made(expected()), Graph]);
        }
    }

    #[test]
    fn launches_in_order_wait_for_the_one_before() {
        assert_eq!(in_order(3), [vec![], vec![0], vec![1]]);
        assert!(in_order(0).is_empty());
    }

    #[test]
    fn two_launches_are_not_worth_a_graph() {
        let (driver, recording) = (Noting::default(), Repeated::default());
        for _ in 0..3 {
            let log = done(&driver, &recording, &modules(3)[..2], &LAUNCHES[..2]);
            assert_eq!(log, one_by_one(&LAUNCHES[..2]));
        }
    }
}
