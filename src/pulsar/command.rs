//! All commands and their numbers. On the wire a `BaseCommand` holds its type in field 1 and the
//! command in the field of the same number; [`Command`] represents that pair as one enum, which
//! avoids moving a struct with 53 mostly empty fields.

use bytes::{Bytes, BytesMut};
use prost::Message as _;

use crate::{hot, pb};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::wire::{
    Reader, bytes_field_len, put_bytes_field, put_varint, put_varint_field, varint_field_len,
};

/// Field number of `BaseCommand.type`.
const TYPE_FIELD: u32 = 1;

macro_rules! commands {
    ($($number:literal $name:ident($ty:ty) $(request $request:tt)?;)+) => {
        /// A command of the protocol, named as in `BaseCommand.Type`.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each variant is the command of that name")]
        pub enum Command {
            $($name($ty),)+
            /// Keep-alive request.
            Ping,
            /// Keep-alive response.
            Pong,
            /// A command type that this version does not know. A client skips it.
            Unknown(u32),
        }

        impl Command {
            /// Number and name of every known command.
            pub const KNOWN: &'static [(u32, &'static str)] =
                &[$(($number, stringify!($name)),)+ (18, "Ping"), (19, "Pong")];

            /// Number of the command in `BaseCommand.Type`.
            pub fn number(&self) -> u32 {
                match self { $(Self::$name(_) => $number,)+ Self::Ping => 18, Self::Pong => 19, Self::Unknown(n) => *n }
            }

            /// Name of the command, for errors and logs.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => stringify!($name),)+ Self::Ping => "Ping", Self::Pong => "Pong", Self::Unknown(_) => "Unknown" }
            }

            /// Id of the request that this command makes or answers, for commands that carry one.
            pub fn request_id(&self) -> Option<u64> {
                match self {
                    $($(Self::$name(command) => commands!(@id command $request),)?)+
                    _ => None,
                }
            }

            fn body_len(&self) -> usize {
                match self { $(Self::$name(command) => command.encoded_len(),)+ _ => 0 }
            }

            fn encode_body(&self, out: &mut BytesMut) {
                match self { $(Self::$name(command) => commands!(@encode command out),)+ _ => {} }
            }

            fn decode_body(number: u32, body: Bytes) -> Result<Self> {
                Ok(match number {
                    $($number => Self::$name(<$ty>::decode(body).map_err(|e| malformed(stringify!($name), e))?.into()),)+
                    18 => Self::Ping,
                    19 => Self::Pong,
                    other => Self::Unknown(other),
                })
            }
        }
    };
    (@id $command:ident required) => { Some($command.request_id) };
    (@id $command:ident optional) => { $command.request_id };
    (@encode $command:ident $out:ident) => { $command.encode($out).expect("BytesMut grows on demand") };
}

commands! {
    2 Connect(pb::CommandConnect);
    3 Connected(pb::CommandConnected);
    4 Subscribe(Box<pb::CommandSubscribe>) request required;
    5 Producer(Box<pb::CommandProducer>) request required;
    6 Send(hot::Send);
    7 SendReceipt(hot::SendReceipt);
    8 SendError(pb::CommandSendError);
    9 Message(hot::Delivery);
    10 Ack(hot::Ack) request optional;
    11 Flow(hot::Flow);
    12 Unsubscribe(pb::CommandUnsubscribe) request required;
    13 Success(Box<pb::CommandSuccess>) request required;
    14 Error(pb::CommandError) request required;
    15 CloseProducer(pb::CommandCloseProducer) request required;
    16 CloseConsumer(pb::CommandCloseConsumer) request required;
    17 ProducerSuccess(pb::CommandProducerSuccess) request required;
    20 RedeliverUnacknowledgedMessages(pb::CommandRedeliverUnacknowledgedMessages);
    21 PartitionedMetadata(pb::CommandPartitionedTopicMetadata) request required;
    22 PartitionedMetadataResponse(pb::CommandPartitionedTopicMetadataResponse) request required;
    23 Lookup(Box<pb::CommandLookupTopic>) request required;
    24 LookupResponse(pb::CommandLookupTopicResponse) request required;
    25 ConsumerStats(pb::CommandConsumerStats) request required;
    26 ConsumerStatsResponse(Box<pb::CommandConsumerStatsResponse>) request required;
    27 ReachedEndOfTopic(pb::CommandReachedEndOfTopic);
    28 Seek(Box<pb::CommandSeek>) request required;
    29 GetLastMessageId(pb::CommandGetLastMessageId) request required;
    30 GetLastMessageIdResponse(Box<pb::CommandGetLastMessageIdResponse>) request required;
    31 ActiveConsumerChange(pb::CommandActiveConsumerChange);
    32 GetTopicsOfNamespace(Box<pb::CommandGetTopicsOfNamespace>) request required;
    33 GetTopicsOfNamespaceResponse(pb::CommandGetTopicsOfNamespaceResponse) request required;
    34 GetSchema(pb::CommandGetSchema) request required;
    35 GetSchemaResponse(Box<pb::CommandGetSchemaResponse>) request required;
    36 AuthChallenge(pb::CommandAuthChallenge);
    37 AuthResponse(pb::CommandAuthResponse);
    38 AckResponse(pb::CommandAckResponse) request optional;
    39 GetOrCreateSchema(Box<pb::CommandGetOrCreateSchema>) request required;
    40 GetOrCreateSchemaResponse(pb::CommandGetOrCreateSchemaResponse) request required;
    50 NewTxn(pb::CommandNewTxn) request required;
    51 NewTxnResponse(pb::CommandNewTxnResponse) request required;
    52 AddPartitionToTxn(pb::CommandAddPartitionToTxn) request required;
    53 AddPartitionToTxnResponse(pb::CommandAddPartitionToTxnResponse) request required;
    54 AddSubscriptionToTxn(pb::CommandAddSubscriptionToTxn) request required;
    55 AddSubscriptionToTxnResponse(pb::CommandAddSubscriptionToTxnResponse) request required;
    56 EndTxn(pb::CommandEndTxn) request required;
    57 EndTxnResponse(pb::CommandEndTxnResponse) request required;
    58 EndTxnOnPartition(pb::CommandEndTxnOnPartition) request required;
    59 EndTxnOnPartitionResponse(pb::CommandEndTxnOnPartitionResponse) request required;
    60 EndTxnOnSubscription(pb::CommandEndTxnOnSubscription) request required;
    61 EndTxnOnSubscriptionResponse(pb::CommandEndTxnOnSubscriptionResponse) request required;
    62 TcClientConnectRequest(pb::CommandTcClientConnectRequest) request required;
    63 TcClientConnectResponse(pb::CommandTcClientConnectResponse) request required;
    64 WatchTopicList(pb::CommandWatchTopicList) request required;
    65 WatchTopicListSuccess(pb::CommandWatchTopicListSuccess) request required;
    66 WatchTopicUpdate(pb::CommandWatchTopicUpdate);
    67 WatchTopicListClose(pb::CommandWatchTopicListClose) request required;
    68 TopicMigrated(pb::CommandTopicMigrated);
    70 ScalableTopicLookup(pb::CommandScalableTopicLookup);
    71 ScalableTopicUpdate(Box<pb::CommandScalableTopicUpdate>);
    72 ScalableTopicClose(pb::CommandScalableTopicClose);
    73 ScalableTopicSubscribe(pb::CommandScalableTopicSubscribe) request required;
    74 ScalableTopicSubscribeResponse(pb::CommandScalableTopicSubscribeResponse) request required;
    75 ScalableTopicAssignmentUpdate(pb::CommandScalableTopicAssignmentUpdate);
    76 WatchScalableTopics(pb::CommandWatchScalableTopics);
    77 WatchScalableTopicsUpdate(pb::CommandWatchScalableTopicsUpdate);
    78 WatchScalableTopicsClose(pb::CommandWatchScalableTopicsClose);
    79 WatchTcAssignments(pb::CommandWatchTcAssignments);
    80 WatchTcAssignmentsUpdate(pb::CommandWatchTcAssignmentsUpdate);
    81 WatchTcAssignmentsClose(pb::CommandWatchTcAssignmentsClose);
}

