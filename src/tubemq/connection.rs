//! An RPC connection, without its socket: calls and their responses.
//!
//! ```text
//!         call          response with its serial number
//!   ──────────────► open ─────────────────────────────────────────► answered
//!                     │ timeout, but other frames arrived ─────────► timed out
//!                     └ timeout, and the server was silent ────────► the connection is dead
//! ```
//! The protocol has no handshake, no ping and no push. A call is the only way to check whether the
//! server is alive, so an unanswered call ends the connection. The server responds in the order of
//! the calls, because it runs them on the connection's own thread; it does not respond to a call
//! that timed out before it ran. A response whose serial number is not open is late, and is
//! ignored.
//!
//! Each call has a tag chosen by the caller, which is returned with the response.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::BytesMut;

use crate::command::{Call, Encode, Method, Reply, Response};
use crate::frame::{Decoder, MAX_PAYLOAD};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::machine::Machine;
use forebay_base::transmit::Transmit;

#[cfg(test)]
mod tests;

/// Outcome of a call: its tag, and the response or an error. A response may still report that the
/// method failed: see [`Response::outcome`].
#[derive(Debug)]
pub struct Answer<T> {
    /// Tag chosen by the caller.
    pub tag: T,
    /// The response or the error.
    pub result: Result<Response>,
}

#[derive(Debug)]
struct Open<T> {
    /// Tag; `None` once the call has been answered ahead of earlier ones.
    tag: Option<T>,
    method: Method,
    called: Instant,
}

/// The client side of a connection.
#[derive(Debug)]
pub struct Connection<T> {
    transmit: Transmit,
    decoder: Decoder,
    /// Timeout, equal for all calls, so that the oldest call is the first to time out.
    timeout: Duration,
    /// Open calls, in the order of their serial numbers; the first is always unanswered.
    open: VecDeque<Open<T>>,
    /// Serial number of the first call in `open`.
    first: u32,
    /// Time at which the last complete frame arrived.
    last_frame: Option<Instant>,
    answers: VecDeque<Answer<T>>,
}

impl<T> Connection<T> {
    /// Creates a connection on which each call times out after `timeout`, also by the server's
    /// clock.
    pub fn new(timeout: Duration) -> Self {
        Self {
            transmit: Transmit::default(),
            decoder: Decoder::new(MAX_PAYLOAD),
            timeout,
            open: VecDeque::new(),
            first: 1,
            last_frame: None,
            answers: VecDeque::new(),
        }
    }

    /// Makes a call. A request that does not fit into a frame fails immediately.
    pub fn call(&mut self, now: Instant, request: impl Encode, tag: T) {
        let serial = self.first.wrapping_add(self.open.len() as u32);
        let method = request.method();
        match Call::new(request, self.timeout).encode(serial, &mut self.transmit) {
            Ok(()) => self.open.push_back(Open { tag: Some(tag), method, called: now }),
            Err(error) => self.answers.push_back(Answer { tag, result: Err(error) }),
        }
    }

    /// Number of unanswered calls.
    pub fn open_calls(&self) -> usize {
        self.open.len()
    }

    /// Handles the end of the connection: fails all open calls. It is unknown whether the server
    /// carried them out.
    pub fn fail_calls(&mut self, error: &Error) {
        let tags = self.open.drain(..).filter_map(|open| open.tag);
        self.answers.extend(tags.map(|tag| Answer { tag, result: Err(error.clone()) }));
    }

    fn answered(&mut self, serial: u32, payload: &bytes::Bytes) -> Result<()> {
        let index = serial.wrapping_sub(self.first) as usize;
        let Some(open) = self.open.get_mut(index).filter(|open| open.tag.is_some()) else { return Ok(()) };
        // A malformed response ends the connection and thereby this call, which stays open until
        // then.
        let result = match Reply::decode(payload)? {
            Reply::Response { response, .. } if response.method() == open.method => Ok(response),
            Reply::Response { response, .. } => {
                return Err(Error::protocol(format!(
                    "the server responded to {} with {}",
                    open.method.name(),
                    response.method().name()
                )));
            }
            Reply::Exception(exception) => Err(Error::from(&exception)),
        };
        if let Some(tag) = open.tag.take() {
            self.answers.push_back(Answer { tag, result });
        }
        self.forget_answered();
        Ok(())
    }

    fn forget_answered(&mut self) {
        while self.open.front().is_some_and(|open| open.tag.is_none()) {
            self.open.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }
}

impl<T> Machine for Connection<T> {
    type Event = Answer<T>;

    fn handle_input(&mut self, now: Instant, input: &mut BytesMut) -> Result<()> {
        while let Some(frame) = self.decoder.next(input)? {
            self.last_frame = Some(now);
            self.answered(frame.serial, &frame.payload)?;
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<()> {
        while let Some(open) = self.open.front_mut()
            && open.called + self.timeout <= now
        {
            let method = open.method.name();
            let error = Error::new(
                ErrorKind::Timeout,
                format!("the server did not respond to {method} within {:?}", self.timeout),
            );
            if self.last_frame.is_none_or(|last_frame| last_frame <= open.called) {
                return Err(error);
            }
            if let Some(tag) = open.tag.take() {
                self.answers.push_back(Answer { tag, result: Err(error) });
            }
            self.forget_answered();
        }
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.open.front().map(|open| open.called + self.timeout)
    }

    fn poll_event(&mut self) -> Option<Answer<T>> {
        self.answers.pop_front()
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.transmit
    }
}
