//! Producers and consumers at the master: registration, heartbeats, and the brokers of their
//! topics.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use super::Broker;
use super::balance::{Event, Group, GroupSpec, Mode, Place};
use super::partition::{BROKER, Refusal};
use forebay_base::checksum::crc32;
use forebay_tubemq::command::Response;
use forebay_tubemq::topic::{Partition, SubscribeInfo, check_group};
use forebay_tubemq::{Code, UNDEFINED, pb};

/// Flow control rules of a broker that has none.
const NO_RULES: &str = " ";
/// Version of the configuration that clients compare; it never changes.
const CONFIG_ID: i64 = 1;
const CONNECT: i32 = 10;
const DISCONNECT: i32 = 20;
const NOT_DONE: i32 = 0;
/// Port of a broker whose text names none.
const DEFAULT_PORT: u16 = 8123;
/// Limits on the topics of a client and on the bytes of its id, as in the real master.
const MAX_CLIENT_TOPICS: usize = 1024;
const MAX_NAME: usize = 1024;

impl Broker {
    /// The user of a call. Without valid credentials the call is refused, if there are users.
    fn authenticate(&mut self, info: Option<&pb::MasterCertificateInfo>) -> Result<Arc<str>, Refusal> {
        let wall_ms = self.wall_ms();
        if let Some(user) = self.admitted(info.is_some_and(|info| info.auth_info.is_some())) {
            return Ok(user);
        }
        let Some(users) = &self.settings.users else { return Ok(self.visits.anyone()) };
        let refuse = |text: &str| Err((Code::CertificateFailure, text.to_owned()));
        let Some(info) = info.and_then(|info| info.auth_info.as_ref()) else {
            return refuse("the master requires a user name and a signature with each call");
        };
        if let Err(why) = users.verify(info, wall_ms) {
            return refuse(why);
        }
        self.introduce();
        Ok(info.user_name.as_str().into())
    }

    /// The user of a call of this client, whose id no other user has registered.
    fn authenticate_client(
        &mut self,
        client: &str,
        info: Option<&pb::MasterCertificateInfo>,
    ) -> Result<Arc<str>, Refusal> {
        let user = self.authenticate(info)?;
        match self.clients.get(client) {
            Some((owner, until)) if *owner != user && *until > self.now => {
                Err((Code::CertificateFailure, "another user has registered this client id".to_owned()))
            }
            _ => Ok(user),
        }
    }

    fn check_client(
        &mut self,
        client: &str,
        topics: &[String],
        info: Option<&pb::MasterCertificateInfo>,
    ) -> Result<Arc<str>, Refusal> {
        let user = self.authenticate_client(client, info)?;
        if client.is_empty() || client.len() > MAX_NAME || client.contains(['@', '#']) {
            return Err((
                Code::BadRequest,
                "the client id must have 1 to 1024 bytes and neither @ nor #".into(),
            ));
        }
        if topics.len() > MAX_CLIENT_TOPICS {
            return Err((Code::BadRequest, format!("a client can have at most {MAX_CLIENT_TOPICS} topics")));
        }
        Ok(user)
    }

    /// Notes that a registered client belongs to a user, and gives the token that stands for that
    /// user at the broker.
    fn visit(&mut self, client: &str, user: &Arc<str>) -> pb::MasterAuthorizedInfo {
        if self.settings.users.is_some() {
            self.clients.insert(client.to_owned(), (user.clone(), self.deadline()));
        }
        let visit_authorized_token = self.visits.token(user);
        pb::MasterAuthorizedInfo { visit_authorized_token, auth_authorized_token: None }
    }

    /// A checksum that changes when the brokers change.
    fn broker_check_sum(&self) -> i64 {
        i64::from(crc32(self.broker_text().as_bytes()))
    }

    fn producer_config(&self) -> pb::ApprovedClientConfig {
        let max_msg_size = Some(self.settings.max_message_size as i32);
        pb::ApprovedClientConfig { config_id: CONFIG_ID, max_msg_size }
    }

    fn deadline(&self) -> Instant {
        self.now + self.settings.client_timeout
    }

