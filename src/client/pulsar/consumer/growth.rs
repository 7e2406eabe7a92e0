//! Topics of a consumer that get more partitions, are deleted, and are there again; and topics that
//! a pattern matches.
//!
//! The broker is asked for the number of partitions from time to time: it sends no news of that.
//! `watch` knows the topics of a pattern.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{AbortHandle, JoinSet};

use super::members::{Members, Place};
use super::partition::PartitionConsumer;
use super::watch::Listing;
use crate::logger;
use crate::pulsar::shared::Shared;
use crate::together::together;
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::random::HashSet;
use forebay_net::backoff::Backoff;
use forebay_pulsar::topic::TopicName;
use tracing::warn;

/// A topic with its partitions.
#[derive(Debug)]
pub(super) struct TopicPartitions {
    topic: TopicName,
    /// Whether it is one of the consumer's own topics, and not that of retries.
    own: bool,
    /// Number of partitions; 0 for a topic without any.
    partitions: u32,
}

impl TopicPartitions {
    /// Asks for the number of partitions. With `create` the topic is created if the broker allows
    /// it.
    pub(super) async fn find(shared: Arc<Shared>, topic: TopicName, own: bool, create: bool) -> Result<Self> {
        let partitions = match topic.partition() {
            Some(_) => 0,
            None => {
                let name = topic.to_string();
                shared.lookup_of(&name).partitions(&name, create).await?
            }
        };
        Ok(Self { topic, own, partitions })
    }

    pub(super) fn name(&self) -> &TopicName {
        &self.topic
    }

    /// Number of partitions; 0 for a topic without any, and for a partition.
    pub(super) fn partitions(&self) -> u32 {
        self.partitions
    }

    /// Whether it is a topic without partitions, or one partition.
    pub(super) fn is_whole(&self) -> bool {
        self.partitions == 0
    }

    /// Its partitions, or the topic itself.
    pub(super) fn places(&self) -> Vec<Place> {
        let place = |topic: &TopicName| Place {
            topic: topic.to_string(),
            partition: topic.partition().map_or(-1, |p| p as i32),
            own: self.own,
        };
        if self.partitions == 0 {
            return vec![place(&self.topic)];
        }
        (0..self.partitions).map(|partition| place(&self.topic.with_partition(partition))).collect()
    }
}

/// The topics of a listing, each with its partitions. Those of `known` are left out. `without`
/// decides about a topic that cannot be looked up: it is left out, or nothing is found.
pub(super) async fn families_of(
    shared: &Shared,
    listing: &Listing,
    known: &HashSet<TopicName>,
    left_out: &impl Fn(&TopicName) -> bool,
    mut without: impl FnMut(&TopicName, Error) -> Result<()>,
) -> Result<Vec<TopicPartitions>> {
    let mut listed: BTreeMap<String, (TopicName, Vec<TopicName>)> = BTreeMap::new();
    for topic in listing.topics() {
        let base = topic.without_partition();
        if known.contains(&topic) || known.contains(&base) || left_out(&base) {
            continue;
        }
        let (_, partitions) = listed.entry(base.to_string()).or_insert_with(|| (base, Vec::new()));
        if topic.partition().is_some() {
            partitions.push(topic);
        }
    }
    // Only partitions betray a partitioned topic, and a plain topic may be named like one.
    let may_be_partitioned = listed.iter().filter(|(_, (_, partitions))| !partitions.is_empty());
    let asking = may_be_partitioned.map(|(name, _)| {
        let (lookup, name) = (shared.lookup_of(name), name.clone());
        async move { lookup.partitions(&name, false).await }
    });
    let mut counts = together(asking).await.into_iter();
    let mut followed = Vec::new();
    for (base, listed) in listed.into_values() {
        let topic_partitions = |topic, partitions| TopicPartitions { topic, own: true, partitions };
        let asked = if listed.is_empty() { None } else { counts.next() };
        let count = match asked.unwrap_or(Ok(0)) {
            Err(error) if error.kind() != ErrorKind::TopicNotFound => {
                without(&base, error)?;
                continue;
            }
            count => count.unwrap_or(0),
        };
        if count > 0 || listed.is_empty() {
            followed.push(topic_partitions(base, count));
        } else {
            followed.extend(listed.into_iter().map(|topic| topic_partitions(topic, 0)));
        }
    }
    Ok(followed)
}

/// Number of topics, each partition counted.
pub(super) fn places_of(followed: &[TopicPartitions]) -> usize {
    followed.iter().map(|topic_partitions| topic_partitions.partitions.max(1) as usize).sum()
}

/// How often what is looked at, and limits.
pub(super) struct Rules {
    pub(super) partitions_update_interval: Duration,
    pub(super) pattern_update_interval: Duration,
    pub(super) pattern_max_topics: usize,
    /// Topics that a pattern may match and that are not consumed: those that the consumer sends to.
    pub(super) left_out: Box<dyn Fn(&TopicName) -> bool + Send + Sync>,
}

