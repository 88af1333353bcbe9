//! The command with tables: training on and predicting CSV files.

use std::{io::Write, path::Path, process::Output};

use super::command::{Outcome, json, message, neurenix};

/// Writes 200 points, each with the side of a line it is on.
fn points(folder: &Path) -> std::io::Result<()> {
    let mut table = String::from("x,y,side\n");
    for i in 0..200 {
        let (x, y) = (f64::from(i % 20) / 10.0 - 1.0, f64::from(i / 20) / 5.0 - 1.0);
        table.push_str(&format!("{x},{y},{}\n", if x + 0.2 * y > 0.0 { "above" } else { "below" }));
    }
    std::fs::write(folder.join("points.csv"), table)
}

#[test]
fn tables_are_learned_and_predicted() -> Outcome {
    let folder = tempfile::tempdir()?;
    points(folder.path())?;
    let arguments = ["train", "csv", "--path", "points.csv", "--label", "side", "--epochs", "60"];
    let output = neurenix(&arguments, folder.path())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", message(&output));
    // A fifth of 200 for testing, a tenth of the rest for validation.
    assert!(text.contains("144 training, 16 validation and 40 test samples"), "{text}");
    let metrics: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("runs/csv-mlp/metrics.json"))?)?;
    let accuracy = metrics["epochs"][59]["validation_accuracy"].as_f64();
    assert!(accuracy.is_some_and(|a| a > 0.9), "{text}");

    // Columns are matched by name: in any order, with or without the label.
    let classes = |contents: &str| -> Result<[String; 2], Box<dyn std::error::Error>> {
        std::fs::write(folder.path().join("new.csv"), contents)?;
        let predictions = json(&neurenix(&["predict", "runs/csv-mlp", "new.csv", "--json"], folder.path())?)?;
        Ok([0, 1].map(|row| predictions[row]["class"].as_str().unwrap_or_default().to_owned()))
    };
    let expected = ["above", "below"].map(str::to_owned);
    assert_eq!(classes("x,y\n0.9,-0.9\n-0.9,0.9\n")?, expected);
    assert_eq!(classes("y,x\n-0.9,0.9\n0.9,-0.9\n")?, expected);
    assert_eq!(classes("side,y,x\n,-0.9,0.9\n,0.9,-0.9\n")?, expected);
    let refusals = [
        ("x,z\n1,2\n", "\"z\", which is not a column of the model"),
        ("x\n1\n", "column \"y\" is missing"),
        ("0.9,-0.9\n", "it must name the columns"),
    ];
    for (contents, expected) in refusals {
        std::fs::write(folder.path().join("new.csv"), contents)?;
        let output = neurenix(&["predict", "runs/csv-mlp", "new.csv"], folder.path())?;
        assert!(!output.status.success() && message(&output).contains(expected), "{}", message(&output));
    }

    // NaN is not a valid input.
    let nan = neurenix::data::HostArray::from_values(&[2, 2], &[0.5f32, 0.5, 0.1, f32::NAN])?;
    neurenix::data::write_npy(&folder.path().join("nan.npy"), &nan)?;
    let output = neurenix(&["predict", "runs/csv-mlp", "nan.npy"], folder.path())?;
    assert_eq!(output.status.code(), Some(1));
    assert!(message(&output).contains("row 1, column y is NaN"), "{}", message(&output));
    Ok(())
}

#[test]
fn mistakes_in_a_table_are_shown_with_line_and_values() -> Outcome {
    let folder = tempfile::tempdir()?;
    let mut table = String::from("left,right,side\n");
    // Labels that no feature predicts.
    for i in 0..60u32 {
        let label = i.wrapping_mul(2_654_435_761) >> 16;
        table.push_str(&format!("{i}.5,{},{}\n", i % 7, ["p", "q"][(label % 2) as usize]));
    }
    std::fs::write(folder.path().join("noise.csv"), table)?;
    let arguments = ["train", "csv", "--path", "noise.csv", "--epochs", "2", "--out", "run"];
    let output = neurenix(&arguments, folder.path())?;
    assert!(output.status.success(), "{}", message(&output));
    let page = std::fs::read_to_string(folder.path().join("run/report.html"))?;
    let item = page.split("<ul class=\"mistakes\">").nth(1).ok_or("no mistakes")?;
    let after = |text: &str, mark: &str| -> Option<String> {
        Some(text.split(mark).nth(1)?.split('<').next()?.to_owned())
    };
    let line: u32 = after(item, "<small>line ").ok_or("no line")?.parse()?;
    let left = after(item, "<small>left ").ok_or("no value")?;
    assert_eq!(left, format!("{}.5", line - 2));
    Ok(())
}

