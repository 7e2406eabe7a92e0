//! SUBSCRIBE and UNSUBSCRIBE.

use std::rc::Rc;

use super::connect::stored_name;
use super::message::Queued;
use super::routes::Subscription;
use super::{Action, Broker, tree};
use crate::broker::store::mqtt::Op;
use crate::mqtt::packet::{RetainHandling, SubAck, Subscribe, SubscribeOptions, UnsubAck, Unsubscribe};
use crate::mqtt::topic::Filter;
use crate::mqtt::{Packet, Properties, Reason, Version, Violation};

impl Broker {
    pub(super) fn handle_subscribe(
        &mut self,
        id: u64,
        number: u64,
        subscribe: Subscribe,
    ) -> Result<(), Violation> {
        let identifier = subscribe.properties.subscription_identifier().copied();
        let version = self.connections.get(&id).map_or(Version::V3_1_1, |connection| connection.version);
        let (mut reasons, mut retained) = (Vec::new(), Vec::new());
        for (text, options) in subscribe.filters {
            match Filter::parse(text).ok().filter(|filter| tree::fits(filter.as_str())) {
                Some(filter) => {
                    reasons.push(self.subscribe(number, &filter, options, identifier, &mut retained));
                }
                // Like Mosquitto, disconnect an MQTT 3.x client that sends an invalid filter.
                None if version == Version::V5 => reasons.push(Reason::TopicFilterInvalid),
                None => return Err(Violation::malformed("invalid topic filter")),
            }
        }
        let answer = SubAck { packet_id: subscribe.packet_id, properties: Properties::new(), reasons };
        self.when_written(Action::Answer { connection: id, packet: Packet::SubAck(answer), behind: None });
        if !retained.is_empty() {
            self.when_written(Action::Deliver(retained));
        }
        Ok(())
    }

    fn subscribe(
        &mut self,
        number: u64,
        filter: &Filter,
        options: SubscribeOptions,
        identifier: Option<u32>,
        retained: &mut Vec<(u64, Queued)>,
    ) -> Reason {
        let subscription = Subscription { options, id: identifier };
        let Some(session) = self.sessions.get_mut(&number) else { return Reason::Unspecified };
        let known = session.subscriptions.contains_key(filter.as_str());
        if !known && session.subscriptions.len() >= self.settings.limits.max_subscriptions {
            return Reason::QuotaExceeded;
        }
        let before = session.subscriptions.insert(filter.text(), subscription);
        if before != Some(subscription) {
            self.routes.insert(number, filter, subscription);
            if session.durable {
                let options = options.to_byte(Version::V5);
                self.write(Op::Subscribe(number, stored_name(filter), options, identifier));
            }
        }
        let wanted = match options.retain_handling {
            RetainHandling::Always => true,
            RetainHandling::IfNew => !known,
            RetainHandling::Never => false,
        };
        if wanted && filter.group().is_none() {
            self.replay(number, filter.pattern(), &subscription, retained);
        }
        Reason::granted(options.qos)
    }

    /// Queues retained messages for a new subscription. Their number is limited by `max_retained`, so the limits
    /// of the queue do not apply.
    fn replay(
        &mut self,
        number: u64,
        pattern: &str,
        subscription: &Subscription,
        to: &mut Vec<(u64, Queued)>,
    ) {
        let wall_ms = self.wall_ms();
        let ids: Rc<[u32]> = subscription.id.into_iter().collect();
        for slot in self.retained.find(pattern) {
            if slot.message.expired(wall_ms) {
                continue;
            }
            let qos = slot.message.publish.qos.min(subscription.options.qos);
            let mut sequence = slot.sequence;
            let item = self.admit(number, &slot.message, qos, true, ids.clone(), &mut sequence);
            to.extend(item.map(|item| (number, item)));
        }
        for message in self.status_messages(pattern) {
            let qos = crate::mqtt::QoS::AtMostOnce;
            let item = self.admit(number, &message, qos, true, ids.clone(), &mut None);
            to.extend(item.map(|item| (number, item)));
        }
    }

    pub(super) fn handle_unsubscribe(&mut self, id: u64, number: u64, unsubscribe: &Unsubscribe) {
        let mut reasons = Vec::new();
        for text in &unsubscribe.filters {
            let Ok(filter) = Filter::parse(text.clone()) else {
                reasons.push(Reason::TopicFilterInvalid);
                continue;
            };
            let Some(session) = self.sessions.get_mut(&number) else { return };
            if session.subscriptions.remove(filter.as_str()).is_none() {
                reasons.push(Reason::NoSubscriptionExisted);
                continue;
            }
            self.routes.remove(number, &filter);
            if session.durable {
                self.write(Op::Unsubscribe(number, stored_name(&filter)));
            }
            reasons.push(Reason::Success);
        }
        let answer = UnsubAck { packet_id: unsubscribe.packet_id, properties: Properties::new(), reasons };
        self.when_written(Action::Answer { connection: id, packet: Packet::UnsubAck(answer), behind: None });
    }
}
