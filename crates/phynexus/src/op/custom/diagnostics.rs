//! Compiler messages with the source lines they refer to.
//!
//! Compilers give locations as `file(line)` (NVRTC), or as `file:line:column` (compilers based on Clang, and naga). If
//! a message refers to a line of the source but does not quote it, the line is shown below it with its neighbours.

/// Number of lines shown before and after the line of a message.
const NEIGHBOURS: usize = 1;

/// Maximum number of annotated messages. Those that follow a first mistake are often noise.
const MOST: usize = 20;

/// Adds to the compiler's messages the source lines they refer to.
pub fn annotate(source: &str, messages: &str) -> String {
    let lines: Vec<&str> = source.lines().collect();
    let messages: Vec<&str> = messages.trim_end().lines().collect();
    let mut out = String::new();
    let mut shown = 0;
    for (at, message) in messages.iter().enumerate() {
        out.push_str(message);
        out.push('\n');
        let Some((line, column)) = place(message).filter(|(line, _)| (1..=lines.len()).contains(line)) else {
            continue;
        };
        let text = lines[line - 1].trim();
        let itself = messages[at + 1..].iter().take(4).any(|next| !text.is_empty() && next.contains(text));
        if !itself && shown < MOST {
            show(&mut out, &lines, line, column);
            shown += 1;
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// The first line number in a message, and its column if given; both count from 1.
fn place(message: &str) -> Option<(usize, Option<usize>)> {
    for (at, mark) in message.match_indices(['(', ':']) {
        let rest = &message[at + 1..];
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let Ok(line) = rest[..digits].parse() else { continue };
        let rest = &rest[digits..];
        if mark == "(" && rest.starts_with("):") {
            return Some((line, None));
        }
        if mark == ":"
            && let Some(rest) = rest.strip_prefix(':')
        {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            return Some((line, rest[..digits].parse().ok()));
        }
    }
    None
}

fn show(out: &mut String, lines: &[&str], line: usize, column: Option<usize>) {
    let last = (line + NEIGHBOURS).min(lines.len());
    let width = last.to_string().len();
    for number in line.saturating_sub(NEIGHBOURS).max(1)..=last {
        let text = lines[number - 1];
        let mark = if number == line { '>' } else { ' ' };
        out.push_str(format!("  {mark} {number:width$} | {text}").trim_end());
        out.push('\n');
        if let Some(column) = column.filter(|_| number == line) {
            // Keep tabs, so that the caret lines up with its character.
            let before = text.chars().take(column.saturating_sub(1));
            let space: String = before.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            out.push_str(&format!("    {:width$} | {space}^\n", ""));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "first\n\tsecond = oops;\nthird\nfourth";

    #[test]
    fn lines_are_shown_below_messages_that_name_them() {
        let found =
            annotate(SOURCE, "default_program(2): error: identifier \"oops\" is undefined\n\n1 error\n");
        let expected = "default_program(2): error: identifier \"oops\" is undefined\n    1 | first\n  > 2 | \tsecond = oops;\n    \
                        3 | third\n\n1 error";
        assert_eq!(found, expected);
    }

    #[test]
    fn carets_stand_below_columns() {
        let found = annotate(SOURCE, "<program source>:2:11: error: use of undeclared identifier");
        assert!(found.contains("  > 2 | \tsecond = oops;\n      | \t         ^\n"), "{found}");
    }

    #[test]
    fn what_a_compiler_shows_itself_is_not_shown_twice() {
        let clang =
            "k.cl:2:11: error: use of undeclared identifier\n        second = oops;\n                 ^";
        assert_eq!(annotate(SOURCE, clang), clang);
    }

    #[test]
    fn messages_about_no_line_stay_as_they_are() {
        for message in [
            "",
            "out of memory",
            "x(0): y",
            "x(9): y",
            "a:5",
            "12:30",
            "(3) z",
            "x(99999999999999999999): y",
            "é(2",
        ] {
            assert_eq!(annotate(SOURCE, message), message);
        }
        assert_eq!(annotate("", "p(1): error: empty"), "p(1): error: empty");
    }
}
