//! This broker and its master, which are one.

use super::parameters::{BROKER_ID, BROKER_IP, ONLY_ABNORMAL, ONLY_FORBIDDEN, Parameters};
use super::{BROKER, Checked, NOT_FOUND, Object, Outcome, listed};
use crate::broker::tubemq::Broker;

impl Broker {
    /// Whether a query is about this broker.
    fn is_asked_for(&self, given: &Parameters) -> Checked<bool> {
        let (ids, hosts) = (given.numbers(BROKER_ID)?, given.texts(BROKER_IP)?);
        Ok((ids.is_empty() || ids.contains(&(BROKER as i32)))
            && (hosts.is_empty() || hosts.contains(self.settings.address.0.as_str())))
    }

    fn broker_object(&self) -> Object {
        let (host, port) = &self.settings.address;
        Object::default()
            .with("brokerId", BROKER)
            .with("brokerIp", host.as_str())
            .with("brokerPort", *port)
            .with("manageStatus", "online")
    }

    /// The state of this broker. A change is in force when it is answered, so there is never one to be loaded.
    pub(super) fn list_statuses(&self, given: &Parameters) -> Checked<Object> {
        let asked = self.is_asked_for(given)?;
        // This broker is neither abnormal nor forbidden.
        let abnormal = given.flag(ONLY_ABNORMAL)? == Some(true) || given.flag(ONLY_FORBIDDEN)? == Some(true);
        let writable = (self.commits.failure().is_none()).to_string();
        let object = self
            .broker_object()
            .with("isRepAbnormal", false)
            .with("isAutoForbidden", false)
            .with("runStatus", "running")
            .with("subStatus", "idle")
            .with("isConfChanged", "false")
            .with("isConfLoaded", "true")
            .with("isBrokerOnline", "true")
            .with("brokerVersion", "-")
            .with("acceptPublish", writable)
            .with("acceptSubscribe", "true");
        Ok(listed(if asked && !abnormal { std::slice::from_ref(&object) } else { &[] }))
    }

    /// The settings of this broker, which are those of topics that are made without any.
    pub(super) fn list_brokers(&self, given: &Parameters) -> Checked<Object> {
        let asked = self.is_asked_for(given)?;
        let object = self
            .broker_object()
            .with("isConfChanged", false)
            .with("isConfLoaded", true)
            .and(&self.settings_object(self.settings.partitions as usize, true, true));
        Ok(listed(if asked { std::slice::from_ref(&object) } else { &[] }))
    }

    /// The only master.
    pub(super) fn list_masters(&self, _: &Parameters) -> Checked<Object> {
        let (host, port) = &self.settings.address;
        let node = Object::default()
            .with("index", 1)
            .with("name", "embedded")
            .with("hostName", host.as_str())
            .with("port", port.to_string())
            .object("statusInfo", &Object::default().with("nodeStatus", "MASTER"));
        Ok(Object::default()
            .with("result", true)
            .with("errCode", 0)
            .with("errMsg", "Ok")
            .with("groupName", "embedded")
            .with("isPrimaryNodeActive", false)
            .list("data", &[node])
            .with("count", 1)
            .with("groupStatus", "Running-ReadWrite"))
    }

    /// Scripts have a broker load what they have changed. Here, a change is in force when it is answered.
    pub(super) fn reload(&mut self, given: &Parameters) -> Checked<Object> {
        given.modification(&self.date())?;
        let host = self.settings.address.0.clone();
        let reloaded = |id: i32| {
            let (ip, outcome) = match id == BROKER as i32 {
                true => (&*host, Outcome::done()),
                false => ("", Outcome::refused(NOT_FOUND, "The broker configure not exist!")),
            };
            outcome.describe(Object::default().with("brokerId", id).with("brokerIp", ip))
        };
        Ok(listed(&given.required_numbers(BROKER_ID)?.into_iter().map(reloaded).collect::<Vec<_>>()))
    }
}
