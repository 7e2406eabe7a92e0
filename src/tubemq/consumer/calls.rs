//! The calls of a consumer, and what their answers do to it.

use super::*;

impl Consumer {
    /// The call that is due, if none is open. Messages are requested only if `may_fetch`; `visit`
    /// authorizes the client at the broker.
    pub fn poll_request(
        &mut self,
        now: Instant,
        may_fetch: bool,
        visit: &pb::AuthorizedInfo,
    ) -> Option<Request> {
        if !self.attached {
            return None;
        }
        let call = match (&self.state, self.intent) {
            (State::Out { .. }, Intent::Leave) => {
                self.left();
                return None;
            }
            (State::Idle { .. } | State::Holding(_), Intent::Leave) => Call::Unregister,
            (State::Out { at, attempt }, _) if *at <= now => Call::Register(*attempt),
            // A long wait before the next get does not delay the acknowledgement.
            (State::Idle { consumed: true, .. }, intent) if intent == Intent::Pause || self.rest > now => {
                Call::Commit
            }
            (State::Idle { at, consumed }, Intent::Read) if *at <= now && may_fetch => {
                Call::Get { consumed: *consumed }
            }
            _ => return None,
        };
        let request = self.request(now, call, visit);
        self.state = State::Calling { call, seek: None };
        Some(request)
    }

    fn request(&mut self, now: Instant, call: Call, visit: &pb::AuthorizedInfo) -> Request {
        match call {
            Call::Register(_) => {
                let (status, offset) = match self.start {
                    Start::First => (FROM_FIRST, None),
                    Start::Latest => (FROM_LATEST, None),
                    Start::Max => (FROM_MAX, None),
                    Start::Offset(offset) => (FROM_FIRST, Some(offset)),
                };
                self.register(REGISTER, status, offset, visit)
            }
            Call::Unregister => {
                let consumed = matches!(self.state, State::Idle { consumed: true, .. });
                let status = if consumed { CONSUMED } else { NOT_CONSUMED };
                self.register(UNREGISTER, status, None, visit)
            }
            Call::Commit => Request::CommitOffset(pb::CommitOffsetRequestC2b {
                client_id: self.options.client_id.clone(),
                topic_name: self.options.location.topic.to_string(),
                partition_id: self.options.location.partition.id as i32,
                group_name: self.options.group.clone(),
                last_pack_consumed: Some(true),
            }),
            Call::Get { consumed } => Request::GetMessages(pb::GetMessageRequestC2b {
                client_id: self.options.client_id.clone(),
                partition_id: self.options.location.partition.id as i32,
                group_name: self.options.group.clone(),
                topic_name: self.options.location.topic.to_string(),
                last_pack_consumed: Some(consumed),
                manual_commit_offset: Some(false),
                esc_flow_ctrl: Some(self.pace.is_limited(now)),
            }),
        }
    }

    fn register(&self, op: i32, status: i32, offset: Option<i64>, visit: &pb::AuthorizedInfo) -> Request {
        Request::PartitionRegister(Box::new(pb::RegisterRequestC2b {
            op_type: op,
            client_id: self.options.client_id.clone(),
            group_name: self.options.group.clone(),
            topic_name: self.options.location.topic.to_string(),
            partition_id: self.options.location.partition.id as i32,
            read_status: status,
            filter_cond_str: self.options.filters.iter().cloned().collect(),
            curr_offset: offset,
            qry_priority_id: self.priority().filter(|_| op == REGISTER),
            auth_info: Some(visit.clone()),
            ..Default::default()
        }))
    }

    /// Handles the answer to the call that [`Self::poll_request`] returned.
    pub fn handle_answer(&mut self, now: Instant, result: Result<Response>) {
        let State::Calling { call, seek } = self.state else { return };
        match call {
            Call::Register(attempt) => self.registered(now, attempt, result),
            Call::Get { consumed } => self.got(now, consumed, result),
            Call::Commit => self.committed(now, result),
            Call::Unregister => return self.left(),
        }
        match (self.intent, seek) {
            (Intent::Leave, seek) => {
                // A pack that came meanwhile is not delivered.
                self.clear_queue();
                self.refuse_seek(seek.is_some());
                if !self.attached {
                    self.left();
                }
            }
            (_, Some(to)) => self.begin_seek(now, to),
            (_, None) => {}
        }
    }

    fn registered(&mut self, now: Instant, attempt: Attempt, result: Result<Response>) {
        let mut next = Attempt { first: false, seek: false, ..attempt };
        let outcome = match result {
            Ok(Response::PartitionRegister(response)) if response.success => {
                self.offset = response.curr_offset.filter(|offset| *offset >= 0).or(self.offset);
                self.max_offset = response.max_offset.filter(|offset| *offset >= 0).or(self.max_offset);
                // From here on the group's own offset counts.
                self.start = Start::First;
                self.wait = FIRST_WAIT;
                self.served = false;
                self.state = State::Idle { at: now, consumed: false };
                if std::mem::replace(&mut self.was_held, true) && !attempt.seek {
                    self.events.push_back(Event::RegisteredAgain);
                }
                Ok(())
            }
            Ok(response) => {
                let code = Code::from_number(response.code().0);
                next.occupied = code == Some(Code::PartitionOccupied);
                if code == Some(Code::CertificateFailure) {
                    self.events.push_back(Event::Refresh);
                }
                self.state = State::Out { at: now + RETRY, attempt: next };
                response.outcome()
            }
            Err(error) if error.kind() == ErrorKind::Disconnected => {
                // Repeated over the next connection, and reported then.
                self.state = State::Out { at: now, attempt };
                return;
            }
            Err(error) => {
                self.state = State::Out { at: now + RETRY, attempt: next };
                Err(error)
            }
        };
        if attempt.seek {
            self.events.push_back(Event::SeekDone(outcome.clone()));
        }
        if attempt.first {
            self.events.push_back(Event::Registered(outcome));
        }
    }

