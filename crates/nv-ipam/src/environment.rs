//! The CNI environment: the command and the container. Checked before standard input is read, in the original's order.

use std::ffi::OsString;

use crate::error::{CniError, INVALID_ENVIRONMENT};
use crate::settings::CONF_DIR;

const MAX_INTERFACE_NAME: usize = 15;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Command {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
    Unknown,
}

impl Command {
    fn of(name: &str) -> Command {
        match name {
            "ADD" => Command::Add,
            "DEL" => Command::Del,
            "CHECK" => Command::Check,
            "GC" => Command::Gc,
            "STATUS" => Command::Status,
            "VERSION" => Command::Version,
            _ => Command::Unknown,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Command::Add => "ADD",
            Command::Del => "DEL",
            Command::Check => "CHECK",
            Command::Gc => "GC",
            Command::Status => "STATUS",
            Command::Version => "VERSION",
            Command::Unknown => "an unknown command",
        }
    }

    /// Whether the command applies to one container's interface.
    pub fn is_for_container(self) -> bool {
        matches!(self, Command::Add | Command::Del | Command::Check)
    }
}

#[derive(Clone, Debug)]
pub struct Environment {
    pub command: Command,
    pub command_text: String,
    pub container_id: String,
    pub netns: String,
    pub ifname: String,
    pub args: String,
    pub has_netns_override: bool,
    /// The folder of the node's `nv-ipam.conf`. Only who starts the plugin can set it; a network cannot.
    pub conf_dir: String,
}

impl Environment {
    /// Reads and checks the variables that the command needs. A missing command is not an error: it is then empty.
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Environment, CniError> {
        let text = |name: &str| variable(name).unwrap_or_default().to_string_lossy().into_owned();
        let command_text = text("CNI_COMMAND");
        let override_text = text("CNI_NETNS_OVERRIDE");
        let conf_dir = text("NV_IPAM_CONF_DIR");
        let environment = Environment {
            command: Command::of(&command_text),
            command_text,
            container_id: text("CNI_CONTAINERID"),
            netns: text("CNI_NETNS"),
            ifname: text("CNI_IFNAME"),
            args: text("CNI_ARGS"),
            has_netns_override: override_text == "1" || override_text.eq_ignore_ascii_case("true"),
            conf_dir: if conf_dir.is_empty() { CONF_DIR.to_string() } else { conf_dir },
        };
        environment.check(&text("CNI_PATH"))?;
        Ok(environment)
    }

    fn check(&self, path: &str) -> Result<(), CniError> {
        let for_container = self.command.is_for_container();
        let needs_path = for_container || matches!(self.command, Command::Gc | Command::Status);
        let needs_netns = matches!(self.command, Command::Add | Command::Check);
        let mut missing = Vec::new();
        if for_container && self.container_id.is_empty() {
            missing.push("CNI_CONTAINERID");
        } else if for_container && !is_name(&self.container_id) {
            let error = CniError::new(INVALID_ENVIRONMENT, "invalid characters in CNI_CONTAINERID");
            return Err(error.with_details(&*self.container_id));
        }
        if needs_netns && self.netns.is_empty() {
            missing.push("CNI_NETNS");
        }
        if for_container && self.ifname.is_empty() {
            missing.push("CNI_IFNAME");
        } else if for_container {
            check_interface(&self.ifname)?;
        }
        if needs_path && path.is_empty() {
            missing.push("CNI_PATH");
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(CniError::new(INVALID_ENVIRONMENT, format!("variables missing: {}", missing.join(", "))))
    }
}

/// The rule for container ids and network names.
pub fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|each| each.is_ascii_alphanumeric() || matches!(each, '_' | '.' | '-'))
}

fn check_interface(name: &str) -> Result<(), CniError> {
    let is_wrong = |each: char| each == '/' || each == ':' || each == '\u{fffd}' || each.is_whitespace();
    let problem = if name.len() > MAX_INTERFACE_NAME {
        "is longer than 15 characters"
    } else if name == "." || name == ".." {
        "is . or .."
    } else if name.contains(is_wrong) {
        "has a slash, a colon, a space or no text in it"
    } else {
        return Ok(());
    };
    Err(CniError::new(INVALID_ENVIRONMENT, format!("CNI_IFNAME {problem}")).with_details(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: [(&str, &str); 5] = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", "/ns"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/bin"),
    ];

    fn read(changes: &[(&str, &str)]) -> Result<Environment, CniError> {
        Environment::read(|name| {
            let pair = changes.iter().chain(&FULL).find(|(key, _)| *key == name);
            pair.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn a_full_environment_is_taken() {
        let environment = read(&[("CNI_ARGS", "A=b"), ("CNI_NETNS_OVERRIDE", "True")]).unwrap();
        assert_eq!(
            (environment.command, environment.ifname.as_str(), environment.args.as_str()),
            (Command::Add, "eth0", "A=b")
        );
        assert!(environment.has_netns_override);
    }

    #[test]
    fn each_command_has_its_needs() {
        for (command, missing) in [
            ("ADD", "CNI_CONTAINERID"),
            ("ADD", "CNI_NETNS"),
            ("ADD", "CNI_IFNAME"),
            ("ADD", "CNI_PATH"),
            ("CHECK", "CNI_NETNS"),
            ("DEL", "CNI_CONTAINERID"),
            ("GC", "CNI_PATH"),
            ("STATUS", "CNI_PATH"),
        ] {
            let error = read(&[("CNI_COMMAND", command), (missing, "")]).unwrap_err();
            assert_eq!(error.code, INVALID_ENVIRONMENT);
            assert!(error.message.contains(missing), "{error:?}");
        }
        for (command, absent) in
            [("DEL", "CNI_NETNS"), ("GC", "CNI_CONTAINERID"), ("VERSION", "CNI_PATH"), ("", "CNI_PATH")]
        {
            assert!(read(&[("CNI_COMMAND", command), (absent, "")]).is_ok(), "{command} without {absent}");
        }
    }

    #[test]
    fn names_are_checked_where_they_count() {
        for id in ["a/b", "-a", "a b", "é"] {
            assert!(read(&[("CNI_CONTAINERID", id)]).is_err(), "{id}");
            assert!(read(&[("CNI_COMMAND", "STATUS"), ("CNI_CONTAINERID", id)]).is_ok(), "{id}");
        }
        for name in ["abcdefghijklmnop", "a/b", "a:b", "a b", ".", "..", "a\u{a0}b"] {
            assert!(read(&[("CNI_IFNAME", name)]).is_err(), "{name}");
        }
        assert!(read(&[("CNI_IFNAME", "abcdefghijklmno")]).is_ok());
    }
}
