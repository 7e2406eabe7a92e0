//! Reason codes of MQTT 5.0 (2.4), and the return codes of 3.x mapped to them, so that the layers above
//! know one set.

use std::fmt;

use crate::error::{Error, ErrorKind};
use crate::mqtt::packet::Kind;
use crate::mqtt::{QoS, Version};

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal, $text:literal, $kind:ident;)+) => {
        /// A reason code. Values below 0x80 say success.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Reason { $($(#[doc = $doc])+ $name = $code,)+ }

        impl Reason {
            /// Every reason code.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The reason with this code.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$name),)+ _ => None }
            }

            /// In words, as the standard names it.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// The kind of error a refusal with this code is.
            pub const fn kind(self) -> ErrorKind {
                match self { $(Self::$name => ErrorKind::$kind,)+ }
            }
        }
    };
}

reasons! {
    /// Success, normal disconnection, or granted QoS 0.
    Success = 0x00, "success", Unknown;
    /// Granted QoS 1.
    GrantedQoS1 = 0x01, "granted QoS 1", Unknown;
    /// Granted QoS 2.
    GrantedQoS2 = 0x02, "granted QoS 2", Unknown;
    /// The client disconnects and wants its will published.
    DisconnectWithWill = 0x04, "disconnect with will message", Unknown;
    /// Accepted, and nobody is subscribed.
    NoMatchingSubscribers = 0x10, "no matching subscribers", Unknown;
    /// There was no such subscription.
    NoSubscriptionExisted = 0x11, "no subscription existed", Unknown;
    /// The authentication goes on.
    ContinueAuthentication = 0x18, "continue authentication", Unknown;
    /// The client starts a new authentication.
    ReAuthenticate = 0x19, "re-authenticate", Unknown;
    /// No reason is given.
    Unspecified = 0x80, "unspecified error", Unknown;
    /// The packet cannot be parsed.
    MalformedPacket = 0x81, "malformed packet", Protocol;
    /// The packet may not be sent now, or not like this.
    ProtocolError = 0x82, "protocol error", Protocol;
    /// The receiver does not accept it.
    ImplementationSpecific = 0x83, "implementation specific error", NotAllowed;
    /// The server does not speak the version.
    UnsupportedProtocolVersion = 0x84, "unsupported protocol version", UnsupportedVersion;
    /// The client identifier is not allowed.
    ClientIdentifierNotValid = 0x85, "client identifier not valid", InvalidArgument;
    /// User name or password are wrong.
    BadUserNameOrPassword = 0x86, "bad user name or password", Authentication;
    /// The client may not do this.
    NotAuthorized = 0x87, "not authorized", Authorization;
    /// The server is not available.
    ServerUnavailable = 0x88, "server unavailable", ServiceNotReady;
    /// The server is busy.
    ServerBusy = 0x89, "server busy", ServiceNotReady;
    /// The client is banned.
    Banned = 0x8A, "banned", Authorization;
    /// The server shuts down.
    ServerShuttingDown = 0x8B, "server shutting down", ServiceNotReady;
    /// The authentication method is not supported or not the current one.
    BadAuthenticationMethod = 0x8C, "bad authentication method", Authentication;
    /// Nothing was received for 1.5 times the keep-alive.
    KeepAliveTimeout = 0x8D, "keep alive timeout", Disconnected;
    /// Another connection uses the client identifier.
    SessionTakenOver = 0x8E, "session taken over", SessionTakenOver;
    /// The topic filter is not valid.
    TopicFilterInvalid = 0x8F, "topic filter invalid", InvalidTopic;
    /// The topic name is not valid.
    TopicNameInvalid = 0x90, "topic name invalid", InvalidTopic;
    /// The packet identifier is in use.
    PacketIdentifierInUse = 0x91, "packet identifier in use", Protocol;
    /// The packet identifier is not known.
    PacketIdentifierNotFound = 0x92, "packet identifier not found", Protocol;
    /// More publications were sent than the receive maximum.
    ReceiveMaximumExceeded = 0x93, "receive maximum exceeded", Protocol;
    /// The topic alias is zero or above the maximum.
    TopicAliasInvalid = 0x94, "topic alias invalid", Protocol;
    /// The packet is larger than the receiver takes.
    PacketTooLarge = 0x95, "packet too large", MessageTooLarge;
    /// Too many messages a second.
    MessageRateTooHigh = 0x96, "message rate too high", TooManyRequests;
    /// A limit of the server is reached.
    QuotaExceeded = 0x97, "quota exceeded", QuotaExceeded;
    /// An administrator did it.
    AdministrativeAction = 0x98, "administrative action", NotAllowed;
    /// The payload is not what its format indicator says.
    PayloadFormatInvalid = 0x99, "payload format invalid", InvalidArgument;
    /// The server does not retain.
    RetainNotSupported = 0x9A, "retain not supported", Unsupported;
    /// The server does not do this QoS.
    QoSNotSupported = 0x9B, "QoS not supported", Unsupported;
    /// The client should use another server for now.
    UseAnotherServer = 0x9C, "use another server", ServiceNotReady;
    /// The client should use another server from now on.
    ServerMoved = 0x9D, "server moved", ServiceNotReady;
    /// The server does not do shared subscriptions.
    SharedSubscriptionsNotSupported = 0x9E, "shared subscriptions not supported", Unsupported;
    /// Too many connections a second.
    ConnectionRateExceeded = 0x9F, "connection rate exceeded", TooManyRequests;
    /// The connection lasted as long as it may.
    MaximumConnectTime = 0xA0, "maximum connect time", ServiceNotReady;
    /// The server does not do subscription identifiers.
    SubscriptionIdentifiersNotSupported = 0xA1, "subscription identifiers not supported", Unsupported;
    /// The server does not do wildcard subscriptions.
    WildcardSubscriptionsNotSupported = 0xA2, "wildcard subscriptions not supported", Unsupported;
}

impl Reason {
    /// The code on the wire of 5.0.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Whether the code says that it did not work.
    pub const fn is_error(self) -> bool {
        self.code() >= 0x80
    }

    /// Granted `qos`, of a SUBACK.
    pub const fn granted(qos: QoS) -> Self {
        match qos {
            QoS::AtMostOnce => Self::Success,
            QoS::AtLeastOnce => Self::GrantedQoS1,
            QoS::ExactlyOnce => Self::GrantedQoS2,
        }
    }

    /// The QoS that a SUBACK granted.
    pub const fn granted_qos(self) -> Option<QoS> {
        if self.is_error() { None } else { QoS::from_bits(self.code()) }
    }

    /// Whether a packet of `kind` may carry this code (the table of 2.4).
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

    /// The return code of a CONNACK of 3.x (3.2.2.3), for a reason that it has no code for the nearest.
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

    /// The reason that a CONNACK of 3.x gave.
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

    /// What a SUBACK of `version` carries for it: 3.x knows the granted QoS and 0x80 alone.
    pub const fn suback_code(self, version: Version) -> u8 {
        match version {
            Version::V5 => self.code(),
            _ if self.is_error() => 0x80,
            _ => self.code(),
        }
    }

    /// The typed error of a refusal; `what` names what was refused.
    pub fn error(self, what: &str) -> Error {
        Error::new(self.kind(), format!("{what}: the broker answered {self}"))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:02X} {}", self.code(), self.text())
    }
}
