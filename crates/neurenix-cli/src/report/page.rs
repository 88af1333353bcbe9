//! The page. Its sections are in the order in which readers need them.

use std::fmt::Write;

use super::charts::{Series, Unit, line_chart};
use super::html::{Text, base64};
use neurenix::train::EpochRecord;

use super::{Fact, KernelRow, Mistake, Report, confusion, format, png, profile};

/// Kernels below this share of the time are merged into one row.
const LEAST_SHARE: f64 = 0.0005;

const STYLE: &str = include_str!("style.css");

/// The report as one self-contained HTML document. Styles, charts and pictures are inline, there are no scripts, and
/// the security policy forbids loading anything.
pub fn render_html(report: &Report) -> String {
    let mut out = head("Training report", &report.title, &report.description);
    section(&mut out, "summary", "Summary", &facts(&report.summary));
    section(&mut out, "curves", "Learning curves", &curves(&report.epochs));
    if let Some(matrix) = report.confusion.as_ref().and_then(confusion::section) {
        // If the matrix is small, the mistakes fit beside it.
        let fits = |classes: &[String]| classes.len() <= 10 && classes.iter().all(|name| name.len() <= 3);
        let small = report.confusion.as_ref().is_some_and(|matrix| fits(&matrix.classes));
        out.push_str(if small { "<div class=\"pair\">" } else { "<div>" });
        section(&mut out, "confusion", "Confusion matrix", &matrix);
        section(&mut out, "mistakes", "Examples of mistakes", &mistakes(report));
        out.push_str("</div>");
    }
    section(&mut out, "placement", "Where each operation ran", &placement(report));
    if let Some(noted) = &report.profile {
        section(&mut out, "profile", "Profile", &profile::section(noted));
    }
    section(&mut out, "configuration", "Configuration", &configuration(&report.configuration));
    out + &foot()
}

/// The beginning of a page, up to its sections.
pub(super) fn head(kind: &str, title: &str, lead: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>{title} \u{2013} {}</title><style>{STYLE}</style></head><body>\
         <header><p class=\"kind\">{kind}</p><h1>{title}</h1><p class=\"lead\">{}</p></header><main>",
        kind.to_lowercase(),
        Text(lead),
        title = Text(title),
    )
}

/// The end of a page.
pub(super) fn foot() -> String {
    format!(
        "</main><footer><p>Written by Neurenix {}. This page is one file and loads nothing.</p></footer></body></html>\n",
        env!("CARGO_PKG_VERSION")
    )
}

pub(super) fn section(out: &mut String, id: &str, heading: &str, contents: &str) {
    let _ = write!(
        out,
        "<section id=\"{id}\" aria-labelledby=\"{id}-heading\"><h2 id=\"{id}-heading\">{heading}</h2>{contents}</section>"
    );
}

/// Figures with their names.
pub(super) fn facts(facts: &[Fact]) -> String {
    let mut out = String::from("<dl class=\"facts\">");
    for fact in facts {
        let _ = write!(out, "<div><dt>{}</dt><dd>{}", Text(&fact.name), Text(&fact.value));
        if !fact.note.is_empty() {
            let _ = write!(out, "<small>{}</small>", Text(&fact.note));
        }
        out.push_str("</dd></div>");
    }
    out + "</dl>"
}

fn curves(epochs: &[EpochRecord]) -> String {
    if epochs.is_empty() {
        return "<p class=\"quiet\">No epoch was finished.</p>".to_owned();
    }
    let lines = |train: &dyn Fn(&EpochRecord) -> Option<f64>,
                 validation: &dyn Fn(&EpochRecord) -> Option<f64>| {
        let points = |value: &dyn Fn(&EpochRecord) -> Option<f64>| {
            epochs.iter().filter_map(|e| Some((e.epoch as f64, value(e)?))).collect::<Vec<_>>()
        };
        let mut lines = vec![Series { name: "training", class: "train", points: points(train) }];
        lines.push(Series { name: "validation", class: "validation", points: points(validation) });
        lines.retain(|line| !line.points.is_empty());
        lines
    };
    let loss = lines(&|e| Some(e.train_loss), &|e| e.validation_loss);
    let accuracy = lines(&|e| e.train_accuracy, &|e| e.validation_accuracy);
    let mut out = String::from("<div class=\"charts\">");
    out.push_str(&line_chart("Loss", Unit::Number, &loss));
    if !accuracy.is_empty() {
        out.push_str(&line_chart("Accuracy", Unit::Share, &accuracy));
    }
    out.push_str("</div>");
    out.push_str(&epoch_table(epochs));
    out
}

