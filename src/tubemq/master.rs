//! Registration of a producer at the master, without its connection: heartbeats, and the metadata
//! of its topics.
//!
//! ```text
//!                   register: 200                 heartbeat each interval, at once after publish
//!   Unregistered ───────────────────► Registered ──┐
//!        ▲                               │   ▲      │ 200: metadata replaced as a whole
//!        │  411: the master does not     │   └──────┘ 201: no news
//!        └─ know this client ────────────┤
//!                                        │ close
//!                                        └──────────► Closing ──► Closed
//! ```
//! At most one call is open at a time. The owner chooses which master is called. A master that has
//! taken over does not know the client and returns 411, which is handled in the same way as an
//! expired registration. A 411 to the registration, or to the first heartbeat after it, is a
//! failure: the next registration waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crate::topic::{Broker, ProducerTopic};
use crate::{Code, Request, Response, UNDEFINED, pb};
use forebay_base::error::{Error, Result};

#[cfg(test)]
mod tests;

/// Maximum message size in bytes for topics for which the master states none.
pub const DEFAULT_MAX_MESSAGE_SIZE: usize = 1 << 20;
/// Pause after a failed call.
const RETRY: Duration = Duration::from_millis(500);
/// Interval between requests for a topic that is missing.
const MISSING_TOPIC_RETRY: Duration = Duration::from_secs(1);

/// Identity of a client towards masters.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Client id; unique, and without `@` and `#`.
    pub client_id: String,
    /// Own IPv4 address as text.
    pub host_name: String,
    /// Port of brokers that are listed without a port.
    pub default_port: u16,
}

/// Value of the field in which Java clients state their runtime.
pub const RUNTIME: &str = concat!("forebay ", env!("CARGO_PKG_VERSION"));

/// Events of the producer.
#[derive(Clone, Debug)]
pub enum Event {
    /// Brokers and topics have changed.
    Metadata,
    /// Token to be presented to brokers from now on.
    VisitToken(i64),
    /// A call failed and will be repeated.
    Failed(Error),
}

/// State of knowledge about a topic.
#[derive(Debug)]
pub enum TopicState<'a> {
    /// The master has not answered for the topic yet.
    NotYet,
    /// No broker accepts messages for the topic.
    Missing,
    /// The topic and its partitions.
    Topic(&'a ProducerTopic),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unregistered,
    /// Whether the master has answered a heartbeat since.
    Registered {
        confirmed: bool,
    },
    Closing,
    Closed,
}

/// State of a producer's registration at the master.
#[derive(Debug)]
pub struct ProducerMaster {
    identity: Identity,
    interval: Duration,
    state: State,
    /// Whether a call is open.
    call_open: bool,
    due: Instant,
    /// Topics requested, and by how many.
    topics: BTreeMap<String, usize>,
    /// Topics of the open call, and topics that have been answered for.
    asked: BTreeSet<String>,
    answered: BTreeSet<String>,
    check_sum: i64,
    config: i64,
    max_message_size: usize,
    brokers: BTreeMap<u32, Broker>,
    table: BTreeMap<String, ProducerTopic>,
    events: VecDeque<Event>,
}

impl ProducerMaster {
    /// Creates a producer that registers immediately and then sends a heartbeat each `interval`.
    pub fn new(identity: Identity, interval: Duration, now: Instant) -> Self {
        Self {
            identity,
            interval,
            state: State::Unregistered,
            call_open: false,
            due: now,
            topics: BTreeMap::new(),
            asked: BTreeSet::new(),
            answered: BTreeSet::new(),
            check_sum: -1,
            config: UNDEFINED,
            max_message_size: DEFAULT_MAX_MESSAGE_SIZE,
            brokers: BTreeMap::new(),
            table: BTreeMap::new(),
            events: VecDeque::new(),
        }
    }

    /// Adds `topic` to the topics requested until [`Self::unpublish`] has been called as often, and
    /// requests it now.
    pub fn publish(&mut self, now: Instant, topic: &str) {
        *self.topics.entry(topic.to_owned()).or_default() += 1;
        self.ask_again(now, topic);
    }

    /// Requests metadata immediately, even if the topic was known.
    pub fn ask_again(&mut self, now: Instant, topic: &str) {
        self.answered.remove(topic);
        self.due = now;
    }

    /// Takes back one [`Self::publish`]. The topic is no longer requested after the last of them.
    pub fn unpublish(&mut self, topic: &str) {
        if let Some(count) = self.topics.get_mut(topic) {
            *count -= 1;
            if *count == 0 {
                self.topics.remove(topic);
            }
        }
    }

    /// Requests fresh metadata, because brokers behave otherwise than the metadata state.
    pub fn refresh(&mut self, now: Instant) {
        // Broker addresses are only sent if the checksum differs, so it is reset.
        self.check_sum = -1;
        self.due = self.due.min(now + Duration::from_millis(20));
    }

