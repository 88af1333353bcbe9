//! Files whose bytes come from another process or a device: pipes, terminals, devices.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// Opens such a file. On Linux, [`phynexus::interrupt`] can end the wait for bytes or for a writer. Other systems
/// block.
pub(super) fn open(path: &Path) -> io::Result<impl Read + use<>> {
    #[cfg(target_os = "linux")]
    return Awaited::open(path);
    #[cfg(not(target_os = "linux"))]
    return File::open(path);
}

/// A non-blocking file that is polled.
#[cfg(target_os = "linux")]
struct Awaited(File);

#[cfg(target_os = "linux")]
impl Awaited {
    fn open(path: &Path) -> io::Result<Awaited> {
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        Ok(Awaited(rustix::fs::open(path, flags, Mode::empty())?.into()))
    }
}

#[cfg(target_os = "linux")]
impl Read for Awaited {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        /// How long one poll lasts before the thread checks for an interruption.
        const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        loop {
            if phynexus::interrupt::requested() {
                return Err(io::Error::other(phynexus::Error::Interrupted));
            }
            // A pipe without a writer so far is neither readable nor at its end.
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&PATIENCE)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            match self.0.read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::{Error, io::Source};
    use phynexus::interrupt;
    use std::{io::Write, process::Command, thread};

    fn fifo(folder: &Path) -> Result<std::path::PathBuf, Box<dyn std::error::Error>> {
        let path = folder.join("fifo");
        assert!(Command::new("mkfifo").arg(&path).status()?.success());
        Ok(path)
    }

    #[test]
    fn a_pipe_is_read_to_its_end() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = fifo(folder.path())?;
        let to = path.clone();
        let writer = thread::spawn(move || -> io::Result<()> {
            let mut file = File::options().write(true).open(to)?;
            (0..200_000u32).try_for_each(|i| file.write_all(&i.to_le_bytes()))
        });
        let bytes = Source::open(&path, "test")?.take_rest(1 << 20, "all")?;
        writer.join().map_err(|_| "the writer panicked")??;
        assert!(bytes == (0..200_000u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
        Ok(())
    }

    #[test]
    fn a_wait_for_a_pipe_that_nobody_writes_can_be_ended() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = fifo(folder.path())?;
        let _watch = interrupt::watch(|| true);
        for read in [
            |path: &Path| Source::open(path, "test")?.take_rest(9, "all"),
            |path: &Path| Source::open_maybe_gzip(path, "test")?.take(9, "nine bytes"),
        ] {
            let ended = read(&path);
            assert!(matches!(ended, Err(Error::Engine(phynexus::Error::Interrupted))));
        }
        Ok(())
    }
}