    pub(super) fn producer_register(&mut self, request: pb::RegisterRequestP2m) -> Response {
        let mut response =
            pb::RegisterResponseM2p { broker_check_sum: self.broker_check_sum(), ..Default::default() };
        match self.check_client(&request.client_id, &request.topic_list, request.auth_info.as_ref()) {
            Ok(user) => {
                let topics = self.writable(&user, request.topic_list, true);
                topics.iter().for_each(|topic| self.ensure_topic(topic));
                response.authorized_info = Some(self.visit(&request.client_id, &user));
                self.producers.insert(request.client_id, self.deadline());
                response.success = true;
                response.err_code = Code::Success as i32;
                response.err_msg = "OK!".into();
                response.broker_infos = vec![self.broker_text()];
                response.appd_config = Some(self.producer_config());
            }
            Err((code, text)) => (response.err_code, response.err_msg) = (code as i32, text),
        }
        Response::ProducerRegister(response)
    }

    pub(super) fn producer_heartbeat(&mut self, request: pb::HeartRequestP2m) -> Response {
        let mut response =
            pb::HeartResponseM2p { broker_check_sum: self.broker_check_sum(), ..Default::default() };
        let deadline = self.deadline();
        let known = self
            .check_client(&request.client_id, &request.topic_list, request.auth_info.as_ref())
            .and_then(|user| match self.producers.get_mut(&request.client_id) {
                Some(expires) => {
                    *expires = deadline;
                    Ok(user)
                }
                None => Err((
                    Code::NoNode,
                    format!("client {} is not registered: register it first", request.client_id),
                )),
            });
        match known {
            Ok(user) => {
                let topics = self.writable(&user, request.topic_list, false);
                topics.iter().for_each(|topic| self.ensure_topic(topic));
                response.success = true;
                response.err_code = Code::Success as i32;
                response.err_msg = "OK!".into();
                response.topic_infos = topics.iter().filter_map(|topic| self.producer_text(topic)).collect();
                if request.broker_check_sum != response.broker_check_sum {
                    response.broker_infos = vec![self.broker_text()];
                }
                response.authorized_info = Some(self.visit(&request.client_id, &user));
                if request.appd_config.is_none_or(|config| config.config_id != CONFIG_ID) {
                    response.appd_config = Some(self.producer_config());
                }
            }
            Err((code, text)) => (response.err_code, response.err_msg) = (code as i32, text),
        }
        Response::ProducerHeartbeat(response)
    }

    pub(super) fn producer_close(&mut self, request: pb::CloseRequestP2m) -> Response {
        let user = self.authenticate_client(&request.client_id, request.auth_info.as_ref());
        let (success, err_code, err_msg) = match user {
            Ok(_) => {
                self.producers.remove(&request.client_id);
                self.clients.remove(&request.client_id);
                (true, Code::Success as i32, "OK!".to_owned())
            }
            Err((code, text)) => (false, code as i32, text),
        };
        Response::ProducerClose(pb::CloseResponseM2p { success, err_code, err_msg })
    }

    /// Adds a consumer of a user to its group.
    fn join(
        &mut self,
        (client, user): (&str, &Arc<str>),
        group: &str,
        spec: GroupSpec,
        node: i32,
        held: BTreeSet<Place>,
    ) -> Result<(), Refusal> {
        check_group(group).map_err(|error| (Code::BadRequest, error.message().to_owned()))?;
        if spec.topics.is_empty() {
            return Err((Code::BadRequest, "a consumer needs at least one topic".into()));
        }
        let claims = self.check_owner(user, group)?;
        for topic in &spec.topics {
            self.ensure_topic(topic);
            if !self.topics.contains_key(topic.as_str()) {
                return Err((Code::TopicNotDeployed, format!("no broker has topic {topic}")));
            }
        }
        let expires = self.deadline();
        let joined = self
            .groups
            .entry(group.into())
            .or_insert_with(|| Group::new(spec.clone()))
            .join(client, spec, node, held, expires);
        joined.map_err(|(code, text)| (code, text.to_owned()))?;
        if claims {
            self.claim(user, &group.into());
        }
        self.balance(group);
        Ok(())
    }

