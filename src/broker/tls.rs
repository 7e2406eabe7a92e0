//! TLS of a listener: its certificate, and the names in those of its clients.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::server::{NoClientAuth, WebPkiClientVerifier};
use tokio_rustls::server::TlsStream;
use webpki::EndEntityCert;

use crate::handshakes::Handshakes;
use crate::listeners::ServerTls;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_net::der::{OID, SEQUENCE, SET, element, is_authority};
use forebay_net::socket::is_end;
use forebay_net::tls::{self, Pem};

/// Time limit of the TLS handshake and of the WebSocket upgrade.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(10);
/// Limit on the bytes of a user's name in a certificate.
const MAX_NAME: usize = 1024;

/// The acceptor of a listener. New connections use the present certificates, which [`Tls::renew`]
/// replaces.
#[derive(Clone)]
pub(super) struct Tls {
    current: Rc<RefCell<Current>>,
    handshakes: Rc<Handshakes>,
}

/// The certificates that a listener has at a time.
#[derive(Clone)]
pub(super) struct Current {
    acceptor: TlsAcceptor,
    /// Whether the name in the client's certificate is its user.
    names_user: bool,
}

impl Tls {
    pub(super) fn new(options: &ServerTls, handshakes: &Rc<Handshakes>) -> Result<Self> {
        handshakes.start()?;
        let current = Rc::new(RefCell::new(Current::new(options)?));
        Ok(Self { current, handshakes: handshakes.clone() })
    }

    /// Whether it asks for certificates of clients.
    pub(super) fn names_users(&self) -> bool {
        self.current.borrow().names_user
    }

    /// Replaces the certificates. Connections that are open keep theirs.
    pub(super) fn renew(&self, with: Current) {
        *self.current.borrow_mut() = with;
    }

    /// Handshakes with a client at `address`. Gives the user that the client's certificate names,
    /// if the listener asks for one. An error of the kind `Disconnected` says that the client
    /// has left.
    pub(super) async fn accept<S>(
        &self,
        stream: S,
        address: IpAddr,
    ) -> Result<(TlsStream<S>, Option<Arc<str>>)>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Current { acceptor, names_user } = self.current.borrow().clone();
        let handshake = Box::pin(acceptor.accept(stream));
        let stream = self.handshakes.run(address, HANDSHAKE, handshake).await?.map_err(|error| {
            let kind = if is_end(error.kind()) { ErrorKind::Disconnected } else { ErrorKind::Protocol };
            Error::new(kind, format!("the TLS handshake failed: {error}"))
        })?;
        if !names_user {
            return Ok((stream, None));
        }
        let name = stream.get_ref().1.peer_certificates().and_then(|chain| common_name(chain.first()?));
        let name = name.ok_or_else(|| {
            Error::new(ErrorKind::Authentication, "the client's certificate names no user, or several")
        })?;
        Ok((stream, Some(name)))
    }
}

impl Current {
    pub(super) fn new(options: &ServerTls) -> Result<Self> {
        let invalid = |error: &dyn std::fmt::Display| {
            Error::new(ErrorKind::InvalidArgument, format!("the TLS options are not valid: {error}"))
        };
        let verifier = match &options.client_ca {
            None => Arc::new(NoClientAuth),
            Some(pem) => {
                let pem = Pem::new("tls_client_ca", options.files.ca.as_ref(), pem);
                let roots = pem.authorities()?;
                for certificate in pem.certificates()? {
                    // Otherwise the holder of one client's key signs certificates of any user.
                    if !is_authority(&certificate) {
                        return Err(pem.invalid(if tls::is_of_version_1(&certificate) {
                            "has a certificate of X.509 version 1 that another authority signed, which does not say \
                             whether it is an authority: give that of the authority that signed it, or issue it with \
                             CA:TRUE (`openssl x509 -req -extfile FILE`)"
                        } else {
                            "has a certificate that is not that of an authority (CA:TRUE): give that of the authority \
                             that signs the clients'"
                        }));
                    }
                }
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), tls::provider())
                    .build()
                    .map_err(|error| invalid(&error))?
            }
        };
        let certificate = Pem::new("tls_cert", options.files.certificate.as_ref(), &options.certificate);
        let key = Pem::new("tls_key", options.files.key.as_ref(), &options.key);
        let config = ServerConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid(&error))?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(certificate.with_key(&key)?);
        let names_user = options.client_ca.is_some();
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), names_user })
    }
}

