//! Renders the report in a real browser.

use crate::browser;

use std::{collections::BTreeMap, path::Path};

use browser::{Browser, Image};
use neurenix::data::digits;
use neurenix_cli::report::{ConfusionMatrix, Fact, KernelRow, Mistake, Picture, Report, render_html, write};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// A run as the command would report it, with real digits as its mistakes.
fn sample() -> Result<Report, Box<dyn std::error::Error>> {
    let fact = |name: &str, value: &str, note: &str| Fact {
        name: name.into(),
        value: value.into(),
        note: note.into(),
    };
    let epochs = (1..=20u64).map(|epoch| {
        let t = epoch as f64;
        neurenix::train::EpochRecord {
            epoch: epoch as usize,
            steps: epoch * 23,
            train_loss: 2.1 * (-t / 4.0).exp() + 0.01,
            train_accuracy: Some(1.0 - 0.6 * (-t / 3.0).exp()),
            validation_loss: Some(1.9 * (-t / 4.0).exp() + 0.07 + 0.01 * (t * 1.7).sin()),
            validation_accuracy: Some(0.98 - 0.55 * (-t / 3.0).exp() + 0.004 * (t * 1.3).cos()),
            learning_rate: 1e-3,
            seconds: 0.231 + 0.01 * t.sin(),
        }
    });
    let digits = digits()?;
    let mut counts: BTreeMap<_, _> = (0..10).map(|class| ((class, class), 34)).collect();
    for pair in [(8, 1), (8, 1), (9, 3), (5, 9), (3, 8), (1, 8), (7, 4)] {
        *counts.entry(pair).or_insert(0) += 1;
    }
    let mut mistakes = Vec::new();
    for (index, predicted) in [(8usize, 1), (5, 9), (9, 3), (3, 8), (1, 8), (7, 4), (18, 1)] {
        let batch = digits.batch(&[index])?;
        let ink = batch.inputs.to_vec::<f32>()?;
        mistakes.push(Mistake {
            picture: Some(Picture {
                width: 8,
                height: 8,
                channels: 1,
                pixels: ink.iter().map(|ink| 255 - (ink * 255.0) as u8).collect(),
            }),
            index,
            line: None,
            features: Vec::new(),
            truth: batch.targets.to_vec::<i64>()?[0].to_string(),
            predicted: predicted.to_string(),
            confidence: Some(0.51 + 0.04 * index as f64 % 0.4),
        });
    }
    let kernel = |name: &str, device: &str, count, seconds, bytes| KernelRow {
        name: name.into(),
        device: device.into(),
        count,
        seconds,
        bytes,
    };
    Ok(Report {
        title: "Handwritten digits".into(),
        description: "A multilayer perceptron (64-128-64-10) learned to read 8 x 8 pixel digits.".into(),
        summary: vec![
            fact("Test accuracy", "98.1 %", "353 of 360 images"),
            fact("Training time", "4.62 s", "20 epochs of 23 batches"),
            fact("Parameters", "17\u{2009}226", "68.9 KB of float32"),
            fact("Device", "cpu", "AVX-512, 2 threads"),
        ],
        epochs: epochs.collect(),
        confusion: Some(ConfusionMatrix {
            classes: (0..10).map(|class| class.to_string()).collect(),
            counts,
        }),
        mistakes,
        mistakes_of: Some((7, 360)),
        kernels: vec![
            kernel("matmul [64, 64] x [64, 128] + bias, relu", "cuda:0", 460, 0.0231, 46_000_000),
            kernel("matmul [64, 128] x [128, 64] + bias, relu", "cuda:0", 460, 0.0192, 52_000_000),
            kernel("cross_entropy rows 64 x 10", "cuda:0", 460, 0.0041, 1_413_120),
            kernel("adam update of 6 tensors", "cuda:0", 460, 0.0078, 126_783_360),
            kernel("sort [360, 10]", "cpu", 20, 0.0012, 576_000),
        ],
        kernels_note: "Measured since the run was resumed in epoch 7.".into(),
        kernels_submitted: false,
        profile: None,
        configuration: [
            ("model", "mlp, hidden sizes 128 and 64, relu"),
            ("optimiser", "Adam, learning rate 0.001, betas 0.9 and 0.999"),
            ("batch size", "64"),
            ("seed", "0"),
            ("data", "handwritten digits (UCI, 8 x 8 pixels): 1437 for training, 360 for testing"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec(),
    })
}

#[test]
fn a_browser_shows_every_section() -> Outcome {
    let Some(browser) = Browser::find()? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    write(folder.path(), &sample()?)?;
    let page = folder.path().join("report.html");

    let dom = browser.dump_dom(&page)?;
    let headings = [
        "Summary",
        "Learning curves",
        "Confusion matrix",
        "Examples of mistakes",
        "Where each operation ran",
        "Configuration",
    ];
    let mut position = 0;
    for heading in headings {
        let found = dom[position..].find(&format!(">{heading}</h2>"));
        position += found.ok_or_else(|| format!("section {heading:?} is missing, or in the wrong place"))?;
    }
    assert_eq!(dom.matches("<section").count(), headings.len());
    // The browser's parser agrees: two charts of two lines, a matrix of 10 rows, 7 pictures.
    assert_eq!(dom.matches("<path class=\"line train\"").count(), 4);
    assert_eq!(dom.matches("class=\"right").count(), 10);
    assert_eq!(dom.matches("<img alt=\"Example ").count(), 7);
    assert!(!dom.contains("http://") && !dom.contains("https://"));

    check_screenshot(&browser.screenshot(&page, 1200, 2400)?, 1200);
    // The width of a phone in the browser's smallest window.
    check_screenshot(&browser.screenshot(&page, 500, 3000)?, 500);
    check_curves(&folder.path().join("curves.png"))
}

#[test]
fn a_report_of_a_run_that_did_nothing_is_shown() -> Outcome {
    let Some(browser) = Browser::find()? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let page = folder.path().join("empty.html");
    std::fs::write(
        &page,
        render_html(&Report { title: "<b>Nothing</b> & more".into(), ..Report::default() }),
    )?;
    let dom = browser.dump_dom(&page)?;
    assert!(dom.contains("<h1>&lt;b&gt;Nothing&lt;/b&gt; &amp; more</h1>"), "{dom}");
    assert!(dom.contains("No epoch was finished."), "{dom}");
    Ok(())
}

/// The page is not blank: it has text, lines and the colours of both curves.
fn check_screenshot(image: &Image, width: usize) {
    assert_eq!(image.width, width);
    let colours = image.colours();
    assert!(colours.len() > 200, "only {} colours: the page is blank", colours.len());
    for curve in [[0x1f, 0x5f, 0xbf], [0xb5, 0x48, 0x0a]] {
        let pixels = colours.get(&curve).copied().unwrap_or(0);
        assert!(pixels > 100, "the curve of colour {curve:?} has {pixels} pixels");
    }
}

fn check_curves(path: &Path) -> Outcome {
    let image = Image::read(path)?;
    assert_eq!((image.width, image.height), (1600, 640));
    check_screenshot(&image, 1600);
    Ok(())
}