    /// Assigns the partitions of a group's topics to its members.
    fn balance(&mut self, name: &str) {
        let Some(group) = self.groups.get_mut(name) else { return };
        let mut places = Vec::new();
        for topic in group.topics() {
            let count = self.topics.get(topic.as_str()).map_or(0, |topic| topic.partitions.len());
            places.extend((0..count as u32).map(|id| (topic.clone(), id)));
        }
        group.rebalance(&places, self.now, &mut self.next_event);
    }

    /// Rebalances the groups of a topic that was created, has grown or was deleted.
    pub(super) fn balance_topic(&mut self, topic: &str) {
        let with = |group: &Group| group.topics().contains(topic);
        let groups: Vec<_> =
            self.groups.iter().filter(|(_, group)| with(group)).map(|(name, _)| name.clone()).collect();
        groups.iter().for_each(|group| self.balance(group));
    }

    fn subscribe_text(&self, client: &str, group: &str, (topic, id): &Place) -> String {
        let partition = Partition { broker: BROKER, id: *id };
        SubscribeInfo { topic: topic.clone(), partition, broker: self.broker() }.to_text(client, group)
    }

    fn event_message(&self, client: &str, group: &str, event: &Event) -> pb::EventProto {
        pb::EventProto {
            rebalance_id: Some(event.id),
            op_type: Some(if event.connect { CONNECT } else { DISCONNECT }),
            status: Some(NOT_DONE),
            subscribe_info: event.places.iter().map(|p| self.subscribe_text(client, group, p)).collect(),
        }
    }

    pub(super) fn consumer_register(&mut self, request: pb::RegisterRequestC2m) -> Response {
        let mut response = pb::RegisterResponseM2c {
            not_allocated: Some(true),
            def_flow_check_id: Some(UNDEFINED),
            def_flow_control_info: Some(NO_RULES.into()),
            group_flow_check_id: Some(UNDEFINED),
            group_flow_control_info: Some(NO_RULES.into()),
            ssd_store_id: Some(UNDEFINED),
            qry_priority_id: Some(UNDEFINED as i32),
            ..Default::default()
        };
        let held = places(&request.subscribe_info);
        let spec = GroupSpec::new(Mode::Server, request.topic_list.clone(), &request.topic_condition, -1);
        let joined = self
            .check_client(&request.client_id, &request.topic_list, request.auth_info.as_ref())
            .and_then(|user| self.check_topics(user, &request.topic_list))
            .and_then(|user| match request.require_bound {
                Some(true) => {
                    let text =
                        "the embedded master does not start consumers at given offsets: use client balancing and set \
                         the offsets there";
                    Err((Code::BadRequest, text.to_owned()))
                }
                _ => {
                    self.join((&request.client_id, &user), &request.group_name, spec, -1, held)?;
                    Ok(user)
                }
            });
        match joined {
            Ok(user) => {
                response.success = true;
                response.err_code = Code::Success as i32;
                response.err_msg = "OK!".into();
                response.authorized_info = Some(self.visit(&request.client_id, &user));
            }
            Err((code, text)) => (response.err_code, response.err_msg) = (code as i32, text),
        }
        Response::ConsumerRegister(response)
    }

