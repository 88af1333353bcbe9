//! Line charts as inline SVG. Colours come from the page's style sheet and follow its light and dark themes.

use std::fmt::Write;

use super::format;
use super::html::Text;

/// A line. Points are in the order of x; non-finite values leave a gap.
pub(super) struct Series<'a> {
    /// Its name in the legend.
    pub(super) name: &'a str,
    /// Its class in the style sheet: "train" or "validation".
    pub(super) class: &'static str,
    /// (epoch, value).
    pub(super) points: Vec<(f64, f64)>,
}

/// What the vertical axis measures.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Unit {
    /// A plain number from 0 up.
    Number,
    /// A share from 0 to 1, written as a percentage; the axis starts where the lines need it.
    Share,
}

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 40.0;

/// Values of larger magnitude are clamped to this: their differences would overflow.
const FARTHEST: f64 = 1e300;

/// The value clamped to the drawable range.
pub(super) fn drawable(value: f64) -> f64 {
    value.clamp(-FARTHEST, FARTHEST)
}

/// The end of an axis that begins at `first`: `last`, or farther away if the two would (nearly) coincide.
pub(super) fn axis_end(first: f64, last: f64) -> f64 {
    last.max(first + 1.0).max(first + first.abs() * 1e-6)
}

/// The ticks of an axis that shows `low..high`: about `wanted` steps of 1, 2 or 5 times a power of 10.
pub(super) fn ticks(low: f64, high: f64, wanted: usize) -> Vec<f64> {
    let span = if high > low { high - low } else { 1.0 };
    // Steps much smaller than the values would be lost to rounding when added to them.
    let span = span.max(low.abs().max(high.abs()) * 1e-6);
    let rough = span / wanted.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|&s| s >= rough * 0.999).unwrap_or(power);
    let first = (low / step + 1e-9).floor();
    let last = (high / step - 1e-9).ceil().max(first + 1.0);
    (0..=(last - first) as usize).map(|i| (first + i as f64) * step).collect()
}

/// Draws a chart with a legend, or a note if there is nothing to draw.
pub(super) fn line_chart(title: &str, unit: Unit, series: &[Series<'_>]) -> String {
    let finite = |s: &Series<'_>| -> Vec<(f64, f64)> {
        let finite = s.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
        finite.map(|&(x, y)| (drawable(x), drawable(y))).collect()
    };
    let all: Vec<(f64, f64)> = series.iter().flat_map(finite).collect();
    let mut out = format!("<figure class=\"chart\"><figcaption>{}</figcaption>", Text(title));
    let (Some(first), Some(last)) =
        (all.iter().map(|p| p.0).min_by(f64::total_cmp), all.iter().map(|p| p.0).max_by(f64::total_cmp))
    else {
        out.push_str("<p class=\"quiet\">No epoch has a finite value to draw.</p></figure>");
        return out;
    };
    let highest = all.iter().map(|p| p.1).fold(f64::NEG_INFINITY, f64::max);
    let lowest = all.iter().map(|p| p.1).fold(f64::INFINITY, f64::min);
    let y_ticks = match unit {
        Unit::Number => ticks(lowest.min(0.0), highest.max(lowest.min(0.0) + 1e-9), 5),
        Unit::Share => ticks(lowest.min(0.995), highest.max(1.0), 5),
    };
    let (y_low, y_high) = (y_ticks[0], y_ticks[y_ticks.len() - 1]);
    let span = if last > first { last - first } else { 1.0 };
    let x_of = |x: f64| LEFT + (drawable(x) - first) / span * (WIDTH - LEFT - RIGHT);
    let y_of = |y: f64| HEIGHT - BOTTOM - (drawable(y) - y_low) / (y_high - y_low) * (HEIGHT - BOTTOM - TOP);

    let _ = write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        Text(&description(title, unit, series))
    );
    for &tick in &y_ticks {
        let y = y_of(tick);
        let label = match unit {
            Unit::Number => tick_label(tick, y_ticks[1] - y_ticks[0]),
            Unit::Share => format!("{}%", tick_label(tick * 100.0, (y_ticks[1] - y_ticks[0]) * 100.0)),
        };
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.0
        );
    }
    let inside = |tick: &f64| *tick >= first && *tick <= last && tick.fract() == 0.0;
    let mut x_ticks: Vec<f64> = ticks(first, last, 6).into_iter().filter(inside).collect();
    if x_ticks.first() != Some(&first) {
        // Label the first epoch if the next label leaves room for it.
        x_ticks.retain(|&tick| x_of(tick) - x_of(first) > 24.0);
        x_ticks.insert(0, first);
    }
    for tick in x_ticks {
        let (x, y) = (x_of(tick), HEIGHT - BOTTOM + 17.0);
        let _ = write!(out, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{tick}</text>");
    }
    let _ = write!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" class=\"axis\">epoch</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 5.0
    );
    for line in series {
        draw_line(&mut out, line, &x_of, &y_of);
    }
    out.push_str("</svg><ul class=\"legend\">");
    for line in series {
        let _ = write!(
            out,
            "<li><svg viewBox=\"0 0 28 8\" aria-hidden=\"true\"><path class=\"line {}\" d=\"M1 4H27\"/></svg>{}</li>",
            line.class,
            Text(line.name)
        );
    }
    out.push_str("</ul></figure>");
    out
}

