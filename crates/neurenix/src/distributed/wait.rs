//! Waits for sockets.

use std::time::Duration;

/// The longest wait before a thread checks for an interruption.
pub(super) const SLICE: Duration = Duration::from_millis(20);

#[cfg(target_os = "linux")]
pub(super) use std::os::fd::AsFd as Socket;

/// A listener or a connection.
#[cfg(not(target_os = "linux"))]
pub(super) trait Socket {}
#[cfg(not(target_os = "linux"))]
impl Socket for std::net::TcpListener {}
#[cfg(not(target_os = "linux"))]
impl Socket for std::net::TcpStream {}

/// Sockets that a thread waits for.
#[derive(Default)]
pub(super) struct Sockets<'a> {
    #[cfg(target_os = "linux")]
    polled: Vec<rustix::event::PollFd<'a>>,
    #[cfg(not(target_os = "linux"))]
    borrowed: std::marker::PhantomData<&'a ()>,
}

#[cfg(target_os = "linux")]
impl<'a> Sockets<'a> {
    /// Adds a socket from which something will be read.
    pub(super) fn read(&mut self, socket: &'a impl Socket) {
        self.polled.push(rustix::event::PollFd::new(socket, rustix::event::PollFlags::IN));
    }

    /// Adds a socket to which something will be written.
    pub(super) fn write(&mut self, socket: &'a impl Socket) {
        self.polled.push(rustix::event::PollFd::new(socket, rustix::event::PollFlags::OUT));
    }

    /// Waits until one of the sockets is ready, but at most for `limit`, nor longer than [`SLICE`].
    pub(super) fn wait(mut self, limit: Duration) {
        let limit = limit.min(SLICE);
        let limit = rustix::event::Timespec { tv_sec: 0, tv_nsec: limit.subsec_nanos() as _ };
        // After an error, such as a signal, the caller looks at its sockets early.
        let _ = rustix::event::poll(&mut self.polled, Some(&limit));
    }
}

#[cfg(not(target_os = "linux"))]
impl<'a> Sockets<'a> {
    pub(super) fn read(&mut self, _socket: &'a impl Socket) {}
    pub(super) fn write(&mut self, _socket: &'a impl Socket) {}

    /// Waits a little: the caller then tries its sockets.
    pub(super) fn wait(self, limit: Duration) {
        std::thread::sleep(limit.min(Duration::from_micros(200)));
    }
}
