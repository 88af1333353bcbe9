//! Imports between modules: those of the engine follow the layers in ARCHITECTURE.md, and no crate has a cycle.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// A crate's top-level modules, each with the modules that it imports and the files that do so.
type Imports = BTreeMap<String, BTreeMap<String, BTreeSet<PathBuf>>>;

/// The text without comments and test modules.
fn code(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let text = lines.collect::<Vec<_>>().join("\n");
    let mut parts = text.split("\n#[cfg(");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (condition, item) = part.split_once('\n').unwrap_or((part, ""));
        let is_module = item.lines().next().is_some_and(|line| line.contains("mod ") && line.ends_with('{'));
        match is_module && is_test(condition) {
            true => kept.push_str(item.split_once("\n}").map_or("", |(_, rest)| rest)),
            false => kept.push_str(&format!("\n#[cfg({part}")),
        }
    }
    kept
}

/// Whether a `cfg` condition such as `test)]` or `all(test, unix))]` holds only in tests.
fn is_test(condition: &str) -> bool {
    condition.starts_with("test)") || condition.starts_with("all(test,")
}

/// The identifiers of a text, in order.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The name that a line such as `pub(crate) mod name;` declares.
fn declared(line: &str) -> Option<&str> {
    let (visibility, name) = line.trim().strip_suffix(';')?.split_once("mod ")?;
    (visibility.is_empty() || visibility.starts_with("pub")).then_some(name)
}

/// The modules that a file declares, and those of them that exist only in tests.
fn declarations(code: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut all, mut of_tests, mut is_of_tests) = (BTreeSet::new(), BTreeSet::new(), false);
    for line in code.lines() {
        if let Some(name) = declared(line) {
            all.insert(name.to_owned());
            if is_of_tests {
                of_tests.insert(name.to_owned());
            }
        }
        is_of_tests = match line.trim().strip_prefix("#[cfg(") {
            Some(condition) => is_test(condition),
            None => is_of_tests && line.trim().starts_with("#["),
        };
    }
    (all, of_tests)
}

/// The first identifier of each path that follows `crate::`, including those of lists in braces.
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

/// A crate's sources without comments and tests, by path in `src`.
fn sources(src: &Path) -> BTreeMap<PathBuf, String> {
    fn read(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.is_dir() {
                true => read(&entry, found),
                false => found.extend(Some(entry).filter(|file| file.extension().is_some_and(|e| e == "rs"))),
            }
        }
    }
    let mut files = Vec::new();
    read(src, &mut files);
    let mut sources = BTreeMap::new();
    let mut of_tests = Vec::new();
    for file in files {
        let code = code(&fs::read_to_string(&file).unwrap());
        let path = file.strip_prefix(src).unwrap().to_owned();
        let is_folder = ["mod", "lib", "main"].iter().any(|stem| *stem == path.file_stem().unwrap());
        let folder = if is_folder { path.parent().unwrap().to_owned() } else { path.with_extension("") };
        of_tests.extend(declarations(&code).1.into_iter().map(|name| folder.join(name)));
        sources.insert(path, code);
    }
    sources.retain(|path, _| !of_tests.iter().any(|module| path.with_extension("").starts_with(module)));
    sources
}

/// The imports between a crate's modules, through `crate::` or an equivalent `super::`.
fn imports_of(src: &Path) -> Imports {
    let sources = sources(src);
    let is_root = |path: &Path| path == Path::new("lib.rs") || path == Path::new("main.rs");
    let roots: String =
        sources.iter().filter(|(path, _)| is_root(path)).map(|(_, code)| code.as_str()).collect();
    let modules = declarations(&roots).0;
    // The module of each name that the crate root re-exports, and of each exported macro.
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for statement in roots.split("use ").skip(1) {
        let mut path = words(statement.split(';').next().unwrap_or_default())
            .skip_while(|word| ["crate", "self"].contains(word));
        if let Some(module) = path.next().filter(|first| modules.contains(*first)) {
            names.extend(path.map(|name| (name.to_owned(), module.to_owned())));
        }
    }
    let module_of = |path: &Path| {
        let first = path.components().next().unwrap();
        Path::new(&first).with_extension("").to_str().unwrap().to_owned()
    };
    for (path, code) in &sources {
        for exported in code.split("#[macro_export]").skip(1) {
            let name = exported.split_once("macro_rules!").and_then(|(_, rest)| words(rest).next());
            names.extend(name.map(|name| (name.to_owned(), module_of(path))));
        }
    }
    let mut all: Imports = modules.iter().map(|module| (module.clone(), BTreeMap::new())).collect();
    for (path, code) in sources.iter().filter(|(path, _)| !is_root(path)) {
        let own = module_of(path);
        let depth = path.components().count() - usize::from(path.ends_with("mod.rs"));
        for name in imports(&code.replace(&"super::".repeat(depth), "crate::")) {
            let other = if modules.contains(&name) { Some(&name) } else { names.get(&name) };
            if let Some(other) = other.filter(|other| **other != own) {
                let files = all.entry(own.clone()).or_default().entry(other.clone()).or_default();
                files.insert(path.clone());
            }
        }
    }
    all
}

