//! The embedded TubeMQ master and broker as calls and answers. No socket and no clock: the state
//! machine, on a database, is driven by hand.

use std::time::Duration;

use bytes::BytesMut;
use forebay_base::error::ErrorKind;
use forebay_base::transmit::Transmit;
use forebay_broker::protocol::Protocol as _;
use forebay_broker::tubemq::Users;
use forebay_sqlite::{Outcome, Report};
use forebay_tubemq::command::{Call, Reply, Request, Response};
use forebay_tubemq::frame::{Decoder, Frame};
use forebay_tubemq::pb;

use crate::support::settings::WALL_MS;
use crate::support::tubemq::*;

mod admission;
mod consumers;
mod groups;
mod growth;
mod operate;
mod permissions;
mod producers;
mod strangers;

const NO_FILTERS: &[&str] = &[];

fn attributed(attributes: &str, body: &str) -> Vec<u8> {
    [&(attributes.len() as u32).to_be_bytes(), attributes.as_bytes(), body.as_bytes()].concat()
}

/// A client's calls, which return the fields that matter here.
impl Bench {
    fn produce(&mut self, seat: u64, topic: &str, partition: i32, data: &[u8]) -> pb::SendMessageResponseB2p {
        match self.call(seat, Request::SendMessage(Box::new(message(topic, partition, data)))) {
            Response::SendMessage(response) => response,
            other => panic!("{other:?}"),
        }
    }

    fn register_producer(&mut self, seat: u64, client: &str) -> pb::RegisterResponseM2p {
        let request = pb::RegisterRequestP2m {
            client_id: client.into(),
            broker_check_sum: -1,
            host_name: "127.0.0.1".into(),
            ..Default::default()
        };
        match self.call(seat, Request::ProducerRegister(request)) {
            Response::ProducerRegister(response) => response,
            other => panic!("{other:?}"),
        }
    }

    fn beat_producer(&mut self, seat: u64, client: &str, topics: &[&str]) -> pb::HeartResponseM2p {
        let request = pb::HeartRequestP2m {
            client_id: client.into(),
            broker_check_sum: -1,
            host_name: "127.0.0.1".into(),
            topic_list: topics.iter().map(|topic| (*topic).to_owned()).collect(),
            ..Default::default()
        };
        match self.call(seat, Request::ProducerHeartbeat(request)) {
            Response::ProducerHeartbeat(response) => response,
            other => panic!("{other:?}"),
        }
    }

    fn take(
        &mut self,
        seat: u64,
        client: &str,
        id: i32,
        change: impl FnOnce(&mut pb::RegisterRequestC2b),
    ) -> pb::RegisterResponseB2c {
        let mut request = pb::RegisterRequestC2b {
            op_type: 31,
            client_id: client.into(),
            group_name: "g".into(),
            topic_name: "demo".into(),
            partition_id: id,
            ..Default::default()
        };
        change(&mut request);
        match self.call(seat, Request::PartitionRegister(Box::new(request))) {
            Response::PartitionRegister(response) => response,
            other => panic!("{other:?}"),
        }
    }

    fn get(
        &mut self,
        seat: u64,
        client: &str,
        id: i32,
        consumed: bool,
        manual: bool,
    ) -> pb::GetMessageResponseB2c {
        let request = pb::GetMessageRequestC2b {
            client_id: client.into(),
            partition_id: id,
            group_name: "g".into(),
            topic_name: "demo".into(),
            last_pack_consumed: Some(consumed),
            manual_commit_offset: Some(manual),
            esc_flow_ctrl: Some(false),
        };
        match self.call(seat, Request::GetMessages(request)) {
            Response::GetMessages(response) => response,
            other => panic!("{other:?}"),
        }
    }

    fn commit(&mut self, seat: u64, client: &str, id: i32, consumed: bool) -> pb::CommitOffsetResponseB2c {
        match self.call(seat, Request::CommitOffset(commit(client, id, consumed))) {
            Response::CommitOffset(response) => response,
            other => panic!("{other:?}"),
        }
    }

