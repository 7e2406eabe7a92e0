//! What a frame's payload says: a [`Call`] or a [`Reply`].
//!
//! ```text
//! call     [RpcConnHeader flag 0][RequestHeader][RequestBody: method, timeout, request]
//! reply    [RpcConnHeader flag 1][ResponseHeader SUCCESS][RspResponseBody: method, response]
//!          [RpcConnHeader flag 1][ResponseHeader ERROR or FATAL][RspExceptionBody]
//! ```
//! Each of the three parts has its length in front, as a varint; the request or response inside the body is a
//! field of it. What follows the third part is ignored: the C++ client sends zeros there.
//!
//! A SUCCESS of the RPC says only that the method ran. Whether it did what was asked is in the response's own
//! code: [`Response::outcome`].

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message as _;

use crate::error::{Error, ErrorKind, Result, sanitise};
use crate::transmit::Transmit;
use crate::tubemq::frame::{BLOCK_SIZE, Frame, HEADER_SIZE, MAX_PAYLOAD, TOKEN};
use crate::tubemq::{Code, PROTOCOL_VERSION, pb, server_error};
use crate::wire::{Reader, bytes_field_len, put_varint, put_varint_field, varint_field_len, varint_len};

const REQUEST: i32 = 0;
const RESPONSE: i32 = 1;

/// Fields of `RequestBody` and `RspResponseBody`, which are written by hand: the inner message goes straight
/// into the output.
const METHOD_FIELD: u32 = 1;
const TIMEOUT_FIELD: u32 = 2;
const REQUEST_FIELD: u32 = 3;
const RESPONSE_FIELD: u32 = 2;

/// The part of a server that a call is for.
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

