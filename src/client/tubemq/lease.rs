//! One partition, held for a while at its broker, without being a member of a group at the master.
//!
//! A broker knows the reader of a partition by its group, of which one client at a time has the
//! partition. Readers for whom only their own offset counts therefore share a row of groups,
//! `name-0`, `name-1` and so on: each takes the first in which the partition is free, and sets the
//! offset at which it begins. So a broker keeps the offsets of as many groups as there were readers
//! of a partition at the same time, however many there are in the end.
//!
//! Each registration has a client id of its own: a call that arrives late, over a connection that
//! was given up, is one of a client that the broker does not know any more. For the same reason a
//! lease whose connection was lost is given back over another one before the partition is taken
//! again. A lease that is dropped is given back as well, as far as its connection still lives; what
//! a process leaves behind that was killed ends after half a minute.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::tubemq::connection::{Connection, Purpose};
use crate::tubemq::shared::{Shared, address, client_id};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_tubemq::balance::PartitionLocation;
use forebay_tubemq::consumer::{FROM_FIRST, NO_OFFSET, NOT_CONSUMED, READ_MEMORY, REGISTER, UNREGISTER};
use forebay_tubemq::{Code, Request, Response, pb};

/// Most groups of one name.
pub(super) const MAX_GROUPS: u32 = 1000;

/// Offsets of a partition, as its broker tells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offsets {
    /// The place at which the next get reads.
    pub(super) next: i64,
    /// The end.
    pub(super) end: i64,
}

/// A partition that is held.
#[derive(Debug)]
pub(super) struct Lease {
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    location: PartitionLocation,
    client_id: String,
    group: String,
    filters: Arc<BTreeSet<String>>,
    /// Whether the offset of the group is for this lease only.
    passing: bool,
    /// Whether the broker may count the partition as held.
    held: bool,
}

/// The error of an answer that is not one to the call.
fn unexpected(response: &Response) -> Error {
    Error::protocol(format!("the broker sent an unexpected {} response", response.method().name()))
}

impl Lease {
    /// Takes a partition in the group `group`, and sets its offset, as far as the partition has it.
    pub(super) async fn take_in(
        shared: &Arc<Shared>,
        location: &PartitionLocation,
        group: String,
        offset: i64,
    ) -> Result<(Self, Offsets)> {
        Self::register(shared, location, group, offset, &Arc::default(), false).await
    }

    async fn register(
        shared: &Arc<Shared>,
        location: &PartitionLocation,
        group: String,
        offset: i64,
        filters: &Arc<BTreeSet<String>>,
        passing: bool,
    ) -> Result<(Self, Offsets)> {
        let mut lease = Self {
            connection: shared.pool.get(&address(&location.broker), Purpose::Fetch).await?,
            shared: Arc::clone(shared),
            location: location.clone(),
            client_id: format!("{group}_{}", client_id(&shared.identity.host_name)),
            group,
            filters: Arc::clone(filters),
            passing,
            held: true,
        };
        match lease.seek(offset).await {
            Ok(offsets) => Ok((lease, offsets)),
            Err(error) => {
                lease.held = !matches!(error.kind(), ErrorKind::ConsumerBusy | ErrorKind::NotAllowed);
                Err(error)
            }
        }
    }

    /// Takes a partition in the first of the groups `name-0`, `name-1` and so on in which it is
    /// free.
    pub(super) async fn take(
        shared: &Arc<Shared>,
        location: &PartitionLocation,
        name: &str,
        offset: i64,
        filters: &Arc<BTreeSet<String>>,
    ) -> Result<(Self, Offsets)> {
        for number in 0..MAX_GROUPS {
            let group = format!("{name}-{number}");
            match Self::register(shared, location, group, offset, filters, true).await {
                Err(error) if error.kind() == ErrorKind::ConsumerBusy => {}
                taken => return taken,
            }
        }
        let text = format!("{MAX_GROUPS} readers of the groups {name}-0, {name}-1 ... have the partition");
        Err(Error::new(ErrorKind::ConsumerBusy, text))
    }

