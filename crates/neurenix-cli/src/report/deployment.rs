//! The page of a quantized network: what quantization changed, and where its nodes run.

use std::fmt::Write;

use neurenix::quantize::{Format, Layer, Report};

use super::{
    Fact, format,
    html::Text,
    page::{facts, foot, head, section},
};

/// The ratio in decibels at which a bar is full.
const FULL: f64 = 60.0;

/// A node, and where it runs.
#[derive(Clone, Debug, Default)]
pub struct PlacementRow {
    /// The node's name.
    pub node: String,
    /// Its operator.
    pub operator: String,
    /// The device.
    pub device: String,
    /// Why it does not run on the wanted device. May be empty.
    pub reason: String,
}

/// The report as one self-contained HTML document, without scripts; it loads nothing.
pub fn render_deployment(title: &str, report: &Report, placement: &[PlacementRow]) -> String {
    let lead = "How the quantized network differs from the float network on the calibration data.";
    let mut out = head("Quantization report", title, lead);
    section(&mut out, "summary", "Summary", &facts(&summary(report)));
    section(&mut out, "layers", "Error by layer", &layers(&report.layers));
    if !report.kept_in_float.is_empty() {
        let rows = report.kept_in_float.iter().map(|(node, reason)| [node.as_str(), reason.as_str()]);
        section(&mut out, "float", "Kept as floats", &table("kept", ["Node", "Reason"], rows));
    }
    if !placement.is_empty() {
        section(&mut out, "placement", "Where each node runs", &places(placement));
    }
    out + &foot()
}

fn summary(report: &Report) -> Vec<Fact> {
    let fact = |name: &str, value: String, note: String| Fact { name: name.to_owned(), value, note };
    let (before, after) = (report.float_bytes, report.quantized_bytes);
    let size = format::bytes(after as u64);
    let mut facts = vec![fact("Size", size, format!("{} as floats", format::bytes(before as u64)))];
    if let Some((before, after)) = report.accuracy {
        facts.push(fact(
            "Accuracy",
            format::percent(after),
            format!("{} as floats", format::percent(before)),
        ));
    }
    for output in &report.outputs {
        let note = format!("largest error {}", format::number(output.max_error));
        facts.push(fact(&format!("Signal to noise, {}", output.value), decibels(output.sqnr_db), note));
    }
    facts.push(fact(
        "Quantized nodes",
        report.layers.len().to_string(),
        format!("{} kept as floats", report.kept_in_float.len()),
    ));
    facts
}

/// A ratio of signal to noise. Minus infinity is noise without a signal.
fn decibels(ratio: f64) -> String {
    match ratio {
        f64::INFINITY => "exact".to_owned(),
        ratio if ratio.is_nan() => "not a number".to_owned(),
        ratio => format!("{ratio:.1} dB"),
    }
}

fn layers(layers: &[Layer]) -> String {
    if layers.is_empty() {
        return "<p class=\"quiet\">Nothing was quantized.</p>".to_owned();
    }
    let mut out = String::from(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Layers\"><table class=\"kernels\"><thead><tr>\
         <th scope=\"col\">Node</th><th scope=\"col\">Operator</th><th scope=\"col\">Activations</th>\
         <th scope=\"col\">Weights</th><th scope=\"col\">Signal to noise</th>\
         <th scope=\"col\" class=\"figure\">Largest error</th></tr></thead><tbody>",
    );
    let format = |format: Option<Format>| format.map_or("\u{2013}".to_owned(), |format| format.to_string());
    for layer in layers {
        let ratio = layer.output.as_ref().map(|output| output.sqnr_db);
        let known = ratio.filter(|ratio| !ratio.is_nan());
        let share = known.map_or(0.0, |ratio| (ratio / FULL).clamp(0.0, 1.0) * 100.0);
        let _ = write!(
            out,
            "<tr><th scope=\"row\"><code>{}</code></th><td>{}</td><td>{}</td><td>{}</td>\
             <td><span class=\"bar\" style=\"--share:{share:.1}%\"></span><span class=\"share\">{}</span></td>\
             <td class=\"figure\">{}</td></tr>",
            Text(&layer.node),
            Text(&layer.operator),
            format(layer.activations),
            format(layer.weights),
            ratio.map_or("\u{2013}".to_owned(), decibels),
            layer.output.as_ref().map_or("\u{2013}".to_owned(), |output| format::number(output.max_error)),
        );
    }
    out + "</tbody></table></div>"
}

