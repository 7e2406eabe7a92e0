//! Non-persistent topics: what goes to whom at once, what is dropped, and that nothing is left
//! behind.

use super::*;

const PASSING: &str = "non-persistent://public/default/passing";

fn passing(producer: &mut pb::CommandProducer) {
    producer.topic = PASSING.into();
}

fn subscribe(bench: &mut Bench, peer: u64, id: u64, kind: i32, permits: u32) {
    let answer = bench.subscription(peer, id, kind, |s| s.topic = PASSING.into());
    assert!(matches!(answer.first(), Some(Command::Success(_))), "{answer:?}");
    if permits > 0 {
        bench.flow(peer, id, permits);
    }
}

fn produce(bench: &mut Bench, peer: u64, id: u64) {
    let answer = bench.produce(peer, id, passing);
    assert!(matches!(answer, Command::ProducerSuccess(_)), "{answer:?}");
}

/// Messages that the consumers got and that were dropped.
fn figures(bench: &Bench) -> (u64, u64) {
    let stats = bench.broker.topic_stats(PASSING).unwrap();
    let delivered = stats.subscriptions.iter().flat_map(|s| &s.consumers).map(|c| c.delivered).sum();
    (delivered, stats.subscriptions.iter().map(|s| s.dropped).sum())
}

#[test]
fn a_receipt_and_the_messages_leave_at_once_and_do_not_wait_for_the_store() {
    let mut bench = Bench::with(|settings| settings.stored = true);
    let (writer, reader) = (bench.connect(), bench.connect());
    bench.producer(writer, 9);
    produce(&mut bench, writer, 1);
    subscribe(&mut bench, reader, 1, EXCLUSIVE, 2);
    bench.held = true;
    // It waits for the store, and so do all answers behind it but those that are not stored.
    bench.send(writer, 9, 0, |_| {});
    bench.send(writer, 1, 0, |m| m.deliver_at_time = Some(i64::MAX));
    bench.send(writer, 1, 0, |m| m.num_messages_in_batch = Some(3));
    bench.send(writer, 1, 7, |_| {});
    let receipts: Vec<_> = bench.commands(writer).iter().map(receipt_of).collect();
    assert_eq!(receipts, [(0, 0, 0), (0, 0, 0), (7, 0, 0)]);
    let got = bench.deliveries(reader);
    let ids: Vec<_> = got.iter().map(|d| (d.message_id.ledger_id, d.message_id.entry_id)).collect();
    assert_eq!(ids, [(0, 0); 2], "the batch has used up the permits");
    assert_eq!(figures(&bench), (4, 1));
    assert_eq!((bench.broker.stats().messages_dropped, bench.broker.stats().messages_in), (1, 6));
}

#[test]
fn a_client_of_its_own_gets_the_receipt_first_and_no_metadata_of_the_broker() {
    let mut bench = Bench::new();
    let peer = bench.broker.connect(bench.now, "x");
    let flags = pb::FeatureFlags { supports_broker_entry_metadata: Some(true), ..Default::default() };
    bench.ask(peer, Command::Connect(pb::CommandConnect { feature_flags: Some(flags), ..connect() }));
    produce(&mut bench, peer, 1);
    let answer = bench.subscription(peer, 1, FAILOVER, |s| {
        s.topic = PASSING.into();
        s.consumer_epoch = Some(5);
    });
    assert!(matches!(answer.first(), Some(Command::Success(_))), "{answer:?}");
    bench.flow(peer, 1, 5);
    bench.send(peer, 1, 0, |_| {});
    let heard = bench.hear(peer);
    assert!(matches!(heard[0].command, Command::SendReceipt(_)), "{heard:?}");
    let Command::Message(delivery) = &heard[1].command else { panic!("{heard:?}") };
    assert_eq!((delivery.consumer_epoch, delivery.redelivery_count), (None, None));
    assert_eq!(heard[1].payload.as_ref().unwrap().entry, None);
}

