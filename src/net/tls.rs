//! TLS with rustls: ring's provider set explicitly, TLS 1.2 and 1.3, the platform's roots or the caller's own, client
//! certificates, and host name checks before the first byte of the application.

use std::io;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio_rustls::TlsConnector;

use crate::error::{Error, ErrorKind, Result};

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
}

impl std::fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsOptions")
            .field("ca", &self.ca.is_some())
            .field("certificate", &self.certificate.is_some())
            .field("key", &"***")
            .field("skip_hostname_check", &self.skip_hostname_check)
            .finish()
    }
}

/// Connector for these options; `alpn` is the application protocol to offer, if any.
pub fn connector(options: &TlsOptions, alpn: Option<&str>) -> Result<TlsConnector> {
    let provider = provider();
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(config_error)?;
    let builder = match &options.ca {
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
        Some(tls) => Error::new(ErrorKind::Tls, format!("TLS to {host}:{port} failed: {tls}")),
        None => Error::new(ErrorKind::ConnectFailed, format!("TLS to {host}:{port} was cut: {error}")),
    }
}

fn config_error(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("the TLS options are not valid: {error}"))
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
