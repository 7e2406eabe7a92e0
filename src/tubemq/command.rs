//! Contents of a frame's payload: a [`Call`] or a [`Reply`].
//!
//! ```text
//! call     [RpcConnHeader flag 0][RequestHeader][RequestBody: method, timeout, request]
//! reply    [RpcConnHeader flag 1][ResponseHeader SUCCESS][RspResponseBody: method, response]
//!          [RpcConnHeader flag 1][ResponseHeader ERROR or FATAL][RspExceptionBody]
//! ```
//! Each of the three parts is preceded by its length as a varint; the request or response is a
//! field of the body. Bytes after the third part are ignored, since the C++ client sends zeros
//! there.
//!
//! SUCCESS at the RPC level only means that the method ran. Whether it did what was asked is stated
//! by the code in the response: see [`Response::outcome`].

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message as _;

use crate::frame::{BLOCK_SIZE, Frame, HEADER_SIZE, MAX_PAYLOAD, TOKEN};
use crate::{Code, PROTOCOL_VERSION, pb, server_error};
use forebay_base::error::{Error, ErrorKind, Result, sanitise};
use forebay_base::transmit::Transmit;
use forebay_base::wire::{
    Reader, bytes_field_len, put_bytes_head, put_varint, put_varint_field, varint_field_len, varint_len,
};

const REQUEST: i32 = 0;
const RESPONSE: i32 = 1;

/// Fields of `RequestBody` and `RspResponseBody`. These are encoded by hand, so that the inner
/// message is written directly to the output.
const METHOD_FIELD: u32 = 1;
const TIMEOUT_FIELD: u32 = 2;
const REQUEST_FIELD: u32 = 3;
const RESPONSE_FIELD: u32 = 2;
/// Field of `SendMessageRequestP2B`.
const CLIENT_FIELD: u32 = 1;
/// Wire types.
const VARINT: u8 = 0;
const BYTES: u8 = 2;

/// Service of a server that a call addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Service {
    /// Registration, heartbeats and metadata, at a master.
    Master = 1,
    /// Consuming, at a broker.
    BrokerRead = 2,
    /// Producing, at a broker.
    BrokerWrite = 3,
}

/// The request of a call, as it is written: a [`Request`], or one that is encoded from what it
/// borrows.
pub trait Encode {
    /// Method that the request calls.
    fn method(&self) -> Method;

    /// Encoded size in bytes.
    fn encoded_len(&self) -> usize;

    /// Appends the encoding.
    fn encode(&self, out: &mut BytesMut);
}

