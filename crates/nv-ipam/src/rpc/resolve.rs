//! Resolves a host name: `/etc/hosts`, then the name servers of `/etc/resolv.conf`.
//!
//! The C library's resolver loads plugins at run time, which a static program cannot rely on, and takes no deadline.
//! The daemon is almost always reached by socket or IP address; for other targets this sends plain UDP queries.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
const CLASS_IN: u16 = 1;
const NO_SUCH_NAME: u8 = 3;
const MAX_SERVERS: usize = 3;
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;
const PATIENCE: Duration = Duration::from_secs(2);

pub fn addresses(host: &str, port: u16, deadline: Instant) -> Result<Vec<SocketAddr>, String> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let hosts = fs::read("/etc/hosts").unwrap_or_default();
    let mut ips = in_hosts(&String::from_utf8_lossy(&hosts), host);
    if ips.is_empty() && host.eq_ignore_ascii_case("localhost") {
        ips = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    }
    if ips.is_empty() {
        let text = fs::read("/etc/resolv.conf").unwrap_or_default();
        ips = ask_all(&Servers::parse(&String::from_utf8_lossy(&text)), host, deadline)?;
    }
    Ok(ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
}

fn in_hosts(text: &str, host: &str) -> Vec<IpAddr> {
    let mut ips = Vec::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let ip = words.next().and_then(|word| word.parse().ok());
        if let (Some(ip), true) = (ip, words.any(|name| name.eq_ignore_ascii_case(host))) {
            ips.push(ip);
        }
    }
    ips
}

#[derive(Debug, PartialEq)]
struct Servers {
    addresses: Vec<IpAddr>,
    search: Vec<String>,
    ndots: usize,
}

impl Servers {
    fn parse(text: &str) -> Servers {
        let mut servers = Servers { addresses: Vec::new(), search: Vec::new(), ndots: 1 };
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.split_first() {
                Some((&"nameserver", [address, ..])) => servers.addresses.extend(address.parse::<IpAddr>()),
                Some((&("search" | "domain"), names)) => {
                    servers.search = names.iter().map(ToString::to_string).collect();
                }
                Some((&"options", options)) => {
                    let given = options.iter().filter_map(|option| option.strip_prefix("ndots:")).next_back();
                    servers.ndots = given.and_then(|text| text.parse().ok()).unwrap_or(servers.ndots);
                }
                _ => {}
            }
        }
        servers.addresses.truncate(MAX_SERVERS);
        if servers.addresses.is_empty() {
            servers.addresses.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        servers
    }

    /// The fully qualified names to try for a host name, in order.
    fn candidates(&self, host: &str) -> Vec<String> {
        if let Some(full) = host.strip_suffix('.') {
            return vec![full.to_string()];
        }
        let mut names: Vec<String> = self.search.iter().map(|domain| format!("{host}.{domain}")).collect();
        let is_full = host.matches('.').count() >= self.ndots;
        names.insert(if is_full { 0 } else { names.len() }, host.to_string());
        names
    }
}

fn ask_all(servers: &Servers, host: &str, deadline: Instant) -> Result<Vec<IpAddr>, String> {
    let mut problem = format!("host {host} not ips");
    for name in servers.candidates(host) {
        let mut ips = Vec::new();
        for kind in [TYPE_A, TYPE_AAAA] {
            match ask(servers, &name, kind, deadline) {
                Ok(addresses) => ips.extend(addresses),
                Err(why) => problem = why,
            }
        }
        if !ips.is_empty() {
            return Ok(ips);
        }
    }
    Err(problem)
}

fn ask(servers: &Servers, name: &str, kind: u16, deadline: Instant) -> Result<Vec<IpAddr>, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let id = (now.subsec_nanos() >> 4) as u16 ^ std::process::id() as u16;
    let question = question(id, name, kind).ok_or_else(|| format!("{name} is not a host name"))?;
    let mut problem = String::new();
    for server in &servers.addresses {
        let left = deadline.saturating_duration_since(Instant::now()).min(PATIENCE);
        if left.is_zero() {
            return Err(format!("no name server answered in time about {name}"));
        }
        match ask_one(*server, &question, left) {
            Ok(answer) => {
                if let Some(ips) = read_answer(&answer, id, kind) {
                    return Ok(ips);
                }
                problem = format!("name server {server} did not resolve {name}");
            }
            Err(error) => problem = format!("name server {server}: {error}"),
        }
    }
    Err(problem)
}

