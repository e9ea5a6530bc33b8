//! A unary gRPC call over HTTP/2 (RFC 9113): one stream, one message each way, then the connection is closed.
//!
//! The whole request is sent in one write, before the server's first frame. Then frames are read until the stream ends;
//! settings and pings are acknowledged, and the size of a response is bounded. Every wait ends at the deadline.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::Status;
use super::hpack::{self, Decoder, Header};
use crate::sys;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD: usize = 9;
/// Initial values of the standard, in force until changed by SETTINGS.
const MAX_FRAME: usize = 16_384;
const WINDOW: i64 = 65_535;
/// Maximum size of a response; the usual limit of gRPC.
const MAX_MESSAGE: usize = 4 << 20;
const MESSAGE_HEAD: usize = 5;
const MAX_HEADER_BLOCK: usize = 64 * 1024;
const STREAM: u32 = 1;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const ACK: u8 = 0x1;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

const SETTING_ENABLE_PUSH: u16 = 2;
const SETTING_INITIAL_WINDOW: u16 = 4;
const SETTING_MAX_FRAME: u16 = 5;

const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;
const INADEQUATE_SECURITY: u32 = 12;

pub enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    pub fn connect_unix(path: &[u8], deadline: Instant) -> io::Result<Stream> {
        sys::connect_unix(path, remaining(deadline)?).map(Stream::Unix)
    }

    pub fn connect_tcp(address: &SocketAddr, deadline: Instant) -> io::Result<Stream> {
        let stream = TcpStream::connect_timeout(address, remaining(deadline)?)?;
        stream.set_nodelay(true)?;
        Ok(Stream::Tcp(stream))
    }

    fn read(&mut self, into: &mut [u8], deadline: Instant) -> io::Result<usize> {
        let timeout = Some(remaining(deadline)?);
        match self {
            Stream::Unix(stream) => stream.set_read_timeout(timeout).and_then(|()| stream.read(into)),
            Stream::Tcp(stream) => stream.set_read_timeout(timeout).and_then(|()| stream.read(into)),
        }
    }

    fn write_all(&mut self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            let timeout = Some(remaining(deadline)?);
            let written = match self {
                Stream::Unix(stream) => stream.set_write_timeout(timeout).and_then(|()| stream.write(bytes)),
                Stream::Tcp(stream) => stream.set_write_timeout(timeout).and_then(|()| stream.write(bytes)),
            };
            match written {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn remaining(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn failed(error: &io::Error) -> Status {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Status::new(Status::DEADLINE_EXCEEDED, "no answer in time"),
        _ => Status::new(Status::UNAVAILABLE, format!("the connection was lost: {error}")),
    }
}

fn broken(what: &str) -> Status {
    Status::new(Status::INTERNAL, format!("the response is not gRPC: {what}"))
}

/// Make the call and wait for its response.
pub fn exchange(
    stream: Stream,
    authority: &str,
    method: &str,
    message: &[u8],
    deadline: Instant,
) -> Result<Vec<u8>, Status> {
    let mut body = vec![0];
    body.extend_from_slice(&(message.len() as u32).to_be_bytes());
    body.extend_from_slice(message);
    let mut exchange = Exchange {
        stream,
        deadline,
        has_begun: false,
        inbox: Vec::new(),
        outbox: opening(authority, method, deadline),
        body: &body,
        window: WINDOW,
        stream_window: WINDOW,
        initial_window: WINDOW,
        max_frame: MAX_FRAME,
        decoder: Decoder::new(),
        block: None,
        has_headers: false,
        answer: Vec::new(),
    };
    loop {
        exchange.send_body();
        let frame = exchange.receive()?;
        if let Some(answer) = exchange.handle(&frame)? {
            return Ok(answer);
        }
    }
}

/// The frames before the message: preface, settings, window update for a whole response, headers.
fn opening(authority: &str, method: &str, deadline: Instant) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    let room = (MAX_MESSAGE + MESSAGE_HEAD) as u32;
    let mut settings = Vec::new();
    for (setting, value) in [(SETTING_ENABLE_PUSH, 0), (SETTING_INITIAL_WINDOW, room)] {
        settings.extend_from_slice(&setting.to_be_bytes());
        settings.extend_from_slice(&value.to_be_bytes());
    }
    write_frame(&mut out, SETTINGS, 0, 0, &settings);
    write_frame(&mut out, WINDOW_UPDATE, 0, 0, &(room - WINDOW as u32).to_be_bytes());
    let mut headers = Vec::new();
    let pairs = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", authority),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", concat!("nv-ipam/", include_str!("../../../../VERSION")).trim_ascii_end()),
        ("grpc-timeout", &timeout_text(deadline)),
    ];
    for (name, value) in pairs {
        hpack::write_literal(&mut headers, name, value);
    }
    write_frame(&mut out, HEADERS, END_HEADERS, STREAM, &headers);
    out
}

