//! The messages of the daemon's services, as protocol buffers: requests are written, responses read.
//!
//! Field numbers are those of `proto/ipam/*.proto`. Empty fields are not written, unknown fields are skipped, and
//! the last value of a field that occurs several times is used.

use crate::network::Attachment;
use crate::settings::{PoolType, Wish};

pub const ALLOCATE: &str = "/nvidia.ipam.node.v1.IPAMService/Allocate";
pub const DEALLOCATE: &str = "/nvidia.ipam.node.v1.IPAMService/Deallocate";
pub const IS_ALLOCATED: &str = "/nvidia.ipam.node.v1.IPAMService/IsAllocated";
pub const COLLECT: &str = "/bedplate.ipam.node.v1.NodeService/Collect";
pub const STATUS: &str = "/bedplate.ipam.node.v1.NodeService/Status";

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

/// The caller: the container's interface and its pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Owner {
    pub container_id: String,
    pub ifname: String,
    pub pod_name: String,
    pub pod_namespace: String,
    pub pod_uid: String,
    pub device_id: String,
}

/// The request of all three methods of the original's service: they share one shape.
pub fn parameters(owner: &Owner, wish: &Wish) -> Vec<u8> {
    let mut metadata = Message::default();
    metadata.text(1, &owner.pod_name).text(2, &owner.pod_namespace);
    metadata.text(3, &owner.pod_uid).text(4, &owner.device_id);
    let mut features = Message::default();
    features.number(1, u64::from(wish.wants_gateway));
    if let Some(index) = wish.index {
        features.present_number(2, i64::from(index) as u64);
    }
    let mut parameters = Message::default();
    for pool in &wish.pools {
        parameters.bytes(1, pool.as_bytes());
    }
    parameters.text(2, &owner.container_id).text(3, &owner.ifname);
    parameters.bytes(4, &metadata.0).number(5, wish.pool_type as u64);
    for ip in &wish.requested_ips {
        parameters.bytes(6, ip.to_string().as_bytes());
    }
    parameters.bytes(7, &features.0);
    let mut request = Message::default();
    request.bytes(1, &parameters.0);
    request.0
}

pub fn collect(network: &str, pools: &[String], pool_type: PoolType, valid: &[Attachment]) -> Vec<u8> {
    let mut request = Message::default();
    request.text(1, network);
    for pool in pools {
        request.bytes(2, pool.as_bytes());
    }
    request.number(3, pool_type as u64);
    for each in valid {
        let mut attachment = Message::default();
        attachment.text(1, &each.container_id).text(2, &each.ifname);
        request.bytes(4, &attachment.0);
    }
    request.0
}

pub fn status(pools: &[String], pool_type: PoolType) -> Vec<u8> {
    let mut request = Message::default();
    for pool in pools {
        request.bytes(1, pool.as_bytes());
    }
    request.number(2, pool_type as u64);
    request.0
}

/// An allocated address.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Allocation {
    pub ip: String,
    pub gateway: String,
    pub routes: Vec<String>,
}

/// `None` when the bytes are not a valid message.
pub fn read_allocations(message: &[u8]) -> Option<Vec<Allocation>> {
    let mut allocations = Vec::new();
    for field in Fields(message) {
        if let (1, Content::Bytes(bytes)) = field? {
            allocations.push(read_allocation(bytes)?);
        }
    }
    Some(allocations)
}

fn read_allocation(message: &[u8]) -> Option<Allocation> {
    let mut allocation = Allocation::default();
    for field in Fields(message) {
        match field? {
            (2, Content::Bytes(bytes)) => allocation.ip = text(bytes)?,
            (3, Content::Bytes(bytes)) => allocation.gateway = text(bytes)?,
            (5, Content::Bytes(bytes)) => allocation.routes.push(read_route(bytes)?),
            _ => {}
        }
    }
    Some(allocation)
}

fn read_route(message: &[u8]) -> Option<String> {
    let mut destination = String::new();
    for field in Fields(message) {
        if let (1, Content::Bytes(bytes)) = field? {
            destination = text(bytes)?;
        }
    }
    Some(destination)
}

/// The numbers of released and kept reservations in a GC response.
pub fn read_collected(message: &[u8]) -> Option<(u64, u64)> {
    let (mut released, mut kept) = (0, 0);
    for field in Fields(message) {
        match field? {
            (1, Content::Number(number)) => released = number,
            (2, Content::Number(number)) => kept = number,
            _ => {}
        }
    }
    Some((released, kept))
}

fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn present_number(&mut self, field: u64, number: u64) -> &mut Message {
        self.varint(field << 3 | VARINT);
        self.varint(number);
        self
    }

    fn number(&mut self, field: u64, number: u64) -> &mut Message {
        if number == 0 { self } else { self.present_number(field, number) }
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) -> &mut Message {
        self.varint(field << 3 | LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(&mut self, field: u64, text: &str) -> &mut Message {
        if text.is_empty() { self } else { self.bytes(field, text.as_bytes()) }
    }
}

enum Content<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

/// An iterator over the fields of a message; an item is `None` when the rest cannot be parsed.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for place in 0..10 {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u64, Content<'a>)> {
        let tag = self.varint()?;
        let content = match tag & 7 {
            VARINT => Content::Number(self.varint()?),
            FIXED64 => self.take(8).map(|_| Content::Other)?,
            FIXED32 => self.take(4).map(|_| Content::Other)?,
            LENGTH => {
                let length = usize::try_from(self.varint()?).ok()?;
                Content::Bytes(self.take(length)?)
            }
            _ => return None,
        };
        Some((tag >> 3, content))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Content<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish() -> Wish {
        Wish {
            pools: vec!["a".to_string(), "b".to_string()],
            pool_type: PoolType::CidrPool,
            requested_ips: vec!["1.2.3.4".parse().unwrap()],
            wants_gateway: true,
            index: Some(0),
        }
    }

    #[test]
    fn a_request_is_written_field_by_field() {
        let owner = Owner {
            container_id: "c".to_string(),
            ifname: "i".to_string(),
            pod_name: "p".to_string(),
            device_id: "d".to_string(),
            ..Owner::default()
        };
        let expected = [
            b"\x0a\x25".as_slice(),
            b"\x0a\x01a\x0a\x01b\x12\x01c\x1a\x01i",
            b"\x22\x06\x0a\x01p\x22\x01d",
            b"\x28\x02\x32\x071.2.3.4",
            b"\x3a\x04\x08\x01\x10\x00",
        ];
        assert_eq!(parameters(&owner, &wish()), expected.concat());
    }

    #[test]
    fn empty_parts_are_present_where_the_daemon_wants_them() {
        let bare = Wish { pools: Vec::new(), requested_ips: Vec::new(), wants_gateway: false, index: None, ..wish() };
        assert_eq!(parameters(&Owner::default(), &bare), b"\x0a\x06\x22\x00\x28\x02\x3a\x00");
        let negative = Wish { index: Some(-1), ..bare };
        let expected = b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        assert!(parameters(&Owner::default(), &negative).ends_with(expected));
    }

    #[test]
    fn an_answer_is_read_with_unknown_fields_in_it() {
        let allocation = b"\x0a\x01a\x12\x0b10.0.0.1/24\x1a\x0810.0.0.9\x20\x01\x2a\x0b\x0a\x090.0.0.0/0\x48\x96\x01\x55abcd\x51abcdefgh";
        let mut message = vec![0x0a, allocation.len() as u8];
        message.extend_from_slice(allocation);
        let allocations = read_allocations(&message).unwrap();
        let expected = Allocation {
            ip: "10.0.0.1/24".to_string(),
            gateway: "10.0.0.9".to_string(),
            routes: vec!["0.0.0.0/0".to_string()],
        };
        assert_eq!(allocations, [expected]);
        for end in 1..message.len() {
            assert!(read_allocations(&message[..end]).is_none(), "{end}");
        }
    }

    #[test]
    fn no_message_is_no_answer() {
        for bytes in [
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01".as_slice(),
            b"\x0b",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x0a\x02\x12\x05",
        ] {
            assert!(read_allocations(bytes).is_none(), "{bytes:x?}");
        }
        assert_eq!(read_allocations(b""), Some(Vec::new()));
        assert_eq!(read_collected(b"\x08\x03\x10\x02"), Some((3, 2)));
    }

    #[test]
    fn own_requests_are_written() {
        let pools = ["p".to_string()];
        let attachment = Attachment { container_id: "c".to_string(), ifname: "i".to_string() };
        let collected = collect("n", &pools, PoolType::IpPool, &[attachment]);
        assert_eq!(collected, b"\x0a\x01n\x12\x01p\x18\x01\x22\x06\x0a\x01c\x12\x01i");
        assert_eq!(status(&pools, PoolType::CidrPool), b"\x0a\x01p\x10\x02");
    }
}
