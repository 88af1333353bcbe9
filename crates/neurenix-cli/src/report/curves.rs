//! The learning curves as a PNG picture.

use std::sync::OnceLock;

use neurenix::{Error, Result};
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use super::charts::{tick_label, ticks};
use neurenix::train::EpochRecord;

use super::{Picture, png};

const REGULAR: &[u8] = include_bytes!("../../assets/DejaVuSans.ttf");
const BOLD: &[u8] = include_bytes!("../../assets/DejaVuSans-Bold.ttf");
const FONT: &str = "report";
const BOLD_FONT: &str = "report bold";
const WIDTH: u32 = 1600;
const HEIGHT: u32 = 640;
/// Drawn this many times as large, then averaged: the drawing library's lines have hard edges.
const OVERSAMPLING: u32 = 2;

const TEXT: RGBColor = RGBColor(0x1b, 0x1f, 0x27);
const QUIET: RGBColor = RGBColor(0x5b, 0x64, 0x72);
const GRID: RGBColor = RGBColor(0xdf, 0xe3, 0xe9);
const TRAINING: RGBColor = RGBColor(0x1f, 0x5f, 0xbf);
const VALIDATION: RGBColor = RGBColor(0xb5, 0x48, 0x0a);

type Points = Vec<(f64, f64)>;

/// Draws loss and, where it was measured, accuracy by epoch: a PNG file of 1600 x 640 pixels.
///
/// # Errors
/// If the drawing library fails.
pub fn curves_png(title: &str, epochs: &[EpochRecord]) -> Result<Vec<u8>> {
    static FONTS: OnceLock<bool> = OnceLock::new();
    let registered = *FONTS.get_or_init(|| {
        register_font(FONT, FontStyle::Normal, REGULAR).is_ok()
            && register_font(BOLD_FONT, FontStyle::Normal, BOLD).is_ok()
    });
    if !registered {
        return Err(Error::data("curves.png", "the program's own font cannot be read"));
    }
    let mut pixels = vec![255; (WIDTH * OVERSAMPLING * HEIGHT * OVERSAMPLING * 3) as usize];
    draw(&mut pixels, title, epochs)
        .map_err(|e| Error::data("curves.png", format!("it cannot be drawn: {e}")))?;
    png::encode(&Picture {
        width: WIDTH as usize,
        height: HEIGHT as usize,
        channels: 3,
        pixels: reduce(&pixels),
    })
}

/// A length of the finished picture in pixels of the large one.
fn scaled(length: u32) -> u32 {
    length * OVERSAMPLING
}