macro_rules! methods {
    ($($(#[doc = $doc:literal])+ $number:literal $name:ident($request:ty => $response:ty) $service:ident $outcome:ident;)+) => {
        /// A method of the RPC. 11, 12, 14 and 19 are reserved by the protocol and served by nobody.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(i32)]
        pub enum Method { $($(#[doc = $doc])+ $name = $number,)+ }

        impl Method {
            /// Every method, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// From the number on the wire.
            pub const fn from_number(number: i32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)+ _ => None }
            }

            /// Name in words, for errors and logs.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// The service that has it.
            pub const fn service(self) -> Service {
                match self { $(Self::$name => Service::$service,)+ }
            }
        }

        /// What is asked, by method.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each variant is the request of that method")]
        pub enum Request { $($name($request),)+ }

        impl Request {
            /// The method that is called.
            pub const fn method(&self) -> Method {
                match self { $(Self::$name(_) => Method::$name,)+ }
            }

            /// Decodes the request of a method.
            pub fn decode(method: Method, bytes: Bytes) -> Result<Self> {
                Ok(match method { $(Method::$name => Self::$name(decode(method.name(), bytes)?),)+ })
            }

            /// Number of bytes it encodes to.
            pub fn encoded_len(&self) -> usize {
                match self { $(Self::$name(request) => request.encoded_len(),)+ }
            }

            fn encode(&self, out: &mut BytesMut) {
                match self { $(Self::$name(request) => request.encode(out).expect("a BytesMut grows"),)+ }
            }
        }

        /// What a method answered.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each variant is the response of that method")]
        pub enum Response { $($name($response),)+ }

        impl Response {
            /// The method that was called.
            pub const fn method(&self) -> Method {
                match self { $(Self::$name(_) => Method::$name,)+ }
            }

            /// Decodes the response of a method.
            pub fn decode(method: Method, bytes: Bytes) -> Result<Self> {
                Ok(match method { $(Method::$name => Self::$name(decode(method.name(), bytes)?),)+ })
            }

            /// The code and the words of the response.
            pub fn code(&self) -> (i32, &str) {
                match self { $(Self::$name(response) => (response.err_code, methods!(@text response $outcome)),)+ }
            }

            /// Whether the method did what was asked.
            pub fn succeeded(&self) -> bool {
                match self { $(Self::$name(response) => methods!(@success response $outcome),)+ }
            }

            /// Number of bytes it encodes to.
            pub fn encoded_len(&self) -> usize {
                match self { $(Self::$name(response) => response.encoded_len(),)+ }
            }

            fn encode(&self, out: &mut BytesMut) {
                match self { $(Self::$name(response) => response.encode(out).expect("a BytesMut grows"),)+ }
            }
        }
    };
    (@text $response:ident wordless) => { $response.err_msg() };
    (@text $response:ident $outcome:ident) => { &$response.err_msg };
    // Client balance has no flag: the code alone says it.
    (@success $response:ident coded) => { $response.err_code == Code::Success as i32 };
    (@success $response:ident $outcome:ident) => { $response.success };
}

methods! {
    /// A producer makes itself known to the master.
    1 ProducerRegister(pb::RegisterRequestP2m => pb::RegisterResponseM2p) Master flagged;
    /// A producer asks the master for its topics.
    2 ProducerHeartbeat(pb::HeartRequestP2m => pb::HeartResponseM2p) Master flagged;
    /// A producer leaves the master.
    3 ProducerClose(pb::CloseRequestP2m => pb::CloseResponseM2p) Master flagged;
    /// A consumer of a group that the master balances makes itself known.
    4 ConsumerRegister(Box<pb::RegisterRequestC2m> => pb::RegisterResponseM2c) Master flagged;
    /// A consumer says what it holds, and is told what to take and to leave.
    5 ConsumerHeartbeat(Box<pb::HeartRequestC2m> => Box<pb::HeartResponseM2c>) Master flagged;
    /// A consumer of either balance leaves the master.
    6 ConsumerClose(pb::CloseRequestC2m => pb::CloseResponseM2c) Master flagged;
    /// A broker makes itself known to the master.
    7 BrokerRegister(Box<pb::RegisterRequestB2m> => Box<pb::RegisterResponseM2b>) Master flagged;
    /// A broker says how it is, and is told its configuration.
    8 BrokerHeartbeat(Box<pb::HeartRequestB2m> => Box<pb::HeartResponseM2b>) Master flagged;
    /// A broker leaves the master.
    9 BrokerClose(pb::CloseRequestB2m => pb::CloseResponseM2b) Master flagged;
    /// A message, to one partition of a broker.
    13 SendMessage(Box<pb::SendMessageRequestP2b> => pb::SendMessageResponseB2p) BrokerWrite flagged;
    /// A consumer takes or leaves a partition of a broker.
    15 PartitionRegister(Box<pb::RegisterRequestC2b> => pb::RegisterResponseB2c) BrokerRead flagged;
    /// A consumer keeps its partitions of a broker.
    16 PartitionHeartbeat(Box<pb::HeartBeatRequestC2b> => pb::HeartBeatResponseB2c) BrokerRead flagged;
    /// The next messages of a partition.
    17 GetMessages(pb::GetMessageRequestC2b => pb::GetMessageResponseB2c) BrokerRead wordless;
    /// The messages last given were consumed, or were not.
    18 CommitOffset(pb::CommitOffsetRequestC2b => pb::CommitOffsetResponseB2c) BrokerRead flagged;
    /// A consumer that balances by itself makes itself known.
    20 BalanceRegister(Box<pb::RegisterRequestC2mv2> => Box<pb::RegisterResponseM2cv2>) Master coded;
    /// A consumer that balances by itself says what it holds.
    21 BalanceHeartbeat(Box<pb::HeartRequestC2mv2> => Box<pb::HeartResponseM2cv2>) Master coded;
    /// A consumer that balances by itself asks for brokers and partitions.
    22 PartitionMetadata(pb::GetPartMetaRequestC2m => pb::GetPartMetaResponseM2c) Master coded;
}

impl Response {
    /// Nothing if the method did what was asked, else the error that the server named.
    pub fn outcome(&self) -> Result<()> {
        if self.succeeded() {
            return Ok(());
        }
        let (code, text) = self.code();
        Err(server_error(code, text))
    }
}

/// A request and its envelope.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Number of the service; see [`Service`].
    pub service: Option<i32>,
    /// Version of the protocol that the caller speaks.
    pub version: Option<i32>,
    /// Milliseconds within which the server answers. Without them, at 0 or below, it never does.
    pub timeout: Option<i64>,
    /// What is asked.
    pub request: Request,
}

impl Call {
    /// A call as this side makes it. `timeout` is rounded up to whole milliseconds, at least one: servers
    /// answer no call without a time limit.
    pub fn new(request: Request, timeout: Duration) -> Self {
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
            put_inner(out, REQUEST_FIELD, inner);
            self.request.encode(out);
        })
    }

    /// Reads a frame's payload that came to a server.
    pub fn decode(payload: &Bytes) -> Result<Self> {
        let mut parts = Parts::of(payload, REQUEST)?;
        let header: pb::RequestHeader = parts.message("RequestHeader")?;
        let body: pb::RequestBody = parts.message("RequestBody")?;
        Ok(Self {
            service: header.service_type,
            version: header.protocol_ver,
            timeout: body.timeout,
            request: Request::decode(known(body.method)?, body.request.unwrap_or_default())?,
        })
    }
}

