//! Requests about a consumer that the broker closes, as it does when it unloads the topic.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_base::error::{ErrorKind, Result};
use forebay_client::pulsar::options::{ClientOptions, ConsumerOptions};
use forebay_client::pulsar::{Client, Consumer, SeekTo};
use forebay_pulsar::command::Command;
use forebay_pulsar::{MessageId, pb};

use crate::script::{Answers, Broker, Events, run, success};

const TOPIC: &str = "persistent://public/default/unloaded";
/// Entry of the last message.
const LAST: u64 = 9;

/// The broker closes the consumer in place of the first `times` answers about it.
fn closing(times: usize) -> Arc<Broker> {
    let closed = AtomicUsize::new(0);
    Broker::start(move |command| {
        let (consumer_id, answer) = match command {
            Command::Ack(ack) => (ack.consumer_id, vec![]),
            Command::GetLastMessageId(asked) => (asked.consumer_id, vec![Some(last(asked.request_id))]),
            Command::Unsubscribe(asked) => (asked.consumer_id, vec![Some(success(asked.request_id))]),
            // It closes the consumer around its answer.
            Command::Seek(asked) => {
                (asked.consumer_id, vec![Some(close(asked.consumer_id)), Some(success(asked.request_id))])
            }
            _ => return None,
        };
        let closes = closed.fetch_add(1, Ordering::SeqCst) < times;
        Some(if closes { vec![Some(close(consumer_id))] as Answers } else { answer })
    })
}

fn close(consumer_id: u64) -> Command {
    Command::CloseConsumer(pb::CommandCloseConsumer {
        consumer_id,
        request_id: u64::MAX,
        ..Default::default()
    })
}

fn last(request_id: u64) -> Command {
    Command::GetLastMessageIdResponse(Box::new(pb::CommandGetLastMessageIdResponse {
        last_message_id: pb::MessageIdData { ledger_id: 3, entry_id: LAST, ..Default::default() },
        request_id,
        consumer_mark_delete_position: None,
    }))
}

async fn subscribed(broker: &Broker) -> Result<(Client, Consumer)> {
    let client =
        Client::connect(ClientOptions { url: broker.url.clone(), ..ClientOptions::default() }).await?;
    let (topics, options) = (vec![TOPIC.into()], ConsumerOptions::default());
    let consumer = client.consumer(topics, "s".into(), options, Arc::new(Events::default())).await?;
    Ok((client, consumer))
}

fn subscribes(broker: &Broker) -> usize {
    broker.count(|command| matches!(command, Command::Subscribe(_)))
}

#[test]
fn an_acknowledgement_ends_with_the_consumer() {
    let broker = closing(1);
    run(async {
        let (client, consumer) = subscribed(&broker).await?;
        let target = (Arc::from(TOPIC), MessageId::new(3, 1)).into();
        // Without an answer it would be a time-out.
        let error = consumer.ack_receipt(&[target], false).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
        consumer.close().await?;
        client.close().await
    });
}

#[test]
fn questions_are_asked_again() {
    let broker = closing(2);
    run(async {
        let (client, consumer) = subscribed(&broker).await?;
        let ids = consumer.last_message_ids().await?;
        assert_eq!(ids[0].1.entry, LAST);
        assert_eq!(subscribes(&broker), 3);
        client.close().await
    });
    let broker = closing(1);
    run(async {
        let (client, consumer) = subscribed(&broker).await?;
        consumer.unsubscribe(false).await?;
        assert_eq!(subscribes(&broker), 2);
        client.close().await
    });
}

#[test]
fn a_seek_without_an_answer_is_made_again() {
    let broker = closing(1);
    run(async {
        let (client, consumer) = subscribed(&broker).await?;
        consumer.seek(SeekTo::Time(7)).await?;
        assert_eq!(broker.count(|command| matches!(command, Command::Seek(_))), 2);
        // The first one, after the close, and after the answer of the second seek.
        assert_eq!(subscribes(&broker), 3);
        consumer.close().await?;
        client.close().await
    });
}

#[test]
fn an_inclusive_seek_to_the_end_is_one_to_the_last_message() {
    let broker = closing(0);
    run(async {
        let (client, consumer) = subscribed(&broker).await?;
        let to = SeekTo::Id { topic: "".into(), id: MessageId::LATEST, inclusive: true };
        consumer.seek(to).await?;
        let sought = broker.seen.lock().unwrap().iter().find_map(|command| match command {
            Command::Seek(seek) => seek.message_id.clone(),
            _ => None,
        });
        assert_eq!(sought.map(|id| (id.ledger_id, id.entry_id)), Some((3, LAST)));
        consumer.close().await?;
        client.close().await
    });
}