/// Averages squares of pixels.
fn reduce(large: &[u8]) -> Vec<u8> {
    let (width, side) = (WIDTH as usize, OVERSAMPLING as usize);
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

fn draw(pixels: &mut [u8], title: &str, epochs: &[EpochRecord]) -> Result<(), Box<dyn std::error::Error>> {
    let area = BitMapBackend::with_buffer(pixels, (scaled(WIDTH), scaled(HEIGHT))).into_drawing_area();
    area.fill(&WHITE)?;
    let heading = (BOLD_FONT, scaled(32)).into_font().color(&TEXT);
    let shown: String = title.chars().take(80).collect();
    let area = area.margin(scaled(24), scaled(16), scaled(24), scaled(32)).titled(&shown, heading)?;
    let points = |value: &dyn Fn(&EpochRecord) -> Option<f64>| -> Points {
        let all = epochs.iter().filter_map(|e| Some((e.epoch as f64, value(e)?)));
        all.filter(|(_, y)| y.is_finite()).collect()
    };
    let loss = (points(&|e| Some(e.train_loss)), points(&|e| e.validation_loss));
    let accuracy = (points(&|e| e.train_accuracy), points(&|e| e.validation_accuracy));
    if accuracy.0.is_empty() && accuracy.1.is_empty() {
        panel(&area, "Loss", 1.0, &loss)?;
    } else {
        let (left, right) = area.split_horizontally(area.dim_in_pixel().0 / 2);
        panel(&left, "Loss", 1.0, &loss)?;
        panel(&right, "Accuracy, %", 100.0, &accuracy)?;
    }
    area.present()?;
    Ok(())
}

/// One chart: training as a line, validation dashed. `factor` multiplies the values; a factor of 100 is a percentage.
fn panel<DB: DrawingBackend>(
    area: &DrawingArea<DB, plotters::coord::Shift>,
    name: &str,
    factor: f64,
    (training, validation): &(Points, Points),
) -> Result<(), Box<dyn std::error::Error>>
where
    DB::ErrorType: 'static,
{
    let all = || training.iter().chain(validation);
    let highest = all().map(|p| p.1 * factor).fold(f64::NEG_INFINITY, f64::max);
    let lowest = all().map(|p| p.1 * factor).fold(f64::INFINITY, f64::min);
    let y_ticks = match all().next() {
        None => vec![0.0, 1.0],
        Some(_) if factor == 100.0 => ticks(lowest.min(99.5), highest.max(100.0), 6),
        Some(_) => ticks(lowest.min(0.0), highest.max(lowest.min(0.0) + 1e-9), 6),
    };
    let (low, high) = (y_ticks[0], y_ticks[y_ticks.len() - 1]);
    let first = all().map(|p| p.0).fold(f64::INFINITY, f64::min);
    let last = all().map(|p| p.0).fold(f64::NEG_INFINITY, f64::max);
    let (first, last) = if first <= last { (first, last.max(first + 1.0)) } else { (0.0, 1.0) };

    let small = |colour: &RGBColor| (FONT, scaled(20)).into_font().color(colour);
    let mut chart = ChartBuilder::on(area)
        .caption(name, (FONT, scaled(25)).into_font().color(&TEXT))
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
    let values = |points: &Points| points.iter().map(|&(x, y)| (x, y * factor)).collect::<Points>();
    if !training.is_empty() {
        let end = values(training).pop();
        chart
            .draw_series(LineSeries::new(values(training), TRAINING.stroke_width(scaled(3))))?
            .label("training")
            .legend(|(x, y)| {
                PathElement::new([(x, y), (x + scaled(36) as i32, y)], TRAINING.stroke_width(scaled(3)))
            });
        chart.draw_series(end.map(|point| Circle::new(point, scaled(5), TRAINING.filled())))?;
    }
    if !validation.is_empty() {
        let end = values(validation).pop();
        let dashes = DashedLineSeries::new(
            values(validation),
            scaled(10),
            scaled(6),
            VALIDATION.stroke_width(scaled(3)),
        );
        chart.draw_series(dashes)?.label("validation").legend(|(x, y)| {
            let dash = |from: u32| {
                let ends = [from, from + 8].map(|x| (scaled(x) as i32, 0));
                PathElement::new(ends, VALIDATION.stroke_width(scaled(3)))
            };
            EmptyElement::at((x, y)) + dash(0) + dash(14) + dash(28)
        });
        chart.draw_series(end.map(|point| Circle::new(point, scaled(5), VALIDATION.filled())))?;
    }
    let place =
        if factor == 100.0 { SeriesLabelPosition::LowerRight } else { SeriesLabelPosition::UpperRight };
    chart
        .configure_series_labels()
        .position(place)
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
    fn any_epochs_can_be_drawn() -> Result<()> {
        let epoch = |epoch, train_loss, validation_loss| EpochRecord {
            epoch,
            train_loss,
            validation_loss,
            ..EpochRecord::default()
        };
        let mut with_accuracy = epoch(1, 0.0, Some(0.0));
        with_accuracy.train_accuracy = Some(1.0);
        for epochs in [
            vec![],
            vec![epoch(1, 2.0, None)],
            vec![epoch(1, f64::NAN, Some(f64::INFINITY))],
            vec![epoch(1, 1e30, Some(-1e30)), epoch(2, -5.0, Some(1e-30))],
            vec![with_accuracy],
        ] {
            let file = curves_png("<any> \u{1f600} title", &epochs)?;
            assert!(file.starts_with(b"\x89PNG"), "{epochs:?}");
        }
        Ok(())
    }
}
