//! The confusion matrix as a table.

use std::fmt::Write;

use super::html::Text;
use super::{ConfusionMatrix, format};

/// With more classes than this, a table of the most common confusions replaces the matrix.
const MOST_CLASSES: usize = 30;
const MOST_CONFUSIONS: usize = 20;

/// The contents of the section. `None` if the matrix is empty or its counts do not match its classes.
pub(super) fn section(matrix: &ConfusionMatrix) -> Option<String> {
    let size = matrix.classes.len();
    if size == 0 || matrix.counts.keys().any(|&(truth, predicted)| truth >= size || predicted >= size) {
        return None;
    }
    let mut out = String::new();
    let confusions = confusions(matrix);
    match confusions.first() {
        None => out.push_str("<p>Every example was classified correctly.</p>"),
        Some(&(count, truth, predicted)) => {
            let times =
                if count == 1 { "once".to_owned() } else { format!("{} times", format::count(count)) };
            let _ = write!(
                out,
                "<p>The commonest confusion: <strong>{}</strong> taken for <strong>{}</strong>, {times}.</p>",
                Text(&matrix.classes[truth]),
                Text(&matrix.classes[predicted]),
            );
        }
    }
    if size <= MOST_CLASSES {
        whole(&mut out, matrix);
    } else {
        commonest(&mut out, matrix, &confusions);
    }
    Some(out)
}

/// (count, truth, predicted) off the diagonal, most common first.
fn confusions(matrix: &ConfusionMatrix) -> Vec<(u64, usize, usize)> {
    let cells = matrix.counts.iter().map(|(&(truth, predicted), &count)| (count, truth, predicted));
    let mut found: Vec<_> =
        cells.filter(|&(count, truth, predicted)| count > 0 && truth != predicted).collect();
    found.sort_by_key(|&(count, truth, predicted)| (std::cmp::Reverse(count), truth, predicted));
    found
}

fn whole(out: &mut String, matrix: &ConfusionMatrix) {
    let size = matrix.classes.len();
    out.push_str(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Confusion matrix\"><table class=\"confusion\">\
         <caption>Rows: the true class. Columns: what the model said.</caption><thead><tr><td></td>",
    );
    for class in &matrix.classes {
        let _ = write!(out, "<th scope=\"col\">{}</th>", Text(class));
    }
    out.push_str("<th scope=\"col\" class=\"recall\">found</th></tr></thead><tbody>");
    for truth in 0..size {
        let count = |predicted| matrix.counts.get(&(truth, predicted)).copied().unwrap_or(0);
        let row: Vec<u64> = (0..size).map(count).collect();
        let total: u64 = row.iter().sum();
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", Text(&matrix.classes[truth]));
        for (predicted, &count) in row.iter().enumerate() {
            cell(out, count, total, truth == predicted);
        }
        let recall = if total == 0 {
            "\u{2013}".to_owned()
        } else {
            format::percent(row[truth] as f64 / total as f64)
        };
        let _ = write!(out, "<td class=\"recall\">{recall}</td></tr>");
    }
    out.push_str("</tbody></table></div>");
}

/// A count, tinted by its share of the row. The square root keeps single mistakes visible.
fn cell(out: &mut String, count: u64, total: u64, right: bool) {
    if count == 0 {
        out.push_str("<td class=\"zero\">0</td>");
        return;
    }
    let share = (count as f64 / total.max(1) as f64).sqrt();
    let class = if right { "right" } else { "wrong" };
    let strong = if share > 0.6 { " strong" } else { "" };
    let _ = write!(
        out,
        "<td class=\"{class}{strong}\" style=\"--share:{:.0}%\">{}</td>",
        12.0 + 88.0 * share,
        format::count(count)
    );
}

fn commonest(out: &mut String, matrix: &ConfusionMatrix, confusions: &[(u64, usize, usize)]) {
    if confusions.is_empty() {
        return;
    }
    let shown = confusions.len().min(MOST_CONFUSIONS);
    let _ = write!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Commonest confusions\"><table>\
         <caption>The {shown} commonest confusions among {} classes.</caption>\
         <thead><tr><th scope=\"col\">True class</th><th scope=\"col\">Taken for</th>\
         <th scope=\"col\" class=\"figure\">Times</th></tr></thead><tbody>",
        matrix.classes.len()
    );
    for &(count, truth, predicted) in &confusions[..shown] {
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"figure\">{}</td></tr>",
            Text(&matrix.classes[truth]),
            Text(&matrix.classes[predicted]),
            format::count(count)
        );
    }
    out.push_str("</tbody></table></div>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_of_any_size_are_shown() {
        let classes = |n: usize| (0..n).map(|i| format!("<{i}>")).collect::<Vec<_>>();
        let shown = |size, counts: &[((usize, usize), u64)]| {
            section(&ConfusionMatrix { classes: classes(size), counts: counts.iter().copied().collect() })
        };
        let two = shown(2, &[((0, 0), 8), ((0, 1), 2)]).unwrap_or_default();
        assert!(
            two.contains("<strong>&lt;0&gt;</strong> taken for <strong>&lt;1&gt;</strong>, 2 times"),
            "{two}"
        );
        assert!(two.contains("80.0 %") && two.contains("\u{2013}"), "{two}");
        let many = shown(60_000, &[((59_999, 1), 3)]).unwrap_or_default();
        assert!(many.contains("The 1 commonest confusions among 60000 classes"), "{many}");
        assert!(shown(2, &[((2, 0), 1)]).is_none());
        assert!(section(&ConfusionMatrix::default()).is_none());
    }
}
