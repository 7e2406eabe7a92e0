//! Versions of the schemas of messages that have one of their own.
//!
//! The first message with a schema has it registered at the broker. That message and those behind
//! it wait for the version in `early`. A schema that was refused is forgotten: the next message
//! with it asks again.
//!
//! When the producer is open on another connection, the topic may be another one too. Schemas of
//! entries without a receipt, and of messages that wait, are then registered again; those entries
//! are in doubt and are not sent, nor is what follows them, until the broker has answered. All
//! other schemas are forgotten.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::Producer;
use super::batch::Entry;
use crate::schema::SchemaInfo;
use forebay_base::error::{Error, ErrorKind, Result};

/// Schemas that a producer remembers besides those that its messages need.
const KNOWN: usize = 64;
/// Limit on the schemas that are remembered for entries without a receipt: what the broker calls
/// their versions is up to it.
const STATED: usize = 512;

/// The schemas of a producer's messages, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Schemas {
    known: VecDeque<Known>,
    wanted: VecDeque<Arc<SchemaInfo>>,
}

#[derive(Debug)]
struct Known {
    info: Arc<SchemaInfo>,
    /// Empty for a schema that has none, `None` until the broker has answered.
    version: Option<Bytes>,
}

fn is_same(one: &Arc<SchemaInfo>, other: &Arc<SchemaInfo>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

impl Schemas {
    fn find(&self, info: &Arc<SchemaInfo>) -> Option<usize> {
        self.known.iter().position(|known| is_same(&known.info, info))
    }

    /// The version of a schema, if the broker has told it.
    pub(super) fn version(&self, info: &Arc<SchemaInfo>) -> Option<&Bytes> {
        self.known[self.find(info)?].version.as_ref()
    }

    /// Has a schema registered, unless it is or is going to be.
    pub(super) fn want(&mut self, info: &Arc<SchemaInfo>) {
        if self.find(info).is_none() {
            self.known.push_back(Known { info: Arc::clone(info), version: None });
            self.wanted.push_back(Arc::clone(info));
        }
    }

    /// Notes the broker's answer, `None` if it refuses the schema.
    fn answer(&mut self, info: &Arc<SchemaInfo>, version: Option<Bytes>) {
        let Some(at) = self.find(info) else { return };
        match version {
            Some(version) => self.known[at].version = Some(version),
            None => drop(self.known.remove(at)),
        }
    }
}

fn made_again() -> Error {
    Error::new(
        ErrorKind::IncompatibleSchema,
        "the topic was deleted and made again while the message waited, and its schema has another version there: send the message again",
    )
}

impl Producer {
    /// Notes the version of the producer's schema, before [`Self::attach`]. If it is another than
    /// before, the topic was deleted and made again: entries that state the old one fail in their
    /// turn, as it stands for something else, or nothing, there. The versions of the schemas of
    /// messages are asked for again: see [`Self::poll_schema`].
    pub fn set_schema_version(&mut self, version: Bytes) {
        let old = std::mem::replace(&mut self.schema_version, version);
        let has_changed = !old.is_empty() && old != self.schema_version;
        if has_changed {
            let stale = |entry: &&mut Entry| entry.doubt.is_none() && entry.schema_version == old;
            for entry in self.window.iter_mut().filter(stale) {
                entry.doomed.get_or_insert_with(made_again);
            }
            if self.open.version() == Some(&old) {
                self.open.restate(&self.schema_version);
            }
        }
        for mut known in std::mem::take(&mut self.schemas.known) {
            let keep = match known.version.take() {
                None => true,
                // It is the producer's own, too.
                Some(version) if !has_changed && version == old => {
                    known.version = Some(version);
                    true
                }
                Some(version) => {
                    let is_needed = self.doubt(&known.info, &version) || self.is_awaited(&known.info);
                    if is_needed {
                        self.schemas.wanted.push_back(Arc::clone(&known.info));
                    }
                    is_needed
                }
            };
            if keep {
                self.schemas.known.push_back(known);
            }
        }
    }

    /// Marks the entries with a version as in doubt. Returns whether there are any.
    fn doubt(&mut self, info: &Arc<SchemaInfo>, version: &Bytes) -> bool {
        if version.is_empty() {
            return false;
        }
        if self.open.version() == Some(version) {
            self.close_batch();
        }
        let mut any = false;
        let stated = |entry: &&mut Entry| entry.doubt.is_none() && entry.schema_version == *version;
        for entry in self.window.iter_mut().filter(stated) {
            entry.doubt = Some(Arc::clone(info));
            any = true;
        }
        any
    }

    fn is_awaited(&self, info: &Arc<SchemaInfo>) -> bool {
        self.early.iter().any(|message| message.schema.as_ref().is_some_and(|own| is_same(own, info)))
    }

    /// The next schema that is to be registered, to be asked for after each push of a message with
    /// one, and after [`Self::attach`]. [`Self::handle_schema`] takes the answer.
    pub fn poll_schema(&mut self) -> Option<Arc<SchemaInfo>> {
        self.schemas.wanted.pop_front()
    }

    /// Whether the answer for a schema that [`Self::poll_schema`] has named is still waited for. If
    /// not, it is forgotten.
    pub fn wants_schema(&mut self, info: &Arc<SchemaInfo>) -> bool {
        let is_doubted = self
            .window
            .iter()
            .any(|entry| entry.doubt.as_ref().is_some_and(|doubted| is_same(doubted, info)));
        let wants = is_doubted || self.is_awaited(info);
        if !wants {
            self.schemas.answer(info, None);
        }
        wants
    }

    /// Handles the answer to GET_OR_CREATE_SCHEMA: the messages of that schema are sent with its
    /// version, or fail in their turn.
    pub fn handle_schema(&mut self, info: &Arc<SchemaInfo>, answer: Result<Bytes>) {
        self.schema_trouble = None;
        if let Err(error) = &answer {
            for message in self.early.iter_mut().filter(|message| message.schema.as_ref() == Some(info)) {
                message.refused = Some(error.clone());
            }
        }
        for entry in &mut self.window {
            if entry.doubt.as_ref().is_some_and(|doubted| is_same(doubted, info)) {
                entry.doubt = None;
                let doom = match &answer {
                    Ok(version) if *version == entry.schema_version => None,
                    Ok(_) => Some(made_again()),
                    Err(error) => Some(error.clone()),
                };
                entry.doomed = entry.doomed.take().or(doom);
            }
        }
        self.schemas.answer(info, answer.ok());
        self.release();
    }

    /// Notes why a schema could not be registered so far; named by timeouts.
    pub fn note_schema_trouble(&mut self, error: Error) {
        self.schema_trouble = Some(error);
    }

    /// Accepts the messages that need not wait any more.
    pub(super) fn release(&mut self) {
        while let Some(front) = self.early.front()
            && (self.named || !self.options.lazy)
        {
            let version = match (&front.refused, &front.schema) {
                (Some(error), _) => Err(error.clone()),
                (None, None) => Ok(None),
                (None, Some(info)) => match self.schemas.version(info) {
                    Some(version) => Ok(Some(version.clone())),
                    None => break,
                },
            };
            let message = self.early.pop_front().expect("it was looked at");
            self.pending_messages -= 1;
            self.pending_bytes -= message.bytes();
            let (since, wall_ms) = (message.since, message.wall_ms);
            let accepted = version.and_then(|version| {
                message.with(version.as_ref(), |outgoing| self.accept(since, wall_ms, outgoing))
            });
            if let Err(error) = accepted {
                // It fails in its turn.
                self.close_batch();
                self.window.push_back(Entry::refused(self.next_sequence, message.bytes(), since, error));
                self.pending_messages += 1;
                self.pending_bytes += message.bytes();
            }
        }
        self.trim_schemas();
        self.settle();
    }

    /// Forgets the oldest of too many schemas, but none that messages wait for, and few that
    /// entries without a receipt state.
    fn trim_schemas(&mut self) {
        let is_crowded = self.schemas.known.len() > STATED;
        let mut excess = self.schemas.known.len().saturating_sub(KNOWN);
        let mut at = 0;
        while excess > 0 && at < self.schemas.known.len() {
            let Known { info, version } = &self.schemas.known[at];
            let is_free = version.as_ref().is_some_and(|version| {
                let is_stated = self.window.iter().any(|entry| entry.schema_version == *version)
                    || self.open.version() == Some(version);
                (is_crowded || !is_stated) && !self.is_awaited(info)
            });
            if is_free {
                self.schemas.known.remove(at);
                excess -= 1;
            } else {
                at += 1;
            }
        }
    }

    /// Number of schemas that are remembered.
    #[cfg(test)]
    pub(super) fn known_schemas(&self) -> usize {
        self.schemas.known.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::Outgoing;
    use crate::command::Command;
    use crate::frame::Decoder;
    use crate::hot;
    use crate::producer::{Event, Options, Producer};
    use crate::schema::Type;
    use forebay_base::transmit::Transmit;

    fn schema(name: &str) -> Arc<SchemaInfo> {
        let properties = Vec::new();
        Arc::new(SchemaInfo { name: name.into(), kind: Type::Avro, data: Bytes::new(), properties })
    }

    fn producer() -> Producer {
        let mut p = Producer::new(3, Options { batch_delay: Duration::from_secs(9), ..Options::default() });
        p.attach("p", -1, 1000);
        p
    }

    fn push(p: &mut Producer, now: Instant, payload: &[u8], schema: Option<&Arc<SchemaInfo>>) {
        p.push(now, 1, &Outgoing { payload, schema, ..Outgoing::default() }).unwrap();
    }

    /// Sequence id, number of messages and version of each entry that is sent.
    fn sent(p: &mut Producer) -> Vec<(u64, i32, Option<Bytes>)> {
        let mut out = Transmit::default();
        while p.poll_transmit(&mut out, usize::MAX) {}
        let (mut bytes, mut decoder) = (out.take(), Decoder::new(1 << 20));
        let entry = || {
            let frame = decoder.next(&mut bytes).unwrap()?;
            let Command::Send(send) = frame.command else { panic!("SEND") };
            let metadata = frame.payload.unwrap().metadata().unwrap();
            Some((send.sequence_id, metadata.num_messages_in_batch.unwrap_or(0), metadata.schema_version))
        };
        std::iter::from_fn(entry).collect()
    }

    fn receipt(p: &mut Producer, sequence_id: u64) {
        let message_id = Some(hot::IdData { ledger_id: 9, entry_id: sequence_id, ..Default::default() });
        p.handle_receipt(&hot::SendReceipt { producer_id: 3, sequence_id, message_id, ..Default::default() })
            .unwrap();
    }

    fn outcomes(p: &mut Producer) -> Vec<Result<u32, ErrorKind>> {
        let event = |event| match event {
            Event::Stored { count, .. } => Ok(count),
            Event::Failed { error, .. } => Err(error.kind()),
        };
        std::iter::from_fn(|| p.poll_event()).map(event).collect()
    }

    fn version(n: u8) -> Bytes {
        Bytes::copy_from_slice(&[n])
    }

    #[test]
    fn messages_wait_for_the_version_and_keep_their_order() {
        let (mut p, now, other) = (producer(), Instant::now(), schema("other"));
        p.set_schema_version(version(1));
        push(&mut p, now, b"a", None);
        push(&mut p, now, b"b", Some(&other));
        push(&mut p, now, b"c", Some(&schema("other")));
        push(&mut p, now, b"d", None);
        assert_eq!((p.poll_schema(), p.poll_schema()), (Some(Arc::clone(&other)), None));
        assert_eq!(sent(&mut p), [(0, 1, Some(version(1)))]);
        receipt(&mut p, 0);
        assert_eq!((sent(&mut p), outcomes(&mut p), p.pending_messages()), (vec![], vec![Ok(1)], 3));
        p.handle_schema(&other, Ok(version(2)));
        assert_eq!(sent(&mut p), [(1, 2, Some(version(2))), (3, 1, Some(version(1)))]);
        push(&mut p, now, b"e", Some(&other));
        assert_eq!(p.poll_schema(), None);
        p.flush();
        assert_eq!(sent(&mut p), [(4, 1, Some(version(2)))]);
    }

    #[test]
    fn a_message_that_is_too_large_is_refused_before_it_waits_for_its_schema() {
        let (mut p, now, other) = (producer(), Instant::now(), schema("other"));
        let large = Outgoing { payload: &[0; 1001], schema: Some(&other), ..Outgoing::default() };
        assert_eq!(p.push(now, 1, &large).unwrap_err().kind(), ErrorKind::MessageTooLarge);
        assert_eq!((p.poll_schema(), p.pending_messages()), (None, 0));
        push(&mut p, now, b"a", Some(&other));
        // Also behind one that waits.
        let large = Outgoing { schema: None, ..large };
        assert_eq!(p.push(now, 1, &large).unwrap_err().kind(), ErrorKind::MessageTooLarge);
        assert_eq!(p.pending_messages(), 1);
    }

    #[test]
    fn a_refused_schema_fails_its_messages_in_their_turn_and_is_asked_for_again() {
        let (mut p, now, other) = (producer(), Instant::now(), schema("other"));
        for (payload, schema) in [(b"a", None), (b"b", Some(&other)), (b"c", None), (b"d", Some(&other))] {
            push(&mut p, now, payload, schema);
        }
        p.poll_schema().unwrap();
        p.handle_schema(&other, Err(Error::new(ErrorKind::IncompatibleSchema, "no")));
        assert_eq!(sent(&mut p), [(0, 1, None), (1, 1, None)]);
        assert_eq!(outcomes(&mut p), [], "the first has no receipt yet");
        receipt(&mut p, 0);
        receipt(&mut p, 1);
        let refused = Err(ErrorKind::IncompatibleSchema);
        assert_eq!(outcomes(&mut p), [Ok(1), refused, Ok(1), refused]);
        push(&mut p, now, b"e", Some(&other));
        assert_eq!(p.poll_schema(), Some(other));
    }

    #[test]
    fn a_message_whose_schema_is_not_registered_in_time_fails_behind_those_before_it() {
        let (mut p, now, other) = (producer(), Instant::now(), schema("other"));
        push(&mut p, now, b"a", None);
        push(&mut p, now, b"b", Some(&other));
        push(&mut p, now + Duration::from_secs(1), b"c", None);
        let due = p.poll_timeout().unwrap();
        assert!(due <= now + Duration::from_secs(30));
        p.note_schema_trouble(Error::new(ErrorKind::ServiceNotReady, "soon"));
        p.handle_timeout(now + Duration::from_secs(30));
        let events: Vec<_> = std::iter::from_fn(|| p.poll_event()).collect();
        let [Event::Failed { error: first, .. }, Event::Failed { error: second, .. }] = &events[..] else {
            panic!("{events:?}")
        };
        assert!(first.message().contains("no receipt"), "{first}");
        assert!(
            second.message().contains("was not registered") && second.message().contains("soon"),
            "{second}"
        );
        assert_eq!(sent(&mut p).len(), 1, "the last had only waited for the one before");
    }

    #[test]
    fn closing_fails_what_waits_in_order() {
        let (mut p, now, other) = (producer(), Instant::now(), schema("other"));
        push(&mut p, now, b"a", None);
        push(&mut p, now, b"bb", Some(&other));
        p.close(Error::new(ErrorKind::Closed, "closed"));
        let sizes: Vec<_> = std::iter::from_fn(|| p.poll_event())
            .map(|event| match event {
                Event::Failed { bytes, .. } => bytes,
                stored @ Event::Stored { .. } => panic!("{stored:?}"),
            })
            .collect();
        assert_eq!(sizes, [1, 2]);
        p.handle_schema(&other, Ok(version(2)));
        assert!(p.is_idle());
    }

    /// A producer that has sent a message of each schema, without receipts, and is lost and open
    /// again.
    fn reopened(p: &mut Producer, now: Instant, schemas: &[&Arc<SchemaInfo>]) {
        for (n, schema) in schemas.iter().enumerate() {
            push(p, now, b"a", Some(schema));
            p.poll_schema().unwrap();
            p.handle_schema(schema, Ok(version(n as u8 + 1)));
            assert_eq!(sent(p).len(), 1);
        }
        p.detach();
        p.set_schema_version(Bytes::new());
        p.attach("p", -1, 1000);
    }

    #[test]
    fn entries_with_versions_that_mean_something_else_now_fail_in_their_turn() {
        let (mut p, now, [one, two, three]) =
            (producer(), Instant::now(), ["one", "two", "three"].map(schema));
        reopened(&mut p, now, &[&one, &two, &three]);
        assert_eq!([(); 3].map(|()| p.poll_schema()), [&one, &two, &three].map(|s| Some(Arc::clone(s))));
        assert_eq!((p.poll_schema(), sent(&mut p)), (None, vec![]), "none is sent in doubt");
        // What is pushed with such a version now is not in doubt, but behind what is.
        p.handle_schema(&two, Ok(version(1)));
        push(&mut p, now, b"b", Some(&two));
        assert_eq!((outcomes(&mut p), sent(&mut p)), (vec![], vec![]));
        p.handle_schema(&one, Ok(version(2)));
        let refused = Err(ErrorKind::IncompatibleSchema);
        assert_eq!(outcomes(&mut p), [refused, refused]);
        p.handle_schema(&three, Ok(version(3)));
        assert_eq!(sent(&mut p), [(2, 1, Some(version(3))), (3, 1, Some(version(1)))]);
        receipt(&mut p, 2);
        assert_eq!(outcomes(&mut p), [Ok(1)]);
        p.detach();
        p.set_schema_version(Bytes::new());
        p.attach("p", -1, 1000);
        assert_eq!(
            (p.poll_schema(), p.poll_schema()),
            (Some(two.clone()), None),
            "the others are not needed"
        );
        p.handle_schema(&two, Err(Error::new(ErrorKind::IncompatibleSchema, "not any more")));
        assert_eq!((outcomes(&mut p), sent(&mut p)), (vec![refused], vec![]));
        assert!(p.is_idle() && p.known_schemas() == 0);
    }

    #[test]
    fn messages_of_a_schema_that_cannot_be_registered_again_end_by_their_timeout_and_hold_no_connection_up() {
        let (mut p, now, other) = (producer(), Instant::now(), schema("other"));
        push(&mut p, now, b"a", None);
        sent(&mut p);
        reopened(&mut p, now + Duration::from_secs(1), &[&other]);
        let plain = now + Duration::from_secs(2);
        push(&mut p, plain, b"c", None);
        assert_eq!(sent(&mut p), [(0, 1, None)], "what is before it is sent");
        receipt(&mut p, 0);
        assert!(p.poll_schema().is_some() && p.wants_schema(&other));
        p.note_schema_trouble(Error::new(ErrorKind::ServiceNotReady, "soon"));
        // Another connection does not ask twice.
        p.detach();
        p.set_schema_version(Bytes::new());
        p.attach("p", -1, 1000);
        assert_eq!((p.poll_schema(), sent(&mut p)), (None, vec![]));
        p.handle_timeout(now + Duration::from_secs(31));
        let events: Vec<_> = std::iter::from_fn(|| p.poll_event()).collect();
        let [Event::Stored { .. }, Event::Failed { error, .. }] = &events[..] else { panic!("{events:?}") };
        assert!(error.kind() == ErrorKind::Timeout && error.message().contains("soon"), "{error}");
        assert_eq!(sent(&mut p), [(2, 1, None)]);
        assert!(!p.wants_schema(&other), "no message is left");
        assert_eq!(p.known_schemas(), 0);
        push(&mut p, plain, b"d", Some(&other));
        assert_eq!(p.poll_schema(), Some(other));
    }

    #[test]
    fn a_schema_that_only_waiting_messages_have_is_registered_again_too() {
        let (mut p, now, [one, two]) = (producer(), Instant::now(), ["one", "two"].map(schema));
        push(&mut p, now, b"a", Some(&one));
        p.poll_schema().unwrap();
        p.handle_schema(&one, Ok(version(1)));
        sent(&mut p);
        receipt(&mut p, 0);
        push(&mut p, now, b"b", Some(&two));
        push(&mut p, now, b"c", Some(&one));
        p.poll_schema().unwrap();
        p.detach();
        p.set_schema_version(Bytes::new());
        p.attach("p", -1, 1000);
        assert_eq!((p.poll_schema(), p.poll_schema()), (Some(one.clone()), None));
        p.handle_schema(&one, Ok(version(1)));
        p.handle_schema(&two, Ok(version(2)));
        assert_eq!(sent(&mut p), [(1, 1, Some(version(2))), (2, 1, Some(version(1)))]);
    }

    #[test]
    fn the_version_of_the_producers_own_schema_is_not_asked_for() {
        let (mut p, now, own) = (producer(), Instant::now(), schema("own"));
        p.set_schema_version(version(1));
        push(&mut p, now, b"a", Some(&own));
        p.poll_schema().unwrap();
        p.handle_schema(&own, Ok(version(1)));
        assert_eq!(sent(&mut p).len(), 1);
        p.detach();
        p.set_schema_version(version(1));
        p.attach("p", -1, 1000);
        assert_eq!((p.poll_schema(), sent(&mut p).len()), (None, 1));
        push(&mut p, now, b"b", None);
        p.detach();
        p.set_schema_version(version(2));
        p.attach("p", -1, 1000);
        assert_eq!(outcomes(&mut p), [Err(ErrorKind::IncompatibleSchema)]);
        assert_eq!(sent(&mut p), [(1, 1, Some(version(2)))], "what was not sent states the new one");
    }

    #[test]
    fn the_schemas_that_are_remembered_are_limited() {
        let (mut p, now) = (producer(), Instant::now());
        for n in 0..1000_u64 {
            let schema = schema(&n.to_string());
            push(&mut p, now, b"a", Some(&schema));
            p.poll_schema().unwrap();
            p.handle_schema(&schema, Ok(Bytes::copy_from_slice(&n.to_be_bytes())));
            sent(&mut p);
            receipt(&mut p, n);
            assert!(p.known_schemas() <= KNOWN + 1);
        }
        assert_eq!(p.known_schemas(), KNOWN);
    }

    #[test]
    fn a_broker_that_gives_all_schemas_one_version_does_not_have_all_of_them_remembered() {
        let (mut p, now) = (producer(), Instant::now());
        for n in 0..1000 {
            let schema = schema(&n.to_string());
            push(&mut p, now, b"a", Some(&schema));
            p.poll_schema().unwrap();
            p.handle_schema(&schema, Ok(version(1)));
            sent(&mut p);
            receipt(&mut p, n);
        }
        assert!(p.known_schemas() <= STATED);
    }

    #[test]
    fn the_schemas_that_are_remembered_are_limited_also_while_messages_always_wait() {
        let (mut p, now, mut unanswered) = (producer(), Instant::now(), Vec::new());
        for n in 0..500 {
            let [never, soon] = ["never", "soon"].map(|name| schema(&format!("{name} {n}")));
            push(&mut p, now, b"a", Some(&never));
            push(&mut p, now, b"a", Some(&soon));
            assert_eq!((p.poll_schema(), p.poll_schema()), (Some(never.clone()), Some(soon.clone())));
            p.handle_schema(&soon, Ok(version(1)));
            unanswered.push(never);
            if n >= 5 {
                p.fail_early(Error::new(ErrorKind::Timeout, "late"));
                p.fail_early(Error::new(ErrorKind::Timeout, "late"));
            }
            unanswered.retain(|info| p.wants_schema(info));
            assert!(p.known_schemas() <= KNOWN + 10, "{n}: {}", p.known_schemas());
        }
        assert_eq!(p.pending_messages(), 10);
    }
}
