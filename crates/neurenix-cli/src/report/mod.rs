//! The report of a training run: `report.html`, a page that needs nothing else, and `curves.png`.
//!
//! Plain data go in, files come out; nothing here trains or measures anything.

mod charts;
mod confusion;
mod curves;
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
pub use page::render_html;
pub use panels::{Curve, Panel, panels_png};

/// Everything a report tells.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The heading: "digits with mlp on cpu".
    pub title: String,
    /// One sentence below it: the data.
    pub description: String,
    /// The figures to see first.
    pub summary: Vec<Fact>,
    /// One entry for each epoch, in order.
    pub epochs: Vec<EpochRecord>,
    /// Of a classification task.
    pub confusion: Option<ConfusionMatrix>,
    /// Examples that the model got wrong.
    pub mistakes: Vec<Mistake>,
    /// How many it got wrong altogether, and out of how many.
    pub mistakes_of: Option<(usize, usize)>,
    /// Where each operation ran.
    pub kernels: Vec<KernelRow>,
    /// What the kernels' times do not cover. May be empty.
    pub kernels_note: String,
    /// The kernels' times are the host's to submit them, where a device has a queue: not comparable among devices.
    pub kernels_submitted: bool,
    /// What a profiler noted, if one was wanted.
    pub profile: Option<neurenix::phynexus::profile::Profile>,
    /// Settings, as name and value.
    pub configuration: Vec<(String, String)>,
}

/// A figure with its name.
#[derive(Clone, Debug, Default)]
pub struct Fact {
    /// What it is: "Test accuracy".
    pub name: String,
    /// Its value with unit: "98.1 %".
    pub value: String,
    /// What it refers to: "353 of 360 images". May be empty.
    pub note: String,
}

/// How often each class was taken for each.
#[derive(Clone, Debug, Default)]
pub struct ConfusionMatrix {
    /// The names of the classes.
    pub classes: Vec<String>,
    /// The counts other than 0 by (truth, predicted): a square of all pairs outgrows memory where there are many classes.
    pub counts: BTreeMap<(usize, usize), u64>,
}

/// A small image: rows from the top, 8 bits a channel.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// 1 for grey (0 is black), 3 for red, green, blue side by side in each pixel.
    pub channels: usize,
    /// `height * width * channels` values.
    pub pixels: Vec<u8>,
}

/// An example that the model got wrong.
#[derive(Clone, Debug, Default)]
pub struct Mistake {
    /// What it looks like, if it is a picture.
    pub picture: Option<Picture>,
    /// Its row in the data set.
    pub index: usize,
    /// Its line in the file, from 1, if it comes from a table.
    pub line: Option<u64>,
    /// Names and values of features, if it comes from a table.
    pub features: Vec<(String, String)>,
    /// The class it has.
    pub truth: String,
    /// The class the model chose.
    pub predicted: String,
    /// The probability the model gave to its choice, 0 to 1.
    pub confidence: Option<f64>,
}

/// A kernel, and where it ran.
#[derive(Clone, Debug, Default)]
pub struct KernelRow {
    /// What it computes.
    pub name: String,
    /// The device it ran on: "cpu", "cuda:0".
    pub device: String,
    /// How often it ran.
    pub count: u64,
    /// The time it took altogether.
    pub seconds: f64,
    /// The bytes it read and wrote altogether.
    pub bytes: u64,
}

/// Where the page of a run's folder is.
pub fn page(folder: &Path) -> PathBuf {
    folder.join("report.html")
}

/// Writes `report.html` and `curves.png` into a folder, each completely or not at all.
///
/// # Errors
/// If a file cannot be written, or the curves cannot be drawn.
pub fn write(folder: &Path, report: &Report) -> Result<()> {
    write_bytes_atomically(&folder.join("curves.png"), &curves_png(&report.title, &report.epochs)?)?;
    write_bytes_atomically(&page(folder), render_html(report).as_bytes())
}
