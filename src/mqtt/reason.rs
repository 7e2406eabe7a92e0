//! Reason codes of MQTT 5 (2.4). The return codes of MQTT 3 are mapped to them, so that the layers
//! above deal with a single set.

use std::fmt;

use crate::kind::Kind;
use crate::{QoS, Version};
use forebay_base::error::{Error, ErrorKind};

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal, $text:literal, $kind:ident;)+) => {
        /// A reason code. Values below 0x80 mean success.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Reason { $($(#[doc = $doc])+ $name = $code,)+ }

        impl Reason {
            /// All reason codes.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Looks up a reason by its code.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$name),)+ _ => None }
            }

            /// Name of the reason in the standard.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// Kind of the error that a refusal with this reason becomes.
            pub const fn kind(self) -> ErrorKind {
                match self { $(Self::$name => ErrorKind::$kind,)+ }
            }
        }
    };
}

reasons! {
    /// Success, normal disconnection, or QoS 0 granted.
    Success = 0x00, "success", Unknown;
    /// QoS 1 granted.
    GrantedQoS1 = 0x01, "granted QoS 1", Unknown;
    /// QoS 2 granted.
    GrantedQoS2 = 0x02, "granted QoS 2", Unknown;
    /// The client disconnects and asks for its will to be published.
    DisconnectWithWill = 0x04, "disconnect with will message", Unknown;
    /// The message was accepted but there are no matching subscribers.
    NoMatchingSubscribers = 0x10, "no matching subscribers", Unknown;
    /// The subscription to be removed did not exist.
    NoSubscriptionExisted = 0x11, "no subscription existed", Unknown;
    /// The authentication continues with another step.
    ContinueAuthentication = 0x18, "continue authentication", Unknown;
    /// The client starts a re-authentication.
    ReAuthenticate = 0x19, "re-authenticate", Unknown;
    /// No specific reason was given.
    Unspecified = 0x80, "unspecified error", Unknown;
    /// The packet cannot be parsed.
    MalformedPacket = 0x81, "malformed packet", Protocol;
    /// The packet is not permitted at this point or in this form.
    ProtocolError = 0x82, "protocol error", Protocol;
    /// The packet is valid but the receiver does not accept it.
    ImplementationSpecific = 0x83, "implementation specific error", NotAllowed;
    /// The server does not support the protocol version.
    UnsupportedProtocolVersion = 0x84, "unsupported protocol version", UnsupportedVersion;
    /// The client identifier is not allowed.
    ClientIdentifierNotValid = 0x85, "client identifier not valid", InvalidArgument;
    /// The user name or password is wrong.
    BadUserNameOrPassword = 0x86, "bad user name or password", Authentication;
    /// The client is not authorised for the operation.
    NotAuthorized = 0x87, "not authorized", Authorization;
    /// The server is unavailable.
    ServerUnavailable = 0x88, "server unavailable", ServiceNotReady;
    /// The server is busy.
    ServerBusy = 0x89, "server busy", ServiceNotReady;
    /// The client is banned.
    Banned = 0x8A, "banned", Authorization;
    /// The server is shutting down.
    ServerShuttingDown = 0x8B, "server shutting down", ServiceNotReady;
    /// The authentication method is unsupported or differs from the current one.
    BadAuthenticationMethod = 0x8C, "bad authentication method", Authentication;
    /// No packet was received for 1.5 times the keep-alive.
    KeepAliveTimeout = 0x8D, "keep alive timeout", Disconnected;
    /// Another connection uses the client identifier.
    SessionTakenOver = 0x8E, "session taken over", SessionTakenOver;
    /// The topic filter is invalid.
    TopicFilterInvalid = 0x8F, "topic filter invalid", InvalidTopic;
    /// The topic name is invalid.
    TopicNameInvalid = 0x90, "topic name invalid", InvalidTopic;
    /// The packet identifier is already in use.
    PacketIdentifierInUse = 0x91, "packet identifier in use", Protocol;
    /// The packet identifier is unknown.
    PacketIdentifierNotFound = 0x92, "packet identifier not found", Protocol;
    /// The sender exceeded the receive maximum.
    ReceiveMaximumExceeded = 0x93, "receive maximum exceeded", Protocol;
    /// The topic alias is zero or above the maximum.
    TopicAliasInvalid = 0x94, "topic alias invalid", Protocol;
    /// The packet exceeds the receiver's maximum packet size.
    PacketTooLarge = 0x95, "packet too large", MessageTooLarge;
    /// Messages arrive at too high a rate.
    MessageRateTooHigh = 0x96, "message rate too high", TooManyRequests;
    /// A limit of the server was reached.
    QuotaExceeded = 0x97, "quota exceeded", QuotaExceeded;
    /// The connection was closed by an administrative action: whether the client may come back, the
    /// next CONNACK says.
    AdministrativeAction = 0x98, "administrative action", Disconnected;
    /// The payload does not match its payload format indicator.
    PayloadFormatInvalid = 0x99, "payload format invalid", InvalidArgument;
    /// The server does not support retained messages.
    RetainNotSupported = 0x9A, "retain not supported", Unsupported;
    /// The server does not support the QoS.
    QoSNotSupported = 0x9B, "QoS not supported", Unsupported;
    /// The client should temporarily use another server.
    UseAnotherServer = 0x9C, "use another server", ServiceNotReady;
    /// The client should permanently use another server.
    ServerMoved = 0x9D, "server moved", ServiceNotReady;
    /// The server does not support shared subscriptions.
    SharedSubscriptionsNotSupported = 0x9E, "shared subscriptions not supported", Unsupported;
    /// Connections are opened at too high a rate.
    ConnectionRateExceeded = 0x9F, "connection rate exceeded", TooManyRequests;
    /// The connection reached its maximum duration.
    MaximumConnectTime = 0xA0, "maximum connect time", ServiceNotReady;
    /// The server does not support subscription identifiers.
    SubscriptionIdentifiersNotSupported = 0xA1, "subscription identifiers not supported", Unsupported;
    /// The server does not support wildcards in subscriptions.
    WildcardSubscriptionsNotSupported = 0xA2, "wildcard subscriptions not supported", Unsupported;
}

