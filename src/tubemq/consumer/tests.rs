use super::*;
use crate::message::{Outgoing, checksum, pack};
use crate::topic::{Broker, Partition};

const VISIT: pb::AuthorizedInfo =
    pb::AuthorizedInfo { visit_authorized_token: 5, auth_authorized_token: None };

fn location() -> PartitionLocation {
    let broker = Broker { id: 1, host: "127.0.0.1".into(), port: 8123 };
    PartitionLocation { topic: "demo".into(), partition: Partition { broker: 1, id: 2 }, broker }
}

fn options() -> Options {
    Options {
        client_id: "c".into(),
        group: "g".into(),
        location: location(),
        filters: Arc::default(),
        start: Start::Latest,
        nack_delay: Duration::from_secs(1),
        poll_interval: Duration::from_millis(100),
    }
}

fn registered(code: i32) -> Result<Response> {
    Ok(Response::PartitionRegister(pb::RegisterResponseB2c {
        success: code == 200,
        err_code: code,
        err_msg: String::new(),
        curr_offset: Some(0),
        max_offset: Some(280),
    }))
}

fn got(code: i32, text: &str, messages: &[(&str, &str)]) -> Result<Response> {
    let messages = messages.iter().map(|(payload, message_type)| {
        let message_type = (!message_type.is_empty()).then_some(*message_type);
        let outgoing = Outgoing { payload: payload.as_bytes(), message_type, ..Outgoing::default() };
        let packed = pack(&outgoing).unwrap();
        pb::TransferedMessage {
            // The same message has the same number each time.
            message_id: payload.bytes().fold(0, |id, byte| id * 256 + i64::from(byte)),
            check_sum: checksum(&packed.data),
            pay_load_data: packed.data,
            flag: packed.flag,
        }
    });
    Ok(Response::GetMessages(pb::GetMessageResponseB2c {
        success: code == 200,
        err_code: code,
        err_msg: Some(text.into()),
        messages: messages.collect(),
        curr_offset: Some(if code == 200 { 28 } else { -1 }),
        min_limit_time: Some(if code == 452 { 700 } else { -1 }),
        esc_flow_ctrl: Some(false),
        curr_data_dlt: Some(if code == 200 { 900 } else { -1 }),
        require_slow: None,
        max_offset: (code == 200).then_some(280),
    }))
}

fn disconnected() -> Result<Response> {
    Err(Error::new(ErrorKind::Disconnected, "cut"))
}

const END: &str = "The request offset reached maxOffset!";

struct Case {
    consumer: Consumer,
    now: Instant,
}

impl Case {
    /// One that holds its partition and is about to ask.
    fn new(options: Options) -> Self {
        let now = Instant::now();
        let mut case = Self { consumer: Consumer::new(options, now), now };
        case.consumer.attach();
        case.register(FROM_LATEST, None);
        case.answer(registered(200));
        assert!(matches!(case.consumer.poll_event(), Some(Event::Registered(Ok(())))));
        case
    }

    fn ask(&mut self) -> Option<Request> {
        self.consumer.poll_request(self.now, true, &VISIT)
    }

    fn answer(&mut self, result: Result<Response>) {
        self.consumer.handle_answer(self.now, result);
    }

    /// Lets the time pass until a call is due.
    fn wait(&mut self) -> Duration {
        let due = self.consumer.poll_timeout(true).expect("it waits for a time");
        let wait = due.saturating_duration_since(self.now);
        if !wait.is_zero() {
            assert!(self.ask().is_none(), "not before its time");
        }
        self.now = self.now.max(due);
        wait
    }

    fn register(&mut self, status: i32, offset: Option<i64>) {
        let Some(Request::PartitionRegister(request)) = self.ask() else { panic!("a registration is due") };
        assert_eq!((request.op_type, request.read_status, request.curr_offset), (REGISTER, status, offset));
        assert_eq!(request.auth_info, Some(VISIT));
    }

    /// The get that is due says this of the last pack.
    fn get(&mut self, consumed: bool) {
        let Some(Request::GetMessages(request)) = self.ask() else { panic!("a get is due") };
        assert_eq!((request.last_pack_consumed, request.manual_commit_offset), (Some(consumed), Some(false)));
        assert!(self.ask().is_none(), "one call at a time");
    }

    fn take(&mut self) -> Vec<Message> {
        let mut out = Vec::new();
        self.consumer.take(usize::MAX, &mut out);
        out
    }

    fn ack(&mut self, messages: &[Message]) {
        messages.iter().for_each(|message| self.consumer.ack(self.now, message));
    }
}

fn texts(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| std::str::from_utf8(&message.payload).unwrap()).collect()
}

#[test]
fn the_get_after_a_pack_says_that_all_of_it_was_consumed() {
    let mut case = Case::new(options());
    case.get(false);
    case.answer(got(200, "", &[("a", ""), ("b", "")]));
    let messages = case.take();
    assert_eq!(texts(&messages), ["a", "b"]);
    assert_eq!((messages[0].pack.offset, messages[1].pack.redelivered), (28, 0));
    assert!(case.ask().is_none(), "nothing is asked for while a pack is held");
    case.ack(&messages[..1]);
    case.ack(&messages[..1]);
    assert!(case.ask().is_none(), "one of two is acknowledged, twice");
    case.ack(&messages[1..]);
    case.get(true);
    case.answer(got(404, END, &[]));
    assert_eq!((case.consumer.offset(), case.consumer.behind()), (Some(280), Some(0)));
    case.wait();
    case.get(false);
}

