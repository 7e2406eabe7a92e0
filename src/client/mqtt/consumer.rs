//! A consumer: the messages of one or several topic filters.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::events::ConsumerEvents;
use crate::mqtt::options::ConsumerOptions;
use crate::mqtt::shared::Shared;
use crate::mqtt::subscription::{Message, Subscription};
use crate::receive::{Ahead, Batch, Receive};
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_mqtt::Version;
use forebay_mqtt::session::Session;

/// A handle that receives. Cheap to clone; all clones are the same consumer.
#[derive(Clone, Debug)]
pub struct Consumer(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    title: String,
    subscription: Arc<Subscription>,
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.leave(false);
        self.unsubscribe(&mut self.shared.session());
        self.shared.notify();
    }
}

impl Handle {
    fn unsubscribe(&self, session: &mut Session) {
        self.subscription.ids().for_each(|id| session.unsubscribe(id));
    }

    /// Leaves the routes, and gives back the messages that were not taken. They are not
    /// acknowledged. `kept`: the server keeps the subscription.
    fn leave(&self, kept: bool) {
        if self.subscription.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = &self.shared;
        shared.routes.lock().remove(&self.subscription, kept);
        let queued = self.subscription.clear();
        shared.taken(queued.iter().map(Message::weight).sum());
        let mut left = self.subscription.ahead.close();
        left.extend(queued);
        let filters = self.subscription.options.filters.iter().map(|(filter, _)| filter.clone()).collect();
        shared.unclaimed.closed(clock::now(), self.subscription.ids(), filters);
        for message in self.subscription.take_dropped() {
            shared.abandon(message);
        }
        shared.take_back(&self.subscription, left);
    }

    /// Leaves the subscription to the session. The server keeps messages that were not
    /// acknowledged.
    fn keep(&self) {
        self.leave(true);
        let mut session = self.shared.session();
        self.subscription.ids().for_each(|id| session.drop_subscription(id));
        drop(session);
        self.end();
    }

    fn end(&self) {
        self.subscription.end(Error::new(ErrorKind::Closed, "the consumer is closed"));
    }
}

