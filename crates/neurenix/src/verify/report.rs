//! The suite's results, for people and programs.

use std::fmt;

use phynexus::Device;
use serde::{Deserialize, Serialize};

/// The results of the suite.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The device's name.
    pub device: String,
    /// The device's model.
    pub model: String,
    /// The seed of the random graphs.
    pub seed: u64,
    /// One row per operation and dtype.
    pub rows: Vec<Row>,
    /// All failures.
    pub failures: Vec<Failure>,
}

/// The cases of one operation and dtype.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The operation.
    pub operation: String,
    /// The dtype of the operand; empty if a case has several.
    pub dtype: String,
    /// The number of cases run.
    pub cases: usize,
    /// Cases without a wrong element, computed by the device alone.
    pub passed: usize,
    /// Cases without a wrong element in which the CPU did a step that the device does not support.
    pub elsewhere: usize,
    /// The reason for the first of them.
    pub elsewhere_reason: Option<String>,
    /// Cases with a wrong element or an error.
    pub failed: usize,
    /// Cases with an operation that the device reports as unsupported.
    pub unsupported: usize,
    /// The reason for the first of them.
    pub reason: Option<String>,
    /// The number of compared elements.
    pub compared: usize,
    /// The number of elements with more than one correct result.
    pub skipped: usize,
    /// The largest error of a correct element relative to the oracle's bound: 0 is the result of computing in `f64` and
    /// rounding, 1 is the bound.
    pub worst_share: f64,
}

/// A case that failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// The operation.
    pub operation: String,
    /// The dtype of the operand; empty if a case has several.
    pub dtype: String,
    /// The case: its name or, for a random graph, the reduced graph.
    pub case: String,
    /// What went wrong.
    pub message: String,
}

impl Row {
    pub(super) fn new(operation: &str, dtype: &str) -> Row {
        Row {
            operation: operation.to_owned(),
            dtype: dtype.to_owned(),
            cases: 0,
            passed: 0,
            elsewhere: 0,
            elsewhere_reason: None,
            failed: 0,
            unsupported: 0,
            reason: None,
            compared: 0,
            skipped: 0,
            worst_share: 0.0,
        }
    }

    fn add(&mut self, other: &Row) {
        self.cases += other.cases;
        self.passed += other.passed;
        self.elsewhere += other.elsewhere;
        self.failed += other.failed;
        self.unsupported += other.unsupported;
        self.compared += other.compared;
        self.skipped += other.skipped;
        self.worst_share = self.worst_share.max(other.worst_share);
        for (reason, others) in
            [(&mut self.elsewhere_reason, &other.elsewhere_reason), (&mut self.reason, &other.reason)]
        {
            *reason = reason.take().or_else(|| others.clone());
        }
    }
}

impl Report {
    /// Creates an empty report.
    pub fn new(device: Device, seed: u64) -> Report {
        let info = device.info();
        Report { device: info.name, model: info.model, seed, rows: Vec::new(), failures: Vec::new() }
    }

    /// True if nothing failed and the CPU did not help with every case.
    pub fn passed(&self) -> bool {
        let total = self.total();
        self.failures.is_empty() && (total.passed > 0 || total.elsewhere == 0)
    }

    /// The sums over all rows, as a row with the operation "total".
    pub fn total(&self) -> Row {
        let mut total = Row::new("total", "");
        self.rows.iter().for_each(|row| total.add(row));
        total
    }

    /// Adds the report of another part of the suite.
    pub fn merge(&mut self, part: Report) {
        for row in part.rows {
            let same = |known: &&mut Row| known.operation == row.operation && known.dtype == row.dtype;
            match self.rows.iter_mut().find(same) {
                Some(known) => known.add(&row),
                None => self.rows.push(row),
            }
        }
        self.failures.extend(part.failures);
    }

    /// Adds a failure without a row.
    pub fn fail(&mut self, failure: Failure) {
        let mut row = Row::new(&failure.operation, &failure.dtype);
        (row.cases, row.failed) = (1, 1);
        let part = Report { rows: vec![row], failures: vec![failure], ..self.clone() };
        self.merge(part);
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<22} {:<18} {:>6} {:>6} {:>6} {:>6} {:>8} {:>10} {:>9} {:>9.2}",
            self.operation,
            self.dtype,
            self.cases,
            self.passed,
            self.elsewhere,
            self.failed,
            self.unsupported,
            self.compared,
            self.skipped,
            self.worst_share
        )
    }
}

impl fmt::Display for Report {
    /// Prints the table, then the failures.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}), seed {}", self.device, self.model, self.seed)?;
        writeln!(
            f,
            "{:<22} {:<18} {:>6} {:>6} {:>6} {:>6} {:>8} {:>10} {:>9} {:>9}",
            "operation",
            "dtype",
            "cases",
            "passed",
            "on CPU",
            "failed",
            "not done",
            "compared",
            "skipped",
            "of bound"
        )?;
        for row in &self.rows {
            writeln!(f, "{row}")?;
        }
        writeln!(f, "{}", self.total())?;
        for failure in &self.failures {
            writeln!(
                f,
                "\n{} {}: {}\n  {}",
                failure.operation, failure.dtype, failure.case, failure.message
            )?;
        }
        Ok(())
    }
}