fn draw_line(out: &mut String, line: &Series<'_>, x_of: &dyn Fn(f64) -> f64, y_of: &dyn Fn(f64) -> f64) {
    let mut path = String::new();
    let mut drawing = false;
    for &(x, y) in &line.points {
        if !y.is_finite() {
            drawing = false;
            continue;
        }
        let command = if drawing { 'L' } else { 'M' };
        let _ = write!(path, "{command}{:.1} {:.1}", x_of(x), y_of(y));
        drawing = true;
    }
    let _ = write!(out, "<path class=\"line {}\" d=\"{path}\"/>", line.class);
    // A dot on the last point marks where a run ended and makes a single epoch visible.
    if let Some(&(x, y)) = line.points.iter().rev().find(|(_, y)| y.is_finite()) {
        let _ = write!(
            out,
            "<circle class=\"dot {}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"/>",
            line.class,
            x_of(x),
            y_of(y)
        );
    }
}

/// A text description of the chart for screen readers.
fn description(title: &str, unit: Unit, series: &[Series<'_>]) -> String {
    let show = |value: f64| match unit {
        Unit::Number => format::number(value),
        Unit::Share => format::percent(value),
    };
    let mut text = format!("{title} by epoch.");
    for line in series {
        if let (Some(first), Some(last)) = (line.points.first(), line.points.last()) {
            let _ = write!(
                text,
                " {}: {} in epoch {}, {} in epoch {}.",
                line.name,
                show(first.1),
                first.0,
                show(last.1),
                last.0
            );
        }
    }
    text
}

/// A tick label with as many decimals as its step needs.
pub(super) fn tick_label(value: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).clamp(0.0, 8.0) as usize;
    // Adding 0 turns -0 into 0.
    if value.abs() >= 1e6 { format!("{value:.0e}") } else { format!("{:.decimals$}", value + 0.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_enclose_the_range() {
        assert_eq!(ticks(0.0, 2.3, 5), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]);
        assert_eq!(ticks(1.0, 20.0, 6).last(), Some(&20.0));
        let far = (-1e16, -1e16 + 1e-9);
        for (low, high) in [(0.0, 1e-9), (0.93, 1.0), (-5.0, 1e12), (3.0, 3.0), far, (-FARTHEST, FARTHEST)] {
            let ticks = ticks(low, high, 5);
            let rounding = (ticks[1] - ticks[0]) * 1e-8;
            let enclosed = ticks[0] <= low + rounding && ticks[ticks.len() - 1] >= high - rounding;
            assert!(enclosed, "{low} {high} {ticks:?}");
            assert!((2..=12).contains(&ticks.len()), "{ticks:?}");
        }
    }

    #[test]
    fn gaps_and_nothing_at_all_are_drawn() {
        let line = |points: &[(f64, f64)]| Series { name: "a<b", class: "train", points: points.to_vec() };
        let svg = line_chart("Loss", Unit::Number, &[line(&[(1.0, 2.0), (2.0, f64::NAN), (3.0, 1.0)])]);
        assert!(svg.contains("a&lt;b") && !svg.contains("NaN"), "{svg}");
        assert!(svg.matches("d=\"M").count() == 2 && svg.contains("circle"), "{svg}");
        assert!(line_chart("Loss", Unit::Number, &[line(&[(1.0, f64::NAN)])]).contains("No epoch"));
        assert!(line_chart("Loss", Unit::Share, &[line(&[(1.0, 1.0)])]).contains("circle"));
    }

    #[test]
    fn values_of_any_size_have_a_place() {
        for values in [&[1e308, -1e308][..], &[-1e16], &[f64::MAX, f64::MIN, 0.0], &[5e-324], &[1e16, 1e16]] {
            let points = (1..).map(f64::from).zip(values.iter().copied()).collect();
            let series = [Series { name: "a", class: "train", points }];
            for unit in [Unit::Number, Unit::Share] {
                let svg = line_chart("Loss", unit, &series);
                assert!(svg.contains("circle") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }
}
