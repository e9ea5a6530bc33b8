//! The result of ADD in the form of the configuration's version.

use std::net::IpAddr;

use crate::address::{self, Interface};
use crate::json::Value;
use crate::proto::Allocation;

struct Address {
    interface: Interface,
    gateway: Option<IpAddr>,
}

struct Route {
    destination: Interface,
    gateway: IpAddr,
}

/// The object for standard output, or what is wrong with the daemon's response.
pub fn document(allocations: &[Allocation], version: &str) -> Result<Value, String> {
    let mut addresses = Vec::new();
    let mut routes = Vec::new();
    for allocation in allocations {
        let interface =
            Interface::parse(&allocation.ip).ok_or_else(|| format!("{:?} is not an address", allocation.ip))?;
        let gateway = read_gateway(&allocation.gateway)?;
        if let Some(gateway) = gateway {
            for text in &allocation.routes {
                let destination = Interface::parse(text).ok_or_else(|| format!("{text:?} is not a destination"))?;
                routes.push(Route { destination: destination.network(), gateway });
            }
        }
        addresses.push(Address { interface, gateway });
    }
    if addresses.is_empty() {
        return Err("it has no address".to_string());
    }
    let mut pairs = vec![("cniVersion".to_string(), Value::text(version))];
    if matches!(version, "0.1.0" | "0.2.0") {
        pairs.extend(by_family(&addresses, &routes));
    } else {
        let has_version = matches!(version, "0.3.0" | "0.3.1" | "0.4.0");
        let ips = addresses.iter().map(|each| written(each, has_version)).collect();
        pairs.push(("ips".to_string(), Value::List(ips)));
        if !routes.is_empty() {
            pairs.push(("routes".to_string(), Value::List(routes.iter().map(written_route).collect())));
        }
    }
    Ok(Value::Object(pairs))
}

fn read_gateway(text: &str) -> Result<Option<IpAddr>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    address::parse_ip(text).map(Some).ok_or_else(|| format!("{text:?} is not a gateway"))
}

fn written(address: &Address, has_version: bool) -> Value {
    let mut pairs = Vec::new();
    if has_version {
        let family = if address.interface.ip.is_ipv4() { "4" } else { "6" };
        pairs.push(("version".to_string(), Value::text(family)));
    }
    pairs.push(("address".to_string(), Value::text(address.interface.to_string())));
    if let Some(gateway) = address.gateway {
        pairs.push(("gateway".to_string(), Value::text(gateway.to_string())));
    }
    Value::Object(pairs)
}

fn written_route(route: &Route) -> Value {
    Value::Object(vec![
        ("dst".to_string(), Value::text(route.destination.to_string())),
        ("gw".to_string(), Value::text(route.gateway.to_string())),
    ])
}

/// Before 0.3.0 a result has at most one address of each family; the first is used.
fn by_family(addresses: &[Address], routes: &[Route]) -> Vec<(String, Value)> {
    let mut families = Vec::new();
    for (key, is_v4) in [("ip4", true), ("ip6", false)] {
        let Some(address) = addresses.iter().find(|each| each.interface.ip.is_ipv4() == is_v4) else {
            continue;
        };
        let mut pairs = vec![("ip".to_string(), Value::text(address.interface.to_string()))];
        if let Some(gateway) = address.gateway {
            pairs.push(("gateway".to_string(), Value::text(gateway.to_string())));
        }
        let family = routes.iter().filter(|route| route.destination.ip.is_ipv4() == is_v4);
        let own: Vec<Value> = family.map(written_route).collect();
        if !own.is_empty() {
            pairs.push(("routes".to_string(), Value::List(own)));
        }
        families.push((key.to_string(), Value::Object(pairs)));
    }
    families
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(ip: &str, gateway: &str, routes: &[&str]) -> Allocation {
        let routes = routes.iter().map(ToString::to_string).collect();
        Allocation { ip: ip.to_string(), gateway: gateway.to_string(), routes }
    }

    fn both() -> [Allocation; 2] {
        [allocation("10.0.0.2/24", "10.0.0.1", &["0.0.0.0/0", "10.9.3.3/16"]), allocation("fd00::2/64", "", &["::/0"])]
    }

    #[test]
    fn each_version_has_its_form() {
        let routes = r#"[{"dst":"0.0.0.0/0","gw":"10.0.0.1"},{"dst":"10.9.0.0/16","gw":"10.0.0.1"}]"#;
        let first = r#"{"ip":"10.0.0.2/24","gateway":"10.0.0.1","routes":"#;
        let expected = format!(r#"{{"cniVersion":"0.2.0","ip4":{first}{routes}}},"ip6":{{"ip":"fd00::2/64"}}}}"#);
        assert_eq!(document(&both(), "0.2.0").unwrap().compact(), expected);
        let ips =
            r#"[{"version":"4","address":"10.0.0.2/24","gateway":"10.0.0.1"},{"version":"6","address":"fd00::2/64"}]"#;
        let expected = format!(r#"{{"cniVersion":"0.4.0","ips":{ips},"routes":{routes}}}"#);
        assert_eq!(document(&both(), "0.4.0").unwrap().compact(), expected);
        let ips = r#"[{"address":"10.0.0.2/24","gateway":"10.0.0.1"},{"address":"fd00::2/64"}]"#;
        let expected = format!(r#"{{"cniVersion":"1.1.0","ips":{ips},"routes":{routes}}}"#);
        assert_eq!(document(&both(), "1.1.0").unwrap().compact(), expected);
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_refused() {
        for wrong in [
            allocation("", "", &[]),
            allocation("10.0.0.1", "", &[]),
            allocation("10.0.0.1/24", "nowhere", &[]),
            allocation("10.0.0.1/24", "10.0.0.9", &["10.0.0.0"]),
        ] {
            assert!(document(std::slice::from_ref(&wrong), "1.0.0").is_err(), "{wrong:?}");
        }
        assert!(document(&[], "1.0.0").is_err());
    }
}