#[test]
fn the_first_registration_says_where_to_begin_and_later_ones_do_not() {
    for (start, status, offset) in [
        (Start::First, FROM_FIRST, None),
        (Start::Latest, FROM_LATEST, None),
        (Start::Max, FROM_MAX, None),
        (Start::Offset(56), FROM_FIRST, Some(56)),
    ] {
        let now = Instant::now();
        let mut case = Case { consumer: Consumer::new(Options { start, ..options() }, now), now };
        assert!(case.ask().is_none(), "there is no connection");
        case.consumer.attach();
        case.register(status, offset);
        case.answer(registered(410));
        case.wait();
        case.register(status, offset);
        case.answer(registered(200));
        case.get(false);
        case.answer(got(411, "", &[]));
        case.wait();
        case.register(FROM_FIRST, None);
    }
}

#[test]
fn a_partition_that_another_holds_is_tried_again_later() {
    let now = Instant::now();
    let mut case = Case { consumer: Consumer::new(options(), now), now };
    case.consumer.attach();
    case.register(FROM_LATEST, None);
    case.answer(registered(410));
    assert!(
        matches!(case.consumer.poll_event(), Some(Event::Registered(Err(e))) if e.kind() == ErrorKind::ConsumerBusy)
    );
    assert_eq!((case.consumer.phase(), case.consumer.is_held()), (Phase::Occupied, false));
    assert_eq!(case.wait(), RETRY);
    case.register(FROM_LATEST, None);
    case.answer(registered(200));
    assert_eq!((case.consumer.phase(), case.consumer.is_held()), (Phase::Reading, true));
    assert!(case.consumer.poll_event().is_none(), "the first attempt only is told");
}

#[test]
fn nothing_is_no_end_unless_the_broker_says_so() {
    let mut case = Case::new(options());
    for _ in 0..3 {
        case.get(false);
        case.answer(got(200, "", &[]));
        assert_eq!(case.wait(), Duration::ZERO);
    }
    case.get(false);
    case.answer(got(404, "Can't found Message by index!", &[]));
    assert_eq!(case.wait(), FIRST_WAIT);
    let mut waits = Vec::new();
    for _ in 0..9 {
        case.get(false);
        case.answer(got(404, END, &[]));
        waits.push(case.wait().as_millis());
    }
    assert_eq!(waits, [2, 4, 8, 16, 32, 64, 100, 100, 100]);
    case.get(false);
    case.answer(got(200, "", &[("a", "")]));
    let messages = case.take();
    case.ack(&messages);
    case.get(true);
    case.answer(got(404, END, &[]));
    assert_eq!(case.wait(), FIRST_WAIT);
}

#[test]
fn a_nack_has_the_pack_given_again_without_what_was_acknowledged() {
    let mut case = Case::new(options());
    case.get(false);
    case.answer(got(200, "", &[("a", ""), ("b", ""), ("c", ""), ("d", "")]));
    let mut messages = Vec::new();
    case.consumer.take(3, &mut messages);
    case.ack(&messages[..1]);
    case.consumer.nack(case.now, &messages[1], None);
    assert_eq!((case.consumer.available(), case.consumer.available_bytes()), (0, 0), "d comes again");
    // Acknowledged in between: known when it comes.
    case.ack(&messages[2..]);
    assert_eq!(case.wait(), Duration::from_secs(1));
    case.get(false);
    case.answer(got(200, "", &[("a", ""), ("b", ""), ("c", ""), ("d", ""), ("e", "")]));
    let again = case.take();
    assert_eq!(texts(&again), ["b", "d", "e"]);
    assert_eq!(again[0].pack.redelivered, 1);
    // That of the first time counts for the second.
    case.ack(&messages[1..2]);
    case.ack(&again[1..]);
    case.get(true);
}

#[test]
fn a_pack_survives_its_connection_and_is_acknowledged_over_the_next() {
    let mut case = Case::new(options());
    case.get(false);
    case.answer(got(200, "", &[("a", ""), ("b", "")]));
    case.consumer.detach();
    assert!(case.consumer.poll_timeout(true).is_none());
    let messages = case.take();
    case.ack(&messages);
    assert!(case.ask().is_none());
    case.consumer.attach();
    case.get(true);
}

