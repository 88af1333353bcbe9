//! Tests of `neurenix quantize`.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    process::{Command, Output},
};

use neurenix::{
    data::{self, Compression, HostArray},
    onnx::{
        Element, Model,
        edit::{Network, floats, info, node},
        proto::{
            DimensionKind, DimensionProto, GraphProto, ModelProto, OperatorSetIdProto, TypeKind,
            ValueInfoProto,
        },
    },
    phynexus::{DType, Device, Tensor, tensor::Generator},
};

use crate::browser::Browser;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Runs the command without vendors' tools.
fn neurenix(arguments: &[&str], folder: &Path) -> std::io::Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_neurenix"))
        .args(arguments)
        .current_dir(folder)
        .env("PATH", "")
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env_remove("RNN_NPU_PATH")
        .env_remove("VIRTUAL_ENV")
        .output()
}

/// What `neurenix quantize` prints, if it succeeds.
fn quantize(arguments: &[&str], folder: &Path) -> Result<String, Box<dyn std::error::Error>> {
    let output = neurenix(&[&["quantize"], arguments].concat(), folder)?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?),
        false => Err(String::from_utf8_lossy(&output.stderr).into()),
    }
}

/// That `neurenix quantize` fails with a message that has this text, and writes no network.
fn refuses(arguments: &[&str], folder: &Path, text: &str) -> Outcome {
    let output = neurenix(&[&["quantize"], arguments, &["--output", "refused.onnx"]].concat(), folder)?;
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains(text), "{arguments:?}: {text}\n{message}");
    assert!(!folder.join("refused.onnx").exists());
    Ok(())
}

/// The digits and their classes as files, and a network that was trained on them.
fn trained(folder: &Path) -> Outcome {
    let options = ["--epochs", "8", "--hidden", "32", "--device", "cpu", "--out", "run"];
    let output = neurenix(&[&["train", "digits"], &options[..]].concat(), folder)?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let digits = data::digits()?;
    data::write_npy(&folder.join("images.npy"), digits.stored_inputs())?;
    data::write_npy(&folder.join("labels.npy"), digits.stored_targets())?;
    Ok(())
}

/// An input with any number of rows.
fn rows_of(name: &str, columns: usize) -> ValueInfoProto {
    let mut input = info(name, Element::Float, &[1, columns]);
    if let Some(TypeKind::Tensor(tensor)) = input.r#type.as_mut().and_then(|t| t.value.as_mut()) {
        let rows = DimensionProto { value: Some(DimensionKind::Parameter("rows".to_owned())) };
        tensor.shape.get_or_insert_default().dim[0] = rows;
    }
    input
}

/// A file with a network: the product of the sum of the inputs and a matrix of so many columns.
fn save(path: &Path, inputs: Vec<ValueInfoProto>, columns: usize) -> Outcome {
    neurenix::register_cpu();
    let weight: Vec<f32> = (0..4 * columns).map(|at| (at as f32 * 0.7).sin()).collect();
    let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    let graph = GraphProto {
        name: "network".to_owned(),
        node: vec![
            node("Sum", "sum", &names, &["h"], Vec::new()),
            node("MatMul", "product", &["h", "weight"], &["y"], Vec::new()),
        ],
        initializer: vec![floats("weight", &[4, columns], &weight)],
        input: inputs,
        output: vec![rows_of("y", columns)],
        ..GraphProto::default()
    };
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 21 }];
    let proto = ModelProto { ir_version: 10, opset_import, graph: Some(graph), ..ModelProto::default() };
    Ok(neurenix::onnx::save(&Network::new(proto)?.to_proto(), path)?)
}

/// So many rows of four numbers.
fn numbers(rows: usize) -> Result<HostArray, Box<dyn std::error::Error>> {
    let numbers: Vec<f64> = (0..rows * 4).map(|at| (at as f64 * 1.3).cos()).collect();
    Ok(HostArray::from_values(&[rows, 4], &numbers)?)
}

