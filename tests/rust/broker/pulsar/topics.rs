//! Topics, partitions and schemas.

use forebay_base::error::ErrorKind;

use super::*;

#[test]
fn partitions_are_kept_and_listed() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.broker.create_topic("orders", 3).unwrap();
    bench.settle();
    assert!(bench.broker.create_topic("orders", 3).is_err());
    let ask = |bench: &mut Bench, topic: &str, create| {
        let command = pb::CommandPartitionedTopicMetadata {
            topic: topic.into(),
            request_id: 1,
            metadata_auto_creation_enabled: Some(create),
            ..Default::default()
        };
        let Command::PartitionedMetadataResponse(r) = bench.ask(peer, Command::PartitionedMetadata(command))
        else {
            panic!()
        };
        (r.partitions, r.error.map(|e| pb::ServerError::try_from(e).unwrap()))
    };
    assert_eq!(ask(&mut bench, TOPIC, true), (Some(3), None));
    assert_eq!(ask(&mut bench, "persistent://public/default/new", true), (Some(0), None));
    assert_eq!(
        ask(&mut bench, "persistent://public/default/x", false),
        (None, Some(pb::ServerError::TopicNotFound))
    );
    assert_eq!(ask(&mut bench, "bad://a/b/c", true), (None, Some(pb::ServerError::InvalidTopicName)));
    assert_eq!(
        ask(&mut bench, "persistent://a/b/x", true),
        (None, Some(pb::ServerError::TopicNotFound)),
        "a namespace that does not exist"
    );
    bench.broker.create_topic("a/b/y", 0).unwrap();
    bench.settle();
    assert_eq!(ask(&mut bench, "persistent://a/b/x", true), (Some(0), None));
    bench.broker.delete_topic("a/b/y").unwrap();
    bench.settle();
    let answer = bench.produce(peer, 1, |_| {});
    assert_eq!(error_of(&answer), pb::ServerError::NotAllowedError, "the parent itself takes nothing");
    let list = pb::CommandGetTopicsOfNamespace {
        request_id: 1,
        namespace: "public/default".into(),
        ..Default::default()
    };
    let Command::GetTopicsOfNamespaceResponse(listed) =
        bench.ask(peer, Command::GetTopicsOfNamespace(Box::new(list.clone())))
    else {
        panic!()
    };
    assert_eq!(listed.topics.len(), 3);
    let same = pb::CommandGetTopicsOfNamespace { topics_hash: listed.topics_hash, ..list };
    let Command::GetTopicsOfNamespaceResponse(again) =
        bench.ask(peer, Command::GetTopicsOfNamespace(Box::new(same)))
    else {
        panic!()
    };
    assert_eq!((again.changed, again.topics.len()), (Some(false), 0));
    assert_eq!(bench.broker.topics(), [(TOPIC.to_owned(), 3)]);
}

#[test]
fn a_deleted_topic_sends_its_users_away_and_its_ids_are_not_used_again() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.subscribe(peer, 1, EXCLUSIVE);
    bench.fill(peer, 1, 0..1);
    bench.broker.delete_topic("orders").unwrap();
    bench.settle();
    let heard = bench.commands(peer);
    assert!(matches!(&heard[..], [Command::CloseProducer(_), Command::CloseConsumer(_)]), "{heard:?}");
    bench.producer(peer, 2);
    bench.send(peer, 2, 0, |_| {});
    assert_eq!(receipt_of(&bench.one(peer)), (0, 8, 0));
    assert!(bench.broker.delete_topic("nothing").is_err());
}

#[test]
fn what_the_embedded_broker_does_not_do_is_said_clearly() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    let txn = Command::TcClientConnectRequest(pb::CommandTcClientConnectRequest {
        tc_id: 0,
        request_id: 5,
        ..Default::default()
    });
    assert_eq!(error_of(&bench.ask(peer, txn)), pb::ServerError::NotAllowedError);
}