#[test]
fn what_is_acknowledged_while_it_waits_to_be_delivered_again_is_not_delivered() {
    let mut case = Case::new(options());
    case.get(false);
    let pack = || got(200, "", &[("a", ""), ("b", ""), ("c", "")]);
    case.answer(pack());
    let messages = case.take();
    case.consumer.redeliver(case.now);
    case.get(false);
    case.answer(pack());
    case.ack(&messages[1..2]);
    assert_eq!((case.consumer.available(), case.consumer.available_bytes()), (2, 2));
    assert!(case.ask().is_none());
    case.ack(&messages[..1]);
    assert_eq!(texts(&case.take()), ["c"]);
    assert!(case.ask().is_none());
    case.consumer.redeliver(case.now);
    case.get(false);
    case.answer(pack());
    case.consumer.ack_cumulative(case.now, &messages[2]);
    assert_eq!((case.consumer.available(), case.consumer.available_bytes()), (0, 0));
    case.get(true);
    case.answer(pack());
    assert_eq!(texts(&case.take()), ["a", "b", "c"], "the next pack");
}

#[test]
fn what_a_cut_may_have_given_unseen_is_asked_for_again() {
    let mut case = Case::new(options());
    case.get(false);
    case.answer(got(200, "", &[("a", ""), ("b", "")]));
    let messages = case.take();
    case.ack(&messages);
    case.get(true);
    case.answer(disconnected());
    case.consumer.detach();
    case.consumer.attach();
    case.wait();
    // "consumed" would acknowledge a pack that was never seen.
    case.get(false);
    case.answer(got(200, "", &[("a", ""), ("b", ""), ("c", "")]));
    assert_eq!(texts(&case.take()), ["c"]);
}

#[test]
fn a_broker_that_forgot_the_consumer_has_it_register_again() {
    for code in [401, 411, 412, 415] {
        let mut case = Case::new(options());
        case.get(false);
        case.answer(got(404, "", &[]));
        case.wait();
        case.get(false);
        case.answer(got(code, "", &[]));
        assert!(!case.consumer.is_held());
        assert_eq!(matches!(case.consumer.poll_event(), Some(Event::Refresh)), code == 415);
        case.register(FROM_FIRST, None);
        // One that forgets it again is not asked at once.
        case.answer(registered(200));
        case.get(false);
        case.answer(got(code, "", &[]));
        assert_eq!(case.wait(), RETRY);
        case.register(FROM_FIRST, None);
    }
    let mut case = Case::new(options());
    case.get(false);
    case.answer(got(200, "", &[("a", ""), ("b", "")]));
    let messages = case.take();
    case.ack(&messages[..1]);
    case.consumer.lost(case.now, Some(Code::NoNode));
    case.register(FROM_FIRST, None);
    case.answer(registered(200));
    case.get(false);
    case.answer(got(200, "", &[("a", ""), ("b", "")]));
    assert_eq!(texts(&case.take()), ["b"], "the broker did not hear of a, we remember it");
    // Nor of a pack that was about to be acknowledged.
    let mut case = Case::new(options());
    case.get(false);
    case.answer(got(200, "", &[("a", ""), ("b", "")]));
    let messages = case.take();
    case.ack(&messages);
    case.consumer.lost(case.now, Some(Code::NoNode));
    case.register(FROM_FIRST, None);
    case.answer(registered(200));
    case.get(false);
    case.answer(got(200, "", &[("a", ""), ("b", ""), ("c", "")]));
    assert_eq!(texts(&case.take()), ["c"]);
}

#[test]
fn a_broker_that_limits_is_asked_when_it_says() {
    let mut case = Case::new(options());
    case.get(false);
    case.answer(got(200, "", &[("a", "")]));
    let messages = case.take();
    case.ack(&messages);
    for (code, wait) in [(452, 700), (503, 300), (403, 2000), (301, 200), (777, 300)] {
        case.get(true);
        case.answer(got(code, "", &[]));
        assert_eq!(case.wait().as_millis(), wait, "{code}");
    }
    case.get(true);
}

/// With a rule for looks at nothing, and one for packs that counts 5 bytes in 5 s as too much.
fn ruled(case: &mut Case) {
    let mut flow = Flow::default();
    let text = r#"[{"type":1,"rule":[{"zeroCnt":3,"freqInMs":900}]},
                   {"type":3,"rule":[{"normFreqInMs":500,"filterFreqInMs":0,"minDataFilterFreqInMs":0}]}]"#;
    assert!(flow.default.take(Some(1), Some(text)));
    case.consumer.set_flow(flow, case.now, 0);
}

#[test]
fn a_rule_makes_the_next_pack_wait_and_not_the_acknowledgement() {
    let mut case = Case::new(options());
    ruled(&mut case);
    case.get(false);
    case.answer(got(200, "", &[("a", "")]));
    let messages = case.take();
    case.now += Duration::from_millis(200);
    assert!(case.consumer.poll_timeout(true).is_none(), "it is held");
    case.ack(&messages);
    assert!(case.consumer.wants_transmit());
    let Some(Request::CommitOffset(_)) = case.ask() else { panic!("the broker is told at once") };
    case.answer(Ok(Response::CommitOffset(pb::CommitOffsetResponseB2c {
        success: true,
        err_code: 200,
        ..Default::default()
    })));
    assert_eq!(case.wait().as_millis(), 300, "counted from the answer");
    case.get(false);
    case.answer(got(200, "", &[]));
    assert_eq!(case.wait().as_millis(), 500, "what was for others counts as a pack");
    case.get(false);
    case.answer(got(200, "", &[("b", "")]));
    let messages = case.take();
    case.consumer.nack(case.now, &messages[0], Some(Duration::ZERO));
    assert_eq!(case.wait().as_millis(), 500, "nor does a rewind pass it by");
    case.get(false);
    case.answer(got(200, "", &[("b", "")]));
    let messages = case.take();
    case.now += Duration::from_millis(501);
    case.ack(&messages);
    case.get(true);
}

