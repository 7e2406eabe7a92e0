//! Protobuf messages of the protocol.

// @generated from proto/tubemq.proto by the test `generated` in tests/rust/golden:
// `FOREBAY_GENERATE=1 cargo test --workspace --test golden generated` writes it again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RpcConnHeader {
    #[prost(int32, required, tag = "1")]
    pub flag: i32,
    #[prost(int64, optional, tag = "2")]
    pub trace_id: ::core::option::Option<i64>,
    #[prost(int64, optional, tag = "3")]
    pub span_id: ::core::option::Option<i64>,
    #[prost(int64, optional, tag = "4")]
    pub parent_id: ::core::option::Option<i64>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RequestHeader {
    #[prost(int32, optional, tag = "1")]
    pub service_type: ::core::option::Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub protocol_ver: ::core::option::Option<i32>,
}
/// timeout is in milliseconds. A server never responds to a request whose timeout is not above zero.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RequestBody {
    #[prost(int32, required, tag = "1")]
    pub method: i32,
    #[prost(int64, optional, tag = "2")]
    pub timeout: ::core::option::Option<i64>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub request: ::core::option::Option<::prost::bytes::Bytes>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ResponseHeader {
    #[prost(enumeration = "Status", required, tag = "1")]
    pub status: i32,
    #[prost(int32, optional, tag = "2")]
    pub service_type: ::core::option::Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub protocol_ver: ::core::option::Option<i32>,
}
/// exception_name is the name of a Java class, stack_trace the text of the exception.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RspExceptionBody {
    #[prost(string, required, tag = "1")]
    pub exception_name: ::prost::alloc::string::String,
    #[prost(string, optional, tag = "2")]
    pub stack_trace: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RspResponseBody {
    #[prost(int32, required, tag = "1")]
    pub method: i32,
    #[prost(bytes = "bytes", required, tag = "2")]
    pub data: ::prost::bytes::Bytes,
}
// ------------------------------------------------------------------------------ client and broker

