//! Consumers and readers.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::clock;
use forebay_client::pulsar::options::ConsumerOptions;
use forebay_client::pulsar::{Consumer, SeekTo, Target};
use forebay_pulsar::pb::command_subscribe::SubType;
use forebay_pulsar::{Message, MessageId};
use tokio::time::Instant;

use super::super::events::{Fate, Ready};
use super::super::host::{self, ends, violate};
use super::super::{taking, trace};
use super::ledger::{Ledger, Position, Subscription, position};
use super::{World, check_error, is_shared, watch};
use crate::pulsar::disk::{Name, name_of};
use crate::support::chance::Chance;

impl World {
    /// Checks what a subscription got.
    fn receive(&self, at: usize, opened: Instant, message: &Message) -> Option<Name> {
        let name = name_of(&message.payload).map_err(violate).ok()?;
        let mut ledger = self.ledger.borrow_mut();
        let ledger = &mut *ledger;
        let (topic, id) = (message.entry.topic(), message.id);
        ledger.locate(name, id);
        let push = ledger.pushes.get(&name)?;
        let (kind, _) = self.plan.kinds[at];
        let subscription = &mut ledger.subscriptions[at];
        watch::hand_out(&format!("s{at}"), id.entry_id(), id.batch_index, id.batch_size);
        let moved = subscription.moved || subscription.seeks > 0;
        if subscription.receipted.get(&name).is_some_and(|receipt| *receipt < opened) && !moved {
            violate(format!("{name:?} was acknowledged with a receipt, and comes back to subscription {at}"));
        }
        let is_early = push.due.is_some_and(|due| self.host.latest_ms() < due);
        if kind == SubType::Shared && is_early {
            violate(format!("{name:?} is due at {:?} and came to subscription {at} before", push.due));
        }
        let count = subscription.received.entry(name).or_default();
        *count += 1;
        trace::event(format_args!("subscription {at} gets {name:?} at {id} of {topic}"));
        if *count == 1 && matches!(kind, SubType::Exclusive | SubType::Failover) && !moved {
            let last = subscription.last.insert((topic.clone(), name.0, push.order), name.1);
            if let Some(last) = last.filter(|last| *last > name.1) {
                violate(format!("{name:?} came to subscription {at} behind {last} in {topic}"));
            }
        }
        Some(name)
    }

    /// Consumers of a subscription, one after the other.
    pub(super) async fn read(self: Rc<Self>, at: usize, index: usize, mut chance: Chance) {
        let (kind, cumulative) = self.plan.kinds[at];
        let Some(client) = self.connect(&mut chance).await else { return };
        while !self.done.get() && !host::is_violated() {
            let ready = Arc::new(Ready::default());
            let queues: &[u32] = if self.plan.fetches_singly { &[0, 0, 1, 20] } else { &[1, 3, 20, 1000] };
            let options = ConsumerOptions {
                kind,
                position: MessageId::EARLIEST,
                receiver_queue: queues[chance.below(queues.len())],
                partitions_update_interval: self.plan.partitions_update_interval(&mut chance),
                dead_letter: self.dead_letter_policy(at),
                batch_index_ack: chance.percent(50),
                ack_group_time: chance.micros(200_000),
                nack_delay: chance.micros(2_000_000).into(),
                name: Some(format!("reader-{at}-{index}")),
                ..ConsumerOptions::default()
            };
            let opened = Instant::now();
            let topics = self.plan.topics.iter().map(|(name, _)| name.clone()).collect();
            let opening = client.consumer(topics, format!("s{at}"), options, ready.clone());
            let consumer = match ends(120, "opening a consumer", opening).await {
                Ok(Ok(consumer)) => consumer,
                Ok(Err(error)) => {
                    trace::event(format_args!("reader {at}.{index} is not opened: {error}"));
                    check_error("consumer", &error);
                    tokio::time::sleep(chance.micros(1_000_000)).await;
                    continue;
                }
                Err(late) => return violate(late),
            };
            trace::event(format_args!("reader {at}.{index} is open"));
            self.ledger.borrow_mut().subscriptions[at].is_open = true;
            let lives = if self.plan.drops { chance.within(1, 400) } else { usize::MAX };
            self.take(at, &consumer, &ready, opened, (lives, cumulative), &mut chance).await;
            if let Some(error) = ready.end() {
                violate(format!("reader {at}.{index} ended for good: {error}"));
            }
            if self.done.get() || chance.percent(60) {
                trace::event(format_args!("reader {at}.{index} closes"));
                match ends(60, "close of a consumer", consumer.close()).await {
                    Ok(_) => {}
                    Err(late) => violate(late),
                }
            } else {
                trace::event(format_args!("reader {at}.{index} is dropped"));
            }
        }
        if client.unreadable_entries() > 0 {
            violate(format!("reader {at}.{index} could not read {} entries", client.unreadable_entries()));
        }
        let _ = ends(60, "close of a client", client.close()).await.map_err(violate);
    }

