//! Settings of the embedded broker of each protocol, with a store. The fuzz targets include this
//! file.

use std::time::{Duration, Instant};

use forebay_broker::log::TopicIds;
use forebay_broker::protocol::Clock;
use forebay_broker::store::StoreUsage;
use forebay_broker::{mqtt, pulsar, tubemq};

/// Time at the start of a test, in milliseconds since 1970.
pub const WALL_MS: u64 = 1_700_000_000_000;

/// A Pulsar broker of `public/default`.
pub fn pulsar(now: Instant) -> pulsar::options::Settings {
    pulsar::options::Settings {
        urls: vec!["pulsar://127.0.0.1:6650".into()],
        web_urls: Vec::new(),
        session: pulsar::session::SessionConfig {
            max_message_size: 5 << 20,
            keep_alive: Duration::from_secs(30),
            tokens: None,
        },
        clock: Clock::new(now, WALL_MS),
        stored: true,
        auto_create: true,
        partitions: 0,
        deduplicate: true,
        schema_compatibility: pulsar::options::SchemaCompatibility::default(),
        retention: Duration::from_secs(600),
        retention_bytes: 1 << 20,
        usage: StoreUsage::default(),
        max_store: 1 << 30,
        max_topics: 100,
        namespaces: vec!["public/default".into()],
        topic_ids: TopicIds::new(7),
        permissions: None,
        owners: false,
    }
}

/// An MQTT broker.
pub fn mqtt(now: Instant) -> mqtt::Settings {
    mqtt::Settings {
        limits: mqtt::Limits::default(),
        clock: Clock::new(now, WALL_MS),
        stored: true,
        usage: StoreUsage::default(),
        max_store: 1 << 30,
        max_transient: 256 << 20,
        seed: 7,
        passwords: None,
        tokens: None,
        permissions: None,
        certificates: false,
    }
}

/// A TubeMQ master and broker.
pub fn tubemq(now: Instant) -> tubemq::Settings {
    tubemq::Settings {
        address: ("127.0.0.1".into(), 8123),
        clock: Clock::new(now, WALL_MS),
        stored: true,
        auto_create: true,
        partitions: 2,
        max_message_size: 1 << 20,
        retention: Duration::from_secs(3600),
        offset_retention: Duration::from_secs(24 * 3600),
        usage: StoreUsage::default(),
        max_store: 1 << 30,
        max_topics: 100,
        client_timeout: Duration::from_secs(30),
        seed: 7,
        users: None,
        topic_ids: TopicIds::new(1),
        permissions: None,
        owners: false,
        certificates: false,
    }
}
