use super::*;

const INTERVAL: Duration = Duration::from_secs(10);

fn producer(now: Instant) -> ProducerMaster {
    let identity = Identity { client_id: "c".into(), host_name: "127.0.0.1".into(), default_port: 8123 };
    ProducerMaster::new(identity, INTERVAL, now)
}

fn registered() -> Response {
    Response::ProducerRegister(pb::RegisterResponseM2p {
        success: true,
        err_code: 200,
        err_msg: "OK!".into(),
        broker_check_sum: 7,
        broker_infos: vec!["1:127.0.0.1: ".into(), "nonsense".into()],
        authorized_info: Some(pb::MasterAuthorizedInfo {
            visit_authorized_token: 99,
            auth_authorized_token: None,
        }),
        appd_config: Some(pb::ApprovedClientConfig { config_id: 3, max_msg_size: Some(2 << 20) }),
    })
}

fn beaten(code: i32, topics: &[&str]) -> Response {
    Response::ProducerHeartbeat(pb::HeartResponseM2p {
        success: code == 200 || code == 201,
        err_code: code,
        err_msg: String::new(),
        broker_check_sum: 8,
        topic_infos: topics.iter().map(ToString::to_string).collect(),
        broker_infos: Vec::new(),
        require_auth: None,
        authorized_info: None,
        appd_config: None,
    })
}

/// Answers the heartbeat that is due.
fn beat(master: &mut ProducerMaster, now: Instant, code: i32, topics: &[&str]) {
    let request = master.poll_request(now, None).expect("a call is due");
    assert!(matches!(request, Request::ProducerHeartbeat(_)), "{request:?}");
    master.handle_answer(now, Ok(beaten(code, topics)));
}

fn ready(now: Instant) -> ProducerMaster {
    let mut master = producer(now);
    assert!(matches!(master.poll_request(now, None), Some(Request::ProducerRegister(_))));
    assert!(master.poll_request(now, None).is_none(), "one call at a time");
    master.handle_answer(now, Ok(registered()));
    assert!(matches!(master.poll_event(), Some(Event::VisitToken(99))));
    master
}

#[test]
fn it_registers_at_once_and_beats_when_it_has_a_topic() {
    let now = Instant::now();
    let mut master = ready(now);
    assert!(master.is_registered());
    assert_eq!(master.broker(1).map(|broker| broker.port), Some(8123));
    assert_eq!(master.poll_timeout(), Some(now + INTERVAL));
    master.publish(now, "demo");
    assert!(matches!(master.topic("demo"), TopicState::NotYet));
    beat(&mut master, now, 200, &["demo#1:3:2#"]);
    let TopicState::Topic(topic) = master.topic("demo") else { panic!("it is known") };
    assert_eq!((topic.partitions.len(), master.max_message_size(topic)), (6, 2 << 20));
    assert!(matches!(master.poll_event(), Some(Event::Metadata)));
    assert_eq!(master.poll_timeout(), Some(now + INTERVAL));
}

#[test]
fn metadata_are_replaced_as_a_whole() {
    let now = Instant::now();
    let mut master = ready(now);
    master.publish(now, "a");
    master.publish(now, "b");
    beat(&mut master, now, 200, &["a#1:1:1#", "b#1:1:1#", "no description"]);
    assert!(matches!(master.topic("b"), TopicState::Topic(_)));
    beat(&mut master, now + INTERVAL, 200, &["a#1:2:1#"]);
    assert!(matches!(master.topic("a"), TopicState::Topic(topic) if topic.partitions.len() == 2));
    assert!(matches!(master.topic("b"), TopicState::Missing));
    assert_eq!(master.poll_timeout(), Some(now + INTERVAL + MISSING_TOPIC_RETRY), "it may come back");
    // A master that is not ready has not stated anything.
    beat(&mut master, now + INTERVAL * 2, 201, &[]);
    assert!(matches!(master.topic("a"), TopicState::Topic(_)));
    // Brokers are only sent if they have changed.
    assert!(master.broker(1).is_some());
}

