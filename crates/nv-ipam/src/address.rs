//! Addresses and networks in the forms the original reads and writes: an IPv4 address written as IPv6 is IPv4.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

/// An address with the length of its network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interface {
    pub ip: IpAddr,
    pub length: u8,
}

impl Interface {
    pub fn parse(text: &str) -> Option<Interface> {
        let (ip, length) = text.split_once('/')?;
        let written: IpAddr = ip.parse().ok()?;
        let is_number = !length.is_empty() && length.bytes().all(|each| each.is_ascii_digit());
        let length: u8 = if is_number { length.parse().ok()? } else { return None };
        let longest = if written.is_ipv4() { 32 } else { 128 };
        if length > longest {
            return None;
        }
        let ip = written.to_canonical();
        // The prefix length refers to the form in which the address is written.
        let length = if ip.is_ipv4() && written.is_ipv6() { length.checked_sub(96)? } else { length };
        Some(Interface { ip, length })
    }

    /// The network's own address, with its length.
    pub fn network(self) -> Interface {
        let ip = match self.ip {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & mask))
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.length)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
            }
        };
        Interface { ip, length: self.length }
    }
}

impl std::fmt::Display for Interface {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.ip, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        let cases = [
            ("10.0.0.7/24", "10.0.0.7/24", "10.0.0.0/24"),
            ("fd00::A:1/64", "fd00::a:1/64", "fd00::/64"),
            ("0.0.0.0/0", "0.0.0.0/0", "0.0.0.0/0"),
            ("::1/0", "::1/0", "::/0"),
            ("1.2.3.4/32", "1.2.3.4/32", "1.2.3.4/32"),
            ("::ffff:10.0.0.7/120", "10.0.0.7/24", "10.0.0.0/24"),
        ];
        for (text, written, network) in cases {
            let interface = Interface::parse(text).unwrap();
            assert_eq!(
                (interface.to_string(), interface.network().to_string()),
                (written.to_string(), network.to_string())
            );
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in
            ["", "10.0.0.1", "10.0.0.1/", "10.0.0.1/33", "10.0.0.1/+8", "10.0.0/8", "fd00::/129", "x/8", "010.0.0.1/8"]
        {
            assert_eq!(Interface::parse(text), None, "{text}");
        }
        assert_eq!(parse_ip("::ffff:1.2.3.4"), parse_ip("1.2.3.4"));
        assert_eq!(parse_ip("1.2.3.04"), None);
    }
}
