//! Messages that no open consumer claims: of a kept session, or given back by a consumer that was closed.
//!
//! MQTT acknowledges in the order of arrival [MQTT-4.6.0-2], so a message that nothing acknowledges holds up all that
//! come behind it, those of other consumers too. It is therefore held unacknowledged for a while only:
//!
//! ```text
//!              ┌──────┐  GRACE is over, and the policy  ┌──────────────┐  over the limit
//!  PUBLISH ───►│ held │────────────────────────────────►│ acknowledged │───────────────► dropped, counted
//!              └──┬───┘  needs the window for others    └──────┬───────┘
//!                 └──────────────► a consumer opens ◄──────────┘
//! ```

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use bytestring::ByteString;
use tokio::sync::Notify;

use crate::client::mqtt::options::UnclaimedPolicy;
use crate::client::mqtt::subscription::Subscription;
use crate::mqtt::QoS;
use crate::mqtt::packet::Publish;
use crate::mqtt::producer::cost;
use crate::mqtt::topic::Filter;
use crate::sync::Mutex;

/// Time in which a consumer may open and claim what is held, after the session was resumed or a consumer was opened
/// or closed.
const GRACE: Duration = Duration::from_secs(5);

/// Limit on filters remembered of closed consumers, and on topics that were unsubscribed from.
const REMEMBERED: usize = 1024;

/// Steps to take once the lock is released.
#[derive(Debug, Default)]
pub(super) struct Todo {
    /// Messages to acknowledge.
    pub(super) acknowledge: Vec<u64>,
    /// Bytes that count as unread now.
    pub(super) unread: usize,
    /// Bytes that no longer count as unread.
    pub(super) taken: usize,
    /// Filters to unsubscribe from.
    pub(super) unsubscribe: Vec<Filter>,
    pub(super) warning: Option<String>,
}

/// Figures for the application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnclaimedStats {
    /// Messages that wait for a consumer.
    pub messages: usize,
    /// Messages that were acknowledged or discarded without a consumer.
    pub dropped: u64,
}

#[derive(Debug)]
struct Held {
    publish: Publish,
    /// Names it to the session; 0 when there is nothing to acknowledge.
    token: u64,
    /// Group of the shared subscription that it came from.
    group: Option<String>,
    /// Whether a consumer that opens gets it. Otherwise only its acknowledgement is held.
    claimable: bool,
    /// Whether it counts as unread, so that the socket is not read without limit.
    counted: bool,
}

#[derive(Debug, Default)]
struct State {
    held: VecDeque<Held>,
    /// Bytes of the claimable ones.
    bytes: usize,
    /// End of the time in which everything is held.
    until: Option<Instant>,
    /// Consumers that are open.
    consumers: usize,
    /// Subscription identifiers and filters of closed consumers, oldest first.
    left: VecDeque<(u32, Vec<Filter>)>,
    unsubscribed: BTreeSet<ByteString>,
    dropped: u64,
    warned_late: bool,
    warned_drop: bool,
}

/// The messages that no open consumer claims.
#[derive(Debug)]
pub(super) struct Unclaimed {
    policy: UnclaimedPolicy,
    /// Whether the session outlives its consumers.
    kept: bool,
    /// Limit on the bytes that wait for a consumer after their acknowledgement.
    limit: usize,
    state: Mutex<State>,
    /// Notified when the time to hold may be over.
    pub(super) changed: Arc<Notify>,
}

impl Unclaimed {
    pub(super) fn new(policy: UnclaimedPolicy, kept: bool, limit: usize) -> Self {
        Self { policy, kept, limit, state: Mutex::default(), changed: Arc::default() }
    }

    pub(super) fn stats(&self) -> UnclaimedStats {
        let state = self.state.lock();
        let messages = state.held.iter().filter(|held| held.claimable).count();
        UnclaimedStats { messages, dropped: state.dropped }
    }