macro_rules! methods {
    ($($(#[doc = $doc:literal])+ $number:literal $name:ident($request:ty => $response:ty) $service:ident $outcome:ident;)+) => {
        /// A method of the RPC. 11, 12, 14 and 19 are reserved by the protocol and not implemented
        /// by any server.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(i32)]
        pub enum Method { $($(#[doc = $doc])+ $name = $number,)+ }

        impl Method {
            /// All methods, in numerical order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Looks up a method by its number.
            pub const fn from_number(number: i32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)+ _ => None }
            }

            /// Name of the method, for errors and logs.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// Service that implements the method.
            pub const fn service(self) -> Service {
                match self { $(Self::$name => Service::$service,)+ }
            }
        }

        /// Request of each method.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each variant is the request of that method")]
        pub enum Request { $($name($request),)+ }

        impl Request {
            /// Method that the request calls.
            pub const fn method(&self) -> Method {
                match self { $(Self::$name(_) => Method::$name,)+ }
            }

            /// Decodes a request for `method`.
            pub fn decode(method: Method, bytes: Bytes) -> Result<Self> {
                Ok(match method { $(Method::$name => Self::$name(decode(method.name(), bytes)?),)+ })
            }
        }

        impl Encode for Request {
            fn method(&self) -> Method {
                self.method()
            }

            fn encoded_len(&self) -> usize {
                match self { $(Self::$name(request) => request.encoded_len(),)+ }
            }

            fn encode(&self, out: &mut BytesMut) {
                match self { $(Self::$name(request) => request.encode(out).expect("BytesMut grows on demand"),)+ }
            }
        }

        /// Response of each method.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each variant is the response of that method")]
        pub enum Response { $($name($response),)+ }

        impl Response {
            /// Method that the response answers.
            pub const fn method(&self) -> Method {
                match self { $(Self::$name(_) => Method::$name,)+ }
            }

            /// Decodes a response of `method`.
            pub fn decode(method: Method, bytes: Bytes) -> Result<Self> {
                Ok(match method { $(Method::$name => Self::$name(decode(method.name(), bytes)?),)+ })
            }

            /// Code and message of the response.
            pub fn code(&self) -> (i32, &str) {
                match self { $(Self::$name(response) => (response.err_code, methods!(@text response $outcome)),)+ }
            }

            /// Whether the method did what was asked.
            pub fn succeeded(&self) -> bool {
                match self { $(Self::$name(response) => methods!(@success response $outcome),)+ }
            }

            /// Encoded size in bytes.
            pub fn encoded_len(&self) -> usize {
                match self { $(Self::$name(response) => response.encoded_len(),)+ }
            }

            fn encode(&self, out: &mut BytesMut) {
                match self { $(Self::$name(response) => response.encode(out).expect("BytesMut grows on demand"),)+ }
            }
        }
    };
    (@text $response:ident wordless) => { $response.err_msg() };
    (@text $response:ident $outcome:ident) => { &$response.err_msg };
    // Methods of client balance have no flag; the code alone states the outcome.
    (@success $response:ident coded) => { $response.err_code == Code::Success as i32 };
    (@success $response:ident $outcome:ident) => { $response.success };
}

methods! {
    /// Registers a producer at the master.
    1 ProducerRegister(pb::RegisterRequestP2m => pb::RegisterResponseM2p) Master flagged;
    /// Renews a producer's registration and requests metadata for its topics.
    2 ProducerHeartbeat(pb::HeartRequestP2m => pb::HeartResponseM2p) Master flagged;
    /// Ends a producer's registration.
    3 ProducerClose(pb::CloseRequestP2m => pb::CloseResponseM2p) Master flagged;
    /// Registers a consumer of a group that the master balances.
    4 ConsumerRegister(Box<pb::RegisterRequestC2m> => pb::RegisterResponseM2c) Master flagged;
    /// Reports the partitions that a consumer holds, and returns those to take or release.
    5 ConsumerHeartbeat(Box<pb::HeartRequestC2m> => Box<pb::HeartResponseM2c>) Master flagged;
    /// Ends a consumer's registration, with either kind of balancing.
    6 ConsumerClose(pb::CloseRequestC2m => pb::CloseResponseM2c) Master flagged;
    /// Registers a broker at the master.
    7 BrokerRegister(Box<pb::RegisterRequestB2m> => Box<pb::RegisterResponseM2b>) Master flagged;
    /// Reports a broker's state, and returns its configuration.
    8 BrokerHeartbeat(Box<pb::HeartRequestB2m> => Box<pb::HeartResponseM2b>) Master flagged;
    /// Ends a broker's registration.
    9 BrokerClose(pb::CloseRequestB2m => pb::CloseResponseM2b) Master flagged;
    /// Sends a message to a partition.
    13 SendMessage(Box<pb::SendMessageRequestP2b> => pb::SendMessageResponseB2p) BrokerWrite flagged;
    /// Takes or releases a partition for a consumer.
    15 PartitionRegister(Box<pb::RegisterRequestC2b> => pb::RegisterResponseB2c) BrokerRead flagged;
    /// Renews a consumer's hold on the partitions of a broker.
    16 PartitionHeartbeat(Box<pb::HeartBeatRequestC2b> => pb::HeartBeatResponseB2c) BrokerRead flagged;
    /// Returns the next messages of a partition.
    17 GetMessages(pb::GetMessageRequestC2b => pb::GetMessageResponseB2c) BrokerRead wordless;
    /// Reports whether the messages returned last were consumed.
    18 CommitOffset(pb::CommitOffsetRequestC2b => pb::CommitOffsetResponseB2c) BrokerRead flagged;
    /// Registers a consumer that balances by itself.
    20 BalanceRegister(Box<pb::RegisterRequestC2mv2> => Box<pb::RegisterResponseM2cv2>) Master coded;
    /// Reports the partitions held by a consumer that balances by itself.
    21 BalanceHeartbeat(Box<pb::HeartRequestC2mv2> => Box<pb::HeartResponseM2cv2>) Master coded;
    /// Requests brokers and partitions for a consumer that balances by itself.
    22 PartitionMetadata(pb::GetPartMetaRequestC2m => pb::GetPartMetaResponseM2c) Master coded;
}

impl Response {
    /// Success if the method did what was asked, otherwise the error that the server stated.
    pub fn outcome(&self) -> Result<()> {
        if self.succeeded() {
            return Ok(());
        }
        let (code, text) = self.code();
        Err(server_error(code, text))
    }
}

/// A request with its envelope.
#[derive(Clone, Debug, PartialEq)]
pub struct Call<R = Request> {
    /// Number of the service; see [`Service`].
    pub service: Option<i32>,
    /// Protocol version of the caller.
    pub version: Option<i32>,
    /// Time limit for the response in milliseconds. If absent or not positive, the server never
    /// responds.
    pub timeout: Option<i64>,
    /// The request.
    pub request: R,
}

impl<R: Encode> Call<R> {
    /// Creates a call. `timeout` is rounded up to whole milliseconds and is at least one: servers
    /// do not respond to calls without a time limit.
    pub fn new(request: R, timeout: Duration) -> Self {
        let timeout = timeout.as_nanos().div_ceil(1_000_000).clamp(1, i64::MAX as u128) as i64;
        Self {
            service: Some(request.method().service() as i32),
            version: Some(PROTOCOL_VERSION),
            timeout: Some(timeout),
            request,
        }
    }

    /// Appends the call as a frame.
    pub fn encode(&self, serial: u32, out: &mut Transmit) -> Result<()> {
        let connection = connection_header(REQUEST);
        let header = pb::RequestHeader { service_type: self.service, protocol_ver: self.version };
        let (method, inner) = (self.request.method() as i32 as u64, self.request.encoded_len());
        let body = varint_field_len(METHOD_FIELD, method)
            + self.timeout.map_or(0, |timeout| varint_field_len(TIMEOUT_FIELD, timeout as u64))
            + bytes_field_len(REQUEST_FIELD, inner);
        let length = delimited(&connection) + delimited(&header) + varint_len(body as u64) + body;
        write(serial, length, out, |out| {
            put_delimited(&connection, out);
            put_delimited(&header, out);
            put_varint(out, body as u64);
            put_varint_field(out, METHOD_FIELD, method);
            if let Some(timeout) = self.timeout {
                put_varint_field(out, TIMEOUT_FIELD, timeout as u64);
            }
            put_bytes_head(out, REQUEST_FIELD, inner);
            self.request.encode(out);
        })
    }
}

impl Call {
    /// Decodes the payload of a frame received by a server.
    pub fn decode(payload: &Bytes) -> Result<Self> {
        let mut parts = Parts::of(payload, REQUEST)?;
        let header: pb::RequestHeader = parts.message("RequestHeader")?;
        let body: pb::RequestBody = parts.shared("RequestBody")?;
        Ok(Self {
            service: header.service_type,
            version: header.protocol_ver,
            timeout: body.timeout,
            request: Request::decode(known(body.method)?, body.request.unwrap_or_default())?,
        })
    }
}

/// Client id of the producer that sends a message, if the frame of that call begins `input`. Its
/// first block need not have come completely.
pub fn sender(input: &[u8]) -> Option<&str> {
    let mut frame = Reader::new(input);
    let (_token, _serial, _blocks) = (frame.u32().ok()?, frame.u32().ok()?, frame.u32().ok()?);
    let block = frame.u32().ok()? as usize;
    let payload = frame.take(block.min(frame.remaining())).ok()?;
    let mut reader = Reader::new(payload);
    let (_connection, _header) = (reader.delimited().ok()?, reader.delimited().ok()?);
    let _body = reader.varint().ok()?;
    let mut sends = false;
    loop {
        match reader.tag().ok()? {
            (METHOD_FIELD, VARINT) => sends = reader.varint().ok()? == Method::SendMessage as u64,
            (REQUEST_FIELD, BYTES) if sends => break,
            (_, wire_type) => reader.skip(wire_type).ok()?,
        }
    }
    let _request = reader.varint().ok()?;
    let (CLIENT_FIELD, BYTES) = reader.tag().ok()? else { return None };
    std::str::from_utf8(reader.delimited().ok()?).ok()
}

/// A server's reply to a [`Call`].
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The method ran.
    Response {
        /// Protocol version of the server.
        version: Option<i32>,
        /// Response of the method, which may state a failure.
        response: Response,
    },
    /// The method did not run, or failed while running.
    Exception(Exception),
}

/// An error at the RPC level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Whether the server could not decode or dispatch the call.
    pub fatal: bool,
    /// Protocol version of the server; absent if the exception is fatal.
    pub version: Option<i32>,
    /// Name of a Java class. The package depends on the caller's version, so only the end should be
    /// compared.
    pub name: String,
    /// The server's message.
    pub text: Option<String>,
}

impl Exception {
    /// Whether a master refused the call because another master is active.
    pub fn is_standby(&self) -> bool {
        self.name.ends_with("StandbyException")
    }
}

impl From<&Exception> for Error {
    fn from(exception: &Exception) -> Self {
        let class = exception.name.rsplit('.').next().unwrap_or_default();
        let (kind, message) = if exception.is_standby() {
            (ErrorKind::ServiceNotReady, "the master is on standby: another one is active".to_owned())
        } else if exception.fatal {
            (ErrorKind::Protocol, format!("the server rejected the call as unreadable ({})", sanitise(class)))
        } else {
            let class = if class.is_empty() { "an unnamed exception" } else { class };
            (ErrorKind::Unknown, format!("the server failed with {}", sanitise(class)))
        };
        Self::new(kind, message).with_peer_text(exception.text.as_deref().unwrap_or_default())
    }
}

impl Reply {
    /// Creates a reply with a response.
    pub fn response(response: Response) -> Self {
        Self::Response { version: Some(PROTOCOL_VERSION), response }
    }

    /// Appends the reply as a frame, with the serial number of its call.
    pub fn encode(&self, serial: u32, out: &mut Transmit) -> Result<()> {
        let connection = connection_header(RESPONSE);
        match self {
            Self::Response { version, response } => {
                let header = response_header(pb::Status::Success, *version);
                let (method, inner) = (response.method() as i32 as u64, response.encoded_len());
                let body = varint_field_len(METHOD_FIELD, method) + bytes_field_len(RESPONSE_FIELD, inner);
                let length = delimited(&connection) + delimited(&header) + varint_len(body as u64) + body;
                write(serial, length, out, |out| {
                    put_delimited(&connection, out);
                    put_delimited(&header, out);
                    put_varint(out, body as u64);
                    put_varint_field(out, METHOD_FIELD, method);
                    put_bytes_head(out, RESPONSE_FIELD, inner);
                    response.encode(out);
                })
            }
            Self::Exception(exception) => {
                let status = if exception.fatal { pb::Status::Fatal } else { pb::Status::Error };
                let header = response_header(status, exception.version);
                let body = pb::RspExceptionBody {
                    exception_name: exception.name.clone(),
                    stack_trace: exception.text.clone(),
                };
                let length = delimited(&connection) + delimited(&header) + delimited(&body);
                write(serial, length, out, |out| {
                    put_delimited(&connection, out);
                    put_delimited(&header, out);
                    put_delimited(&body, out);
                })
            }
        }
    }

    /// Decodes the payload of a frame received by a client.
    pub fn decode(payload: &Bytes) -> Result<Self> {
        let mut parts = Parts::of(payload, RESPONSE)?;
        let header: pb::ResponseHeader = parts.message("ResponseHeader")?;
        let status = pb::Status::try_from(header.status).map_err(|_| {
            Error::protocol(format!("the server sent a response with unknown status {}", header.status))
        })?;
        if status == pb::Status::Success {
            let body: pb::RspResponseBody = parts.shared("RspResponseBody")?;
            let response = Response::decode(known(body.method)?, body.data)?;
            return Ok(Self::Response { version: header.protocol_ver, response });
        }
        let body: pb::RspExceptionBody = parts.message("RspExceptionBody")?;
        Ok(Self::Exception(Exception {
            fatal: status == pb::Status::Fatal,
            version: header.protocol_ver,
            name: body.exception_name,
            text: body.stack_trace,
        }))
    }
}

/// The length-delimited messages of a payload, in order.
struct Parts<'a> {
    payload: &'a Bytes,
    reader: Reader<'a>,
}

