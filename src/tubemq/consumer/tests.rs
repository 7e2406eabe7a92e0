use super::*;
use crate::tubemq::message::{Outgoing, checksum, pack};
use crate::tubemq::topic::{Broker, Partition};

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
        auto_ack: false,
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
        self.consumer.take(self.now, usize::MAX, &mut out);
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
    case.consumer.take(case.now, 3, &mut messages);
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
        case.answer(got(code, "", &[]));
        assert!(!case.consumer.is_held());
        assert_eq!(matches!(case.consumer.poll_event(), Some(Event::Refresh)), code == 415);
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
    let messages = case.take();
    assert_eq!(texts(&messages), ["b"]);
    case.ack(&messages);
    case.get(true);
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
    // A partition that was never held need not be given back; without a connection the broker cannot be told.
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
fn messages_may_be_acknowledged_by_taking_them() {
    let mut case = Case::new(Options { auto_ack: true, ..options() });
    case.get(false);
    case.answer(got(200, "", &[("a", ""), ("b", "")]));
    assert!(case.ask().is_none());
    assert_eq!(case.take().len(), 2);
    case.get(true);
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
