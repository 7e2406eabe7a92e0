//! Handing out the messages of a consumer, written once for all protocols.
//!
//! A message that has arrived lies in one place until the application has it: in the queue of a
//! partition (in MQTT: of the subscription), or in the consumer's [`Ahead`], from which the
//! application gets it. [`Ahead`] exists for speed: to hand out a message costs one lock and one
//! `pop_front`. What revokes deliveries (a seek, a redelivery, a dead letter, the end of the
//! connection or of the consumer) removes them from both places under the lock of the queue, so
//! that none of them is handed out afterwards.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::traffic::{ReceiveCounters, ReceiveCounts, Traffic};
use forebay_base::error::Result;
use forebay_base::sync::Mutex;

/// Messages that move from the queues to an [`Ahead`] at once.
const AT_ONCE: usize = 256;

/// A received message.
pub trait Received: Send + 'static {
    /// Size of its payload in bytes.
    fn size(&self) -> usize;

    /// Whether the broker marks it as delivered before.
    fn is_redelivered(&self) -> bool;
}

/// A number of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Maximum number of messages.
    pub messages: usize,
    /// Maximum size of their payloads in bytes, which one message alone may exceed.
    pub bytes: usize,
}

impl Batch {
    /// A batch of this many messages, whatever their size.
    pub const fn of(messages: usize) -> Self {
        Self { messages, bytes: usize::MAX }
    }
}

/// A consumer that hands out messages.
pub trait Receive: Send + Sync {
    /// Its messages.
    type Message: Received;

    /// The topics or filters, joined by commas.
    fn topic(&self) -> &str;

    /// Asks for one [`readable`](crate::events::ConsumerEvents::readable). Returns false, and asks
    /// for nothing, if there is something to take already: a message or the end. After a
    /// [`Self::take_batch`] that took nothing, only further messages count.
    fn arm(&self) -> bool;

    /// Takes back a message that the application got and did not use. It becomes the next one
    /// again, unless its delivery was revoked meanwhile.
    fn give_back(&self, message: Self::Message);

    /// The messages that are to be handed out next.
    fn ahead(&self) -> &Ahead<Self::Message>;

    /// Moves up to `max` messages from the queues to `out` and returns their number. Fails if there
    /// is nothing to move and the consumer has ended.
    fn fill(&self, max: usize, out: &mut impl Extend<Self::Message>) -> Result<usize>;

    /// Called with messages that the application gets, without those of which [`Self::gathered`]
    /// knows.
    fn handed_out(&self, _messages: &[Self::Message]) {}

    /// Called when [`Self::ahead`] has messages of a batch that is not complete.
    fn gathered(&self) {}

    /// The next message, if one has arrived.
    #[inline]
    fn next(&self) -> Result<Option<Self::Message>> {
        let mut next = self.ahead().pop();
        if next.is_none() {
            self.fill(AT_ONCE, &mut self.ahead())?;
            next = self.ahead().pop();
        }
        Ok(next.map(|(message, is_gathered)| {
            if !is_gathered {
                self.handed_out(std::slice::from_ref(&message));
            }
            message
        }))
    }

    /// Moves the messages of a batch to `out`, or none while the batch is not complete. `partial`
    /// takes those that have arrived, and so does a call after the end of the consumer.
    fn take_batch(&self, batch: Batch, partial: bool, out: &mut Vec<Self::Message>) -> Result<()> {
        let (ahead, before) = (self.ahead(), out.len());
        let mut gathered = 0;
        let mut end = Ok(());
        if partial && batch.bytes == usize::MAX {
            gathered = ahead.take(batch, out);
            let from_ahead = out.len();
            let missing = batch.messages - (from_ahead - before);
            if missing > 0 {
                end = self.fill(missing, out).map(drop);
                ahead.count(&out[from_ahead..]);
            }
        } else {
            let mut missing = ahead.missing(batch);
            while missing > 0 && end.is_ok() {
                match self.fill(missing.min(AT_ONCE), &mut &*ahead) {
                    Ok(0) => break,
                    filled => end = filled.map(drop),
                }
                missing = ahead.missing(batch);
            }
            if missing == 0 || partial || end.is_err() {
                gathered = ahead.take(batch, out);
            } else {
                self.gathered();
            }
        }
        if out.len() == before {
            return end;
        }
        self.handed_out(&out[before + gathered..]);
        Ok(())
    }
}

/// Messages that are to be handed out next, in their order.
#[derive(Debug)]
pub struct Ahead<M> {
    state: Mutex<State<M>>,
    counters: ReceiveCounters,
    /// Totals of the client.
    traffic: Arc<Traffic>,
}

