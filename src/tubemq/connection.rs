//! One RPC connection, without its socket: calls, and the answers to them.
//!
//! ```text
//!         call               answer of its serial
//!   ──────────────► open ─────────────────────────────────────────► answered
//!                     │ time is over, but the server has spoken ───► timed out
//!                     └ time is over, the server has been silent ──► the connection is dead
//! ```
//! There is no handshake, no ping and no push: a call is the only sign of life that can be asked for, so one that
//! nobody answers ends the connection. The server answers in the order of the calls, because it runs them on the
//! connection's own thread; a call whose time was over before it ran is not answered at all. An answer of a serial
//! number that is not open is late, and is ignored.
//!
//! Each call has a tag of the caller's, which comes back with the answer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::BytesMut;

use crate::error::{Error, ErrorKind, Result};
use crate::machine::Machine;
use crate::transmit::Transmit;
use crate::tubemq::command::{Call, Method, Reply, Request, Response};
use crate::tubemq::frame::{Decoder, MAX_PAYLOAD};

#[cfg(test)]
mod tests;

/// How a call ended: its tag, and the response or why there is none. A response may say that the method did not do
/// what was asked: [`Response::outcome`].
#[derive(Debug)]
pub struct Answer<T> {
    /// The caller's.
    pub tag: T,
    /// What came of it.
    pub result: Result<Response>,
}

#[derive(Debug)]
struct Open<T> {
    /// Gone when it is answered ahead of those before it.
    tag: Option<T>,
    method: Method,
    asked: Instant,
}

/// The client's end of a connection.
#[derive(Debug)]
pub struct Connection<T> {
    transmit: Transmit,
    decoder: Decoder,
    /// The same for all calls, so that the oldest is the first whose time is over.
    timeout: Duration,
    /// In the order of their serial numbers; the first is never answered.
    open: VecDeque<Open<T>>,
    /// Serial number of the first in `open`.
    first: u32,
    /// When the last whole frame came.
    heard: Option<Instant>,
    answers: VecDeque<Answer<T>>,
}

impl<T> Connection<T> {
    /// A connection whose calls have `timeout` to be answered, also by the server's own clock.
    pub fn new(timeout: Duration) -> Self {
        Self {
            transmit: Transmit::default(),
            decoder: Decoder::new(MAX_PAYLOAD),
            timeout,
            open: VecDeque::new(),
            first: 1,
            heard: None,
            answers: VecDeque::new(),
        }
    }

    /// Asks. A request that does not fit into a frame is answered at once.
    pub fn call(&mut self, now: Instant, request: Request, tag: T) {
        let serial = self.first.wrapping_add(self.open.len() as u32);
        let method = request.method();
        match Call::new(request, self.timeout).encode(serial, &mut self.transmit) {
            Ok(()) => self.open.push_back(Open { tag: Some(tag), method, asked: now }),
            Err(error) => self.answers.push_back(Answer { tag, result: Err(error) }),
        }
    }

    /// Calls without an answer.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// The connection has ended: nothing that is open will be answered. Whether it was carried out is not known.
    pub fn end(&mut self, error: &Error) {
        let tags = self.open.drain(..).filter_map(|open| open.tag);
        self.answers.extend(tags.map(|tag| Answer { tag, result: Err(error.clone()) }));
    }

    fn answered(&mut self, serial: u32, payload: &bytes::Bytes) -> Result<()> {
        let index = serial.wrapping_sub(self.first) as usize;
        let Some(open) = self.open.get_mut(index).filter(|open| open.tag.is_some()) else { return Ok(()) };
        // What cannot be read ends the connection, and the call with it: it stays open until then.
        let result = match Reply::decode(payload)? {
            Reply::Response { response, .. } if response.method() == open.method => Ok(response),
            Reply::Response { response, .. } => {
                return Err(Error::protocol(format!(
                    "{} was answered by {}",
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
            self.heard = Some(now);
            self.answered(frame.serial, &frame.payload)?;
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<()> {
        while let Some(open) = self.open.front_mut()
            && open.asked + self.timeout <= now
        {
            let method = open.method.name();
            let error = Error::new(
                ErrorKind::Timeout,
                format!("{method} was not answered within {:?}", self.timeout),
            );
            if self.heard.is_none_or(|heard| heard <= open.asked) {
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
        self.open.front().map(|open| open.asked + self.timeout)
    }

    fn poll_event(&mut self) -> Option<Answer<T>> {
        self.answers.pop_front()
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.transmit
    }
}