    /// When [`Self::settle`] is due, if the time to hold has not ended.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        self.state.lock().until.filter(|until| *until > now)
    }

    /// Takes a message that no consumer claims.
    pub(super) fn arrived(&self, now: Instant, publish: Publish, token: u64) -> Todo {
        let mut state = self.state.lock();
        let group = state.group_of(&publish);
        let claimable = self.kept || group.is_some();
        let held = Held { publish, token, group, claimable, counted: false };
        self.hold(&mut state, now, [held])
    }

    /// Takes back what a closed consumer had not handed out.
    pub(super) fn given_back(
        &self,
        now: Instant,
        consumer: &Subscription,
        left: impl IntoIterator<Item = (Publish, u64)>,
    ) -> Todo {
        let mut state = self.state.lock();
        let held = left.into_iter().map(|(publish, token)| {
            let group = consumer.filter_of(&publish.topic).and_then(Filter::group).map(str::to_owned);
            let claimable = self.kept || group.is_some();
            Held { publish, token, group, claimable, counted: false }
        });
        let held: Vec<Held> = held.collect();
        self.hold(&mut state, now, held)
    }

    fn hold(&self, state: &mut State, now: Instant, messages: impl IntoIterator<Item = Held>) -> Todo {
        let grace = state.until.is_some_and(|until| until > now);
        let keep = self.policy == UnclaimedPolicy::Keep;
        let mut todo = Todo::default();
        for mut held in messages {
            if !held.claimable {
                if held.token == 0 {
                    continue;
                }
                // Only its acknowledgement is of interest.
                held.publish.payload = Bytes::new();
            }
            if !grace && !keep {
                self.drop_one(state, held, &mut todo);
                continue;
            }
            if !grace && state.consumers > 0 {
                if held.token != 0 {
                    state.warn_late(&held, &mut todo);
                    todo.acknowledge.push(std::mem::take(&mut held.token));
                }
                if !held.claimable {
                    continue;
                }
            }
            if held.claimable {
                state.bytes += weight(&held.publish);
                held.counted = grace;
                todo.unread += if grace { cost(&held.publish) } else { 0 };
            }
            state.held.push_back(held);
        }
        if !grace {
            self.trim(state, &mut todo);
        }
        todo
    }

    /// Begins a time in which everything is held. Right after an earlier one it does not: consumers that come and go
    /// all the time must not hold up the others.
    fn begin(state: &mut State, now: Instant) {
        if state.until.is_none_or(|until| now >= until + GRACE) {
            state.until = Some(now + GRACE);
        }
    }

    /// Handles CONNACK. The broker sends unacknowledged messages of QoS 1 again.
    pub(super) fn attached(&self, now: Instant, session_present: bool) -> Todo {
        let mut todo = Todo::default();
        {
            let mut state = self.state.lock();
            let State { held, bytes, .. } = &mut *state;
            held.retain_mut(|held| {
                if held.token == 0 || session_present && held.publish.qos == QoS::ExactlyOnce {
                    return true;
                }
                if !session_present && held.claimable {
                    held.token = 0;
                    return true;
                }
                held.forget(bytes, &mut todo);
                false
            });
            if session_present {
                Self::begin(&mut state, now);
            }
        }
        self.changed.notify_one();
        todo
    }

    /// Counts a consumer that opens, and returns the messages that it claims with their tokens.
    pub(super) fn opened(&self, now: Instant, consumer: &Subscription) -> (Vec<(Publish, u64)>, Todo) {
        let mut todo = Todo::default();
        let mut claimed = Vec::new();
        {
            let mut state = self.state.lock();
            state.consumers += 1;
            Self::begin(&mut state, now);
            let State { held, bytes, .. } = &mut *state;
            held.retain_mut(|held| {
                if !held.claimable || !consumer.claims(&held.publish.topic, held.group.as_deref()) {
                    return true;
                }
                held.forget(bytes, &mut todo);
                claimed.push((std::mem::take(&mut held.publish), held.token));
                false
            });
        }
        self.changed.notify_one();
        (claimed, todo)
    }

    /// Counts a consumer that closes.
    pub(super) fn closed(&self, now: Instant, id: u32, filters: Vec<Filter>) {
        {
            let mut state = self.state.lock();
            state.consumers = state.consumers.saturating_sub(1);
            if state.left.len() == REMEMBERED {
                state.left.pop_front();
            }
            state.left.push_back((id, filters));
            Self::begin(&mut state, now);
        }
        self.changed.notify_one();
    }

    /// Does what is due when the time to hold has ended.
    pub(super) fn settle(&self, now: Instant) -> Todo {
        let mut state = self.state.lock();
        let mut todo = Todo::default();
        if state.until.is_none_or(|until| until <= now) {
            self.release(&mut state, &mut todo);
        }
        todo
    }

    /// Drops what `filter` matches: the application has unsubscribed from it.
    pub(super) fn unsubscribed(&self, filter: &Filter) -> Todo {
        let mut todo = Todo::default();
        let mut state = self.state.lock();
        let State { held, bytes, dropped, left, .. } = &mut *state;
        left.retain(|(_, filters)| filters.iter().any(|other| other != filter));
        held.retain_mut(|held| {
            if held.group.as_deref() != filter.group() || !filter.matches(&held.publish.topic) {
                return true;
            }
            *dropped += u64::from(held.claimable);
            todo.acknowledge.extend((held.token != 0).then_some(held.token));
            held.forget(bytes, &mut todo);
            false
        });
        todo
    }

    /// Handles the end of the client. Returns a warning if messages end with it that the broker does not have.
    pub(super) fn end(&self) -> Option<String> {
        let mut state = self.state.lock();
        let lost = |held: &&Held| held.claimable && held.token == 0 && held.publish.qos > QoS::AtMostOnce;
        let lost = state.held.iter().filter(lost).count();
        state.held.clear();
        state.bytes = 0;
        state.dropped += lost as u64;
        (lost > 0).then(|| {
            format!(
                "{lost} messages that no consumer had claimed ended with the client: open their consumers within \
                 {GRACE:?} of connecting, or end their subscription with client.unsubscribe(filter)"
            )
        })
    }

    /// Frees the window of what is held, as the policy says.
    fn release(&self, state: &mut State, todo: &mut Todo) {
        for held in &mut state.held {
            if std::mem::take(&mut held.counted) {
                todo.taken += cost(&held.publish);
            }
        }
        if self.policy != UnclaimedPolicy::Keep {
            state.bytes = 0;
            for held in std::mem::take(&mut state.held) {
                self.drop_one(state, held, todo);
            }
        } else if state.consumers > 0 {
            if let Some(first) = state.held.iter().position(|held| held.claimable && held.token != 0) {
                let held = std::mem::take(&mut state.held);
                state.warn_late(&held[first], todo);
                state.held = held;
            }
            state.held.retain_mut(|held| {
                let token = std::mem::take(&mut held.token);
                todo.acknowledge.extend((token != 0).then_some(token));
                held.claimable
            });
        }
        // Without a consumer there is none that they could hold up: the broker keeps them too, as long as there is room.
        self.trim(state, todo);
    }

    /// Drops the oldest beyond the limit.
    fn trim(&self, state: &mut State, todo: &mut Todo) {
        while state.bytes > self.limit
            && let Some(mut held) = state.held.pop_front()
        {
            held.forget(&mut state.bytes, todo);
            self.drop_one(state, held, todo);
        }
    }

    /// Drops a message that is in no figure any more.
    fn drop_one(&self, state: &mut State, held: Held, todo: &mut Todo) {
        todo.acknowledge.extend((held.token != 0).then_some(held.token));
        if !held.claimable {
            return;
        }
        state.dropped += 1;
        let topic = &held.publish.topic;
        if self.policy == UnclaimedPolicy::Unsubscribe {
            let known = state.left.iter().flat_map(|(_, filters)| filters);
            let mut filters: Vec<Filter> = known.filter(|filter| filter.matches(topic)).cloned().collect();
            if filters.is_empty() {
                // The filter is of an earlier process. It may have been the topic itself.
                filters.extend(Filter::parse(topic.clone()));
            }
            for filter in filters {
                if state.unsubscribed.len() < REMEMBERED && state.unsubscribed.insert(filter.text()) {
                    todo.unsubscribe.push(filter);
                }
            }
        }
        if !std::mem::replace(&mut state.warned_drop, true) {
            todo.warning = Some(format!(
                "messages of topic {topic:?} that no open consumer claims are acknowledged and dropped: open a \
                 consumer, or end their subscription with client.unsubscribe(filter); stats() counts them as \
                 unclaimed_dropped"
            ));
        }
    }
}