/// At most eight digits and a unit.
fn timeout_text(deadline: Instant) -> String {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.as_millis() {
        millis @ 0..100_000_000 => format!("{}m", millis.max(1)),
        _ => format!("{}S", left.as_secs().min(99_999_999)),
    }
}

fn write_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn number(&self, at: usize) -> Option<u32> {
        let bytes = self.payload.get(at..at + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    }

    /// The payload without padding and priority.
    fn content(&self) -> Option<&[u8]> {
        let mut content = self.payload.as_slice();
        if self.has(PADDED) {
            let (&padding, rest) = content.split_first()?;
            content = rest.get(..rest.len().checked_sub(padding as usize)?)?;
        }
        if self.kind == HEADERS && self.has(PRIORITY) {
            content = content.get(5..)?;
        }
        Some(content)
    }
}

/// A header block that is not complete yet.
struct Block {
    fragment: Vec<u8>,
    ends_stream: bool,
}

struct Exchange<'a> {
    stream: Stream,
    deadline: Instant,
    /// Whether the server has sent anything.
    has_begun: bool,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// The part of the message that is not sent yet.
    body: &'a [u8],
    window: i64,
    stream_window: i64,
    initial_window: i64,
    max_frame: usize,
    decoder: Decoder,
    block: Option<Block>,
    has_headers: bool,
    answer: Vec<u8>,
}

