//! Settings of a call from the configuration, its file and `CNI_ARGS`: pools, requested addresses, socket, log.
//!
//! A value comes from standard input, else from `nv-ipam.conf` in the configuration directory, else it is the default.
//! Users of a cluster write networks, and the plugin runs as root on the node: where the node has a file of its own, the
//! paths of a network (`confDir`, `daemonSocket`, `logFile`) do not count unless that file allows them, and a log file
//! that the node did not choose is below `/var/log`.
//!
//! Problems are collected: ADD and CHECK reject a configuration with problems; DEL uses the valid rest, because an
//! address must be released even when the configuration became invalid.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use crate::address;
use crate::json;
use crate::network::{self, Ipam, Network, Problems};
use crate::sys;

pub const CONF_DIR: &str = "/etc/cni/net.d/nv-ipam.d";
pub const CONF_FILE: &str = "nv-ipam.conf";
pub const DAEMON_SOCKET: &str = "unix:///var/lib/cni/nv-ipam/daemon.sock";
pub const LOG_FILE: &str = "/var/log/nv-ipam-cni.log";
pub const LOG_LEVEL: &str = "info";
const CALL_TIMEOUT_S: i64 = 5;
/// Upper limit of timeouts: a network must not occupy the container runtime for longer.
const LONGEST_TIMEOUT_S: i64 = 60;
const MAX_POOLS: usize = 2;
const MAX_FILE_SIZE: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PoolType {
    IpPool = 1,
    CidrPool = 2,
}

/// The daemon's address and the log settings, read before the rest.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    pub socket: String,
    pub timeout: Duration,
    pub log_file: String,
    /// Whether the log file must be below `/var/log`, because the node did not choose it.
    pub is_log_confined: bool,
    pub log_level: String,
}

/// The `ipam` section merged with the file and the defaults.
#[derive(Debug)]
pub struct Merged {
    pub ipam: Ipam,
    is_log_confined: bool,
    /// The values of the network that are not used, one sentence each.
    pub ignored: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Wish {
    pub pools: Vec<String>,
    pub pool_type: PoolType,
    pub requested_ips: Vec<IpAddr>,
    pub wants_gateway: bool,
    pub index: Option<i32>,
}

/// `node_folder` is the folder of the node's own file.
pub fn merge(network: &Network, node_folder: &str, problems: &mut Problems) -> Merged {
    if network.ipam.is_none() {
        problems.push("the configuration has no ipam section".to_string());
    }
    let mut ipam = network.ipam.clone().unwrap_or_default();
    let node_file = read_file(node_folder, true, problems);
    let mut ignored = Vec::new();
    if let Some(file) = node_file.as_ref().filter(|file| file.allow_network_paths != Some(true)) {
        set_paths_aside(&mut ipam, file, node_folder, &mut ignored);
    }
    let is_node_file = ipam.conf_dir.is_empty() || ipam.conf_dir == node_folder;
    let file = if is_node_file { node_file } else { read_file(&ipam.conf_dir, false, problems) }.unwrap_or_default();
    let is_log_confined = !ipam.log_file.is_empty() || !is_node_file && !file.log_file.is_empty();
    fill(&mut ipam.pool_name, file.pool_name, "");
    fill(&mut ipam.pool_type, file.pool_type, "ippool");
    fill(&mut ipam.daemon_socket, file.daemon_socket, DAEMON_SOCKET);
    fill(&mut ipam.log_file, file.log_file, LOG_FILE);
    fill(&mut ipam.log_level, file.log_level, LOG_LEVEL);
    ipam.force_pool_name = ipam.force_pool_name.or(file.force_pool_name);
    for timeout in [file.daemon_call_timeout_s, CALL_TIMEOUT_S] {
        if ipam.daemon_call_timeout_s == 0 {
            ipam.daemon_call_timeout_s = timeout;
        }
    }
    if ipam.force_pool_name != Some(true) && ipam.pool_name.is_empty() {
        ipam.pool_name.clone_from(&network.name);
    }
    Merged { ipam, is_log_confined, ignored }
}

/// Empty the paths that the network sets; those that differ from the node's are reported.
fn set_paths_aside(ipam: &mut Ipam, node_file: &Ipam, node_folder: &str, ignored: &mut Vec<String>) {
    for (key, given, in_use) in [
        ("confDir", &mut ipam.conf_dir, node_folder),
        ("daemonSocket", &mut ipam.daemon_socket, or(&node_file.daemon_socket, DAEMON_SOCKET)),
        ("logFile", &mut ipam.log_file, or(&node_file.log_file, LOG_FILE)),
    ] {
        let text = std::mem::take(given);
        if !text.is_empty() && text != in_use {
            ignored.push(format!(
                "the network's {key} {text:?} is ignored: {node_folder}/{CONF_FILE} does not set allowNetworkPaths"
            ));
        }
    }
}

fn or<'a>(value: &'a str, default: &'a str) -> &'a str {
    if value.is_empty() { default } else { value }
}

fn fill(value: &mut String, from_file: String, default: &str) {
    if value.is_empty() {
        *value = or(&from_file, default).to_string();
    }
}

/// The file's settings; `None` where there is no file. A file that cannot be read has none, but it exists. Only the
/// node's own file may be a symbolic link, as a mounted ConfigMap makes it.
fn read_file(folder: &str, is_node_file: bool, problems: &mut Problems) -> Option<Ipam> {
    let mut ipam = Ipam::default();
    let path = Path::new(folder).join(CONF_FILE);
    let text = match read_regular(&path, if is_node_file { 0 } else { sys::O_NOFOLLOW }) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            problems.push(format!("cannot read {}: {error}", path.display()));
            return Some(ipam);
        }
    };
    let known = problems.len();
    match json::parse(&text) {
        Ok(document) => network::read_ipam(&mut ipam, &document, "the file", problems),
        Err(error) => problems.push(error),
    }
    for problem in &mut problems[known..] {
        *problem = format!("{}: {problem}", path.display());
    }
    Some(ipam)
}