/// The modules on a cycle or between two cycles: those that remain after repeatedly removing modules that import no
/// other module or that no other module imports.
fn cycles(mut imports: Imports) -> Imports {
    loop {
        let before = imports.len();
        let known: BTreeSet<String> = imports.keys().cloned().collect();
        for others in imports.values_mut() {
            others.retain(|other, _| known.contains(other));
        }
        let imported: BTreeSet<String> = imports.values().flat_map(|others| others.keys().cloned()).collect();
        imports.retain(|module, others| !others.is_empty() && imported.contains(module));
        if imports.len() == before {
            return imports;
        }
    }
}

/// The names in backticks of the list that follows a line of ARCHITECTURE.md, in order.
fn listed(architecture: &str, heading: &str) -> Vec<Vec<String>> {
    let below = architecture.split_once(heading).expect(heading).1;
    let lines = below.lines().skip_while(|line| !line.starts_with("- ")).take_while(|line| !line.is_empty());
    let quoted = |line: &str| line.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    lines.filter(|line| line.starts_with("- ")).map(quoted).collect()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn imports_point_downwards() {
    let architecture = fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    let layers: Vec<String> = listed(&architecture, "The layers of `phynexus`")
        .into_iter()
        .map(|mut line| line.remove(0))
        .collect();
    let modules = imports_of(&repository().join("crates/phynexus/src"));
    assert!(modules.len() >= 15, "{:?}", modules.keys());
    let rank = |module: &str| {
        let rank = layers.iter().position(|layer| layer == module);
        rank.unwrap_or_else(|| panic!("{module} is not among the layers: {layers:?}"))
    };
    for (module, others) in &modules {
        let own = rank(module);
        let upwards: Vec<_> = others.iter().filter(|(other, _)| rank(other) > own).collect();
        assert!(upwards.is_empty(), "{module} imports modules of higher layers: {upwards:?}");
    }
}

/// The crates of this project that a crate's sources may use.
fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(manifest).unwrap();
    let all = text.split_once("\n[dependencies]\n").map_or("", |(_, rest)| rest);
    let own = all.split("\n[").next().unwrap_or_default().lines();
    let name = |line: &str| line.split(['.', ' ', '=']).next().unwrap_or_default().to_owned();
    let is_ours = |name: &String| repository().join("crates").join(name).is_dir();
    own.map(name).filter(|name| !name.is_empty() && is_ours(name)).collect()
}

#[test]
fn crates_use_what_the_table_of_crates_says() {
    let architecture = fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    let table = architecture.split_once("| crate | purpose | may use |").unwrap().1;
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let mut known = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let &[name, _, may_use] = cells.as_slice() else { panic!("{row}") };
        let name = name.trim_matches('`').trim_end_matches('/');
        let places = [repository().join("crates").join(name), repository().join(name)];
        let Some(folder) = places.iter().find(|place| place.join("Cargo.toml").is_file()) else { continue };
        let listed = may_use.replace("the device crates", "cpu cuda directml hip npu opencl wgpu");
        let device = |word: &str| match word {
            "cpu" | "cuda" | "directml" | "hip" | "npu" | "opencl" | "wgpu" => format!("phynexus-{word}"),
            word => word.trim_matches('`').to_owned(),
        };
        let listed: BTreeSet<String> = match listed.starts_with("no crate") {
            true => BTreeSet::new(),
            false => listed.split([',', ' ']).filter(|word| !word.is_empty()).map(device).collect(),
        };
        assert_eq!(dependencies(&folder.join("Cargo.toml")), listed, "{name}");
        known += 1;
    }
    assert_eq!(known, fs::read_dir(repository().join("crates")).unwrap().count() + 2, "python and xtask");
}

#[test]
fn no_crate_has_a_cycle_of_modules() {
    let mut folders: Vec<PathBuf> = fs::read_dir(repository().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .chain(["python", "xtask"].map(|name| repository().join(name)))
        .filter(|folder| folder.join("src").is_dir())
        .collect();
    folders.sort();
    assert!(folders.len() >= 10, "{folders:?}");
    for folder in folders {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let modules = imports_of(&folder.join("src"));
        assert!(!modules.is_empty(), "{name} has no modules");
        let cycles = cycles(modules);
        assert!(cycles.is_empty(), "modules of {name} import each other: {cycles:#?}");
    }
}

#[test]
fn cycles_are_found() {
    let tests = "\n#[cfg(test)]\nmod tests {\n    use crate::d;\n}\n";
    let text = format!("use crate::{{b::{{X, Y}}, c}};{tests}// crate::e\ncrate::f::g();");
    let found: Vec<String> = imports(&code(&text)).into_iter().collect();
    assert_eq!(found, ["b", "c", "f"]);
    let graph = |edges: &[(&str, &str)]| {
        let mut all = Imports::new();
        for (from, to) in edges {
            all.entry((*to).to_owned()).or_default();
            all.entry((*from).to_owned()).or_default().insert((*to).to_owned(), BTreeSet::new());
        }
        all
    };
    assert!(cycles(graph(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
    let left = cycles(graph(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]));
    assert_eq!(left.keys().collect::<Vec<_>>(), ["b", "c"]);
}
