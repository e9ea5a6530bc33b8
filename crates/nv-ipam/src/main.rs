//! `nv-ipam`: the CNI plugin that a main plugin (`macvlan`, `bridge`, `host-device`, …) asks for addresses.
//!
//! In: the CNI environment and the network configuration on standard input. Out: one JSON document on standard output,
//! the result or an error, and an exit status. The addresses come from one call of the node's daemon over its socket.
//! Every pod start waits for this program, so it is statically linked, has one thread, and waits only for that call.

mod address;
mod calendar;
mod cniargs;
mod environment;
mod error;
mod gzip;
mod json;
mod log;
mod netns;
mod network;
mod outcome;
mod plugin;
mod proto;
mod rotation;
mod rpc;
#[cfg(test)]
mod scratch;
mod settings;
mod sys;
mod versions;

use std::io::{Read, Write};
use std::process::ExitCode;

use environment::{Command, Environment};
use error::{CniError, INTERNAL, IO_FAILURE};
use json::Value;
use log::Log;
use plugin::{Config, Plugin};

/// Initial buffer size; most configurations are read at once.
const USUAL_INPUT: usize = 16 * 1024;
const VERSION: &str = include_str!("../../../VERSION").trim_ascii_end();

fn main() -> ExitCode {
    // The runtime gets a CNI error for a panic too.
    std::panic::set_hook(Box::new(|_| {}));
    let is_done = std::panic::catch_unwind(run).unwrap_or_else(|_| {
        fail(&CniError::new(INTERNAL, "internal error in nv-ipam"), "");
        false
    });
    if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run() -> bool {
    let environment = match Environment::read(|name| std::env::var_os(name)) {
        Ok(environment) => environment,
        Err(error) => return fail(&error, ""),
    };
    if environment.command_text.is_empty() {
        let versions = versions::SUPPORTED.join(", ");
        let _ =
            writeln!(std::io::stderr(), "nv-ipam CNI plugin {VERSION}\nCNI protocol versions supported: {versions}");
        return true;
    }
    if environment.command == Command::Version {
        return print(&versions::document().compact()).is_ok();
    }
    let mut stdin = Vec::with_capacity(USUAL_INPUT);
    if let Err(error) = std::io::stdin().read_to_end(&mut stdin) {
        return fail(&CniError::new(IO_FAILURE, format!("standard input cannot be read: {error}")), "");
    }
    let config = match Config::read(&stdin, environment.command, &environment.command_text) {
        Ok(config) => config,
        Err(error) => return fail(&error, ""),
    };
    let mut log = Log::new();
    let is_done = answer(&environment, &config, &stdin, &mut log);
    log.finish();
    is_done
}

fn answer(environment: &Environment, config: &Config, stdin: &[u8], log: &mut Log) -> bool {
    let refused = |error: &CniError, log: &mut Log| {
        let details = if error.details.is_empty() { String::new() } else { format!(" ({})", error.details) };
        log.error(&format!("{} failed: {}{details}", environment.command.name(), error.message));
        fail(error, &config.version)
    };
    let plugin = match Plugin::prepare(environment, config, stdin, log) {
        Ok(plugin) => plugin,
        Err(error) => return refused(&error, log),
    };
    match plugin.run(log) {
        Ok(None) => true,
        Ok(Some(result)) => match print(&result.pretty()) {
            Ok(()) => true,
            Err(error) => {
                plugin.give_back(log);
                refused(&CniError::new(IO_FAILURE, format!("the result cannot be written: {error}")), log)
            }
        },
        Err(error) => refused(&error, log),
    }
}

fn fail(error: &CniError, version: &str) -> bool {
    let document: Value = error.document(version);
    let _ = print(&document.pretty());
    false
}

fn print(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    // The end of the line flushes everything in one write.
    stdout.write_all(format!("{text}\n").as_bytes())?;
    stdout.flush()
}
