//! RE2's patterns as those of the `regex` crate, which has other classes and more operators in brackets.

/// The same pattern for the `regex` crate. An error in it is an error there, too.
pub(super) fn from_re2(pattern: &str) -> String {
    let mut result = String::with_capacity(pattern.len());
    let mut rest = pattern;
    // Within brackets, and whether a bracket that closes them would be the first item, and is one.
    let (mut inside, mut first) = (false, false);
    while let Some(next) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix(r"\Q") {
            let (literal, after) = quoted.split_once(r"\E").unwrap_or((quoted, ""));
            result += &regex::escape(literal);
            rest = after;
            first = false;
            continue;
        }
        if next == '\\' {
            let length = 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
            let (escape, after) = rest.split_at(length);
            result += ascii_class(escape, inside).unwrap_or(escape);
            rest = after;
            first = false;
            continue;
        }
        let posix = rest.starts_with("[:").then(|| rest.find(":]")).flatten();
        match (inside, next) {
            (false, '[') => {
                let negated = rest[1..].starts_with('^');
                result += if negated { "[^" } else { "[" };
                rest = &rest[1 + usize::from(negated)..];
                (inside, first) = (true, true);
                continue;
            }
            (true, ']') if !first => {
                result.push(']');
                inside = false;
            }
            (true, '[') if let Some(end) = posix => {
                result += &rest[..end + 2];
                rest = &rest[end + 2..];
                first = false;
                continue;
            }
            (true, '[' | ']' | '&' | '~') => result.extend(['\\', next]),
            // Two dashes would subtract a class.
            (true, '-') if first || result.ends_with('-') && !result.ends_with(r"\-") => result += r"\-",
            _ => result.push(next),
        }
        first = false;
        rest = &rest[next.len_utf8()..];
    }
    result
}

/// The class of ASCII characters that an escape names. Those of the `regex` crate have others, too.
fn ascii_class(escape: &str, inside: bool) -> Option<&'static str> {
    Some(match escape {
        r"\d" => "[0-9]",
        r"\D" => "[^0-9]",
        r"\s" => r"[\t\n\f\r ]",
        r"\S" => r"[^\t\n\f\r ]",
        r"\w" => "[0-9A-Za-z_]",
        r"\W" => "[^0-9A-Za-z_]",
        r"\b" if !inside => r"(?-u:\b)",
        r"\B" if !inside => r"(?-u:\B)",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_to_re2() {
        let matches = |pattern: &str, text: &str| {
            let regex = regex::Regex::new(&format!(r"\A(?:{})\z", from_re2(pattern))).unwrap();
            regex.is_match(text)
        };
        for (pattern, yes, no) in [
            (r"\d+", "12", "\u{665}"),
            (r"[^\w]", "\u{e9}", "e"),
            (r"[[a]+", "[a", "]"),
            (r"[]a]+", "]a", "["),
            (r"[^]a]", "b", "]"),
            (r"[a&&b]+", "a&b", "c"),
            (r"[+--]", ",", "a"),
            (r"[--/]", ".", "0"),
            (r"[[:alpha:]_]+", "a_", "1"),
            (r"[\d\]-]+", "1]-", "a"),
            (r"\Q[a.\E.", "[a.x", "[abx"),
            (r"a\b.\bb", "a b", "acb"),
            (r".", "\u{20ac}", "\n"),
            (r"(?i)\[STRASSE\]", "[strasse]", "strasse"),
        ] {
            assert!(matches(pattern, yes), "{pattern} should match {yes:?}");
            assert!(!matches(pattern, no), "{pattern} should not match {no:?}");
        }
    }
}
