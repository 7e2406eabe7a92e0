//! Clients' bytes into the embedded master and broker, from several connections at once, with
//! meaningful calls among them and calls that are made many times: each call has its answer, no
//! offset moves to a position without a message, and everything costs in proportion to the bytes.

use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_broker::store::Found;
use forebay_broker::tubemq::{Broker, Settings, Users};
use forebay_base::transmit::Transmit;
use forebay_tubemq::command::{Call, Reply, Request, Response};
use forebay_tubemq::frame::Decoder;
use forebay_tubemq::pb;
use crate::hub::{self, Hub, World as _};
use crate::rule::{AFTER, BEFORE};
use crate::script::{Script, repeat};
use crate::settings;

const TOPICS: [&str; 3] = ["demo", "late", "no-topic"];
const LARGEST: usize = 28 << 20;

struct World {
    hub: Hub<Broker>,
    serial: u32,
    secured: bool,
}

impl World {
    fn new(flags: u8) -> Self {
        let (stored, secured, large) = (flags & 1 == 1, flags & 4 != 0, flags & 8 != 0);
        let now = Instant::now();
        let settings = Settings {
            stored,
            max_message_size: 4096,
            retention: Duration::from_secs(60),
            offset_retention: Duration::from_secs(60),
            max_store: 1 << 20,
            max_topics: 20,
            users: secured.then(|| Users::parse("alice:her-word\n").unwrap()),
            ..settings::tubemq(now)
        };
        let mut broker = Broker::new(settings, Found::default(), None, now);
        broker.create_topic("demo", 2).unwrap();
        let mut world = Self { hub: Hub::new(broker, now, large), serial: 0, secured };
        world.hub.settle();
        world
    }

    fn call(&mut self, index: usize, kind: u8, what: u8, count: usize) {
        // A frame that is not whole yet would take it in.
        if !self.hub.is_amid(index) {
            let bytes = repeat(count, self.hub.room(), |_| {
                self.serial += 1;
                let mut out = Transmit::default();
                let call = Call::new(request(kind, what, index), Duration::from_secs(1));
                call.encode(self.serial, &mut out).expect("it is small");
                out.take().to_vec()
            });
            if count > 1 {
                self.hub.charge(bytes.len());
            }
            self.feed(index, &bytes);
        }
    }
}

impl hub::World for World {
    type Broker = Broker;

    fn hub(&mut self) -> &mut Hub<Broker> {
        &mut self.hub
    }

    /// Decodes the broker's output, which must be TubeMQ.
    fn listen(&mut self, index: usize) {
        let (mut bytes, mut decoder) = (self.hub.listen(index), Decoder::new(LARGEST));
        while let Some(frame) = decoder.next(&mut bytes).expect("frames") {
            let Reply::Response { response, .. } = Reply::decode(&frame.payload).expect("an answer") else {
                continue;
            };
            assert_eq!(response.outcome().is_ok(), response.code().0 == 200);
            match response {
                Response::GetMessages(pack) if pack.success => {
                    let (first, end) = (pack.curr_offset.unwrap(), pack.max_offset.unwrap());
                    assert!(first % 28 == 0 && end % 28 == 0 && 0 <= first && first < end);
                    assert!(
                        end as u64 <= self.hub.broker.stats().messages_in * 28,
                        "what was not sent is not given out"
                    );
                }
                Response::PartitionRegister(took) if took.success => {
                    assert!(took.max_offset.is_none_or(|end| took.curr_offset.unwrap() <= end));
                }
                Response::CommitOffset(done) if done.success => {
                    assert!(done.curr_offset.unwrap() <= done.max_offset.unwrap());
                }
                _ => {}
            }
        }
        assert!(bytes.is_empty(), "half a frame");
    }

    fn step(&mut self, index: usize, kind: u8, script: &mut Script<'_>) {
        match kind {
            3..31 => {
                let what = script.byte();
                self.call(index, kind, what, 1);
            }
            31 => {
                let (kind, what, count) = (script.byte(), script.byte(), script.count());
                self.call(index, kind, what, count);
            }
            size => self.feed(index, script.take(usize::from(size) - 31)),
        }
    }
}

