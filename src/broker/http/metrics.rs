//! Metrics as text, in the format of Prometheus 0.0.4.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::health::State;
use super::message::Answer;
use crate::free_space::Room;
use crate::logger;
use crate::stats::{ProtocolStats, TopicStats};

/// Limit on the topics and subscriptions with figures of their own. What is left out is counted.
pub(super) const MAX_OBJECTS: usize = 2_000;

/// Type of the text.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Figures of the HTTP listener itself.
#[derive(Clone, Debug, Default)]
pub(super) struct HttpStats {
    pub(super) connections: usize,
    pub(super) connections_refused: u64,
    /// Answers by the class of their status: `2xx`.
    pub(super) answers: BTreeMap<&'static str, u64>,
}

/// A topic's figures, summed over its partitions.
#[derive(Debug, Default)]
struct Topic {
    protocol: &'static str,
    entries: u64,
    messages_in: u64,
    producers: usize,
    subscriptions: BTreeMap<String, Subscription>,
}

#[derive(Debug, Default)]
struct Subscription {
    backlog: u64,
    delayed: usize,
    replaying: usize,
    consumers: usize,
    unacked: i64,
}

/// Figures of topics, as many as there is room for.
#[derive(Debug, Default)]
pub(super) struct Topics {
    topics: BTreeMap<String, Topic>,
    objects: usize,
    omitted: usize,
}

impl Topics {
    /// Whether there is room for another.
    pub(super) fn has_room(&self) -> bool {
        self.objects < MAX_OBJECTS
    }

    /// Counts topics that are left out.
    pub(super) fn omit(&mut self, topics: usize) {
        self.omitted += topics;
    }

    /// Adds a topic, or leaves it out.
    pub(super) fn add(&mut self, protocol: &'static str, stats: TopicStats) {
        let mut topic = Topic {
            protocol,
            entries: stats.entries,
            messages_in: stats.messages_in,
            producers: stats.producers.len(),
            subscriptions: BTreeMap::new(),
        };
        for one in stats.subscriptions {
            let to = topic.subscriptions.entry(one.name).or_default();
            to.backlog += one.backlog;
            to.delayed += one.delayed;
            to.replaying += one.replaying;
            to.consumers += one.consumers.len();
            to.unacked += one.consumers.iter().map(|consumer| consumer.unacked).sum::<i64>();
        }
        let objects = 1 + topic.subscriptions.len();
        if self.objects + objects > MAX_OBJECTS {
            return self.omit(1);
        }
        self.objects += objects;
        self.topics.insert(stats.name, topic);
    }
}

/// Text under construction. The samples of a metric are together, behind its help and type.
struct Text(String);

impl Text {
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            self.0.push(if at == 0 { '{' } else { ',' });
            let _ = write!(self.0, "{label}=\"");
            for character in text.chars() {
                match character {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    other => self.0.push(other),
                }
            }
            self.0.push('"');
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.metric(name, kind, help);
        self.sample(name, &[], value);
    }
}

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";
const SUMMARY: &str = "summary";

