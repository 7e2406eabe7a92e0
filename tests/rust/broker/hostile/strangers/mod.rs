//! Every command of each protocol, sent by those who may not: without credentials, with wrong ones,
//! with expired ones, and with the valid ones of another user; about their own things and about
//! those of somebody else.
//!
//! Without valid credentials a visitor gets the same bytes from a broker that holds somebody's data
//! as from an empty one, changes nothing, and is gone within ten seconds. Another user may do what
//! every user may do with a topic whose name is known, but nothing with what belongs to another
//! connection, session or client.
//!
//! One table per protocol gives the bytes of each command; a command without a row fails the test.

use std::fmt::Debug;

use forebay_broker::protocol::Protocol;

use crate::hostile::world::{HELD, Visit, World, difference};

pub(crate) mod mqtt;
pub(crate) mod pulsar;
pub(crate) mod tubemq;

/// What a visitor shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credentials {
    None,
    Wrong,
    Expired,
    /// Valid, of a user other than the one whose data it is about.
    Other,
}

impl Credentials {
    const INVALID: [Self; 3] = [Self::None, Self::Wrong, Self::Expired];
}

/// Whose ids a command carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ids {
    Own,
    Others,
}

impl Ids {
    const BOTH: [Self; 2] = [Self::Own, Self::Others];
}

/// What a command reaches once its sender is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Something that belongs to one connection, session or client: nothing of another's.
    Handle,
    /// A topic or group by its name, which every user may use.
    Name,
}

/// The visitor's host: the broker has never admitted anybody from there.
const ELSEWHERE: &str = "10.9.8.7:1000";

/// Without valid credentials: the `full` world answers as the `empty` one, and stays as it was.
fn assert_shut_out<B: Protocol + Debug>(
    what: &str,
    bytes: &[u8],
    full: &mut World<B>,
    empty: &mut World<B>,
    apart: &[&str],
) {
    let before = full.state(apart);
    let visit = full.visit(ELSEWHERE, bytes);
    let after = full.state(apart);
    assert!(before == after, "{what}: changed the broker: {}", difference(&before, &after));
    assert_eq!(visit.changes, 0, "{what}: changed the store");
    assert_bounded(what, &visit);
    assert!(visit.ended, "{what}: the connection stays");
    let elsewhere = empty.visit(ELSEWHERE, bytes);
    assert!(
        visit.output == elsewhere.output,
        "{what}: the answer tells what the broker holds: {:?}, from an empty one {:?}",
        String::from_utf8_lossy(&visit.output),
        String::from_utf8_lossy(&elsewhere.output)
    );
}

fn assert_bounded(what: &str, visit: &Visit) {
    assert!(visit.held <= HELD, "{what}: {} bytes are held", visit.held);
    assert!(visit.output.len() <= 1024, "{what}: {} bytes of output", visit.output.len());
}