impl Command {
    /// Encoded size of the `BaseCommand` in bytes.
    pub fn encoded_len(&self) -> usize {
        let number = self.number();
        varint_field_len(TYPE_FIELD, u64::from(number)) + bytes_field_len(number, self.body_len())
    }

    /// Appends the `BaseCommand`, with its fields in ascending order as all official clients write
    /// them.
    pub fn encode(&self, out: &mut BytesMut) {
        let number = self.number();
        put_varint_field(out, TYPE_FIELD, u64::from(number));
        match self {
            // The sub-message is written although it has no fields.
            Self::Ping | Self::Pong | Self::Unknown(_) => put_bytes_field(out, number, &[]),
            _ => {
                put_varint(out, u64::from(number << 3 | 2));
                put_varint(out, self.body_len() as u64);
                self.encode_body(out);
            }
        }
    }

    /// Decodes a `BaseCommand`. Unknown fields are skipped.
    pub fn decode(bytes: &Bytes) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let (mut number, mut body) = (None, None);
        // All known peers send the type first, but protobuf does not guarantee an order.
        let mut found: Option<(u32, Bytes)> = None;
        while !reader.is_empty() {
            let (field, wire_type) = reader.tag()?;
            match (field, wire_type) {
                (TYPE_FIELD, 0) => number = Some(reader.varint()? as u32),
                (_, 2) => {
                    let content = bytes.slice_ref(reader.delimited()?);
                    if Some(field) == number {
                        body = Some(content);
                    } else if found.is_none() {
                        found = Some((field, content));
                    }
                }
                _ => reader.skip(wire_type)?,
            }
        }
        let number = number
            .ok_or_else(|| Error::protocol("the peer sent a command without the required field `type`"))?;
        let body = body.or_else(|| found.and_then(|(field, content)| (field == number).then_some(content)));
        match body {
            Some(body) => Self::decode_body(number, body),
            None => match number {
                18 => Ok(Self::Ping),
                19 => Ok(Self::Pong),
                2..=17 | 20..=40 | 50..=68 | 70..=81 => {
                    Err(Error::protocol(format!("the peer sent a command of type {number} without its body")))
                }
                other => Ok(Self::Unknown(other)),
            },
        }
    }
}

fn malformed(name: &str, error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Protocol, format!("the peer sent a malformed {name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ping_carries_the_empty_sub_message() {
        let mut out = BytesMut::new();
        Command::Ping.encode(&mut out);
        assert_eq!(out[..], [0x08, 0x12, 0x92, 0x01, 0x00]);
        assert_eq!(Command::decode(&out.freeze()).unwrap(), Command::Ping);
    }

    #[test]
    fn an_unknown_type_is_no_error() {
        let bytes = Bytes::from_static(&[0x08, 0x63, 0x9a, 0x06, 0x00]);
        assert_eq!(Command::decode(&bytes).unwrap(), Command::Unknown(99));
    }

    #[test]
    fn a_command_without_type_or_content_is_refused() {
        assert!(Command::decode(&Bytes::new()).is_err());
        assert!(Command::decode(&Bytes::from_static(&[0x08, 0x03])).is_err());
    }
}
