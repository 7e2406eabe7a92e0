//! Signatures only; the machine itself lands next.
#![allow(missing_docs, missing_debug_implementations, clippy::all)]
use crate::{compression::Compression, error::*, pulsar::*, transmit::Transmit};
use std::time::*;
pub struct Options {
    pub batching: bool,
    pub batch_max_messages: usize,
    pub batch_max_bytes: usize,
    pub batch_delay: Duration,
    pub compression: Compression,
    pub send_timeout: Option<Duration>,
    pub max_pending: usize,
    pub max_pending_bytes: usize,
    pub initial_sequence_id: Option<u64>,
    pub chunking: bool,
    pub key_based: bool,
}
#[derive(Debug)]
pub struct Producer;
pub enum Event {
    Sent { count: u32, ledger: u64, entry: u64, batch: bool, first_sequence: u64, bytes: usize },
    Failed { count: u32, error: Error, bytes: usize },
}
impl Producer {
    pub fn new(_: u64, _: Options) -> Self {
        todo!()
    }
    pub fn push(&mut self, _: Instant, _: u64, _: &Outgoing<'_>) -> Result<u64> {
        todo!()
    }
    pub fn try_push(&mut self, _: Instant, _: u64, _: &Outgoing<'_>) -> Result<u64> {
        todo!()
    }
    pub fn attach(&mut self, _: Instant, _: &str, _: i64, _: usize) {}
    pub fn detach(&mut self) {}
    pub fn handle_receipt(&mut self, _: Instant, _: &hot::SendReceipt) -> Result<()> {
        todo!()
    }
    pub fn handle_send_error(&mut self, _: Instant, _: &pb::CommandSendError) -> Result<()> {
        todo!()
    }
    pub fn flush(&mut self) {}
    pub fn handle_timeout(&mut self, _: Instant) {}
    pub fn poll_timeout(&self) -> Option<Instant> {
        todo!()
    }
    pub fn poll_transmit(&mut self, _: Instant, _: &mut Transmit, _: usize) -> bool {
        todo!()
    }
    pub fn poll_event(&mut self) -> Option<Event> {
        todo!()
    }
    pub fn close(&mut self, _: Error) {}
    pub fn pending_messages(&self) -> usize {
        0
    }
    pub fn is_idle(&self) -> bool {
        todo!()
    }
    pub fn last_sequence_id(&self) -> i64 {
        0
    }
}
