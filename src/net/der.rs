//! Elements of DER (X.690), as certificates and public keys have them.

/// Tag of a sequence.
pub const SEQUENCE: u8 = 0x30;
/// Tag of a set.
pub const SET: u8 = 0x31;
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

/// The public key of a certificate of any version, as the SubjectPublicKeyInfo in DER.
pub(crate) fn public_key_of(certificate: &[u8]) -> Option<&[u8]> {
    /// Tag of the version, which those of version 1 lack.
    const VERSION: u8 = 0xa0;
    let mut outer = certificate;
    let mut signed = element(&mut outer, |tag| tag == SEQUENCE)?;
    let mut fields = element(&mut signed, |tag| tag == SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        element(&mut fields, |_| true)?;
    }
    element(&mut fields, |tag| tag == INTEGER)?;
    // Algorithm, issuer, validity, subject.
    for _ in 0..4 {
        element(&mut fields, |tag| tag == SEQUENCE)?;
    }
    let all = fields;
    element(&mut fields, |tag| tag == SEQUENCE)?;
    Some(&all[..all.len() - fields.len()])
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
