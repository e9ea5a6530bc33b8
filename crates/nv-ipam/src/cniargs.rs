//! `CNI_ARGS`: the runtime's pairs `K=V;K=V`.

#[derive(Debug, Default, Clone, PartialEq)]
pub struct CniArgs {
    pub ip: String,
    pub pod_name: String,
    pub pod_namespace: String,
    pub pod_uid: String,
}

/// Parses the pairs and collects problems; an invalid pair does not affect the others.
pub fn read(args: &str) -> (CniArgs, Vec<String>) {
    let mut arguments = CniArgs::default();
    let mut problems = Vec::new();
    let mut unknown = Vec::new();
    let mut ignores_unknown = false;
    if args.is_empty() {
        return (arguments, problems);
    }
    for pair in args.split(';') {
        let parts: Vec<&str> = pair.split('=').collect();
        let &[key, value] = parts.as_slice() else {
            problems.push(format!("CNI_ARGS: {pair:?} must have the form KEY=VALUE"));
            continue;
        };
        match key {
            "IP" => arguments.ip = value.to_string(),
            "K8S_POD_NAME" => arguments.pod_name = value.to_string(),
            "K8S_POD_NAMESPACE" => arguments.pod_namespace = value.to_string(),
            "K8S_POD_UID" => arguments.pod_uid = value.to_string(),
            "IgnoreUnknown" => match value.to_ascii_lowercase().as_str() {
                "1" | "true" => ignores_unknown = true,
                "0" | "false" => ignores_unknown = false,
                _ => problems.push(format!("CNI_ARGS: IgnoreUnknown must be true or false, not {value:?}")),
            },
            _ => unknown.push(pair),
        }
    }
    if !unknown.is_empty() && !ignores_unknown {
        problems.push(format!("CNI_ARGS: unknown arguments {}", unknown.join(", ")));
    }
    (arguments, problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read() {
        let (arguments, problems) =
            read("IgnoreUnknown=1;IP=1.2.3.4;K8S_POD_NAME=p;K8S_POD_NAMESPACE=n;K8S_POD_UID=u;X=y");
        let values = [arguments.ip, arguments.pod_name, arguments.pod_namespace, arguments.pod_uid];
        assert_eq!((values, problems.len()), (["1.2.3.4", "p", "n", "u"].map(String::from), 0));
        assert_eq!(read(""), (CniArgs::default(), Vec::new()));
    }

    #[test]
    fn wrong_pairs_are_named_and_the_others_kept() {
        for args in [
            "K8S_POD_NAME=p;",
            "K8S_POD_NAME=p;;A=b",
            "K8S_POD_NAME=p;A=b=c",
            "K8S_POD_NAME=p;COLOUR=red",
            "IgnoreUnknown=0;COLOUR=red;K8S_POD_NAME=p",
            "IgnoreUnknown=maybe;K8S_POD_NAME=p",
            "K8S_POD_NAME=p;k8s_pod_uid=u",
        ] {
            let (arguments, problems) = read(args);
            assert_eq!(arguments.pod_name, "p", "{args}");
            assert!(!problems.is_empty(), "{args}");
        }
        assert!(read("COLOUR=red;IgnoreUnknown=TRUE").1.is_empty());
    }
}
