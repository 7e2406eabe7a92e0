//! The MQTT client: one session over one connection at a time, with any number of producers and
//! consumers.
//!
//! * [`options`]: options with their defaults
//! * `birth`: the message that is published after each connect
//! * `connection`: the socket's protocol in front of the session, and the supervisor that
//!   reconnects
//! * `shared`: the session, and what producers, consumers and connections share
//! * [`producer`], [`consumer`]: handles; `publisher` and `subscription` are what the client knows
//!   of them
//! * `routes`: finds the consumers of a message; `unclaimed` holds those that have none
//! * [`outbox`]: publications in a file until the broker has them
//!
//! ```text
//! Producer ── push ──► Session (one short lock) ──► driver's turn ──► socket
//!                          │ PUBACK, PUBCOMP, written   │ PUBLISH
//! ProducerEvents::sent ◄───┘      Routes ◄────────────┘──► Subscription's queue ──► ConsumerEvents
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::credentials::service_url;
use crate::events::{ConsumerEvents, ProducerEvents};
use crate::journal::Journal;
use crate::traffic::Traffic;
use forebay_base::error::{Error, ErrorKind, Result, because};
use forebay_mqtt::session::Session;
use forebay_mqtt::topic::{Filter, check_name};
use forebay_mqtt::{Reason, Version};
use forebay_net::spawn_blocking;
use forebay_net::url::Protocol;

mod birth;
mod connection;
pub mod consumer;
pub mod options;
pub mod outbox;
pub mod producer;
mod publisher;
mod reconnect;
mod routes;
mod shared;
mod subscription;
mod unclaimed;

pub use birth::BirthCounts;
pub use consumer::Consumer;
pub use options::random_client_id;
use options::{ClientOptions, ConsumerOptions, ProducerOptions};
use outbox::session::OutboxSession;
pub use outbox::session::OutboxStats;
pub use producer::{Outgoing, Producer};
use reconnect::{Connector, supervise};
pub use shared::Server;
use shared::Shared;
pub use subscription::Message;
pub use unclaimed::UnclaimedStats;

/// A client of one MQTT server. Cheap to clone; all clones are the same client.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

/// Shared by the clones of a client. The supervisor does not hold it, so that a client that is
/// dropped ends.
#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    tasks: [AbortHandle; 3],
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The driver ends with its task, and the socket with the driver. The server sees a lost
        // connection, which is what a client that is dropped without `close` is.
        self.tasks.iter().for_each(AbortHandle::abort);
        self.shared.end(&Error::new(ErrorKind::Closed, "the client was dropped"));
    }
}

