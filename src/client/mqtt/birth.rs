//! The message that a client publishes after each connect, as its will is published when the
//! connection is lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::logger;
use crate::mqtt::options::ClientOptions;
use forebay_base::error::Error;
use forebay_mqtt::Version;
use forebay_mqtt::packet::Publish;
use forebay_mqtt::producer::{Outcome, check_version};
use tracing::warn;

/// Owner of the birth message in the session. Producers are numbered from 1.
pub(super) const BIRTH: u64 = 0;

/// The birth messages of a client.
#[derive(Debug, Default)]
pub(super) struct Birth {
    /// One has no outcome yet. It is sent again with its session, so no other is published.
    pending: AtomicBool,
    published: AtomicU64,
    refused: AtomicU64,
}

/// Outcomes of the birth messages of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BirthCounts {
    /// Those that the server has, with QoS 0 those that were written.
    pub published: u64,
    /// Those that failed.
    pub refused: u64,
}

impl Birth {
    /// The message to publish on a new connection of `version`.
    pub(super) fn due(&self, options: &ClientOptions, version: Version) -> Option<Publish> {
        let birth = options.birth.clone()?;
        if let Err(error) = check_version(&birth, version) {
            self.fail(&error);
            return None;
        }
        (!self.pending.swap(true, Ordering::AcqRel)).then_some(birth)
    }

    /// One has its outcome.
    pub(super) fn ended(&self, outcome: &Outcome) {
        if outcome.count == 0 {
            return;
        }
        self.pending.store(false, Ordering::Release);
        match &outcome.result {
            Ok(_) => {
                self.published.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => self.fail(error),
        }
    }

    fn fail(&self, error: &Error) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        warn!(
            target: logger::MQTT_BIRTH,
            "the birth message was not published: {error}; it is published again after the next connect",
        );
    }

    pub(super) fn counts(&self) -> BirthCounts {
        BirthCounts {
            published: self.published.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}
