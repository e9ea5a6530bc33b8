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

class Attachment(_message.Message):
    __slots__ = ("container_id", "ifname")
    CONTAINER_ID_FIELD_NUMBER: _ClassVar[int]
    IFNAME_FIELD_NUMBER: _ClassVar[int]
    container_id: str
    ifname: str
    def __init__(self, container_id: _Optional[str] = ..., ifname: _Optional[str] = ...) -> None: ...

class CollectRequest(_message.Message):
    __slots__ = ("network", "pools", "pool_type", "valid")
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    POOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    VALID_FIELD_NUMBER: _ClassVar[int]
    network: str
    pools: _containers.RepeatedScalarFieldContainer[str]
    pool_type: PoolType
    valid: _containers.RepeatedCompositeFieldContainer[Attachment]
    def __init__(
        self,
        network: _Optional[str] = ...,
        pools: _Optional[_Iterable[str]] = ...,
        pool_type: _Optional[_Union[PoolType, str]] = ...,
        valid: _Optional[_Iterable[_Union[Attachment, _Mapping[str, object]]]] = ...,
    ) -> None: ...

class CollectResponse(_message.Message):
    __slots__ = ("released", "kept")
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    released: int
    kept: int
    def __init__(self, released: _Optional[int] = ..., kept: _Optional[int] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("pools", "pool_type")
    POOLS_FIELD_NUMBER: _ClassVar[int]
    POOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    pools: _containers.RepeatedScalarFieldContainer[str]
    pool_type: PoolType
    def __init__(
        self, pools: _Optional[_Iterable[str]] = ..., pool_type: _Optional[_Union[PoolType, str]] = ...
    ) -> None: ...

class PoolState(_message.Message):
    __slots__ = ("pool", "pool_type", "capacity", "used", "free")
    POOL_FIELD_NUMBER: _ClassVar[int]
    POOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    pool: str
    pool_type: PoolType
    capacity: int
    used: int
    free: int
    def __init__(
        self,
        pool: _Optional[str] = ...,
        pool_type: _Optional[_Union[PoolType, str]] = ...,
        capacity: _Optional[int] = ...,
        used: _Optional[int] = ...,
        free: _Optional[int] = ...,
    ) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("pools",)
    POOLS_FIELD_NUMBER: _ClassVar[int]
    pools: _containers.RepeatedCompositeFieldContainer[PoolState]
    def __init__(self, pools: _Optional[_Iterable[_Union[PoolState, _Mapping[str, object]]]] = ...) -> None: ...
