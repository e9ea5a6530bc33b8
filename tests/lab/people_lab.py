"""A lab with the permission manager inside it, and people who have accounts on its nodes.

In: a lab that runs. Out: `Cluster`: kubectl as an administrator and as a person, commands on nodes, the processes of
pods as a node sees them. Accounts and homes are those of the nodes, never of this machine: `/etc` and `/opt` of a lab's
node are its own.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from tests.deploy.conftest import IMAGE, run_tool
from tests.waiting import wait_until

from bedplate.api.resources import RawObject

HOMES = "/opt/home"
NODES = ("node-1", "node-2")
PATIENCE_S = 300
GROUP = 4100
"""A second group of everybody."""
PEOPLE = {"john": 4001, "jane": 4002, "mary": 4003}
RUNNING = {"image": "busybox", "imagePullPolicy": "IfNotPresent", "command": ["sleep", "100000"]}


@dataclasses.dataclass(frozen=True)
class Process:
    """What a node knows of a process."""

    uid: int
    gid: int
    groups: frozenset[int]
    command: str


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The lab, and whoever uses it."""

    lab: Any

    @property
    def folder(self) -> Path:
        return Path(self.lab.state) / "bedplate" / "labs" / str(self.lab.name)

    @property
    def admin(self) -> Path:
        return self.folder / "admin.kubeconfig"

    def home(self, user: str, node: str = NODES[0]) -> Path:
        """A person's home folder on a node, as this machine sees it."""
        return self.folder / "nodes" / node / "opt" / "home" / user

    def kubeconfig(self, user: str) -> Path:
        """What `cm-kubernetes-setup` wrote into the person's home."""
        return self.home(user) / ".kube" / "config" if user else self.admin

    # Commands

    def try_kubectl(self, user: str, *words: str, stdin: Any = None) -> subprocess.CompletedProcess[str]:
        """kubectl with the kubeconfig of a person; "" for the administrator's. `stdin` is an object, or several."""
        line = [str(self.folder / "bin" / "kubectl"), f"--kubeconfig={self.kubeconfig(user)}", *words]
        documents = stdin if isinstance(stdin, list) else [stdin]
        text = yaml.safe_dump_all(documents) if stdin is not None else ""
        return subprocess.run(line, input=text, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def kubectl(self, user: str, *words: str, stdin: Any = None) -> str:
        """What a kubectl prints that must succeed."""
        done = self.try_kubectl(user, *words, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}{done.stdout}"
        return done.stdout

    def refused(self, user: str, *words: str, stdin: Any = None) -> str:
        """What a kubectl says that must fail."""
        done = self.try_kubectl(user, *words, stdin=stdin)
        assert done.returncode != 0, f"kubectl {' '.join(words)}: {done.stdout}"
        return done.stderr

    def get(self, user: str, *words: str) -> Any:
        return json.loads(self.kubectl(user, "get", *words, "-o", "json"))

    def inside(self, node: str, *command: str) -> list[str]:
        """The command line that runs another one on a node; the process has the same ID."""
        return list(self.lab.command("exec", "--name", self.lab.name, node, "--", *command))

    def on(self, node: str, *command: str) -> str:
        done = subprocess.run(
            self.inside(node, *command),
            env=self.lab.environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)} on {node}: {done.stderr}{done.stdout}"
        return done.stdout

    # Set-up

    def install(self, *words: str) -> None:
        """What `bedplate WORDS` prints, applied by the administrator."""
        line = [str(Path(sys.executable).with_name("bedplate")), *words]
        text = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
        self.kubectl("", "apply", "--server-side", "-f", "-", stdin=list(yaml.safe_load_all(text)))

    def make_accounts(self) -> None:
        """The same people on every node, each with a home, and a folder of root that all can read."""
        lines = [f"groupadd --gid {GROUP} science", f"mkdir -p {HOMES}/shared"]
        for user, uid in PEOPLE.items():
            home = f"{HOMES}/{user}"
            lines.append(
                f"useradd --no-log-init --uid {uid} --groups science --home-dir {home} --no-create-home {user}"
            )
            lines.append(f"mkdir -p -m 700 {home} && chown {uid}:{uid} {home}")
        for node in NODES:
            self.on(node, "sh", "-ec", "\n".join(lines))

    def setup(self, *words: str) -> str:
        """`cm-kubernetes-setup` on the first node, where the accounts are."""
        program = str(Path(sys.executable).with_name("cm-kubernetes-setup"))
        return self.on(NODES[0], program, "--cluster-kubeconfig", "/run/bedplate/admin.kubeconfig", *words)

    def release(self, user: str) -> str:
        """What the names of a person's rules begin with."""
        found = self.get("", "cmkubernetespermissionusers", "-n", "cm-permissions", "-l", f"username={user}")["items"]
        return str(found[0]["metadata"]["name"])

    # Pods

    def until_running(self, user: str, *names: str) -> list[RawObject]:
        """The pods of these names, once their containers run."""
        asked = ("pods", *names, "-n", f"{user}-restricted")

        def pods() -> list[RawObject]:
            found = self.get("", *asked)
            items: list[RawObject] = found["items"] if found["kind"] == "List" else [found]
            return items if all(each["status"]["phase"] == "Running" for each in items) else []

        return wait_until(pods, f"{', '.join(names)} run", deadline_s=PATIENCE_S, step_s=0.3, describe=self.situation)

    def situation(self) -> str:
        """What an administrator would look at first."""
        return self.kubectl("", "get", "pods", "-A", "-o", "wide") + self.kubectl("", "get", "events", "-A")

    def process(self, pod: RawObject, container: str = "main", *, kind: str = "containerStatuses") -> Process:
        """The first process of a container, found by its node's containerd and shown by the node's `ps`."""
        (status,) = [each for each in pod["status"][kind] if each["name"] == container]
        node, name = pod["spec"]["nodeName"], status["containerID"].rpartition("/")[2]
        rows = [line.split() for line in self.on(node, "ctr", "-n", "k8s.io", "tasks", "list").splitlines()]
        (pid,) = [row[1] for row in rows if row[0] == name]
        uid, gid, groups, command = self.on(
            node, "ps", "-o", "uid=,gid=,supgid=,args=", "-ww", "-p", pid
        ).split(maxsplit=3)  # fmt: skip
        listed = frozenset() if groups == "-" else frozenset(map(int, groups.split(",")))
        return Process(int(uid), int(gid), listed, command.strip())


def our_image(folder: Path) -> Path:
    """The image with our programs, as an archive."""
    target = folder / "bedplate.tar"
    done = run_tool("image.py", "archive", "--image", IMAGE, "--output", target)
    assert done.returncode == 0, done.stderr
    return target


def pod(name: str, spec: RawObject) -> RawObject:
    """A pod whose containers run until they are stopped, and whose init containers end at once."""
    own = {"terminationGracePeriodSeconds": 0, **spec}
    own["containers"] = [{**each, **RUNNING} for each in spec["containers"]]
    if spec.get("initContainers"):
        own["initContainers"] = [{**each, **RUNNING, "command": ["true"]} for each in spec["initContainers"]]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": own}


def moved(value: Any) -> Any:
    """A pod of the table of attacks, with the home folders of the lab's nodes."""
    return json.loads(json.dumps(value).replace('"/home', f'"{HOMES}'))
