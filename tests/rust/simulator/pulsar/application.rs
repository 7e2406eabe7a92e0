//! The users of the state machines: they push, take, acknowledge and negatively acknowledge, and
//! compare each outcome and each message with the log.

use std::collections::BTreeMap;
use std::time::Instant;

use forebay_base::error::ErrorKind;
use forebay_pulsar::pb::command_subscribe::SubType;
use forebay_pulsar::producer::Event;
use forebay_pulsar::{Message, MessageId, Outgoing};

use super::disk::{Disk, Name, key_of, payload};
use super::node::{Reader, Writer};
use crate::support::chance::Chance;

/// When the runs begin.
pub(crate) const WALL_MS: u64 = 1_700_000_000_000;
const KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// Takes the outcomes of a producer and compares each with the log.
pub(crate) fn outcomes(writer: &mut Writer, disk: &Disk, may_fail: bool) -> Result<(), String> {
    while let Some(event) = writer.machine.poll_event() {
        let (count, bytes) = match &event {
            Event::Stored { count, bytes, .. } | Event::Failed { count, bytes, .. } => {
                (*count as usize, *bytes)
            }
        };
        if count == 0 || count > writer.pending.len() {
            return Err(format!("{count} outcomes for {} pushes", writer.pending.len()));
        }
        let (names, sizes): (Vec<Name>, Vec<usize>) = writer.pending.drain(..count).unzip();
        if sizes.iter().sum::<usize>() != bytes {
            return Err(format!("{names:?} of {sizes:?} bytes gave {bytes} back"));
        }
        match event {
            Event::Stored { ledger: u64::MAX, .. } => {
                if let Some(lost) = names.iter().find(|name| !disk.messages.contains_key(name)) {
                    return Err(format!("{lost:?} was dropped as a duplicate and is not in the log"));
                }
                writer.stored.extend(names);
            }
            Event::Stored { entry, batch, .. } => {
                let first = batch.map_or(0, |(first, _)| first as usize);
                let at = disk.contents.get(&entry).and_then(|held| held.get(first..first + count));
                if at != Some(&names[..]) || (batch.is_none() && count != 1) {
                    return Err(format!(
                        "{names:?} acknowledged at {entry}, which holds {:?}",
                        disk.contents.get(&entry)
                    ));
                }
                writer.stored.extend(names);
            }
            Event::Failed { error, .. } if may_fail && error.kind() == ErrorKind::Timeout => {
                writer.failed += count
            }
            Event::Failed { error, .. } => return Err(format!("{names:?} failed: {error}")),
        }
    }
    let bytes: usize = writer.pending.iter().map(|(_, bytes)| bytes).sum();
    if (writer.machine.pending_messages(), writer.machine.pending_bytes()) != (writer.pending.len(), bytes) {
        return Err(format!(
            "{} pushed, the producer holds {}",
            writer.pending.len(),
            writer.machine.pending_messages()
        ));
    }
    Ok(())
}

pub(crate) fn push_some(
    writer: &mut Writer,
    now: Instant,
    chunking: bool,
    chance: &mut Chance,
) -> Result<(), String> {
    // Before its first opening the application does not have the producer.
    if !writer.opening.attached && writer.opening.generation == 0 {
        return Ok(());
    }
    let burst = if chance.percent(10) { 20 } else { chance.below(5) as u64 };
    for _ in 0..burst.min(writer.quota - writer.next) {
        let name = (writer.who, writer.next);
        let large = chunking && chance.percent(40);
        let bytes = payload(name, if large { chance.within(600, 3000) } else { chance.below(300) });
        let message =
            Outgoing { payload: &bytes, key: Some(KEYS[key_of(writer.next)]), ..Outgoing::default() };
        let wall = WALL_MS + writer.next;
        let pushed = if chance.percent(50) {
            writer.machine.push(now, wall, &message)
        } else {
            writer.machine.try_push(now, wall, &message)
        };
        match pushed {
            Ok(_) => {
                writer.pending.push_back((name, bytes.len()));
                writer.next += 1;
            }
            Err(error) if error.kind() == ErrorKind::QueueFull => break,
            Err(error) => return Err(format!("{name:?} was refused: {error}")),
        }
    }
    if chance.percent(10) {
        writer.machine.flush();
    }
    Ok(())
}

pub(crate) fn check_given(
    reader: &mut Reader,
    message: &Message,
    name: Name,
    disk: &Disk,
    given: &mut BTreeMap<Name, MessageId>,
) -> Result<(), String> {
    let id = message.id;
    let held = disk.contents.get(&id.entry).and_then(|names| names.get(id.batch_index.max(0) as usize));
    if held != Some(&name) {
        return Err(format!("{name:?} was given as {id}, where the log has {held:?}"));
    }
    if let Some(before) = given.insert(name, id).filter(|before| *before != id) {
        return Err(format!("{name:?} was given as {before} and as {id}"));
    }
    if let Some(order) = reader.order_of(message)
        && let Some(last) = reader.last.insert(order, id).filter(|last| *last >= id)
    {
        return Err(format!("{id} was given after {last}"));
    }
    Ok(())
}

/// Acknowledges some of the held messages, or negatively acknowledges them.
pub(crate) fn settle(
    reader: &mut Reader,
    now: Instant,
    (all, cumulative): (bool, bool),
    acked: &mut BTreeMap<Name, (u64, u64)>,
    chance: &mut Chance,
) {
    let generation = reader.opening.generation;
    let mut rest = Vec::new();
    // A cumulative acknowledgement would include the beginning of an incomplete chunked message.
    let ordered = matches!(reader.kind, SubType::Exclusive | SubType::Failover);
    if cumulative
        && ordered
        && chance.percent(20)
        && let Some((last, _, _)) = reader.held.last().copied()
    {
        reader.machine.ack_cumulative(now, &last).expect("one consumer at a time");
        // Messages of an earlier connection may be behind those that the last one redelivered.
        rest = std::mem::take(&mut reader.held);
        rest.retain(|(id, name, since)| {
            let before = *id <= last;
            if before && *since == generation {
                acked.insert(*name, (reader.id, generation));
            }
            !before
        });
        reader.held = std::mem::take(&mut rest);
    }
    for (id, name, since) in std::mem::take(&mut reader.held) {
        if all || chance.percent(60) {
            reader.machine.ack(now, &id);
            if since == generation {
                acked.insert(name, (reader.id, generation));
            }
        } else if reader.kind == SubType::Shared && since == generation && chance.percent(30) {
            reader.machine.nack(now, &id, 0, None);
        } else {
            rest.push((id, name, since));
        }
    }
    reader.held = rest;
}
