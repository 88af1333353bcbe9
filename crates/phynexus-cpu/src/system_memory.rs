//! The memory of the machine, or of the container, as Linux tells it.

use std::{fs::read_to_string, path::Path};

/// Bytes of the machine.
pub(crate) fn total() -> Option<u64> {
    figure(&read_to_string("/proc/meminfo").ok()?, "MemTotal:")?.checked_mul(1024)
}

/// Bytes that can still be taken without swapping: what is free of the machine, or less where a control group, such as a
/// container's, has a limit.
pub(crate) fn available() -> Option<u64> {
    let free = figure(&read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?.checked_mul(1024)?;
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup");
    // A group's limit holds for the groups in it too.
    let groups = Path::new(own).ancestors().map(|group| root.join(group));
    Some(groups.filter_map(|group| left(&group)).fold(free, u64::min))
}

/// Bytes that a control group has left; nothing if it has no limit. Pages of files are given up where they are in the way.
fn left(group: &Path) -> Option<u64> {
    let limit: u64 = read_to_string(group.join("memory.max")).ok()?.trim().parse().ok()?;
    let used: u64 = read_to_string(group.join("memory.current")).ok()?.trim().parse().ok()?;
    let statistics = read_to_string(group.join("memory.stat")).unwrap_or_default();
    let of_files = |name| figure(&statistics, name).unwrap_or(0);
    let pages = of_files("active_file ").saturating_add(of_files("inactive_file "));
    Some(limit.saturating_sub(used.saturating_sub(pages)))
}

/// The number behind a name that begins a line.
fn figure(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_left_what_it_does_not_use_but_for_files() {
        let group = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(group.path().join(name), text).unwrap();
        assert_eq!(left(group.path()), None);
        write("memory.max", "1000\n");
        write("memory.current", "900\n");
        assert_eq!(left(group.path()), Some(100));
        write("memory.stat", "anon 600\nactive_file 100\ninactive_file 200\n");
        assert_eq!(left(group.path()), Some(400));
        write("memory.max", "max\n");
        assert_eq!(left(group.path()), None);
    }

    #[test]
    fn no_more_is_available_than_there_is() {
        assert!(available() <= total());
    }
}
