//! The learning curves of a run as a PNG image.

use neurenix::Result;
use neurenix::train::EpochRecord;

use super::panels::{Curve, Panel, panels_png};

const WIDTH: u32 = 1600;

/// Draws loss and, if it was measured, accuracy by epoch: a PNG file of 1600 x 640 pixels.
///
/// # Errors
/// If the drawing library fails.
pub fn curves_png(title: &str, epochs: &[EpochRecord]) -> Result<Vec<u8>> {
    let curve = |name: &str, dashed, value: &dyn Fn(&EpochRecord) -> Option<f64>| Curve {
        name: name.into(),
        dashed,
        points: epochs.iter().filter_map(|e| Some((e.epoch as f64, value(e)?))).collect(),
    };
    let loss = vec![
        curve("training", false, &|e| Some(e.train_loss)),
        curve("validation", true, &|e| e.validation_loss),
    ];
    let accuracy = vec![
        curve("training", false, &|e| e.train_accuracy),
        curve("validation", true, &|e| e.validation_accuracy),
    ];
    let mut panels = vec![Panel { title: "Loss".into(), percent: false, curves: loss }];
    if accuracy.iter().any(|curve| curve.points.iter().any(|point| point.1.is_finite())) {
        panels.push(Panel { title: "Accuracy, %".into(), percent: true, curves: accuracy });
    }
    panels_png(title, WIDTH, &panels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_epochs_can_be_drawn() -> Result<()> {
        let epoch = |epoch, train_loss, validation_loss| EpochRecord {
            epoch,
            train_loss,
            validation_loss,
            ..EpochRecord::default()
        };
        let mut with_accuracy = epoch(1, 0.0, Some(0.0));
        with_accuracy.train_accuracy = Some(1.0);
        for epochs in [
            vec![],
            vec![epoch(1, 2.0, None)],
            vec![epoch(1, f64::NAN, Some(f64::INFINITY))],
            vec![epoch(1, 1e30, Some(-1e30)), epoch(2, -5.0, Some(1e-30))],
            vec![with_accuracy],
        ] {
            let file = curves_png("<any> \u{1f600} title", &epochs)?;
            assert!(file.starts_with(b"\x89PNG"), "{epochs:?}");
        }
        Ok(())
    }
}
