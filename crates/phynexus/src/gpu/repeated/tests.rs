//! Repeated launches on a driver that only logs its calls.

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
    done_with(driver, recording, modules, launches, None)
}

/// The same, with a launch that is a routine.
fn done_with(
    driver: &Noting,
    recording: &Repeated<NotingGraph>,
    modules: &[&'static u8],
    launches: &[[u64; 2]],
    routine: Option<usize>,
) -> Vec<Done> {
    let buffer = |written| BufferParameter { dtype: DType::F32, length: 4, written, exclusive: false };
    let kernel = Kernel { buffers: vec![buffer(false), buffer(true)], ..Kernel::default() };
    let mut submissions: Vec<Submission<'_, Noting>> = Vec::new();
    for (&module, places) in modules.iter().zip(launches) {
        let arguments = places.iter().map(|place| (place, 0)).collect();
        let is_routine = routine == Some(submissions.len());
        submissions.push(Submission { module, kernel: &kernel, arguments, is_routine });
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
fn a_routine_runs_alone() {
    let (driver, recording) = (Noting::default(), Repeated::default());
    let run = |launches: &[[u64; 2]]| done_with(&driver, &recording, &modules(3), launches, Some(2));
    run(&LAUNCHES);
    let alone = vec![vec![], vec![0], vec![1], vec![2]];
    assert_eq!(run(&LAUNCHES), [Made(alone), Graph]);
    for turn in 1..GRAPHS as u64 {
        run(&moved(4096 * turn));
    }
    // Its addresses are patched like those of others.
    let mut launches = LAUNCHES;
    launches[2][1] = 1400;
    assert_eq!(run(&launches), [Patched(2, vec![1000, 1400]), Graph]);
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

#[test]
fn dependencies_are_found_again_unless_buffers_only_moved() {
    let buffer = |written| BufferParameter { dtype: DType::F32, length: 4, written, exclusive: false };
    let kernel = Kernel { buffers: vec![buffer(false), buffer(true)], ..Kernel::default() };
    let is_renamed = |launches: [[u64; 2]; 4]| {
        let submissions = |launches: &'static [[u64; 2]; 4]| {
            let each = launches.iter().map(|places| Submission::<Noting> {
                module: &MODULES[0],
                kernel: &kernel,
                arguments: places.iter().map(|place| (place, 0)).collect(),
                is_routine: false,
            });
            each.collect::<Vec<_>>()
        };
        let before = submissions(&LAUNCHES);
        let addresses = |of: &[[u64; 2]; 4]| of.iter().map(|places| places[..].into()).collect::<Vec<_>>();
        only_renamed(&key(&before, &addresses(&LAUNCHES)), &before, &addresses(&launches))
    };
    assert!(is_renamed(LAUNCHES));
    assert!(is_renamed(moved(4096)));
    let changed = |changes: &[(usize, usize, u64)]| {
        let mut launches = LAUNCHES;
        changes.iter().for_each(|&(launch, buffer, place)| launches[launch][buffer] = place);
        launches
    };
    assert!(is_renamed(changed(&[(2, 1, 1400)])));
    assert!(is_renamed(changed(&[(0, 0, 1400), (2, 0, 1400)])));
    // The first and the third launch read the same buffer; only one of them has moved.
    assert!(!is_renamed(changed(&[(2, 0, 1400)])));
    // Another buffer is there, or overlaps.
    assert!(!is_renamed(changed(&[(2, 1, 1200)])));
    assert!(!is_renamed(changed(&[(2, 1, 1208)])));
    assert!(is_renamed(changed(&[(2, 1, 1216)])));
}
