//! What the calls on the wire say about partitions: who has taken each, and how far each group has
//! moved.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use bytes::BytesMut;
use forebay_tubemq::command::{Call, Reply, Request, Response};
use forebay_tubemq::frame::{Decoder, MAX_PAYLOAD};
use forebay_tubemq::pb;
use tokio::time::Instant;

use super::super::network::Tap;

/// A topic and the number of a partition.
pub(super) type Place = (String, u32);

const REGISTER: i32 = 31;
/// Read status of a registration that begins at the end.
const FROM_MAX: i32 = 2;

/// A call and its answer: the broker ran it at some time between.
#[derive(Clone, Copy, Debug)]
struct Ran {
    asked: Instant,
    answered: Instant,
}

/// What is known of a group in a partition.
#[derive(Debug, Default)]
struct Lease {
    /// The last successful registration of each client.
    taken: BTreeMap<String, Ran>,
    /// An offset that was confirmed, and when.
    floor: Option<(i64, Instant)>,
    /// When somebody last asked to move the group.
    sought: Option<Instant>,
    /// Offset below which everything known to be stored was found to be acknowledged.
    checked: i64,
}

/// A message that is known to be stored.
#[derive(Debug)]
struct Stored {
    message_id: i64,
    /// Whether groups with a filter receive it.
    selected: bool,
}

#[derive(Debug, Default)]
struct Book {
    leases: BTreeMap<(String, Place), Lease>,
    stored: BTreeMap<Place, BTreeMap<i64, Stored>>,
    acknowledged: BTreeSet<(String, i64)>,
    filtered: BTreeSet<String>,
    refused: BTreeSet<Place>,
}

thread_local! {
    static BOOK: RefCell<Book> = RefCell::default();
}

/// Forgets the run before.
pub(super) fn begin() {
    BOOK.take();
}

/// Notes that a group has a filter.
pub(super) fn filter(group: &str) {
    BOOK.with_borrow_mut(|book| book.filtered.insert(group.to_owned()));
}

/// Notes a message that a producer knows to be stored.
pub(super) fn stored(place: &Place, offset: i64, message_id: i64, selected: bool) {
    BOOK.with_borrow_mut(|book| {
        book.stored.entry(place.clone()).or_default().insert(offset, Stored { message_id, selected });
    });
}

/// Notes that the application of a group acknowledges a message.
pub(super) fn acknowledged(group: &str, message_id: i64) {
    BOOK.with_borrow_mut(|book| book.acknowledged.insert((group.to_owned(), message_id)));
}

/// Whether a message was refused there. Those that had been sent behind it may have overtaken it.
pub(super) fn has_refused(place: &Place) -> bool {
    BOOK.with_borrow(|book| book.refused.contains(place))
}

impl Book {
    /// The group stands at `offset`: it has acknowledged what is stored before.
    fn stands(&mut self, group: &str, place: &Place, offset: i64) -> Result<(), String> {
        let lease = self.leases.entry((group.to_owned(), place.clone())).or_default();
        let filtered = self.filtered.contains(group);
        if offset <= lease.checked {
            return Ok(());
        }
        let passed =
            self.stored.get(place).into_iter().flat_map(|stored| stored.range(lease.checked..offset));
        for (at, stored) in passed {
            if (stored.selected || !filtered)
                && !self.acknowledged.contains(&(group.to_owned(), stored.message_id))
            {
                return Err(format!(
                    "group {group} stands at {offset} of {place:?} and has not acknowledged what is at {at}"
                ));
            }
        }
        lease.checked = offset;
        Ok(())
    }
}

impl Lease {
    /// A call that was asked after a confirmation finds the group there or further on.
    fn check_floor(&self, asked: Instant, offset: i64) -> Result<(), String> {
        match self.floor {
            Some((floor, since)) if since < asked && offset < floor => {
                Err(format!("{floor} was confirmed, and the group stands at {offset}"))
            }
            _ => Ok(()),
        }
    }

    /// A client read. It must not have lost the partition before to another that took it later.
    fn check_holder(&self, client: &str, asked: Instant) -> Result<(), String> {
        let Some(own) = self.taken.get(client) else { return Ok(()) };
        let after = |other: &&Ran| other.asked > own.answered && other.answered < asked;
        match self.taken.iter().find(|(name, other)| *name != client && after(other)) {
            Some((other, _)) => Err(format!("{client} reads what {other} has taken since")),
            None => Ok(()),
        }
    }
}

/// A call whose answer is awaited.
struct Asked {
    at: Instant,
    client: String,
    group: String,
    place: Place,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Register { seeks: bool },
    Get,
    Commit,
}

