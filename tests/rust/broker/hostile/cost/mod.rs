//! What bytes cost: the memory and the time of the broker's thread, and the output, as functions of
//! the number of bytes in.
//!
//! Each case repeats something that a client may say, up to two megabytes of it, in one packet or
//! in many: the same filter, the same request, a list in an acknowledgement. A client that does not
//! read its answers makes the broker queue no more than the limit; one that reads them is served in
//! turns that are short.

use bytes::BytesMut;
use forebay_broker::protocol::Protocol;

use crate::hostile::world::World;

mod mqtt;
mod pulsar;
mod rule;
mod tubemq;

use rule::{AFTER, BEFORE, Cost, Limit, READ, SLOWER, TIME, cpu};

/// Bytes of input in each case.
const SIZES: [usize; 3] = [200, 20_000, 2_000_000];
/// Input up to which a client that reads is tried: its answers may be a thousand times as long.
const READER: usize = 20_000;

/// Hands `bytes` to the broker as its driver would. If the client `reads`, its output is taken
/// after each turn.
fn spend<B: Protocol + std::fmt::Debug>(
    world: &mut World<B>,
    id: u64,
    mut bytes: &[u8],
    reads: bool,
) -> Cost {
    let mut cost = Cost { input: bytes.len(), ..Cost::default() };
    let mut output = 0;
    world.largest = 0;
    let heap = allocation_counter::measure(|| {
        let mut waiting = BytesMut::new();
        loop {
            let before = (waiting.len(), bytes.len());
            if world.broker.may_read(id) && !bytes.is_empty() {
                let (piece, rest) = bytes.split_at(bytes.len().min(READ));
                waiting.extend_from_slice(piece);
                bytes = rest;
            }
            let (start, size) = (cpu(), waiting.len());
            let ended = world.feed(id, &mut waiting).is_err() || world.broker.finished(id);
            cost.took(cpu().saturating_sub(start), size - waiting.len());
            // Work that was put off.
            let mut more = false;
            if world.broker.poll_timeout().is_some_and(|at| at <= world.now) {
                let start = cpu();
                world.broker.handle_timeout(world.now);
                world.settle();
                cost.took(cpu().saturating_sub(start), 0);
                more = true;
            }
            let mut taken = 0;
            if reads {
                taken = world.hear_once(id);
                output = output.max(taken);
            }
            if ended || !more && taken == 0 && before == (waiting.len(), bytes.len()) {
                break;
            }
        }
    });
    if !reads {
        output = world.hear_once(id);
    }
    // The queue of the output: when it grows, its old buffer and one of twice the size are there.
    let heap = (heap.bytes_max as usize).saturating_sub(3 * output);
    Cost { heap, output, change: world.largest, ..cost }
}

/// Repeats what `piece` gives for 0, 1, 2, ... until it is `size` bytes long.
fn repeat(size: usize, mut piece: impl FnMut(usize) -> Vec<u8>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for index in 0.. {
        let next = piece(index);
        if !bytes.is_empty() && bytes.len() + next.len() > size {
            break;
        }
        bytes.extend_from_slice(&next);
    }
    bytes
}

/// Checks the bytes of one case against `limit`, with a client that reads and with one that does
/// not.
fn assert_cheap<B: Protocol + std::fmt::Debug>(
    what: &str,
    limit: Limit,
    bytes: &[u8],
    mut prepare: impl FnMut() -> (World<B>, u64),
) {
    for reads in [false, true] {
        if reads && bytes.len() > READER {
            continue;
        }
        let (mut world, id) = prepare();
        let cost = spend(&mut world, id, bytes, reads);
        if let Some(excess) = cost.excess(limit, TIME * SLOWER, reads) {
            panic!("{what}, {} bytes, reads {reads}: {excess}: {cost:?}", bytes.len());
        }
    }
}
