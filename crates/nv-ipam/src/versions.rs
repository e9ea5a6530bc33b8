//! Supported versions of the CNI specification, and the commands of each.

use crate::environment::Command;
use crate::error::{CniError, DECODING_FAILURE, INCOMPATIBLE_VERSION};
use crate::json::Value;

pub const SUPPORTED: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
pub const CURRENT: &str = "1.1.0";

pub fn is_supported(version: &str) -> bool {
    SUPPORTED.contains(&version)
}

/// The result of VERSION.
pub fn document() -> Value {
    let versions = SUPPORTED.iter().map(|version| Value::text(*version)).collect();
    Value::Object(vec![
        ("cniVersion".to_string(), Value::text(CURRENT)),
        ("supportedVersions".to_string(), Value::List(versions)),
    ])
}

/// Checks that a configuration of this version allows the command.
pub fn check(command: Command, version: &str) -> Result<(), CniError> {
    let since = match command {
        Command::Check => Some((0, 4, 0)),
        Command::Gc | Command::Status => Some((1, 1, 0)),
        _ => None,
    };
    if let Some(since) = since {
        let given = numbers(version)
            .ok_or_else(|| CniError::new(DECODING_FAILURE, format!("cniVersion {version:?} is not a version")))?;
        if given < since {
            let message = format!("a configuration of version {version} does not allow {}", command.name());
            return Err(CniError::new(INCOMPATIBLE_VERSION, message));
        }
    }
    if is_supported(version) {
        return Ok(());
    }
    let details = format!("configuration {version:?}, supported {}", SUPPORTED.join(", "));
    Err(CniError::new(INCOMPATIBLE_VERSION, "incompatible CNI versions").with_details(details))
}

fn numbers(version: &str) -> Option<(i64, i64, i64)> {
    let mut parts = [0; 3];
    for (place, part) in version.split('.').enumerate() {
        *parts.get_mut(place)? = part.parse().ok()?;
    }
    Some((parts[0], parts[1], parts[2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(command: Command, version: &str) -> u32 {
        check(command, version).map_or_else(|error| error.code, |()| 0)
    }

    #[test]
    fn every_supported_version_takes_add_and_del() {
        for version in SUPPORTED {
            assert_eq!((code(Command::Add, version), code(Command::Del, version)), (0, 0));
        }
        for version in ["9.9.9", "banana", "1.0", "", "1.1.0.0"] {
            assert_eq!(code(Command::Add, version), INCOMPATIBLE_VERSION, "{version}");
        }
    }

    #[test]
    fn later_commands_need_later_versions() {
        assert_eq!(code(Command::Check, "0.3.1"), INCOMPATIBLE_VERSION);
        assert_eq!(code(Command::Check, "0.4.0"), 0);
        assert_eq!(code(Command::Check, "2.0.0"), INCOMPATIBLE_VERSION);
        assert_eq!(code(Command::Gc, "1.0.0"), INCOMPATIBLE_VERSION);
        assert_eq!(code(Command::Status, "1.1.0"), 0);
        assert_eq!(code(Command::Status, "banana"), DECODING_FAILURE);
    }
}