fn epoch_table(epochs: &[EpochRecord]) -> String {
    let mut out = String::from(
        "<details><summary>The figures of every epoch</summary>\
         <div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Figures of every epoch\"><table><thead><tr>",
    );
    let optional = |value: Option<f64>, show: fn(f64) -> String| value.map_or("\u{2013}".to_owned(), show);
    for name in [
        "Epoch",
        "Training loss",
        "Training accuracy",
        "Validation loss",
        "Validation accuracy",
        "Learning rate",
        "Time",
    ] {
        let _ = write!(out, "<th scope=\"col\" class=\"figure\">{name}</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for e in epochs {
        let _ = write!(out, "<tr><th scope=\"row\" class=\"figure\">{}</th>", e.epoch);
        for text in [
            format::number(e.train_loss),
            optional(e.train_accuracy, format::percent),
            optional(e.validation_loss, format::number),
            optional(e.validation_accuracy, format::percent),
            format::number(e.learning_rate),
            format::seconds(e.seconds),
        ] {
            let _ = write!(out, "<td class=\"figure\">{text}</td>");
        }
        out.push_str("</tr>");
    }
    out + "</tbody></table></div></details>"
}

fn mistakes(report: &Report) -> String {
    let mut out = String::new();
    if let Some((wrong, of)) = report.mistakes_of {
        let (wrong_text, of) = (format::count(wrong as u64), format::count(of as u64));
        let shown = match report.mistakes.len() {
            _ if wrong == 0 => "",
            shown if shown == wrong => " All of them:",
            _ => " Some of them:",
        };
        let _ = write!(out, "<p>{wrong_text} of {of} examples were classified wrongly.{shown}</p>");
    }
    if report.mistakes.is_empty() {
        return if out.is_empty() { "<p class=\"quiet\">None were recorded.</p>".to_owned() } else { out };
    }
    out.push_str("<ul class=\"mistakes\">");
    for mistake in &report.mistakes {
        out.push_str(&mistake_item(mistake));
    }
    out + "</ul>"
}

fn mistake_item(mistake: &Mistake) -> String {
    let (truth, predicted) = (Text(&mistake.truth), Text(&mistake.predicted));
    let picture = match mistake.picture.as_ref().map(png::encode) {
        Some(Ok(file)) => format!(
            "<img alt=\"Example {}: a {truth} taken for a {predicted}\" src=\"data:image/png;base64,{}\">",
            mistake.index,
            base64(&file)
        ),
        Some(Err(error)) => format!("<p class=\"quiet\">{}</p>", Text(&error.to_string())),
        None => String::new(),
    };
    let confidence = mistake
        .confidence
        .filter(|share| share.is_finite())
        .map_or(String::new(), |share| format!("<small>{:.0} % sure</small>", share * 100.0));
    let place = match mistake.line {
        Some(line) => format!("line {line}"),
        None => format!("no. {}", mistake.index),
    };
    let features: String = mistake
        .features
        .iter()
        .map(|(name, value)| format!("<small>{} {}</small>", Text(name), Text(value)))
        .collect();
    format!(
        "<li>{picture}<p><span class=\"said\">said <b>{predicted}</b></span><span>is <b>{truth}</b></span>\
         {confidence}<small>{place}</small>{features}</p></li>"
    )
}

fn placement(report: &Report) -> String {
    if report.kernels.is_empty() {
        return "<p class=\"quiet\">No kernel was recorded.</p>".to_owned();
    }
    let mut devices: Vec<(&str, f64)> = Vec::new();
    for kernel in &report.kernels {
        match devices.iter_mut().find(|(name, _)| *name == kernel.device) {
            Some((_, seconds)) => *seconds += kernel.seconds,
            None => devices.push((&kernel.device, kernel.seconds)),
        }
    }
    let total: f64 = report.kernels.iter().map(|k| k.seconds).sum();
    devices.sort_by(|a, b| b.1.total_cmp(&a.1));
    let shares = devices.iter().map(|(name, seconds)| {
        let share = if total > 0.0 { format::percent(seconds / total) } else { "\u{2013}".to_owned() };
        format!("<strong>{}</strong> {share}", Text(name))
    });
    let shares = shares.collect::<Vec<_>>().join(", ");
    let mut out = match report.kernels_submitted {
        true => format!(
            "<p>Host time to submit kernels, by device: {shares}. This is not the accelerator's compute time: \
             <code>--profile</code> measures that. {}</p>",
            Text(&report.kernels_note)
        ),
        false => format!("<p>Kernel time by device: {shares}. {}</p>", Text(&report.kernels_note)),
    };
    let time = if report.kernels_submitted { "Time to submit" } else { "Time" };
    out.push_str(&kernel_table(&report.kernels, time, total));
    out
}

fn kernel_table(kernels: &[KernelRow], time: &str, total: f64) -> String {
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Kernels\"><table class=\"kernels\"><thead><tr>\
         <th scope=\"col\">Kernel</th><th scope=\"col\">Device</th><th scope=\"col\" class=\"figure\">{time}</th>\
         <th scope=\"col\">Share of time</th><th scope=\"col\" class=\"figure\">Runs</th>\
         <th scope=\"col\" class=\"figure\">Read and written</th></tr></thead><tbody>",
    );
    let mut sorted: Vec<&KernelRow> = kernels.iter().collect();
    sorted.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let share_of = |seconds: f64| if total > 0.0 && seconds.is_finite() { seconds / total } else { 0.0 };
    // Kernels that take almost no time share one row.
    let shown = sorted.iter().take_while(|kernel| share_of(kernel.seconds) >= LEAST_SHARE).count();
    let shown = if sorted.len() - shown > 1 { shown } else { sorted.len() };
    let mut row = |name: &str, device: &str, seconds: f64, count: u64, bytes: u64| {
        let share = share_of(seconds);
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{name}</th><td>{}</td><td class=\"figure\">{}</td>\
             <td><span class=\"bar\" style=\"--share:{:.1}%\"></span><span class=\"share\">{}</span></td>\
             <td class=\"figure\">{}</td><td class=\"figure\">{}</td></tr>",
            Text(device),
            format::seconds(seconds),
            share * 100.0,
            format::percent(share),
            format::count(count),
            format::bytes(bytes),
        );
    };
    for kernel in &sorted[..shown] {
        let name = format!("<code>{}</code>", Text(&kernel.name));
        row(&name, &kernel.device, kernel.seconds, kernel.count, kernel.bytes);
    }
    let rest = &sorted[shown..];
    if !rest.is_empty() {
        let mut devices: Vec<&str> = rest.iter().map(|kernel| kernel.device.as_str()).collect();
        devices.sort_unstable();
        devices.dedup();
        row(
            &format!("{} more kernels with negligible time", rest.len()),
            &devices.join(", "),
            rest.iter().map(|kernel| kernel.seconds).sum(),
            rest.iter().map(|kernel| kernel.count).sum(),
            rest.iter().fold(0, |sum: u64, kernel| sum.saturating_add(kernel.bytes)),
        );
    }
    out + "</tbody></table></div>"
}

