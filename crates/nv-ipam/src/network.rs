//! The network configuration of standard input and the file `nv-ipam.conf`: from a JSON tree to typed fields.
//!
//! Decoding follows Go's decoder, which the original uses: keys are matched without regard to case, the last of several
//! equal keys wins (a repeated object is merged into the first), null changes nothing, and a value of another type is a
//! problem. Reading continues after a problem; the caller decides whether it is fatal.

use crate::json::Value;

/// The problems of a configuration, one sentence each; the first is reported to the user.
pub type Problems = Vec<String>;

#[derive(Debug, Default, Clone, PartialEq)]
pub struct Network {
    pub name: String,
    pub cni_version: String,
    pub ipam: Option<Ipam>,
    pub device_id: String,
    pub runtime_ips: Vec<String>,
    pub args: Arguments,
}

#[derive(Debug, Default, Clone, PartialEq)]
pub struct Ipam {
    pub pool_name: String,
    pub pool_type: String,
    pub force_pool_name: Option<bool>,
    pub daemon_socket: String,
    pub daemon_call_timeout_s: i64,
    pub conf_dir: String,
    pub log_file: String,
    pub log_level: String,
    /// Counts only in the node's file: a network's own paths are used.
    pub allow_network_paths: Option<bool>,
}

/// `args.cni`: what a user asks for one pod.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Arguments {
    pub ips: Vec<String>,
    pub pool_names: Vec<String>,
    pub pool_type: String,
    pub allocate_default_gateway: bool,
    pub allocate_ip_with_index: Option<i32>,
}

#[derive(Debug, Default, Clone, PartialEq)]
pub struct Attachment {
    pub container_id: String,
    pub ifname: String,
}

/// Reads only the name, which is validated before anything else.
pub fn read_name(document: &Value, problems: &mut Problems) -> String {
    let mut name = String::new();
    each_pair(document, "the network configuration", problems, |key, value, problems| {
        if key == "name" {
            read_text(&mut name, value, "name", problems);
        }
    });
    name
}

/// Reads only the version; the default is 0.1.0.
pub fn read_version(document: &Value, problems: &mut Problems) -> String {
    let mut version = String::new();
    each_pair(document, "the network configuration", problems, |key, value, problems| {
        if key == "cniversion" {
            read_text(&mut version, value, "cniVersion", problems);
        }
    });
    if version.is_empty() { "0.1.0".to_string() } else { version }
}

pub fn read_network(document: &Value, problems: &mut Problems) -> Network {
    let mut network = Network::default();
    each_pair(document, "the network configuration", problems, |key, value, problems| match key {
        "name" => read_text(&mut network.name, value, "name", problems),
        "cniversion" => read_text(&mut network.cni_version, value, "cniVersion", problems),
        "deviceid" => read_text(&mut network.device_id, value, "deviceID", problems),
        "ipam" if *value == Value::Null => network.ipam = None,
        "ipam" => read_ipam(network.ipam.get_or_insert_default(), value, "ipam", problems),
        "runtimeconfig" => each_pair(value, "runtimeConfig", problems, |key, value, problems| {
            if key == "ips" {
                read_texts(&mut network.runtime_ips, value, "runtimeConfig.ips", problems);
            }
        }),
        "args" if *value == Value::Null => network.args = Arguments::default(),
        "args" => each_pair(value, "args", problems, |key, value, problems| match key {
            "cni" if *value == Value::Null => network.args = Arguments::default(),
            "cni" => read_arguments(&mut network.args, value, problems),
            _ => {}
        }),
        _ => {}
    });
    network
}

/// The valid attachments, for GC; `None` when the configuration does not list them.
pub fn read_valid_attachments(document: &Value, problems: &mut Problems) -> Option<Vec<Attachment>> {
    let mut attachments = None;
    each_pair(document, "the network configuration", problems, |key, value, problems| {
        // libcni wrote the second key first, and still writes both.
        if matches!(key, "cni.dev/valid-attachments" | "cni.dev/attachments") {
            read_attachments(&mut attachments, value, problems);
        }
    });
    attachments
}

