//! An input as a series of steps.

/// The rest of an input.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a>(pub &'a [u8]);

impl<'a> Script<'a> {
    /// The next byte, if there is one.
    pub fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next byte; 0 behind the end.
    pub fn byte(&mut self) -> u8 {
        self.next().unwrap_or_default()
    }

    /// The next two bytes as a number.
    pub fn short(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// The next eight bytes as a number.
    pub fn long(&mut self) -> u64 {
        u64::from_be_bytes([(); 8].map(|()| self.byte()))
    }

    /// A number that is often small or at the edge of its range.
    pub fn number(&mut self) -> u64 {
        let first = self.byte();
        match first >> 6 {
            0 | 1 => u64::from(first & 0x3f),
            2 => u64::from(self.short()) << (first & 0x2f),
            _ if first & 1 == 1 => self.long(),
            _ => u64::MAX - u64::from(first >> 1 & 0x1f),
        }
    }

    /// The next bytes, as many as there are of `size`.
    pub fn take(&mut self, size: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(size.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// The next bytes as text, behind a byte with their number.
    pub fn text(&mut self) -> String {
        let size = usize::from(self.byte());
        String::from_utf8_lossy(self.take(size)).into_owned()
    }

    /// A count: a power of two up to 4096, or one less.
    pub fn count(&mut self) -> usize {
        let byte = usize::from(self.byte());
        (1 << (byte % 13)) - (byte >> 7)
    }
}

/// Repeats what `piece` gives for 0, 1, 2, ... `count` times, until it is `size` bytes long.
pub fn repeat(count: usize, size: usize, mut piece: impl FnMut(usize) -> Vec<u8>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for index in 0..count {
        bytes.extend_from_slice(&piece(index));
        if bytes.len() >= size {
            break;
        }
    }
    bytes
}
