//! A message that has been pushed to a producer and that the engine's thread does not know of yet.

use std::fmt;

/// A way to have the messages of a producer sent.
pub(super) trait Dispatch {
    /// Has the engine's thread send what was pushed, unless it has been told and has not looked
    /// yet.
    fn notify(&self);

    /// As [`Self::notify`], on this thread if the connection has nothing else to write.
    fn write(&self);
}

/// A message that was pushed. Once this is dropped, the engine's thread sends it, in one packet
/// with what else is pushed until then.
pub struct Pushed<'a> {
    slot: usize,
    to: Option<&'a dyn Dispatch>,
}

impl<'a> Pushed<'a> {
    pub(super) fn new(slot: usize, to: &'a dyn Dispatch) -> Self {
        Self { slot, to: Some(to) }
    }

    /// Number under which [`ProducerEvents::sent`](super::events::ProducerEvents::sent) reports the
    /// outcome.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Sends it on this thread, unless the connection is busy. For a message that the caller waits
    /// for alone: that takes one switch of threads less, and many messages more time. The caller
    /// holds no lock that a [`ProducerEvents`](super::events::ProducerEvents) takes.
    pub fn write(mut self) {
        if let Some(to) = self.to.take() {
            to.write();
        }
    }
}

impl Drop for Pushed<'_> {
    fn drop(&mut self) {
        if let Some(to) = self.to {
            to.notify();
        }
    }
}

impl fmt::Debug for Pushed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pushed").field("slot", &self.slot).finish_non_exhaustive()
    }
}
