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
use crate::{Result, kernel::loops::BufferParameter};

/// The minimum number of launches for a graph.
const LEAST: usize = 3;
/// The maximum number of graphs kept per sequence. Several are useful for steps that alternate between sets of buffers:
/// a training step's loss and numbers take turns in a few blocks of memory.
const GRAPHS: usize = 8;
/// The maximum number of changed addresses for which [`only_renamed`] looks for overlaps.
const RENAMED: usize = 32;

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
        if self.waits.len() != submissions.len()
            || !(G::SIDE_BY_SIDE && only_renamed(&self.key, submissions, all))
                && self.waits != waits::<G>(submissions, all)
        {
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

/// Returns whether the launches certainly depend on each other as before: each buffer that moved is moved everywhere,
/// and shares memory with no buffer at another address, neither where it was nor where it is. This is much faster than
/// finding the dependencies.
fn only_renamed<D: Driver>(key: &[u64], submissions: &[Submission<'_, D>], all: &[Addresses]) -> bool {
    // For each buffer, its former and its present address, and its length in bytes.
    let mut buffers: Vec<(u64, u64, u64)> = Vec::with_capacity(key.len());
    let mut place = 0;
    for (submission, addresses) in submissions.iter().zip(all) {
        if submission.is_routine {
            return false;
        }
        place += 1;
        for (buffer, &now) in submission.kernel.buffers.iter().zip(addresses) {
            let Some(&before) = key.get(place) else { return false };
            buffers.push((before, now, bytes(buffer)));
            place += 1;
        }
    }
    let mut moved: SmallVec<[(u64, u64, u64); RENAMED]> = SmallVec::new();
    for &(before, now, bytes) in buffers.iter().filter(|(before, now, _)| before != now) {
        match moved.iter().position(|&(from, to, _)| (from, to) == (before, now)) {
            Some(known) => moved[known].2 = bytes.max(moved[known].2),
            None if moved.len() == RENAMED => return false,
            None => moved.push((before, now, bytes)),
        }
    }
    let apart = |a: u64, length: u64, b: u64, other: u64| {
        a.saturating_add(length) <= b || b.saturating_add(other) <= a
    };
    moved.iter().all(|&(from, to, length)| {
        buffers.iter().all(|&(before, now, bytes)| match (before == from, now == to) {
            (true, true) => true,
            (false, false) => apart(from, length, before, bytes) && apart(to, length, now, bytes),
            _ => false,
        })
    })
}

/// The length of a buffer in bytes.
fn bytes(buffer: &BufferParameter) -> u64 {
    (buffer.length * buffer.dtype.size()) as u64
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

/// Returns, for each launch, the earlier launches that access the same memory where at least one of the two writes, and
/// of kernels whose groups wait for each other, the earlier ones of that kind: side by side they could keep each other
/// from beginning. A routine runs alone, because what it accesses is not known. Launches already reached through
/// another dependency are omitted.
fn dependencies<D: Driver>(submissions: &[Submission<'_, D>], all: &[Addresses]) -> Vec<Vec<usize>> {
    let touched: Vec<Vec<Touched>> = submissions
        .iter()
        .zip(all)
        .map(|(submission, addresses)| {
            let buffers = submission.kernel.buffers.iter().zip(addresses);
            let each = buffers.map(|(buffer, &start)| Touched {
                range: start..start.saturating_add(bytes(buffer)),
                written: buffer.written,
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
    let meets: Vec<bool> =
        submissions.iter().map(|submission| submission.kernel.has_grid_barriers()).collect();
    // For each launch, all of its predecessors in the graph.
    let mut before: Vec<Vec<bool>> = Vec::with_capacity(touched.len());
    let mut waits = Vec::with_capacity(touched.len());
    for (at, this) in touched.iter().enumerate() {
        let (mut reached, mut direct) = (vec![false; at], Vec::new());
        for earlier in (0..at).rev() {
            let alone = submissions[earlier].is_routine || submissions[at].is_routine;
            if !reached[earlier] && (alone || meets[earlier] && meets[at] || collide(&touched[earlier], this))
            {
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
mod tests;
