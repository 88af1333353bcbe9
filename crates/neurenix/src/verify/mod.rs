//! The conformance suite: every operation, dtype and awkward shape on a device, compared with the oracle.
//!
//! Tolerances are the oracle's own bounds ([`phynexus::oracle`]); nothing here chooses one. An element for which more
//! than one answer is right is skipped and counted.

mod compile;
mod consistency;
mod copies;
mod custom;
mod elementwise;
mod execute;
mod fusion;
mod kinds;
mod large;
mod report;
mod steady;
mod structured;
mod tensors;

use std::collections::{BTreeMap, BTreeSet};

use phynexus::{
    Device,
    gpu::recorder,
    interrupt,
    kernel::{loops::Kernel, lower::Target},
    oracle::generate::{Case, random_case, shrink},
};

pub use compile::{Compiled, compile};
pub use consistency::{Consistency, consistency};
pub use copies::{Copied, copies};
pub use large::{Large, large};
pub use report::{Failure, Report, Row};
pub use steady::{Steady, steady};

use execute::{Outcome, execute, guarded, run_unchecked};

/// What the suite runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many random graphs.
    pub random_graphs: usize,
    /// The seed of the first of them; each next has the next.
    pub seed: u64,
    /// Operations in a random graph, at most.
    pub operations: usize,
    /// Only operations whose name contains this.
    pub filter: Option<String>,
    /// Only cases of this dtype, by its name; graphs of several dtypes are always among them.
    pub dtype: Option<String>,
    /// Only cases of this part: which, counted from 0, of how many.
    pub part: (usize, usize),
    /// Of those, on a device whose kernels are made of loop trees: only cases that need a kernel of a kind that none
    /// before needs. What one template makes for the same element types is a kind, for tools under which kernels are slow.
    pub kinds: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            random_graphs: 300,
            seed: 0,
            operations: 14,
            filter: None,
            dtype: None,
            part: (0, 1),
            kinds: false,
        }
    }
}

/// How far the suite is.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// Cases done.
    pub done: usize,
    /// Cases in all.
    pub total: usize,
    /// The operation whose case was done last.
    pub operation: &'a str,
    /// Failures so far.
    pub failures: usize,
}

/// A case under its place in the table.
struct Entry {
    operation: String,
    dtype: String,
    case: Case,
}

impl Entry {
    fn new(operation: impl Into<String>, dtype: impl Into<String>, case: Case) -> Entry {
        Entry { operation: operation.into(), dtype: dtype.into(), case }
    }
}

fn entries() -> Vec<Entry> {
    let mut entries = elementwise::entries();
    entries.extend(structured::entries());
    entries.extend(fusion::entries());
    entries.extend(custom::entries());
    entries
}

/// The names of what the suite checks, each once, in alphabetical order: what [`Options::filter`] chooses from.
pub fn operations() -> Vec<String> {
    let named = entries().into_iter().map(|entry| entry.operation);
    let programs = tensors::PROGRAMS.iter().map(|program| program.name.to_owned());
    let names: BTreeSet<String> =
        named.chain(programs).chain([RANDOM.to_owned(), CONSISTENT.to_owned()]).collect();
    names.into_iter().collect()
}

/// What of the suite is asked for.
struct Cases {
    entries: Vec<Entry>,
    programs: Vec<&'static tensors::Program>,
    /// The seeds of random graphs.
    graphs: Vec<u64>,
}

impl Cases {
    fn of(options: &Options) -> Cases {
        let (part, parts) = options.part;
        let wanted = |name: &str| options.filter.as_deref().is_none_or(|f| name.contains(f));
        let mut entries = entries();
        let of_dtype = |dtype: &str| options.dtype.as_deref().is_none_or(|wanted| dtype == wanted);
        entries.retain(|entry| wanted(&entry.operation) && of_dtype(&entry.dtype));
        let mut programs: Vec<_> = tensors::PROGRAMS.iter().filter(|p| wanted(p.name)).collect();
        let graphs = if wanted(RANDOM) || wanted(CONSISTENT) { options.random_graphs as u64 } else { 0 };
        let mut graphs: Vec<u64> = (0..graphs).map(|graph| options.seed.wrapping_add(graph)).collect();
        // Neighbours are alike: a part has some of all.
        let mut at = 0..;
        let mut own = || at.next().is_some_and(|at: usize| at % parts.max(1) == part);
        entries.retain(|_| own());
        programs.retain(|_| own());
        graphs.retain(|_| own());
        Cases { entries, programs, graphs }
    }
}

/// The kernels that the suite's cases become on a GPU of this kind, each once; nothing is computed. A case that a GPU
/// refuses has none.
pub fn kernels(target: Target, options: &Options) -> Vec<Kernel> {
    let (device, recorded) = recorder(target);
    unchecked(device, options, &mut |_| {});
    recorded.take()
}

