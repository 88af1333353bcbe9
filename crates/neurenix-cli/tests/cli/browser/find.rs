//! Locates Chromium. Shared by the report's test and by the development command that installs Chromium.

use std::path::PathBuf;

/// If this variable is set, tests skip the browser.
pub(crate) const SKIP: &str = "NEURENIX_SKIP_BROWSER";

/// Finds Chromium on the search path, or where macOS installs it.
pub(crate) fn find_browser() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&search_path).collect();
    let on_path = folders.iter().flat_map(|folder| names.map(|name| folder.join(name)));
    let applications = ["Chromium", "Google Chrome"]
        .map(|name| PathBuf::from(format!("/Applications/{name}.app/Contents/MacOS/{name}")));
    on_path.chain(applications).find(|program| program.is_file())
}
