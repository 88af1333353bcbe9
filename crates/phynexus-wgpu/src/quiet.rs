//! Looking for devices without what loaders and layers of the system write about it, such as Mesa's search for a display:
//! whoever computes did not ask for it.

#[cfg(unix)]
use std::os::fd::{AsFd, OwnedFd};

/// Vulkan's own variable for what its loader tells: where it is set, the messages are wanted.
const WANTED: &str = "VK_LOADER_DEBUG";

/// Does some work while standard error leads nowhere, for this whole process. It is to be short, and done once.
pub(crate) fn quietly<T>(work: impl FnOnce() -> T) -> T {
    #[cfg(unix)]
    let _silence = std::env::var_os(WANTED).is_none().then(Silence::begin);
    work()
}

/// Until it is dropped, standard error leads nowhere. Where that cannot be done it stays as it is.
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
            // There would be nowhere to tell of a failure.
            let _ = rustix::stdio::dup2_stderr(own);
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::process::Command;

    const CHILD: &str = "PHYNEXUS_TEST_OF_SILENCE";

    /// Past the test harness, which collects what `eprintln!` writes, and as a library in C would.
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