/// The `ipam` section, or the file `nv-ipam.conf`, which has the same keys.
pub fn read_ipam(ipam: &mut Ipam, section: &Value, place: &str, problems: &mut Problems) {
    each_pair(section, place, problems, |key, value, problems| match key {
        "type" => read_text(&mut String::new(), value, "ipam.type", problems),
        "poolname" => read_text(&mut ipam.pool_name, value, "ipam.poolName", problems),
        "pooltype" => read_text(&mut ipam.pool_type, value, "ipam.poolType", problems),
        "daemonsocket" => read_text(&mut ipam.daemon_socket, value, "ipam.daemonSocket", problems),
        "confdir" => read_text(&mut ipam.conf_dir, value, "ipam.confDir", problems),
        "logfile" => read_text(&mut ipam.log_file, value, "ipam.logFile", problems),
        "loglevel" => read_text(&mut ipam.log_level, value, "ipam.logLevel", problems),
        "daemoncalltimeoutseconds" => {
            read_integer(&mut ipam.daemon_call_timeout_s, value, "ipam.daemonCallTimeoutSeconds", problems);
        }
        "forcepoolname" => read_switch(&mut ipam.force_pool_name, value, "ipam.forcePoolName", problems),
        "allownetworkpaths" => {
            read_switch(&mut ipam.allow_network_paths, value, "ipam.allowNetworkPaths", problems);
        }
        _ => {}
    });
}

fn read_arguments(args: &mut Arguments, section: &Value, problems: &mut Problems) {
    each_pair(section, "args.cni", problems, |key, value, problems| match key {
        "ips" => read_texts(&mut args.ips, value, "args.cni.ips", problems),
        "poolnames" => read_texts(&mut args.pool_names, value, "args.cni.poolNames", problems),
        "pooltype" => read_text(&mut args.pool_type, value, "args.cni.poolType", problems),
        "allocatedefaultgateway" => {
            read_bool(&mut args.allocate_default_gateway, value, "args.cni.allocateDefaultGateway", problems);
        }
        "allocateipwithindex" if *value == Value::Null => args.allocate_ip_with_index = None,
        "allocateipwithindex" => {
            let mut index = 0;
            read_integer(&mut index, value, "args.cni.allocateIPWithIndex", problems);
            args.allocate_ip_with_index = i32::try_from(index).ok();
            if args.allocate_ip_with_index.is_none() {
                problems.push(format!("args.cni.allocateIPWithIndex: {index} is out of range"));
            }
        }
        _ => {}
    });
}

fn read_attachments(into: &mut Option<Vec<Attachment>>, value: &Value, problems: &mut Problems) {
    let mut attachments = Vec::new();
    match value {
        Value::Null => {}
        Value::List(items) => {
            for item in items {
                let mut attachment = Attachment::default();
                each_pair(item, "cni.dev/valid-attachments", problems, |key, value, problems| match key {
                    "containerid" => read_text(&mut attachment.container_id, value, "containerID", problems),
                    "ifname" => read_text(&mut attachment.ifname, value, "ifname", problems),
                    _ => {}
                });
                attachments.push(attachment);
            }
        }
        other => problems.push(format!("cni.dev/valid-attachments must be a list, not {}", other.kind())),
    }
    *into = Some(attachments);
}

/// Calls `take` with each pair of an object; keys are in lower case.
fn each_pair(value: &Value, place: &str, problems: &mut Problems, mut take: impl FnMut(&str, &Value, &mut Problems)) {
    match value {
        Value::Object(pairs) => pairs.iter().for_each(|(key, value)| take(&folded(key), value, problems)),
        Value::Null => {}
        other => problems.push(format!("{place} must be an object, not {}", other.kind())),
    }
}

/// The key in lower case. Two characters outside ASCII have an ASCII lower case.
fn folded(key: &str) -> String {
    key.chars()
        .map(|each| match each {
            '\u{17f}' => 's',
            '\u{212a}' => 'k',
            other => other.to_ascii_lowercase(),
        })
        .collect()
}

fn read_text(into: &mut String, value: &Value, place: &str, problems: &mut Problems) {
    match value {
        Value::Text(text) => into.clone_from(text),
        Value::Null => {}
        other => problems.push(format!("{place} must be a string, not {}", other.kind())),
    }
}

fn read_texts(into: &mut Vec<String>, value: &Value, place: &str, problems: &mut Problems) {
    match value {
        Value::List(items) => {
            into.clear();
            for item in items {
                let mut text = String::new();
                read_text(&mut text, item, place, problems);
                into.push(text);
            }
        }
        Value::Null => into.clear(),
        other => problems.push(format!("{place} must be a list of strings, not {}", other.kind())),
    }
}

fn read_bool(into: &mut bool, value: &Value, place: &str, problems: &mut Problems) {
    match value {
        Value::Bool(given) => *into = *given,
        Value::Null => {}
        other => problems.push(format!("{place} must be true or false, not {}", other.kind())),
    }
}

/// A boolean that may be absent; null makes it so.
fn read_switch(into: &mut Option<bool>, value: &Value, place: &str, problems: &mut Problems) {
    *into = match value {
        Value::Null => None,
        _ => {
            let mut is_on = into.unwrap_or(false);
            read_bool(&mut is_on, value, place, problems);
            Some(is_on)
        }
    };
}