#[derive(Debug)]
struct State<M> {
    messages: VecDeque<M>,
    /// Number of the first of them that [`Ahead::gather`] has passed on.
    gathered: usize,
    /// The number of the first of them whose sizes were added up, and the sum.
    weighed: (usize, usize),
    /// A batch waits for more than there are.
    incomplete: bool,
    closed: bool,
}

impl<M> State<M> {
    /// Notes that the first `count` messages are gone.
    fn removed(&mut self, count: usize) -> usize {
        let gathered = self.gathered.min(count);
        self.gathered -= gathered;
        self.weighed = (0, 0);
        self.incomplete = false;
        gathered
    }
}

impl<M: Received> State<M> {
    /// Number of messages that a batch can take.
    fn ready(&mut self, batch: Batch) -> usize {
        if batch.bytes == usize::MAX {
            return batch.messages.min(self.messages.len());
        }
        if self.weighed.1 >= batch.bytes {
            // Another batch had more room.
            self.weighed = (0, 0);
        }
        while self.weighed.0 < batch.messages && self.weighed.1 < batch.bytes {
            let (count, bytes) = self.weighed;
            let Some(size) = self.messages.get(count).map(Received::size) else { break };
            if count > 0 && size > batch.bytes - bytes {
                break;
            }
            self.weighed = (count + 1, bytes + size);
        }
        self.weighed.0.min(batch.messages)
    }
}

impl<M: Received> Ahead<M> {
    pub(crate) fn new(traffic: &Arc<Traffic>) -> Self {
        let messages = VecDeque::new();
        let state = State { messages, gathered: 0, weighed: (0, 0), incomplete: false, closed: false };
        Self { state: Mutex::leaf(state), counters: ReceiveCounters::default(), traffic: Arc::clone(traffic) }
    }

    /// Number of messages.
    pub fn len(&self) -> usize {
        self.state.lock().messages.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is a message for which no batch waits.
    pub(crate) fn is_ready(&self) -> bool {
        let state = self.state.lock();
        !state.messages.is_empty() && !state.incomplete
    }

    /// Counters of the consumer. Messages are counted when they leave their queues.
    pub fn counts(&self) -> ReceiveCounts {
        self.counters.counts()
    }

    /// Counts acknowledgements of the application.
    pub fn count_acknowledged(&self, messages: usize) {
        self.counters.acknowledged(messages as u64);
        self.traffic.receives.acknowledged(messages as u64);
    }

    /// Counts negative acknowledgements of the application.
    pub fn count_refused(&self, messages: usize) {
        self.counters.refused(messages as u64);
        self.traffic.receives.refused(messages as u64);
    }

    fn count(&self, messages: &[M]) {
        let mut sum = Sum::default();
        messages.iter().for_each(|message| sum.add(message));
        self.count_received(&sum);
    }

    fn count_received(&self, sum: &Sum) {
        if sum.messages > 0 {
            for counters in [&self.counters, &self.traffic.receives] {
                counters.received(sum.messages, sum.bytes, sum.redelivered);
            }
        }
    }

    /// The next message, and whether [`Self::gather`] has passed it on.
    #[inline]
    fn pop(&self) -> Option<(M, bool)> {
        let mut state = self.state.lock();
        let message = state.messages.pop_front()?;
        Some((message, state.removed(1) > 0))
    }

    /// How many messages a batch needs at most; 0 if it is complete.
    fn missing(&self, batch: Batch) -> usize {
        let mut state = self.state.lock();
        let ready = state.ready(batch);
        let complete =
            ready >= batch.messages || state.weighed.1 >= batch.bytes || ready < state.messages.len();
        state.incomplete = !complete;
        if complete { 0 } else { batch.messages - ready }
    }

    /// Moves messages to `out`. Returns how many of them [`Self::gather`] has passed on.
    fn take(&self, batch: Batch, out: &mut Vec<M>) -> usize {
        let mut state = self.state.lock();
        let ready = state.ready(batch);
        out.extend(state.messages.drain(..ready));
        state.removed(ready)
    }

    /// Passes on the messages that were not passed on before: they are as good as handed out.
    pub(crate) fn gather<T>(&self, each: impl FnMut(&M) -> T) -> Vec<T> {
        let mut state = self.state.lock();
        let new = state.messages.range(state.gathered..).map(each).collect();
        state.gathered = state.messages.len();
        new
    }

    /// Whether a message is there that `is_it` takes.
    pub(crate) fn has(&self, is_it: impl Fn(&M) -> bool) -> bool {
        self.state.lock().messages.iter().any(is_it)
    }

    /// Makes a message the next one again. Returns it if the consumer is closed.
    pub(crate) fn give_back(&self, message: M, is_gathered: bool) -> Result<(), M> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(message);
        }
        state.removed(0);
        state.gathered += usize::from(is_gathered);
        state.messages.push_front(message);
        Ok(())
    }

    /// Removes messages whose delivery is revoked. `is_revoked` is told whether [`Self::gather`]
    /// has passed them on. Called under the lock of their queue.
    pub(crate) fn revoke(&self, is_revoked: impl Fn(&M, bool) -> bool) {
        let mut state = self.state.lock();
        let (mut index, before) = (0, state.gathered);
        let mut gathered = before;
        state.messages.retain(|message| {
            let is_gathered = index < before;
            let revoked = is_revoked(message, is_gathered);
            gathered -= usize::from(revoked && is_gathered);
            index += 1;
            !revoked
        });
        state.gathered = gathered;
        state.weighed = (0, 0);
    }

    /// Takes no message any more. Returns those that were not handed out; gathered ones can still
    /// be taken.
    pub(crate) fn close(&self) -> VecDeque<M> {
        let mut state = self.state.lock();
        state.closed = true;
        let gathered = state.gathered;
        state.weighed = (0, 0);
        state.messages.split_off(gathered)
    }
}