impl Exchange<'_> {
    /// Queue as much of the message as the server's window allows.
    fn send_body(&mut self) {
        loop {
            let room = self.window.min(self.stream_window).clamp(0, self.max_frame as i64) as usize;
            let (now, later) = self.body.split_at(room.min(self.body.len()));
            if now.is_empty() {
                return;
            }
            let flags = if later.is_empty() { END_STREAM } else { 0 };
            write_frame(&mut self.outbox, DATA, flags, STREAM, now);
            self.window -= now.len() as i64;
            self.stream_window -= now.len() as i64;
            self.body = later;
        }
    }

    /// The next frame; queued output is sent before waiting for it.
    fn receive(&mut self) -> Result<Frame, Status> {
        loop {
            if let Some(frame) = self.take_frame()? {
                return Ok(frame);
            }
            if !self.outbox.is_empty() {
                let written = self.stream.write_all(&self.outbox, self.deadline);
                self.outbox.clear();
                // A server that rejects the call may have answered and closed; its response can still be read.
                if let Err(error) = written {
                    if !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) {
                        return Err(failed(&error));
                    }
                }
            }
            let mut chunk = [0; MAX_FRAME];
            match self.stream.read(&mut chunk, self.deadline) {
                Ok(0) => return Err(self.lost("the daemon closed the connection")),
                Ok(count) => {
                    self.has_begun = true;
                    self.inbox.extend_from_slice(&chunk[..count]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Err(self.lost(&failed(&error).message));
                }
                Err(error) => return Err(failed(&error)),
            }
        }
    }

    /// The connection has ended. A daemon greets before it reads a call, and on a Unix socket no greeting gets lost: so
    /// without one it has not accepted the connection.
    fn lost(&self, message: &str) -> Status {
        match self.stream {
            Stream::Unix(_) if !self.has_begun => Status::unprocessed(message),
            _ => Status::new(Status::UNAVAILABLE, message),
        }
    }

    fn take_frame(&mut self) -> Result<Option<Frame>, Status> {
        let Some(head) = self.inbox.first_chunk::<FRAME_HEAD>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        if length > MAX_FRAME {
            return Err(broken("a frame is too long"));
        }
        if self.inbox.len() < FRAME_HEAD + length {
            return Ok(None);
        }
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
        let payload = self.inbox[FRAME_HEAD..FRAME_HEAD + length].to_vec();
        self.inbox.drain(..FRAME_HEAD + length);
        Ok(Some(Frame { kind, flags, stream, payload }))
    }

    /// Process a frame; returns the response once it is complete.
    fn handle(&mut self, frame: &Frame) -> Result<Option<Vec<u8>>, Status> {
        if self.block.is_some() && frame.kind != CONTINUATION {
            return Err(broken("a header block is interrupted by another frame"));
        }
        if matches!(frame.kind, DATA | HEADERS | CONTINUATION) && frame.stream != STREAM {
            return Err(broken("a frame for a stream that was not opened"));
        }
        match frame.kind {
            DATA => self.on_data(frame)?,
            HEADERS | CONTINUATION => return self.on_headers(frame),
            RST_STREAM if frame.stream == STREAM => return Err(reset(frame.number(0).unwrap_or_default())),
            SETTINGS if !frame.has(ACK) => self.on_settings(frame)?,
            PING if !frame.has(ACK) => write_frame(&mut self.outbox, PING, ACK, 0, &frame.payload),
            GOAWAY if frame.number(0).is_none_or(|last| last & 0x7fff_ffff < STREAM) => {
                return Err(Status::unprocessed("the daemon is shutting down"));
            }
            WINDOW_UPDATE => {
                let more = i64::from(frame.number(0).unwrap_or_default() & 0x7fff_ffff);
                let window = if frame.stream == 0 { &mut self.window } else { &mut self.stream_window };
                *window += more;
            }
            PUSH_PROMISE => return Err(broken("PUSH_PROMISE although push is disabled")),
            _ => {}
        }
        Ok(None)
    }

    fn on_data(&mut self, frame: &Frame) -> Result<(), Status> {
        if !self.has_headers {
            return Err(broken("a message before its headers"));
        }
        let content = frame.content().ok_or_else(|| broken("wrong padding"))?;
        self.answer.extend_from_slice(content);
        if self.answer.len() > MAX_MESSAGE + MESSAGE_HEAD {
            return Err(Status::new(Status::RESOURCE_EXHAUSTED, "the response is too long"));
        }
        if frame.has(END_STREAM) { Err(broken("it ends without a status")) } else { Ok(()) }
    }

    fn on_settings(&mut self, frame: &Frame) -> Result<(), Status> {
        for setting in frame.payload.chunks_exact(6) {
            let value = u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
            match u16::from_be_bytes([setting[0], setting[1]]) {
                SETTING_INITIAL_WINDOW => {
                    self.stream_window += i64::from(value) - self.initial_window;
                    self.initial_window = i64::from(value);
                }
                SETTING_MAX_FRAME if (value as usize) < MAX_FRAME => {
                    return Err(broken("SETTINGS_MAX_FRAME_SIZE is too small"));
                }
                // Longer frames are allowed but not needed.
                _ => {}
            }
        }
        write_frame(&mut self.outbox, SETTINGS, ACK, 0, &[]);
        Ok(())
    }

    fn on_headers(&mut self, frame: &Frame) -> Result<Option<Vec<u8>>, Status> {
        let content = if frame.kind == HEADERS { frame.content() } else { Some(frame.payload.as_slice()) };
        let content = content.ok_or_else(|| broken("wrong padding"))?;
        let mut block = match (self.block.take(), frame.kind) {
            (None, HEADERS) => Block { fragment: Vec::new(), ends_stream: frame.has(END_STREAM) },
            (Some(block), CONTINUATION) => block,
            _ => return Err(broken("CONTINUATION without HEADERS")),
        };
        block.fragment.extend_from_slice(content);
        if block.fragment.len() > MAX_HEADER_BLOCK {
            return Err(broken("the headers are too long"));
        }
        if !frame.has(END_HEADERS) {
            self.block = Some(block);
            return Ok(None);
        }
        let headers = self.decoder.decode(&block.fragment).ok_or_else(|| broken("the headers cannot be decoded"))?;
        if block.ends_stream {
            return self.finish(&headers).map(Some);
        }
        if self.has_headers {
            return Err(broken("headers after the headers"));
        }
        match http_status(&headers) {
            Some(100..200) => {}
            Some(200) => self.has_headers = true,
            other => return Err(not_grpc(other)),
        }
        Ok(None)
    }

    /// The stream has ended: its trailers hold the status of the call.
    fn finish(&mut self, trailers: &[Header]) -> Result<Vec<u8>, Status> {
        let Some(code) = find(trailers, "grpc-status") else {
            return Err(match http_status(trailers) {
                None | Some(200) => broken("it ends without a status"),
                other => not_grpc(other),
            });
        };
        let code = std::str::from_utf8(code).ok().and_then(|text| text.parse().ok()).unwrap_or(Status::UNKNOWN);
        if code != 0 {
            let message = percent_decoded(find(trailers, "grpc-message").unwrap_or_default());
            return Err(Status::new(code, message));
        }
        let Some((head, message)) = self.answer.split_first_chunk::<MESSAGE_HEAD>() else {
            return Err(broken("it has no message"));
        };
        if head[0] != 0 || u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize != message.len() {
            return Err(broken("its message is compressed, cut off or not the only one"));
        }
        Ok(message.to_vec())
    }
}