    pub(super) fn consumer_heartbeat(&mut self, request: pb::HeartRequestC2m) -> Response {
        let mut response = pb::HeartResponseM2c {
            def_flow_check_id: Some(UNDEFINED),
            def_flow_control_info: Some(NO_RULES.into()),
            group_flow_check_id: Some(UNDEFINED),
            group_flow_control_info: Some(NO_RULES.into()),
            ssd_store_id: Some(UNDEFINED),
            qry_priority_id: Some(UNDEFINED as i32),
            ..Default::default()
        };
        let (client, name) = (&request.client_id, &request.group_name);
        let report = request.report_subscribe_info.then(|| places(&request.subscribe_info));
        let reported = report.is_some();
        let deadline = self.deadline();
        let user = self.authenticate_client(client, request.auth_info.as_ref());
        let known = user.and_then(|user| {
            self.check_group(&user, client, name)?;
            let unknown = || (Code::NoNode, format!("client {client} is not registered: register it first"));
            let group = self.groups.get_mut(name.as_str()).ok_or_else(unknown)?;
            if !group.beat(client, report, deadline) {
                return Err(unknown());
            }
            if request.event.as_ref().is_some_and(|event| event.rebalance_id.unwrap_or_default() > 0) {
                group.done(client, reported);
            }
            Ok(user)
        });
        match known {
            Ok(user) => {
                self.balance(name);
                let now = self.now;
                let event = self.groups.get_mut(name.as_str()).and_then(|group| group.event(client, now));
                response.success = true;
                response.err_code = Code::Success as i32;
                response.err_msg = "OK!".into();
                response.event = event.map(|event| self.event_message(client, name, &event));
                let settled = self.groups.get(name.as_str()).is_some_and(|group| group.is_settled(client));
                response.not_allocated = Some(!settled);
                response.authorized_info = Some(self.visit(client, &user));
            }
            Err((code, text)) => (response.err_code, response.err_msg) = (code as i32, text),
        }
        Response::ConsumerHeartbeat(Box::new(response))
    }

    pub(super) fn consumer_close(&mut self, request: pb::CloseRequestC2m) -> Response {
        let user = self.authenticate_client(&request.client_id, request.auth_info.as_ref());
        let (success, err_code, err_msg) = match user {
            Ok(_) => {
                self.leave(&request.client_id, &request.group_name);
                self.clients.remove(&request.client_id);
                (true, Code::Success as i32, "OK!".to_owned())
            }
            Err((code, text)) => (false, code as i32, text),
        };
        Response::ConsumerClose(pb::CloseResponseM2c { success, err_code, err_msg })
    }

    pub(super) fn leave(&mut self, client: &str, name: &str) {
        let Some(group) = self.groups.get_mut(name) else { return };
        if !group.leave(client) {
            return;
        }
        if group.members() == 0 {
            self.groups.remove(name);
        }
        self.release(client, name);
        self.balance(name);
    }

    /// Frees the partitions that a client of a group holds.
    fn release(&mut self, client: &str, group: &str) {
        for partition in self.partitions.values_mut() {
            if partition.leases.get(group).is_some_and(|lease| lease.client == client) {
                partition.release(group);
            }
        }
    }

    pub(super) fn balance_register(&mut self, request: pb::RegisterRequestC2mv2) -> Response {
        let mut response = pb::RegisterResponseM2cv2 {
            ops_task_info: Some(pb::OpsTaskInfo::default()),
            ..Default::default()
        };
        let spec = GroupSpec::new(
            Mode::Client,
            request.topic_list.clone(),
            &request.topic_condition,
            request.source_count,
        );
        let joined = self
            .check_client(&request.client_id, &request.topic_list, request.auth_info.as_ref())
            .and_then(|user| self.check_topics(user, &request.topic_list))
            .and_then(|user| {
                let (sources, node) = (request.source_count, request.node_id);
                let client = (&*request.client_id, &user);
                if sources > 0 && !(0..sources).contains(&node) {
                    return Err((Code::BadRequest, format!("node id {node} is not in 0..{sources}")));
                }
                self.join(client, &request.group_name, spec, node, BTreeSet::new())?;
                Ok(user)
            });
        match joined {
            Ok(user) => {
                response.err_code = Code::Success as i32;
                response.err_msg = "OK!".into();
                response.broker_config_id = Some(self.broker_check_sum());
                response.broker_config_list = vec![self.broker_text()];
                response.authorized_info = Some(self.visit(&request.client_id, &user));
            }
            Err((code, text)) => (response.err_code, response.err_msg) = (code as i32, text),
        }
        Response::BalanceRegister(Box::new(response))
    }

