//! Topic names, key hashing, and the choice of a partition.

use std::fmt;
use std::time::{Duration, Instant};

use forebay_base::error::{Error, ErrorKind, Result};

/// A validated topic name, `domain://tenant/namespace/local`, or one partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TopicName {
    persistent: bool,
    tenant: String,
    namespace: String,
    /// Local name without the partition suffix.
    local: String,
    partition: Option<u32>,
}

impl TopicName {
    /// Parses `topic`, `tenant/namespace/topic` or the full form. A bare `topic` is in
    /// `public/default`.
    pub fn parse(name: &str) -> Result<Self> {
        let bad = |why: &str| {
            Error::new(
                ErrorKind::InvalidTopic,
                format!(
                    "{name:?} is not a topic name: {why}; expected topic, tenant/namespace/topic or persistent://tenant/namespace/topic"
                ),
            )
        };
        let (persistent, rest) = match name.split_once("://") {
            None => (true, name),
            Some(("persistent", rest)) => (true, rest),
            Some(("non-persistent", rest)) => (false, rest),
            Some(_) => return Err(bad("the domain must be persistent or non-persistent")),
        };
        let parts: Vec<&str> = rest.split('/').collect();
        let (tenant, namespace, local) = match parts[..] {
            [local] if !name.contains("://") => ("public", "default", local),
            [tenant, namespace, local] => (tenant, namespace, local),
            _ => return Err(bad("it must have one or three parts")),
        };
        if local.is_empty() {
            return Err(bad("the local name is empty"));
        }
        let legal = |part: &str| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-=:._".contains(&b))
        };
        if !legal(tenant) || !legal(namespace) {
            return Err(bad("tenant and namespace may contain only letters, digits and -=:._"));
        }
        if local.chars().any(char::is_control) {
            return Err(bad("it contains a control character"));
        }
        let (local, partition) = split_partition(local);
        Ok(Self {
            persistent,
            tenant: tenant.into(),
            namespace: namespace.into(),
            local: local.into(),
            partition,
        })
    }

    /// Partition number, if the name ends in one.
    pub fn partition(&self) -> Option<u32> {
        self.partition
    }

    /// Returns the name of partition `partition` of the same topic.
    #[must_use]
    pub fn with_partition(&self, partition: u32) -> Self {
        Self { partition: Some(partition), ..self.clone() }
    }

    /// Returns the name without its partition.
    #[must_use]
    pub fn without_partition(&self) -> Self {
        Self { partition: None, ..self.clone() }
    }

    /// Tenant and namespace, as `tenant/namespace`.
    pub fn namespace(&self) -> String {
        format!("{}/{}", self.tenant, self.namespace)
    }

    /// Whether the topic stores its messages.
    pub fn is_persistent(&self) -> bool {
        self.persistent
    }
}

/// Splits `x-partition-7` into `x` and 7. Malformed suffixes (`-partition-07`, `-partition--2`)
/// stay in the name.
fn split_partition(local: &str) -> (&str, Option<u32>) {
    const MARK: &str = "-partition-";
    let Some(at) = local.rfind(MARK).filter(|at| *at > 0) else { return (local, None) };
    let digits = &local[at + MARK.len()..];
    let canonical = !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'));
    match digits.parse() {
        Ok(partition) if canonical => (&local[..at], Some(partition)),
        _ => (local, None),
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let domain = if self.persistent { "persistent" } else { "non-persistent" };
        write!(f, "{domain}://{}/{}/{}", self.tenant, self.namespace, self.local)?;
        match self.partition {
            Some(partition) => write!(f, "-partition-{partition}"),
            None => Ok(()),
        }
    }
}

/// Hash function for message keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashingScheme {
    /// `java.lang.String.hashCode`, the default of the reference client.
    #[default]
    JavaStringHash,
    /// Murmur3, 32 bits.
    Murmur3,
    /// `boost::hash`, the default of the C++ and the official Python client.
    Boost,
}

impl HashingScheme {
    /// Hashes `key`. The result is never negative when read as an `i32`.
    pub fn hash(self, key: &str) -> u32 {
        let hash = match self {
            Self::JavaStringHash => java_string_hash(key),
            Self::Murmur3 => murmur3_32(key.as_bytes()),
            Self::Boost => boost_hash(key.as_bytes()),
        };
        hash & 0x7fff_ffff
    }
}

fn java_string_hash(key: &str) -> u32 {
    key.encode_utf16().fold(0, |hash: u32, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit)))
}

