//! Messages that no open consumer claims: of a kept session, or given back by a consumer that was
//! closed.
//!
//! MQTT acknowledges in the order of arrival [MQTT-4.6.0-2], so a message that nothing acknowledges
//! holds up all that come behind it, those of other consumers too. It is therefore held
//! unacknowledged for a while only. One that no consumer could claim later, as its subscription
//! ended with its consumer, is acknowledged at once.
//!
//! ```text
//!              ┌──────┐  GRACE is over, and the policy  ┌──────────────┐  over the limit
//!  PUBLISH ───►│ held │────────────────────────────────►│ acknowledged │─────────────► dropped
//!              └──┬───┘  needs the window for others    └──────┬───────┘
//!                 └──────────────► a consumer opens ◄──────────┘
//! ```

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytestring::ByteString;
use tokio::sync::Notify;

use crate::mqtt::options::UnclaimedPolicy;
use crate::mqtt::subscription::Subscription;
use forebay_base::sync::Mutex;
use forebay_mqtt::QoS;
use forebay_mqtt::packet::Publish;
use forebay_mqtt::topic::Filter;

/// Time in which a consumer may open and claim what is held, after the session was resumed or a
/// consumer was opened or closed.
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
    /// End of the time in which it is held.
    until: Instant,
    /// Whether it counts as unread, so that the socket is not read without limit. This ends with
    /// the time to hold it.
    counted: bool,
}

/// A closed consumer.
#[derive(Debug)]
struct ClosedConsumer {
    /// Its subscription identifiers.
    ids: Range<u32>,
    filters: Vec<Filter>,
    at: Instant,
}

