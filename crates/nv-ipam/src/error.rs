//! CNI errors: the JSON object on standard output when a command fails.

use crate::json::Value;
use crate::rpc::Status;
use crate::versions;

/// The codes of the CNI specification that this program uses.
pub const INCOMPATIBLE_VERSION: u32 = 1;
pub const INVALID_ENVIRONMENT: u32 = 4;
pub const IO_FAILURE: u32 = 5;
pub const DECODING_FAILURE: u32 = 6;
pub const INVALID_NETWORK_CONFIG: u32 = 7;
/// Used by the original's library, not defined by the specification.
pub const INVALID_NETNS: u32 = 8;
pub const TRY_AGAIN_LATER: u32 = 11;
pub const PLUGIN_NOT_AVAILABLE: u32 = 50;
pub const INTERNAL: u32 = 999;

#[derive(Debug, Clone, PartialEq)]
pub struct CniError {
    pub code: u32,
    pub message: String,
    pub details: String,
}

impl CniError {
    pub fn new(code: u32, message: impl Into<String>) -> CniError {
        CniError { code, message: message.into(), details: String::new() }
    }

    pub fn with_details(mut self, details: impl Into<String>) -> CniError {
        self.details = details.into();
        self
    }

    /// A refused or failed call of the daemon. A daemon that is away or not ready is worth another try; a request it
    /// calls wrong comes from the configuration.
    pub fn from_status(status: &Status) -> CniError {
        let code = match status.code {
            Status::UNAVAILABLE | Status::DEADLINE_EXCEEDED | Status::CANCELLED => TRY_AGAIN_LATER,
            Status::INVALID_ARGUMENT => INVALID_NETWORK_CONFIG,
            _ => INTERNAL,
        };
        CniError::new(code, status.message.clone()).with_details(format!("gRPC code {}", status.name()))
    }

    /// The object for standard output, with the version of the configuration when it is supported.
    pub fn document(&self, version: &str) -> Value {
        let version = if versions::is_supported(version) { version } else { versions::CURRENT };
        let mut pairs = vec![
            ("cniVersion".to_string(), Value::text(version)),
            ("code".to_string(), Value::Number(self.code.to_string())),
            ("msg".to_string(), Value::text(&*self.message)),
        ];
        if !self.details.is_empty() {
            pairs.push(("details".to_string(), Value::text(&*self.details)));
        }
        Value::Object(pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_tell_what_to_do() {
        let codes = [
            (Status::UNAVAILABLE, TRY_AGAIN_LATER),
            (Status::DEADLINE_EXCEEDED, TRY_AGAIN_LATER),
            (Status::CANCELLED, TRY_AGAIN_LATER),
            (Status::INVALID_ARGUMENT, INVALID_NETWORK_CONFIG),
            (Status::NOT_FOUND, INTERNAL),
            (Status::RESOURCE_EXHAUSTED, INTERNAL),
        ];
        for (status, code) in codes {
            let error = CniError::from_status(&Status::new(status, "why"));
            assert_eq!((error.code, error.message.as_str()), (code, "why"));
        }
        let error = CniError::from_status(&Status::new(Status::NOT_FOUND, "why"));
        assert_eq!(error.details, "gRPC code NOT_FOUND");
    }

    #[test]
    fn the_object_carries_a_version() {
        let error = CniError::new(7, "no");
        assert_eq!(error.document("0.4.0").compact(), r#"{"cniVersion":"0.4.0","code":7,"msg":"no"}"#);
        let detailed = error.with_details("d").document("banana").compact();
        assert_eq!(detailed, r#"{"cniVersion":"1.1.0","code":7,"msg":"no","details":"d"}"#);
    }
}
