//! A single gRPC call over one connection, without threads or an event loop.
//!
//! In: a gRPC target, a method, a message and a deadline. Out: the response message or a `Status`. A connection that
//! cannot be established fails at once; the container runtime retries.

mod connection;
mod hpack;
mod huffman;
mod resolve;
mod target;

use std::time::{Duration, Instant};

use connection::Stream;
use target::Endpoint;

/// The status of a failed call.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    pub code: u32,
    pub message: String,
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
        Status { code, message: message.into() }
    }

    pub fn name(&self) -> String {
        NAMES.get(self.code as usize).map_or_else(|| self.code.to_string(), ToString::to_string)
    }
}

pub fn call(target: &str, method: &str, message: &[u8], timeout: Duration) -> Result<Vec<u8>, Status> {
    let deadline = Instant::now() + timeout;
    let endpoint = target::parse(target).map_err(|why| {
        Status::new(Status::INVALID_ARGUMENT, format!("daemonSocket {target:?} cannot be used: {why}"))
    })?;
    let stream = connect(&endpoint, deadline)
        .map_err(|why| Status::new(Status::UNAVAILABLE, format!("no connection to the daemon at {target}: {why}")))?;
    let answer = connection::exchange(stream, &endpoint.authority(), method, message, deadline);
    answer.map_err(|status| Status { message: format!("{} (daemon at {target})", status.message), ..status })
}

fn connect(endpoint: &Endpoint, deadline: Instant) -> Result<Stream, String> {
    match endpoint {
        Endpoint::Unix(path) => Stream::connect_unix(path, deadline).map_err(|error| error.to_string()),
        Endpoint::Tcp { host, port } => {
            let mut problem = format!("{host} has no address");
            for address in resolve::addresses(host, *port, deadline)? {
                match Stream::connect_tcp(&address, deadline) {
                    Ok(stream) => return Ok(stream),
                    Err(error) => problem = format!("{address}: {error}"),
                }
            }
            Err(problem)
        }
    }
}
