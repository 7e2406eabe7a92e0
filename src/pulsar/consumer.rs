//! Signatures only; the machine itself lands next.
#![allow(missing_docs, missing_debug_implementations, clippy::all)]
use crate::{error::*, pulsar::*, transmit::Transmit};
use std::sync::Arc;
use std::time::*;
#[derive(Default)]
pub struct Options {
    pub kind: pb::command_subscribe::SubType,
    pub receiver_queue: u32,
    pub batch_index_ack: bool,
    pub ack_group_time: Duration,
    pub ack_group_max: usize,
    pub nack_delay: Duration,
    pub start: Option<MessageId>,
    pub start_inclusive: bool,
    pub topic: Arc<str>,
    pub partition: i32,
    pub max_message_size: usize,
}
#[derive(Debug)]
pub struct Consumer;
impl Consumer {
    pub fn new(_: u64, _: Options) -> Self {
        todo!()
    }
    pub fn attach(&mut self, _: Instant) {}
    pub fn detach(&mut self) {}
    pub fn handle_message(&mut self, _: Instant, _: hot::Delivery, _: frame::Payload) -> Result<()> {
        todo!()
    }
    pub fn take(&mut self, _: usize, _: &mut Vec<Message>) -> usize {
        0
    }
    pub fn available(&self) -> usize {
        0
    }
    pub fn ack(&mut self, _: Instant, _: &MessageId) {}
    pub fn ack_cumulative(&mut self, _: Instant, _: &MessageId) -> Result<()> {
        todo!()
    }
    pub fn nack(&mut self, _: Instant, _: &MessageId, _: Option<Duration>) {}
    pub fn redeliver_unacknowledged(&mut self, _: Instant) {}
    pub fn receipt_ack(&mut self, _: &[MessageId], _: bool) -> Result<Option<hot::Ack>> {
        todo!()
    }
    pub fn begin_seek(&mut self) {}
    pub fn end_seek(&mut self, _: Option<MessageId>, _: bool) {}
    pub fn abort_seek(&mut self) {}
    pub fn flush_acks(&mut self) {}
    pub fn handle_timeout(&mut self, _: Instant) {}
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    pub fn poll_transmit(&mut self, _: Instant, _: &mut Transmit) {}
    pub fn wants_transmit(&self) -> bool {
        false
    }
    pub fn is_attached(&self) -> bool {
        false
    }
    pub fn resume_position(&self) -> Option<MessageId> {
        None
    }
}