/// Starts the task that looks after topics, if there is something to look after: a topic without
/// partitions never gets any.
pub(super) fn start(
    shared: Arc<Shared>,
    members: Arc<Members>,
    followed: Vec<TopicPartitions>,
    listing: Option<Listing>,
    rules: Rules,
) -> Option<AbortHandle> {
    let may_grow =
        members.several() || followed.iter().any(|topic_partitions| topic_partitions.partitions > 0);
    if listing.is_none() && (!may_grow || rules.partitions_update_interval.is_zero()) {
        return None;
    }
    let growth = Growth {
        backoff: Backoff::new(shared.options.max_backoff),
        shared,
        members,
        followed,
        rules,
        joining: JoinSet::new(),
        warned: HashSet::default(),
        is_full: false,
    };
    let task = match listing {
        None => tokio::spawn(growth.work()),
        Some(listing) => tokio::spawn(growth.work_on(listing)),
    };
    Some(task.abort_handle())
}

struct Growth {
    shared: Arc<Shared>,
    members: Arc<Members>,
    followed: Vec<TopicPartitions>,
    rules: Rules,
    /// Partitions that are being opened.
    joining: JoinSet<(Arc<PartitionConsumer>, Result<()>)>,
    /// Partitions that could not be opened.
    warned: HashSet<Arc<str>>,
    /// Whether topics of the pattern were left out for their number.
    is_full: bool,
    backoff: Backoff,
}

/// A time that does not come, for what is never due.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

fn after(interval: Duration) -> Instant {
    clock::now() + if interval.is_zero() { NEVER } else { interval }
}

impl Growth {
    async fn work(mut self) {
        loop {
            tokio::select! {
                biased;
                Some(joined) = self.joining.join_next() => self.joined(joined.ok()),
                () = tokio::time::sleep(self.rules.partitions_update_interval) => self.look_after_all().await,
            }
        }
    }

    /// As [`Self::work`], for a pattern.
    async fn work_on(mut self, mut listing: Listing) {
        let (partitions, pattern) =
            (self.rules.partitions_update_interval, self.rules.pattern_update_interval);
        let updates = Arc::clone(&listing.list_updates);
        let (mut look_at, mut poll_at, mut watch_at) = (after(partitions), after(pattern), clock::now());
        loop {
            tokio::select! {
                biased;
                Some(joined) = self.joining.join_next() => self.joined(joined.ok()),
                () = updates.came.notified() => {
                    if !listing.apply_news() {
                        poll_at = clock::now();
                    }
                    self.follow(&listing).await;
                }
                () = listing.unwatched() => {
                    listing.forget_watcher();
                    watch_at = clock::now() + self.backoff.pause();
                }
                () = tokio::time::sleep_until(watch_at.into()) => {
                    match listing.watch().await {
                        Ok(watched) => {
                            self.backoff.reset();
                            watch_at = after(Duration::ZERO);
                            if watched {
                                // Some brokers miss what is created while they begin to watch.
                                poll_at = clock::now();
                            }
                        }
                        Err(_) => watch_at = clock::now() + self.backoff.pause(),
                    }
                    self.follow(&listing).await;
                }
                () = tokio::time::sleep_until(poll_at.into()) => {
                    // What goes wrong here goes wrong with the connection, and is tried again.
                    let _ = listing.poll().await;
                    poll_at = after(pattern);
                    self.follow(&listing).await;
                }
                () = tokio::time::sleep_until(look_at.into()) => {
                    look_at = after(partitions);
                    self.look_after_all().await;
                }
            }
        }
    }

    /// Has the consumer follow the list of its pattern.
    async fn follow(&mut self, listing: &Listing) {
        let mut listed = HashSet::default();
        for topic in listing.topics() {
            listed.insert(topic.without_partition());
            listed.insert(topic);
        }
        let followed = std::mem::take(&mut self.followed);
        let (stay, gone): (Vec<_>, Vec<_>) = followed
            .into_iter()
            .partition(|topic_partitions| !topic_partitions.own || listed.contains(&topic_partitions.topic));
        self.followed = stay;
        for topic_partitions in gone {
            self.forget(&topic_partitions);
        }
        for index in 0..self.followed.len() {
            let topic_partitions = &self.followed[index];
            let next = topic_partitions.topic.with_partition(topic_partitions.partitions);
            // A partition that is not known yet, or one that was deleted and is there again.
            if topic_partitions.partitions > 0 && listed.contains(&next) || self.is_deleted(topic_partitions)
            {
                self.look_after(index).await;
            }
        }
        let known: HashSet<_> =
            self.followed.iter().map(|topic_partitions| topic_partitions.topic.clone()).collect();
        let warned = &mut self.warned;
        let without = |topic: &TopicName, error| {
            if warned.insert(topic.to_string().into()) {
                warn!(
                    target: logger::PULSAR_CONSUMER,
                    "the consumer goes on without {topic}, which cannot be looked up and is tried again: \
                     {error}",
                );
            }
            Ok(())
        };
        let Ok(new) = families_of(&self.shared, listing, &known, &self.rules.left_out, without).await else {
            return;
        };
        let mut room = self.rules.pattern_max_topics.saturating_sub(places_of(&self.followed));
        let mut without = 0;
        for topic_partitions in new {
            let count = places_of(std::slice::from_ref(&topic_partitions));
            if count > room {
                without += 1;
                continue;
            }
            room -= count;
            self.join(topic_partitions.places());
            self.followed.push(topic_partitions);
        }
        if without > 0 && !std::mem::replace(&mut self.is_full, true) {
            warn!(
                target: logger::PULSAR_CONSUMER,
                "the pattern {:?} matches {without} topics more than the consumer may have \
                 (pattern_max_topics is {}): it goes on without them",
                listing.pattern.text(),
                self.rules.pattern_max_topics,
            );
        }
        self.is_full = without > 0;
    }