    fn registration(&self, operation: i32, status: i32, offset: Option<i64>) -> Request {
        Request::PartitionRegister(Box::new(pb::RegisterRequestC2b {
            op_type: operation,
            client_id: self.client_id.clone(),
            group_name: self.group.clone(),
            topic_name: self.location.topic.to_string(),
            partition_id: self.location.partition.id as i32,
            read_status: status,
            filter_cond_str: self.filters.iter().cloned().collect(),
            curr_offset: offset,
            session_key: self.passing.then(|| NO_OFFSET.to_owned()),
            // Without it what is not on disk yet would have no end that is known.
            qry_priority_id: (operation == REGISTER).then_some(READ_MEMORY),
            auth_info: Some(self.shared.visit.info()),
            ..Default::default()
        }))
    }

    /// Sets the offset, as far as the partition has it.
    pub(super) async fn seek(&self, offset: i64) -> Result<Offsets> {
        let request = self.registration(REGISTER, FROM_FIRST, Some(offset));
        match self.connection.request(request).await? {
            Response::PartitionRegister(response) => {
                let (next, end) = (response.curr_offset, response.max_offset);
                Response::PartitionRegister(response).outcome()?;
                told(next, end)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// The next messages, as the broker answers.
    pub(super) async fn get(&self) -> Result<pb::GetMessageResponseB2c> {
        let request = Request::GetMessages(pb::GetMessageRequestC2b {
            client_id: self.client_id.clone(),
            partition_id: self.location.partition.id as i32,
            group_name: self.group.clone(),
            topic_name: self.location.topic.to_string(),
            last_pack_consumed: Some(false),
            manual_commit_offset: Some(false),
            esc_flow_ctrl: Some(false),
        });
        match self.connection.request(request).await? {
            Response::GetMessages(response) => Ok(response),
            other => Err(unexpected(&other)),
        }
    }

    /// Goes on behind what the last get has given.
    pub(super) async fn pass(&self) -> Result<Offsets> {
        let request = Request::CommitOffset(pb::CommitOffsetRequestC2b {
            client_id: self.client_id.clone(),
            topic_name: self.location.topic.to_string(),
            partition_id: self.location.partition.id as i32,
            group_name: self.group.clone(),
            last_pack_consumed: Some(true),
        });
        match self.connection.request(request).await? {
            Response::CommitOffset(response) => {
                let (next, end) = (response.curr_offset, response.max_offset);
                Response::CommitOffset(response).outcome()?;
                told(next, end)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Gives the partition back, over another connection if its own has ended.
    ///
    /// # Errors
    ///
    /// The broker cannot be asked, and [`Self::is_held`]; or it has refused.
    pub(super) async fn leave(&mut self) -> Result<()> {
        if !self.connection.is_alive() {
            self.connection = self.shared.pool.get(&address(&self.location.broker), Purpose::Fetch).await?;
        }
        let request = self.registration(UNREGISTER, NOT_CONSUMED, None);
        let response = self.connection.request(request).await?;
        self.held = false;
        // It may have been taken away meanwhile.
        match Code::from_number(response.code().0) {
            Some(Code::NoNode | Code::DuplicatePartition) => Ok(()),
            _ => response.outcome(),
        }
    }

    /// Whether the broker may count the partition as held.
    pub(super) fn is_held(&self) -> bool {
        self.held
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.held && self.connection.is_alive() {
            let request = self.registration(UNREGISTER, NOT_CONSUMED, None);
            let connection = Arc::clone(&self.connection);
            self.shared.runtime.spawn(async move { connection.request(request).await });
        }
    }
}

fn told(next: Option<i64>, end: Option<i64>) -> Result<Offsets> {
    match (next.filter(|offset| *offset >= 0), end.filter(|offset| *offset >= 0)) {
        (Some(next), Some(end)) => Ok(Offsets { next, end }),
        _ => Err(Error::protocol("the broker did not tell the offsets of the partition")),
    }
}