/// The spelling is the protocol's. check_sum: CRC-32 of pay_load_data without its highest bit.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct TransferedMessage {
    #[prost(int64, required, tag = "1")]
    pub message_id: i64,
    #[prost(int32, required, tag = "2")]
    pub check_sum: i32,
    #[prost(bytes = "bytes", required, tag = "3")]
    pub pay_load_data: ::prost::bytes::Bytes,
    #[prost(int32, required, tag = "4")]
    pub flag: i32,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct AuthorizedInfo {
    #[prost(int64, required, tag = "1")]
    pub visit_authorized_token: i64,
    #[prost(string, optional, tag = "2")]
    pub auth_authorized_token: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SendMessageRequestP2b {
    #[prost(string, required, tag = "1")]
    pub client_id: ::prost::alloc::string::String,
    #[prost(string, required, tag = "2")]
    pub topic_name: ::prost::alloc::string::String,
    #[prost(int32, required, tag = "3")]
    pub partition_id: i32,
    #[prost(bytes = "bytes", required, tag = "4")]
    pub data: ::prost::bytes::Bytes,
    #[prost(int32, required, tag = "5")]
    pub flag: i32,
    #[prost(int32, required, tag = "6")]
    pub check_sum: i32,
    #[prost(int32, required, tag = "7")]
    pub sent_addr: i32,
    #[prost(string, optional, tag = "8")]
    pub msg_type: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "9")]
    pub msg_time: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(message, optional, tag = "10")]
    pub auth_info: ::core::option::Option<AuthorizedInfo>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SendMessageResponseB2p {
    #[prost(bool, required, tag = "1")]
    pub success: bool,
    #[prost(int32, required, tag = "2")]
    pub err_code: i32,
    #[prost(string, required, tag = "3")]
    pub err_msg: ::prost::alloc::string::String,
    #[prost(bool, optional, tag = "4")]
    pub require_auth: ::core::option::Option<bool>,
    #[prost(int64, optional, tag = "5")]
    pub message_id: ::core::option::Option<i64>,
    #[prost(int64, optional, tag = "6")]
    pub append_time: ::core::option::Option<i64>,
    #[prost(int64, optional, tag = "7")]
    pub append_offset: ::core::option::Option<i64>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RegisterRequestC2b {
    #[prost(int32, required, tag = "1")]
    pub op_type: i32,
    #[prost(string, required, tag = "2")]
    pub client_id: ::prost::alloc::string::String,
    #[prost(string, required, tag = "3")]
    pub group_name: ::prost::alloc::string::String,
    #[prost(string, required, tag = "4")]
    pub topic_name: ::prost::alloc::string::String,
    #[prost(int32, required, tag = "5")]
    pub partition_id: i32,
    #[prost(int32, required, tag = "6")]
    pub read_status: i32,
    #[prost(string, repeated, tag = "7")]
    pub filter_cond_str: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(int64, optional, tag = "8")]
    pub curr_offset: ::core::option::Option<i64>,
    #[prost(string, optional, tag = "9")]
    pub session_key: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(int64, optional, tag = "10")]
    pub session_time: ::core::option::Option<i64>,
    #[prost(int64, optional, tag = "11")]
    pub ssd_store_id: ::core::option::Option<i64>,
    #[prost(int32, optional, tag = "12")]
    pub qry_priority_id: ::core::option::Option<i32>,
    #[prost(message, optional, tag = "13")]
    pub auth_info: ::core::option::Option<AuthorizedInfo>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RegisterResponseB2c {
    #[prost(bool, required, tag = "1")]
    pub success: bool,
    #[prost(int32, required, tag = "2")]
    pub err_code: i32,
    #[prost(string, required, tag = "3")]
    pub err_msg: ::prost::alloc::string::String,
    #[prost(int64, optional, tag = "4")]
    pub curr_offset: ::core::option::Option<i64>,
    #[prost(int64, optional, tag = "5")]
    pub max_offset: ::core::option::Option<i64>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct HeartBeatRequestC2b {
    #[prost(string, required, tag = "1")]
    pub client_id: ::prost::alloc::string::String,
    #[prost(string, required, tag = "2")]
    pub group_name: ::prost::alloc::string::String,
    #[prost(int32, required, tag = "3")]
    pub read_status: i32,
    #[prost(string, repeated, tag = "4")]
    pub partition_info: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(int64, optional, tag = "5")]
    pub ssd_store_id: ::core::option::Option<i64>,
    #[prost(int32, optional, tag = "6")]
    pub qry_priority_id: ::core::option::Option<i32>,
    #[prost(message, optional, tag = "7")]
    pub auth_info: ::core::option::Option<AuthorizedInfo>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct HeartBeatResponseB2c {
    #[prost(bool, required, tag = "1")]
    pub success: bool,
    #[prost(int32, required, tag = "2")]
    pub err_code: i32,
    #[prost(string, required, tag = "3")]
    pub err_msg: ::prost::alloc::string::String,
    #[prost(bool, optional, tag = "4")]
    pub has_part_failure: ::core::option::Option<bool>,
    #[prost(string, repeated, tag = "5")]
    pub failure_info: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(bool, optional, tag = "6")]
    pub require_auth: ::core::option::Option<bool>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct GetMessageRequestC2b {
    #[prost(string, required, tag = "1")]
    pub client_id: ::prost::alloc::string::String,
    #[prost(int32, required, tag = "2")]
    pub partition_id: i32,
    #[prost(string, required, tag = "3")]
    pub group_name: ::prost::alloc::string::String,
    #[prost(string, required, tag = "4")]
    pub topic_name: ::prost::alloc::string::String,
    #[prost(bool, optional, tag = "5")]
    pub last_pack_consumed: ::core::option::Option<bool>,
    #[prost(bool, optional, tag = "6")]
    pub manual_commit_offset: ::core::option::Option<bool>,
    #[prost(bool, optional, tag = "7")]
    pub esc_flow_ctrl: ::core::option::Option<bool>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct GetMessageResponseB2c {
    #[prost(bool, required, tag = "1")]
    pub success: bool,
    #[prost(int32, required, tag = "2")]
    pub err_code: i32,
    #[prost(string, optional, tag = "3")]
    pub err_msg: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(message, repeated, tag = "4")]
    pub messages: ::prost::alloc::vec::Vec<TransferedMessage>,
    #[prost(int64, optional, tag = "5")]
    pub curr_offset: ::core::option::Option<i64>,
    #[prost(int32, optional, tag = "6")]
    pub min_limit_time: ::core::option::Option<i32>,
    #[prost(bool, optional, tag = "7")]
    pub esc_flow_ctrl: ::core::option::Option<bool>,
    #[prost(int64, optional, tag = "8")]
    pub curr_data_dlt: ::core::option::Option<i64>,
    #[prost(bool, optional, tag = "9")]
    pub require_slow: ::core::option::Option<bool>,
    #[prost(int64, optional, tag = "10")]
    pub max_offset: ::core::option::Option<i64>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommitOffsetRequestC2b {
    #[prost(string, required, tag = "1")]
    pub client_id: ::prost::alloc::string::String,
    #[prost(string, required, tag = "2")]
    pub topic_name: ::prost::alloc::string::String,
    #[prost(int32, required, tag = "3")]
    pub partition_id: i32,
    #[prost(string, required, tag = "4")]
    pub group_name: ::prost::alloc::string::String,
    #[prost(bool, optional, tag = "5")]
    pub last_pack_consumed: ::core::option::Option<bool>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CommitOffsetResponseB2c {
    #[prost(bool, required, tag = "1")]
    pub success: bool,
    #[prost(int32, required, tag = "2")]
    pub err_code: i32,
    #[prost(string, required, tag = "3")]
    pub err_msg: ::prost::alloc::string::String,
    #[prost(int64, optional, tag = "4")]
    pub curr_offset: ::core::option::Option<i64>,
    #[prost(int64, optional, tag = "5")]
    pub max_offset: ::core::option::Option<i64>,
}
// ------------------------------------------------------------------------------ client, broker and master

#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct EventProto {
    #[prost(int64, optional, tag = "1")]
    pub rebalance_id: ::core::option::Option<i64>,
    #[prost(int32, optional, tag = "2")]
    pub op_type: ::core::option::Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub status: ::core::option::Option<i32>,
    #[prost(string, repeated, tag = "4")]
    pub subscribe_info: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct EnableBrokerFunInfo {
    #[prost(bool, required, tag = "1")]
    pub enable_consume_authenticate: bool,
    #[prost(bool, required, tag = "2")]
    pub enable_consume_authorize: bool,
    #[prost(bool, required, tag = "3")]
    pub enable_produce_authenticate: bool,
    #[prost(bool, required, tag = "4")]
    pub enable_produce_authorize: bool,
    #[prost(bool, optional, tag = "5")]
    pub enable_visit_token_check: ::core::option::Option<bool>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct AuthenticateInfo {
    #[prost(string, required, tag = "1")]
    pub user_name: ::prost::alloc::string::String,
    #[prost(int64, required, tag = "2")]
    pub timestamp: i64,
    #[prost(int32, required, tag = "3")]
    pub nonce: i32,
    #[prost(string, required, tag = "4")]
    pub oth_params: ::prost::alloc::string::String,
    #[prost(string, required, tag = "5")]
    pub signature: ::prost::alloc::string::String,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct MasterCertificateInfo {
    #[prost(message, optional, tag = "1")]
    pub auth_info: ::core::option::Option<AuthenticateInfo>,
    #[prost(string, optional, tag = "2")]
    pub authorized_token: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct MasterAuthorizedInfo {
    #[prost(int64, required, tag = "1")]
    pub visit_authorized_token: i64,
    #[prost(string, optional, tag = "2")]
    pub auth_authorized_token: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct MasterBrokerAuthorizedInfo {
    #[prost(string, required, tag = "1")]
    pub visit_authorized_token: ::prost::alloc::string::String,
    #[prost(string, optional, tag = "2")]
    pub auth_authorized_token: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ApprovedClientConfig {
    #[prost(int64, required, tag = "1")]
    pub config_id: i64,
    #[prost(int32, optional, tag = "2")]
    pub max_msg_size: ::core::option::Option<i32>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ClusterConfig {
    #[prost(int64, required, tag = "1")]
    pub config_id: i64,
    #[prost(int32, optional, tag = "2")]
    pub max_msg_size: ::core::option::Option<i32>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RegisterRequestP2m {
    #[prost(string, required, tag = "1")]
    pub client_id: ::prost::alloc::string::String,
    #[prost(string, repeated, tag = "2")]
    pub topic_list: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(int64, required, tag = "3")]
    pub broker_check_sum: i64,
    #[prost(string, required, tag = "4")]
    pub host_name: ::prost::alloc::string::String,
    #[prost(message, optional, tag = "5")]
    pub auth_info: ::core::option::Option<MasterCertificateInfo>,
    #[prost(string, optional, tag = "6")]
    pub jdk_version: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(message, optional, tag = "7")]
    pub appd_config: ::core::option::Option<ApprovedClientConfig>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RegisterResponseM2p {
    #[prost(bool, required, tag = "1")]
    pub success: bool,
    #[prost(int32, required, tag = "2")]
    pub err_code: i32,
    #[prost(string, required, tag = "3")]
    pub err_msg: ::prost::alloc::string::String,
    #[prost(int64, required, tag = "4")]
    pub broker_check_sum: i64,
    #[prost(string, repeated, tag = "5")]
    pub broker_infos: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(message, optional, tag = "6")]
    pub authorized_info: ::core::option::Option<MasterAuthorizedInfo>,
    #[prost(message, optional, tag = "7")]
    pub appd_config: ::core::option::Option<ApprovedClientConfig>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct HeartRequestP2m {
    #[prost(string, required, tag = "1")]
    pub client_id: ::prost::alloc::string::String,
    #[prost(int64, required, tag = "2")]
    pub broker_check_sum: i64,
    #[prost(string, required, tag = "3")]
    pub host_name: ::prost::alloc::string::String,
    #[prost(string, repeated, tag = "4")]
    pub topic_list: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(message, optional, tag = "5")]
    pub auth_info: ::core::option::Option<MasterCertificateInfo>,
    #[prost(message, optional, tag = "6")]
    pub appd_config: ::core::option::Option<ApprovedClientConfig>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct HeartResponseM2p {
    #[prost(bool, required, tag = "1")]
    pub success: bool,
    #[prost(int32, required, tag = "2")]
    pub err_code: i32,
    #[prost(string, required, tag = "3")]
    pub err_msg: ::prost::alloc::string::String,
    #[prost(int64, required, tag = "4")]
    pub broker_check_sum: i64,
    #[prost(string, repeated, tag = "5")]
    pub topic_infos: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(string, repeated, tag = "6")]
    pub broker_infos: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(bool, optional, tag = "7")]
    pub require_auth: ::core::option::Option<bool>,
    #[prost(message, optional, tag = "8")]
    pub authorized_info: ::core::option::Option<MasterAuthorizedInfo>,
    #[prost(message, optional, tag = "9")]
    pub appd_config: ::core::option::Option<ApprovedClientConfig>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CloseRequestP2m {
    #[prost(string, required, tag = "1")]
    pub client_id: ::prost::alloc::string::String,
    #[prost(message, optional, tag = "2")]
    pub auth_info: ::core::option::Option<MasterCertificateInfo>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CloseResponseM2p {
    #[prost(bool, required, tag = "1")]
    pub success: bool,
    #[prost(int32, required, tag = "2")]
    pub err_code: i32,
    #[prost(string, required, tag = "3")]
    pub err_msg: ::prost::alloc::string::String,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RegisterRequestC2m {
    #[prost(string, required, tag = "1")]
    pub client_id: ::prost::alloc::string::String,
    #[prost(string, required, tag = "2")]
    pub group_name: ::prost::alloc::string::String,
    #[prost(string, required, tag = "3")]
    pub host_name: ::prost::alloc::string::String,
    #[prost(string, repeated, tag = "4")]
    pub topic_list: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(string, repeated, tag = "5")]
    pub subscribe_info: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(string, repeated, tag = "6")]
    pub topic_condition: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(bool, optional, tag = "7")]
    pub require_bound: ::core::option::Option<bool>,
    #[prost(int64, optional, tag = "8")]
    pub session_time: ::core::option::Option<i64>,
    #[prost(string, optional, tag = "9")]
    pub session_key: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(int32, optional, tag = "10")]
    pub total_count: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "11")]
    pub required_partition: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(bool, optional, tag = "12")]
    pub not_allocated: ::core::option::Option<bool>,
    #[prost(bool, optional, tag = "13")]
    pub select_big: ::core::option::Option<bool>,
    #[prost(int64, optional, tag = "14")]
    pub group_flow_check_id: ::core::option::Option<i64>,
    #[prost(int64, optional, tag = "15")]
    pub def_flow_check_id: ::core::option::Option<i64>,
    #[prost(int64, optional, tag = "16")]
    pub ssd_store_id: ::core::option::Option<i64>,
    #[prost(int32, optional, tag = "17")]
    pub qry_priority_id: ::core::option::Option<i32>,
    #[prost(message, optional, tag = "18")]
    pub auth_info: ::core::option::Option<MasterCertificateInfo>,
    #[prost(string, optional, tag = "19")]
    pub jdk_version: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RegisterResponseM2c {
    #[prost(bool, required, tag = "1")]
    pub success: bool,
    #[prost(int32, required, tag = "2")]
    pub err_code: i32,
    #[prost(string, required, tag = "3")]
    pub err_msg: ::prost::alloc::string::String,
    #[prost(string, repeated, tag = "4")]
    pub topic_info: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(bool, optional, tag = "5")]
    pub not_allocated: ::core::option::Option<bool>,
    #[prost(int64, optional, tag = "6")]
    pub def_flow_check_id: ::core::option::Option<i64>,
    #[prost(string, optional, tag = "7")]
    pub def_flow_control_info: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(int64, optional, tag = "8")]
    pub group_flow_check_id: ::core::option::Option<i64>,
    #[prost(string, optional, tag = "9")]
    pub group_flow_control_info: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(int64, optional, tag = "10")]
    pub ssd_store_id: ::core::option::Option<i64>,
    #[prost(int32, optional, tag = "11")]
    pub qry_priority_id: ::core::option::Option<i32>,
    #[prost(message, optional, tag = "12")]
    pub authorized_info: ::core::option::Option<MasterAuthorizedInfo>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct HeartRequestC2m {
    #[prost(string, required, tag = "1")]
    pub client_id: ::prost::alloc::string::String,
    #[prost(string, required, tag = "2")]
    pub group_name: ::prost::alloc::string::String,
    #[prost(string, repeated, tag = "3")]
    pub subscribe_info: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(bool, required, tag = "4")]
    pub report_subscribe_info: bool,
    #[prost(message, optional, tag = "5")]
    pub event: ::core::option::Option<EventProto>,
    #[prost(int64, optional, tag = "6")]
    pub def_flow_check_id: ::core::option::Option<i64>,
    #[prost(int64, optional, tag = "7")]
    pub group_flow_check_id: ::core::option::Option<i64>,
    #[prost(int64, optional, tag = "8")]
    pub ssd_store_id: ::core::option::Option<i64>,
    #[prost(int32, optional, tag = "9")]
    pub qry_priority_id: ::core::option::Option<i32>,
    #[prost(message, optional, tag = "10")]
    pub auth_info: ::core::option::Option<MasterCertificateInfo>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct HeartResponseM2c {
    #[prost(bool, required, tag = "1")]
    pub success: bool,
    #[prost(int32, required, tag = "2")]
    pub err_code: i32,
    #[prost(string, required, tag = "3")]
    pub err_msg: ::prost::alloc::string::String,
    #[prost(message, optional, tag = "4")]
    pub event: ::core::option::Option<EventProto>,
    #[prost(bool, optional, tag = "5")]
    pub not_allocated: ::core::option::Option<bool>,
    #[prost(int64, optional, tag = "6")]
    pub def_flow_check_id: ::core::option::Option<i64>,
    #[prost(string, optional, tag = "7")]
    pub def_flow_control_info: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(int64, optional, tag = "8")]
    pub group_flow_check_id: ::core::option::Option<i64>,
    #[prost(string, optional, tag = "9")]
    pub group_flow_control_info: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(int64, optional, tag = "10")]
    pub ssd_store_id: ::core::option::Option<i64>,
    #[prost(int32, optional, tag = "11")]
    pub qry_priority_id: ::core::option::Option<i32>,
    #[prost(bool, optional, tag = "12")]
    pub require_auth: ::core::option::Option<bool>,
    #[prost(message, optional, tag = "13")]
    pub authorized_info: ::core::option::Option<MasterAuthorizedInfo>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CloseRequestC2m {
    #[prost(string, required, tag = "1")]
    pub client_id: ::prost::alloc::string::String,
    #[prost(string, required, tag = "2")]
    pub group_name: ::prost::alloc::string::String,
    #[prost(message, optional, tag = "3")]
    pub auth_info: ::core::option::Option<MasterCertificateInfo>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CloseResponseM2c {
    #[prost(bool, required, tag = "1")]
    pub success: bool,
    #[prost(int32, required, tag = "2")]
    pub err_code: i32,
    #[prost(string, required, tag = "3")]
    pub err_msg: ::prost::alloc::string::String,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RegisterRequestB2m {
    #[prost(string, required, tag = "1")]
    pub client_id: ::prost::alloc::string::String,
    #[prost(bool, required, tag = "2")]
    pub broker_online: bool,
    #[prost(bool, required, tag = "3")]
    pub enable_tls: bool,
    #[prost(int32, required, tag = "4")]
    pub read_status_rpt: i32,
    #[prost(int32, required, tag = "5")]
    pub write_status_rpt: i32,
    #[prost(int64, required, tag = "6")]
    pub cur_broker_conf_id: i64,
    #[prost(int32, required, tag = "7")]
    pub conf_check_sum_id: i32,
    #[prost(string, required, tag = "8")]
    pub broker_default_conf_info: ::prost::alloc::string::String,
    #[prost(string, repeated, tag = "9")]
    pub broker_topic_set_conf_info: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(int64, optional, tag = "10")]
    pub ssd_store_id: ::core::option::Option<i64>,
    #[prost(int64, optional, tag = "11")]
    pub flow_check_id: ::core::option::Option<i64>,
    #[prost(int32, optional, tag = "12")]
    pub qry_priority_id: ::core::option::Option<i32>,
    #[prost(int32, optional, tag = "13")]
    pub tls_port: ::core::option::Option<i32>,
    #[prost(message, optional, tag = "14")]
    pub auth_info: ::core::option::Option<MasterCertificateInfo>,
    #[prost(message, optional, tag = "15")]
    pub cls_config: ::core::option::Option<ClusterConfig>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RegisterResponseM2b {
    #[prost(bool, required, tag = "1")]
    pub success: bool,
    #[prost(int32, required, tag = "2")]
    pub err_code: i32,
    #[prost(string, required, tag = "3")]
    pub err_msg: ::prost::alloc::string::String,
    #[prost(bool, required, tag = "4")]
    pub stop_read: bool,
    #[prost(bool, required, tag = "5")]
    pub stop_write: bool,
    #[prost(bool, required, tag = "6")]
    pub take_conf_info: bool,
    #[prost(message, optional, tag = "7")]
    pub enable_broker_info: ::core::option::Option<EnableBrokerFunInfo>,
    #[prost(int64, optional, tag = "8")]
    pub cur_broker_conf_id: ::core::option::Option<i64>,
    #[prost(int32, optional, tag = "9")]
    pub conf_check_sum_id: ::core::option::Option<i32>,
    #[prost(string, optional, tag = "10")]
    pub broker_default_conf_info: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, repeated, tag = "11")]
    pub broker_topic_set_conf_info: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(int64, optional, tag = "12")]
    pub ssd_store_id: ::core::option::Option<i64>,
    #[prost(int64, optional, tag = "13")]
    pub flow_check_id: ::core::option::Option<i64>,
    #[prost(string, optional, tag = "14")]
    pub flow_control_info: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(int32, optional, tag = "15")]
    pub qry_priority_id: ::core::option::Option<i32>,
    #[prost(message, optional, tag = "16")]
    pub authorized_info: ::core::option::Option<MasterAuthorizedInfo>,
    #[prost(message, optional, tag = "17")]
    pub broker_authorized_info: ::core::option::Option<MasterBrokerAuthorizedInfo>,
    #[prost(message, optional, tag = "18")]
    pub cls_config: ::core::option::Option<ClusterConfig>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct HeartRequestB2m {
    #[prost(string, required, tag = "1")]
    pub broker_id: ::prost::alloc::string::String,
    #[prost(bool, required, tag = "2")]
    pub broker_online: bool,
    #[prost(int32, required, tag = "3")]
    pub read_status_rpt: i32,
    #[prost(int32, required, tag = "4")]
    pub write_status_rpt: i32,
    #[prost(int64, required, tag = "5")]
    pub cur_broker_conf_id: i64,
    #[prost(int32, required, tag = "6")]
    pub conf_check_sum_id: i32,
    #[prost(bool, required, tag = "7")]
    pub take_conf_info: bool,
    #[prost(bool, required, tag = "8")]
    pub take_removed_topic_info: bool,
    #[prost(string, optional, tag = "9")]
    pub broker_default_conf_info: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, repeated, tag = "10")]
    pub broker_topic_set_conf_info: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(string, repeated, tag = "11")]
    pub removed_topics_info: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(int64, optional, tag = "12")]
    pub ssd_store_id: ::core::option::Option<i64>,
    #[prost(int64, optional, tag = "13")]
    pub flow_check_id: ::core::option::Option<i64>,
    #[prost(int32, optional, tag = "14")]
    pub qry_priority_id: ::core::option::Option<i32>,
    #[prost(message, optional, tag = "15")]
    pub auth_info: ::core::option::Option<MasterCertificateInfo>,
    #[prost(message, optional, tag = "16")]
    pub cls_config: ::core::option::Option<ClusterConfig>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct HeartResponseM2b {
    #[prost(bool, required, tag = "1")]
    pub success: bool,
    #[prost(int32, required, tag = "2")]
    pub err_code: i32,
    #[prost(string, required, tag = "3")]
    pub err_msg: ::prost::alloc::string::String,
    #[prost(bool, required, tag = "4")]
    pub stop_read: bool,
    #[prost(bool, required, tag = "5")]
    pub stop_write: bool,
    #[prost(int64, required, tag = "6")]
    pub cur_broker_conf_id: i64,
    #[prost(int32, required, tag = "7")]
    pub conf_check_sum_id: i32,
    #[prost(bool, required, tag = "8")]
    pub need_report_data: bool,
    #[prost(bool, required, tag = "9")]
    pub take_conf_info: bool,
    #[prost(bool, required, tag = "10")]
    pub take_remove_topic_info: bool,
    #[prost(string, optional, tag = "11")]
    pub broker_default_conf_info: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, repeated, tag = "12")]
    pub broker_topic_set_conf_info: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(string, repeated, tag = "13")]
    pub remove_topic_conf_info: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(int64, optional, tag = "14")]
    pub ssd_store_id: ::core::option::Option<i64>,
    #[prost(int64, optional, tag = "15")]
    pub flow_check_id: ::core::option::Option<i64>,
    #[prost(string, optional, tag = "16")]
    pub flow_control_info: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(int32, optional, tag = "17")]
    pub qry_priority_id: ::core::option::Option<i32>,
    #[prost(message, optional, tag = "18")]
    pub authorized_info: ::core::option::Option<MasterAuthorizedInfo>,
    #[prost(message, optional, tag = "19")]
    pub broker_authorized_info: ::core::option::Option<MasterBrokerAuthorizedInfo>,
    #[prost(message, optional, tag = "20")]
    pub cls_config: ::core::option::Option<ClusterConfig>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CloseRequestB2m {
    #[prost(string, required, tag = "1")]
    pub broker_id: ::prost::alloc::string::String,
    #[prost(message, optional, tag = "2")]
    pub auth_info: ::core::option::Option<MasterCertificateInfo>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CloseResponseM2b {
    #[prost(bool, required, tag = "1")]
    pub success: bool,
    #[prost(int32, required, tag = "2")]
    pub err_code: i32,
    #[prost(string, required, tag = "3")]
    pub err_msg: ::prost::alloc::string::String,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ClientSubRepInfo {
    #[prost(int64, required, tag = "1")]
    pub broker_config_id: i64,
    #[prost(int64, required, tag = "2")]
    pub topic_meta_info_id: i64,
    #[prost(int64, optional, tag = "3")]
    pub lst_assigned_time: ::core::option::Option<i64>,
    #[prost(bool, optional, tag = "4")]
    pub report_sub_info: ::core::option::Option<bool>,
    #[prost(string, repeated, tag = "5")]
    pub part_sub_info: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct OpsTaskInfo {
    #[prost(int64, optional, tag = "1")]
    pub group_flow_check_id: ::core::option::Option<i64>,
    #[prost(int64, optional, tag = "2")]
    pub def_flow_check_id: ::core::option::Option<i64>,
    #[prost(int32, optional, tag = "3")]
    pub qry_priority_id: ::core::option::Option<i32>,
    #[prost(int64, optional, tag = "4")]
    pub csm_frm_max_offset_ctrl_id: ::core::option::Option<i64>,
    #[prost(bool, optional, tag = "5")]
    pub require_auth: ::core::option::Option<bool>,
    #[prost(string, optional, tag = "6")]
    pub def_flow_control_info: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(string, optional, tag = "7")]
    pub group_flow_control_info: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RegisterRequestC2mv2 {
    #[prost(string, required, tag = "1")]
    pub client_id: ::prost::alloc::string::String,
    #[prost(string, required, tag = "2")]
    pub group_name: ::prost::alloc::string::String,
    #[prost(string, required, tag = "3")]
    pub host_name: ::prost::alloc::string::String,
    #[prost(int32, required, tag = "4")]
    pub source_count: i32,
    #[prost(int32, required, tag = "5")]
    pub node_id: i32,
    #[prost(string, repeated, tag = "6")]
    pub topic_list: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(string, repeated, tag = "7")]
    pub topic_condition: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(message, optional, tag = "8")]
    pub sub_rep_info: ::core::option::Option<ClientSubRepInfo>,
    #[prost(message, optional, tag = "9")]
    pub ops_task_info: ::core::option::Option<OpsTaskInfo>,
    #[prost(message, optional, tag = "10")]
    pub auth_info: ::core::option::Option<MasterCertificateInfo>,
    #[prost(string, optional, tag = "11")]
    pub jdk_version: ::core::option::Option<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RegisterResponseM2cv2 {
    #[prost(int32, required, tag = "1")]
    pub err_code: i32,
    #[prost(string, required, tag = "2")]
    pub err_msg: ::prost::alloc::string::String,
    #[prost(int64, optional, tag = "3")]
    pub broker_config_id: ::core::option::Option<i64>,
    #[prost(string, repeated, tag = "4")]
    pub broker_config_list: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(message, optional, tag = "5")]
    pub ops_task_info: ::core::option::Option<OpsTaskInfo>,
    #[prost(message, optional, tag = "6")]
    pub authorized_info: ::core::option::Option<MasterAuthorizedInfo>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct HeartRequestC2mv2 {
    #[prost(string, required, tag = "1")]
    pub client_id: ::prost::alloc::string::String,
    #[prost(string, required, tag = "2")]
    pub group_name: ::prost::alloc::string::String,
    #[prost(message, optional, tag = "3")]
    pub sub_rep_info: ::core::option::Option<ClientSubRepInfo>,
    #[prost(message, optional, tag = "4")]
    pub ops_task_info: ::core::option::Option<OpsTaskInfo>,
    #[prost(message, optional, tag = "5")]
    pub auth_info: ::core::option::Option<MasterCertificateInfo>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct HeartResponseM2cv2 {
    #[prost(int32, required, tag = "1")]
    pub err_code: i32,
    #[prost(string, required, tag = "2")]
    pub err_msg: ::prost::alloc::string::String,
    #[prost(int64, optional, tag = "3")]
    pub broker_config_id: ::core::option::Option<i64>,
    #[prost(string, repeated, tag = "4")]
    pub broker_config_list: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(int64, optional, tag = "5")]
    pub topic_meta_info_id: ::core::option::Option<i64>,
    #[prost(string, repeated, tag = "6")]
    pub topic_meta_info_list: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(message, optional, tag = "7")]
    pub ops_task_info: ::core::option::Option<OpsTaskInfo>,
    #[prost(message, optional, tag = "8")]
    pub authorized_info: ::core::option::Option<MasterAuthorizedInfo>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct GetPartMetaRequestC2m {
    #[prost(string, required, tag = "1")]
    pub client_id: ::prost::alloc::string::String,
    #[prost(string, required, tag = "2")]
    pub group_name: ::prost::alloc::string::String,
    #[prost(int64, required, tag = "3")]
    pub broker_config_id: i64,
    #[prost(int64, required, tag = "4")]
    pub topic_meta_info_id: i64,
    #[prost(message, optional, tag = "5")]
    pub auth_info: ::core::option::Option<MasterCertificateInfo>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct GetPartMetaResponseM2c {
    #[prost(int32, required, tag = "1")]
    pub err_code: i32,
    #[prost(string, required, tag = "2")]
    pub err_msg: ::prost::alloc::string::String,
    #[prost(int64, optional, tag = "3")]
    pub broker_config_id: ::core::option::Option<i64>,
    #[prost(int64, optional, tag = "4")]
    pub topic_meta_info_id: ::core::option::Option<i64>,
    #[prost(string, repeated, tag = "5")]
    pub topic_meta_info_list: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(string, repeated, tag = "6")]
    pub broker_config_list: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
}
// ------------------------------------------------------------------------------ envelope of each frame

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum Status {
    Success = 0,
    Error = 1,
    Fatal = 2,
}
impl Status {
    /// String value of the enum field names used in the ProtoBuf definition.
    ///
    /// The values are not transformed in any way and thus are considered stable
    /// (if the ProtoBuf definition does not change) and safe for programmatic use.
    pub fn as_str_name(&self) -> &'static str {
        match self {
            Self::Success => "SUCCESS",
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
        }
    }
    /// Creates an enum from field names used in the ProtoBuf definition.
    pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
        match value {
            "SUCCESS" => Some(Self::Success),
            "ERROR" => Some(Self::Error),
            "FATAL" => Some(Self::Fatal),
            _ => None,
        }
    }
}
