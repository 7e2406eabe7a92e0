//! Protobuf messages of the protocol.

// @generated from proto/pulsar.proto by the test `generated` in tests/rust/golden:
// `FOREBAY_GENERATE=1 cargo test --workspace --test golden generated` writes it again.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Schema {
    #[prost(string, required, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(bytes = "bytes", required, tag = "3")]
    pub schema_data: ::prost::bytes::Bytes,
    #[prost(enumeration = "schema::Type", required, tag = "4")]
    pub r#type: i32,
    #[prost(message, repeated, tag = "5")]
    pub properties: ::prost::alloc::vec::Vec<KeyValue>,
}
/// Nested message and enum types in `Schema`.
pub mod schema {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
    #[repr(i32)]
    pub enum Type {
        None = 0,
        String = 1,
        Json = 2,
        Protobuf = 3,
        Avro = 4,
        Bool = 5,
        Int8 = 6,
        Int16 = 7,
        Int32 = 8,
        Int64 = 9,
        Float = 10,
        Double = 11,
        Date = 12,
        Time = 13,
        Timestamp = 14,
        KeyValue = 15,
        Instant = 16,
        LocalDate = 17,
        LocalTime = 18,
        LocalDateTime = 19,
        ProtobufNative = 20,
        AutoConsume = 21,
        External = 22,
    }
    impl Type {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::None => "None",
                Self::String => "String",
                Self::Json => "Json",
                Self::Protobuf => "Protobuf",
                Self::Avro => "Avro",
                Self::Bool => "Bool",
                Self::Int8 => "Int8",
                Self::Int16 => "Int16",
                Self::Int32 => "Int32",
                Self::Int64 => "Int64",
                Self::Float => "Float",
                Self::Double => "Double",
                Self::Date => "Date",
                Self::Time => "Time",
                Self::Timestamp => "Timestamp",
                Self::KeyValue => "KeyValue",
                Self::Instant => "Instant",
                Self::LocalDate => "LocalDate",
                Self::LocalTime => "LocalTime",
                Self::LocalDateTime => "LocalDateTime",
                Self::ProtobufNative => "ProtobufNative",
                Self::AutoConsume => "AutoConsume",
                Self::External => "External",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "None" => Some(Self::None),
                "String" => Some(Self::String),
                "Json" => Some(Self::Json),
                "Protobuf" => Some(Self::Protobuf),
                "Avro" => Some(Self::Avro),
                "Bool" => Some(Self::Bool),
                "Int8" => Some(Self::Int8),
                "Int16" => Some(Self::Int16),
                "Int32" => Some(Self::Int32),
                "Int64" => Some(Self::Int64),
                "Float" => Some(Self::Float),
                "Double" => Some(Self::Double),
                "Date" => Some(Self::Date),
                "Time" => Some(Self::Time),
                "Timestamp" => Some(Self::Timestamp),
                "KeyValue" => Some(Self::KeyValue),
                "Instant" => Some(Self::Instant),
                "LocalDate" => Some(Self::LocalDate),
                "LocalTime" => Some(Self::LocalTime),
                "LocalDateTime" => Some(Self::LocalDateTime),
                "ProtobufNative" => Some(Self::ProtobufNative),
                "AutoConsume" => Some(Self::AutoConsume),
                "External" => Some(Self::External),
                _ => None,
            }
        }
    }
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct MessageIdData {
    #[prost(uint64, required, tag = "1")]
    pub ledger_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub entry_id: u64,
    #[prost(int32, optional, tag = "3", default = "-1")]
    pub partition: ::core::option::Option<i32>,
    #[prost(int32, optional, tag = "4", default = "-1")]
    pub batch_index: ::core::option::Option<i32>,
    #[prost(int64, repeated, packed = "false", tag = "5")]
    pub ack_set: ::prost::alloc::vec::Vec<i64>,
    #[prost(int32, optional, tag = "6")]
    pub batch_size: ::core::option::Option<i32>,
    #[prost(message, optional, boxed, tag = "7")]
    pub first_chunk_message_id: ::core::option::Option<::prost::alloc::boxed::Box<MessageIdData>>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct KeyValue {
    #[prost(string, required, tag = "1")]
    pub key: ::prost::alloc::string::String,
    #[prost(string, required, tag = "2")]
    pub value: ::prost::alloc::string::String,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct KeyLongValue {
    #[prost(string, required, tag = "1")]
    pub key: ::prost::alloc::string::String,
    #[prost(uint64, required, tag = "2")]
    pub value: u64,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct IntRange {
    #[prost(int32, required, tag = "1")]
    pub start: i32,
    #[prost(int32, required, tag = "2")]
    pub end: i32,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct EncryptionKeys {
    #[prost(string, required, tag = "1")]
    pub key: ::prost::alloc::string::String,
    #[prost(bytes = "bytes", required, tag = "2")]
    pub value: ::prost::bytes::Bytes,
    #[prost(message, repeated, tag = "3")]
    pub metadata: ::prost::alloc::vec::Vec<KeyValue>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct MessageMetadata {
    #[prost(string, required, tag = "1")]
    pub producer_name: ::prost::alloc::string::String,
    #[prost(uint64, required, tag = "2")]
    pub sequence_id: u64,
    #[prost(uint64, required, tag = "3")]
    pub publish_time: u64,
    #[prost(message, repeated, tag = "4")]
    pub properties: ::prost::alloc::vec::Vec<KeyValue>,
    #[prost(string, optional, tag = "5")]
    pub replicated_from: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "6")]
    pub partition_key: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, repeated, tag = "7")]
    pub replicate_to: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(enumeration = "CompressionType", optional, tag = "8", default = "None")]
    pub compression: ::core::option::Option<i32>,
    #[prost(uint32, optional, tag = "9")]
    pub uncompressed_size: ::core::option::Option<u32>,
    #[prost(int32, optional, tag = "11", default = "1")]
    pub num_messages_in_batch: ::core::option::Option<i32>,
    #[prost(uint64, optional, tag = "12")]
    pub event_time: ::core::option::Option<u64>,
    #[prost(message, repeated, tag = "13")]
    pub encryption_keys: ::prost::alloc::vec::Vec<EncryptionKeys>,
    #[prost(string, optional, tag = "14")]
    pub encryption_algo: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(bytes = "bytes", optional, tag = "15")]
    pub encryption_param: ::core::option::Option<::prost::bytes::Bytes>,
    #[prost(bytes = "bytes", optional, tag = "16")]
    pub schema_version: ::core::option::Option<::prost::bytes::Bytes>,
    #[prost(bool, optional, tag = "17")]
    pub partition_key_b64_encoded: ::core::option::Option<bool>,
    #[prost(bytes = "bytes", optional, tag = "18")]
    pub ordering_key: ::core::option::Option<::prost::bytes::Bytes>,
    #[prost(int64, optional, tag = "19")]
    pub deliver_at_time: ::core::option::Option<i64>,
    #[prost(int32, optional, tag = "20")]
    pub marker_type: ::core::option::Option<i32>,
    #[prost(uint64, optional, tag = "22")]
    pub txnid_least_bits: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "23")]
    pub txnid_most_bits: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "24")]
    pub highest_sequence_id: ::core::option::Option<u64>,
    #[prost(bool, optional, tag = "25")]
    pub null_value: ::core::option::Option<bool>,
    #[prost(string, optional, tag = "26")]
    pub uuid: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(int32, optional, tag = "27")]
    pub num_chunks_from_msg: ::core::option::Option<i32>,
    #[prost(int32, optional, tag = "28")]
    pub total_chunk_msg_size: ::core::option::Option<i32>,
    #[prost(int32, optional, tag = "29")]
    pub chunk_id: ::core::option::Option<i32>,
    #[prost(bool, optional, tag = "30")]
    pub null_partition_key: ::core::option::Option<bool>,
    #[prost(int32, repeated, packed = "false", tag = "31")]
    pub compacted_batch_indexes: ::prost::alloc::vec::Vec<i32>,
    #[prost(bytes = "bytes", optional, tag = "32")]
    pub schema_id: ::core::option::Option<::prost::bytes::Bytes>,
    #[prost(uint32, optional, tag = "33")]
    pub entry_hash_min: ::core::option::Option<u32>,
    #[prost(uint32, optional, tag = "34")]
    pub entry_hash_max: ::core::option::Option<u32>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct SingleMessageMetadata {
    #[prost(message, repeated, tag = "1")]
    pub properties: ::prost::alloc::vec::Vec<KeyValue>,
    #[prost(string, optional, tag = "2")]
    pub partition_key: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(int32, required, tag = "3")]
    pub payload_size: i32,
    #[prost(bool, optional, tag = "4")]
    pub compacted_out: ::core::option::Option<bool>,
    #[prost(uint64, optional, tag = "5")]
    pub event_time: ::core::option::Option<u64>,
    #[prost(bool, optional, tag = "6")]
    pub partition_key_b64_encoded: ::core::option::Option<bool>,
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub ordering_key: ::core::option::Option<::prost::bytes::Bytes>,
    #[prost(uint64, optional, tag = "8")]
    pub sequence_id: ::core::option::Option<u64>,
    #[prost(bool, optional, tag = "9")]
    pub null_value: ::core::option::Option<bool>,
    #[prost(bool, optional, tag = "10")]
    pub null_partition_key: ::core::option::Option<bool>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct BrokerEntryMetadata {
    #[prost(uint64, optional, tag = "1")]
    pub broker_timestamp: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub index: ::core::option::Option<u64>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandConnect {
    #[prost(string, required, tag = "1")]
    pub client_version: ::prost::alloc::string::String,
    #[prost(enumeration = "AuthMethod", optional, tag = "2")]
    pub auth_method: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub auth_method_name: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub auth_data: ::core::option::Option<::prost::bytes::Bytes>,
    #[prost(int32, optional, tag = "4")]
    pub protocol_version: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub proxy_to_broker_url: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "7")]
    pub original_principal: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "8")]
    pub original_auth_data: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "9")]
    pub original_auth_method: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(message, optional, tag = "10")]
    pub feature_flags: ::core::option::Option<FeatureFlags>,
    #[prost(string, optional, tag = "11")]
    pub proxy_version: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct FeatureFlags {
    #[prost(bool, optional, tag = "1")]
    pub supports_auth_refresh: ::core::option::Option<bool>,
    #[prost(bool, optional, tag = "2")]
    pub supports_broker_entry_metadata: ::core::option::Option<bool>,
    #[prost(bool, optional, tag = "3")]
    pub supports_partial_producer: ::core::option::Option<bool>,
    #[prost(bool, optional, tag = "4")]
    pub supports_topic_watchers: ::core::option::Option<bool>,
    #[prost(bool, optional, tag = "5")]
    pub supports_get_partitioned_metadata_without_auto_creation: ::core::option::Option<bool>,
    #[prost(bool, optional, tag = "6")]
    pub supports_repl_dedup_by_lid_and_eid: ::core::option::Option<bool>,
    #[prost(bool, optional, tag = "7")]
    pub supports_topic_watcher_reconcile: ::core::option::Option<bool>,
    #[prost(bool, optional, tag = "8")]
    pub supports_scalable_topics: ::core::option::Option<bool>,
    #[prost(bool, optional, tag = "9")]
    pub supports_tc_metadata_discovery: ::core::option::Option<bool>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandConnected {
    #[prost(string, required, tag = "1")]
    pub server_version: ::prost::alloc::string::String,
    #[prost(int32, optional, tag = "2")]
    pub protocol_version: ::core::option::Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub max_message_size: ::core::option::Option<i32>,
    #[prost(message, optional, tag = "4")]
    pub feature_flags: ::core::option::Option<FeatureFlags>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandAuthResponse {
    #[prost(string, optional, tag = "1")]
    pub client_version: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(message, optional, tag = "2")]
    pub response: ::core::option::Option<AuthData>,
    #[prost(int32, optional, tag = "3")]
    pub protocol_version: ::core::option::Option<i32>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandAuthChallenge {
    #[prost(string, optional, tag = "1")]
    pub server_version: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(message, optional, tag = "2")]
    pub challenge: ::core::option::Option<AuthData>,
    #[prost(int32, optional, tag = "3")]
    pub protocol_version: ::core::option::Option<i32>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct AuthData {
    #[prost(string, optional, tag = "1")]
    pub auth_method_name: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub auth_data: ::core::option::Option<::prost::bytes::Bytes>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct KeySharedMeta {
    #[prost(enumeration = "KeySharedMode", required, tag = "1")]
    pub key_shared_mode: i32,
    #[prost(message, repeated, tag = "3")]
    pub hash_ranges: ::prost::alloc::vec::Vec<IntRange>,
    #[prost(bool, optional, tag = "4")]
    pub allow_out_of_order_delivery: ::core::option::Option<bool>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandSubscribe {
    #[prost(string, required, tag = "1")]
    pub topic: ::prost::alloc::string::String,
    #[prost(string, required, tag = "2")]
    pub subscription: ::prost::alloc::string::String,
    #[prost(enumeration = "command_subscribe::SubType", required, tag = "3")]
    pub sub_type: i32,
    #[prost(uint64, required, tag = "4")]
    pub consumer_id: u64,
    #[prost(uint64, required, tag = "5")]
    pub request_id: u64,
    #[prost(string, optional, tag = "6")]
    pub consumer_name: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(int32, optional, tag = "7")]
    pub priority_level: ::core::option::Option<i32>,
    #[prost(bool, optional, tag = "8", default = "true")]
    pub durable: ::core::option::Option<bool>,
    #[prost(message, optional, tag = "9")]
    pub start_message_id: ::core::option::Option<MessageIdData>,
    #[prost(message, repeated, tag = "10")]
    pub metadata: ::prost::alloc::vec::Vec<KeyValue>,
    #[prost(bool, optional, tag = "11")]
    pub read_compacted: ::core::option::Option<bool>,
    #[prost(message, optional, tag = "12")]
    pub schema: ::core::option::Option<Schema>,
    #[prost(enumeration = "command_subscribe::InitialPosition", optional, tag = "13", default = "Latest")]
    pub initial_position: ::core::option::Option<i32>,
    #[prost(bool, optional, tag = "14")]
    pub replicate_subscription_state: ::core::option::Option<bool>,
    #[prost(bool, optional, tag = "15", default = "true")]
    pub force_topic_creation: ::core::option::Option<bool>,
    #[prost(uint64, optional, tag = "16")]
    pub start_message_rollback_duration_sec: ::core::option::Option<u64>,
    #[prost(message, optional, tag = "17")]
    pub key_shared_meta: ::core::option::Option<KeySharedMeta>,
    #[prost(message, repeated, tag = "18")]
    pub subscription_properties: ::prost::alloc::vec::Vec<KeyValue>,
    #[prost(uint64, optional, tag = "19")]
    pub consumer_epoch: ::core::option::Option<u64>,
}
/// Nested message and enum types in `CommandSubscribe`.
pub mod command_subscribe {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
    #[repr(i32)]
    pub enum SubType {
        Exclusive = 0,
        Shared = 1,
        Failover = 2,
        KeyShared = 3,
    }
    impl SubType {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::Exclusive => "Exclusive",
                Self::Shared => "Shared",
                Self::Failover => "Failover",
                Self::KeyShared => "Key_Shared",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "Exclusive" => Some(Self::Exclusive),
                "Shared" => Some(Self::Shared),
                "Failover" => Some(Self::Failover),
                "Key_Shared" => Some(Self::KeyShared),
                _ => None,
            }
        }
    }
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
    #[repr(i32)]
    pub enum InitialPosition {
        Latest = 0,
        Earliest = 1,
    }
    impl InitialPosition {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::Latest => "Latest",
                Self::Earliest => "Earliest",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "Latest" => Some(Self::Latest),
                "Earliest" => Some(Self::Earliest),
                _ => None,
            }
        }
    }
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandPartitionedTopicMetadata {
    #[prost(string, required, tag = "1")]
    pub topic: ::prost::alloc::string::String,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
    #[prost(string, optional, tag = "3")]
    pub original_principal: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "4")]
    pub original_auth_data: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "5")]
    pub original_auth_method: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(bool, optional, tag = "6", default = "true")]
    pub metadata_auto_creation_enabled: ::core::option::Option<bool>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandPartitionedTopicMetadataResponse {
    #[prost(uint32, optional, tag = "1")]
    pub partitions: ::core::option::Option<u32>,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
    #[prost(enumeration = "command_partitioned_topic_metadata_response::LookupType", optional, tag = "3")]
    pub response: ::core::option::Option<i32>,
    #[prost(enumeration = "ServerError", optional, tag = "4")]
    pub error: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub message: ::core::option::Option<::prost::alloc::string::String>,
}
/// Nested message and enum types in `CommandPartitionedTopicMetadataResponse`.
pub mod command_partitioned_topic_metadata_response {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
    #[repr(i32)]
    pub enum LookupType {
        Success = 0,
        Failed = 1,
    }
    impl LookupType {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::Success => "Success",
                Self::Failed => "Failed",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "Success" => Some(Self::Success),
                "Failed" => Some(Self::Failed),
                _ => None,
            }
        }
    }
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandLookupTopic {
    #[prost(string, required, tag = "1")]
    pub topic: ::prost::alloc::string::String,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
    #[prost(bool, optional, tag = "3")]
    pub authoritative: ::core::option::Option<bool>,
    #[prost(string, optional, tag = "4")]
    pub original_principal: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "5")]
    pub original_auth_data: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "6")]
    pub original_auth_method: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "7")]
    pub advertised_listener_name: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(message, repeated, tag = "8")]
    pub properties: ::prost::alloc::vec::Vec<KeyValue>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandLookupTopicResponse {
    #[prost(string, optional, tag = "1")]
    pub broker_service_url: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "2")]
    pub broker_service_url_tls: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(enumeration = "command_lookup_topic_response::LookupType", optional, tag = "3")]
    pub response: ::core::option::Option<i32>,
    #[prost(uint64, required, tag = "4")]
    pub request_id: u64,
    #[prost(bool, optional, tag = "5")]
    pub authoritative: ::core::option::Option<bool>,
    #[prost(enumeration = "ServerError", optional, tag = "6")]
    pub error: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "7")]
    pub message: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(bool, optional, tag = "8")]
    pub proxy_through_service_url: ::core::option::Option<bool>,
}
/// Nested message and enum types in `CommandLookupTopicResponse`.
pub mod command_lookup_topic_response {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
    #[repr(i32)]
    pub enum LookupType {
        Redirect = 0,
        Connect = 1,
        Failed = 2,
    }
    impl LookupType {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::Redirect => "Redirect",
                Self::Connect => "Connect",
                Self::Failed => "Failed",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "Redirect" => Some(Self::Redirect),
                "Connect" => Some(Self::Connect),
                "Failed" => Some(Self::Failed),
                _ => None,
            }
        }
    }
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandProducer {
    #[prost(string, required, tag = "1")]
    pub topic: ::prost::alloc::string::String,
    #[prost(uint64, required, tag = "2")]
    pub producer_id: u64,
    #[prost(uint64, required, tag = "3")]
    pub request_id: u64,
    #[prost(string, optional, tag = "4")]
    pub producer_name: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(bool, optional, tag = "5")]
    pub encrypted: ::core::option::Option<bool>,
    #[prost(message, repeated, tag = "6")]
    pub metadata: ::prost::alloc::vec::Vec<KeyValue>,
    #[prost(message, optional, tag = "7")]
    pub schema: ::core::option::Option<Schema>,
    #[prost(uint64, optional, tag = "8")]
    pub epoch: ::core::option::Option<u64>,
    #[prost(bool, optional, tag = "9", default = "true")]
    pub user_provided_producer_name: ::core::option::Option<bool>,
    #[prost(enumeration = "ProducerAccessMode", optional, tag = "10", default = "Shared")]
    pub producer_access_mode: ::core::option::Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    pub topic_epoch: ::core::option::Option<u64>,
    #[prost(bool, optional, tag = "12")]
    pub txn_enabled: ::core::option::Option<bool>,
    #[prost(string, optional, tag = "13")]
    pub initial_subscription_name: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandSend {
    #[prost(uint64, required, tag = "1")]
    pub producer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub sequence_id: u64,
    #[prost(int32, optional, tag = "3", default = "1")]
    pub num_messages: ::core::option::Option<i32>,
    #[prost(uint64, optional, tag = "4")]
    pub txnid_least_bits: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub txnid_most_bits: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    pub highest_sequence_id: ::core::option::Option<u64>,
    #[prost(bool, optional, tag = "7")]
    pub is_chunk: ::core::option::Option<bool>,
    #[prost(bool, optional, tag = "8")]
    pub marker: ::core::option::Option<bool>,
    #[prost(message, optional, tag = "9")]
    pub message_id: ::core::option::Option<MessageIdData>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandSendReceipt {
    #[prost(uint64, required, tag = "1")]
    pub producer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub sequence_id: u64,
    #[prost(message, optional, tag = "3")]
    pub message_id: ::core::option::Option<MessageIdData>,
    #[prost(uint64, optional, tag = "4")]
    pub highest_sequence_id: ::core::option::Option<u64>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandSendError {
    #[prost(uint64, required, tag = "1")]
    pub producer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub sequence_id: u64,
    #[prost(enumeration = "ServerError", required, tag = "3")]
    pub error: i32,
    #[prost(string, required, tag = "4")]
    pub message: ::prost::alloc::string::String,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandMessage {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(message, required, tag = "2")]
    pub message_id: MessageIdData,
    #[prost(uint32, optional, tag = "3")]
    pub redelivery_count: ::core::option::Option<u32>,
    #[prost(int64, repeated, packed = "false", tag = "4")]
    pub ack_set: ::prost::alloc::vec::Vec<i64>,
    #[prost(uint64, optional, tag = "5")]
    pub consumer_epoch: ::core::option::Option<u64>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandAck {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(enumeration = "command_ack::AckType", required, tag = "2")]
    pub ack_type: i32,
    #[prost(message, repeated, tag = "3")]
    pub message_id: ::prost::alloc::vec::Vec<MessageIdData>,
    #[prost(enumeration = "command_ack::ValidationError", optional, tag = "4")]
    pub validation_error: ::core::option::Option<i32>,
    #[prost(message, repeated, tag = "5")]
    pub properties: ::prost::alloc::vec::Vec<KeyLongValue>,
    #[prost(uint64, optional, tag = "6")]
    pub txnid_least_bits: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "7")]
    pub txnid_most_bits: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "8")]
    pub request_id: ::core::option::Option<u64>,
}
/// Nested message and enum types in `CommandAck`.
pub mod command_ack {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
    #[repr(i32)]
    pub enum AckType {
        Individual = 0,
        Cumulative = 1,
    }
    impl AckType {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::Individual => "Individual",
                Self::Cumulative => "Cumulative",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "Individual" => Some(Self::Individual),
                "Cumulative" => Some(Self::Cumulative),
                _ => None,
            }
        }
    }
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
    #[repr(i32)]
    pub enum ValidationError {
        UncompressedSizeCorruption = 0,
        DecompressionError = 1,
        ChecksumMismatch = 2,
        BatchDeSerializeError = 3,
        DecryptionError = 4,
    }
    impl ValidationError {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::UncompressedSizeCorruption => "UncompressedSizeCorruption",
                Self::DecompressionError => "DecompressionError",
                Self::ChecksumMismatch => "ChecksumMismatch",
                Self::BatchDeSerializeError => "BatchDeSerializeError",
                Self::DecryptionError => "DecryptionError",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "UncompressedSizeCorruption" => Some(Self::UncompressedSizeCorruption),
                "DecompressionError" => Some(Self::DecompressionError),
                "ChecksumMismatch" => Some(Self::ChecksumMismatch),
                "BatchDeSerializeError" => Some(Self::BatchDeSerializeError),
                "DecryptionError" => Some(Self::DecryptionError),
                _ => None,
            }
        }
    }
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandAckResponse {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(uint64, optional, tag = "2")]
    pub txnid_least_bits: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub txnid_most_bits: ::core::option::Option<u64>,
    #[prost(enumeration = "ServerError", optional, tag = "4")]
    pub error: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub message: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(uint64, optional, tag = "6")]
    pub request_id: ::core::option::Option<u64>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandActiveConsumerChange {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(bool, optional, tag = "2")]
    pub is_active: ::core::option::Option<bool>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandFlow {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(uint32, required, tag = "2")]
    pub message_permits: u32,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandUnsubscribe {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
    #[prost(bool, optional, tag = "3")]
    pub force: ::core::option::Option<bool>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandSeek {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
    #[prost(message, optional, tag = "3")]
    pub message_id: ::core::option::Option<MessageIdData>,
    #[prost(uint64, optional, tag = "4")]
    pub message_publish_time: ::core::option::Option<u64>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandReachedEndOfTopic {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandTopicMigrated {
    #[prost(uint64, required, tag = "1")]
    pub resource_id: u64,
    #[prost(enumeration = "command_topic_migrated::ResourceType", required, tag = "2")]
    pub resource_type: i32,
    #[prost(string, optional, tag = "3")]
    pub broker_service_url: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "4")]
    pub broker_service_url_tls: ::core::option::Option<::prost::alloc::string::String>,
}
/// Nested message and enum types in `CommandTopicMigrated`.
pub mod command_topic_migrated {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
    #[repr(i32)]
    pub enum ResourceType {
        Producer = 0,
        Consumer = 1,
    }
    impl ResourceType {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::Producer => "Producer",
                Self::Consumer => "Consumer",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "Producer" => Some(Self::Producer),
                "Consumer" => Some(Self::Consumer),
                _ => None,
            }
        }
    }
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandCloseProducer {
    #[prost(uint64, required, tag = "1")]
    pub producer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
    #[prost(string, optional, tag = "3")]
    pub assigned_broker_service_url: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "4")]
    pub assigned_broker_service_url_tls: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandCloseConsumer {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
    #[prost(string, optional, tag = "3")]
    pub assigned_broker_service_url: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "4")]
    pub assigned_broker_service_url_tls: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandRedeliverUnacknowledgedMessages {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(message, repeated, tag = "2")]
    pub message_ids: ::prost::alloc::vec::Vec<MessageIdData>,
    #[prost(uint64, optional, tag = "3")]
    pub consumer_epoch: ::core::option::Option<u64>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandSuccess {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(message, optional, tag = "2")]
    pub schema: ::core::option::Option<Schema>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandProducerSuccess {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(string, required, tag = "2")]
    pub producer_name: ::prost::alloc::string::String,
    #[prost(int64, optional, tag = "3", default = "-1")]
    pub last_sequence_id: ::core::option::Option<i64>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub schema_version: ::core::option::Option<::prost::bytes::Bytes>,
    #[prost(uint64, optional, tag = "5")]
    pub topic_epoch: ::core::option::Option<u64>,
    #[prost(bool, optional, tag = "6", default = "true")]
    pub producer_ready: ::core::option::Option<bool>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandError {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(enumeration = "ServerError", required, tag = "2")]
    pub error: i32,
    #[prost(string, required, tag = "3")]
    pub message: ::prost::alloc::string::String,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandPing {
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandPong {
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandConsumerStats {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, required, tag = "4")]
    pub consumer_id: u64,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandConsumerStatsResponse {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(enumeration = "ServerError", optional, tag = "2")]
    pub error_code: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "3")]
    pub error_message: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(double, optional, tag = "4")]
    pub msg_rate_out: ::core::option::Option<f64>,
    #[prost(double, optional, tag = "5")]
    pub msg_throughput_out: ::core::option::Option<f64>,
    #[prost(double, optional, tag = "6")]
    pub msg_rate_redeliver: ::core::option::Option<f64>,
    #[prost(string, optional, tag = "7")]
    pub consumer_name: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(uint64, optional, tag = "8")]
    pub available_permits: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "9")]
    pub unacked_messages: ::core::option::Option<u64>,
    #[prost(bool, optional, tag = "10")]
    pub blocked_consumer_on_unacked_msgs: ::core::option::Option<bool>,
    #[prost(string, optional, tag = "11")]
    pub address: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "12")]
    pub connected_since: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "13")]
    pub r#type: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(double, optional, tag = "14")]
    pub msg_rate_expired: ::core::option::Option<f64>,
    #[prost(uint64, optional, tag = "15")]
    pub msg_backlog: ::core::option::Option<u64>,
    #[prost(double, optional, tag = "16")]
    pub message_ack_rate: ::core::option::Option<f64>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandGetLastMessageId {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandGetLastMessageIdResponse {
    #[prost(message, required, tag = "1")]
    pub last_message_id: MessageIdData,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
    #[prost(message, optional, tag = "3")]
    pub consumer_mark_delete_position: ::core::option::Option<MessageIdData>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandGetTopicsOfNamespace {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(string, required, tag = "2")]
    pub namespace: ::prost::alloc::string::String,
    #[prost(enumeration = "command_get_topics_of_namespace::Mode", optional, tag = "3", default = "Persistent")]
    pub mode: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "4")]
    pub topics_pattern: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "5")]
    pub topics_hash: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(message, repeated, tag = "6")]
    pub properties: ::prost::alloc::vec::Vec<KeyValue>,
}
/// Nested message and enum types in `CommandGetTopicsOfNamespace`.
pub mod command_get_topics_of_namespace {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
    #[repr(i32)]
    pub enum Mode {
        Persistent = 0,
        NonPersistent = 1,
        All = 2,
    }
    impl Mode {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::Persistent => "PERSISTENT",
                Self::NonPersistent => "NON_PERSISTENT",
                Self::All => "ALL",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "PERSISTENT" => Some(Self::Persistent),
                "NON_PERSISTENT" => Some(Self::NonPersistent),
                "ALL" => Some(Self::All),
                _ => None,
            }
        }
    }
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandGetTopicsOfNamespaceResponse {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(string, repeated, tag = "2")]
    pub topics: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(bool, optional, tag = "3")]
    pub filtered: ::core::option::Option<bool>,
    #[prost(string, optional, tag = "4")]
    pub topics_hash: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(bool, optional, tag = "5", default = "true")]
    pub changed: ::core::option::Option<bool>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandWatchTopicList {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub watcher_id: u64,
    #[prost(string, required, tag = "3")]
    pub namespace: ::prost::alloc::string::String,
    #[prost(string, required, tag = "4")]
    pub topics_pattern: ::prost::alloc::string::String,
    #[prost(string, optional, tag = "5")]
    pub topics_hash: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandWatchTopicListSuccess {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub watcher_id: u64,
    #[prost(string, repeated, tag = "3")]
    pub topic: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(string, required, tag = "4")]
    pub topics_hash: ::prost::alloc::string::String,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandWatchTopicUpdate {
    #[prost(uint64, required, tag = "1")]
    pub watcher_id: u64,
    #[prost(string, repeated, tag = "2")]
    pub new_topics: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(string, repeated, tag = "3")]
    pub deleted_topics: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(string, required, tag = "4")]
    pub topics_hash: ::prost::alloc::string::String,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandWatchTopicListClose {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub watcher_id: u64,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SegmentInfoProto {
    #[prost(uint64, required, tag = "1")]
    pub segment_id: u64,
    #[prost(uint32, required, tag = "2")]
    pub hash_start: u32,
    #[prost(uint32, required, tag = "3")]
    pub hash_end: u32,
    #[prost(enumeration = "SegmentState", required, tag = "4")]
    pub state: i32,
    #[prost(uint64, repeated, packed = "false", tag = "5")]
    pub parent_ids: ::prost::alloc::vec::Vec<u64>,
    #[prost(uint64, repeated, packed = "false", tag = "6")]
    pub child_ids: ::prost::alloc::vec::Vec<u64>,
    #[prost(uint64, required, tag = "7")]
    pub created_at_epoch: u64,
    #[prost(uint64, optional, tag = "8")]
    pub sealed_at_epoch: ::core::option::Option<u64>,
    #[prost(uint64, required, tag = "9")]
    pub created_at_ms: u64,
    #[prost(uint64, optional, tag = "10")]
    pub sealed_at_ms: ::core::option::Option<u64>,
    #[prost(string, optional, tag = "11")]
    pub legacy_topic_name: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(uint32, repeated, packed = "false", tag = "12")]
    pub entry_bucket_splits: ::prost::alloc::vec::Vec<u32>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SegmentBrokerAddress {
    #[prost(uint64, required, tag = "1")]
    pub segment_id: u64,
    #[prost(string, required, tag = "2")]
    pub broker_url: ::prost::alloc::string::String,
    #[prost(string, optional, tag = "3")]
    pub broker_url_tls: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ScalableTopicDag {
    #[prost(uint64, required, tag = "1")]
    pub epoch: u64,
    #[prost(message, repeated, tag = "2")]
    pub segments: ::prost::alloc::vec::Vec<SegmentInfoProto>,
    #[prost(message, repeated, tag = "3")]
    pub segment_brokers: ::prost::alloc::vec::Vec<SegmentBrokerAddress>,
    #[prost(string, optional, tag = "4")]
    pub controller_broker_url: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "5")]
    pub controller_broker_url_tls: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandScalableTopicLookup {
    #[prost(uint64, required, tag = "1")]
    pub session_id: u64,
    #[prost(string, required, tag = "2")]
    pub topic: ::prost::alloc::string::String,
    #[prost(bool, optional, tag = "3", default = "true")]
    pub create_if_missing: ::core::option::Option<bool>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandScalableTopicUpdate {
    #[prost(uint64, required, tag = "1")]
    pub session_id: u64,
    #[prost(message, optional, tag = "2")]
    pub dag: ::core::option::Option<ScalableTopicDag>,
    #[prost(enumeration = "ServerError", optional, tag = "3")]
    pub error: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "4")]
    pub message: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "5")]
    pub resolved_topic_name: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandScalableTopicClose {
    #[prost(uint64, required, tag = "1")]
    pub session_id: u64,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ScalableAssignedSegment {
    #[prost(uint64, required, tag = "1")]
    pub segment_id: u64,
    #[prost(uint32, required, tag = "2")]
    pub hash_start: u32,
    #[prost(uint32, required, tag = "3")]
    pub hash_end: u32,
    #[prost(string, required, tag = "4")]
    pub segment_topic: ::prost::alloc::string::String,
    #[prost(message, repeated, tag = "5")]
    pub bucket_ranges: ::prost::alloc::vec::Vec<IntRange>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ScalableConsumerAssignment {
    #[prost(uint64, required, tag = "1")]
    pub layout_epoch: u64,
    #[prost(message, repeated, tag = "2")]
    pub segments: ::prost::alloc::vec::Vec<ScalableAssignedSegment>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandScalableTopicSubscribe {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(string, required, tag = "2")]
    pub topic: ::prost::alloc::string::String,
    #[prost(string, required, tag = "3")]
    pub subscription: ::prost::alloc::string::String,
    #[prost(string, required, tag = "4")]
    pub consumer_name: ::prost::alloc::string::String,
    #[prost(uint64, required, tag = "5")]
    pub consumer_id: u64,
    #[prost(enumeration = "ScalableConsumerType", required, tag = "6")]
    pub consumer_type: i32,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandScalableTopicSubscribeResponse {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(enumeration = "ServerError", optional, tag = "2")]
    pub error: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "3")]
    pub message: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(message, optional, tag = "4")]
    pub assignment: ::core::option::Option<ScalableConsumerAssignment>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandScalableTopicAssignmentUpdate {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(message, required, tag = "2")]
    pub assignment: ScalableConsumerAssignment,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandWatchScalableTopics {
    #[prost(uint64, required, tag = "1")]
    pub watch_id: u64,
    #[prost(string, required, tag = "2")]
    pub namespace: ::prost::alloc::string::String,
    #[prost(message, repeated, tag = "3")]
    pub property_filters: ::prost::alloc::vec::Vec<KeyValue>,
    #[prost(string, optional, tag = "4")]
    pub current_hash: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ScalableTopicsSnapshot {
    #[prost(string, repeated, tag = "1")]
    pub topics: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ScalableTopicsDiff {
    #[prost(string, repeated, tag = "1")]
    pub added: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(string, repeated, tag = "2")]
    pub removed: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandWatchScalableTopicsUpdate {
    #[prost(uint64, required, tag = "1")]
    pub watch_id: u64,
    #[prost(enumeration = "ServerError", optional, tag = "4")]
    pub error: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub message: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(oneof = "command_watch_scalable_topics_update::Event", tags = "2, 3")]
    pub event: ::core::option::Option<command_watch_scalable_topics_update::Event>,
}
/// Nested message and enum types in `CommandWatchScalableTopicsUpdate`.
pub mod command_watch_scalable_topics_update {
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Oneof)]
    pub enum Event {
        #[prost(message, tag = "2")]
        Snapshot(super::ScalableTopicsSnapshot),
        #[prost(message, tag = "3")]
        Diff(super::ScalableTopicsDiff),
    }
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandWatchScalableTopicsClose {
    #[prost(uint64, required, tag = "1")]
    pub watch_id: u64,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandWatchTcAssignments {
    #[prost(uint64, required, tag = "1")]
    pub watch_id: u64,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct TcAssignment {
    #[prost(uint64, required, tag = "1")]
    pub tc_id: u64,
    #[prost(string, optional, tag = "2")]
    pub broker_service_url: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "3")]
    pub broker_service_url_tls: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct TcAssignmentsSnapshot {
    #[prost(uint32, required, tag = "1")]
    pub parallelism: u32,
    #[prost(message, repeated, tag = "2")]
    pub assignments: ::prost::alloc::vec::Vec<TcAssignment>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandWatchTcAssignmentsUpdate {
    #[prost(uint64, required, tag = "1")]
    pub watch_id: u64,
    #[prost(message, optional, tag = "2")]
    pub snapshot: ::core::option::Option<TcAssignmentsSnapshot>,
    #[prost(enumeration = "ServerError", optional, tag = "3")]
    pub error: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "4")]
    pub message: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandWatchTcAssignmentsClose {
    #[prost(uint64, required, tag = "1")]
    pub watch_id: u64,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandGetSchema {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(string, required, tag = "2")]
    pub topic: ::prost::alloc::string::String,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub schema_version: ::core::option::Option<::prost::bytes::Bytes>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandGetSchemaResponse {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(enumeration = "ServerError", optional, tag = "2")]
    pub error_code: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "3")]
    pub error_message: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(message, optional, tag = "4")]
    pub schema: ::core::option::Option<Schema>,
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub schema_version: ::core::option::Option<::prost::bytes::Bytes>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandGetOrCreateSchema {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(string, required, tag = "2")]
    pub topic: ::prost::alloc::string::String,
    #[prost(message, required, tag = "3")]
    pub schema: Schema,
    #[prost(string, optional, tag = "4")]
    pub producer_name: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandGetOrCreateSchemaResponse {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(enumeration = "ServerError", optional, tag = "2")]
    pub error_code: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "3")]
    pub error_message: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub schema_version: ::core::option::Option<::prost::bytes::Bytes>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandTcClientConnectRequest {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub tc_id: u64,
    #[prost(bool, optional, tag = "3")]
    pub scalable: ::core::option::Option<bool>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandTcClientConnectResponse {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(enumeration = "ServerError", optional, tag = "2")]
    pub error: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "3")]
    pub message: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandNewTxn {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, optional, tag = "2")]
    pub txn_ttl_millis: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub tc_id: ::core::option::Option<u64>,
    #[prost(bool, optional, tag = "4")]
    pub scalable: ::core::option::Option<bool>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandNewTxnResponse {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, optional, tag = "2")]
    pub txnid_least_bits: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub txnid_most_bits: ::core::option::Option<u64>,
    #[prost(enumeration = "ServerError", optional, tag = "4")]
    pub error: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub message: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandAddPartitionToTxn {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, optional, tag = "2")]
    pub txnid_least_bits: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub txnid_most_bits: ::core::option::Option<u64>,
    #[prost(string, repeated, tag = "4")]
    pub partitions: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(bool, optional, tag = "5")]
    pub scalable: ::core::option::Option<bool>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandAddPartitionToTxnResponse {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, optional, tag = "2")]
    pub txnid_least_bits: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub txnid_most_bits: ::core::option::Option<u64>,
    #[prost(enumeration = "ServerError", optional, tag = "4")]
    pub error: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub message: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct Subscription {
    #[prost(string, required, tag = "1")]
    pub topic: ::prost::alloc::string::String,
    #[prost(string, required, tag = "2")]
    pub subscription: ::prost::alloc::string::String,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CommandAddSubscriptionToTxn {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, optional, tag = "2")]
    pub txnid_least_bits: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub txnid_most_bits: ::core::option::Option<u64>,
    #[prost(message, repeated, tag = "4")]
    pub subscription: ::prost::alloc::vec::Vec<Subscription>,
    #[prost(bool, optional, tag = "5")]
    pub scalable: ::core::option::Option<bool>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandAddSubscriptionToTxnResponse {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, optional, tag = "2")]
    pub txnid_least_bits: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub txnid_most_bits: ::core::option::Option<u64>,
    #[prost(enumeration = "ServerError", optional, tag = "4")]
    pub error: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub message: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandEndTxn {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, optional, tag = "2")]
    pub txnid_least_bits: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub txnid_most_bits: ::core::option::Option<u64>,
    #[prost(enumeration = "TxnAction", optional, tag = "4")]
    pub txn_action: ::core::option::Option<i32>,
    #[prost(bool, optional, tag = "5")]
    pub scalable: ::core::option::Option<bool>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandEndTxnResponse {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, optional, tag = "2")]
    pub txnid_least_bits: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub txnid_most_bits: ::core::option::Option<u64>,
    #[prost(enumeration = "ServerError", optional, tag = "4")]
    pub error: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub message: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandEndTxnOnPartition {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, optional, tag = "2")]
    pub txnid_least_bits: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub txnid_most_bits: ::core::option::Option<u64>,
    #[prost(string, optional, tag = "4")]
    pub topic: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(enumeration = "TxnAction", optional, tag = "5")]
    pub txn_action: ::core::option::Option<i32>,
    #[prost(uint64, optional, tag = "6")]
    pub txnid_least_bits_of_low_watermark: ::core::option::Option<u64>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandEndTxnOnPartitionResponse {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, optional, tag = "2")]
    pub txnid_least_bits: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub txnid_most_bits: ::core::option::Option<u64>,
    #[prost(enumeration = "ServerError", optional, tag = "4")]
    pub error: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub message: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandEndTxnOnSubscription {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, optional, tag = "2")]
    pub txnid_least_bits: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub txnid_most_bits: ::core::option::Option<u64>,
    #[prost(message, optional, tag = "4")]
    pub subscription: ::core::option::Option<Subscription>,
    #[prost(enumeration = "TxnAction", optional, tag = "5")]
    pub txn_action: ::core::option::Option<i32>,
    #[prost(uint64, optional, tag = "6")]
    pub txnid_least_bits_of_low_watermark: ::core::option::Option<u64>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommandEndTxnOnSubscriptionResponse {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, optional, tag = "2")]
    pub txnid_least_bits: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub txnid_most_bits: ::core::option::Option<u64>,
    #[prost(enumeration = "ServerError", optional, tag = "4")]
    pub error: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub message: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum CompressionType {
    None = 0,
    Lz4 = 1,
    Zlib = 2,
    Zstd = 3,
    Snappy = 4,
}
impl CompressionType {
    /// String value of the enum field names used in the ProtoBuf definition.
    ///
    /// The values are not transformed in any way and thus are considered stable
    /// (if the ProtoBuf definition does not change) and safe for programmatic use.
    pub fn as_str_name(&self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Lz4 => "LZ4",
            Self::Zlib => "ZLIB",
            Self::Zstd => "ZSTD",
            Self::Snappy => "SNAPPY",
        }
    }
    /// Creates an enum from field names used in the ProtoBuf definition.
    pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
        match value {
            "NONE" => Some(Self::None),
            "LZ4" => Some(Self::Lz4),
            "ZLIB" => Some(Self::Zlib),
            "ZSTD" => Some(Self::Zstd),
            "SNAPPY" => Some(Self::Snappy),
            _ => None,
        }
    }
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum ProducerAccessMode {
    Shared = 0,
    Exclusive = 1,
    WaitForExclusive = 2,
    ExclusiveWithFencing = 3,
}
impl ProducerAccessMode {
    /// String value of the enum field names used in the ProtoBuf definition.
    ///
    /// The values are not transformed in any way and thus are considered stable
    /// (if the ProtoBuf definition does not change) and safe for programmatic use.
    pub fn as_str_name(&self) -> &'static str {
        match self {
            Self::Shared => "Shared",
            Self::Exclusive => "Exclusive",
            Self::WaitForExclusive => "WaitForExclusive",
            Self::ExclusiveWithFencing => "ExclusiveWithFencing",
        }
    }
    /// Creates an enum from field names used in the ProtoBuf definition.
    pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
        match value {
            "Shared" => Some(Self::Shared),
            "Exclusive" => Some(Self::Exclusive),
            "WaitForExclusive" => Some(Self::WaitForExclusive),
            "ExclusiveWithFencing" => Some(Self::ExclusiveWithFencing),
            _ => None,
        }
    }
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum ServerError {
    UnknownError = 0,
    MetadataError = 1,
    PersistenceError = 2,
    AuthenticationError = 3,
    AuthorizationError = 4,
    ConsumerBusy = 5,
    ServiceNotReady = 6,
    ProducerBlockedQuotaExceededError = 7,
    ProducerBlockedQuotaExceededException = 8,
    ChecksumError = 9,
    UnsupportedVersionError = 10,
    TopicNotFound = 11,
    SubscriptionNotFound = 12,
    ConsumerNotFound = 13,
    TooManyRequests = 14,
    TopicTerminatedError = 15,
    ProducerBusy = 16,
    InvalidTopicName = 17,
    IncompatibleSchema = 18,
    ConsumerAssignError = 19,
    TransactionCoordinatorNotFound = 20,
    InvalidTxnStatus = 21,
    NotAllowedError = 22,
    TransactionConflict = 23,
    TransactionNotFound = 24,
    ProducerFenced = 25,
}
impl ServerError {
    /// String value of the enum field names used in the ProtoBuf definition.
    ///
    /// The values are not transformed in any way and thus are considered stable
    /// (if the ProtoBuf definition does not change) and safe for programmatic use.
    pub fn as_str_name(&self) -> &'static str {
        match self {
            Self::UnknownError => "UnknownError",
            Self::MetadataError => "MetadataError",
            Self::PersistenceError => "PersistenceError",
            Self::AuthenticationError => "AuthenticationError",
            Self::AuthorizationError => "AuthorizationError",
            Self::ConsumerBusy => "ConsumerBusy",
            Self::ServiceNotReady => "ServiceNotReady",
            Self::ProducerBlockedQuotaExceededError => "ProducerBlockedQuotaExceededError",
            Self::ProducerBlockedQuotaExceededException => "ProducerBlockedQuotaExceededException",
            Self::ChecksumError => "ChecksumError",
            Self::UnsupportedVersionError => "UnsupportedVersionError",
            Self::TopicNotFound => "TopicNotFound",
            Self::SubscriptionNotFound => "SubscriptionNotFound",
            Self::ConsumerNotFound => "ConsumerNotFound",
            Self::TooManyRequests => "TooManyRequests",
            Self::TopicTerminatedError => "TopicTerminatedError",
            Self::ProducerBusy => "ProducerBusy",
            Self::InvalidTopicName => "InvalidTopicName",
            Self::IncompatibleSchema => "IncompatibleSchema",
            Self::ConsumerAssignError => "ConsumerAssignError",
            Self::TransactionCoordinatorNotFound => "TransactionCoordinatorNotFound",
            Self::InvalidTxnStatus => "InvalidTxnStatus",
            Self::NotAllowedError => "NotAllowedError",
            Self::TransactionConflict => "TransactionConflict",
            Self::TransactionNotFound => "TransactionNotFound",
            Self::ProducerFenced => "ProducerFenced",
        }
    }
    /// Creates an enum from field names used in the ProtoBuf definition.
    pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
        match value {
            "UnknownError" => Some(Self::UnknownError),
            "MetadataError" => Some(Self::MetadataError),
            "PersistenceError" => Some(Self::PersistenceError),
            "AuthenticationError" => Some(Self::AuthenticationError),
            "AuthorizationError" => Some(Self::AuthorizationError),
            "ConsumerBusy" => Some(Self::ConsumerBusy),
            "ServiceNotReady" => Some(Self::ServiceNotReady),
            "ProducerBlockedQuotaExceededError" => Some(Self::ProducerBlockedQuotaExceededError),
            "ProducerBlockedQuotaExceededException" => Some(Self::ProducerBlockedQuotaExceededException),
            "ChecksumError" => Some(Self::ChecksumError),
            "UnsupportedVersionError" => Some(Self::UnsupportedVersionError),
            "TopicNotFound" => Some(Self::TopicNotFound),
            "SubscriptionNotFound" => Some(Self::SubscriptionNotFound),
            "ConsumerNotFound" => Some(Self::ConsumerNotFound),
            "TooManyRequests" => Some(Self::TooManyRequests),
            "TopicTerminatedError" => Some(Self::TopicTerminatedError),
            "ProducerBusy" => Some(Self::ProducerBusy),
            "InvalidTopicName" => Some(Self::InvalidTopicName),
            "IncompatibleSchema" => Some(Self::IncompatibleSchema),
            "ConsumerAssignError" => Some(Self::ConsumerAssignError),
            "TransactionCoordinatorNotFound" => Some(Self::TransactionCoordinatorNotFound),
            "InvalidTxnStatus" => Some(Self::InvalidTxnStatus),
            "NotAllowedError" => Some(Self::NotAllowedError),
            "TransactionConflict" => Some(Self::TransactionConflict),
            "TransactionNotFound" => Some(Self::TransactionNotFound),
            "ProducerFenced" => Some(Self::ProducerFenced),
            _ => None,
        }
    }
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum AuthMethod {
    None = 0,
    YcaV1 = 1,
    Athens = 2,
}
impl AuthMethod {
    /// String value of the enum field names used in the ProtoBuf definition.
    ///
    /// The values are not transformed in any way and thus are considered stable
    /// (if the ProtoBuf definition does not change) and safe for programmatic use.
    pub fn as_str_name(&self) -> &'static str {
        match self {
            Self::None => "AuthMethodNone",
            Self::YcaV1 => "AuthMethodYcaV1",
            Self::Athens => "AuthMethodAthens",
        }
    }
    /// Creates an enum from field names used in the ProtoBuf definition.
    pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
        match value {
            "AuthMethodNone" => Some(Self::None),
            "AuthMethodYcaV1" => Some(Self::YcaV1),
            "AuthMethodAthens" => Some(Self::Athens),
            _ => None,
        }
    }
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum KeySharedMode {
    AutoSplit = 0,
    Sticky = 1,
}
impl KeySharedMode {
    /// String value of the enum field names used in the ProtoBuf definition.
    ///
    /// The values are not transformed in any way and thus are considered stable
    /// (if the ProtoBuf definition does not change) and safe for programmatic use.
    pub fn as_str_name(&self) -> &'static str {
        match self {
            Self::AutoSplit => "AUTO_SPLIT",
            Self::Sticky => "STICKY",
        }
    }
    /// Creates an enum from field names used in the ProtoBuf definition.
    pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
        match value {
            "AUTO_SPLIT" => Some(Self::AutoSplit),
            "STICKY" => Some(Self::Sticky),
            _ => None,
        }
    }
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum SegmentState {
    Active = 0,
    Sealed = 1,
}
impl SegmentState {
    /// String value of the enum field names used in the ProtoBuf definition.
    ///
    /// The values are not transformed in any way and thus are considered stable
    /// (if the ProtoBuf definition does not change) and safe for programmatic use.
    pub fn as_str_name(&self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::Sealed => "SEALED",
        }
    }
    /// Creates an enum from field names used in the ProtoBuf definition.
    pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
        match value {
            "ACTIVE" => Some(Self::Active),
            "SEALED" => Some(Self::Sealed),
            _ => None,
        }
    }
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum ScalableConsumerType {
    Stream = 0,
    Checkpoint = 1,
}
impl ScalableConsumerType {
    /// String value of the enum field names used in the ProtoBuf definition.
    ///
    /// The values are not transformed in any way and thus are considered stable
    /// (if the ProtoBuf definition does not change) and safe for programmatic use.
    pub fn as_str_name(&self) -> &'static str {
        match self {
            Self::Stream => "STREAM",
            Self::Checkpoint => "CHECKPOINT",
        }
    }
    /// Creates an enum from field names used in the ProtoBuf definition.
    pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
        match value {
            "STREAM" => Some(Self::Stream),
            "CHECKPOINT" => Some(Self::Checkpoint),
            _ => None,
        }
    }
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum TxnAction {
    Commit = 0,
    Abort = 1,
}
impl TxnAction {
    /// String value of the enum field names used in the ProtoBuf definition.
    ///
    /// The values are not transformed in any way and thus are considered stable
    /// (if the ProtoBuf definition does not change) and safe for programmatic use.
    pub fn as_str_name(&self) -> &'static str {
        match self {
            Self::Commit => "COMMIT",
            Self::Abort => "ABORT",
        }
    }
    /// Creates an enum from field names used in the ProtoBuf definition.
    pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
        match value {
            "COMMIT" => Some(Self::Commit),
            "ABORT" => Some(Self::Abort),
            _ => None,
        }
    }
}