/// Follows the calls of a connection.
pub(super) struct Watch {
    input: [BytesMut; 2],
    decoders: [Decoder; 2],
    asked: BTreeMap<u32, Asked>,
    /// Where the messages go whose answers are awaited.
    sent: BTreeMap<u32, Place>,
    last: Option<&'static str>,
}

impl Default for Watch {
    fn default() -> Self {
        let decoder = || Decoder::new(MAX_PAYLOAD);
        Self {
            input: Default::default(),
            decoders: [decoder(), decoder()],
            asked: BTreeMap::new(),
            sent: BTreeMap::new(),
            last: None,
        }
    }
}

impl Watch {
    fn ask(&mut self, serial: u32, request: Request) {
        let at = Instant::now();
        let asked = match request {
            Request::PartitionRegister(request) if request.op_type == REGISTER => {
                let seeks = request.curr_offset.is_some() || request.read_status == FROM_MAX;
                let pb::RegisterRequestC2b { client_id, group_name, topic_name, partition_id, .. } = *request;
                let place = (topic_name, partition_id as u32);
                if seeks {
                    BOOK.with_borrow_mut(|book| {
                        let lease = book.leases.entry((group_name.clone(), place.clone())).or_default();
                        (lease.floor, lease.sought) = (None, Some(at));
                    });
                }
                Asked { at, client: client_id, group: group_name, place, kind: Kind::Register { seeks } }
            }
            Request::GetMessages(request) => Asked {
                at,
                client: request.client_id,
                group: request.group_name,
                place: (request.topic_name, request.partition_id as u32),
                kind: Kind::Get,
            },
            Request::CommitOffset(request) => Asked {
                at,
                client: request.client_id,
                group: request.group_name,
                place: (request.topic_name, request.partition_id as u32),
                kind: Kind::Commit,
            },
            Request::SendMessage(request) => {
                self.sent.insert(serial, (request.topic_name, request.partition_id as u32));
                return;
            }
            _ => return,
        };
        self.asked.insert(serial, asked);
    }

    fn answer(&mut self, serial: u32, response: &Response) -> Result<(), String> {
        if let Some(place) = self.sent.remove(&serial)
            && !response.succeeded()
        {
            BOOK.with_borrow_mut(|book| book.refused.insert(place));
        }
        let Some(asked) = self.asked.remove(&serial) else { return Ok(()) };
        if !response.succeeded() {
            return Ok(());
        }
        let (client, now) = (asked.client.as_str(), Instant::now());
        BOOK.with_borrow_mut(|book| {
            let key = (asked.group.clone(), asked.place.clone());
            let lease = book.leases.entry(key).or_default();
            match response {
                Response::PartitionRegister(response) => {
                    let offset = response.curr_offset.unwrap_or(-1);
                    lease.taken.insert(client.to_owned(), Ran { asked: asked.at, answered: now });
                    if asked.kind == (Kind::Register { seeks: false }) {
                        lease.check_floor(asked.at, offset)?;
                        book.stands(&asked.group, &asked.place, offset)?;
                    }
                }
                Response::GetMessages(response) => {
                    let offset = response.curr_offset.unwrap_or(-1);
                    lease.check_holder(client, asked.at)?;
                    lease.check_floor(asked.at, offset)?;
                    book.stands(&asked.group, &asked.place, offset)?;
                }
                Response::CommitOffset(response) => {
                    let offset = response.curr_offset.unwrap_or(-1);
                    lease.check_holder(client, asked.at)?;
                    lease.check_floor(asked.at, offset)?;
                    if lease.sought.is_none_or(|sought| sought < asked.at)
                        && lease.floor.is_none_or(|(floor, _)| floor < offset)
                    {
                        lease.floor = Some((offset, now));
                    }
                    book.stands(&asked.group, &asked.place, offset)?;
                }
                _ => {}
            }
            Ok(())
        })
    }
}

impl Tap for Watch {
    fn see(&mut self, up: bool, bytes: &[u8]) -> Result<(), String> {
        let side = usize::from(up);
        self.input[side].extend_from_slice(bytes);
        loop {
            let frame = self.decoders[side].next(&mut self.input[side]).map_err(|error| error.to_string())?;
            let Some(frame) = frame else { return Ok(()) };
            if up {
                let call = Call::decode(&frame.payload).map_err(|error| error.to_string())?;
                self.last = Some(call.request.method().name());
                self.ask(frame.serial, call.request);
            } else if let Reply::Response { response, .. } =
                Reply::decode(&frame.payload).map_err(|error| error.to_string())?
            {
                self.answer(frame.serial, &response)?;
            }
        }
    }

    fn state(&self) -> &'static str {
        self.last.unwrap_or(super::BEFORE)
    }
}