fn find<'a>(headers: &'a [Header], name: &str) -> Option<&'a [u8]> {
    headers.iter().find(|(key, _)| key == name.as_bytes()).map(|(_, value)| value.as_slice())
}

fn http_status(headers: &[Header]) -> Option<u32> {
    std::str::from_utf8(find(headers, ":status")?).ok()?.parse().ok()
}

/// The status for a response that is not gRPC, from another server or a proxy.
fn not_grpc(status: Option<u32>) -> Status {
    let Some(status) = status else { return broken("it has no HTTP status") };
    let code = match status {
        400 => Status::INTERNAL,
        401 => Status::UNAUTHENTICATED,
        403 => Status::PERMISSION_DENIED,
        404 => Status::UNIMPLEMENTED,
        429 | 502..=504 => Status::UNAVAILABLE,
        _ => Status::UNKNOWN,
    };
    Status::new(code, format!("HTTP status {status}"))
}

fn reset(reason: u32) -> Status {
    let code = match reason {
        REFUSED_STREAM => Status::UNAVAILABLE,
        CANCEL => Status::CANCELLED,
        ENHANCE_YOUR_CALM => Status::RESOURCE_EXHAUSTED,
        INADEQUATE_SECURITY => Status::PERMISSION_DENIED,
        _ => Status::INTERNAL,
    };
    let status = Status::new(code, format!("the daemon ended the call (HTTP/2 error {reason})"));
    Status { is_unprocessed: reason == REFUSED_STREAM, ..status }
}

/// Decodes the percent-encoding of `grpc-message`.
fn percent_decoded(text: &[u8]) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let digits = text.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if text[at] == b'%' => {
                decoded.push(byte);
                at += 3;
            }
            _ => {
                decoded.push(text[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests;
