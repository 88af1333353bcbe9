//! The conformance suite: every operation, dtype and awkward shape on a device, compared with the oracle.
//!
//! Tolerances are the oracle's own bounds ([`phynexus::oracle`]); nothing here chooses one. An element for which more
//! than one answer is right is skipped and counted.

mod custom;
mod elementwise;
mod execute;
mod fusion;
mod report;
mod structured;
mod tensors;

use std::collections::{BTreeMap, BTreeSet};

use phynexus::{
    Device,
    oracle::generate::{Case, random_case, shrink},
};

pub use report::{Failure, Report, Row};

use execute::{Outcome, execute, guarded};

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
}

impl Default for Options {
    fn default() -> Options {
        Options { random_graphs: 300, seed: 0, operations: 14, filter: None }
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
    let names: BTreeSet<String> = named.chain(programs).chain([RANDOM.to_owned()]).collect();
    names.into_iter().collect()
}

/// Runs the suite on a device. A failure of any kind, a panic of the device included, is an entry of the report.
pub fn run(device: Device, options: &Options, progress: &mut dyn FnMut(Progress)) -> Report {
    let mut entries = entries();
    let wanted = |name: &str| options.filter.as_deref().is_none_or(|f| name.contains(f));
    entries.retain(|entry| wanted(&entry.operation));
    let programs: Vec<_> = tensors::PROGRAMS.iter().filter(|p| wanted(p.name)).collect();
    let graphs = if wanted(RANDOM) { options.random_graphs } else { 0 };
    let total = entries.len() + programs.len() + graphs;

    let mut table =
        Table { report: Report::new(device, options.seed), rows: BTreeMap::new(), done: 0, total };
    for entry in &entries {
        let outcome = execute(&entry.case, device);
        table.add(&entry.operation, &entry.dtype, &entry.case.name, outcome, progress);
    }
    for program in programs {
        let outcome = guarded(|| (program.run)(device));
        table.add(program.name, "", program.name, outcome, progress);
    }
    for graph in 0..graphs {
        let case = random_case(options.seed.wrapping_add(graph as u64), options.operations);
        let mut outcome = execute(&case, device);
        let mut listing = case.name.clone();
        if outcome.failure.is_some() {
            let small = shrink(&case, &mut |candidate| execute(candidate, device).failure.is_some());
            outcome.failure = execute(&small, device).failure.or(outcome.failure);
            listing = small.to_string();
        }
        table.add(RANDOM, "", &listing, outcome, progress);
    }
    table.finish()
}

const RANDOM: &str = "random graphs";

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
