"""A deployment in the wizard, without a terminal: prefilled values, problems of each screen."""

from __future__ import annotations

from tests.setup.places import site

from bedplate.setup.answers import declaration, document
from bedplate.setup.wizard.steps import Steps


def steps(**about: object) -> Steps:
    return Steps(site(**about), document.defaults())  # type: ignore[arg-type]


def screen(number: int) -> declaration.Screen:
    return next(each for each in declaration.SCREENS if each.number == number)


def question(path: str) -> declaration.Field:
    return declaration.by_path()[f"kubernetes.{path}"]


def test_every_question_is_on_one_screen_and_screens_are_in_order() -> None:
    made = steps()
    paths = [each.path for page in declaration.SCREENS for each in made.fields(page)]
    assert sorted(paths) == sorted(each.path for each in declaration.QUESTIONS)
    numbers = [page.number for page in declaration.SCREENS]
    documented = [number for number in numbers if number <= declaration.SUMMARY]
    assert documented == sorted(documented) == [1, *range(3, 21)]
    assert numbers[-4:] == [21, 22, 23, declaration.SUMMARY]
    assert made.screens[-1].title == "Summary"


def test_a_screen_without_a_question_that_applies_is_left_out() -> None:
    made = steps()
    titles = [page.title for page in made.screens]
    assert "Ingress on 443" not in titles and "NetQ" not in titles and "Kyverno" in titles
    made.type(question("addons.ingress_controller"), "yes")
    made.type(question("operators"), "netq")
    titles = [page.title for page in made.screens]
    assert "Ingress on 443" in titles and "NetQ" in titles


def test_an_operator_that_is_chosen_has_its_questions_and_loses_its_answers_with_them() -> None:
    made = steps()
    chart = question("operators.metallb.chart")
    assert not made.is_asked(chart) and made.text(question("operators.metallb.version")) == "0.14.8"
    made.type(question("operators"), "metallb, gpu-operator")
    assert made.is_asked(chart)
    assert "name the file" in made.problems_of(screen(15))["kubernetes.operators.metallb.chart"]
    made.type(chart, "/charts/metallb.tgz")
    made.type(question("operators.gpu-operator.options"), "toolkit.enabled=false, driver.version=550")
    chosen = made.values["kubernetes"]["operators"]
    assert chosen["metallb"]["chart"] == "/charts/metallb.tgz"
    assert chosen["gpu-operator"]["options"] == {"toolkit.enabled": False, "driver.version": 550}
    made.type(question("operators"), "gpu-operator")
    assert list(made.values["kubernetes"]["operators"]) == ["gpu-operator"]
    assert made.values["kubernetes"]["operators"]["gpu-operator"]["options"]["toolkit.enabled"] is False
    assert document.load(document.save(made.values | {"kubernetes": {**made.values["kubernetes"], "nodes": NODES}}))


NODES = {role: {"nodes": ["node001"], "categories": [], "head_nodes": []} for role in ("masters", "workers", "etcd")}


def test_an_operator_that_nobody_knows_is_told_with_the_list() -> None:
    made = steps()
    made.type(question("operators"), "postgres-operator")
    assert list(made.values["kubernetes"]["operators"]) == ["postgresql-operator"]
    made.type(question("operators"), "bogus")
    assert "unknown operator" in made.problems_of(screen(15))["kubernetes.operators"]


def test_a_password_is_never_shown() -> None:
    made = steps()
    made.type(question("registry_mirror.url"), "https://mirror")
    made.type(question("registry_mirror.username"), "robot")
    made.type(question("registry_mirror.password"), " hunter2 ")
    assert made.values["kubernetes"]["registry_mirror"]["password"] == " hunter2 "
    assert made.shown(question("registry_mirror.password")) == "********"
    assert "hunter2" not in document.save(made.masked)


def test_what_nobody_touched_follows_the_name_of_the_cluster() -> None:
    made = steps(networks={"kube-default-pod": "172.29.0.0/16"})
    assert made.text(question("networks.pod")) == "172.29.0.0/16"
    made.type(question("name"), "second")
    assert made.text(question("networks.pod")) == "172.30.0.0/16"
    made.type(question("networks.pod"), "172.20.0.0/16")
    made.type(question("name"), "default")
    assert made.text(question("networks.pod")) == "172.20.0.0/16"


def test_problems_belong_to_their_screen() -> None:
    made = steps()
    assert made.problems_of(screen(4)) == {}
    assert list(made.problems_of(screen(7))) == ["kubernetes.nodes.masters.nodes"]
    made.type(question("nodes.masters.nodes"), "node001, node002")
    assert made.problems_of(screen(7)) == {}
    assert "must be odd" in made.problems_of(screen(9))["kubernetes.nodes.etcd.nodes"]
    made.type(question("networks.pod"), "10.141.0.0/17")
    assert "overlaps the network internalnet" in made.problems_of(screen(4))["kubernetes.networks.pod"]
    made.type(question("proxy.port"), "many")
    assert made.problems_of(screen(10)) == {"kubernetes.proxy.port": "must be an integer from 0 to 65535, not 'many'"}


def test_a_question_that_does_not_apply_is_not_asked() -> None:
    made = steps()
    assert not made.is_asked(question("cni_manifest"))
    made.type(question("cni"), "calico")
    assert made.is_asked(question("cni_manifest"))


def test_nodes_of_a_cluster_are_not_offered() -> None:
    made = steps(members={"node002": "first"}, clusters={"first": 10443})
    assert made.offered(question("nodes.masters.nodes")) == "node001, node003..node006"
    assert made.offered(question("nodes.workers.categories")) == "default"
    assert made.offered(question("nodes.etcd.head_nodes")) == "basecm10"