#[test]
fn nothing_of_it_is_written() {
    let mut bench = Bench::with(|settings| {
        settings.stored = true;
        settings.partitions = 2;
    });
    bench.held = true;
    bench.broker.create_topic("non-persistent://public/default/parts", 2).unwrap();
    bench.broker.grow_topic("non-persistent://public/default/parts", 3).unwrap();
    let peer = bench.connect();
    let schema = pb::Schema { name: "s".into(), r#type: 1, ..Default::default() };
    let answer = bench.produce(peer, 1, |p| {
        passing(p);
        p.schema = Some(schema.clone());
        p.producer_access_mode = Some(pb::ProducerAccessMode::Exclusive as i32);
        p.initial_subscription_name = Some("first".into());
    });
    assert!(matches!(answer, Command::ProducerSuccess(_)), "{answer:?}");
    assert!(bench.broker.topic_stats(PASSING).unwrap().subscriptions.is_empty());
    let answer = bench.subscription(peer, 1, EXCLUSIVE, |s| {
        s.topic = PASSING.into();
        s.durable = Some(true);
        s.subscription_properties = vec![pb::KeyValue { key: "k".into(), value: "v".into() }];
    });
    assert!(matches!(answer.first(), Some(Command::Success(_))), "{answer:?}");
    bench.flow(peer, 1, 10);
    bench.send(peer, 1, 0, |_| {});
    bench.ack(peer, 1, 1, vec![pb::MessageIdData::default()], Some(5));
    let heard = bench.commands(peer);
    assert!(
        matches!(&heard[..], [Command::SendReceipt(_), Command::Message(_), Command::AckResponse(a)] if a.error.is_none()),
        "{heard:?}"
    );
    assert!(matches!(&bench.seek(peer, 1, Some(id(0)), None)[..], [Command::Success(_)]), "no one is closed");
    let partitions = pb::CommandPartitionedTopicMetadata {
        topic: "non-persistent://public/default/used".into(),
        request_id: 1,
        ..Default::default()
    };
    bench.ask(peer, Command::PartitionedMetadata(partitions));
    bench.pass(Duration::from_secs(200));
    bench.broker.delete_topic(PASSING).unwrap();
    bench.broker.disconnect(bench.now, peer);
    bench.broker.shut_down(bench.now);
    bench.settle();
    assert_eq!(bench.ops, 0);
}

#[test]
fn a_full_store_takes_them_and_a_failed_one_refuses_them_like_all_others() {
    let mut bench = Bench::with(|settings| {
        settings.stored = true;
        settings.max_store = 0;
    });
    let peer = bench.connect();
    produce(&mut bench, peer, 1);
    bench.send(peer, 1, 0, |_| {});
    assert_eq!(receipt_of(&bench.one(peer)), (0, 0, 0));
    bench.fail();
    bench.send(peer, 1, 1, |_| {});
    assert_eq!(error_of(&bench.one(peer)), pb::ServerError::PersistenceError);
}

#[test]
fn each_type_chooses_among_those_with_permits() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    produce(&mut bench, peer, 1);
    subscribe(&mut bench, peer, 1, SHARED, 2);
    subscribe(&mut bench, peer, 2, SHARED, 1);
    for sequence in 0..4 {
        bench.send(peer, 1, sequence, |_| {});
    }
    let to: Vec<_> = bench.deliveries(peer).iter().map(|d| d.consumer_id).collect();
    assert_eq!((to, figures(&bench)), (vec![1, 2, 1], (3, 1)));
    for id in [1, 2] {
        bench.ask(
            peer,
            Command::CloseConsumer(pb::CommandCloseConsumer {
                consumer_id: id,
                request_id: 1,
                ..Default::default()
            }),
        );
    }
    // A key has its consumer, also while only the other one has permits.
    subscribe(&mut bench, peer, 3, KEY_SHARED, 100);
    subscribe(&mut bench, peer, 4, KEY_SHARED, 0);
    for sequence in 0..100 {
        bench.send(peer, 1, sequence, |m| m.partition_key = Some(format!("k{sequence}")));
    }
    let got = bench.deliveries(peer).len() as u64;
    assert!((20..80).contains(&got), "{got}");
    assert_eq!(figures(&bench), (got, 100 - got));
}

