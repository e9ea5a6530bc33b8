"""Every address of the API: the one table that routes, checks and the OpenAPI document are made of.

In: nothing. Out: `OPERATIONS`. The handler of an operation is found by its name (`app`). Addresses with `{mode}` stand
for one of each mode in the document.
"""

from __future__ import annotations

from bedplate.api.headapi import NAME
from bedplate.head.schema.kinds import BLANKS
from bedplate.ui.rest.operations import MERGE_PATCH, YAML, Answer, Flag, Names, Number, Operation, Parameter, Words

__all__ = ["KEY", "OPERATIONS"]

KEY = NAME
_FIELD = r"[a-z][a-z0-9_]*"
_TEXT = r"[^\x00-\x1f\x7f]+"
_API = "/api/v1"

_key = Parameter("key", "a name", "path", KEY, 253, True)
_node = Parameter("name", "a node's name", "path", KEY, 253, True, "node001")
_cluster = Parameter("name", "the name of a Kubernetes cluster", "path", KEY, 253, True, "default")
_names = Names("names", "nodes, separated by commas", longest=4000, item=f"[^{BLANKS},/]+")
_enrolment = Parameter("id", "the id of an enrolment", "path", KEY, 253, True)
_errand = Parameter("id", "the id of a request to a node", "path", KEY, 253, True)
_image = Parameter("image", "the name of a software image", "path", KEY, 253, True, "default-image")
_digest = Parameter("digest", "a SHA-256 in hexadecimal", "path", "[0-9a-f]{64}", 64, True, "0" * 64)
_group = Parameter("group", "the group of a turn", "path", KEY, 253, True, "etcd:kube-default")
_number = Number("number", "the number of a revision", "path", is_required=True, low=1, high=10**12)
_at = Number("at", "a past revision to read", high=10**12)
_message = Parameter("message", "message of the commit", pattern=_TEXT)
_path = Parameter("path", "a path by attribute names, such as device/node001/category", pattern=_TEXT)


def _limit(most: int) -> Number:
    return Number("limit", "how many at most", low=1, high=most)


def _json(doc: str, schema: str, *headers: str) -> Answer:
    return Answer(doc, schema, headers=headers)


_NOT_MODIFIED = Answer("not modified", type="")
_DONE = Answer("it is gone", type="")
_OBJECT = _json("the object", "{Mode}", "ETag")
_COMMITTED = _json("the revision, or what it would change", "CommitResult")