    /// Takes messages from a consumer until it has lived.
    async fn take(
        &self,
        at: usize,
        consumer: &Consumer,
        ready: &Ready,
        opened: Instant,
        (lives, cumulative): (usize, bool),
        chance: &mut Chance,
    ) {
        let shared = is_shared(self.plan.kinds[at].0);
        let (mut taken, mut spins) = (0, 0);
        let mut held: Vec<(Arc<str>, MessageId, Name)> = Vec::new();
        while !self.done.get() && !host::is_violated() && (taken < lives || self.draining.get()) {
            let mut messages: Vec<Message> = Vec::new();
            match taking::take(consumer, false, chance, &mut messages) {
                Ok(0) => {
                    spins += 1;
                    if consumer.arm() {
                        spins = 0;
                        let _ = tokio::time::timeout(Duration::from_secs(1), ready.notify.notified()).await;
                    }
                    if spins > 100 {
                        return violate(format!(
                            "{} messages are there, and none is given",
                            consumer.available()
                        ));
                    }
                }
                Ok(count) => taken += count,
                Err(error) => return violate(format!("a consumer ended for good: {error}")),
            }
            for message in &messages {
                if let Some(name) = self.receive(at, opened, message) {
                    held.push((message.entry.topic().clone(), message.id, name));
                }
            }
            if !messages.is_empty() {
                trace::event(format_args!("reader {at} takes {}", messages.len()));
            }
            self.acknowledge(at, consumer, &mut held, cumulative, chance).await;
            if !self.draining.get() && chance.percent(self.plan.seeks) {
                self.seek(at, consumer, messages.last(), chance).await;
            }
            if !self.draining.get() && chance.percent(self.plan.pauses) {
                let _ = consumer.set_paused(true);
                tokio::time::sleep(chance.micros(1_500_000)).await;
                let _ = consumer.set_paused(false);
            }
            if chance.percent(10) && !self.draining.get() {
                tokio::time::sleep(chance.micros(1_500_000)).await;
            } else if shared && chance.percent(1) && !self.draining.get() {
                // It breaks the order of the other types: messages are under way.
                let _ = consumer.redeliver_unacknowledged();
            }
        }
    }

