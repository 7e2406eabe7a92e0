//! What a connection of Pulsar may carry: nothing is opened twice on it, and nothing is
//! acknowledged that was not handed out.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use bytes::BytesMut;
use forebay_pulsar::command::Command;
use forebay_pulsar::frame::Decoder;
use forebay_pulsar::hot::Ack;
use forebay_pulsar::pb::command_ack::AckType;

use super::super::network::Tap;

/// Entries of which the application has some messages, by the subscription: ledger and entry, the
/// indexes, and how many there are.
type Handed = BTreeMap<String, BTreeMap<(u64, u64), (BTreeSet<i32>, i32)>>;

thread_local! {
    /// `None` if it is not known: chunks are acknowledged that are no messages.
    static HANDED: RefCell<Option<Handed>> = const { RefCell::new(None) };
}

/// Begins a run. Without `checked` acknowledgements are not checked.
pub(super) fn begin(checked: bool) {
    HANDED.set(checked.then(Handed::new));
}

/// Notes that the application has a message.
pub(super) fn hand_out(subscription: &str, (ledger, entry): (u64, u64), index: i32, of: i32) {
    HANDED.with_borrow_mut(|handed| {
        let Some(handed) = handed else { return };
        let entries = handed.entry(subscription.to_owned()).or_default();
        let (indexes, size) = entries.entry((ledger, entry)).or_default();
        indexes.insert(index);
        *size = of.max(1);
    });
}

fn check(subscription: &str, ack: &Ack) -> Result<(), String> {
    HANDED.with_borrow(|handed| {
        let Some(handed) = handed else { return Ok(()) };
        let cumulative = ack.ack_type == AckType::Cumulative as i32;
        for id in &ack.message_ids {
            let known =
                handed.get(subscription).and_then(|entries| entries.get(&(id.ledger_id, id.entry_id)));
            let Some((indexes, size)) = known else {
                // Up to the entry before a batch that is not acknowledged as a whole.
                if cumulative {
                    continue;
                }
                return Err(format!("{id:?} is acknowledged for {subscription} and was not handed out"));
            };
            let open = |index: i32| {
                let word = id.ack_set.get(index as usize / 64).copied().unwrap_or(0);
                !id.ack_set.is_empty() && word >> (index % 64) & 1 == 1
            };
            let early = (0..*size).find(|index| !open(*index) && *size > 1 && !indexes.contains(index));
            if let Some(index) = early.filter(|_| !cumulative) {
                return Err(format!(
                    "{index} of {id:?} is acknowledged for {subscription} and was not handed out"
                ));
            }
        }
        Ok(())
    })
}

/// Follows the commands of a connection.
#[derive(Default)]
pub(super) struct Watch {
    input: [BytesMut; 2],
    open: BTreeSet<(bool, u64)>,
    opening: BTreeMap<u64, (bool, u64)>,
    subscriptions: BTreeMap<u64, String>,
    last: Option<&'static str>,
}

impl Watch {
    fn opened(&mut self, part: (bool, u64)) -> Result<(), String> {
        if self.open.insert(part) {
            return Ok(());
        }
        Err(format!("{} {} was opened twice", if part.0 { "producer" } else { "consumer" }, part.1))
    }

    fn command(&mut self, up: bool, command: &Command) -> Result<(), String> {
        match (up, command) {
            (true, Command::Producer(open)) => {
                self.opening.insert(open.request_id, (true, open.producer_id));
                self.opened((true, open.producer_id))?;
            }
            (true, Command::Subscribe(open)) => {
                self.opening.insert(open.request_id, (false, open.consumer_id));
                self.subscriptions.insert(open.consumer_id, open.subscription.clone());
                self.opened((false, open.consumer_id))?;
            }
            (true, Command::Ack(ack)) => match self.subscriptions.get(&ack.consumer_id) {
                Some(subscription) => check(subscription, ack)?,
                None => return Err(format!("{ack:?} is of no consumer")),
            },
            (_, Command::CloseProducer(close)) => drop(self.open.remove(&(true, close.producer_id))),
            (_, Command::CloseConsumer(close)) => drop(self.open.remove(&(false, close.consumer_id))),
            (false, Command::Error(error)) => {
                if let Some(part) = self.opening.remove(&error.request_id) {
                    self.open.remove(&part);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Tap for Watch {
    fn see(&mut self, up: bool, bytes: &[u8]) -> Result<(), String> {
        self.input[usize::from(up)].extend_from_slice(bytes);
        loop {
            let frame = Decoder::new(16 << 20).next(&mut self.input[usize::from(up)]);
            let Some(frame) = frame.map_err(|error| error.to_string())? else { return Ok(()) };
            if up {
                self.last = Some(frame.command.name());
            }
            self.command(up, &frame.command)?;
        }
    }

    fn state(&self) -> &'static str {
        self.last.unwrap_or(super::BEFORE)
    }
}