fn ask_one(server: IpAddr, question: &[u8], patience: Duration) -> std::io::Result<Vec<u8>> {
    let any = if server.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((server, 53))?;
    socket.set_read_timeout(Some(patience))?;
    socket.send(question)?;
    let mut answer = vec![0; 4096];
    let length = socket.recv(&mut answer)?;
    answer.truncate(length);
    Ok(answer)
}

fn question(id: u16, name: &str, kind: u16) -> Option<Vec<u8>> {
    if name.is_empty() || name.len() > MAX_NAME {
        return None;
    }
    let mut out = id.to_be_bytes().to_vec();
    out.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        if label.is_empty() || label.len() > MAX_LABEL {
            return None;
        }
        out.push(label.len() as u8);
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&CLASS_IN.to_be_bytes());
    Some(out)
}

/// The addresses in an answer, possibly empty; `None` when the answer cannot be used.
fn read_answer(answer: &[u8], id: u16, kind: u16) -> Option<Vec<IpAddr>> {
    let word = |at: usize| Some(u16::from_be_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    let reply_code = answer.get(3)? & 0xf;
    if word(0)? != id || answer[2] & 0x80 == 0 || !matches!(reply_code, 0 | NO_SUCH_NAME) {
        return None;
    }
    let mut at = 12;
    for _ in 0..word(4)? {
        at = after_name(answer, at)? + 4;
    }
    let mut ips = Vec::new();
    for _ in 0..word(6)? {
        at = after_name(answer, at)?;
        let length = usize::from(word(at + 8)?);
        let content = answer.get(at + 10..at + 10 + length)?;
        if word(at)? == kind && word(at + 2)? == CLASS_IN {
            if let Ok(bytes) = <[u8; 4]>::try_from(content) {
                ips.push(IpAddr::from(bytes));
            } else if let Ok(bytes) = <[u8; 16]>::try_from(content) {
                ips.push(IpAddr::from(bytes));
            }
        }
        at += 10 + length;
    }
    Some(ips)
}

fn after_name(answer: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *answer.get(at)? {
            0 => return Some(at + 1),
            pointer if pointer & 0xc0 == 0xc0 => return Some(at + 2),
            length => at += 1 + usize::from(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_no_server() {
        let sockets = addresses("::1", 5, Instant::now()).unwrap();
        assert_eq!(sockets, ["[::1]:5".parse().unwrap()]);
    }

    #[test]
    fn hosts_are_found_by_any_of_their_names() {
        let text = "# x\n127.0.0.1 localhost me\n10.0.0.1\tNode node.lan # me\nfd00::1 node\nbad node\n";
        let texts = |host| in_hosts(text, host).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts("node"), ["10.0.0.1", "fd00::1"]);
        assert_eq!(texts("me"), ["127.0.0.1"]);
        assert_eq!(texts("other"), Vec::<String>::new());
    }

    #[test]
    fn names_are_completed_as_the_file_says() {
        let servers = Servers::parse("nameserver 10.0.0.10\nnameserver x\nsearch a.b b\noptions timeout:1 ndots:2\n");
        assert_eq!(servers.addresses, ["10.0.0.10".parse::<IpAddr>().unwrap()]);
        assert_eq!(servers.candidates("n.m"), ["n.m.a.b", "n.m.b", "n.m"]);
        assert_eq!(servers.candidates("n.m.o"), ["n.m.o", "n.m.o.a.b", "n.m.o.b"]);
        assert_eq!(servers.candidates("n."), ["n"]);
        assert_eq!(Servers::parse("").addresses.len(), 1);
    }

    #[test]
    fn answers_are_read() {
        let asked = question(7, "a.bc", TYPE_A).unwrap();
        assert_eq!(&asked[12..], b"\x01a\x02bc\x00\x00\x01\x00\x01");
        let mut answer = asked.clone();
        answer[2] |= 0x80;
        answer[7] = 2;
        answer.extend_from_slice(b"\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x01\x00\x02\xc0\x0c");
        answer.extend_from_slice(b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x01\x00\x04\x0a\x00\x00\x01");
        assert_eq!(read_answer(&answer, 7, TYPE_A), Some(vec!["10.0.0.1".parse().unwrap()]));
        assert_eq!(read_answer(&answer, 8, TYPE_A), None);
        for end in 0..answer.len() {
            assert_eq!(read_answer(&answer[..end], 7, TYPE_A), None, "{end}");
        }
        assert_eq!(question(7, "a..b", TYPE_A), None);
        assert_eq!(question(7, &"a".repeat(64), TYPE_A), None);
    }
}