#[test]
fn a_rule_makes_looks_at_an_empty_partition_rarer() {
    let mut case = Case::new(options());
    ruled(&mut case);
    let mut waits = Vec::new();
    for _ in 0..4 {
        case.get(false);
        case.answer(got(404, END, &[]));
        waits.push(case.wait().as_millis());
    }
    assert_eq!(waits, [2, 4, 900, 900]);
}

#[test]
fn a_broker_is_told_that_the_groups_rules_limit() {
    let mut case = Case::new(options());
    let mut flow = Flow::default();
    let text =
        r#"[{"type":0,"rule":[{"start":"00:00","end":"24:00","dltInM":21,"limitInM":0,"freqInMs":700}]}]"#;
    assert!(flow.group.take(Some(1), Some(text)));
    for (flow, limited) in [(Flow::default(), false), (flow, true)] {
        case.consumer.set_flow(flow, case.now, 0);
        let Some(Request::GetMessages(request)) = case.ask() else { panic!("a get is due") };
        assert_eq!(request.esc_flow_ctrl, Some(limited));
        case.answer(got(404, END, &[]));
        case.wait();
    }
}

#[test]
fn a_filter_is_applied_once_more_here() {
    let filters = Arc::new(BTreeSet::from(["Aa".to_owned()]));
    let mut case = Case::new(Options { filters, ..options() });
    assert_eq!(case.consumer.priority(), Some(READ_MEMORY));
    case.get(false);
    // The same hash to the broker.
    case.answer(got(200, "", &[("a", "BB"), ("b", "Aa"), ("c", "")]));
    let messages = case.take();
    assert_eq!(texts(&messages), ["b"]);
    case.ack(&messages);
    case.get(true);
    case.answer(got(200, "", &[("d", "BB")]));
    assert_eq!(case.consumer.available(), 0);
    case.get(true);
    case.consumer.set_priority(301);
    assert_eq!(case.consumer.priority(), Some(301), "the group's own setting counts more");
}

#[test]
fn a_broken_message_is_passed_over() {
    let mut case = Case::new(options());
    case.get(false);
    let Ok(Response::GetMessages(mut response)) = got(200, "", &[("a", ""), ("b", "")]) else {
        unreachable!()
    };
    response.messages[0].check_sum ^= 1;
    case.answer(Ok(Response::GetMessages(response)));
    assert!(matches!(case.consumer.poll_event(), Some(Event::Damaged(1))));
    let messages = case.take();
    assert_eq!(texts(&messages), ["b"]);
    case.ack(&messages);
    case.get(true);
    case.answer(got(200, "", &[("c", "")]));
    assert!(case.consumer.poll_event().is_none(), "nothing of this one is damaged");
}

#[test]
fn paused_it_asks_for_nothing_and_acknowledges_by_itself() {
    let mut case = Case::new(options());
    case.get(false);
    case.answer(got(200, "", &[("a", "")]));
    case.consumer.set_paused(true);
    let messages = case.take();
    case.ack(&messages);
    assert!(
        matches!(case.ask(), Some(Request::CommitOffset(commit)) if commit.last_pack_consumed == Some(true))
    );
    case.answer(Ok(Response::CommitOffset(pb::CommitOffsetResponseB2c {
        success: true,
        err_code: 200,
        err_msg: String::new(),
        curr_offset: Some(56),
        max_offset: Some(280),
    })));
    assert_eq!((case.consumer.phase(), case.consumer.offset()), (Phase::Paused, Some(56)));
    assert!(case.ask().is_none());
    case.consumer.set_paused(false);
    case.get(false);
}

#[test]
fn without_room_nothing_is_asked_for() {
    let mut case = Case::new(options());
    assert!(case.consumer.poll_request(case.now, false, &VISIT).is_none());
    assert_eq!(case.consumer.poll_timeout(false), None);
    case.get(false);
}

#[test]
fn leaving_says_whether_the_last_pack_was_consumed() {
    for (consumed, status) in [(true, CONSUMED), (false, NOT_CONSUMED)] {
        let mut case = Case::new(options());
        case.get(false);
        case.answer(got(200, "", &[("a", "")]));
        let messages = case.take();
        if consumed {
            case.ack(&messages);
        }
        case.consumer.leave();
        let Some(Request::PartitionRegister(request)) = case.ask() else { panic!("it unregisters") };
        assert_eq!((request.op_type, request.read_status), (UNREGISTER, status));
        case.answer(registered(200));
        assert!(matches!(case.consumer.poll_event(), Some(Event::Released)));
        assert!(case.ask().is_none());
    }
    // A partition that was never held need not be given back; without a connection the broker
    // cannot be told.
    let mut consumer = Consumer::new(options(), Instant::now());
    consumer.leave();
    assert!(matches!(consumer.poll_event(), Some(Event::Released)));
    let mut case = Case::new(options());
    case.get(false);
    case.consumer.leave();
    assert!(case.consumer.poll_event().is_none(), "the open call is waited for");
    case.answer(disconnected());
    case.consumer.detach();
    assert!(matches!(case.consumer.poll_event(), Some(Event::Released)));
}

