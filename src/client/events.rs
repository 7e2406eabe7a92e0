//! Callbacks from producers and consumers to their owner, the same for every protocol.

use std::sync::Arc;

use forebay_base::error::Error;
use forebay_base::handoff::Armed;
use forebay_base::sync::Mutex;
use forebay_mqtt::Reason;
use forebay_pulsar::MessageId;
use forebay_tubemq::producer::Position;

/// Receipt of a broker for stored messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// Pulsar: id of the first message. In a batch `batch_size` is set, and the others have the
    /// indexes that follow.
    Id(MessageId),
    /// Pulsar: id of a message in chunks, which is that of its last one, and the place of the first
    /// one: ledger and entry.
    Chunked(Box<(MessageId, (u64, u64))>),
    /// MQTT: reason code of PUBACK, PUBREC or PUBCOMP; success with QoS 0.
    Reason(Reason),
    /// TubeMQ: position of the message.
    Position(Position),
}

/// Receives the outcomes of sends. Called on the engine's thread, or on that of a sender that
/// [writes](super::pushed::Pushed::write) itself, with no lock of the producer held; must not
/// block.
pub trait ProducerEvents: Send + Sync {
    /// Outcome of the next `count` messages of `slot`, in the order they were pushed to it.
    fn sent(&self, slot: usize, outcome: SendOutcome);

    /// There is room again after a push was refused.
    fn room(&self);

    /// The producer has ended for good; everything pending has failed before.
    fn closed(&self, error: Error);
}

impl std::fmt::Debug for dyn ProducerEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProducerEvents")
    }
}

/// Outcome of messages.
#[derive(Clone, Debug)]
pub enum SendOutcome {
    /// The broker has stored them.
    Stored {
        /// Number of messages.
        count: u32,
        /// Receipt of the broker.
        receipt: Receipt,
    },
    /// They failed, or their outcome is unknown.
    Failed {
        /// Number of messages.
        count: u32,
        /// The error.
        error: Error,
    },
}

/// Receives the events of a consumer. Called on the engine's thread, or on that of a sender that
/// [writes](super::pushed::Pushed::write) over the same connection; must not block.
pub trait ConsumerEvents: Send + Sync {
    /// Messages can be taken. Called once after each `arm` of the consumer.
    fn readable(&self);

    /// The consumer has ended for good.
    fn closed(&self, error: Error);
}

impl std::fmt::Debug for dyn ConsumerEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConsumerEvents")
    }
}

/// The readiness of a consumer, over all its partitions.
#[derive(Debug)]
pub(super) struct Signal {
    armed: Armed,
    ended: Mutex<Ended>,
    events: Arc<dyn ConsumerEvents>,
}

/// Why a consumer has ended.
#[derive(Debug, Default)]
struct Ended {
    /// For good.
    for_good: Option<Error>,
    /// Until [`Signal::resume`], by the partition that has stopped it.
    stops: Vec<(u64, Error)>,
}

impl Signal {
    pub(super) fn new(events: Arc<dyn ConsumerEvents>) -> Self {
        Self { armed: Armed::default(), ended: Mutex::default(), events }
    }

    /// Asks for one [`ConsumerEvents::readable`]. Returns false, and asks for nothing, if the
    /// consumer has ended or `ready` says that there is something to take.
    pub(super) fn arm(&self, ready: impl FnOnce() -> bool) -> bool {
        self.armed.arm(|| ready() || self.ended().is_some())
    }

    /// Calls [`ConsumerEvents::readable`] if it was asked for.
    pub(super) fn ring(&self) {
        if self.armed.fire() {
            self.events.readable();
        }
    }

    /// Ends the consumer with `error`.
    pub(super) fn end(&self, error: Error) {
        self.ended.lock().for_good = Some(error.clone());
        self.events.closed(error);
        self.ring();
    }

    /// Ends the consumer with an `error` of `partition`, until [`Self::resume`]. [`Self::ring`] is
    /// to follow.
    pub(super) fn stop(&self, partition: u64, error: Error) {
        self.ended.lock().stops.push((partition, error));
    }

    /// Has the consumer go on after [`Self::stop`], unless another partition has stopped it too.
    pub(super) fn resume(&self, partition: u64) {
        self.ended.lock().stops.retain(|(stopped, _)| *stopped != partition);
    }

    /// Why the consumer has ended, if it has.
    pub(super) fn ended(&self) -> Option<Error> {
        let ended = self.ended.lock();
        ended.for_good.as_ref().or_else(|| ended.stops.first().map(|(_, error)| error)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::error::ErrorKind;

    struct Quiet;

    impl ConsumerEvents for Quiet {
        fn readable(&self) {}

        fn closed(&self, _: Error) {}
    }

    fn signal() -> Signal {
        Signal::new(Arc::new(Quiet))
    }

    fn error(text: &'static str) -> Error {
        Error::new(ErrorKind::Protocol, text)
    }

    fn ended(signal: &Signal) -> Option<String> {
        signal.ended().map(|error| error.message().to_owned())
    }

    #[test]
    fn a_consumer_goes_on_when_each_partition_that_stopped_it_has_resumed() {
        let signal = signal();
        signal.stop(1, error("of 1"));
        signal.stop(2, error("of 2"));
        assert_eq!(ended(&signal).as_deref(), Some("of 1"));
        signal.resume(1);
        assert_eq!(ended(&signal).as_deref(), Some("of 2"), "it names what still stops it");
        signal.resume(1);
        assert_eq!(ended(&signal).as_deref(), Some("of 2"));
        signal.resume(2);
        assert_eq!(ended(&signal), None);
    }

    #[test]
    fn a_consumer_that_has_ended_for_good_does_not_resume() {
        let signal = signal();
        signal.stop(1, error("stopped"));
        signal.end(error("for good"));
        signal.stop(2, error("later"));
        assert_eq!(ended(&signal).as_deref(), Some("for good"));
        signal.resume(1);
        signal.resume(2);
        assert_eq!(ended(&signal).as_deref(), Some("for good"));
    }
}
