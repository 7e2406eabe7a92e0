//! TLS with rustls: ring's provider set explicitly, TLS 1.2 and 1.3, the platform's roots or the
//! caller's own, client certificates, and host name checks before the first byte of the
//! application.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, ServerName, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer,
    UnixTime,
};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, InconsistentKeys, RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::der;
use forebay_base::error::{Error, ErrorKind, Result, shown};
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
    /// Name to send and to check instead of the host's.
    pub server_name: Option<String>,
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
    current: Mutex<(TlsOptions, Connector)>,
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
    pub async fn get_of(this: Option<&Self>) -> (Option<Connector>, Option<Error>) {
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
    pub async fn get(&self) -> (Connector, Option<Error>) {
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
            .field("server_name", &self.server_name)
            .field("pins", &self.pins.len())
            .field("files", &self.files)
            .finish()
    }
}

/// Begins TLS on connected sockets.
#[derive(Clone)]
pub struct Connector {
    inner: TlsConnector,
    server_name: Option<ServerName<'static>>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

impl Connector {
    /// The handshake with a host.
    pub(crate) fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        host: &str,
        socket: S,
    ) -> Result<tokio_rustls::Connect<S>> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(|_| {
                Error::new(ErrorKind::InvalidArgument, format!("{host:?} is not a host name"))
            })?,
        };
        Ok(self.inner.connect(name, socket))
    }
}

/// Connector for these options; `alpn` is the application protocol to offer, if there is one and it
/// is not empty.
pub fn connector(options: &TlsOptions, alpn: Option<&str>) -> Result<Connector> {
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
    // RFC 7301, 3.1.
    let alpn = alpn.filter(|name| !name.is_empty());
    if alpn.is_some_and(|name| name.len() > 255) {
        return Err(Error::new(ErrorKind::InvalidArgument, "tls_alpn has more than 255 bytes"));
    }
    let server_name = options.server_name.as_deref().map(|name| {
        let unfit = |_| {
            let text = format!("tls_server_name is the name of a host or an IP address, not {name:?}");
            Error::new(ErrorKind::InvalidArgument, text)
        };
        ServerName::try_from(name.trim_matches(['[', ']']).to_owned()).map_err(unfit)
    });
    let server_name = server_name.transpose()?;
    let builder = match &options.ca {
        None if !options.pins.is_empty() => {
            let verifier = Pinned { pins: options.pins.clone(), provider };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
        None => {
            let verifier = rustls_platform_verifier::Verifier::new(provider).map_err(config_error)?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Named(Arc::new(verifier))))
        }
        Some(pem) => {
            let roots = Pem::new("tls_ca", options.files.ca.as_ref(), pem).authorities()?;
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(config_error)?;
            let verifier: Arc<dyn ServerCertVerifier> =
                if options.skip_hostname_check { Arc::new(AnyHostName(verifier)) } else { verifier };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Named(verifier)))
        }
    };
    if options.skip_hostname_check && options.ca.is_none() {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "the host name check can only be skipped with a tls_ca: set tls_ca, or check host names",
        ));
    }
    let mut config = match (&options.certificate, &options.key) {
        (Some(certificate), Some(key)) => {
            let certificate = Pem::new("tls_cert", options.files.certificate.as_ref(), certificate);
            let key = Pem::new("tls_key", options.files.key.as_ref(), key);
            builder.with_client_cert_resolver(certificate.with_key(&key)?)
        }
        (None, None) => builder.with_no_client_auth(),
        _ => {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "tls_cert and tls_key are set together: give both or neither",
            ));
        }
    };
    config.alpn_protocols = alpn.into_iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(Connector { inner: TlsConnector::from(Arc::new(config)), server_name })
}

/// PEM of an option. Errors name the option, and the file that the PEM was read from.
#[derive(Clone, Copy)]
pub struct Pem<'a> {
    /// Name of the option.
    pub option: &'static str,
    /// File.
    pub file: Option<&'a Path>,
    /// Content.
    pub content: &'a [u8],
}

