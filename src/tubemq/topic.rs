//! Names, partitions, and the text formats in which clients, master and brokers exchange them.
//!
//! ```text
//! broker            id:host:port             a blank port is the default one: "1:127.0.0.1: "
//! producer's topic  topic#broker:partitions:stores,...#bytes
//! consumer's topic  topic#broker:stores:partitions:status,...      stores and partitions swapped
//! location          broker:host:port#topic:partition
//! subscription      client@group#location
//! failure           code:location
//! held              topic#broker:partition,...
//! condition         topic#type,type...
//! ```

use std::fmt::{Display, Formatter};

use forebay_base::error::{Error, ErrorKind, Result};

/// Partition numbers of store `j` start at `j` times this number.
pub const STORE_BASE: u32 = 10_000;
/// Maximum number of partitions accepted for a topic, over all its brokers.
const MAX_PARTITIONS: u32 = 1 << 16;
const MAX_TOPIC: usize = 64;
const MAX_GROUP: usize = 1024;

/// A partition of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Partition {
    /// Number of the broker.
    pub broker: u32,
    /// Number at the broker: ten thousand times the store's number, plus the number within the
    /// store.
    pub id: u32,
}

/// Number and address of a broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Broker {
    /// Number of the broker.
    pub id: u32,
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

fn bad(what: &str, text: &str) -> Error {
    Error::protocol(format!("the peer sent an invalid {what}")).with_peer_text(text)
}

impl Broker {
    /// Parses `id:host:port`; a blank port means the default one.
    pub fn parse(text: &str, default_port: u16) -> Result<Self> {
        let parse = || {
            let (id, rest) = text.split_once(':')?;
            let (host, port) = rest.rsplit_once(':')?;
            let port = match port.trim() {
                "" => default_port,
                port => port.parse().ok().filter(|port| *port != 0)?,
            };
            let host = host.trim();
            (!host.is_empty()).then_some(())?;
            Some(Self { id: id.trim().parse().ok()?, host: host.to_owned(), port })
        };
        parse().ok_or_else(|| bad("broker address", text))
    }

    /// Formats the broker as official masters do, with a blank for the default port.
    pub fn to_text(&self, default_port: u16) -> String {
        if self.port == default_port { format!("{}:{}: ", self.id, self.host) } else { self.to_string() }
    }
}

impl Display for Broker {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.id, self.host, self.port)
    }
}

/// A broker's share of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TopicShare {
    /// Number of the broker.
    pub broker: u32,
    /// Number of the topic's stores at the broker.
    pub stores: u32,
    /// Number of partitions per store.
    pub partitions: u32,
}

impl TopicShare {
    /// Partitions of the share, store by store.
    pub fn iter(self) -> impl Iterator<Item = Partition> {
        let Self { broker, stores, partitions } = self;
        (0..stores).flat_map(move |store| {
            (0..partitions).map(move |i| Partition { broker, id: store * STORE_BASE + i })
        })
    }

    /// Appends the partitions; `None` if the topic would exceed [`MAX_PARTITIONS`].
    fn expand(self, into: &mut Vec<Partition>) -> Option<()> {
        let room = MAX_PARTITIONS - into.len() as u32;
        // With zero partitions, the number of stores would be unlimited.
        (self.partitions > 0 && self.partitions <= STORE_BASE).then_some(())?;
        (self.stores.checked_mul(self.partitions)? <= room).then_some(())?;
        into.extend(self.iter());
        Some(())
    }
}

/// A topic as described to producers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerTopic {
    /// Name of the topic.
    pub name: String,
    /// Writable partitions.
    pub partitions: Vec<Partition>,
    /// Maximum message size in bytes, including attributes, if the master states it.
    pub max_message_size: Option<usize>,
}