#[test]
fn a_seek_registers_anew_and_forgets_what_was_fetched() {
    for (to, status, offset) in [
        (Start::First, FROM_FIRST, Some(0)),
        (Start::Latest, FROM_MAX, None),
        (Start::Max, FROM_MAX, None),
        (Start::Offset(84), FROM_FIRST, Some(84)),
    ] {
        let mut case = Case::new(options());
        case.get(false);
        case.answer(got(200, "", &[("a", ""), ("b", "")]));
        case.consumer.seek(case.now, to);
        assert_eq!(case.consumer.available(), 0);
        case.register(status, offset);
        case.answer(registered(200));
        assert!(matches!(case.consumer.poll_event(), Some(Event::SeekDone(Ok(())))));
        case.get(false);
        case.answer(got(200, "", &[("a", "")]));
        assert_eq!(texts(&case.take()), ["a"]);
    }
    // While a call is open it waits for the answer, whose messages are of the old place.
    let mut case = Case::new(options());
    case.get(false);
    case.consumer.seek(case.now, Start::First);
    assert!(case.ask().is_none());
    case.answer(got(200, "", &[("old", "")]));
    assert_eq!(case.consumer.available(), 0);
    case.register(FROM_FIRST, Some(0));
    // Cut now, it is sought again over the next connection.
    case.answer(disconnected());
    case.consumer.detach();
    case.consumer.attach();
    assert!(case.consumer.poll_event().is_none());
    case.register(FROM_FIRST, Some(0));
    case.answer(registered(200));
    assert!(matches!(case.consumer.poll_event(), Some(Event::SeekDone(Ok(())))));
}

#[test]
fn what_was_taken_is_revoked_when_it_comes_again_and_not_when_it_is_acknowledged() {
    let mut case = Case::new(options());
    let pack = || got(200, "", &[("a", ""), ("b", ""), ("c", "")]);
    case.get(false);
    case.answer(pack());
    let taken = case.take();
    let revoked = |case: &Case, acknowledged| -> Vec<bool> {
        taken.iter().map(|message| case.consumer.is_revoked(message, acknowledged)).collect()
    };
    case.ack(&taken[..1]);
    assert!(!case.consumer.take_revoked());
    case.consumer.nack(case.now, &taken[1], Some(Duration::ZERO));
    assert!(case.consumer.take_revoked() && !case.consumer.take_revoked());
    assert_eq!((revoked(&case, false), revoked(&case, true)), (vec![true; 3], vec![false; 3]));
    case.get(false);
    case.answer(pack());
    let again = case.take();
    assert!(!again.iter().any(|message| case.consumer.is_revoked(message, false)));
    assert_eq!(revoked(&case, false), [true; 3], "they stay so");
    // Acknowledged by its first delivery.
    case.ack(&taken[1..2]);
    assert!(case.consumer.take_revoked());
    assert_eq!(
        again.iter().map(|message| case.consumer.is_revoked(message, false)).collect::<Vec<_>>(),
        [true, false]
    );
}

#[test]
fn what_was_taken_is_revoked_when_the_partition_moves_or_goes() {
    let acts: [fn(&mut Consumer, Instant); 3] =
        [|c, now| c.seek(now, Start::First), |c, _| c.leave(), |c, _| c.end()];
    for act in acts {
        let mut case = Case::new(options());
        case.get(false);
        case.answer(got(200, "", &[("a", ""), ("b", "")]));
        let taken = case.take();
        let other = Case::new(options()).consumer;
        act(&mut case.consumer, case.now);
        assert!(case.consumer.take_revoked());
        assert!(taken.iter().all(|message| case.consumer.is_revoked(message, true)), "even if acknowledged");
        assert!(
            !taken.iter().any(|message| other.has_delivered(message) || other.is_revoked(message, false))
        );
    }
}

#[test]
fn a_cumulative_acknowledgement_takes_those_before_it_along() {
    let mut case = Case::new(options());
    case.get(false);
    case.answer(got(200, "", &[("a", ""), ("b", ""), ("c", "")]));
    let messages = case.take();
    case.consumer.ack_cumulative(case.now, &messages[1]);
    assert!(case.ask().is_none());
    case.consumer.ack_cumulative(case.now, &messages[2]);
    case.get(true);
}

