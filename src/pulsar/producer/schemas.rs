//! Versions of the schemas of messages that have one of their own.
//!
//! The first message with a schema has it registered at the broker. That message and those behind it wait for the version in
//! `early`. A schema that was refused is forgotten: the next message with it asks again.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::pulsar::schema::SchemaInfo;

/// Schemas that a producer remembers while none of its messages waits.
const KNOWN: usize = 64;

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

impl Schemas {
    fn find(&self, info: &Arc<SchemaInfo>) -> Option<usize> {
        let is_it = |known: &Known| Arc::ptr_eq(&known.info, info) || known.info == *info;
        self.known.iter().position(is_it)
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

    pub(super) fn next_wanted(&mut self) -> Option<Arc<SchemaInfo>> {
        self.wanted.pop_front()
    }

    /// Notes the broker's answer, `None` if it refuses the schema. Returns the version before.
    pub(super) fn answer(&mut self, info: &Arc<SchemaInfo>, version: Option<Bytes>) -> Option<Bytes> {
        let at = self.find(info)?;
        match version {
            Some(version) => self.known[at].version.replace(version),
            None => self.known.remove(at)?.version,
        }
    }

    /// Schemas with a version.
    pub(super) fn registered(&self) -> Vec<Arc<SchemaInfo>> {
        let registered = self.known.iter().filter(|known| known.version.is_some());
        registered.map(|known| Arc::clone(&known.info)).collect()
    }

    /// Forgets the oldest of too many. Must not be called while messages wait, which may need them.
    pub(super) fn trim(&mut self) {
        while self.known.len() > KNOWN {
            self.known.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::error::{Error, ErrorKind, Result};
    use crate::pulsar::Outgoing;
    use crate::pulsar::command::Command;
    use crate::pulsar::frame::Decoder;
    use crate::pulsar::hot;
    use crate::pulsar::producer::{Event, Options, Producer};
    use crate::pulsar::schema::Type;
    use crate::transmit::Transmit;

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

    #[test]
    fn entries_with_versions_that_mean_something_else_now_fail_and_the_open_batch_states_the_new_one() {
        let (mut p, now) = (producer(), Instant::now());
        let (one, two) = (schema("one"), schema("two"));
        for (n, schema) in [(1, &one), (2, &two)] {
            push(&mut p, now, b"a", Some(schema));
            p.poll_schema().unwrap();
            p.handle_schema(schema, Ok(version(n)));
        }
        assert_eq!(sent(&mut p).len(), 2);
        push(&mut p, now, b"b", Some(&two));
        p.detach();
        assert_eq!(p.registered_schemas(), [Arc::clone(&one), Arc::clone(&two)]);
        p.set_schema_versions(
            Bytes::new(),
            vec![(one.clone(), Ok(version(2))), (two.clone(), Ok(version(1)))],
        );
        p.attach("p", -1, 1000);
        let refused = Err(ErrorKind::IncompatibleSchema);
        assert_eq!(outcomes(&mut p), [refused, refused]);
        assert_eq!(sent(&mut p), [(2, 1, Some(version(1)))]);
        push(&mut p, now, b"c", Some(&two));
        p.detach();
        let error = Error::new(ErrorKind::IncompatibleSchema, "not any more");
        p.set_schema_versions(Bytes::new(), vec![(one, Ok(version(2))), (two, Err(error))]);
        p.attach("p", -1, 1000);
        assert_eq!((outcomes(&mut p), sent(&mut p)), (vec![refused, refused], vec![]));
        assert!(p.is_idle() && p.registered_schemas().len() == 1);
    }

    #[test]
    fn the_schemas_that_are_remembered_are_limited() {
        let (mut p, now) = (producer(), Instant::now());
        for n in 0..1000 {
            let schema = schema(&n.to_string());
            push(&mut p, now, b"a", Some(&schema));
            p.poll_schema().unwrap();
            p.handle_schema(&schema, Ok(version(1)));
            sent(&mut p);
            receipt(&mut p, n);
        }
        assert_eq!(p.registered_schemas().len(), KNOWN);
    }
}
