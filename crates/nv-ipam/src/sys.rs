//! System calls that the standard library does not offer. All `unsafe` code of this crate is here.

use std::ffi::{c_char, c_int, c_long};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("the structures below are those of 64-bit Linux");

const AF_UNIX: c_int = 1;
const SOCK_STREAM: c_int = 1;
const SOCK_CLOEXEC: c_int = 0o2_000_000;
const LOCK_EX: c_int = 2;
const LOCK_NB: c_int = 4;
const PATH_SIZE: usize = 108;
pub const O_NONBLOCK: c_int = 0o4000;
#[cfg(any(target_arch = "aarch64", target_arch = "powerpc64"))]
pub const O_NOFOLLOW: c_int = 0o100_000;
#[cfg(any(target_arch = "aarch64", target_arch = "powerpc64"))]
pub const O_DIRECTORY: c_int = 0o40_000;
#[cfg(not(any(target_arch = "aarch64", target_arch = "powerpc64")))]
pub const O_NOFOLLOW: c_int = 0o400_000;
#[cfg(not(any(target_arch = "aarch64", target_arch = "powerpc64")))]
pub const O_DIRECTORY: c_int = 0o200_000;

#[repr(C)]
struct UnixAddress {
    family: u16,
    path: [u8; PATH_SIZE],
}

#[repr(C)]
struct BrokenDownTime {
    fields: [c_int; 9],
    offset_s: c_long,
    zone: *const c_char,
}

unsafe extern "C" {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn connect(socket: c_int, address: *const UnixAddress, length: u32) -> c_int;
    fn flock(file: c_int, operation: c_int) -> c_int;
    fn tzset();
    fn localtime_r(time: *const i64, into: *mut BrokenDownTime) -> *mut BrokenDownTime;
}

/// Connect to a socket by its path, or by its abstract name (which begins with a zero byte).
///
/// The standard library's call takes no timeout, and blocks forever when the listener's backlog is full.
pub fn connect_unix(path: &[u8], timeout: Duration) -> io::Result<UnixStream> {
    let is_abstract = path.first() == Some(&0);
    let most = if is_abstract { PATH_SIZE } else { PATH_SIZE - 1 };
    if path.is_empty() || path.len() > most {
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("the path has more than {most} bytes, or none")));
    }
    let mut address = UnixAddress { family: AF_UNIX as u16, path: [0; PATH_SIZE] };
    address.path[..path.len()].copy_from_slice(path);
    // SAFETY: no pointer is passed; a descriptor that is returned is ours alone.
    let stream = unsafe {
        match socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) {
            -1 => return Err(io::Error::last_os_error()),
            descriptor => UnixStream::from(OwnedFd::from_raw_fd(descriptor)),
        }
    };
    // On Linux this limits `connect`, too.
    stream.set_write_timeout(Some(timeout))?;
    let length = 2 + path.len() + usize::from(!is_abstract);
    // SAFETY: the address lives until the call returns, and `length` is not above its size.
    match unsafe { connect(stream.as_raw_fd(), &raw const address, length as u32) } {
        0 => Ok(stream),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Try to lock the file; the lock ends when the file is closed.
pub fn try_lock(file: &std::fs::File) -> bool {
    // SAFETY: no pointer is passed, and the descriptor is open as long as the file is.
    unsafe { flock(file.as_raw_fd(), LOCK_EX | LOCK_NB) == 0 }
}

/// Offset of local time from UTC in seconds.
pub fn local_offset_s(time_s: i64) -> i64 {
    let mut into = BrokenDownTime { fields: [0; 9], offset_s: 0, zone: std::ptr::null() };
    // SAFETY: both structures live until the calls return, and no other thread reads or sets the time zone.
    unsafe {
        tzset();
        if localtime_r(&raw const time_s, &raw mut into).is_null() {
            return 0;
        }
    }
    into.offset_s
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::UnixListener;
    use std::time::Instant;

    #[test]
    fn a_listener_is_reached() {
        let folder = scratch::folder();
        let path = folder.join("s");
        let listener = UnixListener::bind(&path).unwrap();
        connect_unix(path.as_os_str().as_bytes(), Duration::from_secs(30)).unwrap();
        listener.accept().unwrap();
    }

    #[test]
    fn a_missing_socket_is_an_error_at_once() {
        let folder = scratch::folder();
        let path = folder.join("none");
        let error = connect_unix(path.as_os_str().as_bytes(), Duration::from_secs(30)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(connect_unix(&[b'x'; 200], Duration::from_secs(30)).is_err());
        assert!(connect_unix(b"", Duration::from_secs(30)).is_err());
    }

    #[test]
    fn a_listener_that_accepts_nothing_is_left_in_time() {
        let folder = scratch::folder();
        let path = folder.join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        let mut waiting = Vec::new();
        let begun = Instant::now();
        let error = loop {
            match connect_unix(path.as_os_str().as_bytes(), Duration::from_millis(30)) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
            assert!(waiting.len() < 100_000);
        };
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
        assert!(begun.elapsed() >= Duration::from_millis(30));
    }

    #[test]
    fn the_flags_of_open_are_this_machines() {
        use std::os::unix::fs::OpenOptionsExt;
        let folder = scratch::folder();
        std::fs::write(folder.join("file"), "").unwrap();
        std::os::unix::fs::symlink("file", folder.join("link")).unwrap();
        let open = |name: &str, flags| {
            std::fs::OpenOptions::new().read(true).custom_flags(flags).open(folder.join(name)).is_ok()
        };
        assert!(open("link", 0) && !open("link", O_NOFOLLOW) && open("file", O_NOFOLLOW | O_NONBLOCK));
        assert!(open(".", O_DIRECTORY) && !open("file", O_DIRECTORY));
    }

    #[test]
    fn only_one_has_a_lock() {
        let folder = scratch::folder();
        let path = folder.join("l");
        let first = std::fs::File::create(&path).unwrap();
        let second = std::fs::File::open(&path).unwrap();
        assert!(try_lock(&first));
        assert!(!try_lock(&second));
        drop(first);
        assert!(try_lock(&second));
    }
}