impl Consumer {
    pub(super) async fn open(
        shared: Arc<Shared>,
        options: ConsumerOptions,
        events: Arc<dyn ConsumerEvents>,
    ) -> Result<Self> {
        if options.filters.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, "a consumer needs at least one topic filter"));
        }
        let title = options.filters.iter().map(|(filter, _)| filter.as_str()).collect::<Vec<_>>().join(",");
        let subscription = Arc::new(Subscription::new(
            options,
            shared.version() == Version::V5,
            events,
            Arc::clone(&shared.unread),
            shared.abandoned.clone(),
            shared.budget.traffic(),
        ));
        // In the routes before the server knows: retained messages may come ahead of SUBACK
        // (3.8.4).
        let ids = shared.routes.lock().insert(&subscription);
        shared.claim(&subscription);
        // From here on dropping it undoes what was done.
        let consumer = Self(Arc::new(Handle { title, subscription, shared: Arc::clone(&shared) }));
        let subscription = &consumer.0.subscription;
        let subscribe = |session: &mut Session| {
            for id in ids.clone() {
                session.subscribe(id, subscription.filters(id).cloned().collect());
            }
        };
        let answers = shared.ask_all(ids.clone(), subscribe).await?;
        let refused = ids.zip(answers).find_map(|(id, answer)| subscription.refusal(id, &Ok(answer)));
        refused.map_or(Ok(consumer), |(error, _)| Err(error))
    }

    /// Moves up to `max` messages to `out` and returns their number; 0 when there are none now.
    /// With `auto_ack` this acknowledges them.
    pub fn take(&self, max: usize, out: &mut Vec<Message>) -> Result<usize> {
        let before = out.len();
        self.take_batch(Batch::of(max), true, out)?;
        Ok(out.len() - before)
    }

    /// Number of messages that [`Self::take`] would return now.
    pub fn available(&self) -> usize {
        self.0.subscription.ahead.len() + self.0.subscription.available()
    }

    /// Asks for one [`ConsumerEvents::readable`]. Returns false, and asks for nothing, if there is
    /// something to take already: a message or the end.
    pub fn arm(&self) -> bool {
        let subscription = &self.0.subscription;
        let is_ready = || subscription.ahead.is_ready() || subscription.available() > 0;
        subscription.signal.arm(|| is_ready() || subscription.is_closed())
    }

    /// Acknowledges messages with PUBACK or PUBREC, which are sent in the order of the messages.
    /// Does nothing for QoS 0. A consumer that is closed can still acknowledge: other consumers of
    /// the client wait for it.
    pub fn ack<'a>(&self, messages: impl IntoIterator<Item = &'a Message>) -> Result<()> {
        self.0.shared.check_open()?;
        if self.0.subscription.options.auto_ack {
            return Ok(());
        }
        self.acknowledge(messages);
        Ok(())
    }

    fn acknowledge<'a>(&self, messages: impl IntoIterator<Item = &'a Message>) {
        let messages = messages.into_iter().filter(|message| message.needs_ack());
        let done: Vec<u64> = messages.filter_map(Message::done).collect();
        if !done.is_empty() {
            self.0.shared.acknowledge(done);
        }
    }

    /// Whether the session has a connection now, and the subscription was not refused on it.
    pub fn is_connected(&self) -> bool {
        let refused = self.0.subscription.signal.ended().is_some();
        self.check_open().is_ok() && !refused && self.0.shared.session().is_attached()
    }

    /// The filters as they were requested, joined by commas.
    pub fn topic(&self) -> &str {
        &self.0.title
    }

    /// Group of the shared subscription, or an empty text.
    pub fn subscription(&self) -> &str {
        self.0.subscription.options.filters[0].0.group().unwrap_or_default()
    }

    /// Ends the subscription at the server: UNSUBSCRIBE. What was not handed out is dropped; jobs
    /// of a shared subscription are not, as they are for its other members.
    pub async fn unsubscribe(&self) -> Result<()> {
        self.check_open()?;
        self.end_subscription().await?;
        let shared = &self.0.shared;
        for (filter, _) in self.0.subscription.options.filters.iter().filter(|(f, _)| f.group().is_none()) {
            shared.carry_out(shared.unclaimed.unsubscribed(filter));
        }
        Ok(())
    }

    async fn end_subscription(&self) -> Result<()> {
        let ended = self.0.subscription.signal.ended().is_some();
        self.0.leave(false);
        if ended {
            return Ok(());
        }
        let ids = self.0.subscription.ids();
        let result = self.0.shared.ask_all(ids, |session| self.0.unsubscribe(session)).await;
        self.0.end();
        result.map(drop)
    }

    /// Ends the consumer. Its subscription ends with it, unless the session is kept: then the
    /// server keeps collecting messages for the next connection of this client identifier.
    pub async fn close(&self) -> Result<()> {
        if self.0.subscription.is_closed() || self.0.shared.check_open().is_err() {
            return Ok(());
        }
        if self.0.subscription.signal.ended().is_some() {
            // Refused after a reconnect: the server does not have the subscription.
            self.0.leave(false);
            return Ok(());
        }
        if self.0.shared.options.keep_session {
            self.0.keep();
            return Ok(());
        }
        if self.0.shared.session().is_attached() {
            return self.end_subscription().await;
        }
        // The server is told once there is a connection again.
        self.0.leave(false);
        self.0.unsubscribe(&mut self.0.shared.session());
        self.0.end();
        Ok(())
    }

    fn check_open(&self) -> Result<()> {
        self.0.shared.check_open()?;
        if self.0.subscription.is_closed() {
            return Err(Error::new(ErrorKind::Closed, "the consumer is closed").with_topic(self.topic()));
        }
        Ok(())
    }
}

impl Receive for Consumer {
    type Message = Message;

    fn topic(&self) -> &str {
        self.topic()
    }

    fn arm(&self) -> bool {
        self.arm()
    }

    fn give_back(&self, message: Message) {
        let subscription = &self.0.subscription;
        let acknowledged = subscription.options.auto_ack;
        if let Err(message) = subscription.ahead.give_back(message, acknowledged)
            && !acknowledged
        {
            self.0.shared.take_back(subscription, [message]);
        }
    }

    #[inline]
    fn ahead(&self) -> &Ahead<Message> {
        &self.0.subscription.ahead
    }

    fn fill(&self, max: usize, out: &mut impl Extend<Message>) -> Result<usize> {
        let subscription = &self.0.subscription;
        if subscription.is_closed() {
            return Err(Error::new(ErrorKind::Closed, "the consumer is closed").with_topic(self.topic()));
        }
        let (taken, weight) = subscription.take(max, out);
        if taken == 0 {
            return subscription.signal.ended().map_or(Ok(0), Err);
        }
        self.0.shared.taken(weight);
        Ok(taken)
    }

    #[inline]
    fn handed_out(&self, messages: &[Message]) {
        if self.0.subscription.options.auto_ack {
            self.acknowledge(messages);
        }
    }

    /// Otherwise no batch could be larger than the receive maximum.
    fn gathered(&self) {
        if self.0.subscription.options.auto_ack {
            let done =
                self.0.subscription.ahead.gather(|message| message.needs_ack().then(|| message.done()));
            let done: Vec<u64> = done.into_iter().flatten().flatten().collect();
            if !done.is_empty() {
                self.0.shared.acknowledge(done);
            }
        }
    }
}