    pub(super) fn balance_heartbeat(&mut self, request: pb::HeartRequestC2mv2) -> Response {
        let mut response =
            pb::HeartResponseM2cv2 { ops_task_info: Some(pb::OpsTaskInfo::default()), ..Default::default() };
        let deadline = self.deadline();
        let user = self.authenticate_client(&request.client_id, request.auth_info.as_ref());
        let known = user.and_then(|user| {
            self.check_group(&user, &request.client_id, &request.group_name)?;
            let group = self.groups.get_mut(request.group_name.as_str());
            if group.is_some_and(|group| group.beat(&request.client_id, None, deadline)) {
                return Ok(user);
            }
            Err((Code::NoNode, format!("client {} is not registered: register it first", request.client_id)))
        });
        match known {
            Ok(user) => {
                response.err_code = Code::Success as i32;
                response.err_msg = "OK!".into();
                response.authorized_info = Some(self.visit(&request.client_id, &user));
                let (brokers, topics) = self.metadata_ids(&request.group_name);
                let seen = request.sub_rep_info.unwrap_or_default();
                response.broker_config_id = Some(brokers);
                response.topic_meta_info_id = Some(topics);
                if seen.broker_config_id != brokers {
                    response.broker_config_list = vec![self.broker_text()];
                }
                if seen.topic_meta_info_id != topics {
                    response.topic_meta_info_list = self.topic_texts(&request.group_name);
                }
            }
            Err((code, text)) => (response.err_code, response.err_msg) = (code as i32, text),
        }
        Response::BalanceHeartbeat(Box::new(response))
    }

    pub(super) fn partition_metadata(&mut self, request: pb::GetPartMetaRequestC2m) -> Response {
        let mut response = pb::GetPartMetaResponseM2c::default();
        let known = self.authenticate(request.auth_info.as_ref()).and_then(|_| {
            if self.groups.contains_key(request.group_name.as_str()) {
                return Ok(());
            }
            Err((Code::NoNode, format!("client {} is not registered: register it first", request.client_id)))
        });
        match known {
            Ok(()) => {
                let (brokers, topics) = self.metadata_ids(&request.group_name);
                response.err_code = Code::Success as i32;
                response.err_msg = "OK!".into();
                response.broker_config_id = Some(brokers);
                response.topic_meta_info_id = Some(topics);
                if request.broker_config_id != brokers {
                    response.broker_config_list = vec![self.broker_text()];
                }
                if request.topic_meta_info_id != topics {
                    response.topic_meta_info_list = self.topic_texts(&request.group_name);
                }
            }
            Err((code, text)) => (response.err_code, response.err_msg) = (code as i32, text),
        }
        Response::PartitionMetadata(response)
    }

    /// The topics of a group, as its members are told.
    fn topic_texts(&self, group: &str) -> Vec<String> {
        let topics = self.groups.get(group).map(Group::topics);
        topics.into_iter().flatten().filter_map(|topic| self.consumer_text(topic)).collect()
    }

    /// Checksums that change when the brokers or a group's topics change.
    fn metadata_ids(&self, group: &str) -> (i64, i64) {
        (self.broker_check_sum(), i64::from(crc32(self.topic_texts(group).join("\n").as_bytes())))
    }

    /// Removes clients that were silent for too long.
    pub(super) fn forget_clients(&mut self) {
        let now = self.now;
        self.producers.retain(|_, expires| *expires > now);
        self.clients.retain(|_, (_, until)| *until > now);
        let mut gone = Vec::new();
        for (name, group) in &mut self.groups {
            gone.extend(group.expire(now).into_iter().map(|client| (client, name.clone())));
        }
        for (client, name) in gone {
            self.release(&client, &name);
            self.balance(&name);
        }
        self.groups.retain(|_, group| group.members() > 0);
        for partition in self.partitions.values_mut() {
            partition.expire(now);
        }
    }
}

/// Parses `client@group#broker:host:port#topic:partition` texts, and skips those of other brokers.
fn places(texts: &[String]) -> BTreeSet<Place> {
    let held = texts.iter().filter_map(|text| SubscribeInfo::parse(text, DEFAULT_PORT).ok());
    held.filter(|info| info.broker.id == BROKER).map(|info| (info.topic, info.partition.id)).collect()
}
