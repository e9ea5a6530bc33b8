//! The commands: from environment and standard input to a call of the daemon, and from its response to the result.
//!
//! ADD, CHECK, GC and STATUS reject an invalid configuration. DEL sends what it could read, because an address must be
//! released even when the configuration became invalid after ADD.

use crate::cniargs;
use crate::environment::{self, Command, Environment};
use crate::error::{
    CniError, DECODING_FAILURE, INTERNAL, INVALID_ENVIRONMENT, INVALID_NETNS, INVALID_NETWORK_CONFIG,
    PLUGIN_NOT_AVAILABLE,
};
use crate::json::{self, Value};
use crate::log::Log;
use crate::netns;
use crate::network::{self, Attachment, Problems};
use crate::outcome;
use crate::proto::{self, Owner};
use crate::rpc::{self, Absence, Status};
use crate::settings::{self, Place, Wish};
use crate::versions;

/// The pod name for a daemon that requires one when the runtime sets none.
const UNKNOWN_POD: &str = "unknown";

/// The part of standard input that every command needs.
pub struct Config {
    document: Value,
    name: String,
    pub version: String,
}

impl Config {
    /// The checks before any command, in the original's order.
    pub fn read(stdin: &[u8], command: Command, command_text: &str) -> Result<Config, CniError> {
        let document = json::parse(stdin)
            .map_err(|why| CniError::new(DECODING_FAILURE, format!("the network configuration is not JSON: {why}")))?;
        let mut problems = Problems::new();
        let name = network::read_name(&document, &mut problems);
        refuse(DECODING_FAILURE, &problems)?;
        if !environment::is_name(&name) {
            let problem = if name.is_empty() { "the network has no name" } else { "the network's name is illegal" };
            return Err(CniError::new(INVALID_NETWORK_CONFIG, problem).with_details(name));
        }
        if command == Command::Unknown {
            return Err(CniError::new(INVALID_ENVIRONMENT, format!("unknown CNI_COMMAND: {command_text}")));
        }
        let version = network::read_version(&document, &mut problems);
        refuse(DECODING_FAILURE, &problems)?;
        Ok(Config { document, name, version })
    }
}

fn refuse(code: u32, problems: &Problems) -> Result<(), CniError> {
    problems.first().map_or(Ok(()), |problem| Err(CniError::new(code, problem.clone())))
}

pub struct Plugin<'a> {
    environment: &'a Environment,
    config: &'a Config,
    place: Place,
    owner: Owner,
    wish: Wish,
    valid_attachments: Option<Vec<Attachment>>,
}

