//! The Huffman code of HTTP/2 header compression (RFC 7541, appendix B).
//!
//! The code is canonical: shorter codes come first, and codes of equal length are in the order of their symbols. It is
//! built from the lengths alone.

const SYMBOLS: usize = 257;
const END_OF_STRING: u16 = 256;
const LONGEST: usize = 30;

/// Code length in bits of each byte, and of the end-of-string symbol.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11,
    10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8,
    15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5,
    6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23,
    23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21,
    23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25,
    26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26,
    28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

struct Code {
    /// Symbols sorted by code length, then by value.
    symbols: [u16; SYMBOLS],
    /// For each length: its first code, and where its symbols begin.
    first: [(u32, usize); LONGEST + 1],
    counts: [u32; LONGEST + 1],
}

const CODE: Code = canonical();

const fn canonical() -> Code {
    let mut code = Code { symbols: [0; SYMBOLS], first: [(0, 0); LONGEST + 1], counts: [0; LONGEST + 1] };
    let (mut length, mut next, mut place) = (1, 0, 0);
    while length <= LONGEST {
        next <<= 1;
        code.first[length] = (next, place);
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                code.symbols[place] = symbol as u16;
                code.counts[length] += 1;
                place += 1;
                next += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    code
}

/// The decoded string; `None` when the code or its padding is invalid.
pub fn decode(encoded: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(encoded.len() * 2);
    let (mut code, mut length) = (0u32, 0usize);
    for byte in encoded {
        for place in (0..8).rev() {
            code = code << 1 | u32::from(byte >> place & 1);
            length += 1;
            if length > LONGEST {
                return None;
            }
            let (first, begin) = CODE.first[length];
            let Some(offset) = code.checked_sub(first).filter(|offset| *offset < CODE.counts[length]) else {
                continue;
            };
            match CODE.symbols[begin + offset as usize] {
                END_OF_STRING => return None,
                symbol => decoded.push(symbol as u8),
            }
            (code, length) = (0, 0);
        }
    }
    // Padding is a prefix of the end-of-string code: fewer than eight 1 bits.
    (length < 8 && code == (1 << length) - 1).then_some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(text: &[u8]) -> Vec<u8> {
        let (mut bits, mut count, mut out) = (0u64, 0, Vec::new());
        for byte in text {
            let length = LENGTHS[*byte as usize] as usize;
            let (first, begin) = CODE.first[length];
            let place = CODE.symbols[begin..].iter().position(|symbol| *symbol == u16::from(*byte)).unwrap();
            bits = bits << length | u64::from(first + place as u32);
            count += length;
            while count >= 8 {
                count -= 8;
                out.push((bits >> count) as u8);
                bits &= (1 << count) - 1;
            }
        }
        if count > 0 {
            out.push((bits << (8 - count)) as u8 | (0xff >> count));
        }
        out
    }

    #[test]
    fn the_standards_examples_decode() {
        let examples: [(&[u8], &str); 5] = [
            (&[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff], "www.example.com"),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], "no-cache"),
            (&[0x64, 0x02], "302"),
            (&[0xae, 0xc3, 0x77, 0x1a, 0x4b], "private"),
            (&[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f], "custom-key"),
        ];
        for (bytes, text) in examples {
            assert_eq!(decode(bytes).unwrap(), text.as_bytes());
        }
    }

    #[test]
    fn every_byte_survives_a_round() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)).unwrap(), all);
        for byte in 0..=255 {
            assert_eq!(decode(&encode(&[byte])).unwrap(), [byte]);
        }
    }

    #[test]
    fn wrong_padding_is_refused() {
        assert_eq!(decode(&[0xff]), None);
        assert_eq!(decode(&[0x18]), None);
        assert_eq!(decode(&[0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(decode(&[]), Some(Vec::new()));
    }
}
