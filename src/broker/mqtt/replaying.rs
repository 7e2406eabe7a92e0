//! The steps of replays: they begin with a SUBSCRIBE, go on as the subscriber takes what was sent,
//! and end.

use std::ops::Bound;
use std::rc::Rc;

use bytestring::ByteString;

use super::message::{Message, NEVER, Queued};
use super::replay::{Place, Replay};
use super::retained::{self, Next};
use super::routes::{DeliveryOptions, Subscription};
use super::{Action, Broker};
use crate::store::mqtt::Op;
use forebay_mqtt::packet::Publish;
use forebay_mqtt::{Property, QoS, Version};

/// Retained messages that SUBSCRIBE itself looks at, to see that there are none for it.
const FIRST_STEPS: usize = 16;

/// The next step of a replay.
enum Step {
    Send(Rc<Message>, Option<u64>, QoS),
    Wait,
    Pause,
    Finish,
}

impl Broker {
    /// Starts a replay for a subscription, unless there is nothing to replay. Returns whether it
    /// was started; an older one of the same filter ends in any case.
    pub(super) fn start_replay(
        &mut self,
        number: u64,
        filter: &ByteString,
        subscription: &Subscription,
    ) -> bool {
        let Some(session) = self.sessions.get_mut(&number) else { return false };
        session.remove_replay(filter);
        let mut steps = FIRST_STEPS;
        let first = self.retained.next(filter, &mut retained::start(filter), &mut steps);
        if matches!(first, Next::End) && !filter.starts_with("$SYS") {
            return false;
        }
        let position = session.reserve(self.retained.len() as u64);
        let serial =
            session.add_replay(Replay::new(filter.clone(), subscription, position, self.retained.stamp()));
        self.replays_begun.push((number, serial));
        true
    }

    /// Lets the replays of a SUBSCRIBE begin behind its answer.
    pub(super) fn release_replays(&mut self) {
        for (session, serial) in std::mem::take(&mut self.replays_begun) {
            self.when_written(Action::Replay { session, serial });
        }
    }

    pub(super) fn begin_replay(&mut self, number: u64, serial: u64) {
        let session = self.sessions.get_mut(&number);
        if let Some(replay) = session.and_then(|session| session.replays.get_mut(&serial)) {
            replay.ready = true;
            self.due.insert(number);
        }
    }

    /// Sends the next message of a replay, or ends it. `full` is whether the window has no room.
    /// Returns `false` if the session has to wait.
    pub(super) fn replay(&mut self, number: u64, id: u64, serial: u64, full: bool) -> bool {
        let step = self.replay_step(number, serial, full);
        let Some(session) = self.sessions.get_mut(&number) else { return false };
        let Some(replay) = session.replays.get_mut(&serial) else { return false };
        match step {
            Step::Wait => false,
            Step::Pause => {
                self.searching.insert(number);
                false
            }
            Step::Send(message, mut sequence, qos) => {
                let (ids, position) = (replay.ids.clone(), replay.position);
                replay.position += 1;
                let item = self.admit_at(number, position, &message, qos, true, ids, &mut sequence);
                if let (Some(item), Some(session)) = (item, self.sessions.get_mut(&number)) {
                    session.queue.push_front(item);
                }
                self.take_off(number, id)
            }
            Step::Finish => {
                let filter = replay.filter.clone();
                session.remove_replay(&filter);
                if let Some(subscription) = session.subscriptions.get(&filter).filter(|_| session.durable) {
                    let options = subscription.options.to_byte(Version::V5);
                    let op = Op::Subscribe(number, (&*filter).into(), options, subscription.id);
                    self.write(op);
                }
                true
            }
        }
    }

    fn replay_step(&mut self, number: u64, serial: u64, full: bool) -> Step {
        let run_ms = self.run_ms();
        loop {
            let session = self.sessions.get_mut(&number);
            let Some(replay) = session.and_then(|session| session.replays.get_mut(&serial)) else {
                return Step::Wait;
            };
            match &mut replay.place {
                Place::Status(values) => {
                    return match values.pop_front() {
                        Some(message) => Step::Send(message, None, QoS::AtMostOnce),
                        None => Step::Finish,
                    };
                }
                Place::Retained(place) => {
                    match self.retained.next(&replay.filter, place, &mut self.replay_steps) {
                        Next::Paused => return Step::Pause,
                        Next::End => {
                            let filter = replay.filter.clone();
                            let mut values = self.status_messages(&filter);
                            values.retain(|message| self.may_read(number, message));
                            if filter.starts_with("$SYS") {
                                // The figures are counted over all sessions.
                                self.replay_steps = self.replay_steps.saturating_sub(self.sessions.len() / 8);
                            }
                            let session = self.sessions.get_mut(&number);
                            if let Some(replay) = session.and_then(|s| s.replays.get_mut(&serial)) {
                                replay.place = Place::Status(values.into());
                            }
                        }
                        Next::Found(slot) => {
                            let current = slot.stamp <= replay.stamp && !slot.message.expired(run_ms);
                            let qos = slot.message.publish.qos.min(replay.qos);
                            let wanted = current && self.may_read(number, &slot.message);
                            let session = self.sessions.get_mut(&number);
                            let Some(replay) = session.and_then(|s| s.replays.get_mut(&serial)) else {
                                return Step::Wait;
                            };
                            if wanted && full && qos != QoS::AtMostOnce {
                                return Step::Wait;
                            }
                            replay.place = Place::Retained(Bound::Excluded(slot.message.topic().to_string()));
                            if wanted {
                                return Step::Send(slot.message, slot.sequence, qos);
                            }
                        }
                    }
                }
            }
        }
    }

    /// The form in which a QoS 0 message waits behind replays.
    fn parked_form(&self, publish: &Publish) -> Option<Rc<Message>> {
        let mut publish = publish.clone();
        publish.properties.retain(|property| !matches!(property, Property::SubscriptionIdentifier(_)));
        publish.qos = QoS::AtMostOnce;
        // Copied, so that it does not keep the read buffer alive.
        let now = self.moment();
        Message::from_entry(&Message::new(publish, now).to_entry(0), now)
    }

    /// Keeps a QoS 0 message behind the replay of its subscriber. All subscribers have one copy:
    /// the `parked` form, made for the first of them. Returns whether there was room.
    pub(super) fn park(
        &mut self,
        publish: &Publish,
        number: u64,
        delivery: &DeliveryOptions,
        parked: &mut Option<Rc<Message>>,
    ) -> bool {
        if parked.is_none() {
            *parked = self.parked_form(publish);
        }
        let limits = &self.settings.limits;
        let (Some(session), Some(message)) = (self.sessions.get_mut(&number), parked) else { return false };
        let weight = message.weight();
        if session.parked.len() >= limits.max_queue || session.bytes + weight > limits.max_queue_bytes {
            return false;
        }
        let retain = message.publish.retain && delivery.retain_as_published;
        session.bytes += weight;
        session.parked_bytes += weight;
        self.parked += weight;
        self.resident += weight;
        let (qos, ids) = (QoS::AtMostOnce, delivery.ids.clone());
        session.parked.push_back(Queued {
            position: 0,
            sequence: None,
            qos,
            retain,
            ids,
            message: Some(Rc::clone(message)),
            expires_run_ms: message.expires_run_ms.or(Some(NEVER)),
            weight,
            groups: Box::default(),
        });
        true
    }
}