impl ProducerTopic {
    /// Parses `topic#broker:partitions:stores[,...]#bytes`.
    pub fn parse(text: &str) -> Result<Self> {
        let parse = || {
            let (name, rest) = text.split_once('#')?;
            let (brokers, size) = rest.split_once('#').unwrap_or((rest, ""));
            let mut all = Vec::new();
            for [broker, partitions, stores] in listed(brokers) {
                TopicShare { broker: broker?, stores: stores?, partitions: partitions? }.expand(&mut all)?;
            }
            let max_message_size = match size.trim() {
                "" => None,
                size => Some(size.parse::<usize>().ok()?).filter(|size| *size > 0),
            };
            Some(Self { name: named(name)?, partitions: all, max_message_size })
        };
        parse().ok_or_else(|| bad("topic description for producers", text))
    }

    /// Formats the input of [`Self::parse`], as official masters write it.
    pub fn to_text(name: &str, shares: &[TopicShare], max_message_size: Option<usize>) -> String {
        let brokers = join(shares, |TopicShare { broker, stores, partitions }| {
            format!("{broker}:{partitions}:{stores}")
        });
        let size = max_message_size.map(|size| size.to_string()).unwrap_or_default();
        format!("{name}#{brokers}#{size}")
    }
}

/// A topic as described to consumers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerTopic {
    /// Name of the topic.
    pub name: String,
    /// Partitions, each with its status.
    pub partitions: Vec<(Partition, i32)>,
}

impl ConsumerTopic {
    /// Parses `topic#broker:stores:partitions:status[,...]`, with stores and partitions in the
    /// opposite order to that for producers.
    pub fn parse(text: &str) -> Result<Self> {
        let parse = || {
            let (name, brokers) = text.split_once('#')?;
            let (mut all, mut statuses) = (Vec::new(), Vec::new());
            for [broker, stores, partitions, status] in listed::<i64, 4>(brokers) {
                let [broker, stores, partitions] =
                    [broker?, stores?, partitions?].map(|number| u32::try_from(number).ok());
                TopicShare { broker: broker?, stores: stores?, partitions: partitions? }.expand(&mut all)?;
                statuses.resize(all.len(), i32::try_from(status?).ok()?);
            }
            Some(Self { name: named(name)?, partitions: all.into_iter().zip(statuses).collect() })
        };
        parse().ok_or_else(|| bad("topic description for consumers", text))
    }

    /// Formats the input of [`Self::parse`], as official masters write it: the share and status of
    /// each broker.
    pub fn to_text(name: &str, shares: &[(TopicShare, i32)]) -> String {
        let brokers = join(shares, |(TopicShare { broker, stores, partitions }, status)| {
            format!("{broker}:{stores}:{partitions}:{status}")
        });
        format!("{name}#{brokers}")
    }
}

/// A partition and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscribeInfo {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: Partition,
    /// Broker that has the partition.
    pub broker: Broker,
}

impl SubscribeInfo {
    /// Parses `client@group#broker:host:port#topic:partition`.
    pub fn parse(text: &str, default_port: u16) -> Result<Self> {
        let parse = || {
            let (_, location) = text.split_once('#')?;
            location_of(location, default_port)
        };
        parse().ok_or_else(|| bad("subscription", text))
    }

    /// Parses `broker:host:port#topic:partition`, as used in a consumer's heartbeat at a broker.
    pub fn parse_location(text: &str, default_port: u16) -> Result<Self> {
        location_of(text, default_port).ok_or_else(|| bad("partition location", text))
    }

    /// Parses `code:broker:host:port#topic:partition`: a code, and the partition that a broker
    /// withdraws for this reason.
    pub fn parse_failure(text: &str, default_port: u16) -> Result<(i32, Self)> {
        let parse = || {
            let (code, location) = text.split_once(':')?;
            Some((code.trim().parse().ok()?, location_of(location, default_port)?))
        };
        parse().ok_or_else(|| bad("partition failure", text))
    }

    /// Formats the subscription of a group's member: the input of [`Self::parse`].
    pub fn to_text(&self, client: &str, group: &str) -> String {
        format!("{client}@{group}#{self}")
    }

    /// Formats the input of [`Self::parse_failure`].
    pub fn to_failure(&self, code: i32) -> String {
        format!("{code}:{self}")
    }

    /// Formats `broker:topic:partition`, the name of the partition in user interfaces.
    pub fn partition_key(&self) -> String {
        format!("{}:{}:{}", self.broker.id, self.topic, self.partition.id)
    }
}

