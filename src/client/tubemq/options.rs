//! Options of the TubeMQ client: names, types, defaults and texts. The bindings validate values
//! before they get here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::credentials::Secret;
use forebay_base::options;
use forebay_base::options::{DURATION, FLAG, SIZE, TEXT, WORD, at_least, own, whole};
use forebay_net::tls::TlsOptions;
use forebay_tubemq::Partition;
use forebay_tubemq::balance::Balance;
use forebay_tubemq::consumer::Start;

options! {
    /// Options of a client.
    #[derive(Clone, Debug)]
    pub struct ClientOptions {
        /// `tubemq://master:port[,master:port…]` or `tubemq+ssl://…`.
        field url: String = "tubemq://127.0.0.1:8715".into();
        /// Timeout for the registration at a master, in seconds.
        option connect_timeout: Duration = Duration::from_secs(10) => DURATION;
        /// Timeout for open, seek and close, in seconds.
        option operation_timeout: Duration = Duration::from_secs(30) => DURATION;
        /// Timeout for one request, in seconds. The server enforces it too.
        option request_timeout: Duration = Duration::from_secs(10) => DURATION;
        /// Interval between heartbeats, in seconds. Servers drop a client after 30 s of silence.
        option heartbeat_interval: Duration = Duration::from_secs(10) => DURATION.least(Duration::from_millis(100));
        /// Longest pause before a reconnect, in seconds.
        option max_backoff: Duration = Duration::from_secs(2) => DURATION.least(Duration::from_millis(100));
        /// Memory limit in bytes for unacknowledged messages, shared by all producers of the
        /// client.
        option memory_limit: usize = 64 << 20 => SIZE;
        /// Limit in bytes of fetched messages that wait for the application. A consumer stops
        /// fetching when it is reached.
        option receive_buffer: usize = 16 << 20 => SIZE;
        /// User name.
        option username: Option<String> = None => TEXT.common();
        /// Password.
        custom password: Option<Secret> = None => own("secret").common().secret();
        /// TLS settings of `tubemq+ssl`.
        field tls: TlsOptions = TlsOptions::default();
        /// Client certificate chain. TubeMQ supports mutual TLS only.
        row tls_cert => own("pem");
    }
}

options! {
    /// Options of a producer.
    #[derive(Clone, Debug)]
    pub struct ProducerOptions {
        /// Limit of unacknowledged messages (send window).
        option max_pending: usize = 1000 => whole(1, 1 << 24);
        /// Timeout for the answer to a message, in seconds. 0 disables it.
        option send_timeout: Option<Duration> = Some(Duration::from_secs(30)) => DURATION;
        /// Default message type. Consumers can filter by it.
        option message_type: Option<String> = None => TEXT;
    }
}

options! {
    /// Options of a consumer.
    #[derive(Clone, Debug)]
    pub struct ConsumerOptions {
        /// Start position.
        field start: Start = Start::Latest;
        /// Start offsets of single partitions.
        field offsets: BTreeMap<Partition, i64> = BTreeMap::new();
        /// Message types to receive, for all topics or by topic.
        custom filters: BTreeMap<String, BTreeSet<String>> = BTreeMap::new() => own("filters").common();
        /// Side that assigns partitions to the members of the group.
        words balance: Balance = Balance::Client(None) => of [
            "client" = Balance::Client(None),
            "server" = Balance::Server,
        ] WORD;
        /// Acknowledge each message when it is received.
        option auto_ack: bool = false => FLAG;
        /// Redelivery delay of the pack of a nacked message, in seconds.
        option nack_delay: Duration = Duration::from_secs(1) => DURATION;
        /// Longest pause between two fetches from an empty partition, in seconds.
        option poll_interval: Duration = Duration::from_millis(100) => DURATION;
        /// Start of a new group: "first", "latest" or positions. "max" also moves an existing group
        /// to the end.
        row position => own("position").common().word("latest");
        /// Number of members of the group. Each member then needs a `node_id` (client balance).
        row source_count => at_least(1);
        /// Number of this member, starting at 0 (client balance).
        row node_id => at_least(0);
    }
}
