//! Partitions held by clients of groups, and messages to consumers.
//!
//! A client holds a partition while it sends heartbeats or gets. The messages of one get are a
//! pack: the next get, or a commit, states whether the pack was consumed; if not, it is delivered
//! again. With `manualCommitOffset`, gets advance without that, and a commit covers everything
//! delivered.
//!
//! A confirmation does not name its pack: it means the last one. Calls of a connection that its
//! client has given up may arrive late, when another pack is the last one. Therefore calls are
//! refused on a connection that is older than the last one on which the client used the partition.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::partition::{Lease, OFFSET_UNIT, Position, Refusal, held, offset_of};
use super::produce::message_id;
use super::{Broker, CallId};
use crate::log::{Entry, Log, Source};
use crate::permissions::Access;
use forebay_base::error::Error;
use forebay_tubemq::command::Response;
use forebay_tubemq::consumer::NO_OFFSET;
use forebay_tubemq::message::{HAS_ATTRIBUTES, TYPE};
use forebay_tubemq::topic::{SubscribeInfo, check_group};
use forebay_tubemq::{Code, pb};

const REGISTER: i32 = 31;
const UNREGISTER: i32 = 32;
const FROM_MAX: i32 = 1;
const FROM_MAX_ALWAYS: i32 = 2;
/// Read status of an unregister call: the delivered pack was consumed.
const CONSUMED: i32 = 0;
/// Size of a pack in bytes, give or take one message.
const PACK_BYTES: usize = 512 << 10;
/// Limits on the messages that one get examines and on their bytes, give or take one message: a
/// filter may leave all of them out.
const PACK_MESSAGES: u64 = 4000;
const EXAMINED_BYTES: usize = 4 << 20;
/// Cost of looking at a message, in bytes of its body that would cost the same.
const EXAMINED: usize = 256;
/// Limits on the filters of a client for a topic and on the bytes of one filter, as in the real
/// broker.
const MAX_FILTERS: usize = 500;
const MAX_FILTER: usize = 256;
/// Limit on the partitions of a heartbeat.
const MAX_HELD: usize = 1 << 16;
/// Stands for a missing offset or time.
const NONE: i64 = -1;

/// The messages of one get.
struct Pack {
    /// Number behind the last message that was examined.
    next: u64,
    messages: Vec<pb::TransferedMessage>,
    /// Bytes of the messages.
    bytes: usize,
    /// Bytes of the messages that were examined.
    examined: usize,
}

impl Pack {
    /// Reads the messages of a partition with these numbers, up to the limits, and leaves out those
    /// of other types. An error is that of the first message.
    fn read(
        log: &Log,
        lease: &mut Lease,
        source: &mut Option<Box<dyn Source>>,
        partition: u64,
        Range { start, end }: Range<u64>,
    ) -> Result<Self, Error> {
        let (mut next, mut bytes, mut examined, mut messages) = (start, 0, 0, Vec::new());
        while next < end && next - start < PACK_MESSAGES && bytes < PACK_BYTES && examined < EXAMINED_BYTES {
            let entry = match log.get(next, &mut lease.ahead, source) {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(error) if next == start => return Err(error),
                // The messages before it come first.
                Err(_) => break,
            };
            next += 1;
            examined += entry.body.len();
            if lease.filters.is_empty() || message_type(&entry).is_some_and(|t| lease.filters.contains(t)) {
                bytes += entry.body.len();
                messages.push(pb::TransferedMessage {
                    message_id: message_id(partition, entry.sequence),
                    check_sum: entry.checksum.unwrap_or_default() as i32,
                    flag: entry.flags as i32,
                    pay_load_data: entry.body,
                });
            }
        }
        Ok(Self { next, messages, bytes, examined })
    }
}

impl Broker {
    pub(super) fn partition_register(&mut self, call_id: CallId, request: pb::RegisterRequestC2b) {
        let result =
            self.check_visit(call_id, request.auth_info.as_ref()).and_then(|user| match request.op_type {
                REGISTER => self.take_partition(call_id, user, &request),
                UNREGISTER => self.leave_partition(call_id, &user, &request),
                other => Err((Code::BadRequest, format!("unknown operation {other}"))),
            });
        let response = match result {
            Ok((curr_offset, max_offset)) => pb::RegisterResponseB2c {
                success: true,
                err_code: Code::Success as i32,
                err_msg: "OK!".into(),
                curr_offset: Some(curr_offset),
                max_offset,
            },
            Err((code, err_msg)) => {
                pb::RegisterResponseB2c { err_code: code as i32, err_msg, ..Default::default() }
            }
        };
        self.answer_written(call_id, Response::PartitionRegister(response));
    }