    async fn acknowledge(
        &self,
        at: usize,
        consumer: &Consumer,
        held: &mut Vec<(Arc<str>, MessageId, Name)>,
        cumulative: bool,
        chance: &mut Chance,
    ) {
        let shared = is_shared(self.plan.kinds[at].0);
        let all = self.draining.get();
        if cumulative && !all {
            if let Some((topic, id, _)) = held.last().cloned().filter(|_| chance.percent(40)) {
                self.acknowledged_to(at, position(id));
                let _ = consumer.ack_cumulative(&(topic.clone(), id).into());
                held.retain(|(other, before, _)| *other != topic || *before > id);
            }
            return;
        }
        let mut now = Vec::new();
        for (topic, id, name) in std::mem::take(held) {
            if all || chance.percent(70) {
                now.push((topic, id, name));
            } else if shared && chance.percent(30) {
                let _ = consumer.nack(&[(topic, id).into()], None);
            } else {
                held.push((topic, id, name));
            }
        }
        if now.is_empty() {
            return;
        }
        self.ledger.borrow_mut().subscriptions[at].acknowledged.extend(now.iter().map(|(_, _, name)| *name));
        let ids: Vec<Target> = now.iter().map(|(topic, id, _)| (topic.clone(), *id).into()).collect();
        if chance.percent(30) {
            match ends(60, "an acknowledgement with a receipt", consumer.ack_receipt(&ids, false)).await {
                // Of a batch the broker hears when all of it is acknowledged.
                Ok(Ok(())) if ids.iter().all(|target| target.id.batch_index < 0) => {
                    let mut ledger = self.ledger.borrow_mut();
                    let receipted = &mut ledger.subscriptions[at].receipted;
                    receipted.extend(now.iter().map(|(_, _, name)| (*name, Instant::now())));
                }
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    trace::event(format_args!("no receipt: {error}"));
                    check_error("acknowledgement", &error);
                    // It may be acknowledged or not; the message may not come again on this
                    // connection.
                    held.extend(now);
                }
                Err(late) => violate(late),
            }
        } else if let Err(error) = consumer.ack(&ids) {
            violate(format!("an acknowledgement was refused: {error}"));
        }
    }

    /// Notes a cumulative acknowledgement.
    fn acknowledged_to(&self, at: usize, last: Position) {
        let mut ledger = self.ledger.borrow_mut();
        let Ledger { pushes, subscriptions } = &mut *ledger;
        let Subscription { acknowledged, received, .. } = &mut subscriptions[at];
        let below = |name: &&Name| pushes[*name].id.is_some_and(|id| id.0 == last.0 && id <= last);
        acknowledged.extend(received.keys().filter(below));
    }

    /// Moves a subscription: to a message, to the first or the last one, or to a time before or
    /// behind all.
    async fn seek(&self, at: usize, consumer: &Consumer, message: Option<&Message>, chance: &mut Chance) {
        let (mut below, mut all) = (None, false);
        let unknown = || "".into();
        let to = match (chance.below(6), message) {
            (0, _) => SeekTo::Id { topic: unknown(), id: MessageId::EARLIEST, inclusive: false },
            (1, _) => SeekTo::Time(1),
            (2, _) => {
                all = true;
                SeekTo::Id { topic: unknown(), id: MessageId::LATEST, inclusive: false }
            }
            (3, _) => {
                all = true;
                SeekTo::Time(clock::wall_ms())
            }
            (_, Some(message)) => {
                below = Some(position(message.id));
                SeekTo::Id {
                    topic: message.entry.topic().clone(),
                    id: message.id,
                    inclusive: chance.percent(50),
                }
            }
            _ => return,
        };
        trace::event(format_args!("subscription {at} is moved to {to:?}"));
        self.ledger.borrow_mut().subscriptions[at].seeks += 1;
        let sought = ends(120, "a seek", consumer.seek(to)).await.unwrap_or_else(|late| {
            violate(late);
            Ok(())
        });
        trace::event(format_args!("subscription {at} was moved: {sought:?}"));
        let mut ledger = self.ledger.borrow_mut();
        let subscription = &mut ledger.subscriptions[at];
        subscription.seeks -= 1;
        let mut until = Instant::now();
        if let Err(error) = &sought {
            check_error("seek", error);
            // The broker may obey late.
            until += Duration::from_secs(60);
        }
        // The order of several consumers is that of their tasks.
        subscription.moved |= sought.is_err() || self.plan.kinds[at].0 != SubType::Exclusive;
        subscription.receipted.clear();
        subscription.last.clear();
        if all {
            subscription.passed_before = subscription.passed_before.max(Some(until));
        }
        if let Some(below) = below {
            let passed = subscription.passed.entry(below.0).or_insert(below);
            *passed = below.max(*passed);
        }
    }

    /// Readers from the beginning or the end, one after the other. What is the first entry of a
    /// topic shows what was trimmed.
    pub(super) async fn browse(self: Rc<Self>, mut chance: Chance) {
        let Some(client) = self.connect(&mut chance).await else { return };
        let mut number = 0;
        while !self.done.get() && !host::is_violated() {
            number += 1;
            let ready = Arc::new(Ready::default());
            let from_end = chance.percent(40);
            let options = ConsumerOptions {
                position: if from_end { MessageId::LATEST } else { MessageId::EARLIEST },
                durable: false,
                receiver_queue: [1, 20, 1000][chance.below(3)],
                ..ConsumerOptions::default()
            };
            let topic = &self.plan.topics[chance.below(self.plan.topics.len())].0;
            let opening =
                client.consumer(vec![topic.clone()], format!("browser-{number}"), options, ready.clone());
            match ends(120, "opening a reader", opening).await {
                Ok(Ok(consumer)) => {
                    let since = from_end.then(Instant::now);
                    self.browse_through(&consumer, &ready, number, since, &mut chance).await;
                }
                Ok(Err(error)) => check_error("reader", &error),
                Err(late) => return violate(late),
            }
            tokio::time::sleep(chance.micros(3_000_000)).await;
        }
        let _ = ends(60, "close of a client", client.close()).await.map_err(violate);
    }

    /// `since`: when a reader was opened that began at the end.
    async fn browse_through(
        &self,
        consumer: &Consumer,
        ready: &Ready,
        number: u32,
        since: Option<Instant>,
        chance: &mut Chance,
    ) {
        let mut last: BTreeMap<u64, Position> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let (mut left, mut idle) = (chance.within(1, 500), 0);
        while left > 0 && idle < 5 && !host::is_violated() {
            let mut messages: Vec<Message> = Vec::new();
            match taking::take(consumer, false, chance, &mut messages) {
                Ok(0) if consumer.arm() => {
                    idle += 1;
                    let _ = tokio::time::timeout(Duration::from_secs(1), ready.notify.notified()).await;
                }
                Ok(_) => {}
                Err(error) => return violate(format!("a reader ended for good: {error}")),
            }
            left = left.saturating_sub(messages.len());
            let mut ledger = self.ledger.borrow_mut();
            for message in &messages {
                let Ok(name) = name_of(&message.payload).map_err(violate) else { return };
                let at = position(message.id);
                ledger.locate(name, message.id);
                seen.insert(name);
                match last.insert(at.0, at) {
                    None if since.is_some() => {}
                    None => ledger.trimmed(at),
                    Some(before) if before >= at => {
                        violate(format!("{name:?} at {at:?} came to reader {number} behind {before:?}"));
                    }
                    Some(_) => {}
                }
            }
        }
        trace::event(format_args!("reader {number} got to {last:?}"));
        let given_up =
            consumer.counts().dropped_chunked_messages + consumer.counts().expired_chunked_messages;
        if !self.plan.trims && given_up == 0 {
            let ledger = self.ledger.borrow();
            let passed_over = ledger.pushes.iter().find(|(name, push)| {
                let reached = push.id.is_some_and(|id| last.get(&id.0).is_some_and(|last| id <= *last));
                push.fate == Fate::Stored
                    && reached
                    && since.is_none_or(|since| push.at > since)
                    && !seen.contains(*name)
            });
            if let Some((name, push)) = passed_over {
                violate(format!("reader {number} got to {last:?} and never had {name:?}, {push:?}"));
            }
        }
        if let Some(error) = ready.end() {
            violate(format!("a reader ended for good: {error}"));
        }
        if chance.percent(70) {
            let _ = ends(60, "close of a reader", consumer.close()).await.map_err(violate);
        }
    }
}
