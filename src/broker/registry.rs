//! The protocols that run, and the questions that concern all of them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::permissions::Permissions;
use crate::protocol::Topics;
use crate::runner::Runner;
use crate::stats::{ProtocolStats, Stats, TopicStats};
use crate::store::StoreUsage;
use forebay_base::error::{Error, ErrorKind, Result};

/// A protocol that runs.
pub(super) struct Running {
    pub(super) name: &'static str,
    pub(super) topic_prefix: Option<&'static str>,
    pub(super) runner: Rc<Runner>,
}

/// The protocols that run on one store.
pub(super) struct Registry {
    pub(super) protocols: Vec<Running>,
    /// Bytes in use, over all protocols.
    pub(super) usage: StoreUsage,
    /// Limit on those bytes.
    pub(super) max_store: u64,
    /// Rules about topics, which every protocol has, too.
    pub(super) permissions: RefCell<Option<Arc<Permissions>>>,
}

impl Registry {
    /// The protocol that a topic's name belongs to, and the name there.
    pub(super) fn owner<'n>(&self, name: &'n str) -> Option<(&Running, &'n str)> {
        self.protocols
            .iter()
            .rev()
            .find_map(|protocol| Some((protocol, name.strip_prefix(protocol.topic_prefix?)?)))
    }

    /// Names and partition counts of all topics.
    pub(super) fn topics(&self) -> Vec<(String, u32)> {
        let list =
            |protocol: &Running| protocol.runner.inspect(|protocol| protocol.topics().map(Topics::list));
        self.protocols.iter().filter_map(list).flatten().collect()
    }

    /// Contents and users of a topic.
    pub(super) fn topic_stats(&self, name: &str) -> Result<TopicStats> {
        let stats = self.owner(name).and_then(|(protocol, name)| {
            protocol.runner.inspect(|protocol| Some(protocol.topics()?.topic_stats(name)))
        });
        stats.unwrap_or_else(|| Err(no_owner(name)))
    }

    /// Replaces the users of a protocol, and gives their number.
    pub(super) fn set_users(&self, name: &str, file: &str) -> Result<usize> {
        let found = self.protocols.iter().find(|protocol| protocol.name == name);
        let disabled = || Err(Error::new(ErrorKind::NotAllowed, format!("{name} has no port")));
        found.map_or_else(disabled, |found| found.runner.call(|protocol, now| protocol.set_users(now, file)))
    }

    /// Replaces the permissions, and gives the number of rules.
    pub(super) fn set_permissions(&self, file: &str) -> Result<usize> {
        if self.permissions.borrow().is_none() {
            return Err(Error::new(ErrorKind::NotAllowed, "the broker was started without acl_file"));
        }
        let permissions = Arc::new(Permissions::parse(file)?);
        for Running { runner, .. } in &self.protocols {
            runner.call(|protocol, now| protocol.set_permissions(now, permissions.clone()));
        }
        *self.permissions.borrow_mut() = Some(permissions.clone());
        Ok(permissions.len())
    }

    /// Figures of all protocols.
    pub(super) fn stats(&self) -> Stats {
        let stats = |Running { name, runner, .. }: &Running| {
            let stats = runner.inspect(|protocol| protocol.stats());
            (*name, ProtocolStats { connections_refused: runner.admission().refused(), ..stats })
        };
        Stats { protocols: self.protocols.iter().map(stats).collect(), store_bytes: self.usage.total() }
    }
}

/// The error for a name that no protocol's topics have.
pub(super) fn no_owner(name: &str) -> Error {
    Error::new(ErrorKind::InvalidTopic, format!("{name:?} is not the name of a topic of any protocol"))
}