/// The number of nodes on each device, and each node's device. The reasons have a column if there are any.
fn places(placement: &[PlacementRow]) -> String {
    let mut devices: Vec<(&str, usize)> = Vec::new();
    for row in placement {
        match devices.iter_mut().find(|(device, _)| *device == row.device) {
            Some((_, count)) => *count += 1,
            None => devices.push((&row.device, 1)),
        }
    }
    let total = placement.len();
    let counts =
        devices.iter().map(|(device, count)| format!("<strong>{}</strong> {count} of {total}", Text(device)));
    let counts = format!("<p>Nodes by device: {}.</p>", counts.collect::<Vec<_>>().join(", "));
    let table = if placement.iter().all(|row| row.reason.is_empty()) {
        let rows =
            placement.iter().map(|row| [row.node.as_str(), row.operator.as_str(), row.device.as_str()]);
        table("places", ["Node", "Operator", "Device"], rows)
    } else {
        let rows = placement
            .iter()
            .map(|row| [row.node.as_str(), row.operator.as_str(), row.device.as_str(), row.reason.as_str()]);
        table("places", ["Node", "Operator", "Device", "Reason"], rows)
    };
    counts + &table
}

/// A table of texts.
fn table<'a, const COLUMNS: usize>(
    label: &str,
    heads: [&str; COLUMNS],
    rows: impl Iterator<Item = [&'a str; COLUMNS]>,
) -> String {
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{label}\"><table class=\"settings\"><thead><tr>"
    );
    for head in heads {
        let _ = write!(out, "<th scope=\"col\">{head}</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        out.push_str("<tr>");
        for cell in row {
            let _ = write!(out, "<td>{}</td>", Text(cell));
        }
        out.push_str("</tr>");
    }
    out + "</tbody></table></div>"
}

#[cfg(test)]
mod tests {
    use neurenix::quantize::Difference;

    use super::*;

    #[test]
    fn only_equal_values_are_exact() {
        let named = [
            (f64::INFINITY, "exact"),
            (f64::NEG_INFINITY, "-inf dB"),
            (f64::NAN, "not a number"),
            (40.0, "40.0 dB"),
        ];
        for (ratio, text) in named {
            assert_eq!(decibels(ratio), text);
        }
        let json = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 40.0].map(|sqnr_db| {
            let output = Difference { value: "y".to_owned(), sqnr_db, max_error: sqnr_db };
            let json = serde_json::to_value(&output).unwrap();
            (json["sqnr_db"].to_string(), json["max_error"].to_string())
        });
        let expected =
            [("null", "\"inf\""), ("\"-inf\"", "\"-inf\""), ("\"NaN\"", "\"NaN\""), ("40.0", "40.0")];
        assert_eq!(json, expected.map(|(ratio, error)| (ratio.to_owned(), error.to_owned())));
    }

    #[test]
    fn nodes_are_counted_by_device() {
        let row = |device: &str, reason: &str| PlacementRow {
            device: device.to_owned(),
            reason: reason.to_owned(),
            ..PlacementRow::default()
        };
        let whole = places(&[row("npu:0", ""), row("npu:0", "")]);
        assert!(whole.contains("<strong>npu:0</strong> 2 of 2.") && !whole.contains("Reason"), "{whole}");
        let split = places(&[row("npu:0", ""), row("cpu", "no Mod"), row("npu:0", "")]);
        assert!(split.contains("<strong>npu:0</strong> 2 of 3, <strong>cpu</strong> 1 of 3."), "{split}");
        assert!(
            split.contains("<th scope=\"col\">Reason</th>") && split.contains("<td>no Mod</td>"),
            "{split}"
        );
    }

    #[test]
    fn names_cannot_become_markup() {
        let evil = "<script>alert(1)</script>".to_owned();
        let report = Report { kept_in_float: vec![(evil.clone(), evil.clone())], ..Report::default() };
        let row = PlacementRow {
            node: evil.clone(),
            operator: evil.clone(),
            device: evil.clone(),
            reason: evil.clone(),
        };
        let page = render_deployment(&evil, &report, &[row]);
        assert!(!page.contains("<script"), "{page}");
        for id in ["summary", "layers", "float", "placement"] {
            assert!(page.contains(&format!("<section id=\"{id}\"")), "{id}");
        }
    }
}