/// Formats the input of [`SubscribeInfo::parse_location`].
impl Display for SubscribeInfo {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}#{}:{}", self.broker, self.topic, self.partition.id)
    }
}

fn location_of(text: &str, default_port: u16) -> Option<SubscribeInfo> {
    let (broker, rest) = text.split_once('#')?;
    let broker = Broker::parse(broker, default_port).ok()?;
    let (topic, id) = rest.rsplit_once(':')?;
    let partition = Partition { broker: broker.id, id: id.trim().parse().ok()? };
    Some(SubscribeInfo { topic: named(topic)?, partition, broker })
}

/// The partitions of a topic that a consumer with client balance holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldInfo {
    /// Topic.
    pub topic: String,
    /// Partitions held.
    pub partitions: Vec<Partition>,
}

impl HeldInfo {
    /// Parses `topic#broker:partition[,...]`.
    pub fn parse(text: &str) -> Result<Self> {
        let parse = || {
            let (topic, held) = text.split_once('#')?;
            let partitions: Option<Vec<_>> =
                listed(held).map(|[broker, id]| Some(Partition { broker: broker?, id: id? })).collect();
            Some(Self { topic: named(topic)?, partitions: partitions? })
        };
        parse().ok_or_else(|| bad("list of held partitions", text))
    }
}

/// Formats the input of [`HeldInfo::parse`].
impl Display for HeldInfo {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let held = join(&self.partitions, |Partition { broker, id }| format!("{broker}:{id}"));
        write!(f, "{}#{held}", self.topic)
    }
}

/// The message types of a topic that a consumer subscribes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Topic.
    pub topic: String,
    /// Message types as received, trimmed.
    pub types: Vec<String>,
}

impl Condition {
    /// Parses `topic#type[,...]`.
    pub fn parse(text: &str) -> Result<Self> {
        let parse = || {
            let (topic, types) = text.split_once('#')?;
            let types = types.split(',').map(str::trim).filter(|kind| !kind.is_empty()).map(str::to_owned);
            Some(Self { topic: named(topic)?, types: types.collect() })
        };
        parse().ok_or_else(|| bad("filter list of a topic", text))
    }
}

/// Formats the input of [`Condition::parse`].
impl Display for Condition {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}#{}", self.topic, self.types.join(","))
    }
}

/// Splits a comma-separated list of items, each of `N` or more numbers separated by colons. `None`
/// for a part that is not a number.
fn listed<T: std::str::FromStr, const N: usize>(text: &str) -> impl Iterator<Item = [Option<T>; N]> {
    text.split(',').filter(|item| !item.trim().is_empty()).map(|item| {
        let mut numbers = item.split(':').map(|number| number.trim().parse().ok());
        std::array::from_fn(|_| numbers.next().flatten())
    })
}

fn named(name: &str) -> Option<String> {
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

fn join<T: Copy>(items: &[T], text: impl Fn(T) -> String) -> String {
    items.iter().map(|item| text(*item)).collect::<Vec<_>>().join(",")
}

/// Validates the name of a topic.
pub fn check_topic(topic: &str) -> Result<()> {
    let valid = topic.starts_with(|c: char| c.is_ascii_alphabetic())
        && topic.len() <= MAX_TOPIC
        && topic.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if valid {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidTopic,
        format!(
            "{topic:?} is not a topic name: expected a letter, then letters, digits and _, at most {MAX_TOPIC}"
        ),
    ))
}

