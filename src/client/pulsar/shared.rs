//! State shared by the producers and consumers of one client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::budget::Budget;
use crate::journal::{Journal, log_to};
use crate::logger;
use crate::pulsar::connection::{Connection, Pool};
use crate::pulsar::counters::{LetterCounters, LookupCounters};
use crate::pulsar::directions::Directions;
use crate::pulsar::lookup::Lookup;
use crate::pulsar::options::ClientOptions;
use forebay_base::error::Result;
use forebay_base::random::HashMap;
use forebay_base::sync::Mutex;
use forebay_net::url::ServiceUrl;
use forebay_pulsar::pb;
use forebay_pulsar::topic::TopicName;
use tracing::debug;

/// The connections, the lookup and the memory budget of a client.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: ClientOptions,
    pub(super) pool: Arc<Pool>,
    pub(super) journal: Arc<Journal>,
    /// The client's own cluster. [`Self::lookup_of`] knows that of a topic.
    pub(super) lookup: Arc<Lookup>,
    /// Other clusters, by the names of the topics, without partitions, that have moved there.
    moved: Mutex<HashMap<String, (ServiceUrl, Arc<Lookup>)>>,
    pub(super) budget: Arc<Budget>,
    next_id: AtomicU64,
    /// Entries that could not be read.
    pub(super) unreadable: Arc<AtomicU64>,
    /// Topics that ended while their consumer went on with others.
    pub(super) ended_topics: Arc<AtomicU64>,
    /// Lookups, also those of other clusters.
    pub(super) lookups: Arc<LookupCounters>,
    /// Messages that consumers have sent to other topics.
    pub(super) letters: LetterCounters,
}

impl Shared {
    pub(super) fn new(options: ClientOptions, url: ServiceUrl) -> Result<Self> {
        let journal = Journal::new(log_to!(logger::PULSAR_CONNECTION));
        let pool = Arc::new(Pool::new(options.clone(), &url, Arc::clone(&journal))?);
        let lookups = Arc::<LookupCounters>::default();
        Ok(Self {
            lookup: Arc::new(Lookup::new(options.clone(), url, Arc::clone(&pool), Arc::clone(&lookups))),
            moved: Mutex::leaf(HashMap::default()),
            pool,
            journal,
            budget: Arc::new(Budget::new(options.memory_limit)),
            next_id: AtomicU64::new(0),
            unreadable: Arc::default(),
            ended_topics: Arc::default(),
            lookups,
            letters: LetterCounters::default(),
            options,
        })
    }

    /// A connection to the broker that serves `topic`, by the directions of brokers or a lookup.
    pub(super) async fn connection(
        &self,
        directions: &Directions,
        topic: &str,
        id: u64,
    ) -> Result<Arc<Connection>> {
        let next = directions.take();
        if let Some((address, proxy_to)) = next.assigned {
            match self.pool.get(&address, proxy_to, id).await {
                Ok(connection) => return Ok(connection),
                Err(error) => debug!(
                    target: logger::PULSAR_CONNECTION,
                    "{address}, which was named for {topic}, cannot be used, and the topic is looked up: \
                     {error}",
                ),
            }
        }
        let lookup = match next.cluster {
            Some(url) => self.moved_to(topic, url),
            None => self.lookup_of(topic),
        };
        let connection = lookup.broker(topic, id).await?;
        directions.note_proxy(connection.proxy());
        Ok(connection)
    }

    /// Finds what there is to know about a topic, in the cluster that it has moved to if it has.
    pub(super) fn lookup_of(&self, topic: &str) -> Arc<Lookup> {
        let moved = self.moved.lock();
        // As a rule nothing has moved.
        let there = if moved.is_empty() { None } else { moved.get(&whole(topic)) };
        Arc::clone(there.map_or(&self.lookup, |(_, lookup)| lookup))
    }

    /// Notes that a topic has moved to the cluster at `url`.
    fn moved_to(&self, topic: &str, url: ServiceUrl) -> Arc<Lookup> {
        let mut moved = self.moved.lock();
        let known = moved.values().find(|(known, _)| *known == url).map(|(_, lookup)| Arc::clone(lookup));
        let lookup = known.unwrap_or_else(|| {
            let (pool, lookups) = (Arc::clone(&self.pool), Arc::clone(&self.lookups));
            Arc::new(Lookup::new(self.options.clone(), url.clone(), pool, lookups))
        });
        moved.insert(whole(topic), (url, Arc::clone(&lookup)));
        lookup
    }

    /// An id for a producer or consumer, never used twice by this client. A producer therefore
    /// keeps its id on every connection, and its frames can be sent again byte for byte.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

/// Name of a topic without its partition.
fn whole(topic: &str) -> String {
    TopicName::parse(topic).map_or_else(|_| topic.to_owned(), |name| name.without_partition().to_string())
}

/// Properties as the protocol writes them.
pub(super) fn key_values(pairs: &[(String, String)]) -> Vec<pb::KeyValue> {
    pairs.iter().map(|(key, value)| pb::KeyValue { key: key.clone(), value: value.clone() }).collect()
}
