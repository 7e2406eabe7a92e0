//! The open producers and consumers of a client, so that closing the client closes them too.

use std::fmt::Debug;
use std::sync::{Arc, Weak};

use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::sync::{Mutex, MutexGuard};

/// A producer or consumer: a cheap handle around an [`Arc`].
pub(super) trait Shared: Sized {
    /// State that the handle shares with its clones.
    type Inner: Debug;

    fn inner(&self) -> &Arc<Self::Inner>;

    fn from_inner(inner: Arc<Self::Inner>) -> Self;
}

/// The open producers and consumers of a client. Keeps none of them alive.
#[derive(Debug)]
pub(super) struct Registry<P: Shared, C: Shared>(Mutex<Open<P::Inner, C::Inner>>);

#[derive(Debug)]
struct Open<P, C> {
    closed: bool,
    producers: Vec<Weak<P>>,
    consumers: Vec<Weak<C>>,
}

impl<P: Shared, C: Shared> Default for Registry<P, C> {
    fn default() -> Self {
        Self(Mutex::leaf(Open { closed: false, producers: Vec::new(), consumers: Vec::new() }))
    }
}

impl<P: Shared, C: Shared> Registry<P, C> {
    /// Fails if the client was closed while the producer was opened: it is the caller's to close
    /// then.
    pub(super) fn add_producer(&self, producer: &P) -> Result<()> {
        self.while_open()?.producers.push(Arc::downgrade(producer.inner()));
        Ok(())
    }

    /// As [`Self::add_producer`].
    pub(super) fn add_consumer(&self, consumer: &C) -> Result<()> {
        self.while_open()?.consumers.push(Arc::downgrade(consumer.inner()));
        Ok(())
    }

    /// The producers that are still in use.
    pub(super) fn producers(&self) -> Vec<P> {
        let mut open = self.0.lock();
        open.producers.retain(|producer| producer.strong_count() > 0);
        // Handles leave this function before they can be dropped: their end takes locks.
        open.producers.iter().filter_map(Weak::upgrade).map(P::from_inner).collect()
    }

    /// Marks the client as closed. Returns what was open; `None` when it was closed before.
    pub(super) fn close(&self) -> Option<(Vec<P>, Vec<C>)> {
        let (producers, consumers) = {
            let mut open = self.0.lock();
            if std::mem::replace(&mut open.closed, true) {
                return None;
            }
            (std::mem::take(&mut open.producers), std::mem::take(&mut open.consumers))
        };
        Some((
            producers.iter().filter_map(Weak::upgrade).map(P::from_inner).collect(),
            consumers.iter().filter_map(Weak::upgrade).map(C::from_inner).collect(),
        ))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.lock().closed
    }

    pub(super) fn check_open(&self) -> Result<()> {
        self.while_open().map(drop)
    }

    fn while_open(&self) -> Result<MutexGuard<'_, Open<P::Inner, C::Inner>>> {
        let open = self.0.lock();
        if open.closed { Err(Error::new(ErrorKind::Closed, "the client is closed")) } else { Ok(open) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Handle(Arc<u8>);

    impl Shared for Handle {
        type Inner = u8;

        fn inner(&self) -> &Arc<u8> {
            &self.0
        }

        fn from_inner(inner: Arc<u8>) -> Self {
            Self(inner)
        }
    }

    #[test]
    fn a_handle_that_is_opened_while_the_client_is_closed_is_refused() {
        let registry = Registry::<Handle, Handle>::default();
        let (kept, dropped, late) = (Handle(Arc::new(1)), Handle(Arc::new(2)), Handle(Arc::new(3)));
        registry.add_producer(&kept).unwrap();
        registry.add_consumer(&dropped).unwrap();
        drop(dropped);
        let (producers, consumers) = registry.close().unwrap();
        assert_eq!((producers.len(), *producers[0].0, consumers.len()), (1, 1, 0));
        assert_eq!(registry.add_producer(&late).unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(registry.add_consumer(&late).unwrap_err().kind(), ErrorKind::Closed);
        assert!(registry.close().is_none() && registry.producers().is_empty());
    }
}
