//! A TubeMQ producer and a consumer whose group confirms its offsets.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::BytesMut;
use penstock::transmit::Transmit;
use penstock::tubemq::command::{Call, Reply, Request, Response};
use penstock::tubemq::frame::Decoder;
use penstock::tubemq::pb;

use crate::node::TUBEMQ;
use crate::support::chance::Chance;
use crate::support::tubemq::message;
use crate::world::World;

/// Bytes of a message's index: offsets count in them.
const INDEX: i64 = 28;
const TOPIC: &str = "demo";

#[derive(Clone, Debug, Default)]
pub struct Client {
    seat: Option<u64>,
    input: BytesMut,
    serial: u32,
    /// What the calls without an answer are.
    calls: BTreeMap<u32, Asked>,
    /// Whether the topic is known to exist.
    created: bool,
    /// Messages that were sent, and those that are known to be stored.
    sent: i64,
    stored: i64,
    /// The message that comes next, up to which the group has asked to be confirmed, and up to which it is.
    next: i64,
    asked: i64,
    confirmed: i64,
    /// Whether the last pack was empty.
    ended: bool,
    /// Confirmations that have arrived.
    pub told: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Send,
    Take,
    Get,
    Confirm,
}

fn body(number: i64) -> Vec<u8> {
    format!("m{number} ").into_bytes().repeat(1 + number as usize * 41 % 130)
}

impl Client {
    pub fn peers(&self) -> Vec<u64> {
        self.seat.into_iter().collect()
    }

    pub fn hear(&mut self, bytes: BytesMut) {
        self.input.extend_from_slice(&bytes);
        while let Some(frame) = Decoder::new(28 << 20).next(&mut self.input).unwrap() {
            let asked = self.calls.remove(&frame.serial).expect("an answer to a call");
            match Reply::decode(&frame.payload).unwrap() {
                Reply::Response { response, .. } => self.handle(asked, response),
                Reply::Exception(exception) => panic!("{asked:?}: {exception:?}"),
            }
        }
    }

    fn handle(&mut self, asked: Asked, response: Response) {
        self.told += usize::from(matches!(asked, Asked::Send | Asked::Confirm));
        match response {
            Response::SendMessage(sent) => {
                assert!(sent.success, "{sent:?}");
                assert_eq!(
                    sent.append_offset,
                    Some(self.stored * INDEX),
                    "a message has the offset of its turn"
                );
                self.stored += 1;
            }
            Response::PartitionRegister(taken) => {
                assert!(taken.success, "{taken:?}");
                self.next = taken.curr_offset.unwrap() / INDEX;
                assert!(
                    (self.confirmed..=self.asked).contains(&self.next),
                    "the group begins at {}: it asked for {} and {} is confirmed",
                    self.next,
                    self.asked,
                    self.confirmed
                );
            }
            Response::GetMessages(pack) => {
                self.ended = pack.messages.is_empty();
                assert!(pack.success || pack.err_code == 404, "{pack:?}");
                for message in &pack.messages {
                    assert!(self.next < self.sent, "altered: message {} was never sent", self.next);
                    assert_eq!(message.pay_load_data, body(self.next), "altered: message {}", self.next);
                    self.next += 1;
                }
            }
            Response::CommitOffset(committed) => {
                assert!(committed.success, "{committed:?}");
                self.confirmed = committed.curr_offset.unwrap() / INDEX;
                assert_eq!(self.confirmed, self.asked);
            }
            other => panic!("{asked:?}: {other:?}"),
        }
    }
}

fn call(world: &mut World, asked: Asked, request: Request) {
    let client = &mut world.clients.tubemq;
    client.serial += 1;
    client.calls.insert(client.serial, asked);
    let mut out = Transmit::default();
    Call::new(request, Duration::from_secs(10)).encode(client.serial, &mut out).unwrap();
    let seat = client.seat.unwrap();
    world.send(TUBEMQ, seat, &out.take());
}

fn take(world: &mut World) {
    let request = pb::RegisterRequestC2b {
        op_type: 31,
        client_id: "c".into(),
        group_name: "g".into(),
        topic_name: TOPIC.into(),
        ..Default::default()
    };
    call(world, Asked::Take, Request::PartitionRegister(Box::new(request)));
    world.settle();
    assert!(world.clients.tubemq.calls.is_empty(), "no answer");
}

fn send(world: &mut World) {
    let number = world.clients.tubemq.sent;
    world.clients.tubemq.sent += 1;
    call(world, Asked::Send, Request::SendMessage(Box::new(message(TOPIC, 0, &body(number)))));
}

fn get(world: &mut World) {
    let request = pb::GetMessageRequestC2b {
        client_id: "c".into(),
        group_name: "g".into(),
        topic_name: TOPIC.into(),
        last_pack_consumed: Some(true),
        manual_commit_offset: Some(true),
        esc_flow_ctrl: Some(false),
        ..Default::default()
    };
    call(world, Asked::Get, Request::GetMessages(request));
}

fn confirm(world: &mut World) {
    let client = &mut world.clients.tubemq;
    client.asked = client.next;
    let request = pb::CommitOffsetRequestC2b {
        client_id: "c".into(),
        group_name: "g".into(),
        topic_name: TOPIC.into(),
        last_pack_consumed: Some(true),
        ..Default::default()
    };
    call(world, Asked::Confirm, Request::CommitOffset(request));
}

pub fn set_up(world: &mut World) {
    let topics = world.node.protocols[TUBEMQ].topics_mut().unwrap();
    topics.create_topic(TOPIC, 1).unwrap();
    world.settle();
    world.clients.tubemq.created = true;
    world.clients.tubemq.seat = Some(world.node.connect(TUBEMQ));
    take(world);
}

pub fn step(world: &mut World, chance: &mut Chance) {
    let busy = world.clients.tubemq.calls.values().any(|asked| *asked != Asked::Send);
    match chance.below(100) {
        0..50 => (0..chance.within(1, 4)).for_each(|_| send(world)),
        50..75 if !busy => get(world),
        _ if !busy && world.clients.tubemq.next > world.clients.tubemq.asked => confirm(world),
        _ => {}
    }
}

pub fn verify(world: &mut World) {
    if !world.clients.tubemq.created {
        return;
    }
    let seat = world.node.connect(TUBEMQ);
    let client = &mut world.clients.tubemq;
    client.seat = Some(seat);
    client.input.clear();
    client.calls.clear();
    take(world);
    read(world);
    let client = &mut world.clients.tubemq;
    let found = client.next;
    assert!(
        (client.stored..=client.sent).contains(&found),
        "{found} messages were found: {} were sent and {} confirmed",
        client.sent,
        client.stored
    );
    (client.sent, client.stored) = (found, found);
    send(world);
    world.settle();
    assert_eq!(world.clients.tubemq.stored, found + 1, "no answer");
    read(world);
    assert_eq!(world.clients.tubemq.next, found + 1, "the new message does not come");
    confirm(world);
    world.settle();
    assert_eq!(world.clients.tubemq.confirmed, found + 1);
}

fn read(world: &mut World) {
    loop {
        get(world);
        world.settle();
        assert!(world.clients.tubemq.calls.is_empty(), "no answer");
        if world.clients.tubemq.ended {
            return;
        }
    }
}