/// A figure of each protocol.
type Figure = (&'static str, &'static str, &'static str, fn(&ProtocolStats) -> u64);

const FIGURES: [Figure; 16] = [
    ("forebay_broker_connections", GAUGE, "Clients that are connected.", |s| s.connections as u64),
    (
        "forebay_broker_connections_refused_total",
        COUNTER,
        "Connections that were closed at once because of a limit.",
        |s| s.connections_refused,
    ),
    ("forebay_broker_sessions", GAUGE, "Sessions of MQTT, connected or not.", |s| s.sessions as u64),
    ("forebay_broker_topics", GAUGE, "Topics; of Pulsar, each partition.", |s| s.topics as u64),
    ("forebay_broker_subscriptions", GAUGE, "Subscriptions, or groups of TubeMQ.", |s| {
        s.subscriptions as u64
    }),
    ("forebay_broker_producers", GAUGE, "Registered producers of Pulsar and TubeMQ.", |s| s.producers as u64),
    ("forebay_broker_consumers", GAUGE, "Registered consumers of Pulsar and TubeMQ.", |s| s.consumers as u64),
    ("forebay_broker_retained_messages", GAUGE, "Retained messages of MQTT.", |s| s.retained as u64),
    ("forebay_broker_received_messages_total", COUNTER, "Messages received.", |s| s.messages_in),
    ("forebay_broker_sent_messages_total", COUNTER, "Messages delivered.", |s| s.messages_out),
    (
        "forebay_broker_dropped_messages_total",
        COUNTER,
        "Messages that a subscriber did not get because it was too slow or they expired.",
        |s| s.messages_dropped,
    ),
    (
        "forebay_broker_redelivered_messages_total",
        COUNTER,
        "Messages that were delivered again: of Pulsar those of a batch together.",
        |s| s.messages_redelivered,
    ),
    (
        "forebay_broker_duplicates_total",
        COUNTER,
        "Messages or batches of Pulsar that their producer had sent before, and that were not stored again.",
        |s| s.duplicates,
    ),
    ("forebay_broker_denied_requests_total", COUNTER, "Requests that the permissions do not allow.", |s| {
        s.denied
    }),
    (
        "forebay_broker_received_bytes_total",
        COUNTER,
        "Bytes received: of messages, or of all packets of MQTT.",
        |s| s.bytes_in,
    ),
    (
        "forebay_broker_sent_bytes_total",
        COUNTER,
        "Bytes sent: of messages, or of all packets of MQTT.",
        |s| s.bytes_out,
    ),
];

/// The answer to `/metrics`.
pub(super) fn metrics(
    state: &State<'_>,
    http: &HttpStats,
    topics: &Topics,
    durability: &str,
    uptime: Duration,
) -> Answer {
    let mut text = Text(String::new());
    text.metric("forebay_broker_info", GAUGE, "Version and durability of the broker.");
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("durability", durability)];
    text.sample("forebay_broker_info", &labels, 1);
    text.single("forebay_broker_uptime_seconds", GAUGE, "Time since the start.", uptime.as_secs_f64());
    let stats = state.stats;
    text.single("forebay_broker_store_bytes", GAUGE, "Bytes in the store, or in memory.", stats.store_bytes);
    text.single(
        "forebay_broker_store_limit_bytes",
        GAUGE,
        "Limit on these bytes: max_store, or less if the disk has no room for it.",
        state.limit,
    );
    let writable = u8::from(state.is_writable());
    text.single("forebay_broker_store_writable", GAUGE, "Whether the store takes messages.", writable);
    if let Some(Room::Free(bytes)) = state.room {
        text.single("forebay_broker_disk_free_bytes", GAUGE, "Bytes that the store's disk has left.", bytes);
    }
    let (commits, took) = state.commits;
    let name = "forebay_broker_commit_seconds";
    text.metric(
        name,
        SUMMARY,
        "Transactions of the store, with their fsync where the durability asks for it.",
    );
    text.sample(&format!("{name}_count"), &[], commits);
    text.sample(&format!("{name}_sum"), &[], took.as_secs_f64());
    let name = "forebay_broker_log_records_omitted_total";
    text.single(
        name,
        COUNTER,
        "Records that were left out of the log, as there were too many.",
        logger::omitted(),
    );
    for (name, kind, help, figure) in FIGURES {
        text.metric(name, kind, help);
        for (protocol, stats) in &stats.protocols {
            text.sample(name, &[("protocol", protocol)], figure(stats));
        }
        // The figures of connections are those of the listener of HTTP, too.
        match name {
            "forebay_broker_connections" => text.sample(name, &[("protocol", "http")], http.connections),
            "forebay_broker_connections_refused_total" => {
                text.sample(name, &[("protocol", "http")], http.connections_refused);
            }
            _ => {}
        }
    }
    let name = "forebay_broker_http_answers_total";
    text.metric(name, COUNTER, "Answers over HTTP by the class of their status.");
    for (class, count) in &http.answers {
        text.sample(name, &[("status", class)], count);
    }
    of_topics(&mut text, topics);
    Answer::new(CONTENT_TYPE, text.0)
}