/// Runs the suite's cases on a device whose results mean nothing, and calls `done` with the name of each afterwards. What
/// the device refuses is skipped.
pub fn unchecked(device: Device, options: &Options, done: &mut dyn FnMut(&str)) {
    let cases = Cases::of(options);
    let mut record = |case: &Case| {
        drop(guarded(|| run_unchecked(case, device)));
        done(&case.name);
    };
    cases.entries.iter().for_each(|entry| record(&entry.case));
    cases.graphs.iter().for_each(|&seed| record(&random_case(seed, options.operations)));
    for program in &cases.programs {
        drop(guarded(|| (program.run)(device)));
        done(program.name);
    }
}

/// Runs the suite on a device. A failure of any kind, a panic of the device included, is an entry of the report. Where the
/// thread is [interrupted](interrupt), the report ends with the case before.
pub fn run(device: Device, options: &Options, progress: &mut dyn FnMut(Progress)) -> Report {
    let mut cases = Cases::of(options);
    if let Some(target) = device.backend().target().filter(|_| options.kinds) {
        cases.one_of_a_kind(target, options.operations);
    }
    let Cases { entries, programs, graphs } = cases;
    let consistent = graphs.iter().filter(|seed| seed.is_multiple_of(PROGRAMS)).count();
    let total = entries.len() + programs.len() + graphs.len() + consistent;

    let mut table =
        Table { report: Report::new(device, options.seed), rows: BTreeMap::new(), done: 0, total };
    for entry in &entries {
        let outcome = execute(&entry.case, device);
        if interrupt::requested() {
            return table.finish();
        }
        table.add(&entry.operation, &entry.dtype, &entry.case.name, outcome, progress);
    }
    for program in programs {
        let outcome = guarded(|| (program.run)(device));
        if interrupt::requested() {
            return table.finish();
        }
        table.add(program.name, "", program.name, outcome, progress);
    }
    for seed in graphs {
        let case = random_case(seed, options.operations);
        let mut outcome = execute(&case, device);
        if interrupt::requested() {
            return table.finish();
        }
        let mut listing = case.name.clone();
        if outcome.failure.is_some() {
            let small = shrink(&case, &mut |candidate| execute(candidate, device).failure.is_some());
            outcome.failure = execute(&small, device).failure.or(outcome.failure);
            listing = small.to_string();
        }
        table.add(RANDOM, "", &listing, outcome, progress);
        // One operation at a time is slow where each has to be compiled.
        if !seed.is_multiple_of(PROGRAMS) {
            continue;
        }
        let case = consistency::program(seed, options.operations);
        let outcome = consistency::check(&case, device, seed);
        if interrupt::requested() {
            return table.finish();
        }
        table.add(CONSISTENT, "", &case.to_string(), outcome, progress);
    }
    table.finish()
}

const RANDOM: &str = "random graphs";
/// One in so many random graphs is followed by a program that is run in two ways.
const PROGRAMS: u64 = 5;
/// Random programs whose numbers must not depend on what is held and when it is read.
const CONSISTENT: &str = "one value, one number";

struct Table {
    report: Report,
    /// The position of an operation's and dtype's row.
    rows: BTreeMap<(String, String), usize>,
    done: usize,
    total: usize,
}

impl Table {
    fn add(
        &mut self,
        operation: &str,
        dtype: &str,
        listing: &str,
        outcome: Outcome,
        progress: &mut dyn FnMut(Progress),
    ) {
        let next = self.report.rows.len();
        let row = *self.rows.entry((operation.to_owned(), dtype.to_owned())).or_insert(next);
        if row == next {
            self.report.rows.push(Row::new(operation, dtype));
        }
        let row = &mut self.report.rows[row];
        row.cases += 1;
        row.compared += outcome.compared;
        row.skipped += outcome.skipped;
        row.worst_share = row.worst_share.max(outcome.worst_share);
        match outcome.failure {
            None if outcome.unsupported.is_some() => {
                row.unsupported += 1;
                row.reason = row.reason.take().or(outcome.unsupported);
            }
            None if outcome.elsewhere.is_some() => {
                row.elsewhere += 1;
                row.elsewhere_reason = row.elsewhere_reason.take().or(outcome.elsewhere);
            }
            None => row.passed += 1,
            Some(message) => {
                row.failed += 1;
                self.report.failures.push(Failure {
                    operation: operation.to_owned(),
                    dtype: dtype.to_owned(),
                    case: listing.to_owned(),
                    message,
                });
            }
        }
        self.done += 1;
        let failures = self.report.failures.len();
        progress(Progress { done: self.done, total: self.total, operation, failures });
    }

    fn finish(self) -> Report {
        self.report
    }
}
