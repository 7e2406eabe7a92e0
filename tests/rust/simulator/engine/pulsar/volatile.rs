//! A topic and a subscription that are deleted and created while they are used: every future ends,
//! every push has one outcome, and once they are left alone everything arrives.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use forebay_client::pulsar::options::{ConsumerOptions, ProducerOptions};
use forebay_client::pulsar::{Client, Consumer, Producer, Target};
use forebay_pulsar::pb::command_subscribe::SubType;
use forebay_pulsar::{Message, MessageId, Outgoing};

use super::super::events::{Ready, Sink};
use super::super::host::{self, ends, violate};
use super::super::trace;
use super::{PATIENCE, World, check_error, watch};
use crate::pulsar::disk::{Name, name_of, payload};
use crate::support::chance::Chance;

const TOPIC: &str = "persistent://public/default/volatile";
/// The producer's part of the names.
const WHO: u8 = 200;

/// What was pushed, and whether it has an outcome.
#[derive(Default)]
struct Pushed {
    next: u64,
    settled: BTreeMap<Name, bool>,
}

impl Pushed {
    fn settle(&mut self, sink: &Sink<Name>) {
        for (names, _) in sink.outcomes() {
            for name in names {
                if self.settled.insert(name, true) == Some(true) {
                    violate(format!("{name:?} has a second outcome"));
                }
            }
        }
    }

    fn check(&self, subscription: &str, messages: &[Message]) {
        for message in messages {
            let id = message.id;
            watch::hand_out(subscription, id.entry_id(), id.batch_index, id.batch_size);
            match name_of(&message.payload) {
                Ok(name) if self.settled.contains_key(&name) => {}
                Ok(name) => violate(format!("{name:?} was received and never pushed")),
                Err(broken) => violate(broken),
            }
        }
    }
}

impl World {
    /// Uses the topic and deletes it, until the network is good again; then uses it a last time.
    pub(super) async fn upset(self: Rc<Self>, mut chance: Chance) {
        let Some(client) = self.connect(&mut chance).await else { return };
        let partitions = [0, 0, 2][chance.below(3)];
        let mut pushed = Pushed::default();
        while !self.healed.get() && !host::is_violated() {
            self.use_it(&client, partitions, &mut pushed, &mut chance).await;
            tokio::time::sleep(chance.micros(500_000)).await;
        }
        self.create(partitions).await;
        let last = ends(PATIENCE, "the last use of a topic", self.use_at_last(&client, &mut pushed));
        let _ = last.await.map_err(violate);
        if client.memory_used() != 0 && !host::is_violated() {
            violate(format!("{} bytes of a topic that was deleted wait for receipts", client.memory_used()));
        }
        let _ = ends(60, "close of a client", client.close()).await.map_err(violate);
    }

    async fn create(&self, partitions: u32) {
        let Some(broker) = self.host.broker() else { return };
        let created = ends(60, "the creation of a topic", broker.create_topic(TOPIC, partitions)).await;
        trace::event(format_args!("the volatile topic is created: {created:?}"));
        let _ = created.map_err(violate);
    }

    async fn delete(&self) {
        let Some(broker) = self.host.broker() else { return };
        let deleted = ends(60, "the deletion of a topic", broker.delete_topic(TOPIC)).await;
        trace::event(format_args!("the volatile topic is deleted: {deleted:?}"));
        let _ = deleted.map_err(violate);
    }

    async fn open(
        &self,
        client: &Client,
        sink: &Arc<Sink<Name>>,
        name: &str,
    ) -> Option<(Producer, Consumer)> {
        let options = ProducerOptions { send_timeout: None, ..ProducerOptions::default() };
        let opening = client.producer(TOPIC, options, sink.clone());
        let producer = match ends(90, "opening a producer", opening).await.map_err(violate).ok()? {
            Ok(producer) => producer,
            Err(error) => {
                check_error("producer", &error);
                return None;
            }
        };
        let options = ConsumerOptions {
            kind: SubType::Shared,
            position: MessageId::EARLIEST,
            ..ConsumerOptions::default()
        };
        let opening = client.consumer(vec![TOPIC.into()], name.into(), options, Arc::new(Ready::default()));
        match ends(120, "opening a consumer", opening).await.map_err(violate).ok()? {
            Ok(consumer) => Some((producer, consumer)),
            Err(error) => {
                check_error("consumer", &error);
                None
            }
        }
    }

