//! An operation is defined once, and everything else follows from its definition. These tests check it: the product's
//! code names a function of one element in its row only, and a composite with a layer in four files.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Finds the product's sources in a folder and its subfolders, without tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_name().unwrap().to_str().unwrap();
        let is_source =
            ["rs", "py"].iter().any(|extension| entry.extension().is_some_and(|e| e == *extension));
        match entry.is_dir() {
            true if ["tests", "golden", "target"].contains(&name) => {}
            true => sources(&entry, found),
            false if is_source && !name.contains("tests") => found.push(entry),
            false => {}
        }
    }
}

/// True if the code, without its comments and test modules, contains the word.
fn names(code: &str, word: &str) -> bool {
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code = code.lines().filter_map(|line| line.split("//").next()).collect::<Vec<_>>().join("\n");
    let (code, word) = (code.to_lowercase(), word.to_lowercase());
    let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|found| found == word)
}

/// The product's files that contain one of the words, apart from those that `python/make_stubs.py` writes, from `rnn`
/// and `neurenix.special` and `torch`, which offer a selection, and from `neurenix-onnx`, which names what another format has an
/// operator for.
fn files_that_name(words: &[&str]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path().join("src")) {
        sources(&folder, &mut files);
    }
    sources(&root.join("python/src"), &mut files);
    sources(&root.join("python/neurenix"), &mut files);
    files.retain(|file| {
        ["rnn", "neurenix-onnx", "neurenix-quantize", "phynexus-npu"]
            .iter()
            .all(|name| !file.starts_with(root.join("crates").join(name)))
    });
    assert!(files.len() > 300, "{} sources were found", files.len());
    let written = |file: &Path| fs::read_to_string(file).unwrap();
    files.retain(|file| {
        !file.ends_with("neurenix/special.py") && !file.ends_with("neurenix/nn/_top_level.py")
    });
    files.retain(|file| words.iter().any(|word| names(&written(file), word)));
    files.retain(|file| !written(file).contains("Made by make_stubs.py: do not edit."));
    let mut found: Vec<String> =
        files.iter().map(|file| file.strip_prefix(&root).unwrap().display().to_string()).collect();
    found.sort();
    found
}

fn stubs() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join("python/neurenix/_engine.pyi")).unwrap()
}

fn reference(values: &[f64], shape: &[usize]) -> phynexus::Tensor {
    phynexus::Tensor::from_slice(values, shape, phynexus::oracle::reference_device()).unwrap()
}

#[test]
fn a_function_of_one_element_is_named_only_where_it_is_defined() {
    let expected = ["crates/phynexus/src/op/special.rs", "crates/phynexus/src/op/unary.rs"];
    assert_eq!(files_that_name(&["sinc"]), expected);
    // The function exists in Rust and in Python's type stubs.
    let y = reference(&[0.0, 0.5], &[2]).sinc().unwrap().to_vec::<f64>().unwrap();
    assert_eq!(y[0], 1.0);
    assert!((y[1] - std::f64::consts::FRAC_2_PI).abs() < 1e-15, "{}", y[1]);
    assert!(stubs().contains("def sinc("));
}

#[test]
fn a_composite_with_a_layer_is_named_in_four_files() {
    let expected = [
        "crates/neurenix/src/nn/activation.rs",
        "crates/phynexus/src/op/composite/mish.rs",
        "crates/phynexus/src/op/composite/mod.rs",
        "python/neurenix/nn/activation.py",
    ];
    assert_eq!(files_that_name(&["mish"]), expected);
    let y = reference(&[1.0], &[1]).mish().unwrap().item::<f64>().unwrap();
    assert!((y - 0.865_098_388_267_310_3).abs() < 1e-15, "{y}");
    assert!(stubs().contains("def mish("));
    // One with operands, attributes and parameters. Instance normalisation is another function of it.
    let expected = [
        "crates/neurenix/src/nn/normalization.rs",
        "crates/phynexus/src/op/composite/group_norm.rs",
        "crates/phynexus/src/op/composite/mod.rs",
        "crates/phynexus/src/tensor/neural/normalization.rs",
        "python/neurenix/nn/normalization.py",
    ];
    assert_eq!(files_that_name(&["group_norm", "GroupNorm"]), expected);
    let y = reference(&[1.0, 3.0], &[1, 2]).group_norm(1, None, None, 0.0).unwrap();
    assert_eq!(y.to_vec::<f64>().unwrap(), [-1.0, 1.0]);
    assert!(stubs().contains("def group_norm("));
}