#[test]
fn a_master_that_forgot_the_producer_has_it_registered_again() {
    let now = Instant::now();
    let mut master = ready(now);
    master.publish(now, "demo");
    beat(&mut master, now, 200, &["demo#1:1:1#"]);
    let now = now + INTERVAL;
    beat(&mut master, now, 411, &[]);
    assert!(!master.is_registered());
    assert!(
        matches!(master.poll_request(now, None), Some(Request::ProducerRegister(r)) if r.topic_list == ["demo"])
    );
    master.handle_answer(now, Ok(registered()));
    beat(&mut master, now, 200, &["demo#1:1:1#"]);
    assert!(matches!(master.topic("demo"), TopicState::Topic(_)));
}

#[test]
fn a_master_that_forgets_the_producer_at_once_is_asked_after_a_pause() {
    let now = Instant::now();
    let mut master = ready(now);
    master.publish(now, "demo");
    beat(&mut master, now, 411, &[]);
    assert!(matches!(master.poll_event(), Some(Event::Failed(_))));
    assert_eq!(master.poll_timeout(), Some(now + RETRY));
    let now = now + RETRY;
    assert!(matches!(master.poll_request(now, None), Some(Request::ProducerRegister(_))));
    let Response::ProducerRegister(mut response) = registered() else { panic!("it is one") };
    (response.success, response.err_code) = (false, 411);
    master.handle_answer(now, Ok(Response::ProducerRegister(response)));
    assert!(matches!(master.poll_event(), Some(Event::Failed(_))));
    assert_eq!(master.poll_timeout(), Some(now + RETRY));
}

#[test]
fn a_call_that_failed_is_made_again_soon() {
    let now = Instant::now();
    let mut master = producer(now);
    assert!(master.poll_request(now, None).is_some());
    master.handle_answer(now, Err(Error::protocol("x")));
    assert!(matches!(master.poll_event(), Some(Event::Failed(_))));
    assert_eq!(master.poll_timeout(), Some(now + RETRY));
    assert!(master.poll_request(now, None).is_none());
    assert!(matches!(master.poll_request(now + RETRY, None), Some(Request::ProducerRegister(_))));
}

#[test]
fn a_topic_published_while_a_beat_is_open_is_not_answered_by_it() {
    let now = Instant::now();
    let mut master = ready(now);
    master.publish(now, "a");
    assert!(master.poll_request(now, None).is_some());
    master.publish(now, "b");
    master.handle_answer(now, Ok(beaten(200, &["a#1:1:1#"])));
    assert!(matches!(master.topic("a"), TopicState::Topic(_)));
    assert!(matches!(master.topic("b"), TopicState::NotYet));
    beat(&mut master, now, 200, &["a#1:1:1#"]);
    assert!(matches!(master.topic("b"), TopicState::Missing));
}

#[test]
fn a_topic_is_requested_for_as_long_as_one_of_those_that_published_it_needs_it() {
    let now = Instant::now();
    let mut master = ready(now);
    // A producer, and a consumer that looks whether its positions exist and finds the topic closed.
    master.publish(now, "demo");
    master.publish(now, "demo");
    beat(&mut master, now, 200, &[]);
    master.unpublish("demo");
    let asks = |master: &mut ProducerMaster, now| {
        let Some(Request::ProducerHeartbeat(beat)) = master.poll_request(now, None) else { panic!("a beat") };
        master.handle_answer(now, Ok(beaten(200, &["demo#1:1:1#"])));
        beat.topic_list
    };
    let mut later = now + INTERVAL;
    assert_eq!(asks(&mut master, later), ["demo"]);
    assert!(
        matches!(master.topic("demo"), TopicState::Topic(_)),
        "the producer learns that it is open again"
    );
    master.unpublish("demo");
    master.unpublish("demo");
    later += INTERVAL;
    assert_eq!(asks(&mut master, later), [""; 0]);
}

#[test]
fn closing_tells_the_master_once() {
    let now = Instant::now();
    let mut master = ready(now);
    master.close(now);
    assert!(matches!(master.poll_request(now, None), Some(Request::ProducerClose(_))));
    assert!(!master.is_closed());
    master.handle_answer(now, Err(Error::protocol("x")));
    assert!(master.is_closed());
    assert_eq!(master.poll_timeout(), None);
    let mut never = producer(now);
    never.close(now);
    assert!(never.is_closed(), "a master that never knew the client is not told");
}
