//! TLS with rustls: ring's provider set explicitly, TLS 1.2 and 1.3, the platform's roots or the
//! caller's own, client certificates, and host name checks before the first byte of the
//! application.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio_rustls::TlsConnector;

use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::sync::Mutex;

/// TLS settings: trusted authorities and the client's certificate.
#[derive(Clone, Default)]
pub struct TlsOptions {
    /// PEM of the trusted authorities; `None` trusts the platform's.
    pub ca: Option<Vec<u8>>,
    /// PEM of the client's certificate chain.
    pub certificate: Option<Vec<u8>>,
    /// PEM of the client's private key.
    pub key: Option<Vec<u8>>,
    /// Whether any host name is accepted. For tests.
    pub skip_hostname_check: bool,
    /// SHA-256 fingerprints of the only certificates to accept, of any authority; empty to check
    /// them as usual.
    pub pins: Vec<[u8; 32]>,
    /// Files that `ca`, `certificate` and `key` were read from.
    pub files: TlsFiles,
}

/// Files of PEM, which may be replaced while a client runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// File of [`TlsOptions::ca`].
    pub ca: Option<PathBuf>,
    /// File of [`TlsOptions::certificate`].
    pub certificate: Option<PathBuf>,
    /// File of [`TlsOptions::key`].
    pub key: Option<PathBuf>,
}

impl TlsOptions {
    /// The options with the present content of their files; `None` if nothing has changed. Blocks.
    fn read_again(&self) -> Result<Option<Self>> {
        let read = |file: &Option<PathBuf>, into: &mut Option<Vec<u8>>| -> Result<bool> {
            let Some(path) = file else { return Ok(false) };
            let content = std::fs::read(path).map_err(|error| {
                Error::new(ErrorKind::Tls, format!("cannot read {}: {error}", path.display()))
            })?;
            Ok(into.replace(content) != *into)
        };
        let mut new = self.clone();
        let changed = [
            read(&self.files.ca, &mut new.ca)?,
            read(&self.files.certificate, &mut new.certificate)?,
            read(&self.files.key, &mut new.key)?,
        ];
        Ok(changed.contains(&true).then_some(new))
    }
}

/// A connector that follows the files of its options.
pub struct FollowingConnector {
    alpn: Option<String>,
    current: Mutex<(TlsOptions, TlsConnector)>,
}

impl std::fmt::Debug for FollowingConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FollowingConnector")
    }
}

impl FollowingConnector {
    /// As [`connector`].
    pub fn new(options: &TlsOptions, alpn: Option<&str>) -> Result<Self> {
        let current = Mutex::leaf((options.clone(), connector(options, alpn)?));
        Ok(Self { alpn: alpn.map(str::to_owned), current })
    }

    /// [`Self::get`] of a connector that there may be.
    pub async fn get_of(this: Option<&Self>) -> (Option<TlsConnector>, Option<Error>) {
        match this {
            None => (None, None),
            Some(this) => {
                let (connector, trouble) = this.get().await;
                (Some(connector), trouble)
            }
        }
    }

    /// The connector for the files as they are now. If one cannot be read or used, perhaps because
    /// only half of them have been replaced so far, the connector is the last good one, and the
    /// error says why.
    pub async fn get(&self) -> (TlsConnector, Option<Error>) {
        let (options, last) = self.current.lock().clone();
        if options.files == TlsFiles::default() {
            return (last, None);
        }
        let read = tokio::task::spawn_blocking(move || options.read_again()).await;
        let read = read.unwrap_or_else(|_| Err(Error::new(ErrorKind::Cancelled, "the engine has ended")));
        let built = read.and_then(|new| {
            new.map(|new| connector(&new, self.alpn.as_deref()).map(|made| (new, made))).transpose()
        });
        match built {
            Ok(None) => (last, None),
            Ok(Some((new, made))) => {
                *self.current.lock() = (new, made.clone());
                (made, None)
            }
            Err(error) => (last, Some(error)),
        }
    }
}

impl std::fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsOptions")
            .field("ca", &self.ca.is_some())
            .field("certificate", &self.certificate.is_some())
            .field("key", &"***")
            .field("skip_hostname_check", &self.skip_hostname_check)
            .field("pins", &self.pins.len())
            .field("files", &self.files)
            .finish()
    }
}

/// Connector for these options; `alpn` is the application protocol to offer, if any.
pub fn connector(options: &TlsOptions, alpn: Option<&str>) -> Result<TlsConnector> {
    let provider = provider();
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(config_error)?;
    if !options.pins.is_empty() && (options.ca.is_some() || options.skip_hostname_check) {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "tls_pin excludes tls_ca and tls_skip_hostname_check: only the certificates with these fingerprints are accepted",
        ));
    }
    let builder = match &options.ca {
        None if !options.pins.is_empty() => {
            let verifier = Pinned { pins: options.pins.clone(), provider };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
        None => builder.with_platform_verifier().map_err(config_error)?,
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates("tls_ca", pem)? {
                roots.add(certificate).map_err(config_error)?;
            }
            if options.skip_hostname_check {
                let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(config_error)?;
                builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyHostName(verifier)))
            } else {
                builder.with_root_certificates(roots)
            }
        }
    };
    if options.skip_hostname_check && options.ca.is_none() {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "the host name check can only be skipped with a tls_ca: set tls_ca, or check host names",
        ));
    }
    let mut config = match (&options.certificate, &options.key) {
        (Some(certificate), Some(key)) => builder
            .with_client_auth_cert(certificates("tls_cert", certificate)?, private_key("tls_key", key)?)
            .map_err(config_error)?,
        (None, None) => builder.with_no_client_auth(),
        _ => {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "tls_cert and tls_key are set together: give both or neither",
            ));
        }
    };
    config.alpn_protocols = alpn.into_iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Certificates in `pem`; `name` is the option for error messages.
