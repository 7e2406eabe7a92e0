//! Elements of DER (X.690), as certificates and public keys have them.

/// Tag of a sequence.
pub const SEQUENCE: u8 = 0x30;
/// Tag of a set.
pub const SET: u8 = 0x31;
/// Tag of a truth value.
const BOOLEAN: u8 = 0x01;
/// Tag of an integer.
pub const INTEGER: u8 = 0x02;
/// Tag of a string of bits.
pub const BITS: u8 = 0x03;
/// Tag of an object identifier.
pub const OID: u8 = 0x06;

/// Takes the contents of an element with a tag that is wanted, in DER.
pub fn element<'a>(from: &mut &'a [u8], is_wanted: impl Fn(u8) -> bool) -> Option<&'a [u8]> {
    let (&tag, rest) = from.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if !(1..=2).contains(&digits.len()) {
            return None;
        }
        length = digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit));
        rest = after;
    }
    let (contents, after) = rest.split_at_checked(length)?;
    *from = after;
    is_wanted(tag).then_some(contents)
}

/// Fields of a certificate (RFC 5280, 4.1) in DER.
struct Fields<'a> {
    is_version_1: bool,
    issuer: &'a [u8],
    subject: &'a [u8],
    /// SubjectPublicKeyInfo, with its head.
    public_key: &'a [u8],
    /// Fields behind the public key.
    rest: &'a [u8],
}

fn fields_of(certificate: &[u8]) -> Option<Fields<'_>> {
    /// Tag of the version, which those of version 1 lack.
    const VERSION: u8 = 0xa0;
    let mut outer = certificate;
    let mut signed = element(&mut outer, |tag| tag == SEQUENCE)?;
    let mut fields = element(&mut signed, |tag| tag == SEQUENCE)?;
    let is_version_1 = fields.first() != Some(&VERSION);
    if !is_version_1 {
        element(&mut fields, |_| true)?;
    }
    element(&mut fields, |tag| tag == INTEGER)?;
    let mut next = || element(&mut fields, |tag| tag == SEQUENCE);
    let (_algorithm, issuer, _validity, subject) = (next()?, next()?, next()?, next()?);
    let all = fields;
    element(&mut fields, |tag| tag == SEQUENCE)?;
    let public_key = &all[..all.len() - fields.len()];
    Some(Fields { is_version_1, issuer, subject, public_key, rest: fields })
}

/// The public key of a certificate of any version, as the SubjectPublicKeyInfo in DER.
pub(crate) fn public_key_of(certificate: &[u8]) -> Option<&[u8]> {
    fields_of(certificate).map(|fields| fields.public_key)
}

/// Whether a certificate is that of an authority (RFC 5280, 4.2.1.9). Those of version 1 do not
/// say: one that is signed by itself is.
pub fn is_authority(certificate: &[u8]) -> bool {
    fields_of(certificate).is_some_and(|fields| {
        if fields.is_version_1 {
            fields.issuer == fields.subject
        } else {
            says_authority(fields.rest) == Some(true)
        }
    })
}

/// The flag of the basic constraints among the extensions of a certificate.
fn says_authority(mut rest: &[u8]) -> Option<bool> {
    const EXTENSIONS: u8 = 0xa3;
    const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
    const OCTETS: u8 = 0x04;
    while rest.first() != Some(&EXTENSIONS) {
        element(&mut rest, |_| true)?;
    }
    let mut extensions = element(&mut rest, |_| true)?;
    let mut extensions = element(&mut extensions, |tag| tag == SEQUENCE)?;
    while !extensions.is_empty() {
        let mut extension = element(&mut extensions, |tag| tag == SEQUENCE)?;
        if element(&mut extension, |tag| tag == OID)? != BASIC_CONSTRAINTS {
            continue;
        }
        if extension.first() != Some(&OCTETS) {
            // Whether it is critical.
            element(&mut extension, |tag| tag == BOOLEAN)?;
        }
        let mut value = element(&mut extension, |tag| tag == OCTETS)?;
        let mut constraints = element(&mut value, |tag| tag == SEQUENCE)?;
        return Some(element(&mut constraints, |tag| tag == BOOLEAN) == Some(&[0xff]));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_ends_where_its_length_says() {
        let take =
            |mut bytes: &[u8]| element(&mut bytes, |tag| tag == SET).map(|found| (found.len(), bytes.len()));
        assert_eq!(take(b"\x31\x02ab"), Some((2, 0)));
        assert_eq!(take(b"\x31\x01ab"), Some((1, 1)));
        assert_eq!(take(&[&b"\x31\x81\x80"[..], &[0; 130]].concat()), Some((128, 2)));
        assert_eq!(take(&[&b"\x31\x82\x01\x00"[..], &[0; 256]].concat()), Some((256, 0)));
        for bad in
            [&b""[..], b"\x31", b"\x31\x03ab", b"\x30\x02ab", b"\x31\x80", b"\x31\x83\0\0\0", b"\x31\x82\x01"]
        {
            assert_eq!(take(bad), None, "{bad:?}");
        }
    }
}