#[test]
fn each_request_says_who_asks_for_which_partition() {
    let filters = Arc::new(BTreeSet::from(["one".to_owned(), "two".to_owned()]));
    let now = Instant::now();
    let options = Options { filters, start: Start::Offset(56), ..options() };
    let mut case = Case { consumer: Consumer::new(options, now), now };
    case.consumer.attach();
    let registration = pb::RegisterRequestC2b {
        op_type: REGISTER,
        client_id: "c".into(),
        group_name: "g".into(),
        topic_name: "demo".into(),
        partition_id: 2,
        read_status: FROM_FIRST,
        filter_cond_str: vec!["one".into(), "two".into()],
        curr_offset: Some(56),
        qry_priority_id: Some(READ_MEMORY),
        auth_info: Some(VISIT),
        ..Default::default()
    };
    let Some(Request::PartitionRegister(request)) = case.ask() else { panic!("a registration is due") };
    assert_eq!(*request, registration);
    case.answer(registered(200));
    let Some(Request::GetMessages(request)) = case.ask() else { panic!("a get is due") };
    let who = (request.client_id, request.group_name, request.topic_name, request.partition_id);
    assert_eq!(who, ("c".into(), "g".into(), "demo".into(), 2));
    case.answer(got(200, "", &[("a", "one")]));
    let messages = case.take();
    case.consumer.set_paused(true);
    case.ack(&messages);
    let Some(Request::CommitOffset(request)) = case.ask() else { panic!("the pack is acknowledged") };
    let who = (request.client_id, request.group_name, request.topic_name, request.partition_id);
    assert_eq!(who, ("c".into(), "g".into(), "demo".into(), 2));
    case.answer(Ok(Response::CommitOffset(pb::CommitOffsetResponseB2c {
        success: true,
        err_code: 200,
        ..Default::default()
    })));
    case.consumer.leave();
    let Some(Request::PartitionRegister(request)) = case.ask() else { panic!("it is given back") };
    // A priority is for reading.
    let given_back = pb::RegisterRequestC2b {
        op_type: UNREGISTER,
        read_status: NOT_CONSUMED,
        curr_offset: None,
        qry_priority_id: None,
        ..registration
    };
    assert_eq!(*request, given_back);
}

#[test]
fn a_registration_that_failed_is_reported_once_and_tried_again_later() {
    let now = Instant::now();
    let mut case = Case { consumer: Consumer::new(options(), now), now };
    case.consumer.attach();
    case.register(FROM_LATEST, None);
    case.answer(Err(Error::new(ErrorKind::Timeout, "no answer")));
    assert!(
        matches!(case.consumer.poll_event(), Some(Event::Registered(Err(e))) if e.kind() == ErrorKind::Timeout)
    );
    assert_eq!(case.wait(), RETRY);
    case.register(FROM_LATEST, None);
    case.answer(registered(200));
    assert!(case.consumer.poll_event().is_none());
}

#[test]
fn a_registration_that_was_cut_is_repeated_over_the_next_connection_and_reported_then() {
    let now = Instant::now();
    let mut case = Case { consumer: Consumer::new(options(), now), now };
    case.consumer.attach();
    case.register(FROM_LATEST, None);
    case.consumer.detach();
    case.answer(disconnected());
    assert!(case.consumer.poll_event().is_none());
    case.consumer.attach();
    case.register(FROM_LATEST, None);
    case.answer(registered(200));
    assert!(matches!(case.consumer.poll_event(), Some(Event::Registered(Ok(())))));
}

#[test]
fn a_refused_seek_is_reported_once() {
    let mut case = Case::new(options());
    case.consumer.seek(case.now, Start::First);
    case.register(FROM_FIRST, Some(0));
    case.answer(registered(410));
    assert!(matches!(case.consumer.poll_event(), Some(Event::SeekDone(Err(_)))));
    case.wait();
    case.register(FROM_FIRST, Some(0));
    case.answer(registered(200));
    assert!(
        matches!(case.consumer.poll_event(), Some(Event::RegisteredAgain)),
        "the seek has cost the partition"
    );
    assert!(case.consumer.poll_event().is_none());
}

#[test]
fn a_seek_before_the_first_registration_decides_where_that_begins() {
    let now = Instant::now();
    let mut case = Case { consumer: Consumer::new(options(), now), now };
    case.consumer.seek(now, Start::Offset(84));
    case.consumer.seek(now, Start::First);
    case.consumer.attach();
    case.register(FROM_FIRST, Some(0));
    case.answer(registered(200));
    let events: Vec<_> = std::iter::from_fn(|| case.consumer.poll_event()).collect();
    assert!(matches!(events[..], [Event::SeekDone(Ok(())), Event::Registered(Ok(()))]), "{events:?}");
}

#[test]
fn a_partition_that_is_given_back_is_sought_no_more() {
    let refused = |consumer: &mut Consumer| matches!(consumer.poll_event(), Some(Event::SeekDone(Err(e))) if e.kind() == ErrorKind::Closed);
    let mut ended = Case::new(options());
    ended.consumer.end();
    ended.consumer.seek(ended.now, Start::First);
    assert!(refused(&mut ended.consumer) && ended.ask().is_none());

    let mut leaving = Case::new(options());
    leaving.consumer.leave();
    leaving.consumer.seek(leaving.now, Start::First);
    assert!(refused(&mut leaving.consumer));
    let request = leaving.ask();
    assert!(matches!(request, Some(Request::PartitionRegister(request)) if request.op_type == UNREGISTER));

    // Asked for while a call was open.
    let mut open = Case::new(options());
    open.get(false);
    open.consumer.seek(open.now, Start::First);
    open.consumer.leave();
    open.answer(got(404, END, &[]));
    assert!(refused(&mut open.consumer));

    // Due, and not yet asked for.
    let mut due = Case::new(options());
    due.consumer.seek(due.now, Start::First);
    due.consumer.leave();
    assert!(due.ask().is_none());
    assert!(refused(&mut due.consumer));
    assert!(matches!(due.consumer.poll_event(), Some(Event::Released)));
}

