//! Checks that the commands and options shown in README and `docs/` exist.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

fn help(subcommand: Option<&str>) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_neurenix"))
        .args(subcommand)
        .arg("--help")
        .output()
        .expect("the command should start");
    assert!(output.status.success(), "{subcommand:?} --help: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("help should be UTF-8")
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = std::fs::read_dir(root.join("docs")).expect("docs/ should be there");
    let mut pages = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    pages.extend(docs.filter_map(|entry| Some(entry.ok()?.path())).filter(|p| p.extension().is_some()));
    pages
}

/// The lines of a page's shell blocks that run the command, without the `cargo run` prefix.
fn shown_commands(text: &str) -> Vec<&str> {
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.flat_map(str::lines).filter_map(|line| line.strip_prefix("cargo run --release -- ")).collect()
}

#[test]
fn shown_commands_and_options_exist() {
    let mut shown = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page should be readable");
        for line in shown_commands(&text) {
            let mut words = line.split_whitespace();
            let help = help(words.next());
            for option in words.filter(|word| word.starts_with("--")) {
                assert!(help.contains(option), "{}: {line:?} has no {option}", page.display());
            }
            shown += 1;
        }
    }
    assert!(shown > 5, "only {shown} commands were found: did the format of the pages change?");
}

#[test]
fn the_readme_lists_every_command() {
    let help = help(None);
    let listing = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next());
    let commands: BTreeSet<&str> = listing
        .expect("help should list the commands")
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    let readme = std::fs::read_to_string(&pages()[0]).expect("README.md should be readable");
    let table =
        readme.split("| command | does |\n").nth(1).expect("README should have the table of commands");
    let listed: BTreeSet<&str> = table
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .filter_map(|line| line.split('`').nth(1))
        .collect();
    assert_eq!(listed, commands);
}
