//! A producer at the master, without its connection: it registers, beats, and is told where its topics are.
//!
//! ```text
//!                   register: 200                 beat each interval, at once after publish
//!   Unregistered ───────────────────► Registered ──┐
//!        ▲                               │   ▲      │ 200: metadata replaced as a whole
//!        │  411: the master forgot us,   │   └──────┘ 201: nothing new
//!        └─ or is another one ───────────┤
//!                                        │ close
//!                                        └──────────► Closing ──► Closed
//! ```
//! One call is open at a time. Which master is asked is the owner's business: one that is new to the client answers
//! 411, which comes to the same as having been forgotten.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::tubemq::topic::{Broker, ProducerTopic};
use crate::tubemq::{Code, Request, Response, UNDEFINED, pb};

#[cfg(test)]
mod tests;

/// Largest message of a topic that the master says nothing about, in bytes.
pub const DEFAULT_MAX_MESSAGE_SIZE: usize = 1 << 20;
/// Pause after a call that failed.
const RETRY: Duration = Duration::from_millis(500);
/// How often a topic that has gone is asked for.
const MISSING: Duration = Duration::from_secs(1);

/// Who a client is to masters.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Unique; without `@` and `#`.
    pub client_id: String,
    /// Own IPv4 address, as text.
    pub host_name: String,
    /// Port of a broker that names none.
    pub default_port: u16,
}

/// Text of the field in which Java clients name their runtime.
pub const RUNTIME: &str = concat!("penstock ", env!("CARGO_PKG_VERSION"));

/// What the producer has to tell.
#[derive(Clone, Debug)]
pub enum Event {
    /// Brokers and topics are new.
    Metadata,
    /// Shown to brokers from now on.
    VisitToken(i64),
    /// A call failed, and is made again.
    Failed(Error),
}

/// What is known of a topic.
#[derive(Debug)]
pub enum Known<'a> {
    /// The master has not been asked yet.
    NotYet,
    /// No broker takes messages for it.
    Missing,
    /// Where it is.
    Topic(&'a ProducerTopic),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unregistered,
    Registered,
    Closing,
    Closed,
}

/// A producer at the master.
#[derive(Debug)]
pub struct ProducerMaster {
    identity: Identity,
    interval: Duration,
    state: State,
    /// A call is open.
    asking: bool,
    due: Instant,
    topics: BTreeSet<String>,
    /// Those of the call that is open, and those that have been answered for.
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
    /// A producer that registers at once and then beats each `interval`.
    pub fn new(identity: Identity, interval: Duration, now: Instant) -> Self {
        Self {
            identity,
            interval,
            state: State::Unregistered,
            asking: false,
            due: now,
            topics: BTreeSet::new(),
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

    /// Wants to know where `topic` is, from now on; at once also if it was known.
    pub fn publish(&mut self, now: Instant, topic: &str) {
        self.topics.insert(topic.to_owned());
        self.answered.remove(topic);
        self.due = now;
    }

    /// No longer wants to know.
    pub fn unpublish(&mut self, topic: &str) {
        self.topics.remove(topic);
    }

    /// Asks anew: brokers do not do what the metadata say.
    pub fn refresh(&mut self, now: Instant) {
        // Also the addresses of the brokers are sent only when the sum differs.
        self.check_sum = -1;
        self.due = self.due.min(now + Duration::from_millis(20));
    }

    /// What is known of `topic`.
    pub fn topic(&self, topic: &str) -> Known<'_> {
        match self.table.get(topic) {
            _ if !self.answered.contains(topic) => Known::NotYet,
            Some(known) => Known::Topic(known),
            None => Known::Missing,
        }
    }

    /// Where a broker is.
    pub fn broker(&self, id: u32) -> Option<&Broker> {
        self.brokers.get(&id)
    }

    /// Largest message of `topic`, in bytes, attributes included.
    pub fn max_message_size(&self, topic: &ProducerTopic) -> usize {
        topic.max_message_size.unwrap_or(self.max_message_size)
    }

    /// Whether the master knows this producer.
    pub fn is_registered(&self) -> bool {
        self.state == State::Registered
    }

    /// Leaves the master.
    pub fn close(&mut self, now: Instant) {
        self.state = match self.state {
            State::Registered => State::Closing,
            _ => State::Closed,
        };
        self.due = now;
    }

    /// Whether there is nothing more to ask.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// The call that is due, if none is open. `certificate` is what proves who asks.
    pub fn poll_request(
        &mut self,
        now: Instant,
        certificate: Option<pb::MasterCertificateInfo>,
    ) -> Option<Request> {
        if self.asking || self.due > now {
            return None;
        }
        let client_id = self.identity.client_id.clone();
        let host_name = self.identity.host_name.clone();
        let topic_list: Vec<String> = self.topics.iter().cloned().collect();
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
            State::Registered => {
                self.asked.clone_from(&self.topics);
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
        self.asking = true;
        // Who publishes meanwhile sets it to a time before.
        self.due = now + self.interval;
        Some(request)
    }

    /// The answer to what [`Self::poll_request`] gave.
    pub fn handle_answer(&mut self, now: Instant, result: Result<Response>) {
        self.asking = false;
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
                self.state = State::Unregistered;
                self.due = now;
                return;
            }
            return self.failed(now, error);
        }
        match response {
            Response::ProducerRegister(response) => {
                self.state = State::Registered;
                self.check_sum = response.broker_check_sum;
                self.take_brokers(&response.broker_infos);
                self.take_config(response.appd_config);
                self.take_token(response.authorized_info);
                if !self.topics.is_empty() {
                    self.due = now;
                }
            }
            Response::ProducerHeartbeat(response) => {
                self.answered = std::mem::take(&mut self.asked);
                if code == Some(Code::NotReady) {
                    return;
                }
                self.check_sum = response.broker_check_sum;
                self.take_brokers(&response.broker_infos);
                self.take_config(response.appd_config);
                self.take_token(response.authorized_info);
                // As a whole: what is not in it is not there any more. What cannot be read is not there either.
                self.table = response
                    .topic_infos
                    .iter()
                    .filter_map(|text| ProducerTopic::parse(text).ok())
                    .map(|topic| (topic.name.clone(), topic))
                    .collect();
                if self.topics.iter().any(|topic| !self.table.contains_key(topic)) {
                    self.due = self.due.min(now + MISSING);
                }
                self.events.push_back(Event::Metadata);
            }
            other => self.failed(now, Error::protocol(format!("{} out of turn", other.method().name()))),
        }
    }

    fn failed(&mut self, now: Instant, error: Error) {
        self.due = now + RETRY;
        self.events.push_back(Event::Failed(error));
    }

    /// Sent only when they have changed.
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

    /// When [`Self::poll_request`] has something again.
    pub fn poll_timeout(&self) -> Option<Instant> {
        (!self.asking && self.state != State::Closed).then_some(self.due)
    }

    /// The next thing to tell, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// Brokers by number; what cannot be read is left out.
pub fn brokers(infos: &[String], default_port: u16) -> BTreeMap<u32, Broker> {
    let parsed = infos.iter().filter_map(|text| Broker::parse(text, default_port).ok());
    parsed.map(|broker| (broker.id, broker)).collect()
}
