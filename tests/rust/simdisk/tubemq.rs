//! A TubeMQ producer and a consumer of a topic with several partitions, whose group confirms its
//! offsets and moves them to others.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::BytesMut;
use forebay_base::transmit::Transmit;
use forebay_tubemq::command::{Call, Reply, Request, Response};
use forebay_tubemq::frame::Decoder;
use forebay_tubemq::pb;

use crate::node::TUBEMQ;
use crate::support::chance::Chance;
use crate::support::tubemq::message;
use crate::world::World;

/// Bytes of a message's index: offsets count in them.
const INDEX: i64 = 28;
const TOPIC: &str = "demo";
const PARTITIONS: usize = 3;

/// What is known of a partition.
#[derive(Clone, Copy, Debug, Default)]
struct Partition {
    /// Messages that were sent, and those that are known to be stored.
    sent: i64,
    stored: i64,
    /// The message that comes next, where the group has asked to be, and where it is for sure. The
    /// group is at one of the two.
    next: i64,
    asked: i64,
    confirmed: i64,
    /// Whether the last pack was empty.
    ended: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Client {
    seat: Option<u64>,
    input: BytesMut,
    serial: u32,
    /// What the calls without an answer are, and their partitions.
    calls: BTreeMap<u32, (Asked, usize)>,
    /// Whether the topic is known to exist.
    created: bool,
    partitions: [Partition; PARTITIONS],
    /// Confirmations that have arrived.
    pub told: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Send,
    Take,
    Reset,
    Get,
    Confirm,
}

fn body(partition: usize, number: i64) -> Vec<u8> {
    format!("m{partition}.{number} ").into_bytes().repeat(1 + number as usize * 41 % 130)
}

impl Client {
    pub fn peers(&self) -> Vec<u64> {
        self.seat.into_iter().collect()
    }

    pub fn hear(&mut self, bytes: BytesMut) {
        self.input.extend_from_slice(&bytes);
        while let Some(frame) = Decoder::new(28 << 20).next(&mut self.input).unwrap() {
            let (asked, partition) = self.calls.remove(&frame.serial).expect("an answer to a call");
            match Reply::decode(&frame.payload).unwrap() {
                Reply::Response { response, .. } => self.handle(asked, partition, response),
                Reply::Exception(exception) => panic!("{asked:?}: {exception:?}"),
            }
        }
    }

