"""Manifests the scripts apply."""

from __future__ import annotations

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: main
        image: example/web:1
        env: [{name: COLOR, value: blue}]
        resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 128Mi}}
"""

CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: web, tier: back}}
data: {color: blue, size: "3"}
"""

SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web, labels: {app: web}}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
"""

SECRET = """
apiVersion: v1
kind: Secret
metadata: {name: keys, labels: {app: web}}
stringData: {password: hunter2}
"""

ALL = "---".join((DEPLOYMENT, CONFIG, SERVICE, SECRET))


def pod(name: str, node: str = "", owner: str = "") -> str:
    placed = f"  nodeName: {node}\n" if node else ""
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
{placed}  containers: [{{name: main, image: example/main:1}}]
"""


def node(name: str) -> str:
    return f"""
apiVersion: v1
kind: Node
metadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}, disk: ssd}}}}
spec: {{podCIDR: 10.9.0.0/24}}
"""


def crd(group: str) -> str:
    return f"""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: gadgets.{group}}}
spec:
  group: {group}
  scope: Namespaced
  names: {{plural: gadgets, singular: gadget, kind: Gadget, shortNames: [gd]}}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {{status: {{}}, scale: {{specReplicasPath: .spec.size, statusReplicasPath: .status.size}}}}
    additionalPrinterColumns:
    - {{name: Size, type: integer, jsonPath: .spec.size}}
    - {{name: Color, type: string, jsonPath: .spec.color, priority: 1}}
    schema:
      openAPIV3Schema:
        type: object
        description: A gadget for tests.
        properties:
          spec:
            type: object
            description: What is wanted.
            required: [size]
            properties:
              size: {{type: integer, minimum: 1, description: How large it is.}}
              color: {{type: string, default: blue}}
          status: {{type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


def gadget(group: str, name: str, size: int) -> str:
    return f"""
apiVersion: {group}/v1
kind: Gadget
metadata: {{name: {name}}}
spec: {{size: {size}}}
"""