OPERATIONS = (
    Operation("GET", f"{_API}/schema", "schema", "Modes and entities as data.", {200: _json("the schema", "Schema")}),
    Operation(
        "GET",
        f"{_API}/tree",
        "tree",
        "Every object of a revision; the ETag is its number, and more once a backup was restored.",
        {200: _json("the tree", "TreeDocument", "ETag"), 304: _NOT_MODIFIED},
        (_at,),
        conditions=("If-None-Match",),
    ),
    Operation(
        "GET",
        f"{_API}/objects/{{mode}}",
        "list",
        "The objects of a mode, in pages; `fields` picks values and submodes by attribute.",
        {200: _json("a page of the list", "{Mode}Page")},
        (
            _limit(5000),
            Parameter("continue", "where the last page ended", pattern=r"[0-9]{1,12}:[^\x00-\x1f\x7f]+", longest=300),
            _at,
            Names("fields", "attributes to return", item=_FIELD),
        ),
        tag="objects",
    ),
    Operation(
        "POST",
        f"{_API}/objects/{{mode}}",
        "create",
        "A new object, as a commit of its own.",
        {201: _OBJECT},
        (_message,),
        body="{Mode}New",
        is_write=True,
        tag="objects",
    ),
    Operation(
        "GET",
        f"{_API}/objects/{{mode}}/{{key}}",
        "get",
        "One object; the ETag is the revision that last wrote it, and more once a backup was restored.",
        {200: _OBJECT, 304: _NOT_MODIFIED},
        (_key, _at),
        conditions=("If-None-Match",),
        tag="objects",
    ),
    Operation(
        "PUT",
        f"{_API}/objects/{{mode}}/{{key}}",
        "put",
        "Replace the object, as a commit of its own. `*****` keeps the existing secret. An existing object is replaced "
        "only with `If-Match`, or with the `revision` that GET returned; else 428.",
        {200: _OBJECT, 201: _OBJECT},
        (_key, _message),
        body="{Mode}Write",
        is_write=True,
        conditions=("If-Match", "If-None-Match"),
        tag="objects",
    ),
    Operation(
        "PATCH",
        f"{_API}/objects/{{mode}}/{{key}}",
        "patch",
        "Change parts of the object, as a commit of its own: a JSON merge patch of what GET returns; null removes.",
        {200: _OBJECT},
        (_key, _message),
        body="ObjectPatch",
        body_type=MERGE_PATCH,
        is_write=True,
        conditions=("If-Match",),
        tag="objects",
    ),
    Operation(
        "DELETE",
        f"{_API}/objects/{{mode}}/{{key}}",
        "delete",
        "Remove an object that nothing refers to, as a commit of its own.",
        {204: _DONE},
        (_key, _message, Number("revision", "refuses the write when the object is of another revision")),
        is_write=True,
        conditions=("If-Match",),
        tag="objects",
    ),
    Operation(
        "POST",
        f"{_API}/commits",
        "commit",
        "Edits of any objects as one revision, or, with `dryRun`, what they would change.",
        {200: _COMMITTED},
        body="CommitRequest",
        is_write=True,
        is_large=True,
        tag="commits",
    ),
    Operation(
        "GET",
        f"{_API}/rollout",
        "rollout",
        "How far the present roll-out is, or the last one: a commit with `batch` begins one.",
        {
            200: _json("the roll-out", "RolloutState"),
            404: Answer("there was none yet", "Problem", "application/problem+json"),
        },
        tag="commits",
    ),
    Operation(
        "POST",
        f"{_API}/rollout",
        "act_on_rollout",
        "Pause, resume or undo the roll-out.",
        {200: _json("the roll-out", "RolloutState")},
        body="RolloutAction",
        is_write=True,
        tag="commits",
    ),
    Operation(
        "POST",
        f"{_API}/plan",
        "plan",
        "The changes that edits would make, by node.",
        {200: _json("actions by node", "PlanResult")},
        body="PlanRequest",
        is_large=True,
        tag="commits",
    ),
    Operation(
        "GET",
        f"{_API}/plan",
        "plan_between",
        "The changes between two revisions, by node.",
        {200: _json("actions by node", "PlanResult")},
        (
            Number("from", "the revision to start from", is_required=True, high=10**12),
            Number("to", "the revision to end with; the present one if absent", high=10**12),
        ),
        tag="commits",
    ),
    Operation(
        "GET",
        f"{_API}/revisions",
        "revisions",
        "The newest revisions, or those that touched something at or below a path.",
        {200: _json("revisions, newest first", "RevisionPage")},
        (_limit(1000), Number("continue", "only revisions before this one", low=1, high=10**12), _path),
        tag="history",
    ),
    Operation(
        "GET",
        f"{_API}/revisions/{{number}}",
        "revision",
        "One revision with its changes.",
        {200: _json("the revision", "Revision")},
        (_number,),
        tag="history",
    ),
    Operation(
        "POST",
        f"{_API}/revisions/{{number}}/undo",
        "undo",
        "Undo a revision, as a new revision.",
        {200: _COMMITTED},
        (_number,),
        body="UndoRequest",
        is_write=True,
        tag="history",
    ),
    Operation(
        "GET",
        f"{_API}/revisions/{{number}}/progress",
        "progress",
        "Which of the nodes that a revision means something to have applied it.",
        {200: _json("how far it is", "RevisionProgress")},
        (_number,),
        tag="history",
    ),
    Operation(
        "GET",
        f"{_API}/audit",
        "audit",
        "Who changed which parameter when.",
        {200: _json("changes, newest first", "AuditPage")},
        (_limit(1000), _path),
        tag="history",
    ),
    Operation(
        "GET",
        f"{_API}/export",
        "export",
        "The tree as YAML, without secrets unless an administrator asks for them.",
        {200: Answer("the document", "Export", YAML)},
        (_at, Flag("secrets", "with secrets in clear text")),
        tag="exchange",
    ),
    Operation(
        "POST",
        f"{_API}/import",
        "import_",
        "A YAML document as one commit: its objects replace those of the same name.",
        {200: _COMMITTED},
        (
            Flag("prune", "remove objects that the document does not contain"),
            Flag("dryRun", "only report what would change"),
            _message,
        ),
        body="Export",
        body_type=YAML,
        is_write=True,
        is_large=True,
        tag="exchange",
    ),
    Operation(
        "GET",
        f"{_API}/nodes",
        "nodes",
        "The condition of nodes: up or down, what they have applied, their checks.",
        {200: _json("nodes by name", "NodeList")},
        (_names,),
        tag="nodes",
    ),
    Operation(
        "GET",
        f"{_API}/nodes/{{name}}/explain",
        "explain",
        "Every file, flag, label and service of a node with the object that causes it.",
        {200: _json("facts", "ExplainResult")},
        (_node, Parameter("about", "the name of a fact", pattern=_TEXT), _at),
        tag="nodes",
    ),
    Operation(
        "GET",
        f"{_API}/nodes/{{name}}/pending",
        "pending",
        "The changes that a node has still to make to be what it should be; `revision` is the one it has applied.",
        {200: _json("actions", "PlanResult")},
        (_node,),
        tag="nodes",
    ),
    Operation(
        "GET",
        f"{_API}/nodes/{{name}}/desired",
        "desired",
        "The desired state of a node. The ETag stays the same while nothing changes for the node.",
        {200: _json("the desired state", "Desired", "ETag"), 304: _NOT_MODIFIED},
        (_node, _at, Number("wait", "seconds to wait for a state other than that of If-None-Match", high=300)),
        conditions=("If-None-Match",),
        tag="nodes",
    ),
    Operation(
        "POST",
        f"{_API}/nodes/{{name}}/report",
        "report",
        "What an agent has done and measured.",
        {200: _json("the head's revision", "ReportResult")},
        (_node,),
        body="ReportRequest",
        is_write=True,
        tag="nodes",
    ),
    Operation(
        "POST",
        f"{_API}/nodes/{{name}}/certificate",
        "renew",
        "The next certificate of a node, over a connection with its present one, once four fifths of that one's life "
        "are over, or its authority is being replaced.",
        {200: _json("the certificate", "CertificateAnswer")},
        (_node,),
        body="CertificateRequest",
        is_write=True,
        tag="nodes",
    ),
    Operation(
        "GET",
        f"{_API}/errands",
        "errands",
        "What nodes were asked to do once, such as a reboot, and what became of it.",
        {200: _json("requests, oldest first", "ErrandList")},
        (_names,),
        tag="nodes",
    ),
    Operation(
        "POST",
        f"{_API}/errands",
        "ask_errand",
        "Ask nodes to reboot, to reset, to switch off, to update their software image or to give one. Their agents get "
        "it with their desired state and do it once.",
        {201: _json("the requests", "ErrandList")},
        body="ErrandRequest",
        is_write=True,
        tag="nodes",
    ),
    Operation(
        "GET",
        f"{_API}/images",
        "images",
        "Software images and the condition of their trees on the head node.",
        {200: _json("images by name", "ImageList")},
        tag="images",
    ),
    Operation(
        "POST",
        f"{_API}/images/{{image}}",
        "act_on_image",
        "Adopt, copy or remove the tree of a software image, run a command in it, or bring its repository to a "
        "version.",
        {200: _json("what was done", "ImageResult")},
        (_image,),
        body="ImageAction",
        is_write=True,
        tag="images",
    ),
    Operation(
        "POST",
        f"{_API}/nodes/{{name}}/images/{{id}}",
        "transfer_image",
        "The bytes of a node's rsync and of the head's, both ways at the same time, for a transfer that the node was "
        "asked for. Only the node itself may open it.",
        {200: Answer("what rsync says", {"type": "string"}, "application/octet-stream")},
        (_node, _errand),
        tag="images",
    ),
    Operation(
        "GET",
        f"{_API}/nodes/{{name}}/agents/{{digest}}",
        "agent_archive",
        "The archive of the agent that a node is to run, by the SHA-256 that its desired state names. Only the node "
        "itself gets it.",
        {200: Answer("the archive", {"type": "string"}, "application/octet-stream")},
        (_node, _digest),
        tag="nodes",
    ),
    Operation(
        "POST",
        f"{_API}/nodes/{{name}}/turns",
        "take_turn",
        "A node asks for the turn of a group, such as that of the members of an etcd cluster: one node of the site has "
        "it at a time.",
        {200: _json("whether it has it", "TurnAnswer")},
        (_node,),
        body="TurnRequest",
        is_write=True,
        tag="turns",
    ),
    Operation(
        "POST",
        f"{_API}/nodes/{{name}}/turns/{{group}}",
        "end_turn",
        "A node gives a turn back, or says that it failed.",
        {200: _json("how the turn is", "TurnState")},
        (_node, _group),
        body="TurnEnd",
        is_write=True,
        tag="turns",
    ),
    Operation(
        "GET",
        f"{_API}/turns",
        "turns",
        "Who has a turn, who waits for it, and whose failure stops it.",
        {200: _json("turns by group", "TurnList")},
        tag="turns",
    ),
    Operation(
        "POST",
        f"{_API}/turns/{{group}}/release",
        "release_turn",
        "Let nodes go on that wait because another one failed.",
        {200: _json("how the turn is", "TurnState")},
        (_group,),
        is_write=True,
        tag="turns",
    ),
    Operation(
        "GET",
        f"{_API}/enrolments",
        "enrolments",
        "Machines that asked to be enrolled as nodes.",
        {200: _json("enrolments, oldest first", "EnrolmentList")},
        tag="enrolment",
    ),
    Operation(
        "POST",
        f"{_API}/enrolments",
        "enrol",
        "A machine with a token of the kind `enrol` or `enrol-category` asks for the certificate of a node. A repeated "
        "request gets the first response.",
        {
            200: _json("issued, with the certificate, or denied", "EnrolmentAnswer"),
            202: _json("it waits for an administrator", "EnrolmentAnswer"),
        },
        body="EnrolmentRequest",
        is_write=True,
        tag="enrolment",
    ),
    Operation(
        "GET",
        f"{_API}/enrolments/{{id}}",
        "enrolment",
        "What became of an enrolment, for the machine that asked, and for people.",
        {200: _json("the enrolment; with the certificate for the machine", "EnrolmentAnswer")},
        (_enrolment, Number("wait", "seconds to wait for a decision", high=300)),
        tag="enrolment",
    ),
    Operation(
        "POST",
        f"{_API}/enrolments/{{id}}",
        "decide_enrolment",
        "Approve or deny an enrolment that waits; `id` may be the name of the node.",
        {200: _json("the enrolment", "Enrolment")},
        (_enrolment,),
        body="EnrolmentDecision",
        is_write=True,
        tag="enrolment",
    ),
    Operation(
        "GET",
        f"{_API}/nodes/{{name}}/health",
        "health",
        "A node with the history of its checks.",
        {200: _json("condition and history", "NodeHealth")},
        (_node, Parameter("check", "the name of a check", pattern=KEY, longest=253)),
        tag="nodes",
    ),
    Operation(
        "GET",
        f"{_API}/clusters/{{name}}",
        "cluster",
        "How a Kubernetes cluster stands: whether the head reaches it, its checks, its applications.",
        {200: _json("the cluster", "ClusterState")},
        (_cluster,),
        tag="clusters",
    ),
    Operation(
        "GET",
        f"{_API}/clusters/{{name}}/health",
        "cluster_health",
        "A Kubernetes cluster with the history of its checks.",
        {200: _json("state and history", "ClusterHealth")},
        (_cluster, Parameter("check", "the name of a check", pattern=KEY, longest=253)),
        tag="clusters",
    ),
    Operation(
        "GET",
        f"{_API}/events",
        "events",
        "Server-sent events `revision`, `notice` and `health` as they come; `Last-Event-ID` resumes.",
        {200: Answer("events, one after the other", "StreamedEvent", "text/event-stream")},
        (
            Parameter(
                "after",
                "the id of an event, or the number of a revision",
                pattern=r"[0-9]{1,12}(\.[0-9]{1,12}\.[0-9]{1,14})?",
                longest=60,
            ),
            Names("types", "kinds of events", item="(?:revision|notice|health)", longest=60),
            Number("wait", "end the stream after this many seconds", low=1, high=86400),
        ),
        tag="events",
    ),
    Operation(
        "GET",
        f"{_API}/notices",
        "notices",
        "The latest notices.",
        {200: _json("notices, newest first", "NoticePage")},
        (
            _limit(1000),
            Parameter("host", "a node's name", pattern=KEY, longest=253),
            Number("before", "only notices before this one", low=1, high=10**12),
        ),
        tag="events",
    ),
    Operation(
        "GET", f"{_API}/whoami", "whoami", "The caller as the head knows it.", {200: _json("the caller", "Whoami")}
    ),
    Operation(
        "GET",
        f"{_API}/tokens",
        "tokens",
        "Bearer tokens without their texts.",
        {200: _json("tokens", "TokenList")},
        tag="tokens",
    ),
    Operation(
        "POST",
        f"{_API}/tokens",
        "create_token",
        "A new bearer token; its text is returned only once.",
        {201: _json("the token", "TokenMade")},
        body="TokenRequest",
        is_write=True,
        tag="tokens",
    ),
    Operation(
        "DELETE",
        f"{_API}/tokens/{{id}}",
        "revoke_token",
        "Revoke a token.",
        {204: _DONE},
        (Parameter("id", "the id of a token", "path", r"[0-9a-zA-Z_-]{1,64}", 64, True),),
        is_write=True,
        tag="tokens",
    ),
    Operation(
        "GET",
        f"{_API}/authority",
        "authority",
        "The certificate authority that clients have to trust.",
        {200: _json("the authority", "AuthorityState")},
        tag="keys",
    ),
    Operation(
        "POST",
        f"{_API}/authority",
        "rotate",
        "Begin to replace the authority, or finish that.",
        {200: _json("the authority", "AuthorityState")},
        body="RotationRequest",
        is_write=True,
        tag="keys",
    ),
    Operation(
        "POST",
        f"{_API}/join",
        "join",
        "The site's keys, for a new head node with a token of the kind `join`, once.",
        {200: _json("the keys", "JoinAnswer")},
        body="JoinRequest",
        is_write=True,
        tag="keys",
    ),
    Operation(
        "GET",
        "/ca.crt",
        "authority_file",
        "The certificate authority as a file.",
        {
            200: Answer("the certificates", {"type": "string"}, "application/x-pem-file"),
            404: Answer("there is none", "Problem", "application/problem+json"),
        },
        is_public=True,
        tag="keys",
    ),
    Operation(
        "GET",
        f"{_API}/certificates",
        "certificates",
        "The certificates of the site and those that users and nodes have used, by their ends.",
        {200: _json("certificates", "CertificateList")},
        tag="tokens",
    ),
    Operation(
        "GET",
        f"{_API}/revocations",
        "revocations",
        "Client certificates that were revoked.",
        {200: _json("revocations", "RevocationList")},
        tag="tokens",
    ),
    Operation(
        "POST",
        f"{_API}/revocations",
        "revoke_certificates",
        "Revoke a client certificate, or all that a user or node has so far.",
        {201: _json("the revocation", "Revocation")},
        body="RevocationRequest",
        is_write=True,
        tag="tokens",
    ),
    Operation(
        "GET",
        "/openapi.json",
        "openapi",
        "This document.",
        {200: Answer("the document", {"type": "object"})},
        is_public=True,
        tag="service",
    ),
    *(
        Operation(
            "GET",
            f"/{name}",
            name,
            doc,
            {
                200: Answer("every check passes", {"type": "string"}, "text/plain"),
                500: Answer("it is not", {"type": "string"}, "text/plain"),
            },
            (
                Words("verbose", "name every check", words=("true", "1")),
                Names("exclude", "checks to leave out", item=r"[a-z-]+"),
            ),
            is_public=True,
            tag="service",
        )
        for name, doc in (
            ("healthz", "Whether the daemon is alive."),
            ("livez", "Whether the daemon is alive."),
            ("readyz", "Whether the daemon is ready."),
        )
    ),
    Operation(
        "GET",
        "/metrics",
        "metrics",
        "Metrics for Prometheus.",
        {200: Answer("metrics", {"type": "string"}, "text/plain")},
        tag="service",
    ),
)