/// A call of which the input chooses the parts.
fn request(kind: u8, what: u8, index: usize) -> Request {
    let bit = |number: u8| what >> number & 1 == 1;
    let client_id = format!("client{index}");
    let group_name = ["g", "h"][usize::from(bit(0))].to_owned();
    let topic_name = TOPICS[usize::from(what >> 1 & 3) % 3].to_owned();
    let partition_id = i32::from(what >> 3 & 3);
    let host_name = "127.0.0.1".to_owned();
    match kind % 12 {
        0 => Request::SendMessage(Box::new(pb::SendMessageRequestP2b {
            client_id,
            topic_name,
            partition_id,
            data: Bytes::from(vec![what; 1 + usize::from(what)]),
            flag: i32::from(bit(0)),
            check_sum: -1,
            ..Default::default()
        })),
        1 => Request::PartitionRegister(Box::new(pb::RegisterRequestC2b {
            op_type: if bit(5) { 32 } else { 31 },
            client_id,
            group_name,
            topic_name,
            partition_id,
            read_status: i32::from(what >> 6),
            curr_offset: bit(7).then(|| i64::from(what) * 14),
            filter_cond_str: if bit(6) { vec!["a".into(); usize::from(what)] } else { Vec::new() },
            ..Default::default()
        })),
        2 | 3 => Request::GetMessages(pb::GetMessageRequestC2b {
            client_id,
            partition_id,
            group_name,
            topic_name,
            last_pack_consumed: Some(bit(5)),
            manual_commit_offset: Some(bit(6)),
            esc_flow_ctrl: None,
        }),
        4 => Request::CommitOffset(pb::CommitOffsetRequestC2b {
            client_id,
            topic_name,
            partition_id,
            group_name,
            last_pack_consumed: Some(bit(5)),
        }),
        5 => Request::PartitionHeartbeat(Box::new(pb::HeartBeatRequestC2b {
            client_id,
            group_name,
            partition_info: vec![format!("1:127.0.0.1:8123#{topic_name}:{partition_id}")],
            ..Default::default()
        })),
        6 => Request::ConsumerRegister(Box::new(pb::RegisterRequestC2m {
            client_id,
            group_name,
            host_name,
            topic_list: vec![topic_name],
            ..Default::default()
        })),
        7 => Request::ConsumerHeartbeat(Box::new(pb::HeartRequestC2m {
            client_id,
            group_name,
            subscribe_info: vec![format!("c@g#1:h:1#{topic_name}:{partition_id}")],
            report_subscribe_info: bit(5),
            event: bit(6).then(|| pb::EventProto {
                rebalance_id: Some(1),
                status: Some(2),
                ..Default::default()
            }),
            ..Default::default()
        })),
        8 => Request::ConsumerClose(pb::CloseRequestC2m { client_id, group_name, auth_info: None }),
        9 => Request::BalanceRegister(Box::new(pb::RegisterRequestC2mv2 {
            client_id,
            group_name,
            host_name,
            topic_list: vec![topic_name],
            source_count: i32::from(what >> 5) - 1,
            node_id: partition_id - 1,
            ..Default::default()
        })),
        10 => Request::PartitionMetadata(pb::GetPartMetaRequestC2m {
            client_id,
            group_name,
            ..Default::default()
        }),
        _ => Request::ProducerHeartbeat(pb::HeartRequestP2m {
            client_id,
            topic_list: vec![topic_name],
            ..Default::default()
        }),
    }
}

/// Plays one input.
pub fn play(data: &[u8]) {
    let mut script = Script(data);
    let Some(first) = script.next() else { return };
    let mut world = World::new(first);
    hub::play(&mut world, &mut script);
    // Silent members have left and hold nothing.
    world.hub.wait(Duration::from_secs(100));
    world.hub.check(if world.secured { BEFORE } else { AFTER });
    let stats = world.hub.broker.stats();
    assert_eq!((stats.producers, stats.consumers), (0, 0));
    assert!(!world.secured || stats.messages_in == 0);
}