    fn take_partition(
        &mut self,
        call_id: CallId,
        user: Arc<str>,
        request: &pb::RegisterRequestC2b,
    ) -> Result<(i64, Option<i64>), Refusal> {
        check_group(&request.group_name).map_err(|error| (Code::BadRequest, error.message().to_owned()))?;
        let filters = &request.filter_cond_str;
        if filters.len() > MAX_FILTERS || filters.iter().any(|filter| filter.len() > MAX_FILTER) {
            let text = format!(
                "too many or too long filters: at most {MAX_FILTERS}, each of at most {MAX_FILTER} bytes"
            );
            return Err((Code::BadRequest, text));
        }
        self.check_topic(&user, Access::Read, &request.topic_name)?;
        let claims = self.check_owner(&user, &request.group_name)?;
        let id = self.known_partition(&request.topic_name, request.partition_id)?;
        let group: Arc<str> = request.group_name.as_str().into();
        let expires = self.now + self.settings.client_timeout;
        let now = self.now;
        let Some(partition) = self.partitions.get_mut(&id) else { return Err(gone()) };
        if let Some(lease) = partition.leases.get(&group)
            && (lease.client != request.client_id || lease.user != user)
            && lease.expires > now
        {
            let text = "another client of the group holds the partition";
            return Err((Code::PartitionOccupied, text.to_owned()));
        }
        if let Some(lease) = partition.leases.get(&group).filter(|lease| lease.client == request.client_id) {
            check_late(lease, call_id, Code::PartitionOccupied)?;
        }
        if partition.leases.get(&group).is_some_and(|lease| lease.client != request.client_id) {
            // It has expired.
            partition.release(&group);
        }
        if claims {
            self.claim(&user, &group);
        }
        let Some(partition) = self.partitions.get_mut(&id) else { return Err(gone()) };
        let (first, end) = (partition.log.first(), partition.log.committed());
        let before = partition.offsets.get(&group).map(|position| position.next);
        // A group that has an offset keeps it.
        let passing =
            request.session_key() == NO_OFFSET && (before.is_none() || partition.is_passing(&group));
        let next = match (request.curr_offset, before) {
            (Some(offset), _) if offset >= 0 => (offset as u64 / OFFSET_UNIT).clamp(first, end),
            _ if request.read_status == FROM_MAX_ALWAYS => end,
            (_, Some(known)) => known.clamp(first, end),
            _ if request.read_status == FROM_MAX => end,
            _ => first,
        };
        let lease = Lease {
            client: request.client_id.clone(),
            user,
            connection: call_id.connection,
            expires,
            filters: filters.iter().cloned().collect(),
            pack: None,
            delivered: 0,
            ahead: VecDeque::new(),
            passing,
        };
        partition.leases.insert(group.clone(), lease);
        partition.set_offset(&group, next);
        if before != Some(next) {
            self.write_offset(id, &group);
        }
        Ok((offset_of(next), Some(offset_of(end))))
    }

    fn leave_partition(
        &mut self,
        call_id: CallId,
        user: &str,
        request: &pb::RegisterRequestC2b,
    ) -> Result<(i64, Option<i64>), Refusal> {
        let id = self.known_partition(&request.topic_name, request.partition_id)?;
        let group: Arc<str> = request.group_name.as_str().into();
        let Some(partition) = self.partitions.get_mut(&id) else { return Err(gone()) };
        let lease = held(&mut partition.leases, &group, &request.client_id, user)?;
        check_late(lease, call_id, Code::NoNode)?;
        let (pack, passing) = (lease.pack, lease.passing);
        partition.release(&group);
        if let Some(end) = pack.filter(|_| request.read_status == CONSUMED && !passing) {
            partition.set_offset(&group, end);
            self.write_offset(id, &group);
        }
        Ok((NONE, None))
    }

    fn known_partition(&self, topic: &str, id: i32) -> Result<u64, Refusal> {
        let missing = || (Code::Forbidden, format!("topic {topic} has no partition {id} on this broker"));
        self.find_partition(topic, id).ok_or_else(missing)
    }