/// How often a network's greatest output is the class, for `count` rows of the digits, evenly spaced. Batches are those
/// of the command: scales of dynamic quantization depend on them.
fn accuracy(path: &Path, count: usize) -> Result<f64, Box<dyn std::error::Error>> {
    neurenix::register_cpu();
    let device = Device::find("cpu")?;
    let model = Model::load(path, device)?;
    let digits = data::digits()?;
    let places: Vec<usize> = (0..count).map(|row| row * digits.len() / count).collect();
    let mut right = 0;
    for places in places.chunks(32) {
        let rows = digits.stored_inputs().take_rows(places)?.cast(DType::F32);
        let x = Tensor::from_slice(&rows.to_vec::<f32>()?, rows.shape(), device)?;
        let outputs = model.run(HashMap::from([("input".to_owned(), x.into())]), &Generator::new(0))?;
        let classes = outputs[0].tensor()?.argmax(Some(-1), false)?.to_vec::<i64>()?;
        let truth = digits.stored_targets().take_rows(places)?.cast(DType::I64).to_vec::<i64>()?;
        right += classes.iter().zip(&truth).filter(|(class, truth)| class == truth).count();
    }
    Ok(right as f64 / count as f64)
}

#[test]
fn quantize_makes_a_network_of_a_run_with_accuracy_and_report() -> Outcome {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    trained(folder)?;
    let common = ["run", "--calibrate", "images.npy", "--labels", "labels.npy"];
    let text = quantize(&[&common[..], &["--rows", "300", "--report", "report.html"]].concat(), folder)?;
    let after = accuracy(&folder.join("run/quantized.onnx"), 300)?;
    assert!(after > 0.8, "{after}");
    assert!(text.contains(&format!("accuracy {:.2} %, ", after * 100.0)), "{after}: {text}");
    let page = std::fs::read_to_string(folder.join("report.html"))?;
    for part in ["<section id=\"summary\"", "<section id=\"layers\"", "<dt>Accuracy</dt>", "<h1>run</h1>"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<section id=\"placement\""), "nothing was compiled");
    let bytes = |path: &str| std::fs::metadata(folder.join(path)).map(|file| file.len());
    let exported = neurenix(&["export", "run", "float.onnx"], folder)?;
    assert!(exported.status.success() && bytes("run/quantized.onnx")? < bytes("float.onnx")?);

    let limited = [&common[..], &["--max-drop", "0.02", "--output", "limited.onnx"]].concat();
    assert!(quantize(&limited, folder)?.contains("limited.onnx"));
    let (before, after) =
        (accuracy(&folder.join("float.onnx"), 256)?, accuracy(&folder.join("limited.onnx"), 256)?);
    assert!(after >= before - 0.02, "{before} {after}");

    // Without data, and with data for the comparison alone.
    for (option, file) in [(&["--dynamic"][..], "dynamic.onnx"), (&["--weight-only", "8"], "weights.onnx")] {
        let alone = quantize(&[&["run", "--output", file], option].concat(), folder)?;
        assert!(!alone.contains("accuracy") && !alone.contains("output probabilities"), "{alone}");
        let compared = quantize(&[&common[..], &["--output", file], option].concat(), folder)?;
        let after = accuracy(&folder.join(file), 256)?;
        assert!(compared.contains(&format!("accuracy {:.2} %, ", after * 100.0)), "{after}: {compared}");
        assert!(compared.contains("output probabilities"), "the differences: {compared}");
    }
    data::write_npy(&folder.join("high.npy"), &HostArray::from_values(&[1797], &[10i64; 1797])?)?;
    let high = ["run", "--calibrate", "images.npy", "--labels", "high.npy"];
    refuses(&high, folder, "--labels has the class 10, the network has 10 classes")
}

