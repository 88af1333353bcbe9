//! A function of one element is one row of a table. This test uses `sinc` to check it: the product's code names `sinc`
//! only in its definition, and everything else follows from the table.

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
    let code = code.to_lowercase();
    let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|found| found == word)
}

#[test]
fn a_function_of_one_element_is_named_only_where_it_is_defined() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path().join("src")) {
        sources(&folder, &mut files);
    }
    sources(&root.join("python/src"), &mut files);
    sources(&root.join("python/neurenix"), &mut files);
    assert!(files.len() > 300, "{} sources were found", files.len());
    let mut naming: Vec<String> = files
        .iter()
        .filter(|file| names(&fs::read_to_string(file).unwrap(), "sinc"))
        .map(|file| file.strip_prefix(&root).unwrap().display().to_string())
        .collect();
    naming.sort();
    // make_stubs.py writes the last one.
    let expected =
        ["crates/phynexus/src/op/special.rs", "crates/phynexus/src/op/unary.rs", "python/neurenix/_table.py"];
    assert_eq!(naming, expected);
    // The function exists in Rust and in Python's type stubs.
    let x = phynexus::Tensor::from_slice(&[0.0f64, 0.5], &[2], phynexus::oracle::reference_device()).unwrap();
    let y = x.sinc().unwrap().to_vec::<f64>().unwrap();
    assert_eq!(y[0], 1.0);
    assert!((y[1] - std::f64::consts::FRAC_2_PI).abs() < 1e-15, "{}", y[1]);
    let stubs = fs::read_to_string(root.join("python/neurenix/_engine.pyi")).unwrap();
    assert!(stubs.contains("def sinc("));
}
