//! A broker on the caller's thread, for tests that replace network, disk and clock.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::listeners::Urls;
use crate::options::Options;
use crate::server::{self, Request};
use crate::stats::TopicStats;
use forebay_base::error::{Error, ErrorKind, Result};

/// A broker that runs as a future. Dropping it stops that future.
#[derive(Debug)]
pub struct Broker {
    requests: mpsc::UnboundedSender<Request>,
}

impl Broker {
    /// A broker, the future that runs it on a [`LocalSet`](tokio::task::LocalSet), and its URLs
    /// once it listens.
    pub fn new(options: Options) -> (Self, impl Future<Output = ()>, oneshot::Receiver<Result<Urls>>) {
        let (requests, received) = mpsc::unbounded_channel();
        let (started, start) = oneshot::channel();
        let run = server::serve(options, received, |urls| drop(started.send(urls)));
        (Self { requests }, run, start)
    }

    /// Creates a topic; with 0 partitions, a plain one.
    pub async fn create_topic(&self, name: &str, partitions: u32) -> Result<()> {
        self.ask(|answer| Request::CreateTopic(name.to_owned(), partitions, answer)).await?
    }

    /// Adds partitions to a partitioned topic until it has `partitions`.
    pub async fn grow_topic(&self, name: &str, partitions: u32) -> Result<()> {
        self.ask(|answer| Request::GrowTopic(name.to_owned(), partitions, answer)).await?
    }

    /// Deletes a topic with its messages, and closes its producers and consumers.
    pub async fn delete_topic(&self, name: &str) -> Result<()> {
        self.ask(|answer| Request::DeleteTopic(name.to_owned(), answer)).await?
    }

    /// Names and partition counts of all topics.
    pub async fn topics(&self) -> Result<Vec<(String, u32)>> {
        self.ask(Request::Topics).await
    }

    /// Contents and users of a topic.
    pub async fn topic_stats(&self, name: &str) -> Result<TopicStats> {
        self.ask(|answer| Request::TopicStats(name.to_owned(), answer)).await?
    }

    async fn ask<T>(&self, question: impl FnOnce(SyncSender<T>) -> Request) -> Result<T> {
        let closed = || Error::new(ErrorKind::Closed, "the broker has been stopped");
        let (answer, answered): (_, Receiver<T>) = sync_channel(1);
        self.requests.send(question(answer)).map_err(|_| closed())?;
        loop {
            match answered.try_recv() {
                Ok(answer) => return Ok(answer),
                Err(TryRecvError::Disconnected) => return Err(closed()),
                Err(TryRecvError::Empty) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    }
}
