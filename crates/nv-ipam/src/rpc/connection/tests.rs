//! A minimal server on the other end of a socket pair, which sends exactly the bytes of the test.

use std::thread;

use super::*;

fn headers(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in pairs {
        hpack::write_literal(&mut block, name, value);
    }
    block
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_frame(&mut out, kind, flags, stream, payload);
    out
}

fn message(text: &[u8]) -> Vec<u8> {
    let mut out = vec![0];
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text);
    out
}

fn answer(text: &[u8]) -> Vec<Vec<u8>> {
    vec![
        frame(SETTINGS, 0, 0, &[]),
        frame(HEADERS, END_HEADERS, 1, &headers(&[(":status", "200"), ("content-type", "application/grpc")])),
        frame(DATA, 0, 1, &message(text)),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &headers(&[("grpc-status", "0")])),
    ]
}

/// The outcome of a call when the server sends these bytes.
fn call(bytes: Vec<u8>) -> Result<Vec<u8>, Status> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || {
        theirs.write_all(&bytes).unwrap();
        let mut asked = Vec::new();
        let _ = theirs.shutdown(std::net::Shutdown::Write);
        let _ = theirs.read_to_end(&mut asked);
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    let outcome = exchange(Stream::Unix(ours), "localhost", "/s/m", b"request", deadline);
    server.join().unwrap();
    outcome
}

fn code(bytes: Vec<u8>) -> u32 {
    call(bytes).unwrap_err().code
}

#[test]
fn an_answer_is_read() {
    assert_eq!(call(answer(b"hello").concat()).unwrap(), b"hello");
    assert_eq!(call(answer(b"").concat()).unwrap(), b"");
    let long = vec![7; 100_000];
    let mut frames = answer(b"");
    let parts = message(&long);
    frames.splice(2..3, parts.chunks(MAX_FRAME).map(|part| frame(DATA, 0, 1, part)));
    assert_eq!(call(frames.concat()).unwrap(), long);
}

#[test]
fn padding_priority_and_continuations_are_understood() {
    let block = headers(&[(":status", "200")]);
    let (begin, end) = block.split_at(3);
    let mut padded_headers = vec![2, 0, 0, 0, 0, 9];
    padded_headers.extend_from_slice(begin);
    padded_headers.extend_from_slice(&[0, 0]);
    let mut padded_data = vec![3];
    padded_data.extend_from_slice(&message(b"x"));
    padded_data.extend_from_slice(&[0, 0, 0]);
    let frames = [
        frame(HEADERS, PADDED | PRIORITY, 1, &padded_headers),
        frame(CONTINUATION, END_HEADERS, 1, end),
        frame(PING, 0, 0, &[1; 8]),
        frame(0xbe, 0xff, 77, b"an unknown frame type"),
        frame(DATA, PADDED, 1, &padded_data),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &headers(&[("grpc-status", "0")])),
    ];
    assert_eq!(call(frames.concat()).unwrap(), b"x");
}

#[test]
fn a_status_without_headers_before_it_is_read() {
    let trailers = headers(&[(":status", "200"), ("grpc-status", "8"), ("grpc-message", "no%20more%e2%82%ac %zz%")]);
    let status = call(frame(HEADERS, END_HEADERS | END_STREAM, 1, &trailers)).unwrap_err();
    assert_eq!(status, Status::new(Status::RESOURCE_EXHAUSTED, "no more€ %zz%"));
}

#[test]
fn ends_that_are_none_have_a_code() {
    let finished = |pairs: &[(&str, &str)]| frame(HEADERS, END_HEADERS | END_STREAM, 1, &headers(pairs));
    assert_eq!(code(Vec::new()), Status::UNAVAILABLE);
    assert_eq!(code(frame(GOAWAY, 0, 0, &[0; 8])), Status::UNAVAILABLE);
    assert_eq!(code(frame(RST_STREAM, 0, 1, &7u32.to_be_bytes())), Status::UNAVAILABLE);
    assert_eq!(code(frame(RST_STREAM, 0, 1, &8u32.to_be_bytes())), Status::CANCELLED);
    assert_eq!(code(frame(RST_STREAM, 0, 1, &1u32.to_be_bytes())), Status::INTERNAL);
    assert_eq!(code(finished(&[(":status", "404")])), Status::UNIMPLEMENTED);
    assert_eq!(code(finished(&[(":status", "503")])), Status::UNAVAILABLE);
    assert_eq!(code(frame(HEADERS, END_HEADERS, 1, &headers(&[(":status", "500")]))), Status::UNKNOWN);
    assert_eq!(code(finished(&[(":status", "200")])), Status::INTERNAL);
    assert_eq!(code(finished(&[("grpc-status", "nonsense")])), Status::UNKNOWN);
    assert_eq!(code(finished(&[("grpc-status", "0")])), Status::INTERNAL);
    assert_eq!(code(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()), Status::INTERNAL);
}