impl State {
    fn warn_late(&mut self, held: &Held, todo: &mut Todo) {
        if !std::mem::replace(&mut self.warned_late, true) {
            let topic = &held.publish.topic;
            todo.warning = Some(format!(
                "messages of topic {topic:?} that no open consumer claims are acknowledged and kept in memory, so that \
                 they do not hold up other consumers: open a consumer, or end their subscription with \
                 client.unsubscribe(filter); stats() counts them as unclaimed_messages"
            ));
        }
    }

    /// Group of the shared subscription of a closed consumer that a message came from.
    fn group_of(&self, publish: &Publish) -> Option<String> {
        let named = |id: u32| publish.properties.subscription_identifiers().any(|other| other == id);
        let has_ids = publish.properties.subscription_identifier().is_some();
        let of = |(id, filters): &(u32, Vec<Filter>)| {
            if has_ids && !named(*id) {
                return None;
            }
            filters.iter().find(|filter| filter.matches(&publish.topic)).map(|f| f.group().map(str::to_owned))
        };
        self.left.iter().rev().find_map(of).flatten()
    }
}

impl Held {
    /// Takes it out of the figures.
    fn forget(&mut self, bytes: &mut usize, todo: &mut Todo) {
        if self.claimable {
            *bytes -= weight(&self.publish);
        }
        if std::mem::take(&mut self.counted) {
            todo.taken += cost(&self.publish);
        }
    }
}

/// Memory that a message holds, in bytes.
fn weight(publish: &Publish) -> usize {
    cost(publish) + size_of::<Held>()
}
