//! SUBSCRIBE and UNSUBSCRIBE.

use bytestring::ByteString;

use super::connect::stored_name;
use super::connection::Connection;
use super::replay::REPLAYING;
use super::routes::Subscription;
use super::{Action, Broker, routes};
use crate::store::mqtt::Op;
use crate::tree;
use forebay_base::random::HashMap;
use forebay_mqtt::packet::{RetainHandling, SubAck, Subscribe, SubscribeOptions, UnsubAck, Unsubscribe};
use forebay_mqtt::topic::Filter;
use forebay_mqtt::{Packet, Properties, Reason, Version, Violation};

/// Part of `max_subscription_bytes` that one session may use, as a divisor.
const SESSION_SHARE: usize = 16;
/// Rules that are compared with the filters of one SUBSCRIBE. Beyond it, filters are granted below
/// which nothing may be read; they get nothing.
const DECISION_STEPS: usize = 20_000;

impl Broker {
    pub(super) fn handle_subscribe(
        &mut self,
        id: u64,
        number: u64,
        subscribe: Subscribe,
    ) -> Result<(), Violation> {
        let identifier = subscribe.properties.subscription_identifier().copied();
        let version = self.connections.get(&id).map_or(Version::V3_1_1, |connection| connection.version);
        // A filter that a packet has more than once is subscribed once, with the options that come
        // last: the answer is that of the filters one after the other, and so is the state behind
        // it.
        let mut places: HashMap<ByteString, usize> = HashMap::default();
        let (mut wanted, mut distinct) = (Vec::new(), Vec::new());
        if subscribe.filters.iter().any(|(text, _)| text.is_empty()) {
            return Err(Violation::malformed("an empty topic filter"));
        }
        for (text, options) in subscribe.filters {
            // Copied, so that one filter does not keep a packet of two megabytes alive.
            match Filter::parse(ByteString::from(&*text)).ok().filter(|filter| tree::fits(filter.as_str())) {
                Some(filter) => {
                    let place = *places.entry(filter.text()).or_insert_with(|| {
                        distinct.push((filter, Vec::new()));
                        distinct.len() - 1
                    });
                    distinct[place].1.push(options);
                    wanted.push(Some((place, options)));
                }
                // Like Mosquitto, disconnect an MQTT 3.x client that sends an invalid filter.
                None if version == Version::V5 => wanted.push(None),
                None => return Err(Violation::malformed("invalid topic filter")),
            }
        }
        let answer = SubAck {
            packet_id: subscribe.packet_id,
            properties: Properties::new(),
            reasons: vec![Reason::Success; wanted.len()],
        };
        if !self.takes_answer(id, &Packet::SubAck(answer)) {
            return Ok(());
        }
        let mut steps = DECISION_STEPS;
        let mut grant = |(filter, options): &(Filter, Vec<SubscribeOptions>)| {
            if !self.may_subscribe(number, filter.pattern(), &mut steps) {
                self.counters.denied += 1;
                return Err(Reason::NotAuthorized);
            }
            self.subscribe(number, filter, options, identifier)
        };
        let granted: Vec<_> = distinct.iter().map(&mut grant).collect();
        let reason = |place: Option<(usize, SubscribeOptions)>| match place {
            Some((place, options)) => {
                granted[place].map_or_else(|why| why, |()| Reason::granted(options.qos))
            }
            None => Reason::TopicFilterInvalid,
        };
        let reasons = wanted.into_iter().map(reason).collect();
        let answer = SubAck { packet_id: subscribe.packet_id, properties: Properties::new(), reasons };
        self.when_written(Action::Answer { connection: id, packet: Packet::SubAck(answer), behind: None });
        self.release_replays();
        Ok(())
    }

    /// Subscribes a session to a filter. `options` are those of each time that the packet has the
    /// filter.
    fn subscribe(
        &mut self,
        number: u64,
        filter: &Filter,
        options: &[SubscribeOptions],
        identifier: Option<u32>,
    ) -> Result<(), Reason> {
        let Some(last) = options.last() else { return Err(Reason::Unspecified) };
        let subscription = Subscription { options: *last, id: identifier };
        let Some(session) = self.sessions.get_mut(&number) else { return Err(Reason::Unspecified) };
        let known = session.subscriptions.contains_key(filter.as_str());
        let was_replaying = session.has_replay(filter.as_str());
        let limits = &self.settings.limits;
        if !known {
            let weight = routes::weight(filter.as_str());
            if session.subscriptions.len() >= limits.max_subscriptions
                || session.subscription_bytes + weight > limits.max_subscription_bytes / SESSION_SHARE
                || self.routes.bytes + weight > limits.max_subscription_bytes
            {
                return Err(Reason::QuotaExceeded);
            }
            session.subscription_bytes += weight;
        }
        let before = session.subscriptions.insert(filter.text(), subscription);
        let durable = session.durable;
        let wanted = options.iter().enumerate().any(|(index, options)| match options.retain_handling {
            RetainHandling::Always => true,
            RetainHandling::IfNew => !known && index == 0,
            RetainHandling::Never => false,
        });
        if wanted && filter.group().is_none() {
            self.start_replay(number, &filter.text(), &subscription);
        }
        // A replay that is not started again goes on, and after a kill, too.
        let replays = self.sessions.get(&number).is_some_and(|session| session.has_replay(filter.as_str()));
        if before != Some(subscription) {
            self.routes.insert(number, filter, subscription);
        }
        if durable && (before != Some(subscription) || was_replaying != replays || wanted && replays) {
            let options = last.to_byte(Version::V5) | if replays { REPLAYING } else { 0 };
            self.write(Op::Subscribe(number, stored_name(filter), options, identifier));
        }
        Ok(())
    }

    pub(super) fn handle_unsubscribe(
        &mut self,
        id: u64,
        number: u64,
        unsubscribe: &Unsubscribe,
    ) -> Result<(), Violation> {
        let filters = unsubscribe.filters.iter().map(|text| Filter::parse(text.clone()));
        let filters = filters
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| Violation::malformed("invalid topic filter"))?;
        let mut reasons = vec![Reason::Success; filters.len()];
        let answer = |reasons: Vec<Reason>| {
            let (packet_id, properties) = (unsubscribe.packet_id, Properties::new());
            Packet::UnsubAck(UnsubAck { packet_id, properties, reasons })
        };
        if !self.takes_answer(id, &answer(reasons.clone())) {
            return Ok(());
        }
        reasons.clear();
        for filter in filters {
            let Some(session) = self.sessions.get_mut(&number) else { return Ok(()) };
            if session.subscriptions.remove(filter.as_str()).is_none() {
                reasons.push(Reason::NoSubscriptionExisted);
                continue;
            }
            session.subscription_bytes -= routes::weight(filter.as_str());
            session.remove_replay(filter.as_str());
            self.routes.remove(number, &filter);
            if session.durable {
                self.write(Op::Unsubscribe(number, stored_name(&filter)));
            }
            reasons.push(Reason::Success);
        }
        self.when_written(Action::Answer { connection: id, packet: answer(reasons), behind: None });
        Ok(())
    }

    /// Ends a connection that would not take the answer of its request, before the request changes
    /// anything.
    fn takes_answer(&mut self, id: u64, answer: &Packet) -> bool {
        let exceeds = |connection: &&Connection| connection.exceeds(answer);
        let Some(connection) = self.connections.get(&id).filter(exceeds) else { return true };
        let text = connection.too_large(answer);
        self.end_connection(id, Reason::PacketTooLarge, &text);
        false
    }
}