impl std::fmt::Debug for Pem<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pem({self})")
    }
}

impl std::fmt::Display for Pem<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.option)?;
        self.file.map_or(Ok(()), |file| write!(f, " ({})", file.display()))
    }
}

impl<'a> Pem<'a> {
    /// The PEM of an option.
    pub fn new(option: &'static str, file: Option<&'a PathBuf>, content: &'a [u8]) -> Self {
        // Editors put a byte order mark before text.
        let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
        Self { option, file: file.map(PathBuf::as_path), content }
    }

    /// The error of a value that is not valid.
    pub fn invalid(&self, why: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::InvalidArgument, format!("{self} {why}"))
    }

    /// The certificates, at least one.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>> {
        let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.content).collect();
        let found =
            found.map_err(|e| self.invalid(format_args!("is not a PEM certificate: {}", Malformed(e))))?;
        if found.is_empty() {
            return Err(self.invalid("holds no PEM certificate"));
        }
        Ok(found)
    }

    /// The certificates as those of trusted authorities.
    pub fn authorities(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        for (number, certificate) in (1..).zip(self.certificates()?) {
            roots.add(certificate).map_err(|error| self.unreadable(number, error))?;
        }
        Ok(roots)
    }

    fn unreadable(&self, number: usize, why: impl std::fmt::Display) -> Error {
        self.invalid(format_args!("has a certificate that cannot be read, number {number} in it: {why}"))
    }

    /// The private key.
    pub fn private_key(&self) -> Result<PrivateKeyDer<'static>> {
        let is_encrypted = |line: &[u8]| {
            line.starts_with(b"-----BEGIN ENCRYPTED PRIVATE KEY")
                || line.starts_with(b"Proc-Type: 4,ENCRYPTED")
        };
        if self.content.split(|byte| *byte == b'\n').any(is_encrypted) {
            return Err(self.invalid(
                "is encrypted: decrypt it with `openssl pkey -in KEY -out PLAIN`, and keep that file to yourself \
                 (chmod 600)",
            ));
        }
        PrivateKeyDer::from_pem_slice(self.content)
            .map_err(|e| self.invalid(format_args!("is not a PEM private key: {}", Malformed(e))))
    }

    /// A certificate chain with its private key.
    pub fn with_key(&self, key: &Pem<'_>) -> Result<Arc<SingleCertAndKey>> {
        let chain = self.certificates()?;
        let (first, authorities) = chain.split_first().expect("at least one");
        if is_of_version_1(first) {
            return Err(self.invalid(
                "is a certificate of X.509 version 1, which TLS does not accept: issue one of version 3 \
                 (`openssl x509 -req -extfile FILE` with subjectAltName)",
            ));
        }
        if let Err(error) = webpki::EndEntityCert::try_from(first) {
            return Err(self.unreadable(1, error));
        }
        // What an authority's certificate says is for the peer to judge.
        let unreadable = authorities.iter().position(|one| der::public_key_of(one).is_none());
        if let Some(place) = unreadable {
            return Err(self.unreadable(place + 2, "malformed DER"));
        }
        let loaded = provider().key_provider.load_private_key(key.private_key()?);
        let loaded = loaded.map_err(|error| key.invalid(format_args!("cannot be used: {error}")))?;
        let both = CertifiedKey::new(chain, loaded);
        if let Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) = both.keys_match() {
            return Err(self.invalid(format_args!(
                "and {key} do not match: the first certificate is not that of the private key"
            )));
        }
        Ok(Arc::new(both.into()))
    }
}

/// Reason why PEM cannot be read, without anything of a key in it.
struct Malformed(pem::Error);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            pem::Error::MissingSectionEnd { end_marker } => {
                let line = format!("-----END {}-----", String::from_utf8_lossy(end_marker));
                write!(f, "the line {} is missing", shown(&line))
            }
            pem::Error::IllegalSectionStart { .. } => {
                f.write_str("a line that begins with ----- is malformed")
            }
            pem::Error::Base64Decode(_) => f.write_str("a part of it is not base64"),
            pem::Error::NoItemsFound => f.write_str("it has none"),
            other => write!(f, "{other}"),
        }
    }
}