/// Validates the name of a consumer group.
pub fn check_group(group: &str) -> Result<()> {
    let valid = group.starts_with(|c: char| c.is_ascii_alphabetic())
        && group.len() <= MAX_GROUP
        && group.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    if valid {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        format!(
            "{group:?} is not a group name: expected a letter, then letters, digits, _ and -, at most {MAX_GROUP}"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u16 = 8123;

    fn partition(broker: u32, id: u32) -> Partition {
        Partition { broker, id }
    }

    #[test]
    fn a_blank_port_is_the_default_one() {
        // Trimming the text as a whole would remove its third part.
        let broker = Broker::parse("1:127.0.0.1: ", PORT).unwrap();
        assert_eq!(broker, Broker { id: 1, host: "127.0.0.1".into(), port: PORT });
        assert_eq!(Broker::parse("1:127.0.0.1: ", 8124).unwrap().port, 8124);
        assert_eq!(Broker::parse("1:127.0.0.1:", PORT).unwrap(), broker);
        assert_eq!(broker.to_text(PORT), "1:127.0.0.1: ");
        assert_eq!(broker.to_text(8124), "1:127.0.0.1:8123");
        assert_eq!(Broker::parse(&broker.to_string(), 1).unwrap(), broker);
        for text in ["", "1", "1:host", ":host:1", "x:host:1", "-1:host:1", "1::1", "1: :1", "1:host:0"] {
            assert!(Broker::parse(text, PORT).is_err(), "{text:?}");
        }
        for text in ["1:host:65536", "1:host:-1", "1:host:x", "4294967296:host:1"] {
            assert!(Broker::parse(text, PORT).is_err(), "{text:?}");
        }
    }

    #[test]
    fn producers_are_told_partitions_first_and_consumers_stores_first() {
        let expected = [0, 1, 2, 10_000, 10_001, 10_002].map(|id| partition(1, id));
        let producer = ProducerTopic::parse("demo#1:3:2#").unwrap();
        assert_eq!((producer.name.as_str(), producer.max_message_size), ("demo", None));
        assert_eq!(producer.partitions, expected);
        let consumer = ConsumerTopic::parse("demo#1:2:3:1").unwrap();
        assert_eq!(consumer.partitions, expected.map(|partition| (partition, 1)));
        let share = TopicShare { broker: 1, stores: 2, partitions: 3 };
        assert_eq!(share.iter().collect::<Vec<_>>(), expected);
        assert_eq!(ProducerTopic::to_text("demo", &[share], None), "demo#1:3:2#");
        assert_eq!(ConsumerTopic::to_text("demo", &[(share, 1)]), "demo#1:2:3:1");
    }

    #[test]
    fn a_topic_may_be_at_several_brokers_or_at_none() {
        let topic = ProducerTopic::parse("demo#7:1:2,3:1:1#2097152").unwrap();
        assert_eq!(topic.partitions, [partition(7, 0), partition(7, 10_000), partition(3, 0)]);
        assert_eq!(topic.max_message_size, Some(2_097_152));
        let topic = ConsumerTopic::parse("demo#7:1:2:1,3:1:1:0").unwrap();
        assert_eq!(topic.partitions, [(partition(7, 0), 1), (partition(7, 1), 1), (partition(3, 0), 0)]);
        assert_eq!(ProducerTopic::parse("demo##").unwrap().partitions, []);
        assert_eq!(ConsumerTopic::parse("demo#").unwrap().partitions, []);
    }

    #[test]
    fn no_more_partitions_are_made_than_are_believed() {
        let most = |each: u32, stores: u32| format!("t#1:{each}:{stores}#");
        assert_eq!(ProducerTopic::parse(&most(16, 4096)).unwrap().partitions.len(), 65_536);
        for text in [most(17, 4096), most(10_001, 1), most(u32::MAX, u32::MAX), most(2, u32::MAX)] {
            assert!(ProducerTopic::parse(&text).is_err(), "{text}");
        }
        // The limit applies to all brokers together, so that a long list of small shares cannot
        // bypass it.
        let all = |count: usize| vec!["1:1000:1"; count].join(",");
        assert_eq!(ProducerTopic::parse(&format!("t#{}#", all(65))).unwrap().partitions.len(), 65_000);
        assert!(ProducerTopic::parse(&format!("t#{}#", all(66))).is_err());
        // With zero partitions per store, any number of stores would pass.
        assert!(ProducerTopic::parse(&most(0, u32::MAX)).is_err());
        assert!(ConsumerTopic::parse("t#1:4294967295:0:1").is_err());
        assert!(ConsumerTopic::parse("t#1:4096:17:1").is_err());
    }

    #[test]
    fn texts_that_say_less_or_other_than_they_should_are_refused() {
        for text in ["", "demo", "#1:1:1#", "demo#1:1#", "demo#x:1:1#", "demo#1:1:1#x", "demo#1:1:-1#"] {
            assert!(ProducerTopic::parse(text).is_err(), "{text:?}");
        }
        for text in
            ["", "demo", "#1:1:1:1", "demo#1:1:1", "demo#1:1:1:x", "demo#1:-1:1:1", "demo#1:1:1:2147483648"]
        {
            assert!(ConsumerTopic::parse(text).is_err(), "{text:?}");
        }
        for text in ["", "c@g", "c@g#1:h:1", "c@g#1:h:1#t", "c@g#1:h:1#t:", "c@g#1:h:1#t:x", "c@g#1:h:1#:1"] {
            assert!(SubscribeInfo::parse(text, PORT).is_err(), "{text:?}");
        }
        for text in ["", "1:h:1", "1:h:1#t", "#t:0", "1:h:1#t:-1"] {
            assert!(SubscribeInfo::parse_location(text, PORT).is_err(), "{text:?}");
        }
        for text in ["", "411", "x:1:h:1#t:0", "411:1:h#t:0"] {
            assert!(SubscribeInfo::parse_failure(text, PORT).is_err(), "{text:?}");
        }
        for text in ["", "t", "t#1", "t#1:x", "#1:1"] {
            assert!(HeldInfo::parse(text).is_err(), "{text:?}");
        }
        assert!(Condition::parse("t").is_err());
        let error = ProducerTopic::parse("demo").unwrap_err();
        assert_eq!((error.kind(), error.peer_text()), (ErrorKind::Protocol, Some("demo")));
    }

    #[test]
    fn a_partition_is_named_in_four_ways() {
        let info = SubscribeInfo {
            topic: "demo".into(),
            partition: partition(1, 10_001),
            broker: Broker { id: 1, host: "127.0.0.1".into(), port: PORT },
        };
        let text = "c-1@g#1:127.0.0.1:8123#demo:10001";
        assert_eq!(info.to_text("c-1", "g"), text);
        assert_eq!(SubscribeInfo::parse(text, 1).unwrap(), info);
        assert_eq!(info.to_string(), "1:127.0.0.1:8123#demo:10001");
        assert_eq!(SubscribeInfo::parse_location(&info.to_string(), 1).unwrap(), info);
        assert_eq!(info.to_failure(411), "411:1:127.0.0.1:8123#demo:10001");
        assert_eq!(
            SubscribeInfo::parse_failure("411:1:127.0.0.1:8123#demo:10001", 1).unwrap(),
            (411, info.clone())
        );
        assert_eq!(info.partition_key(), "1:demo:10001");
    }

    #[test]
    fn lists_of_partitions_and_filters_read_back() {
        let held = HeldInfo { topic: "demo".into(), partitions: vec![partition(1, 0), partition(2, 10_000)] };
        assert_eq!(held.to_string(), "demo#1:0,2:10000");
        assert_eq!(HeldInfo::parse("demo#1:0,2:10000").unwrap(), held);
        assert_eq!(HeldInfo::parse("demo#").unwrap().partitions, []);
        let condition = Condition { topic: "demo".into(), types: vec!["Aa".into(), "till".into()] };
        assert_eq!(condition.to_string(), "demo#Aa,till");
        assert_eq!(Condition::parse("demo# Aa,till ,").unwrap(), condition);
    }

    #[test]
    fn names_are_letters_digits_and_what_the_protocol_splits_by_is_no_part_of_them() {
        for topic in ["demo", "a", "A_1", &"a".repeat(64)] {
            check_topic(topic).unwrap();
        }
        for topic in ["", "1a", "_a", "a-b", "a.b", "a#b", "a:b", "ä", &"a".repeat(65)] {
            assert_eq!(check_topic(topic).unwrap_err().kind(), ErrorKind::InvalidTopic, "{topic:?}");
        }
        for group in ["g", "my-group_1", &"g".repeat(1024)] {
            check_group(group).unwrap();
        }
        for group in ["", "-a", "a@b", "a#b", "a:b", "a b", &"g".repeat(1025)] {
            assert_eq!(check_group(group).unwrap_err().kind(), ErrorKind::InvalidArgument, "{group:?}");
        }
    }
}
