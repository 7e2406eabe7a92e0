//! The supervisor of a partition of a consumer: it subscribes, and subscribes again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{PartitionConsumer, is_exact, last_message_id, send_seek, whole_entry};
use crate::journal::Journal;
use crate::pulsar::connection::{Connection, ConsumerRoute, PartId, Withdraw};
use crate::pulsar::directions::Directions;
use crate::pulsar::options::{ClientOptions, ConsumerOptions, KeySharedPolicy};
use crate::pulsar::reconnect::{PartWatch, Supervised};
use crate::pulsar::schema;
use crate::pulsar::shared::{Shared, key_values};
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::sync::{Mutex, Rank};
use forebay_pulsar::command::Command;
use forebay_pulsar::pb::command_subscribe::InitialPosition as Position;
use forebay_pulsar::{MessageId, pb};

/// Time for which a durable subscription is refused at most while one of its name that is not
/// durable is deleted, and the pause before each attempt.
const PLACE_LIMIT: Duration = Duration::from_secs(15);
const PLACE_PAUSE: Duration = Duration::from_millis(50);
/// Attempts while the subscription seems to have the cursor of the one that is deleted, and the
/// pause between them: until the broker has deleted that cursor a second time.
const DYING_ATTEMPTS: u32 = 3;
const DYING_PAUSE: Duration = Duration::from_secs(1);

/// Opens a partition for [`supervise`](crate::pulsar::reconnect::supervise).
pub(in crate::pulsar::consumer) struct Supervisor {
    shared: Arc<Shared>,
    part: Arc<PartitionConsumer>,
    options: ConsumerOptions,
    /// A durable subscription that is to begin at a message has not been moved there yet.
    unplaced: AtomicBool,
    /// It did not exist before this consumer created it, or tried to.
    is_new: AtomicBool,
    /// Position of the subscription that was created to learn that. Brokers before Pulsar 2.8 do
    /// not tell.
    probed: Mutex<Option<MessageId>>,
    /// Whether the consumer runs already, and this is one of the partitions that it has got since.
    joins: bool,
}

impl Supervisor {
    pub(in crate::pulsar::consumer) fn new(
        shared: Arc<Shared>,
        part: Arc<PartitionConsumer>,
        options: ConsumerOptions,
        joins: bool,
    ) -> Self {
        let unplaced = AtomicBool::new(options.durable && is_exact(options.position));
        let probed = Mutex::new(Rank::Leaf, None);
        Self { shared, part, options, unplaced, is_new: AtomicBool::new(false), probed, joins }
    }

    /// Notes where a reader stands that begins at the end, so that it misses nothing should the
    /// connection be lost before it has taken a message.
    async fn note_end(&self, connection: &Connection) -> Result<()> {
        if !self.part.machine().begins_at_end(self.options.position) {
            return Ok(());
        }
        let end = self.last(connection).await?.and_then(|last| {
            let is_empty = last.last_message_id.entry_id == u64::MAX;
            // Everything that an empty topic gets is new.
            last.consumer_mark_delete_position.or(is_empty.then_some(last.last_message_id))
        });
        if let Some(end) = end {
            self.part.machine().place_behind(MessageId::from(&end));
        }
        Ok(())
    }

    /// Has a reader start at the time again that it sought, unless that seek itself has ended its
    /// subscription: the broker has kept the position then.
    async fn seek_again(&self, connection: &Arc<Connection>, route: Arc<dyn ConsumerRoute>) -> Result<()> {
        let part = &self.part;
        let sought_on = part.sought_on.lock().take();
        let Some(time) = part.machine().resume_time() else { return Ok(()) };
        if sought_on.is_some_and(|on| on.as_ptr() == Arc::as_ptr(connection)) {
            return Ok(());
        }
        send_seek(connection, part.id, None, Some(time)).await?;
        // The broker closes the consumer around its answer.
        let is_closed = connection.session().lock().add_consumer(part.id, route);
        if is_closed {
            return self.subscribe(connection).await;
        }
        *part.sought_on.lock() = Some(Arc::downgrade(connection));
        Ok(())
    }

