//! Topics that move to another cluster, against brokers that follow scripts.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use forebay_client::pulsar::Client;
use forebay_client::pulsar::options::{ClientOptions, ConsumerOptions, ProducerOptions};
use forebay_pulsar::command::Command;
use forebay_pulsar::{Outgoing, pb};

use crate::script::{Broker, Events, in_time, partitions, refusal, run, run_in_time, until};

const TOPIC: &str = "persistent://public/default/moved";

fn migrated(resource_id: u64, url: &str) -> Command {
    Command::TopicMigrated(pb::CommandTopicMigrated {
        resource_id,
        resource_type: pb::command_topic_migrated::ResourceType::Producer as i32,
        broker_service_url: Some(url.into()),
        ..Default::default()
    })
}

fn asks_for_partitions(command: &Command) -> bool {
    matches!(command, Command::PartitionedMetadata(_))
}

#[test]
fn partitions_and_schemas_are_asked_where_the_topic_is() {
    let count = Arc::new(AtomicU32::new(1));
    let there = Broker::start({
        let count = Arc::clone(&count);
        move |command| match command {
            Command::PartitionedMetadata(asked) => {
                Some(vec![Some(partitions(asked.request_id, count.load(Ordering::SeqCst)))])
            }
            Command::GetSchema(asked) => {
                Some(vec![Some(refusal(asked.request_id, pb::ServerError::TopicNotFound))])
            }
            _ => None,
        }
    });
    let here = Broker::start(|command| match command {
        Command::PartitionedMetadata(asked) => Some(vec![Some(partitions(asked.request_id, 1))]),
        _ => None,
    });
    run(async {
        let options = ClientOptions { url: here.url.clone(), ..ClientOptions::default() };
        let client = Client::connect(options).await?;
        let events = Arc::new(Events::default());
        let options = ProducerOptions {
            partitions_update_interval: Duration::from_millis(50),
            ..ProducerOptions::default()
        };
        let producer = client.producer(TOPIC, options, Arc::clone(&events) as _).await?;
        here.tell(&migrated(0, &there.url));
        here.cut();
        until(|| there.count(|command| matches!(command, Command::Producer(_))) == 1).await;
        count.store(3, Ordering::SeqCst);
        until(|| producer.partitions() == 3).await;
        let before = here.count(asks_for_partitions);
        producer.check_has_no_schema().await?;
        assert_eq!(client.partitions(TOPIC).await?, 3);
        assert_eq!(there.count(|command| matches!(command, Command::GetSchema(_))), 1);
        assert_eq!(there.count(|command| matches!(command, Command::Producer(_))), 3);
        assert_eq!(here.count(asks_for_partitions), before, "the old cluster is not asked any more");
        assert_eq!(here.count(|command| matches!(command, Command::Producer(_))), 1);
        producer.close(true).await?;
        client.close().await
    });
}

#[test]
fn a_consumer_asks_for_partitions_where_its_topic_is() {
    let there = Broker::start(|command| match command {
        Command::PartitionedMetadata(asked) => Some(vec![Some(partitions(asked.request_id, 2))]),
        _ => None,
    });
    let here = Broker::start(|command| match command {
        Command::PartitionedMetadata(asked) => Some(vec![Some(partitions(asked.request_id, 1))]),
        _ => None,
    });
    run(async {
        let options = ClientOptions { url: here.url.clone(), ..ClientOptions::default() };
        let client = Client::connect(options).await?;
        let options = ConsumerOptions {
            partitions_update_interval: Duration::from_millis(50),
            ..ConsumerOptions::default()
        };
        let events = Arc::new(Events::default());
        let consumer = client.consumer(vec![TOPIC.into()], "s".into(), options, events).await?;
        let Command::TopicMigrated(mut moved) = migrated(0, &there.url) else { panic!() };
        moved.resource_type = pb::command_topic_migrated::ResourceType::Consumer as i32;
        here.tell(&Command::TopicMigrated(moved));
        here.cut();
        until(|| there.count(|command| matches!(command, Command::Subscribe(_))) == 2).await;
        assert_eq!(client.journal().counts().resubscribed, 1, "the partition that is new is no loss");
        consumer.close().await?;
        client.close().await
    });
}

#[test]
fn directions_are_followed_at_once_after_many_failures() {
    run_in_time(|| async {
        let there = Broker::start(|_| None);
        let (fails, url) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::<String>::new()));
        let here = Broker::start({
            let (fails, url, failures) = (Arc::clone(&fails), Arc::clone(&url), AtomicU32::new(0));
            move |command| match command {
                Command::Producer(asked) if fails.load(Ordering::SeqCst) => {
                    Some(match failures.fetch_add(1, Ordering::SeqCst) {
                        0..5 => vec![Some(refusal(asked.request_id, pb::ServerError::ServiceNotReady))],
                        // The next pause is of at least 1.6 s.
                        _ => vec![Some(migrated(asked.producer_id, url.get().unwrap()))],
                    })
                }
                _ => None,
            }
        });
        url.set(there.url.clone()).unwrap();
        let options = ClientOptions { url: here.url.clone(), ..ClientOptions::default() };
        let client = Client::connect(options).await?;
        let events = Arc::new(Events::default());
        let producer = client.producer(TOPIC, ProducerOptions::default(), Arc::clone(&events) as _).await?;
        fails.store(true, Ordering::SeqCst);
        here.cut();
        until(|| here.count(|command| matches!(command, Command::Producer(_))) == 7).await;
        let told = Instant::now();
        producer.push(&Outgoing { payload: b"x", ..Outgoing::default() }, None, false)?;
        assert_eq!(events.outcome().await?, 1);
        in_time(told.elapsed(), Duration::from_secs(1))?;
        producer.close(true).await?;
        client.close().await
    });
}

#[test]
fn a_lazy_partition_that_was_refused_is_opened_by_the_next_message() {
    let refuses = Arc::new(AtomicBool::new(false));
    let broker = Broker::start({
        let refuses = Arc::clone(&refuses);
        move |command| match command {
            Command::PartitionedMetadata(asked) => Some(vec![Some(partitions(asked.request_id, 2))]),
            Command::Producer(asked) if refuses.load(Ordering::SeqCst) => {
                Some(vec![Some(refusal(asked.request_id, pb::ServerError::AuthorizationError))])
            }
            _ => None,
        }
    });
    run(async {
        let options = ClientOptions { url: broker.url.clone(), ..ClientOptions::default() };
        let client = Client::connect(options).await?;
        let events = Arc::new(Events::default());
        let options = ProducerOptions { lazy_start: true, ..ProducerOptions::default() };
        let producer = client.producer(TOPIC, options, Arc::clone(&events) as _).await?;
        let opened = broker.seen.lock().unwrap().iter().find_map(|command| match command {
            Command::Producer(asked) => Some(asked.topic.ends_with("-1")),
            _ => None,
        });
        let other = if opened.unwrap() { 0 } else { 1 };
        refuses.store(true, Ordering::SeqCst);
        let push = || {
            producer.push(&Outgoing { payload: b"x", ..Outgoing::default() }, Some(other), false).map(drop)
        };
        for _ in 0..2 {
            push()?;
            let error = events.outcome().await.unwrap_err();
            assert_eq!(error.kind().code(), "authorization", "{error}");
        }
        assert_eq!(producer.started_partitions(), 1);
        refuses.store(false, Ordering::SeqCst);
        push()?;
        assert_eq!(events.outcome().await?, 1);
        producer.close(true).await?;
        client.close().await
    });
}
