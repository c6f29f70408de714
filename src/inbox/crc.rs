//! CRC-32C (Castagnoli, RFC 3720 B.4): the checksum that storage formats use. The `crc32fast` that comes with sled
//! computes another one (CRC-32 of ISO 3309), so this is our own: eight tables, eight bytes a step.

const POLYNOMIAL: u32 = 0x82F6_3B78;

static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "it counts to 255")]
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                crc >> 1 ^ POLYNOMIAL
            } else {
                crc >> 1
            };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut nth = 1;
    while nth < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[nth - 1][byte];
            tables[nth][byte] = before >> 8 ^ tables[0][(before & 0xFF) as usize];
            byte += 1;
        }
        nth += 1;
    }
    tables
}

/// A checksum under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crc(u32);

impl Crc {
    /// Over nothing yet.
    pub(super) const fn new() -> Self {
        Self(!0)
    }

    /// Goes on over these bytes.
    #[must_use]
    pub(super) fn over(self, bytes: &[u8]) -> Self {
        let step =
            |crc: u32, byte: &u8| TABLES[0][usize::from(crc.to_le_bytes()[0] ^ byte)] ^ crc >> 8;
        let mut eights = bytes.chunks_exact(8);
        let mut crc = self.0;
        for eight in &mut eights {
            let [a, b, c, d] = crc.to_le_bytes();
            let indices = [
                eight[0] ^ a,
                eight[1] ^ b,
                eight[2] ^ c,
                eight[3] ^ d,
                eight[4],
                eight[5],
                eight[6],
                eight[7],
            ];
            crc = indices
                .iter()
                .zip(TABLES.iter().rev())
                .fold(0, |sum, (index, table)| sum ^ table[usize::from(*index)]);
        }
        Self(eights.remainder().iter().fold(crc, step))
    }

    /// The checksum.
    pub(super) const fn sum(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 3720 B.4, and the check value of the catalogues.
    #[test]
    fn sums_are_those_of_the_rfc() {
        let rising: Vec<u8> = (0..32).collect();
        let falling: Vec<u8> = (0..32).rev().collect();
        for (bytes, sum) in [
            (&[0; 32][..], 0x8A91_36AA),
            (&[0xFF; 32], 0x62A8_AB43),
            (&rising, 0x46DD_794E),
            (&falling, 0x113F_DB5C),
            (b"123456789", 0xE306_9283),
            (b"", 0),
        ] {
            assert_eq!(Crc::new().over(bytes).sum(), sum, "{bytes:?}");
        }
    }

    #[test]
    fn pieces_give_the_sum_of_the_whole() {
        let whole: Vec<u8> = (0..=255).collect();
        let sum = Crc::new().over(&whole).sum();
        for cut in 0..whole.len() {
            let (left, right) = whole.split_at(cut);
            assert_eq!(Crc::new().over(left).over(right).sum(), sum);
        }
    }
}
