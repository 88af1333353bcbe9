//! Plots of curves.

use neurenix_cli::report::{Curve, Panel, panels_png};
use pyo3::{prelude::*, types::PyBytes};

use crate::error::Result;

/// A panel as Python passes it: its title, and for each curve its name and one value per epoch.
type Given = (String, Vec<(String, Vec<f64>)>);

/// The width of a panel in pixels.
const WIDTH: u32 = 800;

/// Draws panels of curves side by side and returns the bytes of a PNG file. Non-finite values leave gaps.
#[pyfunction]
pub(crate) fn curves_png<'py>(py: Python<'py>, panels: Vec<Given>) -> Result<Bound<'py, PyBytes>> {
    let panels: Vec<Panel> = panels
        .into_iter()
        .map(|(title, curves)| {
            let curve = |(name, values): (String, Vec<f64>)| {
                let points =
                    values.into_iter().enumerate().map(|(i, value)| ((i + 1) as f64, value)).collect();
                Curve { name, dashed: false, points }
            };
            Panel { title, percent: false, curves: curves.into_iter().map(curve).collect() }
        })
        .collect();
    let width = WIDTH * u32::try_from(panels.len().max(1)).unwrap_or(u32::MAX / WIDTH);
    let file = py.detach(|| panels_png("", width, &panels))?;
    Ok(PyBytes::new(py, &file))
}
