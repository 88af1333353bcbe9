//! The conformance suite: compares every operation, dtype and edge-case shape on a device with the oracle.
//!
//! The oracle defines all tolerances ([`phynexus::oracle`]). Elements with more than one correct result are skipped and
//! counted.

mod compile;
mod consistency;
mod copies;
mod custom;
mod elementwise;
mod execute;
mod fusion;
mod kernel_kinds;
mod large;
mod report;
mod samples;
mod sizes;
mod steady;
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

/// Options of the suite.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of random graphs.
    pub random_graphs: usize,
    /// The seed of the first random graph; each further graph uses the next seed.
    pub seed: u64,
    /// The maximum number of operations in a random graph.
    pub operations: usize,
    /// Run only operations whose name contains this.
    pub filter: Option<String>,
    /// Run only cases of this dtype, given by name, and graphs of several dtypes.
    pub dtype: Option<String>,
    /// Run only one part of the cases: its index from 0, and the number of parts.
    pub part: (usize, usize),
    /// Of those, run only cases that need a kind of kernel that no earlier case needs. A kind is what one template
    /// generates for the same element types. Has an effect only on devices that compile loop trees; for tools that slow
    /// kernels down.
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

/// The progress of the suite.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// The number of finished cases.
    pub done: usize,
    /// The total number of cases.
    pub total: usize,
    /// The operation of the last finished case.
    pub operation: &'a str,
    /// The number of failures so far.
    pub failures: usize,
}

/// A case and its row in the report.
struct Entry {
    operation: String,
    dtype: String,
    /// Makes the case. Every process of a divided suite lists all entries, but makes few of the cases.
    case: Box<dyn Fn() -> Case>,
}

impl Entry {
    fn new(
        operation: impl Into<String>,
        dtype: impl Into<String>,
        case: impl Fn() -> Case + 'static,
    ) -> Entry {
        Entry { operation: operation.into(), dtype: dtype.into(), case: Box::new(case) }
    }
}

fn entries() -> Vec<Entry> {
    let mut entries = elementwise::entries();
    entries.extend(samples::entries());
    entries.extend(fusion::entries());
    entries.extend(custom::entries());
    entries
}

fn programs() -> impl Iterator<Item = &'static tensors::Program> {
    tensors::PROGRAMS.iter().chain(sizes::PROGRAMS)
}

/// The names of the checked operations, without duplicates, in alphabetical order; [`Options::filter`] selects from
/// them.
pub fn operations() -> Vec<String> {
    let named = entries().into_iter().map(|entry| entry.operation);
    let programs = programs().map(|program| program.name.to_owned());
    let names: BTreeSet<String> =
        named.chain(programs).chain([RANDOM.to_owned(), CONSISTENT.to_owned()]).collect();
    names.into_iter().collect()
}

/// The selected cases.
struct Cases {
    entries: Vec<Entry>,
    programs: Vec<&'static tensors::Program>,
    /// The seeds of the random graphs.
    graphs: Vec<u64>,
}

impl Cases {
    fn of(options: &Options) -> Cases {
        let (part, parts) = options.part;
        let wanted = |name: &str| options.filter.as_deref().is_none_or(|f| name.contains(f));
        let mut entries = entries();
        let of_dtype = |dtype: &str| options.dtype.as_deref().is_none_or(|wanted| dtype == wanted);
        entries.retain(|entry| wanted(&entry.operation) && of_dtype(&entry.dtype));
        let mut programs: Vec<_> = programs().filter(|p| wanted(p.name)).collect();
        let graphs = if wanted(RANDOM) || wanted(CONSISTENT) { options.random_graphs as u64 } else { 0 };
        let mut graphs: Vec<u64> = (0..graphs).map(|graph| options.seed.wrapping_add(graph)).collect();
        // Neighbouring cases are similar, so every part gets some of each.
        let mut at = 0..;
        let mut own = || at.next().is_some_and(|at: usize| at % parts.max(1) == part);
        entries.retain(|_| own());
        programs.retain(|_| own());
        graphs.retain(|_| own());
        Cases { entries, programs, graphs }
    }
}

/// The distinct kernels that the suite's cases use on a GPU of this kind. Nothing is computed. Cases that the GPU
/// rejects have no kernels.
pub fn kernels(target: Target, options: &Options) -> Vec<Kernel> {
    let (device, recorded) = recorder(target);
    unchecked(device, options, &mut |_| {});
    recorded.take()
}

/// Runs the suite's cases on a device without checking results. Calls `done` with the name of each case afterwards.
/// Cases that the device rejects are skipped.
pub fn unchecked(device: Device, options: &Options, done: &mut dyn FnMut(&str)) {
    let cases = Cases::of(options);
    let mut record = |operation: &str, case: &Case| {
        drop(guarded(|| run_unchecked(case, device)));
        done(format!("{operation} {}", case.name).trim());
    };
    cases.entries.iter().for_each(|entry| record(&entry.operation, &(entry.case)()));
    cases.graphs.iter().for_each(|&seed| record("", &random_case(seed, options.operations)));
    for program in &cases.programs {
        drop(guarded(|| (program.run)(device)));
        done(program.name);
    }
}

/// Runs the suite on a device. Every failure, including a panic of the device, becomes an entry of the report. If the
/// thread is [interrupted](interrupt), the report ends with the last finished case.
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
        let case = (entry.case)();
        let outcome = execute(&case, device);
        if interrupt::requested() {
            return table.finish();
        }
        table.add(&entry.operation, &entry.dtype, &case.name, outcome, progress);
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
        // Running one operation at a time is slow on devices that compile each one.
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
/// One in this many random graphs is followed by a consistency check.
const PROGRAMS: u64 = 5;
/// The report's name of the consistency checks.
const CONSISTENT: &str = "one value, one number";

struct Table {
    report: Report,
    /// The index of the row of an operation and dtype.
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
