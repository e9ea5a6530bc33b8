//! Header compression of HTTP/2 (RFC 7541): encodes headers as plain literals, decodes every representation.

use std::collections::VecDeque;

use super::huffman;

/// Size of the server's dynamic table: the default of the standard, which this client does not change.
const TABLE_SIZE: usize = 4096;
/// Overhead of a table entry beside its name and value.
const ENTRY_OVERHEAD: usize = 32;
/// Limit for all headers of a response; a few bytes can refer to a table entry many times.
const MAX_HEADERS: usize = 256 * 1024;

#[rustfmt::skip]
const STATIC_TABLE: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""), ("etag", ""),
    ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""),
    ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""),
    ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
];

pub type Header = (Vec<u8>, Vec<u8>);

/// Append a header as a literal without indexing.
pub fn write_literal(out: &mut Vec<u8>, name: &str, value: &str) {
    out.push(0);
    write_text(out, name);
    write_text(out, value);
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    let mut length = text.len();
    if length < 0x7f {
        out.push(length as u8);
    } else {
        out.push(0x7f);
        length -= 0x7f;
        while length >= 0x80 {
            out.push(length as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
    }
    out.extend_from_slice(text.as_bytes());
}

/// Keeps the dynamic table across the header blocks of one connection.
pub struct Decoder {
    entries: VecDeque<Header>,
    size: usize,
    limit: usize,
}

impl Decoder {
    pub fn new() -> Decoder {
        Decoder { entries: VecDeque::new(), size: 0, limit: TABLE_SIZE }
    }

    /// The headers of a block; `None` when the block is malformed.
    pub fn decode(&mut self, block: &[u8]) -> Option<Vec<Header>> {
        let mut input = Input(block);
        let mut headers = Vec::new();
        let mut total = 0;
        while let Some(&first) = input.0.first() {
            let header = if first & 0x80 != 0 {
                self.entry(input.integer(7)?)?
            } else if first & 0x40 != 0 {
                let header = self.literal(&mut input, 6)?;
                self.remember(header.clone());
                header
            } else if first & 0x20 != 0 {
                self.limit = input.integer(5).filter(|limit| *limit <= TABLE_SIZE)?;
                self.shrink(self.limit);
                continue;
            } else {
                self.literal(&mut input, 4)?
            };
            total += header.0.len() + header.1.len() + ENTRY_OVERHEAD;
            if total > MAX_HEADERS {
                return None;
            }
            headers.push(header);
        }
        Some(headers)
    }

    fn literal(&self, input: &mut Input<'_>, bits: u32) -> Option<Header> {
        let name = match input.integer(bits)? {
            0 => input.text()?,
            index => self.entry(index)?.0,
        };
        Some((name, input.text()?))
    }

    fn entry(&self, index: usize) -> Option<Header> {
        let place = index.checked_sub(1)?;
        if let Some((name, value)) = STATIC_TABLE.get(place) {
            return Some((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        }
        self.entries.get(place - STATIC_TABLE.len()).cloned()
    }

    fn remember(&mut self, header: Header) {
        let size = header.0.len() + header.1.len() + ENTRY_OVERHEAD;
        self.shrink(self.limit.saturating_sub(size));
        if size <= self.limit {
            self.size += size;
            self.entries.push_front(header);
        }
    }

    fn shrink(&mut self, limit: usize) {
        while self.size > limit {
            let Some((name, value)) = self.entries.pop_back() else { break };
            self.size -= name.len() + value.len() + ENTRY_OVERHEAD;
        }
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    /// An integer that begins in the low bits of a byte.
    fn integer(&mut self, bits: u32) -> Option<usize> {
        let most = (1usize << bits) - 1;
        let mut number = usize::from(self.byte()?) & most;
        if number < most {
            return Some(number);
        }
        for place in 0..4 {
            let byte = self.byte()?;
            number += usize::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        let is_packed = self.0.first()? & 0x80 != 0;
        let length = self.integer(7)?;
        let (taken, rest): (&'a [u8], &'a [u8]) = self.0.split_at_checked(length)?;
        self.0 = rest;
        if is_packed { huffman::decode(taken) } else { Some(taken.to_vec()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(pair).collect()
    }

    fn texts(headers: &[Header]) -> Vec<(String, String)> {
        let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
        headers.iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    fn sizes(decoder: &Decoder) -> (usize, usize) {
        (decoder.entries.len(), decoder.size)
    }

    #[test]
    fn the_standards_requests_decode() {
        // RFC 7541, C.4: three requests of one connection, with Huffman codes and a table that grows.
        let mut decoder = Decoder::new();
        let first = decoder.decode(&bytes("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff")).unwrap();
        let expected = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")];
        assert_eq!(texts(&first), expected.map(|(name, value)| (name.to_string(), value.to_string())));
        assert_eq!(sizes(&decoder), (1, 57));
        let second = decoder.decode(&bytes("8286 84be 5886 a8eb 1064 9cbf")).unwrap();
        assert_eq!(
            texts(&second)[3..],
            [
                (":authority".to_string(), "www.example.com".to_string()),
                ("cache-control".to_string(), "no-cache".to_string())
            ]
        );
        let third = decoder.decode(&bytes("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf")).unwrap();
        assert_eq!(texts(&third)[4], ("custom-key".to_string(), "custom-value".to_string()));
        assert_eq!(sizes(&decoder), (3, 164));
    }

    #[test]
    fn the_standards_responses_push_old_entries_out() {
        // RFC 7541, C.5: a table of 256 bytes.
        let mut decoder = Decoder::new();
        decoder.limit = 256;
        let first = "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d";
        assert_eq!(texts(&decoder.decode(&bytes(first)).unwrap())[0], (":status".to_string(), "302".to_string()));
        assert_eq!(sizes(&decoder), (4, 222));
        let second = decoder.decode(&bytes("4803 3330 37c1 c0bf")).unwrap();
        assert_eq!(texts(&second)[3].1, "https://www.example.com");
        assert_eq!(sizes(&decoder), (4, 222));
    }

    #[test]
    fn a_table_can_be_made_smaller() {
        let mut decoder = Decoder::new();
        decoder.decode(&bytes("4803 333032")).unwrap();
        assert_eq!(decoder.decode(&bytes("20")).unwrap(), Vec::new());
        assert_eq!(sizes(&decoder), (0, 0));
        assert_eq!(decoder.decode(&bytes("be")), None);
        assert!(decoder.decode(&bytes("3fe1ff03")).is_none());
    }

    #[test]
    fn broken_blocks_are_refused() {
        for hex in ["80", "be", "ff", "ffffffffffff", "40", "4003", "4083ffffff", "00 01 61", "7fffffffff0f"] {
            assert_eq!(Decoder::new().decode(&bytes(hex)), None, "{hex}");
        }
    }

    #[test]
    fn a_small_block_cannot_become_large() {
        let mut decoder = Decoder::new();
        let mut block = bytes("40 01 61 7f a1 1e");
        block.extend(vec![b'x'; 4000]);
        assert!(decoder.decode(&block).is_some());
        assert_eq!(decoder.decode(&[0xbe; 1000]), None);
    }

    #[test]
    fn literals_are_understood() {
        let mut out = Vec::new();
        let long = "v".repeat(300);
        write_literal(&mut out, "te", "trailers");
        write_literal(&mut out, "x", &long);
        let headers = texts(&Decoder::new().decode(&out).unwrap());
        assert_eq!(headers, [("te".to_string(), "trailers".to_string()), ("x".to_string(), long)]);
    }
}
