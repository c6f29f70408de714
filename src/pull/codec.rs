//! Small binary entries: variable-length numbers and length-prefixed bytes. Pure.

/// Appends fields.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn number(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.0.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
            value >>= 7;
        }
        self.0.push(u8::try_from(value).unwrap_or(0));
        self
    }

    pub(crate) fn signed(&mut self, value: i64) -> &mut Self {
        // Zigzag: small magnitudes stay short whatever their sign.
        let bits = u64::from_le_bytes(value.to_le_bytes());
        self.number(if value < 0 { !(bits << 1) } else { bits << 1 })
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.number(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub(crate) fn optional(&mut self, value: Option<&[u8]>) -> &mut Self {
        match value {
            None => self.number(0),
            Some(value) => self.number(1).bytes(value),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads them back. `None` at any point: the entry is not what was written.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn signed(&mut self) -> Option<i64> {
        let value = self.number()?;
        let bits = if value & 1 == 1 {
            !(value >> 1)
        } else {
            value >> 1
        };
        Some(i64::from_le_bytes(bits.to_le_bytes()))
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (value, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(value)
    }

    pub(crate) fn optional(&mut self) -> Option<Option<&'a [u8]>> {
        match self.number()? {
            0 => Some(None),
            1 => Some(Some(self.bytes()?)),
            _ => None,
        }
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(number: u64, signed: i64, bytes: Vec<u8>, optional: Option<Vec<u8>>) {
            let mut writer = Writer::default();
            writer.number(number).signed(signed).bytes(&bytes).optional(optional.as_deref());
            let written = writer.finish();
            let mut reader = Reader::new(&written);
            prop_assert_eq!(reader.number(), Some(number));
            prop_assert_eq!(reader.signed(), Some(signed));
            prop_assert_eq!(reader.bytes(), Some(&bytes[..]));
            prop_assert_eq!(reader.optional(), Some(optional.as_deref()));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn garbage_is_no_entry_and_no_panic(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            while reader.optional().is_some() && !reader.is_empty() {}
        }
    }
}
