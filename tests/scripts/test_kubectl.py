"""Unmodified kubectl, two versions, on both servers: every printed line must be the same."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest
from tests.scripts import manifests
from tests.scripts.shell import Script, Shell, Transcript, unique

pytestmark = pytest.mark.real
OnBoth = Callable[[pathlib.Path, Script], Transcript]


def test_get_in_every_format(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    def script(run: Shell) -> None:
        run("apply -f -", manifests.ALL)
        run("get deploy/web cm/settings svc/web secret/keys")
        run("get deploy,svc -o wide")
        run("get cm settings -o json")
        run("get cm settings -o yaml")
        run("get deploy web -o yaml")
        run("get svc web -o yaml")
        run("get cm settings -o jsonpath='{.data.color} {.metadata.labels}'")
        run("get cm -l app=web -o custom-columns=NAME:.metadata.name,COLOR:.data.color,NONE:.data.none")
        run("get cm,secret -l 'app in (web),tier notin (front)' -o name")
        run("get cm settings -o go-template='{{range $k, $v := .data}}{{$k}}={{$v}};{{end}}'")
        run("get cm -l app=web --show-labels")
        run("get cm -l app=web -L tier,missing")
        run("get all")
        run("get cm --field-selector metadata.name=settings --no-headers")
        run("get secret,cm -l app=web --sort-by=.metadata.name -o name")
        run("get cm --chunk-size=1 -o name")
        run("get cm absent --ignore-not-found")
        assert 'Error from server (NotFound): configmaps "absent" not found' in run.fails("get cm absent")
        assert "the server doesn't have a resource type" in run.fails("get nonsense")
        run("get pods")

    on_both(kubectl, script)


def test_a_list_is_checked_item_by_item(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    items = '{"apiVersion": "v1", "kind": "List", "items": [%s]}'
    good = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "listed"}, "data": {"a": "b"}}'

    def script(run: Shell) -> None:
        run("apply -f -", items % good)
        run("get cm listed -o jsonpath={.data.a}")
        assert 'unknown field "dta"' in run.fails("apply -f -", items % good.replace('"data"', '"dta"'))
        assert "invalid type" in run.fails("apply -f -", items % good.replace('"b"', "[1]"))

    on_both(kubectl, script)


def test_describe(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    name = unique("node")

    def script(run: Shell) -> None:
        run("apply -f -", manifests.ALL)
        run("apply -f -", manifests.pod("lone"))
        run("apply -f -", manifests.node(name))
        run.until("get deploy web -o jsonpath={.status.observedGeneration}", "1")
        for what in (
            "cm settings",
            "secret keys",
            "svc web",
            "pod lone",
            f"node {name}",
            f"ns {run.namespace}",
            "sa default",
        ):
            run(f"describe {what}")
        run("describe deploy web")
        run(f"delete node {name}")

    on_both(kubectl, script)


def test_create_commands(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    def script(run: Shell) -> None:
        run("create cm settings --from-literal=a=1 --from-literal=b=2")
        run("create secret generic keys --from-literal=a=1")
        run("create secret docker-registry pull --docker-username=u --docker-password=p --docker-server=r.example.com")
        run("create sa robot")
        run("create deploy web --image=example/web:1 --replicas=0")
        run("create svc clusterip web --tcp=80:8080")
        run("create svc nodeport np --tcp=80:8080")
        run("create svc externalname ext --external-name=db.example.com")
        run("expose deploy web --port=80 --name=exposed")
        run("create role reader --verb=get,list --resource=pods,configmaps")
        run("create rolebinding read --role=reader --serviceaccount=default:robot")
        run("create quota limits --hard=pods=3,cpu=2")
        run("create job once --image=example/job:1")
        run("create cronjob often --image=example/job:1 --schedule='*/5 * * * *'")
        run("create ingress web --rule='web.example.com/=web:80'")
        run("create pdb web --selector=app=web --min-available=1")
        run.unlike("create token robot --duration=1h")
        run("run lone --image=example/lone:1 --restart=Never")
        for what in (
            "cm/settings", "secret/keys", "secret/pull", "sa/robot", "deploy/web", "svc/web", "svc/np", "svc/ext",
            "role/reader", "rolebinding/read", "quota/limits", "cronjob/often", "ingress/web", "pdb/web",
        ):  # fmt: skip
            run(f"get {what}")
        assert "already exists" in run.fails("create cm settings")
        run("create cm other --from-literal=a=1 --dry-run=server -o yaml")
        run("create deploy dry --image=example/web:1 --dry-run=server -o yaml")
        run("replace -f -", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {c: '3'}\n")
        run("get cm settings -o yaml")

    on_both(kubectl, script)


def test_client_side_apply(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    def script(run: Shell) -> None:
        run("apply -f -", manifests.ALL)
        run("apply -f -", manifests.ALL)
        changed = manifests.DEPLOYMENT.replace("web:1", "web:2").replace(
            "[{name: COLOR, value: blue}]", "[{name: SIZE, value: '3'}]"
        )
        run.fails("diff -f -", changed)
        run("apply -f - --dry-run=server", changed)
        run("apply -f - --dry-run=client", changed)
        run("apply -f -", changed)
        run("get deploy web -o yaml")
        run("apply view-last-applied deploy web")
        run("apply -f -", manifests.CONFIG.replace('size: "3"', "weight: '9'"))
        run("get cm settings -o jsonpath={.data}")
        run("diff -f -", changed)
        assert "unknown field" in run.complains(
            "apply -f -", manifests.DEPLOYMENT.replace("replicas:", "replicaz: 1\n  replicas:")
        )
        run("apply -f - --validate=warn", manifests.DEPLOYMENT.replace("replicas:", "replicaz: 1\n  replicas:"))
        run("delete -f -", manifests.ALL)
        run.fails("get deploy web")

    on_both(kubectl, script)


def test_server_side_apply(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    def script(run: Shell) -> None:
        run("apply --server-side -f -", manifests.ALL)
        run("apply --server-side -f -", manifests.ALL)
        changed = manifests.CONFIG.replace("blue", "red")
        message = run.fails("apply --server-side --field-manager=other -f -", changed)
        assert 'conflict with "kubectl": .data.color' in message
        run.fails("diff --server-side --field-manager=kubectl -f -", changed)
        run("apply --server-side --field-manager=other --force-conflicts -f -", changed)
        run("get cm settings -o yaml --show-managed-fields")
        run("apply --server-side --dry-run=server -f - -o yaml", manifests.SERVICE.replace("8080", "9090"))
        run("get svc web -o jsonpath={.spec.ports[0].targetPort}")
        run("apply -f -", manifests.SECRET.replace("hunter2", "hunter3"))
        run("get secret keys -o jsonpath={.data.password}")

    on_both(kubectl, script)


def test_edit(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    def script(run: Shell) -> None:
        run("apply -f -", manifests.ALL)
        run("edit cm settings", editor="sed -i s/blue/green/")
        run("get cm settings -o jsonpath={.data.color}")
        run("edit deploy web", editor="sed -i 's/replicas: 0/replicas: 1/'")
        run("get deploy web -o jsonpath={.spec.replicas}")
        run("edit cm settings", editor="true")

    on_both(kubectl, script)


def test_patch_label_annotate_taint_set(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    name = unique("node")

    def script(run: Shell) -> None:
        run("apply -f -", manifests.ALL)
        run("apply -f -", manifests.node(name))
        run("""patch cm settings -p '{"data":{"color":"red"}}'""")
        run("""patch cm settings --type=merge -p '{"data":{"size":null}}'""")
        run("""patch cm settings --type=json -p '[{"op":"add","path":"/data/new","value":"1"}]'""")
        run("""patch cm settings --type=merge -p '{"data":{"new":"1"}}'""")
        side = '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"example/side:1"}]}}}}'
        run(f"patch deploy web -p '{side}'")
        run(f"patch node {name} --subresource=status --type=merge -p " + '\'{"status":{"phase":"Running"}}\'')
        run.fails("""patch cm settings --type=json -p '[{"op":"remove","path":"/data/none"}]'""")
        run("label cm settings extra=yes tier-")
        assert "--overwrite is false" in run.fails("label cm settings extra=no")
        run("label cm settings extra=no --overwrite")
        run("label cm,secret -l app=web found=yes")
        run("annotate cm settings note='two words'")
        run("annotate cm settings note-")
        run(f"taint node {name} special=true:NoSchedule")
        run(f"taint node {name} special=true:NoExecute other:NoSchedule")
        run(f"taint node {name} special:NoSchedule-")
        run(f"get node {name} -o jsonpath='{{.spec.taints[*].key}} {{.spec.taints[*].effect}}'")
        run("set image deploy/web main=example/web:3")
        run("set env deploy/web COLOR=red SHAPE=round")
        run("set resources deploy/web -c main --limits=memory=256Mi")
        run("set serviceaccount deploy/web default")
        run("set selector svc/web app=other")
        run("get cm/settings deploy/web svc/web -o yaml")
        run(f"delete node {name}")

    on_both(kubectl, script)


def test_scale_and_rollout(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    def script(run: Shell) -> None:
        run("apply -f -", manifests.DEPLOYMENT)
        run.until("get deploy web -o jsonpath={.status.observedGeneration}", "1")
        run("rollout status deploy/web --timeout=60s")
        run("set image deploy/web main=example/web:2")
        run.until("get deploy web -o jsonpath={.status.observedGeneration}", "2")
        run("rollout status deploy/web --timeout=60s")
        run("annotate deploy web kubernetes.io/change-cause='second image'")
        run.until("get rs -o jsonpath={.items[*].spec.replicas}", "0 0")
        run("rollout history deploy/web --revision=1")
        run("rollout undo deploy/web")
        run("get deploy web -o jsonpath={.spec.template.spec.containers[0].image}")
        run("rollout pause deploy/web")
        run.fails("rollout pause deploy/web")
        run("rollout resume deploy/web")
        run("rollout restart deploy/web")
        run.until(
            "get deploy web -o jsonpath={.status.observedGeneration}",
            run.quietly("get deploy web -o jsonpath={.metadata.generation}"),
        )
        run("rollout status deploy/web --timeout=60s")
        run("scale deploy/web --replicas=2")
        run("get deploy web -o jsonpath={.spec.replicas}")
        run.until("get pods -l app=web -o jsonpath={.items[*].status.phase}", "Pending Pending")
        run("get deploy web")
        run.fails("scale deploy/web --current-replicas=5 --replicas=3")
        run("scale deploy/web --current-replicas=2 --replicas=0")
        run.until("get pods -l app=web -o name", "")

    on_both(kubectl, script)


def test_delete_with_finalizers_and_propagation(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    def script(run: Shell) -> None:
        held = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: held, finalizers: [example.com/hold]}\n"
        run("apply -f -", held)
        run("delete cm held --wait=false")
        run("get cm held -o jsonpath={.metadata.finalizers}")
        run.fails("delete cm held --timeout=1s")
        run("""patch cm held --type=merge -p '{"metadata":{"finalizers":null}}'""")
        run.fails("get cm held")
        for policy in ("background", "foreground", "orphan"):
            run("apply -f -", manifests.DEPLOYMENT)
            run.until("get rs -l app=web -o jsonpath={.items[*].spec.replicas}", "0")
            run(f"delete deploy web --cascade={policy}")
            if policy == "orphan":
                run("get rs -l app=web -o jsonpath='{.items[*].metadata.ownerReferences}'")
                run.unlike("delete rs -l app=web")
            run.until("get rs -l app=web -o name", "")
        run("apply -f -", manifests.ALL)
        run("delete cm,secret -l app=web")
        run("delete svc --all")
        run("delete deploy web --now")
        run.fails("delete cm absent")
        run("delete cm absent --ignore-not-found")
        run("run lone --image=example/lone:1")
        run("delete pod lone --force --grace-period=0")

    on_both(kubectl, script)


def test_wait_and_watch(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    def script(run: Shell) -> None:
        run("apply -f -", manifests.ALL)
        run("wait deploy/web --for=condition=Available --timeout=60s")
        run("wait cm/settings --for=jsonpath='{.data.color}'=blue --timeout=60s")
        run.fails("wait cm/settings --for=jsonpath='{.data.color}'=red --timeout=1s")
        run.fails("wait deploy/web --for=condition=Progressing=False --timeout=1s")
        run("delete svc web --wait=false")
        run("wait svc/web --for=delete --timeout=60s")
        run("wait cm/settings --for=create --timeout=60s")
        run.follow(
            "get cm settings --watch -o jsonpath='{.data.color}{\"\\n\"}'",
            2,
            ["""patch cm settings --type=merge -p '{"data":{"color":"red"}}'"""],
        )
        run.follow(
            "get secret --watch --output-watch-events",
            4,
            ["label secret keys x=y", "delete secret keys"],
        )

    on_both(kubectl, script)


def test_explain_and_discovery(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    def script(run: Shell) -> None:
        for group in (
            "",
            "apps",
            "batch",
            "rbac.authorization.k8s.io",
            "coordination.k8s.io",
            "policy",
            "storage.k8s.io",
        ):
            run(f"api-resources --api-group='{group}' --sort-by=name")
        run("api-resources --namespaced=false --api-group=rbac.authorization.k8s.io -o wide")
        run("api-resources --verbs=list --categories=all -o name --sort-by=name")
        for what in ("pod.spec.containers.ports.containerPort", "deployment.spec.replicas", "cronjob.spec.schedule"):
            assert "FIELD: " in run.unlike(f"explain {what}")
        assert "FIELDS:" in run.unlike("explain deploy --recursive")
        run.fails("explain nonsense")
        run.fails("explain pod.spec.nonsense")
        run.unlike("version -o json")
        run.unlike("cluster-info")

    on_both(kubectl, script)


def test_auth(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    def script(run: Shell) -> None:
        run("create sa robot")
        run("create role reader --verb=get,list --resource=pods,configmaps")
        run(f"create rolebinding read --role=reader --serviceaccount={run.namespace}:robot")
        robot = f"--as=system:serviceaccount:{run.namespace}:robot"
        run.until(f"auth can-i list pods {robot}", "yes")
        run(f"auth can-i get cm {robot}")
        run.fails(f"auth can-i delete pods {robot}")
        run.fails(f"auth can-i get pods {robot} --subresource=log")
        run("auth can-i '*' '*' --all-namespaces")
        run.fails("auth can-i get /metrics --as=jane")
        run("auth can-i get /version --as=jane --as-group=system:authenticated")
        run(f"auth can-i --list {robot}")
        run("auth whoami --as=jane --as-group=team")
        run.unlike(f"get cm {robot} -o name")
        assert "is forbidden" in run.fails(f"delete cm --all {robot}")

    on_both(kubectl, script)


def test_cordon_and_drain(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    name = unique("node")

    def script(run: Shell) -> None:
        run("apply -f -", manifests.node(name))
        run("apply -f -", manifests.pod("one", name) + "---" + manifests.pod("two", name))
        run(f"cordon {name}")
        run(f"cordon {name}")
        run(f"get node {name}")
        run(f"uncordon {name}")
        run.fails(f"drain {name} --timeout=5s")
        run(f"uncordon {name}")
        run("create pdb keep --selector=app=two --min-available=1")
        ready = '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
        run(f"patch pod two --subresource=status --type=merge -p '{ready}'")
        run.until("get pdb keep -o jsonpath={.status.currentHealthy}", "1")
        refused = run.complains(f"drain {name} --force --grace-period=0 --timeout=3s")
        assert "Cannot evict pod as it would violate the pod's disruption budget" in refused
        run("delete pdb keep")
        run.unlike(f"drain {name} --force --grace-period=0 --timeout=60s")
        run("get pods")
        run(f"get node {name} -o jsonpath={{.spec.unschedulable}}")
        run(f"delete node {name}")

    on_both(kubectl, script)


def test_custom_kinds(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    group = f"{unique('g')}.example.com"
    kind = f"gadgets.{group}"

    def script(run: Shell) -> None:
        run("apply -f -", manifests.crd(group))
        run(f"wait crd/gadgets.{group} --for=condition=Established --timeout=60s")
        run.until(f"api-resources --api-group={group} -o name", f"gadgets.{group}")
        run("apply -f -", manifests.gadget(group, "small", 1))
        run("apply --server-side -f -", manifests.gadget(group, "large", 9))
        run(f"get {kind}")
        run(f"get {kind} -o wide")
        run(f"get {kind} small -o yaml")
        run(f"scale {kind}/small --replicas=4")
        run(f"get {kind} small -o jsonpath={{.spec.size}}")
        run(f"patch {kind} small --subresource=status --type=merge -p " + '\'{"status":{"size":4}}\'')
        run(f"describe {kind} small")
        run.fails("apply -f -", manifests.gadget(group, "wrong", 0))
        run.fails(f"patch {kind} small -p " + '\'{"spec":{"size":2}}\'')
        run(f"edit {kind} small", editor="sed -i s/blue/red/")
        run(f"get {kind} small -o jsonpath={{.spec.color}}")
        run.until(f"get {kind} -o name", f"gadget.{group}/large\ngadget.{group}/small")
        run(f"explain --api-version={group}/v1 gadgets.spec.size")
        run(f"describe crd gadgets.{group}")
        run(f"delete {kind} --all")
        run(f"delete crd gadgets.{group}")
        run.until(f"api-resources --api-group={group} -o name", "")

    on_both(kubectl, script)