#[test]
fn a_connection_that_does_not_read_costs_no_more_than_its_limit() {
    let mut bench = Bench::new();
    let (writer, reader) = (bench.connect(), bench.connect());
    produce(&mut bench, writer, 1);
    subscribe(&mut bench, reader, 1, EXCLUSIVE, u32::MAX);
    for sequence in 0..200 {
        bench.send(writer, 1, sequence, |m| {
            m.properties = vec![pb::KeyValue { key: "k".into(), value: "v".repeat(100_000) }];
        });
    }
    assert_eq!(bench.commands(writer).len(), 200, "the publisher does not wait");
    let (delivered, dropped) = figures(&bench);
    assert!((10..13).contains(&delivered), "{delivered}");
    assert_eq!(dropped, 200 - delivered);
    assert_eq!(bench.deliveries(reader).len() as u64, delivered);
    // What was dropped does not come, and what follows does.
    bench.send(writer, 1, 300, |_| {});
    assert_eq!(bench.deliveries(reader).len(), 1);
}

#[test]
fn what_is_not_used_goes_after_a_minute() {
    let mut bench = Bench::with(|settings| settings.partitions = 2);
    let peer = bench.connect();
    bench.broker.create_topic("non-persistent://public/default/kept", 2).unwrap();
    let partitions = |bench: &mut Bench, topic: &str| {
        let topic = topic.into();
        let ask = pb::CommandPartitionedTopicMetadata { topic, request_id: 1, ..Default::default() };
        bench.ask(peer, Command::PartitionedMetadata(ask));
    };
    partitions(&mut bench, "non-persistent://public/default/fleeting");
    partitions(&mut bench, "persistent://public/default/stored");
    let schema = pb::Schema { name: "s".into(), r#type: 1, ..Default::default() };
    bench.produce(peer, 1, |p| {
        passing(p);
        p.schema = Some(schema);
    });
    bench.produce(peer, 2, |p| p.topic = "non-persistent://public/default/fleeting-partition-1".into());
    bench.produce(peer, 3, |p| p.topic = "non-persistent://public/default/alone-partition-5".into());
    let close = |bench: &mut Bench, producer_id| {
        let close = pb::CommandCloseProducer { producer_id, request_id: 1, ..Default::default() };
        bench.ask(peer, Command::CloseProducer(close));
    };
    close(&mut bench, 1);
    close(&mut bench, 3);
    let minute = |bench: &mut Bench| (0..62).for_each(|_| bench.pass(Duration::from_secs(1)));
    let schema = |bench: &mut Bench| {
        let get = pb::CommandGetSchema { request_id: 1, topic: PASSING.into(), schema_version: None };
        let heard = bench.tell(peer, Command::GetSchema(get));
        heard.unwrap();
        let heard = bench.commands(peer).pop();
        matches!(heard, Some(Command::GetSchemaResponse(response)) if response.schema.is_some())
    };
    bench.pass(Duration::from_secs(30));
    assert_eq!(bench.broker.topics().len(), 5);
    assert!(schema(&mut bench));
    minute(&mut bench);
    let left: Vec<_> = bench.broker.topics().into_iter().map(|(name, _)| name).collect();
    let full = |name: &str| format!("{name}://public/default");
    let (passing, kept) = (full("non-persistent"), full("persistent"));
    assert_eq!(left, [format!("{passing}/fleeting"), format!("{passing}/kept"), format!("{kept}/stored")]);
    assert!(!schema(&mut bench), "its schemas go with it");
    close(&mut bench, 2);
    minute(&mut bench);
    assert_eq!(bench.broker.topics().len(), 2);
    assert_eq!(bench.broker.stats().topics, 4);
}

#[test]
fn topics_that_nobody_uses_make_room() {
    let mut bench = Bench::with(|settings| settings.max_topics = 3);
    let peer = bench.connect();
    let open = |bench: &mut Bench, id: u64| {
        let answer = bench.produce(peer, id, |p| p.topic = format!("{PASSING}-{id}"));
        matches!(answer, Command::ProducerSuccess(_))
    };
    assert!((1..=3).all(|id| open(&mut bench, id)));
    bench.pass(Duration::from_secs(1));
    assert!(!open(&mut bench, 4), "all of them are used");
    let close = pb::CommandCloseProducer { producer_id: 2, request_id: 1, ..Default::default() };
    bench.ask(peer, Command::CloseProducer(close));
    bench.pass(Duration::from_secs(1));
    assert!(open(&mut bench, 5) && !open(&mut bench, 6));
    let names: Vec<_> = bench.broker.topics().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [1, 3, 5].map(|id| format!("{PASSING}-{id}")));
}

