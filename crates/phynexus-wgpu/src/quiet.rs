//! Suppresses the output of system loaders and layers during device discovery, such as Mesa's search for a display. It
//! is irrelevant for computing.

#[cfg(unix)]
use std::os::fd::{AsFd, OwnedFd};

/// Vulkan's variable for loader messages. If it is set, nothing is suppressed.
#[cfg(unix)]
const WANTED: &str = "VK_LOADER_DEBUG";

/// Runs `work` with standard error discarded for the whole process. Use it only once, for short work.
pub(crate) fn quietly<T>(work: impl FnOnce() -> T) -> T {
    #[cfg(unix)]
    let _silence = std::env::var_os(WANTED).is_none().then(Silence::begin);
    work()
}

/// Discards standard error until dropped. If redirection fails, standard error is unchanged.
#[cfg(unix)]
struct Silence(Option<OwnedFd>);

#[cfg(unix)]
impl Silence {
    fn begin() -> Silence {
        let begun = || -> std::io::Result<OwnedFd> {
            let own = std::io::stderr().as_fd().try_clone_to_owned()?;
            let nowhere = std::fs::File::options().write(true).open("/dev/null")?;
            rustix::stdio::dup2_stderr(nowhere)?;
            Ok(own)
        };
        Silence(begun().ok())
    }
}

#[cfg(unix)]
impl Drop for Silence {
    fn drop(&mut self) {
        if let Some(own) = &self.0 {
            // A failure could not be reported anywhere.
            let _ = rustix::stdio::dup2_stderr(own);
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::process::Command;

    const CHILD: &str = "PHYNEXUS_TEST_OF_SILENCE";

    /// Bypasses the test harness, which captures `eprintln!`; a C library does the same.
    fn write(text: &str) {
        rustix::io::write(rustix::stdio::stderr(), text.as_bytes()).unwrap();
    }

    #[test]
    fn standard_error_is_silent_meanwhile_and_back_afterwards() {
        if std::env::var_os(CHILD).is_some() {
            write("before\n");
            assert_eq!(quietly(|| [write("meanwhile\n")].len()), 1);
            write("after\n");
            return;
        }
        let name = "quiet::tests::standard_error_is_silent_meanwhile_and_back_afterwards";
        for (variable, expected) in [(None, "before\nafter\n"), (Some("all"), "before\nmeanwhile\nafter\n")] {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args([name, "--exact", "--test-threads", "1"]).env(CHILD, "1").env_remove(WANTED);
            variable.map(|value| child.env(WANTED, value));
            let output = child.output().unwrap();
            assert!(output.status.success());
            assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
        }
    }
}
