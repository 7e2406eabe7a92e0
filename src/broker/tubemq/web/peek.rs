//! Looks at messages without consuming them: `GET peek?topic=TOPIC`, and of the query
//!
//! | | |
//! |---|---|
//! | `partition` | its number; without it, all partitions have their share |
//! | `group` | from the next message of a group on |
//! | `offset` | from an offset of the partition on, from `earliest`, which is the default, or the `latest` messages |
//! | `limit` | of messages, 10 unless it is stated, and 100 at most |
//!
//! The answer has the number of `partitions`, the `messages` in their order, each with an `error`
//! in place of its contents if it cannot be read, and whether there are `more`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use super::operate::missing;
use crate::http::message::{Answer, Request};
use crate::http::publication::Publication;
use crate::log::Entry;
use crate::tubemq::partition::{OFFSET_UNIT, offset_of};
use crate::tubemq::{Broker, PREFIX};
use forebay_base::error::Error;
use forebay_tubemq::message::unpack;
use forebay_tubemq::pb;

/// Limits on the messages of an answer: if none is stated, and the largest.
const USUAL: u64 = 10;
const MOST: u64 = 100;
/// Bytes of a payload that are shown.
const PAYLOAD: usize = 16 << 10;
/// Bytes of messages that are read for an answer, give or take one message.
const READ_BYTES: usize = 4 << 20;

/// The place of the messages in their partitions.
#[derive(Clone, Copy, Debug)]
enum Place<'r> {
    Earliest,
    Latest,
    Group(&'r str),
    /// From the message with this number on.
    Message(u64),
}

/// The query of a request.
#[derive(Debug)]
struct Query<'r> {
    topic: &'r str,
    partition: Option<usize>,
    place: Place<'r>,
    limit: u64,
}

impl<'r> Query<'r> {
    fn read(request: &'r Request) -> Result<Self, String> {
        let topic = request.query("topic").filter(|topic| !topic.is_empty()).ok_or("topic is missing")?;
        let number = |name: &str| match request.query(name) {
            None => Ok(None),
            Some(text) => text.parse::<u64>().map(Some).map_err(|_| format!("{name} is not a number")),
        };
        let partition = number("partition")?.map(|index| usize::try_from(index).unwrap_or(usize::MAX));
        let limit = number("limit")?.unwrap_or(USUAL);
        if !(1..=MOST).contains(&limit) {
            return Err(format!("limit is 1 to {MOST}"));
        }
        let place = match (request.query("group"), request.query("offset")) {
            (Some(_), Some(_)) => return Err("group and offset exclude each other".to_owned()),
            (Some(group), None) => Place::Group(group),
            (None, None | Some("earliest")) => Place::Earliest,
            (None, Some("latest")) => Place::Latest,
            (None, Some(text)) => {
                let offset = text.parse::<u64>().map_err(|_| "offset is a number, earliest or latest")?;
                if partition.is_none() {
                    return Err("an offset is one of a partition: partition is missing".to_owned());
                }
                Place::Message(offset / OFFSET_UNIT)
            }
        };
        Ok(Self { topic: topic.strip_prefix(PREFIX).unwrap_or(topic), partition, place, limit })
    }
}

/// Messages of a partition: its index and number, and the numbers of the first message and of the
/// one behind the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    index: usize,
    id: u64,
    from: u64,
    to: u64,
}

