//! The bundled handwritten digits: 1797 images of 8 x 8 pixels.
//!
//! They are the test set of "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, UCI Machine
//! Learning Repository, CC BY 4.0), in the form that scikit-learn ships. `crates/neurenix/data/README.md` describes how
//! the two bundled files were made.

use std::path::Path;

use phynexus::DType;

use super::dataset::{Dataset, Normalization};
use super::idx;
use crate::Result;
use crate::io::Source;

const IMAGES: &[u8] = include_bytes!("../../data/digits-images.idx3-ubyte.gz");
const LABELS: &[u8] = include_bytes!("../../data/digits-labels.idx1-ubyte.gz");
/// The brightest value of a pixel.
const WHITE: f32 = 16.0;
/// The size of the test set: a fifth of the images, rounded up.
const TEST_IMAGES: usize = 360;
/// The seed of the shuffle before [`digits_split`].
pub const DIGITS_SPLIT_SEED: u64 = 0;

/// All digits in their original order. Inputs are `uint8 [1797, 1, 8, 8]` from 0 (paper) to 16 (ink); batches scale
/// them to `float32` from 0 to 1. Labels are 0 to 9.
///
/// # Errors
/// If the bundled data is corrupt.
pub fn digits() -> Result<Dataset> {
    let unpack = |bytes: &'static [u8], name: &str| {
        let reader = flate2::read::GzDecoder::new(bytes);
        idx::read(&mut Source::new(reader, Path::new(name), "IDX", None))
    };
    let images = unpack(IMAGES, "digits-images.idx3-ubyte.gz")?;
    let labels = unpack(LABELS, "digits-labels.idx1-ubyte.gz")?;
    let count = images.rows();
    let images = images.reshape(&[count, 1, 8, 8])?;
    let names = (0..10).map(|digit| digit.to_string()).collect();
    let labels = labels.cast(DType::I64);
    let digits = Dataset::classes("handwritten digits (UCI, 8 x 8 pixels)", images, labels, names)?;
    Ok(digits.with_normalization(Normalization::scale(1.0 / WHITE)))
}

/// The split that all published accuracies of this project use: `(training 1437, test 360)`.
///
/// The images are shuffled by [`super::random::epoch_order`] with seed [`DIGITS_SPLIT_SEED`] and epoch 0; the last 360
/// are the test set. A writer's digits may occur in both sets, so the accuracy does not measure generalisation to new
/// writers.
///
/// # Errors
/// As [`digits`].
pub fn digits_split() -> Result<(Dataset, Dataset)> {
    let digits = digits()?.shuffled(DIGITS_SPLIT_SEED);
    digits.split_at(digits.len() - TEST_IMAGES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_digits_are_those_of_scikit_learn() -> Result<()> {
        let data = digits()?;
        assert_eq!(data.stored_inputs().shape(), [1797, 1, 8, 8]);
        // sklearn.datasets.load_digits(): numpy.bincount(target), data.sum(), and the first image's first rows.
        assert_eq!(data.class_counts()?, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
        assert_eq!(data.stored_inputs().dtype(), DType::U8);
        let values = data.all()?.inputs.to_vec::<f32>()?;
        assert_eq!(values.iter().map(|&v| f64::from(v * WHITE)).sum::<f64>(), 561_718.0);
        let start: Vec<f32> = values[..16].iter().map(|v| v * WHITE).collect();
        assert_eq!(start, [0., 0., 5., 13., 9., 1., 0., 0., 0., 0., 13., 15., 10., 15., 5., 0.]);
        assert_eq!(data.stored_targets().to_vec::<i64>()?[..5], [0, 1, 2, 3, 4]);
        Ok(())
    }

    #[test]
    fn the_split_is_fixed_and_has_every_class() -> Result<()> {
        let (train, test) = digits_split()?;
        assert_eq!((train.len(), test.len()), (1437, 360));
        assert!(test.class_counts()?.iter().all(|&count| count >= 25), "{:?}", test.class_counts()?);
        let labels = test.batch(&[0, 1, 2, 3, 4, 5, 6, 7])?.targets.to_vec::<i64>()?;
        // By an independent implementation of the order in Python.
        assert_eq!(labels, [5, 2, 8, 5, 2, 3, 4, 3]);
        Ok(())
    }
}
