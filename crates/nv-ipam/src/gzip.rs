//! Compression of old logs: gzip (RFC 1952) around deflate (RFC 1951) with its fixed code.
//!
//! Log lines are repetitive, so the last occurrence of the next four bytes is nearly always a good match; a better
//! search would save little space for more code.

use std::io::{self, Read, Write};

const WINDOW: usize = 32 * 1024;
const CHUNK: usize = 1 << 20;
const SHORTEST: usize = 4;
const LONGEST: usize = 258;
const HASH_BITS: u32 = 15;
const END_OF_BLOCK: u16 = 256;
const MAX_BACKLOG: usize = 64 * 1024;

const LENGTH_BASE: [u16; 29] =
    [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258];
const LENGTH_EXTRA: [u8; 29] = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];

const CRC_TABLE: [u32; 256] = crc_table();

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

/// Compress the rest of a file as one member; returns its size in bytes. An empty rest writes nothing.
pub fn compress(source: &mut impl Read, target: &mut impl Write) -> io::Result<u64> {
    let mut packer = Packer::new(target);
    let mut data = Vec::new();
    let (mut total, mut crc) = (0, u32::MAX);
    loop {
        let kept = data.len().min(WINDOW);
        let gone = data.len() - kept;
        data.drain(..gone);
        packer.base += gone;
        if source.by_ref().take(CHUNK as u64).read_to_end(&mut data)? == 0 {
            break;
        }
        if total == 0 {
            packer.begin();
        }
        for byte in &data[kept..] {
            crc = CRC_TABLE[(crc as u8 ^ byte) as usize] ^ crc >> 8;
        }
        total += (data.len() - kept) as u64;
        packer.pack(&data, kept)?;
    }
    if total > 0 {
        packer.end(!crc, total as u32)?;
    }
    Ok(total)
}

struct Packer<'a, W: Write> {
    target: &'a mut W,
    out: Vec<u8>,
    bits: u64,
    count: u32,
    /// Position in the file of the last four bytes with this hash, plus one; 0 for none.
    last: Vec<usize>,
    /// Offset of the current data in the file.
    base: usize,
}

impl<W: Write> Packer<'_, W> {
    fn new(target: &mut W) -> Packer<'_, W> {
        Packer { target, out: Vec::new(), bits: 0, count: 0, last: vec![0; 1 << HASH_BITS], base: 0 }
    }

    fn begin(&mut self) {
        self.out.extend_from_slice(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]);
        // Final block, fixed Huffman code.
        self.put(0b011, 3);
    }

    fn pack(&mut self, data: &[u8], mut at: usize) -> io::Result<()> {
        while at < data.len() {
            let (length, distance) = self.find(data, at);
            if length >= SHORTEST {
                self.match_of(length, distance);
                at += length;
            } else {
                self.symbol(u16::from(data[at]));
                at += 1;
            }
            if self.out.len() > MAX_BACKLOG {
                self.target.write_all(&self.out)?;
                self.out.clear();
            }
        }
        Ok(())
    }

    /// Length and distance of an earlier match for the next bytes.
    fn find(&mut self, data: &[u8], at: usize) -> (usize, usize) {
        let Some(next) = data[at..].first_chunk::<SHORTEST>() else { return (0, 0) };
        let hash = u32::from_le_bytes(*next).wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS);
        let before = std::mem::replace(&mut self.last[hash as usize], self.base + at + 1);
        let Some(start) = before.checked_sub(self.base + 1).filter(|start| at - start <= WINDOW) else {
            return (0, 0);
        };
        let same = data[at..].iter().zip(&data[start..]).take(LONGEST).take_while(|(a, b)| a == b).count();
        (same, at - start)
    }

    fn match_of(&mut self, length: usize, distance: usize) {
        let code = LENGTH_BASE.partition_point(|base| usize::from(*base) <= length) - 1;
        self.symbol(257 + code as u16);
        self.put((length - usize::from(LENGTH_BASE[code])) as u64, u32::from(LENGTH_EXTRA[code]));
        // Distance codes come in pairs; each pair covers twice the range of the previous pair.
        let offset = distance as u32 - 1;
        let extra = (32 - offset.leading_zeros()).saturating_sub(2);
        let code = if offset < 2 { offset } else { 2 * extra + (offset >> extra) };
        self.put(u64::from(code.reverse_bits() >> 27), 5);
        self.put(u64::from(offset & ((1 << extra) - 1)), extra);
    }

    fn symbol(&mut self, symbol: u16) {
        let (code, length) = match symbol {
            0..=143 => (0x30 + symbol, 8),
            144..=255 => (0x190 + symbol - 144, 9),
            256..=279 => (symbol - 256, 7),
            _ => (0xc0 + symbol - 280, 8),
        };
        self.put(u64::from(code.reverse_bits() >> (16 - length)), length);
    }

    fn put(&mut self, bits: u64, count: u32) {
        self.bits |= bits << self.count;
        self.count += count;
        while self.count >= 8 {
            self.out.push(self.bits as u8);
            self.bits >>= 8;
            self.count -= 8;
        }
    }

    fn end(&mut self, crc: u32, length: u32) -> io::Result<()> {
        self.symbol(END_OF_BLOCK);
        self.put(0, 7);
        self.out.extend_from_slice(&crc.to_le_bytes());
        self.out.extend_from_slice(&length.to_le_bytes());
        self.target.write_all(&self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn packed(data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        assert_eq!(compress(&mut &*data, &mut out).unwrap(), data.len() as u64);
        out
    }

    fn unpacked(bytes: &[u8]) -> Option<Vec<u8>> {
        let started = Command::new("gzip").arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.ok()?;
        let mut stdin = child.stdin.take().unwrap();
        let bytes = bytes.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&bytes).unwrap());
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        assert!(output.status.success());
        Some(output.stdout)
    }

    #[test]
    fn gzip_understands_it() {
        let mut state = 1u32;
        let mut noise = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let random: Vec<u8> = (0..70_000).map(|_| noise()).collect();
        let lines: String =
            (0..40_000).map(|n| format!("2024-01-02 [info] call {n} of container {}\n", n * 7919)).collect();
        let mixed: Vec<u8> =
            lines.bytes().zip(random.iter().cycle()).map(|(a, b)| if *b < 8 { *b } else { a }).collect();
        for data in
            [b"a".as_slice(), b"aaaaaaaaaaaaaaaaaaaaaaaaaaaa", &vec![0; 3_000_000], &random, lines.as_bytes(), &mixed]
        {
            let Some(content) = unpacked(&packed(data)) else { return };
            assert!(content == data, "{} bytes", data.len());
        }
        assert!(packed(lines.as_bytes()).len() * 4 < lines.len());
    }

    #[test]
    fn members_follow_each_other() {
        let mut both = packed(b"one ");
        both.extend(packed(b"two"));
        if let Some(content) = unpacked(&both) {
            assert_eq!(content, b"one two");
        }
        assert_eq!(packed(b""), b"");
    }
}
