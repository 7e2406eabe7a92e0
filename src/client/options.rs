//! Options that the clients of all protocols have. The bindings read them.

use forebay_base::options;
use forebay_base::options::{FLAG, TEXT, own, whole};

options! {
    /// Options of every client.
    #[derive(Clone, Debug)]
    pub struct SharedOptions {
        /// Whether to retry the first connect: `True` without limit, or for a number of seconds.
        /// Pauses grow up to `max_backoff`; `connect_timeout` limits each attempt. Errors that a
        /// retry cannot fix, such as wrong credentials, are raised immediately.
        row retry_first => own("flag_or_duration").face().flag(false);
        /// Certificate authorities to trust instead of the platform's. The client reads this file,
        /// `tls_cert` and `tls_key` again for each connection.
        row tls_ca => own("pem").common();
        /// Private key of the client certificate.
        row tls_key => own("pem").secret();
        /// SHA-256 fingerprints, in hexadecimal, of the only certificates to accept. Authority,
        /// host name and validity period are then not checked.
        row tls_pin => own("fingerprints");
        /// Name of the broker to send (SNI) and to check in its certificate. Default: the host of
        /// the URL.
        row tls_server_name => TEXT;
        /// Accept a certificate for any host name. For tests only.
        row tls_skip_hostname_check => FLAG.flag(false);
        /// Number of engine threads. The first client of the process sets it. With 1, sending one
        /// message at a time to a broker on the same machine keeps a second CPU core busy; 2
        /// disables this.
        row threads => whole(1, 64).number(1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{mqtt, pulsar, tubemq};
    use forebay_base::error::{Error, ErrorKind};

    /// Pauses of zero would reconnect without end, and those beyond the clock overflow it.
    #[tokio::test]
    async fn limits_of_options_hold_without_a_binding() {
        fn refused<T>(result: Result<T, Error>, option: &str) {
            let error = result.err().expect("the option is refused");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().starts_with(&format!("{option} is ")), "{error}");
        }
        for max_backoff in [Duration::ZERO, Duration::MAX] {
            let options = pulsar::options::ClientOptions { max_backoff, ..Default::default() };
            refused(pulsar::Client::connect(options).await, "max_backoff");
            let options = mqtt::options::ClientOptions { max_backoff, ..Default::default() };
            refused(mqtt::Client::connect(options).await, "max_backoff");
            let options = tubemq::options::ClientOptions { max_backoff, ..Default::default() };
            refused(tubemq::Client::connect(options).await, "max_backoff");
        }
        let keep_alive = Duration::ZERO;
        let options = pulsar::options::ClientOptions { keep_alive, ..Default::default() };
        refused(pulsar::Client::connect(options).await, "keep_alive");
        let options = mqtt::options::ClientOptions { max_inflight: 0, ..Default::default() };
        refused(mqtt::Client::connect(options).await, "max_inflight");
        let heartbeat_interval = Duration::ZERO;
        let options = tubemq::options::ClientOptions { heartbeat_interval, ..Default::default() };
        refused(tubemq::Client::connect(options).await, "heartbeat_interval");
    }
}
