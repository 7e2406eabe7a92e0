//! Messages from producers.

use bytes::Bytes;

use super::partition::offset_of;
use super::{Action, Broker, CallId, fail};
use crate::log::{Entry, weight};
use crate::store::Op;
use forebay_base::error::{Error, ErrorKind};
use forebay_tubemq::command::Response;
use forebay_tubemq::message::{Outgoing, checksum, pack};
use forebay_tubemq::{Code, pb};

/// Bytes by which a message may exceed the limit, because clients compute its size differently.
const SIZE_ROOM: usize = 10 << 10;
/// Stands for "no checksum".
const UNCHECKED: i32 = -1;

fn refused(code: Code, text: impl Into<String>) -> Response {
    Response::SendMessage(pb::SendMessageResponseB2p {
        success: false,
        err_code: code as i32,
        err_msg: text.into(),
        ..Default::default()
    })
}

impl Broker {
    pub(super) fn send_message(&mut self, call_id: CallId, request: pb::SendMessageRequestP2b, bytes: usize) {
        match self.append_message(call_id, request) {
            Ok((partition, sequence, stored_ms)) => {
                let sent = Action::Sent { partition, sequence, stored_ms, call_id };
                if let Some(action) = self.commits.when_written_charging(call_id.connection, bytes, sent) {
                    self.act(action);
                }
            }
            Err(response) => self.answer(call_id, *response),
        }
    }

    fn append_message(
        &mut self,
        call_id: CallId,
        request: pb::SendMessageRequestP2b,
    ) -> Result<(u64, u64, u64), Box<Response>> {
        let refuse = |code, text: &str| Err(Box::new(refused(code, text)));
        self.check_visit(call_id, request.auth_info.as_ref())
            .and_then(|user| self.check_send(call_id, &user, &request.topic_name))
            .map_err(|(code, text)| Box::new(refused(code, text)))?;
        if let Some(error) = self.commits.failure() {
            return refuse(Code::ServiceUnavailable, error.message());
        }
        let data = request.data;
        if data.is_empty() {
            return refuse(Code::BadRequest, "the message is empty");
        }
        if data.len() > self.settings.max_message_size + SIZE_ROOM {
            let text = format!(
                "the message has {} bytes, and the limit is {} (tubemq_max_message_size)",
                data.len(),
                self.settings.max_message_size
            );
            return refuse(Code::BadRequest, &text);
        }
        let Some(id) = self.find_partition(&request.topic_name, request.partition_id) else {
            let text = format!(
                "topic {} has no partition {} on this broker",
                request.topic_name, request.partition_id
            );
            return refuse(Code::Forbidden, &text);
        };
        let check = checksum(&data);
        if request.check_sum != UNCHECKED && request.check_sum != check {
            return refuse(Code::Forbidden, "the checksum does not match");
        }
        if self.commits.is_full(self.settings.max_store) {
            return refuse(Code::ReceiveOverflow, &self.commits.reason(self.settings.max_store));
        }
        let Some((sequence, stored_ms)) = self.append(id, data, request.flag, check) else {
            return refuse(Code::Forbidden, "the partition was deleted");
        };
        Ok((id, sequence, stored_ms))
    }

    /// Puts a message at the end of a partition. Gives its number and its time.
    fn append(&mut self, id: u64, data: Bytes, flag: i32, check: i32) -> Option<(u64, u64)> {
        let (stored_ms, run_ms) = (self.wall_ms(), self.run_ms());
        let partition = self.partitions.get_mut(&id)?;
        partition.received += 1;
        self.counters.messages_in += 1;
        self.counters.bytes_in += data.len() as u64;
        let entry = partition.log.append(Entry {
            sequence: 0,
            last_index: 0,
            stored_ms,
            run_ms,
            publish_ms: stored_ms,
            deliver_ms: 0,
            count: 1,
            flags: flag as u32,
            hash: 0,
            checksum: Some(check as u32),
            body: data,
        });
        let (entry, sequence) = (entry.clone(), entry.sequence);
        self.commits.add_used(weight(&entry));
        self.commits.write(Op::Append { topic: id, entry, producer: None });
        Some((sequence, stored_ms))
    }

    /// Publishes a message for an operator to one of the topic's partitions, which take turns.
    /// Gives the partition's index and the offset.
    pub(super) fn publish_for_operator(
        &mut self,
        topic: &str,
        message: &Outgoing<'_>,
    ) -> Result<(usize, i64), Error> {
        let packed = pack(message)?;
        if packed.data.len() > self.settings.max_message_size {
            let text = format!("the message is larger than {} bytes", self.settings.max_message_size);
            return Err(Error::new(ErrorKind::MessageTooLarge, text));
        }
        if let Some(error) = self.commits.failure() {
            return Err(error.clone());
        }
        if self.commits.is_full(self.settings.max_store) {
            let text = self.commits.reason(self.settings.max_store);
            return Err(Error::new(ErrorKind::QuotaExceeded, text));
        }
        self.ensure_topic(topic);
        let missing = || Error::new(ErrorKind::TopicNotFound, format!("topic {topic} does not exist"));
        let partitions = &self.topics.get(topic).ok_or_else(missing)?.partitions;
        let index = self.counters.messages_in as usize % partitions.len().max(1);
        let id = *partitions.get(index).ok_or_else(missing)?;
        let check = checksum(&packed.data);
        let (sequence, _) = self.append(id, packed.data, packed.flag, check).ok_or_else(missing)?;
        self.when_written(Action::Published { partition: id, sequence });
        Ok((index, offset_of(sequence)))
    }

    /// Makes a written message available to consumers.
    pub(super) fn published(&mut self, id: u64, sequence: u64) {
        if self.commits.failure().is_none()
            && let Some(partition) = self.partitions.get_mut(&id)
        {
            partition.log.commit(sequence + 1);
        }
    }

    /// Answers a message that was written, or that the store failed to write.
    pub(super) fn sent(&mut self, id: u64, sequence: u64, stored_ms: u64) -> Response {
        let mut response = Response::SendMessage(pb::SendMessageResponseB2p {
            success: true,
            err_code: Code::Success as i32,
            err_msg: message_id(id, sequence).to_string(),
            require_auth: None,
            message_id: Some(message_id(id, sequence)),
            append_time: Some(stored_ms as i64),
            append_offset: Some(offset_of(sequence)),
        });
        if let Some(error) = self.commits.failure() {
            fail(&mut response, Code::ServiceUnavailable, error.message());
        }
        self.published(id, sequence);
        response
    }
}

/// A message id that is unique on this broker.
pub(super) fn message_id(partition: u64, sequence: u64) -> i64 {
    ((partition & 0x7f_ffff) << 40 | sequence) as i64
}
