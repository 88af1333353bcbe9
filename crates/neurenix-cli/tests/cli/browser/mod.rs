//! Headless Chromium and its screenshots.

mod find;

use std::collections::HashMap;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// An installed Chromium.
pub(crate) struct Browser {
    program: PathBuf,
}

impl Browser {
    /// Searches the search path and the macOS install folder. `None` only if `NEURENIX_SKIP_BROWSER` is set.
    pub(crate) fn find() -> Result<Option<Browser>> {
        if std::env::var_os(find::SKIP).is_some() {
            return Ok(None);
        }
        match find::find_browser() {
            Some(program) => Ok(Some(Browser { program })),
            None => Err(Error::new(
                ErrorKind::NotFound,
                "this test renders the report in Chromium, which was not found: install it (Debian: apt-get install \
                 chromium), or set NEURENIX_SKIP_BROWSER to leave the test out",
            )),
        }
    }

    /// The document as the browser parsed it.
    pub(crate) fn dump_dom(&self, page: &Path) -> Result<String> {
        let output = self.run(page, &["--dump-dom".into()])?;
        String::from_utf8(output.stdout).map_err(Error::other)
    }

    /// A screenshot of a window of this size in the light theme.
    pub(crate) fn screenshot(&self, page: &Path, width: u32, height: u32) -> Result<Image> {
        let file = page.with_extension(format!("{width}.png"));
        self.run(
            page,
            &[format!("--screenshot={}", file.display()), format!("--window-size={width},{height}")],
        )?;
        Image::read(&file)
    }

    fn run(&self, page: &Path, arguments: &[String]) -> Result<Output> {
        let profile = tempfile::tempdir()?;
        let output = Command::new(&self.program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--force-color-profile=srgb",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(arguments)
            .arg(format!("file://{}", page.display()))
            .output()?;
        if output.status.success() {
            return Ok(output);
        }
        let words = String::from_utf8_lossy(&output.stderr);
        Err(Error::other(format!("{} failed ({}): {words}", self.program.display(), output.status)))
    }
}

/// A decoded PNG image with 3 or 4 channels of 8 bits.
pub(crate) struct Image {
    pub(crate) width: usize,
    pub(crate) height: usize,
    channels: usize,
    pixels: Vec<u8>,
}

impl Image {
    /// Decodes PNG files written by browsers and by this project. Source: the PNG specification.
    pub(crate) fn read(path: &Path) -> Result<Image> {
        let file = std::fs::read(path)?;
        let wrong =
            || Error::new(ErrorKind::InvalidData, format!("{} is not a supported PNG file", path.display()));
        let word = |at: usize| -> Result<usize> {
            let bytes = file.get(at..at + 4).ok_or_else(wrong)?;
            Ok(bytes.iter().fold(0, |word, &byte| word << 8 | usize::from(byte)))
        };
        let (width, height) = (word(16)?, word(20)?);
        let channels = match file.get(24..26) {
            Some([8, 2]) => 3,
            Some([8, 6]) => 4,
            _ => return Err(wrong()),
        };
        let mut packed = Vec::new();
        let mut at = 8;
        while at < file.len() {
            let length = word(at)?;
            let contents = file.get(at + 8..at + 8 + length).ok_or_else(wrong)?;
            if file[at + 4..at + 8] == *b"IDAT" {
                packed.extend_from_slice(contents);
            }
            at += length + 12;
        }
        let mut raw = Vec::new();
        flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut raw)?;
        let mut image = Image { width, height, channels, pixels: Vec::new() };
        let mut above = vec![0; width * channels];
        for row in raw.chunks_exact(width * channels + 1) {
            let mut line = row[1..].to_vec();
            image.unfilter(row[0], &mut line, &above).ok_or_else(wrong)?;
            image.pixels.extend_from_slice(&line);
            above = line;
        }
        Ok(image)
    }

    fn unfilter(&self, filter: u8, line: &mut [u8], above: &[u8]) -> Option<()> {
        for i in 0..line.len() {
            let left = i.checked_sub(self.channels);
            let (a, b, c) = (left.map_or(0, |l| line[l]), above[i], left.map_or(0, |l| above[l]));
            let predicted = match filter {
                0 => 0,
                1 => a,
                2 => b,
                3 => ((u16::from(a) + u16::from(b)) / 2) as u8,
                4 => {
                    let p = i16::from(a) + i16::from(b) - i16::from(c);
                    let distance = |x: u8| (p - i16::from(x)).abs();
                    match () {
                        () if distance(a) <= distance(b) && distance(a) <= distance(c) => a,
                        () if distance(b) <= distance(c) => b,
                        () => c,
                    }
                }
                _ => return None,
            };
            line[i] = line[i].wrapping_add(predicted);
        }
        Some(())
    }

    /// The number of pixels of each colour.
    pub(crate) fn colours(&self) -> HashMap<[u8; 3], usize> {
        let mut colours = HashMap::new();
        for pixel in self.pixels.chunks_exact(self.channels) {
            *colours.entry([pixel[0], pixel[1], pixel[2]]).or_insert(0) += 1;
        }
        colours
    }
}
