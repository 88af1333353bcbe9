//! The memory of the machine or the container, as reported by Linux.

use std::{fs::read_to_string, path::Path};

/// Total memory of the machine in bytes.
pub(crate) fn total() -> Option<u64> {
    figure(&read_to_string("/proc/meminfo").ok()?, "MemTotal:")?.checked_mul(1024)
}

/// Bytes available without swapping: the machine's available memory, or less if a control group, such as a container's,
/// has a limit.
pub(crate) fn available() -> Option<u64> {
    let free = figure(&read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?.checked_mul(1024)?;
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup");
    // A group's limit also applies to its subgroups.
    let groups = Path::new(own).ancestors().map(|group| root.join(group));
    Some(groups.filter_map(|group| left(&group)).fold(free, u64::min))
}

/// Bytes available to a control group; `None` if it has no limit. File pages count as available, because they are
/// reclaimable.
fn left(group: &Path) -> Option<u64> {
    let limit: u64 = read_to_string(group.join("memory.max")).ok()?.trim().parse().ok()?;
    let used: u64 = read_to_string(group.join("memory.current")).ok()?.trim().parse().ok()?;
    let statistics = read_to_string(group.join("memory.stat")).unwrap_or_default();
    let of_files = |name| figure(&statistics, name).unwrap_or(0);
    let pages = of_files("active_file ").saturating_add(of_files("inactive_file "));
    Some(limit.saturating_sub(used.saturating_sub(pages)))
}

/// The number after a label at the start of a line.
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