#[test]
fn quantize_reads_the_inputs_of_an_onnx_file() -> Outcome {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    save(&folder.join("one.onnx"), vec![rows_of("x", 4)], 3)?;
    // The file has float64, the network takes float32.
    data::write_npy(&folder.join("x.npy"), &numbers(40)?)?;
    let text = quantize(&["one.onnx", "--calibrate", "x.npy"], folder)?;
    assert!(text.contains("product") && text.contains("one.quantized.onnx"), "{text}");
    assert!(folder.join("one.quantized.onnx").exists());
    refuses(&["one.quantized.onnx", "--calibrate", "x.npy"], folder, "quantized already")?;

    save(&folder.join("two.onnx"), vec![rows_of("a", 4), rows_of("b", 4)], 3)?;
    let arrays = |a: usize, b: usize, second: &str| -> Result<_, Box<dyn std::error::Error>> {
        Ok(BTreeMap::from([("a".to_owned(), numbers(a)?), (second.to_owned(), numbers(b)?)]))
    };
    let path = folder.join("both.npz");
    data::write_npz(&path, &arrays(40, 40, "b")?, Compression::Deflated)?;
    assert!(quantize(&["two.onnx", "--calibrate", "both.npz"], folder)?.contains("two.quantized.onnx"));
    refuses(&["two.onnx", "--calibrate", "x.npy"], folder, "inputs a, b: give .npz with each")?;
    data::write_npz(&path, &arrays(40, 30, "b")?, Compression::Stored)?;
    refuses(&["two.onnx", "--calibrate", "both.npz"], folder, "b has 30 rows, a has 40")?;
    data::write_npz(&path, &arrays(40, 40, "c")?, Compression::Stored)?;
    refuses(&["two.onnx", "--calibrate", "both.npz"], folder, "an array for each input: a, b")?;

    // A weight that is also an input has a default: no rows are needed for it.
    save(&folder.join("default.onnx"), vec![rows_of("x", 4)], 3)?;
    let mut network = Network::load(&folder.join("default.onnx"))?;
    network.graph.input.push(info("weight", Element::Float, &[4, 3]));
    neurenix::onnx::save(&network.to_proto(), &folder.join("default.onnx"))?;
    assert!(quantize(&["default.onnx", "--calibrate", "x.npy"], folder)?.contains("product"));

    // A network of a fixed number of rows gets so many at a time.
    save(&folder.join("fixed.onnx"), vec![info("x", Element::Float, &[3, 4])], 3)?;
    assert!(quantize(&["fixed.onnx", "--calibrate", "x.npy"], folder)?.contains("product"));
    let few = ["fixed.onnx", "--calibrate", "x.npy", "--rows", "2"];
    refuses(&few, folder, "takes 3 rows at a time, and only 2 are in use")?;

    save(&folder.join("integers.onnx"), vec![info("x", Element::Int32, &[3, 4])], 3)?;
    refuses(&["integers.onnx", "--calibrate", "x.npy"], folder, "which int32 cannot hold")
}

