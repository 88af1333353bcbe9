//! HTML helpers: escaped text and base64.

use std::fmt;

/// Text escaped for HTML, valid between tags and in quoted attributes.
pub(super) struct Text<'a>(pub(super) &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // HTML forbids control characters, even escaped ones.
                c if c.is_control() && c != '\n' && c != '\t' => f.write_str("\u{fffd}")?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

/// Base64 with padding (RFC 4648).
pub(super) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word =
            group.iter().fold(0u32, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - group.len()));
        for digit in 0..4 {
            if digit <= group.len() {
                out.push(char::from(ALPHABET[(word >> (18 - 6 * digit)) as usize & 63]));
            } else {
                out.push('=');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_follows_the_rfc() {
        // Test vectors from RFC 4648, section 10.
        let vectors = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (length, expected) in vectors.into_iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..length]), expected);
        }
        assert_eq!(base64(&[0xff, 0xef, 0xbe]), "/+++");
    }

    #[test]
    fn text_cannot_become_markup() {
        let text = Text("<img src=x onerror=\"alert('&')\">\u{0}").to_string();
        assert_eq!(text, "&lt;img src=x onerror=&quot;alert(&#39;&amp;&#39;)&quot;&gt;\u{fffd}");
    }
}