fn configuration(settings: &[(String, String)]) -> String {
    if settings.is_empty() {
        return "<p class=\"quiet\">No settings were recorded.</p>".to_owned();
    }
    let mut out = String::from(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Configuration\"><table class=\"settings\"><thead><tr>\
         <th scope=\"col\">Setting</th><th scope=\"col\">Value</th></tr></thead><tbody>",
    );
    for (name, value) in settings {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th><td>{}</td></tr>", Text(name), Text(value));
    }
    out + "</tbody></table></div>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_report_is_a_whole_page() {
        let page = render_html(&Report::default());
        for id in ["summary", "curves", "placement", "configuration"] {
            assert!(page.contains(&format!("<section id=\"{id}\"")), "{id}");
        }
        assert!(page.ends_with("</html>\n"));
    }

    #[test]
    fn times_to_submit_are_called_so() {
        let kernels = vec![KernelRow { seconds: 1.0, device: "cuda:0".to_owned(), ..Default::default() }];
        for kernels_submitted in [false, true] {
            let page =
                render_html(&Report { kernels: kernels.clone(), kernels_submitted, ..Report::default() });
            assert_eq!(page.contains("Time to submit</th>"), kernels_submitted);
            assert_eq!(page.contains("Kernel time by device: <strong>cuda:0"), !kernels_submitted);
        }
    }

    #[test]
    fn nothing_is_loaded_and_text_is_escaped() {
        let evil = "<script>alert(1)</script>".to_owned();
        let report = Report {
            title: evil.clone(),
            description: evil.clone(),
            summary: vec![Fact { name: evil.clone(), value: evil.clone(), note: evil.clone() }],
            confusion: Some(super::super::ConfusionMatrix {
                classes: vec![evil.clone()],
                counts: [((0, 0), 1)].into(),
            }),
            mistakes: vec![Mistake {
                truth: evil.clone(),
                predicted: evil.clone(),
                features: vec![(evil.clone(), evil.clone())],
                ..Mistake::default()
            }],
            kernels: vec![KernelRow { name: evil.clone(), device: evil.clone(), ..Default::default() }],
            kernels_note: evil.clone(),
            configuration: vec![(evil.clone(), evil)],
            ..Report::default()
        };
        let page = render_html(&report);
        assert!(!page.contains("<script"), "{page}");
        assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("url("), "{page}");
    }
}