    pub(super) fn partition_heartbeat(
        &mut self,
        call_id: CallId,
        request: pb::HeartBeatRequestC2b,
    ) -> Response {
        let refuse = |code: Code, text: &str| {
            let (err_code, err_msg) = (code as i32, text.to_owned());
            Response::PartitionHeartbeat(pb::HeartBeatResponseB2c { err_code, err_msg, ..Default::default() })
        };
        let user = match self.check_visit(call_id, request.auth_info.as_ref()) {
            Ok(user) => user,
            Err((code, text)) => return refuse(code, &text),
        };
        if request.partition_info.len() > MAX_HELD {
            // A partition that is not held is returned with a code in front, so the response would
            // be larger than the call.
            return refuse(Code::BadRequest, "a heartbeat can name at most 65536 partitions");
        }
        let expires = self.now + self.settings.client_timeout;
        let mut failure_info = Vec::new();
        let (_, port) = self.address();
        for info in request.partition_info {
            let place = SubscribeInfo::parse_location(&info, port).ok();
            let id = place.and_then(|place| self.find_partition(&place.topic, place.partition.id as i32));
            let lease = match id.and_then(|id| self.partitions.get_mut(&id)) {
                Some(partition) => {
                    held(&mut partition.leases, &request.group_name, &request.client_id, &user)
                }
                None => Err((Code::NoNode, String::new())),
            };
            match lease {
                Ok(lease) => {
                    lease.expires = expires;
                    lease.connection = lease.connection.max(call_id.connection);
                }
                Err((code, _)) => failure_info.push(format!("{}:{info}", code as i32)),
            }
        }
        Response::PartitionHeartbeat(pb::HeartBeatResponseB2c {
            success: true,
            err_code: Code::Success as i32,
            err_msg: "OK!".into(),
            has_part_failure: Some(!failure_info.is_empty()),
            failure_info,
            require_auth: Some(false),
        })
    }

    pub(super) fn get_messages(&mut self, call_id: CallId, request: &pb::GetMessageRequestC2b) -> Response {
        Response::GetMessages(self.read_pack(call_id, request).unwrap_or_else(|(code, text)| {
            pb::GetMessageResponseB2c {
                err_code: code as i32,
                err_msg: Some(text),
                curr_offset: Some(NONE),
                min_limit_time: Some(NONE as i32),
                esc_flow_ctrl: Some(false),
                curr_data_dlt: Some(NONE),
                ..Default::default()
            }
        }))
    }

    fn read_pack(
        &mut self,
        call_id: CallId,
        request: &pb::GetMessageRequestC2b,
    ) -> Result<pb::GetMessageResponseB2c, Refusal> {
        let user = self.check_admitted(call_id)?;
        let bound = self.settings.users.is_some().then_some(call_id.connection);
        let id = self.known_partition(&request.topic_name, request.partition_id)?;
        let group: Arc<str> = request.group_name.as_str().into();
        let manual = request.manual_commit_offset == Some(true);
        let expires = self.now + self.settings.client_timeout;
        let Some(partition) = self.partitions.get_mut(&id) else { return Err(gone()) };
        let lease = held(&mut partition.leases, &group, &request.client_id, &user)?;
        check_connection(lease, bound)?;
        check_late(lease, call_id, Code::NoNode)?;
        (lease.expires, lease.connection) = (expires, call_id.connection);
        let (first, end) = (partition.log.first(), partition.log.committed());
        let unread = Position { next: first, touched_ms: 0 };
        let known = &mut partition.offsets.entry(group.clone()).or_insert(unread).next;
        let mut moved = false;
        if !manual && let Some(pack) = lease.pack.take() {
            moved = request.last_pack_consumed == Some(true) && *known != pack;
            *known = if moved { pack } else { *known };
        }
        let start = lease.pack.unwrap_or(*known).clamp(first, end);
        let read = Pack::read(&partition.log, lease, &mut self.source, id, start..end);
        let Pack { next, messages, bytes, examined } = match read {
            Ok(pack) => pack,
            Err(error) => {
                let topic = format!("{}:{}", request.topic_name, request.partition_id);
                let text = error.with_topic(topic).to_string();
                self.damage.get_or_insert_with(|| text.clone());
                return Err((Code::InternalServerError, text));
            }
        };
        if messages.is_empty() && !manual {
            // Messages that a filter left out need no confirmation.
            moved |= *known != next;
            *known = next;
        } else {
            lease.pack = Some(next);
        }
        if let Some(connection) = self.connections.get_mut(&call_id.connection) {
            connection.work += examined + EXAMINED * (next - start) as usize;
        }
        lease.delivered += messages.len() as u64;
        self.counters.messages_out += messages.len() as u64;
        self.counters.bytes_out += bytes as u64;
        if moved {
            self.mark_dirty(id, &group);
        }
        if next == start {
            return Err((Code::NotFound, "The request offset reached maxOffset!".into()));
        }
        // The size of the backlog is unknown without reading it: assume the average of this pack.
        let behind = (end - next) * (bytes as u64 / (next - start));
        Ok(pb::GetMessageResponseB2c {
            success: true,
            err_code: Code::Success as i32,
            err_msg: Some("OK!".into()),
            messages,
            curr_offset: Some(offset_of(start)),
            min_limit_time: Some(0),
            esc_flow_ctrl: Some(false),
            curr_data_dlt: Some(behind as i64),
            require_slow: Some(false),
            max_offset: Some(offset_of(end)),
        })
    }

