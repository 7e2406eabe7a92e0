//! Peers that ask for more than they read.

use super::*;

#[test]
fn a_peer_that_does_not_read_is_not_sent_more_than_fits() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.subscribe(peer, 1, EXCLUSIVE);
    let big = "x".repeat(100 << 10);
    for sequence_id in 0..50 {
        bench.send(peer, 1, sequence_id, |m| m.uuid = Some(big.clone()));
    }
    bench.hear(peer);
    bench.flow(peer, 1, 1000);
    let mut output = Transmit::default();
    bench.broker.take_output(bench.now, peer, &mut output);
    assert!(output.len() < 2 << 20, "{}", output.len());
    let (mut frames, mut input) = (0, output.take());
    while Decoder::new(6 << 20).next(&mut input).unwrap().is_some() {
        frames += 1;
    }
    assert_eq!(frames + bench.entries(peer).len(), 50, "and the rest follows when it has read");
}

#[test]
fn queries_that_come_all_at_once_are_answered_as_fast_as_their_answers_are_taken() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    let schema = pb::Schema {
        name: "s".into(),
        schema_data: Bytes::from(vec![b'x'; 1_000_000]),
        r#type: pb::schema::Type::ProtobufNative as i32,
        ..Default::default()
    };
    bench.produce(peer, 1, |p| p.schema = Some(schema));
    for number in 0..90 {
        bench.produce(peer, 2 + number, |p| {
            p.topic = format!("persistent://public/default/{number:03}{}", "n".repeat(900));
        });
    }
    let get = |request_id| {
        Command::GetSchema(pb::CommandGetSchema { request_id, topic: TOPIC.into(), schema_version: None })
    };
    let list = |request_id| {
        Command::GetTopicsOfNamespace(Box::new(pb::CommandGetTopicsOfNamespace {
            request_id,
            namespace: "public/default".into(),
            ..Default::default()
        }))
    };
    for (query, queries) in [(&get as &dyn Fn(u64) -> Command, 400), (&list, 2000)] {
        let mut input = BytesMut::new();
        (0..queries).for_each(|id| input.extend_from_slice(&Frame::simple(query(id)).to_bytes()));
        let (mut answered, mut turns) = (0, 0);
        while answered < queries {
            bench.broker.handle_input(bench.now, peer, &mut input).unwrap();
            assert_eq!(bench.broker.may_read(peer), input.is_empty(), "no more of them is read meanwhile");
            let mut output = Transmit::default();
            bench.broker.take_output(bench.now, peer, &mut output);
            assert!(output.len() < 10 << 20, "{} bytes wait", output.len());
            let mut bytes = output.take();
            while let Some(frame) = Decoder::new(6 << 20).next(&mut bytes).unwrap() {
                assert_eq!(frame.command.request_id(), Some(answered), "in order");
                answered += 1;
            }
            turns += 1;
        }
        assert!(turns >= 20 && input.is_empty(), "{turns}");
    }
}

/// Creates topics whose list is 80 kB long.
fn ninety_long_names(bench: &mut Bench, peer: u64) {
    for number in 0..90 {
        bench.produce(peer, 2 + number, |p| {
            p.topic = format!("persistent://public/default/{number:03}{}", "n".repeat(900));
        });
    }
}

/// The query for the topics of the namespace, from a client that knows the list with this hash.
fn topic_list(topics_hash: Option<String>) -> Command {
    Command::GetTopicsOfNamespace(Box::new(pb::CommandGetTopicsOfNamespace {
        request_id: 1,
        namespace: "public/default".into(),
        topics_hash,
        ..Default::default()
    }))
}

#[test]
fn a_connection_is_read_again_although_its_last_query_reached_the_limit() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    ninety_long_names(&mut bench, peer);
    let answer = bench.ask(peer, topic_list(None));
    let Command::GetTopicsOfNamespaceResponse(found) = answer else { panic!("{answer:?}") };
    // The output reaches the limit, or the work for short answers does.
    for query in [topic_list(None), topic_list(found.topics_hash)] {
        let frame = Frame::simple(query).to_bytes();
        let mut input = BytesMut::from(&frame.repeat(1000)[..]);
        bench.broker.handle_input(bench.now, peer, &mut input).unwrap();
        let at_once = 1000 - input.len() / frame.len();
        assert!((10..1000).contains(&at_once), "{at_once}");
        while !input.is_empty() {
            bench.hear(peer);
            bench.broker.handle_input(bench.now, peer, &mut input).unwrap();
        }
        bench.hear(peer);
        let mut input = BytesMut::from(&frame.repeat(at_once)[..]);
        bench.broker.handle_input(bench.now, peer, &mut input).unwrap();
        assert!(input.is_empty());
        assert_eq!(bench.hear(peer).len(), at_once);
        assert!(bench.broker.may_read(peer));
    }
}

#[test]
fn a_list_that_the_client_knows_already_takes_its_turns_too() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    ninety_long_names(&mut bench, peer);
    let Command::GetTopicsOfNamespaceResponse(found) = bench.ask(peer, topic_list(None)) else { panic!() };
    let frame = Frame::simple(topic_list(found.topics_hash)).to_bytes();
    let mut input = BytesMut::new();
    (0..1000).for_each(|_| input.extend_from_slice(&frame));
    while bench.broker.poll_wake().is_some() {}
    let mut turns = 0;
    while !input.is_empty() {
        bench.broker.handle_input(bench.now, peer, &mut input).unwrap();
        turns += 1;
        assert!(input.is_empty() || bench.broker.poll_wake() == Some(peer), "it is woken for the rest");
        bench.hear(peer);
        while bench.broker.poll_wake().is_some() {}
    }
    assert!(turns > 5, "{turns}");
}
