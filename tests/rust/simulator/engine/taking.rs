//! The ways in which an application of a run takes messages.

use forebay_base::error::Result;
use forebay_client::receive::{Batch, Receive};

use crate::support::chance::Chance;

/// Takes messages in one of the ways that a consumer has, and may give the last one back. Returns
/// their number. With `at_once` none stays behind that counts as handed out.
pub(super) fn take<C: Receive>(
    consumer: &C,
    at_once: bool,
    chance: &mut Chance,
    out: &mut Vec<C::Message>,
) -> Result<usize> {
    let before = out.len();
    let messages = chance.within(1, 50);
    let taken = match chance.below(5) {
        0 | 1 => consumer.take_batch(Batch::of(messages), true, out),
        2 => one_by_one(consumer, messages, out),
        way => {
            let bytes = chance.within(1, 5000);
            // A batch that is not complete waits for more.
            consumer.take_batch(Batch { messages, bytes }, way == 3 || at_once || chance.percent(30), out)
        }
    };
    if !at_once
        && chance.percent(5)
        && out.len() > before
        && let Some(last) = out.pop()
    {
        consumer.give_back(last);
        return Ok((out.len() - before).max(1));
    }
    if out.len() == before {
        taken?;
    }
    Ok(out.len() - before)
}

fn one_by_one<C: Receive>(consumer: &C, max: usize, out: &mut Vec<C::Message>) -> Result<()> {
    for _ in 0..max {
        match consumer.next()? {
            Some(message) => out.push(message),
            None => break,
        }
    }
    Ok(())
}