#[test]
fn what_is_not_registered_is_not_given_back() {
    let now = Instant::now();
    let mut case = Case { consumer: Consumer::new(options(), now), now };
    case.consumer.attach();
    case.consumer.leave();
    assert_eq!(case.consumer.phase(), Phase::Leaving);
    assert!(case.ask().is_none(), "it does not register to leave");
    assert!(matches!(case.consumer.poll_event(), Some(Event::Released)));
}

#[test]
fn who_leaves_during_a_call_gives_the_partition_back_after_its_answer() {
    let mut case = Case::new(options());
    case.get(false);
    case.consumer.leave();
    case.answer(got(200, "", &[("a", "")]));
    assert_eq!(case.consumer.available(), 0);
    assert!(case.consumer.poll_event().is_none());
    let Some(Request::PartitionRegister(request)) = case.ask() else { panic!("it unregisters") };
    assert_eq!((request.op_type, request.read_status), (UNREGISTER, NOT_CONSUMED));

    // Without a connection there is no one to give it to.
    let mut case = Case::new(options());
    case.get(false);
    case.consumer.detach();
    case.consumer.leave();
    assert!(case.consumer.poll_event().is_none(), "the open call is waited for");
    case.answer(disconnected());
    assert!(matches!(case.consumer.poll_event(), Some(Event::Released)));
}

#[test]
fn what_has_ended_delivers_and_asks_nothing() {
    let mut case = Case::new(options());
    case.get(false);
    case.answer(got(200, "", &[("a", "")]));
    case.consumer.end();
    assert_eq!((case.consumer.available(), case.consumer.available_bytes()), (0, 0));
    assert!(case.ask().is_none() && !case.consumer.is_held() && !case.consumer.wants_transmit());
}

#[test]
fn what_waits_is_counted_in_messages_and_bytes() {
    let mut case = Case::new(options());
    case.get(false);
    case.answer(got(200, "", &[("a", ""), ("bbb", ""), ("cc", "")]));
    assert_eq!((case.consumer.available(), case.consumer.available_bytes()), (3, 6));
    let mut out: Vec<Message> = Vec::new();
    assert_eq!(case.consumer.take(1, &mut out), 1);
    assert_eq!((case.consumer.available(), case.consumer.available_bytes()), (2, 5));
    assert_eq!(case.take().len(), 2);
    assert_eq!((case.consumer.available(), case.consumer.available_bytes()), (0, 0));
}

#[test]
fn a_call_is_due_unless_one_is_open_or_a_pack_is_held() {
    let mut case = Case::new(options());
    assert!(case.consumer.wants_transmit());
    case.get(false);
    assert!(!case.consumer.wants_transmit());
    case.answer(got(200, "", &[("a", "")]));
    assert!(!case.consumer.wants_transmit());
    case.consumer.leave();
    assert!(case.consumer.wants_transmit());
}

#[test]
fn without_a_connection_nothing_is_due() {
    let mut case = Case::new(options());
    assert!(case.consumer.poll_timeout(true).is_some());
    case.consumer.detach();
    assert_eq!(case.consumer.poll_timeout(true), None);
}

#[test]
fn a_get_without_an_answer_is_repeated_later() {
    let mut case = Case::new(options());
    case.get(false);
    case.answer(Err(Error::new(ErrorKind::Timeout, "no answer")));
    assert_eq!(case.wait(), FIRST_WAIT);
    case.get(false);
    case.answer(disconnected());
    case.consumer.detach();
    case.consumer.attach();
    case.wait();
    case.get(false);
    case.consumer.detach();
    case.answer(disconnected());
    case.consumer.attach();
    assert_eq!(case.wait(), Duration::ZERO, "the next connection need not wait");
}

