//! The report of a training run: `report.html`, a self-contained page, and `curves.png`.
//!
//! This module only formats data into files; it trains and measures nothing.

mod charts;
mod confusion;
mod curves;
mod deployment;
pub(crate) mod format;
mod html;
mod page;
mod panels;
mod png;
mod profile;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use neurenix::Result;
use neurenix::io::write_bytes_atomically;
use neurenix::train::EpochRecord;

pub use curves::curves_png;
pub use deployment::{PlacementRow, render_deployment};
pub use page::render_html;
pub use panels::{Curve, Panel, panels_png};

/// The contents of a report.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The heading: "digits with mlp on cpu".
    pub title: String,
    /// One sentence below the heading that describes the data.
    pub description: String,
    /// The figures at the top.
    pub summary: Vec<Fact>,
    /// One entry for each epoch, in order.
    pub epochs: Vec<EpochRecord>,
    /// Only for classification.
    pub confusion: Option<ConfusionMatrix>,
    /// Examples that the model misclassified.
    pub mistakes: Vec<Mistake>,
    /// The number of misclassified examples, and the total.
    pub mistakes_of: Option<(usize, usize)>,
    /// Where each operation ran.
    pub kernels: Vec<KernelRow>,
    /// What the kernel times do not cover. May be empty.
    pub kernels_note: String,
    /// Whether kernel times are host submission times, as on a device with a queue. These are not comparable between
    /// devices.
    pub kernels_submitted: bool,
    /// The recorded profile, if profiling was on.
    pub profile: Option<neurenix::phynexus::profile::Profile>,
    /// Settings as name and value.
    pub configuration: Vec<(String, String)>,
}

/// A figure with its name.
#[derive(Clone, Debug, Default)]
pub struct Fact {
    /// The name: "Test accuracy".
    pub name: String,
    /// The value with its unit: "98.1 %".
    pub value: String,
    /// The reference: "353 of 360 images". May be empty.
    pub note: String,
}

/// How often each class was predicted for each true class.
#[derive(Clone, Debug, Default)]
pub struct ConfusionMatrix {
    /// The names of the classes.
    pub classes: Vec<String>,
    /// Nonzero counts by (truth, predicted). Sparse: with many classes, a full matrix would not fit in memory.
    pub counts: BTreeMap<(usize, usize), u64>,
}

/// A small image: rows from the top, 8 bits per channel.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// 1 for grey (0 is black), 3 for interleaved red, green and blue.
    pub channels: usize,
    /// `height * width * channels` values.
    pub pixels: Vec<u8>,
}

/// An example that the model misclassified.
#[derive(Clone, Debug, Default)]
pub struct Mistake {
    /// The image, if the example is one.
    pub picture: Option<Picture>,
    /// Its row in the dataset.
    pub index: usize,
    /// Its line in the file, counted from 1, if it comes from a table.
    pub line: Option<u64>,
    /// Feature names and values, if it comes from a table.
    pub features: Vec<(String, String)>,
    /// The true class.
    pub truth: String,
    /// The predicted class.
    pub predicted: String,
    /// The probability of the predicted class, 0 to 1.
    pub confidence: Option<f64>,
}

/// A kernel, and where it ran.
#[derive(Clone, Debug, Default)]
pub struct KernelRow {
    /// What it computes.
    pub name: String,
    /// The device it ran on: "cpu", "cuda:0".
    pub device: String,
    /// The number of times it ran.
    pub count: u64,
    /// The total time.
    pub seconds: f64,
    /// The total number of bytes read and written.
    pub bytes: u64,
}

/// The path of the page in a run's folder.
pub fn page(folder: &Path) -> PathBuf {
    folder.join("report.html")
}

/// Writes `report.html` and `curves.png` into a folder, each atomically.
///
/// # Errors
/// If a file cannot be written, or the curves cannot be drawn.
pub fn write(folder: &Path, report: &Report) -> Result<()> {
    write_bytes_atomically(&folder.join("curves.png"), &curves_png(&report.title, &report.epochs)?)?;
    write_bytes_atomically(&page(folder), render_html(report).as_bytes())
}