fn read_integer(into: &mut i64, value: &Value, place: &str, problems: &mut Problems) {
    match value {
        Value::Number(text) => match text.parse() {
            Ok(number) => *into = number,
            Err(_) => problems.push(format!("{place} must be an integer, not {text}")),
        },
        Value::Null => {}
        other => problems.push(format!("{place} must be an integer, not {}", other.kind())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn read(text: &str) -> (Network, Problems) {
        let mut problems = Problems::new();
        let network = read_network(&json::parse(text.as_bytes()).unwrap(), &mut problems);
        (network, problems)
    }

    fn fine(text: &str) -> Network {
        let (network, problems) = read(text);
        assert_eq!(problems, Problems::new());
        network
    }

    #[test]
    fn keys_count_in_any_case() {
        let network = fine(r#"{"NAME":"n","IPam":{"POOLNAME":"p","confdir":"/c","ForcePoolName":true}}"#);
        let ipam = network.ipam.unwrap();
        assert_eq!((network.name.as_str(), ipam.pool_name.as_str(), ipam.conf_dir.as_str()), ("n", "p", "/c"));
        assert_eq!(ipam.force_pool_name, Some(true));
        assert_eq!(fine("{\"\u{17f}\":1,\"device\\u0049d\":\"d\"}").device_id, "d");
    }

    #[test]
    fn of_equal_keys_the_later_wins_and_sections_add_up() {
        let network = fine(r#"{"name":"a","Name":"b","ipam":{"poolName":"p","logLevel":"x"},"ipam":{"poolName":"q"}}"#);
        let ipam = network.ipam.unwrap();
        assert_eq!((network.name.as_str(), ipam.pool_name.as_str(), ipam.log_level.as_str()), ("b", "q", "x"));
        assert_eq!(fine(r#"{"ipam":{"poolName":"p"},"ipam":null}"#).ipam, None);
    }

    #[test]
    fn null_changes_nothing_and_empties_lists() {
        let network = fine(r#"{"name":"a","name":null,"args":{},"runtimeConfig":{"ips":["1.1.1.1"],"ips":null}}"#);
        assert_eq!((network.name.as_str(), network.runtime_ips.len()), ("a", 0));
        assert_eq!(network.args, Arguments::default());
        assert_eq!(fine(r#"{"args":{"cni":null}}"#).args, Arguments::default());
        assert_eq!(fine(r#"{"args":null}"#).args, Arguments::default());
    }

    #[test]
    fn another_type_is_a_problem_and_the_rest_is_read() {
        for text in [
            r#"{"deviceID":"d","ipam":{"poolName":7}}"#,
            r#"{"ipam":[],"deviceID":"d"}"#,
            r#"{"ipam":{"daemonCallTimeoutSeconds":"5"},"deviceID":"d"}"#,
            r#"{"ipam":{"daemonCallTimeoutSeconds":5.0},"deviceID":"d"}"#,
            r#"{"args":{"cni":{"allocateIPWithIndex":4294967296}},"deviceID":"d"}"#,
            r#"{"args":{"cni":{"ips":"1.1.1.1"}},"deviceID":"d"}"#,
            r#"{"args":{"cni":{"allocateDefaultGateway":1}},"deviceID":"d"}"#,
            r#"{"ipam":{"type":1},"deviceID":"d"}"#,
        ] {
            let (network, problems) = read(text);
            assert_eq!((network.device_id.as_str(), problems.len()), ("d", 1), "{text}: {problems:?}");
        }
        assert_eq!(read("[]").1.len(), 1);
    }

    #[test]
    fn arguments_and_attachments_are_read() {
        let network = fine(
            r#"{"args":{"cni":{"ips":["a","b"],"poolNames":["p"],"poolType":"t","allocateIPWithIndex":3}},
                "cni.dev/valid-attachments":7}"#,
        );
        assert_eq!(network.args.ips, ["a", "b"]);
        assert_eq!((network.args.allocate_ip_with_index, network.args.pool_names.len()), (Some(3), 1));
        let attachments = |text: &str| {
            let mut problems = Problems::new();
            let valid = read_valid_attachments(&json::parse(text.as_bytes()).unwrap(), &mut problems);
            (valid, problems.len())
        };
        let attachment = Attachment { container_id: "c".to_string(), ifname: "i".to_string() };
        let listed = r#"{"cni.dev/valid-attachments":[{"containerID":"c","ifname":"i"}]}"#;
        assert_eq!(attachments(listed), (Some(vec![attachment]), 0));
        assert_eq!(attachments(r#"{"cni.dev/attachments":null}"#), (Some(Vec::new()), 0));
        assert_eq!(attachments("{}"), (None, 0));
        assert_eq!(attachments(r#"{"cni.dev/valid-attachments":[{"ifname":1}]}"#).1, 1);
    }
}
