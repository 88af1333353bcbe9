//! Which modules of the engine import which, beside the layers that ARCHITECTURE.md lists.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Names that `lib.rs` takes from a module.
const NAMES: [(&str, &str); 13] = [
    ("DType", "dtype"),
    ("Element", "dtype"),
    ("Kind", "dtype"),
    ("Scalar", "dtype"),
    ("Error", "error"),
    ("Result", "error"),
    ("Device", "device"),
    ("Gradients", "gradient"),
    ("GradientMode", "op"),
    ("no_grad", "op"),
    ("binary_functions", "op"),
    ("unary_functions", "op"),
    ("Tensor", "graph"),
];

/// The sources of each module, without tests.
fn sources(folder: &Path, module: Option<&str>, found: &mut BTreeMap<String, Vec<PathBuf>>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_stem().unwrap().to_str().unwrap().to_owned();
        if name.contains("tests") || name == "golden" || name == "lib" {
            continue;
        }
        let module = module.unwrap_or(&name);
        match entry.is_dir() {
            true => sources(&entry, Some(module), found),
            false => found.entry(module.to_owned()).or_default().push(entry),
        }
    }
}

/// The text without comments and test modules.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The first words of the paths after each `crate::`, those of a list in braces too.
fn imports(code: &str) -> BTreeSet<String> {
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let mut found = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let Some(list) = rest.strip_prefix('{') else {
            found.insert(word(rest));
            continue;
        };
        let (mut depth, mut item) = (1, String::new());
        for c in list.chars() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 || depth == 1 && c == ',' {
                found.insert(word(&item));
                item.clear();
            } else {
                item.push(c);
            }
            if depth == 0 {
                break;
            }
        }
    }
    found.remove("");
    found
}

/// The lines of the list below a heading of ARCHITECTURE.md: what is in backticks, in order.
fn listed(architecture: &str, heading: &str) -> Vec<Vec<String>> {
    let below = architecture.split_once(heading).expect(heading).1;
    let lines = below.lines().skip_while(|line| !line.starts_with("- ")).take_while(|line| !line.is_empty());
    let quoted = |line: &str| line.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    lines.filter(|line| line.starts_with("- ")).map(quoted).collect()
}

#[test]
fn imports_point_downwards() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let architecture = fs::read_to_string(root.join("../../ARCHITECTURE.md")).unwrap();
    let layers: Vec<String> = listed(&architecture, "The layers of `phynexus`")
        .into_iter()
        .map(|mut line| line.remove(0))
        .collect();
    let rank = |module: &str| layers.iter().position(|layer| layer == module);

    let mut modules = BTreeMap::new();
    sources(&root.join("src"), None, &mut modules);
    assert!(modules.len() >= 15, "{:?}", modules.keys());
    let mut upwards = BTreeSet::new();
    for (module, files) in &modules {
        let own = rank(module).unwrap_or_else(|| panic!("{module} is not among the layers: {layers:?}"));
        for file in files {
            for name in imports(&code(&fs::read_to_string(file).unwrap())) {
                let name = NAMES.iter().find(|(n, _)| *n == name).map_or(name.as_str(), |(_, module)| module);
                if rank(name).is_some_and(|other| other > own) {
                    upwards.insert((module.clone(), name.to_owned()));
                }
            }
        }
    }
    assert!(upwards.is_empty(), "these modules import modules of higher layers: {upwards:?}");
}