/// The content of a file, not of something that blocks or never ends.
fn read_regular(path: &Path, flags: i32) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(flags | sys::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut text = Vec::new();
    file.take(MAX_FILE_SIZE + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_FILE_SIZE {
        return Err(io::Error::other(format!("it has more than {MAX_FILE_SIZE} bytes")));
    }
    Ok(text)
}

pub fn place(merged: &Merged, problems: &mut Problems) -> Place {
    let ipam = &merged.ipam;
    let mut timeout_s = ipam.daemon_call_timeout_s;
    if timeout_s <= 0 {
        problems.push(format!("daemonCallTimeoutSeconds must be greater than zero, not {timeout_s}"));
        timeout_s = CALL_TIMEOUT_S;
    }
    Place {
        socket: ipam.daemon_socket.clone(),
        timeout: Duration::from_secs(timeout_s.min(LONGEST_TIMEOUT_S) as u64),
        log_file: ipam.log_file.clone(),
        is_log_confined: merged.is_log_confined,
        log_level: ipam.log_level.clone(),
    }
}

/// The request to the daemon. `arg_ip` is the address of `CNI_ARGS`, used when the configuration requests none.
pub fn wish(network: &Network, ipam: &Ipam, arg_ip: &str, problems: &mut Problems) -> Wish {
    let args = &network.args;
    let requested_ips = requested(network, arg_ip, problems);
    if args.allocate_ip_with_index.is_some_and(|index| index < 0) {
        problems.push("allocateIPWithIndex must not be negative".to_string());
    }
    if args.allocate_default_gateway && !requested_ips.is_empty() {
        problems.push("allocateDefaultGateway and a static address are mutually exclusive".to_string());
    }
    if args.allocate_default_gateway && args.allocate_ip_with_index.is_some() {
        problems.push("allocateDefaultGateway and allocateIPWithIndex are mutually exclusive".to_string());
    }
    if args.allocate_ip_with_index.is_some() && !requested_ips.is_empty() {
        problems.push("allocateIPWithIndex and a static address are mutually exclusive".to_string());
    }
    let pools = pools(network, ipam, problems);
    let pool_type = pool_type(network, ipam, problems);
    Wish {
        // Without a pool type the pool names are ambiguous; an empty list means all pools.
        pools: if pool_type.is_some() { pools } else { Vec::new() },
        pool_type: pool_type.unwrap_or(PoolType::IpPool),
        requested_ips,
        wants_gateway: args.allocate_default_gateway,
        index: args.allocate_ip_with_index,
    }
}

fn requested(network: &Network, arg_ip: &str, problems: &mut Problems) -> Vec<IpAddr> {
    let listed = if network.runtime_ips.is_empty() { &network.args.ips } else { &network.runtime_ips };
    let single = [arg_ip.to_string()];
    let texts: &[String] = if listed.is_empty() && !arg_ip.is_empty() { &single } else { listed };
    let mut ips = Vec::new();
    for text in texts {
        match address::parse_ip(text.split('/').next().unwrap_or_default()) {
            Some(ip) => ips.push(ip),
            None => problems.push(format!("static address {text:?} must be an IP address")),
        }
    }
    ips
}

/// One or two pool names; empty when the configuration is invalid.
fn pools(network: &Network, ipam: &Ipam, problems: &mut Problems) -> Vec<String> {
    let pools: Vec<String> = if !network.args.pool_names.is_empty() {
        network.args.pool_names.clone()
    } else if ipam.pool_name.is_empty() {
        problems.push("no pool name is given, and forcePoolName is set".to_string());
        return Vec::new();
    } else {
        ipam.pool_name.split(',').map(String::from).collect()
    };
    if pools.len() > MAX_POOLS {
        problems.push(format!("{} pools are named, at most {MAX_POOLS} are allowed", pools.len()));
        return Vec::new();
    }
    if pools.iter().any(String::is_empty) {
        problems.push("a pool name must not be empty".to_string());
        return Vec::new();
    }
    pools
}

fn pool_type(network: &Network, ipam: &Ipam, problems: &mut Problems) -> Option<PoolType> {
    let text = if network.args.pool_type.is_empty() { &ipam.pool_type } else { &network.args.pool_type };
    match text.to_lowercase().as_str() {
        "ippool" => Some(PoolType::IpPool),
        "cidrpool" => Some(PoolType::CidrPool),
        _ => {
            problems.push(format!("poolType {text:?} must be ippool or cidrpool"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch;
    use std::fs;

    struct Case {
        ipam: Ipam,
        ignored: usize,
        place: Place,
        wish: Wish,
        problems: Problems,
    }

    /// The settings for a configuration, in which `$C` is the configuration directory. The node has no file.
    fn load(stdin: &str, file: Option<&str>, arg_ip: &str) -> Case {
        load_on_node(stdin, file, None, arg_ip)
    }

    fn load_on_node(stdin: &str, file: Option<&str>, node_file: Option<&str>, arg_ip: &str) -> Case {
        let (folder, node_folder) = (scratch::folder(), scratch::folder());
        for (folder, text) in [(&folder, file), (&node_folder, node_file)] {
            if let Some(text) = text {
                fs::write(folder.join(CONF_FILE), text).unwrap();
            }
        }
        let text = stdin.replace("$C", folder.to_str().unwrap());
        let mut problems = Problems::new();
        let network = network::read_network(&json::parse(text.as_bytes()).unwrap(), &mut problems);
        let merged = merge(&network, node_folder.to_str().unwrap(), &mut problems);
        let place = place(&merged, &mut problems);
        let wish = wish(&network, &merged.ipam, arg_ip, &mut problems);
        Case { ipam: merged.ipam, ignored: merged.ignored.len(), place, wish, problems }
    }

    #[test]
    fn defaults_hold_without_file_and_settings() {
        let case = load(r#"{"name":"n","ipam":{"confDir":"$C"}}"#, None, "");
        assert_eq!(case.problems, Problems::new());
        assert_eq!((case.place.socket.as_str(), case.place.timeout), (DAEMON_SOCKET, Duration::from_secs(5)));
        assert_eq!((case.place.log_file.as_str(), case.place.log_level.as_str()), (LOG_FILE, LOG_LEVEL));
        assert_eq!((case.wish.pools, case.wish.pool_type), (vec!["n".to_string()], PoolType::IpPool));
    }

    #[test]
    fn standard_input_wins_over_the_file() {
        let file = r#"{"daemonSocket":"unix:///f","daemonCallTimeoutSeconds":9,"logFile":"/f.log","LOGLEVEL":"debug",
            "poolName":"fp","poolType":"CIDRPool","confDir":"/elsewhere","forcePoolName":true}"#;
        let case = load(r#"{"name":"n","ipam":{"confDir":"$C"}}"#, Some(file), "");
        assert_eq!((case.place.socket.as_str(), case.place.timeout), ("unix:///f", Duration::from_secs(9)));
        assert_eq!((case.wish.pools, case.wish.pool_type), (vec!["fp".to_string()], PoolType::CidrPool));
        let stdin = r#"{"name":"n","ipam":{"confDir":"$C","daemonSocket":"unix:///s","logLevel":"error","poolType":"ippool",
            "poolName":"a,b","daemonCallTimeoutSeconds":1}}"#;
        let case = load(stdin, Some(file), "");
        assert_eq!((case.place.socket.as_str(), case.place.timeout), ("unix:///s", Duration::from_secs(1)));
        assert_eq!((case.place.log_level.as_str(), case.place.log_file.as_str()), ("error", "/f.log"));
        assert_eq!((case.wish.pools, case.wish.pool_type), (vec!["a".to_string(), "b".to_string()], PoolType::IpPool));
        assert_eq!(case.ipam.force_pool_name, Some(true));
    }

    const PATHS: &str = r#"{"name":"n","ipam":{"confDir":"$C","daemonSocket":"unix:///s","logFile":"/s.log",
        "logLevel":"error","daemonCallTimeoutSeconds":7,"poolName":"p"}}"#;

    #[test]
    fn the_nodes_file_wins_over_the_paths_of_a_network() {
        let node_file = r#"{"daemonSocket":"unix:///node","logFile":"/node.log","logLevel":"debug"}"#;
        let case = load_on_node(PATHS, Some(r#"{"poolType":"cidrpool"}"#), Some(node_file), "");
        assert_eq!((case.place.socket.as_str(), case.place.log_file.as_str()), ("unix:///node", "/node.log"));
        assert_eq!((case.place.is_log_confined, case.ignored, case.problems.len()), (false, 3, 0));
        assert_eq!((case.place.log_level.as_str(), case.place.timeout), ("error", Duration::from_secs(7)));
        assert_eq!((case.wish.pools, case.wish.pool_type), (vec!["p".to_string()], PoolType::IpPool));
    }

    #[test]
    fn a_file_of_the_node_without_paths_or_without_sense_wins_too() {
        for (node_file, problems) in [("{}", 0), ("{", 1), (r#"{"allowNetworkPaths":false}"#, 0)] {
            let case = load_on_node(PATHS, None, Some(node_file), "");
            assert_eq!((case.place.socket.as_str(), case.place.log_file.as_str()), (DAEMON_SOCKET, LOG_FILE));
            assert_eq!((case.ignored, case.problems.len()), (3, problems), "{node_file}");
        }
        let same = r#"{"name":"n","ipam":{"daemonSocket":"unix:///node"}}"#;
        let case = load_on_node(same, None, Some(r#"{"daemonSocket":"unix:///node"}"#), "");
        assert_eq!((case.place.socket.as_str(), case.ignored), ("unix:///node", 0));
    }

    #[test]
    fn the_nodes_file_may_allow_the_paths_of_a_network() {
        let node_file = r#"{"allowNetworkPaths":true,"daemonSocket":"unix:///node","logFile":"/node.log"}"#;
        let case = load_on_node(PATHS, Some(r#"{"poolType":"cidrpool"}"#), Some(node_file), "");
        assert_eq!((case.place.socket.as_str(), case.place.log_file.as_str()), ("unix:///s", "/s.log"));
        assert_eq!((case.place.is_log_confined, case.ignored), (true, 0));
        assert_eq!(case.wish.pool_type, PoolType::CidrPool);
        let case = load_on_node(r#"{"name":"n","ipam":{}}"#, None, Some(node_file), "");
        assert_eq!((case.place.log_file.as_str(), case.place.is_log_confined), ("/node.log", false));
    }

    #[test]
    fn a_network_cannot_allow_its_own_paths() {
        let stdin = PATHS.replace("\"poolName\"", "\"allowNetworkPaths\":true,\"poolName\"");
        let case = load_on_node(&stdin, Some(r#"{"allowNetworkPaths":true}"#), Some("{}"), "");
        assert_eq!((case.place.socket.as_str(), case.place.log_file.as_str()), (DAEMON_SOCKET, LOG_FILE));
    }

    #[test]
    fn a_log_that_the_node_did_not_choose_is_confined() {
        let case = load(r#"{"name":"n","ipam":{"confDir":"$C"}}"#, Some(r#"{"logFile":"/f.log"}"#), "");
        assert!(case.place.is_log_confined);
        assert!(load(r#"{"name":"n","ipam":{"logFile":"/s.log"}}"#, None, "").place.is_log_confined);
        assert!(!load(r#"{"name":"n","ipam":{"confDir":"$C"}}"#, None, "").place.is_log_confined);
    }

    #[test]
    fn links_devices_and_large_files_are_no_configuration() {
        let folder = scratch::folder();
        let path = folder.join(CONF_FILE);
        fs::write(folder.join("target"), "{}").unwrap();
        std::os::unix::fs::symlink(folder.join("target"), &path).unwrap();
        let read = || {
            let mut problems = Problems::new();
            (read_file(folder.to_str().unwrap(), false, &mut problems).is_some(), problems.len())
        };
        assert_eq!(read(), (true, 1));
        assert!(read_file(folder.to_str().unwrap(), true, &mut Problems::new()).is_some());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(read(), (true, 1));
        fs::remove_dir(&path).unwrap();
        fs::write(&path, vec![b' '; MAX_FILE_SIZE as usize + 1]).unwrap();
        assert_eq!(read(), (true, 1));
        fs::write(&path, "{}").unwrap();
        assert_eq!(read(), (true, 0));
    }

    #[test]
    fn a_forced_name_has_to_be_given() {
        for (stdin, file) in [
            (r#"{"name":"n","ipam":{"confDir":"$C","forcePoolName":true}}"#, None),
            (r#"{"name":"n","ipam":{"confDir":"$C"}}"#, Some(r#"{"forcePoolName":true}"#)),
        ] {
            assert_eq!(load(stdin, file, "").problems.len(), 1);
        }
        let stdin = r#"{"name":"n","ipam":{"confDir":"$C","forcePoolName":false}}"#;
        let case = load(stdin, Some(r#"{"forcePoolName":true}"#), "");
        assert_eq!((case.problems.len(), case.wish.pools), (0, vec!["n".to_string()]));
    }

    #[test]
    fn arguments_of_the_pod_win() {
        let stdin = r#"{"name":"n","ipam":{"confDir":"$C","poolName":"x","poolType":"ippool"},
            "args":{"cni":{"poolNames":["a","b"],"poolType":"CIDRPOOL"}}}"#;
        let case = load(stdin, None, "");
        assert_eq!((case.wish.pools.len(), case.wish.pool_type), (2, PoolType::CidrPool));
    }

    #[test]
    fn the_first_source_of_addresses_counts() {
        let base = r#"{"name":"n","ipam":{"confDir":"$C"}"#;
        let runtime = r#""runtimeConfig":{"ips":["1.1.1.1/24","fd00::1"]}"#;
        let args = r#""args":{"cni":{"ips":["2.2.2.2"]}}"#;
        let texts = |stdin: String| {
            let ips = load(&stdin, None, "3.3.3.3/8").wish.requested_ips;
            ips.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(texts(format!("{base},{runtime},{args}}}")), ["1.1.1.1", "fd00::1"]);
        assert_eq!(texts(format!("{base},{args}}}")), ["2.2.2.2"]);
        assert_eq!(texts(format!("{base}}}")), ["3.3.3.3"]);
        assert_eq!(load(&format!("{base}}}"), None, "nonsense").problems.len(), 1);
    }

    #[test]
    fn what_cannot_be_together_is_refused() {
        for cni in [
            r#"{"allocateDefaultGateway":true,"ips":["1.1.1.1"]}"#,
            r#"{"allocateDefaultGateway":true,"allocateIPWithIndex":1}"#,
            r#"{"allocateIPWithIndex":1,"ips":["1.1.1.1"]}"#,
            r#"{"allocateIPWithIndex":-1}"#,
            r#"{"poolNames":["a","b","c"]}"#,
            r#"{"poolNames":["a",""]}"#,
            r#"{"poolType":"other"}"#,
        ] {
            let stdin = format!(r#"{{"name":"n","ipam":{{"confDir":"$C"}},"args":{{"cni":{cni}}}}}"#);
            assert_eq!(load(&stdin, None, "").problems.len(), 1, "{cni}");
        }
    }

    #[test]
    fn a_broken_file_is_a_problem_and_a_missing_one_is_not() {
        for file in ["{", "[]", r#"{"poolName":1}"#] {
            let case = load(r#"{"name":"n","ipam":{"confDir":"$C"}}"#, Some(file), "");
            assert_eq!(case.problems.len(), 1, "{file}");
            assert!(case.problems[0].contains(CONF_FILE), "{:?}", case.problems);
        }
        assert!(load(r#"{"name":"n","ipam":{"confDir":"$C"}}"#, Some("null"), "").problems.is_empty());
    }

    #[test]
    fn a_timeout_is_above_zero() {
        let case = load(r#"{"name":"n","ipam":{"confDir":"$C","daemonCallTimeoutSeconds":-1}}"#, None, "");
        assert_eq!((case.problems.len(), case.place.timeout), (1, Duration::from_secs(5)));
        let case =
            load(r#"{"name":"n","ipam":{"confDir":"$C","daemonCallTimeoutSeconds":9223372036854775807}}"#, None, "");
        assert_eq!((case.problems.len(), case.place.timeout), (0, Duration::from_secs(LONGEST_TIMEOUT_S as u64)));
    }
}