/// MurmurHash3, x86, 32 bits, seed 0.
pub fn murmur3_32(bytes: &[u8]) -> u32 {
    const C1: u32 = 0xcc9e_2d51;
    const C2: u32 = 0x1b87_3593;
    let mix = |k: u32| k.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2);
    let (blocks, tail) = bytes.as_chunks::<4>();
    let mut hash = blocks.iter().fold(0_u32, |hash, block| {
        (hash ^ mix(u32::from_le_bytes(*block))).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
    });
    if !tail.is_empty() {
        hash ^= mix(tail.iter().rev().fold(0, |k, byte| k << 8 | u32::from(*byte)));
    }
    hash ^= bytes.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

/// `boost::hash<std::string>` on 64 bits as of Boost 1.82, which the official client's packages are
/// built with: 8 bytes at a time, multiplied to 128 bits and folded.
fn boost_hash(bytes: &[u8]) -> u32 {
    const Q: u64 = 0x9e37_79b9_7f4a_7c15;
    const K: u64 = 0xdf44_2d22_ce48_59b9;
    let fold = |x: u64| {
        let product = u128::from(x) * u128::from(K);
        product as u64 ^ (product >> 64) as u64
    };
    let (blocks, tail) = bytes.as_chunks::<8>();
    let mut w = fold(Q);
    let mut hash = w ^ bytes.len() as u64;
    for block in blocks {
        w = w.wrapping_add(Q);
        hash ^= fold(u64::from_le_bytes(*block).wrapping_add(w));
    }
    let last = match tail.len() {
        0 => 0,
        n @ 1..4 => {
            let at = |index: usize| u64::from(tail[index]);
            let first = (n - 1) & 2;
            at(first) << (8 * first) | at(n / 2) << (8 * (n / 2)) | at(0)
        }
        n => {
            let word = |from: usize| {
                u64::from(u32::from_le_bytes(tail[from..from + 4].try_into().expect("4 bytes")))
            };
            word(n - 4) << (8 * (n - 4)) | word(0)
        }
    };
    w = w.wrapping_add(Q);
    hash ^= fold(last.wrapping_add(w));
    fold(hash.wrapping_add(w)) as u32
}

/// Partition choice for messages without a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// Cycle through the partitions.
    #[default]
    RoundRobin,
    /// Send everything to one partition.
    Single,
    /// Cycle through this many partitions, chosen at random, and send keys to them only.
    Partial(u32),
}

/// Chooses a partition for each message.
#[derive(Debug)]
pub struct Router {
    partitions: u32,
    hashing: HashingScheme,
    routing: Routing,
    /// Time for which keyless messages stay with one partition, so that they fill batches instead
    /// of scattering.
    stay: Duration,
    /// The partitions in use with [`Routing::Partial`]; empty if all are.
    chosen: Vec<u32>,
    /// Place of the partition for keyless messages, among those in use.
    current: u32,
    switch_at: Option<Instant>,
}

impl Router {
    /// Creates a router for `partitions` (at least 1); `seed` selects the first partition. Keyless
    /// messages stay with a partition for `stay`; without batching `stay` is zero and each message
    /// moves to the next one.
    pub fn new(partitions: u32, hashing: HashingScheme, routing: Routing, stay: Duration, seed: u64) -> Self {
        let partitions = partitions.max(1);
        let chosen = match routing {
            Routing::Partial(limit) => choose(partitions, limit.max(1), seed),
            Routing::RoundRobin | Routing::Single => Vec::new(),
        };
        let mut router = Self { partitions, hashing, routing, stay, chosen, current: 0, switch_at: None };
        router.current = (seed % u64::from(router.in_use())) as u32;
        router
    }

    /// Spreads messages over `partitions` from now on. With [`Routing::Partial`], new partitions
    /// are used if there were fewer than its number.
    pub fn grow(&mut self, partitions: u32) {
        let new = self.partitions..self.partitions.max(partitions);
        if let Routing::Partial(limit) = self.routing {
            let room = (limit as usize).saturating_sub(self.chosen.len());
            self.chosen.extend(new.clone().take(room));
        }
        self.partitions = new.end;
    }

    /// The partition of the next message without a key, if it is sent at once.
    pub fn current(&self) -> u32 {
        self.at(self.current)
    }

