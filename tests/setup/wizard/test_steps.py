"""The wizard without a terminal: operations, prefilled values, problems of each screen."""

from __future__ import annotations

from tests.setup.places import site

from bedplate.setup.answers import declaration, document
from bedplate.setup.wizard.steps import Steps, operations


def steps(**about: object) -> Steps:
    return Steps(site(**about), document.defaults())  # type: ignore[arg-type]


def screen(number: int) -> declaration.Screen:
    return next(each for each in declaration.SCREENS if each.number == number)


def question(path: str) -> declaration.Field:
    return declaration.by_path()[f"kubernetes.{path}"]


def test_every_question_is_on_one_screen_and_screens_are_in_order() -> None:
    made = steps()
    paths = [each.path for page in made.screens for each in made.fields(page)]
    assert sorted(paths) == sorted(each.path for each in declaration.FIELDS)
    numbers = [page.number for page in made.screens]
    assert numbers == sorted(numbers)
    assert made.screens[-1].title == "Summary"


def test_before_a_cluster_exists_only_deploy_and_exit_are_offered() -> None:
    assert [each.title for each in operations(site())] == ["Deploy", "Exit"]
    later = [each.title for each in operations(site(clusters={"default": 10443}))]
    assert later == ["Deploy", "Configure Ingress", "Add user", "List users", "List operators", "Exit"]
    assert [each.title for each in operations(site(), is_interrupted=True)] == ["Deploy", "Resume", "Undo", "Exit"]


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