#[test]
fn a_schema_has_one_version_and_another_type_is_refused() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    let schema = |kind, data: &str| pb::Schema {
        name: "s".into(),
        schema_data: Bytes::copy_from_slice(data.as_bytes()),
        r#type: kind,
        ..Default::default()
    };
    let version = |bench: &mut Bench, id, s: pb::Schema| match bench.produce(peer, id, |p| p.schema = Some(s))
    {
        Command::ProducerSuccess(success) => Ok(success.schema_version.unwrap()),
        other => Err(error_of(&other)),
    };
    let avro = pb::schema::Type::Avro as i32;
    assert_eq!(version(&mut bench, 1, schema(avro, "\"int\"")).unwrap()[..], [0; 8]);
    assert_eq!(version(&mut bench, 2, schema(avro, " \"int\"")).unwrap()[..], [0; 8]);
    assert_eq!(version(&mut bench, 3, schema(avro, "[\"int\"]")).unwrap()[..], 1_u64.to_be_bytes());
    assert_eq!(version(&mut bench, 4, schema(2, "\"int\"")), Err(pb::ServerError::IncompatibleSchema));
    assert_eq!(version(&mut bench, 5, schema(avro, "\"string\"")), Err(pb::ServerError::IncompatibleSchema));
    assert_eq!(version(&mut bench, 6, schema(avro, "{")), Err(pb::ServerError::IncompatibleSchema));
    let get = pb::CommandGetSchema {
        request_id: 1,
        topic: TOPIC.into(),
        schema_version: Some(Bytes::from_static(&[0; 8])),
    };
    let Command::GetSchemaResponse(found) = bench.ask(peer, Command::GetSchema(get)) else { panic!() };
    assert_eq!(found.schema.unwrap().schema_data, "\"int\"");
}

#[test]
fn schemas_are_for_topics_that_exist_and_within_the_quota() {
    let mut bench = Bench::with(|settings| settings.max_store = 40 << 20);
    let peer = bench.connect();
    let create = |topic: &str, fill: u8, size: usize| {
        Command::GetOrCreateSchema(Box::new(pb::CommandGetOrCreateSchema {
            request_id: 1,
            topic: topic.into(),
            producer_name: None,
            schema: pb::Schema {
                name: "s".into(),
                schema_data: Bytes::from(vec![fill; size]),
                r#type: pb::schema::Type::ProtobufNative as i32,
                ..Default::default()
            },
        }))
    };
    let error = |answer| match answer {
        Command::GetOrCreateSchemaResponse(response) => response.error_code,
        other => panic!("{other:?}"),
    };
    let unknown = error(bench.ask(peer, create(TOPIC, 0, 10)));
    assert_eq!(unknown, Some(pb::ServerError::TopicNotFound as i32));
    bench.producer(peer, 1);
    let mut stored = 0;
    let refused = loop {
        match error(bench.ask(peer, create(TOPIC, stored, 1 << 20))) {
            None => stored += 1,
            Some(code) => break code,
        }
    };
    assert_eq!((stored, refused), (15, pb::ServerError::TooManyRequests as i32), "16 MiB for one topic");
    let refused = (0..10_u8).find_map(|number| {
        let topic = format!("persistent://public/default/t{number}");
        bench.produce(peer, 2 + u64::from(number), |p| p.topic = topic.clone());
        (0..4).find_map(|fill| {
            bench.pass(Duration::from_secs(1));
            bench.hear(peer);
            error(bench.ask(peer, create(&topic, fill, 2 << 20)))
        })
    });
    assert_eq!(refused, Some(pb::ServerError::ProducerBlockedQuotaExceededException as i32));
}

#[test]
fn the_id_of_a_message_names_its_partition() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.broker.create_topic("orders", 2).unwrap();
    for (number, topic, partition) in [
        (1, format!("{TOPIC}-partition-1"), 1),
        (2, "persistent://public/default/plain".to_owned(), -1),
        (3, "non-persistent://public/default/passing-partition-3".to_owned(), 3),
    ] {
        bench.subscription(peer, number, EXCLUSIVE, |s| s.topic = topic.clone());
        bench.flow(peer, number, 1);
        bench.produce(peer, number, |p| p.topic = topic.clone());
        bench.send(peer, number, 0, |_| {});
        let delivered = bench.deliveries(peer);
        assert_eq!(delivered.len(), 1, "{topic}");
        assert_eq!(delivered[0].message_id.partition, Some(partition), "{topic}");
    }
}

