//! Shapes and quantities in words.

/// `(2, 3)`, `(5,)`, `()`: as NumPy prints shapes.
pub fn show_shape(shape: &[usize]) -> String {
    match shape {
        [one] => format!("({one},)"),
        many => format!("({})", many.iter().map(|d| d.to_string()).collect::<Vec<_>>().join(", ")),
    }
}

/// A count with its noun, whose plural ends in "s": `1 element`, `2 elements`.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Bytes in words: `3.2 MB`.
pub fn show_bytes(bytes: usize) -> String {
    scaled(bytes as f64, &[" B", " kB", " MB", " GB", " TB"])
}

/// A count in words: `3.2 M`.
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
