//! Formats shapes and quantities as text.

/// Formats a shape as NumPy does: `(2, 3)`, `(5,)`, `()`.
pub fn show_shape(shape: &[usize]) -> String {
    match shape {
        [one] => format!("({one},)"),
        many => format!("({})", many.iter().map(|d| d.to_string()).collect::<Vec<_>>().join(", ")),
    }
}

/// Formats a count with its noun, whose plural ends in "s": `1 element`, `2 elements`.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Formats a number of bytes: `3.2 MB`.
pub fn show_bytes(bytes: usize) -> String {
    scaled(bytes as f64, &[" B", " kB", " MB", " GB", " TB"])
}

/// Formats a count: `3.2 M`.
pub fn show_count(count: u64) -> String {
    scaled(count as f64, &["", " k", " M", " G", " T"])
}

fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 100.0 { 0 } else { 1 };
    format!("{value:.digits$}{}", units[unit])
}
