//! Subscriptions: create, delete, and move. With the name of a partitioned topic, those of all its
//! partitions.
//!
//! A subscription that is moved has its consumers closed, as by SEEK: they come back and go on from
//! there.

use std::collections::BTreeSet;
use std::sync::Arc;

use hyper::{Method, StatusCode};
use serde_json::json;

use super::{Refusal, Reply, body};
use crate::http::message::{Answer, Request};
use crate::log::Log;
use crate::pulsar::Broker;
use crate::pulsar::connection::Reader;
use crate::pulsar::consume::{PER_TOPIC, SUBSCRIPTION_NAME, position};
use crate::pulsar::names::Name;
use crate::pulsar::subscription::Subscription;
use crate::pulsar::topic::is_stored;
use forebay_pulsar::pb;

/// Backlog below which the real broker expires nothing for consumers that are connected, unless the
/// oldest message is old enough.
const NEARLY_READ: u64 = 1_000;

/// Limit on the messages that one request skips one by one, when others behind them are
/// acknowledged.
const MAX_SKIPPED: u64 = 100_000;

/// The position in a body.
#[derive(Debug)]
struct Position {
    id: pb::MessageIdData,
    /// Whether the message itself is left out.
    is_excluded: bool,
}

impl Position {
    fn read(request: &Request) -> Result<Self, Refusal> {
        let body = body(request)?;
        // -1 stands for the earliest, and the largest number for the latest.
        let part = |name: &str| body[name].as_i64().map(|number| number as u64);
        let (Some(ledger_id), Some(entry_id)) = (part("ledgerId"), part("entryId")) else {
            let text = "the body is not a message id: ledgerId and entryId are numbers";
            return Err(Refusal::new(StatusCode::BAD_REQUEST, text));
        };
        let id = pb::MessageIdData { ledger_id, entry_id, ..Default::default() };
        Ok(Self { id, is_excluded: body["excluded"] == true })
    }

    /// The entry of a log at which a subscription begins.
    fn start(&self, topic: u64, log: &Log) -> u64 {
        (position(topic, log, &self.id) + u64::from(self.is_excluded)).min(log.next())
    }
}

/// Destination of a subscription that is moved.
enum Move {
    /// Past everything.
    End,
    /// Past this number of messages or batches.
    Skip(u64),
    /// Past what was published before, in milliseconds since 1970.
    Expire(u64),
    /// Past a message id.
    ExpireId(Position),
    /// To what was published then.
    Time(u64),
    /// To a message id.
    Id(Position),
}

/// A number in a request.
pub(super) fn number(text: &str, what: &str) -> Result<u64, Refusal> {
    text.parse().map_err(|_| Refusal::new(StatusCode::BAD_REQUEST, format!("{text:?} is not a {what}")))
}

/// The refusal for a subscription that does not exist.
pub(super) fn missing(subscription: &str, name: &Name) -> Refusal {
    Refusal::not_found(format!("Subscription {subscription} not found for topic {}", name.full))
}

impl Broker {
    pub(super) fn subscriptions_of(&self, name: &Name) -> Reply {
        let ids = self.logs_of(name)?;
        let topics = ids.iter().filter_map(|id| self.topics.get(id));
        let names: BTreeSet<&str> =
            topics.flat_map(|topic| topic.subscriptions.keys()).map(|name| &**name).collect();
        Ok(Answer::json(&json!(names)))
    }

