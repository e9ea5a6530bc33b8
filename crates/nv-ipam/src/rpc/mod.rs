//! A single gRPC call over one connection, without threads or an event loop.
//!
//! In: a gRPC target, a method, a message and a timeout. Out: the response message or a `Status`. A daemon that is being
//! replaced is absent for a moment: a missing socket, or one that refuses connections, is tried again until the timeout,
//! and so is a call that the daemon provably did not begin before it went away. Any other connection that cannot be
//! established fails at once; the container runtime retries.

mod connection;
mod hpack;
mod huffman;
mod resolve;
mod target;

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, Instant};

use connection::Stream;
use target::Endpoint;

/// The pause before an absent daemon is looked for again: mostly it is there within a second.
const PAUSE: Duration = Duration::from_millis(10);
const LATER_PAUSE: Duration = Duration::from_millis(50);
/// How often a call is made again that the daemon did not begin. A daemon that refuses the caller ends every connection.
const MOST_REPEATS: u32 = 2;

/// The status of a failed call.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    pub code: u32,
    pub message: String,
    /// Whether the daemon provably did not begin the call, so that it can be made again.
    pub is_unprocessed: bool,
}

/// What to do about a daemon that is not there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Absence {
    Wait,
    Fail,
}

const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

impl Status {
    pub const CANCELLED: u32 = 1;
    pub const UNKNOWN: u32 = 2;
    pub const INVALID_ARGUMENT: u32 = 3;
    pub const DEADLINE_EXCEEDED: u32 = 4;
    #[cfg(test)]
    pub const NOT_FOUND: u32 = 5;
    pub const PERMISSION_DENIED: u32 = 7;
    pub const RESOURCE_EXHAUSTED: u32 = 8;
    pub const UNIMPLEMENTED: u32 = 12;
    pub const INTERNAL: u32 = 13;
    pub const UNAVAILABLE: u32 = 14;
    pub const UNAUTHENTICATED: u32 = 16;

    pub fn new(code: u32, message: impl Into<String>) -> Status {
        Status { code, message: message.into(), is_unprocessed: false }
    }

    fn unprocessed(message: impl Into<String>) -> Status {
        Status { is_unprocessed: true, ..Status::new(Status::UNAVAILABLE, message) }
    }

    pub fn name(&self) -> String {
        NAMES.get(self.code as usize).map_or_else(|| self.code.to_string(), ToString::to_string)
    }
}

pub fn call(
    target: &str,
    method: &str,
    message: &[u8],
    timeout: Duration,
    absence: Absence,
) -> Result<Vec<u8>, Status> {
    let begun = Instant::now();
    let deadline = begun + timeout;
    let endpoint = target::parse(target).map_err(|why| {
        Status::new(Status::INVALID_ARGUMENT, format!("daemonSocket {target:?} cannot be used: {why}"))
    })?;
    let mut repeats = 0;
    let mut absent = None;
    loop {
        let mut pause = if begun.elapsed() < Duration::from_secs(1) { PAUSE } else { LATER_PAUSE };
        let has_time = absence == Absence::Wait && Instant::now() + pause < deadline;
        match connect(&endpoint, deadline) {
            Ok(stream) => match connection::exchange(stream, &endpoint.authority(), method, message, deadline) {
                Err(status) if status.is_unprocessed && has_time && repeats < MOST_REPEATS => {
                    repeats += 1;
                    pause = LATER_PAUSE;
                }
                Err(status) => {
                    let message = format!("{} (daemon at {target})", status.message);
                    return Err(Status { message, ..status });
                }
                answer => return answer,
            },
            Err(problem) if problem.is_absence && has_time => absent = Some(problem),
            Err(problem) => {
                // Where the timeout passed in the pause, there was no further attempt.
                let problem = absent.filter(|_| Instant::now() >= deadline).unwrap_or(problem);
                let mut text = format!("no connection to the daemon at {target}: {}", problem.why);
                if problem.is_absence && absence == Absence::Wait {
                    text += &format!(" (waited {:.1} s)", begun.elapsed().as_secs_f64());
                }
                return Err(Status::new(Status::UNAVAILABLE, text));
            }
        }
        std::thread::sleep(pause);
    }
}

struct NoConnection {
    why: String,
    /// Whether the daemon is absent, as while it is replaced; otherwise it cannot be used.
    is_absence: bool,
}

fn connect(endpoint: &Endpoint, deadline: Instant) -> Result<Stream, NoConnection> {
    match endpoint {
        Endpoint::Unix(path) => Stream::connect_unix(path, deadline).map_err(|error| NoConnection {
            why: error.to_string(),
            is_absence: is_absence(&error) && !is_other_file(path),
        }),
        Endpoint::Tcp { host, port } => {
            let mut problem = NoConnection { why: format!("{host} has no address"), is_absence: false };
            let addresses = resolve::addresses(host, *port, deadline);
            for address in addresses.map_err(|why| NoConnection { why, is_absence: false })? {
                match Stream::connect_tcp(&address, deadline) {
                    Ok(stream) => return Ok(stream),
                    Err(error) => {
                        problem.why = format!("{address}: {error}");
                        problem.is_absence |= is_absence(&error);
                    }
                }
            }
            Err(problem)
        }
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}

/// Whether something else than a socket has this name: it refuses connections as a socket without a listener does.
fn is_other_file(path: &[u8]) -> bool {
    let metadata = Path::new(OsStr::from_bytes(path)).metadata();
    metadata.is_ok_and(|metadata| !metadata.file_type().is_socket())
}

#[cfg(test)]
mod tests;
