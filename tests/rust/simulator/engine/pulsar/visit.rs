//! A client that lingers at what others do in passing, so that every fault finds it there.

use std::rc::Rc;
use std::sync::Arc;

use forebay_client::pulsar::options::ConsumerOptions;
use forebay_client::pulsar::{Client, SeekTo};

use super::super::events::Ready;
use super::super::host::{self, ends, linger, violate};
use super::{World, check_error};
use crate::support::chance::Chance;

const TOPIC: &str = "persistent://public/default/visited";

impl World {
    pub(super) async fn visit(self: Rc<Self>, mut chance: Chance) {
        let Some(client) = self.connect(&mut chance).await else { return };
        while !self.healed.get() && !host::is_violated() {
            linger("the list of topics", &mut chance, check_error, client.topics("public/default")).await;
            self.visit_topic(&client, &mut chance).await;
        }
        let _ = ends(60, "close of a client", client.close()).await.map_err(violate);
    }

    async fn visit_topic(&self, client: &Client, chance: &mut Chance) {
        let opening = client.consumer(
            vec![TOPIC.into()],
            "visitor".into(),
            ConsumerOptions::default(),
            Arc::new(Ready::default()),
        );
        let Some(consumer) = linger("opening a consumer", chance, check_error, opening).await else { return };
        for _ in 0..chance.within(1, 4) {
            if chance.percent(50) {
                linger("a seek", chance, check_error, consumer.seek(SeekTo::Time(1))).await;
            } else {
                linger("the last ids", chance, check_error, consumer.last_message_ids()).await;
            }
        }
        if chance.percent(70) {
            linger("unsubscribe", chance, check_error, consumer.unsubscribe(false)).await;
        } else {
            linger("close of a consumer", chance, check_error, consumer.close()).await;
        }
    }
}