    /// Creates a durable subscription that begins at a message. Brokers ignore the position of a
    /// durable SUBSCRIBE, so this is a seek, and it must not move a subscription that exists.
    /// SUBSCRIBE does not tell whether it does, but one that is not durable is refused then.
    async fn place(&self, connection: &Connection) -> Result<()> {
        let part = PartId::Consumer(self.part.id);
        // An attempt whose answers were lost may have created it.
        if !self.is_new.load(Ordering::Acquire) {
            self.check_absent(connection).await?;
            *self.probed.lock() = self.stands_at(connection).await?;
            connection.close_part(part).await;
            self.is_new.store(true, Ordering::Release);
        }
        self.create(connection).await?;
        send_seek(connection, self.part.id, Some(whole_entry(self.options.position)), None).await?;
        self.unplaced.store(false, Ordering::Release);
        // The broker closes the consumer around its answer. Closing it here too makes the next
        // SUBSCRIBE a new one.
        connection.close_part(part).await;
        Ok(())
    }

    /// Creates the durable subscription at the first message. Pulsar deletes the one that is not
    /// durable in three steps after it has confirmed its CLOSE_CONSUMER. Between them SUBSCRIBE is
    /// refused, or it makes a durable subscription of the cursor that is not durable and about to
    /// be deleted: this is to be seen from where that stands, and closing its consumer deletes the
    /// subscription.
    async fn create(&self, connection: &Connection) -> Result<()> {
        let until = clock::now() + PLACE_LIMIT;
        let mut dying = 0;
        loop {
            tokio::time::sleep(PLACE_PAUSE).await;
            match self.subscribe_as(connection, true).await {
                Err(error) if error.kind() == ErrorKind::NotAllowed && clock::now() < until => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    let probed = *self.probed.lock();
                    let is_dying = probed.is_some() && self.stands_at(connection).await? == probed;
                    // It may really stand there: after a seek whose answer was lost, or in an empty
                    // topic.
                    if !is_dying || dying == DYING_ATTEMPTS {
                        return Ok(());
                    }
                    dying += 1;
                    connection.close_part(PartId::Consumer(self.part.id)).await;
                    tokio::time::sleep(DYING_PAUSE).await;
                }
            }
        }
    }

    /// Last message before the first that the subscription has not acknowledged; `None` if the
    /// broker does not tell, or the topic is empty.
    async fn stands_at(&self, connection: &Connection) -> Result<Option<MessageId>> {
        let last = self.last(connection).await?.filter(|last| last.last_message_id.entry_id != u64::MAX);
        Ok(last.and_then(|last| last.consumer_mark_delete_position).as_ref().map(MessageId::from))
    }

    /// The last message, and where the subscription stands; `None` from brokers and of topics that
    /// have no such thing.
    async fn last(
        &self,
        connection: &Connection,
    ) -> Result<Option<Box<pb::CommandGetLastMessageIdResponse>>> {
        match last_message_id(connection, self.part.id).await {
            Ok(last) => Ok(Some(last)),
            Err(error) if matches!(error.kind(), ErrorKind::Disconnected | ErrorKind::Timeout) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Fails if the subscription exists.
    async fn check_absent(&self, connection: &Connection) -> Result<()> {
        if let Err(error) = self.subscribe_as(connection, false).await {
            if error.kind() != ErrorKind::NotAllowed {
                return Err(error);
            }
            let text = format!(
                "position is {}, and the subscription {:?} exists already: position is for a new subscription. Leave \
                 it out, and move the subscription with seek() if that is what you want",
                self.options.position, self.part.subscription
            );
            return Err(Error::new(ErrorKind::NotAllowed, text));
        }
        Ok(())
    }

    /// Sends SUBSCRIBE and waits for its answer.
    async fn subscribe(&self, connection: &Connection) -> Result<()> {
        self.subscribe_as(connection, self.options.durable).await
    }

    async fn subscribe_as(&self, connection: &Connection, durable: bool) -> Result<()> {
        let (part, options) = (&self.part, &self.options);
        if part.directions.has_moved() {
            part.machine().forget_place();
        }
        // A reader's cursor ends with its connection: it goes on behind the last message taken. The
        // position of a durable subscription is kept by the broker.
        let start = match part.machine().resume_position() {
            _ if durable || options.durable => None,
            resume => Some(whole_entry(resume.unwrap_or(options.position))),
        };
        let is_at_message = || part.machine().resume_position().is_some_and(is_exact);
        if !options.durable && part.directions.has_moved() && is_at_message() {
            let text = "the topic has moved to another cluster, where its messages have other ids: open the reader \
                        again at a position of its own";
            return Err(Error::new(ErrorKind::NotAllowed, text));
        }
        // A subscription that is about to be placed needs what follows its position. The one that
        // is created to learn whether it exists begins at the end, which tells the two apart.
        let probes = options.durable && !durable;
        let earliest = !probes && (options.position == MessageId::EARLIEST || is_exact(options.position));
        let subscribe = |request_id| {
            Command::Subscribe(Box::new(pb::CommandSubscribe {
                topic: part.topic.to_string(),
                subscription: part.subscription.clone(),
                sub_type: options.kind as i32,
                consumer_id: part.id,
                request_id,
                consumer_name: Some(part.name.clone()),
                priority_level: (options.priority != 0).then_some(options.priority),
                durable: Some(durable),
                start_message_id: start,
                force_topic_creation: (!part.creates_topic).then_some(false),
                metadata: key_values(&options.properties),
                read_compacted: options.read_compacted.then_some(true),
                initial_position: Some(if earliest { Position::Earliest } else { Position::Latest } as i32),
                subscription_properties: key_values(&options.subscription_properties),
                consumer_epoch: part.machine().epoch(),
                key_shared_meta: options.key_shared.as_ref().map(key_shared_meta),
                schema: schema::stated(options.schema.as_ref(), true),
                ..Default::default()
            }))
        };
        part.machine().begin_subscribe();
        match connection.request(subscribe).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let info = options.schema.as_ref().map(|schema| &*schema.info);
                Err(schema::explain(&self.shared, &part.topic, info, error).await)
            }
        }
    }
}