impl Client {
    /// Connects to any address of the URL, within the connect timeout for each. Must be called on
    /// the engine's runtime.
    ///
    /// With an outbox the client is returned even if no address answers: it keeps trying.
    pub async fn connect(mut options: ClientOptions) -> Result<Self> {
        options.check()?;
        let wanted = "an MQTT URL: use mqtt://, mqtts://, ws://, wss:// or mqtt+unix://";
        let secret = options.password.is_some().then_some("password");
        let url = service_url(&options.url, Protocol::Mqtt, wanted, secret)?;
        // Mosquitto 2.0 exceeds our receive maximum when it catches up with a burst. We could end
        // the session for it, but that would repeat the burst again and again. What is held is
        // limited in bytes instead.
        let mut session = Session::new(options.max_inflight, u16::MAX);
        let mut outbox = None;
        if options.outbox.is_some() {
            // A disk may be slow: not on the engine's thread.
            let opening = spawn_blocking(&Handle::current(), move || {
                let outbox = OutboxSession::open(&mut options, &mut session)?;
                Ok::<_, Error>((options, session, outbox))
            });
            let failed = || Err(Error::new(ErrorKind::Closed, "the engine has ended"));
            (options, session, outbox) = opening.await.unwrap_or_else(failed)?;
        }
        let (abandon, abandoned) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(options, session, outbox, abandon));
        let (ready, up) = oneshot::channel();
        let connector = Connector::new(&shared.options, url)?;
        let tasks = [
            tokio::spawn(supervise(Arc::clone(&shared), connector, ready)).abort_handle(),
            tokio::spawn(Shared::run_outbox(Arc::downgrade(&shared))).abort_handle(),
            tokio::spawn(Shared::run_unclaimed(Arc::downgrade(&shared), abandoned)).abort_handle(),
        ];
        let client = Self(Arc::new(Inner { shared, tasks }));
        up.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Closed, "the client was closed")))?;
        Ok(client)
    }

    /// Creates a producer of `topic`. Nothing is sent to the server.
    pub fn producer(
        &self,
        topic: &str,
        options: ProducerOptions,
        events: Arc<dyn ProducerEvents>,
    ) -> Result<Producer> {
        self.0.shared.check_open()?;
        options.check()?;
        check_name(topic)?;
        Ok(Producer::new(Arc::clone(&self.0.shared), topic, options, events))
    }

    /// Creates a producer without a topic: each message has one of its own.
    pub fn publisher(&self, options: ProducerOptions, events: Arc<dyn ProducerEvents>) -> Result<Producer> {
        self.0.shared.check_open()?;
        options.check()?;
        Ok(Producer::new(Arc::clone(&self.0.shared), "", options, events))
    }

    /// Subscribes. Resolves when the server has granted every filter.
    pub async fn consumer(
        &self,
        options: ConsumerOptions,
        events: Arc<dyn ConsumerEvents>,
    ) -> Result<Consumer> {
        self.0.shared.check_open()?;
        Consumer::open(Arc::clone(&self.0.shared), options, events).await
    }

    /// Ends the subscription to `filter` at the server, of this process or an earlier one, and
    /// drops the messages of it that no consumer has claimed. Returns whether the session had it;
    /// servers before MQTT 5 do not tell, which is `true`.
    pub async fn unsubscribe(&self, filter: &str) -> Result<bool> {
        let shared = &self.0.shared;
        shared.check_open()?;
        let filter = Filter::parse(filter)?;
        if shared.routes.lock().has(&filter) {
            let text =
                "an open consumer has this filter: end the subscription with the consumer's unsubscribe()";
            return Err(Error::new(ErrorKind::InvalidArgument, text).with_topic(filter.as_str()));
        }
        let id = shared.next_subscription();
        let asked = filter.clone();
        let reasons = shared.ask(id, |session| session.unsubscribe_filter(id, asked)).await?;
        shared.carry_out(shared.unclaimed.unsubscribed(&filter));
        Ok(!reasons.contains(&Reason::NoSubscriptionExisted))
    }

    /// Number of copies of messages that their consumers got by another of their filters.
    pub fn copies_dropped(&self) -> u64 {
        self.0.shared.copies_dropped.load(Ordering::Relaxed)
    }

    /// Messages that no open consumer claims.
    pub fn unclaimed(&self) -> UnclaimedStats {
        self.0.shared.unclaimed.stats()
    }

    /// The server's answer to the last CONNECT.
    pub fn server(&self) -> Option<Server> {
        self.0.shared.server.lock().clone()
    }

    /// Starts a new extended authentication (4.12.1). If it fails, the connection ends.
    pub async fn reauthenticate(&self) -> Result<()> {
        self.0.shared.check_open()?;
        connection::reauthenticate(&self.0.shared).await
    }

    /// Totals of what was sent and received.
    pub fn traffic(&self) -> &Arc<Traffic> {
        self.0.shared.budget.traffic()
    }

    /// Outcomes of the birth message.
    pub fn births(&self) -> BirthCounts {
        self.0.shared.birth.counts()
    }

    /// The events of the connections.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.0.shared.journal
    }

    /// Bytes of publications without an answer.
    pub fn memory_used(&self) -> usize {
        self.0.shared.budget.used()
    }

    /// State of the outbox, if there is one.
    pub fn outbox(&self) -> Option<OutboxStats> {
        self.0.shared.outbox.as_ref().map(OutboxSession::stats)
    }

    /// The version in use.
    pub fn version(&self) -> Version {
        self.0.shared.version()
    }

    /// Whether there is a connection now.
    pub fn is_connected(&self) -> bool {
        self.0.shared.session().is_attached()
    }

    /// Waits until everything published has an outcome, at most the operation timeout, then
    /// disconnects. Messages in the outbox are safe; they are waited for only while there is a
    /// connection.
    pub async fn close(&self) -> Result<()> {
        let shared = &self.0.shared;
        if shared.is_ended() {
            return Ok(());
        }
        let settle = async {
            tokio::select! {
                biased;
                () = shared.settle(None) => {}
                () = shared.detached(), if shared.outbox.is_some() => {}
            }
        };
        let settled = tokio::time::timeout(shared.options.operation_timeout, settle).await;
        let pending = shared.session().pending_messages();
        shared.closing.notify_one();
        shared.disconnect().await;
        if shared.outbox.is_some() {
            let shared = Arc::clone(shared);
            let _ = spawn_blocking(&Handle::current(), move || shared.close_outbox()).await;
        }
        shared.end(&Error::new(ErrorKind::Closed, "the client is closed"));
        self.0.tasks.iter().for_each(AbortHandle::abort);
        if settled.is_err() && shared.outbox.is_none() {
            let text = format!(
                "the client was closed while {pending} messages had no answer: their outcome is unknown"
            );
            return Err(Error::new(ErrorKind::Timeout, because(text, shared.trouble.lock().as_ref())));
        }
        Ok(())
    }

    /// Whether the client has ended.
    pub fn is_closed(&self) -> bool {
        self.0.shared.is_ended()
    }
}