#[test]
fn quantize_refuses_labels_that_it_cannot_compare() -> Outcome {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    data::write_npy(&folder.join("x.npy"), &numbers(40)?)?;
    let labels = |name: &str, classes: &[f32]| {
        data::write_npy(&folder.join(name), &HostArray::from_values(&[classes.len()], classes)?)
    };
    labels("zeros.npy", &[0.0; 40])?;
    labels("halves.npy", &[0.5; 40])?;
    labels("negative.npy", &[-1.0; 40])?;
    labels("few.npy", &[0.0; 39])?;
    save(&folder.join("single.onnx"), vec![rows_of("x", 4)], 1)?;
    save(&folder.join("three.onnx"), vec![rows_of("x", 4)], 3)?;
    let with = |model: &'static str, labels: &'static str, text: &str| {
        refuses(&[model, "--calibrate", "x.npy", "--labels", labels], folder, text)
    };
    with(
        "single.onnx",
        "zeros.npy",
        "has the shape [32, 1] for 32 rows: --labels needs a score for each class",
    )?;
    with("three.onnx", "halves.npy", "it has 0.5, which int64 cannot hold")?;
    with("three.onnx", "negative.npy", "row 0 has the class -1")?;
    with("three.onnx", "few.npy", "it has 39 classes for 40 rows")?;
    // A score for each class, but none for each row.
    let mut network = Network::load(&folder.join("three.onnx"))?;
    network.graph.node.push(node("ReduceMax", "largest", &["y"], &["m"], Vec::new()));
    if let Some(last) = network.graph.node.last_mut() {
        last.attribute.push(neurenix::onnx::edit::integer_attribute("keepdims", 0));
        last.input.push("axis".to_owned());
    }
    let axis = neurenix::onnx::edit::integers("axis", Element::Int64, &[1], &[1]);
    network.store(axis);
    network.graph.output = vec![ValueInfoProto { name: "m".to_owned(), r#type: None }];
    neurenix::onnx::save(&network.to_proto(), &folder.join("flat.onnx"))?;
    with("flat.onnx", "zeros.npy", "has the shape [32] for 32 rows")
}

#[test]
fn quantize_refuses_options_that_would_have_no_effect() -> Outcome {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    save(&folder.join("network.onnx"), vec![rows_of("x", 4)], 3)?;
    for option in [
        &["--activations", "int16"][..],
        &["--calibrator", "mse"],
        &["--equalize"],
        &["--smooth", "0.5"],
        &["--bias-correction"],
        &["--adaptive-rounding"],
    ] {
        for mode in [&["--weight-only", "8"][..], &["--dynamic"]] {
            refuses(&[&["network.onnx"], mode, option].concat(), folder, "cannot be used with")?;
        }
    }
    for option in [&["--per-tensor"][..], &["--weights", "int8"], &["--dynamic"]] {
        let weights = [&["network.onnx", "--weight-only", "8"], option].concat();
        refuses(&weights, folder, "cannot be used with")?;
    }
    for option in [&["--rows", "8"][..], &["--labels", "x.npy"]] {
        refuses(&[&["network.onnx", "--dynamic"], option].concat(), folder, "--calibrate <FILE>")?;
    }
    refuses(&["network.onnx"], folder, "give --calibrate FILE, or choose --dynamic or --weight-only")?;
    refuses(&["network.onnx", "--dynamic", "--strict"], folder, "--device <DEVICE>")?;
    assert!(quantize(&["network.onnx", "--dynamic", "--per-tensor"], folder)?.contains("product"));
    Ok(())
}

#[test]
fn quantize_overwrites_neither_its_input_nor_its_output() -> Outcome {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    save(&folder.join("network.onnx"), vec![rows_of("x", 4)], 3)?;
    let before = std::fs::read(folder.join("network.onnx"))?;
    let dynamic = |more: &[&'static str]| [&["network.onnx", "--dynamic"], more].concat();
    let same = quantize(&dynamic(&["-o", "./network.onnx"]), folder);
    assert!(same.is_err_and(|e| e.to_string().contains("the model and --output are the same file")));
    refuses(&dynamic(&["--report", "network.onnx"]), folder, "the model and --report are the same file")?;
    refuses(&dynamic(&["--report", "refused.onnx"]), folder, "--output and --report are the same file")?;
    refuses(&dynamic(&["--rows", "-5", "--calibrate", "x.npy"]), folder, "a whole number of at least 1")?;
    assert_eq!(std::fs::read(folder.join("network.onnx"))?, before);
    quantize(&dynamic(&["-o", "made/here.onnx"]), folder)?;
    refuses(&["made/here.onnx", "--dynamic"], folder, "the network is quantized already")?;
    std::fs::write(folder.join("part.onnx"), &before[..before.len() / 2])?;
    refuses(&["part.onnx", "--dynamic"], folder, "part.onnx: this is not an ONNX file, or its end is missing")
}

#[test]
fn quantize_says_what_a_device_needs() -> Outcome {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    save(&folder.join("network.onnx"), vec![rows_of("x", 4)], 3)?;
    data::write_npy(&folder.join("x.npy"), &numbers(40)?)?;
    let on = |device: &'static str| ["network.onnx", "--calibrate", "x.npy", "--device", device];
    refuses(&["network.onnx", "--dynamic", "--device", "npu:0"], folder, "give --calibrate FILE")?;
    refuses(&on("npu:99"), folder, "there is no device \"npu:99\"")?;
    refuses(&on("npu:99"), folder, "files can be compiled for ethos-u55-32")?;
    refuses(&on("ethos-u55-128"), folder, "pip install ethos-u-vela")?;
    refuses(&on("edgetpu"), folder, "edgetpu_compiler was not found")
}

#[test]
#[ignore = "needs ethos-u-vela in RNN_NPU_PATH"]
fn quantize_writes_a_file_for_ethos_u() -> Outcome {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    trained(folder)?;
    let arguments =
        ["quantize", "run", "--calibrate", "images.npy", "--device", "ethos-u55-128", "--report", "r.html"];
    let output = Command::new(env!("CARGO_BIN_EXE_neurenix")).args(arguments).current_dir(folder).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(" of SRAM, ") && text.contains(" cycles"), "{text}");
    assert!(folder.join("run/quantized.onnx").exists());
    assert_eq!(&std::fs::read(folder.join("run/quantized.tflite"))?[4..8], b"TFL3");
    let page = std::fs::read_to_string(folder.join("r.html"))?;
    assert!(page.contains("<section id=\"placement\"") && page.contains("<td>ethos-u55-128</td>"));
    Ok(())
}

#[test]
fn a_browser_shows_the_quantization_report() -> Outcome {
    let Some(browser) = Browser::find()? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    save(&folder.join("network.onnx"), vec![rows_of("x", 4)], 3)?;
    data::write_npy(&folder.join("x.npy"), &numbers(40)?)?;
    quantize(&["network.onnx", "--calibrate", "x.npy", "--report", "report.html"], folder)?;
    let page = folder.join("report.html");
    let dom = browser.dump_dom(&page)?;
    for heading in ["Summary", "Error by layer"] {
        assert!(dom.contains(&format!(">{heading}</h2>")), "{heading}");
    }
    for width in [1200, 500] {
        let image = browser.screenshot(&page, width, 1000)?;
        assert_eq!(image.width, width as usize);
        assert!(image.colours().len() > 50, "the page is blank");
    }
    Ok(())
}
