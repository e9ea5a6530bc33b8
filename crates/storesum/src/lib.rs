//! FNV-1a (32 bits) over a buffer, with a C interface.
//!
//! The node daemon's store file has this checksum over its whole text and is rewritten for every batch of calls, which
//! would be too slow in Python. The library neither allocates memory nor keeps state.

const PRIME: u32 = 0x0100_0193;

/// The hash of `bytes`, continued from `start` (the hash of the preceding bytes, or the offset basis 0x811c9dc5).
pub fn fnv1a32(bytes: &[u8], start: u32) -> u32 {
    bytes.iter().fold(start, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(PRIME))
}

/// `fnv1a32` with a C interface.
///
/// # Safety
/// `data` points to `length` readable bytes; it may be null when `length` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn storesum_fnv1a32(data: *const u8, length: usize, start: u32) -> u32 {
    if length == 0 {
        return start;
    }
    // SAFETY: guaranteed by the caller.
    fnv1a32(unsafe { std::slice::from_raw_parts(data, length) }, start)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASIS: u32 = 0x811c_9dc5;

    #[test]
    fn known_sums() {
        assert_eq!(fnv1a32(b"", BASIS), BASIS);
        assert_eq!(fnv1a32(b"a", BASIS), 0xe40c_292c);
        assert_eq!(fnv1a32(b"foobar", BASIS), 0xbf9c_f968);
        assert_eq!(fnv1a32(br#"{"version":1,"checksum":0,"pools":{}}"#, BASIS), 1_512_731_210);
    }

    #[test]
    fn a_sum_goes_on_where_another_ended() {
        assert_eq!(fnv1a32(b"bar", fnv1a32(b"foo", BASIS)), fnv1a32(b"foobar", BASIS));
    }

    #[test]
    fn no_bytes_may_have_no_address() {
        assert_eq!(unsafe { storesum_fnv1a32(std::ptr::null(), 0, 7) }, 7);
    }
}