/// What a server answers to a [`Call`].
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The method ran.
    Response {
        /// Version of the protocol that the server speaks.
        version: Option<i32>,
        /// What the method answered: not always a success.
        response: Response,
    },
    /// The method did not run, or failed on the way.
    Exception(Exception),
}

/// An error of the RPC itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Whether the server could not even read or place the call.
    pub fatal: bool,
    /// Version of the protocol that the server speaks; fatal ones have none.
    pub version: Option<i32>,
    /// Name of a Java class. Its package goes by the caller's version: compare the end.
    pub name: String,
    /// What the server says about it.
    pub text: Option<String>,
}

impl Exception {
    /// Whether a master refuses because another one is active.
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
            (ErrorKind::Protocol, format!("the server could not read the call ({})", sanitise(class)))
        } else {
            let class = if class.is_empty() { "an exception without a name" } else { class };
            (ErrorKind::Unknown, format!("the server failed with {}", sanitise(class)))
        };
        Self::new(kind, message).with_peer_text(exception.text.as_deref().unwrap_or_default())
    }
}

impl Reply {
    /// A response as this side makes it.
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
                    put_inner(out, RESPONSE_FIELD, inner);
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

    /// Reads a frame's payload that came to a client.
    pub fn decode(payload: &Bytes) -> Result<Self> {
        let mut parts = Parts::of(payload, RESPONSE)?;
        let header: pb::ResponseHeader = parts.message("ResponseHeader")?;
        let status = pb::Status::try_from(header.status)
            .map_err(|_| Error::protocol(format!("a response of status {}", header.status)))?;
        if status == pb::Status::Success {
            let body: pb::RspResponseBody = parts.message("RspResponseBody")?;
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
    /// Reads the first part, whose flag says who speaks.
    fn of(payload: &'a Bytes, flag: i32) -> Result<Self> {
        let mut parts = Self { payload, reader: Reader::new(payload) };
        let header: pb::RpcConnHeader = parts.message("RpcConnHeader")?;
        if header.flag != flag {
            let expected = if flag == REQUEST { "a request" } else { "a response" };
            return Err(Error::protocol(format!("a frame of flag {} where {expected} is due", header.flag)));
        }
        Ok(parts)
    }

    fn message<M: prost::Message + Default>(&mut self, name: &str) -> Result<M> {
        let bytes = self
            .reader
            .delimited()
            .map_err(|_| Error::protocol(format!("the frame ends before its {name} does")))?;
        decode(name, self.payload.slice_ref(bytes))
    }
}

fn decode<M: prost::Message + Default>(name: &str, bytes: Bytes) -> Result<M> {
    M::decode(bytes).map_err(|error| Error::protocol(format!("{name} cannot be decoded: {error}")))
}

fn known(method: i32) -> Result<Method> {
    Method::from_number(method).ok_or_else(|| Error::protocol(format!("there is no method {method}")))
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
    message.encode_length_delimited(out).expect("a BytesMut grows");
}

fn put_inner(out: &mut BytesMut, field: u32, length: usize) {
    put_varint(out, u64::from(field << 3 | 2));
    put_varint(out, length as u64);
}

/// Writes a payload of `length` bytes as a frame: in place when one block holds it, which is what most calls
/// are.
fn write(serial: u32, length: usize, out: &mut Transmit, payload: impl FnOnce(&mut BytesMut)) -> Result<()> {
    if length > BLOCK_SIZE {
        if length > MAX_PAYLOAD {
            return Err(Error::new(
                ErrorKind::MessageTooLarge,
                format!("a call of {length} bytes; a frame has at most {MAX_PAYLOAD}"),
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