#[derive(Debug, Default)]
struct State {
    held: VecDeque<Held>,
    /// Bytes of those that do not count as unread.
    bytes: usize,
    /// End of the time in which everything is held.
    until: Option<Instant>,
    /// When the next look is due.
    next: Option<Instant>,
    /// Consumers that are open.
    consumers: usize,
    /// Closed consumers, oldest first.
    closed: VecDeque<ClosedConsumer>,
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
        UnclaimedStats { messages: state.held.len(), dropped: state.dropped }
    }

    /// When [`Self::settle`] is due, if a time to hold has not ended.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state.lock();
        let held = state.held.iter().map(|held| held.until);
        state.next = held.chain(state.until).filter(|until| *until > now).min();
        state.next
    }

    /// Takes a message that no consumer claims.
    pub(super) fn arrived(&self, now: Instant, publish: Publish, token: u64) -> Todo {
        let mut state = self.state.lock();
        let mut until = state.until.unwrap_or(now);
        let group = state.shared_of(&publish).map(|(group, closed)| {
            // A job: for some time after its consumer was closed, whatever other consumers did
            // before.
            until = until.max(closed + GRACE);
            group
        });
        self.hold(&mut state, now, [Held { publish, token, group, until, counted: false }])
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
            Held { publish, token, group, until: now + GRACE, counted: false }
        });
        let held: Vec<Held> = held.collect();
        self.hold(&mut state, now, held)
    }

    fn hold(&self, state: &mut State, now: Instant, messages: impl IntoIterator<Item = Held>) -> Todo {
        let keep = self.policy == UnclaimedPolicy::Keep;
        let mut todo = Todo::default();
        for mut held in messages {
            if !self.kept && held.group.is_none() {
                todo.acknowledge.extend((held.token != 0).then_some(held.token));
                continue;
            }
            if held.until > now {
                held.counted = true;
                todo.unread += held.publish.weight();
                if state.next.is_none_or(|next| held.until < next) {
                    state.next = Some(held.until);
                    self.changed.notify_one();
                }
                state.held.push_back(held);
                continue;
            }
            if !keep {
                self.drop_one(state, held, &mut todo);
                continue;
            }
            if state.consumers > 0 && held.token != 0 {
                state.warn_late(&held, &mut todo);
                todo.acknowledge.push(std::mem::take(&mut held.token));
            }
            state.bytes += weight(&held.publish);
            state.held.push_back(held);
        }
        self.trim(state, &mut todo);
        todo
    }

    /// Begins a time in which everything is held. Right after an earlier one it does not: consumers
    /// that come and go all the time must not hold up the others.
    fn begin(state: &mut State, now: Instant) {
        if state.until.is_none_or(|until| now >= until + GRACE) {
            let until = now + GRACE;
            state.until = Some(until);
            for held in state.held.iter_mut().filter(|held| held.token != 0) {
                held.until = held.until.max(until);
            }
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
                if !session_present {
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
            // What is subscribed to again may be left and unsubscribed from again.
            for (filter, _) in &consumer.options.filters {
                state.unsubscribed.remove(&filter.text());
                state.forget_closed(filter);
            }
            Self::begin(&mut state, now);
            let State { held, bytes, .. } = &mut *state;
            held.retain_mut(|held| {
                if !consumer.claims(&held.publish.topic, held.group.as_deref()) {
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
    pub(super) fn closed(&self, now: Instant, ids: Range<u32>, filters: Vec<Filter>) {
        {
            let mut state = self.state.lock();
            state.consumers = state.consumers.saturating_sub(1);
            if state.closed.len() == REMEMBERED {
                state.closed.pop_front();
            }
            state.closed.push_back(ClosedConsumer { ids, filters, at: now });
            Self::begin(&mut state, now);
        }
        self.changed.notify_one();
    }

    /// Does what is due when the time to hold has ended.
    pub(super) fn settle(&self, now: Instant) -> Todo {
        let mut state = self.state.lock();
        let mut todo = Todo::default();
        self.release(&mut state, now, &mut todo);
        todo
    }

    /// Drops what `filter` matches: the application has unsubscribed from it. What another
    /// subscription of a closed consumer matches too is held for that one.
    pub(super) fn unsubscribed(&self, filter: &Filter) -> Todo {
        let mut todo = Todo::default();
        let mut state = self.state.lock();
        state.forget_closed(filter);
        let State { held, bytes, dropped, closed, .. } = &mut *state;
        held.retain_mut(|held| {
            if held.group.as_deref() != filter.group()
                || !filter.matches(&held.publish.topic)
                || closed.iter().any(|consumer| consumer.is_for(held))
            {
                return true;
            }
            *dropped += 1;
            todo.acknowledge.extend((held.token != 0).then_some(held.token));
            held.forget(bytes, &mut todo);
            false
        });
        todo
    }

    /// Handles the end of the client. Returns a warning if messages end with it that the broker
    /// does not have.
    pub(super) fn end(&self) -> Option<String> {
        let mut state = self.state.lock();
        let lost = |held: &&Held| held.token == 0 && held.publish.qos > QoS::AtMostOnce;
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

    /// Frees the window of what has been held long enough, as the policy says.
    fn release(&self, state: &mut State, now: Instant, todo: &mut Todo) {
        for mut held in std::mem::take(&mut state.held) {
            if held.until > now {
                state.held.push_back(held);
                continue;
            }
            if std::mem::take(&mut held.counted) {
                todo.taken += held.publish.weight();
                state.bytes += weight(&held.publish);
            }
            if self.policy != UnclaimedPolicy::Keep {
                state.bytes -= weight(&held.publish);
                self.drop_one(state, held, todo);
                continue;
            }
            if state.consumers > 0 && held.token != 0 {
                state.warn_late(&held, todo);
                todo.acknowledge.push(std::mem::take(&mut held.token));
            }
            state.held.push_back(held);
        }
        // Without a consumer there is none that they could hold up: the broker keeps them too, as
        // long as there is room.
        self.trim(state, todo);
    }

    /// Drops the oldest beyond the limit.
    fn trim(&self, state: &mut State, todo: &mut Todo) {
        while state.bytes > self.limit
            && let Some(oldest) = state.held.iter().position(|held| !held.counted)
            && let Some(mut held) = state.held.remove(oldest)
        {
            held.forget(&mut state.bytes, todo);
            self.drop_one(state, held, todo);
        }
    }

    /// Drops a message that is in no figure any more.
    fn drop_one(&self, state: &mut State, held: Held, todo: &mut Todo) {
        todo.acknowledge.extend((held.token != 0).then_some(held.token));
        state.dropped += 1;
        let topic = &held.publish.topic;
        if self.policy == UnclaimedPolicy::Unsubscribe {
            let known = state.closed.iter().flat_map(|consumer| &consumer.filters);
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

    /// Forgets that a consumer with `filter` was closed.
    fn forget_closed(&mut self, filter: &Filter) {
        self.closed.retain_mut(|consumer| {
            consumer.filters.retain(|other| other != filter);
            !consumer.filters.is_empty()
        });
    }

    /// Group of the shared subscription of a closed consumer that a message came from, and when
    /// that was closed.
    fn shared_of(&self, publish: &Publish) -> Option<(String, Instant)> {
        let named =
            |ids: &Range<u32>| publish.properties.subscription_identifiers().any(|id| ids.contains(&id));
        let has_ids = publish.properties.subscription_identifier().is_some();
        let of = |consumer: &ClosedConsumer| {
            if has_ids && !named(&consumer.ids) {
                return None;
            }
            let filter = consumer.filters.iter().find(|filter| filter.matches(&publish.topic))?;
            Some(filter.group().map(|group| (group.to_owned(), consumer.at)))
        };
        self.closed.iter().rev().find_map(of).flatten()
    }
}

impl ClosedConsumer {
    /// Whether a message came for one of its subscriptions. Brokers may send a copy for each
    /// subscription, which then names one of them.
    fn is_for(&self, held: &Held) -> bool {
        let properties = &held.publish.properties;
        let named = properties.subscription_identifiers().any(|id| self.ids.contains(&id));
        (named || properties.subscription_identifier().is_none())
            && self
                .filters
                .iter()
                .any(|filter| filter.group() == held.group.as_deref() && filter.matches(&held.publish.topic))
    }
}

impl Held {
    /// Takes it out of the figures.
    fn forget(&mut self, bytes: &mut usize, todo: &mut Todo) {
        if std::mem::take(&mut self.counted) {
            todo.taken += self.publish.weight();
        } else {
            *bytes -= weight(&self.publish);
        }
    }
}

/// Memory that a message holds, in bytes.
fn weight(publish: &Publish) -> usize {
    publish.weight() + size_of::<Held>()
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::events::ConsumerEvents;
    use crate::mqtt::options::ConsumerOptions;
    use crate::mqtt::subscription::Message;
    use forebay_base::error::Error;
    use forebay_mqtt::packet::SubscribeOptions;

    struct Nothing;

    impl ConsumerEvents for Nothing {
        fn readable(&self) {}
        fn closed(&self, _: Error) {}
    }

    fn filter(text: &str) -> Filter {
        Filter::parse(text.to_owned()).unwrap()
    }

    fn consumer(text: &str) -> Arc<Subscription> {
        let options =
            ConsumerOptions { filters: vec![(filter(text), SubscribeOptions::default())], auto_ack: false };
        let abandoned = mpsc::unbounded_channel().0;
        Arc::new(Subscription::new(
            options,
            false,
            Arc::new(Nothing),
            Arc::default(),
            abandoned,
            &Arc::default(),
        ))
    }

    fn publish(topic: &str) -> Publish {
        Publish { topic: topic.to_owned().into(), qos: QoS::AtLeastOnce, ..Publish::default() }
    }

    #[test]
    fn jobs_are_held_for_the_whole_time_however_lately_another_one_began() {
        let unclaimed = Unclaimed::new(UnclaimedPolicy::Keep, false, 1 << 20);
        let start = Instant::now();
        let (other, workers) = (consumer("other"), consumer("$share/g/jobs"));
        unclaimed.opened(start, &other);
        unclaimed.opened(start, &workers);
        let closed = start + GRACE * 3 / 2;
        unclaimed.closed(closed, 2..3, vec![filter("$share/g/jobs")]);
        assert!(unclaimed.given_back(closed, &workers, [(publish("jobs"), 1)]).acknowledge.is_empty());
        let later = closed + GRACE / 2;
        assert!(unclaimed.arrived(later, publish("jobs"), 2).acknowledge.is_empty());
        assert_eq!(unclaimed.deadline(later), Some(closed + GRACE));
        assert!(unclaimed.settle(closed + GRACE - Duration::from_millis(1)).acknowledge.is_empty());
        assert_eq!(unclaimed.settle(closed + GRACE).acknowledge, [1, 2]);
        assert_eq!(unclaimed.stats().messages, 2);
        let (claimed, todo) = unclaimed.opened(closed + GRACE, &workers);
        assert_eq!((claimed.len(), todo.taken), (2, 0));
        assert_eq!(unclaimed.state.lock().bytes, 0);
    }

    #[test]
    fn what_no_consumer_could_claim_is_acknowledged_at_once() {
        let unclaimed = Unclaimed::new(UnclaimedPolicy::Keep, false, 1 << 20);
        let start = Instant::now();
        let plain = consumer("a");
        unclaimed.opened(start, &plain);
        unclaimed.closed(start, 1..2, vec![filter("a")]);
        assert_eq!(unclaimed.given_back(start, &plain, [(publish("a"), 1)]).acknowledge, [1]);
        assert_eq!(unclaimed.arrived(start, publish("a"), 2).acknowledge, [2]);
        assert_eq!(unclaimed.stats(), UnclaimedStats::default());
    }

    #[test]
    fn a_filter_that_is_subscribed_to_again_is_unsubscribed_from_again() {
        let unclaimed = Unclaimed::new(UnclaimedPolicy::Unsubscribe, true, 1 << 20);
        let (mut now, again) = (Instant::now(), consumer("a/#"));
        for _ in 0..3 {
            unclaimed.opened(now, &again);
            unclaimed.closed(now, 1..2, vec![filter("a/#")]);
            now += GRACE * 3;
            assert_eq!(unclaimed.arrived(now, publish("a/x"), 1).unsubscribe, [filter("a/#")]);
            assert!(unclaimed.arrived(now, publish("a/x"), 2).unsubscribe.is_empty());
        }
        assert_eq!(unclaimed.stats().dropped, 6);
    }

    #[test]
    fn unsubscribing_keeps_what_is_for_an_overlapping_filter_too() {
        let unclaimed = Unclaimed::new(UnclaimedPolicy::Keep, true, 1 << 20);
        let now = Instant::now();
        let (wide, narrow) = (consumer("a/#"), consumer("a/b"));
        unclaimed.opened(now, &wide);
        unclaimed.opened(now, &narrow);
        unclaimed.closed(now, 1..2, vec![filter("a/#")]);
        unclaimed.closed(now, 2..3, vec![filter("a/b")]);
        let named = |topic: &str, id: u32| {
            let mut publish = publish(topic);
            publish.properties.push(forebay_mqtt::Property::SubscriptionIdentifier(id));
            publish
        };
        unclaimed.arrived(now, publish("a/b"), 1);
        unclaimed.arrived(now, named("a/b", 1), 2);
        unclaimed.arrived(now, named("a/b", 2), 3);
        let todo = unclaimed.unsubscribed(&filter("a/b"));
        assert_eq!(todo.acknowledge, [3], "only the copy for this subscription");
        assert_eq!(unclaimed.stats(), UnclaimedStats { messages: 2, dropped: 1 });
        let todo = unclaimed.unsubscribed(&filter("a/#"));
        assert_eq!(todo.acknowledge, [1, 2]);
        assert_eq!(unclaimed.stats(), UnclaimedStats { messages: 0, dropped: 3 });
    }

    #[test]
    fn a_closed_consumer_returns_what_is_given_back() {
        let consumer = consumer("a");
        let message = || Message::new(publish("a"), 1, [Arc::clone(&consumer)].into());
        assert!(consumer.ahead.give_back(message(), false).is_ok());
        assert!(consumer.push(message()).is_ok());
        assert_eq!((consumer.ahead.len(), consumer.available()), (1, 1));
        consumer.closed.store(true, std::sync::atomic::Ordering::Release);
        assert_eq!((consumer.clear().len(), consumer.ahead.close().len()), (1, 1));
        assert!(consumer.ahead.give_back(message(), false).is_err());
        assert!(consumer.push(message()).is_err());
    }
}
