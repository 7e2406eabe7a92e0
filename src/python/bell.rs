//! A descriptor that a thread makes readable, for an event loop that watches it: an eventfd on Linux, which costs a third
//! of the socket pair that it is elsewhere.

pub(super) use system::Bell;

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd, RawFd};

    use rustix::event::{EventfdFlags, eventfd};

    #[derive(Debug)]
    pub(in crate::python) struct Bell(OwnedFd);

    impl Bell {
        pub(in crate::python) fn new() -> io::Result<Self> {
            Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        }

        /// The descriptor to watch.
        pub(in crate::python) fn fd(&self) -> RawFd {
            self.0.as_raw_fd()
        }

        /// Makes it readable.
        pub(in crate::python) fn ring(&self) {
            // It can only fail when it has been rung 2^64 times.
            let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
        }

        /// Makes it unreadable until it is rung again.
        pub(in crate::python) fn reset(&self) {
            let _ = rustix::io::read(&self.0, &mut [0; 8]);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io::{self, Read, Write};
    use std::os::fd::{AsRawFd, RawFd};
    use std::os::unix::net::UnixStream;

    #[derive(Debug)]
    pub(in crate::python) struct Bell {
        tx: UnixStream,
        rx: UnixStream,
    }

    impl Bell {
        pub(in crate::python) fn new() -> io::Result<Self> {
            let (tx, rx) = UnixStream::pair()?;
            tx.set_nonblocking(true)?;
            rx.set_nonblocking(true)?;
            Ok(Self { tx, rx })
        }

        /// The descriptor to watch.
        pub(in crate::python) fn fd(&self) -> RawFd {
            self.rx.as_raw_fd()
        }

        /// Makes it readable.
        pub(in crate::python) fn ring(&self) {
            // A full socket buffer holds bytes that are still unread, which is as good as another one.
            let _ = (&self.tx).write(&[1]);
        }

        /// Makes it unreadable until it is rung again.
        pub(in crate::python) fn reset(&self) {
            let mut bytes = [0; 64];
            while matches!((&self.rx).read(&mut bytes), Ok(n) if n == bytes.len()) {}
        }
    }
}