#[test]
fn quantities_of_any_size_are_learned() -> Outcome {
    let folder = tempfile::tempdir()?;
    let mut table = String::from("area,rooms,price\n");
    let price = |area: i32, rooms: i32| 200_000 + 3_000 * area + 15_000 * rooms;
    for i in 0..300 {
        let (area, rooms) = (40 + i * 37 % 160, 1 + i * 11 % 6);
        table.push_str(&format!("{area},{rooms},{}\n", price(area, rooms)));
    }
    std::fs::write(folder.path().join("prices.csv"), table)?;
    let arguments = ["train", "csv", "--path", "prices.csv", "--regression", "--epochs", "60", "--json"];
    let outcome = json(&neurenix(&arguments, folder.path())?)?;
    assert!(outcome["test_r2"].as_f64().is_some_and(|r2| r2 > 0.97), "{outcome}");
    // The standard deviation of the prices is about 140000.
    assert!(outcome["test_rmse"].as_f64().is_some_and(|error| error < 25_000.0), "{outcome}");

    std::fs::write(folder.path().join("new.csv"), "rooms,area\n3,100\n5,150\n")?;
    let predictions = json(&neurenix(&["predict", "runs/csv-mlp", "new.csv", "--json"], folder.path())?)?;
    for (row, truth) in [(0, price(100, 3)), (1, price(150, 5))] {
        let value = predictions[row]["values"][0].as_f64().ok_or("no value")?;
        assert!((value / f64::from(truth) - 1.0).abs() < 0.1, "{value} for {truth}");
    }
    Ok(())
}

#[test]
fn control_characters_of_a_table_do_not_reach_the_terminal() -> Outcome {
    let folder = tempfile::tempdir()?;
    let rows: String =
        (0..60).map(|i| format!("{},{}\n", i % 7, ["\u{1b}[31mred", "\u{9b}2Jgone"][i % 2])).collect();
    std::fs::write(folder.path().join("rows.csv"), format!("x\u{1b}]0;title\u{7},side\u{8}\n{rows}"))?;
    let no_controls = |output: &Output| {
        let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        text
    };
    let train =
        neurenix(&["train", "csv", "--path", "rows.csv", "--epochs", "1", "--out", "run"], folder.path())?;
    assert!(train.status.success(), "{}", message(&train));
    assert!(no_controls(&train).contains(r"predicting column side\u{8}"));
    std::fs::write(folder.path().join("new.csv"), "x\u{1b}]0;title\u{7}\n1\n2\n")?;
    let named = no_controls(&neurenix(&["predict", "run", "new.csv"], folder.path())?);
    assert!(named.contains(r"\u{1b}[31mred") || named.contains(r"\u{9b}2Jgone"), "{named}");
    let told = neurenix(&["predict", "run", "new.csv", "--json"], folder.path())?;
    no_controls(&told);
    let class = json(&told)?[0]["class"].as_str().unwrap_or_default().to_owned();
    assert!(["\u{1b}[31mred", "\u{9b}2Jgone"].contains(&class.as_str()), "{class:?}");
    // Names in messages: a missing column, and a value in the settings.
    std::fs::write(folder.path().join("other.csv"), "\u{1b}[2J\n1\n")?;
    assert!(
        no_controls(&neurenix(&["predict", "run", "other.csv"], folder.path())?)
            .contains("not a column of the model")
    );
    let config = folder.path().join("run/config.json");
    let text = std::fs::read_to_string(&config)?.replace("\"mlp\"", "\"\\u001b[2J\"");
    std::fs::write(&config, text)?;
    assert!(
        no_controls(&neurenix(&["predict", "run", "new.csv"], folder.path())?).contains("unknown variant")
    );
    Ok(())
}

#[test]
fn inputs_that_do_not_fit_into_memory_are_refused() -> Outcome {
    let folder = tempfile::tempdir()?;
    points(folder.path())?;
    let train = ["train", "csv", "--path", "points.csv", "--epochs", "1", "--out", "run"];
    assert!(neurenix(&train, folder.path())?.status.success());
    // The start of a decompression bomb whose header promises eight terabytes, and a mostly sparse file.
    let header = [0, 0, 8, 3, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 8, 0];
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(&header)?;
    packed.flush()?;
    for (name, start) in [("bomb-idx3-ubyte.gz", packed.finish()?), ("hole.csv", b"x,y\n1,2\n".to_vec())] {
        let path = folder.path().join(name);
        std::fs::write(&path, start)?;
        if std::fs::File::options().write(true).open(&path)?.set_len(1 << 43).is_err() {
            return Ok(()); // Some file systems lack sparse files.
        }
        let output = neurenix(&["predict", "run", name], folder.path())?;
        let text = message(&output);
        assert!(
            output.status.code() == Some(1) && text.contains("bytes of memory"),
            "{}: {text}",
            output.status
        );
    }
    Ok(())
}