/// Error of a failed TLS handshake.
pub fn error(host: &str, port: u16, error: &io::Error) -> Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(tls) => {
            let hint = if tls.to_string().contains("CaUsedAsEndEntity") {
                ". The server presents the certificate of an authority (CA:TRUE), as `openssl req -x509` makes them: issue one \
                 for servers (CA:FALSE), or accept this one by its fingerprint with tls_pin"
            } else if matches!(tls, rustls::Error::InvalidMessage(_)) {
                ". Its answer is not TLS: use the port that has TLS, or a URL without it"
            } else {
                ""
            };
            Error::new(ErrorKind::Tls, format!("TLS to {host}:{port} failed: {tls}{hint}"))
        }
        None => Error::new(
            ErrorKind::ConnectFailed,
            format!("TLS to {host}:{port} was cut: {error}. Does this port have TLS?"),
        ),
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
        if !is_of_version_1(cert) {
            return rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms);
        }
        let key = public_key(cert)?;
        let key = webpki::RawPublicKeyEntity::try_from(&key)
            .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
        // A scheme of TLS 1.2 says nothing about curves: one of several algorithms fits the key.
        let mut fitting = algorithms.mapping.iter().filter(|(scheme, _)| *scheme == dss.scheme);
        let verifies = |algorithm: &&dyn SignatureVerificationAlgorithm| {
            key.verify_signature(*algorithm, message, dss.signature()).is_ok()
        };
        if fitting.any(|(_, algorithms)| algorithms.iter().any(verifies)) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        Err(rustls::Error::InvalidCertificate(CertificateError::BadSignature))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        if is_of_version_1(cert) {
            let key = public_key(cert)?;
            return rustls::crypto::verify_tls13_signature_with_raw_key(message, &key, dss, algorithms);
        }
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether a certificate has the version that webpki does not read.
pub fn is_of_version_1(certificate: &CertificateDer<'_>) -> bool {
    let read = webpki::EndEntityCert::try_from(certificate);
    matches!(read, Err(webpki::Error::UnsupportedCertVersion))
}

fn public_key<'a>(
    certificate: &'a CertificateDer<'_>,
) -> std::result::Result<SubjectPublicKeyInfoDer<'a>, rustls::Error> {
    let key = der::public_key_of(certificate);
    key.map(SubjectPublicKeyInfoDer::from)
        .ok_or(rustls::Error::InvalidCertificate(CertificateError::BadEncoding))
}