    pub(super) fn subscription_request(
        &mut self,
        method: &Method,
        name: &Name,
        subscription: &str,
        path: &[&str],
        request: &Request,
    ) -> Reply {
        let wall_ms = self.wall_ms();
        let before = |text: &str| {
            number(text, "number of seconds")
                .map(|seconds| wall_ms.saturating_sub(seconds.saturating_mul(1000)))
        };
        let to = match (method.as_str(), path) {
            ("PUT", []) => return self.put_subscription(name, subscription, request),
            ("DELETE", []) => return self.remove_subscription(name, subscription, request),
            ("GET", ["position", at]) => return self.peek(name, subscription, number(at, "position")?),
            ("POST", ["skip_all"]) => Move::End,
            ("POST", ["skip", count]) => Move::Skip(number(count, "number of messages")?),
            ("POST", ["expireMessages", seconds]) => Move::Expire(before(seconds)?),
            ("POST", ["expireMessages"]) => Move::ExpireId(Position::read(request)?),
            ("POST", ["resetcursor", time]) => Move::Time(number(time, "time")?),
            ("POST", ["resetcursor"]) => Move::Id(Position::read(request)?),
            (
                _,
                []
                | ["skip_all" | "resetcursor" | "expireMessages"]
                | ["skip" | "expireMessages" | "resetcursor" | "position", _],
            ) => {
                return Ok(Answer::wrong_method());
            }
            _ => return Ok(Answer::not_found()),
        };
        match to {
            Move::Skip(_) => drop(self.log_of(name, "Skip messages")?),
            Move::Id(_) => drop(self.log_of(name, "Reset-cursor at position")?),
            Move::ExpireId(_) => drop(self.log_of(name, "Expire message at position")?),
            _ => {}
        }
        let (ids, subscription) = (self.logs_of(name)?, Arc::<str>::from(subscription));
        let has = |id: &u64| self.topics.get(id).is_some_and(|t| t.subscriptions.contains_key(&subscription));
        let ids: Vec<u64> = ids.into_iter().filter(has).collect();
        if ids.is_empty() {
            return Err(missing(&subscription, name));
        }
        let readers = ids.into_iter().map(|id| Reader { topic: id, subscription: subscription.clone() });
        if self.move_subscriptions(readers, &to)?.contains(&true) {
            Ok(Answer::done())
        } else {
            Err(none_expired(name))
        }
    }

    /// Expires messages of all subscriptions. As on the real broker, one for which there is nothing
    /// to do makes it a conflict, and the others are done all the same.
    pub(super) fn expire_all(&mut self, name: &Name, seconds: &str) -> Reply {
        let seconds = number(seconds, "number of seconds")?;
        let to = Move::Expire(self.wall_ms().saturating_sub(seconds.saturating_mul(1000)));
        let mut readers = Vec::new();
        for topic in self.logs_of(name)?.into_iter().filter_map(|id| self.topics.get(&id)) {
            let reader = |name: &Arc<str>| Reader { topic: topic.id, subscription: name.clone() };
            readers.extend(topic.subscriptions.keys().map(reader));
        }
        if self.move_subscriptions(readers.into_iter(), &to)?.contains(&false) {
            Err(none_expired(name))
        } else {
            Ok(Answer::done())
        }
    }

    fn move_subscriptions(
        &mut self,
        readers: impl Iterator<Item = Reader>,
        to: &Move,
    ) -> Result<Vec<bool>, Refusal> {
        readers.map(|reader| self.move_subscription(&reader, to)).collect()
    }

