//! Calls of a daemon that comes, goes, or refuses.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use super::*;
use crate::scratch;

const LONG: Duration = Duration::from_secs(60);
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
const GOAWAY_BEFORE_ANY: &[u8] = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";

fn ask(path: &Path, timeout: Duration, absence: Absence) -> Result<Vec<u8>, Status> {
    call(&format!("unix://{}", path.display()), "/s/m", b"request", timeout, absence)
}

fn answer(mut stream: UnixStream) {
    let mut headers = Vec::new();
    hpack::write_literal(&mut headers, "grpc-status", "5");
    let mut bytes = [SETTINGS, &[0, 0, headers.len() as u8, 1, 5, 0, 0, 0, 1]].concat();
    bytes.extend_from_slice(&headers);
    stream.write_all(&bytes).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
}

/// A daemon that ends its first connections in this manner and answers the next one.
fn ending(path: PathBuf, count: usize, manner: impl Fn(UnixStream) + Send + 'static) -> thread::JoinHandle<()> {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        for _ in 0..count {
            manner(listener.accept().unwrap().0);
        }
        answer(listener.accept().unwrap().0);
    })
}

#[test]
fn a_daemon_that_comes_later_is_waited_for() {
    let folder = scratch::folder();
    for is_left_behind in [false, true] {
        let path = folder.join(format!("s{is_left_behind}"));
        if is_left_behind {
            drop(UnixListener::bind(&path).unwrap());
        }
        let place = path.clone();
        let daemon = thread::spawn(move || {
            thread::sleep(PAUSE * 3);
            let _ = std::fs::remove_file(&place);
            answer(UnixListener::bind(&place).unwrap().accept().unwrap().0);
        });
        assert_eq!(ask(&path, LONG, Absence::Wait).unwrap_err().code, Status::NOT_FOUND, "it answered");
        daemon.join().unwrap();
    }
}

#[test]
fn a_daemon_that_never_comes_is_waited_for_until_the_timeout() {
    let folder = scratch::folder();
    let begun = Instant::now();
    let status = ask(&folder.join("s"), PAUSE * 4, Absence::Wait).unwrap_err();
    assert!(begun.elapsed() >= PAUSE * 2);
    assert_eq!(status.code, Status::UNAVAILABLE);
    assert!(status.message.contains("No such file") && status.message.contains(" (waited "), "{}", status.message);
}

#[test]
fn what_will_not_become_a_daemon_is_not_waited_for() {
    let folder = scratch::folder();
    std::fs::write(folder.join("file"), "").unwrap();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for name in ["file", "file/s", "."] {
            sender.send(ask(&folder.join(name), LONG * 60, Absence::Wait).unwrap_err()).unwrap();
        }
        sender.send(ask(&folder.join("none"), LONG * 60, Absence::Fail).unwrap_err()).unwrap();
    });
    for _ in 0..4 {
        let status = receiver.recv_timeout(LONG * 5).expect("it does not wait");
        assert_eq!(status.code, Status::UNAVAILABLE);
        assert!(!status.message.contains("waited"), "{}", status.message);
    }
}

#[test]
fn a_call_that_was_not_begun_is_made_again() {
    let folder = scratch::folder();
    let daemons = [
        ending(folder.join("0"), 1, drop),
        ending(folder.join("1"), MOST_REPEATS as usize, |mut stream| {
            stream.write_all(&[SETTINGS, GOAWAY_BEFORE_ANY].concat()).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        }),
    ];
    for (number, daemon) in daemons.into_iter().enumerate() {
        let status = ask(&folder.join(number.to_string()), LONG, Absence::Wait).unwrap_err();
        assert_eq!(status.code, Status::NOT_FOUND, "{}", status.message);
        daemon.join().unwrap();
    }
}

#[test]
fn a_call_that_may_have_been_done_is_not_made_again() {
    let folder = scratch::folder();
    let daemon = ending(folder.join("s"), 1, |mut stream| stream.write_all(SETTINGS).unwrap());
    let status = ask(&folder.join("s"), LONG, Absence::Wait).unwrap_err();
    assert_eq!((status.code, status.is_unprocessed), (Status::UNAVAILABLE, false));
    drop(UnixStream::connect(folder.join("s")).unwrap());
    let _ = daemon.join();
}

#[test]
fn a_daemon_that_refuses_the_caller_is_soon_believed() {
    let folder = scratch::folder();
    let daemon = ending(folder.join("s"), MOST_REPEATS as usize + 1, drop);
    let status = ask(&folder.join("s"), LONG * 60, Absence::Wait).unwrap_err();
    assert_eq!((status.code, status.is_unprocessed), (Status::UNAVAILABLE, true), "{}", status.message);
    drop(UnixStream::connect(folder.join("s")).unwrap());
    let _ = daemon.join();
}