    pub(super) fn commit_offset(&mut self, call_id: CallId, request: &pb::CommitOffsetRequestC2b) {
        let response = match self.commit(call_id, request) {
            Ok((curr_offset, max_offset)) => pb::CommitOffsetResponseB2c {
                success: true,
                err_code: Code::Success as i32,
                err_msg: "OK!".into(),
                curr_offset: Some(curr_offset),
                max_offset: Some(max_offset),
            },
            Err((code, err_msg)) => pb::CommitOffsetResponseB2c {
                err_code: code as i32,
                err_msg,
                curr_offset: Some(NONE),
                ..Default::default()
            },
        };
        self.answer_written(call_id, Response::CommitOffset(response));
    }

    fn commit(
        &mut self,
        call_id: CallId,
        request: &pb::CommitOffsetRequestC2b,
    ) -> Result<(i64, i64), Refusal> {
        let user = self.check_admitted(call_id)?;
        let bound = self.settings.users.is_some().then_some(call_id.connection);
        let id = self.known_partition(&request.topic_name, request.partition_id)?;
        let group: Arc<str> = request.group_name.as_str().into();
        let expires = self.now + self.settings.client_timeout;
        let Some(partition) = self.partitions.get_mut(&id) else { return Err(gone()) };
        // This call uses another code for a missing lease.
        let lease = held(&mut partition.leases, &group, &request.client_id, &user)
            .map_err(|(_, text)| (Code::Unauthorized, text))?;
        check_connection(lease, bound)?;
        check_late(lease, call_id, Code::Unauthorized)?;
        (lease.expires, lease.connection) = (expires, call_id.connection);
        let pack = lease.pack.take().filter(|_| request.last_pack_consumed == Some(true));
        if let Some(end) = pack {
            partition.set_offset(&group, end);
            self.write_offset(id, &group);
        }
        let Some(partition) = self.partitions.get(&id) else { return Err(gone()) };
        let next = partition.offset(&group).unwrap_or_else(|| partition.log.first());
        Ok((offset_of(next), offset_of(partition.log.committed())))
    }
}

/// Refuses a call on a connection that its client has given up since: the client uses the partition
/// on a later one.
fn check_late(lease: &Lease, call_id: CallId, code: Code) -> Result<(), Refusal> {
    if call_id.connection >= lease.connection {
        return Ok(());
    }
    Err((code, "the client has used the partition on a later connection since".to_owned()))
}

/// Refuses a call that names a lease of another connection, where leases are bound to theirs. After
/// a reconnect the client registers the partition again, or its next heartbeat binds the lease to
/// the new connection.
fn check_connection(lease: &Lease, bound: Option<u64>) -> Result<(), Refusal> {
    if bound.is_none_or(|connection| connection == lease.connection) {
        return Ok(());
    }
    let text = "the partition was registered on another connection: register it on this one";
    Err((Code::CertificateFailure, text.to_owned()))
}

fn gone() -> Refusal {
    (Code::Forbidden, "the partition was deleted".to_owned())
}

/// The type in a message's attributes. The real broker compares hashes of it, this broker compares
/// the type itself.
fn message_type(entry: &Entry) -> Option<&str> {
    let (length, rest) =
        entry.body.split_first_chunk::<4>().filter(|_| entry.flags as i32 & HAS_ATTRIBUTES != 0)?;
    let attributes = std::str::from_utf8(rest.get(..u32::from_be_bytes(*length) as usize)?).ok()?;
    attributes.split(',').find_map(|pair| pair.strip_prefix(TYPE)?.strip_prefix('='))
}
