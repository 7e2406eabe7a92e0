//! The embedded Pulsar broker as commands and answers. No socket, no disk, no clock: its state
//! machine is driven by hand.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use forebay_base::transmit::Transmit;
use forebay_broker::auth::TokenKeys;
use forebay_broker::log::{Entry, Source, unreadable};
use forebay_broker::protocol::Protocol as _;
use forebay_broker::pulsar::Broker;
use forebay_broker::store::{Found, StoredTopic};
use forebay_pulsar::command::Command;
use forebay_pulsar::frame::{Decoder, Frame, Payload};
use forebay_pulsar::{hot, pb};
use forebay_sqlite::{Outcome, Report};

use crate::support::pulsar::*;

mod connections;
mod damage;
mod dispatch;
mod life;
mod non_persistent;
mod output;
mod permissions;
mod producers;
mod replay;
mod subscriptions;
mod topics;
mod watchers;
mod web;

/// A store whose entry 5 cannot be read.
struct Damaged;

impl Source for Damaged {
    fn read(&mut self, _: u64, from: u64, limit: usize, _: usize) -> forebay_base::error::Result<Vec<Entry>> {
        if from == 5 {
            return Err(unreadable(5, "the page is damaged"));
        }
        let entry = |sequence| Entry {
            sequence,
            last_index: sequence,
            stored_ms: WALL_MS,
            run_ms: 0,
            publish_ms: WALL_MS,
            deliver_ms: 0,
            count: 1,
            flags: 0,
            hash: 0,
            checksum: None,
            body: Bytes::from_static(b"x"),
        };
        let end = if from < 5 { 5 } else { 10 };
        Ok((from..end).take(limit).map(entry).collect())
    }
}
