//! A reader for the subset of MessagePack used by machine code metadata. Format: `spec.md` of
//! github.com/msgpack/msgpack.
//!
//! Reading terminates for all input, and returns `None` for bytes that are not a document or do not match expectations.

/// What comes next in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// A non-negative integer.
    Number(u64),
    /// A string.
    Text(&'a [u8]),
    /// A sequence; this many values follow.
    Sequence(u64),
    /// A map; this many keys follow, each with its value.
    Map(u64),
    /// Anything else: nil, a boolean, a negative or fractional number, bytes.
    Other,
}

/// The unread part of a document.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(document: &'a [u8]) -> Reader<'a> {
        Reader(document)
    }

    fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let (part, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(part)
    }

    /// A big-endian integer of this many bytes.
    fn number(&mut self, bytes: u64) -> Option<u64> {
        Some(self.take(bytes)?.iter().fold(0, |number, &byte| (number << 8) | u64::from(byte)))
    }

    /// The next value, or the beginning of a sequence or map.
    pub(crate) fn token(&mut self) -> Option<Token<'a>> {
        let first = self.number(1)?;
        // Numbers and lengths have 1, 2, 4 or 8 bytes.
        let bytes = |smallest: u64| 1u64 << (first - smallest);
        Some(match first {
            0x00..=0x7f => Token::Number(first),
            0x80..=0x8f => Token::Map(first & 0xf),
            0x90..=0x9f => Token::Sequence(first & 0xf),
            0xa0..=0xbf => Token::Text(self.take(first & 0x1f)?),
            0xc0 | 0xc2 | 0xc3 | 0xe0..=0xff => Token::Other,
            0xc4..=0xc6 => {
                let length = self.number(bytes(0xc4))?;
                self.other(length)?
            }
            // Extension types: a byte gives the type.
            0xc7..=0xc9 => {
                let length = self.number(bytes(0xc7))?;
                self.other(length + 1)?
            }
            0xca => self.other(4)?,
            0xcb => self.other(8)?,
            0xcc..=0xcf => Token::Number(self.number(bytes(0xcc))?),
            0xd0..=0xd3 => {
                let number = self.number(bytes(0xd0))?;
                // The highest bit of a negative number is set.
                if number >> (8 * bytes(0xd0) - 1) == 0 { Token::Number(number) } else { Token::Other }
            }
            0xd4..=0xd8 => self.other(1 + bytes(0xd4))?,
            0xd9..=0xdb => {
                let length = self.number(bytes(0xd9))?;
                Token::Text(self.take(length)?)
            }
            0xdc | 0xdd => Token::Sequence(self.number(2 * bytes(0xdc))?),
            0xde | 0xdf => Token::Map(self.number(2 * bytes(0xde))?),
            _ => return None,
        })
    }

    fn other(&mut self, bytes: u64) -> Option<Token<'a>> {
        self.take(bytes).map(|_| Token::Other)
    }

    /// Skips a value, including nested ones.
    pub(crate) fn skip(&mut self) -> Option<()> {
        // Remaining values. Each takes at least one byte, so the counter does not overflow.
        let mut open = 1u64;
        while open > 0 {
            open -= 1;
            match self.token()? {
                Token::Sequence(count) => open += count,
                Token::Map(count) => open += 2 * count,
                Token::Number(_) | Token::Text(_) | Token::Other => {}
            }
        }
        Some(())
    }

    /// A non-negative integer.
    pub(crate) fn size(&mut self) -> Option<usize> {
        match self.token()? {
            Token::Number(number) => usize::try_from(number).ok(),
            _ => None,
        }
    }

    /// A string.
    pub(crate) fn text(&mut self) -> Option<&'a [u8]> {
        match self.token()? {
            Token::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A sequence; `element` reads each value.
    pub(crate) fn sequence(&mut self, mut element: impl FnMut(&mut Reader<'a>) -> Option<()>) -> Option<()> {
        let Token::Sequence(count) = self.token()? else { return None };
        (0..count).try_for_each(|_| element(self))
    }

    /// A map with string keys; `entry` reads each value.
    pub(crate) fn map(
        &mut self,
        mut entry: impl FnMut(&mut Reader<'a>, &'a [u8]) -> Option<()>,
    ) -> Option<()> {
        let Token::Map(count) = self.token()? else { return None };
        (0..count).try_for_each(|_| {
            let key = self.text()?;
            entry(self, key)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(document: &[u8]) -> Vec<Token<'_>> {
        let mut reader = Reader::new(document);
        std::iter::from_fn(|| reader.token()).collect()
    }

    #[test]
    fn every_kind_of_value_is_read() {
        use Token::*;
        let numbers = b"\x00\x7f\xcc\xff\xcd\x01\x02\xce\x00\x01\x00\x00\xcf\x00\x00\x00\x01\x00\x00\x00\x00";
        assert_eq!(tokens(numbers), [0, 0x7f, 0xff, 0x102, 0x1_0000, 1 << 32].map(Number));
        // Signed variants: 5, -1, 258, -2.
        let signed = b"\xd0\x05\xd0\xff\xd1\x01\x02\xd3\xff\xff\xff\xff\xff\xff\xff\xfe";
        assert_eq!(tokens(signed), [Number(5), Other, Number(258), Other]);
        let texts = b"\xa0\xa3abc\xd9\x02de\xda\x00\x01f\xdb\x00\x00\x00\x02gh";
        assert_eq!(tokens(texts), [&b""[..], b"abc", b"de", b"f", b"gh"].map(Text));
        let beginnings = b"\x82\x93\xdc\x01\x00\xdd\x00\x01\x00\x00\xde\x00\x11\xdf\x00\x00\x00\x03";
        let expected = [Map(2), Sequence(3), Sequence(256), Sequence(65536), Map(17), Map(3)];
        assert_eq!(tokens(beginnings), expected);
        // Nil, false, true, -1, -32, both float sizes, bytes, extensions of fixed and of given size.
        let others = b"\xc0\xc2\xc3\xff\xe0\xca1234\xcb12345678\xc4\x02ab\xc5\x00\x01a\xc6\x00\x00\x00\x01a";
        assert_eq!(tokens(others), [Other; 10]);
        let others = b"\xd4t1\xd5t12\xd6t1234\xd7t12345678\xd8t1234567812345678\xc7\x01t1\xc8\x00\x02t12";
        assert_eq!(tokens(others), [Other; 7]);
        assert_eq!(tokens(b"\xc9\x00\x00\x00\x00t"), [Other]);
    }

    #[test]
    fn values_are_passed_over_with_all_that_is_in_them() {
        // A map of a sequence of two maps, then a number.
        let mut reader = Reader::new(b"\x81\xa1a\x92\x82\xa1b\x01\xa1c\xc0\x80\x2a");
        assert_eq!(reader.skip(), Some(()));
        assert_eq!((reader.size(), reader.token()), (Some(42), None));
    }

    #[test]
    fn what_is_no_document_is_nothing() {
        // Empty input, an invalid first byte, and lengths beyond the end.
        let long = b"\xdb\xff\xff\xff\xffabc";
        for damaged in [&b""[..], b"\xc1", b"\xa3ab", b"\xcd\x01", long, b"\xc9\xff\xff\xff\xff"] {
            assert_eq!(Reader::new(damaged).token(), None, "{damaged:x?}");
        }
        for damaged in [&b"\xdf\xff\xff\xff\xff"[..], b"\xdd\xff\xff\xff\xff\x91\x91", b"\x82\xa1a\x01"] {
            assert_eq!(Reader::new(damaged).skip(), None, "{damaged:x?}");
            assert_eq!(Reader::new(damaged).map(|reader, _| reader.skip()), None, "{damaged:x?}");
            assert_eq!(Reader::new(damaged).sequence(Reader::skip), None, "{damaged:x?}");
        }
        // Values of the wrong type.
        assert_eq!(Reader::new(b"\xa1a").size(), None);
        assert_eq!(Reader::new(b"\x01").text(), None);
        assert_eq!(Reader::new(b"\x81\x01\x02").map(|reader, _| reader.skip()), None);
    }
}