impl<'a> Parts<'a> {
    /// Reads the first part, whose flag distinguishes requests from responses.
    fn of(payload: &'a Bytes, flag: i32) -> Result<Self> {
        let mut parts = Self { payload, reader: Reader::new(payload) };
        let header: pb::RpcConnHeader = parts.message("RpcConnHeader")?;
        if header.flag != flag {
            let expected = if flag == REQUEST { "a request" } else { "a response" };
            return Err(Error::protocol(format!(
                "the peer sent a frame with flag {} instead of {expected}",
                header.flag
            )));
        }
        Ok(parts)
    }

    /// Reads a part that has no bytes of its own to keep.
    fn message<M: prost::Message + Default>(&mut self, name: &str) -> Result<M> {
        decode(name, self.next(name)?)
    }

    /// Reads a part whose bytes stay in the payload.
    fn shared<M: prost::Message + Default>(&mut self, name: &str) -> Result<M> {
        let bytes = self.next(name)?;
        decode(name, self.payload.slice_ref(bytes))
    }

    fn next(&mut self, name: &str) -> Result<&'a [u8]> {
        self.reader
            .delimited()
            .map_err(|_| Error::protocol(format!("the peer sent a frame that ends inside its {name}")))
    }
}

fn decode<M: prost::Message + Default>(name: &str, bytes: impl Buf) -> Result<M> {
    M::decode(bytes).map_err(|error| Error::protocol(format!("the peer sent a malformed {name}: {error}")))
}