/// The common name of the subject. `None` if there is none, or several: which of them is meant
/// cannot be told.
fn common_name(certificate: &CertificateDer<'_>) -> Option<Arc<str>> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let mut names = Vec::new();
    let mut subject = certificate.subject();
    // SEQUENCE of SET of SEQUENCE of type and value (RFC 5280, 4.1.2.4).
    while !subject.is_empty() {
        let mut attributes = element(&mut subject, |tag| tag == SET)?;
        while !attributes.is_empty() {
            let mut attribute = element(&mut attributes, |tag| tag == SEQUENCE)?;
            if element(&mut attribute, |tag| tag == OID)? == COMMON_NAME {
                names.push(element(&mut attribute, |tag| STRINGS.contains(&tag))?);
            }
        }
    }
    let [name] = names[..] else { return None };
    let name = std::str::from_utf8(name).ok()?;
    let valid = (1..=MAX_NAME).contains(&name.len()) && !name.chars().any(char::is_control);
    valid.then(|| name.into())
}

/// UTF8String, PrintableString and IA5String, whose bytes are UTF-8.
const STRINGS: [u8; 3] = [0x0c, 0x13, 0x16];
/// Object identifier of the common name, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn name_in(names: &[&str]) -> Option<Arc<str>> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        // A name of the same type would take the place of the first.
        for (name, kind) in names.iter().zip([DnType::CommonName, DnType::CustomDnType(vec![2, 5, 4, 3])]) {
            params.distinguished_name.push(kind, *name);
        }
        let key = KeyPair::generate().unwrap();
        common_name(params.self_signed(&key).unwrap().der())
    }

    #[test]
    fn an_authority_says_so() {
        use rcgen::{BasicConstraints, IsCa};
        let constraints = [
            (IsCa::Ca(BasicConstraints::Unconstrained), true),
            (IsCa::Ca(BasicConstraints::Constrained(0)), true),
            (IsCa::ExplicitNoCa, false),
            (IsCa::NoCa, false),
        ];
        let key = KeyPair::generate().unwrap();
        for (is_ca, expected) in constraints {
            let mut params = CertificateParams::default();
            params.is_ca = is_ca;
            let made = params.self_signed(&key).unwrap();
            assert_eq!(is_authority(made.der()), expected, "{:?}", params.is_ca);
            let options = ServerTls {
                certificate: made.pem().into_bytes(),
                key: key.serialize_pem().into_bytes(),
                client_ca: Some(made.pem().into_bytes()),
                files: tls::TlsFiles::default(),
            };
            let used = Current::new(&options).map(drop);
            assert_eq!(used.is_ok(), expected, "{used:?}");
        }
        assert!(!is_authority(b"\x30\x03\x02\x01\x01") && !is_authority(b""));
    }

    #[test]
    fn an_authority_of_version_1_says_so_by_its_own_signature() {
        const VERSION_1: &[u8] = include_bytes!("../../tests/golden/tls/version-1-ec.pem");
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::default().self_signed(&key).unwrap();
        let options = |client_ca: Option<Vec<u8>>, certificate: &[u8]| ServerTls {
            certificate: certificate.to_vec(),
            key: key.serialize_pem().into_bytes(),
            client_ca,
            files: tls::TlsFiles::default(),
        };
        let with = |options: ServerTls| Current::new(&options).map(drop).map_err(|e| e.message().to_owned());
        assert_eq!(with(options(Some(VERSION_1.to_vec()), own.pem().as_bytes())), Ok(()));
        // Another issuer.
        let mut der = Pem::new("x", None, VERSION_1).certificates().unwrap()[0].to_vec();
        let name = der.windows(COMMON_NAME.len()).position(|part| part == COMMON_NAME).unwrap();
        der[name + COMMON_NAME.len() + 2] ^= 1;
        let issued = STANDARD.encode(&der);
        let issued = format!("-----BEGIN CERTIFICATE-----\n{issued}\n-----END CERTIFICATE-----\n");
        let said = with(options(Some(issued.into_bytes()), own.pem().as_bytes())).unwrap_err();
        assert!(said.starts_with("tls_client_ca has a certificate of X.509 version 1"), "{said}");
        let said = with(options(None, VERSION_1)).unwrap_err();
        assert!(said.starts_with("tls_cert is a certificate of X.509 version 1"), "{said}");
        assert!(said.contains("subjectAltName"), "{said}");
    }

    #[test]
    fn the_user_is_the_common_name() {
        assert_eq!(name_in(&["till-7"]).as_deref(), Some("till-7"));
        assert_eq!(name_in(&["Jürgen"]).as_deref(), Some("Jürgen"));
        for none in [&[][..], &[""], &["a\nb"], &["a\0"], &[&"x".repeat(MAX_NAME + 1)]] {
            assert_eq!(name_in(none), None, "{none:?}");
        }
        assert_eq!(name_in(&["one", "two"]), None);
        for malformed in [&b"\x30\x03\x02\x01\x01"[..], b""] {
            assert_eq!(common_name(&CertificateDer::from(malformed)), None);
        }
    }
}