/// Says of a certificate that has no names what to do about it.
#[derive(Debug)]
struct Named(Arc<dyn ServerCertVerifier>);

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        if is_of_version_1(end_entity) {
            return Err(rustls::Error::General(
                "the server's certificate is of X.509 version 1, which has no names to check: issue one with \
                 subjectAltName (`openssl x509 -req -extfile FILE`), or accept this one by its fingerprint with tls_pin"
                    .into(),
            ));
        }
        self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
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
    use rustls::server::{ClientHello, ResolvesServerCert};
    use rustls::{ServerConfig, SupportedProtocolVersion};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const EC: &[u8] = include_bytes!("../../tests/golden/tls/version-1-ec.pem");
    const RSA: &[u8] = include_bytes!("../../tests/golden/tls/version-1-rsa.pem");

    /// Shows a certificate whatever its version, with any key.
    #[derive(Debug)]
    struct Shows(Arc<CertifiedKey>);

    impl ResolvesServerCert for Shows {
        fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            Some(Arc::clone(&self.0))
        }
    }

    /// The handshake with a server that has the certificate of one file and the key of another.
    async fn handshake(
        certificate: &[u8],
        key: &[u8],
        version: &'static SupportedProtocolVersion,
        options: TlsOptions,
    ) -> io::Result<()> {
        let key = provider()
            .key_provider
            .load_private_key(Pem::new("key", None, key).private_key().unwrap())
            .unwrap();
        let shown =
            CertifiedKey::new(Pem::new("certificate", None, certificate).certificates().unwrap(), key);
        let server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Shows(Arc::new(shown))));
        let (near, far) = tokio::io::duplex(100_000);
        let serve = async {
            if let Ok(mut stream) = tokio_rustls::TlsAcceptor::from(Arc::new(server)).accept(far).await {
                let _ = stream.write_all(b"x").await;
                let _ = stream.shutdown().await;
            }
        };
        let connect = async {
            let connector = connector(&options, None).unwrap();
            let mut stream = connector.connect("127.0.0.1", near).unwrap().await?;
            assert_eq!(stream.read_u8().await?, b'x');
            Ok(())
        };
        tokio::join!(connect, serve).0
    }

    fn pinned(pem: &[u8]) -> TlsOptions {
        let certificate = Pem::new("certificate", None, pem).certificates().unwrap().remove(0);
        let digest = ::ring::digest::digest(&::ring::digest::SHA256, &certificate);
        TlsOptions { pins: vec![digest.as_ref().try_into().unwrap()], ..TlsOptions::default() }
    }

    #[tokio::test]
    async fn a_certificate_of_version_1_is_accepted_by_its_fingerprint() {
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            for (pem, other) in [(EC, RSA), (RSA, EC)] {
                handshake(pem, pem, version, pinned(pem)).await.unwrap();
                let error = handshake(pem, pem, version, pinned(other)).await.unwrap_err();
                assert!(error.to_string().contains("tls_pin does not list"), "{error}");
            }
            // A server with the certificate and without its key is another one.
            let of_the_same_kind = b"-----BEGIN PRIVATE KEY-----\n\
                MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgzNzLx5Ll9/NP++uL\n\
                79g7yKJA1Sfro3cYJHKnP3nBAzqhRANCAAT6HAbchqxTM4a63hddRpj/ztC3SVii\n\
                vLLJDA/o4Ch09DoOlErCJ4rU0yA1rx15pln5hGDHJJnvYR8c65LIiPr4\n\
                -----END PRIVATE KEY-----\n";
            let error = handshake(EC, of_the_same_kind, version, pinned(EC)).await.unwrap_err();
            assert!(error.to_string().contains("BadSignature"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_certificate_of_version_1_without_a_pin_says_what_to_do() {
        for skip_hostname_check in [false, true] {
            let options = TlsOptions { ca: Some(EC.to_vec()), skip_hostname_check, ..TlsOptions::default() };
            let refused = handshake(EC, EC, &rustls::version::TLS13, options).await;
            let refusal = error("127.0.0.1", 1, &refused.unwrap_err());
            for words in ["X.509 version 1", "subjectAltName", "tls_pin"] {
                assert!(refusal.message().contains(words), "{refusal}");
            }
        }
    }

    #[test]
    fn the_name_of_the_server_is_a_host_or_an_address() {
        let connector = |name: &str| {
            let options = TlsOptions { server_name: Some(name.into()), ..pinned(EC) };
            connector(&options, None).map(|connector| connector.server_name)
        };
        for name in ["broker.example", "10.0.0.1", "::1", "[::1]"] {
            let found = connector(name).unwrap().unwrap();
            assert_eq!(found.to_str(), name.trim_matches(['[', ']']));
        }
        assert!(connector("two words").unwrap_err().message().contains("tls_server_name"));
    }

    #[test]
    fn a_protocol_of_alpn_has_at_most_255_bytes() {
        let connector = |length| connector(&pinned(EC), Some(&"a".repeat(length)));
        let offered = |length| connector(length).unwrap().inner.config().alpn_protocols.clone();
        assert_eq!(offered(255), [vec![b'a'; 255]]);
        assert!(offered(0).is_empty());
        let error = connector(256).unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::InvalidArgument, "tls_alpn has more than 255 bytes")
        );
    }

    #[test]
    fn an_error_of_pem_names_the_option_and_the_file_in_words() {
        let file = PathBuf::from("/etc/pki/any.pem");
        let body = "-----BEGIN CERTIFICATE-----\n";
        for (text, why) in [
            ("", "holds no PEM certificate"),
            (&*format!("{body}MAA=\n"), "the line \"-----END CERTIFICATE-----\" is missing"),
            (&format!("{body}!!!\n-----END CERTIFICATE-----\n"), "a part of it is not base64"),
            ("-----BEGIN CERTIFICATE\nMAA=\n", "a line that begins with ----- is malformed"),
            (
                &format!("{body}MAA=\n-----END CERTIFICATE-----\n"),
                "has a certificate that cannot be read, number 1 in it",
            ),
        ] {
            let error = Pem::new("tls_ca", Some(&file), text.as_bytes()).authorities().unwrap_err();
            let said = error.message();
            assert!(said.starts_with("tls_ca (/etc/pki/any.pem) ") && said.contains(why), "{said}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_certificate_of_the_caller_is_named() {
        let (certificate, other) = (made(), made());
        let with = |certificate: &str, key: &str| {
            let options = TlsOptions {
                certificate: Some(certificate.into()),
                key: Some(key.into()),
                files: TlsFiles { key: Some("/etc/key.pem".into()), ..TlsFiles::default() },
                ..pinned(EC)
            };
            connector(&options, None).map(drop).map_err(|error| error.message().to_owned())
        };
        let both = format!("{}{}", certificate.0, other.0);
        assert_eq!(with(&both, &certificate.1), Ok(()));
        // A certificate of version 1 is no obstacle in the place of an authority.
        let version_1 = std::str::from_utf8(EC).unwrap();
        assert_eq!(with(&format!("{}{version_1}", certificate.0), &certificate.1), Ok(()));
        let none = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (pem, key, why) in [
            (&*certificate.0, &*other.1, "tls_cert and tls_key (/etc/key.pem) do not match"),
            (version_1, version_1, "tls_cert is a certificate of X.509 version 1"),
            (none, &certificate.1, "tls_cert has a certificate that cannot be read, number 1"),
            (
                &format!("{}{none}", certificate.0),
                &certificate.1,
                "tls_cert has a certificate that cannot be read, number 2",
            ),
            (&certificate.0, none, "tls_key (/etc/key.pem) is not a PEM private key: it has none"),
        ] {
            let said = with(pem, key).unwrap_err();
            assert!(said.starts_with(why), "{said}");
        }
    }

    /// A certificate and its key, in PEM.
    fn made() -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        (rcgen::CertificateParams::default().self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

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

    #[test]
    fn a_byte_order_mark_before_pem_is_no_matter() {
        let pem = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        let marked = format!("\u{feff}{pem}");
        assert_eq!(Pem::new("tls_ca", None, marked.as_bytes()).certificates().unwrap().len(), 1);
        let key = "\u{feff}-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
        assert!(Pem::new("tls_key", None, key.as_bytes()).private_key().is_ok());
    }

    #[test]
    fn an_encrypted_key_is_refused_with_what_to_do() {
        let body = "\nMAA=\n-----END PRIVATE KEY-----\n";
        for head in [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "-----BEGIN RSA PRIVATE KEY-----\r\nProc-Type: 4,ENCRYPTED\r\nMAA=\n-----END RSA PRIVATE KEY-----\n",
        ] {
            let error = Pem::new("tls_key", None, head.as_bytes()).private_key().unwrap_err();
            assert!(
                error.message().contains("tls_key is encrypted: decrypt it with `openssl pkey"),
                "{error}"
            );
        }
        let comment = format!("# not ENCRYPTED\n-----BEGIN PRIVATE KEY-----{body}");
        assert!(Pem::new("tls_key", None, comment.as_bytes()).private_key().is_ok());
    }
}