#[test]
fn broken_frames_are_refused() {
    let begun = frame(HEADERS, END_HEADERS, 1, &headers(&[(":status", "200")]));
    let after = |frame: Vec<u8>| [begun.clone(), frame].concat();
    for bytes in [
        frame(DATA, 0, 1, b"early"),
        after(frame(DATA, 0, 3, b"other stream")),
        after(frame(DATA, END_STREAM, 1, &message(b"x"))),
        after(frame(DATA, PADDED, 1, &[9, 1])),
        after(frame(DATA, PADDED, 1, &[])),
        after(begun.clone()),
        frame(CONTINUATION, END_HEADERS, 1, &[]),
        [frame(HEADERS, 0, 1, &[]), frame(PING, 0, 0, &[0; 8])].concat(),
        frame(HEADERS, END_HEADERS | PRIORITY, 1, &[0, 0]),
        frame(HEADERS, END_HEADERS, 1, &[0xff; 20]),
        frame(PUSH_PROMISE, 0, 1, &[0; 8]),
        frame(SETTINGS, 0, 0, &[0, 5, 0, 0, 0, 1]),
        vec![0xff; 9],
        [vec![frame(HEADERS, 0, 1, &[0; 16000])], vec![frame(CONTINUATION, 0, 1, &[0; 16000]); 5]].concat().concat(),
    ] {
        assert_eq!(code(bytes.clone()), Status::INTERNAL, "{:x?}", &bytes[..bytes.len().min(60)]);
    }
    for text in [vec![1, 0, 0, 0, 1, b'x'], vec![0, 0, 0, 0, 9, b'x'], [message(b"a"), message(b"b")].concat()] {
        let mut frames = answer(b"");
        frames[2] = frame(DATA, 0, 1, &text);
        assert_eq!(code(frames.concat()), Status::INTERNAL);
    }
}

#[test]
fn an_endless_answer_ends() {
    let mut frames = vec![frame(HEADERS, END_HEADERS, 1, &headers(&[(":status", "200")]))];
    frames.extend(vec![frame(DATA, 0, 1, &[0; MAX_FRAME]); MAX_MESSAGE / MAX_FRAME + 2]);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || drop(theirs.write_all(&frames.concat())));
    let deadline = Instant::now() + Duration::from_secs(30);
    let outcome = exchange(Stream::Unix(ours), "", "/s/m", b"", deadline);
    assert_eq!(outcome.unwrap_err().code, Status::RESOURCE_EXHAUSTED);
    server.join().unwrap();
}

#[test]
fn a_call_waits_until_its_deadline_and_no_longer() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let begun = Instant::now();
    let deadline = begun + Duration::from_millis(50);
    let outcome = exchange(Stream::Unix(ours), "", "/s/m", b"", deadline);
    assert_eq!(outcome.unwrap_err().code, Status::DEADLINE_EXCEEDED);
    assert!(begun.elapsed() >= Duration::from_millis(50));
}

/// Everything a client sends, frame by frame.
fn read_frames(from: &mut UnixStream, mut each: impl FnMut(&mut UnixStream, &Frame) -> bool) {
    let mut preface = [0; PREFACE.len()];
    from.read_exact(&mut preface).unwrap();
    assert_eq!(preface, PREFACE);
    loop {
        let mut head = [0; FRAME_HEAD];
        from.read_exact(&mut head).unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        from.read_exact(&mut payload).unwrap();
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        if each(from, &Frame { kind: head[3], flags: head[4], stream, payload }) {
            return;
        }
    }
}

#[test]
fn a_request_has_the_headers_of_grpc() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || {
        let mut headers = Vec::new();
        let mut body = Vec::new();
        read_frames(&mut theirs, |_, frame| {
            match frame.kind {
                HEADERS => headers = Decoder::new().decode(&frame.payload).unwrap(),
                DATA => body.extend_from_slice(&frame.payload),
                _ => {}
            }
            frame.kind == DATA && frame.has(END_STREAM)
        });
        theirs.write_all(&answer(b"ok").concat()).unwrap();
        (headers, body)
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    exchange(Stream::Unix(ours), "here", "/s/m", b"ask", deadline).unwrap();
    let (headers, body) = server.join().unwrap();
    assert_eq!(body, message(b"ask"));
    for (name, value) in [(":method", "POST"), (":path", "/s/m"), (":authority", "here"), ("te", "trailers")] {
        assert_eq!(find(&headers, name), Some(value.as_bytes()), "{name}");
    }
    let timeout = String::from_utf8(find(&headers, "grpc-timeout").unwrap().to_vec()).unwrap();
    assert!(timeout.ends_with('m') && timeout.len() <= 9, "{timeout}");
}

#[test]
fn a_long_request_waits_for_room() {
    let long: Vec<u8> = (0..300_000u32).map(|number| number as u8).collect();
    let expected = message(&long);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || {
        let mut body = Vec::new();
        // The window of a stream shrinks below what has been sent already, then grows bit by bit.
        theirs.write_all(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0x10, 0])).unwrap();
        let mut acks = 0;
        read_frames(&mut theirs, |theirs, frame_in| {
            acks += usize::from(frame_in.kind == SETTINGS && frame_in.has(ACK));
            if frame_in.kind == DATA {
                assert!(frame_in.payload.len() <= MAX_FRAME);
                body.extend_from_slice(&frame_in.payload);
                for stream in [0, 1] {
                    let more = (frame_in.payload.len() as u32 + 70_000 * stream).to_be_bytes();
                    theirs.write_all(&frame(WINDOW_UPDATE, 0, stream, &more)).unwrap();
                }
            }
            frame_in.kind == DATA && frame_in.has(END_STREAM)
        });
        theirs.write_all(&answer(b"done")[1..].concat()).unwrap();
        (body, acks)
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    let outcome = exchange(Stream::Unix(ours), "", "/s/m", &long, deadline);
    assert_eq!(outcome.unwrap(), b"done");
    assert_eq!(server.join().unwrap(), (expected, 1));
}

#[test]
fn random_bytes_never_crash() {
    let mut state = 1u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let good = answer(b"hello").concat();
    for _ in 0..500 {
        let mut bytes = good.clone();
        for _ in 0..=next() % 4 {
            let place = next() as usize % bytes.len();
            bytes[place] = next() as u8;
        }
        bytes.truncate(next() as usize % (good.len() + 20));
        let _ = call(bytes);
    }
}