    /// Returns what is known of `topic`.
    pub fn topic(&self, topic: &str) -> TopicState<'_> {
        match self.table.get(topic) {
            _ if !self.answered.contains(topic) => TopicState::NotYet,
            Some(known) => TopicState::Topic(known),
            None => TopicState::Missing,
        }
    }

    /// Address of a broker.
    pub fn broker(&self, id: u32) -> Option<&Broker> {
        self.brokers.get(&id)
    }

    /// Maximum message size for `topic` in bytes, including attributes.
    pub fn max_message_size(&self, topic: &ProducerTopic) -> usize {
        topic.max_message_size.unwrap_or(self.max_message_size)
    }

    /// Whether the producer is registered.
    pub fn is_registered(&self) -> bool {
        matches!(self.state, State::Registered { .. })
    }

    /// Ends the registration.
    pub fn close(&mut self, now: Instant) {
        self.state = match self.state {
            State::Registered { .. } => State::Closing,
            _ => State::Closed,
        };
        self.due = now;
    }

    /// Whether no further calls will be made.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Returns the call that is due, if none is open. `certificate` authenticates the client.
    pub fn poll_request(
        &mut self,
        now: Instant,
        certificate: Option<pb::MasterCertificateInfo>,
    ) -> Option<Request> {
        if self.call_open || self.due > now {
            return None;
        }
        let client_id = self.identity.client_id.clone();
        let host_name = self.identity.host_name.clone();
        let topic_list: Vec<String> = self.topics.keys().cloned().collect();
        let config = Some(pb::ApprovedClientConfig { config_id: self.config, max_msg_size: None });
        let request = match self.state {
            State::Unregistered => Request::ProducerRegister(pb::RegisterRequestP2m {
                client_id,
                topic_list,
                broker_check_sum: -1,
                host_name,
                auth_info: certificate,
                jdk_version: Some(RUNTIME.into()),
                appd_config: config,
            }),
            State::Registered { .. } => {
                self.asked = self.topics.keys().cloned().collect();
                Request::ProducerHeartbeat(pb::HeartRequestP2m {
                    client_id,
                    broker_check_sum: self.check_sum,
                    host_name,
                    topic_list,
                    auth_info: certificate,
                    appd_config: config,
                })
            }
            State::Closing => {
                Request::ProducerClose(pb::CloseRequestP2m { client_id, auth_info: certificate })
            }
            State::Closed => return None,
        };
        self.call_open = true;
        // A publish during the call sets an earlier time.
        self.due = now + self.interval;
        Some(request)
    }

    /// Handles the response to the call that [`Self::poll_request`] returned.
    pub fn handle_answer(&mut self, now: Instant, result: Result<Response>) {
        self.call_open = false;
        if matches!(self.state, State::Closing | State::Closed) {
            self.state = State::Closed;
            return;
        }
        let response = match result {
            Ok(response) => response,
            Err(error) => return self.failed(now, error),
        };
        let code = Code::from_number(response.code().0);
        if let Err(error) = response.outcome()
            && code != Some(Code::NotReady)
        {
            if code == Some(Code::NoNode) {
                let before = std::mem::replace(&mut self.state, State::Unregistered);
                if before == (State::Registered { confirmed: true }) {
                    self.due = now;
                    return;
                }
            }
            return self.failed(now, error);
        }
        match response {
            Response::ProducerRegister(response) => {
                self.state = State::Registered { confirmed: false };
                self.check_sum = response.broker_check_sum;
                self.take_brokers(&response.broker_infos);
                self.take_config(response.appd_config);
                self.take_token(response.authorized_info);
                if !self.topics.is_empty() {
                    self.due = now;
                }
            }
            Response::ProducerHeartbeat(response) => {
                self.state = State::Registered { confirmed: true };
                self.answered = std::mem::take(&mut self.asked);
                if code == Some(Code::NotReady) {
                    return;
                }
                self.check_sum = response.broker_check_sum;
                self.take_brokers(&response.broker_infos);
                self.take_config(response.appd_config);
                self.take_token(response.authorized_info);
                // The table is replaced as a whole: absent and unparsable topics are no longer
                // known.
                self.table = response
                    .topic_infos
                    .iter()
                    .filter_map(|text| ProducerTopic::parse(text).ok())
                    .map(|topic| (topic.name.clone(), topic))
                    .collect();
                if self.topics.keys().any(|topic| !self.table.contains_key(topic)) {
                    self.due = self.due.min(now + MISSING_TOPIC_RETRY);
                }
                self.events.push_back(Event::Metadata);
            }
            other => self.failed(
                now,
                Error::protocol(format!("the master sent an unexpected {} response", other.method().name())),
            ),
        }
    }

    fn failed(&mut self, now: Instant, error: Error) {
        self.due = now + RETRY;
        self.events.push_back(Event::Failed(error));
    }

    /// Replaces the brokers. The master only sends them if they have changed.
    fn take_brokers(&mut self, infos: &[String]) {
        if !infos.is_empty() {
            self.brokers = brokers(infos, self.identity.default_port);
        }
    }

    fn take_config(&mut self, config: Option<pb::ApprovedClientConfig>) {
        let Some(config) = config else { return };
        self.config = config.config_id;
        if let Some(size) = config.max_msg_size.and_then(|size| usize::try_from(size).ok())
            && size > 0
        {
            self.max_message_size = size;
        }
    }

    fn take_token(&mut self, info: Option<pb::MasterAuthorizedInfo>) {
        if let Some(info) = info {
            self.events.push_back(Event::VisitToken(info.visit_authorized_token));
        }
    }

    /// Time at which [`Self::poll_request`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        (!self.call_open && self.state != State::Closed).then_some(self.due)
    }

    /// Returns the next event, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// Parses a list of brokers, ordered by number; invalid entries are skipped.
pub fn brokers(infos: &[String], default_port: u16) -> BTreeMap<u32, Broker> {
    let parsed = infos.iter().filter_map(|text| Broker::parse(text, default_port).ok());
    parsed.map(|broker| (broker.id, broker)).collect()
}