fn known(method: i32) -> Result<Method> {
    Method::from_number(method)
        .ok_or_else(|| Error::protocol(format!("the peer used the unknown method {method}")))
}

fn connection_header(flag: i32) -> pb::RpcConnHeader {
    pb::RpcConnHeader { flag, trace_id: None, span_id: None, parent_id: None }
}

fn response_header(status: pb::Status, version: Option<i32>) -> pb::ResponseHeader {
    pb::ResponseHeader { status: status as i32, service_type: None, protocol_ver: version }
}

fn delimited(message: &impl prost::Message) -> usize {
    let length = message.encoded_len();
    varint_len(length as u64) + length
}

fn put_delimited(message: &impl prost::Message, out: &mut BytesMut) {
    message.encode_length_delimited(out).expect("BytesMut grows on demand");
}

/// Writes a payload of `length` bytes as a frame. A payload that fits in one block, as most do, is
/// written in place.
fn write(serial: u32, length: usize, out: &mut Transmit, payload: impl FnOnce(&mut BytesMut)) -> Result<()> {
    if length > BLOCK_SIZE {
        if length > MAX_PAYLOAD {
            return Err(Error::new(
                ErrorKind::MessageTooLarge,
                format!("the call has {length} bytes; a frame holds at most {MAX_PAYLOAD}"),
            ));
        }
        let mut buffer = BytesMut::with_capacity(length);
        payload(&mut buffer);
        debug_assert_eq!(buffer.len(), length);
        return Frame { serial, payload: buffer.freeze() }.encode(out);
    }
    out.append(|out| {
        out.reserve(HEADER_SIZE + 4 + length);
        out.put_u32(TOKEN);
        out.put_u32(serial);
        out.put_u32(1);
        out.put_u32(length as u32);
        let before = out.len();
        payload(out);
        debug_assert_eq!(out.len() - before, length);
    });
    Ok(())
}
