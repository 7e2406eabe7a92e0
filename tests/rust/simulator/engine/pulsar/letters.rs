//! Dead letters: what a policy takes away from a subscription is in the dead letter topic.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_client::pulsar::options::{ConsumerOptions, DeadLetterPolicy};
use forebay_pulsar::{Message, MessageId};

use super::super::events::Ready;
use super::super::host::{self, ends, violate};
use super::{PATIENCE, World, check_error};
use crate::pulsar::disk::{Name, name_of};
use crate::support::chance::Chance;

const TOPIC: &str = "persistent://public/default/dead";
/// Without a subscription the topic keeps nothing.
const SUBSCRIPTION: &str = "inspect";

impl World {
    pub(super) fn dead_letter_policy(&self, at: usize) -> Option<DeadLetterPolicy> {
        let max_redeliveries = self.plan.dead_after.filter(|_| self.plan.buries(at))?;
        Some(DeadLetterPolicy {
            max_redeliveries,
            topic: Some(TOPIC.into()),
            subscription: Some(SUBSCRIPTION.into()),
            retry: false,
            retry_topic: None,
        })
    }

    /// Reads the dead letters until all that are missing elsewhere are there.
    pub(super) async fn check_letters(&self, mut chance: Chance) -> Result<(), String> {
        let mut left = self.ledger.borrow().buried();
        if left.is_empty() {
            return Ok(());
        }
        let Some(client) = self.connect(&mut chance).await else { return Ok(()) };
        let ready = Arc::new(Ready::default());
        let options = ConsumerOptions { position: MessageId::EARLIEST, ..ConsumerOptions::default() };
        let open = async || {
            client.consumer(vec![TOPIC.into()], SUBSCRIPTION.into(), options.clone(), ready.clone()).await
        };
        let opened = host::opened((90, "opening the dead letters"), 500_000, &mut chance, check_error, open);
        let Some(consumer) = opened.await else { return Ok(()) };
        let read = async {
            while !left.is_empty() && !host::is_violated() {
                let mut messages: Vec<Message> = Vec::new();
                match consumer.take(100, &mut messages) {
                    Ok(0) if consumer.arm() => {
                        let _ = tokio::time::timeout(Duration::from_secs(1), ready.notify.notified()).await;
                    }
                    Ok(_) => self.find(&messages, &mut left),
                    Err(error) => return violate(format!("the dead letters ended: {error}")),
                }
            }
        };
        let all = tokio::time::timeout(Duration::from_secs(PATIENCE), read).await;
        if all.is_err() {
            return Err(format!("neither acknowledged by the application nor dead letters: {left:?}"));
        }
        ends(60, "close of a client", client.close()).await.map(drop)
    }

    fn find(&self, messages: &[Message], left: &mut BTreeSet<Name>) {
        for message in messages {
            match name_of(&message.payload) {
                Ok(name) if self.ledger.borrow().pushes.contains_key(&name) => drop(left.remove(&name)),
                Ok(name) => violate(format!("{name:?} is a dead letter and was never pushed")),
                Err(broken) => violate(broken),
            }
        }
    }
}
