//! Messages with schemas of their own, against a broker that follows a script.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_base::error::{ErrorKind, Result};
use forebay_client::pulsar::Client;
use forebay_client::pulsar::options::{ClientOptions, ProducerOptions};
use forebay_pulsar::command::Command;
use forebay_pulsar::schema::{SchemaInfo, Type};
use forebay_pulsar::{Outgoing, pb};

use crate::script::{Broker, Events, refusal, run};

const TOPIC: &str = "persistent://public/default/schemas";

/// Sends a message until one is stored: on a busy machine the first may not be in time.
async fn stored(push: impl Fn() -> Result<()>, events: &Events) -> Result<u32> {
    loop {
        push()?;
        match events.outcome().await {
            Err(error) if error.kind() == ErrorKind::Timeout => {}
            outcome => return outcome,
        }
    }
}

#[test]
fn a_schema_that_cannot_be_registered_again_keeps_no_producer_from_opening_again() {
    let refuses = Arc::new(AtomicBool::new(false));
    let broker = Broker::start({
        let refuses = Arc::clone(&refuses);
        move |command| match command {
            Command::GetOrCreateSchema(asked) if refuses.load(Ordering::SeqCst) => {
                Some(vec![Some(refusal(asked.request_id, pb::ServerError::ServiceNotReady))])
            }
            _ => None,
        }
    });
    run(async {
        let options = ClientOptions { url: broker.url.clone(), ..ClientOptions::default() };
        let client = Client::connect(options).await?;
        let events = Arc::new(Events::default());
        let options =
            ProducerOptions { send_timeout: Some(Duration::from_secs(2)), ..ProducerOptions::default() };
        let producer = client.producer(TOPIC, options, Arc::clone(&events) as _).await?;
        let schema = Arc::new(SchemaInfo {
            name: "other".into(),
            kind: Type::Avro,
            data: Bytes::from_static(b"{}"),
            properties: Vec::new(),
        });
        let push = |schema| {
            producer.push(&Outgoing { payload: b"x", schema, ..Outgoing::default() }, None, false).map(drop)
        };
        assert_eq!(stored(|| push(Some(&schema)), &events).await?, 1);
        refuses.store(true, Ordering::SeqCst);
        broker.cut();
        assert_eq!(stored(|| push(None), &events).await?, 1, "it is open again");
        let error = loop {
            push(Some(&schema))?;
            let error = events.outcome().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
            // The refusal may come too late for the first message.
            if error.message().contains("by the script") {
                break error;
            }
        };
        assert!(error.message().contains("schema"), "{error}");
        refuses.store(false, Ordering::SeqCst);
        assert_eq!(stored(|| push(Some(&schema)), &events).await?, 1);
        producer.close(true).await?;
        client.close().await
    });
}