impl Reason {
    /// Code on the wire in MQTT 5.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Whether the reason reports a failure.
    pub const fn is_error(self) -> bool {
        self.code() >= 0x80
    }

    /// The SUBACK reason that grants `qos`.
    pub const fn granted(qos: QoS) -> Self {
        match qos {
            QoS::AtMostOnce => Self::Success,
            QoS::AtLeastOnce => Self::GrantedQoS1,
            QoS::ExactlyOnce => Self::GrantedQoS2,
        }
    }

    /// QoS granted by this SUBACK reason.
    pub const fn granted_qos(self) -> Option<QoS> {
        if self.is_error() { None } else { QoS::from_bits(self.code()) }
    }

    /// Whether a packet of `kind` may carry this reason (table in 2.4). One match over all packet
    /// kinds: splitting it would hide which reason of that table is missing.
    pub const fn allowed_in(self, kind: Kind) -> bool {
        use Reason as R;
        match kind {
            Kind::ConnAck => matches!(
                self,
                R::Success
                    | R::Unspecified
                    | R::MalformedPacket
                    | R::ProtocolError
                    | R::ImplementationSpecific
                    | R::UnsupportedProtocolVersion
                    | R::ClientIdentifierNotValid
                    | R::BadUserNameOrPassword
                    | R::NotAuthorized
                    | R::ServerUnavailable
                    | R::ServerBusy
                    | R::Banned
                    | R::BadAuthenticationMethod
                    | R::TopicNameInvalid
                    | R::PacketTooLarge
                    | R::QuotaExceeded
                    | R::PayloadFormatInvalid
                    | R::RetainNotSupported
                    | R::QoSNotSupported
                    | R::UseAnotherServer
                    | R::ServerMoved
                    | R::ConnectionRateExceeded
            ),
            Kind::PubAck | Kind::PubRec => matches!(
                self,
                R::Success
                    | R::NoMatchingSubscribers
                    | R::Unspecified
                    | R::ImplementationSpecific
                    | R::NotAuthorized
                    | R::TopicNameInvalid
                    | R::PacketIdentifierInUse
                    | R::QuotaExceeded
                    | R::PayloadFormatInvalid
            ),
            Kind::PubRel | Kind::PubComp => matches!(self, R::Success | R::PacketIdentifierNotFound),
            Kind::SubAck => matches!(
                self,
                R::Success
                    | R::GrantedQoS1
                    | R::GrantedQoS2
                    | R::Unspecified
                    | R::ImplementationSpecific
                    | R::NotAuthorized
                    | R::TopicFilterInvalid
                    | R::PacketIdentifierInUse
                    | R::QuotaExceeded
                    | R::SharedSubscriptionsNotSupported
                    | R::SubscriptionIdentifiersNotSupported
                    | R::WildcardSubscriptionsNotSupported
            ),
            Kind::UnsubAck => matches!(
                self,
                R::Success
                    | R::NoSubscriptionExisted
                    | R::Unspecified
                    | R::ImplementationSpecific
                    | R::NotAuthorized
                    | R::TopicFilterInvalid
                    | R::PacketIdentifierInUse
            ),
            Kind::Disconnect => !matches!(
                self,
                R::GrantedQoS1
                    | R::GrantedQoS2
                    | R::NoMatchingSubscribers
                    | R::NoSubscriptionExisted
                    | R::ContinueAuthentication
                    | R::ReAuthenticate
                    | R::UnsupportedProtocolVersion
                    | R::ClientIdentifierNotValid
                    | R::BadUserNameOrPassword
                    | R::ServerUnavailable
                    | R::Banned
                    | R::PacketIdentifierInUse
                    | R::PacketIdentifierNotFound
            ),
            Kind::Auth => matches!(self, R::Success | R::ContinueAuthentication | R::ReAuthenticate),
            Kind::Connect
            | Kind::Publish
            | Kind::Subscribe
            | Kind::Unsubscribe
            | Kind::PingReq
            | Kind::PingResp => false,
        }
    }

    /// CONNACK return code of MQTT 3 (3.2.2.3). A reason without a counterpart maps to the nearest
    /// code.
    pub const fn return_code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::UnsupportedProtocolVersion => 1,
            Self::ClientIdentifierNotValid => 2,
            Self::BadUserNameOrPassword | Self::BadAuthenticationMethod => 4,
            Self::NotAuthorized | Self::Banned => 5,
            _ => 3,
        }
    }

    /// Reason for a CONNACK return code of MQTT 3.
    pub const fn from_return_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Success),
            1 => Some(Self::UnsupportedProtocolVersion),
            2 => Some(Self::ClientIdentifierNotValid),
            3 => Some(Self::ServerUnavailable),
            4 => Some(Self::BadUserNameOrPassword),
            5 => Some(Self::NotAuthorized),
            _ => None,
        }
    }

    /// SUBACK code in `version`: MQTT 3 only has the granted QoS and 0x80.
    pub const fn suback_code(self, version: Version) -> u8 {
        match version {
            Version::V5 => self.code(),
            _ if self.is_error() => 0x80,
            _ => self.code(),
        }
    }

    /// Creates the typed error for a refusal; `what` names the refused operation.
    pub fn error(self, what: &str) -> Error {
        Error::new(self.kind(), format!("{what}: the broker answered {self}"))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:02X} {}", self.code(), self.text())
    }
}