    fn committed(&mut self, now: Instant, result: Result<Response>) {
        self.state = State::Idle { at: now.max(self.rest), consumed: result.is_err() };
        if let Ok(Response::CommitOffset(response)) = result {
            if response.success {
                self.offset = response.curr_offset.or(self.offset);
                self.max_offset = response.max_offset.or(self.max_offset);
            } else {
                self.out(now, Code::from_number(response.err_code));
            }
        }
    }

    fn got(&mut self, now: Instant, consumed: bool, result: Result<Response>) {
        let acknowledged = std::mem::take(&mut self.acknowledging);
        let response = match result {
            Ok(Response::GetMessages(response)) => response,
            Ok(_) | Err(_) => {
                // The broker may have sent the next pack, which must not be acknowledged unseen.
                self.remember(acknowledged);
                let later = if self.attached { now + self.longer() } else { now };
                self.state = State::Idle { at: later, consumed: false };
                return;
            }
        };
        if response.success {
            self.served = true;
            self.behind = response.curr_data_dlt.filter(|bytes| *bytes >= 0).or(self.behind);
            self.max_offset = response.max_offset.filter(|offset| *offset >= 0).or(self.max_offset);
            self.offset = response.curr_offset.filter(|offset| *offset >= 0).or(self.offset);
            if response.messages.is_empty() {
                self.take_pace(now, &response, 0);
                self.state = State::Idle { at: self.rest, consumed: false };
                return;
            }
            self.wait = FIRST_WAIT;
            return self.hold(now, response);
        }
        let code = Code::from_number(response.err_code);
        let again = match code {
            Some(Code::NotFound) => {
                self.served = true;
                let at_end = response.err_msg().contains("reached maxOffset");
                if at_end {
                    self.offset = self.max_offset.or(self.offset);
                    self.behind = Some(0);
                }
                let own = if at_end { self.longer() } else { FIRST_WAIT };
                let wait = own.max(self.pace.wait(now, flow::FetchInfo::default()));
                // No pack is left to acknowledge.
                self.state = State::Idle { at: now + wait, consumed: false };
                return;
            }
            Some(Code::ConsumeSpeedLimit) => {
                match u64::try_from(response.min_limit_time()) {
                    Ok(millis @ 1..) => Duration::from_millis(millis).min(LONGEST_LIMIT),
                    // The broker does not say how long.
                    _ => Duration::from_millis(300),
                }
            }
            Some(Code::Unauthorized | Code::NoNode | Code::DuplicatePartition | Code::CertificateFailure) => {
                self.acknowledging = acknowledged;
                return self.out(now, code);
            }
            Some(Code::Forbidden) => Duration::from_secs(2),
            Some(Code::Moved) => Duration::from_millis(200),
            _ => Duration::from_millis(300),
        };
        // Without messages, acknowledging once more loses nothing.
        self.acknowledging = acknowledged;
        self.state = State::Idle { at: now + again, consumed };
    }

    /// Wait for an empty partition; the next one is longer.
    fn longer(&mut self) -> Duration {
        let wait = self.wait.min(self.options.poll_interval);
        self.wait = (self.wait * 2).min(self.options.poll_interval);
        wait
    }

    /// Applies the flow control rules to an answer of which `bytes` are for this consumer.
    fn take_pace(&mut self, now: Instant, response: &pb::GetMessageResponseB2c, bytes: usize) {
        let (free, slow) = (response.esc_flow_ctrl(), response.require_slow());
        let pack = flow::FetchInfo { found: true, bytes, lag: response.curr_data_dlt, free, slow };
        self.rest = now + self.pace.wait(now, pack);
    }

    fn hold(&mut self, now: Instant, mut response: pb::GetMessageResponseB2c) {
        let pack = Pack {
            location: self.options.location.clone(),
            offset: self.offset.unwrap_or(-1),
            redelivered: self.redelivered,
            number: self.next_pack,
        };
        self.next_pack += 1;
        self.dropped = None;
        debug_assert!(self.queue.is_empty(), "one pack at a time");
        let (filters, done, queue) = (&self.options.filters, &mut self.done, &mut self.queue);
        let messages = std::mem::take(&mut response.messages);
        let held = Held::new(pack, messages, filters, done, queue);
        if held.damaged > 0 {
            self.events.push_back(Event::Damaged(held.damaged));
        }
        self.queued_bytes = self.queue.iter().map(|message| message.payload.len()).sum();
        self.take_pace(now, &response, self.queued_bytes);
        self.state = State::Holding(held);
        self.settle(now);
    }
}
