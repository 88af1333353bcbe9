//! Numbers in human-readable form.

/// An integer with thin spaces between thousands: 1 234 567.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() * 2);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push('\u{2009}');
        }
        out.push(digit);
    }
    out
}

/// A duration in a suitable unit: 12.3 µs, 4.56 ms, 7.89 s, 12 min 5 s.
pub(crate) fn seconds(value: f64) -> String {
    match value {
        v if !v.is_finite() || v < 0.0 => "\u{2013}".to_owned(),
        0.0 => "0 s".to_owned(),
        v if v < 1e-3 => format!("{} µs", digits(v * 1e6)),
        v if v < 1.0 => format!("{} ms", digits(v * 1e3)),
        v if v < 99.95 => format!("{} s", digits(v)),
        v => {
            let whole = v.round() as u64;
            match whole / 3600 {
                0 => format!("{} min {} s", whole / 60, whole % 60),
                hours => format!("{hours} h {} min", whole % 3600 / 60),
            }
        }
    }
}

/// A byte count in binary units: 512 B, 1.5 KiB, 2.25 GiB.
pub(crate) fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if value < 1024 {
        return format!("{value} B");
    }
    let mut scaled = value as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 999.5 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{} {}", digits(scaled), UNITS[unit])
}

/// A share from 0 to 1 as a percentage with one decimal.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent.is_finite() { format!("{percent:.1} %") } else { "\u{2013}".to_owned() }
}

/// A loss or a rate with about four significant digits; a dash if it is not finite.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => "\u{2013}".to_owned(),
        0.0 => "0".to_owned(),
        v if !(1e-4..1e5).contains(&v) => format!("{value:.2e}"),
        v if v < 1.0 => {
            let text = format!("{value:.5}");
            text.trim_end_matches('0').to_owned()
        }
        v if v < 100.0 => format!("{value:.3}"),
        _ => format!("{value:.1}"),
    }
}

/// Three significant digits.
fn digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1\u{2009}234\u{2009}567");
        assert_eq!(seconds(0.000_012_34), "12.3 µs");
        assert_eq!(seconds(0.004_56), "4.56 ms");
        assert_eq!(seconds(59.96), "60.0 s");
        assert_eq!(seconds(725.0), "12 min 5 s");
        assert_eq!(seconds(7300.0), "2 h 1 min");
        assert_eq!(seconds(f64::NAN), "\u{2013}");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(percent(0.9806), "98.1 %");
        assert_eq!(percent(1e307), "\u{2013}");
        assert_eq!(number(0.001), "0.001");
        assert_eq!(number(2.718_9), "2.719");
        assert_eq!(number(3e-7), "3.00e-7");
        assert_eq!(number(f64::INFINITY), "\u{2013}");
    }
}