impl Supervised for Supervisor {
    fn directions(&self) -> &Directions {
        &self.part.directions
    }

    fn state(&self) -> &PartWatch {
        &self.part.state
    }

    fn topic(&self) -> &str {
        &self.part.topic
    }

    fn options(&self) -> &ClientOptions {
        &self.shared.options
    }

    fn journal(&self) -> &Journal {
        &self.shared.journal
    }

    fn reopened(&self) {
        // A seek ends a subscription, too, which is then no loss.
        if !self.part.moved.swap(false, Ordering::AcqRel) {
            self.shared.journal.resubscribed(&self.part.topic);
        }
    }

    async fn open(&self, _attempt: u64) -> Result<()> {
        let part = &self.part;
        let connection = self.shared.connection(&part.directions, &part.topic, part.id).await?;
        // In the routes before the broker knows it, so that a CLOSE_CONSUMER right behind the
        // success is seen.
        let route: Arc<dyn ConsumerRoute> = Arc::clone(part) as _;
        connection.session().lock().add_consumer(part.id, Arc::clone(&route));
        let id = PartId::Consumer(part.id);
        let withdraw = Withdraw { connection: &connection, part: id };
        if self.unplaced.load(Ordering::Acquire) {
            self.place(&connection).await?;
            // The CLOSE_CONSUMER of the seek, which came before the answer to our own, has removed
            // it.
            connection.session().lock().add_consumer(part.id, Arc::clone(&route));
        }
        self.subscribe(&connection).await?;
        self.seek_again(&connection, route).await?;
        self.note_end(&connection).await?;
        {
            let host = connection.session().lock();
            let lost = !connection.is_alive() || !host.has(id);
            if lost || !part.state.opened(&connection) {
                drop(host);
                let text = "the consumer was closed while it subscribed";
                return Err(Error::new(ErrorKind::Disconnected, text));
            }
            let before = part.served_by.lock().replace(connection.broker().to_owned());
            if before.is_some_and(|before| before != connection.broker()) {
                part.machine().attach_elsewhere();
            } else {
                part.machine().attach();
            }
            *part.trouble.lock() = None;
        }
        std::mem::forget(withdraw);
        connection.wake(id);
        Ok(())
    }

    fn note(&self, error: &Error) {
        *self.part.trouble.lock() = Some(error.clone());
    }

    fn fail(&self, error: Error, first: bool) -> bool {
        self.part.fail(error, first, self.joins);
        true
    }
}

fn key_shared_meta(policy: &KeySharedPolicy) -> pb::KeySharedMeta {
    let range = |(start, end): &(u16, u16)| pb::IntRange { start: i32::from(*start), end: i32::from(*end) };
    let mode = if policy.ranges.is_some() { pb::KeySharedMode::Sticky } else { pb::KeySharedMode::AutoSplit };
    pb::KeySharedMeta {
        key_shared_mode: mode as i32,
        hash_ranges: policy.ranges.iter().flatten().map(range).collect(),
        allow_out_of_order_delivery: Some(policy.out_of_order),
    }
}
