//! Curves by epoch in panels side by side, as a PNG image.

use std::sync::OnceLock;

use neurenix::{Error, Result};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use super::charts::{axis_end, drawable, tick_label, ticks};
use super::{Picture, png};

const REGULAR: &[u8] = include_bytes!("../../assets/DejaVuSans.ttf");
const BOLD: &[u8] = include_bytes!("../../assets/DejaVuSans-Bold.ttf");
const FONT: &str = "report";
const BOLD_FONT: &str = "report bold";
const HEIGHT: u32 = 640;
/// Scale of the drawing before it is averaged down. The drawing library does not antialias lines.
const OVERSAMPLING: u32 = 2;
/// The maximum width in pixels.
const WIDEST: u32 = 16_000;

const TEXT: RGBColor = RGBColor(0x1b, 0x1f, 0x27);
const QUIET: RGBColor = RGBColor(0x5b, 0x64, 0x72);
const GRID: RGBColor = RGBColor(0xdf, 0xe3, 0xe9);
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x1f, 0x5f, 0xbf),
    RGBColor(0xb5, 0x48, 0x0a),
    RGBColor(0x2c, 0x7d, 0x3a),
    RGBColor(0x7a, 0x3f, 0xa8),
    RGBColor(0xa8, 0x1f, 0x3d),
    RGBColor(0x5b, 0x64, 0x72),
];

/// A curve of a panel.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// The name in the legend.
    pub name: String,
    /// Whether the curve is dashed.
    pub dashed: bool,
    /// Epochs (increasing) and values. Non-finite values leave gaps.
    pub points: Vec<(f64, f64)>,
}

/// A chart of several curves.
#[derive(Clone, Debug, Default)]
pub struct Panel {
    /// The heading.
    pub title: String,
    /// Whether values are shares, shown as percentages up to 100.
    pub percent: bool,
    /// The curves. Curves without points are omitted.
    pub curves: Vec<Curve>,
}

/// Draws panels side by side: a PNG file of `width` x 640 pixels.
///
/// # Errors
/// If the drawing library fails, or the image is wider than 16,000 pixels.
pub fn panels_png(title: &str, width: u32, panels: &[Panel]) -> Result<Vec<u8>> {
    static FONTS: OnceLock<bool> = OnceLock::new();
    let registered = *FONTS.get_or_init(|| {
        register_font(FONT, FontStyle::Normal, REGULAR).is_ok()
            && register_font(BOLD_FONT, FontStyle::Normal, BOLD).is_ok()
    });
    if !registered {
        return Err(Error::data("curves.png", "the built-in font cannot be read"));
    }
    if width > WIDEST {
        return Err(Error::data("curves.png", format!("{} panels do not fit in an image", panels.len())));
    }
    let mut pixels = vec![255; (width * OVERSAMPLING * HEIGHT * OVERSAMPLING * 3) as usize];
    draw(&mut pixels, width, title, panels)
        .map_err(|e| Error::data("curves.png", format!("it cannot be drawn: {e}")))?;
    let width = width as usize;
    png::encode(&Picture { width, height: HEIGHT as usize, channels: 3, pixels: reduce(&pixels, width) })
}

/// Converts a length from pixels of the final image to pixels of the oversampled one.
fn scaled(length: u32) -> u32 {
    length * OVERSAMPLING
}