#[test]
fn they_are_listed_by_their_domain() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.producer(peer, 1);
    produce(&mut bench, peer, 2);
    let mut list = |mode: Option<i32>| {
        let request_id = bench.request();
        let namespace = "public/default".into();
        let ask = pb::CommandGetTopicsOfNamespace { request_id, namespace, mode, ..Default::default() };
        match bench.ask(peer, Command::GetTopicsOfNamespace(Box::new(ask))) {
            Command::GetTopicsOfNamespaceResponse(listed) => listed.topics,
            other => panic!("{other:?}"),
        }
    };
    use pb::command_get_topics_of_namespace::Mode;
    assert_eq!(list(None), [TOPIC]);
    assert_eq!(list(Some(Mode::Persistent as i32)), [TOPIC]);
    assert_eq!(list(Some(Mode::NonPersistent as i32)), [PASSING]);
    assert_eq!(list(Some(Mode::All as i32)), [TOPIC, PASSING]);
}

#[test]
fn what_needs_messages_that_are_kept_is_refused() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    produce(&mut bench, peer, 1);
    let compacted = bench.subscription(peer, 1, EXCLUSIVE, |s| {
        s.topic = PASSING.into();
        s.read_compacted = Some(true);
    });
    assert_eq!(error_of(&compacted[0]), pb::ServerError::NotAllowedError);
    subscribe(&mut bench, peer, 1, EXCLUSIVE, 0);
    let last = pb::CommandGetLastMessageId { consumer_id: 1, request_id: 1 };
    assert_eq!(error_of(&bench.ask(peer, Command::GetLastMessageId(last))), pb::ServerError::UnknownError);
    let refused = bench.broker.terminate_topic(PASSING).unwrap_err();
    assert_eq!(refused.kind(), forebay_base::error::ErrorKind::NotAllowed);
}

#[test]
fn the_name_decides_which_consumer_is_active() {
    let mut bench = Bench::new();
    let (peer, other) = (bench.connect(), bench.connect());
    produce(&mut bench, peer, 1);
    let named = |name: &str| {
        let name = name.to_owned();
        move |s: &mut pb::CommandSubscribe| {
            s.topic = PASSING.into();
            s.consumer_name = Some(name);
        }
    };
    bench.subscription(peer, 1, FAILOVER, named("b"));
    bench.subscription(other, 1, FAILOVER, named("a"));
    bench.flow(peer, 1, 9);
    bench.flow(other, 1, 9);
    bench.send(peer, 1, 0, |_| {});
    assert_eq!((bench.deliveries(peer).len(), bench.deliveries(other).len()), (0, 1));
    bench.broker.disconnect(bench.now, other);
    bench.send(peer, 1, 1, |_| {});
    assert_eq!(bench.deliveries(peer).len(), 1, "it was not kept: the second alone");
}

#[test]
fn a_publisher_with_many_subscriptions_takes_turns() {
    let mut bench = Bench::new();
    let (writer, reader, neighbour) = (bench.connect(), bench.connect(), bench.connect());
    produce(&mut bench, writer, 1);
    bench.producer(neighbour, 1);
    for id in 0..1000 {
        bench.subscription(reader, id, SHARED, |s| {
            s.topic = PASSING.into();
            s.subscription = format!("s{id}");
        });
    }
    let metadata = pb::MessageMetadata { producer_name: "p".into(), ..Default::default() };
    let mut head = BytesMut::new();
    hot::encode_metadata(&metadata, &mut head);
    let mut input = BytesMut::new();
    for sequence_id in 0..1000 {
        let send = hot::Send { producer_id: 1, sequence_id, ..Default::default() };
        let payload = Some(Payload::build(&head, b"x"));
        input.extend_from_slice(&Frame { command: Command::Send(send), payload }.to_bytes());
    }
    let (mut receipts, mut turns) = (0, 0);
    while receipts < 1000 {
        bench.broker.handle_input(bench.now, writer, &mut input).unwrap();
        turns += 1;
        let now = bench.commands(writer).len();
        assert!((1..=100).contains(&now), "{now} messages in one turn");
        receipts += now;
        assert_eq!(input.is_empty(), receipts == 1000);
        if !input.is_empty() {
            assert!(!bench.broker.may_read(writer));
            assert!(std::iter::from_fn(|| bench.broker.poll_wake()).any(|id| id == writer), "its next turn");
        }
        bench.fill(neighbour, 1, turns..turns + 1);
    }
    assert_eq!(figures(&bench), (0, 1_000_000));
}
