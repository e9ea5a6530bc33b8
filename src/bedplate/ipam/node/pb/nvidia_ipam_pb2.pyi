# ruff: noqa
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PoolType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    POOL_TYPE_UNSPECIFIED: _ClassVar[PoolType]
    POOL_TYPE_IPPOOL: _ClassVar[PoolType]
    POOL_TYPE_CIDRPOOL: _ClassVar[PoolType]

POOL_TYPE_UNSPECIFIED: PoolType
POOL_TYPE_IPPOOL: PoolType
POOL_TYPE_CIDRPOOL: PoolType

class IPAMMetadata(_message.Message):
    __slots__ = ("k8s_pod_name", "k8s_pod_namespace", "k8s_pod_uid", "device_id")
    K8S_POD_NAME_FIELD_NUMBER: _ClassVar[int]
    K8S_POD_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    K8S_POD_UID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    k8s_pod_name: str
    k8s_pod_namespace: str
    k8s_pod_uid: str
    device_id: str
    def __init__(
        self,
        k8s_pod_name: _Optional[str] = ...,
        k8s_pod_namespace: _Optional[str] = ...,
        k8s_pod_uid: _Optional[str] = ...,
        device_id: _Optional[str] = ...,
    ) -> None: ...

class IPAMFeatures(_message.Message):
    __slots__ = ("allocate_default_gateway", "allocate_ip_with_index")
    ALLOCATE_DEFAULT_GATEWAY_FIELD_NUMBER: _ClassVar[int]
    ALLOCATE_IP_WITH_INDEX_FIELD_NUMBER: _ClassVar[int]
    allocate_default_gateway: bool
    allocate_ip_with_index: int
    def __init__(
        self, allocate_default_gateway: _Optional[bool] = ..., allocate_ip_with_index: _Optional[int] = ...
    ) -> None: ...

class IPAMParameters(_message.Message):
    __slots__ = ("pools", "cni_containerid", "cni_ifname", "metadata", "pool_type", "requested_ips", "features")
    POOLS_FIELD_NUMBER: _ClassVar[int]
    CNI_CONTAINERID_FIELD_NUMBER: _ClassVar[int]
    CNI_IFNAME_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    POOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_IPS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    pools: _containers.RepeatedScalarFieldContainer[str]
    cni_containerid: str
    cni_ifname: str
    metadata: IPAMMetadata
    pool_type: PoolType
    requested_ips: _containers.RepeatedScalarFieldContainer[str]
    features: IPAMFeatures
    def __init__(
        self,
        pools: _Optional[_Iterable[str]] = ...,
        cni_containerid: _Optional[str] = ...,
        cni_ifname: _Optional[str] = ...,
        metadata: _Optional[_Union[IPAMMetadata, _Mapping[str, object]]] = ...,
        pool_type: _Optional[_Union[PoolType, str]] = ...,
        requested_ips: _Optional[_Iterable[str]] = ...,
        features: _Optional[_Union[IPAMFeatures, _Mapping[str, object]]] = ...,
    ) -> None: ...

class Route(_message.Message):
    __slots__ = ("dest",)
    DEST_FIELD_NUMBER: _ClassVar[int]
    dest: str
    def __init__(self, dest: _Optional[str] = ...) -> None: ...

class AllocationInfo(_message.Message):
    __slots__ = ("pool", "ip", "gateway", "pool_type", "routes")
    POOL_FIELD_NUMBER: _ClassVar[int]
    IP_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    POOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    pool: str
    ip: str
    gateway: str
    pool_type: PoolType
    routes: _containers.RepeatedCompositeFieldContainer[Route]
    def __init__(
        self,
        pool: _Optional[str] = ...,
        ip: _Optional[str] = ...,
        gateway: _Optional[str] = ...,
        pool_type: _Optional[_Union[PoolType, str]] = ...,
        routes: _Optional[_Iterable[_Union[Route, _Mapping[str, object]]]] = ...,
    ) -> None: ...

class AllocateRequest(_message.Message):
    __slots__ = ("parameters",)
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    parameters: IPAMParameters
    def __init__(self, parameters: _Optional[_Union[IPAMParameters, _Mapping[str, object]]] = ...) -> None: ...

class AllocateResponse(_message.Message):
    __slots__ = ("allocations",)
    ALLOCATIONS_FIELD_NUMBER: _ClassVar[int]
    allocations: _containers.RepeatedCompositeFieldContainer[AllocationInfo]
    def __init__(
        self, allocations: _Optional[_Iterable[_Union[AllocationInfo, _Mapping[str, object]]]] = ...
    ) -> None: ...

class IsAllocatedRequest(_message.Message):
    __slots__ = ("parameters",)
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    parameters: IPAMParameters
    def __init__(self, parameters: _Optional[_Union[IPAMParameters, _Mapping[str, object]]] = ...) -> None: ...

class IsAllocatedResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeallocateRequest(_message.Message):
    __slots__ = ("parameters",)
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    parameters: IPAMParameters
    def __init__(self, parameters: _Optional[_Union[IPAMParameters, _Mapping[str, object]]] = ...) -> None: ...

class DeallocateResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