    fn handle(&mut self, asked: Asked, number: usize, response: Response) {
        self.told += usize::from(matches!(asked, Asked::Send | Asked::Confirm | Asked::Reset));
        let partition = &mut self.partitions[number];
        match response {
            Response::SendMessage(sent) => {
                assert!(sent.success, "{sent:?}");
                assert_eq!(
                    sent.append_offset,
                    Some(partition.stored * INDEX),
                    "a message has the offset of its turn"
                );
                partition.stored += 1;
            }
            Response::PartitionRegister(taken) => {
                assert!(taken.success, "{taken:?}");
                partition.next = taken.curr_offset.unwrap() / INDEX;
                let Partition { next, asked: wanted, confirmed, .. } = *partition;
                assert!(
                    next == wanted || next == confirmed && asked != Asked::Reset,
                    "partition {number}: the group begins at {next}: it asked for {wanted} and {confirmed} is confirmed"
                );
                if asked == Asked::Reset {
                    partition.confirmed = next;
                }
            }
            Response::GetMessages(pack) => {
                partition.ended = pack.messages.is_empty();
                assert!(pack.success || pack.err_code == 404, "{pack:?}");
                for message in &pack.messages {
                    let next = partition.next;
                    assert!(next < partition.sent, "altered: message {number}.{next} was never sent");
                    assert_eq!(message.pay_load_data, body(number, next), "altered: message {number}.{next}");
                    partition.next += 1;
                }
            }
            Response::CommitOffset(committed) => {
                assert!(committed.success, "{committed:?}");
                partition.confirmed = committed.curr_offset.unwrap() / INDEX;
                assert_eq!(partition.confirmed, partition.asked);
            }
            other => panic!("{asked:?}: {other:?}"),
        }
    }
}

fn call(world: &mut World, asked: Asked, partition: usize, request: Request) {
    let client = &mut world.clients.tubemq;
    client.serial += 1;
    client.calls.insert(client.serial, (asked, partition));
    let mut out = Transmit::default();
    Call::new(request, Duration::from_secs(10)).encode(client.serial, &mut out).unwrap();
    let seat = client.seat.unwrap();
    world.send(TUBEMQ, seat, &out.take());
}

fn register(world: &mut World, asked: Asked, partition: usize, offset: Option<i64>) {
    let request = pb::RegisterRequestC2b {
        op_type: 31,
        client_id: "c".into(),
        group_name: "g".into(),
        topic_name: TOPIC.into(),
        partition_id: partition as i32,
        curr_offset: offset,
        ..Default::default()
    };
    call(world, asked, partition, Request::PartitionRegister(Box::new(request)));
}

fn take(world: &mut World) {
    for partition in 0..PARTITIONS {
        register(world, Asked::Take, partition, None);
    }
    settled(world);
}

/// Moves the group to a message.
fn reset(world: &mut World, partition: usize, number: i64) {
    world.clients.tubemq.partitions[partition].asked = number;
    register(world, Asked::Reset, partition, Some(number * INDEX));
}

fn settled(world: &mut World) {
    world.settle();
    assert!(world.clients.tubemq.calls.is_empty(), "no answer");
}

fn send(world: &mut World, partition: usize) {
    let number = world.clients.tubemq.partitions[partition].sent;
    world.clients.tubemq.partitions[partition].sent += 1;
    let message = message(TOPIC, partition as i32, &body(partition, number));
    call(world, Asked::Send, partition, Request::SendMessage(Box::new(message)));
}

fn get(world: &mut World, partition: usize) {
    let request = pb::GetMessageRequestC2b {
        client_id: "c".into(),
        group_name: "g".into(),
        topic_name: TOPIC.into(),
        partition_id: partition as i32,
        last_pack_consumed: Some(true),
        manual_commit_offset: Some(true),
        esc_flow_ctrl: Some(false),
    };
    call(world, Asked::Get, partition, Request::GetMessages(request));
}

fn confirm(world: &mut World, partition: usize) {
    let Partition { next, asked, .. } = &mut world.clients.tubemq.partitions[partition];
    *asked = *next;
    let request = pb::CommitOffsetRequestC2b {
        client_id: "c".into(),
        group_name: "g".into(),
        topic_name: TOPIC.into(),
        partition_id: partition as i32,
        last_pack_consumed: Some(true),
    };
    call(world, Asked::Confirm, partition, Request::CommitOffset(request));
}

pub fn set_up(world: &mut World) {
    let topics = world.node.protocols[TUBEMQ].topics_mut().unwrap();
    topics.create_topic(TOPIC, PARTITIONS as u32).unwrap();
    world.settle();
    world.clients.tubemq.created = true;
    world.clients.tubemq.seat = Some(world.node.connect(TUBEMQ));
    take(world);
}

pub fn step(world: &mut World, chance: &mut Chance) {
    let number = chance.below(PARTITIONS);
    let client = &world.clients.tubemq;
    let busy = client.calls.values().any(|call| call.1 == number && call.0 != Asked::Send);
    let Partition { stored, next, asked, .. } = client.partitions[number];
    match chance.below(100) {
        0..46 => (0..chance.within(1, 4)).for_each(|_| send(world, number)),
        46..68 if !busy => get(world, number),
        68..78 if !busy => {
            world.played("reset");
            reset(world, number, chance.below(stored as usize + 1) as i64);
        }
        _ if !busy && next > asked => confirm(world, number),
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
    // What the group is through with is still there.
    for partition in 0..PARTITIONS {
        reset(world, partition, 0);
    }
    settled(world);
    read(world);
    for (number, partition) in world.clients.tubemq.partitions.iter_mut().enumerate() {
        let found = partition.next;
        assert!(
            (partition.stored..=partition.sent).contains(&found),
            "partition {number}: {found} messages were found: {} were sent and {} confirmed",
            partition.sent,
            partition.stored
        );
        (partition.sent, partition.stored) = (found, found);
    }
    let before = world.clients.tubemq.partitions;
    for partition in 0..PARTITIONS {
        send(world, partition);
    }
    settled(world);
    read(world);
    for (partition, before) in before.into_iter().enumerate() {
        let Partition { stored, next, .. } = world.clients.tubemq.partitions[partition];
        assert_eq!(stored, before.stored + 1, "no answer");
        assert_eq!(next, stored, "the new message does not come");
        confirm(world, partition);
    }
    settled(world);
    for partition in world.clients.tubemq.partitions {
        assert_eq!(partition.confirmed, partition.stored);
    }
}

/// Reads all partitions to their ends.
fn read(world: &mut World) {
    for partition in &mut world.clients.tubemq.partitions {
        partition.ended = false;
    }
    loop {
        let ended = world.clients.tubemq.partitions.map(|partition| partition.ended);
        if ended == [true; PARTITIONS] {
            return;
        }
        for partition in (0..PARTITIONS).filter(|partition| !ended[*partition]) {
            get(world, partition);
        }
        settled(world);
    }
}
