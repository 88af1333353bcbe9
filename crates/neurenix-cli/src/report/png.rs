//! Encodes PNG files.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use neurenix::{Error, Result};

use super::Picture;

/// Encodes an image: 8 bits per channel, grey or RGB. Source: the PNG specification, third edition.
///
/// # Errors
/// If the number of channels is not 1 or 3, or the number of values does not match the size.
pub(super) fn encode(picture: &Picture) -> Result<Vec<u8>> {
    let &Picture { width, height, channels, ref pixels } = picture;
    let colour_type = match channels {
        1 => 0,
        3 => 2,
        _ => return Err(Error::data("picture", format!("expected 1 or 3 channels, got {channels}"))),
    };
    let fits = width.checked_mul(channels).and_then(|row| row.checked_mul(height)) == Some(pixels.len());
    let (Ok(wide), Ok(high), true, false) =
        (i32::try_from(width), i32::try_from(height), fits, pixels.is_empty())
    else {
        let message = format!("{width} x {height} x {channels} does not match {} values", pixels.len());
        return Err(Error::data("picture", message));
    };
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = [wide.to_be_bytes(), high.to_be_bytes()].concat();
    header.extend_from_slice(&[8, colour_type, 0, 0, 0]);
    chunk(&mut out, b"IHDR", &header);
    let failed = |e: std::io::Error| Error::data("picture", format!("compression failed: {e}"));
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    let row_bytes = width * channels;
    let mut above = vec![0; row_bytes];
    for row in pixels.chunks_exact(row_bytes) {
        // Filter type 2: each byte minus the byte above it. It suits both charts and small pictures.
        let filtered: Vec<u8> =
            row.iter().zip(&above).map(|(byte, above)| byte.wrapping_sub(*above)).collect();
        encoder.write_all(&[2]).and_then(|()| encoder.write_all(&filtered)).map_err(failed)?;
        above.copy_from_slice(row);
    }
    chunk(&mut out, b"IDAT", &encoder.finish().map_err(failed)?);
    chunk(&mut out, b"IEND", &[]);
    Ok(out)
}

/// A chunk: length, name, contents, and the CRC-32 of name and contents.
fn chunk(out: &mut Vec<u8>, name: &[u8; 4], contents: &[u8]) {
    out.extend_from_slice(&(contents.len() as u32).to_be_bytes());
    out.extend_from_slice(name);
    out.extend_from_slice(contents);
    let mut crc = flate2::Crc::new();
    crc.update(name);
    crc.update(contents);
    out.extend_from_slice(&crc.sum().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// Decodes the pixels of a PNG made by [`encode`].
    fn decode(file: &[u8], row_bytes: usize) -> std::io::Result<Vec<u8>> {
        let start = 8 + 12 + 13;
        let length =
            u32::from_be_bytes([file[start], file[start + 1], file[start + 2], file[start + 3]]) as usize;
        let mut raw = Vec::new();
        flate2::read::ZlibDecoder::new(&file[start + 8..start + 8 + length]).read_to_end(&mut raw)?;
        let mut pixels: Vec<u8> = Vec::new();
        for row in raw.chunks(row_bytes + 1) {
            let above = pixels.len().checked_sub(row_bytes);
            assert_eq!(row[0], 2);
            for (index, byte) in row[1..].iter().enumerate() {
                pixels.push(byte.wrapping_add(above.map_or(0, |above| pixels[above + index])));
            }
        }
        Ok(pixels)
    }

    #[test]
    fn pixels_survive() -> Result<(), Box<dyn std::error::Error>> {
        for channels in [1, 3] {
            let pixels: Vec<u8> = (0..5 * 7 * channels).map(|i| (i * 37) as u8).collect();
            let file = encode(&Picture { width: 5, height: 7, channels, pixels: pixels.clone() })?;
            assert_eq!(decode(&file, 5 * channels)?, pixels);
            // The last chunk of every PNG, with its well-known checksum.
            assert!(file.ends_with(b"\0\0\0\0IEND\xae\x42\x60\x82"));
        }
        Ok(())
    }

    #[test]
    fn sizes_that_do_not_fit_are_errors() {
        for (width, height, channels, count) in
            [(2, 2, 2, 8), (2, 2, 1, 3), (0, 0, 1, 0), (usize::MAX, 2, 1, 4)]
        {
            assert!(encode(&Picture { width, height, channels, pixels: vec![0; count] }).is_err());
        }
    }
}