    /// Returns the partition for a message with this key and this sequence id of its own.
    pub fn pick(&mut self, key: Option<&str>, sequence_id: Option<u64>, now: Instant) -> u32 {
        if let Some(key) = key {
            return self.at(self.hashing.hash(key) % self.in_use());
        }
        if self.routing != Routing::Single {
            if let Some(sequence) = sequence_id {
                // A message that is sent again has to meet its first copy, as each partition knows
                // its own ids only.
                return self.at((sequence / STRIPE % u64::from(self.in_use())) as u32);
            }
            if self.switch_at.is_some_and(|at| at <= now) {
                self.current = (self.current + 1) % self.in_use();
                self.switch_at = None;
            }
            self.switch_at.get_or_insert(now + self.stay);
        }
        self.at(self.current)
    }

    /// Number of partitions in use.
    fn in_use(&self) -> u32 {
        if self.chosen.is_empty() { self.partitions } else { self.chosen.len() as u32 }
    }

    /// The partition at a place among those in use.
    fn at(&self, place: u32) -> u32 {
        self.chosen.get(place as usize).copied().unwrap_or(place)
    }
}

/// Neighbouring sequence ids that have a partition in common, so that they fill batches.
const STRIPE: u64 = 1000;

/// Chooses at most `limit` of the partitions: the beginning of a shuffle of all.
fn choose(partitions: u32, limit: u32, seed: u64) -> Vec<u32> {
    let mut all: Vec<u32> = (0..partitions).collect();
    let mut bits = seed;
    for place in 0..partitions.min(limit) as usize {
        // Knuth's MMIX generator, whose upper bits are the good ones.
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let left = all.len() - place;
        all.swap(place, place + (bits >> 33) as usize % left);
    }
    all.truncate(limit as usize);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_in_the_default_namespace() {
        for (name, full) in [
            ("a", "persistent://public/default/a"),
            ("t/n/a", "persistent://t/n/a"),
            ("persistent://t/n/a", "persistent://t/n/a"),
            ("non-persistent://t/n/a-partition-3", "non-persistent://t/n/a-partition-3"),
        ] {
            let topic = TopicName::parse(name).unwrap();
            assert_eq!(topic.to_string(), full);
            assert_eq!(TopicName::parse(full).unwrap(), topic);
        }
    }

    #[test]
    fn a_partition_is_digits_without_leading_zeros() {
        let partition = |name| TopicName::parse(name).unwrap().partition();
        assert_eq!(partition("a-partition-0"), Some(0));
        assert_eq!(partition("a-partition-12"), Some(12));
        assert_eq!(partition("a-partition-1-partition-2"), Some(2));
        for name in
            ["a-partition-", "a-partition-01", "a-partition--2", "a-partition-99999999999", "a-partition-x"]
        {
            assert_eq!(partition(name), None, "{name}");
        }
        assert_eq!(
            TopicName::parse("a").unwrap().with_partition(2).to_string(),
            "persistent://public/default/a-partition-2"
        );
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for name in
            ["", "a/b", "a/b/c/d", "x://t/n/a", "persistent://a", "t//a", "t/n/", "t t/n/a", "a\nb", "/"]
        {
            assert_eq!(TopicName::parse(name).unwrap_err().kind(), ErrorKind::InvalidTopic, "{name:?}");
        }
    }

    #[test]
    fn hashes_have_their_published_answers() {
        let java = |key| HashingScheme::JavaStringHash.hash(key);
        assert_eq!(
            (java("key1"), java("keykeykeykeykey1"), java("hello")),
            (3_288_498, 434_058_482, 0x05e9_18d2)
        );
        assert_eq!(java("Ünï"), 215_069, "UTF-16 units, as Java");
        let murmur = |key| HashingScheme::Murmur3.hash(key);
        assert_eq!(
            (murmur("key1"), murmur("key2"), murmur("hello")),
            (462_881_061, 1_936_800_180, 0x248b_fa47)
        );
        assert_eq!(murmur3_32(b"key1"), 2_610_364_709);
    }

    #[test]
    fn boost_hashes_as_the_packages_of_the_official_client() {
        // Verified against the partitions that pulsar-client 3.13.0 chooses (tests/interop).
        for (key, hash) in [
            ("", 0x7f24_eba6),
            ("key1", 2_071_103_098),
            ("hello", 1_742_291_129),
            ("abcdefghi", 853_264_110),
            ("schlüssel", 0x3cd5_10e0),
        ] {
            assert_eq!(HashingScheme::Boost.hash(key), hash, "{key:?}");
        }
    }

    #[test]
    fn a_router_that_has_grown_uses_all_partitions() {
        let now = Instant::now();
        let mut router = Router::new(1, HashingScheme::default(), Routing::RoundRobin, Duration::ZERO, 0);
        assert_eq!((router.pick(Some("key1"), None, now), router.pick(None, None, now)), (0, 0));
        router.grow(3);
        assert_eq!(router.pick(Some("key1"), None, now), 3_288_498 % 3);
        assert_eq!([0; 3].map(|_| router.pick(None, None, now)), [1, 2, 0]);
        let mut single = Router::new(2, HashingScheme::default(), Routing::Single, Duration::ZERO, 1);
        single.grow(9);
        assert_eq!(single.pick(None, None, now), 1, "it stays where it was");
    }

    #[test]
    fn a_partial_router_cycles_through_its_partitions_only() {
        let (now, hashing) = (Instant::now(), HashingScheme::default());
        let mut firsts = Vec::new();
        for seed in 0..50_u64 {
            let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut router = Router::new(9, hashing, Routing::Partial(3), Duration::ZERO, seed);
            assert_eq!(router.current(), router.chosen[router.current as usize]);
            let mut seen = [0; 12].map(|_| router.pick(None, None, now)).to_vec();
            assert_eq!(seen[..3], seen[3..6], "in turn");
            seen.extend((0..100).map(|n| router.pick(Some(&n.to_string()), None, now)));
            assert_eq!(router.pick(Some("a"), None, now), router.pick(Some("a"), None, now));
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), 3);
            assert!(seen.iter().all(|partition| *partition < 9));
            firsts.push(seen[0]);
        }
        firsts.dedup();
        assert!(firsts.len() > 1, "another seed chooses others");
    }

    #[test]
    fn a_partial_router_takes_new_partitions_until_it_has_its_number() {
        let now = Instant::now();
        let mut router = Router::new(2, HashingScheme::default(), Routing::Partial(3), Duration::ZERO, 7);
        router.grow(6);
        let mut seen = [0; 9].map(|_| router.pick(None, None, now));
        seen.sort_unstable();
        assert_eq!(seen, [0, 0, 0, 1, 1, 1, 2, 2, 2]);
        router.grow(9);
        assert_eq!(router.in_use(), 3);
        let mut all = Router::new(2, HashingScheme::default(), Routing::Partial(9), Duration::ZERO, 7);
        assert_eq!(all.in_use(), 2);
        all.grow(4);
        assert_eq!((all.in_use(), all.partitions), (4, 4));
    }

    #[test]
    fn keyless_messages_stay_a_while_then_move_on() {
        let (now, stay) = (Instant::now(), Duration::from_millis(10));
        let mut router = Router::new(3, HashingScheme::default(), Routing::RoundRobin, stay, 1);
        assert_eq!((router.pick(None, None, now), router.pick(None, None, now)), (1, 1));
        assert_eq!(router.pick(None, None, now + stay), 2);
        assert_eq!(router.pick(None, None, now + 2 * stay), 0);
        assert_eq!(router.pick(Some("key1"), None, now), 3_288_498 % 3);
        let mut single = Router::new(3, HashingScheme::default(), Routing::Single, stay, 4);
        assert_eq!((single.pick(None, None, now), single.pick(None, None, now + stay)), (1, 1));
        let mut unbatched = Router::new(3, HashingScheme::default(), Routing::RoundRobin, Duration::ZERO, 0);
        assert_eq!([0; 4].map(|_| unbatched.pick(None, None, now)), [0, 1, 2, 0]);
    }

    #[test]
    fn a_sequence_id_of_its_own_decides_where_a_keyless_message_goes() {
        let now = Instant::now();
        let picked = |seed, sequence, key| {
            let mut router =
                Router::new(3, HashingScheme::default(), Routing::RoundRobin, Duration::ZERO, seed);
            router.pick(key, Some(sequence), now)
        };
        for seed in 0..4 {
            let numbers = [0, 999, 1000, 2999, 3000, (7 << 32) + 1];
            assert_eq!(numbers.map(|number| picked(seed, number, None)), [0, 0, 1, 2, 0, 1]);
            assert_eq!(picked(seed, 1000, Some("key1")), 3_288_498 % 3);
        }
        let mut single = Router::new(3, HashingScheme::default(), Routing::Single, Duration::ZERO, 4);
        assert_eq!((single.pick(None, Some(0), now), single.pick(None, Some(1000), now)), (1, 1));
    }
}