impl Range {
    fn len(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// Shortens ranges so that together they have at most `limit` messages: in equal parts but for one
/// message, and what a short one leaves goes to the others. They lose messages at the end, or in
/// front if the `latest` are asked for.
fn share(mut ranges: Vec<Range>, mut limit: u64, latest: bool) -> Vec<Range> {
    let mut by_length: Vec<usize> = (0..ranges.len()).collect();
    by_length.sort_by_key(|at| ranges.get(*at).map(Range::len));
    let mut others = ranges.len() as u64;
    for at in by_length {
        let Some(range) = ranges.get_mut(at) else { continue };
        // Short ranges come first: what they leave goes to the others.
        let part = range.len().min(limit.div_ceil(others.max(1)));
        (limit, others) = (limit - part, others - 1);
        match latest {
            true => range.from = range.to - part,
            false => range.to = range.from + part,
        }
    }
    ranges
}

impl Broker {
    pub(super) fn peek_request(&mut self, request: &Request) -> Result<Answer, Answer> {
        let query = Query::read(request).map_err(|reason| Publication::refused(&reason))?;
        let chosen = self.chosen(query.topic, query.partition)?;
        if let Place::Group(group) = query.place
            && !self.has_offset(query.topic, group)
        {
            return Err(missing(&format!("an offset of group {group} in topic {}", query.topic)));
        }
        let whole: Vec<Range> = chosen
            .into_iter()
            .filter_map(|(index, id)| self.range(index, id, query.place))
            .filter(|range| range.len() > 0)
            .collect();
        let there: u64 = whole.iter().map(Range::len).sum();
        let ranges = share(whole, query.limit, matches!(query.place, Place::Latest));
        let messages = self.read_ranges(&ranges);
        let partitions = self.topics.get(query.topic).map_or(0, |topic| topic.partitions.len());
        let more = there > messages.len() as u64;
        Ok(Answer::json(&json!({
            "topic": query.topic,
            "partitions": partitions,
            "messages": messages,
            "more": more,
        })))
    }

    /// All messages of a partition from a place on; `None` if the group has no offset there.
    fn range(&self, index: usize, id: u64, place: Place<'_>) -> Option<Range> {
        let partition = self.partitions.get(&id)?;
        let (first, to) = (partition.log.first(), partition.log.committed());
        let from = match place {
            Place::Earliest | Place::Latest => first,
            Place::Group(group) => partition.offset(group)?,
            Place::Message(number) => number.clamp(first, to),
        };
        Some(Range { index, id, from, to })
    }

    fn read_ranges(&mut self, ranges: &[Range]) -> Vec<Value> {
        let (mut messages, mut bytes) = (Vec::new(), 0);
        for range in ranges {
            let Some(partition) = self.partitions.get(&range.id) else { continue };
            for number in range.from..range.to {
                if bytes >= READ_BYTES {
                    return messages;
                }
                let found = partition.log.peek(number, &mut self.source);
                bytes += found.as_ref().ok().and_then(Option::as_ref).map_or(0, |entry| entry.body.len());
                let described =
                    found.and_then(|entry| entry.map(|entry| described(range.index, entry)).transpose());
                // One that is damaged does not hide the others.
                let damaged = |error: Error| {
                    let error = error.message();
                    Some(json!({"partition": range.index, "offset": offset_of(number), "error": error}))
                };
                messages.extend(described.unwrap_or_else(damaged));
            }
        }
        messages
    }
}

fn described(partition: usize, entry: Entry) -> Result<Value, Error> {
    let (offset, stored_ms) = (offset_of(entry.sequence), entry.stored_ms);
    let (payload, attributes) = unpack(pb::TransferedMessage {
        message_id: 0,
        check_sum: entry.checksum.unwrap_or_default() as i32,
        pay_load_data: entry.body,
        flag: entry.flags as i32,
    })?;
    let properties: Map<String, Value> =
        attributes.properties().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let shown = payload.slice(..payload.len().min(PAYLOAD));
    Ok(json!({
        "partition": partition,
        "offset": offset,
        "stored_ms": stored_ms,
        "event_ms": attributes.time(),
        "key": attributes.key(),
        "message_type": attributes.message_type(),
        "properties": properties,
        "bytes": payload.len(),
        "payload_base64": BASE64.encode(shown),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(lengths: &[u64], limit: u64, latest: bool) -> Vec<(u64, u64)> {
        let range = |(index, length): (usize, &u64)| Range { index, id: 0, from: 100, to: 100 + length };
        let ranges = share(lengths.iter().enumerate().map(range).collect(), limit, latest);
        ranges.iter().map(|range| (range.from, range.to)).collect()
    }

    #[test]
    fn partitions_share_the_limit_and_leave_to_others_what_they_do_not_have() {
        assert_eq!(shared(&[], 10, false), []);
        assert_eq!(shared(&[7], 10, false), [(100, 107)]);
        assert_eq!(shared(&[50, 1, 50], 10, false), [(100, 105), (100, 101), (100, 104)]);
        assert_eq!(shared(&[50, 1, 50], 10, true), [(145, 150), (100, 101), (146, 150)]);
        let many: u64 = shared(&[3; 1000], 10, false).iter().map(|(from, to)| to - from).sum();
        assert_eq!(many, 10);
    }

    fn read(query: &str) -> Result<(Option<usize>, u64), String> {
        let request = Request::new(hyper::Method::GET, &format!("/?{query}").parse().unwrap()).unwrap();
        Query::read(&request).map(|query| (query.partition, query.limit))
    }

    #[test]
    fn what_is_wrong_with_a_query_is_named() {
        assert_eq!(read("topic=t"), Ok((None, 10)));
        assert_eq!(read("topic=t&partition=3&offset=28&limit=100"), Ok((Some(3), 100)));
        for (query, word) in [
            ("", "topic"),
            ("topic=", "topic"),
            ("topic=t&partition=-1", "partition"),
            ("topic=t&limit=0", "limit"),
            ("topic=t&limit=101", "limit"),
            ("topic=t&offset=28", "partition is missing"),
            ("topic=t&partition=0&offset=-28", "offset"),
            ("topic=t&offset=earliest&group=g", "exclude"),
        ] {
            let error = read(query).unwrap_err();
            assert!(error.contains(word), "{query}: {error}");
        }
    }
}