pub fn certificates(name: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<std::result::Result<_, _>>().map_err(|e| {
            Error::new(ErrorKind::InvalidArgument, format!("{name} is not a PEM certificate: {e}"))
        })?;
    if found.is_empty() {
        return Err(Error::new(ErrorKind::InvalidArgument, format!("{name} holds no PEM certificate")));
    }
    Ok(found)
}

/// Private key in `pem`; `name` is the option for error messages.
pub fn private_key(name: &str, pem: &[u8]) -> Result<PrivateKeyDer<'static>> {
    if pem.windows(9).any(|window| window == b"ENCRYPTED") {
        return Err(Error::new(ErrorKind::InvalidArgument, format!("{name} is encrypted: decrypt it first")));
    }
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|e| Error::new(ErrorKind::InvalidArgument, format!("{name} is not a PEM private key: {e}")))
}

/// Error of a failed TLS handshake.
pub fn error(host: &str, port: u16, error: &io::Error) -> Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(tls) => {
            let hint = if tls.to_string().contains("CaUsedAsEndEntity") {
                ". The server presents the certificate of an authority (CA:TRUE), as `openssl req -x509` makes them: issue one \
                 for servers (CA:FALSE), or accept this one by its fingerprint with tls_pin"
            } else {
                ""
            };
            Error::new(ErrorKind::Tls, format!("TLS to {host}:{port} failed: {tls}{hint}"))
        }
        None => Error::new(ErrorKind::ConnectFailed, format!("TLS to {host}:{port} was cut: {error}")),
    }
}

/// Error of a connection whose socket failed with `error`.
///
/// With TLS 1.3 a server judges the client's certificate when the client's handshake is over: its
/// refusal comes as an alert in place of the first bytes (RFC 8446, 4.4.2.4 and 6.2).
pub fn broken(error: &io::Error) -> Error {
    use rustls::AlertDescription as Alert;
    let hint = match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(Alert::CertificateRequired)) => {
            ": it wants a certificate of its clients (tls_cert and tls_key)"
        }
        Some(rustls::Error::AlertReceived(
            Alert::AccessDenied
            | Alert::BadCertificate
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::CertificateUnknown
            | Alert::DecryptError
            | Alert::UnknownCA
            | Alert::UnsupportedCertificate,
        )) => ": it does not accept the certificate that it was shown",
        Some(rustls::Error::AlertReceived(
            Alert::HandshakeFailure
            | Alert::InsufficientSecurity
            | Alert::NoApplicationProtocol
            | Alert::ProtocolVersion
            | Alert::UnrecognisedName,
        )) => "",
        _ => return Error::new(ErrorKind::Disconnected, format!("the connection broke: {error}")),
    };
    Error::new(ErrorKind::Tls, format!("the peer refused TLS: {error}{hint}"))
}

fn config_error(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("the TLS options are not valid: {error}"))
}

/// A fingerprint from 64 hexadecimal digits, with or without colons between the bytes.
pub fn fingerprint(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b':').collect();
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let bytes = pairs.iter().map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8));
    bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()
}

/// Accepts the certificates with these fingerprints only, of any authority, for any name and at any
/// time.
#[derive(Debug)]
struct Pinned {
    pins: Vec<[u8; 32]>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let found = ::ring::digest::digest(&::ring::digest::SHA256, end_entity);
        if self.pins.iter().any(|pin| pin == found.as_ref()) {
            return Ok(ServerCertVerified::assertion());
        }
        let hex: String = found.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Err(rustls::Error::General(format!(
            "the server's certificate has the fingerprint {hex}, which tls_pin does not list"
        )))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Checks everything but the host name.
#[derive(Debug)]
struct AnyHostName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyHostName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Cryptography provider of clients and servers; never the process-wide default.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn a_fingerprint_has_32_bytes() {
        let hex = "0f".repeat(32);
        assert_eq!(fingerprint(&hex), Some([15; 32]));
        let colons = ["0F"; 32].join(":");
        assert_eq!(fingerprint(&colons), Some([15; 32]));
        for bad in [
            "",
            "0f",
            &hex[1..],
            &hex[2..],
            &format!("{hex}0f"),
            &hex.replace('f', "g"),
            &hex.replace('f', "ü"),
        ] {
            assert_eq!(fingerprint(bad), None, "{bad}");
        }
    }
}