fn of_topics(text: &mut Text, topics: &Topics) {
    let help = "Topics that have no figures of their own here, because there are too many.";
    text.single("forebay_broker_topics_omitted", GAUGE, help, topics.omitted);
    type OfTopic = (&'static str, &'static str, &'static str, fn(&Topic) -> u64);
    let of_topic: [OfTopic; 3] = [
        ("forebay_topic_entries", GAUGE, "Messages or batches that are kept.", |t| t.entries),
        ("forebay_topic_received_messages_total", COUNTER, "Messages received.", |t| t.messages_in),
        ("forebay_topic_producers", GAUGE, "Registered producers.", |t| t.producers as u64),
    ];
    for (name, kind, help, figure) in of_topic {
        text.metric(name, kind, help);
        for (topic, figures) in &topics.topics {
            text.sample(name, &[("protocol", figures.protocol), ("topic", topic)], figure(figures));
        }
    }
    type OfSubscription = (&'static str, &'static str, fn(&Subscription) -> i64);
    let of_subscription: [OfSubscription; 5] = [
        ("forebay_subscription_backlog_entries", "Messages or batches that are not acknowledged.", |s| {
            s.backlog as i64
        }),
        ("forebay_subscription_delayed_entries", "Messages that wait for their delivery time.", |s| {
            s.delayed as i64
        }),
        ("forebay_subscription_redelivery_entries", "Messages or batches that wait for redelivery.", |s| {
            s.replaying as i64
        }),
        ("forebay_subscription_unacknowledged_messages", "Messages that consumers hold.", |s| s.unacked),
        ("forebay_subscription_consumers", "Connected consumers.", |s| s.consumers as i64),
    ];
    for (name, help, figure) in of_subscription {
        text.metric(name, GAUGE, help);
        for (topic, figures) in &topics.topics {
            for (subscription, of) in &figures.subscriptions {
                let labels =
                    [("protocol", figures.protocol), ("topic", topic), ("subscription", subscription)];
                text.sample(name, &labels, figure(of));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{ConsumerStats, Stats, SubscriptionStats};

    fn topic(name: &str, subscriptions: usize) -> TopicStats {
        let consumer = ConsumerStats { unacked: 2, ..ConsumerStats::default() };
        let one = |n: usize| SubscriptionStats {
            topic: name.into(),
            name: format!("s\"{n}\\\n"),
            backlog: 3,
            consumers: vec![consumer.clone()],
            ..SubscriptionStats::default()
        };
        TopicStats {
            name: name.into(),
            messages_in: 7,
            subscriptions: (0..subscriptions).map(one).collect(),
            ..TopicStats::default()
        }
    }

    fn text(topics: &Topics) -> String {
        let stats = Stats { protocols: vec![("pulsar", ProtocolStats::default())], store_bytes: 5 };
        let commits = (3, Duration::from_millis(250));
        let state = State {
            stats: &stats,
            limit: 9,
            disk_is_full: false,
            room: Some(Room::Free(11)),
            commits,
            wall_ms: 0,
        };
        let http = HttpStats { connections: 4, answers: [("2xx", 6)].into(), ..HttpStats::default() };
        let answer = metrics(&state, &http, topics, "fsync", Duration::from_millis(1500));
        assert_eq!(answer.content_type, CONTENT_TYPE);
        String::from_utf8(answer.body.to_vec()).unwrap()
    }

    #[test]
    fn partitions_are_summed_and_labels_are_quoted() {
        let mut stats = topic("t", 1);
        stats.subscriptions.push(stats.subscriptions[0].clone());
        let mut topics = Topics::default();
        topics.add("pulsar", stats);
        let text = text(&topics);
        for line in [
            "forebay_broker_uptime_seconds 1.5",
            "forebay_broker_store_writable 1",
            "forebay_broker_commit_seconds_count 3",
            "forebay_broker_commit_seconds_sum 0.25",
            "forebay_broker_disk_free_bytes 11",
            "forebay_broker_connections{protocol=\"pulsar\"} 0",
            "forebay_broker_connections{protocol=\"http\"} 4",
            "forebay_broker_http_answers_total{status=\"2xx\"} 6",
            "forebay_topic_received_messages_total{protocol=\"pulsar\",topic=\"t\"} 7",
            "forebay_subscription_backlog_entries{protocol=\"pulsar\",topic=\"t\",subscription=\"s\\\"0\\\\\\n\"} 6",
            "forebay_subscription_unacknowledged_messages{protocol=\"pulsar\",topic=\"t\",subscription=\"s\\\"0\\\\\\n\"} 4",
            "forebay_broker_topics_omitted 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn each_metric_has_help_and_type_once_before_all_its_samples() {
        let mut topics = Topics::default();
        topics.add("pulsar", topic("a", 2));
        topics.add("tubemq", topic("b", 1));
        let text = text(&topics);
        let (mut known, mut current) = (Vec::new(), "");
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                current = rest.split(' ').next().unwrap();
                assert!(!known.contains(&current), "{current} comes twice");
                known.push(current);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(name, current);
                assert_eq!(kind == COUNTER, name.ends_with("_total"), "{name}");
            } else {
                let name = line.split(['{', ' ']).next().unwrap();
                let of_summary = ["_count", "_sum"].iter().find_map(|end| name.strip_suffix(end));
                assert!(name == current || of_summary == Some(current), "{line}");
                assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
            }
        }
    }

    #[test]
    fn the_number_of_series_has_a_limit_and_what_is_left_out_is_counted() {
        let mut topics = Topics::default();
        topics.add("pulsar", topic("big", MAX_OBJECTS));
        for number in 0..MAX_OBJECTS {
            topics.add("pulsar", topic(&format!("t{number}"), 1));
        }
        assert!(!topics.has_room());
        topics.omit(5);
        let text = text(&topics);
        let omitted = 1 + MAX_OBJECTS / 2 + 5;
        assert!(text.contains(&format!("\nforebay_broker_topics_omitted {omitted}\n")));
        assert_eq!(text.matches("forebay_subscription_consumers{").count(), MAX_OBJECTS / 2);
    }
}
