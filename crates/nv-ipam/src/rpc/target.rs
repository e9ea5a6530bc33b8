//! The address of the daemon: gRPC targets, and `tcp://host:port` as in the daemon's flag.

const DEFAULT_PORT: u16 = 443;

#[derive(Debug, Clone, PartialEq)]
pub enum Endpoint {
    /// A path, or an abstract socket name when it begins with a zero byte.
    Unix(Vec<u8>),
    Tcp {
        host: String,
        port: u16,
    },
}

impl Endpoint {
    /// The `:authority` of the request.
    pub fn authority(&self) -> String {
        match self {
            Endpoint::Unix(_) => "localhost".to_string(),
            Endpoint::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Endpoint::Tcp { host, port } => format!("{host}:{port}"),
        }
    }
}

pub fn parse(target: &str) -> Result<Endpoint, String> {
    let (scheme, rest) = target.split_once(':').unwrap_or(("", target));
    match scheme {
        "unix" => unix_path(rest),
        "unix-abstract" => {
            let mut name = vec![0];
            name.extend(local_part(rest)?);
            Ok(Endpoint::Unix(name))
        }
        "tcp" if rest.starts_with("//") => host_and_port(&rest[2..]),
        "dns" => match rest.strip_prefix("//") {
            Some(rest) => match rest.split_once('/') {
                Some(("", endpoint)) => host_and_port(endpoint),
                Some((server, _)) => Err(format!("a DNS server in the target ({server}) is not supported")),
                None => Err("the host is missing: dns:///host:port".to_string()),
            },
            None => host_and_port(rest.strip_prefix('/').unwrap_or(rest)),
        },
        "passthrough" => {
            let endpoint = rest.strip_prefix("///").or_else(|| rest.strip_prefix('/')).unwrap_or(rest);
            if endpoint.starts_with("unix:") { parse(endpoint) } else { host_and_port(endpoint) }
        }
        _ if target.starts_with('/') => Ok(Endpoint::Unix(target.as_bytes().to_vec())),
        _ => host_and_port(target),
    }
}

fn unix_path(rest: &str) -> Result<Endpoint, String> {
    let path = local_part(rest)?;
    if path.is_empty() || path.contains(&0) {
        return Err("the path is missing".to_string());
    }
    Ok(Endpoint::Unix(path))
}

/// The path after `unix:`, which may have an empty authority; an absolute path is percent-decoded.
fn local_part(rest: &str) -> Result<Vec<u8>, String> {
    let path = match rest.strip_prefix("//") {
        Some(path) if path.starts_with('/') || path.is_empty() => path,
        Some(_) => return Err("a path after unix:// must be absolute: unix:///path".to_string()),
        None => rest,
    };
    let path = path.split(['?', '#']).next().unwrap_or_default();
    if path.starts_with('/') { percent_decoded(path) } else { Ok(path.as_bytes().to_vec()) }
}

fn percent_decoded(text: &str) -> Result<Vec<u8>, String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| (byte as char).to_digit(16));
        match (digit(bytes.next()), digit(bytes.next())) {
            (Some(high), Some(low)) => decoded.push((high * 16 + low) as u8),
            _ => return Err("an escape %xx is invalid".to_string()),
        }
    }
    Ok(decoded)
}

/// `host`, `host:port`, `[v6]:port`, a bare IPv6 address, `:port` (this machine).
fn host_and_port(text: &str) -> Result<Endpoint, String> {
    let (host, port) = if text.parse::<std::net::IpAddr>().is_ok() {
        (text, None)
    } else if let Some(inner) = text.strip_prefix('[') {
        match inner.split_once(']') {
            Some((host, "")) => (host, None),
            Some((host, port)) if port.starts_with(':') => (host, Some(&port[1..])),
            _ => return Err(format!("{text:?} is not a host and port")),
        }
    } else {
        text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)))
    };
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => port.parse().map_err(|_| format!("{port:?} is not a port"))?,
    };
    if text.is_empty() || host.contains(['/', '@', '[', ']', ' ']) {
        return Err(format!("{text:?} is not a host and port"));
    }
    let host = if host.is_empty() { "localhost" } else { host };
    Ok(Endpoint::Tcp { host: host.to_string(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(path: &str) -> Endpoint {
        Endpoint::Unix(path.as_bytes().to_vec())
    }

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp { host: host.to_string(), port }
    }

    #[test]
    fn the_forms_of_grpc_are_taken() {
        let cases = [
            ("unix:///var/run/d.sock", unix("/var/run/d.sock")),
            ("unix:/var/run/d.sock", unix("/var/run/d.sock")),
            ("unix:d.sock", unix("d.sock")),
            ("unix:run/d.sock", unix("run/d.sock")),
            ("unix:///a%20b", unix("/a b")),
            ("unix-abstract:name", unix("\0name")),
            ("unix-abstract:///name", unix("\0/name")),
            ("/var/run/d.sock", unix("/var/run/d.sock")),
            ("passthrough:///unix:///a", unix("/a")),
            ("tcp://127.0.0.1:50051", tcp("127.0.0.1", 50051)),
            ("tcp://[::1]:50051", tcp("::1", 50051)),
            ("dns:///node:50051", tcp("node", 50051)),
            ("dns:node:50051", tcp("node", 50051)),
            ("passthrough:///127.0.0.1:1", tcp("127.0.0.1", 1)),
            ("localhost:50051", tcp("localhost", 50051)),
            ("[fd00::1]:9", tcp("fd00::1", 9)),
            ("fd00::1", tcp("fd00::1", 443)),
            ("[fd00::1]", tcp("fd00::1", 443)),
            ("node", tcp("node", 443)),
            (":7", tcp("localhost", 7)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_leads_nowhere_is_refused() {
        for text in [
            "",
            "unix:",
            "unix://",
            "unix://rel/path",
            "unix:///a%zz",
            "dns://8.8.8.8/node:1",
            "dns:///",
            "node:x",
            "node:",
            "node:70000",
            "http://node:80",
            "[::1",
            "unix:///a%00b",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn requests_are_addressed() {
        assert_eq!(parse("unix:///a").unwrap().authority(), "localhost");
        assert_eq!(parse("[::1]:5").unwrap().authority(), "[::1]:5");
        assert_eq!(parse("node:5").unwrap().authority(), "node:5");
    }
}