/// Averages squares of pixels.
fn reduce(large: &[u8], width: usize) -> Vec<u8> {
    let side = OVERSAMPLING as usize;
    let row_bytes = width * side * 3;
    let mut small = Vec::with_capacity(large.len() / (side * side));
    for rows in large.chunks_exact(row_bytes * side) {
        for column in 0..width {
            for channel in 0..3 {
                let square = (0..side * side)
                    .map(|i| rows[i / side * row_bytes + (column * side + i % side) * 3 + channel]);
                small.push((square.map(usize::from).sum::<usize>() / (side * side)) as u8);
            }
        }
    }
    small
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(pixels: &mut [u8], width: u32, title: &str, panels: &[Panel]) -> Drawn {
    let area = BitMapBackend::with_buffer(pixels, (scaled(width), scaled(HEIGHT))).into_drawing_area();
    area.fill(&WHITE)?;
    let mut area = area.margin(scaled(24), scaled(16), scaled(24), scaled(32));
    if !title.is_empty() {
        let heading = (BOLD_FONT, scaled(32)).into_font().color(&TEXT);
        area = area.titled(&title.chars().take(80).collect::<String>(), heading)?;
    }
    for (part, panel) in area.split_evenly((1, panels.len().max(1))).iter().zip(panels) {
        draw_panel(part, panel)?;
    }
    area.present()?;
    Ok(())
}

fn draw_panel<DB: DrawingBackend>(area: &DrawingArea<DB, Shift>, panel: &Panel) -> Drawn
where
    DB::ErrorType: 'static,
{
    let factor = if panel.percent { 100.0 } else { 1.0 };
    // Non-finite points stay non-finite: they become gaps.
    let place = |&(x, y): &(f64, f64)| match x.is_finite() && y.is_finite() {
        true => (drawable(x), drawable(y * factor)),
        false => (x, f64::NAN),
    };
    let all = || {
        let points = panel.curves.iter().flat_map(|curve| &curve.points).map(place);
        points.filter(|point| point.1.is_finite())
    };
    let highest = all().map(|p| p.1).fold(f64::NEG_INFINITY, f64::max);
    let lowest = all().map(|p| p.1).fold(f64::INFINITY, f64::min);
    let y_ticks = match all().next() {
        None => vec![0.0, 1.0],
        Some(_) if panel.percent => ticks(lowest.min(99.5), highest.max(100.0), 6),
        Some(_) => ticks(lowest.min(0.0), highest.max(lowest.min(0.0) + 1e-9), 6),
    };
    let (low, high) = (y_ticks[0], y_ticks[y_ticks.len() - 1]);
    let first = all().map(|p| p.0).fold(f64::INFINITY, f64::min);
    let last = all().map(|p| p.0).fold(f64::NEG_INFINITY, f64::max);
    let (first, last) = if first <= last { (first, axis_end(first, last)) } else { (0.0, 1.0) };

    let small = |colour: &RGBColor| (FONT, scaled(20)).into_font().color(colour);
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, (FONT, scaled(25)).into_font().color(&TEXT))
        .margin_right(scaled(28))
        .x_label_area_size(scaled(56))
        .y_label_area_size(scaled(76))
        .build_cartesian_2d(first..last, low..high)?;
    let step = y_ticks[1] - y_ticks[0];
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.stroke_width(OVERSAMPLING))
        .axis_style(GRID.stroke_width(OVERSAMPLING))
        .y_labels(y_ticks.len())
        .x_labels(8)
        .x_label_formatter(&|x| if x.fract() == 0.0 { format!("{x}") } else { String::new() })
        .y_label_formatter(&|y| tick_label(*y, step))
        .label_style(small(&QUIET))
        .x_desc("epoch")
        .axis_desc_style(small(&QUIET))
        .set_all_tick_mark_size(scaled(5))
        .draw()?;
    for (number, curve) in panel.curves.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let stroke = colour.stroke_width(scaled(3));
        let values: Vec<(f64, f64)> = curve.points.iter().map(place).collect();
        // Split at gaps. A single point is drawn as a dot; so are the ends of each run.
        let runs: Vec<&[(f64, f64)]> =
            values.split(|point| !point.1.is_finite()).filter(|run| !run.is_empty()).collect();
        for (place, run) in runs.iter().enumerate() {
            let line = run.iter().copied();
            let drawn = if curve.dashed {
                chart.draw_series(DashedLineSeries::new(line, scaled(10), scaled(6), stroke))?
            } else {
                chart.draw_series(LineSeries::new(line, stroke))?
            };
            if place == 0 {
                let dashes =
                    if curve.dashed { [(0, 8), (14, 22), (28, 36)] } else { [(0, 12), (12, 24), (24, 36)] };
                drawn.label(curve.name.as_str()).legend(move |(x, y)| {
                    let dash = |(from, to): (u32, u32)| {
                        PathElement::new([from, to].map(|x| (scaled(x) as i32, 0)), stroke)
                    };
                    EmptyElement::at((x, y)) + dash(dashes[0]) + dash(dashes[1]) + dash(dashes[2])
                });
            }
            let dot = run.last().filter(|_| run.len() == 1 || place + 1 == runs.len());
            chart.draw_series(dot.map(|&point| Circle::new(point, scaled(5), colour.filled())))?;
        }
    }
    let corner =
        if panel.percent { SeriesLabelPosition::LowerRight } else { SeriesLabelPosition::UpperRight };
    chart
        .configure_series_labels()
        .position(corner)
        .legend_area_size(scaled(44))
        .margin(scaled(14))
        .background_style(WHITE.mix(0.85))
        .label_font(small(&TEXT))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_panels_can_be_drawn() -> Result<()> {
        let curve = |values: &[f64], dashed| Curve {
            name: "<any> \u{1f600}".into(),
            dashed,
            points: values.iter().enumerate().map(|(i, &value)| ((i + 1) as f64, value)).collect(),
        };
        let gaps = curve(&[f64::NAN, 1.0, f64::INFINITY, 2.0, 3.0], true);
        let far_away = Curve { points: vec![(1e308, 5e-324), (f64::NAN, 1.0)], ..Curve::default() };
        let panel = |percent, curves| Panel { title: "panel".into(), percent, curves };
        for panels in [
            vec![],
            vec![panel(false, vec![])],
            vec![panel(true, vec![gaps.clone()]), panel(false, vec![gaps; 9])],
            vec![panel(false, vec![curve(&[1e30, -1e30], false)]); 3],
            vec![panel(false, vec![curve(&[1e308, -1e308, 1e308], false), curve(&[-1e16], true)])],
            vec![
                panel(true, vec![curve(&[1e308, -1e308], true)]),
                panel(false, vec![curve(&[-1e16], false)]),
            ],
            vec![panel(false, vec![far_away])],
        ] {
            let file = panels_png("", 800, &panels)?;
            assert!(file.starts_with(b"\x89PNG"), "{panels:?}");
        }
        assert!(panels_png("", WIDEST + 1, &[]).is_err());
        Ok(())
    }

    #[test]
    fn a_gap_is_not_drawn_over() -> Result<()> {
        let picture = |middle: f64| {
            let points = vec![(1.0, 0.2), (2.0, 0.2), (3.0, middle), (4.0, 0.2), (5.0, 0.2)];
            let curves = vec![Curve { name: "a".into(), dashed: false, points }];
            panels_png("", 400, &[Panel { title: "b".into(), percent: false, curves }])
        };
        assert_ne!(picture(0.2)?, picture(f64::NAN)?);
        Ok(())
    }
}