    fn beat_partitions(&mut self, seat: u64, client: &str, partitions: &[i32]) -> Vec<String> {
        let request = pb::HeartBeatRequestC2b {
            client_id: client.into(),
            group_name: "g".into(),
            partition_info: partitions.iter().map(|id| format!("1:127.0.0.1:8123#demo:{id}")).collect(),
            ..Default::default()
        };
        match self.call(seat, Request::PartitionHeartbeat(Box::new(request))) {
            Response::PartitionHeartbeat(response) => response.failure_info,
            other => panic!("{other:?}"),
        }
    }

    fn join(
        &mut self,
        seat: u64,
        client: &str,
        topics: &[&str],
        conditions: &[&str],
    ) -> pb::RegisterResponseM2c {
        let request = pb::RegisterRequestC2m {
            client_id: client.into(),
            group_name: "g".into(),
            host_name: "127.0.0.1".into(),
            topic_list: topics.iter().map(|topic| (*topic).to_owned()).collect(),
            topic_condition: conditions.iter().map(|condition| (*condition).to_owned()).collect(),
            ..Default::default()
        };
        match self.call(seat, Request::ConsumerRegister(Box::new(request))) {
            Response::ConsumerRegister(response) => response,
            other => panic!("{other:?}"),
        }
    }

    fn beat(
        &mut self,
        seat: u64,
        client: &str,
        held: Option<&[String]>,
        event: Option<pb::EventProto>,
    ) -> pb::HeartResponseM2c {
        let request = pb::HeartRequestC2m {
            client_id: client.into(),
            group_name: "g".into(),
            subscribe_info: held.unwrap_or_default().to_vec(),
            report_subscribe_info: held.is_some(),
            event,
            ..Default::default()
        };
        match self.call(seat, Request::ConsumerHeartbeat(Box::new(request))) {
            Response::ConsumerHeartbeat(response) => *response,
            other => panic!("{other:?}"),
        }
    }

    /// A topic with two partitions.
    fn demo() -> (Self, u64) {
        let mut bench = Self::new();
        bench.broker.create_topic("demo", 2).unwrap();
        bench.settle();
        let seat = bench.connect();
        (bench, seat)
    }
}

fn commit(client: &str, id: i32, consumed: bool) -> pb::CommitOffsetRequestC2b {
    pb::CommitOffsetRequestC2b {
        client_id: client.into(),
        topic_name: "demo".into(),
        partition_id: id,
        group_name: "g".into(),
        last_pack_consumed: Some(consumed),
    }
}

fn bodies(response: &pb::GetMessageResponseB2c) -> Vec<String> {
    let text = |m: &pb::TransferedMessage| String::from_utf8(m.pay_load_data.to_vec()).unwrap();
    response.messages.iter().map(text).collect()
}

fn done(event: &pb::EventProto) -> Option<pb::EventProto> {
    Some(pb::EventProto { status: Some(2), ..event.clone() })
}

/// Registers a producer with the user's signature and gives the visit token that the master answers
/// with.
fn visit_token(bench: &mut Bench, seat: u64) -> i64 {
    let signed = pb::AuthenticateInfo {
        user_name: "user".into(),
        timestamp: WALL_MS as i64,
        nonce: 12_345,
        oth_params: String::new(),
        signature: "RLhXalsHekYJuwfCUQXEBOxNoUc%3D".into(),
    };
    let request = pb::RegisterRequestP2m {
        client_id: "p".into(),
        broker_check_sum: -1,
        host_name: "127.0.0.1".into(),
        auth_info: Some(pb::MasterCertificateInfo { auth_info: Some(signed), authorized_token: None }),
        ..Default::default()
    };
    let Response::ProducerRegister(registered) = bench.call(seat, Request::ProducerRegister(request)) else {
        panic!("a response to a register")
    };
    assert!(registered.success, "{}", registered.err_msg);
    registered.authorized_info.unwrap().visit_authorized_token
}