impl<'a> Plugin<'a> {
    /// Read the rest of the configuration and open the log file.
    pub fn prepare(
        environment: &'a Environment,
        config: &'a Config,
        stdin: &[u8],
        log: &mut Log,
    ) -> Result<Plugin<'a>, CniError> {
        let command = environment.command;
        versions::check(command, &config.version)?;
        let mut problems = Problems::new();
        let network = network::read_network(&config.document, &mut problems);
        let valid_attachments = match command {
            Command::Gc => network::read_valid_attachments(&config.document, &mut problems),
            _ => None,
        };
        let merged = settings::merge(&network, &environment.conf_dir, &mut problems);
        let place = settings::place(&merged, &mut problems);
        log.set(&place.log_level, &place.log_file, place.is_log_confined);
        let (args, arg_problems) = arguments(environment);
        let wish = settings::wish(&network, &merged.ipam, &args.ip, &mut problems);
        announce(environment, stdin, &place, &wish, log);
        for note in &merged.ignored {
            log.warning(note);
        }
        if command == Command::Del {
            for problem in problems.iter().chain(&arg_problems) {
                log.warning(&format!("DEL ignores an invalid configuration: {problem}"));
            }
        } else {
            refuse(INVALID_NETWORK_CONFIG, &problems)?;
            refuse(INVALID_ENVIRONMENT, &arg_problems)?;
        }
        if command.is_for_container() && args.pod_uid.is_empty() {
            log.warning("the container runtime did not set K8S_POD_UID");
        }
        let owner = Owner {
            container_id: environment.container_id.clone(),
            ifname: environment.ifname.clone(),
            pod_name: args.pod_name,
            pod_namespace: args.pod_namespace,
            pod_uid: args.pod_uid,
            device_id: network.device_id,
        };
        Ok(Plugin { environment, config, place, owner, wish, valid_attachments })
    }

    pub fn run(&self, log: &mut Log) -> Result<Option<Value>, CniError> {
        let result = match self.environment.command {
            Command::Add => self.add(log).map(Some),
            Command::Del => self.del().map(|()| None),
            Command::Check => self.check().map(|()| None),
            Command::Gc => self.gc(log).map(|()| None),
            _ => return self.status().map(|()| None),
        }?;
        log.info(&format!("{} succeeded", self.environment.command.name()));
        Ok(result)
    }

    fn call(&self, method: &str, message: &[u8]) -> Result<Vec<u8>, Status> {
        // STATUS asks what is now.
        let absence = if self.environment.command == Command::Status { Absence::Fail } else { Absence::Wait };
        rpc::call(&self.place.socket, method, message, self.place.timeout, absence)
    }

    fn add(&self, log: &mut Log) -> Result<Value, CniError> {
        let message = proto::parameters(&self.owner, &self.wish);
        let answer = self.call(proto::ALLOCATE, &message).map_err(|status| CniError::from_status(&status))?;
        let allocations = proto::read_allocations(&answer).ok_or("it is not a valid message".to_string());
        let result = allocations.and_then(|allocations| outcome::document(&allocations, &self.config.version));
        let result = result.map_err(|why| CniError::new(INTERNAL, format!("the daemon's response is invalid: {why}")));
        let checked = result.and_then(|result| self.check_netns().map(|()| result));
        if checked.is_err() {
            self.give_back(log);
        }
        checked
    }

    /// Release the addresses of an ADD whose result could not be delivered.
    pub fn give_back(&self, log: &mut Log) {
        let message = proto::parameters(&self.owner, &self.wish);
        if let Err(status) = self.call(proto::DEALLOCATE, &message) {
            log.error(&format!("the address could not be released: {}", status.message));
        }
    }

    fn del(&self) -> Result<(), CniError> {
        let mut answer = self.call(proto::DEALLOCATE, &proto::parameters(&self.owner, &self.wish));
        let is_refused = matches!(&answer, Err(status) if status.code == Status::INVALID_ARGUMENT);
        if is_refused && (self.owner.pod_name.is_empty() || self.owner.pod_namespace.is_empty()) {
            // The original's daemon requires a pod but uses only the container.
            let named = Owner {
                pod_name: UNKNOWN_POD.to_string(),
                pod_namespace: UNKNOWN_POD.to_string(),
                ..self.owner.clone()
            };
            answer = self.call(proto::DEALLOCATE, &proto::parameters(&named, &self.wish));
        }
        answer.map_err(|status| CniError::from_status(&status))?;
        self.check_netns()
    }

    fn check(&self) -> Result<(), CniError> {
        let message = proto::parameters(&self.owner, &self.wish);
        let answer = self.call(proto::IS_ALLOCATED, &message);
        answer.map(drop).map_err(|status| CniError::from_status(&status))
    }

    /// Release reservations that belong to no listed attachment and that the daemon can prove dead.
    fn gc(&self, log: &mut Log) -> Result<(), CniError> {
        let Some(valid) = &self.valid_attachments else {
            log.warning("the configuration does not list the valid attachments: nothing is released");
            return Ok(());
        };
        let message = proto::collect(&self.config.name, &self.wish.pools, self.wish.pool_type, valid);
        match self.call(proto::COLLECT, &message) {
            Ok(answer) => {
                let (released, kept) = proto::read_collected(&answer).unwrap_or_default();
                log.info(&format!("GC: {released} released, {kept} kept because they are not proven dead"));
                Ok(())
            }
            Err(status) if status.code == Status::UNIMPLEMENTED => Ok(()),
            Err(status) => Err(CniError::from_status(&status)),
        }
    }

    fn status(&self) -> Result<(), CniError> {
        match self.call(proto::STATUS, &proto::status(&self.wish.pools, self.wish.pool_type)) {
            Err(status) if status.code != Status::UNIMPLEMENTED => {
                Err(CniError { code: PLUGIN_NOT_AVAILABLE, ..CniError::from_status(&status) })
            }
            _ => Ok(()),
        }
    }

    fn check_netns(&self) -> Result<(), CniError> {
        if self.environment.has_netns_override {
            return Ok(());
        }
        match netns::is_own(&self.environment.netns) {
            Ok(false) => Ok(()),
            Ok(true) => Err(CniError::new(INVALID_NETNS, "CNI_NETNS is the network namespace of the plugin itself")),
            Err(error) => Err(CniError::new(INVALID_NETNS, "the plugin's own network namespace cannot be read")
                .with_details(error.to_string())),
        }
    }
}

fn arguments(environment: &Environment) -> (cniargs::CniArgs, Vec<String>) {
    if !environment.command.is_for_container() {
        return Default::default();
    }
    let (args, mut problems) = cniargs::read(&environment.args);
    for (name, value) in [("K8S_POD_NAME", &args.pod_name), ("K8S_POD_NAMESPACE", &args.pod_namespace)] {
        if value.is_empty() {
            problems.push(format!("CNI_ARGS: the container runtime did not set {name}"));
        }
    }
    (args, problems)
}

fn announce(environment: &Environment, stdin: &[u8], place: &Place, wish: &Wish, log: &mut Log) {
    let Environment { command, container_id, netns, ifname, args, .. } = environment;
    let name = command.name();
    if command.is_for_container() {
        log.info(&format!("{name} call: ContainerID: {container_id} Netns: {netns} IfName: {ifname}"));
    }
    log.debug(|| format!("{name}: Args: {args} StdinData: {:?}", String::from_utf8_lossy(stdin)));
    log.debug(|| format!("{name}: configuration: {place:?} {wish:?}"));
}