    fn push(producer: &Producer, sink: &Sink<Name>, pushed: &mut Pushed) -> bool {
        let name = (WHO, pushed.next);
        let bytes = payload(name, 20);
        match producer.push(&Outgoing { payload: &bytes, ..Outgoing::default() }, None, true) {
            Ok(sent) => {
                pushed.next += 1;
                pushed.settled.insert(name, false);
                sink.pushed(sent.slot(), name);
                true
            }
            Err(error) => {
                check_error("push", &error);
                false
            }
        }
    }

    async fn use_it(&self, client: &Client, partitions: u32, pushed: &mut Pushed, chance: &mut Chance) {
        let sink = Arc::new(Sink::default());
        let Some((producer, consumer)) = self.open(client, &sink, "volatile").await else { return };
        for _ in 0..chance.within(1, 25) {
            if host::is_violated() || !Self::push(&producer, &sink, pushed) {
                break;
            }
            match chance.below(12) {
                0 => self.delete().await,
                1 => self.create(partitions).await,
                2 => {
                    let left = ends(90, "unsubscribe", consumer.unsubscribe(false)).await;
                    trace::event(format_args!("the volatile subscription is deleted: {left:?}"));
                    let _ = left.map_err(violate);
                    break;
                }
                3 => {
                    let ids = ends(90, "the last ids", consumer.last_message_ids()).await;
                    let _ = ids.map_err(violate);
                }
                4 => {
                    let topics = ends(90, "the list of topics", client.topics("public/default")).await;
                    let _ = topics.map_err(violate);
                }
                _ => {
                    let mut messages: Vec<Message> = Vec::new();
                    let _ = consumer.take(chance.within(1, 10), &mut messages);
                    pushed.check("volatile", &messages);
                    let ids: Vec<Target> = messages.iter().map(Target::from).collect();
                    let _ = consumer.ack(&ids);
                    tokio::time::sleep(chance.micros(100_000)).await;
                }
            }
            pushed.settle(&sink);
        }
        let _ = ends(PATIENCE, "close of a producer", producer.close(true)).await.map_err(violate);
        let _ = ends(60, "close of a consumer", consumer.close()).await.map_err(violate);
        pushed.settle(&sink);
        if let Some(name) = sink.unanswered().first().filter(|_| !host::is_violated()) {
            violate(format!("{name:?} has no outcome, and its producer is closed"));
        }
    }

    /// Everything that is stored now arrives at a new subscription.
    async fn use_at_last(&self, client: &Client, pushed: &mut Pushed) {
        let sink = Arc::new(Sink::default());
        let (producer, consumer) = loop {
            if host::is_violated() {
                return;
            }
            match self.open(client, &sink, "last").await {
                Some(open) => break open,
                None => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        };
        let first = pushed.next;
        while pushed.next < first + 5 && Self::push(&producer, &sink, pushed) {}
        let mut missing: BTreeSet<u64> = (first..first + 5).collect();
        while !missing.is_empty() && !host::is_violated() {
            let mut messages: Vec<Message> = Vec::new();
            if let Err(error) = consumer.take(10, &mut messages) {
                return violate(format!("a consumer ended for good: {error}"));
            }
            pushed.settle(&sink);
            pushed.check("last", &messages);
            for message in &messages {
                let _ = name_of(&message.payload).map(|name| missing.remove(&name.1));
                let _ = consumer.ack(&[message.into()]);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        producer.close(true).await.map_or_else(|error| check_error("close", &error), drop);
        consumer.close().await.map_or_else(|error| check_error("close", &error), drop);
        pushed.settle(&sink);
    }
}
