//! TubeMQ's side of HTTP: what is under `/forebay/v1/tubemq` for the page for operators. `operate`:
//! its requests; `peek`: messages that it shows.

use std::time::Instant;

use super::Broker;
use crate::http::message::{Answer, Request};

mod operate;
mod peek;

impl Broker {
    /// Answers a request over HTTP, if its path is TubeMQ's.
    pub(super) fn answer_http(&mut self, now: Instant, request: &Request) -> Option<Answer> {
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        self.now = now;
        match path[..] {
            ["forebay", "v1", "tubemq", ref rest @ ..] => Some(self.operate(rest, request)),
            _ => None,
        }
    }
}