/// Moves messages from their queue. Called under the lock of the queue.
impl<M: Received> Extend<M> for &Ahead<M> {
    fn extend<I: IntoIterator<Item = M>>(&mut self, messages: I) {
        let mut sum = Sum::default();
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        state.messages.extend(messages.into_iter().inspect(|message| sum.add(message)));
        drop(state);
        self.count_received(&sum);
    }
}

/// Sums over messages.
#[derive(Default)]
struct Sum {
    messages: u64,
    bytes: u64,
    redelivered: u64,
}

impl Sum {
    fn add(&mut self, message: &impl Received) {
        self.messages += 1;
        self.bytes += message.size() as u64;
        self.redelivered += u64::from(message.is_redelivered());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use forebay_base::error::{Error, ErrorKind};

    impl Received for usize {
        fn size(&self) -> usize {
            *self
        }

        fn is_redelivered(&self) -> bool {
            false
        }
    }

    /// A consumer of one queue that holds at most `room` messages.
    struct Queue {
        arriving: std::sync::Mutex<RefCell<VecDeque<usize>>>,
        room: usize,
        ends: bool,
        acknowledges: bool,
        acknowledged: std::sync::Mutex<Vec<usize>>,
        ahead: Ahead<usize>,
    }

    impl Queue {
        fn new(arriving: impl IntoIterator<Item = usize>) -> Self {
            Self {
                arriving: std::sync::Mutex::new(RefCell::new(arriving.into_iter().collect())),
                room: 3,
                ends: false,
                acknowledges: false,
                acknowledged: std::sync::Mutex::default(),
                ahead: Ahead::new(&Arc::default()),
            }
        }

        fn arrive(&self, sizes: &[usize]) {
            self.arriving.lock().unwrap().get_mut().extend(sizes);
        }

        fn batch(&self, messages: usize, bytes: usize, partial: bool) -> Vec<usize> {
            let mut out = Vec::new();
            self.take_batch(Batch { messages, bytes }, partial, &mut out).unwrap();
            out
        }

        fn acknowledged(&self) -> Vec<usize> {
            std::mem::take(&mut self.acknowledged.lock().unwrap())
        }
    }

    impl Receive for Queue {
        type Message = usize;

        fn topic(&self) -> &'static str {
            "t"
        }

        fn arm(&self) -> bool {
            !self.ahead.is_ready() && self.arriving.lock().unwrap().get_mut().is_empty()
        }

        fn give_back(&self, message: usize) {
            self.ahead.give_back(message, self.acknowledges).unwrap();
        }

        fn ahead(&self) -> &Ahead<usize> {
            &self.ahead
        }

        fn fill(&self, max: usize, out: &mut impl Extend<usize>) -> Result<usize> {
            let mut arriving = self.arriving.lock().unwrap();
            let arriving = arriving.get_mut();
            let count = max.min(self.room).min(arriving.len());
            if count == 0 && self.ends {
                return Err(Error::new(ErrorKind::EndOfTopic, "the end"));
            }
            out.extend(arriving.drain(..count));
            Ok(count)
        }

        fn handed_out(&self, messages: &[usize]) {
            if self.acknowledges {
                self.acknowledged.lock().unwrap().extend(messages);
            }
        }

        fn gathered(&self) {
            if self.acknowledges {
                let new = self.ahead.gather(|message| *message);
                self.acknowledged.lock().unwrap().extend(new);
            }
        }
    }

