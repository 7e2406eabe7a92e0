//! A broker's answers into a client's consumer of a partition, among calls of its user: one call at
//! a time, messages only while it is held, and an acknowledgement only of what was handed out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_base::error::{Error, ErrorKind};
use forebay_tubemq::balance::PartitionLocation;
use forebay_tubemq::command::{Request, Response};
use forebay_tubemq::consumer::{Consumer, Event, Message, Options, Start};
use forebay_tubemq::message::{Outgoing, checksum, pack};
use forebay_tubemq::pb;
use forebay_tubemq::topic::{Broker, Partition};
use crate::meter::Meter;
use crate::rule::AFTER;
use crate::script::Script;

const CODES: [i32; 12] = [200, 200, 200, 200, 404, 411, 412, 415, 450, 452, 500, 555];

fn messages(script: &mut Script<'_>, count: u8) -> Vec<pb::TransferedMessage> {
    let one = |_| {
        let what = script.byte();
        let body = script.take(usize::from(what >> 3));
        let outgoing =
            Outgoing { payload: body, message_type: (what & 1 == 1).then_some("a"), ..Outgoing::default() };
        let packed = pack(&outgoing);
        let (flag, pay_load_data) = match packed {
            Ok(packed) if what & 2 == 0 => (packed.flag, packed.data),
            _ => (i32::from(what & 1), body.to_vec().into()),
        };
        let check_sum = checksum(&pay_load_data) ^ i32::from(what & 7 == 7);
        pb::TransferedMessage { message_id: i64::from(what), check_sum, pay_load_data, flag }
    };
    (0..count).map(one).collect()
}

/// An answer that may fit the request or not.
fn answer(script: &mut Script<'_>, request: &Request) -> Result<Response, Error> {
    let what = script.byte();
    let code = CODES[usize::from(what & 15) % CODES.len()];
    let success = code == 200 || what == 0xff;
    let offset = |script: &mut Script<'_>| match script.byte() {
        0..64 => None,
        small @ 64..240 => Some(i64::from(small) * 28),
        _ => Some(script.long() as i64),
    };
    if what >> 4 == 15 {
        return Err(Error::new(ErrorKind::Timeout, "no answer"));
    }
    Ok(match request {
        Request::PartitionRegister(_) if what >> 4 != 14 => {
            Response::PartitionRegister(pb::RegisterResponseB2c {
                success,
                err_code: code,
                err_msg: "text".into(),
                curr_offset: offset(script),
                max_offset: offset(script),
            })
        }
        Request::CommitOffset(_) if what >> 4 != 14 => Response::CommitOffset(pb::CommitOffsetResponseB2c {
            success,
            err_code: code,
            err_msg: "text".into(),
            curr_offset: offset(script),
            max_offset: offset(script),
        }),
        _ => {
            let count = script.byte() % 12;
            Response::GetMessages(pb::GetMessageResponseB2c {
                success,
                err_code: code,
                err_msg: Some("The request offset reached maxOffset!".into()),
                messages: messages(script, count),
                curr_offset: offset(script),
                min_limit_time: offset(script).map(|time| time as i32),
                esc_flow_ctrl: Some(what & 16 == 16),
                curr_data_dlt: offset(script),
                require_slow: Some(what & 32 == 32),
                max_offset: offset(script),
            })
        }
    })
}

/// Plays one input.
pub fn play(data: &[u8]) {
    let mut script = Script(data);
    let Some(first) = script.next() else { return };
    let mut now = Instant::now();
    let broker = Broker { id: 1, host: "127.0.0.1".into(), port: 8123 };
    let filters: &[String] = if first & 4 == 4 { &["a".to_owned()] } else { &[] };
    let start = |what: u8, script: &mut Script<'_>| match what & 3 {
        0 => Start::First,
        1 => Start::Latest,
        2 => Start::Max,
        _ => Start::Offset(i64::from(script.byte()) * 28),
    };
    let options = Options {
        client_id: "c".into(),
        group: "g".into(),
        location: PartitionLocation {
            topic: "demo".into(),
            partition: Partition { broker: 1, id: 2 },
            broker,
        },
        filters: Arc::new(filters.iter().cloned().collect()),
        start: start(first, &mut script),
        nack_delay: Duration::from_secs(1),
        poll_interval: Duration::from_millis(100),
    };
    let visit = pb::AuthorizedInfo { visit_authorized_token: 5, auth_authorized_token: None };
    let mut meter = Meter::default();
    meter.came(data.len());
    let mut consumer = Consumer::new(options, now);
    consumer.attach();
    let mut open: Option<Request> = None;
    let (mut taken, mut came, mut got): (Vec<Message>, usize, usize) = Default::default();
    // Packs that came, and those that the broker was told are consumed.
    let (mut packs, mut consumed) = (0, 0);
    while let Some(op) = script.next() {
        let what = op >> 4;
        match op & 15 {
            0..3 => {
                let may_fetch = what & 1 == 0;
                let request = meter.run(|| consumer.poll_request(now, may_fetch, &visit));
                if let Some(request) = request {
                    assert!(open.is_none(), "one call at a time");
                    if let Request::GetMessages(get) = &request {
                        assert!(may_fetch && consumer.available() == 0, "the last pack was taken");
                        consumed += usize::from(get.last_pack_consumed == Some(true));
                        assert!(consumed <= packs, "{consumed} packs of {packs}");
                    }
                    open = Some(request);
                }
            }
            3..6 => {
                let Some(request) = open.take() else { continue };
                let answer = answer(&mut script, &request);
                if let Ok(Response::GetMessages(pack)) = &answer {
                    came += pack.messages.len();
                    packs += 1;
                }
                meter.run(|| consumer.handle_answer(now, answer));
            }
            6 | 7 => {
                let mut out: Vec<Message> = Vec::new();
                meter.run(|| consumer.take(usize::from(what) + 1, &mut out));
                got += out.len();
                taken.append(&mut out);
            }
            8..11 => {
                let Some(message) = taken.get(usize::from(script.byte()) % taken.len().max(1)) else {
                    continue;
                };
                match op & 15 {
                    8 => meter.run(|| consumer.ack(now, message)),
                    9 => meter.run(|| consumer.ack_cumulative(now, message)),
                    _ => {
                        let delay = (what & 1 == 1).then_some(Duration::from_millis(10));
                        meter.run(|| consumer.nack(now, message, delay));
                    }
                }
            }
            11 => {
                now += Duration::from_millis(50) * u32::from(what);
                let _ = consumer.poll_timeout(true);
            }
            12 => {
                consumer.detach();
                open = None;
                consumer.attach();
            }
            13 => {
                let to = start(what, &mut script);
                meter.run(|| consumer.seek(now, to));
            }
            14 => match what & 3 {
                0 => consumer.set_paused(what & 4 == 4),
                1 => consumer.redeliver(now),
                2 => consumer.lost(now, None),
                _ if what == 15 => consumer.leave(),
                _ => consumer.set_priority(i32::from(what)),
            },
            _ => {
                let _ = (consumer.phase(), consumer.offset(), consumer.max_offset(), consumer.behind());
            }
        }
        while let Some(event) = consumer.poll_event() {
            if let Event::Damaged(count) = event {
                assert!(count as usize <= came);
            }
        }
    }
    assert!(got <= came, "{got} messages of {came}");
    meter.check(AFTER, 1);
}
