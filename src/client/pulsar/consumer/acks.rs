//! Outcomes of messages that were handed out: acknowledged, negatively acknowledged, or consumed
//! later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Consumer, Target, letters};
use crate::pulsar::connection::PartId;
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::random::HashMap;
use forebay_pulsar::command::Command;
use forebay_pulsar::consumer::Consumer as Machine;
use forebay_pulsar::{Message, MessageId};

impl Consumer {
    /// Begins the acknowledgement timeout of messages that the application gets.
    pub(super) fn begin_ack_timeout(&self, messages: &[Message]) {
        let (now, parts) = (clock::now(), self.parts());
        for run in messages.chunk_by(|a, b| Arc::ptr_eq(a.entry.topic(), b.entry.topic())) {
            // A topic that is not one of the consumer's has none that would be told.
            if let Ok(part) = parts.find(run[0].entry.topic(), &run[0].id) {
                part.change(|machine| run.iter().for_each(|message| machine.handed_out(now, message)));
            }
        }
    }

    /// Takes back a message that the application did not use.
    pub(super) fn take_back(&self, message: Message) {
        // The messages of a partition that is gone are gone as well.
        if let Ok(part) = self.parts().find(message.entry.topic(), &message.id) {
            part.change(|machine| {
                machine.taken_over(&message.id);
                if machine.has_delivered(&message) && !machine.is_revoked(&message) {
                    // Of a closed consumer, the broker delivers it to another.
                    let _ = self.0.members.ahead.give_back(message, false);
                }
            });
        }
    }

    /// Sends a message to the topic of retries, to be delivered again after `delay`, and
    /// acknowledges it after the receipt; a message that has been there as often as the policy
    /// allows is sent to the dead letter topic instead. `properties` are added to its own. If that
    /// fails, the message is delivered again after the nack delay. With `receipt` it waits for the
    /// broker's receipt of the acknowledgement too; if that does not come, the acknowledgement is
    /// sent again.
    pub async fn reconsume_later(
        &self,
        message: &Message,
        delay: Duration,
        properties: &[(String, String)],
        receipt: bool,
    ) -> Result<()> {
        self.check_open()?;
        let letters = self.0.letters.as_ref().map(|(letters, _)| letters);
        let letters = letters.filter(|letters| letters.retries()).ok_or_else(letters::not_enabled)?;
        let target = Target::from(message);
        let part = Arc::clone(self.parts().find(&target.topic, &target.id)?);
        let _under_way = letters.begin();
        let moves = part.change(|machine| {
            machine.taken_over(&target.id);
            machine.moves()
        });
        let sent = letters.retry(message, delay, properties).await;
        // What a seek has moved away from is not acknowledged.
        let stays = || part.machine().moves() == moves;
        if sent.is_ok()
            && receipt
            && stays()
            && self.ack_receipt(std::slice::from_ref(&target), false).await.is_ok()
        {
            return sent;
        }
        part.change(|machine| {
            if machine.moves() != moves {
            } else if sent.is_ok() {
                machine.ack(clock::now(), &target.id);
            } else {
                machine.nack(clock::now(), &target.id, target.redeliveries, None);
            }
        });
        sent
    }

    /// Acknowledges messages. Acknowledgements are gathered for the acknowledgement group time.
    pub fn ack(&self, messages: &[Target]) -> Result<()> {
        self.each(messages, |machine, now, target| {
            machine.check_ack(&target.id)?;
            machine.ack(now, &target.id);
            Ok(())
        })
    }

    /// Acknowledges this message and all before it in its partition.
    pub fn ack_cumulative(&self, target: &Target) -> Result<()> {
        self.each(std::slice::from_ref(target), |machine, now, target| {
            machine.ack_cumulative(now, &target.id)
        })
    }

    /// Acknowledges and waits for the broker's receipt.
    pub async fn ack_receipt(&self, messages: &[Target], cumulative: bool) -> Result<()> {
        self.check_open()?;
        messages.iter().try_for_each(|target| target.id.require_message())?;
        let parts = self.parts();
        let mut by_part: HashMap<usize, Vec<MessageId>> = HashMap::default();
        for Target { topic, id, .. } in messages {
            match parts.index(topic, id) {
                // The topic has gone, and its messages with it.
                Err(_) if self.0.members.endless() && !topic.is_empty() => {}
                index => by_part.entry(index?).or_default().push(*id),
            }
        }
        for (index, ids) in by_part {
            let part = &parts[index];
            if part.has_ended() {
                return Err(part.ended());
            }
            let connection = part.connection().ok_or_else(|| {
                Error::new(ErrorKind::Disconnected, "not connected: the message will be delivered again")
            })?;
            // `None`: batches that are only partly acknowledged, which the broker hears of later.
            let receipt_ack = |machine: &mut Machine| {
                ids.iter().try_for_each(|id| machine.check_ack(id))?;
                machine.receipt_ack(clock::now(), &ids, cumulative)
            };
            let Some(mut ack) = part.change(receipt_ack)? else {
                continue;
            };
            connection
                .request_of(PartId::Consumer(part.id), |request_id| {
                    ack.request_id = Some(request_id);
                    Command::Ack(ack)
                })
                .await
                .map_err(|error| error.with_topic(Arc::clone(&part.topic)))?;
        }
        Ok(())
    }

    /// Negatively acknowledges messages: they are delivered again after `delay`, or after the
    /// consumer's nack delay when `None`.
    pub fn nack(&self, messages: &[Target], delay: Option<Duration>) -> Result<()> {
        self.each(messages, |machine, now, target| {
            machine.nack(now, &target.id, target.redeliveries, delay);
            Ok(())
        })
    }

    /// Asks the broker to deliver again everything that is not acknowledged.
    pub fn redeliver_unacknowledged(&self) -> Result<()> {
        self.check_open()?;
        for part in self.parts().iter() {
            part.change(|machine| machine.redeliver_unacknowledged());
        }
        Ok(())
    }

    fn each(
        &self,
        messages: &[Target],
        mut act: impl FnMut(&mut Machine, Instant, &Target) -> Result<()>,
    ) -> Result<()> {
        self.check_open()?;
        messages.iter().try_for_each(|target| target.id.require_message())?;
        let (now, parts) = (clock::now(), self.parts());
        let mut rest = messages;
        // Neighbours mostly come from one partition: one lock for each run of them.
        while let Some(Target { topic, id, .. }) = rest.first() {
            let same = |other: &&Target| other.topic == *topic && other.id.partition == id.partition;
            let run = rest.iter().take_while(same).count();
            let part = match parts.find(topic, id) {
                // The topic has gone, and its messages with it.
                Err(_) if self.0.members.endless() && !topic.is_empty() => {
                    rest = &rest[run..];
                    continue;
                }
                part => part?,
            };
            part.change(|machine| rest[..run].iter().try_for_each(|target| act(machine, now, target)))
                .map_err(|error| error.with_topic(Arc::clone(topic)))?;
            rest = &rest[run..];
        }
        Ok(())
    }
}