#[test]
fn positions_are_those_that_the_broker_knows() {
    let now = Instant::now();
    let mut case = Case { consumer: Consumer::new(options(), now), now };
    let positions =
        |case: &Case| (case.consumer.offset(), case.consumer.max_offset(), case.consumer.behind());
    assert_eq!(positions(&case), (None, None, None));
    case.consumer.attach();
    case.register(FROM_LATEST, None);
    let Ok(Response::PartitionRegister(mut unknown)) = registered(200) else { unreachable!() };
    (unknown.curr_offset, unknown.max_offset) = (Some(-1), Some(-1));
    case.answer(Ok(Response::PartitionRegister(unknown)));
    assert_eq!(positions(&case), (None, None, None));

    case.get(false);
    let Ok(Response::GetMessages(mut unknown)) = got(200, "", &[("a", "")]) else { unreachable!() };
    (unknown.curr_offset, unknown.max_offset, unknown.curr_data_dlt) = (Some(-1), Some(-1), Some(-1));
    case.answer(Ok(Response::GetMessages(unknown.clone())));
    assert_eq!(positions(&case), (None, None, None));
    let messages = case.take();
    assert_eq!(messages[0].pack.offset, -1);
    case.ack(&messages);

    case.get(true);
    case.answer(got(200, "", &[("b", "")]));
    assert_eq!(positions(&case), (Some(28), Some(280), Some(900)));
    let messages = case.take();
    assert_eq!(messages[0].pack.offset, 28);
    case.ack(&messages);
    case.get(true);
    case.answer(Ok(Response::GetMessages(unknown)));
    assert_eq!(positions(&case), (Some(28), Some(280), Some(900)), "what it does not say stays");
    case.consumer.seek(case.now, Start::First);
    assert_eq!(case.consumer.behind(), None);

    let case = Case::new(options());
    assert_eq!(positions(&case), (Some(0), Some(280), None));
}

#[test]
fn an_acknowledgement_is_for_its_own_pack() {
    let mut case = Case::new(options());
    case.get(false);
    case.answer(got(200, "", &[("a", "")]));
    let first = case.take();
    case.ack(&first);
    case.get(true);
    case.answer(got(200, "", &[("b", "")]));
    let second = case.take();
    case.ack(&first);
    case.consumer.ack_cumulative(case.now, &first[0]);
    case.consumer.nack(case.now, &first[0], Some(Duration::ZERO));
    assert!(case.ask().is_none(), "b is neither acknowledged nor asked for again");
    case.ack(&second);
    case.get(true);
}

#[test]
fn a_pack_of_another_lease_with_the_same_number_is_another_one() {
    let mut earlier = Case::new(options());
    earlier.get(false);
    earlier.answer(got(200, "", &[("a", ""), ("b", ""), ("c", "")]));
    let old = earlier.take();
    let mut case = Case::new(options());
    case.get(false);
    case.answer(got(200, "", &[("c", ""), ("d", "")]));
    let new = case.take();
    assert_eq!(old[0].pack.number, new[0].pack.number);
    for message in &old {
        assert!(!case.consumer.is_revoked(message, false), "the other lease's");
        case.consumer.nack(case.now, message, None);
    }
    case.consumer.ack_cumulative(case.now, &old[1]);
    assert!(new.iter().all(|message| !case.consumer.is_revoked(message, false)), "still held");
    // The same message, by its id.
    case.ack(&old);
    assert!(case.ask().is_none(), "d is not acknowledged");
    case.ack(&new[1..]);
    case.get(true);
}

#[test]
fn an_acknowledgement_from_before_a_seek_hides_nothing_behind_it() {
    let mut case = Case::new(options());
    case.get(false);
    case.answer(got(200, "", &[("a", "")]));
    let before = case.take();
    case.consumer.seek(case.now, Start::First);
    case.register(FROM_FIRST, Some(0));
    case.answer(registered(200));
    case.ack(&before);
    case.get(false);
    case.answer(got(200, "", &[("a", "")]));
    assert_eq!(texts(&case.take()), ["a"]);
}

#[test]
fn what_is_not_acknowledged_can_be_asked_for_again() {
    let mut case = Case::new(options());
    case.get(false);
    case.answer(got(200, "", &[("a", ""), ("b", "")]));
    let messages = case.take();
    case.ack(&messages[..1]);
    case.consumer.redeliver(case.now);
    assert_eq!(case.wait(), Duration::ZERO);
    case.get(false);
    case.answer(got(200, "", &[("a", ""), ("b", "")]));
    let again = case.take();
    assert_eq!((texts(&again), again[0].pack.redelivered), (vec!["b"], 1));
}

#[test]
fn what_is_remembered_of_acknowledged_messages_is_bounded() {
    let half = MAX_DONE as i64 / 2;
    let mut consumer = Consumer::new(options(), Instant::now());
    for part in 0..2 {
        consumer.remember((part * half..(part + 1) * half).collect());
    }
    assert_eq!(consumer.done.len(), MAX_DONE, "so many are known");
    consumer.remember((-half..0).collect());
    assert!(consumer.done.len() <= MAX_DONE);
    assert!((-half..0).all(|id| consumer.done.contains(&id)), "the latest are known");
}

#[test]
fn the_phases_have_the_names_that_users_see() {
    let mut case = Case::new(options());
    assert_eq!(case.consumer.phase().name(), "reading");
    case.consumer.set_paused(true);
    assert_eq!(case.consumer.phase().name(), "paused");
    case.consumer.leave();
    assert_eq!(case.consumer.phase().name(), "leaving");
    let now = Instant::now();
    let mut case = Case { consumer: Consumer::new(options(), now), now };
    assert_eq!(case.consumer.phase().name(), "registering");
    case.consumer.attach();
    case.register(FROM_LATEST, None);
    case.answer(registered(410));
    assert_eq!(case.consumer.phase().name(), "occupied");
}