    /// Moves a subscription; `false` if nothing is expired for it.
    fn move_subscription(&mut self, reader: &Reader, to: &Move) -> Result<bool, Refusal> {
        if !is_stored(reader.topic) {
            let text = "a non-persistent topic keeps no messages";
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, text));
        }
        let Some(topic) = self.topics.get_mut(&reader.topic) else { return Ok(false) };
        let Some(subscription) = topic.subscriptions.get_mut(&reader.subscription) else {
            return Ok(false);
        };
        let log = &topic.log;
        match to {
            Move::End => subscription.skip_to(log.next()),
            Move::Skip(count) => {
                let to = nth_unacked(subscription, log.committed(), log.first(), *count)?;
                subscription.skip_to(to.map_or(log.committed(), |at| at + 1));
            }
            Move::Expire(before) => {
                let at = log.search(&mut self.source, |entry| entry.publish_ms >= *before)?;
                let backlog = subscription.backlog(log);
                let nearly_read = backlog < NEARLY_READ && !subscription.consumers().is_empty();
                let some = at > subscription.cursor.below();
                if !some {
                    return Ok(backlog > 0 && !nearly_read);
                }
                subscription.skip_to(at);
            }
            Move::ExpireId(id) => {
                let behind = u64::from(!id.is_excluded);
                let at = (position(topic.id, log, &id.id) + behind).min(log.committed());
                if at <= subscription.cursor.below() {
                    return Ok(true);
                }
                subscription.skip_to(at);
            }
            Move::Time(since) => {
                let at = log.search(&mut self.source, |entry| entry.publish_ms >= *since)?;
                subscription.seek(at, &[]);
            }
            Move::Id(id) => {
                let at = id.start(topic.id, log);
                subscription.seek(at, &[]);
            }
        }
        self.close_consumers(reader, true);
        self.flush_cursor(reader.topic, &reader.subscription);
        self.due.insert(reader.topic);
        Ok(true)
    }

    fn put_subscription(&mut self, name: &Name, subscription: &str, request: &Request) -> Reply {
        if !name.is_persistent() {
            let text = "a subscription of a non-persistent topic lives as long as its consumers";
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, text));
        }
        if subscription.len() > SUBSCRIPTION_NAME {
            return Err(Refusal::new(StatusCode::PRECONDITION_FAILED, "the subscription name is too long"));
        }
        if request.flag("replicated") {
            let text = "the embedded broker has no other cluster to replicate the subscription to";
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, text));
        }
        let at = if request.body.is_empty() { None } else { Some(Position::read(request)?) };
        if !self.is_partitioned(name) {
            self.open_topic(name, true)?;
        }
        let ids = self.logs_of(name)?;
        let known =
            |id: &u64| self.topics.get(id).is_some_and(|t| t.subscriptions.contains_key(subscription));
        if ids.iter().all(known) {
            return Err(Refusal::new(StatusCode::CONFLICT, "Subscription already exists for topic"));
        }
        let full = |id: &u64| self.topics.get(id).is_some_and(|topic| topic.subscriptions.len() >= PER_TOPIC);
        if ids.iter().any(full) {
            let text = format!("subscription limit reached: a topic can have {PER_TOPIC}");
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, text));
        }
        // Made by an operator it is free for all users, unless other partitions have it.
        let mut others = ids.iter().filter_map(|id| self.topics.get(id)?.subscriptions.get(subscription));
        let owner = others.next().and_then(|other| other.owner.clone());
        for id in ids {
            let Some(topic) = self.topics.get(&id) else { continue };
            let below = at.as_ref().map_or(topic.log.next(), |at| at.start(id, &topic.log));
            self.create_subscription(id, subscription, below, owner.clone());
        }
        Ok(Answer::done())
    }

    fn remove_subscription(&mut self, name: &Name, subscription: &str, request: &Request) -> Reply {
        let (ids, subscription) = (self.logs_of(name)?, Arc::<str>::from(subscription));
        let found = || ids.iter().filter_map(|id| self.topics.get(id)?.subscriptions.get(&subscription));
        if found().next().is_none() {
            return Err(missing(&subscription, name));
        }
        if !request.flag("force") && found().any(|one| !one.consumers().is_empty()) {
            let text = "Subscription has active connected consumers";
            return Err(Refusal::new(StatusCode::PRECONDITION_FAILED, text));
        }
        for topic in ids {
            self.close_consumers(&Reader { topic, subscription: subscription.clone() }, true);
            self.drop_subscription(topic, &subscription);
        }
        Ok(Answer::done())
    }
}

fn none_expired(name: &Name) -> Refusal {
    let text = format!("no message on topic {} is as old as that: nothing was expired", name.full);
    Refusal::new(StatusCode::CONFLICT, text)
}

/// The n-th entry that is not acknowledged, counted from 1; `None` if there are fewer.
pub(super) fn nth_unacked(
    subscription: &Subscription,
    end: u64,
    first: u64,
    count: u64,
) -> Result<Option<u64>, Refusal> {
    let cursor = &subscription.cursor;
    let below = cursor.below().max(first);
    if cursor.acked_past() == 0 {
        return Ok(below.checked_add(count).filter(|at| count > 0 && *at <= end).map(|at| at - 1));
    }
    if count > MAX_SKIPPED {
        let text = format!(
            "some messages behind are acknowledged: at most {MAX_SKIPPED} can be counted at once, or skip all"
        );
        return Err(Refusal::new(StatusCode::PRECONDITION_FAILED, text));
    }
    let mut at = None;
    for _ in 0..count {
        let next = cursor.next_unacked(at.map_or(below, |at: u64| at + 1));
        if next >= end {
            return Ok(None);
        }
        at = Some(next);
    }
    Ok(at)
}
