//! The embedded MQTT broker as packets. No socket and no clock: the state machine, on a database,
//! is driven by hand.

use forebay_broker::mqtt::Limits;
use forebay_mqtt::packet::{Subscribe, SubscribeOptions};
use forebay_mqtt::{Packet, Properties, QoS, Version};

use crate::support::mqtt::*;

mod connect;
mod cost;
mod permissions;
mod qos;
mod refusals;
mod replay;
mod retained;
mod sessions;
mod slow;
mod store;
mod subscriptions;
mod users;
mod wills;

const VERSIONS: [Version; 3] = [Version::V3_1, Version::V3_1_1, Version::V5];

fn limited(change: impl FnOnce(&mut Limits)) -> Bench {
    Bench::with(|settings| change(&mut settings.limits))
}

fn subscribe_packet(filters: impl IntoIterator<Item = (String, QoS)>) -> Packet {
    let filters = filters.into_iter().map(|(text, qos)| (text.into(), SubscribeOptions::qos(qos))).collect();
    Packet::Subscribe(Subscribe { packet_id: id(9), properties: Properties::new(), filters })
}