    /// Takes the partitions of a topic out that is no longer listed.
    fn forget(&mut self, topic_partitions: &TopicPartitions) {
        let now = self.members.now();
        let parts: Vec<_> =
            topic_partitions.places().iter().filter_map(|place| now.of_topic(&place.topic)).collect();
        let removed = parts.iter().map(|part| {
            let error = Error::new(ErrorKind::TopicNotFound, "the topic was deleted");
            (Arc::clone(part), error.with_topic(Arc::clone(&part.topic)))
        });
        self.members.remove(removed.collect());
        for part in parts {
            self.warned.remove(&part.topic);
            close(part);
        }
    }

    /// Whether there are no partitions: their topic was not there, or they could not be subscribed.
    fn is_deleted(&self, topic_partitions: &TopicPartitions) -> bool {
        let now = self.members.now();
        let is_gone = |place: &Place| now.of_topic(&place.topic).is_none_or(|part| part.is_deleted());
        topic_partitions.places().iter().all(is_gone)
    }

    async fn look_after_all(&mut self) {
        for index in 0..self.followed.len() {
            self.look_after(index).await;
        }
    }

    /// Asks for the number of partitions, if it may have changed, and adds those that are missing.
    async fn look_after(&mut self, index: usize) {
        let topic_partitions = &self.followed[index];
        // A topic without partitions is asked for once it is gone.
        let is_plain = topic_partitions.partitions == 0;
        if is_plain && !self.is_deleted(topic_partitions) {
            return;
        }
        let name = topic_partitions.topic.to_string();
        let asked = self.shared.lookup_of(&name).partitions(&name, false).await;
        match asked {
            Ok(0) if !is_plain => self.gone(index),
            Err(error) if error.kind() == ErrorKind::TopicNotFound => self.gone(index),
            // What goes wrong here goes wrong with the partitions too, which say so.
            Err(_) => {}
            Ok(count) => {
                let topic_partitions = &mut self.followed[index];
                // Never fewer: those that are there may still have messages.
                topic_partitions.partitions = topic_partitions.partitions.max(count);
                let now = self.members.now();
                let mut missing = topic_partitions.places();
                missing.retain(|place| now.of_topic(&place.topic).is_none_or(|part| part.is_deleted()));
                self.join(missing);
            }
        }
    }

    /// Closes the partitions of a topic that has been deleted. The name is kept: the topic may be
    /// there again later.
    fn gone(&mut self, index: usize) {
        let topic_partitions = &self.followed[index];
        // The end of the only topic is the end of the consumer, which its partitions see to.
        if !self.members.several() {
            return;
        }
        let now = self.members.now();
        for place in topic_partitions.places() {
            let Some(part) = now.of_topic(&place.topic).filter(|part| !part.has_ended()) else { continue };
            let error = Error::new(ErrorKind::TopicNotFound, "the topic was deleted");
            part.end_alone(error.with_topic(Arc::clone(&part.topic)));
            close(part);
        }
    }

    fn join(&mut self, places: Vec<Place>) {
        for (part, opened) in self.members.add(places, true) {
            self.joining.spawn(async move {
                let closed = || Error::new(ErrorKind::Closed, "the consumer was closed");
                let opened = opened.await.unwrap_or_else(|_| Err(closed()));
                (part, opened)
            });
        }
    }

    fn joined(&mut self, joined: Option<(Arc<PartitionConsumer>, Result<()>)>) {
        match joined {
            Some((part, Err(error))) => {
                if self.warned.insert(Arc::clone(&part.topic)) {
                    warn!(
                        target: logger::PULSAR_CONSUMER,
                        "the consumer goes on without {}, which cannot be subscribed and is tried again: \
                         {error}",
                        part.topic,
                    );
                }
                self.members.remove(vec![(part, error)]);
            }
            Some((part, Ok(()))) => {
                self.warned.remove(&part.topic);
            }
            None => {}
        }
    }
}

/// Closes a partition that is not used any more.
fn close(part: &Arc<PartitionConsumer>) {
    let part = Arc::clone(part);
    part.stop();
    tokio::spawn(async move { part.close().await });
}