#[test]
fn a_partitioned_topic_grows_with_its_subscriptions_and_never_shrinks() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.broker.create_topic("orders", 2).unwrap();
    bench.broker.create_topic("plain", 0).unwrap();
    let part = |partition| format!("{TOPIC}-partition-{partition}");
    let subscribe = |s: &mut pb::CommandSubscribe| {
        s.topic = part(1);
        s.initial_position = Some(pb::command_subscribe::InitialPosition::Latest as i32);
    };
    let answer = bench.subscription(peer, 1, EXCLUSIVE, subscribe);
    assert!(matches!(answer.first(), Some(Command::Success(_))), "{answer:?}");
    bench.broker.grow_topic("orders", 4).unwrap();
    bench.settle();
    assert_eq!(bench.broker.topics()[0], (TOPIC.to_owned(), 4));
    let stats = bench.broker.topic_stats("orders").unwrap();
    let of: Vec<_> = stats.subscriptions.iter().map(|s| (s.topic.clone(), s.name.clone())).collect();
    assert_eq!(of, [1, 2, 3].map(|partition| (part(partition), "s".to_owned())));
    for (topic, partitions, kind) in [
        ("orders", 4, ErrorKind::InvalidArgument),
        ("orders", 1, ErrorKind::InvalidArgument),
        ("orders", 10_001, ErrorKind::InvalidArgument),
        ("plain", 2, ErrorKind::NotAllowed),
        ("nothing", 2, ErrorKind::TopicNotFound),
    ] {
        assert_eq!(
            bench.broker.grow_topic(topic, partitions).unwrap_err().kind(),
            kind,
            "{topic} {partitions}"
        );
    }
    assert_eq!(bench.broker.topics()[0], (TOPIC.to_owned(), 4));
}

#[test]
fn a_topic_grows_by_all_partitions_or_by_none() {
    let mut bench = Bench::with(|settings| settings.max_topics = 5);
    bench.broker.create_topic("orders", 2).unwrap();
    assert_eq!(bench.broker.grow_topic("orders", 5).unwrap_err().kind(), ErrorKind::TooManyRequests);
    assert_eq!(bench.broker.stats().topics, 2);
    bench.broker.grow_topic("orders", 4).unwrap();
    assert_eq!(bench.broker.stats().topics, 4);
}

#[test]
fn a_terminated_topic_takes_no_messages_and_tells_who_has_acknowledged_all() {
    let mut bench = Bench::new();
    let (peer, other) = (bench.connect(), bench.connect());
    bench.producer(peer, 1);
    bench.subscribe(other, 1, EXCLUSIVE);
    bench.flow(other, 1, 10);
    bench.fill(peer, 1, 0..2);
    assert_eq!(bench.entries(other), [0, 1]);
    bench.ack_entry(other, 1, 0);
    bench.broker.terminate_topic("orders").unwrap();
    bench.settle();
    assert!(matches!(&bench.commands(peer)[..], [Command::CloseProducer(_)]));
    assert_eq!(bench.commands(other), [], "one message is not acknowledged");
    // What was on its way is dropped.
    bench.send(peer, 1, 2, |_| {});
    assert_eq!(bench.commands(peer), []);
    assert_eq!(error_of(&bench.produce(peer, 2, |_| {})), pb::ServerError::TopicTerminatedError);
    bench.ack_entry(other, 1, 1);
    assert!(matches!(&bench.commands(other)[..], [Command::ReachedEndOfTopic(end)] if end.consumer_id == 1));
    bench.ack_entry(other, 1, 1);
    assert_eq!(bench.commands(other), [], "it is told once");
    // A second call changes nothing, and a subscription that is made now is told at once.
    bench.broker.terminate_topic("orders").unwrap();
    bench.settle();
    let heard = bench.subscription(peer, 2, EXCLUSIVE, |s| {
        s.subscription = "late".into();
        s.initial_position = Some(pb::command_subscribe::InitialPosition::Latest as i32);
    });
    assert!(
        matches!(&heard[..], [Command::Success(_), Command::ReachedEndOfTopic(end)] if end.consumer_id == 2),
        "{heard:?}"
    );
    assert!(bench.broker.terminate_topic("nothing").is_err());
    let stats = bench.broker.topic_stats("orders").unwrap();
    assert!(stats.terminated && stats.producers.is_empty());
}

#[test]
fn a_producer_that_waits_for_its_turn_is_told_that_the_topic_is_terminated() {
    let mut bench = Bench::new();
    let (peer, other) = (bench.connect(), bench.connect());
    bench.producer(peer, 1);
    let waiting = bench.produce(other, 1, |p| p.producer_access_mode = Some(2));
    assert!(matches!(waiting, Command::ProducerSuccess(success) if success.producer_ready == Some(false)));
    bench.broker.terminate_topic("orders").unwrap();
    bench.settle();
    assert_eq!(error_of(&bench.one(other)), pb::ServerError::TopicTerminatedError);
    assert!(matches!(&bench.commands(peer)[..], [Command::CloseProducer(_)]));
}
