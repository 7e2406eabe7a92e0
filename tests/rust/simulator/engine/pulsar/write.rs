//! Producers: each push ends in one outcome.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::compression::Compression;
use forebay_base::error::ErrorKind;
use forebay_client::events::Receipt;
use forebay_client::pulsar::options::ProducerOptions;
use forebay_client::pulsar::{Client, Producer};
use forebay_pulsar::{MessageId, Outgoing};
use tokio::time::Instant;

use super::super::events::{Fate, Sink, slot};
use super::super::host::{self, ends, violate};
use super::super::trace;
use super::ledger::Push;
use super::{KEYS, PATIENCE, World, check_error};
use crate::pulsar::disk::{Name, payload};
use crate::support::chance::Chance;

impl World {
    /// A producer that is opened until it succeeds.
    async fn open_producer(
        &self,
        who: u8,
        by_key: bool,
        client: &Client,
        sink: &Arc<Sink<Name>>,
        chance: &mut Chance,
    ) -> Option<Producer> {
        let plan = &self.plan;
        let topic = &plan.topics[who as usize % plan.topics.len()].0;
        let options = ProducerOptions {
            name: chance.percent(70).then(|| format!("writer-{who}")),
            batching: chance.percent(70),
            batch_max_messages: chance.within(1, 30),
            batching_delay: chance.micros(20_000),
            key_based_batching: by_key,
            compression: [Compression::None, Compression::Lz4, Compression::Zstd][chance.below(3)],
            send_timeout: plan.timeouts.then_some(Duration::from_secs(3)),
            max_pending: chance.within(1, 60),
            chunking: plan.chunking,
            lazy_start: plan.lazy,
            partitions_update_interval: plan.partitions_update_interval(chance),
            ..ProducerOptions::default()
        };
        let options = ProducerOptions { batching: options.batching && !plan.chunking, ..options };
        let open = async || {
            sink.end();
            client.producer(topic, options.clone(), sink.clone()).await
        };
        host::opened((90, "opening a producer"), 500_000, chance, check_error, open).await
    }

    fn settle(&self, who: u8, sink: &Sink<Name>) {
        for (names, result) in sink.outcomes() {
            let mut ledger = self.ledger.borrow_mut();
            for name in &names {
                let push = ledger.pushes.get_mut(name).expect("pushed");
                if push.fate != Fate::Pending {
                    violate(format!("{name:?} has a second outcome"));
                }
                push.fate = if result.is_ok() { Fate::Stored } else { Fate::Unknown };
            }
            // A receipt of a repeated message does not say where it is.
            if let Ok(Receipt::Id(first)) = &result
                && first.ledger != u64::MAX
            {
                for (index, name) in names.iter().enumerate() {
                    let batched = first.batch_index >= 0;
                    let id = MessageId {
                        batch_index: if batched { first.batch_index + index as i32 } else { -1 },
                        ..*first
                    };
                    ledger.locate(*name, id);
                }
            }
            match result {
                Ok(_) => trace::event(format_args!("writer {who}: {} stored", names.len())),
                Err(error) => {
                    trace::event(format_args!("writer {who}: {} failed: {error}", names.len()));
                    let expected = match error.kind() {
                        // Without a send timeout `close` gives up in its own time.
                        ErrorKind::Timeout | ErrorKind::Closed | ErrorKind::Persistence => true,
                        _ => false,
                    };
                    if !expected {
                        violate(format!("{names:?} failed: {error}"));
                    }
                }
            }
        }
        sink.check_end(&format!("writer {who}"));
    }

    pub(super) async fn write(self: Rc<Self>, who: u8, mut chance: Chance) {
        let Some(mut client) = self.connect(&mut chance).await else { return };
        while self.plan.trims && !self.all_are_open() && !host::is_violated() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut next = 0;
        let mut handle = 0;
        while next < self.plan.quota && !host::is_violated() {
            let sink = Arc::new(Sink::default());
            let by_key = chance.percent(20);
            let Some(producer) = self.open_producer(who, by_key, &client, &sink, &mut chance).await else {
                return;
            };
            handle += 1;
            trace::event(format_args!("writer {who} is open, handle {handle}"));
            let until = if self.plan.drops { next + chance.within(5, 80) as u64 } else { u64::MAX };
            let until = until.min(self.plan.quota);
            while next < until && !host::is_violated() {
                let mut full = false;
                for _ in 0..chance.within(1, 12) {
                    let name = (who, next);
                    let size = if self.plan.chunking && chance.percent(20) {
                        chance.within(700, 3000)
                    } else {
                        chance.below(self.plan.size)
                    };
                    // Of the time that no step of the clock changes.
                    let due = (self.plan.delayed && chance.percent(10))
                        .then(|| self.host.steady_ms() + chance.below(8_000) as u64);
                    let (bytes, key) = (payload(name, size), chance.below(KEYS.len()));
                    let message = Outgoing {
                        payload: &bytes,
                        key: Some(KEYS[key]),
                        deliver_at: due.map(|due| due as i64),
                        ..Outgoing::default()
                    };
                    let Some(slot) = slot(&name, producer.push(&message, None, chance.percent(30))) else {
                        full = true;
                        break;
                    };
                    let order = 8 * handle + if by_key { 1 + key as u32 } else { 0 };
                    let push = Push { fate: Fate::Pending, order, at: Instant::now(), id: None, due };
                    self.ledger.borrow_mut().pushes.insert(name, push);
                    sink.pushed(slot, name);
                    next += 1;
                    if next == until {
                        break;
                    }
                }
                if chance.percent(5) {
                    producer.flush();
                }
                if full {
                    if ends(PATIENCE, "room", sink.changed.notified()).await.is_err() {
                        violate(format!("writer {who} waits for room for ever"));
                    }
                } else {
                    let most = if chance.percent(10) { 2_000_000 } else { 100_000 };
                    tokio::time::sleep(chance.micros(most)).await;
                }
                self.settle(who, &sink);
            }
            let is_dropped = next < self.plan.quota && chance.percent(50);
            if is_dropped {
                trace::event(format_args!("writer {who} is dropped"));
                drop(producer);
                tokio::time::sleep(Duration::from_millis(1)).await;
            } else {
                trace::event(format_args!("writer {who} closes"));
                if let Err(late) = ends(PATIENCE, "close of a producer", producer.close(true)).await {
                    violate(format!("{late}: writer {who} has {} pending", producer.pending()));
                }
            }
            self.settle(who, &sink);
            for name in sink.unanswered() {
                if !is_dropped {
                    violate(format!("{name:?} has no outcome, and writer {who} is closed"));
                }
                if let Some(push) = self.ledger.borrow_mut().pushes.get_mut(&name) {
                    push.fate = Fate::Unknown;
                }
            }
            if next < self.plan.quota && chance.percent(20) {
                let _ = ends(PATIENCE, "close of a client", client.close()).await.map_err(violate);
                let Some(again) = self.connect(&mut chance).await else { return };
                client = again;
            }
        }
        if client.memory_used() != 0 {
            violate(format!("writer {who} is done, and {} bytes wait for receipts", client.memory_used()));
        }
        let _ = ends(PATIENCE, "close of a client", client.close()).await.map_err(violate);
        trace::event(format_args!("writer {who} is done"));
    }
}