    #[test]
    fn a_batch_larger_than_a_queue_is_handed_out_when_it_is_complete() {
        let queue = Queue::new([1; 7]);
        assert_eq!((queue.batch(8, usize::MAX, false), queue.ahead.len()), (vec![], 7));
        assert!(queue.arm(), "only further messages count");
        queue.arrive(&[1, 1]);
        assert!(!queue.arm());
        assert_eq!((queue.batch(8, usize::MAX, false), queue.ahead.len()), (vec![1; 8], 0));
        assert_eq!((queue.batch(8, usize::MAX, true), queue.batch(8, usize::MAX, true)), (vec![1], vec![]));
        assert_eq!(queue.ahead.counts().messages, 9);
    }

    #[test]
    fn a_batch_is_complete_by_its_size_which_one_message_may_exceed() {
        let queue = Queue::new([400, 400, 400, 2000, 100]);
        assert_eq!(queue.batch(9, 1000, false), [400, 400]);
        assert_eq!(queue.batch(9, 1000, false), [400], "the next one is too large");
        assert_eq!(queue.batch(9, 1000, false), [2000]);
        assert!(queue.batch(9, 1000, false).is_empty(), "100 bytes are no batch");
        queue.arrive(&[900]);
        assert_eq!(queue.batch(9, 500, false), [100], "another batch has less room");
        assert_eq!(queue.batch(9, 500, false), [900]);
    }

    #[test]
    fn messages_of_a_batch_that_is_not_complete_can_be_taken_one_by_one() {
        let queue = Queue::new([1, 2]);
        assert!(queue.batch(3, usize::MAX, false).is_empty());
        assert_eq!(queue.next().unwrap(), Some(1));
        assert!(!queue.arm(), "no batch waits for what is left");
        assert_eq!((queue.next().unwrap(), queue.next().unwrap()), (Some(2), None));
    }

    #[test]
    fn the_end_completes_a_batch() {
        let queue = Queue { ends: true, ..Queue::new([1, 2]) };
        assert_eq!(queue.batch(3, usize::MAX, false), [1, 2]);
        let mut out = Vec::new();
        let ended = queue.take_batch(Batch::of(3), false, &mut out).unwrap_err();
        assert_eq!(
            (ended.kind(), queue.next().unwrap_err().kind()),
            (ErrorKind::EndOfTopic, ErrorKind::EndOfTopic)
        );
    }

    #[test]
    fn what_is_revoked_is_not_handed_out() {
        let queue = Queue::new(1..=6);
        assert_eq!((queue.batch(9, 1000, false), queue.next().unwrap()), (vec![], Some(1)));
        queue.ahead.revoke(|message, _| message % 2 == 0);
        queue.give_back(1);
        assert_eq!(queue.batch(9, usize::MAX, true), [1, 3, 5]);
    }

    #[test]
    fn what_a_batch_waits_with_is_passed_on_once_and_survives_the_end() {
        let queue = Queue { acknowledges: true, ..Queue::new(1..=4) };
        assert_eq!((queue.batch(9, usize::MAX, false), queue.acknowledged()), (vec![], vec![1, 2, 3, 4]));
        queue.arrive(&[5]);
        assert_eq!((queue.next().unwrap(), queue.acknowledged()), (Some(1), vec![]));
        queue.give_back(1);
        assert_eq!((queue.batch(9, usize::MAX, false), queue.acknowledged()), (vec![], vec![5]));
        queue.ahead.revoke(|message, is_gathered| is_gathered && *message == 2);
        queue.arrive(&[6]);
        queue.fill(1, &mut queue.ahead()).unwrap();
        assert_eq!(queue.ahead.close(), [6], "it was not passed on");
        assert_eq!((queue.batch(9, usize::MAX, true), queue.acknowledged()), (vec![1, 3, 4, 5], vec![]));
        assert_eq!(queue.ahead.give_back(1, true), Err(1));
    }

    #[test]
    fn what_is_taken_at_once_is_passed_on() {
        let queue = Queue { acknowledges: true, ..Queue::new(1..=2) };
        assert_eq!((queue.batch(9, usize::MAX, true), queue.acknowledged()), (vec![1, 2], vec![1, 2]));
    }
}
